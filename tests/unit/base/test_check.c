/* Tests of workflow/base/check.c. */
#include "workflow/base/check.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"

/* Run what must stop in a child; its standard error into text; its wait status comes back. */
static int run_stopping(void (*stopping)(void), char *text, size_t size)
{
	int ends[2], status;
	size_t len = 0;
	ssize_t got;
	pid_t child;

	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		struct rlimit no_core = {0, 0};

		setrlimit(RLIMIT_CORE, &no_core);
		dup2(ends[1], STDERR_FILENO);
		stopping();
		_exit(0);
	}
	close(ends[1]);
	while (len < size - 1 && (got = read(ends[0], text + len, size - 1 - len)) > 0)
		len += (size_t)got;
	text[len] = '\0';
	close(ends[0]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return status;
}

static void check_wrong(void)
{
	CHECK(1 + 1 == 3);
}

static void check_right(void)
{
	CHECK(1 + 1 == 2);
}

static void check_long(void)
{
	char condition[5000];

	memset(condition, 'x', sizeof(condition) - 1);
	condition[sizeof(condition) - 1] = '\0';
	check_failed("file.c", 7, condition);
}

static void ask_for_too_much(void)
{
	memory_alloc(SIZE_MAX / 2);
}

static void grow_too_much(void)
{
	memory_resize(memory_alloc(1), SIZE_MAX / 2);
}

/* A failed CHECK says where and what on standard error and aborts. */
START_TEST(failed_check_stops)
{
	char text[8000];
	int status = run_stopping(check_wrong, text, sizeof(text));

	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGABRT);
	ck_assert_ptr_nonnull(strstr(text, "test_check.c:"));
	ck_assert_ptr_nonnull(strstr(text, "1 + 1 == 3"));
}
END_TEST

/* A CHECK that holds does nothing. */
START_TEST(fulfilled_check_goes_on)
{
	char text[8000];
	int status = run_stopping(check_right, text, sizeof(text));

	ck_assert(WIFEXITED(status));
	ck_assert_str_eq(text, "");
}
END_TEST

/* A condition longer than the line is cut and still stops. */
START_TEST(long_condition_is_cut)
{
	char text[8000];
	int status = run_stopping(check_long, text, sizeof(text));

	ck_assert(WIFSIGNALED(status));
	ck_assert_int_eq(WTERMSIG(status), SIGABRT);
	ck_assert_uint_lt(strlen(text), 1000);
	ck_assert_mem_eq(text, "reprise: stopped: check failed at file.c:7: xxx", 47);
}
END_TEST

/* Memory that cannot be had stops the process instead of giving NULL. */
START_TEST(missing_memory_stops)
{
	void (*const wishes[])(void) = {ask_for_too_much, grow_too_much};

	/* AddressSanitizer would end the process itself, with words of its own. */
	setenv("ASAN_OPTIONS", "allocator_may_return_null=1", 1);
	for (size_t i = 0; i < COUNT_OF(wishes); i++) {
		char text[8000];
		int status = run_stopping(wishes[i], text, sizeof(text));

		ck_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
		ck_assert(WIFSIGNALED(status));
		ck_assert_int_eq(WTERMSIG(status), SIGABRT);
		ck_assert_str_eq(text, "reprise: stopped: out of memory\n");
#endif
	}
}
END_TEST

/* No size gives NULL, cleared memory is clear, and texts are copies. */
START_TEST(memory_is_always_there)
{
	char *empty = memory_alloc(0), *clear = memory_zero(100), *text = memory_text("text");

	ck_assert_ptr_nonnull(empty);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(clear[i], 0);
	ck_assert_str_eq(text, "text");
	text = memory_resize(text, 1000);
	ck_assert_str_eq(text, "text");
	empty = memory_resize(empty, 0);
	ck_assert_ptr_nonnull(empty);
	free(empty);
	free(clear);
	free(text);
}
END_TEST

/* From a member back to what holds it. */
START_TEST(container_is_found)
{
	struct holder {
		int first;
		char second;
	} holder = {1, 'x'};
	char *member = &holder.second;

	ck_assert_ptr_eq(CONTAINER_OF(member, struct holder, second), &holder);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("base-check", failed_check_stops, fulfilled_check_goes_on, long_condition_is_cut, missing_memory_stops,
	   memory_is_always_there, container_is_found)
