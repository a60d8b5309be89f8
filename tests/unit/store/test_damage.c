/* Rows that no writer writes. A journal that somebody, or a disk, has changed: whatever is asked of it is refused, and told with what is wrong and
 * where; nothing is made up, and nothing of it ends the process. Each case is one change to a copy of the same journal and one question that is
 * answered without it. Changes to the tables that follow from the entries: test_tables.c; to the log's tail: test_open.c. Start at cases[]. */
#include "tests/unit/store/fixture.h"

/* Where things stand in that journal; behind journal.opened and the two keys. */
#define DEFINITION 3
#define DOCUMENT 4
#define EVENT 5
#define RUN 6
#define SMALL 7 /* two values in `content` */
#define LARGE 8 /* one that is compressed in `blob`, one that cannot be */
#define HUGE 9 /* three chunks of a kind, which cannot be compressed */
#define FACT 10
#define GATE 11
#define END 12
#define TEXT_OF(n) #n
#define TEXT(n) TEXT_OF(n)
#define VALUE(seq, slot) "((" TEXT(seq) " << 8) + " #slot " + 1)"
/* What keeps an honest hand from it is taken away first. */
#define OPEN_ALL "PRAGMA ignore_check_constraints = ON; DROP TRIGGER entry_update; DROP TRIGGER entry_delete; DROP TRIGGER journal_update; DROP TRIGGER journal_delete; DROP TRIGGER checkpoint_update;"
#define EDIT(seq, from, to) OPEN_ALL "UPDATE entry SET bytes = CAST(replace(CAST(bytes AS TEXT), '" from "', '" to "') AS BLOB) WHERE seq = " TEXT(seq)
/* A value's row, its bytes changed and still as many. */
#define FLIP(table, where) "UPDATE " table " SET bytes = CAST(x'ff' || substr(bytes, 2) AS BLOB) WHERE " where

static struct bytes noise(struct arena *arena, size_t len, uint32_t seed)
{
	uint8_t *data = arena_alloc(arena, len);

	for (size_t i = 0; i < len; i++) {
		seed = seed * 1664525u + 1013904223u;
		data[i] = (uint8_t)(seed >> 24);
	}
	return (struct bytes){data, len};
}

static void make_other(struct arena *arena, struct entry *entry, enum entry_kind kind)
{
	*entry = (struct entry){.kind = kind, .data = json_object(arena), .time_ms = fixture_wall_ms()};
}

static void write_journal(struct fixture *f)
{
	struct arena *arena = &f->arena;
	struct entry entries[END - DEFINITION], *next = entries;
	struct digest key = digest_of(BYTES_OF("key"));
	struct bytes statement = BYTES_OF("{\"statement\":1}");
	struct store_append append;
	uint8_t *same = arena_zero(arena, CONTENT_SMALL_MAX * 2);

	make_other(arena, next, ENTRY_DEFINITION_ADDED);
	json_set_text(arena, next->data, "namespace", "tests");
	json_set_text(arena, next->data, "name", "one");
	json_set_text(arena, next->data, "version", "1.0.0");
	entry_add_value(arena, next, "source", BYTES_OF("n: 1"));
	entry_add_value(arena, next++, "definition", BYTES_OF("{\"n\":1}"));
	make_other(arena, next, ENTRY_DOCUMENT_ADDED);
	json_set_text(arena, next->data, "mediaType", "text/plain");
	entry_add_value(arena, next++, "document", BYTES_OF("a document"));
	make_other(arena, next, ENTRY_EVENT_RECEIVED);
	json_set_digest(arena, next->data, "key", &key);
	entry_add_value(arena, next++, "event", BYTES_OF("{\"id\":\"1\"}"));
	make_created(arena, next++, "run", "one", "{\"team\":\"a\"}");
	make_step(arena, next, ENTRY_TASK_COMPLETED, "run", "/do/0/a@1", BYTES_OF("\"an output\""));
	entry_add_value(arena, next++, "more", BYTES_OF("\"more of it\""));
	make_step(arena, next, ENTRY_TASK_COMPLETED, "run", "/do/1/b@1", (struct bytes){same, CONTENT_SMALL_MAX * 2});
	entry_add_value(arena, next++, "more", noise(arena, CONTENT_SMALL_MAX * 2, 1));
	make_step(arena, next++, ENTRY_TASK_COMPLETED, "run", "/do/2/c@1", noise(arena, 2 * CONTENT_CHUNK + 5, 2));
	make_step(arena, next, ENTRY_FACT_RECORDED, "run", "/do/3/d@1", (struct bytes){0});
	next->statement = statement;
	next->values[next->value_count++] = (struct entry_value){digest_of(statement), statement, statement.len};
	json_set_text(arena, next->data, "verdict", "PASSED");
	json_set_digest(arena, next->data, "document", &key);
	entry_add_value(arena, next++, "fact", BYTES_OF("{\"object\":1}"));
	make_step(arena, next, ENTRY_GATE_RECORDED, "run", "/do/4/e@1", (struct bytes){0});
	json_set_text(arena, next->data, "runtime", "sim");
	json_set_text(arena, next->data, "class", "unstable");
	entry_add_value(arena, next++, "report", BYTES_OF("{\"report\":1}"));
	ck_assert_ptr_eq(next, entries + COUNT_OF(entries));
	ck_assert_msg(append_and_wait(f, entries, COUNT_OF(entries), &append) == 0, "%s", f->error.message);
	ck_assert_uint_eq(append.seq_first, DEFINITION);
	make_step(arena, &entries[0], ENTRY_RUN_COMPLETED, "run", NULL, (struct bytes){0});
	append_ok(f, entries, 1);
}

/* --- questions ---------------------------------------------------------------------------------------------------------------- */

struct question {
	uint64_t value; /* CONTENT_ID */
};

typedef int ask(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error);

/* Nothing but who it is. */
static int ask_nothing(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error)
{
	struct note_key key;

	(void)f;
	(void)question;
	return store_reader_log_key(reader, &key, error);
}

static int ask_run(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error)
{
	struct entry *entries;
	size_t count;

	(void)question;
	if (reader_run_entries(reader, &f->arena, "run", 0, 100, CONTENT_MAX, &entries, &count, error) == 0)
		ck_assert_uint_eq(count, END - RUN + 1);
	return (int)error->code;
}

static int ask_value(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error)
{
	struct bytes bytes;

	return reader_content(reader, &f->arena, question->value, NULL, NULL, &bytes, error);
}

static int ask_definition(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error)
{
	struct digest digest = digest_of(BYTES_OF("{\"n\":1}"));
	struct bytes document, source;

	(void)question;
	return reader_definition_document(reader, &f->arena, &digest, &document, &source, error);
}

static int ask_entry(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error)
{
	struct store_raw_entry *raw;
	struct entry entry;
	uint64_t next;
	size_t count;

	(void)question;
	/* Of a kind of its own, so that one whose kind cannot be seen is the first that comes. */
	if (reader_entries(reader, &f->arena, SMALL, 1ULL << ENTRY_TASK_COMPLETED, 1, &raw, &count, &next, error) != 0)
		return (int)error->code;
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(raw[0].seq, SMALL);
	return reader_entry(reader, &f->arena, &raw[0], CONTENT_MAX, &entry, error);
}

static int ask_fact(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error)
{
	struct store_fact_record record;

	(void)question;
	return reader_fact_record(reader, &f->arena, FACT, &record, error);
}

static int ask_gate(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error)
{
	struct digest id = digest_of(BYTES_OF("{\"report\":1}"));
	char hex[DIGEST_HEX_LEN + 1];
	struct store_gate gate;

	(void)question;
	digest_hex(&id, hex);
	hex[DIGEST_PREFIX_MIN] = '\0';
	return reader_gate(reader, &f->arena, hex, &gate, error);
}

static int ask_events(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error)
{
	struct store_event *events;
	uint64_t next;
	size_t count;

	(void)question;
	if (reader_events(reader, &f->arena, 0, 0, 10, &events, &count, &next, error) == 0)
		ck_assert_uint_eq(count, 1);
	return (int)error->code;
}

/* Without a reader. */
static int ask_copy(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error)
{
	struct store_copy copy;
	char path[300];

	(void)reader;
	(void)question;
	snprintf(path, sizeof(path), "%s/journal.db", f->folder);
	return store_check_copy(path, &copy, error);
}

static int ask_tables(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error)
{
	(void)reader;
	(void)question;
	return store_check_tables(f->folder, error);
}

static int ask_start(struct store_reader *reader, struct fixture *f, const struct question *question, struct error *error)
{
	struct store *store;

	(void)reader;
	(void)question;
	if (store_open_by_hand(&store, &f->options, error) != 0)
		return (int)error->code;
	store_close(store);
	return 0;
}

static const struct {
	const char *change;
	ask *ask;
	enum error_code code;
	const char *words; /* in the message */
	uint64_t value;
} cases[] = {
	/* Values. */
	{FLIP("content", "id = " VALUE(SMALL, 0)), ask_value, ERR_CORRUPT, "do not hash to their digest", CONTENT_ID(SMALL, 0)},
	{FLIP("content", "id = " VALUE(SMALL, 1)), ask_run, ERR_CORRUPT, "do not hash to their digest", 0},
	{OPEN_ALL "UPDATE content SET digest = x'00' WHERE id = " VALUE(SMALL, 0), ask_value, ERR_NOT_FOUND, "has another digest", CONTENT_ID(SMALL, 0)},
	{OPEN_ALL "UPDATE content SET digest = x'00' WHERE id = " VALUE(SMALL, 0), ask_run, ERR_CORRUPT, "the values of entry " TEXT(SMALL) " are damaged", 0},
	{"UPDATE content SET size = size - 1 WHERE id = " VALUE(SMALL, 0), ask_run, ERR_CORRUPT, "the values of entry " TEXT(SMALL) " are damaged", 0},
	{"UPDATE content SET size = size - 1 WHERE id = " VALUE(LARGE, 1), ask_run, ERR_CORRUPT, "the values of entry " TEXT(LARGE) " are damaged", 0},
	{"DELETE FROM content WHERE id = " VALUE(SMALL, 0), ask_run, ERR_CORRUPT, "the values of entry " TEXT(SMALL) " are damaged", 0},
	{"DELETE FROM content WHERE id = " VALUE(SMALL, 0), ask_value, ERR_NOT_FOUND, "there is no content", CONTENT_ID(SMALL, 0)},
	{"INSERT INTO content SELECT " VALUE(SMALL, 2) " + value, zeroblob(32), 0, 3, NULL FROM generate", ask_run, ERR_CORRUPT, "the values of entry " TEXT(SMALL) " are damaged", 0},
	{"UPDATE content SET encoding = 3, bytes = NULL WHERE id = " VALUE(SMALL, 0), ask_value, ERR_GONE, "erased", CONTENT_ID(SMALL, 0)},
	{"DELETE FROM blob", ask_value, ERR_NOT_FOUND, "it is not stored", CONTENT_ID(LARGE, 0)},
	{"UPDATE blob SET size = 1 << 40", ask_value, ERR_CORRUPT, "bytes, more than", CONTENT_ID(LARGE, 0)},
	{"UPDATE blob SET bytes = CAST(substr(bytes, 2) AS BLOB) WHERE encoding = 1", ask_value, ERR_CORRUPT, "the compressed bytes are damaged", CONTENT_ID(LARGE, 0)},
	{OPEN_ALL "UPDATE blob SET encoding = 7 WHERE encoding = 1", ask_value, ERR_CORRUPT, "the compressed bytes are damaged", CONTENT_ID(LARGE, 0)},
	{"UPDATE blob SET bytes = CAST(substr(bytes, 2) AS BLOB) WHERE encoding = 0", ask_value, ERR_CORRUPT, "bytes are stored", CONTENT_ID(LARGE, 1)},
	{FLIP("blob", "encoding = 0"), ask_value, ERR_CORRUPT, "do not hash to their digest", CONTENT_ID(LARGE, 1)},
	{"DELETE FROM blob_chunk WHERE n = 0", ask_value, ERR_CORRUPT, "chunk 0 is missing", CONTENT_ID(HUGE, 0)},
	{"DELETE FROM blob_chunk WHERE n = 1", ask_value, ERR_CORRUPT, "chunk 1 is missing", CONTENT_ID(HUGE, 0)},
	{"DELETE FROM blob_chunk WHERE n = 2", ask_value, ERR_CORRUPT, "chunk 2 is missing", CONTENT_ID(HUGE, 0)},
	{"INSERT INTO blob_chunk SELECT digest, 3, encoding, bytes FROM blob_chunk WHERE n = 2", ask_value, ERR_CORRUPT, "chunk 3 is missing or one too many", CONTENT_ID(HUGE, 0)},
	{"UPDATE blob_chunk SET bytes = x'00' WHERE n = 1", ask_value, ERR_CORRUPT, "bytes are stored", CONTENT_ID(HUGE, 0)},
	{FLIP("blob_chunk", "n = 1"), ask_value, ERR_CORRUPT, "do not hash to their digest", CONTENT_ID(HUGE, 0)},
	{"UPDATE definition SET document = 1", ask_definition, ERR_NOT_FOUND, "there is no content 1", 0},
	{FLIP("content", "id = (SELECT source FROM definition)"), ask_definition, ERR_CORRUPT, "do not hash to their digest", 0},
	/* Entries of a run. */
	{EDIT(SMALL, "\"seq\":" TEXT(SMALL), "\"seq\":" TEXT(LARGE)), ask_run, ERR_CORRUPT, "run run: journal-seq: entry " TEXT(SMALL) " says that it is " TEXT(LARGE), 0},
	{OPEN_ALL "DELETE FROM entry WHERE seq = " TEXT(SMALL), ask_run, ERR_CORRUPT, "run run: journal-seq: entries before " TEXT(LARGE) " are missing", 0},
	{EDIT(SMALL, "\"v\":1", "\"v\":2"), ask_run, ERR_CORRUPT, "entry: v is not 1", 0},
	{EDIT(SMALL, "\"seq\":" TEXT(SMALL), "\"seq\":0"), ask_entry, ERR_CORRUPT, "says that it is 0", 0},
	{EDIT(SMALL, "\"kind\":\"task.completed\"", "\"kind\":\"task.forged\""), ask_entry, ERR_CORRUPT, "unknown kind \"task.forged\"", 0},
	{OPEN_ALL "UPDATE entry SET bytes = x'7b' WHERE seq = " TEXT(SMALL), ask_entry, ERR_CORRUPT, "entry:", 0},
	/* Facts, gates, events. */
	{EDIT(FACT, "\"sig\":\"", "\"sig\":\"*"), ask_fact, ERR_CORRUPT, "entry " TEXT(FACT) " holds no signature", 0},
	{EDIT(FACT, "\"sig\":\"", "\"sig\":\"AAAA"), ask_fact, ERR_CORRUPT, "entry " TEXT(FACT) " holds no signature", 0},
	{EDIT(FACT, "\"sig\":", "\"six\":"), ask_fact, ERR_CORRUPT, "entry " TEXT(FACT) " holds no signature", 0},
	{EDIT(FACT, "\"keyid\":\"", "\"keyid\":\"0"), ask_fact, ERR_CORRUPT, "entry " TEXT(FACT) " holds no signature", 0},
	{EDIT(FACT, "\"keyid\":", "\"keyix\":"), ask_fact, ERR_CORRUPT, "entry " TEXT(FACT) " holds no signature", 0},
	{EDIT(FACT, "fact.recorded", "task.started"), ask_fact, ERR_NOT_FOUND, "is no fact but task.started", 0},
	{"UPDATE content SET encoding = 3, bytes = NULL WHERE id = " VALUE(FACT, 0), ask_fact, ERR_NOT_FOUND, "the statement of entry " TEXT(FACT) " is erased", 0},
	{FLIP("content", "id = " VALUE(FACT, 0)), ask_fact, ERR_CORRUPT, "do not hash to their digest", 0},
	{"INSERT INTO gate SELECT seq + 1, CAST(substr(id, 1, 16) || zeroblob(16) AS BLOB), run, runtime, class FROM gate", ask_gate, ERR_INVALID, "is the beginning of several gates", 0},
	{FLIP("content", "id = " VALUE(GATE, 0)), ask_gate, ERR_CORRUPT, "do not hash to their digest", 0},
	{OPEN_ALL "UPDATE entry SET bytes = x'7b' WHERE seq = " TEXT(EVENT), ask_events, ERR_CORRUPT, "entry:", 0},
	{EDIT(FACT, "\"seq\":" TEXT(FACT), "\"seq\":0"), ask_fact, ERR_CORRUPT, "says that it is 0", 0},
	{EDIT(GATE, "\"seq\":" TEXT(GATE), "\"seq\":0"), ask_gate, ERR_CORRUPT, "says that it is 0", 0},
	{EDIT(EVENT, "\"seq\":" TEXT(EVENT), "\"seq\":0"), ask_events, ERR_CORRUPT, "says that it is 0", 0},
	{EDIT(EVENT, "\"event\":", "\"evenx\":"), ask_events, ERR_CORRUPT, "entry " TEXT(EVENT) " names no event", 0},
	/* Who it is. */
	{OPEN_ALL "DELETE FROM entry WHERE seq = 0", ask_nothing, ERR_NOT_FOUND, "read journal.opened: there is no entry 0", 0},
	{OPEN_ALL "UPDATE entry SET bytes = x'7b' WHERE seq = 0", ask_nothing, ERR_CORRUPT, "read journal.opened: entry:", 0},
	{OPEN_ALL "UPDATE entry SET bytes = (SELECT bytes FROM entry WHERE seq = 1) WHERE seq = 0", ask_nothing, ERR_CORRUPT, "entry 0 is not journal.opened with a vkey", 0},
	{EDIT(0, "\"seq\":0", "\"seq\":1"), ask_nothing, ERR_CORRUPT, "entry 0 is not journal.opened with a vkey", 0},
	{EDIT(0, "\"vkey\":", "\"vkex\":"), ask_nothing, ERR_CORRUPT, "entry 0 is not journal.opened with a vkey", 0},
	{EDIT(0, "\"vkey\":\"", "\"vkey\":\"+"), ask_nothing, ERR_CORRUPT, "the vkey of entry 0:", 0},
	/* The whole of it: as a copy, at a start, rebuilt. */
	{OPEN_ALL "DELETE FROM entry WHERE seq = " TEXT(SMALL), ask_copy, ERR_CORRUPT, "journal-seq: entry " TEXT(SMALL) " is missing, and no retention took it", 0},
	{OPEN_ALL "DELETE FROM entry WHERE seq = " TEXT(END), ask_copy, ERR_CORRUPT, "journal-seq: entry " TEXT(END) " is missing, and no retention took it", 0},
	{EDIT(SMALL, "/do/0/a", "/do/0/z"), ask_copy, ERR_CORRUPT, "entry " TEXT(SMALL) " does not hash to its leaf", 0},
	{OPEN_ALL "UPDATE journal SET leaf = x'00' WHERE seq = " TEXT(SMALL), ask_copy, ERR_CORRUPT, "journal-changed", 0},
	{OPEN_ALL "UPDATE checkpoint SET note = x'00'", ask_copy, ERR_CORRUPT, "checkpoint", 0},
	{OPEN_ALL "UPDATE journal SET leaf = zeroblob(32) WHERE seq = " TEXT(SMALL), ask_start, ERR_CORRUPT, "journal-changed", 0},
	{OPEN_ALL "UPDATE journal SET leaf = x'00' WHERE seq = " TEXT(SMALL), ask_start, ERR_CORRUPT, "journal-seq: a leaf or node under (3, 0) is missing", 0},
	{OPEN_ALL "UPDATE checkpoint SET note = x'00' WHERE size = (SELECT max(size) FROM checkpoint)", ask_start, ERR_CORRUPT, "the newest stored checkpoint", 0},
	{OPEN_ALL "UPDATE entry SET bytes = x'7b' WHERE seq = " TEXT(SMALL), ask_tables, ERR_CORRUPT, "check the tables of", 0},
	{EDIT(SMALL, "\"seq\":" TEXT(SMALL), "\"seq\":" TEXT(LARGE)), ask_tables, ERR_CORRUPT, "journal-seq: entry " TEXT(SMALL) " says that it is " TEXT(LARGE), 0},
	{OPEN_ALL "DELETE FROM entry WHERE seq = " TEXT(SMALL), ask_tables, ERR_CORRUPT, "journal-seq: entry " TEXT(LARGE) " says that it is " TEXT(LARGE) " and stands at " TEXT(SMALL), 0},
	{EDIT(RUN, "\"runId\":\"run\"", "\"runId\":\"nur\""), ask_tables, ERR_NOT_FOUND, "run", 0},
	{EDIT(EVENT, "\"key\":", "\"kex\":"), ask_tables, ERR_CORRUPT, "event.received without a key", 0},
	{EDIT(DEFINITION, "\"definition\":", "\"definitiox\":"), ask_tables, ERR_CORRUPT, "definition.added without a definition", 0},
	{"UPDATE content SET digest = zeroblob(32) WHERE id = " VALUE(RUN, 1), ask_tables, ERR_CORRUPT, "do not hash to their digest", 0},
	{"DELETE FROM content WHERE id = " VALUE(RUN, 1), ask_tables, ERR_CORRUPT, "table run_label", 0},
};

static void copy_journal(struct fixture *f, const char *from, const char *to)
{
	char command[1400];

	snprintf(command, sizeof(command), "rm -f '%s/journal.db-wal' '%s/journal.db-shm' && cp '%s/%s' '%s/%s'", f->folder, f->folder, f->folder, from, f->folder, to);
	ck_assert_int_eq(system(command), 0);
}

static int put_question(struct fixture *f, size_t i, struct error *error)
{
	const struct question question = {.value = cases[i].value};
	struct store_reader *reader;

	*error = (struct error){0};
	if (cases[i].ask == ask_copy || cases[i].ask == ask_tables || cases[i].ask == ask_start)
		return cases[i].ask(NULL, f, &question, error);
	if (store_open_readonly(f->folder, &reader, error) != 0)
		return (int)error->code;
	cases[i].ask(reader, f, &question, error);
	store_reader_close(reader);
	return (int)error->code;
}

/* Each question is answered of the journal as it was written, and refused with the right reason of the one that was changed. */
START_TEST(damage_is_told)
{
	struct fixture f;

	fixture_start(&f);
	write_journal(&f);
	fixture_close(&f);
	copy_journal(&f, "journal.db", "kept.db");
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct error error;
		char *message = NULL;
		sqlite3 *db;

		ck_assert_msg(put_question(&f, i, &error) == 0, "case %zu, before it is changed: %s", i, error.message);
		copy_journal(&f, "kept.db", "journal.db");
		db = plain_open(&f);
		ck_assert_int_eq(sqlite3_exec(db, "PRAGMA synchronous = OFF; CREATE TEMP VIEW generate AS WITH RECURSIVE c(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM c WHERE value < 99) SELECT value FROM c", NULL, NULL, NULL), SQLITE_OK);
		ck_assert_msg(sqlite3_exec(db, cases[i].change, NULL, NULL, &message) == SQLITE_OK, "case %zu, %s: %s", i, cases[i].change, message);
		ck_assert_msg(sqlite3_changes(db) > 0, "case %zu, %s: nothing was changed", i, cases[i].change);
		ck_assert_int_eq(sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL), SQLITE_OK);
		sqlite3_close(db);
		ck_assert_msg(put_question(&f, i, &error) == (int)cases[i].code && strstr(error.message, cases[i].words) != NULL, "case %zu, %s: error %d, %s", i, cases[i].change,
			      (int)error.code, error.message);
		copy_journal(&f, "kept.db", "journal.db");
	}
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-damage", damage_is_told)
