/* What is left of what retention took: ids of runs that are gone, digests of values that were erased, tiles that were pruned.
 * Writing: the writer's connection, driven by tables.c; reading: any. Start at retention_table_apply(). */
#include <stdio.h>
#include <string.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"

static const char put_tombstone_sql[] =
	"INSERT INTO run_tombstone(id, run, request, ended_ms, purged_ms, kept_ms, reason) SELECT id, seq, request, ended_ms, ?2, ?3, ?4 FROM run "
	"WHERE seq = ?1 AND ended_ms IS NOT NULL"; /* NULL: a rebuild, and the entry of its end is gone */
/* The facts of a run lie in its own stretches of the journal. */
#define FACTS_OF_RUN "SELECT f.seq FROM run_entry e CROSS JOIN fact f ON f.seq >= e.seq_first AND f.seq < e.seq_first + e.count WHERE e.run = ?1"
static const char keep_run_sql[] = "INSERT INTO kept_run(run, id, namespace, name) SELECT seq, id, namespace, name FROM run WHERE seq = ?1 AND EXISTS (" FACTS_OF_RUN ")";
static const char drop_facts_sql[] = "DELETE FROM fact WHERE seq IN (" FACTS_OF_RUN ")";
static const char drop_label_sql[] = "DELETE FROM run_label WHERE key = ?1 AND value = ?2 AND run = ?3";
static const char search_labels_sql[] = "DELETE FROM run_label WHERE run = ?1";
static const char clear_later_sql[] = "INSERT INTO run_clearing(run, seq_next) VALUES(?1, ?1)";
static const char drop_snapshot_sql[] = "DELETE FROM snapshot WHERE run = ?1";
static const char drop_run_sql[] = "DELETE FROM run WHERE seq = ?1";
static const char put_erasure_sql[] = "INSERT OR REPLACE INTO erasure(digest, seq, erased_ms, reason) VALUES(?1, ?2, ?3, ?4)";
static const char tombstone_sql[] = "SELECT run, ended_ms, purged_ms, kept_ms, reason FROM run_tombstone WHERE id = ?1";
static const char erasure_sql[] = "SELECT erased_ms, reason FROM erasure WHERE digest = ?1";
static const char get_prune_sql[] = "SELECT root, leaves FROM journal_prune WHERE tile = ?1";

/* --- writing ------------------------------------------------------------------------------------------------------ */

static int run_for(struct connection *connection, const char *sql, uint64_t run, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, sql, error);

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, run);
	return statement_run(connection, statement, error);
}

/* Is a thing not there, or not what was written? Anything else says nothing of it: it could not be read. */
static bool is_missing(const struct error *error)
{
	return error->code == ERR_NOT_FOUND || error->code == ERR_GONE || error->code == ERR_CORRUPT;
}

/* Labels are found by what they say: the run's first entry tells. Where it cannot (the value is erased; a rebuild has no entries at
 * hand) all labels are looked through. */
static int drop_labels(struct connection *connection, uint64_t run, struct error *error)
{
	struct entry entry;
	struct digest digest;
	struct bytes bytes, value;
	struct json *labels = NULL;
	struct error why = {0};
	struct arena arena;

	arena_init(&arena);
	if (entry_table_bytes(connection, &arena, run, &bytes, &why) != 0 || entry_table_decode(&arena, run, bytes, NULL, &entry, &why) != 0) {
		if (is_missing(&why))
			run_for(connection, search_labels_sql, run, error);
		else
			*error = why;
	} else if (json_get_digest(entry.data, "labels", &digest)) {
		for (unsigned slot = 0; slot < ENTRY_VALUES_MAX && labels == NULL && error->code == ERR_NONE; slot++)
			if (content_table_read(connection, &arena, CONTENT_ID(run, slot), &digest, &value, &why) == 0)
				labels = json_parse(&arena, value, JSON_STORED, NULL, NULL);
			else if (!is_missing(&why))
				*error = why;
		if (labels == NULL && error->code == ERR_NONE)
			run_for(connection, search_labels_sql, run, error);
		for (size_t i = 0; json_is(labels, JSON_OBJECT) && i < json_count(labels) && error->code == ERR_NONE; i++) {
			const struct json_member *member = &labels->object.members[i];
			sqlite3_stmt *statement;

			if (!json_is(member->value, JSON_STRING))
				continue;
			if ((statement = statement_take(connection, drop_label_sql, error)) == NULL)
				break;
			bind_text(statement, 1, member->name);
			bind_text(statement, 2, member->value->string.text);
			bind_number(statement, 3, run);
			statement_run(connection, statement, error);
		}
	}
	arena_close(&arena);
	return error->code;
}

static int purge_run(struct connection *connection, const struct entry *entry, const char *id, const char *reason, struct error *error)
{
	sqlite3_stmt *statement;
	struct error why = {0};
	uint64_t run;

	if (run_table_find(connection, id, &run, &why) != 0) {
		if (why.code != ERR_NOT_FOUND) /* else a rebuild, and even its first entry is gone */
			*error = why;
		return error->code;
	}
	statement = statement_take(connection, put_tombstone_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, run);
	bind_time(statement, 2, entry->time_ms);
	bind_number(statement, 3, (uint64_t)json_get_number(entry->data, "keptMs", 0));
	bind_text(statement, 4, reason);
	if (statement_run(connection, statement, error) != 0 || drop_labels(connection, run, error) != 0)
		return error->code;
	if (run_for(connection, json_get_boolean(entry->data, "facts", true) ? keep_run_sql : drop_facts_sql, run, error) != 0 ||
	    run_for(connection, clear_later_sql, run, error) != 0 || run_for(connection, drop_snapshot_sql, run, error) != 0)
		return error->code;
	return run_for(connection, drop_run_sql, run, error);
}

/* NULL: it gives none, or that is erased. */
static const char *reason_of(struct arena *arena, const struct entry *entry)
{
	struct digest digest;

	if (!json_get_digest(entry->data, "reason", &digest))
		return NULL;
	for (size_t i = 0; i < entry->value_count; i++) {
		struct json *json;

		if (!digest_equal(&entry->values[i].digest, &digest) || entry->values[i].bytes.data == NULL)
			continue;
		json = json_parse(arena, entry->values[i].bytes, JSON_STORED, NULL, NULL);
		if (json_is(json, JSON_STRING))
			return json->string.text;
	}
	return NULL;
}

static int put_erasure(struct connection *connection, const struct entry *entry, const char *reason, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, put_erasure_sql, error);
	struct digest digest;

	if (statement == NULL)
		return error->code;
	if (!json_get_digest(entry->data, "content", &digest))
		return error_set(error, ERR_CORRUPT, "content.erased without the digest of a value");
	bind_digest(statement, 1, &digest);
	bind_number(statement, 2, entry->seq);
	bind_time(statement, 3, entry->time_ms);
	bind_text(statement, 4, reason);
	return statement_run(connection, statement, error);
}

int retention_table_apply(struct connection *connection, const struct entry *entry, struct error *error)
{
	const struct json *runs = json_get(entry->data, "runs");
	struct arena arena;

	if (entry->kind != ENTRY_RUNS_PURGED && entry->kind != ENTRY_CONTENT_ERASED)
		return 0;
	arena_init(&arena);
	if (entry->kind == ENTRY_CONTENT_ERASED)
		put_erasure(connection, entry, reason_of(&arena, entry), error);
	for (size_t i = 0; entry->kind == ENTRY_RUNS_PURGED && i < json_count(runs) && error->code == ERR_NONE; i++)
		if (json_is(json_at(runs, i), JSON_STRING))
			purge_run(connection, entry, json_at(runs, i)->string.text, reason_of(&arena, entry), error);
	arena_close(&arena);
	return error->code;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

int retention_table_tombstone(struct connection *connection, struct arena *arena, const char *id, struct tombstone *tombstone, bool *found, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, tombstone_sql, error);
	int step;

	*found = false;
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, id);
	step = statement_step(connection, statement, error);
	if (step <= 0)
		return step < 0 ? (int)error->code : 0;
	*found = true;
	*tombstone = (struct tombstone){
		.run = column_number(statement, 0),
		.ended_ms = (int64_t)column_number(statement, 1),
		.purged_ms = (int64_t)column_number(statement, 2),
		.kept_ms = (int64_t)column_number(statement, 3),
		.reason = arena != NULL ? column_text(statement, 4, arena) : NULL,
	};
	statement_end(statement);
	return 0;
}

/* "30d": the largest unit that it is a whole number of. */
static void print_duration(int64_t ms, char *text, size_t size)
{
	static const struct {
		int64_t ms;
		const char *unit;
	} units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
	size_t i = 0;

	while (ms % units[i].ms != 0)
		i++;
	snprintf(text, size, "%lld%s", (long long)(ms / units[i].ms), units[i].unit);
}

int retention_table_explain_run(struct connection *connection, const char *id, struct error *error)
{
	char ended[TIME_TEXT_LEN + 1], purged[TIME_TEXT_LEN + 1], kept[32];
	struct tombstone tombstone;
	struct error why = {0};
	struct arena arena;
	bool found;

	arena_init(&arena);
	if (retention_table_tombstone(connection, &arena, id, &tombstone, &found, &why) != 0) {
		*error = why;
	} else if (found) {
		time_text(tombstone.ended_ms, ended);
		time_text(tombstone.purged_ms, purged);
		print_duration(tombstone.kept_ms, kept, sizeof(kept));
		if (tombstone.kept_ms > 0)
			error_set(error, ERR_GONE, "run %.64s ended on %s and was removed on %s by retention (retention.runs: %s)", id, ended, purged, kept);
		else
			error_set(error, ERR_GONE, "run %.64s ended on %s and was purged on %s%s%s", id, ended, purged,
				  tombstone.reason[0] != '\0' ? " because: " : "", tombstone.reason);
	}
	arena_close(&arena);
	return error->code;
}

int retention_table_explain_content(struct connection *connection, const struct digest *digest, struct error *error)
{
	sqlite3_stmt *statement;
	char text[DIGEST_TEXT_LEN + 1], erased[TIME_TEXT_LEN + 1];
	struct error why = {0};

	statement = statement_take(connection, erasure_sql, &why);
	if (statement == NULL)
		return error->code;
	bind_digest(statement, 1, digest);
	if (statement_step(connection, statement, &why) > 0) {
		const char *reason = (const char *)sqlite3_column_text(statement, 1);

		digest_text(digest, text);
		time_text((int64_t)column_number(statement, 0), erased);
		error_set(error, ERR_GONE, "%s was erased on %s%s%s", text, erased, reason != NULL ? " because: " : "", reason != NULL ? reason : "");
		statement_end(statement);
	}
	return error->code;
}

int retention_table_tile(struct connection *connection, uint64_t tile, struct digest *root, bool *leaves, bool *pruned, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, get_prune_sql, error);
	int step;

	*pruned = false;
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, tile);
	step = statement_step(connection, statement, error);
	if (step <= 0)
		return step < 0 ? (int)error->code : 0;
	*pruned = true;
	*leaves = column_number(statement, 1) != 0;
	if (!column_digest(statement, 0, root))
		error_set(error, ERR_CORRUPT, "journal_prune of tile %llu holds no root", (unsigned long long)tile);
	statement_end(statement);
	return error->code;
}

int retention_table_hides(struct connection *connection, uint64_t size, bool *hides, struct error *error)
{
	struct digest root;
	bool pruned, leaves;

	*hides = false;
	if (size % STORE_TILE == 0)
		return 0;
	if (retention_table_tile(connection, size / STORE_TILE, &root, &leaves, &pruned, error) != 0)
		return error->code;
	*hides = pruned && !leaves;
	return 0;
}

/* --- for readers: the log, line by line ----------------------------------------------------------------------------- */

static const char tile_entries_sql[] = "SELECT seq, bytes FROM entry WHERE seq >= ?1 AND seq < ?2 ORDER BY seq";

struct line_list {
	struct arena *arena;
	struct store_log_line **lines;
	size_t *count, cap, bytes;
};

static struct store_log_line *add_line(struct line_list *list, uint64_t seq)
{
	*list->lines = arena_grow(list->arena, *list->lines, *list->count, &list->cap, sizeof(**list->lines));
	(*list->lines)[*list->count] = (struct store_log_line){.seq = seq, .count = 1};
	return &(*list->lines)[(*list->count)++];
}

/* Up to `end`, which lies in the same tile. A tile that kept its leaves gives a line for each entry that is gone: so a checkpoint that
 * ends among them can still be compared. What is missing without a row of journal_prune is left out: whoever verifies sees the gap. */
static int read_tile(struct connection *connection, struct line_list *list, uint64_t from, uint64_t end, struct error *error)
{
	uint64_t tile = from / STORE_TILE, next = from;
	sqlite3_stmt *statement;
	struct digest root;
	bool pruned, leaves = false;
	int step;

	if (retention_table_tile(connection, tile, &root, &leaves, &pruned, error) != 0)
		return error->code;
	if (pruned && !leaves) {
		struct store_log_line *line = add_line(list, tile * STORE_TILE);

		line->count = STORE_TILE;
		line->root = root;
		list->bytes += sizeof(*line);
		return 0;
	}
	statement = statement_take(connection, tile_entries_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, from);
	bind_number(statement, 2, end);
	for (;;) {
		uint64_t seq;

		step = statement_step(connection, statement, error);
		if (step < 0)
			return error->code;
		seq = step > 0 ? column_number(statement, 0) : end;
		for (; pruned && next < seq; next++) {
			struct store_log_line *line = add_line(list, next);

			if (entry_table_read_node(connection, 0, next, &line->root) != 0) {
				(*list->count)--; /* the gap speaks for itself */
				continue;
			}
			list->bytes += sizeof(*line);
		}
		if (step == 0)
			return 0;
		struct store_log_line *line = add_line(list, seq);
		line->bytes = arena_bytes(list->arena, column_bytes(statement, 1));
		list->bytes += line->bytes.len;
		next = seq + 1;
	}
}

int reader_log_lines(struct store_reader *reader, struct arena *arena, uint64_t from_seq, size_t limit, struct store_log_line **lines, size_t *count,
		     uint64_t *next, struct error *error)
{
	struct line_list list = {.arena = arena, .lines = lines, .count = count};
	uint64_t size;

	ERROR_BEGIN(error);
	*lines = NULL;
	*count = 0;
	*next = from_seq;
	if (limit == 0)
		limit = 100;
	if (limit > STORE_PAGE_MAX)
		limit = STORE_PAGE_MAX;
	if (entry_table_size(&reader->connection, &size, error) != 0)
		return error->code;
	while (*next < size && *count < limit && list.bytes < STORE_PAGE_BYTES_MAX) {
		uint64_t end = (*next / STORE_TILE + 1) * STORE_TILE;

		if (end > size)
			end = size;
		if (end - *next > limit - *count)
			end = *next + (limit - *count);
		if (read_tile(&reader->connection, &list, *next, end, error) != 0)
			return error->code;
		if (*count > 0 && (*lines)[*count - 1].count > 1)
			end = (*next / STORE_TILE + 1) * STORE_TILE;
		*next = end;
	}
	return 0;
}

void store_log_line_print(const struct store_log_line *line, struct buffer *text)
{
	if (line->bytes.data != NULL) {
		buffer_add_bytes(text, line->bytes);
		return;
	}
	buffer_printf(text, "pruned %llu %llu ", (unsigned long long)line->seq, (unsigned long long)line->count);
	base64_add(text, (struct bytes){line->root.bytes, sizeof(line->root.bytes)});
}

static const char first_entry_sql[] = "SELECT seq FROM entry WHERE seq >= ?1 ORDER BY seq LIMIT 1";

int reader_pruned_end(struct store_reader *reader, uint64_t from_seq, uint64_t *end, struct error *error)
{
	struct connection *connection = &reader->connection;
	sqlite3_stmt *statement;
	struct digest root;
	uint64_t size;
	bool pruned, leaves;

	ERROR_BEGIN(error);
	*end = from_seq;
	if (from_seq > INT64_MAX || entry_table_size(connection, &size, error) != 0 || from_seq >= size)
		return error->code;
	if (retention_table_tile(connection, from_seq / STORE_TILE, &root, &leaves, &pruned, error) != 0 || !pruned)
		return error->code;
	statement = statement_take(connection, first_entry_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, from_seq);
	if (statement_step(connection, statement, error) > 0) {
		*end = column_number(statement, 0);
		statement_end(statement);
	} else if (error->code == ERR_NONE) {
		*end = size;
	}
	return error->code;
}

static const char erased_sql[] = "SELECT count(*) FROM erasure";
static const char pruned_entries_sql[] = "SELECT coalesce(sum(256 - kept), 0) FROM journal_prune";
static const char gone_runs_sql[] = "SELECT count(*) FROM run_tombstone";

int retention_table_stats(struct connection *connection, struct store_stats *stats, struct error *error)
{
	int64_t erased, pruned, gone;

	if (connection_number(connection, erased_sql, &erased, error) != 0 || connection_number(connection, pruned_entries_sql, &pruned, error) != 0 ||
	    connection_number(connection, gone_runs_sql, &gone, error) != 0)
		return error->code;
	stats->erased_values = (uint64_t)erased;
	stats->pruned_entries = (uint64_t)pruned;
	stats->removed_runs = (uint64_t)gone;
	return 0;
}
