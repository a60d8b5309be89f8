/* store/migrate.c: every earlier schema becomes this one, whole or not at all; newer ones are refused. That journals which earlier programs
 * really wrote still open, verify and replay is for the journals kept in tests/journals/. */
#include <sys/wait.h>

#include "embedded.h"
#include "tests/unit/store/fixture.h"
#include "workflow/base/coverage.h"

static unsigned statements, kill_at; /* of one child */

/* Each statement of a migration begins here: a kill before it. */
static int on_statement(unsigned what, void *arg, void *statement, void *text)
{
	(void)what;
	(void)arg;
	(void)statement;
	(void)text;
	if (++statements == kill_at) {
		COVERAGE_KEEP();
		_exit(9);
	}
	return 0;
}

static void set_version(const char *path, int64_t version, int64_t application)
{
	struct connection connection;
	struct error error = {0};
	char sql[128];

	ck_assert_int_eq(connection_open(&connection, path, SQLITE_OPEN_READWRITE, &error), 0);
	snprintf(sql, sizeof(sql), "PRAGMA user_version=%lld; PRAGMA application_id=%lld", (long long)version, (long long)application);
	ck_assert_int_eq(connection_exec(&connection, sql, &error), 0);
	connection_close(&connection);
}

/* As the program of that version left an empty file. */
static void make_version(const char *path, unsigned version)
{
	static const char *const sql[] = {schema_0001_journal_sql, schema_0002_schedule_sql, schema_0003_event_sql, schema_0004_children_sql};
	struct connection connection;
	struct error error = {0};

	ck_assert_uint_le(version, COUNT_OF(sql));
	ck_assert_int_eq(connection_open(&connection, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &error), 0);
	ck_assert_int_eq(connection_exec(&connection, "PRAGMA journal_mode=WAL", &error), 0);
	for (unsigned i = 0; i < version; i++)
		ck_assert_msg(connection_exec(&connection, sql[i], &error) == 0, "%s", error.message);
	connection_close(&connection);
	set_version(path, version, STORE_APPLICATION_ID);
}

/* "version|number of objects|all their SQL", to compare. */
static char *describe(const char *path)
{
	static const char sql[] = "SELECT group_concat(type || ' ' || name || ' ' || coalesce(sql, ''), char(10)) FROM (SELECT * FROM sqlite_schema ORDER BY type, name)";
	struct connection connection;
	struct error error = {0};
	sqlite3_stmt *statement;
	int64_t version;
	char *text, *all;

	ck_assert_int_eq(connection_open(&connection, path, SQLITE_OPEN_READWRITE, &error), 0);
	ck_assert_int_eq(connection_number(&connection, "PRAGMA user_version", &version, &error), 0);
	statement = statement_take(&connection, sql, &error);
	ck_assert_ptr_nonnull(statement);
	ck_assert_int_eq(statement_step(&connection, statement, &error), 1);
	text = (char *)(uintptr_t)sqlite3_column_text(statement, 0);
	ck_assert_int_ge(asprintf(&all, "%lld|%s", (long long)version, text != NULL ? text : ""), 0);
	statement_end(statement);
	connection_close(&connection);
	return all;
}

/* In a process of its own. 0: migrated, 9: killed before the n-th statement. */
static int migrate_killed_at(const char *path, unsigned n, unsigned *count)
{
	int status, counts[2];
	pid_t child;

	ck_assert_int_eq(pipe(counts), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		struct connection connection;
		struct error error = {0};
		int code;

		kill_at = n;
		if (connection_open(&connection, path, SQLITE_OPEN_READWRITE, &error) != 0)
			_exit(3);
		sqlite3_trace_v2(connection.db, SQLITE_TRACE_STMT, on_statement, NULL);
		code = migrate_up(&connection, &error);
		if (write(counts[1], &statements, sizeof(statements)) != (ssize_t)sizeof(statements))
			_exit(4);
		COVERAGE_KEEP();
		_exit(code == 0 ? 0 : 5);
	}
	close(counts[1]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	if (WEXITSTATUS(status) == 0)
		ck_assert_int_eq(read(counts[0], count, sizeof(*count)), (ssize_t)sizeof(*count));
	close(counts[0]);
	return WEXITSTATUS(status);
}

/* Killed before each statement in turn, a migration from each earlier version leaves the old schema to the letter, and then succeeds. */
START_TEST(killed_anywhere)
{
	struct fixture f;
	char path[300], fresh[300], *expected;
	unsigned kills = 0, count = 0;

	fixture_init(&f);
	connection_set_up_library();
	snprintf(fresh, sizeof(fresh), "%s/fresh.db", f.folder);
	make_version(fresh, 1);
	ck_assert_int_eq(migrate_killed_at(fresh, 0, &count), 0);
	expected = describe(fresh);
	ck_assert_int_eq(strtoll(expected, NULL, 10), migrate_version());
	for (unsigned version = 1; version < migrate_version() && version <= 4; version++) {
		char *before, *after;
		unsigned n = 1;
		int end;

		snprintf(path, sizeof(path), "%s/from-%u.db", f.folder, version);
		make_version(path, version);
		before = describe(path);
		for (;; n++) {
			end = migrate_killed_at(path, n, &count);
			if (end == 0)
				break;
			ck_assert_int_eq(end, 9);
			after = describe(path);
			ck_assert_str_eq(after, before);
			free(after);
			kills++;
		}
		ck_assert_uint_gt(n, 4); /* BEGIN, at least one statement of the schema, the versions, COMMIT */
		after = describe(path);
		ck_assert_str_eq(after, expected);
		free(after);
		free(before);
	}
	free(expected);
	ck_assert_uint_ge(kills, 40);
	fixture_end(&f);
}
END_TEST

static void make_journal(struct fixture *f, char path[300])
{
	fixture_start(f);
	fixture_close(f);
	snprintf(path, 300, "%s/journal.db", f->folder);
}

/* A newer journal is refused with its version, ours, and what to do; the file stays to the byte. */
START_TEST(newer_is_refused)
{
	struct fixture f;
	struct error error;
	struct store_reader *reader;
	char path[300], ours[32];

	make_journal(&f, path);
	set_version(path, 4711, STORE_APPLICATION_ID);
	snprintf(ours, sizeof(ours), "up to %u:", migrate_version());
	ck_assert_int_eq(store_open(&f.store, &f.loop, &f.options, &error), ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.message, "schema version 4711"));
	ck_assert_ptr_nonnull(strstr(error.message, ours));
	ck_assert_ptr_nonnull(strstr(error.message, "newer reprised"));
	ck_assert_int_eq(store_open_readonly(f.folder, &reader, &error), ERR_UNSUPPORTED);
	set_version(path, migrate_version(), STORE_APPLICATION_ID);
	fixture_open(&f);
	fixture_end(&f);
}
END_TEST

/* A copy is no journal: refused with the way to one; readers take it. */
START_TEST(copy_is_refused)
{
	struct fixture f;
	struct error error;
	struct store_reader *reader;
	char path[300];

	make_journal(&f, path);
	set_version(path, migrate_version(), STORE_COPY_ID);
	ck_assert_int_eq(store_open(&f.store, &f.loop, &f.options, &error), ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "journal restore"));
	ck_assert_int_eq(store_open_readonly(f.folder, &reader, &error), 0);
	store_reader_close(reader);
	set_version(path, migrate_version(), STORE_APPLICATION_ID);
	fixture_open(&f);
	fixture_end(&f);
}
END_TEST

/* A step that fails leaves the file as it was, and the message says so. */
START_TEST(failed_step_changes_nothing)
{
	struct fixture f;
	struct connection connection;
	struct error error = {0};
	char path[300], *before, *after;

	fixture_init(&f);
	connection_set_up_library();
	snprintf(path, sizeof(path), "%s/journal.db", f.folder);
	make_version(path, 4);
	ck_assert_int_eq(connection_open(&connection, path, SQLITE_OPEN_READWRITE, &error), 0);
	ck_assert_int_eq(connection_exec(&connection, "CREATE TABLE run_snapshot(in_the_way); CREATE TABLE snapshot(in_the_way)", &error), 0);
	connection_close(&connection);
	before = describe(path);
	ck_assert_int_ne(store_open(&f.store, &f.loop, &f.options, &error), 0);
	ck_assert_ptr_nonnull(strstr(error.message, "migrate to schema version 5 (the journal is as it was)"));
	after = describe(path);
	ck_assert_str_eq(after, before);
	free(before);
	free(after);
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-migrate", killed_anywhere, newer_is_refused, copy_is_refused, failed_step_changes_nothing)
