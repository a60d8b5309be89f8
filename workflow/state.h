/* The state of one run: the fold of its entries. Pure.
 *
 * There is one fold, workflow_apply(). It is used twice: after a commit on the real state, and inside a decision on a
 * *draft*, a thin layer over the real state, so that one decision can look several steps ahead without changing anything
 * that is not yet durable. A draft copies an instance when it first changes it; dropping the draft undoes all.
 *
 * Threads: one at a time (the loop). New here? Read workflow_apply() in state.c, then decide.h. */
#pragma once

#include "workflow/base/budget.h"
#include "workflow/base/failure.h"
#include "workflow/base/id.h"
#include "workflow/base/list.h"
#include "workflow/entry.h"
#include "workflow/language/definition.h"

enum {
	STATE_LOOP_DEPTH_MAX = STEP_LOOPS_MAX,
	/* Events that a run remembers to have consumed, so that no later listener of it gets one of them from before it began: the last ones. */
	STATE_EVENTS_REMEMBERED_MAX = 10000,
	STATE_INLINE_BYTES_MAX = 4 << 20, /* of small values in memory; past it outputs of a map's iterations are known by digest and place alone */
};
_Static_assert((int)STATE_LOOP_DEPTH_MAX == (int)DEFINITION_LOOPS_MAX, "every path that a definition can have fits");

/* A value of the run. Small ones are here in full; larger ones are known by digest and place and loaded when needed. */
struct value {
	struct digest digest;
	uint64_t size;
	uint64_t content_id; /* CONTENT_ID of where it was first named; 0: not known (or in a draft) */
	struct bytes bytes; /* data NULL: not in memory */
	const struct json *json; /* drafts only: parsed already */
	unsigned use_count; /* real state only: slots that hold it */
	uint32_t place; /* state_snapshot.c: among all that are written */
	struct value *next; /* in its hash chain */
};

enum run_status { RUN_PENDING, RUN_RUNNING, RUN_WAITING, RUN_SUSPENDED, RUN_CANCELLED, RUN_FAULTED, RUN_COMPLETED };
const char *run_status_name(enum run_status status);
bool run_status_parse(const char *name, enum run_status *status);
bool run_status_ended(enum run_status status);
/* What an entry makes of its run's status: all that the fold, the table of runs and the run document know of it. */
enum run_status run_status_after(enum run_status status, const struct entry *entry);

/* A do or for whose children are under way is STARTED, as is a call whose attempt is. What waits for a time only is BACKING_OFF: a call or a
 * try before its next attempt, and a `wait`; and a `listen` that waits for an event.
 *
 *   started ─▶ completed      started ─▶ backing_off ─▶ started
 *   started ─▶ faulted        started, backing_off ─▶ cancelled          (nothing) ─▶ completed, skipped, faulted: pure tasks */
enum instance_phase { INSTANCE_NONE, INSTANCE_STARTED, INSTANCE_BACKING_OFF, INSTANCE_COMPLETED, INSTANCE_FAULTED, INSTANCE_CANCELLED, INSTANCE_SKIPPED };
const char *instance_phase_name(enum instance_phase phase);

/* One task being run, at one iteration path; or, with is_body, one iteration of a `for` (its list of tasks). */
struct instance {
	const struct task *task;
	bool is_body;
	uint64_t path[STATE_LOOP_DEPTH_MAX];
	uint8_t path_count;

	enum instance_phase phase;
	/* How often this reference was entered at this path (semantics.md 3). Records of iterations that are over are dropped, and what a loop
	 * that is entered again counts on from is `floor`: the highest number that anything in its earlier executions had. */
	uint64_t execution;
	uint64_t scope; /* execution of the loop around it when it was entered: of an earlier one, it counts as forgotten */
	uint64_t floor, used; /* for: numbers inside begin after floor; the highest one given so far */
	struct value *input, *output;
	int64_t started_ms;

	/* Sequences: do tasks, iterations, the root. */
	size_t cursor; /* the next task of the list to start */
	bool child_live; /* the task before the cursor's is under way */
	struct value *context; /* of an iteration of a map or a branch of a fork: what was exported inside it; of a competing fork: what its winner
				* exported; NULL: as around it */
	struct value *current; /* output of the task before the cursor; a chained for: of the iteration before */

	/* for: all of them; an iteration of a listen: the event that it is for, as long as something may ask for it */
	struct value *items;
	/* listen: item_count events have been consumed that belong to its output, each an iteration */
	uint64_t item_count, next_iteration, done_count, live_count;
	/* fork: next_iteration is the next branch to start */
	size_t winner; /* the branch that completed first, counted from 1; 0: none yet */
	bool exited; /* chained: an iteration said `exit` (D8), no further one begins */

	/* listen: see struct event_progress */
	int64_t since_ms; /* events before that are none of its */
	uint64_t last_seq; /* of the event consumed last; 0: none yet */
	uint64_t met, until_met;
	struct value *correlation;
	bool satisfied; /* no further event is wanted */

	/* try */
	bool in_handler; /* its list is catch.do, not try */
	struct value *error; /* what was caught; while its handler runs */
	int64_t attempt_due_ms, retry_until_ms; /* ends of this attempt and of all; 0: none */

	/* call; try counts its attempts too */
	unsigned attempt; /* the last one started; 0: none */
	unsigned failures; /* attempts that count against the retry policy: interruptions do not (C38) */
	bool in_flight;
	int64_t attempt_ms; /* when the last one started */
	struct value *with;
	int64_t due_ms; /* backing off until; wait: its end */
	int64_t waits_since_ms; /* while the phase is BACKING_OFF; of an attempt that waits for a child: since its start, else 0 */
	int64_t timeout_ms; /* any task: when it is over; 0: never */

	uint64_t start_seq;
	/* A branch of a fork that was cut off by the run's fault, and will be entered again; a fork: how many of its branches are like that. */
	uint64_t again;
	bool copied; /* drafts only: a changed copy of the base's */
	bool base_live; /* drafts only: a copy of one that is in the base's list of live ones */
	/* In the order of starting, while the phase is STARTED or BACKING_OFF. A draft's list holds those that began in it and are not in the base's. */
	struct list live;
	struct instance *next; /* in its hash chain */
};

/* An entry that ends a task without an output, and is not folded in yet: see state_settle(). */
struct closing {
	char *step;
	enum entry_kind kind;
	uint64_t seq;
	int64_t time_ms;
};

struct state {
	const struct state *base; /* a draft lies over it; NULL: the real state */
	struct arena *arena; /* drafts only: the decision's */
	const struct definition *definition;

	char id[ID_LEN_MAX + 1];
	enum run_status status;
	bool killed;
	bool carries; /* a fork, of which more records are to come: task.carried */
	bool ended_early; /* a task ended it (`then: end`); what is left is its output, in the same decision */
	struct value *input, *output, *error;
	struct value *context; /* what was exported last; NULL: {} (D3) */
	unsigned retry_count; /* how often it was gone on with */
	unsigned depth; /* runs around it, of which each is a child of the next */
	char *parent_run, *parent_step; /* NULL: it is no child; a draft's are the base's */
	char *forked_from; /* of a fork: forkedFrom of its run.created, canonical JSON; NULL: it is none; a draft's is the base's */
	int64_t created_ms, ended_ms, timeout_ms; /* timeout: when the run is over; 0: never */
	int64_t suspended_ms; /* since when; 0: it is not */
	uint64_t seq_first, seq_last, entry_count;
	uint64_t fact_count, rejected_count;
	struct budget_amount budget, spent; /* budget: what it may use of models; spent: what its attempts and the children that it awaited have used */
	struct value *emitted; /* between event.emitted and the end of its task */
	uint64_t *consumed; /* events, the last STATE_EVENTS_REMEMBERED_MAX; a draft's: those that it adds */
	size_t consumed_count, consumed_cap;
	size_t in_flight_count, awaiting_count, backing_off_count, listening_count; /* instances; awaiting: those in flight that are a child's; listening:
										      * those backing off that wait for an event. See state_only_waits() */

	struct instance **instances; /* hash table, chained */
	size_t instance_slots, instance_count;
	struct value **values;
	size_t value_slots, value_count, inline_bytes;
	struct list live;
	struct closing *closings; /* real state only */
	size_t closing_count, closing_cap;
	uint64_t failed_seq; /* of the last task that faulted without having been under way; 0: none */
};

void state_init(struct state *state, const struct definition *definition);
void state_close(struct state *state);
/* The draft must be dropped (nothing to free: it lives in the arena) before the base changes. */
void state_draft(struct state *draft, const struct state *base, struct arena *arena);

/* Fold one entry in. ERR_CORRUPT when it cannot follow what was there: the entry, what was expected.
 * A fault ends task after task outwards, and only the last entry says whether it has ended the run too. A run that it ended keeps the state from before
 * that, from which run.retried goes on. So the real state holds such entries back until another one, or one of another decision, follows, or state_settle() says that none does: to
 * be called where the entries of a commit end, before anybody looks at the state. */
int workflow_apply(struct state *state, const struct entry *entry, struct error *error);
void state_settle(struct state *state);
/* ERR_EXISTS and why, for people: only a run that has faulted, and not for its input, can be gone on with. */
int state_may_retry(const struct state *state, struct error *error);

/* Looks through a draft. NULL: never entered. */
const struct instance *state_find(const struct state *state, const struct task *task, bool is_body, const uint64_t *path, size_t path_count);
/* `$context` of a task at this path: exports inside an iteration of a map or a branch of a fork are seen inside it only. NULL: {}. */
struct value *state_context(const struct state *state, const struct task *task, const uint64_t *path);
const struct instance *state_root(const struct state *state);
/* The number that the next entry into this task at this path has. */
uint64_t state_next_execution(const struct state *state, const struct task *task, const uint64_t *path, size_t path_count);
/* The instance a step id names. NULL when unknown. *execution (may be NULL) is the one of the id. */
const struct instance *state_find_step(const struct state *state, const char *step_id, struct arena *arena, uint64_t *execution);
struct value *state_find_value(const struct state *state, const struct digest *digest);
/* This event was consumed by a listener of the run, not too many events ago. */
bool state_has_consumed(const struct state *state, uint64_t event_seq);
/* The listen waits for an event now: not for what becomes of the one before. */
bool instance_listens(const struct instance *instance);
/* The list that this sequence goes through. */
const struct task_list *state_list(const struct instance *sequence);
/* What the instance waits for next, and until when: the wait itself before a timeout of the same time. 0: nothing. */
enum instance_timer { TIMER_DUE, TIMER_ATTEMPT, TIMER_TIMEOUT };
int64_t instance_next_timer(const struct instance *instance, enum instance_timer *timer);
/* Earliest time at which something is due; 0: nothing is, or the run is suspended. */
int64_t state_next_deadline_ms(const struct state *state);
/* Before this entry is folded in: it ends a time in which a task only waited for a timer or a child, or the run for its operator, since *since_ms
 * (semantics.md 8: queued). *cut_off: an attempt that the daemon's end cut off, of which nothing is known from its start on, waited for the daemon. */
bool state_ends_wait(const struct state *state, const struct entry *entry, int64_t *since_ms, bool *cut_off);
/* Nothing in flight, nothing to do at once: may leave memory. */
bool state_is_idle(const struct state *state);
/* Nothing is in flight but children, and something waits for a timer, an event or a child: status `waiting`, unless a decision stopped at its limit. */
bool state_only_waits(const struct state *state);
/* It waits, and for nothing but times: nobody has to look at it before the first of them. 0: there is none, or something else may come first. */
int64_t state_wakes_ms(const struct state *state);
/* All of a run that has not ended, without the bytes of its values: a cache, from which a start goes on instead of from the first entry.
 * It is only of use to the same program version, which has the same fold. */
void state_snapshot_print(const struct state *state, const char *program_version, struct buffer *out);
/* Into a state that state_init() made. ERR_CORRUPT: damaged, or of another version or definition: close the state and fold the entries. */
int state_snapshot_read(struct state *state, struct bytes bytes, const char *program_version, struct error *error);
/* A digest over everything that decides how the run goes on: two states with equal digests behave alike. For tests and replay. */
struct digest state_digest(const struct state *state);
