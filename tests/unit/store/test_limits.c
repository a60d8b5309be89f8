/* Every limit reached, and the disk's own: full, failing, locked by somebody else. */
#include <pthread.h>

#include "tests/unit/store/fixture.h"

static void on_counted(struct store_append *append)
{
	unsigned *count = append->owner;

	ck_assert_msg(append->error.code == 0, "%s", append->error.message);
	(*count)++;
}

/* Past the queue's limit an append is refused at once and its callback never fires; all others do, and then there is room. */
START_TEST(queue_is_full)
{
	struct fixture f;
	unsigned count = 0;
	const unsigned all = STORE_QUEUE_MAX + 1 + STORE_URGENT_MAX + 1;
	struct store_append *appends = memory_zero(all * sizeof(*appends));
	struct entry *entries = memory_zero(all * sizeof(*entries));

	fixture_start(&f);
	for (unsigned i = 0; i <= STORE_QUEUE_MAX; i++) {
		char id[32];

		snprintf(id, sizeof(id), "run-%u", i);
		make_created(&f.arena, &entries[i], id, "queue", NULL);
		appends[i] =
			(struct store_append){.entries = &entries[i], .entry_count = 1, .on_done = on_counted, .owner = &count};
		ck_assert_int_eq(store_append(f.store, &appends[i]), i < STORE_QUEUE_MAX ? 0 : ERR_BUSY);
	}
	ck_assert_uint_eq(store_queue_depth(f.store), STORE_QUEUE_MAX);
	/* Control goes in past it, and has a limit of its own. */
	for (unsigned i = STORE_QUEUE_MAX + 1; i < all; i++) {
		char id[32];

		snprintf(id, sizeof(id), "run-%u", i);
		make_created(&f.arena, &entries[i], id, "queue", NULL);
		appends[i] = (struct store_append){.entries = &entries[i], .entry_count = 1, .urgent = true, .on_done = on_counted, .owner = &count};
		ck_assert_int_eq(store_append(f.store, &appends[i]), i + 1 < all ? 0 : ERR_BUSY);
	}
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(count, STORE_QUEUE_MAX + STORE_URGENT_MAX);
	ck_assert_uint_lt(appends[STORE_QUEUE_MAX + 1].seq_first, appends[STORE_QUEUE_MAX - 1].seq_first); /* and goes first */
	/* More than one transaction may hold: two at least. */
	ck_assert_uint_le(atomic_load(&store_counters(f.store)->batch_appends_max), STORE_BATCH_ENTRIES_MAX);
	append_ok(&f, &entries[STORE_QUEUE_MAX], 1);
	free(appends);
	free(entries);
	fixture_end(&f);
}
END_TEST

/* An entry past 65,535 bytes, an append of too many entries, a value past 64 MiB: each fails alone, nothing of it is written. */
START_TEST(too_large)
{
	struct fixture f;
	struct entry entry, *many;
	char *text;
	uint8_t *huge;

	fixture_start(&f);
	make_created(&f.arena, &entry, "big", "one", NULL);
	text = arena_alloc(&f.arena, ENTRY_LEN_MAX + 1);
	memset(text, 'x', ENTRY_LEN_MAX);
	text[ENTRY_LEN_MAX] = '\0';
	json_set_text(&f.arena, entry.data, "extra", text);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_TOO_LARGE);
	ck_assert_ptr_nonnull(strstr(f.error.message, "65535"));
	many = memory_zero((STORE_APPEND_ENTRIES_MAX + 1) * sizeof(*many));
	make_created(&f.arena, &many[0], "many", "one", NULL);
	for (unsigned i = 1; i <= STORE_APPEND_ENTRIES_MAX; i++)
		make_step(&f.arena, &many[i], ENTRY_TASK_SKIPPED, "many", "/do/0/a@1", (struct bytes){0});
	ck_assert_int_eq(append_and_wait(&f, many, STORE_APPEND_ENTRIES_MAX + 1, NULL), ERR_TOO_LARGE);
	append_ok(&f, many, STORE_APPEND_ENTRIES_MAX);
	free(many);
	make_created(&f.arena, &entry, "big", "one", NULL);
	huge = memory_zero((size_t)CONTENT_MAX + 1);
	entry.values[entry.value_count++] =
		(struct entry_value){{{0}}, {huge, (size_t)CONTENT_MAX + 1}, (uint64_t)CONTENT_MAX + 1};
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_TOO_LARGE);
	/* Exactly the limit is possible. */
	entry.value_count--;
	entry_add_value(&f.arena, &entry, "huge", (struct bytes){huge, CONTENT_MAX});
	append_ok(&f, &entry, 1);
	ck_assert_uint_eq(atomic_load(&store_counters(f.store)->chunks), CONTENT_MAX / CONTENT_CHUNK);
	free(huge);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* Entries that are together larger than STORE_ENCODED_MAX fail as one append, and a page of entries ends at STORE_PAGE_BYTES_MAX. */
static void read_heavy_page(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_raw_entry *raw;
	size_t count, sum = 0;
	uint64_t next;

	ck_assert_int_eq(reader_entries(reader, &f->arena, 0, 0, STORE_PAGE_MAX, &raw, &count, &next, &f->error), 0);
	for (size_t i = 0; i < count; i++)
		sum += raw[i].bytes.len;
	ck_assert_uint_ge(sum, STORE_PAGE_BYTES_MAX);
	ck_assert_uint_lt(sum, STORE_PAGE_BYTES_MAX + ENTRY_LEN_MAX);
	*(uint64_t *)arg = next;
}

START_TEST(heavy_entries)
{
	enum { EXTRA_LEN = 60000, TOO_MANY = STORE_ENCODED_MAX / EXTRA_LEN + 1 };
	struct fixture f;
	struct entry *many = memory_zero(TOO_MANY * sizeof(*many));
	char *text = memory_zero(EXTRA_LEN + 1);
	uint64_t next;

	fixture_start(&f);
	memset(text, 'x', EXTRA_LEN);
	make_created(&f.arena, &many[0], "heavy", "one", NULL);
	for (unsigned i = 1; i < TOO_MANY; i++) {
		make_step(&f.arena, &many[i], ENTRY_TASK_SKIPPED, "heavy", "/do/0/a@1", (struct bytes){0});
		json_set_text(&f.arena, many[i].data, "extra", text);
	}
	ck_assert_int_eq(append_and_wait(&f, many, TOO_MANY, NULL), ERR_TOO_LARGE);
	append_ok(&f, many, TOO_MANY / 2);
	read_and_wait(&f, read_heavy_page, &next);
	ck_assert_uint_lt(next, TOO_MANY / 2);
	fixture_end(&f);
	free(many);
	free(text);
}
END_TEST

/* --- a full disk ------------------------------------------------------------------------------------------------------ */

static int append_bytes(struct fixture *f, unsigned n, size_t size)
{
	struct entry entry;
	uint8_t *data = memory_alloc(size);
	uint32_t seed = n;
	char id[32];
	int code;

	for (size_t i = 0; i < size; i++) {
		seed = seed * 1664525u + 1013904223u;
		data[i] = (uint8_t)(seed >> 24);
	}
	snprintf(id, sizeof(id), "run-%u", n);
	make_created(&f->arena, &entry, id, "full", NULL);
	entry_add_value(&f->arena, &entry, "value", (struct bytes){data, size});
	code = append_and_wait(f, &entry, 1, NULL);
	free(data);
	return code;
}

struct counted_runs {
	uint64_t count, size;
};

static void read_counts(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct counted_runs *counted = arg;
	struct store_run_filter filter = {0};

	ck_assert_int_eq(reader_run_count(reader, &filter, &counted->count, &f->error), 0);
	ck_assert_int_eq(reader_log_size(reader, &counted->size, &f->error), 0);
}

/* Appends until the disk is full, small and huge values; every one that failed left nothing. Returns how many were written. */
static unsigned fill_disk(struct fixture *f, unsigned first, size_t size)
{
	struct counted_runs counted;
	unsigned n = first, failures = 0;

	for (; failures < 5; n++) {
		int code = append_bytes(f, n, size);

		ck_assert_msg(code == 0 || code == ERR_FULL, "%s", f->error.message);
		if (code == ERR_FULL) {
			ck_assert_ptr_nonnull(strstr(f->error.message, "full"));
			failures++;
			n--; /* The same run again: it must not be there. */
		}
		ck_assert_uint_lt(n, first + 5000);
	}
	read_and_wait(f, read_counts, &counted);
	ck_assert_uint_eq(counted.count, n);
	ck_assert_uint_eq(counted.size, 3 + n);
	return n;
}

/* A full disk fails the whole batch with ERR_FULL and nothing of it is there; when there is room again the same store
 * goes on without a restart, and the tree is sound. */
START_TEST(disk_full_and_recovery)
{
	struct fixture f;
	char ballast[512];
	struct counted_runs counted;
	unsigned n = 0;
	FILE *file;

	fixture_init(&f);
	if (!fixture_mount_small_disk(&f, "6m")) {
		fixture_open(&f);
		atomic_store(&store_counters(f.store)->page_limit, 300);
		n = fill_disk(&f, 0, 10000);
		atomic_store(&store_counters(f.store)->page_limit, 1u << 30);
	} else {
		snprintf(ballast, sizeof(ballast), "%s/ballast", f.folder);
		file = fopen(ballast, "w");
		ck_assert_ptr_nonnull(file);
		for (unsigned i = 0; i < 3 << 20; i++)
			fputc('x', file);
		ck_assert_int_eq(fclose(file), 0);
		fixture_open(&f);
		n = fill_disk(&f, 0, 10000);
		n = fill_disk(&f, n, 2 * CONTENT_CHUNK);
		ck_assert_int_eq(unlink(ballast), 0);
	}
	ck_assert_uint_eq(f.broken, 0);
	ck_assert_msg(append_bytes(&f, n, 10000) == 0, "%s", f.error.message);
	ck_assert_msg(append_bytes(&f, n + 1, CONTENT_CHUNK + 5) == 0, "%s", f.error.message);
	read_and_wait(&f, read_counts, &counted);
	ck_assert_uint_eq(counted.count, n + 2);
	fixture_reopen(&f); /* Checks the tree against the checkpoint signed at the close. */
	ck_assert_msg(append_bytes(&f, n + 2, 100) == 0, "%s", f.error.message);
	fixture_close(&f);
	check_tables_equal(&f);
	umount(f.folder);
	fixture_end(&f);
}
END_TEST

/* One batch that does not fit fails as a whole, also the small append in it, and the ones after it succeed. */
START_TEST(batch_fails_whole)
{
	struct fixture f;
	struct entry small, large;
	struct store_append appends[2];
	bool done[2] = {false, false};
	struct counted_runs counted;
	uint32_t seed = 1;
	uint8_t *data;

	fixture_start(&f);
	data = memory_zero(1 << 20);
	for (unsigned i = 0; i < 1 << 20; i++)
		data[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
	make_created(&f.arena, &small, "small", "full", NULL);
	make_created(&f.arena, &large, "large", "full", NULL);
	for (unsigned i = 1; i < ENTRY_VALUES_MAX; i++)
		entry_add_value(&f.arena, &large, arena_printf(&f.arena, "v%u", i), (struct bytes){data + i, 1000000});
	atomic_store(&store_counters(f.store)->page_limit, 150);
	appends[0] = (struct store_append){.entries = &small, .entry_count = 1, .on_done = on_append_done, .owner = &done[0]};
	appends[1] = (struct store_append){.entries = &large, .entry_count = 1, .on_done = on_append_done, .owner = &done[1]};
	ck_assert_int_eq(store_append(f.store, &appends[0]), 0);
	ck_assert_int_eq(store_append(f.store, &appends[1]), 0);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert(done[0] && done[1]);
	ck_assert_int_eq(appends[0].error.code, ERR_FULL);
	ck_assert_int_eq(appends[1].error.code, ERR_FULL);
	read_and_wait(&f, read_counts, &counted);
	ck_assert_uint_eq(counted.count, 0);
	atomic_store(&store_counters(f.store)->page_limit, 1u << 30);
	append_ok(&f, &small, 1);
	append_ok(&f, &large, 1);
	ck_assert_uint_eq(small.seq, 3);
	free(data);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* --- a disk that fails: SQLite's own file layer with a switch -------------------------------------------------------- */

static atomic_int fail_syncs;
static sqlite3_vfs failing_vfs, *real_vfs;
/* The journal and its WAL have different methods, as only one of the two is locked. */
static struct {
	const sqlite3_io_methods *real;
	sqlite3_io_methods failing;
} files[2];

static int failing_sync(sqlite3_file *file, int flags)
{
	int kind = file->pMethods == &files[1].failing;

	return atomic_load(&fail_syncs) ? SQLITE_IOERR_FSYNC : files[kind].real->xSync(file, flags);
}

static int failing_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
	int rc = real_vfs->xOpen(real_vfs, name, file, flags, out_flags), kind = (flags & SQLITE_OPEN_WAL) != 0;

	(void)vfs;
	if (rc != SQLITE_OK || file->pMethods == NULL || !(flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL)))
		return rc;
	if (files[kind].real == NULL) {
		files[kind].real = file->pMethods;
		files[kind].failing = *file->pMethods;
		files[kind].failing.xSync = failing_sync;
	}
	if (file->pMethods == files[kind].real)
		file->pMethods = &files[kind].failing;
	return rc;
}

static void install_failing_vfs(void)
{
	connection_set_up_library();
	real_vfs = sqlite3_vfs_find(NULL);
	failing_vfs = *real_vfs;
	failing_vfs.zName = "failing";
	failing_vfs.xOpen = failing_open;
	ck_assert_int_eq(sqlite3_vfs_register(&failing_vfs, 1), SQLITE_OK);
}

/* An fsync that fails leaves the truth unknown: the append fails, the owner is told once, everything afterwards fails and
 * nothing is tried again; the next start reads what is there and the log is whole. */
START_TEST(failed_fsync_breaks_the_store)
{
	struct fixture f;
	struct entry entry;
	struct store_sign sign = {0};
	struct counted_runs counted;
	bool done = false;

	install_failing_vfs();
	fixture_start(&f);
	make_created(&f.arena, &entry, "good", "disk", NULL);
	append_ok(&f, &entry, 1);
	atomic_store(&fail_syncs, 1);
	make_created(&f.arena, &entry, "unknown", "disk", NULL);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_IO);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(f.broken, 1);
	atomic_store(&fail_syncs, 0); /* Good again, but nobody can know what was lost meanwhile. */
	make_created(&f.arena, &entry, "after", "disk", NULL);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_IO);
	sign = (struct store_sign){.on_done = on_signed, .owner = &done};
	ck_assert_int_eq(store_sign_checkpoint(f.store, &sign), 0);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert(done);
	ck_assert_int_eq(sign.error.code, ERR_IO);
	buffer_close(&sign.note);
	ck_assert_uint_eq(f.broken, 1);
	fixture_close(&f);
	fixture_open(&f);
	read_and_wait(&f, read_counts, &counted);
	ck_assert_uint_ge(counted.count, 1);
	ck_assert_uint_le(counted.count, 2); /* "unknown" may have reached the disk: that is what unknown means. */
	make_created(&f.arena, &entry, "next", "disk", NULL);
	append_ok(&f, &entry, 1);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
	sqlite3_vfs_unregister(&failing_vfs);
}
END_TEST

/* --- somebody else's lock ---------------------------------------------------------------------------------------------- */

struct holder {
	sqlite3 *db;
	unsigned ms;
};

static void *hold_lock(void *arg)
{
	struct holder *holder = arg;

	usleep(holder->ms * 1000);
	CHECK(sqlite3_exec(holder->db, "ROLLBACK", NULL, NULL, NULL) == SQLITE_OK);
	return NULL;
}

/* A foreign connection that holds the write lock for longer than SQLite waits delays the append and is not its outcome. */
START_TEST(foreign_lock_only_delays)
{
	struct fixture f;
	struct entry entry;
	struct holder holder = {.ms = STORE_BUSY_MS + 700};
	pthread_t thread;
	uint64_t start = fixture_now_us();

	fixture_start(&f);
	make_created(&f.arena, &entry, "patient", "lock", NULL);
	holder.db = plain_open(&f);
	ck_assert_int_eq(sqlite3_exec(holder.db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	ck_assert_int_eq(pthread_create(&thread, NULL, hold_lock, &holder), 0);
	append_ok(&f, &entry, 1);
	ck_assert_uint_ge(fixture_now_us() - start, STORE_BUSY_MS * 1000);
	pthread_join(thread, NULL);
	sqlite3_close(holder.db);
	ck_assert_uint_eq(f.broken, 0);
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-limits", queue_is_full, too_large, heavy_entries, disk_full_and_recovery, batch_fails_whole, failed_fsync_breaks_the_store,
	  foreign_lock_only_delays)
