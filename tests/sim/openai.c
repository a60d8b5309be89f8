/* Kind "openai": the chat completions that every OpenAI-compatible runtime speaks. Loop thread. Start at openai_kind. */
#include <stdio.h>
#include <string.h>

#include "tests/sim/request.h"
#include "workflow/base/check.h"

enum { STOPS_MAX = 4, PAGE_BYTES_MAX = 8 * 1024 };

/* ---- The request ---- */

/* As a runtime whose grammars know a few keywords and no optional properties; the message names the place, as those of such runtimes do. */
static int require_plain(const struct json *schema, unsigned depth, struct error *error)
{
	static const char known[] = " type properties required items enum const anyOf additionalProperties $ref $defs definitions ";
	const struct json *properties = json_get(schema, "properties"), *required = json_get(schema, "required"), *choice = json_get(schema, "anyOf");
	char word[64];

	if (depth > SCHEMA_DEPTH_MAX)
		return error_set(error, ERR_INVALID, "response_format: the schema nests deeper than %d levels", SCHEMA_DEPTH_MAX);
	for (size_t i = 0; json_is(schema, JSON_OBJECT) && i < json_count(schema); i++) {
		snprintf(word, sizeof(word), " %.60s ", schema->object.members[i].name);
		if (strstr(known, word) == NULL)
			return error_set(error, ERR_INVALID, "schema: keyword not supported: %.60s", schema->object.members[i].name);
	}
	for (size_t i = 0; i < json_count(properties); i++) {
		const struct json_member *property = &properties->object.members[i];
		bool found = false;

		for (size_t r = 0; r < json_count(required) && !found; r++)
			found = json_is(json_at(required, r), JSON_STRING) && strcmp(json_at(required, r)->string.text, property->name) == 0;
		if (!found)
			return error_set(error, ERR_INVALID, "schema: every property must be required (not required: %.60s)", property->name);
		if (require_plain(property->value, depth + 1, error) != 0)
			return ERR_INVALID;
	}
	for (size_t i = 0; i < json_count(choice); i++)
		if (require_plain(json_at(choice, i), depth + 1, error) != 0)
			return ERR_INVALID;
	return json_get(schema, "items") == NULL ? 0 : require_plain(json_get(schema, "items"), depth + 1, error);
}

static int check_format(const struct kind_options *options, const struct ask *ask, struct error *error)
{
	if (options->no_formats && (ask->json_only || ask->schema != NULL))
		return error_set(error, ERR_INVALID, "'response_format.type' must be 'text'");
	if (options->no_schemas && ask->schema != NULL)
		return error_set(error, ERR_INVALID, "'response_format.type' must be 'text' or 'json_object'");
	return options->plain_schemas && ask->schema != NULL ? require_plain(ask->schema, 0, error) : 0;
}

static int read_ask(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	(void)connection;
	ask->model = json_get_text(body, "model");
	if (ask->model == NULL)
		return error_set(error, ERR_INVALID, "model: must be a string");
	if (request_read_stream(body, false, ask, error) != 0 ||
	    request_read_seed(body, "seed", ask, error) != 0 ||
	    request_read_messages(json_get(body, "messages"), arena, ask, error) != 0 ||
	    request_read_temperature(body, 1, ask, error) != 0 ||
	    request_read_range(body, "top_p", 0, 1, error) != 0 ||
	    request_read_range(body, "presence_penalty", -2, 2, error) != 0 ||
	    request_read_range(body, "frequency_penalty", -2, 2, error) != 0 ||
	    request_read_type(body, "logit_bias", JSON_OBJECT, error) != 0 ||
	    request_read_range(body, "n", 1, 1, error) != 0 ||
	    request_read_limit(body, "max_tokens", ask, error) != 0 ||
	    request_read_limit(body, "max_completion_tokens", ask, error) != 0 || /* the later one wins, as OpenAI has it */
	    request_read_stops(json_get(body, "stop"), STOPS_MAX, ask, error) != 0 ||
	    request_read_format(json_get(body, "response_format"), ask, error) != 0 ||
	    check_format(&sim->script->options, ask, error) != 0)
		return ERR_INVALID;
	return 0;
}

static int admit(struct sim *sim, struct arena *arena, struct ask *ask, struct error *error)
{
	(void)arena;
	if (strcmp(ask->model, sim->script->model) == 0)
		return 0;
	return request_refuse(ask, 404, "model_not_found", NULL, error, "there is no such model");
}

/* ---- The answer ---- */

static void print_error(const struct refusal *refusal, const char *message, struct buffer *out)
{
	int status = refusal->status;
	const char *type = status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";

	buffer_add_text(out, "{\"error\":{\"message\":");
	print_text(message, out);
	buffer_printf(out, ",\"type\":\"%s\",\"param\":null,\"code\":\"%s\"}}", type,
		refusal->code != NULL ? refusal->code : status == 400 ? "invalid_request" : "simulated");
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
	print_prefix_once(reply, arena, print_prefix);
}

static void print_counts(const struct reply *reply, struct buffer *out)
{
	uint64_t completion = reply_tokens(reply);

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
	print_error(&(struct refusal){.status = 500}, "the simulator was told to fail", out);
	buffer_add_text(out, "\n\n");
}

/* ---- The other paths ---- */

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
		reply_refusal(sim, connection, 405, "method_not_allowed", "chat completions are asked with POST");
	} else if (connection->method != HTTP_GET) {
		reply_refusal(sim, connection, 404, "not_found", "there is nothing at this path for this method");
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
			reply_refusal(sim, connection, 404, "model_not_found", "there is no such model");
		}
	} else if (bytes_equal_text(path, "/health")) {
		http_reply(connection, 200, "application/json", "", BYTES_OF("{\"status\":\"ok\"}"));
	} else if (bytes_equal_text(path, "/version")) {
		http_reply(connection, 200, "application/json", "", BYTES_OF("{\"version\":\"" REPRISE_VERSION "\"}"));
	} else {
		reply_refusal(sim, connection, 404, "not_found", "there is nothing at this path");
	}
	buffer_close(&body);
}

static const struct dialect chat_dialect = {
	.stream_type = "text/event-stream",
	.event_end = "\n\n",
	.ping = ": ping\n\n",
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

static const struct dialect *dialect_of(const struct sim *sim, const struct http_connection *connection)
{
	(void)sim;
	return path_is(connection, HTTP_POST, "/v1/chat/completions") ? &chat_dialect : NULL;
}

const struct kind openai_kind = {
	.name = "openai",
	.bit = KIND_OPENAI,
	.loading = "the simulator is starting",
	.dialect_of = dialect_of,
	.serve = serve,
	.admit = admit,
	.print_error = print_error,
};
