/* Expressions that need jq, compiled offline: the helper program that the daemon uses too (activities/jq_helper.c) is started, asked over a
 * socket and ended again. Start at jq_check(). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/jq.h"
#include "workflow/base/check.h"

enum { JQ_HEAD = 4 };

const char *jq_program(struct arena *arena)
{
	static const char *const places[] = {"reprise-jq", "../activities/reprise-jq"};
	char self[4096];
	const char *folders = getenv("PATH");
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	if (len > 0) {
		self[len] = '\0';
		char *slash = strrchr(self, '/');
		if (slash != NULL)
			slash[1] = '\0';
		for (size_t i = 0; i < COUNT_OF(places); i++) {
			const char *path = arena_printf(arena, "%s%s", self, places[i]);
			if (access(path, X_OK) == 0)
				return path;
		}
	}
	while (folders != NULL && *folders != '\0') {
		size_t part = strcspn(folders, ":");
		const char *path = arena_printf(arena, "%.*s/reprise-jq", (int)part, folders);
		if (part > 0 && access(path, X_OK) == 0)
			return path;
		folders += part + (folders[part] == ':');
	}
	return NULL;
}

int jq_start(struct jq_process *jq, const char *program, struct error *error)
{
	int ends[2];
	char *arguments[] = {(char *)(uintptr_t)program, NULL}, *environment[] = {NULL};
	posix_spawn_file_actions_t actions;
	*jq = (struct jq_process){.socket = -1};
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return error_set(error, ERR_IO, "start %s: %s", program, strerror(errno));
	CHECK(posix_spawn_file_actions_init(&actions) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO) == 0);
	CHECK(posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO) == 0);
	int failed = posix_spawn(&jq->pid, program, &actions, NULL, arguments, environment);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	if (failed != 0) {
		close(ends[0]);
		jq->pid = 0;
		return error_set(error, ERR_IO, "start %s: %s", program, strerror(failed));
	}
	jq->socket = ends[0];
	return 0;
}

void jq_stop(struct jq_process *jq)
{
	if (jq->pid == 0)
		return;
	kill(jq->pid, SIGKILL);
	while (waitpid(jq->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	close(jq->socket);
	*jq = (struct jq_process){.socket = -1};
}

int jq_ask(struct jq_process *jq, struct bytes request, int timeout_ms, struct buffer *in, struct bytes *answer, struct error *error)
{
	struct buffer out;
	int64_t deadline_us = (int64_t)clock_us() + (int64_t)timeout_ms * 1000;
	buffer_init(&out, EVALUATION_REQUEST_MAX + JQ_HEAD);
	evaluation_add_frame(&out, request);
	CHECK(!out.overflow);
	size_t sent = 0;
	buffer_clear(in);
	for (;;) {
		char block[65536];
		int64_t left_us = deadline_us - (int64_t)clock_us();
		struct pollfd wait = {.fd = jq->socket, .events = (short)(POLLIN | (sent < out.len ? POLLOUT : 0))};
		if (left_us <= 0 || (poll(&wait, 1, (int)(left_us / 1000) + 1) < 0 && errno != EINTR)) {
			buffer_close(&out);
			return error_set(error, ERR_TIMEOUT, "jq took longer than %d ms", timeout_ms);
		}
		if ((wait.revents & POLLOUT) != 0) {
			ssize_t now = send(jq->socket, out.data + sent, out.len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
			sent += now > 0 ? (size_t)now : 0;
		}
		if ((wait.revents & (POLLIN | POLLHUP | POLLERR)) == 0)
			continue;
		ssize_t got = recv(jq->socket, block, sizeof block, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got > 0)
			buffer_add(in, block, (size_t)got);
		enum frame_state state = got > 0 ? evaluation_read_frame(in, EVALUATION_ANSWER_MAX, answer) : FRAME_TOO_LARGE;
		if (state == FRAME_PARTIAL && !in->overflow)
			continue;
		buffer_close(&out);
		return state == FRAME_WHOLE ? 0 : error_set(error, ERR_CORRUPT, "jq ran out of memory or stack, or failed");
	}
}

/* One batch; of one that costs the helper its life, the halves. */
static int check_batch(struct jq_process *jq, const char *program, const struct definition *definition, const size_t *batch, size_t count, struct problems *problems,
		       struct error *error)
{
	struct buffer request, in;
	struct bytes answer;
	int code;
	if (jq->pid == 0 && jq_start(jq, program, error) != 0)
		return error->code;
	buffer_init(&request, EVALUATION_REQUEST_MAX);
	buffer_init(&in, EVALUATION_ANSWER_MAX + JQ_HEAD);
	for (size_t i = 0; i < count; i++) {
		const struct definition_expression *expression = &definition->expressions[batch[i]];
		evaluation_add_compile(&request, expression->text, expression->names, expression->name_count);
	}
	if ((code = jq_ask(jq, buffer_bytes(&request), CLI_JQ_COMPILE_MS, &in, &answer, error)) == 0)
		code = evaluation_add_problems(definition, batch, count, answer, problems, error);
	else
		jq_stop(jq);
	buffer_close(&request);
	buffer_close(&in);
	if (code != ERR_TIMEOUT && code != ERR_CORRUPT)
		return code;
	if (count == 1) {
		evaluation_add_problem(definition, batch[0], 0, code == ERR_TIMEOUT ? "jq does not finish to compile it" : "jq cannot compile it", problems);
		*error = (struct error){0};
		return 0;
	}
	if ((code = check_batch(jq, program, definition, batch, count / 2, problems, error)) == 0)
		code = check_batch(jq, program, definition, batch + count / 2, count - count / 2, problems, error);
	return code;
}

void jq_check(const struct definition *definition, struct problems *problems)
{
	struct jq_process jq = {.socket = -1};
	struct arena arena;
	struct error error = {0};
	size_t batch[EVALUATION_BATCH_MAX], count, next = 0, first = problems->count;
	if (definition->expression_count == 0)
		return;
	arena_init(&arena);
	const char *program = jq_program(&arena);
	if (program == NULL) {
		error_set(&error, ERR_NOT_FOUND, "the program reprise-jq is neither beside this one nor in PATH");
	} else {
		for (struct buffer request; error.code == ERR_NONE; buffer_close(&request)) {
			buffer_init(&request, EVALUATION_REQUEST_MAX);
			count = evaluation_next_batch(definition, &next, SIZE_MAX, batch, &request);
			if (count == 0) {
				buffer_close(&request);
				break;
			}
			check_batch(&jq, program, definition, batch, count, problems, &error);
		}
	}
	jq_stop(&jq);
	if (error.code != ERR_NONE) /* the daemon compiles them again, so it is no error here */
		problems_add(problems, true, definition->expressions[0].pointer, 0, 0, NULL, "expressions that need jq were not compiled: %s", error.message);
	problems_sort(problems, first);
	arena_close(&arena);
}
