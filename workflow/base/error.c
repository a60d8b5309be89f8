/* Operating errors: messages that grow at the front on their way up. Any thread. Start at error_set(). */
#include "workflow/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "workflow/base/check.h"

static const struct {
	const char *name;
	int http_status;
} codes[ERROR_CODE_COUNT] = {
#define X(name, text, status) [name] = {text, status},
	ERROR_CODES(X)
#undef X
};

/* A message that was cut in the middle of a UTF-8 character would be refused by every JSON reader: drop the rest of it. */
static void trim_cut_character(char *message, size_t size)
{
	size_t len = strlen(message), start = len, need;
	unsigned char lead;

	if (len + 1 < size)
		return;
	while (start > 0 && len - start < 3 && ((unsigned char)message[start - 1] & 0xC0) == 0x80)
		start--;
	if (start == 0)
		return;
	lead = (unsigned char)message[start - 1];
	need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
	if (len - (start - 1) < need)
		message[start - 1] = '\0';
}

int error_set(struct error *error, enum error_code code, const char *format, ...)
{
	struct error made; /* The arguments may point into *error. */
	va_list args;

	CHECK(code >= ERR_NONE && code < ERROR_CODE_COUNT);
	if (error == NULL)
		return code;
	made.code = code;
	va_start(args, format);
	vsnprintf(made.message, sizeof(made.message), format, args);
	va_end(args);
	trim_cut_character(made.message, sizeof(made.message));
	error->code = code;
	strcpy(error->message, made.message);
	return code;
}

int error_wrap(struct error *error, const char *format, ...)
{
	char message[2 * sizeof(error->message)];
	size_t len;
	va_list args;

	if (error == NULL)
		return ERR_INTERNAL; /* The code is unknown here; what matters is that it is not ERR_NONE. */
	va_start(args, format);
	vsnprintf(message, sizeof(error->message), format, args);
	va_end(args);
	len = strlen(message);
	snprintf(message + len, sizeof(message) - len, ": %s", error->message);
	message[sizeof(error->message) - 1] = '\0';
	trim_cut_character(message, sizeof(error->message));
	strcpy(error->message, message);
	return error->code;
}

const char *error_code_name(enum error_code code)
{
	CHECK(code >= ERR_NONE && code < ERROR_CODE_COUNT);
	return codes[code].name;
}

int error_code_http_status(enum error_code code)
{
	CHECK(code >= ERR_NONE && code < ERROR_CODE_COUNT);
	return codes[code].http_status;
}
