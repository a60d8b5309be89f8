/* What the tests of the engine's pure core share: a run driven by hand. Each trigger is decided, its entries are folded in as a commit
 * would do it, and kept as if read back from the journal. */
#pragma once

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"
#include "workflow/decide.h"

enum { FIXTURE_ENTRIES_MAX = 4096 };

struct fixture {
	struct arena arena;
	struct definition *definition;
	struct state state;
	struct entry entries[FIXTURE_ENTRIES_MAX]; /* all that was committed */
	size_t count;
	struct decision decision; /* the last one */
	bool undecided; /* it needs values: nothing was committed */
	uint64_t seq;
	int64_t wall_ms;
	const struct json *values[64]; /* for the value source */
	size_t value_count;
	struct {
		struct digest digest;
		const struct json *kept;
	} results[512]; /* of evaluations */
	size_t result_count;
	bool settle;
};

static inline const struct json *fixture_value(void *context, const struct digest *digest)
{
	struct fixture *f = context;

	for (size_t i = 0; i < f->value_count; i++) {
		struct digest have = json_digest(f->values[i]);
		if (digest_equal(&have, digest))
			return f->values[i];
	}
	for (size_t i = 0; i < f->result_count; i++)
		if (digest_equal(&f->results[i].digest, digest))
			return f->results[i].kept;
	return NULL;
}

static inline struct json *fixture_json(struct fixture *f, const char *text)
{
	struct error error = {0};
	struct json *json = json_parse(&f->arena, bytes_text(text), JSON_STRICT, NULL, &error);

	ck_assert_msg(json != NULL, "%s: %s", text, error.message);
	return json;
}

/* tasks: the JSON text of the definition's `do`. */
static inline void fixture_open(struct fixture *f, const char *tasks)
{
	struct problems problems;

	memset(f, 0, sizeof *f);
	arena_init(&f->arena);
	decision_init(&f->decision);
	problems_init(&problems);
	char *text = arena_printf(&f->arena, "{\"document\":{\"dsl\":\"1.0.3\",\"namespace\":\"test\",\"name\":\"it\",\"version\":\"1.0.0\"},\"do\":%s}", tasks);
	f->definition = definition_load(bytes_text(text), TEXT_JSON, &problems);
	ck_assert_msg(f->definition != NULL, "%s", problems.count ? problems.items[0].message : "?");
	problems_close(&problems);
	state_init(&f->state, f->definition);
	f->wall_ms = 1790000000000;
	f->seq = 10;
}

static inline void fixture_close(struct fixture *f)
{
	decision_close(&f->decision);
	state_close(&f->state);
	definition_free(f->definition);
	arena_close(&f->arena);
}

static inline struct decide_context fixture_context(struct fixture *f)
{
	return (struct decide_context){.origin = "test.example/log", .daemon_version = "1.2.3", .values = {fixture_value, f}, .settle = f->settle};
}

/* Decide; commit what comes. */
static inline void fixture_trigger(struct fixture *f, struct trigger *trigger)
{
	struct decide_context context = fixture_context(f);
	struct error error = {0};

	decision_close(&f->decision);
	decision_init(&f->decision);
	trigger->wall_ms = f->wall_ms;
	workflow_decide(&f->state, trigger, 1, &context, &f->decision);
	f->undecided = f->decision.need_count > 0;
	for (size_t i = 0; i < f->decision.entry_count; i++) {
		struct entry *entry = &f->decision.entries[i];
		ck_assert_uint_lt(f->count, FIXTURE_ENTRIES_MAX);
		entry->seq = f->seq++;
		ck_assert_msg(workflow_apply(&f->state, entry, &error) == 0, "%s", error.message);
		struct entry *kept = &f->entries[f->count++];
		*kept = *entry;
		kept->data = json_copy(&f->arena, entry->data);
		for (size_t k = 0; k < entry->value_count; k++)
			kept->values[k].bytes = arena_bytes(&f->arena, entry->values[k].bytes);
	}
	state_settle(&f->state);
}

/* The undecided decision's need gets this answer: [value] or a text. */
static inline void fixture_answer(struct fixture *f, size_t need, const char *kept)
{
	ck_assert_uint_lt(need, f->decision.need_count);
	ck_assert_ptr_nonnull(f->decision.needs[need].evaluation);
	ck_assert_uint_lt(f->result_count, COUNT_OF(f->results));
	f->results[f->result_count].digest = f->decision.needs[need].digest;
	f->results[f->result_count++].kept = fixture_json(f, kept);
}

static inline void fixture_submit(struct fixture *f, const char *input)
{
	struct trigger trigger = {.kind = TRIGGER_SUBMITTED, .run_id = "r1", .input = json_print_arena(fixture_json(f, input), &f->arena)};

	fixture_trigger(f, &trigger);
}

static inline void fixture_simple(struct fixture *f, enum trigger_kind kind)
{
	struct trigger trigger = {.kind = kind};

	fixture_trigger(f, &trigger);
}

static inline void fixture_done(struct fixture *f, const char *step, unsigned attempt, const struct outcome *outcome)
{
	struct trigger trigger = {.kind = TRIGGER_ACTIVITY_DONE, .step_id = step, .attempt = attempt, .outcome = outcome};

	fixture_trigger(f, &trigger);
}

static inline void fixture_succeed(struct fixture *f, const char *step, unsigned attempt, const char *output)
{
	struct outcome outcome = {.ok = true, .output = fixture_json(f, output)};

	fixture_done(f, step, attempt, &outcome);
}

static inline void fixture_fail(struct fixture *f, const char *step, unsigned attempt, enum failure_class failure, unsigned attempts)
{
	struct outcome outcome = {.failure = failure, .detail = "it failed", .retry_attempts = attempts, .retry_floor_ms = 100, .retry_cap_ms = 1000};

	fixture_done(f, step, attempt, &outcome);
}

/* The last decision's entries, as "task.started /do/0/a@1, attempt.started /do/0/a@1". */
static inline const char *fixture_said(struct fixture *f)
{
	struct buffer text;

	buffer_init(&text, 1 << 20);
	for (size_t i = 0; i < f->decision.entry_count; i++) {
		const char *step = json_get_text(f->decision.entries[i].data, "stepId");
		buffer_printf(&text, "%s%s%s%s", i ? ", " : "", entry_kind_name(f->decision.entries[i].kind), step ? " " : "", step ? step : "");
	}
	const char *copy = arena_text(&f->arena, buffer_text(&text));
	buffer_close(&text);
	return copy;
}

/* The last decision's effects, as "start /do/0/a@1 1, end". */
static inline const char *fixture_effects(struct fixture *f)
{
	static const char *const words[] = {[EFFECT_START_ACTIVITY] = "start", [EFFECT_CANCEL_ACTIVITY] = "cancel", [EFFECT_CONTINUE] = "continue", [EFFECT_RUN_ENDED] = "end"};
	struct buffer text;

	buffer_init(&text, 1 << 20);
	for (size_t i = 0; i < f->decision.effect_count; i++) {
		const struct effect *effect = &f->decision.effects[i];
		buffer_printf(&text, "%s%s", i ? ", " : "", words[effect->kind]);
		if (effect->step_id)
			buffer_printf(&text, " %s %u", effect->step_id, effect->attempt);
	}
	const char *copy = arena_text(&f->arena, buffer_text(&text));
	buffer_close(&text);
	return copy;
}

static inline const char *fixture_print(struct fixture *f, const struct value *value)
{
	return value && value->bytes.data ? (const char *)arena_bytes(&f->arena, value->bytes).data : "(none)";
}
