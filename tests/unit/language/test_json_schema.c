/* JSON Schema: which schemas are refused, and what a value that does not match is told. */
#include "workflow/language/json_schema.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

struct row {
	const char *schema, *value; /* value NULL: only the schema is looked at */
	int code;
	const char *begins; /* of the message; NULL: it must match */
};

static void run_rows(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct arena arena;
		struct error error = {0};
		struct json *schema, *value;
		int code;

		arena_init(&arena);
		schema = json_parse(&arena, bytes_text(rows[i].schema), JSON_STRICT, NULL, &error);
		ck_assert_msg(schema != NULL, "row %zu: schema: %s", i, error.message);
		code = json_schema_check(schema, &error);
		if (rows[i].value != NULL) {
			ck_assert_msg(code == 0, "row %zu: %s", i, error.message);
			value = json_parse(&arena, bytes_text(rows[i].value), JSON_STRICT, NULL, &error);
			ck_assert_msg(value != NULL, "row %zu: value: %s", i, error.message);
			code = json_schema_validate(schema, value, &error);
		}
		ck_assert_msg(code == rows[i].code, "row %zu: code %d, not %d: %s", i, code, rows[i].code, error.message);
		if (rows[i].begins != NULL)
			ck_assert_msg(strncmp(error.message, rows[i].begins, strlen(rows[i].begins)) == 0, "row %zu: %s", i, error.message);
		arena_close(&arena);
	}
}

/* A schema is accepted with the known keywords alone; the message begins with the pointer of the offending one. */
START_TEST(refuses_what_it_cannot_validate)
{
	static const struct row rows[] = {
		{"true", NULL, 0, NULL},
		{"false", NULL, 0, NULL},
		{"{}", NULL, 0, NULL},
		{"{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"title\":\"t\",\"description\":\"d\",\"default\":null,"
		 "\"examples\":[1],\"type\":[\"object\",\"null\"],\"properties\":{\"a\":true},\"required\":[\"a\"],"
		 "\"additionalProperties\":{\"type\":\"integer\"},\"items\":false,\"enum\":[1],\"const\":2,\"minimum\":-1.5,\"maximum\":2,"
		 "\"minLength\":0,\"maxLength\":9,\"minItems\":0,\"maxItems\":3}", NULL, 0, NULL},
		{"3", NULL, ERR_INVALID, ": expected a schema (object or boolean), got number"},
		{"{\"pattern\":\"a\"}", NULL, ERR_UNSUPPORTED, "/pattern: this keyword is not validated yet"},
		{"{\"properties\":{\"a/b~c\":{\"format\":\"date\"}}}", NULL, ERR_UNSUPPORTED, "/properties/a~1b~0c/format: this"},
		{"{\"items\":{\"additionalProperties\":{\"oneOf\":[]}}}", NULL, ERR_UNSUPPORTED, "/items/additionalProperties/oneOf: this"},
		/* An unknown keyword beneath `default`, `const`, `enum` and `examples` is a value, no keyword. */
		{"{\"default\":{\"pattern\":1},\"const\":{\"$ref\":1},\"enum\":[{\"not\":1}],\"examples\":[{\"if\":1}]}", NULL, 0, NULL},
		/* So is a property that bears a keyword's name. */
		{"{\"properties\":{\"pattern\":{},\"type\":{\"type\":\"string\"}}}", NULL, 0, NULL},
		{"{\"type\":\"text\"}", NULL, ERR_INVALID, "/type: expected null, boolean, object, array, number, string or integer, got text"},
		{"{\"type\":[]}", NULL, ERR_INVALID, "/type: expected at least one type"},
		{"{\"type\":[\"string\",\"string\"]}", NULL, ERR_INVALID, "/type/1: the type stands here twice"},
		{"{\"type\":[\"string\",7]}", NULL, ERR_INVALID, "/type/1: expected string, got number"},
		{"{\"type\":7}", NULL, ERR_INVALID, "/type: expected string, got number"},
		{"{\"properties\":[]}", NULL, ERR_INVALID, "/properties: expected object, got array"},
		{"{\"properties\":{\"a\":[]}}", NULL, ERR_INVALID, "/properties/a: expected a schema (object or boolean), got array"},
		{"{\"required\":\"a\"}", NULL, ERR_INVALID, "/required: expected array, got string"},
		{"{\"required\":[\"a\",1]}", NULL, ERR_INVALID, "/required/1: expected string, got number"},
		{"{\"enum\":1}", NULL, ERR_INVALID, "/enum: expected array, got number"},
		{"{\"minimum\":\"1\"}", NULL, ERR_INVALID, "/minimum: expected number, got string"},
		{"{\"minLength\":-1}", NULL, ERR_INVALID, "/minLength: expected a whole number, 0 or more"},
		{"{\"maxItems\":1.5}", NULL, ERR_INVALID, "/maxItems: expected a whole number, 0 or more"},
		{"{\"items\":[{}]}", NULL, ERR_INVALID, "/items: expected a schema (object or boolean), got array"},
		{"{\"title\":1}", NULL, ERR_INVALID, "/title: expected string, got number"},
	};

	run_rows(rows, COUNT_OF(rows));
}
END_TEST

/* Each keyword lets through what it should and names the place of what it should not. */
START_TEST(validates_each_keyword)
{
	static const struct row rows[] = {
		{"true", "1", 0, NULL},
		{"false", "1", ERR_INVALID, ": the schema false matches nothing"},
		{"{\"type\":\"string\"}", "\"a\"", 0, NULL},
		{"{\"type\":\"string\"}", "1", ERR_INVALID, ": expected string, got number"},
		{"{\"type\":\"integer\"}", "1.0", 0, NULL},
		{"{\"type\":\"integer\"}", "1e300", 0, NULL},
		{"{\"type\":\"integer\"}", "1.5", ERR_INVALID, ": expected integer, got a number with a fraction"},
		{"{\"type\":\"number\"}", "1", 0, NULL},
		{"{\"type\":\"null\"}", "false", ERR_INVALID, ": expected null, got boolean"},
		{"{\"type\":[\"integer\",\"null\"]}", "null", 0, NULL},
		{"{\"type\":[\"integer\",\"null\"]}", "\"1\"", ERR_INVALID, ": expected integer or null, got string"},
		{"{\"enum\":[1,{\"a\":[2]}]}", "{\"a\":[2]}", 0, NULL},
		{"{\"enum\":[1,{\"a\":[2]}]}", "{\"a\":[2,3]}", ERR_INVALID, ": expected one of the values of enum"},
		{"{\"enum\":[]}", "1", ERR_INVALID, ": expected one of the values of enum"},
		{"{\"const\":null}", "null", 0, NULL},
		{"{\"const\":null}", "0", ERR_INVALID, ": expected the value of const"},
		{"{\"minimum\":2,\"maximum\":3}", "2", 0, NULL},
		{"{\"minimum\":2,\"maximum\":3}", "3", 0, NULL},
		{"{\"minimum\":2}", "1.5", ERR_INVALID, ": expected a number of at least 2, got 1.5"},
		{"{\"maximum\":3}", "3.5", ERR_INVALID, ": expected a number of at most 3, got 3.5"},
		{"{\"minimum\":2}", "\"a\"", 0, NULL},
		/* Lengths count characters, not bytes. */
		{"{\"minLength\":2,\"maxLength\":2}", "\"\xE6\x97\xA5\xF0\x9F\x98\x80\"", 0, NULL},
		{"{\"minLength\":2}", "\"\xE6\x97\xA5\"", ERR_INVALID, ": expected a length in characters of at least 2, got 1"},
		{"{\"maxLength\":2}", "\"abc\"", ERR_INVALID, ": expected a length in characters of at most 2, got 3"},
		{"{\"minItems\":1,\"maxItems\":2}", "[1,2]", 0, NULL},
		{"{\"minItems\":1}", "[]", ERR_INVALID, ": expected a number of items of at least 1, got 0"},
		{"{\"maxItems\":2}", "[1,2,3]", ERR_INVALID, ": expected a number of items of at most 2, got 3"},
		{"{\"minItems\":1}", "{}", 0, NULL},
		{"{\"items\":{\"type\":\"string\"}}", "[\"a\",1]", ERR_INVALID, "/1: expected string, got number"},
		{"{\"items\":false}", "[]", 0, NULL},
		{"{\"items\":false}", "[1]", ERR_INVALID, "/0: the schema false matches nothing"},
		{"{\"required\":[\"a\"]}", "{\"a\":null}", 0, NULL},
		{"{\"required\":[\"a\",\"b\"]}", "{\"a\":1}", ERR_INVALID, ": required, but missing: b"},
		{"{\"properties\":{\"a\":{\"type\":\"string\"}}}", "{\"a\":\"x\",\"b\":1}", 0, NULL},
		{"{\"properties\":{\"a\":{\"type\":\"string\"}},\"additionalProperties\":false}", "{\"a\":\"x\",\"b/c\":1}", ERR_INVALID,
		 "/b~1c: this member is not in the schema"},
		{"{\"additionalProperties\":{\"type\":\"string\"}}", "{\"a\":1}", ERR_INVALID, "/a: expected string, got number"},
		{"{\"properties\":{\"a\":false}}", "{\"a\":1}", ERR_INVALID, "/a: the schema false matches nothing"},
		{"{\"properties\":{\"facts\":{\"items\":{\"properties\":{\"object\":{\"type\":\"string\"}}}}}}",
		 "{\"facts\":[{\"object\":1}]}", ERR_INVALID, "/facts/0/object: expected string, got number"},
	};

	run_rows(rows, COUNT_OF(rows));
}
END_TEST

/* A pointer longer than a message may hold is cut between whole characters and says so. */
START_TEST(cuts_long_pointers)
{
	struct arena arena;
	struct error error = {0};
	struct json *value, *schema;
	char name[1000];

	arena_init(&arena);
	for (size_t i = 0; i + 2 < sizeof(name); i += 2)
		memcpy(name + i, "\xC3\xA4", 3);
	schema = json_parse(&arena, BYTES_OF("{\"additionalProperties\":{\"additionalProperties\":{\"type\":\"null\"}}}"), JSON_STRICT, NULL, NULL);
	value = json_object(&arena);
	json_set(&arena, value, "outer", json_object(&arena));
	json_set(&arena, json_get(value, "outer"), name, json_number(&arena, 1));
	ck_assert_int_eq(json_schema_validate(schema, value, &error), ERR_INVALID);
	ck_assert(strncmp(error.message, "/outer/\xC3\xA4", 9) == 0);
	ck_assert_ptr_nonnull(strstr(error.message, "…: expected null, got number"));
	ck_assert(utf8_valid(bytes_text(error.message), NULL));

	/* The same for a name at the end of the message. */
	schema = json_object(&arena);
	json_set(&arena, schema, "required", json_array(&arena));
	json_add(&arena, json_get(schema, "required"), json_text(&arena, name));
	ck_assert_int_eq(json_schema_validate(schema, json_object(&arena), &error), ERR_INVALID);
	ck_assert(utf8_valid(bytes_text(error.message), NULL));
	arena_close(&arena);
}
END_TEST

/* Schemas and values that are nested too deeply are refused instead of followed. */
START_TEST(limits_depth)
{
	enum { LEVELS = 200 };
	struct arena arena;
	struct error error = {0};
	struct json *schema, *value;

	arena_init(&arena);
	schema = json_boolean(&arena, true);
	value = json_null(&arena);
	for (int i = 0; i < LEVELS; i++) {
		struct json *outer = json_object(&arena), *list = json_array(&arena);

		json_set(&arena, outer, "items", schema);
		schema = outer;
		json_add(&arena, list, value);
		value = list;
	}
	ck_assert_int_eq(json_schema_check(schema, &error), ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "SCHEMA_DEPTH_MAX 128"));
	ck_assert_int_eq(json_schema_validate(schema, value, &error), ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "SCHEMA_DEPTH_MAX 128"));
	arena_close(&arena);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("json_schema");
	TCase *tests = tcase_create("json_schema");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, refuses_what_it_cannot_validate);
	tcase_add_test(tests, validates_each_keyword);
	tcase_add_test(tests, cuts_long_pointers);
	tcase_add_test(tests, limits_depth);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
