/* What was used of each runtime in a day of UTC, from the entries that say so (workflow/base/spent.h). Writing: the writer's connection, driven by
 * tables.c; reading: a reader. Start at spending_table_apply(). */
#include "store/internal.h"
#include "workflow/base/log.h"
#include "workflow/base/time.h"

static const char add_sql[] = "UPDATE runtime_spending SET tokens = tokens + ?3, us = us + ?4 WHERE runtime = ?1 AND day = ?2";
static const char begin_sql[] = "INSERT INTO runtime_spending(runtime, day, tokens, us) VALUES(?1, ?2, ?3, ?4)";
/* By number, not by age: a clock that leaps ahead for a while takes nothing away. The one that begins stays, wherever it stands. */
static const char drop_sql[] = "DELETE FROM runtime_spending WHERE runtime = ?1 AND day <> ?2 AND day < "
			       "(SELECT day FROM runtime_spending WHERE runtime = ?1 ORDER BY day DESC LIMIT 1 OFFSET ?3)";

static int run(struct connection *connection, const char *sql, const struct spent *spent, int64_t day, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, sql, error);

	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, spent->runtime);
	bind_time(statement, 2, day);
	bind_number(statement, 3, (uint64_t)spent->tokens);
	bind_number(statement, 4, (uint64_t)spent->us);
	return statement_run(connection, statement, error);
}

/* A new day: the oldest may go. */
static int drop_old(struct connection *connection, const struct spent *spent, int64_t day, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, drop_sql, error);

	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, spent->runtime);
	bind_time(statement, 2, day);
	bind_number(statement, 3, SPENT_DAYS_MAX - 1);
	return statement_run(connection, statement, error);
}

int spending_table_apply(struct connection *connection, const struct entry *entry, struct error *error)
{
	int64_t day = spent_day_of(entry->time_ms);
	struct spent spent;

	if (!spent_read(json_get(entry->data, "spent"), &spent))
		return 0;
	if (run(connection, add_sql, &spent, day, error) != 0 || sqlite3_changes(connection->db) > 0)
		return error->code;
	if (run(connection, begin_sql, &spent, day, error) != 0)
		return error->code;
	return drop_old(connection, &spent, day, error);
}

/* --- for readers -------------------------------------------------------------------------------------------------- */

static const char days_sql[] = "SELECT day, tokens, us FROM runtime_spending WHERE runtime = ?1 ORDER BY day LIMIT ?2";

int reader_spending(struct store_reader *reader, struct arena *arena, const char *runtime, struct spent_day **days, size_t *count, struct error *error)
{
	sqlite3_stmt *statement;

	ERROR_BEGIN(error);
	*count = 0;
	*days = arena_alloc(arena, (SPENT_DAYS_MAX + 1) * sizeof(**days));
	statement = statement_take(&reader->connection, days_sql, error);
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, runtime);
	bind_number(statement, 2, SPENT_DAYS_MAX + 1);
	while (statement_step(&reader->connection, statement, error) > 0) {
		struct spent_day day = {(int64_t)column_number(statement, 0), (int64_t)column_number(statement, 1), (int64_t)column_number(statement, 2)};

		if (day.day >= time_days(1, 1, 1) && day.day <= time_days(9999, 12, 31) && day.tokens >= 0 && day.us >= 0)
			(*days)[(*count)++] = day;
		else
			log_warn(LOG_STORE, "runtime=%s: a row of runtime_spending is damaged, and counts for nothing", runtime); /* a start does not fail for it */
	}
	return error->code;
}
