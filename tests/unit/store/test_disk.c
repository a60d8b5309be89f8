/* store/disk.c: the reserve, the states, what each lets through. That a really full disk behaves so: tests/integration/disk.mjs. */
#include <errno.h>
#include <sys/statvfs.h>

#include "tests/unit/store/fixture.h"

enum { RESERVE = 256 << 10, ODD_RESERVE = (200 << 10) + 1 };

/* A file system that cannot allocate, or has no room: the linker brings the store's calls here (meson.build). */
static int allocation_error;

#define ALLOCATE(name)                                                        \
	int __real_##name(int file, int mode, off_t at, off_t size);          \
	int __wrap_##name(int file, int mode, off_t at, off_t size);          \
	int __wrap_##name(int file, int mode, off_t at, off_t size)           \
	{                                                                     \
		if (allocation_error == 0)                                    \
			return __real_##name(file, mode, at, size);           \
		errno = allocation_error;                                     \
		return -1;                                                    \
	}
ALLOCATE(fallocate)
ALLOCATE(fallocate64)

static void reserve_of(const struct fixture *f, char path[300])
{
	snprintf(path, 300, "%s/reserve", f->folder);
}

static enum store_disk_state wait_for(struct fixture *f, enum store_disk_state wanted)
{
	struct store_disk disk;

	for (unsigned i = 0; i < 6000; i++) {
		store_disk(f->store, &disk);
		if (disk.state == wanted)
			break;
		usleep(10000);
	}
	return disk.state;
}

static uint64_t free_space(const struct fixture *f)
{
	struct statvfs status;

	ck_assert_int_eq(statvfs(f->folder, &status), 0);
	return (uint64_t)status.f_bavail * status.f_frsize;
}

static int append_created(struct fixture *f, const char *id, const char *parent)
{
	struct entry entry;

	make_created(&f->arena, &entry, id, "one", NULL);
	if (parent != NULL) {
		struct json *json = json_object(&f->arena);

		json_set_text(&f->arena, json, "run", parent);
		json_set_text(&f->arena, json, "step", "/do/0/x@1");
		json_set(&f->arena, entry.data, "parent", json);
	}
	return append_and_wait(f, &entry, 1, NULL);
}

/* The reserve is really allocated, kept over a restart, and made again with another size. */
START_TEST(reserve_is_there)
{
	struct fixture f;
	struct stat status;
	char path[300];

	fixture_init(&f);
	f.options.reserve_bytes = RESERVE;
	fixture_open(&f);
	reserve_of(&f, path);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_eq(status.st_size, RESERVE);
	ck_assert_int_ge(status.st_blocks * 512, RESERVE);
	ck_assert_int_eq(status.st_mode & 0777, 0600);
	fixture_close(&f);
	f.options.reserve_bytes = 2 * RESERVE;
	fixture_open(&f);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_eq(status.st_size, 2 * RESERVE);
	fixture_end(&f);
}
END_TEST

/* Where the file system cannot allocate, zeros take the room as well; where it has none, there is no reserve, not even half of one. */
START_TEST(reserve_without_allocation)
{
	static const int errors[] = {EOPNOTSUPP, ENOSYS, ENOSPC};

	for (size_t i = 0; i < COUNT_OF(errors); i++) {
		struct fixture f;
		struct stat status;
		struct store_disk disk;
		struct error error;
		char path[300];

		fixture_init(&f);
		f.options.reserve_bytes = ODD_RESERVE;
		allocation_error = errors[i];
		fixture_open(&f);
		reserve_of(&f, path);
		store_disk(f.store, &disk);
		if (errors[i] == ENOSPC) {
			ck_assert_int_eq(access(path, F_OK), -1);
			ck_assert_int_eq(disk.state, STORE_DISK_LOW);
			ck_assert_int_eq(store_disk_check(f.store, &error), ERR_FULL);
			ck_assert_ptr_nonnull(strstr(error.message, "and the reserve is gone"));
		} else {
			ck_assert_int_eq(stat(path, &status), 0);
			ck_assert_int_eq(status.st_size, ODD_RESERVE);
			ck_assert_int_ge(status.st_blocks * 512, ODD_RESERVE);
			ck_assert_int_eq(disk.state, STORE_DISK_OK);
		}
		ck_assert_uint_eq(disk.reserve_bytes, errors[i] == ENOSPC ? 0 : ODD_RESERVE);
		allocation_error = 0;
		fixture_end(&f);
	}
}
END_TEST

/* Each state has the name that metrics and the API show. */
START_TEST(states_have_names)
{
	ck_assert_str_eq(store_disk_state_name(STORE_DISK_OK), "ok");
	ck_assert_str_eq(store_disk_state_name(STORE_DISK_LOW), "low");
	ck_assert_str_eq(store_disk_state_name(STORE_DISK_FULL), "full");
}
END_TEST

static int64_t wait_for_hold(struct fixture *f, bool held)
{
	struct store_disk disk;

	for (unsigned i = 0; i < 3000; i++) {
		store_disk(f->store, &disk);
		if ((disk.held_ms >= 3000) == held)
			break;
		usleep(10000);
	}
	return disk.held_ms;
}

/* How long somebody has held up the log is counted from the first copy that was not whole to the last one. It is over when nobody does any more, also where no
 * commit asks for a copy. */
START_TEST(a_log_that_is_held_up)
{
	struct fixture f;
	struct store_disk disk;
	sqlite3 *reader;

	fixture_start(&f);
	store_disk(f.store, &disk);
	ck_assert_int_eq(disk.held_ms, 0);
	ck_assert_int_eq(sqlite3_open_v2(f.store->database_path, &reader, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM run", NULL, NULL, NULL), SQLITE_OK);
	ck_assert_int_eq(append_created(&f, "later", NULL), 0);
	disk_note_copy(f.store, false);
	atomic_fetch_sub(&f.store->disk.held_since_us, 3000000);
	ck_assert_int_ge(wait_for_hold(&f, true), 3000);
	ck_assert_int_eq(sqlite3_exec(reader, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	ck_assert_int_eq(wait_for_hold(&f, false), 0);
	sqlite3_close(reader);
	fixture_end(&f);
}
END_TEST

/* With too little free space new work is refused with what is wrong, and work of runs that are there goes on; with enough it is taken again. */
START_TEST(low_refuses_new_work_alone)
{
	struct fixture f;
	struct entry ended;
	struct error error;

	fixture_start(&f);
	ck_assert_int_eq(append_created(&f, "before", NULL), 0);
	fixture_close(&f);
	f.options.reserve_bytes = RESERVE;
	f.options.low_bytes = free_space(&f) + (64ULL << 30);
	fixture_open(&f);
	ck_assert_int_eq(wait_for(&f, STORE_DISK_LOW), STORE_DISK_LOW);
	ck_assert_int_eq(store_disk_check(f.store, &error), ERR_FULL);
	ck_assert_ptr_nonnull(strstr(error.message, f.folder));
	ck_assert_ptr_nonnull(strstr(error.message, "limits.lowSpace"));
	ck_assert_ptr_nonnull(strstr(error.message, "Make room"));
	ck_assert_int_eq(append_created(&f, "refused", NULL), ERR_FULL);
	ck_assert_int_eq(append_created(&f, "before", NULL), ERR_EXISTS); /* what is known is answered as ever */
	ck_assert_int_eq(append_created(&f, "child", "before"), 0);
	ended = (struct entry){.kind = ENTRY_RUN_CANCELLED, .data = run_data(&f.arena, "before"), .time_ms = fixture_wall_ms()};
	ck_assert_int_eq(append_and_wait(&f, &ended, 1, NULL), 0);
	fixture_close(&f);
	f.options.low_bytes = 1;
	fixture_open(&f);
	ck_assert_int_eq(append_created(&f, "refused", NULL), 0);
	fixture_end(&f);
}
END_TEST

/* A write that finds no room takes the reserve first, and succeeds with it; with nothing left the disk is full, and low after the next
 * write that goes well. */
START_TEST(reserve_is_given_back_first)
{
	struct fixture f;
	struct store_disk disk;
	char path[300];

	fixture_init(&f);
	f.options.reserve_bytes = RESERVE;
	fixture_open(&f);
	reserve_of(&f, path);
	ck_assert(disk_make_room(f.store));
	ck_assert_int_ne(access(path, F_OK), 0);
	store_disk(f.store, &disk);
	ck_assert_int_eq(disk.state, STORE_DISK_LOW);
	ck_assert_int_eq(disk.reserve_bytes, 0);
	/* The thread that looks around may have made it again by now; then this gives it back once more. */
	while (disk_make_room(f.store))
		;
	store_disk(f.store, &disk);
	ck_assert_int_eq(disk.state, STORE_DISK_FULL);
	ck_assert_int_eq(append_created(&f, "refused", NULL), ERR_FULL);
	ck_assert_int_eq(wait_for(&f, STORE_DISK_OK), STORE_DISK_OK);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_eq(append_created(&f, "refused", NULL), 0);
	fixture_end(&f);
}
END_TEST

/* A write-ahead log of twice the limit stops all writing, and says what to end. */
START_TEST(long_log_stops_writing)
{
	struct fixture f;
	struct error error = {0};

	fixture_init(&f);
	f.options.reserve_bytes = RESERVE;
	f.options.wal_max_bytes = 32 << 20;
	fixture_open(&f);
	ck_assert_int_eq(disk_check_log(f.store, (64 << 20) - 1, &error), 0);
	ck_assert_int_eq(disk_check_log(f.store, 64 << 20, &error), ERR_FULL);
	ck_assert_ptr_nonnull(strstr(error.message, "limits.wal"));
	ck_assert_ptr_nonnull(strstr(error.message, "end it"));
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-disk", reserve_is_there, reserve_without_allocation, states_have_names, a_log_that_is_held_up, low_refuses_new_work_alone, reserve_is_given_back_first, long_log_stops_writing)
