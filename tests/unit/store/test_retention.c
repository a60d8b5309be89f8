/* Retention: what is over its time goes, in chunks that a crash may part anywhere; what is open, within its time or kept stays, and the
 * log can be proven as before. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>

#include "tests/unit/store/fixture.h"
#include "workflow/evidence/verify.h"

enum { RUNS_MS = 30 * 86400, ENTRIES_MS = 90 * 86400 }; /* the default's days, a thousandth as long */

/* The writer's clock: what the tests say. Years may pass in one line. */
static _Atomic int64_t clock_ms = 1800000000000;

static int64_t test_wall_ms(void)
{
	return clock_ms;
}

static void start(struct fixture *f)
{
	fixture_init(f);
	f->options.wall_ms = test_wall_ms;
	f->options.checkpoint_entries = 1;
	f->options.retention = (struct store_retention){.runs_ms = RUNS_MS, .entries_ms = ENTRIES_MS, .every_ms = 1LL << 40};
	fixture_open(f);
}

static void on_purged(struct store_purge *purge)
{
	*(bool *)purge->owner = true;
}

static int purge_and_wait(struct fixture *f, struct store_purge *purge)
{
	bool done = false;

	purge->on_done = on_purged;
	purge->owner = &done;
	ck_assert_int_eq(store_purge(f->store, purge), 0);
	while (!done)
		uv_run(&f->loop, UV_RUN_ONCE);
	return (int)purge->error.code;
}

static struct store_purge pass(struct fixture *f)
{
	struct store_purge purge = {.kind = STORE_PURGE_DUE};
	struct store_sign sign;

	sign_and_wait(f, &sign); /* a tile is pruned only when a checkpoint vouches for it */
	buffer_close(&sign.note);
	ck_assert_msg(purge_and_wait(f, &purge) == 0, "%s", purge.error.message);
	return purge;
}

enum { FULL_TRIES_MAX = 12000 };

static void append_at(struct fixture *f, struct entry *entries, size_t count)
{
	for (size_t i = 0; i < count; i++)
		entries[i].time_ms = clock_ms;
	/* On a busy machine the thread that empties the write-ahead log may fall behind its bound: then what was refused is tried again, as the engine does. */
	for (unsigned tries = 0; append_and_wait(f, entries, count, NULL) == ERR_FULL && tries < FULL_TRIES_MAX; tries++)
		usleep(10 * 1000);
	ck_assert_msg(f->error.code == ERR_NONE, "%s", f->error.message);
}

static void create(struct fixture *f, const char *run, const char *labels)
{
	struct entry entry;

	make_created(&f->arena, &entry, run, "left", labels);
	append_at(f, &entry, 1);
}

static void work(struct fixture *f, const char *run, enum entry_kind kind, struct bytes value)
{
	struct entry entry;

	make_step(&f->arena, &entry, kind, run, kind == ENTRY_RUN_COMPLETED ? NULL : "/do/0/x@1", value);
	append_at(f, &entry, 1);
}

static void end(struct fixture *f, const char *run)
{
	work(f, run, ENTRY_RUN_COMPLETED, BYTES_OF("null"));
}

/* So many entries of nobody. */
static void fill(struct fixture *f, size_t count)
{
	struct entry *entries = arena_zero(&f->arena, count * sizeof(*entries));

	for (size_t i = 0; i < count; i++)
		entries[i] = (struct entry){.kind = ENTRY_DAEMON_STARTED, .data = json_object(&f->arena)};
	append_at(f, entries, count);
}

static uint64_t fill_tile(struct fixture *f)
{
	uint64_t size = f->store->writer.tree.size;

	if (size % STORE_TILE != 0)
		fill(f, STORE_TILE - size % STORE_TILE);
	return f->store->writer.tree.size;
}

/* A fact with a request that it rests on, and an answer that it does not name. */
static void append_fact(struct fixture *f, const char *run, const char *request)
{
	struct arena *arena = &f->arena;
	struct digest named = digest_of(bytes_text(request)), document = digest_of(BYTES_OF("document"));
	char hex[DIGEST_HEX_LEN + 1];
	struct entry entries[2];
	struct bytes statement;

	digest_hex(&named, hex);
	statement = bytes_text(arena_printf(arena, "{\"request\":{\"digest\":{\"sha256\":\"%s\"}},\"run\":\"%s\"}", hex, run));
	make_step(arena, &entries[0], ENTRY_ATTEMPT_SUCCEEDED, run, "/do/0/x@1", (struct bytes){0});
	entry_add_value(arena, &entries[0], "record", bytes_text(arena_printf(arena, "{\"record\":\"%s\"}", run)));
	entry_add_value(arena, &entries[0], "request", bytes_text(request));
	entry_add_value(arena, &entries[0], "response", bytes_text(arena_printf(arena, "\"answer of %s\"", run)));
	make_step(arena, &entries[1], ENTRY_FACT_RECORDED, run, "/do/0/x@1", (struct bytes){0});
	entries[1].statement = statement;
	entries[1].values[entries[1].value_count++] = (struct entry_value){digest_of(statement), statement, statement.len};
	json_set_text(arena, entries[1].data, "verdict", "PASSED");
	json_set_text(arena, entries[1].data, "runtime", "sim");
	json_set_number(arena, entries[1].data, "attempt", 1);
	json_set_digest(arena, entries[1].data, "subject", &document);
	json_set_digest(arena, entries[1].data, "document", &document);
	entry_add_value(arena, &entries[1], "fact", BYTES_OF("{\"object\":1}"));
	append_at(f, entries, 2);
}

/* --- questions ------------------------------------------------------------------------------------------------------ */

static int64_t ask(struct fixture *f, const char *sql)
{
	sqlite3 *db = plain_open(f);
	sqlite3_stmt *statement;
	int64_t number;

	ck_assert_msg(sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
	ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
	number = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	sqlite3_close(db);
	return number;
}

static const char *text(struct fixture *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static const char *text(struct fixture *f, const char *format, ...)
{
	char buffer[512];
	va_list list;

	va_start(list, format);
	vsnprintf(buffer, sizeof(buffer), format, list);
	va_end(list);
	return arena_text(&f->arena, buffer);
}

/* Read every line of the log as an exporter does and hold it against all checkpoints that are stored. The number of failures; *pruned. */
static size_t verify_all(struct fixture *f, uint64_t *pruned)
{
	struct store_reader *reader;
	struct note_key key;
	struct bytes *notes;
	struct verify_journal journal;
	struct verify_report report;
	struct error error;
	size_t count, failures = 0;
	uint64_t from = 0, size;

	ck_assert_msg(store_open_readonly(f->folder, &reader, &error) == 0, "%s", error.message);
	ck_assert_int_eq(store_reader_log_key(reader, &key, &error), 0);
	ck_assert_int_eq(reader_checkpoints(reader, &f->arena, &notes, &count, &error), 0);
	ck_assert_int_eq(reader_log_size(reader, &size, &error), 0);
	verify_report_init(&report);
	verify_journal_begin(&journal, &key, notes, count, &report);
	while (from < size) {
		struct store_log_line *lines;
		size_t line_count;
		struct arena page;

		arena_init(&page);
		ck_assert_int_eq(reader_log_lines(reader, &page, from, 700, &lines, &line_count, &from, &error), 0);
		for (size_t i = 0; i < line_count; i++)
			if (lines[i].bytes.data != NULL)
				verify_journal_add(&journal, lines[i].bytes);
			else
				verify_journal_add_pruned(&journal, lines[i].seq, lines[i].count, &lines[i].root);
		arena_close(&page);
	}
	verify_journal_end(&journal);
	for (size_t i = 0; i < report.count; i++)
		failures += report.lines[i].status == VERIFY_FAIL || report.lines[i].status == VERIFY_UNVERIFIABLE;
	if (pruned != NULL)
		*pruned = journal.pruned;
	ck_assert_uint_gt(count, 0);
	ck_assert(failures > 0 || journal.tree.size == size);
	verify_report_close(&report);
	store_reader_close(reader);
	return failures;
}

struct question {
	const char *run;
	enum error_code code;
	char message[480];
};

static void read_run_now(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct question *question = arg;
	struct store_run run;
	struct error error;

	question->code = (enum error_code)reader_run(reader, &f->arena, question->run, &run, &error);
	snprintf(question->message, sizeof(question->message), "%s", error.message);
}

struct content_question {
	const char *run;
	uint64_t id; /* 0: by digest alone */
	struct digest digest;
	enum error_code code;
	char message[480];
};

static void read_content_now(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct content_question *question = arg;
	struct bytes bytes;
	struct error error;

	question->code = (enum error_code)reader_content(reader, &f->arena, question->id, &question->digest, question->run, &bytes, &error);
	snprintf(question->message, sizeof(question->message), "%s", error.message);
}

static enum error_code code_of(struct fixture *f, const char *run, const char *says)
{
	struct question question = {.run = run};

	read_and_wait(f, read_run_now, &question);
	if (says != NULL)
		ck_assert_msg(strstr(question.message, says) != NULL, "%s", question.message);
	return question.code;
}

/* --- runs ----------------------------------------------------------------------------------------------------------- */

/* A run leaves the lists when its time is over and not a millisecond earlier; its id says what became of it and is not used again. */
START_TEST(a_run_leaves_when_its_time_is_over)
{
	struct fixture f;
	struct entry again;
	struct content_question late = {.run = "old", .digest = digest_of(BYTES_OF("\"secret of old\""))};
	uint64_t value_id;

	start(&f);
	create(&f, "old", "{\"team\":\"a\",\"n\":\"1\"}");
	create(&f, "open", "{\"team\":\"a\"}");
	work(&f, "old", ENTRY_TASK_COMPLETED, BYTES_OF("\"secret of old\""));
	value_id = (uint64_t)ask(&f, "SELECT id FROM content WHERE CAST(bytes AS TEXT) = '\"secret of old\"'");
	end(&f, "old");
	clock_ms += RUNS_MS - 1;
	ck_assert_uint_eq(pass(&f).removed_runs, 0);
	ck_assert_int_eq(code_of(&f, "old", NULL), ERR_NONE);
	check_tables_equal(&f);
	clock_ms += 1;
	ck_assert_uint_eq(pass(&f).removed_runs, 1);
	ck_assert_int_eq(code_of(&f, "old", "by retention (retention.runs: 2592s)"), ERR_GONE);
	/* Whoever read the run before is too late for its values, by their ids or their digests. */
	for (int i = 0; i < 2; i++) {
		late.id = i == 0 ? value_id : 0;
		read_and_wait(&f, read_content_now, &late);
		ck_assert_int_eq(late.code, ERR_GONE);
		ck_assert_msg(strstr(late.message, "run old ended on ") != NULL, "%s", late.message);
	}
	late.run = "open";
	read_and_wait(&f, read_content_now, &late);
	ck_assert_int_eq(late.code, ERR_NOT_FOUND);
	ck_assert_int_eq(code_of(&f, "open", NULL), ERR_NONE);
	ck_assert_int_eq(code_of(&f, "never", NULL), ERR_NOT_FOUND);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run"), 1);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run_label"), 1);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run_clearing"), 0);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run_entry"), 1);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE CAST(bytes AS TEXT) = '\"secret of old\"'"), 0);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE CAST(bytes AS TEXT) = '{\"of\":\"open\"}'"), 1);
	check_tables_equal(&f);
	make_created(&f.arena, &again, "old", "left", NULL);
	ck_assert_int_eq(append_and_wait(&f, &again, 1, NULL), ERR_EXISTS);
	ck_assert_msg(strstr(f.error.message, "was removed: its id is not used again") != NULL, "%s", f.error.message);
	make_step(&f.arena, &again, ENTRY_TASK_COMPLETED, "old", "/do/0/x@1", BYTES_OF("1"));
	ck_assert_int_eq(append_and_wait(&f, &again, 1, NULL), ERR_GONE); /* late (C14) */
	fixture_reopen(&f);
	ck_assert_int_eq(code_of(&f, "old", NULL), ERR_GONE);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* More runs than one chunk takes all leave in one pass, in several transactions. */
START_TEST(more_runs_than_a_chunk_holds)
{
	enum { RUNS = 2 * RETENTION_RUNS_MAX + 10 };
	struct fixture f;
	unsigned long long before;
	struct store_purge done;

	start(&f);
	for (int i = 0; i < RUNS; i++) {
		struct entry entries[2];

		make_created(&f.arena, &entries[0], text(&f, "run-%d", i), "left", NULL);
		make_step(&f.arena, &entries[1], ENTRY_RUN_COMPLETED, text(&f, "run-%d", i), NULL, BYTES_OF("null"));
		append_at(&f, entries, 2);
	}
	clock_ms += RUNS_MS;
	before = store_counters(f.store)->chunks_of_retention;
	done = pass(&f);
	ck_assert_uint_eq(done.removed_runs, RUNS);
	ck_assert_uint_eq(done.removed_values, 2 * RUNS);
	ck_assert_uint_ge(store_counters(f.store)->chunks_of_retention - before, 5);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run_tombstone"), RUNS);
	ck_assert_int_eq(ask(&f, "SELECT max(json_array_length(json_extract(CAST(bytes AS TEXT), '$.data.runs'))) FROM entry WHERE CAST(bytes AS TEXT) LIKE '%runs.purged%'"), RETENTION_RUNS_MAX);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* A run with more values than one chunk deletes is cleared in several; a large value goes with the last run that names it. */
START_TEST(a_long_run_and_values_that_runs_share)
{
	enum { STEPS = 3 * RETENTION_ROWS_MAX };
	struct bytes shared = {memory_alloc(3 << 20), 3 << 20}, middle = {shared.data, 40000};
	struct fixture f;
	struct entry *entries;

	for (size_t i = 0; i < shared.len; i++)
		((uint8_t *)shared.data)[i] = (uint8_t)(i * 2654435761u >> 13);
	start(&f);
	entries = arena_zero(&f.arena, STEPS * sizeof(*entries));
	create(&f, "long", NULL);
	create(&f, "other", NULL);
	for (int i = 0; i < STEPS; i++)
		make_step(&f.arena, &entries[i], ENTRY_TASK_COMPLETED, "long", "/do/0/x@1", bytes_text(text(&f, "%d", i)));
	append_at(&f, entries, STEPS);
	work(&f, "long", ENTRY_TASK_COMPLETED, shared);
	work(&f, "other", ENTRY_TASK_COMPLETED, shared);
	work(&f, "long", ENTRY_TASK_COMPLETED, middle);
	end(&f, "long");
	clock_ms += 1000;
	end(&f, "other");
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM blob"), 2);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM blob_chunk"), 3);
	clock_ms += RUNS_MS - 1000;
	ck_assert_uint_eq(pass(&f).removed_runs, 1);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM blob"), 1); /* `other` still names it */
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM blob_chunk"), 3);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content"), 3);
	clock_ms += 1000;
	ck_assert_uint_eq(pass(&f).removed_runs, 1);
	ck_assert_int_eq(ask(&f, "SELECT (SELECT count(*) FROM blob) + (SELECT count(*) FROM blob_chunk) + (SELECT count(*) FROM content)"), 0);
	check_tables_equal(&f);
	/* The pages go back: what is left is small. */
	ck_assert_int_eq(ask(&f, "SELECT freelist_count FROM pragma_freelist_count"), 0);
	ck_assert_uint_eq(verify_all(&f, NULL), 0);
	free((void *)shared.data);
	fixture_end(&f);
}
END_TEST

/* A child stays while the run around it is open: an attempt that begins again may ask for it. */
START_TEST(a_child_stays_while_its_parent_is_open)
{
	struct fixture f;
	struct entry child;
	struct json *parent;

	start(&f);
	create(&f, "parent", NULL);
	make_created(&f.arena, &child, "child", "left", NULL);
	parent = json_object(&f.arena);
	json_set_text(&f.arena, parent, "run", "parent");
	json_set_text(&f.arena, parent, "step", "/do/0/x@1");
	json_set_boolean(&f.arena, parent, "awaited", true);
	json_set(&f.arena, child.data, "parent", parent);
	append_at(&f, &child, 1);
	end(&f, "child");
	clock_ms += 10 * RUNS_MS;
	ck_assert_uint_eq(pass(&f).removed_runs, 0);
	end(&f, "parent");
	ck_assert_uint_eq(pass(&f).removed_runs, 1);
	ck_assert_int_eq(code_of(&f, "child", NULL), ERR_GONE);
	clock_ms += RUNS_MS;
	ck_assert_uint_eq(pass(&f).removed_runs, 1);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

static void append_child(struct fixture *f, const char *id, const char *of)
{
	struct json *parent = json_object(&f->arena);
	struct entry entry;

	make_created(&f->arena, &entry, id, "left", NULL);
	json_set_text(&f->arena, parent, "run", of);
	json_set_text(&f->arena, parent, "step", "/do/0/x@1");
	json_set(&f->arena, entry.data, "parent", parent);
	append_at(f, &entry, 1);
}

/* Nor does an operator take such a child away. */
START_TEST(a_child_of_an_open_run_is_not_purged)
{
	const char *const child[] = {"child"};
	struct store_purge purge = {.kind = STORE_PURGE_RUNS, .runs = child, .run_count = 1, .reason = BYTES_OF("\"asked to\"")};
	struct fixture f;

	start(&f);
	create(&f, "parent", NULL);
	append_child(&f, "child", "parent");
	end(&f, "child");
	ck_assert_int_eq(purge_and_wait(&f, &purge), ERR_EXISTS);
	ck_assert_msg(strstr(purge.error.message, "run child is a child of run parent, which goes on") != NULL, "%s", purge.error.message);
	end(&f, "parent");
	ck_assert_msg(purge_and_wait(&f, &purge) == 0, "%s", purge.error.message);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* A run that began while the clock was years ahead does not keep what came after it, nor a tile the tiles behind it. */
START_TEST(a_clock_that_was_ahead_keeps_nothing)
{
	enum { FAR_MS = 1 << 30 };
	struct fixture f;

	start(&f);
	clock_ms += FAR_MS;
	create(&f, "ahead", NULL);
	end(&f, "ahead");
	fill_tile(&f);
	clock_ms -= FAR_MS;
	create(&f, "after", NULL);
	end(&f, "after");
	fill_tile(&f);
	clock_ms += RUNS_MS;
	ck_assert_uint_eq(pass(&f).removed_runs, 1);
	ck_assert_int_eq(code_of(&f, "after", NULL), ERR_GONE);
	ck_assert_int_eq(code_of(&f, "ahead", NULL), ERR_NONE);
	clock_ms += ENTRIES_MS;
	ck_assert_uint_gt(pass(&f).pruned_entries, 250);
	ck_assert_int_eq(ask(&f, "SELECT group_concat(tile) = '1' FROM journal_prune"), 1);
	clock_ms += FAR_MS;
	ck_assert_uint_eq(pass(&f).removed_runs, 1);
	check_tables_equal(&f);
	ck_assert_uint_eq(verify_all(&f, NULL), 0);
	fixture_end(&f);
}
END_TEST

static void wait_for_pass(struct fixture *f)
{
	unsigned long long passes = atomic_load(&store_counters(f->store)->passes);

	for (unsigned i = 0; i < 1000 && atomic_load(&store_counters(f->store)->passes) < passes + 2; i++)
		usleep(10000);
	ck_assert_uint_ge(atomic_load(&store_counters(f->store)->passes), passes + 2);
}

/* A clock that is suddenly days ahead, at a start or later, takes nothing away before its time of grace, or before somebody says that it is right. */
START_TEST(a_clock_that_leaps_is_not_believed_at_once)
{
	enum { LEAP_MS = 20 * 86400 * 1000 };
	for (int at_start = 0; at_start < 2; at_start++)
		for (int asked = 0; asked < 2; asked++) {
			struct fixture f;

			start(&f);
			fixture_close(&f);
			f.options.retention.every_ms = 20;
			f.options.retention.grace_ms = asked ? 1LL << 40 : 1500;
			fixture_open(&f);
			create(&f, "one", NULL);
			end(&f, "one");
			wait_for_pass(&f);
			if (at_start)
				fixture_close(&f);
			clock_ms += LEAP_MS;
			if (at_start)
				fixture_open(&f);
			wait_for_pass(&f);
			ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run"), 1);
			if (asked)
				pass(&f);
			for (unsigned i = 0; i < 1000 && ask(&f, "SELECT count(*) FROM run") > 0; i++)
				usleep(10000);
			ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run"), 0);
			/* Set right again, it is believed as it is. */
			clock_ms -= LEAP_MS;
			create(&f, "two", NULL);
			end(&f, "two");
			clock_ms += RUNS_MS;
			wait_for_pass(&f);
			ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run"), 0);
			fixture_end(&f);
		}
}
END_TEST

/* --- facts ---------------------------------------------------------------------------------------------------------- */

struct fact_question {
	uint64_t count;
	bool payload, has_run;
};

static void read_facts_now(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct fact_question *question = arg;
	struct store_fact *facts;
	struct store_fact_record record;
	size_t count;

	ck_assert_int_eq(reader_facts(reader, &f->arena, &(struct store_fact_filter){.from_start = true, .namespace = "tests", .name = "left"}, &facts, &count, &f->error), 0);
	question->count = count;
	for (size_t i = 0; i < count; i++) {
		question->payload = reader_fact_record(reader, &f->arena, facts[i].seq, &record, &f->error) == 0 && record.payload.data != NULL && record.fact.data != NULL;
		question->has_run = strcmp(facts[i].run_id, "with-fact") == 0;
	}
}

/* Facts outlive their run, with the request that they name; what they do not name goes. Their tile keeps its leaves and their entries. */
START_TEST(facts_are_kept_with_what_they_rest_on)
{
	struct fact_question question = {0};
	struct fixture f;
	uint64_t fact, pruned;
	struct store_reader *reader;
	struct log_proof proof;
	struct error error;
	struct digest hash;

	start(&f);
	create(&f, "with-fact", NULL);
	append_fact(&f, "with-fact", "\"the request of with-fact\"");
	fact = f.store->writer.tree.size - 1;
	end(&f, "with-fact");
	fill_tile(&f);
	fill_tile(&f);
	fill(&f, STORE_TILE + 3);
	clock_ms += RUNS_MS;
	pass(&f);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE CAST(bytes AS TEXT) = '\"the request of with-fact\"'"), 1);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE CAST(bytes AS TEXT) LIKE '%answer of%'"), 0);
	read_and_wait(&f, read_facts_now, &question);
	ck_assert_uint_eq(question.count, 1);
	ck_assert(question.payload);
	ck_assert(question.has_run);
	check_tables_equal(&f);
	clock_ms += ENTRIES_MS - RUNS_MS;
	ck_assert_uint_ge(pass(&f).pruned_entries, 2 * STORE_TILE - 10);
	ck_assert_int_eq(ask(&f, text(&f, "SELECT count(*) FROM entry WHERE seq = %llu", (unsigned long long)fact)), 1);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM journal WHERE seq < 256"), STORE_TILE);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM journal WHERE seq >= 256 AND seq < 512"), 0);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM entry WHERE seq < 256"), 4); /* journal.opened, two keys, the fact */
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE CAST(bytes AS TEXT) = '\"the request of with-fact\"'"), 1);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE encoding = 3"), 0); /* empty rows go with their entries */
	read_and_wait(&f, read_facts_now, &question);
	ck_assert_uint_eq(question.count, 1);
	ck_assert(question.payload);
	check_tables_equal(&f);
	ck_assert_uint_eq(verify_all(&f, &pruned), 0);
	ck_assert_uint_eq(pruned, 2 * STORE_TILE - 4);
	/* Its inclusion is proven as before; what ends within a tile without leaves cannot be. */
	fixture_reopen(&f);
	ck_assert_int_eq(store_open_readonly(f.folder, &reader, &error), 0);
	ck_assert_msg(log_tree_prove_inclusion(fact, f.store->writer.tree.size, entry_table_read_node, &reader->connection, &proof, &error) == 0, "%s", error.message);
	ck_assert_int_eq(log_tree_prove_consistency(256, f.store->writer.tree.size, entry_table_read_node, &reader->connection, &proof, &error), 0);
	ck_assert_int_eq(reader_leaf(reader, 8, 1, &hash, &error), 0);
	ck_assert_int_eq(reader_leaf(reader, 0, 300, &hash, &error), ERR_GONE);
	ck_assert_msg(strstr(error.message, "pruned") != NULL, "%s", error.message);
	store_reader_close(reader);
	fixture_end(&f);
}
END_TEST

/* What was used of a runtime in a day outlives the entries that said so, of runs and of attempts that nobody waited for; and what is used after they
 * are gone is added to it. */
START_TEST(what_was_spent_outlives_its_entries)
{
	static const struct spent spent = {"sim", 100, 200};
	static const char sum_sql[] = "SELECT tokens * 1000000 + us FROM runtime_spending WHERE runtime = 'sim' ORDER BY day LIMIT 1";
	struct fixture f;
	struct entry entry;
	int64_t began_ms = clock_ms;

	start(&f);
	create(&f, "left", NULL);
	for (unsigned i = 0; i < 2; i++) {
		make_step(&f.arena, &entry, ENTRY_ATTEMPT_FAILED, "left", "/do/0/x@1", (struct bytes){0});
		json_set(&f.arena, entry.data, "spent", spent_json(&f.arena, &spent));
		append_at(&f, &entry, 1);
	}
	entry = (struct entry){.kind = ENTRY_RUNTIME_SPENT, .data = json_object(&f.arena)};
	json_set(&f.arena, entry.data, "spent", spent_json(&f.arena, &spent));
	append_at(&f, &entry, 1);
	end(&f, "left");
	fill_tile(&f);
	fill(&f, 5);
	clock_ms += ENTRIES_MS;
	pass(&f);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM entry WHERE seq < 256"), 3);
	ck_assert_int_eq(ask(&f, sum_sql), 300000600);
	check_tables_equal(&f);
	fixture_reopen(&f);
	clock_ms = began_ms;
	create(&f, "later", NULL);
	make_step(&f.arena, &entry, ENTRY_ATTEMPT_SUCCEEDED, "later", "/do/0/x@1", (struct bytes){0});
	json_set(&f.arena, entry.data, "spent", spent_json(&f.arena, &spent));
	append_at(&f, &entry, 1);
	check_tables_equal(&f);
	fill(&f, SPENDING_ENTRIES_MAX);
	ck_assert_int_eq(ask(&f, sum_sql), 400000800);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* keepFacts: never. */
START_TEST(facts_go_with_their_run_when_asked_to)
{
	struct fixture f;
	uint64_t pruned;

	start(&f);
	fixture_close(&f);
	f.options.retention.drop_facts = true;
	fixture_open(&f);
	create(&f, "with-fact", NULL);
	append_fact(&f, "with-fact", "\"request\"");
	end(&f, "with-fact");
	fill_tile(&f);
	fill(&f, 5);
	clock_ms += ENTRIES_MS;
	pass(&f);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM fact"), 0);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM kept_run"), 0);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content"), 0);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM entry WHERE seq < 256"), 3);
	check_tables_equal(&f);
	ck_assert_uint_eq(verify_all(&f, &pruned), 0);
	ck_assert_uint_gt(pruned, 0);
	fixture_end(&f);
}
END_TEST

/* --- tiles ---------------------------------------------------------------------------------------------------------- */

/* One open run keeps the whole tile, and so does one that ended too short a time ago. */
START_TEST(a_tile_with_one_open_run_stays)
{
	struct fixture f;
	uint64_t pruned;

	start(&f);
	fill_tile(&f);
	create(&f, "ended", NULL);
	end(&f, "ended");
	create(&f, "open", NULL);
	fill_tile(&f);
	fill(&f, STORE_TILE);
	fill(&f, 2);
	clock_ms += 10 * ENTRIES_MS;
	ck_assert_uint_eq(pass(&f).pruned_entries, 2 * STORE_TILE - 3); /* the first and the third; three entries open the journal */
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM entry WHERE seq >= 256 AND seq < 512"), STORE_TILE);
	end(&f, "open");
	clock_ms += ENTRIES_MS - 1;
	pass(&f);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM entry WHERE seq >= 256 AND seq < 512"), STORE_TILE);
	check_tables_equal(&f);
	clock_ms += 1;
	pass(&f);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM entry WHERE seq >= 256 AND seq < 512"), 0);
	check_tables_equal(&f);
	ck_assert_uint_eq(verify_all(&f, &pruned), 0);
	ck_assert_uint_ge(pruned, 3 * STORE_TILE - 3);
	fixture_end(&f);
}
END_TEST

static void on_backup(struct store_backup *backup)
{
	*(bool *)backup->owner = true;
}

/* A checkpoint that somebody kept, and that ends among entries which are pruned by now with their leaves, is no reason to refuse a copy that reaches it; one that the copy does not reach is. */
START_TEST(a_pruned_copy_is_restored)
{
	struct store_backup backup = {.on_done = on_backup};
	struct store_sign kept, later;
	struct fixture f;
	struct error error;
	bool done = false;

	start(&f);
	fill_tile(&f);
	fill(&f, 20);
	sign_and_wait(&f, &kept);
	fill_tile(&f);
	fill(&f, 2);
	clock_ms += 10 * ENTRIES_MS;
	pass(&f);
	ck_assert_int_eq(ask(&f, "SELECT leaves FROM journal_prune WHERE tile = 1"), 0);
	backup.path = text(&f, "%s/copy.db", f.folder);
	backup.owner = &done;
	ck_assert_int_eq(store_backup(f.store, &backup), 0);
	while (!done)
		uv_run(&f.loop, UV_RUN_ONCE);
	ck_assert_msg(backup.error.code == 0, "%s", backup.error.message);
	fill(&f, 2);
	sign_and_wait(&f, &later);
	const struct bytes notes[] = {buffer_bytes(&kept.note), buffer_bytes(&later.note)};
	for (size_t i = 0; i < COUNT_OF(notes); i++) {
		struct store_restore restore = {.source = backup.path, .data_dir = text(&f, "%s/restored%zu", f.folder, i), .checkpoints = &notes[i], .checkpoint_count = 1};
		int code = store_restore(&restore, &error);
		ck_assert_msg(code == (i == 0 ? 0 : ERR_CORRUPT), "%s", error.message);
		ck_assert_uint_eq(restore.known, 1);
	}
	ck_assert_msg(strstr(error.message, "journal-rolled-back") != NULL, "%s", error.message);
	buffer_close(&kept.note);
	buffer_close(&later.note);
	fixture_end(&f);
}
END_TEST

/* The entry that began a run stands in a tile that stays and that of its end is gone, also where it had ended before and was retried: the rebuild
 * takes from the tombstone when that was. */
START_TEST(a_run_without_its_end)
{
	struct fixture f;

	start(&f);
	create(&f, "open", NULL);
	create(&f, "one", "{\"a\":\"b\"}");
	create(&f, "two", NULL);
	work(&f, "two", ENTRY_RUN_FAULTED, (struct bytes){0});
	fill_tile(&f);
	clock_ms += 1000;
	work(&f, "two", ENTRY_RUN_RETRIED, (struct bytes){0});
	end(&f, "one");
	end(&f, "two");
	fill_tile(&f);
	clock_ms += RUNS_MS;
	ck_assert_uint_eq(pass(&f).removed_runs, 2);
	clock_ms += ENTRIES_MS - RUNS_MS;
	ck_assert_uint_eq(pass(&f).pruned_entries, STORE_TILE);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM entry WHERE instr(bytes, '\"runs.purged\"') > 0"), 1);
	check_tables_equal(&f);
	ck_assert_uint_eq(verify_all(&f, NULL), 0);
	fixture_end(&f);
}
END_TEST

/* More tiles that must stay than a pass looks into: it goes on behind them the next time. */
START_TEST(held_tiles_do_not_keep_others)
{
	struct fixture f;

	start(&f);
	create(&f, "open", NULL);
	fill_tile(&f);
	for (int i = 0; i < RETENTION_HELD_MAX; i++) { /* each with an entry of a run that goes on */
		struct entry *entries = memory_zero(STORE_TILE * sizeof(*entries));
		struct arena kept = f.arena;

		arena_init(&f.arena);
		make_step(&f.arena, &entries[0], ENTRY_TASK_COMPLETED, "open", "/do/0/x@1", BYTES_OF("1"));
		for (int k = 1; k < STORE_TILE; k++)
			entries[k] = (struct entry){.kind = ENTRY_DAEMON_STARTED, .data = json_object(&f.arena)};
		append_at(&f, entries, STORE_TILE);
		arena_close(&f.arena);
		f.arena = kept;
		free(entries);
	}
	fill(&f, STORE_TILE + 1);
	clock_ms += 2 * ENTRIES_MS;
	ck_assert_uint_eq(pass(&f).pruned_entries, 0);
	ck_assert_uint_eq(pass(&f).pruned_entries, STORE_TILE);
	ck_assert_uint_eq(pass(&f).pruned_entries, 0); /* from the beginning again */
	ck_assert_uint_eq(verify_all(&f, NULL), 0);
	fixture_end(&f);
}
END_TEST

/* What is gone without a row of journal_prune is damage, to the verifier and to the rebuild. */
START_TEST(what_others_delete_is_still_damage)
{
	static const char *const ways[] = {
		"DELETE FROM entry WHERE seq = 300",
		"DELETE FROM entry WHERE seq >= 256 AND seq < 512",
		"DELETE FROM entry WHERE seq >= 256 AND seq < 512; DELETE FROM journal WHERE seq >= 256 AND seq < 512",
	};
	for (size_t i = 0; i < COUNT_OF(ways); i++) {
		struct fixture f;
		struct error error;

		start(&f);
		fill_tile(&f);
		clock_ms += ENTRIES_MS / 2;
		fill(&f, STORE_TILE + 7);
		clock_ms += ENTRIES_MS / 2;
		pass(&f);
		ck_assert_uint_eq(verify_all(&f, NULL), 0);
		ck_assert_int_eq(ask(&f, "SELECT count(*) FROM journal_prune"), 1);
		ck_assert_int_eq(plain_exec(&f, ways[i]), SQLITE_CONSTRAINT); /* against accidents */
		ck_assert_int_eq(plain_exec(&f, text(&f, "INSERT INTO pruning VALUES(1); %s; DELETE FROM pruning", ways[i])), SQLITE_OK);
		ck_assert_uint_gt(verify_all(&f, NULL), 0);
		ck_assert_int_eq(store_check_tables(f.folder, &error), ERR_CORRUPT);
		fixture_end(&f);
	}
}
END_TEST

static void add_document(struct fixture *f, const char *document)
{
	struct entry entry = {.kind = ENTRY_DOCUMENT_ADDED, .data = json_object(&f->arena)};

	json_set_text(&f->arena, entry.data, "mediaType", "text/plain");
	entry_add_value(&f->arena, &entry, "document", bytes_text(document));
	append_at(f, &entry, 1);
}

static void advance_sink(struct fixture *f, const char *sink, uint64_t position)
{
	struct entry entry = {.kind = ENTRY_SINK_ADVANCED, .data = json_object(&f->arena)};

	json_set_text(&f->arena, entry.data, "sink", sink);
	json_set_number(&f->arena, entry.data, "position", (double)position);
	append_at(f, &entry, 1);
}

static void read_after_pruning(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct digest digest = digest_of(BYTES_OF("a document"));
	struct store_document document;
	struct store_log_line *lines;
	uint64_t position, next, *kept = arg;
	struct bytes bytes;
	struct buffer text;
	size_t count;

	ck_assert_int_eq(reader_document(reader, &f->arena, &digest, &document, &f->error), 0);
	ck_assert_uint_eq(document.seq, kept[0]);
	ck_assert_int_eq(reader_content(reader, &f->arena, 0, &digest, NULL, &bytes, &f->error), 0);
	ck_assert(bytes_equal_text(bytes, "a document"));
	ck_assert_int_eq(reader_sink(reader, "one", &position, &f->error), 0);
	ck_assert_uint_eq(position, 8);
	/* Whoever reads on finds the next entry that is there, and the end where there is none. */
	ck_assert_int_eq(reader_pruned_end(reader, kept[0], &next, &f->error), 0);
	ck_assert_uint_eq(next, kept[0]);
	ck_assert_int_eq(reader_pruned_end(reader, kept[0] + 1, &next, &f->error), 0);
	ck_assert_uint_eq(next, kept[1]);
	ck_assert_int_eq(reader_pruned_end(reader, kept[1] + 1, &next, &f->error), 0);
	ck_assert_uint_eq(next, 2 * STORE_TILE);
	/* A line of the log says of a tile without leaves how many entries it stands for, and under which root. */
	ck_assert_int_eq(reader_log_lines(reader, &f->arena, STORE_TILE, 1, &lines, &count, &next, &f->error), 0);
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(next, 2 * STORE_TILE);
	buffer_init(&text, 1024);
	store_log_line_print(&lines[0], &text);
	ck_assert_int_eq(strncmp(buffer_text(&text), "pruned 256 256 ", 15), 0);
	ck_assert_uint_eq(text.len, 15 + 44); /* base64 of 32 bytes */
	buffer_close(&text);
	ck_assert_int_eq(reader_log_lines(reader, &f->arena, 0, 1, &lines, &count, &next, &f->error), 0);
	buffer_init(&text, 1024);
	store_log_line_print(&lines[0], &text);
	ck_assert_int_eq(strncmp(buffer_text(&text), "{\"data\":{", 9), 0);
	buffer_close(&text);
}

/* Of a document that was added twice the first entry stays, of a sink the one that says how far it is: the table rests on them. What was said again goes, with its
 * values. */
START_TEST(what_a_table_rests_on_stays)
{
	struct fixture f;
	uint64_t kept[2];

	start(&f);
	kept[0] = f.store->writer.tree.size;
	add_document(&f, "a document");
	add_document(&f, "a document");
	advance_sink(&f, "one", 7);
	kept[1] = f.store->writer.tree.size;
	advance_sink(&f, "one", 8);
	fill_tile(&f);
	fill(&f, STORE_TILE + 3);
	clock_ms += ENTRIES_MS;
	ck_assert_uint_eq(pass(&f).pruned_entries, 2 * STORE_TILE - 5);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM entry WHERE seq < 256"), 5);
	ck_assert_int_eq(ask(&f, text(&f, "SELECT count(*) FROM content WHERE id > %llu << 8 AND id <= (%llu + 1) << 8", (unsigned long long)kept[0] + 1, (unsigned long long)kept[0] + 1)), 0);
	read_and_wait(&f, read_after_pruning, kept);
	check_tables_equal(&f);
	ck_assert_uint_eq(verify_all(&f, NULL), 0);
	fixture_reopen(&f);
	read_and_wait(&f, read_after_pruning, kept);
	fixture_end(&f);
}
END_TEST

/* What retention left in the place of entries is looked at as well: a leaf of a tile that kept its leaves, a kept entry, a root that is none. */
START_TEST(what_stands_for_pruned_entries_is_checked)
{
	static const struct {
		const char *change, *words;
	} cases[] = {
		{"DELETE FROM journal WHERE seq = 9", "journal-seq: leaf 9 is missing"},
		{"DELETE FROM journal_prune WHERE tile = 0", "journal-seq: entry 4 is missing, and no retention took it"},
		{"DELETE FROM entry WHERE seq = 3", "table document"},
		{"UPDATE journal_prune SET root = zeroblob(32) WHERE tile = 1", "table journal_node"},
		{"UPDATE sink SET position = 9", "table sink"},
	};
	struct fixture f;
	char command[1400];

	start(&f);
	add_document(&f, "a document");
	fill_tile(&f);
	fill(&f, STORE_TILE + 3);
	clock_ms += ENTRIES_MS;
	advance_sink(&f, "one", 8);
	pass(&f);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM journal_prune"), 2);
	fixture_close(&f);
	check_tables_equal(&f);
	snprintf(command, sizeof(command), "cp '%s/journal.db' '%s/kept.db'", f.folder, f.folder);
	ck_assert_int_eq(system(command), 0);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct error error;

		ck_assert_int_eq(plain_exec(&f, text(&f, "INSERT INTO pruning VALUES(1); %s; DELETE FROM pruning", cases[i].change)), SQLITE_OK);
		ck_assert_int_eq(store_check_tables(f.folder, &error), ERR_CORRUPT);
		ck_assert_msg(strstr(error.message, cases[i].words) != NULL, "case %zu: %s", i, error.message);
		snprintf(command, sizeof(command), "rm -f '%s/journal.db-wal' '%s/journal.db-shm'; cp '%s/kept.db' '%s/journal.db'", f.folder, f.folder, f.folder, f.folder);
		ck_assert_int_eq(system(command), 0);
	}
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* A tile in which an entry cannot be read stays as it is, and those behind it go. */
START_TEST(a_damaged_tile_stays)
{
	static const char *const changes[] = {
		"UPDATE entry SET bytes = x'7b' WHERE seq = 9",
		"UPDATE entry SET bytes = (SELECT bytes FROM entry WHERE seq = 8) WHERE seq = 9",
		"DELETE FROM entry WHERE seq = 9",
		"DELETE FROM entry WHERE seq = 255",
	};
	for (size_t i = 0; i < COUNT_OF(changes); i++) {
		struct store_purge purge = {.kind = STORE_PURGE_DUE};
		struct fixture f;

		start(&f);
		fill_tile(&f);
		fill(&f, STORE_TILE + 3);
		fixture_close(&f);
		ck_assert_int_eq(plain_exec(&f, text(&f, "DROP TRIGGER entry_update; DROP TRIGGER entry_delete; %s", changes[i])), SQLITE_OK);
		fixture_open(&f);
		clock_ms += ENTRIES_MS;
		ck_assert_msg(purge_and_wait(&f, &purge) == 0, "%s", purge.error.message);
		ck_assert_int_eq(ask(&f, "SELECT count(*) FROM journal_prune WHERE tile = 0"), 0);
		ck_assert_int_eq(ask(&f, "SELECT count(*) FROM journal_prune WHERE tile = 1"), 1);
		ck_assert_int_ge(ask(&f, "SELECT count(*) FROM entry WHERE seq < 256"), STORE_TILE - 1);
		fixture_end(&f);
	}
}
END_TEST

/* A fact whose statement is damaged does not say what it rests on: of its run nothing is cleared away. */
START_TEST(nothing_is_cleared_that_a_damaged_fact_may_need)
{
	struct store_purge purge = {.kind = STORE_PURGE_DUE};
	struct fixture f;

	start(&f);
	create(&f, "with-fact", NULL);
	append_fact(&f, "with-fact", "\"the request\"");
	end(&f, "with-fact");
	fixture_close(&f);
	ck_assert_int_eq(plain_exec(&f, "UPDATE content SET bytes = CAST('x' || substr(bytes, 2) AS BLOB) WHERE id = (SELECT (seq << 8) + 1 FROM fact)"), SQLITE_OK);
	fixture_open(&f);
	clock_ms += RUNS_MS;
	ck_assert_int_eq(purge_and_wait(&f, &purge), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(purge.error.message, "do not hash to their digest"));
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE CAST(bytes AS TEXT) = '\"the request\"'"), 1);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE CAST(bytes AS TEXT) LIKE '%answer of%'"), 1);
	fixture_end(&f);
}
END_TEST

/* A value that stands in more rows than one request erases is refused, with what to do, and all of it stays. */
START_TEST(too_many_rows_hold_a_value)
{
	struct store_purge purge = {.kind = STORE_PURGE_CONTENT, .content = digest_of(BYTES_OF("\"everywhere\""))};
	struct fixture f;

	start(&f);
	create(&f, "run", NULL);
	work(&f, "run", ENTRY_TASK_COMPLETED, BYTES_OF("\"everywhere\""));
	end(&f, "run");
	fixture_close(&f);
	ck_assert_int_eq(plain_exec(&f, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 65536) "
					"INSERT INTO content SELECT ((1000 + n) << 8) + 1, digest, size, encoding, bytes FROM c, content WHERE CAST(bytes AS TEXT) = '\"everywhere\"'"),
			 SQLITE_OK);
	fixture_open(&f);
	ck_assert_int_eq(purge_and_wait(&f, &purge), ERR_TOO_LARGE);
	ck_assert_ptr_nonnull(strstr(purge.error.message, "STORE_ERASE_MATCHES_MAX"));
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE CAST(bytes AS TEXT) = '\"everywhere\"'"), 65537);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM erasure"), 0);
	fixture_end(&f);
}
END_TEST

/* All of the last day, one an hour for a year, one a day after; and each that is left can be compared. */
START_TEST(checkpoints_thin_out)
{
	enum { REAL_DAY = 86400 * 1000, HOUR = 3600 * 1000 };
	struct fixture f;

	start(&f);
	fixture_close(&f);
	f.options.retention = (struct store_retention){.runs_ms = 1000LL * REAL_DAY, .every_ms = 1LL << 40}; /* no entries go */
	clock_ms = 1800000000000 / REAL_DAY * REAL_DAY;
	fixture_open(&f);
	for (int i = 0; i < 96; i++) { /* two days, each half an hour */
		struct store_sign sign;

		fill(&f, 1);
		sign_and_wait(&f, &sign);
		buffer_close(&sign.note);
		clock_ms += HOUR / 2;
	}
	pass(&f);
	ck_assert_int_le(ask(&f, "SELECT count(*) FROM checkpoint"), 24 + 48 + 3);
	ck_assert_int_ge(ask(&f, "SELECT count(*) FROM checkpoint"), 24 + 48);
	clock_ms += 366LL * REAL_DAY;
	pass(&f);
	ck_assert_int_le(ask(&f, "SELECT count(*) FROM checkpoint"), 4);
	ck_assert_int_ge(ask(&f, "SELECT count(*) FROM checkpoint"), 2);
	ck_assert_uint_eq(verify_all(&f, NULL), 0);
	fixture_reopen(&f);
	fixture_end(&f);
}
END_TEST

/* --- requests ------------------------------------------------------------------------------------------------------- */

/* An operator's purge does at once what retention would do later, for runs that have ended, for all of them or for none. */
START_TEST(an_operator_purges_runs)
{
	const char *const both[] = {"one", "open"}, *const one[] = {"one", "one"}, *const unknown[] = {"nobody"};
	struct store_purge purge = {.kind = STORE_PURGE_RUNS, .runs = both, .run_count = 2, .reason = BYTES_OF("\"asked to\"")};
	struct fixture f;

	start(&f);
	create(&f, "one", "{\"a\":\"b\"}");
	create(&f, "open", NULL);
	end(&f, "one");
	ck_assert_int_eq(purge_and_wait(&f, &purge), ERR_EXISTS);
	ck_assert_msg(strstr(purge.error.message, "run open has not ended: cancel it first") != NULL, "%s", purge.error.message);
	ck_assert_int_eq(code_of(&f, "one", NULL), ERR_NONE);
	purge.runs = unknown;
	purge.run_count = 1;
	ck_assert_int_eq(purge_and_wait(&f, &purge), ERR_NOT_FOUND);
	purge.runs = one;
	purge.run_count = 2;
	ck_assert_msg(purge_and_wait(&f, &purge) == 0, "%s", purge.error.message);
	ck_assert_uint_eq(purge.removed_runs, 1);
	ck_assert_uint_eq(purge.removed_values, 3);
	ck_assert_int_eq(code_of(&f, "one", "because: asked to"), ERR_GONE);
	ck_assert_int_eq(purge_and_wait(&f, &purge), ERR_GONE);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* Erasing takes every copy of a value, of small and of large ones, and of documents that many runs share; the digest stays and says why. */
START_TEST(a_value_is_erased_everywhere)
{
	struct fixture f;
	struct bytes big = {memory_zero(2 << 20), 2 << 20};

	start(&f);
	for (int i = 0; i < 3; i++) {
		struct bytes value = i == 0 ? BYTES_OF("\"small and personal\"") : i == 1 ? (struct bytes){big.data, 20000} : big;
		struct store_purge purge = {.kind = STORE_PURGE_CONTENT, .content = digest_of(value), .reason = BYTES_OF("\"a person asked\"")};
		struct content_question question = {.run = "one", .digest = digest_of(value)};
		struct entry document = {.kind = ENTRY_DOCUMENT_ADDED, .data = json_object(&f.arena)};
		const char *a = i == 0 ? "one" : text(&f, "a%d", i), *b = text(&f, "b%d", i);

		ck_assert_int_eq(purge_and_wait(&f, &purge), ERR_NOT_FOUND);
		entry_add_value(&f.arena, &document, "document", value);
		json_set_text(&f.arena, document.data, "mediaType", "text/plain");
		append_at(&f, &document, 1);
		create(&f, a, NULL);
		create(&f, b, NULL);
		work(&f, a, ENTRY_TASK_COMPLETED, value);
		work(&f, b, ENTRY_TASK_COMPLETED, value);
		end(&f, a);
		ck_assert_int_eq(purge_and_wait(&f, &purge), ERR_EXISTS); /* b may need it */
		read_and_wait(&f, read_content_now, &question);
		ck_assert_int_eq(question.code, ERR_NONE);
		end(&f, b);
		ck_assert_msg(purge_and_wait(&f, &purge) == 0, "%s", purge.error.message);
		ck_assert_uint_eq(purge.removed_values, 3);
		read_and_wait(&f, read_content_now, &question);
		ck_assert_int_eq(question.code, ERR_GONE);
		ck_assert_msg(strstr(question.message, "because: a person asked") != NULL, "%s", question.message);
		ck_assert_int_eq(purge_and_wait(&f, &purge), ERR_GONE);
	}
	ck_assert_int_eq(ask(&f, "SELECT (SELECT count(*) FROM blob) + (SELECT count(*) FROM blob_chunk)"), 0);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE encoding = 3"), 9);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM erasure"), 3);
	check_tables_equal(&f);
	ck_assert_uint_eq(verify_all(&f, NULL), 0);
	/* The same value may come again: it is there again. */
	create(&f, "later", NULL);
	work(&f, "later", ENTRY_TASK_COMPLETED, BYTES_OF("\"small and personal\""));
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE CAST(bytes AS TEXT) = '\"small and personal\"'"), 1);
	free((void *)big.data);
	fixture_end(&f);
}
END_TEST

/* The search for a value goes through the journal in steps. A run that has ended when its value is found, and is retried before the search is over, keeps it. */
START_TEST(a_run_that_is_retried_keeps_its_value)
{
	enum { VALUES = 2 * RETENTION_LOOKS_MAX };
	struct bytes value = BYTES_OF("\"needed again\"");
	bool purged = false, retried = false;
	unsigned turns = 0;
	struct store_purge purge = {.kind = STORE_PURGE_CONTENT, .content = digest_of(value), .on_done = on_purged, .owner = &purged};
	struct store_append append = {.entry_count = 1, .on_done = on_append_done, .owner = &retried};
	struct fixture f;
	struct entry entry, *entries;
	struct error error;

	start(&f);
	create(&f, "run", NULL);
	work(&f, "run", ENTRY_TASK_COMPLETED, value);
	work(&f, "run", ENTRY_RUN_FAULTED, (struct bytes){0});
	create(&f, "other", NULL);
	entries = arena_zero(&f.arena, VALUES * sizeof(*entries));
	for (size_t i = 0; i < VALUES; i++)
		make_step(&f.arena, &entries[i], ENTRY_TASK_COMPLETED, "other", "/do/0/x@1", BYTES_OF("1"));
	append_at(&f, entries, VALUES);
	fixture_close(&f);
	ck_assert_msg(store_open_by_hand(&f.store, &f.options, &error) == 0, "%s", error.message);
	ck_assert_int_eq(store_purge(f.store, &purge), 0);
	store_step_writer(f.store);
	ck_assert_uint_eq(f.store->writer.retention.match_count, 1);
	make_step(&f.arena, &entry, ENTRY_RUN_RETRIED, "run", NULL, (struct bytes){0});
	entry.time_ms = clock_ms;
	append.entries = &entry;
	ck_assert_int_eq(store_append(f.store, &append), 0);
	while (!purged || !retried) {
		ck_assert_uint_lt(turns++, 100);
		store_hand_over(f.store);
		store_step_writer(f.store);
		while (store_tell(f.store))
			continue;
	}
	ck_assert_int_eq(append.error.code, ERR_NONE);
	ck_assert_int_eq(purge.error.code, ERR_EXISTS);
	ck_assert_msg(strstr(purge.error.message, "run run holds this value and has not ended") != NULL, "%s", purge.error.message);
	store_close(f.store);
	fixture_open(&f);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE encoding = 3"), 0);
	fixture_end(&f);
}
END_TEST

/* A run of which one value was erased before leaves as any other: no row of its values stays behind, and the journal is whole in between. */
START_TEST(an_erased_value_goes_with_its_run)
{
	struct bytes erased = BYTES_OF("\"erased before\"");
	struct store_purge purge = {.kind = STORE_PURGE_CONTENT, .content = digest_of(erased)};
	struct fixture f;
	struct entry entry;

	start(&f);
	create(&f, "run", NULL);
	make_step(&f.arena, &entry, ENTRY_TASK_COMPLETED, "run", "/do/0/x@1", BYTES_OF("\"first\""));
	entry_add_value(&f.arena, &entry, "more", erased);
	append_at(&f, &entry, 1);
	end(&f, "run");
	ck_assert_msg(purge_and_wait(&f, &purge) == 0, "%s", purge.error.message);
	check_tables_equal(&f);
	clock_ms += RUNS_MS;
	purge = pass(&f);
	ck_assert_uint_eq(purge.removed_runs, 1);
	ck_assert_uint_eq(purge.removed_values, 3); /* input, first and the output: the fourth was gone */
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content"), 0);
	check_tables_equal(&f);
	ck_assert_uint_eq(verify_all(&f, NULL), 0);
	fixture_end(&f);
}
END_TEST

/* A store that is broken answers what is asked of it, with the reason, and does not wait for its end. */
START_TEST(a_broken_store_answers)
{
	struct store_purge purge = {.kind = STORE_PURGE_DUE};
	struct fixture f;
	struct entry entry;
	char from[300], to[300];

	start(&f);
	create(&f, "run", NULL);
	snprintf(from, sizeof(from), "%s/journal.db", f.folder);
	snprintf(to, sizeof(to), "%s/moved.db", f.folder);
	ck_assert_int_eq(rename(from, to), 0);
	make_created(&f.arena, &entry, "other", "left", NULL);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_IO);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(purge_and_wait(&f, &purge), ERR_IO);
		ck_assert_msg(strstr(purge.error.message, "was moved, deleted or replaced") != NULL, "%s", purge.error.message);
	}
	fixture_end(&f);
}
END_TEST

/* Not a byte of it is left in the file. */
START_TEST(erased_bytes_are_overwritten)
{
	static const char mark[] = "\"a very particular sentence\"";
	struct store_purge purge = {.kind = STORE_PURGE_CONTENT, .content = digest_of(BYTES_OF("\"a very particular sentence\""))};
	struct fixture f;
	char path[512];
	struct stat status;
	uint8_t *bytes;
	bool found = false;
	int file;

	start(&f);
	create(&f, "one", NULL);
	work(&f, "one", ENTRY_TASK_COMPLETED, BYTES_OF("\"a very particular sentence\""));
	end(&f, "one");
	ck_assert_msg(purge_and_wait(&f, &purge) == 0, "%s", purge.error.message);
	fixture_close(&f);
	snprintf(path, sizeof(path), "%s/journal.db", f.folder);
	file = open(path, O_RDONLY);
	ck_assert_int_eq(fstat(file, &status), 0);
	bytes = memory_alloc((size_t)status.st_size);
	ck_assert_int_eq(read(file, bytes, (size_t)status.st_size), status.st_size);
	for (off_t i = 0; i + (off_t)sizeof(mark) <= status.st_size; i++)
		found |= memcmp(bytes + i, mark, sizeof(mark) - 1) == 0;
	ck_assert(!found);
	free(bytes);
	close(file);
	fixture_open(&f);
	fixture_end(&f);
}
END_TEST

/* Definitions are not erased: runs rest on them. */
START_TEST(a_definition_is_not_erased)
{
	struct store_purge purge = {.kind = STORE_PURGE_CONTENT, .content = digest_of(BYTES_OF("{\"n\":1}"))};
	struct entry entry = {.kind = ENTRY_DEFINITION_ADDED};
	struct fixture f;

	start(&f);
	entry.data = json_object(&f.arena);
	entry_add_value(&f.arena, &entry, "source", BYTES_OF("n: 1"));
	entry_add_value(&f.arena, &entry, "definition", BYTES_OF("{\"n\":1}"));
	append_at(&f, &entry, 1);
	ck_assert_int_eq(purge_and_wait(&f, &purge), ERR_INVALID);
	fixture_end(&f);
}
END_TEST

/* What is asked for while the store closes is answered; so many may wait and no more. */
START_TEST(requests_are_limited_and_answered)
{
	static struct store_purge purges[STORE_PURGES_MAX + 1];
	bool done[STORE_PURGES_MAX + 1] = {false};
	struct fixture f;

	start(&f);
	for (int i = 0; i <= STORE_PURGES_MAX; i++) {
		purges[i] = (struct store_purge){.kind = STORE_PURGE_DUE, .on_done = on_purged, .owner = &done[i]};
		ck_assert_int_eq(store_purge(f.store, &purges[i]), i < STORE_PURGES_MAX ? 0 : ERR_BUSY);
	}
	fixture_close(&f);
	for (int i = 0; i < STORE_PURGES_MAX; i++)
		ck_assert(done[i]);
	fixture_open(&f);
	fixture_end(&f);
}
END_TEST

/* A file is cut when the log is copied, by a thread that has its own time: who waits for that looks again. */
static off_t after_size(const char *path)
{
	struct stat after;

	ck_assert_int_eq(stat(path, &after), 0);
	return after.st_size;
}

/* The file is smaller afterwards, the writer takes that for its own doing, and a restart with the log still full of it too. */
START_TEST(the_file_gets_smaller)
{
	enum { RUNS = 300 };
	uint8_t *noise = memory_alloc(15000);
	struct fixture f;
	struct stat before;
	char path[512];

	start(&f);
	for (int i = 0; i < RUNS; i++) {
		create(&f, text(&f, "run-%d", i), NULL);
		for (int k = 0; k < 15000; k++)
			noise[k] = (uint8_t)((unsigned)(k * 7919 + i * 104729) >> 3);
		work(&f, text(&f, "run-%d", i), ENTRY_TASK_COMPLETED, (struct bytes){noise, 15000});
		end(&f, text(&f, "run-%d", i));
	}
	snprintf(path, sizeof(path), "%s/journal.db", f.folder);
	fixture_reopen(&f);
	ck_assert_int_eq(stat(path, &before), 0);
	clock_ms += RUNS_MS;
	ck_assert_uint_gt(pass(&f).given_pages, 800);
	for (int i = 0; i < FULL_TRIES_MAX && after_size(path) >= before.st_size / 4; i++) {
		fill(&f, 1);
		usleep(5 * 1000);
	}
	ck_assert_int_lt(after_size(path), before.st_size / 4);
	ck_assert_uint_eq(f.broken, 0);
	fixture_reopen(&f);
	fill(&f, 1);
	check_tables_equal(&f);
	free(noise);
	fixture_end(&f);
}
END_TEST

/* A journal from before it could give pages back is written anew by the first request, and gives them from then on; its log, by then as long as
 * the journal, stops nobody. */
START_TEST(an_older_file_learns_to_get_smaller)
{
	enum { RUNS = 600 };
	uint8_t *noise = memory_alloc(15000);
	struct fixture f;
	struct stat before;
	char path[512];

	fixture_init(&f);
	connection_set_up_library();
	ck_assert_int_eq(plain_exec(&f, "PRAGMA auto_vacuum=NONE; PRAGMA journal_mode=WAL; CREATE TABLE x(y); DROP TABLE x"), SQLITE_OK);
	f.options.wall_ms = test_wall_ms;
	f.options.wal_mib = 1;
	f.options.reserve_bytes = 1 << 16;
	f.options.wal_max_bytes = 3 << 20;
	f.options.retention = (struct store_retention){.runs_ms = RUNS_MS, .entries_ms = ENTRIES_MS, .every_ms = 1LL << 40};
	fixture_open(&f);
	ck_assert_int_eq(ask(&f, "PRAGMA auto_vacuum"), 0);
	for (int i = 0; i < RUNS; i++) {
		create(&f, text(&f, "run-%d", i), NULL);
		for (int k = 0; k < 15000; k++)
			noise[k] = (uint8_t)((unsigned)(k * 7919 + i * 104729) >> 3);
		work(&f, text(&f, "run-%d", i), ENTRY_TASK_COMPLETED, (struct bytes){noise, 15000});
		end(&f, text(&f, "run-%d", i));
	}
	ck_assert_uint_eq(pass(&f).removed_runs, 0); /* by now the file is the new one */
	ck_assert_int_eq(ask(&f, "PRAGMA auto_vacuum"), 2);
	fill(&f, 1);
	snprintf(path, sizeof(path), "%s/journal.db", f.folder);
	ck_assert_int_eq(stat(path, &before), 0);
	ck_assert_int_gt(before.st_size, 8 << 20);
	clock_ms += RUNS_MS;
	ck_assert_uint_gt(pass(&f).given_pages, 1600);
	for (int i = 0; i < FULL_TRIES_MAX && after_size(path) >= before.st_size / 4; i++) {
		fill(&f, 1);
		usleep(5 * 1000);
	}
	ck_assert_int_lt(after_size(path), before.st_size / 4);
	ck_assert_uint_eq(f.broken, 0);
	fixture_reopen(&f);
	fill(&f, 1);
	fixture_close(&f);
	check_tables_equal(&f);
	free(noise);
	fixture_end(&f);
}
END_TEST

enum { NOISE_BYTES = 15000, NOISY_RUNS = 120 };

static uint8_t noise[NOISE_BYTES];

static void make_noise(unsigned seed)
{
	for (unsigned k = 0; k < NOISE_BYTES; k++)
		noise[k] = (uint8_t)((k * 7919 + seed * 104729) >> 3);
}

/* A store on a disk of its own, with runs that have ended and one that has not. False: there is no such disk here; then tests/integration/disk.mjs alone
 * shows what is asked. */
static bool start_on_small_disk(struct fixture *f, const char *size, uint64_t reserve)
{
	fixture_init(f);
	if (!fixture_mount_small_disk(f, size))
		return false;
	f->options.wall_ms = test_wall_ms;
	f->options.wal_mib = 1;
	f->options.reserve_bytes = reserve;
	f->options.low_bytes = 256 << 10;
	f->options.retention = (struct store_retention){.runs_ms = RUNS_MS, .entries_ms = ENTRIES_MS, .every_ms = 1LL << 40};
	fixture_open(f);
	create(f, "open", NULL);
	for (unsigned i = 0; i < NOISY_RUNS; i++) {
		make_noise(i);
		create(f, text(f, "run-%u", i), NULL);
		work(f, text(f, "run-%u", i), ENTRY_TASK_COMPLETED, (struct bytes){noise, NOISE_BYTES});
		end(f, text(f, "run-%u", i));
	}
	return true;
}

/* The pages of some runs stay in the database: what comes next does not make it longer. */
static void free_pages(struct fixture *f)
{
	static const char *const runs[] = {"run-0", "run-1", "run-2", "run-3"};
	struct store_purge purge = {.kind = STORE_PURGE_RUNS, .runs = runs, .run_count = COUNT_OF(runs)};

	ck_assert_msg(purge_and_wait(f, &purge) == 0, "%s", purge.error.message);
}

/* All but the reserve. */
static void fill_disk(struct fixture *f, char path[300])
{
	FILE *ballast;

	snprintf(path, 300, "%s/ballast", f->folder);
	ballast = fopen(path, "w");
	ck_assert_ptr_nonnull(ballast);
	setbuf(ballast, NULL);
	while (fwrite(noise, 4096, 1, ballast) == 1)
		;
	fclose(ballast);
}

/* On a disk without a byte left retention takes what is over with the help of the reserve; what is under way has room then. */
START_TEST(a_full_disk_gets_room)
{
	struct store_purge due = {.kind = STORE_PURGE_DUE};
	struct store_disk disk = {0};
	struct fixture f;
	char path[300];

	if (!start_on_small_disk(&f, "8m", 2 << 20))
		goto out;
	fixture_reopen(&f); /* the log is in the database */
	fill_disk(&f, path);
	clock_ms += RUNS_MS;
	ck_assert_msg(purge_and_wait(&f, &due) == 0, "%s", due.error.message);
	ck_assert_uint_ge(due.removed_runs, NOISY_RUNS);
	ck_assert_uint_gt(due.given_pages, 300);
	ck_assert_uint_eq(f.broken, 0);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run"), 1);
	work(&f, "open", ENTRY_TASK_COMPLETED, (struct bytes){noise, NOISE_BYTES});
	ck_assert_int_eq(unlink(path), 0);
	store_disk(f.store, &disk);
	for (unsigned i = 0; i < 500 && disk.state != STORE_DISK_OK; i++) {
		usleep(20000);
		store_disk(f.store, &disk);
	}
	ck_assert_int_eq(disk.state, STORE_DISK_OK);
	create(&f, "new", NULL);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run"), 2);
	fixture_close(&f);
	check_tables_equal(&f);
out:
	fixture_end(&f);
}
END_TEST

struct random {
	uint32_t seed;
};

static uint32_t pick(struct random *random, uint32_t below)
{
	random->seed = random->seed * 1664525u + 1013904223u;
	return (random->seed >> 8) % below;
}

static _Atomic uint64_t stopped_us; /* 0: the clock goes on */

static uint64_t test_now_us(void)
{
	uint64_t us = stopped_us;

	return us != 0 ? us : fixture_now_us();
}

/* With little room a pass comes to its end all the same: whatever a chunk does not need is not written, the log is copied before a chunk could take the room for
 * that, and less is taken at once. The figures are such that each of these alone would not do. */
START_TEST(a_full_disk_has_little_room)
{
	static const struct {
		uint64_t reserve;
		size_t in_log; /* entries for which the database has to get longer, not copied yet; 0: it has room for what comes */
		int64_t runs; /* left in the largest chunk */
	} cases[] = {{1 << 20, 1, RETENTION_RUNS_MAX}, {96 << 10, 1, RETENTION_RUNS_MAX}, {64 << 10, 200, RETENTION_RUNS_MAX}, {40 << 10, 0, RETENTION_RUNS_MAX / 4}};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct store_purge due = {.kind = STORE_PURGE_DUE};
		struct fixture f;
		char path[300];

		stopped_us = 0;
		if (start_on_small_disk(&f, "16m", cases[i].reserve)) {
			fixture_close(&f);
			f.options.now_us = test_now_us;
			fixture_open(&f);
			if (cases[i].in_log == 0) {
				free_pages(&f);
				fixture_reopen(&f);
			}
			fill(&f, cases[i].in_log > 0 ? cases[i].in_log : 1);
			fill_disk(&f, path);
			clock_ms += RUNS_MS;
			stopped_us = fixture_now_us(); /* chunks do not end for being late, however fast the machine is */
			ck_assert_msg(purge_and_wait(&f, &due) == 0, "reserve=%llu: %s", (unsigned long long)cases[i].reserve, due.error.message);
			ck_assert_uint_gt(due.given_pages, 300);
			ck_assert_uint_eq(f.broken, 0);
			ck_assert_int_eq(ask(&f, "SELECT max(json_array_length(json_extract(CAST(bytes AS TEXT), '$.data.runs'))) FROM entry WHERE CAST(bytes AS TEXT) LIKE '%runs.purged%'"), cases[i].runs);
			ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run"), 1);
			ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE size > 1000"), 0);
			fixture_close(&f);
			check_tables_equal(&f);
		}
		fixture_end(&f);
	}
}
END_TEST

/* A chunk that has its bytes stops there, among the values that were looked up together too; nothing is left out between two of them. */
START_TEST(a_chunk_has_its_bytes)
{
	enum { VALUES = 20, VALUE_BYTES = 900 << 10, A_CHUNK = (RETENTION_BYTES_MAX + VALUE_BYTES - 1) / VALUE_BYTES };

	for (int with_fact = 0; with_fact < 2; with_fact++) {
		uint32_t *value = memory_alloc(VALUE_BYTES);
		struct random random = {5};
		bool purged = false;
		unsigned turns = 0;
		struct store_purge due = {.kind = STORE_PURGE_DUE, .on_done = on_purged, .owner = &purged};
		uint64_t dropped = 0;
		struct fixture f;
		struct error error;
		unsigned full = 0;

		stopped_us = 0;
		start(&f);
		create(&f, "run", NULL);
		if (with_fact)
			append_fact(&f, "run", "\"request\"");
		for (unsigned i = 0; i < VALUES; i++) {
			for (unsigned k = 0; k < VALUE_BYTES / sizeof(*value); k++)
				value[k] = pick(&random, UINT32_MAX);
			work(&f, "run", ENTRY_TASK_COMPLETED, (struct bytes){(uint8_t *)value, VALUE_BYTES});
		}
		end(&f, "run");
		fixture_close(&f);
		clock_ms += RUNS_MS;
		stopped_us = fixture_now_us();
		f.options.now_us = test_now_us;
		ck_assert_msg(store_open_by_hand(&f.store, &f.options, &error) == 0, "%s", error.message);
		ck_assert_int_eq(store_purge(f.store, &due), 0);
		while (!purged) {
			ck_assert_uint_lt(turns++, 1000);
			store_step_writer(f.store);
			if (f.store->writer.retention.done.values > dropped) {
				ck_assert_uint_le(f.store->writer.retention.done.values - dropped, A_CHUNK + 6); /* the small ones of the run with them */
				full += f.store->writer.retention.done.values - dropped >= A_CHUNK;
				dropped = f.store->writer.retention.done.values;
			}
			while (store_tell(f.store))
				continue;
		}
		ck_assert_msg(due.error.code == ERR_NONE, "%s", due.error.message);
		ck_assert_uint_ge(full, VALUES / A_CHUNK);
		ck_assert_uint_ge(due.removed_values, VALUES);
		store_close(f.store);
		fixture_open(&f);
		ck_assert_int_eq(ask(&f, "SELECT count(*) FROM content WHERE size > 1000 AND encoding != 3"), 0);
		fixture_close(&f);
		check_tables_equal(&f);
		free(value);
		fixture_end(&f);
	}
}
END_TEST

/* A pass that a reader of an old state leaves without room gives up; the one after the reader's end has it. */
START_TEST(a_full_disk_gets_room_after_a_reader)
{
	struct fixture f;
	char path[300];

	stopped_us = 0;
	if (start_on_small_disk(&f, "8m", 128 << 10)) {
		struct store_purge due = {.kind = STORE_PURGE_DUE}, again = due;
		sqlite3 *reader;

		free_pages(&f);
		fixture_reopen(&f);
		fill(&f, 1);
		ck_assert_int_eq(sqlite3_open(f.store->database_path, &reader), SQLITE_OK);
		ck_assert_int_eq(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM run", NULL, NULL, NULL), SQLITE_OK);
		fill_disk(&f, path);
		clock_ms += RUNS_MS;
		ck_assert_int_eq(purge_and_wait(&f, &due), ERR_FULL);
		ck_assert_int_eq(sqlite3_close(reader), SQLITE_OK);
		ck_assert_msg(purge_and_wait(&f, &again) == 0, "%s", again.error.message);
		ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run"), 1);
		ck_assert_uint_eq(f.broken, 0);
		fixture_close(&f);
		check_tables_equal(&f);
	}
	fixture_end(&f);
}
END_TEST

/* By itself, at an interval, between commits that keep coming. */
START_TEST(passes_come_by_themselves)
{
	struct fixture f;
	uint64_t until_us;

	start(&f);
	fixture_close(&f);
	f.options.retention.every_ms = 20;
	fixture_open(&f);
	create(&f, "old", NULL);
	end(&f, "old");
	clock_ms += RUNS_MS;
	until_us = fixture_now_us() + 20000000;
	while (code_of(&f, "old", NULL) != ERR_GONE) {
		ck_assert_uint_lt(fixture_now_us(), until_us);
		fill(&f, 1);
	}
	ck_assert_uint_gt(store_counters(f.store)->passes + 1, 0);
	fixture_end(&f);
}
END_TEST

/* --- crashes -------------------------------------------------------------------------------------------------------- */

/* Killed at any moment of its passes, a store that is opened again goes on with them: in the end the same is there as without a kill. */
START_TEST(a_pass_that_was_killed_goes_on)
{
	enum { KILLS = 30, RUNS = 600, OPEN = 8 };
	struct random random = {7};
	unsigned parted = 0;
	struct fixture f;
	uint64_t pruned;

	start(&f);
	for (int i = 0; i < RUNS; i++) {
		struct entry entries[4];
		const char *run = text(&f, "run-%d", i);

		make_created(&f.arena, &entries[0], run, "left", "{\"a\":\"b\"}");
		for (int k = 1; k < 3; k++)
			make_step(&f.arena, &entries[k], ENTRY_TASK_COMPLETED, run, "/do/0/x@1", bytes_text(text(&f, "\"%0*d\"", 100 + i % 300, k)));
		make_step(&f.arena, &entries[3], ENTRY_RUN_COMPLETED, run, NULL, BYTES_OF("null"));
		append_at(&f, entries, i % 10 == 0 || i >= RUNS - OPEN ? 3 : 4);
		if (i % 10 == 0) {
			append_fact(&f, run, text(&f, "\"request %d\"", i / 20));
			end(&f, run);
		}
	}
	fixture_close(&f);
	clock_ms += ENTRIES_MS;
	for (int i = 0; i < KILLS; i++) {
		int told[2];
		uint8_t byte;
		pid_t child;

		ck_assert_int_eq(pipe(told), 0);
		child = fork();
		ck_assert_int_ge(child, 0);
		if (child == 0) {
			struct store_purge purge = {.kind = STORE_PURGE_DUE};

			CHECK(uv_loop_fork(&f.loop) == 0);
			fixture_open(&f);
			CHECK(write(told[1], "", 1) == 1);
			purge_and_wait(&f, &purge);
			for (;;)
				pause();
		}
		ck_assert_int_eq(read(told[0], &byte, 1), 1);
		usleep(pick(&random, 20000) << i / 4); /* slower machines are met later */
		ck_assert_int_eq(kill(child, SIGKILL), 0);
		ck_assert_int_eq(waitpid(child, NULL, 0), child);
		close(told[0]);
		close(told[1]);
		parted += ask(&f, "SELECT (SELECT count(*) FROM run_clearing) > 0 OR (SELECT count(*) FROM run) BETWEEN 9 AND 599 OR"
				  " (SELECT count(*) FROM journal_prune) BETWEEN 1 AND 7") != 0;
	}
	ck_assert_uint_ge(parted, 3); /* it was really in the middle of something */
	fixture_open(&f);
	pass(&f);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run"), OPEN);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run_tombstone"), RUNS - OPEN);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run_label"), OPEN);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM run_clearing"), 0);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM pruning"), 0);
	ck_assert_int_eq(ask(&f, "SELECT count(*) FROM fact"), RUNS / 10);
	ck_assert_int_eq(ask(&f, "SELECT count(DISTINCT digest) FROM content WHERE CAST(bytes AS TEXT) LIKE '\"request %'"), RUNS / 20);
	check_tables_equal(&f);
	ck_assert_uint_eq(verify_all(&f, &pruned), 0);
	ck_assert_uint_gt(pruned, RUNS);
	fixture_end(&f);
}
END_TEST

/* --- the property ---------------------------------------------------------------------------------------------------- */

/* Over random runs, lives, values and passes: what is open or within its time is whole, what is over is gone, and the tables follow. */
START_TEST(nothing_within_its_time_is_ever_taken)
{
	enum { ROUNDS = 40, PER_ROUND = 40, RUNS_MAX = ROUNDS * 12 };
	static int64_t ended[RUNS_MAX];
	static unsigned values[RUNS_MAX];
	for (uint32_t seed = 1; seed <= 2; seed++) {
		struct random random = {seed};
		struct fixture f;
		unsigned runs = 0, checked = 0, gone = 0;
		uint64_t pruned;

		memset(ended, 0, sizeof(ended));
		memset(values, 0, sizeof(values));
		start(&f);
		for (int round = 0; round < ROUNDS; round++) {
			for (int i = 0; i < PER_ROUND; i++) {
				unsigned at = runs > 0 ? pick(&random, runs) : 0;

				if (runs == 0 || (runs < RUNS_MAX && pick(&random, 4) == 0)) {
					create(&f, text(&f, "run-%u", runs++), pick(&random, 2) ? "{\"a\":\"b\"}" : NULL);
				} else if (ended[at] == 0 && pick(&random, 3) == 0) {
					end(&f, text(&f, "run-%u", at));
					ended[at] = clock_ms;
				} else if (ended[at] == 0 && pick(&random, 12) == 0) {
					append_fact(&f, text(&f, "run-%u", at), text(&f, "\"request %u\"", pick(&random, 20)));
				} else if (ended[at] == 0) {
					work(&f, text(&f, "run-%u", at), ENTRY_TASK_COMPLETED, bytes_text(text(&f, "\"of %u\"", at)));
					values[at]++;
				} else {
					fill(&f, 1 + pick(&random, 8));
				}
			}
			clock_ms += pick(&random, RUNS_MS / 3);
			if (pick(&random, 3) == 0)
				pass(&f);
			if (pick(&random, 12) == 0)
				fixture_reopen(&f);
			for (unsigned i = 0; i < runs; i++) {
				bool over = ended[i] != 0 && clock_ms - ended[i] >= RUNS_MS;
				int64_t there;

				if (pick(&random, 24) != 0 && round + 1 < ROUNDS)
					continue;
				there = ask(&f, text(&f, "SELECT count(*) FROM run WHERE id = 'run-%u'", i));
				if (over) {
					gone += there == 0;
					continue;
				}
				checked++;
				ck_assert_int_eq(there, 1);
				ck_assert_int_eq(ask(&f, text(&f, "SELECT count(*) FROM content WHERE CAST(bytes AS TEXT) = '\"of %u\"'", i)), values[i]);
				/* Each of its entries is there. */
				ck_assert_int_eq(ask(&f, text(&f, "SELECT coalesce(sum(e.count), 0) - (SELECT count(*) FROM run_entry s JOIN entry t ON t.seq >= s.seq_first AND "
								   "t.seq < s.seq_first + s.count WHERE s.run = r.seq) FROM run r JOIN run_entry e ON e.run = r.seq "
								   "WHERE r.id = 'run-%u'", i)), 0);
			}
		}
		ck_assert_uint_gt(checked, 80);
		ck_assert_uint_gt(gone, 50);
		for (unsigned i = 0; i < runs; i++)
			if (ended[i] == 0)
				end(&f, text(&f, "run-%u", i));
		fill_tile(&f);
		clock_ms += ENTRIES_MS;
		pass(&f);
		check_tables_equal(&f);
		ck_assert_uint_eq(verify_all(&f, &pruned), 0);
		ck_assert_uint_gt(pruned, 0);
		ck_assert_int_eq(ask(&f, "SELECT count(*) FROM fact f WHERE NOT EXISTS (SELECT 1 FROM entry e WHERE e.seq = f.seq)"), 0);
		fixture_end(&f);
	}
}
END_TEST

TEST_MAIN("store-retention", a_run_leaves_when_its_time_is_over, more_runs_than_a_chunk_holds, a_long_run_and_values_that_runs_share,
	  a_child_stays_while_its_parent_is_open, a_child_of_an_open_run_is_not_purged, a_clock_that_was_ahead_keeps_nothing,
	  a_clock_that_leaps_is_not_believed_at_once, a_run_without_its_end, an_older_file_learns_to_get_smaller, a_full_disk_gets_room, a_full_disk_has_little_room, a_chunk_has_its_bytes, a_full_disk_gets_room_after_a_reader,
	  facts_are_kept_with_what_they_rest_on, what_was_spent_outlives_its_entries, facts_go_with_their_run_when_asked_to, a_tile_with_one_open_run_stays, a_pruned_copy_is_restored,
	  held_tiles_do_not_keep_others, what_others_delete_is_still_damage, what_a_table_rests_on_stays, what_stands_for_pruned_entries_is_checked, a_damaged_tile_stays,
	  nothing_is_cleared_that_a_damaged_fact_may_need, too_many_rows_hold_a_value, checkpoints_thin_out, an_operator_purges_runs, a_value_is_erased_everywhere, a_run_that_is_retried_keeps_its_value, an_erased_value_goes_with_its_run, a_broken_store_answers,
	  erased_bytes_are_overwritten, a_definition_is_not_erased, requests_are_limited_and_answered, the_file_gets_smaller, passes_come_by_themselves,
	  a_pass_that_was_killed_goes_on, nothing_within_its_time_is_ever_taken)
