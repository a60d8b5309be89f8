/* reprise-launcher: starts one runtime, tells how it ended, and leaves nothing of it behind. See launcher.h for what is said.
 *
 *     idle ─▶ running ─▶ ending (SIGTERM sent) ─▶ sweeping (SIGKILL until nobody is left) ─▶ idle
 *                └──────── it ended by itself ─────────▲
 *
 * The end of the socket is the end of the daemon: then a runtime that is not kept is ended as if asked, and the program after it.
 * One thread; it waits in poll() alone. Start at main(). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "activities/launcher.h"
#include "workflow/base/check.h"
#include "workflow/base/json.h"

enum {
	PROCESSES_MAX = 65536, /* of the machine that are looked at for descendants */
	STAT_MAX = 1024,
	EXEC_FAILED = 127,
};

enum stage { IDLE, RUNNING, ENDING, SWEEPING };

static struct {
	enum stage stage;
	struct arena arena; /* of what was asked to start */
	const char **argv, **env, **stop;
	const char *folder;
	int64_t grace_ms;
	bool keep;
	pid_t pid; /* the runtime; its process group too */
	pid_t stopper; /* the command that ends it; 0: none runs */
	bool exited; /* the runtime itself */
	int status; /* of waitpid() */
	int64_t due_ms; /* ENDING: SIGKILL then; SWEEPING: give up then */
	bool quitting; /* the daemon is gone */
} state;

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* --- what is said to the daemon ------------------------------------------------------------------------------------ */

static void say(struct json *message)
{
	struct buffer text;

	buffer_init(&text, LAUNCHER_MESSAGE_MAX);
	json_print(message, &text);
	/* Nobody there: the end of the socket is read next. Blocking: the daemon always reads. */
	if (send(LAUNCHER_SOCKET, text.data, text.len, MSG_NOSIGNAL) < 0)
		state.quitting = state.quitting || errno == EPIPE || errno == ECONNRESET;
	buffer_close(&text);
}

static void say_failed(const char *why)
{
	struct arena arena;
	struct json *message;

	arena_init(&arena);
	message = json_object(&arena);
	json_set_text(&arena, message, "op", "failed");
	json_set_text(&arena, message, "why", utf8_valid(bytes_text(why), NULL) ? why : "it could not be started");
	say(message);
	arena_close(&arena);
}

static void say_exited(unsigned left)
{
	struct arena arena;
	struct json *message;

	arena_init(&arena);
	message = json_object(&arena);
	json_set_text(&arena, message, "op", "exited");
	json_set_number(&arena, message, "status", WIFEXITED(state.status) ? WEXITSTATUS(state.status) : 0);
	json_set_number(&arena, message, "signal", WIFSIGNALED(state.status) ? WTERMSIG(state.status) : 0);
	json_set_number(&arena, message, "left", left);
	say(message);
	arena_close(&arena);
}

/* --- processes ----------------------------------------------------------------------------------------------------- */

/* Field 4 (parent) and 22 (start) of /proc/PID/stat. The name in field 2 may hold anything, also ')'. */
static bool read_stat(pid_t pid, pid_t *parent, char *start, size_t size)
{
	char path[64], text[STAT_MAX], *at;
	int fd, field = 3;
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (len <= 0)
		return false;
	text[len] = '\0';
	at = strrchr(text, ')');
	if (at == NULL)
		return false;
	for (at = strtok(at + 1, " "); at != NULL; at = strtok(NULL, " "), field++) {
		if (field == 4)
			*parent = (pid_t)atoi(at);
		if (field == 22) {
			snprintf(start, size, "%s", at);
			return true;
		}
	}
	return false;
}

struct process {
	pid_t pid, parent;
	bool mine;
};

/* SIGKILL for all that came of us. Who forks meanwhile is found by the next sweep. Returns how many there are. */
static unsigned kill_descendants(void)
{
	static struct process processes[PROCESSES_MAX];
	DIR *folder = opendir("/proc");
	struct dirent *item;
	size_t count = 0;
	unsigned found = 0;
	bool more = true;
	char start[32];

	if (folder == NULL)
		return 0;
	while (count < PROCESSES_MAX && (item = readdir(folder)) != NULL) {
		pid_t pid = (pid_t)atoi(item->d_name);

		if (pid > 0 && read_stat(pid, &processes[count].parent, start, sizeof(start)))
			processes[count++].pid = pid;
	}
	closedir(folder);
	for (size_t i = 0; i < count; i++)
		processes[i].mine = processes[i].parent == getpid();
	while (more) {
		more = false;
		for (size_t i = 0; i < count; i++)
			for (size_t j = 0; j < count && !processes[i].mine; j++)
				if (processes[j].mine && processes[i].parent == processes[j].pid)
					more = processes[i].mine = true;
	}
	for (size_t i = 0; i < count; i++)
		if (processes[i].mine) {
			kill(processes[i].pid, SIGKILL);
			found++;
		}
	return found;
}

static _Noreturn void fail_child(int report, const char *what)
{
	char text[256];
	int len = snprintf(text, sizeof(text), "%s: %s", what, strerror(errno));

	if (len > 0 && write(report, text, (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1) < 0)
		_exit(EXEC_FAILED);
	_exit(EXEC_FAILED);
}

/* In the child: what the daemon and we have set for ourselves is taken back. */
static void reset_process(int log, int report)
{
	static const int ignored[] = {SIGPIPE, SIGXFSZ, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
	sigset_t none;
	int null_fd = open("/dev/null", O_RDWR);

	setsid();
	for (size_t i = 0; i < COUNT_OF(ignored); i++)
		signal(ignored[i], SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(022);
	prctl(PR_SET_TIMERSLACK, 50000UL);
	if (!state.keep)
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* should somebody kill us */
	if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		fail_child(report, "its standard streams");
	/* Nothing else is inherited; `executable` and `report` serve until then. */
	if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
		for (int fd = 3; fd < 4096; fd++)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (state.folder[0] != '\0' && chdir(state.folder) != 0)
		fail_child(report, "launch.workingFolder");
}

static pid_t start_child(const char *const *argv, int executable, int log, char *why, size_t size)
{
	int report[2];
	ssize_t got;
	pid_t pid;

	if (pipe2(report, O_CLOEXEC) != 0) {
		snprintf(why, size, "pipe: %s", strerror(errno));
		return 0;
	}
	pid = fork();
	if (pid == 0) {
		reset_process(log, report[1]);
		if (executable >= 0)
			syscall(SYS_execveat, executable, "", argv, state.env, AT_EMPTY_PATH);
		else
			execvpe(argv[0], (char *const *)argv, (char *const *)state.env);
		fail_child(report[1], argv[0]);
	}
	close(report[1]);
	if (pid < 0) {
		snprintf(why, size, "fork: %s", strerror(errno));
		close(report[0]);
		return 0;
	}
	do
		got = read(report[0], why, size - 1);
	while (got < 0 && errno == EINTR);
	close(report[0]);
	if (got <= 0)
		return pid; /* the end without a word: it is another program now */
	why[got] = '\0';
	waitpid(pid, NULL, 0);
	return 0;
}

/* --- stages -------------------------------------------------------------------------------------------------------- */

static void begin_sweep(void)
{
	state.stage = SWEEPING;
	state.due_ms = now_ms() + LAUNCHER_KILL_MS;
}

/* The engine's own way to end a container, whose processes are nobody's children. */
static void start_stopper(void)
{
	char why[256];
	int null_fd;

	if (state.stop == NULL || state.stopper != 0)
		return;
	null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 0); /* execvpe() looks it up here; main() has taken that of `env` */
	state.stopper = start_child(state.stop, -1, null_fd, why, sizeof(why));
	close(null_fd);
}

static void begin_end(int64_t grace_ms)
{
	if (state.stage != RUNNING) {
		if (state.stage == ENDING && grace_ms == 0)
			state.due_ms = now_ms();
		return;
	}
	state.stage = ENDING;
	state.due_ms = now_ms() + grace_ms + (state.stop != NULL && grace_ms > 0 ? LAUNCHER_CONTAINER_MS : 0);
	start_stopper();
	kill(-state.pid, SIGTERM);
}

static void finish(unsigned left)
{
	if (!state.exited)
		state.status = SIGKILL; /* not gone, whatever was tried */
	state.stage = IDLE;
	say_exited(left);
	arena_close(&state.arena);
}

/* All that has ended is reaped, ours and what was left to us. */
static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == state.stopper)
			state.stopper = 0;
		if (pid != state.pid || state.stage == IDLE || state.exited)
			continue;
		state.exited = true;
		state.status = status;
	}
}

static void advance(void)
{
	reap();
	if (state.stage == RUNNING && state.exited) {
		/* By itself: a container may be there still. Its engine gets the grace, everybody else is swept behind that. */
		state.stage = ENDING;
		state.due_ms = now_ms() + (state.stop != NULL ? state.grace_ms + LAUNCHER_CONTAINER_MS : 0);
		start_stopper();
	}
	if (state.stage == ENDING && ((state.exited && state.stopper == 0) || now_ms() >= state.due_ms)) {
		if (!state.exited)
			kill(-state.pid, SIGKILL);
		begin_sweep();
	}
	if (state.stage == SWEEPING) {
		unsigned left = kill_descendants();

		reap();
		if (left == 0 || now_ms() >= state.due_ms)
			finish(left);
	}
	if (state.quitting && state.stage == RUNNING) {
		if (state.keep)
			exit(0);
		begin_end(state.grace_ms);
	}
	if (state.quitting && state.stage == IDLE)
		exit(0);
}

static int wait_ms(void)
{
	int64_t left;

	if (state.stage == SWEEPING)
		return LAUNCHER_SWEEP_MS;
	if (state.stage != ENDING)
		return -1;
	left = state.due_ms - now_ms();
	return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

/* --- what the daemon says ------------------------------------------------------------------------------------------ */

static const char **read_words(const struct json *list)
{
	size_t count = json_count(list);
	const char **words;

	if (!json_is(list, JSON_ARRAY) || count > LAUNCHER_WORDS_MAX)
		return NULL;
	words = arena_zero(&state.arena, (count + 1) * sizeof(*words));
	for (size_t i = 0; i < count; i++)
		words[i] = json_is(json_at(list, i), JSON_STRING) ? json_at(list, i)->string.text : "";
	return words;
}

static void read_order(const struct json *message)
{
	const char *path;

	state.argv = read_words(json_get(message, "argv"));
	state.env = read_words(json_get(message, "env"));
	state.stop = read_words(json_get(message, "stop"));
	state.folder = json_get_text(message, "folder");
	state.grace_ms = (int64_t)json_get_number(message, "graceMs", 0);
	state.keep = json_get_boolean(message, "keep", false);
	state.exited = false;
	state.status = 0;
	state.stopper = 0;
	clearenv();
	for (size_t i = 0; state.env != NULL && state.env[i] != NULL; i++)
		if (strncmp(state.env[i], "PATH=", 5) == 0 && (path = state.env[i] + 5)[0] != '\0')
			setenv("PATH", path, 1);
	state.pid = 0;
}

static void start(const struct json *message, int executable, int log)
{
	char why[512] = "the message is not understood", ticks[32] = "";
	struct arena arena;
	struct json *answer;
	pid_t parent;

	read_order(message);
	if (state.argv != NULL && state.argv[0] != NULL && state.env != NULL && state.folder != NULL && executable >= 0 && log >= 0)
		state.pid = start_child(state.argv, executable, log, why, sizeof(why));
	if (state.pid == 0) {
		say_failed(why);
		arena_close(&state.arena);
		return;
	}
	state.stage = RUNNING;
	read_stat(state.pid, &parent, ticks, sizeof(ticks)); /* not reaped yet, so it is there */
	arena_init(&arena);
	answer = json_object(&arena);
	json_set_text(&arena, answer, "op", "started");
	json_set_number(&arena, answer, "pid", state.pid);
	json_set_text(&arena, answer, "start", ticks);
	say(answer);
	arena_close(&arena);
	if (state.quitting)
		state.keep = false; /* nobody has heard of it, so the next daemon would not know whose it is */
}

/* A container that an earlier launcher has started: there is no process of ours to end, only its engine to ask. */
static void end_other(const struct json *message)
{
	read_order(message);
	state.exited = true;
	state.stage = ENDING;
	state.due_ms = now_ms() + state.grace_ms + LAUNCHER_CONTAINER_MS;
	if (state.env != NULL && state.stop != NULL && state.stop[0] != NULL && state.folder != NULL)
		start_stopper();
}

/* False: the daemon is gone. */
static bool read_message(void)
{
	static char text[LAUNCHER_MESSAGE_MAX];
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec part = {text, sizeof(text)};
	struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
	ssize_t len = recvmsg(LAUNCHER_SOCKET, &head, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	int fds[2] = {-1, -1};
	struct arena arena;
	struct json *message;
	const char *op;

	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (len <= 0)
		return false;
	for (struct cmsghdr *item = CMSG_FIRSTHDR(&head); item != NULL; item = CMSG_NXTHDR(&head, item))
		if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS)
			memcpy(fds, CMSG_DATA(item), item->cmsg_len - CMSG_LEN(0) < sizeof(fds) ? item->cmsg_len - CMSG_LEN(0) : sizeof(fds));
	arena_init(&arena);
	message = json_parse(&arena, (struct bytes){(const uint8_t *)text, (size_t)len}, JSON_STRICT, NULL, NULL);
	op = json_get_text(message, "op");
	if (op != NULL && strcmp(op, "start") == 0 && state.stage == IDLE) {
		state.arena = arena; /* its words are used until the end */
		start(message, fds[0], fds[1]);
	} else if (op != NULL && strcmp(op, "end") == 0 && state.stage == IDLE) {
		state.arena = arena;
		end_other(message);
	} else {
		if (op != NULL && strcmp(op, "start") == 0)
			say_failed("something runs already");
		else if (op != NULL && strcmp(op, "stop") == 0)
			begin_end(state.grace_ms);
		else if (op != NULL && strcmp(op, "kill") == 0)
			begin_end(0);
		arena_close(&arena);
	}
	for (size_t i = 0; i < COUNT_OF(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return true;
}

/* We are nobody's terminal, and hold nothing of the daemon's but our end of the socket. */
static int become_launcher(void)
{
	static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE};
	int null_fd = open("/dev/null", O_RDWR);
	sigset_t child;

	setsid();
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		dup2(null_fd, fd);
	if (syscall(SYS_close_range, (unsigned)LAUNCHER_SOCKET + 1, ~0U, 0) != 0)
		for (int fd = LAUNCHER_SOCKET + 1; fd < 4096; fd++)
			close(fd);
	fcntl(LAUNCHER_SOCKET, F_SETFD, FD_CLOEXEC);
	/* Who stops a whole group or unit reaches us too: the daemon says what to do, or its end does. */
	for (size_t i = 0; i < COUNT_OF(ignored); i++)
		signal(ignored[i], SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_DUMPABLE, 0);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	if (chdir("/") != 0)
		return -1;
	return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int count, char **arguments)
{
	struct signalfd_siginfo told;
	struct pollfd wait[2];
	struct stat status;

	(void)arguments;
	if (count > 1 || fstat(LAUNCHER_SOCKET, &status) != 0 || !S_ISSOCK(status.st_mode)) {
		fputs("reprise-launcher: reprised starts this program, for the runtimes that it launches\n", stderr);
		return 2;
	}
	wait[0] = (struct pollfd){.fd = LAUNCHER_SOCKET, .events = POLLIN};
	wait[1] = (struct pollfd){.fd = become_launcher(), .events = POLLIN};
	if (wait[1].fd < 0)
		return 1;
	for (;;) {
		advance();
		if (poll(wait, COUNT_OF(wait), wait_ms()) < 0 && errno != EINTR)
			return 1;
		while (read(wait[1].fd, &told, sizeof(told)) == (ssize_t)sizeof(told))
			; /* that a child ended is all that it says */
		if (!state.quitting && !read_message())
			state.quitting = true;
		if (state.quitting)
			wait[0].fd = -1; /* its end would be told again and again */
	}
}
