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
#include <strings.h>

#include "tests/sim/request.h"
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
	PHASE_QUEUED,  /* for a slot */
	PHASE_WAITING, /* for the timer */
	PHASE_BLOCKED, /* for the client to read */
	PHASE_STALLED, /* for the client to give up */
	PHASE_RESETTING,
	PHASE_ENDING,  /* for the last bytes to leave */
	PHASE_ABANDONED, /* the client is gone, the runtime goes on */
};

enum step {
	STEP_WHOLE, STEP_LOADING, STEP_LOADED, STEP_START, STEP_REASONING, STEP_TEXT, STEP_ERROR, STEP_FINISH, STEP_USAGE, STEP_END, STEP_NONE
};

struct exchange {
	struct sim *sim;
	struct http_connection *connection; /* NULL: abandoned */
	const struct dialect *dialect;
	struct script *script; /* held: the simulator's may be replaced meanwhile */
	struct list link;      /* in the runtime's queue, among those whose timer is waited for, or among the abandoned */
	uv_timer_t timer;
	struct arena arena;
	struct ask ask;
	struct reply reply;
	struct fault fault;

	uint64_t ordinal, epoch;
	struct tally_entry *section, *key; /* of this epoch only */
	enum phase phase;
	enum step step;
	size_t position;       /* in the reasoning or the text */
	uint64_t pause_count;
	bool streaming, head_sent, paced, halfway; /* halfway: behind the chunk that holds the middle byte */
	bool has_slot, in_use; /* of the runtime; of the model */
	uint64_t load_ms; /* a pause of its own before the first byte */
	uint64_t due_ms, ping_due_ms; /* on the loop's clock; ping_due_ms 0: no pings */
	uint64_t body_bytes;   /* put into `out` so far, without transfer framing */
	struct buffer head, event, out, rest; /* rest: the second half of a split event */
};

static void advance(struct exchange *exchange);
static void start_waiting(struct sim *sim);

static struct list abandoned = {&abandoned, &abandoned}, pausing = {&pausing, &pausing};

/* ---- Beginning, ending, counting ---- */

static void on_timer_closed(uv_handle_t *handle)
{
	struct exchange *exchange = handle->data;

	script_release(exchange->script);
	arena_close(&exchange->arena);
	buffer_close(&exchange->head);
	buffer_close(&exchange->event);
	buffer_close(&exchange->out);
	buffer_close(&exchange->rest);
	free(exchange);
}

static void count_outcome(struct exchange *exchange, enum outcome outcome)
{
	struct counters *counters = &exchange->sim->counters;
	struct runtime *runtime = &exchange->sim->runtime;

	if (exchange->epoch == counters->epoch) {
		counters->outcomes[outcome]++;
		counters->in_flight--;
		counters->body_bytes += exchange->body_bytes;
		if (outcome == OUTCOME_COMPLETED) {
			if (exchange->section != NULL)
				exchange->section->completed++;
			if (exchange->key != NULL)
				exchange->key->completed++;
		}
	}
	if (exchange->has_slot && outcome == OUTCOME_COMPLETED) {
		runtime->text_tokens += exchange->reply.text_tokens + exchange->reply.reasoning_tokens;
		if (strcmp(exchange->reply.finish, "length") == 0)
			runtime->finished_length++;
		else
			runtime->finished_stop++;
	} else if (exchange->has_slot) {
		runtime->aborted++;
	}
	if (exchange->sim->verbose)
		fprintf(stderr, "request=%llu outcome=%s fault=%s body_bytes=%llu\n", (unsigned long long)exchange->ordinal,
			outcome_name(outcome), fault_kind_name(exchange->fault.kind), (unsigned long long)exchange->body_bytes);
}

/* Give back what it holds of the runtime, and end it. */
static void release(struct exchange *exchange)
{
	struct runtime *runtime = &exchange->sim->runtime;

	if (exchange->phase == PHASE_QUEUED)
		runtime->waiting--;
	if (exchange->phase == PHASE_ABANDONED)
		runtime->abandoned--;
	list_remove(&exchange->link);
	if (exchange->in_use)
		runtime_end_use(runtime, exchange->ask.state, exchange->ask.ttl_ms);
	if (exchange->has_slot)
		runtime_free_slot(runtime, exchange->reply.slot);
	uv_close((uv_handle_t *)&exchange->timer, on_timer_closed);
	start_waiting(exchange->sim);
}

/* Count it and let go of it. The connection is the caller's to end. */
static void settle(struct exchange *exchange, enum outcome outcome)
{
	count_outcome(exchange, outcome);
	exchange->connection->exchange = NULL;
	release(exchange);
}

static void answer_error(struct exchange *exchange, const struct refusal *refusal, const char *message, const char *headers,
	enum outcome outcome)
{
	struct http_connection *connection = exchange->connection;
	int status = refusal->status;
	struct buffer body;

	buffer_init(&body, HEAD_BYTES_MAX);
	exchange->dialect->print_error(refusal, message, &body);
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

	if (exchange->phase == PHASE_ABANDONED) {
		release(exchange);
		return;
	}
	if (exchange->phase == PHASE_RESETTING) {
		struct http_connection *connection = exchange->connection;

		if (exchange->fault.kind == FAULT_DIE)
			process_die(exchange->sim, exchange->fault.status);
		settle(exchange, OUTCOME_FAULTED);
		http_reset(connection);
		return;
	}
	CHECK(exchange->phase == PHASE_WAITING);
	if (now >= exchange->due_ms) {
		list_remove(&exchange->link);
		advance(exchange);
		return;
	}
	buffer_add_text(&exchange->out, exchange->dialect->ping);
	flush(exchange, false);
	exchange->ping_due_ms = now + (uint64_t)exchange->script->cadence.ping_ms;
	uv_timer_start(timer, on_timer, (exchange->due_ms < exchange->ping_due_ms ? exchange->due_ms : exchange->ping_due_ms) - now, 0);
}

static void wait_for(struct exchange *exchange, uint64_t ms, enum phase phase)
{
	uint64_t now, wait = ms;

	uv_update_time(&exchange->sim->loop); /* A busy turn must not shorten the pause. */
	now = uv_now(&exchange->sim->loop);
	exchange->phase = phase;
	if (phase == PHASE_WAITING)
		list_add_last(&pausing, &exchange->link);
	exchange->due_ms = now + ms;
	exchange->ping_due_ms = 0;
	if (phase == PHASE_WAITING && exchange->streaming && exchange->script->cadence.ping_ms > 0 &&
	    exchange->dialect->ping != NULL) {
		exchange->ping_due_ms = now + (uint64_t)exchange->script->cadence.ping_ms;
		if ((uint64_t)exchange->script->cadence.ping_ms < wait)
			wait = (uint64_t)exchange->script->cadence.ping_ms;
	}
	uv_timer_start(&exchange->timer, on_timer, wait, 0);
}

/* ---- The events of an answer ---- */

static struct bytes next_piece(const struct exchange *exchange, struct bytes text)
{
	struct bytes rest = {text.data + exchange->position, text.len - exchange->position};

	rest.len = token_bytes(rest, (uint64_t)exchange->script->cadence.tokens_per_chunk);
	return rest;
}

/* What the dialect says before the first piece of a text and after its last one. */
static void print_edge(struct exchange *exchange, bool reasoning, bool end)
{
	size_t len = reasoning ? exchange->reply.reasoning.len : exchange->reply.text.len;

	if (exchange->dialect->print_edge != NULL && exchange->position == (end ? len : 0))
		exchange->dialect->print_edge(&exchange->reply, reasoning, end, &exchange->event);
}

/* The chunk that holds the middle byte of the text is where faults inside an answer strike. */
static void print_text_piece(struct exchange *exchange)
{
	const struct dialect *dialect = exchange->dialect;
	struct bytes text = exchange->reply.text;
	struct bytes piece = next_piece(exchange, text);
	size_t middle = text.len / 2;
	bool holds_middle = exchange->position <= middle && middle < exchange->position + piece.len;

	exchange->reply.sent_tokens += token_count(piece);
	print_edge(exchange, false, false);
	dialect->print_piece(&exchange->reply, false, piece, &exchange->event);
	exchange->position += piece.len;
	print_edge(exchange, false, true);
	if (!holds_middle)
		return;
	exchange->halfway = true;
	if (exchange->fault.kind == FAULT_DUPLICATE_CHUNK)
		dialect->print_piece(&exchange->reply, false, piece, &exchange->event);
	if (exchange->fault.kind == FAULT_TRUNCATED_JSON) {
		exchange->event.len /= 2;
		buffer_add_text(&exchange->event, dialect->event_end);
	}
	if (exchange->fault.kind == FAULT_EOF)
		exchange->step = STEP_NONE;
	if (exchange->fault.kind == FAULT_ERROR_EVENT)
		exchange->step = STEP_ERROR;
}

static void print_whole(struct exchange *exchange)
{
	if (exchange->fault.kind == FAULT_ERROR_EVENT)
		exchange->dialect->print_error(&(struct refusal){.status = 500}, "the simulator was told to fail",
			&exchange->event);
	else
		exchange->dialect->print_whole(&exchange->reply, &exchange->event);
	if (exchange->fault.kind == FAULT_TRUNCATED_JSON)
		exchange->event.len /= 2;
}

/* Put the next event into `event`; false when there is none. Sets `paced` if a pause belongs behind it. */
static bool print_next(struct exchange *exchange)
{
	const struct dialect *dialect = exchange->dialect;
	const struct reply *reply = &exchange->reply;

	buffer_clear(&exchange->event);
	exchange->paced = false;
	while (exchange->event.len == 0) {
		switch (exchange->step) {
		case STEP_WHOLE:
			print_whole(exchange);
			exchange->step = STEP_NONE;
			break;
		case STEP_LOADING:
			dialect->print_load(reply, false, &exchange->event);
			exchange->step = STEP_LOADED;
			exchange->paced = true;
			break;
		case STEP_LOADED:
			dialect->print_load(reply, true, &exchange->event);
			exchange->step = STEP_START;
			break;
		case STEP_START:
			dialect->print_start(reply, &exchange->event);
			exchange->step = STEP_REASONING;
			break;
		case STEP_REASONING:
			if (exchange->position < reply->reasoning.len) {
				struct bytes piece = next_piece(exchange, reply->reasoning);

				exchange->reply.sent_tokens += token_count(piece);
				print_edge(exchange, true, false);
				dialect->print_piece(reply, true, piece, &exchange->event);
				exchange->position += piece.len;
				print_edge(exchange, true, true);
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
			dialect->print_error_event(reply, &exchange->event);
			exchange->step = STEP_END;
			break;
		case STEP_FINISH:
			dialect->print_finish(reply, &exchange->event);
			exchange->step = STEP_USAGE;
			break;
		case STEP_USAGE:
			if (exchange->ask.include_usage)
				dialect->print_usage(reply, &exchange->event);
			exchange->step = STEP_END;
			break;
		case STEP_END:
			if (!exchange->script->options.no_done)
				dialect->print_end(reply, &exchange->event);
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
	if (exchange->script->cadence.jitter_ms == 0)
		return 0;
	return random_draw(exchange->script->seed, exchange->ordinal, purpose, step) % ((uint64_t)exchange->script->cadence.jitter_ms + 1);
}

static uint64_t next_pause_ms(struct exchange *exchange)
{
	uint64_t more = 0;

	if (exchange->step == STEP_LOADED)
		return exchange->load_ms;
	if (exchange->halfway) {
		exchange->halfway = false;
		more = (uint64_t)exchange->script->cadence.pause_ms;
	}
	return more + (uint64_t)exchange->script->cadence.chunk_ms + jitter(exchange, RANDOM_CHUNK, exchange->pause_count++);
}

static uint64_t count_chunks(const struct exchange *exchange, struct bytes text, size_t from)
{
	uint64_t per_chunk = (uint64_t)exchange->script->cadence.tokens_per_chunk;

	return (token_count((struct bytes){text.data + from, text.len - from}) + per_chunk - 1) / per_chunk;
}

/* A plain answer comes when its last chunk would have come. Of a stream: how long the rest of it takes. */
static uint64_t rest_wait_ms(struct exchange *exchange)
{
	bool in_text = exchange->step == STEP_TEXT;
	uint64_t chunks = count_chunks(exchange, exchange->reply.text, in_text ? exchange->position : 0);
	uint64_t wait = 0;

	if (exchange->script->cadence.chunk_ms == 0 && exchange->script->cadence.jitter_ms == 0)
		return 0;
	if (!in_text && exchange->step < STEP_TEXT)
		chunks += count_chunks(exchange, exchange->reply.reasoning, exchange->position);
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

static bool strikes_by_bytes(const struct exchange *exchange)
{
	return exchange->fault.kind == FAULT_RESET || exchange->fault.kind == FAULT_STALL || exchange->fault.kind == FAULT_DIE;
}

/* True when the fault "reset" or "stall" strikes within this event; the event then ends there. */
static bool reaches_limit(struct exchange *exchange)
{
	uint64_t room;

	if (!strikes_by_bytes(exchange))
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
	if (exchange->fault.kind == FAULT_STALL)
		exchange->phase = PHASE_STALLED;
	else
		wait_for(exchange, RESET_PAUSE_MS, PHASE_RESETTING);
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
	if (strikes_by_bytes(exchange)) {
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
		if (exchange->script->cadence.split_utf8 && !struck && exchange->event.len > 1) {
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
		answer_error(exchange, &(struct refusal){.status = exchange->fault.status}, "the simulator was told to answer so", headers,
			OUTCOME_FAULTED);
		return true;
	case FAULT_NONE: case FAULT_RESET: case FAULT_STALL: case FAULT_EOF: case FAULT_ERROR_EVENT: case FAULT_TRUNCATED_JSON:
	case FAULT_DUPLICATE_CHUNK: case FAULT_CONTENT_TYPE: case FAULT_NOT_JSON: case FAULT_CUT_TEXT: case FAULT_CUT_BY_LENGTH: case FAULT_ABORT:
	case FAULT_UNGROUNDED: case FAULT_DIE: case FAULT_KIND_COUNT:
		break;
	}
	return false;
}

static void print_head(struct exchange *exchange)
{
	const char *type = exchange->streaming ? exchange->dialect->stream_type : "application/json";
	struct buffer headers;
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
	buffer_init(&headers, HEAD_BYTES_MAX / 2);
	if (exchange->dialect->print_headers != NULL)
		exchange->dialect->print_headers(&exchange->reply, &headers);
	http_print_head(exchange->connection, 200, type, buffer_text(&headers), length, &exchange->head);
	buffer_close(&headers);
}

/* ---- The runtime: its slots and models ---- */

/* Where the model stands, and what its cache makes of the prompt. By order of arrival, so that it is the same each time. */
static void look_at_runtime(struct exchange *exchange)
{
	struct runtime *runtime = &exchange->sim->runtime;
	const struct kind_options *options = &exchange->script->options;
	struct reply *reply = &exchange->reply;
	struct model_state *state = exchange->ask.state;
	uint64_t salt = random_hash(exchange->ask.cache_salt, bytes_text(exchange->ask.model));

	*reply = (struct reply){.ask = &exchange->ask, .script = exchange->script, .ordinal = exchange->ordinal, .instance = runtime->instance,
		.since_load = exchange->ordinal, .loads = runtime->instance, .model = exchange->ask.model};
	if (options->wrong_model != NULL)
		reply->model = options->wrong_model;
	if (state != NULL && !state->loaded && exchange->ask.loads_only != NULL && strcmp(exchange->ask.loads_only, "unload") == 0)
		state = NULL; /* it is gone already */
	if (state != NULL) {
		reply->loaded_now = runtime_load(runtime, state, options->load_ms);
		if (reply->loaded_now) {
			state->by_request = true;
			if (exchange->ask.evicts)
				runtime_evict_others(runtime, state);
		}
		runtime_begin_use(state);
		exchange->in_use = true;
		exchange->load_ms = runtime_load_left_ms(runtime, state);
		reply->load_ms = reply->loaded_now ? (uint64_t)options->load_ms : 0;
		if (exchange->ask.loads_only == NULL)
			state->since_load++;
		reply->since_load = state->since_load;
		reply->loads = state->loads;
	}
	if (options->prompt_cache && !exchange->ask.cache_off && exchange->ask.loads_only == NULL)
		reply->cached_tokens = runtime_cache_prompt(runtime, exchange->ask.prompt, salt, &reply->prompt_seen);
}

/* It has a slot: the answer begins. */
static void proceed(struct exchange *exchange)
{
	struct runtime *runtime = &exchange->sim->runtime;
	uint64_t wait = (uint64_t)exchange->script->cadence.first_byte_ms + jitter(exchange, RANDOM_FIRST_BYTE, 0);

	exchange->has_slot = true;
	exchange->reply.slot = runtime_take_slot(runtime, &exchange->reply);
	print_head(exchange);
	runtime->prompt_tokens += exchange->reply.prompt_tokens;
	if (exchange->step != STEP_LOADING)
		wait += exchange->load_ms;
	if (!exchange->streaming)
		wait += rest_wait_ms(exchange);
	if (wait > 0)
		wait_for(exchange, wait, PHASE_WAITING);
	else
		advance(exchange);
}

void exchange_release(struct sim *sim)
{
	(void)sim;
	LIST_EACH_SAFE(link, &pausing) {
		struct exchange *exchange = CONTAINER_OF(link, struct exchange, link);

		exchange->due_ms = 0;
		uv_timer_start(&exchange->timer, on_timer, 0, 0);
	}
}

static bool has_free_slot(const struct sim *sim)
{
	return sim->script->options.slots == 0 || sim->runtime.running < (uint64_t)sim->script->options.slots;
}

/* Those that wait get the free slots in the order in which they came. One that is answered at once comes back here; the outer call
 * goes on. */
static void start_waiting(struct sim *sim)
{
	static bool starting;

	if (starting)
		return;
	starting = true;
	while (!list_empty(&sim->runtime.queue) && has_free_slot(sim)) {
		struct exchange *next = CONTAINER_OF(sim->runtime.queue.next, struct exchange, link);

		list_remove(&next->link);
		sim->runtime.waiting--;
		next->phase = PHASE_WAITING;
		proceed(next);
	}
	starting = false;
}

/* The client is gone, but the runtime makes the rest of the answer: the slot stays taken as long as that lasts. */
static void abandon(struct exchange *exchange)
{
	uint64_t now = uv_now(&exchange->sim->loop), left = 0;

	if (exchange->phase == PHASE_WAITING && exchange->due_ms > now)
		left = exchange->due_ms - now;
	if (exchange->streaming)
		left += rest_wait_ms(exchange);
	exchange->connection->exchange = NULL;
	exchange->connection = NULL;
	exchange->phase = PHASE_ABANDONED;
	exchange->sim->runtime.abandoned++;
	list_remove(&exchange->link);
	list_add_last(&abandoned, &exchange->link);
	uv_timer_start(&exchange->timer, on_timer, left, 0);
}

void exchange_end_abandoned(struct sim *sim)
{
	(void)sim;
	LIST_EACH_SAFE(link, &abandoned)
		release(CONTAINER_OF(link, struct exchange, link));
}

static void begin(struct exchange *exchange)
{
	struct sim *sim = exchange->sim;
	const struct kind_options *options;
	struct ask *ask = &exchange->ask;
	struct error error = {.code = ERR_NONE};
	const struct json *body;

	exchange->script = script_hold(sim->script);
	options = &exchange->script->options;
	ask->refusal.status = 400;
	ask->ttl_ms = -1;
	body = json_parse(&exchange->arena, buffer_bytes(&exchange->connection->body), JSON_ROUND_INTEGERS, NULL, &error);
	ask->body = body;
	if (body == NULL)
		ask->refusal.code = exchange->dialect->malformed;
	if (body == NULL || exchange->dialect->read_ask(sim, exchange->connection, body, &exchange->arena, ask, &error) != 0) {
		answer_error(exchange, &ask->refusal, error.message, "", OUTCOME_REJECTED);
		return;
	}
	count_request(exchange);
	if (sim->kind->admit(sim, &exchange->arena, ask, &error) != 0) {
		answer_error(exchange, &ask->refusal, error.message, "", OUTCOME_REJECTED);
		return;
	}
	exchange->fault = script_choose_fault(exchange->script, exchange->ordinal, ask->prompt);
	if (exchange->fault.kind != FAULT_NONE && exchange->epoch == sim->counters.epoch)
		sim->counters.faults[exchange->fault.kind]++;
	if (strike_at_once(exchange))
		return;

	process_tell_memory(sim);
	exchange->streaming = ask->stream && !options->ignore_stream;
	look_at_runtime(exchange);
	exchange->reply.breaks_off = exchange->fault.kind == FAULT_EOF || exchange->fault.kind == FAULT_ERROR_EVENT;
	answer_make(&exchange->fault, &exchange->arena, &exchange->reply);
	if (exchange->dialect->prepare != NULL)
		exchange->dialect->prepare(&exchange->reply, &exchange->arena);
	exchange->step = !exchange->streaming ? STEP_WHOLE :
		exchange->reply.loaded_now && exchange->dialect->print_load != NULL ? STEP_LOADING : STEP_START;
	if (has_free_slot(sim)) {
		proceed(exchange);
	} else {
		exchange->phase = PHASE_QUEUED;
		sim->runtime.waiting++;
		list_add_last(&sim->runtime.queue, &exchange->link);
	}
}

/* ---- What the server calls ---- */

static bool on_header(struct http_connection *connection)
{
	struct sim *sim = connection->server->context;
	struct counters *counters = &sim->counters;
	const struct dialect *dialect;
	struct exchange *exchange;

	connection->exchange = NULL;
	dialect = sim->kind->dialect_of(sim, connection);
	if (dialect == NULL)
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
	exchange->dialect = dialect;
	list_init(&exchange->link);
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

/* A key is asked for on all paths but those that say whether the runtime lives. */
static bool is_authorized(const struct sim *sim, const struct http_connection *connection)
{
	static const char bearer[] = "Bearer ";
	const char *key = sim->script->options.api_key;
	const char *given = connection->authorization;

	if (key == NULL || path_is(connection, HTTP_GET, "/health") || path_is(connection, HTTP_GET, "/version"))
		return true;
	return strncasecmp(given, bearer, sizeof(bearer) - 1) == 0 && strcmp(given + sizeof(bearer) - 1, key) == 0;
}

static void on_request(struct http_connection *connection)
{
	struct sim *sim = connection->server->context;
	struct exchange *exchange = connection->exchange;
	struct refusal refusal = {.status = 200};
	const char *message = NULL;

	if (sim->runtime.phase == RUNTIME_STARTING) {
		refusal.status = 503;
		message = sim->kind->loading;
	} else if (!is_authorized(sim, connection)) {
		refusal.status = 401;
		message = "Invalid API Key";
	}
	if (exchange == NULL && message == NULL)
		sim->kind->serve(sim, connection);
	else if (exchange == NULL)
		reply_refusal(sim, connection, refusal.status, NULL, message);
	else if (message == NULL)
		begin(exchange);
	else
		answer_error(exchange, &refusal, message, "", OUTCOME_REJECTED);
}

static void on_gone(struct http_connection *connection)
{
	struct exchange *exchange = connection->exchange;
	struct sim *sim = connection->server->context;
	enum outcome outcome = connection->rejected ? OUTCOME_REJECTED : sim->reloading ? OUTCOME_FAULTED : OUTCOME_CANCELLED;

	if (exchange == NULL)
		return;
	if (exchange->has_slot && exchange->script->options.keeps_generating && !sim->closing && !sim->reloading) {
		count_outcome(exchange, outcome);
		abandon(exchange);
	} else {
		settle(exchange, outcome);
	}
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

static void print_error(struct http_connection *connection, int status, struct buffer *out)
{
	struct sim *sim = connection->server->context;
	struct refusal refusal = {.status = status};

	if (connection->exchange != NULL)
		((struct exchange *)connection->exchange)->dialect->print_error(&refusal, "the simulator does not take this request", out);
	else
		sim->kind->print_error(&refusal, "the simulator does not take this request", out);
}

const struct http_handler product_handler = {
	.on_header = on_header,
	.on_request = on_request,
	.on_gone = on_gone,
	.on_drained = on_drained,
	.print_error = print_error,
};
