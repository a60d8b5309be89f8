/* See runtime_log.h. */
#include "activities/runtime_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "workflow/base/check.h"

enum { CHUNK = 64 << 10 };

void runtime_log_init(struct runtime_log *log)
{
	*log = (struct runtime_log){.fd = -1};
	buffer_init(&log->line, RUNTIME_LOG_LINE_MAX);
}

int runtime_log_open(struct runtime_log *log, const char *path, struct error *error)
{
	struct stat status;

	CHECK(log->fd < 0);
	log->fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (log->fd < 0 || fstat(log->fd, &status) != 0)
		return error_set(error, ERR_IO, "log %s: %s", path, strerror(errno));
	log->offset = (uint64_t)status.st_size;
	return 0;
}

static void keep_line(struct runtime_log *log)
{
	uint8_t *copy = memory_alloc(log->line.len + 1);
	size_t at;

	if (log->on_line != NULL)
		log->on_line(log->arg, buffer_bytes(&log->line));
	if (log->count == RUNTIME_LOG_LINES_MAX) {
		free((void *)log->lines[log->first].data);
		log->first = (log->first + 1) % RUNTIME_LOG_LINES_MAX;
		log->count--;
	}
	at = (log->first + log->count++) % RUNTIME_LOG_LINES_MAX;
	if (log->line.len > 0)
		memcpy(copy, log->line.data, log->line.len);
	log->lines[at] = (struct bytes){copy, log->line.len};
	buffer_clear(&log->line);
}

/* Progress bars end their lines with '\r'. */
static void add(struct runtime_log *log, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (data[i] == '\n' || data[i] == '\r') {
			if (log->line.len > 0)
				keep_line(log);
			log->skipping = false;
		} else if (!log->skipping) {
			if (log->line.len < RUNTIME_LOG_LINE_MAX)
				buffer_add_char(&log->line, data[i]);
			else
				log->skipping = true;
		}
	}
}

void runtime_log_read(struct runtime_log *log)
{
	char chunk[CHUNK];
	struct stat status;
	ssize_t got;

	if (log->fd < 0 || fstat(log->fd, &status) != 0)
		return;
	if ((uint64_t)status.st_size < log->offset) /* somebody has cut it */
		log->offset = 0;
	if ((uint64_t)status.st_size - log->offset > RUNTIME_LOG_READ_MAX) {
		log->offset = (uint64_t)status.st_size - RUNTIME_LOG_READ_MAX;
		buffer_clear(&log->line);
		log->skipping = true;
	}
	for (size_t total = 0; total < RUNTIME_LOG_READ_MAX; total += (size_t)got) {
		got = pread(log->fd, chunk, sizeof(chunk), (off_t)log->offset);
		if (got <= 0)
			break;
		add(log, chunk, (size_t)got);
		log->offset += (uint64_t)got;
	}
	/* Its writers append, so they go on at the new end. A line written between the read and this is lost to the file and to us. */
	if (log->offset > RUNTIME_LOG_MAX && ftruncate(log->fd, 0) == 0)
		log->offset = 0;
}

void runtime_log_finish(struct runtime_log *log)
{
	runtime_log_read(log);
	if (log->line.len > 0)
		keep_line(log);
}

static void free_lines(struct runtime_log *log)
{
	for (size_t i = 0; i < log->count; i++)
		free((void *)log->lines[(log->first + i) % RUNTIME_LOG_LINES_MAX].data);
	log->first = log->count = 0;
}

void runtime_log_clear(struct runtime_log *log)
{
	runtime_log_read(log);
	free_lines(log);
	buffer_clear(&log->line);
	log->skipping = false;
}

size_t runtime_log_lines(const struct runtime_log *log, struct bytes *lines, size_t max)
{
	size_t count = log->count < max ? log->count : max, skipped = log->count - count;

	for (size_t i = 0; i < count; i++)
		lines[i] = log->lines[(log->first + skipped + i) % RUNTIME_LOG_LINES_MAX];
	return count;
}

void runtime_log_close(struct runtime_log *log)
{
	free_lines(log);
	buffer_close(&log->line);
	if (log->fd >= 0)
		close(log->fd);
	log->fd = -1;
}
