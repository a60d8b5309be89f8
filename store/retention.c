/* Retention: what is over its time is taken away by the writer, in small transactions of their own (C9, C17). Writer thread.
 * Start at retention_work(); what it leaves behind is in retention_table.c.
 *
 *   RUNS         runs that ended long enough ago leave the lists: one entry, runs.purged, for each chunk of them
 *   VALUES       what they named is deleted, but for what kept facts rest on
 *   TILES        entries of 256 that nobody needs any more (semantics.md 9): one entry, journal.pruned, for each chunk
 *   CHECKPOINTS  fewer, the older
 *   PAGES        what became free goes back to the file system
 *
 * Each phase begins where it has to by what the tables say, so a crash anywhere costs nothing but a repeated look. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"
#include "workflow/base/time.h"

enum { DAY_MS = 86400 * 1000, HOUR_MS = 3600 * 1000 };
enum { LOG_TRIES_MAX = 50, LOG_PAUSE_US = 20 * 1000 }; /* to copy the log whole on a full disk: a second, in which nothing can be written anyway */
#define YEAR_MS (365LL * DAY_MS)

static struct connection *connection_of(struct store *store)
{
	return &store->writer.connection;
}

static bool is_late(struct store *store, uint64_t begin_us)
{
	return store->options.now_us() - begin_us > RETENTION_STEP_US;
}

static int one_number(struct connection *connection, const char *sql, uint64_t number, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, sql, error);

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, number);
	return statement_run(connection, statement, error);
}

/* Is there a row? The statement's parameters are bound. */
static int has_row(struct connection *connection, sqlite3_stmt *statement, bool *has, struct error *error)
{
	int step = statement_step(connection, statement, error);

	*has = step > 0;
	if (*has)
		statement_end(statement);
	return step < 0 ? (int)error->code : 0;
}

static int has_number(struct connection *connection, const char *sql, uint64_t number, bool *has, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, sql, error);

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, number);
	return has_row(connection, statement, has, error);
}

/* Of what a chunk takes at most: a 4th and a 16th of it where it found no room. */
static size_t share(const struct store *store, size_t max)
{
	unsigned thrift = store->writer.retention.thrift, shift = thrift > 1 ? 2 * (thrift - 1) : 0;

	return max >> shift > 0 ? max >> shift : 1;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static const char erase_sql[] = "UPDATE content SET encoding = 3, bytes = NULL WHERE id = ?1";
static const char drop_content_sql[] = "DELETE FROM content WHERE id = ?1";
static const char blob_named_sql[] = "SELECT 1 FROM content WHERE digest = ?1 AND encoding = 2 LIMIT 1"; /* as the index is made */
static const char drop_blob_sql[] = "DELETE FROM blob WHERE digest = ?1";
static const char drop_chunks_sql[] = "DELETE FROM blob_chunk WHERE digest = ?1";

/* A large value goes with the last row that names it. */
static int drop_blob(struct connection *connection, const struct digest *digest, struct error *error)
{
	static const char *const ways[] = {blob_named_sql, drop_blob_sql, drop_chunks_sql};
	bool named;

	for (size_t i = 0; i < COUNT_OF(ways); i++) {
		sqlite3_stmt *statement = statement_take(connection, ways[i], error);

		if (statement == NULL)
			return error->code;
		bind_digest(statement, 1, digest);
		if (i > 0)
			statement_run(connection, statement, error);
		else if (has_row(connection, statement, &named, error) == 0 && named)
			return 0;
		if (error->code != ERR_NONE)
			return error->code;
	}
	return 0;
}

struct value_row {
	uint64_t id, size;
	enum content_encoding encoding;
	struct digest digest;
};

static int drop_value(struct store *store, const char *sql, const struct value_row *row, struct error *error)
{
	struct connection *connection = connection_of(store);

	if (one_number(connection, sql, row->id, error) != 0)
		return error->code;
	store->writer.retention.done.values += row->encoding != CONTENT_ERASED;
	return row->encoding == CONTENT_ELSEWHERE ? drop_blob(connection, &row->digest, error) : 0;
}

/* What a kept fact, a gate, or an event that is still known, was appended with. */
static const char values_sql[] =
	"SELECT c.id, c.digest, c.size, c.encoding, EXISTS(SELECT 1 FROM fact f WHERE f.seq = (c.id - 1) >> 8) OR"
	" EXISTS(SELECT 1 FROM gate g WHERE g.seq = (c.id - 1) >> 8) OR EXISTS(SELECT 1 FROM event v WHERE v.seq = (c.id - 1) >> 8) FROM content c WHERE c.id > ?1 AND c.id <= ?2 ORDER BY c.id LIMIT ?3";
/* The values of one entry lie side by side: where one may stay, the rows of the others stay too, empty, until the entry goes. */
static const char drop_empty_sql[] = "DELETE FROM content WHERE id > ?1 << 8 AND id <= (?1 + 1) << 8 AND encoding = 3";

static bool is_evidence(const struct retention *retention, const struct digest *digest)
{
	size_t low = 0, high = retention->evidence_count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = memcmp(&retention->evidence[middle], digest, sizeof(*digest));

		if (order == 0)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static int compare_digests(const void *left, const void *right)
{
	return memcmp(left, right, sizeof(struct digest));
}

/* Whatever stands in a statement or a fact document as 64 hexadecimal digits is a digest of something that it rests on: the request, the
 * answer, the prompt, the schema, the section, the document. What is no such digest is found nowhere and does no harm. */
static void gather_digests(struct retention *retention, struct bytes text)
{
	size_t digits = 0;

	for (size_t i = 0; i <= text.len; i++) {
		uint8_t c = i < text.len ? text.data[i] : 0;

		if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) {
			digits++;
			continue;
		}
		if (digits == DIGEST_HEX_LEN) {
			char hex[DIGEST_HEX_LEN + 1];
			struct digest digest;

			memcpy(hex, text.data + i - DIGEST_HEX_LEN, DIGEST_HEX_LEN);
			hex[DIGEST_HEX_LEN] = '\0';
			if (digest_parse(hex, &digest)) {
				if (retention->evidence_count == retention->evidence_cap) {
					retention->evidence_cap = retention->evidence_cap * 2 + 64;
					retention->evidence = memory_resize(retention->evidence, retention->evidence_cap * sizeof(digest));
				}
				retention->evidence[retention->evidence_count++] = digest;
			}
		}
		digits = 0;
	}
}

/* Many facts of one request name the same: what is known once is enough. */
static void sort_evidence(struct retention *retention)
{
	size_t kept = 0;

	if (retention->evidence_count == 0)
		return;
	qsort(retention->evidence, retention->evidence_count, sizeof(struct digest), compare_digests);
	for (size_t i = 0; i < retention->evidence_count; i++)
		if (kept == 0 || !digest_equal(&retention->evidence[kept - 1], &retention->evidence[i]))
			retention->evidence[kept++] = retention->evidence[i];
	retention->evidence_count = kept;
}

static const char run_end_sql[] = "SELECT coalesce(max(seq_first + count), 0) FROM run_entry WHERE run = ?1";
static const char facts_sql[] = "SELECT seq FROM fact WHERE seq > ?1 AND seq < ?2 AND run = ?3 ORDER BY seq LIMIT ?4";
static const char fact_values_sql[] = "SELECT id FROM content WHERE id > ?1 << 8 AND id <= (?1 + 1) << 8 ORDER BY id";

static int gather_fact(struct connection *connection, struct retention *retention, uint64_t seq, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, fact_values_sql, error);
	uint64_t ids[ENTRY_VALUES_MAX];
	size_t count = 0;
	struct arena arena;

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, seq);
	while (statement_step(connection, statement, error) > 0)
		if (count < COUNT_OF(ids))
			ids[count++] = column_number(statement, 0);
	arena_init(&arena);
	for (size_t i = 0; i < count && error->code == ERR_NONE; i++) {
		struct bytes bytes;
		struct error why = {0};

		if (content_table_read(connection, &arena, ids[i], NULL, &bytes, &why) == 0)
			gather_digests(retention, bytes);
		else if (why.code != ERR_GONE && why.code != ERR_NOT_FOUND)
			*error = why; /* what it rests on is not known: nothing of the run may be taken away */
	}
	arena_close(&arena);
	return error->code;
}

/* What the kept facts of a removed run rest on, some facts at a time. */
static int gather_evidence(struct store *store, uint64_t begin_us, struct error *error)
{
	struct connection *connection = connection_of(store);
	struct retention *retention = &store->writer.retention;
	uint64_t seqs[RETENTION_FACTS_MAX], end = 0;
	sqlite3_stmt *statement = statement_take(connection, run_end_sql, error);

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, retention->clearing);
	while (statement_step(connection, statement, error) > 0)
		end = column_number(statement, 0);
	while (error->code == ERR_NONE && !retention->clearing_known && !is_late(store, begin_us)) {
		size_t count = 0;

		statement = statement_take(connection, facts_sql, error);
		if (statement == NULL)
			return error->code;
		bind_number(statement, 1, retention->clearing_fact);
		bind_number(statement, 2, end);
		bind_number(statement, 3, retention->clearing);
		bind_number(statement, 4, COUNT_OF(seqs));
		while (statement_step(connection, statement, error) > 0)
			seqs[count++] = column_number(statement, 0);
		for (size_t i = 0; i < count && error->code == ERR_NONE; i++) {
			gather_fact(connection, retention, seqs[i], error);
			retention->clearing_fact = seqs[i];
		}
		sort_evidence(retention);
		retention->clearing_known = error->code == ERR_NONE && count < COUNT_OF(seqs);
	}
	return error->code;
}

static const char next_clearing_sql[] = "SELECT run, seq_next FROM run_clearing ORDER BY run LIMIT 1";
static const char stretch_sql[] = "SELECT seq_first, count FROM run_entry WHERE run = ?1 AND seq_first + count > ?2 ORDER BY seq_first LIMIT 1";
static const char set_clearing_sql[] = "UPDATE run_clearing SET seq_next = ?2 WHERE run = ?1";
static const char drop_stretches_sql[] = "DELETE FROM run_entry WHERE run = ?1 AND seq_first < ?2";
static const char drop_clearing_sql[] = "DELETE FROM run_clearing WHERE run = ?1";

struct clearing_work {
	uint64_t begin_us, rows, bytes;
	bool done; /* no run is left */
};

static bool is_full(struct store *store, const struct clearing_work *work)
{
	return work->rows >= share(store, RETENTION_ROWS_MAX) || work->bytes >= share(store, RETENTION_BYTES_MAX) || is_late(store, work->begin_us);
}

static int set_clearing(struct connection *connection, const char *sql, uint64_t run, uint64_t seq, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, sql, error);

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, run);
	bind_number(statement, 2, seq);
	return statement_run(connection, statement, error);
}

/* Of the entries first … end - 1 of the run. *next: the first entry that was not looked at. */
static int clear_stretch(struct store *store, struct clearing_work *work, uint64_t first, uint64_t end, uint64_t *next, struct error *error)
{
	struct connection *connection = connection_of(store);
	/* The values of an entry go together, what an operator had erased before included, or all their rows stay. */
	bool keeps_rows = store->writer.retention.evidence_count > 0;
	uint64_t at = first << 8;

	*next = first;
	while (*next < end && !is_full(store, work)) {
		struct value_row rows[64];
		size_t count = 0, seen = 0;
		bool cut_short = false;
		sqlite3_stmt *statement = statement_take(connection, values_sql, error);

		if (statement == NULL)
			return error->code;
		bind_number(statement, 1, at);
		bind_number(statement, 2, end << 8);
		bind_number(statement, 3, COUNT_OF(rows));
		while (statement_step(connection, statement, error) > 0) {
			struct value_row row = {.id = column_number(statement, 0), .size = column_number(statement, 2), .encoding = (enum content_encoding)column_number(statement, 3)};

			seen++;
			at = row.id;
			if ((!keeps_rows || row.encoding != CONTENT_ERASED) && column_number(statement, 4) == 0 && column_digest(statement, 1, &row.digest) && !is_evidence(&store->writer.retention, &row.digest))
				rows[count++] = row;
		}
		if (error->code != ERR_NONE)
			return error->code;
		for (size_t i = 0; i < count; i++) {
			if (work->bytes >= share(store, RETENTION_BYTES_MAX)) {
				cut_short = true; /* what was dropped is not met again: the next chunk goes on from here */
				at = rows[i].id;
				break;
			}
			work->bytes += rows[i].size;
			if (drop_value(store, keeps_rows ? erase_sql : drop_content_sql, &rows[i], error) != 0)
				return error->code;
		}
		work->rows += seen;
		/* The entry of the last row is looked at again: it may have more values. */
		*next = seen < COUNT_OF(rows) && !cut_short ? end : (at - 1) >> 8;
	}
	return 0;
}

/* As much of one run as fits. *done: nothing of it is left. */
static int clear_run(struct store *store, struct clearing_work *work, uint64_t from, bool *done, struct error *error)
{
	struct connection *connection = connection_of(store);
	struct retention *retention = &store->writer.retention;
	uint64_t run = retention->clearing;

	*done = false;
	if (!retention->clearing_known && gather_evidence(store, work->begin_us, error) != 0)
		return error->code;
	while (retention->clearing_known && !is_full(store, work)) {
		sqlite3_stmt *statement = statement_take(connection, stretch_sql, error);
		uint64_t first, end;
		int step;

		if (statement == NULL)
			return error->code;
		bind_number(statement, 1, run);
		bind_number(statement, 2, from);
		step = statement_step(connection, statement, error);
		if (step < 0)
			return error->code;
		if (step == 0) {
			*done = true;
			if (set_clearing(connection, drop_stretches_sql, run, INT64_MAX, error) != 0)
				return error->code;
			return one_number(connection, drop_clearing_sql, run, error);
		}
		first = column_number(statement, 0);
		end = first + column_number(statement, 1);
		statement_end(statement);
		if (clear_stretch(store, work, first > from ? first : from, end, &from, error) != 0)
			return error->code;
		work->rows++;
	}
	return set_clearing(connection, set_clearing_sql, run, from, error);
}

static void forget_clearing(struct retention *retention)
{
	free(retention->evidence);
	retention->evidence = NULL;
	retention->evidence_count = retention->evidence_cap = 0;
	retention->clearing = 0;
	retention->clearing_known = false;
}

static int clear_values(struct store *store, void *arg, struct entry *entry, struct error *error)
{
	struct connection *connection = connection_of(store);
	struct retention *retention = &store->writer.retention;
	struct clearing_work *work = arg;

	(void)entry;
	while (!is_full(store, work)) {
		sqlite3_stmt *statement = statement_take(connection, next_clearing_sql, error);
		uint64_t run, from;
		bool done;
		int step;

		if (statement == NULL)
			return error->code;
		step = statement_step(connection, statement, error);
		if (step < 0)
			return error->code;
		if (step == 0) {
			work->done = true;
			return 0;
		}
		run = column_number(statement, 0);
		from = column_number(statement, 1);
		statement_end(statement);
		if (run != retention->clearing) {
			forget_clearing(retention);
			retention->clearing = run;
			retention->clearing_fact = run;
		}
		if (clear_run(store, work, from, &done, error) != 0)
			return error->code;
		if (done)
			forget_clearing(retention);
		else if (!retention->clearing_known)
			return 0; /* late */
	}
	return 0;
}

static int step_values(struct store *store, bool *more, struct error *error)
{
	struct clearing_work work = {.begin_us = store->options.now_us()};

	if (commit_chunk(store, clear_values, &work, false, error) != 0)
		forget_clearing(&store->writer.retention);
	*more = !work.done;
	return error->code;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* Within its time, and not of a clock that was ahead: so is all that came later. */
static bool is_young(const struct retention *retention, int64_t time_ms, int64_t before_ms)
{
	return time_ms > before_ms && time_ms <= retention->now_ms;
}

/* A child of a run that goes on stays: an attempt that begins again may ask for it. */
static const char runs_sql[] =
	"SELECT r.seq, r.id, r.created_ms, coalesce(r.ended_ms, 0), EXISTS(SELECT 1 FROM run p WHERE p.id = r.parent AND p.ended_ms IS NULL)"
	" FROM run r WHERE r.seq > ?1 ORDER BY r.seq LIMIT ?2";

struct purge_work {
	struct arena *arena;
	struct json *runs; /* ids */
	int64_t kept_ms; /* 0: an operator's doing */
	struct bytes reason;
};

static int purge_runs(struct store *store, void *arg, struct entry *entry, struct error *error)
{
	struct purge_work *work = arg;

	(void)error;
	*entry = (struct entry){.kind = ENTRY_RUNS_PURGED, .data = json_object(work->arena), .time_ms = store->options.wall_ms()};
	json_set(work->arena, entry->data, "runs", work->runs);
	json_set_boolean(work->arena, entry->data, "facts", !store->options.retention.drop_facts);
	if (work->kept_ms > 0)
		json_set_number(work->arena, entry->data, "keptMs", (double)work->kept_ms);
	if (work->reason.data != NULL)
		entry_add_value(work->arena, entry, "reason", work->reason);
	return 0; /* The tables follow from the entry, as always. */
}

static int step_runs(struct store *store, bool *more, struct error *error)
{
	struct connection *connection = connection_of(store);
	struct retention *retention = &store->writer.retention;
	int64_t kept_ms = store->options.retention.runs_ms, before_ms = retention->now_ms - kept_ms;
	struct purge_work work = {.kept_ms = kept_ms};
	sqlite3_stmt *statement;
	struct arena arena;
	size_t looked = 0;
	int step;

	*more = false;
	if (kept_ms <= 0)
		return 0;
	statement = statement_take(connection, runs_sql, error);
	if (statement == NULL)
		return error->code;
	arena_init(&arena);
	work.arena = &arena;
	work.runs = json_array(&arena);
	bind_number(statement, 1, retention->run_seq);
	bind_number(statement, 2, RETENTION_LOOKS_MAX);
	while ((step = statement_step(connection, statement, error)) > 0) {
		int64_t ended_ms = (int64_t)column_number(statement, 3);

		/* What began later ended later: nothing behind it is due. Only of one that began when the clock was ahead that is not so. */
		if (is_young(retention, (int64_t)column_number(statement, 2), before_ms) || json_count(work.runs) == share(store, RETENTION_RUNS_MAX)) {
			*more = json_count(work.runs) == share(store, RETENTION_RUNS_MAX);
			statement_end(statement);
			break;
		}
		retention->run_seq = column_number(statement, 0);
		looked++;
		if (ended_ms != 0 && ended_ms <= before_ms && column_number(statement, 4) == 0)
			json_add(&arena, work.runs, json_text(&arena, column_text(statement, 1, &arena)));
	}
	*more |= looked == RETENTION_LOOKS_MAX;
	if (error->code == ERR_NONE && json_count(work.runs) > 0 && commit_chunk(store, purge_runs, &work, false, error) == 0)
		retention->done.runs += json_count(work.runs);
	arena_close(&arena);
	return error->code;
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

static const char tile_sql[] = "SELECT seq, bytes FROM entry WHERE seq >= ?1 AND seq < ?1 + 256 ORDER BY seq";
static const char is_fact_sql[] = "SELECT 1 FROM fact WHERE seq = ?1";
static const char is_event_sql[] = "SELECT 1 FROM event WHERE seq = ?1";
static const char is_document_sql[] = "SELECT 1 FROM document WHERE seq = ?1";
static const char is_position_sql[] = "SELECT 1 FROM sink WHERE name = ?1 AND position = ?2";
static const char drop_entry_sql[] = "DELETE FROM entry WHERE seq = ?1";
static const char drop_leaves_sql[] = "DELETE FROM journal WHERE seq >= ?1 AND seq < ?1 + 256";
static const char put_prune_sql[] = "INSERT INTO journal_prune(tile, root, at, kept, leaves) VALUES(?1, ?2, ?3, ?4, ?5)";
static const char checkpoints_within_sql[] = "SELECT size, note FROM checkpoint WHERE size > ?1 AND size < ?1 + 256 ORDER BY size";
static const char drop_checkpoint_sql[] = "DELETE FROM checkpoint WHERE size = ?1";

enum fate { FATE_DROP, FATE_DROP_WITH_VALUES, FATE_KEEP };

/* An entry stays while a table rests on it alone. What is not named here stays for ever: it is rare, or not known to be needless. */
static int decide_fate(struct connection *connection, const struct entry *entry, enum fate *fate, struct error *error)
{
	sqlite3_stmt *statement;
	bool has = false;

	switch (entry->kind) {
	case ENTRY_DAEMON_STARTED:
	case ENTRY_DAEMON_STOPPING:
	case ENTRY_CLOCK_STEPPED:
	case ENTRY_OPERATOR_ACTION:
	case ENTRY_SCHEDULE_TICKED:
	case ENTRY_SCHEDULE_SKIPPED:
	case ENTRY_EVENTS_FORGOTTEN:
	case ENTRY_RUNS_PURGED:
	case ENTRY_JOURNAL_PRUNED:
	case ENTRY_RUNTIME_STARTED:
	case ENTRY_RUNTIME_READY:
	case ENTRY_RUNTIME_REFUSED:
	case ENTRY_RUNTIME_STOPPED:
	case ENTRY_RUNTIME_SPENT: /* its sum stays, as that of attempts does */
		*fate = FATE_DROP_WITH_VALUES;
		return 0;
	case ENTRY_EVENT_RECEIVED:
	case ENTRY_EVENT_EMITTED: /* its value stayed for as long as the event was known */
		has_number(connection, is_event_sql, entry->seq, &has, error);
		*fate = has ? FATE_KEEP : FATE_DROP_WITH_VALUES;
		return error->code;
	case ENTRY_DOCUMENT_ADDED: /* said again, it is in the table already */
		has_number(connection, is_document_sql, entry->seq, &has, error);
		*fate = has ? FATE_KEEP : FATE_DROP_WITH_VALUES;
		return error->code;
	case ENTRY_SINK_ADVANCED:
		statement = statement_take(connection, is_position_sql, error);
		if (statement == NULL)
			return error->code;
		bind_text(statement, 1, text_or_empty(entry->data, "sink"));
		bind_number(statement, 2, (uint64_t)json_get_number(entry->data, "position", 0));
		has_row(connection, statement, &has, error);
		*fate = has ? FATE_KEEP : FATE_DROP_WITH_VALUES;
		return error->code;
	case ENTRY_FACT_RECORDED:
		has_number(connection, is_fact_sql, entry->seq, &has, error);
		*fate = has ? FATE_KEEP : FATE_DROP;
		return error->code;
	case ENTRY_GATE_RECORDED:
		*fate = FATE_KEEP; /* facts name it */
		return 0;
	default:
		*fate = entry_kind_touches_run(entry->kind) ? FATE_DROP : FATE_KEEP; /* a run's values went with it, or are evidence */
		return 0;
	}
}

/* Is the time of everything in it over? */
static int is_over(struct store *store, const struct entry *entry, bool *over, struct error *error)
{
	const struct retention *retention = &store->writer.retention;
	int64_t before_ms = retention->now_ms - store->options.retention.entries_ms;
	struct tombstone tombstone;
	bool found;

	*over = entry->time_ms <= before_ms;
	if (!*over || !entry_kind_touches_run(entry->kind))
		return 0;
	*over = false;
	if (retention_table_tombstone(connection_of(store), NULL, text_or_empty(entry->data, "runId"), &tombstone, &found, error) != 0)
		return error->code;
	*over = found && tombstone.ended_ms <= before_ms;
	return 0;
}

struct tile {
	uint64_t number;
	size_t count, kept;
	enum fate fates[STORE_TILE];
	bool over; /* else it must stay */
	bool young; /* its first entry is within its time: so are all tiles behind it */
	bool leaves; /* must stay */
};

/* ERR_CORRUPT: it is not whole. */
static int look_into(struct store *store, struct tile *tile, struct error *error)
{
	struct connection *connection = connection_of(store);
	int64_t before_ms = store->writer.retention.now_ms - store->options.retention.entries_ms;
	uint64_t first = tile->number * STORE_TILE;
	sqlite3_stmt *statement = statement_take(connection, tile_sql, error);
	char last_run[ID_LEN_MAX + 1] = "";

	if (statement == NULL)
		return error->code;
	tile->over = true;
	bind_number(statement, 1, first);
	while (tile->over && statement_step(connection, statement, error) > 0) {
		struct arena arena;
		struct entry entry;
		const char *run;

		arena_init(&arena);
		if (column_number(statement, 0) != first + tile->count || entry_table_decode(&arena, first + tile->count, column_bytes(statement, 1), NULL, &entry, error) != 0) {
			error_set(error, ERR_CORRUPT, "entry %llu is missing or damaged", (unsigned long long)(first + tile->count));
		} else {
			if (tile->count == 0)
				tile->young = is_young(&store->writer.retention, entry.time_ms, before_ms);
			run = entry_kind_touches_run(entry.kind) ? text_or_empty(entry.data, "runId") : "";
			/* Most entries stand beside others of the same run. */
			if (run[0] == '\0' || strcmp(run, last_run) != 0)
				is_over(store, &entry, &tile->over, error);
			snprintf(last_run, sizeof(last_run), "%s", run);
			if (error->code == ERR_NONE && tile->over)
				decide_fate(connection, &entry, &tile->fates[tile->count], error);
			tile->kept += tile->over && tile->fates[tile->count] == FATE_KEEP;
			tile->count++;
		}
		arena_close(&arena);
		if (error->code != ERR_NONE)
			break;
	}
	statement_end(statement);
	if (error->code == ERR_NONE && tile->over && tile->count != STORE_TILE)
		error_set(error, ERR_CORRUPT, "%zu of the 256 entries of tile %llu are there", tile->count, (unsigned long long)tile->number);
	return error->code;
}

/* The log's own signature is one line; a witness adds its own. */
static bool is_cosigned(struct bytes note)
{
	static const char mark[] = "\n\xe2\x80\x94 ";
	size_t count = 0;

	for (size_t i = 0; i + sizeof(mark) - 1 <= note.len; i++)
		count += memcmp(note.data + i, mark, sizeof(mark) - 1) == 0;
	return count > 1;
}

/* A checkpoint that ends within a tile can be compared by its leaves only. So leaves stay for a cosigned one, and any other goes with them. */
static int look_at_checkpoints(struct connection *connection, struct tile *tile, uint64_t *sizes, size_t *count, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, checkpoints_within_sql, error);

	*count = 0;
	tile->leaves = tile->kept > 0;
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, tile->number * STORE_TILE);
	while (statement_step(connection, statement, error) > 0) {
		sizes[(*count)++] = column_number(statement, 0);
		tile->leaves |= is_cosigned(column_bytes(statement, 1));
	}
	if (tile->leaves)
		*count = 0;
	return error->code;
}

static const char entry_values_sql[] = "SELECT id, digest, size, encoding FROM content WHERE id > ?1 << 8 AND id <= (?1 + 1) << 8 ORDER BY id";

static int drop_entry_values(struct store *store, uint64_t seq, struct error *error)
{
	struct connection *connection = connection_of(store);
	sqlite3_stmt *statement = statement_take(connection, entry_values_sql, error);
	struct value_row rows[ENTRY_VALUES_MAX];
	size_t count = 0;

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, seq);
	while (statement_step(connection, statement, error) > 0) {
		struct value_row *row = &rows[count];

		if (count == COUNT_OF(rows) || !column_digest(statement, 1, &row->digest))
			continue;
		row->id = column_number(statement, 0);
		row->size = column_number(statement, 2);
		row->encoding = (enum content_encoding)column_number(statement, 3);
		count++;
	}
	for (size_t i = 0; i < count && error->code == ERR_NONE; i++)
		drop_value(store, drop_content_sql, &rows[i], error);
	return error->code;
}

static int prune_tile(struct store *store, struct tile *tile, struct error *error)
{
	struct connection *connection = connection_of(store);
	struct retention *retention = &store->writer.retention;
	uint64_t first = tile->number * STORE_TILE, sizes[STORE_TILE];
	char at[TIME_TEXT_LEN + 1];
	sqlite3_stmt *statement;
	struct digest root;
	size_t sizes_count;

	if (entry_table_read_node(connection, STORE_NODE_LEVELS, tile->number, &root) != 0)
		return error_set(error, ERR_CORRUPT, "the node over tile %llu is missing", (unsigned long long)tile->number);
	if (look_at_checkpoints(connection, tile, sizes, &sizes_count, error) != 0)
		return error->code;
	for (size_t i = 0; i < STORE_TILE; i++) {
		if (tile->fates[i] == FATE_DROP_WITH_VALUES && drop_entry_values(store, first + i, error) != 0)
			return error->code;
		if (tile->fates[i] == FATE_DROP && one_number(connection, drop_empty_sql, first + i, error) != 0)
			return error->code;
		if (tile->fates[i] != FATE_KEEP && one_number(connection, drop_entry_sql, first + i, error) != 0)
			return error->code;
	}
	if (!tile->leaves && one_number(connection, drop_leaves_sql, first, error) != 0)
		return error->code;
	for (size_t i = 0; i < sizes_count; i++)
		if (one_number(connection, drop_checkpoint_sql, sizes[i], error) != 0)
			return error->code;
	statement = statement_take(connection, put_prune_sql, error);
	if (statement == NULL)
		return error->code;
	time_text(store->options.wall_ms(), at);
	bind_number(statement, 1, tile->number);
	bind_digest(statement, 2, &root);
	bind_text(statement, 3, at);
	bind_number(statement, 4, tile->kept);
	bind_number(statement, 5, tile->leaves);
	if (statement_run(connection, statement, error) != 0)
		return error->code;
	retention->done.checkpoints += sizes_count;
	retention->done.entries += STORE_TILE - tile->kept;
	retention->done.tiles++;
	return 0;
}

struct tiles_work {
	uint64_t begin_us;
	struct arena arena;
	bool done;
};

static int prune_tiles(struct store *store, void *arg, struct entry *entry, struct error *error)
{
	struct connection *connection = connection_of(store);
	struct retention *retention = &store->writer.retention;
	struct tiles_work *work = arg;
	struct json *tiles = json_array(&work->arena);
	uint64_t entries = 0, kept = 0;

	for (unsigned looks = 0; looks < RETENTION_LOOKS_MAX && json_count(tiles) < share(store, RETENTION_TILES_MAX) && !is_late(store, work->begin_us); looks++) {
		struct tile tile = {.number = retention->tile};
		struct error why = {0};
		struct digest root;
		bool pruned, leaves;

		/* Its end must be vouched for: what is behind the newest checkpoint is hashed again at each start. */
		if ((tile.number + 1) * STORE_TILE > store->writer.signed_size || retention->held == RETENTION_HELD_MAX) {
			work->done = true;
			break;
		}
		if (retention_table_tile(connection, tile.number, &root, &leaves, &pruned, error) != 0)
			return error->code;
		retention->tile++;
		if (pruned) {
			retention->tile_floor += retention->tile_floor == tile.number;
			continue;
		}
		if (look_into(store, &tile, &why) != 0) {
			if (why.code != ERR_CORRUPT)
				return *error = why, error->code;
			log_warn(LOG_STORE, "retention leaves tile %llu as it is: %s", (unsigned long long)tile.number, why.message);
			retention->held++;
			continue;
		}
		if (tile.young) {
			work->done = true;
			break;
		}
		if (!tile.over) {
			retention->held++;
			continue;
		}
		if (prune_tile(store, &tile, error) != 0)
			return error->code;
		retention->tile_floor += retention->tile_floor == tile.number;
		entries += STORE_TILE - tile.kept;
		kept += tile.kept;
		json_add(&work->arena, tiles, json_number(&work->arena, (double)tile.number));
	}
	if (json_count(tiles) == 0)
		return 0;
	*entry = (struct entry){.kind = ENTRY_JOURNAL_PRUNED, .data = json_object(&work->arena), .time_ms = store->options.wall_ms()};
	json_set(&work->arena, entry->data, "tiles", tiles);
	json_set_number(&work->arena, entry->data, "entries", (double)entries);
	json_set_number(&work->arena, entry->data, "kept", (double)kept);
	json_set_number(&work->arena, entry->data, "entriesMs", (double)store->options.retention.entries_ms);
	return 0;
}

static int step_tiles(struct store *store, bool *more, struct error *error)
{
	struct retention *retention = &store->writer.retention;
	struct tiles_work work = {.begin_us = store->options.now_us()};
	bool cut_short;

	*more = false;
	if (store->options.retention.entries_ms <= 0 || store->options.retention.runs_ms <= 0)
		return 0;
	arena_init(&work.arena);
	commit_chunk(store, prune_tiles, &work, true, error);
	arena_close(&work.arena);
	*more = !work.done && error->code == ERR_NONE;
	/* A pass that looked at its share of tiles that stay goes on behind them the next time; one that came to the end begins anew. */
	cut_short = retention->held == RETENTION_HELD_MAX;
	if (!*more && !cut_short)
		retention->tile = retention->tile_floor;
	return error->code;
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

static const char checkpoints_sql[] = "SELECT size, signed_at, note FROM checkpoint WHERE size > ?1 ORDER BY size LIMIT ?2";

/* All of the last day, one an hour for a year, one a day after, and every cosigned one. Of those of one hour, or day, the first stays. */
static int thin_checkpoints(struct store *store, void *arg, struct entry *entry, struct error *error)
{
	struct connection *connection = connection_of(store);
	struct retention *retention = &store->writer.retention;
	sqlite3_stmt *statement = statement_take(connection, checkpoints_sql, error);
	uint64_t sizes[RETENTION_LOOKS_MAX];
	size_t count = 0, looked = 0;
	bool *done = arg;

	(void)entry;
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, retention->checkpoint_size);
	bind_number(statement, 2, RETENTION_LOOKS_MAX);
	while (statement_step(connection, statement, error) > 0) {
		const char *text = (const char *)sqlite3_column_text(statement, 1);
		uint64_t size = column_number(statement, 0);
		int64_t signed_ms, age_ms, bucket;

		looked++;
		retention->checkpoint_size = size;
		if (size == store->writer.signed_size || text == NULL || !time_parse(text, &signed_ms) || is_cosigned(column_bytes(statement, 2)))
			continue;
		age_ms = retention->now_ms - signed_ms;
		if (age_ms < DAY_MS)
			continue;
		bucket = age_ms < YEAR_MS ? signed_ms / HOUR_MS : -1 - signed_ms / DAY_MS; /* hours and days are told apart by their sign */
		if (bucket == retention->checkpoint_bucket)
			sizes[count++] = size;
		retention->checkpoint_bucket = bucket;
	}
	for (size_t i = 0; i < count && error->code == ERR_NONE; i++)
		one_number(connection, drop_checkpoint_sql, sizes[i], error);
	retention->done.checkpoints += count;
	*done = looked < RETENTION_LOOKS_MAX;
	return error->code;
}

static int step_checkpoints(struct store *store, bool *more, struct error *error)
{
	bool done = true;

	commit_chunk(store, thin_checkpoints, &done, true, error);
	*more = !done;
	return error->code;
}

/* --- pages -------------------------------------------------------------------------------------------------------- */

static const char free_pages_sql[] = "PRAGMA freelist_count";
static const char page_count_sql[] = "PRAGMA page_count";

static int give_pages(struct store *store, void *arg, struct entry *entry, struct error *error)
{
	char sql[64];

	(void)entry;
	snprintf(sql, sizeof(sql), "PRAGMA incremental_vacuum(%llu)", (unsigned long long)*(int64_t *)arg);
	return connection_exec(connection_of(store), sql, error);
}

static int step_pages(struct store *store, bool *more, struct error *error)
{
	struct connection *connection = connection_of(store);
	struct retention *retention = &store->writer.retention;
	bool all = retention->has_job && CONTAINER_OF(retention->jobs.next, struct store_purge, link)->kind == STORE_PURGE_DUE;
	int64_t free_pages, left, pages, spare;

	*more = false;
	if (connection_number(connection, free_pages_sql, &free_pages, error) != 0 || connection_number(connection, page_count_sql, &pages, error) != 0)
		return error->code;
	spare = all || !disk_takes_new_work(store) ? 0 : pages / 16 > RETENTION_FREE_PAGES ? pages / 16 : RETENTION_FREE_PAGES;
	if (free_pages <= spare)
		return 0;
	free_pages -= spare;
	if (free_pages > (int64_t)share(store, RETENTION_PAGES_MAX))
		free_pages = (int64_t)share(store, RETENTION_PAGES_MAX);
	if (commit_chunk(store, give_pages, &free_pages, false, error) != 0 || commit_expect_shorter_file(store, error) != 0 ||
	    connection_number(connection, page_count_sql, &left, error) != 0)
		return error->code;
	retention->done.pages += (uint64_t)(pages - left);
	*more = left < pages; /* else the file was made without incremental_vacuum */
	return 0;
}

/* --- what is deleted ------------------------------------------------------------------------------------------------- */

/* As it is set when the journal is opened. Each page that becomes free is written once more for it. */
static const char overwrite_sql[] = "PRAGMA secure_delete=ON";
/* Only within pages that are written anyway. */
static const char let_go_sql[] = "PRAGMA secure_delete=FAST";

static void set_thrift(struct store *store, unsigned thrift)
{
	struct error ignored = {0}; /* then its chunks need more room, and are refused for it */

	if ((thrift > 0) != (store->writer.retention.thrift > 0))
		connection_exec(connection_of(store), thrift > 0 ? let_go_sql : overwrite_sql, &ignored);
	store->writer.retention.thrift = thrift;
}

/* --- erasing one value -------------------------------------------------------------------------------------------- */

static const char scan_sql[] = "SELECT id, digest, encoding FROM content WHERE id > ?1 ORDER BY id LIMIT ?2";
static const char is_needed_sql[] = "SELECT 1 FROM definition WHERE digest = ?1 UNION ALL SELECT 1 FROM configuration WHERE record = ?1 UNION ALL SELECT 1 FROM gate WHERE id = ?1 LIMIT 1";
static const char is_open_sql[] = "SELECT 1 FROM run WHERE id = ?1 AND ended_ms IS NULL";

/* A run that goes on would ask for the value and could not. */
static int check_match(struct store *store, uint64_t seq, struct error *error)
{
	struct connection *connection = connection_of(store);
	sqlite3_stmt *statement;
	struct error why = {0};
	struct bytes bytes;
	struct entry entry;
	struct arena arena;
	bool open = false;

	arena_init(&arena);
	/* The entry may be pruned: then its run has ended long ago. */
	if (entry_table_bytes(connection, &arena, seq, &bytes, &why) != 0) {
		if (why.code != ERR_NOT_FOUND)
			*error = why;
	} else if (entry_table_decode(&arena, seq, bytes, NULL, &entry, &why) == 0 && entry_kind_touches_run(entry.kind)) {
		const char *run = text_or_empty(entry.data, "runId");

		statement = statement_take(connection, is_open_sql, error);
		if (statement != NULL) {
			bind_text(statement, 1, run);
			if (has_row(connection, statement, &open, error) == 0 && open)
				error_set(error, ERR_EXISTS, "run %.64s holds this value and has not ended: cancel it, or erase when it is over", run);
		}
	}
	arena_close(&arena);
	return error->code;
}

/* Rows of `content` have no index by digest: they are all looked at. *end: there are no more. */
static int scan_contents(struct store *store, const struct digest *digest, bool *end, struct error *error)
{
	struct connection *connection = connection_of(store);
	struct retention *retention = &store->writer.retention;
	sqlite3_stmt *statement = statement_take(connection, scan_sql, error);
	size_t looked = 0, before = retention->match_count;

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, retention->content_id);
	bind_number(statement, 2, RETENTION_LOOKS_MAX);
	while (statement_step(connection, statement, error) > 0) {
		struct digest found;

		looked++;
		retention->content_id = column_number(statement, 0);
		if (column_number(statement, 2) == CONTENT_ERASED || !column_digest(statement, 1, &found) || !digest_equal(&found, digest))
			continue;
		if (retention->match_count == STORE_ERASE_MATCHES_MAX) {
			statement_end(statement);
			return error_set(error, ERR_TOO_LARGE, "more than %d rows hold this value (STORE_ERASE_MATCHES_MAX): purge some of their runs first",
					 STORE_ERASE_MATCHES_MAX);
		}
		if (retention->match_count == retention->match_cap) {
			retention->match_cap = retention->match_cap * 2 + 16;
			retention->matches = memory_resize(retention->matches, retention->match_cap * sizeof(*retention->matches));
		}
		retention->matches[retention->match_count++] = retention->content_id;
	}
	*end = looked < RETENTION_LOOKS_MAX;
	for (size_t i = before; i < retention->match_count && error->code == ERR_NONE; i++)
		check_match(store, (retention->matches[i] - 1) >> 8, error);
	return error->code;
}

struct erase_work {
	struct store_purge *job;
	struct arena arena;
	struct error refused; /* a reason to leave all as it is */
};

/* In one transaction: who reads finds all copies or none. What was appended during the search is looked at here. */
static int erase_matches(struct store *store, void *arg, struct entry *entry, struct error *error)
{
	struct connection *connection = connection_of(store);
	struct retention *retention = &store->writer.retention;
	struct erase_work *work = arg;
	bool end = false;

	for (size_t i = 0; i < retention->match_count; i++) /* a run may have been retried since they were found */
		if (check_match(store, (retention->matches[i] - 1) >> 8, &work->refused) != 0)
			return 0;
	while (!end)
		if (scan_contents(store, &work->job->content, &end, &work->refused) != 0)
			return 0;
	if (retention->match_count == 0) {
		char text[DIGEST_TEXT_LEN + 1];

		digest_text(&work->job->content, text);
		error_set(&work->refused, ERR_NOT_FOUND, "no value %s is stored", text);
		retention_table_explain_content(connection, &work->job->content, &work->refused);
		return 0;
	}
	for (size_t i = 0; i < retention->match_count; i++)
		if (one_number(connection, erase_sql, retention->matches[i], error) != 0)
			return error->code;
	if (drop_blob(connection, &work->job->content, error) != 0)
		return error->code;
	retention->done.values += retention->match_count;
	*entry = (struct entry){.kind = ENTRY_CONTENT_ERASED, .data = json_object(&work->arena), .time_ms = store->options.wall_ms()};
	json_set_digest(&work->arena, entry->data, "content", &work->job->content);
	if (work->job->reason.data != NULL)
		entry_add_value(&work->arena, entry, "reason", work->job->reason);
	return 0;
}

static int erase(struct store *store, struct store_purge *job, struct error *error)
{
	struct erase_work work = {.job = job};
	struct error ignored = {0};

	arena_init(&work.arena);
	/* The bytes are overwritten, not only let go, on a full disk too. */
	if (connection_exec(connection_of(store), overwrite_sql, error) == 0)
		commit_chunk(store, erase_matches, &work, false, error);
	if (store->writer.retention.thrift > 0)
		connection_exec(connection_of(store), let_go_sql, &ignored);
	arena_close(&work.arena);
	if (error->code == ERR_NONE)
		*error = work.refused;
	return error->code;
}

static int step_erase(struct store *store, bool *more, struct error *error)
{
	struct retention *retention = &store->writer.retention;
	struct store_purge *job = CONTAINER_OF(retention->jobs.next, struct store_purge, link);
	bool end;

	*more = false;
	if (scan_contents(store, &job->content, &end, error) != 0)
		return error->code;
	*more = !end;
	return end ? erase(store, job, error) : 0;
}

/* --- a full disk --------------------------------------------------------------------------------------------------- */

/* The transaction was rolled back: so is what is known of it here. What a search for a value found stays found. */
static void take_back(struct retention *retention, const struct retention *before)
{
	forget_clearing(retention);
	retention->run_seq = before->run_seq;
	retention->tile = before->tile;
	retention->tile_floor = before->tile_floor;
	retention->held = before->held;
	retention->checkpoint_size = before->checkpoint_size;
	retention->checkpoint_bucket = before->checkpoint_bucket;
	retention->done = before->done;
}

/* What takes away is what a full disk needs, and it needs little room itself: what the reserve gives, or else the write-ahead log from its
 * beginning, or else what a smaller chunk needs. A chunk that found no room leaves none: its pages stand behind the end of the log until others
 * are written there. Then the log cannot be copied if it makes the database longer by one page. So from the first such chunk on the log is
 * copied before the next one. False: nothing helped. */
static bool make_room(struct store *store)
{
	struct retention *retention = &store->writer.retention;

	if (atomic_load(&store->is_broken))
		return false;
	if (retention->thrift == 0)
		set_thrift(store, 1);
	if (disk_make_room(store)) {
		commit_copy_wal(store);
	} else if (!retention->log_copied) {
		retention->log_copied = true;
		/* The thread of the log may be copying it just now; a reader goes on in its own time. */
		for (unsigned tries = 1; commit_copy_wal(store) == LOG_COPY_HELD && !store->by_hand && tries < LOG_TRIES_MAX; tries++)
			usleep(LOG_PAUSE_US);
	} else if (retention->thrift < RETENTION_THRIFT_MAX) {
		set_thrift(store, retention->thrift + 1);
	} else {
		return false;
	}
	return !atomic_load(&store->is_broken);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static void answer(struct store *store, struct store_purge *job, const struct error *error)
{
	list_remove(&job->link);
	job->error = *error;
	uv_mutex_lock(&store->lock);
	list_add_last(&store->done_purges, &job->link);
	atomic_store(&store->is_done, true);
	uv_mutex_unlock(&store->lock);
	store_wake_loop(store);
}

/* --- the clock ------------------------------------------------------------------------------------------------------- */

static void believe(struct retention *retention, int64_t wall_ms, uint64_t now_us)
{
	retention->known_ms = wall_ms;
	retention->known_us = now_us;
	retention->doubted_us = 0;
}

/* A wall clock that goes ahead by more than a day that has not passed is probably wrong, and a pass by it would take what nobody can bring back. So
 * time goes on as before until it has stood so for the time of grace, or an operator asks for a pass. Being away for long looks the same. */
static int64_t believed_ms(struct store *store)
{
	struct retention *retention = &store->writer.retention;
	uint64_t now_us = store->options.now_us(), grace_us = (uint64_t)store->options.retention.grace_ms * 1000;
	int64_t wall_ms = store->options.wall_ms(), passed_ms = retention->known_ms + (int64_t)((now_us - retention->known_us) / 1000);
	bool is_asked = retention->has_job && CONTAINER_OF(retention->jobs.next, struct store_purge, link)->kind == STORE_PURGE_DUE;
	char by[TIME_TEXT_LEN + 1];

	if (grace_us == 0 || is_asked || wall_ms - passed_ms <= RETENTION_CLOCK_STEP_MS) {
		believe(retention, wall_ms, now_us);
	} else if (retention->doubted_us == 0) {
		retention->doubted_us = now_us;
		time_text(passed_ms, by);
		log_warn(LOG_STORE,
			 "the clock is %lld hours ahead of the last entry and the time since: retention goes by %s until the clock has stood so for %lld hours. If it is right, "
			 "`reprise journal compact` says so",
			 (long long)((wall_ms - passed_ms) / HOUR_MS), by, (long long)(store->options.retention.grace_ms / HOUR_MS));
	} else if (now_us - retention->doubted_us >= grace_us) {
		log_info(LOG_STORE, "the clock has stood for %lld hours: retention goes by it", (long long)(store->options.retention.grace_ms / HOUR_MS));
		believe(retention, wall_ms, now_us);
	}
	return retention->doubted_us != 0 ? passed_ms : wall_ms;
}

static const char last_entry_sql[] = "SELECT bytes FROM entry ORDER BY seq DESC LIMIT 1";

int retention_read_clock(struct store *store, struct error *error)
{
	struct connection *connection = connection_of(store);
	sqlite3_stmt *statement = statement_take(connection, last_entry_sql, error);
	struct error ignored = {0};
	struct entry entry;
	struct arena arena;

	if (statement == NULL)
		return error->code;
	believe(&store->writer.retention, store->options.wall_ms(), store->options.now_us());
	if (statement_step(connection, statement, error) <= 0)
		return error->code;
	arena_init(&arena);
	/* What is damaged is found by the check of the log's tail. */
	if (entry_decode(&arena, column_bytes(statement, 0), NULL, &entry, &ignored) == 0)
		store->writer.retention.known_ms = entry.time_ms;
	arena_close(&arena);
	statement_end(statement);
	return 0;
}

static void begin_pass(struct store *store, enum retention_phase phase)
{
	struct retention *retention = &store->writer.retention;

	forget_clearing(retention);
	set_thrift(store, 0);
	memset(&retention->done, 0, sizeof(retention->done));
	retention->phase = phase;
	retention->log_copied = false;
	retention->now_ms = believed_ms(store);
	retention->run_seq = 0;
	retention->held = 0;
	retention->checkpoint_size = 0;
	retention->checkpoint_bucket = INT64_MIN;
	retention->content_id = 0;
	retention->match_count = 0;
}

static const char run_ended_sql[] = "SELECT coalesce(r.ended_ms, 0), p.id FROM run r LEFT JOIN run p ON p.id = r.parent AND p.ended_ms IS NULL WHERE r.id = ?1";

static int check_purge(struct connection *connection, const struct store_purge *job, struct error *error)
{
	for (size_t i = 0; i < job->run_count; i++) {
		sqlite3_stmt *statement = statement_take(connection, run_ended_sql, error);

		if (statement == NULL)
			return error->code;
		bind_text(statement, 1, job->runs[i]);
		if (statement_step(connection, statement, error) > 0) {
			const char *parent = (const char *)sqlite3_column_text(statement, 1);

			if (column_number(statement, 0) == 0)
				error_set(error, ERR_EXISTS, "run %.64s has not ended: cancel it first", job->runs[i]);
			else if (parent != NULL) /* as for step_runs() */
				error_set(error, ERR_EXISTS, "run %.64s is a child of run %.64s, which goes on and may ask for it again: wait for its end, or cancel it first",
					  job->runs[i], parent);
			statement_end(statement);
		} else if (error->code == ERR_NONE) {
			error_set(error, ERR_NOT_FOUND, "there is no run %.64s", job->runs[i]);
			retention_table_explain_run(connection, job->runs[i], error);
		}
		if (error->code != ERR_NONE)
			return error->code;
	}
	return 0;
}

static int begin_runs(struct store *store, const struct store_purge *job, struct error *error)
{
	struct purge_work work = {.reason = job->reason};
	struct arena arena;

	if (check_purge(connection_of(store), job, error) != 0)
		return error->code;
	begin_pass(store, RETENTION_VALUES);
	arena_init(&arena);
	work.arena = &arena;
	work.runs = json_array(&arena);
	for (size_t i = 0; i < job->run_count; i++) {
		size_t k = 0;

		while (k < i && strcmp(job->runs[k], job->runs[i]) != 0)
			k++;
		if (k == i) /* once, however often it is named */
			json_add(&arena, work.runs, json_text(&arena, job->runs[i]));
	}
	while (commit_chunk(store, purge_runs, &work, false, error) == ERR_FULL && make_room(store))
		*error = (struct error){0};
	if (error->code == ERR_NONE)
		store->writer.retention.done.runs += json_count(work.runs);
	arena_close(&arena);
	return error->code;
}

static int begin_erase(struct store *store, const struct store_purge *job, struct error *error)
{
	struct connection *connection = connection_of(store);
	sqlite3_stmt *statement = statement_take(connection, is_needed_sql, error);
	bool needed;

	if (statement == NULL)
		return error->code;
	bind_digest(statement, 1, &job->content);
	if (has_row(connection, statement, &needed, error) != 0)
		return error->code;
	if (needed)
		return error_set(error, ERR_INVALID, "this is a definition, a configuration record or a gate: runs and facts rest on it, it is not erased");
	begin_pass(store, RETENTION_ERASE);
	return 0;
}

/* A file that was made without it learns to give pages back, by being written anew once; all wait meanwhile. */
static int make_incremental(struct store *store, struct error *error)
{
	int64_t mode;

	if (connection_number(connection_of(store), "PRAGMA auto_vacuum", &mode, error) != 0 || mode == AUTO_VACUUM_INCREMENTAL)
		return error->code;
	if (connection_exec(connection_of(store), "PRAGMA auto_vacuum=INCREMENTAL; VACUUM", error) != 0 || commit_expect_shorter_file(store, error) != 0)
		return error->code;
	commit_cut_wal(store); /* all of the journal stands in it: by its length nothing could be written any more */
	return 0;
}

static void begin_job(struct store *store)
{
	struct retention *retention = &store->writer.retention;
	struct store_purge *job = CONTAINER_OF(retention->jobs.next, struct store_purge, link);
	struct error error = {0};

	retention->has_job = true;
	if (job->kind == STORE_PURGE_RUNS)
		begin_runs(store, job, &error);
	else if (job->kind == STORE_PURGE_CONTENT)
		begin_erase(store, job, &error);
	else if (make_incremental(store, &error) == 0)
		begin_pass(store, RETENTION_RUNS);
	if (error.code == ERR_NONE)
		return;
	retention->has_job = false;
	answer(store, job, &error);
}

/* --- passes ------------------------------------------------------------------------------------------------------- */

static int64_t every_ms(const struct store *store)
{
	const struct store_retention *policy = &store->options.retention;
	int64_t every = RETENTION_EVERY_MAX_MS;

	if (policy->every_ms > 0)
		return policy->every_ms;
	if (policy->runs_ms > 0 && policy->runs_ms / 4 < every)
		every = policy->runs_ms / 4;
	if (policy->entries_ms > 0 && policy->entries_ms / 4 < every)
		every = policy->entries_ms / 4;
	return every > RETENTION_EVERY_MIN_MS ? every : RETENTION_EVERY_MIN_MS;
}

static void end_pass(struct store *store, const struct error *error)
{
	struct retention *retention = &store->writer.retention;

	retention->phase = RETENTION_IDLE;
	retention->ended_us = store->options.now_us();
	retention->due_us = retention->ended_us + (uint64_t)every_ms(store) * 1000;
	forget_clearing(retention);
	set_thrift(store, 0);
	if (retention->done.pages > 0 && error->code == ERR_NONE)
		commit_copy_wal(store);
	if (error->code != ERR_NONE && !retention->has_job) /* else who asked is told */
		log_warn(LOG_STORE, "retention: %s", error->message);
	else if (error->code == ERR_NONE && retention->done.runs + retention->done.values + retention->done.tiles + retention->done.checkpoints + retention->done.pages > 0)
		log_info(LOG_STORE, "retention runs=%llu values=%llu entries=%llu tiles=%llu checkpoints=%llu pages=%llu", (unsigned long long)retention->done.runs,
			 (unsigned long long)retention->done.values, (unsigned long long)retention->done.entries, (unsigned long long)retention->done.tiles,
			 (unsigned long long)retention->done.checkpoints, (unsigned long long)retention->done.pages);
	atomic_fetch_add(&store->counters.passes, 1);
	if (retention->has_job) {
		struct store_purge *job = CONTAINER_OF(retention->jobs.next, struct store_purge, link);

		job->removed_runs = retention->done.runs;
		job->removed_values = retention->done.values;
		job->pruned_entries = retention->done.entries;
		job->given_pages = retention->done.pages;
		retention->has_job = false;
		answer(store, job, error);
	}
}

static void next_phase(struct store *store)
{
	struct retention *retention = &store->writer.retention;
	static const struct error good = {0};

	if (retention->phase == RETENTION_ERASE)
		retention->phase = RETENTION_PAGES;
	else if (retention->phase == RETENTION_PAGES)
		end_pass(store, &good);
	else
		retention->phase++;
}

static void step(struct store *store)
{
	static int (*const steps[])(struct store *, bool *, struct error *) = {
		[RETENTION_RUNS] = step_runs,		    [RETENTION_VALUES] = step_values, [RETENTION_TILES] = step_tiles,
		[RETENTION_CHECKPOINTS] = step_checkpoints, [RETENTION_PAGES] = step_pages,   [RETENTION_ERASE] = step_erase,
	};
	struct retention *retention = &store->writer.retention;
	struct retention before = *retention;
	struct error error = {0};
	bool more = false;

	if (steps[retention->phase](store, &more, &error) != 0) {
		take_back(retention, &before);
		if (error.code != ERR_FULL || !make_room(store))
			end_pass(store, &error);
		return;
	}
	retention->log_copied = false;
	if (retention->thrift > 0)
		commit_copy_wal(store);
	if (!more)
		next_phase(store);
}

static bool is_on(const struct store *store)
{
	return store->options.retention.runs_ms > 0 || store->options.retention.entries_ms > 0;
}

uint64_t retention_due_us(struct store *store)
{
	const struct retention *retention = &store->writer.retention;
	uint64_t now_us, due_us = retention->due_us;

	if (!list_empty(&retention->jobs))
		return 0;
	if (atomic_load(&store->is_broken))
		return UINT64_MAX;
	/* What it writes would lengthen the log that a backup holds, until that has to give up. The end of the backup wakes nobody: that is looked for. */
	if (atomic_load(&store->backup.is_copying) && disk_takes_new_work(store))
		return RETENTION_AFTER_BACKUP_US;
	if (retention->phase != RETENTION_IDLE)
		return 0;
	if (!is_on(store))
		return UINT64_MAX;
	now_us = store->options.now_us();
	if (!disk_takes_new_work(store) && retention->ended_us + RETENTION_FULL_EVERY_MS * 1000ULL < due_us)
		due_us = retention->ended_us + RETENTION_FULL_EVERY_MS * 1000ULL;
	return due_us > now_us ? due_us - now_us : 0;
}

void retention_work(struct store *store, bool pause)
{
	struct retention *retention = &store->writer.retention;
	uint64_t now_us = store->options.now_us();

	if (atomic_load(&store->is_broken)) {
		retention_stop(store); /* nobody waits for what will not come */
		return;
	}
	/* Values whose chunks are being written look like nobody's. */
	if (!list_empty(&store->writer.large) || !list_empty(&store->writer.finished) || retention_due_us(store) != 0)
		return;
	if (!pause && now_us < retention->rest_until_us)
		return;
	/* A request does not wait for a pass to end; the next one takes up what that left. */
	if (!retention->has_job && !list_empty(&retention->jobs))
		begin_job(store);
	else if (retention->phase == RETENTION_IDLE)
		begin_pass(store, RETENTION_RUNS);
	if (retention->phase != RETENTION_IDLE)
		step(store);
	retention->rest_until_us = store->options.now_us() + RETENTION_REST_US;
}

void retention_open(struct store *store)
{
	struct retention *retention = &store->writer.retention;
	int64_t first_ms = every_ms(store) < RETENTION_FIRST_MS ? every_ms(store) : RETENTION_FIRST_MS;

	list_init(&retention->jobs);
	retention->due_us = store->options.now_us() + (uint64_t)first_ms * 1000;
}

void retention_stop(struct store *store)
{
	struct retention *retention = &store->writer.retention;
	struct error error;

	error_set(&error, ERR_BUSY, "the journal is closing: ask again when it is back");
	if (atomic_load(&store->is_broken))
		error = store->broken;
	retention->has_job = false;
	LIST_EACH_SAFE (link, &retention->jobs)
		answer(store, CONTAINER_OF(link, struct store_purge, link), &error);
}

void retention_close(struct store *store)
{
	forget_clearing(&store->writer.retention);
	free(store->writer.retention.matches);
	store->writer.retention.matches = NULL;
}
