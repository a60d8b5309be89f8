/* What tests of control flow share: what was recorded is checked against a replay and against a second fold; restarts; time that only the
 * test moves. Behind fixture.h. */
#pragma once

#include "tests/unit/workflow/fixture.h"

#include "workflow/replay.h"

#define CALL "\"call\":\"http\",\"with\":{\"method\":\"get\",\"endpoint\":\"http://x/\"}"

/* What was recorded replays to the same entries, and folds to the same state again. */
static inline void check_record(struct fixture *f)
{
	struct replay_result result;
	struct error error = {0};
	struct arena arena;
	struct state again;
	const struct decide_context context = fixture_context(f);

	arena_init(&arena);
	ck_assert_msg(replay_run(&arena, f->entries, f->count, f->definition, &context, &result, &error) == 0, "%s", error.message);
	ck_assert_msg(result.equal, "seq %llu: %s\nexpected %s\ngot %s", (unsigned long long)result.seq, result.why, result.expected ? result.expected : "-",
		      result.got ? result.got : "-");
	ck_assert_uint_eq(result.entries, f->count);
	state_init(&again, f->definition);
	for (size_t i = 0; i < f->count; i++)
		ck_assert_msg(workflow_apply(&again, &f->entries[i], &error) == 0, "%s", error.message);
	state_settle(&again);
	struct digest is = state_digest(&again), was = state_digest(&f->state);
	ck_assert(digest_equal(&is, &was));
	state_close(&again);
	arena_close(&arena);
}

/* A value of the run, whichever entry brought it: the state keeps only what it still needs. */
static inline const char *print_value(struct fixture *f, const struct value *value)
{
	for (size_t i = 0; value && i < f->count; i++)
		for (size_t k = 0; k < f->entries[i].value_count; k++)
			if (digest_equal(&f->entries[i].values[k].digest, &value->digest))
				return (const char *)f->entries[i].values[k].bytes.data;
	return "(none)";
}

/* Forget the state and fold what was committed once more, as a restart does; it has to be the same state. Then tell it so. */
static inline void restart(struct fixture *f)
{
	struct digest before = state_digest(&f->state), after;
	struct error error = {0};

	state_close(&f->state);
	state_init(&f->state, f->definition);
	for (size_t i = 0; i < f->count; i++)
		ck_assert_msg(workflow_apply(&f->state, &f->entries[i], &error) == 0, "%s", error.message);
	state_settle(&f->state);
	after = state_digest(&f->state);
	ck_assert(digest_equal(&before, &after));
	fixture_simple(f, TRIGGER_RESTARTED);
}

/* Time goes on to the next deadline. */
static inline int64_t go_on(struct fixture *f)
{
	int64_t before = f->wall_ms;

	f->wall_ms = state_next_deadline_ms(&f->state);
	ck_assert_int_gt(f->wall_ms, 0);
	fixture_simple(f, TRIGGER_DEADLINE);
	ck_assert_uint_gt(f->decision.entry_count, 0);
	return f->wall_ms - before;
}
