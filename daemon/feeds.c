/* See feeds.h. */
#include "daemon/feeds.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api.h"
#include "daemon/daemon.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"
#include "workflow/view.h"

struct feed {
	struct feeds *feeds;
	struct http_stream *stream; /* NULL: the client is gone */
	enum feed_kind kind;
	char run_id[ID_LEN_MAX + 1];
	struct arena arena;
	struct store_fact_filter filter;

	bool dirty; /* there may be more in the journal */
	bool reading;
	/* Of the read under way; the reader's until it is back. */
	struct store_read read;
	uint64_t after;
	struct buffer text;
	bool more, run_ended, told_pruned;
	struct list link;
};

/* seq: where a client that has had this one goes on behind; 0: it goes on where it was, for more of the same entry follows. */
static void add_event(struct feed *feed, uint64_t seq, const char *name, const struct json *data)
{
	if (seq != 0)
		buffer_printf(&feed->text, "id: %" PRIu64 "\n", seq);
	buffer_printf(&feed->text, "event: %s\ndata: ", name);
	json_print(data, &feed->text);
	buffer_add_text(&feed->text, "\n\n");
}

/* --- on the reader thread ----------------------------------------------------------------------------------------- */

static void read_run(struct store_reader *reader, struct store_read *read)
{
	struct feed *feed = read->owner;
	struct entry *entries;
	size_t count;

	if (reader_run_entries(reader, &read->arena, feed->run_id, feed->after, FEED_PAGE, 0, &entries, &count, &read->error) != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		enum entry_kind kind = entries[i].kind;
		add_event(feed, entries[i].seq, entry_kind_name(kind), view_entry(&read->arena, &entries[i]));
		feed->run_ended = kind == ENTRY_RUN_COMPLETED || kind == ENTRY_RUN_FAULTED || kind == ENTRY_RUN_CANCELLED || kind == ENTRY_RUN_KILLED;
		feed->after = entries[i].seq;
	}
	feed->more = count > 0;
	/* A client that resumes behind the last entry of a run that has ended waits for nothing. */
	if (count == 0 && !feed->run_ended) {
		struct store_run run;
		if (reader_run(reader, &read->arena, feed->run_id, &run, &read->error) == 0)
			feed->run_ended = run.ended_ms != 0;
	}
}

/* A comment: clients that know nothing of it pass it over. Only the first page of a feed can begin there. */
static void tell_pruned(struct store_reader *reader, struct feed *feed, struct error *error)
{
	uint64_t end;

	if (feed->told_pruned || reader_pruned_end(reader, feed->after + 1, &end, error) != 0)
		return;
	feed->told_pruned = true;
	if (end > feed->after + 1)
		buffer_printf(&feed->text, ": entries %" PRIu64 " to %" PRIu64 " were pruned by retention; the feed goes on behind them\n\n", feed->after + 1, end - 1);
}

static void read_facts(struct store_reader *reader, struct store_read *read)
{
	struct feed *feed = read->owner;
	struct store_fact_filter filter = feed->filter;
	struct store_fact *facts;
	size_t count;

	filter.after_seq = feed->after;
	filter.from_start = false;
	filter.limit = FEED_PAGE;
	tell_pruned(reader, feed, &read->error);
	if (reader_facts(reader, &read->arena, &filter, &facts, &count, &read->error) != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		struct json *document;
		if (api_fact_document(reader, &read->arena, &facts[i], &document, &read->error) != 0)
			return;
		add_event(feed, facts[i].seq, "fact.recorded", document);
		feed->after = facts[i].seq;
	}
	feed->more = count > 0;
}

static void read_events(struct store_reader *reader, struct store_read *read)
{
	struct feed *feed = read->owner;
	struct store_raw_entry *entries;
	uint64_t next;
	size_t count;

	tell_pruned(reader, feed, &read->error);
	if (reader_entries(reader, &read->arena, feed->after + 1, view_cloud_event_kinds, FEED_PAGE, &entries, &count, &next, &read->error) != 0)
		return;
	for (size_t i = 0; i < count && feed->text.len < FEED_PAGE_BYTES; i++) {
		struct json *list = json_array(&read->arena);
		if (api_cloud_events(reader, &read->arena, &entries[i], store_origin(feed->feeds->daemon->store), list, &read->error) != 0)
			return;
		for (size_t k = 0; k < json_count(list); k++) {
			const char *type = json_get_text(json_at(list, k), "type");
			add_event(feed, k + 1 == json_count(list) ? entries[i].seq : 0, type ? type : "event", json_at(list, k));
		}
		next = i + 1 < count && feed->text.len >= FEED_PAGE_BYTES ? entries[i].seq + 1 : next;
	}
	feed->more = next > feed->after + 1;
	if (feed->more)
		feed->after = next - 1;
}

/* --- on the loop -------------------------------------------------------------------------------------------------- */

static void feed_free(struct feed *feed)
{
	list_remove(&feed->link);
	buffer_close(&feed->text);
	arena_close(&feed->arena);
	free(feed);
}

static void on_page(struct store_read *read);

static void pump(struct feed *feed)
{
	static const store_read_work works[] = {[FEED_RUN] = read_run, [FEED_FACTS] = read_facts, [FEED_EVENTS] = read_events};

	if (!feed->stream || feed->reading || !feed->dirty || feed->stream->ended || stream_is_full(feed->stream))
		return;
	feed->read = (struct store_read){.work = works[feed->kind], .on_done = on_page, .owner = feed};
	buffer_clear(&feed->text);
	if (store_read(feed->feeds->daemon->store, &feed->read) != 0)
		return; /* still dirty: the next commit, or the comment that wakes the stream, tries again */
	feed->dirty = false;
	feed->reading = true;
}

static void on_page(struct store_read *read)
{
	struct feed *feed = read->owner;
	struct error error = read->error;

	arena_close(&read->arena);
	feed->reading = false;
	if (!feed->stream) {
		feed_free(feed);
		return;
	}
	if (error.code != ERR_NONE || feed->text.overflow) {
		log_warn(LOG_HTTP, "a stream ends: %s", error.code != ERR_NONE ? error.message : "one page is over its limit");
		stream_end(feed->stream);
		return;
	}
	if (feed->text.len > 0)
		stream_add(feed->stream, buffer_bytes(&feed->text));
	if (feed->text.cap > (64 << 10)) {
		size_t max = feed->text.max;
		buffer_close(&feed->text);
		buffer_init(&feed->text, max);
	}
	feed->dirty |= feed->more;
	if (feed->run_ended && !feed->dirty)
		stream_end(feed->stream);
	else
		pump(feed);
}

static void on_drained(struct http_stream *stream)
{
	pump(stream->owner);
}

static void on_closed(struct http_stream *stream)
{
	struct feed *feed = stream->owner;

	feed->stream = NULL;
	if (!feed->reading)
		feed_free(feed);
}

void feeds_init(struct feeds *feeds, struct daemon *daemon)
{
	feeds->daemon = daemon;
	list_init(&feeds->all);
}

bool feeds_are_reading(const struct feeds *feeds)
{
	LIST_EACH(link, &feeds->all)
		if (CONTAINER_OF(link, struct feed, link)->reading)
			return true;
	return false;
}

void feeds_open(struct feeds *feeds, struct request *request, enum feed_kind kind, uint64_t after, const char *run_id, const struct store_fact_filter *filter)
{
	struct http_stream *stream = request_stream(request);

	if (!stream)
		return;
	struct feed *feed = memory_zero(sizeof *feed);
	feed->feeds = feeds;
	feed->stream = stream;
	feed->kind = kind;
	feed->after = after;
	feed->dirty = true;
	arena_init(&feed->arena);
	buffer_init(&feed->text, 64 << 20);
	if (run_id)
		strcpy(feed->run_id, run_id); /* valid: at most ID_LEN_MAX */
	if (filter) {
		const char **const texts[] = {&feed->filter.run_id, &feed->filter.namespace, &feed->filter.name, &feed->filter.runtime, &feed->filter.reproducibility_class};
		feed->filter = *filter;
		for (size_t i = 0; i < COUNT_OF(texts); i++)
			if (*texts[i])
				*texts[i] = arena_text(&feed->arena, *texts[i]);
		if (filter->document) {
			struct digest *document = arena_alloc(&feed->arena, sizeof *document);
			*document = *filter->document;
			feed->filter.document = document;
		}
	}
	list_add_last(&feeds->all, &feed->link);
	stream->owner = feed;
	stream->on_drained = on_drained;
	stream->on_closed = on_closed;
	pump(feed);
}

void feeds_on_committed(struct feeds *feeds, const char *run_id, uint64_t seq_last, bool ended)
{
	(void)seq_last, (void)ended;
	LIST_EACH(link, &feeds->all) {
		struct feed *feed = CONTAINER_OF(link, struct feed, link);
		if (feed->kind == FEED_RUN && strcmp(feed->run_id, run_id) != 0)
			continue;
		feed->dirty = true;
		pump(feed);
	}
}
