/* A kind of runtime: which paths it has, and the dialects it speaks on those that generate. A further kind is one more file
 * with a table like this, and a line in kinds[] of main.c; pace, faults and counters (exchange.c), answers (answer.c) and the
 * state of a runtime (runtime.c) are shared. request.h reads what the dialects have in common.
 *
 * The print functions add text to a buffer; the stream functions add whole events, each with the dialect's end. */
#pragma once

#include "tests/sim/answer.h"
#include "tests/sim/http.h"

struct sim;

struct dialect {
	const char *stream_type; /* Content-Type */
	const char *event_end;   /* what ends an event, "\n\n" */
	const char *ping;        /* a comment that clients skip; NULL: the dialect has none */

	/* Texts may stay in the arena that holds body. On an error ask->refusal says which. */
	int (*read_ask)(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
		struct ask *ask, struct error *error);
	void (*print_error)(const struct refusal *refusal, const char *message, struct buffer *out);
	const char *malformed; /* refusal.code of a body that is no JSON; NULL: as that of any other bad request */

	void (*prepare)(struct reply *reply, struct arena *arena); /* before the first print; NULL: nothing to prepare */
	void (*print_headers)(const struct reply *reply, struct buffer *out); /* NULL: none */
	void (*print_whole)(const struct reply *reply, struct buffer *out);
	void (*print_load)(const struct reply *reply, bool done, struct buffer *out); /* around a load; NULL: silence */
	void (*print_start)(const struct reply *reply, struct buffer *out);
	void (*print_edge)(const struct reply *reply, bool reasoning, bool end, struct buffer *out); /* around the pieces; NULL: none */
	void (*print_piece)(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out);
	void (*print_finish)(const struct reply *reply, struct buffer *out);
	void (*print_usage)(const struct reply *reply, struct buffer *out);
	void (*print_error_event)(const struct reply *reply, struct buffer *out);
	void (*print_end)(const struct reply *reply, struct buffer *out);
};

struct kind {
	const char *name;
	enum kind_bit bit;
	struct kind_options options; /* defaults */
	bool refuses_while_starting; /* connections, that is; else it answers, see `loading` */
	const char *loading;         /* message of the 503 meanwhile */
	const char *idle_header;     /* a line that says how long an idle connection lives, or NULL */

	/* By method and path: does this request get an exchange, so that it counts, has an ordinal and may have faults? NULL: no. */
	const struct dialect *(*dialect_of)(const struct sim *sim, const struct http_connection *connection);
	/* All other requests: answer at once with http_reply(). */
	void (*serve)(struct sim *sim, struct http_connection *connection);
	/* Is there such a model, does the prompt fit? Finds ask->state. On an error ask->refusal says which. */
	int (*admit)(struct sim *sim, struct arena *arena, struct ask *ask, struct error *error);
	void (*print_error)(const struct refusal *refusal, const char *message, struct buffer *out); /* of requests without a dialect */
};

extern const struct kind openai_kind, llamacpp_kind, vllm_kind, ollama_kind, sglang_kind, lmstudio_kind, transformers_kind;
