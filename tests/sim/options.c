/* Reads the options of a kind. Loop thread. Start at the table. */
#include "tests/sim/options.h"

#include <stddef.h>
#include <string.h>

#include "workflow/base/check.h"

enum option_type { OPTION_BOOLEAN, OPTION_INTEGER, OPTION_TEXT, OPTION_TEXTS };

struct option {
	const char *name;
	enum option_type type;
	size_t offset;
	unsigned kinds;
	int min, max;
};

#define BOOLEAN(name, field, kinds) {name, OPTION_BOOLEAN, offsetof(struct kind_options, field), kinds, 0, 0}
#define INTEGER(name, field, kinds, min, max) {name, OPTION_INTEGER, offsetof(struct kind_options, field), kinds, min, max}
#define TEXT(name, field, kinds) {name, OPTION_TEXT, offsetof(struct kind_options, field), kinds, 0, 0}

enum { DAY_MS = 24 * 60 * 60 * 1000, AT_ONCE_MAX = 4096 };

static const struct option table[] = {
	BOOLEAN("ignoreStream", ignore_stream, KIND_ALL),
	BOOLEAN("noDone", no_done, KIND_ALL),
	BOOLEAN("keepsGenerating", keeps_generating, KIND_ALL),
	INTEGER("slots", slots, KIND_ALL, 0, AT_ONCE_MAX),
	INTEGER("idleMs", idle_ms, KIND_ALL, 0, DAY_MS),
	BOOLEAN("plainSchemas", plain_schemas, KIND_OPENAI),
	BOOLEAN("noSchemas", no_schemas, KIND_OPENAI),
	BOOLEAN("noFormats", no_formats, KIND_OPENAI),
	TEXT("wrongModel", wrong_model, KIND_ALL),
	TEXT("apiKey", api_key, KIND_ALL),
	TEXT("version", version, KIND_REAL & ~KIND_TRANSFORMERS),
	INTEGER("contextTokens", context_tokens, KIND_REAL, 1, 1 << 30),
	BOOLEAN("promptCache", prompt_cache, KIND_REAL & ~KIND_TRANSFORMERS),
	{"models", OPTION_TEXTS, offsetof(struct kind_options, models), KIND_LOADERS, 0, OPTION_MODELS_MAX},
	BOOLEAN("loaded", loaded, KIND_LOADERS),
	BOOLEAN("jit", jit, KIND_LLAMACPP | KIND_LMSTUDIO),
	INTEGER("loadMs", load_ms, KIND_LOADERS, 0, DAY_MS),
	INTEGER("ttlMs", ttl_ms, KIND_OLLAMA | KIND_LMSTUDIO, 1, DAY_MS),
	BOOLEAN("metrics", metrics, KIND_LLAMACPP | KIND_SGLANG),
	BOOLEAN("router", router, KIND_LLAMACPP),
	BOOLEAN("slotsPage", slots_page, KIND_LLAMACPP),
	BOOLEAN("verboseAnswers", verbose_answers, KIND_LLAMACPP),
	TEXT("reasoningField", reasoning_field, KIND_VLLM | KIND_LMSTUDIO),
	TEXT("fingerprintMode", fingerprint_mode, KIND_VLLM),
	TEXT("fingerprintValue", fingerprint_value, KIND_VLLM),
	BOOLEAN("serverInfo", server_info, KIND_VLLM),
	BOOLEAN("tokenizerInfo", tokenizer_info, KIND_VLLM),
	BOOLEAN("loadTracking", load_tracking, KIND_VLLM),
	BOOLEAN("promptTokensDetails", prompt_tokens_details, KIND_VLLM),
	BOOLEAN("requestMetrics", request_metrics, KIND_VLLM),
	BOOLEAN("forceIncludeUsage", force_include_usage, KIND_VLLM),
	BOOLEAN("engineDead", engine_dead, KIND_VLLM | KIND_SGLANG),
	INTEGER("queueMax", queue_max, KIND_OLLAMA, 1, AT_ONCE_MAX),
	INTEGER("vramPercent", vram_percent, KIND_OLLAMA, 0, 100),
	TEXT("remoteHost", remote_host, KIND_OLLAMA),
	BOOLEAN("deterministic", deterministic, KIND_SGLANG),
	BOOLEAN("cacheReport", cache_report, KIND_SGLANG),
	TEXT("weightVersion", weight_version, KIND_SGLANG),
	BOOLEAN("v0", api_v0, KIND_LMSTUDIO),
	BOOLEAN("v1", api_v1, KIND_LMSTUDIO),
	TEXT("loadError", load_error, KIND_LOADERS),
	TEXT("format", format, KIND_LMSTUDIO),
	TEXT("revision", revision, KIND_TRANSFORMERS | KIND_OLLAMA),
};

static const struct option *find_option(const struct json_member *member, enum kind_bit kind)
{
	for (size_t i = 0; i < COUNT_OF(table); i++) {
		if (strcmp(table[i].name, member->name) == 0 && (table[i].kinds & (unsigned)kind) != 0)
			return &table[i];
	}
	return NULL;
}

static bool is_option_text(const struct json *json)
{
	return json_is(json, JSON_STRING) && json->string.len > 0 && json->string.len <= OPTION_TEXT_MAX;
}

static int read_option(struct kind_options *options, const struct option *option, const struct json *value, struct error *error)
{
	void *field = (char *)options + option->offset;

	switch (option->type) {
	case OPTION_BOOLEAN:
		if (!json_is(value, JSON_BOOLEAN))
			return error_set(error, ERR_INVALID, "/options/%s: must be true or false", option->name);
		*(bool *)field = value->boolean;
		break;
	case OPTION_INTEGER:
		if (!json_is_integer(value) || value->number < option->min || value->number > option->max)
			return error_set(error, ERR_INVALID, "/options/%s: must be an integer from %d to %d", option->name, option->min,
				option->max);
		*(int *)field = (int)value->number;
		break;
	case OPTION_TEXT:
		if (!is_option_text(value))
			return error_set(error, ERR_INVALID, "/options/%s: must be a text of 1 to %d bytes", option->name, OPTION_TEXT_MAX);
		*(const char **)field = value->string.text;
		break;
	case OPTION_TEXTS:
		if (!json_is(value, JSON_ARRAY) || json_count(value) > (size_t)option->max)
			return error_set(error, ERR_INVALID, "/options/%s: must be a list of at most %d texts", option->name, option->max);
		options->model_count = json_count(value);
		for (size_t i = 0; i < options->model_count; i++) {
			if (!is_option_text(json_at(value, i)))
				return error_set(error, ERR_INVALID, "/options/%s/%zu: must be a text of 1 to %d bytes", option->name, i,
					OPTION_TEXT_MAX);
			options->models[i] = json_at(value, i)->string.text;
		}
		break;
	}
	return 0;
}

int options_read(struct kind_options *options, const struct json *json, enum kind_bit kind, struct error *error)
{
	if (!json_is(json, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "/options: must be an object");
	for (size_t i = 0; i < json->object.count; i++) {
		const struct json_member *member = &json->object.members[i];
		const struct option *option = find_option(member, kind);

		if (option == NULL)
			return error_set(error, ERR_INVALID, "/options: this kind has no \"%.60s\"; README.md has the table", member->name);
		if (read_option(options, option, member->value, error) != 0)
			return ERR_INVALID;
	}
	return 0;
}
