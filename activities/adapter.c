/* See adapter.h. In this order: the registry, facts, answers, the taxonomy of errors. Start at `kinds`. */
#include "activities/adapter.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "activities/internal.h"
#include "workflow/base/check.h"

static const struct {
	const char *kind;
	const struct runtime_adapter *adapter;
} kinds[] = {
	{"openai", &openai_adapter},
	{"llamacpp", &llamacpp_adapter},
	{"vllm", &vllm_adapter},
	{"ollama", &ollama_adapter},
	{"sglang", &sglang_adapter},
	{"lmstudio", &lmstudio_adapter},
	{"simulator", &openai_adapter}, /* a reprise-sim, which its Server header gives away */
};

const struct runtime_adapter *runtime_adapter_get(const char *kind)
{
	for (size_t i = 0; i < COUNT_OF(kinds); i++)
		if (strcmp(kinds[i].kind, kind) == 0)
			return kinds[i].adapter;
	return NULL;
}

const char *runtime_adapter_kinds(void)
{
	static char names[128];
	size_t len = 0;

	for (size_t i = 0; i < COUNT_OF(kinds) && names[sizeof(names) - 1] == '\0' && len < sizeof(names); i++)
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", i > 0 ? ", " : "", kinds[i].kind);
	return names;
}

const struct sampling_field *adapter_sampling_field(const struct runtime_adapter *adapter, const char *name)
{
	for (const struct sampling_field *field = adapter->sampling; field->ours != NULL; field++)
		if (strcmp(field->ours, name) == 0)
			return field;
	return NULL;
}

__attribute__((format(printf, 2, 3))) static bool refuse(struct sampling_fault *fault, const char *format, ...)
{
	va_list args;

	fault->inside[0] = '\0';
	va_start(args, format);
	vsnprintf(fault->why, sizeof(fault->why), format, args);
	va_end(args);
	return false;
}

bool adapter_check_sampling(const struct runtime_adapter *adapter, const char *name, const struct json *value, struct sampling_fault *fault)
{
	const struct sampling_field *field = adapter_sampling_field(adapter, name);
	struct json seed = {.type = JSON_NUMBER};
	const char *why;

	if (field == NULL)
		return refuse(fault, "has no such field");
	if (strcmp(name, "seed") == 0) {
		seed.number = sampling_seed(value);
		value = &seed;
	}
	if (field->from != 0 || field->to != 0) {
		if (json_is(value, JSON_ARRAY) && (double)json_count(value) > field->to)
			return refuse(fault, "takes at most %.0f of them", field->to);
		if (json_is(value, JSON_NUMBER) && (value->number < field->from || value->number > field->to || (field->above && value->number == field->from)))
			return refuse(fault, "takes numbers %s %.15g%s to %.15g", field->above ? "above" : "from", field->from, field->above ? " and up" : "", field->to);
	}
	why = adapter->refuse_sampling != NULL ? adapter->refuse_sampling(name, value) : NULL;
	return why == NULL || refuse(fault, "%s", why);
}

bool sampling_is_in_force(const struct json *asked, const struct json *told)
{
	if (json_is(asked, JSON_NUMBER) && json_is(told, JSON_NUMBER))
		return fabs(told->number - asked->number) <= 1e-6 * fabs(asked->number);
	return told != NULL && json_equal(asked, told);
}

struct json *sampling_field_unset(struct arena *arena, const struct sampling_field *field)
{
	const char *unset = field->unset;

	if (unset == NULL)
		return NULL;
	if (unset[0] == '-' || (unset[0] >= '0' && unset[0] <= '9')) /* nearly all, for each request */
		return json_number(arena, strtod(unset, NULL));
	return json_parse(arena, bytes_text(unset), JSON_STRICT, NULL, NULL);
}

/* ---- Facts ---- */

/* The tree and not its print: a peer may choose numbers that take long to be printed. */
static void add_tree(struct digest_stream *stream, const struct json *json)
{
	uint8_t type = (uint8_t)json->type;
	uint64_t len = json_count(json);

	digest_stream_add(stream, (struct bytes){&type, sizeof(type)});
	switch (json->type) {
	case JSON_NULL:
		break;
	case JSON_BOOLEAN:
		type = json->boolean;
		digest_stream_add(stream, (struct bytes){&type, sizeof(type)});
		break;
	case JSON_NUMBER:
		digest_stream_add(stream, (struct bytes){(const uint8_t *)&json->number, sizeof(json->number)});
		break;
	case JSON_STRING:
		len = json->string.len;
		digest_stream_add(stream, (struct bytes){(const uint8_t *)&len, sizeof(len)});
		digest_stream_add(stream, (struct bytes){(const uint8_t *)json->string.text, json->string.len});
		break;
	case JSON_ARRAY:
		digest_stream_add(stream, (struct bytes){(const uint8_t *)&len, sizeof(len)});
		for (size_t i = 0; i < len; i++)
			add_tree(stream, json_at(json, i));
		break;
	case JSON_OBJECT:
		digest_stream_add(stream, (struct bytes){(const uint8_t *)&len, sizeof(len)});
		for (size_t i = 0; i < len; i++) {
			const struct json_member *member = &json->object.members[i];
			uint64_t name_len = member->name_len;

			digest_stream_add(stream, (struct bytes){(const uint8_t *)&name_len, sizeof(name_len)});
			digest_stream_add(stream, (struct bytes){(const uint8_t *)member->name, member->name_len});
			add_tree(stream, member->value);
		}
		break;
	}
}

/* A peer may tell anything, but a record has to be kept and shown. What is another value still gives another record. */
static struct json *shorten(struct arena *arena, const struct json *value, size_t max, const char *max_name)
{
	char hex[DIGEST_HEX_LEN + 1];
	struct digest_stream stream;
	struct buffer printed;
	struct digest digest;
	bool fits;

	buffer_init(&printed, max);
	json_print(value, &printed);
	fits = !printed.overflow;
	buffer_close(&printed);
	if (fits)
		return NULL;
	digest_stream_init(&stream);
	add_tree(&stream, value);
	digest = digest_stream_finish(&stream);
	digest_hex(&digest, hex);
	return json_printf(arena, "more than %zu bytes (%s), told from others by %s", max, max_name, hex);
}

void facts_set(struct runtime_facts *facts, const char *place, struct json *value, const char *source)
{
	char group[2] = {place[0], '\0'};
	struct json *fields, *field, *shortened;

	CHECK(place[1] == '.');
	if (value == NULL || value->type == JSON_NULL)
		return;
	if (facts->fields == NULL)
		facts->fields = json_object(facts->arena);
	fields = json_get(facts->fields, group);
	if (fields == NULL) {
		fields = json_object(facts->arena);
		json_set(facts->arena, facts->fields, group, fields);
	}
	field = json_object(facts->arena);
	shortened = shorten(facts->arena, value, FACT_LEN_MAX, "FACT_LEN_MAX");
	json_set(facts->arena, field, "value", shortened != NULL ? shortened : value);
	json_set_text(facts->arena, field, "source", source);
	json_set(facts->arena, fields, place + 2, field);
}

void facts_set_text(struct runtime_facts *facts, const char *place, const char *text, const char *source)
{
	if (text != NULL && text[0] != '\0')
		facts_set(facts, place, json_text(facts->arena, text), source);
}

void facts_set_declared(struct runtime_facts *facts, const char *place, const char *text, const char *source)
{
	char group[2] = {place[0], '\0'};

	if (text == NULL || text[0] == '\0')
		return;
	facts_set_text(facts, place, text, source);
	json_set_text(facts->arena, json_get(json_get(facts->fields, group), place + 2), "basis", "declared");
}

void facts_set_copy(struct runtime_facts *facts, const char *place, const struct json *from, const char *name, const char *source)
{
	const struct json *value = json_get(from, name);

	if (value != NULL)
		facts_set(facts, place, json_copy(facts->arena, value), source);
}

void facts_set_hash(struct runtime_facts *facts, const char *place, const char *text, const char *source)
{
	char hex[DIGEST_HEX_LEN + 1];
	struct digest digest;

	if (text == NULL || text[0] == '\0')
		return;
	digest = digest_of(bytes_text(text));
	digest_hex(&digest, hex);
	facts_set_text(facts, place, hex, source);
}

void facts_set_members(struct runtime_facts *facts, const char *place, const struct json *from, const char *const *names, const char *source)
{
	struct json *members = json_object(facts->arena);

	for (; *names != NULL; names++) {
		const struct json *value = json_get(from, *names);

		if (value != NULL && value->type != JSON_NULL)
			json_set(facts->arena, members, *names, json_copy(facts->arena, value));
	}
	if (json_count(members) > 0)
		facts_set(facts, place, members, source);
}

const char *facts_model(const struct runtime_facts *facts)
{
	if (facts->wanted != NULL)
		return facts->wanted;
	return json_count(facts->models) == 1 ? json_get_text(json_at(facts->models, 0), "id") : NULL;
}

const struct json *models_find(const struct json *models, const char *id)
{
	for (size_t i = 0; i < json_count(models) && id != NULL; i++) {
		const struct json *card = json_at(models, i), *aliases = json_get(card, "aliases");

		if (strcmp(json_get_text(card, "id"), id) == 0)
			return card;
		for (size_t j = 0; j < json_count(aliases); j++)
			if (strcmp(json_at(aliases, j)->string.text, id) == 0)
				return card;
	}
	return NULL;
}

/* ---- Answers ---- */

void answer_init(struct answer *answer)
{
	*answer = (struct answer){.prompt_tokens = -1, .completion_tokens = -1, .cached_tokens = -1, .reasoning_tokens = -1};
	arena_init(&answer->arena);
	buffer_init(&answer->text, ACTIVITY_BODY_MAX);
	buffer_init(&answer->reasoning, ACTIVITY_BODY_MAX);
}

void answer_close(struct answer *answer)
{
	buffer_close(&answer->text);
	buffer_close(&answer->reasoning);
	arena_close(&answer->arena);
}

bool answer_fail(struct answer *answer, enum failure_class failure, const char *format, ...)
{
	va_list args;

	answer->failure = failure;
	va_start(args, format);
	detail_print(answer->detail, format, args);
	va_end(args);
	return false;
}

/* A name that a peer gives itself may be of any length. */
static const char *bound_name(struct answer *answer, const char *name)
{
	const struct json *shortened;

	if (name == NULL || strlen(name) <= ANSWER_NAME_MAX)
		return name;
	shortened = shorten(&answer->arena, &(struct json){.type = JSON_STRING, .string = {name, strlen(name)}}, ANSWER_NAME_MAX, "ANSWER_NAME_MAX");
	return shortened != NULL ? shortened->string.text : name;
}

struct json *answer_keep_told(struct answer *answer, const struct json *object)
{
	struct arena *arena = &answer->arena;
	struct json *kept = json_object(arena);
	size_t total = 0, left_out = 0;
	struct buffer printed;

	for (size_t i = 0; i < json_count(object); i++) {
		const struct json_member *member = &object->object.members[i];
		struct json *shortened = shorten(arena, member->value, ANSWER_MEMBER_MAX, "ANSWER_MEMBER_MAX");

		buffer_init(&printed, ANSWER_MEMBER_MAX);
		json_print(shortened != NULL ? shortened : member->value, &printed);
		if (total + member->name_len + printed.len > ANSWER_TOLD_MAX) {
			left_out++;
		} else {
			total += member->name_len + printed.len;
			json_set_len(arena, kept, member->name, member->name_len, shortened != NULL ? shortened : json_copy(arena, member->value));
		}
		buffer_close(&printed);
	}
	if (left_out > 0)
		json_set_number(arena, kept, "leftOut", (double)left_out);
	return kept;
}

void answer_keep_text(struct answer *answer, const char **place, const char *text)
{
	text = bound_name(answer, text);
	if (text != NULL && text[0] != '\0' && (*place == NULL || strcmp(*place, text) != 0))
		*place = arena_text(&answer->arena, text);
}

void answer_keep_model(struct answer *answer, const char *name)
{
	name = bound_name(answer, name);
	if (name == NULL || name[0] == '\0')
		return;
	if (answer->model == NULL || strcmp(name, answer->model) == 0)
		answer_keep_text(answer, &answer->model, name);
	else if (answer->other_model == NULL || strcmp(name, answer->other_model) == 0)
		answer_keep_text(answer, &answer->other_model, name);
	else
		answer->other_model = "several others"; /* which is nobody's name */
}

bool answer_add(struct buffer *buffer, const struct json *text)
{
	if (!json_is(text, JSON_STRING) || text->string.len == 0)
		return false;
	buffer_add(buffer, text->string.text, text->string.len);
	return true;
}

void answer_read_count(double *place, const struct json *from, const char *name)
{
	const struct json *count = json_get(from, name);

	if (json_is_integer(count) && count->number >= 0)
		*place = count->number;
}

bool answer_check_size(struct answer *answer)
{
	if (answer->text.overflow || answer->reasoning.overflow)
		return answer_fail(answer, FAILURE_RUNTIME_ERROR, "the answer's text is larger than %d bytes (ACTIVITY_BODY_MAX)", ACTIVITY_BODY_MAX);
	return true;
}

/* ---- Errors of the peer ---- */

static bool mentions(const char *text, const char *words)
{
	return text != NULL && strcasestr(text, words) != NULL;
}

static bool is_text(const char *text, const char *expected)
{
	return text != NULL && strcmp(text, expected) == 0;
}

/* Forms seen: {"error": {"message", "type", "code": text or number}}, {"error": "text"}, {"object": "error", "message", "code"} (older
 * vLLM, SGLang), {"detail": text or anything} (FastAPI). */
struct peer_error peer_error_read(const struct json *root, int status, struct arena *arena)
{
	struct peer_error result = {.status = status};
	const struct json *error = json_get(root, "error"), *number, *detail;
	int told;

	if (json_is(error, JSON_STRING)) {
		result.message = error->string.text;
		return result;
	}
	if (!json_is(error, JSON_OBJECT))
		error = root;
	result.message = json_get_text(error, "message");
	detail = json_get(error, "detail");
	if (result.message == NULL && detail != NULL)
		result.message = json_is(detail, JSON_STRING) ? detail->string.text : (const char *)json_print_arena(detail, arena).data;
	result.code = json_get_text(error, "code");
	result.type = json_get_text(error, "type");
	result.param = json_get_text(error, "param");
	number = json_get(error, "code");
	if (status == 0 && json_is_integer(number) && number->number >= 400 && number->number < 600)
		result.status = (int)number->number;
	if (status == 0 && result.code != NULL && strlen(result.code) == 3 && sscanf(result.code, "%d", &told) == 1 && told >= 400 && told < 600)
		result.status = told;
	return result;
}

static bool means_no_memory(const char *message)
{
	return mentions(message, "out of memory") || mentions(message, "OutOfMemory") || mentions(message, "insufficient system resources") ||
	       mentions(message, "unable to allocate") || mentions(message, "failed to allocate") || mentions(message, "requires more system memory");
}

static bool means_no_model(const struct peer_error *error)
{
	const char *message = error->message;

	if (is_text(error->code, "model_not_found") || is_text(error->type, "model_not_found") || mentions(message, "No models loaded"))
		return true;
	/* llama.cpp's router: not in its list, or not loaded where it may not load it. */
	if (is_text(error->type, "invalid_request_error") && message != NULL &&
	    (is_text(message, "model is not loaded") || (strncmp(message, "model '", 7) == 0 && strstr(message, "' not found") != NULL)))
		return true;
	return error->status == 404 && (is_text(error->param, "model") || (mentions(message, "model") && (mentions(message, "not found") ||
													    mentions(message, "does not exist"))));
}

/* The first that fits. runtimes.md 2.2 says of each whether another attempt may help; failure.h holds that. */
enum failure_class peer_error_class(const struct peer_error *error)
{
	int status = error->status;

	/* Validation (FastAPI, vLLM, SGLang) says back what it was told, and a document may hold any words. */
	if (status == 422 || (status == 400 && (is_text(error->type, "BadRequestError") || is_text(error->type, "Bad Request"))))
		return FAILURE_REFUSED;
	if (means_no_memory(error->message))
		return FAILURE_OUT_OF_MEMORY;
	if (status == 429 || (status == 503 && mentions(error->message, "server busy"))) /* Ollama's queue is full */
		return FAILURE_RATE_LIMITED;
	if (status == 408 || status == 504)
		return FAILURE_TIMED_OUT;
	/* Still loading, nobody behind the gateway, or an engine that has died within its server. */
	if (status == 502 || status == 503 || is_text(error->type, "unavailable_error") || mentions(error->message, "EngineDead") ||
	    mentions(error->message, "EngineCore encountered"))
		return FAILURE_UNREACHABLE;
	if (means_no_model(error))
		return FAILURE_WRONG_MODEL;
	if (status == 499 || mentions(error->message, "Model is unloaded")) /* taken away in the middle */
		return FAILURE_RUNTIME_ERROR;
	if (status == 501 || (status >= 400 && status < 500))
		return FAILURE_REFUSED;
	if (mentions(error->message, "unexpected endpoint")) /* LM Studio, with status 200 */
		return FAILURE_REFUSED;
	if (status == 0 && (is_text(error->type, "invalid_request") || is_text(error->type, "invalid_request_error") || is_text(error->type, "BadRequestError") ||
			    is_text(error->type, "not_implemented"))) /* inside of a stream nothing else says so */
		return FAILURE_REFUSED;
	if (mentions(error->message, "context length") || mentions(error->message, "context the overflows") ||
	    mentions(error->message, "available context size"))
		return FAILURE_REFUSED;
	return FAILURE_RUNTIME_ERROR;
}

static bool is_context_limit(const struct peer_error *error)
{
	return is_text(error->type, "exceed_context_size_error") || is_text(error->code, "context_length_exceeded") ||
	       is_text(error->param, "input_tokens") || is_text(error->param, "input_text") || /* vLLM */
	       mentions(error->message, "context length") || mentions(error->message, "available context size") ||
	       mentions(error->message, "context the overflows");
}

static const char *advice(const struct peer_error *error, enum failure_class failure)
{
	if (failure == FAILURE_REFUSED && is_context_limit(error))
		return "; send smaller sections, or give the runtime a longer context";
	if (failure == FAILURE_REFUSED && (error->status == 401 || error->status == 403))
		return "; see the runtime's apiKey";
	return "";
}

void answer_read_failure(struct answer *answer, int status, struct bytes body)
{
	struct arena scratch;
	struct peer_error error;
	enum failure_class failure;

	arena_init(&scratch);
	error = peer_error_read(json_parse(&scratch, body, JSON_ROUND_INTEGERS, NULL, NULL), status, &scratch);
	failure = peer_error_class(&error);
	if (error.message != NULL)
		answer_fail(answer, failure, "the runtime answered %d: %.300s%s", status, error.message, advice(&error, failure));
	else
		answer_fail(answer, failure, "the runtime answered %d%s%.*s%s", status, body.len > 0 ? ": " : "",
			    (int)(body.len < 200 ? body.len : 200), body.len > 0 ? (const char *)body.data : "", advice(&error, failure));
	arena_close(&scratch);
}

bool answer_fail_inside(struct answer *answer, const struct json *root)
{
	struct arena scratch;
	struct peer_error error;
	enum failure_class failure;

	arena_init(&scratch);
	error = peer_error_read(root, 0, &scratch);
	failure = peer_error_class(&error);
	answer_fail(answer, failure, "the runtime gave up in the middle of its answer: %.300s%s",
		    error.message != NULL ? error.message : "no reason given", advice(&error, failure));
	arena_close(&scratch);
	return false;
}
