/* Tests of activities/instance.c. */
#include "activities/instance.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

SUITE_NO_ABORTS

/* Listens at 127.0.0.1, at *port or, with 0, at one that is free. */
static int listen_at(const char *host, unsigned *port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(inet_pton(AF_INET, host, &address.sin_addr), 1);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes)), 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	*port = ntohs(address.sin_port);
	return fd;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A child that has said one byte: what it does before that is done. */
static pid_t fork_child(int *said)
{
	int pipes[2];
	pid_t pid;

	ck_assert_int_eq(pipe(pipes), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	*said = pid == 0 ? pipes[1] : pipes[0];
	close(pid == 0 ? pipes[0] : pipes[1]);
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* A process has one start for as long as it lives, in the past; one that has ended, waited for or not, has none. */
START_TEST(starts_of_processes)
{
	char ticks[PROCESS_TICKS_LEN_MAX + 1], again[PROCESS_TICKS_LEN_MAX + 1];
	int64_t now = now_ms(), started;
	siginfo_t info;
	pid_t pid;

	ck_assert(process_read_ticks(getpid(), ticks));
	ck_assert(process_read_ticks(getpid(), again));
	ck_assert_str_eq(ticks, again);
	started = process_started_ms(ticks, now);
	ck_assert(started <= now && started > now - 3600 * 1000);
	ck_assert(!process_read_ticks(0, ticks));
	ck_assert(!process_read_ticks(-1, ticks));
	pid = fork();
	if (pid == 0)
		_exit(0);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	ck_assert(!process_read_ticks(pid, ticks));
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert(!process_read_ticks(pid, ticks));
}
END_TEST

/* Who listens is found by address and port, and found again without a search; nobody is nobody. */
START_TEST(who_listens)
{
	struct listener listener = {0}, before;
	struct runtime_instance instance;
	char ticks[PROCESS_TICKS_LEN_MAX + 1], id[INSTANCE_ID_LEN_MAX + 1];
	unsigned port = 0;
	int fd = listen_at("127.0.0.1", &port);

	ck_assert(process_read_ticks(getpid(), ticks));
	snprintf(id, sizeof(id), "%d-%s", (int)getpid(), ticks);
	instance_measure("127.0.0.1", port, &listener);
	ck_assert_ptr_null(listener.why_not);
	ck_assert_int_eq(listener.pid, getpid());
	instance_from_listener(&instance, &listener, now_ms());
	ck_assert_str_eq(instance.id, id);
	ck_assert_str_eq(instance.basis, "measured");
	ck_assert(instance.started_ms > 0 && instance.started_ms <= now_ms());
	before = listener;
	instance_measure("127.0.0.1", port, &listener);
	ck_assert_int_eq(memcmp(&before, &listener, sizeof(before)), 0);
	instance_measure("localhost", port, &listener);
	ck_assert_int_eq(listener.pid, getpid());
	instance_measure("127.0.0.2", port, &listener); /* another address of the same machine */
	ck_assert_ptr_nonnull(listener.why_not);
	ck_assert_int_eq(listener.pid, 0);
	instance_measure("::1", port, &listener);
	ck_assert_ptr_nonnull(listener.why_not);
	close(fd);
	instance_measure("127.0.0.1", port, &listener);
	instance_from_listener(&instance, &listener, now_ms());
	ck_assert_str_eq(instance.id, "");
	ck_assert_str_eq(instance.basis, "unknown");
	ck_assert_ptr_nonnull(strstr(instance.source, "no process"));
	fd = listen_at("0.0.0.0", &port);
	instance_measure("127.0.0.1", port, &listener);
	ck_assert_int_eq(listener.pid, getpid());
	close(fd);
}
END_TEST

/* Of processes that share a socket the one that started first; of several with a socket each, none. More sockets than are kept do not matter. */
START_TEST(several_processes)
{
	struct listener listener = {0};
	struct runtime_instance instance;
	unsigned port = 0;
	int fds[INSTANCE_SOCKETS_MAX + 1], said;
	char byte = 0;
	pid_t pid;

	fds[0] = listen_at("127.0.0.1", &port);
	pid = fork_child(&said);
	if (pid == 0) { /* has the socket, too */
		ck_assert_int_eq(write(said, "x", 1), 1);
		pause();
		_exit(0);
	}
	ck_assert_int_eq(read(said, &byte, 1), 1);
	close(said);
	instance_measure("127.0.0.1", port, &listener);
	ck_assert_int_eq(listener.pid, getpid());
	end_child(pid);
	for (size_t i = 1; i < COUNT_OF(fds); i++)
		fds[i] = listen_at("127.0.0.1", &port);
	instance_measure("127.0.0.1", port, &listener);
	ck_assert_int_eq(listener.pid, getpid());
	ck_assert_uint_eq(listener.socket_count, INSTANCE_SOCKETS_MAX);
	for (size_t i = 1; i < COUNT_OF(fds); i++)
		close(fds[i]);
	pid = fork_child(&said);
	if (pid == 0) {
		close(fds[0]);
		fds[0] = listen_at("127.0.0.1", &port);
		ck_assert_int_eq(write(said, "x", 1), 1);
		pause();
		_exit(0);
	}
	ck_assert_int_eq(read(said, &byte, 1), 1);
	close(said);
	instance_measure("127.0.0.1", port, &listener);
	instance_from_listener(&instance, &listener, now_ms());
	ck_assert_str_eq(instance.id, "");
	ck_assert_str_eq(instance.source, "several processes listen at the address");
	end_child(pid);
	close(fds[0]);
}
END_TEST

/* Past a limit of what is looked at nobody is named, since somebody else may have been first: the socket has to do. */
START_TEST(limits_of_the_search)
{
	static const struct {
		struct instance_limits limits;
		bool is_found;
	} cases[] = {{{1, INSTANCE_FILES_MAX}, false}, {{INSTANCE_PROCESSES_MAX, 2}, false}, {{INSTANCE_PROCESSES_MAX, INSTANCE_FILES_MAX}, true}};
	unsigned port = 0;
	int fd = listen_at("127.0.0.1", &port), more = dup(fd); /* so a process with more than two files is there */

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct listener listener = {0};
		struct runtime_instance instance;

		instance_measure_within("127.0.0.1", port, &cases[i].limits, &listener);
		ck_assert_int_eq(listener.pid, cases[i].is_found ? getpid() : 0);
		ck_assert_ptr_null(listener.why_not);
		instance_from_listener(&instance, &listener, now_ms());
		ck_assert_str_eq(instance.basis, "measured");
		ck_assert_int_eq(strncmp(instance.id, "socket-", 7) == 0, !cases[i].is_found);
	}
	close(more);
	close(fd);
}
END_TEST

/* Sockets without a visible owner, a name of the runtime's own (cut at whole characters), a model that was loaded after the process had started: each
 * makes another id. What nobody looked at says so. */
START_TEST(ids)
{
	struct listener listener = {.sockets = {7, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}, .socket_count = 1};
	char name[INSTANCE_NAME_LEN_MAX + 8] = "";
	struct runtime_instance instance;
	struct arena arena;
	struct bytes bytes;

	arena_init(&arena);
	instance_from_listener(&instance, &listener, 0);
	ck_assert_str_eq(instance.id, "socket-7");
	ck_assert_str_eq(instance.basis, "measured");
	ck_assert_int_eq(instance.started_ms, 0);
	listener.socket_count = INSTANCE_SOCKETS_MAX;
	instance_from_listener(&instance, &listener, 0);
	ck_assert_uint_eq(strlen(instance.id), 6 + 2 + 7 * 21);
	instance_from_process(&instance, 12, "345", 1790000000000);
	instance_add_model(&instance, NULL, 1789999999999);
	ck_assert_str_eq(instance.id, "12-345"); /* loaded by the process before it */
	instance_add_model(&instance, NULL, 1790000001000);
	ck_assert_str_eq(instance.id, "12-345@2026-09-21T14:13:21.000Z");
	ck_assert_str_eq(instance.basis, "launched");
	bytes = json_print_arena(instance_json(&arena, &instance), &arena);
	ck_assert_str_eq((const char *)bytes.data, "{\"basis\":\"launched\",\"id\":\"12-345@2026-09-21T14:13:21.000Z\",\"source\":\"the process that the daemon launched\","
						   "\"startedOn\":\"2026-09-21T14:13:20.000Z\"}");
	instance_is_unknown(&instance, "why");
	instance_add_model(&instance, "m", 0);
	ck_assert_str_eq(instance.id, "m");
	ck_assert_str_eq(instance.basis, "reported");
	while (strlen(name) < INSTANCE_NAME_LEN_MAX + 1)
		strcat(name, "abc\u00fc");
	instance_from_process(&instance, 12, "345", 0);
	instance_add_model(&instance, name, 0);
	ck_assert_uint_eq(strlen(instance.id), 7 + INSTANCE_NAME_LEN_MAX);
	memmove(name + 1, name, strlen(name) + 1);
	instance_from_process(&instance, 12, "345", 0);
	instance_add_model(&instance, name, 0);
	ck_assert_uint_eq(strlen(instance.id), 7 + INSTANCE_NAME_LEN_MAX - 1);
	instance_is_unknown(&instance, "why");
	instance_add_model(&instance, NULL, 1790000001000);
	ck_assert_str_eq(instance.id, "");
	instance = (struct runtime_instance){0};
	bytes = json_print_arena(instance_json(&arena, &instance), &arena);
	ck_assert_str_eq((const char *)bytes.data, "{\"basis\":\"unknown\",\"source\":\"nobody looked yet\"}");
	arena_close(&arena);
}
END_TEST

SUITE_MAIN("activities-instance", starts_of_processes, who_listens, several_processes, limits_of_the_search, ids)
