/* What the dialects of all kinds have in common: reading the members of an OpenAI-like body, printing texts, replying.
 *
 * The readers take an absent member and null as "not told", and answer ERR_INVALID with a message that names the field.
 * Threads: loop. */
#pragma once

#include "tests/sim/sim.h"

enum { CREATED_BASE = 1790000000 /* `created` is no clock: equal scripts and orders give equal bytes */ };

/* All texts of all messages become ask->prompt; the last message that holds a section counts. */
int request_read_messages(const struct json *messages, struct arena *arena, struct ask *ask, struct error *error);
int request_read_prompt(const struct json *prompt, struct ask *ask, struct error *error); /* one text */
/* The member, if it is there, is of this type; of a list `of` is the type of its items. */
int request_read_type(const struct json *body, const char *name, enum json_type type, struct error *error);
int request_read_list(const struct json *body, const char *name, enum json_type of, struct error *error);
/* One of the words, or, with `to` above 0, a number from 0 to it. */
int request_read_effort(const struct json *body, double to, struct error *error);
int request_read_range(const struct json *body, const char *name, double min, double max, struct error *error);
int request_read_limit(const struct json *body, const char *name, struct ask *ask, struct error *error);
int request_read_stops(const struct json *stop, size_t max, struct ask *ask, struct error *error);
int request_read_format(const struct json *format, struct ask *ask, struct error *error);
int request_read_stream(const struct json *body, bool fallback, struct ask *ask, struct error *error);
int request_read_seed(const struct json *body, const char *name, struct ask *ask, struct error *error);
int request_read_temperature(const struct json *body, double fallback, struct ask *ask, struct error *error);
/* Leave out messages until at most `tokens` of the prompt are left: the oldest first, not those of the system before the first other
 * one, nor the last; then the beginning of that one. Call it after request_read_messages(). */
void request_truncate(const struct json *messages, uint64_t tokens, struct arena *arena, struct ask *ask);
/* The same without messages: the end of the prompt is kept. */
void request_truncate_prompt(uint64_t tokens, struct ask *ask);
/* The error message becomes "…" of this kind: status, code and param of the refusal. Returns ERR_INVALID. */
int request_refuse(struct ask *ask, int status, const char *code, const char *param, struct error *error, const char *format, ...)
	__attribute__((format(printf, 6, 7)));
/* As Python prints it: "3.0". */
void request_print_float(double number, char text[static 32]);
/* thinking is switched off by reasoning_effort "none", or by chat_template_kwargs, which wins */
bool request_wants_no_reasoning(const struct json *body);

/* The state of a model that the script names; NULL: there is none of that name. */
struct model_state *request_find_model(struct sim *sim, const char *name);

bool path_is(const struct http_connection *connection, enum http_method method, const char *path);
/* The value of a name in the query, as it stands there; false when there is none. */
bool query_is(const struct http_connection *connection, const char *name, const char *value);

void print_text(const char *text, struct buffer *out); /* a JSON string */
void print_bytes(struct bytes text, struct buffer *out);
void print_number(uint64_t number, struct buffer *out);

/* What several dialects print: nothing; the end mark of OpenAI's streams; and what all chunks of such a stream begin with, printed once
 * into reply->prefix, since a long answer has thousands of them. */
void print_nothing(const struct reply *reply, struct buffer *out);
void print_done(const struct reply *reply, struct buffer *out);
void print_prefix_once(struct reply *reply, struct arena *arena,
	void (*print)(const struct reply *reply, const char *object, struct buffer *out));
uint64_t reply_tokens(const struct reply *reply); /* of text and reasoning */

/* The body of a request that is answered at once; NULL: it was refused already. Ends with the arena. */
const struct json *request_parse(struct sim *sim, struct http_connection *connection, struct arena *arena);
void reply_json(struct http_connection *connection, int status, struct buffer *body); /* closes the buffer */
void reply_refusal(const struct sim *sim, struct http_connection *connection, int status, const char *code, const char *message);
