/* The deterministic simulation of engine and store: one thread, one seed, one order of events.
 *
 * Engine and store under test are the real ones: decide, state, entries, replay, children; commits, tables, tree, signatures, checkpoints,
 * reads, retention, on SQLite. Activities, clocks and the disk (tests/support/memory_disk.h) are the simulation's, and so is who runs
 * the store's threads: it is stepped by hand (store/internal.h). Everything random comes from one generator, or from a hash of (seed, idempotency key, attempt) where the
 * order of events must not matter, so a seed is one run of the world and can be repeated.
 *
 * New here? Read world_run() in world.c, then invariants.c: what is checked. programs.c makes the workflows, journal.c steps the
 * store and keeps what must be in it, attempts.c the activities, budgets.c what they may use, oracle.c what a run's output has to be. */
#pragma once

#include <stdio.h>

#include "daemon/children.h"
#include "daemon/engine.h"
#include "workflow/base/check.h"
#include "workflow/evidence/log_tree.h"
#include "workflow/language/expression.h"

enum {
	WORLD_EVENTS_MAX = 3000000, /* of one seed: more, and it will never come to rest */
	WORLD_DEFINITIONS = 4, /* the last one is what the others run as a child */
	STEP_SLOTS = 1024,
	KEPT_ENTRIES_MAX = 80, KEPT_BYTES_MAX = 32 << 10, /* of a run that --keep writes, */
	KEPT_RUNS = 2, /* … the first so many of each seed */
};

/* --- randomness --------------------------------------------------------------------------------------------------- */

struct random {
	uint64_t state;
};
uint64_t random_mix(uint64_t value); /* a hash of 64 bits */
uint64_t random_next(struct random *random);
uint64_t random_below(struct random *random, uint64_t bound);
uint64_t random_between(struct random *random, uint64_t low, uint64_t high); /* both included */
bool random_chance(struct random *random, unsigned per_mille);

/* --- what is known of a run, from committed entries alone --------------------------------------------------------- */

struct timer_model {
	int64_t due_ms; /* as it is written; 0: none */
	uint64_t at_us; /* when that much time will have gone by */
	unsigned boot, steps; /* when it was set: the engine's life, and how often the clock had been set forward */
};

struct step_model {
	struct step_model *next;
	char *id;
	unsigned attempt; /* the last one started */
	bool open; /* an attempt is started and not ended, on disk */
	bool started, ended; /* of the task */
	bool carried; /* … of another run, which this one was forked of */
	char key[DIGEST_HEX_LEN + 1];
	struct attempt *in_flight; /* an activity is under way */
	/* What the last answer allowed, and whether the journal has to say next that it will be tried again. */
	unsigned failures, allowed;
	int64_t floor_ms, cap_ms, after_ms;
	bool must_retry;
	struct spent spent; /* what the last answer told of it; without runtime: nothing */
	struct timer_model due, timeout, attempt_due; /* what it waits for */
	uint64_t ended_us;
	uint64_t last_event; /* consumed */
};

struct run_model {
	char id[ID_LEN_MAX + 1];
	const struct definition *definition; /* the one it was created with */
	bool created, acknowledged, ended, broken;
	bool suspended, was_suspended;
	enum entry_kind ended_by;
	struct timer_model timeout;
	struct run_model *fork_of; /* NULL: it is no fork */
	uint64_t fork_seq; /* of the first entry of the other run that is not its own past */
	bool detaches;
	const struct run_model *parent; /* NULL: it is no child */
	char *parent_step;
	bool is_awaited; /* no more once it was retried */
	bool was_awaited;
	unsigned retry_count;
	struct budget_amount budget, spent; /* what it may use of models, and what its committed entries say of that */
	struct attempt *up; /* of its parent, which counts it: its ledger hangs below that one's claim; NULL: none */
	unsigned depth;
	uint64_t ended_us;
	bool recovering; /* the next load of it is the restart's */
	int64_t wake_ms, rested_ms; /* its last entry says that it waits for nothing but times, and when it was written */
	uint64_t *seqs; /* of its entries */
	size_t seq_count, seq_cap;
	struct step_model *steps[STEP_SLOTS];
};

/* --- the store ---------------------------------------------------------------------------------------------------- */

struct stored_value {
	struct digest digest;
	struct bytes bytes; /* owned */
};

/* An entry as it was read back from the store, once. */
struct stored {
	struct bytes bytes; /* owned: the encoded entry */
	enum entry_kind kind;
	struct run_model *run; /* NULL: of no run */
	struct stored_value values[ENTRY_VALUES_MAX];
	size_t value_count;
	struct digest leaf;
};

struct journal {
	struct store *store; /* NULL: the daemon is away */
	struct store_options options;
	char origin[256];
	/* What must be in it from now on: taken in after each commit, before anybody is told of it. */
	struct stored *entries;
	size_t count, cap;
	struct log_tree tree;
	uint64_t old_size; /* a size and root from the middle, for a proof of consistency */
	struct digest old_root;
	uint64_t in_doubt; /* where the batch ends that was being written when the disk died; 0: none */
	uint64_t tail_checked; /* entries up to here were compared after a crash */
	/* Handed over and not answered: struct journal_append, struct journal_read. They die with the daemon. */
	struct list appends, reads;
	bool handover_due, turn_due, tell_due, tick_due;
	unsigned batches;
	bool has_lost; /* see lose_batch */
};

/* --- the world ---------------------------------------------------------------------------------------------------- */

struct world;
struct event {
	uint64_t at_us, order;
	unsigned boot; /* dies with this engine; 0: outlives it */
	void (*fire)(struct world *world, void *arg);
	void *arg;
};

struct attempt {
	struct list link;
	struct world *world;
	struct activity *activity;
	struct run_model *run;
	struct step_model *step;
	const struct task *task;
	struct step_id id;
	struct arena arena;
	uint64_t hash, started_us, event;
	bool cancelled, interrupted;
	/* What it will have spent; of the run's budget: what it asks for now, what it is to ask for when its prompt is counted (if it is), what it holds. See budgets.c. */
	struct spent spends;
	int64_t wanted, takes, held;
	bool counts_prompt, is_counted, waits, refused, cut_waiting; /* cut_waiting: called off, or interrupted, while it waited */
	void *owner;
	activity_done_cb on_done; /* of a child: the engine's, which hears of it through us */
};

struct counters {
	uint64_t retried, retries_refused, resumed, ended, completed, faulted, cancelled, crashes, stops, faults, loads, snapshots, from_snapshot, value_loads, parks, cancels, replays, retries, interruptions, facts,
		attempts, refused, caught, tries, fired, steps_clock, folds, waiting, pauses, resumes, evaluations, oracle_tasks, checks, children, attached, orphans, events, duplicates, offers, listeners, consumed, emitted,
		listens, left_alone, forks, forks_of_open, carried, spent /* attempts that say so */;
	uint64_t budgets, budgets_raised /* runs with one; retries that gave more */, budget_calls, budget_shared /* looks at the ledger of a run around one */, budget_waits, budget_turns, budget_refused, budget_ends /* faults of runs */;
	/* The disk's and the store's. */
	uint64_t dropped, dropped_bytes /* crashes that took unsynced writes away */, in_commit /* … in the middle of a commit */, in_open, kept_commits /* which was durable all the same */,
		full, full_refused, full_waited /* times that the disk became full; new work that was refused; appends that had to wait */, commits, checkpoints, deep_checks, purged, pruned, erased;
	uint64_t late, stale, doubled; /* answers after their cancellation; of attempts before the crash; given twice */
};

/* An event that the journal has. */
struct sent {
	uint64_t seq;
	int64_t time_ms;
	struct digest key;
	struct bytes bytes;
};

struct options {
	unsigned runs; /* 0: as the seed says */
	unsigned lose_batch; /* acknowledge the n-th commit (or the first one behind it that is acknowledged at all) and forget it, which no disk may do: the checks have to see it. 0: never */
	FILE *keep; /* runs that ended go there, see keep_run(); NULL: nowhere */
	bool verbose;
};

struct world {
	uint64_t seed;
	struct options options;
	struct random random;
	uint64_t now_us;
	int64_t wall_offset_ms;
	struct event *events; /* binary heap */
	size_t event_count, event_cap;
	uint64_t event_order;
	struct engine *engine;
	struct children children;
	unsigned boot;
	int64_t armed_ms; /* the deadline that the world sleeps until, and when that is: as daemon/ports.c does it */
	uint64_t armed_us;
	unsigned steps_forward;
	bool stopping, faults, first_failure_done;
	bool is_dropping; /* the engine goes away */
	struct journal journal;
	struct list attempts, settled; /* settled: see budgets.c */
	struct definition *definitions[WORLD_DEFINITIONS];
	struct bytes documents[WORLD_DEFINITIONS]; /* canonical, in the arena */
	bool definition_added[WORLD_DEFINITIONS];
	struct run_model **runs;
	size_t run_count, run_cap;
	struct digest *facts; /* hash set of payload digests */
	size_t fact_slots, fact_count;
	struct arena arena;
	struct counters counters;
	unsigned kept; /* runs */
	struct list clients;
	struct sent *sent; /* in order */
	size_t sent_count, sent_cap;
	struct list senders, listeners;
	unsigned feed_count, retries_planned, forks_planned;
	bool feeding;
};

int world_run(uint64_t seed, const struct options *options, struct counters *sum /* its figures are added to these */);
void world_at(struct world *world, uint64_t delay_us, bool with_engine, void (*fire)(struct world *, void *), void *arg);
uint64_t world_event(struct world *world, uint64_t delay_us, bool with_engine, void (*fire)(struct world *, void *), void *arg); /* gives its number */
void world_cancel_event(struct world *world, uint64_t order);
int64_t world_wall_ms(const struct world *world);
void world_crash(struct world *world);
struct run_model *world_run_model(struct world *world, const char *id);
struct run_model *world_add_run(struct world *world, const char *id);
void world_plan_fork(struct world *world, struct run_model *run); /* perhaps somebody forks it, soon or when it has long ended */
void world_plan_retry(struct world *world, struct run_model *run); /* it has faulted: perhaps somebody goes on with it */

struct entry definition_entry(struct world *world, unsigned number, struct arena *arena); /* definition.added */

/* Say what is broken, show the run's entries, exit 1. */
_Noreturn void broken(struct world *world, const struct run_model *run, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* programs.c */
struct bytes program_make(struct world *world, struct arena *arena, unsigned number, enum text_format *format);
struct bytes program_input(struct world *world, struct arena *arena);

/* journal.c: the store, ports of the engine */
void journal_set_up(void); /* once in the process */
void journal_format(struct world *world); /* an empty disk */
void journal_open(struct world *world); /* as often as it takes; compares what is there with what must be */
void journal_crash(struct world *world); /* the power goes, or only the process */
void journal_stop(struct world *world); /* a clean stop */
void journal_close(struct journal *journal); /* at the end of all */
int journal_append(void *world, struct store_append *append);
void journal_load_run(void *world, struct engine_load_run *load);
void journal_load_values(void *world, struct engine_load_values *load);
void journal_look(void *world, struct children_look *look); /* port of daemon/children.h */
/* Of the store itself: its open runs, in order, for a start. */
void journal_each_open_run(struct world *world, void (*each)(struct world *world, const struct store_open_run *run));
void journal_fill_disk(struct world *world, uint64_t left_bytes); /* somebody else takes all but so many */
void journal_check_deeply(struct world *world); /* every entry and value, tree, checkpoints, tables, proofs */
/* All entries of a run, decoded, with values up to value_max. */
struct entry *journal_entries(struct world *world, const struct run_model *run, struct arena *arena, uint64_t value_max, size_t *count);

/* attempts.c: ports of the engine */
int attempt_start(void *world, struct activity *activity, struct error *error);
void attempt_cancel(void *world, struct activity *activity);
void attempt_close(void *world, struct activity *activity);
void attempts_interrupt(struct world *world); /* the daemon goes away cleanly */

void attempt_go_on(struct attempt *attempt); /* its run's budget lets it */
void attempt_plan_end(struct attempt *attempt, uint64_t delay_us);

/* budgets.c */
void budgets_check_start(const struct attempt *attempt);
void budgets_begin(struct attempt *attempt);
void budgets_on_counted(struct attempt *attempt);
bool budgets_withdraw(struct attempt *attempt);
void budgets_settle(const struct attempt *attempt);
void budgets_forget(struct world *world, const struct activity *activity);
void budgets_note_step(struct world *world, struct run_model *run, const struct step_model *step, const struct entry *entry);
void budgets_note_run(struct world *world, struct run_model *run, const struct entry *entry);
void budgets_check_ended(struct world *world, struct run_model *run, const struct entry *entries, size_t count, const struct json *view);
const struct budget_amount *budgets_choose(struct random *random, struct budget_amount *budget); /* NULL: none */
const struct budget_amount *budgets_raise(struct random *random, const struct run_model *run, struct budget_amount *budget);

bool journal_has_open_run(const struct world *world);

/* events.c: senders, the hub (ports of the engine), a matcher of its own */
void events_add(struct world *world, const struct entry *entry);
bool events_know(const struct world *world, const struct digest *key);
const struct sent *events_find(const struct world *world, uint64_t seq);
void events_feed(struct world *world);
void events_listen(void *world, const char *run_id, const char *step_id, const struct task *task, struct definition *definition, int64_t since_ms, uint64_t after_seq);
void events_unlisten(void *world, const char *run_id, const char *step_id);
void events_forget_appends(struct world *world);
void events_forget_listeners(struct world *world);
void events_check_rest(const struct world *world);
void events_close(struct world *world);
/* What a listen has had so far, told from its definition's text alone. */
struct listening {
	uint64_t met, until_met;
	const struct json *room; /* that is expected; NULL: any */
	bool over; /* nothing more is wanted; where `until` is an expression the caller knows */
};
bool events_match(const struct json *to, struct listening *listening, const struct json *event, bool *is_until);

/* expressions.c: for programs.c, text of expressions that need jq; for oracle.c, what they have to give (NULL: none of them); a port of the engine */
const char *shape_value(struct random *random, struct arena *arena, unsigned loops);
const char *shape_number(struct random *random, struct arena *arena, unsigned loops);
const char *shape_condition(struct random *random);
const char *shape_items(bool few);
const struct json *shape_compute(struct arena *arena, const char *text, const struct scope *scope);
void expression_evaluate(void *world, struct engine_evaluate *request);
uint64_t expressions_close(void); /* how many were evaluated */

/* invariants.c */
struct step_model *model_step(struct run_model *run, const char *step_id, bool add);
void check_stored(struct world *world, struct run_model *run, const struct entry *entry); /* as it is committed */
void check_committed(void *world, const char *run_id, uint64_t seq_last, bool ended); /* port on_committed */
void check_start(struct world *world, const struct attempt *attempt);
void check_ended_run(struct world *world, struct run_model *run);
void check_rest(struct world *world); /* nothing is left to happen */

/* oracle.c: interpret the definition once more, plainly, with the recorded answers of the calls; compare every output. */
void oracle_check(struct world *world, struct run_model *run, struct arena *arena, const struct entry *entries, size_t count);
