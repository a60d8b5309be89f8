/* See failure.h. */
#include "workflow/base/failure.h"

#include <string.h>

static const struct {
	const char *text;
	bool again;
	const char *type;
	int status;
} failures[FAILURE_CLASS_COUNT] = {
#define X(name, text, again, type, status) [name] = {text, again, ERROR_TYPE(type), status},
	FAILURE_CLASSES(X)
#undef X
};

const char *failure_name(enum failure_class failure)
{
	return failures[failure].text;
}

bool failure_parse(const char *text, enum failure_class *failure)
{
	for (int i = 1; i < FAILURE_CLASS_COUNT; i++)
		if (strcmp(failures[i].text, text) == 0) {
			*failure = (enum failure_class)i;
			return true;
		}
	return false;
}

bool failure_may_retry(enum failure_class failure)
{
	return failures[failure].again;
}

const char *failure_error_type(enum failure_class failure)
{
	return failures[failure].type;
}

int failure_status(enum failure_class failure)
{
	return failures[failure].status;
}
