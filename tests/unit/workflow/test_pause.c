/* Pause and resume: nothing begins while a run is suspended, nothing is lost, and replay decides the same. */
#include "tests/unit/workflow/fixture.h"

#include "workflow/replay.h"
#include "workflow/view.h"

#define CALL "\"call\":\"http\",\"with\":{\"method\":\"get\",\"endpoint\":\"http://x/\"}"
#define BRANCHES(list) "[{\"f\":{\"fork\":{\"branches\":[" list "]}}},{\"z\":{" CALL "}}]"
#define A "/do/0/f/fork/branches/0/a@1"
#define B "/do/0/f/fork/branches/1/b@1"

static void check_replay(struct fixture *f)
{
	const struct decide_context context = {.origin = "test.example/log", .daemon_version = "1.2.3"};
	struct replay_result result;
	struct error error = {0};

	ck_assert_msg(replay_run(&f->arena, f->entries, f->count, f->definition, &context, &result, &error) == 0, "%s", error.message);
	ck_assert_msg(result.equal, "entry %llu: %s: expected %s got %s", (unsigned long long)result.seq, result.why, result.expected, result.got);
	ck_assert_uint_eq(result.entries, f->count);
}

static void pause_run(struct fixture *f, const char *reason)
{
	struct trigger trigger = {.kind = TRIGGER_PAUSE, .reason = reason};

	fixture_trigger(f, &trigger);
}

/* What is in flight finishes and is recorded; what would come next waits for the resume, and comes then. Twice is once. */
START_TEST(nothing_begins)
{
	struct fixture f;

	fixture_open(&f, BRANCHES("{\"a\":{" CALL "}},{\"b\":{" CALL "}}"));
	fixture_submit(&f, "{}");
	pause_run(&f, "by hand");
	ck_assert_str_eq(fixture_said(&f), "run.suspended");
	ck_assert_int_eq(f.state.status, RUN_SUSPENDED);
	ck_assert(bytes_equal_text(f.decision.entries[0].values[0].bytes, "\"by hand\""));
	pause_run(&f, NULL);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	f.wall_ms += 500;
	fixture_succeed(&f, A, 1, "1");
	ck_assert_str_eq(fixture_said(&f), "attempt.succeeded " A ", task.completed " A);
	fixture_fail(&f, B, 1, FAILURE_UNREACHABLE, 3);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed " B ", task.retrying " B);
	ck_assert_int_eq(f.state.status, RUN_SUSPENDED);
	ck_assert_int_eq(state_next_deadline_ms(&f.state), 0);
	f.wall_ms += 60000;
	fixture_simple(&f, TRIGGER_DEADLINE);
	fixture_simple(&f, TRIGGER_CONTINUE);
	fixture_simple(&f, TRIGGER_RESTARTED);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_simple(&f, TRIGGER_RESUME);
	ck_assert_str_eq(fixture_said(&f), "run.resumed");
	ck_assert_int_eq(f.state.status, RUN_WAITING); /* for what is due already */
	fixture_simple(&f, TRIGGER_RESUME);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_str_eq(fixture_said(&f), "attempt.started " B);
	pause_run(&f, NULL);
	fixture_succeed(&f, B, 2, "2"); /* the fork is done, and z is not begun */
	ck_assert_str_eq(fixture_said(&f), "attempt.succeeded " B ", task.completed " B);
	fixture_simple(&f, TRIGGER_RESUME);
	ck_assert_str_eq(fixture_said(&f), "run.resumed, task.completed /do/0/f@1, task.started /do/1/z@1, attempt.started /do/1/z@1");
	fixture_succeed(&f, "/do/1/z@1", 1, "3");
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	check_replay(&f);
	fixture_close(&f);
}
END_TEST

/* The daemon's end while a run is suspended interrupts its attempts; the resume begins them again, under the same key, at no cost to their retries. */
START_TEST(restarted_while_suspended)
{
	struct fixture f;

	fixture_open(&f, BRANCHES("{\"a\":{" CALL "}},{\"b\":{" CALL "}}"));
	fixture_submit(&f, "{}");
	pause_run(&f, NULL);
	f.wall_ms += 10;
	fixture_simple(&f, TRIGGER_RESTARTED);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed " A ", attempt.failed " B);
	ck_assert_str_eq(fixture_effects(&f), "");
	ck_assert(state_is_idle(&f.state));
	f.wall_ms += 10;
	fixture_simple(&f, TRIGGER_RESTARTED);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_simple(&f, TRIGGER_RESUME);
	ck_assert_str_eq(fixture_said(&f), "run.resumed, attempt.started " A ", attempt.started " B);
	ck_assert_str_eq(fixture_effects(&f), "start " A " 2, start " B " 2");
	pause_run(&f, NULL);
	f.wall_ms += 10;
	fixture_simple(&f, TRIGGER_RESTARTED);
	f.wall_ms += 10;
	struct trigger cancel = {.kind = TRIGGER_CANCEL};
	fixture_trigger(&f, &cancel);
	ck_assert_int_eq(f.state.status, RUN_CANCELLED);
	ck_assert_str_eq(fixture_effects(&f), "end"); /* nothing is in flight */
	check_replay(&f);
	fixture_close(&f);
}
END_TEST

/* A fault that nothing catches ends a suspended run; one that is caught has its handler wait for the resume. */
START_TEST(faults_while_suspended)
{
	struct fixture f;

	fixture_open(&f, BRANCHES("{\"a\":{" CALL "}},{\"b\":{" CALL "}}"));
	fixture_submit(&f, "{}");
	pause_run(&f, NULL);
	fixture_fail(&f, A, 1, FAILURE_REFUSED, 1);
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	check_replay(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"t\":{\"try\":[{\"a\":{" CALL "}}],\"catch\":{\"do\":[{\"h\":{" CALL "}}]}}}]");
	fixture_submit(&f, "{}");
	pause_run(&f, NULL);
	fixture_fail(&f, "/do/0/t/try/0/a@1", 1, FAILURE_REFUSED, 1);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/0/t/try/0/a@1, task.faulted /do/0/t/try/0/a@1, task.caught /do/0/t@1");
	fixture_simple(&f, TRIGGER_RESUME);
	ck_assert_str_eq(fixture_said(&f), "run.resumed, task.started /do/0/t/catch/do/0/h@1, attempt.started /do/0/t/catch/do/0/h@1");
	check_replay(&f);
	fixture_close(&f);
}
END_TEST

/* Timers that came due while it was suspended fire after the resume, in the order of their times; events are not taken until then. */
START_TEST(timers_and_events_wait)
{
	struct fixture f;

	fixture_open(&f, BRANCHES("{\"a\":{\"wait\":\"PT1M\"}},{\"b\":{\"listen\":{\"to\":{\"one\":{\"with\":{\"type\":\"x\"}}}}}}"));
	fixture_submit(&f, "{}");
	pause_run(&f, NULL);
	struct trigger event = {.kind = TRIGGER_EVENT, .step_id = B, .event_seq = 500,
				.event = bytes_text("{\"data\":1,\"id\":\"1\",\"source\":\"s\",\"specversion\":\"1.0\",\"type\":\"x\"}")};
	f.wall_ms += 3600000;
	fixture_trigger(&f, &event);
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_simple(&f, TRIGGER_RESUME);
	ck_assert_int_lt(state_next_deadline_ms(&f.state), f.wall_ms);
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_str_eq(fixture_said(&f), "timer.fired " A ", task.completed " A);
	fixture_trigger(&f, &event);
	ck_assert_str_eq(fixture_said(&f), "event.consumed " B ", task.completed " B ", task.completed /do/0/f@1, task.started /do/1/z@1, attempt.started /do/1/z@1");
	check_replay(&f);
	fixture_close(&f);
}
END_TEST

/* Entries that suspend what is suspended, or resume what is not, follow nothing. */
START_TEST(states_that_do_not_fit)
{
	struct fixture f;
	struct error error = {0};

	fixture_open(&f, BRANCHES("{\"a\":{" CALL "}}"));
	fixture_submit(&f, "{}");
	struct entry entry = {.kind = ENTRY_RUN_RESUMED, .data = fixture_json(&f, "{\"runId\":\"r1\"}"), .seq = f.seq};
	ck_assert_int_eq(workflow_apply(&f.state, &entry, &error), ERR_CORRUPT);
	pause_run(&f, NULL);
	entry.kind = ENTRY_RUN_SUSPENDED;
	ck_assert_int_eq(workflow_apply(&f.state, &entry, &error), ERR_CORRUPT);
	fixture_close(&f);
}
END_TEST

/* The document says why, and counts the time as queued; the lifecycle events name the run and each task under way. Too many tasks for an entry
 * are counted (SUSPENDED_TASKS_BYTES_MAX). */
START_TEST(what_the_world_sees)
{
	struct fixture f;
	struct buffer items;

	fixture_open(&f, BRANCHES("{\"a\":{" CALL "}},{\"b\":{\"wait\":\"PT1H\"}}"));
	fixture_submit(&f, "{}");
	f.wall_ms += 1000;
	pause_run(&f, "why");
	const struct json *run = view_run(&f.arena, f.entries, f.count, f.definition, "o", VIEW_EVENTS);
	ck_assert_str_eq(json_get_text(run, "status"), "suspended");
	ck_assert_str_eq(json_get_text(run, "reason"), "why");
	f.wall_ms += 7000;
	fixture_simple(&f, TRIGGER_RESUME);
	fixture_succeed(&f, A, 1, "1");
	fixture_simple(&f, TRIGGER_CANCEL);
	run = view_run(&f.arena, f.entries, f.count, f.definition, "o", VIEW_EVENTS);
	ck_assert_ptr_null(json_get(run, "reason"));
	ck_assert_double_eq(json_get_number(json_get(run, "overhead"), "queuedMs", 0), 8000); /* the wait beside it began with the run */
	size_t suspended = 0, resumed = 0;
	const struct json *events = json_get(run, "events");
	for (size_t i = 0; i < json_count(events); i++) {
		const char *type = json_get_text(json_at(events, i), "type");
		suspended += strstr(type, "suspended.v1") != NULL;
		resumed += strstr(type, "resumed.v1") != NULL;
		for (size_t k = 0; k < i; k++)
			ck_assert_str_ne(json_get_text(json_at(events, i), "id"), json_get_text(json_at(events, k), "id"));
	}
	ck_assert_uint_eq(suspended, 4); /* the run, f, a, b */
	ck_assert_uint_eq(resumed, 4);
	fixture_close(&f);

	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":1000},\"do\":[{\"a-task-with-a-name-of-some-length-so-that-they-add-up-sooner-than-entries-do\":{" CALL "}}]}}]");
	buffer_init(&items, 1 << 20);
	for (int i = 0; i < 600; i++)
		buffer_printf(&items, "%s%d", i ? "," : "{\"l\":[", i);
	buffer_add_text(&items, "]}");
	fixture_submit(&f, buffer_text(&items));
	while (strstr(fixture_effects(&f), "continue"))
		fixture_simple(&f, TRIGGER_CONTINUE);
	pause_run(&f, NULL);
	size_t named = json_count(json_get(f.entries[f.count - 1].data, "tasks"));
	ck_assert_uint_gt(named, 100);
	ck_assert_double_eq((double)named + json_get_number(f.entries[f.count - 1].data, "more", 0), 601);
	buffer_close(&items);
	fixture_close(&f);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("workflow-pause", nothing_begins, restarted_while_suspended, faults_while_suspended, timers_and_events_wait, states_that_do_not_fit, what_the_world_sees)
