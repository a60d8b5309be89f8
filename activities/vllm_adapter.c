/* The adapter of vLLM (runtimes.md 3). Pure. Start at vllm_adapter. */
#include <stdio.h>
#include <string.h>

#include "activities/chat_wire.h"
#include "workflow/base/check.h"

/* What a request leaves out comes from the model's generation_config.json, which nobody sees over HTTP. */
static const struct sampling_field sampling[] = {
	{"temperature", "temperature", "1", .to = 2},
	{"topP", "top_p", "1", .to = 1, .above = true},
	{"topK", "top_k", "0"},
	{"minP", "min_p", "0"},
	{"seed", "seed", "0"},
	{"maxTokens", "max_tokens", NULL}, /* none: to the end of the context */
	{"minTokens", "min_tokens", "0"},
	{"stop", "stop", "[]"},
	{"stopTokenIds", "stop_token_ids", NULL},
	{"keepStop", "include_stop_str_in_output", "false"},
	{"ignoreEos", "ignore_eos", "false"},
	{"presencePenalty", "presence_penalty", "0", .from = -2, .to = 2},
	{"frequencyPenalty", "frequency_penalty", "0", .from = -2, .to = 2},
	{"repetitionPenalty", "repetition_penalty", "1"},
	{"logitBias", "logit_bias", NULL},
	{"badWords", "bad_words", NULL},
	{"allowedTokenIds", "allowed_token_ids", NULL},
	{"reasoningEffort", "reasoning_effort", NULL},
	{"reasoningBudget", "thinking_token_budget", NULL}, /* refused where the server has no reasoning parser */
	{"includeReasoning", "include_reasoning", "true"},
	{"templateArguments", "chat_template_kwargs", NULL},
	{NULL, NULL, NULL},
};

/* What changes answers and is told by no path but /server_info, which is there for developers alone (runtimes.md 3b). Kernels that were asked for
 * are no kernels that were chosen: those are in the log. */
static const struct launch_flag flags[] = {
	{"B.revision", NULL, {"--revision"}, NULL, NULL},
	{"B.tokenizer_revision", NULL, {"--tokenizer-revision"}, NULL, NULL},
	{"B.quantisation", NULL, {"-q", "--quantization"}, NULL, NULL},
	{"B.adapters", NULL, {"--lora-modules"}, NULL, NULL},
	{"B.chat_template", NULL, {"--chat-template"}, NULL, NULL},
	{"C.dtype", NULL, {"--dtype"}, NULL, NULL},
	{"C.seed", NULL, {"--seed"}, NULL, NULL},
	{"C.batch_sizes", "max_num_seqs", {"--max-num-seqs"}, NULL, NULL},
	{"C.batch_sizes", "max_num_batched_tokens", {"--max-num-batched-tokens"}, NULL, NULL},
	{"C.cache_flags", "enable_prefix_caching", {"--enable-prefix-caching"}, "--no-enable-prefix-caching", NULL},
	{"C.cache_flags", "cache_dtype", {"--kv-cache-dtype"}, NULL, NULL},
	{"C.cache_flags", "mamba_cache_mode", {"--mamba-cache-mode"}, NULL, NULL},
	{"C.cache_flags", "mamba_ssm_cache_dtype", {"--mamba-ssm-cache-dtype"}, NULL, NULL},
	{"C.cache_flags", "mamba_cache_stochastic_rounding", {"--enable-mamba-cache-stochastic-rounding"}, "--no-enable-mamba-cache-stochastic-rounding", NULL},
	{"C.cache_flags", "mamba_cache_philox_rounds", {"--mamba-cache-philox-rounds"}, NULL, NULL},
	{"C.speculation", NULL, {"--speculative-config"}, NULL, NULL},
	{"C.structured_backend", NULL, {"--structured-outputs-config.backend"}, NULL, NULL},
	{"C.sampling_defaults", "generation_config", {"--generation-config"}, NULL, NULL},
	{"C.sampling_defaults", "override_generation_config", {"--override-generation-config"}, NULL, NULL},
	{"C.sampling_defaults", "chat_template_kwargs", {"--default-chat-template-kwargs"}, NULL, NULL},
	{"C.backends", "attention", {"--attention-backend"}, NULL, NULL},
	{"C.backends", "moe", {"--moe-backend"}, NULL, NULL},
	{"C.backends", "linear", {"--linear-backend"}, NULL, NULL},
	{"C.backends", "mamba", {"--mamba-backend"}, NULL, NULL},
	{"C.execution", "enforce_eager", {"--enforce-eager"}, "--no-enforce-eager", NULL},
	{"C.execution", "async_scheduling", {"--async-scheduling"}, "--no-async-scheduling", NULL},
	{"C.parsers", "reasoning", {"--reasoning-parser"}, NULL, NULL},
	{"C.parsers", "tool_call", {"--tool-call-parser"}, NULL, NULL},
	{"C.fingerprint", "mode", {"--fingerprint-mode"}, NULL, NULL},
	{"C.fingerprint", "value", {"--fingerprint-value"}, NULL, NULL},
	{NULL, NULL, {NULL}, NULL, NULL},
};

static const char *refuse_sampling(const char *name, const struct json *value)
{
	if (strcmp(name, "seed") == 0)
		return value->number == -1 ? "takes -1 for a random seed; name another one" : NULL;
	return strcmp(name, "reasoningEffort") == 0 ? chat_refuse_effort(value) : chat_refuse_sampling(name, value);
}

static struct json *make_request(struct arena *arena, const struct inference_request *request)
{
	struct json *body = chat_make_request(arena, request, sampling);

	chat_map_top_k(arena, body, 0);
	chat_list_texts(arena, body, "bad_words");
	chat_set_schema(arena, body, request);
	json_set_text(arena, body, "cache_salt", request->salt);
	return body;
}

/* ---- Counting ---- */

static struct json *make_count(struct arena *arena, const struct inference_request *request, const char *text)
{
	struct json *body = json_object(arena);

	(void)text;
	json_set_text(arena, body, "model", request->model);
	json_set(arena, body, "messages", json_copy(arena, request->messages));
	json_set_boolean(arena, body, "add_generation_prompt", true);
	chat_set_template_arguments(arena, body, request);
	return body;
}

static bool read_count(struct arena *arena, struct bytes body, const char **text, double *tokens)
{
	const struct json *root = json_parse(arena, body, JSON_ROUND_INTEGERS, NULL, NULL), *count = json_get(root, "count");

	(void)text;
	if (!json_is_integer(count) || count->number < 0)
		return false;
	*tokens = count->number;
	return true;
}

/* ---- Probes ---- */

/* The labels of a Prometheus line: NAME{a="x",b="y"} 1 */
static struct json *read_labels(struct arena *arena, const char *at)
{
	struct json *labels = json_object(arena);

	while (*at != '\0' && *at != '}' && *at != '\n') {
		size_t name_len = strcspn(at, "=}\n");
		const char *value = at + name_len + 2;
		size_t value_len;

		if (at[name_len] != '=' || at[name_len + 1] != '"')
			break;
		value_len = strcspn(value, "\"\n");
		if (value[value_len] != '"')
			break;
		if (utf8_valid((struct bytes){(const uint8_t *)at, name_len}, NULL) && utf8_valid((struct bytes){(const uint8_t *)value, value_len}, NULL))
			json_set_len(arena, labels, at, name_len, json_text_len(arena, value, value_len));
		at = value + value_len + 1;
		at += *at == ',';
	}
	return labels;
}

/* What is on by default shows here, whatever flags were given: vllm:cache_config_info is the cache's configuration in force. */
static void read_metrics(struct bytes body, struct runtime_facts *facts)
{
	static const char *const cache[] = {"enable_prefix_caching", "cache_dtype", "mamba_cache_mode", "mamba_cache_dtype", "mamba_ssm_cache_dtype",
					    "prefix_caching_hash_algo", "block_size", "kv_cache_memory_bytes", NULL};
	const char *text = arena_text_len(facts->arena, (const char *)body.data, body.len);
	const char *line = strstr(text, "vllm:cache_config_info{");

	if (line != NULL)
		facts_set_members(facts, "C.cache_flags", read_labels(facts->arena, strchr(line, '{') + 1), cache, "GET /metrics vllm:cache_config_info");
}

static const struct json *find_part(const struct json *config, const char *part)
{
	const struct json *found = json_get(config, part);

	return json_is(found, JSON_OBJECT) ? found : NULL;
}

/* Secrets are never stored. It leaves out names with KEY itself. */
static void set_env(struct runtime_facts *facts, const struct json *env, const char *source)
{
	static const char *const secret[] = {"KEY", "TOKEN", "SECRET", "PASSWORD"};
	struct json *kept = json_object(facts->arena);

	for (size_t i = 0; json_is(env, JSON_OBJECT) && i < json_count(env); i++) {
		const struct json_member *member = &env->object.members[i];
		bool is_secret = false;

		for (size_t j = 0; j < COUNT_OF(secret); j++)
			is_secret |= strcasestr(member->name, secret[j]) != NULL;
		if (!is_secret)
			json_set_len(facts->arena, kept, member->name, member->name_len, json_copy(facts->arena, member->value));
	}
	if (json_count(kept) > 0)
		facts_set(facts, "C.env", kept, source);
}

/* Only where VLLM_SERVER_DEV_MODE is on. */
static void read_server_info(struct bytes body, struct runtime_facts *facts)
{
	static const char source[] = "GET /server_info";
	static const char *const cache[] = {"enable_prefix_caching", "cache_dtype", "mamba_cache_mode", "mamba_ssm_cache_dtype", NULL};
	static const char *const batch[] = {"max_num_seqs", "max_num_batched_tokens", NULL};
	const struct json *root = probe_json(body, facts), *config = json_get(root, "vllm_config"), *env = json_get(root, "vllm_env");
	const struct json *model = find_part(config, "model_config"), *scheduler = find_part(config, "scheduler_config");

	facts_set_copy(facts, "B.quantisation", model, "quantization", source);
	facts_set_copy(facts, "B.revision", model, "revision", source);
	facts_set_copy(facts, "C.dtype", model, "dtype", source);
	facts_set_copy(facts, "C.context_length", model, "max_model_len", source);
	facts_set_members(facts, "C.cache_flags", find_part(config, "cache_config"), cache, source);
	facts_set_members(facts, "C.batch_sizes", scheduler, batch, source);
	facts_set_copy(facts, "C.parallel", scheduler, "max_num_seqs", source);
	facts_set_copy(facts, "C.speculation", config, "speculative_config", source);
	facts_set_copy(facts, "C.structured_backend", find_part(config, "structured_outputs_config"), "backend", source);
	facts_set_copy(facts, "C.determinism_switch", env, "VLLM_BATCH_INVARIANT", source);
	set_env(facts, env, source);
}

static void read_tokenizer(struct bytes body, struct runtime_facts *facts)
{
	facts_set_hash(facts, "B.chat_template_sha256", json_get_text(probe_json(body, facts), "chat_template"), "GET /tokenizer_info");
}

const struct runtime_adapter vllm_adapter = {
	.kind = "vllm",
	.request_path = CHAT_PATH,
	.has_end_marker = true,
	.probes =
		{
			{.path = "/health"}, /* 503: the engine is dead */
			{.path = "/v1/models", .read = chat_read_models},
			{.path = "/version", .read = chat_read_version},
			{.path = "/metrics", .read = read_metrics},
			{.path = "/server_info?config_format=json", .read = read_server_info},
			{.path = "/tokenizer_info", .read = read_tokenizer},
		},
	.count = {{.path = "/tokenize", .make_body = make_count, .read = read_count}},
	.bypass = {.name = "cache_salt", .is_salted = true},
	.life = {.path = "/health", .within_ms = 5 * 1000},
	.flags = flags,
	.sampling = sampling,
	.refuse_sampling = refuse_sampling,
	.make_request = make_request,
	.read_event = chat_read_event,
	.read_whole = chat_read_whole,
	.read_failure = answer_read_failure,
};
