/* Expressions, templates and URI templates against tables of expected values. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/expression.h"

static const char input_text[] =
	"{\"order\":{\"id\":\"é\",\"total\":123.5,\"customer\":{\"name\":\"Ada\",\"tier\":\"gold\"},\"a b\":7},\"items\":[{\"q\":1},{\"q\":2}],"
	"\"n\":null,\"t\":true,\"f\":false,\"s\":\"x\",\"empty\":[],\"list\":[1,2,3],\"o\":{\"a\":1,\"b\":2}}";
static const char variables_text[] = "{\"context\":{\"user\":{\"age\":20}},\"input\":{\"x\":[1]},\"item\":\"thing\",\"index\":3}";

struct fixture {
	struct arena arena;
	struct json *input, *variables;
	struct scope scope;
	size_t asked;
};

static const struct json *get_value(void *context, const char *name)
{
	const struct fixture *fixture = context;

	return strcmp(name, ".") == 0 ? fixture->input : json_get(fixture->variables, name);
}

static void fixture_init(struct fixture *fixture)
{
	arena_init(&fixture->arena);
	fixture->input = json_parse(&fixture->arena, bytes_text(input_text), JSON_STRICT, NULL, NULL);
	fixture->variables = json_parse(&fixture->arena, bytes_text(variables_text), JSON_STRICT, NULL, NULL);
	ck_assert_ptr_nonnull(fixture->input);
	ck_assert_ptr_nonnull(fixture->variables);
	fixture->scope = (struct scope){.get = get_value, .context = fixture};
	fixture->asked = 0;
}

static void fixture_close(struct fixture *fixture)
{
	arena_close(&fixture->arena);
}

static const char *print(struct fixture *fixture, const struct json *json)
{
	struct bytes text = json_print_arena(json, &fixture->arena);

	return arena_text_len(&fixture->arena, (const char *)text.data, text.len);
}

static const struct {
	const char *text, *result;
} good[] = {
	/* paths */
	{".order.customer", "{\"name\":\"Ada\",\"tier\":\"gold\"}"},
	{".order.customer.name", "\"Ada\""},
	{"  .order . customer ", NULL}, /* a blank behind the dot is no path for jq either */
	{" .order\n .customer\t.name # who", "\"Ada\""},
	{".order[\"a b\"]", "7"},
	{".order.\"a b\"", "7"},
	{".\"order\".total", "123.5"},
	{".[\"order\"].total", "123.5"},
	{".items[0].q", "1"},
	{".items[-1].q", "2"},
	{".items [ 1 ] .q", "2"},
	{".items[9]", "null"},
	{".items[-9]", "null"},
	{".n.x.y", "null"},
	{".n[0]", "null"},
	{".missing.deep[3].x", "null"},
	{".true", "null"},
	{".and.or", "null"},
	{".order.\"\\u0069d\"", "\"é\""},
	/* variables */
	{"$context.user", "{\"age\":20}"},
	{"$context[\"user\"].age", "20"},
	{"$context.\"user\".age", "20"},
	{"$input.x[0]", "1"},
	{"$item", "\"thing\""},
	{"$index", "3"},
	/* comparisons */
	{".order.total > 100", "true"},
	{".order.total>100", "true"},
	{".order.total == 123.5", "true"},
	{".order.total >= 124", "false"},
	{".order.total <= 123.5", "true"},
	{".order.total < 1e3", "true"},
	{".order.total == -1", "false"},
	{".order.total > \"a\"", "false"},
	{".order.customer.tier == \"gold\"", "true"},
	{".order.customer.tier != \"gold\"", "false"},
	{".order.id > \"z\"", "true"},
	{".n == null", "true"},
	{".missing == null", "true"},
	{".t == true", "true"},
	{".t == false", "false"},
	{".f < true", "true"},
	{".n < false", "true"},
	{".items > 5", "true"},
	{".order < 5", "false"},
	{".s < \"y\"", "true"},
	{".s == \"\\u0078\"", "true"},
	{".empty == []", "true"},
	{".list == [1,2,3]", "true"},
	{".list < [1,3]", "true"},
	{".list > [1,2]", "true"},
	{".o == {\"b\":2, \"a\": 1}", "true"},
	{".o < {\"a\":1,\"c\":0}", "true"},
	{".o < {\"a\":1,\"b\":3}", "true"},
	{".o > {\"a\":9}", "true"},
	{". == 5", "false"},
	{"$index >= 3", "true"},
	/* literals */
	{"1", "1"},
	{"-2.5e1", "-25"},
	{"\"text\"", "\"text\""},
	{"true", "true"},
	{"null", "null"},
	{"[1, \"a\", {\"b\": null}]", "[1,\"a\",{\"b\":null}]"},
	{"{}", "{}"},
	{"\"(\"", "\"(\""},
};

/* Every expression of the subset gives what jq 1.6 gives. */
START_TEST(values_are_those_of_jq)
{
	struct fixture fixture;

	fixture_init(&fixture);
	for (size_t i = 0; i < COUNT_OF(good); i++) {
		const struct json *result = NULL;
		struct error error = {.code = ERR_NONE};
		int rc = expression_eval(&fixture.arena, good[i].text, &fixture.scope, &result, &error);

		if (!good[i].result) {
			ck_assert_msg(rc == ERR_UNSUPPORTED, "%s", good[i].text);
			continue;
		}
		ck_assert_msg(rc == 0, "%s: %s", good[i].text, error.message);
		ck_assert_msg(strcmp(print(&fixture, result), good[i].result) == 0, "%s gives %s", good[i].text, print(&fixture, result));
		ck_assert_msg(expression_check(good[i].text, NULL, 0, &error) == 0, "%s: %s", good[i].text, error.message);
	}
	fixture_close(&fixture);
}
END_TEST

/* The identity is the input itself, not a copy. */
START_TEST(identity_is_the_input)
{
	struct fixture fixture;
	const struct json *result;

	fixture_init(&fixture);
	ck_assert_int_eq(expression_eval(&fixture.arena, " . ", &fixture.scope, &result, NULL), 0);
	ck_assert_ptr_eq(result, fixture.input);
	fixture_close(&fixture);
}
END_TEST

/* A path into a scalar, or with the wrong kind of step, is an error as in jq. */
START_TEST(wrong_paths_fail)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{".items.q", "expression '.items.q': cannot take member \"q\" of array"},
		{".order[0]", "expression '.order[0]': cannot take item 0 of object"},
		{".s.x", "expression '.s.x': cannot take member \"x\" of string"},
		{".t[1]", "expression '.t[1]': cannot take item 1 of boolean"},
		{".order.total.x == 1", "expression '.order.total.x == 1': cannot take member \"x\" of number"},
	};
	struct fixture fixture;

	fixture_init(&fixture);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		const struct json *result;
		struct error error;

		ck_assert_int_eq(expression_eval(&fixture.arena, cases[i].text, &fixture.scope, &result, &error), ERR_INVALID);
		ck_assert_str_eq(error.message, cases[i].message);
	}
	fixture_close(&fixture);
}
END_TEST

/* A variable that the scope does not know is told by its name. */
START_TEST(missing_variables_are_named)
{
	struct fixture fixture;
	const struct json *result;
	struct error error;

	fixture_init(&fixture);
	ck_assert_int_eq(expression_eval(&fixture.arena, "$nobody.x", &fixture.scope, &result, &error), ERR_NOT_FOUND);
	ck_assert_str_eq(error.message, "$nobody");
	fixture.input = NULL;
	ck_assert_int_eq(expression_eval(&fixture.arena, ".x", &fixture.scope, &result, &error), ERR_NOT_FOUND);
	ck_assert_str_eq(error.message, ".");
	fixture_close(&fixture);
}
END_TEST

/* What needs jq is told apart from what nothing can evaluate, and wrong variables from both. */
START_TEST(checks_tell_jq_from_nonsense)
{
	static const char *const variables[] = {"context", "input", "item"};
	static const struct {
		const char *text;
		int code;
		const char *message; /* a part of it */
	} cases[] = {
		{".a", 0, NULL},
		{"$item.a == 1", 0, NULL},
		{".a | .b", ERR_UNSUPPORTED, "'.a | .b' needs jq"},
		{".items[]", ERR_UNSUPPORTED, "needs jq"},
		{".items[0:1]", ERR_UNSUPPORTED, "needs jq"},
		{".a?", ERR_UNSUPPORTED, "needs jq"},
		{".a // 1", ERR_UNSUPPORTED, "needs jq"},
		{"..", ERR_UNSUPPORTED, "needs jq"},
		{".5", ERR_UNSUPPORTED, "needs jq"},
		{".a > 1 and .b", ERR_UNSUPPORTED, "needs jq"},
		{".a-1", ERR_UNSUPPORTED, "needs jq"},
		{".a == 1-2", ERR_UNSUPPORTED, "needs jq"},
		{".a == .b", ERR_UNSUPPORTED, "needs jq"},
		{"1 == .a", ERR_UNSUPPORTED, "needs jq"},
		{"length", ERR_UNSUPPORTED, "needs jq"},
		{"{a: .b}", ERR_UNSUPPORTED, "needs jq"},
		{"[.a, 1]", ERR_UNSUPPORTED, "needs jq"},
		{"\"x \\(.a) y\"", ERR_UNSUPPORTED, "needs jq"},
		{"\"x \\(.a + (\"b\")) y\" | length", ERR_UNSUPPORTED, "needs jq"},
		{".a[99999999999]", ERR_UNSUPPORTED, "needs jq"},
		{".a as $x | $x", ERR_UNSUPPORTED, "needs jq"},
		{".a | $secrets.key", ERR_UNSUPPORTED, "$secrets is not supported in this release"},
		{"$secrets.key", ERR_UNSUPPORTED, "$secrets is not supported in this release"},
		{"$output", ERR_INVALID, "there is no variable $output here"},
		{"$items[0]", ERR_INVALID, "there is no variable $items here"},
		{"$__loc__", ERR_INVALID, "there is no variable $__loc__ here"},
		{"[$__loc__]", ERR_INVALID, "$__loc__ is not available"},
		{"\"\\($__loc__.line)\"", ERR_INVALID, "$__loc__ is not available"},
		{".a == \"$items\"", 0, NULL},
		{".a # $items", 0, NULL},
		{"", ERR_INVALID, "expression is empty"},
		{"  # nothing", ERR_INVALID, "expression is empty"},
		{".a ==", ERR_INVALID, "ends behind an operator"},
		{".a[", ERR_INVALID, "opens a bracket that is not closed"},
		{".a]", ERR_INVALID, "closes a bracket that is not open"},
		{"(.a]", ERR_INVALID, "closes a bracket that is not open"},
		{"\"abc", ERR_INVALID, "opens a string that does not end"},
		{".a == \"x", ERR_INVALID, "opens a string that does not end"},
		{".a & .b", ERR_INVALID, "no meaning"},
		{".ä", ERR_INVALID, "no meaning"},
		{".a == 9007199254740993", ERR_INVALID, "beyond 2^53"},
		{".a == [1e20]", ERR_INVALID, "beyond 2^53"},
		{".a == 1e999", ERR_INVALID, "out of range"},
		{"\xff", ERR_INVALID, "not valid UTF-8"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct error error = {.code = ERR_NONE};
		int rc = expression_check(cases[i].text, variables, COUNT_OF(variables), &error);

		ck_assert_msg(rc == cases[i].code, "%s: %d, %s", cases[i].text, rc, error.message);
		ck_assert_msg(!cases[i].message || strstr(error.message, cases[i].message), "%s: %s", cases[i].text, error.message);
	}
}
END_TEST

/* A message repeats at most the beginning of a long expression, cut between characters. */
START_TEST(messages_stay_short)
{
	char text[1000] = "length | \"";
	struct error error;

	for (size_t i = strlen(text); i + 3 < sizeof text; i += 2)
		memcpy(text + i, "ä", 3);
	strcat(text, "\"");
	ck_assert_int_eq(expression_check(text, NULL, 0, &error), ERR_UNSUPPORTED);
	ck_assert_uint_lt(strlen(error.message), 200);
	ck_assert(utf8_valid(bytes_text(error.message), NULL));
}
END_TEST

/* Only a text that is wholly ${ … } is an expression. */
START_TEST(unwrapping_takes_whole_texts_only)
{
	static const struct {
		const char *text, *inner; /* NULL: no expression */
	} cases[] = {
		{"${ .a }", ".a"}, {"${.a}", ".a"}, {"  ${ .a }\n", ".a"}, {"${}", ""}, {"${ }", ""}, {"${ {a: 1} }", "{a: 1}"},
		{"x ${ .a }", NULL}, {"${ .a } x", NULL}, {".a", NULL}, {"", NULL}, {"${", NULL}, {"$", NULL}, {"$}", NULL},
		{"${ .a } ${ .b }", ".a } ${ .b"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct bytes inner;
		bool is = expression_unwrap(cases[i].text, &inner);

		ck_assert_msg(is == (cases[i].inner != NULL), "%s", cases[i].text);
		ck_assert_msg(!is || bytes_equal_text(inner, cases[i].inner), "%s", cases[i].text);
	}
}
END_TEST

/* Templates are walked: values that are wholly ${ … } are evaluated, keys and other text stay. */
START_TEST(templates_are_walked)
{
	static const struct {
		const char *template, *result;
	} cases[] = {
		{"\"${ .s }\"", "\"x\""},
		{"\" ${ .s } \"", "\"x\""},
		{"\"a ${ .s }\"", "\"a ${ .s }\""},
		{"{\"${ .s }\":\"${ .s }\"}", "{\"${ .s }\":\"x\"}"},
		{"[1,null,true,\"t\",[\"${ $index }\",{\"z\":\"${ .order.customer }\",\"a\":\"${ .nope }\"}]]",
		 "[1,null,true,\"t\",[3,{\"a\":null,\"z\":{\"name\":\"Ada\",\"tier\":\"gold\"}}]]"},
	};
	struct fixture fixture;

	fixture_init(&fixture);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct json *template = json_parse(&fixture.arena, bytes_text(cases[i].template), JSON_STRICT, NULL, NULL);
		const struct json *result;
		struct error error;

		ck_assert_int_eq(template_eval(&fixture.arena, template, &fixture.scope, &result, &error), 0);
		ck_assert_str_eq(print(&fixture, result), cases[i].result);
		ck_assert(json_equal(template, json_parse(&fixture.arena, bytes_text(cases[i].template), JSON_STRICT, NULL, NULL)));
	}
	fixture_close(&fixture);
}
END_TEST

/* A result is never evaluated again: expressions come from definitions, not from data. */
START_TEST(results_are_not_evaluated)
{
	struct fixture fixture;
	const struct json *result;

	fixture_init(&fixture);
	json_set_text(&fixture.arena, fixture.input, "s", "${ .t }");
	ck_assert_int_eq(template_eval(&fixture.arena, json_text(&fixture.arena, "${ .s }"), &fixture.scope, &result, NULL), 0);
	ck_assert_str_eq(result->string.text, "${ .t }");
	fixture_close(&fixture);
}
END_TEST

/* The first failing expression fails the template with its error. */
START_TEST(templates_fail_with_their_expressions)
{
	struct fixture fixture;
	const struct json *result;
	struct error error;

	fixture_init(&fixture);
	ck_assert_int_eq(template_eval(&fixture.arena, json_parse(&fixture.arena, BYTES_OF("{\"a\":[\"${ .s.x }\"]}"), 0, NULL, NULL), &fixture.scope,
				       &result, &error), ERR_INVALID);
	ck_assert_int_eq(template_eval(&fixture.arena, json_parse(&fixture.arena, BYTES_OF("{\"a\":\"${ .a | b }\"}"), 0, NULL, NULL), &fixture.scope,
				       &result, &error), ERR_UNSUPPORTED);
	ck_assert_int_eq(template_eval(&fixture.arena, json_parse(&fixture.arena, BYTES_OF("[\"${ $who }\"]"), 0, NULL, NULL), &fixture.scope,
				       &result, &error), ERR_NOT_FOUND);
	fixture_close(&fixture);
}
END_TEST

/* What a template makes can be printed and parsed again: one level more than the parser takes is refused. */
START_TEST(results_nest_no_deeper_than_the_parser)
{
	struct fixture fixture;
	const struct json *result;
	struct json *template;
	struct error error;

	fixture_init(&fixture);
	fixture.input = json_number(&fixture.arena, 1);
	for (int i = 0; i < JSON_DEPTH_MAX - 1; i++) {
		struct json *outer = json_array(&fixture.arena);

		json_add(&fixture.arena, outer, fixture.input);
		fixture.input = outer;
	}
	template = json_parse(&fixture.arena, BYTES_OF("[\"${ . }\"]"), 0, NULL, NULL);
	ck_assert_int_eq(template_eval(&fixture.arena, template, &fixture.scope, &result, &error), 0);
	ck_assert_ptr_nonnull(json_parse(&fixture.arena, json_print_arena(result, &fixture.arena), JSON_STRICT, NULL, NULL));
	template = json_parse(&fixture.arena, BYTES_OF("[[\"${ . }\"]]"), 0, NULL, NULL);
	ck_assert_int_eq(template_eval(&fixture.arena, template, &fixture.scope, &result, &error), ERR_INVALID);
	ck_assert_str_eq(error.message, "the value would nest deeper than 128 levels");
	fixture_close(&fixture);
}
END_TEST

/* A short template can ask for its input many times: the result is limited. */
START_TEST(results_are_limited)
{
	struct fixture fixture;
	const struct json *result;
	struct json *template = NULL;
	struct error error;

	fixture_init(&fixture);
	fixture.input = json_array(&fixture.arena);
	for (int i = 0; i < 10000; i++)
		json_add(&fixture.arena, fixture.input, json_number(&fixture.arena, i));
	template = json_array(&fixture.arena);
	for (int i = 0; i < 401; i++)
		json_add(&fixture.arena, template, json_text(&fixture.arena, "${ . }"));
	ck_assert_int_eq(template_eval(&fixture.arena, template, &fixture.scope, &result, &error), ERR_INVALID);
	ck_assert_str_eq(error.message, "the value would hold more than 4000000 values");
	fixture_close(&fixture);
}
END_TEST

/* URI templates of level 1: encoded, missing and null are empty, containers are errors, operators are refused. */
START_TEST(uri_templates)
{
	static const struct {
		const char *text, *result; /* NULL: refused, then a part of the message */
		const char *message;
	} cases[] = {
		{"https://a.example/pet/{petId}", "https://a.example/pet/7", NULL},
		{"https://a.example/{name}?q={q}", "https://a.example/A%20%2F%C3%A9%3F~-._?q=", NULL},
		{"https://a.example/{nothing}{null}x", "https://a.example/x", NULL},
		{"https://a.example/{yes}/{half}", "https://a.example/true/0.5", NULL},
		{"https://a.example/ä b", "https://a.example/%C3%A4%20b", NULL},
		{"https://a.example/%20", "https://a.example/%20", NULL},
		{"", "", NULL},
		{"https://a.example/{list}", NULL, "{list} is an array"},
		{"https://a.example/{object}", NULL, "{object} is an object"},
		{"https://a.example/{", NULL, "a { without its }"},
		{"https://a.example/{a{b}}", NULL, "a { without its }"},
		{"https://a.example/}", NULL, "a } without its {"},
		{"https://a.example/{}", NULL, "{} names nothing"},
		{"https://a.example/{+petId}", NULL, "level 1"},
		{"https://a.example/{?petId}", NULL, "level 1"},
		{"https://a.example/{.petId}", NULL, "level 1"},
		{"https://a.example/{petId,name}", NULL, "level 1"},
		{"https://a.example/{petId:3}", NULL, "level 1"},
		{"https://a.example/{petId*}", NULL, "level 1"},
	};
	struct arena arena;
	struct json *values;

	arena_init(&arena);
	values = json_parse(&arena, bytes_text("{\"petId\":7,\"name\":\"A /é?~-._\",\"null\":null,\"yes\":true,\"half\":0.5,\"list\":[],\"object\":{}}"), 0,
			    NULL, NULL);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		const char *result = NULL;
		struct error error = {.code = ERR_NONE};
		int rc = uri_template_eval(&arena, cases[i].text, values, &result, &error);

		if (cases[i].result) {
			ck_assert_msg(rc == 0, "%s: %s", cases[i].text, error.message);
			ck_assert_str_eq(result, cases[i].result);
		} else {
			ck_assert_int_eq(rc, ERR_INVALID);
			ck_assert_msg(strstr(error.message, cases[i].message) != NULL, "%s: %s", cases[i].text, error.message);
		}
	}
	arena_close(&arena);
}
END_TEST

/* Names behind a "$" are found wherever they stand, each once. */
START_TEST(variables_are_found)
{
	struct arena arena;
	const char *const *names;

	arena_init(&arena);
	ck_assert_uint_eq(expression_variables(&arena, ".a + 1", &names), 0);
	ck_assert_uint_eq(expression_variables(&arena, "$b + \"\\($c.d)\" | {$e} # $f $b $ g $1 $", &names), 5);
	ck_assert_str_eq(names[0], "b");
	ck_assert_str_eq(names[1], "c");
	ck_assert_str_eq(names[2], "e");
	ck_assert_str_eq(names[3], "f");
	ck_assert_str_eq(names[4], "g");
	arena_close(&arena);
}
END_TEST

/* Not at hand the first two times, then 7; "fail" fails. */
static int evaluate_later(void *context, const char *text, const struct json **result, struct error *error)
{
	struct fixture *fixture = context;

	if (strstr(text, "fail"))
		return error_set(error, ERR_INVALID, "it failed");
	if (fixture->asked++ < 2)
		return error_set(error, ERR_NOT_FOUND, "the result of %s", text);
	*result = json_number(&fixture->arena, 7);
	return 0;
}

/* What is not of the subset goes to the scope's evaluator; what is not at hand does not end the walk of a template. */
START_TEST(jq_is_left_to_the_scope)
{
	struct fixture fixture;
	struct error error = {0};
	const struct json *result;

	fixture_init(&fixture);
	fixture.scope.evaluate = evaluate_later;
	struct json *template = json_parse(&fixture.arena, BYTES_OF("{\"a\":\"${ .list | length }\",\"b\":[\"${ .s + .s }\",\"${ .s }\"]}"), JSON_STRICT, NULL, NULL);
	ck_assert_int_eq(template_eval(&fixture.arena, template, &fixture.scope, &result, &error), ERR_NOT_FOUND);
	ck_assert_uint_eq(fixture.asked, 2);
	ck_assert_int_eq(template_eval(&fixture.arena, template, &fixture.scope, &result, &error), 0);
	ck_assert_int_eq(expression_eval(&fixture.arena, ".list | length", &fixture.scope, &result, &error), 0);
	ck_assert_int_eq(error.code, ERR_NONE); /* nothing stays behind of having asked */
	ck_assert_int_eq(template_eval(&fixture.arena, template, &fixture.scope, &result, &error), 0);
	ck_assert_str_eq(print(&fixture, result), "{\"a\":7,\"b\":[7,\"x\"]}");
	ck_assert_int_eq(expression_eval(&fixture.arena, "fail | 1", &fixture.scope, &result, &error), ERR_INVALID);
	ck_assert_str_eq(error.message, "it failed");
	fixture.scope.evaluate = NULL;
	ck_assert_int_eq(expression_eval(&fixture.arena, ".list | length", &fixture.scope, &result, &error), ERR_UNSUPPORTED);
	fixture_close(&fixture);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("expression");
	TCase *tests = tcase_create("expression");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, values_are_those_of_jq);
	tcase_add_test(tests, identity_is_the_input);
	tcase_add_test(tests, wrong_paths_fail);
	tcase_add_test(tests, missing_variables_are_named);
	tcase_add_test(tests, checks_tell_jq_from_nonsense);
	tcase_add_test(tests, messages_stay_short);
	tcase_add_test(tests, unwrapping_takes_whole_texts_only);
	tcase_add_test(tests, templates_are_walked);
	tcase_add_test(tests, results_are_not_evaluated);
	tcase_add_test(tests, templates_fail_with_their_expressions);
	tcase_add_test(tests, results_nest_no_deeper_than_the_parser);
	tcase_add_test(tests, results_are_limited);
	tcase_add_test(tests, uri_templates);
	tcase_add_test(tests, variables_are_found);
	tcase_add_test(tests, jq_is_left_to_the_scope);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
