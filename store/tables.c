/* The derived tables as a function of entries and content: the same code runs when an entry is appended and when the
 * tables are built anew to be compared (store_check_tables), so they cannot part ways. On the writer's connection, or on
 * the checker's. Start at tables_apply(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"

static const char *run_of(const struct entry *entry)
{
	return entry_kind_touches_run(entry->kind) ? json_get_text(entry->data, "runId") : NULL;
}

static bool created_before(const struct entry *entries, size_t index, const char *run_id)
{
	for (size_t i = 0; i < index; i++)
		if (entries[i].kind == ENTRY_RUN_CREATED && strcmp(run_of(&entries[i]), run_id) == 0)
			return true;
	return false;
}

static int check_run(struct connection *connection, const struct entry *entries, size_t index, struct error *error)
{
	const struct entry *entry = &entries[index];
	const char *run_id = run_of(entry);
	bool creates = entry->kind == ENTRY_RUN_CREATED, known, purged;
	uint64_t run;

	if (run_id == NULL || !id_valid(run_id))
		return error_set(error, ERR_INVALID, "%s without a valid runId", entry_kind_name(entry->kind));
	if (!creates && index > 0 && run_of(&entries[index - 1]) != NULL && strcmp(run_of(&entries[index - 1]), run_id) == 0)
		return 0; /* As the entry before it. */
	known = created_before(entries, index, run_id);
	if (!known) {
		run_table_find(connection, run_id, &run, error);
		known = error->code == ERR_NONE;
		if (error->code == ERR_NOT_FOUND && creates)
			*error = (struct error){0};
	}
	if (known && creates)
		return error_set(error, ERR_EXISTS, "run %s exists already", run_id);
	if (creates && error->code == ERR_NONE && run_table_is_purged(connection, run_id, &purged, error) == 0 && purged)
		return error_set(error, ERR_EXISTS, "run %s existed and was purged: its id is not used again", run_id);
	return error->code; /* A late entry of a run that is gone is refused (C14). */
}

int tables_check(struct connection *connection, const struct entry *entries, size_t count, struct error *error)
{
	for (size_t i = 0; i < count && error->code == ERR_NONE; i++) {
		if (!json_is(entries[i].data, JSON_OBJECT))
			return error_set(error, ERR_INVALID, "an entry without data");
		if (entry_kind_touches_run(entries[i].kind))
			check_run(connection, entries, i, error);
		if (entries[i].kind == ENTRY_RUN_RETRIED && error->code == ERR_NONE)
			run_table_check_retry(connection, run_of(&entries[i]), error);
		if (entries[i].kind == ENTRY_DEFINITION_ADDED)
			definition_table_check(connection, &entries[i], error);
		else if (entries[i].kind == ENTRY_EVENT_RECEIVED)
			event_table_check(connection, &entries[i], error);
	}
	return error->code;
}

/* Entries of one run that stand next to each other. Its status is written once for all of them, and only where it changed. */
static int apply_stretch(struct connection *connection, const struct entry *entries, size_t count, const char *run_id,
			 struct error *error)
{
	uint64_t run = entries[0].seq;
	enum run_status known = RUN_RUNNING;

	if (entries[0].kind != ENTRY_RUN_CREATED && run_table_find_status(connection, run_id, &run, &known, error) != 0)
		return error->code;
	enum run_status status = known;
	for (size_t i = 0; i < count; i++) {
		status = run_status_after(status, &entries[i]);
		if (entries[i].kind == ENTRY_FACT_RECORDED) {
			if (fact_table_apply(connection, run, &entries[i], error) != 0 || FAIL_POINT_FAILS(TABLE_FACT, error))
				return error->code;
		} else if (entries[i].kind == ENTRY_EVENT_EMITTED) {
			if (event_table_apply(connection, &entries[i], error) != 0)
				return error->code;
		} else if (run_table_apply(connection, run, &entries[i], error) != 0 || FAIL_POINT_FAILS(TABLE_RUN, error)) {
			return error->code;
		}
	}
	/* One that waits again may wait for another time. */
	if ((status != known || status == RUN_WAITING) && !run_status_ended(status) && run_table_set_status(connection, run, status, &entries[count - 1], error) != 0)
		return error->code;
	if (run_table_add_entries(connection, run, entries[0].seq, count, error) != 0 || FAIL_POINT_FAILS(TABLE_RUN_ENTRIES, error))
		return error->code;
	return 0;
}

int tables_apply(struct connection *connection, const struct entry *entries, size_t count, struct error *error)
{
	for (size_t i = 0; i < count;) {
		const char *run_id = run_of(&entries[i]);
		size_t end = i + 1;

		if (run_id == NULL) {
			if (definition_table_apply(connection, &entries[i], error) != 0 || (entries[i].kind == ENTRY_DEFINITION_ADDED && FAIL_POINT_FAILS(TABLE_DEFINITION, error)) ||
			    schedule_table_apply(connection, &entries[i], error) != 0 || (entries[i].kind == ENTRY_SCHEDULE_TICKED && FAIL_POINT_FAILS(TABLE_SCHEDULE, error)) ||
			    event_table_apply(connection, &entries[i], error) != 0 || (entries[i].kind == ENTRY_EVENT_RECEIVED && FAIL_POINT_FAILS(TABLE_EVENT, error)))
				return error->code;
			i = end;
			continue;
		}
		while (end < count && run_of(&entries[end]) != NULL && strcmp(run_of(&entries[end]), run_id) == 0)
			end++;
		if (apply_stretch(connection, entries + i, end - i, run_id, error) != 0)
			return error->code;
		i = end;
	}
	return 0;
}

/* --- check by rebuilding ------------------------------------------------------------------------------------------ */

static const char truth_entries_sql[] = "SELECT seq, bytes FROM truth.entry WHERE seq >= ?1 ORDER BY seq LIMIT 256";

struct rebuild {
	struct connection connection; /* a scratch database, the journal attached to it as `truth` */
	struct log_tree tree;
	struct error *error;
};

static void on_rebuilt_node(void *arg, unsigned level, uint64_t index, const struct digest *hash)
{
	struct rebuild *rebuild = arg;

	if (rebuild->error->code == ERR_NONE)
		entry_table_put_node(&rebuild->connection, level, index, hash, rebuild->error);
}

/* `journal`, `journal_node` and the derived tables from one entry. Its values are found in content, which is truth too: the
 * scratch database has no table of that name, so content_table.c reads the journal's. */
static int rebuild_entry(struct rebuild *rebuild, struct arena *arena, uint64_t seq, struct bytes bytes)
{
	struct digest leaf = log_tree_leaf(bytes);
	struct error *error = rebuild->error;
	struct entry entry;

	if (entry_decode(arena, bytes, NULL, &entry, error) != 0)
		return error->code;
	if (entry.seq != seq || rebuild->tree.size != seq)
		return error_set(error, ERR_CORRUPT, "journal-seq: entry %llu says that it is %llu and stands at %llu",
				 (unsigned long long)seq, (unsigned long long)entry.seq, (unsigned long long)rebuild->tree.size);
	/* Only labels are looked into. */
	if (content_table_fill(&rebuild->connection, arena, &entry, 1, entry.kind == ENTRY_RUN_CREATED ? CONTENT_MAX : 0,
			       error) != 0)
		return error->code;
	if (entry_table_put_leaf(&rebuild->connection, seq, &leaf, error) != 0)
		return error->code;
	log_tree_add(&rebuild->tree, &leaf, on_rebuilt_node, rebuild);
	return error->code != ERR_NONE ? (int)error->code : tables_apply(&rebuild->connection, &entry, 1, error);
}

static int rebuild_all(struct rebuild *rebuild)
{
	struct error *error = rebuild->error;
	uint64_t next = 0;

	for (;;) {
		sqlite3_stmt *statement = statement_take(&rebuild->connection, truth_entries_sql, error);
		struct arena arena;
		bool any = false;

		if (statement == NULL)
			return error->code;
		arena_init(&arena);
		bind_number(statement, 1, next);
		while (statement_step(&rebuild->connection, statement, error) > 0) {
			any = true;
			next = column_number(statement, 0) + 1;
			if (rebuild_entry(rebuild, &arena, next - 1, column_bytes(statement, 1)) != 0) {
				statement_end(statement);
				break;
			}
		}
		arena_close(&arena);
		if (!any || error->code != ERR_NONE)
			return error->code;
	}
}

static int compare_table(struct rebuild *rebuild, const char *table, struct error *error)
{
	char sql[512];
	const char *const sides[][2] = {{"main", "truth"}, {"truth", "main"}};

	for (size_t i = 0; i < COUNT_OF(sides); i++) {
		sqlite3_stmt *statement;
		uint64_t rows = 0;

		snprintf(sql, sizeof(sql), "SELECT count(*) FROM (SELECT * FROM %s.%s EXCEPT SELECT * FROM %s.%s)", sides[i][0],
			 table, sides[i][1], table);
		statement = statement_make(&rebuild->connection, sql, error);
		if (statement == NULL)
			return error->code;
		if (statement_step(&rebuild->connection, statement, error) > 0)
			rows = column_number(statement, 0);
		sqlite3_finalize(statement);
		if (error->code != ERR_NONE)
			return error->code;
		if (rows > 0)
			return error_set(error, ERR_CORRUPT, "table %s: %llu rows %s", table, (unsigned long long)rows,
					 i == 0 ? "that follow from the entries are missing or differ"
						: "do not follow from the entries");
	}
	return 0;
}

int store_check_tables(const char *data_dir, struct error *error)
{
	static const char *const tables[] = {"journal",	   "journal_node", "run",	    "run_label",  "run_entry", "fact",
					     "definition", "document",	   "configuration", "public_key", "timer", "schedule", "event", "sink"};
	struct rebuild rebuild = {0};
	char path[STORE_PATH_MAX], *attach = NULL;
	struct buffer uri;

	ERROR_BEGIN(error);
	connection_set_up_library();
	rebuild.error = error;
	snprintf(path, sizeof(path), "%s/journal.db", data_dir);
	buffer_init(&uri, 4 * STORE_PATH_MAX);
	connection_print_uri(path, "mode=ro", &uri); /* Looking changes nothing, the WAL included. */
	attach = sqlite3_mprintf("ATTACH %Q AS truth", buffer_text(&uri));
	buffer_close(&uri);
	log_tree_init(&rebuild.tree);
	if (attach == NULL) {
		error_set(error, ERR_IO, "no memory for SQLite");
		goto done;
	}
	/* A file without a name: SQLite keeps it in memory while small, else in the folder for temporary files. */
	if (connection_open(&rebuild.connection, "", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, error) != 0)
		goto done;
	if (migrate_up(&rebuild.connection, error) != 0 || connection_exec(&rebuild.connection, attach, error) != 0)
		goto out;
	/* content and blob are truth and far larger than the rest: they are looked at where they lie. */
	if (connection_exec(&rebuild.connection, "DROP TABLE content; DROP TABLE blob; DROP TABLE blob_chunk; BEGIN", error) != 0)
		goto out;
	if (rebuild_all(&rebuild) != 0)
		goto out;
	for (size_t i = 0; i < COUNT_OF(tables); i++)
		if (compare_table(&rebuild, tables[i], error) != 0)
			goto out;
out:
	if (!sqlite3_get_autocommit(rebuild.connection.db)) {
		struct error ignored = {0};

		connection_exec(&rebuild.connection, "ROLLBACK", &ignored);
	}
	connection_close(&rebuild.connection);
done:
	sqlite3_free(attach);
	return error->code == ERR_NONE ? 0 : error_wrap(error, "check the tables of %s", data_dir);
}
