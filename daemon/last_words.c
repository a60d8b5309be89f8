/* See last_words.h. */
#include "daemon/last_words.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "workflow/base/check.h"
#include "workflow/base/id.h"
#include "workflow/base/log.h"

enum { STACK_SIZE = 32 << 10 }; /* the fault may be that there is no stack left */

static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static struct sigaction before[COUNT_OF(signals)];
static int file = -1;
static char *left; /* what the file held: lines of ids */
static struct {
	volatile size_t len; /* 0: no run is at hand */
	char line[ID_LEN_MAX + 1];
} at_hand;

/* Only what a handler may do: one write, the old handler back, and the same signal again. */
static void on_fatal(int number)
{
	size_t len = at_hand.len;

	if (len > 0 && syscall(SYS_gettid) == getpid() && write(file, at_hand.line, len) < 0) {
		/* Nobody is left to be told. */
	}
	for (size_t i = 0; i < COUNT_OF(signals); i++)
		if (signals[i] == number)
			sigaction(number, &before[i], NULL);
	raise(number);
}

static void watch_signals(void)
{
	static char stack[STACK_SIZE];
	struct sigaction action = {.sa_handler = on_fatal, .sa_flags = SA_ONSTACK};
	stack_t alternate;

	if (sigaltstack(NULL, &alternate) == 0 && (alternate.ss_flags & SS_DISABLE)) { /* a sanitizer has its own */
		alternate = (stack_t){.ss_sp = stack, .ss_size = sizeof stack};
		sigaltstack(&alternate, NULL);
	}
	for (size_t i = 0; i < COUNT_OF(signals); i++)
		sigaction(signals[i], &action, &before[i]);
}

void last_words_open(const char *data_dir)
{
	char path[PATH_MAX];
	ssize_t len;

	snprintf(path, sizeof path, "%s/last-words", data_dir);
	file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	left = memory_zero(LAST_WORDS_MAX + 1);
	if (file < 0 || (len = read(file, left, LAST_WORDS_MAX)) < 0) {
		log_warn(LOG_DAEMON, "%s: %s: a run that stops the daemon again and again would not be noticed", path, strerror(errno));
		return;
	}
	if (len == LAST_WORDS_MAX && ftruncate(file, 0) != 0)
		log_warn(LOG_DAEMON, "%s: %s", path, strerror(errno));
	watch_signals();
}

void last_words_close(void)
{
	if (file >= 0) {
		for (size_t i = 0; i < COUNT_OF(signals); i++)
			sigaction(signals[i], &before[i], NULL);
		if (ftruncate(file, 0) != 0)
			log_warn(LOG_DAEMON, "last-words: %s", strerror(errno));
		close(file);
	}
	file = -1;
	free(left);
	left = NULL;
}

/* The next line that names the run, or NULL. */
static char *find_line(char *from, const char *run_id)
{
	size_t len = strlen(run_id);

	while (from && *from != '\0') {
		if (strncmp(from, run_id, len) == 0 && from[len] == '\n')
			return from;
		from = strchr(from, '\n');
		from += from != NULL;
	}
	return NULL;
}

unsigned last_words_count(const char *run_id)
{
	unsigned count = 0;

	for (char *line = find_line(left, run_id); line; line = find_line(line + strlen(run_id) + 1, run_id))
		count++;
	return count;
}

void last_words_strike(const char *run_id)
{
	for (char *line; (line = find_line(left, run_id)) != NULL;)
		memmove(line, line + strlen(run_id) + 1, strlen(line + strlen(run_id) + 1) + 1);
	if (ftruncate(file, 0) != 0 || write(file, left, strlen(left)) < 0)
		log_warn(LOG_DAEMON, "last-words: %s", strerror(errno));
}

void last_words_begin(const char *run_id)
{
	size_t len = strlen(run_id);

	CHECK(len <= ID_LEN_MAX);
	memcpy(at_hand.line, run_id, len);
	at_hand.line[len] = '\n';
	at_hand.len = len + 1;
}

void last_words_end(void)
{
	at_hand.len = 0;
}
