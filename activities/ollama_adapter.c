/* The adapter of Ollama's native API (runtimes.md 6): its OpenAI route drops half of the sampling without a word. Pure.
 * Start at read_message(). */
#include <stdio.h>
#include <string.h>

#include "activities/chat_wire.h"
#include "workflow/base/check.h"

/* Without it the context depends on how much video memory is free that day. */
enum { CONTEXT_LENGTH = 8192 };
#define NANOSECONDS_LOADED 1e9 /* a load_duration above it means that the model was loaded for this request */

/* Not num_keep: it says what stays when the context is shifted, and it is not. What its model is loaded with is no sampling either. */
static const struct sampling_field sampling[] = {
	{"temperature", "temperature", "1"},
	{"topP", "top_p", "1"},
	{"topK", "top_k", "0"},
	{"minP", "min_p", "0"},
	{"typicalP", "typical_p", "1"},
	{"seed", "seed", "0"},
	{"maxTokens", "num_predict", "-1"},
	{"stop", "stop", "[]"}, /* else a Modelfile's would hold */
	{"presencePenalty", "presence_penalty", "0"},
	{"frequencyPenalty", "frequency_penalty", "0"},
	{"repetitionPenalty", "repeat_penalty", "1"},
	{"repeatLastN", "repeat_last_n", "64"},
	{"reasoningEffort", "think", NULL},
	{NULL, NULL, NULL},
};

/* Neither can be asked for (runtimes.md 6a). */
static const struct launch_flag flags[] = {
	{"C.cache_flags", "kv_cache_type", {NULL}, NULL, "OLLAMA_KV_CACHE_TYPE"},
	{"C.cache_flags", "flash_attention", {NULL}, "", "OLLAMA_FLASH_ATTENTION"},
	{NULL, NULL, {NULL}, NULL, NULL},
};

static const char *refuse_sampling(const char *name, const struct json *value)
{
	static const char *const efforts[] = {"none", "low", "medium", "high", "max"};

	if (strcmp(name, "reasoningEffort") == 0) {
		for (size_t i = 0; i < COUNT_OF(efforts); i++)
			if (json_is(value, JSON_STRING) && strcmp(efforts[i], value->string.text) == 0)
				return NULL;
		return "takes none, low, medium, high or max";
	}
	if (strcmp(name, "seed") == 0 && (value->number < 0 || value->number > INT32_MAX))
		return "takes seeds from 0 to 2147483647; -1 means a random one";
	return NULL;
}

static struct json *make_options(struct arena *arena, const struct inference_request *request)
{
	struct json *options = json_object(arena);

	for (const struct sampling_field *field = sampling; field->ours != NULL; field++) {
		const struct json *value = json_get(request->sampling, field->ours);

		if (value != NULL && strcmp(field->wire, "think") != 0)
			json_set(arena, options, field->wire, json_copy(arena, value));
	}
	chat_map_top_k(arena, options, 0);
	chat_list_texts(arena, options, "stop");
	json_set_number(arena, options, "num_ctx", request->context_length > 0 ? request->context_length : CONTEXT_LENGTH);
	return options;
}

static struct json *make_request(struct arena *arena, const struct inference_request *request)
{
	struct json *body = json_object(arena);
	const struct json *effort = json_get(request->sampling, "reasoningEffort");

	json_set_text(arena, body, "model", request->model);
	json_set(arena, body, "messages", json_copy(arena, request->messages));
	json_set_boolean(arena, body, "stream", true);
	json_set(arena, body, "options", make_options(arena, request));
	/* A prompt that is too long is refused, not cut at its front (C77). */
	json_set_boolean(arena, body, "truncate", false);
	json_set_boolean(arena, body, "shift", false);
	if (request->schema != NULL)
		json_set(arena, body, "format", json_copy(arena, request->schema));
	else if (request->json_only)
		json_set_text(arena, body, "format", "json");
	if (json_is(effort, JSON_STRING) && strcmp(effort->string.text, "none") == 0)
		json_set_boolean(arena, body, "think", false);
	else if (effort != NULL)
		json_set(arena, body, "think", json_copy(arena, effort));
	return body;
}

/* ---- Answers ---- */

/* A line of a stream, or a whole answer. */
static bool read_message(struct answer *answer, struct bytes text, bool *token)
{
	static const char *const durations[] = {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"};
	struct arena scratch;
	struct json_fault fault;
	struct error error;
	const struct json *root, *message;
	bool ok = true;

	arena_init(&scratch);
	root = json_parse(&scratch, text, JSON_ROUND_INTEGERS, &fault, &error);
	if (root == NULL || root->type != JSON_OBJECT) {
		ok = answer_fail(answer, FAILURE_RUNTIME_ERROR, "the runtime's answer is not JSON as agreed: %s",
				 root == NULL ? error.message : "it is no object");
		goto out;
	}
	if (json_truthy(json_get(root, "error"))) {
		ok = answer_fail_inside(answer, root);
		goto out;
	}
	answer_keep_model(answer, json_get_text(root, "model"));
	answer_keep_text(answer, &answer->computed_by, json_get_text(root, "remote_host"));
	message = json_get(root, "message");
	*token = answer_add(&answer->text, json_get(message, "content"));
	*token |= answer_add(&answer->reasoning, json_get(message, "thinking"));
	if (json_get_boolean(root, "done", false)) {
		answer->ended = true;
		answer_keep_text(answer, &answer->finish_reason, json_get_text(root, "done_reason"));
		answer_read_count(&answer->prompt_tokens, root, "prompt_eval_count");
		answer_read_count(&answer->completion_tokens, root, "eval_count");
		answer->timings = json_object(&answer->arena);
		for (size_t i = 0; i < COUNT_OF(durations); i++)
			if (json_is(json_get(root, durations[i]), JSON_NUMBER))
				json_set(&answer->arena, answer->timings, durations[i], json_copy(&answer->arena, json_get(root, durations[i])));
		answer->loaded = json_get_number(root, "load_duration", 0) > NANOSECONDS_LOADED;
		/* The answer to an empty prompt, or the model was taken away. */
		if (answer->finish_reason != NULL && (strcmp(answer->finish_reason, "load") == 0 || strcmp(answer->finish_reason, "unload") == 0))
			ok = answer_fail(answer, FAILURE_RUNTIME_ERROR, "the runtime answered nothing but that it did %s the model", answer->finish_reason);
	}
	ok = ok && answer_check_size(answer);
out:
	arena_close(&scratch);
	return ok;
}

static bool read_event(struct answer *answer, const char *name, struct bytes data, bool *token)
{
	(void)name;
	*token = false;
	return answer->ended || read_message(answer, data, token);
}

static bool read_whole(struct answer *answer, struct bytes body)
{
	bool token;

	if (!read_message(answer, body, &token))
		return false;
	return answer->ended || answer_fail(answer, FAILURE_RUNTIME_ERROR, "the runtime answered with JSON that does not say \"done\"; see its url and kind");
}

/* ---- Probes ---- */

static void read_version(struct bytes body, struct runtime_facts *facts)
{
	facts_set_text(facts, "A.runtime_version", json_get_text(probe_json(body, facts), "version"), "GET /api/version");
}

/* "llama3" and "llama3:latest" are one. */
static bool is_named(const char *name, const char *wanted)
{
	size_t len = wanted != NULL ? strlen(wanted) : 0;

	return name != NULL && wanted != NULL &&
	       (strcmp(name, wanted) == 0 || (strchr(wanted, ':') == NULL && strncmp(name, wanted, len) == 0 && strcmp(name + len, ":latest") == 0));
}

static bool is_model(const char *asked, const char *answered)
{
	return is_named(answered, asked) || is_named(asked, answered);
}

/* A cloud model: the server hands on what it is asked, and its digest is that of a note which says where to. */
static void read_remote(struct runtime_facts *facts, const struct json *model, const char *source)
{
	const char *host_name = json_get_text(model, "remote_host"), *name = json_get_text(model, "remote_model");

	facts_set_text(facts, "B.remote_host", host_name, source);
	facts_set_text(facts, "B.remote_model", name, source);
	facts->is_remote |= (host_name != NULL && host_name[0] != '\0') || (name != NULL && name[0] != '\0');
}

static void set_details(struct runtime_facts *facts, const struct json *details, const char *source)
{
	facts_set_copy(facts, "B.arch", details, "family", source);
	facts_set_copy(facts, "B.quantisation", details, "quantization_level", source);
	facts_set_copy(facts, "B.format", details, "format", source);
	facts_set_copy(facts, "B.parameter_size", details, "parameter_size", source);
}

static const char *tag_of(const char *name)
{
	const char *slash = strrchr(name, '/'), *colon = strrchr(name, ':');

	return colon != NULL && (slash == NULL || colon > slash) ? colon + 1 : NULL; /* a registry may have a port */
}

static void read_tags(struct bytes body, struct runtime_facts *facts)
{
	static const char source[] = "GET /api/tags";
	const struct json *list = json_get(probe_json(body, facts), "models");
	struct json *models;

	if (!json_is(list, JSON_ARRAY))
		return;
	models = json_array(facts->arena);
	for (size_t i = 0; i < json_count(list) && i < ADAPTER_MODELS_MAX; i++) {
		const char *name = json_get_text(json_at(list, i), "name");
		size_t len = name != NULL ? strlen(name) : 0;
		struct json *card = json_object(facts->arena), *aliases = json_array(facts->arena);

		if (name == NULL)
			continue;
		json_set_text(facts->arena, card, "id", name);
		if (len > 7 && strcmp(name + len - 7, ":latest") == 0)
			json_add(facts->arena, aliases, json_text_len(facts->arena, name, len - 7));
		json_set(facts->arena, card, "aliases", aliases);
		json_add(facts->arena, models, card);
	}
	facts->models = models;
	for (size_t i = 0; i < json_count(list); i++) {
		const struct json *model = json_at(list, i);

		if (!is_named(json_get_text(model, "name"), facts_model(facts)))
			continue;
		/* Of the manifest: the strongest identity that any runtime gives over HTTP. */
		facts_set_copy(facts, "B.manifest_digest", model, "digest", source);
		facts_set_copy(facts, "B.size_bytes", model, "size", source);
		facts_set_text(facts, "B.revision", tag_of(json_get_text(model, "name")), "GET /api/tags: tag of the name");
		read_remote(facts, model, source);
		if (!facts->is_remote)
			facts_set_copy(facts, "B.weights_digest", model, "digest", "GET /api/tags: digest of the manifest");
		set_details(facts, json_get(model, "details"), source);
	}
}

static struct json *make_show(const struct runtime_facts *facts)
{
	struct json *body = json_object(facts->arena);

	if (facts_model(facts) == NULL)
		return NULL;
	json_set_text(facts->arena, body, "model", facts_model(facts));
	return body;
}

/* The value of a line "FROM …" of a Modelfile, or "num_batch   512" of its parameters. */
static const char *modelfile_value(struct arena *arena, const char *text, const char *name)
{
	size_t len = strlen(name);

	while (text != NULL && *text != '\0') {
		if (strncmp(text, name, len) == 0 && text[len] == ' ') {
			text += len + strspn(text + len, " ");
			return arena_text_len(arena, text, strcspn(text, "\r\n"));
		}
		text = strchr(text, '\n');
		text = text != NULL ? text + 1 : NULL;
	}
	return NULL;
}

static void read_parameter(struct runtime_facts *facts, const char *place, const char *parameters, const char *name)
{
	const char *value = modelfile_value(facts->arena, parameters, name);
	struct json *member;

	if (value == NULL)
		return;
	member = json_object(facts->arena);
	json_set_text(facts->arena, member, name, value);
	facts_set(facts, place, member, "POST /api/show parameters");
}

static void read_show(struct bytes body, struct runtime_facts *facts)
{
	static const char source[] = "POST /api/show";
	const struct json *root = probe_json(body, facts);
	const char *modelfile = json_get_text(root, "modelfile"), *from = modelfile_value(facts->arena, modelfile, "FROM");
	const char *blob = from != NULL ? strstr(from, "sha256-") : NULL;

	read_remote(facts, root, source);
	read_parameter(facts, "C.batch_sizes", json_get_text(root, "parameters"), "num_batch");
	read_parameter(facts, "C.speculation", json_get_text(root, "parameters"), "draft_num_predict");
	if (blob != NULL)
		facts_set_text(facts, "B.weights_blob", blob, "POST /api/show, FROM of the Modelfile");
	facts_set_text(facts, "B.adapters", modelfile_value(facts->arena, modelfile, "ADAPTER"), "POST /api/show, ADAPTER of the Modelfile");
	facts_set_hash(facts, "B.chat_template_sha256", json_get_text(root, "template"), source);
	facts_set_copy(facts, "B.renderer", root, "renderer", source);
	facts_set_copy(facts, "B.parser", root, "parser", source);
	facts_set_hash(facts, "B.system_sha256", json_get_text(root, "system"), source);
	facts_set_hash(facts, "B.generation_config_sha256", json_get_text(root, "parameters"), "POST /api/show parameters");
	facts_set_copy(facts, "C.sampling_defaults", root, "parameters", source);
	set_details(facts, json_get(root, "details"), source);
}

static void read_loaded(struct bytes body, struct runtime_facts *facts)
{
	static const char source[] = "GET /api/ps";
	const struct json *list = json_get(probe_json(body, facts), "models");

	if (!json_is(list, JSON_ARRAY) || facts->is_remote) /* of which nothing is loaded here */
		return;
	facts->is_unloaded = true;
	for (size_t i = 0; i < json_count(list); i++) {
		const struct json *model = json_at(list, i), *size = json_get(model, "size"), *vram = json_get(model, "size_vram");

		if (!is_named(json_get_text(model, "name"), facts_model(facts)))
			continue;
		facts->is_unloaded = false;
		facts_set_copy(facts, "C.context_length", model, "context_length", source);
		if (json_is(size, JSON_NUMBER) && json_is(vram, JSON_NUMBER))
			facts_set_text(facts, "C.offload", vram->number >= size->number ? "gpu" : vram->number > 0 ? "part" : "cpu", source);
	}
	facts_set_text(facts, "C.structured_backend", "grammar", "built in");
}

const struct runtime_adapter ollama_adapter = {
	.kind = "ollama",
	.loaded_models = 1,
	.request_path = "/api/chat",
	.stream = STREAM_LINES,
	.has_end_marker = true,
	.probes =
		{
			{.path = "/api/version", .read = read_version},
			{.path = "/api/tags", .read = read_tags},
			{.path = "/api/show", .make_body = make_show, .read = read_show},
			{.path = "/api/ps", .read = read_loaded},
		},
	.bypass = {.why_not = "asks for the cache in each request itself (cache_prompt); load it anew instead (phase reload, where the daemon launches it)"},
	.flags = flags,
	.sampling = sampling,
	.refuse_sampling = refuse_sampling,
	.make_request = make_request,
	.read_event = read_event,
	.read_whole = read_whole,
	.read_failure = answer_read_failure,
	.is_model = is_model,
};
