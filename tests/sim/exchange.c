/* One chat request from its header to the end of its answer: which fault it meets, at which pace its bytes go out, and
 * how it is counted. Loop thread. Start at begin(), then advance().
 *
 *   on_header ─▶ reading ─▶ begin ─▶ waiting ─▶ advance ─▶ ending ─▶ complete
 *                                       ▲          │ pause, split event, slow reader
 *                                       └──────────┘
 *   The client may go away at any point; a fault may end it at any point. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"
#include "workflow/base/check.h"

enum {
	FLUSH_BYTES = 64 * 1024,     /* an answer without pauses goes out in writes of about this size */
	QUEUED_MAX = 256 * 1024,     /* a client that reads slower than we write makes us wait from here on */
	SPLIT_PAUSE_MS = 2,          /* between the two halves of a split event, so that they are two reads for the client */
	RESET_PAUSE_MS = 5,          /* before a reset, so that the bytes before it are read */
	HEAD_BYTES_MAX = 16 * 1024,
};

enum phase {
	PHASE_READING, /* the body is still coming */
	PHASE_WAITING, /* for the timer */
	PHASE_BLOCKED, /* for the client to read */
	PHASE_STALLED, /* for the client to give up */
	PHASE_RESETTING,
	PHASE_ENDING,  /* for the last bytes to leave */
};

enum step { STEP_WHOLE, STEP_START, STEP_REASONING, STEP_TEXT, STEP_ERROR, STEP_FINISH, STEP_USAGE, STEP_END, STEP_NONE };

struct exchange {
	struct sim *sim;
	struct http_connection *connection;
	uv_timer_t timer;
	struct arena arena;
	struct ask ask;
	struct reply reply;
	struct fault fault;

	/* Copied from the script, which may be replaced meanwhile. */
	struct cadence cadence;
	uint64_t seed;
	bool no_done;

	uint64_t ordinal, epoch;
	struct tally_entry *section, *key; /* of this epoch only */
	enum phase phase;
	enum step step;
	size_t position;       /* in the reasoning or the text */
	uint64_t pause_count;
	bool streaming, head_sent, paced;
	uint64_t due_ms, ping_due_ms; /* on the loop's clock; ping_due_ms 0: no pings */
	uint64_t body_bytes;   /* put into `out` so far, without transfer framing */
	struct buffer head, event, out, rest; /* rest: the second half of a split event */
};

static void advance(struct exchange *exchange);

/* ---- Beginning, ending, counting ---- */

static void on_timer_closed(uv_handle_t *handle)
{
	struct exchange *exchange = handle->data;

	arena_close(&exchange->arena);
	buffer_close(&exchange->head);
	buffer_close(&exchange->event);
	buffer_close(&exchange->out);
	buffer_close(&exchange->rest);
	free(exchange);
}

/* Count it and let go of it. The connection is the caller's to end. */
static void settle(struct exchange *exchange, enum outcome outcome)
{
	struct counters *counters = &exchange->sim->counters;

	if (exchange->epoch == counters->epoch) {
		counters->outcomes[outcome]++;
		counters->in_flight--;
		if (outcome == OUTCOME_COMPLETED) {
			if (exchange->section != NULL)
				exchange->section->completed++;
			if (exchange->key != NULL)
				exchange->key->completed++;
		}
	}
	if (exchange->sim->verbose)
		fprintf(stderr, "request=%llu outcome=%s fault=%s body_bytes=%llu\n", (unsigned long long)exchange->ordinal,
			outcome_name(outcome), fault_kind_name(exchange->fault.kind), (unsigned long long)exchange->body_bytes);
	exchange->connection->exchange = NULL;
	uv_close((uv_handle_t *)&exchange->timer, on_timer_closed);
}

static void answer_error(struct exchange *exchange, int status, const char *code, const char *message, const char *headers,
	enum outcome outcome)
{
	struct http_connection *connection = exchange->connection;
	const struct kind *kind = exchange->sim->kind;
	struct buffer body;

	buffer_init(&body, HEAD_BYTES_MAX);
	kind->print_error(status, code, message, &body);
	settle(exchange, outcome);
	http_reply(connection, status, "application/json", headers, buffer_bytes(&body));
	buffer_close(&body);
}

/* ---- Sending ---- */

/* Send what has gathered, with the header before it if that is still here. */
static void flush(struct exchange *exchange, bool last)
{
	static const char end[] = "0\r\n\r\n";
	bool framed = exchange->streaming && exchange->connection->chunked;
	char size[24];
	uv_buf_t pieces[5];
	unsigned count = 0;

	if (!exchange->head_sent) {
		pieces[count++] = uv_buf_init((char *)exchange->head.data, (unsigned)exchange->head.len);
		exchange->head_sent = true;
	}
	if (exchange->out.len > 0) {
		if (framed)
			pieces[count++] = uv_buf_init(size, (unsigned)snprintf(size, sizeof(size), "%zx\r\n", exchange->out.len));
		pieces[count++] = uv_buf_init((char *)exchange->out.data, (unsigned)exchange->out.len);
		if (framed)
			pieces[count++] = uv_buf_init((char *)(uintptr_t)"\r\n", 2);
	}
	if (framed && last)
		pieces[count++] = uv_buf_init((char *)(uintptr_t)end, sizeof(end) - 1);
	http_send(exchange->connection, pieces, count);
	buffer_clear(&exchange->out);
}

static void on_timer(uv_timer_t *timer)
{
	struct exchange *exchange = timer->data;
	uint64_t now = uv_now(&exchange->sim->loop);

	if (exchange->phase == PHASE_RESETTING) {
		struct http_connection *connection = exchange->connection;

		settle(exchange, OUTCOME_FAULTED);
		http_reset(connection);
		return;
	}
	CHECK(exchange->phase == PHASE_WAITING);
	if (now >= exchange->due_ms) {
		advance(exchange);
		return;
	}
	buffer_add_text(&exchange->out, exchange->sim->kind->ping);
	flush(exchange, false);
	exchange->ping_due_ms = now + (uint64_t)exchange->cadence.ping_ms;
	uv_timer_start(timer, on_timer, (exchange->due_ms < exchange->ping_due_ms ? exchange->due_ms : exchange->ping_due_ms) - now, 0);
}

static void wait_for(struct exchange *exchange, uint64_t ms, enum phase phase)
{
	uint64_t now, wait = ms;

	uv_update_time(&exchange->sim->loop); /* A busy turn must not shorten the pause. */
	now = uv_now(&exchange->sim->loop);
	exchange->phase = phase;
	exchange->due_ms = now + ms;
	exchange->ping_due_ms = 0;
	if (phase == PHASE_WAITING && exchange->streaming && exchange->cadence.ping_ms > 0) {
		exchange->ping_due_ms = now + (uint64_t)exchange->cadence.ping_ms;
		if ((uint64_t)exchange->cadence.ping_ms < wait)
			wait = (uint64_t)exchange->cadence.ping_ms;
	}
	uv_timer_start(&exchange->timer, on_timer, wait, 0);
}

/* ---- The events of an answer ---- */

static struct bytes next_piece(const struct exchange *exchange, struct bytes text)
{
	struct bytes rest = {text.data + exchange->position, text.len - exchange->position};

	rest.len = token_bytes(rest, (uint64_t)exchange->cadence.tokens_per_chunk);
	return rest;
}

/* The chunk that holds the middle byte of the text is where faults inside an answer strike. */
static void print_text_piece(struct exchange *exchange)
{
	const struct kind *kind = exchange->sim->kind;
	struct bytes text = exchange->reply.text;
	struct bytes piece = next_piece(exchange, text);
	size_t middle = text.len / 2;
	bool holds_middle = exchange->position <= middle && middle < exchange->position + piece.len;

	kind->print_piece(&exchange->reply, false, piece, &exchange->event);
	exchange->position += piece.len;
	if (!holds_middle)
		return;
	if (exchange->fault.kind == FAULT_DUPLICATE_CHUNK)
		kind->print_piece(&exchange->reply, false, piece, &exchange->event);
	if (exchange->fault.kind == FAULT_TRUNCATED_JSON) {
		exchange->event.len /= 2;
		buffer_add_text(&exchange->event, kind->event_end);
	}
	if (exchange->fault.kind == FAULT_EOF)
		exchange->step = STEP_NONE;
	if (exchange->fault.kind == FAULT_ERROR_EVENT)
		exchange->step = STEP_ERROR;
}

static void print_whole(struct exchange *exchange)
{
	if (exchange->fault.kind == FAULT_ERROR_EVENT)
		exchange->sim->kind->print_error(500, "simulated", "the simulator was told to fail", &exchange->event);
	else
		exchange->sim->kind->print_whole(&exchange->reply, &exchange->event);
	if (exchange->fault.kind == FAULT_TRUNCATED_JSON)
		exchange->event.len /= 2;
}

/* Put the next event into `event`; false when there is none. Sets `paced` if a pause belongs behind it. */
static bool print_next(struct exchange *exchange)
{
	const struct kind *kind = exchange->sim->kind;
	const struct reply *reply = &exchange->reply;

	buffer_clear(&exchange->event);
	exchange->paced = false;
	while (exchange->event.len == 0) {
		switch (exchange->step) {
		case STEP_WHOLE:
			print_whole(exchange);
			exchange->step = STEP_NONE;
			break;
		case STEP_START:
			kind->print_start(reply, &exchange->event);
			exchange->step = STEP_REASONING;
			break;
		case STEP_REASONING:
			if (exchange->position < reply->reasoning.len) {
				struct bytes piece = next_piece(exchange, reply->reasoning);

				kind->print_piece(reply, true, piece, &exchange->event);
				exchange->position += piece.len;
				exchange->paced = true;
				break;
			}
			exchange->position = 0;
			exchange->step = STEP_TEXT;
			if (reply->text.len == 0 && exchange->fault.kind == FAULT_EOF)
				exchange->step = STEP_NONE;
			if (reply->text.len == 0 && exchange->fault.kind == FAULT_ERROR_EVENT)
				exchange->step = STEP_ERROR;
			break;
		case STEP_TEXT:
			if (exchange->position < reply->text.len) {
				print_text_piece(exchange);
				exchange->paced = exchange->position < reply->text.len && exchange->step == STEP_TEXT;
				break;
			}
			exchange->step = STEP_FINISH;
			break;
		case STEP_ERROR:
			kind->print_error_event(reply, &exchange->event);
			exchange->step = STEP_END;
			break;
		case STEP_FINISH:
			kind->print_finish(reply, &exchange->event);
			exchange->step = STEP_USAGE;
			break;
		case STEP_USAGE:
			if (exchange->ask.include_usage)
				kind->print_usage(reply, &exchange->event);
			exchange->step = STEP_END;
			break;
		case STEP_END:
			if (!exchange->no_done)
				kind->print_end(reply, &exchange->event);
			exchange->step = STEP_NONE;
			break;
		case STEP_NONE:
			return false;
		}
	}
	return true;
}

/* ---- The pace ---- */

static uint64_t jitter(const struct exchange *exchange, enum random_purpose purpose, uint64_t step)
{
	if (exchange->cadence.jitter_ms == 0)
		return 0;
	return random_draw(exchange->seed, exchange->ordinal, purpose, step) % ((uint64_t)exchange->cadence.jitter_ms + 1);
}

static uint64_t next_pause_ms(struct exchange *exchange)
{
	return (uint64_t)exchange->cadence.chunk_ms + jitter(exchange, RANDOM_CHUNK, exchange->pause_count++);
}

/* A plain answer comes when its last chunk would have come. */
static uint64_t whole_wait_ms(struct exchange *exchange)
{
	uint64_t per_chunk = (uint64_t)exchange->cadence.tokens_per_chunk;
	uint64_t chunks = (exchange->reply.text_tokens + per_chunk - 1) / per_chunk +
		(exchange->reply.reasoning_tokens + per_chunk - 1) / per_chunk;
	uint64_t wait = 0;

	if (exchange->cadence.chunk_ms == 0 && exchange->cadence.jitter_ms == 0)
		return 0;
	for (uint64_t i = 1; i < chunks; i++)
		wait += next_pause_ms(exchange);
	return wait;
}

/* Where an event is cut in two: inside the first UTF-8 sequence of several bytes, else in the middle of the line. */
static size_t split_point(struct bytes event)
{
	for (size_t i = 0; i < event.len; i++) {
		if (event.data[i] >= 0xc0)
			return i + 1;
	}
	return event.len / 2;
}

/* True when the fault "reset" or "stall" strikes within this event; the event then ends there. */
static bool reaches_limit(struct exchange *exchange)
{
	uint64_t room;

	if (exchange->fault.kind != FAULT_RESET && exchange->fault.kind != FAULT_STALL)
		return false;
	room = exchange->fault.after_bytes - exchange->body_bytes;
	if (exchange->event.len < room)
		return false;
	exchange->event.len = (size_t)room;
	return true;
}

static void strike(struct exchange *exchange)
{
	flush(exchange, false);
	if (exchange->fault.kind == FAULT_RESET)
		wait_for(exchange, RESET_PAUSE_MS, PHASE_RESETTING);
	else
		exchange->phase = PHASE_STALLED;
}

/* All bytes of the answer are with the kernel. */
static void complete(struct exchange *exchange)
{
	struct http_connection *connection = exchange->connection;
	bool cut_short = !exchange->streaming && exchange->fault.kind == FAULT_EOF;
	enum outcome outcome = OUTCOME_COMPLETED;

	if (exchange->fault.kind == FAULT_EOF || exchange->fault.kind == FAULT_ERROR_EVENT ||
	    exchange->fault.kind == FAULT_TRUNCATED_JSON)
		outcome = OUTCOME_FAULTED;
	settle(exchange, outcome);
	if (cut_short)
		http_close(connection);
	else
		http_finish(connection);
}

static void end(struct exchange *exchange)
{
	if (exchange->fault.kind == FAULT_RESET || exchange->fault.kind == FAULT_STALL) {
		strike(exchange); /* The answer was shorter than afterBytes: it strikes before the end is told. */
		return;
	}
	exchange->phase = PHASE_ENDING;
	flush(exchange, true);
	if (http_queued(exchange->connection) == 0)
		complete(exchange);
}

/* Send until the next pause, the client is too slow, a fault strikes, or the answer ends. */
static void advance(struct exchange *exchange)
{
	uint64_t pause;

	if (exchange->rest.len > 0) {
		buffer_add_bytes(&exchange->out, buffer_bytes(&exchange->rest));
		buffer_clear(&exchange->rest);
		flush(exchange, false);
		pause = exchange->paced ? next_pause_ms(exchange) : 0;
		if (pause > 0) {
			wait_for(exchange, pause, PHASE_WAITING);
			return;
		}
	}
	for (;;) {
		bool struck;

		if (http_queued(exchange->connection) > QUEUED_MAX) {
			exchange->phase = PHASE_BLOCKED;
			return;
		}
		if (!print_next(exchange)) {
			end(exchange);
			return;
		}
		if (exchange->step == STEP_NONE && !exchange->streaming && exchange->fault.kind == FAULT_EOF)
			exchange->event.len /= 2; /* The header has promised all of it. */
		struck = reaches_limit(exchange);
		exchange->body_bytes += exchange->event.len;
		if (exchange->cadence.split_utf8 && !struck && exchange->event.len > 1) {
			size_t half = split_point(buffer_bytes(&exchange->event));

			buffer_add(&exchange->out, exchange->event.data, half);
			buffer_add(&exchange->rest, exchange->event.data + half, exchange->event.len - half);
			flush(exchange, false);
			wait_for(exchange, SPLIT_PAUSE_MS, PHASE_WAITING);
			return;
		}
		buffer_add_bytes(&exchange->out, buffer_bytes(&exchange->event));
		if (struck) {
			strike(exchange);
			return;
		}
		pause = exchange->paced ? next_pause_ms(exchange) : 0;
		if (pause > 0) {
			flush(exchange, false);
			wait_for(exchange, pause, PHASE_WAITING);
			return;
		}
		if (exchange->out.len >= FLUSH_BYTES)
			flush(exchange, false);
	}
}

/* ---- The request ---- */

static void count_request(struct exchange *exchange)
{
	struct counters *counters = &exchange->sim->counters;
	struct http_connection *connection = exchange->connection;
	struct digest digest;
	char hex[DIGEST_HEX_LEN + 1];

	if (exchange->epoch != counters->epoch)
		return;
	buffer_clear(&counters->last_request);
	buffer_add_bytes(&counters->last_request, buffer_bytes(&connection->body));
	if (connection->idempotency_key[0] != '\0' && utf8_valid(bytes_text(connection->idempotency_key), NULL)) {
		exchange->key = tally_get(&counters->keys, connection->idempotency_key);
		if (exchange->key != NULL)
			exchange->key->requests++;
	}
	if (exchange->ask.has_section) {
		digest = digest_of(exchange->ask.section);
		digest_hex(&digest, hex);
		exchange->section = tally_get(&counters->sections, hex);
		if (exchange->section != NULL)
			exchange->section->requests++;
	}
}

/* The faults that leave no answer, or another one. True: dealt with. */
static bool strike_at_once(struct exchange *exchange)
{
	struct http_connection *connection = exchange->connection;
	char headers[64] = "";

	switch (exchange->fault.kind) {
	case FAULT_REFUSE:
		settle(exchange, OUTCOME_FAULTED);
		http_reset(connection);
		return true;
	case FAULT_CLOSE:
		settle(exchange, OUTCOME_FAULTED);
		http_close(connection);
		return true;
	case FAULT_HANG:
		exchange->phase = PHASE_STALLED;
		return true;
	case FAULT_STATUS:
		if (exchange->fault.retry_after >= 0)
			snprintf(headers, sizeof(headers), "Retry-After: %d\r\n", exchange->fault.retry_after);
		answer_error(exchange, exchange->fault.status, "simulated", "the simulator was told to answer so", headers,
			OUTCOME_FAULTED);
		return true;
	case FAULT_NONE: case FAULT_RESET: case FAULT_STALL: case FAULT_EOF: case FAULT_ERROR_EVENT: case FAULT_TRUNCATED_JSON:
	case FAULT_DUPLICATE_CHUNK: case FAULT_CONTENT_TYPE: case FAULT_NOT_JSON: case FAULT_CUT_TEXT: case FAULT_CUT_BY_LENGTH:
	case FAULT_UNGROUNDED: case FAULT_KIND_COUNT:
		break;
	}
	return false;
}

static void print_head(struct exchange *exchange)
{
	const char *type = exchange->streaming ? exchange->sim->kind->stream_type : "application/json";
	int64_t length = -1;

	if (exchange->fault.kind == FAULT_CONTENT_TYPE)
		type = "text/html";
	if (!exchange->streaming) {
		print_whole(exchange);
		length = (int64_t)exchange->event.len;
		/* A client that knows the length takes a whole answer for whole, whatever comes behind it. */
		if (exchange->fault.after_bytes >= exchange->event.len)
			exchange->fault.after_bytes = exchange->event.len - 1;
	} else if (!exchange->connection->chunked) {
		exchange->connection->keep_alive = false; /* HTTP/1.0 knows the end of a stream by the end of the connection only. */
	}
	http_print_head(exchange->connection, 200, type, "", length, &exchange->head);
}

static void begin(struct exchange *exchange)
{
	struct sim *sim = exchange->sim;
	struct script *script = sim->script;
	struct error error = {.code = ERR_NONE};
	const struct json *body;
	uint64_t wait;

	body = json_parse(&exchange->arena, buffer_bytes(&exchange->connection->body), JSON_ROUND_INTEGERS, NULL, &error);
	if (body == NULL || sim->kind->read_ask(body, &exchange->arena, &exchange->ask, &error) != 0) {
		answer_error(exchange, 400, "invalid_request", error.message, "", OUTCOME_REJECTED);
		return;
	}
	count_request(exchange);
	if (strcmp(exchange->ask.model, script->model) != 0) {
		answer_error(exchange, 404, "model_not_found", "there is no such model", "", OUTCOME_REJECTED);
		return;
	}
	exchange->fault = script_choose_fault(script, exchange->ordinal, exchange->ask.prompt);
	if (exchange->fault.kind != FAULT_NONE && exchange->epoch == sim->counters.epoch)
		sim->counters.faults[exchange->fault.kind]++;
	if (strike_at_once(exchange))
		return;

	exchange->cadence = script->cadence;
	exchange->seed = script->seed;
	exchange->no_done = script->no_done;
	exchange->streaming = exchange->ask.stream && !script->ignore_stream;
	exchange->step = exchange->streaming ? STEP_START : STEP_WHOLE;
	answer_make(script, &exchange->ask, &exchange->fault, exchange->ordinal, &exchange->arena, &exchange->reply);
	sim->kind->prepare(&exchange->reply, &exchange->arena);
	print_head(exchange);
	wait = (uint64_t)exchange->cadence.first_byte_ms + jitter(exchange, RANDOM_FIRST_BYTE, 0);
	if (!exchange->streaming)
		wait += whole_wait_ms(exchange);
	if (wait > 0)
		wait_for(exchange, wait, PHASE_WAITING);
	else
		advance(exchange);
}

/* ---- What the server calls ---- */

static bool on_header(struct http_connection *connection)
{
	struct sim *sim = connection->server->context;
	struct counters *counters = &sim->counters;
	struct exchange *exchange;

	connection->exchange = NULL;
	if (!sim->kind->is_chat(connection))
		return true;
	counters->requests++;
	if (script_refuses(sim->script, counters->requests)) {
		counters->faults[FAULT_REFUSE]++;
		counters->outcomes[OUTCOME_FAULTED]++;
		return false;
	}
	counters->in_flight++;
	if (counters->in_flight > counters->in_flight_max)
		counters->in_flight_max = counters->in_flight;
	exchange = memory_zero(sizeof(*exchange));
	exchange->sim = sim;
	exchange->connection = connection;
	exchange->ordinal = counters->requests;
	exchange->epoch = counters->epoch;
	exchange->phase = PHASE_READING;
	arena_init(&exchange->arena);
	/* An answer is capped at ANSWER_BYTES_MAX; escaped inside JSON inside an event it may grow to twelve times that. */
	buffer_init(&exchange->head, HEAD_BYTES_MAX);
	buffer_init(&exchange->event, (size_t)12 * ANSWER_BYTES_MAX + HEAD_BYTES_MAX);
	buffer_init(&exchange->out, exchange->event.max + 2 * FLUSH_BYTES);
	buffer_init(&exchange->rest, exchange->event.max);
	CHECK(uv_timer_init(&sim->loop, &exchange->timer) == 0);
	exchange->timer.data = exchange;
	connection->exchange = exchange;
	return true;
}

static void on_request(struct http_connection *connection)
{
	struct sim *sim = connection->server->context;

	if (connection->exchange != NULL)
		begin(connection->exchange);
	else
		sim->kind->serve(sim, connection);
}

static void on_gone(struct http_connection *connection)
{
	if (connection->exchange != NULL)
		settle(connection->exchange, connection->rejected ? OUTCOME_REJECTED : OUTCOME_CANCELLED);
}

static void on_drained(struct http_connection *connection)
{
	struct exchange *exchange = connection->exchange;

	if (exchange == NULL)
		return;
	if (exchange->phase == PHASE_BLOCKED)
		advance(exchange);
	else if (exchange->phase == PHASE_ENDING)
		complete(exchange);
}

const struct http_handler product_handler = {
	.on_header = on_header,
	.on_request = on_request,
	.on_gone = on_gone,
	.on_drained = on_drained,
};
