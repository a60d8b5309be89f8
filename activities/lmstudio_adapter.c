/* The adapter of LM Studio (runtimes.md 5): identity from its own APIs (v1, v0), requests over /v1/chat/completions, since seed and
 * response_format exist only there. Unknown paths answer 200 with an error, so every probe looks for what it expects. Pure.
 * Start at lmstudio_adapter. */
#include <stdio.h>
#include <string.h>

#include "activities/chat_wire.h"
#include "workflow/base/check.h"

/* What is not sent comes from a preset or the app's settings, which nobody sees over HTTP. It has no min_p here. */
static const struct sampling_field sampling[] = {
	{"temperature", "temperature", "1"},
	{"topP", "top_p", "1"},
	{"topK", "top_k", "0"},
	{"seed", "seed", "0"},
	{"maxTokens", "max_tokens", "-1"},
	{"stop", "stop", "[]"}, /* else a preset's would hold */
	{"presencePenalty", "presence_penalty", "0"},
	{"frequencyPenalty", "frequency_penalty", "0"},
	{"repetitionPenalty", "repeat_penalty", "1"},
	{"logitBias", "logit_bias", NULL},
	{"reasoningEffort", "reasoning_effort", NULL},
	{NULL, NULL, NULL},
};

static const char *refuse_sampling(const char *name, const struct json *value)
{
	if (strcmp(name, "seed") == 0 && (value->number < 0 || value->number > INT32_MAX))
		return "takes seeds from 0 to 2147483647";
	return chat_refuse_sampling(name, value);
}

static struct json *make_request(struct arena *arena, const struct inference_request *request)
{
	struct json *body = chat_make_request(arena, request, sampling);

	chat_map_top_k(arena, body, 0);
	chat_set_schema(arena, body, request);
	return body;
}

/* ---- Probes ---- */

static void add_alias(struct arena *arena, struct json *aliases, const char *name)
{
	if (name != NULL && name[0] != '\0')
		json_add(arena, aliases, json_text(arena, name));
}

/* A model that is loaded twice (C79): the instance that is wanted by its own name; else the first one. */
static const struct json *find_instance(const struct runtime_facts *facts, const struct json *instances)
{
	for (size_t i = 0; i < json_count(instances) && facts->wanted != NULL; i++) {
		const char *id = json_get_text(json_at(instances, i), "id");

		if (id != NULL && strcmp(id, facts->wanted) == 0)
			return json_at(instances, i);
	}
	return json_at(instances, 0);
}

static void add_card(struct runtime_facts *facts, struct json *models, const struct json *model)
{
	const struct json *instances = json_get(model, "loaded_instances"), *variants = json_get(model, "variants");
	const struct json *length = json_get(json_get(find_instance(facts, instances), "config"), "context_length");
	struct json *card = json_object(facts->arena), *aliases = json_array(facts->arena);

	if (json_get_text(model, "key") == NULL)
		return;
	json_set_text(facts->arena, card, "id", json_get_text(model, "key"));
	json_set_text(facts->arena, card, "root", json_get_text(model, "selected_variant"));
	for (size_t i = 0; i < json_count(instances); i++)
		add_alias(facts->arena, aliases, json_get_text(json_at(instances, i), "id"));
	add_alias(facts->arena, aliases, json_get_text(model, "selected_variant"));
	for (size_t i = 0; i < json_count(variants); i++)
		if (json_is(json_at(variants, i), JSON_STRING))
			add_alias(facts->arena, aliases, json_at(variants, i)->string.text);
	json_set(facts->arena, card, "aliases", aliases);
	if (json_is_integer(length))
		json_set_number(facts->arena, card, "contextLength", length->number);
	if (json_count(instances) > 0)
		json_set(facts->arena, card, "loaded", json_copy(facts->arena, instances));
	json_add(facts->arena, models, card);
}

/* Of the model that is wanted, under whatever name; NULL: it is not among them. Looked for once: a list may be long. */
static const char *wanted_id(const struct runtime_facts *facts)
{
	return json_get_text(models_find(facts->models, facts_model(facts)), "id");
}

static void read_v1_models(struct bytes body, struct runtime_facts *facts)
{
	static const char source[] = "GET /api/v1/models";
	static const char *const batch[] = {"eval_batch_size", "physical_batch_size", NULL};
	static const char *const cache[] = {"offload_kv_cache_to_gpu", "flash_attention", NULL};
	const struct json *list = json_get(probe_json(body, facts), "models");
	struct json *models;
	const char *wanted;

	if (!json_is(list, JSON_ARRAY))
		return;
	models = json_array(facts->arena);
	for (size_t i = 0; i < json_count(list) && i < ADAPTER_MODELS_MAX; i++) {
		const char *type = json_get_text(json_at(list, i), "type");

		if (type == NULL || strcmp(type, "embedding") != 0)
			add_card(facts, models, json_at(list, i));
	}
	facts->models = models;
	facts->is_unloaded = true;
	wanted = wanted_id(facts);
	for (size_t i = 0; i < json_count(list) && i < ADAPTER_MODELS_MAX; i++) {
		const struct json *model = json_at(list, i), *instances = json_get(model, "loaded_instances");
		const struct json *config = json_get(find_instance(facts, instances), "config");
		const char *key = json_get_text(model, "key"), *id;

		if (key == NULL || wanted == NULL || strcmp(key, wanted) != 0)
			continue;
		facts_set_copy(facts, "B.arch", model, "architecture", source);
		facts_set_copy(facts, "B.quantisation", json_get(model, "quantization"), "name", source);
		facts_set_copy(facts, "B.format", model, "format", source);
		facts_set_copy(facts, "B.publisher", model, "publisher", source);
		facts_set_copy(facts, "B.size_bytes", model, "size_bytes", source);
		facts_set_copy(facts, "B.variant", model, "selected_variant", source);
		if (json_count(instances) == 0)
			continue;
		facts->is_unloaded = false;
		/* Loaded twice and wanted by the model's name: which one answers is not said. */
		id = json_get_text(find_instance(facts, instances), "id");
		facts->instance = json_count(instances) == 1 || (id != NULL && facts->wanted != NULL && strcmp(id, facts->wanted) == 0) ? id : NULL;
		facts_set(facts, "C.instances", json_number(facts->arena, (double)json_count(instances)), source);
		facts_set(facts, "C.load_config", config != NULL ? json_copy(facts->arena, config) : NULL, source);
		facts_set_copy(facts, "C.parallel", config, "parallel", source);
		facts_set_members(facts, "C.batch_sizes", config, batch, source);
		facts_set_members(facts, "C.cache_flags", config, cache, source);
	}
}

/* Versions before 0.4 have only this; later ones both. */
static void read_v0_models(struct bytes body, struct runtime_facts *facts)
{
	static const char source[] = "GET /api/v0/models";
	const struct json *list = json_get(probe_json(body, facts), "data");
	bool only_this = facts->models == NULL;
	struct json *models = json_array(facts->arena);
	const char *wanted;

	if (!json_is(list, JSON_ARRAY))
		return;
	for (size_t i = 0; only_this && i < json_count(list) && i < ADAPTER_MODELS_MAX; i++) {
		struct json *card = json_object(facts->arena);
		const char *type = json_get_text(json_at(list, i), "type");

		if (json_get_text(json_at(list, i), "id") == NULL || (type != NULL && strcmp(type, "embeddings") == 0))
			continue;
		json_set_text(facts->arena, card, "id", json_get_text(json_at(list, i), "id"));
		json_add(facts->arena, models, card);
	}
	if (only_this)
		facts->models = models;
	wanted = wanted_id(facts);
	for (size_t i = 0; i < json_count(list) && i < ADAPTER_MODELS_MAX; i++) {
		const struct json *model = json_at(list, i);
		const char *id = json_get_text(model, "id"), *state = json_get_text(model, "state");

		if (id == NULL || wanted == NULL || strcmp(id, wanted) != 0)
			continue;
		if (only_this)
			facts->is_unloaded = state != NULL && strcmp(state, "loaded") != 0;
		facts_set_copy(facts, "B.arch", model, "arch", source);
		facts_set_copy(facts, "B.quantisation", model, "quantization", source);
		facts_set_copy(facts, "B.format", model, "compatibility_type", source);
		facts_set_copy(facts, "C.context_length", model, "loaded_context_length", source);
	}
}

/* The one place over HTTP that names the engine's build is an answer of the v0 API: a token is asked for, when somebody asks for a probe. */
static struct json *make_token(const struct runtime_facts *facts)
{
	struct json *body = json_object(facts->arena), *messages = json_array(facts->arena), *message = json_object(facts->arena);

	if (facts_model(facts) == NULL)
		return NULL;
	json_set_text(facts->arena, message, "role", "user");
	json_set_text(facts->arena, message, "content", "Hi");
	json_add(facts->arena, messages, message);
	json_set_text(facts->arena, body, "model", facts_model(facts));
	json_set(facts->arena, body, "messages", messages);
	json_set_number(facts->arena, body, "max_tokens", 1);
	json_set_boolean(facts->arena, body, "stream", false);
	return body;
}

static void read_token(struct bytes body, struct runtime_facts *facts)
{
	static const char source[] = "POST /api/v0/chat/completions";
	const struct json *root = probe_json(body, facts), *runtime = json_get(root, "runtime"), *model = json_get(root, "model_info");

	facts_set_copy(facts, "A.engine", runtime, "name", source);
	facts_set_copy(facts, "A.runtime_version", runtime, "version", source);
	facts_set_copy(facts, "B.arch", model, "arch", source);
	facts_set_copy(facts, "B.quantisation", model, "quant", source);
	facts_set_copy(facts, "C.context_length", model, "context_length", source);
}

/* ---- Loading (5d) ---- */

static struct json *make_unload(struct arena *arena, const struct json *loaded)
{
	struct json *body = json_object(arena);

	json_set_text(arena, body, "instance_id", json_get_text(loaded, "id"));
	return body;
}

/* A name that its command line gave to an instance is none of the model's own. */
static bool is_given_name(const struct json *card, const char *wanted)
{
	const struct json *loaded = json_get(card, "loaded");
	const char *variant = json_get_text(card, "root");

	if (strcmp(json_get_text(card, "id"), wanted) == 0 || (variant != NULL && strcmp(variant, wanted) == 0))
		return false;
	for (size_t i = 0; i < json_count(loaded); i++) {
		const char *id = json_get_text(json_at(loaded, i), "id");

		if (id != NULL && strcmp(id, wanted) == 0)
			return true;
	}
	return false;
}

/* What is left out would be the app's own setting. */
static struct json *make_load(struct arena *arena, const struct json *card, const char *wanted, double context_length, const char **why)
{
	static const char *const settings[] = {"context_length", "eval_batch_size", "flash_attention", "num_experts", "offload_kv_cache_to_gpu"};
	const struct json *config = json_get(json_at(json_get(card, "loaded"), 0), "config");
	struct json *body = json_object(arena);

	if (is_given_name(card, wanted)) {
		*why = "it is loaded under a name that only `lms load --identifier` can give; load it with that, or name the model itself in the configuration (model)";
		return NULL;
	}
	json_set_text(arena, body, "model", wanted);
	for (size_t i = 0; i < COUNT_OF(settings); i++) {
		const struct json *value = json_get(config, settings[i]);

		if (value != NULL && value->type != JSON_NULL)
			json_set(arena, body, settings[i], json_copy(arena, value));
	}
	if (context_length > 0)
		json_set_number(arena, body, "context_length", context_length);
	json_set_boolean(arena, body, "echo_load_config", true);
	return body;
}

/* Unknown paths answer 200 as well. */
static bool is_loaded(struct arena *arena, struct bytes body)
{
	const char *status = json_get_text(json_parse(arena, body, JSON_ROUND_INTEGERS, NULL, NULL), "status");

	return status != NULL && strcmp(status, "loaded") == 0;
}

static bool is_unloaded(struct arena *arena, struct bytes body)
{
	return json_get_text(json_parse(arena, body, JSON_ROUND_INTEGERS, NULL, NULL), "instance_id") != NULL;
}

const struct runtime_adapter lmstudio_adapter = {
	.kind = "lmstudio",
	.loaded_models = 1,
	.request_path = CHAT_PATH,
	.has_end_marker = true,
	.probes =
		{
			{.path = "/api/v1/models", .read = read_v1_models},
			{.path = "/api/v0/models", .read = read_v0_models},
			{.path = "/api/v0/chat/completions", .make_body = make_token, .generates = true, .read = read_token},
		},
	.bypass = {.why_not = "keeps its cache as long as its model is loaded; load it anew instead (phase reload)"},
	.loading =
		{.load_path = "/api/v1/models/load", .unload_path = "/api/v1/models/unload", .make_unload = make_unload, .make_load = make_load,
		 .is_loaded = is_loaded, .is_unloaded = is_unloaded},
	.sampling = sampling,
	.refuse_sampling = refuse_sampling,
	.make_request = make_request,
	.read_event = chat_read_event,
	.read_whole = chat_read_whole,
	.read_failure = answer_read_failure,
};
