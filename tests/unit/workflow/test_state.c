/* The fold: what entries make of a state, which ones cannot follow, and that drafts change nothing. */
#include "tests/unit/workflow/fixture.h"

#define CALL "\"call\":\"http\",\"with\":{\"method\":\"get\",\"endpoint\":\"http://x/\"}"
#define LOOP "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"c\":{" CALL "}},{\"s\":{\"set\":{\"v\":\"${ . }\"}}}]}}]"

static struct digest fold(struct fixture *f, size_t count)
{
	struct state state;
	struct error error = {0};

	state_init(&state, f->definition);
	for (size_t i = 0; i < count; i++)
		ck_assert_msg(workflow_apply(&state, &f->entries[i], &error) == 0, "%s", error.message);
	state_settle(&state);
	struct digest digest = state_digest(&state);
	state_close(&state);
	return digest;
}

/* Folding the entries again gives the same state, after every decision. */
START_TEST(fold_is_a_function_of_the_entries)
{
	struct fixture f;
	static const char *const steps[] = {"/do/0/m/do/0/c#0@1", "/do/0/m/do/0/c#1@1", "/do/0/m/do/0/c#2@1"};

	fixture_open(&f, LOOP);
	fixture_submit(&f, "{\"l\":[1,2,3]}");
	for (size_t i = 0; i < COUNT_OF(steps); i++) {
		struct digest live = state_digest(&f.state), again = fold(&f, f.count);
		ck_assert(digest_equal(&live, &again));
		fixture_succeed(&f, steps[i], 1, "{\"answer\":true}");
		again = state_digest(&f.state);
		ck_assert(!digest_equal(&live, &again)); /* and it tells states apart */
	}
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	fixture_close(&f);
}
END_TEST

/* A decision that is dropped has changed nothing. */
START_TEST(drafts_leave_no_trace)
{
	struct fixture f;
	struct decision decision;
	struct decide_context context;
	struct outcome outcome = {.ok = true};
	struct trigger trigger = {.kind = TRIGGER_ACTIVITY_DONE, .step_id = "/do/0/m/do/0/c#0@1", .attempt = 1, .outcome = &outcome};

	fixture_open(&f, LOOP);
	fixture_submit(&f, "{\"l\":[1,2,3]}");
	outcome.output = fixture_json(&f, "{\"answer\":[1,2,3]}");
	context = fixture_context(&f);
	struct digest before = state_digest(&f.state);
	for (int i = 0; i < 3; i++) {
		decision_init(&decision);
		workflow_decide(&f.state, &trigger, 1, &context, &decision);
		ck_assert_uint_gt(decision.entry_count, 3);
		decision_close(&decision);
		struct digest after = state_digest(&f.state);
		ck_assert(digest_equal(&before, &after));
	}
	fixture_close(&f);
}
END_TEST

/* Values over VALUE_INLINE_MAX are known by digest and place, smaller ones are at hand. */
START_TEST(large_values_stay_outside)
{
	for (int more = 0; more < 2; more++) {
		struct fixture f;
		char text[VALUE_INLINE_MAX + 8];
		size_t len = VALUE_INLINE_MAX - 2 + (size_t)more; /* with its quotes: just in, just out */

		memset(text, 'x', len);
		text[len] = 0;
		fixture_open(&f, "[{\"a\":{" CALL "}}]");
		fixture_submit(&f, arena_printf(&f.arena, "\"%s\"", text));
		ck_assert_uint_eq(f.state.input->size, VALUE_INLINE_MAX + (size_t)more);
		ck_assert_int_eq(f.state.input->bytes.data == NULL, more);
		ck_assert_uint_eq(f.state.input->content_id, CONTENT_ID(10, 0));
		fixture_close(&f);
	}
}
END_TEST

/* What is finished leaves memory: a long loop keeps outputs alone, an ended run nothing. */
START_TEST(finished_work_is_forgotten)
{
	struct fixture f;
	struct buffer input;

	buffer_init(&input, 1 << 20);
	buffer_add_text(&input, "{\"l\":[0");
	for (int i = 1; i < 200; i++)
		buffer_printf(&input, ",%d", i);
	buffer_add_text(&input, "]}");
	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"do\":[{\"d\":{\"do\":[{\"s\":{\"set\":{\"l\":\"${ .l }\"}}}]}}]}},{\"c\":{" CALL "}}]");
	fixture_submit(&f, buffer_text(&input));
	while (f.decision.effects[0].kind == EFFECT_CONTINUE)
		fixture_simple(&f, TRIGGER_CONTINUE);
	ck_assert_uint_eq(f.state.instance_count, 3); /* the root, the loop, the call */
	ck_assert_uint_le(f.state.value_count, 4);
	fixture_succeed(&f, "/do/1/c@1", 1, "{}");
	ck_assert_uint_eq(f.state.instance_count, 0);
	ck_assert_uint_le(f.state.value_count, 2);
	buffer_close(&input);
	fixture_close(&f);
}
END_TEST

static struct entry make_entry(struct fixture *f, enum entry_kind kind, const char *data)
{
	return (struct entry){.kind = kind, .data = fixture_json(f, data), .time_ms = f->wall_ms, .seq = f->seq};
}

/* What cannot follow is refused with its place and the reason, not folded in. */
START_TEST(entries_that_cannot_follow)
{
	static const struct {
		enum entry_kind kind;
		const char *data, *why;
	} rows[] = {
		{ENTRY_RUN_CREATED, "{\"runId\":\"r1\"}", "created once"},
		{ENTRY_TASK_STARTED, "{\"runId\":\"r1\",\"stepId\":\"/do/0/a@1\"}", "under way already"},
		{ENTRY_TASK_STARTED, "{\"runId\":\"r1\",\"stepId\":\"/do/1/b@1\"}", "not this task's turn"},
		{ENTRY_TASK_STARTED, "{\"runId\":\"r1\",\"stepId\":\"/do/9/z@1\"}", "no such task"},
		{ENTRY_TASK_STARTED, "{\"runId\":\"r1\"}", "no such task"},
		{ENTRY_TASK_STARTED, "{\"runId\":\"r1\",\"stepId\":\"/do/0/a#3@1\"}", "no such task"},
		{ENTRY_TASK_COMPLETED, "{\"runId\":\"r1\",\"stepId\":\"/do/0/a@1\"}", "no output"},
		{ENTRY_TASK_COMPLETED, "{\"runId\":\"r1\",\"stepId\":\"/do/0/a@1\",\"output\":{\"sha256\":"
				       "\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"}}", "still under way"},
		{ENTRY_TASK_CANCELLED, "{\"runId\":\"r1\",\"stepId\":\"/do/1/b@1\"}", "not this task's turn"},
		{ENTRY_TASK_RETRYING, "{\"runId\":\"r1\",\"stepId\":\"/do/0/a@1\",\"due\":\"2026-09-18T09:10:24.500Z\"}", "in flight"},
		{ENTRY_ATTEMPT_STARTED, "{\"runId\":\"r1\",\"stepId\":\"/do/0/a@1\",\"attempt\":2}", "another attempt"},
		{ENTRY_ATTEMPT_SUCCEEDED, "{\"runId\":\"r1\",\"stepId\":\"/do/0/a@1\",\"attempt\":2}", "not in flight"},
		{ENTRY_ATTEMPT_SUCCEEDED, "{\"runId\":\"r1\",\"stepId\":\"/do/0/a@2\",\"attempt\":1}", "not under way"},
		{ENTRY_ATTEMPT_STARTED, "{\"runId\":\"r1\",\"stepId\":\"/do/1/b@1\",\"attempt\":1}", "not under way"},
		{ENTRY_CLOCK_STEPPED, "{\"byMs\":1}", "no such entry"},
	};
	struct fixture f;

	fixture_open(&f, "[{\"a\":{" CALL "}},{\"b\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	struct digest before = state_digest(&f.state);
	uint64_t count = f.state.entry_count;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct error error = {0};
		struct entry entry = make_entry(&f, rows[i].kind, rows[i].data);
		ck_assert_int_eq(workflow_apply(&f.state, &entry, &error), ERR_CORRUPT);
		ck_assert_msg(strstr(error.message, rows[i].why) != NULL, "row %zu: %s", i, error.message);
		ck_assert(strstr(error.message, "r1") != NULL);
	}
	ck_assert_uint_eq(f.state.entry_count, count);
	struct digest after = state_digest(&f.state);
	ck_assert(digest_equal(&before, &after));
	fixture_close(&f);
}
END_TEST

/* The same of what waits, tries, begins and is tried again: each row is one entry behind those that the run made by itself, or behind its first alone. */
START_TEST(entries_that_do_not_fit)
{
	enum behind { NOTHING, CREATED, SUBMITTED };
	static const char waits[] = "[{\"w\":{\"wait\":{\"hours\":1}}},{\"a\":{" CALL "}}]", tries[] = "[{\"t\":{\"try\":[{\"a\":{" CALL "}}],\"catch\":{\"as\":\"e\",\"do\":[{\"s\":{\"set\":{\"x\":1}}}]}}}]",
			  raises[] = "[{\"r\":{\"raise\":{\"error\":{\"type\":\"https://x/y\",\"status\":500}}}}]";
	static const struct {
		const char *tasks;
		enum behind behind;
		enum entry_kind kind;
		const char *data, *why;
	} rows[] = {
		{waits, NOTHING, ENTRY_RUN_CREATED, "\"timeout\":\"soon\"", "a time that is none"},
		{waits, NOTHING, ENTRY_RUN_CREATED, "\"parent\":{}", "a parent without its id or step"},
		{waits, NOTHING, ENTRY_RUN_CREATED, "\"parent\":{\"run\":\"a/b\",\"step\":\"/do/0/a@1\"}", "a parent without its id or step"},
		{waits, NOTHING, ENTRY_RUN_CREATED, "\"parent\":{\"run\":\"r0\"}", "a parent without its id or step"},
		{waits, CREATED, ENTRY_TASK_STARTED, "\"stepId\":\"/do/0/w@2\"", "the execution number is not the next one"},
		{waits, CREATED, ENTRY_TASK_STARTED, "\"stepId\":\"/do/0/w@0\"", "the execution number is not the next one"},
		{waits, CREATED, ENTRY_TASK_CANCELLED, "\"stepId\":\"/do/0/w@1\"", "the task is not under way"},
		{waits, CREATED, ENTRY_TASK_RETRYING, "\"stepId\":\"/do/0/w@1\"", "the task is not under way"},
		{waits, CREATED, ENTRY_TASK_CAUGHT, "\"stepId\":\"/do/0/w@1\"", "the task is not under way"},
		{waits, CREATED, ENTRY_TASK_COMPLETED, "\"stepId\":\"/do/0/w@1\"", "no output"},
		{waits, CREATED, ENTRY_TASK_STARTED, "\"stepId\":\"/do/0/w@1\",\"due\":\"soon\"", "a time that is none"},
		{waits, CREATED, ENTRY_TASK_STARTED, "\"stepId\":\"/do/0/w@1\",\"timeout\":\"soon\"", "a time that is none"},
		{waits, CREATED, ENTRY_TASK_STARTED, "\"stepId\":\"/do/0/w@1\",\"attemptDue\":\"soon\"", "a time that is none"},
		{waits, CREATED, ENTRY_TASK_STARTED, "\"stepId\":\"/do/0/w@1\",\"retryUntil\":\"soon\"", "a time that is none"},
		{waits, CREATED, ENTRY_TASK_STARTED, "\"stepId\":\"/do/0/w@1\",\"since\":\"soon\"", "a time that is none"},
		{waits, SUBMITTED, ENTRY_TIMER_FIRED, "\"timer\":\"timeout\"", "the run has no timeout"},
		{waits, SUBMITTED, ENTRY_TIMER_FIRED, "\"stepId\":\"/do/0/w@1\"", "the task is not under way"},
		{waits, SUBMITTED, ENTRY_TIMER_FIRED, "\"stepId\":\"/do/7/w@1\",\"timer\":\"wait\"", "the task is not under way"},
		{waits, SUBMITTED, ENTRY_TIMER_FIRED, "\"stepId\":\"/do/1/a@1\",\"timer\":\"wait\"", "the task is not under way"},
		{waits, SUBMITTED, ENTRY_TIMER_FIRED, "\"stepId\":\"/do/0/w@2\",\"timer\":\"wait\"", "the task is not under way"},
		{waits, SUBMITTED, ENTRY_TIMER_FIRED, "\"stepId\":\"/do/0/w@1\",\"timer\":\"timeout\"", "it does not wait for this"},
		{waits, SUBMITTED, ENTRY_TIMER_FIRED, "\"stepId\":\"/do/0/w@1\",\"timer\":\"attempt\"", "it does not wait for this"},
		{waits, SUBMITTED, ENTRY_TIMER_FIRED, "\"stepId\":\"/do/0/w@1\",\"timer\":\"wait\",\"attemptDue\":\"soon\"", "a time that is none"},
		{waits, SUBMITTED, ENTRY_TASK_RETRYING, "\"stepId\":\"/do/0/w@1\"", "no time, or an attempt is in flight"},
		{waits, SUBMITTED, ENTRY_TASK_RETRYING, "\"stepId\":\"/do/0/w@1\",\"due\":\"soon\"", "no time, or an attempt is in flight"},
		{waits, SUBMITTED, ENTRY_TASK_CAUGHT, "\"stepId\":\"/do/0/w@1\"", "it is no try that just caught"},
		{waits, SUBMITTED, ENTRY_TASK_RESUMED, "\"stepId\":\"/do/0/w@2\"", "the task was not under way"},
		{waits, SUBMITTED, ENTRY_TASK_RESUMED, "\"stepId\":\"/do/1/a@1\"", "the task was not under way"},
		{waits, SUBMITTED, ENTRY_TASK_RESUMED, "\"timeout\":\"soon\"", "the task was not under way"},
		{waits, SUBMITTED, ENTRY_TASK_RESUMED, "\"stepId\":\"/do/0/w@1\",\"timeout\":\"soon\"", "a time that is none"},
		{waits, SUBMITTED, ENTRY_TASK_RESUMED, "\"stepId\":\"/do/0/w@1\",\"attemptDue\":\"soon\"", "a time that is none"},
		{waits, SUBMITTED, ENTRY_TASK_RESUMED, "\"stepId\":\"/do/0/w@1\",\"retryUntil\":\"soon\"", "a time that is none"},
		{waits, SUBMITTED, ENTRY_ATTEMPT_SUCCEEDED, "\"stepId\":\"/do/0/w@1\",\"attempt\":1", "this attempt is not in flight"},
		{waits, SUBMITTED, ENTRY_ATTEMPT_STARTED, "\"attempt\":1", "the task is not under way"},
		{waits, SUBMITTED, ENTRY_EVENT_EMITTED, "\"stepId\":\"/do/0/w@1\"", "no emit, or no event"},
		{waits, SUBMITTED, ENTRY_EVENT_EMITTED, "\"key\":1", "no emit, or no event"},
		{waits, SUBMITTED, ENTRY_EVENT_CONSUMED, "\"eventSeq\":3", "no listen waits for an event here"},
		{waits, SUBMITTED, ENTRY_RUN_RETRIED, "\"attempt\":1", "a faulted run"},
		{tries, SUBMITTED, ENTRY_TASK_RETRYING, "\"stepId\":\"/do/0/t@1\",\"due\":\"2026-09-18T09:10:24.500Z\"", "something inside it is still under way"},
		{tries, SUBMITTED, ENTRY_TASK_CAUGHT, "\"stepId\":\"/do/0/t@1\"", "it is no try that just caught"},
		{tries, SUBMITTED, ENTRY_TASK_STARTED, "\"stepId\":\"/do/0/t/catch/do/0/s@1\"", "it is not this task's turn"},
		{raises, SUBMITTED, ENTRY_RUN_RETRIED, "\"timeout\":\"soon\"", "a time that is none"},
		{raises, SUBMITTED, ENTRY_RUN_FAULTED, "\"again\":true", "the run has ended already"},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct fixture f;
		struct state state;
		struct error error = {0};

		fixture_open(&f, rows[i].tasks);
		fixture_submit(&f, "{}");
		state_init(&state, f.definition);
		for (size_t k = 0; rows[i].behind == SUBMITTED ? k < f.count : rows[i].behind == CREATED && k < 1; k++)
			ck_assert_msg(workflow_apply(&state, &f.entries[k], &error) == 0, "%s", error.message);
		state_settle(&state);
		struct entry entry = make_entry(&f, rows[i].kind, arena_printf(&f.arena, "{\"runId\":\"r1\",%s}", rows[i].data));
		ck_assert_msg(workflow_apply(&state, &entry, &error) == ERR_CORRUPT, "row %zu was folded in", i);
		ck_assert_msg(strstr(error.message, rows[i].why) != NULL, "row %zu: %s", i, error.message);
		state_close(&state);
		fixture_close(&f);
	}
}
END_TEST

/* Nothing comes before run.created and nothing after the end. */
START_TEST(a_run_has_a_beginning_and_an_end)
{
	struct fixture f;
	struct error error = {0};

	fixture_open(&f, "[{\"a\":{" CALL "}}]");
	struct entry entry = make_entry(&f, ENTRY_TASK_STARTED, "{\"runId\":\"r1\",\"stepId\":\"/do/0/a@1\"}");
	ck_assert_int_eq(workflow_apply(&f.state, &entry, &error), ERR_CORRUPT);
	entry = make_entry(&f, ENTRY_RUN_CREATED, "{\"runId\":\"not/good\"}");
	ck_assert_int_eq(workflow_apply(&f.state, &entry, &error), ERR_CORRUPT);
	fixture_submit(&f, "{}");
	fixture_simple(&f, TRIGGER_CANCEL);
	entry = make_entry(&f, ENTRY_RUN_COMPLETED, "{\"runId\":\"r1\"}");
	ck_assert_int_eq(workflow_apply(&f.state, &entry, &error), ERR_CORRUPT);
	fixture_close(&f);
}
END_TEST

/* The earliest of all that waits; an attempt in flight keeps a run from being idle. */
START_TEST(deadlines)
{
	struct fixture f;

	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":3},\"do\":[{\"c\":{" CALL "}}]}}]");
	fixture_submit(&f, "{\"l\":[1,2]}");
	ck_assert_int_eq(state_next_deadline_ms(&f.state), 0);
	ck_assert(!state_is_idle(&f.state));
	f.wall_ms += 5000;
	fixture_fail(&f, "/do/0/m/do/0/c#1@1", 1, FAILURE_STALLED, 3);
	int64_t first = state_next_deadline_ms(&f.state);
	ck_assert_int_ge(first, f.wall_ms + 75);
	ck_assert(!state_is_idle(&f.state));
	f.wall_ms -= 4000; /* the clock went back: due earlier */
	fixture_fail(&f, "/do/0/m/do/0/c#0@1", 1, FAILURE_STALLED, 3);
	ck_assert_int_lt(state_next_deadline_ms(&f.state), first);
	ck_assert(state_is_idle(&f.state));
	fixture_close(&f);
}
END_TEST

static const char busy_tasks[] = "[{\"t\":{\"try\":[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":3},\"timeout\":{\"after\":{\"hours\":2}},\"do\":["
				 "{\"s\":{\"set\":{\"n\":\"${ $item }\"},\"export\":{\"as\":\".n\"}}},{\"c\":{" CALL "}},{\"w\":{\"wait\":{\"seconds\":30}}}]}}],"
				 "\"catch\":{\"retry\":{\"limit\":{\"attempt\":{\"count\":2}}}}}}]";

/* Iterations that are over, one that waits, one whose call backs off, one whose call is in flight, a try and a timeout around them. */
static void open_busy(struct fixture *f)
{
	fixture_open(f, busy_tasks);
	fixture_submit(f, "{\"l\":[1,2,3,4,5,6]}");
	fixture_succeed(f, "/do/0/t/try/0/m/do/1/c#1@1", 1, "{\"x\":1}");
	fixture_fail(f, "/do/0/t/try/0/m/do/1/c#0@1", 1, FAILURE_STALLED, 5);
	ck_assert_int_eq(f->state.status, RUN_RUNNING);
}

/* From its snapshot a run goes on exactly as from its entries: the same state, the same deadline, and the same decisions, in the same order. */
START_TEST(snapshots_hold_all)
{
	struct fixture f, other;
	struct buffer snapshot;
	struct error error = {0};

	open_busy(&f);
	buffer_init(&snapshot, 1 << 20);
	state_snapshot_print(&f.state, "1.2.3", &snapshot);
	fixture_open(&other, busy_tasks);
	ck_assert_msg(state_snapshot_read(&other.state, buffer_bytes(&snapshot), "1.2.3", &error) == 0, "%s", error.message);
	struct digest a = state_digest(&f.state), b = state_digest(&other.state);
	ck_assert(digest_equal(&a, &b));
	ck_assert_int_eq(state_next_deadline_ms(&f.state), state_next_deadline_ms(&other.state));
	ck_assert_int_gt(state_next_deadline_ms(&f.state), 0);
	ck_assert_uint_eq(f.state.seq_last, other.state.seq_last);
	ck_assert_uint_eq(f.state.entry_count, other.state.entry_count);
	other.wall_ms = f.wall_ms;
	other.seq = f.seq;
	for (size_t i = 0; i < f.count; i++) /* what is not in memory is loaded by place */
		for (size_t v = 0; v < f.entries[i].value_count; v++)
			other.values[other.value_count++] = json_parse(&other.arena, f.entries[i].values[v].bytes, JSON_STORED, NULL, NULL);
	ck_assert_uint_le(other.value_count, COUNT_OF(other.values));
	static const enum trigger_kind triggers[] = {TRIGGER_RESTARTED, TRIGGER_DEADLINE, TRIGGER_CANCEL};
	for (size_t i = 0; i < COUNT_OF(triggers); i++) {
		f.wall_ms += 60000;
		other.wall_ms += 60000;
		fixture_simple(&f, triggers[i]);
		fixture_simple(&other, triggers[i]);
		ck_assert(!other.undecided);
		ck_assert_uint_gt(f.decision.entry_count, 1);
		ck_assert_str_eq(fixture_said(&f), fixture_said(&other));
		ck_assert_str_eq(fixture_effects(&f), fixture_effects(&other));
		a = state_digest(&f.state);
		b = state_digest(&other.state);
		ck_assert(digest_equal(&a, &b));
	}
	ck_assert_int_eq(other.state.status, RUN_CANCELLED);
	buffer_close(&snapshot);
	fixture_close(&other);
	fixture_close(&f);
}
END_TEST

/* One of another program version or definition, one that is cut off anywhere, one with more behind it: refused, and nothing is read out of place. */
START_TEST(bad_snapshots_are_refused)
{
	struct fixture f, other;
	struct buffer snapshot;
	struct state state;
	struct error error = {0};

	open_busy(&f);
	buffer_init(&snapshot, 1 << 20);
	state_snapshot_print(&f.state, "1.2.3", &snapshot);
	struct bytes whole = buffer_bytes(&snapshot);
	for (size_t len = 0; len < whole.len; len++) {
		uint8_t *part = malloc(len + 1); /* of its own size, so that a read past its end is seen */
		memcpy(part, whole.data, len);
		state_init(&state, f.definition);
		ck_assert_int_eq(state_snapshot_read(&state, (struct bytes){part, len}, "1.2.3", &error), ERR_CORRUPT);
		state_close(&state);
		free(part);
	}
	for (size_t i = 0; i < whole.len; i++) { /* a flipped bit is the store's to see; here it must do no harm */
		((uint8_t *)snapshot.data)[i] ^= 0x55;
		state_init(&state, f.definition);
		state_snapshot_read(&state, whole, "1.2.3", &error);
		state_close(&state);
		((uint8_t *)snapshot.data)[i] ^= 0x55;
	}
	state_init(&state, f.definition);
	ck_assert_int_eq(state_snapshot_read(&state, whole, "1.2.4", &error), ERR_CORRUPT);
	state_close(&state);
	fixture_open(&other, "[{\"a\":{" CALL "}}]");
	ck_assert_int_eq(state_snapshot_read(&other.state, whole, "1.2.3", &error), ERR_CORRUPT);
	fixture_close(&other);
	buffer_add_char(&snapshot, 0);
	state_init(&state, f.definition);
	ck_assert_int_eq(state_snapshot_read(&state, buffer_bytes(&snapshot), "1.2.3", &error), ERR_CORRUPT);
	state_close(&state);
	buffer_close(&snapshot);
	fixture_close(&f);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("workflow-state", snapshots_hold_all, bad_snapshots_are_refused, fold_is_a_function_of_the_entries, drafts_leave_no_trace, large_values_stay_outside, finished_work_is_forgotten,
	   entries_that_cannot_follow, entries_that_do_not_fit, a_run_has_a_beginning_and_an_end, deadlines)
