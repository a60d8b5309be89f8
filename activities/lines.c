/* See lines.h. */
#include "activities/lines.h"

#include <string.h>

void lines_init(struct lines *lines, lines_cb on_line, void *arg)
{
	*lines = (struct lines){.on_line = on_line, .arg = arg};
	buffer_init(&lines->line, LINES_LINE_MAX);
}

void lines_close(struct lines *lines)
{
	buffer_close(&lines->line);
}

static void give_line(struct lines *lines)
{
	struct bytes line = buffer_bytes(&lines->line);

	if (line.len > 0 && line.data[line.len - 1] == '\r')
		line.len--;
	if (line.len > 0 && !lines->on_line(lines->arg, line))
		lines->stopped = true;
	buffer_clear(&lines->line);
}

bool lines_feed(struct lines *lines, struct bytes piece)
{
	while (piece.len > 0 && !lines->stopped && !lines->overflow) {
		const uint8_t *end = memchr(piece.data, '\n', piece.len);
		size_t len = end != NULL ? (size_t)(end - piece.data) : piece.len;

		buffer_add(&lines->line, piece.data, len);
		lines->overflow = lines->line.overflow;
		if (end == NULL || lines->overflow)
			break;
		give_line(lines);
		piece.data += len + 1;
		piece.len -= len + 1;
	}
	return !lines->stopped && !lines->overflow;
}

bool lines_finish(struct lines *lines)
{
	if (!lines->stopped && !lines->overflow)
		give_line(lines);
	return !lines->stopped && !lines->overflow;
}
