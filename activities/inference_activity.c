/* `call: inference`: messages or a prompt to a runtime, text or JSON back (dsl.md, interface.md 4). Loop thread. The work is in
 * inference.c; here are arguments and output, a large one on the uv pool. Start at inference_activity_start(), then on_done(). */
#include <stdlib.h>
#include <string.h>

#include "activities/inference.h"
#include "activities/text.h"
#include "workflow/base/check.h"
#include "workflow/language/json_schema.h"

enum { MESSAGES_MAX = 10 * 1000 };

struct inference_work {
	struct work work;
	struct inference inference;
	struct json_schema *schema; /* of the answer; NULL: free text */

	/* For the pool, which has the attempt's arena to itself meanwhile. */
	uv_work_t pool;
	bool in_pool;
	struct json *output, *evidence; /* NULL: detail says why */
	char detail[ACTIVITY_DETAIL_MAX];
};

static bool cancel_work(struct work *work)
{
	struct inference_work *own = CONTAINER_OF(work, struct inference_work, work);

	if (own->in_pool)
		return false;
	inference_cancel(&own->inference);
	return true;
}

static void free_work(struct work *work)
{
	struct inference_work *own = CONTAINER_OF(work, struct inference_work, work);

	inference_close(&own->inference);
	json_schema_free(own->schema);
	free(own);
}

static struct json *make_timing(const struct stage_times *stages, struct arena *arena)
{
	struct json *timing = json_object(arena);

	json_set_number(arena, timing, "connectMs", (double)stages->connect / 1000);
	json_set_number(arena, timing, "firstTokenMs", (double)stages->first_token / 1000);
	json_set_number(arena, timing, "generationMs", (double)stages->generation / 1000);
	return timing;
}

/* The answer's text, which the schema may ask to be JSON, becomes the output. Any thread. */
static void read_answer(struct inference_work *own)
{
	const struct inference *inference = &own->inference;
	const struct activity *activity = own->work.activity;
	struct arena *arena = &own->work.activity->arena;
	const struct answer *answer = &inference->answer;
	struct json *output, *provenance, *usage, *value = NULL;
	char configuration[DIGEST_TEXT_LEN + 1];
	struct error error;

	if (own->schema != NULL) {
		value = json_parse(arena, text_take_fence_off(buffer_bytes(&answer->text), NULL), JSON_STRICT, NULL, &error);
		if (value == NULL) {
			detail_set(own->detail, "the answer is not JSON: %s", error.message);
			return;
		}
		if (json_schema_match(own->schema, value, &error) != 0) {
			detail_set(own->detail, "the answer does not match the schema: %s", error.message);
			return;
		}
	}
	output = json_object(arena);
	provenance = json_object(arena);
	digest_text(&inference->configuration->digest, configuration);
	json_set(arena, output, "text", json_text_len(arena, buffer_text(&answer->text), answer->text.len));
	if (value != NULL)
		json_set(arena, output, "json", value);
	if (answer->reasoning.len > 0)
		json_set(arena, output, "reasoning", json_text_len(arena, buffer_text(&answer->reasoning), answer->reasoning.len));
	json_set_text(arena, output, "finishReason", answer->finish_reason);
	usage = inference_usage(inference, arena);
	json_set(arena, output, "usage", usage != NULL ? usage : json_object(arena));
	json_set(arena, output, "timing", make_timing(&activity->result.stages, arena));
	json_set_text(arena, provenance, "configuration", configuration);
	json_set_text(arena, provenance, "runtime", inference->runtime->config.name);
	json_set_text(arena, provenance, "model", answer->model != NULL ? answer->model : inference->configuration->model);
	if (inference->configuration->simulated)
		json_set_boolean(arena, provenance, "simulated", true);
	json_set(arena, output, "provenance", provenance);
	own->evidence = inference_evidence(inference, arena);
	json_set(arena, output, "reproducibility", json_copy(arena, json_get(own->evidence, "reproducibility")));
	own->output = output;
}

static void finish(struct inference_work *own)
{
	struct activity_result *result = &own->work.activity->result;
	char detail[ACTIVITY_DETAIL_MAX];

	if (own->work.cancelled) {
		work_finish_cancelled(&own->work);
		return;
	}
	result->output = own->output;
	result->evidence = own->evidence;
	memcpy(detail, own->detail, sizeof(detail));
	work_finish(&own->work, own->output != NULL ? FAILURE_NONE : FAILURE_SCHEMA_INVALID, "%s", detail);
}

static void on_pool(uv_work_t *pool)
{
	read_answer(CONTAINER_OF(pool, struct inference_work, pool));
}

static void on_pool_done(uv_work_t *pool, int status)
{
	struct inference_work *own = CONTAINER_OF(pool, struct inference_work, pool);
	struct activities *activities = own->work.activities;

	(void)status;
	own->in_pool = false;
	finish(own);
	outside_end(activities);
}

static void on_done(struct inference *inference)
{
	struct inference_work *own = CONTAINER_OF(inference, struct inference_work, inference);
	struct work *work = &own->work;

	if (inference->failure != FAILURE_NONE) {
		work_finish(work, inference->failure, "%s", inference->detail);
		return;
	}
	stage_enter(work, &work->activity->result.stages.parse);
	if (inference->answer.text.len + inference->answer.reasoning.len <= POOL_BYTES_MIN) {
		read_answer(own);
		finish(own);
		return;
	}
	own->in_pool = true;
	outside_begin(work->activities);
	CHECK(uv_queue_work(work->activities->loop, &own->pool, on_pool, on_pool_done) == 0);
}

static const struct json *make_messages(struct arena *arena, const struct json *with, struct error *error)
{
	const struct json *messages = json_get(with, "messages"), *prompt = json_get(with, "prompt");
	struct json *made, *message;

	if ((messages == NULL) == (prompt == NULL)) {
		error_set(error, ERR_INVALID, "call: inference takes either `messages` or `prompt`");
		return NULL;
	}
	if (messages != NULL) {
		if (messages->type != JSON_ARRAY || json_count(messages) == 0 || json_count(messages) > MESSAGES_MAX) {
			error_set(error, ERR_INVALID, "messages is not an array of 1 to %d messages (MESSAGES_MAX)", MESSAGES_MAX);
			return NULL;
		}
		for (size_t i = 0; i < json_count(messages); i++)
			if (json_get_text(json_at(messages, i), "role") == NULL || json_get(json_at(messages, i), "content") == NULL) {
				error_set(error, ERR_INVALID, "messages[%zu] lacks `role` or `content`", i);
				return NULL;
			}
		return messages;
	}
	if (prompt->type != JSON_STRING || prompt->string.len == 0) {
		error_set(error, ERR_INVALID, "prompt is not a text, or an empty one");
		return NULL;
	}
	made = json_array(arena);
	message = json_object(arena);
	json_set_text(arena, message, "role", "user");
	json_set(arena, message, "content", json_copy(arena, prompt));
	json_add(arena, made, message);
	return made;
}

int inference_activity_start(struct activities *activities, struct activity *activity, struct error *error)
{
	struct arena *arena = &activity->arena;
	const char *name = json_get_text(activity->with, "runtime");
	struct runtime *runtime = runtime_get(activities, name);
	const struct json *schema = json_get(activity->with, "schema"), *messages;
	struct inference_work *own;
	struct json_schema *program = NULL;
	struct json *sampling;
	unsigned priority;

	if (name == NULL)
		return error_set(error, ERR_INVALID, "call: inference lacks `runtime`");
	if (runtime == NULL)
		return runtime_refuse_name(activities, name, error);
	messages = make_messages(arena, activity->with, error);
	if (messages == NULL)
		return (int)error->code;
	if (schema != NULL && schema->type != JSON_NULL) {
		schema = json_get(schema, "document");
		if (schema == NULL)
			return error_set(error, ERR_INVALID, "schema lacks `document`");
		program = json_schema_compile_taken(schema, error);
		if (program == NULL)
			return error_wrap(error, "schema");
	} else {
		schema = NULL;
	}
	if (!inference_priority(json_get(activity->with, "priority"), &priority, error)) {
		json_schema_free(program);
		return (int)error->code;
	}
	sampling = inference_sampling(arena, runtime, json_get(activity->with, "sampling"), error);
	if (sampling == NULL) {
		json_schema_free(program);
		return (int)error->code;
	}

	own = memory_zero(sizeof(*own));
	own->schema = program;
	own->work.cancel = cancel_work;
	own->work.free = free_work;
	work_begin(activities, activity, &own->work, &activity->result.stages.dispatch);
	own->inference.work = &own->work;
	own->inference.runtime = runtime;
	own->inference.messages = messages;
	own->inference.schema = schema != NULL ? schema_ordered(arena, schema) : NULL;
	own->inference.schema_name = "answer";
	own->inference.judge = schema;
	own->inference.sampling = sampling;
	own->inference.on_slot = inference_send;
	own->inference.on_done = on_done;
	inference_require(&own->inference, json_get(activity->with, "requireClass"));
	own->inference.priority = json_get(activity->with, "priority");
	inference_start(&own->inference);
	return 0;
}
