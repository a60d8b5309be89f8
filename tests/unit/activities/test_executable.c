/* What is executed is what was hashed: programs, scripts, scripts of env, and what cannot be started. On real files. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activities/executable.h"
#include "workflow/base/check.h"

static char folder[] = "/tmp/reprise-executable-XXXXXX";
static const char *const env[] = {"PATH=/no/such/folder:/usr/bin:/bin", NULL};
static const atomic_bool go_on = false;

static const char *make_file(struct arena *arena, const char *name, const char *text, mode_t mode)
{
	const char *path = arena_printf(arena, "%s/%s", folder, name);
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
	chmod(path, mode);
	return path;
}

static struct digest digest_file(struct arena *arena, const char *path)
{
	FILE *file = fopen(path, "r");
	char *text = arena_alloc(arena, 64 << 20);
	size_t len;

	ck_assert_ptr_nonnull(file);
	len = fread(text, 1, 64 << 20, file);
	fclose(file);
	return digest_of((struct bytes){(uint8_t *)text, len});
}

static void expect_argv(const struct executable *executable, const char *expected)
{
	struct buffer text;

	buffer_init(&text, 1 << 16);
	for (size_t i = 0; executable->argv[i] != NULL; i++)
		buffer_printf(&text, "%s|", executable->argv[i]);
	ck_assert_str_eq(buffer_text(&text), expected);
	buffer_close(&text);
}

/* A program is found along PATH, hashed whole, and its arguments are as they were. */
START_TEST(program)
{
	const char *const argv[] = {"sh", "-c", "exit 0", NULL};
	struct executable executable;
	struct digest expected;
	struct arena arena;
	struct error error;

	arena_init(&arena);
	ck_assert_int_eq(executable_open(&arena, argv, env, &executable, &go_on, &error), 0);
	ck_assert_uint_eq(executable.file_count, 1);
	ck_assert_str_eq(executable.files[0].path, "/usr/bin/sh");
	expected = digest_file(&arena, "/bin/sh");
	ck_assert(digest_equal(&executable.files[0].digest, &expected));
	expect_argv(&executable, "sh|-c|exit 0|");
	executable_close(&executable);
	ck_assert_int_eq(executable.fd, -1);
	arena_close(&arena);
}
END_TEST

/* A script is run by its interpreter with one argument; what env would find is found here; options of env are left to it. */
START_TEST(scripts)
{
	struct executable executable;
	struct digest expected;
	struct arena arena;
	struct error error;
	const char *path;

	arena_init(&arena);
	path = make_file(&arena, "script", "#! /bin/sh -e  \necho\n", 0755);
	ck_assert_int_eq(executable_open(&arena, (const char *const[]){path, "a", NULL}, env, &executable, &go_on, &error), 0);
	ck_assert_uint_eq(executable.file_count, 2);
	expected = digest_file(&arena, path);
	ck_assert(digest_equal(&executable.files[0].digest, &expected));
	expected = digest_file(&arena, "/bin/sh");
	ck_assert(digest_equal(&executable.files[1].digest, &expected));
	expect_argv(&executable, arena_printf(&arena, "/bin/sh|-e|%s|a|", path));
	executable_close(&executable);

	path = make_file(&arena, "env", "#!/usr/bin/env sh\n", 0755);
	ck_assert_int_eq(executable_open(&arena, (const char *const[]){path, NULL}, env, &executable, &go_on, &error), 0);
	ck_assert(digest_equal(&executable.files[1].digest, &expected));
	expect_argv(&executable, arena_printf(&arena, "/usr/bin/sh|%s|", path));
	executable_close(&executable);

	path = make_file(&arena, "options", "#!/usr/bin/env -S sh -e\n", 0755);
	ck_assert_int_eq(executable_open(&arena, (const char *const[]){path, NULL}, env, &executable, &go_on, &error), 0);
	expect_argv(&executable, arena_printf(&arena, "/usr/bin/env|-S sh -e|%s|", path));
	executable_close(&executable);

	path = make_file(&arena, "nobody", "#!/usr/bin/env no-such-program\n", 0755);
	ck_assert_int_eq(executable_open(&arena, (const char *const[]){path, NULL}, env, &executable, &go_on, &error), ERR_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(error.message, "no-such-program"));
	ck_assert_int_eq(executable.fd, -1);
	arena_close(&arena);
}
END_TEST

/* Scripts of scripts up to EXECUTABLE_FILES_MAX files. */
START_TEST(depth)
{
	struct executable executable;
	struct arena arena;
	struct error error;
	const char *path = "/bin/sh";

	arena_init(&arena);
	for (int i = 1; i <= EXECUTABLE_FILES_MAX; i++) {
		path = make_file(&arena, arena_printf(&arena, "deep%d", i), arena_printf(&arena, "#!%s\n", path), 0755);
		ck_assert_int_eq(executable_open(&arena, (const char *const[]){path, NULL}, env, &executable, &go_on, &error),
				 i < EXECUTABLE_FILES_MAX ? 0 : ERR_TOO_LARGE);
		ck_assert_uint_eq(executable.file_count, i < EXECUTABLE_FILES_MAX ? (size_t)i + 1 : EXECUTABLE_FILES_MAX);
		executable_close(&executable);
	}
	arena_close(&arena);
}
END_TEST

/* What is no program, or may not be one, is told with its path; so is a name where nobody said where to look. */
START_TEST(mistakes)
{
	static const char *const no_path[] = {"HOME=/", NULL};
	const atomic_bool stop = true;
	struct executable executable;
	struct arena arena;
	struct error error;

	arena_init(&arena);
	ck_assert_int_eq(executable_open(&arena, (const char *const[]){"/no/such", NULL}, env, &executable, &go_on, &error), ERR_NOT_FOUND);
	ck_assert_int_eq(executable_open(&arena, (const char *const[]){"no-such", NULL}, env, &executable, &go_on, &error), ERR_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(error.message, "no folder of PATH"));
	ck_assert_int_eq(executable_open(&arena, (const char *const[]){"sh", NULL}, no_path, &executable, &go_on, &error), ERR_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(error.message, "launch.inherit: [PATH]"));
	ck_assert_int_eq(executable_open(&arena, (const char *const[]){"/tmp", NULL}, env, &executable, &go_on, &error), ERR_INVALID);
	ck_assert_int_eq(executable_open(&arena, (const char *const[]){make_file(&arena, "plain", "x", 0644), NULL}, env, &executable, &go_on, &error), ERR_DENIED);
	ck_assert_int_eq(executable_open(&arena, (const char *const[]){"/bin/sh", NULL}, env, &executable, &stop, &error), ERR_CANCELLED);
	ck_assert_int_eq(executable.fd, -1);
	arena_close(&arena);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("executable");
	TCase *all = tcase_create("all");
	SRunner *runner;
	int failed;

	CHECK(mkdtemp(folder) != NULL);
	tcase_add_test(all, program);
	tcase_add_test(all, scripts);
	tcase_add_test(all, depth);
	tcase_add_test(all, mistakes);
	suite_add_tcase(suite, all);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
