/* The reader thread: one read-only connection, each piece of work inside a short snapshot of its own, so that no read
 * keeps the write-ahead log from starting over (C7). Start at reader_run_thread(); what can be asked is in the table files.
 * Also the read-only opening without a daemon. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/internal.h"
#include "workflow/base/check.h"

static const char begin_sql[] = "BEGIN";
static const char end_sql[] = "COMMIT";
static const char abandon_sql[] = "ROLLBACK"; /* a snapshot that cannot be ended would keep all later reads from beginning */

static int load_origin(struct store_reader *reader, struct error *error)
{
	struct arena arena;
	const char *origin, *vkey;

	arena_init(&arena);
	if (entry_table_origin(&reader->connection, &arena, &origin, &vkey, error) == 0) {
		reader->origin = memory_text(origin);
		reader->vkey = memory_text(vkey);
	}
	arena_close(&arena);
	return error->code;
}

int reader_open_connection(struct store_reader *reader, const char *path, int flags, struct error *error)
{
	memset(reader, 0, sizeof(*reader));
	if (connection_open(&reader->connection, path, SQLITE_OPEN_READONLY | flags, error) != 0)
		return error->code;
	if (connection_exec(&reader->connection, "PRAGMA query_only=1", error) != 0 ||
	    migrate_check(&reader->connection, error) != 0 || load_origin(reader, error) != 0)
		reader_close_connection(reader);
	return error->code;
}

void reader_close_connection(struct store_reader *reader)
{
	connection_close(&reader->connection);
	free(reader->origin);
	free(reader->vkey);
	reader->origin = reader->vkey = NULL;
}

void reader_work(struct store_reader *reader, struct store_read *read)
{
	struct error error = {0};

	read->error = (struct error){0};
	if (connection_run(&reader->connection, begin_sql, &read->error) != 0)
		return;
	read->work(reader, read);
	if (sqlite3_get_autocommit(reader->connection.db) || connection_run(&reader->connection, end_sql, &error) == 0)
		return;
	if (read->error.code == ERR_NONE)
		read->error = error;
	if (!sqlite3_get_autocommit(reader->connection.db))
		connection_run(&reader->connection, abandon_sql, &error);
}

bool reader_turn(struct store *store)
{
	struct list *first = NULL;

	uv_mutex_lock(&store->lock);
	while (list_empty(&store->read_queue) && !store->stop_reading && !store->by_hand)
		uv_cond_wait(&store->read_work, &store->lock);
	if (!list_empty(&store->read_queue)) {
		first = store->read_queue.next;
		list_remove(first);
	}
	uv_mutex_unlock(&store->lock);
	if (first == NULL)
		return false;
	reader_work(&store->reader, CONTAINER_OF(first, struct store_read, link));
	uv_mutex_lock(&store->lock);
	list_add_last(&store->done_reads, first);
	uv_mutex_unlock(&store->lock);
	store_wake_loop(store);
	return true;
}

void reader_run_thread(void *arg)
{
	prctl(PR_SET_NAME, "store-reader");
	while (reader_turn(arg))
		continue;
}

/* --- without a daemon ---------------------------------------------------------------------------------------------- */

static bool wal_is_empty(const char *path)
{
	char wal[STORE_PATH_MAX + 8];
	struct stat status;

	snprintf(wal, sizeof(wal), "%s-wal", path);
	return stat(wal, &status) != 0 || status.st_size == 0;
}

int store_open_readonly(const char *data_dir, struct store_reader **reader, struct error *error)
{
	struct store_reader *opened = memory_zero(sizeof(*opened));
	char path[STORE_PATH_MAX];

	ERROR_BEGIN(error);
	*reader = NULL;
	connection_set_up_library();
	snprintf(path, sizeof(path), "%s/journal.db", data_dir);
	if (access(path, R_OK) != 0) {
		error_set(error, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
		goto fail;
	}
	if (reader_open_connection(opened, path, 0, error) != 0 && access(data_dir, W_OK) != 0 && wal_is_empty(path)) {
		/* A folder that cannot be written cannot get the shared index of the WAL; without a WAL none is needed. */
		struct buffer uri;

		*error = (struct error){0};
		buffer_init(&uri, 4 * STORE_PATH_MAX);
		connection_print_uri(path, "immutable=1", &uri);
		reader_open_connection(opened, buffer_text(&uri), SQLITE_OPEN_URI, error);
		buffer_close(&uri);
	}
	if (error->code != ERR_NONE)
		goto fail;
	if (connection_run(&opened->connection, begin_sql, error) != 0) {
		reader_close_connection(opened);
		goto fail;
	}
	*reader = opened;
	return 0;
fail:
	free(opened);
	return error_wrap(error, "open the journal in %s", data_dir);
}

void store_reader_close(struct store_reader *reader)
{
	struct error ignored = {0};

	if (!sqlite3_get_autocommit(reader->connection.db))
		connection_run(&reader->connection, end_sql, &ignored);
	reader_close_connection(reader);
	free(reader);
}

const char *store_reader_origin(const struct store_reader *reader)
{
	return reader->origin;
}

int store_reader_log_key(const struct store_reader *reader, struct note_key *key, struct error *error)
{
	return note_key_parse(key, reader->vkey, error);
}

/* --- figures ------------------------------------------------------------------------------------------------------- */

static const char runs_sql[] = "SELECT count(*) FROM run";
static const char open_runs_sql[] = "SELECT count(*) FROM run WHERE ended_ms IS NULL";
static const char facts_sql[] = "SELECT count(*) FROM fact";
static const char checkpoints_sql[] = "SELECT count(*) FROM checkpoint";
static const char tiles_sql[] = "SELECT count(*) FROM journal_prune";
static const char page_count_sql[] = "PRAGMA page_count";
static const char page_size_sql[] = "PRAGMA page_size";
static const char free_pages_sql[] = "PRAGMA freelist_count";

int reader_stats(struct store_reader *reader, struct store_stats *stats, struct error *error)
{
	int64_t pages, page_size, free_pages;
	struct stat status;
	const struct {
		const char *sql;
		uint64_t *into;
	} counts[] = {
		{runs_sql, &stats->runs},	   {open_runs_sql, &stats->open_runs},
		{facts_sql, &stats->facts},	   {checkpoints_sql, &stats->checkpoints},
		{tiles_sql, &stats->pruned_tiles},
	};

	ERROR_BEGIN(error);
	memset(stats, 0, sizeof(*stats));
	if (entry_table_size(&reader->connection, &stats->entries, error) != 0)
		return error->code;
	for (size_t i = 0; i < COUNT_OF(counts); i++) {
		int64_t number;

		if (connection_number(&reader->connection, counts[i].sql, &number, error) != 0)
			return error->code;
		*counts[i].into = (uint64_t)number;
	}
	if (retention_table_stats(&reader->connection, stats, error) != 0)
		return error->code;
	if (connection_number(&reader->connection, page_count_sql, &pages, error) != 0 ||
	    connection_number(&reader->connection, page_size_sql, &page_size, error) != 0 ||
	    connection_number(&reader->connection, free_pages_sql, &free_pages, error) != 0)
		return error->code;
	stats->database_bytes = (uint64_t)(pages * page_size);
	stats->free_bytes = (uint64_t)(free_pages * page_size);
	if (stat(sqlite3_filename_wal(sqlite3_db_filename(reader->connection.db, "main")), &status) == 0)
		stats->wal_bytes = (uint64_t)status.st_size;
	return 0;
}

static const char statuses_sql[] = "SELECT status, count(*), 0 FROM run GROUP BY status ORDER BY status";
/* Rows stand in the leaves of a table's own tree; its indexes add to its bytes alone. */
static const char tables_sql[] =
	"SELECT t.tbl_name, sum(CASE WHEN t.type = 'table' AND d.pagetype = 'leaf' THEN d.ncell ELSE 0 END), sum(d.pgsize) "
	"FROM dbstat d JOIN sqlite_schema t ON t.name = d.name GROUP BY t.tbl_name ORDER BY t.tbl_name";

static int read_counts(struct store_reader *reader, struct arena *arena, const char *sql, struct store_count **counts, size_t *count, struct error *error)
{
	sqlite3_stmt *statement = statement_take(&reader->connection, sql, error);
	size_t cap = 0;

	*counts = NULL;
	*count = 0;
	if (statement == NULL)
		return error->code;
	while (statement_step(&reader->connection, statement, error) > 0) {
		*counts = arena_grow(arena, *counts, *count, &cap, sizeof(**counts));
		(*counts)[(*count)++] = (struct store_count){column_text(statement, 0, arena), column_number(statement, 1), column_number(statement, 2)};
	}
	return error->code;
}

static int read_kinds(struct store_reader *reader, struct arena *arena, struct store_details *details, struct error *error)
{
	uint64_t counts[ENTRY_KIND_COUNT] = {0}, bytes[ENTRY_KIND_COUNT] = {0};

	if (entry_table_count_kinds(&reader->connection, reader->origin, counts, bytes, error) != 0)
		return error->code;
	details->kinds = arena_alloc(arena, ENTRY_KIND_COUNT * sizeof(*details->kinds));
	for (enum entry_kind kind = 0; kind < ENTRY_KIND_COUNT; kind++)
		if (counts[kind] > 0)
			details->kinds[details->kind_count++] = (struct store_count){entry_kind_name(kind), counts[kind], bytes[kind]};
	return 0;
}

int reader_ended_runs(struct store_reader *reader, int64_t until_ms, uint64_t *count, int64_t *first_ms, struct error *error)
{
	static const char ended_sql[] = "SELECT count(*) FILTER (WHERE ended_ms <= ?1), coalesce(min(ended_ms), 0) FROM run WHERE ended_ms IS NOT NULL";
	sqlite3_stmt *statement;

	ERROR_BEGIN(error);
	statement = statement_take(&reader->connection, ended_sql, error);
	*count = 0;
	*first_ms = 0;
	if (statement == NULL)
		return error->code;
	bind_time(statement, 1, until_ms);
	if (statement_step(&reader->connection, statement, error) > 0) {
		*count = column_number(statement, 0);
		*first_ms = (int64_t)column_number(statement, 1);
		statement_end(statement);
	}
	return error->code;
}

int reader_details(struct store_reader *reader, struct arena *arena, struct store_details *details, struct error *error)
{
	int64_t version, pages, page_size;
	struct error no_dbstat = {0};

	ERROR_BEGIN(error);
	memset(details, 0, sizeof(*details));
	if (connection_number(&reader->connection, "PRAGMA user_version", &version, error) != 0 ||
	    connection_number(&reader->connection, page_count_sql, &pages, error) != 0 || connection_number(&reader->connection, page_size_sql, &page_size, error) != 0 ||
	    read_counts(reader, arena, statuses_sql, &details->statuses, &details->status_count, error) != 0)
		return error->code;
	details->schema = (unsigned)version;
	/* An SQLite that was built without that table leaves the list empty as well. */
	if (pages * page_size > STORE_STATS_SCAN_MAX)
		return 0;
	if (read_kinds(reader, arena, details, error) == 0)
		read_counts(reader, arena, tables_sql, &details->tables, &details->table_count, &no_dbstat);
	return error->code;
}
