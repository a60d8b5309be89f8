/* Server-sent events, read by bytes: a piece may end inside a line, a line break or a UTF-8 sequence (runtimes.md 2.1).
 * Pure. Source: WHATWG HTML, "Server-sent events", with two leniencies at the end of the stream: see sse_finish(). */
#pragma once

#include "workflow/base/bytes.h"

enum { SSE_EVENT_MAX = 1 << 20 }; /* bytes of one line, and of one event's data */

/* Both borrowed until the callback returns. name is "" where the stream named none. False stops the reading. */
typedef bool (*sse_event_cb)(void *arg, const char *name, struct bytes data);

struct sse {
	sse_event_cb on_event;
	void *arg;
	struct buffer line, data, name;
	bool after_return; /* the last byte was a CR: an LF that follows belongs to it */
	bool line_seen; /* a byte order mark is no longer looked for */
	bool has_data;
	bool stopped, overflow;
};

void sse_init(struct sse *sse, sse_event_cb on_event, void *arg);
void sse_close(struct sse *sse);
/* False: stopped by the callback, or an event is larger than SSE_EVENT_MAX (then `overflow` is set). */
bool sse_feed(struct sse *sse, struct bytes piece);
/* The stream has ended. An event whose lines are whole but which lacks its empty line is given out, and so is a last
 * "data: [DONE]" without a line break; a cut line is not. */
bool sse_finish(struct sse *sse);
