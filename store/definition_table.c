/* Definitions, documents, configurations and public keys: things with a digest of their own that runs refer to. Writing: the writer's
 * connection, driven by tables.c; reading: a reader. Start at definition_table_apply(). */
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"
#include "workflow/base/check.h"

static const char registered_sql[] =
	"SELECT digest FROM definition WHERE namespace = ?1 AND name = ?2 AND version = ?3 AND registered = 1";
static const char known_sql[] = "SELECT 1 FROM definition WHERE digest = ?1";
static const char insert_sql[] =
	"INSERT INTO definition(seq, namespace, name, version, digest, added_ms, registered, document, source) "
	"VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
static const char insert_document_sql[] = "INSERT INTO document(seq, digest, size, media_type, added_ms, content) VALUES(?1, ?2, "
					  "?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
static const char insert_configuration_sql[] =
	"INSERT INTO configuration(seq, runtime, digest, record, content) VALUES(?1, ?2, ?3, ?4, ?5)";

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* What is registered under the entry's name and version. */
static int find_registered(struct connection *connection, const struct entry *entry, bool *found, struct digest *digest,
			   struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, registered_sql, error);
	int step;

	*found = false;
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, text_or_empty(entry->data, "namespace"));
	bind_text(statement, 2, text_or_empty(entry->data, "name"));
	bind_text(statement, 3, text_or_empty(entry->data, "version"));
	step = statement_step(connection, statement, error);
	if (step > 0) {
		*found = column_digest(statement, 0, digest);
		statement_end(statement);
	}
	return step < 0 ? (int)error->code : 0;
}

static bool is_registered(const struct entry *entry)
{
	return json_get_boolean(entry->data, "registered", true);
}

int definition_table_check(struct connection *connection, const struct entry *entry, struct error *error)
{
	struct digest digest, registered;
	bool found;

	if (!is_registered(entry) || !json_get_digest(entry->data, "definition", &digest))
		return 0;
	if (find_registered(connection, entry, &found, &registered, error) != 0)
		return error->code;
	if (!found || digest_equal(&digest, &registered))
		return 0;
	return error_set(error, ERR_EXISTS,
			 "%.63s/%.63s:%.64s is registered already, with other content: give it another version",
			 text_or_empty(entry->data, "namespace"), text_or_empty(entry->data, "name"),
			 text_or_empty(entry->data, "version"));
}

static int is_known(struct connection *connection, const struct digest *digest, bool *known, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, known_sql, error);
	int step;

	if (statement == NULL)
		return error->code;
	bind_digest(statement, 1, digest);
	step = statement_step(connection, statement, error);
	*known = step > 0;
	if (*known)
		statement_end(statement);
	return step < 0 ? (int)error->code : 0;
}

static int apply_definition(struct connection *connection, const struct entry *entry, struct error *error)
{
	uint64_t document = 0, source = 0;
	struct digest digest, registered_digest;
	bool known, registered = is_registered(entry);
	sqlite3_stmt *statement;

	if (!json_get_digest(entry->data, "definition", &digest))
		return error_set(error, ERR_CORRUPT, "definition.added without a definition");
	/* Said again: the entry stands in the log, the table has it already. */
	if (registered) {
		if (find_registered(connection, entry, &known, &registered_digest, error) != 0)
			return error->code;
	} else if (is_known(connection, &digest, &known, error) != 0) {
		return error->code;
	}
	if (known)
		return 0;
	for (unsigned i = 0; i < entry->value_count; i++) {
		if (digest_equal(&entry->values[i].digest, &digest))
			document = CONTENT_ID(entry->seq, i);
		else if (source == 0)
			source = CONTENT_ID(entry->seq, i);
	}
	statement = statement_take(connection, insert_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, entry->seq);
	bind_text(statement, 2, text_or_empty(entry->data, "namespace"));
	bind_text(statement, 3, text_or_empty(entry->data, "name"));
	bind_text(statement, 4, text_or_empty(entry->data, "version"));
	bind_digest(statement, 5, &digest);
	bind_time(statement, 6, entry->time_ms);
	bind_number(statement, 7, registered);
	bind_number(statement, 8, document);
	if (source != 0)
		bind_number(statement, 9, source);
	return statement_run(connection, statement, error);
}

static int apply_document(struct connection *connection, const struct entry *entry, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, insert_document_sql, error);
	struct digest digest;

	if (statement == NULL)
		return error->code;
	if (!json_get_digest(entry->data, "document", &digest) || entry->value_count == 0)
		return error_set(error, ERR_CORRUPT, "document.added without a document");
	bind_number(statement, 1, entry->seq);
	bind_digest(statement, 2, &digest);
	bind_number(statement, 3, entry->values[0].size);
	bind_text(statement, 4, text_or_empty(entry->data, "mediaType"));
	bind_time(statement, 5, entry->time_ms);
	bind_number(statement, 6, CONTENT_ID(entry->seq, 0));
	return statement_run(connection, statement, error);
}

static int apply_configuration(struct connection *connection, const struct entry *entry, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, insert_configuration_sql, error);
	struct digest digest;

	if (statement == NULL)
		return error->code;
	if (!json_get_digest(entry->data, "configuration", &digest) || entry->value_count == 0)
		return error_set(error, ERR_CORRUPT, "config.loaded without a record");
	bind_number(statement, 1, entry->seq);
	bind_text(statement, 2, text_or_empty(entry->data, "runtime"));
	bind_digest(statement, 3, &digest);
	bind_digest(statement, 4, &entry->values[0].digest);
	bind_number(statement, 5, CONTENT_ID(entry->seq, 0));
	return statement_run(connection, statement, error);
}

static const char insert_key_sql[] = "INSERT INTO public_key(seq, purpose, key_id, public) VALUES(?1, ?2, ?3, ?4)";

static int apply_key(struct connection *connection, const struct entry *entry, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, insert_key_sql, error);

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, entry->seq);
	bind_text(statement, 2, text_or_empty(entry->data, "purpose"));
	bind_text(statement, 3, text_or_empty(entry->data, "keyid"));
	bind_text(statement, 4, text_or_empty(entry->data, "public"));
	return statement_run(connection, statement, error);
}

int definition_table_apply(struct connection *connection, const struct entry *entry, struct error *error)
{
	switch (entry->kind) {
	case ENTRY_DEFINITION_ADDED:
		return apply_definition(connection, entry, error);
	case ENTRY_DOCUMENT_ADDED:
		return apply_document(connection, entry, error);
	case ENTRY_CONFIG_LOADED:
		return apply_configuration(connection, entry, error);
	case ENTRY_KEY_ADDED:
		return apply_key(connection, entry, error);
	default:
		return 0;
	}
}

static const char newest_key_sql[] = "SELECT key_id FROM public_key WHERE purpose = ?1 ORDER BY seq DESC LIMIT 1";

int definition_table_key_is_newest(struct connection *connection, const char *purpose, const char *key_id, bool *newest,
				   struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, newest_key_sql, error);
	int step;

	*newest = false;
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, purpose);
	step = statement_step(connection, statement, error);
	if (step > 0) {
		*newest = strcmp((const char *)sqlite3_column_text(statement, 0), key_id) == 0;
		statement_end(statement);
	}
	return step < 0 ? (int)error->code : 0;
}

/* --- for readers: definitions ------------------------------------------------------------------------------------- */

#define DEFINITION_COLUMNS "seq, namespace, name, version, digest, added_ms"
static const char get_sql[] =
	"SELECT " DEFINITION_COLUMNS " FROM definition WHERE namespace = ?1 AND name = ?2 AND version = ?3 AND registered = 1";
static const char versions_sql[] =
	"SELECT " DEFINITION_COLUMNS " FROM definition WHERE namespace = ?1 AND name = ?2 AND registered = 1";
static const char list_sql[] =
	"SELECT " DEFINITION_COLUMNS " FROM definition WHERE registered = 1 AND seq < ?1 ORDER BY seq DESC LIMIT ?2";
static const char bodies_sql[] = "SELECT document, source FROM definition WHERE digest = ?1 LIMIT 1";

/* At the row of the thing with this digest; the caller ends the statement. NULL: error is set. */
static sqlite3_stmt *find_by_digest(struct connection *connection, const char *sql, const char *what, const struct digest *digest,
				    struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, sql, error);
	char text[DIGEST_TEXT_LEN + 1];
	int step;

	if (statement == NULL)
		return NULL;
	bind_digest(statement, 1, digest);
	step = statement_step(connection, statement, error);
	if (step > 0)
		return statement;
	if (step == 0) {
		digest_text(digest, text);
		error_set(error, ERR_NOT_FOUND, "there is no %s %s", what, text);
	}
	return NULL;
}

static void read_definition(sqlite3_stmt *statement, struct arena *arena, struct store_definition *definition)
{
	*definition = (struct store_definition){
		.seq = column_number(statement, 0),
		.namespace = column_text(statement, 1, arena),
		.name = column_text(statement, 2, arena),
		.version = column_text(statement, 3, arena),
		.added_ms = (int64_t)column_number(statement, 5),
	};
	column_digest(statement, 4, &definition->digest);
}

/* Numbers of any length: by length without leading zeros (which versions do not have), then by digits. */
static int compare_numbers(const char *a, size_t a_len, const char *b, size_t b_len)
{
	if (a_len != b_len)
		return a_len < b_len ? -1 : 1;
	return strncmp(a, b, a_len);
}

static bool all_digits(const char *text, size_t len)
{
	return strspn(text, "0123456789") >= len;
}

/* Semantic Versioning 2.0.0, section 11: precedence; the build part does not count. */
static int compare_versions(const char *a, const char *b)
{
	size_t a_len, b_len;

	for (int i = 0; i < 3; i++) {
		int order;

		a_len = strcspn(a, ".-+");
		b_len = strcspn(b, ".-+");
		order = compare_numbers(a, a_len, b, b_len);
		if (order != 0)
			return order;
		a += a_len + (a[a_len] == '.');
		b += b_len + (b[b_len] == '.');
	}
	if (*a != '-' || *b != '-')
		return (*a != '-') - (*b != '-'); /* A release stands above its own pre-releases. */
	do {
		bool a_number, b_number;
		int order;

		a++;
		b++;
		a_len = strcspn(a, ".+");
		b_len = strcspn(b, ".+");
		a_number = all_digits(a, a_len);
		b_number = all_digits(b, b_len);
		if (a_number && b_number)
			order = compare_numbers(a, a_len, b, b_len);
		else if (a_number != b_number)
			order = a_number ? -1 : 1;
		else if ((order = strncmp(a, b, a_len < b_len ? a_len : b_len)) == 0)
			order = (a_len > b_len) - (a_len < b_len);
		if (order != 0)
			return order;
		a += a_len;
		b += b_len;
	} while (*a == '.' && *b == '.');
	return (*a == '.') - (*b == '.');
}

int reader_definition(struct store_reader *reader, struct arena *arena, const char *namespace, const char *name,
		      const char *version, struct store_definition *definition, struct error *error)
{
	sqlite3_stmt *statement;
	bool found = false;
	int step;

	ERROR_BEGIN(error);
	statement = statement_take(&reader->connection, version != NULL ? get_sql : versions_sql, error);
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, namespace);
	bind_text(statement, 2, name);
	if (version != NULL)
		bind_text(statement, 3, version);
	while ((step = statement_step(&reader->connection, statement, error)) > 0) {
		struct store_definition other;

		read_definition(statement, arena, &other);
		if (!found || compare_versions(other.version, definition->version) > 0)
			*definition = other;
		found = true;
	}
	if (step == 0 && !found)
		return error_set(error, ERR_NOT_FOUND, "there is no definition %.63s/%.63s%s%.64s", namespace, name,
				 version ? ":" : "", version ? version : "");
	return error->code;
}

int reader_definitions(struct store_reader *reader, struct arena *arena, uint64_t before_seq, size_t limit,
		       struct store_definition **definitions, size_t *count, struct error *error)
{
	sqlite3_stmt *statement;
	size_t cap = 0;

	ERROR_BEGIN(error);
	*definitions = NULL;
	*count = 0;
	statement = statement_take(&reader->connection, list_sql, error);
	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, before_seq != 0 ? before_seq : INT64_MAX);
	bind_number(statement, 2, limit == 0 ? 100 : limit > STORE_PAGE_MAX ? STORE_PAGE_MAX : limit);
	while (statement_step(&reader->connection, statement, error) > 0) {
		*definitions = arena_grow(arena, *definitions, *count, &cap, sizeof(**definitions));
		read_definition(statement, arena, &(*definitions)[(*count)++]);
	}
	return error->code;
}

int reader_definition_document(struct store_reader *reader, struct arena *arena, const struct digest *digest,
			       struct bytes *document, struct bytes *source, struct error *error)
{
	struct connection *connection = &reader->connection;
	uint64_t document_id, source_id;
	sqlite3_stmt *statement;

	ERROR_BEGIN(error);
	statement = find_by_digest(connection, bodies_sql, "definition", digest, error);
	if (statement == NULL)
		return error->code;
	document_id = column_number(statement, 0);
	source_id = column_number(statement, 1);
	statement_end(statement);
	if (content_table_read(connection, arena, document_id, digest, document, error) != 0)
		return error->code;
	if (source == NULL)
		return 0;
	*source = *document; /* Registered as canonical JSON: the source is the document. */
	return source_id != 0 ? content_table_read(connection, arena, source_id, NULL, source, error) : 0;
}

/* --- for readers: documents and configurations -------------------------------------------------------------------- */

static const char get_document_sql[] = "SELECT seq, size, media_type, added_ms FROM document WHERE digest = ?1";
static const char get_configuration_sql[] = "SELECT content FROM configuration WHERE digest = ?1 ORDER BY seq DESC LIMIT 1";
static const char newest_configuration_sql[] = "SELECT digest FROM configuration WHERE runtime = ?1 ORDER BY seq DESC LIMIT 1";

int reader_document(struct store_reader *reader, struct arena *arena, const struct digest *digest,
		    struct store_document *document, struct error *error)
{
	sqlite3_stmt *statement;

	ERROR_BEGIN(error);
	statement = find_by_digest(&reader->connection, get_document_sql, "document", digest, error);
	if (statement == NULL)
		return error->code;
	*document = (struct store_document){
		.seq = column_number(statement, 0),
		.digest = *digest,
		.size = column_number(statement, 1),
		.media_type = column_text(statement, 2, arena),
		.added_ms = (int64_t)column_number(statement, 3),
	};
	statement_end(statement);
	return 0;
}

int reader_configuration(struct store_reader *reader, struct arena *arena, const struct digest *digest, struct bytes *record,
			 struct error *error)
{
	sqlite3_stmt *statement;
	uint64_t content;

	ERROR_BEGIN(error);
	statement = find_by_digest(&reader->connection, get_configuration_sql, "configuration", digest, error);
	if (statement == NULL)
		return error->code;
	content = column_number(statement, 0);
	statement_end(statement);
	return content_table_read(&reader->connection, arena, content, NULL, record, error);
}

int reader_configuration_of(struct store_reader *reader, struct arena *arena, const char *runtime, struct digest *digest,
			    struct error *error)
{
	sqlite3_stmt *statement;
	int step;

	(void)arena;
	ERROR_BEGIN(error);
	statement = statement_take(&reader->connection, newest_configuration_sql, error);
	if (statement == NULL)
		return error->code;
	bind_text(statement, 1, runtime);
	step = statement_step(&reader->connection, statement, error);
	if (step < 0)
		return error->code;
	if (step == 0)
		return error_set(error, ERR_NOT_FOUND, "no configuration of runtime %.64s is recorded", runtime);
	column_digest(statement, 0, digest);
	statement_end(statement);
	return 0;
}
