/* A configured LLM runtime: what the operator wrote, what was probed, its slots and its configuration record.
 * Loop thread. The adapter of a kind is one file behind struct runtime_adapter (adapter.h). */
#pragma once

#include "activities/launch.h"
#include "workflow/base/json.h"

enum { RUNTIME_CONTEXT_MAX = 1 << 30, RUNTIME_PROBE_EVERY_MIN_MS = 1000,
       /* of `watch` */ RUNTIME_WATCH_WHITE_SPACE_MIN = 32, RUNTIME_WATCH_LOOP_MIN = 256, RUNTIME_WATCH_MAX = 16 << 20 };

/* From the configuration file; borrowed texts live as long as the daemon. */
struct runtime_config {
	const char *name, *kind; /* kind: of runtime_adapter_kinds(); "simulator" speaks openai to a reprise-sim */
	const char *url; /* "http://127.0.0.1:1234", without /v1 */
	const char *model;
	const char *weights_file, *weights_folder; /* one at most; hashed once; NULL: unknown */
	unsigned context_length; /* tokens; asked for where the kind can ask for it, and compared with what is in force; 0: not said */
	int64_t probe_every_ms; /* default 5 min */
	const char *api_key; /* the secret itself, or NULL; never shown, logged or journaled */
	unsigned concurrency; /* requests in flight at once; default 1 */
	bool concurrency_auto; /* as many as the runtime says it takes, whatever `concurrency` is */
	unsigned priority; /* of requests that name none; 0 to PRIORITY_MAX */
	unsigned loaded_models; /* that its server holds at once; 0: as its kind does. Those of one url that say it say the same */
	int64_t rate_requests, rate_tokens, rate_per_ms; /* so many in any such time; 0: no limit */
	int64_t budget_tokens, budget_seconds; /* so many may be used in a day of UTC; 0: no limit */
	const struct json *sampling; /* {temperature?, topP?, topK?, minP?, seed?, maxTokens?, stop?, …} or NULL */
	int64_t connect_ms, first_token_ms, between_tokens_ms, total_ms; /* defaults 5 s, 120 s, 30 s, 20 min */
	unsigned retry_attempts; /* attempts in all; default 3 */
	int64_t retry_floor_ms, retry_cap_ms; /* defaults 500 ms, 60 s */
	int watch_white_space, watch_loop_bytes; /* stream_watch.h; 0: the defaults there, negative: off */
	bool watch_no_schema; /* an answer is held against its schema only when it is whole */
	const struct launch_config *launch; /* NULL: somebody else starts it */
	int launcher; /* launch: socket of its reprise-launcher; the activities take it over */
};
