/* Gates: one row for each gate.recorded, whose report stays with its entry. Writing: the writer's connection, driven by tables.c; reading: a
 * reader. Start at gate_table_apply() and reader_gates(). */
#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"

static const char insert_sql[] = "INSERT INTO gate(seq, id, run, runtime, class) VALUES(?1, ?2, ?3, ?4, ?5)";

int gate_table_apply(struct connection *connection, const struct entry *entry, struct error *error)
{
	const char *runtime = json_get_text(entry->data, "runtime"), *class = json_get_text(entry->data, "class"),
		   *run = json_get_text(entry->data, "runId");
	sqlite3_stmt *statement;
	struct digest id;

	if (!json_get_digest(entry->data, "report", &id))
		return error_set(error, ERR_INVALID, "gate.recorded without a report");
	statement = statement_take(connection, insert_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, entry->seq);
	bind_digest(statement, 2, &id);
	bind_text(statement, 3, run);
	bind_text(statement, 4, runtime != NULL ? runtime : "");
	bind_text(statement, 5, class != NULL ? class : "");
	return statement_run(connection, statement, error);
}

/* --- for readers -------------------------------------------------------------------------------------------------- */

#define GATE_COLUMNS "seq, id, runtime, class, run"
static const char all_sql[] = "SELECT " GATE_COLUMNS " FROM gate WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
static const char of_runtime_sql[] = "SELECT " GATE_COLUMNS " FROM gate WHERE runtime = ?3 AND seq < ?1 ORDER BY seq DESC LIMIT ?2";
static const char by_id_sql[] = "SELECT " GATE_COLUMNS " FROM gate WHERE id >= ?1 AND id <= ?2 ORDER BY id, seq LIMIT 2";

/* The report is read from the entry: the row holds what is searched by. */
static int fill(struct store_reader *reader, struct arena *arena, struct store_gate *gate, struct error *error)
{
	struct bytes bytes;
	struct entry entry;

	if (entry_table_bytes(&reader->connection, arena, gate->seq, &bytes, error) != 0 || entry_table_decode(arena, gate->seq, bytes, reader->origin, &entry, error) != 0 ||
	    content_table_fill(&reader->connection, arena, &entry, 1, CONTENT_MAX, error) != 0)
		return error->code;
	gate->time_ms = entry.time_ms;
	for (size_t i = 0; i < entry.value_count; i++)
		if (digest_equal(&entry.values[i].digest, &gate->id))
			gate->report = entry.values[i].bytes;
	return 0;
}

static void read_gate(sqlite3_stmt *statement, struct arena *arena, struct store_gate *gate)
{
	*gate = (struct store_gate){
		.seq = column_number(statement, 0),
		.runtime = column_text(statement, 2, arena),
		.class = column_text(statement, 3, arena),
		.run_id = column_text(statement, 4, arena),
	};
	column_digest(statement, 1, &gate->id);
}

int reader_gates(struct store_reader *reader, struct arena *arena, const struct store_gate_filter *filter, struct store_gate **gates, size_t *count, struct error *error)
{
	size_t cap = 0, limit = filter->limit == 0 || filter->limit > STORE_PAGE_MAX ? STORE_PAGE_MAX : filter->limit;
	sqlite3_stmt *statement;

	ERROR_BEGIN(error);
	*gates = NULL;
	*count = 0;
	statement = statement_take(&reader->connection, filter->runtime != NULL ? of_runtime_sql : all_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, filter->before_seq != 0 ? filter->before_seq : INT64_MAX);
	bind_number(statement, 2, limit);
	if (filter->runtime != NULL)
		bind_text(statement, 3, filter->runtime);
	while (*count < limit && statement_step(&reader->connection, statement, error) > 0) {
		*gates = arena_grow(arena, *gates, *count, &cap, sizeof(**gates));
		read_gate(statement, arena, &(*gates)[(*count)++]);
	}
	statement_end(statement);
	for (size_t i = 0; i < *count && error->code == ERR_NONE; i++) {
		if (fill(reader, arena, &(*gates)[i], error) != ERR_CORRUPT && error->code != ERR_NOT_FOUND)
			continue;
		log_warn(LOG_STORE, "gate of run=%s: %s", (*gates)[i].run_id, error->message); /* the others are good, and a start reads them all */
		*error = (struct error){0};
	}
	return error->code;
}

int reader_gate(struct store_reader *reader, struct arena *arena, const char *id_prefix, struct store_gate *gate, struct error *error)
{
	sqlite3_stmt *statement;

	ERROR_BEGIN(error);
	statement = statement_find_digest(&reader->connection, by_id_sql, id_prefix, 1, "gate", error);
	if (statement == NULL)
		return error->code;
	read_gate(statement, arena, gate);
	statement_end(statement);
	return fill(reader, arena, gate, error);
}
