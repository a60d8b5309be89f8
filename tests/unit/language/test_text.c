/* Reading YAML and JSON texts: values, places, and every guard against hostile or broken ones. */
#include <check.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "workflow/base/check.h"
#include "workflow/language/definition.h"
#include "workflow/language/yaml.h"

struct fixture {
	struct arena arena;
	struct problems problems;
	struct text_positions *positions;
	struct json *json;
};

static void load(struct fixture *fixture, struct bytes text, enum text_format format)
{
	arena_init(&fixture->arena);
	problems_init(&fixture->problems);
	fixture->json = text_load(&fixture->arena, text, format, &fixture->positions, &fixture->problems);
	/* No value without its problems, and the other way round. */
	ck_assert((fixture->json == NULL) == (fixture->problems.errors > 0));
}

static void unload(struct fixture *fixture)
{
	arena_close(&fixture->arena);
	problems_close(&fixture->problems);
}

static const char *first_message(const struct fixture *fixture)
{
	return fixture->problems.count > 0 ? fixture->problems.items[0].message : "";
}

/* Scalars resolve by the core schema of YAML 1.2, tags are honoured, what JSON cannot say stays text. */
START_TEST(scalars_follow_the_core_schema)
{
	static const struct {
		const char *yaml, *json;
	} cases[] = {
		{"[no, yes, on, off, y, n, NO, Yes]", "[\"no\",\"yes\",\"on\",\"off\",\"y\",\"n\",\"NO\",\"Yes\"]"},
		{"[true, True, TRUE, tRue, false, False, FALSE]", "[true,true,true,\"tRue\",false,false,false]"},
		{"- null\n- ~\n-\n- Null\n- NULL\n- nul\n", "[null,null,null,null,null,\"nul\"]"},
		{"[010, 0o10, 0x1F, 0b11, 08, 0o8, 0xg]", "[10,8,31,\"0b11\",8,\"0o8\",\"0xg\"]"},
		{"[1e3, 1.5e-3, .5, 5., +7, -0, 0.10, -.5e+1]", "[1000,0.0015,0.5,5,7,0,0.1,-5]"},
		{"[1_000, '12:30:45', 1.2.3, 1e, .inf, -.inf, .nan, +, -., .]", "[\"1_000\",\"12:30:45\",\"1.2.3\",\"1e\",\".inf\",\"-.inf\",\".nan\",\"+\",\"-.\",\".\"]"},
		{"[2024-01-01, 2024-01-01T10:00:00Z]", "[\"2024-01-01\",\"2024-01-01T10:00:00Z\"]"},
		{"['1', \"true\", 'null', !!str 5, !!int '7', !!float 1, !!bool 'true', !!null '', ! 12, !!seq [], !!map {}]",
		 "[\"1\",\"true\",\"null\",\"5\",7,1,true,null,\"12\",[],{}]"},
		{"[9007199254740991, -9007199254740991, 0x1fffffffffffff]", "[9007199254740991,-9007199254740991,9007199254740991]"},
		{"[1e21, -1e300, 9007199254740991.4]", "[1e+21,-1e+300,9007199254740991]"},
		{"a: 'it''s'\nb: \"\\L\\_\\x41\"\n", "{\"a\":\"it's\",\"b\":\"\u2028\u00a0A\"}"},
		{"- 'a \n  b'\n- '\n\n \t b''\n  '''' ''\n\n '\n- ''\n- ''''\n- 'x\r\n  y'\n- ' '\n", "[\"a b\",\"\\nb' '' '\\n\",\"\",\"'\",\"x y\",\" \"]"},
		{"? 'k''y'\n: ['a','''','' ]\n", "{\"k'y\":[\"a\",\"'\",\"\"]}"},
		{"a: &x {k: 1}\nb: *x\nc: [*x, *x]\n", "{\"a\":{\"k\":1},\"b\":{\"k\":1},\"c\":[{\"k\":1},{\"k\":1}]}"},
		{"a: &x 1\nb: &x 2\nc: *x\n", "{\"a\":1,\"b\":2,\"c\":2}"},
		{"base: &b {a: 1}\nd:\n  <<: *b\n", "{\"base\":{\"a\":1},\"d\":{\"<<\":{\"a\":1}}}"},
		{"1: a\ntrue: b\nnull: c\n", "{\"1\":\"a\",\"null\":\"c\",\"true\":\"b\"}"},
		{"a: |\n  l1\n  l2\nb: >-\n  f1\n  f2\n", "{\"a\":\"l1\\nl2\\n\",\"b\":\"f1 f2\"}"},
		{"x: ${ .a + [\"red\"] }\ny: .[0]\n", "{\"x\":\"${ .a + [\\\"red\\\"] }\",\"y\":\".[0]\"}"},
		{"%YAML 1.1\n---\na: no\n", "{\"a\":\"no\"}"},
		{"\xef\xbb\xbf" "a: 1\n", "{\"a\":1}"},
		{"a: 1\r\nb: |\r\n  x\r\n", "{\"a\":1,\"b\":\"x\\n\"}"},
		{"{\n\t\"a\": [\n\t\t1\n\t]\n}", "{\"a\":[1]}"},
		{"\xef\xbb\xbf {\"a\": \"x\\/y\\u00e9\\ud83d\\ude00\"}", "{\"a\":\"x/yé😀\"}"},
		{"a: \"\\ud83d\\ude00\"", "{\"a\":\"😀\"}"},
		{"{}", "{}"},
		{"x", "\"x\""},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct fixture fixture;
		struct bytes text;

		load(&fixture, bytes_text(cases[i].yaml), TEXT_GUESS);
		ck_assert_msg(fixture.json != NULL, "%s: %s", cases[i].yaml, first_message(&fixture));
		text = json_print_arena(fixture.json, &fixture.arena);
		ck_assert_msg(bytes_equal_text(text, cases[i].json), "%s gives %.*s", cases[i].yaml, (int)text.len, (const char *)text.data);
		unload(&fixture);
	}
}
END_TEST

/* What is no text of ours is refused with the place where it goes wrong. */
START_TEST(bad_texts_are_refused)
{
	static const struct {
		struct bytes text;
		enum text_format format;
		size_t line, column;
		const char *pointer, *message; /* the message begins so */
	} cases[] = {
		{BYTES_OF(""), TEXT_GUESS, 1, 1, "", "the text is empty"},
		{BYTES_OF("# only this\n"), TEXT_GUESS, 1, 1, "", "the text is empty"},
		{BYTES_OF("a: x\0y\n"), TEXT_GUESS, 1, 5, "", "a NUL byte at offset 4"},
		{BYTES_OF("é: 1\nb: \xff\xfe\n"), TEXT_GUESS, 2, 4, "", "not valid UTF-8: byte 0xff at offset 9"},
		{BYTES_OF("a: 1\n---\nb: 2\n"), TEXT_GUESS, 2, 1, "", "more than one YAML document"},
		{BYTES_OF("a: 1\nb: 2\na: 3\n"), TEXT_GUESS, 3, 1, "/a", "duplicate key 'a', first at line 1 column 1"},
		{BYTES_OF("x:\n  - a: 1\n    \"a\": 2\n"), TEXT_GUESS, 3, 5, "/x/0/a", "duplicate key 'a', first at line 2 column 5"},
		{BYTES_OF("a:\n\tb: 1\n"), TEXT_GUESS, 2, 1, "", "not valid YAML"},
		{BYTES_OF("a: [1, 2\nb: 3\n"), TEXT_GUESS, 3, 1, "", "not valid YAML"},
		{BYTES_OF("do:\n  - a:\n      set: {x: 1}\n     then: end\n"), TEXT_GUESS, 4, 6, "", "not valid YAML"},
		{BYTES_OF("x: ${ {a: .b} }\n"), TEXT_GUESS, 1, 9, "", "not valid YAML"},
		{BYTES_OF("a: *nope\n"), TEXT_GUESS, 1, 4, "/a", "an alias without an anchor"},
		{BYTES_OF("a: &a [1, *a]\n"), TEXT_GUESS, 1, 11, "/a/1", "an alias that contains itself"},
		{BYTES_OF("? [1,2]\n: x\n"), TEXT_GUESS, 1, 3, "", "a key must be a plain text"},
		{BYTES_OF("a: &k b\n*k : c\n"), TEXT_GUESS, 2, 1, "", "an alias as a key is not supported"},
		{BYTES_OF("&k a: c\n"), TEXT_GUESS, 1, 4, "", "a key with an anchor or a tag is not supported"},
		{BYTES_OF("a: !foo x\n"), TEXT_GUESS, 1, 9, "/a", "this tag is not supported"},
		{BYTES_OF("a: !!binary eA==\n"), TEXT_GUESS, 1, 13, "/a", "this tag is not supported"},
		{BYTES_OF("a: !!int x\n"), TEXT_GUESS, 1, 10, "/a", "the tag asks for a number"},
		{BYTES_OF("a: !!int 1.5\n"), TEXT_GUESS, 1, 10, "/a", "the tag asks for a number"},
		{BYTES_OF("a: !!bool x\n"), TEXT_GUESS, 1, 11, "/a", "the tag asks for true or false"},
		{BYTES_OF("a: !!null x\n"), TEXT_GUESS, 1, 11, "/a", "the tag asks for null"},
		{BYTES_OF("a: !!map [x]\n"), TEXT_GUESS, 1, 10, "/a", "this tag is not supported on a list"},
		{BYTES_OF("a: !!seq {x: 1}\n"), TEXT_GUESS, 1, 10, "/a", "this tag is not supported on a mapping"},
		{BYTES_OF("a: \"\\0\"\n"), TEXT_GUESS, 1, 4, "/a", "a NUL character in a string"},
		{BYTES_OF("a: \"\\ud800\"\n"), TEXT_GUESS, 1, 5, "", "not valid YAML"},
		{BYTES_OF("- 9007199254740992\n"), TEXT_GUESS, 1, 3, "/0", "an integer beyond 2^53 - 1 would lose digits"},
		{BYTES_OF("- 0xffffffffffffffffff\n"), TEXT_GUESS, 1, 3, "/0", "an integer beyond 2^53 - 1 would lose digits"},
		{BYTES_OF("- 1e20\n"), TEXT_GUESS, 1, 3, "/0", "an integer beyond 2^53 - 1 would lose digits"},
		{BYTES_OF("{\"a\": [1, 9007199254740992.5]}"), TEXT_GUESS, 1, 11, "/a/1", "an integer beyond 2^53 - 1 would lose digits"},
		{BYTES_OF("- 1e999\n"), TEXT_GUESS, 1, 3, "/0", "a number that is out of range"},
		{BYTES_OF("{\"a\":1,\n \"a\":2}"), TEXT_GUESS, 2, 2, "", "not valid JSON: json-duplicate: "},
		{BYTES_OF("{\"é\":1,\n \"é\": nul}"), TEXT_GUESS, 2, 7, "", "not valid JSON: json-syntax: "},
		{BYTES_OF("{a: 1}"), TEXT_GUESS, 1, 2, "", "not valid JSON: json-syntax: "},
		{BYTES_OF("{\"a\":9007199254740993}"), TEXT_GUESS, 1, 6, "", "not valid JSON: json-precision: an integer beyond 2^53 - 1"},
		{BYTES_OF("\xef\xbb\xbf{}"), TEXT_JSON, 1, 1, "", "not valid JSON: json-bom"},
		{BYTES_OF("a: 1"), TEXT_JSON, 1, 1, "", "not valid JSON: json-syntax: "},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct fixture fixture;
		const struct problem *problem;

		load(&fixture, cases[i].text, cases[i].format);
		ck_assert_msg(fixture.json == NULL, "%zu: %s", i, (const char *)cases[i].text.data);
		problem = &fixture.problems.items[0];
		ck_assert_msg(strncmp(problem->message, cases[i].message, strlen(cases[i].message)) == 0, "%s: %s",
			      (const char *)cases[i].text.data, problem->message);
		ck_assert_msg(problem->line == cases[i].line && problem->column == cases[i].column, "%s: %zu:%zu",
			      (const char *)cases[i].text.data, problem->line, problem->column);
		ck_assert_str_eq(problem->pointer, cases[i].pointer);
		ck_assert(!problem->warning);
		unload(&fixture);
	}
}
END_TEST

/* Scalars of many escapes in a row come out whole and leave no memory behind: libfyaml 0.7.12's own fy_token_get_text() leaks
 * for single-quoted ones. The leak sanitizer is asked where the test is built with it, the allocator elsewhere. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

START_TEST(long_scalars_leave_nothing_behind)
{
	struct buffer text, value;
	struct fixture fixture;
	size_t used = 0;

	buffer_init(&text, DEFINITION_SOURCE_MAX);
	buffer_init(&value, DEFINITION_SOURCE_MAX);
	buffer_add_text(&text, "- '");
	for (int i = 0; i < 1000; i++) {
		buffer_add_text(&text, "''");
		buffer_add_text(&value, "'");
	}
	buffer_add_text(&text, "'\n- \"");
	for (int i = 0; i < 1000; i++)
		buffer_add_text(&text, "\\x27");
	buffer_add_text(&text, "\"\n");
	for (int round = 0; round < 50; round++) {
		load(&fixture, buffer_bytes(&text), TEXT_YAML);
		for (size_t i = 0; i < 2; i++)
			ck_assert(json_equal(json_at(fixture.json, i), json_text(&fixture.arena, buffer_text(&value))));
		unload(&fixture);
		if (round == 0)
			used = mallinfo2().uordblks;
	}
	if (__lsan_do_recoverable_leak_check)
		ck_assert_int_eq(__lsan_do_recoverable_leak_check(), 0);
	else
		ck_assert_uint_lt(mallinfo2().uordblks, used + 100000);
	buffer_close(&text);
	buffer_close(&value);
}
END_TEST

/* Several mistakes of one YAML text are told at once. */
START_TEST(mistakes_are_told_together)
{
	struct fixture fixture;

	load(&fixture, BYTES_OF("a: !foo x\nb: 9007199254740993\nb: 1\nc: \"\\0\"\nd: [\n"), TEXT_YAML);
	ck_assert_uint_eq(fixture.problems.errors, 4);
	ck_assert_str_eq(fixture.problems.items[1].pointer, "/b");
	ck_assert_str_eq(fixture.problems.items[2].pointer, "/c");
	ck_assert_ptr_nonnull(strstr(fixture.problems.items[3].message, "not valid YAML"));
	unload(&fixture);
}
END_TEST

/* Unquoted expressions and tabs are the usual traps of YAML: the hint says so. */
START_TEST(usual_traps_have_hints)
{
	struct fixture fixture;

	load(&fixture, BYTES_OF("x: ${ {a: .b} }\n"), TEXT_YAML);
	ck_assert_ptr_nonnull(strstr(fixture.problems.items[0].hint, "quotes around an expression"));
	unload(&fixture);
	load(&fixture, BYTES_OF("a:\n\tb: 1\n"), TEXT_YAML);
	ck_assert_ptr_nonnull(strstr(fixture.problems.items[0].hint, "spaces"));
	unload(&fixture);
}
END_TEST

/* Every value and key is found by its pointer, in YAML and in JSON; columns count characters. */
START_TEST(places_are_known)
{
	static const char yaml[] = "öö: ü # öö\n\"b/~\": {öö: \"ö\", b: *q}\nf: |\n  text\nj:\n- - 'x'\n  - ! y\nk:\n";
	static const char json[] = "{\t\"ö\" : [1, {\"ö~/\": null}],\n \"b\": \"\\u0061\",\n \"\\u0063\":-1}";
	static const struct {
		bool is_json, at_key;
		const char *pointer;
		size_t line, column; /* 0: unknown */
	} cases[] = {
		{false, false, "", 1, 1},
		{false, false, "/öö", 1, 5},
		{false, true, "/öö", 1, 1},
		{false, false, "/b~1~0", 2, 8},
		{false, true, "/b~1~0", 2, 1},
		{false, false, "/b~1~0/öö", 2, 13},
		{false, true, "/b~1~0/öö", 2, 9},
		{false, true, "/f", 3, 1},
		{false, false, "/f", 3, 1},
		{false, false, "/j/0", 6, 3},
		{false, false, "/j/0/0", 6, 5},
		{false, true, "/j/0/0", 6, 5},
		{false, false, "/j/0/1", 7, 7},
		{false, true, "/k", 8, 1},
		{false, false, "/nothing", 0, 0},
		{false, false, "/j/7", 0, 0},
		{false, false, "/j/x", 0, 0},
		{false, false, "/j/0/0/a", 0, 0},
		{true, false, "", 1, 1},
		{true, true, "/ö", 1, 3},
		{true, false, "/ö", 1, 9},
		{true, false, "/ö/0", 1, 10},
		{true, false, "/ö/1/ö~0~1", 1, 21},
		{true, true, "/ö/1/ö~0~1", 1, 14},
		{true, false, "/b", 2, 7},
		{true, true, "/c", 3, 2},
		{true, false, "/c", 3, 11},
	};
	struct fixture fixtures[2];
	char *text = memory_text(yaml);

	memcpy(strstr(text, "*q"), "12", 2);
	load(&fixtures[0], bytes_text(text), TEXT_YAML);
	load(&fixtures[1], bytes_text(json), TEXT_JSON);
	ck_assert_msg(fixtures[0].json != NULL, "%s", first_message(&fixtures[0]));
	ck_assert_msg(fixtures[1].json != NULL, "%s", first_message(&fixtures[1]));
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		size_t line, column;
		bool known = text_position(fixtures[cases[i].is_json].positions, cases[i].pointer, cases[i].at_key, &line, &column);

		ck_assert_msg(known == (cases[i].line > 0) && line == cases[i].line && column == cases[i].column, "%s: %zu:%zu", cases[i].pointer,
			      line, column);
	}
	unload(&fixtures[0]);
	unload(&fixtures[1]);
	free(text);
}
END_TEST

/* ---- Limits: each is reached, and the text just beneath it is still read */

static void add_many(struct buffer *text, size_t count, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void add_many(struct buffer *text, size_t count, const char *format, ...)
{
	char line[100];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	for (size_t i = 0; i < count; i++)
		buffer_add_text(text, line);
}

static void expect(const struct buffer *text, enum text_format format, const char *message)
{
	struct fixture fixture;

	load(&fixture, buffer_bytes(text), format);
	if (message)
		ck_assert_msg(strstr(first_message(&fixture), message) != NULL, "'%s', not '%s'", first_message(&fixture), message);
	else
		ck_assert_msg(fixture.json != NULL, "%s", first_message(&fixture));
	unload(&fixture);
}

/* A text of 1 MiB is read, one byte more is not. */
START_TEST(size_is_limited)
{
	struct buffer text;

	buffer_init(&text, 2 * DEFINITION_SOURCE_MAX);
	buffer_add_text(&text, "a: ");
	add_many(&text, DEFINITION_SOURCE_MAX - 3, "x");
	expect(&text, TEXT_YAML, NULL);
	buffer_add_char(&text, 'x');
	expect(&text, TEXT_YAML, "1048577 bytes, more than the limit of 1048576");
	buffer_close(&text);
}
END_TEST

/* 64 levels are read, 65 are not: flow and block YAML, JSON, and aliases that would nest so when written out. */
START_TEST(depth_is_limited)
{
	for (int extra = 0; extra < 2; extra++) {
		const char *message = extra ? "nested deeper than 64 levels" : NULL;
		struct buffer text;

		buffer_init(&text, DEFINITION_SOURCE_MAX);
		add_many(&text, (size_t)DEFINITION_DEPTH_MAX + (size_t)extra, "[");
		add_many(&text, (size_t)DEFINITION_DEPTH_MAX + (size_t)extra, "]");
		expect(&text, TEXT_YAML, message);
		expect(&text, TEXT_JSON, message);
		buffer_clear(&text);
		add_many(&text, (size_t)DEFINITION_DEPTH_MAX + (size_t)extra, "- ");
		buffer_add_text(&text, "x\n");
		expect(&text, TEXT_YAML, message);
		buffer_clear(&text);
		for (int i = 0; i < DEFINITION_DEPTH_MAX + extra; i++)
			buffer_printf(&text, "%*sa:\n", i, "");
		expect(&text, TEXT_YAML, message);
		buffer_clear(&text);
		buffer_add_text(&text, "- &a ");
		add_many(&text, 30, "[");
		add_many(&text, 30, "]");
		buffer_add_text(&text, "\n- ");
		add_many(&text, 33 + (size_t)extra, "[");
		buffer_add_text(&text, "*a");
		add_many(&text, 33 + (size_t)extra, "]");
		expect(&text, TEXT_YAML, message);
		buffer_close(&text);
	}
}
END_TEST

/* 100,000 values are read, one more is not, whether written, in JSON, or through aliases. */
START_TEST(values_are_limited)
{
	for (int extra = 0; extra < 2; extra++) {
		const char *message = extra ? "more than 100000 values" : NULL;
		struct buffer text;

		buffer_init(&text, DEFINITION_SOURCE_MAX);
		add_many(&text, (size_t)DEFINITION_NODES_MAX - 1 + (size_t)extra, "- x\n");
		expect(&text, TEXT_YAML, message);
		buffer_clear(&text);
		buffer_add_char(&text, '[');
		add_many(&text, (size_t)DEFINITION_NODES_MAX - 2 + (size_t)extra, "1,");
		buffer_add_text(&text, "1]");
		expect(&text, TEXT_JSON, message);
		buffer_clear(&text);
		buffer_add_text(&text, "- &a [x,x,x,x,x,x,x,x,x]\n"); /* ten each, and the list itself */
		add_many(&text, DEFINITION_NODES_MAX / 10 - 2, "- *a\n");
		add_many(&text, 9 + (size_t)extra, "- x\n");
		expect(&text, TEXT_YAML, message);
		buffer_close(&text);
	}
}
END_TEST

/* Aliases of a long text count as often as they stand there: 4 MiB in all are read, one byte more is not. */
START_TEST(text_of_aliases_is_limited)
{
	enum { ANCHOR_LEN = 512 * 1024 };

	for (int extra = 0; extra < 2; extra++) {
		struct buffer text;

		buffer_init(&text, DEFINITION_SOURCE_MAX);
		buffer_add_text(&text, "- &a {k: ");
		add_many(&text, ANCHOR_LEN - 1, "x");
		buffer_add_text(&text, "}\n");
		add_many(&text, YAML_TEXT_MAX / ANCHOR_LEN - 1, "- *a\n");
		if (extra)
			buffer_add_text(&text, "- x\n");
		expect(&text, TEXT_YAML, extra ? "more than 4194304 bytes of text" : NULL);
		buffer_close(&text);
	}
}
END_TEST

/* 1,000 anchors are read, one more is not. */
START_TEST(anchors_are_limited)
{
	struct buffer text;

	buffer_init(&text, DEFINITION_SOURCE_MAX);
	for (int i = 0; i < YAML_ANCHORS_MAX; i++)
		buffer_printf(&text, "- &a%d x\n", i);
	expect(&text, TEXT_YAML, NULL);
	buffer_add_text(&text, "- &more x\n");
	expect(&text, TEXT_YAML, "more than 1000 anchors");
	buffer_close(&text);
}
END_TEST

/* 1,000 brackets may open one after the other, in a text that says nothing with them; one more may not. Brackets further apart are not counted. */
START_TEST(brackets_are_limited)
{
	for (int extra = 0; extra < 2; extra++) {
		struct buffer text;

		buffer_init(&text, DEFINITION_SOURCE_MAX);
		buffer_add_text(&text, "- '");
		add_many(&text, YAML_BRACKETS_MAX + (size_t)extra, "[");
		buffer_add_text(&text, "'\n");
		expect(&text, TEXT_YAML, extra ? "more than 1000 brackets open one after the other (YAML_BRACKETS_MAX)" : NULL);
		buffer_close(&text);
		/* With as many bytes between two as still counts, and one more. */
		buffer_init(&text, DEFINITION_SOURCE_MAX);
		buffer_add_text(&text, "- '");
		for (int i = 0; i <= YAML_BRACKETS_MAX; i++) {
			buffer_add_char(&text, '{');
			add_many(&text, YAML_BRACKET_GAP_MAX + 1 - (size_t)extra, "x");
		}
		buffer_add_text(&text, "'\n");
		expect(&text, TEXT_YAML, extra ? "more than 1000 brackets open one after the other (YAML_BRACKETS_MAX)" : NULL);
		buffer_close(&text);
	}
}
END_TEST

/* A hundred problems are kept, the last says that there are more; all are counted. */
START_TEST(problems_are_limited)
{
	struct buffer text;
	struct fixture fixture;

	buffer_init(&text, DEFINITION_SOURCE_MAX);
	add_many(&text, 500, "- !foo x\n");
	load(&fixture, buffer_bytes(&text), TEXT_YAML);
	ck_assert_uint_eq(fixture.problems.errors, 500);
	ck_assert_uint_eq(fixture.problems.count, DEFINITION_PROBLEMS_MAX);
	ck_assert_str_eq(fixture.problems.items[98].pointer, "/98");
	ck_assert_str_eq(fixture.problems.items[99].message, "more than 99 problems: the rest is left out");
	unload(&fixture);
	buffer_close(&text);
}
END_TEST

/* Warnings never push an error out of the list. */
START_TEST(warnings_leave_room_for_errors)
{
	struct problems problems;

	problems_init(&problems);
	for (int i = 0; i < 1000; i++)
		problems_add(&problems, true, "", 0, 0, NULL, "warning");
	problems_add(&problems, false, "/x", 1, 2, NULL, "error");
	ck_assert_uint_eq(problems.errors, 1);
	ck_assert_str_eq(problems.items[problems.count - 1].message, "error");
	ck_assert_uint_lt(problems.count, DEFINITION_PROBLEMS_MAX);
	problems_close(&problems);
}
END_TEST

/* Problems print as JSON whatever bytes went into them; long pointers are cut between characters. */
START_TEST(problems_are_always_printable)
{
	struct problems problems;
	struct arena arena;
	struct buffer pointer;
	const struct json *list;

	problems_init(&problems);
	arena_init(&arena);
	buffer_init(&pointer, 10000);
	buffer_add_text(&pointer, "/a");
	add_many(&pointer, 1000, "ä");
	problems_add(&problems, false, buffer_text(&pointer), 3, 4, "hi\xffnt", "bad \xc3 byte%c", 0xe2);
	problems_add(&problems, true, "", 0, 0, NULL, "lint");
	list = problems_json(&problems, &arena);
	ck_assert_uint_eq(json_count(list), 2);
	ck_assert_str_eq(json_get_text(json_at(list, 0), "message"), "bad ? byte?");
	ck_assert_str_eq(json_get_text(json_at(list, 0), "hint"), "hi?nt");
	ck_assert_str_eq(json_get_text(json_at(list, 0), "severity"), "error");
	ck_assert_uint_lt(strlen(json_get_text(json_at(list, 0), "pointer")), 1010);
	ck_assert(json_get_number(json_at(list, 0), "line", 0) == 3 && json_get_number(json_at(list, 0), "column", 0) == 4);
	ck_assert_str_eq(json_get_text(json_at(list, 1), "severity"), "warning");
	ck_assert_ptr_null(json_get(json_at(list, 1), "line"));
	ck_assert_ptr_null(json_get(json_at(list, 1), "hint"));
	buffer_close(&pointer);
	arena_close(&arena);
	problems_close(&problems);
}
END_TEST

/* Hostile texts of up to 1 MiB end soon: no alias bomb, no quadratic key check. Bounds are loose: sanitizers and other work
 * slow the machine down; a quadratic check of 60,000 keys takes minutes. */
START_TEST(hostile_texts_end_soon)
{
	enum { SECONDS_MAX = 20 };
	struct buffer texts[13];
	static const char *const messages[] = {"more than 100000 values", "nested deeper", "nested deeper", NULL, NULL, "duplicate key 'a'", "nested deeper",
					       "too many blank lines", "too many blank lines", "too many blank lines", "too many blank lines", NULL, NULL};

	for (size_t i = 0; i < COUNT_OF(texts); i++)
		buffer_init(&texts[i], DEFINITION_SOURCE_MAX);
	buffer_add_text(&texts[0], "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
	for (int i = 1; i < 10; i++) {
		buffer_printf(&texts[0], "a%d: &a%d [", i, i);
		add_many(&texts[0], 9, "*a%d,", i - 1);
		buffer_printf(&texts[0], "*a%d]\n", i - 1);
	}
	add_many(&texts[1], 50000, "[");
	buffer_add_text(&texts[2], "a: ");
	add_many(&texts[2], 50000, "{");
	for (int i = 0; i < 60000; i++)
		buffer_printf(&texts[3], "k%d: v\n", i);
	for (unsigned i = 0; i < 60000; i++)
		buffer_printf(&texts[4], "k%u: v\n", (i * 48271u) % 60013u);
	add_many(&texts[5], 60000, "a: v\n");
	add_many(&texts[6], 500000, "[?");
	buffer_add_text(&texts[7], "a: |\n");
	add_many(&texts[7], 500000, " \n");
	buffer_add_text(&texts[8], "a: b");
	add_many(&texts[8], 500000, "\n");
	buffer_add_text(&texts[8], " c");
	buffer_add_text(&texts[9], "a: |\n");
	for (int i = 0; i < 400; i++) {
		add_many(&texts[9], 900, " \n");
		buffer_add_text(&texts[9], " x\n");
	}
	buffer_add_text(&texts[10], "a: |\n");
	add_many(&texts[10], 19000, "                                                  \n");
	/* Blank lines and brackets as somebody writes them are nothing special. */
	buffer_add_text(&texts[11], "a: |\n");
	for (int i = 0; i < 50000; i++)
		buffer_add_text(&texts[11], "  paragraph\n\n\n");
	add_many(&texts[11], 4000, "\n");
	buffer_add_text(&texts[12], "a:\n");
	add_many(&texts[12], 5000, "- [[[[a, b]]], 'a text [with [brackets']\n");
	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		clock_t start = clock();

		ck_assert(!texts[i].overflow);
		expect(&texts[i], TEXT_YAML, messages[i]);
		ck_assert_int_lt((clock() - start) / CLOCKS_PER_SEC, SECONDS_MAX);
		buffer_close(&texts[i]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("text");
	TCase *tests = tcase_create("text");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, scalars_follow_the_core_schema);
	tcase_add_test(tests, bad_texts_are_refused);
	tcase_add_test(tests, long_scalars_leave_nothing_behind);
	tcase_add_test(tests, mistakes_are_told_together);
	tcase_add_test(tests, usual_traps_have_hints);
	tcase_add_test(tests, places_are_known);
	tcase_add_test(tests, size_is_limited);
	tcase_add_test(tests, depth_is_limited);
	tcase_add_test(tests, values_are_limited);
	tcase_add_test(tests, text_of_aliases_is_limited);
	tcase_add_test(tests, anchors_are_limited);
	tcase_add_test(tests, brackets_are_limited);
	tcase_add_test(tests, problems_are_limited);
	tcase_add_test(tests, warnings_leave_room_for_errors);
	tcase_add_test(tests, problems_are_always_printable);
	tcase_add_test(tests, hostile_texts_end_soon);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
