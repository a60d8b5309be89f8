/* What happens next: (state, trigger) -> entries + effects. Pure: no I/O, clock, randomness or threads; the trigger carries
 * its time, jitter is a hash of run, step and attempt.
 *
 * A decision that needs a value that is not in memory, or the result of an expression that only jq can evaluate, comes back with
 * `needs` and nothing else: get them (the `load` and `evaluate` effects of semantics.md 2) and decide again with the same trigger, of the
 * same time. New here? Read workflow_decide() in decide.c. */
#pragma once

#include "workflow/base/spent.h"
#include "workflow/language/evaluation.h"
#include "workflow/state.h"

enum {
	DECISION_ENTRIES_MAX = 256, /* soft: past it a decision stops and asks to be continued after its commit */
	DECISION_BYTES_MAX = 4 << 20, /* soft, the same: of values that it made */
	DECISION_NEEDS_MAX = 100000,
	DECISION_EVALUATIONS_MAX = 256, /* results asked for at once; the rest is asked for in the next round */
	DECISION_RESULTS_BYTES_MAX = 16 << 20, /* of results, between one entry and the next */
	LISTEN_EVENTS_MAX = 10000, /* events in the output of one listen */
	SUSPENDED_TASKS_BYTES_MAX = 32 << 10, /* of step ids in run.suspended and run.resumed; the rest is counted */
	DECISION_VALUE_MAX = 16 << 20, /* bytes of a value that a decision makes: they are printed and hashed on the loop */
};

enum trigger_kind {
	TRIGGER_SUBMITTED, /* a new run */
	TRIGGER_RESTARTED, /* loaded again after the daemon went away */
	TRIGGER_CONTINUE, /* the last decision stopped at its limit */
	TRIGGER_ACTIVITY_DONE,
	TRIGGER_DEADLINE, /* state_next_deadline_ms() has passed */
	TRIGGER_CANCEL,
	TRIGGER_RETRY, /* of a run that has faulted: it goes on from what was under way then */
	TRIGGER_PAUSE, /* nothing new is begun until RESUME; a run that is suspended stays as it is */
	TRIGGER_RESUME,
	TRIGGER_EVENT, /* for a listen that waits; one that is not for it gives an empty decision */
};

/* How an attempt ended. Everything borrowed. The meaning of each member is activity.h's. */
struct outcome {
	bool ok;
	enum failure_class failure;
	const char *detail;
	int status;
	int64_t retry_after_ms;
	unsigned retry_attempts;
	int64_t retry_floor_ms, retry_cap_ms;
	const struct json *output, *record;
	struct bytes request, response, document;
	const char *document_media_type;
	const struct json *facts, *evidence;
	const struct json *error; /* of a child: the task's own from now on, but for where it comes from */
	struct spent spent;
	int64_t started_ms, finished_ms, duration_ms;
};

struct forking;
struct trigger {
	enum trigger_kind kind;
	int64_t wall_ms;
	/* SUBMITTED */
	const char *run_id;
	struct bytes input; /* canonical JSON */
	const struct json *labels; /* {key: text} or NULL */
	const struct json *parent; /* of a child: {run, step, depth, awaited}; else NULL */
	const struct forking *fork; /* of a fork, fork.h: it goes on from another run's state; else NULL */
	/* SUBMITTED: what it may use of models; RETRY: that from now on, where it is not BUDGET_NONE. NULL: nothing is said of it */
	const struct budget_amount *budget;
	const struct json *budget_asked; /* SUBMITTED: what of it the submission asked for, which makes its content; or NULL */
	/* ACTIVITY_DONE */
	const char *step_id;
	unsigned attempt;
	const struct outcome *outcome;
	/* EVENT, and step_id */
	struct bytes event; /* the canonical envelope */
	uint64_t event_seq;
	/* CANCEL, RETRY, PAUSE, RESUME */
	const char *reason; /* or NULL */
	bool kill; /* CANCEL */
	bool quarantine; /* PAUSE, in replay: not asked for; the engine wrote it, which could not decide (daemon/engine.c) */
	/* Any ending: what the run's record says ({"wallUs", "stages"}), or NULL. */
	const struct json *run_record;
};

enum effect_kind {
	EFFECT_START_ACTIVITY,
	EFFECT_CANCEL_ACTIVITY,
	EFFECT_CONTINUE, /* trigger CONTINUE after the commit */
	EFFECT_RUN_ENDED,
};

struct effect {
	enum effect_kind kind;
	const char *step_id; /* START, CANCEL */
	unsigned attempt;
	enum task_function function; /* START */
	const struct json *with; /* START */
	char key[DIGEST_HEX_LEN + 1]; /* START: the idempotency key */
};

struct value_need {
	struct digest digest;
	uint64_t content_id; /* 0: by digest */
	uint64_t size;
	/* Not NULL: no value of the run but the result of this is needed, and the digest is that of its request. */
	const struct evaluation *evaluation;
};

struct decision {
	struct arena arena;
	struct entry *entries;
	size_t entry_count, entry_cap;
	struct effect *effects;
	size_t effect_count, effect_cap;
	struct value_need *needs; /* not empty: nothing else counts */
	size_t need_count, need_cap;
	size_t trigger_count; /* how many of the triggers it covers; the rest has to be decided again, after its commit */
};

/* Values that were loaded, by digest; NULL: not at hand. The answer lives until the decision is closed. Results of evaluations are found
 * here too, by the digest of their request, as what evaluation_keep() made of the answer: [value], or a text that says why it failed. */
struct value_source {
	const struct json *(*get)(void *context, const struct digest *digest);
	void *context;
};

/* Replay only: results as the journal has them, so that nothing is evaluated. entry: which one of this decision's entries comes next;
 * index: which of the results before it. Same form as above; NULL: the journal has none. */
struct result_source {
	const struct json *(*get)(void *context, size_t entry, size_t index);
	void *context;
};

struct decide_context {
	const char *origin; /* of the log: goes into statements */
	const char *daemon_version;
	struct value_source values;
	struct result_source recorded;
	/* Evaluations are needed again and again: decide as far as one can without, and ask to be continued after that commit. So a chain
	 * of evaluations costs no decision over all that came before it in the same decision. */
	bool settle;
	int64_t event_window_ms; /* how far before its start a listener's events may be */
};

void decision_init(struct decision *decision);
void decision_close(struct decision *decision);
/* Stale triggers (an answer for an attempt that is over, a deadline that is not due) give an empty decision.
 * Several triggers, all of them ACTIVITY_DONE, are decided one after the other into one decision, each seeing what the one before
 * decided: the entries are those of as many decisions, for one commit. */
void workflow_decide(const struct state *state, const struct trigger *triggers, size_t trigger_count, const struct decide_context *context,
		     struct decision *decision);

/* "Equal content" of a submission (semantics.md 3): of definition digest, input, labels, and the budget that was asked for (NULL: none was). */
struct digest submission_digest(const struct digest *definition, const struct digest *input, const struct json *labels, const struct json *budget);
