/* The log itself: journal (leaves), entry (bytes), journal_node (every eighth level of the tree). Writing: the writer's
 * connection; reading: any. Start at entry_table_put(); proofs start at entry_table_read_node(). */
#include <stdio.h>
#include <string.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"

static const char put_leaf_sql[] = "INSERT INTO journal(seq, leaf) VALUES(?1, ?2)";
static const char put_entry_sql[] = "INSERT INTO entry(seq, bytes) VALUES(?1, ?2)";
static const char put_node_sql[] = "INSERT INTO journal_node(level, idx, hash) VALUES(?1, ?2, ?3)";
static const char get_leaf_sql[] = "SELECT leaf FROM journal WHERE seq = ?1";
static const char get_node_sql[] = "SELECT hash FROM journal_node WHERE level = ?1 AND idx = ?2";
static const char get_entry_sql[] = "SELECT bytes FROM entry WHERE seq = ?1";
static const char size_sql[] = "SELECT coalesce(max(seq) + 1, 0) FROM journal";
/* The end of a tile may be pruned (its leaves are gone, its node stays), so the nodes have a word in the size, too. */
static const char node_size_sql[] = "SELECT coalesce((max(idx) + 1) * 256, 0) FROM journal_node WHERE level = 8";
static const char all_sql[] = "SELECT seq, bytes FROM entry";
static const char from_sql[] = "SELECT seq, bytes FROM entry WHERE seq >= ?1 ORDER BY seq LIMIT ?2";

int entry_table_put_leaf(struct connection *connection, uint64_t seq, const struct digest *leaf, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, put_leaf_sql, error);

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, seq);
	bind_digest(statement, 2, leaf);
	return statement_run(connection, statement, error);
}

int entry_table_put(struct connection *connection, uint64_t seq, const struct digest *leaf, struct bytes bytes,
		    struct error *error)
{
	sqlite3_stmt *statement;

	if (entry_table_put_leaf(connection, seq, leaf, error) != 0)
		return error->code;
	statement = statement_take(connection, put_entry_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, seq);
	bind_bytes(statement, 2, bytes);
	return statement_run(connection, statement, error);
}

int entry_table_put_node(struct connection *connection, unsigned level, uint64_t index, const struct digest *hash,
			 struct error *error)
{
	sqlite3_stmt *statement;

	if (level % STORE_NODE_LEVELS != 0)
		return 0;
	statement = statement_take(connection, put_node_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, level);
	bind_number(statement, 2, index);
	bind_digest(statement, 3, hash);
	return statement_run(connection, statement, error);
}

int entry_table_size(struct connection *connection, uint64_t *size, struct error *error)
{
	int64_t leaves, nodes;

	if (connection_number(connection, size_sql, &leaves, error) != 0 ||
	    connection_number(connection, node_size_sql, &nodes, error) != 0)
		return error->code;
	*size = (uint64_t)(leaves > nodes ? leaves : nodes);
	return 0;
}

/* Levels between the stored ones are folded from the nearest below: at most 128 rows. */
int entry_table_read_node(void *arg, unsigned level, uint64_t index, struct digest *hash)
{
	struct connection *connection = arg;
	struct error error = {0};
	struct digest left, right;
	sqlite3_stmt *statement;
	bool found;

	if (level % STORE_NODE_LEVELS != 0) {
		if (entry_table_read_node(arg, level - 1, index * 2, &left) != 0 ||
		    entry_table_read_node(arg, level - 1, index * 2 + 1, &right) != 0)
			return -1;
		*hash = log_tree_node(&left, &right);
		return 0;
	}
	statement = statement_take(connection, level == 0 ? get_leaf_sql : get_node_sql, &error);
	if (statement == NULL)
		return -1;
	if (level == 0) {
		bind_number(statement, 1, index);
	} else {
		bind_number(statement, 1, level);
		bind_number(statement, 2, index);
	}
	if (statement_step(connection, statement, &error) <= 0)
		return -1;
	found = column_digest(statement, 0, hash);
	statement_end(statement);
	return found ? 0 : -1;
}

int entry_table_load_tree(struct connection *connection, struct log_tree *tree, struct error *error)
{
	uint64_t size;

	log_tree_init(tree);
	if (entry_table_size(connection, &size, error) != 0)
		return error->code;
	tree->size = size;
	for (unsigned level = 0; level < LOG_TREE_LEVELS_MAX; level++)
		if ((size >> level) & 1)
			if (entry_table_read_node(connection, level, (size >> level) - 1, &tree->peak[level]) != 0)
				return error_set(
					error, ERR_CORRUPT,
					"journal-seq: a leaf or node under (%u, %llu) is missing of the tree of %llu entries",
					level, (unsigned long long)((size >> level) - 1), (unsigned long long)size);
	return 0;
}

int entry_table_bytes(struct connection *connection, struct arena *arena, uint64_t seq, struct bytes *bytes, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, get_entry_sql, error);
	int step;

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, seq);
	step = statement_step(connection, statement, error);
	if (step < 0)
		return error->code;
	if (step == 0)
		return error_set(error, ERR_NOT_FOUND, "there is no entry %llu", (unsigned long long)seq);
	*bytes = arena_bytes(arena, column_bytes(statement, 0));
	statement_end(statement);
	return 0;
}

int entry_table_decode(struct arena *arena, uint64_t seq, struct bytes bytes, const char *origin, struct entry *entry, struct error *error)
{
	if (entry_decode(arena, bytes, origin, entry, error) == 0 && entry->seq != seq)
		error_set(error, ERR_CORRUPT, "journal-seq: entry %llu says that it is %llu", (unsigned long long)seq, (unsigned long long)entry->seq);
	return (int)error->code;
}

int entry_table_origin(struct connection *connection, struct arena *arena, const char **origin, const char **vkey,
		       struct error *error)
{
	struct note_key key;
	struct error why = {0};
	struct bytes bytes;
	struct entry entry;
	struct json *json;

	if (entry_table_bytes(connection, arena, 0, &bytes, error) != 0)
		return error_wrap(error, "read journal.opened");
	if (entry_decode(arena, bytes, NULL, &entry, error) != 0)
		return error_wrap(error, "read journal.opened");
	if (entry.kind != ENTRY_JOURNAL_OPENED || entry.seq != 0 || json_get_text(entry.data, "vkey") == NULL)
		return error_set(error, ERR_CORRUPT, "journal-entry: entry 0 is not journal.opened with a vkey");
	json = json_parse(arena, bytes, JSON_STORED, NULL, error);
	CHECK(json != NULL);
	*origin = json_get_text(json, "log");
	*vkey = json_get_text(entry.data, "vkey");
	/* A verifier key bounds the name in it; who reads on relies on that. */
	if (note_key_parse(&key, *vkey, &why) != 0)
		return error_set(error, ERR_CORRUPT, "journal-entry: the vkey of entry 0: %s", why.message);
	if (strcmp(key.name, *origin) != 0)
		return error_set(error, ERR_CORRUPT, "journal-entry: the vkey of entry 0 is not of the log that it names");
	return 0;
}

/* --- for readers -------------------------------------------------------------------------------------------------- */

/* The kind without parsing: everything behind it has a known length, as the form is canonical, and origins are short
 * (NOTE_NAME_MAX) and hold no character that JSON escapes. */
static bool raw_kind(struct bytes bytes, const char *origin, uint64_t seq, enum entry_kind *kind)
{
	char tail[NOTE_NAME_MAX + 64], name[64];
	int head = snprintf(tail, sizeof(tail), "\",\"log\":\"%s\",\"seq\":%llu,\"ts\":\"", origin, (unsigned long long)seq);
	size_t end, start, tail_len = (size_t)head + TIME_TEXT_LEN + sizeof("\",\"v\":1}") - 1;

	CHECK(head < (int)sizeof(tail));
	if (bytes.len <= tail_len || memcmp(bytes.data + bytes.len - tail_len, tail, (size_t)head) != 0)
		return false;
	end = start = bytes.len - tail_len;
	while (start > 0 && bytes.data[start - 1] != '"')
		start--;
	if (end - start >= sizeof(name))
		return false;
	memcpy(name, bytes.data + start, end - start);
	name[end - start] = '\0';
	return entry_kind_parse(name, kind);
}

int entry_table_count_kinds(struct connection *connection, const char *origin, uint64_t counts[ENTRY_KIND_COUNT], uint64_t bytes[ENTRY_KIND_COUNT], struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, all_sql, error);

	if (statement == NULL)
		return error->code;
	while (statement_step(connection, statement, error) > 0) {
		struct bytes text = column_bytes(statement, 1);
		enum entry_kind kind;

		if (!raw_kind(text, origin, column_number(statement, 0), &kind))
			continue; /* `journal verify` says what is wrong with it */
		counts[kind]++;
		bytes[kind] += text.len;
	}
	return error->code;
}

int reader_entries(struct store_reader *reader, struct arena *arena, uint64_t from_seq, uint64_t kinds, size_t limit,
		   struct store_raw_entry **entries, size_t *count, uint64_t *next, struct error *error)
{
	ERROR_BEGIN(error);
	sqlite3_stmt *statement = statement_take(&reader->connection, from_sql, error);
	size_t cap = 0, bytes_sum = 0;
	int step;

	*entries = NULL;
	*count = 0;
	*next = from_seq;
	if (statement == NULL)
		return error->code;
	if (from_seq > INT64_MAX)
		return 0; /* Nothing stands behind the last row that there can be. */
	if (limit == 0)
		limit = 100;
	if (limit > STORE_PAGE_MAX)
		limit = STORE_PAGE_MAX;
	bind_number(statement, 1, from_seq);
	bind_number(statement, 2, STORE_PAGE_MAX);
	while (*count < limit && bytes_sum < STORE_PAGE_BYTES_MAX) {
		struct store_raw_entry raw;
		enum entry_kind kind;

		step = statement_step(&reader->connection, statement, error);
		if (step <= 0)
			return step == 0 ? 0 : (int)error->code;
		raw.seq = column_number(statement, 0);
		raw.bytes = column_bytes(statement, 1);
		*next = raw.seq + 1;
		if (kinds != 0 && raw_kind(raw.bytes, reader->origin, raw.seq, &kind) && !((kinds >> kind) & 1))
			continue; /* One whose kind cannot be seen is handed out: the caller decodes it and says what is wrong. */
		*entries = arena_grow(arena, *entries, *count, &cap, sizeof(**entries));
		raw.bytes = arena_bytes(arena, raw.bytes);
		bytes_sum += raw.bytes.len;
		(*entries)[(*count)++] = raw;
	}
	statement_end(statement);
	return 0;
}

int reader_log_size(struct store_reader *reader, uint64_t *size, struct error *error)
{
	ERROR_BEGIN(error);
	return entry_table_size(&reader->connection, size, error);
}

int reader_leaf(struct store_reader *reader, unsigned level, uint64_t index, struct digest *hash, struct error *error)
{
	ERROR_BEGIN(error);
	bool pruned = false, leaves;
	struct digest root;
	uint64_t first;

	if (level >= LOG_TREE_LEVELS_MAX || index > (uint64_t)INT64_MAX >> level)
		return error_set(error, ERR_NOT_FOUND, "the tree has no subtree (%u, %llu)", level, (unsigned long long)index);
	if (entry_table_read_node(&reader->connection, level, index, hash) == 0)
		return 0;
	first = index << level;
	if (level < STORE_NODE_LEVELS && retention_table_tile(&reader->connection, first / STORE_TILE, &root, &leaves, &pruned, error) != 0)
		return error->code;
	if (pruned)
		return error_set(error, ERR_GONE, "entries %llu to %llu were pruned: of the tree only the root over them is left", (unsigned long long)(first / STORE_TILE * STORE_TILE),
				 (unsigned long long)(first / STORE_TILE * STORE_TILE + STORE_TILE - 1));
	return error_set(error, ERR_NOT_FOUND, "the tree has no subtree (%u, %llu)", level, (unsigned long long)index);
}

int reader_entry(struct store_reader *reader, struct arena *arena, const struct store_raw_entry *raw, uint64_t value_max, struct entry *entry, struct error *error)
{
	ERROR_BEGIN(error);
	if (entry_table_decode(arena, raw->seq, raw->bytes, NULL, entry, error) != 0)
		return error->code;
	return content_table_fill(&reader->connection, arena, entry, 1, value_max, error);
}
