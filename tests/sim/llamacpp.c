/* Kind "llamacpp": llama-server with one model, or its router with several. Loop thread. Start at llamacpp_kind. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/request.h"
#include "workflow/base/check.h"

enum {
	PAGE_BYTES_MAX = 64 * 1024,
	PROMPT_MS_PER_TOKEN = 1, TEXT_MS_PER_TOKEN = 10, /* told in `timings`; no clock */
};

enum variant { VARIANT_CHAT, VARIANT_COMPLETION };

#define TEMPLATE "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"

/* ---- Sampling parameters: what a request leaves out has these values ---- */

struct parameter {
	const char *name, *value; /* the default, as JSON */
};

static const struct parameter parameters[] = {
	{"seed", "4294967295"}, {"temperature", "0.8"}, {"dynatemp_range", "0"}, {"dynatemp_exponent", "1"}, {"top_k", "40"},
	{"top_p", "0.95"}, {"min_p", "0.05"}, {"top_n_sigma", "-1"}, {"xtc_probability", "0"}, {"xtc_threshold", "0.1"},
	{"typical_p", "1"}, {"repeat_last_n", "64"}, {"repeat_penalty", "1"}, {"presence_penalty", "0"}, {"frequency_penalty", "0"},
	{"dry_multiplier", "0"}, {"dry_base", "1.75"}, {"dry_allowed_length", "2"}, {"dry_penalty_last_n", "64"}, {"mirostat", "0"},
	{"mirostat_tau", "5"}, {"mirostat_eta", "0.1"}, {"stop", "[]"},
	{"n_keep", "0"}, {"n_probs", "0"}, {"min_keep", "0"}, {"ignore_eos", "false"}, {"stream", "true"}, {"grammar", "\"\""},
	{"samplers", "[\"penalties\",\"dry\",\"top_n_sigma\",\"top_k\",\"typ_p\",\"top_p\",\"min_p\",\"xtc\",\"temperature\"]"},
	{"timings_per_token", "false"}, {"lora", "[]"},
};

/* As it was asked for, by the first of its names; -1: to the end of the context. */
static int64_t n_predict_of(const struct json *body)
{
	static const char *const names[] = {"n_predict", "max_completion_tokens", "max_tokens"};

	for (size_t i = 0; i < COUNT_OF(names); i++)
		if (json_is_integer(json_get(body, names[i])))
			return (int64_t)json_get(body, names[i])->number;
	return -1;
}

/* A value of another type is not taken, without a word: they are read by name, with the default. */
static bool has_type_of(const char *fallback, const struct json *value)
{
	switch (fallback[0]) {
	case '"': return json_is(value, JSON_STRING);
	case '[': return json_is(value, JSON_ARRAY);
	case 't': case 'f': return json_is(value, JSON_BOOLEAN);
	default: return json_is(value, JSON_NUMBER);
	}
}

static void print_parameters(const struct json *body, struct buffer *out)
{
	int64_t n_predict = n_predict_of(body);

	buffer_printf(out, "{\"n_predict\":%" PRId64 ",\"max_tokens\":%" PRId64, n_predict, n_predict);
	for (size_t i = 0; i < COUNT_OF(parameters); i++) {
		const struct json *value = json_get(body, parameters[i].name);
		bool random = i == 0 && json_is(value, JSON_NUMBER) && value->number < 0;

		buffer_printf(out, ",\"%s\":", parameters[i].name);
		if (!has_type_of(parameters[i].value, value) || random)
			buffer_add_text(out, parameters[i].value);
		else
			json_print(value, out);
	}
	buffer_add_char(out, '}');
}

/* ---- The request ---- */

static int read_n_predict(const struct json *body, const char *name, struct ask *ask, struct error *error)
{
	const struct json *value = json_get(body, name);

	if (json_is_integer(value) && value->number == -1) {
		ask->tokens_max = 0;
		return 0;
	}
	return request_read_limit(body, name, ask, error);
}

static int read_schema(const struct json *schema, struct ask *ask, struct error *error)
{
	if (schema == NULL || json_is(schema, JSON_NULL))
		return 0;
	if (!json_is(schema, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "\"json_schema\": JSON schema conversion failed: unrecognized schema");
	ask->schema = schema;
	return 0;
}

/* Both nestings are in use: OpenAI's, and the schema right beside the type. */
static int read_response_format(const struct json *format, struct ask *ask, struct error *error)
{
	const char *type = json_get_text(format, "type");

	if (format == NULL || json_is(format, JSON_NULL) || (type != NULL && strcmp(type, "text") == 0))
		return 0;
	if (type != NULL && strcmp(type, "json_object") == 0) {
		ask->json_only = true;
		return read_schema(json_get(format, "schema"), ask, error);
	}
	if (type != NULL && strcmp(type, "json_schema") == 0) {
		const struct json *nested = json_get(format, "json_schema");

		ask->json_only = true;
		return read_schema(json_get(json_is(nested, JSON_OBJECT) ? nested : format, "schema"), ask, error);
	}
	return error_set(error, ERR_INVALID, "response_format type must be one of \"text\" or \"json_object\", but got: %.60s",
		type != NULL ? type : "");
}

static int read_common(const struct http_connection *connection, const struct json *body, struct ask *ask, struct error *error)
{
	const struct json *seed = json_get(body, "seed");

	ask->no_load = query_is(connection, "autoload", "false");
	if (request_read_stream(body, false, ask, error) != 0 ||
	    request_read_seed(body, "seed", ask, error) != 0 ||
	    request_read_temperature(body, 0.8, ask, error) != 0 ||
	    request_read_range(body, "n", 1, 1, error) != 0 ||
	    request_read_limit(body, "max_tokens", ask, error) != 0 ||
	    request_read_limit(body, "max_completion_tokens", ask, error) != 0 ||
	    read_n_predict(body, "n_predict", ask, error) != 0)
		return ERR_INVALID;
	ask->seed_ignored = seed == NULL || !json_is(seed, JSON_NUMBER) || seed->number < 0; /* random then */
	ask->cache_off = !json_get_boolean(body, "cache_prompt", true);
	ask->wants_token_ids = json_get_boolean(body, "return_tokens", false);
	if (json_get_text(body, "grammar") == NULL || json_get_text(body, "grammar")[0] == '\0') {
		if (read_schema(json_get(body, "json_schema"), ask, error) != 0)
			return ERR_INVALID;
	}
	return 0;
}

static int read_chat(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	ask->variant = VARIANT_CHAT;
	ask->model = json_get_text(body, "model") != NULL ? json_get_text(body, "model") : sim->script->model;
	ask->no_reasoning = request_wants_no_reasoning(body);
	if (!json_is(body, JSON_OBJECT) || json_get(body, "messages") == NULL)
		return error_set(error, ERR_INVALID, "'messages' is required");
	if (read_common(connection, body, ask, error) != 0 ||
	    request_read_messages(json_get(body, "messages"), arena, ask, error) != 0 ||
	    request_read_stops(json_get(body, "stop"), ASK_STOPS_MAX, ask, error) != 0 ||
	    read_response_format(json_get(body, "response_format"), ask, error) != 0)
		return ERR_INVALID;
	return 0;
}

static int read_completion(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	(void)arena;
	ask->variant = VARIANT_COMPLETION;
	ask->model = json_get_text(body, "model") != NULL ? json_get_text(body, "model") : sim->script->model;
	if (json_get(body, "prompt") == NULL)
		return error_set(error, ERR_INVALID, "\"prompt\" is required");
	if (read_common(connection, body, ask, error) != 0 || request_read_prompt(json_get(body, "prompt"), ask, error) != 0)
		return ERR_INVALID;
	/* A text in the place of the list is not read on this path. */
	if (json_is(json_get(body, "stop"), JSON_ARRAY))
		return request_read_stops(json_get(body, "stop"), ASK_STOPS_MAX, ask, error);
	return 0;
}

static int admit(struct sim *sim, struct arena *arena, struct ask *ask, struct error *error)
{
	const struct kind_options *options = &sim->script->options;
	uint64_t context = (uint64_t)options->context_tokens, prompt = token_count(ask->prompt);

	if (options->router) {
		ask->state = request_find_model(sim, ask->model);
		if (ask->state == NULL)
			return request_refuse(ask, 404, NULL, NULL, error, "model '%.100s' not found", ask->model);
		if (!ask->state->loaded && (!options->jit || ask->no_load))
			return request_refuse(ask, 400, NULL, NULL, error, "model is not loaded");
		if (!ask->state->loaded && options->load_error != NULL) {
			ask->state->failed = true;
			return request_refuse(ask, 500, NULL, NULL, error, "%.400s", options->load_error);
		}
	} else { /* whatever name is sent: there is one model, and the answer says which */
		ask->model = sim->script->model;
		ask->state = runtime_model(&sim->runtime, ask->model);
	}
	if (prompt >= context) {
		ask->refusal.extra = arena_printf(arena, ",\"n_prompt_tokens\":%" PRIu64 ",\"n_ctx\":%" PRIu64, prompt, context);
		return request_refuse(ask, 400, "exceed_context_size_error", NULL, error,
			"request (%" PRIu64 " tokens) exceeds the available context size (%" PRIu64 " tokens), try increasing it", prompt, context);
	}
	if (ask->tokens_max == 0 || ask->tokens_max > context - prompt)
		ask->tokens_max = context - prompt;
	return 0;
}

/* ---- Errors ---- */

static void print_error(const struct refusal *refusal, const char *message, struct buffer *out)
{
	const char *type = refusal->code;

	if (type == NULL) {
		switch (refusal->status) {
		case 401: type = "authentication_error"; break;
		case 403: type = "permission_error"; break;
		case 404: type = "not_found_error"; break;
		case 500: type = "server_error"; break;
		case 501: type = "not_supported_error"; break;
		case 503: type = "unavailable_error"; break;
		default: type = "invalid_request_error"; break;
		}
	}
	buffer_printf(out, "{\"error\":{\"code\":%d,\"message\":", refusal->status);
	print_text(message, out);
	buffer_printf(out, ",\"type\":\"%s\"%s}}", type, refusal->extra != NULL ? refusal->extra : "");
}

static void print_error_event(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	buffer_add_text(out, "data: ");
	print_error(&(struct refusal){.status = 500}, "the simulator was told to fail", out);
	buffer_add_text(out, "\n\n");
}

/* ---- Answers: what both paths tell ---- */

static void print_rate(const char *name, uint64_t count, uint64_t ms_per_token, struct buffer *out)
{
	uint64_t ms = count * ms_per_token;

	buffer_printf(out, "\"%s_n\":%" PRIu64 ",\"%s_ms\":%" PRIu64 ",\"%s_per_token_ms\":%" PRIu64 ",\"%s_per_second\":%" PRIu64, name, count,
		name, ms, name, count > 0 ? ms_per_token : 0, name, count > 0 ? 1000 / ms_per_token : 0);
}

static void print_timings(const struct reply *reply, struct buffer *out)
{
	buffer_printf(out, "\"timings\":{\"cache_n\":%" PRIu64 ",", reply->cached_tokens);
	print_rate("prompt", reply->prompt_tokens - reply->cached_tokens, PROMPT_MS_PER_TOKEN, out);
	buffer_add_char(out, ',');
	print_rate("predicted", reply_tokens(reply), TEXT_MS_PER_TOKEN, out);
	buffer_add_char(out, '}');
}

/* ---- /v1/chat/completions ---- */

static void print_prefix(const struct reply *reply, const char *object, struct buffer *out)
{
	uint64_t id = random_draw(0, reply->ordinal, RANDOM_ANSWER, 0);

	buffer_printf(out, "{\"id\":\"chatcmpl-%016" PRIx64 "%016" PRIx64 "\",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", id, reply->ordinal,
		object, CREATED_BASE + reply->ordinal);
	print_text(reply->model, out);
	buffer_add_text(out, ",\"system_fingerprint\":");
	print_text(reply->script->options.version, out);
	buffer_add_text(out, ",\"choices\":[");
}

static void prepare_chat(struct reply *reply, struct arena *arena)
{
	print_prefix_once(reply, arena, print_prefix);
}

static void print_usage_member(const struct reply *reply, struct buffer *out)
{
	buffer_printf(out, "\"usage\":{\"completion_tokens\":%" PRIu64 ",\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64
		",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64 "}}", reply_tokens(reply), reply->prompt_tokens,
		reply_tokens(reply) + reply->prompt_tokens, reply->cached_tokens);
}

static void print_verbose(const struct reply *reply, struct buffer *out)
{
	buffer_add_text(out, "\"__verbose\":{\"prompt\":");
	print_bytes(reply->ask->prompt, out);
	buffer_add_text(out, ",\"generation_settings\":");
	print_parameters(reply->ask->body, out);
	buffer_add_char(out, '}');
}

static void print_chat(const struct reply *reply, struct buffer *out)
{
	print_prefix(reply, "chat.completion", out);
	buffer_printf(out, "{\"finish_reason\":\"%s\",\"index\":0,\"message\":{\"role\":\"assistant\",", reply->finish);
	if (reply->reasoning.len > 0) {
		buffer_add_text(out, "\"reasoning_content\":");
		print_bytes(reply->reasoning, out);
		buffer_add_char(out, ',');
	}
	buffer_add_text(out, "\"content\":");
	print_bytes(reply->text, out);
	buffer_add_text(out, "}}],");
	print_usage_member(reply, out);
	buffer_add_char(out, ',');
	if (reply->script->options.verbose_answers) {
		print_verbose(reply, out);
		buffer_add_char(out, ',');
	}
	print_timings(reply, out);
	buffer_add_char(out, '}');
}

static void print_chat_start(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "{\"finish_reason\":null,\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n");
}

static void print_chat_piece(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_printf(out, "{\"finish_reason\":null,\"index\":0,\"delta\":{\"%s\":", reasoning ? "reasoning_content" : "content");
	print_bytes(piece, out);
	buffer_add_text(out, "}}]}\n\n");
}

/* The timings ride on the last chunk, whichever that is. */
static void print_chat_finish(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_printf(out, "{\"finish_reason\":\"%s\",\"index\":0,\"delta\":{}}]", reply->finish);
	if (!reply->ask->include_usage) {
		buffer_add_char(out, ',');
		print_timings(reply, out);
	}
	buffer_add_text(out, "}\n\n");
}

static void print_chat_usage(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "],");
	print_usage_member(reply, out);
	buffer_add_char(out, ',');
	print_timings(reply, out);
	buffer_add_text(out, "}\n\n");
}

/* ---- /completion ---- */

static void print_completion_counts(const struct reply *reply, struct buffer *out)
{
	buffer_printf(out, "\"id_slot\":%d,\"tokens_predicted\":%" PRIu64 ",\"tokens_evaluated\":%" PRIu64, reply->slot, reply_tokens(reply),
		reply->prompt_tokens);
}

static void print_completion_rest(const struct reply *reply, struct buffer *out)
{
	const char *type = reply->stop_hit != NULL ? "word" : strcmp(reply->finish, "length") == 0 ? "limit" : "eos";
	bool has_line = memchr(reply->text.data, '\n', reply->text.len) != NULL;

	print_completion_counts(reply, out);
	buffer_add_text(out, ",\"model\":");
	print_text(reply->model, out);
	buffer_add_text(out, ",\"generation_settings\":");
	print_parameters(reply->ask->body, out);
	buffer_add_text(out, ",\"prompt\":");
	print_bytes(reply->ask->prompt, out);
	buffer_printf(out, ",\"has_new_line\":%s,\"truncated\":false,\"stop_type\":\"%s\",\"stopping_word\":", has_line ? "true" : "false", type);
	print_text(reply->stop_hit != NULL ? reply->stop_hit : "", out);
	buffer_printf(out, ",\"tokens_cached\":%" PRIu64 ",", reply->prompt_tokens + reply_tokens(reply));
	print_timings(reply, out);
}

static void print_completion(const struct reply *reply, struct buffer *out)
{
	buffer_add_text(out, "{\"index\":0,\"content\":");
	print_bytes(reply->text, out);
	buffer_add_text(out, ",\"tokens\":");
	print_token_ids(reply->ask->wants_token_ids ? reply->text : (struct bytes){NULL, 0}, out);
	buffer_add_text(out, ",\"stop\":true,");
	print_completion_rest(reply, out);
	buffer_add_char(out, '}');
}

static void print_completion_piece(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out)
{
	(void)reasoning; /* This path knows no reasoning: it is text like any other. */
	buffer_add_text(out, "data: {\"index\":0,\"content\":");
	print_bytes(piece, out);
	buffer_add_text(out, ",\"tokens\":");
	print_token_ids(reply->ask->wants_token_ids ? piece : (struct bytes){NULL, 0}, out);
	buffer_add_text(out, ",\"stop\":false,");
	print_completion_counts(reply, out);
	buffer_add_text(out, "}\n\n");
}

static void print_completion_end(const struct reply *reply, struct buffer *out)
{
	buffer_add_text(out, "data: {\"index\":0,\"content\":\"\",\"tokens\":[],\"stop\":true,");
	print_completion_rest(reply, out);
	buffer_add_text(out, "}\n\n");
}

/* ---- The other paths ---- */

static void print_slots(const struct sim *sim, struct buffer *out)
{
	int count = sim->script->options.slots;

	buffer_add_char(out, '[');
	for (int i = 0; i < count; i++) {
		const struct reply *reply = sim->runtime.slots[i];

		buffer_printf(out, "%s{\"id\":%d,\"n_ctx\":%d,\"speculative\":false,\"is_processing\":%s", i > 0 ? "," : "", i,
			sim->script->options.context_tokens, reply != NULL ? "true" : "false");
		if (reply != NULL) {
			buffer_printf(out, ",\"id_task\":%" PRIu64 ",\"params\":", reply->ordinal);
			print_parameters(reply->ask->body, out);
		}
		buffer_add_char(out, '}');
	}
	buffer_add_char(out, ']');
}

static void serve_slots(const struct sim *sim, struct http_connection *connection)
{
	struct buffer body;

	if (!sim->script->options.slots_page) {
		reply_refusal(sim, connection, 501, NULL, "This server does not support slots endpoint.");
	} else if (query_is(connection, "fail_on_no_slot", "1") && sim->script->options.slots > 0 &&
		   sim->runtime.running >= (uint64_t)sim->script->options.slots) {
		reply_refusal(sim, connection, 503, NULL, "no slot available");
	} else {
		buffer_init(&body, (size_t)RUNTIME_SLOTS_MAX * PAGE_BYTES_MAX);
		print_slots(sim, &body);
		reply_json(connection, 200, &body);
	}
}

static void print_props(const struct sim *sim, const char *model, struct buffer *out)
{
	const struct kind_options *options = &sim->script->options;

	buffer_printf(out, "{\"default_generation_settings\":{\"n_ctx\":%d,\"params\":", options->context_tokens);
	print_parameters(NULL, out);
	buffer_printf(out, "},\"total_slots\":%d,\"model_alias\":", options->slots);
	print_text(model, out);
	buffer_add_text(out, ",\"model_path\":\"/models/simulated.gguf\",\"chat_template\":");
	print_text(TEMPLATE, out);
	buffer_printf(out, ",\"chat_template_caps\":{\"supports_system_role\":true},\"modalities\":{\"vision\":false,\"audio\":false},"
		"\"media_marker\":\"<__media_%" PRIu64 "__>\",\"build_info\":", sim->runtime.instance);
	print_text(options->version, out);
	buffer_add_text(out, ",\"is_sleeping\":false}");
}

/* A router tells of itself, unless a model is named: then that one's own process does, which is started for it unless ?autoload=false. */
static void print_router_props(const struct sim *sim, struct buffer *out)
{
	buffer_printf(out, "{\"role\":\"router\",\"max_instances\":4,\"models_autoload\":%s,\"model_alias\":\"llama-server\",\"model_path\":\"none\","
		"\"default_generation_settings\":{\"params\":{},\"n_ctx\":0},\"build_info\":", sim->script->options.jit ? "true" : "false");
	print_text(sim->script->options.version, out);
	buffer_add_char(out, '}');
}

/* false: it was answered already. *model: NULL where none is named, or there is no router. */
static bool find_queried(struct sim *sim, struct http_connection *connection, struct model_state **model)
{
	const struct kind_options *options = &sim->script->options;
	bool named = strstr(buffer_text(&connection->query), "model=") != NULL;

	*model = NULL;
	if (!options->router || !named)
		return true;
	for (size_t i = 0; i <= options->model_count && *model == NULL; i++) {
		const char *name = i == 0 ? sim->script->model : options->models[i - 1];

		if (query_is(connection, "model", name))
			*model = request_find_model(sim, name);
	}
	if (*model == NULL) {
		reply_refusal(sim, connection, 404, NULL, "model is not found");
		return false;
	}
	if (!(*model)->loaded && (!options->jit || query_is(connection, "autoload", "false"))) {
		reply_refusal(sim, connection, 400, NULL, "model is not loaded");
		return false;
	}
	runtime_load(&sim->runtime, *model, options->load_ms);
	return true;
}

static void print_model(const struct sim *sim, const char *name, struct buffer *out)
{
	buffer_add_text(out, "{\"id\":");
	print_text(name, out);
	/* `created` is the time of the call in the real one: it differs from call to call, and so here. */
	buffer_printf(out, ",\"object\":\"model\",\"created\":%" PRIu64 ",\"owned_by\":\"llamacpp\","
		"\"architecture\":{\"input_modalities\":[\"text\"],\"output_modalities\":[\"text\"]},"
		"\"meta\":{\"vocab_type\":1,\"n_vocab\":32000,\"n_ctx_train\":%d,\"n_embd\":256,\"n_params\":7000000,\"size\":7800000}}",
		CREATED_BASE + sim->product.replies, sim->script->options.context_tokens);
}

static const char *status_of(const struct sim *sim, const struct model_state *model)
{
	if (!model->loaded)
		return "unloaded";
	return runtime_load_left_ms(&sim->runtime, model) > 0 ? "loading" : "loaded";
}

static void print_router_model(struct sim *sim, const char *name, struct buffer *out)
{
	const struct model_state *model = request_find_model(sim, name);

	buffer_add_text(out, "{\"id\":");
	print_text(name, out);
	buffer_printf(out, ",\"object\":\"model\",\"owned_by\":\"llamacpp\",\"status\":{\"value\":\"%s\",\"args\":[\"llama-server\",\"-m\","
		"\"/models/simulated.gguf\",\"--alias\",", model != NULL ? status_of(sim, model) : "unloaded");
	print_text(name, out);
	/* Its own process listens elsewhere after each load. */
	buffer_printf(out, ",\"-c\",\"%d\",\"--host\",\"127.0.0.1\",\"--port\",\"%d\"]", sim->script->options.context_tokens,
		40000 + (model != NULL ? (int)(model->loads % 10000) : 0));
	if (model != NULL && model->failed)
		buffer_add_text(out, ",\"failed\":true,\"exit_code\":1");
	buffer_add_text(out, "}}");
}

static void serve_models(struct sim *sim, struct http_connection *connection)
{
	const struct kind_options *options = &sim->script->options;
	struct buffer body;

	buffer_init(&body, (size_t)(OPTION_MODELS_MAX + 1) * PAGE_BYTES_MAX);
	buffer_add_text(&body, "{\"object\":\"list\",\"data\":[");
	if (!options->router) {
		print_model(sim, sim->script->model, &body);
	} else {
		print_router_model(sim, sim->script->model, &body);
		for (size_t i = 0; i < options->model_count; i++) {
			buffer_add_char(&body, ',');
			print_router_model(sim, options->models[i], &body);
		}
	}
	buffer_add_text(&body, "]}");
	reply_json(connection, 200, &body);
}

static void serve_load(struct sim *sim, struct http_connection *connection, bool load)
{
	struct arena arena;
	const struct json *body;
	struct model_state *model;

	arena_init(&arena);
	body = request_parse(sim, connection, &arena);
	if (body == NULL)
		goto end;
	model = json_get_text(body, "model") != NULL ? request_find_model(sim, json_get_text(body, "model")) : NULL;
	if (model == NULL) {
		reply_refusal(sim, connection, 404, NULL, "model is not found");
	} else if (load == model->loaded) {
		reply_refusal(sim, connection, 400, NULL, load ? "model is already loaded" : "model is not loaded");
	} else {
		if (load && sim->script->options.load_error != NULL)
			model->failed = true; /* The child ends some time later: only the list tells. */
		else if (load)
			runtime_load(&sim->runtime, model, sim->script->options.load_ms);
		else
			runtime_unload(&sim->runtime, model);
		http_reply(connection, 200, "application/json", "", BYTES_OF("{\"success\":true}"));
	}
end:
	arena_close(&arena);
}

/* A router hands on to the model that the body names. false: it was answered already. */
static bool find_named(struct sim *sim, struct http_connection *connection, const struct json *body)
{
	const struct kind_options *options = &sim->script->options;
	const char *name = json_get_text(body, "model");
	struct model_state *model = name != NULL ? request_find_model(sim, name) : NULL;

	if (!options->router)
		return true;
	if (model == NULL)
		reply_refusal(sim, connection, name != NULL ? 404 : 400, NULL, name != NULL ? "model is not found" : "model name is missing from the request");
	else if (!model->loaded && !options->jit)
		reply_refusal(sim, connection, 400, NULL, "model is not loaded");
	else
		runtime_load(&sim->runtime, model, options->load_ms);
	return model != NULL && model->loaded;
}

static void serve_tokenize(struct sim *sim, struct http_connection *connection)
{
	struct arena arena;
	const struct json *body, *content;
	struct buffer page;

	arena_init(&arena);
	body = request_parse(sim, connection, &arena);
	if (body == NULL)
		goto end;
	if (!find_named(sim, connection, body))
		goto end;
	content = json_get(body, "content");
	if (content != NULL && !json_is(content, JSON_STRING)) {
		reply_refusal(sim, connection, 400, NULL, "\"content\" must be a string");
		goto end;
	}
	buffer_init(&page, 4 * HTTP_BODY_MAX);
	buffer_add_text(&page, "{\"tokens\":");
	print_token_ids(content != NULL ? (struct bytes){(const uint8_t *)content->string.text, content->string.len} : (struct bytes){NULL, 0},
		&page);
	buffer_add_char(&page, '}');
	reply_json(connection, 200, &page);
end:
	arena_close(&arena);
}

/* The template of the simulator is the texts of the messages, a line each: that is also what it counts. */
static void serve_template(struct sim *sim, struct http_connection *connection)
{
	struct error error = {.code = ERR_NONE};
	struct ask ask = {.model = NULL};
	struct arena arena;
	const struct json *body;
	struct buffer page;

	arena_init(&arena);
	body = request_parse(sim, connection, &arena);
	if (body == NULL)
		goto end;
	if (!find_named(sim, connection, body))
		goto end;
	if (request_read_messages(json_get(body, "messages"), &arena, &ask, &error) != 0) {
		reply_refusal(sim, connection, 400, NULL, error.message);
		goto end;
	}
	buffer_init(&page, 6 * HTTP_BODY_MAX);
	buffer_add_text(&page, "{\"prompt\":");
	print_bytes(ask.prompt, &page);
	buffer_add_char(&page, '}');
	reply_json(connection, 200, &page);
end:
	arena_close(&arena);
}

static void serve_metrics(const struct sim *sim, struct http_connection *connection)
{
	const struct runtime *runtime = &sim->runtime;
	struct buffer page;

	if (!sim->script->options.metrics) {
		reply_refusal(sim, connection, 501, NULL, "This server does not support metrics endpoint.");
		return;
	}
	buffer_init(&page, PAGE_BYTES_MAX);
	buffer_printf(&page, "llamacpp:prompt_tokens_total %" PRIu64 "\nllamacpp:tokens_predicted_total %" PRIu64
		"\nllamacpp:n_decode_total %" PRIu64 "\nllamacpp:predicted_tokens_seconds %d\nllamacpp:requests_processing %" PRIu64
		"\nllamacpp:requests_deferred %" PRIu64 "\n", runtime->prompt_tokens - runtime->cached_tokens, runtime->text_tokens,
		runtime->text_tokens, 1000 / TEXT_MS_PER_TOKEN, runtime->running, runtime->waiting);
	http_reply(connection, 200, "text/plain; version=0.0.4", "", buffer_bytes(&page));
	buffer_close(&page);
}

static void serve(struct sim *sim, struct http_connection *connection)
{
	bool router = sim->script->options.router;
	struct model_state *model;
	struct buffer page;

	if (path_is(connection, HTTP_GET, "/health") || path_is(connection, HTTP_GET, "/v1/health")) {
		http_reply(connection, 200, "application/json", "", BYTES_OF("{\"status\":\"ok\"}"));
	} else if (path_is(connection, HTTP_GET, "/props")) {
		if (!find_queried(sim, connection, &model))
			return;
		buffer_init(&page, PAGE_BYTES_MAX);
		if (router && model == NULL)
			print_router_props(sim, &page);
		else
			print_props(sim, model != NULL ? model->name : sim->script->model, &page);
		reply_json(connection, 200, &page);
	} else if (path_is(connection, HTTP_GET, "/slots")) {
		serve_slots(sim, connection);
	} else if (path_is(connection, HTTP_GET, "/v1/models") || path_is(connection, HTTP_GET, "/models")) {
		serve_models(sim, connection);
	} else if (path_is(connection, HTTP_GET, "/metrics")) {
		serve_metrics(sim, connection);
	} else if (path_is(connection, HTTP_GET, "/lora-adapters")) {
		if (!find_queried(sim, connection, &model))
			return;
		if (router && model == NULL)
			reply_refusal(sim, connection, 400, NULL, "model name is missing from the request");
		else
			http_reply(connection, 200, "application/json", "", BYTES_OF("[]"));
	} else if (path_is(connection, HTTP_POST, "/tokenize")) {
		serve_tokenize(sim, connection);
	} else if (path_is(connection, HTTP_POST, "/apply-template")) {
		serve_template(sim, connection);
	} else if (router && path_is(connection, HTTP_POST, "/models/load")) {
		serve_load(sim, connection, true);
	} else if (router && path_is(connection, HTTP_POST, "/models/unload")) {
		serve_load(sim, connection, false);
	} else {
		reply_refusal(sim, connection, 404, NULL, "File Not Found");
	}
}

static const struct dialect chat_dialect = {
	.stream_type = "text/event-stream",
	.event_end = "\n\n",
	.ping = ":\n\n",
	.read_ask = read_chat,
	.print_error = print_error,
	.prepare = prepare_chat,
	.print_whole = print_chat,
	.print_start = print_chat_start,
	.print_piece = print_chat_piece,
	.print_finish = print_chat_finish,
	.print_usage = print_chat_usage,
	.print_error_event = print_error_event,
	.print_end = print_done,
};

/* Ends with the object that has "stop": true, no [DONE]. */
static const struct dialect completion_dialect = {
	.stream_type = "text/event-stream",
	.event_end = "\n\n",
	.ping = ":\n\n",
	.read_ask = read_completion,
	.print_error = print_error,
	.print_whole = print_completion,
	.print_start = print_nothing,
	.print_piece = print_completion_piece,
	.print_finish = print_nothing,
	.print_usage = print_nothing,
	.print_error_event = print_error_event,
	.print_end = print_completion_end,
};

static const struct dialect *dialect_of(const struct sim *sim, const struct http_connection *connection)
{
	(void)sim;
	if (path_is(connection, HTTP_POST, "/v1/chat/completions") || path_is(connection, HTTP_POST, "/chat/completions"))
		return &chat_dialect;
	if (path_is(connection, HTTP_POST, "/completion") || path_is(connection, HTTP_POST, "/completions"))
		return &completion_dialect;
	return NULL;
}

const struct kind llamacpp_kind = {
	.name = "llamacpp",
	.bit = KIND_LLAMACPP,
	.options = {.prompt_cache = true, .loaded = true, .jit = true, .slots_page = true, .slots = 1, .context_tokens = 32768,
		.version = "b6123-1a2b3c4"},
	.loading = "Loading model",
	.dialect_of = dialect_of,
	.serve = serve,
	.admit = admit,
	.print_error = print_error,
};
