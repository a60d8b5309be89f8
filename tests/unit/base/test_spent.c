/* Tests of workflow/base/spent.h. */
#include "workflow/base/spent.h"

#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

/* What is written is read again, up to the limits of both. */
START_TEST(what_was_spent_comes_back)
{
	static const struct spent cases[] = {{"m", 0, 0}, {"m", 12, 34567}, {"a runtime", SPENT_TOKENS_MAX, SPENT_US_MAX}};
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct spent spent;

		ck_assert(spent_read(spent_json(&arena, &cases[i]), &spent));
		ck_assert_str_eq(spent.runtime, cases[i].runtime);
		ck_assert_int_eq(spent.tokens, cases[i].tokens);
		ck_assert_int_eq(spent.us, cases[i].us);
	}
	arena_close(&arena);
}
END_TEST

/* What is not there, or was not written here, counts as nothing. */
START_TEST(what_is_not_ours_is_nothing)
{
	static const char *const texts[] = {
		"null", "{}", "[]", "{\"runtime\":\"m\"}", "{\"runtime\":\"m\",\"tokens\":1}", "{\"runtime\":1,\"tokens\":1,\"us\":1}",
		"{\"runtime\":\"m\",\"tokens\":-1,\"us\":1}", "{\"runtime\":\"m\",\"tokens\":1,\"us\":-1}", "{\"runtime\":\"m\",\"tokens\":1073741825,\"us\":1}",
		"{\"runtime\":\"m\",\"tokens\":1,\"us\":1125899906842625}", "{\"tokens\":1,\"us\":1}",
		"{\"runtime\":\"12345678901234567890123456789012345678901234567890123456789012345\",\"tokens\":1,\"us\":1}",
	};
	struct arena arena;
	struct spent spent;

	arena_init(&arena);
	ck_assert(!spent_read(NULL, &spent));
	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		const struct json *json = json_parse(&arena, (struct bytes){(const uint8_t *)texts[i], strlen(texts[i])}, JSON_STRICT, NULL, NULL);

		ck_assert_ptr_nonnull(json);
		ck_assert_msg(!spent_read(json, &spent), "%s", texts[i]);
		ck_assert_ptr_null(spent.runtime);
	}
	arena_close(&arena);
}
END_TEST

/* A run's own sum names no runtime, and may be larger than what one attempt can have used, up to its limit. */
START_TEST(sums_of_runs)
{
	const struct spent sum = {NULL, SPENT_SUM_MAX, SPENT_US_MAX}, more = {NULL, SPENT_SUM_MAX + 1, 0};
	struct arena arena;
	struct spent spent;

	arena_init(&arena);
	ck_assert(spent_read_any(spent_json(&arena, &sum), &spent));
	ck_assert_ptr_null(spent.runtime);
	ck_assert_int_eq(spent.tokens, SPENT_SUM_MAX);
	ck_assert(!spent_read(spent_json(&arena, &sum), &spent));
	ck_assert(!spent_read_any(spent_json(&arena, &more), &spent));
	ck_assert(!spent_is_any(&spent));
	arena_close(&arena);
}
END_TEST

/* A day begins at midnight of UTC, also before the first one. */
START_TEST(days_begin_at_midnight)
{
	ck_assert_int_eq(spent_day_of(0), 0);
	ck_assert_int_eq(spent_day_of(SPENT_DAY_MS - 1), 0);
	ck_assert_int_eq(spent_day_of(SPENT_DAY_MS), 1);
	ck_assert_int_eq(spent_day_of(-1), -1);
	ck_assert_int_eq(spent_day_of(-SPENT_DAY_MS), -1);
	ck_assert_int_eq(spent_day_of(1795996800000), 20787); /* 2026-11-30T00:00:00Z */
	ck_assert_int_eq(spent_day_of(1795996800000 - 1), 20786);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("base-spent", days_begin_at_midnight, what_was_spent_comes_back, what_is_not_ours_is_nothing, sums_of_runs)
