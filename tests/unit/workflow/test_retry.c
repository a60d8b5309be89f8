/* When the next attempt is due. */
#include <check.h>

#include "tests/unit/base/suite.h"
#include "workflow/retry.h"

/* Each delay lies between three quarters of the doubled floor and all of it, and never past the cap. */
START_TEST(delays_double_up_to_the_cap)
{
	int64_t full = 1000;

	for (unsigned failures = 1; failures < 20; failures++) {
		int64_t delay = retry_delay_ms("run", "/do/0/a@1", failures, 1000, 30000, 0);
		ck_assert_int_ge(delay, full - full / 4);
		ck_assert_int_le(delay, full);
		ck_assert_int_ge(delay, 1000);
		full = full * 2 > 30000 ? 30000 : full * 2;
	}
}
END_TEST

/* The same run, step and failure count give the same delay, others another one: replay agrees, crowds spread. */
START_TEST(jitter_is_a_hash)
{
	int different = 0;

	for (unsigned i = 0; i < 50; i++) {
		char run[8] = {'r', (char)('a' + i / 26), (char)('a' + i % 26)};
		int64_t delay = retry_delay_ms(run, "/do/0/a@1", 5, 1000, 60000, 0);
		ck_assert_int_eq(delay, retry_delay_ms(run, "/do/0/a@1", 5, 1000, 60000, 0));
		different += delay != retry_delay_ms("other", "/do/0/a@1", 5, 1000, 60000, 0);
	}
	ck_assert_int_ge(different, 45);
}
END_TEST

/* What the peer asks for is a lower bound, but no further than our cap. */
START_TEST(retry_after_counts)
{
	ck_assert_int_eq(retry_delay_ms("run", "s", 1, 100, 60000, 5000), 5000);
	ck_assert_int_eq(retry_delay_ms("run", "s", 1, 100, 60000, 5000000), 60000);
	ck_assert_int_ge(retry_delay_ms("run", "s", 8, 1000, 60000, 1), 45000);
}
END_TEST

/* However it is configured: never at once, and a cap below the floor is the floor. */
START_TEST(never_at_once)
{
	ck_assert_int_ge(retry_delay_ms("run", "s", 1, 0, 0, 0), 10);
	ck_assert_int_ge(retry_delay_ms("run", "s", 1, -5, -5, -5), 10);
	ck_assert_int_eq(retry_delay_ms("run", "s", 9, 700, 3, 0), 700);
}
END_TEST

/* A count and a cap without measure do not overflow. */
START_TEST(large_numbers)
{
	int64_t delay = retry_delay_ms("run", "s", 4000000000u, 1000, INT64_MAX / 4, 0);

	ck_assert_int_gt(delay, 0);
	ck_assert_int_le(delay, INT64_MAX / 4);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("workflow-retry", delays_double_up_to_the_cap, jitter_is_a_hash, retry_after_counts, never_at_once, large_numbers)
