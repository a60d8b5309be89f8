/* What a launched runtime writes to its standard streams: a file that it writes itself, followed here into a ring of its last lines.
 *
 * The runtime holds the file, not a pipe of ours, so neither a daemon that is busy nor one that was killed holds it up, and what it said last
 * is there after any crash. Past RUNTIME_LOG_MAX the file is begun anew; the lines stay in the ring. Threads: loop. */
#pragma once

#include <stdbool.h>

#include "workflow/base/bytes.h"
#include "workflow/base/error.h"

enum {
	RUNTIME_LOG_LINES_MAX = 500, /* kept */
	RUNTIME_LOG_LINE_MAX = 2000, /* bytes of each; the rest of a longer one is left out */
	RUNTIME_LOG_READ_MAX = 1 << 20, /* bytes at once; of more only the last so many are looked at */
	RUNTIME_LOG_MAX = 8 << 20, /* bytes of the file */
	RUNTIME_LOG_EVERY_MS = 200,
};

struct runtime_log {
	int fd; /* -1: not open; opened to append, for the runtime too */
	uint64_t offset; /* read up to here */
	struct buffer line; /* its beginning, no end yet */
	bool skipping; /* in the middle of a line that is not wanted */
	void (*on_line)(void *arg, struct bytes line); /* each line as it is read, also those that the ring has no room for; NULL: nobody wants them */
	void *arg;
	struct bytes lines[RUNTIME_LOG_LINES_MAX]; /* a ring */
	size_t first, count;
};

void runtime_log_init(struct runtime_log *log);
/* What is there already is not read. */
int runtime_log_open(struct runtime_log *log, const char *path, struct error *error);
void runtime_log_read(struct runtime_log *log);
void runtime_log_finish(struct runtime_log *log); /* the same, and its last line counts without an end too: nobody writes any more */
void runtime_log_clear(struct runtime_log *log); /* forgets its lines: another start begins */
/* Oldest first; valid until the next read. Returns how many, at most `max`, the last ones. */
size_t runtime_log_lines(const struct runtime_log *log, struct bytes *lines, size_t max);
void runtime_log_close(struct runtime_log *log);
