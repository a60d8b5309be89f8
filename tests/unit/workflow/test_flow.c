/* Control flow: where a list goes on, what is skipped, what is raised, and how executions are counted. */
#include "tests/unit/workflow/record.h"

/* Run to the end without any call: what it gives, and the steps in the order of their ends. */
static void expect_run(const char *tasks, const char *input, const char *output, const char *ends)
{
	struct fixture f;
	struct buffer text;

	fixture_open(&f, tasks);
	fixture_submit(&f, input);
	ck_assert_msg(f.state.status == RUN_COMPLETED, "%s: %s", tasks, print_value(&f, f.state.error));
	ck_assert_msg(strcmp(print_value(&f, f.state.output), output) == 0, "%s gives %s", tasks, print_value(&f, f.state.output));
	buffer_init(&text, 1 << 16);
	for (size_t i = 0; i < f.count; i++) {
		enum entry_kind kind = f.entries[i].kind;
		const char *step = json_get_text(f.entries[i].data, "stepId");
		if (step && kind != ENTRY_TASK_STARTED)
			buffer_printf(&text, "%s%s%s", text.len ? " " : "", strrchr(step, '/') + 1, kind == ENTRY_TASK_SKIPPED ? "!" : kind == ENTRY_TASK_CANCELLED ? "?" : "");
	}
	ck_assert_str_eq(buffer_text(&text), ends);
	buffer_close(&text);
	check_record(&f);
	fixture_close(&f);
}

#define SET(name, n, more) "{\"" name "\":{\"set\":{\"n\":" n "}" more "}}"

/* Each directive, on each kind of list; a skipped task gives its input and its `then` does not count (D4). */
START_TEST(directives)
{
	static const struct {
		const char *tasks, *input, *output, *ends;
	} cases[] = {
		/* continue, a jump forward, exit and end at the top */
		{"[" SET("a", "1", ",\"then\":\"continue\"") "," SET("b", "2", "") "]", "{}", "{\"n\":2}", "a@1 b@1"},
		{"[" SET("a", "1", ",\"then\":\"c\"") "," SET("b", "2", "") "," SET("c", "\"${ .n }\"", "") "]", "{}", "{\"n\":1}", "a@1 c@1"},
		{"[" SET("a", "1", ",\"then\":\"exit\"") "," SET("b", "2", "") "]", "{}", "{\"n\":1}", "a@1"},
		{"[" SET("a", "1", ",\"then\":\"end\"") "," SET("b", "2", "") "]", "{}", "{\"n\":1}", "a@1"},
		/* exit leaves the list around it, end leaves everything: what is around is completed with the output */
		{"[{\"d\":{\"do\":[" SET("a", "1", ",\"then\":\"exit\"") "," SET("b", "2", "") "]}}," SET("c", "\"${ .n }\"", "") "]", "{}", "{\"n\":1}", "a@1 d@1 c@1"},
		{"[{\"d\":{\"do\":[" SET("a", "1", ",\"then\":\"end\"") "," SET("b", "2", "") "]}}," SET("c", "3", "") "]", "{}", "{\"n\":1}", "a@1 d@1"},
		{"[{\"d\":{\"then\":\"end\",\"do\":[" SET("a", "1", "") "]}}," SET("c", "3", "") "]", "{}", "{\"n\":1}", "a@1 d@1"},
		/* D8: exit in the body of a for is its break; in map mode it ends the iteration */
		{"[{\"f\":{\"for\":{\"in\":\".l\"},\"do\":[{\"a\":{\"if\":\"$index == 1\",\"set\":{\"n\":\"${ $index }\"},\"then\":\"exit\"}},{\"b\":{\"set\":{\"m\":\"${ $index }\"}}}]}}]",
		 "{\"l\":[7,8,9]}", "{\"n\":1}", "a#0@1! b#0@1 a#1@1 f@1"},
		{"[{\"f\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"a\":{\"if\":\"$index == 1\",\"set\":{\"n\":\"${ $index }\"},\"then\":\"exit\"}},"
		 "{\"b\":{\"set\":{\"m\":\"${ $index }\"}}}]}}]",
		 "{\"l\":[7,8,9]}", "[{\"m\":0},{\"n\":1},{\"m\":2}]", "a#0@1! b#0@1 a#1@1 a#2@1! b#2@1 f@1"},
		/* exit of a do inside the body leaves the do alone */
		{"[{\"f\":{\"for\":{\"in\":\".l\"},\"do\":[{\"d\":{\"do\":[" SET("a", "1", ",\"then\":\"exit\"") "," SET("x", "5", "") "]}}," SET("b", "\"${ $index }\"", "") "]}}]",
		 "{\"l\":[7,8]}", "{\"n\":1}", "a#0@1 d#0@1 b#0@1 a#1@1 d#1@1 b#1@1 f@1"},
		/* end in a body completes the workflow */
		{"[{\"f\":{\"for\":{\"in\":\".l\"},\"do\":[" SET("a", "1", ",\"then\":\"end\"") "]}}," SET("b", "2", "") "]", "{\"l\":[7,8]}", "{\"n\":1}", "a#0@1 f@1"},
		/* skipped */
		{"[{\"a\":{\"if\":\".no\",\"set\":{\"n\":1},\"then\":\"end\"}}," SET("b", "\"${ .n }\"", "") "]", "{\"n\":5}", "{\"n\":5}", "a@1! b@1"},
		{"[{\"a\":{\"if\":\"${ .n == 5 }\",\"set\":{\"n\":1},\"then\":\"end\"}}," SET("b", "2", "") "]", "{\"n\":5}", "{\"n\":1}", "a@1"},
		{"[{\"a\":{\"if\":\".n == 6\",\"do\":[" SET("x", "1", "") "]}}]", "{\"n\":5}", "{\"n\":5}", "a@1!"},
		/* the last task of an iteration may be the one that is skipped */
		{"[{\"f\":{\"for\":{\"in\":\".l\"},\"do\":[" SET("a", "1", "") ",{\"b\":{\"if\":\".no\",\"set\":{\"n\":9}}}]}}]", "{\"l\":[7,8]}", "{\"n\":1}", "a#0@1 b#0@1! a#1@1 b#1@1! f@1"},
		/* backward: each entry is an execution of its own; what is inside counts with it */
		{"[" SET("a", "\"${ .m }\"", "") ",{\"s\":{\"switch\":[{\"x\":{\"when\":\".n == null\",\"then\":\"b\"}}],\"then\":\"end\"}},{\"b\":{\"set\":{\"m\":3},\"then\":\"a\"}}]", "{}",
		 "{\"n\":3}", "a@1 s@1 b@1 a@2 s@2"},
		{"[{\"d\":{\"do\":[" SET("a", "\"${ .m }\"", "") "]}},{\"s\":{\"switch\":[{\"x\":{\"when\":\".n == null\",\"then\":\"b\"}}],\"then\":\"end\"}},"
		 "{\"b\":{\"set\":{\"m\":3},\"then\":\"d\"}}]", "{}", "{\"n\":3}", "a@1 d@1 s@1 b@1 a@2 d@2 s@2"},
		/* switch: the first case that holds; the default wherever it stands; without either the task's own then */
		{"[{\"s\":{\"switch\":[{\"o\":{\"then\":\"c\"}},{\"x\":{\"when\":\".n == 1\",\"then\":\"b\"}},{\"y\":{\"when\":\".n\",\"then\":\"exit\"}}]}}," SET("b", "2", ",\"then\":\"end\"") ","
		 SET("c", "3", "") "]", "{\"n\":1}", "{\"n\":2}", "s@1 b@1"},
		{"[{\"s\":{\"switch\":[{\"o\":{\"then\":\"c\"}},{\"x\":{\"when\":\".n == 2\",\"then\":\"b\"}}]}}," SET("b", "2", ",\"then\":\"end\"") "," SET("c", "3", "") "]", "{\"n\":1}",
		 "{\"n\":3}", "s@1 c@1"},
		{"[{\"s\":{\"switch\":[{\"x\":{\"when\":\".n == 2\",\"then\":\"b\"}}],\"then\":\"end\"}}," SET("b", "2", "") "]", "{\"n\":1}", "{\"n\":1}", "s@1"},
		{"[{\"s\":{\"switch\":[{\"x\":{\"when\":\".n == 1\",\"then\":\"continue\"}}],\"then\":\"end\"}}," SET("b", "2", "") "]", "{\"n\":1}", "{\"n\":2}", "s@1 b@1"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		expect_run(cases[i].tasks, cases[i].input, cases[i].output, cases[i].ends);
}
END_TEST

/* A call that is entered again has another idempotency key each time, also after the records of a loop's iterations were dropped. */
START_TEST(keys_differ_for_each_execution)
{
	struct fixture f;
	char keys[6][DIGEST_HEX_LEN + 1];
	size_t count = 0;

	fixture_open(&f, "[{\"f\":{\"for\":{\"in\":\".l\"},\"do\":[{\"c\":{" CALL "}}]}},{\"s\":{\"switch\":[{\"x\":{\"when\":\".n < 3\",\"then\":\"again\"}}],\"then\":\"end\"}},"
			 "{\"again\":{\"set\":{\"l\":[1,2]},\"then\":\"f\"}}]");
	fixture_submit(&f, "{\"l\":[1,2]}");
	for (unsigned execution = 1; execution <= 3; execution++)
		for (unsigned i = 0; i < 2; i++) {
			char step[64];
			snprintf(step, sizeof step, "/do/0/f/do/0/c#%u@%u", i, execution);
			ck_assert_str_eq(f.decision.effects[0].step_id, step);
			memcpy(keys[count++], f.decision.effects[0].key, sizeof keys[0]);
			fixture_succeed(&f, step, 1, arena_printf(&f.arena, "{\"n\":%u}", execution));
		}
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < i; k++)
			ck_assert_str_ne(keys[i], keys[k]);
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* Within one decision and across decisions numbers are the same: a loop that is entered again goes on after the highest in it. */
START_TEST(loops_count_on)
{
	struct fixture f;

	/* In iteration 0 `a` is entered twice; the second execution of the loop goes on at 3 for all. */
	fixture_open(&f, "[{\"f\":{\"for\":{\"in\":\".l\"},\"do\":[{\"a\":{\"set\":{\"v\":\"${ .w }\",\"l\":[1,2],\"go\":\"${ .go }\"}}},"
			 "{\"s\":{\"switch\":[{\"x\":{\"when\":\".v == null\",\"then\":\"b\"}}],\"then\":\"exit\"}},{\"b\":{\"set\":{\"w\":1,\"go\":\"${ .go }\"},\"then\":\"a\"}}]}},"
			 "{\"t\":{\"switch\":[{\"x\":{\"when\":\".go == 1\",\"then\":\"end\"}}]}},{\"again\":{\"set\":{\"l\":[1,2],\"go\":1},\"then\":\"f\"}}]");
	fixture_submit(&f, "{\"l\":[1,2]}");
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	size_t found = 0;
	for (size_t i = 0; i < f.count; i++) {
		const char *step = json_get_text(f.entries[i].data, "stepId");
		found += step && (strcmp(step, "/do/0/f/do/0/a#0@2") == 0 || strcmp(step, "/do/0/f/do/0/a#0@3") == 0 || strcmp(step, "/do/0/f/do/0/a#0@4") == 0);
		ck_assert(!step || strcmp(step, "/do/0/f/do/0/a#0@5") != 0);
	}
	ck_assert_uint_eq(found, 3);
	check_record(&f);

	/* Folded entry by entry, as after a restart, it is the same. */
	struct state again;
	struct error error = {0};
	state_init(&again, f.definition);
	for (size_t i = 0; i < f.count; i++)
		ck_assert_msg(workflow_apply(&again, &f.entries[i], &error) == 0, "%s", error.message);
	state_close(&again);
	fixture_close(&f);
}
END_TEST

/* A loop of many iterations that is run again and again keeps no more than what is under way; the records outside are few. */
START_TEST(memory_is_bounded)
{
	struct fixture f;
	size_t most = 0;

	fixture_open(&f, "[{\"f\":{\"for\":{\"in\":\".l\"},\"do\":[{\"d\":{\"do\":[{\"c\":{" CALL "}}]}}]}},{\"s\":{\"switch\":[{\"x\":{\"when\":\".n < 10\",\"then\":\"f\"}}]}}]");
	fixture_submit(&f, "{\"l\":[1,2,3,4,5,6,7,8]}");
	for (unsigned execution = 1; execution <= 10; execution++)
		for (unsigned i = 0; i < 8; i++) {
			fixture_succeed(&f, arena_printf(&f.arena, "/do/0/f/do/0/d/do/0/c#%u@%u", i, execution), 1, arena_printf(&f.arena, "{\"n\":%u,\"l\":[1,2,3,4,5,6,7,8]}", execution));
			if (f.state.instance_count > most)
				most = f.state.instance_count;
		}
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	ck_assert_uint_le(most, 6); /* root, f, its body, d, c, s */
	fixture_close(&f);
}
END_TEST

/* A task is entered TASK_EXECUTIONS_MAX times; then the run faults, so that no definition goes round for ever. */
START_TEST(executions_are_limited)
{
	struct fixture f;
	struct trigger trigger = {.kind = TRIGGER_SUBMITTED, .run_id = "r1", .wall_ms = 1790000000000};
	struct decide_context context;
	struct error error = {0};
	uint64_t seq = 0, completed = 0;

	fixture_open(&f, "[{\"a\":{\"set\":{\"n\":1},\"then\":\"a\"}}]");
	context = fixture_context(&f);
	trigger.input = bytes_text("{}");
	while (!run_status_ended(f.state.status)) {
		decision_close(&f.decision);
		decision_init(&f.decision);
		workflow_decide(&f.state, &trigger, 1, &context, &f.decision);
		ck_assert_uint_gt(f.decision.entry_count, 0);
		for (size_t i = 0; i < f.decision.entry_count; i++) {
			f.decision.entries[i].seq = seq++;
			completed += f.decision.entries[i].kind == ENTRY_TASK_COMPLETED;
			ck_assert_msg(workflow_apply(&f.state, &f.decision.entries[i], &error) == 0, "%s", error.message);
		}
		state_settle(&f.state);
		trigger.kind = TRIGGER_CONTINUE;
	}
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_uint_eq(completed, TASK_EXECUTIONS_MAX);
	const struct json *fault = fixture_json(&f, fixture_print(&f, f.state.error));
	ck_assert_str_eq(json_get_text(fault, "type"), "https://serverlessworkflow.io/spec/1.0.0/errors/runtime");
	ck_assert_ptr_nonnull(strstr(json_get_text(fault, "detail"), "TASK_EXECUTIONS_MAX"));
	fixture_close(&f);
}
END_TEST

/* What is raised is the error as it is written, with its expressions evaluated; the instance is the task's, whatever the author says. */
START_TEST(raised_errors)
{
	static const struct {
		const char *tasks, *error;
	} cases[] = {
		{"[{\"a\":{\"raise\":{\"error\":{\"type\":\"https://e/x\",\"status\":418,\"title\":\"${ .t }\",\"detail\":\"as it is\",\"instance\":\"/mine\"}}}}]",
		 "{\"detail\":\"as it is\",\"instance\":\"/do/0/a\",\"status\":418,\"title\":\"tea\",\"type\":\"https://e/x\"}"},
		{"[{\"d\":{\"do\":[{\"a\":{\"raise\":{\"error\":\"known\"}}}]}}],\"use\":{\"errors\":{\"known\":{\"type\":\"https://e/y\",\"status\":\"${ .s }\"}}}",
		 "{\"instance\":\"/do/0/d/do/0/a\",\"status\":422,\"type\":\"https://e/y\"}"},
	};
	struct fixture f;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		fixture_open(&f, cases[i].tasks);
		fixture_submit(&f, "{\"t\":\"tea\",\"s\":422}");
		ck_assert_int_eq(f.state.status, RUN_FAULTED);
		ck_assert_str_eq(print_value(&f, f.state.error), cases[i].error);
		check_record(&f);
		fixture_close(&f);
	}
	/* What the expressions give must be an error. */
	fixture_open(&f, "[{\"a\":{\"raise\":{\"error\":{\"type\":\"${ .s }\",\"status\":400}}}}]");
	fixture_submit(&f, "{\"s\":1}");
	ck_assert_ptr_nonnull(strstr(print_value(&f, f.state.error), "errors/expression"));
	fixture_close(&f);
	fixture_open(&f, "[{\"a\":{\"raise\":{\"error\":{\"type\":\"x\",\"status\":\"${ .t }\"}}}}]");
	fixture_submit(&f, "{\"t\":\"no\"}");
	ck_assert_ptr_nonnull(strstr(print_value(&f, f.state.error), "must be an integer"));
	fixture_close(&f);
	for (int status = ERROR_STATUS_MIN - 1; status <= ERROR_STATUS_MAX + 1; status += ERROR_STATUS_MAX + 2 - ERROR_STATUS_MIN) {
		fixture_open(&f, "[{\"a\":{\"raise\":{\"error\":{\"type\":\"x\",\"status\":\"${ .s }\"}}}}]");
		fixture_submit(&f, arena_printf(&f.arena, "{\"s\":%d}", status));
		ck_assert_ptr_nonnull(strstr(print_value(&f, f.state.error), "must be an integer from 100 to 599"));
		fixture_close(&f);
	}
}
END_TEST

/* A condition that cannot be evaluated faults its task. */
START_TEST(conditions_can_fail)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{\"if\":\".n.of.it\",\"set\":{\"x\":1}}}]");
	fixture_submit(&f, "{\"n\":1}");
	ck_assert_str_eq(fixture_said(&f), "run.created, task.faulted /do/0/a@1, run.faulted");
	check_record(&f);
	fixture_close(&f);
	fixture_open(&f, "[{\"a\":{\"switch\":[{\"x\":{\"when\":\".n.of.it\",\"then\":\"end\"}},{\"y\":{\"then\":\"end\"}}]}}]");
	fixture_submit(&f, "{\"n\":1}");
	ck_assert_str_eq(fixture_said(&f), "run.created, task.faulted /do/0/a@1, run.faulted");
	fixture_close(&f);
}
END_TEST

/* `end` in one iteration of a map cancels the others, calls included. */
START_TEST(end_cancels_the_others)
{
	struct fixture f;

	fixture_open(&f, "[{\"f\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":3},\"do\":[{\"c\":{" CALL ",\"then\":\"end\"}}]}},{\"after\":{\"set\":{\"x\":1}}}]");
	fixture_submit(&f, "{\"l\":[1,2]}");
	fixture_succeed(&f, "/do/0/f/do/0/c#1@1", 1, "{\"v\":2}");
	ck_assert_str_eq(fixture_said(&f), "attempt.succeeded /do/0/f/do/0/c#1@1, task.completed /do/0/f/do/0/c#1@1, task.cancelled /do/0/f/do/0/c#0@1, "
					   "task.completed /do/0/f@1, run.completed");
	ck_assert_str_eq(fixture_effects(&f), "cancel /do/0/f/do/0/c#0@1 1, end");
	ck_assert_str_eq(print_value(&f, f.state.output), "{\"v\":2}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

#define BRANCH(name) "{\"" name "\":{" CALL "}}"

/* Branches are under way side by side; the output is theirs in the order of declaration, whichever comes first. */
START_TEST(fork_joins)
{
	struct fixture f;

	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[" BRANCH("a") ",{\"b\":{\"do\":[" BRANCH("c") "," SET("d", "\"${ .v }\"", "") "]}},{\"e\":{\"if\":\".no\",\"set\":{\"x\":1}}}]}}},"
			 SET("z", "\"${ $input[1].n }\"", "") "]");
	fixture_submit(&f, "{\"in\":1}");
	ck_assert_str_eq(fixture_effects(&f), "start /do/0/f/fork/branches/0/a@1 1, start /do/0/f/fork/branches/1/b/do/0/c@1 1");
	fixture_simple(&f, TRIGGER_RESTARTED);
	fixture_succeed(&f, "/do/0/f/fork/branches/1/b/do/0/c@1", 2, "{\"v\":2}");
	ck_assert_str_eq(fixture_said(&f), "attempt.succeeded /do/0/f/fork/branches/1/b/do/0/c@1, task.completed /do/0/f/fork/branches/1/b/do/0/c@1, "
					   "task.completed /do/0/f/fork/branches/1/b/do/1/d@1, task.completed /do/0/f/fork/branches/1/b@1");
	fixture_succeed(&f, "/do/0/f/fork/branches/0/a@1", 2, "{\"v\":1}");
	ck_assert_str_eq(fixture_said(&f), "attempt.succeeded /do/0/f/fork/branches/0/a@1, task.completed /do/0/f/fork/branches/0/a@1, task.completed /do/0/f@1, "
					   "task.completed /do/1/z@1, run.completed");
	ck_assert_str_eq(print_value(&f, f.state.output), "{\"n\":2}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* Nothing is in flight and something waits: the run is waiting, and the entry says so with which it began to wait; the next one says that it is
 * at work again. A child that is awaited is no work of the run's own; a call beside the wait is. */
START_TEST(runs_that_only_wait_say_so)
{
	static const char *const tasks[] = {
		"[{\"w\":{\"wait\":\"PT1H\"}}," SET("z", "1", "") "]",
		"[{\"w\":{\"listen\":{\"to\":{\"any\":[]}}}}]",
		"[{\"w\":{\"run\":{\"workflow\":{\"namespace\":\"test\",\"name\":\"c\",\"version\":\"1.0.0\"}}}}]",
	};
	struct fixture f;

	for (size_t i = 0; i < COUNT_OF(tasks); i++) {
		fixture_open(&f, tasks[i]);
		fixture_submit(&f, "{}");
		ck_assert_int_eq(f.state.status, RUN_WAITING);
		for (size_t k = 0; k < f.count; k++)
			ck_assert(json_get_boolean(f.entries[k].data, "waits", false) == (k + 1 == f.count));
		/* Until when, where it waits for nothing else: then a start has not to look at it before. */
		const struct json *wakes = json_get(f.entries[f.count - 1].data, "wakes");
		ck_assert(i == 0 ? json_equal(wakes, json_get(f.entries[f.count - 1].data, "due")) : !wakes);
		check_record(&f);
		fixture_close(&f);
	}

	fixture_open(&f, tasks[0]);
	fixture_submit(&f, "{}");
	f.wall_ms += 3600000;
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	ck_assert(!json_get(f.entries[f.count - 1].data, "waits"));
	fixture_close(&f);

	/* A call: at work, then in its backoff, then at work again; beside a wait the call decides. */
	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[" BRANCH("a") ",{\"w\":{\"wait\":\"PT1H\"}}]}}}]");
	fixture_submit(&f, "{}");
	ck_assert_int_eq(f.state.status, RUN_RUNNING);
	fixture_fail(&f, "/do/0/f/fork/branches/0/a@1", 1, FAILURE_UNREACHABLE, 3);
	ck_assert_int_eq(f.state.status, RUN_WAITING);
	f.wall_ms = state_next_deadline_ms(&f.state);
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_int_eq(f.state.status, RUN_RUNNING);
	fixture_succeed(&f, "/do/0/f/fork/branches/0/a@1", 2, "1");
	ck_assert_int_eq(f.state.status, RUN_WAITING);
	fixture_simple(&f, TRIGGER_CANCEL);
	ck_assert_int_eq(f.state.status, RUN_CANCELLED);
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* The first that completes wins, the others are cancelled; a branch that faults only loses, and the last fault of all is the fork's. */
START_TEST(fork_competes)
{
	struct fixture f;
	static const char tasks[] = "[{\"t\":{\"try\":[{\"f\":{\"fork\":{\"compete\":true,\"branches\":[" BRANCH("a") "," BRANCH("b") ",{\"w\":{\"wait\":\"PT1H\"}}]}}}],\"catch\":{}}}]";

	fixture_open(&f, tasks);
	fixture_submit(&f, "{\"in\":1}");
	fixture_fail(&f, "/do/0/t/try/0/f/fork/branches/0/a@1", 1, FAILURE_REFUSED, 1);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/0/t/try/0/f/fork/branches/0/a@1, task.faulted /do/0/t/try/0/f/fork/branches/0/a@1");
	fixture_succeed(&f, "/do/0/t/try/0/f/fork/branches/1/b@1", 1, "{\"v\":2}");
	ck_assert_str_eq(fixture_said(&f), "attempt.succeeded /do/0/t/try/0/f/fork/branches/1/b@1, task.completed /do/0/t/try/0/f/fork/branches/1/b@1, "
					   "task.cancelled /do/0/t/try/0/f/fork/branches/2/w@1, task.completed /do/0/t/try/0/f@1, task.completed /do/0/t@1, run.completed");
	ck_assert_str_eq(print_value(&f, f.state.output), "{\"v\":2}");
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"f\":{\"fork\":{\"compete\":true,\"branches\":[" BRANCH("a") "," BRANCH("b") "]}}}]");
	fixture_submit(&f, "{}");
	fixture_fail(&f, "/do/0/f/fork/branches/1/b@1", 1, FAILURE_REFUSED, 1);
	ck_assert_int_eq(f.state.status, RUN_RUNNING);
	fixture_fail(&f, "/do/0/f/fork/branches/0/a@1", 1, FAILURE_REFUSED, 1);
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "branches/0/a"));
	check_record(&f);
	fixture_close(&f);

	/* One that completes at once leaves those behind it unstarted. */
	expect_run("[{\"f\":{\"fork\":{\"compete\":true,\"branches\":[" SET("a", "1", "") "," SET("b", "2", "") "]}}}]", "{}", "{\"n\":1}", "a@1 f@1");
	/* One that has won is not lost by what another does in the same decision. */
	expect_run("[{\"f\":{\"fork\":{\"compete\":true,\"branches\":[{\"d\":{\"do\":[{\"l\":{\"for\":{\"in\":\".list\"},\"do\":[{\"e\":{\"do\":[" SET("a", "1", "") "]}},"
		   "{\"r\":{\"raise\":{\"error\":{\"type\":\"https://x.example/e\",\"status\":500,\"title\":\"t\"}}}}]}}]}},{\"w\":{\"do\":[" SET("b", "2", "") "]}}]}}}]",
		   "{\"list\":[1]}", "{\"n\":2}", "b@1 w@1 a#0@1 e#0@1 r#0@1 l@1 d@1 f@1");
	/* exit ends its branch alone, end all of them */
	expect_run("[{\"f\":{\"fork\":{\"branches\":[{\"d\":{\"do\":[" SET("a", "1", ",\"then\":\"exit\"") "," SET("b", "2", "") "]}}," SET("c", "3", ",\"then\":\"exit\"") "]}}}]", "{}",
		   "[{\"n\":1},{\"n\":3}]", "c@1 a@1 d@1 f@1");
	expect_run("[{\"f\":{\"fork\":{\"branches\":[{\"w\":{\"wait\":\"PT1H\"}}," SET("c", "3", ",\"then\":\"end\"") "]}}}," SET("z", "9", "") "]", "{}", "{\"n\":3}", "c@1 w@1? f@1");
}
END_TEST

/* A run with something to be continued does not sleep until its next timer, whatever was decided in between: were the daemon killed there, the next start
 * would leave it alone until then. When it has been continued to its end, it does. */
START_TEST(what_is_to_be_continued_does_not_sleep)
{
	static const char *const loops[] = {
		"{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":4},\"do\":[" SET("s", "1", "") "]}}",
		"{\"m\":{\"for\":{\"in\":\".l\"},\"do\":[" SET("s", "1", "") "]}}",
		"{\"m\":{\"do\":[{\"n\":{\"for\":{\"in\":\".l\"},\"do\":[" SET("s", "1", "") "]}}]}}",
		"{\"m\":{\"try\":[{\"n\":{\"for\":{\"in\":\".l\"},\"do\":[" SET("s", "1", "") "]}}],\"catch\":{}}}",
		"{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":64},\"do\":[{\"n\":{\"fork\":{\"branches\":[" SET("x", "1", "") "," SET("y", "1", "") "]}}}]}}",
	};

	for (size_t i = 0; i < COUNT_OF(loops); i++) {
		struct fixture f;
		struct buffer tasks, input;
		unsigned continued = 0;

		buffer_init(&tasks, 4096);
		buffer_init(&input, 4096);
		buffer_printf(&tasks, "[{\"f\":{\"fork\":{\"branches\":[{\"w\":{\"wait\":\"PT1H\"}}," BRANCH("a") ",%s]}}}]", loops[i]);
		for (int k = 0; k < 2 * DECISION_ENTRIES_MAX; k++)
			buffer_printf(&input, "%s1", k ? "," : "{\"l\":[");
		buffer_add_text(&input, "]}");
		fixture_open(&f, buffer_text(&tasks));
		fixture_submit(&f, buffer_text(&input));
		ck_assert_str_eq(fixture_effects(&f), "start /do/0/f/fork/branches/1/a@1 1, continue");
		fixture_succeed(&f, "/do/0/f/fork/branches/1/a@1", 1, "1");
		ck_assert_ptr_null(json_get(f.entries[f.count - 1].data, "wakes"));
		ck_assert_int_eq(state_wakes_ms(&f.state), 0);
		do {
			ck_assert_uint_lt(continued++, 20);
			fixture_simple(&f, TRIGGER_CONTINUE);
		} while (strcmp(fixture_effects(&f), "continue") == 0);
		ck_assert_ptr_nonnull(json_get(f.entries[f.count - 1].data, "wakes"));
		check_record(&f);
		fixture_close(&f);
		buffer_close(&tasks);
		buffer_close(&input);
	}
}
END_TEST

/* A decision that reaches its limit after a branch has won is continued with the end of the others: replay does not take that for a cancel. */
START_TEST(fork_competes_across_decisions)
{
	struct fixture f;
	struct buffer tasks;

	buffer_init(&tasks, 1 << 16);
	buffer_add_text(&tasks, "[{\"f\":{\"fork\":{\"compete\":true,\"branches\":[{\"a\":{\"do\":[" SET("x", "1", "") "]}},{\"b\":{\"do\":[");
	for (int i = 0; i < DECISION_ENTRIES_MAX; i++)
		buffer_printf(&tasks, "%s{\"s%d\":{\"set\":{\"n\":2}}}", i ? "," : "", i);
	buffer_add_text(&tasks, "]}}]}}}]");
	fixture_open(&f, buffer_text(&tasks));
	fixture_submit(&f, "{}");
	ck_assert_str_eq(fixture_effects(&f), "continue");
	f.wall_ms++;
	fixture_simple(&f, TRIGGER_CONTINUE);
	ck_assert_str_eq(fixture_said(&f), "task.cancelled /do/0/f/fork/branches/1/b@1, task.completed /do/0/f@1, run.completed");
	ck_assert_str_eq(print_value(&f, f.state.output), "{\"n\":1}");
	check_record(&f);
	fixture_close(&f);
	buffer_close(&tasks);
}
END_TEST

/* Without `compete` one fault ends the other branches (D7); the fork may be entered again. */
START_TEST(fork_faults)
{
	struct fixture f;

	fixture_open(&f, "[{\"t\":{\"try\":[{\"f\":{\"fork\":{\"branches\":[" BRANCH("a") "," BRANCH("b") "]}}}],\"catch\":{\"retry\":{\"delay\":\"PT1S\"}}}}]");
	fixture_submit(&f, "{}");
	fixture_fail(&f, "/do/0/t/try/0/f/fork/branches/1/b@1", 1, FAILURE_REFUSED, 1);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/0/t/try/0/f/fork/branches/1/b@1, task.faulted /do/0/t/try/0/f/fork/branches/1/b@1, "
					   "task.cancelled /do/0/t/try/0/f/fork/branches/0/a@1, task.faulted /do/0/t/try/0/f@1, task.retrying /do/0/t@1");
	ck_assert_str_eq(fixture_effects(&f), "cancel /do/0/t/try/0/f/fork/branches/0/a@1 1");
	f.wall_ms = state_next_deadline_ms(&f.state);
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_str_eq(fixture_effects(&f), "start /do/0/t/try/0/f/fork/branches/0/a@2 1, start /do/0/t/try/0/f/fork/branches/1/b@2 1");
	fixture_succeed(&f, "/do/0/t/try/0/f/fork/branches/1/b@2", 1, "2");
	fixture_succeed(&f, "/do/0/t/try/0/f/fork/branches/0/a@2", 1, "1");
	ck_assert_str_eq(print_value(&f, f.state.output), "[1,2]");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("flow");
	TCase *tests = tcase_create("flow");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, directives);
	tcase_add_test(tests, keys_differ_for_each_execution);
	tcase_add_test(tests, loops_count_on);
	tcase_add_test(tests, memory_is_bounded);
	tcase_add_test(tests, executions_are_limited);
	tcase_add_test(tests, raised_errors);
	tcase_add_test(tests, conditions_can_fail);
	tcase_add_test(tests, end_cancels_the_others);
	tcase_add_test(tests, fork_joins);
	tcase_add_test(tests, fork_competes);
	tcase_add_test(tests, runs_that_only_wait_say_so);
	tcase_add_test(tests, what_is_to_be_continued_does_not_sleep);
	tcase_add_test(tests, fork_competes_across_decisions);
	tcase_add_test(tests, fork_faults);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
