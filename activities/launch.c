/* See launch.h. Pure. */
#include "activities/launch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "workflow/base/check.h"
#include "workflow/base/digest.h"

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

/* ---- What it was told, as a record has it ---- */

static const char *text_at(const struct json *list, size_t i)
{
	const struct json *item = i < json_count(list) ? json_at(list, i) : NULL;

	return json_is(item, JSON_STRING) ? item->string.text : NULL;
}

const char *launch_image_digest(struct arena *arena, const struct json *argv)
{
	static const char mark[] = "@sha256:";
	const char *digest = NULL;

	for (size_t i = 0; i < json_count(argv); i++) {
		const char *word = text_at(argv, i), *at = word != NULL ? strstr(word, mark) : NULL;

		if (at != NULL && at > word && strspn(at + sizeof(mark) - 1, "0123456789abcdef") == DIGEST_HEX_LEN && at[sizeof(mark) - 1 + DIGEST_HEX_LEN] == '\0')
			digest = arena_text(arena, at + sizeof(mark) - 1);
	}
	return digest;
}

static bool is_one_of(const char *word, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count && names[i] != NULL; i++)
		if (strcmp(word, names[i]) == 0)
			return true;
	return false;
}

static struct json *read_switch(struct arena *arena, const char *text)
{
	static const char *const on[] = {"1", "true", "on", "enabled"}, *const off[] = {"0", "false", "off", "disabled"};

	if (is_one_of(text, on, COUNT_OF(on)))
		return json_boolean(arena, true);
	return is_one_of(text, off, COUNT_OF(off)) ? json_boolean(arena, false) : NULL;
}

/* Behind "NAME=", with what a container's engine wants before it; NULL: this is another word. */
static const char *value_of_variable(const char *word, const char *name)
{
	static const char *const before[] = {"--env=", "-e", ""};
	size_t len = strlen(name);

	for (size_t i = 0; i < COUNT_OF(before); i++) {
		size_t skip = strlen(before[i]);

		if (strncmp(word, before[i], skip) == 0 && strncmp(word + skip, name, len) == 0 && word[skip + len] == '=')
			return word + skip + len + 1;
	}
	return NULL;
}

static struct json *read_value(struct arena *arena, const struct launch_flag *flag, const char *text)
{
	/* "(set)", "(inherited)": what it is was left out. */
	if (text == NULL || text[0] == '(')
		return NULL;
	return flag->off != NULL ? read_switch(arena, text) : json_text(arena, text);
}

static struct json *read_flag(struct arena *arena, const struct launch_flag *flag, const struct json *argv, const struct json *env)
{
	struct json *value = NULL, *variable = flag->variable != NULL ? read_value(arena, flag, json_get_text(env, flag->variable)) : NULL;

	for (size_t i = 0; i < json_count(argv); i++) {
		const char *word = text_at(argv, i), *equals = word != NULL ? strchr(word, '=') : NULL, *told;

		if (word == NULL)
			continue;
		if (flag->off != NULL && flag->off[0] != '\0' && strcmp(word, flag->off) == 0)
			value = json_boolean(arena, false);
		else if (is_one_of(word, flag->options, LAUNCH_OPTIONS_MAX))
			value = flag->off != NULL ? json_boolean(arena, true) : read_value(arena, flag, text_at(argv, i + 1));
		else if (equals != NULL && is_one_of(arena_text_len(arena, word, (size_t)(equals - word)), flag->options, LAUNCH_OPTIONS_MAX))
			value = read_value(arena, flag, equals + 1);
		else if (flag->variable != NULL && (told = value_of_variable(word, flag->variable)) != NULL)
			variable = read_value(arena, flag, told);
	}
	return value != NULL ? value : variable;
}

struct json *launch_read_flags(struct arena *arena, const struct launch_flag *flags, const struct json *argv, const struct json *env)
{
	struct json *fields = json_object(arena);

	for (; flags != NULL && flags->place != NULL; flags++) {
		struct json *value = read_flag(arena, flags, argv, env), *field = json_get(fields, flags->place);

		if (value == NULL)
			continue;
		if (flags->name == NULL) {
			json_set(arena, fields, flags->place, value);
			continue;
		}
		if (field == NULL) {
			field = json_object(arena);
			json_set(arena, fields, flags->place, field);
		}
		json_set(arena, field, flags->name, value);
	}
	return fields;
}
