/* /v1/log, /v1/keys, /v1/journal: what an outsider needs to check the journal for himself (provenance.md 4). */
#include <stdlib.h>
#include <string.h>

#include "daemon/api.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"

enum { TILE_WIDTH = 256, TILE_HEIGHT = 8, TILE_LEVEL_MAX = 7 };

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

static void checkpoint_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct bytes note;

	if (reader_checkpoint(reader, &read->arena, 0, &note, &read->error) == 0) {
		own->content_type = "text/plain; charset=utf-8";
		buffer_add_bytes(&own->body, note);
	} else if (read->error.code == ERR_NOT_FOUND) {
		error_set(&read->error, ERR_NOT_FOUND, "no checkpoint was signed yet; POST /v1/log/checkpoint signs one now");
	}
}

void api_get_checkpoint(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	(void)parameters;
	api_read(daemon, request, checkpoint_work, NULL, NULL);
}

struct signing {
	struct store_sign sign;
	struct request *request;
};

static void on_signed(struct store_sign *sign)
{
	struct signing *own = sign->owner;

	if (sign->error.code != ERR_NONE) {
		buffer_close(&sign->note);
		api_fail(own->request, &sign->error);
	} else {
		request_answer(own->request, 200, "text/plain; charset=utf-8", &sign->note);
	}
}

void api_sign_checkpoint(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct signing *own = arena_zero(&request->arena, sizeof *own);
	struct error error;

	(void)parameters;
	if (!api_body_object(request, ""))
		return;
	own->request = request;
	own->sign = (struct store_sign){.on_done = on_signed, .owner = own};
	if (store_sign_checkpoint(daemon->store, &own->sign) != 0) {
		error_set(&error, ERR_BUSY, "too many ask for a checkpoint; retry");
		api_busy(request, &error);
	}
}

static void checkpoints_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct arena *arena = &read->arena;
	struct json *json = json_object(arena), *list = json_array(arena);
	struct bytes *notes;
	size_t count;

	if (reader_checkpoints(reader, arena, &notes, &count, &read->error) != 0)
		return;
	for (size_t i = 0; i < count; i++)
		json_add(arena, list, json_text_len(arena, (const char *)notes[i].data, notes[i].len));
	json_set(arena, json, "checkpoints", list);
	api_print(own, json);
}

void api_list_checkpoints(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	(void)parameters;
	api_read(daemon, request, checkpoints_work, NULL, NULL);
}

/* --- entries ------------------------------------------------------------------------------------------------------ */

struct entries_args {
	uint64_t from, limit;
};

static void entries_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	const struct entries_args *args = own->args;
	struct arena *arena = &read->arena;
	struct json *json = json_object(arena), *list = json_array(arena);
	struct store_log_line *lines;
	uint64_t next, size;
	size_t count;

	if (reader_log_lines(reader, arena, args->from, args->limit, &lines, &count, &next, &read->error) != 0 || reader_log_size(reader, &size, &read->error) != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		struct buffer text;

		buffer_init(&text, ENTRY_LEN_MAX + 1);
		store_log_line_print(&lines[i], &text);
		json_add(arena, list, json_text_len(arena, buffer_text(&text), text.len));
		buffer_close(&text);
	}
	json_set(arena, json, "entries", list);
	json_set_number(arena, json, "next", (double)next);
	json_set_number(arena, json, "size", (double)size);
	api_print(own, json);
}

void api_list_entries(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct entries_args *args = arena_zero(&request->arena, sizeof *args);

	(void)parameters;
	if (!api_query_number(request, "from", 0, API_SEQ_MAX, &args->from) || !api_query_number(request, "limit", 1000, STORE_PAGE_MAX, &args->limit))
		return;
	if (args->limit == 0)
		args->limit = 1000;
	api_read(daemon, request, entries_work, args, NULL);
}

/* --- tiles (C2SP tlog-tiles) -------------------------------------------------------------------------------------- */

struct tile {
	bool entries;
	unsigned level;
	uint64_t index, width;
};

/* "x001/x234/067", all but the last group with an x; nothing else is the name of 1234067. */
static const char *parse_index(const char *text, uint64_t *index)
{
	bool more = true;

	*index = 0;
	while (more) {
		more = *text == 'x';
		text += more;
		for (int i = 0; i < 3; i++) {
			if (text[i] < '0' || text[i] > '9')
				return NULL;
			*index = *index * 10 + (uint64_t)(text[i] - '0');
		}
		if (*index > INT64_MAX / 100000)
			return NULL;
		text += 3;
		if (more && *text++ != '/')
			return NULL;
	}
	return text;
}

static bool parse_tile(const char *path, struct tile *tile)
{
	char *end;

	*tile = (struct tile){.width = TILE_WIDTH};
	if (strncmp(path, "entries/", 8) == 0) {
		tile->entries = true;
		path += 8;
	} else {
		if (*path < '0' || *path > '9' || (path[0] == '0' && path[1] != '/'))
			return false;
		tile->level = (unsigned)strtoul(path, &end, 10);
		if (*end != '/' || tile->level > TILE_LEVEL_MAX)
			return false;
		path = end + 1;
	}
	const char *index_text = path;
	path = parse_index(path, &tile->index);
	/* A leading group of zeros would be a second name for the same tile. */
	if (!path || strncmp(index_text, "x000", 4) == 0)
		return false;
	if (*path == 0)
		return true;
	if (strncmp(path, ".p/", 3) != 0 || path[3] < '1' || path[3] > '9')
		return false;
	tile->width = strtoul(path + 3, &end, 10);
	return *end == 0 && tile->width < TILE_WIDTH;
}

static void tile_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	const struct tile *tile = own->args;
	struct arena *arena = &read->arena;
	uint64_t size, first = tile->index * TILE_WIDTH, next;
	struct store_raw_entry *entries;
	size_t count;

	if (reader_log_size(reader, &size, &read->error) != 0)
		return;
	if (first + tile->width > size >> (TILE_HEIGHT * tile->level)) {
		error_set(&read->error, ERR_NOT_FOUND, "the log has %llu entries: this tile is not that full yet", (unsigned long long)size);
		return;
	}
	own->content_type = "application/octet-stream";
	if (!tile->entries) {
		for (uint64_t i = 0; i < tile->width; i++) {
			struct digest hash;
			if (reader_leaf(reader, TILE_HEIGHT * tile->level, first + i, &hash, &read->error) != 0)
				return;
			buffer_add(&own->body, hash.bytes, sizeof hash.bytes);
		}
		return;
	}
	uint64_t from = first;
	while (from < first + tile->width) {
		if (reader_entries(reader, arena, from, 0, first + tile->width - from, &entries, &count, &next, &read->error) != 0)
			return;
		for (size_t i = 0; i < count; i++) {
			uint8_t length[2] = {(uint8_t)(entries[i].bytes.len >> 8), (uint8_t)entries[i].bytes.len};
			if (entries[i].seq != from + i) {
				error_set(&read->error, ERR_GONE, "entry %llu was pruned", (unsigned long long)(from + i));
				return;
			}
			buffer_add(&own->body, length, sizeof length);
			buffer_add_bytes(&own->body, entries[i].bytes);
		}
		if (count == 0) {
			error_set(&read->error, ERR_GONE, "entry %llu was pruned", (unsigned long long)from);
			return;
		}
		from += count;
	}
}

static void on_tile(struct api_read *own)
{
	struct error error = own->read.error;
	struct buffer body = own->body;

	if (error.code != ERR_NONE) {
		buffer_close(&body);
		api_fail(own->request, &error);
		return;
	}
	if (((const struct tile *)own->args)->width == TILE_WIDTH)
		request_add_header(own->request, "Cache-Control", "max-age=31536000, immutable");
	request_answer(own->request, 200, own->content_type, &body);
}

void api_get_tile(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct tile *tile = arena_zero(&request->arena, sizeof *tile);
	struct error error;

	if (!parse_tile(parameters[0], tile)) {
		error_set(&error, ERR_NOT_FOUND, "%s: not tile/LEVEL/INDEX[.p/WIDTH] or tile/entries/INDEX[.p/WIDTH] with the index in groups of three digits", request->path);
		request_problem(request, &error);
		return;
	}
	api_read(daemon, request, tile_work, tile, on_tile);
}

/* --- keys, figures ------------------------------------------------------------------------------------------------ */

static struct json *key_json(struct arena *arena, const struct public_key *key, const char *purpose)
{
	struct json *json = json_object(arena);
	struct buffer text;

	buffer_init(&text, 256);
	base64_add(&text, (struct bytes){key->bytes, KEY_PUBLIC_LEN});
	json_set_text(arena, json, "keyid", key->id);
	json_set_text(arena, json, "algorithm", "ed25519");
	json_set_text(arena, json, "public", buffer_text(&text));
	json_set_text(arena, json, "purpose", purpose);
	buffer_close(&text);
	return json;
}

void api_list_keys(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct arena *arena = &request->arena;
	struct json *json = json_object(arena), *keys = json_array(arena);
	struct note_key log_key;
	struct buffer vkey;

	(void)parameters;
	store_log_key(daemon->store, &log_key);
	buffer_init(&vkey, 1024);
	note_key_print(&log_key, &vkey);
	json_add(arena, keys, key_json(arena, store_fact_key(daemon->store), "fact"));
	struct json *log = key_json(arena, &log_key.public, "log");
	json_set_text(arena, log, "vkey", buffer_text(&vkey));
	json_add(arena, keys, log);
	buffer_close(&vkey);
	json_set(arena, json, "keys", keys);
	json_set_text(arena, json, "origin", store_origin(daemon->store));
	request_answer_json(request, 200, json);
}

/* What retention has to do, and when it has more; not for a journal that is too large to walk over all its runs for it. */
static int add_due(struct store_reader *reader, struct arena *arena, const struct config *config, bool may_walk, struct json *json, struct error *error)
{
	struct json *due = json_object(arena);
	char text[TIME_TEXT_LEN + 1];
	uint64_t count;
	int64_t first_ms;

	if (config->retention_runs_ms == 0 || !may_walk)
		return 0;
	if (reader_ended_runs(reader, clock_wall_ms() - config->retention_runs_ms, &count, &first_ms, error) != 0)
		return error->code;
	json_set_number(arena, due, "dueRuns", (double)count);
	if (first_ms != 0) {
		time_text(first_ms + config->retention_runs_ms, text);
		json_set_text(arena, due, "firstDueAt", text);
	}
	json_set(arena, json, "retention", due);
	return 0;
}

static void stats_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct arena *arena = &read->arena;
	struct json *json = json_object(arena);
	struct json *statuses = json_object(arena), *tables = json_object(arena), *kinds = json_object(arena), *disk = json_object(arena);
	struct store_details details;
	struct store_disk state;
	struct store_stats stats;
	struct bytes note;
	struct checkpoint checkpoint;
	struct error error;

	if (reader_stats(reader, &stats, &read->error) != 0)
		return;
	const struct {
		const char *name;
		uint64_t number;
	} numbers[] = {
		{"entries", stats.entries}, {"runs", stats.runs}, {"openRuns", stats.open_runs}, {"facts", stats.facts}, {"checkpoints", stats.checkpoints},
		{"prunedTiles", stats.pruned_tiles}, {"prunedEntries", stats.pruned_entries}, {"removedRuns", stats.removed_runs}, {"erasedValues", stats.erased_values},
		{"databaseBytes", stats.database_bytes}, {"freeBytes", stats.free_bytes}, {"walBytes", stats.wal_bytes},
	};
	for (size_t i = 0; i < COUNT_OF(numbers); i++)
		json_set_number(arena, json, numbers[i].name, (double)numbers[i].number);
	json_set_text(arena, json, "origin", store_origin(own->daemon->store));
	if (reader_details(reader, arena, &details, &read->error) != 0)
		return;
	json_set_number(arena, json, "schema", details.schema);
	for (size_t i = 0; i < details.status_count; i++)
		json_set_number(arena, statuses, details.statuses[i].name, (double)details.statuses[i].count);
	json_set(arena, json, "runsByStatus", statuses);
	for (size_t i = 0; i < details.table_count; i++) {
		struct json *table = json_object(arena);
		json_set_number(arena, table, "rows", (double)details.tables[i].count);
		json_set_number(arena, table, "bytes", (double)details.tables[i].bytes);
		json_set(arena, tables, details.tables[i].name, table);
	}
	if (details.table_count > 0)
		json_set(arena, json, "tables", tables);
	for (size_t i = 0; i < details.kind_count; i++) {
		struct json *kind = json_object(arena);
		json_set_number(arena, kind, "rows", (double)details.kinds[i].count);
		json_set_number(arena, kind, "bytes", (double)details.kinds[i].bytes);
		json_set(arena, kinds, details.kinds[i].name, kind);
	}
	if (details.kind_count > 0)
		json_set(arena, json, "entryKinds", kinds);
	if (add_due(reader, arena, &own->daemon->config, details.kind_count > 0, json, &read->error) != 0)
		return;
	store_disk(own->daemon->store, &state);
	json_set_text(arena, disk, "state", store_disk_state_name(state.state));
	json_set_number(arena, disk, "freeBytes", (double)state.free_bytes);
	json_set_number(arena, disk, "reserveBytes", (double)state.reserve_bytes);
	json_set_number(arena, disk, "walHeldMs", (double)state.held_ms);
	json_set(arena, json, "disk", disk);
	if (reader_checkpoint(reader, arena, 0, &note, &error) == 0 && checkpoint_parse(note, &checkpoint, &error) == 0)
		json_set_number(arena, json, "checkpointSize", (double)checkpoint.size);
	api_print(own, json);
}

void api_journal_stats(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	(void)parameters;
	api_read(daemon, request, stats_work, NULL, NULL);
}
