/* Regular expressions of JSON Schema's `pattern` and `patternProperties`: ECMA-262 with the flag u, run by PCRE2. Pure.
 *
 * A pattern comes from a definition and a text from anywhere, so both are hostile: what is not ECMA-262 is refused, and matching
 * is paid for in steps, of which one validation has PATTERN_STEPS_MAX for all its patterns together.
 * Threads: a pattern that is made is never changed, so several threads may match it, each with a matcher of its own.
 * Differences from ECMA-262: look-behind must have a bounded length; a group that is repeated keeps what it caught in an earlier round. */
#pragma once

#include <stddef.h>

#include "workflow/base/error.h"

enum {
	PATTERN_LEN_MAX = 4096, /* bytes of one pattern */
	PATTERN_STEPS_MAX = 2000000, /* items tried, plus one for each PATTERN_BYTES_PER_STEP bytes that were run over */
	PATTERN_BYTES_PER_STEP = 64,
	PATTERN_HEAP_KIB_MAX = 16384, /* memory to come back to earlier choices */
};

struct pattern;
struct pattern_matcher;

/* NULL and ERR_INVALID: "not a regular expression: … at offset 3". */
struct pattern *pattern_new(const char *text, size_t len, struct error *error);
void pattern_free(struct pattern *pattern);
/* Bytes that it takes: {n} is written out, so that twenty bytes of text become 64 KiB. */
size_t pattern_size(const struct pattern *pattern);

/* One for each validation: it counts the steps. */
struct pattern_matcher *pattern_matcher_new(void);
void pattern_matcher_free(struct pattern_matcher *matcher);

enum pattern_verdict { PATTERN_MATCHES, PATTERN_DIFFERS, PATTERN_STOPPED };
/* The text is valid UTF-8. PATTERN_STOPPED: a limit was reached; `error` (ERR_TOO_LARGE) names it. */
enum pattern_verdict pattern_match(const struct pattern *pattern, struct pattern_matcher *matcher, const char *text, size_t len,
				   struct error *error);
