/* The log of a launched runtime: what is kept of its lines, and how large its file gets. On real files. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activities/runtime_log.h"
#include "workflow/base/check.h"

struct fixture {
	char path[64];
	struct runtime_log log;
	int writer; /* as the runtime has it */
};

static void open_fixture(struct fixture *f)
{
	struct error error;
	int fd;

	snprintf(f->path, sizeof(f->path), "/tmp/reprise-log-XXXXXX");
	fd = mkstemp(f->path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "of an earlier daemon\n", 21), 21);
	close(fd);
	runtime_log_init(&f->log);
	ck_assert_int_eq(runtime_log_open(&f->log, f->path, &error), 0);
	f->writer = open(f->path, O_WRONLY | O_APPEND);
}

static void close_fixture(struct fixture *f)
{
	close(f->writer);
	runtime_log_close(&f->log);
	unlink(f->path);
}

static void say(struct fixture *f, const char *text, size_t len)
{
	ck_assert_int_eq(write(f->writer, text, len), (ssize_t)len);
}

static void expect_lines(struct fixture *f, const char *expected)
{
	static struct bytes lines[2 * RUNTIME_LOG_LINES_MAX];
	size_t count = runtime_log_lines(&f->log, lines, COUNT_OF(lines));
	struct buffer text;

	buffer_init(&text, 1 << 24);
	for (size_t i = 0; i < count; i++) {
		buffer_add_bytes(&text, lines[i]);
		buffer_add_char(&text, '|');
	}
	ck_assert_str_eq(buffer_text(&text), expected);
	buffer_close(&text);
}

/* Lines are put together over any number of reads; what was there before is not read; the last line counts without an end when all is over. */
START_TEST(lines_are_followed)
{
	struct fixture f;

	open_fixture(&f);
	say(&f, "one\ntw", 6);
	runtime_log_read(&f.log);
	expect_lines(&f, "one|");
	say(&f, "o\r\n\n10%\r20%\rlast", 16);
	runtime_log_read(&f.log);
	expect_lines(&f, "one|two|10%|20%|");
	runtime_log_finish(&f.log);
	expect_lines(&f, "one|two|10%|20%|last|");
	runtime_log_clear(&f.log);
	expect_lines(&f, "");
	say(&f, "next\n", 5);
	runtime_log_read(&f.log);
	expect_lines(&f, "next|");
	ck_assert_uint_eq(runtime_log_lines(&f.log, NULL, 0), 0);
	close_fixture(&f);
}
END_TEST

static void count_line(void *arg, struct bytes line)
{
	ck_assert_uint_gt(line.len, 0);
	ck_assert_uint_le(line.len, RUNTIME_LOG_LINE_MAX);
	++*(size_t *)arg;
}

/* RUNTIME_LOG_LINES_MAX lines are kept, of each its first RUNTIME_LOG_LINE_MAX bytes; who wants them as they come has them all. */
START_TEST(lines_are_bounded)
{
	static char longest[RUNTIME_LOG_LINE_MAX + 100];
	struct bytes lines[RUNTIME_LOG_LINES_MAX];
	size_t told = 0;
	struct fixture f;
	char text[32];

	open_fixture(&f);
	f.log.on_line = count_line;
	f.log.arg = &told;
	for (int i = 0; i < RUNTIME_LOG_LINES_MAX + 3; i++)
		say(&f, text, (size_t)snprintf(text, sizeof(text), "line %d\n", i));
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\n';
	say(&f, longest, sizeof(longest));
	say(&f, "end\n", 4);
	runtime_log_read(&f.log);
	ck_assert_uint_eq(runtime_log_lines(&f.log, lines, COUNT_OF(lines)), RUNTIME_LOG_LINES_MAX);
	ck_assert_uint_eq(told, RUNTIME_LOG_LINES_MAX + 3 + 2);
	ck_assert(bytes_equal_text(lines[0], "line 5"));
	ck_assert_uint_eq(lines[RUNTIME_LOG_LINES_MAX - 2].len, RUNTIME_LOG_LINE_MAX);
	ck_assert(bytes_equal_text(lines[RUNTIME_LOG_LINES_MAX - 1], "end"));
	ck_assert_uint_eq(runtime_log_lines(&f.log, lines, 1), 1);
	ck_assert(bytes_equal_text(lines[0], "end"));
	close_fixture(&f);
}
END_TEST

/* Of more than RUNTIME_LOG_READ_MAX at once only the last is looked at, from a whole line on; and a file past RUNTIME_LOG_MAX is begun anew, its
 * writer goes on at the start. */
START_TEST(file_is_bounded)
{
	static char noise[1 << 20];
	struct bytes lines[RUNTIME_LOG_LINES_MAX];
	struct fixture f;
	struct stat status;

	open_fixture(&f);
	memset(noise, 'n', sizeof(noise));
	for (size_t i = 99; i < sizeof(noise); i += 100)
		noise[i] = '\n';
	for (int i = 0; i < (RUNTIME_LOG_MAX >> 20) + 1; i++)
		say(&f, noise, sizeof(noise));
	say(&f, "\nthe end\n", 9);
	runtime_log_read(&f.log);
	ck_assert_int_eq(fstat(f.writer, &status), 0);
	ck_assert_int_eq(status.st_size, 0);
	ck_assert_uint_eq(runtime_log_lines(&f.log, lines, COUNT_OF(lines)), RUNTIME_LOG_LINES_MAX);
	ck_assert(bytes_equal_text(lines[RUNTIME_LOG_LINES_MAX - 1], "the end"));
	ck_assert_uint_eq(lines[0].len, 99);
	say(&f, "more\n", 5);
	runtime_log_read(&f.log);
	ck_assert_uint_eq(runtime_log_lines(&f.log, lines, 1), 1);
	ck_assert(bytes_equal_text(lines[0], "more"));
	/* Somebody else cuts it. */
	ck_assert_int_eq(ftruncate(f.writer, 0), 0);
	say(&f, "cut\n", 4);
	runtime_log_read(&f.log);
	ck_assert_uint_eq(runtime_log_lines(&f.log, lines, 1), 1);
	ck_assert(bytes_equal_text(lines[0], "cut"));
	close_fixture(&f);
}
END_TEST

/* A log that cannot be opened, and a link in its place. */
START_TEST(bad_files)
{
	struct runtime_log log;
	struct error error;
	char path[] = "/tmp/reprise-log-XXXXXX", link_path[80];

	runtime_log_init(&log);
	ck_assert_int_eq(runtime_log_open(&log, "/no/such/folder/x.log", &error), ERR_IO);
	close(mkstemp(path));
	snprintf(link_path, sizeof(link_path), "%s.link", path);
	ck_assert_int_eq(symlink(path, link_path), 0);
	ck_assert_int_eq(runtime_log_open(&log, link_path, &error), ERR_IO);
	runtime_log_read(&log);
	ck_assert_uint_eq(log.count, 0);
	runtime_log_close(&log);
	unlink(path);
	unlink(link_path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("runtime_log");
	TCase *all = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(all, lines_are_followed);
	tcase_add_test(all, lines_are_bounded);
	tcase_add_test(all, file_is_bounded);
	tcase_add_test(all, bad_files);
	suite_add_tcase(suite, all);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
