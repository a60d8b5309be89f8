/* Kind "transformers": the server of Hugging Face's transformers, strict about what it is asked. Loop thread. Start at transformers_kind. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/request.h"
#include "workflow/base/check.h"

enum { PAGE_BYTES_MAX = 64 * 1024, PREFIX_BYTES_MAX = 16 * 1024, IDLE_MS = 5000, NEW_TOKENS = 1024, KEYS_BYTES_MAX = 384 };

/* ---- The request ---- */

static const char *const supported[] = {
	"model", "messages", "stream", "temperature", "top_p", "max_tokens", "stop", "seed", "frequency_penalty", "logit_bias", "tools",
	"generation_config",
};
/* OpenAI's, and refused. The list shrinks with versions. */
static const char *const unsupported[] = {
	"audio", "function_call", "functions", "logprobs", "max_completion_tokens", "metadata", "modalities", "n", "parallel_tool_calls", "prediction",
	"presence_penalty", "reasoning_effort", "response_format", "service_tier", "store", "stream_options", "tool_choice", "top_logprobs", "user",
	"web_search_options",
};

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(names[i], name) == 0)
			return true;
	}
	return false;
}

/* 422 with the keys that are wrong, as Python prints a set. `unknown`: those in neither list; else those of the second. */
static int refuse_keys(const struct json *body, bool unknown, struct ask *ask, struct error *error)
{
	char keys[KEYS_BYTES_MAX] = "";
	size_t len = 0;

	for (size_t i = 0; i < body->object.count; i++) {
		const char *name = body->object.members[i].name;
		bool is_unsupported = is_one_of(name, unsupported, COUNT_OF(unsupported));

		if (is_one_of(name, supported, COUNT_OF(supported)) || is_unsupported == unknown)
			continue;
		if (len + 60 < sizeof(keys)) /* a few of many will do */
			len += (size_t)snprintf(keys + len, sizeof(keys) - len, "%s'%.40s'", len > 0 ? ", " : "", name);
	}
	if (len == 0)
		return 0;
	if (!utf8_valid(bytes_text(keys), NULL)) /* a name was cut within a sequence */
		snprintf(keys, sizeof(keys), "'…'");
	return request_refuse(ask, 422, NULL, NULL, error, "%s in the request: {%s}", unknown ? "Unexpected keys" : "Unsupported fields", keys);
}

/* A whole GenerationConfig as a text. What the request says besides wins. */
static int read_generation_config(const struct json *body, struct arena *arena, struct ask *ask, struct error *error)
{
	const struct json *text = json_get(body, "generation_config"), *config;
	double limit;

	ask->tokens_max = NEW_TOKENS;
	ask->temperature = 1;
	if (text == NULL || json_is(text, JSON_NULL))
		return 0;
	config = !json_is(text, JSON_STRING) ? NULL :
		json_parse(arena, (struct bytes){(const uint8_t *)text->string.text, text->string.len}, JSON_ROUND_INTEGERS, NULL, error);
	if (!json_is(config, JSON_OBJECT)) {
		*error = (struct error){.code = ERR_NONE};
		return request_refuse(ask, 422, NULL, NULL, error, "generation_config must be a JSON text of a GenerationConfig");
	}
	limit = json_get_number(config, "max_new_tokens", NEW_TOKENS);
	if (limit > NEW_TOKENS && limit < 0x1p53)
		ask->tokens_max = (uint64_t)limit;
	ask->temperature = json_get_boolean(config, "do_sample", true) ? json_get_number(config, "temperature", 1) : 0;
	return 0;
}

static int read_ask(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	double temperature;

	ask->refusal.status = 422;
	if (!json_is(body, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "Input should be a valid dictionary");
	if (refuse_keys(body, true, ask, error) != 0 || refuse_keys(body, false, ask, error) != 0)
		return ERR_INVALID;
	ask->model = json_get_text(body, "model") != NULL ? json_get_text(body, "model") : sim->script->model;
	ask->request_id = arena_text(arena, connection->request_id);
	ask->seed_ignored = !json_is(json_get(body, "seed"), JSON_NUMBER);
	if (read_generation_config(body, arena, ask, error) != 0)
		return ERR_INVALID;
	temperature = ask->temperature;
	if (request_read_stream(body, false, ask, error) != 0 ||
	    request_read_seed(body, "seed", ask, error) != 0 ||
	    request_read_messages(json_get(body, "messages"), arena, ask, error) != 0 ||
	    request_read_temperature(body, temperature, ask, error) != 0 ||
	    request_read_range(body, "top_p", 0, 1, error) != 0 ||
	    request_read_range(body, "frequency_penalty", -2, 2, error) != 0 ||
	    request_read_type(body, "logit_bias", JSON_OBJECT, error) != 0 ||
	    request_read_limit(body, "max_tokens", ask, error) != 0 ||
	    request_read_stops(json_get(body, "stop"), ASK_STOPS_MAX, ask, error) != 0)
		return ERR_INVALID;
	return 0;
}

/* "id@revision", and the answer says which. */
static int admit(struct sim *sim, struct arena *arena, struct ask *ask, struct error *error)
{
	const char *at = strrchr(ask->model, '@');
	size_t len = at != NULL ? (size_t)(at - ask->model) : strlen(ask->model);
	const char *model = sim->script->model;

	if (strlen(model) != len || memcmp(model, ask->model, len) != 0)
		return request_refuse(ask, 404, NULL, NULL, error, "Model %.200s is not available", ask->model);
	if (token_count(ask->prompt) >= (uint64_t)sim->script->options.context_tokens)
		return request_refuse(ask, 400, NULL, NULL, error, "the prompt is longer than the model's context");
	if (at == NULL)
		ask->model = arena_printf(arena, "%s@%s", model, sim->script->options.revision);
	ask->state = runtime_model(&sim->runtime, model);
	return 0;
}

/* ---- Errors: FastAPI's ---- */

static void print_error(const struct refusal *refusal, const char *message, struct buffer *out)
{
	(void)refusal;
	buffer_add_text(out, "{\"detail\":");
	print_text(message, out);
	buffer_add_char(out, '}');
}

static void print_error_event(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	buffer_add_text(out, "data: {\"error\": \"the simulator was told to fail\"}\n\n");
}

/* ---- The answer ---- */

static void print_headers(const struct reply *reply, struct buffer *out)
{
	if (reply->ask->request_id[0] != '\0')
		buffer_printf(out, "x-request-id: %s\r\n", reply->ask->request_id);
	else
		buffer_printf(out, "x-request-id: %016" PRIx64 "\r\n", random_draw(0, reply->ordinal, RANDOM_ANSWER, 1));
}

static void print_prefix(const struct reply *reply, const char *object, struct buffer *out)
{
	buffer_printf(out, "{\"id\":\"%016" PRIx64 "\",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":",
		random_draw(0, reply->ordinal, RANDOM_ANSWER, 0), object, CREATED_BASE + reply->ordinal);
	print_text(reply->model, out);
	buffer_add_text(out, ",\"system_fingerprint\":\"\",\"choices\":[");
}

static void prepare(struct reply *reply, struct arena *arena)
{
	print_prefix_once(reply, arena, print_prefix);
}

static void print_counts(const struct reply *reply, struct buffer *out)
{
	uint64_t tokens = reply_tokens(reply);

	buffer_printf(out, "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}", reply->prompt_tokens,
		tokens, reply->prompt_tokens + tokens);
}

/* Reasoning is text between tags. */
static void print_whole(const struct reply *reply, struct buffer *out)
{
	struct buffer content;

	buffer_init(&content, 2 * ANSWER_BYTES_MAX + PREFIX_BYTES_MAX);
	if (reply->reasoning.len > 0) {
		buffer_add_text(&content, "<think>");
		buffer_add_bytes(&content, reply->reasoning);
		buffer_add_text(&content, "</think>");
	}
	buffer_add_bytes(&content, reply->text);
	CHECK(!content.overflow);
	print_prefix(reply, "chat.completion", out);
	buffer_add_text(out, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
	print_bytes(buffer_bytes(&content), out);
	buffer_printf(out, "},\"finish_reason\":\"%s\"}],", reply->finish);
	print_counts(reply, out);
	buffer_add_char(out, '}');
	buffer_close(&content);
}

static void print_start(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}\n\n");
}

static void print_content(const struct reply *reply, struct bytes text, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "{\"index\":0,\"delta\":{\"content\":");
	print_bytes(text, out);
	buffer_add_text(out, "}}]}\n\n");
}

static void print_edge(const struct reply *reply, bool reasoning, bool end, struct buffer *out)
{
	if (reasoning)
		print_content(reply, bytes_text(end ? "</think>" : "<think>"), out);
}

static void print_piece(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out)
{
	(void)reasoning;
	print_content(reply, piece, out);
}

/* The last chunk: usage comes unasked, and no [DONE] after it. */
static void print_finish(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_printf(out, "{\"index\":0,\"delta\":{},\"finish_reason\":\"%s\"}],", reply->finish);
	print_counts(reply, out);
	buffer_add_text(out, "}\n\n");
}

/* ---- The other paths ---- */

static void serve_load(struct sim *sim, struct http_connection *connection)
{
	struct arena arena;
	const struct json *body;
	const char *name;
	struct buffer page;

	arena_init(&arena);
	body = request_parse(sim, connection, &arena);
	if (body == NULL)
		goto end;
	name = json_get_text(body, "model");
	if (name == NULL) {
		reply_refusal(sim, connection, 422, NULL, "Field required: model");
		goto end;
	}
	buffer_init(&page, 16 * HTTP_BODY_MAX);
	buffer_add_text(&page, "data: {\"status\":\"loading\",\"model\":");
	print_text(name, &page);
	buffer_add_text(&page, ",\"stage\":\"weights\"}\n\ndata: {\"status\":\"ready\",\"model\":");
	print_text(name, &page);
	buffer_add_text(&page, "}\n\n");
	http_reply(connection, 200, "text/event-stream", "", buffer_bytes(&page));
	buffer_close(&page);
end:
	arena_close(&arena);
}

static void serve(struct sim *sim, struct http_connection *connection)
{
	struct buffer page;

	if (path_is(connection, HTTP_GET, "/health")) {
		http_reply(connection, 200, "application/json", "", BYTES_OF("{\"status\":\"ok\"}"));
	} else if (path_is(connection, HTTP_POST, "/load_model")) {
		serve_load(sim, connection);
	} else if (path_is(connection, HTTP_GET, "/v1/models")) {
		buffer_init(&page, PAGE_BYTES_MAX);
		buffer_add_text(&page, "{\"object\":\"list\",\"data\":[{\"id\":");
		print_text(sim->script->model, &page);
		buffer_printf(&page, ",\"object\":\"model\",\"created\":%d,\"owned_by\":\"reprise\"}]}", CREATED_BASE);
		reply_json(connection, 200, &page);
	} else {
		reply_refusal(sim, connection, 404, NULL, "Not Found");
	}
}

static const struct dialect chat_dialect = {
	.stream_type = "text/event-stream; charset=utf-8",
	.event_end = "\n\n",
	.read_ask = read_ask,
	.print_error = print_error,
	.prepare = prepare,
	.print_headers = print_headers,
	.print_whole = print_whole,
	.print_start = print_start,
	.print_edge = print_edge,
	.print_piece = print_piece,
	.print_finish = print_finish,
	.print_usage = print_nothing,
	.print_error_event = print_error_event,
	.print_end = print_nothing,
};

static const struct dialect *dialect_of(const struct sim *sim, const struct http_connection *connection)
{
	(void)sim;
	return path_is(connection, HTTP_POST, "/v1/chat/completions") ? &chat_dialect : NULL;
}

/* One inference thread: requests run one at a time. */
const struct kind transformers_kind = {
	.name = "transformers",
	.bit = KIND_TRANSFORMERS,
	.options = {.loaded = true, .slots = 1, .context_tokens = 32768, .idle_ms = IDLE_MS, .revision = "main"},
	.refuses_while_starting = true,
	.dialect_of = dialect_of,
	.serve = serve,
	.admit = admit,
	.print_error = print_error,
};
