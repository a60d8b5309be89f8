/* A part of decide.c: what comes next in a sequence, a loop, a fork. Read run_sequence(), run_loop(). */
#include "workflow/deciding.h"

#include <inttypes.h>
#include <string.h>

#include "workflow/base/check.h"

void decide_push(struct deciding *d, const struct task *task, bool is_body, const uint64_t *path, size_t path_count)
{
	if (d->queue_tail > d->queue_head) {
		const struct place *last = &d->queue[d->queue_tail - 1];
		if (last->task == task && last->is_body == is_body && last->path_count == path_count && memcmp(last->path, path, path_count * sizeof *path) == 0)
			return;
	}
	d->queue = arena_grow(d->arena, d->queue, d->queue_tail, &d->queue_cap, sizeof *d->queue);
	struct place *place = &d->queue[d->queue_tail++];
	*place = (struct place){.task = task, .is_body = is_body, .path_count = path_count};
	memcpy(place->path, path, path_count * sizeof *path);
}

void decide_set_safe(struct deciding *d)
{
	d->safe = true;
	d->safe_inside = d->decision->entry_count > d->entries_before;
	d->safe_entries = d->decision->entry_count;
	d->safe_effects = d->decision->effect_count;
}

bool decide_settle(struct deciding *d)
{
	struct decision *decision = d->decision;

	if (!d->context->settle || !d->safe || d->safe_entries == 0 || d->evaluation_needs == 0 || d->evaluation_needs < decision->need_count)
		return false;
	decision->need_count = 0;
	decision->entry_count = d->safe_entries;
	decision->effect_count = d->safe_effects;
	if (d->safe_inside)
		decide_new_effect(d, EFFECT_CONTINUE);
	else
		decision->trigger_count--; /* of this trigger nothing stays: it is decided again */
	return true;
}

/* At the soft limit: commit what there is and carry on afterwards. */
static bool over_limit(struct deciding *d)
{
	if (d->decision->entry_count - d->entries_before < DECISION_ENTRIES_MAX && d->made_bytes < DECISION_BYTES_MAX) {
		decide_set_safe(d);
		return false;
	}
	if (!d->ended)
		decide_new_effect(d, EFFECT_CONTINUE);
	d->ended = true;
	return true;
}

/* Go on with a sequence until something is under way or its end is reached; its end goes on with what holds it. Only run_loop() begins
 * an iteration: the conditions are its. */
static void run_sequence(struct deciding *d, const struct place *from, bool begin)
{
	struct place at = *from;

	while (!decide_stopped(d)) {
		const struct instance *sequence = state_find(&d->draft, at.task, at.is_body, at.path, at.path_count);
		struct value *input;
		size_t cursor = 0;

		const struct instance *loop = at.is_body ? state_find(&d->draft, at.task, false, at.path, at.path_count - 1) : NULL;
		if (loop && sequence && sequence->execution != loop->execution)
			sequence = NULL; /* of an earlier execution of the loop */
		if (loop && (loop->phase != INSTANCE_STARTED || (!sequence && !begin)))
			return;
		if (sequence) {
			if (sequence->child_live || (sequence->phase != INSTANCE_STARTED && !(at.is_body && sequence->phase == INSTANCE_COMPLETED)))
				return;
			cursor = sequence->cursor;
			input = sequence->current;
		} else { /* an iteration that begins with its first task */
			input = at.task->concurrency == 0 && loop->current ? loop->current : loop->input;
		}
		const struct task_list *list = sequence ? state_list(sequence) : &at.task->body;
		if (cursor < list->count) {
			const struct task *task = list->tasks[cursor];
			if (over_limit(d))
				return;
			enum flow flow = decide_start_task(d, task, at.path, at.path_count, input);
			if (flow == FLOW_WAIT)
				return;
			if (flow == FLOW_INSIDE) {
				at.task = task;
				at.is_body = false;
			}
			continue;
		}
		if (at.is_body) { /* The loop decides what comes next. */
			decide_push(d, at.task, false, at.path, at.path_count - 1);
			return;
		}
		if (!at.task->parent) {
			decide_complete_run(d, sequence->current);
			return;
		}
		if (!decide_complete_task(d, at.task, at.path, at.path_count, NULL, sequence->current, NULL))
			return;
		if (at.task->parent->kind == TASK_FORK) {
			decide_push_parent(d, at.task, at.path, at.path_count);
			return;
		}
		at.is_body = task_is_loop(at.task->parent);
		at.task = at.task->parent;
	}
}

/* What iteration `i` of a map gave. */
static const struct value *iteration_output(const struct deciding *d, const struct instance *loop, uint64_t i)
{
	uint64_t path[STATE_LOOP_DEPTH_MAX];

	memcpy(path, loop->path, loop->path_count * sizeof *path);
	path[loop->path_count] = i;
	const struct instance *body = state_find(&d->draft, loop->task, true, path, (size_t)loop->path_count + 1);
	CHECK((loop->task->body.count == 0 && loop->task->kind == TASK_FOR) || (body && body->output));
	return body ? body->output : loop->input;
}

/* The outputs of all iterations, in order. NULL: some have to be loaded first, or *error: together they are larger than a value may be,
 * which their sizes say before any of them is loaded. */
static const struct json *collect_outputs(struct deciding *d, const struct instance *loop, struct error *error)
{
	struct json *outputs = json_array(d->arena);
	uint64_t size = loop->item_count > 0 ? loop->item_count + 1 : 2; /* of brackets and commas */

	for (uint64_t i = 0; i < loop->item_count && loop->task->kind == TASK_FOR; i++)
		size += iteration_output(d, loop, i)->size;
	if (size > DECISION_VALUE_MAX) { /* what a listen gives is less than what it took */
		error_set(error, ERR_TOO_LARGE, "the outputs of its %" PRIu64 " iterations are together larger than %d MiB, the most allowed (DECISION_VALUE_MAX)",
			  loop->item_count, DECISION_VALUE_MAX >> 20);
		return NULL;
	}
	for (uint64_t i = 0; i < loop->item_count; i++) {
		const struct json *output = decide_value_json(d, iteration_output(d, loop, i));
		if (output && d->decision->need_count == 0)
			json_add(d->arena, outputs, (struct json *)(loop->task->kind == TASK_LISTEN ? decide_listen_output(d, loop->task, output) : output));
	}
	return d->decision->need_count == 0 ? outputs : NULL;
}

/* Start iterations as far as the concurrency allows; complete the loop when all are done. */
static void run_loop(struct deciding *d, const struct place *at)
{
	const struct task *task = at->task;
	size_t concurrency = task->concurrency ? task->concurrency : 1;
	const struct instance *loop;

	for (;;) {
		loop = state_find(&d->draft, task, false, at->path, at->path_count);
		if (decide_stopped(d) || loop->phase != INSTANCE_STARTED)
			return;
		if (loop->live_count >= concurrency)
			return;
		/* Iterations without a task leave no entry: each gives its input, at once. */
		if (loop->next_iteration >= loop->item_count || loop->exited || task->body.count == 0)
			break;
		if (over_limit(d))
			return;
		struct place body = *at;
		body.is_body = true;
		body.path[body.path_count++] = loop->next_iteration;
		if (task->condition) { /* chained only: the loop variables are bound, the input is the iteration's */
			struct scope_context s = {.d = d, .task = task, .inside = task->body.tasks[0], .path = body.path, .path_count = body.path_count,
						  .input = loop->current ? loop->current : loop->input};
			struct error error = {0};
			const struct json *condition = decide_evaluate(d, &s, NULL, task->condition, &error);
			if (!condition && d->decision->need_count == 0)
				decide_fault_expression(d, task, at->path, at->path_count, &error);
			if (!condition)
				return;
			if (!json_truthy(condition))
				break;
		}
		run_sequence(d, &body, true);
		/* An iteration that could not even begin (values to load, a fault) has stopped everything. */
	}
	if (loop->live_count > 0 || (task->kind == TASK_LISTEN && !loop->satisfied))
		return;
	struct value *output;
	if (task_is_chained(task)) {
		output = loop->current ? loop->current : loop->input;
	} else {
		struct error error = {0};
		const struct json *outputs = collect_outputs(d, loop, &error);
		if (!outputs && d->decision->need_count > 0)
			return;
		output = outputs ? decide_make_bounded(d, outputs, &error) : NULL;
		if (!output) {
			decide_fault_expression(d, task, at->path, at->path_count, &error);
			return;
		}
	}
	if (!decide_complete_task(d, task, at->path, at->path_count, NULL, output, NULL))
		return;
	decide_push_parent(d, task, at->path, at->path_count);
}

/* The outputs of all branches, in the order of declaration. NULL: some have to be loaded first. */
static const struct json *collect_branches(struct deciding *d, const struct instance *fork)
{
	struct json *outputs = json_array(d->arena);

	for (size_t i = 0; i < fork->task->body.count; i++) {
		const struct instance *branch = state_find(&d->draft, fork->task->body.tasks[i], false, fork->path, fork->path_count);
		const struct json *output = decide_value_json(d, branch->output);
		if (output && d->decision->need_count == 0)
			json_add(d->arena, outputs, (struct json *)output);
	}
	return d->decision->need_count == 0 ? outputs : NULL;
}

/* Start the branches; complete the fork when all are done, or with the first one that is. */
static void run_fork(struct deciding *d, const struct place *at)
{
	const struct task *task = at->task;
	const struct instance *fork;
	struct value *output;

	/* Those that the run's fault cut off come first. */
	for (size_t i = 0; i < task->body.count; i++) {
		fork = state_find(&d->draft, task, false, at->path, at->path_count);
		if (decide_stopped(d) || fork->phase != INSTANCE_STARTED)
			return;
		if (fork->again == 0)
			break;
		const struct task *branch = task->body.tasks[i];
		const struct instance *known = state_find(&d->draft, branch, false, at->path, at->path_count);
		if (!known || !known->again)
			continue;
		if (over_limit(d))
			return;
		if (decide_start_task(d, branch, at->path, at->path_count, fork->input) == FLOW_INSIDE)
			decide_push(d, branch, false, at->path, at->path_count);
	}
	for (;;) {
		fork = state_find(&d->draft, task, false, at->path, at->path_count);
		if (decide_stopped(d) || fork->phase != INSTANCE_STARTED)
			return;
		if (fork->next_iteration >= task->body.count || (task->compete && fork->winner))
			break;
		if (over_limit(d))
			return;
		const struct task *branch = task->body.tasks[fork->next_iteration];
		if (decide_start_task(d, branch, at->path, at->path_count, fork->input) == FLOW_INSIDE)
			decide_push(d, branch, false, at->path, at->path_count);
	}
	if (task->compete) {
		if (!fork->winner)
			return; /* the last fault, if it comes to that, is the fork's */
		decide_end_live(d, &(struct ending){.within = task, .strictly = true, .path = at->path});
		output = state_find(&d->draft, task->body.tasks[fork->winner - 1], false, at->path, at->path_count)->output;
	} else {
		if (fork->live_count > 0)
			return;
		const struct json *outputs = collect_branches(d, fork);
		struct error error = {0};
		if (!outputs)
			return;
		output = decide_make_bounded(d, outputs, &error);
		if (!output) {
			decide_fault_expression(d, task, at->path, at->path_count, &error);
			return;
		}
	}
	if (!decide_complete_task(d, task, at->path, at->path_count, NULL, output, NULL))
		return;
	decide_push_parent(d, task, at->path, at->path_count);
}

void decide_run_queue(struct deciding *d)
{
	while (d->queue_head < d->queue_tail && !decide_stopped(d)) {
		struct place place = d->queue[d->queue_head++];
		if (task_is_loop(place.task) && !place.is_body)
			run_loop(d, &place);
		else if (place.task->kind == TASK_FORK)
			run_fork(d, &place);
		else
			run_sequence(d, &place, false);
	}
}

static void push_live(struct deciding *d, const struct list *live)
{
	LIST_EACH(link, live) {
		const struct instance *was = CONTAINER_OF(link, struct instance, live);
		const struct instance *instance = state_find(&d->draft, was->task, was->is_body, was->path, was->path_count);
		enum task_kind kind = instance->task->kind;
		bool is_loop = (task_is_loop(instance->task) && !instance->is_body) || kind == TASK_FORK, is_list = kind == TASK_DO || kind == TASK_TRY || instance->is_body;
		if (instance->phase == INSTANCE_STARTED && (is_loop || (is_list && !instance->child_live)))
			decide_push(d, instance->task, instance->is_body, instance->path, instance->path_count);
	}
}

void decide_push_all(struct deciding *d)
{
	push_live(d, &d->base->live);
	push_live(d, &d->draft.live); /* of a fork */
}

void decide_push_parent(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count)
{
	decide_push(d, task->parent, task_is_loop(task->parent), path, path_count);
}
