/* Forks: where one may begin, what is carried over, and that it goes on, replays and folds without the run that it is forked of. */
#include "tests/unit/workflow/record.h"

#include "workflow/fork.h"
#include "workflow/state_internal.h"
#include "workflow/view.h"

#define SET(name, n) "{\"" name "\":{\"set\":{\"n\":" n "}}}"

static int load(void *context, struct arena *arena, uint64_t content_id, const struct digest *digest, struct bytes *bytes, struct error *error)
{
	const struct fixture *f = context;

	for (size_t i = 0; i < f->count; i++)
		for (size_t k = 0; k < f->entries[i].value_count; k++)
			if ((content_id == 0 || content_id == CONTENT_ID(f->entries[i].seq, k)) && digest_equal(&f->entries[i].values[k].digest, digest)) {
				*bytes = arena_bytes(arena, f->entries[i].values[k].bytes);
				return 0;
			}
	return error_set(error, ERR_GONE, "it was erased");
}

static int find(struct fixture *f, const char *from, enum fork_children children, struct fork_find *find, struct error *error)
{
	*find = (struct fork_find){.arena = &f->arena, .definition = f->definition, .run_id = f->state.id, .from = from, .children = children};
	if (fork_find_begin(find, error) != 0)
		return error->code;
	fork_find_add(find, f->entries, f->count);
	return fork_find_end(find, error);
}

static void expect_refused(struct fixture *f, const char *from, const char *why)
{
	struct fork_find found;
	struct error error;

	ck_assert_int_ne(find(f, from, FORK_KEEP, &found, &error), 0);
	ck_assert_msg(strstr(error.message, why) != NULL, "%s", error.message);
}

/* The state right before `from` began. */
static void fold_until(struct fixture *f, const struct fork_find *found, struct state *state)
{
	struct error error = {0};

	state_init(state, f->definition);
	for (size_t i = 0; i < f->count && f->entries[i].seq < found->seq; i++)
		ck_assert_msg(workflow_apply(state, &f->entries[i], &error) == 0, "%s", error.message);
}

/* `fork` becomes a run of its own, of the same definition. input: what the task is given instead, or NULL. */
static void fork_run(struct fixture *f, struct fixture *fork, const char *from, enum fork_children children, const char *input)
{
	struct fork_find found;
	struct error error = {0};
	struct state state;
	struct forking forking = {.overrides = BYTES_OF("{\"from\":\"x\"}"), .reason = "why not"};
	struct trigger trigger = {.kind = TRIGGER_SUBMITTED, .run_id = "f1", .fork = &forking};
	const struct fork_source source = {load, f};
	struct bytes given = input ? bytes_text(input) : (struct bytes){0};
	uint64_t count = f->state.entry_count;

	ck_assert_msg(find(f, from, children, &found, &error) == 0, "%s", error.message);
	fold_until(f, &found, &state);
	ck_assert_msg(fork_carry(&state, &found, input ? &given : NULL, &source, &forking, &trigger.input, &error) == 0, "%s", error.message);
	memset(fork, 0, sizeof *fork);
	arena_init(&fork->arena);
	decision_init(&fork->decision);
	fork->definition = f->definition;
	state_init(&fork->state, f->definition);
	fork->wall_ms = f->wall_ms + 5000;
	fork->seq = f->seq + 100;
	memcpy(fork->values, f->values, sizeof f->values);
	fork->value_count = f->value_count;
	fixture_trigger(fork, &trigger);
	ck_assert_uint_eq(f->state.entry_count, count); /* the other run is as it was */

	/* What was carried is the state as it was prepared: the same records, value for value. */
	struct state carried;
	state_init(&carried, f->definition);
	for (size_t i = 0; i < fork->count && (fork->entries[i].kind == ENTRY_RUN_CREATED || fork->entries[i].kind == ENTRY_TASK_CARRIED); i++)
		ck_assert_msg(workflow_apply(&carried, &fork->entries[i], &error) == 0, "%s", error.message);
	snprintf(state.id, sizeof state.id, "f1");
	state.timeout_ms = carried.timeout_ms;
	state.fact_count = state.rejected_count = 0;
	state_set_value(&state, &((struct instance *)state_root(&state))->context, NULL);
	state.status = carried.status;
	struct digest was = state_digest(&state), is = state_digest(&carried);
	ck_assert(digest_equal(&was, &is));
	state_close(&carried);
	state_close(&state);
	if (!run_status_ended(fork->state.status))
		check_record(fork);
}

static void close_fork(struct fixture *fork)
{
	check_record(fork);
	fork->definition = NULL;
	decision_close(&fork->decision);
	state_close(&fork->state);
	arena_close(&fork->arena);
}

/* What it said after the records that it took over. */
static const char *went_on(struct fixture *fork)
{
	const char *said = strstr(fixture_said(fork), "task.carried"), *next;

	while (said && (next = strstr(said + 1, "task.carried")) != NULL)
		said = next;
	said = said ? strchr(said, ',') : NULL;
	return said ? said + 2 : "";
}

/* In lists, loops of both kinds and a handler: what is before the task stands, and it goes on with it. */
START_TEST(goes_on_from_any_task)
{
	static const struct {
		const char *from, *says;
	} cases[] = {
		{"/do/0/a@1", "task.completed /do/0/a@1, task.started /do/1/l@1, task.completed /do/1/l/do/0/x#0@1, task.completed /do/1/l/do/0/x#1@1, task.completed /do/1/l@1, "
			      "task.started /do/2/m@1, task.completed /do/2/m/do/0/y#0@1, task.completed /do/2/m/do/0/y#1@1, task.completed /do/2/m@1, task.started /do/3/t@1, "
			      "task.faulted /do/3/t/try/0/r@1, task.caught /do/3/t@1, task.completed /do/3/t/catch/do/0/h@1, task.completed /do/3/t@1, task.started /do/4/c@1, "
			      "attempt.started /do/4/c@1"},
		{"x#1", "task.resumed /do/1/l@1, task.completed /do/1/l/do/0/x#1@1, task.completed /do/1/l@1, task.started /do/2/m@1, task.completed /do/2/m/do/0/y#0@1, "
			"task.completed /do/2/m/do/0/y#1@1, task.completed /do/2/m@1, task.started /do/3/t@1, task.faulted /do/3/t/try/0/r@1, task.caught /do/3/t@1, "
			"task.completed /do/3/t/catch/do/0/h@1, task.completed /do/3/t@1, task.started /do/4/c@1, attempt.started /do/4/c@1"},
		{"/do/2/m/do/0/y#1@1", "task.resumed /do/2/m@1, task.completed /do/2/m/do/0/y#1@1, task.completed /do/2/m@1, task.started /do/3/t@1, task.faulted /do/3/t/try/0/r@1, "
				       "task.caught /do/3/t@1, task.completed /do/3/t/catch/do/0/h@1, task.completed /do/3/t@1, task.started /do/4/c@1, attempt.started /do/4/c@1"},
		{"r", "task.resumed /do/3/t@1, task.faulted /do/3/t/try/0/r@1, task.caught /do/3/t@1, task.completed /do/3/t/catch/do/0/h@1, task.completed /do/3/t@1, task.started /do/4/c@1, "
		      "attempt.started /do/4/c@1"},
		{"h", "task.resumed /do/3/t@1, task.completed /do/3/t/catch/do/0/h@1, task.completed /do/3/t@1, task.started /do/4/c@1, attempt.started /do/4/c@1"},
		{"c", "task.started /do/4/c@1, attempt.started /do/4/c@1"},
	};
	struct fixture f;

	fixture_open(&f, "[" SET("a", "1") ",{\"l\":{\"for\":{\"in\":\"$workflow.input.l\"},\"do\":[" SET("x", "\"${ .n }\"") "]}},"
			 "{\"m\":{\"for\":{\"in\":\"$workflow.input.l\"},\"metadata\":{\"concurrency\":2},\"do\":[" SET("y", "\"${ $item }\"") "]}},"
			 "{\"t\":{\"try\":[{\"r\":{\"raise\":{\"error\":{\"type\":\"https://example.com/e\",\"status\":500}}}}],\"catch\":{\"do\":[" SET("h", "3") "]}}},{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{\"l\":[7,8]}");
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct fixture fork;
		fork_run(&f, &fork, cases[i].from, FORK_KEEP, NULL);
		ck_assert_str_eq(went_on(&fork), cases[i].says);
		ck_assert_str_ne(fork.decision.effects[0].key, "");
		restart(&fork);
		fixture_succeed(&fork, "/do/4/c@1", 2, "{\"ok\":1}");
		ck_assert_int_eq(fork.state.status, RUN_COMPLETED);
		close_fork(&fork);
	}
	fixture_close(&f);
}
END_TEST

/* The key of a call is another run's: of the same step, on purpose. */
START_TEST(keys_are_its_own)
{
	struct fixture f, fork;
	char key[DIGEST_HEX_LEN + 1];

	fixture_open(&f, "[{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	memcpy(key, f.decision.effects[0].key, sizeof key);
	fork_run(&f, &fork, "c", FORK_KEEP, NULL);
	ck_assert_str_eq(fixture_effects(&fork), "start /do/0/c@1 1");
	ck_assert_str_ne(fork.decision.effects[0].key, key);
	close_fork(&fork);
	fixture_close(&f);
}
END_TEST

/* Beside the task, in branches and iterations: calls and waits are entered anew with the next number, what had ended stands, a listen goes on listening. */
START_TEST(what_was_under_way_begins_anew)
{
	struct fixture f, fork;

	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[{\"a\":{" CALL "}},{\"w\":{\"wait\":{\"seconds\":9}}},{\"l\":{\"listen\":{\"to\":{\"one\":{\"with\":{\"type\":\"t\"}}}}}},"
			 "{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"c\":{" CALL "}}]}},{\"z\":{\"do\":[{\"p\":{" CALL "}}," SET("q", "1") ",{\"e\":{" CALL "}}]}}]}}}]");
	fixture_submit(&f, "{\"l\":[1,2,3]}");
	fixture_succeed(&f, "/do/0/f/fork/branches/3/m/do/0/c#0@1", 1, "{\"m\":1}");
	fixture_succeed(&f, "/do/0/f/fork/branches/4/z/do/0/p@1", 1, "{\"n\":1}");
	fork_run(&f, &fork, "q", FORK_KEEP, NULL);
	ck_assert_str_eq(went_on(&fork),
			 "task.resumed /do/0/f@1, task.resumed /do/0/f/fork/branches/2/l@1, task.resumed /do/0/f/fork/branches/3/m@1, task.resumed /do/0/f/fork/branches/4/z@1, "
			 "task.started /do/0/f/fork/branches/0/a@2, attempt.started /do/0/f/fork/branches/0/a@2, task.started /do/0/f/fork/branches/1/w@2, "
			 "task.completed /do/0/f/fork/branches/4/z/do/1/q@1, task.started /do/0/f/fork/branches/4/z/do/2/e@1, attempt.started /do/0/f/fork/branches/4/z/do/2/e@1, "
			 "task.started /do/0/f/fork/branches/3/m/do/0/c#1@2, attempt.started /do/0/f/fork/branches/3/m/do/0/c#1@2, task.started /do/0/f/fork/branches/3/m/do/0/c#2@2, "
			 "attempt.started /do/0/f/fork/branches/3/m/do/0/c#2@2");
	restart(&fork);
	struct trigger event = {.kind = TRIGGER_EVENT, .step_id = "/do/0/f/fork/branches/2/l@1", .event_seq = 900,
				.event = BYTES_OF("{\"data\":5,\"id\":\"1\",\"source\":\"/x\",\"specversion\":\"1.0\",\"time\":\"2026-09-21T14:13:20Z\",\"type\":\"t\"}")};
	fixture_trigger(&fork, &event);
	fixture_succeed(&fork, "/do/0/f/fork/branches/0/a@2", 2, "{\"a\":1}");
	fixture_succeed(&fork, "/do/0/f/fork/branches/3/m/do/0/c#2@2", 2, "{\"m\":3}");
	fixture_succeed(&fork, "/do/0/f/fork/branches/3/m/do/0/c#1@2", 2, "{\"m\":2}");
	fixture_succeed(&fork, "/do/0/f/fork/branches/4/z/do/2/e@1", 2, "{\"e\":1}");
	ck_assert_int_eq(go_on(&fork), 9000); /* the whole wait */
	ck_assert_int_eq(fork.state.status, RUN_COMPLETED);
	ck_assert_str_eq(print_value(&fork, fork.state.output), "[{\"a\":1},{\"l\":[1,2,3]},[5],[{\"m\":1},{\"m\":2},{\"m\":3}],{\"e\":1}]");
	close_fork(&fork);
	fixture_close(&f);
}
END_TEST

/* The list around the task gives the other input, an iteration's too; branches share theirs. */
START_TEST(another_input)
{
	struct fixture f, fork;
	struct fork_find found;
	struct forking forking = {0};
	struct bytes input = BYTES_OF("1"), run_input;
	struct error error;
	struct state state;
	const struct fork_source source = {load, &f};

	fixture_open(&f, "[{\"l\":{\"for\":{\"in\":\".l\"},\"do\":[" SET("x", "\"${ .n }\"") "]}},{\"f\":{\"fork\":{\"branches\":[" SET("a", "\"${ .n }\"") ",{\"b\":{\"do\":[" SET("c", "\"${ .n }\"") "]}}]}}}]");
	fixture_submit(&f, "{\"l\":[1,2],\"n\":3}");
	ck_assert_str_eq(print_value(&f, f.state.output), "[{\"n\":3},{\"n\":3}]");
	fork_run(&f, &fork, "x#1", FORK_KEEP, "{\"n\":4}");
	ck_assert_str_eq(print_value(&fork, fork.state.output), "[{\"n\":4},{\"n\":4}]");
	close_fork(&fork);
	fork_run(&f, &fork, "c", FORK_KEEP, "{\"n\":5}");
	ck_assert_str_eq(print_value(&fork, fork.state.output), "[{\"n\":3},{\"n\":5}]");
	close_fork(&fork);
	ck_assert_int_eq(find(&f, "a", FORK_KEEP, &found, &error), 0);
	fold_until(&f, &found, &state);
	ck_assert_int_eq(fork_carry(&state, &found, &input, &source, &forking, &run_input, &error), ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "all branches have one input"));
	state_close(&state);
	fixture_close(&f);
}
END_TEST

/* The results of children stand and are named; or all of them run again; or nobody waits for what was under way. */
START_TEST(children_are_kept_run_again_or_let_go)
{
	struct fixture f, fork;
	const char *child = "\"run\":{\"workflow\":{\"namespace\":\"n\",\"name\":\"k\",\"version\":\"1.0.0\"}}";
	char key[DIGEST_HEX_LEN + 1];

	struct arena arena;
	arena_init(&arena);
	fixture_open(&f, arena_printf(&arena, "[{\"k\":{%s}},{\"f\":{\"fork\":{\"branches\":[{\"o\":{%s}},{\"d\":{\"do\":[{\"p\":{" CALL "}}," SET("q", "1") "]}}]}}}]", child, child));
	arena_close(&arena);
	fixture_submit(&f, "{}");
	memcpy(key, f.decision.effects[0].key, sizeof key);
	fixture_succeed(&f, "/do/0/k@1", 1, "{\"kid\":1}");
	fixture_succeed(&f, "/do/1/f/fork/branches/1/d/do/0/p@1", 1, "{}");

	fork_run(&f, &fork, "q", FORK_KEEP, NULL);
	ck_assert_str_eq(fixture_effects(&fork), "start /do/1/f/fork/branches/0/o@2 1");
	const struct json *from = json_get(fork.entries[0].data, "forkedFrom");
	ck_assert_uint_eq(json_count(json_get(from, "kept")), 1);
	ck_assert_int_eq(strncmp(json_at(json_get(from, "kept"), 0)->string.text, key, FORK_CHILD_ID_LEN), 0);
	ck_assert_str_eq(json_get_text(from, "step"), "/do/1/f/fork/branches/1/d/do/1/q@1");
	close_fork(&fork);

	fork_run(&f, &fork, "q", FORK_RERUN, NULL);
	ck_assert_str_eq(fixture_effects(&fork), "start /do/0/k@1 1");
	from = json_get(fork.entries[0].data, "forkedFrom");
	ck_assert_str_eq(json_get_text(from, "step"), "/do/0/k@1");
	ck_assert_ptr_null(json_get(from, "kept"));
	close_fork(&fork);

	fork_run(&f, &fork, "q", FORK_DETACH, NULL);
	ck_assert_int_eq(fork.state.status, RUN_COMPLETED);
	ck_assert_str_eq(print_value(&fork, fork.state.output), "[{\"kid\":1},{\"n\":1}]");
	ck_assert_ptr_null(json_get(json_get(fork.entries[0].data, "forkedFrom"), "kept"));
	close_fork(&fork);
	fixture_close(&f);
}
END_TEST

/* The document of a fork: what it is forked of, and its own tasks alone. */
START_TEST(shows_its_own_tasks)
{
	struct fixture f, fork;

	fixture_open(&f, "[" SET("a", "1") ",{\"d\":{\"do\":[" SET("b", "2") "," SET("c", "3") "]}}]");
	fixture_submit(&f, "{}");
	fork_run(&f, &fork, "c", FORK_KEEP, NULL);
	const struct json *run = view_run(&fork.arena, fork.entries, fork.count, f.definition, "test.example/log", VIEW_ALL), *tasks = json_get(run, "tasks");
	struct json *from = json_get(run, "forkedFrom");
	ck_assert_uint_eq(json_count(tasks), 2);
	ck_assert_str_eq(json_get_text(json_at(tasks, 0), "step"), "/do/1/d@1");
	ck_assert_str_eq(json_get_text(json_at(tasks, 0), "status"), "completed");
	ck_assert_str_eq(json_get_text(json_at(tasks, 1), "step"), "/do/1/d/do/1/c@1");
	ck_assert_str_eq(json_get_text(from, "run"), "r1");
	ck_assert_str_eq(json_get_text(from, "task"), "/do/1/d/do/1/c@1");
	ck_assert_str_eq(json_get_text(from, "reason"), "why not");
	ck_assert_str_eq(json_get_text(json_get(from, "overrides"), "from"), "x");
	close_fork(&fork);
	fixture_close(&f);
}
END_TEST

/* A fork of a fork: from what the first one did itself; what it took over is the other run's. */
START_TEST(forks_of_forks)
{
	struct fixture f, fork, second;

	fixture_open(&f, "[" SET("a", "1") "," SET("b", "\"${ .n }\"") ",{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	fork_run(&f, &fork, "b", FORK_KEEP, "{\"n\":9}");
	expect_refused(&fork, "a", "task a of run f1 began before that run was forked: fork run r1 from it");
	fork_run(&fork, &second, "c", FORK_KEEP, NULL);
	ck_assert_str_eq(went_on(&second), "task.started /do/2/c@1, attempt.started /do/2/c@1");
	ck_assert_str_eq(json_get_text(json_get(second.entries[0].data, "forkedFrom"), "run"), "f1");
	close_fork(&second);
	close_fork(&fork);
	fixture_close(&f);
}
END_TEST

/* What is none, did not begin, or more than once, is told with what there is. */
START_TEST(refuses_with_what_there_is)
{
	struct fixture f;

	fixture_open(&f, "[" SET("a", "1") ",{\"l\":{\"for\":{\"in\":\"[1,2]\"},\"do\":[" SET("x", "1") "]}},{\"c\":{" CALL "}}," SET("b", "1") ",{\"d\":{\"do\":[" SET("a", "1") "]}}]");
	fixture_submit(&f, "{}");
	expect_refused(&f, "a", "2 tasks have the name a; say which by its reference, such as /do/");
	expect_refused(&f, "nobody", "has no task nobody");
	expect_refused(&f, "/do/9/x", "has no task /do/9/x");
	expect_refused(&f, "b", "has not begun task b; a fork can begin with any of the 5 that reprise show r1 lists: /do/0/a@1, /do/1/l@1, /do/1/l/do/0/x#0@1, /do/1/l/do/0/x#1@1, /do/2/c@1");
	expect_refused(&f, "/do/0/a@2", "has not begun task /do/0/a@2");
	expect_refused(&f, "x", "has begun task x 2 times; say which (reprise show r1 lists them): /do/1/l/do/0/x#0@1, /do/1/l/do/0/x#1@1");
	expect_refused(&f, "x#1.1", "stands in 1 loops");
	fixture_close(&f);
}
END_TEST

/* The limits: of records, of bytes, of tasks that an error names, of children that are named. */
START_TEST(limits)
{
	enum { ITEMS = FORK_RECORDS_MAX + 1 };
	struct fixture f;
	struct fork_find found;
	struct forking forking = {0};
	struct bytes run_input;
	struct error error;
	struct state state;
	const struct fork_source source = {load, &f};
	struct arena arena;

	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":1},\"do\":[" SET("x", "1") "]}}]");
	fixture_submit(&f, "{\"l\":[1]}");
	ck_assert_int_eq(find(&f, "x", FORK_KEEP, &found, &error), 0);
	fold_until(&f, &found, &state);
	const struct task *loop = definition_find_task(f.definition, "/do/0/m");
	for (uint64_t i = 0; i < ITEMS; i++)
		ck_assert_ptr_nonnull(state_add_instance(&state, loop, true, (const uint64_t[]){i}, 1));
	ck_assert_int_eq(fork_carry(&state, &found, NULL, &source, &forking, &run_input, &error), ERR_TOO_LARGE);
	ck_assert_ptr_nonnull(strstr(error.message, "FORK_RECORDS_MAX"));
	state_close(&state);

	fold_until(&f, &found, &state);
	state.input->size = FORK_BYTES_MAX;
	ck_assert_int_eq(fork_carry(&state, &found, NULL, &source, &forking, &run_input, &error), ERR_TOO_LARGE);
	ck_assert_ptr_nonnull(strstr(error.message, "FORK_BYTES_MAX"));
	state_close(&state);
	fixture_close(&f);

	fixture_open(&f, "[{\"l\":{\"for\":{\"in\":\".l\"},\"do\":[" SET("x", "1") "]}}," SET("b", "1") ",{\"c\":{" CALL "}}]");
	arena_init(&arena);
	struct buffer input;
	buffer_init(&input, 1 << 16);
	for (size_t i = 0; i < FORK_SHOWN_MAX + 5; i++)
		buffer_printf(&input, "%s1", i ? "," : "{\"l\":[");
	buffer_add_text(&input, "]}");
	fixture_submit(&f, buffer_text(&input));
	buffer_close(&input);
	expect_refused(&f, "x", "has begun task x more than 8 times; say which (reprise show r1 lists them): /do/0/l/do/0/x#0@1, ");
	ck_assert_int_eq(find(&f, "x", FORK_KEEP, &found, &error), ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "x#7@1"));
	ck_assert_ptr_null(strstr(error.message, "x#8@1"));
	arena_close(&arena);
	fixture_close(&f);
}
END_TEST

/* A value that was erased in the meantime cannot be copied: the error says so. */
START_TEST(says_what_is_gone)
{
	struct fixture f;
	struct fork_find found;
	struct forking forking = {0};
	struct bytes run_input;
	struct error error;
	struct state state;
	const struct fork_source source = {load, &f};
	struct buffer input;

	fixture_open(&f, "[" SET("a", "\"${ .text }\"") ",{\"c\":{" CALL "}}]");
	buffer_init(&input, 1 << 16);
	buffer_add_text(&input, "{\"text\":\"");
	for (size_t i = 0; i < VALUE_INLINE_MAX; i++)
		buffer_add_char(&input, 'x');
	buffer_add_text(&input, "\"}");
	fixture_submit(&f, buffer_text(&input));
	buffer_close(&input);
	ck_assert_int_eq(find(&f, "c", FORK_KEEP, &found, &error), 0);
	fold_until(&f, &found, &state);
	f.entries[0].value_count = 0;
	ck_assert_int_eq(fork_carry(&state, &found, NULL, &source, &forking, &run_input, &error), ERR_GONE);
	ck_assert_ptr_nonnull(strstr(error.message, "a fork of run r1 from /do/1/c@1: it was erased"));
	state_close(&state);
	fixture_close(&f);
}
END_TEST

static void expect_patched(struct fixture *f, const char *from, const char *patches, const char *with)
{
	struct fork_find found;
	struct error error;

	ck_assert_int_eq(find(f, from, FORK_KEEP, &found, &error), 0);
	struct json *document = fork_patch_document(&f->arena, f->definition, &found, fixture_json(f, patches), &error);
	if (*with != '{') {
		ck_assert_ptr_null(document);
		ck_assert_msg(strstr(error.message, with) != NULL, "%s", error.message);
		return;
	}
	ck_assert_msg(document != NULL, "%s", error.message);
	ck_assert_str_eq((const char *)json_print_arena(json_get(json_pointer_get(document, "/do/0/c"), "with"), &f->arena).data, with);
	ck_assert(!json_equal(document, f->definition->document));
}

/* Members of `with` are merged as RFC 7396 says; only into calls whose arguments are still to be taken. */
START_TEST(sets_members_of_calls)
{
	struct fixture f;

	fixture_open(&f, "[{\"c\":{\"call\":\"inference\",\"with\":{\"runtime\":\"a\",\"prompt\":\"p\",\"sampling\":{\"seed\":1,\"topP\":0.5}}}},{\"d\":{\"do\":[" SET("s", "1") "]}}]");
	fixture_submit(&f, "{}");
	expect_patched(&f, "c", "{\"/do/0/c\":{\"runtime\":\"b\",\"sampling\":{\"seed\":2,\"topP\":null}}}", "{\"prompt\":\"p\",\"runtime\":\"b\",\"sampling\":{\"seed\":2}}");
	expect_patched(&f, "c", "{\"/do/1/d\":{\"x\":1}}", "is no call");
	expect_patched(&f, "c", "{\"/do/7/d\":{\"x\":1}}", "has no task /do/7/d");
	expect_patched(&f, "c", "{\"\":{\"x\":1}}", "has no task");
	expect_patched(&f, "c", "{\"/do/0/c\":5}", "an object of members of its `with`");
	fixture_close(&f);

	fixture_open(&f, "[{\"c\":{\"call\":\"extraction\",\"with\":{\"runtime\":\"a\",\"document\":\"x\"}}}]");
	fixture_submit(&f, "{}");
	expect_patched(&f, "/do/0/c", "{\"/do/0/c\":{\"runtime\":\"b\"}}", "{\"document\":\"x\",\"runtime\":\"b\"}");
	expect_patched(&f, "sections", "{\"/do/0/c/do/0/sections\":{\"runtime\":\"b\"}}", "has its arguments from /do/0/c, which has taken them already");
	expect_patched(&f, "sections", "{\"/do/0/c\":{\"runtime\":\"b\"}}", "has taken its arguments before sections began; fork from /do/0/c");
	fixture_close(&f);
}
END_TEST

static void expect_effect(struct fixture *f, const char *from, enum fork_children children, const char *reference, bool has_effect)
{
	struct fork_find found;
	struct error error;
	struct state state;
	struct json *patches = json_object(&f->arena);

	json_set(&f->arena, patches, reference, fixture_json(f, "{\"prompt\":\"q\"}"));
	ck_assert_msg(find(f, from, children, &found, &error) == 0, "%s", error.message);
	ck_assert_msg(fork_patch_document(&f->arena, f->definition, &found, patches, &error) != NULL, "%s", error.message);
	fold_until(f, &found, &state);
	fork_check_patches(&state, &found, patches, &error);
	ck_assert_msg((error.code == ERR_NONE) == has_effect, "%s from %s: %s", reference, from, error.message);
	if (!has_effect)
		ck_assert_msg(strstr(error.message, arena_printf(&f->arena, "task %s comes before %s, where the fork begins, and is not begun again", reference, found.step)) != NULL, "%s", error.message);
	state_close(&state);
}

/* What is set for a task that is over is refused, unless a loop, a `then` or a retry may begin it again. */
START_TEST(refuses_to_set_what_is_over)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{" CALL "}}," SET("b", "1") ",{\"c\":{" CALL "}},{\"d\":{\"do\":[{\"e\":{" CALL "}}," SET("g", "1") "]}}]");
	fixture_submit(&f, "{}");
	fixture_succeed(&f, "/do/0/a@1", 1, "{}");
	fixture_succeed(&f, "/do/2/c@1", 1, "{}");
	fixture_succeed(&f, "/do/3/d/do/0/e@1", 1, "{}");
	expect_effect(&f, "b", FORK_KEEP, "/do/0/a", false);
	expect_effect(&f, "a", FORK_KEEP, "/do/0/a", true);
	expect_effect(&f, "b", FORK_KEEP, "/do/2/c", true);
	expect_effect(&f, "b", FORK_KEEP, "/do/3/d/do/0/e", true);
	expect_effect(&f, "g", FORK_KEEP, "/do/2/c", false);
	expect_effect(&f, "g", FORK_KEEP, "/do/3/d/do/0/e", false);
	expect_effect(&f, "e", FORK_KEEP, "/do/3/d/do/0/e", true);
	fixture_close(&f);

	/* A `then`, and the case of a switch, that leads back; one that leads past. */
	fixture_open(&f, "[{\"z\":{" CALL "}},{\"a\":{" CALL "}}," SET("b", "1") ",{\"s\":{\"switch\":[{\"x\":{\"when\":\".again\",\"then\":\"a\"}},{\"y\":{\"then\":\"end\"}}]}}]");
	fixture_submit(&f, "{}");
	fixture_succeed(&f, "/do/0/z@1", 1, "{}");
	fixture_succeed(&f, "/do/1/a@1", 1, "{}");
	expect_effect(&f, "b", FORK_KEEP, "/do/1/a", true);
	expect_effect(&f, "b", FORK_KEEP, "/do/0/z", false);
	fixture_close(&f);
	fixture_open(&f, "[{\"a\":{\"set\":{\"n\":1},\"then\":\"c\"}},{\"b\":{" CALL ",\"then\":\"end\"}}," SET("c", "1") "]");
	fixture_submit(&f, "{}");
	expect_effect(&f, "a", FORK_KEEP, "/do/1/b", true);
	expect_effect(&f, "c", FORK_KEEP, "/do/1/b", false);
	fixture_close(&f);

	/* Further iterations, and none. */
	fixture_open(&f, "[{\"l\":{\"for\":{\"in\":\".l\"},\"do\":[{\"a\":{" CALL "}}," SET("b", "1") "]}}," SET("c", "1") "]");
	fixture_submit(&f, "{\"l\":[1,2]}");
	fixture_succeed(&f, "/do/0/l/do/0/a#0@1", 1, "{}");
	fixture_succeed(&f, "/do/0/l/do/0/a#1@1", 1, "{}");
	expect_effect(&f, "b#0", FORK_KEEP, "/do/0/l/do/0/a", true);
	expect_effect(&f, "b#1", FORK_KEEP, "/do/0/l/do/0/a", false);
	expect_effect(&f, "c", FORK_KEEP, "/do/0/l/do/0/a", false);
	fixture_close(&f);

	/* Branches: over, under way, and let go. */
	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[{\"a\":{" CALL "}},{\"w\":{" CALL "}},{\"k\":{\"run\":{\"workflow\":{\"namespace\":\"n\",\"name\":\"k\",\"version\":\"1.0.0\"}}}},"
			 "{\"z\":{\"do\":[{\"p\":{" CALL "}}," SET("q", "1") "]}}]}}}]");
	fixture_submit(&f, "{}");
	fixture_succeed(&f, "/do/0/f/fork/branches/0/a@1", 1, "{}");
	fixture_succeed(&f, "/do/0/f/fork/branches/3/z/do/0/p@1", 1, "{}");
	expect_effect(&f, "q", FORK_KEEP, "/do/0/f/fork/branches/0/a", false);
	expect_effect(&f, "q", FORK_KEEP, "/do/0/f/fork/branches/1/w", true);
	expect_effect(&f, "p", FORK_KEEP, "/do/0/f/fork/branches/0/a", true);
	expect_effect(&f, "q", FORK_KEEP, "/do/0/f/fork/branches/3/z/do/0/p", false);
	fixture_close(&f);

	/* A retry, and a handler. */
	fixture_open(&f, "[{\"t\":{\"try\":[{\"a\":{" CALL "}}," SET("b", "1") ",{\"c\":{" CALL "}}],\"catch\":{\"retry\":{\"limit\":{\"attempt\":{\"count\":2}}}}}}]");
	fixture_submit(&f, "{}");
	fixture_succeed(&f, "/do/0/t/try/0/a@1", 1, "{}");
	expect_effect(&f, "b", FORK_KEEP, "/do/0/t/try/0/a", true);
	fixture_close(&f);
	fixture_open(&f, "[{\"t\":{\"try\":[{\"a\":{" CALL "}}," SET("b", "1") ",{\"c\":{" CALL "}}],\"catch\":{\"do\":[{\"h\":{" CALL "}}," SET("i", "1") "]}}}]");
	fixture_submit(&f, "{}");
	fixture_succeed(&f, "/do/0/t/try/0/a@1", 1, "{}");
	fixture_fail(&f, "/do/0/t/try/2/c@1", 1, FAILURE_REFUSED, 1);
	expect_effect(&f, "b", FORK_KEEP, "/do/0/t/try/0/a", false);
	expect_effect(&f, "b", FORK_KEEP, "/do/0/t/catch/do/0/h", true);
	expect_effect(&f, "h", FORK_KEEP, "/do/0/t/try/2/c", false);
	expect_effect(&f, "h", FORK_KEEP, "/do/0/t/catch/do/0/h", true);
	fixture_close(&f);
}
END_TEST

/* Records that cannot be are refused: twice, of no task, in no phase, or where the run has gone on already. */
START_TEST(refuses_bad_records)
{
	static const struct {
		const char *data, *why;
	} cases[] = {
		{"{\"runId\":\"f1\",\"stepId\":\"/do/0/a@1\",\"phase\":\"completed\"}", "it is there already"},
		{"{\"runId\":\"f1\",\"stepId\":\"/do/7/a@1\",\"phase\":\"completed\"}", "no such task"},
		{"{\"runId\":\"f1\",\"stepId\":\"/do/1/c#1@1\",\"phase\":\"completed\"}", "no such task"},
		{"{\"runId\":\"f1\",\"stepId\":\"/do/1/c@1\",\"phase\":\"odd\"}", "no such phase"},
		{"{\"runId\":\"f1\",\"stepId\":\"/do/1/c@1\",\"phase\":\"completed\",\"cursor\":-1}", "cursor is no number"},
		{"{\"runId\":\"f1\",\"stepId\":\"/do/1/c@1\",\"phase\":\"completed\",\"met\":\"xyz\"}", "met is no mask"},
	};
	struct fixture f, fork;
	struct error error;
	struct state state;

	fixture_open(&f, "[" SET("a", "1") ",{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	fork_run(&f, &fork, "c", FORK_KEEP, NULL);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		state_init(&state, f.definition);
		for (size_t k = 0; fork.entries[k].kind == ENTRY_RUN_CREATED || fork.entries[k].kind == ENTRY_TASK_CARRIED; k++)
			ck_assert_int_eq(workflow_apply(&state, &fork.entries[k], &error), 0);
		struct entry bad = {.kind = ENTRY_TASK_CARRIED, .data = fixture_json(&f, cases[i].data), .seq = 999};
		ck_assert_int_eq(workflow_apply(&state, &bad, &error), ERR_CORRUPT);
		ck_assert_msg(strstr(error.message, cases[i].why) != NULL, "%s", error.message);
		state_close(&state);
	}
	struct entry late = {.kind = ENTRY_TASK_CARRIED, .data = fixture_json(&f, "{\"runId\":\"f1\",\"stepId\":\"/do/1/c@2\",\"phase\":\"completed\"}"), .seq = 999};
	ck_assert_int_eq(workflow_apply(&fork.state, &late, &error), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(error.message, "nothing is carried into a run after its beginning"));
	close_fork(&fork);
	fixture_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fork");
	SRunner *runner = srunner_create(suite);
	TCase *tests = tcase_create("fork");
	int failed;

	tcase_add_test(tests, goes_on_from_any_task);
	tcase_add_test(tests, keys_are_its_own);
	tcase_add_test(tests, what_was_under_way_begins_anew);
	tcase_add_test(tests, another_input);
	tcase_add_test(tests, children_are_kept_run_again_or_let_go);
	tcase_add_test(tests, shows_its_own_tasks);
	tcase_add_test(tests, forks_of_forks);
	tcase_add_test(tests, refuses_with_what_there_is);
	tcase_add_test(tests, limits);
	tcase_add_test(tests, says_what_is_gone);
	tcase_add_test(tests, sets_members_of_calls);
	tcase_add_test(tests, refuses_to_set_what_is_over);
	tcase_add_test(tests, refuses_bad_records);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
