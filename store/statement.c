/* Connections and prepared statements. Each connection belongs to one thread. Start at statement_take(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"

enum { FAIL_WHAT_MAX = 160 };

static void log_from_sqlite(void *arg, int rc, const char *message)
{
	(void)arg;
	/* For whoever looks for a cause: the error itself travels as a struct error and is logged where it stops. */
	log_debug(LOG_STORE, "sqlite code=%d %s", rc, message);
}

static void set_up(void)
{
	/* Connections are never shared between threads at one time, so SQLite's own locks on them are not needed; and counting
	 * memory would take a global lock on each allocation, for which reason the caches are bounded one by one instead. */
	CHECK(sqlite3_config(SQLITE_CONFIG_MULTITHREAD) == SQLITE_OK);
	CHECK(sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) == SQLITE_OK);
	CHECK(sqlite3_config(SQLITE_CONFIG_LOG, log_from_sqlite, NULL) == SQLITE_OK);
	CHECK(sqlite3_initialize() == SQLITE_OK);
}

void connection_set_up_library(void)
{
	static uv_once_t once = UV_ONCE_INIT;

	uv_once(&once, set_up);
}

/* Is that all that a write to the database or to its log was refused for? *system: the system's own reason, 0 where it is not known.
 * sqlite3_system_errno() is 0 by now: SQLite has made other calls since. */
static bool lacks_room(struct connection *connection, int *system)
{
	int reasons[2] = {0}; /* of the last write that failed, of each file */
	sqlite3_file *log = NULL;
	bool only_room = true;

	if (connection->db == NULL)
		return false;
	sqlite3_file_control(connection->db, "main", SQLITE_FCNTL_LAST_ERRNO, &reasons[0]);
	if (sqlite3_file_control(connection->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, (void *)&log) == SQLITE_OK && log != NULL && log->pMethods != NULL)
		log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &reasons[1]);
	for (size_t i = 0; i < COUNT_OF(reasons); i++)
		if (reasons[i] != 0) {
			*system = reasons[i];
			only_room = only_room && (reasons[i] == EDQUOT || reasons[i] == EFBIG);
		}
	return *system != 0 && only_room;
}

int connection_fail(struct connection *connection, int rc, const char *what, struct error *error)
{
	int extended = connection->db != NULL ? sqlite3_extended_errcode(connection->db) : rc;
	const char *message = connection->db != NULL ? sqlite3_errmsg(connection->db) : sqlite3_errstr(rc);
	enum error_code code = ERR_IO;
	int system = 0;

	if ((extended & 0xff) != (rc & 0xff))
		extended = rc;
	switch (rc & 0xff) {
	case SQLITE_FULL:
		code = ERR_FULL;
		break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		code = ERR_BUSY;
		break;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		code = ERR_CORRUPT;
		break;
	case SQLITE_CONSTRAINT:
	case SQLITE_MISUSE:
	case SQLITE_RANGE:
	case SQLITE_ERROR:
	case SQLITE_MISMATCH:
		code = ERR_INTERNAL;
		break;
	case SQLITE_IOERR:
		/* The index of the WAL could not grow: nothing of the transaction is written yet, the disk is full. And so it is for a write
		 * past a quota or the largest file that is allowed, which SQLite does not count among the full disks. */
		if (extended == SQLITE_IOERR_SHMSIZE) {
			code = ERR_FULL;
			message = "no room on the disk for the index of the write-ahead log";
		} else if (extended == SQLITE_IOERR_WRITE && lacks_room(connection, &system)) {
			code = ERR_FULL;
		}
		break;
	default:
		break;
	}
	/* A long statement must not leave the reason without room. */
	if (system != 0)
		return error_set(error, code, "%.*s: %s: %s (SQLite %d)", FAIL_WHAT_MAX, what, message, strerror(system), extended);
	return error_set(error, code, "%.*s: %s (SQLite %d)", FAIL_WHAT_MAX, what, message, extended);
}

/* After some errors (of reading too) SQLite has rolled all back by itself. Where somebody passed over such an error, what comes behind it would
 * be written alone, each statement for itself: instead the transaction fails as a whole. */
static bool lost_transaction(struct connection *connection, struct error *error)
{
	if (!connection->in_transaction || !sqlite3_get_autocommit(connection->db))
		return false;
	error_set(error, ERR_IO, "an error before this has ended the transaction: nothing of it is written");
	return true;
}

int connection_exec(struct connection *connection, const char *sql, struct error *error)
{
	if (lost_transaction(connection, error))
		return error->code;
	int rc = sqlite3_exec(connection->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : connection_fail(connection, rc, sql, error);
}

void connection_print_uri(const char *path, const char *query, struct buffer *uri)
{
	buffer_add_text(uri, "file:");
	for (; *path != '\0'; path++) {
		if (strchr("?#%", *path) != NULL)
			buffer_printf(uri, "%%%02x", (unsigned char)*path);
		else
			buffer_add_char(uri, *path);
	}
	buffer_printf(uri, "?%s", query);
}

int connection_open(struct connection *connection, const char *path, int flags, struct error *error)
{
	return connection_open_on(connection, NULL, path, flags, error);
}

int connection_open_on(struct connection *connection, const char *layer, const char *path, int flags, struct error *error)
{
	char cache[64];
	int rc;

	memset(connection, 0, sizeof(*connection));
	rc = sqlite3_open_v2(path, &connection->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, layer);
	if (rc != SQLITE_OK)
		goto fail;
	sqlite3_busy_timeout(connection->db, STORE_BUSY_MS);
	/* Nothing in our schema needs what hostile SQL in a damaged file could bring along. */
	sqlite3_db_config(connection->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_snprintf(sizeof(cache), cache, "PRAGMA cache_size=-%d", STORE_CACHE_KIB);
	if (connection_exec(connection, cache, error) != 0) {
		bool is_foreign = sqlite3_errcode(connection->db) == SQLITE_NOTADB;
		connection_close(connection);
		if (is_foreign)
			return error_set(error, ERR_CORRUPT, "%s is no database, or damaged in its first bytes: a backup can take its place (reprise journal restore)", path);
		return error_wrap(error, "open %s", path);
	}
	return 0;
fail:
	connection_fail(connection, rc, "open", error);
	connection_close(connection);
	return error_wrap(error, "open %s", path);
}

void connection_close(struct connection *connection)
{
	for (unsigned i = 0; i < connection->cached_count; i++)
		sqlite3_finalize(connection->cached[i].statement);
	connection->cached_count = 0;
	CHECK(sqlite3_close(connection->db) == SQLITE_OK); /* Busy would mean a statement that was never ended. */
	connection->db = NULL;
}

int connection_run(struct connection *connection, const char *sql, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, sql, error);

	return statement == NULL ? (int)error->code : statement_run(connection, statement, error);
}

int connection_number(struct connection *connection, const char *sql, int64_t *number, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, sql, error);
	int step;

	*number = 0;
	if (statement == NULL)
		return error->code;
	step = statement_step(connection, statement, error);
	if (step < 0)
		return error->code;
	if (step > 0) {
		*number = sqlite3_column_int64(statement, 0);
		statement_end(statement);
	}
	return 0;
}

int connection_text_is(struct connection *connection, const char *sql, const char *text, struct error *error)
{
	sqlite3_stmt *statement = statement_make(connection, sql, error);
	const char *found = "";

	if (statement == NULL)
		return error->code;
	if (statement_step(connection, statement, error) > 0)
		found = (const char *)sqlite3_column_text(statement, 0);
	if (error->code == ERR_NONE && (found == NULL || strcmp(found, text) != 0))
		error_set(error, ERR_UNSUPPORTED, "%s is \"%s\", not \"%s\"", sql, found ? found : "", text);
	sqlite3_finalize(statement);
	return error->code;
}

sqlite3_stmt *statement_take(struct connection *connection, const char *sql, struct error *error)
{
	sqlite3_stmt *statement;
	int rc;

	for (unsigned i = 0; i < connection->cached_count; i++)
		if (connection->cached[i].sql == sql)
			return connection->cached[i].statement;
	CHECK(connection->cached_count < STORE_STATEMENTS_MAX);
	rc = sqlite3_prepare_v3(connection->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL);
	if (rc != SQLITE_OK) {
		connection_fail(connection, rc, sql, error);
		return NULL;
	}
	connection->cached[connection->cached_count].sql = sql;
	connection->cached[connection->cached_count++].statement = statement;
	return statement;
}

sqlite3_stmt *statement_make(struct connection *connection, const char *sql, struct error *error)
{
	sqlite3_stmt *statement;
	int rc = sqlite3_prepare_v2(connection->db, sql, -1, &statement, NULL);

	if (rc == SQLITE_OK)
		return statement;
	connection_fail(connection, rc, sql, error);
	return NULL;
}

static const char begin_sql[] = "BEGIN IMMEDIATE";
static const char commit_sql[] = "COMMIT";
static const char roll_back_sql[] = "ROLLBACK";

int connection_begin(struct connection *connection, struct error *error)
{
	CHECK(!connection->in_transaction);
	connection->in_transaction = connection_run(connection, begin_sql, error) == 0;
	return connection->in_transaction ? 0 : (int)error->code;
}

int connection_commit(struct connection *connection, struct error *error)
{
	if (connection_run(connection, commit_sql, error) != 0)
		return error->code;
	connection->in_transaction = false;
	return 0;
}

int connection_roll_back(struct connection *connection, struct error *error)
{
	connection->in_transaction = false;
	return sqlite3_get_autocommit(connection->db) ? 0 : connection_run(connection, roll_back_sql, error);
}

int statement_step(struct connection *connection, sqlite3_stmt *statement, struct error *error)
{
	int rc;

	if (lost_transaction(connection, error)) {
		statement_end(statement);
		return -1;
	}
	rc = sqlite3_step(statement);
	if (rc == SQLITE_ROW)
		return 1;
	if (rc != SQLITE_DONE)
		connection_fail(connection, rc, sqlite3_sql(statement), error);
	statement_end(statement);
	return rc == SQLITE_DONE ? 0 : -1;
}

int statement_run(struct connection *connection, sqlite3_stmt *statement, struct error *error)
{
	int step;

	while ((step = statement_step(connection, statement, error)) > 0)
		continue;
	return step == 0 ? 0 : (int)error->code;
}

void statement_end(sqlite3_stmt *statement)
{
	sqlite3_reset(statement);
	sqlite3_clear_bindings(statement);
}

sqlite3_stmt *statement_find_digest(struct connection *connection, const char *sql, const char *prefix, int column, const char *what, struct error *error)
{
	struct digest from, to, found, other;
	sqlite3_stmt *statement;
	bool several;
	int step;

	if (!digest_prefix_range(prefix, &from, &to)) {
		error_set(error, ERR_INVALID, "\"%.80s\" is no id of a %s: %d to %d lower-case hex digits", prefix, what, DIGEST_PREFIX_MIN, DIGEST_HEX_LEN);
		return NULL;
	}
	statement = statement_take(connection, sql, error);
	if (statement == NULL)
		return NULL;
	bind_digest(statement, 1, &from);
	bind_digest(statement, 2, &to);
	step = statement_step(connection, statement, error);
	if (step > 0 && column_digest(statement, column, &found)) {
		step = statement_step(connection, statement, error);
		several = step > 0 && (!column_digest(statement, column, &other) || !digest_equal(&found, &other));
		if (step > 0)
			statement_end(statement);
		if (several) {
			error_set(error, ERR_INVALID, "%.64s is the beginning of several %ss: give more digits", prefix, what);
			return NULL;
		}
		if (step < 0)
			return NULL;
		bind_digest(statement, 1, &found);
		bind_digest(statement, 2, &found);
		step = statement_step(connection, statement, error);
	}
	if (step == 0)
		error_set(error, ERR_NOT_FOUND, "there is no %s %.64s", what, prefix);
	return step > 0 ? statement : NULL;
}

void bind_number(sqlite3_stmt *statement, int index, uint64_t number)
{
	/* A negative number out of a damaged table comes back as one that no row has: it is not found, and nothing stops. */
	CHECK(sqlite3_bind_int64(statement, index, number <= INT64_MAX ? (sqlite3_int64)number : INT64_MAX) == SQLITE_OK);
}

void bind_named_number(sqlite3_stmt *statement, const char *name, uint64_t number)
{
	int index = sqlite3_bind_parameter_index(statement, name);

	if (index > 0)
		bind_number(statement, index, number);
}

void bind_named_text(sqlite3_stmt *statement, const char *name, const char *text)
{
	int index = sqlite3_bind_parameter_index(statement, name);

	if (index > 0)
		bind_text(statement, index, text);
}

void bind_time(sqlite3_stmt *statement, int index, int64_t time_ms)
{
	CHECK(sqlite3_bind_int64(statement, index, time_ms) == SQLITE_OK);
}

void bind_text(sqlite3_stmt *statement, int index, const char *text)
{
	CHECK(sqlite3_bind_text(statement, index, text, -1, SQLITE_STATIC) == SQLITE_OK);
}

void bind_bytes(sqlite3_stmt *statement, int index, struct bytes bytes)
{
	/* A NULL pointer would be bound as NULL and not as an empty value. */
	CHECK(sqlite3_bind_blob64(statement, index, bytes.len > 0 ? (const void *)bytes.data : "", bytes.len, SQLITE_STATIC) ==
	      SQLITE_OK);
}

void bind_digest(sqlite3_stmt *statement, int index, const struct digest *digest)
{
	CHECK(sqlite3_bind_blob(statement, index, digest->bytes, sizeof(digest->bytes), SQLITE_STATIC) == SQLITE_OK);
}

uint64_t column_number(sqlite3_stmt *statement, int index)
{
	return (uint64_t)sqlite3_column_int64(statement, index);
}

const char *column_text(sqlite3_stmt *statement, int index, struct arena *arena)
{
	const char *text = (const char *)sqlite3_column_text(statement, index);

	return arena_text_len(arena, text != NULL ? text : "", (size_t)sqlite3_column_bytes(statement, index));
}

struct bytes column_bytes(sqlite3_stmt *statement, int index)
{
	const void *data = sqlite3_column_blob(statement, index);

	return (struct bytes){data, data != NULL ? (size_t)sqlite3_column_bytes(statement, index) : 0};
}

bool column_digest(sqlite3_stmt *statement, int index, struct digest *digest)
{
	struct bytes bytes = column_bytes(statement, index);

	if (bytes.len != sizeof(digest->bytes))
		return false;
	memcpy(digest->bytes, bytes.data, bytes.len);
	return true;
}
