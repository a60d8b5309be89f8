/* Reads and prints what all kinds have in common. Loop thread. */
#include "tests/sim/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "workflow/base/check.h"

enum { REFUSAL_BYTES_MAX = 16 * 1024, PREFIX_BYTES_MAX = 16 * 1024, MESSAGE_BYTES_MAX = 512 };

/* ---- Reading ---- */

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
int request_read_messages(const struct json *messages, struct arena *arena, struct ask *ask, struct error *error)
{
	size_t count = json_count(messages);
	struct buffer prompt;
	size_t *ends;

	if (!json_is(messages, JSON_ARRAY) || count == 0)
		return error_set(error, ERR_INVALID, "messages: must be a list that is not empty");
	buffer_init(&prompt, ASK_PROMPT_MAX);
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

int request_read_type(const struct json *body, const char *name, enum json_type type, struct error *error)
{
	const struct json *value = json_get(body, name);

	if (value == NULL || json_is(value, JSON_NULL) || json_is(value, type))
		return 0;
	return error_set(error, ERR_INVALID, "%s: must be of type %s", name, json_type_name(type));
}

int request_read_list(const struct json *body, const char *name, enum json_type of, struct error *error)
{
	const struct json *list = json_get(body, name);

	if (request_read_type(body, name, JSON_ARRAY, error) != 0)
		return ERR_INVALID;
	for (size_t i = 0; json_is(list, JSON_ARRAY) && i < json_count(list); i++)
		if (!json_is(json_at(list, i), of))
			return error_set(error, ERR_INVALID, "%s: must be a list of type %s", name, json_type_name(of));
	return 0;
}

int request_read_effort(const struct json *body, double to, struct error *error)
{
	static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
	const struct json *effort = json_get(body, "reasoning_effort");

	if (effort == NULL || json_is(effort, JSON_NULL) || (json_is(effort, JSON_NUMBER) && to > 0 && effort->number >= 0 && effort->number <= to))
		return 0;
	for (size_t i = 0; json_is(effort, JSON_STRING) && i < COUNT_OF(words); i++)
		if (strcmp(words[i], effort->string.text) == 0)
			return 0;
	return error_set(error, ERR_INVALID, "reasoning_effort: must be none, minimal, low, medium, high, xhigh or max%s", to > 0 ? ", or a number" : "");
}

int request_read_range(const struct json *body, const char *name, double min, double max, struct error *error)
{
	const struct json *value = json_get(body, name);

	if (value == NULL || json_is(value, JSON_NULL))
		return 0;
	if (!json_is(value, JSON_NUMBER) || value->number < min || value->number > max)
		return error_set(error, ERR_INVALID, "%s: must be a number from %g to %g", name, min, max);
	return 0;
}

int request_read_limit(const struct json *body, const char *name, struct ask *ask, struct error *error)
{
	const struct json *value = json_get(body, name);

	if (value == NULL || json_is(value, JSON_NULL))
		return 0;
	if (!json_is_integer(value) || value->number < 1)
		return error_set(error, ERR_INVALID, "%s: must be an integer from 1 on", name);
	ask->tokens_max = (uint64_t)value->number;
	return 0;
}

int request_read_stops(const struct json *stop, size_t max, struct ask *ask, struct error *error)
{
	if (stop == NULL || json_is(stop, JSON_NULL))
		return 0;
	if (json_is(stop, JSON_STRING) && stop->string.len > 0) {
		ask->stops[ask->stop_count++] = stop->string.text;
		return 0;
	}
	if (!json_is(stop, JSON_ARRAY) || json_count(stop) > max)
		return error_set(error, ERR_INVALID, "stop: must be a text or a list of at most %zu", max);
	for (size_t i = 0; i < json_count(stop); i++) {
		if (!json_is(json_at(stop, i), JSON_STRING) || json_at(stop, i)->string.len == 0)
			return error_set(error, ERR_INVALID, "stop[%zu]: must be a text that is not empty", i);
		ask->stops[ask->stop_count++] = json_at(stop, i)->string.text;
	}
	return 0;
}

int request_read_format(const struct json *format, struct ask *ask, struct error *error)
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

int request_read_prompt(const struct json *prompt, struct ask *ask, struct error *error)
{
	if (!json_is(prompt, JSON_STRING))
		return error_set(error, ERR_INVALID, "prompt: must be a string");
	ask->prompt = (struct bytes){(const uint8_t *)prompt->string.text, prompt->string.len};
	ask->has_section = ask_find_section(ask->prompt, &ask->section);
	return 0;
}

int request_read_stream(const struct json *body, bool fallback, struct ask *ask, struct error *error)
{
	const struct json *stream = json_get(body, "stream");

	if (stream != NULL && !json_is(stream, JSON_BOOLEAN) && !json_is(stream, JSON_NULL))
		return error_set(error, ERR_INVALID, "stream: must be true or false");
	ask->stream = json_get_boolean(body, "stream", fallback);
	ask->include_usage = json_get_boolean(json_get(body, "stream_options"), "include_usage", false);
	return 0;
}

int request_read_seed(const struct json *body, const char *name, struct ask *ask, struct error *error)
{
	const struct json *seed = json_get(body, name);

	if (seed != NULL && !json_is(seed, JSON_NULL) && !json_is(seed, JSON_NUMBER))
		return error_set(error, ERR_INVALID, "%s: must be an integer", name);
	if (json_is(seed, JSON_NUMBER))
		ask->seed = random_hash(0, (struct bytes){(const uint8_t *)&seed->number, sizeof(seed->number)});
	return 0;
}

int request_read_temperature(const struct json *body, double fallback, struct ask *ask, struct error *error)
{
	ask->temperature = json_get_number(body, "temperature", fallback);
	return request_read_range(body, "temperature", 0, 2, error);
}

int request_refuse(struct ask *ask, int status, const char *code, const char *param, struct error *error, const char *format, ...)
{
	char message[MESSAGE_BYTES_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	ask->refusal = (struct refusal){.status = status, .code = code, .param = param, .extra = ask->refusal.extra};
	return error_set(error, ERR_INVALID, "%s", message);
}

/* A section whose beginning is gone begins where the text does now. */
void request_truncate_prompt(uint64_t tokens, struct ask *ask)
{
	uint64_t surplus = token_count(ask->prompt);
	size_t cut;

	if (surplus <= tokens)
		return;
	cut = token_bytes(ask->prompt, surplus - tokens);
	ask->prompt.data += cut;
	ask->prompt.len -= cut;
	if (!ask->has_section || ask->section.data >= ask->prompt.data)
		return;
	ask->has_section = ask->section.data + ask->section.len > ask->prompt.data;
	ask->section.len = ask->has_section ? (size_t)(ask->section.data + ask->section.len - ask->prompt.data) : 0;
	ask->section.data = ask->prompt.data;
}

static bool is_of_system(const struct json *message)
{
	const char *role = json_get_text(message, "role");

	return role != NULL && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
}

void request_truncate(const struct json *messages, uint64_t tokens, struct arena *arena, struct ask *ask)
{
	size_t count = json_count(messages), kept = 0;
	struct error error = {.code = ERR_NONE};

	while (kept + 1 < count && is_of_system(json_at(messages, kept)))
		kept++;
	for (size_t from = kept + 1; token_count(ask->prompt) > tokens && from < count; from++) {
		struct json *rest = json_array(arena);

		for (size_t i = 0; i < count; i++) {
			if (i < kept || i >= from)
				json_add(arena, rest, json_at(messages, i));
		}
		ask->has_section = false;
		CHECK(request_read_messages(rest, arena, ask, &error) == 0); /* They were read before. */
	}
	request_truncate_prompt(tokens, ask);
}

void request_print_float(double number, char text[static 32])
{
	int len = snprintf(text, 32, "%.12g", number);

	if (strcspn(text, ".e") == (size_t)len)
		snprintf(text + len, (size_t)(32 - len), ".0");
}

bool request_wants_no_reasoning(const struct json *body)
{
	const struct json *thinking = json_get(json_get(body, "chat_template_kwargs"), "enable_thinking");
	const char *effort = json_get_text(body, "reasoning_effort");

	if (json_is(thinking, JSON_BOOLEAN))
		return !thinking->boolean;
	return effort != NULL && strcmp(effort, "none") == 0;
}

struct model_state *request_find_model(struct sim *sim, const char *name)
{
	const struct kind_options *options = &sim->script->options;
	bool known = strcmp(name, sim->script->model) == 0;

	for (size_t i = 0; i < options->model_count; i++)
		known = known || strcmp(name, options->models[i]) == 0;
	return known ? runtime_model(&sim->runtime, name) : NULL;
}

/* ---- The request line ---- */

bool path_is(const struct http_connection *connection, enum http_method method, const char *path)
{
	return connection->method == method && bytes_equal_text(buffer_bytes(&connection->path), path);
}

bool query_is(const struct http_connection *connection, const char *name, const char *value)
{
	const char *at = buffer_text(&connection->query);
	size_t name_len = strlen(name), value_len = strlen(value);

	for (; *at != '\0'; at += strcspn(at, "&"), at += *at == '&') {
		if (strncmp(at, name, name_len) == 0 && at[name_len] == '=' && strcspn(at, "&") == name_len + 1 + value_len &&
		    strncmp(at + name_len + 1, value, value_len) == 0)
			return true;
	}
	return false;
}

/* ---- Printing ---- */

void print_text(const char *text, struct buffer *out)
{
	json_print_string(text, strlen(text), out);
}

void print_bytes(struct bytes text, struct buffer *out)
{
	json_print_string((const char *)text.data, text.len, out);
}

void print_number(uint64_t number, struct buffer *out)
{
	buffer_printf(out, "%llu", (unsigned long long)number);
}

void print_nothing(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	(void)out;
}

void print_done(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	buffer_add_text(out, "data: [DONE]\n\n");
}

/* Names in it may be as long as a body, and longer when they are escaped. */
void print_prefix_once(struct reply *reply, struct arena *arena,
	void (*print)(const struct reply *reply, const char *object, struct buffer *out))
{
	struct buffer out;

	buffer_init(&out, (size_t)12 * HTTP_BODY_MAX + PREFIX_BYTES_MAX);
	buffer_add_text(&out, "data: ");
	print(reply, "chat.completion.chunk", &out);
	CHECK(!out.overflow);
	reply->prefix = arena_bytes(arena, buffer_bytes(&out));
	buffer_close(&out);
}

uint64_t reply_tokens(const struct reply *reply)
{
	return reply->text_tokens + reply->reasoning_tokens;
}

const struct json *request_parse(struct sim *sim, struct http_connection *connection, struct arena *arena)
{
	struct error error = {.code = ERR_NONE};
	const struct json *body = json_parse(arena, buffer_bytes(&connection->body), JSON_ROUND_INTEGERS, NULL, &error);

	if (json_is(body, JSON_OBJECT))
		return body;
	reply_refusal(sim, connection, 400, NULL, body == NULL ? error.message : "the body must be an object");
	return NULL;
}

void reply_json(struct http_connection *connection, int status, struct buffer *body)
{
	CHECK(!body->overflow);
	http_reply(connection, status, "application/json", "", buffer_bytes(body));
	buffer_close(body);
}

void reply_refusal(const struct sim *sim, struct http_connection *connection, int status, const char *code, const char *message)
{
	struct refusal refusal = {.status = status, .code = code};
	struct buffer body;

	buffer_init(&body, REFUSAL_BYTES_MAX);
	sim->kind->print_error(&refusal, message, &body);
	reply_json(connection, status, &body);
}
