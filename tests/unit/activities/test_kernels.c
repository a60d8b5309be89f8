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

SUITE_MAIN("activities-kernels", lines_of_logs, limits)
