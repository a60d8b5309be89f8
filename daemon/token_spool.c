/* See token_spool.h. */
#include "daemon/token_spool.h"

#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/failure.h"

enum { PIECE_MAX = 16 << 10 /* bytes of text in one event of a stream */ };

/* A text whose front may be gone. */
struct channel {
	struct buffer text;
	uint64_t gone;
};

struct spooled {
	struct list link;
	char run_id[ID_LEN_MAX + 1];
	char *step;
	unsigned attempt;
	struct activity *activity; /* that writes it; NULL: it has ended */
	struct channel text, reasoning;
	bool ended;
	enum failure_class outcome;
	uint64_t number; /* of its beginning, counted up */
};

/* What a stream has told of one attempt. */
struct told {
	struct list link;
	uint64_t number; /* of the attempt */
	uint64_t text, reasoning; /* bytes */
	bool ended;
};

struct token_stream {
	struct list link;
	struct token_spool *spool;
	struct http_stream *stream;
	char run_id[ID_LEN_MAX + 1];
	char *step; /* or NULL */
	bool run_ended;
	bool behind; /* it was full when there was more to tell: pump() goes on when it is drained */
	struct list told; /* in the order of the attempts, and of none that is gone */
};

static struct spooled *spooled_at(const struct list *link)
{
	return CONTAINER_OF(link, struct spooled, link);
}

void token_spool_init(struct token_spool *spool)
{
	*spool = (struct token_spool){0};
	list_init(&spool->attempts);
	list_init(&spool->streams);
}

static struct told *told_at(const struct list *link)
{
	return CONTAINER_OF(link, struct told, link);
}

static bool is_for(const struct token_stream *stream, const struct spooled *spooled)
{
	return strcmp(stream->run_id, spooled->run_id) == 0 && (!stream->step || strcmp(stream->step, spooled->step) == 0);
}

static void forget(struct token_spool *spool, struct told *told)
{
	spool->told_count--;
	list_remove(&told->link);
	free(told);
}

static void forget_told(struct token_spool *spool, const struct spooled *spooled)
{
	LIST_EACH(link, &spool->streams) {
		struct token_stream *stream = CONTAINER_OF(link, struct token_stream, link);
		struct list *told = stream->told.next; /* those that go are mostly the oldest */
		while (told != &stream->told && told_at(told)->number < spooled->number)
			told = told->next;
		if (told != &stream->told && told_at(told)->number == spooled->number)
			forget(spool, told_at(told));
	}
}

static size_t bytes_of(const struct spooled *spooled)
{
	return spooled->text.text.len + spooled->reasoning.text.len;
}

static void drop(struct token_spool *spool, struct spooled *spooled)
{
	spool->bytes -= bytes_of(spooled);
	spool->attempt_count--;
	if (spooled->activity)
		spooled->activity->spooled = NULL;
	forget_told(spool, spooled);
	list_remove(&spooled->link);
	buffer_close(&spooled->text.text);
	buffer_close(&spooled->reasoning.text);
	free(spooled->step);
	free(spooled);
}

void token_spool_close(struct token_spool *spool)
{
	CHECK(list_empty(&spool->streams));
	while (!list_empty(&spool->attempts))
		drop(spool, spooled_at(spool->attempts.next));
}

/* It goes on: what comes next has its own offset, which shows the gap. */
static void forget_text(struct token_spool *spool, struct spooled *spooled)
{
	struct channel *channels[] = {&spooled->text, &spooled->reasoning};

	spool->bytes -= bytes_of(spooled);
	for (size_t i = 0; i < COUNT_OF(channels); i++) {
		channels[i]->gone += channels[i]->text.len;
		buffer_close(&channels[i]->text);
		buffer_init(&channels[i]->text, 2 * TOKEN_ATTEMPT_MAX);
	}
}

static bool has_room(const struct token_spool *spool)
{
	return spool->bytes <= TOKEN_SPOOL_MAX && spool->attempt_count <= TOKEN_ATTEMPTS_MAX;
}

/* Never the one that is written to. */
static void make_room(struct token_spool *spool, const struct spooled *kept)
{
	for (int also_open = 0; also_open < 2; also_open++) {
		struct list *link = spool->attempts.next;
		while (link != &spool->attempts && !has_room(spool)) {
			struct spooled *spooled = spooled_at(link);
			link = link->next;
			if (spooled == kept || (!spooled->ended && !also_open))
				continue;
			if (spooled->ended || spool->attempt_count > TOKEN_ATTEMPTS_MAX)
				drop(spool, spooled);
			else
				forget_text(spool, spooled);
		}
	}
}

/* --- streams ------------------------------------------------------------------------------------------------------- */

static struct json *name_attempt(struct arena *arena, const struct spooled *spooled)
{
	struct json *json = json_object(arena);

	json_set_text(arena, json, "step", spooled->step);
	json_set_number(arena, json, "attempt", spooled->attempt);
	return json;
}

static void add_event(struct token_stream *stream, const char *name, const struct json *data)
{
	struct buffer text;

	buffer_init(&text, 16 * PIECE_MAX); /* escaped, six bytes for one at most */
	buffer_printf(&text, "event: %s\ndata: ", name);
	json_print(data, &text);
	buffer_add_text(&text, "\n\n");
	CHECK(!text.overflow);
	stream_add(stream->stream, buffer_bytes(&text));
	buffer_close(&text);
}

/* Whole characters; a text that a peer cut inside of one waits for the rest, unless there is none. */
static size_t piece_len(const uint8_t *bytes, size_t len)
{
	size_t end = len;

	if (len <= PIECE_MAX)
		return len;
	for (end = PIECE_MAX; end > 0 && (bytes[end] & 0xC0) == 0x80; end--)
		;
	return end;
}

static void tell_channel(struct token_stream *stream, const struct spooled *spooled, const struct channel *channel, const char *name, uint64_t *told)
{
	if (*told < channel->gone)
		*told = channel->gone; /* the event's offset shows the gap */
	while (*told - channel->gone < channel->text.len && !stream_is_full(stream->stream)) {
		const uint8_t *bytes = channel->text.data + (*told - channel->gone);
		size_t len = piece_len(bytes, channel->text.len - (size_t)(*told - channel->gone));
		struct arena arena;
		arena_init(&arena);
		struct json *data = name_attempt(&arena, spooled);
		json_set_number(&arena, data, "offset", (double)*told);
		json_set(&arena, data, "text", json_text_len(&arena, (const char *)bytes, len));
		add_event(stream, name, data);
		arena_close(&arena);
		*told += len;
	}
}

/* last: of those told, the last one that did not begin after this attempt; or the list itself. */
static struct told *told_of(struct token_stream *stream, const struct spooled *spooled, struct list *last)
{
	struct told *told;
	struct arena arena;

	if (last != &stream->told && told_at(last)->number == spooled->number)
		return told_at(last);
	told = memory_zero(sizeof *told);
	told->number = spooled->number;
	stream->spool->told_count++;
	list_add_first(last, &told->link); /* behind it: a list's head is before its first */
	arena_init(&arena);
	add_event(stream, "attempt", name_attempt(&arena, spooled));
	arena_close(&arena);
	return told;
}

static void tell(struct token_stream *stream, const struct spooled *spooled, struct told *told)
{
	struct arena arena;

	tell_channel(stream, spooled, &spooled->reasoning, "reasoning", &told->reasoning);
	tell_channel(stream, spooled, &spooled->text, "text", &told->text);
	stream->behind |= stream_is_full(stream->stream);
	if (!spooled->ended || told->ended || stream_is_full(stream->stream))
		return;
	told->ended = true;
	arena_init(&arena);
	struct json *data = name_attempt(&arena, spooled);
	json_set_text(&arena, data, "outcome", spooled->outcome == FAILURE_NONE ? "answered" : failure_name(spooled->outcome));
	add_event(stream, "end", data);
	arena_close(&arena);
}

/* All that the stream lacks, as far as there is room: through the attempts and through what was told of them side by side, for there may be many of both. */
static void pump(struct token_stream *stream)
{
	struct list *last = &stream->told;

	if (stream->stream->ended)
		return;
	stream->behind = false;
	LIST_EACH(link, &stream->spool->attempts) {
		struct spooled *spooled = spooled_at(link);
		if (!is_for(stream, spooled))
			continue;
		if (stream_is_full(stream->stream)) {
			stream->behind = true;
			return;
		}
		while (last->next != &stream->told && told_at(last->next)->number <= spooled->number)
			last = last->next;
		struct told *told = told_of(stream, spooled, last);
		tell(stream, spooled, told);
		last = &told->link;
	}
	if (!stream->run_ended)
		return;
	stream->behind = stream_is_full(stream->stream);
	if (!stream->behind)
		stream_end(stream->stream);
}

static void on_drained(struct http_stream *http)
{
	struct token_stream *stream = http->owner;

	if (stream->behind) /* it is drained after each token, too */
		pump(stream);
}

static void on_closed(struct http_stream *http)
{
	struct token_stream *stream = http->owner;

	list_remove(&stream->link);
	while (!list_empty(&stream->told))
		forget(stream->spool, told_at(stream->told.next));
	free(stream->step);
	free(stream);
}

void token_spool_stream(struct token_spool *spool, struct request *request, const char *run_id, const char *step, bool run_ended)
{
	struct http_stream *http = request_stream(request);
	struct token_stream *stream;

	if (!http)
		return;
	stream = memory_zero(sizeof *stream);
	stream->spool = spool;
	stream->stream = http;
	stream->run_ended = run_ended;
	strcpy(stream->run_id, run_id); /* valid: at most ID_LEN_MAX */
	stream->step = step ? memory_text(step) : NULL;
	list_init(&stream->told);
	list_add_last(&spool->streams, &stream->link);
	http->owner = stream;
	http->on_drained = on_drained;
	http->on_closed = on_closed;
	pump(stream);
}

/* One that is full goes on with all that it lacks when it is drained. */
static void tell_streams(struct token_spool *spool, const struct spooled *spooled)
{
	LIST_EACH(link, &spool->streams) {
		struct token_stream *stream = CONTAINER_OF(link, struct token_stream, link);
		struct list *last = stream->told.prev;
		if (!is_for(stream, spooled) || stream->stream->ended)
			continue;
		if (stream_is_full(stream->stream)) {
			stream->behind = true;
			continue;
		}
		while (last != &stream->told && told_at(last)->number > spooled->number)
			last = last->prev;
		tell(stream, spooled, told_of(stream, spooled, last));
	}
}

/* --- what comes in -------------------------------------------------------------------------------------------------- */

static void add_text(struct channel *channel, struct bytes text)
{
	size_t over, from;

	if (text.len > TOKEN_ATTEMPT_MAX) { /* an answer that came whole */
		from = text.len - TOKEN_ATTEMPT_MAX;
		while (from < text.len && (text.data[from] & 0xC0) == 0x80)
			from++;
		channel->gone += channel->text.len + from;
		buffer_clear(&channel->text);
		text = (struct bytes){text.data + from, text.len - from};
	}
	if (channel->text.len + text.len > TOKEN_ATTEMPT_MAX) {
		/* More than has to go, so that it does not happen with each token; no character is cut. */
		over = channel->text.len + text.len - TOKEN_ATTEMPT_MAX;
		from = over + TOKEN_ATTEMPT_MAX / 4 < channel->text.len ? over + TOKEN_ATTEMPT_MAX / 4 : channel->text.len;
		while (from < channel->text.len && (channel->text.data[from] & 0xC0) == 0x80)
			from++;
		buffer_remove_front(&channel->text, from);
		channel->gone += from;
	}
	buffer_add(&channel->text, text.data, text.len);
}

static struct spooled *begin(struct token_spool *spool, struct activity *activity)
{
	static uint64_t numbers;
	struct spooled *spooled = memory_zero(sizeof *spooled);

	snprintf(spooled->run_id, sizeof spooled->run_id, "%s", activity->run_id);
	spooled->step = memory_text(activity->step_id);
	spooled->attempt = activity->attempt;
	spooled->activity = activity;
	activity->spooled = spooled;
	spooled->number = ++numbers;
	buffer_init(&spooled->text.text, 2 * TOKEN_ATTEMPT_MAX);
	buffer_init(&spooled->reasoning.text, 2 * TOKEN_ATTEMPT_MAX);
	list_add_last(&spool->attempts, &spooled->link);
	spool->attempt_count++;
	return spooled;
}

void token_spool_add(struct token_spool *spool, struct activity *activity, struct bytes text, bool is_reasoning)
{
	struct spooled *spooled = activity->spooled ? activity->spooled : begin(spool, activity);

	spool->bytes -= bytes_of(spooled);
	add_text(is_reasoning ? &spooled->reasoning : &spooled->text, text);
	spool->bytes += bytes_of(spooled);
	make_room(spool, spooled);
	tell_streams(spool, spooled);
}

void token_spool_end(struct token_spool *spool, struct activity *activity)
{
	struct spooled *spooled = activity->spooled;

	if (!spooled) /* it never wrote a word, or there were too many */
		return;
	activity->spooled = NULL;
	spooled->activity = NULL;
	spooled->ended = true;
	spooled->outcome = activity->result.failure;
	tell_streams(spool, spooled);
}

void token_spool_on_run_ended(struct token_spool *spool, const char *run_id)
{
	struct list *link = spool->streams.next;

	while (link != &spool->streams) {
		struct token_stream *stream = CONTAINER_OF(link, struct token_stream, link);
		link = link->next;
		if (strcmp(stream->run_id, run_id) != 0)
			continue;
		stream->run_ended = true;
		/* The last attempt is closed only after this. */
		for (struct list *at = spool->attempts.next; at != &spool->attempts; at = at->next)
			if (is_for(stream, spooled_at(at)) && spooled_at(at)->activity)
				token_spool_end(spool, spooled_at(at)->activity);
		pump(stream);
	}
}

static void set_channel(struct arena *arena, struct json *json, const char *offset, const char *name, const struct channel *channel)
{
	json_set_number(arena, json, offset, (double)channel->gone);
	json_set(arena, json, name, json_text_len(arena, buffer_text((struct buffer *)&channel->text), channel->text.len));
}

struct json *token_spool_json(const struct token_spool *spool, const char *run_id, const char *step, struct arena *arena)
{
	struct json *json = json_object(arena), *attempts = json_array(arena);

	LIST_EACH(link, &spool->attempts) {
		const struct spooled *spooled = spooled_at(link);
		if (strcmp(spooled->run_id, run_id) != 0 || (step && strcmp(spooled->step, step) != 0))
			continue;
		struct json *attempt = name_attempt(arena, spooled);
		json_set_boolean(arena, attempt, "ended", spooled->ended);
		if (spooled->ended)
			json_set_text(arena, attempt, "outcome", spooled->outcome == FAILURE_NONE ? "answered" : failure_name(spooled->outcome));
		set_channel(arena, attempt, "offset", "text", &spooled->text);
		if (spooled->reasoning.text.len > 0 || spooled->reasoning.gone > 0)
			set_channel(arena, attempt, "reasoningOffset", "reasoning", &spooled->reasoning);
		json_add(arena, attempts, attempt);
	}
	json_set(arena, json, "attempts", attempts);
	return json;
}
