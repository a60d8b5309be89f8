/* Snapshots of runs: a cache that is used as it was written or not at all, and without which the journal says the same. */
#include "tests/unit/store/fixture.h"

struct seen {
	int code;
	uint64_t seq;
	char text[64];
};

static void look(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct seen *seen = arg;
	struct bytes bytes;
	struct error error;

	seen->code = reader_snapshot(reader, &f->arena, "long", &seen->seq, &bytes, &error);
	if (seen->code == 0)
		snprintf(seen->text, sizeof(seen->text), "%.*s", (int)bytes.len, (const char *)bytes.data);
}

static struct seen seen_now(struct fixture *f)
{
	struct seen seen = {0};

	read_and_wait(f, look, &seen);
	return seen;
}

/* An entry of the run, and with it this snapshot as of the entry before. */
static uint64_t go_on(struct fixture *f, const char *snapshot, uint64_t seq, bool forget)
{
	struct entry entry;
	bool done = false;
	struct store_append append = {.entries = &entry, .entry_count = 1, .on_done = on_append_done, .owner = &done, .snapshot_run = "long",
				      .snapshot = snapshot ? bytes_text(snapshot) : (struct bytes){0}, .snapshot_seq = seq, .forget_snapshot = forget};

	make_step(&f->arena, &entry, ENTRY_TASK_STARTED, "long", "/do/0/a@1", (struct bytes){0});
	ck_assert_int_eq(store_append(f->store, &append), 0);
	while (!done)
		uv_run(&f->loop, UV_RUN_ONCE);
	ck_assert_msg(append.error.code == 0, "%s", append.error.message);
	return entry.seq;
}

static void start_long(struct fixture *f)
{
	struct entry entry;

	fixture_start(f);
	make_created(&f->arena, &entry, "long", "long", NULL);
	append_ok(f, &entry, 1);
}

static void change(struct fixture *f, const char *sql)
{
	sqlite3 *db = plain_open(f);

	ck_assert_msg(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_close(db);
}

/* The newest one is read back as it was written, also after a restart; with the end of its run it is gone. */
START_TEST(written_and_forgotten)
{
	struct fixture f;
	struct seen seen;

	start_long(&f);
	ck_assert_int_eq(seen_now(&f).code, ERR_NOT_FOUND);
	uint64_t seq = go_on(&f, NULL, 0, false);
	ck_assert_int_eq(seen_now(&f).code, ERR_NOT_FOUND);
	uint64_t next = go_on(&f, "first", seq, false);
	seen = seen_now(&f);
	ck_assert_str_eq(seen.text, "first");
	ck_assert_uint_eq(seen.seq, seq);
	go_on(&f, "second", next, false);
	fixture_reopen(&f);
	seen = seen_now(&f);
	ck_assert_str_eq(seen.text, "second");
	ck_assert_uint_eq(seen.seq, next);
	ck_assert_int_eq(store_check_tables(f.folder, &f.error), 0);
	go_on(&f, NULL, 0, true);
	ck_assert_int_eq(seen_now(&f).code, ERR_NOT_FOUND);
	fixture_end(&f);
}
END_TEST

/* One whose bytes or whose place in the journal are not what they were is no snapshot; and without any the journal is whole. */
START_TEST(damaged_is_not_used)
{
	static const char *const damage[] = {"UPDATE snapshot SET bytes = x'00'", "UPDATE snapshot SET digest = zeroblob(32)", "UPDATE snapshot SET leaf = zeroblob(32)",
					     "UPDATE snapshot SET seq = seq - 1", "UPDATE snapshot SET seq = 1000"};
	struct fixture f;

	start_long(&f);
	uint64_t seq = go_on(&f, NULL, 0, false);
	for (size_t i = 0; i < COUNT_OF(damage); i++) {
		seq = go_on(&f, "good", seq, false);
		ck_assert_int_eq(seen_now(&f).code, 0);
		change(&f, damage[i]);
		ck_assert_msg(seen_now(&f).code == ERR_CORRUPT, "%s", damage[i]);
	}
	go_on(&f, "good", seq, false);
	ck_assert_int_eq(seen_now(&f).code, 0); /* the next one takes its place */
	change(&f, "DELETE FROM snapshot");
	ck_assert_int_eq(seen_now(&f).code, ERR_NOT_FOUND);
	ck_assert_int_eq(store_check_tables(f.folder, &f.error), 0);
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-snapshot", written_and_forgotten, damaged_is_not_used)
