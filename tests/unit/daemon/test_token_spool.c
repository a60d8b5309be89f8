/* The texts of attempts in memory: what is kept, and what goes when there is too much. Streams: tests/integration/tokens.mjs. */
#include "daemon/token_spool.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

static struct token_spool spool;
static struct arena arena;

static struct activity activity_of(const char *run, const char *step, unsigned attempt)
{
	return (struct activity){.run_id = run, .step_id = step, .attempt = attempt};
}

static const struct json *attempts_of(const char *run, const char *step)
{
	return json_get(token_spool_json(&spool, run, step, &arena), "attempts");
}

static void add(struct activity *activity, const char *text)
{
	token_spool_add(&spool, activity, bytes_text(text), false);
}

static void add_many(struct activity *activity, char letter, size_t len)
{
	char *text = memory_alloc(len + 1);

	memset(text, letter, len);
	token_spool_add(&spool, activity, (struct bytes){(const uint8_t *)text, len}, false);
	free(text);
}

static void begin(void)
{
	token_spool_init(&spool);
	arena_init(&arena);
}

static void end(void)
{
	token_spool_close(&spool);
	arena_close(&arena);
}

/* Pieces become one text, by run, step and attempt; the end says how it went, once. */
START_TEST(texts_by_attempt)
{
	struct activity first = activity_of("a", "/do/0/x@1", 1), second = activity_of("a", "/do/0/x@1", 2), other = activity_of("b", "/do/0/x@1", 1);

	begin();
	add(&first, "one ");
	add(&other, "elsewhere");
	add(&first, "two");
	first.result.failure = FAILURE_STALLED;
	token_spool_end(&spool, &first);
	token_spool_end(&spool, &first);
	add(&second, "three");
	token_spool_add(&spool, &second, bytes_text("hm"), true);
	ck_assert_uint_eq(json_count(attempts_of("a", NULL)), 2);
	ck_assert_str_eq(json_get_text(json_at(attempts_of("a", NULL), 0), "text"), "one two");
	ck_assert_str_eq(json_get_text(json_at(attempts_of("a", NULL), 0), "outcome"), "stalled");
	ck_assert_ptr_null(json_get(json_at(attempts_of("a", NULL), 0), "reasoning"));
	ck_assert_str_eq(json_get_text(json_at(attempts_of("a", NULL), 1), "reasoning"), "hm");
	ck_assert(!json_get_boolean(json_at(attempts_of("a", NULL), 1), "ended", true));
	ck_assert_uint_eq(json_count(attempts_of("a", "/do/0/y@1")), 0);
	ck_assert_uint_eq(json_count(attempts_of("nobody", NULL)), 0);
	ck_assert_uint_eq(spool.bytes, 7 + 9 + 5 + 2);
	end();
}
END_TEST

/* Of a text over TOKEN_ATTEMPT_MAX the front goes, whole characters, and the offset says how much; of one piece that is longer alone, too. */
START_TEST(long_texts_lose_their_front)
{
	struct activity activity = activity_of("a", "/do/0/x@1", 1);
	const struct json *attempt;
	double offset;
	size_t len;

	begin();
	for (size_t i = 0; i < TOKEN_ATTEMPT_MAX / 3 + 1; i++)
		add(&activity, "€");
	attempt = json_at(attempts_of("a", NULL), 0);
	offset = json_get_number(attempt, "offset", 0);
	len = json_get(attempt, "text")->string.len;
	ck_assert_double_gt(offset, 0);
	ck_assert_uint_le(len, TOKEN_ATTEMPT_MAX);
	ck_assert_uint_eq((size_t)offset + len, (TOKEN_ATTEMPT_MAX / 3 + 1) * 3);
	ck_assert_uint_eq((size_t)offset % 3, 0);
	ck_assert_uint_eq(spool.bytes, len);
	add_many(&activity, 'x', TOKEN_ATTEMPT_MAX + 5);
	attempt = json_at(attempts_of("a", NULL), 0);
	ck_assert_uint_eq(json_get(attempt, "text")->string.len, TOKEN_ATTEMPT_MAX);
	ck_assert_double_eq(json_get_number(attempt, "offset", 0), (TOKEN_ATTEMPT_MAX / 3 + 1) * 3 + 5);
	end();
}
END_TEST

/* Past TOKEN_SPOOL_MAX those that have ended go first, the oldest before the others; then those under way, but never the one that writes. */
START_TEST(room_for_all)
{
	enum { COUNT = TOKEN_SPOOL_MAX / TOKEN_ATTEMPT_MAX };
	struct activity activities[COUNT + 2];
	char runs[COUNT + 2][8];

	begin();
	for (size_t i = 0; i < COUNT + 2; i++) {
		snprintf(runs[i], sizeof runs[i], "r%zu", i);
		activities[i] = activity_of(runs[i], "/do/0/x@1", 1);
	}
	for (size_t i = 0; i < COUNT; i++)
		add_many(&activities[i], 'x', TOKEN_ATTEMPT_MAX);
	token_spool_end(&spool, &activities[3]);
	token_spool_end(&spool, &activities[5]);
	ck_assert_uint_eq(spool.bytes, TOKEN_SPOOL_MAX);
	add_many(&activities[COUNT], 'y', 1);
	ck_assert_uint_eq(json_count(attempts_of("r3", NULL)), 0);
	ck_assert_uint_eq(json_count(attempts_of("r5", NULL)), 1);
	add_many(&activities[COUNT], 'y', TOKEN_ATTEMPT_MAX - 1);
	ck_assert_uint_eq(json_count(attempts_of("r5", NULL)), 1);
	add_many(&activities[COUNT + 1], 'z', TOKEN_ATTEMPT_MAX);
	ck_assert_uint_eq(json_count(attempts_of("r5", NULL)), 0);
	add_many(&activities[0], 'x', 1); /* full itself: its own front goes */
	ck_assert_uint_eq(json_count(attempts_of("r0", NULL)), 1);
	token_spool_end(&spool, &activities[1]);
	token_spool_add(&spool, &activities[2], bytes_text("hm"), true);
	ck_assert_uint_le(spool.bytes, TOKEN_SPOOL_MAX);
	/* One that had to go while it was written to begins anew. */
	for (size_t i = 0; i < COUNT + 2; i++)
		add_many(&activities[i], 'n', TOKEN_ATTEMPT_MAX);
	ck_assert_uint_eq(json_count(attempts_of("r0", NULL)), 0);
	add(&activities[0], "again");
	ck_assert_str_eq(json_get_text(json_at(attempts_of("r0", NULL), 0), "text"), "again");
	end();
}
END_TEST

/* Attempts of few words count as well (TOKEN_ATTEMPTS_MAX). */
START_TEST(many_short_ones)
{
	begin();
	for (unsigned i = 0; i < TOKEN_ATTEMPTS_MAX + 10; i++) {
		struct activity activity = activity_of("a", "/do/0/x@1", i + 1);
		add(&activity, "x");
		token_spool_end(&spool, &activity);
	}
	ck_assert_uint_eq(spool.attempt_count, TOKEN_ATTEMPTS_MAX);
	ck_assert_double_eq(json_get_number(json_at(attempts_of("a", NULL), 0), "attempt", 0), 11);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("daemon-token_spool");
	TCase *tests = tcase_create("tests");
	SRunner *runner;
	int failed;

	tcase_add_test(tests, texts_by_attempt);
	tcase_add_test(tests, long_texts_lose_their_front);
	tcase_add_test(tests, room_for_all);
	tcase_add_test(tests, many_short_ones);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
