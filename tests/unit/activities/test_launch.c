/* What is shown and written down of arguments: no secret; and what they tell of a runtime. Pure. */
#include <check.h>
#include <stdlib.h>

#include "activities/launch.h"
#include "workflow/base/check.h"

static const struct {
	const char *argv[6], *shown;
} cases[] = {
	{{"vllm", "serve", "/m", "--port", "8000"}, "[\"vllm\",\"serve\",\"/m\",\"--port\",\"8000\"]"},
	{{"s", "--api-key", "abc", "--port", "1"}, "[\"s\",\"--api-key\",\"(set)\",\"--port\",\"1\"]"},
	{{"s", "--api-key", "-abc"}, "[\"s\",\"--api-key\",\"(set)\"]"}, /* a key may begin so */
	{{"s", "--use-token", "--port", "1"}, "[\"s\",\"--use-token\",\"--port\",\"1\"]"},
	{{"s", "--API_KEY=abc=="}, "[\"s\",\"--API_KEY=(set)\"]"},
	/* Containers are given their variables as arguments. */
	{{"podman", "run", "-e", "HF_TOKEN=abc", "image"}, "[\"podman\",\"run\",\"-e\",\"HF_TOKEN=(set)\",\"image\"]"},
	{{"podman", "run", "--env=HF_TOKEN=abc", "image"}, "[\"podman\",\"run\",\"--env=HF_TOKEN=(set)\",\"image\"]"},
	{{"podman", "run", "-eVLLM_API_KEY=abc", "--env=A=b"}, "[\"podman\",\"run\",\"-eVLLM_API_KEY=(set)\",\"--env=A=b\"]"},
	{{"curl", "http://127.0.0.1/x?a=b&token=abc"}, "[\"curl\",\"http://127.0.0.1/x?a=b&token=(set)\"]"},
	{{"s", "--max-num-batched-tokens", "16384"}, "[\"s\",\"--max-num-batched-tokens\",\"16384\"]"},
	{{"s", "monkey", "a=b", "="}, "[\"s\",\"monkey\",\"a=b\",\"=\"]"},
};

/* Of each argument that holds a secret, in whatever form, only that it was given is shown; of all others everything. */
START_TEST(secrets_are_not_shown)
{
	struct arena arena;

	arena_init(&arena);
	ck_assert_str_eq((const char *)json_print_arena(launch_argv_json(&arena, cases[_i].argv), &arena).data, cases[_i].shown);
	arena_close(&arena);
}
END_TEST

static const struct {
	const char *argv[6], *env[3];
	unsigned parallel;
	const char *source;
} parallels[] = {
	{{"llama-server", "-np", "4"}, {"PATH=/"}, 4, "launch.argv"},
	{{"llama-server", "--parallel=3", "-np", "2"}, {NULL}, 2, "launch.argv"},
	{{"vllm", "serve", "--max-num-seqs", "64"}, {NULL}, 64, "launch.argv"},
	{{"ollama", "serve"}, {"A=b", "OLLAMA_NUM_PARALLEL=2"}, 2, "launch.env, launch.inherit"},
	{{"llama-server", "-np", "1"}, {"LLAMA_ARG_N_PARALLEL=8"}, 1, "launch.argv"},
	/* As many as it likes, no number, none at all. */
	{{"llama-server", "-np", "-1"}, {"OLLAMA_NUM_PARALLEL="}, 0, NULL},
	{{"s", "-np"}, {"OLLAMA_NUM_PARALLELS=2"}, 0, NULL},
	{{"s", "--parallel-sets", "4", "-np", "4x"}, {NULL}, 0, NULL},
	{{"s", "-np", "99999999999999999999999"}, {NULL}, 0, NULL},
};

/* What it was told of how many requests it takes is found in arguments and variables, the former first. */
START_TEST(parallel_is_found)
{
	const char *source;

	ck_assert_uint_eq(launch_parallel(parallels[_i].argv, parallels[_i].env, &source), parallels[_i].parallel);
	if (parallels[_i].source != NULL)
		ck_assert_str_eq(source, parallels[_i].source);
}
END_TEST

#define HEX "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* An image that is named by its digest is known by it; by a tag it is not. */
START_TEST(images_are_known_by_digest)
{
	static const struct {
		const char *argv, *digest;
	} rows[] = {
		{"[\"podman\",\"run\",\"docker.io/vllm/vllm-openai@sha256:" HEX "\",\"--model\",\"m\"]", HEX},
		{"[\"podman\",\"run\",\"ollama/ollama:0.33.0\"]", NULL},
		{"[\"podman\",\"run\",\"x@sha256:" HEX "0\",\"@sha256:" HEX "\",\"x@sha256:0011\",7]", NULL},
		{"[]", NULL},
	};
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		ck_assert_pstr_eq(launch_image_digest(&arena, json_parse(&arena, bytes_text(rows[i].argv), JSON_STRICT, NULL, NULL)), rows[i].digest);
	arena_close(&arena);
}
END_TEST

static const struct launch_flag flags[] = {
	{"C.cache_flags", "cache_prompt", {"--cache-prompt"}, "--no-cache-prompt", "LLAMA_ARG_CACHE_PROMPT"},
	{"C.cache_flags", "cache_ram", {"-cram", "--cache-ram"}, NULL, "LLAMA_ARG_CACHE_RAM"},
	{"C.cache_flags", "swa_full", {"--swa-full"}, "", NULL},
	{"B.revision", NULL, {"-hf", "-hfr", "--hf-repo", "--hf"}, NULL, NULL},
	{NULL, NULL, {NULL}, NULL, NULL},
};

static const struct {
	const char *argv, *env, *told;
} told[] = {
	{"[\"s\",\"--no-cache-prompt\",\"-cram\",\"0\"]", "{}", "{\"C.cache_flags\":{\"cache_prompt\":false,\"cache_ram\":\"0\"}}"},
	{"[\"s\",\"--no-cache-prompt\",\"--cache-prompt\",\"--cache-ram=1\",\"-cram\",\"2\"]", "{}", "{\"C.cache_flags\":{\"cache_prompt\":true,\"cache_ram\":\"2\"}}"}, /* the last one */
	{"[\"s\",\"--hf\",\"o/m:Q8_0\"]", "{\"LLAMA_ARG_CACHE_RAM\":\"7\",\"LLAMA_ARG_CACHE_PROMPT\":\"off\"}", "{\"B.revision\":\"o/m:Q8_0\",\"C.cache_flags\":{\"cache_prompt\":false,\"cache_ram\":\"7\"}}"},
	{"[\"s\",\"-cram\",\"1\"]", "{\"LLAMA_ARG_CACHE_RAM\":\"7\"}", "{\"C.cache_flags\":{\"cache_ram\":\"1\"}}"}, /* options first */
	{"[\"podman\",\"run\",\"-e\",\"LLAMA_ARG_CACHE_RAM=3\",\"-eLLAMA_ARG_CACHE_PROMPT=1\",\"i\"]", "{}", "{\"C.cache_flags\":{\"cache_prompt\":true,\"cache_ram\":\"3\"}}"},
	{"[\"podman\",\"run\",\"--env=LLAMA_ARG_CACHE_RAM=4\"]", "{}", "{\"C.cache_flags\":{\"cache_ram\":\"4\"}}"},
	/* What is not known, is no switch's value, or stands there for something else. */
	{"[\"s\",\"-cram\"]", "{\"LLAMA_ARG_CACHE_PROMPT\":\"(inherited)\"}", "{}"},
	{"[7,\"s\",\"-cram\",7,\"-cramp\",\"1\",\"x-cram=1\"]", "{\"LLAMA_ARG_CACHE_PROMPT\":\"maybe\",\"LLAMA_ARG_CACHE_RAM\":7}", "{}"},
	{"[\"\"]", NULL, "{}"},
	{"[\"--swa-full\",\"\"]", NULL, "{\"C.cache_flags\":{\"swa_full\":true}}"},
};

/* What it was told stands where a record has it; of two the last one counts, of an option and a variable the option. */
START_TEST(flags_are_found)
{
	struct arena arena;
	const struct json *argv, *env;

	arena_init(&arena);
	argv = json_parse(&arena, bytes_text(told[_i].argv), JSON_STRICT, NULL, NULL);
	env = told[_i].env != NULL ? json_parse(&arena, bytes_text(told[_i].env), JSON_STRICT, NULL, NULL) : NULL;
	ck_assert_ptr_nonnull(argv);
	ck_assert_str_eq((const char *)json_print_arena(launch_read_flags(&arena, flags, argv, env), &arena).data, told[_i].told);
	arena_close(&arena);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("launch");
	TCase *all = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(all, secrets_are_not_shown, 0, (int)COUNT_OF(cases));
	tcase_add_loop_test(all, parallel_is_found, 0, (int)COUNT_OF(parallels));
	tcase_add_test(all, images_are_known_by_digest);
	tcase_add_loop_test(all, flags_are_found, 0, (int)COUNT_OF(told));
	suite_add_tcase(suite, all);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
