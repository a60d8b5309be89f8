/* The rungs of the schema ladder: what a plain schema is, in which order properties go out, which errors mean a schema, what is remembered. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activities/schema_ladder.h"
#include "workflow/base/check.h"

static struct arena arena;

static struct json *parse(const char *text)
{
	struct error error;
	struct json *json = json_parse(&arena, bytes_text(text), JSON_STRICT, NULL, &error);

	ck_assert_msg(json != NULL, "%s: %s", text, error.message);
	return json;
}

static const char *print(const struct json *json)
{
	struct bytes text = json_print_arena(json, &arena);

	return arena_text_len(&arena, (const char *)text.data, text.len);
}

static void setup(void)
{
	arena_init(&arena);
}

static void teardown(void)
{
	arena_close(&arena);
}

/* Properties go out in the order of `required`, those that it does not name behind them, at every depth; nothing else moves. */
START_TEST(properties_are_ordered)
{
	static const struct {
		const char *schema, *ordered;
	} rows[] = {
		{"{\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"c\",\"b\",\"a\"]}", "{\"properties\":{\"c\":{},\"b\":{},\"a\":{}},\"required\":[\"c\",\"b\",\"a\"]}"},
		{"{\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"required\":[\"c\"]}", "{\"properties\":{\"c\":{},\"a\":{},\"b\":{}},\"required\":[\"c\"]}"},
		{"{\"properties\":{\"a\":{},\"b\":{}},\"required\":[\"x\",\"b\",1,\"b\"]}", "{\"properties\":{\"b\":{},\"a\":{}},\"required\":[\"x\",\"b\",1,\"b\"]}"},
		{"{\"properties\":{\"a\":{},\"b\":{}}}", "{\"properties\":{\"a\":{},\"b\":{}}}"},
		{"{\"properties\":{\"a\":{},\"b\":{}},\"required\":true}", "{\"properties\":{\"a\":{},\"b\":{}},\"required\":true}"},
		{"{\"items\":{\"properties\":{\"a\":{\"properties\":{\"x\":{},\"y\":{}},\"required\":[\"y\"]},\"b\":{}},\"required\":[\"b\"]}}",
		 "{\"items\":{\"properties\":{\"b\":{},\"a\":{\"properties\":{\"y\":{},\"x\":{}},\"required\":[\"y\"]}},\"required\":[\"b\"]}}"},
		/* Properties that are called properties and required. */
		{"{\"properties\":{\"properties\":{\"type\":\"object\"},\"required\":{}},\"required\":[\"required\",\"properties\"]}",
		 "{\"properties\":{\"required\":{},\"properties\":{\"type\":\"object\"}},\"required\":[\"required\",\"properties\"]}"},
		{"true", "true"},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct json *schema = parse(rows[i].schema);

		ck_assert_str_eq(print(schema_ordered(&arena, schema)), rows[i].ordered);
		ck_assert_str_eq(print(schema), rows[i].schema);
	}
}
END_TEST

#define CLOSED(properties, required) "{\"additionalProperties\":false,\"properties\":{" properties "},\"required\":[" required "],\"type\":\"object\"}"

/* A plain schema has no keyword but those of the list; properties that may be absent become alternatives of their object. */
START_TEST(plain_is_plain)
{
	static const struct {
		const char *schema, *plain; /* NULL: nothing plainer */
	} rows[] = {
		{"{\"type\":\"string\",\"pattern\":\"^a\",\"minLength\":1,\"format\":\"date\",\"description\":\"d\"}", "{\"type\":\"string\"}"},
		{"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":3},\"minItems\":1,\"uniqueItems\":true}", "{\"items\":{\"type\":\"integer\"},\"type\":\"array\"}"},
		{"{\"type\":\"array\",\"items\":false}", "{\"type\":\"array\"}"},
		{"{\"type\":[\"string\",\"null\"],\"maxLength\":3}", "{\"type\":[\"string\",\"null\"]}"},
		{"{\"enum\":[\"a\",null],\"title\":\"t\"}", "{\"enum\":[\"a\",null]}"},
		{"{\"const\":{\"pattern\":1},\"not\":{}}", "{\"const\":{\"pattern\":1}}"},
		{"{\"oneOf\":[{\"type\":\"string\",\"pattern\":\"a\"},{\"type\":\"null\"}]}", "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}"},
		{"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"string\",\"pattern\":\"x\"}},\"$schema\":\"s\"}", "{\"$defs\":{\"a\":{\"type\":\"string\"}},\"$ref\":\"#/$defs/a\"}"},
		{"{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"string\",\"pattern\":\"a\"},\"a\":{}},\"required\":[\"b\",\"a\"]}", CLOSED("\"b\":{\"type\":\"string\"},\"a\":{}", "\"b\",\"a\"")},
		{"{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{}},\"required\":[\"b\"]}", "{\"anyOf\":[" CLOSED("\"b\":{}", "\"b\"") "," CLOSED("\"b\":{},\"a\":{}", "\"b\",\"a\"") "]}"},
		{"{\"properties\":{\"a\":{},\"b\":{}}}", "{\"anyOf\":[" CLOSED("", "") "," CLOSED("\"a\":{}", "\"a\"") "," CLOSED("\"b\":{}", "\"b\"") "," CLOSED("\"a\":{},\"b\":{}", "\"a\",\"b\"") "]}"},
		{"{\"type\":[\"object\",\"null\"],\"properties\":{\"a\":{}},\"required\":[\"a\"]}", "{\"anyOf\":[" CLOSED("\"a\":{}", "\"a\"") ",{\"type\":\"null\"}]}"},
		{"{\"$defs\":{\"x\":{\"type\":\"null\",\"examples\":[]}},\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\"}},\"required\":[\"a\"]}",
		 "{\"$defs\":{\"x\":{\"type\":\"null\"}},\"additionalProperties\":false,\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\"}},\"required\":[\"a\"],\"type\":\"object\"}"},
		{CLOSED("\"a\":{\"type\":\"string\"}", "\"a\""), NULL},
		{"{\"type\":\"string\"}", NULL},
		{"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{},\"d\":{},\"e\":{},\"f\":{}},\"required\":[\"f\"]}", NULL}, /* five that may be absent */
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct json *schema = schema_ordered(&arena, parse(rows[i].schema)), *plain = schema_plain(&arena, schema);

		if (rows[i].plain == NULL)
			ck_assert_msg(plain == NULL, "%s became %s", rows[i].schema, print(plain));
		else
			ck_assert_str_eq(plain == NULL ? "NULL" : print(plain), rows[i].plain);
	}
}
END_TEST

/* Four properties that may be absent make sixteen alternatives; within each other they multiply, up to SCHEMA_PLAIN_LEN_MAX and no further. */
START_TEST(alternatives_have_a_limit)
{
	const char *schema = "{}";
	size_t deepest = 0;

	for (unsigned depth = 1; depth <= 20; depth++) {
		struct json *plain;

		schema = arena_printf(&arena, "{\"properties\":{\"a\":%s,\"b\":{},\"c\":{},\"d\":{}}}", schema);
		plain = schema_plain(&arena, parse(schema));
		if (depth == 1) {
			ck_assert_uint_eq(SCHEMA_OPTIONAL_MAX, 4);
			ck_assert_uint_eq(json_count(json_get(plain, "anyOf")), 16);
		}
		if (plain == NULL)
			continue;
		ck_assert_uint_eq(deepest, depth - 1);
		deepest = depth;
		ck_assert_uint_le(json_print_arena(plain, &arena).len, 2 * SCHEMA_PLAIN_LEN_MAX);
	}
	ck_assert_uint_ge(deepest, 2);
	ck_assert_uint_lt(deepest, 6);
}
END_TEST

/* What runtimes say of a schema is told from what they say of other things. */
START_TEST(refusals_are_known)
{
	static const struct {
		int status;
		const char *text;
		bool refused;
	} rows[] = {
		{400, "{\"error\":{\"message\":\"schema: keyword not supported: pattern\"}}", true},
		{400, "{\"error\":\"'response_format.type' must be 'json_schema' or 'text'\"}", true},
		{400, "{\"error\":{\"message\":\"Bad value\",\"param\":\"response_format\"}}", true},
		{400, "{\"error\":{\"message\":\"Failed to parse Grammar\"}}", true},
		{422, "{\"detail\":\"Unsupported fields in the request: {'response_format'}\"}", true},
		{500, "Structured output is not available", true},
		{501, "json_object", true},
		{400, "{\"error\":{\"message\":\"the prompt has 9 tokens and the context holds 8\",\"code\":\"context_length_exceeded\"}}", false},
		{400, "Field with key llm.prediction.seed does not satisfy the schema", false}, /* of settings */
		{400, "Field with key llm.prediction.structured does not satisfy the schema", true},
		{400, "", false},
		{404, "no schema here", false},
		{401, "schema", false},
		{503, "schema", false},
		{429, "grammar", false},
	};
	char *long_text = memory_alloc(SCHEMA_REFUSAL_LEN_MAX + 6);

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		ck_assert_msg(schema_is_refused(rows[i].status, bytes_text(rows[i].text)) == rows[i].refused, "%d %s", rows[i].status, rows[i].text);
	memset(long_text, 'x', SCHEMA_REFUSAL_LEN_MAX + 6);
	memcpy(long_text + SCHEMA_REFUSAL_LEN_MAX - 6, "schema", 6);
	ck_assert(schema_is_refused(400, (struct bytes){(const uint8_t *)long_text, SCHEMA_REFUSAL_LEN_MAX + 6}));
	memset(long_text, 'x', SCHEMA_REFUSAL_LEN_MAX + 6);
	memcpy(long_text + SCHEMA_REFUSAL_LEN_MAX, "schema", 6);
	ck_assert(!schema_is_refused(400, (struct bytes){(const uint8_t *)long_text, SCHEMA_REFUSAL_LEN_MAX + 6}));
	free(long_text);
}
END_TEST

/* Each schema has a rung of its own; the seventeenth takes the place of the first. */
START_TEST(rungs_are_remembered)
{
	struct schema_rungs rungs = {0};
	struct json *schemas[SCHEMA_RUNGS_KEPT_MAX + 1];

	for (size_t i = 0; i < COUNT_OF(schemas); i++)
		schemas[i] = parse(arena_printf(&arena, "{\"const\":%zu}", i));
	ck_assert_int_eq(schema_rungs_get(&rungs, schemas[0]), SCHEMA_FULL);
	for (size_t i = 0; i < SCHEMA_RUNGS_KEPT_MAX; i++)
		schema_rungs_set(&rungs, schemas[i], SCHEMA_PLAIN);
	schema_rungs_set(&rungs, schemas[3], SCHEMA_NONE);
	schema_rungs_set(&rungs, schemas[0], SCHEMA_JSON);
	ck_assert_int_eq(schema_rungs_get(&rungs, schemas[0]), SCHEMA_JSON);
	ck_assert_int_eq(schema_rungs_get(&rungs, schemas[3]), SCHEMA_NONE);
	ck_assert_int_eq(schema_rungs_get(&rungs, schemas[15]), SCHEMA_PLAIN);
	ck_assert_int_eq(schema_rungs_get(&rungs, schemas[16]), SCHEMA_FULL);
	schema_rungs_set(&rungs, schemas[16], SCHEMA_PLAIN);
	ck_assert_int_eq(schema_rungs_get(&rungs, schemas[16]), SCHEMA_PLAIN);
	ck_assert_int_eq(schema_rungs_get(&rungs, schemas[0]), SCHEMA_FULL);
	ck_assert_int_eq(schema_rungs_get(&rungs, schemas[1]), SCHEMA_PLAIN);
	ck_assert_str_eq(schema_rung_name(SCHEMA_FULL), "full");
	ck_assert_str_eq(schema_rung_name(SCHEMA_NONE), "none");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("schema_ladder");
	TCase *cases = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_add_test(cases, properties_are_ordered);
	tcase_add_test(cases, plain_is_plain);
	tcase_add_test(cases, alternatives_have_a_limit);
	tcase_add_test(cases, refusals_are_known);
	tcase_add_test(cases, rungs_are_remembered);
	suite_add_tcase(suite, cases);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
