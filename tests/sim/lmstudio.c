/* Kind "lmstudio": LM Studio's three APIs, /v1 (OpenAI's), /api/v0 and /api/v1. Loop thread. Start at lmstudio_kind. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/request.h"
#include "workflow/base/check.h"

enum {
	PAGE_BYTES_MAX = 64 * 1024,
	MESSAGE_BYTES_MAX = 512,
	IDLE_MS = 5000, /* as Express says in its Keep-Alive header */
	PARALLEL = 4,
	TTL_MS = 60 * 60 * 1000,
	TOKENS_PER_SECOND = 100, /* told in `stats`; no clock */
};

enum variant { VARIANT_OPENAI, VARIANT_V0, VARIANT_V1 };

static const char plain[] = "plain"; /* refusal.code of errors that are a mere text */

/* ---- The request ---- */

/* A field of the wrong type is called by its key in the schema of settings. */
static int check_types(const struct json *body, struct ask *ask, struct error *error)
{
	static const struct { const char *name, *key; } numbers[] = {
		{"temperature", "temperature"}, {"top_p", "topPSampling"}, {"top_k", "topKSampling"}, {"min_p", "minPSampling"},
		{"seed", "seed"}, {"max_tokens", "maxPredictedTokens"}, {"max_output_tokens", "maxPredictedTokens"},
		{"repeat_penalty", "repeatPenalty"}, {"presence_penalty", "presencePenalty"}, {"frequency_penalty", "frequencyPenalty"},
	};
	static const struct { const char *name, *key; enum json_type type; } others[] = {
		{"logit_bias", "logitBias", JSON_OBJECT}, {"reasoning_effort", "reasoningEffort", JSON_STRING},
	};

	for (size_t i = 0; i < COUNT_OF(numbers); i++) {
		const struct json *value = json_get(body, numbers[i].name);

		if (value != NULL && !json_is(value, JSON_NULL) && !json_is(value, JSON_NUMBER))
			return request_refuse(ask, 400, NULL, numbers[i].name, error,
				"Field with key llm.prediction.%s does not satisfy the schema: expected a number", numbers[i].key);
	}
	for (size_t i = 0; i < COUNT_OF(others); i++) {
		const struct json *value = json_get(body, others[i].name);

		if (value != NULL && !json_is(value, JSON_NULL) && !json_is(value, others[i].type))
			return request_refuse(ask, 400, NULL, others[i].name, error,
				"Field with key llm.prediction.%s does not satisfy the schema: expected %s", others[i].key, json_type_name(others[i].type));
	}
	return 0;
}

/* -1 is no limit. */
static int read_tokens(const struct json *body, const char *name, struct ask *ask, struct error *error)
{
	return json_get_number(body, name, -1) == -1 ? 0 : request_read_limit(body, name, ask, error);
}

static void read_ttl(const struct sim *sim, const struct json *body, struct ask *ask)
{
	double seconds = json_get_number(body, "ttl", 0);

	ask->ttl_ms = sim->script->options.ttl_ms > 0 ? sim->script->options.ttl_ms : TTL_MS;
	if (seconds > 0 && seconds < 1e12)
		ask->ttl_ms = (int64_t)(seconds * 1e3);
}

/* MLX takes a seed and does not use it. */
static bool ignores_seed(const struct sim *sim, const struct json *body)
{
	return strcmp(sim->script->options.format, "mlx") == 0 || !json_is(json_get(body, "seed"), JSON_NUMBER);
}

static int read_openai(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	const char *effort = json_get_text(body, "reasoning_effort");

	ask->variant = path_is(connection, HTTP_POST, "/api/v0/chat/completions") ? VARIANT_V0 : VARIANT_OPENAI;
	if (!json_is(body, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "body: must be an object");
	ask->model = json_get_text(body, "model") != NULL ? json_get_text(body, "model") : sim->script->model;
	ask->seed_ignored = ignores_seed(sim, body);
	ask->no_reasoning = effort != NULL && strcmp(effort, "none") == 0;
	if (json_get(body, "messages") == NULL)
		return request_refuse(ask, 400, plain, NULL, error, "'messages' field is required");
	read_ttl(sim, body, ask);
	if (check_types(body, ask, error) != 0 ||
	    request_read_stream(body, false, ask, error) != 0 ||
	    request_read_seed(body, "seed", ask, error) != 0 ||
	    request_read_messages(json_get(body, "messages"), arena, ask, error) != 0 ||
	    request_read_temperature(body, 0.8, ask, error) != 0 ||
	    request_read_range(body, "top_p", 0, 1, error) != 0 ||
	    read_tokens(body, "max_tokens", ask, error) != 0 ||
	    request_read_stops(json_get(body, "stop"), ASK_STOPS_MAX, ask, error) != 0)
		return ERR_INVALID;
	if (json_get_text(json_get(body, "response_format"), "type") != NULL &&
	    strcmp(json_get_text(json_get(body, "response_format"), "type"), "json_object") == 0)
		return request_refuse(ask, 400, plain, NULL, error, "'response_format.type' must be 'json_schema' or 'text'");
	return request_read_format(json_get(body, "response_format"), ask, error);
}

/* The input is a text, or a list of which the texts count; the system prompt stands before it. */
static int read_input(const struct json *body, struct arena *arena, struct ask *ask, struct error *error)
{
	const struct json *input = json_get(body, "input"), *system = json_get(body, "system_prompt");
	struct json *messages = json_array(arena), *message;

	if (json_is(system, JSON_STRING) && system->string.len > 0) {
		message = json_object(arena);
		json_set_text(arena, message, "role", "system");
		json_set(arena, message, "content", (struct json *)(uintptr_t)system);
		json_add(arena, messages, message);
	}
	if (!json_is(input, JSON_STRING) && (!json_is(input, JSON_ARRAY) || json_count(input) == 0))
		return request_refuse(ask, 400, "invalid_request", "input", error, "'input' must be a string or a list that is not empty");
	for (size_t i = 0; i < (json_is(input, JSON_STRING) ? 1 : json_count(input)); i++) {
		const struct json *content = json_is(input, JSON_STRING) ? input : json_get(json_at(input, i), "content");

		if (!json_is(content, JSON_STRING))
			return request_refuse(ask, 400, "invalid_request", "input", error, "'input[%zu].content' must be a string", i);
		message = json_object(arena);
		json_set_text(arena, message, "role", "user");
		json_set(arena, message, "content", (struct json *)(uintptr_t)content);
		json_add(arena, messages, message);
	}
	return request_read_messages(messages, arena, ask, error);
}

/* No seed, no stop, no response_format on this path. */
static int read_v1(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	static const char *const levels[] = {"off", "low", "medium", "high", "on"};
	const struct json *reasoning = json_get(body, "reasoning");
	bool known = reasoning == NULL || json_is(reasoning, JSON_NULL);

	(void)connection;
	ask->variant = VARIANT_V1;
	ask->model = json_get_text(body, "model");
	if (ask->model == NULL)
		return request_refuse(ask, 400, "invalid_request", "model", error, "'model' is required");
	for (size_t i = 0; i < COUNT_OF(levels); i++)
		known = known || (json_is(reasoning, JSON_STRING) && strcmp(reasoning->string.text, levels[i]) == 0);
	if (!known)
		return request_refuse(ask, 400, "invalid_request", "reasoning", error, "'reasoning' must be one of: off, low, medium, high, on");
	ask->no_reasoning = json_is(reasoning, JSON_STRING) && strcmp(reasoning->string.text, "off") == 0;
	ask->seed_ignored = true;
	read_ttl(sim, body, ask);
	if (check_types(body, ask, error) != 0 ||
	    request_read_stream(body, false, ask, error) != 0 ||
	    request_read_range(body, "temperature", 0, 1, error) != 0 ||
	    request_read_temperature(body, 0.8, ask, error) != 0 ||
	    read_tokens(body, "max_output_tokens", ask, error) != 0)
		return ERR_INVALID;
	return read_input(body, arena, ask, error);
}

static struct model_state *find_loaded(struct sim *sim)
{
	for (size_t i = 0; i < sim->runtime.model_count; i++) {
		if (sim->runtime.models[i]->loaded)
			return sim->runtime.models[i];
	}
	return NULL;
}

static int context_of(const struct sim *sim, const struct model_state *model)
{
	return model->context_tokens > 0 ? model->context_tokens : sim->script->options.context_tokens;
}

static int find_model(struct sim *sim, struct ask *ask, struct error *error)
{
	const struct kind_options *options = &sim->script->options;
	bool v1 = ask->variant == VARIANT_V1;

	ask->state = request_find_model(sim, ask->model);
	if (ask->state == NULL)
		return request_refuse(ask, 404, v1 ? "model_not_found" : NULL, "model", error, "Model \"%.200s\" not found", ask->model);
	if (ask->state->loaded) {
		if (!ask->state->by_request)
			ask->ttl_ms = -1;
		return 0;
	}
	if (options->jit && options->load_error != NULL)
		return request_refuse(ask, 500, v1 ? "internal_error" : NULL, "model", error, "%.400s", options->load_error);
	if (options->jit) {
		ask->evicts = true;
		return 0;
	}
	ask->state = find_loaded(sim);
	if (ask->state == NULL)
		return request_refuse(ask, 404, v1 ? "model_not_found" : NULL, "model", error,
			"No models loaded. Please load a model in the developer page or use the 'lms load' command.");
	ask->model = ask->state->name; /* Another one answers: the only sign is its name. */
	return 0;
}

static int admit(struct sim *sim, struct arena *arena, struct ask *ask, struct error *error)
{
	uint64_t context, prompt = token_count(ask->prompt);

	(void)arena;
	if (find_model(sim, ask, error) != 0)
		return ERR_INVALID;
	context = (uint64_t)context_of(sim, ask->state);
	if (prompt >= context)
		return request_refuse(ask, 400, ask->variant == VARIANT_V1 ? "invalid_request" : plain, NULL, error, "Trying to keep the first %" PRIu64
			" tokens when context the overflows. However, the model is loaded with context length of only %" PRIu64
			" tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input", prompt, context);
	if (ask->tokens_max == 0 || ask->tokens_max > context - prompt)
		ask->tokens_max = context - prompt;
	return 0;
}

/* ---- Errors ---- */

static void print_error(const struct refusal *refusal, const char *message, struct buffer *out)
{
	buffer_add_text(out, "{\"error\":");
	if (refusal->code == plain) {
		print_text(message, out);
		buffer_add_char(out, '}');
		return;
	}
	buffer_add_text(out, "{\"message\":");
	print_text(message, out);
	buffer_printf(out, ",\"type\":\"%s\",\"param\":", refusal->status >= 500 ? "server_error" : "invalid_request_error");
	if (refusal->param != NULL)
		print_text(refusal->param, out);
	else
		buffer_add_text(out, "null");
	buffer_add_text(out, ",\"code\":null}}");
}

static const char *v1_type(const struct refusal *refusal)
{
	return refusal->code != NULL ? refusal->code : refusal->status == 404 ? "model_not_found" : refusal->status >= 500 ? "internal_error" :
		"invalid_request";
}

static void print_v1_error(const struct refusal *refusal, const char *message, struct buffer *out)
{
	buffer_printf(out, "{\"error\":{\"type\":\"%s\",\"message\":", v1_type(refusal));
	print_text(message, out);
	if (refusal->param != NULL) {
		buffer_add_text(out, ",\"param\":");
		print_text(refusal->param, out);
	}
	buffer_add_text(out, "}}");
}

static void print_error_event(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	buffer_add_text(out, "event: error\ndata: ");
	print_error(&(struct refusal){.status = 500}, "the simulator was told to fail", out);
	buffer_add_text(out, "\n\n");
}

/* ---- /v1 and /api/v0 ---- */

static void print_prefix(const struct reply *reply, const char *object, struct buffer *out)
{
	buffer_printf(out, "{\"id\":\"chatcmpl-%016" PRIx64 "\",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":",
		random_draw(0, reply->ordinal, RANDOM_ANSWER, 0), object, CREATED_BASE + reply->ordinal);
	print_text(reply->model, out);
	buffer_add_text(out, ",\"system_fingerprint\":");
	print_text(reply->model, out);
	buffer_add_text(out, ",\"choices\":[");
}

static void prepare(struct reply *reply, struct arena *arena)
{
	print_prefix_once(reply, arena, print_prefix);
}

static void print_counts(const struct reply *reply, struct buffer *out)
{
	uint64_t tokens = reply_tokens(reply);

	buffer_printf(out, "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64
		",\"completion_tokens_details\":{\"reasoning_tokens\":%" PRIu64 "}}", reply->prompt_tokens, tokens, reply->prompt_tokens + tokens,
		reply->reasoning_tokens);
}

/* In thousandths, since the tokens decide, no clock. */
static void print_seconds(uint64_t ms, struct buffer *out)
{
	json_print_number((double)ms / 1e3, out);
}

static const char *stop_reason(const struct reply *reply)
{
	return reply->stop_hit != NULL ? "stopStringFound" : strcmp(reply->finish, "length") == 0 ? "maxPredictedTokensReached" : "eosFound";
}

/* The only place over HTTP that names the engine. */
static void print_v0_members(const struct reply *reply, struct buffer *out)
{
	const struct kind_options *options = &reply->script->options;
	bool mlx = strcmp(options->format, "mlx") == 0;
	uint64_t tokens = reply_tokens(reply);

	if (reply->ask->variant != VARIANT_V0)
		return;
	buffer_printf(out, ",\"stats\":{\"tokens_per_second\":%d,\"time_to_first_token\":", TOKENS_PER_SECOND);
	print_seconds(reply->prompt_tokens, out);
	buffer_add_text(out, ",\"generation_time\":");
	print_seconds(tokens * 1000 / TOKENS_PER_SECOND, out);
	buffer_printf(out, ",\"stop_reason\":\"%s\"},\"model_info\":{\"arch\":\"llama\",\"quant\":\"Q8_0\",\"format\":", stop_reason(reply));
	print_text(options->format, out);
	buffer_printf(out, ",\"context_length\":%d},\"runtime\":{\"name\":\"%s\",\"version\":", options->context_tokens,
		mlx ? "mlx-llm-mac-arm64-apple-metal-advsimd" : "llama.cpp-linux-x86_64-nvidia-cuda-avx2");
	print_text(options->version, out);
	buffer_add_text(out, ",\"supported_formats\":[");
	print_text(options->format, out);
	buffer_add_text(out, "]}");
}

static void print_whole(const struct reply *reply, struct buffer *out)
{
	print_prefix(reply, "chat.completion", out);
	buffer_add_text(out, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
	print_bytes(reply->text, out);
	if (reply->reasoning.len > 0) {
		buffer_add_char(out, ',');
		print_text(reply->script->options.reasoning_field, out);
		buffer_add_char(out, ':');
		print_bytes(reply->reasoning, out);
	}
	buffer_printf(out, ",\"tool_calls\":[]},\"logprobs\":null,\"finish_reason\":\"%s\"}],", reply->finish);
	print_counts(reply, out);
	print_v0_members(reply, out);
	buffer_add_char(out, '}');
}

static void print_piece(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "{\"index\":0,\"delta\":{\"role\":\"assistant\",");
	print_text(reasoning ? reply->script->options.reasoning_field : "content", out);
	buffer_add_char(out, ':');
	print_bytes(piece, out);
	buffer_add_text(out, "},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

static void print_finish(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_printf(out, "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"%s\"}]", reply->finish);
	print_v0_members(reply, out);
	buffer_add_text(out, "}\n\n");
}

static void print_usage(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "],");
	print_counts(reply, out);
	buffer_add_text(out, "}\n\n");
}

/* ---- /api/v1/chat ---- */

static void print_v1_whole(const struct reply *reply, struct buffer *out)
{
	uint64_t tokens = reply_tokens(reply);

	buffer_add_text(out, "{\"model_instance_id\":");
	print_text(reply->model, out);
	buffer_add_text(out, ",\"output\":[");
	if (reply->reasoning.len > 0) {
		buffer_add_text(out, "{\"type\":\"reasoning\",\"content\":");
		print_bytes(reply->reasoning, out);
		buffer_add_text(out, "},");
	}
	buffer_add_text(out, "{\"type\":\"message\",\"content\":");
	print_bytes(reply->text, out);
	buffer_printf(out, "}],\"stats\":{\"input_tokens\":%" PRIu64 ",\"total_output_tokens\":%" PRIu64 ",\"reasoning_output_tokens\":%" PRIu64
		",\"tokens_per_second\":%d,\"time_to_first_token_seconds\":", reply->prompt_tokens, tokens, reply->reasoning_tokens, TOKENS_PER_SECOND);
	print_seconds(reply->prompt_tokens, out);
	if (reply->loaded_now) {
		buffer_add_text(out, ",\"model_load_time_seconds\":");
		print_seconds(reply->load_ms, out);
	}
	buffer_add_char(out, '}');
	if (json_get_boolean(reply->ask->body, "store", true))
		buffer_printf(out, ",\"response_id\":\"resp_%016" PRIx64 "\"", random_draw(1, reply->ordinal, RANDOM_ANSWER, 0));
	buffer_add_char(out, '}');
}

/* An event whose data is its type and nothing, or what the caller adds before print_event_end(). */
static void print_event(const char *type, struct buffer *out)
{
	buffer_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void print_event_end(struct buffer *out)
{
	buffer_add_text(out, "}\n\n");
}

static void print_instance_event(const struct reply *reply, const char *type, struct buffer *out)
{
	print_event(type, out);
	buffer_add_text(out, ",\"model_instance_id\":");
	print_text(reply->model, out);
}

static void print_v1_load(const struct reply *reply, bool done, struct buffer *out)
{
	if (!done) {
		print_instance_event(reply, "chat.start", out);
		print_event_end(out);
		print_instance_event(reply, "model_load.start", out);
		print_event_end(out);
		return;
	}
	print_instance_event(reply, "model_load.progress", out);
	buffer_add_text(out, ",\"progress\":1");
	print_event_end(out);
	print_instance_event(reply, "model_load.end", out);
	buffer_add_text(out, ",\"load_time_seconds\":");
	print_seconds(reply->load_ms, out);
	print_event_end(out);
}

static void print_v1_start(const struct reply *reply, struct buffer *out)
{
	if (!reply->loaded_now) {
		print_instance_event(reply, "chat.start", out);
		print_event_end(out);
	}
	print_event("prompt_processing.start", out);
	print_event_end(out);
	print_event("prompt_processing.progress", out);
	buffer_add_text(out, ",\"progress\":1");
	print_event_end(out);
	print_event("prompt_processing.end", out);
	print_event_end(out);
}

static void print_v1_edge(const struct reply *reply, bool reasoning, bool end, struct buffer *out)
{
	(void)reply;
	print_event(reasoning ? (end ? "reasoning.end" : "reasoning.start") : (end ? "message.end" : "message.start"), out);
	print_event_end(out);
}

static void print_v1_piece(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out)
{
	(void)reply;
	print_event(reasoning ? "reasoning.delta" : "message.delta", out);
	buffer_add_text(out, ",\"content\":");
	print_bytes(piece, out);
	print_event_end(out);
}

static void print_v1_error_event(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	print_event("error", out);
	buffer_add_text(out, ",\"error\":{\"type\":\"internal_error\",\"message\":\"the simulator was told to fail\"}");
	print_event_end(out);
}

static void print_v1_end(const struct reply *reply, struct buffer *out)
{
	if (reply->breaks_off)
		return;
	print_event("chat.end", out);
	buffer_add_text(out, ",\"result\":");
	print_v1_whole(reply, out);
	print_event_end(out);
}

/* ---- The other paths ---- */

static const char *model_name(const struct sim *sim, size_t index)
{
	return index == 0 ? sim->script->model : sim->script->options.models[index - 1];
}

/* Loaded, and the load is over. */
static struct model_state *find_ready(struct sim *sim, const char *name)
{
	struct model_state *model = request_find_model(sim, name);

	return model != NULL && model->loaded && runtime_load_left_ms(&sim->runtime, model) == 0 ? model : NULL;
}

static void print_load_config(const struct sim *sim, const struct model_state *model, struct buffer *out)
{
	buffer_printf(out, "{\"context_length\":%d,\"eval_batch_size\":512,\"parallel\":%d,\"flash_attention\":true,\"offload_kv_cache_to_gpu\":true}",
		context_of(sim, model), sim->script->options.slots);
}

static void print_v1_model(struct sim *sim, const char *name, struct buffer *out)
{
	const struct model_state *model = find_ready(sim, name);

	buffer_add_text(out, "{\"type\":\"llm\",\"publisher\":\"reprise\",\"key\":");
	print_text(name, out);
	buffer_add_text(out, ",\"display_name\":");
	print_text(name, out);
	buffer_add_text(out, ",\"architecture\":\"llama\",\"quantization\":{\"name\":\"Q8_0\",\"bits_per_weight\":8},\"size_bytes\":7800000,"
		"\"params_string\":\"7M\",\"loaded_instances\":[");
	if (model != NULL) {
		buffer_add_text(out, "{\"id\":");
		print_text(name, out);
		buffer_add_text(out, ",\"config\":");
		print_load_config(sim, model, out);
		buffer_add_char(out, '}');
	}
	buffer_add_text(out, "],\"max_context_length\":262144,\"format\":");
	print_text(sim->script->options.format, out);
	buffer_add_text(out, ",\"capabilities\":{\"vision\":false,\"trained_for_tool_use\":false,\"reasoning\":{\"allowed_options\":[\"off\",\"on\"],"
		"\"default\":\"on\"}},\"description\":null,\"variants\":[],\"selected_variant\":null}");
}

static void print_v0_model(struct sim *sim, const char *name, struct buffer *out)
{
	const struct model_state *model = find_ready(sim, name);

	buffer_add_text(out, "{\"id\":");
	print_text(name, out);
	buffer_add_text(out, ",\"object\":\"model\",\"type\":\"llm\",\"publisher\":\"reprise\",\"arch\":\"llama\",\"compatibility_type\":");
	print_text(sim->script->options.format, out);
	buffer_printf(out, ",\"quantization\":\"Q8_0\",\"state\":\"%s\",\"max_context_length\":262144", model != NULL ? "loaded" : "not-loaded");
	if (model != NULL)
		buffer_printf(out, ",\"loaded_context_length\":%d", context_of(sim, model));
	buffer_add_text(out, ",\"capabilities\":[]}");
}

static void print_openai_model(struct sim *sim, const char *name, struct buffer *out)
{
	(void)sim;
	buffer_add_text(out, "{\"id\":");
	print_text(name, out);
	buffer_add_text(out, ",\"object\":\"model\",\"owned_by\":\"organization_owner\"}");
}

static void serve_list(struct sim *sim, struct http_connection *connection, const char *start,
	void (*print)(struct sim *sim, const char *name, struct buffer *out))
{
	struct buffer page;

	buffer_init(&page, (size_t)(OPTION_MODELS_MAX + 1) * PAGE_BYTES_MAX);
	buffer_add_text(&page, start);
	for (size_t i = 0; i <= sim->script->options.model_count; i++) {
		if (i > 0)
			buffer_add_char(&page, ',');
		print(sim, model_name(sim, i), &page);
	}
	buffer_add_text(&page, "]}");
	reply_json(connection, 200, &page);
}

static void reply_v1_error(struct http_connection *connection, int status, const char *code, const char *param, const char *message)
{
	struct refusal refusal = {.status = status, .code = code, .param = param};
	struct buffer page;

	buffer_init(&page, PAGE_BYTES_MAX);
	print_v1_error(&refusal, message, &page);
	reply_json(connection, status, &page);
}

static void serve_load(struct sim *sim, struct http_connection *connection)
{
	const struct kind_options *options = &sim->script->options;
	char message[MESSAGE_BYTES_MAX];
	struct model_state *model;
	struct buffer page;
	struct arena arena;
	const struct json *body, *context;
	const char *name;

	arena_init(&arena);
	body = request_parse(sim, connection, &arena);
	if (body == NULL)
		goto end;
	name = json_get_text(body, "model");
	context = json_get(body, "context_length");
	model = name != NULL ? request_find_model(sim, name) : NULL;
	if (name == NULL) {
		reply_v1_error(connection, 400, NULL, "model", "'model' is required");
	} else if (model == NULL) {
		snprintf(message, sizeof(message), "Model \"%.200s\" not found", name);
		reply_v1_error(connection, 404, NULL, "model", message);
	} else if (context != NULL && (!json_is_integer(context) || context->number < 1 || context->number > 1 << 30)) {
		reply_v1_error(connection, 400, NULL, "context_length", "'context_length' must be a positive integer");
	} else if (options->load_error != NULL) {
		reply_v1_error(connection, 500, NULL, "model", options->load_error);
	} else {
		runtime_load(&sim->runtime, model, options->load_ms);
		model->by_request = false;
		uv_timer_stop(&model->timer);
		model->context_tokens = context != NULL ? (int)context->number : 0;
		buffer_init(&page, PAGE_BYTES_MAX);
		buffer_add_text(&page, "{\"type\":\"llm\",\"instance_id\":");
		print_text(name, &page);
		buffer_add_text(&page, ",\"load_time_seconds\":");
		print_seconds((uint64_t)options->load_ms, &page);
		buffer_add_text(&page, ",\"status\":\"loaded\"");
		if (json_get_boolean(body, "echo_load_config", false)) {
			buffer_add_text(&page, ",\"load_config\":");
			print_load_config(sim, model, &page);
		}
		buffer_add_char(&page, '}');
		http_reply_later(connection, 200, buffer_bytes(&page), runtime_load_left_ms(&sim->runtime, model));
		buffer_close(&page);
	}
end:
	arena_close(&arena);
}

static void serve_unload(struct sim *sim, struct http_connection *connection)
{
	struct model_state *model;
	struct buffer page;
	struct arena arena;
	const struct json *body;
	const char *name;

	arena_init(&arena);
	body = request_parse(sim, connection, &arena);
	if (body == NULL)
		goto end;
	name = json_get_text(body, "instance_id");
	model = name != NULL ? request_find_model(sim, name) : NULL;
	if (name == NULL) {
		reply_v1_error(connection, 400, NULL, "instance_id", "'instance_id' is required");
	} else if (model == NULL || !model->loaded) {
		reply_v1_error(connection, 404, NULL, "instance_id", "No such instance is loaded");
	} else {
		runtime_unload(&sim->runtime, model);
		buffer_init(&page, PAGE_BYTES_MAX);
		buffer_add_text(&page, "{\"instance_id\":");
		print_text(name, &page);
		buffer_add_char(&page, '}');
		reply_json(connection, 200, &page);
	}
end:
	arena_close(&arena);
}

/* 200, whatever was asked: the trap of this runtime. */
static void serve_unknown(struct http_connection *connection)
{
	char message[MESSAGE_BYTES_MAX];
	struct buffer page;

	snprintf(message, sizeof(message), "Unexpected endpoint or method. (%s %.300s)", http_method_str(connection->method),
		buffer_text(&connection->path));
	buffer_init(&page, PAGE_BYTES_MAX);
	buffer_add_text(&page, "{\"error\":");
	print_text(utf8_valid(bytes_text(message), NULL) ? message : "Unexpected endpoint or method.", &page);
	buffer_add_char(&page, '}');
	reply_json(connection, 200, &page);
}

static void serve(struct sim *sim, struct http_connection *connection)
{
	static const char v0_models[] = "/api/v0/models/";
	const struct kind_options *options = &sim->script->options;
	struct bytes path = buffer_bytes(&connection->path);
	struct buffer page;

	if (path_is(connection, HTTP_GET, "/lmstudio-greeting")) {
		http_reply(connection, 200, "application/json", "", BYTES_OF("{\"lmstudio\":true}"));
	} else if (path_is(connection, HTTP_GET, "/v1/models")) {
		serve_list(sim, connection, "{\"object\":\"list\",\"data\":[", print_openai_model);
	} else if (options->api_v0 && path_is(connection, HTTP_GET, "/api/v0/models")) {
		serve_list(sim, connection, "{\"object\":\"list\",\"data\":[", print_v0_model);
	} else if (options->api_v0 && connection->method == HTTP_GET && path.len > sizeof(v0_models) - 1 &&
		   memcmp(path.data, v0_models, sizeof(v0_models) - 1) == 0) {
		const char *name = buffer_text(&connection->path) + sizeof(v0_models) - 1;

		if (request_find_model(sim, name) == NULL) {
			reply_refusal(sim, connection, 404, NULL, "there is no such model");
			return;
		}
		buffer_init(&page, PAGE_BYTES_MAX);
		print_v0_model(sim, name, &page);
		reply_json(connection, 200, &page);
	} else if (options->api_v1 && path_is(connection, HTTP_GET, "/api/v1/models")) {
		serve_list(sim, connection, "{\"models\":[", print_v1_model);
	} else if (options->api_v1 && path_is(connection, HTTP_POST, "/api/v1/models/load")) {
		serve_load(sim, connection);
	} else if (options->api_v1 && path_is(connection, HTTP_POST, "/api/v1/models/unload")) {
		serve_unload(sim, connection);
	} else {
		serve_unknown(connection);
	}
}

static const struct dialect openai_dialect = {
	.stream_type = "text/event-stream",
	.event_end = "\n\n",
	.read_ask = read_openai,
	.print_error = print_error,
	.malformed = plain,
	.prepare = prepare,
	.print_whole = print_whole,
	.print_start = print_nothing,
	.print_piece = print_piece,
	.print_finish = print_finish,
	.print_usage = print_usage,
	.print_error_event = print_error_event,
	.print_end = print_done,
};

static const struct dialect v1_dialect = {
	.stream_type = "text/event-stream",
	.event_end = "\n\n",
	.read_ask = read_v1,
	.print_error = print_v1_error,
	.print_whole = print_v1_whole,
	.print_load = print_v1_load,
	.print_start = print_v1_start,
	.print_edge = print_v1_edge,
	.print_piece = print_v1_piece,
	.print_finish = print_nothing,
	.print_usage = print_nothing,
	.print_error_event = print_v1_error_event,
	.print_end = print_v1_end,
};

static const struct dialect *dialect_of(const struct sim *sim, const struct http_connection *connection)
{
	const struct kind_options *options = &sim->script->options;

	if (path_is(connection, HTTP_POST, "/v1/chat/completions") ||
	    (options->api_v0 && path_is(connection, HTTP_POST, "/api/v0/chat/completions")))
		return &openai_dialect;
	return options->api_v1 && path_is(connection, HTTP_POST, "/api/v1/chat") ? &v1_dialect : NULL;
}

const struct kind lmstudio_kind = {
	.name = "lmstudio",
	.bit = KIND_LMSTUDIO,
	.options = {.prompt_cache = true, .loaded = true, .jit = true, .api_v0 = true, .api_v1 = true, .slots = PARALLEL, .context_tokens = 32768,
		.idle_ms = IDLE_MS, .version = "2.8.0", .reasoning_field = "reasoning_content", .format = "gguf"},
	.loading = "the simulator is starting",
	.idle_header = "Keep-Alive: timeout=5\r\n",
	.dialect_of = dialect_of,
	.serve = serve,
	.admit = admit,
	.print_error = print_error,
};
