/* Signed checkpoints, by size. Writing: the writer's connection; reading: a reader. */
#include <string.h>

#include "store/internal.h"

static const char put_sql[] = "INSERT INTO checkpoint(size, note, signed_at) VALUES(?1, ?2, ?3)";
static const char get_sql[] = "SELECT note FROM checkpoint WHERE size = ?1";
static const char newest_sql[] = "SELECT note FROM checkpoint ORDER BY size DESC LIMIT 1";
static const char all_sql[] = "SELECT note FROM checkpoint ORDER BY size";

int checkpoint_table_put(struct connection *connection, uint64_t size, struct bytes note, const char *signed_at,
			 struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, put_sql, error);

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, size);
	bind_bytes(statement, 2, note);
	bind_text(statement, 3, signed_at);
	return statement_run(connection, statement, error);
}

int checkpoint_table_get(struct connection *connection, struct arena *arena, uint64_t size, struct bytes *note,
			 struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, size != 0 ? get_sql : newest_sql, error);
	int step;

	if (statement == NULL)
		return error->code;
	if (size != 0)
		bind_number(statement, 1, size);
	step = statement_step(connection, statement, error);
	if (step < 0)
		return error->code;
	if (step == 0)
		return error_set(error, ERR_NOT_FOUND,
				 size != 0 ? "there is no checkpoint of size %llu" : "there is no checkpoint yet (%llu)",
				 (unsigned long long)size);
	*note = arena_bytes(arena, column_bytes(statement, 0));
	statement_end(statement);
	return 0;
}

int reader_checkpoint(struct store_reader *reader, struct arena *arena, uint64_t size, struct bytes *note, struct error *error)
{
	ERROR_BEGIN(error);
	return checkpoint_table_get(&reader->connection, arena, size, note, error);
}

int reader_checkpoints(struct store_reader *reader, struct arena *arena, struct bytes **notes, size_t *count, struct error *error)
{
	sqlite3_stmt *statement;
	size_t cap = 0;

	ERROR_BEGIN(error);
	*notes = NULL;
	*count = 0;
	statement = statement_take(&reader->connection, all_sql, error);
	if (statement == NULL)
		return error->code;
	while (statement_step(&reader->connection, statement, error) > 0) {
		*notes = arena_grow(arena, *notes, *count, &cap, sizeof(**notes));
		(*notes)[(*count)++] = arena_bytes(arena, column_bytes(statement, 0));
	}
	return error->code;
}
