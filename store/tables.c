/* The derived tables as a function of entries and content: the same code runs when an entry is appended and when the
 * tables are built anew to be compared (store_check_tables), so they cannot part ways. On the writer's connection, or on
 * the checker's. Start at tables_apply(). */
#include <assert.h>
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
		else if (error->code == ERR_NOT_FOUND)
			retention_table_explain_run(connection, run_id, error); /* purged while it was decided */
	}
	if (known && creates)
		return error_set(error, ERR_EXISTS, "run %s exists already", run_id);
	if (creates && error->code == ERR_NONE && run_table_is_purged(connection, run_id, &purged, error) == 0 && purged)
		return error_set(error, ERR_EXISTS, "run %s existed and was removed: its id is not used again, choose another", run_id);
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
	const struct entry *suspended = NULL;
	for (size_t i = 0; i < count; i++) {
		status = run_status_after(status, &entries[i]);
		if (entries[i].kind == ENTRY_RUN_SUSPENDED || entries[i].kind == ENTRY_RUN_RESUMED)
			suspended = status == RUN_SUSPENDED ? &entries[i] : NULL;
		if (entries[i].kind == ENTRY_FACT_RECORDED) {
			if (fact_table_apply(connection, run, &entries[i], error) != 0 || FAIL_POINT_FAILS(TABLE_FACT, error))
				return error->code;
		} else if (entries[i].kind == ENTRY_GATE_RECORDED) {
			if (gate_table_apply(connection, &entries[i], error) != 0)
				return error->code;
		} else if (entries[i].kind == ENTRY_EVENT_EMITTED) {
			if (event_table_apply(connection, &entries[i], error) != 0)
				return error->code;
		} else if (entries[i].kind == ENTRY_ATTEMPT_SUCCEEDED || entries[i].kind == ENTRY_ATTEMPT_FAILED) {
			if (spending_table_apply(connection, &entries[i], error) != 0)
				return error->code;
		} else if (run_table_apply(connection, run, &entries[i], error) != 0 || FAIL_POINT_FAILS(TABLE_RUN, error)) {
			return error->code;
		}
	}
	/* One that waits again may wait for another time. */
	const struct entry *said = status == RUN_SUSPENDED ? suspended : &entries[count - 1];
	if ((status != known || status == RUN_WAITING || suspended != NULL) && !run_status_ended(status) && run_table_set_status(connection, run, status, said, error) != 0)
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
			    event_table_apply(connection, &entries[i], error) != 0 || (entries[i].kind == ENTRY_EVENT_RECEIVED && FAIL_POINT_FAILS(TABLE_EVENT, error)) ||
			    retention_table_apply(connection, &entries[i], error) != 0 || (entries[i].kind == ENTRY_RUNTIME_SPENT && spending_table_apply(connection, &entries[i], error) != 0))
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

static const char truth_pruned_sql[] = "SELECT count(*) FROM truth.journal_prune";
static const char truth_mark_sql[] = "SELECT coalesce(max(seq), 0) FROM truth.spending_mark";
static const char truth_tile_sql[] = "SELECT root, leaves FROM truth.journal_prune WHERE tile = ?1";
static const char truth_leaf_sql[] = "SELECT leaf FROM truth.journal WHERE seq = ?1";
static const char truth_tombstone_sql[] = "SELECT run FROM truth.run_tombstone WHERE id = ?1";
static const char forgotten_sql[] = "DELETE FROM main.event WHERE seq < coalesce((SELECT min(seq) FROM truth.event), 9223372036854775807)";
static const char truth_entries_sql[] = "SELECT seq, bytes FROM truth.entry WHERE seq >= ?1 ORDER BY seq LIMIT 256";

struct rebuild {
	struct connection connection; /* a scratch database, the journal attached to it as `truth` */
	struct log_tree tree;
	bool pruned; /* entries are gone: what only they said is taken from what retention left in their place */
	struct error *error;
};

static void on_rebuilt_node(void *arg, unsigned level, uint64_t index, const struct digest *hash)
{
	struct rebuild *rebuild = arg;

	if (rebuild->error->code == ERR_NONE)
		entry_table_put_node(&rebuild->connection, level, index, hash, rebuild->error);
}

/* One row by number, or by text. False: there is none, or *error. */
static bool find_row(struct rebuild *rebuild, const char *sql, uint64_t number, const char *text, struct digest *digest, uint64_t *value)
{
	sqlite3_stmt *statement = statement_take(&rebuild->connection, sql, rebuild->error);
	bool found;

	if (statement == NULL)
		return false;
	if (text != NULL)
		bind_text(statement, 1, text);
	else
		bind_number(statement, 1, number);
	found = statement_step(&rebuild->connection, statement, rebuild->error) > 0;
	if (!found)
		return false;
	if (digest != NULL)
		column_digest(statement, 0, digest);
	*value = column_number(statement, digest != NULL ? 1 : 0);
	statement_end(statement);
	return true;
}

/* Entries up to `seq` are not there: what retention left says what stood in the tree. */
static int rebuild_gap(struct rebuild *rebuild, uint64_t seq)
{
	struct error *error = rebuild->error;

	while (rebuild->tree.size < seq && error->code == ERR_NONE) {
		uint64_t at = rebuild->tree.size, leaves, ignored;
		struct digest hash;

		if (!find_row(rebuild, truth_tile_sql, at / STORE_TILE, NULL, &hash, &leaves))
			return error->code != ERR_NONE ? (int)error->code : error_set(error, ERR_CORRUPT, "journal-seq: entry %llu is missing, and no retention took it", (unsigned long long)at);
		if (!leaves && at % STORE_TILE == 0 && at + STORE_TILE <= seq) {
			log_tree_add_subtree(&rebuild->tree, STORE_NODE_LEVELS, &hash, on_rebuilt_node, rebuild);
			if (error->code == ERR_NONE)
				entry_table_put_node(&rebuild->connection, STORE_NODE_LEVELS, at / STORE_TILE, &hash, error);
		} else if (!leaves || !find_row(rebuild, truth_leaf_sql, at, NULL, &hash, &ignored)) {
			return error->code != ERR_NONE ? (int)error->code : error_set(error, ERR_CORRUPT, "journal-seq: leaf %llu is missing", (unsigned long long)at);
		} else if (entry_table_put_leaf(&rebuild->connection, at, &hash, error) == 0) {
			log_tree_add(&rebuild->tree, &hash, on_rebuilt_node, rebuild);
		}
	}
	return error->code;
}

/* Of a run that was removed, and whose first entry is gone: facts and events stay, there is no run. *done: that was it. */
static int rebuild_orphan(struct rebuild *rebuild, const struct entry *entry, bool *done)
{
	const char *id = run_of(entry);
	struct error *error = rebuild->error, why = {0};
	uint64_t run;

	*done = false;
	if (entry->kind == ENTRY_EVENT_RECEIVED || entry->kind == ENTRY_EVENT_EMITTED)
		if (connection_run(&rebuild->connection, forgotten_sql, error) != 0)
			return error->code;
	if (id == NULL || entry->kind == ENTRY_RUN_CREATED || run_table_find(&rebuild->connection, id, &run, &why) != ERR_NOT_FOUND)
		return 0;
	*done = find_row(rebuild, truth_tombstone_sql, 0, id, NULL, &run);
	if (*done && entry->kind == ENTRY_FACT_RECORDED)
		return fact_table_apply(&rebuild->connection, run, entry, error);
	if (*done && entry->kind == ENTRY_GATE_RECORDED)
		return gate_table_apply(&rebuild->connection, entry, error);
	if (*done && entry->kind == ENTRY_EVENT_EMITTED)
		return event_table_apply(&rebuild->connection, entry, error);
	return error->code;
}

/* `journal`, `journal_node` and the derived tables from one entry. Its values are found in content, which is truth too: the
 * scratch database has no table of that name, so content_table.c reads the journal's. */
static int rebuild_entry(struct rebuild *rebuild, struct arena *arena, uint64_t seq, struct bytes bytes)
{
	struct digest leaf = log_tree_leaf(bytes);
	struct error *error = rebuild->error;
	struct entry entry;
	bool done = false, whole;

	if (entry_decode(arena, bytes, NULL, &entry, error) != 0)
		return error->code;
	if (rebuild->pruned && rebuild_gap(rebuild, seq) != 0)
		return error->code;
	if (entry.seq != seq || rebuild->tree.size != seq)
		return error_set(error, ERR_CORRUPT, "journal-seq: entry %llu says that it is %llu and stands at %llu",
				 (unsigned long long)seq, (unsigned long long)entry.seq, (unsigned long long)rebuild->tree.size);
	/* Only labels and reasons are looked into. */
	whole = entry.kind == ENTRY_RUN_CREATED || entry.kind == ENTRY_RUNS_PURGED || entry.kind == ENTRY_CONTENT_ERASED;
	if (content_table_fill(&rebuild->connection, arena, &entry, 1, whole ? CONTENT_MAX : 0, error) != 0)
		return error->code;
	if (entry_table_put_leaf(&rebuild->connection, seq, &leaf, error) != 0)
		return error->code;
	log_tree_add(&rebuild->tree, &leaf, on_rebuilt_node, rebuild);
	if (error->code != ERR_NONE || (rebuild->pruned && rebuild_orphan(rebuild, &entry, &done) != 0) || done)
		return error->code;
	return tables_apply(&rebuild->connection, &entry, 1, error);
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

/* Where entries are gone, what followed from them alone is taken as it stands: which runs are no more, and when they had ended (the entry that
 * began one may be there and that of its end not), which of their facts were kept, how often a schedule ticked, what was used of a runtime. */
static const char settle_sql[] = "DELETE FROM main.run WHERE id IN (SELECT id FROM truth.run_tombstone);"
				 "DELETE FROM main.run_label WHERE run IN (SELECT run FROM truth.run_tombstone);"
				 "DELETE FROM main.timer WHERE run IN (SELECT run FROM truth.run_tombstone);"
				 "DELETE FROM main.fact WHERE run IN (SELECT run FROM truth.run_tombstone) AND seq NOT IN (SELECT seq FROM truth.fact);"
				 "DELETE FROM main.event WHERE seq NOT IN (SELECT seq FROM truth.event);"
				 "DELETE FROM main.runtime_spending;"
				 "INSERT INTO main.runtime_spending SELECT * FROM truth.runtime_spending;"
				 "INSERT OR REPLACE INTO main.run_tombstone SELECT * FROM truth.run_tombstone;"
				 "INSERT INTO main.kept_run SELECT * FROM truth.kept_run WHERE true ON CONFLICT DO NOTHING";

/* columns: which of them, and of which rows. */
static int compare_table(struct rebuild *rebuild, const char *table, const char *columns, const char *condition, struct error *error)
{
	char sql[1024];
	const char *const sides[][2] = {{"main", "truth"}, {"truth", "main"}};

	for (size_t i = 0; i < COUNT_OF(sides); i++) {
		sqlite3_stmt *statement;
		uint64_t rows = 0;

		snprintf(sql, sizeof(sql), "SELECT count(*) FROM (SELECT %s FROM %s.%s %s EXCEPT SELECT %s FROM %s.%s %s)", columns,
			 sides[i][0], table, condition, columns, sides[i][1], table, condition);
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
	static const struct {
		const char *name, *columns_when_pruned, *condition;
	} tables[] = {
		{"journal", NULL, NULL}, {"journal_node", NULL, NULL}, {"run", NULL, NULL}, {"run_label", NULL, NULL},
		/* Those of removed runs say what is yet to be cleared away. */
		{"run_entry", NULL, "WHERE run IN (SELECT r.seq FROM truth.run r)"},
		{"fact", NULL, NULL}, {"gate", NULL, NULL}, {"definition", NULL, NULL}, {"document", NULL, NULL}, {"configuration", NULL, NULL}, {"public_key", NULL, NULL},
		{"timer", NULL, NULL}, {"schedule", "id, seq, definition, namespace, name, version, added_ms, paused", NULL}, {"event", NULL, NULL},
		{"sink", NULL, NULL}, {"run_tombstone", NULL, NULL}, {"kept_run", NULL, NULL}, {"erasure", NULL, NULL},
		/* The newest days: earlier ones have gone from the journal's own. */
		{"runtime_spending", NULL, "WHERE (SELECT count(*) FROM main.runtime_spending AS other WHERE other.runtime = runtime_spending.runtime AND other.day > runtime_spending.day) < 35"},
	};
	int64_t pruned, mark;
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
	if (connection_number(&rebuild.connection, truth_pruned_sql, &pruned, error) != 0)
		goto out;
	rebuild.pruned = pruned > 0;
	if (connection_number(&rebuild.connection, truth_mark_sql, &mark, error) != 0)
		goto out;
	rebuild.connection.spending_until = mark > 0 ? (uint64_t)mark : 0;
	if (rebuild_all(&rebuild) != 0 || (rebuild.pruned && connection_exec(&rebuild.connection, settle_sql, error) != 0))
		goto out;
	static_assert(SPENT_DAYS_MAX == 35, "as the condition says");
	for (size_t i = 0; i < COUNT_OF(tables); i++)
		if (compare_table(&rebuild, tables[i].name, rebuild.pruned && tables[i].columns_when_pruned ? tables[i].columns_when_pruned : "*",
				  tables[i].condition ? tables[i].condition : "", error) != 0)
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
