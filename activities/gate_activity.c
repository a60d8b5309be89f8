/* One request of a reproducibility gate (workflow/base/reproducibility.h): the same request again and again, in the solo lane of its runtime. What
 * came back is told, not judged: an answer that cannot be had is a result, too. Loop thread. The request is inference.c's.
 * Start at gate_activity_start(), then on_done(). */
#include <stdlib.h>
#include <string.h>

#include "activities/candidates.h"
#include "activities/inference.h"
#include "activities/loading.h"
#include "activities/supervisor.h"
#include "activities/text.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"
#include "workflow/base/reproducibility.h"

struct gate_work {
	struct work work;
	struct inference inference;
	const struct json *plan, *ask;
	bool seeded;
};

static bool cancel_work(struct work *work)
{
	inference_cancel(&CONTAINER_OF(work, struct gate_work, work)->inference);
	return true;
}

static void free_work(struct work *work)
{
	struct gate_work *own = CONTAINER_OF(work, struct gate_work, work);

	inference_close(&own->inference);
	free(own);
}

static struct json *make_output(struct gate_work *own, const char *outcome)
{
	struct arena *arena = &own->work.activity->arena;
	struct json *output = json_object(arena);

	json_set(arena, output, "phase", json_copy(arena, json_get(own->ask, "phase")));
	json_set(arena, output, "index", json_copy(arena, json_get(own->ask, "index")));
	if (own->inference.slot.solo_width > 0) /* what was, not what might have been: there may be fewer requests than the width */
		json_set_number(arena, output, "inFlight", own->inference.slot.in_flight);
	json_set_text(arena, output, "outcome", outcome);
	json_set_text(arena, output, "runtime", own->inference.runtime->config.name);
	json_set_boolean(arena, output, "schema", own->inference.schema != NULL);
	if (own->inference.salt != NULL) /* what was done for this one is in its attempt's record */
		json_set_text(arena, output, "cacheBypass", own->inference.runtime->adapter->bypass.name);
	return output;
}

static void set_digest(struct arena *arena, struct json *output, const char *name, const struct digest *digest)
{
	char text[DIGEST_TEXT_LEN + 1];

	digest_text(digest, text);
	json_set_text(arena, output, name, text);
}

/* At most so many bytes of the answer, whole characters. */
static void set_text(struct arena *arena, struct json *output, struct bytes text, size_t max)
{
	size_t len = text.len;

	if (len > max) {
		for (len = max; len > 0 && (text.data[len] & 0xC0) == 0x80; len--)
			;
		json_set_number(arena, output, "textLeftOut", (double)(text.len - len));
	}
	json_set(arena, output, "text", json_text_len(arena, (const char *)text.data, len));
}

static struct json *describe_answer(struct gate_work *own)
{
	const struct inference *inference = &own->inference;
	const struct answer *answer = &inference->answer;
	struct arena *arena = &own->work.activity->arena;
	struct json *output = make_output(own, "answered"), *json;
	struct bytes text = buffer_bytes(&answer->text);
	struct digest digest = digest_of(text), sampling = json_digest(inference->sampling_sent);

	set_digest(arena, output, "textDigest", &digest);
	set_text(arena, output, text, gate_text_max(own->plan));
	json = json_parse(arena, text_take_fence_off(text, NULL), JSON_STRICT, NULL, NULL);
	if (json != NULL) {
		digest = json_digest(json);
		set_digest(arena, output, "jsonDigest", &digest);
	}
	if (answer->completion_tokens >= 0)
		json_set_number(arena, output, "tokens", answer->completion_tokens);
	if (answer->cached_tokens >= 0)
		json_set_number(arena, output, "cachedTokens", answer->cached_tokens);
	json_set_text(arena, output, "finishReason", answer->finish_reason);
	json_set_text(arena, output, "model", answer->model != NULL ? answer->model : inference->configuration->model);
	set_digest(arena, output, "configuration", &inference->configuration->digest);
	set_digest(arena, output, "sampling", &sampling);
	json_set_text(arena, output, "instance", inference->instance.id[0] != '\0' ? inference->instance.id : NULL);
	json_set_text(arena, output, "instanceBasis", inference->instance.basis);
	if (own->seeded)
		json_set_boolean(arena, output, "seeded", true);
	if (inference->configuration->simulated)
		json_set_boolean(arena, output, "simulated", true);
	return output;
}

static void on_done(struct inference *inference)
{
	struct gate_work *own = CONTAINER_OF(inference, struct gate_work, inference);
	struct activity *activity = own->work.activity;
	char detail[ACTIVITY_DETAIL_MAX];

	if (inference->failure == FAILURE_NONE) {
		stage_enter(&own->work, &activity->result.stages.parse);
		activity->result.output = describe_answer(own);
		activity->result.evidence = inference_evidence(inference, &activity->arena);
		work_finish(&own->work, FAILURE_NONE, "%s", "");
		return;
	}
	/* Where no attempt is left this is what the ask gave; a budget says nothing of the runtime, so the run stops. */
	if (inference->failure != FAILURE_BUDGET) {
		struct json *output = make_output(own, failure_name(inference->failure));
		json_set_text(&activity->arena, output, "detail", inference->detail);
		activity->result.output = output;
	}
	detail_set(detail, "%s", inference->detail); /* it lies in what is freed now */
	work_finish(&own->work, inference->failure, "%s", detail);
}

static const struct json *make_prompt(struct arena *arena, const struct json *prompt)
{
	struct json *messages = json_array(arena), *message = json_object(arena);

	json_set_text(arena, message, "role", "user");
	json_set(arena, message, "content", json_copy(arena, prompt));
	json_add(arena, messages, message);
	return messages;
}

static const struct json *make_messages(struct arena *arena, const struct json *plan, const struct json *ask, const struct json *schema)
{
	const struct json *between = json_get(plan, "between"), *section = json_get(plan, "section");

	if (strcmp(json_get_text(ask, "phase"), "between") == 0)
		return make_prompt(arena, json_at(between, (size_t)json_get_number(ask, "index", 0) % json_count(between)));
	if (json_is(section, JSON_STRING))
		return extraction_messages(arena, (struct bytes){0}, (struct bytes){(const uint8_t *)section->string.text, section->string.len}, schema);
	if (json_is(json_get(plan, "messages"), JSON_ARRAY))
		return json_get(plan, "messages");
	return json_is(json_get(plan, "prompt"), JSON_STRING) ? make_prompt(arena, json_get(plan, "prompt")) : NULL;
}

/* Another seed than the plan's, a different one for each index. */
static void change_seed(struct arena *arena, struct json *sampling, unsigned index)
{
	const struct json *seed = json_get(sampling, "seed");
	long long base = json_is(seed, JSON_STRING) ? strtoll(seed->string.text, NULL, 10) : json_is(seed, JSON_NUMBER) ? (long long)seed->number : 0;

	/* Within what every runtime takes (runtimes.md 5e). */
	json_set_number(arena, sampling, "seed", (double)((unsigned long long)base % 1000000 + 1000000 * index));
}

/* One gate is one key: its asks differ in nothing but the last iteration. Gates of a loop around them are others; what tells them apart stands where no
 * long reference pushes it over the key's end. */
static const char *make_key(struct arena *arena, const struct activity *activity, bool grouped)
{
	const char *step = activity->step_id, *iterations = strrchr(step, '#');

	CHECK(iterations != NULL); /* an ask is an iteration */
	const char *last = strrchr(iterations, '.');
	while (grouped && last != NULL && last > iterations && *--last != '.') /* nor of its group */
		;
	last = last == iterations ? NULL : last;
	return arena_printf(arena, "%s%.*s %.*s", activity->run_id, last != NULL ? (int)(last - iterations) : 0, iterations, (int)(iterations - step), step);
}

/* ---- Which phases a runtime can do ---- */

/* How many at once at most; 0: not known yet, as of `concurrency: auto` after a start. */
static unsigned requests_at_once(const struct runtime *runtime)
{
	return runtime->config.concurrency_auto && runtime->configuration == NULL ? 0 : runtime->queue.concurrency;
}

/* Why it cannot be asked in a phase, behind the phase's name; NULL: it can. */
static const char *why_no_phase(struct arena *arena, const struct runtime *runtime, const char *phase, bool has_schema)
{
	if (strcmp(phase, "reload") == 0 && runtime->supervisor == NULL && !loading_is_possible(runtime))
		return arena_printf(arena, "the daemon does not launch runtime %s (launch), so it cannot load it anew", runtime->config.name);
	if (strcmp(phase, "uncached") == 0 && runtime->adapter->bypass.name == NULL)
		return arena_printf(arena, "runtime %s (kind %s) %s", runtime->config.name, runtime->config.kind, runtime->adapter->bypass.why_not);
	if (strcmp(phase, "withoutSchema") == 0 && !has_schema)
		return "the request has no schema, so there is nothing to leave out; give it one, or leave the phase out";
	return NULL;
}

static int refuse_phase(struct arena *arena, const struct runtime *runtime, const char *phase, const char *why, bool has_schema, struct error *error)
{
	static const char *const names[] = {GATE_PHASES};
	const char *possible = "";

	for (size_t i = 0; i < COUNT_OF(names); i++)
		if (why_no_phase(arena, runtime, names[i], has_schema) == NULL && (strcmp(names[i], "concurrent") != 0 || requests_at_once(runtime) != 1))
			possible = arena_printf(arena, "%s%s%s", possible, possible[0] != '\0' ? ", " : "", names[i]);
	return error_set(error, ERR_INVALID, "phase %s: %s; phases that it can do for this request: %s", phase, why, possible);
}

static int refuse_width(struct arena *arena, const struct runtime *runtime, double width, struct error *error)
{
	const char *name = runtime->config.name, *source = runtime->concurrency_source;
	const char *more = !runtime->config.concurrency_auto ? arena_printf(arena, "raise runtimes.%s.concurrency and restart the daemon", name) :
			   source[0] == '\0' ? arena_printf(arena, "name a number in runtimes.%s.concurrency, since it tells none itself", name) :
			   runtime->supervisor != NULL ? arena_printf(arena, "launch it for more (%s)", source) :
			   arena_printf(arena, "start it for more (it tells its number by %s)", source);

	return error_set(error, ERR_INVALID, "concurrent %.0f: runtime %s takes %u requests at once (concurrency): %s, or %s", width, name, runtime->queue.concurrency,
			 runtime->queue.concurrency > 1 ? "ask for fewer" : "leave the phase out", more);
}

/* What the runtime cannot do is told before anything is asked. width: 1, or how many are to be in flight together. */
static int refuse_phases(const struct runtime *runtime, const struct json *phases, bool has_schema, double width, struct error *error)
{
	struct arena arena;
	int rc = 0;

	arena_init(&arena);
	for (size_t i = 0; i < json_count(phases) && rc == 0; i++) {
		const char *phase = json_at(phases, i)->string.text, *why = why_no_phase(&arena, runtime, phase, has_schema);

		if (why != NULL)
			rc = refuse_phase(&arena, runtime, phase, why, has_schema, error);
	}
	/* Before `auto` is known it counts as one; the next request of the gate is held against what was told then. */
	if (rc == 0 && requests_at_once(runtime) != 0 && width > requests_at_once(runtime))
		rc = refuse_width(&arena, runtime, width, error);
	arena_close(&arena);
	return rc;
}

int activities_check_gate(const struct activities *activities, const char *name, const struct json *phases, bool has_schema, double width, struct error *error)
{
	const struct runtime *runtime = runtime_get(activities, name);

	return runtime == NULL ? runtime_refuse_name(activities, name, error) : refuse_phases(runtime, phases, has_schema, width, error);
}

/* ---- Asking ---- */

/* Only now: others may have had the runtime until it is this gate's turn, and the reload would end what they asked. The slot waits until the runtime is
 * ready again, and the lane is kept for it. */
static void reload_first(struct inference *inference)
{
	static const char why[] = "a gate measures what a reload changes";
	struct error error;

	inference->on_slot = inference_send;
	inference_wait_again(inference);
	if (inference->runtime->supervisor != NULL)
		supervisor_reload(inference->runtime->supervisor, why);
	else if (loading_begin(inference->runtime, LOADING_RELOAD, why, &error) != 0) /* somebody else's reload is one too */
		log_info(LOG_ACTIVITY, "runtime=%s a gate wants it loaded anew: %s", inference->runtime->config.name, error.message);
}

/* What the reload makes forgotten is left out of the record from here on: else those before it would seem to be of another configuration. */
static void forget_first(struct inference *inference)
{
	if (runtime_reload_forgets(inference->runtime))
		runtime_forget_learned(inference->runtime);
	inference->on_slot = inference_send;
	inference_send(inference);
}

int gate_activity_start(struct activities *activities, struct activity *activity, struct error *error)
{
	struct arena *arena = &activity->arena;
	const struct json *plan = json_get(activity->with, "plan"), *ask = json_get(activity->with, "ask"), *schema, *messages;
	const char *name = json_get_text(plan, "runtime"), *phase = json_get_text(ask, "phase");
	struct runtime *runtime = runtime_get(activities, name);
	struct gate_work *own;
	struct json *sampling;

	if (name == NULL || phase == NULL)
		return error_set(error, ERR_INVALID, "the gate's plan lacks `runtime`, or the ask its `phase`");
	if (runtime == NULL)
		return runtime_refuse_name(activities, name, error);
	if (refuse_phases(runtime, json_get(plan, "phases"), json_get(plan, "schema") != NULL, json_get_number(plan, "concurrent", 1), error) != 0)
		return (int)error->code;
	schema = strcmp(phase, "between") != 0 && strcmp(phase, "withoutSchema") != 0 ? json_get(json_get(plan, "schema"), "document") : NULL;
	if (schema != NULL)
		schema = schema_ordered(arena, schema);
	messages = make_messages(arena, plan, ask, schema);
	if (messages == NULL)
		return error_set(error, ERR_INVALID, "the gate's plan has neither a prompt nor messages, or too long ones (PROMPT_LEN_MAX)");
	sampling = inference_sampling(arena, runtime, json_get(plan, "sampling"), error);
	if (sampling == NULL)
		return (int)error->code;

	own = memory_zero(sizeof(*own));
	own->plan = plan;
	own->ask = ask;
	own->seeded = json_get_number(sampling, "temperature", 1) > 0;
	if (strcmp(phase, "seed") == 0)
		change_seed(arena, sampling, (unsigned)json_get_number(ask, "index", 1));
	own->work.cancel = cancel_work;
	own->work.free = free_work;
	work_begin(activities, activity, &own->work, &activity->result.stages.dispatch);
	own->inference.work = &own->work;
	own->inference.runtime = runtime;
	own->inference.messages = messages;
	own->inference.schema = schema;
	own->inference.schema_name = "answer";
	own->inference.sampling = sampling;
	own->inference.on_slot = json_get_boolean(ask, "reload", false) ? reload_first : strcmp(phase, "before") == 0 ? forget_first : inference_send;
	own->inference.on_done = on_done;
	own->inference.uncached = strcmp(phase, "uncached") == 0;
	own->inference.slot.solo = make_key(arena, activity, json_get(plan, "phases") != NULL);
	if (strcmp(phase, "concurrent") == 0)
		own->inference.slot.solo_width = (unsigned)json_get_number(plan, "concurrent", 1);
	own->inference.slot.solo_last = json_get_boolean(ask, "last", false);
	inference_start(&own->inference);
	return 0;
}
