/* JSON Schema: which schemas are refused, what a value that does not match is told, and each limit. What the keywords mean is proven by
 * the official suite, test_json_schema_suite.c. */
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

/* What a keyword may not hold is refused; the message begins with the pointer of the offending one. */
START_TEST(refuses_wrong_schemas)
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
		{"{\"properties\":{\"a/b~c\":{\"pattern\":1}}}", NULL, ERR_INVALID, "/properties/a~1b~0c/pattern: expected string, got number"},
		{"{\"items\":{\"additionalProperties\":{\"oneOf\":[]}}}", NULL, ERR_INVALID,
		 "/items/additionalProperties/oneOf: expected at least one schema"},
		{"{\"x-order\":[1],\"additionalItems\":7}", NULL, 0, NULL}, /* means nothing in 2020-12 */
		{"{\"pattern\":\"(\"}", NULL, ERR_INVALID, "/pattern: not a regular expression: missing closing parenthesis"},
		{"{\"patternProperties\":{\"a{2}{3}\":{}}}", NULL, ERR_INVALID,
		 "/patternProperties/a{2}{3}: not a regular expression of ECMA-262: nothing to repeat at offset 4"},
		{"{\"$schema\":\"http://json-schema.org/draft-04/schema#\"}", NULL, ERR_UNSUPPORTED,
		 "/$schema: known are https://json-schema.org/draft/2020-12/schema and http://json-schema.org/draft-07/schema#, not http"},
		{"{\"$ref\":\"other.json#/a\"}", NULL, ERR_UNSUPPORTED, "/$ref: refers to a document that is not at hand: other.json#/a"},
		{"{\"$ref\":\"#/$defs/b\",\"$defs\":{\"a\":{}}}", NULL, ERR_INVALID, "/$ref: this reference leads nowhere"},
		{"{\"$ref\":\"#b\"}", NULL, ERR_INVALID, "/$ref: this reference leads nowhere: no anchor b"},
		{"{\"$ref\":\"#/a%2\"}", NULL, ERR_INVALID, "/$ref: expected two hexadecimal digits behind each %"},
		{"{\"$ref\":\"#\"}", NULL, ERR_INVALID, ": applies itself to the same value again"},
		{"{\"$defs\":{\"a\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/b\"}]},\"b\":{\"not\":{\"$ref\":\"#/$defs/a\"}}}}", NULL, ERR_INVALID,
		 "/$defs/b/not: applies itself to the same value again"},
		{"{\"properties\":{\"next\":{\"$ref\":\"#\"}}}", NULL, 0, NULL},
		{"{\"$id\":\"http://a/b#c\"}", NULL, ERR_INVALID, "/$id: an identifier has no fragment; there is $anchor"},
		{"{\"$defs\":{\"a\":{\"$id\":\"x\"},\"b\":{\"$id\":\"x\"}}}", NULL, ERR_INVALID, "/$defs/b/$id: another schema has this identifier"},
		{"{\"$defs\":{\"a\":{\"$anchor\":\"x\"},\"b\":{\"$anchor\":\"x\"}}}", NULL, ERR_INVALID, "/$defs/b/$anchor: another schema has this anchor"},
		{"{\"$anchor\":\"1\"}", NULL, ERR_INVALID, "/$anchor: expected letters, digits"},
		{"{\"multipleOf\":0}", NULL, ERR_INVALID, "/multipleOf: expected a number above 0"},
		{"{\"uniqueItems\":1}", NULL, ERR_INVALID, "/uniqueItems: expected boolean, got number"},
		{"{\"dependentRequired\":{\"a\":[1]}}", NULL, ERR_INVALID, "/dependentRequired/a/0: expected string, got number"},
		/* What draft-07 alone has. */
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"items\":[{}],\"additionalItems\":7}", NULL, ERR_INVALID,
		 "/additionalItems: expected a schema"},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"$ref\":\"#/definitions/a\",\"definitions\":{\"a\":{}},\"type\":7}", NULL, 0, NULL},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"anyOf\":[]}", NULL, ERR_INVALID, "/anyOf: expected at least one schema"},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"allOf\":[]}", NULL, ERR_INVALID, "/allOf: expected at least one schema"},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"oneOf\":[]}", NULL, ERR_INVALID, "/oneOf: expected at least one schema"},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"items\":[]}", NULL, ERR_INVALID, "/items: expected at least one schema"},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"not\":{\"anyOf\":[]}}", NULL, ERR_INVALID, "/not/anyOf: expected at least one schema"},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"required\":[\"a\",\"a\"]}", NULL, ERR_INVALID, "/required: this name stands here twice: a"},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"dependencies\":{\"x\":[\"a\",\"a\"]}}", NULL, ERR_INVALID, "/dependencies/x: this name stands here twice: a"},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":[]}", NULL, ERR_INVALID, "/type: expected at least one type"},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":[\"null\",\"null\"]}", NULL, ERR_INVALID, "/type/1: the type stands here twice"},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"enum\":[]}", NULL, 0, NULL},
		/* An unknown keyword beneath `default`, `const`, `enum` and `examples` is a value, no keyword. */
		{"{\"default\":{\"pattern\":1},\"const\":{\"$ref\":1,\"$id\":\"x\"},\"enum\":[{\"not\":1}],\"examples\":[{\"if\":1}]}", NULL, 0, NULL},
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
		{"{\"required\":[\"a\",\"b\",\"a\"]}", NULL, ERR_INVALID, "/required: this name stands here twice: a"},
		{"{\"required\":[\"a\",\"ab\",\"b\"]}", NULL, 0, NULL},
		{"{\"dependentRequired\":{\"x\":[\"a\",\"a\"]}}", NULL, ERR_INVALID, "/dependentRequired/x: this name stands here twice: a"},
		{"{\"dependencies\":{\"x\":[\"a\",\"a\"]}}", NULL, ERR_INVALID, "/dependencies/x: this name stands here twice: a"},
		{"{\"$vocabulary\":{\"http://a/b\":1}}", NULL, ERR_INVALID, "/$vocabulary/http:~1~1a~1b: expected boolean, got number"},
		{"{\"enum\":1}", NULL, ERR_INVALID, "/enum: expected array, got number"},
		{"{\"enum\":[1,1]}", NULL, 0, NULL}, /* values should differ, they need not */
		{"{\"minimum\":\"1\"}", NULL, ERR_INVALID, "/minimum: expected number, got string"},
		{"{\"minLength\":-1}", NULL, ERR_INVALID, "/minLength: expected a whole number, 0 or more"},
		{"{\"maxItems\":1.5}", NULL, ERR_INVALID, "/maxItems: expected a whole number, 0 or more"},
		{"{\"items\":[{}]}", NULL, ERR_INVALID, "/items: expected a schema (object or boolean), got array"},
		{"{\"title\":1}", NULL, ERR_INVALID, "/title: expected string, got number"},
	};

	run_rows(rows, COUNT_OF(rows));
}
END_TEST

/* What was let through once is still compiled, and means what it meant: a run that was taken then goes on. */
START_TEST(still_compiles_what_was_taken)
{
	static const char *const sources[] = {
		"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"anyOf\":[],\"allOf\":[],\"oneOf\":[]}", "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"items\":[]}", "{\"required\":[\"a\",\"a\"]}", "{\"dependentRequired\":{\"x\":[\"a\",\"a\"]}}",
		"{\"$vocabulary\":{\"http://a/b\":1}}",
	};

	for (size_t i = 0; i < COUNT_OF(sources); i++) {
		struct arena arena;
		struct error error;
		struct json *source;
		struct json_schema *schema;

		arena_init(&arena);
		source = json_parse(&arena, bytes_text(sources[i]), JSON_STRICT, NULL, &error);
		ck_assert_msg(source != NULL, "%s: %s", sources[i], error.message);
		ck_assert_ptr_null(json_schema_compile(source, NULL, 0, &error));
		schema = json_schema_compile_taken(source, &error);
		ck_assert_msg(schema != NULL, "%s: %s", sources[i], error.message);
		ck_assert_int_eq(json_schema_match(schema, json_null(&arena), &error), 0);
		json_schema_free(schema);
		arena_close(&arena);
	}
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
		{"{\"exclusiveMinimum\":1,\"exclusiveMaximum\":2}", "1", ERR_INVALID, ": expected a number above 1, got 1"},
		{"{\"exclusiveMinimum\":1,\"exclusiveMaximum\":2}", "2", ERR_INVALID, ": expected a number below 2, got 2"},
		/* Multiples are those of the decimal numbers that were written, at both ends of the scale. */
		{"{\"multipleOf\":0.0001}", "0.0075", 0, NULL},
		{"{\"multipleOf\":0.01}", "4.35", 0, NULL},
		{"{\"multipleOf\":0.1}", "1e308", 0, NULL},
		{"{\"multipleOf\":0.123456789}", "1e308", ERR_INVALID, ": expected a multiple of 0.123456789, got 1e+308"},
		{"{\"multipleOf\":5e-324}", "1e308", 0, NULL},
		{"{\"multipleOf\":3}", "9007199254740991", ERR_INVALID, ": expected a multiple of 3, got 9007199254740991"},
		{"{\"multipleOf\":1e20}", "3e20", 0, NULL},
		{"{\"multipleOf\":7}", "-21", 0, NULL},
		{"{\"multipleOf\":7}", "0", 0, NULL},
		{"{\"pattern\":\"^a+$\"}", "\"ab\"", ERR_INVALID, ": expected a text that matches the pattern ^a+$"},
		{"{\"format\":\"date\"}", "\"x\"", 0, NULL}, /* an annotation */
		{"{\"uniqueItems\":true}", "[1,{\"a\":[]},2,{\"a\":[]}]", ERR_INVALID, ": expected items that differ, but 1 and 3 are equal"},
		{"{\"contains\":{\"type\":\"null\"},\"minContains\":2}", "[null,1]", ERR_INVALID, ": expected at least 2 items that match contains, got 1"},
		{"{\"contains\":{\"type\":\"null\"},\"maxContains\":1}", "[null,null]", ERR_INVALID, ": expected at most 1 items that match"},
		{"{\"prefixItems\":[true],\"items\":false}", "[1,2]", ERR_INVALID, "/1: this item is not in the schema"},
		{"{\"minProperties\":1}", "{}", ERR_INVALID, ": expected a number of members of at least 1, got 0"},
		{"{\"propertyNames\":{\"maxLength\":1}}", "{\"ab\":1}", ERR_INVALID, "/ab: propertyNames does not allow this name"},
		{"{\"patternProperties\":{\"^x\":{\"type\":\"null\"}}}", "{\"x1\":1}", ERR_INVALID, "/x1: expected null, got number"},
		{"{\"dependentRequired\":{\"a\":[\"b\"]}}", "{\"a\":1}", ERR_INVALID, ": required beside a, but missing: b"},
		{"{\"dependencies\":{\"a\":[\"b\"]}}", "{\"a\":1}", ERR_INVALID, ": required beside a, but missing: b"},
		{"{\"dependentSchemas\":{\"a\":{\"required\":[\"b\"]}}}", "{\"a\":1}", ERR_INVALID, ": required, but missing: b"},
		{"{\"anyOf\":[{\"type\":\"null\"},{\"const\":2}]}", "1", ERR_INVALID, ": matches none of the 2 schemas of anyOf"},
		{"{\"oneOf\":[{\"const\":1},{\"const\":2}]}", "3", ERR_INVALID, ": matches none of the 2 schemas of oneOf"},
		{"{\"oneOf\":[true,{\"const\":1}]}", "1", ERR_INVALID, ": matches more than one of the 2 schemas of oneOf"},
		{"{\"allOf\":[true,{\"items\":{\"type\":\"null\"}}]}", "[1]", ERR_INVALID, "/0: expected null, got number"},
		{"{\"not\":{\"type\":\"null\"}}", "null", ERR_INVALID, ": matches the schema of not, which it must not"},
		{"{\"if\":{\"type\":\"number\"},\"then\":{\"minimum\":3},\"else\":{\"maxLength\":1}}", "2", ERR_INVALID, ": expected a number of at least 3"},
		{"{\"if\":{\"type\":\"number\"},\"then\":{\"minimum\":3},\"else\":{\"maxLength\":1}}", "\"ab\"", ERR_INVALID, ": expected a length"},
		{"{\"allOf\":[{\"properties\":{\"a\":true}}],\"unevaluatedProperties\":false}", "{\"a\":1,\"b\":2}", ERR_INVALID,
		 "/b: this member is not in the schema"},
		{"{\"prefixItems\":[true],\"unevaluatedItems\":{\"type\":\"null\"}}", "[1,2]", ERR_INVALID, "/1: expected null, got number"},
		{"{\"$ref\":\"https://json-schema.org/draft/2020-12/schema\"}", "{\"items\":{\"minLength\":-1}}", ERR_INVALID,
		 "/items/minLength: expected a number of at least 0, got -1"},
		{"{\"$ref\":\"http://json-schema.org/draft-07/schema#\"}", "{\"items\":[{\"type\":\"text\"}]}", ERR_INVALID, "/items: matches none of the 2"},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"items\":[true],\"additionalItems\":{\"type\":\"null\"}}", "[1,2]", ERR_INVALID,
		 "/1: expected null, got number"},
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

static struct json *parse(struct arena *arena, const char *text)
{
	struct json *json = json_parse(arena, bytes_text(text), JSON_STRICT, NULL, NULL);

	ck_assert_msg(json != NULL, "%s", text);
	return json;
}

/* A compiled schema matches any number of values, also against a part of itself and with a part left out. */
START_TEST(matches_parts)
{
	struct arena arena;
	struct error error;
	struct json *source, *part, *facts;
	struct json_schema *schema;

	arena_init(&arena);
	source = parse(&arena, "{\"properties\":{\"facts\":{\"minItems\":1,\"items\":{\"$ref\":\"#/$defs/fact\"}}},\"$defs\":{\"fact\":{\"type\":\"string\"}}}");
	schema = json_schema_compile(source, NULL, 0, &error);
	ck_assert_ptr_nonnull(schema);
	facts = json_get(json_get(source, "properties"), "facts");
	part = json_get(facts, "items");
	ck_assert_int_eq(json_schema_match_part(schema, part, NULL, json_text(&arena, "a"), &error), 0);
	ck_assert_int_eq(json_schema_match_part(schema, part, NULL, json_null(&arena), &error), ERR_INVALID);
	ck_assert_str_eq(error.message, ": expected string, got null");
	ck_assert_int_eq(json_schema_match(schema, parse(&arena, "{\"facts\":[1]}"), &error), ERR_INVALID);
	ck_assert_int_eq(json_schema_match_part(schema, NULL, part, parse(&arena, "{\"facts\":[1]}"), &error), 0);
	ck_assert_int_eq(json_schema_match_part(schema, NULL, part, parse(&arena, "{\"facts\":[]}"), &error), ERR_INVALID);
	ck_assert_str_eq(error.message, "/facts: expected a number of items of at least 1, got 0");
	json_schema_free(schema);
	arena_close(&arena);
}
END_TEST

/* Documents of the caller's are at hand under their URI, in the draft that they say or that of who refers to them. */
START_TEST(refers_to_documents)
{
	struct arena arena;
	struct error error;
	struct json_schema_document documents[2];
	struct json_schema *schema;

	arena_init(&arena);
	documents[0] = (struct json_schema_document){"http://a/dir/names.json", parse(&arena, "{\"$defs\":{\"name\":{\"$anchor\":\"n\",\"type\":\"string\"}}}")};
	documents[1] = (struct json_schema_document){"http://a/bad.json", parse(&arena, "{\"items\":{\"type\":7}}")};
	schema = json_schema_compile(parse(&arena, "{\"$id\":\"http://a/main.json\",\"items\":{\"$ref\":\"./dir/x/../names.json#n\"}}"), documents, 2, &error);
	ck_assert_msg(schema != NULL, "%s", error.message);
	ck_assert_int_eq(json_schema_match(schema, parse(&arena, "[\"a\",1]"), &error), ERR_INVALID);
	ck_assert_str_eq(error.message, "/1: expected string, got number");
	json_schema_free(schema);
	ck_assert_ptr_null(json_schema_compile(parse(&arena, "{\"$ref\":\"http://a/bad.json\"}"), documents, 2, &error));
	ck_assert_str_eq(error.message, "http://a/bad.json#/items/type: expected string, got number");
	arena_close(&arena);
}
END_TEST

/* A circle that only a $dynamicRef closes is found while matching. */
START_TEST(finds_dynamic_circles)
{
	struct arena arena;
	struct error error;
	struct json_schema *schema;

	arena_init(&arena);
	schema = json_schema_compile(parse(&arena, "{\"$dynamicAnchor\":\"a\",\"anyOf\":[{\"type\":\"null\"},{\"$dynamicRef\":\"#a\"}]}"), NULL, 0, &error);
	ck_assert_msg(schema != NULL, "%s", error.message);
	ck_assert_int_eq(json_schema_match(schema, json_null(&arena), &error), 0);
	ck_assert_int_eq(json_schema_match(schema, json_number(&arena, 1), &error), ERR_INVALID);
	ck_assert_str_eq(error.message, ": the schema applies itself to the same value again, through $dynamicRef");
	json_schema_free(schema);
	arena_close(&arena);
}
END_TEST

/* A schema that branches twice at each of 40 levels asks for 2^40 steps and gets SCHEMA_STEPS_MAX, also beneath `not`. */
START_TEST(limits_steps)
{
	struct arena arena;
	struct error error;
	struct json *source, *definitions;
	struct json_schema *schema;

	arena_init(&arena);
	source = parse(&arena, "{\"not\":{\"$ref\":\"#/$defs/d40\"},\"$defs\":{\"d0\":false}}");
	definitions = json_get(source, "$defs");
	for (int i = 1; i <= 40; i++) {
		char *name = arena_printf(&arena, "d%d", i);

		json_set(&arena, definitions, name, parse(&arena, arena_printf(&arena, "{\"anyOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]}", i - 1, i - 1)));
	}
	schema = json_schema_compile(source, NULL, 0, &error);
	ck_assert_msg(schema != NULL, "%s", error.message);
	ck_assert_int_eq(json_schema_match(schema, json_null(&arena), &error), ERR_TOO_LARGE);
	ck_assert_str_eq(error.message, ": needs more than SCHEMA_STEPS_MAX 5000000 steps");
	json_schema_free(schema);
	arena_close(&arena);
}
END_TEST

/* A chain of references of any length compiles; following more than SCHEMA_CALLS_MAX at once is refused. */
START_TEST(limits_calls)
{
	struct arena arena;
	struct error error;
	struct json *source, *definitions;
	struct json_schema *schema;

	arena_init(&arena);
	source = parse(&arena, "{\"$ref\":\"#/$defs/d1000\",\"$defs\":{\"d0\":true}}");
	definitions = json_get(source, "$defs");
	for (int i = 1; i <= SCHEMA_CALLS_MAX; i++)
		json_set(&arena, definitions, arena_printf(&arena, "d%d", i), parse(&arena, arena_printf(&arena, "{\"$ref\":\"#/$defs/d%d\"}", i - 1)));
	schema = json_schema_compile(source, NULL, 0, &error);
	ck_assert_msg(schema != NULL, "%s", error.message);
	ck_assert_int_eq(json_schema_match(schema, json_null(&arena), &error), ERR_TOO_LARGE);
	ck_assert_str_eq(error.message, ": more schemas inside one another than SCHEMA_CALLS_MAX 1000");
	json_schema_free(schema);
	arena_close(&arena);
}
END_TEST

/* SCHEMA_COUNT_MAX and SCHEMA_RESOURCES_MAX hold. */
START_TEST(limits_schemas_and_identifiers)
{
	struct arena arena;
	struct error error;
	struct json *source = NULL, *list;

	arena_init(&arena);
	source = json_object(&arena);
	list = json_array(&arena);
	json_set(&arena, source, "allOf", list);
	for (int i = 0; i < SCHEMA_COUNT_MAX; i++)
		json_add(&arena, list, json_boolean(&arena, true));
	ck_assert_int_eq(json_schema_check(source, &error), ERR_INVALID);
	ck_assert_str_eq(error.message, "/allOf/99999: more than SCHEMA_COUNT_MAX 100000 schemas");
	list = json_array(&arena);
	json_set(&arena, source, "allOf", list);
	for (int i = 0; i < SCHEMA_RESOURCES_MAX; i++)
		json_add(&arena, list, parse(&arena, arena_printf(&arena, "{\"$id\":\"i%d\"}", i)));
	ck_assert_int_eq(json_schema_check(source, &error), ERR_INVALID);
	ck_assert_str_eq(error.message, "/allOf/999/$id: more than SCHEMA_RESOURCES_MAX 1000 identifiers");
	arena_close(&arena);
}
END_TEST

/* A value nested too deeply is refused although a schema follows it without end. */
START_TEST(limits_depth_of_values)
{
	struct arena arena;
	struct error error;
	struct json *value;

	arena_init(&arena);
	value = json_null(&arena);
	for (int i = 0; i <= SCHEMA_DEPTH_MAX; i++) {
		struct json *list = json_array(&arena);

		json_add(&arena, list, value);
		value = list;
	}
	ck_assert_int_eq(json_schema_validate(parse(&arena, "{\"items\":{\"$ref\":\"#\"}}"), value, &error), ERR_TOO_LARGE);
	ck_assert_ptr_nonnull(strstr(error.message, "nested deeper than SCHEMA_DEPTH_MAX 128"));
	arena_close(&arena);
}
END_TEST

/* A pattern that would run for ages costs an error and no time, wherever it stands. */
START_TEST(limits_patterns)
{
	struct arena arena;
	struct error error;

	arena_init(&arena);
	ck_assert_int_eq(json_schema_validate(parse(&arena, "{\"not\":{\"items\":{\"pattern\":\"^(a+)+$\"}}}"),
					      parse(&arena, "[\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\"]"), &error), ERR_TOO_LARGE);
	ck_assert_str_eq(error.message, "/0: the patterns need more than PATTERN_STEPS_MAX 2000000 steps");
	arena_close(&arena);
}
END_TEST

/* Members or items of one value to look at. */
static struct json *make_values(struct arena *arena, enum json_type type, int count, int last)
{
	struct json *values = type == JSON_ARRAY ? json_array(arena) : json_object(arena);

	for (int i = 0; i < count; i++) {
		if (type == JSON_ARRAY)
			json_add(arena, values, json_number(arena, i == count - 1 ? last : 7));
		else
			json_set(arena, values, arena_printf(arena, "m%d", i), json_array(arena));
	}
	return values;
}

/* What a step looks at is paid for by its size: a keyword that reads all of a large value is cheap once and comes to the limit when it is
 * asked for 70 times 70 times. */
START_TEST(limits_what_is_looked_at)
{
	enum { COUNT = 5000, REFERENCES = 70 };
	struct arena arena;
	struct error error;
	struct json *text, *lists, *object, *names, *list;
	char *long_text;

	arena_init(&arena);
	long_text = arena_alloc(&arena, 100000);
	memset(long_text, 'x', 100000);
	text = json_text_len(&arena, long_text, 100000);
	lists = json_array(&arena); /* which differ at their ends alone */
	json_add(&arena, lists, make_values(&arena, JSON_ARRAY, COUNT, 0));
	json_add(&arena, lists, make_values(&arena, JSON_ARRAY, COUNT, 1));
	list = make_values(&arena, JSON_ARRAY, 2 * COUNT, 0);
	object = make_values(&arena, JSON_OBJECT, COUNT, 0);
	names = json_array(&arena);
	for (size_t i = 0; i < object->object.count; i++)
		json_add(&arena, names, json_text(&arena, object->object.members[i].name));
	const struct {
		const char *keyword;
		struct json *operand, *value;
	} rows[] = {
		{"minLength", json_number(&arena, 1), text},
		{"const", json_copy(&arena, lists), lists},
		{"enum", json_copy(&arena, lists), json_at(lists, 1)},
		{"uniqueItems", json_boolean(&arena, true), lists},
		{"properties", parse(&arena, "{\"other\":true}"), object},
		{"unevaluatedItems", json_boolean(&arena, true), list},
		{"required", names, object},
		{"dependentRequired", make_values(&arena, JSON_OBJECT, COUNT, 0), object},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct json *source = parse(&arena, "{\"$ref\":\"#/$defs/d2\",\"$defs\":{\"d0\":{}}}"), *definitions = json_get(source, "$defs");
		struct json *leaf = json_get(definitions, "d0");

		json_set(&arena, leaf, rows[i].keyword, rows[i].operand);
		for (int level = 1; level <= 2; level++) {
			struct json *all = json_object(&arena), *references = json_array(&arena);

			json_set(&arena, all, "allOf", references);
			for (int n = 0; n < REFERENCES; n++)
				json_add(&arena, references, parse(&arena, arena_printf(&arena, "{\"$ref\":\"#/$defs/d%d\"}", level - 1)));
			json_set(&arena, definitions, arena_printf(&arena, "d%d", level), all);
		}
		ck_assert_msg(json_schema_validate(leaf, rows[i].value, &error) == 0, "%s: %s", rows[i].keyword, error.message);
		ck_assert_msg(json_schema_validate(source, rows[i].value, &error) == ERR_TOO_LARGE, "%s", rows[i].keyword);
		ck_assert_ptr_nonnull(strstr(error.message, "needs more than SCHEMA_STEPS_MAX 5000000 steps"));
	}
	arena_close(&arena);
}
END_TEST

/* A search that ends at its first miss is paid for too: `required` misses its last name again and again. */
START_TEST(limits_searches_that_miss)
{
	enum { NAMES = 5000, REFERENCES = 2000 };
	struct arena arena;
	struct error error;
	struct json *value, *names, *references, *source, *leaf;

	arena_init(&arena);
	value = json_object(&arena);
	names = json_array(&arena);
	references = json_array(&arena);
	for (int i = 0; i < NAMES; i++) {
		json_set(&arena, value, arena_printf(&arena, "m%d", i), json_null(&arena));
		json_add(&arena, names, json_text(&arena, arena_printf(&arena, "m%d", i)));
	}
	json_add(&arena, names, json_text(&arena, "missing"));
	for (int i = 0; i < REFERENCES; i++)
		json_add(&arena, references, parse(&arena, "{\"$ref\":\"#/$defs/leaf\"}"));
	source = parse(&arena, "{\"$defs\":{}}");
	leaf = json_object(&arena);
	json_set(&arena, leaf, "required", names);
	json_set(&arena, json_get(source, "$defs"), "leaf", leaf);
	json_set(&arena, source, "anyOf", references);
	ck_assert_int_eq(json_schema_validate(source, value, &error), ERR_TOO_LARGE);
	ck_assert_str_eq(error.message, ": needs more than SCHEMA_STEPS_MAX 5000000 steps");
	arena_close(&arena);
}
END_TEST

/* SCHEMA_ANCHORS_MAX, SCHEMA_URI_LEN_MAX and SCHEMA_PATTERN_BYTES_MAX hold, and what is below them is taken. */
START_TEST(limits_what_compiling_costs)
{
	for (int over = 0; over < 2; over++) {
		struct arena arena;
		struct error error;
		struct json *source, *list, *id;
		char *long_text;

		arena_init(&arena);
		source = json_object(&arena);
		list = json_array(&arena);
		json_set(&arena, source, "allOf", list);
		for (int i = 0; i < SCHEMA_ANCHORS_MAX + over; i++)
			json_add(&arena, list, parse(&arena, arena_printf(&arena, "{\"$%s\":\"a%d\"}", i % 2 != 0 ? "anchor" : "dynamicAnchor", i)));
		ck_assert_int_eq(json_schema_check(source, &error), over ? ERR_INVALID : 0);
		if (over)
			ck_assert_str_eq(error.message, "/allOf/1000/$dynamicAnchor: more than SCHEMA_ANCHORS_MAX 1000 anchors");
		/* The base of a relative one counts with it. */
		long_text = arena_alloc(&arena, SCHEMA_URI_LEN_MAX);
		memset(long_text, 'x', SCHEMA_URI_LEN_MAX);
		id = json_object(&arena);
		json_set(&arena, id, "$id", json_printf(&arena, "http://a/%.*s/", SCHEMA_URI_LEN_MAX - 11, long_text));
		json_set(&arena, id, "not", parse(&arena, over ? "{\"$id\":\"bb\"}" : "{\"$id\":\"b\"}"));
		ck_assert_int_eq(json_schema_check(id, &error), over ? ERR_INVALID : 0);
		if (over)
			ck_assert_str_eq(error.message, "/not/$id: longer than SCHEMA_URI_LEN_MAX 2048 bytes when resolved");
		source = json_object(&arena);
		list = json_object(&arena);
		json_set(&arena, source, "patternProperties", list);
		for (int i = 0; i < (over ? 600 : 100); i++)
			json_set(&arena, list, arena_printf(&arena, "(((ab){10}){10}){10}%d", i), json_boolean(&arena, true));
		ck_assert_int_eq(json_schema_check(source, &error), over ? ERR_INVALID : 0);
		if (over)
			ck_assert_ptr_nonnull(strstr(error.message, "the patterns take more than SCHEMA_PATTERN_BYTES_MAX 16777216 bytes when compiled"));
		arena_close(&arena);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("json_schema");
	TCase *tests = tcase_create("json_schema");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, refuses_wrong_schemas);
	tcase_add_test(tests, still_compiles_what_was_taken);
	tcase_add_test(tests, validates_each_keyword);
	tcase_add_test(tests, cuts_long_pointers);
	tcase_add_test(tests, limits_depth);
	tcase_add_test(tests, matches_parts);
	tcase_add_test(tests, refers_to_documents);
	tcase_add_test(tests, finds_dynamic_circles);
	tcase_add_test(tests, limits_steps);
	tcase_add_test(tests, limits_calls);
	tcase_add_test(tests, limits_schemas_and_identifiers);
	tcase_add_test(tests, limits_depth_of_values);
	tcase_add_test(tests, limits_patterns);
	tcase_add_test(tests, limits_what_is_looked_at);
	tcase_add_test(tests, limits_searches_that_miss);
	tcase_add_test(tests, limits_what_compiling_costs);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
