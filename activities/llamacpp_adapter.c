/* The adapter of llama.cpp's llama-server (runtimes.md 4). Pure. Start at llamacpp_adapter. */
#include <stdio.h>
#include <string.h>

#include "activities/chat_wire.h"
#include "workflow/base/check.h"

static const struct sampling_field sampling[] = {
	{"temperature", "temperature", "1"},
	{"topP", "top_p", "1"},
	{"topK", "top_k", "0"},
	{"minP", "min_p", "0"},
	{"seed", "seed", "0"},
	{"maxTokens", "max_tokens", NULL}, /* none: to the end of the context */
	{"stop", "stop", NULL},
	{"presencePenalty", "presence_penalty", "0"},
	{"frequencyPenalty", "frequency_penalty", "0"},
	{"repetitionPenalty", "repeat_penalty", "1"},
	{"reasoningEffort", "reasoning_effort", NULL},
	{NULL, NULL, NULL},
};

#define SEED_RANDOM 4294967295.0 /* -1 in 32 bits: another one for each request */

static const char *refuse_sampling(const char *name, const struct json *value)
{
	if (strcmp(name, "seed") == 0 && (value->number < 0 || value->number >= SEED_RANDOM))
		return "takes seeds from 0 to 4294967294; -1 and 4294967295 mean a random one";
	return NULL;
}

static struct json *make_request(struct arena *arena, const struct inference_request *request)
{
	struct json *body = chat_make_request(arena, request, sampling);

	chat_map_top_k(arena, body, 0);
	chat_list_stops(arena, body);
	/* Its default, said aloud: what is on stands in the request (C75). */
	json_set_boolean(arena, body, "cache_prompt", request->salt == NULL);
	chat_set_schema(arena, body, request);
	return body;
}

/* ---- Counting: the prompt as the template makes it, then its tokens ---- */

static struct json *make_prompt(struct arena *arena, const struct inference_request *request, const char *text)
{
	struct json *body = json_object(arena);

	(void)text;
	json_set(arena, body, "messages", json_copy(arena, request->messages));
	return body;
}

static bool read_prompt(struct arena *arena, struct bytes body, const char **text, double *tokens)
{
	(void)tokens;
	*text = json_get_text(json_parse(arena, body, JSON_ROUND_INTEGERS, NULL, NULL), "prompt");
	return *text != NULL;
}

static struct json *make_tokens(struct arena *arena, const struct inference_request *request, const char *text)
{
	struct json *body = json_object(arena);

	(void)request;
	json_set_text(arena, body, "content", text);
	json_set_boolean(arena, body, "add_special", true);
	json_set_boolean(arena, body, "parse_special", true);
	return body;
}

static bool read_tokens(struct arena *arena, struct bytes body, const char **text, double *tokens)
{
	const struct json *list = json_get(json_parse(arena, body, JSON_ROUND_INTEGERS, NULL, NULL), "tokens");

	(void)text;
	if (!json_is(list, JSON_ARRAY))
		return false;
	*tokens = (double)json_count(list);
	return true;
}

/* ---- Probes ---- */

/* "b6123-1a2b3c4": the build's number and its commit. */
static void set_build(struct runtime_facts *facts, const char *build)
{
	const char *dash = build != NULL ? strrchr(build, '-') : NULL;

	facts_set_text(facts, "A.runtime_version", build, "GET /props build_info");
	if (dash != NULL)
		facts_set_text(facts, "A.runtime_commit", dash + 1, "GET /props build_info");
}

static void read_props(struct bytes body, struct runtime_facts *facts)
{
	static const char source[] = "GET /props";
	static const char *const defaults[] = {"temperature", "top_k", "top_p", "min_p", "top_n_sigma", "typical_p", "typ_p", "xtc_probability", "xtc_threshold",
					       "repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base",
					       "dry_allowed_length", "dry_penalty_last_n", "mirostat", "dynatemp_range", "samplers", "n_predict", "n_keep",
					       "min_keep", "ignore_eos", NULL};
	static const char *const speculation[] = {"speculative.n_max", "speculative.n_min", "speculative.p_min", "speculative.types", NULL};
	const struct json *root = probe_json(body, facts), *settings = json_get(root, "default_generation_settings"), *params = json_get(settings, "params");

	if (!json_is(params, JSON_OBJECT))
		params = settings;
	set_build(facts, json_get_text(root, "build_info"));
	facts_set_copy(facts, "B.model_path", root, "model_path", source);
	facts_set_hash(facts, "B.chat_template_sha256", json_get_text(root, "chat_template"), source);
	facts_set_copy(facts, "C.context_length", settings, "n_ctx", source);
	facts_set_copy(facts, "C.parallel", root, "total_slots", source);
	facts_set_copy(facts, "C.modalities", root, "modalities", source);
	facts_set_members(facts, "C.sampling_defaults", params, defaults, source);
	facts_set_members(facts, "C.speculation", params, speculation, source);
	facts_set_text(facts, "C.structured_backend", "grammar", "built in");
}

/* Of the model that is wanted; a server that has a single one takes any name for it. */
static const struct json *find_wanted(const struct runtime_facts *facts, const struct json *data)
{
	const char *wanted = facts_model(facts);

	for (size_t i = 0; i < json_count(data) && wanted != NULL; i++) {
		const char *id = json_get_text(json_at(data, i), "id");

		if (id != NULL && strcmp(id, wanted) == 0)
			return json_at(data, i);
	}
	return json_count(data) == 1 ? json_at(data, 0) : NULL;
}

/* `created` is now and `meta` null while it loads: only what is lasting is taken. */
static void read_models(struct bytes body, struct runtime_facts *facts)
{
	static const char *const kept[] = {"vocab_type", "n_vocab", "n_ctx_train", "n_embd", "n_params", "size", NULL};

	chat_read_models(body, facts);
	facts_set_members(facts, "B.model_meta", json_get(find_wanted(facts, json_get(probe_json(body, facts), "data")), "meta"), kept, "GET /v1/models");
}

static void read_adapters(struct bytes body, struct runtime_facts *facts)
{
	const struct json *list = probe_json(body, facts);

	if (json_is(list, JSON_ARRAY))
		facts_set(facts, "B.adapters", json_copy(facts->arena, list), "GET /lora-adapters");
}

const struct runtime_adapter llamacpp_adapter = {
	.kind = "llamacpp",
	.request_path = CHAT_PATH,
	.has_end_marker = true,
	.probes =
		{
			{.path = "/health"}, /* 503 while it loads */
			{.path = "/v1/models", .read = read_models},
			{.path = "/props", .read = read_props},
			{.path = "/lora-adapters", .read = read_adapters},
		},
	.count = {{.path = "/apply-template", .make_body = make_prompt, .read = read_prompt},
		  {.path = "/tokenize", .make_body = make_tokens, .read = read_tokens}},
	.bypass = {.name = "cache_prompt"},
	.sampling = sampling,
	.refuse_sampling = refuse_sampling,
	.make_request = make_request,
	.read_event = chat_read_event,
	.read_whole = chat_read_whole,
	.read_failure = answer_read_failure,
};
