/* Tests of activities/kernels.c. */
#include "activities/kernels.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

SUITE_NO_ABORTS

/* The lines that runtimes.md quotes, each once and in one order whatever the log's; others tell nothing, and neither do refusals. */
START_TEST(lines_of_logs)
{
	static const struct {
		const char *line;
		bool tells;
	} cases[] = {
		{"(EngineCore pid=7) INFO 11-30 [cuda.py:1] Using TRITON_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'TRITON_ATTN']", true},
		{"INFO [cuda.py] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN']", true},
		{"INFO [cuda.py] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN']", false}, /* another worker */
		{"Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN'] (weight-only W4A16)", true},
		{"system_info: n_threads = 4 (n_threads_batch = 4) / 4 | CPU : SSE3 = 1 | AVX2 = 1 |\r", true},
		{"ValueError: NvFp4 MoE backend 'MARLIN' does not support the deployment configuration", false},
		{"Using some attention backend", true},
		{"Using no known attention backend", false},
		{"Using 'MARLIN MoE backend", false},
		{"Using  attention backend", false},
		{"Using \x01 attention backend", false},
		{"system_info: ", false},
		{"", false},
	};
	struct arena arena;
	struct json *kernels;

	arena_init(&arena);
	kernels = json_object(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		size_t used = arena.used;

		ck_assert_msg(kernels_read_line(&arena, bytes_text(cases[i].line), kernels) == cases[i].tells, "%s", cases[i].line);
		ck_assert_msg(cases[i].tells || arena.used == used, "%s", cases[i].line); /* a start may write any number of lines */
	}
	ck_assert_str_eq((const char *)json_print_arena(kernels, &arena).data,
			 "{\"attention\":[\"FLASH_ATTN\",\"TRITON_ATTN\",\"some\"],\"moe\":[\"MARLIN NvFp4\"],"
			 "\"systemInfo\":[\"n_threads = 4 (n_threads_batch = 4) / 4 | CPU : SSE3 = 1 | AVX2 = 1 |\"]}");
	arena_close(&arena);
}
END_TEST

/* What vLLM tells of the real launch, each line once and without secrets. */
START_TEST(evidence_of_logs)
{
	static const struct {
		const char *line, *kept; /* NULL: it tells nothing */
	} cases[] = {
		{"(APIServer pid=7) INFO 11-30 [utils.py:1] vLLM server version 0.29.0, serving model /models/m", "vLLM server version 0.29.0, serving model /models/m"},
		{"(APIServer pid=7) INFO [utils.py] non-default args: {'model': '/m', 'api_key': ['abc'], 'hf_token': 'def', 'max_num_seqs': 1}\r",
		 "non-default args: {'model': '/m', 'api_key': (set), 'hf_token': (set), 'max_num_seqs': 1}"},
		{"INFO [utils.py] non-default args: {'model': '/m', 'api_key': ['xyz'], 'hf_token': 'def', 'max_num_seqs': 1}", NULL}, /* the same, as far as it is told */
		{"non-default args: {'hf_token': abc", "non-default args: {'hf_token': (set)"},
		{"(EngineCore pid=8) INFO [gpu_model_runner.py] Model loading took 18.2 GiB and 12.3 seconds", "Model loading took 18.2 GiB and 12.3 seconds"},
		{"Model loading took \x01", NULL},
		{"nothing of it", NULL},
		{"", NULL},
	};
	struct arena arena;
	struct json *lines;
	size_t count = 0;

	arena_init(&arena);
	lines = json_array(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		size_t used = arena.used;

		ck_assert_msg(kernels_read_evidence(&arena, bytes_text(cases[i].line), lines) == (cases[i].kept != NULL), "%s", cases[i].line);
		if (cases[i].kept != NULL)
			ck_assert_str_eq(json_at(lines, count++)->string.text, cases[i].kept);
		else
			ck_assert_uint_eq(arena.used, used);
	}
	ck_assert_uint_eq(count, EVIDENCE_LINES_MAX);
	ck_assert(!kernels_read_evidence(&arena, bytes_text("Model loading took 1 GiB"), lines));
	arena_close(&arena);
}
END_TEST

/* No byte of a secret is kept, whatever signs it holds and wherever the line was cut; what follows it is. */
START_TEST(secrets_are_left_out)
{
	static const struct {
		const char *line, *kept;
	} cases[] = {
		{"non-default args: {'api_key': ['a]b', 'c'], 'port': 1}", "non-default args: {'api_key': (set), 'port': 1}"},
		{"non-default args: {'api_key': [\"a'b]\", 'c'], 'port': 1}", "non-default args: {'api_key': (set), 'port': 1}"},
		{"non-default args: {'api_key': 'a\\'b, \"c', 'port': 1}", "non-default args: {'api_key': (set), 'port': 1}"},
		{"non-default args: {'hf_token': {'a': 'b', 'c': 'd'}, 'port': 1}", "non-default args: {'hf_token': (set), 'port': 1}"},
		{"non-default args: {'api_key': ['abc', 'de", "non-default args: {'api_key': (set)"},
		{"non-default args: {'hf_token': 'ab, cd", "non-default args: {'hf_token': (set)"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena;
		struct json *lines;

		arena_init(&arena);
		lines = json_array(&arena);
		ck_assert(kernels_read_evidence(&arena, bytes_text(cases[i].line), lines));
		ck_assert_str_eq(json_at(lines, 0)->string.text, cases[i].kept);
		arena_close(&arena);
	}
}
END_TEST

/* A longer line is cut. */
START_TEST(evidence_is_bounded)
{
	char line[EVIDENCE_LINE_LEN_MAX + 100] = "non-default args: ";
	struct arena arena;
	struct json *lines;

	arena_init(&arena);
	lines = json_array(&arena);
	memset(line + strlen(line), 'x', sizeof(line) - 1 - strlen(line));
	line[sizeof(line) - 1] = '\0';
	ck_assert(kernels_read_evidence(&arena, bytes_text(line), lines));
	ck_assert_uint_eq(json_at(lines, 0)->string.len, EVIDENCE_LINE_LEN_MAX);
	arena_close(&arena);
}
END_TEST

/* No more texts, and no longer ones, than are kept. */
START_TEST(limits)
{
	char line[KERNELS_TEXT_LEN_MAX + 100] = "system_info: ";
	struct arena arena;
	struct json *kernels;

	arena_init(&arena);
	kernels = json_object(&arena);
	while (strlen(line) < KERNELS_TEXT_LEN_MAX + 50)
		strcat(line, "x");
	ck_assert(kernels_read_line(&arena, bytes_text(line), kernels));
	ck_assert_uint_eq(json_at(json_get(kernels, "systemInfo"), 0)->string.len, KERNELS_TEXT_LEN_MAX);
	for (int i = 0; i < KERNELS_TEXTS_MAX + 1; i++) {
		snprintf(line, sizeof(line), "Using KERNEL_%d attention backend", i);
		ck_assert_int_eq(kernels_read_line(&arena, bytes_text(line), kernels), i < KERNELS_TEXTS_MAX);
	}
	ck_assert_uint_eq(json_count(json_get(kernels, "attention")), KERNELS_TEXTS_MAX);
	arena_close(&arena);
}
END_TEST

SUITE_MAIN("activities-kernels", lines_of_logs, evidence_of_logs, secrets_are_left_out, evidence_is_bounded, limits)
