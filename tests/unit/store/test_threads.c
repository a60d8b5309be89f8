/* A machine that has no room for another thread: opening the journal and a backup say so, leave nothing behind, and succeed the next time. */
#include "tests/unit/store/fixture.h"

static int left = -1; /* threads that can yet be started; -1: any number */

int __real_uv_thread_create_ex(uv_thread_t *thread, const uv_thread_options_t *options, uv_thread_cb run, void *arg);
int __wrap_uv_thread_create_ex(uv_thread_t *thread, const uv_thread_options_t *options, uv_thread_cb run, void *arg);

int __wrap_uv_thread_create_ex(uv_thread_t *thread, const uv_thread_options_t *options, uv_thread_cb run, void *arg)
{
	if (left == 0)
		return UV_EAGAIN;
	left -= left > 0;
	return __real_uv_thread_create_ex(thread, options, run, arg);
}

START_TEST(opens_when_there_is_room)
{
	enum { THREADS = 3 };

	for (int room = 0; room < THREADS; room++) {
		struct fixture f;
		struct store *store;
		struct error error;
		struct entry entry;

		fixture_init(&f);
		left = room;
		ck_assert_int_eq(store_open(&store, &f.loop, &f.options, &error), ERR_BUSY);
		ck_assert_ptr_nonnull(strstr(error.message, "a thread cannot be started: resource temporarily unavailable"));
		ck_assert_ptr_null(store);
		uv_run(&f.loop, UV_RUN_DEFAULT);
		left = -1;
		fixture_open(&f);
		make_created(&f.arena, &entry, "run", "one", NULL);
		append_ok(&f, &entry, 1);
		fixture_end(&f);
	}
}
END_TEST

static void on_backup(struct store_backup *backup)
{
	*(bool *)backup->owner = true;
}

START_TEST(backs_up_when_there_is_room)
{
	struct fixture f;
	char path[300], partial[320];

	fixture_init(&f);
	fixture_open(&f);
	snprintf(path, sizeof(path), "%s/copy.db", f.folder);
	snprintf(partial, sizeof(partial), "%s.partial", path);
	for (left = 0; left > -2; left = left == 0 ? -1 : -2) {
		bool done = false;
		struct store_backup backup = {.path = path, .on_done = on_backup, .owner = &done};

		ck_assert_int_eq(store_backup(f.store, &backup), 0);
		while (!done)
			uv_run(&f.loop, UV_RUN_ONCE);
		ck_assert_msg(backup.error.code == (left == 0 ? ERR_BUSY : ERR_NONE), "%s", backup.error.message);
		ck_assert_int_eq(access(path, F_OK) == 0, left != 0);
		ck_assert_int_ne(access(partial, F_OK), 0);
	}
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-threads", opens_when_there_is_room, backs_up_when_there_is_room)
