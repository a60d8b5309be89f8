/* store/statement.c: connections, transactions that an error ends, and what SQLite's codes mean to us. */
#include "tests/unit/store/fixture.h"

struct database {
	char path[300];
	struct connection connection;
	struct error error;
};

static void database_open(struct database *d)
{
	const char *parent = getenv("TMPDIR");
	int file;

	memset(d, 0, sizeof(*d));
	connection_set_up_library();
	snprintf(d->path, sizeof(d->path), "%s/reprise-statement-XXXXXX", parent ? parent : "/tmp");
	file = mkstemp(d->path);
	ck_assert_int_ge(file, 0);
	close(file);
	ck_assert_int_eq(connection_open(&d->connection, d->path, SQLITE_OPEN_READWRITE, &d->error), 0);
	ck_assert_int_eq(connection_exec(&d->connection, "CREATE TABLE t(n INTEGER PRIMARY KEY, x TEXT NOT NULL UNIQUE) STRICT", &d->error), 0);
}

static void database_close(struct database *d)
{
	connection_close(&d->connection);
	unlink(d->path);
}

static int64_t count_rows(struct database *d)
{
	int64_t count;

	ck_assert_int_eq(connection_number(&d->connection, "SELECT count(*) FROM t", &count, &d->error), 0);
	return count;
}

/* What stands between begin and commit is there afterwards; what was rolled back is not, and nothing is begun any more. */
START_TEST(a_transaction_is_whole)
{
	struct database d;

	database_open(&d);
	ck_assert_int_eq(connection_begin(&d.connection, &d.error), 0);
	ck_assert_int_eq(connection_run(&d.connection, "INSERT INTO t VALUES(1, 'one')", &d.error), 0);
	ck_assert_int_eq(connection_commit(&d.connection, &d.error), 0);
	ck_assert_int_eq(connection_begin(&d.connection, &d.error), 0);
	ck_assert_int_eq(connection_run(&d.connection, "INSERT INTO t VALUES(2, 'two')", &d.error), 0);
	ck_assert_int_eq(connection_roll_back(&d.connection, &d.error), 0);
	ck_assert_int_eq(count_rows(&d), 1);
	ck_assert_int_eq(connection_roll_back(&d.connection, &d.error), 0); /* nothing is begun: nothing is done */
	ck_assert_int_eq(d.error.code, ERR_NONE);
	database_close(&d);
}
END_TEST

/* A transaction that SQLite has ended after an error takes nothing more: what follows is not written alone, the commit fails, and the next
 * transaction is as any other. */
START_TEST(an_ended_transaction_takes_nothing_more)
{
	static const char insert[] = "INSERT INTO t VALUES(2, 'two')";
	struct database d;
	int64_t number;

	database_open(&d);
	ck_assert_int_eq(connection_begin(&d.connection, &d.error), 0);
	ck_assert_int_eq(connection_run(&d.connection, "INSERT INTO t VALUES(1, 'one')", &d.error), 0);
	ck_assert_int_eq(sqlite3_exec(d.connection.db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK); /* as SQLite does after an I/O error */
	ck_assert_int_eq(connection_run(&d.connection, insert, &d.error), ERR_IO);
	ck_assert_ptr_nonnull(strstr(d.error.message, "has ended the transaction: nothing of it is written"));
	ck_assert_int_eq(connection_exec(&d.connection, "INSERT INTO t VALUES(3, 'three')", &d.error), ERR_IO);
	ck_assert_int_eq(connection_number(&d.connection, "SELECT 1", &number, &d.error), ERR_IO);
	ck_assert_int_eq(connection_commit(&d.connection, &d.error), ERR_IO);
	d.error = (struct error){0};
	ck_assert_int_eq(connection_roll_back(&d.connection, &d.error), 0);
	ck_assert_int_eq(count_rows(&d), 0);
	ck_assert_int_eq(connection_begin(&d.connection, &d.error), 0);
	ck_assert_int_eq(connection_run(&d.connection, insert, &d.error), 0);
	ck_assert_int_eq(connection_commit(&d.connection, &d.error), 0);
	ck_assert_int_eq(count_rows(&d), 1);
	database_close(&d);
}
END_TEST

/* Each of SQLite's codes is one of ours, with the statement, SQLite's words and its code. */
START_TEST(codes_are_translated)
{
	static const struct {
		int sqlite;
		enum error_code ours;
	} rows[] = {
		{SQLITE_FULL, ERR_FULL}, {SQLITE_BUSY, ERR_BUSY}, {SQLITE_LOCKED, ERR_BUSY}, {SQLITE_CORRUPT, ERR_CORRUPT}, {SQLITE_NOTADB, ERR_CORRUPT},
		{SQLITE_CONSTRAINT, ERR_INTERNAL}, {SQLITE_MISUSE, ERR_INTERNAL}, {SQLITE_RANGE, ERR_INTERNAL}, {SQLITE_ERROR, ERR_INTERNAL}, {SQLITE_MISMATCH, ERR_INTERNAL},
		{SQLITE_IOERR_SHMSIZE, ERR_FULL}, {SQLITE_IOERR_READ, ERR_IO}, {SQLITE_IOERR_WRITE, ERR_IO}, {SQLITE_NOMEM, ERR_IO}, {SQLITE_CANTOPEN, ERR_IO},
	};
	struct connection none = {0};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct error error = {0};
		char code[32];

		ck_assert_int_eq(connection_fail(&none, rows[i].sqlite, "a statement", &error), rows[i].ours);
		snprintf(code, sizeof(code), "(SQLite %d)", rows[i].sqlite);
		ck_assert_msg(strncmp(error.message, "a statement: ", 13) == 0 && strstr(error.message, code) != NULL, "%s", error.message);
	}
}
END_TEST

/* A constraint that does not hold is a fault of ours, with its extended code; the connection goes on. */
START_TEST(a_broken_constraint_is_ours)
{
	struct database d;

	database_open(&d);
	ck_assert_int_eq(connection_run(&d.connection, "INSERT INTO t VALUES(1, 'one')", &d.error), 0);
	ck_assert_int_eq(connection_run(&d.connection, "INSERT INTO t VALUES(2, 'one')", &d.error), ERR_INTERNAL);
	ck_assert_ptr_nonnull(strstr(d.error.message, "UNIQUE constraint failed: t.x (SQLite 2067)"));
	d.error = (struct error){0};
	ck_assert_int_eq(connection_exec(&d.connection, "INSERT INTO t VALUES(1, 'two')", &d.error), ERR_INTERNAL);
	ck_assert_ptr_nonnull(strstr(d.error.message, "(SQLite 1555)"));
	ck_assert_int_eq(count_rows(&d), 1);
	database_close(&d);
}
END_TEST

/* A statement that is none is told by each of the ways to run one, and nothing of it is kept. */
START_TEST(a_statement_that_is_none)
{
	struct database d;
	int64_t number = 7;

	database_open(&d);
	ck_assert_int_eq(connection_run(&d.connection, "SELECT * FROM nowhere", &d.error), ERR_INTERNAL);
	ck_assert_ptr_nonnull(strstr(d.error.message, "no such table: nowhere"));
	ck_assert_int_eq(connection_number(&d.connection, "SELECT x FROM", &number, &d.error), ERR_INTERNAL);
	ck_assert_int_eq(number, 0);
	ck_assert_int_eq(connection_text_is(&d.connection, "SELECT", "ok", &d.error), ERR_INTERNAL);
	ck_assert_ptr_null(statement_make(&d.connection, "SELECT", &d.error));
	ck_assert_uint_eq(d.connection.cached_count, 0);
	database_close(&d);
}
END_TEST

/* A number of no row is 0; a text is compared, where there is none as well. */
START_TEST(numbers_and_texts)
{
	struct database d;
	int64_t number = 7;

	database_open(&d);
	ck_assert_int_eq(connection_number(&d.connection, "SELECT n FROM t", &number, &d.error), 0);
	ck_assert_int_eq(number, 0);
	ck_assert_int_eq(connection_number(&d.connection, "SELECT 42", &number, &d.error), 0);
	ck_assert_int_eq(number, 42);
	ck_assert_int_eq(connection_text_is(&d.connection, "SELECT 'ok'", "ok", &d.error), 0);
	ck_assert_int_eq(connection_text_is(&d.connection, "SELECT 'no'", "ok", &d.error), ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(d.error.message, "is \"no\", not \"ok\""));
	d.error = (struct error){0};
	ck_assert_int_eq(connection_text_is(&d.connection, "SELECT NULL", "ok", &d.error), ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(d.error.message, "is \"\", not \"ok\""));
	d.error = (struct error){0};
	ck_assert_int_eq(connection_text_is(&d.connection, "SELECT x FROM t", "ok", &d.error), ERR_UNSUPPORTED);
	database_close(&d);
}
END_TEST

/* A file that is no database says so, one that is not there cannot be opened; a path with odd characters is printed for a URI. */
START_TEST(files_that_are_none)
{
	struct connection connection;
	struct error error = {0};
	struct database d;
	struct buffer uri;
	FILE *file;

	database_open(&d);
	connection_close(&d.connection);
	file = fopen(d.path, "we");
	for (int i = 0; i < 200; i++)
		fputs("no database at all ", file);
	fclose(file);
	ck_assert_int_eq(connection_open(&connection, d.path, SQLITE_OPEN_READWRITE, &error), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(error.message, "is no database, or damaged in its first bytes: a backup can take its place"));
	unlink(d.path);
	error = (struct error){0};
	ck_assert_int_eq(connection_open(&connection, d.path, SQLITE_OPEN_READONLY, &error), ERR_IO);
	ck_assert_msg(strncmp(error.message, "open /", 6) == 0, "%s", error.message);
	buffer_init(&uri, 256);
	connection_print_uri("/a?b#c%d", "mode=ro", &uri);
	ck_assert_mem_eq(uri.data, "file:/a%3fb%23c%25d?mode=ro", uri.len);
	buffer_close(&uri);
}
END_TEST

/* Past what SQLite can hold a number is one that no row has; parameters that a statement has not are passed over. */
START_TEST(odd_parameters)
{
	struct database d;
	sqlite3_stmt *statement;

	database_open(&d);
	statement = statement_take(&d.connection, "SELECT ?1, :name", &d.error);
	bind_number(statement, 1, UINT64_MAX);
	bind_named_number(statement, ":other", 5);
	bind_named_text(statement, ":other", "five");
	bind_named_text(statement, ":name", "six");
	ck_assert_int_eq(statement_step(&d.connection, statement, &d.error), 1);
	ck_assert_int_eq(sqlite3_column_int64(statement, 0), INT64_MAX);
	ck_assert_str_eq((const char *)sqlite3_column_text(statement, 1), "six");
	statement_end(statement);
	database_close(&d);
}
END_TEST

/* A column that is no digest is told from one; where there is nothing, nothing is read. */
START_TEST(odd_columns)
{
	struct digest digest, expected = digest_of(BYTES_OF("x"));
	struct database d;
	struct arena arena;
	sqlite3_stmt *statement;

	database_open(&d);
	arena_init(&arena);
	statement = statement_take(&d.connection, "SELECT ?1, x'00', NULL", &d.error);
	bind_digest(statement, 1, &expected);
	ck_assert_int_eq(statement_step(&d.connection, statement, &d.error), 1);
	ck_assert(column_digest(statement, 0, &digest));
	ck_assert(digest_equal(&digest, &expected));
	ck_assert(!column_digest(statement, 1, &digest));
	ck_assert_uint_eq(column_bytes(statement, 1).len, 1);
	ck_assert_uint_eq(column_bytes(statement, 2).len, 0);
	ck_assert_str_eq(column_text(statement, 2, &arena), "");
	statement_end(statement);
	arena_close(&arena);
	database_close(&d);
}
END_TEST

TEST_MAIN("store-statement", a_transaction_is_whole, an_ended_transaction_takes_nothing_more, codes_are_translated, a_broken_constraint_is_ours,
	  a_statement_that_is_none, numbers_and_texts, files_that_are_none, odd_parameters, odd_columns)
