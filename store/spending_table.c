/* What was used of each runtime in a day of UTC, from the entries that say so (workflow/base/spent.h). A row that each commit changes would cost it a page of
 * the write-ahead log. So the writer keeps the sums of the last few hundred entries, and writes them with a commit now and then; up to where is in the
 * journal, and what stands behind that is read from the entries. Writing: the writer's connection, driven by tables.c and commit.c; reading: a reader.
 * Start at spending_table_apply(). */
#include <string.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"
#include "workflow/base/time.h"

static const char add_sql[] = "INSERT INTO runtime_spending(runtime, day, tokens, us) VALUES(?1, ?2, ?3, ?4) "
			      "ON CONFLICT(runtime, day) DO UPDATE SET tokens = tokens + excluded.tokens, us = us + excluded.us";
/* By number, not by age: a clock that leaps ahead for a while takes nothing away. The day that it is stays, wherever it stands. */
static const char drop_sql[] = "DELETE FROM runtime_spending WHERE runtime = ?1 AND day <> ?2 AND day < "
			       "(SELECT day FROM runtime_spending WHERE runtime = ?1 ORDER BY day DESC LIMIT 1 OFFSET ?3)";
static const char mark_sql[] = "SELECT seq FROM spending_mark";
static const char set_mark_sql[] = "INSERT OR REPLACE INTO spending_mark(only, seq) VALUES(1, ?1)";
static const char behind_sql[] = "SELECT seq, bytes FROM entry WHERE seq >= ?1 AND instr(bytes, '\"spent\":') > 0 ORDER BY seq";

static int add_row(struct connection *connection, const char *runtime, const struct spent_day *day, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, add_sql, error);

	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, runtime);
	bind_time(statement, 2, day->day);
	bind_number(statement, 3, (uint64_t)day->tokens);
	bind_number(statement, 4, (uint64_t)day->us);
	return statement_run(connection, statement, error);
}

static int drop_old(struct connection *connection, const char *runtime, int64_t day, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, drop_sql, error);

	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, runtime);
	bind_time(statement, 2, day);
	bind_number(statement, 3, SPENT_DAYS_MAX - 1);
	return statement_run(connection, statement, error);
}

int spending_table_flush(struct connection *connection, uint64_t mark, struct error *error)
{
	struct spending_sums *sums = connection->spending;
	sqlite3_stmt *statement;

	for (size_t i = 0; i < sums->count; i++)
		if (add_row(connection, sums->of[i].runtime, &sums->of[i].day, error) != 0 || drop_old(connection, sums->of[i].runtime, sums->of[i].day.day, error) != 0)
			return error->code;
	statement = statement_take(connection, set_mark_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, mark);
	if (statement_run(connection, statement, error) != 0)
		return error->code;
	sums->count = 0;
	sums->mark = mark;
	return 0;
}

int spending_table_tend(struct connection *connection, uint64_t size, struct error *error)
{
	return size - connection->spending->mark >= SPENDING_ENTRIES_MAX ? spending_table_flush(connection, size, error) : 0;
}

int spending_table_apply(struct connection *connection, const struct entry *entry, struct error *error)
{
	struct spending_sums *sums = connection->spending;
	struct spent_day day = {spent_day_of(entry->time_ms), 0, 0};
	struct spent spent;
	size_t i = 0;

	if (!spent_read(json_get(entry->data, "spent"), &spent))
		return 0;
	day.tokens = spent.tokens;
	day.us = spent.us;
	if (sums == NULL) /* the tables are built anew: as far as the journal's own have come */
		return entry->seq < connection->spending_until ? add_row(connection, spent.runtime, &day, error) : 0;
	while (i < sums->count && (sums->of[i].day.day != day.day || strcmp(sums->of[i].runtime, spent.runtime) != 0))
		i++;
	if (i == COUNT_OF(sums->of)) {
		if (spending_table_flush(connection, entry->seq, error) != 0)
			return error->code;
		i = 0;
	}
	if (i == sums->count) {
		sums->of[i].day = (struct spent_day){.day = day.day};
		snprintf(sums->of[i].runtime, sizeof(sums->of[i].runtime), "%s", spent.runtime);
		sums->count++;
	}
	sums->of[i].day.tokens += day.tokens;
	sums->of[i].day.us += day.us;
	return 0;
}

/* Of the entries that are not in the rows yet; each is handed on with the time and number that it says. */
static int look_behind(struct connection *connection, uint64_t mark, int (*take)(void *arg, const struct entry *entry, struct error *error), void *arg, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, behind_sql, error);
	struct arena arena;

	if (statement == NULL)
		return error->code;
	arena_init(&arena);
	bind_number(statement, 1, mark);
	while (error->code == ERR_NONE && statement_step(connection, statement, error) > 0) {
		struct error why = {0};
		struct entry entry;

		/* One that is damaged is found by who looks for that; here it counts for nothing. */
		if (entry_decode(&arena, column_bytes(statement, 1), NULL, &entry, &why) == 0 && entry.seq == column_number(statement, 0) && take(arg, &entry, error) != 0)
			statement_end(statement);
	}
	arena_close(&arena);
	return error->code;
}

static int read_mark(struct connection *connection, uint64_t *mark, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, mark_sql, error);

	*mark = 0;
	if (statement == NULL)
		return error->code;
	if (statement_step(connection, statement, error) > 0) {
		*mark = column_number(statement, 0);
		statement_end(statement);
	}
	return error->code;
}

static int take_up(void *arg, const struct entry *entry, struct error *error)
{
	return spending_table_apply(arg, entry, error);
}

int spending_table_open(struct connection *connection, struct spending_sums *sums, uint64_t size, struct error *error)
{
	sums->count = 0;
	if (read_mark(connection, &sums->mark, error) != 0)
		return error->code;
	if (sums->mark > size)
		sums->mark = size; /* somebody has changed it */
	connection->spending = sums;
	/* Without a transaction: nothing is written, since there is room for what stands behind a mark (unless somebody has set it back). */
	return look_behind(connection, sums->mark, take_up, connection, error);
}

/* --- for readers -------------------------------------------------------------------------------------------------- */

static const char days_sql[] = "SELECT day, tokens, us FROM runtime_spending WHERE runtime = ?1 ORDER BY day LIMIT ?2";

struct reading_days {
	const char *runtime;
	struct arena *arena;
	struct spent_day *days;
	size_t count, cap;
};

/* Days are kept in order. */
static void add_day(struct reading_days *r, struct spent_day day)
{
	size_t place = 0;

	while (place < r->count && r->days[place].day < day.day)
		place++;
	if (place == r->count || r->days[place].day != day.day) {
		r->days = arena_grow(r->arena, r->days, r->count, &r->cap, sizeof(*r->days));
		memmove(&r->days[place + 1], &r->days[place], (r->count - place) * sizeof(*r->days));
		r->days[place] = (struct spent_day){.day = day.day};
		r->count++;
	}
	r->days[place].tokens += day.tokens;
	r->days[place].us += day.us;
}

static int take_day(void *arg, const struct entry *entry, struct error *error)
{
	struct reading_days *r = arg;
	struct spent spent;

	(void)error;
	if (spent_read(json_get(entry->data, "spent"), &spent) && strcmp(spent.runtime, r->runtime) == 0)
		add_day(r, (struct spent_day){spent_day_of(entry->time_ms), spent.tokens, spent.us});
	return 0;
}

int reader_spending(struct store_reader *reader, struct arena *arena, const char *runtime, struct spent_day **days, size_t *count, struct error *error)
{
	struct reading_days r = {.runtime = runtime, .arena = arena};
	sqlite3_stmt *statement;
	uint64_t mark;

	ERROR_BEGIN(error);
	statement = statement_take(&reader->connection, days_sql, error);
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, runtime);
	bind_number(statement, 2, SPENT_DAYS_MAX + 1);
	while (statement_step(&reader->connection, statement, error) > 0) {
		struct spent_day day = {(int64_t)column_number(statement, 0), (int64_t)column_number(statement, 1), (int64_t)column_number(statement, 2)};

		if (day.day >= time_days(1, 1, 1) && day.day <= time_days(9999, 12, 31) && day.tokens >= 0 && day.us >= 0)
			add_day(&r, day);
		else
			log_warn(LOG_STORE, "runtime=%s: a row of runtime_spending is damaged, and counts for nothing", runtime); /* a start does not fail for it */
	}
	if (error->code == ERR_NONE && read_mark(&reader->connection, &mark, error) == 0)
		look_behind(&reader->connection, mark, take_day, &r, error);
	*days = r.days;
	*count = r.count;
	return error->code;
}
