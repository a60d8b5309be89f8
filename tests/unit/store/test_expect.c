/* Appends that the store was told of before they came: the transaction begins early, and nobody notices but by the clock. */
#include <sched.h>

#include "tests/unit/store/fixture.h"

enum { TRIES = 60000, ROUNDS = 400 };

static cpu_set_t all;
static bool has_second_cpu;

static bool pin(pid_t thread, unsigned nth)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && nth-- == 0) {
			CPU_SET(cpu, &one);
			return sched_setaffinity(thread, sizeof(one), &one) == 0;
		}
	return false;
}

/* The loop on one CPU, the writer on another: on a busy machine they could be together for as long as the test takes, and then the
 * writer rightly looks for nothing. */
static void part_threads(struct fixture *f)
{
	DIR *threads = opendir("/proc/self/task");
	bool found = false;

	fixture_start(f);
	has_second_cpu = sched_getaffinity(0, sizeof(all), &all) == 0 && CPU_COUNT(&all) > 1;
	while (has_second_cpu && !found) {
		struct dirent *item;

		rewinddir(threads);
		while ((item = readdir(threads)) != NULL) {
			char path[512], name[32] = "";
			FILE *file;

			snprintf(path, sizeof(path), "/proc/self/task/%s/comm", item->d_name);
			file = fopen(path, "r");
			if (file == NULL)
				continue;
			if (fgets(name, sizeof(name), file) != NULL && strcmp(name, "store-writer\n") == 0) {
				ck_assert(pin(atoi(item->d_name), 1));
				ck_assert(pin(0, 0));
				found = true;
			}
			fclose(file);
		}
	}
	closedir(threads);
}

static unsigned long long in_vain(const struct fixture *f)
{
	return atomic_load(&store_counters(f->store)->expected_in_vain);
}

/* Until the writer has looked for it and given up. */
static void expect_in_vain(struct fixture *f)
{
	unsigned long long before = in_vain(f);

	store_expect(f->store);
	for (unsigned i = 0; i < TRIES && in_vain(f) == before; i++)
		usleep(1000);
	ck_assert_uint_eq(in_vain(f) > before, has_second_cpu);
}

/* One that does not come leaves nothing behind: somebody else may write, and the next append is as any other. */
START_TEST(nothing_comes)
{
	struct fixture f;
	struct entry entry;
	char path[512];
	sqlite3 *db;

	part_threads(&f);
	expect_in_vain(&f);
	snprintf(path, sizeof(path), "%s/journal.db", f.folder);
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	sqlite3_busy_timeout(db, 5000); /* longer than the writer looks */
	ck_assert_int_eq(sqlite3_exec(db, "BEGIN IMMEDIATE; ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
	make_created(&f.arena, &entry, "r1", "one", NULL);
	append_ok(&f, &entry, 1);
	ck_assert_uint_eq(entry.seq, 3);
	expect_in_vain(&f);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* Whatever comes instead of a small append, a large one, a checkpoint, an error, a limit of pages, is dealt with as without the hint;
 * so is all that comes, in order. */
START_TEST(anything_comes)
{
	struct fixture f;
	struct entry entry;
	struct store_sign sign;
	uint8_t *data = memory_zero(2 * CONTENT_CHUNK);
	unsigned long long used, seq = 3;

	part_threads(&f);
	for (unsigned i = 0; i < ROUNDS; i++) {
		char id[32];

		snprintf(id, sizeof(id), "run-%u", i);
		make_created(&f.arena, &entry, id, "expected", NULL);
		store_expect(f.store);
		if (i % 3 > 0)
			usleep(i % 3 * 150); /* before, in and after the time that the writer looks for it */
		switch (i % 100) {
		case 10:
			data[0]++;
			entry_add_value(&f.arena, &entry, "value", (struct bytes){data, 2 * CONTENT_CHUNK});
			break;
		case 20:
			sign_and_wait(&f, &sign);
			ck_assert_int_eq(sign.error.code, 0);
			buffer_close(&sign.note);
			break;
		case 30:
			make_created(&f.arena, &entry, "run-0", "expected", NULL);
			ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_EXISTS);
			make_created(&f.arena, &entry, id, "expected", NULL);
			break;
		case 40:
			atomic_store(&store_counters(f.store)->page_limit, 1u << 30);
			break;
		default:
			break;
		}
		append_ok(&f, &entry, 1);
		ck_assert_uint_eq(entry.seq, seq++);
	}
	used = atomic_load(&store_counters(f.store)->expected) - in_vain(&f);
	ck_assert_uint_eq(used > 0, has_second_cpu);
	free(data);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* The store closes while the writer looks, and tells what happened to the files when one of them is gone. */
START_TEST(end_while_expecting)
{
	struct fixture f;
	struct entry entry;
	char path[512], away[520];

	fixture_init(&f);
	for (unsigned i = 0; i < 20; i++) {
		fixture_open(&f);
		store_expect(f.store);
		usleep(i * 20);
		fixture_close(&f);
	}
	fixture_open(&f);
	make_created(&f.arena, &entry, "r0", "one", NULL);
	append_ok(&f, &entry, 1); /* so the writer has begun, and knows its files */
	snprintf(path, sizeof(path), "%s/journal.db", f.folder);
	snprintf(away, sizeof(away), "%s.away", path);
	ck_assert_int_eq(rename(path, away), 0);
	store_expect(f.store);
	usleep(1000);
	ck_assert_uint_eq(f.broken, 0); /* a hint breaks nothing */
	make_created(&f.arena, &entry, "r1", "one", NULL);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_IO);
	ck_assert_ptr_nonnull(strstr(f.error.message, "was moved, deleted or replaced"));
	fixture_close(&f);
	ck_assert_int_eq(rename(away, path), 0);
	fixture_end(&f);
}
END_TEST

/* Another daemon has written to the same journal, the lock lost: this one notices inside its next transaction, also one that was begun early, and
 * writes nothing. */
START_TEST(another_owner)
{
	struct fixture f;
	struct entry entry;

	for (int early = 0; early < 2; early++) {
		fixture_init(&f);
		fixture_open(&f);
		make_created(&f.arena, &entry, "r0", "one", NULL);
		append_ok(&f, &entry, 1);
		sqlite3 *db = plain_open(&f);
		ck_assert_int_eq(sqlite3_exec(db, "INSERT INTO journal SELECT max(seq) + 1, zeroblob(32) FROM journal", NULL, NULL, NULL), SQLITE_OK);
		if (early) {
			store_expect(f.store);
			usleep(1000);
		}
		make_created(&f.arena, &entry, "r1", "one", NULL);
		ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_IO);
		ck_assert_ptr_nonnull(strstr(f.error.message, "owns it now"));
		ck_assert_uint_eq(f.broken, 1);
		ck_assert_int_eq(sqlite3_exec(db, "SELECT 1 / (count(*) = 0) FROM run WHERE id = 'r1'", NULL, NULL, NULL), SQLITE_OK);
		sqlite3_close(db);
		fixture_close(&f);
		fixture_end(&f);
	}
}
END_TEST

TEST_MAIN("store-expect", another_owner, nothing_comes, anything_comes, end_while_expecting)
