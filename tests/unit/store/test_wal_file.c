/* The layer over the write-ahead log's file: few writes, the same bytes, the same errors. Below it stands a layer that counts. */
#include "tests/unit/store/fixture.h"

static atomic_uint writes, fail_writes;
static sqlite3_vfs counting_vfs, *real_vfs;
static const sqlite3_io_methods *real_methods;
static sqlite3_io_methods counting_methods;

static int counting_write(sqlite3_file *file, const void *data, int size, sqlite3_int64 at)
{
	atomic_fetch_add(&writes, 1);
	if (atomic_load(&fail_writes) > 0) {
		atomic_fetch_sub(&fail_writes, 1);
		return SQLITE_FULL;
	}
	return real_methods->xWrite(file, data, size, at);
}

static int counting_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
	int rc = real_vfs->xOpen(real_vfs, name, file, flags, out_flags);

	(void)vfs;
	if (rc != SQLITE_OK || file->pMethods == NULL || !(flags & SQLITE_OPEN_WAL))
		return rc;
	if (real_methods == NULL) {
		real_methods = file->pMethods;
		counting_methods = *file->pMethods;
		counting_methods.xWrite = counting_write;
	}
	if (file->pMethods == real_methods)
		file->pMethods = &counting_methods;
	return rc;
}

/* Each test is a process of its own; the store's layer takes what stands there when it first opens. */
static void start_counting(struct fixture *f)
{
	connection_set_up_library();
	real_vfs = sqlite3_vfs_find(NULL);
	counting_vfs = *real_vfs;
	counting_vfs.zName = "counting";
	counting_vfs.xOpen = counting_open;
	ck_assert_int_eq(sqlite3_vfs_register(&counting_vfs, 1), SQLITE_OK);
	fixture_start(f);
}

static void end_counting(struct fixture *f)
{
	fixture_end(f);
	sqlite3_vfs_unregister(&counting_vfs);
}

/* A small commit is one write to the log, whatever the number of pages. */
START_TEST(one_write)
{
	struct fixture f;
	struct entry entry;

	start_counting(&f);
	for (unsigned i = 0; i < 50; i++) {
		char id[32];

		snprintf(id, sizeof(id), "run-%u", i);
		make_created(&f.arena, &entry, id, "small", NULL);
		atomic_store(&writes, 0);
		append_ok(&f, &entry, 1);
		ck_assert_uint_eq(atomic_load(&writes), 1);
	}
	end_counting(&f);
}
END_TEST

enum { MANY = 400, VALUE_SIZE = 12000 }; /* some 5 MB in one transaction: past what is gathered, and past the page cache */

static void read_values(struct store_reader *reader, struct fixture *f, void *arg)
{
	for (size_t n = 0; n < MANY; n++) {
		struct entry *entries;
		size_t count;
		char id[32];

		snprintf(id, sizeof(id), "run-%zu", n);
		ck_assert_msg(reader_run_entries(reader, &f->arena, id, 0, 10, CONTENT_MAX, &entries, &count, &f->error) == 0, "%s",
			      f->error.message);
		ck_assert_uint_eq(count, 1);
		ck_assert_uint_eq(entries[0].value_count, 2);
		ck_assert(bytes_equal(entries[0].values[1].bytes, (struct bytes){(uint8_t *)arg + n, VALUE_SIZE}));
	}
}

/* A commit that is larger than what is gathered, and than the cache of pages, so that SQLite writes to the log before its end and
 * reads from it: it comes back byte by byte, from a reader at once and after a restart. */
START_TEST(large_commit)
{
	struct fixture f;
	struct entry *entries = memory_zero(MANY * sizeof(*entries));
	uint8_t *data = memory_alloc(VALUE_SIZE + MANY);
	uint32_t seed = 7;

	for (size_t i = 0; i < VALUE_SIZE + MANY; i++) {
		seed = seed * 1664525u + 1013904223u;
		data[i] = (uint8_t)(seed >> 24);
	}
	start_counting(&f);
	for (size_t n = 0; n < MANY; n++) {
		char id[32];

		snprintf(id, sizeof(id), "run-%zu", n);
		make_created(&f.arena, &entries[n], id, "large", NULL);
		entry_add_value(&f.arena, &entries[n], "value", (struct bytes){data + n, VALUE_SIZE});
	}
	atomic_store(&writes, 0);
	append_ok(&f, entries, MANY);
	ck_assert_uint_gt(atomic_load(&writes), MANY * VALUE_SIZE / STORE_WAL_GATHERED_MAX);
	ck_assert_uint_lt(atomic_load(&writes), MANY);
	read_and_wait(&f, read_values, data);
	fixture_reopen(&f);
	read_and_wait(&f, read_values, data);
	fixture_close(&f);
	check_tables_equal(&f);
	free(entries);
	free(data);
	end_counting(&f);
}
END_TEST

/* A write that finds no room shows when the file is synced: the append fails as on any full disk, nothing of it is there, and the
 * next one goes through. */
START_TEST(full_at_sync)
{
	struct fixture f;
	struct entry entry;

	start_counting(&f);
	make_created(&f.arena, &entry, "before", "full", NULL);
	append_ok(&f, &entry, 1);
	make_created(&f.arena, &entry, "run", "full", NULL);
	atomic_store(&fail_writes, 1);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_FULL);
	ck_assert_uint_eq(atomic_load(&fail_writes), 0);
	ck_assert_uint_eq(f.broken, 0);
	append_ok(&f, &entry, 1);
	ck_assert_uint_eq(entry.seq, 4);
	fixture_reopen(&f);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_EXISTS);
	fixture_close(&f);
	check_tables_equal(&f);
	end_counting(&f);
}
END_TEST

TEST_MAIN("store-wal-file", one_write, large_commit, full_at_sync)
