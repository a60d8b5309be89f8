/* What is decided: entries and effects for each trigger. */
#include "tests/unit/workflow/fixture.h"

#include "workflow/deciding.h"
#include "workflow/retry.h"

#define CALL "\"call\":\"http\",\"with\":{\"method\":\"get\",\"endpoint\":\"http://x/\"}"
#define CALL_ITEM "\"call\":\"http\",\"with\":{\"method\":\"post\",\"endpoint\":\"http://x/\",\"body\":{\"m\":\"${ $item.m }\"}}"

/* Pure tasks need no further trigger: one decision from the submission to the end. */
START_TEST(pure_run_is_one_decision)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{\"set\":{\"x\":\"${ .n }\",\"id\":\"${ $workflow.id }\"}}},{\"b\":{\"do\":[{\"c\":{\"set\":{\"y\":\"${ .x }\"}}}]}}]");
	fixture_submit(&f, "{\"n\":3}");
	ck_assert_str_eq(fixture_said(&f), "run.created, task.completed /do/0/a@1, task.started /do/1/b@1, task.completed /do/1/b/do/0/c@1, "
					   "task.completed /do/1/b@1, run.completed");
	ck_assert_str_eq(fixture_effects(&f), "end");
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"y\":3}");
	fixture_close(&f);
}
END_TEST

/* "A completed" and "B started" are one decision; the key is that of the step. */
START_TEST(chain_of_calls)
{
	struct fixture f;
	struct step_id id = {.reference = "/do/0/a", .execution = 1};
	char key[DIGEST_HEX_LEN + 1];

	fixture_open(&f, "[{\"a\":{" CALL "}},{\"b\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	ck_assert_str_eq(fixture_said(&f), "run.created, task.started /do/0/a@1, attempt.started /do/0/a@1");
	ck_assert_str_eq(fixture_effects(&f), "start /do/0/a@1 1");
	step_idempotency_key("r1", &id, key);
	ck_assert_str_eq(f.decision.effects[0].key, key);
	fixture_succeed(&f, "/do/0/a@1", 1, "{\"v\":1}");
	ck_assert_str_eq(fixture_said(&f), "attempt.succeeded /do/0/a@1, task.completed /do/0/a@1, task.started /do/1/b@1, attempt.started /do/1/b@1");
	fixture_succeed(&f, "/do/1/b@1", 1, "{\"v\":2}");
	ck_assert_str_eq(fixture_said(&f), "attempt.succeeded /do/1/b@1, task.completed /do/1/b@1, run.completed");
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"v\":2}");
	fixture_close(&f);
}
END_TEST

/* Answers for attempts that are over, unknown steps, deadlines that are not due, and anything after the end: nothing is decided. */
START_TEST(stale_triggers_decide_nothing)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{" CALL "}},{\"b\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	fixture_succeed(&f, "/do/0/a@1", 2, "{}");
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_succeed(&f, "/do/0/a@2", 1, "{}");
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_succeed(&f, "/do/7/zz@1", 1, "{}");
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_succeed(&f, "/do/0/a@1", 1, "{}");
	fixture_succeed(&f, "/do/0/a@1", 1, "{}"); /* twice */
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_simple(&f, TRIGGER_CANCEL);
	ck_assert_int_eq(f.state.status, RUN_CANCELLED);
	fixture_succeed(&f, "/do/1/b@1", 1, "{}");
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_simple(&f, TRIGGER_CANCEL);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	fixture_close(&f);
}
END_TEST

/* A failure that may pass waits as long as retry.h says, then the same step goes out again under the same key. */
START_TEST(retries)
{
	struct fixture f;
	char key[DIGEST_HEX_LEN + 1];

	fixture_open(&f, "[{\"a\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	memcpy(key, f.decision.effects[0].key, sizeof key);
	fixture_fail(&f, "/do/0/a@1", 1, FAILURE_UNREACHABLE, 2);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/0/a@1, task.retrying /do/0/a@1");
	ck_assert_uint_eq(f.decision.effect_count, 0);
	int64_t due = f.wall_ms + retry_delay_ms("r1", "/do/0/a@1", 1, 100, 1000, 0);
	ck_assert_int_eq(state_next_deadline_ms(&f.state), due);
	ck_assert(state_is_idle(&f.state));
	f.wall_ms = due - 1;
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	f.wall_ms = due;
	fixture_simple(&f, TRIGGER_DEADLINE);
	ck_assert_str_eq(fixture_effects(&f), "start /do/0/a@1 2");
	ck_assert_str_eq(f.decision.effects[0].key, key);
	fixture_fail(&f, "/do/0/a@1", 2, FAILURE_UNREACHABLE, 2); /* two attempts in all */
	ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/0/a@1, task.faulted /do/0/a@1, run.faulted");
	const struct json *error = fixture_json(&f, fixture_print(&f, f.state.error));
	ck_assert_str_eq(json_get_text(error, "class"), "unreachable");
	ck_assert_str_eq(json_get_text(error, "instance"), "/do/0/a");
	ck_assert_str_eq(json_get_text(error, "detail"), "it failed");
	fixture_close(&f);
}
END_TEST

/* What no further attempt can cure faults at once, whatever the policy says. */
START_TEST(lasting_failures_are_not_retried)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	fixture_fail(&f, "/do/0/a@1", 1, FAILURE_REFUSED, 10);
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	fixture_close(&f);
}
END_TEST

/* After a restart what was in flight is done again under the same key, and it costs no retry (C38). */
START_TEST(restart_redoes_what_was_in_flight)
{
	struct fixture f;
	char key[DIGEST_HEX_LEN + 1];

	fixture_open(&f, "[{\"a\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	memcpy(key, f.decision.effects[0].key, sizeof key);
	for (unsigned i = 2; i < 8; i++) {
		fixture_simple(&f, TRIGGER_RESTARTED);
		ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/0/a@1, attempt.started /do/0/a@1");
		ck_assert_uint_eq(f.decision.effects[0].attempt, i);
		ck_assert_str_eq(f.decision.effects[0].key, key);
	}
	fixture_fail(&f, "/do/0/a@1", 7, FAILURE_STALLED, 2);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/0/a@1, task.retrying /do/0/a@1"); /* the first that counts */
	fixture_simple(&f, TRIGGER_RESTARTED);
	ck_assert_uint_eq(f.decision.entry_count, 0); /* it waits, nothing was in flight */
	fixture_close(&f);
}
END_TEST

/* Map mode: as many at once as allowed, each from the task's input, the output in the order of the items. */
START_TEST(map_loop)
{
	struct fixture f;

	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"c\":{" CALL "}}]}}]");
	fixture_submit(&f, "{\"l\":[7,8,9]}");
	ck_assert_str_eq(fixture_effects(&f), "start /do/0/m/do/0/c#0@1 1, start /do/0/m/do/0/c#1@1 1");
	fixture_succeed(&f, "/do/0/m/do/0/c#1@1", 1, "\"one\"");
	ck_assert_str_eq(fixture_effects(&f), "start /do/0/m/do/0/c#2@1 1");
	fixture_succeed(&f, "/do/0/m/do/0/c#2@1", 1, "\"two\"");
	ck_assert_uint_eq(f.decision.effect_count, 0);
	fixture_succeed(&f, "/do/0/m/do/0/c#0@1", 1, "\"zero\"");
	ck_assert_str_eq(fixture_print(&f, f.state.output), "[\"zero\",\"one\",\"two\"]");
	fixture_close(&f);
}
END_TEST

/* Chained mode: one after the other, each with the output of the one before; `while` ends it. */
START_TEST(chained_loop)
{
	struct fixture f;

	fixture_open(&f, "[{\"m\":{\"for\":{\"each\":\"x\",\"at\":\"i\",\"in\":\".l\"},\"while\":\"$i < 3\",\"do\":[{\"s\":{\"set\":"
			 "{\"before\":\"${ .now }\",\"now\":\"${ $x }\",\"l\":\"${ .l }\"}}}]}}]");
	fixture_submit(&f, "{\"l\":[5,6,7,8]}");
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"before\":6,\"l\":[5,6,7,8],\"now\":7}");
	fixture_close(&f);
}
END_TEST

/* No items: a chained loop gives its input, a map an empty array. */
START_TEST(loops_without_items)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{\"for\":{\"in\":\".l\"},\"do\":[{\"s\":{\"set\":{\"x\":1}}}]}},{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":"
			 "{\"concurrency\":3},\"do\":[{\"s\":{\"set\":{\"x\":1}}}]}}]");
	fixture_submit(&f, "{\"l\":[]}");
	struct digest empty = digest_of(BYTES_OF("[]"));
	ck_assert(digest_equal(&f.state.output->digest, &empty)); /* known by its digest: it was an item list before */
	fixture_close(&f);
}
END_TEST

/* No tasks: each iteration gives its input; it ends. */
START_TEST(loops_without_tasks)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{\"for\":{\"in\":\".l\"},\"while\":\"true\",\"do\":[]}},{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":3},\"do\":[]}}]");
	fixture_submit(&f, "{\"l\":[1,2]}");
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	ck_assert_str_eq(fixture_print(&f, f.state.output), "[{\"l\":[1,2]},{\"l\":[1,2]}]");
	fixture_close(&f);
}
END_TEST

/* A fault in a map cancels the other iterations; what the same decision meant to start does not leave at all. */
START_TEST(fault_calls_off_the_rest)
{
	struct fixture f;

	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"c\":{" CALL_ITEM "}}]}}]");
	fixture_submit(&f, "{\"l\":[{\"m\":1},{\"m\":2},{\"m\":3},5]}");
	ck_assert_str_eq(fixture_effects(&f), "start /do/0/m/do/0/c#0@1 1, start /do/0/m/do/0/c#1@1 1");
	fixture_succeed(&f, "/do/0/m/do/0/c#0@1", 1, "1");
	fixture_succeed(&f, "/do/0/m/do/0/c#1@1", 1, "1"); /* the last item is a number and has no member m */
	ck_assert_str_eq(fixture_said(&f), "attempt.succeeded /do/0/m/do/0/c#1@1, task.completed /do/0/m/do/0/c#1@1, task.faulted /do/0/m/do/0/c#3@1, "
					   "task.cancelled /do/0/m/do/0/c#2@1, task.faulted /do/0/m@1, run.faulted");
	ck_assert_str_eq(fixture_effects(&f), "cancel /do/0/m/do/0/c#2@1 1, end");
	fixture_close(&f);

	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"c\":{" CALL_ITEM "}}]}}]");
	fixture_submit(&f, "{\"l\":[{\"m\":1},5]}");
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_str_eq(fixture_effects(&f), "end");
	fixture_close(&f);
}
END_TEST

/* A cancel ends all that is under way, innermost first, with its reason; a kill says so. */
START_TEST(cancel_and_kill)
{
	struct fixture f;
	struct trigger trigger = {.kind = TRIGGER_CANCEL, .reason = "enough", .kill = true};

	fixture_open(&f, "[{\"d\":{\"do\":[{\"c\":{" CALL "}}]}}]");
	fixture_submit(&f, "{}");
	fixture_trigger(&f, &trigger);
	ck_assert_str_eq(fixture_said(&f), "task.cancelled /do/0/d/do/0/c@1, task.cancelled /do/0/d@1, run.killed");
	ck_assert_str_eq(fixture_effects(&f), "cancel /do/0/d/do/0/c@1 1, end");
	ck_assert(bytes_equal_text(f.decision.entries[2].values[0].bytes, "\"enough\""));
	ck_assert(f.state.killed);
	fixture_close(&f);
}
END_TEST

/* `inside` within so many levels of arrays. */
static const char *nest(struct fixture *f, int levels, const char *inside)
{
	struct buffer text;

	buffer_init(&text, 1 << 20);
	for (int i = 0; i < levels; i++)
		buffer_add_char(&text, '[');
	buffer_add_text(&text, inside);
	for (int i = 0; i < levels; i++)
		buffer_add_char(&text, ']');
	const char *copy = arena_text(&f->arena, buffer_text(&text));
	buffer_close(&text);
	return copy;
}

/* A value of 128 levels is kept and read back; what a map or an answer puts one level around it is a fault, as nothing could read it. */
START_TEST(depth_of_values_is_limited)
{
	static const char map[] = "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":1},\"do\":[{\"c\":{" CALL "}}]}},{\"after\":{" CALL "}}]";

	for (int extra = 0; extra < 2; extra++) {
		struct fixture f;
		fixture_open(&f, map);
		fixture_submit(&f, "{\"l\":[1]}");
		fixture_succeed(&f, "/do/0/m/do/0/c#0@1", 1, nest(&f, JSON_DEPTH_MAX - 1 + extra, "1"));
		if (extra) {
			const struct json *error = fixture_json(&f, fixture_print(&f, f.state.error));
			ck_assert_str_eq(json_get_text(error, "detail"), "the value nests deeper than 128 levels, the most allowed (JSON_DEPTH_MAX)");
			ck_assert_str_eq(json_get_text(error, "instance"), "/do/0/m");
		} else {
			ck_assert_str_eq(fixture_effects(&f), "start /do/1/after@1 1");
			fixture_json(&f, fixture_print(&f, state_find_step(&f.state, "/do/1/after@1", &f.arena, NULL)->input));
		}
		fixture_close(&f);
	}

	struct fixture f;
	fixture_open(&f, "[{\"a\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	struct json *output = json_array(&f.arena);
	json_add(&f.arena, output, fixture_json(&f, nest(&f, JSON_DEPTH_MAX, "1")));
	struct outcome outcome = {.ok = true, .output = output, .retry_attempts = 3};
	fixture_done(&f, "/do/0/a@1", 1, &outcome);
	ck_assert_str_eq(fixture_said(&f), "attempt.failed /do/0/a@1, task.faulted /do/0/a@1, run.faulted");
	ck_assert_str_eq(json_get_text(fixture_json(&f, fixture_print(&f, f.state.error)), "class"), "schema-invalid");
	fixture_close(&f);
}
END_TEST

/* Sixteen loops inside one another, the most there may be: each path fits. */
START_TEST(loops_as_deep_as_they_may_be)
{
	struct fixture f;
	struct buffer text;

	memset(&f, 0, sizeof f);
	buffer_init(&text, 1 << 20);
	for (int i = 0; i < DEFINITION_LOOPS_MAX; i++)
		buffer_printf(&text, "[{\"l%d\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":1},\"do\":", i);
	buffer_add_text(&text, "[{\"c\":{" CALL "}}]");
	for (int i = 0; i < DEFINITION_LOOPS_MAX; i++)
		buffer_add_text(&text, "}}]");
	fixture_open(&f, buffer_text(&text));
	fixture_submit(&f, "{\"l\":[1]}");
	ck_assert_uint_eq(f.decision.effect_count, 1);
	const char *step = arena_text(&f.arena, f.decision.effects[0].step_id);
	ck_assert_msg(strstr(step, "#0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0@1") != NULL, "%s", step);
	fixture_succeed(&f, step, 1, "7");
	ck_assert_str_eq(fixture_print(&f, f.state.output), nest(&f, DEFINITION_LOOPS_MAX, "7"));
	fixture_close(&f);
	buffer_close(&text);
}
END_TEST

/* However loops are nested, what is under way at once has a limit, so that the one decision that ends it all fits into one append. */
START_TEST(what_is_under_way_is_limited)
{
	enum { ITEMS = 40 };
	struct fixture f;
	struct buffer input;
	size_t started = 0;

	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":32},\"do\":[{\"i\":{\"for\":{\"in\":\".l\"},\"metadata\":"
			 "{\"concurrency\":64},\"do\":[{\"c\":{" CALL "}}]}}]}}]");
	buffer_init(&input, 1 << 20);
	buffer_add_text(&input, "{\"l\":[0");
	for (int i = 1; i < ITEMS; i++)
		buffer_printf(&input, ",%d", i);
	buffer_add_text(&input, "]}");
	fixture_submit(&f, buffer_text(&input));
	for (;;) {
		bool goes_on = false;
		for (size_t i = 0; i < f.decision.effect_count; i++) {
			started += f.decision.effects[i].kind == EFFECT_START_ACTIVITY;
			goes_on |= f.decision.effects[i].kind == EFFECT_CONTINUE;
		}
		if (!goes_on)
			break;
		fixture_simple(&f, TRIGGER_CONTINUE);
	}
	ck_assert_uint_eq(started, FOR_CONCURRENCY_MAX);
	fixture_simple(&f, TRIGGER_CANCEL);
	ck_assert_uint_eq(f.decision.entry_count, FOR_CONCURRENCY_MAX + 32 + 1 + 1); /* calls, inner loops, the outer one, the run */
	fixture_close(&f);
	buffer_close(&input);
}
END_TEST

/* Past its soft limit a decision stops and goes on after its commit; nothing is lost or done twice. */
START_TEST(long_decisions_continue)
{
	struct fixture f;
	struct buffer input;
	size_t decisions = 1;

	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":4},\"do\":[{\"s\":{\"set\":{\"x\":\"${ $item }\"}}}]}}]");
	buffer_init(&input, 1 << 20);
	buffer_add_text(&input, "{\"l\":[0");
	for (int i = 1; i < 1000; i++)
		buffer_printf(&input, ",%d", i);
	buffer_add_text(&input, "]}");
	fixture_submit(&f, buffer_text(&input));
	while (!run_status_ended(f.state.status)) {
		ck_assert_str_eq(fixture_effects(&f), "continue");
		ck_assert_uint_le(f.decision.entry_count, DECISION_ENTRIES_MAX + 8);
		fixture_simple(&f, TRIGGER_CONTINUE);
		decisions++;
		ck_assert_uint_lt(decisions, 100);
	}
	ck_assert_uint_ge(decisions, 1000 / DECISION_ENTRIES_MAX);
	ck_assert_uint_eq(f.count, 1 + 1 + 1000 + 1 + 1);
	buffer_close(&input);
	fixture_close(&f);
}
END_TEST

/* Values count as entries do: a loop that makes large ones commits often, so that a decision holds few of them. */
START_TEST(large_values_end_a_decision)
{
	struct fixture f;
	struct buffer tasks;
	size_t decisions = 1;

	buffer_init(&tasks, 1 << 20);
	buffer_add_text(&tasks, "[{\"m\":{\"for\":{\"in\":\".l\"},\"do\":[{\"s\":{\"set\":{\"n\":\"${ $item }\",\"x\":\"");
	for (int i = 0; i < 400000; i++)
		buffer_add_char(&tasks, 'x');
	buffer_add_text(&tasks, "\"}}}]}}]");
	fixture_open(&f, buffer_text(&tasks));
	fixture_submit(&f, "{\"l\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25]}");
	while (!run_status_ended(f.state.status)) {
		size_t bytes = 0;
		for (size_t i = 0; i < f.decision.entry_count; i++)
			for (size_t v = 0; v < f.decision.entries[i].value_count; v++)
				bytes += f.decision.entries[i].values[v].size;
		ck_assert_uint_le(bytes, DECISION_BYTES_MAX + 500000);
		ck_assert_str_eq(fixture_effects(&f), "continue");
		fixture_simple(&f, TRIGGER_CONTINUE);
		ck_assert_uint_lt(decisions++, 10);
	}
	ck_assert_uint_eq(decisions, 3); /* of ten and a half megabytes */
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	buffer_close(&tasks);
	fixture_close(&f);
}
END_TEST

/* What a map's iterations gave is together larger than a value may be: their sizes say so, none of them is loaded for it. */
START_TEST(outputs_too_large_together)
{
	struct fixture f;
	struct buffer tasks;

	buffer_init(&tasks, 1 << 20);
	buffer_add_text(&tasks, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"s\":{\"set\":{\"n\":\"${ $item }\",\"x\":\"");
	for (int i = 0; i < 400000; i++)
		buffer_add_char(&tasks, 'x');
	buffer_add_text(&tasks, "\"}}}]}}]");
	fixture_open(&f, buffer_text(&tasks));
	buffer_clear(&tasks);
	buffer_add_text(&tasks, "{\"l\":[0");
	for (int i = 1; i < 50; i++)
		buffer_printf(&tasks, ",%d", i);
	buffer_add_text(&tasks, "]}");
	fixture_submit(&f, buffer_text(&tasks));
	for (int i = 0; !run_status_ended(f.state.status); i++) {
		ck_assert_int_lt(i, 10);
		fixture_simple(&f, TRIGGER_CONTINUE);
		ck_assert(!f.undecided);
	}
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "DECISION_VALUE_MAX"));
	buffer_close(&tasks);
	fixture_close(&f);
}
END_TEST

/* A value that is not in memory is asked for, and nothing else is decided; with it at hand the same trigger goes through. */
START_TEST(large_values_are_loaded)
{
	struct fixture f;
	char large[VALUE_INLINE_MAX + 100];

	memset(large, 'x', sizeof large - 1);
	large[sizeof large - 1] = 0;
	fixture_open(&f, "[{\"a\":{" CALL "}},{\"b\":{\"set\":{\"n\":\"${ $workflow.input.n }\"}}}]");
	fixture_submit(&f, arena_printf(&f.arena, "{\"n\":4,\"pad\":\"%s\"}", large));
	struct digest digest = f.state.input->digest;
	ck_assert(f.state.input->bytes.data == NULL);
	fixture_succeed(&f, "/do/0/a@1", 1, "{}");
	ck_assert(f.undecided);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	ck_assert_uint_eq(f.decision.effect_count, 0);
	ck_assert_uint_eq(f.decision.need_count, 1);
	ck_assert(digest_equal(&f.decision.needs[0].digest, &digest));
	ck_assert_uint_eq(f.decision.needs[0].content_id, CONTENT_ID(10, 0));
	f.values[f.value_count++] = fixture_json(&f, arena_printf(&f.arena, "{\"n\":4,\"pad\":\"%s\"}", large));
	fixture_succeed(&f, "/do/0/a@1", 1, "{}");
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"n\":4}");
	fixture_close(&f);
}
END_TEST

/* An expression that fails faults its task and all around it, with the reason and the place. */
START_TEST(expressions_that_fail)
{
	struct fixture f;

	fixture_open(&f, "[{\"d\":{\"do\":[{\"s\":{\"set\":{\"x\":\"${ .n.m }\"}}}]}}]");
	fixture_submit(&f, "{\"n\":1}");
	ck_assert_str_eq(fixture_said(&f), "run.created, task.started /do/0/d@1, task.faulted /do/0/d/do/0/s@1, task.faulted /do/0/d@1, run.faulted");
	const struct json *error = fixture_json(&f, fixture_print(&f, f.state.error));
	ck_assert_str_eq(json_get_text(error, "instance"), "/do/0/d/do/0/s");
	ck_assert_str_eq(json_get_text(error, "type"), "https://serverlessworkflow.io/spec/1.0.0/errors/expression");
	fixture_close(&f);
}
END_TEST

/* A few tasks can make much of little: past DECISION_VALUE_MAX a value is a fault with the limit's name, not the end of the process. */
START_TEST(values_have_a_limit)
{
	struct fixture f;
	struct buffer tasks;
	size_t len = 1 << 20;
	char *input = memory_alloc(len + 3);

	buffer_init(&tasks, 1 << 16);
	for (int i = 0; i < 8; i++) /* 1 MiB, doubled each time: the fourth makes 16 MiB and a little more */
		buffer_printf(&tasks, "%c{\"s%d\":{\"set\":{\"a\":\"${ . }\",\"b\":\"${ . }\"}}}", i ? ',' : '[', i);
	buffer_add_char(&tasks, ']');
	memset(input, 'x', len + 2);
	input[0] = input[len + 1] = '"';
	input[len + 2] = 0;
	fixture_open(&f, buffer_text(&tasks));
	fixture_submit(&f, input);
	for (int i = 0; i < 4 && strcmp(fixture_effects(&f), "continue") == 0; i++) { /* past DECISION_BYTES_MAX */
		for (size_t k = 0; k < f.count; k++)
			if (f.entries[k].value_count > 0)
				f.values[k] = json_parse(&f.arena, f.entries[k].values[0].bytes, JSON_STORED, NULL, NULL);
		f.value_count = f.count;
		fixture_simple(&f, TRIGGER_CONTINUE);
	}
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	const struct json *error = fixture_json(&f, fixture_print(&f, f.state.error));
	ck_assert_ptr_nonnull(strstr(json_get_text(error, "detail"), "DECISION_VALUE_MAX"));
	ck_assert_str_eq(json_get_text(error, "instance"), "/do/3/s3");
	free(input);
	buffer_close(&tasks);
	fixture_close(&f);
}
END_TEST

/* A map of many large outputs needs each of them once, however many there are, and an equal one no second time. */
START_TEST(many_values_are_needed)
{
	enum { ITEMS = 300 };
	struct fixture f;
	struct buffer input;

	fixture_open(&f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":1024},\"do\":[{\"c\":{" CALL "}}]}}]");
	buffer_init(&input, 1 << 20);
	buffer_add_text(&input, "{\"l\":[0");
	for (int i = 1; i < ITEMS; i++)
		buffer_printf(&input, ",%d", i);
	buffer_add_text(&input, "]}");
	fixture_submit(&f, buffer_text(&input));
	while (f.decision.effects[f.decision.effect_count - 1].kind == EFFECT_CONTINUE)
		fixture_simple(&f, TRIGGER_CONTINUE);
	for (int i = 0; i < ITEMS; i++) /* the last two are equal */
		fixture_succeed(&f, arena_printf(&f.arena, "/do/0/m/do/0/c#%d@1", i), 1, arena_printf(&f.arena, "\"%0*d\"", VALUE_INLINE_MAX + 1, i < ITEMS - 1 ? i : i - 1));
	ck_assert(f.undecided);
	ck_assert_uint_eq(f.decision.need_count, ITEMS - 1);
	for (size_t i = 0; i < f.decision.need_count; i++)
		for (size_t k = 0; k < i; k++)
			ck_assert(!digest_equal(&f.decision.needs[i].digest, &f.decision.needs[k].digest));
	fixture_close(&f);
	buffer_close(&input);
}
END_TEST

/* Arguments that ask for their input many times are measured before anything is copied, with a filled endpoint too. */
START_TEST(arguments_have_a_limit)
{
	struct fixture f;
	struct buffer tasks;
	size_t len = 1 << 20;
	char *input = memory_alloc(len + 10);

	buffer_init(&tasks, 1 << 16);
	buffer_add_text(&tasks, "[{\"a\":{\"call\":\"http\",\"with\":{\"method\":\"post\",\"endpoint\":\"http://x/{id}\",\"body\":[0");
	for (int i = 0; i < 100; i++)
		buffer_add_text(&tasks, ",\"${ .b }\"");
	buffer_add_text(&tasks, "]}}}]");
	memcpy(input, "{\"b\":\"", 6);
	memset(input + 6, 'x', len);
	memcpy(input + 6 + len, "\"}", 3);
	fixture_open(&f, buffer_text(&tasks));
	fixture_submit(&f, input);
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_ptr_nonnull(strstr(json_get_text(fixture_json(&f, fixture_print(&f, f.state.error)), "detail"), "DECISION_VALUE_MAX"));
	ck_assert_uint_lt(f.decision.arena.used, 16 << 20);
	free(input);
	buffer_close(&tasks);
	fixture_close(&f);
}
END_TEST

/* An extraction: sections, one attempt each, merge. A section that could not be asked is counted apart from an empty one (C85). */
START_TEST(extraction)
{
	struct fixture f;
	struct outcome failed = {.failure = FAILURE_TRUNCATED, .detail = "cut"};

	fixture_open(&f, "[{\"e\":{\"call\":\"extraction\",\"with\":{\"runtime\":\"r\",\"document\":\"${ .d }\"}}}]");
	fixture_submit(&f, "{\"d\":\"text\"}");
	ck_assert_str_eq(fixture_effects(&f), "start /do/0/e/do/0/sections@1 1");
	fixture_succeed(&f, "/do/0/e/do/0/sections@1", 1, "{\"plan\":{},\"sections\":[{\"index\":0},{\"index\":1}]}");
	ck_assert_str_eq(fixture_effects(&f), "start /do/0/e/do/1/extract/do/0/section#0@1 1, start /do/0/e/do/1/extract/do/0/section#1@1 1");
	struct outcome empty = {.ok = true, .output = fixture_json(&f, "{\"index\":0,\"outcome\":\"empty\",\"status\":\"completed\"}"), .facts = json_array(&f.arena)};
	fixture_done(&f, "/do/0/e/do/1/extract/do/0/section#0@1", 1, &empty);
	failed.output = fixture_json(&f, "{\"index\":1,\"outcome\":\"truncated\",\"status\":\"failed\"}");
	fixture_done(&f, "/do/0/e/do/1/extract/do/0/section#1@1", 1, &failed);
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	const struct json *output = fixture_json(&f, fixture_print(&f, f.state.output)), *summary = json_get(output, "summary");
	ck_assert_int_eq((int)json_get_number(summary, "sections", 0), 2);
	ck_assert_int_eq((int)json_get_number(summary, "answered", 0), 1);
	ck_assert_int_eq((int)json_get_number(summary, "empty", 0), 1);
	ck_assert_int_eq((int)json_get_number(summary, "failed", 0), 1);
	fixture_close(&f);
}
END_TEST

/* What stands in a request for jq behind the letter: names, expression, arguments, a NUL between them. */
static const char *request_part(const struct value_need *need, unsigned part)
{
	const char *at = (const char *)need->evaluation->request.data + 1;

	while (part-- > 0)
		at += strlen(at) + 1;
	return at;
}

/* An expression that needs jq is asked for with the values it speaks of; all of a template at once; the entry carries the results. */
START_TEST(expressions_for_jq_are_needed)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{\"set\":{\"x\":\"${ .n + 1 }\",\"y\":[\"${ $workflow.id + $none }\"],\"z\":\"${ .n }\"}}}]");
	fixture_submit(&f, "{\"n\":4}");
	ck_assert(f.undecided);
	ck_assert_uint_eq(f.decision.entry_count, 0);
	ck_assert_uint_eq(f.decision.need_count, 2);
	ck_assert_str_eq(f.decision.needs[0].evaluation->expression, ".n + 1");
	ck_assert_str_eq(request_part(&f.decision.needs[0], 0), "");
	ck_assert_str_eq(request_part(&f.decision.needs[0], 1), ".n + 1");
	ck_assert_str_eq(request_part(&f.decision.needs[0], 2), "[{\"n\":4}]");
	ck_assert_str_eq(request_part(&f.decision.needs[1], 0), "workflow");
	ck_assert_ptr_nonnull(strstr(request_part(&f.decision.needs[1], 2), "[{\"n\":4},{\"definition\":{\"do\":"));
	fixture_answer(&f, 0, "[5]");
	fixture_answer(&f, 1, "[\"r1!\"]");
	fixture_submit(&f, "{\"n\":4}");
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"x\":5,\"y\":[\"r1!\"],\"z\":4}");
	ck_assert_int_eq(f.entries[1].kind, ENTRY_TASK_COMPLETED);
	struct digest results, expected = digest_of(BYTES_OF("[[5],[\"r1!\"]]"));
	ck_assert(json_get_digest(f.entries[1].data, "results", &results));
	ck_assert(digest_equal(&results, &expected));
	fixture_close(&f);
}
END_TEST

/* One result alone is carried as itself, so that what is its task's output as well is stored once. */
START_TEST(a_single_result_is_carried_once)
{
	struct fixture f;
	struct digest result, output;

	fixture_open(&f, "[{\"a\":{\"set\":\"${ {n: .n} }\"}}]");
	fixture_submit(&f, "{\"n\":4}");
	fixture_answer(&f, 0, "[{\"n\":4,\"new\":1}]");
	fixture_submit(&f, "{\"n\":4}");
	ck_assert(json_get_digest(f.entries[1].data, "result", &result));
	ck_assert(json_get_digest(f.entries[1].data, "output", &output));
	ck_assert(digest_equal(&result, &output));
	ck_assert_uint_eq(f.entries[1].value_count, 1);
	fixture_close(&f);
}
END_TEST

/* An answer that says why there is no value faults the run, with that reason; so does too much of arguments. */
START_TEST(failed_evaluations_fault)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{\"set\":{\"x\":\"${ .n + 1 }\"}}}]");
	fixture_submit(&f, "{\"n\":\"text\"}");
	fixture_answer(&f, 0, "\"string and number cannot be added\"");
	fixture_submit(&f, "{\"n\":\"text\"}");
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "expression '.n + 1': string and number cannot be added"));
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "errors/expression"));
	fixture_close(&f);

	char *large = memory_alloc(EVALUATION_REQUEST_MAX + 1);
	memset(large, 'x', EVALUATION_REQUEST_MAX);
	large[EVALUATION_REQUEST_MAX] = 0;
	fixture_open(&f, "[{\"a\":{\"set\":{\"x\":\"${ .n | length }\"}}}]");
	f.values[f.value_count++] = fixture_json(&f, arena_printf(&f.arena, "{\"n\":\"%s\"}", large));
	fixture_submit(&f, arena_printf(&f.arena, "{\"n\":\"%s\"}", large));
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "EVALUATION_REQUEST_MAX"));
	free(large);
	fixture_close(&f);
}
END_TEST

/* A decision asks for DECISION_NEEDS_MAX values at once, each once; what it needs besides these it asks for when it has them. */
START_TEST(needs_are_limited)
{
	struct decision decision = {0};
	struct deciding d = {.decision = &decision, .arena = &decision.arena};
	struct decide_context context = {0};

	arena_init(&decision.arena);
	d.context = &context;
	for (int round = 0; round < 2; round++)
		for (uint64_t i = 0; i < DECISION_NEEDS_MAX + 1000; i++) {
			struct value value = {.digest = digest_of((struct bytes){(const uint8_t *)&i, sizeof(i)}), .size = VALUE_INLINE_MAX + i};

			ck_assert_ptr_null(decide_value_json(&d, &value));
			if (round == 0)
				ck_assert_uint_eq(decision.need_count, i < DECISION_NEEDS_MAX ? i + 1 : DECISION_NEEDS_MAX);
		}
	ck_assert_uint_eq(decision.need_count, DECISION_NEEDS_MAX);
	for (size_t i = 0; i < decision.need_count; i++)
		ck_assert_uint_eq(decision.needs[i].size, VALUE_INLINE_MAX + i);
	arena_close(&decision.arena);
}
END_TEST

/* No more than DECISION_EVALUATIONS_MAX results are asked for at once; the rest comes in the next round. */
START_TEST(evaluations_at_once_are_limited)
{
	struct fixture f;
	struct buffer tasks;

	buffer_init(&tasks, 1 << 20);
	buffer_add_text(&tasks, "[{\"a\":{\"set\":{\"x\":[");
	for (int i = 0; i < DECISION_EVALUATIONS_MAX + 5; i++)
		buffer_printf(&tasks, "%s\"${ .n + %d }\"", i > 0 ? "," : "", i);
	buffer_add_text(&tasks, "]}}}]");
	fixture_open(&f, buffer_text(&tasks));
	buffer_close(&tasks);
	fixture_submit(&f, "{\"n\":4}");
	ck_assert_uint_eq(f.decision.need_count, DECISION_EVALUATIONS_MAX);
	for (int i = 0; i < DECISION_EVALUATIONS_MAX; i++)
		fixture_answer(&f, (size_t)i, "[1]");
	fixture_submit(&f, "{\"n\":4}");
	ck_assert_uint_eq(f.decision.need_count, 5);
	for (int i = 0; i < 5; i++)
		fixture_answer(&f, (size_t)i, "[2]");
	fixture_submit(&f, "{\"n\":4}");
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	fixture_close(&f);
}
END_TEST

/* Results of one task are bounded together. */
START_TEST(results_of_one_task_are_limited)
{
	struct fixture f;
	struct buffer tasks;
	char *kept = memory_alloc(EVALUATION_RESULT_MAX);
	enum { COUNT = DECISION_RESULTS_BYTES_MAX / (EVALUATION_RESULT_MAX - 1) + 1 };

	memset(kept, 'x', EVALUATION_RESULT_MAX);
	memcpy(kept, "[\"", 2);
	memcpy(kept + EVALUATION_RESULT_MAX - 3, "\"]", 3);
	buffer_init(&tasks, 1 << 20);
	buffer_add_text(&tasks, "[{\"a\":{\"set\":{\"x\":[");
	for (int i = 0; i < COUNT; i++)
		buffer_printf(&tasks, "%s\"${ .n + %d }\"", i > 0 ? "," : "", i);
	buffer_add_text(&tasks, "]}}}]");
	fixture_open(&f, buffer_text(&tasks));
	buffer_close(&tasks);
	fixture_submit(&f, "{\"n\":4}");
	ck_assert_uint_eq(f.decision.need_count, COUNT);
	for (int i = 0; i < COUNT; i++)
		fixture_answer(&f, (size_t)i, kept);
	free(kept);
	fixture_submit(&f, "{\"n\":4}");
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "DECISION_RESULTS_BYTES_MAX"));
	fixture_close(&f);
}
END_TEST

/* Told to settle, a decision that needs one more result gives what it has, and goes on after that commit. */
START_TEST(settling_commits_what_there_is)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{\"set\":{\"x\":\"${ .n }\"}}},{\"b\":{\"set\":{\"x\":\"${ .x + 1 }\"}}},{\"c\":{\"set\":{\"x\":\"${ .x + 2 }\"}}}]");
	f.settle = true;
	fixture_submit(&f, "{\"n\":4}");
	ck_assert(!f.undecided);
	ck_assert_uint_eq(f.count, 2); /* run.created, a */
	ck_assert_uint_eq(f.decision.effect_count, 1);
	ck_assert_int_eq(f.decision.effects[0].kind, EFFECT_CONTINUE);
	ck_assert_uint_eq(f.decision.trigger_count, 1);
	fixture_simple(&f, TRIGGER_CONTINUE);
	ck_assert(f.undecided); /* nothing comes before it: it is needed */
	fixture_answer(&f, 0, "[5]");
	fixture_simple(&f, TRIGGER_CONTINUE);
	ck_assert_uint_eq(f.count, 3); /* b; c needs one more */
	ck_assert_int_eq(f.decision.effects[0].kind, EFFECT_CONTINUE);
	f.settle = false;
	fixture_simple(&f, TRIGGER_CONTINUE);
	ck_assert(f.undecided);
	fixture_answer(&f, 0, "[7]");
	fixture_simple(&f, TRIGGER_CONTINUE);
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	ck_assert_str_eq(fixture_print(&f, f.state.output), "{\"x\":7}");
	fixture_close(&f);
}
END_TEST

/* Equal content is equal definition, input, labels and budget; without a budget it has the digest that it had before there were any. */
START_TEST(submissions_compare)
{
	struct arena arena;
	struct digest a = digest_of(BYTES_OF("a")), b = digest_of(BYTES_OF("b"));

	arena_init(&arena);
	struct json *labels = json_object(&arena);
	json_set_text(&arena, labels, "team", "x");
	struct json *budget = json_object(&arena), *less = json_object(&arena);
	json_set_number(&arena, budget, "tokens", 5);
	json_set_number(&arena, less, "tokens", 4);
	struct digest first = submission_digest(&a, &b, NULL, NULL), again = submission_digest(&a, &b, json_object(&arena), NULL);
	struct digest other = submission_digest(&b, &a, NULL, NULL), labelled = submission_digest(&a, &b, labels, NULL);
	struct digest limited = submission_digest(&a, &b, NULL, budget), limited_less = submission_digest(&a, &b, NULL, less);
	ck_assert(digest_equal(&first, &again));
	ck_assert(!digest_equal(&first, &other));
	ck_assert(!digest_equal(&first, &labelled));
	ck_assert(!digest_equal(&first, &limited));
	ck_assert(!digest_equal(&limited, &limited_less));
	struct json *before = json_object(&arena);
	json_set_digest(&arena, before, "definition", &a);
	json_set_digest(&arena, before, "input", &b);
	json_set(&arena, before, "labels", json_object(&arena));
	struct digest known = json_digest(before);
	ck_assert(digest_equal(&first, &known));
	arena_close(&arena);
}
END_TEST

/* A new run is submitted to an empty state and to no other. */
START_TEST(submitted_twice_stops)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	fixture_submit(&f, "{}");
}
END_TEST

SUITE_ABORTS(submitted_twice_stops)
SUITE_MAIN("workflow-decide", pure_run_is_one_decision, chain_of_calls, stale_triggers_decide_nothing, retries, lasting_failures_are_not_retried,
	   restart_redoes_what_was_in_flight, map_loop, chained_loop, loops_without_items, loops_without_tasks, fault_calls_off_the_rest,
	   what_is_under_way_is_limited, depth_of_values_is_limited, loops_as_deep_as_they_may_be, cancel_and_kill, large_values_end_a_decision, outputs_too_large_together, long_decisions_continue,
	   large_values_are_loaded, expressions_that_fail, values_have_a_limit, many_values_are_needed,
	   arguments_have_a_limit, extraction, submissions_compare, expressions_for_jq_are_needed, a_single_result_is_carried_once,
	   failed_evaluations_fault, needs_are_limited, evaluations_at_once_are_limited, results_of_one_task_are_limited, settling_commits_what_there_is)
