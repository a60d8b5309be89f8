/* The adapter of everything that speaks OpenAI's chat completions (runtimes.md 2). Pure. Start at read_chunk(). */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "activities/adapter.h"
#include "workflow/base/check.h"

static const struct {
	const char *ours, *wire;
} sampling_fields[] = {
	{"temperature", "temperature"}, {"topP", "top_p"}, {"topK", "top_k"}, {"minP", "min_p"}, {"seed", "seed"},
	{"maxTokens", "max_tokens"}, {"stop", "stop"}, {"presencePenalty", "presence_penalty"},
	{"frequencyPenalty", "frequency_penalty"}, {"repetitionPenalty", "repetition_penalty"}, {"reasoningEffort", "reasoning_effort"},
};

static const char *sampling_field(const char *name)
{
	for (size_t i = 0; i < COUNT_OF(sampling_fields); i++)
		if (strcmp(sampling_fields[i].ours, name) == 0)
			return sampling_fields[i].wire;
	return NULL;
}

static struct json *make_request(struct arena *arena, const struct inference_request *request)
{
	struct json *body = json_object(arena), *options = json_object(arena);

	if (request->model != NULL)
		json_set_text(arena, body, "model", request->model);
	json_set(arena, body, "messages", json_copy(arena, request->messages));
	json_set_boolean(arena, body, "stream", true);
	/* Sent explicitly: runtimes differ in what they do without it. */
	json_set_boolean(arena, options, "include_usage", true);
	json_set(arena, body, "stream_options", options);
	for (size_t i = 0; i < json_count(request->sampling); i++) {
		const struct json_member *member = &request->sampling->object.members[i];
		const char *wire = sampling_field(member->name);

		CHECK(wire != NULL);
		json_set(arena, body, wire, json_copy(arena, member->value));
	}
	if (request->schema != NULL) {
		struct json *format = json_object(arena), *schema = json_object(arena);

		json_set_text(arena, schema, "name", request->schema_name);
		json_set_boolean(arena, schema, "strict", true);
		json_set(arena, schema, "schema", json_copy(arena, request->schema));
		json_set_text(arena, format, "type", "json_schema");
		json_set(arena, format, "json_schema", schema);
		json_set(arena, body, "response_format", format);
	} else if (request->json_only) {
		struct json *format = json_object(arena);

		json_set_text(arena, format, "type", "json_object");
		json_set(arena, body, "response_format", format);
	}
	return body;
}

/* ---- Errors of the peer ---- */

static bool mentions(const char *text, const char *words)
{
	return text != NULL && strcasestr(text, words) != NULL;
}

static enum failure_class class_of(int status, const char *code, const char *message)
{
	if (mentions(message, "out of memory"))
		return FAILURE_OUT_OF_MEMORY;
	if (status == 429)
		return FAILURE_RATE_LIMITED;
	if (status == 408 || status == 504)
		return FAILURE_TIMED_OUT;
	if (status == 502 || status == 503)
		return FAILURE_UNREACHABLE; /* still loading, or nobody behind the gateway */
	if (status == 404 && code != NULL && strcmp(code, "model_not_found") == 0)
		return FAILURE_WRONG_MODEL;
	if (status == 501 || (status >= 400 && status < 500))
		return FAILURE_REFUSED;
	if (mentions(message, "unexpected endpoint")) /* LM Studio, with status 200 */
		return FAILURE_REFUSED;
	return FAILURE_RUNTIME_ERROR;
}

/* Forms seen: {"error": {"message", "type", "code": text or number}}, {"error": "text"}, {"message", "code"} (older vLLM and
 * SGLang), {"detail": text or anything} (FastAPI). */
static void read_error(const struct json *root, const char **message, const char **code, int *status)
{
	const struct json *error = json_get(root, "error");
	const struct json *number;

	if (json_is(error, JSON_STRING)) {
		*message = error->string.text;
		return;
	}
	if (!json_is(error, JSON_OBJECT))
		error = root;
	*message = json_get_text(error, "message");
	if (*message == NULL)
		*message = json_get_text(error, "detail");
	*code = json_get_text(error, "code");
	number = json_get(error, "code");
	if (*status == 0 && json_is_integer(number) && number->number >= 400 && number->number < 600)
		*status = (int)number->number;
	if (*status == 0 && *code != NULL && (*code)[0] >= '4' && (*code)[0] <= '5' && strlen(*code) == 3)
		sscanf(*code, "%d", status);
}

static void read_failure(struct answer *answer, int status, struct bytes body)
{
	struct arena scratch;
	const struct json *root;
	const char *message = NULL, *code = NULL;
	enum failure_class failure;

	arena_init(&scratch);
	root = json_parse(&scratch, body, JSON_ROUND_INTEGERS, NULL, NULL);
	read_error(root, &message, &code, &status);
	failure = class_of(status, code, message);
	if (message != NULL)
		answer_fail(answer, failure, "the runtime answered %d: %.300s", status, message);
	else
		answer_fail(answer, failure, "the runtime answered %d%s%.*s", status, body.len > 0 ? ": " : "",
			    (int)(body.len < 200 ? body.len : 200), body.len > 0 ? (const char *)body.data : "");
	arena_close(&scratch);
}

/* ---- Answers ---- */

static void keep_text(struct answer *answer, const char **place, const char *text)
{
	if (text != NULL && text[0] != '\0' && (*place == NULL || strcmp(*place, text) != 0))
		*place = arena_text(&answer->arena, text);
}

static bool add_text(struct buffer *buffer, const struct json *text)
{
	if (!json_is(text, JSON_STRING) || text->string.len == 0)
		return false;
	buffer_add(buffer, text->string.text, text->string.len);
	return true;
}

static void read_count(double *place, const struct json *usage, const char *name)
{
	const struct json *count = json_get(usage, name);

	if (json_is_integer(count) && count->number >= 0)
		*place = count->number;
}

/* A chunk of a stream or a whole answer: they differ in `delta` and `message`. */
static bool read_chunk(struct answer *answer, struct bytes text, bool *token)
{
	struct arena scratch;
	struct json_fault fault;
	struct error error;
	const struct json *root, *choice = NULL, *part, *usage;
	bool ok = true;

	arena_init(&scratch);
	root = json_parse(&scratch, text, JSON_ROUND_INTEGERS, &fault, &error);
	if (root == NULL || root->type != JSON_OBJECT) {
		ok = answer_fail(answer, FAILURE_RUNTIME_ERROR, "the runtime's answer is not JSON as agreed: %s",
				 root == NULL ? error.message : "it is no object");
		goto out;
	}
	/* An error may stand inside of a stream that began with status 200. */
	if (json_truthy(json_get(root, "error"))) {
		const char *message = NULL, *code = NULL;
		int status = 0;

		read_error(root, &message, &code, &status);
		ok = answer_fail(answer, class_of(status, code, message), "the runtime gave up in the middle of its answer: %.300s",
				 message != NULL ? message : "no reason given");
		goto out;
	}
	keep_text(answer, &answer->model, json_get_text(root, "model"));
	keep_text(answer, &answer->fingerprint, json_get_text(root, "system_fingerprint"));
	for (size_t i = 0; i < json_count(json_get(root, "choices")); i++)
		if (json_get_number(json_at(json_get(root, "choices"), i), "index", 0) == 0)
			choice = json_at(json_get(root, "choices"), i);
	part = json_get(choice, "delta");
	if (!json_is(part, JSON_OBJECT))
		part = json_get(choice, "message");
	*token = add_text(&answer->text, json_get(part, "content"));
	if (!add_text(&answer->reasoning, json_get(part, "reasoning_content")))
		*token |= add_text(&answer->reasoning, json_get(part, "reasoning"));
	else
		*token = true;
	keep_text(answer, &answer->finish_reason, json_get_text(choice, "finish_reason"));
	usage = json_get(root, "usage");
	read_count(&answer->prompt_tokens, usage, "prompt_tokens");
	read_count(&answer->completion_tokens, usage, "completion_tokens");
	if (answer->text.overflow || answer->reasoning.overflow)
		ok = answer_fail(answer, FAILURE_RUNTIME_ERROR, "the answer's text is larger than %d bytes (ACTIVITY_BODY_MAX)", ACTIVITY_BODY_MAX);
out:
	arena_close(&scratch);
	return ok;
}

static bool read_event(struct answer *answer, const char *name, struct bytes data, bool *token)
{
	*token = false;
	(void)name;
	if (answer->ended || data.len == 0)
		return true;
	if (bytes_equal_text(data, "[DONE]")) {
		answer->ended = true;
		return true;
	}
	return read_chunk(answer, data, token);
}

static bool read_whole(struct answer *answer, struct bytes body)
{
	bool token = false;

	if (!read_chunk(answer, body, &token))
		return false;
	answer->ended = true;
	return true;
}

/* ---- Probes ---- */

enum { PROBE_MODELS, PROBE_VERSION, PROBE_MODEL_COUNT_MAX = 1000 };

static void read_models(struct arena *arena, const struct json *root, struct runtime_facts *facts)
{
	const struct json *data = json_get(root, "data");
	struct json *models;

	if (!json_is(data, JSON_ARRAY))
		return;
	models = json_array(arena);
	for (size_t i = 0; i < json_count(data) && i < PROBE_MODEL_COUNT_MAX; i++) {
		const struct json *card = json_at(data, i), *length = json_get(card, "max_model_len");
		struct json *model = json_object(arena);

		if (json_get_text(card, "id") == NULL)
			continue;
		json_set_text(arena, model, "id", json_get_text(card, "id"));
		json_set_text(arena, model, "root", json_get_text(card, "root"));
		if (json_is_integer(length))
			json_set_number(arena, model, "contextLength", length->number);
		json_add(arena, models, model);
	}
	facts->models = models;
}

static void read_probe(struct arena *arena, size_t index, struct bytes body, struct runtime_facts *facts)
{
	const struct json *root = json_parse(arena, body, JSON_ROUND_INTEGERS, NULL, NULL);

	if (index == PROBE_MODELS) {
		read_models(arena, root, facts);
	} else if (index == PROBE_VERSION && json_get_text(root, "version") != NULL) {
		facts->version = json_get_text(root, "version");
		facts->version_source = "GET /version";
	}
}

const struct runtime_adapter openai_adapter = {
	.kind = "openai",
	.request_path = "/v1/chat/completions",
	.probes = {[PROBE_MODELS] = "/v1/models", [PROBE_VERSION] = "/version"},
	.make_request = make_request,
	.sampling_field = sampling_field,
	.read_event = read_event,
	.read_whole = read_whole,
	.read_failure = read_failure,
	.read_probe = read_probe,
};
