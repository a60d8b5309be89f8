/* Tests of workflow/base/log.c: standard error is a file, and each line is read back. */
#include "workflow/base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/json.h"
#include "workflow/base/time.h"

/* Check runs each test in a process of its own, so standard error need not be put back. */
static FILE *catch_log(void)
{
	FILE *file = tmpfile();

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fcntl(fileno(file), F_SETFL, O_APPEND), 0);
	ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
	return file;
}

static char *read_log(FILE *file, char *text, size_t size)
{
	ssize_t len = pread(fileno(file), text, size - 1, 0);

	ck_assert_int_ge(len, 0);
	text[len] = '\0';
	return text;
}

/* A line of text has the time, the level, the group and the message. */
START_TEST(lines_of_text)
{
	FILE *file = catch_log();
	char text[1000];
	int64_t ms;

	log_init(LOG_INFO, 0);
	log_warn(LOG_STORE, "run=%s queue=%d", "r1", 5);
	read_log(file, text, sizeof(text));
	ck_assert_str_eq(text + TIME_TEXT_LEN, " warn  store    run=r1 queue=5\n");
	text[TIME_TEXT_LEN] = '\0';
	ck_assert(time_parse(text, &ms));
	ck_assert_int_gt(ms, INT64_C(1700000000000));
}
END_TEST

/* Lines below the level are not written. */
START_TEST(levels_filter)
{
	FILE *file = catch_log();
	char text[1000];

	log_init(LOG_WARN, 0);
	log_debug(LOG_DAEMON, "debug");
	log_info(LOG_DAEMON, "info");
	ck_assert_str_eq(read_log(file, text, sizeof(text)), "");
	log_error(LOG_HTTP, "error");
	ck_assert_str_eq(read_log(file, text, sizeof(text)) + TIME_TEXT_LEN, " error http     error\n");
	log_init(LOG_DEBUG, 0);
	log_debug(LOG_ENGINE, "debug");
	ck_assert_ptr_nonnull(strstr(read_log(file, text, sizeof(text)), " debug engine   debug\n"));
}
END_TEST

/* A line of JSON is one that the strict parser takes, and -1 means JSON where standard error is no terminal. */
START_TEST(lines_of_json)
{
	FILE *file = catch_log();
	char text[1000], *end;
	struct arena arena;
	struct json *line;

	log_init(LOG_INFO, -1);
	log_info(LOG_ACTIVITY, "step=%s said \"%s\"", "/do/0", "hi\n");
	read_log(file, text, sizeof(text));
	end = strchr(text, '\n');
	ck_assert_ptr_nonnull(end);
	ck_assert_int_eq(end[1], '\0');
	arena_init(&arena);
	line = json_parse(&arena, bytes_text(text), JSON_STRICT, NULL, NULL);
	ck_assert_ptr_nonnull(line);
	ck_assert_uint_eq(json_count(line), 4);
	ck_assert_str_eq(json_get_text(line, "level"), "info");
	ck_assert_str_eq(json_get_text(line, "group"), "activity");
	ck_assert_str_eq(json_get_text(line, "message"), "step=/do/0 said \"hi\\u000a\"");
	ck_assert_ptr_nonnull(json_get_text(line, "time"));
	arena_close(&arena);
}
END_TEST

/* Nothing that steers a terminal, turns the reading order or starts a new line gets through; other characters do. */
START_TEST(hostile_text_is_escaped)
{
	static const char hostile[] = "a\x1b[31m\r\n\x7f\xC2\x9B \xE2\x80\xAE \xE2\x81\xA6 \xEF\xBB\xBF \xFF \xC3 \xED\xA0\x80 \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
	static const char expected[] = "a\\u001b[31m\\u000d\\u000a\\u007f\\u009b \\u202e \\u2066 \\ufeff \\xff \\xc3 \\xed\\xa0\\x80 "
				       "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
	FILE *file = catch_log();
	char text[2000], *message;

	for (int as_json = 0; as_json < 2; as_json++) {
		ck_assert_int_eq(ftruncate(fileno(file), 0), 0);
		log_init(LOG_INFO, as_json);
		log_info(LOG_HTTP, "%s", hostile);
		read_log(file, text, sizeof(text));
		ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
		if (as_json) {
			struct arena arena;
			struct json *line;

			arena_init(&arena);
			line = json_parse(&arena, bytes_text(text), JSON_STRICT, NULL, NULL);
			ck_assert_str_eq(json_get_text(line, "message"), expected);
			arena_close(&arena);
		} else {
			message = strstr(text, "http     ");
			ck_assert_ptr_nonnull(message);
			text[strlen(text) - 1] = '\0';
			ck_assert_str_eq(message + strlen("http     "), expected);
		}
	}
}
END_TEST

/* A message that is too long is cut, in the worst case for escapes as well. */
START_TEST(long_message_is_cut)
{
	static const char fillers[] = {'x', '\x01', '\xFF'};
	FILE *file = catch_log();
	static char message[10000], text[40000];

	for (int as_json = 0; as_json < 2; as_json++) {
		for (size_t i = 0; i < sizeof(fillers); i++) {
			memset(message, fillers[i], sizeof(message) - 1);
			ck_assert_int_eq(ftruncate(fileno(file), 0), 0);
			log_init(LOG_INFO, as_json);
			log_info(LOG_DAEMON, "%s", message);
			read_log(file, text, sizeof(text));
			ck_assert_uint_gt(strlen(text), 2000);
			ck_assert_uint_lt(strlen(text), 20000);
			ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
		}
	}
}
END_TEST

enum { THREADS = 4, LINES = 200 };

static void *write_lines(void *argument)
{
	char pad[500];

	memset(pad, 'a' + *(int *)argument, sizeof(pad) - 1);
	pad[sizeof(pad) - 1] = '\0';
	for (int i = 0; i < LINES; i++)
		log_info(LOG_STORE, "%s", pad);
	return NULL;
}

/* Lines of several threads come whole. */
START_TEST(threads_do_not_mix_lines)
{
	FILE *file = catch_log();
	pthread_t threads[THREADS];
	int numbers[THREADS], lines = 0;
	char line[2000];

	log_init(LOG_INFO, 0);
	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, write_lines, &numbers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	rewind(file);
	while (fgets(line, sizeof(line), file) != NULL) {
		char *pad = strstr(line, "store    ");

		ck_assert_ptr_nonnull(pad);
		pad += strlen("store    ");
		ck_assert_uint_eq(strspn(pad, (char[]){pad[0], '\0'}), 499);
		ck_assert_str_eq(pad + 499, "\n");
		lines++;
	}
	ck_assert_int_eq(lines, THREADS * LINES);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("base-log", lines_of_text, levels_filter, lines_of_json, hostile_text_is_escaped, long_message_is_cut, threads_do_not_mix_lines)
