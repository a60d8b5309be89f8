/* See chat_wire.h. Start at read_chunk(). */
#include "activities/chat_wire.h"

#include <string.h>

#include "workflow/base/check.h"

/* ---- Requests ---- */

struct json *chat_make_request(struct arena *arena, const struct inference_request *request, const struct sampling_field *fields)
{
	struct json *body = json_object(arena), *options = json_object(arena);

	if (request->model != NULL)
		json_set_text(arena, body, "model", request->model);
	json_set(arena, body, "messages", json_copy(arena, request->messages));
	json_set_boolean(arena, body, "stream", true);
	if (!(request->without & WITHOUT_STREAM_OPTIONS)) {
		/* Sent explicitly: runtimes differ in what they do without it. */
		json_set_boolean(arena, options, "include_usage", true);
		json_set(arena, body, "stream_options", options);
	}
	for (const struct sampling_field *field = fields; field->ours != NULL; field++) {
		const struct json *value = json_get(request->sampling, field->ours);

		if (value != NULL)
			json_set(arena, body, field->wire, json_copy(arena, value));
	}
	return body;
}

void chat_set_schema(struct arena *arena, struct json *body, const struct inference_request *request)
{
	struct json *format = json_object(arena), *schema = json_object(arena);

	if (request->schema == NULL && !request->json_only)
		return;
	json_set_text(arena, format, "type", request->schema != NULL ? "json_schema" : "json_object");
	if (request->schema != NULL) {
		json_set_text(arena, schema, "name", request->schema_name);
		json_set_boolean(arena, schema, "strict", true);
		json_set(arena, schema, "schema", json_copy(arena, request->schema));
		json_set(arena, format, "json_schema", schema);
	}
	json_set(arena, body, "response_format", format);
}

void chat_list_texts(struct arena *arena, struct json *body, const char *name)
{
	struct json *text = json_get(body, name), *list;

	if (!json_is(text, JSON_STRING))
		return;
	list = json_array(arena);
	json_add(arena, list, text);
	json_set(arena, body, name, list);
}

void chat_set_template_arguments(struct arena *arena, struct json *body, const struct inference_request *request)
{
	const struct json *arguments = json_get(request->sampling, "templateArguments");

	if (json_is(arguments, JSON_OBJECT))
		json_set(arena, body, "chat_template_kwargs", json_copy(arena, arguments));
}

const char *chat_refuse_effort(const struct json *value)
{
	static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

	for (size_t i = 0; json_is(value, JSON_STRING) && i < COUNT_OF(efforts); i++)
		if (strcmp(efforts[i], value->string.text) == 0)
			return NULL;
	return "takes none, minimal, low, medium, high, xhigh or max";
}

const char *chat_refuse_sampling(const char *name, const struct json *value)
{
	if (strcmp(name, "reasoningEffort") == 0 && !json_is(value, JSON_STRING))
		return "takes a word, such as low";
	for (size_t i = 0; strcmp(name, "logitBias") == 0 && i < json_count(value); i++)
		if (!json_is(value->object.members[i].value, JSON_NUMBER))
			return "takes numbers alone, from -100 to 100";
	return NULL;
}

void chat_map_top_k(struct arena *arena, struct json *body, double off)
{
	const struct json *top_k = json_get(body, "top_k");

	if (json_is(top_k, JSON_NUMBER) && top_k->number <= 0)
		json_set_number(arena, body, "top_k", off);
}

/* ---- Answers ---- */

/* LM Studio's own words tell more than its finish_reason, which is "stop" for an answer that somebody stopped, too. */
static void keep_stop_reason(struct answer *answer, const char *reason)
{
	if (reason != NULL && strcmp(reason, "eosFound") != 0 && strcmp(reason, "stopStringFound") != 0)
		answer_keep_text(answer, &answer->finish_reason, reason);
}

/* A chunk of a stream or a whole answer: they differ in `delta` and `message`. is_error: the event is called so. *has_message: one of them was there. */
static bool read_chunk(struct answer *answer, struct bytes text, bool is_error, bool *token, bool *has_message)
{
	struct arena scratch;
	struct json_fault fault;
	struct error error;
	const struct json *root, *choice = NULL, *part, *usage, *timings, *effective;
	bool ok = true;

	arena_init(&scratch);
	root = json_parse(&scratch, text, JSON_ROUND_INTEGERS, &fault, &error);
	if (root == NULL || root->type != JSON_OBJECT) {
		ok = answer_fail(answer, FAILURE_RUNTIME_ERROR, "the runtime's answer is not JSON as agreed: %s",
				 root == NULL ? error.message : "it is no object");
		goto out;
	}
	/* An error may stand inside of a stream that began with status 200; SGLang's is flat. */
	if (is_error || json_truthy(json_get(root, "error")) || (json_get_text(root, "object") != NULL && strcmp(json_get_text(root, "object"), "error") == 0)) {
		ok = answer_fail_inside(answer, root);
		goto out;
	}
	answer_keep_model(answer, json_get_text(root, "model"));
	answer_keep_text(answer, &answer->fingerprint, json_get_text(root, "system_fingerprint"));
	answer_keep_text(answer, &answer->weight_version, json_get_text(json_get(root, "metadata"), "weight_version"));
	for (size_t i = 0; i < json_count(json_get(root, "choices")); i++)
		if (json_get_number(json_at(json_get(root, "choices"), i), "index", 0) == 0)
			choice = json_at(json_get(root, "choices"), i);
	part = json_get(choice, "delta");
	if (!json_is(part, JSON_OBJECT))
		part = json_get(choice, "message");
	*has_message = json_is(part, JSON_OBJECT);
	*token = answer_add(&answer->text, json_get(part, "content"));
	if (!answer_add(&answer->reasoning, json_get(part, "reasoning_content")))
		*token |= answer_add(&answer->reasoning, json_get(part, "reasoning"));
	else
		*token = true;
	answer_keep_text(answer, &answer->finish_reason, json_get_text(choice, "finish_reason"));
	keep_stop_reason(answer, json_get_text(json_get(root, "stats"), "stop_reason"));
	usage = json_get(root, "usage");
	if (json_is(usage, JSON_OBJECT)) {
		answer_read_count(&answer->prompt_tokens, usage, "prompt_tokens");
		answer_read_count(&answer->completion_tokens, usage, "completion_tokens");
		answer_read_count(&answer->cached_tokens, json_get(usage, "prompt_tokens_details"), "cached_tokens");
		answer_read_count(&answer->reasoning_tokens, usage, "reasoning_tokens"); /* SGLang */
		answer_read_count(&answer->reasoning_tokens, json_get(usage, "completion_tokens_details"), "reasoning_tokens");
	}
	timings = json_get(root, "timings"); /* llama.cpp; vLLM: metrics; LM Studio: stats */
	if (!json_is(timings, JSON_OBJECT))
		timings = json_get(root, "metrics");
	if (!json_is(timings, JSON_OBJECT))
		timings = json_get(root, "stats");
	if (json_is(timings, JSON_OBJECT)) {
		answer->timings = answer_keep_told(answer, timings);
		answer_read_count(&answer->cached_tokens, timings, "cache_n");
		answer->loaded |= json_get_number(timings, "model_load_time_seconds", 0) > 0;
	}
	effective = json_get(json_get(root, "__verbose"), "generation_settings"); /* llama.cpp, when it is told to be verbose */
	if (json_is(effective, JSON_OBJECT))
		answer->effective = answer_keep_told(answer, effective);
	answer->cut_prompt |= json_get_boolean(json_get(root, "__verbose"), "truncated", false);
	ok = answer_check_size(answer);
out:
	arena_close(&scratch);
	return ok;
}

bool chat_read_event(struct answer *answer, const char *name, struct bytes data, bool *token)
{
	bool has_message;

	*token = false;
	if (answer->ended || data.len == 0)
		return true;
	if (bytes_equal_text(data, "[DONE]")) {
		answer->ended = true;
		return true;
	}
	return read_chunk(answer, data, strcmp(name, "error") == 0, token, &has_message); /* so LM Studio calls it */
}

bool chat_read_whole(struct answer *answer, struct bytes body)
{
	bool token = false, has_message = false;

	if (!read_chunk(answer, body, false, &token, &has_message))
		return false;
	/* Some servers answer 200 to whatever they do not know, others under another path: that is no answer without words. */
	if (!has_message)
		return answer_fail(answer, FAILURE_RUNTIME_ERROR, "the runtime answered with JSON that holds no message (choices); see its url and kind");
	answer->ended = true;
	return true;
}

/* ---- Probes ---- */

const struct json *probe_json(struct bytes body, struct runtime_facts *facts)
{
	return json_parse(facts->arena, body, JSON_ROUND_INTEGERS, NULL, NULL);
}

void chat_read_models(struct bytes body, struct runtime_facts *facts)
{
	const struct json *data = json_get(probe_json(body, facts), "data");
	struct json *models, *adapters;

	if (!json_is(data, JSON_ARRAY))
		return;
	models = json_array(facts->arena);
	adapters = json_array(facts->arena);
	for (size_t i = 0; i < json_count(data) && i < ADAPTER_MODELS_MAX; i++) {
		const struct json *card = json_at(data, i), *length = json_get(card, "max_model_len");
		struct json *model = json_object(facts->arena);

		if (json_get_text(card, "id") == NULL)
			continue;
		if (json_get_text(card, "parent") != NULL)
			json_add(facts->arena, adapters, json_text(facts->arena, json_get_text(card, "id")));
		json_set_text(facts->arena, model, "id", json_get_text(card, "id"));
		json_set_text(facts->arena, model, "root", json_get_text(card, "root"));
		if (json_is_integer(length))
			json_set_number(facts->arena, model, "contextLength", length->number);
		json_add(facts->arena, models, model);
	}
	facts->models = models;
	if (json_count(adapters) > 0)
		facts_set(facts, "B.adapters", adapters, "GET /v1/models");
}

void chat_read_version(struct bytes body, struct runtime_facts *facts)
{
	facts_set_text(facts, "A.runtime_version", json_get_text(probe_json(body, facts), "version"), "GET /version");
}
