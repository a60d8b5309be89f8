/* See launcher.h: the daemon's side. Loop thread. */
#include "activities/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "workflow/base/check.h"
#include "workflow/base/json.h"
#include "workflow/base/log.h"

struct launcher {
	int socket;
	uv_poll_t poll;
	struct launcher_events events;
	void *arg;
	bool closing;
	void (*on_closed)(void *arg);
	void *closed_arg;
};

int launcher_spawn(const char *program, int *socket, struct error *error)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return error_set(error, ERR_IO, "socket pair for %s: %s", program, strerror(errno));
	pid = fork();
	if (pid == 0) {
		char *const arguments[] = {"reprise-launcher", NULL}, *const environment[] = {NULL};

		/* dup2() clears the mark that closes it; the number may be the right one already. */
		if (pair[1] == LAUNCHER_SOCKET ? fcntl(pair[1], F_SETFD, 0) == 0 : dup2(pair[1], LAUNCHER_SOCKET) >= 0)
			execve(program, arguments, environment);
		_exit(127);
	}
	close(pair[1]);
	if (pid < 0) {
		error_set(error, ERR_IO, "start %s: %s", program, strerror(errno));
		close(pair[0]);
		return ERR_IO;
	}
	*socket = pair[0];
	return 0;
}

static void read_told(struct launcher *launcher, struct bytes text)
{
	struct arena arena;
	struct json *message;
	const char *op;

	arena_init(&arena);
	message = json_parse(&arena, text, JSON_STRICT, NULL, NULL);
	op = json_get_text(message, "op");
	if (op == NULL)
		log_warn(LOG_ACTIVITY, "reprise-launcher: a message that is not understood");
	else if (strcmp(op, "started") == 0)
		launcher->events.on_started(launcher->arg, (pid_t)json_get_number(message, "pid", 0), json_get_text(message, "start"));
	else if (strcmp(op, "failed") == 0)
		launcher->events.on_failed(launcher->arg, json_get_text(message, "why"));
	else if (strcmp(op, "exited") == 0)
		launcher->events.on_exited(launcher->arg, (int)json_get_number(message, "status", 0), (int)json_get_number(message, "signal", 0),
					   (unsigned)json_get_number(message, "left", 0));
	arena_close(&arena);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct launcher *launcher = poll->data;
	char text[4096];
	ssize_t len;

	(void)events;
	while (!launcher->closing) {
		len = status < 0 ? 0 : recv(launcher->socket, text, sizeof(text), MSG_DONTWAIT);
		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0 && errno == EAGAIN)
			return;
		if (len <= 0) {
			uv_poll_stop(poll);
			launcher->events.on_lost(launcher->arg);
			return;
		}
		read_told(launcher, (struct bytes){(const uint8_t *)text, (size_t)len});
	}
}

struct launcher *launcher_open(uv_loop_t *loop, int socket, const struct launcher_events *events, void *arg)
{
	struct launcher *launcher = memory_zero(sizeof(*launcher));

	launcher->socket = socket;
	launcher->events = *events;
	launcher->arg = arg;
	CHECK(uv_poll_init(loop, &launcher->poll, socket) == 0);
	launcher->poll.data = launcher;
	CHECK(uv_poll_start(&launcher->poll, UV_READABLE, on_readable) == 0);
	return launcher;
}

static struct json *make_words(struct arena *arena, const char *const *words)
{
	struct json *list = json_array(arena);

	for (size_t i = 0; words[i] != NULL; i++)
		json_add(arena, list, json_text(arena, words[i]));
	return list;
}

static int send_message(struct launcher *launcher, const struct json *message, const int *fds, size_t fd_count, struct error *error)
{
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct buffer text;
	struct iovec part;
	struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
	int code = 0;

	buffer_init(&text, LAUNCHER_MESSAGE_MAX);
	json_print(message, &text);
	part = (struct iovec){text.data, text.len};
	if (fd_count > 0) {
		struct cmsghdr *item = &control.align;

		head.msg_control = control.bytes;
		head.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		item->cmsg_level = SOL_SOCKET;
		item->cmsg_type = SCM_RIGHTS;
		item->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(item), fds, fd_count * sizeof(int));
	}
	if (text.overflow)
		code = error_set(error, ERR_TOO_LARGE, "launch: arguments and variables are more than %d bytes (LAUNCHER_MESSAGE_MAX)", LAUNCHER_MESSAGE_MAX);
	else if (sendmsg(launcher->socket, &head, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		code = error_set(error, ERR_IO, "reprise-launcher takes no orders: %s", strerror(errno));
	buffer_close(&text);
	return code;
}

int launcher_start(struct launcher *launcher, const struct launch *launch, int executable, int log, struct error *error)
{
	const int fds[] = {executable, log};
	struct arena arena;
	struct json *message;
	int code;

	arena_init(&arena);
	message = json_object(&arena);
	json_set_text(&arena, message, "op", "start");
	json_set(&arena, message, "argv", make_words(&arena, launch->argv));
	json_set(&arena, message, "env", make_words(&arena, launch->env));
	json_set_text(&arena, message, "folder", launch->folder != NULL ? launch->folder : "");
	json_set_number(&arena, message, "graceMs", (double)launch->grace_ms);
	json_set_boolean(&arena, message, "keep", launch->keep);
	if (launch->stop != NULL)
		json_set(&arena, message, "stop", make_words(&arena, launch->stop));
	code = send_message(launcher, message, fds, COUNT_OF(fds), error);
	arena_close(&arena);
	return code;
}

int launcher_end(struct launcher *launcher, const struct launch *launch, struct error *error)
{
	struct arena arena;
	struct json *message;
	int code;

	arena_init(&arena);
	message = json_object(&arena);
	json_set_text(&arena, message, "op", "end");
	json_set(&arena, message, "env", make_words(&arena, launch->env));
	json_set_text(&arena, message, "folder", launch->folder != NULL ? launch->folder : "");
	json_set_number(&arena, message, "graceMs", (double)launch->grace_ms);
	json_set(&arena, message, "stop", make_words(&arena, launch->stop));
	code = send_message(launcher, message, NULL, 0, error);
	arena_close(&arena);
	return code;
}

static void say_word(struct launcher *launcher, const char *op)
{
	struct arena arena;
	struct json *message;
	struct error error;

	arena_init(&arena);
	message = json_object(&arena);
	json_set_text(&arena, message, "op", op);
	/* It is gone: on_lost() tells, or has told. */
	if (send_message(launcher, message, NULL, 0, &error) != 0)
		log_warn(LOG_ACTIVITY, "%s", error.message);
	arena_close(&arena);
}

void launcher_stop(struct launcher *launcher)
{
	say_word(launcher, "stop");
}

void launcher_kill(struct launcher *launcher)
{
	say_word(launcher, "kill");
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct launcher *launcher = handle->data;
	void (*on_closed)(void *arg) = launcher->on_closed;
	void *arg = launcher->closed_arg;

	close(launcher->socket);
	free(launcher);
	on_closed(arg);
}

void launcher_close(struct launcher *launcher, void (*on_closed)(void *arg), void *arg)
{
	CHECK(!launcher->closing);
	launcher->closing = true;
	launcher->on_closed = on_closed;
	launcher->closed_arg = arg;
	uv_close((uv_handle_t *)&launcher->poll, on_poll_closed);
}
