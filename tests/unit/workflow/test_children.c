/* `run: {workflow}`: a child is an activity of its parent. What the parent says, folds, replays. What is done for it: daemon/children.h. */
#include "tests/unit/workflow/record.h"

#include "workflow/view.h"

#define CHILD "\"run\":{\"workflow\":{\"namespace\":\"test\",\"name\":\"other\",\"version\":\"1.2.3\",\"input\":{\"n\":\"${ .n }\"}}"
#define STEP "/do/0/a@1"

static const struct entry *entry_of(const struct fixture *f, enum entry_kind kind)
{
	for (size_t i = f->count; i-- > 0;)
		if (f->entries[i].kind == kind)
			return &f->entries[i];
	ck_abort_msg("there is no %s", entry_kind_name(kind));
}

/* The arguments are evaluated, and say what is run and how; what the child gives is what the task gives. */
START_TEST(awaited)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{" CHILD "}}},{\"b\":{\"set\":{\"got\":\"${ .m }\"}}}]");
	fixture_submit(&f, "{\"n\":5}");
	ck_assert_str_eq(fixture_said(&f), "run.created, task.started " STEP ", attempt.started " STEP);
	ck_assert_str_eq(fixture_effects(&f), "start " STEP " 1");
	const struct effect *effect = &f.decision.effects[0];
	ck_assert_int_eq(effect->function, FUNCTION_RUN);
	ck_assert_str_eq((const char *)json_print_arena(effect->with, &f.arena).data,
			 "{\"await\":true,\"input\":{\"n\":5},\"name\":\"other\",\"namespace\":\"test\",\"version\":\"1.2.3\"}");
	ck_assert(json_get_boolean(entry_of(&f, ENTRY_ATTEMPT_STARTED)->data, "awaits", false));
	ck_assert(!state_is_idle(&f.state));
	fixture_succeed(&f, STEP, 1, "{\"m\":7}");
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"got\":7}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* Without `version` it is the highest; without `input` the child gets null. */
START_TEST(defaults)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{\"run\":{\"workflow\":{\"namespace\":\"test\",\"name\":\"other\"}}}}]");
	fixture_submit(&f, "1");
	ck_assert_str_eq((const char *)json_print_arena(f.decision.effects[0].with, &f.arena).data,
			 "{\"await\":true,\"input\":null,\"name\":\"other\",\"namespace\":\"test\",\"version\":\"latest\"}");
	fixture_close(&f);
}
END_TEST

/* Nobody waits for it: once it is there the task is over, with its own input. */
START_TEST(let_go)
{
	struct fixture f;
	struct outcome outcome = {.ok = true};

	fixture_open(&f, "[{\"a\":{" CHILD ",\"await\":false}}}]");
	fixture_submit(&f, "{\"n\":5}");
	ck_assert_ptr_null(json_get(entry_of(&f, ENTRY_ATTEMPT_STARTED)->data, "awaits"));
	fixture_done(&f, STEP, 1, &outcome);
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"n\":5}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* The error of a child is the task's, type and all, but for where it comes from; a try can catch it by its type. */
START_TEST(errors_are_kept)
{
	struct fixture f;
	struct outcome outcome = {.failure = FAILURE_RUNTIME_ERROR, .detail = "run x faulted", .retry_attempts = 1};

	fixture_open(&f, "[{\"a\":{" CHILD "}}}]");
	fixture_submit(&f, "{\"n\":5}");
	outcome.error = fixture_json(&f, "{\"type\":\"https://example.com/mine\",\"status\":418,\"title\":\"Teapot\",\"detail\":\"short\",\"instance\":\"/do/3/inner\"}");
	fixture_done(&f, STEP, 1, &outcome);
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_str_eq(fixture_print(&f, f.state.error),
			 "{\"detail\":\"short\",\"instance\":\"/do/0/a\",\"status\":418,\"title\":\"Teapot\",\"type\":\"https://example.com/mine\"}");
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"t\":{\"try\":[{\"a\":{" CHILD "}}}],\"catch\":{\"errors\":{\"with\":{\"type\":\"https://example.com/mine\"}},"
			 "\"do\":[{\"s\":{\"set\":{\"title\":\"${ $error.title }\"}}}]}}}]");
	fixture_submit(&f, "{\"n\":5}");
	outcome.error = fixture_json(&f, "{\"type\":\"https://example.com/mine\",\"status\":418,\"title\":\"Teapot\"}");
	fixture_done(&f, "/do/0/t/try/0/a@1", 1, &outcome);
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"title\":\"Teapot\"}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* Cancelled, timed out, lost to another branch: the attempt is called off, and with it the child. */
START_TEST(called_off)
{
	struct fixture f;
	struct trigger cancel = {.kind = TRIGGER_CANCEL, .kill = true};

	fixture_open(&f, "[{\"a\":{" CHILD "}}}]");
	fixture_submit(&f, "{\"n\":5}");
	fixture_trigger(&f, &cancel);
	ck_assert_str_eq(fixture_effects(&f), "cancel " STEP " 1, end");
	ck_assert(f.state.killed);
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"a\":{" CHILD "},\"timeout\":{\"after\":\"PT1S\"}}}]");
	fixture_submit(&f, "{\"n\":5}");
	f.wall_ms += 1000;
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_str_eq(fixture_effects(&f), "cancel " STEP " 1, end");
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* After a restart the same step begins again under the same key, which makes the same child. */
START_TEST(same_key)
{
	struct fixture f;
	char first[DIGEST_HEX_LEN + 1];

	fixture_open(&f, "[{\"a\":{" CHILD "}}}]");
	fixture_submit(&f, "{\"n\":5}");
	snprintf(first, sizeof first, "%s", f.decision.effects[0].key);
	fixture_simple(&f, TRIGGER_RESTARTED);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed " STEP ", attempt.started " STEP);
	ck_assert_str_eq(f.decision.effects[0].key, first);
	fixture_close(&f);
}
END_TEST

/* A child knows its parent, and how many runs are around it. */
START_TEST(parents)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{" CHILD "}}}]");
	struct trigger trigger = {.kind = TRIGGER_SUBMITTED, .run_id = "r1", .input = BYTES_OF("{\"n\":1}"),
				  .parent = fixture_json(&f, "{\"run\":\"p1\",\"step\":\"/do/2/x#4@1\",\"depth\":3,\"awaited\":true}")};
	fixture_trigger(&f, &trigger);
	ck_assert_uint_eq(f.state.depth, 3);
	ck_assert_str_eq(f.state.parent_run, "p1");
	ck_assert_str_eq(f.state.parent_step, "/do/2/x#4@1");
	const struct json *view = view_run(&f.arena, f.entries, f.count, f.definition, "log", 0);
	ck_assert_str_eq((const char *)json_print_arena(json_get(view, "parent"), &f.arena).data, "{\"run\":\"p1\",\"step\":\"/do/2/x#4@1\"}");
	fixture_succeed(&f, STEP, 1, "{}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* While a child runs its parent waits: that is queued time (semantics.md 8), over a restart too, in the state as in the document. */
START_TEST(waiting_is_queued)
{
	struct fixture f;
	int64_t since_ms;
	bool cut_off;

	fixture_open(&f, "[{\"a\":{" CHILD "}}}]");
	fixture_submit(&f, "{\"n\":5}");
	f.wall_ms += 400;
	struct entry ends = {.kind = ENTRY_ATTEMPT_FAILED, .data = fixture_json(&f, "{\"stepId\":\"" STEP "\"}")};
	ck_assert(state_ends_wait(&f.state, &ends, &since_ms, &cut_off) && !cut_off);
	ck_assert_int_eq(since_ms, f.wall_ms - 400);
	fixture_simple(&f, TRIGGER_RESTARTED);
	f.wall_ms += 600;
	ck_assert(state_ends_wait(&f.state, &ends, &since_ms, &cut_off) && !cut_off);
	ck_assert_int_eq(since_ms, f.wall_ms - 600);
	fixture_succeed(&f, STEP, 2, "{}");
	const struct json *overhead = json_get(view_run(&f.arena, f.entries, f.count, f.definition, "log", 0), "overhead");
	ck_assert_double_eq(json_get_number(overhead, "queuedMs", -1), 1000);
	ck_assert_double_eq(json_get_number(overhead, "activityMs", -1), 0);
	ck_assert_double_eq(json_get_number(overhead, "overheadMs", -1), 0);
	fixture_close(&f);

	fixture_open(&f, "[{\"a\":{" CHILD ",\"await\":false}}}]");
	fixture_submit(&f, "{\"n\":5}");
	ends.data = fixture_json(&f, "{\"stepId\":\"" STEP "\"}");
	ck_assert(!state_ends_wait(&f.state, &ends, &since_ms, &cut_off));
	fixture_close(&f);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("workflow-children", awaited, defaults, let_go, errors_are_kept, called_off, same_key, parents, waiting_is_queued)
