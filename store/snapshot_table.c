/* Snapshots of runs: a cache beside the journal (schema/sql/0005_snapshot.sql). Writing: the writer's connection, with the append that
 * brings one; reading: a reader. Start at snapshot_table_put() and reader_snapshot(). */
#include "store/internal.h"

static const char leaf_sql[] = "SELECT leaf FROM journal WHERE seq = ?1";
static const char put_sql[] = "INSERT OR REPLACE INTO snapshot(run, seq, leaf, digest, bytes) VALUES(?1, ?2, ?3, ?4, ?5)";
static const char forget_sql[] = "DELETE FROM snapshot WHERE run = ?1";
static const char get_sql[] = "SELECT s.seq, s.leaf, s.digest, s.bytes, j.leaf FROM run r JOIN snapshot s ON s.run = r.seq LEFT JOIN journal j ON j.seq = s.seq "
			      "WHERE r.id = ?1";

static int find_leaf(struct connection *connection, uint64_t seq, struct digest *leaf, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, leaf_sql, error);
	int step;

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, seq);
	step = statement_step(connection, statement, error);
	if (step < 0)
		return error->code;
	if (step == 0)
		return error_set(error, ERR_INVALID, "a snapshot as of entry %llu, which is not in the journal", (unsigned long long)seq);
	if (!column_digest(statement, 0, leaf))
		error_set(error, ERR_CORRUPT, "the leaf of entry %llu is none", (unsigned long long)seq);
	statement_end(statement);
	return error->code;
}

int snapshot_table_put(struct connection *connection, const char *run_id, uint64_t seq, struct bytes bytes, struct error *error)
{
	struct digest leaf, digest = digest_of(bytes);
	sqlite3_stmt *statement;
	uint64_t run;

	if (run_table_find(connection, run_id, &run, error) != 0 || find_leaf(connection, seq, &leaf, error) != 0)
		return error->code;
	statement = statement_take(connection, put_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, run);
	bind_number(statement, 2, seq);
	bind_digest(statement, 3, &leaf);
	bind_digest(statement, 4, &digest);
	bind_bytes(statement, 5, bytes);
	return statement_run(connection, statement, error);
}

int snapshot_table_forget(struct connection *connection, const char *run_id, struct error *error)
{
	sqlite3_stmt *statement;
	uint64_t run;

	if (run_table_find(connection, run_id, &run, error) != 0)
		return error->code;
	statement = statement_take(connection, forget_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, run);
	return statement_run(connection, statement, error);
}

int reader_snapshot(struct store_reader *reader, struct arena *arena, const char *run_id, uint64_t *seq, struct bytes *bytes, struct error *error)
{
	ERROR_BEGIN(error);
	sqlite3_stmt *statement = statement_take(&reader->connection, get_sql, error);
	struct digest leaf, digest, found, in_journal;
	int step;

	*bytes = (struct bytes){0};
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, run_id);
	step = statement_step(&reader->connection, statement, error);
	if (step < 0)
		return error->code;
	if (step == 0)
		return error_set(error, ERR_NOT_FOUND, "run %.64s has no snapshot", run_id);
	*seq = column_number(statement, 0);
	found = digest_of(column_bytes(statement, 3));
	if (!column_digest(statement, 2, &digest) || !digest_equal(&digest, &found))
		error_set(error, ERR_CORRUPT, "the snapshot of run %.64s does not hash to its digest", run_id);
	else if (!column_digest(statement, 1, &leaf) || !column_digest(statement, 4, &in_journal) || !digest_equal(&leaf, &in_journal))
		error_set(error, ERR_CORRUPT, "the snapshot of run %.64s is of another entry than the journal has at %llu", run_id, (unsigned long long)*seq);
	else
		*bytes = arena_bytes(arena, column_bytes(statement, 3));
	statement_end(statement);
	return error->code;
}
