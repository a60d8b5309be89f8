/* Kind "sglang": SGLang's OpenAI-compatible server and what it tells of itself. Loop thread. Start at sglang_kind. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/request.h"
#include "workflow/base/check.h"

enum variant { VARIANT_CHAT, VARIANT_GENERATE };
enum { PAGE_BYTES_MAX = 64 * 1024, IDLE_MS = 5000, EOS_TOKEN = 2, RUNNING_MAX = 256, NEW_TOKENS = 128 };

/* ---- The request ---- */

static int read_salt(const struct json *body, struct ask *ask, struct error *error)
{
	const struct json *salt = json_get(body, "cache_salt");

	if (salt == NULL || json_is(salt, JSON_NULL))
		return 0;
	if (!json_is(salt, JSON_STRING))
		return error_set(error, ERR_INVALID, "cache_salt: must be a string");
	ask->cache_salt = random_hash(1, (struct bytes){(const uint8_t *)salt->string.text, salt->string.len});
	return 0;
}

/* One grammar for a request. */
static int read_grammars(const struct json *body, struct ask *ask, struct error *error)
{
	static const char *const names[] = {"regex", "ebnf"};
	unsigned count = ask->schema != NULL || ask->json_only;

	for (size_t i = 0; i < COUNT_OF(names); i++)
		count += json_get_text(body, names[i]) != NULL;
	if (count > 1)
		return error_set(error, ERR_INVALID, "Only one of regex, json_schema, or ebnf can be set.");
	return 0;
}

/* What has another form than a number. stop_regex is a text or a list of them. */
static int read_forms(const struct json *body, struct error *error)
{
	static const char *const switches[] = {"no_stop_trim", "ignore_eos"};

	for (size_t i = 0; i < COUNT_OF(switches); i++)
		if (request_read_type(body, switches[i], JSON_BOOLEAN, error) != 0)
			return ERR_INVALID;
	if (request_read_type(body, "logit_bias", JSON_OBJECT, error) != 0 || request_read_type(body, "chat_template_kwargs", JSON_OBJECT, error) != 0 ||
	    request_read_list(body, "stop_token_ids", JSON_NUMBER, error) != 0 ||
	    (!json_is(json_get(body, "stop_regex"), JSON_STRING) && request_read_list(body, "stop_regex", JSON_STRING, error) != 0))
		return ERR_INVALID;
	return request_read_effort(body, 0.99, error);
}

static int read_ask(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	(void)connection;
	if (!json_is(body, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "body: must be an object");
	ask->model = json_get_text(body, "model") != NULL ? json_get_text(body, "model") : sim->script->model;
	ask->wants_token_ids = json_get_boolean(body, "return_token_ids", false);
	ask->wants_prompt_ids = json_get_boolean(body, "return_prompt_token_ids", false);
	ask->keeps_stop = json_get_boolean(body, "no_stop_trim", false);
	ask->no_reasoning = request_wants_no_reasoning(body);
	ask->seed_ignored = !json_is(json_get(body, "seed"), JSON_NUMBER);
	if (request_read_stream(body, false, ask, error) != 0 ||
	    request_read_seed(body, "seed", ask, error) != 0 ||
	    request_read_messages(json_get(body, "messages"), arena, ask, error) != 0 ||
	    request_read_temperature(body, 1, ask, error) != 0 ||
	    request_read_range(body, "top_p", 0, 1, error) != 0 ||
	    request_read_range(body, "top_k", -1, 1e15, error) != 0 ||
	    request_read_range(body, "min_p", 0, 1, error) != 0 ||
	    request_read_range(body, "repetition_penalty", 0, 2, error) != 0 ||
	    request_read_range(body, "presence_penalty", -2, 2, error) != 0 ||
	    request_read_range(body, "frequency_penalty", -2, 2, error) != 0 ||
	    request_read_range(body, "min_tokens", 0, 1e15, error) != 0 || read_forms(body, error) != 0 ||
	    request_read_range(body, "n", 1, 1, error) != 0 ||
	    request_read_limit(body, "max_tokens", ask, error) != 0 ||
	    request_read_limit(body, "max_completion_tokens", ask, error) != 0 ||
	    request_read_stops(json_get(body, "stop"), ASK_STOPS_MAX, ask, error) != 0 ||
	    request_read_format(json_get(body, "response_format"), ask, error) != 0 ||
	    read_grammars(body, ask, error) != 0 || read_salt(body, ask, error) != 0)
		return ERR_INVALID;
	return 0;
}

/* The native path: a text and its sampling parameters, under their own names. */
static int read_generate(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	const struct json *text = json_get(body, "text"), *parameters = json_get(body, "sampling_params"), *schema;

	(void)connection;
	ask->variant = VARIANT_GENERATE;
	ask->model = sim->script->model;
	ask->tokens_max = NEW_TOKENS;
	if (!json_is(text, JSON_STRING))
		return error_set(error, ERR_INVALID, "text: must be a string (the simulator reads no input_ids)");
	if (parameters != NULL && !json_is(parameters, JSON_OBJECT) && !json_is(parameters, JSON_NULL))
		return error_set(error, ERR_INVALID, "sampling_params: must be an object");
	ask->seed_ignored = !json_is(json_get(parameters, "sampling_seed"), JSON_NUMBER);
	ask->keeps_stop = json_get_boolean(parameters, "no_stop_trim", false);
	if (request_read_prompt(text, ask, error) != 0 || request_read_stream(body, false, ask, error) != 0 ||
	    request_read_seed(parameters, "sampling_seed", ask, error) != 0 ||
	    request_read_temperature(parameters, 1, ask, error) != 0 ||
	    request_read_limit(parameters, "max_new_tokens", ask, error) != 0 ||
	    request_read_stops(json_get(parameters, "stop"), ASK_STOPS_MAX, ask, error) != 0)
		return ERR_INVALID;
	schema = json_get(parameters, "json_schema"); /* a text */
	if (schema == NULL || json_is(schema, JSON_NULL))
		return 0;
	if (json_is(schema, JSON_STRING))
		ask->schema = json_parse(arena, (struct bytes){(const uint8_t *)schema->string.text, schema->string.len}, JSON_ROUND_INTEGERS, NULL, NULL);
	if (!json_is(ask->schema, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "sampling_params.json_schema: must be the text of a JSON schema");
	return 0;
}

/* Any name is taken: there is one model. */
static int admit(struct sim *sim, struct arena *arena, struct ask *ask, struct error *error)
{
	uint64_t context = (uint64_t)sim->script->options.context_tokens, prompt = token_count(ask->prompt);

	(void)arena;
	if (sim->script->options.engine_dead)
		return request_refuse(ask, 500, NULL, NULL, error, "Internal server error: the scheduler is not there any more");
	if (prompt >= context)
		return request_refuse(ask, 400, NULL, NULL, error, "The input (%" PRIu64 " tokens) is longer than the model's context length (%" PRIu64
			" tokens).", prompt, context);
	if (prompt + ask->tokens_max > context)
		return request_refuse(ask, 400, NULL, NULL, error, "Requested token count exceeds the model's maximum context length of %" PRIu64
			" tokens. You requested a total of %" PRIu64 " tokens: %" PRIu64 " tokens from the input messages and %" PRIu64
			" tokens for the completion.", context, prompt + ask->tokens_max, prompt, ask->tokens_max);
	if (ask->tokens_max == 0)
		ask->tokens_max = context - prompt;
	ask->state = runtime_model(&sim->runtime, sim->script->model);
	return 0;
}

/* ---- Errors: flat, without "error" around them ---- */

static void print_error(const struct refusal *refusal, const char *message, struct buffer *out)
{
	const char *type = refusal->status == 404 ? "NotFoundError" : refusal->status >= 500 ? "InternalServerError" : "BadRequestError";

	if (refusal->status == 401) {
		buffer_add_text(out, "{\"error\":\"Unauthorized\"}");
		return;
	}
	buffer_add_text(out, "{\"object\":\"error\",\"message\":");
	print_text(message, out);
	buffer_printf(out, ",\"type\":\"%s\",\"param\":null,\"code\":%d}", refusal->code != NULL ? refusal->code : type, refusal->status);
}

static void print_generate_error(const struct refusal *refusal, const char *message, struct buffer *out)
{
	if (refusal->status == 401) {
		print_error(refusal, message, out);
		return;
	}
	buffer_add_text(out, "{\"error\":{\"message\":");
	print_text(message, out);
	buffer_add_text(out, "}}");
}

static void print_generate_error_event(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	buffer_add_text(out, "data: ");
	print_generate_error(&(struct refusal){.status = 500}, "the simulator was told to fail", out);
	buffer_add_text(out, "\n\n");
}

static void print_error_event(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	buffer_add_text(out, "data: {\"error\":");
	print_error(&(struct refusal){.status = 500}, "the simulator was told to fail", out);
	buffer_add_text(out, "}\n\n");
}

/* ---- The answer ---- */

static void print_prefix(const struct reply *reply, const char *object, struct buffer *out)
{
	buffer_printf(out, "{\"id\":\"%016" PRIx64 "%016" PRIx64 "\",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":",
		random_draw(0, reply->ordinal, RANDOM_ANSWER, 0), reply->ordinal, object, CREATED_BASE + reply->ordinal);
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

	buffer_printf(out, "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64 ",\"prompt_tokens_details\":",
		reply->prompt_tokens, reply->prompt_tokens + tokens, tokens);
	if (reply->script->options.cache_report)
		buffer_printf(out, "{\"cached_tokens\":%" PRIu64 "}", reply->cached_tokens);
	else
		buffer_add_text(out, "null");
	buffer_printf(out, ",\"reasoning_tokens\":%" PRIu64 "}", reply->reasoning_tokens);
}

/* The text that stopped it, or the number of the token that ends a text; null when something else did. */
static void print_end_members(const struct reply *reply, struct buffer *out)
{
	buffer_printf(out, "\"logprobs\":null,\"finish_reason\":\"%s\",\"matched_stop\":", reply->finish);
	if (reply->stop_hit != NULL)
		print_text(reply->stop_hit, out);
	else if (strcmp(reply->finish, "stop") == 0)
		print_number(EOS_TOKEN, out);
	else
		buffer_add_text(out, "null");
}

static void print_metadata(const struct reply *reply, struct buffer *out)
{
	buffer_add_text(out, "\"metadata\":{\"weight_version\":");
	print_text(reply->script->options.weight_version, out);
	buffer_add_char(out, '}');
}

static void print_whole(const struct reply *reply, struct buffer *out)
{
	print_prefix(reply, "chat.completion", out);
	buffer_add_text(out, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
	print_bytes(reply->text, out);
	buffer_add_text(out, ",\"reasoning_content\":");
	if (reply->reasoning.len > 0)
		print_bytes(reply->reasoning, out);
	else
		buffer_add_text(out, "null");
	buffer_add_text(out, ",\"tool_calls\":null},");
	print_end_members(reply, out);
	if (reply->ask->wants_token_ids) {
		buffer_add_text(out, ",\"token_ids\":");
		print_token_ids(reply->text, out);
	}
	if (reply->ask->wants_prompt_ids) {
		buffer_add_text(out, ",\"prompt_token_ids\":");
		print_token_ids(reply->ask->prompt, out);
	}
	buffer_add_text(out, "}],");
	print_counts(reply, out);
	buffer_add_char(out, ',');
	print_metadata(reply, out);
	buffer_add_char(out, '}');
}

static void print_start(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":null,\"tool_calls\":null},\"logprobs\":null,"
		"\"finish_reason\":null,\"matched_stop\":null}],\"usage\":null}\n\n");
}

static void print_piece(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, reasoning ? "{\"index\":0,\"delta\":{\"role\":null,\"content\":null,\"reasoning_content\":" :
		"{\"index\":0,\"delta\":{\"role\":null,\"content\":");
	print_bytes(piece, out);
	buffer_add_text(out, reasoning ? ",\"tool_calls\":null}" : ",\"reasoning_content\":null,\"tool_calls\":null}");
	buffer_add_text(out, ",\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}],\"usage\":null}\n\n");
}

static void print_finish(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "{\"index\":0,\"delta\":{\"role\":null,\"content\":null,\"reasoning_content\":null,\"tool_calls\":null},");
	print_end_members(reply, out);
	buffer_add_text(out, "}],\"usage\":null}\n\n");
}

static void print_usage(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "],");
	print_counts(reply, out);
	buffer_add_text(out, "}\n\n");
}

/* ---- /generate: each event tells the text from its beginning ---- */

static void print_generated(const struct reply *reply, size_t len, bool end, struct buffer *out)
{
	buffer_add_text(out, "{\"text\":");
	print_bytes((struct bytes){reply->text.data, len}, out);
	buffer_printf(out, ",\"meta_info\":{\"id\":\"%016" PRIx64 "%016" PRIx64 "\",\"finish_reason\":", random_draw(0, reply->ordinal, RANDOM_ANSWER, 0),
		reply->ordinal);
	if (!end) {
		buffer_add_text(out, "null");
	} else if (strcmp(reply->finish, "length") == 0) {
		buffer_printf(out, "{\"type\":\"length\",\"length\":%" PRIu64 "}", reply->ask->tokens_max);
	} else {
		buffer_printf(out, "{\"type\":\"%s\",\"matched\":", reply->finish);
		if (reply->stop_hit != NULL)
			print_text(reply->stop_hit, out);
		else
			print_number(EOS_TOKEN, out);
		buffer_add_char(out, '}');
	}
	buffer_printf(out, ",\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64 ",\"cached_tokens\":%" PRIu64 ",\"weight_version\":",
		reply->prompt_tokens, end ? reply_tokens(reply) : reply->sent_tokens, reply->cached_tokens);
	print_text(reply->script->options.weight_version, out);
	buffer_add_text(out, "}}");
}

static void print_generate(const struct reply *reply, struct buffer *out)
{
	print_generated(reply, reply->text.len, true, out);
}

static void print_generate_piece(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out)
{
	if (reasoning) /* not told on this path */
		return;
	buffer_add_text(out, "data: ");
	print_generated(reply, (size_t)(piece.data + piece.len - reply->text.data), false, out);
	buffer_add_text(out, "\n\n");
}

static void print_generate_finish(const struct reply *reply, struct buffer *out)
{
	buffer_add_text(out, "data: ");
	print_generated(reply, reply->text.len, true, out);
	buffer_add_text(out, "\n\n");
}

/* ---- The other paths ---- */

static void print_server_info(const struct sim *sim, struct buffer *out)
{
	const struct kind_options *options = &sim->script->options;

	buffer_add_text(out, "{\"model_path\":\"/models/simulated\",\"tokenizer_path\":\"/models/simulated\",\"served_model_name\":");
	print_text(sim->script->model, out);
	buffer_printf(out, ",\"revision\":null,\"dtype\":\"auto\",\"quantization\":null,\"context_length\":%d,\"attention_backend\":\"fa3\","
		"\"grammar_backend\":\"xgrammar\",\"random_seed\":42,\"enable_deterministic_inference\":%s,\"disable_radix_cache\":%s,\"tp_size\":1,"
		"\"max_running_requests\":%d,\"enable_cache_report\":%s,\"enable_metrics\":%s,\"weight_version\":", options->context_tokens,
		options->deterministic ? "true" : "false", options->prompt_cache ? "false" : "true", options->slots,
		options->cache_report ? "true" : "false", options->metrics ? "true" : "false");
	print_text(options->weight_version, out);
	buffer_printf(out, ",\"internal_states\":[{\"num_running_reqs\":%" PRIu64 ",\"num_waiting_reqs\":%" PRIu64 "}],\"version\":", sim->runtime.running,
		sim->runtime.waiting);
	print_text(options->version, out);
	buffer_add_char(out, '}');
}

static void print_model_info(const struct sim *sim, struct buffer *out)
{
	buffer_add_text(out, "{\"model_path\":\"/models/simulated\",\"tokenizer_path\":\"/models/simulated\",\"is_generation\":true,"
		"\"preferred_sampling_params\":null,\"weight_version\":");
	print_text(sim->script->options.weight_version, out);
	buffer_add_char(out, '}');
}

static void print_models(const struct sim *sim, struct buffer *out)
{
	buffer_add_text(out, "{\"object\":\"list\",\"data\":[{\"id\":");
	print_text(sim->script->model, out);
	buffer_printf(out, ",\"object\":\"model\",\"created\":%" PRIu64 ",\"owned_by\":\"sglang\",\"root\":", CREATED_BASE + sim->product.replies);
	print_text(sim->script->model, out);
	buffer_printf(out, ",\"parent\":null,\"max_model_len\":%d}]}", sim->script->options.context_tokens);
}

static void print_metrics(const struct sim *sim, struct buffer *out)
{
	const struct runtime *runtime = &sim->runtime;

	buffer_printf(out, "sglang:num_running_reqs %" PRIu64 "\nsglang:num_queue_reqs %" PRIu64 "\nsglang:prompt_tokens_total %" PRIu64
		"\nsglang:generation_tokens_total %" PRIu64 "\nsglang:cached_tokens_total %" PRIu64 "\n", runtime->running, runtime->waiting,
		runtime->prompt_tokens, runtime->text_tokens, runtime->cached_tokens);
}

static bool is_get(const struct http_connection *connection, const char *path, const char *old_path)
{
	return path_is(connection, HTTP_GET, path) || (old_path != NULL && path_is(connection, HTTP_GET, old_path));
}

static void serve(struct sim *sim, struct http_connection *connection)
{
	const char *type = "application/json";
	struct buffer page;
	int status = 200;

	buffer_init(&page, PAGE_BYTES_MAX);
	if (is_get(connection, "/health", NULL)) {
		type = "text/plain"; /* empty */
	} else if (is_get(connection, "/health_generate", NULL)) {
		type = "text/plain";
		status = sim->script->options.engine_dead ? 503 : 200; /* no token came */
	} else if (is_get(connection, "/server_info", "/get_server_info")) {
		print_server_info(sim, &page);
	} else if (is_get(connection, "/model_info", "/get_model_info")) {
		print_model_info(sim, &page);
	} else if (is_get(connection, "/v1/models", NULL)) {
		print_models(sim, &page);
	} else if (sim->script->options.metrics && is_get(connection, "/metrics", NULL)) {
		type = "text/plain; version=0.0.4";
		print_metrics(sim, &page);
	} else if (path_is(connection, HTTP_POST, "/flush_cache") || is_get(connection, "/flush_cache", NULL)) {
		type = "text/plain";
		if (sim->runtime.running + sim->runtime.waiting > 0) {
			http_reply(connection, 400, type, "", BYTES_OF("Flush cache failed.\n"));
			buffer_close(&page);
			return;
		}
		runtime_flush_cache(&sim->runtime);
		buffer_add_text(&page, "Cache flushed.\n");
	} else {
		buffer_close(&page);
		http_reply(connection, 404, "application/json", "", BYTES_OF("{\"detail\":\"Not Found\"}"));
		return;
	}
	http_reply(connection, status, type, "", buffer_bytes(&page));
	buffer_close(&page);
}

static const struct dialect chat_dialect = {
	.stream_type = "text/event-stream",
	.event_end = "\n\n",
	.read_ask = read_ask,
	.print_error = print_error,
	.prepare = prepare,
	.print_whole = print_whole,
	.print_start = print_start,
	.print_piece = print_piece,
	.print_finish = print_finish,
	.print_usage = print_usage,
	.print_error_event = print_error_event,
	.print_end = print_done,
};

static const struct dialect generate_dialect = {
	.stream_type = "text/event-stream",
	.event_end = "\n\n",
	.read_ask = read_generate,
	.print_error = print_generate_error,
	.print_whole = print_generate,
	.print_start = print_nothing,
	.print_piece = print_generate_piece,
	.print_finish = print_generate_finish,
	.print_usage = print_nothing,
	.print_error_event = print_generate_error_event,
	.print_end = print_done,
};

static const struct dialect *dialect_of(const struct sim *sim, const struct http_connection *connection)
{
	(void)sim;
	if (path_is(connection, HTTP_POST, "/generate"))
		return &generate_dialect;
	return path_is(connection, HTTP_POST, "/v1/chat/completions") ? &chat_dialect : NULL;
}

const struct kind sglang_kind = {
	.name = "sglang",
	.bit = KIND_SGLANG,
	.options = {.prompt_cache = true, .loaded = true, .slots = RUNNING_MAX, .context_tokens = 32768, .idle_ms = IDLE_MS, .version = "0.5.6",
		.weight_version = "default"},
	.loading = "The server is starting",
	.dialect_of = dialect_of,
	.serve = serve,
	.admit = admit,
	.print_error = print_error,
};
