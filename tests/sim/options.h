/* What the simulated runtime was built or started with: the flags, versions and traps of its kind, as the script's
 * "options" say them. README.md has the table of who knows which.
 *
 * Each kind brings its own defaults (kind.h). Ownership: texts lie in the arena that they were read into. Threads: loop. */
#pragma once

#include "workflow/base/json.h"

enum { OPTION_MODELS_MAX = 64, OPTION_TEXT_MAX = 1024 };

/* Bits: an option names the kinds that know it. */
enum kind_bit {
	KIND_OPENAI = 1, KIND_LLAMACPP = 2, KIND_VLLM = 4, KIND_OLLAMA = 8, KIND_SGLANG = 16, KIND_LMSTUDIO = 32, KIND_TRANSFORMERS = 64,
	KIND_ALL = 127,
	KIND_REAL = KIND_ALL & ~KIND_OPENAI,
	KIND_LOADERS = KIND_LLAMACPP | KIND_OLLAMA | KIND_LMSTUDIO, /* those that load and unload models */
};

/* Times in milliseconds. Texts are never NULL once a kind has set its defaults and knows the option. */
struct kind_options {
	bool ignore_stream, no_done;
	bool keeps_generating;    /* a client that goes away stops nothing */
	bool prompt_cache;        /* prefixes are kept between requests */
	bool loaded, jit;         /* the first model at the start; loading on request */
	bool router, metrics, slots_page, verbose_answers;
	bool server_info, tokenizer_info, load_tracking, prompt_tokens_details, request_metrics, force_include_usage, engine_dead;
	bool deterministic, cache_report;
	bool api_v0, api_v1;
	bool plain_schemas, no_schemas, no_formats; /* what gets 400 of response_format */
	int slots;                /* answers made at once; 0: no limit */
	int queue_max;            /* requests that wait for a slot; 0: no limit */
	int context_tokens;       /* 0: no limit */
	int load_ms, ttl_ms;      /* ttl_ms 0: the kind's own default; it never ends with -1 */
	int idle_ms;              /* a connection without a request is closed after it; 0: never */
	int vram_percent;
	const char *version, *api_key, *wrong_model, *reasoning_field, *fingerprint_mode, *fingerprint_value, *weight_version, *format,
		*revision, *remote_host, *load_error;
	const char *models[OPTION_MODELS_MAX]; /* further ones, not loaded */
	size_t model_count;
};

/* Read members of `json` over what stands in *options. An option that the kind does not know is refused. */
int options_read(struct kind_options *options, const struct json *json, enum kind_bit kind, struct error *error);
