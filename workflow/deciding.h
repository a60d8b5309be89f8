/* What the decide_*.c files share, and nobody else includes: the decision being made, and the steps it is made of.
 *
 * Everything lives in the decision's arena. A function that needs a value which is not at hand returns without one and the decision's
 * needs say which (decide.h): its callers give up then, check decide_stopped(), and what they emitted is dropped. */
#pragma once

#include "workflow/decide.h"

/* A place in the tree where something may go on: a sequence (do, iteration, root) or a loop. */
struct place {
	const struct task *task;
	bool is_body;
	uint64_t path[STATE_LOOP_DEPTH_MAX];
	size_t path_count;
};

/* One after the other the expressions of a task ask for the same few values: its input, the run's, the arrays of the loops around it. */
enum { PARSED_KEPT = 4 };

struct deciding {
	const struct state *base;
	struct state draft;
	struct decision *decision;
	struct arena *arena;
	const struct trigger *trigger;
	const struct decide_context *context;
	struct place *queue;
	size_t queue_head, queue_tail, queue_cap;
	struct {
		const struct value *value;
		const struct json *json;
	} parsed[PARSED_KEPT]; /* the last ones, in turn */
	size_t parsed_next;
	uint32_t *need_slots; /* hash set over the decision's needs: index + 1, 0 is free; a loop can need the outputs of all iterations */
	size_t need_slot_count;
	struct entry_value *remade; /* values that the state knows and has not in memory, and that this decision has made again */
	size_t remade_count, remade_cap;
	struct json *results; /* of evaluations since the last entry: the next one carries them */
	size_t result_bytes;
	size_t evaluation_needs;
	/* What could be committed as it stands: see context.settle. */
	size_t safe_entries, safe_effects;
	bool safe, safe_inside; /* inside: behind the trigger's first entry, so that CONTINUE has to follow */
	struct value *raw_output; /* of the call that is being completed, until an entry carries it */
	/* Of the trigger at hand: the limits count per trigger, so that replay stops where the decision did. */
	size_t entries_before, made_bytes;
	bool ended; /* the run has ended in the draft, or asked to be continued: nothing more is started */
};

/* What an expression sees. */
struct scope_context {
	struct deciding *d;
	const struct task *task;
	const uint64_t *path;
	size_t path_count;
	struct value *input; /* `.` */
	const struct json *caught; /* of a catch's conditions: the error, which is "." and $as then */
	const struct task *inside; /* `while`: the loop's variables are bound as for this task of its list; NULL: as for `task` */
	struct value *transformed; /* $input; NULL: the same */
	struct value *raw_input, *raw_output; /* of $task; NULL: the input is what the list around it holds, the output is not there yet */
	struct value *output; /* $output */
	const struct json *self; /* what "." is instead of the input; NULL: it is the input */
	const struct instance *listener; /* of `until`: "." is the array of its events so far and of `self`; made when it is asked for */
};

/* Why a value could not pass. */
struct flaw {
	bool is_schema;
	struct error error;
};

/* What of all that is under way ends. */
struct ending {
	const struct task *within; /* only what is in it; NULL: all */
	bool strictly; /* not `within` itself */
	const struct task *around; /* itself and what is around it ends with the error or the output; all else as cancelled. May be NULL */
	const uint64_t *path; /* of the longer of the two */
	struct value *error, *output;
};

enum verdict { VERDICT_NO, VERDICT_YES, VERDICT_UNKNOWN /* values are missing, or a condition cannot be evaluated: *error */ };

/* A task that was begun is done already; has a list to go on with; or is under way, has faulted, or all stopped. */
enum flow { FLOW_NEXT, FLOW_INSIDE, FLOW_WAIT };

/* --- decide_values.c --- */

/* The entry is added, with an empty data object, and folded in by decide_emit(). */
struct entry *decide_new_entry(struct deciding *d, enum entry_kind kind);
void decide_emit(struct deciding *d, struct entry *entry);
struct effect *decide_new_effect(struct deciding *d, enum effect_kind kind);
bool decide_stopped(const struct deciding *d);
void decide_need_result(struct deciding *d, const struct digest *digest, const struct evaluation *evaluation);
/* NULL: it has to be loaded first, and the decision says so. */
const struct json *decide_value_json(struct deciding *d, const struct value *value);
/* A value of this decision: canonical bytes and digest. Not yet carried by any entry unless the run knows it already. */
struct value *decide_value_of_bytes(struct deciding *d, const struct json *json, struct bytes bytes);
struct value *decide_make_value(struct deciding *d, const struct json *json);
/* Of a value that was made by this decision, for an entry that always carries it. */
struct bytes decide_bytes(const struct deciding *d, const struct value *value);
/* What an expression or a loop put together, or a peer answered: a few tasks can make much of little, and what is committed must be
 * readable for ever. NULL and an error past DECISION_VALUE_MAX or JSON_DEPTH_MAX. */
struct value *decide_make_bounded(struct deciding *d, const struct json *json, struct error *error);
/* data[name] names the value; the first entry that names a new one carries it. */
void decide_name_value(struct deciding *d, struct entry *entry, const char *name, struct value *value);
/* Values that nothing in the state holds (records, requests, answers): always carried. */
void decide_carry(struct deciding *d, struct entry *entry, const char *name, struct bytes bytes);
const char *decide_step_text(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, uint64_t execution, char key[DIGEST_HEX_LEN + 1]);
struct entry *decide_new_step_entry(struct deciding *d, enum entry_kind kind, const char *step);
struct entry *decide_new_task_entry(struct deciding *d, enum entry_kind kind, const struct task *task, const uint64_t *path, uint64_t execution);

/* --- decide_expressions.c --- */

/* The three ways out of an evaluation: a result; NULL and needs; NULL and an error. */
const struct json *decide_evaluate(struct deciding *d, struct scope_context *s, const struct json *template, const char *expression, struct error *error);
/* A duration, which an expression may give. False: the decision needs values, or *error says what is wrong. NULL is none: 0. */
bool decide_read_duration(struct deciding *d, struct scope_context *s, const struct json *template, int64_t *ms, struct error *error);
void decide_set_time(struct deciding *d, struct entry *entry, const char *name, int64_t wall_ms);
/* What becomes of a value on its way in or out (dsl.md 1.2). An input has to fit its schema as it comes, all else as it goes. NULL: values
 * have to be loaded first, or the flaw says why not. name: what the definition calls it. */
struct value *decide_apply_transform(struct deciding *d, struct scope_context *s, const struct transform *transform, const char *name, struct flaw *flaw);
/* What the list around a task gives it: its raw input. Kept by the list until the task is over. */
struct value *decide_find_raw_input(const struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count);

/* --- decide_faults.c --- */

struct json *decide_error_json(struct deciding *d, const char *type, int status, const char *title, const char *detail, const char *instance, const char *class);
void decide_end_run(struct deciding *d, struct entry *entry);
/* Innermost first. */
void decide_end_live(struct deciding *d, const struct ending *ending);
struct json *decide_flaw_json(struct deciding *d, const struct flaw *flaw, const char *instance);
/* Of the workflow itself: no task is under way. */
void decide_fault_run(struct deciding *d, const struct json *error);
void decide_complete_run(struct deciding *d, struct value *output);
/* The one place where a task completes. input: of a pure task, whose only entry this is; else NULL, it has started. output: the raw one.
 * then: where its list goes on, if not where the task says; `end` ends the run here. False: values have to be loaded first, or it has
 * faulted. */
bool decide_complete_task(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, struct value *input, struct value *output,
			  const struct then *then);
/* The try catches this error, and nothing in it is under way any more: again, or catch.do, or it is done (D6). */
void decide_handle_error(struct deciding *d, const struct instance *try, const struct json *caught, struct value *value);
/* Does this try, whose list the error comes out of, catch it? */
enum verdict decide_catches(struct deciding *d, const struct instance *try, const struct json *caught, struct error *error);
/* A fault goes outwards, ending what it meets, until a try catches it; or it is the fault of the run. */
void decide_fault_task(struct deciding *d, const struct task *task, const uint64_t *task_path, size_t path_count, const struct json *error);
void decide_fault_expression(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, const struct error *error);
/* `raise`: what the author wrote, with the expressions in it evaluated; the instance is ours to say. */
void decide_raise_error(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, const struct json *written);

/* --- decide_tasks.c --- */

void decide_start_attempt(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, uint64_t execution, unsigned attempt,
			  struct value *with, const struct json *arguments);
/* An attempt of a try ends with its own time or with that of all of them, whichever comes first. */
void decide_set_attempt_end(struct deciding *d, struct entry *entry, const struct retry *retry, int64_t attempt_ms, int64_t until_ms);
/* Begin one task. FLOW_NEXT: it is done already. FLOW_INSIDE: go on with its list. FLOW_WAIT: it is under way, or has faulted, or all stopped. */
enum flow decide_start_task(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, struct value *input);

/* --- decide_flow.c --- */

void decide_push(struct deciding *d, const struct task *task, bool is_body, const uint64_t *path, size_t path_count);
/* Here the decision could stop as well: what follows is found again by CONTINUE. */
void decide_set_safe(struct deciding *d);
/* Needs results, and enough rounds were made: give what there is up to the last safe place. */
bool decide_settle(struct deciding *d);
void decide_run_queue(struct deciding *d);
/* Every place at which something could go on: after a restart, and after a decision that stopped at its limit. */
void decide_push_all(struct deciding *d);
void decide_push_parent(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count);

/* --- decide.c --- */

/* run.created, but for what depends on whether it is a fork. */
struct entry *decide_new_created(struct deciding *d);
/* A task that holds others, or listens, goes on where it stood, and has its time again. False: the decision needs values, or a duration is
 * none any more, of which the task faults. */
bool decide_resume_task(struct deciding *d, const struct instance *instance);
void decide_complete_call(struct deciding *d, const struct instance *instance, struct value *output);

/* --- decide_fork.c --- */

/* TRIGGER_SUBMITTED of a fork. */
void decide_on_forked(struct deciding *d);

/* --- decide_listen.c --- */

/* TRIGGER_EVENT. */
void decide_on_event(struct deciding *d);
/* "." of `until`. NULL: some events have to be loaded first. */
const struct json *decide_events_so_far(struct deciding *d, const struct instance *listener, const struct json *event);
/* What an iteration of a listen adds to its output: that of its foreach, or the event as it is read. */
const struct json *decide_listen_output(struct deciding *d, const struct task *listen, const struct json *output);

/* --- decide_facts.c --- */

const struct json *decide_record_facts(struct deciding *d, const struct instance *instance, const char *step);
