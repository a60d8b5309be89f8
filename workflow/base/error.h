/* Operating errors: what failed, for which id, against which limit, and what to do next.
 *
 * A struct error comes last in a parameter list and holds the message, so it also travels inside a request from one
 * thread to another: there is no errno and no global. Functions return the code and log nothing; the one place that
 * stops an error logs it, once. An outcome of the domain (a step failed) is a journal entry, not an error; a mistake
 * of ours is a CHECK (check.h). */
#pragma once

#include <stddef.h>

/* One list: the enum, the strings and the names of the API come from it. Columns: name, API name, HTTP status. */
#define ERROR_CODES(X)                                  \
	X(ERR_NONE, "ok", 200)                          \
	X(ERR_INVALID, "invalid-input", 400)            \
	X(ERR_DENIED, "not-authorised", 403)            \
	X(ERR_NOT_FOUND, "not-found", 404)              \
	X(ERR_EXISTS, "conflict", 409)                  \
	X(ERR_GONE, "gone", 410)                        \
	X(ERR_TOO_LARGE, "too-large", 413)              \
	X(ERR_UNSUPPORTED, "unsupported", 400)          \
	X(ERR_BUSY, "queue-full", 503)                  \
	X(ERR_TIMEOUT, "timed-out", 504)                \
	X(ERR_CANCELLED, "cancelled", 499)              \
	X(ERR_UNREACHABLE, "unreachable", 502)          \
	X(ERR_IO, "storage-failed", 500)                \
	X(ERR_FULL, "disk-full", 507)                   \
	X(ERR_CORRUPT, "damaged", 500)                  \
	X(ERR_INTERNAL, "internal", 500)

enum error_code {
#define X(name, text, status) name,
	ERROR_CODES(X)
#undef X
	ERROR_CODE_COUNT
};

struct error {
	enum error_code code;
	char message[480]; /* Outermost first: "open journal /x: migrate 3: disk full". Cut at the end when too long. */
};

/* Fill in and return the code. A NULL error is allowed: then only the code is returned. */
int error_set(struct error *error, enum error_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Put "context: " before the message and return the code that is already there. */
int error_wrap(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "invalid-input"; "invalid-input" is also the last part of the problem type in the API. */
const char *error_code_name(enum error_code code);
int error_code_http_status(enum error_code code);
