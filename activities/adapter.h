/* What differs between kinds of runtimes: one file per kind behind this table. An adapter builds request bodies and reads
 * answers and probes; it does no I/O. Threads: loop. To add a kind: write <kind>_adapter.c and add a line to `kinds` in
 * adapter.c; where it speaks OpenAI's chat completions, most of it is chat_wire.h. Source: runtimes.md. */
#pragma once

#include "activities/activity.h"
#include "activities/launch.h"
#include "workflow/base/failure.h"
#include "workflow/base/json.h"
#include "workflow/base/sampling.h"

enum { ADAPTER_PROBES_MAX = 8, ADAPTER_COUNT_STEPS_MAX = 2, ADAPTER_MODELS_MAX = 1000,
       FACT_LEN_MAX = 64 << 10 /* bytes of one value of a record, printed; of a longer one only that, and what tells it from others */,
       ANSWER_NAME_MAX = 1 << 10 /* bytes of a model's name, a fingerprint, a finish reason; the same */, ANSWER_MEMBER_MAX = 4 << 10 /* of one member of timings or effective, printed; the same */,
       ANSWER_TOLD_MAX = 64 << 10 /* of all of one's members; of those past it only how many (leftOut) */ };

/* What a runtime may have no field for; the request is then made without. WITHOUT_SCHEMA: no rung of the ladder is any good. */
enum { WITHOUT_STREAM_OPTIONS = 1, WITHOUT_SCHEMA = 2 };

/* What an answer has told so far. */
struct answer {
	struct arena arena; /* holds the texts */
	struct buffer text, reasoning;
	const char *model, *finish_reason, *fingerprint; /* NULL: not said */
	const char *computed_by; /* another machine, that the runtime names as the one which computed the answer; NULL: none */
	const char *weight_version; /* SGLang's word for its weights, NULL: not said */
	const char *other_model; /* that a piece of the same answer is said to be of; NULL: all are of one */
	double prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens; /* negative: not said */
	struct json *timings; /* as the runtime told them, under its names and in its units, within ANSWER_TOLD_MAX; NULL: it did not */
	struct json *effective; /* the sampling that the runtime says was in force, under its names, within the same; NULL: it did not */
	bool cut_prompt; /* the runtime says itself that it cut the prompt */
	bool loaded; /* the model was loaded for this request: what is known of it has to be asked anew */
	bool ended; /* the stream's end marker came */
	unsigned left_out; /* WITHOUT_… that this runtime wants */
	enum { TAGS_UNSEEN, TAGS_INSIDE, TAGS_OVER } tags; /* openai: where the text is, that may begin with <think>…</think> */
	unsigned tag_len; /* bytes of such a tag that came, and may still be none */
	enum failure_class failure;
	char detail[ACTIVITY_DETAIL_MAX];
};

struct inference_request {
	const char *model; /* NULL: the runtime chooses */
	const struct json *messages;
	const struct json *schema; /* NULL: free text. Members may be out of order (json_order): copy and print it, no more */
	const char *schema_name;
	bool json_only; /* without a schema: any JSON object */
	const struct json *sampling; /* whole, by our names: {temperature, topP, …} */
	double context_length; /* that the configuration asks for; 0: it does not say */
	unsigned without; /* WITHOUT_STREAM_OPTIONS or 0 */
	bool cache_off; /* the runtime was told to keep no prefixes: no request is to turn that on */
	const char *salt; /* take nothing from the cache of prefixes, in the adapter's way (adapter_bypass): hexadecimal digits that no other request has. NULL: it may */
};

/* What the probes of a runtime have told. */
struct runtime_facts {
	struct arena *arena;
	const char *wanted; /* the configuration's model, or NULL */
	double context_length; /* the configuration's, or 0 */
	const struct json *models; /* [{"id", "root"?, "contextLength"?, "aliases"?: […], "loaded"?: [{"id", "config"?}]}]; NULL: unknown */
	const char *server; /* the Server header; "" when there was none */
	bool is_unloaded; /* a request would load the model first: a probe must not */
	bool is_router; /* it asks another process for each model: a path that is about one names it */
	bool is_remote; /* the model is computed on somebody else's machine, wherever the server is: nothing of it can be measured here */
	struct json *ignored; /* our names of the sampling fields that it takes no notice of, where the adapter tells that; NULL: nothing was told of it */
	const char *instance; /* the runtime's own name of what it has loaded; NULL: it has none, or several */
	struct json *fields; /* {group: {field: {"value", "source", "basis"?}}}, or NULL; basis: where it is not reported */
};
/* Reported: `place` is "B.arch". A value of NULL says nothing; a later one replaces an earlier one. See FACT_LEN_MAX. */
void facts_set(struct runtime_facts *facts, const char *place, struct json *value, const char *source);
void facts_set_text(struct runtime_facts *facts, const char *place, const char *text, const char *source); /* NULL or "": nothing */
void facts_set_copy(struct runtime_facts *facts, const char *place, const struct json *from, const char *name, const char *source);
/* Nothing that the runtime told, but what the configuration says: basis "declared". */
void facts_set_declared(struct runtime_facts *facts, const char *place, const char *text, const char *source);
/* The SHA-256 of a text, in hex. */
void facts_set_hash(struct runtime_facts *facts, const char *place, const char *text, const char *source);
/* The named members of `from`, as one object. */
void facts_set_members(struct runtime_facts *facts, const char *place, const struct json *from, const char *const *names, const char *source);
/* The model that will be asked: the wanted one, or the only one that is served; NULL: unknown. */
const char *facts_model(const struct runtime_facts *facts);
/* The card of a model among facts->models or the like, by id or alias. */
const struct json *models_find(const struct json *models, const char *id);

struct sampling_field {
	const char *ours, *wire;
	const char *unset; /* the JSON to send where nobody says anything: nothing is left to defaults that nobody sees. NULL: left out */
	double from, to; /* what this kind takes less of than sampling.h; of texts `to` is how many. Both 0: it takes all of that */
	bool above; /* `from` itself is too little */
};

struct adapter_probe {
	const char *path; /* the first one of a kind must answer */
	const char *(*make_path)(const struct runtime_facts *facts); /* what is asked in its place; returns NULL: leave the probe out. No function: `path` */
	struct json *(*make_body)(const struct runtime_facts *facts); /* POST it; returns NULL: leave the probe out. No function: GET */
	bool generates; /* makes the model work: only when somebody asks for a probe */
	void (*read)(struct bytes body, struct runtime_facts *facts); /* a 200 that may still be something else */
};

/* A step of counting the prompt's tokens before it is sent: the text of one step goes into the next. */
struct adapter_count {
	const char *path;
	struct json *(*make_body)(struct arena *arena, const struct inference_request *request, const char *text);
	bool (*read)(struct arena *arena, struct bytes body, const char **text, double *tokens); /* false: not understood */
};

/* How a request gets past the runtime's cache of prefixes. */
struct adapter_bypass {
	const char *name; /* what is done: the field of the request or the path, as reports say it. NULL: nothing can be */
	const char *path; /* POST it before each request, it must answer 200. NULL: make_request() says it, where there is a salt */
	bool is_salted; /* the request carries the salt */
	const char *why_not; /* without a name; follows "phase uncached: runtime r (kind k) " */
};

/* Loading a model over the runtime's own API, where it has one; loading.h. What is loaded stands in the card of the first probe's list, in `loaded`. */
struct adapter_loading {
	const char *load_path, *unload_path; /* NULL: it has none */
	struct json *(*make_unload)(struct arena *arena, const struct json *loaded);
	/* With the settings that it is loaded with; context_length 0: with that one too. NULL: it cannot be, *why. */
	struct json *(*make_load)(struct arena *arena, const struct json *card, const char *wanted, double context_length, const char **why);
	bool (*is_loaded)(struct arena *arena, struct bytes body); /* a 200 may still say something else */
	bool (*is_unloaded)(struct arena *arena, struct bytes body);
};

/* What says 503 when a server that was ready lives on without its engine: nothing but a start anew helps then. Asked of a runtime that the daemon launches. */
struct adapter_life {
	const char *path; /* NULL: this kind has no such word */
	bool generates; /* it makes the model work: only asked where an attempt gives reason to */
	int64_t within_ms; /* an answer that takes longer says nothing */
};

enum adapter_stream { STREAM_SSE, STREAM_LINES };

struct runtime_adapter {
	const char *kind;
	const char *request_path;
	enum adapter_stream stream;
	unsigned loaded_models; /* it serves several models and may hold so many at once; 0: it holds what it serves */
	bool has_end_marker; /* a stream that ends without it was cut off */
	struct adapter_probe probes[ADAPTER_PROBES_MAX];
	struct adapter_count count[ADAPTER_COUNT_STEPS_MAX];
	struct adapter_bypass bypass;
	struct adapter_life life;
	const struct launch_flag *flags; /* what its command line tells of the record (launch.h); ends with {NULL}. NULL: nothing */
	struct adapter_loading loading;
	const struct sampling_field *sampling; /* ends with {NULL} */
	/* It takes a value that cannot be without a word, for its default: a probe that generates finds out what it takes no notice of (facts->ignored),
	 * and no field is tried with such a value. */
	bool finds_ignored;
	/* Why a value of a field that the kind has cannot be, beyond its range; NULL: it can. NULL: all can. The value is as sampling.h says; a seed is a number. */
	const char *(*refuse_sampling)(const char *name, const struct json *value);

	struct json *(*make_request)(struct arena *arena, const struct inference_request *request);
	/* One event of a stream. *token: it carried text. False: answer->failure says why. */
	bool (*read_event)(struct answer *answer, const char *name, struct bytes data, bool *token);
	/* An answer that came in one piece. */
	bool (*read_whole)(struct answer *answer, struct bytes body);
	/* A status other than 200. */
	void (*read_failure)(struct answer *answer, int status, struct bytes body);
	/* Is the model that answered the one that was asked for, beyond being called the same? NULL: no. */
	bool (*is_model)(const char *asked, const char *answered);
};

const struct runtime_adapter *runtime_adapter_get(const char *kind); /* NULL: no such kind */
const char *runtime_adapter_kinds(void); /* "openai, simulator, …" */
extern const struct runtime_adapter openai_adapter, vllm_adapter, llamacpp_adapter, ollama_adapter, sglang_adapter, lmstudio_adapter;

const struct sampling_field *adapter_sampling_field(const struct runtime_adapter *adapter, const char *name); /* NULL: this kind has none */
/* Can this kind say it? The value was checked by sampling.h. fault->why follows upon the kind's name: "has no such field". */
bool adapter_check_sampling(const struct runtime_adapter *adapter, const char *name, const struct json *value, struct sampling_fault *fault);
/* Is what a runtime told as in force what it was asked for? It computes with 32 bits. NULL or another type: no. */
bool sampling_is_in_force(const struct json *asked, const struct json *told);
/* What is sent where nobody says anything; NULL: nothing. */
struct json *sampling_field_unset(struct arena *arena, const struct sampling_field *field);

void answer_init(struct answer *answer);
void answer_close(struct answer *answer);
/* Sets failure and detail; returns false. */
bool answer_fail(struct answer *answer, enum failure_class failure, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The detail says that it came in the middle of an answer that began well. */
bool answer_fail_inside(struct answer *answer, const struct json *root);

/* What a peer says when it refuses, whatever its form (runtimes.md: flat, text, nested, FastAPI's detail). */
struct peer_error {
	int status; /* 0: unknown */
	const char *message, *code, *type, *param; /* NULL: not said */
};
struct peer_error peer_error_read(const struct json *root, int status, struct arena *arena);
/* The one taxonomy. */
enum failure_class peer_error_class(const struct peer_error *error);
/* A status other than 200: most kinds' read_failure. */
void answer_read_failure(struct answer *answer, int status, struct bytes body);

/* For adapters that read answers. */
void answer_keep_text(struct answer *answer, const char **place, const char *text);
void answer_keep_model(struct answer *answer, const char *name);
struct json *answer_keep_told(struct answer *answer, const struct json *object); /* for timings and effective */
bool answer_add(struct buffer *buffer, const struct json *text); /* true: it added something */
void answer_read_count(double *place, const struct json *from, const char *name);
bool answer_check_size(struct answer *answer);
