/* A stream of JSON texts, one a line (NDJSON), read by bytes: a piece may end anywhere. Pure. */
#pragma once

#include "workflow/base/bytes.h"

enum { LINES_LINE_MAX = 1 << 20 }; /* bytes of one line */

/* Borrowed until the callback returns. False stops the reading. */
typedef bool (*lines_cb)(void *arg, struct bytes line);

struct lines {
	lines_cb on_line;
	void *arg;
	struct buffer line;
	bool stopped, overflow;
};

void lines_init(struct lines *lines, lines_cb on_line, void *arg);
void lines_close(struct lines *lines);
/* False: stopped by the callback, or a line is longer than LINES_LINE_MAX (then `overflow` is set). Empty lines are left out. */
bool lines_feed(struct lines *lines, struct bytes piece);
/* The stream has ended: a last line without a line break is given out too, since who reads it knows whether it is whole. */
bool lines_finish(struct lines *lines);
