/* What is read of a journal while SQLite can get no memory: each reader gives the same as ever or an error with its reason, never less, and
 * never "there is none". Each of SQLite's allocations fails in turn until the call passes untouched. In this process: a reader stops at
 * nothing. Faults of the disk, and what writes: tests/torture. */
#include "tests/unit/store/fixture.h"

enum { FAULTS_AT_LEAST = 2 /* a statement that is prepared, and one that is run */, PRINTED_MAX = 1 << 20, REBUILD_EVERY = 61 };

/* --- memory that fails ---------------------------------------------------------------------------------------------------- */

static sqlite3_mem_methods real;
static _Thread_local long until; /* so many more are given; 0: the next one is not; below: all are */
static _Thread_local bool was_hit;

static bool fails(void)
{
	if (until < 0 || until-- > 0)
		return false;
	was_hit = true;
	return true;
}

static void *give(int size)
{
	return fails() ? NULL : real.xMalloc(size);
}

static void *give_more(void *memory, int size)
{
	return fails() ? NULL : real.xRealloc(memory, size);
}

/* Before SQLite is used. Without small pieces held in reserve, which would not fail. */
static void set_up_memory(void)
{
	sqlite3_mem_methods failing;

	ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real), SQLITE_OK);
	failing = real;
	failing.xMalloc = give;
	failing.xRealloc = give_more;
	ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_MALLOC, &failing), SQLITE_OK);
	ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0), SQLITE_OK);
	until = -1;
}

static void arm(long n)
{
	was_hit = false;
	until = n;
}

static void disarm(void)
{
	until = -1;
}

/* --- a journal with one of everything ----------------------------------------------------------------------------------------- */

static const char definition[] = "{\"n\":1}", document[] = "a document", record[] = "{\"record\":1}";
static char large[40000];

static void add(struct fixture *f, enum entry_kind kind, struct entry *entry)
{
	*entry = (struct entry){.kind = kind, .data = json_object(&f->arena), .time_ms = fixture_wall_ms()};
}

static void on_purged(struct store_purge *purge)
{
	*(bool *)purge->owner = true;
}

static void purge(struct fixture *f, struct store_purge *purge)
{
	bool done = false;

	purge->on_done = on_purged;
	purge->owner = &done;
	ck_assert_int_eq(store_purge(f->store, purge), 0);
	while (!done)
		uv_run(&f->loop, UV_RUN_ONCE);
	ck_assert_msg(purge->error.code == 0, "%s", purge->error.message);
}

static void append_runs(struct fixture *f)
{
	struct bytes statement = BYTES_OF("{\"of\":\"a fact\"}");
	struct digest digest = digest_of(BYTES_OF(document));
	static const char *const gone[] = {"gone"};
	struct store_purge runs = {.kind = STORE_PURGE_RUNS, .runs = gone, .run_count = 1, .reason = BYTES_OF("\"no more\"")},
			   value = {.kind = STORE_PURGE_CONTENT, .content = digest_of(BYTES_OF("\"erased\"")), .reason = BYTES_OF("\"asked\"")};
	struct entry entries[5];

	make_created(&f->arena, &entries[0], "parent", "one", "{\"team\":\"a\"}");
	make_step(&f->arena, &entries[1], ENTRY_TASK_COMPLETED, "parent", "/do/0/a@1", (struct bytes){(uint8_t *)large, sizeof(large)});
	make_step(&f->arena, &entries[2], ENTRY_FACT_RECORDED, "parent", "/do/0/x@1", (struct bytes){0});
	entries[2].statement = statement;
	entries[2].values[entries[2].value_count++] = (struct entry_value){digest_of(statement), statement, statement.len};
	json_set_text(&f->arena, entries[2].data, "verdict", "PASSED");
	json_set_text(&f->arena, entries[2].data, "runtime", "sim");
	json_set_digest(&f->arena, entries[2].data, "document", &digest);
	json_set_digest(&f->arena, entries[2].data, "subject", &digest);
	entry_add_value(&f->arena, &entries[2], "fact", BYTES_OF("{\"object\":1}"));
	append_ok(f, entries, 3);
	make_created(&f->arena, &entries[0], "ended", "one", NULL);
	make_step(&f->arena, &entries[1], ENTRY_TASK_COMPLETED, "ended", "/do/0/a@1", BYTES_OF("\"erased\""));
	make_step(&f->arena, &entries[2], ENTRY_RUN_COMPLETED, "ended", NULL, BYTES_OF("null"));
	make_created(&f->arena, &entries[3], "gone", "one", "{\"team\":\"b\"}");
	make_step(&f->arena, &entries[4], ENTRY_RUN_COMPLETED, "gone", NULL, BYTES_OF("null"));
	append_ok(f, entries, 5);
	purge(f, &runs);
	purge(f, &value);
}

static void append_others(struct fixture *f)
{
	struct digest digest = digest_of(BYTES_OF(definition)), key = digest_of(BYTES_OF("event"));
	struct entry entries[7];

	add(f, ENTRY_DEFINITION_ADDED, &entries[0]);
	json_set_text(&f->arena, entries[0].data, "namespace", "tests");
	json_set_text(&f->arena, entries[0].data, "name", "one");
	json_set_text(&f->arena, entries[0].data, "version", "1.0.0");
	json_set_boolean(&f->arena, entries[0].data, "registered", true);
	json_set_boolean(&f->arena, entries[0].data, "scheduled", true);
	json_set_digest(&f->arena, entries[0].data, "definition", &digest);
	entry_add_value(&f->arena, &entries[0], "source", BYTES_OF("n: 1"));
	entry_add_value(&f->arena, &entries[0], "definition", BYTES_OF(definition));
	add(f, ENTRY_SCHEDULE_TICKED, &entries[1]);
	json_set_text(&f->arena, entries[1].data, "schedule", "tests.one");
	json_set_text(&f->arena, entries[1].data, "due", "2026-11-30T00:00:00.000Z");
	json_set_text(&f->arena, entries[1].data, "runId", "ended");
	add(f, ENTRY_DOCUMENT_ADDED, &entries[2]);
	json_set_text(&f->arena, entries[2].data, "mediaType", "text/plain");
	entry_add_value(&f->arena, &entries[2], "document", BYTES_OF(document));
	digest = digest_of(BYTES_OF("configuration"));
	add(f, ENTRY_CONFIG_LOADED, &entries[3]);
	json_set_text(&f->arena, entries[3].data, "runtime", "sim");
	json_set_digest(&f->arena, entries[3].data, "configuration", &digest);
	entry_add_value(&f->arena, &entries[3], "record", BYTES_OF(record));
	add(f, ENTRY_EVENT_RECEIVED, &entries[4]);
	json_set_digest(&f->arena, entries[4].data, "key", &key);
	entry_add_value(&f->arena, &entries[4], "event", BYTES_OF("{\"id\":\"1\"}"));
	add(f, ENTRY_SINK_ADVANCED, &entries[5]);
	json_set_text(&f->arena, entries[5].data, "sink", "audit");
	json_set_number(&f->arena, entries[5].data, "position", 7);
	add(f, ENTRY_SCHEDULE_SKIPPED, &entries[6]);
	json_set_text(&f->arena, entries[6].data, "schedule", "tests.one");
	json_set_text(&f->arena, entries[6].data, "last", "2026-11-30T01:00:00.000Z");
	json_set_text(&f->arena, entries[6].data, "why", "missed");
	append_ok(f, entries, 7);
}

static void fill_journal(struct fixture *f)
{
	struct store_sign sign;

	for (size_t i = 0; i < sizeof(large); i++)
		large[i] = (char)('a' + i * 7919 % 26);
	set_up_memory();
	fixture_start(f);
	append_runs(f);
	append_others(f);
	sign_and_wait(f, &sign);
	buffer_close(&sign.note);
	fixture_close(f);
}

/* --- what is read ------------------------------------------------------------------------------------------------------------- */

struct ask {
	struct store_reader *reader;
	struct arena *arena;
	struct buffer *out; /* all that it gave */
	struct error *error;
};

static void print_bytes(struct ask *a, struct bytes bytes)
{
	char text[DIGEST_TEXT_LEN + 1];
	struct digest digest = digest_of(bytes);

	digest_text(&digest, text);
	buffer_printf(a->out, "%zu %s\n", bytes.len, bytes.data != NULL ? text : "none");
}

static int ask_run(struct ask *a)
{
	struct store_run run;

	if (reader_run(a->reader, a->arena, "parent", &run, a->error) == 0)
		buffer_printf(a->out, "%s %s %s %llu", run.id, run.name, run.status, (unsigned long long)run.seq_last);
	return (int)a->error->code;
}

static int ask_gone_run(struct ask *a)
{
	struct store_run run;

	return reader_run(a->reader, a->arena, "gone", &run, a->error);
}

static int ask_runs(struct ask *a)
{
	struct store_run_filter filter = {.namespace = "tests", .label_key = "team", .label_value = "a"};
	struct store_run *runs;
	uint64_t number;
	size_t count;

	if (reader_runs(a->reader, a->arena, &filter, &runs, &count, a->error) != 0 || reader_run_count(a->reader, &filter, &number, a->error) != 0)
		return (int)a->error->code;
	buffer_printf(a->out, "%zu %llu %s", count, (unsigned long long)number, runs[0].id);
	return 0;
}

static int ask_open_runs(struct ask *a)
{
	struct store_open_run *runs;
	size_t count;

	if (reader_open_runs(a->reader, a->arena, 0, 10, &runs, &count, a->error) == 0)
		for (size_t i = 0; i < count; i++)
			buffer_printf(a->out, "%s ", runs[i].id);
	return (int)a->error->code;
}

static int ask_run_entries(struct ask *a)
{
	static const char *const ids[] = {"parent", "ended"};
	struct entry *entries;
	size_t count;

	for (size_t i = 0; i < COUNT_OF(ids); i++) {
		if (reader_run_entries(a->reader, a->arena, ids[i], 0, 10, CONTENT_MAX, &entries, &count, a->error) != 0)
			return (int)a->error->code;
		for (size_t k = 0; k < count; k++)
			for (size_t v = 0; v < entries[k].value_count; v++)
				print_bytes(a, entries[k].values[v].bytes);
	}
	return 0;
}

static int ask_entries(struct ask *a)
{
	struct store_raw_entry *raw;
	struct store_log_line *lines;
	struct entry entry;
	size_t count;
	uint64_t next;

	if (reader_entries(a->reader, a->arena, 0, 0, 100, &raw, &count, &next, a->error) != 0 || reader_entry(a->reader, a->arena, &raw[count - 1], CONTENT_MAX, &entry, a->error) != 0)
		return (int)a->error->code;
	for (size_t i = 0; i < count; i++)
		print_bytes(a, raw[i].bytes);
	if (reader_log_lines(a->reader, a->arena, 0, 100, &lines, &count, &next, a->error) == 0)
		buffer_printf(a->out, "%zu %llu", count, (unsigned long long)next);
	return (int)a->error->code;
}

static int ask_contents(struct ask *a)
{
	const struct bytes all[] = {BYTES_OF(document), BYTES_OF(definition), BYTES_OF(record), {(uint8_t *)large, sizeof(large)}, BYTES_OF("{\"of\":\"parent\"}")};
	struct bytes bytes;

	for (size_t i = 0; i < COUNT_OF(all); i++) {
		struct digest digest = digest_of(all[i]);

		if (reader_content(a->reader, a->arena, 0, &digest, i == 4 ? "parent" : NULL, &bytes, a->error) != 0)
			return (int)a->error->code;
		print_bytes(a, bytes);
	}
	return 0;
}

static int ask_erased(struct ask *a)
{
	struct digest digest = digest_of(BYTES_OF("\"erased\""));
	struct bytes bytes;

	return reader_content(a->reader, a->arena, 0, &digest, "ended", &bytes, a->error);
}

static int ask_definitions(struct ask *a)
{
	struct store_definition one, *all;
	struct bytes text, source;
	size_t count;

	if (reader_definition(a->reader, a->arena, "tests", "one", NULL, &one, a->error) != 0 || reader_definition(a->reader, a->arena, "tests", "one", "1.0.0", &one, a->error) != 0 ||
	    reader_definitions(a->reader, a->arena, 0, 10, &all, &count, a->error) != 0 || reader_definition_document(a->reader, a->arena, &one.digest, &text, &source, a->error) != 0)
		return (int)a->error->code;
	buffer_printf(a->out, "%s %zu ", one.version, count);
	print_bytes(a, text);
	print_bytes(a, source);
	return 0;
}

static int ask_schedules(struct ask *a)
{
	struct store_schedule *all, *one;
	size_t count, found;

	if (reader_schedules(a->reader, a->arena, NULL, 10, &all, &count, a->error) != 0 || reader_schedule(a->reader, a->arena, "tests.one", &one, &found, a->error) != 0)
		return (int)a->error->code;
	buffer_printf(a->out, "%zu %zu %llu %s %s %d", count, found, (unsigned long long)one->ticked, one->last_run, one->skipped_why, one->last_is_known);
	return 0;
}

static int ask_events(struct ask *a)
{
	struct digest key = digest_of(BYTES_OF("event"));
	struct store_event *events;
	uint64_t next, seq, after, before, number, position;
	size_t count, old;

	if (reader_events(a->reader, a->arena, 0, 0, 10, &events, &count, &next, a->error) != 0 || reader_event_find(a->reader, &key, &seq, a->error) != 0 ||
	    reader_events_begin(a->reader, 1, &after, a->error) != 0 || reader_events_old(a->reader, INT64_MAX, 10, &before, &old, a->error) != 0 ||
	    reader_event_count(a->reader, &number, a->error) != 0 || reader_sink(a->reader, "audit", &position, a->error) != 0)
		return (int)a->error->code;
	buffer_printf(a->out, "%zu %llu %llu %zu %llu %llu ", count, (unsigned long long)seq, (unsigned long long)after, old, (unsigned long long)number, (unsigned long long)position);
	print_bytes(a, events[0].event);
	return 0;
}

static int ask_documents(struct ask *a)
{
	struct digest digest = digest_of(BYTES_OF(document)), found;
	struct store_document one;
	struct bytes bytes;

	if (reader_document(a->reader, a->arena, &digest, &one, a->error) != 0 || reader_configuration_of(a->reader, a->arena, "sim", &found, a->error) != 0 ||
	    reader_configuration(a->reader, a->arena, &found, &bytes, a->error) != 0)
		return (int)a->error->code;
	buffer_printf(a->out, "%s %llu ", one.media_type, (unsigned long long)one.size);
	print_bytes(a, bytes);
	return 0;
}

static int ask_facts(struct ask *a)
{
	struct store_fact_filter filter = {.from_start = true, .run_id = "parent", .runtime = "sim"};
	struct store_fact_record fact;
	struct store_fact *facts, one;
	char hex[DIGEST_HEX_LEN + 1];
	size_t count;

	if (reader_facts(a->reader, a->arena, &filter, &facts, &count, a->error) != 0)
		return (int)a->error->code;
	ck_assert_uint_eq(count, 1);
	digest_hex(&facts[0].id, hex);
	hex[16] = '\0';
	if (reader_fact(a->reader, a->arena, hex, &one, a->error) != 0 || reader_fact_record(a->reader, a->arena, one.seq, &fact, a->error) != 0)
		return (int)a->error->code;
	print_bytes(a, fact.payload);
	print_bytes(a, fact.fact);
	return 0;
}

static int ask_log(struct ask *a)
{
	struct store_stats stats;
	struct digest hash;
	struct bytes note, *notes;
	uint64_t size, end;
	size_t count;

	if (reader_log_size(a->reader, &size, a->error) != 0 || reader_checkpoint(a->reader, a->arena, 0, &note, a->error) != 0 ||
	    reader_checkpoints(a->reader, a->arena, &notes, &count, a->error) != 0 || reader_stats(a->reader, &stats, a->error) != 0 ||
	    reader_pruned_end(a->reader, 3, &end, a->error) != 0)
		return (int)a->error->code;
	buffer_printf(a->out, "%llu %zu %llu %llu %llu %llu %llu ", (unsigned long long)size, count, (unsigned long long)stats.entries, (unsigned long long)stats.runs,
		      (unsigned long long)stats.removed_runs, (unsigned long long)stats.erased_values, (unsigned long long)end);
	print_bytes(a, note);
	(void)hash;
	return 0;
}

static const struct {
	const char *name;
	int (*ask)(struct ask *a);
	enum error_code code; /* without a fault */
} asks[] = {
	{"a run", ask_run, ERR_NONE}, {"a run that is gone", ask_gone_run, ERR_GONE}, {"runs", ask_runs, ERR_NONE}, {"open runs", ask_open_runs, ERR_NONE},
	{"entries of runs", ask_run_entries, ERR_NONE}, {"entries", ask_entries, ERR_NONE}, {"contents", ask_contents, ERR_NONE}, {"an erased one", ask_erased, ERR_GONE},
	{"definitions", ask_definitions, ERR_NONE}, {"schedules", ask_schedules, ERR_NONE}, {"events", ask_events, ERR_NONE}, {"documents", ask_documents, ERR_NONE},
	{"facts", ask_facts, ERR_NONE}, {"the log", ask_log, ERR_NONE},
};

/* With the n-th allocation of SQLite's failing; below 0: none. */
static int ask_at(struct fixture *f, size_t which, long n, struct buffer *out, struct error *error)
{
	struct arena arena;
	struct ask a = {.arena = &arena, .out = out, .error = error};
	int code;

	arena_init(&arena);
	ck_assert_int_eq(store_open_readonly(f->folder, &a.reader, error), 0);
	arm(n);
	code = asks[which].ask(&a);
	disarm();
	store_reader_close(a.reader);
	arena_close(&arena);
	return code;
}

/* Whatever is asked: the same as without a fault, or an error that says so. */
START_TEST(readers_give_all_or_an_error)
{
	struct fixture f;

	fill_journal(&f);
	for (size_t i = 0; i < COUNT_OF(asks); i++) {
		struct buffer whole, out;
		struct error error;
		unsigned faults = 0;
		bool go_on = true;

		buffer_init(&whole, PRINTED_MAX);
		ck_assert_msg(ask_at(&f, i, -1, &whole, &error) == (int)asks[i].code, "%s: %s", asks[i].name, error.message);
		for (long n = 0; go_on; n++) {
			int code;

			buffer_init(&out, PRINTED_MAX);
			code = ask_at(&f, i, n, &out, &error);
			go_on = was_hit;
			faults += code == ERR_IO;
			if (code == (int)asks[i].code)
				ck_assert_msg(code != 0 || bytes_equal(buffer_bytes(&out), buffer_bytes(&whole)), "%s, allocation %ld: something else", asks[i].name, n);
			else
				ck_assert_msg(was_hit && code == ERR_IO && strstr(error.message, "out of memory") != NULL, "%s, allocation %ld: code %d: %s", asks[i].name, n, code, error.message);
			buffer_close(&out);
		}
		ck_assert_msg(faults >= FAULTS_AT_LEAST, "%s: %u faults", asks[i].name, faults);
		buffer_close(&whole);
	}
	fixture_end(&f);
}
END_TEST

/* A rebuild of the tables that cannot be finished says so: it never takes them for different. */
START_TEST(a_rebuild_is_finished_or_an_error)
{
	struct fixture f;
	struct error error;
	unsigned faults = 0;
	bool go_on = true;

	fill_journal(&f);
	for (long n = 0; go_on; n += REBUILD_EVERY) {
		int code;

		arm(n);
		code = store_check_tables(f.folder, &error);
		disarm();
		go_on = was_hit;
		faults += code != 0;
		ck_assert_msg(code == 0 || (was_hit && code == ERR_IO), "allocation %ld: code %d: %s", n, code, error.message);
	}
	ck_assert_uint_ge(faults, 50);
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-faults", readers_give_all_or_an_error, a_rebuild_is_finished_or_an_error)
