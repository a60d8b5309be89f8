/* What goes wrong and what takes time: try, catch and retry; wait; timeouts. On a clock that only the test moves. */
#include "tests/unit/workflow/record.h"

#include "workflow/base/time.h"
#include "workflow/retry.h"

#define RAISE(type, status) "{\"raise\":{\"error\":{\"type\":\"" type "\",\"status\":" status ",\"title\":\"bad\"}}}"
#define TYPES "https://serverlessworkflow.io/spec/1.0.0/errors/"

/* Which errors a catch takes: by each member, by all of them, with the five spellings of a standard type as one, and by conditions. */
START_TEST(filters)
{
	static const struct {
		const char *raised, *status, *catch;
		bool caught;
	} cases[] = {
		{TYPES "timeout", "408", "{}", true},
		{TYPES "timeout", "408", "{\"errors\":{}}", true},
		{TYPES "timeout", "408", "{\"errors\":{\"with\":{\"type\":\"" TYPES "timeout\"}}}", true},
		{TYPES "timeout", "408", "{\"errors\":{\"with\":{\"type\":\"https://open-workflow-specification.org/spec/1.0.0/errors/timeout\"}}}", true},
		{TYPES "timeout", "408", "{\"errors\":{\"with\":{\"type\":\"https://serverlessworkflow.io/dsl/errors/types/timeout\"}}}", true},
		{TYPES "timeout", "408", "{\"errors\":{\"with\":{\"type\":\"https://open-workflow-specification.org/dsl/errors/types/timeout\"}}}", true},
		{TYPES "timeout", "408", "{\"errors\":{\"with\":{\"type\":\"https://serverlessworkflow.io.io/dsl/errors/types/timeout\"}}}", true},
		{"https://serverlessworkflow.io.io/dsl/errors/types/timeout", "408", "{\"errors\":{\"with\":{\"type\":\"" TYPES "timeout\"}}}", true},
		{"https://example.com/errors/timeout", "408", "{\"errors\":{\"with\":{\"type\":\"" TYPES "timeout\"}}}", false},
		{TYPES "timeout", "408", "{\"errors\":{\"with\":{\"type\":\"" TYPES "runtime\"}}}", false},
		{TYPES "timeout", "408", "{\"errors\":{\"with\":{\"status\":408,\"title\":\"bad\",\"instance\":\"/do/0/t/try/0/r\"}}}", true},
		{TYPES "timeout", "408", "{\"errors\":{\"with\":{\"status\":408,\"title\":\"good\"}}}", false},
		{TYPES "timeout", "408", "{\"errors\":{\"with\":{\"details\":\"none\"}}}", false},
		{TYPES "timeout", "408", "{\"when\":\".status == 408\"}", true},
		{TYPES "timeout", "408", "{\"when\":\"$error.status == 409\"}", false},
		{TYPES "timeout", "408", "{\"as\":\"e\",\"exceptWhen\":\"$e.status == 408\"}", false},
		{TYPES "timeout", "408", "{\"when\":\".status > 400\",\"exceptWhen\":\"${ .status > 450 }\"}", true},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct fixture f;
		char tasks[2048];

		snprintf(tasks, sizeof tasks, "[{\"t\":{\"try\":[{\"r\":{\"raise\":{\"error\":{\"type\":\"%s\",\"status\":%s,\"title\":\"bad\"}}}}],\"catch\":%s}}]", cases[i].raised,
			 cases[i].status, cases[i].catch);
		fixture_open(&f, tasks);
		fixture_submit(&f, "{\"in\":1}");
		ck_assert_msg(f.state.status == (cases[i].caught ? RUN_COMPLETED : RUN_FAULTED), "%s", tasks);
		if (cases[i].caught)
			ck_assert_str_eq(fixture_said(&f), "run.created, task.started /do/0/t@1, task.faulted /do/0/t/try/0/r@1, task.completed /do/0/t@1, run.completed");
		else
			ck_assert_str_eq(fixture_said(&f), "run.created, task.started /do/0/t@1, task.faulted /do/0/t/try/0/r@1, task.faulted /do/0/t@1, run.faulted");
		check_record(&f);
		fixture_close(&f);
	}
}
END_TEST

/* catch.do has the error under its name, begins with the try's input, and its output is the try's; its own faults are not caught here. */
START_TEST(handler)
{
	struct fixture f;

	fixture_open(&f, "[{\"t\":{\"try\":[{\"s\":{\"set\":{\"x\":1}}},{\"r\":" RAISE("https://e/x", "422") "}],\"catch\":{\"as\":\"e\",\"do\":["
			 "{\"h\":{\"set\":{\"got\":\"${ $e.status }\",\"at\":\"${ $e.instance }\",\"in\":\"${ .in }\"}}}]}}},{\"n\":{\"set\":{\"after\":\"${ .got }\"}}}]");
	fixture_submit(&f, "{\"in\":7}");
	ck_assert_str_eq(fixture_said(&f), "run.created, task.started /do/0/t@1, task.completed /do/0/t/try/0/s@1, task.faulted /do/0/t/try/1/r@1, task.caught /do/0/t@1, "
					   "task.completed /do/0/t/catch/do/0/h@1, task.completed /do/0/t@1, task.completed /do/1/n@1, run.completed");
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"after\":422}");
	check_record(&f);
	fixture_close(&f);

	/* A fault in the handler goes to the try around. */
	fixture_open(&f, "[{\"o\":{\"try\":[{\"t\":{\"try\":[{\"r\":" RAISE("https://e/x", "422") "}],\"catch\":{\"do\":[{\"q\":" RAISE("https://e/y", "423")
			 "}]}}}],\"catch\":{\"do\":[{\"h\":{\"set\":{\"s\":\"${ $error.status }\"}}}]}}}]");
	fixture_submit(&f, "{}");
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"s\":423}");
	check_record(&f);
	fixture_close(&f);

	/* A condition that cannot be evaluated is a fault of the try itself. */
	fixture_open(&f, "[{\"t\":{\"try\":[{\"r\":" RAISE("https://e/x", "422") "}],\"catch\":{\"when\":\".status.of.it\"}}}]");
	fixture_submit(&f, "{}");
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "\"instance\":\"/do/0/t\""));
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "errors/expression"));
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* The formulas, to the millisecond; the cap; never at once; the jitter within its bounds and not always the same. */
START_TEST(formulas)
{
	bool differs = false;

	for (uint64_t n = 1; n < 6; n++) {
		ck_assert_int_eq(retry_backoff_ms(RETRY_CONSTANT, 300, n), 300);
		ck_assert_int_eq(retry_backoff_ms(RETRY_LINEAR, 300, n), 300 * (int64_t)n);
		ck_assert_int_eq(retry_backoff_ms(RETRY_EXPONENTIAL, 300, n), 300 << (n - 1));
	}
	ck_assert_int_eq(retry_backoff_ms(RETRY_EXPONENTIAL, 300, 1000), RETRY_DELAY_MAX_MS);
	ck_assert_int_eq(retry_backoff_ms(RETRY_LINEAR, 300, UINT64_MAX), RETRY_DELAY_MAX_MS);
	ck_assert_int_eq(retry_backoff_ms(RETRY_CONSTANT, INT64_MAX, 1), RETRY_DELAY_MAX_MS);
	ck_assert_int_eq(retry_backoff_ms(RETRY_CONSTANT, 0, 1), 10);
	for (uint64_t n = 1; n < 100; n++) {
		int64_t jitter = retry_jitter_ms("r", "/do/0/t@1", n, 20, 50);
		ck_assert(jitter >= 20 && jitter <= 50);
		ck_assert_int_eq(jitter, retry_jitter_ms("r", "/do/0/t@1", n, 20, 50));
		differs |= jitter != retry_jitter_ms("r", "/do/0/t@1", n + 1, 20, 50);
	}
	ck_assert(differs);
	ck_assert_int_eq(retry_jitter_ms("r", "/do/0/t@1", 1, 20, 20), 20);
}
END_TEST

#define TRY_CALL(retry, rest) "[{\"t\":{\"try\":[{\"c\":{" CALL "}}],\"catch\":{\"retry\":" retry rest "}}}]"

/* Each retry waits as its policy says and is an execution of its own, also when the daemon restarts in the middle of it; catch.do comes when
 * they are exhausted (D6). */
START_TEST(retries_wait_and_end)
{
	static const struct {
		const char *backoff;
		int64_t delays[3];
	} cases[] = {{"constant", {200, 200, 200}}, {"linear", {200, 400, 600}}, {"exponential", {200, 400, 800}}};

	for (size_t i = 0; i < 3; i++) {
		struct fixture f;
		char keys[4][DIGEST_HEX_LEN + 1], tasks[1024], step[64];

		snprintf(tasks, sizeof tasks, TRY_CALL("{\"delay\":\"PT0.2S\",\"backoff\":{\"%s\":{}},\"limit\":{\"attempt\":{\"count\":3}}}", ",\"do\":[{\"h\":{\"set\":{\"s\":\"${ $error.class }\"}}}]"),
			 cases[i].backoff);
		fixture_open(&f, tasks);
		fixture_submit(&f, "{}");
		for (unsigned n = 0; n <= 3; n++) {
			snprintf(step, sizeof step, "/do/0/t/try/0/c@%u", n + 1);
			ck_assert_str_eq(f.decision.effects[0].step_id, step);
			memcpy(keys[n], f.decision.effects[0].key, sizeof keys[n]);
			for (unsigned k = 0; k < n; k++)
				ck_assert_str_ne(keys[k], keys[n]);
			fixture_fail(&f, step, 1, FAILURE_REFUSED, 1);
			if (n == 3)
				break;
			ck_assert_ptr_nonnull(strstr(fixture_said(&f), "task.retrying /do/0/t@1"));
			ck_assert(state_is_idle(&f.state));
			restart(&f);
			ck_assert_uint_eq(f.decision.entry_count, 0);
			ck_assert_int_eq(go_on(&f), cases[i].delays[n]);
			ck_assert_ptr_nonnull(strstr(fixture_said(&f), "timer.fired /do/0/t@1, task.started"));
		}
		ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"s\":\"refused\"}");
		check_record(&f);
		fixture_close(&f);
	}
}
END_TEST

/* Exhausted or unwanted without catch.do, the error goes on; without limit there are RETRY_COUNT_DEFAULT retries. */
START_TEST(exhausted_errors_go_on)
{
	struct fixture f;
	unsigned tries = 0;

	fixture_open(&f, "[{\"t\":{\"try\":[{\"r\":" RAISE("https://e/x", "422") "}],\"catch\":{\"retry\":{}}}}]");
	fixture_submit(&f, "{}");
	for (; !run_status_ended(f.state.status); tries++)
		ck_assert_int_eq(go_on(&f), 10);
	ck_assert_uint_eq(tries, RETRY_COUNT_DEFAULT);
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "/do/0/t/try/0/r"));
	check_record(&f);
	fixture_close(&f);
	static const char *const unwanted[] = {"{\"when\":\".status == 1\"}", "{\"exceptWhen\":\".status == 422\"}", "{\"limit\":{\"attempt\":{\"count\":0}}}", "\"never\""};
	for (size_t i = 0; i < 4; i++) {
		char tasks[1024];
		snprintf(tasks, sizeof tasks,
			 "[{\"t\":{\"try\":[{\"r\":" RAISE("https://e/x", "422") "}],\"catch\":{\"retry\":%s}}}],\"use\":{\"retries\":{\"never\":{\"limit\":{\"attempt\":{\"count\":0}}}}}",
			 unwanted[i]);
		fixture_open(&f, tasks);
		fixture_submit(&f, "{}");
		ck_assert_int_eq(f.state.status, RUN_FAULTED);
		fixture_close(&f);
	}
}
END_TEST

/* limit.attempt.duration ends an attempt with a timeout that this very catch sees; limit.duration ends them all. */
START_TEST(attempts_have_limits)
{
	struct fixture f;

	fixture_open(&f, TRY_CALL("{\"delay\":\"PT1S\",\"limit\":{\"attempt\":{\"duration\":\"PT5S\",\"count\":1}}}", ",\"do\":[{\"h\":{\"set\":{\"s\":\"${ $error.status }\"}}}]"));
	fixture_submit(&f, "{}");
	restart(&f);
	ck_assert_int_eq(go_on(&f), 5000);
	ck_assert_str_eq(fixture_said(&f), "timer.fired /do/0/t@1, task.cancelled /do/0/t/try/0/c@1, task.retrying /do/0/t@1");
	ck_assert_str_eq(fixture_effects(&f), "cancel /do/0/t/try/0/c@1 2");
	ck_assert_int_eq(go_on(&f), 1000);
	ck_assert_int_eq(go_on(&f), 5000);
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"s\":408}");
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, TRY_CALL("{\"delay\":\"PT2S\",\"limit\":{\"duration\":\"PT7S\"}}", ""));
	fixture_submit(&f, "{}");
	f.wall_ms += 3000;
	fixture_fail(&f, "/do/0/t/try/0/c@1", 1, FAILURE_REFUSED, 1);
	ck_assert_int_eq(go_on(&f), 2000);
	ck_assert_int_eq(go_on(&f), 2000); /* the seventh second */
	ck_assert_str_eq(fixture_said(&f), "timer.fired /do/0/t@1, task.cancelled /do/0/t/try/0/c@2, task.faulted /do/0/t@1, run.faulted");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* A wait is over at its time and no earlier, whatever happens in between; what it waits for is one time, and it costs nothing. */
START_TEST(waits)
{
	static const struct {
		const char *duration;
		int64_t ms;
	} cases[] = {{"{\"days\":400,\"milliseconds\":1}", 400 * 86400000LL + 1}, {"\"PT1H30M\"", 5400000}, {"\"${ .d }\"", 2500}};

	for (size_t i = 0; i < 3; i++) {
		struct fixture f;
		char tasks[256];

		snprintf(tasks, sizeof tasks, "[{\"w\":{\"wait\":%s}},{\"s\":{\"set\":{\"x\":\"${ .d }\"}}}]", cases[i].duration);
		fixture_open(&f, tasks);
		fixture_submit(&f, "{\"d\":\"PT2.5S\"}");
		ck_assert_str_eq(fixture_said(&f), "run.created, task.started /do/0/w@1");
		ck_assert_uint_eq(f.decision.effect_count, 0);
		ck_assert(state_is_idle(&f.state));
		restart(&f);
		f.wall_ms += cases[i].ms - 1;
		fixture_simple(&f, TRIGGER_DEADLINE);
		ck_assert_uint_eq(f.decision.entry_count, 0);
		ck_assert_int_eq(go_on(&f), 1);
		ck_assert_str_eq(fixture_said(&f), "timer.fired /do/0/w@1, task.completed /do/0/w@1, task.completed /do/1/s@1, run.completed");
		ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"x\":\"PT2.5S\"}");
		check_record(&f);
		fixture_close(&f);
	}
	struct fixture f;
	fixture_open(&f, "[{\"w\":{\"wait\":\"${ .d }\"}}]");
	fixture_submit(&f, "{\"d\":\"soon\"}");
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "errors/expression"));
	fixture_close(&f);
}
END_TEST

/* A task that takes too long faults with 408, and a try around it sees that; the timer of one that is done in time never fires. */
START_TEST(task_timeouts)
{
	struct fixture f;

	fixture_open(&f, "[{\"t\":{\"try\":[{\"d\":{\"timeout\":\"soon\",\"do\":[{\"c\":{" CALL "}}]}}],\"catch\":{\"errors\":{\"with\":{\"status\":408}},\"do\":[{\"h\":{\"set\":"
			 "{\"at\":\"${ $error.instance }\"}}}]}}}],\"use\":{\"timeouts\":{\"soon\":{\"after\":{\"seconds\":3}}}}");
	fixture_submit(&f, "{}");
	restart(&f);
	ck_assert_int_eq(go_on(&f), 3000);
	ck_assert_str_eq(fixture_said(&f), "timer.fired /do/0/t/try/0/d@1, task.cancelled /do/0/t/try/0/d/do/0/c@1, task.faulted /do/0/t/try/0/d@1, task.caught /do/0/t@1, "
					   "task.completed /do/0/t/catch/do/0/h@1, task.completed /do/0/t@1, run.completed");
	ck_assert_str_eq(fixture_effects(&f), "cancel /do/0/t/try/0/d/do/0/c@1 2, end");
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"at\":\"/do/0/t/try/0/d\"}");
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"c\":{\"timeout\":{\"after\":\"PT1S\"}," CALL "}},{\"e\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	f.wall_ms += 999;
	fixture_succeed(&f, "/do/0/c@1", 1, "{}");
	ck_assert_int_eq(state_next_deadline_ms(&f.state), 0);
	fixture_close(&f);

	/* A call that is over is called off; what it answers then is too late. */
	fixture_open(&f, "[{\"c\":{\"timeout\":{\"after\":\"PT1S\"}," CALL "}}]");
	fixture_submit(&f, "{}");
	ck_assert_int_eq(go_on(&f), 1000);
	ck_assert_str_eq(fixture_said(&f), "timer.fired /do/0/c@1, task.faulted /do/0/c@1, run.faulted");
	ck_assert_str_eq(fixture_effects(&f), "cancel /do/0/c@1 1, end");
	check_record(&f);
	fixture_close(&f);

	/* While nobody was there: the wait was over before the timeout, so it was in time. */
	fixture_open(&f, "[{\"d\":{\"timeout\":{\"after\":\"PT9S\"},\"do\":[{\"w\":{\"wait\":\"PT8S\"}}]}},{\"e\":{\"timeout\":{\"after\":\"PT9S\"},\"wait\":\"PT10S\"}}]");
	fixture_submit(&f, "{}");
	f.wall_ms += 3600000;
	restart(&f);
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_ptr_nonnull(strstr(fixture_said(&f), "task.completed /do/0/d@1, task.started /do/1/e@1"));
	ck_assert_int_eq(go_on(&f), 9000);
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "\"instance\":\"/do/1/e\""));
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* The workflow's own timeout counts from the run's creation and nothing catches it. */
START_TEST(workflow_timeout)
{
	struct fixture f;

	fixture_open(&f, "[{\"t\":{\"try\":[{\"c\":{" CALL "}}],\"catch\":{}}}],\"timeout\":{\"after\":{\"minutes\":1}}");
	fixture_submit(&f, "{}");
	restart(&f);
	ck_assert_int_eq(go_on(&f), 60000);
	ck_assert_str_eq(fixture_said(&f), "timer.fired, task.cancelled /do/0/t/try/0/c@1, task.cancelled /do/0/t@1, run.faulted");
	ck_assert_str_eq(fixture_effects(&f), "cancel /do/0/t/try/0/c@1 2, end");
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "\"instance\":\"/\""));
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), TYPES "timeout"));
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* An iteration that faults inside a try ends its loop, whose other iterations are cancelled, and the loop may be entered again. */
START_TEST(loops_inside_a_try)
{
	struct fixture f;

	fixture_open(&f, "[{\"t\":{\"try\":[{\"f\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":3},\"do\":[{\"c\":{" CALL "}}]}}],\"catch\":{\"retry\":{\"delay\":\"PT1S\"}}}}]");
	fixture_submit(&f, "{\"l\":[1,2]}");
	fixture_fail(&f, "/do/0/t/try/0/f/do/0/c#1@1", 1, FAILURE_REFUSED, 1);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/0/t/try/0/f/do/0/c#1@1, task.faulted /do/0/t/try/0/f/do/0/c#1@1, task.cancelled /do/0/t/try/0/f/do/0/c#0@1, "
					   "task.faulted /do/0/t/try/0/f@1, task.retrying /do/0/t@1");
	restart(&f);
	go_on(&f);
	ck_assert_str_eq(fixture_effects(&f), "start /do/0/t/try/0/f/do/0/c#0@2 1, start /do/0/t/try/0/f/do/0/c#1@2 1");
	fixture_succeed(&f, "/do/0/t/try/0/f/do/0/c#1@2", 1, "{\"n\":2}");
	fixture_succeed(&f, "/do/0/t/try/0/f/do/0/c#0@2", 1, "{\"n\":1}");
	ck_assert_str_eq(fixture_print(&f, f.state.output), "[{\"n\":1},{\"n\":2}]");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* Cancelling ends what waits, too. */
START_TEST(cancel_while_waiting)
{
	struct fixture f;

	fixture_open(&f, "[{\"t\":{\"try\":[{\"w\":{\"wait\":\"PT1H\"}}],\"catch\":{}}}]");
	fixture_submit(&f, "{}");
	fixture_simple(&f, TRIGGER_CANCEL);
	ck_assert_str_eq(fixture_said(&f), "task.cancelled /do/0/t/try/0/w@1, task.cancelled /do/0/t@1, run.cancelled");
	ck_assert_int_eq(state_next_deadline_ms(&f.state), 0);
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* The workflow's own timeout may be an expression: of the run's input as the tasks get it, once, at the start. */
START_TEST(timeout_of_the_input)
{
	struct fixture f;

	fixture_open(&f, "[{\"w\":{\"wait\":\"PT1H\"}}],\"timeout\":{\"after\":\"${ .limit }\"},\"input\":{\"from\":{\"limit\":\"${ .l }\",\"raw\":\"${ $workflow.input }\"}},"
			 "\"evaluate\":{\"language\":\"jq\",\"mode\":\"strict\"}");
	fixture_submit(&f, "{\"l\":{\"minutes\":2}}");
	ck_assert_int_eq(f.state.timeout_ms, f.wall_ms + 120000);
	f.wall_ms += 119999;
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_int_eq(f.state.status, RUN_WAITING);
	f.wall_ms += 1;
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "\"status\":408"));
	fixture_close(&f);

	/* $workflow.input is the raw one, also here. */
	fixture_open(&f, "[{\"w\":{\"wait\":\"PT1H\"}}],\"timeout\":{\"after\":\"${ $workflow.input.l }\"},\"input\":{\"from\":{\"other\":1}}");
	fixture_submit(&f, "{\"l\":\"PT3S\"}");
	ck_assert_int_eq(f.state.timeout_ms, f.wall_ms + 3000);
	fixture_close(&f);
}
END_TEST

/* What gives no duration faults the run, which says where; the run is there all the same. */
START_TEST(timeout_that_is_none)
{
	static const char *const inputs[] = {"{\"l\":5}", "{}", "{\"l\":{\"weeks\":1}}"};

	for (size_t i = 0; i < COUNT_OF(inputs); i++) {
		struct fixture f;
		fixture_open(&f, "[{\"w\":{\"wait\":\"PT1H\"}}],\"timeout\":{\"after\":\"${ .l }\"}");
		fixture_submit(&f, inputs[i]);
		ck_assert_str_eq(fixture_said(&f), "run.created, run.faulted");
		ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "\"instance\":\"/timeout\""));
		ck_assert_int_eq(f.state.timeout_ms, 0);
		fixture_close(&f);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("try");
	TCase *tests = tcase_create("try");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, filters);
	tcase_add_test(tests, handler);
	tcase_add_test(tests, formulas);
	tcase_add_test(tests, retries_wait_and_end);
	tcase_add_test(tests, exhausted_errors_go_on);
	tcase_add_test(tests, attempts_have_limits);
	tcase_add_test(tests, waits);
	tcase_add_test(tests, task_timeouts);
	tcase_add_test(tests, workflow_timeout);
	tcase_add_test(tests, loops_inside_a_try);
	tcase_add_test(tests, cancel_while_waiting);
	tcase_add_test(tests, timeout_of_the_input);
	tcase_add_test(tests, timeout_that_is_none);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
