/* Reading: values of every size, pages, filters, and the tables beside the runs. */
#include "tests/unit/store/fixture.h"

/* Bytes that do not compress to nothing, the same for the same seed. */
static struct bytes make_bytes(struct arena *arena, size_t len, uint32_t seed, bool compressible)
{
	uint8_t *data = arena_alloc(arena, len);

	for (size_t i = 0; i < len; i++) {
		seed = seed * 1664525u + 1013904223u;
		data[i] = compressible ? (uint8_t)('a' + (seed >> 30)) : (uint8_t)(seed >> 24);
	}
	return (struct bytes){data, len};
}

static const size_t sizes[] = {0,
			       1,
			       CONTENT_SMALL_MAX - 1,
			       CONTENT_SMALL_MAX,
			       CONTENT_SMALL_MAX + 1,
			       CONTENT_CHUNK - 1,
			       CONTENT_CHUNK,
			       CONTENT_CHUNK + 1,
			       3 * CONTENT_CHUNK,
			       3 * CONTENT_CHUNK + 17};

static void read_sizes(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct entry *values = arg, *entries;
	size_t count;

	ck_assert_int_eq(reader_run_entries(reader, &f->arena, "sizes", 0, 1000, CONTENT_MAX, &entries, &count, &f->error), 0);
	ck_assert_uint_eq(count, 1 + COUNT_OF(sizes) * 2);
	for (size_t i = 0; i < COUNT_OF(sizes) * 2; i++) {
		const struct entry_value *wrote = &values[i].values[0], *read = &entries[i + 1].values[0];
		struct bytes bytes;

		ck_assert_uint_eq(entries[i + 1].value_count, 1);
		ck_assert_uint_eq(read->size, wrote->size);
		ck_assert(bytes_equal(read->bytes, wrote->bytes));
		ck_assert_ptr_nonnull(read->bytes.data);
		/* By place, by digest alone where it is large, and among the run's own where it is small. */
		ck_assert_int_eq(reader_content(reader, &f->arena, CONTENT_ID(entries[i + 1].seq, 0), &wrote->digest, NULL,
						&bytes, &f->error),
				 0);
		ck_assert(bytes_equal(bytes, wrote->bytes));
		ck_assert_int_eq(reader_content(reader, &f->arena, 0, &wrote->digest, NULL, &bytes, &f->error),
				 wrote->size > CONTENT_SMALL_MAX ? ERR_NONE : ERR_NOT_FOUND);
		ck_assert_int_eq(reader_content(reader, &f->arena, 0, &wrote->digest, "sizes", &bytes, &f->error), 0);
		ck_assert(bytes_equal(bytes, wrote->bytes));
		ck_assert_int_eq(reader_content(reader, &f->arena, CONTENT_ID(entries[i + 1].seq, 1), NULL, NULL, &bytes,
						&f->error),
				 ERR_NOT_FOUND);
	}
	/* Values over the caller's limit come without their bytes. */
	ck_assert_int_eq(reader_run_entries(reader, &f->arena, "sizes", 0, 1000, VALUE_INLINE_MAX, &entries, &count, &f->error),
			 0);
	for (size_t i = 1; i < count; i++)
		ck_assert_int_eq(entries[i].values[0].bytes.data == NULL, entries[i].values[0].size > VALUE_INLINE_MAX);
}

/* Values of every size come back byte for byte, compressible or not, also after a restart. */
START_TEST(values_of_every_size)
{
	struct fixture f;
	struct entry created, *values;

	fixture_start(&f);
	values = memory_zero(COUNT_OF(sizes) * 2 * sizeof(*values));
	make_created(&f.arena, &created, "sizes", "one", NULL);
	append_ok(&f, &created, 1);
	for (size_t i = 0; i < COUNT_OF(sizes) * 2; i++) {
		make_step(&f.arena, &values[i], ENTRY_TASK_COMPLETED, "sizes", "/do/0/a@1",
			  make_bytes(&f.arena, sizes[i / 2], (uint32_t)i, i % 2));
		append_ok(&f, &values[i], 1);
	}
	ck_assert_uint_gt(atomic_load(&store_counters(f.store)->chunks), 2 * (2 + 3 + 4) - 1);
	read_and_wait(&f, read_sizes, values);
	fixture_reopen(&f);
	read_and_wait(&f, read_sizes, values);
	free(values);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

static int64_t plain_number(struct fixture *f, const char *sql)
{
	sqlite3 *db = plain_open(f);
	sqlite3_stmt *statement;
	int64_t number;

	ck_assert_int_eq(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
	number = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	sqlite3_close(db);
	return number;
}

/* The same large value named by many entries is stored once, and a conflict that brought chunks along leaves none. */
START_TEST(large_values_are_stored_once)
{
	struct fixture f;
	struct entry entry;
	struct bytes large, huge;

	fixture_start(&f);
	large = make_bytes(&f.arena, 100000, 7, true);
	huge = make_bytes(&f.arena, 3 * CONTENT_CHUNK + 1, 8, false);
	for (unsigned i = 0; i < 20; i++) {
		char id[16];

		snprintf(id, sizeof(id), "r%u", i);
		make_created(&f.arena, &entry, id, "one", NULL);
		entry_add_value(&f.arena, &entry, "large", large);
		entry_add_value(&f.arena, &entry, "huge", huge);
		append_ok(&f, &entry, 1);
	}
	ck_assert_int_eq(plain_number(&f, "SELECT count(*) FROM blob"), 2);
	ck_assert_int_eq(plain_number(&f, "SELECT count(*) FROM blob_chunk"), 4);
	ck_assert_int_eq(plain_number(&f, "SELECT count(*) FROM content WHERE encoding = 2"), 40);
	ck_assert_int_lt(plain_number(&f, "SELECT length(bytes) FROM blob WHERE size = 100000"), 50000); /* compressed */
	make_created(&f.arena, &entry, "r0", "one", NULL);
	entry_add_value(&f.arena, &entry, "huge", make_bytes(&f.arena, 2 * CONTENT_CHUNK, 9, false));
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_EXISTS);
	ck_assert_int_eq(plain_number(&f, "SELECT count(*) FROM blob_chunk"), 4);
	fixture_end(&f);
}
END_TEST

/* Chunks whose entry never came (a crash between the two) are gone after the next start. */
START_TEST(orphan_chunks_are_removed_at_start)
{
	struct fixture f;

	fixture_start(&f);
	fixture_close(&f);
	ck_assert_int_eq(
		plain_exec(
			&f,
			"INSERT INTO blob_chunk SELECT randomblob(32), value, 0, zeroblob(100) FROM (WITH RECURSIVE c(value) AS "
			"(SELECT 0 UNION ALL SELECT value + 1 FROM c WHERE value < 199) SELECT value FROM c)"),
		SQLITE_OK);
	ck_assert_int_eq(plain_number(&f, "SELECT count(*) FROM blob_chunk"), 200);
	fixture_open(&f);
	ck_assert_int_eq(plain_number(&f, "SELECT count(*) FROM blob_chunk"), 0);
	fixture_end(&f);
}
END_TEST

/* --- pages of runs -------------------------------------------------------------------------------------------------- */

enum { RUNS = 10000, RUN_BATCH = 500 };

static void read_pages(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_run_filter filter = {.limit = 777};
	struct store_run *runs, run;
	struct store_open_run *open;
	size_t count, all = 0;
	uint64_t total, last = UINT64_MAX, last_open = 0;

	(void)arg;
	/* Every run exactly once, newest first. */
	do {
		ck_assert_int_eq(reader_runs(reader, &f->arena, &filter, &runs, &count, &f->error), 0);
		for (size_t i = 0; i < count; i++) {
			ck_assert_uint_lt(runs[i].seq, last);
			last = runs[i].seq;
			ck_assert_uint_eq(runs[i].seq_last, runs[i].ended_ms != 0 || strcmp(runs[i].status, "suspended") == 0
								    ? runs[i].seq + 1
								    : runs[i].seq);
		}
		all += count;
		filter.before_seq = last;
	} while (count == filter.limit);
	ck_assert_uint_eq(all, RUNS);
	/* i % 10: 0 faulted, 1 cancelled, 2 killed, 3 suspended, 4 running, else completed. */
	const struct {
		struct store_run_filter filter;
		uint64_t count;
	} cases[] = {
		{{.status = NULL}, RUNS},
		{{.status = "faulted"}, RUNS / 10},
		{{.status = "cancelled"}, RUNS / 5},
		{{.status = "suspended"}, RUNS / 10},
		{{.status = "running"}, RUNS / 10},
		{{.status = "completed"}, RUNS / 2},
		{{.status = "waiting"}, 0},
		{{.is_open = true}, RUNS / 5},
		{{.is_open = true, .status = "faulted"}, 0},
		{{.status = "nonsense' OR 1=1 --"}, 0},
		{{.name = "even"}, RUNS / 2},
		{{.name = "even", .status = "faulted"}, RUNS / 10},
		{{.name = "odd", .status = "faulted"}, 0},
		{{.namespace = "tests", .name = "odd", .version = "1.0.0"}, RUNS / 2},
		{{.namespace = "others"}, 0},
		{{.version = "2.0.0"}, 0},
		{{.label_key = "team", .label_value = "t3"}, RUNS / 7 + (RUNS % 7 > 3)},
		{{.label_key = "team"}, RUNS},
		{{.label_key = "team", .label_value = "t3", .status = "completed", .name = "even"}, 0 /* below */},
		{{.since_ms = 1000000, .until_ms = 1000100}, 100},
		{{.since_ms = 1000000 + RUNS}, 0},
		{{.until_ms = 1000001}, 1},
	};
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		uint64_t expected = cases[i].count;

		filter = cases[i].filter;
		if (filter.label_key != NULL && filter.status != NULL)
			for (unsigned n = 0; n < RUNS; n++)
				expected += n % 7 == 3 && n % 10 >= 5 && n % 2 == 0;
		ck_assert_int_eq(reader_run_count(reader, &filter, &total, &f->error), 0);
		ck_assert_msg(total == expected, "case %zu: %llu, not %llu", i, (unsigned long long)total,
			      (unsigned long long)expected);
		filter.limit = STORE_PAGE_MAX * 2; /* more than a page may have */
		ck_assert_int_eq(reader_runs(reader, &f->arena, &filter, &runs, &count, &f->error), 0);
		ck_assert_uint_eq(count, expected);
		for (size_t n = 1; n < count; n++)
			ck_assert_uint_lt(runs[n].seq, runs[n - 1].seq);
	}
	ck_assert_int_eq(reader_run(reader, &f->arena, "run-00002", &run, &f->error), 0);
	ck_assert(run.killed);
	ck_assert_str_eq(run.status, "cancelled");
	ck_assert_str_eq(run.name, "even");
	ck_assert_int_eq(run.created_ms, 1000002);
	ck_assert_int_ne(run.ended_ms, 0);
	ck_assert_int_eq(reader_run(reader, &f->arena, "run-1", &run, &f->error), ERR_NOT_FOUND);
	/* Open runs, oldest first. */
	all = 0;
	do {
		ck_assert_int_eq(reader_open_runs(reader, &f->arena, last_open, 300, &open, &count, &f->error), 0);
		for (size_t i = 0; i < count; i++) {
			ck_assert_uint_gt(open[i].seq, last_open);
			last_open = open[i].seq;
		}
		all += count;
	} while (count == 300);
	ck_assert_uint_eq(all, RUNS / 5);
}

static void read_run_stats(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_stats stats;

	(void)arg;
	ck_assert_int_eq(reader_stats(reader, &stats, &f->error), 0);
	ck_assert_uint_eq(stats.runs, RUNS);
	ck_assert_uint_eq(stats.open_runs, RUNS / 5);
	ck_assert_uint_eq(stats.entries, 3 + RUNS + RUNS / 10 * 9);
	ck_assert_uint_gt(stats.database_bytes, 1 << 20);
	ck_assert_uint_gt(stats.wal_bytes, 0);
}

/* 10,000 runs in pages and through every filter: each of them once, none twice, the counts as made. */
START_TEST(pages_and_filters)
{
	static const enum entry_kind ends[10] = {ENTRY_RUN_FAULTED,   ENTRY_RUN_CANCELLED, ENTRY_RUN_KILLED,
						 ENTRY_RUN_SUSPENDED, ENTRY_RUN_CREATED,   ENTRY_RUN_COMPLETED,
						 ENTRY_RUN_COMPLETED, ENTRY_RUN_COMPLETED, ENTRY_RUN_COMPLETED,
						 ENTRY_RUN_COMPLETED};
	struct fixture f;
	struct entry *entries;

	fixture_start(&f);
	entries = memory_zero(2 * RUN_BATCH * sizeof(*entries));
	for (unsigned i = 0; i < RUNS;) {
		size_t count = 0;

		for (unsigned end = i + RUN_BATCH; i < end; i++) {
			char id[32], labels[64];

			snprintf(id, sizeof(id), "run-%05u", i);
			snprintf(labels, sizeof(labels), "{\"team\":\"t%u\"}", i % 7);
			make_created(&f.arena, &entries[count], id, i % 2 ? "odd" : "even", labels);
			entries[count++].time_ms = 1000000 + i;
			if (ends[i % 10] != ENTRY_RUN_CREATED)
				make_step(&f.arena, &entries[count++], ends[i % 10], id, NULL, (struct bytes){0});
		}
		append_ok(&f, entries, count);
	}
	free(entries);
	read_and_wait(&f, read_pages, NULL);
	read_and_wait(&f, read_run_stats, NULL);
	fixture_end(&f);
}
END_TEST

/* --- entries in pages ------------------------------------------------------------------------------------------------ */

static void read_interleaved(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct entry *entries;
	struct store_raw_entry *raw;
	size_t count, seen = 0;
	uint64_t after = 0, next = 0, size, facts = 1ull << ENTRY_TASK_STARTED;

	(void)arg;
	do { /* 7 at a time, across stretches of 1 to 3 entries */
		ck_assert_int_eq(reader_run_entries(reader, &f->arena, "b", after, 7, CONTENT_MAX, &entries, &count, &f->error),
				 0);
		for (size_t i = 0; i < count; i++, seen++) {
			ck_assert_uint_gt(entries[i].seq, after);
			ck_assert_str_eq(json_get_text(entries[i].data, "runId"), "b");
			if (seen > 0)
				ck_assert_uint_eq((uint64_t)json_get_number(entries[i].data, "n", -1), seen - 1);
			after = entries[i].seq;
		}
	} while (count == 7);
	ck_assert_uint_eq(seen, 1 + 90);
	ck_assert_int_eq(reader_run_entries(reader, &f->arena, "c", 0, 7, CONTENT_MAX, &entries, &count, &f->error),
			 ERR_NOT_FOUND);
	/* The feed: all of one kind, in order, and a next that never stands still. */
	ck_assert_int_eq(reader_log_size(reader, &size, &f->error), 0);
	for (seen = 0; next < size;) {
		uint64_t from = next;

		ck_assert_int_eq(reader_entries(reader, &f->arena, from, facts, 10, &raw, &count, &next, &f->error), 0);
		ck_assert_uint_gt(next, from);
		ck_assert_uint_le(count, 10);
		for (size_t i = 0; i < count; i++, seen++) {
			struct entry entry;

			ck_assert_int_eq(entry_decode(&f->arena, raw[i].bytes, store_origin(f->store), &entry, &f->error), 0);
			ck_assert_int_eq(entry.kind, ENTRY_TASK_STARTED);
			ck_assert_uint_eq(entry.seq, raw[i].seq);
		}
	}
	ck_assert_uint_eq(seen, 180);
	ck_assert_int_eq(reader_entries(reader, &f->arena, size, 0, 10, &raw, &count, &next, &f->error), 0);
	ck_assert_uint_eq(count, 0);
	ck_assert_uint_eq(next, size);
	ck_assert_int_eq(reader_entries(reader, &f->arena, 0, 0, STORE_PAGE_MAX, &raw, &count, &next, &f->error), 0);
	ck_assert_uint_eq(count, size);
}

/* The entries of a run come in order and in pages however they lie between those of others. */
START_TEST(entries_in_pages)
{
	struct fixture f;
	struct entry entries[3];
	unsigned n[2] = {0};

	fixture_start(&f);
	make_created(&f.arena, &entries[0], "a", "one", NULL);
	append_ok(&f, entries, 1);
	make_created(&f.arena, &entries[0], "b", "one", NULL);
	append_ok(&f, entries, 1);
	for (unsigned i = 0; n[0] < 90 || n[1] < 90; i++) {
		unsigned run = i / 2 % 2, count = 1 + i % 3;

		if (n[run] >= 90)
			continue;
		for (unsigned k = 0; k < count; k++) {
			make_step(&f.arena, &entries[k], ENTRY_TASK_STARTED, run ? "b" : "a", "/do/0/a@1", (struct bytes){0});
			json_set_number(&f.arena, entries[k].data, "n", n[run]++);
			/* What looks like the end of an entry inside of one. */
			json_set_text(&f.arena, entries[k].data, "trap", "\",\"kind\":\"fact.recorded\",\"log\":\"");
		}
		if (n[run] > 90)
			n[run] -= count, count = 0;
		if (count == 0) {
			make_step(&f.arena, &entries[0], ENTRY_TASK_STARTED, run ? "b" : "a", "/do/0/a@1", (struct bytes){0});
			json_set_number(&f.arena, entries[0].data, "n", n[run]++);
			count = 1;
		}
		append_ok(&f, entries, count);
	}
	read_and_wait(&f, read_interleaved, NULL);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* --- definitions, documents, configurations ------------------------------------------------------------------------- */

static void add_definition(struct fixture *f, const char *version, bool registered, const char *source, const char *document)
{
	struct entry entry = {.kind = ENTRY_DEFINITION_ADDED, .data = json_object(&f->arena), .time_ms = fixture_wall_ms()};

	json_set_text(&f->arena, entry.data, "namespace", "tests");
	json_set_text(&f->arena, entry.data, "name", "thing");
	json_set_text(&f->arena, entry.data, "version", version);
	json_set_boolean(&f->arena, entry.data, "registered", registered);
	entry_add_value(&f->arena, &entry, "source", bytes_text(source));
	entry_add_value(&f->arena, &entry, "definition", bytes_text(document));
	append_ok(f, &entry, 1);
}

static void read_others(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_definition definition, *definitions;
	struct store_document document;
	struct digest digest;
	struct bytes bytes, source;
	size_t count;

	(void)arg;
	/* The highest semantic version, not the last text and not the last added. */
	ck_assert_int_eq(reader_definition(reader, &f->arena, "tests", "thing", NULL, &definition, &f->error), 0);
	ck_assert_str_eq(definition.version, "1.10.0");
	ck_assert_int_eq(reader_definition(reader, &f->arena, "tests", "thing", "1.10.0-rc.2", &definition, &f->error), 0);
	ck_assert_int_eq(reader_definition(reader, &f->arena, "tests", "thing", "3.0.0", &definition, &f->error),
			 ERR_NOT_FOUND); /* not registered */
	ck_assert_int_eq(reader_definition(reader, &f->arena, "tests", "other", NULL, &definition, &f->error), ERR_NOT_FOUND);
	digest = digest_of(BYTES_OF("{\"v\":\"3.0.0\"}"));
	ck_assert_int_eq(reader_definition_document(reader, &f->arena, &digest, &bytes, &source, &f->error), 0);
	ck_assert(bytes_equal_text(bytes, "{\"v\":\"3.0.0\"}"));
	ck_assert(bytes_equal_text(source, "v: 3.0.0"));
	ck_assert_int_eq(reader_definition_document(reader, &f->arena, &digest, &bytes, NULL, &f->error), 0);
	ck_assert_int_eq(reader_content(reader, &f->arena, 0, &digest, NULL, &bytes, &f->error), 0);
	ck_assert_int_eq(reader_definitions(reader, &f->arena, 0, 2, &definitions, &count, &f->error), 0);
	ck_assert_uint_eq(count, 2);
	ck_assert_str_eq(definitions[0].version, "1.2.0");
	ck_assert_int_eq(reader_definitions(reader, &f->arena, definitions[1].seq, 10, &definitions, &count, &f->error), 0);
	ck_assert_uint_eq(count, 3);

	digest = digest_of(BYTES_OF("# A document"));
	ck_assert_int_eq(reader_document(reader, &f->arena, &digest, &document, &f->error), 0);
	ck_assert_uint_eq(document.size, 12);
	ck_assert_str_eq(document.media_type, "text/markdown");
	ck_assert_int_eq(reader_content(reader, &f->arena, 0, &digest, NULL, &bytes, &f->error), 0);
	ck_assert(bytes_equal_text(bytes, "# A document"));

	ck_assert_int_eq(reader_configuration_of(reader, &f->arena, "sim", &digest, &f->error), 0);
	ck_assert_int_eq(reader_configuration(reader, &f->arena, &digest, &bytes, &f->error), 0);
	ck_assert(bytes_equal_text(bytes, "{\"record\":2}"));
	digest = digest_of(BYTES_OF("{\"record\":1}"));
	ck_assert_int_eq(reader_content(reader, &f->arena, 0, &digest, NULL, &bytes, &f->error), 0);
	ck_assert_int_eq(reader_configuration(reader, &f->arena, &digest, &bytes, &f->error), ERR_NOT_FOUND);
	ck_assert_int_eq(reader_configuration_of(reader, &f->arena, "none", &digest, &f->error), ERR_NOT_FOUND);
}

/* Definitions by name and highest version, by digest also when not registered; documents and configuration records. */
START_TEST(definitions_documents_configurations)
{
	static const char *const versions[] = {"1.9.0", "1.10.0-rc.2", "1.10.0", "1.10.0-rc.10", "1.2.0"};
	struct fixture f;
	struct entry entry;
	struct digest configuration = digest_of(BYTES_OF("values"));

	fixture_start(&f);
	add_definition(&f, "3.0.0", false, "v: 3.0.0", "{\"v\":\"3.0.0\"}");
	add_definition(&f, "3.0.0", false, "v:  3.0.0 # again", "{\"v\":\"3.0.0\"}");
	for (size_t i = 0; i < COUNT_OF(versions); i++)
		add_definition(&f, versions[i], true, arena_printf(&f.arena, "v: %s", versions[i]),
			       arena_printf(&f.arena, "{\"v\":\"%s\"}", versions[i]));
	for (unsigned i = 0; i < 2; i++) {
		entry = (struct entry){.kind = ENTRY_DOCUMENT_ADDED, .data = json_object(&f.arena), .time_ms = fixture_wall_ms()};
		json_set_text(&f.arena, entry.data, "mediaType", i ? "text/plain" : "text/markdown");
		json_set_number(&f.arena, entry.data, "bytes", 12);
		entry_add_value(&f.arena, &entry, "document", BYTES_OF("# A document"));
		append_ok(&f, &entry, 1);
		/* Learning a value better changes the record, not the configuration's identity. */
		entry = (struct entry){.kind = ENTRY_CONFIG_LOADED, .data = json_object(&f.arena), .time_ms = fixture_wall_ms()};
		json_set_text(&f.arena, entry.data, "runtime", "sim");
		json_set_digest(&f.arena, entry.data, "configuration", &configuration);
		entry_add_value(&f.arena, &entry, "record", i ? BYTES_OF("{\"record\":2}") : BYTES_OF("{\"record\":1}"));
		append_ok(&f, &entry, 1);
	}
	read_and_wait(&f, read_others, NULL);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* --- which version is the newest ------------------------------------------------------------------------------------- */

/* By section 11 of Semantic Versioning 2.0.0, its own example among them: each stands above all before it. */
static const char *const ascending[] = {"0.9.10", "1.0.0-1", "1.0.0-2", "1.0.0-11", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.1.0", "1.0.0-alpha.beta", "1.0.0-alphabet",
					"1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1+build.5", "1.0.0", "1.0.9+build.1", "1.0.10", "1.2.0", "1.10.0", "2.0.0-a", "10.0.0"};

static void read_newest(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_definition definition;

	(void)arg;
	for (size_t i = 0; i < COUNT_OF(ascending); i++)
		for (unsigned way = 0; way < 2; way++) {
			ck_assert_int_eq(reader_definition(reader, &f->arena, "tests", arena_printf(&f->arena, "%s-%zu", way ? "up" : "down", i), NULL, &definition, &f->error), 0);
			ck_assert_str_eq(definition.version, ascending[i]);
		}
}

/* Whatever has been registered, in whichever order, the newest is the one of the highest precedence. */
START_TEST(newest_is_by_precedence)
{
	struct fixture f;
	size_t count = 0;
	struct entry *entries = memory_zero(COUNT_OF(ascending) * (COUNT_OF(ascending) + 1) * sizeof(*entries));

	fixture_start(&f);
	for (size_t i = 0; i < COUNT_OF(ascending); i++)
		for (size_t n = 0; n < 2 * (i + 1); n++) {
			bool up = n <= i;
			struct entry *entry = &entries[count++];

			*entry = (struct entry){.kind = ENTRY_DEFINITION_ADDED, .data = json_object(&f.arena), .time_ms = fixture_wall_ms()};
			json_set_text(&f.arena, entry->data, "namespace", "tests");
			json_set_text(&f.arena, entry->data, "name", arena_printf(&f.arena, "%s-%zu", up ? "up" : "down", i));
			json_set_text(&f.arena, entry->data, "version", ascending[up ? n : 2 * i + 1 - n]);
			entry_add_value(&f.arena, entry, "definition", bytes_text(arena_printf(&f.arena, "{\"n\":%zu}", count)));
		}
	append_ok(&f, entries, count);
	free(entries);
	read_and_wait(&f, read_newest, NULL);
	fixture_end(&f);
}
END_TEST

/* --- kin, and what is not there --------------------------------------------------------------------------------------- */

static void read_kin(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_run_filter children = {.parent = "mother"}, forks = {.forked_from = "mother"};
	struct store_run *runs;
	struct store_definition *definitions;
	struct store_raw_entry *raw;
	struct store_log_line *lines;
	struct digest hash;
	uint64_t number, next;
	size_t count;

	(void)arg;
	ck_assert_int_eq(reader_runs(reader, &f->arena, &children, &runs, &count, &f->error), 0);
	ck_assert_uint_eq(count, 1);
	ck_assert_str_eq(runs[0].id, "child");
	ck_assert_str_eq(runs[0].parent, "mother");
	ck_assert_str_eq(runs[0].parent_step, "/do/0/a@1");
	ck_assert(runs[0].is_awaited);
	ck_assert_ptr_null(runs[0].forked_from);
	ck_assert_int_eq(reader_runs(reader, &f->arena, &forks, &runs, &count, &f->error), 0);
	ck_assert_uint_eq(count, 1);
	ck_assert_str_eq(runs[0].id, "fork");
	ck_assert_str_eq(runs[0].forked_from, "mother");
	ck_assert_ptr_null(runs[0].parent);
	/* Without a number of rows, and with more than a page has. */
	for (size_t limit = 0; limit <= STORE_PAGE_MAX + 1; limit += STORE_PAGE_MAX + 1) {
		ck_assert_int_eq(reader_entries(reader, &f->arena, 0, 0, limit, &raw, &count, &next, &f->error), 0);
		ck_assert_uint_eq(count, 6);
		ck_assert_int_eq(reader_log_lines(reader, &f->arena, 0, limit, &lines, &count, &next, &f->error), 0);
		ck_assert_uint_eq(count, 6);
		ck_assert_int_eq(reader_definitions(reader, &f->arena, 0, limit, &definitions, &count, &f->error), 0);
		ck_assert_uint_eq(count, 0);
	}
	ck_assert_int_eq(reader_content_size(reader, CONTENT_ID(3, 0), &number, &f->error), 0);
	ck_assert_uint_eq(number, strlen("{\"of\":\"mother\"}"));
	ck_assert_int_eq(reader_content_size(reader, CONTENT_ID(1, 0), &number, &f->error), ERR_NOT_FOUND);
	ck_assert_uint_eq(number, 0);
	ck_assert_int_eq(reader_leaf(reader, 0, 5, &hash, &f->error), 0);
	ck_assert_int_eq(reader_leaf(reader, 0, 6, &hash, &f->error), ERR_NOT_FOUND);
	ck_assert_int_eq(reader_leaf(reader, LOG_TREE_LEVELS_MAX, 0, &hash, &f->error), ERR_NOT_FOUND);
	ck_assert_int_eq(reader_leaf(reader, 8, INT64_MAX, &hash, &f->error), ERR_NOT_FOUND);
	ck_assert_int_eq(reader_pruned_end(reader, 4, &next, &f->error), 0);
	ck_assert_uint_eq(next, 4);
	ck_assert_int_eq(reader_pruned_end(reader, UINT64_MAX, &next, &f->error), 0);
	ck_assert_uint_eq(next, UINT64_MAX);
}

/* Children and forks are found by the run that they come from; what there is not is not found, wherever one looks. */
START_TEST(kin_and_what_is_not_there)
{
	static const char *const kin[][2] = {{"child", "parent"}, {"fork", "forkedFrom"}};
	struct fixture f;
	struct entry entries[3];

	fixture_start(&f);
	make_created(&f.arena, &entries[0], "mother", "one", NULL);
	for (size_t i = 0; i < COUNT_OF(kin); i++) {
		struct json *from = json_object(&f.arena);

		make_created(&f.arena, &entries[i + 1], kin[i][0], "one", NULL);
		json_set_text(&f.arena, from, "run", "mother");
		json_set_text(&f.arena, from, "step", "/do/0/a@1");
		json_set_boolean(&f.arena, from, "awaited", true);
		json_set(&f.arena, entries[i + 1].data, kin[i][1], from);
	}
	append_ok(&f, entries, 3);
	read_and_wait(&f, read_kin, NULL);
	fixture_end(&f);
}
END_TEST

static void read_nothing(struct store_reader *reader, struct store_read *read)
{
	uint64_t size;

	reader_log_size(reader, &size, &read->error);
}

static void on_counted(struct store_read *read)
{
	unsigned *count = read->owner;

	ck_assert_int_eq(read->error.code, 0);
	arena_close(&read->arena);
	(*count)++;
}

/* Reads past the limit are refused at once, and the others are all answered. */
START_TEST(reads_have_a_limit)
{
	struct fixture f;
	unsigned count = 0, accepted = 0;
	struct store_read *reads = memory_zero((STORE_READS_MAX + 1) * sizeof(*reads));

	fixture_start(&f);
	for (unsigned i = 0; i <= STORE_READS_MAX; i++) {
		reads[i] = (struct store_read){.work = read_nothing, .on_done = on_counted, .owner = &count};
		if (store_read(f.store, &reads[i]) == 0)
			accepted++;
		else
			ck_assert_uint_eq(i, STORE_READS_MAX);
	}
	ck_assert_uint_eq(accepted, STORE_READS_MAX);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(count, accepted);
	free(reads);
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-read", values_of_every_size, large_values_are_stored_once, orphan_chunks_are_removed_at_start, pages_and_filters,
	  entries_in_pages, definitions_documents_configurations, newest_is_by_precedence, kin_and_what_is_not_there, reads_have_a_limit)
