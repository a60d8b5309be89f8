/* The simulated activities. How an attempt ends is a hash of (seed, idempotency key, attempt), when it ends is the world's
 * randomness: a crash does not change what a peer would have answered. */
#include "tests/simulation/simulation.h"

#include <stdlib.h>
#include <string.h>

enum { CHANCE_DOUBLED = 60, CHANCE_STALE = 500, ECHO_US = 3000000, ECHO_TRIES_MAX = 40,
       CHANCE_REFUSED = 25, CHANCE_FAILED = 110, CHANCE_FATAL = 12, ANSWER_LIST_MAX = 6, SECTIONS_MAX = 10 };

static void attempt_end(struct world *world, void *arg);

static uint64_t attempt_hash(const struct world *world, const struct activity *activity, uint64_t salt)
{
	uint64_t hash = random_mix(world->seed + activity->attempt * 0x9e37u + salt);

	for (const char *c = activity->idempotency_key; *c; c++)
		hash = random_mix(hash ^ (uint8_t)*c);
	return hash;
}

/* Runs differ in how rough their surroundings are: one in three meets nothing that cannot be retried. */
static bool is_calm(const struct attempt *attempt)
{
	return random_mix(attempt->run->seq_count ? attempt->run->seqs[0] : 0) % 3 == 0;
}

static void tell_policy(const struct attempt *attempt)
{
	const struct activity_result *result = &attempt->activity->result;

	attempt->step->allowed = result->retry_attempts;
	attempt->step->floor_ms = result->retry_floor_ms;
	attempt->step->cap_ms = result->retry_cap_ms;
	attempt->step->after_ms = result->retry_after_ms;
}

/* Children are the daemon's own: nothing of them is simulated but what they read. */
static struct attempt *attempt_of(struct world *world, const struct activity *activity)
{
	LIST_EACH(link, &world->attempts) {
		struct attempt *attempt = CONTAINER_OF(link, struct attempt, link);
		if (attempt->activity == activity)
			return attempt;
	}
	return NULL;
}

static void drop_child(struct attempt *attempt)
{
	list_remove(&attempt->link);
	attempt->step->in_flight = NULL;
	budgets_settle(attempt);
	arena_close(&attempt->arena);
	free(attempt);
}

static void on_child_done(struct activity *activity)
{
	struct attempt *attempt = activity->owner;

	tell_policy(attempt);
	activity->owner = attempt->owner;
	activity->on_done = attempt->on_done;
	drop_child(attempt);
	activity->on_done(activity);
}

/* Of one in eight nothing was sent. */
static void choose_spent(struct attempt *attempt)
{
	const struct activity *activity = attempt->activity;
	struct random random = {attempt->hash ^ 2};

	if ((activity->kind == ACTIVITY_INFERENCE || activity->kind == ACTIVITY_EXTRACT || activity->kind == ACTIVITY_GATE) && !random_chance(&random, 125))
		attempt->spends = (struct spent){"model", (int64_t)random_below(&random, 5000), (int64_t)random_below(&random, 3000000)};
}

static int start_child(struct attempt *attempt, struct error *error)
{
	struct world *world = attempt->world;
	struct activity *activity = attempt->activity;
	int code = children_start(&world->children, activity, error);

	if (code != 0) { /* the engine's own policy */
		attempt->step->allowed = code == ERR_BUSY ? 1000 : 1;
		attempt->step->floor_ms = 500;
		attempt->step->cap_ms = 60000;
		attempt->step->after_ms = 0;
		drop_child(attempt);
		world->counters.refused++;
		return code;
	}
	attempt->owner = activity->owner;
	attempt->on_done = activity->on_done;
	activity->owner = attempt;
	activity->on_done = on_child_done;
	list_add_last(&world->attempts, &attempt->link);
	attempt->step->in_flight = attempt;
	return 0;
}

int attempt_start(void *arg, struct activity *activity, struct error *error)
{
	struct world *world = arg;
	struct attempt *attempt = memory_zero(sizeof *attempt);

	arena_init(&attempt->arena);
	list_init(&attempt->link);
	attempt->world = world;
	attempt->activity = activity;
	attempt->run = world_run_model(world, activity->run_id);
	if (!attempt->run || !step_id_parse(&attempt->arena, activity->step_id, &attempt->id))
		broken(world, attempt->run, "an activity of an unknown run or step: %s %s", activity->run_id, activity->step_id);
	if (!attempt->run->created)
		broken(world, attempt->run, "attempt %u of %s leaves, but its run is not in the journal", activity->attempt, activity->step_id);
	attempt->task = definition_find_task(attempt->run->definition, attempt->id.reference);
	attempt->step = model_step(attempt->run, activity->step_id, false);
	attempt->hash = attempt_hash(world, activity, 0);
	attempt->step->spent = (struct spent){0};
	attempt->started_us = world->now_us;
	check_start(world, attempt);
	budgets_check_start(attempt);
	world->counters.attempts++;

	if (activity->kind == ACTIVITY_RUN)
		return start_child(attempt, error);
	struct random random = {attempt->hash};
	if (world->faults && random_chance(&random, CHANCE_REFUSED)) {
		bool busy = is_calm(attempt) || random_chance(&random, 900);
		attempt->step->allowed = busy ? 1000 : 1; /* the engine's own policy for a runtime that takes nothing more */
		attempt->step->floor_ms = 500;
		attempt->step->cap_ms = 60000;
		attempt->step->after_ms = 0;
		arena_close(&attempt->arena);
		free(attempt);
		world->counters.refused++;
		return busy ? error_set(error, ERR_BUSY, "the runtime's queue is full") : error_set(error, ERR_NOT_FOUND, "no such runtime");
	}
	activity->work = attempt;
	arena_init(&activity->arena);
	list_add_last(&world->attempts, &attempt->link);
	attempt->step->in_flight = attempt;

	choose_spent(attempt);
	budgets_begin(attempt);
	return 0;
}

void attempt_plan_end(struct attempt *attempt, uint64_t delay_us)
{
	attempt->event = world_event(attempt->world, delay_us, true, attempt_end, attempt);
}

static void on_counted(struct world *world, void *arg)
{
	(void)world;
	budgets_on_counted(arg);
}

/* Nothing holds it up. */
void attempt_go_on(struct attempt *attempt)
{
	struct world *world = attempt->world;

	if (attempt->counts_prompt && !attempt->is_counted) {
		attempt->event = world_event(world, random_between(&world->random, 200, 20000), true, on_counted, attempt);
		return;
	}
	attempt_plan_end(attempt, random_chance(&world->random, 20) ? random_between(&world->random, 1000000, 40000000) : random_between(&world->random, 200, 120000));
}

void attempt_cancel(void *arg, struct activity *activity)
{
	struct world *world = arg;
	struct attempt *attempt = activity->kind == ACTIVITY_RUN ? attempt_of(world, activity) : activity->work;

	if (attempt->cancelled)
		broken(world, attempt->run, "step %s is cancelled twice", activity->step_id);
	attempt->cancelled = true;
	if (activity->kind == ACTIVITY_RUN)
		children_cancel(&world->children, activity);
	else if (budgets_withdraw(attempt))
		attempt_plan_end(attempt, random_below(&world->random, 3000));
}

/* --- answers that nobody waits for any more -------------------------------------------------------------------------- */

/* A peer that answers once more, or that answers an attempt from before a crash: what is decided of it is nothing. */
struct echo {
	struct run_model *run;
	char *step_id;
	unsigned attempt, tries;
	bool is_stale; /* else it is the answer that was taken, again */
};

static void free_echo(struct echo *echo)
{
	free(echo->step_id);
	free(echo);
}

static void check_echo(struct world *world, const struct echo *echo)
{
	const struct decide_context context = {.origin = world->journal.origin, .daemon_version = "1.2.3"};
	struct arena arena;
	struct state state;
	struct decision decision;
	struct error error = {0};
	size_t count;

	arena_init(&arena);
	const struct entry *entries = journal_entries(world, echo->run, &arena, VALUE_INLINE_MAX, &count);
	state_init(&state, echo->run->definition);
	for (size_t i = 0; i < count; i++)
		if (workflow_apply(&state, &entries[i], &error) != 0)
			broken(world, echo->run, "%s", error.message);
	state_settle(&state);
	struct outcome outcome = {.ok = true, .output = json_object(&arena), .record = json_object(&arena), .started_ms = world_wall_ms(world), .finished_ms = world_wall_ms(world)};
	struct trigger trigger = {.kind = TRIGGER_ACTIVITY_DONE, .wall_ms = world_wall_ms(world), .step_id = echo->step_id, .attempt = echo->attempt, .outcome = &outcome};
	decision_init(&decision);
	workflow_decide(&state, &trigger, 1, &context, &decision);
	if (decision.entry_count > 0 || decision.effect_count > 0 || decision.need_count > 0)
		broken(world, echo->run, "attempt %u of %s is over, but another answer to it brings about %zu entries, the first %s", echo->attempt, echo->step_id, decision.entry_count,
		       decision.entry_count > 0 ? entry_kind_name(decision.entries[0].kind) : "");
	*(echo->is_stale ? &world->counters.stale : &world->counters.doubled) += 1;
	decision_close(&decision);
	state_close(&state);
	arena_close(&arena);
}

static void on_echo(struct world *world, void *arg)
{
	struct echo *echo = arg;
	const struct step_model *step = model_step(echo->run, echo->step_id, false);

	/* As long as the journal says that it is under way it is no echo: the first answer has to be durable, or the attempt called interrupted. */
	if (step && step->open && step->attempt == echo->attempt && ++echo->tries < ECHO_TRIES_MAX) {
		world_at(world, random_below(&world->random, ECHO_US), false, on_echo, echo);
		return;
	}
	if (!echo->run->ended && step && !(step->open && step->attempt == echo->attempt))
		check_echo(world, echo);
	free_echo(echo);
}

static void plan_echo(const struct attempt *attempt, bool is_stale)
{
	struct world *world = attempt->world;
	struct echo *echo = memory_zero(sizeof *echo);

	echo->run = attempt->run;
	echo->step_id = memory_text(attempt->activity->step_id);
	echo->attempt = attempt->activity->attempt;
	echo->is_stale = is_stale;
	world_at(world, random_below(&world->random, ECHO_US), false, on_echo, echo);
}

void attempt_close(void *arg, struct activity *activity)
{
	struct world *world = arg;
	struct attempt *attempt = activity->work;

	if (activity->kind == ACTIVITY_RUN)
		attempt = attempt_of(world, activity);
	if (activity->kind == ACTIVITY_RUN && attempt) /* a crash took it away */
		drop_child(attempt);
	budgets_forget(world, activity);
	if (activity->kind == ACTIVITY_RUN) {
		arena_close(&activity->arena);
		return;
	}
	if (!attempt)
		return; /* refused at the start */
	if (!list_empty(&attempt->link)) {
		/* Only a crash takes an activity away that has not answered; its event dies with the engine. Its peer may answer all the same. */
		if (random_chance(&world->random, CHANCE_STALE))
			plan_echo(attempt, true);
		list_remove(&attempt->link);
		world_cancel_event(world, attempt->event);
		attempt->step->in_flight = NULL;
	}
	arena_close(&activity->arena);
	arena_close(&attempt->arena);
	free(attempt);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static struct json *random_text(struct arena *arena, struct random *random, size_t len)
{
	char *bytes = arena_alloc(arena, len + 1);

	for (size_t i = 0; i < len; i++)
		bytes[i] = (char)('a' + random_below(random, 26));
	bytes[len] = 0;
	return json_text(arena, bytes);
}

static struct json *numbers(struct arena *arena, struct random *random, size_t count)
{
	struct json *list = json_array(arena);

	for (size_t i = 0; i < count; i++)
		json_add(arena, list, json_number(arena, (double)random_below(random, 100)));
	return list;
}

/* What an ordinary call gives: the usual object (programs.c), now and then large. */
static struct json *answer(struct arena *arena, struct random *random)
{
	struct json *json = json_object(arena);
	uint64_t dice = random_below(random, 100);

	json_set(arena, json, "list", numbers(arena, random, random_below(random, ANSWER_LIST_MAX)));
	json_set(arena, json, "short", numbers(arena, random, random_below(random, 3)));
	json_set_number(arena, json, "n", (double)random_below(random, 10));
	json_set(arena, json, "doc", random_text(arena, random, dice < 80 ? 40 : dice < 94 ? 5000 : 17000));
	return json;
}

static struct json *digest_object(struct arena *arena, const char *text)
{
	struct json *json = json_object(arena);
	struct digest digest = digest_of(bytes_text(text));

	json_set_digest(arena, json, "sha256", &digest);
	return json_get(json, "sha256");
}

/* {name, digest: {sha256}} and the like. */
static struct json *described(struct arena *arena, const char *name_key, const char *name, const char *of)
{
	struct json *json = json_object(arena);

	json_set_text(arena, json, name_key, name);
	json_set(arena, json, "digest", digest_object(arena, of));
	return json;
}

static const struct json *evidence(struct arena *arena, const struct activity *activity)
{
	struct json *json = json_object(arena), *sampling = json_object(arena), *runtime = json_object(arena), *engine = json_object(arena);
	struct json *model = json_object(arena), *class = json_object(arena), *source = described(arena, "name", "doc", "document"), *configuration = json_object(arena);

	json_set_text(arena, sampling, "seed", "42");
	json_set_number(arena, sampling, "temperature", 0);
	json_set_text(arena, engine, "name", "simulation");
	json_set_text(arena, engine, "version", "1");
	json_set(arena, runtime, "engine", engine);
	json_set_text(arena, runtime, "basis", "declared");
	json_set_text(arena, model, "name", "model");
	json_set_text(arena, model, "basis", "declared");
	json_set_text(arena, class, "class", "unmeasured");
	json_set(arena, configuration, "digest", digest_object(arena, "configuration"));
	json_set(arena, json, "source", source);
	json_set(arena, json, "prompt", described(arena, "name", "prompt", "prompt"));
	json_set(arena, json, "schema", described(arena, "name", "facts", "schema"));
	json_set(arena, json, "sampling", sampling);
	json_set(arena, json, "request", described(arena, "mediaType", "application/json", activity->idempotency_key));
	json_set(arena, json, "model", model);
	json_set(arena, json, "configuration", configuration);
	json_set(arena, json, "reproducibility", class);
	json_set(arena, json, "runtime", runtime);
	json_set(arena, json, "response", described(arena, "mediaType", "application/json", activity->step_id));
	json_set_text(arena, json, "finishReason", "stop");
	json_set_number(arena, json, "promptTokens", 100);
	json_set_number(arena, json, "completionTokens", 20);
	json_set_text(arena, json, "runtimeName", "model");
	json_set_boolean(arena, json, "simulated", true);
	return json;
}

static const struct json *candidates(struct arena *arena, struct random *random, size_t count)
{
	struct json *list = json_array(arena);

	for (size_t i = 0; i < count; i++) {
		struct json *candidate = json_object(arena), *value = json_object(arena), *checks = json_array(arena);
		json_set_text(arena, value, "subject", "it");
		json_set_text(arena, value, "predicate", "says");
		json_set(arena, value, "object", random_text(arena, random, 1 + random_below(random, 2))); /* equal ones happen */
		json_set(arena, candidate, "value", value);
		json_set(arena, candidate, "quote", random_text(arena, random, 12));
		json_set_boolean(arena, candidate, "accepted", random_chance(random, 800));
		json_set(arena, candidate, "checks", checks);
		struct digest digest = digest_of(BYTES_OF("document"));
		char text[DIGEST_TEXT_LEN + 1];
		digest_text(&digest, text);
		json_set_text(arena, candidate, "document", text);
		json_add(arena, list, candidate);
	}
	return list;
}

static void give_sections(struct activity *activity, struct random *random)
{
	struct arena *arena = &activity->arena;
	struct json *output = json_object(arena), *plan = json_object(arena), *sections = json_array(arena);
	const char *text = json_get_text(activity->with, "document");

	json_set_text(arena, plan, "runtime", "model");
	json_set_text(arena, plan, "onFailure", json_get_text(activity->with, "onFailure"));
	json_set(arena, plan, "schema", json_copy(arena, json_get(activity->with, "schema")));
	if (random_chance(random, 200))
		json_set(arena, plan, "prompt", random_text(arena, random, 5000));
	uint64_t count = random_below(random, SECTIONS_MAX + 1);
	for (uint64_t i = 0; i < count; i++) {
		struct json *section = described(arena, "heading", "part", arena_printf(arena, "section %u", (unsigned)i));
		json_set_number(arena, section, "index", (double)i);
		json_add(arena, sections, section);
	}
	json_set(arena, output, "plan", plan);
	json_set(arena, output, "sections", sections);
	activity->result.output = output;
	if (text && *text) {
		activity->result.document = arena_bytes(arena, bytes_text(text));
		activity->result.document_media_type = "text/plain";
	}
}

static struct json *section_outcome(struct activity *activity, const char *status, const char *outcome)
{
	struct arena *arena = &activity->arena;
	struct json *output = json_copy(arena, json_get(activity->with, "section"));

	json_set_text(arena, output, "status", status);
	json_set_text(arena, output, "outcome", outcome);
	return output;
}

static void give_answer(struct activity *activity, struct random *random)
{
	switch (activity->kind) {
	case ACTIVITY_SECTIONS:
		give_sections(activity, random);
		break;
	case ACTIVITY_EXTRACT: {
		size_t count = random_below(random, 4);
		activity->result.facts = candidates(&activity->arena, random, count);
		activity->result.evidence = evidence(&activity->arena, activity);
		activity->result.output = section_outcome(activity, "completed", count ? "facts" : "empty");
		break;
	}
	case ACTIVITY_HTTP:
	case ACTIVITY_INFERENCE:
	case ACTIVITY_GATE:
	case ACTIVITY_RUN:
	case ACTIVITY_KIND_COUNT:
		activity->result.output = answer(&activity->arena, random);
		break;
	}
	activity->result.ok = true;
}

static void give_failure(struct activity *activity, enum failure_class failure, struct random *random)
{
	struct activity_result *result = &activity->result;
	const char *on_failure = json_get_text(json_get(activity->with, "plan"), "onFailure");

	result->failure = failure;
	snprintf(result->detail, sizeof result->detail, "simulated: %s", failure_name(failure));
	result->status = failure == FAILURE_RATE_LIMITED ? 429 : failure == FAILURE_RUNTIME_ERROR ? 503 : 0;
	result->retry_attempts = (unsigned)random_between(random, 1, 6);
	result->retry_floor_ms = (int64_t)random_between(random, 0, 400);
	result->retry_cap_ms = (int64_t)random_between(random, 100, 20000);
	if (failure == FAILURE_RATE_LIMITED && random_chance(random, 500))
		result->retry_after_ms = (int64_t)random_between(random, 100, 30000);
	if (activity->kind == ACTIVITY_EXTRACT && failure != FAILURE_BUDGET && on_failure && strcmp(on_failure, "continue") == 0)
		result->output = section_outcome(activity, "failed", failure_name(failure));
}

static void fill_times(struct world *world, struct attempt *attempt)
{
	struct activity_result *result = &attempt->activity->result;
	int64_t total = (int64_t)(world->now_us - attempt->started_us);
	struct random random = {attempt->hash ^ 1};

	result->stages.queue = (int64_t)random_below(&random, (uint64_t)total / 2 + 1);
	result->queued_us = (uint64_t)result->stages.queue;
	result->stages.connect = (total - result->stages.queue) / 4;
	result->stages.generation = (total - result->stages.queue) / 2;
	result->active_from_us = attempt->started_us + result->queued_us;
	result->active_until_us = result->active_from_us + (uint64_t)(result->stages.connect + result->stages.generation);
	result->finished_ms = world_wall_ms(world);
	result->started_ms = result->finished_ms - total / 1000;
	result->record = json_object(&attempt->activity->arena);
	json_set_text(&attempt->activity->arena, result->record, "model", "model");
	result->request = arena_bytes(&attempt->activity->arena, bytes_text(attempt->activity->idempotency_key));
}

static void attempt_end(struct world *world, void *arg)
{
	struct attempt *attempt = arg;
	struct activity *activity = attempt->activity;
	struct random random = {attempt_hash(world, activity, 77)};
	static const enum failure_class passing[] = {FAILURE_RATE_LIMITED, FAILURE_UNREACHABLE, FAILURE_STALLED, FAILURE_TIMED_OUT, FAILURE_OUT_OF_MEMORY,
						     FAILURE_RUNTIME_ERROR};
	static const enum failure_class lasting[] = {FAILURE_REFUSED, FAILURE_TRUNCATED, FAILURE_LOOPED, FAILURE_SCHEMA_INVALID, FAILURE_UNGROUNDED,
						     FAILURE_WRONG_MODEL, FAILURE_CONFIGURATION};

	if (attempt->interrupted && (attempt->cut_waiting || random_chance(&world->random, 800))) {
		give_failure(activity, FAILURE_INTERRUPTED, &random);
	} else if (attempt->refused) {
		give_failure(activity, FAILURE_BUDGET, &random);
		budget_explain(&activity->claim, attempt->wanted, activity->result.detail, sizeof activity->result.detail);
	} else if (attempt->cancelled && (attempt->cut_waiting || random_chance(&world->random, 500))) {
		give_failure(activity, FAILURE_CANCELLED, &random); /* else the answer was already there */
	} else if (!world->first_failure_done) { /* each seed retries at least once */
		give_failure(activity, FAILURE_RUNTIME_ERROR, &random);
		activity->result.retry_attempts = 3;
		world->first_failure_done = true;
	} else if (world->faults && random_chance(&random, CHANCE_FAILED)) {
		give_failure(activity, passing[random_below(&random, COUNT_OF(passing))], &random);
		if (is_calm(attempt))
			activity->result.retry_attempts = 20;
	} else if (!is_calm(attempt) && random_chance(&random, activity->kind == ACTIVITY_EXTRACT ? 8 * CHANCE_FATAL : CHANCE_FATAL)) {
		give_failure(activity, lasting[random_below(&random, COUNT_OF(lasting))], &random);
	} else {
		give_answer(activity, &random);
		activity->result.response = arena_bytes(&activity->arena, bytes_text(activity->step_id));
	}
	world->counters.late += attempt->cancelled && activity->result.ok;
	if (world->faults && random_chance(&world->random, CHANCE_DOUBLED))
		plan_echo(attempt, false);
	fill_times(world, attempt);
	activity->result.spent = attempt->step->spent = attempt->spends;
	tell_policy(attempt);
	list_remove(&attempt->link);
	attempt->step->in_flight = NULL;
	budgets_settle(attempt);
	activity->on_done(activity); /* frees both, at once or later */
}

void attempts_interrupt(struct world *world)
{
	LIST_EACH(link, &world->attempts) {
		struct attempt *attempt = CONTAINER_OF(link, struct attempt, link);
		if (attempt->activity->kind == ACTIVITY_RUN)
			continue;
		attempt->interrupted = true;
		budgets_withdraw(attempt);
		world_cancel_event(world, attempt->event);
		attempt->event = world_event(world, random_below(&world->random, 3000), true, attempt_end, attempt);
	}
}
