/* Tests of workflow/base/sampling.c. */
#include "workflow/base/sampling.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

static const struct {
	const char *name, *value;
	const char *inside, *why; /* NULL: it can be */
} cases[] = {
	{"temperature", "0", NULL, NULL},
	{"temperature", "10", NULL, NULL},
	{"temperature", "10.1", "", "must be a number from 0 to 10"},
	{"temperature", "\"hot\"", "", "must be a number from 0 to 10"},
	{"temperature", "null", "", "must be a number from 0 to 10"},
	{"repetitionPenalty", "0.001", NULL, NULL},
	{"repetitionPenalty", "0", "", "must be a number above 0 and up to 10"},
	{"topNSigma", "-1", NULL, NULL},
	{"topNSigma", "-1.5", "", "must be a number from -1 to 100"},
	{"topK", "-1", NULL, NULL},
	{"topK", "1.5", "", "must be a whole number from -1 to 1000000000"},
	{"maxTokens", "1000000000", NULL, NULL},
	{"maxTokens", "0", "", "must be a whole number from 1 to 1000000000"},
	{"mirostat", "3", "", "must be a whole number from 0 to 2"},
	{"ignoreEos", "false", NULL, NULL},
	{"ignoreEos", "0", "", "must be true or false"},
	{"seed", "9007199254740991", NULL, NULL},
	{"seed", "\"9007199254740991\"", NULL, NULL},
	{"seed", "\"-9007199254740991\"", NULL, NULL},
	{"seed", "\"9007199254740992\"", "", "must be a whole number from -9007199254740991 to 9007199254740991, as a number or as text"},
	{"seed", "\"12345678901234567\"", "", "as a number or as text"},
	{"seed", "\"12x\"", "", "as a number or as text"},
	{"seed", "\"-\"", "", "as a number or as text"},
	{"seed", "\"\"", "", "as a number or as text"},
	{"seed", "1.5", "", "as a number or as text"},
	{"stop", "\"x\"", NULL, NULL},
	{"stop", "[]", NULL, NULL},
	{"stop", "\"\"", "", "must be a text of 1 to 1024 bytes (SAMPLING_TEXT_MAX)"},
	{"stop", "1", "", "must be a text, or a list of at most 64 texts (SAMPLING_TEXTS_MAX)"},
	{"stop", "[\"x\",\"\"]", "1", "must be a text of 1 to 1024 bytes (SAMPLING_TEXT_MAX)"},
	{"stopTokenIds", "[0,2147483647]", NULL, NULL},
	{"stopTokenIds", "7", "", "must be a list of at most 1024 token ids (SAMPLING_LIST_MAX)"},
	{"stopTokenIds", "[7,-1]", "1", "must be a token id, a whole number from 0 to 2147483647"},
	{"allowedTokenIds", "[2147483648]", "0", "must be a token id"},
	{"logitBias", "{\"0\":-100,\"15\":false,\"7\":100}", NULL, NULL},
	{"logitBias", "[[1,2]]", "", "must be an object {token id: number} of at most 1024 members (SAMPLING_LIST_MAX)"},
	{"logitBias", "{\"a\":1}", "a", "is no token id, which is a whole number in quotes"},
	{"logitBias", "{\"12345678901\":1}", "12345678901", "is no token id"},
	{"logitBias", "{\"7\":101}", "7", "must be a number from -100 to 100, or false: never"},
	{"logitBias", "{\"7\":true}", "7", "or false: never"},
	{"reasoningEffort", "\"high\"", NULL, NULL},
	{"reasoningEffort", "0.99", NULL, NULL},
	{"reasoningEffort", "1", "", "must be a word such as none, low or high, of at most 32 bytes (SAMPLING_WORD_MAX), or a number from 0 to 0.99"},
	{"reasoningEffort", "\"12345678901234567890123456789012\"", NULL, NULL},
	{"reasoningEffort", "\"123456789012345678901234567890123\"", "", "SAMPLING_WORD_MAX"},
	{"templateArguments", "{\"enable_thinking\":false}", NULL, NULL},
	{"generationConfig", "\"{}\"", "", "must be an object"},
};

/* Each type takes its values up to the ends of its range, and says the range, and where it is wrong, of any other. */
START_TEST(values_are_checked_by_type_and_range)
{
	const struct sampling_rule *rule = sampling_rule_find(cases[_i].name);
	struct sampling_fault fault = {.why = ""};
	struct arena arena;

	arena_init(&arena);
	ck_assert_ptr_nonnull(rule);
	ck_assert_int_eq(sampling_check(rule, json_parse(&arena, bytes_text(cases[_i].value), 0, NULL, NULL), NULL, &fault), cases[_i].why == NULL);
	if (cases[_i].why != NULL) {
		ck_assert_str_eq(fault.inside, cases[_i].inside);
		ck_assert_msg(strstr(fault.why, cases[_i].why) != NULL, "%s", fault.why);
	}
	arena_close(&arena);
}
END_TEST

/* Lists, texts and objects have as much room as the limits say, and no more. */
START_TEST(limits_are_reached)
{
	struct json *list, *texts, *bias, *object;
	struct sampling_fault fault;
	struct arena arena;
	static char text[SAMPLING_OBJECT_MAX + 1];
	char name[16];

	arena_init(&arena);
	list = json_array(&arena);
	texts = json_array(&arena);
	bias = json_object(&arena);
	object = json_object(&arena);
	for (int i = 0; i < SAMPLING_LIST_MAX; i++) {
		snprintf(name, sizeof(name), "%d", i);
		json_add(&arena, list, json_number(&arena, i));
		json_set_number(&arena, bias, name, 1);
	}
	memset(text, 'x', sizeof(text) - 1);
	for (int i = 0; i < SAMPLING_TEXTS_MAX; i++)
		json_add(&arena, texts, json_text_len(&arena, text, SAMPLING_TEXT_MAX));
	json_set(&arena, object, "a", json_text_len(&arena, text, SAMPLING_OBJECT_MAX - strlen("{\"a\":\"\"}")));
	ck_assert(sampling_check(sampling_rule_find("stopTokenIds"), list, NULL, &fault));
	ck_assert(sampling_check(sampling_rule_find("logitBias"), bias, NULL, &fault));
	ck_assert(sampling_check(sampling_rule_find("stop"), texts, NULL, &fault));
	ck_assert(sampling_check(sampling_rule_find("templateArguments"), object, NULL, &fault));

	json_add(&arena, list, json_number(&arena, 7));
	json_set_number(&arena, bias, "9999", 1);
	json_set(&arena, object, "a", json_text_len(&arena, text, SAMPLING_OBJECT_MAX + 1 - strlen("{\"a\":\"\"}")));
	ck_assert(!sampling_check(sampling_rule_find("stopTokenIds"), list, NULL, &fault));
	ck_assert_ptr_nonnull(strstr(fault.why, "SAMPLING_LIST_MAX"));
	ck_assert(!sampling_check(sampling_rule_find("logitBias"), bias, NULL, &fault));
	ck_assert_ptr_nonnull(strstr(fault.why, "SAMPLING_LIST_MAX"));
	ck_assert(!sampling_check(sampling_rule_find("templateArguments"), object, NULL, &fault));
	ck_assert_ptr_nonnull(strstr(fault.why, "SAMPLING_OBJECT_MAX"));
	texts->array.items[0] = json_text_len(&arena, text, SAMPLING_TEXT_MAX + 1);
	ck_assert(!sampling_check(sampling_rule_find("stop"), texts, NULL, &fault));
	ck_assert_str_eq(fault.inside, "0");
	texts->array.items[0] = json_text(&arena, "x");
	json_add(&arena, texts, json_text(&arena, "x"));
	ck_assert(!sampling_check(sampling_rule_find("stop"), texts, NULL, &fault));
	ck_assert_ptr_nonnull(strstr(fault.why, "SAMPLING_TEXTS_MAX"));
	arena_close(&arena);
}
END_TEST

static bool is_open(const struct json *part)
{
	return json_is(part, JSON_STRING) && strncmp(part->string.text, "${", 2) == 0;
}

/* What is not known yet is no mistake, as a whole or as a part; what is known beside it still may be. */
START_TEST(open_parts_are_left_out)
{
	static const struct {
		const char *name, *value, *inside;
	} open[] = {
		{"temperature", "\"${ .t }\"", NULL}, {"seed", "\"${ .s }\"", NULL}, {"stopTokenIds", "\"${ .s }\"", NULL}, {"stopTokenIds", "[1,\"${ .s }\"]", NULL},
		{"stopTokenIds", "[\"${ .s }\",\"x\"]", "1"}, {"logitBias", "{\"7\":\"${ .b }\"}", NULL}, {"logitBias", "{\"7\":\"${ .b }\",\"8\":\"x\"}", "8"}, {"temperature", "\"$t\"", ""},
	};
	struct sampling_fault fault;
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(open); i++) {
		ck_assert_int_eq(sampling_check(sampling_rule_find(open[i].name), json_parse(&arena, bytes_text(open[i].value), 0, NULL, NULL), is_open, &fault), open[i].inside == NULL);
		if (open[i].inside != NULL)
			ck_assert_str_eq(fault.inside, open[i].inside);
	}
	arena_close(&arena);
}
END_TEST

/* A seed is the same number as a number and as text. */
START_TEST(seeds_are_numbers)
{
	struct arena arena;

	arena_init(&arena);
	ck_assert_double_eq(sampling_seed(json_text(&arena, "9007199254740991")), 9007199254740991.0);
	ck_assert_double_eq(sampling_seed(json_text(&arena, "-7")), -7);
	ck_assert_double_eq(sampling_seed(json_number(&arena, 42)), 42);
	ck_assert(!__builtin_signbit(sampling_seed(json_text(&arena, "-0"))));
	arena_close(&arena);
}
END_TEST

/* The table has each name once, and room where tables are made of it. */
START_TEST(names_are_unique)
{
	ck_assert_uint_le(sampling_rule_count(), SAMPLING_RULES_MAX);
	ck_assert_ptr_null(sampling_rules[sampling_rule_count()].name);
	ck_assert_ptr_null(sampling_rule_find("top_p"));
	for (size_t i = 0; i < sampling_rule_count(); i++)
		ck_assert_ptr_eq(sampling_rule_find(sampling_rules[i].name), &sampling_rules[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sampling");
	TCase *tests = tcase_create("sampling");

	tcase_add_loop_test(tests, values_are_checked_by_type_and_range, 0, (int)COUNT_OF(cases));
	tcase_add_test(tests, limits_are_reached);
	tcase_add_test(tests, open_parts_are_left_out);
	tcase_add_test(tests, seeds_are_numbers);
	tcase_add_test(tests, names_are_unique);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
