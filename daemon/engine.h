/* The engine: trigger -> decide -> append -> apply -> release. It owns the runs that are in memory and nothing else: no
 * sockets, files, clock or threads; all of that comes in through struct engine_ports, so that a whole engine runs in a test
 * on a simulated store, simulated activities and a simulated clock.
 *
 * One decision of a run is in flight at a time; further triggers wait in the run's inbox. Memory changes only after commit:
 * on_entries_committed() is the one place that folds entries in, release_effects() the one that lets effects leave.
 * A run with nothing in flight and nothing due soon is parked: memory keeps its id, its deadline and the ids of what listens for events.
 * Deadlines are written as wall time and waited for in the time that goes by (C58): see notice_clock() in engine.c.
 *
 * Thread: the loop. New here? Read engine_submit(), then on_entries_committed() in engine.c. */
#pragma once

#include "activities/activity.h"
#include "store/store.h"
#include "workflow/decide.h"

enum {
	ENGINE_RUNS_MAX = 2000000, /* known and not ended, parked ones included */
	ENGINE_TRIGGERS_MAX = 32, /* ends of attempts that one decision of a run takes in */
	ENGINE_RECOVER_CONCURRENCY = 32, /* runs loaded at once after a start */
	ENGINE_LOAD_PAGE = 1000, /* entries of a run that are read and folded in at once */
	ENGINE_SNAPSHOT_ENTRIES = 4096, /* entries between two snapshots of a run; more where the state is large */
	ENGINE_SNAPSHOT_MAX = 32 << 20, /* bytes of one; a larger state is folded from its entries */
	ENGINE_INTERVALS_MAX = 256, /* of a run's times: past it those that are over become their sum */
	ENGINE_ENDED_KEPT = 1000, /* ended runs whose exact timing is still in memory */
	ENGINE_VALUE_CACHE_BYTES = 16 << 20, /* of texts and their trees */
	ENGINE_DEFINITIONS_KEPT = 8, /* of runs that were loaded last: many that are loaded one after the other are of the same */
	ENGINE_SHARED_NEEDS_MAX = 4, /* values loaded for a decision that needs no more than these stay for the next one */
	ENGINE_RECOVERY_TRIES = 3, /* of a run that cannot be loaded or go on; then it is put into quarantine */
	ENGINE_RECOVERY_RETRY_MS = 1000, /* between them */
	ENGINE_RETRY_APPEND_MS = 500, /* after ERR_FULL or ERR_BUSY */
	ENGINE_TREE_RUNS_MAX = 10000, /* of a tree that is cancelled, killed, paused or resumed as one transaction: all of them are in memory meanwhile */
	ENGINE_TREE_VALUES_MAX = 16 << 20, /* bytes of values of such a transaction; its entries: STORE_APPEND_ENTRIES_MAX */
	ENGINE_TREE_TURN = 64, /* runs of a tree that are dealt with in one turn of the loop */
	ENGINE_TREES_MAX = 1000, /* trees that wait for their turn, one after the other */
	ENGINE_CLOCK_SLACK_MS = 100, /* what the wall clock may differ from the time that went by before it counts as set */
	ENGINE_EVALUATION_ROUNDS_MAX = 16, /* a decision that still needs results then commits what it has (decide_context.settle) */
};

struct engine;

/* A page of one run: its entries with values up to VALUE_INLINE_MAX; with the first page its newest snapshot, behind which the entries then
 * begin, and its definition's document. */
struct engine_load_run;
struct engine_load_run {
	const char *run_id;
	uint64_t after_seq; /* 0: the first page */
	bool whole; /* the first page: without the snapshot, which is not to be used; the port may find that, too */
	void (*on_done)(struct engine_load_run *load);
	void *owner;
	struct arena arena; /* initialised by the port; closed by the engine */
	struct bytes snapshot; /* what store_append.snapshot was; data NULL: none */
	struct entry *entries;
	size_t entry_count;
	bool more; /* there is another page */
	struct bytes document; /* canonical JSON of the definition; first page only */
	struct error error;
};

struct engine_load_values;
struct engine_load_values {
	const char *run_id;
	const struct value_need *needs;
	size_t need_count;
	void (*on_done)(struct engine_load_values *load);
	void *owner;
	struct arena arena; /* initialised by the port; closed by the engine */
	struct bytes *values; /* need_count of them */
	struct error error;
};

/* The result of one expression that needs jq. */
struct engine_evaluate;
struct engine_evaluate {
	struct bytes request; /* evaluation_request(); borrowed until on_done */
	void (*on_done)(struct engine_evaluate *evaluate);
	void *owner;
	/* What evaluation_keep() made of the answer; valid in the callback. A failure is an answer like another. */
	struct bytes kept;
	bool busy; /* the queue is full: nothing was tried */
	struct list link; /* the port's own */
};

/* Which open runs are below this one, in awaited steps alone: parents before their children. */
struct engine_look;
struct engine_look {
	const char *run_id;
	size_t limit; /* more are not looked for */
	void (*on_done)(struct engine_look *look);
	void *owner;
	struct arena arena; /* initialised by the port; closed by the engine */
	const char **ids;
	size_t count;
	struct error error;
};

/* One event of the journal for one listener (events are pulled: the next one is offered after on_done). */
struct engine_offer;
struct engine_offer {
	/* Request; borrowed until on_done. */
	const char *run_id, *step_id; /* as listen() named them */
	uint64_t seq; /* of the entry that brought the event: what is not above the last one it consumed is ignored */
	int64_t time_ms; /* of that entry */
	struct bytes event; /* the canonical envelope */
	void (*on_done)(struct engine_offer *offer); /* may fire inside engine_offer_event(): go on in a loop, not from inside */
	void *owner;
	/* Result. ERR_NONE: decided, and durable where it was consumed. Else it was not decided and the listener has seen nothing of it:
	 * ERR_NOT_FOUND: there is no such listener any more; ERR_CANCELLED: the daemon stops; the run's own error where it is broken. */
	bool consumed;
	struct error error;
};

struct engine_ports {
	void *arg;
	uint64_t (*now_us)(void *arg);
	int64_t (*wall_ms)(void *arg);
	int (*append)(void *arg, struct store_append *append); /* store_append() */
	/* Both answer later, never inside the call. */
	void (*load_run)(void *arg, struct engine_load_run *load);
	void (*load_values)(void *arg, struct engine_load_values *load);
	void (*evaluate)(void *arg, struct engine_evaluate *evaluate); /* NULL: every expression that needs jq fails */
	void (*look_below)(void *arg, struct engine_look *look); /* answers later; NULL: no run has others below it */
	int (*start_activity)(void *arg, struct activity *activity, struct error *error); /* activity_start() */
	void (*cancel_activity)(void *arg, struct activity *activity);
	void (*close_activity)(void *arg, struct activity *activity); /* activity_close() */
	/* A `listen` task waits for events: offer it all of the journal with time_ms >= since_ms and seq > after_seq, in order, then each that
	 * comes, as long as it listens. task->listen says which; it lives as long as the definition, of which the port takes a reference
	 * of its own. The texts are borrowed for the call. A listener that is busy with an event's `foreach` ends, and listens again after
	 * that. NULL: nothing comes. */
	void (*listen)(void *arg, const char *run_id, const char *step_id, const struct task *task, struct definition *definition, int64_t since_ms, uint64_t after_seq);
	/* It is over, or its run is (step_id NULL: all of the run). An offer that is under way is answered all the same. */
	void (*unlisten)(void *arg, const char *run_id, const char *step_id);
	/* A run has emitted an event; it is durable. May be NULL. */
	void (*on_emitted)(void *arg);
	/* Something was committed for a run: wake streams and waiters of the API. May be NULL. */
	void (*on_committed)(void *arg, const char *run_id, uint64_t seq_last, bool ended);
	/* A gate is on record. report: borrowed for the call. May be NULL. */
	void (*on_gate)(void *arg, const struct digest *id, struct bytes report);
	/* An attempt is over that nobody waits for any more, and it has used a runtime (its result's `spent`). May be NULL. */
	void (*on_spent)(void *arg, const struct activity *activity);
	/* The wall clock was set: forward, or (negative) back. May be NULL. */
	void (*on_clock_stepped)(void *arg, int64_t by_ms);
	/* No run is held any more (engine_run_is_held). May be NULL. */
	void (*on_tree_done)(void *arg);
	/* A run cannot go on (damaged, or its definition is gone) and is put into quarantine. May be NULL. */
	void (*on_run_failed)(void *arg, const char *run_id, const struct error *error);
};

struct engine_config {
	const char *origin, *daemon_version;
	int64_t event_window_ms; /* how far before its start a listener's events may be */
	int64_t park_after_ms; /* park when the next deadline is further away; negative: never */
	size_t runs; /* that are to be recovered: room for their ids is made at once */
	const struct budget_amount *budget; /* of a run that is nobody's child and comes without one; NULL: none */
	/* For tests that have to reach them; 0: the limits above. */
	size_t value_cache_bytes, load_concurrency, snapshot_entries, tree_runs;
};

struct engine *engine_new(const struct engine_config *config, const struct engine_ports *ports);
/* Frees all runs. Nothing may be under way any more: see engine_is_quiet(). */
void engine_free(struct engine *engine);

/* --- submitting --------------------------------------------------------------------------------------------------- */

struct engine_submit;
struct engine_submit {
	/* Request; borrowed until on_done. The engine takes its own reference of the definition at once. */
	struct definition *definition;
	const char *id; /* valid, see id_valid() */
	struct bytes input; /* canonical JSON */
	const struct json *labels; /* {key: text} or NULL */
	const struct json *parent; /* of a child: see run.created in workflow/entry.h; else NULL */
	const struct forking *fork; /* workflow/fork.h; NULL: it begins at its beginning */
	const struct budget_amount *budget; /* what it may use of models; NULL: the configuration's, of a child nothing */
	const struct json *budget_asked; /* see struct trigger */
	uint64_t received_us; /* when the request's last byte was read, for the stage `admission` */
	/* More entries for the same transaction, before run.created: a definition that is not in the journal yet. */
	struct entry *extra;
	size_t extra_count;
	void (*on_done)(struct engine_submit *submit); /* the run is durable, or was not accepted */
	void *owner;
	/* ERR_NONE: created. ERR_EXISTS: the id is taken; whether by equal content the caller finds out from the store. ERR_BUSY, ERR_FULL. */
	struct error error;
};
/* 0; or ERR_BUSY (queue or engine full), ERR_EXISTS (a run of this id is under way): on_done then never fires. */
int engine_submit(struct engine *engine, struct engine_submit *submit, struct error *error);

/* --- control ------------------------------------------------------------------------------------------------------ */

enum engine_verb { CONTROL_CANCEL, CONTROL_KILL, CONTROL_PAUSE, CONTROL_RESUME };

/* What an operator, or a parent, does to a run. It goes before all that waits in the run's inbox, before the loads of other runs, and past a full
 * queue of the store (C5); several that ask the same at once are answered together. Each is idempotent. */
struct engine_control;
struct engine_control {
	enum engine_verb verb;
	const char *id, *reason; /* reason may be NULL */
	void (*on_done)(struct engine_control *control); /* durable, or it was so already, or the run had ended meanwhile: all are success */
	void *owner;
	/* ERR_NOT_FOUND: it was on its way and was not created (it may have ended before: ask the store). ERR_CANCELLED: the daemon
	 * stops, the run is as it was. */
	struct error error;
	struct list link; /* the engine's own */
};
/* 0, or ERR_NOT_FOUND: no such run is under way (it may have ended: ask the store). */
int engine_control(struct engine *engine, struct engine_control *control, struct error *error);

/* The same for a run and all below it that is awaited, as one transaction: after a crash at any moment it was done to all of them or to none. Trees are
 * dealt with one after the other. Meanwhile the runs of the tree are held: they decide nothing else, and start no children. Runs in quarantine are left
 * out; so are children that were not there yet, which end, or are suspended, with the step that starts them. */
struct engine_tree;
struct engine_tree {
	struct engine_control root; /* verb, id and reason are the request; the rest is the engine's own */
	void (*on_done)(struct engine_tree *tree);
	void *owner;
	size_t run_count; /* in that transaction, the root too; those that were already as they were to be count as well */
	/* As engine_control.error; ERR_TOO_LARGE: nothing was done, for there are more than ENGINE_TREE_RUNS_MAX runs, or too much for one append. */
	struct error error;
};
/* As engine_control(); ERR_BUSY past ENGINE_TREES_MAX. */
int engine_control_tree(struct engine *engine, struct engine_tree *tree, struct error *error);
bool engine_run_is_held(const struct engine *engine, const char *id); /* a tree that it is part of is dealt with: a child must not be submitted now */

/* A run that has faulted goes on from what was under way when it failed (semantics.md 3: with new execution numbers). */
struct engine_retry;
struct engine_retry {
	const char *id, *reason; /* reason may be NULL; both stay until on_done */
	const struct budget_amount *budget; /* what it may use of models from now on, where it is not BUDGET_NONE; NULL: as before */
	void (*on_done)(struct engine_retry *retry); /* durable: it is under way again, or has ended once more */
	void *owner;
	/* ERR_NOT_FOUND: there is no such run. ERR_EXISTS: it did not fault, or cannot be gone on with, and why; it is as it was. */
	struct error error;
};
/* 0; or ERR_EXISTS: it is under way, ERR_BUSY: too many are, or the daemon stops; on_done then never fires. */
int engine_retry(struct engine *engine, struct engine_retry *retry, struct error *error);

/* --- events ------------------------------------------------------------------------------------------------------- */

/* 0; or ERR_NOT_FOUND: no such run is under way, ERR_BUSY: the engine stops; on_done then never fires. A parked run is loaded for it: offer
 * it what may match only (event_strategy_rejects()). */
int engine_offer_event(struct engine *engine, struct engine_offer *offer, struct error *error);

/* --- looking ------------------------------------------------------------------------------------------------------ */

/* The summary part of the run document (no input, output, tasks …): id, workflow, status, createdAt, startedAt, endedAt, labels left
 * out, overhead. From memory: runs under way, and those that ended lately with the exact time of their last commit.
 * NULL: not in memory, or parked. */
struct json *engine_run_json(const struct engine *engine, const char *id, struct arena *arena);
/* Each attempt under way of a run that is in memory, the oldest first, until `tell` says false. */
void engine_each_activity(const struct engine *engine, const char *id, bool (*tell)(void *arg, const struct activity *activity), void *arg);
bool engine_run_is_open(const struct engine *engine, const char *id); /* under way or parked */
bool engine_run_is_suspended(const struct engine *engine, const char *id); /* durably, it was loaded since the start, and no resume is on its way */

void engine_forget_removed(struct engine *engine); /* runs were purged or a value erased: nothing of what was may stay in memory */

struct engine_watch; /* fires once, when the run has ended durably */
struct engine_watch {
	const char *id;
	void (*on_ended)(struct engine_watch *watch);
	void *owner;
	struct list link;
};
/* ERR_NOT_FOUND: not under way. */
int engine_watch(struct engine *engine, struct engine_watch *watch);
void engine_unwatch(struct engine_watch *watch);

struct engine_counts {
	uint64_t open, parked, in_flight, committing, recovered, quarantined;
	uint64_t created, completed, faulted, cancelled; /* since the start */
	uint64_t stale_triggers, entries, clock_steps;
};
void engine_counts(const struct engine *engine, struct engine_counts *counts);

/* Whether an attempt of this step is under way, as far as is durable. UNKNOWN: the run has not been taken up again since the start, or cannot be; or
 * it is suspended, and may take the step up again when it is resumed. */
enum engine_flight { FLIGHT_NO, FLIGHT_YES, FLIGHT_UNKNOWN };
enum engine_flight engine_step_flight(const struct engine *engine, const char *id, const char *step_id);

/* --- start, time, stop -------------------------------------------------------------------------------------------- */

/* A run that was open when the daemon went away. It is known at once (engine_run_is_open), loaded soon, and told RESTARTED. One that waits for
 * nothing but times, since rested_ms and until wake_ms (both in its own time), is left alone until then; wake_ms 0: it is none of these. */
void engine_recover(struct engine *engine, const char *id, int64_t wake_ms, int64_t rested_ms);
/* One that was in quarantine then: it is known, and left alone until it is resumed. */
void engine_set_aside(struct engine *engine, const char *id);
/* One that was open then, and has stopped the daemon too often since: into quarantine with this reason, untouched. */
void engine_quarantine(struct engine *engine, const char *id, const char *reason);
bool engine_is_recovering(const struct engine *engine);
/* Wall-clock time of the next thing to do, as the clock stood when the engine last looked at it; 0: nothing. Wait for it on a clock that
 * nobody sets, and call engine_on_time() then (calling it early does nothing), and now and then in between: it may have been set forward. */
int64_t engine_next_deadline_ms(const struct engine *engine);
void engine_on_time(struct engine *engine);
/* No new runs, no new activities; what is decided is still committed. */
void engine_stop(struct engine *engine);
/* For tests: the state of a run in memory; NULL when parked or unknown. Gone with the next callback. */
const struct state *engine_run_state(const struct engine *engine, const char *id);
/* For tests: free all as if the process had died. No callback of anything under way may come afterwards. */
void engine_drop(struct engine *engine);
/* After engine_stop: nothing is committing, loading or being evaluated. Activities may be under way: cancel them with their owner. */
bool engine_is_quiet(const struct engine *engine);
