/* Events: emit and listen in all their forms, each followed by a replay; by hand, on a clock and with seqs that only the test moves. */
#include "tests/unit/workflow/record.h"

#include "workflow/base/time.h"
#include "workflow/view.h"

#define LISTEN(to) "{\"l\":{\"listen\":{\"to\":" to "}}}"
#define TYPE(type) "{\"with\":{\"type\":\"" type "\"}}"

/* The envelope of an event, canonical: members are of its JSON, without those that all have. */
static struct bytes envelope(struct fixture *f, const char *type, const char *members)
{
	struct json *json = fixture_json(f, arena_printf(&f->arena, "{\"id\":\"%s\",\"source\":\"/test\",\"specversion\":\"1.0\",\"type\":\"%s\"%s%s}", type, type, *members ? "," : "", members));

	return json_print_arena(json, &f->arena);
}

/* Offer the event that stands in the journal at seq. */
static void offer_at(struct fixture *f, const char *step, uint64_t seq, const char *type, const char *members)
{
	struct trigger trigger = {.kind = TRIGGER_EVENT, .step_id = step, .event = envelope(f, type, members), .event_seq = seq};

	fixture_trigger(f, &trigger);
}

/* It comes now: the journal has it behind all that there is. True: it was consumed. */
static bool offer(struct fixture *f, const char *step, const char *type, const char *members)
{
	f->wall_ms += 10;
	offer_at(f, step, f->seq++, type, members);
	return f->decision.entry_count > 0;
}

static const char *output_of(struct fixture *f)
{
	ck_assert_msg(f->state.status == RUN_COMPLETED, "%s: %s", run_status_name(f->state.status), print_value(f, f->state.error));
	return print_value(f, f->state.output);
}

static const struct instance *instance_of(struct fixture *f, const char *step)
{
	const struct instance *instance = state_find_step(&f->state, step, &f->arena, NULL);

	ck_assert_ptr_nonnull(instance);
	return instance;
}

/* Each strategy, each reading: which of the events are taken, and what comes out. Events: "type members", taken ones in capitals of the row. */
START_TEST(strategies)
{
	static const struct {
		const char *to, *read;
		struct {
			const char *type, *members;
			bool taken;
		} events[6];
		const char *output;
	} rows[] = {
		{"{\"one\":" TYPE("a") "}", "data", {{"b", "", false}, {"a", "\"data\":{\"x\":1}", true}}, "[{\"x\":1}]"},
		{"{\"one\":" TYPE("a") "}", "envelope", {{"a", "\"data\":1,\"room\":\"r\"", true}},
		 "[{\"data\":1,\"id\":\"a\",\"room\":\"r\",\"source\":\"/test\",\"specversion\":\"1.0\",\"type\":\"a\"}]"},
		{"{\"one\":" TYPE("a") "}", "raw", {{"a", "\"data\":{\"x\":1}", true}}, "[\"{\\\"x\\\":1}\"]"},
		{"{\"any\":[" TYPE("a") "," TYPE("b") "]}", "data", {{"c", "", false}, {"b", "\"data\":2", true}}, "[2]"},
		{"{\"any\":[]}", "data", {{"c", "", true}}, "[null]"},
		/* in the order of their coming */
		{"{\"all\":[" TYPE("a") "," TYPE("b") "]}", "data", {{"b", "\"data\":2", true}, {"b", "\"data\":3", false}, {"a", "\"data\":1", true}}, "[2,1]"},
		{"{\"all\":[" TYPE("a") "," TYPE("a") "]}", "data", {{"a", "\"data\":1", true}, {"a", "\"data\":2", true}}, "[1,2]"},
		/* `until`: "." is the array of the events so far */
		{"{\"any\":[" TYPE("a") "],\"until\":\".[1].x == 2\"}", "data",
		 {{"a", "\"data\":{\"x\":2}", true}, {"b", "", false}, {"a", "\"data\":{\"x\":1}", true}, {"a", "\"data\":{\"x\":2}", true}}, NULL},
		{"{\"any\":[],\"until\":\"${ .[2] > 5 }\"}", "data", {{"a", "\"data\":9", true}, {"b", "\"data\":9", true}, {"c", "\"data\":6", true}}, "[9,9,6]"},
		{"{\"any\":[],\"until\":\".[0].type == \\\"a\\\"\"}", "envelope", {{"a", "", true}}, "[{\"id\":\"a\",\"source\":\"/test\",\"specversion\":\"1.0\",\"type\":\"a\"}]"},
		/* what ends it is not part of the output */
		{"{\"any\":[],\"until\":{\"one\":" TYPE("end") "}}", "data", {{"a", "\"data\":1", true}, {"b", "\"data\":2", true}, {"end", "\"data\":3", true}}, "[1,2]"},
		{"{\"any\":[],\"until\":{\"all\":[" TYPE("x") "," TYPE("y") "]}}", "data", {{"y", "\"data\":1", true}, {"y", "\"data\":2", true}, {"x", "\"data\":3", true}}, "[2]"},
		{"{\"any\":[" TYPE("a") "],\"until\":{\"any\":[]}}", "data", {{"a", "\"data\":1", true}}, "[]"},
		/* attributes: patterns and predicates, on data and on the task's input */
		{"{\"one\":{\"with\":{\"type\":\"^a.$\",\"data\":\"${ .t > 38 }\"}}}", "data",
		 {{"ab", "\"data\":{\"t\":38}", false}, {"abc", "\"data\":{\"t\":39}", false}, {"ab", "\"data\":\"text\"", false}, {"ab", "\"data\":{\"t\":39}", true}}, "[{\"t\":39}]"},
		{"{\"one\":{\"with\":{\"subject\":\"${ $input.who }\"}}}", "data", {{"a", "\"subject\":\"you\"", false}, {"a", "", false}, {"a", "\"subject\":\"me\"", true}}, "[null]"},
		/* correlation: the first value, or what is expected */
		{"{\"all\":[{\"with\":{\"type\":\"a\"},\"correlate\":{\"k\":{\"from\":\".room\"}}},{\"with\":{\"type\":\"b\"},\"correlate\":{\"k\":{\"from\":\".data.room\"}}}]}", "data",
		 {{"b", "", false}, {"a", "\"room\":\"r1\"", true}, {"b", "\"data\":{\"room\":\"r2\"}", false}, {"b", "\"data\":{\"room\":\"r1\"}", true}}, "[null,{\"room\":\"r1\"}]"},
		{"{\"one\":{\"with\":{\"type\":\"a\"},\"correlate\":{\"k\":{\"from\":\".subject\",\"expect\":\"${ .who }\"}}}}", "data",
		 {{"a", "\"subject\":\"you\"", false}, {"a", "\"subject\":\"me\",\"data\":7", true}}, "[7]"},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct fixture f;
		char tasks[2048];

		snprintf(tasks, sizeof tasks, "[{\"l\":{\"listen\":{\"to\":%s,\"read\":\"%s\"}}}]", rows[i].to, rows[i].read);
		fixture_open(&f, tasks);
		fixture_submit(&f, "{\"who\":\"me\"}");
		ck_assert_str_eq(fixture_said(&f), "run.created, task.started /do/0/l@1");
		for (size_t k = 0; k < COUNT_OF(rows[i].events) && rows[i].events[k].type; k++) {
			ck_assert(!run_status_ended(f.state.status));
			ck_assert(instance_listens(instance_of(&f, "/do/0/l@1")));
			ck_assert_msg(offer(&f, "/do/0/l@1", rows[i].events[k].type, rows[i].events[k].members) == rows[i].events[k].taken, "row %zu, event %zu", i, k);
			ck_assert(!f.undecided);
			ck_assert_ptr_null(strstr(fixture_effects(&f), "start"));
		}
		if (rows[i].output)
			ck_assert_msg(strcmp(output_of(&f), rows[i].output) == 0, "row %zu gives %s", i, output_of(&f));
		else
			ck_assert(f.state.status == RUN_WAITING);
		check_record(&f);
		fixture_close(&f);
	}
}
END_TEST

/* What the entries say: seq, filter, until, last and correlation; and a satisfied listen goes on with the next task. */
START_TEST(entries)
{
	struct fixture f;

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"any\":[{\"with\":{\"type\":\"x\"}},{\"with\":{\"type\":\"a\"},\"correlate\":{\"k\":{\"from\":\".room\"}}}],\"until\":{\"one\":" TYPE("end") "}}}}},"
			 "{\"s\":{\"set\":{\"n\":\"${ .[1] }\"}}}]");
	fixture_submit(&f, "{}");
	f.seq = 100;
	ck_assert(offer(&f, "/do/0/l@1", "a", "\"room\":\"r\",\"data\":1"));
	struct entry *entry = &f.entries[f.count - 1];
	struct digest digest = json_digest(fixture_json(&f, "{\"k\":\"r\"}")), is;
	ck_assert_str_eq(fixture_said(&f), "event.consumed /do/0/l@1");
	ck_assert(json_get_digest(entry->data, "correlation", &is) && digest_equal(&is, &digest));
	json_remove(entry->data, "correlation");
	ck_assert(json_get_digest(entry->data, "event", &is) && digest_equal(&is, &entry->values[0].digest));
	json_remove(entry->data, "event");
	ck_assert_str_eq((const char *)json_print_arena(entry->data, &f.arena).data, "{\"eventSeq\":100,\"filter\":1,\"runId\":\"r1\",\"stepId\":\"/do/0/l@1\",\"waits\":true}");
	ck_assert(!offer(&f, "/do/0/l@1", "a", "\"room\":\"q\",\"data\":3"));
	ck_assert(offer(&f, "/do/0/l@1", "x", "\"data\":2"));
	ck_assert(!json_get(f.entries[f.count - 1].data, "correlation")); /* nothing new */
	ck_assert(offer(&f, "/do/0/l@1", "end", ""));
	ck_assert_str_eq(fixture_said(&f), "event.consumed /do/0/l@1, task.completed /do/0/l@1, task.completed /do/1/s@1, run.completed");
	entry = &f.entries[f.count - 4];
	json_remove(entry->data, "event");
	ck_assert_str_eq((const char *)json_print_arena(entry->data, &f.arena).data,
			 "{\"eventSeq\":105,\"filter\":0,\"last\":true,\"runId\":\"r1\",\"stepId\":\"/do/0/l@1\",\"until\":true}");
	ck_assert_str_eq(output_of(&f), "{\"n\":2}");
	fixture_close(&f);
}
END_TEST

/* An event that was consumed, an older one, and one for a listener that is gone change nothing. */
START_TEST(offers_that_come_again)
{
	struct fixture f;

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"all\":[" TYPE("a") "," TYPE("a") "]}}}},{\"m\":{\"listen\":{\"to\":{\"one\":" TYPE("a") "}}}}]");
	fixture_submit(&f, "{}");
	f.seq = 100;
	ck_assert(offer(&f, "/do/0/l@1", "a", "\"data\":1"));
	offer_at(&f, "/do/0/l@1", 100, "a", "\"data\":1");
	ck_assert_uint_eq(f.decision.entry_count, 0);
	offer_at(&f, "/do/0/l@1", 99, "a", "\"data\":0");
	ck_assert_uint_eq(f.decision.entry_count, 0);
	offer_at(&f, "/do/0/l@2", 102, "a", "");
	ck_assert_uint_eq(f.decision.entry_count, 0);
	ck_assert(offer(&f, "/do/0/l@1", "a", "\"data\":2"));
	ck_assert(!offer(&f, "/do/0/l@1", "a", "\"data\":3"));
	/* The second listener looks back: not at what the first one had, but at what it did not take. */
	uint64_t first = 100, second = json_get_number(f.entries[f.count - 3].data, "eventSeq", 0);
	offer_at(&f, "/do/1/m@1", first, "a", "\"data\":1");
	ck_assert_uint_eq(f.decision.entry_count, 0);
	offer_at(&f, "/do/1/m@1", second, "a", "\"data\":2");
	ck_assert_uint_eq(f.decision.entry_count, 0);
	offer_at(&f, "/do/1/m@1", 50, "a", "\"data\":5");
	ck_assert_str_eq(output_of(&f), "[5]");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* How far back a listener looks is of the configuration; it stands in its first entry, and a replay under another one is the same. */
START_TEST(the_window_is_recorded)
{
	struct fixture f;
	struct trigger trigger = {.kind = TRIGGER_SUBMITTED, .run_id = "r1", .input = bytes_text("{}")};
	struct decide_context context;
	struct error error = {0};
	char text[TIME_TEXT_LEN + 1];

	fixture_open(&f, "[" LISTEN("{\"one\":" TYPE("a") "}") "]");
	context = fixture_context(&f);
	context.event_window_ms = 60000;
	trigger.wall_ms = f.wall_ms;
	workflow_decide(&f.state, &trigger, 1, &context, &f.decision);
	ck_assert_uint_eq(f.decision.entry_count, 2);
	time_text(f.wall_ms - 60000, text);
	ck_assert_str_eq(json_get_text(f.decision.entries[1].data, "since"), text);
	for (size_t i = 0; i < 2; i++) {
		f.decision.entries[i].seq = f.seq++;
		ck_assert_msg(workflow_apply(&f.state, &f.decision.entries[i], &error) == 0, "%s", error.message);
		f.entries[f.count] = f.decision.entries[i];
		f.entries[f.count].data = json_copy(&f.arena, f.decision.entries[i].data);
		for (size_t k = 0; k < f.decision.entries[i].value_count; k++)
			f.entries[f.count].values[k].bytes = arena_bytes(&f.arena, f.decision.entries[i].values[k].bytes);
		f.count++;
	}
	ck_assert_int_eq(instance_of(&f, "/do/0/l@1")->since_ms, f.wall_ms - 60000);
	ck_assert(offer(&f, "/do/0/l@1", "a", ""));
	check_record(&f); /* its context has no window */
	fixture_close(&f);
}
END_TEST

/* foreach: one event after the other, each an iteration with steps of its own; what it gives lands in the array; exports go on. */
START_TEST(foreach_is_fifo)
{
	struct fixture f;

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"any\":[],\"until\":\".[1].stop\"}},\"foreach\":{\"item\":\"e\",\"at\":\"i\",\"do\":[{\"c\":{" CALL "}},"
			 "{\"s\":{\"set\":{\"e\":\"${ $e.n }\",\"i\":\"${ $i }\",\"got\":\"${ . }\",\"seen\":\"${ $context.n }\"}}}],"
			 "\"output\":{\"as\":{\"r\":\"${ .got }\",\"e\":\"${ .e }\",\"seen\":\"${ .seen }\",\"n\":\"${ $e.n }\"}},\"export\":{\"as\":{\"n\":\"${ $i }\"}}}}},"
			 "{\"t\":{\"set\":{\"all\":\"${ . }\",\"c\":\"${ $context }\"}}}]");
	fixture_submit(&f, "{\"in\":1}");
	f.seq = 100;
	ck_assert(offer(&f, "/do/0/l@1", "a", "\"data\":{\"n\":\"A\"}"));
	ck_assert_str_eq(fixture_said(&f), "event.consumed /do/0/l@1, task.started /do/0/l/foreach#0@1, task.started /do/0/l/foreach/do/0/c#0@1, attempt.started /do/0/l/foreach/do/0/c#0@1");
	ck_assert_int_eq((int)json_get_number(f.decision.entries[0].data, "iteration", -1), 0);
	ck_assert(!instance_listens(instance_of(&f, "/do/0/l@1")));
	/* Busy: what is offered now has to be offered again. */
	offer_at(&f, "/do/0/l@1", 200, "b", "\"data\":{\"n\":\"B\"}");
	ck_assert_uint_eq(f.decision.entry_count, 0);
	restart(&f);
	fixture_succeed(&f, "/do/0/l/foreach/do/0/c#0@1", 2, "\"ra\"");
	ck_assert_str_eq(fixture_said(&f), "attempt.succeeded /do/0/l/foreach/do/0/c#0@1, task.completed /do/0/l/foreach/do/0/c#0@1, task.completed /do/0/l/foreach/do/1/s#0@1, "
					   "task.completed /do/0/l/foreach#0@1");
	ck_assert(instance_listens(instance_of(&f, "/do/0/l@1")));
	f.seq = 200;
	ck_assert(offer(&f, "/do/0/l@1", "b", "\"data\":{\"n\":\"B\",\"stop\":true}"));
	ck_assert(json_get_boolean(f.decision.entries[0].data, "last", false));
	ck_assert_ptr_nonnull(strstr(fixture_said(&f), "attempt.started /do/0/l/foreach/do/0/c#1@1"));
	fixture_succeed(&f, "/do/0/l/foreach/do/0/c#1@1", 1, "\"rb\"");
	ck_assert_ptr_nonnull(strstr(fixture_said(&f), "task.completed /do/0/l/foreach#1@1, task.completed /do/0/l@1, task.completed /do/1/t@1, run.completed"));
	ck_assert_str_eq(output_of(&f), "{\"all\":[{\"e\":\"A\",\"n\":\"A\",\"r\":\"ra\",\"seen\":null},{\"e\":\"B\",\"n\":\"B\",\"r\":\"rb\",\"seen\":0}],\"c\":{\"n\":1}}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* Without `do` the item itself goes on; pure lists are done in the decision that consumes; exit ends an item, end the workflow; a fault is the
 * listen's. */
START_TEST(foreach_forms)
{
	struct fixture f;

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"all\":[" TYPE("a") "," TYPE("b") "]}},\"foreach\":{\"output\":{\"as\":\".n\"}}}}]");
	fixture_submit(&f, "{}");
	ck_assert(offer(&f, "/do/0/l@1", "b", "\"data\":{\"n\":2}"));
	ck_assert_str_eq(fixture_said(&f), "event.consumed /do/0/l@1, task.completed /do/0/l/foreach#0@1");
	ck_assert(offer(&f, "/do/0/l@1", "a", "\"data\":{\"n\":1}"));
	ck_assert_str_eq(output_of(&f), "[2,1]");
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"all\":[" TYPE("a") "," TYPE("b") "]}},\"foreach\":{\"do\":[{\"s\":{\"set\":{\"n\":\"${ $index }\",\"in\":\"${ . }\"},\"then\":\"exit\"}},"
			 "{\"x\":{\"set\":{\"never\":1}}}]}}}]");
	fixture_submit(&f, "5");
	ck_assert(offer(&f, "/do/0/l@1", "b", ""));
	ck_assert(offer(&f, "/do/0/l@1", "a", ""));
	ck_assert_str_eq(output_of(&f), "[{\"in\":5,\"n\":0},{\"in\":5,\"n\":1}]"); /* each begins with the listen's input */
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"any\":[],\"until\":\"false\"}},\"foreach\":{\"do\":[{\"s\":{\"switch\":[{\"x\":{\"when\":\"$item == 2\",\"then\":\"end\"}}]}}]}}}]");
	fixture_submit(&f, "5");
	ck_assert(offer(&f, "/do/0/l@1", "b", "\"data\":1"));
	ck_assert(offer(&f, "/do/0/l@1", "b", "\"data\":2"));
	ck_assert_str_eq(fixture_said(&f), "event.consumed /do/0/l@1, task.started /do/0/l/foreach#1@1, task.completed /do/0/l/foreach/do/0/s#1@1, task.completed /do/0/l/foreach#1@1, "
					   "task.completed /do/0/l@1, run.completed");
	ck_assert_str_eq(output_of(&f), "5");
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"t\":{\"try\":[{\"l\":{\"listen\":{\"to\":{\"any\":[],\"until\":\"false\"}},\"foreach\":{\"do\":[{\"r\":{\"raise\":{\"error\":{\"type\":\"x\",\"status\":400}}}}]}}}],"
			 "\"catch\":{\"do\":[{\"s\":{\"set\":{\"where\":\"${ $error.instance }\"}}}]}}}]");
	fixture_submit(&f, "5");
	ck_assert(offer(&f, "/do/0/t/try/0/l@1", "b", ""));
	ck_assert_str_eq(output_of(&f), "{\"where\":\"/do/0/t/try/0/l/foreach/do/0/r\"}");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* A timeout ends the waiting, a cancel too, and a workflow's timeout; in foreach what is inside is called off. */
START_TEST(endings_from_outside)
{
	struct fixture f;

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"all\":[" TYPE("a") "," TYPE("b") "]}},\"timeout\":{\"after\":{\"seconds\":5}}}}]");
	fixture_submit(&f, "{}");
	ck_assert(offer(&f, "/do/0/l@1", "a", ""));
	ck_assert_int_eq(go_on(&f), 4990);
	ck_assert_str_eq(fixture_said(&f), "timer.fired /do/0/l@1, task.faulted /do/0/l@1, run.faulted");
	ck_assert_ptr_nonnull(strstr(print_value(&f, f.state.error), "\"status\":408"));
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"any\":[],\"until\":\"false\"}},\"foreach\":{\"do\":[{\"c\":{" CALL "}}]}}}]");
	fixture_submit(&f, "{}");
	ck_assert(offer(&f, "/do/0/l@1", "a", ""));
	fixture_simple(&f, TRIGGER_CANCEL);
	ck_assert_str_eq(fixture_said(&f), "task.cancelled /do/0/l/foreach/do/0/c#0@1, task.cancelled /do/0/l/foreach#0@1, task.cancelled /do/0/l@1, run.cancelled");
	ck_assert_str_eq(fixture_effects(&f), "cancel /do/0/l/foreach/do/0/c#0@1 1, end");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* In the branches of a fork an event goes to each listener; the first of a competing one ends the other. In a loop each time is an execution
 * of its own, and no event counts twice. */
START_TEST(side_by_side_and_again)
{
	struct fixture f;

	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[" LISTEN("{\"one\":" TYPE("a") "}") ",{\"m\":{\"listen\":{\"to\":{\"all\":[" TYPE("a") "," TYPE("b") "]}}}}]}}}]");
	fixture_submit(&f, "{}");
	f.seq = 100;
	ck_assert(offer(&f, "/do/0/f/fork/branches/0/l@1", "a", "\"data\":1"));
	offer_at(&f, "/do/0/f/fork/branches/1/m@1", 100, "a", "\"data\":1");
	ck_assert_uint_eq(f.decision.entry_count, 1);
	ck_assert(offer(&f, "/do/0/f/fork/branches/1/m@1", "b", "\"data\":2"));
	ck_assert_str_eq(output_of(&f), "[[1],[1,2]]");
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"f\":{\"fork\":{\"compete\":true,\"branches\":[" LISTEN("{\"one\":" TYPE("a") "}") ",{\"m\":{\"listen\":{\"to\":{\"one\":" TYPE("b") "}}}}]}}}]");
	fixture_submit(&f, "{}");
	ck_assert(offer(&f, "/do/0/f/fork/branches/1/m@1", "b", "\"data\":2"));
	ck_assert_str_eq(fixture_said(&f), "event.consumed /do/0/f/fork/branches/1/m@1, task.completed /do/0/f/fork/branches/1/m@1, task.cancelled /do/0/f/fork/branches/0/l@1, "
					   "task.completed /do/0/f@1, run.completed");
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"f\":{\"for\":{\"in\":\".k\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"l\":{\"listen\":{\"to\":{\"one\":{\"with\":{\"type\":\"a\"},"
			 "\"correlate\":{\"k\":{\"from\":\".subject\",\"expect\":\"${ $item }\"}}}}},\"foreach\":{\"output\":{\"as\":{\"i\":\"${ $index }\",\"d\":\"${ $item }\"}}}}}]}}]");
	fixture_submit(&f, "{\"k\":[\"x\",\"y\",\"z\"]}");
	ck_assert(!offer(&f, "/do/0/f/do/0/l#0@1", "a", "\"subject\":\"y\",\"data\":1"));
	ck_assert(offer(&f, "/do/0/f/do/0/l#1@1", "a", "\"subject\":\"y\",\"data\":2"));
	restart(&f);
	ck_assert(offer(&f, "/do/0/f/do/0/l#2@1", "a", "\"subject\":\"z\",\"data\":3"));
	ck_assert(offer(&f, "/do/0/f/do/0/l#0@1", "a", "\"subject\":\"x\",\"data\":4"));
	ck_assert_str_eq(output_of(&f), "[[{\"d\":4,\"i\":0}],[{\"d\":2,\"i\":0}],[{\"d\":3,\"i\":0}]]");
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[" LISTEN("{\"one\":" TYPE("a") "}") ",{\"s\":{\"switch\":[{\"x\":{\"when\":\".[0] < 3\",\"then\":\"l\"}}]}}]");
	fixture_submit(&f, "{}");
	f.seq = 100;
	ck_assert(offer(&f, "/do/0/l@1", "a", "\"data\":1"));
	offer_at(&f, "/do/0/l@2", 100, "a", "\"data\":1"); /* from before it began, and the execution before had it */
	ck_assert_uint_eq(f.decision.entry_count, 0);
	ck_assert(offer(&f, "/do/0/l@2", "a", "\"data\":3"));
	ck_assert_str_eq(output_of(&f), "[3]");
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* What only jq evaluates is asked for and recorded, of filters as well as of `until`; an event that fails a predicate is passed over, an
 * `until` or an `expect` that fails is the definition's own mistake. */
START_TEST(evaluations)
{
	struct fixture f;

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"any\":[{\"with\":{\"type\":\"${ startswith(\\\"a\\\") }\"}}],\"until\":\"length > 1\"}}}}]");
	fixture_submit(&f, "{}");
	f.seq = 100;
	offer_at(&f, "/do/0/l@1", 100, "b", "");
	ck_assert(f.undecided);
	ck_assert_uint_eq(f.decision.need_count, 1);
	fixture_answer(&f, 0, "[false]");
	offer_at(&f, "/do/0/l@1", 100, "b", "");
	ck_assert(!f.undecided && f.decision.entry_count == 0);
	offer_at(&f, "/do/0/l@1", 101, "c", "");
	fixture_answer(&f, 0, "\"jq: it failed\"");
	offer_at(&f, "/do/0/l@1", 101, "c", "");
	ck_assert(!f.undecided && f.decision.entry_count == 0);
	for (int i = 0; i < 2; i++) {
		f.wall_ms += 10;
		f.seq = 200 + 10 * (uint64_t)i;
		const char *type = i == 0 ? "a" : "ab";
		offer_at(&f, "/do/0/l@1", f.seq, type, "\"data\":1");
		fixture_answer(&f, 0, "[true]");
		offer_at(&f, "/do/0/l@1", f.seq, type, "\"data\":1");
		ck_assert(f.undecided);
		fixture_answer(&f, 0, i == 0 ? "[false]" : "[true]");
		f.seq++;
		offer_at(&f, "/do/0/l@1", f.seq - 1, type, "\"data\":1");
		ck_assert(!f.undecided);
	}
	ck_assert_str_eq(output_of(&f), "[1,1]");
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"any\":[],\"until\":\".[0].a.b\"}}}}]");
	fixture_submit(&f, "{}");
	ck_assert(offer(&f, "/do/0/l@1", "a", "\"data\":5"));
	ck_assert_str_eq(fixture_said(&f), "event.consumed /do/0/l@1, task.faulted /do/0/l@1, run.faulted");
	ck_assert_ptr_nonnull(strstr(print_value(&f, f.state.error), "listen.to.until: "));
	check_record(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"one\":{\"with\":{\"type\":\"a\"},\"correlate\":{\"k\":{\"from\":\".id\",\"expect\":\"${ .a.b }\"}}}}}}}]");
	fixture_submit(&f, "{\"a\":5}");
	ck_assert(offer(&f, "/do/0/l@1", "a", "\"data\":5"));
	ck_assert_str_eq(fixture_said(&f), "event.consumed /do/0/l@1, task.faulted /do/0/l@1, run.faulted");
	ck_assert_ptr_nonnull(strstr(print_value(&f, f.state.error), "correlate.k.expect: "));
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* A large event is loaded again where the output or an `until` needs it. */
START_TEST(large_events_are_loaded)
{
	struct fixture f;
	char *large = memory_alloc(VALUE_INLINE_MAX + 100);

	snprintf(large, VALUE_INLINE_MAX + 100, "\"data\":\"%0*d\"", VALUE_INLINE_MAX, 7);
	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"all\":[" TYPE("a") "," TYPE("b") "]}}}},{\"s\":{\"set\":{\"n\":\"${ .[1] }\"}}}]");
	fixture_submit(&f, "{}");
	ck_assert(offer(&f, "/do/0/l@1", "a", large));
	f.seq = 500;
	offer_at(&f, "/do/0/l@1", 500, "b", "\"data\":2");
	ck_assert(f.undecided);
	ck_assert_uint_eq(f.decision.need_count, 1);
	ck_assert_uint_eq(f.decision.needs[0].size, envelope(&f, "a", large).len);
	f.values[f.value_count++] = fixture_json(&f, (const char *)envelope(&f, "a", large).data);
	f.seq = 501;
	offer_at(&f, "/do/0/l@1", 500, "b", "\"data\":2");
	ck_assert_str_eq(output_of(&f), "{\"n\":2}");
	check_record(&f);
	fixture_close(&f);
	free(large);
}
END_TEST

/* LISTEN_EVENTS_MAX: the last event that may come has to be the last; else the listen faults. */
START_TEST(too_many_events)
{
	struct fixture *f = memory_zero(sizeof *f);

	fixture_open(f, "[{\"l\":{\"listen\":{\"to\":{\"any\":[],\"until\":\"false\"}}}}]");
	fixture_submit(f, "{}");
	for (int i = 0; i < LISTEN_EVENTS_MAX; i++) {
		f->count = 2; /* what is kept for a replay is not asked for */
		ck_assert(run_status_ended(f->state.status) == false);
		ck_assert(offer(f, "/do/0/l@1", "a", ""));
		ck_assert_uint_le(f->state.consumed_count, STATE_EVENTS_REMEMBERED_MAX);
	}
	ck_assert_str_eq(fixture_said(f), "event.consumed /do/0/l@1, task.faulted /do/0/l@1, run.faulted");
	ck_assert_ptr_nonnull(strstr(print_value(f, f->state.error), "LISTEN_EVENTS_MAX"));
	fixture_close(f);
	free(f);
}
END_TEST

/* The last STATE_EVENTS_REMEMBERED_MAX events that were consumed are known; then the older half is forgotten at once. */
START_TEST(consumed_events_are_remembered)
{
	struct fixture *f = memory_zero(sizeof *f);

	fixture_open(f, "[" LISTEN("{\"one\":" TYPE("a") "}") ",{\"s\":{\"switch\":[{\"x\":{\"when\":\".[0] == 1\",\"then\":\"l\"}}]}}]");
	fixture_submit(f, "{}");
	uint64_t first = 0;
	for (int i = 0; i <= STATE_EVENTS_REMEMBERED_MAX; i++) {
		const char *step = arena_printf(&f->arena, "/do/0/l@%d", i + 1);
		f->count = 2;
		if (i == 0)
			first = f->seq;
		ck_assert(offer(f, step, "a", "\"data\":1"));
		if (i == STATE_EVENTS_REMEMBERED_MAX - 1)
			ck_assert(state_has_consumed(&f->state, first));
	}
	ck_assert(!state_has_consumed(&f->state, first));
	ck_assert_uint_eq(f->state.consumed_count, STATE_EVENTS_REMEMBERED_MAX / 2 + 1);
	fixture_close(f);
	free(f);
}
END_TEST

/* An emit is one decision: the event's entry and the task's, whose output is the event (D13); its id is the step's key, so that it never changes. */
START_TEST(emitting)
{
	struct fixture f;
	char key[DIGEST_HEX_LEN + 1];
	struct step_id id = {.reference = "/do/0/e", .execution = 1};
	struct digest digest;

	fixture_open(&f, "[{\"e\":{\"emit\":{\"event\":{\"with\":{\"source\":\"https://x.example/{who}\",\"type\":\"greeted\",\"level\":3,\"data\":{\"hello\":\"${ .who }\"}}}}}}]");
	fixture_submit(&f, "{\"who\":\"a b\"}");
	ck_assert_str_eq(fixture_said(&f), "run.created, event.emitted /do/0/e@1, task.completed /do/0/e@1, run.completed");
	step_idempotency_key("r1", &id, key);
	ck_assert_str_eq(output_of(&f), arena_printf(&f.arena, "{\"data\":{\"hello\":\"a b\"},\"id\":\"%s\",\"level\":3,\"source\":\"https://x.example/a%%20b\",\"specversion\":\"1.0\","
							      "\"time\":\"2026-09-21T14:13:20.000Z\",\"type\":\"greeted\"}", key));
	ck_assert_uint_eq(f.entries[1].value_count, 1); /* the event is carried once */
	ck_assert_uint_eq(f.entries[2].value_count, 0);
	struct digest event_key = json_digest(fixture_json(&f, arena_printf(&f.arena, "[\"https://x.example/a%%20b\",\"%s\"]", key)));
	ck_assert(json_get_digest(f.entries[1].data, "key", &digest) && digest_equal(&digest, &event_key));
	ck_assert_ptr_null(f.state.emitted);
	check_record(&f);
	/* The run's document has it among its events. */
	struct json *events = json_get(view_run(&f.arena, f.entries, f.count, f.definition, "test.example/log", VIEW_EVENTS), "events");
	size_t greeted = 0;
	for (size_t i = 0; i < json_count(events); i++)
		greeted += strcmp(json_get_text(json_at(events, i), "type"), "greeted") == 0;
	ck_assert_uint_eq(greeted, 1);
	fixture_close(&f);

	/* Without a source: the workflow's own. With output.as the output is another value. */
	fixture_open(&f, "[{\"e\":{\"emit\":{\"event\":{\"with\":{\"type\":\"t\",\"id\":\"mine\",\"time\":\"2026-01-01T00:00:00Z\"}}},\"output\":{\"as\":\".source\"}}}]");
	fixture_submit(&f, "null");
	ck_assert_str_eq(output_of(&f), "\"https://test.example/log/test/it/1.0.0\"");
	check_record(&f);
	fixture_close(&f);

	/* What is no event is an expression error, and can be caught. */
	fixture_open(&f, "[{\"t\":{\"try\":[{\"e\":{\"emit\":{\"event\":{\"with\":{\"type\":\"${ .n }\"}}}}}],\"catch\":{\"do\":[{\"s\":{\"set\":{\"detail\":\"${ $error.detail }\"}}}]}}}]");
	fixture_submit(&f, "{\"n\":5}");
	ck_assert_ptr_nonnull(strstr(output_of(&f), "type"));
	ck_assert_ptr_null(strstr(fixture_said(&f), "event.emitted"));
	check_record(&f);
	fixture_close(&f);

	/* Entered again it is another event. */
	fixture_open(&f, "[{\"f\":{\"for\":{\"in\":\".\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"e\":{\"emit\":{\"event\":{\"with\":{\"type\":\"t\",\"data\":\"${ $item }\"}}},\"output\":{\"as\":\".id\"}}}]}}]");
	fixture_submit(&f, "[1,2]");
	struct json *ids = fixture_json(&f, output_of(&f));
	ck_assert_uint_eq(json_count(ids), 2);
	ck_assert(!json_equal(json_at(ids, 0), json_at(ids, 1)));
	check_record(&f);
	fixture_close(&f);
}
END_TEST

/* The run document: a listen waits, counts its events, and the time in which it waited is queued; what foreach does is not. */
START_TEST(documents)
{
	struct fixture f;

	fixture_open(&f, "[{\"l\":{\"listen\":{\"to\":{\"all\":[" TYPE("a") "," TYPE("b") "]}},\"foreach\":{\"do\":[{\"w\":{\"wait\":{\"seconds\":1}}},{\"c\":{" CALL "}}]}}}]");
	fixture_submit(&f, "{}");
	struct json *run = view_run(&f.arena, f.entries, f.count, f.definition, "o", VIEW_TASKS), *task = json_at(json_get(run, "tasks"), 0);
	ck_assert_str_eq(json_get_text(task, "status"), "waiting");
	ck_assert_int_eq((int)json_get_number(task, "consumed", -1), 0);
	f.wall_ms += 990;
	ck_assert(offer(&f, "/do/0/l@1", "a", "")); /* 1000 ms queued */
	ck_assert_int_eq(go_on(&f), 1000); /* the wait: 1000 ms queued */
	f.wall_ms += 500; /* the call's */
	fixture_succeed(&f, "/do/0/l/foreach/do/1/c#0@1", 1, "1");
	f.wall_ms += 1990;
	ck_assert(offer(&f, "/do/0/l@1", "b", "")); /* 2000 ms queued */
	run = view_run(&f.arena, f.entries, f.count, f.definition, "o", VIEW_TASKS);
	task = json_at(json_get(run, "tasks"), 0);
	ck_assert_int_eq((int)json_get_number(task, "consumed", -1), 2);
	ck_assert_str_eq(json_get_text(task, "status"), "running");
	ck_assert_str_eq(json_get_text(json_at(json_get(run, "tasks"), 1), "name"), "foreach");
	ck_assert_int_eq((int)json_get_number(json_get(run, "overhead"), "wallMs", 0), 4500);
	ck_assert_int_eq((int)json_get_number(json_get(run, "overhead"), "queuedMs", 0), 4000);
	/* The fold says the same. */
	int64_t since, total = 0;
	bool cut_off;
	struct state again;
	struct error error = {0};
	state_init(&again, f.definition);
	for (size_t i = 0; i < f.count; i++) {
		if (state_ends_wait(&again, &f.entries[i], &since, &cut_off))
			total += f.entries[i].time_ms - since;
		ck_assert_int_eq(workflow_apply(&again, &f.entries[i], &error), 0);
	}
	ck_assert_int_eq(total, 4000);
	state_close(&again);
	fixture_close(&f);
}
END_TEST

/* Entries that cannot follow are refused: an event for a task that does not wait, an old one, one without its filter. */
START_TEST(bad_entries_are_refused)
{
	struct fixture f;
	struct error error = {0};
	static const struct {
		const char *data;
		enum entry_kind kind;
	} rows[] = {
		{"{\"runId\":\"r1\",\"stepId\":\"/do/0/l@1\",\"event\":{\"sha256\":\"%s\"},\"eventSeq\":3,\"filter\":64}", ENTRY_EVENT_CONSUMED},
		{"{\"runId\":\"r1\",\"stepId\":\"/do/0/l@1\",\"event\":{\"sha256\":\"%s\"},\"eventSeq\":3}", ENTRY_EVENT_CONSUMED},
		{"{\"runId\":\"r1\",\"stepId\":\"/do/0/l@1\",\"event\":{\"sha256\":\"%s\"},\"filter\":0}", ENTRY_EVENT_CONSUMED},
		{"{\"runId\":\"r1\",\"stepId\":\"/do/0/l@1\",\"eventSeq\":3,\"filter\":0,\"x\":\"%s\"}", ENTRY_EVENT_CONSUMED},
		{"{\"runId\":\"r1\",\"stepId\":\"/do/0/l@2\",\"event\":{\"sha256\":\"%s\"},\"eventSeq\":3,\"filter\":0}", ENTRY_EVENT_CONSUMED},
		{"{\"runId\":\"r1\",\"stepId\":\"/do/1/s@1\",\"event\":{\"sha256\":\"%s\"},\"eventSeq\":3,\"filter\":0}", ENTRY_EVENT_CONSUMED},
		{"{\"runId\":\"r1\",\"stepId\":\"/do/1/s@1\",\"event\":{\"sha256\":\"%s\"},\"key\":{\"sha256\":\"%s\"}}", ENTRY_EVENT_EMITTED},
	};

	fixture_open(&f, "[" LISTEN("{\"one\":" TYPE("a") "}") "," "{\"s\":{\"set\":{\"a\":1}}}]");
	fixture_submit(&f, "{}");
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct digest digest = digest_of(bytes_text("x"));
		char hex[DIGEST_HEX_LEN + 1], *text = arena_text(&f.arena, rows[i].data);
		digest_hex(&digest, hex);
		for (char *at; (at = strstr(text, "%s"));)
			text = arena_printf(&f.arena, "%.*s%s%s", (int)(at - text), text, hex, at + 2);
		struct entry entry = {.kind = rows[i].kind, .data = fixture_json(&f, text), .seq = 99, .time_ms = f.wall_ms};
		ck_assert_msg(workflow_apply(&f.state, &entry, &error) == ERR_CORRUPT, "row %zu", i);
	}
	fixture_close(&f);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("workflow-listen", strategies, entries, offers_that_come_again, the_window_is_recorded, foreach_is_fifo, foreach_forms, endings_from_outside, side_by_side_and_again,
	   evaluations, large_events_are_loaded, too_many_events, consumed_events_are_remembered, emitting, documents, bad_entries_are_refused)
