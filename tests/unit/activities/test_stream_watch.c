/* What the watch of an answer stops, at which byte, and that it never stops what the whole check would take. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activities/stream_watch.h"
#include "activities/text.h"
#include "workflow/base/check.h"
#include "workflow/language/json_schema.h"

enum { ALL_AT_ONCE = 0, ROUNDS = 3000 };

static struct stream_watch_config config_of(bool json, const struct json *schema)
{
	return (struct stream_watch_config){.json = json, .schema = schema, .white_space = WATCH_WHITE_SPACE, .loop_bytes = WATCH_LOOP_BYTES};
}

/* Fed in pieces of so many bytes. */
static struct watch_verdict watch_text(const struct stream_watch_config *config, struct bytes text, size_t piece)
{
	struct stream_watch *watch = stream_watch_new(config);
	struct watch_verdict verdict;

	for (size_t at = 0, len; at < text.len; at += len) {
		bool fine;

		len = piece == ALL_AT_ONCE || piece > text.len - at ? text.len - at : piece;
		fine = stream_watch_feed(watch, (struct bytes){text.data + at, len});
		if (fine != (stream_watch_verdict(watch)->check == WATCH_FINE)) /* no ck_assert: it writes a file each time */
			ck_abort_msg("fed, but its verdict is another");
	}
	verdict = *stream_watch_verdict(watch);
	stream_watch_free(watch);
	return verdict;
}

static struct watch_verdict watch_cut(const struct stream_watch_config *config, struct bytes text)
{
	struct watch_verdict whole = watch_text(config, text, ALL_AT_ONCE);

	for (size_t piece = 1; piece <= (text.len < 100 ? 3 : 1); piece++) {
		struct watch_verdict cut = watch_text(config, text, piece);

		if (cut.check != whole.check || cut.at != whole.at || cut.value_end != whole.value_end || strcmp(cut.detail, whole.detail) != 0)
			ck_abort_msg("at once: %d at %zu, %s; in pieces of %zu: %d at %zu, %s", whole.check, whole.at, whole.detail, piece, cut.check, cut.at, cut.detail);
	}
	return whole;
}

/* What no JSON can become is stopped at the byte that says so, and what still can is not. */
START_TEST(json_is_followed)
{
	static const struct {
		const char *text;
		long at; /* of the byte that is wrong; -1: nothing is */
		const char *detail;
	} rows[] = {
		{"{\"a\":[1,-0.5e+3,true,false,null,\"x\\u00e9\\ud83d\\ude00\\n\"],\"b\":{}} \n", -1, ""},
		{"", -1, ""}, {"  \t\r\n", -1, ""}, {"[", -1, ""}, {"{\"a\"", -1, ""}, {"\"\\u12", -1, ""}, {"tru", -1, ""}, {"-", -1, ""},
		{"0", -1, ""}, {"12 ", -1, ""}, {"[[],[1]]", -1, ""}, {"{} ", -1, ""},
		{"Here is the JSON:", 0, "expected a value"},
		{"\xEF\xBB\xBF{}", 0, "expected a value"},
		{"{a:1}", 1, "name in quotes"}, {"{'a'", 1, "name in quotes"}, {"{,", 1, "name in quotes"}, {"{\"a\":1,}", 7, "name in quotes"},
		{"{\"a\" 1", 5, "colon"}, {"{\"a\":}", 5, "expected a value"}, {"[1,]", 3, "expected a value"}, {"[,", 1, "expected a value"},
		{"[1 2", 3, "comma or the end of the array"}, {"{\"a\":1]", 6, "comma or the end of the object"}, {"[}", 1, "expected a value"},
		{"trve", 2, "expected a value"}, {"nul ", 3, "expected a value"}, {"[truefalse", 5, "comma"},
		{"[01", 2, "comma"}, {"[-]", 2, "digit"}, {"[1.]", 3, "digit"}, {"[1e]", 3, "digit"}, {"[1e+]", 4, "digit"}, {"[.5", 1, "expected a value"}, {"[1.5.", 4, "comma"},
		{"+1", 0, "expected a value"}, {"NaN", 0, "expected a value"}, {"[1x", 2, "comma"},
		{"\"\\x", 2, "no such escape"}, {"\"\\u12g", 5, "four hex digits"}, {"\"\\u0000", 6, "U+0000"}, {"\"\n", 1, "control character"},
		{"\"\\ud83dx", 7, "surrogate"}, {"\"\\ud83d\\n", 8, "surrogate"}, {"\"\\ude00", 6, "surrogate"}, {"\"\\ud83d\\u0041", 12, "surrogate"},
		{"{} x", 3, "complete with byte 2, but text follows"}, {"1 2", 2, "complete with byte 1"}, {"[]]", 2, "complete"}, {"{}```", 2, "complete"},
		{"```json\n{\"a\":1}\n``` \n", -1, ""}, {" ```\n[1]```", -1, ""}, {"````x\n1 ```", -1, ""}, {"```json {} ", -1, ""},
		{"``{", 2, "expected a value"}, {"```\n```", 4, "expected a value"}, {"```\n{}\n``x", 9, "end of the code fence"}, {"```\n{}```x", 9, "text follows"},
		{"```\n{} x", 7, "text follows"}, {"```\n{}````", 9, "text follows"},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct stream_watch_config config = config_of(true, NULL);
		struct watch_verdict verdict = watch_cut(&config, bytes_text(rows[i].text));

		ck_assert_msg(verdict.check == (rows[i].at < 0 ? WATCH_FINE : WATCH_NOT_JSON), "row %zu: %s", i, rows[i].text);
		ck_assert_msg(rows[i].at < 0 || verdict.at == (size_t)rows[i].at, "row %zu: %s: at %zu", i, rows[i].text, verdict.at);
		ck_assert_msg(strstr(verdict.detail, rows[i].detail) != NULL, "row %zu: %s: %s", i, rows[i].text, verdict.detail);
	}
}
END_TEST

/* Arrays may nest as deep as the parser takes them, and no deeper. */
START_TEST(depth_has_the_limit_of_the_parser)
{
	struct stream_watch_config config = config_of(true, NULL);
	char text[JSON_DEPTH_MAX + 1];

	memset(text, '[', sizeof(text));
	ck_assert_int_eq(watch_cut(&config, (struct bytes){(const uint8_t *)text, JSON_DEPTH_MAX}).check, WATCH_FINE);
	ck_assert_uint_eq(watch_cut(&config, (struct bytes){(const uint8_t *)text, sizeof(text)}).at, JSON_DEPTH_MAX);
}
END_TEST

/* A schema is held against what has come as soon as nothing that may still come can mend it; what cannot be followed is let through. */
START_TEST(schema_is_followed)
{
#define FACTS "{\"type\":\"object\",\"required\":[\"facts\"],\"additionalProperties\":false,\"properties\":{\"facts\":{\"type\":\"array\",\"maxItems\":2,\"items\":" \
	"{\"type\":\"object\",\"required\":[\"s\",\"p\"],\"additionalProperties\":false,\"properties\":{\"s\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":4}," \
	"\"p\":{\"enum\":[\"is_in\",\"is_on\",7,null,true]},\"n\":{\"type\":[\"integer\",\"null\"],\"minimum\":1,\"exclusiveMaximum\":10}}}}}}"
	static const struct {
		const char *schema, *text;
		long at;
		const char *detail;
	} rows[] = {
		{FACTS, "{\"facts\":[{\"s\":\"\xc3\xa4" "b\\u00e9d\",\"p\":\"is_on\",\"n\":9}]}", -1, ""},
		{FACTS, "[", 0, "expected object, got array"}, {FACTS, "\"", 0, "got string"},
		{FACTS, "{\"fact\"", 6, "no member \"fact\""}, {FACTS, "{}", 1, "missing: facts"}, {FACTS, "{\"facts\":{", 9, "expected array, got object"},
		{FACTS, "{\"facts\":[],\"facts\"", 18, "json-duplicate"},
		{FACTS, "{\"facts\":[{\"s\":\"x\"}", 18, "/facts/0: required, but missing: p"}, {FACTS, "{\"facts\":[{\"s\":\"\"", 16, "/facts/0/s: expected a text of at least 1"},
		{FACTS, "{\"facts\":[{\"s\":\"abcde", 20, "/facts/0/s: expected a text of at most 4"}, {FACTS, "{\"facts\":[{\"s\":\"\\u00e4\xc3\xa4\xf0\x9f\x98\x80\\ud83d\\ude00\"", -1, ""},
		{FACTS, "{\"facts\":[{\"p\":\"is_x", 19, "/facts/0/p: expected one of the values of const or enum"}, {FACTS, "{\"facts\":[{\"p\":\"is_\"", 19, "/facts/0/p: expected one of the values of const or enum"}, {FACTS, "{\"facts\":[{\"p\":\"is_inn", 21, "/facts/0/p: expected one of the values of const or enum"},
		{FACTS, "{\"facts\":[{\"p\":\"\\u0069s_in\"", -1, ""}, {FACTS, "{\"facts\":[{\"p\":7,", -1, ""}, {FACTS, "{\"facts\":[{\"p\":7.0,", -1, ""}, {FACTS, "{\"facts\":[{\"p\":8,", 16, "/facts/0/p: expected one of the values of const or enum"},
		{FACTS, "{\"facts\":[{\"p\":true", -1, ""}, {FACTS, "{\"facts\":[{\"p\":false", 19, "/facts/0/p: expected one of the values of const or enum"}, {FACTS, "{\"facts\":[{\"p\":[", 15, "/facts/0/p: expected one of the values of enum, got array"},
		{FACTS, "{\"facts\":[{\"n\":1e0,", -1, ""}, {FACTS, "{\"facts\":[{\"n\":1.5,", 18, "fraction"}, {FACTS, "{\"facts\":[{\"n\":0}", 16, "/facts/0/n: expected a number of at least 1, got 0"}, {FACTS, "{\"facts\":[{\"n\":10}", 17, "a number below 10, got 10"},
		{FACTS, "{\"facts\":[{\"n\":null", -1, ""}, {FACTS, "{\"facts\":[{\"s\":\"a\",\"p\":null},{\"s\":\"a\",\"p\":null},{", 47, "/facts: more than 2 items"},
		/* References, alternatives. */
		{"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/b\"}},\"b\":{\"const\":\"x\"}}}", "[\"y", 2, "const"},
		{"{\"properties\":{\"n\":{\"$ref\":\"#\"}},\"additionalProperties\":false}", "{\"n\":{\"n\":{\"m\"", 13, "/n/n: the schema has no member \"m\" and allows no others"},
		{"{\"$defs\":{\"a\":{\"$id\":\"x:y\"},\"b\":false},\"items\":{\"$ref\":\"#/$defs/b\"}}", "[1,2]", -1, ""},
		{"{\"items\":{\"$id\":\"x:y\",\"type\":\"string\"}}", "[1,2]", -1, ""},
		{"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"type\":\"null\"}]}", "\"ab", 2, ": expected a text of at most 1"},
		{"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"type\":\"null\"}]}", "1", 0, "none of the alternatives"},
		{"{\"oneOf\":[{\"const\":1},{\"enum\":[2]}]}", "3 ", -1, ""}, {"{\"oneOf\":[{\"const\":1},{\"enum\":[2]}]}", "true", 3, "alternatives"},
		{"{\"allOf\":[{\"type\":\"array\"},{\"maxItems\":1}]}", "[1,2", 2, "more than 1"}, {"{\"allOf\":[{\"type\":\"array\"},{\"minItems\":3}]}", "[1,2]", 4, "fewer than 3"},
		{"{\"items\":false}", "[]", -1, ""}, {"{\"items\":false}", "[1", 1, "allows no value"},
		/* Let through. */
		{"{\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"type\":\"number\"}}", "[\"a\",1,true]", -1, ""},
		{"{\"properties\":{\"a\":true},\"patternProperties\":{\"^x\":{\"type\":\"null\"}},\"additionalProperties\":false}", "{\"xy\":1}", -1, ""},
		{"{\"$ref\":\"#/$defs/a\",\"type\":\"string\",\"$defs\":{\"a\":true}}", "1 ", -1, ""},
		{"{\"not\":{\"type\":\"number\"},\"if\":true,\"then\":false,\"uniqueItems\":true,\"pattern\":\"a\",\"contains\":false}", "[1,1]", -1, ""},
		{"{\"$schema\":\"https://json-schema.org/draft/2020-12/meta/core\",\"type\":\"string\"}", "1 ", -1, ""},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"items\":[{\"type\":\"null\"}],\"type\":\"array\"}", "[1]", -1, ""},
		{"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"anyOf\":[],\"oneOf\":[{\"oneOf\":[]}]}", "1 ", -1, ""},
		{"{\"required\":[1],\"properties\":[],\"enum\":{},\"anyOf\":3,\"allOf\":{\"a\":1},\"type\":9,\"maxLength\":\"x\"}", "{\"a\":\"b\"}", -1, ""}, /* is no schema */
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena;
		struct stream_watch_config config;
		struct watch_verdict verdict;

		arena_init(&arena);
		config = config_of(true, json_parse(&arena, bytes_text(rows[i].schema), JSON_STRICT, NULL, NULL));
		ck_assert_ptr_nonnull(config.schema);
		verdict = watch_cut(&config, bytes_text(rows[i].text));
		ck_assert_msg((verdict.check == WATCH_FINE) == (rows[i].at < 0), "row %zu: %s: %s", i, rows[i].text, verdict.detail);
		ck_assert_msg(rows[i].at < 0 || verdict.at == (size_t)rows[i].at, "row %zu: %s: at %zu", i, rows[i].text, verdict.at);
		ck_assert_msg(strstr(verdict.detail, rows[i].detail) != NULL, "row %zu: %s: %s", i, rows[i].text, verdict.detail);
		arena_close(&arena);
	}
}
END_TEST

/* The part that accepts everything does, wherever it is applied. */
START_TEST(excepted_part_accepts_everything)
{
	struct arena arena;
	struct stream_watch_config config;
	struct json *schema;

	arena_init(&arena);
	schema = json_parse(&arena, bytes_text("{\"properties\":{\"facts\":{\"items\":{\"type\":\"object\",\"additionalProperties\":false}}},\"additionalProperties\":false}"), JSON_STRICT, NULL, NULL);
	config = config_of(true, schema);
	ck_assert_int_eq(watch_cut(&config, bytes_text("{\"facts\":[7]}")).check, WATCH_SCHEMA);
	config.except = json_get(json_get(json_get(schema, "properties"), "facts"), "items");
	ck_assert_int_eq(watch_cut(&config, bytes_text("{\"facts\":[7,{\"a\":1}]}")).check, WATCH_FINE);
	ck_assert_int_eq(watch_cut(&config, bytes_text("{\"fact\":")).check, WATCH_SCHEMA);
	arena_close(&arena);
}
END_TEST

/* What is over a limit of the watch is left to the whole check: long names, numbers, lists of choices, more schemas and required members than
 * are followed. */
START_TEST(limits_let_through)
{
	struct arena arena;
	struct json *schema, *list, *properties, *wrong;
	struct stream_watch_config config;
	char text[4096], name[WATCH_NAME_MAX + 2];

	arena_init(&arena);
	/* A name of WATCH_NAME_MAX bytes is known, a longer one is not, and then neither is what is missing. */
	for (int more = 0; more <= 1; more++) {
		memset(name, 'n', sizeof(name));
		name[WATCH_NAME_MAX + more] = '\0';
		snprintf(text, sizeof(text), "{\"%s\":1}", name);
		schema = json_parse(&arena, bytes_text("{\"additionalProperties\":false,\"required\":[\"x\"]}"), JSON_STRICT, NULL, NULL);
		config = config_of(true, schema);
		ck_assert_int_eq(watch_cut(&config, bytes_text(text)).check, more ? WATCH_FINE : WATCH_SCHEMA);
	}
	/* A number. */
	for (int more = 0; more <= 1; more++) {
		snprintf(text, sizeof(text), "[1.%0*d]", WATCH_NUMBER_MAX - 2 + more, 5);
		schema = json_parse(&arena, bytes_text("{\"items\":{\"maximum\":0}}"), JSON_STRICT, NULL, NULL);
		config = config_of(true, schema);
		ck_assert_int_eq(watch_cut(&config, bytes_text(text)).check, more ? WATCH_FINE : WATCH_SCHEMA);
	}
	/* Choices. */
	for (int more = 0; more <= 1; more++) {
		schema = json_object(&arena);
		list = json_array(&arena);
		for (int i = 0; i < WATCH_CHOICES_MAX + more; i++)
			json_add(&arena, list, json_printf(&arena, "c%d", i));
		json_set(&arena, schema, "enum", list);
		config = config_of(true, schema);
		ck_assert_int_eq(watch_cut(&config, bytes_text("\"c63\"")).check, WATCH_FINE);
		ck_assert_int_eq(watch_cut(&config, bytes_text("\"d")).check, more ? WATCH_FINE : WATCH_SCHEMA);
		ck_assert_int_eq(watch_cut(&config, bytes_text("1")).check, more ? WATCH_FINE : WATCH_SCHEMA);
	}
	/* Required members. */
	for (int more = 0; more <= 1; more++) {
		struct buffer object;

		schema = json_object(&arena);
		list = json_array(&arena);
		buffer_init(&object, sizeof(text));
		buffer_add(&object, "{", 1);
		for (int i = 0; i < WATCH_REQUIRED_MAX + more; i++) {
			json_add(&arena, list, json_printf(&arena, "r%d", i));
			if (i < WATCH_REQUIRED_MAX - 1 + more)
				buffer_printf(&object, "%s\"r%d\":0", i > 0 ? "," : "", i);
		}
		buffer_add(&object, "}", 1);
		json_set(&arena, schema, "required", list);
		config = config_of(true, schema);
		ck_assert_int_eq(watch_cut(&config, buffer_bytes(&object)).check, more ? WATCH_FINE : WATCH_SCHEMA);
		buffer_close(&object);
	}
	/* Schemas at one value: the fifth that says something of the parts is not followed. */
	for (int more = 0; more <= 1; more++) {
		schema = json_object(&arena);
		list = json_array(&arena);
		for (int i = 0; i < WATCH_SCHEMAS_MAX - 1 + more; i++)
			json_add(&arena, list, json_parse(&arena, bytes_text("{\"minProperties\":1}"), JSON_STRICT, NULL, NULL));
		wrong = json_parse(&arena, bytes_text("{\"maxProperties\":1}"), JSON_STRICT, NULL, NULL);
		json_add(&arena, list, wrong);
		json_set(&arena, schema, "allOf", list);
		config = config_of(true, schema);
		ck_assert_int_eq(watch_cut(&config, bytes_text("{\"a\":1,\"b\":2}")).check, more ? WATCH_FINE : WATCH_SCHEMA);
	}
	/* References one behind the other, and how many schemas are looked at. */
	for (int more = 0; more <= 1; more++) {
		schema = json_object(&arena);
		properties = json_object(&arena);
		json_set(&arena, schema, "$defs", properties);
		for (int i = 0; i < WATCH_REFERENCES_MAX - 1 + more; i++) {
			struct json *step = json_object(&arena);

			json_set(&arena, step, "$ref", json_printf(&arena, "#/$defs/d%d", i + 1));
			json_set(&arena, properties, arena_printf(&arena, "d%d", i), step);
		}
		json_set(&arena, properties, arena_printf(&arena, "d%d", WATCH_REFERENCES_MAX - 1 + more), json_boolean(&arena, false));
		json_set_text(&arena, schema, "$ref", "#/$defs/d0");
		config = config_of(true, schema);
		ck_assert_int_eq(watch_cut(&config, bytes_text("1")).check, more ? WATCH_FINE : WATCH_SCHEMA);
		/* "allOf" of 98 schemas, then one that refuses: with the root the hundredth. */
		schema = json_object(&arena);
		list = json_array(&arena);
		for (int i = 0; i < WATCH_FOLLOWED_MAX - 2 + more; i++)
			json_add(&arena, list, json_boolean(&arena, true));
		json_add(&arena, list, json_boolean(&arena, false));
		json_set(&arena, schema, "allOf", list);
		config = config_of(true, schema);
		ck_assert_int_eq(watch_cut(&config, bytes_text("1")).check, more ? WATCH_FINE : WATCH_SCHEMA);
	}
	/* A schema of too many nodes: its references are not followed. */
	for (int more = 0; more <= 1; more++) {
		schema = json_parse(&arena, bytes_text("{\"$ref\":\"#/$defs/no\",\"$defs\":{\"no\":false}}"), JSON_STRICT, NULL, NULL);
		list = json_array(&arena);
		for (int i = 0; i < WATCH_SCHEMA_NODES_MAX - 5 + more; i++) /* and the root, $ref, $defs, no, this list */
			json_add(&arena, list, json_null(&arena));
		json_set(&arena, schema, "examples", list);
		config = config_of(true, schema);
		ck_assert_int_eq(watch_cut(&config, bytes_text("1")).check, more ? WATCH_FINE : WATCH_SCHEMA);
	}
	arena_close(&arena);
}
END_TEST

static struct watch_verdict watch_repeated(const struct stream_watch_config *config, const char *before, const char *again, size_t times, const char *behind)
{
	struct buffer text;
	struct watch_verdict verdict;

	buffer_init(&text, 1 << 20);
	buffer_add_text(&text, before);
	for (size_t i = 0; i < times; i++)
		buffer_add_text(&text, again);
	buffer_add_text(&text, behind);
	ck_assert(!text.overflow);
	verdict = watch_cut(config, buffer_bytes(&text));
	buffer_close(&text);
	return verdict;
}

/* White space has a limit between values, a larger one in strings, where its escapes count as one, and in text; a small one behind the value. */
START_TEST(white_space_has_limits)
{
	struct stream_watch_config json = config_of(true, NULL), text = config_of(false, NULL);
	size_t most = WATCH_WHITE_SPACE, in_text = most * WATCH_TEXT_WHITE_SPACE_TIMES, behind = WATCH_COMPLETE_WHITE_SPACE_MAX;
	struct watch_verdict verdict;

	json.loop_bytes = text.loop_bytes = 0;
	ck_assert_int_eq(watch_repeated(&json, "[", " ", most, "1, 2]").check, WATCH_FINE);
	verdict = watch_repeated(&json, "[", "\n", most + 1, "1]");
	ck_assert_int_eq(verdict.check, WATCH_SPACE);
	ck_assert_uint_eq(verdict.at, 1 + most);
	ck_assert_ptr_nonnull(strstr(verdict.detail, "512 white-space characters in a row outside of strings"));
	ck_assert_int_eq(watch_repeated(&json, "", "\t", most + 1, "").check, WATCH_SPACE);
	ck_assert_int_eq(watch_repeated(&json, "{\"a\"", " ", most + 1, "").check, WATCH_SPACE);

	ck_assert_int_eq(watch_repeated(&json, "[\"", " ", in_text, "x \"]").check, WATCH_FINE);
	ck_assert_int_eq(watch_repeated(&json, "[\"", "\\n", in_text, "x\\n\"]").check, WATCH_FINE);
	ck_assert_uint_eq(watch_repeated(&json, "[\"", " ", in_text + 1, "").at, 2 + in_text);
	verdict = watch_repeated(&json, "[\"", "\\n", in_text + 1, "");
	ck_assert_int_eq(verdict.check, WATCH_SPACE);
	ck_assert_uint_eq(verdict.at, 2 + 2 * in_text + 1);
	ck_assert_int_eq(watch_repeated(&json, "[\"", "\\u0020\\t", in_text / 2 + 1, "").check, WATCH_SPACE);
	ck_assert_int_eq(watch_repeated(&json, "{\"", " ", in_text + 1, "").check, WATCH_SPACE);

	ck_assert_int_eq(watch_repeated(&text, "a", "\n", in_text, "b").check, WATCH_FINE);
	ck_assert_int_eq(watch_repeated(&text, "a", "\n", in_text + 1, "b").check, WATCH_SPACE);

	ck_assert_int_eq(watch_repeated(&json, "{}", " ", behind, "").check, WATCH_FINE);
	verdict = watch_repeated(&json, " {\"a\":1}", "\n", behind + 1, "more");
	ck_assert_int_eq(verdict.check, WATCH_COMPLETE);
	ck_assert_uint_eq(verdict.at, 8 + behind);
	ck_assert_uint_eq(verdict.value_end, 8);
	ck_assert_uint_eq(watch_repeated(&json, "12", "\n", behind + 1, "").value_end, 2);
	ck_assert_int_eq(watch_repeated(&json, "```\n{}\n```", "\n", behind, "").check, WATCH_FINE);
	ck_assert_int_eq(watch_repeated(&json, "```\n{}\n```", "\n", behind + 1, "").check, WATCH_COMPLETE);

	json.white_space = 10;
	ck_assert_int_eq(watch_repeated(&json, "[", " ", 10, "]").check, WATCH_FINE);
	ck_assert_int_eq(watch_repeated(&json, "[", " ", 11, "]").check, WATCH_SPACE);
	ck_assert_int_eq(watch_repeated(&json, "[\"", " ", 41, "").check, WATCH_SPACE);
	ck_assert_int_eq(watch_repeated(&json, "[]", " ", 11, "").check, WATCH_COMPLETE);
	json.white_space = text.white_space = 0;
	ck_assert_int_eq(watch_repeated(&json, "[", " ", 100000, "]").check, WATCH_FINE);
	ck_assert_int_eq(watch_repeated(&json, "[\"", " ", 100000, "\"]").check, WATCH_FINE);
	ck_assert_int_eq(watch_repeated(&json, "[]", " ", 100000, "").check, WATCH_FINE);
	ck_assert_int_eq(watch_repeated(&text, "", " ", 100000, "").check, WATCH_FINE);
}
END_TEST

/* What repeats itself is stopped, by where it does and of what it is, and what people mean is not. */
START_TEST(loops_are_found)
{
	static const struct {
		bool json;
		const char *before, *again;
		size_t fine, loop; /* times */
	} rows[] = {
		/* One line with letters: some 2 KiB, but at least eight times. */
		{false, "It is so. ", "the ", 500, 900}, {false, "", "I am sorry, I cannot do that. ", 60, 130}, {true, "{\"a\":\"", "and again ", 200, 340},
		{true, "[1,\"", "\xe3\x81\x9d\xe3\x81\x86", 300, 600},
		/* Without letters. */
		{false, "# Title\n", "-", 8000, 9500}, {true, "[\"0x", "0", 8000, 9500}, {true, "[\"", "!", 8000, 9500},
		/* Rows with letters. */
		{false, "", "| n/a | n/a |\n", 500, 700}, {true, "{\"a\":[{}", ",\n  {\"value\": 0, \"unit\": \"mm\"}", 250, 330}, {true, "[\"x\"", ",\"the same fact\"", 500, 700},
		{true, "[\"", "I am sorry.\\n", 600, 800},
		/* Rows of few bytes, or without letters. */
		{true, "[0", ", 0", 10000, 11500}, {true, "[0.0", ",0.0", 8000, 8600}, {true, "[null", ", null", 5400, 6000}, {true, "[[0]", ",\n[0, 0, 0, 0, 0, 0, 0, 0]", 1200, 1400},
		{false, "", "0 0 0\n", 5400, 6000},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct stream_watch_config config = config_of(rows[i].json, NULL);
		struct watch_verdict verdict = watch_repeated(&config, rows[i].before, rows[i].again, rows[i].fine, "");

		ck_assert_msg(verdict.check == WATCH_FINE, "row %zu, %zu times: %s", i, rows[i].fine, verdict.detail);
		verdict = watch_repeated(&config, rows[i].before, rows[i].again, rows[i].loop, "");
		ck_assert_msg(verdict.check == WATCH_LOOP, "row %zu, %zu times", i, rows[i].loop);
		config.loop_bytes = 0;
		ck_assert_msg(watch_repeated(&config, rows[i].before, rows[i].again, rows[i].loop, "").check == WATCH_FINE, "row %zu, off", i);
		config.loop_bytes = WATCH_LOOP_BYTES * 4;
		ck_assert_msg(watch_repeated(&config, rows[i].before, rows[i].again, rows[i].loop, "").check == WATCH_FINE, "row %zu, more", i);
	}
}
END_TEST

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* Any period up to WATCH_LOOP_PERIOD_MAX is found within three of it and the bytes that make a loop; a longer one is not, and random text is none. */
START_TEST(all_periods_are_found)
{
	struct stream_watch_config config = config_of(false, NULL);
	uint64_t state = 1;

	for (size_t period = 1; period <= WATCH_LOOP_PERIOD_MAX + 1; period += period < 40 || period >= WATCH_LOOP_PERIOD_MAX - 1 ? 1 : period < 900 ? 23 : WATCH_LOOP_PERIOD_MAX - 1 - period) {
		size_t most = WATCH_LOOP_REPEATS_MIN * period > WATCH_LOOP_BYTES ? WATCH_LOOP_REPEATS_MIN * period : WATCH_LOOP_BYTES;
		struct buffer text;
		struct watch_verdict verdict;

		/* In a period of few letters the same bytes come several times. */
		buffer_init(&text, 1 << 20);
		for (size_t i = 0; i < period; i++)
			buffer_add(&text, &"abababcd"[next_random(&state) % 8], 1);
		for (size_t i = period; i < 12 * (WATCH_LOOP_PERIOD_MAX + 1) + 4096; i++)
			buffer_add_char(&text, buffer_text(&text)[i - period]);
		verdict = watch_cut(&config, buffer_bytes(&text));
		if (period <= WATCH_LOOP_PERIOD_MAX) {
			ck_assert_msg(verdict.check == WATCH_LOOP, "period %zu", period);
			ck_assert_msg(verdict.at < WATCH_LOOP_BYTES / 2 + most + 3 * period + 16, "period %zu: at %zu", period, verdict.at);
		} else {
			ck_assert_int_eq(verdict.check, WATCH_FINE);
		}
		buffer_close(&text);
	}
	for (int round = 0; round < 20; round++) {
		struct buffer text;

		buffer_init(&text, 1 << 20);
		for (size_t i = 0; i < 50000; i++)
			buffer_add(&text, &"abababcd"[next_random(&state) % 8], 1);
		ck_assert_int_eq(watch_text(&config, buffer_bytes(&text), ALL_AT_ONCE).check, WATCH_FINE);
		buffer_close(&text);
	}
}
END_TEST

/* ---- Against the whole check ---- */

struct maker {
	struct arena *arena;
	uint64_t state;
	unsigned left; /* nodes that may still be made */
};

static unsigned choose(struct maker *maker, unsigned count)
{
	return (unsigned)(next_random(&maker->state) % count);
}

static const char *const names[] = {"a", "b", "facts", "\xc3\xa9", "long name"};
static const char *const texts[] = {"", "a", "ab", "abc", "\xc3\xa9t\xc3\xa9", "\xf0\x9f\x98\x80", "a\nb", "\"\\"};
static const double numbers[] = {0, 1, 2, -1, 1.5, 1e3, 10, 0.1, 9007199254740991.0};

static struct json *make_value(struct maker *maker, unsigned depth)
{
	struct arena *arena = maker->arena;
	struct json *json;
	unsigned count = choose(maker, 4);

	switch (choose(maker, depth == 0 ? 4 : 6)) {
	case 0:
		return json_null(arena);
	case 1:
		return json_boolean(arena, choose(maker, 2));
	case 2:
		return json_number(arena, numbers[choose(maker, COUNT_OF(numbers))]);
	case 3:
		return json_text(arena, texts[choose(maker, COUNT_OF(texts))]);
	case 4:
		json = json_array(arena);
		for (unsigned i = 0; i < count; i++)
			json_add(arena, json, make_value(maker, depth - 1));
		return json;
	default:
		json = json_object(arena);
		for (unsigned i = 0; i < count; i++)
			json_set(arena, json, names[choose(maker, COUNT_OF(names))], make_value(maker, depth - 1));
		return json;
	}
}

static struct json *make_names(struct maker *maker)
{
	struct json *list = json_array(maker->arena);

	for (unsigned i = 0; i < COUNT_OF(names); i++)
		if (choose(maker, 4) == 0)
			json_add(maker->arena, list, json_text(maker->arena, names[i]));
	return list;
}

static struct json *make_schema(struct maker *maker, unsigned depth);

static struct json *make_schemas(struct maker *maker, unsigned depth)
{
	struct json *list = json_array(maker->arena);

	for (unsigned i = 0, count = 1 + choose(maker, 3); i < count; i++)
		json_add(maker->arena, list, make_schema(maker, depth));
	return list;
}

static struct json *make_schema(struct maker *maker, unsigned depth)
{
	static const char *const types[] = {"null", "boolean", "number", "string", "array", "object", "integer"};
	static const char *const references[] = {"#/$defs/one", "#/$defs/two", "#", "#/$defs/two/items", "#/properties/a"};
	static const char *const counts[] = {"minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength", "minContains"};
	static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
	static const char *const inner[] = {"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else", "unevaluatedProperties"};
	static const char *const lists[] = {"anyOf", "oneOf", "allOf", "prefixItems"};
	struct arena *arena = maker->arena;
	struct json *schema = json_object(arena), *list;

	if (choose(maker, 12) == 0)
		return json_boolean(arena, choose(maker, 4) != 0);
	for (unsigned i = 0, count = 1 + choose(maker, 4); i < count && maker->left > 0; i++) {
		maker->left--;
		switch (choose(maker, depth == 0 ? 6 : 11)) {
		case 0:
		case 1:
			if (choose(maker, 3) > 0) {
				json_set_text(arena, schema, "type", types[choose(maker, COUNT_OF(types))]);
				break;
			}
			list = json_array(arena);
			for (unsigned k = 0, first = choose(maker, 7), types_count = 1 + choose(maker, 4); k < types_count; k++)
				json_add(arena, list, json_text(arena, types[(first + k) % 7]));
			json_set(arena, schema, "type", list);
			break;
		case 2:
			json_set(arena, schema, "const", make_value(maker, 1));
			break;
		case 3:
			list = json_array(arena);
			for (unsigned k = 0, values = 1 + choose(maker, 5); k < values; k++)
				json_add(arena, list, make_value(maker, 1));
			json_set(arena, schema, "enum", list);
			break;
		case 4:
			json_set_number(arena, schema, counts[choose(maker, COUNT_OF(counts))], choose(maker, 4));
			break;
		case 5:
			if (choose(maker, 2) == 0)
				json_set_number(arena, schema, bounds[choose(maker, COUNT_OF(bounds))], numbers[choose(maker, COUNT_OF(numbers))]);
			else
				json_set(arena, schema, "required", make_names(maker));
			break;
		case 6:
			list = json_object(arena);
			for (unsigned k = 0; k < COUNT_OF(names); k++)
				if (choose(maker, 2) == 0)
					json_set(arena, list, names[k], make_schema(maker, depth - 1));
			json_set(arena, schema, choose(maker, 3) == 0 ? "patternProperties" : "properties", list);
			break;
		case 7:
			json_set(arena, schema, inner[choose(maker, COUNT_OF(inner))], make_schema(maker, depth - 1));
			break;
		case 8:
			json_set(arena, schema, lists[choose(maker, COUNT_OF(lists))], make_schemas(maker, depth - 1));
			break;
		case 9:
			json_set_text(arena, schema, "$ref", references[choose(maker, COUNT_OF(references))]);
			break;
		case 10:
			json_set_boolean(arena, schema, "additionalProperties", false);
			break;
		}
	}
	return schema;
}

/* A document as a model would print it: white space here and there, some escapes, numbers in other forms, members sometimes twice. */
static void print_loosely(struct maker *maker, const struct json *json, struct buffer *out)
{
	static const char *const spaces[] = {"", "", "", " ", "\n  ", "\t\r\n"};
	const char *space = spaces[choose(maker, COUNT_OF(spaces))];

	buffer_add_text(out, space);
	switch (json->type) {
	case JSON_ARRAY:
		buffer_add_text(out, "[");
		for (size_t i = 0; i < json_count(json); i++) {
			buffer_add_text(out, i > 0 ? "," : "");
			print_loosely(maker, json_at(json, i), out);
		}
		buffer_add_text(out, space);
		buffer_add_text(out, "]");
		break;
	case JSON_OBJECT:
		buffer_add_text(out, "{");
		for (size_t i = 0, first = json_count(json) > 0 ? choose(maker, (unsigned)json_count(json)) : 0; i < json_count(json); i++) {
			const struct json_member *member = &json->object.members[(i + first) % json_count(json)];

			buffer_add_text(out, i > 0 ? "," : "");
			print_loosely(maker, json_text(maker->arena, member->name), out);
			buffer_add_text(out, space);
			buffer_add_text(out, ":");
			print_loosely(maker, member->value, out);
			if (choose(maker, 100) == 0) {
				buffer_add_text(out, ",");
				json_print_string(member->name, member->name_len, out);
				buffer_add_text(out, ":0");
			}
		}
		buffer_add_text(out, "}");
		break;
	case JSON_STRING:
		if (choose(maker, 3) > 0 || strchr(json->string.text, '"') != NULL || strchr(json->string.text, '\n') != NULL) {
			json_print_string(json->string.text, json->string.len, out);
			break;
		}
		buffer_add_text(out, "\"");
		for (size_t i = 0; i < json->string.len; i++) {
			if (strncmp(json->string.text + i, "\xf0\x9f\x98\x80", 4) == 0) {
				buffer_add_text(out, "\\ud83d\\uDE00");
				i += 3;
			} else if ((uint8_t)json->string.text[i] < 0x80 && choose(maker, 2) == 0) {
				buffer_printf(out, "\\u%04x", (unsigned)json->string.text[i]);
			} else {
				buffer_add(out, json->string.text + i, 1);
			}
		}
		buffer_add_text(out, "\"");
		break;
	case JSON_NUMBER:
		if (json->number == 1)
			buffer_add_text(out, choose(maker, 2) ? "1.0" : "10e-1");
		else
			json_print_number(json->number, out);
		break;
	default:
		json_print(json, out);
	}
	buffer_add_text(out, choose(maker, 4) == 0 ? " " : "");
}

static bool is_accepted(struct arena *arena, const struct json_schema *program, struct bytes text)
{
	const struct json *value = json_parse(arena, text_take_fence_off(text, NULL), JSON_STRICT, NULL, NULL);

	return value != NULL && json_schema_match(program, value, NULL) == 0;
}

/* Whatever the whole check accepts passes the watch, however it is cut; and of what is refused the watch finds much by itself. Schemas, values and
 * mistakes in them are random. */
START_TEST(whole_check_is_the_judge)
{
	unsigned accepted = 0, refused = 0, found = 0, schemas = 0;

	for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
		struct arena arena;
		struct maker maker = {&arena, seed * 7919, 14};
		struct json *schema, *defs;
		struct json_schema *program;
		struct stream_watch_config config;

		arena_init(&arena);
		schema = make_schema(&maker, 3);
		defs = json_object(&arena);
		maker.left += 8;
		json_set(&arena, defs, "one", make_schema(&maker, 1));
		json_set(&arena, defs, "two", make_schema(&maker, 2));
		if (schema->type == JSON_OBJECT) {
			json_set(&arena, schema, "$defs", defs);
			if (choose(&maker, 10) == 0)
				json_set_text(&arena, schema, "$schema", "http://json-schema.org/draft-07/schema#");
			if (choose(&maker, 10) == 0)
				json_set_text(&arena, schema, "$id", "https://example.org/s");
			if (choose(&maker, 20) == 0 && json_get(defs, "two")->type == JSON_OBJECT)
				json_set_text(&arena, json_get(defs, "two"), "$id", "two");
		}
		program = json_schema_compile_taken(schema, NULL);
		if (program == NULL) {
			arena_close(&arena);
			continue;
		}
		schemas++;
		config = config_of(true, schema);
		for (unsigned i = 0; i < 12; i++) {
			struct buffer text;
			struct watch_verdict verdict;
			bool fits;

			buffer_init(&text, 1 << 20);
			print_loosely(&maker, make_value(&maker, 3), &text);
			if (choose(&maker, 8) == 0) /* a mistake */
				text.data[choose(&maker, (unsigned)text.len)] = (uint8_t)"{}[],:\"0e-."[choose(&maker, 11)];
			fits = is_accepted(&arena, program, buffer_bytes(&text));
			verdict = watch_cut(&config, buffer_bytes(&text));
			if (fits && verdict.check != WATCH_FINE)
				ck_abort_msg("seed %llu: %s\n%s\nat %zu: %s", (unsigned long long)seed, (const char *)json_print_arena(schema, &arena).data,
				      buffer_text(&text), verdict.at, verdict.detail);
			accepted += fits;
			refused += !fits;
			found += verdict.check != WATCH_FINE;
			buffer_close(&text);
		}
		json_schema_free(program);
		arena_close(&arena);
	}
	printf("%u schemas, %u answers accepted, %u refused, %u of them found by the watch\n", schemas, accepted, refused, found);
	ck_assert_uint_gt(schemas, ROUNDS / 2);
	ck_assert_uint_gt(accepted, ROUNDS);
	ck_assert_uint_gt(found, refused / 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stream_watch");
	TCase *tests = tcase_create("stream_watch");
	SRunner *runner;
	int failed;

	tcase_add_test(tests, json_is_followed);
	tcase_add_test(tests, depth_has_the_limit_of_the_parser);
	tcase_add_test(tests, schema_is_followed);
	tcase_add_test(tests, excepted_part_accepts_everything);
	tcase_add_test(tests, limits_let_through);
	tcase_add_test(tests, white_space_has_limits);
	tcase_add_test(tests, loops_are_found);
	tcase_add_test(tests, all_periods_are_found);
	tcase_add_test(tests, whole_check_is_the_judge);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
