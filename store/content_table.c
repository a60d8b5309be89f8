/* Values: small ones in `content` at the place of the entry that first names them, larger ones in `blob`, compressed and
 * once for each digest, very large ones in chunks (semantics.md 1). Writing: the writer's connection; reading: any.
 * Start at content_table_put() and content_table_fill(). */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "store/internal.h"
#include "workflow/base/check.h"

enum { COMPRESSION_LEVEL = 3, ORPHANS_PER_TRANSACTION = 64 };

static const char put_sql[] = "INSERT INTO content(id, digest, size, encoding, bytes) VALUES(?1, ?2, ?3, ?4, ?5)";
static const char put_blob_sql[] =
	"INSERT INTO blob(digest, size, encoding, bytes) VALUES(?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
static const char put_chunk_sql[] =
	"INSERT INTO blob_chunk(digest, n, encoding, bytes) VALUES(?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
static const char has_blob_sql[] = "SELECT 1 FROM blob WHERE digest = ?1";
static const char get_sql[] = "SELECT digest, size, encoding, bytes FROM content WHERE id = ?1";
static const char get_range_sql[] =
	"SELECT id, digest, size, encoding, bytes FROM content WHERE id > ?1 AND id <= ?2 ORDER BY id";
static const char get_blob_sql[] = "SELECT size, encoding, bytes FROM blob WHERE digest = ?1";
static const char get_chunks_sql[] = "SELECT n, encoding, bytes FROM blob_chunk WHERE digest = ?1 ORDER BY n";
static const char forget_sql[] = "DELETE FROM blob_chunk WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM blob WHERE digest = ?1)";
static const char forget_orphans_sql[] =
	"DELETE FROM blob_chunk WHERE rowid IN (SELECT c.rowid FROM blob_chunk c WHERE NOT EXISTS "
	"(SELECT 1 FROM blob b WHERE b.digest = c.digest) LIMIT ?1)";

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* The bytes to store and how they are encoded; *memory is freed by the caller. What does not shrink stays as it is. */
static struct bytes compress_bytes(struct bytes bytes, enum content_encoding *encoding, void **memory)
{
	size_t bound = ZSTD_compressBound(bytes.len), len;

	*memory = memory_alloc(bound);
	len = ZSTD_compress(*memory, bound, bytes.data, bytes.len, COMPRESSION_LEVEL);
	if (ZSTD_isError(len) || len >= bytes.len) {
		*encoding = CONTENT_RAW;
		return bytes;
	}
	*encoding = CONTENT_ZSTD;
	return (struct bytes){*memory, len};
}

static int put_blob(struct connection *connection, const struct entry_value *value, struct error *error)
{
	bool has;
	void *memory = NULL;
	enum content_encoding encoding = CONTENT_ELSEWHERE;
	struct bytes stored = {0};
	sqlite3_stmt *statement;

	if (content_table_has_blob(connection, &value->digest, &has, error) != 0)
		return error->code;
	if (has)
		return 0;
	statement = statement_take(connection, put_blob_sql, error);
	if (statement == NULL)
		return error->code;
	if (value->size <= CONTENT_CHUNK)
		stored = compress_bytes(value->bytes, &encoding, &memory);
	bind_digest(statement, 1, &value->digest);
	bind_number(statement, 2, value->size);
	bind_number(statement, 3, encoding);
	if (encoding != CONTENT_ELSEWHERE)
		bind_bytes(statement, 4, stored);
	statement_run(connection, statement, error);
	free(memory);
	return error->code;
}

int content_table_put(struct connection *connection, uint64_t seq, unsigned slot, const struct entry_value *value,
		      struct error *error)
{
	bool small = value->size <= CONTENT_SMALL_MAX;
	sqlite3_stmt *statement = statement_take(connection, put_sql, error);

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, CONTENT_ID(seq, slot));
	bind_digest(statement, 2, &value->digest);
	bind_number(statement, 3, value->size);
	bind_number(statement, 4, small ? CONTENT_RAW : CONTENT_ELSEWHERE);
	if (small)
		bind_bytes(statement, 5, value->bytes);
	if (statement_run(connection, statement, error) != 0)
		return error->code;
	return small ? 0 : put_blob(connection, value, error);
}

int content_table_has_blob(struct connection *connection, const struct digest *digest, bool *has, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, has_blob_sql, error);
	int step;

	if (statement == NULL)
		return error->code;
	bind_digest(statement, 1, digest);
	step = statement_step(connection, statement, error);
	if (step < 0)
		return error->code;
	*has = step > 0;
	if (*has)
		statement_end(statement);
	return 0;
}

int content_table_put_chunk(struct connection *connection, const struct digest *digest, uint64_t n, struct bytes bytes,
			    struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, put_chunk_sql, error);
	enum content_encoding encoding;
	struct bytes stored;
	void *memory;

	if (statement == NULL)
		return error->code;
	stored = compress_bytes(bytes, &encoding, &memory);
	bind_digest(statement, 1, digest);
	bind_number(statement, 2, n);
	bind_number(statement, 3, encoding);
	bind_bytes(statement, 4, stored);
	statement_run(connection, statement, error);
	free(memory);
	return error->code;
}

int content_table_forget_chunks(struct connection *connection, const struct digest *digest, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, forget_sql, error);

	if (statement == NULL)
		return error->code;
	bind_digest(statement, 1, digest);
	return statement_run(connection, statement, error);
}

/* What a crash left between the chunks and the entry that would have named them. In small transactions: they are big. */
int content_table_forget_orphans(struct connection *connection, struct error *error)
{
	for (;;) {
		sqlite3_stmt *statement = statement_take(connection, forget_orphans_sql, error);

		if (statement == NULL)
			return error->code;
		bind_number(statement, 1, ORPHANS_PER_TRANSACTION);
		if (statement_run(connection, statement, error) != 0)
			return error->code;
		if (sqlite3_changes(connection->db) < ORPHANS_PER_TRANSACTION)
			return 0;
	}
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Decoded straight into `into`, which has room for `size` bytes. */
static int decode_bytes(struct bytes stored, uint64_t encoding, uint8_t *into, uint64_t size, struct error *error)
{
	if (encoding == CONTENT_RAW) {
		if (stored.len != size)
			return error_set(error, ERR_CORRUPT, "%zu bytes are stored, %llu were written", stored.len,
					 (unsigned long long)size);
		if (size > 0)
			memcpy(into, stored.data, size);
		return 0;
	}
	if (encoding != CONTENT_ZSTD || ZSTD_decompress(into, size, stored.data, stored.len) != size)
		return error_set(error, ERR_CORRUPT, "the compressed bytes are damaged");
	return 0;
}

static int read_chunks(struct connection *connection, const struct digest *digest, uint8_t *into, uint64_t size,
		       struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, get_chunks_sql, error);
	uint64_t n = 0, done = 0;
	int step;

	if (statement == NULL)
		return error->code;
	bind_digest(statement, 1, digest);
	while ((step = statement_step(connection, statement, error)) > 0) {
		uint64_t part = size - done < CONTENT_CHUNK ? size - done : CONTENT_CHUNK;

		if (column_number(statement, 0) != n || part == 0)
			error_set(error, ERR_CORRUPT, "chunk %llu is missing or one too many", (unsigned long long)n);
		else
			decode_bytes(column_bytes(statement, 2), column_number(statement, 1), into + done, part, error);
		if (error->code != ERR_NONE) {
			statement_end(statement);
			return error->code;
		}
		n++;
		done += part;
	}
	if (step == 0 && done != size)
		return error_set(error, ERR_CORRUPT, "chunk %llu is missing", (unsigned long long)n);
	return error->code;
}

static int check_digest(struct bytes bytes, const struct digest *digest, struct error *error)
{
	struct digest found = digest_of(bytes);

	if (!digest_equal(&found, digest))
		return error_set(error, ERR_CORRUPT, "the bytes do not hash to their digest");
	return 0;
}

static int wrap_digest(const struct digest *digest, struct error *error)
{
	char text[DIGEST_TEXT_LEN + 1];

	digest_text(digest, text);
	return error_wrap(error, "content %s", text);
}

int content_table_read_blob(struct connection *connection, struct arena *arena, const struct digest *digest, struct bytes *bytes,
			    struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, get_blob_sql, error);
	uint64_t size, encoding;
	struct error why = {0};
	uint8_t *into;
	int step;

	if (statement == NULL)
		return error->code;
	bind_digest(statement, 1, digest);
	step = statement_step(connection, statement, error);
	if (step < 0)
		return error->code;
	if (step == 0) {
		error_set(error, ERR_NOT_FOUND, "it is not stored");
		return wrap_digest(digest, error);
	}
	size = column_number(statement, 0);
	encoding = column_number(statement, 1);
	if (size > CONTENT_MAX) {
		error_set(&why, ERR_CORRUPT, "%llu bytes, more than %d", (unsigned long long)size, CONTENT_MAX);
	} else {
		into = arena_alloc(arena, size + 1);
		into[size] = 0;
		if (encoding == CONTENT_ELSEWHERE)
			read_chunks(connection, digest, into, size, &why);
		else
			decode_bytes(column_bytes(statement, 2), encoding, into, size, &why);
		*bytes = (struct bytes){into, size};
	}
	statement_end(statement);
	if (why.code == ERR_NONE && check_digest(*bytes, digest, &why) == 0)
		return 0;
	*error = why;
	return wrap_digest(digest, error);
}

int content_table_read(struct connection *connection, struct arena *arena, uint64_t id, const struct digest *digest,
		       struct bytes *bytes, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, get_sql, error);
	struct digest stored;
	uint64_t encoding;
	int step;

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, id);
	step = statement_step(connection, statement, error);
	if (step < 0)
		return error->code;
	if (step == 0)
		return error_set(error, ERR_NOT_FOUND, "there is no content %llu", (unsigned long long)id);
	encoding = column_number(statement, 2);
	if (!column_digest(statement, 0, &stored) || (digest != NULL && !digest_equal(digest, &stored))) {
		statement_end(statement);
		return error_set(error, ERR_NOT_FOUND, "content %llu has another digest", (unsigned long long)id);
	}
	if (encoding == CONTENT_RAW)
		*bytes = arena_bytes(arena, column_bytes(statement, 3));
	statement_end(statement);
	if (encoding == CONTENT_ELSEWHERE)
		return content_table_read_blob(connection, arena, &stored, bytes, error);
	if (encoding != CONTENT_RAW) {
		error_set(error, ERR_GONE, "it is erased");
		wrap_digest(&stored, error);
		return retention_table_explain_content(connection, &stored, error);
	}
	return check_digest(*bytes, &stored, error) == 0 ? 0 : wrap_digest(&stored, error);
}

/* The entries are one stretch of the journal without gaps, so their values are one range of row ids. */
int content_table_fill(struct connection *connection, struct arena *arena, struct entry *entries, size_t count,
		       uint64_t value_max, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, get_range_sql, error);
	uint64_t first, last;
	int step;

	if (statement == NULL)
		return error->code;
	if (count == 0)
		return 0;
	first = entries[0].seq;
	last = entries[count - 1].seq;
	CHECK(last - first == count - 1);
	bind_number(statement, 1, first << 8);
	bind_number(statement, 2, (last + 1) << 8);
	while ((step = statement_step(connection, statement, error)) > 0) {
		uint64_t id = column_number(statement, 0) - 1, encoding = column_number(statement, 3);
		struct entry *entry = &entries[(id >> 8) - first];
		struct entry_value *value = &entry->values[entry->value_count];

		if ((id & 0xff) != entry->value_count || entry->value_count == ENTRY_VALUES_MAX ||
		    !column_digest(statement, 1, &value->digest)) {
			error_set(error, ERR_CORRUPT, "the values of entry %llu are damaged", (unsigned long long)entry->seq);
			break;
		}
		value->size = column_number(statement, 2);
		value->bytes = (struct bytes){0};
		entry->value_count++;
		if (value->size > value_max || encoding == CONTENT_ERASED)
			continue;
		if (encoding == CONTENT_RAW) {
			value->bytes = arena_bytes(arena, column_bytes(statement, 4));
			if (check_digest(value->bytes, &value->digest, error) != 0) {
				wrap_digest(&value->digest, error);
				break;
			}
		} else if (content_table_read_blob(connection, arena, &value->digest, &value->bytes, error) != 0) {
			break;
		}
		/* Whoever has the bytes goes by their number too. */
		if (value->bytes.len != value->size) {
			error_set(error, ERR_CORRUPT, "the values of entry %llu are damaged", (unsigned long long)entry->seq);
			break;
		}
	}
	if (step > 0)
		statement_end(statement);
	return error->code;
}

/* --- for readers -------------------------------------------------------------------------------------------------- */

/* Documents, definitions and configuration records know where their bytes lie. */
static const char find_known_sql[] =
	"SELECT content FROM document WHERE digest = ?1 UNION ALL SELECT document FROM definition WHERE digest = ?1"
	" UNION ALL SELECT f.content FROM configuration f WHERE f.record = ?1 LIMIT 1";
/* The small values of one run: its own stretches of the journal are looked through. */
static const char find_in_run_sql[] =
	"SELECT c.id FROM run r CROSS JOIN run_entry e ON e.run = r.seq CROSS JOIN content c ON c.id > (e.seq_first << 8) AND"
	" c.id <= ((e.seq_first + e.count) << 8) WHERE r.id = ?2 AND c.digest = ?1 LIMIT 1";

static int find_content(struct connection *connection, const char *sql, const struct digest *digest, const char *run_id,
			uint64_t *id, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, sql, error);
	int step;

	*id = 0;
	if (statement == NULL)
		return error->code;
	bind_digest(statement, 1, digest);
	if (run_id != NULL)
		bind_text(statement, 2, run_id);
	step = statement_step(connection, statement, error);
	if (step < 0)
		return error->code;
	if (step > 0) {
		*id = column_number(statement, 0);
		statement_end(statement);
	}
	return 0;
}

static const char get_size_sql[] = "SELECT size FROM content WHERE id = ?1";

int reader_content_size(struct store_reader *reader, uint64_t id, uint64_t *size, struct error *error)
{
	ERROR_BEGIN(error);
	sqlite3_stmt *statement = statement_take(&reader->connection, get_size_sql, error);
	int step;

	*size = 0;
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, id);
	step = statement_step(&reader->connection, statement, error);
	if (step < 0)
		return error->code;
	if (step == 0)
		return error_set(error, ERR_NOT_FOUND, "there is no content %llu", (unsigned long long)id);
	*size = column_number(statement, 0);
	statement_end(statement);
	return 0;
}

static int find_and_read(struct connection *connection, struct arena *arena, uint64_t id, const struct digest *digest, const char *run_id, struct bytes *bytes,
			 struct error *error)
{
	bool has;

	if (id != 0)
		return content_table_read(connection, arena, id, digest, bytes, error);
	if (content_table_has_blob(connection, digest, &has, error) != 0)
		return error->code;
	if (has)
		return content_table_read_blob(connection, arena, digest, bytes, error);
	if (find_content(connection, find_known_sql, digest, NULL, &id, error) != 0)
		return error->code;
	if (id == 0 && run_id != NULL && find_content(connection, find_in_run_sql, digest, run_id, &id, error) != 0)
		return error->code;
	if (id == 0) {
		error_set(error, ERR_NOT_FOUND,
			  run_id != NULL ? "neither run %s nor the stored documents have it"
					 : "it is not stored under its digest%s",
			  run_id != NULL ? run_id : "");
		wrap_digest(digest, error);
		return retention_table_explain_content(connection, digest, error);
	}
	return content_table_read(connection, arena, id, digest, bytes, error);
}

int reader_content(struct store_reader *reader, struct arena *arena, uint64_t id, const struct digest *digest, const char *run_id,
		   struct bytes *bytes, struct error *error)
{
	ERROR_BEGIN(error);

	*bytes = (struct bytes){0};
	/* Whoever read the run before may be too late for its values. */
	if (find_and_read(&reader->connection, arena, id, digest, run_id, bytes, error) == ERR_NOT_FOUND && run_id != NULL)
		return retention_table_explain_run(&reader->connection, run_id, error);
	return error->code;
}
