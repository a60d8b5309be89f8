/* store/backup.c: what a copy is, and what ends one. Under load, killed and restored: tests/integration/backup.mjs. */
#include <fcntl.h>

#include "tests/unit/store/fixture.h"

static void on_backup(struct store_backup *backup)
{
	*(bool *)backup->owner = true;
}

static int back_up(struct fixture *f, struct store_backup *backup, const char *path)
{
	bool done = false;

	memset(backup, 0, sizeof(*backup));
	backup->path = path;
	backup->on_done = on_backup;
	backup->owner = &done;
	ck_assert_int_eq(store_backup(f->store, backup), 0);
	while (!done)
		uv_run(&f->loop, UV_RUN_ONCE);
	return (int)backup->error.code;
}

static void start_with_run(struct fixture *f, char path[300])
{
	struct entry entry;

	fixture_init(f);
	f->options.low_bytes = 1;
	fixture_open(f);
	make_created(&f->arena, &entry, "run", "one", NULL);
	append_ok(f, &entry, 1);
	snprintf(path, 300, "%s/copy.db", f->folder);
}

/* A copy is whole, marked, readable by its owner alone, and has all that was there; a file that exists is left alone. */
START_TEST(copy_is_whole)
{
	struct fixture f;
	struct store_backup backup;
	struct store_copy copy;
	struct error error;
	struct stat status;
	char path[300], partial[320];

	start_with_run(&f, path);
	ck_assert_msg(back_up(&f, &backup, path) == 0, "%s", backup.error.message);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_eq(status.st_mode & 0777, 0600);
	ck_assert_uint_eq((uint64_t)status.st_size, backup.bytes);
	ck_assert_int_eq(store_check_copy(path, &copy, &error), 0);
	ck_assert(copy.is_marked);
	ck_assert_uint_eq(copy.entries, 4);
	ck_assert_uint_eq(copy.checkpoint, 4); /* one was signed for it */
	ck_assert_uint_eq(copy.open_runs, 1);
	ck_assert_str_eq(copy.origin, store_origin(f.store));
	ck_assert_int_eq(back_up(&f, &backup, path), ERR_EXISTS);
	snprintf(partial, sizeof(partial), "%s.partial", path);
	ck_assert_int_ne(access(partial, F_OK), 0);
	fixture_end(&f);
}
END_TEST

/* What a kill left at the place where the copy is made is taken away. */
START_TEST(left_overs_are_taken_away)
{
	struct fixture f;
	struct store_backup backup;
	char path[300], partial[320];
	int file;

	start_with_run(&f, path);
	snprintf(partial, sizeof(partial), "%s.partial", path);
	file = open(partial, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_eq(write(file, "half", 4), 4);
	close(file);
	ck_assert_msg(back_up(&f, &backup, path) == 0, "%s", backup.error.message);
	ck_assert_int_ne(access(partial, F_OK), 0);
	fixture_end(&f);
}
END_TEST

/* A path that is not absolute, and a folder that is not there, are told; nothing is made. */
START_TEST(bad_paths_are_told)
{
	struct fixture f;
	struct store_backup backup;
	char path[300];

	start_with_run(&f, path);
	ck_assert_int_eq(back_up(&f, &backup, "copy.db"), ERR_INVALID);
	snprintf(path, sizeof(path), "%s/nowhere/copy.db", f.folder);
	ck_assert_int_eq(back_up(&f, &backup, path), ERR_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(backup.error.message, path));
	fixture_end(&f);
}
END_TEST

/* One at a time; closing the store cancels it, and its callback fires before that returns. */
START_TEST(closing_cancels)
{
	struct fixture f;
	struct store_backup backup = {0}, second = {0};
	char path[300];
	bool done = false;

	start_with_run(&f, path);
	backup.path = second.path = path;
	backup.on_done = on_backup;
	backup.owner = &done;
	ck_assert_int_eq(store_backup(f.store, &backup), 0);
	ck_assert_int_eq(store_backup(f.store, &second), ERR_BUSY);
	fixture_close(&f);
	ck_assert(done);
	ck_assert_int_eq(backup.error.code, ERR_CANCELLED);
	ck_assert_int_ne(access(path, F_OK), 0);
	fixture_open(&f);
	fixture_end(&f);
}
END_TEST

/* Cancelled before it begins, it ends so and leaves nothing; while it copies or verifies it ends so, or had just ended. The next one is not cancelled. */
START_TEST(it_can_be_cancelled)
{
	struct fixture f;
	struct store_backup backup;
	char path[300], partial[320];

	start_with_run(&f, path);
	snprintf(partial, sizeof(partial), "%s.partial", path);
	for (unsigned i = 0; i < 20; i++) {
		bool done = false, cancelled = false;

		memset(&backup, 0, sizeof(backup));
		backup.path = path;
		backup.on_done = on_backup;
		backup.owner = &done;
		ck_assert_int_eq(store_backup(f.store, &backup), 0);
		while (!done) {
			if (!cancelled && (i == 0 || f.store->backup.is_running)) {
				usleep(i * 200); /* somewhere on its way */
				store_backup_cancel(f.store);
				cancelled = true;
			}
			uv_run(&f.loop, UV_RUN_ONCE);
		}
		if (i == 0 || backup.error.code != ERR_NONE) {
			ck_assert_int_eq(backup.error.code, ERR_CANCELLED);
			ck_assert_ptr_nonnull(strstr(backup.error.message, "nothing of it is kept"));
			ck_assert_int_ne(access(path, F_OK), 0);
		} else {
			ck_assert_int_eq(unlink(path), 0);
		}
		ck_assert_int_ne(access(partial, F_OK), 0);
	}
	ck_assert_msg(back_up(&f, &backup, path) == 0, "%s", backup.error.message);
	fixture_end(&f);
}
END_TEST

/* A copy that is behind a checkpoint that somebody knows is not restored, and neither is one of another log: what was known later would be gone. */
START_TEST(a_known_checkpoint_is_held_against_it)
{
	struct fixture f, g, fresh;
	struct store_backup backup;
	struct store_sign newer, foreign;
	struct entry entry;
	struct error error;
	char path[300], other[300];

	start_with_run(&f, path);
	ck_assert_msg(back_up(&f, &backup, path) == 0, "%s", backup.error.message);
	make_created(&f.arena, &entry, "later", "one", NULL);
	append_ok(&f, &entry, 1);
	sign_and_wait(&f, &newer);
	start_with_run(&g, other);
	sign_and_wait(&g, &foreign);
	fixture_init(&fresh);
	const struct {
		const struct buffer *note;
		int code;
		const char *words;
	} cases[] = {{&newer.note, ERR_CORRUPT, "journal-rolled-back"}, {&foreign.note, ERR_INVALID, "is no checkpoint of log"}};
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		const struct bytes known = buffer_bytes(cases[i].note);
		struct store_restore restore = {.source = path, .data_dir = fresh.folder, .checkpoints = &known, .checkpoint_count = 1};

		ck_assert_int_eq(store_restore(&restore, &error), cases[i].code);
		ck_assert_msg(strstr(error.message, cases[i].words) != NULL, "%s", error.message);
	}
	/* Without any, nobody knows how far the log had come. */
	struct store_restore blind = {.source = path, .data_dir = fresh.folder};
	ck_assert_int_eq(store_restore(&blind, &error), ERR_INVALID);
	fixture_open(&fresh); /* nothing was put there */
	ck_assert_uint_eq(fresh.store->writer.tree.size, 3);
	fixture_end(&fresh);
	buffer_close(&newer.note);
	buffer_close(&foreign.note);
	fixture_end(&g);
	fixture_end(&f);
}
END_TEST

/* With the write-ahead log at half its limit a backup is given up, and says what to do. */
START_TEST(long_log_ends_it)
{
	struct fixture f;
	struct store_backup backup;
	char path[300];
	int code = 0;

	start_with_run(&f, path);
	/* The thread that looks once a second may put the true size back in between. */
	for (unsigned tries = 0; code == 0 && tries < 10; tries++) {
		unlink(path);
		atomic_store(&f.store->disk.wal_bytes, (unsigned long long)STORE_WAL_MAX_MIB << 19);
		code = back_up(&f, &backup, path);
	}
	ck_assert_int_eq(code, ERR_FULL);
	ck_assert_ptr_nonnull(strstr(backup.error.message, "half of limits.wal"));
	ck_assert_int_ne(access(path, F_OK), 0);
	atomic_store(&f.store->disk.wal_bytes, 0);
	ck_assert_msg(back_up(&f, &backup, path) == 0, "%s", backup.error.message);
	fixture_end(&f);
}
END_TEST

/* A journal that was not stopped well has its last commits in the write-ahead log beside it: a restore of it has them too. */
START_TEST(log_beside_it_is_restored)
{
	struct store_restore restore = {.original_is_gone = true};
	char path[300], command[1024], folder[300], journal[320];
	struct fixture f, restored;
	struct store_copy copy;
	struct error error;
	struct entry entry;

	start_with_run(&f, path);
	snprintf(folder, sizeof(folder), "%s/killed", f.folder);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	make_created(&f.arena, &entry, "another", "two", NULL);
	append_ok(&f, &entry, 1);
	snprintf(command, sizeof(command), "cp %s/journal.db %s/journal.db-wal %s", f.folder, f.folder, folder); /* as a kill leaves them */
	ck_assert_int_eq(system(command), 0);
	snprintf(journal, sizeof(journal), "%s/journal.db", folder);
	ck_assert_int_eq(store_check_copy(journal, &copy, &error), 0);
	ck_assert_uint_eq(copy.entries, 5);
	ck_assert(!copy.is_marked);
	restore.source = journal;
	fixture_init(&restored);
	restore.data_dir = restored.folder;
	ck_assert_msg(store_restore(&restore, &error) == 0, "%s", error.message);
	snprintf(command, sizeof(command), "cp -r %s/keys %s", f.folder, restored.folder);
	ck_assert_int_eq(system(command), 0);
	fixture_open(&restored);
	ck_assert_uint_ge(restored.store->writer.tree.size, 5);
	ck_assert_str_eq(store_origin(restored.store), store_origin(f.store));
	fixture_end(&restored);
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-backup", copy_is_whole, log_beside_it_is_restored, left_overs_are_taken_away, bad_paths_are_told, closing_cancels, it_can_be_cancelled, a_known_checkpoint_is_held_against_it, long_log_ends_it)
