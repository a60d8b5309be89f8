/* /v1/facts and /v1/events: what was found, what was signed, and the feeds a service follows. */
#include <string.h>

#include "daemon/api.h"
#include "workflow/language/cloud_event.h"
#include "workflow/base/check.h"
#include "workflow/view.h"

/* --- documents ---------------------------------------------------------------------------------------------------- */

/* The stored document and what only the journal knows: its id, place and time. */
int api_fact_document(struct store_reader *reader, struct arena *arena, const struct store_fact *fact, struct json **document, struct error *error)
{
	struct store_fact_record record;
	struct entry entry;
	char hex[DIGEST_HEX_LEN + 1];

	if (reader_fact_record(reader, arena, fact->seq, &record, error) != 0 || entry_decode(arena, record.entry, NULL, &entry, error) != 0)
		return error->code;
	digest_hex(&fact->id, hex);
	struct json *json = record.fact.data ? json_parse(arena, record.fact, JSON_STORED, NULL, error) : json_object(arena);
	if (!json)
		return error_wrap(error, "fact %s", hex);
	if (!record.fact.data) /* retention took the text; what was signed is still provable */
		json_set_boolean(arena, json, "erased", true);
	json_set_text(arena, json, "id", hex);
	json_set_number(arena, json, "seq", (double)fact->seq);
	json_set_boolean(arena, json, "accepted", fact->accepted);
	api_set_time(arena, json, "recordedAt", entry.time_ms);
	*document = json;
	return 0;
}

int api_set_pruned(struct store_reader *reader, struct arena *arena, struct json *page, uint64_t from_seq, struct error *error)
{
	uint64_t end;

	if (reader_pruned_end(reader, from_seq, &end, error) != 0 || end == from_seq)
		return error->code;
	struct json *pruned = json_object(arena);
	json_set_number(arena, pruned, "from", (double)from_seq);
	json_set_number(arena, pruned, "to", (double)(end - 1));
	json_set(arena, page, "pruned", pruned);
	return 0;
}

int api_cloud_events(struct store_reader *reader, struct arena *arena, const struct store_raw_entry *raw, const char *origin, struct json *list, struct error *error)
{
	struct entry entry;

	if (reader_entry(reader, arena, raw, CLOUD_EVENT_BYTES_MAX, &entry, error) != 0)
		return error->code;
	/* Of lifecycle events only what is small stands in them: 64 KiB is what everybody passes on. */
	for (size_t i = 0; i < entry.value_count; i++)
		if (entry.kind != ENTRY_EVENT_EMITTED && entry.values[i].size > VALUE_INLINE_MAX)
			entry.values[i].bytes.data = NULL;
	view_cloud_events(arena, &entry, origin, list);
	return 0;
}

/* --- the feed of facts -------------------------------------------------------------------------------------------- */

struct facts_args {
	struct store_fact_filter filter;
	struct digest document;
	bool stream;
};

/* A mistyped id must not look like a run without facts. */
static bool has_run(struct store_reader *reader, struct store_read *read, const char *id)
{
	struct store_run run;

	if (id && reader_run(reader, &read->arena, id, &run, &read->error) == ERR_NOT_FOUND)
		error_set(&read->error, ERR_NOT_FOUND, "there is no run %s", id);
	return read->error.code == ERR_NONE;
}

static void list_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	const struct facts_args *args = own->args;
	struct arena *arena = &read->arena;
	struct json *json = json_object(arena), *list = json_array(arena);
	struct store_fact *facts;
	uint64_t next = args->filter.after_seq;
	size_t count;

	if (!has_run(reader, read, args->filter.run_id))
		return;
	if (args->stream || reader_facts(reader, arena, &args->filter, &facts, &count, &read->error) != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		struct json *document;
		if (api_fact_document(reader, arena, &facts[i], &document, &read->error) != 0)
			return;
		json_add(arena, list, document);
		next = facts[i].seq;
	}
	json_set(arena, json, "facts", list);
	json_set_number(arena, json, "next", (double)next);
	if (api_set_pruned(reader, arena, json, args->filter.after_seq + 1, &read->error) != 0)
		return;
	api_print(own, json);
}

static void on_facts(struct api_read *own)
{
	const struct facts_args *args = own->args;

	api_answer_page(own, args->stream, FEED_FACTS, args->filter.after_seq, NULL, &args->filter);
}

void api_list_facts(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct facts_args *args = arena_zero(&request->arena, sizeof *args);
	struct store_fact_filter *filter = &args->filter;
	const char *version;
	uint64_t limit;
	bool has_document;

	(void)parameters;
	if (!api_after(request, &filter->after_seq) || !api_query_number(request, "limit", API_LIMIT_DEFAULT, 1000, &limit) ||
	    !api_query_digest(request, "document", &args->document, &has_document) || !api_query_flag(request, "rejected", &filter->rejected_too) ||
	    !api_query_workflow(request, &filter->namespace, &filter->name, &version))
		return;
	if (version) {
		api_invalid(request, "query parameter workflow: facts are filtered by NAMESPACE/NAME, of all versions");
		return;
	}
	filter->run_id = request_query(request, "run");
	filter->runtime = request_query(request, "runtime");
	filter->reproducibility_class = request_query(request, "class");
	filter->document = has_document ? &args->document : NULL;
	filter->limit = limit > 0 ? limit : API_LIMIT_DEFAULT;
	args->stream = api_wants_stream(request);
	if (args->stream && !filter->run_id)
		feeds_open(&daemon->feeds, request, FEED_FACTS, filter->after_seq, NULL, filter);
	else
		api_read(daemon, request, list_work, args, on_facts);
}

/* --- one fact ----------------------------------------------------------------------------------------------------- */

static int find_fact(struct store_reader *reader, struct store_read *read, const char *id, struct store_fact *fact)
{
	if (reader_fact(reader, &read->arena, id, fact, &read->error) == ERR_NOT_FOUND)
		error_set(&read->error, ERR_NOT_FOUND, "there is no fact %s", id);
	return read->error.code;
}

static void get_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct store_fact fact;
	struct json *document;

	if (find_fact(reader, read, own->args, &fact) == 0 && api_fact_document(reader, &read->arena, &fact, &document, &read->error) == 0)
		api_print(own, document);
}

void api_get_fact(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	api_read(daemon, request, get_work, (void *)parameters[0], NULL);
}

static void attestation_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct store_fact fact;
	struct store_fact_record record;

	if (find_fact(reader, read, own->args, &fact) != 0 || reader_fact_record(reader, &read->arena, fact.seq, &record, &read->error) != 0)
		return;
	if (!record.payload.data)
		error_set(&read->error, ERR_NOT_FOUND, "the statement of fact %s was erased", (const char *)own->args);
	else
		envelope_print(ENVELOPE_TYPE_STATEMENT, record.payload, &record.signature, 1, &own->body);
}

void api_get_attestation(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	api_read(daemon, request, attestation_work, (void *)parameters[0], NULL);
}

/* --- its place in the log ----------------------------------------------------------------------------------------- */

struct entry_args {
	const char *id;
	bool signed_now;
	bool not_covered; /* no checkpoint reaches the entry yet */
	struct daemon *daemon;
	struct request *request;
	struct store_sign sign;
};

struct leaf_reader {
	struct store_reader *reader;
	struct error error;
};

static int read_leaf(void *arg, unsigned level, uint64_t index, struct digest *hash)
{
	struct leaf_reader *own = arg;

	return reader_leaf(own->reader, level, index, hash, &own->error);
}

static void entry_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct entry_args *args = own->args;
	struct arena *arena = &read->arena;
	struct store_fact fact;
	struct store_fact_record record;
	struct bytes note;
	struct checkpoint checkpoint;
	struct log_proof proof;
	struct leaf_reader leaves = {.reader = reader};
	struct buffer text;

	args->not_covered = false;
	if (find_fact(reader, read, args->id, &fact) != 0 || reader_fact_record(reader, arena, fact.seq, &record, &read->error) != 0)
		return;
	int code = reader_checkpoint(reader, arena, 0, &note, &read->error);
	if (code == ERR_NOT_FOUND || (code == 0 && checkpoint_parse(note, &checkpoint, &read->error) == 0 && checkpoint.size <= fact.seq)) {
		read->error = (struct error){0};
		args->not_covered = true;
		return;
	}
	if (read->error.code != ERR_NONE)
		return;
	if (log_tree_prove_inclusion(fact.seq, checkpoint.size, read_leaf, &leaves, &proof, &read->error) != 0) {
		if (leaves.error.code != ERR_NONE)
			read->error = leaves.error;
		return;
	}
	buffer_init(&text, 1 << 20);
	proof_file_print(fact.seq, &proof, note, &text);
	struct json *json = json_object(arena);
	json_set(arena, json, "entry", json_text_len(arena, (const char *)record.entry.data, record.entry.len));
	json_set_number(arena, json, "seq", (double)fact.seq);
	json_set_text(arena, json, "proof", buffer_text(&text));
	buffer_close(&text);
	api_print(own, json);
}

static void on_entry(struct api_read *own);

static void on_signed(struct store_sign *sign)
{
	struct entry_args *args = sign->owner;

	buffer_close(&sign->note);
	if (sign->error.code != ERR_NONE)
		api_fail(args->request, &sign->error);
	else
		api_read(args->daemon, args->request, entry_work, args, on_entry);
}

static void on_entry(struct api_read *own)
{
	struct entry_args *args = own->args;
	struct error error = own->read.error;

	if (error.code == ERR_NONE && !args->not_covered) {
		struct buffer body = own->body;
		request_answer(own->request, 200, own->content_type, &body);
		return;
	}
	buffer_close(&own->body);
	if (error.code == ERR_NONE && args->signed_now)
		error_set(&error, ERR_INTERNAL, "the checkpoint that was just signed does not reach fact %s", args->id);
	if (error.code != ERR_NONE) {
		api_fail(own->request, &error);
		return;
	}
	args->signed_now = true;
	args->sign = (struct store_sign){.on_done = on_signed, .owner = args};
	if (store_sign_checkpoint(args->daemon->store, &args->sign) != 0) {
		error_set(&error, ERR_BUSY, "too many ask for a checkpoint; retry");
		api_busy(own->request, &error);
	}
}

void api_get_fact_entry(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct entry_args *args = arena_zero(&request->arena, sizeof *args);

	*args = (struct entry_args){.id = parameters[0], .daemon = daemon, .request = request};
	api_read(daemon, request, entry_work, args, on_entry);
}

/* --- the feed of events ------------------------------------------------------------------------------------------- */

struct page_args {
	uint64_t after, limit;
};

static void events_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	const struct page_args *args = own->args;
	struct arena *arena = &read->arena;
	struct json *json = json_object(arena), *list = json_array(arena);
	struct store_raw_entry *entries;
	uint64_t next;
	size_t count;

	if (reader_entries(reader, arena, args->after + 1, view_cloud_event_kinds, args->limit, &entries, &count, &next, &read->error) != 0)
		return;
	for (size_t i = 0, before = arena->used; i < count; i++) {
		if (api_cloud_events(reader, arena, &entries[i], store_origin(own->daemon->store), list, &read->error) != 0)
			return;
		if (arena->used - before > API_EVENTS_BYTES_MAX || json_count(list) >= args->limit) { /* those of one entry are not split */
			next = entries[i].seq + 1;
			break;
		}
	}
	if (api_set_pruned(reader, arena, json, args->after + 1, &read->error) != 0)
		return;
	json_set(arena, json, "events", list);
	json_set_number(arena, json, "next", (double)(next > args->after ? next - 1 : args->after));
	api_print(own, json);
}

void api_list_events(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct page_args *args = arena_zero(&request->arena, sizeof *args);

	(void)parameters;
	if (!api_after(request, &args->after) || !api_query_number(request, "limit", API_LIMIT_DEFAULT, STORE_PAGE_MAX, &args->limit))
		return;
	if (args->limit == 0)
		args->limit = API_LIMIT_DEFAULT;
	if (api_wants_stream(request))
		feeds_open(&daemon->feeds, request, FEED_EVENTS, args->after, NULL, NULL);
	else
		api_read(daemon, request, events_work, args, NULL);
}
