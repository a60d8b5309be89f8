/* What state_snapshot.c and fork.c need of state.c, and nobody else includes. */
#pragma once

#include "workflow/state.h"

/* A new value, held by no slot yet. */
struct value *state_add_value(struct state *state, const struct digest *digest);
/* The slot holds the value from now on, and what it held before no more. */
void state_set_value(struct state *state, struct value **slot, struct value *value);
/* Of an instance whose members were filled in (1), or are about to change (-1): what state_only_waits() asks for. */
void state_count_waiting(struct state *state, const struct instance *instance, int by);
void state_remember_consumed(struct state *state, uint64_t event_seq);
/* A new record, in its table but in no list. NULL: there is one already. */
struct instance *state_add_instance(struct state *state, const struct task *task, bool is_body, const uint64_t *path, size_t path_count);
/* The list whose turn it is to begin (task, path), for changing; of an iteration that has not begun, it is begun. NULL: there is none. */
struct instance *state_begin_list(struct state *state, const struct task *task, const uint64_t *path, size_t path_count);
/* A call or a wait that was under way: its list is where it stood before it was entered. */
void state_cut_off(struct state *state, struct instance *instance);
/* Of a record that stays for its numbers only. */
void state_release_values(struct state *state, struct instance *instance);

/* What task.carried says of a record (workflow/entry.h), for ever: X(member, name). Times are milliseconds. */
#define CARRIED_NUMBERS(X)                                                                                                                              \
	X(execution, "execution") X(scope, "scope") X(floor, "floor") X(used, "used") X(started_ms, "startedMs") X(cursor, "cursor")                 \
	X(child_live, "childLive") X(item_count, "items") X(next_iteration, "next") X(done_count, "done") X(live_count, "live") X(winner, "winner")  \
	X(exited, "exited") X(in_handler, "inHandler") X(attempt_due_ms, "attemptDueMs") X(retry_until_ms, "retryUntilMs") X(attempt, "attempt")     \
	X(failures, "failures") X(due_ms, "dueMs") X(waits_since_ms, "waitsSinceMs") X(timeout_ms, "timeoutMs") X(again, "again")                    \
	X(since_ms, "sinceMs") X(last_seq, "lastSeq") X(satisfied, "satisfied") X(start_seq, "startSeq")
#define CARRIED_MASKS(X) X(met, "met") X(until_met, "untilMet") /* in hex: more bits than a number has */
#define CARRIED_VALUES(X) \
	X(input, "input") X(output, "output") X(context, "context") X(current, "current") X(items, "in") X(error, "error") X(correlation, "correlation")
