/* See launch.h. Pure. */
#include "activities/launch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "workflow/base/check.h"

bool launch_is_secret(const char *name, size_t len)
{
	static const char *const ends[] = {"key", "token", "secret", "password", "credentials"};

	for (size_t i = 0; i < COUNT_OF(ends); i++) {
		size_t end = strlen(ends[i]);

		if (len >= end && strncasecmp(name + len - end, ends[i], end) == 0)
			return true;
	}
	return false;
}

/* Up to and with the '=' behind a secret's name, wherever it stands: "--api-key=", "HF_TOKEN=" behind -e, "--env=HF_TOKEN=". 0: there is none. */
static size_t find_secret(const char *word)
{
	for (const char *equals = strchr(word, '='); equals != NULL; equals = strchr(equals + 1, '='))
		if (launch_is_secret(word, (size_t)(equals - word)))
			return (size_t)(equals - word) + 1;
	return 0;
}

struct json *launch_argv_json(struct arena *arena, const char *const *argv)
{
	struct json *list = json_array(arena);
	bool next_is_secret = false;

	for (size_t i = 0; argv[i] != NULL; i++) {
		size_t shown = find_secret(argv[i]);

		/* A key may begin with one '-', but hardly with two. */
		if (next_is_secret && strncmp(argv[i], "--", 2) != 0)
			json_add(arena, list, json_text(arena, "(set)"));
		else if (shown > 0)
			json_add(arena, list, json_printf(arena, "%.*s(set)", (int)shown, argv[i]));
		else
			json_add(arena, list, json_text(arena, argv[i]));
		next_is_secret = argv[i][0] == '-' && launch_is_secret(argv[i], strlen(argv[i]));
	}
	return list;
}

static unsigned read_parallel(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	return text[0] >= '1' && text[0] <= '9' && *end == '\0' && value <= UINT_MAX ? (unsigned)value : 0;
}

unsigned launch_parallel(const char *const *argv, const char *const *env, const char **source)
{
	/* llama.cpp, vLLM, SGLang; Ollama and llama.cpp (runtimes.md 3 to 6). */
	static const char *const options[] = {"-np", "--parallel", "--max-num-seqs", "--max-running-requests"}, *const variables[] = {"OLLAMA_NUM_PARALLEL", "LLAMA_ARG_N_PARALLEL"};
	unsigned parallel = 0;

	*source = "launch.argv";
	for (size_t i = 0; argv[i] != NULL; i++) {
		for (size_t j = 0; j < COUNT_OF(options); j++) {
			size_t len = strlen(options[j]);
			const char *value = strncmp(argv[i], options[j], len) != 0 ? NULL : argv[i][len] == '=' ? argv[i] + len + 1 : argv[i][len] == '\0' ? argv[i + 1] : NULL;

			if (value != NULL) /* the last one counts, as it does for them */
				parallel = read_parallel(value);
		}
	}
	if (parallel > 0)
		return parallel;
	*source = "launch.env, launch.inherit";
	for (size_t i = 0; env[i] != NULL; i++) {
		for (size_t j = 0; j < COUNT_OF(variables); j++) {
			size_t len = strlen(variables[j]);

			if (strncmp(env[i], variables[j], len) == 0 && env[i][len] == '=')
				parallel = read_parallel(env[i] + len + 1);
		}
	}
	return parallel;
}
