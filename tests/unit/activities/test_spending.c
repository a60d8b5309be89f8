/* What was used of a runtime by day, and what of it counts now: on two clocks that the test steps, one of which somebody sets. */
#include <check.h>
#include <stdlib.h>

#include "activities/spending.h"
#include "workflow/base/check.h"

static const uint64_t second = 1000 * 1000;
#define MONDAY_MS ((int64_t)1795996800000) /* 2026-11-30, midnight of UTC */
enum { HOUR_MS = 60 * 60 * 1000 };

static struct slot_server server;
static struct slot_queue queue;
static struct spending spending;
static uint64_t now, wake;
static int64_t wall;

static void begin(void)
{
	slot_server_init(&server);
	slot_queue_init(&queue, &server, "m");
	queue.concurrency = 100;
	queue.budget.tokens_max = 100;
	spending = (struct spending){0};
	now = 1000 * second;
	wall = MONDAY_MS;
}

static void go_by(int64_t ms)
{
	now += (uint64_t)ms * 1000;
	wall += ms;
}

/* As runtimes.c does it, whenever something may have changed. */
static struct slot *next(void)
{
	spending_tell(&spending, &queue, wall, now);
	return slot_server_next(&server, now, &wake);
}

static void use(struct slot *slot, int64_t tokens)
{
	slot_queue_leave(&queue, slot, now);
	spending_add(&spending, spent_day_of(wall), tokens, (int64_t)slot->held_us);
}

static struct slot ask(void)
{
	return (struct slot){.priority = PRIORITY_USUAL};
}

/* What is used up is used up until midnight of UTC, to the millisecond; it is looked at every minute, and at midnight. */
START_TEST(a_day_ends_at_midnight)
{
	struct slot one = ask(), two = ask();

	begin();
	go_by(23 * HOUR_MS);
	slot_queue_add(&queue, &one, now);
	ck_assert_ptr_eq(next(), &one);
	go_by(500);
	use(&one, 100);
	slot_queue_add(&queue, &two, now);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(queue.reason, SLOT_WAITS_BUDGET);
	ck_assert_uint_eq(queue.reason_until_us, now + (uint64_t)(HOUR_MS - 500) * 1000);
	ck_assert_uint_eq(wake, now + (uint64_t)SPENDING_LOOK_MS * 1000);
	go_by(HOUR_MS - 501 - 30 * 1000);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(wake, now + 30001 * (uint64_t)1000);
	go_by(30 * 1000);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(wake, now + 1000);
	go_by(1);
	ck_assert_ptr_eq(next(), &two);
	ck_assert_uint_eq(two.waited_us[SLOT_WAITS_BUDGET], (uint64_t)(HOUR_MS - 500) * 1000);
	use(&two, 7);
	ck_assert_int_eq(spending_of(&spending, spent_day_of(MONDAY_MS)).tokens, 100);
	ck_assert_int_eq(spending_of(&spending, spent_day_of(MONDAY_MS)).us, 500 * 1000);
	ck_assert_int_eq(spending_of(&spending, spent_day_of(MONDAY_MS) + 1).tokens, 7);
	slot_queue_close(&queue);
}
END_TEST

/* What is under way at midnight counts for the day in which it ends, and is reserved until then. */
START_TEST(what_is_under_way_at_midnight)
{
	struct slot one = ask(), two = ask();

	begin();
	go_by(24 * HOUR_MS - 1000);
	one.tokens = 80;
	two.tokens = 30;
	slot_queue_add(&queue, &one, now);
	slot_queue_add(&queue, &two, now);
	ck_assert_ptr_eq(next(), &one);
	go_by(2000);
	ck_assert_ptr_null(next());
	use(&one, 71);
	ck_assert_ptr_null(next());
	ck_assert_int_eq(spending_of(&spending, spent_day_of(wall)).tokens, 71);
	ck_assert_int_eq(spending_of(&spending, spent_day_of(MONDAY_MS)).tokens, 0);
	spending.days[0].tokens--;
	ck_assert_ptr_eq(next(), &two);
	use(&two, 0);
	slot_queue_close(&queue);
}
END_TEST

/* The wall clock is set ahead by days and put right again: the days in between have budgets of their own, and what was used today still is. Set back,
 * yesterday's counts; nobody waits for longer than it takes to look. */
START_TEST(the_clock_is_set)
{
	struct slot one = ask(), two = ask(), three = ask(), four = ask();

	begin();
	go_by(12 * HOUR_MS);
	slot_queue_add(&queue, &one, now);
	ck_assert_ptr_eq(next(), &one);
	use(&one, 100);
	slot_queue_add(&queue, &two, now);
	slot_queue_add(&queue, &three, now);
	ck_assert_ptr_null(next());
	wall += 5 * (int64_t)SPENT_DAY_MS;
	ck_assert_uint_le(wake, now + (uint64_t)SPENDING_LOOK_MS * 1000);
	ck_assert_ptr_eq(next(), &two);
	use(&two, 100);
	ck_assert_ptr_null(next());
	wall -= 5 * (int64_t)SPENT_DAY_MS;
	ck_assert_ptr_null(next());
	ck_assert_int_eq(queue.budget.tokens_spent, 100);
	wall -= SPENT_DAY_MS;
	ck_assert_ptr_eq(next(), &three);
	use(&three, 100);
	slot_queue_add(&queue, &four, now);
	ck_assert_ptr_null(next());
	wall += SPENT_DAY_MS;
	ck_assert_ptr_null(next());
	go_by(12 * HOUR_MS);
	ck_assert_ptr_eq(next(), &four);
	use(&four, 1);
	/* Before 1970, too: a machine without a battery starts there. */
	wall = -1;
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(queue.budget.ends_us, now + 1000);
	ck_assert_int_eq(queue.budget.tokens_spent, 0);
	slot_queue_close(&queue);
}
END_TEST

/* So many days are remembered: the newest, whatever the order in which they came, and always the one that it is. */
START_TEST(days_are_bounded)
{
	enum { DAYS = SPENT_DAYS_MAX + 1 };

	begin();
	for (int64_t day = 0; day < 3 * DAYS; day++)
		spending_add(&spending, 1000 + (day * 37) % (3 * DAYS), day, 1); /* all of them, once each */
	ck_assert_uint_eq(spending.count, DAYS);
	for (size_t i = 1; i < spending.count; i++)
		ck_assert_int_gt(spending.days[i].day, spending.days[i - 1].day);
	spending = (struct spending){0};
	for (int64_t day = 0; day < DAYS; day++)
		spending_add(&spending, 1000 + day, day, 1);
	spending_add(&spending, 1000 + DAYS, 5, 1);
	ck_assert_uint_eq(spending.count, DAYS);
	ck_assert_int_eq(spending.days[0].day, 1001);
	/* A clock that says an earlier one. */
	spending_add(&spending, 3, 11, 1);
	spending_add(&spending, 3, 11, 1);
	ck_assert_uint_eq(spending.count, DAYS);
	ck_assert_int_eq(spending_of(&spending, 3).tokens, 22);
	ck_assert_int_eq(spending_of(&spending, 1001).tokens, 0);
	ck_assert_int_eq(spending_of(&spending, 1000 + DAYS).tokens, 5);
	slot_queue_close(&queue);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spending");
	TCase *tcase = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tcase, a_day_ends_at_midnight);
	tcase_add_test(tcase, what_is_under_way_at_midnight);
	tcase_add_test(tcase, the_clock_is_set);
	tcase_add_test(tcase, days_are_bounded);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
