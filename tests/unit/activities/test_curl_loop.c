/* What curl or the loop refuses ends transfers, not the program. The refusals are put in front of the real functions. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "activities/curl_loop.h"
#include "tests/unit/activities/rig.h"
#include "workflow/base/check.h"

#define GET_STUB "{\"method\":\"GET\",\"endpoint\":\"%s/\"}"

static struct rig rig;
static struct stub stub;
/* How many calls go through before one is refused; negative: all go through. */
static int polls_before, actions_before, adds_before;
/* The descriptor that the next sockets get at least; 0: the lowest that is free. */
static int lowest_socket;

static bool is_refused(int *before)
{
	return *before >= 0 && (*before)-- == 0;
}

/* ISO C knows no way from an object pointer to a function. */
static void find_next(const char *name, void *function)
{
	void *found = dlsym(RTLD_NEXT, name);

	CHECK(found != NULL);
	memcpy(function, &found, sizeof(found));
}

int uv_poll_start(uv_poll_t *handle, int events, uv_poll_cb on_poll)
{
	int (*next)(uv_poll_t *handle, int events, uv_poll_cb on_poll);

	find_next("uv_poll_start", &next);
	return is_refused(&polls_before) ? UV_EEXIST : next(handle, events, on_poll);
}

CURLMcode curl_multi_socket_action(CURLM *multi, curl_socket_t fd, int flags, int *running)
{
	CURLMcode (*next)(CURLM *multi, curl_socket_t fd, int flags, int *running);

	find_next("curl_multi_socket_action", &next);
	return is_refused(&actions_before) ? CURLM_INTERNAL_ERROR : next(multi, fd, flags, running);
}

CURLMcode curl_multi_add_handle(CURLM *multi, CURL *easy)
{
	CURLMcode (*next)(CURLM *multi, CURL *easy);

	find_next("curl_multi_add_handle", &next);
	return is_refused(&adds_before) ? CURLM_OUT_OF_MEMORY : next(multi, easy);
}

int socket(int domain, int type, int protocol)
{
	int (*next)(int domain, int type, int protocol);

	find_next("socket", &next);
	int fd = next(domain, type, protocol);
	if (fd < 0 || lowest_socket == 0)
		return fd;
	int high = fcntl(fd, F_DUPFD_CLOEXEC, lowest_socket);
	close(fd);
	return high < 0 ? lowest_socket : high; /* a process that may not have so many: the number alone, of nothing that is open */
}

static void open_all(void)
{
	lowest_socket = 0;
	polls_before = actions_before = adds_before = -1;
	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig.http_allow[rig.http_allow_count++] = "127.0.0.1";
	rig_open(&rig);
	stub.pieces[0].text = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
}

static void expect(enum failure_class failure, const char *detail)
{
	char text[128];

	snprintf(text, sizeof(text), GET_STUB, stub.url);
	task_expect(&rig, ACTIVITY_HTTP, text, failure, detail);
}

/* A socket that cannot be watched ends its own transfer: as unreachable before the request went out, as broken off after that. The
 * transfer beside it and those that follow are not touched. */
START_TEST(unwatched_sockets_end_their_transfer)
{
	unsigned refusals = 0, broken = 0;
	struct task other;
	char text[128];

	open_all();
	stub.silent = true;
	snprintf(text, sizeof(text), GET_STUB, stub.url);
	task_init(&other, ACTIVITY_HTTP, text);
	task_start(&rig, &other);
	rig_turns(&rig, 50);
	stub.silent = false;
	for (int before = 0; before < 8; before++) {
		struct task task;
		const struct activity_result *result = &task.activity.result;

		polls_before = before;
		task_init(&task, ACTIVITY_HTTP, text);
		task_run(&rig, &task);
		if (!result->ok) {
			refusals++;
			broken += result->failure == FAILURE_RUNTIME_ERROR;
			ck_assert(result->failure == FAILURE_UNREACHABLE || result->failure == FAILURE_RUNTIME_ERROR);
			ck_assert_msg(strstr(result->detail, "cannot be watched") != NULL, "%s", result->detail);
		}
		polls_before = -1;
		task_close(&task);
		expect(FAILURE_NONE, NULL);
		ck_assert(!other.done);
	}
	ck_assert_uint_ge(refusals, 2);
	ck_assert_uint_ge(broken, 1);
	ck_assert_uint_lt(broken, refusals);
	rig_close(&rig);
	ck_assert_int_eq(other.activity.result.failure, FAILURE_INTERRUPTED);
	task_close(&other);
}
END_TEST

/* curl refuses to go on: the transfers under way end, the next one is served. */
START_TEST(refused_steps_end_transfers)
{
	unsigned refusals = 0, broken = 0;
	char text[128];

	open_all();
	snprintf(text, sizeof(text), GET_STUB, stub.url);
	for (int before = 0; before < 6; before++) {
		struct task task;
		const struct activity_result *result = &task.activity.result;

		actions_before = before;
		task_init(&task, ACTIVITY_HTTP, text);
		task_run(&rig, &task);
		if (!result->ok) {
			refusals++;
			broken += result->failure == FAILURE_RUNTIME_ERROR;
			ck_assert(result->failure == FAILURE_UNREACHABLE || result->failure == FAILURE_RUNTIME_ERROR);
			ck_assert_msg(strstr(result->detail, curl_multi_strerror(CURLM_INTERNAL_ERROR)) != NULL, "%s", result->detail);
		}
		actions_before = -1;
		task_close(&task);
		expect(FAILURE_NONE, NULL);
	}
	ck_assert_uint_ge(refusals, 2);
	ck_assert_uint_ge(broken, 1);
	ck_assert_uint_lt(broken, refusals);
	rig_close(&rig);
}
END_TEST

/* curl refuses a transfer: it ends as one that was never sent; if it is cancelled first, nothing more happens. */
START_TEST(refused_transfers_end)
{
	struct task task;
	char text[128];

	open_all();
	adds_before = 0;
	expect(FAILURE_UNREACHABLE, curl_multi_strerror(CURLM_OUT_OF_MEMORY));
	ck_assert_uint_eq(stub.requests, 0);
	snprintf(text, sizeof(text), GET_STUB, stub.url);
	task_init(&task, ACTIVITY_HTTP, text);
	adds_before = 0;
	task_start(&rig, &task);
	activity_cancel(rig.activities, &task.activity);
	task_wait(&rig, &task);
	ck_assert_int_eq(task.activity.result.failure, FAILURE_CANCELLED);
	task_close(&task);
	expect(FAILURE_NONE, NULL);
	rig_close(&rig);
}
END_TEST

/* A transfer that is cancelled while it connects leaves its descriptor's number to the next one. */
START_TEST(cancelled_connects_leave_nothing)
{
	struct full_listener full;
	char text[128];

	full_listener_open(&full);
	open_all();
	snprintf(text, sizeof(text), GET_STUB, full.url);
	for (int i = 0; i < 3; i++) {
		struct task task;

		task_init(&task, ACTIVITY_HTTP, text);
		task_start(&rig, &task);
		rig_turns(&rig, 30);
		activity_cancel(rig.activities, &task.activity);
		task_wait(&rig, &task);
		ck_assert_int_eq(task.activity.result.failure, FAILURE_CANCELLED);
		task_close(&task);
		expect(FAILURE_NONE, NULL);
	}
	rig_close(&rig);
	full_listener_close(&full);
}
END_TEST

/* A descriptor past the last that is watched is closed again and its transfer ends as unreachable; the last one serves. */
START_TEST(high_descriptors_are_refused)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max < CURL_SOCKETS_MAX + 1 ? limit.rlim_max : CURL_SOCKETS_MAX + 1;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	open_all();
	lowest_socket = (int)limit.rlim_cur - 2; /* CURL_SOCKETS_MAX - 1, or the last but one that this process may have */
	expect(FAILURE_NONE, NULL);
	unsigned requests = stub.requests;
	lowest_socket = CURL_SOCKETS_MAX;
	expect(FAILURE_UNREACHABLE, "127.0.0.1 cannot be reached");
	ck_assert_uint_eq(stub.requests, requests);
	ck_assert_int_eq(fcntl(CURL_SOCKETS_MAX, F_GETFD), -1);
	lowest_socket = 0;
	expect(FAILURE_NONE, NULL);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("curl-loop");
	TCase *cases = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(cases, 300);
	tcase_add_test(cases, unwatched_sockets_end_their_transfer);
	tcase_add_test(cases, refused_steps_end_transfers);
	tcase_add_test(cases, refused_transfers_end);
	tcase_add_test(cases, cancelled_connects_leave_nothing);
	tcase_add_test(cases, high_descriptors_are_refused);
	suite_add_tcase(suite, cases);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
