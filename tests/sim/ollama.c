/* Kind "ollama": Ollama's native API (NDJSON) and its /v1. Loop thread. Start at ollama_kind. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/request.h"
#include "workflow/base/check.h"
#include "workflow/base/digest.h"

enum {
	PAGE_BYTES_MAX = 64 * 1024,
	PREFIX_BYTES_MAX = 16 * 1024,
	NAME_BYTES_MAX = 1280, /* a name of OPTION_TEXT_MAX, and a tag */
	KEEP_ALIVE_MS = 5 * 60 * 1000,
	QUEUE_MAX = 512,
	MODEL_BYTES = 8 * 1000 * 1000,
	TRAINED_CONTEXT = 32768,
	PROMPT_NS_PER_TOKEN = 1000000, TEXT_NS_PER_TOKEN = 10000000, /* told in the durations; no clock */
};

#define FOREVER_MS 9.2e18

enum variant { VARIANT_CHAT, VARIANT_GENERATE, VARIANT_V1 };

/* ---- Names and times ---- */

/* "x" and "x:latest" are the same model. */
static struct model_state *find_model(struct sim *sim, const char *name)
{
	static const char latest[] = ":latest";
	char text[NAME_BYTES_MAX];
	size_t len = strlen(name);
	struct model_state *model = request_find_model(sim, name);

	if (model != NULL || len >= sizeof(text) - sizeof(latest))
		return model;
	if (len > sizeof(latest) - 1 && strcmp(name + len - (sizeof(latest) - 1), latest) == 0)
		snprintf(text, sizeof(text), "%.*s", (int)(len - (sizeof(latest) - 1)), name);
	else
		snprintf(text, sizeof(text), "%s%s", name, latest);
	return request_find_model(sim, text);
}

static void print_name(const char *name, struct buffer *out)
{
	char text[NAME_BYTES_MAX];

	snprintf(text, sizeof(text), strchr(name, ':') != NULL ? "%s" : "%s:latest", name);
	print_text(text, out);
}

static void print_time(uint64_t seconds, struct buffer *out)
{
	time_t value = (time_t)seconds;
	struct tm parts;

	gmtime_r(&value, &parts);
	buffer_printf(out, "\"%04d-%02d-%02dT%02d:%02d:%02dZ\"", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
		parts.tm_min, parts.tm_sec);
}

/* Go's durations: "5m", "1h30m", "500ms"; also a bare number of seconds. */
static bool parse_duration(const char *text, double *ms)
{
	static const struct { const char *name; double ms; } units[] = {
		{"ns", 1e-6}, {"us", 1e-3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3},
	};
	double sign = text[0] == '-' ? -1 : 1;
	const char *at = text + (text[0] == '-' || text[0] == '+');

	*ms = 0;
	if (*at == '\0')
		return false;
	while (*at != '\0') {
		char *end;
		double number;
		size_t unit_len;
		bool found = false;

		if ((*at < '0' || *at > '9') && *at != '.')
			return false;
		number = strtod(at, &end);
		unit_len = strspn(end, "nusmh");
		if (unit_len == 0 && *end == '\0' && *ms == 0) {
			*ms = sign * number * 1e3;
			return isfinite(*ms);
		}
		for (size_t i = 0; i < COUNT_OF(units) && !found; i++) {
			if (strlen(units[i].name) == unit_len && memcmp(units[i].name, end, unit_len) == 0) {
				*ms += number * units[i].ms;
				found = true;
			}
		}
		if (!found)
			return false;
		at = end + unit_len;
	}
	*ms *= sign;
	return isfinite(*ms);
}

static int read_keep_alive(const struct sim *sim, const struct json *value, struct ask *ask, struct error *error)
{
	double ms = sim->script->options.ttl_ms > 0 ? sim->script->options.ttl_ms : KEEP_ALIVE_MS;

	if (json_is(value, JSON_NUMBER))
		ms = value->number * 1e3;
	else if (json_is(value, JSON_STRING) && !parse_duration(value->string.text, &ms))
		return error_set(error, ERR_INVALID, "time: invalid duration \"%.60s\"", value->string.text);
	ask->ttl_ms = ms < 0 || ms >= FOREVER_MS ? -1 : (int64_t)ms;
	return 0;
}

/* ---- The request: options ---- */

enum option_type { TYPE_INTEGER, TYPE_FLOAT, TYPE_BOOLEAN, TYPE_TEXTS };

static const struct known_option {
	const char *name;
	enum option_type type;
} known_options[] = {
	{"num_keep", TYPE_INTEGER}, {"seed", TYPE_INTEGER}, {"num_predict", TYPE_INTEGER}, {"top_k", TYPE_INTEGER}, {"top_p", TYPE_FLOAT},
	{"min_p", TYPE_FLOAT}, {"typical_p", TYPE_FLOAT}, {"repeat_last_n", TYPE_INTEGER}, {"temperature", TYPE_FLOAT},
	{"repeat_penalty", TYPE_FLOAT}, {"presence_penalty", TYPE_FLOAT}, {"frequency_penalty", TYPE_FLOAT}, {"stop", TYPE_TEXTS},
	{"num_ctx", TYPE_INTEGER}, {"num_batch", TYPE_INTEGER}, {"num_gpu", TYPE_INTEGER}, {"main_gpu", TYPE_INTEGER}, {"use_mmap", TYPE_BOOLEAN},
	{"num_thread", TYPE_INTEGER}, {"draft_num_predict", TYPE_INTEGER},
};
static const char *const type_names[] = {"integer", "float32", "boolean", "array"};

static bool has_type(const struct json *value, enum option_type type)
{
	switch (type) {
	case TYPE_INTEGER: case TYPE_FLOAT: return json_is(value, JSON_NUMBER); /* a fraction is cut off */
	case TYPE_BOOLEAN: return json_is(value, JSON_BOOLEAN);
	case TYPE_TEXTS: return json_is(value, JSON_ARRAY);
	}
	return false;
}

static int read_options(const struct json *options, struct ask *ask, struct error *error)
{
	double predict = json_get_number(options, "num_predict", -1);

	if (options != NULL && !json_is(options, JSON_NULL) && !json_is(options, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "json: cannot unmarshal into Go struct field .options of type map[string]interface {}");
	for (size_t i = 0; json_is(options, JSON_OBJECT) && i < options->object.count; i++) {
		const struct json_member *member = &options->object.members[i];
		const struct known_option *known = NULL;

		for (size_t k = 0; k < COUNT_OF(known_options); k++) {
			if (strcmp(known_options[k].name, member->name) == 0)
				known = &known_options[k];
		}
		if (known == NULL)
			fprintf(stderr, "level=WARN source=types.go msg=\"invalid option provided\" option=%.100s\n", member->name);
		else if (!json_is(member->value, JSON_NULL) && !has_type(member->value, known->type))
			return request_refuse(ask, 500, NULL, NULL, error, "option \"%s\" must be of type %s", known->name, type_names[known->type]);
	}
	ask->temperature = json_get_number(options, "temperature", 0.8);
	ask->seed_ignored = json_get_number(options, "seed", -1) == -1;
	ask->tokens_max = predict >= 1 && predict < 0x1p53 ? (uint64_t)predict : 0;
	if (request_read_seed(options, "seed", ask, error) != 0)
		return ERR_INVALID;
	return request_read_stops(json_get(options, "stop"), ASK_STOPS_MAX, ask, error);
}

static int read_native_format(const struct json *format, struct ask *ask, struct error *error)
{
	if (format == NULL || json_is(format, JSON_NULL) || (json_is(format, JSON_STRING) && format->string.len == 0))
		return 0;
	if (json_is(format, JSON_OBJECT))
		ask->schema = format;
	else if (json_is(format, JSON_STRING) && strcmp(format->string.text, "json") == 0)
		ask->json_only = true;
	else
		return error_set(error, ERR_INVALID, "invalid format: expected \"json\" or a valid JSON schema object");
	return 0;
}

static int read_think(const struct json *think, struct ask *ask, struct error *error)
{
	if (think == NULL || json_is(think, JSON_NULL))
		return 0;
	if (!json_is(think, JSON_BOOLEAN) && !json_is(think, JSON_STRING))
		return error_set(error, ERR_INVALID, "think must be a boolean or string (\"high\", \"medium\", \"low\", \"max\", true, or false)");
	ask->no_reasoning = json_is(think, JSON_BOOLEAN) && !think->boolean;
	return 0;
}

static int read_native(struct sim *sim, const struct json *body, struct ask *ask, struct error *error)
{
	if (!json_is(body, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "json: cannot unmarshal into Go value of type api.Request");
	ask->model = json_get_text(body, "model");
	if (ask->model == NULL || ask->model[0] == '\0')
		return error_set(error, ERR_INVALID, "model is required");
	if (request_read_stream(body, true, ask, error) != 0 || read_keep_alive(sim, json_get(body, "keep_alive"), ask, error) != 0 ||
	    read_options(json_get(body, "options"), ask, error) != 0 || read_native_format(json_get(body, "format"), ask, error) != 0)
		return ERR_INVALID;
	return read_think(json_get(body, "think"), ask, error);
}

/* Nothing to answer: the model is to be loaded, or to go. */
static void load_only(struct ask *ask)
{
	ask->loads_only = ask->ttl_ms == 0 ? "unload" : "load";
	ask->stream = false;
}

static int read_chat(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	const struct json *messages = json_get(body, "messages");

	(void)connection;
	ask->variant = VARIANT_CHAT;
	if (read_native(sim, body, ask, error) != 0)
		return ERR_INVALID;
	if (messages != NULL && !json_is(messages, JSON_ARRAY) && !json_is(messages, JSON_NULL))
		return error_set(error, ERR_INVALID, "json: cannot unmarshal into Go struct field ChatRequest.messages of type []api.Message");
	if (json_count(messages) > 0)
		return request_read_messages(messages, arena, ask, error);
	load_only(ask);
	return 0;
}

static int read_generate(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	const struct json *prompt = json_get(body, "prompt");

	(void)connection;
	(void)arena;
	ask->variant = VARIANT_GENERATE;
	if (read_native(sim, body, ask, error) != 0)
		return ERR_INVALID;
	if (prompt == NULL || json_is(prompt, JSON_NULL) || (json_is(prompt, JSON_STRING) && prompt->string.len == 0)) {
		load_only(ask);
		return 0;
	}
	return request_read_prompt(prompt, ask, error);
}

/* Only these members are read: max_completion_tokens, top_k, min_p, n and logit_bias are dropped without a word. */
static int read_v1(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	const char *effort = json_get_text(json_get(body, "reasoning"), "effort");

	(void)connection;
	ask->variant = VARIANT_V1;
	ask->model = json_get_text(body, "model");
	if (ask->model == NULL || ask->model[0] == '\0')
		return error_set(error, ERR_INVALID, "model is required");
	if (effort == NULL)
		effort = json_get_text(body, "reasoning_effort");
	ask->no_reasoning = effort != NULL && strcmp(effort, "none") == 0;
	ask->seed_ignored = !json_is(json_get(body, "seed"), JSON_NUMBER);
	if (read_keep_alive(sim, NULL, ask, error) != 0 ||
	    request_read_stream(body, false, ask, error) != 0 ||
	    request_read_seed(body, "seed", ask, error) != 0 ||
	    request_read_messages(json_get(body, "messages"), arena, ask, error) != 0 ||
	    request_read_temperature(body, 1, ask, error) != 0 ||
	    request_read_limit(body, "max_tokens", ask, error) != 0 ||
	    request_read_stops(json_get(body, "stop"), ASK_STOPS_MAX, ask, error) != 0 ||
	    request_read_format(json_get(body, "response_format"), ask, error) != 0)
		return ERR_INVALID;
	return 0;
}

/* What does not fit is left out without a word, unless `truncate` is false. */
static int fit_context(const struct sim *sim, struct arena *arena, struct ask *ask, struct error *error)
{
	double asked = ask->variant != VARIANT_V1 ? json_get_number(json_get(ask->body, "options"), "num_ctx", 0) : 0;
	uint64_t context = asked >= 1 && asked < 0x1p53 ? (uint64_t)asked : (uint64_t)sim->script->options.context_tokens;
	bool shift = ask->variant == VARIANT_V1 || json_get_boolean(ask->body, "shift", true);
	uint64_t prompt = token_count(ask->prompt);

	if (prompt > context && ask->variant != VARIANT_V1 && !json_get_boolean(ask->body, "truncate", true))
		return request_refuse(ask, 400, NULL, NULL, error, "the input length exceeds the context length");
	if (ask->variant == VARIANT_GENERATE)
		request_truncate_prompt(context, ask);
	else if (ask->loads_only == NULL)
		request_truncate(json_get(ask->body, "messages"), context, arena, ask);
	prompt = token_count(ask->prompt);
	if (!shift && (ask->tokens_max == 0 || ask->tokens_max > context - prompt))
		ask->tokens_max = context > prompt ? context - prompt : 1;
	return 0;
}

static int admit(struct sim *sim, struct arena *arena, struct ask *ask, struct error *error)
{
	const struct kind_options *options = &sim->script->options;

	ask->state = find_model(sim, ask->model);
	if (ask->state == NULL)
		return request_refuse(ask, 404, NULL, NULL, error, ask->variant == VARIANT_V1 ? "model \"%.200s\" not found, try pulling it first" :
			"model '%.200s' not found", ask->model);
	if (sim->runtime.waiting >= (uint64_t)options->queue_max)
		return request_refuse(ask, 503, NULL, NULL, error, "server busy, please try again.  maximum pending requests exceeded");
	if (!ask->state->loaded && options->load_error != NULL && (ask->loads_only == NULL || ask->ttl_ms != 0))
		return request_refuse(ask, 500, NULL, NULL, error, "%.400s", options->load_error);
	return fit_context(sim, arena, ask, error);
}

/* ---- Errors ---- */

static void print_error(const struct refusal *refusal, const char *message, struct buffer *out)
{
	(void)refusal;
	buffer_add_text(out, "{\"error\":");
	print_text(message, out);
	buffer_add_char(out, '}');
}

static void print_error_event(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	buffer_add_text(out, "{\"error\":\"an error was encountered while running the model: the simulator was told to fail\"}\n");
}

static void print_v1_error(const struct refusal *refusal, const char *message, struct buffer *out)
{
	const char *type = refusal->status == 400 ? "invalid_request_error" : refusal->status == 404 ? "not_found_error" : "api_error";

	buffer_add_text(out, "{\"error\":{\"message\":");
	print_text(message, out);
	buffer_printf(out, ",\"type\":\"%s\",\"param\":null,\"code\":null}}", type);
}

static void print_v1_error_event(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	buffer_add_text(out, "data: ");
	print_v1_error(&(struct refusal){.status = 500}, "the simulator was told to fail", out);
	buffer_add_text(out, "\n\n");
}

/* ---- Native answers ---- */

/* A cloud model says where it is computed, in each answer as well. */
static void print_remote(const struct script *script, struct buffer *out)
{
	if (script->options.remote_host == NULL)
		return;
	buffer_add_text(out, ",\"remote_model\":\"simulated\",\"remote_host\":");
	print_text(script->options.remote_host, out);
}

static void prepare_native(struct reply *reply, struct arena *arena)
{
	struct buffer out;

	buffer_init(&out, PREFIX_BYTES_MAX + 6 * (strlen(reply->model) + OPTION_TEXT_MAX));
	buffer_add_text(&out, "{\"model\":");
	print_text(reply->model, &out);
	print_remote(reply->script, &out);
	buffer_add_text(&out, ",\"created_at\":");
	print_time(CREATED_BASE + reply->ordinal, &out);
	CHECK(!out.overflow);
	reply->prefix = arena_bytes(arena, buffer_bytes(&out));
	buffer_close(&out);
}

static void print_native_text(const struct reply *reply, struct bytes text, struct bytes thinking, struct buffer *out)
{
	bool chat = reply->ask->variant == VARIANT_CHAT;

	buffer_add_text(out, chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
	print_bytes(text, out);
	if (thinking.len > 0) {
		buffer_add_text(out, ",\"thinking\":");
		print_bytes(thinking, out);
	}
	if (chat)
		buffer_add_char(out, '}');
}

/* A zero is left out, as Go's omitempty does. */
static void print_count(const char *name, uint64_t value, struct buffer *out)
{
	if (value > 0)
		buffer_printf(out, ",\"%s\":%" PRIu64, name, value);
}

static void print_native_end_members(const struct reply *reply, struct buffer *out)
{
	uint64_t load = reply->ask->loads_only == NULL ? reply->load_ms * 1000000 : 0; /* not told of a mere load */
	uint64_t tokens = reply_tokens(reply);
	uint64_t prompt = (reply->prompt_tokens - reply->cached_tokens) * PROMPT_NS_PER_TOKEN, text = tokens * TEXT_NS_PER_TOKEN;

	buffer_printf(out, ",\"done\":true,\"done_reason\":\"%s\"", reply->finish);
	print_count("total_duration", load + prompt + text, out);
	print_count("load_duration", load, out);
	print_count("prompt_eval_count", reply->prompt_tokens, out);
	print_count("prompt_eval_duration", prompt, out);
	print_count("eval_count", tokens, out);
	print_count("eval_duration", text, out);
	buffer_add_char(out, '}');
}

static void print_native(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	print_native_text(reply, reply->text, reply->reasoning, out);
	print_native_end_members(reply, out);
}

static void print_native_piece(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out)
{
	static const struct bytes nothing = BYTES_OF("");

	buffer_add_bytes(out, reply->prefix);
	print_native_text(reply, reasoning ? nothing : piece, reasoning ? piece : nothing, out);
	buffer_add_text(out, ",\"done\":false}\n");
}

/* The object with "done": true is the end mark; an error stands in its place. */
static void print_native_end(const struct reply *reply, struct buffer *out)
{
	static const struct bytes nothing = BYTES_OF("");

	if (reply->breaks_off)
		return;
	buffer_add_bytes(out, reply->prefix);
	print_native_text(reply, nothing, nothing, out);
	print_native_end_members(reply, out);
	buffer_add_char(out, '\n');
}

/* ---- /v1 answers ---- */

static void print_v1_prefix(const struct reply *reply, const char *object, struct buffer *out)
{
	buffer_printf(out, "{\"id\":\"chatcmpl-%" PRIu64 "\",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", reply->ordinal % 1000, object,
		CREATED_BASE + reply->ordinal);
	print_text(reply->model, out);
	buffer_add_text(out, ",\"system_fingerprint\":\"fp_ollama\",\"choices\":[");
}

static void prepare_v1(struct reply *reply, struct arena *arena)
{
	print_prefix_once(reply, arena, print_v1_prefix);
}

static void print_v1_counts(const struct reply *reply, struct buffer *out)
{
	uint64_t tokens = reply_tokens(reply);

	buffer_printf(out, "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}", reply->prompt_tokens,
		tokens, reply->prompt_tokens + tokens);
}

static void print_v1(const struct reply *reply, struct buffer *out)
{
	print_v1_prefix(reply, "chat.completion", out);
	buffer_add_text(out, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
	print_bytes(reply->text, out);
	if (reply->reasoning.len > 0) {
		buffer_add_text(out, ",\"reasoning\":");
		print_bytes(reply->reasoning, out);
	}
	buffer_printf(out, "},\"finish_reason\":\"%s\"}],", reply->finish);
	print_v1_counts(reply, out);
	buffer_add_char(out, '}');
}

static void print_v1_piece(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":");
	if (reasoning)
		buffer_add_text(out, "\"\",\"reasoning\":");
	print_bytes(piece, out);
	buffer_add_text(out, "},\"finish_reason\":null}]}\n\n");
}

static void print_v1_finish(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_printf(out, "{\"index\":0,\"delta\":{},\"finish_reason\":\"%s\"}]}\n\n", reply->finish);
}

static void print_v1_usage(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "],");
	print_v1_counts(reply, out);
	buffer_add_text(out, "}\n\n");
}

/* ---- The other paths ---- */

/* Of the manifest: name and revision. A model that is replaced under its name has another one. */
static void get_digest(const struct sim *sim, const char *name, char hex[static DIGEST_HEX_LEN + 1])
{
	struct digest digest;
	struct buffer text;

	buffer_init(&text, 2 * OPTION_TEXT_MAX + NAME_BYTES_MAX);
	buffer_printf(&text, "%s %s", name, sim->script->options.revision);
	digest = digest_of(buffer_bytes(&text));
	buffer_close(&text);
	digest_hex(&digest, hex);
}

#define DETAILS "{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":\"llama\",\"families\":[\"llama\"],\"parameter_size\":\"7M\"," \
	"\"quantization_level\":\"Q8_0\"}"

static void print_card(const struct sim *sim, const char *name, struct buffer *out)
{
	char digest[DIGEST_HEX_LEN + 1];

	get_digest(sim, name, digest);
	buffer_add_text(out, "{\"name\":");
	print_name(name, out);
	buffer_add_text(out, ",\"model\":");
	print_name(name, out);
	buffer_printf(out, ",\"size\":%d,\"digest\":\"%s\",\"details\":" DETAILS, MODEL_BYTES, digest);
}

static void print_tags(const struct sim *sim, struct buffer *out)
{
	const struct kind_options *options = &sim->script->options;

	buffer_add_text(out, "{\"models\":[");
	for (size_t i = 0; i <= options->model_count; i++) {
		print_card(sim, i == 0 ? sim->script->model : options->models[i - 1], out);
		buffer_add_text(out, ",\"modified_at\":");
		print_time(CREATED_BASE, out);
		print_remote(sim->script, out);
		buffer_add_text(out, i < options->model_count ? "}," : "}");
	}
	buffer_add_text(out, "]}");
}

static void print_ps(const struct sim *sim, struct buffer *out)
{
	const struct kind_options *options = &sim->script->options;
	bool first = true;

	buffer_add_text(out, "{\"models\":[");
	for (size_t i = 0; i < sim->runtime.model_count; i++) {
		const struct model_state *model = sim->runtime.models[i];

		if (!model->loaded || options->remote_host != NULL) /* which holds nothing here */
			continue;
		if (!first)
			buffer_add_char(out, ',');
		first = false;
		print_card(sim, model->name, out);
		buffer_add_text(out, ",\"expires_at\":"); /* no clock: how long it is kept, counted from a fixed time */
		print_time(CREATED_BASE + (model->ttl_ms < 0 ? UINT64_C(9000000000) : (uint64_t)model->ttl_ms / 1000), out);
		buffer_printf(out, ",\"size_vram\":%d,\"context_length\":%d}", MODEL_BYTES / 100 * options->vram_percent, options->context_tokens);
	}
	buffer_add_text(out, "]}");
}

static void print_show(const struct sim *sim, const char *name, struct buffer *out)
{
	char digest[DIGEST_HEX_LEN + 1];

	get_digest(sim, name, digest);
	buffer_printf(out, "{\"modelfile\":\"# Modelfile\\nFROM /models/blobs/sha256-%s\\nTEMPLATE {{ .Prompt }}\\n\","
		"\"parameters\":\"temperature                    0.8\",\"template\":\"{{ .Prompt }}\",\"details\":" DETAILS
		",\"model_info\":{\"general.architecture\":\"llama\",\"general.file_type\":7,\"general.parameter_count\":7000000,"
		"\"llama.context_length\":%d},\"capabilities\":[\"completion\",\"thinking\"],\"modified_at\":", digest, TRAINED_CONTEXT);
	print_time(CREATED_BASE, out);
	print_remote(sim->script, out);
	buffer_add_char(out, '}');
}

static void serve_show(struct sim *sim, struct http_connection *connection)
{
	struct model_state *model;
	struct buffer page;
	struct arena arena;
	const struct json *body;
	const char *name;
	char message[NAME_BYTES_MAX];

	arena_init(&arena);
	body = request_parse(sim, connection, &arena);
	if (body == NULL)
		goto end;
	name = json_get_text(body, "model") != NULL ? json_get_text(body, "model") : json_get_text(body, "name");
	model = name != NULL ? find_model(sim, name) : NULL;
	if (name == NULL) {
		reply_refusal(sim, connection, 400, NULL, "model is required");
	} else if (model == NULL) {
		snprintf(message, sizeof(message), "model '%.200s' not found", name);
		reply_refusal(sim, connection, 404, NULL, message);
	} else {
		buffer_init(&page, PAGE_BYTES_MAX);
		print_show(sim, model->name, &page);
		reply_json(connection, 200, &page);
	}
end:
	arena_close(&arena);
}

static void print_v1_models(const struct sim *sim, struct buffer *out)
{
	const struct kind_options *options = &sim->script->options;

	buffer_add_text(out, "{\"object\":\"list\",\"data\":[");
	for (size_t i = 0; i <= options->model_count; i++) {
		buffer_add_text(out, i > 0 ? ",{\"id\":" : "{\"id\":");
		print_name(i == 0 ? sim->script->model : options->models[i - 1], out);
		buffer_printf(out, ",\"object\":\"model\",\"created\":%d,\"owned_by\":\"library\"}", CREATED_BASE);
	}
	buffer_add_text(out, "]}");
}

static void serve(struct sim *sim, struct http_connection *connection)
{
	struct buffer page;

	buffer_init(&page, (size_t)(MODELS_MAX + 1) * PAGE_BYTES_MAX);
	if (path_is(connection, HTTP_GET, "/")) {
		http_reply(connection, 200, "text/plain; charset=utf-8", "", BYTES_OF("Ollama is running"));
		buffer_close(&page);
		return;
	}
	if (path_is(connection, HTTP_POST, "/api/show")) {
		serve_show(sim, connection);
		buffer_close(&page);
		return;
	}
	if (path_is(connection, HTTP_GET, "/api/version")) {
		buffer_add_text(&page, "{\"version\":");
		print_text(sim->script->options.version, &page);
		buffer_add_char(&page, '}');
	} else if (path_is(connection, HTTP_GET, "/api/tags")) {
		print_tags(sim, &page);
	} else if (path_is(connection, HTTP_GET, "/api/ps")) {
		print_ps(sim, &page);
	} else if (path_is(connection, HTTP_GET, "/v1/models")) {
		print_v1_models(sim, &page);
	} else {
		http_reply(connection, 404, "text/plain", "", BYTES_OF("404 page not found"));
		buffer_close(&page);
		return;
	}
	reply_json(connection, 200, &page);
}

#define NATIVE_DIALECT(reader)                      \
	{                                           \
		.stream_type = "application/x-ndjson", \
		.event_end = "\n",                  \
		.read_ask = reader,                 \
		.print_error = print_error,         \
		.prepare = prepare_native,          \
		.print_whole = print_native,        \
		.print_start = print_nothing,       \
		.print_piece = print_native_piece,  \
		.print_finish = print_nothing,      \
		.print_usage = print_nothing,       \
		.print_error_event = print_error_event, \
		.print_end = print_native_end,      \
	}

static const struct dialect chat_dialect = NATIVE_DIALECT(read_chat);
static const struct dialect generate_dialect = NATIVE_DIALECT(read_generate);
static const struct dialect v1_dialect = {
	.stream_type = "text/event-stream",
	.event_end = "\n\n",
	.read_ask = read_v1,
	.print_error = print_v1_error,
	.prepare = prepare_v1,
	.print_whole = print_v1,
	.print_start = print_nothing,
	.print_piece = print_v1_piece,
	.print_finish = print_v1_finish,
	.print_usage = print_v1_usage,
	.print_error_event = print_v1_error_event,
	.print_end = print_done,
};

static const struct dialect *dialect_of(const struct sim *sim, const struct http_connection *connection)
{
	(void)sim;
	if (path_is(connection, HTTP_POST, "/api/chat"))
		return &chat_dialect;
	if (path_is(connection, HTTP_POST, "/api/generate"))
		return &generate_dialect;
	return path_is(connection, HTTP_POST, "/v1/chat/completions") ? &v1_dialect : NULL;
}

const struct kind ollama_kind = {
	.name = "ollama",
	.bit = KIND_OLLAMA,
	.options = {.prompt_cache = true, .slots = 1, .queue_max = QUEUE_MAX, .context_tokens = 4096, .vram_percent = 100, .version = "0.33.0",
		.revision = "1"},
	.loading = "the simulator is starting",
	.dialect_of = dialect_of,
	.serve = serve,
	.admit = admit,
	.print_error = print_error,
};
