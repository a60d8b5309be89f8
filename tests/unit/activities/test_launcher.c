/* reprise-launcher itself, over its socket: what it starts, how that ends, and that nothing is left. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "activities/launcher.h"
#include "workflow/base/check.h"

struct fixture {
	uv_loop_t loop;
	struct launcher *launcher;
	int log;
	char path[64], why[600];
	unsigned started, failed, exited, lost, left;
	int status, signal_number;
	pid_t pid;
	bool closed;
};

static void on_started(void *arg, pid_t pid, const char *start)
{
	struct fixture *f = arg;

	ck_assert_uint_gt(strlen(start), 0);
	f->pid = pid;
	f->started++;
}

static void on_failed(void *arg, const char *why)
{
	struct fixture *f = arg;

	snprintf(f->why, sizeof(f->why), "%s", why);
	f->failed++;
}

static void on_exited(void *arg, int status, int signal_number, unsigned left)
{
	struct fixture *f = arg;

	f->status = status;
	f->signal_number = signal_number;
	f->left = left;
	f->exited++;
}

static void on_lost(void *arg)
{
	((struct fixture *)arg)->lost++;
}

static void open_fixture(struct fixture *f)
{
	static const struct launcher_events events = {on_started, on_failed, on_exited, on_lost};
	struct error error;
	int socket;

	*f = (struct fixture){0};
	snprintf(f->path, sizeof(f->path), "/tmp/reprise-launcher-XXXXXX");
	f->log = mkstemp(f->path);
	ck_assert_int_eq(uv_loop_init(&f->loop), 0);
	ck_assert_int_eq(launcher_spawn(getenv("REPRISE_LAUNCHER"), &socket, &error), 0);
	f->launcher = launcher_open(&f->loop, socket, &events, f);
}

static void on_closed(void *arg)
{
	((struct fixture *)arg)->closed = true;
}

static void close_fixture(struct fixture *f)
{
	launcher_close(f->launcher, on_closed, f);
	while (!f->closed)
		uv_run(&f->loop, UV_RUN_ONCE);
	ck_assert_int_eq(uv_loop_close(&f->loop), 0);
	close(f->log);
	unlink(f->path);
}

static void wait_for(struct fixture *f, const unsigned *count, unsigned wanted)
{
	while (*count < wanted)
		uv_run(&f->loop, UV_RUN_ONCE);
}

static int try_start(struct fixture *f, const char *command, int64_t grace_ms, const char *folder)
{
	const char *const argv[] = {"sh", "-c", command, NULL}, *const env[] = {"PATH=/usr/bin:/bin", "COLOUR=blue", NULL};
	struct launch launch = {.argv = argv, .env = env, .folder = folder, .grace_ms = grace_ms};
	struct error error;
	int shell = open("/bin/sh", O_RDONLY | O_CLOEXEC), code = launcher_start(f->launcher, &launch, shell, f->log, &error);

	close(shell);
	return code;
}

static void start(struct fixture *f, const char *command, int64_t grace_ms)
{
	unsigned before = f->started;

	ck_assert_int_eq(try_start(f, command, grace_ms, NULL), 0);
	wait_for(f, &f->started, before + 1);
}

static char *read_log(struct fixture *f)
{
	static char text[4096];
	ssize_t len = pread(f->log, text, sizeof(text) - 1, 0);

	text[len > 0 ? len : 0] = '\0';
	return text;
}

/* What is started has the variables that it was given, the folder, the log and nothing else; its status comes back; another may follow. */
START_TEST(starts_and_tells)
{
	struct fixture f;

	open_fixture(&f);
	start(&f, "env | grep -v ^_= | sort; pwd; umask; ls /proc/self/fd | tr '\\n' ' '; trap; echo err >&2; exit 7", 1000);
	wait_for(&f, &f.exited, 1);
	ck_assert_int_eq(f.status, 7);
	ck_assert_int_eq(f.signal_number, 0);
	ck_assert_uint_eq(f.left, 0);
	ck_assert_ptr_nonnull(strstr(read_log(&f), "COLOUR=blue\nPATH=/usr/bin:/bin\nPWD=/\n"));
	ck_assert_ptr_nonnull(strstr(read_log(&f), "\n/\n0022\n0 1 2 3 err\n")); /* 3: ls's own, of the folder */
	start(&f, "kill -SEGV $$", 1000);
	wait_for(&f, &f.exited, 2);
	ck_assert_int_eq(f.signal_number, SIGSEGV);
	close_fixture(&f);
}
END_TEST

/* SIGTERM first; what ignores it is killed after its grace, at once when that is asked for; so is whoever outlives it, wherever it went. */
START_TEST(stops_all)
{
	struct fixture f;
	pid_t child;

	open_fixture(&f);
	start(&f, "trap 'exit 5' TERM; echo trapped; while :; do sleep 0.05; done", 60 * 1000);
	while (strstr(read_log(&f), "trapped") == NULL)
		usleep(10 * 1000);
	launcher_stop(f.launcher);
	wait_for(&f, &f.exited, 1);
	ck_assert_int_eq(f.status, 5);
	start(&f, "trap '' TERM; setsid sh -c 'echo child $$; while :; do sleep 0.05; done' & while :; do sleep 0.05; done", 200);
	while (strstr(read_log(&f), "child ") == NULL) /* behind what the shell says of the one before */
		usleep(10 * 1000);
	child = (pid_t)atoi(strstr(read_log(&f), "child ") + 6);
	launcher_stop(f.launcher);
	wait_for(&f, &f.exited, 2);
	ck_assert_int_eq(f.signal_number, SIGKILL);
	ck_assert_uint_eq(f.left, 0);
	ck_assert_int_ne(kill(child, 0), 0);
	start(&f, "trap '' TERM; echo deaf; while :; do sleep 0.05; done", 60 * 1000);
	while (strstr(read_log(&f), "deaf") == NULL)
		usleep(10 * 1000);
	launcher_stop(f.launcher);
	launcher_kill(f.launcher);
	wait_for(&f, &f.exited, 3);
	ck_assert_int_eq(f.signal_number, SIGKILL);
	/* Its child is ended with it too when it ends by itself. */
	start(&f, "setsid sleep 1000 & echo; echo child $!; exit 0", 1000);
	wait_for(&f, &f.exited, 4);
	ck_assert_int_eq(f.status, 0);
	launcher_stop(f.launcher); /* nothing runs: nothing follows */
	close_fixture(&f);
}
END_TEST

/* What cannot be started is told, and the launcher goes on; two at once are refused, and more words than a message holds never leave. */
START_TEST(refusals)
{
	static char large[LAUNCHER_MESSAGE_MAX + 1];
	struct fixture f;
	const char *const argv[] = {"x", NULL}, *const env[] = {NULL};
	struct launch launch = {.argv = argv, .env = env};
	struct error error;

	open_fixture(&f);
	ck_assert_int_eq(try_start(&f, "true", 0, "/no/such/folder"), 0);
	wait_for(&f, &f.failed, 1);
	ck_assert_ptr_nonnull(strstr(f.why, "launch.workingFolder: No such file"));
	ck_assert_int_eq(launcher_start(f.launcher, &launch, f.log, f.log, &error), 0); /* an empty file, which may not be executed */
	wait_for(&f, &f.failed, 2);
	ck_assert_ptr_nonnull(strstr(f.why, "x: "));
	start(&f, "sleep 1000", 100);
	ck_assert_int_eq(try_start(&f, "true", 0, NULL), 0);
	wait_for(&f, &f.failed, 3);
	ck_assert_ptr_nonnull(strstr(f.why, "runs already"));
	launcher_stop(f.launcher);
	wait_for(&f, &f.exited, 1);
	memset(large, 'x', LAUNCHER_MESSAGE_MAX);
	ck_assert_int_eq(try_start(&f, large, 0, NULL), ERR_TOO_LARGE);
	close_fixture(&f);
}
END_TEST

/* Of what runs. */
static pid_t find_launcher(const struct fixture *f)
{
	char path[64], text[512];
	pid_t launcher;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)f->pid);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
	fclose(file);
	ck_assert_int_eq(sscanf(strrchr(text, ')'), ") %*c %d", &launcher), 1);
	return launcher;
}

/* The end of the daemon's side is the end of the runtime; the end of the launcher is told, and is the runtime's too. */
START_TEST(ends_with_the_daemon)
{
	struct fixture f;
	pid_t launcher;

	open_fixture(&f);
	start(&f, "trap '' TERM; while :; do sleep 0.05; done", 100);
	close_fixture(&f);
	for (int i = 0; i < 6000 && kill(f.pid, 0) == 0; i++)
		usleep(10 * 1000);
	ck_assert_int_ne(kill(f.pid, 0), 0);

	open_fixture(&f);
	start(&f, "while :; do sleep 0.05; done", 100);
	launcher = find_launcher(&f);
	kill(launcher, SIGKILL);
	wait_for(&f, &f.lost, 1);
	waitpid(launcher, NULL, 0);
	for (int i = 0; i < 6000 && kill(f.pid, 0) == 0; i++)
		usleep(10 * 1000);
	ck_assert_int_ne(kill(f.pid, 0), 0);
	ck_assert_int_eq(try_start(&f, "true", 0, NULL), ERR_IO);
	close_fixture(&f);
}
END_TEST

/* A runtime that is to be kept, but of which the daemon has not heard any more, is ended: the next one would not know whose it is. The launcher
 * waits for that without turning in circles. */
START_TEST(keeps_nothing_that_is_not_known)
{
	const char *const argv[] = {"sh", "-c", "trap '' TERM; echo child $$; exec sleep 1", NULL}, *const env[] = {"PATH=/usr/bin:/bin", NULL};
	const char *const stop[] = {"sleep", "1", NULL}; /* waited for, also where the child has ended at once; and SIGTERM comes a little later */
	const struct launch launch = {.argv = argv, .env = env, .stop = stop, .grace_ms = 1000, .keep = true};
	int shell = open("/bin/sh", O_RDONLY | O_CLOEXEC);
	struct fixture f;
	struct error error;
	struct rusage used;
	pid_t launcher, child;
	char text[64] = "";
	uint64_t since;
	int log;

	open_fixture(&f);
	log = dup(f.log);
	start(&f, "while :; do sleep 0.05; done", 100);
	launcher = find_launcher(&f);
	launcher_stop(f.launcher);
	wait_for(&f, &f.exited, 1);
	kill(launcher, SIGSTOP);
	ck_assert_int_eq(launcher_start(f.launcher, &launch, shell, f.log, &error), 0);
	close(shell);
	close_fixture(&f);
	since = uv_hrtime();
	kill(launcher, SIGCONT);
	ck_assert_int_eq(wait4(launcher, NULL, 0, &used), launcher);
	ck_assert_uint_gt(uv_hrtime() - since, 500 * 1000 * 1000); /* it has not left the child alone */
	/* Else SIGTERM came before the shell could say that it ignores it. */
	if (pread(log, text, sizeof(text) - 1, 0) > 0) {
		ck_assert_int_eq(sscanf(text, "child %d", &child), 1);
		ck_assert_int_ne(kill(child, 0), 0);
	}
	ck_assert_int_lt(used.ru_utime.tv_sec + used.ru_stime.tv_sec, 1);
	ck_assert_int_lt(used.ru_utime.tv_usec + used.ru_stime.tv_usec, 500 * 1000);
	close(log);
}
END_TEST

/* A command that ends what another launcher has started: its end is told, also when it has to be ended itself; nothing else may run meanwhile. */
START_TEST(what_others_started_is_ended_by_its_engine)
{
	static const char *const env[] = {"PATH=/usr/bin:/bin", NULL}, *const none[] = {"/nowhere/engine", "stop", NULL};
	struct fixture f;
	char script[200];
	const char *stop[] = {"sh", "-c", script, NULL};
	struct launch launch = {.env = env, .grace_ms = 60000, .stop = stop};
	struct error error;

	open_fixture(&f);
	snprintf(script, sizeof(script), "echo asked >%s", f.path);
	ck_assert_int_eq(launcher_end(f.launcher, &launch, &error), 0);
	wait_for(&f, &f.exited, 1);
	ck_assert_str_eq(read_log(&f), "asked\n");
	ck_assert_uint_eq(f.left, 0);
	launch.stop = none;
	ck_assert_int_eq(launcher_end(f.launcher, &launch, &error), 0);
	wait_for(&f, &f.exited, 2);
	launch.stop = stop;
	snprintf(script, sizeof(script), "echo $$ >%s; while :; do sleep 1; done", f.path);
	ck_assert_int_eq(launcher_end(f.launcher, &launch, &error), 0);
	ck_assert_int_eq(try_start(&f, "true", 1000, NULL), 0);
	wait_for(&f, &f.failed, 1);
	ck_assert_str_eq(f.why, "something runs already");
	launcher_kill(f.launcher);
	wait_for(&f, &f.exited, 3);
	ck_assert_uint_eq(f.left, 0);
	start(&f, "exit 4", 1000);
	wait_for(&f, &f.exited, 4);
	ck_assert_int_eq(f.status, 4);
	close_fixture(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("launcher");
	TCase *all = tcase_create("all");
	SRunner *runner;
	int failed;

	signal(SIGPIPE, SIG_IGN);
	tcase_set_timeout(all, 300);
	tcase_add_test(all, starts_and_tells);
	tcase_add_test(all, stops_all);
	tcase_add_test(all, refusals);
	tcase_add_test(all, ends_with_the_daemon);
	tcase_add_test(all, what_others_started_is_ended_by_its_engine);
	tcase_add_test(all, keeps_nothing_that_is_not_known);
	suite_add_tcase(suite, all);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
