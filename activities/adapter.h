/* What differs between kinds of runtimes: one file per kind behind this table. An adapter builds request bodies and reads
 * answers and probes; it does no I/O. Threads: loop. To add a kind: write <kind>_adapter.c, add it to runtime_adapter_get(). */
#pragma once

#include "activities/activity.h"
#include "workflow/base/failure.h"
#include "workflow/base/json.h"

enum { ADAPTER_PROBES_MAX = 4, ADAPTER_STOP_MAX = 4 };

/* What an answer has told so far. */
struct answer {
	struct arena arena; /* holds the texts */
	struct buffer text, reasoning;
	const char *model, *finish_reason, *fingerprint; /* NULL: not said */
	double prompt_tokens, completion_tokens; /* negative: not said */
	bool ended; /* the stream's end marker came */
	enum failure_class failure;
	char detail[ACTIVITY_DETAIL_MAX];
};

struct inference_request {
	const char *model; /* NULL: the runtime chooses */
	const struct json *messages;
	const struct json *schema; /* NULL: free text. Members may be out of order (json_order): copy and print it, no more */
	const char *schema_name;
	bool json_only; /* without a schema: any JSON object */
	const struct json *sampling; /* checked, by our names: {temperature, topP, …} */
};

/* What the probes of a runtime have told; NULL: unknown. */
struct runtime_facts {
	const struct json *models; /* [{"id", "root"?, "contextLength"?}] */
	const char *server; /* the Server header; "" when there was none */
	const char *version, *version_source;
};

struct runtime_adapter {
	const char *kind;
	const char *request_path;
	const char *probes[ADAPTER_PROBES_MAX]; /* paths to GET in turn, up to NULL; the first one must answer */

	struct json *(*make_request)(struct arena *arena, const struct inference_request *request);
	/* The wire's name of a sampling field, or NULL when this kind has none. */
	const char *(*sampling_field)(const char *name);
	/* One event of a stream. *token: it carried text. False: answer->failure says why. */
	bool (*read_event)(struct answer *answer, const char *name, struct bytes data, bool *token);
	/* An answer that came in one piece. */
	bool (*read_whole)(struct answer *answer, struct bytes body);
	/* A status other than 200. */
	void (*read_failure)(struct answer *answer, int status, struct bytes body);
	/* The answer to probes[index]; 200 only. */
	void (*read_probe)(struct arena *arena, size_t index, struct bytes body, struct runtime_facts *facts);
};

const struct runtime_adapter *runtime_adapter_get(const char *kind); /* NULL: no such kind */
extern const struct runtime_adapter openai_adapter;

void answer_init(struct answer *answer);
void answer_close(struct answer *answer);
/* Sets failure and detail; returns false. */
bool answer_fail(struct answer *answer, enum failure_class failure, const char *format, ...) __attribute__((format(printf, 3, 4)));
