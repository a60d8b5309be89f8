/* See launch.h. Pure. */
#include "activities/launch.h"

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
