/* What was used of a runtime by day: from the entries of attempts, whatever becomes of them. What retention leaves: tests/unit/store/test_retention.c. */
#include "tests/unit/store/fixture.h"

#include "workflow/base/spent.h"

#define MONDAY_MS ((int64_t)1795996800000) /* 2026-11-30 */
#define MONDAY ((int64_t)20787)

static void make_spent(struct fixture *f, struct entry *entry, enum entry_kind kind, int64_t time_ms, const struct spent *spent)
{
	make_step(&f->arena, entry, kind, "r0", "/do/0/a@1", (struct bytes){0});
	entry->time_ms = time_ms;
	if (spent != NULL)
		json_set(&f->arena, entry->data, "spent", spent_json(&f->arena, spent));
}

struct expected {
	const char *runtime;
	const struct spent_day *days;
	size_t count;
};

static void read_days(struct store_reader *reader, struct fixture *f, void *arg)
{
	const struct expected *expected = arg;
	struct spent_day *days;
	size_t count;

	ck_assert_msg(reader_spending(reader, &f->arena, expected->runtime, &days, &count, &f->error) == 0, "%s", f->error.message);
	ck_assert_uint_eq(count, expected->count);
	for (size_t i = 0; i < count; i++) {
		ck_assert_int_eq(days[i].day, expected->days[i].day);
		ck_assert_int_eq(days[i].tokens, expected->days[i].tokens);
		ck_assert_int_eq(days[i].us, expected->days[i].us);
	}
}

static void expect(struct fixture *f, const char *runtime, const struct spent_day *days, size_t count)
{
	struct expected expected = {runtime, days, count};

	read_and_wait(f, read_days, &expected);
}

/* So many entries more, that the sums of those before are written. */
static void fill(struct fixture *f)
{
	struct entry *entries = arena_zero(&f->arena, SPENDING_ENTRIES_MAX * sizeof(*entries));

	for (size_t i = 0; i < SPENDING_ENTRIES_MAX; i++)
		entries[i] = (struct entry){.kind = ENTRY_DAEMON_STARTED, .data = json_object(&f->arena), .time_ms = fixture_wall_ms()};
	append_ok(f, entries, SPENDING_ENTRIES_MAX);
}

static int64_t count_rows(struct fixture *f)
{
	sqlite3 *db = plain_open(f);
	sqlite3_stmt *statement;
	int64_t number;

	ck_assert_int_eq(sqlite3_prepare_v2(db, "SELECT count(*) FROM runtime_spending", -1, &statement, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
	number = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	sqlite3_close(db);
	return number;
}

/* Attempts that went well, that failed and that nobody waited for add up by runtime and by the day in which they ended; those that say nothing add
 * nothing. The sums are there after a restart, and follow from the entries. */
START_TEST(days_add_up)
{
	static const struct spent first = {"a", 100, 2000}, second = {"a", 20, 300}, other = {"b", 7, 8}, third = {"a", 1, 1};
	static const struct spent_day days[] = {{MONDAY - 1, 100, 2000}, {MONDAY, 21, 301}}, others[] = {{MONDAY, 7, 8}};
	struct entry entries[7];
	struct fixture f;

	fixture_start(&f);
	make_created(&f.arena, &entries[0], "r0", "flow-r0", NULL);
	make_spent(&f, &entries[1], ENTRY_ATTEMPT_SUCCEEDED, MONDAY_MS - 1, &first);
	make_spent(&f, &entries[2], ENTRY_ATTEMPT_FAILED, MONDAY_MS, &second);
	make_spent(&f, &entries[3], ENTRY_ATTEMPT_SUCCEEDED, MONDAY_MS, &other);
	make_spent(&f, &entries[4], ENTRY_ATTEMPT_FAILED, MONDAY_MS, NULL);
	make_spent(&f, &entries[5], ENTRY_ATTEMPT_STARTED, MONDAY_MS, NULL);
	make_spent(&f, &entries[6], ENTRY_RUNTIME_SPENT, MONDAY_MS + SPENT_DAY_MS - 1, &third);
	append_ok(&f, entries, 7);
	expect(&f, "a", days, COUNT_OF(days));
	expect(&f, "b", others, COUNT_OF(others));
	expect(&f, "c", NULL, 0);
	ck_assert_int_eq(count_rows(&f), 0); /* no commit has paid for them */
	check_tables_equal(&f);
	fixture_reopen(&f);
	expect(&f, "a", days, COUNT_OF(days));
	fill(&f);
	ck_assert_int_eq(count_rows(&f), 3);
	expect(&f, "a", days, COUNT_OF(days));
	expect(&f, "b", others, COUNT_OF(others));
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* The newest days are kept; a clock that leaps far ahead, or far back, takes away one old day at most, and never the one that it is. */
START_TEST(days_are_bounded)
{
	enum { DAYS = SPENT_DAYS_MAX + 4 };
	static const struct spent one = {"a", 1, 2};
	struct spent_day expected[SPENT_DAYS_MAX + 1];
	struct entry entries[DAYS + 1];
	struct fixture f;

	fixture_start(&f);
	make_created(&f.arena, &entries[0], "r0", "flow-r0", NULL);
	for (unsigned i = 0; i < DAYS; i++)
		make_spent(&f, &entries[i + 1], ENTRY_ATTEMPT_SUCCEEDED, MONDAY_MS + i * (int64_t)SPENT_DAY_MS, &one);
	append_ok(&f, entries, DAYS + 1);
	ck_assert_int_ge(count_rows(&f), DAYS - SPENDING_SUMS_MAX); /* more of them are not kept back */
	fill(&f);
	for (unsigned i = 0; i < SPENT_DAYS_MAX; i++)
		expected[i] = (struct spent_day){MONDAY + 4 + i, 1, 2};
	expect(&f, "a", expected, SPENT_DAYS_MAX);
	/* Years ahead, then right again. */
	make_spent(&f, &entries[0], ENTRY_ATTEMPT_SUCCEEDED, MONDAY_MS + 5000 * (int64_t)SPENT_DAY_MS, &one);
	make_spent(&f, &entries[1], ENTRY_ATTEMPT_SUCCEEDED, MONDAY_MS + (DAYS - 1) * (int64_t)SPENT_DAY_MS, &one);
	append_ok(&f, entries, 2);
	fill(&f);
	memmove(expected, expected + 1, (SPENT_DAYS_MAX - 1) * sizeof(*expected));
	expected[SPENT_DAYS_MAX - 2].tokens = 2;
	expected[SPENT_DAYS_MAX - 2].us = 4;
	expected[SPENT_DAYS_MAX - 1] = (struct spent_day){MONDAY + 5000, 1, 2};
	expect(&f, "a", expected, SPENT_DAYS_MAX);
	/* And years back: that day is one more, and counts. */
	make_spent(&f, &entries[0], ENTRY_ATTEMPT_SUCCEEDED, 1000, &one);
	make_spent(&f, &entries[1], ENTRY_ATTEMPT_SUCCEEDED, 2000, &one);
	append_ok(&f, entries, 2);
	fill(&f);
	memmove(expected + 1, expected, SPENT_DAYS_MAX * sizeof(*expected));
	expected[0] = (struct spent_day){0, 2, 4};
	expect(&f, "a", expected, SPENT_DAYS_MAX + 1);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* What is not in the rows yet is there after a kill, and is not counted twice by anybody: neither where a commit failed, nor where it is written. */
START_TEST(sums_that_wait_are_not_lost)
{
	static const struct spent one = {"a", 5, 6};
	struct spent_day expected = {MONDAY, 0, 0};
	struct entry entries[3];
	struct fixture f;
	uint32_t seed = 1;
	uint8_t *noise;

	fixture_start(&f);
	noise = arena_alloc(&f.arena, 1 << 20);
	for (unsigned i = 0; i < 1 << 20; i++)
		noise[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
	make_created(&f.arena, &entries[0], "r0", "flow-r0", NULL);
	append_ok(&f, entries, 1);
	for (unsigned round = 0; round < 300; round++) {
		make_spent(&f, &entries[0], ENTRY_ATTEMPT_FAILED, MONDAY_MS, &one);
		append_ok(&f, entries, 1);
		expected.tokens += one.tokens;
		expected.us += one.us;
		if (round % 60 == 59) {
			expect(&f, "a", &expected, 1);
			/* Written, and taken back: there is no room for its values. */
			atomic_store(&store_counters(f.store)->page_limit, 150);
			make_spent(&f, &entries[0], ENTRY_ATTEMPT_FAILED, MONDAY_MS, &one);
			make_spent(&f, &entries[1], ENTRY_ATTEMPT_FAILED, MONDAY_MS, &one);
			for (unsigned i = 0; i + 1 < ENTRY_VALUES_MAX; i++)
				entry_add_value(&f.arena, &entries[1], arena_printf(&f.arena, "v%u", i), (struct bytes){noise + i, 1000000});
			ck_assert_int_eq(append_and_wait(&f, entries, 2, NULL), ERR_FULL);
			expect(&f, "a", &expected, 1);
			atomic_store(&store_counters(f.store)->page_limit, 1u << 30);
			if (round % 120 == 119)
				fixture_reopen(&f);
		}
	}
	ck_assert_int_eq(count_rows(&f), 1);
	expect(&f, "a", &expected, 1);
	fixture_close(&f);
	check_tables_equal(&f);
	/* A mark that somebody has set ahead is found by a check, and stops nothing. */
	ck_assert_int_eq(plain_exec(&f, "UPDATE spending_mark SET seq = 1000000"), SQLITE_OK);
	ck_assert_int_eq(store_check_tables(f.folder, &f.error), ERR_CORRUPT);
	fixture_open(&f);
	make_spent(&f, &entries[0], ENTRY_ATTEMPT_FAILED, MONDAY_MS, &one);
	append_ok(&f, entries, 1);
	fixture_end(&f);
}
END_TEST

/* A row that somebody changed is found by a check; one that cannot be counts for nothing, and stops no start. */
START_TEST(damaged_rows_count_for_nothing)
{
	static const struct spent one = {"a", 5, 6};
	static const struct spent_day days[] = {{MONDAY, 5, 6}};
	struct entry entries[2];
	struct fixture f;

	fixture_start(&f);
	make_created(&f.arena, &entries[0], "r0", "flow-r0", NULL);
	make_spent(&f, &entries[1], ENTRY_ATTEMPT_SUCCEEDED, MONDAY_MS, &one);
	append_ok(&f, entries, 2);
	fill(&f);
	fixture_close(&f);
	ck_assert_int_eq(plain_exec(&f, "INSERT INTO runtime_spending VALUES('a', 9000000000, 1, 1), ('a', 1, -1, 1), ('a', 2, 1, -1), ('a', -9000000000, 1, 1)"), SQLITE_OK);
	ck_assert_int_eq(store_check_tables(f.folder, &f.error), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(f.error.message, "runtime_spending"));
	fixture_open(&f);
	expect(&f, "a", days, COUNT_OF(days));
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-spending", days_add_up, days_are_bounded, sums_that_wait_are_not_lost, damaged_rows_count_for_nothing)
