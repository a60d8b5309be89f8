/* A fork: a new run whose state is that of another one as it was right before a task of it began, with what the caller wants otherwise
 * (C51, C52, C56). The other run, open or ended, is only read.
 *
 *   fork_find_*()  looks through its entries for the one with which the task began
 *   (the caller folds the entries before that one: workflow_apply())
 *   fork_carry()   makes of that state the records that the new run begins with, each to be an entry of its own (task.carried)
 *   workflow_decide(TRIGGER_SUBMITTED with `fork`)  writes them, and goes on from there
 *
 * What was under way then begins anew, as in a retry: calls and waits are entered again, what holds others goes on with new times.
 * Thread: any, one at a time. Pure. New here? Read fork_find_add(), then fork_carry(). */
#pragma once

#include "workflow/decide.h"

enum {
	FORK_RECORDS_MAX = 10000, /* of a state: a map has one for each iteration that is over */
	FORK_BYTES_MAX = 32 << 20, /* of all values that it holds: they are copied */
	FORK_SHOWN_MAX = 8, /* tasks that an error names, as far as they fit */
	FORK_KEPT_MAX = 100, /* children that run.created names */
	FORK_CHILD_ID_LEN = 32, /* what a child's id takes of its step's idempotency key (daemon/children.h) */
};

/* What becomes of runs that the other run had started before that task:
 * keep    the results of those that had ended stand, the new run names their ids; one that was awaited then is started anew, as a child of the new run
 * rerun   the new run begins with the first task that started one, where that comes before the task asked for: all of them run again
 * detach  results stand, and nothing is named; where one was awaited then, nobody waits: its task is over, as with `await: false` */
enum fork_children { FORK_KEEP, FORK_RERUN, FORK_DETACH };
const char *fork_children_name(enum fork_children children);
bool fork_children_parse(const char *text, enum fork_children *children);

/* --- where -------------------------------------------------------------------------------------------------------- */

struct fork_find {
	/* Asked for; borrowed. */
	struct arena *arena; /* of what is found */
	const struct definition *definition;
	const char *run_id;
	const char *from; /* a step id, a reference, or a task's name, both perhaps with "#" and iterations */
	enum fork_children children;
	/* Found. */
	uint64_t seq; /* of the entry with which the task began: the state is the fold of all before it; 0: it did not begin */
	const char *step;
	bool moved; /* children: rerun; it is not the task that was asked for, but one before it */
	struct json *kept; /* [run id] */
	size_t kept_more;
	struct digest labels; /* of run.created */
	uint64_t labels_id; /* where they are; 0: it has none */
	/* Its own. */
	const struct task *task;
	struct step_id id;
	bool has_execution;
	size_t steps; /* that match, and began here */
	const char *shown[FORK_SHOWN_MAX]; /* those that match; else the first that began at all */
	size_t shown_count, began;
	bool was_carried; /* it began before this run was forked itself */
	const char *child_step; /* the first task that started a child */
	uint64_t child_seq;
	const char *origin; /* the run that this one was forked of; NULL: none */
};
/* ERR_NOT_FOUND: the definition has no such task; ERR_INVALID: several have this name. */
int fork_find_begin(struct fork_find *find, struct error *error);
/* All entries of the run, in order; values are not needed. */
void fork_find_add(struct fork_find *find, const struct entry *entries, size_t count);
/* ERR_INVALID: it has not begun, or more than once: the error names what the fork can begin with. */
int fork_find_end(struct fork_find *find, struct error *error);

/* --- what --------------------------------------------------------------------------------------------------------- */

/* Of struct trigger. */
struct forking {
	const struct json *from; /* forkedFrom of run.created */
	struct bytes overrides; /* canonical JSON of what was asked for; kept as content */
	const char *reason; /* or NULL */
	struct bytes start; /* what the first list was given */
	const struct entry *carried; /* task.carried, all but runId; the first that names a value brings its bytes */
	size_t carried_count;
};

/* A value of the other run, whole. */
struct fork_source {
	int (*load)(void *context, struct arena *arena, uint64_t content_id, const struct digest *digest, struct bytes *bytes, struct error *error);
	void *context;
};
/* state: folded up to find->seq; it is changed, and good for nothing but state_close() afterwards. input: canonical JSON that the task is to be given, or
 * NULL. Fills in from, start, carried, and the run's own input. ERR_TOO_LARGE: FORK_RECORDS_MAX, FORK_BYTES_MAX; ERR_INVALID: the input cannot be replaced
 * there; or the source's own error. */
int fork_carry(struct state *state, const struct fork_find *find, const struct bytes *input, const struct fork_source *source, struct forking *forking,
	       struct bytes *run_input, struct error *error);

/* The definition's document with members of the `with` of some tasks replaced: {reference: merge patch (RFC 7396)}. ERR_INVALID: no such task, or it is no call that still
 * reads its arguments after the fork. What comes out has yet to be loaded. */
struct json *fork_patch_document(struct arena *arena, const struct definition *definition, const struct fork_find *find, const struct json *patches, struct error *error);

/* The state as for fork_carry(), before it: does what is set have an effect? ERR_INVALID: a task that was over when the fork's began, and that nothing begins again. Patches as fork_patch_document()
 * took them. */
int fork_check_patches(struct state *state, const struct fork_find *find, const struct json *patches, struct error *error);

/* "Equal content" of a fork: what was asked for. */
struct digest fork_request_digest(const char *run_id, const struct digest *overrides);
