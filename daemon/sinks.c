/* See sinks.h. */
#include "daemon/sinks.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api.h"
#include "daemon/daemon.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/log.h"
#include "workflow/base/time.h"
#include "workflow/language/cloud_event.h"
#include "workflow/view.h"

/* An event of the page that is being delivered. */
struct item {
	uint64_t seq; /* of its entry, which may have several */
	int64_t time_ms;
	const struct json *event;
};

struct sink {
	struct sinks *sinks;
	const struct sink_config *config;
	bool known; /* its place was read */

	/* The page. */
	struct store_read read;
	bool reading, dirty;
	struct arena page; /* holds the items */
	struct item *items;
	size_t item_count, next_item;
	uint64_t position; /* all up to here is delivered, or not for it */
	uint64_t page_end; /* … when the page is delivered */

	/* One delivery. */
	struct activity activity;
	struct arena request; /* what it sends; each try has its own, so that trying for days costs no memory */
	bool sending;
	uv_timer_t timer; /* timeout of a delivery, or the pause before the next try, or the next time that the place may be written */
	enum { SINK_READY, SINK_PAUSED } stage;
	unsigned failures; /* in a row */

	/* Its place in the journal. */
	struct store_append append;
	struct entry entry;
	struct arena append_arena;
	bool appending, moved; /* moved: something was delivered that the journal does not know of */
	uint64_t written_us;

	uint64_t delivered, failed;
};

struct sinks {
	struct daemon *daemon;
	struct sink *items;
	size_t count, open;
	bool stopped;
};

static void advance(struct sink *sink);

/* --- the page ----------------------------------------------------------------------------------------------------- */

static bool wants(const struct sink_config *config, const struct json *event)
{
	const char *type = json_get_text(event, "type");

	if (json_count(config->types) == 0)
		return true;
	for (size_t i = 0; type && i < json_count(config->types); i++) {
		const char *wanted = json_at(config->types, i)->string.text;
		size_t len = strlen(wanted);
		/* "com.example.*": all that begin so. */
		if (wanted[len - 1] == '*' ? strncmp(type, wanted, len - 1) == 0 : strcmp(type, wanted) == 0)
			return true;
	}
	return false;
}

static int read_place(struct sink *sink, struct store_reader *reader, struct error *error)
{
	uint64_t size;

	if (reader_sink(reader, sink->config->name, &sink->position, error) == 0 || error->code != ERR_NOT_FOUND)
		return error->code;
	*error = (struct error){0};
	if (reader_log_size(reader, &size, error) == 0)
		sink->position = size - 1; /* never 0: journal.opened is there */
	sink->moved = true; /* so that a crash does not make it begin even later */
	return error->code;
}

/* On the reader thread; the loop leaves the page alone meanwhile. */
static void read_page(struct store_reader *reader, struct store_read *read)
{
	struct sink *sink = read->owner;
	struct store_raw_entry *entries;
	size_t count, before, cap = 0;
	uint64_t next;

	if (!sink->known && read_place(sink, reader, &read->error) != 0)
		return;
	sink->item_count = sink->next_item = 0;
	sink->items = NULL;
	if (reader_entries(reader, &read->arena, sink->position + 1, view_cloud_event_kinds, SINK_PAGE, &entries, &count, &next, &read->error) != 0)
		return;
	sink->page_end = next > sink->position ? next - 1 : sink->position;
	before = read->arena.used;
	for (size_t i = 0; i < count; i++) {
		struct json *list = json_array(&read->arena);
		if (api_cloud_events(reader, &read->arena, &entries[i], store_origin(sink->sinks->daemon->store), list, &read->error) != 0)
			return;
		for (size_t k = 0; k < json_count(list); k++) {
			if (!wants(sink->config, json_at(list, k)))
				continue;
			sink->items = arena_grow(&read->arena, sink->items, sink->item_count, &cap, sizeof(struct item));
			sink->items[sink->item_count++] = (struct item){.seq = entries[i].seq, .event = json_at(list, k)};
		}
		if (read->arena.used - before > SINK_PAGE_BYTES && i + 1 < count) {
			sink->page_end = entries[i].seq;
			break;
		}
	}
}

static void hold_off(struct sink *sink, int64_t ms);

static void on_page(struct store_read *read)
{
	struct sink *sink = read->owner;

	sink->reading = false;
	if (read->error.code != ERR_NONE || sink->sinks->stopped) {
		if (!sink->sinks->stopped)
			log_error(LOG_DAEMON, "sink=%s read events: %s", sink->config->name, read->error.message);
		arena_close(&read->arena);
		sink->item_count = sink->next_item = 0;
		sink->dirty = true;
		if (!sink->sinks->stopped)
			hold_off(sink, SINK_RETRY_FLOOR_MS);
		return;
	}
	sink->known = true;
	arena_close(&sink->page);
	sink->page = read->arena;
	for (size_t i = 0; i < sink->item_count; i++) {
		const char *time = json_get_text(sink->items[i].event, "time");
		if (!time || !time_parse(time, &sink->items[i].time_ms))
			sink->items[i].time_ms = clock_wall_ms();
	}
	/* There may be more behind it, unless it had nothing at all. */
	sink->dirty |= sink->page_end > sink->position;
	advance(sink);
}

static void start_page(struct sink *sink)
{
	sink->read = (struct store_read){.work = read_page, .on_done = on_page, .owner = sink};
	if (store_read(sink->sinks->daemon->store, &sink->read) != 0) {
		hold_off(sink, SINK_RETRY_FLOOR_MS);
		return;
	}
	sink->dirty = false;
	sink->reading = true;
}

/* --- its place ---------------------------------------------------------------------------------------------------- */

static void on_written(struct store_append *append)
{
	struct sink *sink = append->owner;

	FAIL_POINT(SINK_RECORDED);
	sink->appending = false;
	arena_close(&sink->append_arena);
	sink->written_us = clock_now_us();
	if (append->error.code != ERR_NONE) {
		sink->moved = true;
		log_warn(LOG_DAEMON, "sink=%s its place was not written, after a restart some events come again: %s", sink->config->name, append->error.message);
	}
}

/* Only after a delivery: the entry itself moves the journal's end, and writing it for that would never end. */
static void write_place(struct sink *sink)
{
	struct arena *arena = &sink->append_arena;

	if (sink->appending || !sink->moved || (sink->written_us > 0 && clock_now_us() - sink->written_us < (uint64_t)SINK_ADVANCE_MS * 1000))
		return;
	arena_init(arena);
	sink->entry = (struct entry){.kind = ENTRY_SINK_ADVANCED, .data = json_object(arena), .time_ms = clock_wall_ms()};
	json_set_text(arena, sink->entry.data, "sink", sink->config->name);
	json_set_number(arena, sink->entry.data, "position", (double)sink->position);
	sink->append = (struct store_append){.entries = &sink->entry, .entry_count = 1, .on_done = on_written, .owner = sink};
	sink->moved = false;
	sink->appending = store_append(sink->sinks->daemon->store, &sink->append) == 0;
	if (!sink->appending) {
		sink->moved = true;
		arena_close(arena);
	}
}

/* --- deliveries --------------------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
	struct sink *sink = timer->data;

	if (sink->sending) {
		activity_cancel(sink->sinks->daemon->activities, &sink->activity);
		return;
	}
	sink->stage = SINK_READY;
	advance(sink);
}

static void start_timer(struct sink *sink, int64_t ms)
{
	uv_update_time(&sink->sinks->daemon->loop);
	uv_timer_start(&sink->timer, on_timer, (uint64_t)ms, 0);
}

static void hold_off(struct sink *sink, int64_t ms)
{
	sink->stage = SINK_PAUSED;
	start_timer(sink, ms);
}

static void fail(struct sink *sink, const char *detail, int64_t retry_after_ms)
{
	int64_t wait_ms = SINK_RETRY_FLOOR_MS;

	for (unsigned i = 0; i < sink->failures && wait_ms < SINK_RETRY_CAP_MS; i++)
		wait_ms *= 2;
	if (wait_ms < retry_after_ms)
		wait_ms = retry_after_ms;
	if (wait_ms > SINK_RETRY_CAP_MS)
		wait_ms = SINK_RETRY_CAP_MS;
	if (sink->failures++ == 0)
		log_warn(LOG_DAEMON, "sink=%s cannot be delivered to, tried again until it can: %s", sink->config->name, detail);
	sink->failed++;
	hold_off(sink, wait_ms);
}

static void on_sent(struct activity *activity)
{
	struct sink *sink = activity->owner;
	char detail[ACTIVITY_DETAIL_MAX];
	bool ok = activity->result.ok;
	int64_t retry_after_ms = activity->result.retry_after_ms;

	snprintf(detail, sizeof detail, "%s", activity->result.detail);
	activity_close(activity);
	arena_close(&sink->request);
	sink->sending = false;
	uv_timer_stop(&sink->timer);
	if (sink->sinks->stopped)
		return;
	if (!ok) {
		fail(sink, detail, retry_after_ms);
		return;
	}
	if (sink->failures > 0)
		log_info(LOG_DAEMON, "sink=%s is delivered to again after %u failures", sink->config->name, sink->failures);
	FAIL_POINT(SINK_DELIVERED);
	sink->failures = 0;
	sink->delivered++;
	sink->moved = true;
	sink->next_item++;
	/* The entry is done when its last event is. */
	if (sink->next_item < sink->item_count)
		sink->position = sink->items[sink->next_item].seq - 1;
	advance(sink);
}

static void deliver(struct sink *sink)
{
	struct arena *arena = &sink->request;
	const struct item *item = &sink->items[sink->next_item];
	struct json *with, *headers, *hidden, *secrets;
	char key[DIGEST_HEX_LEN + 1];
	struct error error;

	arena_init(arena);
	with = json_object(arena);
	headers = json_object(arena);
	hidden = json_object(arena);
	for (size_t i = 0; i < json_count(sink->config->headers); i++) {
		const struct json_member *member = &sink->config->headers->object.members[i];
		const char *secret = json_get_text(member->value, "secret");
		if (secret)
			json_set_text(arena, hidden, member->name, secret);
		else
			json_set(arena, headers, member->name, member->value);
	}
	json_set_text(arena, headers, "Content-Type", "application/cloudevents+json; charset=utf-8");
	json_set_text(arena, with, "method", "POST");
	json_set_text(arena, with, "endpoint", sink->config->url);
	json_set_text(arena, with, "output", "raw");
	json_set(arena, with, "headers", headers);
	json_set(arena, with, "body", (struct json *)item->event);
	secrets = json_object(arena); /* names alone: the values are looked up where the request is sent */
	json_set(arena, secrets, "headers", hidden);
	if (sink->config->api_key) {
		struct json *authentication = json_object(arena), *token = json_object(arena);
		json_set_text(arena, authentication, "scheme", "bearer");
		json_set_text(arena, token, "token", sink->config->api_key);
		json_set(arena, with, "authentication", authentication);
		json_set(arena, secrets, "authentication", token);
	}
	json_set(arena, with, "secrets", secrets);
	const char *id = json_get_text(item->event, "id"), *source = json_get_text(item->event, "source");
	struct digest digest = cloud_event_key(source ? source : "", id ? id : "");
	digest_hex(&digest, key);
	sink->activity = (struct activity){
		.kind = ACTIVITY_HTTP, .run_id = "", .step_id = sink->config->name, .idempotency_key = arena_text(arena, key), .attempt = sink->failures + 1, .with = with, .is_configured = true,
		.on_done = on_sent, .owner = sink,
	};
	if (activity_start(sink->sinks->daemon->activities, &sink->activity, &error) != 0) {
		arena_close(arena);
		fail(sink, error.message, 0);
		return;
	}
	sink->sending = true;
	start_timer(sink, SINK_TIMEOUT_MS);
}

/* The one place that says what a sink does next. */
static void advance(struct sink *sink)
{
	if (sink->sinks->stopped)
		return;
	write_place(sink);
	if (sink->reading || sink->sending || sink->stage == SINK_PAUSED)
		return;
	if (sink->next_item < sink->item_count) {
		deliver(sink);
		return;
	}
	if (sink->page_end > sink->position)
		sink->position = sink->page_end;
	if (sink->dirty) {
		start_page(sink);
		return;
	}
	/* At rest: the place is written once more, when it may be. */
	if (sink->moved)
		start_timer(sink, SINK_ADVANCE_MS);
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

void sinks_wake(struct sinks *sinks)
{
	for (size_t i = 0; i < sinks->count; i++) {
		sinks->items[i].dirty = true;
		advance(&sinks->items[i]);
	}
}

struct sinks *sinks_open(struct daemon *daemon)
{
	struct sinks *sinks = memory_zero(sizeof *sinks);

	sinks->daemon = daemon;
	sinks->count = daemon->config.sink_count;
	sinks->items = memory_zero((sinks->count + 1) * sizeof *sinks->items);
	for (size_t i = 0; i < sinks->count; i++) {
		struct sink *sink = &sinks->items[i];
		sink->sinks = sinks;
		sink->config = &daemon->config.sinks[i];
		arena_init(&sink->page);
		CHECK(uv_timer_init(&daemon->loop, &sink->timer) == 0);
		sink->timer.data = sink;
		sinks->open++;
	}
	sinks_wake(sinks);
	return sinks;
}

void sinks_stop(struct sinks *sinks)
{
	sinks->stopped = true;
	for (size_t i = 0; i < sinks->count; i++) {
		struct sink *sink = &sinks->items[i];
		uv_timer_stop(&sink->timer);
		sink->written_us = 0; /* now or never: after a stop in order nothing comes again */
		write_place(sink);
	}
}

bool sinks_are_reading(const struct sinks *sinks)
{
	for (size_t i = 0; i < sinks->count; i++)
		if (sinks->items[i].reading)
			return true;
	return false;
}

static void free_sinks(struct sinks *sinks)
{
	free(sinks->items);
	free(sinks);
}

static void on_closed(uv_handle_t *handle)
{
	struct sink *sink = handle->data;
	struct sinks *sinks = sink->sinks;

	arena_close(&sink->page);
	if (--sinks->open == 0)
		free_sinks(sinks);
}

void sinks_close(struct sinks *sinks)
{
	if (sinks->count == 0)
		free_sinks(sinks);
	else
		for (size_t i = 0, count = sinks->count; i < count; i++)
			uv_close((uv_handle_t *)&sinks->items[i].timer, on_closed);
}

void sinks_metrics(const struct sinks *sinks, struct buffer *out)
{
	static const struct {
		const char *name, *type, *help;
	} metrics[] = {
		{"sink_delivered_total", "counter", "Events that a sink has taken"},
		{"sink_failures_total", "counter", "Deliveries to a sink that failed; they are tried again"},
		{"sink_position", "gauge", "Up to which entry of the journal a sink has everything"},
		{"sink_lag_seconds", "gauge", "Age of the oldest event that a sink does not have; 0: it has all"},
	};

	for (size_t m = 0; m < COUNT_OF(metrics) && sinks->count > 0; m++) {
		buffer_printf(out, "# HELP reprise_%s %s\n# TYPE reprise_%s %s\n", metrics[m].name, metrics[m].help, metrics[m].name, metrics[m].type);
		for (size_t i = 0; i < sinks->count; i++) {
			const struct sink *sink = &sinks->items[i];
			bool behind = !sink->reading && sink->next_item < sink->item_count;
			int64_t lag_ms = behind ? clock_wall_ms() - sink->items[sink->next_item].time_ms : 0;
			const double values[] = {(double)sink->delivered, (double)sink->failed, (double)sink->position, lag_ms > 0 ? (double)lag_ms / 1000 : 0};
			buffer_printf(out, "reprise_%s{sink=\"%s\"} %.15g\n", metrics[m].name, sink->config->name, values[m]);
		}
	}
}
