/* Kind "vllm": vLLM's OpenAI-compatible server. Loop thread. Start at vllm_kind. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tests/sim/request.h"
#include "workflow/base/check.h"

enum { PAGE_BYTES_MAX = 64 * 1024, PREFIX_BYTES_MAX = 16 * 1024, SALT_BYTES_MAX = 128, IDLE_MS = 5000, SEQUENCES_MAX = 256 };

/* ---- The request ---- */

/* What the request model knows; others are ignored, and a line in the log is all that says so. */
static const char *const fields[] = {
	"model", "messages", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed",
	"max_tokens", "max_completion_tokens", "min_tokens", "stop", "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "bad_words",
	"allowed_token_ids", "n", "logit_bias", "logprobs", "top_logprobs", "prompt_logprobs", "logprob_token_ids", "use_beam_search",
	"length_penalty", "reasoning_effort", "thinking_token_budget", "include_reasoning", "chat_template_kwargs", "chat_template",
	"add_generation_prompt", "continue_final_message", "documents", "cache_salt", "priority", "request_id", "session_id", "stream_interval",
	"repetition_detection", "truncate_prompt_tokens", "response_format", "structured_outputs", "tools", "tool_choice", "parallel_tool_calls",
	"stream", "stream_options", "user", "return_token_ids", "return_prompt_text", "add_special_tokens", "echo", "mm_processor_kwargs",
	"skip_special_tokens", "spaces_between_special_tokens", "kv_transfer_params", "vllm_xargs", "logits_processors", "service_tier", "metadata",
};

static void log_ignored(const struct json *body)
{
	struct buffer names;

	buffer_init(&names, PAGE_BYTES_MAX);
	for (size_t i = 0; i < body->object.count; i++) {
		bool known = false;

		for (size_t k = 0; k < COUNT_OF(fields) && !known; k++)
			known = strcmp(fields[k], body->object.members[i].name) == 0;
		if (!known)
			buffer_printf(&names, "%s'%.100s'", names.len > 0 ? ", " : "", body->object.members[i].name);
	}
	if (names.len > 0) /* past PAGE_BYTES_MAX the rest is left out */
		fprintf(stderr, "(APIServer pid=%d) WARNING [protocol.py] The following fields were present in the request but ignored: {%s}\n",
			(int)getpid(), buffer_text(&names));
	buffer_close(&names);
}

struct range {
	const char *name;
	double min, max;
	bool above_min; /* the minimum itself is not in it */
	const char *words;
};

static const struct range ranges[] = {
	{"temperature", 0, 2, false, "in [0, 2]"}, {"top_p", 0, 1, true, "in (0, 1]"}, {"min_p", 0, 1, false, "in [0, 1]"},
	{"presence_penalty", -2, 2, false, "in [-2, 2]"}, {"frequency_penalty", -2, 2, false, "in [-2, 2]"},
	{"repetition_penalty", 0, 1e308, true, "greater than zero"}, {"max_tokens", 1, 1e15, false, "at least 1"},
	{"max_completion_tokens", 1, 1e15, false, "at least 1"}, {"thinking_token_budget", -1, 1e15, false, "a non-negative integer or -1"}, {"min_tokens", 0, 1e15, false, "greater than or equal to 0"},
	{"n", 1, 1, false, "1 in this simulator"}, {"top_k", -1, 1e15, false, "0 (disable), or at least 1"},
};

/* A field of the wrong type is a mistake of the body, one out of its range a bad request: two types of error. */
static int refuse_type(struct ask *ask, const char *name, const char *type, struct error *error)
{
	return request_refuse(ask, 400, "Bad Request", name, error, "1 validation error:\n  {'type': '%s', 'loc': 'body.%s', 'msg': "
		"'Input should be a valid %s'}", type, name, strchr(type, '_') != NULL ? "value" : type);
}

static int read_ranges(const struct json *body, struct ask *ask, struct error *error)
{
	for (size_t i = 0; i < COUNT_OF(ranges); i++) {
		const struct range *range = &ranges[i];
		const struct json *value = json_get(body, range->name);
		char number[32];

		if (value == NULL || json_is(value, JSON_NULL))
			continue;
		if (!json_is(value, JSON_NUMBER))
			return refuse_type(ask, range->name, "float_parsing", error);
		if (value->number > range->max || value->number < range->min || (range->above_min && value->number == range->min)) {
			request_print_float(value->number, number);
			return request_refuse(ask, 400, NULL, range->name, error, "%s must be %s, got %s.", range->name, range->words, number);
		}
	}
	return 0;
}

/* What has another form than a number. */
static int read_forms(const struct json *body, struct error *error)
{
	static const char *const switches[] = {"include_stop_str_in_output", "ignore_eos", "include_reasoning", "use_beam_search"};
	static const char *const objects[] = {"logit_bias", "chat_template_kwargs"};

	for (size_t i = 0; i < COUNT_OF(switches); i++)
		if (request_read_type(body, switches[i], JSON_BOOLEAN, error) != 0)
			return ERR_INVALID;
	for (size_t i = 0; i < COUNT_OF(objects); i++)
		if (request_read_type(body, objects[i], JSON_OBJECT, error) != 0)
			return ERR_INVALID;
	if (json_get_number(body, "min_tokens", 0) > json_get_number(body, "max_tokens", 1e15))
		return error_set(error, ERR_INVALID, "min_tokens: must be less than or equal to max_tokens");
	if (request_read_list(body, "stop_token_ids", JSON_NUMBER, error) != 0 || request_read_list(body, "allowed_token_ids", JSON_NUMBER, error) != 0 ||
	    request_read_list(body, "bad_words", JSON_STRING, error) != 0)
		return ERR_INVALID;
	return request_read_effort(body, 0, error);
}

static int read_structured(const struct json *structured, struct arena *arena, struct ask *ask, struct error *error)
{
	static const char *const kinds[] = {"json", "regex", "choice", "grammar", "json_object", "structural_tag"};
	const struct json *json = json_get(structured, "json");
	size_t count = 0;

	if (structured == NULL || json_is(structured, JSON_NULL))
		return 0;
	for (size_t i = 0; i < COUNT_OF(kinds); i++)
		count += json_get(structured, kinds[i]) != NULL && !json_is(json_get(structured, kinds[i]), JSON_NULL);
	if (count != 1)
		return request_refuse(ask, 400, NULL, "structured_outputs", error, count > 1 ?
			"You can only use one kind of structured outputs constraint but multiple are specified" :
			"You must use one kind of structured outputs constraint but none are specified");
	if (json_is(json, JSON_STRING))
		json = json_parse(arena, (struct bytes){(const uint8_t *)json->string.text, json->string.len}, JSON_ROUND_INTEGERS, NULL, error);
	if (json_get(structured, "json") != NULL && !json_is(json, JSON_OBJECT))
		return request_refuse(ask, 400, NULL, "structured_outputs", error, "Invalid JSON schema");
	ask->schema = json;
	ask->json_only = json_get_boolean(structured, "json_object", false);
	if (json_is(json_at(json_get(structured, "choice"), 0), JSON_STRING))
		ask->choice = json_at(json_get(structured, "choice"), 0)->string.text;
	return 0;
}

static int read_salt(const struct json *body, struct ask *ask, struct error *error)
{
	const struct json *salt = json_get(body, "cache_salt");

	if (salt == NULL || json_is(salt, JSON_NULL))
		return 0;
	if (!json_is(salt, JSON_STRING) || salt->string.len == 0 || salt->string.len > SALT_BYTES_MAX || strpbrk(salt->string.text, "@/\\") != NULL)
		return request_refuse(ask, 400, NULL, "cache_salt", error, "Parameter 'cache_salt' must be a non-empty string if provided.");
	ask->cache_salt = random_hash(1, (struct bytes){(const uint8_t *)salt->string.text, salt->string.len});
	return 0;
}

/* The errors of the shared readers begin with the field: that is their place here. */
static int wrap_fault(struct arena *arena, struct ask *ask, struct error *error)
{
	char *message = arena_text(arena, error->message);
	size_t len = strcspn(message, ":");
	char *name = arena_text_len(arena, message, len);

	if (ask->refusal.code != NULL || ask->refusal.param != NULL)
		return ERR_INVALID;
	*error = (struct error){.code = ERR_NONE};
	return request_refuse(ask, 400, "Bad Request", name, error, "1 validation error:\n  {'type': 'value_error', 'loc': 'body.%s', 'msg': '%s'}",
		name, message[len] == ':' ? message + len + 2 : message);
}

static int read_ask(struct sim *sim, const struct http_connection *connection, const struct json *body, struct arena *arena,
	struct ask *ask, struct error *error)
{
	const struct json *stop = json_get(body, "stop");

	if (strncasecmp(connection->content_type, "application/json", 16) != 0)
		return request_refuse(ask, 400, "Bad Request", NULL, error, "Unsupported Media Type: Only 'application/json' is allowed");
	if (!json_is(body, JSON_OBJECT))
		return refuse_type(ask, "body", "dict", error);
	ask->model = json_get_text(body, "model") != NULL ? json_get_text(body, "model") : sim->script->model;
	ask->request_id = json_get_text(body, "request_id");
	ask->wants_token_ids = json_get_boolean(body, "return_token_ids", false);
	ask->wants_prompt_text = json_get_boolean(body, "return_prompt_text", false);
	ask->keeps_stop = json_get_boolean(body, "include_stop_str_in_output", false);
	ask->cache_off = json_is(json_get(body, "prompt_logprobs"), JSON_NUMBER);
	ask->no_reasoning = request_wants_no_reasoning(body) || !json_get_boolean(body, "include_reasoning", true);
	if (json_is(stop, JSON_STRING) && stop->string.len == 0)
		return request_refuse(ask, 400, NULL, "stop", error, "stop cannot contain an empty string.");
	if (read_ranges(body, ask, error) != 0 || read_forms(body, error) != 0 || read_salt(body, ask, error) != 0 ||
	    request_read_stream(body, false, ask, error) != 0 ||
	    request_read_seed(body, "seed", ask, error) != 0 ||
	    request_read_messages(json_get(body, "messages"), arena, ask, error) != 0 ||
	    request_read_temperature(body, 1, ask, error) != 0 ||
	    request_read_limit(body, "max_tokens", ask, error) != 0 ||
	    request_read_limit(body, "max_completion_tokens", ask, error) != 0 ||
	    request_read_stops(stop, ASK_STOPS_MAX, ask, error) != 0 ||
	    request_read_format(json_get(body, "response_format"), ask, error) != 0 ||
	    read_structured(json_get(body, "structured_outputs"), arena, ask, error) != 0)
		return wrap_fault(arena, ask, error);
	/* -1 is no seed, so the server draws one. */
	ask->seed_ignored = !json_is(json_get(body, "seed"), JSON_NUMBER) || json_get(body, "seed")->number == -1;
	ask->include_usage = ask->include_usage || sim->script->options.force_include_usage;
	log_ignored(body);
	return 0;
}

static int admit(struct sim *sim, struct arena *arena, struct ask *ask, struct error *error)
{
	uint64_t context = (uint64_t)sim->script->options.context_tokens, prompt = token_count(ask->prompt);
	uint64_t wanted = ask->tokens_max > 0 ? ask->tokens_max : 1;

	(void)arena;
	if (strcmp(ask->model, sim->script->model) != 0)
		return request_refuse(ask, 404, NULL, "model", error, "The model `%.200s` does not exist.", ask->model);
	if (sim->script->options.engine_dead)
		return request_refuse(ask, 500, NULL, NULL, error, "EngineCore encountered an issue. See stack trace (above) for the root cause.");
	if (prompt + wanted > context)
		return request_refuse(ask, 400, NULL, "input_tokens", error, "You passed %" PRIu64 " input tokens and requested %" PRIu64
			" output tokens. However, the model's context length is only %" PRIu64 " tokens, resulting in a maximum input length of %" PRIu64
			" tokens. Please reduce the length of the input prompt.", prompt, wanted, context, context > wanted ? context - wanted : 0);
	if (ask->tokens_max == 0)
		ask->tokens_max = context - prompt;
	ask->state = runtime_model(&sim->runtime, sim->script->model);
	return 0;
}

/* ---- Errors ---- */

static void print_error(const struct refusal *refusal, const char *message, struct buffer *out)
{
	const char *type = refusal->code;

	if (refusal->status == 401) {
		buffer_add_text(out, "{\"error\":\"Unauthorized\"}");
		return;
	}
	if (type == NULL) {
		switch (refusal->status) {
		case 400: type = "BadRequestError"; break;
		case 404: type = "NotFoundError"; break;
		case 422: type = "UnprocessableEntityError"; break;
		case 500: type = "InternalServerError"; break;
		case 501: type = "NotImplementedError"; break;
		default: type = http_status_str((enum http_status)refusal->status); break;
		}
	}
	buffer_add_text(out, "{\"error\":{\"message\":");
	print_text(message, out);
	buffer_printf(out, ",\"type\":\"%s\",\"param\":", type);
	if (refusal->param != NULL)
		print_text(refusal->param, out);
	else
		buffer_add_text(out, "null");
	buffer_printf(out, ",\"code\":%d}}", refusal->status);
}

static void print_error_event(const struct reply *reply, struct buffer *out)
{
	(void)reply;
	buffer_add_text(out, "data: ");
	print_error(&(struct refusal){.status = 500}, "EngineCore encountered an issue. See stack trace (above) for the root cause.", out);
	buffer_add_text(out, "\n\n");
}

/* ---- The answer ---- */

/* Of the configuration, as far as the simulator has one: other options, another fingerprint. */
static void print_fingerprint(const struct script *script, struct buffer *out)
{
	const struct kind_options *options = &script->options;
	uint64_t hash = random_hash((uint64_t)options->context_tokens * 2 + options->prompt_cache, bytes_text(script->model));

	if (strcmp(options->fingerprint_mode, "none") == 0)
		buffer_add_text(out, "null");
	else if (strcmp(options->fingerprint_mode, "custom") == 0)
		print_text(options->fingerprint_value != NULL ? options->fingerprint_value : "", out);
	else
		buffer_printf(out, "\"vllm-%s-%08" PRIx64 "\"", options->version, hash >> 32);
}

static void print_prefix(const struct reply *reply, const char *object, struct buffer *out)
{
	struct buffer id;

	buffer_init(&id, HTTP_BODY_MAX + PREFIX_BYTES_MAX);
	if (reply->ask->request_id != NULL)
		buffer_printf(&id, "chatcmpl-%s", reply->ask->request_id);
	else
		buffer_printf(&id, "chatcmpl-%016" PRIx64, random_draw(0, reply->ordinal, RANDOM_ANSWER, 0));
	buffer_add_text(out, "{\"id\":");
	print_text(buffer_text(&id), out);
	buffer_printf(out, ",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", object, CREATED_BASE + reply->ordinal);
	print_text(reply->model, out);
	buffer_add_text(out, ",\"choices\":[");
	buffer_close(&id);
}

static void prepare(struct reply *reply, struct arena *arena)
{
	print_prefix_once(reply, arena, print_prefix);
}

static void print_counts(const struct reply *reply, uint64_t completion, struct buffer *out)
{
	buffer_printf(out, "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64,
		reply->prompt_tokens, reply->prompt_tokens + completion, completion);
	if (reply->script->options.prompt_tokens_details)
		buffer_printf(out, ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64 "}", reply->cached_tokens);
	buffer_add_char(out, '}');
}

static void print_optional_ids(bool wanted, struct bytes text, struct buffer *out)
{
	if (wanted)
		print_token_ids(text, out);
	else
		buffer_add_text(out, "null");
}

static void print_stop_reason(const struct reply *reply, struct buffer *out)
{
	buffer_add_text(out, ",\"stop_reason\":");
	if (reply->stop_hit != NULL)
		print_text(reply->stop_hit, out);
	else
		buffer_add_text(out, "null");
}

static void print_request_metrics(const struct reply *reply, struct buffer *out)
{
	if (reply->script->options.request_metrics)
		buffer_printf(out, "{\"time_to_first_token_ms\":%" PRIu64 ",\"generation_time_ms\":%" PRIu64 ",\"queue_time_ms\":0,\"mean_itl_ms\":10,"
			"\"tokens_per_second\":100}", reply->prompt_tokens, (reply_tokens(reply)) * 10);
	else
		buffer_add_text(out, "null");
}

static void print_whole(const struct reply *reply, struct buffer *out)
{
	print_prefix(reply, "chat.completion", out);
	buffer_add_text(out, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
	if (reply->text.len == 0 && reply->reasoning.len > 0)
		buffer_add_text(out, "null");
	else
		print_bytes(reply->text, out);
	buffer_add_text(out, ",\"refusal\":null,\"annotations\":null,\"audio\":null,\"function_call\":null,");
	print_text(reply->script->options.reasoning_field, out);
	buffer_add_char(out, ':');
	if (reply->reasoning.len > 0)
		print_bytes(reply->reasoning, out);
	else
		buffer_add_text(out, "null");
	buffer_printf(out, "},\"logprobs\":null,\"finish_reason\":\"%s\"", reply->finish);
	print_stop_reason(reply, out);
	buffer_add_text(out, ",\"token_ids\":");
	print_optional_ids(reply->ask->wants_token_ids, reply->text, out);
	buffer_add_text(out, ",\"routed_experts\":null}],\"service_tier\":null,\"system_fingerprint\":");
	print_fingerprint(reply->script, out);
	buffer_add_char(out, ',');
	print_counts(reply, reply_tokens(reply), out);
	buffer_add_text(out, ",\"prompt_logprobs\":null,\"prompt_token_ids\":");
	print_optional_ids(reply->ask->wants_token_ids, reply->ask->prompt, out);
	buffer_add_text(out, ",\"prompt_text\":");
	if (reply->ask->wants_prompt_text)
		print_bytes(reply->ask->prompt, out);
	else
		buffer_add_text(out, "null");
	buffer_add_text(out, ",\"kv_transfer_params\":null,\"ec_transfer_params\":null,\"metrics\":");
	print_request_metrics(reply, out);
	buffer_add_char(out, '}');
}

/* Behind the choices of a chunk. */
static void print_chunk_rest(const struct reply *reply, bool last, struct buffer *out)
{
	if (reply->script->options.force_include_usage) {
		buffer_add_char(out, ',');
		print_counts(reply, reply->sent_tokens, out);
	}
	if (last && !reply->ask->include_usage) {
		buffer_add_text(out, ",\"system_fingerprint\":");
		print_fingerprint(reply->script, out);
	}
	buffer_add_text(out, "}\n\n");
}

static void print_start(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]");
	if (reply->ask->wants_token_ids) {
		buffer_add_text(out, ",\"prompt_token_ids\":");
		print_token_ids(reply->ask->prompt, out);
	}
	if (reply->ask->wants_prompt_text) {
		buffer_add_text(out, ",\"prompt_text\":");
		print_bytes(reply->ask->prompt, out);
	}
	print_chunk_rest(reply, false, out);
}

/* The last piece of the text tells the end. */
static void print_piece(const struct reply *reply, bool reasoning, struct bytes piece, struct buffer *out)
{
	bool last = !reasoning && piece.data + piece.len == reply->text.data + reply->text.len && !reply->breaks_off;

	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "{\"index\":0,\"delta\":{");
	print_text(reasoning ? reply->script->options.reasoning_field : "content", out);
	buffer_add_char(out, ':');
	print_bytes(piece, out);
	buffer_add_text(out, "},\"logprobs\":null,\"finish_reason\":");
	if (last) {
		print_text(reply->finish, out);
		print_stop_reason(reply, out);
	} else {
		buffer_add_text(out, "null");
	}
	buffer_add_text(out, ",\"token_ids\":");
	print_optional_ids(reply->ask->wants_token_ids, piece, out);
	buffer_add_text(out, "}]");
	print_chunk_rest(reply, last, out);
}

static void print_finish(const struct reply *reply, struct buffer *out)
{
	if (reply->text.len > 0)
		return;
	buffer_add_bytes(out, reply->prefix);
	buffer_printf(out, "{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":null,\"finish_reason\":\"%s\"", reply->finish);
	print_stop_reason(reply, out);
	buffer_add_text(out, ",\"token_ids\":null}]");
	print_chunk_rest(reply, true, out);
}

static void print_usage(const struct reply *reply, struct buffer *out)
{
	buffer_add_bytes(out, reply->prefix);
	buffer_add_text(out, "],");
	print_counts(reply, reply_tokens(reply), out);
	buffer_add_text(out, ",\"system_fingerprint\":");
	print_fingerprint(reply->script, out);
	buffer_add_text(out, "}\n\n");
}

/* ---- The other paths ---- */

/* `created` and `permission` are made at each call, so they differ each time. */
static void print_models(const struct sim *sim, struct buffer *out)
{
	uint64_t call = sim->product.replies;

	buffer_add_text(out, "{\"object\":\"list\",\"data\":[{\"id\":");
	print_text(sim->script->model, out);
	buffer_printf(out, ",\"object\":\"model\",\"created\":%" PRIu64 ",\"owned_by\":\"vllm\",\"root\":\"/models/simulated\",\"parent\":null,"
		"\"max_model_len\":%d,\"permission\":[{\"id\":\"modelperm-%016" PRIx64 "\",\"object\":\"model_permission\",\"created\":%" PRIu64
		",\"allow_create_engine\":false,\"allow_sampling\":true,\"allow_logprobs\":true,\"allow_search_indices\":false,\"allow_view\":true,"
		"\"allow_fine_tuning\":false,\"organization\":\"*\",\"group\":null,\"is_blocking\":false}]}]}", CREATED_BASE + call,
		sim->script->options.context_tokens, random_draw(1, call, RANDOM_ANSWER, 0), CREATED_BASE + call);
}

static bool is_batch_invariant(void)
{
	const char *value = getenv("VLLM_BATCH_INVARIANT");

	return value != NULL && strcmp(value, "1") == 0;
}

static void print_server_info(const struct sim *sim, bool json, struct buffer *out)
{
	const struct kind_options *options = &sim->script->options;
	struct buffer config;

	buffer_init(&config, PAGE_BYTES_MAX);
	buffer_add_text(&config, "{\"model_config\":{\"model\":\"/models/simulated\",\"served_model_name\":");
	print_text(sim->script->model, &config);
	buffer_printf(&config, ",\"max_model_len\":%d,\"dtype\":\"bfloat16\",\"quantization\":null,\"seed\":0,\"revision\":null},"
		"\"cache_config\":{\"enable_prefix_caching\":%s,\"cache_dtype\":\"auto\",\"mamba_cache_mode\":\"none\"},"
		"\"scheduler_config\":{\"max_num_seqs\":%d,\"max_num_batched_tokens\":8192},\"speculative_config\":null}",
		options->context_tokens, options->prompt_cache ? "true" : "false", options->slots);
	buffer_add_text(out, "{\"vllm_config\":");
	if (json)
		buffer_add_bytes(out, buffer_bytes(&config));
	else
		print_text(buffer_text(&config), out);
	buffer_printf(out, ",\"vllm_env\":{\"VLLM_BATCH_INVARIANT\":%s,\"VLLM_SERVER_DEV_MODE\":true},\"system_env\":{\"os\":\"Linux\"}}",
		is_batch_invariant() ? "true" : "false");
	buffer_close(&config);
}

static void print_metric(const char *name, const char *label, const struct sim *sim, uint64_t value, struct buffer *out)
{
	buffer_printf(out, "vllm:%s{engine=\"0\",%smodel_name=", name, label);
	print_text(sim->script->model, out);
	buffer_printf(out, "} %" PRIu64 "\n", value);
}

static void serve_metrics(const struct sim *sim, struct http_connection *connection)
{
	const struct runtime *runtime = &sim->runtime;
	struct buffer page;

	buffer_init(&page, PAGE_BYTES_MAX);
	print_metric("num_requests_running", "", sim, runtime->running, &page);
	print_metric("num_requests_waiting", "", sim, runtime->waiting, &page);
	print_metric("kv_cache_usage_perc", "", sim, 0, &page);
	print_metric("prefix_cache_queries_total", "", sim, runtime->cache_queries, &page);
	print_metric("prefix_cache_hits_total", "", sim, runtime->cached_tokens, &page);
	print_metric("num_preemptions_total", "", sim, 0, &page);
	print_metric("prompt_tokens_total", "", sim, runtime->prompt_tokens, &page);
	print_metric("generation_tokens_total", "", sim, runtime->text_tokens, &page);
	print_metric("request_success_total", "finished_reason=\"stop\",", sim, runtime->finished_stop, &page);
	print_metric("request_success_total", "finished_reason=\"length\",", sim, runtime->finished_length, &page);
	print_metric("request_success_total", "finished_reason=\"abort\",", sim, runtime->aborted, &page);
	print_metric("cache_config_info", sim->script->options.prompt_cache ? "enable_prefix_caching=\"True\"," : "enable_prefix_caching=\"False\",",
		sim, 1, &page);
	http_reply(connection, 200, "text/plain; version=0.0.4; charset=utf-8", "", buffer_bytes(&page));
	buffer_close(&page);
}

static void serve_tokenize(struct sim *sim, struct http_connection *connection)
{
	struct error error = {.code = ERR_NONE};
	struct ask ask = {.model = NULL};
	struct arena arena;
	const struct json *body;
	struct buffer page;
	int result;

	arena_init(&arena);
	body = request_parse(sim, connection, &arena);
	if (body == NULL)
		goto end;
	result = json_get(body, "messages") != NULL ? request_read_messages(json_get(body, "messages"), &arena, &ask, &error) :
		request_read_prompt(json_get(body, "prompt"), &ask, &error);
	if (result != 0) {
		reply_refusal(sim, connection, 400, NULL, error.message);
		goto end;
	}
	buffer_init(&page, 4 * HTTP_BODY_MAX);
	buffer_printf(&page, "{\"count\":%" PRIu64 ",\"max_model_len\":%d,\"tokens\":", token_count(ask.prompt), sim->script->options.context_tokens);
	print_token_ids(ask.prompt, &page);
	buffer_add_text(&page, ",\"token_strs\":null}");
	reply_json(connection, 200, &page);
end:
	arena_close(&arena);
}

static void serve(struct sim *sim, struct http_connection *connection)
{
	const struct kind_options *options = &sim->script->options;
	struct buffer page;

	buffer_init(&page, 2 * PAGE_BYTES_MAX);
	if (path_is(connection, HTTP_GET, "/health")) {
		http_reply(connection, options->engine_dead ? 503 : 200, "application/json", "", BYTES_OF(""));
	} else if (path_is(connection, HTTP_GET, "/version")) {
		buffer_add_text(&page, "{\"version\":");
		print_text(options->version, &page);
		buffer_add_char(&page, '}');
		http_reply(connection, 200, "application/json", "", buffer_bytes(&page));
	} else if (path_is(connection, HTTP_GET, "/v1/models")) {
		print_models(sim, &page);
		http_reply(connection, 200, "application/json", "", buffer_bytes(&page));
	} else if (path_is(connection, HTTP_GET, "/metrics")) {
		serve_metrics(sim, connection);
	} else if (path_is(connection, HTTP_POST, "/tokenize")) {
		serve_tokenize(sim, connection);
	} else if (options->server_info && path_is(connection, HTTP_GET, "/server_info")) {
		print_server_info(sim, query_is(connection, "config_format", "json"), &page);
		http_reply(connection, 200, "application/json", "", buffer_bytes(&page));
	} else if (options->server_info && path_is(connection, HTTP_POST, "/reset_prefix_cache")) {
		runtime_flush_cache(&sim->runtime);
		http_reply(connection, 200, "application/json", "", BYTES_OF(""));
	} else if (options->tokenizer_info && path_is(connection, HTTP_GET, "/tokenizer_info")) {
		http_reply(connection, 200, "application/json", "", BYTES_OF("{\"tokenizer_class\":\"SimulatedTokenizer\","
			"\"chat_template\":\"{% for m in messages %}{{ m.content }}{% endfor %}\"}"));
	} else if (options->load_tracking && path_is(connection, HTTP_GET, "/load")) {
		buffer_printf(&page, "{\"server_load\":%" PRIu64 "}", sim->runtime.running + sim->runtime.waiting);
		http_reply(connection, 200, "application/json", "", buffer_bytes(&page));
	} else {
		int status = bytes_equal_text(buffer_bytes(&connection->path), "/v1/chat/completions") ? 405 : 404;
		const char *word = http_status_str((enum http_status)status);

		reply_refusal(sim, connection, status, word, word);
	}
	buffer_close(&page);
}

static const struct dialect chat_dialect = {
	.stream_type = "text/event-stream; charset=utf-8",
	.event_end = "\n\n",
	.ping = ": keep-alive\n\n",
	.read_ask = read_ask,
	.print_error = print_error,
	.malformed = "Bad Request",
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

const struct kind vllm_kind = {
	.name = "vllm",
	.bit = KIND_VLLM,
	.options = {.prompt_cache = true, .loaded = true, .slots = SEQUENCES_MAX, .context_tokens = 32768, .idle_ms = IDLE_MS, .version = "0.29.0",
		.reasoning_field = "reasoning", .fingerprint_mode = "full"},
	.refuses_while_starting = true,
	.dialect_of = dialect_of,
	.serve = serve,
	.admit = admit,
	.print_error = print_error,
};
