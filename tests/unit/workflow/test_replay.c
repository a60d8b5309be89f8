/* Replay: a recorded run is decided again, entry by entry. */
#include "tests/unit/workflow/fixture.h"

#include "workflow/replay.h"

#define CALL "\"call\":\"http\",\"with\":{\"method\":\"get\",\"endpoint\":\"http://x/\"}"

static struct replay_result replay(struct fixture *f, size_t count)
{
	const struct decide_context context = {.origin = "test.example/log", .daemon_version = "1.2.3"};
	struct replay_result result;
	struct error error = {0};

	ck_assert_msg(replay_run(&f->arena, f->entries, count, f->definition, &context, &result, &error) == 0, "%s", error.message);
	return result;
}

static int read_stored(void *context, struct arena *arena, uint64_t after_seq, size_t limit, struct entry **entries, size_t *count, struct error *error)
{
	const struct fixture *f = context;

	(void)error;
	*entries = arena_alloc(arena, limit * sizeof **entries);
	*count = 0;
	for (size_t i = 0; i < f->count && *count < limit; i++) {
		if (f->entries[i].seq <= after_seq)
			continue;
		struct entry *copy = &(*entries)[(*count)++];
		*copy = f->entries[i];
		copy->data = json_copy(arena, copy->data);
		for (size_t v = 0; v < copy->value_count; v++)
			copy->values[v].bytes = copy->values[v].size > VALUE_INLINE_MAX ? (struct bytes){0} : arena_bytes(arena, copy->values[v].bytes);
	}
	return 0;
}

static bool load_stored(void *context, struct arena *arena, uint64_t content_id, const struct digest *digest, struct bytes *bytes)
{
	const struct fixture *f = context;

	for (size_t i = 0; i < f->count; i++)
		for (size_t v = 0; v < f->entries[i].value_count; v++)
			if (content_id ? CONTENT_ID(f->entries[i].seq, v) == content_id : digest_equal(&f->entries[i].values[v].digest, digest)) {
				ck_assert(digest_equal(&f->entries[i].values[v].digest, digest));
				*bytes = arena_bytes(arena, f->entries[i].values[v].bytes);
				return true;
			}
	return false;
}

static struct replay_result replay_in_windows(struct fixture *f)
{
	const struct decide_context context = {.origin = "test.example/log", .daemon_version = "1.2.3"};
	const struct replay_source source = {read_stored, load_stored, f};
	struct replay_result result;
	struct error error = {0};
	struct replay *replay = replay_begin(&f->arena, f->definition, &context, &source, &result);

	for (bool done = false; !done;)
		ck_assert_msg(replay_step(replay, &done, &error) == 0, "%s", error.message);
	replay_end(replay);
	return result;
}

static void check_equal(struct fixture *f)
{
	struct replay_result result = replay(f, f->count);

	ck_assert_msg(result.equal, "entry %llu: %s: expected %s got %s", (unsigned long long)result.seq, result.why, result.expected, result.got);
	ck_assert_uint_eq(result.entries, f->count);
	result = replay_in_windows(f);
	ck_assert(result.equal);
	ck_assert_uint_eq(result.entries, f->count);
}

/* A long run is replayed as it is read: windows move, a decision that is longer than one widens it, a large value is loaded by its place. And
 * a difference is found where it is. */
START_TEST(long_runs_are_replayed_in_windows)
{
	struct fixture f;
	struct buffer input;

	fixture_open(&f, "[{\"s\":{\"for\":{\"in\":\".l\"},\"do\":[{\"a\":{\"set\":{\"n\":\"${ $item }\"}}}]}},"
			 "{\"m\":{\"for\":{\"in\":\"$workflow.input.l\"},\"metadata\":{\"concurrency\":1000},\"do\":[{\"c\":{" CALL "}}]}}]");
	buffer_init(&input, 1 << 20);
	buffer_add_text(&input, "{\"l\":[1000000");
	for (int i = 1; i < 999; i++)
		buffer_printf(&input, ",%d", 1000000 + i);
	buffer_add_text(&input, "]}");
	fixture_submit(&f, buffer_text(&input));
	f.values[f.value_count++] = fixture_json(&f, buffer_text(&input));
	f.values[f.value_count++] = json_get(f.values[0], "l");
	while (strstr(fixture_effects(&f), "continue")) {
		f.wall_ms++;
		fixture_simple(&f, TRIGGER_CONTINUE);
		ck_assert(!f.undecided);
	}
	f.wall_ms++;
	fixture_simple(&f, TRIGGER_CANCEL);
	ck_assert_uint_gt(f.decision.entry_count, 999);
	ck_assert_uint_gt(f.count, 3500);
	struct replay_result result = replay_in_windows(&f);
	ck_assert_msg(result.equal, "entry %llu: %s: expected %s got %s", (unsigned long long)result.seq, result.why, result.expected, result.got);
	ck_assert_uint_eq(result.entries, f.count);
	struct entry *changed = &f.entries[f.count - 700];
	changed->kind = ENTRY_TASK_FAULTED;
	result = replay_in_windows(&f);
	ck_assert(!result.equal);
	struct replay_result whole = replay(&f, f.count);
	ck_assert_uint_eq(result.seq, whole.seq);
	buffer_close(&input);
	fixture_close(&f);
}
END_TEST

/* A run with retries, a restart and a map. */
static void drive(struct fixture *f)
{
	fixture_open(f, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":2},\"do\":[{\"c\":{" CALL "}}]}},{\"s\":{\"set\":{\"r\":\"${ . }\","
			"\"at\":\"${ $task.startedAt.iso8601 }\"}}}]");
	fixture_submit(f, "{\"l\":[1,2]}");
	f->wall_ms += 20;
	fixture_fail(f, "/do/0/m/do/0/c#1@1", 1, FAILURE_RATE_LIMITED, 4);
	f->wall_ms += 3;
	fixture_simple(f, TRIGGER_RESTARTED);
	f->wall_ms = state_next_deadline_ms(&f->state) + 9;
	fixture_simple(f, TRIGGER_DEADLINE);
	fixture_succeed(f, "/do/0/m/do/0/c#1@1", 2, "{\"b\":1}");
	f->wall_ms += 7;
	fixture_succeed(f, "/do/0/m/do/0/c#0@1", 2, "{\"a\":1}");
	ck_assert_int_eq(f->state.status, RUN_COMPLETED);
}

/* What happened is decided again. */
START_TEST(completed_runs_replay)
{
	struct fixture f;

	drive(&f);
	check_equal(&f);
	fixture_close(&f);
}
END_TEST

/* Several ends of attempts in one decision are as many triggers for replay, and each says for itself whether the run waits behind it. A journal from
 * before there was such a word replays as well; one that has it and lacks it later does not. */
START_TEST(what_waits_is_compared)
{
	struct fixture f;
	struct error error = {0};

	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[{\"a\":{" CALL "}},{\"b\":{" CALL "}},{\"w\":{\"wait\":\"PT1H\"}}]}}}]");
	fixture_submit(&f, "{}");
	const struct outcome failed = {.failure = FAILURE_UNREACHABLE, .retry_attempts = 9, .retry_floor_ms = 100, .retry_cap_ms = 1000}, done = {.ok = true, .output = fixture_json(&f, "1")};
	f.wall_ms += 5;
	const struct trigger triggers[] = {
		{.kind = TRIGGER_ACTIVITY_DONE, .wall_ms = f.wall_ms, .step_id = "/do/0/f/fork/branches/0/a@1", .attempt = 1, .outcome = &failed},
		{.kind = TRIGGER_ACTIVITY_DONE, .wall_ms = f.wall_ms, .step_id = "/do/0/f/fork/branches/1/b@1", .attempt = 1, .outcome = &done},
	};
	const struct decide_context context = {.origin = "test.example/log", .daemon_version = "1.2.3"};
	struct decision decision;
	decision_init(&decision);
	workflow_decide(&f.state, triggers, COUNT_OF(triggers), &context, &decision);
	ck_assert_uint_eq(decision.entry_count, 4);
	for (size_t i = 0; i < decision.entry_count; i++) {
		struct entry *kept = &f.entries[f.count++];
		decision.entries[i].seq = f.seq++;
		ck_assert_int_eq(workflow_apply(&f.state, &decision.entries[i], &error), 0);
		*kept = decision.entries[i];
		kept->data = json_copy(&f.arena, kept->data);
		for (size_t k = 0; k < kept->value_count; k++)
			kept->values[k].bytes = arena_bytes(&f.arena, kept->values[k].bytes);
		ck_assert(json_get_boolean(kept->data, "waits", false) == (i == 3));
	}
	decision_close(&decision);
	f.wall_ms += 5;
	fixture_fail(&f, "/do/0/f/fork/branches/0/a@1", 1, FAILURE_UNREACHABLE, 9); /* late: nothing */
	f.wall_ms = state_next_deadline_ms(&f.state);
	fixture_simple(&f, TRIGGER_DEADLINE);
	fixture_succeed(&f, "/do/0/f/fork/branches/0/a@1", 2, "2");
	ck_assert_int_eq(f.state.status, RUN_WAITING);
	check_equal(&f);

	json_remove(f.entries[f.count - 1].data, "waits"); /* the earlier one stays */
	ck_assert(!replay(&f, f.count).equal);
	for (size_t i = 0; i < f.count; i++) {
		json_remove(f.entries[i].data, "waits");
		json_remove(f.entries[i].data, "wakes");
	}
	check_equal(&f);
	fixture_close(&f);
}
END_TEST

/* Results of evaluations come from the journal: what is put together of them is compared, nothing is evaluated. */
START_TEST(results_are_read)
{
	static const char tasks[] = "[{\"a\":{\"set\":{\"x\":\"${ .n + 1 }\",\"y\":\"${ .n + 2 }\",\"at\":\"${ $task.startedAt.iso8601 }\"}}},"
				    "{\"b\":{\"for\":{\"in\":\"${ [1,.x] }\"},\"while\":\"$index * 2 < 2\",\"do\":[{\"c\":{\"set\":\"${ {v: $item} }\"}}]}},"
				    "{\"d\":{\"set\":{\"z\":\"${ .v + error }\"}}}]";
	static const char *const answers[] = {"[5]", "[6]", "[[1,5]]", "[true]", "[{\"v\":1}]", "[false]", "\"it failed\""};
	struct fixture f;
	size_t answered = 0;

	for (int settle = 0; settle < 2; settle++) {
		fixture_open(&f, tasks);
		f.settle = settle;
		answered = 0;
		fixture_submit(&f, "{\"n\":4}");
		while (!run_status_ended(f.state.status)) {
			for (size_t i = 0; f.undecided && i < f.decision.need_count; i++)
				fixture_answer(&f, i, answers[answered++]);
			if (f.count == 0)
				fixture_submit(&f, "{\"n\":4}");
			else
				fixture_simple(&f, TRIGGER_CONTINUE);
			if (!f.undecided)
				f.wall_ms += 5; /* what is continued is decided later */
		}
		ck_assert_uint_eq(answered, COUNT_OF(answers));
		ck_assert_int_eq(f.state.status, RUN_FAULTED);
		check_equal(&f);
		/* Another result than the one that the output was made of. */
		for (size_t i = 0; i < f.count; i++) {
			struct digest digest, other = digest_of(BYTES_OF("[[7],[6]]"));
			if (!json_get_digest(f.entries[i].data, "results", &digest) || f.entries[i].kind != ENTRY_TASK_COMPLETED)
				continue;
			json_set_digest(&f.arena, f.entries[i].data, "results", &other);
			for (size_t k = 0; k < f.entries[i].value_count; k++)
				if (digest_equal(&f.entries[i].values[k].digest, &digest))
					f.entries[i].values[k] = (struct entry_value){other, BYTES_OF("[[7],[6]]"), sizeof "[[7],[6]]" - 1};
			struct replay_result result = replay(&f, f.count);
			ck_assert(!result.equal);
			ck_assert_uint_eq(result.seq, f.entries[i].seq);
			json_remove(f.entries[i].data, "results");
			result = replay(&f, f.count);
			ck_assert(!result.equal);
			ck_assert_str_eq(result.why, "a value that this decision needs is missing from the journal");
			break;
		}
		fixture_close(&f);
	}
}
END_TEST

/* Faults, with and without an attempt behind them, and cancels. */
START_TEST(other_ends_replay)
{
	struct fixture f;
	struct trigger kill = {.kind = TRIGGER_CANCEL, .reason = "why", .kill = true};

	fixture_open(&f, "[{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	fixture_fail(&f, "/do/0/c@1", 1, FAILURE_REFUSED, 3);
	check_equal(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"c\":{" CALL "}},{\"s\":{\"set\":{\"x\":\"${ .n.m }\"}}}]");
	fixture_submit(&f, "{}");
	fixture_succeed(&f, "/do/0/c@1", 1, "{\"n\":1}");
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	check_equal(&f);
	fixture_close(&f);

	fixture_open(&f, "[{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	fixture_trigger(&f, &kill);
	check_equal(&f);
	fixture_close(&f);
}
END_TEST

/* A run that is still under way replays as far as it got. */
START_TEST(open_runs_replay)
{
	struct fixture f;

	fixture_open(&f, "[{\"c\":{" CALL "}}]");
	fixture_submit(&f, "{}");
	fixture_fail(&f, "/do/0/c@1", 1, FAILURE_STALLED, 3);
	check_equal(&f);
	fixture_close(&f);
}
END_TEST

/* What a run may use stands in its first entry, beside what was asked for, and in that of a retry; what its attempts used is added up, over a child, an overrun that nothing
 * retries, and the retry; the state says so, comes back from a snapshot, and all is decided again as it was. */
START_TEST(budgets_are_kept)
{
	struct fixture f;
	const struct outcome failed = {.failure = FAILURE_STALLED, .retry_attempts = 3, .spent = {"m", 7, 8}}, over = {.failure = FAILURE_BUDGET, .detail = "no more", .retry_attempts = 3};
	struct outcome done = {.ok = true, .spent = {"m", 20, 30000}}, child = {.ok = true, .spent = {NULL, 5000000000, 1}};
	const struct budget_amount limit = {100, 1500000}, more = {200, BUDGET_NONE};

	fixture_open(&f, "[{\"c\":{" CALL "}},{\"d\":{" CALL "}},{\"e\":{" CALL "}}]");
	done.output = child.output = fixture_json(&f, "1");
	struct trigger submitted = {.kind = TRIGGER_SUBMITTED, .run_id = "r1", .wall_ms = f.wall_ms, .input = json_print_arena(fixture_json(&f, "{}"), &f.arena), .budget = &limit,
				    .budget_asked = fixture_json(&f, "{\"tokens\":100}")};
	fixture_trigger(&f, &submitted);
	ck_assert(json_equal(json_get(f.entries[0].data, "budget"), fixture_json(&f, "{\"tokens\":100,\"seconds\":1.5}")));
	ck_assert(json_equal(json_get(f.entries[0].data, "budgetAsked"), fixture_json(&f, "{\"tokens\":100}")));
	fixture_done(&f, "/do/0/c@1", 1, &failed);
	f.wall_ms += 60000;
	fixture_simple(&f, TRIGGER_DEADLINE);
	fixture_done(&f, "/do/0/c@1", 2, &done);
	fixture_done(&f, "/do/1/d@1", 1, &over);
	ck_assert_int_eq(f.state.status, RUN_FAULTED);
	ck_assert_int_eq(f.state.budget.tokens, limit.tokens);
	ck_assert_int_eq(f.state.budget.us, limit.us);
	ck_assert_int_eq(f.state.spent.tokens, 27);
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), "\"class\":\"budget\""));
	ck_assert_ptr_nonnull(strstr(fixture_print(&f, f.state.error), ERROR_TYPE("budget")));
	struct trigger retried = {.kind = TRIGGER_RETRY, .wall_ms = f.wall_ms, .budget = &more};
	fixture_trigger(&f, &retried);
	ck_assert_int_eq(f.state.budget.tokens, more.tokens);
	ck_assert_int_eq(f.state.budget.us, limit.us);
	fixture_done(&f, "/do/1/d@2", 1, &child);
	ck_assert_int_eq(f.state.spent.tokens, 5000000027);
	struct buffer bytes;
	struct state again;
	struct error error = {0};
	buffer_init(&bytes, 1 << 20);
	state_snapshot_print(&f.state, "1", &bytes);
	state_init(&again, f.definition);
	ck_assert_int_eq(state_snapshot_read(&again, buffer_bytes(&bytes), "1", &error), 0);
	struct digest kept = state_digest(&f.state), read = state_digest(&again);
	ck_assert(digest_equal(&kept, &read));
	ck_assert_int_eq(again.budget.tokens, more.tokens);
	ck_assert_int_eq(again.spent.us, f.state.spent.us);
	again.spent.us++;
	read = state_digest(&again);
	ck_assert(!digest_equal(&kept, &read));
	again.spent.us--;
	again.budget.tokens--;
	read = state_digest(&again);
	ck_assert(!digest_equal(&kept, &read));
	state_close(&again);
	buffer_close(&bytes);
	fixture_done(&f, "/do/2/e@1", 1, &done);
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	ck_assert(json_equal(json_get(f.entries[f.count - 1].data, "spent"), fixture_json(&f, "{\"tokens\":5000000047,\"us\":60009}")));
	check_equal(&f);
	fixture_close(&f);
}
END_TEST

/* What an attempt spent stands in the entry of its end, good or bad, is decided again as it was, and is not there where nothing was sent. At its end a run says the sum. */
START_TEST(what_was_spent_is_said)
{
	struct fixture f;
	const struct outcome failed = {.failure = FAILURE_STALLED, .retry_attempts = 3, .spent = {"m", 7, 8}}, unsent = {.failure = FAILURE_UNREACHABLE, .retry_attempts = 3};
	struct outcome done = {.ok = true, .spent = {"m", 20, 30000}};
	const char *const expected[] = {"{\"runtime\":\"m\",\"tokens\":7,\"us\":8}", "null", "{\"runtime\":\"m\",\"tokens\":20,\"us\":30000}"};
	size_t ends = 0;

	fixture_open(&f, "[{\"c\":{" CALL "}}]");
	done.output = fixture_json(&f, "1");
	fixture_submit(&f, "{}");
	fixture_done(&f, "/do/0/c@1", 1, &failed);
	f.wall_ms += 60000;
	fixture_simple(&f, TRIGGER_DEADLINE);
	fixture_done(&f, "/do/0/c@1", 2, &unsent);
	f.wall_ms += 60000;
	fixture_simple(&f, TRIGGER_DEADLINE);
	fixture_done(&f, "/do/0/c@1", 3, &done);
	ck_assert_int_eq(f.state.status, RUN_COMPLETED);
	for (size_t i = 0; i < f.count; i++) {
		const struct json *spent = json_get(f.entries[i].data, "spent");

		if (f.entries[i].kind != ENTRY_ATTEMPT_SUCCEEDED && f.entries[i].kind != ENTRY_ATTEMPT_FAILED) {
			ck_assert(f.entries[i].kind == ENTRY_RUN_COMPLETED ? json_equal(spent, fixture_json(&f, "{\"tokens\":27,\"us\":30008}")) : spent == NULL);
			continue;
		}
		ck_assert_uint_lt(ends, COUNT_OF(expected));
		ck_assert_msg(spent ? json_equal(spent, fixture_json(&f, expected[ends])) : strcmp(expected[ends], "null") == 0, "end %zu", ends);
		ends++;
	}
	ck_assert_uint_eq(ends, COUNT_OF(expected));
	check_equal(&f);
	fixture_close(&f);
}
END_TEST

/* What the writer adds to a fact, and the run's own measurements, are no difference. */
START_TEST(measurements_do_not_count)
{
	struct fixture f;

	drive(&f);
	struct digest record = digest_of(BYTES_OF("x"));
	json_set_digest(&f.arena, f.entries[f.count - 1].data, "record", &record);
	check_equal(&f);
	fixture_close(&f);
}
END_TEST

/* The first difference is named: entry, task, what was recorded and what is decided. */
START_TEST(differences_are_found)
{
	struct fixture f;

	drive(&f);
	for (size_t i = 1; i < f.count; i++) { /* each entry in turn claims another output, with, key or error */
		struct json *kept = f.entries[i].data;
		struct digest other = digest_of(BYTES_OF("other"));
		static const char *const names[] = {"output", "with", "key", "input"};
		for (size_t k = 0; k < COUNT_OF(names); k++) {
			if (!json_get(kept, names[k]))
				continue;
			f.entries[i].data = json_copy(&f.arena, kept);
			if (strcmp(names[k], "key") == 0)
				json_set_text(&f.arena, f.entries[i].data, "key", "0000");
			else
				json_set_digest(&f.arena, f.entries[i].data, names[k], &other);
			struct replay_result result = {.equal = true};
			const struct decide_context context = {"test.example/log", "1.2.3", {NULL, NULL}};
			struct error error = {0};
			int rc = replay_run(&f.arena, f.entries, f.count, f.definition, &context, &result, &error);
			ck_assert(rc != 0 || !result.equal);
			if (rc == 0)
				ck_assert_uint_le(result.seq, f.entries[i].seq);
		}
		f.entries[i].data = kept;
	}
	check_equal(&f);

	/* Another definition decides otherwise. */
	struct definition *kept = f.definition;
	struct fixture other;
	fixture_open(&other, "[{\"m\":{\"for\":{\"in\":\".l\"},\"metadata\":{\"concurrency\":1},\"do\":[{\"c\":{" CALL "}}]}},{\"s\":{\"set\":{\"r\":1}}}]");
	f.definition = other.definition;
	struct replay_result result = replay(&f, f.count);
	ck_assert(!result.equal);
	ck_assert_ptr_nonnull(result.expected);
	f.definition = kept;
	fixture_close(&other);
	fixture_close(&f);
}
END_TEST

/* A journal that stops in the middle of a decision, a value that is gone, and entries that are no run. */
START_TEST(damaged_recordings)
{
	struct fixture f;
	const struct decide_context context = {"test.example/log", "1.2.3", {NULL, NULL}};
	struct replay_result result;
	struct error error = {0};

	drive(&f);
	result = replay(&f, 2);
	ck_assert(!result.equal);
	ck_assert(strstr(result.why, "ends before") != NULL);
	ck_assert_int_eq(replay_run(&f.arena, f.entries + 1, f.count - 1, f.definition, &context, &result, &error), ERR_CORRUPT);
	ck_assert_int_eq(replay_run(&f.arena, f.entries, 0, f.definition, &context, &result, &error), ERR_CORRUPT);
	for (size_t i = 0; i < f.count; i++)
		for (size_t k = 0; k < f.entries[i].value_count; k++) {
			struct entry_value whole = f.entries[i].values[k];
			f.entries[i].values[k].bytes = (struct bytes){0}; /* erased */
			int rc = replay_run(&f.arena, f.entries, f.count, f.definition, &context, &result, &error);
			ck_assert(rc != 0 || !result.equal || result.entries == f.count); /* never a stop of the process */
			f.entries[i].values[k] = whole;
		}
	check_equal(&f);
	fixture_close(&f);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("workflow-replay", long_runs_are_replayed_in_windows, results_are_read, completed_runs_replay, what_waits_is_compared, other_ends_replay, open_runs_replay, measurements_do_not_count, budgets_are_kept, what_was_spent_is_said, differences_are_found, damaged_recordings)
