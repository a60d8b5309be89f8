/* What the store's tests share: a scratch folder, a loop, a store on it, and calls that wait. Threads are made inside a
 * test, never in an unchecked fixture: Check forks. */
#pragma once

#include <check.h>
#include <dirent.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "store/internal.h"
#include "workflow/base/check.h"

#define UNUSED __attribute__((unused))

struct fixture {
	char folder[256];
	uv_loop_t loop;
	struct store_options options;
	struct store *store;
	struct arena arena;
	struct error error;
	unsigned broken;
	bool small_disk;
};

static UNUSED uint64_t fixture_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static UNUSED int64_t fixture_wall_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static UNUSED void fixture_on_broken(void *arg, const struct error *error)
{
	struct fixture *f = arg;

	f->broken++;
	f->error = *error;
}

static UNUSED int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
	(void)status;
	(void)type;
	(void)walk;
	return remove(path);
}

static UNUSED void remove_tree(const char *folder)
{
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* A folder and a loop, no store yet. */
static UNUSED void fixture_init(struct fixture *f)
{
	const char *parent = getenv("TMPDIR");

	memset(f, 0, sizeof(*f));
	snprintf(f->folder, sizeof(f->folder), "%s/reprise-store-XXXXXX", parent ? parent : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(f->folder));
	ck_assert_int_eq(uv_loop_init(&f->loop), 0);
	arena_init(&f->arena);
	f->options = (struct store_options){
		.data_dir = f->folder, .now_us = fixture_now_us, .wall_ms = fixture_wall_ms, .on_broken = fixture_on_broken, .arg = f};
}

/* In a mount namespace of this process; needs the right to do so. False: the folder stays on the disk of all. */
static UNUSED bool fixture_mount_small_disk(struct fixture *f, const char *size)
{
	char options[64];

	snprintf(options, sizeof(options), "size=%s,mode=0700", size);
	f->small_disk = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("tmpfs", f->folder, "tmpfs", 0, options) == 0;
	return f->small_disk;
}

static UNUSED void fixture_open(struct fixture *f)
{
	struct error error;
	int code = store_open(&f->store, &f->loop, &f->options, &error);

	ck_assert_msg(code == 0, "%s", error.message);
}

static UNUSED void fixture_close(struct fixture *f)
{
	store_close(f->store);
	f->store = NULL;
	uv_run(&f->loop, UV_RUN_DEFAULT);
}

static UNUSED void fixture_reopen(struct fixture *f)
{
	fixture_close(f);
	fixture_open(f);
}

static UNUSED void fixture_end(struct fixture *f)
{
	if (f->store != NULL)
		fixture_close(f);
	ck_assert_int_eq(uv_loop_close(&f->loop), 0); /* Finds a handle that leaked. */
	arena_close(&f->arena);
	remove_tree(f->folder);
}

static UNUSED void fixture_start(struct fixture *f)
{
	fixture_init(f);
	fixture_open(f);
}

/* --- entries -------------------------------------------------------------------------------------------------------- */

static UNUSED struct json *run_data(struct arena *arena, const char *run_id)
{
	struct json *data = json_object(arena);

	json_set_text(arena, data, "runId", run_id);
	return data;
}

static UNUSED void make_created(struct arena *arena, struct entry *entry, const char *run_id, const char *name, const char *labels)
{
	struct json *workflow = json_object(arena);
	struct digest definition = digest_of(bytes_text(name)), request = digest_of(bytes_text(run_id));

	*entry = (struct entry){.kind = ENTRY_RUN_CREATED, .data = run_data(arena, run_id), .time_ms = fixture_wall_ms()};
	json_set_text(arena, workflow, "namespace", "tests");
	json_set_text(arena, workflow, "name", name);
	json_set_text(arena, workflow, "version", "1.0.0");
	json_set(arena, entry->data, "workflow", workflow);
	json_set_digest(arena, entry->data, "definition", &definition);
	json_set_digest(arena, entry->data, "request", &request);
	entry_add_value(arena, entry, "input", bytes_text(arena_printf(arena, "{\"of\":\"%s\"}", run_id)));
	if (labels != NULL)
		entry_add_value(arena, entry, "labels", bytes_text(arena_text(arena, labels)));
}

static UNUSED void make_step(struct arena *arena, struct entry *entry, enum entry_kind kind, const char *run_id, const char *step, struct bytes output)
{
	*entry = (struct entry){.kind = kind, .data = run_data(arena, run_id), .time_ms = fixture_wall_ms()};
	if (step != NULL)
		json_set_text(arena, entry->data, "stepId", step);
	if (output.data != NULL)
		entry_add_value(arena, entry, "output", output);
}

/* --- calls that wait ------------------------------------------------------------------------------------------------- */

static UNUSED void on_append_done(struct store_append *append)
{
	bool *done = append->owner;

	*done = true;
}

static UNUSED int append_and_wait(struct fixture *f, struct entry *entries, size_t count, struct store_append *result)
{
	bool done = false;
	struct store_append append = {.entries = entries, .entry_count = count, .on_done = on_append_done, .owner = &done};

	ck_assert_int_eq(store_append(f->store, &append), 0);
	while (!done)
		uv_run(&f->loop, UV_RUN_ONCE);
	f->error = append.error;
	if (result != NULL)
		*result = append;
	return (int)append.error.code;
}

static UNUSED void append_ok(struct fixture *f, struct entry *entries, size_t count)
{
	ck_assert_msg(append_and_wait(f, entries, count, NULL) == 0, "%s", f->error.message);
}

struct waiting_read {
	struct store_read read;
	void (*work)(struct store_reader *reader, struct fixture *f, void *arg);
	struct fixture *f;
	void *arg;
	bool done;
};

static UNUSED void on_read_work(struct store_reader *reader, struct store_read *read)
{
	struct waiting_read *waiting = read->owner;

	waiting->work(reader, waiting->f, waiting->arg);
}

static UNUSED void on_read_done(struct store_read *read)
{
	struct waiting_read *waiting = read->owner;

	waiting->done = true;
}

/* Run `work` on the reader thread; the loop thread waits, so asserting in it is safe. */
static UNUSED void read_and_wait(struct fixture *f, void (*work)(struct store_reader *reader, struct fixture *f, void *arg), void *arg)
{
	struct waiting_read waiting = {.work = work, .f = f, .arg = arg, .read = {.work = on_read_work, .on_done = on_read_done}};

	waiting.read.owner = &waiting;
	ck_assert_int_eq(store_read(f->store, &waiting.read), 0);
	while (!waiting.done)
		uv_run(&f->loop, UV_RUN_ONCE);
	ck_assert_msg(waiting.read.error.code == 0, "%s", waiting.read.error.message);
	arena_close(&waiting.read.arena);
}

static UNUSED void on_signed(struct store_sign *sign)
{
	bool *done = sign->owner;

	*done = true;
}

static UNUSED void sign_and_wait(struct fixture *f, struct store_sign *sign)
{
	bool done = false;

	*sign = (struct store_sign){.on_done = on_signed, .owner = &done};
	ck_assert_int_eq(store_sign_checkpoint(f->store, sign), 0);
	while (!done)
		uv_run(&f->loop, UV_RUN_ONCE);
	ck_assert_msg(sign->error.code == 0, "%s", sign->error.message);
}

/* A second, plain connection, as an operator with sqlite3 would have. */
static UNUSED sqlite3 *plain_open(struct fixture *f)
{
	char path[512];
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s/journal.db", f->folder);
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	return db;
}

static UNUSED int plain_exec(struct fixture *f, const char *sql)
{
	sqlite3 *db = plain_open(f);
	int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

	sqlite3_close(db);
	return rc;
}

static UNUSED void check_tables_equal(struct fixture *f)
{
	struct error error;

	ck_assert_msg(store_check_tables(f->folder, &error) == 0, "%s", error.message);
}

#define TEST_MAIN(name, ...)                                                                \
	int main(void)                                                                      \
	{                                                                                   \
		const TTest *const tests[] = {__VA_ARGS__};                          \
		Suite *suite = suite_create(name);                                          \
		TCase *tcase = tcase_create(name);                                          \
		SRunner *runner = srunner_create(suite);                                    \
		int failed;                                                                 \
											    \
		tcase_set_timeout(tcase, 300);                                              \
		for (size_t i = 0; i < COUNT_OF(tests); i++)                                \
			tcase_add_test(tcase, tests[i]);                                    \
		suite_add_tcase(suite, tcase);                                              \
		srunner_run_all(runner, CK_NORMAL);                                         \
		failed = srunner_ntests_failed(runner);                                     \
		srunner_free(runner);                                                       \
		return failed != 0;                                                         \
	}
