/* Candidates: what each answer becomes, with exact checks and offsets; and the prompt. */
#include "activities/candidates.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

/* The section begins behind a line with a two-byte letter and one beyond the basic plane: 12 bytes, 8 code points, 9 units. */
#define DOCUMENT "Vor\xC3\xA4" "b \xF0\x9F\x98\x80\nOrrin was founded in 1931. It\xE2\x80\x99s in Brask.\nOrrin was founded in 1931.\nAfter."
enum { SECTION_START = 12, SECTION_END = 82 };

static const char schema_text[] =
	"{\"type\":\"object\",\"properties\":{\"facts\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"subject\":"
	"{\"type\":\"string\"},\"predicate\":{\"type\":\"string\"},\"object\":{\"type\":\"string\"},\"quote\":{\"type\":\"string\"}},"
	"\"required\":[\"subject\",\"predicate\",\"object\",\"quote\"],\"additionalProperties\":false}}},\"required\":[\"facts\"],"
	"\"additionalProperties\":false}";

static enum failure_class read_answer(struct arena *arena, struct bytes answer, const char *schema, struct json **facts, char detail[400])
{
	struct candidates_input input = {
		.answer = answer,
		.schema = schema == NULL ? NULL : json_parse(arena, bytes_text(schema), JSON_STRICT, NULL, NULL),
		.document = BYTES_OF(DOCUMENT),
		.section_start = SECTION_START,
		.section_end = SECTION_END,
		.document_digest = "sha256:dd",
		.section_digest = "sha256:5e",
	};

	ck_assert(schema == NULL || input.schema != NULL);
	return candidates_read(arena, &input, facts, detail);
}

struct row {
	const char *answer, *facts; /* facts: canonical JSON */
};

static void run_rows(const struct row *rows, size_t count, const char *schema)
{
	for (size_t i = 0; i < count; i++) {
		struct arena arena;
		struct json *facts, *expected;
		struct error error = {0};
		char detail[400];

		arena_init(&arena);
		ck_assert_msg(read_answer(&arena, bytes_text(rows[i].answer), schema, &facts, detail) == FAILURE_NONE, "row %zu: %s", i, detail);
		expected = json_parse(&arena, bytes_text(rows[i].facts), JSON_STRICT, NULL, &error);
		ck_assert_msg(expected != NULL, "row %zu: %s", i, error.message);
		ck_assert_msg(json_equal(facts, expected), "row %zu: %s", i, (const char *)json_print_arena(facts, &arena).data);
		ck_assert_str_eq(detail, "");
		arena_close(&arena);
	}
}

#define ITEM(object, quote) "{\"subject\":\"Orrin\",\"predicate\":\"founded_in\",\"object\":\"" object "\",\"quote\":\"" quote "\"}"
#define VALUE(object) "{\"subject\":\"Orrin\",\"predicate\":\"founded_in\",\"object\":\"" object "\"}"
#define PASSED(name, detail) "{\"name\":\"" name "\",\"version\":\"1\",\"result\":\"PASSED\",\"detail\":\"" detail "\"}"
#define FAILED(name, detail) "{\"name\":\"" name "\",\"version\":\"1\",\"result\":\"FAILED\",\"detail\":\"" detail "\"}"
#define SCHEMA_PASSED "{\"name\":\"schema\",\"version\":\"1\",\"result\":\"PASSED\"}"
#define FACT(value, quote, grounding, accepted, checks)                                                                           \
	"{\"value\":" value ",\"quote\":\"" quote "\",\"grounding\":" grounding ",\"accepted\":" accepted ",\"checks\":[" checks \
	"],\"section\":{\"digest\":\"sha256:5e\",\"bytes\":[12,82]},\"document\":\"sha256:dd\"}"
#define UNGROUNDED "{\"grade\":\"ungrounded\",\"score\":0}"
#define FIRST_PLACE "{\"grade\":\"exact\",\"score\":1,\"bytes\":[12,38],\"codePoints\":[8,34],\"utf16\":[9,35]}"
#define SECOND_PLACE "{\"grade\":\"exact\",\"score\":1,\"bytes\":[56,82],\"codePoints\":[50,76],\"utf16\":[51,77]}"

/* Accepted is what matches the schema and stands in the section; offsets are into the document. */
START_TEST(grounds_facts_in_the_document)
{
	static const struct row rows[] = {
		{"{\"facts\":[]}", "[]"},
		{"{\"facts\":[" ITEM("1931", "Orrin was founded in 1931.") "]}",
		 "[" FACT(VALUE("1931"), "Orrin was founded in 1931.", FIRST_PLACE, "true", SCHEMA_PASSED "," PASSED("quote-in-source", "exact")) "]"},
		{" \n{\"facts\":[" ITEM("Brask", "It's in Brask.") "]}\n",
		 "[" FACT(VALUE("Brask"), "It's in Brask.",
			  "{\"grade\":\"normalised\",\"score\":1,\"bytes\":[39,55],\"codePoints\":[35,49],\"utf16\":[36,50]}", "true",
			  SCHEMA_PASSED "," PASSED("quote-in-source", "normalised")) "]"},
		/* What stands in the document, but outside of the section, is not there. */
		{"{\"facts\":[" ITEM("x", "After.") "]}",
		 "[" FACT(VALUE("x"), "After.", UNGROUNDED, "false",
			  SCHEMA_PASSED "," FAILED("quote-in-source", "the quote does not stand in the section")) "]"},
		{"{\"facts\":[" ITEM("x", "") "]}",
		 "[" FACT(VALUE("x"), "", UNGROUNDED, "false", SCHEMA_PASSED "," FAILED("quote-in-source", "the quote is empty")) "]"},
		/* The same words for three facts: each gets a place of its own while there are any, then the first. */
		{"{\"facts\":[" ITEM("a", "Orrin was founded in 1931.") "," ITEM("b", "Orrin was founded in 1931.") "," ITEM(
			 "c", "Orrin was founded in 1931.") "," ITEM("d", "Orrin was founded in 1931.") "]}",
		 "[" FACT(VALUE("a"), "Orrin was founded in 1931.", FIRST_PLACE, "true", SCHEMA_PASSED "," PASSED("quote-in-source", "exact")) ","
		     FACT(VALUE("b"), "Orrin was founded in 1931.", SECOND_PLACE, "true", SCHEMA_PASSED "," PASSED("quote-in-source", "exact")) ","
		     FACT(VALUE("c"), "Orrin was founded in 1931.", FIRST_PLACE, "true", SCHEMA_PASSED "," PASSED("quote-in-source", "exact")) ","
		     FACT(VALUE("d"), "Orrin was founded in 1931.", FIRST_PLACE, "true", SCHEMA_PASSED "," PASSED("quote-in-source", "exact")) "]"},
		/* An equal item is kept, rejected, and takes no place. */
		{"{\"facts\":[" ITEM("a", "Orrin was founded in 1931.") "," ITEM("a", "Orrin was founded in 1931.") "]}",
		 "[" FACT(VALUE("a"), "Orrin was founded in 1931.", FIRST_PLACE, "true", SCHEMA_PASSED "," PASSED("quote-in-source", "exact")) ","
		     FACT(VALUE("a"), "Orrin was founded in 1931.", FIRST_PLACE, "false",
			  SCHEMA_PASSED "," PASSED("quote-in-source", "exact") "," FAILED("duplicate", "an earlier fact of this answer is equal")) "]"},
	};

	run_rows(rows, COUNT_OF(rows), schema_text);
}
END_TEST

/* One bad item is a rejected candidate, and its neighbours are untouched. */
START_TEST(rejects_single_items)
{
	static const struct row rows[] = {
		{"{\"facts\":[{\"subject\":\"Orrin\",\"predicate\":7,\"object\":\"b\",\"quote\":\"Orrin\"}," ITEM("1931", "Orrin was founded in 1931.") "]}",
		 "[" FACT("{\"subject\":\"Orrin\",\"predicate\":7,\"object\":\"b\"}", "Orrin",
			  "{\"grade\":\"exact\",\"score\":1,\"bytes\":[12,17],\"codePoints\":[8,13],\"utf16\":[9,14]}", "false",
			  FAILED("schema", "/predicate: expected string, got number") "," PASSED("quote-in-source", "exact")) ","
		     FACT(VALUE("1931"), "Orrin was founded in 1931.", FIRST_PLACE, "true", SCHEMA_PASSED "," PASSED("quote-in-source", "exact")) "]"},
		{"{\"facts\":[\"Orrin\"]}",
		 "[" FACT("{\"item\":\"Orrin\"}", "", UNGROUNDED, "false",
			  FAILED("schema", ": expected object, got string") "," FAILED("quote-in-source", "the fact has no text `quote`")) "]"},
		{"{\"facts\":[{\"subject\":\"Orrin\",\"predicate\":\"p\",\"object\":\"o\",\"quote\":[1]}]}",
		 "[" FACT("{\"subject\":\"Orrin\",\"predicate\":\"p\",\"object\":\"o\",\"quote\":[1]}", "", UNGROUNDED, "false",
			  FAILED("schema", "/quote: expected string, got array") "," FAILED("quote-in-source", "the fact has no text `quote`")) "]"},
		{"{\"facts\":[{\"quote\":\"Orrin\"}]}",
		 "[" FACT("{}", "Orrin", "{\"grade\":\"exact\",\"score\":1,\"bytes\":[12,17],\"codePoints\":[8,13],\"utf16\":[9,14]}", "false",
			  FAILED("schema", ": required, but missing: subject") "," PASSED("quote-in-source", "exact")) "]"},
	};

	run_rows(rows, COUNT_OF(rows), schema_text);
}
END_TEST

/* A fence around the answer is taken off, and each fact says so. Without a schema only the quote counts. */
START_TEST(takes_fences_off)
{
	static const struct row rows[] = {
		{"```json\n{\"facts\":[{\"quote\":\"Orrin was founded in 1931.\"}]}\n```\n",
		 "[" FACT("{}", "Orrin was founded in 1931.", FIRST_PLACE, "true",
			  SCHEMA_PASSED "," PASSED("quote-in-source", "exact") "," PASSED("unfenced", "a code fence around the answer was taken off")) "]"},
		{"\n```\n{\"facts\":[]}```", "[]"},
		{"{\"facts\":[{\"quote\":\"Orrin was founded in 1931.\"}]}",
		 "[" FACT("{}", "Orrin was founded in 1931.", FIRST_PLACE, "true", SCHEMA_PASSED "," PASSED("quote-in-source", "exact")) "]"},
	};

	run_rows(rows, COUNT_OF(rows), NULL);
	run_rows(rows, COUNT_OF(rows), "{\"type\":\"object\"}");
}
END_TEST

/* An answer that cannot be used yields no candidate, and the detail says why and where. */
START_TEST(refuses_unusable_answers)
{
	static const struct {
		const char *answer, *detail;
	} rows[] = {
		{"", "json-syntax at line 1 column 1"},
		{"I found no facts.", "json-syntax at line 1 column 1"},
		{"Here you are: {\"facts\":[]}", "json-syntax at line 1 column 1"},
		{"{\"facts\":[]} Anything else?", "json-syntax at line 1 column 14"},
		{"{\"facts\":[" ITEM("1931", "Orrin") ",{\"subject\":\"Or", "json-syntax at line 1"},
		{"```json\n{\"facts\":[]}\n``` Done.", "json-syntax at line 1 column 1"},
		{"```json {\"facts\":[]}```", "json-syntax at line 1 column 1"},
		{"```", "json-syntax at line 1 column 1"},
		{"{\"facts\":[],\"facts\":[]}", "json-duplicate at line 1"},
		{"{\"facts\":[{\"n\":9007199254740993}]}", "json-precision at line 1"},
		{"{\"facts\":[{\"n\":1e20}]}", ": json-precision: an integer"},
		{"{\"facts\":[\"\\u0000\"]}", "json-nul at line 1"},
		{"{\"facts\":[\"\xC3(\"]}", "json-utf8 at line 1"},
		{"[]", ": expected an object with the array facts, got array"},
		{"null", ": expected an object with the array facts, got null"},
		{"{}", "/facts: expected array, got nothing"},
		{"{\"facts\":{\"subject\":\"a\"}}", "/facts: expected array, got object"},
		{"{\"facts\":[],\"comment\":\"none\"}", "/comment: this member is not in the schema"},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena;
		struct json *facts;
		char detail[400];

		arena_init(&arena);
		ck_assert_msg(read_answer(&arena, bytes_text(rows[i].answer), schema_text, &facts, detail) == FAILURE_SCHEMA_INVALID, "row %zu", i);
		ck_assert_msg(strncmp(detail, rows[i].detail, strlen(rows[i].detail)) == 0, "row %zu: %s", i, detail);
		ck_assert_ptr_null(facts);
		arena_close(&arena);
	}
}
END_TEST

/* What the schema says of the array as a whole still counts. */
START_TEST(keeps_to_the_outer_schema)
{
	struct arena arena;
	struct json *facts;
	char detail[400];

	arena_init(&arena);
	ck_assert_int_eq(read_answer(&arena, BYTES_OF("{\"facts\":[1,2]}"),
				     "{\"properties\":{\"facts\":{\"type\":\"array\",\"maxItems\":1,\"items\":{\"type\":\"string\"}}}}", &facts, detail),
			 FAILURE_SCHEMA_INVALID);
	ck_assert_str_eq(detail, "/facts: expected a number of items of at most 1, got 2");
	arena_close(&arena);
}
END_TEST

static struct bytes make_answer(struct arena *arena, size_t count, const char *quote)
{
	struct json *answer = json_object(arena), *facts = json_array(arena);

	for (size_t i = 0; i < count; i++) {
		struct json *fact = json_object(arena);

		json_set_number(arena, fact, "n", (double)i);
		json_set_text(arena, fact, "quote", quote);
		json_add(arena, facts, fact);
	}
	json_set(arena, answer, "facts", facts);
	return json_print_arena(answer, arena);
}

/* CANDIDATES_MAX facts are read; one more makes the answer unusable, and the limit is named. */
START_TEST(limits_candidates)
{
	struct arena arena;
	struct json *facts;
	char detail[400];

	arena_init(&arena);
	ck_assert_int_eq(read_answer(&arena, make_answer(&arena, CANDIDATES_MAX, "Orrin"), NULL, &facts, detail), FAILURE_NONE);
	ck_assert_uint_eq(json_count(facts), CANDIDATES_MAX);
	ck_assert_int_eq(read_answer(&arena, make_answer(&arena, CANDIDATES_MAX + 1, "Orrin"), NULL, &facts, detail), FAILURE_SCHEMA_INVALID);
	ck_assert_str_eq(detail, "/facts: 1001 facts, more than CANDIDATES_MAX 1000");
	arena_close(&arena);
}
END_TEST

/* An answer of CANDIDATES_DEPTH_MAX levels is read; one level more makes it unusable, and the limit is named. */
START_TEST(limits_depth)
{
	struct arena arena;
	struct json *facts;
	char detail[400];

	arena_init(&arena);
	for (int extra = 0; extra < 2; extra++) {
		struct json *answer = json_object(&arena), *list = json_array(&arena), *fact = json_object(&arena), *deep = json_array(&arena);

		for (int level = 4; level < CANDIDATES_DEPTH_MAX + extra; level++) { /* the answer, its list, the fact and this are four */
			struct json *outer = json_array(&arena);

			json_add(&arena, outer, deep);
			deep = outer;
		}
		json_set_text(&arena, fact, "quote", "Orrin");
		json_set(&arena, fact, "deep", deep);
		json_add(&arena, list, fact);
		json_set(&arena, answer, "facts", list);
		ck_assert_int_eq(read_answer(&arena, json_print_arena(answer, &arena), NULL, &facts, detail),
				 extra ? FAILURE_SCHEMA_INVALID : FAILURE_NONE);
	}
	ck_assert_str_eq(detail, ": the answer nests deeper than CANDIDATES_DEPTH_MAX 64 levels");
	arena_close(&arena);
}
END_TEST

/* A quote of QUOTE_LEN_MAX bytes is looked for; a longer one is rejected, and the limit is named. */
START_TEST(limits_quotes)
{
	struct arena arena;
	struct json *facts;
	char quote[QUOTE_LEN_MAX + 2], detail[400];

	arena_init(&arena);
	memset(quote, 'a', sizeof(quote));
	quote[QUOTE_LEN_MAX] = '\0';
	ck_assert_int_eq(read_answer(&arena, make_answer(&arena, 1, quote), NULL, &facts, detail), FAILURE_NONE);
	ck_assert_str_eq(json_get_text(json_pointer_get(facts, "/0/checks/1"), "detail"), "the quote does not stand in the section");
	quote[QUOTE_LEN_MAX] = 'a';
	quote[QUOTE_LEN_MAX + 1] = '\0';
	ck_assert_int_eq(read_answer(&arena, make_answer(&arena, 1, quote), NULL, &facts, detail), FAILURE_NONE);
	ck_assert_str_eq(json_get_text(json_pointer_get(facts, "/0/checks/1"), "detail"), "the quote has 16385 bytes, more than QUOTE_LEN_MAX 16384");
	ck_assert(!json_get_boolean(json_at(facts, 0), "accepted", true));
	arena_close(&arena);
}
END_TEST

/* A detail longer than its field is cut between characters. */
START_TEST(cuts_long_details)
{
	struct arena arena;
	struct json *facts, *object;
	char name[1001], detail[400];

	arena_init(&arena);
	for (size_t i = 0; i + 2 < sizeof(name); i += 2)
		memcpy(name + i, "\xC3\xA4", 3);
	object = json_object(&arena);
	json_set(&arena, object, "facts", json_array(&arena));
	json_set(&arena, object, name, json_null(&arena));
	ck_assert_int_eq(read_answer(&arena, json_print_arena(object, &arena), schema_text, &facts, detail), FAILURE_SCHEMA_INVALID);
	ck_assert_uint_lt(strlen(detail), sizeof(detail));
	ck_assert(utf8_valid(bytes_text(detail), NULL));
	arena_close(&arena);
}
END_TEST

/* The built-in prompt names its task and the schema in the system message, and holds the section between its two lines. */
START_TEST(builds_the_prompt)
{
	struct arena arena;
	struct json *schema, *messages;
	const char *system, *user;

	arena_init(&arena);
	schema = json_parse(&arena, bytes_text(schema_text), JSON_STRICT, NULL, NULL);
	messages = extraction_messages(&arena, (struct bytes){NULL, 0}, BYTES_OF("# A\nText {{schema}} {{section}}\n[system]\nmore"), schema);
	ck_assert_uint_eq(json_count(messages), 2);
	ck_assert_str_eq(json_get_text(json_at(messages, 0), "role"), "system");
	ck_assert_str_eq(json_get_text(json_at(messages, 1), "role"), "user");
	system = json_get_text(json_at(messages, 0), "content");
	ck_assert_ptr_eq(strstr(system, "Extract"), system);
	ck_assert_ptr_nonnull(strstr(system, (const char *)json_print_arena(schema, &arena).data));
	ck_assert_ptr_null(strstr(system, "{{"));
	user = json_get_text(json_at(messages, 1), "content");
	ck_assert_str_eq(user, "Extract the facts of this section.\n\n<section>\n# A\nText {{schema}} {{section}}\n[system]\nmore\n</section>");
	ck_assert_ptr_nonnull(memmem(extraction_prompt_template().data, extraction_prompt_template().len, "{{section}}", 11));
	ck_assert_str_eq(extraction_prompt_name, "reprise/extract-facts@1");
	arena_close(&arena);
}
END_TEST

/* A prompt of up to PROMPT_LEN_MAX bytes is built; for a longer one there is none. */
START_TEST(limits_prompts)
{
	struct arena arena;
	uint8_t *section = memory_alloc(PROMPT_LEN_MAX + 1);

	arena_init(&arena);
	memset(section, 'a', PROMPT_LEN_MAX + 1);
	ck_assert_ptr_nonnull(extraction_messages(&arena, BYTES_OF("{{section}}"), (struct bytes){section, PROMPT_LEN_MAX}, NULL));
	ck_assert_ptr_null(extraction_messages(&arena, BYTES_OF("{{section}}"), (struct bytes){section, PROMPT_LEN_MAX + 1}, NULL));
	ck_assert_ptr_null(extraction_messages(&arena, BYTES_OF("{{section}}{{section}}\n[user]\n{{schema}}"),
					       (struct bytes){section, PROMPT_LEN_MAX}, NULL));
	arena_close(&arena);
	free(section);
}
END_TEST

/* A template of the user's own: role lines make messages, the rest is the user's; a section that it forgets is added. */
START_TEST(fills_templates)
{
	static const struct {
		const char *template, *messages;
	} rows[] = {
		{"Read {{section}} by {{schema}}, {{other}} {{", "[{\"role\":\"user\",\"content\":\"Read S by true, {{other}} {{\"}]"},
		{"[system]\na\n\n[user]\nb {{section}}{{section}}\n", "[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b SS\"}]"},
		{"a {{section}}\n [user]\n[user]\n[system]\nb",
		 "[{\"role\":\"user\",\"content\":\"a S\\n [user]\"},{\"role\":\"system\",\"content\":\"b\"}]"},
		{"[system]\nfacts, please",
		 "[{\"role\":\"system\",\"content\":\"facts, please\"},{\"role\":\"user\",\"content\":\"<section>\\nS\\n</section>\"}]"},
		{"", "[{\"role\":\"user\",\"content\":\"<section>\\nS\\n</section>\"}]"},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena;
		struct json *messages;

		arena_init(&arena);
		messages = extraction_messages(&arena, bytes_text(rows[i].template), BYTES_OF("S"), json_boolean(&arena, true));
		ck_assert_msg(json_equal(messages, json_parse(&arena, bytes_text(rows[i].messages), JSON_STRICT, NULL, NULL)), "row %zu: %s", i,
			      (const char *)json_print_arena(messages, &arena).data);
		arena_close(&arena);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("candidates");
	TCase *tests = tcase_create("candidates");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, grounds_facts_in_the_document);
	tcase_add_test(tests, rejects_single_items);
	tcase_add_test(tests, takes_fences_off);
	tcase_add_test(tests, refuses_unusable_answers);
	tcase_add_test(tests, keeps_to_the_outer_schema);
	tcase_add_test(tests, limits_candidates);
	tcase_add_test(tests, limits_depth);
	tcase_add_test(tests, limits_quotes);
	tcase_add_test(tests, cuts_long_details);
	tcase_add_test(tests, builds_the_prompt);
	tcase_add_test(tests, limits_prompts);
	tcase_add_test(tests, fills_templates);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
