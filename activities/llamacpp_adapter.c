/* The adapter of llama.cpp's llama-server (runtimes.md 4). Pure. Start at llamacpp_adapter. */
#include <stdio.h>
#include <string.h>

#include "activities/chat_wire.h"
#include "workflow/base/check.h"
#include "workflow/base/url.h"

#define SAMPLERS "[\"penalties\",\"dry\",\"top_n_sigma\",\"top_k\",\"typ_p\",\"top_p\",\"min_p\",\"xtc\",\"temperature\"]"

/* What is not sent is whatever the server was started with. What is sent where nobody says anything is what switches a sampler off, or its
 * documented default; the order of the samplers is its default too, since one that is left out is off. */
static const struct sampling_field sampling[] = {
	{"temperature", "temperature", "1"},
	{"dynatempRange", "dynatemp_range", "0"},
	{"dynatempExponent", "dynatemp_exponent", "1"},
	{"topP", "top_p", "1"},
	{"topK", "top_k", "0"},
	{"minP", "min_p", "0"},
	{"typicalP", "typical_p", "1"},
	{"topNSigma", "top_n_sigma", "-1"},
	{"xtcProbability", "xtc_probability", "0"},
	{"xtcThreshold", "xtc_threshold", "0.1"},
	{"mirostat", "mirostat", "0"},
	{"mirostatTau", "mirostat_tau", "5"},
	{"mirostatEta", "mirostat_eta", "0.1"},
	{"minKeep", "min_keep", "0"},
	{"samplers", "samplers", SAMPLERS},
	{"seed", "seed", "0"},
	{"maxTokens", "n_predict", "-1"}, /* to the end of the context; its own name, since another one may be in the server's arguments */
	{"stop", "stop", "[]"},
	{"ignoreEos", "ignore_eos", "false"},
	{"presencePenalty", "presence_penalty", "0"},
	{"frequencyPenalty", "frequency_penalty", "0"},
	{"repetitionPenalty", "repeat_penalty", "1"},
	{"repeatLastN", "repeat_last_n", "64"},
	{"dryMultiplier", "dry_multiplier", "0"},
	{"dryBase", "dry_base", "1.75"},
	{"dryAllowedLength", "dry_allowed_length", "2"},
	{"dryPenaltyLastN", "dry_penalty_last_n", "64"},
	{"logitBias", "logit_bias", NULL},
	{"reasoningEffort", "reasoning_effort", NULL},
	{"reasoningBudget", "reasoning_budget_tokens", NULL},
	{"templateArguments", "chat_template_kwargs", NULL},
	{NULL, NULL, NULL},
};

/* What /props does not tell (runtimes.md 4a): how it keeps prefixes, in which portions it computes, what else it loads. */
static const struct launch_flag flags[] = {
	{"B.revision", NULL, {"-hf", "-hfr", "--hf-repo"}, NULL, "LLAMA_ARG_HF_REPO"},
	{"B.draft_model", NULL, {"-md", "--model-draft", "--spec-draft-model"}, NULL, "LLAMA_ARG_MODEL_DRAFT"},
	{"B.projector", NULL, {"-mm", "--mmproj"}, NULL, "LLAMA_ARG_MMPROJ"},
	{"B.adapters", NULL, {"--lora", "--lora-scaled"}, NULL, NULL},
	{"C.batch_sizes", "batch_size", {"-b", "--batch-size"}, NULL, "LLAMA_ARG_BATCH"},
	{"C.batch_sizes", "ubatch_size", {"-ub", "--ubatch-size"}, NULL, "LLAMA_ARG_UBATCH"},
	{"C.cache_flags", "cache_prompt", {"--cache-prompt"}, "--no-cache-prompt", "LLAMA_ARG_CACHE_PROMPT"},
	{"C.cache_flags", "cache_ram", {"-cram", "--cache-ram"}, NULL, "LLAMA_ARG_CACHE_RAM"},
	{"C.cache_flags", "cache_reuse", {"--cache-reuse"}, NULL, "LLAMA_ARG_CACHE_REUSE"},
	{"C.cache_flags", "cache_type_k", {"-ctk", "--cache-type-k"}, NULL, "LLAMA_ARG_CACHE_TYPE_K"},
	{"C.cache_flags", "cache_type_v", {"-ctv", "--cache-type-v"}, NULL, "LLAMA_ARG_CACHE_TYPE_V"},
	{"C.cache_flags", "checkpoints", {"-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"}, NULL, "LLAMA_ARG_CTX_CHECKPOINTS"},
	{"C.cache_flags", "kv_unified", {"-kvu", "--kv-unified"}, "--no-kv-unified", "LLAMA_ARG_KV_UNIFIED"},
	{"C.cache_flags", "swa_full", {"--swa-full"}, "", "LLAMA_ARG_SWA_FULL"},
	{"C.speculation", "draft_max", {"--draft-max", "--draft", "--draft-n", "--spec-draft-n-max"}, NULL, "LLAMA_ARG_DRAFT_MAX"},
	{"C.speculation", "draft_min", {"--draft-min", "--draft-n-min", "--spec-draft-n-min"}, NULL, "LLAMA_ARG_DRAFT_MIN"},
	{"C.speculation", "type", {"--spec-type"}, NULL, "LLAMA_ARG_SPEC_TYPE"},
	{NULL, NULL, {NULL}, NULL, NULL},
};

#define SEED_RANDOM 4294967295.0 /* -1 in 32 bits: another one for each request */

static bool is_sampler(const struct json *name)
{
	static const char *const names[] = {"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"};

	for (size_t i = 0; i < COUNT_OF(names); i++)
		if (strcmp(names[i], name->string.text) == 0)
			return true;
	return false;
}

/* One that it does not know it leaves out without a word. */
static const char *refuse_samplers(const struct json *value)
{
	bool known = !json_is(value, JSON_STRING) || is_sampler(value);

	for (size_t i = 0; i < json_count(value); i++)
		known = known && is_sampler(json_at(value, i));
	return known ? NULL : "knows penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc and temperature";
}

static const char *refuse_sampling(const char *name, const struct json *value)
{
	if (strcmp(name, "samplers") == 0)
		return refuse_samplers(value);
	if (strcmp(name, "reasoningEffort") == 0) /* a bias of false, which others refuse, means never here */
		return chat_refuse_sampling(name, value);
	if (strcmp(name, "seed") == 0 && (value->number < 0 || value->number >= SEED_RANDOM))
		return "takes seeds from 0 to 4294967294; -1 and 4294967295 mean a random one";
	return NULL;
}

static struct json *make_request(struct arena *arena, const struct inference_request *request)
{
	struct json *body = chat_make_request(arena, request, sampling);

	chat_map_top_k(arena, body, 0);
	chat_list_texts(arena, body, "stop");
	chat_list_texts(arena, body, "samplers");
	/* Its default, said aloud: what is on stands in the request (C75); but true would turn on what --no-cache-prompt turned off. */
	json_set_boolean(arena, body, "cache_prompt", request->salt == NULL && !request->cache_off);
	chat_set_schema(arena, body, request);
	return body;
}

/* ---- Counting: the prompt as the template makes it, then its tokens ---- */

static struct json *make_prompt(struct arena *arena, const struct inference_request *request, const char *text)
{
	struct json *body = json_object(arena);

	(void)text;
	if (request->model != NULL) /* a router asks for it */
		json_set_text(arena, body, "model", request->model);
	json_set(arena, body, "messages", json_copy(arena, request->messages));
	chat_set_template_arguments(arena, body, request);
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

	if (request->model != NULL)
		json_set_text(arena, body, "model", request->model);
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
	const char *role = json_get_text(root, "role");

	if (!json_is(params, JSON_OBJECT))
		params = settings;
	set_build(facts, json_get_text(root, "build_info"));
	if (role != NULL && strcmp(role, "router") == 0) /* of itself; what else it says then stands there for nothing */
		return;
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

/* The command line that the router starts the model's own process with: no secrets, and not where that listens, which is elsewhere after each load. */
static struct json *kept_args(struct arena *arena, const struct json *args)
{
	static const char *const places[] = {"--host", "--port"};
	const char **argv = arena_alloc(arena, (json_count(args) + 1) * sizeof(*argv));
	size_t count = 0;

	for (size_t i = 0; i < json_count(args); i++) {
		const char *word = json_is(json_at(args, i), JSON_STRING) ? json_at(args, i)->string.text : "";

		if (strcmp(word, places[0]) == 0 || strcmp(word, places[1]) == 0)
			i++;
		else
			argv[count++] = word;
	}
	argv[count] = NULL;
	return launch_argv_json(arena, argv);
}

/* Each load is a process of its own, which listens elsewhere: the one thing that tells a model from the same one loaded anew. */
static const char *port_of(struct arena *arena, const struct json *args)
{
	for (size_t i = 0; i + 1 < json_count(args); i++)
		if (json_is(json_at(args, i), JSON_STRING) && strcmp(json_at(args, i)->string.text, "--port") == 0 && json_is(json_at(args, i + 1), JSON_STRING))
			return arena_printf(arena, "port %s", json_at(args, i + 1)->string.text);
	return NULL;
}

/* A router tells of each model whether it is loaded: asked for something of one that is not, it would load it. */
static void read_status(const struct json *data, const struct json *card, struct runtime_facts *facts)
{
	static const char source[] = "GET /v1/models status.args";
	const struct json *status = json_get(card, "status"), *told;
	const char *value = json_get_text(status, "value");
	struct json *args;

	for (size_t i = 0; i < json_count(data); i++)
		facts->is_router |= json_is(json_get(json_at(data, i), "status"), JSON_OBJECT);
	facts->is_unloaded = value != NULL && strcmp(value, "loaded") != 0 && strcmp(value, "sleeping") != 0;
	if (!facts->is_unloaded)
		facts->instance = port_of(facts->arena, json_get(status, "args"));
	if (json_count(json_get(status, "args")) == 0)
		return;
	args = kept_args(facts->arena, json_get(status, "args"));
	facts_set(facts, "C.argv", args, source);
	told = launch_read_flags(facts->arena, llamacpp_adapter.flags, args, NULL);
	for (size_t i = 0; i < json_count(told); i++)
		facts_set(facts, told->object.members[i].name, told->object.members[i].value, source);
}

/* `created` is now and `meta` null while it loads: only what is lasting is taken. */
static void read_models(struct bytes body, struct runtime_facts *facts)
{
	static const char *const kept[] = {"vocab_type", "n_vocab", "n_ctx_train", "n_embd", "n_params", "size", NULL};
	const struct json *data, *card;

	chat_read_models(body, facts);
	data = json_get(probe_json(body, facts), "data");
	card = find_wanted(facts, data);
	facts_set_members(facts, "B.model_meta", json_get(card, "meta"), kept, "GET /v1/models");
	read_status(data, card, facts);
}

/* What a path tells of a router's model; NULL: there is none, or it is not loaded, and would be. */
static const char *path_of_model(const struct runtime_facts *facts, const char *path)
{
	const char *model = facts_model(facts);
	struct buffer query;

	if (!facts->is_router)
		return path;
	if (model == NULL || facts->is_unloaded)
		return NULL;
	buffer_init(&query, 3 * strlen(model) + 1);
	url_encode(&query, bytes_text(model), URL_KEEP_UNRESERVED);
	path = arena_printf(facts->arena, "%s?model=%s&autoload=false", path, buffer_text(&query));
	buffer_close(&query);
	return path;
}

/* Of a router itself the build at least. */
static const char *make_props_path(const struct runtime_facts *facts)
{
	const char *path = path_of_model(facts, "/props");

	return path != NULL ? path : "/props";
}

static const char *make_adapters_path(const struct runtime_facts *facts)
{
	return path_of_model(facts, "/lora-adapters");
}

static void read_adapters(struct bytes body, struct runtime_facts *facts)
{
	const struct json *list = probe_json(body, facts);

	if (json_is(list, JSON_ARRAY))
		facts_set(facts, "B.adapters", json_copy(facts->arena, list), "GET /lora-adapters");
}

/* A value of a wrong type is read as if it were not there, so none would tell anything: each field has a value of its own instead, which no server
 * has by itself, and the answer says which are in force. For a token, when somebody asks for a probe. */
static const char trial[] =
	"{\"temperature\":0.77,\"dynatemp_range\":0.05,\"dynatemp_exponent\":1.3,\"top_p\":0.93,\"top_k\":17,\"min_p\":0.02,\"typical_p\":0.97,\"top_n_sigma\":5.5,"
	"\"xtc_probability\":0.03,\"xtc_threshold\":0.13,\"mirostat\":2,\"mirostat_tau\":4.5,\"mirostat_eta\":0.15,\"min_keep\":2,\"samplers\":[\"top_k\",\"temperature\"],"
	"\"seed\":20261130,\"n_predict\":1,\"stop\":[\"reprise probe\"],\"ignore_eos\":true,\"presence_penalty\":0.11,\"frequency_penalty\":0.12,\"repeat_penalty\":1.07,"
	"\"repeat_last_n\":33,\"dry_multiplier\":0.21,\"dry_base\":1.8,\"dry_allowed_length\":3,\"dry_penalty_last_n\":31,\"prompt\":\"Hi\",\"stream\":false}";

static struct json *make_trial(const struct runtime_facts *facts)
{
	struct json *body = json_parse(facts->arena, bytes_text(trial), JSON_STRICT, NULL, NULL);

	if (facts_model(facts) != NULL) /* a router asks for it */
		json_set_text(facts->arena, body, "model", facts_model(facts));
	return body;
}

/* Of logit_bias and what makes another prompt it says nothing in the form in which it was asked. */
static void read_trial(struct bytes body, struct runtime_facts *facts)
{
	const struct json *settings = json_get(probe_json(body, facts), "generation_settings"), *asked = make_trial(facts);

	if (!json_is(settings, JSON_OBJECT))
		return;
	facts->ignored = json_array(facts->arena);
	for (const struct sampling_field *field = sampling; field->ours != NULL; field++) {
		const struct json *value = json_get(asked, field->wire), *told = json_get(settings, field->wire);

		if (value != NULL && !sampling_is_in_force(value, told))
			json_add(facts->arena, facts->ignored, json_text(facts->arena, field->ours));
	}
}

const struct runtime_adapter llamacpp_adapter = {
	.kind = "llamacpp",
	.request_path = CHAT_PATH,
	.has_end_marker = true,
	.probes =
		{
			{.path = "/health"}, /* 503 while it loads */
			{.path = "/v1/models", .read = read_models},
			{.path = "/props", .make_path = make_props_path, .read = read_props},
			{.path = "/lora-adapters", .make_path = make_adapters_path, .read = read_adapters},
			{.path = "/completion", .make_body = make_trial, .generates = true, .read = read_trial},
		},
	.count = {{.path = "/apply-template", .make_body = make_prompt, .read = read_prompt},
		  {.path = "/tokenize", .make_body = make_tokens, .read = read_tokens}},
	.bypass = {.name = "cache_prompt"},
	.flags = flags,
	.sampling = sampling,
	.finds_ignored = true,
	.refuse_sampling = refuse_sampling,
	.make_request = make_request,
	.read_event = chat_read_event,
	.read_whole = chat_read_whole,
	.read_failure = answer_read_failure,
};
