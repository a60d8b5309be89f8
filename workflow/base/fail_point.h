/* Fail points: places with a name where a test ends the process as kill -9 would, or has the operation fail. They exist only in builds
 * with -Dfail_points=true (those of the tests); in all others FAIL_POINT() is nothing, not even its name.
 *
 *   REPRISE_FAIL_POINT=NAME[:N[:WHAT]]   at the N-th pass (1): `kill` the process (SIGKILL), or `error` (an I/O error), `full` (no space).
 *   REPRISE_FAIL_RUN=ID[:segv]           deciding this run ends in a CHECK, or in a fault of memory.
 *
 * `reprised --fail-points` lists them with what they can do; tests/crash/fail_points.mjs goes through all of them. To add one: a line in
 * FAIL_POINTS and FAIL_POINT() where it is. Any thread. Source: lessons.md 3. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "workflow/base/error.h"

/* X(constant, "name", can fail too) in the order in which a process comes to them. */
#define FAIL_POINTS(X)                                                                                    \
	/* the start: store.c, commit.c, migrate.c, signer.c, start.c */                                  \
	X(OPEN_LOCKED, "open.locked", true)                                                               \
	X(MIGRATE_BEGUN, "migrate.begun", true)                                                           \
	X(MIGRATE_BEFORE_COMMIT, "migrate.before-commit", true)                                           \
	X(MIGRATE_COMMITTED, "migrate.committed", false)                                                  \
	X(KEY_WRITTEN, "key.written", false)                                                              \
	X(KEY_LINKED, "key.linked", false)                                                                \
	X(OPEN_KEYS, "open.keys", true)                                                                   \
	X(OPEN_BEGUN, "open.begun", false)                                                                \
	X(OPEN_VERIFIED, "open.verified", true)                                                           \
	X(START_RECORDED, "start.recorded", false)                                                        \
	X(RECOVER_RUN, "recover.run", false)                                                              \
	X(START_RECOVERED, "start.recovered", false)                                                      \
	X(RECOVER_PAGE, "recover.page", false)                                                            \
	X(RECOVER_LOADED, "recover.loaded", false)                                                        \
	X(START_SERVED, "start.served", false)                                                            \
	/* what a client asks for: engine.c, api_*.c */                                                    \
	X(DEFINITION_RECEIVED, "definition.received", false)                                              \
	X(DEFINITION_RECORDED, "definition.recorded", false)                                              \
	X(DOCUMENT_RECORDED, "document.recorded", false)                                                  \
	X(SUBMIT_RECEIVED, "submit.received", true)                                                       \
	X(SUBMIT_DECIDED, "submit.decided", false)                                                        \
	X(SUBMIT_ANSWERED, "submit.answered", false)                                                      \
	X(FORK_RECEIVED, "fork.received", false)                                                          \
	X(FORK_SUBMITTED, "fork.submitted", false)                                                        \
	X(FORK_ANSWERED, "fork.answered", false)                                                          \
	X(CANCEL_RECEIVED, "cancel.received", false)                                                      \
	X(CANCEL_COMMITTED, "cancel.committed", false)                                                    \
	X(TREE_RECEIVED, "tree.received", false)                                                          \
	X(TREE_DECIDED, "tree.decided", false)                                                            \
	X(TREE_COMMITTED, "tree.committed", false)                                                        \
	X(TREE_APPLIED, "tree.applied", false)                                                            \
	X(EVENT_RECEIVED, "event.received", false)                                                        \
	X(EVENT_RECORDED, "event.recorded", false)                                                        \
	X(EVENT_OFFERED, "event.offered", false)                                                          \
	X(EVENT_CONSUMED, "event.consumed", false)                                                        \
	X(SCHEDULE_TICK, "schedule.tick", false)                                                          \
	X(SCHEDULE_RECORDED, "schedule.recorded", false)                                                  \
	/* one decision: engine.c */                                                                       \
	X(DECIDE_BEGUN, "decide.begun", false)                                                            \
	X(DECIDE_DONE, "decide.done", false)                                                              \
	/* one append: commit.c, tables.c */                                                               \
	X(APPEND_TAKEN, "append.taken", true)                                                             \
	X(APPEND_BEGUN, "append.begun", true)                                                             \
	X(APPEND_ENTRY, "append.entry", true)                                                             \
	X(APPEND_CONTENT, "append.content", true)                                                         \
	X(APPEND_SNAPSHOT, "append.snapshot", true)                                                       \
	X(TABLE_RUN, "table.run", true)                                                                   \
	X(TABLE_RUN_ENTRIES, "table.run-entries", true)                                                   \
	X(TABLE_FACT, "table.fact", true)                                                                 \
	X(TABLE_EVENT, "table.event", true)                                                               \
	X(TABLE_DEFINITION, "table.definition", true)                                                     \
	X(TABLE_SCHEDULE, "table.schedule", true)                                                         \
	X(APPEND_BEFORE_COMMIT, "append.before-commit", true)                                             \
	X(APPEND_COMMITTED, "append.committed", false)                                                    \
	X(APPEND_HANDED_BACK, "append.handed-back", false)                                                \
	X(APPEND_HEARD, "append.heard", false)                                                            \
	X(CHUNK_BEFORE_COMMIT, "chunk.before-commit", true)                                               \
	X(CHUNK_COMMITTED, "chunk.committed", false)                                                      \
	/* what follows: engine.c, children.c */                                                           \
	X(APPLY_BEGUN, "apply.begun", false)                                                              \
	X(APPLY_DONE, "apply.done", false)                                                                \
	X(EFFECT_RELEASED, "effect.released", false)                                                      \
	X(EFFECTS_DONE, "effects.done", false)                                                            \
	X(ACTIVITY_START, "activity.start", false)                                                        \
	X(ACTIVITY_STARTED, "activity.started", false)                                                    \
	X(ACTIVITY_DONE, "activity.done", false)                                                          \
	X(ACTIVITY_CANCELLED, "activity.cancelled", false)                                                \
	X(CHILD_START, "child.start", false)                                                              \
	X(CHILD_STARTED, "child.started", false)                                                          \
	X(CHILD_ENDED, "child.ended", false)                                                              \
	X(CHILD_CANCEL, "child.cancel", false)                                                            \
	X(TIMER_DUE, "timer.due", false)                                                                  \
	X(RUN_ENDED, "run.ended", false)                                                                  \
	X(RUN_PARKED, "run.parked", false)                                                                \
	X(SINK_DELIVERED, "sink.delivered", false)                                                        \
	X(SINK_RECORDED, "sink.recorded", false)                                                          \
	/* beside it: commit.c */                                                                          \
	X(CHECKPOINT_BEGUN, "checkpoint.begun", true)                                                     \
	X(CHECKPOINT_COMMITTED, "checkpoint.committed", false)                                            \
	X(ANCHOR_WRITTEN, "anchor.written", false)                                                        \
	X(ANCHOR_RENAMED, "anchor.renamed", false)                                                        \
	X(WAL_COPY, "wal.copy", false)                                                                    \
	X(WAL_COPIED, "wal.copied", false)                                                                \
	/* what is taken away: commit.c */                                                                \
	X(RETENTION_BEGUN, "retention.begun", true)                                                       \
	X(RETENTION_BEFORE_COMMIT, "retention.before-commit", true)                                       \
	X(RETENTION_COMMITTED, "retention.committed", false)                                              \
	/* a backup: backup.c */                                                                          \
	X(BACKUP_BEGUN, "backup.begun", true)                                                             \
	X(BACKUP_COPIED, "backup.copied", true)                                                           \
	X(BACKUP_VERIFIED, "backup.verified", true)                                                       \
	X(BACKUP_LINKED, "backup.linked", false)                                                          \
	/* the end: shutdown.c, start.c, store.c */                                                        \
	X(STOP_BEGUN, "stop.begun", false)                                                                \
	X(STOP_FAREWELL, "stop.farewell", false)                                                          \
	X(CLOSE_BEGUN, "close.begun", false)                                                              \
	X(CLOSE_JOINED, "close.joined", false)                                                            \
	X(CLOSE_SIGNED, "close.signed", false)                                                            \
	X(STOP_CLOSED, "stop.closed", false)

#ifdef REPRISE_FAIL_POINTS
enum fail_point {
#define FAIL_POINT_CONSTANT(constant, name, fails) FAIL_POINT_##constant,
	FAIL_POINTS(FAIL_POINT_CONSTANT)
#undef FAIL_POINT_CONSTANT
	FAIL_POINT_COUNT
};

/* True: this pass is to fail, *error says so. Does not come back from one that is to kill. */
bool fail_point_pass(enum fail_point point, struct error *error);
/* What REPRISE_FAIL_POINT says; NULL: none. Once, before there are threads. ERR_INVALID: there is no such point, or it cannot do that. */
int fail_points_arm(const char *text, struct error *error);
/* One a line: its name, and what it can do beside `kill`. */
void fail_points_print(FILE *out);

/* What REPRISE_FAIL_RUN says, which stays with the caller; NULL: none. */
void fail_point_arm_run(const char *text);
void fail_point_run(const char *id);

#define FAIL_POINT_RUN(id) fail_point_run(id)
#define FAIL_POINT(constant) ((void)fail_point_pass(FAIL_POINT_##constant, NULL))
#define FAIL_POINT_FAILS(constant, error) fail_point_pass(FAIL_POINT_##constant, error)
#else
#define FAIL_POINT_RUN(id) ((void)0)
#define FAIL_POINT(constant) ((void)0)
#define FAIL_POINT_FAILS(constant, error) ((void)(error), false)
#endif
