/* See sampling.h. Start at `sampling_rules`. */
#include "workflow/base/sampling.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

enum { SEED_DIGITS_MAX = 16, TOKEN_DIGITS_MAX = 10 };
#define WHOLE_MAX 9007199254740991.0 /* 2^53 - 1: what a JSON number carries exactly */
#define TOKENS_MAX 1e9
#define TOKEN_ID_MAX 2147483647.0

/* As wide as the runtime that takes the most: what one of them refuses is for its adapter to say.
 * Not here, on purpose: n and beam search (ours takes one answer), truncate_prompt_tokens (a prompt is refused and not cut, C77), repetition_detection
 * (stream_watch.h does that, for all kinds), grammars (a request has a schema), limits of time, and what says how a runtime is loaded. */
const struct sampling_rule sampling_rules[] = {
	{"temperature", SAMPLING_NUMBER, 0, 10, false},
	{"topP", SAMPLING_NUMBER, 0, 1, false},
	{"topK", SAMPLING_WHOLE, -1, 1e9, false}, /* 0 and -1: all */
	{"minP", SAMPLING_NUMBER, 0, 1, false},
	{"typicalP", SAMPLING_NUMBER, 0, 1, false}, /* 1: off */
	{"topNSigma", SAMPLING_NUMBER, -1, 100, false}, /* -1: off */
	{"seed", SAMPLING_SEED, -WHOLE_MAX, WHOLE_MAX, false},
	{"maxTokens", SAMPLING_WHOLE, 1, TOKENS_MAX, false},
	{"minTokens", SAMPLING_WHOLE, 0, TOKENS_MAX, false},
	{"stop", SAMPLING_TEXTS, 0, 0, false},
	{"stopTokenIds", SAMPLING_TOKENS, 0, 0, false},
	{"stopRegex", SAMPLING_TEXTS, 0, 0, false},
	{"keepStop", SAMPLING_SWITCH, 0, 0, false}, /* what ended the answer stays in it */
	{"ignoreEos", SAMPLING_SWITCH, 0, 0, false},
	{"presencePenalty", SAMPLING_NUMBER, -10, 10, false},
	{"frequencyPenalty", SAMPLING_NUMBER, -10, 10, false},
	{"repetitionPenalty", SAMPLING_NUMBER, 0, 10, true}, /* 1: off */
	{"repeatLastN", SAMPLING_WHOLE, -1, 1e9, false}, /* tokens that the penalties look back on; -1: all */
	{"dryMultiplier", SAMPLING_NUMBER, 0, 100, false}, /* 0: off */
	{"dryBase", SAMPLING_NUMBER, 1, 100, false},
	{"dryAllowedLength", SAMPLING_WHOLE, 0, 1e9, false},
	{"dryPenaltyLastN", SAMPLING_WHOLE, -1, 1e9, false},
	{"xtcProbability", SAMPLING_NUMBER, 0, 1, false}, /* 0: off */
	{"xtcThreshold", SAMPLING_NUMBER, 0, 1, false},
	{"dynatempRange", SAMPLING_NUMBER, 0, 10, false}, /* 0: off */
	{"dynatempExponent", SAMPLING_NUMBER, 0, 100, false},
	{"mirostat", SAMPLING_WHOLE, 0, 2, false}, /* 0: off */
	{"mirostatTau", SAMPLING_NUMBER, 0, 100, false},
	{"mirostatEta", SAMPLING_NUMBER, 0, 1, false},
	{"minKeep", SAMPLING_WHOLE, 0, TOKENS_MAX, false}, /* candidates that each sampler leaves, at least */
	{"samplers", SAMPLING_TEXTS, 0, 0, false}, /* in this order; one that is left out is off */
	{"logitBias", SAMPLING_BIAS, -100, 100, false},
	{"badWords", SAMPLING_TEXTS, 0, 0, false},
	{"allowedTokenIds", SAMPLING_TOKENS, 0, 0, false},
	{"reasoningEffort", SAMPLING_EFFORT, 0, 0.99, false},
	{"reasoningBudget", SAMPLING_WHOLE, -1, TOKENS_MAX, false}, /* tokens; -1: no limit */
	{"includeReasoning", SAMPLING_SWITCH, 0, 0, false}, /* false also has a grammar hold from the first token on */
	{"templateArguments", SAMPLING_OBJECT, 0, 0, false},
	{"generationConfig", SAMPLING_OBJECT, 0, 0, false},
	{NULL, SAMPLING_NUMBER, 0, 0, false},
};
_Static_assert(COUNT_OF(sampling_rules) - 1 <= SAMPLING_RULES_MAX, "whoever makes a table of them has room for so many");

size_t sampling_rule_count(void)
{
	return COUNT_OF(sampling_rules) - 1;
}

const struct sampling_rule *sampling_rule_find(const char *name)
{
	for (const struct sampling_rule *rule = sampling_rules; rule->name != NULL; rule++)
		if (strcmp(rule->name, name) == 0)
			return rule;
	return NULL;
}

__attribute__((format(printf, 3, 4))) static bool fail(struct sampling_fault *fault, const char *inside, const char *format, ...)
{
	va_list args;

	snprintf(fault->inside, sizeof(fault->inside), "%.40s", inside);
	va_start(args, format);
	vsnprintf(fault->why, sizeof(fault->why), format, args);
	va_end(args);
	return false;
}

static bool is_within(const struct sampling_rule *rule, double number)
{
	return number >= rule->from && number <= rule->to && !(rule->above && number == rule->from);
}

static bool check_number(const struct sampling_rule *rule, const struct json *value, struct sampling_fault *fault)
{
	bool whole = rule->type == SAMPLING_WHOLE;

	if ((whole ? json_is_integer(value) : json_is(value, JSON_NUMBER)) && is_within(rule, value->number))
		return true;
	if (whole)
		return fail(fault, "", "must be a whole number from %.0f to %.0f", rule->from, rule->to);
	return fail(fault, "", "must be a number %s %g%s to %g", rule->above ? "above" : "from", rule->from, rule->above ? " and up" : "", rule->to);
}

/* The digits of a whole number that a double carries. */
static bool is_digits(const char *text, bool may_be_negative, size_t max)
{
	const char *digits = text + (may_be_negative && text[0] == '-');
	size_t len = strlen(digits);

	return len > 0 && len <= max && strspn(digits, "0123456789") == len;
}

double sampling_seed(const struct json *value)
{
	return json_is(value, JSON_STRING) ? strtod(value->string.text, NULL) + 0.0 /* "-0" is 0 */ : value->number;
}

static bool check_seed(const struct sampling_rule *rule, const struct json *value, struct sampling_fault *fault)
{
	bool is_seed = json_is_integer(value) || (json_is(value, JSON_STRING) && is_digits(value->string.text, true, SEED_DIGITS_MAX));

	if (is_seed && is_within(rule, sampling_seed(value)))
		return true;
	return fail(fault, "", "must be a whole number from %.0f to %.0f, as a number or as text", rule->from, rule->to);
}

static bool check_effort(const struct sampling_rule *rule, const struct json *value, struct sampling_fault *fault)
{
	if (json_is(value, JSON_STRING) && value->string.len > 0 && value->string.len <= SAMPLING_WORD_MAX)
		return true;
	if (json_is(value, JSON_NUMBER) && is_within(rule, value->number))
		return true;
	return fail(fault, "", "must be a word such as none, low or high, of at most %d bytes (SAMPLING_WORD_MAX), or a number from %g to %g", SAMPLING_WORD_MAX, rule->from, rule->to);
}

static bool is_text(const struct json *value)
{
	return json_is(value, JSON_STRING) && value->string.len > 0 && value->string.len <= SAMPLING_TEXT_MAX;
}

static bool check_list(const struct sampling_rule *rule, const struct json *value, bool (*is_open)(const struct json *part), struct sampling_fault *fault)
{
	bool texts = rule->type == SAMPLING_TEXTS;
	size_t max = texts ? SAMPLING_TEXTS_MAX : SAMPLING_LIST_MAX;
	char index[24];

	if (texts && json_is(value, JSON_STRING))
		return is_text(value) || fail(fault, "", "must be a text of 1 to %d bytes (SAMPLING_TEXT_MAX)", SAMPLING_TEXT_MAX);
	if (!json_is(value, JSON_ARRAY) || json_count(value) > max)
		return texts ? fail(fault, "", "must be a text, or a list of at most %zu texts (SAMPLING_TEXTS_MAX)", max)
			     : fail(fault, "", "must be a list of at most %zu token ids (SAMPLING_LIST_MAX)", max);
	for (size_t i = 0; i < json_count(value); i++) {
		const struct json *item = json_at(value, i);

		if (is_open != NULL && is_open(item))
			continue;
		snprintf(index, sizeof(index), "%zu", i);
		if (texts && !is_text(item))
			return fail(fault, index, "must be a text of 1 to %d bytes (SAMPLING_TEXT_MAX)", SAMPLING_TEXT_MAX);
		if (!texts && !(json_is_integer(item) && item->number >= 0 && item->number <= TOKEN_ID_MAX))
			return fail(fault, index, "must be a token id, a whole number from 0 to %.0f", TOKEN_ID_MAX);
	}
	return true;
}

static bool check_bias(const struct sampling_rule *rule, const struct json *value, bool (*is_open)(const struct json *part), struct sampling_fault *fault)
{
	if (!json_is(value, JSON_OBJECT) || json_count(value) > SAMPLING_LIST_MAX)
		return fail(fault, "", "must be an object {token id: number} of at most %d members (SAMPLING_LIST_MAX)", SAMPLING_LIST_MAX);
	for (size_t i = 0; i < json_count(value); i++) {
		const struct json_member *member = &value->object.members[i];
		const struct json *bias = member->value;

		if (!is_digits(member->name, false, TOKEN_DIGITS_MAX))
			return fail(fault, member->name, "is no token id, which is a whole number in quotes");
		if (is_open != NULL && is_open(bias))
			continue;
		if (!(json_is(bias, JSON_NUMBER) && is_within(rule, bias->number)) && !(json_is(bias, JSON_BOOLEAN) && !bias->boolean))
			return fail(fault, member->name, "must be a number from %g to %g, or false: never", rule->from, rule->to);
	}
	return true;
}

static bool check_object(const struct json *value, struct sampling_fault *fault)
{
	struct buffer printed;
	bool fits;

	if (!json_is(value, JSON_OBJECT))
		return fail(fault, "", "must be an object");
	buffer_init(&printed, SAMPLING_OBJECT_MAX);
	json_print(value, &printed);
	fits = !printed.overflow;
	buffer_close(&printed);
	return fits || fail(fault, "", "must not be longer than %d bytes (SAMPLING_OBJECT_MAX)", SAMPLING_OBJECT_MAX);
}

bool sampling_check(const struct sampling_rule *rule, const struct json *value, bool (*is_open)(const struct json *part), struct sampling_fault *fault)
{
	if (is_open != NULL && is_open(value))
		return true;
	switch (rule->type) {
	case SAMPLING_NUMBER:
	case SAMPLING_WHOLE:
		return check_number(rule, value, fault);
	case SAMPLING_SEED:
		return check_seed(rule, value, fault);
	case SAMPLING_SWITCH:
		return json_is(value, JSON_BOOLEAN) || fail(fault, "", "must be true or false");
	case SAMPLING_EFFORT:
		return check_effort(rule, value, fault);
	case SAMPLING_TEXTS:
	case SAMPLING_TOKENS:
		return check_list(rule, value, is_open, fault);
	case SAMPLING_BIAS:
		return check_bias(rule, value, is_open, fault);
	case SAMPLING_OBJECT:
		return check_object(value, fault);
	}
	CHECK(false); /* a type without a check */
	return false;
}
