/* Kind "openai": the chat completions that every OpenAI-compatible runtime speaks. Loop thread. Start at openai_kind. */
#include <stdio.h>
#include <string.h>

#include "tests/sim/sim.h"
#include "workflow/base/check.h"

/* `created` is no clock: equal scripts and orders give equal bytes. */
enum { CREATED_BASE = 1790000000, PREFIX_BYTES_MAX = 16 * 1024, ERROR_BYTES_MAX = 8 * 1024, PAGE_BYTES_MAX = 8 * 1024 };

/* ---- The request ---- */

static bool is_chat(const struct http_connection *connection)
{
	return connection->method == HTTP_POST && bytes_equal_text(buffer_bytes(&connection->path), "/v1/chat/completions");
}

/* A content is a text, or a list of parts of which only texts count. */
static int add_content(const struct json *content, size_t index, struct buffer *prompt, struct error *error)
{
	if (content == NULL || json_is(content, JSON_NULL))
		return 0;
	if (json_is(content, JSON_STRING)) {
		buffer_add(prompt, content->string.text, content->string.len);
		return 0;
	}
	if (!json_is(content, JSON_ARRAY))
		return error_set(error, ERR_INVALID, "messages[%zu].content: must be a string or a list of parts", index);
	for (size_t i = 0; i < json_count(content); i++) {
		const struct json *part = json_at(content, i);
		const char *type = json_get_text(part, "type");
		const struct json *text = json_get(part, "text");

		if (type == NULL || strcmp(type, "text") != 0 || !json_is(text, JSON_STRING))
			return error_set(error, ERR_INVALID, "messages[%zu].content[%zu]: only parts of type text are known", index, i);
		if (i > 0)
			buffer_add_char(prompt, '\n');
		buffer_add(prompt, text->string.text, text->string.len);
	}
	return 0;
}

/* The last message that holds a section counts: earlier ones may show an example. */
static int read_messages(const struct json *messages, struct arena *arena, struct ask *ask, struct error *error)
{
	size_t count = json_count(messages);
	struct buffer prompt;
	size_t *ends;

	if (!json_is(messages, JSON_ARRAY) || count == 0)
		return error_set(error, ERR_INVALID, "messages: must be a list that is not empty");
	buffer_init(&prompt, 2 * HTTP_BODY_MAX);
	ends = arena_alloc(arena, count * sizeof(*ends));
	for (size_t i = 0; i < count; i++) {
		const struct json *message = json_at(messages, i);

		if (json_get_text(message, "role") == NULL) {
			error_set(error, ERR_INVALID, "messages[%zu].role: must be a string", i);
			goto fail;
		}
		if (add_content(json_get(message, "content"), i, &prompt, error) != 0)
			goto fail;
		ends[i] = prompt.len;
		if (i + 1 < count)
			buffer_add_char(&prompt, '\n');
	}
	ask->prompt = arena_bytes(arena, buffer_bytes(&prompt));
	buffer_close(&prompt);
	for (size_t i = count; i-- > 0 && !ask->has_section;) {
		size_t start = i > 0 ? ends[i - 1] + 1 : 0;

		ask->has_section = ask_find_section((struct bytes){ask->prompt.data + start, ends[i] - start}, &ask->section);
	}
	return 0;
fail:
	buffer_close(&prompt);
	return ERR_INVALID;
}

static int read_range(const struct json *body, const char *name, double min, double max, struct error *error)
{
	const struct json *value = json_get(body, name);

	if (value == NULL || json_is(value, JSON_NULL))
		return 0;
	if (!json_is(value, JSON_NUMBER) || value->number < min || value->number > max)
		return error_set(error, ERR_INVALID, "%s: must be a number from %g to %g", name, min, max);
	return 0;
}

static int read_limit(const struct json *body, const char *name, struct ask *ask, struct error *error)
{
	const struct json *value = json_get(body, name);

	if (value == NULL || json_is(value, JSON_NULL))
		return 0;
	if (!json_is_integer(value) || value->number < 1)
		return error_set(error, ERR_INVALID, "%s: must be an integer from 1 on", name);
	ask->tokens_max = (uint64_t)value->number;
	return 0;
}

static int read_stops(const struct json *stop, struct ask *ask, struct error *error)
{
	if (stop == NULL || json_is(stop, JSON_NULL))
		return 0;
	if (json_is(stop, JSON_STRING) && stop->string.len > 0) {
		ask->stops[ask->stop_count++] = stop->string.text;
		return 0;
	}
	if (!json_is(stop, JSON_ARRAY) || json_count(stop) > ASK_STOPS_MAX)
		return error_set(error, ERR_INVALID, "stop: must be a text or a list of at most %d", ASK_STOPS_MAX);
	for (size_t i = 0; i < json_count(stop); i++) {
		if (!json_is(json_at(stop, i), JSON_STRING) || json_at(stop, i)->string.len == 0)
			return error_set(error, ERR_INVALID, "stop[%zu]: must be a text that is not empty", i);
		ask->stops[ask->stop_count++] = json_at(stop, i)->string.text;
	}
	return 0;
}

static int read_format(const struct json *format, struct ask *ask, struct error *error)
{
	const char *type = json_get_text(format, "type");

	if (format == NULL || json_is(format, JSON_NULL) || (type != NULL && strcmp(type, "text") == 0))
		return 0;
	if (type != NULL && strcmp(type, "json_object") == 0) {
		ask->json_only = true;
		return 0;
	}
	if (type == NULL || strcmp(type, "json_schema") != 0)
		return error_set(error, ERR_INVALID, "response_format.type: must be text, json_object or json_schema");
	if (json_get_text(json_get(format, "json_schema"), "name") == NULL)
		return error_set(error, ERR_INVALID, "response_format.json_schema.name: must be a string");
	ask->schema = json_get(json_get(format, "json_schema"), "schema");
	if (!json_is(ask->schema, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "response_format.json_schema.schema: must be an object");
	return 0;
}

static int read_ask(const struct json *body, struct arena *arena, struct ask *ask, struct error *error)
{
	const struct json *seed = json_get(body, "seed");
	const struct json *stream = json_get(body, "stream");

	ask->model = json_get_text(body, "model");
	if (ask->model == NULL)
		return error_set(error, ERR_INVALID, "model: must be a string");
	if (stream != NULL && !json_is(stream, JSON_BOOLEAN) && !json_is(stream, JSON_NULL))
		return error_set(error, ERR_INVALID, "stream: must be true or false");
	if (seed != NULL && !json_is(seed, JSON_NULL) && !json_is(seed, JSON_NUMBER))
		return error_set(error, ERR_INVALID, "seed: must be an integer");
	if (json_is(seed, JSON_NUMBER))
		ask->seed = random_hash(0, (struct bytes){(const uint8_t *)&seed->number, sizeof(seed->number)});
	ask->stream = json_get_boolean(body, "stream", false);
	ask->include_usage = json_get_boolean(json_get(body, "stream_options"), "include_usage", false);
	if (read_messages(json_get(body, "messages"), arena, ask, error) != 0 ||
	    read_range(body, "temperature", 0, 2, error) != 0 ||
	    read_range(body, "top_p", 0, 1, error) != 0 ||
	    read_range(body, "n", 1, 1, error) != 0 ||
	    read_limit(body, "max_tokens", ask, error) != 0 ||
	    read_limit(body, "max_completion_tokens", ask, error) != 0 || /* the later one wins, as OpenAI has it */
	    read_stops(json_get(body, "stop"), ask, error) != 0 ||
	    read_format(json_get(body, "response_format"), ask, error) != 0)
		return ERR_INVALID;
	return 0;
}

/* ---- The answer ---- */

static void print_text(const char *text, struct buffer *out)
{
	json_print_string(text, strlen(text), out);
}

static void print_error(int status, const char *code, const char *message, struct buffer *out)
{
	const char *type = status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";

	buffer_add_text(out, "{\"error\":{\"message\":");
	print_text(message, out);
	buffer_printf(out, ",\"type\":\"%s\",\"param\":null,\"code\":\"%s\"}}", type, code);
}

/* What all chunks and the whole answer begin with; printed once, since a long answer has thousands of chunks. */
static void print_prefix(const struct reply *reply, const char *object, struct buffer *out)
{
	buffer_printf(out, "{\"id\":\"chatcmpl-sim-%llu\",\"object\":\"%s\",\"created\":%llu,\"model\":",
		(unsigned long long)reply->ordinal, object, (unsigned long long)(CREATED_BASE + reply->ordinal));
	print_text(reply->model, out);
	buffer_add_text(out, ",\"system_fingerprint\":\"fp_reprise_sim\",\"choices\":[");
}

static void prepare(struct reply *reply, struct arena *arena)
{
	struct buffer out;

	buffer_init(&out, PREFIX_BYTES_MAX + 6 * strlen(reply->model));
	buffer_add_text(&out, "data: ");
	print_prefix(reply, "chat.completion.chunk", &out);
	CHECK(!out.overflow);
	reply->prefix = arena_bytes(arena, buffer_bytes(&out));
	buffer_close(&out);
}

static void print_counts(const struct reply *reply, struct buffer *out)
{
	uint64_t completion = reply->text_tokens + reply->reasoning_tokens;

	buffer_printf(out, "\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
		"\"prompt_tokens_details\":{\"cached_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":%llu}}",
		(unsigned long long)reply->prompt_tokens, (unsigned long long)completion,
		(unsigned long long)(reply->prompt_tokens + completion), (unsigned long long)reply->reasoning_tokens);
}

static void print_whole(const struct reply *reply, struct buffer *out)
{
	print_prefix(reply, "chat.completion", out);
	buffer_add_text(out, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
	json_print_string((const char *)reply->text.data, reply->text.len, out);
	if (reply->reasoning.len > 0) {
		buffer_add_text(out, ",\"reasoning_content\":");
		json_print_string((const char *)reply->reasoning.data, reply->reasoning.len, out);
	}
	buffer_printf(out, ",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"%s\"}],", reply->finish);
	print_counts(reply, out);
	buffer_add_char(out, '}');
}

static void print_start(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
		"\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

static void print_piece(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, reasoning ? "{\"index\":0,\"delta\":{\"reasoning_content\":" : "{\"index\":0,\"delta\":{\"content\":");
	json_print_string((const char *)piece.data, piece.len, out);
	buffer_add_text(out, "},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

static void print_finish(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_printf(out, "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"%s\"}]}\n\n", reply->finish);
}

static void print_usage(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "],");
	print_counts(reply, out);
	buffer_add_text(out, "}\n\n");
}

static void print_error_event(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	buffer_add_text(out, "data: ");
	print_error(500, "simulated", "the simulator was told to fail", out);
	buffer_add_text(out, "\n\n");
}

static void print_end(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	buffer_add_text(out, "data: [DONE]\n\n");
}

/* ---- The other paths ---- */

static void reply_error(struct http_connection *connection, int status, const char *code, const char *message)
{
	struct buffer body;

	buffer_init(&body, ERROR_BYTES_MAX);
	print_error(status, code, message, &body);
	http_reply(connection, status, "application/json", "", buffer_bytes(&body));
	buffer_close(&body);
}

static void print_model(const struct sim *sim, struct buffer *out)
{
	buffer_add_text(out, "{\"id\":");
	print_text(sim->script->model, out);
	buffer_printf(out, ",\"object\":\"model\",\"created\":%d,\"owned_by\":\"reprise-sim\"}", CREATED_BASE);
}

static void serve(struct sim *sim, struct http_connection *connection)
{
	static const char models[] = "/v1/models/";
	struct bytes path = buffer_bytes(&connection->path);
	struct buffer body;

	buffer_init(&body, PAGE_BYTES_MAX + 6 * strlen(sim->script->model));
	if (bytes_equal_text(path, "/v1/chat/completions")) {
		reply_error(connection, 405, "method_not_allowed", "chat completions are asked with POST");
	} else if (connection->method != HTTP_GET) {
		reply_error(connection, 404, "not_found", "there is nothing at this path for this method");
	} else if (bytes_equal_text(path, "/v1/models")) {
		buffer_add_text(&body, "{\"object\":\"list\",\"data\":[");
		print_model(sim, &body);
		buffer_add_text(&body, "]}");
		http_reply(connection, 200, "application/json", "", buffer_bytes(&body));
	} else if (path.len > sizeof(models) - 1 && memcmp(path.data, models, sizeof(models) - 1) == 0) {
		path.data += sizeof(models) - 1;
		path.len -= sizeof(models) - 1;
		if (bytes_equal_text(path, sim->script->model)) {
			print_model(sim, &body);
			http_reply(connection, 200, "application/json", "", buffer_bytes(&body));
		} else {
			reply_error(connection, 404, "model_not_found", "there is no such model");
		}
	} else if (bytes_equal_text(path, "/health")) {
		http_reply(connection, 200, "application/json", "", BYTES_OF("{\"status\":\"ok\"}"));
	} else if (bytes_equal_text(path, "/version")) {
		http_reply(connection, 200, "application/json", "", BYTES_OF("{\"version\":\"" REPRISE_VERSION "\"}"));
	} else {
		reply_error(connection, 404, "not_found", "there is nothing at this path");
	}
	buffer_close(&body);
}

const struct kind openai_kind = {
	.name = "openai",
	.stream_type = "text/event-stream",
	.event_end = "\n\n",
	.ping = ": ping\n\n",
	.is_chat = is_chat,
	.serve = serve,
	.read_ask = read_ask,
	.print_error = print_error,
	.prepare = prepare,
	.print_whole = print_whole,
	.print_start = print_start,
	.print_piece = print_piece,
	.print_finish = print_finish,
	.print_usage = print_usage,
	.print_error_event = print_error_event,
	.print_end = print_end,
};
