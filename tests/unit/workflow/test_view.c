/* The run document, intervals and overhead. */
#include "tests/unit/workflow/fixture.h"

#include "workflow/view.h"

#define CALL "\"call\":\"http\",\"with\":{\"method\":\"get\",\"endpoint\":\"http://x/\"}"

struct stored_run {
	const struct entry *entries;
	size_t count;
};

static bool load_stored(void *context, struct arena *arena, uint64_t content_id, const struct digest *digest, bool whole, struct bytes *bytes)
{
	const struct stored_run *stored = context;

	(void)whole;
	for (size_t i = 0; i < stored->count; i++)
		for (size_t v = 0; v < stored->entries[i].value_count; v++)
			if (CONTENT_ID(stored->entries[i].seq, v) == content_id) {
				ck_assert(digest_equal(&stored->entries[i].values[v].digest, digest));
				*bytes = arena_bytes(arena, stored->entries[i].values[v].bytes);
				return true;
			}
	return false;
}

/* Pages as a reader gives them: a copy that is gone when the next one comes, large values left out. */
static void add_pages(struct view *view, const struct stored_run *stored, size_t page, uint64_t value_max)
{
	for (size_t at = 0; at < stored->count; at += page) {
		struct arena arena;
		size_t count = stored->count - at < page ? stored->count - at : page;

		arena_init(&arena);
		struct entry *copy = arena_alloc(&arena, count * sizeof *copy);
		for (size_t i = 0; i < count; i++) {
			copy[i] = stored->entries[at + i];
			copy[i].data = json_copy(&arena, copy[i].data);
			for (size_t v = 0; v < copy[i].value_count; v++)
				copy[i].values[v].bytes = copy[i].values[v].size > value_max ? (struct bytes){0} : arena_bytes(&arena, copy[i].values[v].bytes);
		}
		view_add(view, copy, count);
		arena_close(&arena);
	}
}

/* A document put together page by page is the one of all entries at once, whatever the pages; so are pages of its tasks. */
START_TEST(pages_give_the_same_document)
{
	struct fixture f;
	static const size_t pages[] = {1, 2, 3, 7, 1000};

	fixture_open(&f, "[{\"p\":{\"set\":{\"l\":[1,2,3,4,5],\"big\":\"${ .big }\"}}},{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":["
			 "{\"c\":{" CALL "}},{\"w\":{\"wait\":{\"seconds\":5}}},{\"s\":{\"set\":{\"same\":true}}}]}},{\"e\":{\"set\":{\"same\":true}}}]");
	fixture_submit(&f, "{\"big\":\"0123456789012345678901234567890123456789\"}");
	for (int i = 0; i < 5; i++) {
		f.wall_ms += 10;
		fixture_succeed(&f, arena_printf(&f.arena, "/do/1/m/do/0/c#%d@1", i), 1, i % 2 ? "{\"x\":1}" : "{\"x\":2}");
		f.wall_ms += 10000;
		fixture_simple(&f, TRIGGER_DEADLINE);
	}
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	struct stored_run stored = {f.entries, f.count};
	const struct view_source source = {load_stored, &stored};
	const unsigned includes[] = {0, VIEW_OUTPUT, VIEW_INPUT | VIEW_OUTPUT, VIEW_TASKS, VIEW_ALL};
	for (size_t n = 0; n < COUNT_OF(includes); n++) {
		const struct json *whole = view_run(&f.arena, f.entries, f.count, f.definition, "log", includes[n]);
		ck_assert_int_eq(json_count(json_get(whole, "tasks")), includes[n] & VIEW_TASKS ? 18 : 0);
		for (size_t p = 0; p < COUNT_OF(pages); p++) {
			struct view *view = view_begin(&f.arena, f.definition, "log", includes[n], &source);
			add_pages(view, &stored, pages[p], includes[n] & VIEW_EVENTS ? SIZE_MAX : 20);
			const struct json *paged = view_end(view);
			ck_assert_str_eq((const char *)json_print_arena(paged, &f.arena).data, (const char *)json_print_arena(whole, &f.arena).data);
		}
	}
	for (uint64_t after = 0;;) {
		const struct json *whole = view_tasks(&f.arena, f.entries, f.count, NULL, after, 4);
		for (size_t p = 0; p < COUNT_OF(pages); p++) {
			struct view *view = view_begin_tasks(&f.arena, NULL, after, 4, &source);
			add_pages(view, &stored, pages[p], SIZE_MAX);
			const struct json *paged = view_end_tasks(view);
			ck_assert_str_eq((const char *)json_print_arena(paged, &f.arena).data, (const char *)json_print_arena(whole, &f.arena).data);
		}
		if (json_count(json_get(whole, "tasks")) == 0)
			break;
		after = (uint64_t)json_get_number(whole, "next", 0);
	}
	fixture_close(&f);
}
END_TEST

/* Folding what is over changes no sum, wherever it is cut, and what is added before the cut is not counted again. */
START_TEST(folded_intervals_keep_their_sums)
{
	srand(11);
	for (int round = 0; round < 200; round++) {
		struct interval_set active = {0}, queued = {0}, folded_active = {0}, folded_queued = {0};
		int64_t now = 0;
		for (int i = 0; i < 60; i++) {
			int64_t from = now + rand() % 20, until = from + rand() % 30;
			bool first = rand() % 2;
			interval_add(first ? &active : &queued, from, until);
			interval_add(first ? &folded_active : &folded_queued, from, until);
			now += rand() % 25;
			if (rand() % 5 == 0)
				interval_fold(&folded_active, &folded_queued, now);
			ck_assert_int_eq(interval_total(&active), interval_total(&folded_active));
			ck_assert_int_eq(interval_total_outside(&queued, &active), interval_total_outside(&folded_queued, &folded_active));
		}
		ck_assert_uint_lt(folded_active.count + folded_queued.count, active.count + queued.count);
		interval_close(&active);
		interval_close(&queued);
		interval_close(&folded_active);
		interval_close(&folded_queued);
	}
}
END_TEST

/* A union of intervals stays sorted and disjoint, whatever the order in which they come: compared with a plain bitmap. */
START_TEST(intervals)
{
	uint64_t random = 88172645463325252u;

	for (int round = 0; round < 200; round++) {
		struct interval_set set = {0}, other = {0};
		bool in[100] = {false}, out[100] = {false};
		for (int i = 0; i < 12; i++) {
			random ^= random << 13, random ^= random >> 7, random ^= random << 17;
			int64_t from = (int64_t)(random % 90), until = from + (int64_t)(random >> 32) % 10;
			bool first = (random >> 20) & 1;
			interval_add(first ? &set : &other, from, until);
			for (int64_t at = from; at < until; at++)
				*(first ? &in[at] : &out[at]) = true;
		}
		int64_t total = 0, outside = 0;
		for (int i = 0; i < 100; i++) {
			total += in[i];
			outside += in[i] && !out[i];
		}
		ck_assert_int_eq(interval_total(&set), total);
		ck_assert_int_eq(interval_total_outside(&set, &other), outside);
		for (size_t i = 0; i < set.count; i++) {
			ck_assert_int_lt(set.items[i].from, set.items[i].until);
			ck_assert(i == 0 || set.items[i - 1].until < set.items[i].from);
		}
		interval_close(&set);
		interval_close(&other);
	}
}
END_TEST

/* wall = activity + queued + overhead (semantics.md 8): queued time counts where nothing was active. */
START_TEST(overhead_adds_up)
{
	struct arena arena;
	struct interval_set active = {0}, queued = {0};

	arena_init(&arena);
	struct json *sum = json_object(&arena), *record = json_parse(&arena, BYTES_OF("{\"activeUs\":[1000,5000],\"queuedUs\":[0,2000],\"stages\":{\"connect\":1500}}"), JSON_STRICT, NULL, NULL);
	view_add_record(&arena, record, &active, &queued, sum);
	view_add_record(&arena, json_parse(&arena, BYTES_OF("{\"activeUs\":[3000,6000],\"stages\":{\"connect\":500}}"), JSON_STRICT, NULL, NULL), &active, &queued, sum);
	const struct json *overhead = view_overhead(&arena, 10000, &active, &queued, sum);
	ck_assert_double_eq(json_get_number(overhead, "wallMs", 0), 10);
	ck_assert_double_eq(json_get_number(overhead, "activityMs", 0), 5);
	ck_assert_double_eq(json_get_number(overhead, "queuedMs", 0), 1);
	ck_assert_double_eq(json_get_number(overhead, "overheadMs", 0), 4);
	ck_assert_double_eq(json_get_number(json_get(overhead, "stages"), "connect", 0), 2);
	interval_close(&active);
	interval_close(&queued);
	arena_close(&arena);
}
END_TEST

/* Words of ?include=, and the word that is none. */
START_TEST(include_words)
{
	unsigned include;
	const char *bad = NULL;

	ck_assert(view_include_parse("input,tasks", &include, &bad));
	ck_assert_uint_eq(include, VIEW_INPUT | VIEW_TASKS);
	ck_assert(view_include_parse("all", &include, &bad));
	ck_assert_uint_eq(include, VIEW_ALL);
	ck_assert(view_include_parse("", &include, &bad));
	ck_assert_uint_eq(include, 0);
	ck_assert(!view_include_parse("input,tusks", &include, &bad));
	ck_assert_str_eq(bad, "tusks");
}
END_TEST

static const struct json *find_task(const struct json *run, const char *step)
{
	const struct json *tasks = json_get(run, "tasks");

	for (size_t i = 0; i < json_count(tasks); i++)
		if (strcmp(json_get_text(json_at(tasks, i), "step"), step) == 0)
			return json_at(tasks, i);
	ck_abort_msg("no task %s", step);
}

/* Status words, tasks, attempts, input and output of a run under way and of the same run when it is done. */
START_TEST(run_document)
{
	struct fixture f;

	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"c\":{" CALL "}}]}}]");
	fixture_submit(&f, "{\"l\":[1,2]}");
	fixture_fail(&f, "/do/0/m/do/0/c#0@1", 1, FAILURE_STALLED, 3);
	const struct json *run = view_run(&f.arena, f.entries, f.count, f.definition, "test.example/log", VIEW_ALL);
	ck_assert_str_eq(json_get_text(run, "status"), "running");
	ck_assert(json_get(run, "output") == NULL);
	ck_assert_str_eq(json_get_text(find_task(run, "/do/0/m/do/0/c#0@1"), "status"), "waiting");
	ck_assert_str_eq(json_get_text(find_task(run, "/do/0/m/do/0/c#0@1"), "lastFailure"), "stalled");
	ck_assert_str_eq(json_get_text(find_task(run, "/do/0/m/do/0/c#1@1"), "status"), "running");
	ck_assert_double_eq(json_at(json_get(find_task(run, "/do/0/m/do/0/c#1@1"), "iteration"), 0)->number, 1);

	f.wall_ms = state_next_deadline_ms(&f.state);
	fixture_simple(&f, TRIGGER_DEADLINE);
	fixture_succeed(&f, "/do/0/m/do/0/c#0@1", 2, "{\"a\":1}");
	fixture_succeed(&f, "/do/0/m/do/0/c#1@1", 1, "{\"b\":1}");
	run = view_run(&f.arena, f.entries, f.count, f.definition, "test.example/log", VIEW_ALL);
	ck_assert_str_eq(json_get_text(run, "id"), "r1");
	ck_assert_str_eq(json_get_text(run, "status"), "completed");
	ck_assert(json_equal(json_get(run, "input"), fixture_json(&f, "{\"l\":[1,2]}")));
	ck_assert(json_equal(json_get(run, "output"), fixture_json(&f, "[{\"a\":1},{\"b\":1}]")));
	ck_assert_double_eq(json_get_number(find_task(run, "/do/0/m/do/0/c#0@1"), "attempts", 0), 2);
	ck_assert(json_get(find_task(run, "/do/0/m/do/0/c#0@1"), "retryAt") == NULL);
	ck_assert_uint_gt(json_count(json_get(run, "events")), 5);
	run = view_run(&f.arena, f.entries, f.count, NULL, "test.example/log", 0);
	/* No entry holds the duration of its own commit: that is said. */
	ck_assert(json_get_boolean(json_get(run, "overhead"), "withoutLastCommit", false));
	ck_assert(json_get(run, "tasks") == NULL);
	ck_assert(json_get(run, "input") == NULL);
	fixture_close(&f);
}
END_TEST

/* A wait under way counts as queued, not as overhead, in the document of an open run whose other branch goes on. */
START_TEST(waits_of_an_open_run)
{
	struct fixture f;

	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[{\"w\":{\"wait\":{\"seconds\":60}}},{\"c\":{" CALL "}}]}}}]");
	fixture_submit(&f, "{}");
	f.wall_ms += 5000;
	fixture_fail(&f, "/do/0/f/fork/branches/1/c@1", 1, FAILURE_STALLED, 3);
	const struct json *overhead = json_get(view_run(&f.arena, f.entries, f.count, f.definition, "test.example/log", VIEW_ALL), "overhead");
	ck_assert_double_ge(json_get_number(overhead, "wallMs", 0), 5000);
	ck_assert_double_eq(json_get_number(overhead, "queuedMs", 0), json_get_number(overhead, "wallMs", -1));
	ck_assert_double_eq(json_get_number(overhead, "overheadMs", -1), 0);
	fixture_close(&f);
}
END_TEST

/* What the daemon's end cut off waited for it from its start on, each attempt for itself, in the document as in the fold; what others did meanwhile stays activity, and an attempt that
 * ended by itself is none of it. */
START_TEST(cut_off_attempts_waited)
{
	struct fixture f;
	struct outcome outcome = {.ok = true};
	struct state again;
	struct error error = {0};
	struct buffer snapshot;
	int64_t since, total = 0;
	bool cut_off;

	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[{\"c\":{" CALL "}},{\"d\":{" CALL "}}]}}}]");
	fixture_submit(&f, "{}");
	f.wall_ms += 300;
	outcome.output = fixture_json(&f, "{}");
	outcome.record = fixture_json(&f, "{\"activeUs\":[100000,300000],\"waitedUs\":{\"slot\":7000}}");
	fixture_done(&f, "/do/0/f/fork/branches/1/d@1", 1, &outcome);
	f.wall_ms += 400;
	fixture_simple(&f, TRIGGER_RESTARTED); /* 700 ms, of which 200 active */
	f.wall_ms += 1000;
	buffer_init(&snapshot, 1 << 20); /* a start goes on from that */
	state_snapshot_print(&f.state, "1", &snapshot);
	state_init(&again, f.definition);
	ck_assert_int_eq(state_snapshot_read(&again, buffer_bytes(&snapshot), "1", &error), 0);
	fixture_simple(&f, TRIGGER_RESTARTED);
	ck_assert(state_ends_wait(&again, &f.entries[f.count - 2], &since, &cut_off) && cut_off);
	ck_assert_int_eq(since, f.wall_ms - 1000);
	state_close(&again);
	buffer_close(&snapshot);
	f.wall_ms += 50;
	outcome.record = fixture_json(&f, "{\"activeUs\":[1710000,1750000]}");
	fixture_done(&f, "/do/0/f/fork/branches/0/c@1", 3, &outcome);
	const struct json *overhead = json_get(view_run(&f.arena, f.entries, f.count, f.definition, "log", 0), "overhead");
	ck_assert_double_eq(json_get_number(overhead, "wallMs", 0), 1750);
	ck_assert_double_eq(json_get_number(overhead, "activityMs", 0), 240);
	ck_assert_double_eq(json_get_number(overhead, "queuedMs", 0), 1500);
	ck_assert_double_eq(json_get_number(overhead, "overheadMs", 0), 10);
	ck_assert_double_eq(json_get_number(json_get(overhead, "waitedMs"), WAITS_RESTART, 0), 1700);
	ck_assert_double_eq(json_get_number(json_get(overhead, "waitedMs"), "slot", 0), 7);
	state_init(&again, f.definition);
	for (size_t i = 0; i < f.count; i++) {
		if (state_ends_wait(&again, &f.entries[i], &since, &cut_off)) {
			ck_assert(cut_off);
			total += f.entries[i].time_ms - since;
		}
		ck_assert_int_eq(workflow_apply(&again, &f.entries[i], &error), 0);
	}
	ck_assert_int_eq(total, 1700);
	state_close(&again);
	fixture_close(&f);
}
END_TEST

/* A try that is retried shows how often its list was begun. */
START_TEST(attempts_of_a_try)
{
	struct fixture f;

	fixture_open(&f, "[{\"t\":{\"try\":[{\"r\":{\"raise\":{\"error\":{\"type\":\"x\",\"status\":500}}}}],\"catch\":{\"retry\":{\"limit\":{\"attempt\":{\"count\":2}}}}}}]");
	fixture_submit(&f, "{}");
	for (int attempts = 1; attempts <= 3; attempts++) {
		const struct json *run = view_run(&f.arena, f.entries, f.count, f.definition, "test.example/log", VIEW_ALL);
		ck_assert_double_eq(json_get_number(find_task(run, "/do/0/t@1"), "attempts", 0), attempts);
		ck_assert_str_eq(json_get_text(find_task(run, "/do/0/t@1"), "status"), attempts < 3 ? "waiting" : "faulted");
		f.wall_ms = state_next_deadline_ms(&f.state);
		if (attempts < 3)
			fixture_simple(&f, TRIGGER_DEADLINE);
	}
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	fixture_close(&f);
}
END_TEST

/* A fault brings its error, a kill its word, a value that was not read its digest and size. */
START_TEST(other_ends)
{
	struct fixture f;
	struct trigger kill = {.kind = TRIGGER_CANCEL, .kill = true};

	fixture_open(&f, "[{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	f.entries[0].values[0].bytes = (struct bytes){0};
	fixture_fail(&f, "/do/0/c@1", 1, FAILURE_REFUSED, 0);
	const struct json *run = view_run(&f.arena, f.entries, f.count, f.definition, "test.example/log", VIEW_ALL);
	ck_assert_str_eq(json_get_text(run, "status"), "faulted");
	ck_assert_str_eq(json_get_text(json_get(run, "error"), "class"), "refused");
	ck_assert_double_eq(json_get_number(json_get(run, "input"), "size", 0), 2);
	ck_assert_int_eq(strncmp(json_get_text(json_get(run, "input"), "digest"), "sha256:", 7), 0);
	fixture_close(&f);

	fixture_open(&f, "[{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	fixture_trigger(&f, &kill);
	run = view_run(&f.arena, f.entries, f.count, f.definition, "test.example/log", VIEW_ALL);
	ck_assert_str_eq(json_get_text(run, "status"), "cancelled");
	ck_assert_str_eq(json_get_text(run, "reason"), "killed");
	fixture_close(&f);

	/* In quarantine nobody could say what was under way: it ends with the run. */
	fixture_open(&f, "[{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	for (size_t i = 0; i < 2; i++) {
		struct entry *entry = &f.entries[f.count++];
		*entry = (struct entry){.kind = i == 0 ? ENTRY_RUN_SUSPENDED : ENTRY_RUN_CANCELLED, .seq = f.seq++, .time_ms = f.wall_ms, .data = json_object(&f.arena)};
		json_set_text(&f.arena, entry->data, "runId", json_get_text(f.entries[0].data, "runId"));
		if (i == 0)
			json_set_boolean(&f.arena, entry->data, "quarantined", true);
		run = view_run(&f.arena, f.entries, f.count, f.definition, "test.example/log", VIEW_ALL);
		ck_assert_str_eq(json_get_text(json_at(json_get(run, "tasks"), 0), "status"), i == 0 ? "running" : "cancelled");
	}
	ck_assert(json_get_number(json_at(json_get(run, "tasks"), 0), "endSeq", 0) == (double)f.entries[f.count - 1].seq);
	ck_assert_ptr_null(json_get(run, "quarantined"));
	fixture_close(&f);
}
END_TEST

/* Lifecycle entries are CloudEvents, attempts are not. */
START_TEST(cloud_events)
{
	struct fixture f;

	fixture_open(&f, "[{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	struct json *list = json_array(&f.arena);
	for (size_t i = 0; i < f.count; i++)
		view_cloud_events(&f.arena, &f.entries[i], "test.example/log", list);
	ck_assert_uint_eq(json_count(list), 3);
	const struct json *created = json_at(list, 0), *task = json_at(list, 2);
	ck_assert_str_eq(json_get_text(created, "type"), "io.serverlessworkflow.workflow.started.v1");
	ck_assert_str_eq(json_get_text(created, "source"), "https://test.example/log");
	ck_assert_str_eq(json_get_text(created, "id"), "10");
	ck_assert_str_eq(json_get_text(created, "subject"), "r1");
	ck_assert_str_eq(json_get_text(task, "type"), "io.serverlessworkflow.task.started.v1");
	ck_assert_str_eq(json_get_text(json_get(task, "data"), "task"), "/do/0/c");
	ck_assert_str_eq(json_get_text(json_get(task, "data"), "step"), "/do/0/c@1");
	ck_assert_str_eq(json_get_text(json_at(list, 1), "type"), "io.serverlessworkflow.task.created.v1");
	ck_assert_str_eq(json_get_text(json_at(list, 1), "id"), "11-created");
	ck_assert(json_is(json_get(json_get(task, "data"), "startedAt"), JSON_STRING));
	for (unsigned kind = 0; kind < ENTRY_KIND_COUNT; kind++) {
		struct entry entry = {.kind = (enum entry_kind)kind, .data = f.entries[0].data, .time_ms = f.wall_ms};
		if (kind == ENTRY_EVENT_EMITTED)
			entry_add_value(&f.arena, &entry, "event", BYTES_OF("{\"type\":\"t\"}"));
		json_set_boolean(&f.arena, entry.data, "last", true);
		list = json_array(&f.arena);
		view_cloud_events(&f.arena, &entry, "o", list);
		ck_assert_int_eq(json_count(list) > 0, (view_cloud_event_kinds >> kind) & 1);
		if (kind == ENTRY_EVENT_EMITTED)
			ck_assert_str_eq(json_get_text(json_at(list, 0), "type"), "t");
	}
	fixture_close(&f);
}
END_TEST

/* A document has VIEW_FACTS_MAX facts and VIEW_EVENTS_MAX events, the first ones, and says how many more there are. */
START_TEST(facts_and_events_are_limited)
{
	enum { FACTS = VIEW_FACTS_MAX + 3 };
	struct arena arena;
	struct entry *entries = memory_zero((FACTS + 1) * sizeof *entries);
	char last[DIGEST_HEX_LEN + 1];

	arena_init(&arena);
	entries[0] = (struct entry){.kind = ENTRY_RUN_CREATED, .seq = 1, .data = json_parse(&arena, BYTES_OF("{\"runId\":\"r\",\"workflow\":{}}"), JSON_STRICT, NULL, NULL)};
	for (uint64_t i = 0; i < FACTS; i++) {
		struct digest digest = digest_of((struct bytes){(const uint8_t *)&i, sizeof i});
		struct entry *entry = &entries[1 + i];

		*entry = (struct entry){.kind = ENTRY_FACT_RECORDED, .data = json_object(&arena), .seq = 2 + i};
		json_set_text(&arena, entry->data, "verdict", "PASSED");
		json_set_digest(&arena, entry->data, "payload", &digest);
		if (i == VIEW_FACTS_MAX - 1)
			digest_hex(&digest, last);
	}
	const struct json *run = view_run(&arena, entries, FACTS + 1, NULL, "log", VIEW_FACTS);
	ck_assert_uint_eq(json_count(json_get(run, "facts")), VIEW_FACTS_MAX);
	ck_assert_str_eq(json_at(json_get(run, "facts"), VIEW_FACTS_MAX - 1)->string.text, last);
	ck_assert_double_eq(json_get_number(run, "factsLeftOut", 0), FACTS - VIEW_FACTS_MAX);
	ck_assert_ptr_null(json_get(run, "eventsLeftOut"));
	run = view_run(&arena, entries, VIEW_FACTS_MAX + 1, NULL, "log", VIEW_FACTS);
	ck_assert_uint_eq(json_count(json_get(run, "facts")), VIEW_FACTS_MAX);
	ck_assert_ptr_null(json_get(run, "factsLeftOut"));

	/* The two events of the run's creation, and one of each task that started. */
	for (size_t i = 0; i < FACTS; i++) {
		entries[1 + i] = (struct entry){.kind = ENTRY_TASK_STARTED, .data = json_object(&arena), .seq = 2 + i};
		json_set_text(&arena, entries[1 + i].data, "runId", "r");
		json_set_text(&arena, entries[1 + i].data, "stepId", arena_printf(&arena, "/do/0/m/do/0/t#%zu@1", i));
	}
	const size_t of_creation = json_count(json_get(view_run(&arena, entries, 1, NULL, "log", VIEW_EVENTS), "events"));
	const size_t of_task = json_count(json_get(view_run(&arena, entries, 2, NULL, "log", VIEW_EVENTS), "events")) - of_creation;
	ck_assert_uint_eq(of_task, 2); /* created, started */
	const size_t fit = (VIEW_EVENTS_MAX - of_creation) / of_task;
	run = view_run(&arena, entries, fit + 1, NULL, "log", VIEW_EVENTS);
	ck_assert_uint_eq(json_count(json_get(run, "events")), of_creation + fit * of_task);
	ck_assert_ptr_null(json_get(run, "eventsLeftOut"));
	run = view_run(&arena, entries, FACTS + 1, NULL, "log", VIEW_EVENTS);
	ck_assert_uint_eq(json_count(json_get(run, "events")), VIEW_EVENTS_MAX);
	ck_assert_double_eq(json_get_number(run, "eventsLeftOut", 0), (double)(of_creation + FACTS * of_task - VIEW_EVENTS_MAX));
	ck_assert_ptr_null(json_get(run, "factsLeftOut"));
	free(entries);
	arena_close(&arena);
}
END_TEST

/* 10,000 tasks are shown; of those past it the document says how many there are, each counted once. */
START_TEST(tasks_are_limited)
{
	enum { TASKS = VIEW_TASKS_MAX + 2 };
	struct arena arena;
	struct entry *entries = memory_zero((2 * TASKS + 1) * sizeof *entries);
	struct digest digest = digest_of(BYTES_OF("1"));

	arena_init(&arena);
	entries[0] = (struct entry){.kind = ENTRY_RUN_CREATED, .data = json_parse(&arena, BYTES_OF("{\"runId\":\"r\",\"workflow\":{}}"), JSON_STRICT, NULL, NULL)};
	for (int i = 0; i < TASKS; i++)
		for (int end = 0; end < 2; end++) {
			struct entry *entry = &entries[1 + 2 * i + end];
			*entry = (struct entry){.kind = end ? ENTRY_TASK_COMPLETED : ENTRY_TASK_STARTED, .data = json_object(&arena), .seq = 5 + 2 * (uint64_t)i + (uint64_t)end};
			json_set_text(&arena, entry->data, "stepId", arena_printf(&arena, "/do/0/m/do/0/t#%d@1", i));
			json_set_digest(&arena, entry->data, end ? "output" : "input", &digest);
		}
	const struct json *run = view_run(&arena, entries, 2 * TASKS + 1, NULL, "log", VIEW_TASKS);
	ck_assert_uint_eq(json_count(json_get(run, "tasks")), VIEW_TASKS_MAX);
	ck_assert_double_eq(json_get_number(run, "tasksLeftOut", 0), TASKS - VIEW_TASKS_MAX);
	/* The pages: where the document stops the next begins, and each task is on one page. */
	double after = json_get_number(json_at(json_get(run, "tasks"), VIEW_TASKS_MAX - 1), "startSeq", 0);
	const struct json *page = view_tasks(&arena, entries, 2 * TASKS + 1, NULL, (uint64_t)after, VIEW_TASKS_MAX);
	ck_assert_uint_eq(json_count(json_get(page, "tasks")), TASKS - VIEW_TASKS_MAX);
	ck_assert_str_eq(json_get_text(json_at(json_get(page, "tasks"), 0), "step"), "/do/0/m/do/0/t#10000@1");
	ck_assert_double_eq(json_get_number(page, "left", -1), 0);
	size_t seen = 0;
	for (after = 0; (page = view_tasks(&arena, entries, 2 * TASKS + 1, NULL, (uint64_t)after, 4000)), json_count(json_get(page, "tasks")) > 0; after = json_get_number(page, "next", 0)) {
		char step[64];
		snprintf(step, sizeof step, "/do/0/m/do/0/t#%zu@1", seen);
		ck_assert_str_eq(json_get_text(json_at(json_get(page, "tasks"), 0), "step"), step);
		ck_assert_str_eq(json_get_text(json_at(json_get(page, "tasks"), 0), "status"), "completed");
		seen += json_count(json_get(page, "tasks"));
		ck_assert_double_eq(json_get_number(page, "left", -1), (double)(TASKS - seen));
	}
	ck_assert_uint_eq(seen, TASKS);
	ck_assert_double_eq(json_get_number(page, "next", -1), after); /* past the last one it stays where it is */
	run = view_run(&arena, entries, 2 * VIEW_TASKS_MAX + 1, NULL, "log", VIEW_TASKS);
	ck_assert_ptr_null(json_get(run, "tasksLeftOut"));
	free(entries);
	arena_close(&arena);
}
END_TEST

/* All iterations of a loop have the same input: a large one is shown in full once, then by its digest. */
START_TEST(large_inputs_are_shown_once)
{
	struct fixture f;
	char text[VALUE_INLINE_MAX + 100];

	snprintf(text, sizeof text, "{\"big\":\"%0*d\",\"l\":[1,2]}", VALUE_INLINE_MAX, 7);
	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"c\":{" CALL "}}]}}]");
	fixture_submit(&f, text);
	const struct json *run = view_run(&f.arena, f.entries, f.count, f.definition, "test.example/log", VIEW_ALL);
	ck_assert(json_equal(json_get(find_task(run, "/do/0/m@1"), "input"), fixture_json(&f, text)));
	const struct json *input = json_get(find_task(run, "/do/0/m/do/0/c#0@1"), "input");
	ck_assert_double_eq(json_get_number(input, "size", 0), (double)strlen(text));
	ck_assert_ptr_null(json_get(input, "big"));
	fixture_close(&f);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("workflow-view", pages_give_the_same_document, folded_intervals_keep_their_sums, large_inputs_are_shown_once, tasks_are_limited, facts_and_events_are_limited, intervals, overhead_adds_up, include_words, run_document, waits_of_an_open_run, cut_off_attempts_waited, attempts_of_a_try, other_ends, cloud_events)
