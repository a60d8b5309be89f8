/* Requests, answers and frames of expressions that need jq; the hints that come with what does not compile. */
#include "tests/unit/base/suite.h"

#include "workflow/base/check.h"
#include "workflow/language/definition.h"
#include "workflow/language/evaluation.h"

static const char *kept_of(struct arena *arena, struct bytes answer)
{
	struct buffer kept;

	buffer_init(&kept, EVALUATION_ANSWER_MAX);
	evaluation_keep(answer, &kept);
	ck_assert(!kept.overflow);
	struct error error;
	struct json *json = json_parse(arena, buffer_bytes(&kept), JSON_STORED, NULL, &error);
	ck_assert_msg(json != NULL, "%s", error.message);
	ck_assert(json_is(json, JSON_STRING) || (json_is(json, JSON_ARRAY) && json_count(json) == 1));
	const char *text = arena_text_len(arena, buffer_text(&kept), kept.len);
	buffer_close(&kept);
	return text;
}

/* Whatever a helper sends, what is kept is JSON: one value in an array, or the reason why there is none. */
START_TEST(answers_are_kept)
{
	static const struct {
		const char *answer, *kept;
	} cases[] = {
		{"V[5]", "[5]"}, {"V[{\"b\":1,\"a\":2}]", "[{\"a\":2,\"b\":1}]"}, {"V[100000000000000000000]", "[100000000000000000000]"}, {"V[null]", "[null]"},
		{"Fno\nway", "\"no\\nway\""}, {"F", "\"\""}, {"", "\"reprise-jq sent what is no answer\""}, {"X", "\"reprise-jq sent what is no answer\""},
		{"V5", "\"reprise-jq sent what is no answer\""}, {"V[1,2]", "\"reprise-jq sent what is no answer\""}, {"F\xff\xc3", "\"??\""},
	};
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		ck_assert_str_eq(kept_of(&arena, bytes_text(cases[i].answer)), cases[i].kept);
	ck_assert_str_eq(kept_of(&arena, (struct bytes){(const uint8_t *)"Fa\0b", 4}), "\"a?b\"");
	/* A long reason is cut, and not within a character. */
	char *reason = arena_alloc(&arena, 600);
	for (size_t i = 0; i < 599; i++)
		reason[i] = i == 0 ? 'F' : i % 2 == 0 ? '\xa9' : '\xc3';
	reason[599] = '\0';
	ck_assert_uint_eq(strlen(kept_of(&arena, bytes_text(reason))), 402);
	reason[1] = 'x';
	for (size_t i = 2; i < 598; i++)
		reason[i] = i % 2 == 0 ? '\xc3' : '\xa9';
	reason[598] = '\0';
	const char *kept = kept_of(&arena, bytes_text(reason));
	ck_assert_uint_eq(strlen(kept), 401);
	ck_assert_ptr_null(strchr(kept, '?'));
	ck_assert_ptr_nonnull(strstr(kept_of(&arena, bytes_text("V[")), "cannot be kept"));
	ck_assert_ptr_nonnull(strstr(kept_of(&arena, bytes_text("V[\"\\u0000\"]")), "cannot be kept"));
	arena_close(&arena);
}
END_TEST

/* A result may nest so deep that it can still be journaled within arrays, and no deeper; and have EVALUATION_RESULT_MAX bytes. */
START_TEST(results_have_limits)
{
	struct arena arena;
	struct buffer text;

	arena_init(&arena);
	buffer_init(&text, EVALUATION_ANSWER_MAX);
	for (int depth = JSON_DEPTH_MAX - 2; depth <= JSON_DEPTH_MAX; depth++) {
		buffer_clear(&text);
		buffer_add_text(&text, "V[");
		for (int i = 0; i < depth; i++)
			buffer_add_char(&text, '[');
		for (int i = 0; i < depth; i++)
			buffer_add_char(&text, ']');
		buffer_add_char(&text, ']');
		const char *kept = kept_of(&arena, buffer_bytes(&text));
		ck_assert_msg((kept[0] == '[') == (depth == JSON_DEPTH_MAX - 2), "%d: %.80s", depth, kept);
	}
	for (int more = 0; more < 2; more++) {
		buffer_clear(&text);
		buffer_add_text(&text, "V[\"");
		for (int i = 0; i < EVALUATION_RESULT_MAX - 4 + more; i++)
			buffer_add_char(&text, 'x');
		buffer_add_text(&text, "\"]");
		const char *kept = kept_of(&arena, buffer_bytes(&text));
		ck_assert_int_eq(kept[0], more ? '"' : '[');
		ck_assert(!more || strstr(kept, "EVALUATION_RESULT_MAX"));
	}
	buffer_close(&text);
	arena_close(&arena);
}
END_TEST

/* A request holds names, expression and arguments, in canonical form, so that equal ones have equal digests; and has a limit. */
START_TEST(requests_are_made)
{
	static const char expected[] = "Ea,b\0.x + $a\0[{\"x\":1},true,null]";
	struct arena arena;
	struct error error;
	struct evaluation evaluation;

	arena_init(&arena);
	struct json *input = json_object(&arena);
	json_set_number(&arena, input, "x", 1);
	const struct json *values[] = {json_boolean(&arena, true), json_null(&arena)};
	ck_assert_int_eq(evaluation_request(&arena, ".x + $a", input, (const char *const[]){"a", "b"}, values, 2, &evaluation, &error), 0);
	ck_assert(bytes_equal(evaluation.request, (struct bytes){(const uint8_t *)expected, sizeof expected - 1}));
	char *large = memory_alloc(EVALUATION_REQUEST_MAX + 1);
	memset(large, 'x', EVALUATION_REQUEST_MAX);
	large[EVALUATION_REQUEST_MAX] = 0;
	ck_assert_int_eq(evaluation_request(&arena, ".", json_text(&arena, large), NULL, NULL, 0, &evaluation, &error), ERR_TOO_LARGE);
	ck_assert_ptr_nonnull(strstr(error.message, "EVALUATION_REQUEST_MAX"));
	free(large);
	arena_close(&arena);
}
END_TEST

/* Frames are read in whatever pieces they come; one that says it is too large is refused before it is there. */
START_TEST(frames_come_in_pieces)
{
	struct buffer out, in;
	struct bytes payload;

	buffer_init(&out, 1000);
	buffer_init(&in, 1000);
	evaluation_add_frame(&out, BYTES_OF("hello"));
	evaluation_add_frame(&out, BYTES_OF(""));
	for (size_t i = 0; i < 9; i++) {
		ck_assert_int_eq(evaluation_read_frame(&in, 100, &payload), FRAME_PARTIAL);
		buffer_add(&in, out.data + i, 1);
	}
	ck_assert_int_eq(evaluation_read_frame(&in, 100, &payload), FRAME_WHOLE);
	ck_assert(bytes_equal_text(payload, "hello"));
	ck_assert_int_eq(evaluation_read_frame(&in, 4, &payload), FRAME_TOO_LARGE);
	buffer_remove_front(&in, 9);
	buffer_add(&in, out.data + 9, 4);
	ck_assert_int_eq(evaluation_read_frame(&in, 100, &payload), FRAME_WHOLE);
	ck_assert_uint_eq(payload.len, 0);
	buffer_close(&out);
	buffer_close(&in);
}
END_TEST

static struct definition *load(const char *expressions, struct problems *problems)
{
	struct arena arena;

	arena_init(&arena);
	problems_init(problems);
	struct definition *definition = definition_load(
		bytes_text(arena_printf(&arena, "document: {dsl: '1.0.3', namespace: t, name: n, version: '1.0.0'}\ndo:\n  - a: {set: {x: [%s]}}\n", expressions)), TEXT_YAML, problems);
	ck_assert_ptr_nonnull(definition);
	arena_close(&arena);
	return definition;
}

/* Batches hold all expressions in order, as many as are asked for, and no more bytes than one program should have. */
START_TEST(batches_hold_all)
{
	struct problems problems;
	struct buffer list, request;
	size_t next = 0, batch[EVALUATION_BATCH_MAX], seen = 0, batches = 0, count;

	buffer_init(&list, DEFINITION_SOURCE_MAX);
	for (int i = 0; i < 150; i++)
		buffer_printf(&list, "%s'${ .a + %d }'", i > 0 ? "," : "", i);
	for (int i = 0; i < 8; i++) {
		buffer_add_text(&list, ",'${ 1");
		for (int k = 0; k < 30000; k++)
			buffer_add_text(&list, "+1");
		buffer_add_text(&list, " }'");
	}
	struct definition *definition = load(buffer_text(&list), &problems);
	ck_assert_uint_eq(definition->expression_count, 158);
	for (;;) {
		buffer_init(&request, EVALUATION_REQUEST_MAX);
		count = evaluation_next_batch(definition, &next, 50, batch, &request);
		if (count == 0)
			break;
		ck_assert_uint_le(count, 50);
		ck_assert_uint_le(request.len, EVALUATION_BATCH_BYTES_MAX + 100);
		ck_assert_int_eq(request.data[0], EVALUATION_COMPILE);
		for (size_t i = 0; i < count; i++)
			ck_assert_uint_eq(batch[i], seen++);
		batches++;
		buffer_close(&request);
	}
	buffer_close(&request);
	ck_assert_uint_eq(seen, 158);
	ck_assert_uint_ge(batches, 5);
	definition_free(definition);
	problems_close(&problems);
	buffer_close(&list);
}
END_TEST

/* What does not compile is told with its place and, where the jq of the author's machine is newer, what to write instead. */
START_TEST(problems_have_places_and_hints)
{
	static const struct {
		const char *expression, *message, *hint;
	} cases[] = {
		{".a | pick(.b)", "pick/1 is not defined", "pick/1 needs jq 1.7"},
		{"if .a then 1 end", "syntax error, unexpected end", "`if` without `else` needs jq 1.7"},
		{".a | .b.[0]", "syntax error, unexpected '['", "write `.a[0]`"},
		{".a | nope", "nope/0 is not defined", NULL},
		{".a | nope", "it is not defined", NULL},
		{"if .a then 1 else 2", "syntax error, unexpected end", NULL},
		{".elsewhere | if . then 1 end", "syntax error, unexpected end", "`if` without `else` needs jq 1.7"},
		{".gif + .if_ + .9if", "syntax error, unexpected field", NULL},
		{".[0] + .a.[1]", "syntax error, unexpected [", "write `.a[0]`"},
		{".a[0].[1]", "syntax error, unexpected [", "write `.a[0]`"},
		{".[0] +", "syntax error, unexpected end", NULL},
		{".a | @nope", "nope is not a valid format", NULL},
		{".a + ${b}", "syntax error", "must be the whole text"},
		{".a | @base32d", "base32d is not a valid format", "jq 1.7"},
	};
	struct problems problems;
	struct arena arena;
	struct error error;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct definition *definition = load(arena_printf(&arena, "1, '${ %s }'", cases[i].expression), &problems);
		const size_t batch[] = {0};
		ck_assert_int_eq(evaluation_add_problems(definition, batch, 1, bytes_text(arena_printf(&arena, "P[{\"index\":0,\"line\":1,\"message\":\"%s\"}]", cases[i].message)),
							 &problems, &error), 0);
		ck_assert_uint_eq(problems.errors, 1);
		const struct problem *problem = &problems.items[problems.count - 1];
		ck_assert_str_eq(problem->pointer, "/do/0/a/set/x/1");
		ck_assert_uint_eq(problem->line, 3);
		ck_assert_uint_eq(problem->column, 22);
		ck_assert_ptr_nonnull(strstr(problem->message, cases[i].message));
		ck_assert_msg(cases[i].hint ? problem->hint && strstr(problem->hint, cases[i].hint) : !problem->hint, "%s: %s", cases[i].expression, problem->hint ? problem->hint : "-");
		static const char *const bad[] = {"P{}", "Px", "", "P[{\"index\":1,\"line\":1,\"message\":\"\"}]", "P[{\"index\":0,\"line\":-1,\"message\":\"\"}]", "V[1]",
			"P[{\"index\":-1,\"line\":1,\"message\":\"\"}]", "P[{\"index\":0,\"line\":1e9,\"message\":\"\"}]", "P[{\"index\":0,\"line\":1}]"};
		for (size_t k = 0; k < COUNT_OF(bad); k++)
			ck_assert_int_eq(evaluation_add_problems(definition, batch, 1, bytes_text(bad[k]), &problems, &error), ERR_CORRUPT);
		definition_free(definition);
		problems_close(&problems);
	}
	arena_close(&arena);
}
END_TEST

/* A long expression is shown up to a limit, whole characters alone, and one of several lines with the line. */
START_TEST(problems_show_a_part)
{
	struct problems problems;
	struct arena arena;
	struct error error;
	const size_t batch[] = {0};

	arena_init(&arena);
	char *text = arena_zero(&arena, 200);
	for (size_t i = 0; i < 150; i++)
		text[i] = i == 0 ? '.' : i == 1 ? '+' : i == 2 ? '"' : i == 149 ? '"' : i % 2 == 1 ? '\xc3' : '\xa9';
	struct definition *definition = load(arena_printf(&arena, "'${ %s }'", text), &problems);
	ck_assert_int_eq(evaluation_add_problems(definition, batch, 1, BYTES_OF("P[{\"index\":0,\"line\":3,\"message\":\"no\"}]"), &problems, &error), 0);
	ck_assert_uint_eq(problems.errors, 1);
	const char *message = problems.items[problems.count - 1].message;
	size_t bad;
	ck_assert_msg(utf8_valid(bytes_text(message), &bad), "%s", message);
	ck_assert_msg(strstr(message, "', its line 3: no") != NULL, "%s", message);
	ck_assert_uint_lt(strlen(message), 120);
	definition_free(definition);
	problems_close(&problems);
	arena_close(&arena);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("language-evaluation", answers_are_kept, results_have_limits, requests_are_made, frames_come_in_pieces, batches_hold_all, problems_have_places_and_hints, problems_show_a_part)
