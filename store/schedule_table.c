/* Schedules: what each has done so far. Writing: the writer's connection, driven by tables.c; reading: a reader. Start at
 * schedule_table_apply(). */
#include <string.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"

static const char put_sql[] =
	"INSERT INTO schedule(id, seq, definition, namespace, name, version, added_ms, accounted_ms) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7) ON CONFLICT(id) DO "
	"UPDATE SET seq = excluded.seq, definition = excluded.definition, version = excluded.version, added_ms = excluded.added_ms, "
	"accounted_ms = excluded.accounted_ms, event_seq = 0 WHERE definition != excluded.definition";
static const char remove_sql[] = "DELETE FROM schedule WHERE id = ?1";
static const char ticked_sql[] =
	"UPDATE schedule SET last_due_ms = ?2, last_run = ?3, ticked = ticked + 1, accounted_ms = CASE WHEN ?4 THEN accounted_ms ELSE max(accounted_ms, ?2) END, "
	"event_seq = max(event_seq, ?5) WHERE id = ?1";
static const char skipped_sql[] =
	"UPDATE schedule SET skipped = skipped + ?3, skipped_why = ?4, accounted_ms = max(accounted_ms, ?2), event_seq = max(event_seq, ?5) "
	"WHERE id = ?1";
static const char paused_sql[] = "UPDATE schedule SET paused = ?2 WHERE id = ?1";

static int64_t time_of(const struct entry *entry, const char *name)
{
	int64_t ms = 0;

	time_parse(text_or_empty(entry->data, name), &ms);
	return ms;
}

static int apply_definition(struct connection *connection, const struct entry *entry, struct error *error)
{
	const char *namespace = text_or_empty(entry->data, "namespace"), *name = text_or_empty(entry->data, "name");
	bool is_scheduled = json_get_boolean(entry->data, "scheduled", false);
	struct digest digest;
	sqlite3_stmt *statement;
	char id[STORE_SCHEDULE_ID_MAX + 1];

	if (!json_get_boolean(entry->data, "registered", true) || !json_get_digest(entry->data, "definition", &digest))
		return 0;
	snprintf(id, sizeof(id), "%.63s.%.63s", namespace, name);
	statement = statement_take(connection, is_scheduled ? put_sql : remove_sql, error);
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, id);
	if (is_scheduled) {
		bind_number(statement, 2, entry->seq);
		bind_digest(statement, 3, &digest);
		bind_text(statement, 4, namespace);
		bind_text(statement, 5, name);
		bind_text(statement, 6, text_or_empty(entry->data, "version"));
		bind_time(statement, 7, entry->time_ms);
	}
	return statement_run(connection, statement, error);
}

int schedule_table_apply(struct connection *connection, const struct entry *entry, struct error *error)
{
	sqlite3_stmt *statement;

	switch (entry->kind) {
	case ENTRY_DEFINITION_ADDED:
		return apply_definition(connection, entry, error);
	case ENTRY_SCHEDULE_TICKED:
		statement = statement_take(connection, ticked_sql, error);
		if (statement == NULL)
			return error->code;
		bind_time(statement, 2, time_of(entry, "due"));
		bind_text(statement, 3, text_or_empty(entry->data, "runId"));
		bind_number(statement, 4, json_get(entry->data, "by") != NULL);
		bind_number(statement, 5, (uint64_t)json_get_number(entry->data, "eventSeq", 0));
		break;
	case ENTRY_SCHEDULE_SKIPPED:
		statement = statement_take(connection, skipped_sql, error);
		if (statement == NULL)
			return error->code;
		bind_time(statement, 2, time_of(entry, "last"));
		bind_number(statement, 3, (uint64_t)json_get_number(entry->data, "count", 1));
		bind_text(statement, 4, text_or_empty(entry->data, "why"));
		bind_number(statement, 5, (uint64_t)json_get_number(entry->data, "eventSeq", 0));
		break;
	case ENTRY_SCHEDULE_PAUSED:
	case ENTRY_SCHEDULE_RESUMED:
		statement = statement_take(connection, paused_sql, error);
		if (statement == NULL)
			return error->code;
		bind_number(statement, 2, entry->kind == ENTRY_SCHEDULE_PAUSED);
		break;
	default:
		return 0;
	}
	bind_text(statement, 1, text_or_empty(entry->data, "schedule"));
	return statement_run(connection, statement, error);
}

/* --- for readers -------------------------------------------------------------------------------------------------- */

#define SCHEDULE_QUERY                                                                                                                              \
	"SELECT s.id, s.seq, s.definition, s.namespace, s.name, s.version, s.added_ms, s.accounted_ms, coalesce(s.last_due_ms, 0), s.last_run, s.ticked, " \
	"s.skipped, s.skipped_why, s.paused, coalesce(r.ended_ms, 0), r.seq IS NOT NULL, s.event_seq FROM schedule s LEFT JOIN run r ON r.id = s.last_run "
static const char list_sql[] = SCHEDULE_QUERY "WHERE s.id > ?1 ORDER BY s.id LIMIT ?2";
static const char get_sql[] = SCHEDULE_QUERY "WHERE s.id = ?1 LIMIT ?2";

static int read_rows(struct store_reader *reader, struct arena *arena, const char *sql, const char *id, size_t limit, struct store_schedule **schedules,
		     size_t *count, struct error *error)
{
	struct connection *connection = &reader->connection;
	sqlite3_stmt *statement;

	*count = 0;
	CHECK(limit > 0 && limit <= STORE_PAGE_MAX);
	*schedules = arena_alloc(arena, limit * sizeof(**schedules));
	statement = statement_take(connection, sql, error);
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, id);
	bind_number(statement, 2, limit);
	while (statement_step(connection, statement, error) > 0) {
		struct store_schedule *schedule = &(*schedules)[(*count)++];

		*schedule = (struct store_schedule){
			.id = column_text(statement, 0, arena),
			.seq = column_number(statement, 1),
			.namespace = column_text(statement, 3, arena),
			.name = column_text(statement, 4, arena),
			.version = column_text(statement, 5, arena),
			.added_ms = (int64_t)column_number(statement, 6),
			.accounted_ms = (int64_t)column_number(statement, 7),
			.last_due_ms = (int64_t)column_number(statement, 8),
			.last_run = column_text(statement, 9, arena),
			.ticked = column_number(statement, 10),
			.skipped = column_number(statement, 11),
			.skipped_why = column_text(statement, 12, arena),
			.paused = column_number(statement, 13) != 0,
			.last_ended_ms = (int64_t)column_number(statement, 14),
			.last_is_known = column_number(statement, 15) != 0,
			.event_seq = column_number(statement, 16),
		};
		column_digest(statement, 2, &schedule->definition);
	}
	return error->code;
}

int reader_schedules(struct store_reader *reader, struct arena *arena, const char *after_id, size_t limit, struct store_schedule **schedules, size_t *count,
		     struct error *error)
{
	ERROR_BEGIN(error);
	return read_rows(reader, arena, list_sql, after_id == NULL ? "" : after_id, limit, schedules, count, error);
}

int reader_schedule(struct store_reader *reader, struct arena *arena, const char *id, struct store_schedule **schedule, size_t *count, struct error *error)
{
	ERROR_BEGIN(error);
	return read_rows(reader, arena, get_sql, id, 1, schedule, count, error);
}
