/* Events, and how far the sinks have come with them. Writing: the writer's connection, driven by tables.c; reading: a reader.
 * The rows say which events are known; what they are is read from their entries. Start at event_table_apply(). */
#include <string.h>

#include "store/internal.h"
#include "workflow/base/check.h"

/* A run may emit what is known already (its author chooses the id): nothing new for anybody, and no reason to fail. */
static const char put_sql[] = "INSERT INTO event(seq, key, time_ms) VALUES(?1, ?2, ?3) ON CONFLICT DO NOTHING";
static const char find_sql[] = "SELECT seq FROM event WHERE key = ?1";
static const char forget_sql[] = "DELETE FROM event WHERE seq < ?1";
static const char put_sink_sql[] = "INSERT INTO sink(name, position) VALUES(?1, ?2) ON CONFLICT(name) DO UPDATE SET position = excluded.position";

int event_table_check(struct connection *connection, const struct entry *entry, struct error *error)
{
	struct digest key;
	sqlite3_stmt *statement;

	if (!json_get_digest(entry->data, "key", &key))
		return error_set(error, ERR_INVALID, "%s without a key", entry_kind_name(entry->kind));
	statement = statement_take(connection, find_sql, error);
	if (statement == NULL)
		return error->code;
	bind_digest(statement, 1, &key);
	if (statement_step(connection, statement, error) > 0) {
		error_set(error, ERR_EXISTS, "the event is known: it came with entry %llu", (unsigned long long)column_number(statement, 0));
		statement_end(statement);
	}
	return error->code;
}

int event_table_apply(struct connection *connection, const struct entry *entry, struct error *error)
{
	sqlite3_stmt *statement;
	struct digest key;

	switch (entry->kind) {
	case ENTRY_EVENT_RECEIVED:
	case ENTRY_EVENT_EMITTED:
		if (!json_get_digest(entry->data, "key", &key))
			return error_set(error, ERR_CORRUPT, "%s without a key", entry_kind_name(entry->kind));
		statement = statement_take(connection, put_sql, error);
		if (statement == NULL)
			return error->code;
		bind_number(statement, 1, entry->seq);
		bind_digest(statement, 2, &key);
		bind_time(statement, 3, entry->time_ms);
		break;
	case ENTRY_EVENTS_FORGOTTEN:
		statement = statement_take(connection, forget_sql, error);
		if (statement == NULL)
			return error->code;
		bind_number(statement, 1, (uint64_t)json_get_number(entry->data, "before", 0));
		break;
	case ENTRY_SINK_ADVANCED:
		statement = statement_take(connection, put_sink_sql, error);
		if (statement == NULL)
			return error->code;
		bind_text(statement, 1, text_or_empty(entry->data, "sink"));
		bind_number(statement, 2, (uint64_t)json_get_number(entry->data, "position", 0));
		break;
	default:
		return 0;
	}
	return statement_run(connection, statement, error);
}

/* --- for readers -------------------------------------------------------------------------------------------------- */

static const char page_sql[] = "SELECT e.seq, e.time_ms, t.bytes FROM event e JOIN entry t ON t.seq = e.seq WHERE e.seq > ?1 AND e.time_ms >= ?2 ORDER BY e.seq LIMIT ?3";
static const char begin_sql[] = "SELECT min(seq) FROM event WHERE time_ms >= ?1";
static const char old_sql[] = "SELECT seq, time_ms FROM event ORDER BY seq LIMIT ?1";
static const char count_sql[] = "SELECT count(*) FROM event";
static const char sink_sql[] = "SELECT position FROM sink WHERE name = ?1";

/* The value that the entry calls `event`, whichever of its values it is. */
static int read_event(struct connection *connection, struct arena *arena, struct bytes bytes, struct store_event *event, struct error *error)
{
	struct digest digest;
	struct entry entry;

	if (entry_table_decode(arena, event->seq, bytes, NULL, &entry, error) != 0 || content_table_fill(connection, arena, &entry, 1, CONTENT_MAX, error) != 0)
		return error->code;
	if (!json_get_digest(entry.data, "event", &digest))
		return error_set(error, ERR_CORRUPT, "entry %llu names no event", (unsigned long long)event->seq);
	for (size_t i = 0; i < entry.value_count; i++)
		if (digest_equal(&entry.values[i].digest, &digest)) {
			event->event = entry.values[i].bytes;
			return 0;
		}
	return 0; /* as if it were erased: one event that cannot be had must not keep those behind it */
}

int reader_events(struct store_reader *reader, struct arena *arena, uint64_t after_seq, int64_t since_ms, size_t limit, struct store_event **events,
		  size_t *count, uint64_t *next, struct error *error)
{
	struct connection *connection = &reader->connection;
	sqlite3_stmt *statement;
	size_t bytes = 0;

	ERROR_BEGIN(error);
	CHECK(limit > 0);
	CHECK(limit <= STORE_PAGE_MAX);
	*count = 0;
	*next = after_seq;
	*events = arena_alloc(arena, limit * sizeof(**events));
	statement = statement_take(connection, page_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, after_seq);
	bind_time(statement, 2, since_ms);
	bind_number(statement, 3, limit);
	while (statement_step(connection, statement, error) > 0) {
		struct store_event *event = &(*events)[*count];

		*event = (struct store_event){.seq = column_number(statement, 0), .time_ms = (int64_t)column_number(statement, 1)};
		if (read_event(connection, arena, arena_bytes(arena, column_bytes(statement, 2)), event, error) != 0) {
			statement_end(statement);
			break;
		}
		*next = event->seq;
		(*count)++;
		bytes += event->event.len;
		if (bytes >= STORE_EVENTS_BYTES_MAX) {
			statement_end(statement);
			break;
		}
	}
	return error->code;
}

int reader_events_begin(struct store_reader *reader, int64_t since_ms, uint64_t *after_seq, struct error *error)
{
	struct connection *connection = &reader->connection;
	sqlite3_stmt *statement;
	uint64_t size;

	ERROR_BEGIN(error);
	if (entry_table_size(connection, &size, error) != 0)
		return error->code;
	*after_seq = size > 0 ? size - 1 : 0;
	statement = statement_take(connection, begin_sql, error);
	if (statement == NULL)
		return error->code;
	bind_time(statement, 1, since_ms);
	if (statement_step(connection, statement, error) > 0) {
		/* Entry 0 is journal.opened, so an event's seq is never 0: that is SQL's null. */
		if (column_number(statement, 0) > 0)
			*after_seq = column_number(statement, 0) - 1;
		statement_end(statement);
	}
	return error->code;
}

int reader_events_old(struct store_reader *reader, int64_t before_ms, size_t limit, uint64_t *before, size_t *count, struct error *error)
{
	struct connection *connection = &reader->connection;
	sqlite3_stmt *statement;

	ERROR_BEGIN(error);
	*before = 0;
	*count = 0;
	statement = statement_take(connection, old_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, limit);
	while (statement_step(connection, statement, error) > 0) {
		if ((int64_t)column_number(statement, 1) >= before_ms) {
			statement_end(statement);
			break;
		}
		*before = column_number(statement, 0) + 1;
		(*count)++;
	}
	return error->code;
}

int reader_event_find(struct store_reader *reader, const struct digest *key, uint64_t *seq, struct error *error)
{
	struct connection *connection = &reader->connection;
	sqlite3_stmt *statement;

	ERROR_BEGIN(error);
	statement = statement_take(connection, find_sql, error);
	if (statement == NULL)
		return error->code;
	bind_digest(statement, 1, key);
	if (statement_step(connection, statement, error) > 0) {
		*seq = column_number(statement, 0);
		statement_end(statement);
	} else if (error->code == ERR_NONE) {
		error_set(error, ERR_NOT_FOUND, "no event of this key is known");
	}
	return error->code;
}

int reader_event_count(struct store_reader *reader, uint64_t *count, struct error *error)
{
	int64_t number = 0;

	ERROR_BEGIN(error);
	connection_number(&reader->connection, count_sql, &number, error);
	*count = (uint64_t)number;
	return error->code;
}

int reader_sink(struct store_reader *reader, const char *name, uint64_t *position, struct error *error)
{
	struct connection *connection = &reader->connection;
	sqlite3_stmt *statement;

	ERROR_BEGIN(error);
	*position = 0;
	statement = statement_take(connection, sink_sql, error);
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, name);
	if (statement_step(connection, statement, error) > 0) {
		*position = column_number(statement, 0);
		statement_end(statement);
	} else if (error->code == ERR_NONE) {
		error_set(error, ERR_NOT_FOUND, "nothing is known of the sink %s", name);
	}
	return error->code;
}
