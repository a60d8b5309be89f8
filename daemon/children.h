/* Children: runs that a task of another run starts (`run: {workflow}`). To the run around it a child is an activity like a call; what is
 * done for it is done here: find the definition, submit, watch, bring back the output or the error, cancel.
 *
 * The child's id follows from the idempotency key of the step, so an attempt that begins again after a crash finds the child it had and
 * attaches itself to it: however often it is started, there is one. The other way round a child whose parent ended, in the moment when
 * the daemon went away, is found at the next start: nobody claims it (children_sweep()).
 *
 *   looking ─▶ submitting ─▶ watching ─▶ looking (for what it gave) ─▶ done        cancelled at any time: ─▶ cancelling ─▶ done
 *      └────── it is there already ─▶ watching
 *
 * Thread: loop. No I/O of its own, so that a simulation runs it whole. New here? Read children_start(), then on_looked(). */
#pragma once

#include "daemon/engine.h"

enum {
	CHILDREN_MAX = 100000, /* attempts under way */
	CHILDREN_ID_LEN = 32, /* hex digits of the key that make the child's id */
	CHILDREN_RETRY_MS = 500, /* the first pause of an attempt that met a full queue */
	CHILDREN_RETRY_MAX_MS = 60000,
	CHILDREN_SWEEP_MS = 1000, /* between looks at children that nobody has claimed since the start */
};

/* What the journal knows of a child; and, where there is none yet, the definition that it would run. */
struct children_look;
struct children_look {
	/* Request; borrowed until on_done. */
	const char *run_id, *namespace, *name, *version; /* version NULL: the highest */
	bool wants_values; /* output and error of a run that has ended */
	void (*on_done)(struct children_look *look);
	void *owner;
	/* Result. */
	struct arena arena; /* initialised by the port; closed by the owner */
	bool is_there; /* the run is */
	enum run_status status; /* RUN_RUNNING: it has not ended */
	const char *parent_run, *parent_step; /* "" when it is nobody's child */
	struct bytes output, run_error, reason; /* canonical JSON; data NULL: none */
	struct budget_amount spent; /* of a run that has ended: what it used of models */
	const char *workflow_version; /* of the run, or of the definition */
	struct definition *definition; /* one use, the owner's; NULL: there is none, or the run is there */
	struct error error; /* ERR_NONE, ERR_BUSY, ERR_CORRUPT … */
};

struct children_ports {
	void *arg;
	void (*look)(void *arg, struct children_look *look); /* answers later, never inside the call */
	uint64_t (*now_us)(void *arg);
	int64_t (*wall_ms)(void *arg);
};

struct children {
	struct children_ports ports;
	struct engine *engine;
	size_t most; /* CHILDREN_MAX; a test takes less */
	struct list active; /* struct child */
	struct list unclaimed; /* struct orphan: awaited children that were open when the daemon went away */
	size_t count;
	bool stopping, is_closing;
	uint64_t started, attached, orphans; /* since the start */
};

void children_init(struct children *children, const struct children_ports *ports);
/* The engine's ports for ACTIVITY_RUN. ERR_BUSY past CHILDREN_MAX, ERR_TOO_LARGE past RUN_DEPTH_MAX. */
int children_start(struct children *children, struct activity *activity, struct error *error);
void children_cancel(struct children *children, struct activity *activity);
/* No run is held any more (engine_ports.on_tree_done): those that waited for that are submitted. */
void children_go_on(struct children *children);
/* At a start, before the engine recovers the run: it is open, and its parent waited for it. */
void children_add_open(struct children *children, const char *id, const char *parent_run, const char *parent_step);
/* Cancel those whose parents do not wait for them any more. True: some have not been decided on, look again later. */
bool children_sweep(struct children *children);
/* The daemon stops: the callback of each activity fires, with FAILURE_INTERRUPTED; the children themselves go on at the next start. */
void children_stop(struct children *children);
bool children_are_quiet(const struct children *children); /* nothing of it is under way any more */
/* As if the process had died: call before engine_drop(), then children_close() behind it. */
void children_abandon(struct children *children);
void children_close(struct children *children);
