/* The schema's versions: the files of schema/sql/ that a journal does not have yet, in one transaction, counted by PRAGMA user_version. On the opening
 * thread. Start at migrate_up(). A file is never changed after a release; new ones are added to the list below. */
#include <stdio.h>

#include "embedded.h"
#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"

static const char *const migrations[] = {
	schema_0001_journal_sql,
	schema_0002_schedule_sql,
	schema_0003_event_sql,
	schema_0004_children_sql,
	schema_0005_snapshot_sql,
	schema_0006_wake_sql,
	schema_0007_control_sql,
	schema_0008_retention_sql,
	schema_0009_gate_sql,
	schema_0010_fork_sql,
	schema_0011_spending_sql,
};

unsigned migrate_version(void)
{
	return COUNT_OF(migrations);
}

static int read_versions(struct connection *connection, int64_t *application, int64_t *version, int64_t *objects,
			 struct error *error)
{
	if (connection_number(connection, "PRAGMA application_id", application, error) != 0 ||
	    connection_number(connection, "PRAGMA user_version", version, error) != 0 ||
	    connection_number(connection, "SELECT count(*) FROM sqlite_schema", objects, error) != 0)
		return error->code;
	return 0;
}

static int check_version(int64_t version, struct error *error)
{
	if (version <= (int64_t)COUNT_OF(migrations))
		return 0;
	return error_set(error, ERR_UNSUPPORTED,
			 "the journal has schema version %lld, this program knows versions up to %zu: use a newer reprised, or restore "
			 "a backup that the older one made",
			 (long long)version, COUNT_OF(migrations));
}

static int check_application(int64_t application, struct error *error)
{
	return application == STORE_APPLICATION_ID
		       ? 0 : error_set(error, ERR_INVALID, "this is no Reprise journal (application id %lld)", (long long)application);
}

int migrate_check_copy(struct connection *connection, bool *is_marked, struct error *error)
{
	int64_t application, version, objects;

	if (read_versions(connection, &application, &version, &objects, error) != 0)
		return error->code;
	*is_marked = application == STORE_COPY_ID;
	if (!*is_marked && check_application(application, error) != 0)
		return error->code;
	return check_version(version, error);
}

int migrate_check(struct connection *connection, struct error *error)
{
	int64_t version;
	bool is_marked;

	if (migrate_check_copy(connection, &is_marked, error) != 0 || connection_number(connection, "PRAGMA user_version", &version, error) != 0)
		return error->code;
	if (version < (int64_t)COUNT_OF(migrations))
		return error_set(error, ERR_UNSUPPORTED,
				 "the journal has schema version %lld, older than %zu: start reprised on it once",
				 (long long)version, COUNT_OF(migrations));
	return 0;
}

/* All steps in one transaction: whatever goes wrong, and wherever the program is killed, the file is as it was. */
static int apply(struct connection *connection, int64_t version, struct error *error)
{
	char pragma[96];
	struct error ignored;

	if (connection_exec(connection, "BEGIN IMMEDIATE", error) != 0)
		return error->code;
	while (version < (int64_t)COUNT_OF(migrations)) {
		version++;
		snprintf(pragma, sizeof(pragma), "PRAGMA application_id=%d; PRAGMA user_version=%d", STORE_APPLICATION_ID, (int)version);
		if (FAIL_POINT_FAILS(MIGRATE_BEGUN, error) || connection_exec(connection, migrations[version - 1], error) != 0 || connection_exec(connection, pragma, error) != 0)
			goto fail;
	}
	if (!FAIL_POINT_FAILS(MIGRATE_BEFORE_COMMIT, error) && connection_exec(connection, "COMMIT", error) == 0) {
		FAIL_POINT(MIGRATE_COMMITTED);
		return 0;
	}
fail:
	if (!sqlite3_get_autocommit(connection->db))
		connection_exec(connection, "ROLLBACK", &ignored);
	return error_wrap(error, "migrate to schema version %lld (the journal is as it was)", (long long)version);
}

int migrate_up(struct connection *connection, struct error *error)
{
	int64_t application, version, objects;

	if (read_versions(connection, &application, &version, &objects, error) != 0)
		return error->code;
	if (objects == 0 && application == 0 && version == 0)
		application = STORE_APPLICATION_ID; /* A new, empty file. */
	if (application == STORE_COPY_ID)
		return error_set(error, ERR_INVALID,
				 "this is a copy that journal backup made; the log that it is of may go on elsewhere. `reprise journal restore` "
				 "makes a journal of it");
	if (check_application(application, error) != 0 || check_version(version, error) != 0)
		return error->code;
	return version < (int64_t)COUNT_OF(migrations) ? apply(connection, version, error) : 0;
}
