/* Data flow: input, output and export of tasks and of the workflow, their schemas, and the variables that each place has. */
#include "tests/unit/workflow/record.h"

#define SCHEMA(keywords) "{\"document\":{" keywords "}}"

/* Runs without a call: rest is the definition from `do` on. */
START_TEST(values_pass_through)
{
	static const struct {
		const char *rest, *input, *output;
	} rows[] = {
		/* The workflow's own. $workflow.input stays raw. */
		{"[],\"input\":{\"from\":\".a\"}", "{\"a\":{\"b\":1}}", "{\"b\":1}"},
		{"[],\"input\":{\"from\":\"${ .a }\"},\"output\":{\"as\":\".b\"}", "{\"a\":{\"b\":1}}", "1"},
		{"[],\"input\":{\"from\":{\"x\":\"${ .a }\",\"y\":\".a\",\"id\":\"${ $workflow.id }\",\"raw\":\"${ $workflow.input }\"}}", "{\"a\":2}",
		 "{\"id\":\"r1\",\"raw\":{\"a\":2},\"x\":2,\"y\":\".a\"}"},
		{"[{\"s\":{\"set\":{\"t\":\"${ . }\",\"w\":\"${ $workflow.input }\"}}}],\"input\":{\"from\":\".a\"}", "{\"a\":1}", "{\"t\":1,\"w\":{\"a\":1}}"},
		{"[],\"output\":{\"as\":{\"all\":\"${ . }\",\"c\":\"${ $context }\",\"v\":\"${ $runtime.version }\"}}", "null", "{\"all\":null,\"c\":{},\"v\":\"1.2.3\"}"},
		/* A task's: what it works on, what the next one gets, what $context is from then on. */
		{"[{\"s\":{\"input\":{\"from\":\".a\"},\"set\":{\"in\":\"${ . }\",\"same\":\"${ $input }\",\"raw\":\"${ $task.input }\"}}}]", "{\"a\":1}",
		 "{\"in\":1,\"raw\":{\"a\":1},\"same\":1}"},
		{"[{\"s\":{\"input\":{\"from\":\".a\"},\"set\":{\"v\":\"${ . }\"},\"output\":{\"as\":{\"dot\":\"${ . }\",\"in\":\"${ $input }\",\"raw\":\"${ $task.input }\","
		 "\"out\":\"${ $task.output }\"}}}}]", "{\"a\":1}", "{\"dot\":{\"v\":1},\"in\":1,\"out\":{\"v\":1},\"raw\":{\"a\":1}}"},
		{"[{\"s\":{\"set\":{\"v\":1},\"output\":{\"as\":\".v\"},\"export\":{\"as\":{\"dot\":\"${ . }\",\"out\":\"${ $output }\",\"raw\":\"${ $task.output }\",\"in\":\"${ $input }\","
		 "\"was\":\"${ $context }\"}}}},{\"t\":{\"set\":{\"c\":\"${ $context }\",\"before\":\"${ . }\"}}}]", "5",
		 "{\"before\":1,\"c\":{\"dot\":1,\"in\":5,\"out\":1,\"raw\":{\"v\":1},\"was\":{}}}"},
		/* An export replaces the context whole, and stays until the next. */
		{"[{\"a\":{\"set\":{\"v\":1},\"export\":{\"as\":{\"x\":1}}}},{\"b\":{\"set\":{\"v\":2},\"export\":{\"as\":{\"y\":\"${ $context.x }\"}}}},{\"c\":{\"set\":{\"v\":3}}}],"
		 "\"output\":{\"as\":\"$context\"}", "null", "{\"y\":1}"},
		{"[{\"a\":{\"set\":{\"v\":1},\"export\":{\"as\":\".v\"}}}],\"output\":{\"as\":\"$context\"}", "null", "1"},
		/* `if` looks at the raw input; what is skipped gives it on as it is, and exports nothing. */
		{"[{\"s\":{\"if\":\".a == 1\",\"input\":{\"from\":\".b\"},\"set\":{\"v\":\"${ . }\"}}}]", "{\"a\":1,\"b\":2}", "{\"v\":2}"},
		{"[{\"s\":{\"if\":\".a == 2\",\"input\":{\"from\":\".b\",\"schema\":" SCHEMA("\"type\":\"null\"") "},\"set\":{\"v\":1},\"output\":{\"as\":\".v\"},"
		 "\"export\":{\"as\":\".\"}}}],\"output\":{\"as\":{\"o\":\"${ . }\",\"c\":\"${ $context }\"}}", "{\"a\":1}", "{\"c\":{},\"o\":{\"a\":1}}"},
		/* Of a list and of loops: around what is inside. */
		{"[{\"d\":{\"input\":{\"from\":\".a\"},\"do\":[{\"x\":{\"set\":{\"v\":\"${ . }\"},\"export\":{\"as\":\".v\"}}}],\"output\":{\"as\":{\"got\":\"${ .v }\",\"in\":\"${ $input }\","
		 "\"raw\":\"${ $task.input }\",\"c\":\"${ $context }\"}}}}]", "{\"a\":7}", "{\"c\":7,\"got\":7,\"in\":7,\"raw\":{\"a\":7}}"},
		{"[{\"f\":{\"input\":{\"from\":\".a\"},\"for\":{\"in\":\".l\"},\"do\":[{\"x\":{\"input\":{\"from\":{\"i\":\"${ $item }\"}},\"set\":{\"v\":\"${ .i }\",\"l\":0},"
		 "\"output\":{\"as\":{\"w\":\"${ .v }\",\"at\":\"${ $index }\"}},\"export\":{\"as\":{\"last\":\"${ $item }\"}}}}],\"output\":{\"as\":{\"o\":\"${ . }\",\"c\":\"${ $context }\"}}}}]",
		 "{\"a\":{\"l\":[3,4]}}", "{\"c\":{\"last\":4},\"o\":{\"at\":1,\"w\":4}}"},
		/* Side by side, an export is seen inside its iteration only; the loop's own is seen after it. */
		{"[{\"o\":{\"set\":{\"l\":[1,2]},\"export\":{\"as\":{\"who\":\"outer\"}}}},{\"f\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":["
		 "{\"x\":{\"set\":{\"was\":\"${ $context.who }\"},\"export\":{\"as\":{\"who\":\"${ $item }\"}}}},{\"y\":{\"set\":{\"now\":\"${ $context.who }\",\"was\":\"${ .was }\"}}}]}},"
		 "{\"z\":{\"set\":{\"after\":\"${ $context.who }\",\"all\":\"${ . }\"}}}]", "null",
		 "{\"after\":\"outer\",\"all\":[{\"now\":1,\"was\":\"outer\"},{\"now\":2,\"was\":\"outer\"}]}"},
		{"[{\"f\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":1},\"do\":[{\"g\":{\"for\":{\"in\":\"$item\",\"each\":\"n\",\"at\":\"k\"},\"do\":["
		 "{\"x\":{\"set\":{\"c\":\"${ $context }\"},\"export\":{\"as\":\"$n\"}}}]}},{\"y\":{\"set\":{\"c\":\"${ $context }\",\"b\":\"${ .c }\"}}}],\"export\":{\"as\":{\"f\":\"${ .[0].c }\"}}}}],"
		 "\"output\":{\"as\":{\"c\":\"${ $context }\",\"o\":\"${ . }\"}}", "{\"l\":[[1,2],[3,4]]}", "{\"c\":{\"f\":2},\"o\":[{\"b\":1,\"c\":2},{\"b\":3,\"c\":4}]}"},
		/* A branch's exports are seen inside it only, and dropped at the join; the winner's of a competing fork go on, unless the fork exports (D5). */
		{"[{\"s\":{\"set\":{\"n\":0},\"export\":{\"as\":{\"c\":0}}}},{\"f\":{\"fork\":{\"branches\":["
		 "{\"a\":{\"do\":[{\"x\":{\"set\":{\"v\":1},\"export\":{\"as\":{\"c\":1}}}},{\"y\":{\"set\":{\"sees\":\"${ $context.c }\"}}}]}},"
		 "{\"b\":{\"set\":{\"sees\":\"${ $context.c }\"},\"export\":{\"as\":{\"c\":2}}}}]}}},{\"e\":{\"set\":{\"both\":\"${ . }\",\"after\":\"${ $context.c }\"}}}]", "{}",
		 "{\"after\":0,\"both\":[{\"sees\":1},{\"sees\":0}]}"},
		{"[{\"f\":{\"fork\":{\"compete\":true,\"branches\":[{\"a\":{\"do\":[{\"x\":{\"set\":{\"v\":1},\"export\":{\"as\":{\"c\":1}}}}]}},{\"w\":{\"wait\":\"PT1H\"}}]},"
		 "\"output\":{\"as\":{\"in\":\"${ $context.c }\"}}}},{\"e\":{\"set\":{\"in\":\"${ .in }\",\"after\":\"${ $context.c }\"}}}]", "{}", "{\"after\":1,\"in\":1}"},
		{"[{\"f\":{\"fork\":{\"compete\":true,\"branches\":[{\"a\":{\"set\":{\"v\":1},\"export\":{\"as\":{\"c\":1}}}}]},\"export\":{\"as\":{\"c\":9,\"won\":\"${ $context.c }\"}}}},"
		 "{\"e\":{\"set\":{\"after\":\"${ $context }\"}}}]", "{}", "{\"after\":{\"c\":9,\"won\":1}}"},
		/* … also when that fork is a branch itself, in an iteration of a map. */
		{"[{\"m\":{\"for\":{\"in\":\".\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"o\":{\"fork\":{\"compete\":true,\"branches\":[{\"i\":{\"fork\":{\"compete\":true,\"branches\":["
		 "{\"a\":{\"set\":{\"v\":1},\"export\":{\"as\":\"$item\"}}}]}}}]}}},{\"e\":{\"set\":{\"c\":\"${ $context }\"}}}]}},{\"z\":{\"set\":{\"each\":\"${ . }\",\"c\":\"${ $context }\"}}}]", "[5,6]",
		 "{\"c\":{},\"each\":[{\"c\":5},{\"c\":6}]}"},
		/* Conditions of a task see $task as the task, with its raw input. */
		{"[{\"l\":{\"input\":{\"from\":\".a\"},\"for\":{\"in\":\".\"},\"while\":\"$task.name == \\\"l\\\"\",\"do\":[{\"s\":{\"set\":{\"i\":\"${ $index }\"}}}]}}]", "{\"a\":[5,6]}", "{\"i\":1}"},
		{"[{\"l\":{\"input\":{\"from\":\".a\"},\"for\":{\"in\":\".\"},\"while\":\"$task.input.a[0] == 5\",\"do\":[{\"s\":{\"set\":{\"i\":\"${ $index }\"}}}]}}]", "{\"a\":[5,6]}", "{\"i\":1}"},
		{"[{\"t\":{\"input\":{\"from\":\".a\"},\"try\":[{\"r\":{\"raise\":{\"error\":{\"type\":\"x\",\"status\":400}}}}],\"catch\":{\"when\":\"$task.input.a == 7\",\"do\":"
		 "[{\"s\":{\"set\":{\"v\":\"${ . }\"}}}]}}}]", "{\"a\":7}", "{\"v\":7}"},
		/* Schemas that fit change nothing; which draft is theirs to say. */
		{"[{\"s\":{\"input\":{\"schema\":" SCHEMA("\"required\":[\"a\"]") "},\"set\":{\"v\":1},\"output\":{\"as\":\".v\",\"schema\":" SCHEMA("\"const\":1") "},"
		 "\"export\":{\"as\":{\"n\":\"${ . }\"},\"schema\":" SCHEMA("\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"definitions\":{\"n\":{\"const\":1}},\"properties\":"
		 "{\"n\":{\"$ref\":\"#/definitions/n\"}}") "}}}],\"input\":{\"schema\":{\"format\":\"json\",\"document\":true}},\"output\":{\"schema\":" SCHEMA("\"type\":\"number\"") "}",
		 "{\"a\":1}", "1"},
		/* A way on is taken with what comes out; the end of the workflow has its own output. */
		{"[{\"s\":{\"switch\":[{\"x\":{\"when\":\".\",\"then\":\"b\"}}],\"input\":{\"from\":\".a\"},\"output\":{\"as\":{\"o\":\"${ . }\",\"raw\":\"${ $task.input }\"}}}},"
		 "{\"a\":{\"set\":{\"no\":1}}},{\"b\":{\"set\":{\"got\":\"${ .o }\",\"raw\":\"${ .raw.a }\"}}}]", "{\"a\":true}", "{\"got\":true,\"raw\":true}"},
		{"[{\"d\":{\"do\":[{\"x\":{\"set\":{\"v\":1},\"output\":{\"as\":\".v\"},\"then\":\"end\"}}],\"output\":{\"as\":{\"never\":1}}}}],\"output\":{\"as\":{\"w\":\"${ . }\"}}", "null",
		 "{\"w\":1}"},
		/* Entered again: each time with the context of then. */
		{"[{\"a\":{\"set\":{\"n\":\"${ $context.n }\"},\"export\":{\"as\":{\"n\":{\"of\":\"${ $context.n }\"}}}}},{\"s\":{\"switch\":[{\"x\":{\"when\":\".n.of.of == null\","
		 "\"then\":\"b\"}}],\"then\":\"end\"}},{\"b\":{\"set\":{\"z\":1},\"then\":\"a\"}}],\"output\":{\"as\":\"$context.n.of\"}", "null",
		 "{\"of\":{\"of\":{\"of\":null}}}"},
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct fixture f;

		fixture_open(&f, rows[i].rest);
		fixture_submit(&f, rows[i].input);
		if (strcmp(print_value(&f, f.state.output), rows[i].output) != 0)
			ck_abort_msg("row %zu gives %s, %s", i, print_value(&f, f.state.output), print_value(&f, f.state.error));
		ck_assert_int_eq(f.state.status, RUN_COMPLETED);
		check_record(&f);
		fixture_close(&f);
	}
}
END_TEST

/* A value that does not fit its schema is a `validation` error, an expression that fails an `expression` error, of the task or workflow
 * that it belongs to; what is checked when, dsl.md 1.2 says. */
START_TEST(flaws_fault)
{
	static const struct {
		const char *rest, *input, *type, *instance, *detail;
	} rows[] = {
		{"[],\"input\":{\"schema\":" SCHEMA("\"required\":[\"a\"]") "}", "{}", "validation", "/input", "input.schema: : required, but missing: a"},
		{"[],\"input\":{\"from\":\".a\",\"schema\":" SCHEMA("\"properties\":{\"a\":{\"type\":\"string\"}}") "}", "{\"a\":1}", "validation", "/input",
		 "input.schema: /a: expected string, got number"},
		{"[],\"input\":{\"from\":\".a.b\"}", "{\"a\":1}", "expression", "/input", "input.from: "},
		{"[],\"output\":{\"as\":\".a.b\"}", "{\"a\":1}", "expression", "/output", "output.as: "},
		{"[],\"output\":{\"as\":\".a\",\"schema\":" SCHEMA("\"type\":\"object\"") "}", "{\"a\":1}", "validation", "/output", "output.schema: : expected object, got number"},
		{"[{\"s\":{\"set\":{\"v\":1},\"then\":\"end\"}}],\"output\":{\"schema\":" SCHEMA("\"type\":\"null\"") "}", "1", "validation", "/output", "output.schema: : expected null"},
		{"[{\"s\":{\"input\":{\"from\":\".b\",\"schema\":" SCHEMA("\"required\":[\"a\"]") "},\"set\":{\"v\":1}}}]", "{\"b\":{\"a\":1}}", "validation", "/do/0/s",
		 "input.schema: : required, but missing: a"},
		{"[{\"s\":{\"input\":{\"from\":\".b.c\"},\"set\":{\"v\":1}}}]", "{\"b\":1}", "expression", "/do/0/s", "input.from: "},
		{"[{\"s\":{\"set\":{\"v\":1},\"output\":{\"as\":\".v\",\"schema\":" SCHEMA("\"type\":\"object\"") "}}}]", "1", "validation", "/do/0/s",
		 "output.schema: : expected object, got number"},
		{"[{\"s\":{\"set\":{\"v\":1},\"output\":{\"as\":\".v.w\"}}}]", "1", "expression", "/do/0/s", "output.as: "},
		{"[{\"s\":{\"set\":{\"v\":1},\"export\":{\"as\":\".v\",\"schema\":" SCHEMA("\"type\":\"object\"") "}}}]", "1", "validation", "/do/0/s", "export.schema: : expected object"},
		{"[{\"s\":{\"set\":{\"v\":1},\"export\":{\"as\":\"$output.v.w\"}}}]", "1", "expression", "/do/0/s", "export.as: "},
		{"[{\"d\":{\"do\":[{\"s\":{\"set\":{\"v\":1}}}],\"output\":{\"schema\":" SCHEMA("\"type\":\"null\"") "}}}]", "1", "validation", "/do/0/d", "output.schema: "},
		{"[{\"f\":{\"for\":{\"in\":\".\"},\"do\":[{\"s\":{\"set\":{\"v\":1},\"input\":{\"schema\":" SCHEMA("\"type\":\"array\"") "}}}]}}]", "[1,2]", "validation", "/do/0/f/do/0/s",
		 "input.schema: : expected array, got object"},
		{"[{\"s\":{\"set\":{\"v\":1},\"input\":{\"schema\":" SCHEMA("\"pattern\":\"^(a+)+$\"") "}}}]", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\"", "validation", "/do/0/s",
		 "input.schema: : the patterns need more than PATTERN_STEPS_MAX"},
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct fixture f;

		fixture_open(&f, rows[i].rest);
		fixture_submit(&f, rows[i].input);
		ck_assert_msg(f.state.status == RUN_FAULTED, "row %zu gives %s", i, print_value(&f, f.state.output));
		const struct json *error = fixture_json(&f, print_value(&f, f.state.error));
		ck_assert_str_eq(strrchr(json_get_text(error, "type"), '/') + 1, rows[i].type);
		ck_assert_int_eq((int)json_get_number(error, "status", 0), 400);
		ck_assert_str_eq(json_get_text(error, "instance"), rows[i].instance);
		ck_assert_msg(strncmp(json_get_text(error, "detail"), rows[i].detail, strlen(rows[i].detail)) == 0, "row %zu: %s", i, json_get_text(error, "detail"));
		check_record(&f);
		fixture_close(&f);
	}
}
END_TEST

/* What a peer answered passes through `output` and `export` later than the task's start: its raw answer stays in the journal. */
START_TEST(answers_pass_through)
{
	struct fixture f;

	fixture_open(&f, "[{\"c\":{\"input\":{\"from\":\".a\"}," CALL ",\"output\":{\"as\":{\"n\":\"${ .n }\",\"in\":\"${ $input }\",\"raw\":\"${ $task.input }\",\"at\":"
			 "\"${ $task.startedAt.epoch.milliseconds }\"}},\"export\":{\"as\":\".n\"}}},{\"s\":{\"set\":{\"c\":\"${ $context }\",\"got\":\"${ . }\"}}}]");
	fixture_submit(&f, "{\"a\":5}");
	f.wall_ms += 1000;
	fixture_succeed(&f, "/do/0/c@1", 1, "{\"n\":7,\"more\":[1]}");
	ck_assert_str_eq(print_value(&f, f.state.output), "{\"c\":7,\"got\":{\"at\":1790000000000,\"in\":5,\"n\":7,\"raw\":{\"a\":5}}}");
	check_record(&f);
	fixture_close(&f);

	/* Of a good answer nothing can be made: the attempt succeeded, the task faults. */
	fixture_open(&f, "[{\"c\":{" CALL ",\"output\":{\"schema\":" SCHEMA("\"required\":[\"n\"]") "}}}]");
	fixture_submit(&f, "{}");
	fixture_succeed(&f, "/do/0/c@1", 1, "{\"m\":7}");
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_ptr_nonnull(strstr(fixture_said(&f), "attempt.succeeded /do/0/c@1, task.faulted /do/0/c@1, run.faulted"));
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* A context too large to stay in memory is asked for by the task that speaks of it, and by no other. */
START_TEST(large_contexts_are_loaded)
{
	struct fixture f;
	char *pad;

	fixture_open(&f, "[{\"a\":{\"set\":{\"v\":1},\"export\":{\"as\":\"$workflow.input\"}}},{\"c\":{" CALL "}},{\"b\":{\"set\":{\"n\":\"${ $context.n }\"}}}]");
	pad = arena_alloc(&f.arena, VALUE_INLINE_MAX + 1);
	memset(pad, 'x', VALUE_INLINE_MAX);
	pad[VALUE_INLINE_MAX] = 0;
	const char *input = arena_printf(&f.arena, "{\"n\":3,\"pad\":\"%s\"}", pad);
	fixture_submit(&f, input);
	fixture_succeed(&f, "/do/1/c@1", 1, "{}");
	ck_assert(f.undecided);
	ck_assert_uint_eq(f.decision.need_count, 1);
	ck_assert(digest_equal(&f.decision.needs[0].digest, &f.state.context->digest));
	f.values[f.value_count++] = fixture_json(&f, input);
	fixture_succeed(&f, "/do/1/c@1", 1, "{}");
	ck_assert_str_eq(print_value(&f, f.state.output), "{\"n\":3}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* Another daemon, the same entries: the run goes on with its context, also inside an iteration of a map. */
START_TEST(context_survives_restart)
{
	struct fixture f;
	struct error error = {0};

	fixture_open(&f, "[{\"f\":{\"for\":{\"in\":\".\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"a\":{\"set\":{\"v\":\"${ $item }\"},\"export\":{\"as\":\".v\"}}},{\"c\":{" CALL "}},"
			 "{\"b\":{\"set\":{\"c\":\"${ $context }\"}}}]}}]");
	fixture_submit(&f, "[4,5]");
	state_close(&f.state);
	state_init(&f.state, f.definition);
	for (size_t i = 0; i < f.count; i++)
		ck_assert_msg(workflow_apply(&f.state, &f.entries[i], &error) == 0, "%s", error.message);
	fixture_simple(&f, TRIGGER_RESTARTED);
	fixture_succeed(&f, "/do/0/f/do/1/c#1@1", 2, "{}");
	fixture_succeed(&f, "/do/0/f/do/1/c#0@1", 2, "{}");
	ck_assert_str_eq(print_value(&f, f.state.output), "[{\"c\":4},{\"c\":5}]");
	ck_assert_ptr_null(f.state.context);
	check_record(&f);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("data_flow");
	TCase *tests = tcase_create("data_flow");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, values_pass_through);
	tcase_add_test(tests, flaws_fault);
	tcase_add_test(tests, answers_pass_through);
	tcase_add_test(tests, large_contexts_are_loaded);
	tcase_add_test(tests, context_survives_restart);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
