/* The sampling of a request by our own names: which fields there are, and which values one may have. One table for the configuration,
 * for definitions and for what a call brings; which of them a kind of runtime has, and whether it takes less, is said by its adapter
 * (activities/adapter.h). Pure. To add a field: a line in `rules` of sampling.c, a line in each adapter whose runtime has it.
 * Source: runtimes.md 2 to 8. */
#pragma once

#include "workflow/base/json.h"

enum {
	SAMPLING_RULES_MAX = 64,
	SAMPLING_LIST_MAX = 1024, /* tokens of a list, or of logitBias */
	SAMPLING_TEXTS_MAX = 64, /* texts of a list */
	SAMPLING_TEXT_MAX = 1024, /* bytes of one of them */
	SAMPLING_WORD_MAX = 32, /* bytes of reasoningEffort */
	SAMPLING_OBJECT_MAX = 16 << 10, /* bytes of templateArguments and generationConfig, printed */
};

enum sampling_type {
	SAMPLING_NUMBER,
	SAMPLING_WHOLE,
	SAMPLING_SEED, /* a whole number, or its digits as a text */
	SAMPLING_SWITCH, /* true or false */
	SAMPLING_EFFORT, /* a word, or how much of the most there is, from 0 to 0.99 */
	SAMPLING_TEXTS, /* a text, or a list of texts */
	SAMPLING_TOKENS, /* a list of token ids */
	SAMPLING_BIAS, /* {token id: number, or false: never} */
	SAMPLING_OBJECT, /* whatever the model's template, or the runtime, makes of it */
};

struct sampling_rule {
	const char *name;
	enum sampling_type type;
	double from, to; /* numbers */
	bool above; /* `from` itself is too little */
};

/* Where in a value the mistake is, and what is possible: "must be a number from 0 to 1". */
struct sampling_fault {
	char inside[48]; /* the index of an item, the name of a member, cut; "": the value itself */
	char why[176];
};

extern const struct sampling_rule sampling_rules[]; /* ends with {NULL} */
size_t sampling_rule_count(void);
const struct sampling_rule *sampling_rule_find(const char *name); /* NULL: there is no such field */

/* Can the value be? `is_open` tells parts that nobody knows yet (an expression), which are left out of it; NULL: there are none. */
bool sampling_check(const struct sampling_rule *rule, const struct json *value, bool (*is_open)(const struct json *part), struct sampling_fault *fault);

/* The number of a seed that was checked. */
double sampling_seed(const struct json *value);
