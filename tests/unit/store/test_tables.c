/* The derived tables follow from entries and content alone: rebuilt they are equal, and a row that somebody changed is found. */
#include "tests/unit/store/fixture.h"

enum { STEPS = 3000, OPEN_MAX = 40 };

struct workload {
	struct fixture *f;
	uint32_t seed;
	unsigned runs, open_count, received;
	unsigned open[OPEN_MAX];
};

static uint32_t pick(struct workload *w, uint32_t below)
{
	w->seed = w->seed * 1664525u + 1013904223u;
	return (w->seed >> 8) % below;
}

static const char *run_name(struct workload *w, unsigned run)
{
	return arena_printf(&w->f->arena, "run-%u", run);
}

static void make_timer(struct workload *w, struct entry *entry, enum entry_kind kind, const char *run)
{
	make_step(&w->f->arena, entry, kind, run, NULL, (struct bytes){0});
	json_set_text(&w->f->arena, entry->data, "timer", arena_printf(&w->f->arena, "t%u", pick(w, 3)));
	if (kind == ENTRY_TIMER_SET)
		json_set_text(&w->f->arena, entry->data, "due", "2026-12-01T00:00:00.000Z");
}

static void make_fact(struct workload *w, struct entry *entry, const char *run)
{
	struct arena *arena = &w->f->arena;
	struct bytes statement = bytes_text(arena_printf(arena, "{\"n\":%u}", pick(w, 1u << 24)));
	struct digest document = digest_of(BYTES_OF("document"));

	make_step(arena, entry, ENTRY_FACT_RECORDED, run, "/do/0/x@1", (struct bytes){0});
	entry->statement = statement;
	entry->values[entry->value_count++] = (struct entry_value){digest_of(statement), statement, statement.len};
	json_set_text(arena, entry->data, "verdict", pick(w, 4) ? "PASSED" : "FAILED");
	json_set_text(arena, entry->data, "runtime", "sim");
	json_set_digest(arena, entry->data, "document", &document);
	entry_add_value(arena, entry, "fact", BYTES_OF("{\"object\":1}"));
}

/* Of few keys, so that some are known already. */
static void make_emitted(struct workload *w, struct entry *entry, const char *run)
{
	struct arena *arena = &w->f->arena;
	unsigned n = pick(w, 40);
	struct digest key = digest_of(bytes_text(arena_printf(arena, "%u", n)));

	make_step(arena, entry, ENTRY_EVENT_EMITTED, run, "/do/0/x@1", (struct bytes){0});
	json_set_digest(arena, entry->data, "key", &key);
	entry_add_value(arena, entry, "event", bytes_text(arena_printf(arena, "{\"id\":\"%u\"}", n)));
}

/* Of few runtimes, on many days in no order. */
static void set_spent(struct workload *w, struct entry *entry)
{
	struct spent spent = {pick(w, 2) ? "sim" : "other", pick(w, 1000), pick(w, 1000000)};

	entry->time_ms -= (int64_t)pick(w, 60) * SPENT_DAY_MS;
	json_set(&w->f->arena, entry->data, "spent", spent_json(&w->f->arena, &spent));
}

/* One decision of one run: 1 to 4 entries. */
static size_t make_decision(struct workload *w, struct entry *entries)
{
	static const enum entry_kind kinds[] = {ENTRY_TASK_STARTED,   ENTRY_ATTEMPT_STARTED, ENTRY_ATTEMPT_SUCCEEDED,
						ENTRY_TASK_COMPLETED, ENTRY_RUN_SUSPENDED,   ENTRY_RUN_RESUMED,
						ENTRY_TIMER_SET,      ENTRY_TIMER_FIRED,     ENTRY_FACT_RECORDED,
						ENTRY_EVENT_EMITTED,  ENTRY_EVENT_CONSUMED};
	static const enum entry_kind ends[] = {ENTRY_RUN_COMPLETED, ENTRY_RUN_FAULTED, ENTRY_RUN_CANCELLED, ENTRY_RUN_KILLED};
	struct arena *arena = &w->f->arena;
	size_t count = 1 + pick(w, 4);
	unsigned at;

	if (w->open_count == 0 || (w->open_count < OPEN_MAX && pick(w, 4) == 0)) {
		const char *const labels[] = {NULL, "{}", "{\"a\":\"1\"}", "{\"a\":\"2\",\"b\":\"\xc3\xa9\"}"};

		make_created(arena, &entries[0], run_name(w, w->runs), pick(w, 2) ? "left" : "right", labels[pick(w, 4)]);
		if (w->runs % 5 == 4) { /* a fork, of one that may have ended long ago */
			struct json *from = json_object(arena);
			json_set_text(arena, from, "run", run_name(w, w->runs / 5));
			json_set(arena, entries[0].data, "forkedFrom", from);
		}
		w->open[w->open_count++] = w->runs++;
		return 1;
	}
	at = pick(w, w->open_count);
	for (size_t i = 0; i < count; i++) {
		const char *run = run_name(w, w->open[at]);
		enum entry_kind kind = kinds[pick(w, COUNT_OF(kinds))];

		if (i + 1 == count && pick(w, 6) == 0) {
			make_step(arena, &entries[i], ends[pick(w, COUNT_OF(ends))], run, NULL, BYTES_OF("null"));
			w->open[at] = w->open[--w->open_count];
			break;
		}
		if (kind == ENTRY_FACT_RECORDED)
			make_fact(w, &entries[i], run);
		else if (kind == ENTRY_EVENT_EMITTED)
			make_emitted(w, &entries[i], run);
		else if (kind == ENTRY_TIMER_SET || kind == ENTRY_TIMER_FIRED)
			make_timer(w, &entries[i], kind, run);
		else
			make_step(arena, &entries[i], kind, run, "/do/0/x@1",
				  bytes_text(arena_printf(arena, "%u", pick(w, 1000))));
		if (kind == ENTRY_ATTEMPT_SUCCEEDED && pick(w, 4) > 0)
			set_spent(w, &entries[i]);
		if (pick(w, 3) == 0)
			json_set_text(arena, entries[i].data, "wakes", pick(w, 2) ? "2026-01-02T03:04:05.678Z" : "2031-01-02T03:04:05Z");
		if (pick(w, 3) == 0)
			json_set_boolean(arena, entries[i].data, kind == ENTRY_RUN_SUSPENDED ? "quarantined" : "waits", true);
	}
	return count;
}

/* What has no run: definitions, documents, configurations, the daemon itself. */
static size_t make_other(struct workload *w, struct entry *entry)
{
	static const enum entry_kind kinds[] = {ENTRY_DEFINITION_ADDED, ENTRY_DOCUMENT_ADDED, ENTRY_CONFIG_LOADED,
						ENTRY_DAEMON_STARTED,
						ENTRY_SCHEDULE_TICKED, ENTRY_SCHEDULE_SKIPPED,
						ENTRY_SCHEDULE_PAUSED, ENTRY_SCHEDULE_RESUMED,
						ENTRY_EVENT_RECEIVED, ENTRY_EVENTS_FORGOTTEN, ENTRY_SINK_ADVANCED, ENTRY_RUNTIME_SPENT};
	struct arena *arena = &w->f->arena;
	unsigned n = pick(w, 8);

	*entry = (struct entry){.kind = kinds[pick(w, COUNT_OF(kinds))], .data = json_object(arena), .time_ms = fixture_wall_ms()};
	if (entry->kind == ENTRY_DEFINITION_ADDED) {
		json_set_text(arena, entry->data, "namespace", "tests");
		json_set_text(arena, entry->data, "name", arena_printf(arena, "name-%u", n));
		json_set_text(arena, entry->data, "version", arena_printf(arena, "1.0.%u", pick(w, 4)));
		json_set_boolean(arena, entry->data, "registered", pick(w, 4) > 0);
		if (pick(w, 4) > 0)
			json_set_boolean(arena, entry->data, "scheduled", true);
		entry_add_value(arena, entry, "source", bytes_text(arena_printf(arena, "n: %u", n)));
		entry_add_value(arena, entry, "definition", bytes_text(arena_printf(arena, "{\"n\":%u,\"version\":\"%s\"}", n, json_get_text(entry->data, "version"))));
	} else if (entry->kind == ENTRY_SCHEDULE_TICKED || entry->kind == ENTRY_SCHEDULE_SKIPPED || entry->kind == ENTRY_SCHEDULE_PAUSED ||
		   entry->kind == ENTRY_SCHEDULE_RESUMED) {
		json_set_text(arena, entry->data, "schedule", arena_printf(arena, "tests.name-%u", n));
		if (entry->kind == ENTRY_SCHEDULE_TICKED) {
			json_set_text(arena, entry->data, "due", arena_printf(arena, "2026-11-%02uT00:00:00.000Z", 1 + pick(w, 28)));
			json_set_text(arena, entry->data, "runId", arena_printf(arena, "run-%u", pick(w, 50)));
			if (pick(w, 4) == 0)
				json_set_text(arena, entry->data, "by", "operator");
		} else if (entry->kind == ENTRY_SCHEDULE_SKIPPED) {
			json_set_text(arena, entry->data, "last", arena_printf(arena, "2026-11-%02uT00:00:00.000Z", 1 + pick(w, 28)));
			json_set_number(arena, entry->data, "count", 1 + pick(w, 5));
			json_set_text(arena, entry->data, "why", "missed");
		}
		if (pick(w, 3) == 0)
			json_set_number(arena, entry->data, "eventSeq", pick(w, 1000));
	} else if (entry->kind == ENTRY_EVENT_RECEIVED) {
		struct digest key = digest_of(bytes_text(arena_printf(arena, "received %u", w->received)));

		json_set_digest(arena, entry->data, "key", &key);
		entry_add_value(arena, entry, "event", bytes_text(arena_printf(arena, "{\"id\":\"received %u\"}", w->received++)));
	} else if (entry->kind == ENTRY_EVENTS_FORGOTTEN) {
		json_set_number(arena, entry->data, "before", pick(w, 2000));
	} else if (entry->kind == ENTRY_SINK_ADVANCED) {
		json_set_text(arena, entry->data, "sink", arena_printf(arena, "sink-%u", pick(w, 3)));
		json_set_number(arena, entry->data, "position", pick(w, 1000));
	} else if (entry->kind == ENTRY_RUNTIME_SPENT) {
		set_spent(w, entry);
	} else if (entry->kind == ENTRY_DOCUMENT_ADDED) {
		json_set_text(arena, entry->data, "mediaType", "text/plain");
		entry_add_value(arena, entry, "document", bytes_text(arena_printf(arena, "document %u", n)));
	} else if (entry->kind == ENTRY_CONFIG_LOADED) {
		struct digest digest = digest_of(bytes_text(arena_printf(arena, "%u", n)));

		json_set_text(arena, entry->data, "runtime", "sim");
		json_set_digest(arena, entry->data, "configuration", &digest);
		entry_add_value(arena, entry, "record", bytes_text(arena_printf(arena, "{\"record\":%u}", n)));
	}
	return 1;
}

static void on_staged_done(struct store_append *append)
{
	ck_assert_msg(append->error.code == 0, "%s", append->error.message);
	free(append->entries);
	free(append);
}

/* Waits only now and then, so that batches hold several decisions. A run is never in two appends of one batch by more
 * than the order of staging, which the store keeps. */
static void run_workload(struct workload *w)
{
	for (unsigned i = 0; i < STEPS; i++) {
		struct store_append *append = memory_zero(sizeof(*append));

		append->entries = memory_zero(4 * sizeof(*append->entries));
		append->entry_count = pick(w, 12) == 0 ? make_other(w, append->entries) : make_decision(w, append->entries);
		append->on_done = on_staged_done;
		ck_assert_int_eq(store_append(w->f->store, append), 0);
		if (pick(w, 20) == 0)
			uv_run(&w->f->loop, UV_RUN_DEFAULT);
		if (i == STEPS / 2) {
			uv_run(&w->f->loop, UV_RUN_DEFAULT);
			fixture_reopen(w->f);
		}
	}
	uv_run(&w->f->loop, UV_RUN_DEFAULT);
}

/* After 3,000 mixed decisions of many runs, in batches, with a restart in the middle, the tables are what the entries say,
 * while the store runs and after it. */
START_TEST(rebuilt_tables_are_equal)
{
	struct fixture f;
	struct workload w = {.f = &f, .seed = 1};

	fixture_start(&f);
	run_workload(&w);
	ck_assert_uint_gt(w.runs, 100);
	check_tables_equal(&f);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* Each table: one row changed, removed or added by hand is found, and the table is named. */
START_TEST(tampered_rows_are_found)
{
	static const char *const cases[][2] = {
		{"run", "UPDATE run SET status = 'completed' WHERE seq = (SELECT min(seq) FROM run WHERE status <> 'completed')"},
		{"run",
		 "UPDATE run SET ended_ms = ended_ms + 1 WHERE seq = (SELECT max(seq) FROM run WHERE ended_ms IS NOT NULL)"},
		{"run", "UPDATE run SET status = 'running' WHERE seq = (SELECT min(seq) FROM run WHERE status = 'waiting')"},
		{"run", "UPDATE run SET status = 'waiting' WHERE seq = (SELECT min(seq) FROM run WHERE status = 'suspended')"},
		{"run", "UPDATE run SET suspended = suspended + 1 WHERE seq = (SELECT min(seq) FROM run WHERE suspended IS NOT NULL)"},
		{"run", "UPDATE run SET quarantined = 1 - quarantined WHERE seq = (SELECT min(seq) FROM run WHERE suspended IS NOT NULL)"},
		{"run", "UPDATE run SET forked_from = 'another' WHERE seq = (SELECT max(seq) FROM run WHERE forked_from IS NOT NULL)"},
		{"run_label", "DELETE FROM run_label WHERE run = (SELECT max(run) FROM run_label)"},
		{"run_entry", "UPDATE run_entry SET count = count + 1 WHERE run = (SELECT max(run) FROM run_entry)"},
		{"fact", "UPDATE fact SET accepted = 1 - accepted WHERE seq = (SELECT max(seq) FROM fact)"},
		{"definition", "UPDATE definition SET name = 'forged' WHERE seq = (SELECT max(seq) FROM definition)"},
		{"document", "DELETE FROM document WHERE seq = (SELECT max(seq) FROM document)"},
		{"configuration", "UPDATE configuration SET runtime = 'other' WHERE seq = (SELECT max(seq) FROM configuration)"},
		{"public_key", "INSERT INTO public_key VALUES(99999, 'fact', 'forged', 'forged')"},
		{"timer", "UPDATE timer SET due_ms = due_ms + 1"},
		{"schedule", "UPDATE schedule SET ticked = ticked + 1"},
		{"schedule", "DELETE FROM schedule"},
		{"event", "DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)"},
		{"event", "UPDATE event SET time_ms = time_ms + 1"},
		{"sink", "UPDATE sink SET position = position + 1"},
		{"runtime_spending", "UPDATE runtime_spending SET tokens = tokens + 1 WHERE runtime = (SELECT max(runtime) FROM runtime_spending)"},
		{"runtime_spending", "DELETE FROM runtime_spending"},
		{"journal_node", "INSERT INTO journal_node VALUES(8, 99999, zeroblob(32))"},
	};
	struct fixture f;
	struct workload w = {.f = &f, .seed = 2};

	fixture_start(&f);
	run_workload(&w);
	fixture_close(&f);
	check_tables_equal(&f);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char command[1024], table[64];
		struct error error;
		sqlite3 *db;

		snprintf(command, sizeof(command), "cp '%s/journal.db' '%s/kept.db'", f.folder, f.folder);
		ck_assert_int_eq(system(command), 0);
		db = plain_open(&f);
		ck_assert_msg(sqlite3_exec(db, cases[i][1], NULL, NULL, NULL) == SQLITE_OK, "%s: %s", cases[i][1],
			      sqlite3_errmsg(db));
		ck_assert_msg(sqlite3_changes(db) > 0, "%s changed nothing", cases[i][1]);
		ck_assert_int_eq(sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL), SQLITE_OK);
		sqlite3_close(db);
		ck_assert_int_eq(store_check_tables(f.folder, &error), ERR_CORRUPT);
		snprintf(table, sizeof(table), "table %s:", cases[i][0]);
		ck_assert_msg(strstr(error.message, table) != NULL, "%s: %s", cases[i][0], error.message);
		snprintf(command, sizeof(command), "cp '%s/kept.db' '%s/journal.db'", f.folder, f.folder);
		ck_assert_int_eq(system(command), 0);
		check_tables_equal(&f);
	}
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-tables", rebuilt_tables_are_equal, tampered_rows_are_found)
