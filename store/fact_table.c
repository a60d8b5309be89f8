/* Facts: one row for each fact.recorded. Writing: the writer's connection, driven by tables.c; reading: a reader.
 * Start at fact_table_apply() and reader_facts(). */
#include <string.h>

#include "store/internal.h"
#include "workflow/base/check.h"

static const char insert_sql[] =
	"INSERT INTO fact(seq, id, accepted, run, runtime, class, document) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)";

int fact_table_apply(struct connection *connection, uint64_t run, const struct entry *entry, struct error *error)
{
	const char *verdict = json_get_text(entry->data, "verdict"), *runtime = json_get_text(entry->data, "runtime"),
		   *class = json_get_text(entry->data, "class");
	struct digest id, document = {0};
	sqlite3_stmt *statement = statement_take(connection, insert_sql, error);

	if (statement == NULL)
		return error->code;
	/* At append the writer adds the payload's digest to its own copy of the data; the statement is values[0] there. */
	if (!json_get_digest(entry->data, "payload", &id)) {
		CHECK(entry->value_count > 0);
		id = entry->values[0].digest;
	}
	json_get_digest(entry->data, "document", &document);
	bind_number(statement, 1, entry->seq);
	bind_digest(statement, 2, &id);
	bind_number(statement, 3, verdict != NULL && strcmp(verdict, "PASSED") == 0);
	bind_number(statement, 4, run);
	bind_text(statement, 5, runtime != NULL ? runtime : "");
	bind_text(statement, 6, class != NULL ? class : "unmeasured");
	bind_digest(statement, 7, &document);
	return statement_run(connection, statement, error);
}

/* --- for readers -------------------------------------------------------------------------------------------------- */

/* A fact outlives its run when retention keeps it. */
#define FACT_COLUMNS "f.seq, f.id, f.accepted, coalesce(r.id, k.id, ''), f.runtime, f.class, f.document"
#define FACT_RUN " LEFT JOIN run r ON r.seq = f.run LEFT JOIN kept_run k ON k.run = f.run"
static const char by_id_sql[] =
	"SELECT " FACT_COLUMNS
	" FROM fact f" FACT_RUN " WHERE f.id >= ?1 AND f.id <= ?2 ORDER BY f.id LIMIT 2";

static void read_fact(sqlite3_stmt *statement, struct arena *arena, struct store_fact *fact)
{
	*fact = (struct store_fact){
		.seq = column_number(statement, 0),
		.accepted = column_number(statement, 2) != 0,
		.run_id = column_text(statement, 3, arena),
		.runtime = column_text(statement, 4, arena),
		.reproducibility_class = column_text(statement, 5, arena),
	};
	column_digest(statement, 1, &fact->id);
	column_digest(statement, 6, &fact->document);
}

static sqlite3_stmt *make_query(struct store_reader *reader, const struct store_fact_filter *filter, struct error *error)
{
	struct buffer sql;
	sqlite3_stmt *statement;
	int index;

	buffer_init(&sql, 8192);
	buffer_add_text(&sql, "SELECT " FACT_COLUMNS " FROM ");
	/* The facts of a run lie in its own stretches of the journal: no index of facts by run is needed. */
	if (filter->run_id != NULL)
		buffer_add_text(&sql, "run r CROSS JOIN run_entry e ON e.run = r.seq CROSS JOIN fact f ON f.seq >= e.seq_first "
				      "AND f.seq < e.seq_first + e.count LEFT JOIN kept_run k ON k.run = f.run"
				      " WHERE r.id = :run AND e.seq_first + e.count > :after AND f.seq > :after");
	else
		buffer_add_text(&sql, "fact f" FACT_RUN " WHERE f.seq > :after");
	if (!filter->rejected_too)
		buffer_add_text(&sql, " AND f.accepted = 1");
	if (filter->namespace != NULL)
		buffer_add_text(&sql, " AND coalesce(r.namespace, k.namespace) = :namespace");
	if (filter->name != NULL)
		buffer_add_text(&sql, " AND coalesce(r.name, k.name) = :name");
	if (filter->runtime != NULL)
		buffer_add_text(&sql, " AND f.runtime = :runtime");
	if (filter->reproducibility_class != NULL)
		buffer_add_text(&sql, " AND f.class = :class");
	if (filter->document != NULL)
		buffer_add_text(&sql, " AND f.document = :document");
	buffer_add_text(&sql, filter->run_id != NULL ? " ORDER BY e.seq_first, f.seq" : " ORDER BY f.seq");
	CHECK(!sql.overflow);
	statement = statement_make(&reader->connection, buffer_text(&sql), error);
	buffer_close(&sql);
	if (statement == NULL)
		return NULL;
	bind_named_text(statement, ":run", filter->run_id);
	bind_named_text(statement, ":namespace", filter->namespace);
	bind_named_text(statement, ":name", filter->name);
	bind_named_text(statement, ":runtime", filter->runtime);
	bind_named_text(statement, ":class", filter->reproducibility_class);
	/* Entry 0 is journal.opened, so "after 0" is the beginning of all facts. */
	bind_named_number(statement, ":after", filter->from_start ? 0 : filter->after_seq);
	index = sqlite3_bind_parameter_index(statement, ":document");
	if (index > 0)
		bind_digest(statement, index, filter->document);
	return statement;
}

int reader_facts(struct store_reader *reader, struct arena *arena, const struct store_fact_filter *filter,
		 struct store_fact **facts, size_t *count, struct error *error)
{
	size_t cap = 0, limit = filter->limit == 0 ? 100 : filter->limit > STORE_PAGE_MAX ? STORE_PAGE_MAX : filter->limit;
	sqlite3_stmt *statement;

	ERROR_BEGIN(error);
	*facts = NULL;
	*count = 0;
	statement = make_query(reader, filter, error);
	if (statement == NULL)
		return error->code;
	while (*count < limit && statement_step(&reader->connection, statement, error) > 0) {
		*facts = arena_grow(arena, *facts, *count, &cap, sizeof(**facts));
		read_fact(statement, arena, &(*facts)[(*count)++]);
	}
	sqlite3_finalize(statement);
	return error->code;
}

int reader_fact(struct store_reader *reader, struct arena *arena, const char *id_prefix, struct store_fact *fact,
		struct error *error)
{
	sqlite3_stmt *statement;

	ERROR_BEGIN(error);
	statement = statement_find_digest(&reader->connection, by_id_sql, id_prefix, 1, "fact", error);
	if (statement == NULL)
		return error->code;
	read_fact(statement, arena, fact); /* the same statement recorded twice: the older entry stands */
	statement_end(statement);
	return 0;
}

int reader_fact_record(struct store_reader *reader, struct arena *arena, uint64_t seq, struct store_fact_record *record,
		       struct error *error)
{
	struct connection *connection = &reader->connection;
	struct entry entry;
	struct digest digest;
	struct buffer signature;
	const struct json *first;
	const char *key_id, *sig;

	ERROR_BEGIN(error);
	memset(record, 0, sizeof(*record));
	if (entry_table_bytes(connection, arena, seq, &record->entry, error) != 0 ||
	    entry_table_decode(arena, seq, record->entry, reader->origin, &entry, error) != 0)
		return error->code;
	if (entry.kind != ENTRY_FACT_RECORDED)
		return error_set(error, ERR_NOT_FOUND, "entry %llu is no fact but %s", (unsigned long long)seq,
				 entry_kind_name(entry.kind));
	first = json_at(json_get(entry.data, "signatures"), 0);
	key_id = json_get_text(first, "keyid");
	sig = json_get_text(first, "sig");
	buffer_init(&signature, 256);
	if (key_id == NULL || strlen(key_id) != KEY_ID_LEN || sig == NULL || !base64_decode(bytes_text(sig), &signature) ||
	    signature.len != KEY_SIGNATURE_LEN) {
		error_set(error, ERR_CORRUPT, "entry-mismatch: entry %llu holds no signature", (unsigned long long)seq);
	} else {
		memcpy(record->signature.key_id, key_id, KEY_ID_LEN + 1);
		memcpy(record->signature.signature, signature.data, KEY_SIGNATURE_LEN);
	}
	buffer_close(&signature);
	if (error->code != ERR_NONE || content_table_fill(connection, arena, &entry, 1, CONTENT_MAX, error) != 0)
		return error->code;
	for (size_t i = 0; i < entry.value_count; i++) {
		if (json_get_digest(entry.data, "payload", &digest) && digest_equal(&digest, &entry.values[i].digest))
			record->payload = entry.values[i].bytes;
		if (json_get_digest(entry.data, "fact", &digest) && digest_equal(&digest, &entry.values[i].digest))
			record->fact = entry.values[i].bytes;
	}
	if (record->payload.data == NULL)
		return error_set(error, ERR_NOT_FOUND, "the statement of entry %llu is erased", (unsigned long long)seq);
	return 0;
}
