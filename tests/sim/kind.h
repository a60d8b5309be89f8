/* A kind of runtime: one dialect over HTTP. A further kind is one more file with a table like this, and a line in
 * kinds[] of main.c; pace, faults and counters (exchange.c) and answers (answer.c) are shared.
 *
 * The print functions add text to a buffer; the stream functions add whole events, each with the dialect's end. */
#pragma once

#include "tests/sim/answer.h"
#include "tests/sim/http.h"

struct sim;

struct kind {
	const char *name;
	const char *stream_type; /* Content-Type */
	const char *event_end;   /* what ends an event, "\n\n" */
	const char *ping;        /* a comment that clients skip */

	/* By method and path: does this request get an exchange, so that it counts, has an ordinal and may have faults? */
	bool (*is_chat)(const struct http_connection *connection);
	/* All other requests: answer at once with http_reply(). */
	void (*serve)(struct sim *sim, struct http_connection *connection);
	/* Texts may stay in the arena that holds body. */
	int (*read_ask)(const struct json *body, struct arena *arena, struct ask *ask, struct error *error);
	void (*print_error)(int status, const char *code, const char *message, struct buffer *out);

	void (*prepare)(struct reply *reply, struct arena *arena); /* before the first print */
	void (*print_whole)(const struct reply *reply, struct buffer *out);
	void (*print_start)(const struct reply *reply, struct buffer *out);
	void (*print_piece)(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out);
	void (*print_finish)(const struct reply *reply, struct buffer *out);
	void (*print_usage)(const struct reply *reply, struct buffer *out);
	void (*print_error_event)(const struct reply *reply, struct buffer *out);
	void (*print_end)(const struct reply *reply, struct buffer *out);
};

extern const struct kind openai_kind;
