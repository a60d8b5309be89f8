/* Runs that go on after their fault: what is entered again, what is not, and that a replay and a second fold say the same. */
#include "tests/unit/workflow/record.h"

#define SET(name, n, more) "{\"" name "\":{\"set\":{\"n\":" n "}" more "}}"

/* Retried: the entries that this brings, and the effects of them. */
static void expect_retry(struct fixture *f, const char *said, const char *effects)
{
	ck_assert_int_eq(f->state.status, RUN_FAULTED);
	check_record(f);
	fixture_simple(f, TRIGGER_RETRY);
	ck_assert_str_eq(fixture_said(f), said);
	ck_assert_str_eq(fixture_effects(f), effects);
	check_record(f);
}

static void refuse(struct fixture *f, const char *step, unsigned attempt)
{
	fixture_fail(f, step, attempt, FAILURE_REFUSED, 1);
}

/* The failed call is entered again under another key, what came before it is not; twice, and with a restart in the middle. */
START_TEST(goes_on_from_the_failed_task)
{
	struct fixture f;
	char key[DIGEST_HEX_LEN + 1];

	fixture_open(&f, "[" SET("a", "1", "") ",{\"d\":{\"do\":[{\"c\":{" CALL "}}," SET("b", "\"${ .n }\"", "") "]}}]");
	fixture_submit(&f, "{}");
	memcpy(key, f.decision.effects[0].key, sizeof key);
	refuse(&f, "/do/1/d/do/0/c@1", 1);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/1/d/do/0/c@1, task.faulted /do/1/d/do/0/c@1, task.faulted /do/1/d@1, run.faulted");
	f.wall_ms += 1000;
	expect_retry(&f, "run.retried, task.resumed /do/1/d@1, task.started /do/1/d/do/0/c@2, attempt.started /do/1/d/do/0/c@2", "start /do/1/d/do/0/c@2 1");
	ck_assert_str_ne(f.decision.effects[0].key, key);
	ck_assert_uint_eq(f.state.retry_count, 1);
	ck_assert_int_eq(f.state.ended_ms, 0);
	ck_assert_ptr_null(f.state.error);
	restart(&f);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/1/d/do/0/c@2, attempt.started /do/1/d/do/0/c@2");
	refuse(&f, "/do/1/d/do/0/c@2", 2);
	expect_retry(&f, "run.retried, task.resumed /do/1/d@1, task.started /do/1/d/do/0/c@3, attempt.started /do/1/d/do/0/c@3", "start /do/1/d/do/0/c@3 1");
	fixture_succeed(&f, "/do/1/d/do/0/c@3", 1, "{\"n\":7}");
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	ck_assert_str_eq(print_value(&f, f.state.output), "{\"n\":7}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* A map keeps the iterations that had ended; those that were cut off begin the call again, and so does the one that failed. */
START_TEST(maps_keep_what_they_have)
{
	struct fixture f;

	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"c\":{" CALL "}},{\"s\":{\"set\":{\"v\":\"${ .n }\"}}}]}}]");
	fixture_submit(&f, "{\"l\":[1,2,3,4]}");
	fixture_succeed(&f, "/do/0/m/do/0/c#1@1", 1, "{\"n\":11}");
	refuse(&f, "/do/0/m/do/0/c#2@1", 1);
	expect_retry(&f,
		     "run.retried, task.resumed /do/0/m@1, task.started /do/0/m/do/0/c#0@2, attempt.started /do/0/m/do/0/c#0@2, "
		     "task.started /do/0/m/do/0/c#2@2, attempt.started /do/0/m/do/0/c#2@2",
		     "start /do/0/m/do/0/c#0@2 1, start /do/0/m/do/0/c#2@2 1");
	fixture_succeed(&f, "/do/0/m/do/0/c#0@1", 1, "{\"n\":99}"); /* of the attempt that was cut off: nobody waits for it */
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_succeed(&f, "/do/0/m/do/0/c#2@2", 1, "{\"n\":12}");
	fixture_succeed(&f, "/do/0/m/do/0/c#0@2", 1, "{\"n\":10}");
	fixture_succeed(&f, "/do/0/m/do/0/c#3@1", 1, "{\"n\":13}");
	ck_assert_str_eq(print_value(&f, f.state.output), "[{\"v\":10},{\"v\":11},{\"v\":12},{\"v\":13}]");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* A chained loop goes on with the iteration that failed, also where its first task never began. */
START_TEST(chained_loops_go_on)
{
	struct fixture f;

	fixture_open(&f, "[{\"l\":{\"for\":{\"in\":\".l\"},\"do\":[{\"s\":{\"set\":\"${ {n: ($item + .n), l: .l} }\"}},{\"c\":{" CALL "}}]}}]");
	fixture_submit(&f, "{\"l\":[1,2],\"n\":0}");
	ck_assert(f.undecided);
	fixture_answer(&f, 0, "[{\"n\":1}]");
	fixture_submit(&f, "{\"l\":[1,2],\"n\":0}");
	fixture_succeed(&f, "/do/0/l/do/1/c#0@1", 1, "{\"n\":\"x\"}"); /* + fails on it */
	ck_assert(f.undecided);
	fixture_answer(&f, 0, "\"cannot be added\"");
	fixture_succeed(&f, "/do/0/l/do/1/c#0@1", 1, "{\"n\":\"x\"}");
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	check_record(&f);
	f.results[1].kept = fixture_json(&f, "[{\"n\":5}]"); /* as if jq had learnt it meanwhile */
	fixture_simple(&f, TRIGGER_RETRY);
	ck_assert_str_eq(fixture_said(&f),
			 "run.retried, task.resumed /do/0/l@1, task.completed /do/0/l/do/0/s#1@2, task.started /do/0/l/do/1/c#1@1, attempt.started /do/0/l/do/1/c#1@1");
	fixture_succeed(&f, "/do/0/l/do/1/c#1@1", 1, "{\"n\":6}");
	ck_assert_str_eq(print_value(&f, f.state.output), "{\"n\":6}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* A branch that had lost before the fault of the run, in a decision that ended with that, is not under way when it is retried: neither to who folds
 * decision by decision nor to who folds all entries at once. */
START_TEST(losers_stay_lost)
{
	size_t fails_at = 2 * DECISION_ENTRIES_MAX;

	for (int measured = 0; measured < 2; measured++) {
		struct fixture f;
		struct buffer input;

		buffer_init(&input, 1 << 16);
		for (size_t i = 0; i < 2 * DECISION_ENTRIES_MAX; i++)
			buffer_printf(&input, "%s%s", i ? "," : "{\"l\":[", i == fails_at ? "5" : "{\"n\":1}");
		buffer_add_text(&input, "]}");
		fixture_open(&f, "[{\"f\":{\"fork\":{\"compete\":true,\"branches\":[{\"a\":{" CALL "}},"
				 "{\"b\":{\"for\":{\"in\":\".l\"},\"while\":\"$item.n == 1\",\"do\":[{\"s\":{\"set\":\"${ $workflow.input }\"}}]}}]}}}]");
		fixture_submit(&f, buffer_text(&input));
		ck_assert_str_eq(fixture_effects(&f), "start /do/0/f/fork/branches/0/a@1 1, continue");
		if (!measured)
			fails_at = f.decision.entry_count - 5; /* before the iterations: the run, the fork, the call and its attempt, the loop */
		f.wall_ms++;
		refuse(&f, "/do/0/f/fork/branches/0/a@1", 1);
		ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/0/f/fork/branches/0/a@1, task.faulted /do/0/f/fork/branches/0/a@1");
		f.wall_ms++;
		fixture_simple(&f, TRIGGER_CONTINUE);
		if (measured) {
			ck_assert_str_eq(fixture_said(&f), "task.faulted /do/0/f/fork/branches/1/b@1, task.faulted /do/0/f@1, run.faulted");
			check_record(&f);
			fixture_simple(&f, TRIGGER_RETRY);
			ck_assert_ptr_null(strstr(fixture_said(&f), "branches/0/a"));
		}
		fixture_close(&f);
		buffer_close(&input);
	}
}
END_TEST

/* Branches that completed stay; calls that were cut off or failed are entered again, also where the branch is the call, or never began. */
START_TEST(forks_keep_what_they_have)
{
	struct fixture f;

	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[{\"a\":{" CALL "}},{\"b\":{\"do\":[{\"c\":{" CALL "}}]}},{\"e\":{" CALL "}}]}}}]");
	fixture_submit(&f, "{}");
	fixture_succeed(&f, "/do/0/f/fork/branches/0/a@1", 1, "{\"n\":1}");
	refuse(&f, "/do/0/f/fork/branches/2/e@1", 1);
	expect_retry(&f,
		     "run.retried, task.resumed /do/0/f@1, task.resumed /do/0/f/fork/branches/1/b@1, task.started /do/0/f/fork/branches/2/e@2, "
		     "attempt.started /do/0/f/fork/branches/2/e@2, task.started /do/0/f/fork/branches/1/b/do/0/c@2, attempt.started /do/0/f/fork/branches/1/b/do/0/c@2",
		     "start /do/0/f/fork/branches/2/e@2 1, start /do/0/f/fork/branches/1/b/do/0/c@2 1");
	fixture_succeed(&f, "/do/0/f/fork/branches/2/e@2", 1, "{\"n\":3}");
	fixture_succeed(&f, "/do/0/f/fork/branches/1/b/do/0/c@2", 1, "{\"n\":2}");
	ck_assert_str_eq(print_value(&f, f.state.output), "[{\"n\":1},{\"n\":2},{\"n\":3}]");
	check_record(&f);
	fixture_close(&f);

	/* `raise` is over as soon as it begins */
	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[{\"a\":{" CALL "}},{\"r\":{\"raise\":{\"error\":{\"type\":\"x:y\",\"status\":400}}}},{\"e\":{" CALL "}}]}}}]");
	fixture_submit(&f, "{}");
	for (unsigned execution = 2; execution < 5; execution++) {
		ck_assert_int_eq(f.state.status, RUN_FAULTED);
		check_record(&f);
		fixture_simple(&f, TRIGGER_RETRY);
		ck_assert_str_eq(fixture_said(&f), arena_printf(&f.arena,
								"run.retried, task.resumed /do/0/f@1, task.started /do/0/f/fork/branches/0/a@%u, attempt.started /do/0/f/fork/branches/0/a@%u, "
								"task.faulted /do/0/f/fork/branches/1/r@%u, task.cancelled /do/0/f/fork/branches/0/a@%u, task.faulted /do/0/f@1, run.faulted",
								execution, execution, execution, execution));
		check_record(&f);
	}
	fixture_close(&f);
}
END_TEST

/* Of branches that compete all that were cut off are entered again before one of them may be the last that fails. */
START_TEST(competing_branches)
{
	struct fixture f;

	fixture_open(&f, "[{\"f\":{\"fork\":{\"compete\":true,\"branches\":[{\"a\":{" CALL "}},{\"b\":{" CALL "}}]},\"timeout\":{\"after\":{\"seconds\":5}}}}]");
	fixture_submit(&f, "{}");
	go_on(&f);
	expect_retry(&f,
		     "run.retried, task.resumed /do/0/f@1, task.started /do/0/f/fork/branches/0/a@2, attempt.started /do/0/f/fork/branches/0/a@2, "
		     "task.started /do/0/f/fork/branches/1/b@2, attempt.started /do/0/f/fork/branches/1/b@2",
		     "start /do/0/f/fork/branches/0/a@2 1, start /do/0/f/fork/branches/1/b@2 1");
	refuse(&f, "/do/0/f/fork/branches/0/a@2", 1);
	ck_assert_int_eq(f.state.status, RUN_RUNNING);
	refuse(&f, "/do/0/f/fork/branches/1/b@2", 1);
	expect_retry(&f, "run.retried, task.resumed /do/0/f@1, task.started /do/0/f/fork/branches/1/b@3, attempt.started /do/0/f/fork/branches/1/b@3",
		     "start /do/0/f/fork/branches/1/b@3 1");
	fixture_succeed(&f, "/do/0/f/fork/branches/1/b@3", 1, "{\"n\":2}");
	ck_assert_str_eq(print_value(&f, f.state.output), "{\"n\":2}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* Every time begins anew: that of the workflow, of a task, of an attempt of a try and of all its attempts. */
START_TEST(times_begin_anew)
{
	struct fixture f;
	int64_t since;

	fixture_open(&f, "[{\"t\":{\"try\":[{\"c\":{" CALL "}}],\"catch\":{\"errors\":{\"with\":{\"status\":1}},\"retry\":{\"limit\":{\"attempt\":{\"count\":3,\"duration\":{\"seconds\":20}},"
			 "\"duration\":{\"seconds\":30}}}},\"timeout\":{\"after\":{\"seconds\":5}}}}]");
	fixture_submit(&f, "{}");
	ck_assert_int_eq(go_on(&f), 5000);
	f.wall_ms += 3600000;
	expect_retry(&f, "run.retried, task.resumed /do/0/t@1, task.started /do/0/t/try/0/c@2, attempt.started /do/0/t/try/0/c@2", "start /do/0/t/try/0/c@2 1");
	restart(&f);
	since = f.wall_ms;
	ck_assert_int_eq(state_next_deadline_ms(&f.state), since + 5000);
	const struct instance *try = state_find_step(&f.state, "/do/0/t@1", &f.arena, NULL);
	ck_assert_int_eq(try->attempt_due_ms, since + 20000);
	ck_assert_int_eq(try->retry_until_ms, since + 30000);
	fixture_succeed(&f, "/do/0/t/try/0/c@2", 2, "{\"n\":2}");
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* What cannot be gone on with: what has not faulted, and what failed before its first task. Each is refused with its reason and decides nothing. */
START_TEST(refusals)
{
	struct fixture f;
	struct error error = {0};

	fixture_open(&f, "[{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	fixture_simple(&f, TRIGGER_RETRY);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	ck_assert_int_eq(state_may_retry(&f.state, &error), ERR_EXISTS);
	ck_assert_str_eq(error.message, "run r1 is running; only a run that has faulted can be retried");
	struct trigger kill = {.kind = TRIGGER_CANCEL, .kill = true};
	fixture_trigger(&f, &kill);
	fixture_simple(&f, TRIGGER_RETRY);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	ck_assert_int_eq(state_may_retry(&f.state, &error), ERR_EXISTS);
	ck_assert_str_eq(error.message, "run r1 is killed; only a run that has faulted can be retried");
	fixture_close(&f);

	fixture_open(&f, "[" SET("a", "1", "") "],\"input\":{\"schema\":{\"document\":{\"type\":\"object\"}}}");
	fixture_submit(&f, "5");
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	fixture_simple(&f, TRIGGER_RETRY);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	ck_assert_int_eq(state_may_retry(&f.state, &error), ERR_EXISTS);
	ck_assert_str_eq(error.message, "run r1 failed before its first task, at its input or its timeout; submit it again as it should be");
	fixture_close(&f);

	/* The task that ended it is not done again for an output that is not as it should be. */
	fixture_open(&f, "[" SET("a", "1", ",\"then\":\"end\"") "," SET("b", "2", "") "],\"output\":{\"schema\":{\"document\":{\"type\":\"string\"}}}");
	fixture_submit(&f, "{}");
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	fixture_simple(&f, TRIGGER_RETRY);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	ck_assert_int_eq(state_may_retry(&f.state, &error), ERR_EXISTS);
	ck_assert_ptr_nonnull(strstr(error.message, "failed at its output, after a task had ended it"));
	fixture_close(&f);
}
END_TEST

/* A fault that a try caught, or that lost a competition, is folded in as ever; nothing is held back behind a commit. */
START_TEST(caught_faults_are_over)
{
	struct fixture f;

	fixture_open(&f, "[{\"t\":{\"try\":[{\"d\":{\"do\":[{\"c\":{" CALL "}}]}}],\"catch\":{\"do\":[{\"x\":{" CALL "}}]}}}]");
	fixture_submit(&f, "{}");
	refuse(&f, "/do/0/t/try/0/d/do/0/c@1", 1);
	ck_assert_uint_eq(f.state.closing_count, 0);
	refuse(&f, "/do/0/t/catch/do/0/x@1", 1);
	expect_retry(&f, "run.retried, task.resumed /do/0/t@1, task.started /do/0/t/catch/do/0/x@2, attempt.started /do/0/t/catch/do/0/x@2", "start /do/0/t/catch/do/0/x@2 1");
	fixture_succeed(&f, "/do/0/t/catch/do/0/x@2", 1, "{\"n\":2}");
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	check_record(&f);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lineage");
	SRunner *runner = srunner_create(suite);
	TCase *tests = tcase_create("retry");
	int failed;

	tcase_add_test(tests, goes_on_from_the_failed_task);
	tcase_add_test(tests, maps_keep_what_they_have);
	tcase_add_test(tests, chained_loops_go_on);
	tcase_add_test(tests, losers_stay_lost);
	tcase_add_test(tests, forks_keep_what_they_have);
	tcase_add_test(tests, competing_branches);
	tcase_add_test(tests, times_begin_anew);
	tcase_add_test(tests, refusals);
	tcase_add_test(tests, caught_faults_are_over);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
