/* Classes of a failed attempt: one list for entries, metrics, outcomes and errors (interface.md 3). Pure.
 * Columns: name, text, may another attempt help?, DSL error type, status. */
#pragma once

#include <stdbool.h>

#define FAILURE_CLASSES(X)                                                        \
	X(FAILURE_NONE, "", false, "", 0)                                         \
	X(FAILURE_REFUSED, "refused", false, "communication", 400)                \
	X(FAILURE_TRUNCATED, "truncated", false, "runtime", 500)                  \
	X(FAILURE_LOOPED, "looped", false, "runtime", 500)                        \
	X(FAILURE_SCHEMA_INVALID, "schema-invalid", false, "validation", 400)     \
	X(FAILURE_UNGROUNDED, "ungrounded", false, "validation", 400)             \
	X(FAILURE_WRONG_MODEL, "wrong-model", false, "configuration", 400)        \
	X(FAILURE_RATE_LIMITED, "rate-limited", true, "communication", 429)       \
	X(FAILURE_UNREACHABLE, "unreachable", true, "communication", 500)         \
	X(FAILURE_STALLED, "stalled", true, "timeout", 408)                       \
	X(FAILURE_TIMED_OUT, "timed-out", true, "timeout", 408)                   \
	X(FAILURE_OUT_OF_MEMORY, "out-of-memory", true, "runtime", 500)           \
	X(FAILURE_CONFIGURATION, "configuration", false, "configuration", 400)    \
	X(FAILURE_RUNTIME_ERROR, "runtime-error", true, "communication", 500)     \
	X(FAILURE_CANCELLED, "cancelled", false, "runtime", 500)                  \
	X(FAILURE_INTERRUPTED, "interrupted", true, "runtime", 500)               \
	X(FAILURE_FORBIDDEN, "forbidden", false, "authorization", 403)            \
	X(FAILURE_BUDGET, "budget", false, "budget", 403)

enum failure_class {
#define X(name, text, again, type, status) name,
	FAILURE_CLASSES(X)
#undef X
	FAILURE_CLASS_COUNT
};

/* The DSL's standard error types (dsl.md 1.6), in the spelling that belongs to 1.0.x; `budget` is ours. */
#define ERROR_TYPE(name) "https://serverlessworkflow.io/spec/1.0.0/errors/" name
enum { ERROR_STATUS_MIN = 100, ERROR_STATUS_MAX = 599 }; /* of any error: an HTTP status */

const char *failure_name(enum failure_class failure);
bool failure_parse(const char *text, enum failure_class *failure);
bool failure_may_retry(enum failure_class failure);
/* ERROR_TYPE("communication") and its default status. */
const char *failure_error_type(enum failure_class failure);
int failure_status(enum failure_class failure);
