/* Runs, their labels, timers and stretches of the journal. Writing: the writer's connection, driven by tables.c; reading:
 * a reader. Start at run_table_apply() and reader_runs(). */
#include <string.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"

static const char find_sql[] = "SELECT seq FROM run WHERE id = ?1";
static const char find_status_sql[] = "SELECT seq, status FROM run WHERE id = ?1";
static const char insert_sql[] = "INSERT INTO run(seq, id, namespace, name, version, definition, request, status, created_ms, "
				 "parent, parent_step, awaited, forked_from) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
static const char insert_label_sql[] = "INSERT INTO run_label(key, value, run) VALUES(?1, ?2, ?3) ON CONFLICT DO NOTHING";
static const char update_sql[] = "UPDATE run SET status = ?2, ended_ms = ?3, killed = ?4, wake_ms = ?5, rested_ms = ?6, suspended = ?7, quarantined = ?8 "
				 "WHERE seq = ?1";
/* Open again. Nobody waits for it any more: what its parent made of its fault stands. */
static const char reopen_sql[] = "UPDATE run SET status = 'running', ended_ms = NULL, killed = 0, awaited = 0 WHERE seq = ?1";
static const char status_sql[] = "SELECT status FROM run WHERE id = ?1";
static const char insert_timer_sql[] =
	"INSERT INTO timer(run, timer, due_ms) VALUES(?1, ?2, ?3) ON CONFLICT DO UPDATE SET due_ms = excluded.due_ms";
static const char delete_timer_sql[] = "DELETE FROM timer WHERE run = ?1 AND timer = ?2";
static const char delete_timers_sql[] = "DELETE FROM timer WHERE run = ?1";
/* Stretches are as long as they can be, so that they follow from the entries alone, however these were batched. */
static const char extend_sql[] =
	"UPDATE run_entry SET count = count + ?3 WHERE run = ?1 AND seq_first = (SELECT max(seq_first) FROM run_entry "
	"WHERE run = ?1) AND seq_first + count = ?2";
static const char insert_entries_sql[] = "INSERT INTO run_entry(run, seq_first, count) VALUES(?1, ?2, ?3)";
static const char stretches_sql[] =
	"SELECT e.seq_first, e.count FROM run_entry e WHERE e.run = ?1 AND e.seq_first >= "
	"coalesce((SELECT max(seq_first) FROM run_entry WHERE run = ?1 AND seq_first <= ?2), 0) ORDER BY e.seq_first";
static const char entries_sql[] = "SELECT seq, bytes FROM entry WHERE seq >= ?1 AND seq < ?2 ORDER BY seq LIMIT ?3";

/* status NULL: only the row's number, which the index has. */
static int find(struct connection *connection, const char *id, uint64_t *run, enum run_status *status, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, status != NULL ? find_status_sql : find_sql, error);
	int step;

	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, id);
	step = statement_step(connection, statement, error);
	if (step < 0)
		return error->code;
	if (step == 0)
		return error_set(error, ERR_NOT_FOUND, "there is no run %.64s", id);
	*run = column_number(statement, 0);
	bool known = status == NULL || run_status_parse((const char *)sqlite3_column_text(statement, 1), status);
	statement_end(statement);
	return known ? 0 : error_set(error, ERR_CORRUPT, "run %.64s has a status that does not exist", id);
}

int run_table_find(struct connection *connection, const char *id, uint64_t *run, struct error *error)
{
	return find(connection, id, run, NULL, error);
}

int run_table_find_status(struct connection *connection, const char *id, uint64_t *run, enum run_status *status, struct error *error)
{
	return find(connection, id, run, status, error);
}

static const char purged_sql[] = "SELECT 1 FROM run_tombstone WHERE id = ?1";

int run_table_is_purged(struct connection *connection, const char *id, bool *purged, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, purged_sql, error);
	int step;

	*purged = false;
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, id);
	step = statement_step(connection, statement, error);
	*purged = step > 0;
	if (*purged)
		statement_end(statement);
	return step < 0 ? (int)error->code : 0;
}

static int insert_labels(struct connection *connection, uint64_t run, const struct entry *entry, struct error *error)
{
	struct digest digest;
	struct arena arena;
	struct json *labels = NULL;

	if (!json_get_digest(entry->data, "labels", &digest))
		return 0;
	arena_init(&arena);
	for (size_t i = 0; i < entry->value_count && labels == NULL; i++)
		if (digest_equal(&entry->values[i].digest, &digest) && entry->values[i].bytes.data != NULL)
			labels = json_parse(&arena, entry->values[i].bytes, JSON_STORED, NULL, NULL);
	for (size_t i = 0; json_is(labels, JSON_OBJECT) && i < json_count(labels) && error->code == ERR_NONE; i++) {
		const struct json_member *member = &labels->object.members[i];
		sqlite3_stmt *statement;

		if (!json_is(member->value, JSON_STRING))
			continue;
		statement = statement_take(connection, insert_label_sql, error);
		if (statement == NULL)
			break;
		bind_text(statement, 1, member->name);
		bind_text(statement, 2, member->value->string.text);
		bind_number(statement, 3, run);
		statement_run(connection, statement, error);
	}
	arena_close(&arena);
	return error->code;
}

static int insert_run(struct connection *connection, const struct entry *entry, struct error *error)
{
	const struct json *workflow = json_get(entry->data, "workflow"), *parent = json_get(entry->data, "parent");
	struct digest definition = {0}, request = {0};
	sqlite3_stmt *statement = statement_take(connection, insert_sql, error);

	if (statement == NULL)
		return error->code;
	json_get_digest(entry->data, "definition", &definition);
	json_get_digest(entry->data, "request", &request);
	bind_number(statement, 1, entry->seq);
	bind_text(statement, 2, json_get_text(entry->data, "runId"));
	bind_text(statement, 3, text_or_empty(workflow, "namespace"));
	bind_text(statement, 4, text_or_empty(workflow, "name"));
	bind_text(statement, 5, text_or_empty(workflow, "version"));
	bind_digest(statement, 6, &definition);
	bind_digest(statement, 7, &request);
	bind_text(statement, 8, "running");
	bind_time(statement, 9, entry->time_ms);
	if (parent != NULL) {
		bind_text(statement, 10, text_or_empty(parent, "run"));
		bind_text(statement, 11, text_or_empty(parent, "step"));
	}
	bind_number(statement, 12, json_get_boolean(parent, "awaited", false));
	if (json_get(entry->data, "forkedFrom") != NULL)
		bind_text(statement, 13, text_or_empty(json_get(entry->data, "forkedFrom"), "run"));
	if (statement_run(connection, statement, error) != 0)
		return error->code;
	return insert_labels(connection, entry->seq, entry, error);
}

/* ended_ms 0: it goes on. said: the entry with which it began to wait for nothing but times, or that suspended it; or NULL. */
static int set_status(struct connection *connection, uint64_t run, const char *status, int64_t ended_ms, bool killed, const struct entry *said,
		      struct error *error)
{
	int64_t wake_ms = 0;
	sqlite3_stmt *statement = statement_take(connection, update_sql, error);

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, run);
	bind_text(statement, 2, status);
	if (ended_ms != 0)
		bind_time(statement, 3, ended_ms);
	bind_number(statement, 4, killed);
	if (said != NULL && time_parse(text_or_empty(said->data, "wakes"), &wake_ms)) {
		bind_time(statement, 5, wake_ms);
		bind_time(statement, 6, said->time_ms);
	}
	bool is_suspended = said != NULL && said->kind == ENTRY_RUN_SUSPENDED;
	if (is_suspended)
		bind_number(statement, 7, said->seq);
	bind_number(statement, 8, is_suspended && json_get_boolean(said->data, "quarantined", false));
	if (statement_run(connection, statement, error) != 0 || ended_ms == 0)
		return error->code;
	/* Timers go in the same transaction: nothing wakes a run that has ended (C32). */
	statement = statement_take(connection, delete_timers_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, run);
	return statement_run(connection, statement, error);
}

static int reopen(struct connection *connection, uint64_t run, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, reopen_sql, error);

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, run);
	return statement_run(connection, statement, error);
}

int run_table_check_retry(struct connection *connection, const char *id, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, status_sql, error);
	struct arena arena;

	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, id);
	if (statement_step(connection, statement, error) <= 0)
		return error->code != ERR_NONE ? (int)error->code : error_set(error, ERR_NOT_FOUND, "there is no run %.64s", id);
	arena_init(&arena);
	const char *status = column_text(statement, 0, &arena);
	if (strcmp(status, "faulted") != 0)
		error_set(error, ERR_EXISTS, "run %.64s is %s; only a run that has faulted can be retried", id, status);
	arena_close(&arena);
	statement_end(statement);
	return error->code;
}

static int apply_timer(struct connection *connection, uint64_t run, const struct entry *entry, struct error *error)
{
	bool set = entry->kind == ENTRY_TIMER_SET;
	sqlite3_stmt *statement = statement_take(connection, set ? insert_timer_sql : delete_timer_sql, error);
	int64_t due_ms = 0;

	if (statement == NULL)
		return error->code;
	if (!time_parse(text_or_empty(entry->data, "due"), &due_ms))
		due_ms = (int64_t)json_get_number(entry->data, "due", 0);
	bind_number(statement, 1, run);
	bind_text(statement, 2, text_or_empty(entry->data, "timer"));
	if (set)
		bind_time(statement, 3, due_ms);
	return statement_run(connection, statement, error);
}

int run_table_apply(struct connection *connection, uint64_t run, const struct entry *entry, struct error *error)
{
	switch (entry->kind) {
	case ENTRY_RUN_CREATED:
		return insert_run(connection, entry, error);
	case ENTRY_RUN_COMPLETED:
		return set_status(connection, run, "completed", entry->time_ms, false, NULL, error);
	case ENTRY_RUN_FAULTED:
		return set_status(connection, run, "faulted", entry->time_ms, false, NULL, error);
	case ENTRY_RUN_CANCELLED:
		return set_status(connection, run, "cancelled", entry->time_ms, false, NULL, error);
	case ENTRY_RUN_KILLED:
		return set_status(connection, run, "cancelled", entry->time_ms, true, NULL, error);
	case ENTRY_RUN_RETRIED:
		return reopen(connection, run, error);
	case ENTRY_TIMER_SET:
	case ENTRY_TIMER_FIRED:
		return apply_timer(connection, run, entry, error);
	default:
		return 0;
	}
}

int run_table_set_status(struct connection *connection, uint64_t run, enum run_status status, const struct entry *said, struct error *error)
{
	return set_status(connection, run, run_status_name(status), 0, false, status == RUN_WAITING || status == RUN_SUSPENDED ? said : NULL, error);
}

int run_table_add_entries(struct connection *connection, uint64_t run, uint64_t seq_first, uint64_t count, struct error *error)
{
	const char *const ways[] = {extend_sql, insert_entries_sql};

	/* The run's first entry is named by its own seq: there is nothing to extend yet. */
	for (unsigned i = run == seq_first; i < COUNT_OF(ways); i++) {
		sqlite3_stmt *statement = statement_take(connection, ways[i], error);

		if (statement == NULL)
			return error->code;
		bind_number(statement, 1, run);
		bind_number(statement, 2, seq_first);
		bind_number(statement, 3, count);
		if (statement_run(connection, statement, error) != 0 || sqlite3_changes(connection->db) > 0)
			return error->code;
	}
	CHECK(false);
	return ERR_INTERNAL;
}

/* --- for readers -------------------------------------------------------------------------------------------------- */

/* The last entry follows from the stretches: a column for it would cost one more page in every commit. */
#define RUN_COLUMNS                                                                                                           \
	"r.seq, r.id, r.namespace, r.name, r.version, r.status, r.definition, r.request, r.created_ms, coalesce(r.ended_ms, " \
	"0), r.killed, r.parent, r.parent_step, r.awaited, coalesce(r.suspended, 0), r.quarantined,"                             \
	" coalesce(r.forked_from, ''), (SELECT e.seq_first + e.count - 1 FROM run_entry e WHERE e.run = r.seq ORDER BY e.seq_first DESC LIMIT 1)"

static const char get_sql[] = "SELECT " RUN_COLUMNS " FROM run r WHERE r.id = ?1";
static const char open_sql[] = "SELECT seq, id, coalesce(wake_ms, 0), coalesce(rested_ms, 0), parent, parent_step, awaited, quarantined FROM run "
			       "WHERE ended_ms IS NULL AND seq > ?1 ORDER BY seq LIMIT ?2";

static void read_run(sqlite3_stmt *statement, struct arena *arena, struct store_run *run)
{
	*run = (struct store_run){
		.seq = column_number(statement, 0),
		.id = column_text(statement, 1, arena),
		.namespace = column_text(statement, 2, arena),
		.name = column_text(statement, 3, arena),
		.version = column_text(statement, 4, arena),
		.status = column_text(statement, 5, arena),
		.created_ms = (int64_t)column_number(statement, 8),
		.ended_ms = (int64_t)column_number(statement, 9),
		.killed = column_number(statement, 10) != 0,
		.suspended_seq = column_number(statement, 14),
		.is_quarantined = column_number(statement, 15) != 0,
		.seq_last = column_number(statement, 17),
	};
	if (column_text(statement, 16, arena)[0] != '\0')
		run->forked_from = column_text(statement, 16, arena);
	column_digest(statement, 6, &run->definition);
	column_digest(statement, 7, &run->request);
	if (column_text(statement, 11, arena)[0] != '\0') {
		run->parent = column_text(statement, 11, arena);
		run->parent_step = column_text(statement, 12, arena);
		run->is_awaited = column_number(statement, 13) != 0;
	}
}

int reader_run(struct store_reader *reader, struct arena *arena, const char *id, struct store_run *run, struct error *error)
{
	ERROR_BEGIN(error);
	sqlite3_stmt *statement = statement_take(&reader->connection, get_sql, error);
	int step;

	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, id);
	step = statement_step(&reader->connection, statement, error);
	if (step < 0)
		return error->code;
	if (step == 0) {
		error_set(error, ERR_NOT_FOUND, "there is no run %.64s", id);
		return retention_table_explain_run(&reader->connection, id, error);
	}
	read_run(statement, arena, run);
	statement_end(statement);
	return 0;
}

/* All rows of a statement, at most `limit`. The statement is ended. */
static int read_runs(struct store_reader *reader, sqlite3_stmt *statement, struct arena *arena, size_t limit,
		     struct store_run **runs, size_t *count, struct error *error)
{
	size_t cap = 0;
	int step;

	*runs = NULL;
	*count = 0;
	while ((step = statement_step(&reader->connection, statement, error)) > 0) {
		if (*count == limit) {
			statement_end(statement);
			return 0;
		}
		*runs = arena_grow(arena, *runs, *count, &cap, sizeof(**runs));
		read_run(statement, arena, &(*runs)[(*count)++]);
	}
	return step == 0 ? 0 : (int)error->code;
}

static size_t page_limit(size_t limit)
{
	return limit == 0 ? 100 : limit > STORE_PAGE_MAX ? STORE_PAGE_MAX : limit;
}

int reader_open_runs(struct store_reader *reader, struct arena *arena, uint64_t after_seq, size_t limit, struct store_open_run **runs,
		     size_t *count, struct error *error)
{
	ERROR_BEGIN(error);
	sqlite3_stmt *statement = statement_take(&reader->connection, open_sql, error);
	size_t cap = 0;

	*runs = NULL;
	*count = 0;
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, after_seq);
	bind_number(statement, 2, page_limit(limit));
	while (statement_step(&reader->connection, statement, error) > 0) {
		*runs = arena_grow(arena, *runs, *count, &cap, sizeof(**runs));
		(*runs)[(*count)++] = (struct store_open_run){
			.seq = column_number(statement, 0),
			.id = column_text(statement, 1, arena),
			.wake_ms = (int64_t)column_number(statement, 2),
			.rested_ms = (int64_t)column_number(statement, 3),
			.parent = column_text(statement, 4, arena),
			.parent_step = column_text(statement, 5, arena),
			.is_awaited = column_number(statement, 6) != 0,
			.is_quarantined = column_number(statement, 7) != 0,
		};
	}
	return error->code;
}

/* Partial indexes are used only where their condition stands in the query as a constant, so the words of a status that
 * have one are written out. */
static const char *status_condition(const char *status)
{
	static const char *const rare[][2] = {
		{"faulted", " AND r.status = 'faulted'"},
		{"cancelled", " AND r.status = 'cancelled'"},
		{"suspended", " AND r.status = 'suspended'"},
	};

	for (size_t i = 0; i < COUNT_OF(rare); i++)
		if (strcmp(status, rare[i][0]) == 0)
			return rare[i][1];
	if (strcmp(status, "completed") == 0)
		return " AND r.status = :status";
	return " AND r.status = :status AND r.ended_ms IS NULL";
}

static sqlite3_stmt *make_query(struct store_reader *reader, const struct store_run_filter *filter, const char *columns,
				const char *tail, struct error *error)
{
	struct buffer sql;
	sqlite3_stmt *statement;

	buffer_init(&sql, 8192);
	buffer_printf(&sql, "SELECT %s FROM ", columns);
	if (filter->label_key != NULL)
		buffer_printf(&sql, "run_label l CROSS JOIN run r ON r.seq = l.run WHERE l.key = :key%s",
			      filter->label_value ? " AND l.value = :value" : "");
	else
		buffer_add_text(&sql, "run r WHERE 1");
	if (filter->status != NULL)
		buffer_add_text(&sql, status_condition(filter->status));
	if (filter->is_open)
		buffer_add_text(&sql, " AND r.ended_ms IS NULL");
	if (filter->namespace != NULL)
		buffer_add_text(&sql, " AND r.namespace = :namespace");
	if (filter->name != NULL)
		buffer_add_text(&sql, " AND r.name = :name");
	if (filter->version != NULL)
		buffer_add_text(&sql, " AND r.version = :version");
	if (filter->parent != NULL)
		buffer_add_text(&sql, " AND r.parent = :parent");
	if (filter->forked_from != NULL)
		buffer_add_text(&sql, " AND r.forked_from = :forked");
	if (filter->since_ms > 0)
		buffer_add_text(&sql, " AND r.created_ms >= :since");
	if (filter->until_ms > 0)
		buffer_add_text(&sql, " AND r.created_ms < :until");
	if (filter->before_seq > 0)
		buffer_add_text(&sql, filter->label_key != NULL ? " AND l.run < :before" : " AND r.seq < :before");
	buffer_add_text(&sql, tail);
	CHECK(!sql.overflow);
	statement = statement_make(&reader->connection, buffer_text(&sql), error);
	buffer_close(&sql);
	if (statement == NULL)
		return NULL;
	bind_named_text(statement, ":status", filter->status);
	bind_named_text(statement, ":namespace", filter->namespace);
	bind_named_text(statement, ":name", filter->name);
	bind_named_text(statement, ":version", filter->version);
	bind_named_text(statement, ":parent", filter->parent);
	bind_named_text(statement, ":forked", filter->forked_from);
	bind_named_text(statement, ":key", filter->label_key);
	bind_named_text(statement, ":value", filter->label_value);
	bind_named_number(statement, ":since", (uint64_t)filter->since_ms);
	bind_named_number(statement, ":until", (uint64_t)filter->until_ms);
	bind_named_number(statement, ":before", filter->before_seq);
	return statement;
}

int reader_runs(struct store_reader *reader, struct arena *arena, const struct store_run_filter *filter, struct store_run **runs,
		size_t *count, struct error *error)
{
	ERROR_BEGIN(error);
	sqlite3_stmt *statement = make_query(reader, filter, RUN_COLUMNS, " ORDER BY r.seq DESC", error);

	*runs = NULL;
	*count = 0;
	if (statement == NULL)
		return error->code;
	read_runs(reader, statement, arena, page_limit(filter->limit), runs, count, error);
	sqlite3_finalize(statement);
	return error->code;
}

int reader_run_count(struct store_reader *reader, const struct store_run_filter *filter, uint64_t *count, struct error *error)
{
	ERROR_BEGIN(error);
	sqlite3_stmt *statement = make_query(reader, filter, "count(*)", "", error);

	*count = 0;
	if (statement == NULL)
		return error->code;
	if (statement_step(&reader->connection, statement, error) > 0)
		*count = column_number(statement, 0);
	sqlite3_finalize(statement);
	return error->code;
}

/* One stretch of the journal: seq first … end - 1, at most `limit` of them. */
static int read_stretch(struct store_reader *reader, struct arena *arena, uint64_t first, uint64_t end, size_t limit,
			uint64_t value_max, struct entry *entries, size_t *count, struct error *error)
{
	struct connection *connection = &reader->connection;
	sqlite3_stmt *statement = statement_take(connection, entries_sql, error);
	size_t found = 0;
	int step;

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, first);
	bind_number(statement, 2, end);
	bind_number(statement, 3, limit);
	while ((step = statement_step(connection, statement, error)) > 0) {
		uint64_t seq = column_number(statement, 0);

		if (entry_table_decode(arena, seq, column_bytes(statement, 1), reader->origin, &entries[found], error) == 0 && found > 0 && entries[found - 1].seq + 1 != seq)
			error_set(error, ERR_CORRUPT, "journal-seq: entries before %llu are missing", (unsigned long long)seq);
		if (error->code != ERR_NONE) {
			statement_end(statement);
			return error->code;
		}
		found++;
	}
	if (step < 0)
		return error->code;
	*count += found;
	return content_table_fill(connection, arena, entries, found, value_max, error);
}

int reader_run_entries(struct store_reader *reader, struct arena *arena, const char *run_id, uint64_t after_seq, size_t limit,
		       uint64_t value_max, struct entry **entries, size_t *count, struct error *error)
{
	ERROR_BEGIN(error);
	struct connection *connection = &reader->connection;
	sqlite3_stmt *statement;
	size_t cap = 0;
	uint64_t run;
	int step;

	*entries = NULL;
	*count = 0;
	if (run_table_find(connection, run_id, &run, error) != 0)
		return retention_table_explain_run(connection, run_id, error);
	limit = page_limit(limit);
	statement = statement_take(connection, stretches_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, run);
	bind_number(statement, 2, after_seq);
	while (*count < limit) {
		uint64_t first, end, want;

		step = statement_step(connection, statement, error);
		if (step <= 0)
			return step == 0 ? 0 : (int)error->code;
		first = column_number(statement, 0);
		end = first + column_number(statement, 1);
		if (first <= after_seq)
			first = after_seq + 1;
		if (first >= end)
			continue;
		want = end - first < limit - *count ? end - first : limit - *count;
		if (*count + want > cap) {
			size_t grown = *count + want > cap * 2 ? *count + want : cap * 2;
			struct entry *more = arena_alloc(arena, grown * sizeof(*more));

			if (*count > 0)
				memcpy(more, *entries, *count * sizeof(*more));
			*entries = more;
			cap = grown;
		}
		if (read_stretch(reader, arena, first, end, want, value_max, *entries + *count, count, error) != 0) {
			statement_end(statement);
			return error_wrap(error, "run %.64s", run_id);
		}
	}
	statement_end(statement);
	return 0;
}
