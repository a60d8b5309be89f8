/* One inference over HTTP: a turn in the runtime's queue, who answers there, the request, the stream, the end. The core that
 * `call: inference` and the extraction of a section share. Loop thread.
 *
 *     queued ─▶ preparing ─▶ configuring ─▶ counting ─▶ sent ─▶ confirming ─▶ over
 *        │          │             │            │        ▲ └─┤ something was refused: sent again without it (schema_ladder.h)
 *        └──────────┴─────────────┴────────────┴──────────┴─────────┴──▶ over, by inference_cancel() or a failure
 *
 * From counting back to queued, where the run's budget or that of the day has no room for the prompt; from preparing, where its runtime ended or is to be loaded anew first.
 * While the answer comes, stream_watch.h looks whether it can still become good. Counting only where the runtime can; a cache that is to be emptied is emptied behind it, and counting until that is done. Confirming: the answer is one of the runtime that was asked, as far as can be told.
 *
 * The slot is given back when the transfer is over: reading and grounding an answer keeps nobody waiting. A further attempt
 * can begin only after that, when the connection of this one is gone. New here? Read inference_start(), then on_data(). */
#pragma once

#include "activities/adapter.h"
#include "activities/lines.h"
#include "activities/runtimes.h"
#include "activities/schema_ladder.h"
#include "activities/sse.h"
#include "activities/stream_watch.h"

enum {
	INFERENCE_END_MS = 1000, /* after the end marker the rest of the response is waited for this long, no longer */
	INFERENCE_DETAIL_TEXT_MAX = 120,
	PROMPT_TOKENS_SLACK = 8, /* a count beforehand may see marks at the begin that the answer's does not */
};

struct inference;
typedef void (*inference_cb)(struct inference *inference);

enum inference_state {
	INFERENCE_QUEUED,
	INFERENCE_PREPARING,
	INFERENCE_CONFIGURING,
	INFERENCE_COUNTING,
	INFERENCE_SENT,
	INFERENCE_CONFIRMING,
	INFERENCE_OVER,
};

struct inference {
	/* Request; all in the attempt's arena, or longer lived. */
	struct work *work;
	struct runtime *runtime;
	const struct json *messages;
	const struct json *schema; /* from schema_ordered(); NULL: free text */
	const char *schema_name;
	const struct json *judge; /* what the answer is held against in the end, its members sorted; NULL: nothing. The watch stops what it must refuse */
	const struct json *judge_except; /* the part of it that accepts everything here, or NULL */
	struct json *sampling; /* from inference_sampling() */
	bool uncached; /* nothing of it is to come from the runtime's cache; only where the adapter has a bypass */
	const struct json *required; /* `requireClass`: a class, or {class, mayDiffer}; NULL: none. By inference_require() */
	const struct json *priority; /* 0 to PRIORITY_MAX, as inference_priority() takes it; NULL or not one: the runtime's */
	inference_cb on_slot; /* fill in `messages`, now or later; then inference_send() or inference_end() */
	inference_cb on_done;
	void *owner;

	/* Result, valid from on_done on. */
	enum failure_class failure; /* FAILURE_NONE: an answer that came to its end */
	char detail[ACTIVITY_DETAIL_MAX];
	struct answer answer;
	struct configuration *configuration; /* that the answer was given under; held */
	struct runtime_instance instance; /* that answered */
	struct json *sampling_sent; /* our names, seed as text */
	struct json *reproducibility; /* gates_describe() */
	enum schema_rung rung; /* how much of the schema was sent; without a schema SCHEMA_FULL */

	/* Its own. */
	enum inference_state state;
	struct slot slot;
	uint64_t waits_since_us; /* for its run's budget, then for the slot */
	struct configuration_wait wait;
	struct configuration *sent_under; /* held */
	bool was_unloaded; /* the model, when the request was sent */
	uint64_t ordinal; /* of the request, among those that this daemon sent to the instance */
	struct configuration_wait recheck; /* who answers behind a new connection */
	enum { RECHECK_NONE, RECHECK_OUT, RECHECK_DONE } recheck_state;
	bool asked_again; /* after the answer */
	unsigned without; /* WITHOUT_…, of the request */
	struct transfer count_transfer; /* also of what empties the cache */
	bool counting; /* it is out */
	const char *salt; /* of the request, and of one before which the cache was emptied; NULL: it may use the cache */
	unsigned sent; /* requests of this attempt, those that were refused included */
	size_t count_index;
	const char *count_text;
	double counted_tokens; /* negative: not counted */
	struct transfer transfer;
	bool transfer_open;
	const struct json *plain; /* schema_plain(), once it was asked for */
	struct json *refused; /* [{"rung", "status", "detail"}], NULL: nothing was */
	long connections; /* of the requests before this one */
	unsigned sent_again; /* by curl, since a reused connection broke before any byte came */
	struct deadline *phase, *total;
	enum { PHASE_COUNT, PHASE_EMPTY, PHASE_CONNECT, PHASE_FIRST_TOKEN, PHASE_TOKENS, PHASE_END } phase_kind;
	struct sse sse;
	struct lines lines;
	bool sse_open; /* both */
	size_t text_told, reasoning_told; /* bytes of the answer that on_text has */
	struct stream_watch *text_watch, *reasoning_watch;
	size_t text_watched, reasoning_watched; /* bytes that they have */
	unsigned pieces; /* events with text: tokens, or several of them in one */
	enum { BODY_UNSEEN, BODY_STREAM, BODY_WHOLE, BODY_OTHER } body_kind;
	char server[256];
};

/* The runtime's sampling overlaid by the definition's (either may be NULL), checked against what the runtime's kind can say.
 * NULL: error. seed may be a number or a text of digits; it is sent as a number. */
struct json *inference_sampling(struct arena *arena, const struct runtime *runtime, const struct json *overlay, struct error *error);

/* From an argument `priority` that may be there: is it one? NULL or null: *priority is left alone. */
bool inference_priority(const struct json *argument, unsigned *priority, struct error *error);

/* From `requireClass` (NULL or null: nothing): work that demands a class has the runtime for itself, as gates have, but for one request at a time. */
void inference_require(struct inference *inference, const struct json *required);

/* Fill in the request, then call this once. Uses the attempt's clock, record, request, response and times. */
void inference_start(struct inference *inference);
void inference_send(struct inference *inference); /* from on_slot on */
void inference_end(struct inference *inference, enum failure_class failure, const char *format, ...)
	__attribute__((format(printf, 3, 4))); /* from on_slot on, instead of sending: gives the slot back, on_done is not called */
/* From on_slot, instead of sending: gives the slot back and waits for the next one, at which on_slot is called again. Nobody else gets the solo lane meanwhile. */
void inference_wait_again(struct inference *inference);
void inference_cancel(struct inference *inference); /* Closes the connection at once; on_done does not fire. */
void inference_close(struct inference *inference); /* Frees what it holds. */

/* Parts of a fact's statement (activity.h, `evidence`) that the inference knows; after a good end. */
struct json *inference_evidence(const struct inference *inference, struct arena *arena);
struct json *inference_usage(const struct inference *inference, struct arena *arena); /* NULL: nothing was told */
