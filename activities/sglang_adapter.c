/* The adapter of SGLang (runtimes.md 7). Pure. Start at sglang_adapter. */
#include <string.h>

#include "activities/chat_wire.h"

static const struct sampling_field sampling[] = {
	{"temperature", "temperature", "1"},
	{"topP", "top_p", "1", .to = 1, .above = true},
	{"topK", "top_k", "0"},
	{"minP", "min_p", "0"},
	{"seed", "seed", "0"},
	{"maxTokens", "max_tokens", NULL}, /* none: to the end of the context */
	{"minTokens", "min_tokens", "0"},
	{"stop", "stop", "[]"},
	{"stopTokenIds", "stop_token_ids", NULL},
	{"stopRegex", "stop_regex", NULL},
	{"keepStop", "no_stop_trim", "false"},
	{"ignoreEos", "ignore_eos", "false"},
	{"presencePenalty", "presence_penalty", "0", .from = -2, .to = 2},
	{"frequencyPenalty", "frequency_penalty", "0", .from = -2, .to = 2},
	{"repetitionPenalty", "repetition_penalty", "1", .to = 2, .above = true},
	{"logitBias", "logit_bias", NULL},
	{"reasoningEffort", "reasoning_effort", NULL},
	{"templateArguments", "chat_template_kwargs", NULL},
	{NULL, NULL, NULL},
};

static const char *refuse_sampling(const char *name, const struct json *value)
{
	/* A share of the most is its own: others know words alone. */
	if (strcmp(name, "reasoningEffort") == 0)
		return json_is(value, JSON_NUMBER) ? NULL : chat_refuse_effort(value);
	return chat_refuse_sampling(name, value);
}

static struct json *make_request(struct arena *arena, const struct inference_request *request)
{
	struct json *body = chat_make_request(arena, request, sampling);

	chat_map_top_k(arena, body, -1);
	chat_set_schema(arena, body, request);
	return body;
}

/* All of its arguments, flattened, as they are in force. */
static void read_server_info(struct bytes body, struct runtime_facts *facts)
{
	static const char source[] = "GET /server_info";
	static const char *const cache[] = {"disable_radix_cache", "kv_cache_dtype", "chunked_prefill_size", "page_size", "mem_fraction_static", NULL};
	static const char *const batch[] = {"max_running_requests", "max_prefill_tokens", "max_total_tokens", NULL};
	static const char *const speculation[] = {"speculative_algorithm", "speculative_num_steps", "speculative_num_draft_tokens", NULL};
	static const char *const kernels[] = {"attention_backend", "decode_attention_backend", "prefill_attention_backend", "sampling_backend",
					      "moe_runner_backend", NULL};
	static const char *const argv[] = {"model_path", "tokenizer_path", "revision", "dtype", "quantization", "context_length", "attention_backend",
					   "random_seed", "enable_deterministic_inference", "disable_radix_cache", "tp_size", "dp_size", "pp_size", "ep_size",
					   "max_running_requests", "sampling_defaults", "reasoning_parser", "tool_call_parser", "chat_template", "lora_paths",
					   "grammar_backend", "speculative_algorithm", "weight_version", "served_model_name", "kv_cache_dtype", NULL};
	const struct json *root = probe_json(body, facts);

	if (json_get_text(root, "model_path") == NULL && json_get_text(root, "version") == NULL)
		return;
	facts_set_copy(facts, "A.runtime_version", root, "version", source);
	facts_set_copy(facts, "B.served_name", root, "model_path", source);
	facts_set_copy(facts, "B.revision", root, "revision", source);
	facts_set_copy(facts, "B.quantisation", root, "quantization", source);
	facts_set_copy(facts, "B.adapters", root, "lora_paths", source);
	facts_set_copy(facts, "B.weight_version", root, "weight_version", source);
	facts_set_members(facts, "C.arguments", root, argv, source);
	facts_set_copy(facts, "C.dtype", root, "dtype", source);
	facts_set_copy(facts, "C.parallel", root, "max_running_requests", source);
	facts_set_members(facts, "C.batch_sizes", root, batch, source);
	facts_set_members(facts, "C.cache_flags", root, cache, source);
	facts_set_members(facts, "C.speculation", root, speculation, source);
	facts_set_copy(facts, "C.determinism_switch", root, "enable_deterministic_inference", source);
	facts_set_members(facts, "C.kernels", root, kernels, source);
	facts_set_copy(facts, "C.structured_backend", root, "grammar_backend", source);
}

static void read_model_info(struct bytes body, struct runtime_facts *facts)
{
	static const char source[] = "GET /model_info";
	const struct json *root = probe_json(body, facts);

	facts_set_copy(facts, "B.served_name", root, "model_path", source);
	facts_set_copy(facts, "B.weight_version", root, "weight_version", source);
	facts_set_copy(facts, "C.sampling_defaults", root, "preferred_sampling_params", source);
}

const struct runtime_adapter sglang_adapter = {
	.kind = "sglang",
	.request_path = CHAT_PATH,
	.has_end_marker = true,
	.probes =
		{
			{.path = "/health"}, /* 503 while it starts; /health_generate would make it work */
			{.path = "/v1/models", .read = chat_read_models},
			{.path = "/get_server_info", .read = read_server_info}, /* the names of older versions */
			{.path = "/server_info", .read = read_server_info},
			{.path = "/get_model_info", .read = read_model_info},
			{.path = "/model_info", .read = read_model_info},
		},
	.bypass = {.name = "flush_cache", .path = "/flush_cache"}, /* it knows a salt as well, but only newer ones do */
	.life = {.path = "/health_generate", .generates = true, .within_ms = 30 * 1000}, /* it waits for a token itself before it says 503 */
	.sampling = sampling,
	.refuse_sampling = refuse_sampling,
	.make_request = make_request,
	.read_event = chat_read_event,
	.read_whole = chat_read_whole,
	.read_failure = answer_read_failure,
};
