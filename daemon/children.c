/* See children.h. */
#include "daemon/children.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/definitions.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/id.h"
#include "workflow/base/log.h"

static const char runtime_type[] = ERROR_TYPE("runtime");

enum child_stage { CHILD_LOOKING, CHILD_HELD, CHILD_SUBMITTING, CHILD_WATCHING, CHILD_CANCELLING };

/* One attempt. */
struct child {
	struct list link;
	struct children *children;
	struct activity *activity;
	enum child_stage stage;
	char id[CHILDREN_ID_LEN + 1];
	bool is_awaited, is_there, is_cancelled;
	bool is_taken; /* the engine or the store has a run of this id, which was not there when looked for */
	bool cannot_cancel; /* the engine does not know it, or cannot load it */
	struct children_look look;
	struct arena arena; /* of what is submitted */
	struct engine_submit submit;
	struct budget_amount budget; /* what its parent had left when it was submitted */
	struct engine_watch watch;
	struct engine_control control;
	char reason[ID_LEN_MAX + 64];
	uint64_t since_us;
};

/* An awaited child that nobody has attached to since the start. */
struct orphan {
	struct list link;
	struct children *children;
	char id[ID_LEN_MAX + 1], parent_run[ID_LEN_MAX + 1];
	char *parent_step;
	bool is_cancelling;
	struct engine_control control;
	char reason[ID_LEN_MAX + 64];
};

static void look(struct child *child, bool wants_values);

static void free_child(struct child *child)
{
	list_remove(&child->link);
	child->children->count--;
	arena_close(&child->arena);
	free(child);
}

/* The attempt is over: its record is there, the activity hears of it. */
static void finish(struct child *child)
{
	struct activity *activity = child->activity;
	struct activity_result *result = &activity->result;
	struct arena *arena = &activity->arena;

	result->record = json_object(arena);
	if (child->is_there) {
		json_set_text(arena, result->record, "child", child->id);
		if (child->look.workflow_version)
			json_set_text(arena, result->record, "version", child->look.workflow_version);
	}
	result->spent = (struct spent){.tokens = child->look.spent.tokens, .us = child->look.spent.us};
	result->stages.queue = (int64_t)(child->children->ports.now_us(child->children->ports.arg) - child->since_us);
	result->finished_ms = child->children->ports.wall_ms(child->children->ports.arg);
	activity->work = NULL;
	definition_release(child->look.definition); /* that it did not get to */
	arena_close(&child->look.arena);
	free_child(child);
	activity->on_done(activity);
}

static void fail(struct child *child, enum failure_class failure, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct child *child, enum failure_class failure, const char *format, ...)
{
	struct activity_result *result = &child->activity->result;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(result->detail, sizeof result->detail, format, arguments);
	va_end(arguments);
	result->failure = failure;
	result->retry_attempts = 1;
	finish(child);
}

static void fail_interrupted(struct child *child)
{
	fail(child, FAILURE_INTERRUPTED, "the daemon stops");
}

/* A queue is full: nothing is wrong with the child. */
static void postpone(struct child *child, const struct error *error)
{
	struct activity_result *result = &child->activity->result;

	result->retry_floor_ms = CHILDREN_RETRY_MS;
	result->retry_cap_ms = CHILDREN_RETRY_MAX_MS;
	snprintf(result->detail, sizeof result->detail, "%.*s", ACTIVITY_DETAIL_MAX - 1, error->message);
	result->failure = FAILURE_RATE_LIMITED;
	result->retry_attempts = 1000;
	finish(child);
}

/* --- it has ended ------------------------------------------------------------------------------------------------- */

static void take_output(struct child *child)
{
	struct activity_result *result = &child->activity->result;
	struct error error = {0};

	result->output = json_parse(&child->activity->arena, child->look.output, JSON_STORED, NULL, &error);
	if (!result->output) {
		fail(child, FAILURE_RUNTIME_ERROR, "the output of run %s cannot be read: %s", child->id, error.message);
		return;
	}
	result->ok = true;
	finish(child);
}

/* What is the child's error is the parent's. */
static void take_error(struct child *child)
{
	struct activity_result *result = &child->activity->result;
	struct error error = {0};

	result->error = json_parse(&child->activity->arena, child->look.run_error, JSON_STORED, NULL, &error);
	if (json_is(result->error, JSON_OBJECT))
		result->status = (int)json_get_number(result->error, "status", 0);
	else
		result->error = NULL;
	fail(child, FAILURE_RUNTIME_ERROR, "run %s, which this task waited for, faulted%s", child->id, result->error ? "" : "; its error cannot be read");
}

static void take_cancellation(struct child *child)
{
	struct arena *arena = &child->activity->arena;
	struct json *error = json_object(arena);
	const struct json *reason = child->look.reason.data ? json_parse(arena, child->look.reason, JSON_STORED, NULL, NULL) : NULL;
	bool said = json_is(reason, JSON_STRING);

	json_set_text(arena, error, "type", runtime_type);
	json_set_number(arena, error, "status", 500);
	json_set_text(arena, error, "title", "Child run cancelled");
	json_set_text(arena, error, "detail", arena_printf(arena, "run %s, which this task waited for, was cancelled%s%s", child->id, said ? ": " : "", said ? reason->string.text : ""));
	child->activity->result.error = error;
	fail(child, FAILURE_CANCELLED, "run %s was cancelled", child->id);
}

static void take_end(struct child *child)
{
	FAIL_POINT(CHILD_ENDED);
	switch (child->look.status) {
	case RUN_COMPLETED:
		take_output(child);
		return;
	case RUN_FAULTED:
		take_error(child);
		return;
	default:
		take_cancellation(child);
		return;
	}
}

/* --- it is cancelled ---------------------------------------------------------------------------------------------- */

static void on_cancelled(struct engine_control *control)
{
	struct child *child = control->owner;

	if (child->children->is_closing)
		return;
	/* Cancelled, or it had ended; or the daemon stops, and the next start finds nobody that claims the child. */
	if (child->is_cancelled)
		fail(child, FAILURE_CANCELLED, "cancelled");
	else
		fail_interrupted(child);
}

/* Nobody waits for it any more. The engine may know nothing of it (ended, or on its way to the store and not there): then a look comes
 * back later and finds that out. */
static void cancel_run(struct child *child)
{
	struct error error = {0};

	snprintf(child->reason, sizeof child->reason, "run %s does not wait for it any more", child->activity->run_id);
	FAIL_POINT(CHILD_CANCEL);
	child->stage = CHILD_CANCELLING;
	child->control = (struct engine_control){.id = child->id, .reason = child->reason, .verb = child->activity->is_kill ? CONTROL_KILL : CONTROL_CANCEL, .on_done = on_cancelled, .owner = child};
	if (engine_control(child->children->engine, &child->control, &error) != 0) {
		child->cannot_cancel = true;
		look(child, false);
	}
}

void children_cancel(struct children *children, struct activity *activity)
{
	struct child *child = activity->work;

	(void)children;
	CHECK(child != NULL);
	if (child->is_cancelled)
		return;
	child->is_cancelled = true;
	if (child->stage != CHILD_WATCHING)
		return; /* what is out comes back first */
	engine_unwatch(&child->watch);
	cancel_run(child);
}

/* --- it is under way ---------------------------------------------------------------------------------------------- */

static void on_ended(struct engine_watch *watch)
{
	struct child *child = watch->owner;

	if (!child->children->is_closing)
		look(child, true);
}

/* It is durable. */
static void wait_for_end(struct child *child)
{
	struct children *children = child->children;

	FAIL_POINT(CHILD_STARTED);
	child->is_there = true;
	if (!child->is_awaited) {
		child->activity->result.ok = true;
		finish(child);
		return;
	}
	if (child->is_cancelled) {
		cancel_run(child);
		return;
	}
	child->stage = CHILD_WATCHING;
	child->watch = (struct engine_watch){.id = child->id, .on_ended = on_ended, .owner = child};
	if (engine_watch(children->engine, &child->watch) != 0)
		look(child, true); /* it has ended in the meantime */
}

static void on_paused(struct engine_control *control)
{
	free(control);
}

/* Its parent was suspended while it was on its way: a pause is one of the whole tree. */
static void pause_run(struct child *child)
{
	struct engine_control *control = memory_zero(sizeof *control);
	struct error error = {0};

	*control = (struct engine_control){.verb = CONTROL_PAUSE, .id = child->id, .on_done = on_paused, .owner = control};
	if (engine_control(child->children->engine, control, &error) != 0)
		free(control);
}

static void on_submitted(struct engine_submit *submit)
{
	struct child *child = submit->owner;
	struct children *children = child->children;
	struct error error = submit->error;

	if (children->is_closing)
		return;
	definition_release(submit->definition);
	if (error.code == ERR_NONE) {
		children->started++;
		if (child->is_awaited && engine_run_is_suspended(children->engine, child->activity->run_id))
			pause_run(child); /* its id stays the engine's */
		wait_for_end(child);
	} else if (children->stopping || error.code == ERR_CANCELLED) {
		fail_interrupted(child);
	} else if (child->is_cancelled) {
		fail(child, FAILURE_CANCELLED, "cancelled");
	} else if (error.code == ERR_EXISTS) {
		child->is_taken = true; /* by somebody else, or by an attempt before */
		look(child, false);
	} else if (error.code == ERR_BUSY || error.code == ERR_FULL) {
		postpone(child, &error);
	} else {
		fail(child, FAILURE_RUNTIME_ERROR, "%s", error.message);
	}
}

static void submit(struct child *child)
{
	struct children *children = child->children;
	const struct activity *activity = child->activity;
	struct json *parent = json_object(&child->arena);
	struct error error = {0};
	const struct json *input = json_get(activity->with, "input");

	FAIL_POINT(CHILD_START);
	if (engine_run_is_held(children->engine, activity->run_id)) { /* what is done to its parent's tree may be its end */
		child->stage = CHILD_HELD;
		return;
	}
	child->stage = CHILD_SUBMITTING;
	json_set_text(&child->arena, parent, "run", activity->run_id);
	json_set_text(&child->arena, parent, "step", activity->step_id);
	json_set_number(&child->arena, parent, "depth", activity->depth + 1);
	json_set_boolean(&child->arena, parent, "awaited", child->is_awaited);
	child->budget = budget_left(activity->claim.budget);
	child->submit = (struct engine_submit){
		.definition = child->look.definition, .id = child->id, .input = json_print_arena(input ? input : json_null(&child->arena), &child->arena), .parent = parent, .budget = &child->budget,
		.received_us = children->ports.now_us(children->ports.arg), .on_done = on_submitted, .owner = child,
	};
	child->look.definition = NULL;
	if (engine_submit(children->engine, &child->submit, &error) == 0)
		return;
	child->submit.error = error;
	on_submitted(&child->submit); /* behind a look, so never inside children_start() */
}

void children_go_on(struct children *children)
{
	LIST_EACH_SAFE (link, &children->active) {
		struct child *child = CONTAINER_OF(link, struct child, link);
		if (child->stage != CHILD_HELD)
			continue;
		if (child->is_cancelled)
			fail(child, FAILURE_CANCELLED, "cancelled");
		else
			submit(child);
	}
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

/* Somebody attached to it: it is no orphan. */
static void claim(struct children *children, const char *id)
{
	LIST_EACH_SAFE (link, &children->unclaimed) {
		struct orphan *orphan = CONTAINER_OF(link, struct orphan, link);
		if (orphan->is_cancelling || strcmp(orphan->id, id) != 0)
			continue;
		list_remove(&orphan->link);
		free(orphan->parent_step);
		free(orphan);
	}
}

static void on_looked(struct children_look *found)
{
	struct child *child = found->owner;
	struct children *children = child->children;
	const struct activity *activity = child->activity;

	if (children->is_closing)
		return;
	if (children->stopping) {
		fail_interrupted(child);
	} else if (found->error.code == ERR_BUSY) {
		if (child->is_cancelled) /* nothing is known: it has to be asked again, not forgotten */
			look(child, found->wants_values);
		else
			postpone(child, &found->error);
	} else if (found->error.code != ERR_NONE && found->error.code != ERR_NOT_FOUND) {
		fail(child, FAILURE_RUNTIME_ERROR, "%s", found->error.message);
	} else if (!found->is_there) {
		if (child->is_cancelled) {
			fail(child, FAILURE_CANCELLED, "cancelled");
		} else if (!found->definition) {
			fail(child, FAILURE_CONFIGURATION, "%s", found->error.message);
		} else if (child->is_taken) {
			struct error error = {0};
			error_set(&error, ERR_BUSY, "a run of the id %s is on its way already", child->id);
			postpone(child, &error);
		} else {
			submit(child);
		}
	} else if (strcmp(found->parent_run, activity->run_id) != 0 || strcmp(found->parent_step, activity->step_id) != 0) {
		fail(child, FAILURE_CONFIGURATION, "the id %s, which follows from this step, belongs to another run", child->id);
	} else if (run_status_ended(found->status)) {
		child->is_there = true;
		claim(children, child->id);
		if (child->is_cancelled)
			fail(child, FAILURE_CANCELLED, "cancelled");
		else if (!child->is_awaited)
			wait_for_end(child);
		else if (found->wants_values)
			take_end(child);
		else
			look(child, true);
	} else {
		if (child->cannot_cancel) {
			fail(child, FAILURE_CANCELLED, "cancelled; run %s cannot be", child->id);
			return;
		}
		children->attached++;
		claim(children, child->id);
		wait_for_end(child);
	}
}

/* What stands in `look` from before is not needed any more. */
static void look(struct child *child, bool wants_values)
{
	const struct json *with = child->activity->with;
	const char *version = json_get_text(with, "version");

	definition_release(child->look.definition);
	arena_close(&child->look.arena);
	child->stage = CHILD_LOOKING;
	child->look = (struct children_look){
		.run_id = child->id, .namespace = json_get_text(with, "namespace"), .name = json_get_text(with, "name"),
		.version = version && strcmp(version, "latest") != 0 ? version : NULL, .wants_values = wants_values, .on_done = on_looked, .owner = child,
	};
	child->children->ports.look(child->children->ports.arg, &child->look);
}

int children_start(struct children *children, struct activity *activity, struct error *error)
{
	if (activity->depth >= RUN_DEPTH_MAX)
		return error_set(error, ERR_TOO_LARGE, "%d runs are around this one, the most allowed (RUN_DEPTH_MAX): does a workflow run itself?", RUN_DEPTH_MAX);
	if (children->count >= children->most)
		return error_set(error, ERR_BUSY, "%zu tasks wait for runs that they started, the most allowed (CHILDREN_MAX)", children->count);
	struct child *child = memory_zero(sizeof *child);
	child->children = children;
	child->activity = activity;
	child->is_awaited = json_get_boolean(activity->with, "await", true);
	child->since_us = children->ports.now_us(children->ports.arg);
	snprintf(child->id, sizeof child->id, "%.*s", CHILDREN_ID_LEN, activity->idempotency_key);
	arena_init(&child->arena);
	arena_init(&child->look.arena);
	list_init(&child->link);
	list_init(&child->watch.link);
	list_add_last(&children->active, &child->link);
	children->count++;
	activity->work = child;
	activity->result = (struct activity_result){.started_ms = children->ports.wall_ms(children->ports.arg)};
	arena_init(&activity->arena);
	look(child, false);
	return 0;
}

/* --- after a start ------------------------------------------------------------------------------------------------ */

void children_add_open(struct children *children, const char *id, const char *parent_run, const char *parent_step)
{
	struct orphan *orphan = memory_zero(sizeof *orphan);

	orphan->children = children;
	snprintf(orphan->id, sizeof orphan->id, "%s", id);
	snprintf(orphan->parent_run, sizeof orphan->parent_run, "%s", parent_run);
	orphan->parent_step = memory_text(parent_step);
	list_init(&orphan->link);
	list_add_last(&children->unclaimed, &orphan->link);
}

static void on_orphan_cancelled(struct engine_control *control)
{
	struct orphan *orphan = control->owner;

	if (orphan->children->is_closing)
		return;
	list_remove(&orphan->link);
	free(orphan->parent_step);
	free(orphan);
}

static void cancel_orphan(struct orphan *orphan)
{
	struct error error = {0};

	log_info(LOG_ENGINE, "run=%s its parent %s does not wait for it any more: cancelled", orphan->id, orphan->parent_run);
	orphan->children->orphans++;
	orphan->is_cancelling = true;
	snprintf(orphan->reason, sizeof orphan->reason, "run %s does not wait for it any more", orphan->parent_run);
	orphan->control = (struct engine_control){.id = orphan->id, .reason = orphan->reason, .on_done = on_orphan_cancelled, .owner = orphan};
	if (engine_control(orphan->children->engine, &orphan->control, &error) != 0)
		on_orphan_cancelled(&orphan->control); /* it has ended, or cannot be loaded */
}

bool children_sweep(struct children *children)
{
	bool left = false;

	LIST_EACH_SAFE (link, &children->unclaimed) {
		struct orphan *orphan = CONTAINER_OF(link, struct orphan, link);
		if (orphan->is_cancelling || children->stopping)
			continue;
		if (engine_step_flight(children->engine, orphan->parent_run, orphan->parent_step) == FLIGHT_NO)
			cancel_orphan(orphan);
		else
			left = true;
	}
	return left;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

void children_init(struct children *children, const struct children_ports *ports)
{
	*children = (struct children){.ports = *ports, .most = CHILDREN_MAX};
	list_init(&children->active);
	list_init(&children->unclaimed);
}

void children_stop(struct children *children)
{
	children->stopping = true;
	LIST_EACH_SAFE (link, &children->active) {
		struct child *child = CONTAINER_OF(link, struct child, link);
		if (child->stage != CHILD_WATCHING && child->stage != CHILD_HELD)
			continue; /* what is out comes back */
		if (child->stage == CHILD_WATCHING)
			engine_unwatch(&child->watch);
		fail_interrupted(child);
	}
}

bool children_are_quiet(const struct children *children)
{
	return list_empty(&children->active);
}

void children_abandon(struct children *children)
{
	children->is_closing = true;
}

void children_close(struct children *children)
{
	children->is_closing = true;
	while (!list_empty(&children->active)) {
		struct child *child = CONTAINER_OF(children->active.next, struct child, link);
		if (child->stage == CHILD_SUBMITTING)
			definition_release(child->submit.definition);
		definition_release(child->look.definition);
		arena_close(&child->look.arena);
		free_child(child);
	}
	while (!list_empty(&children->unclaimed)) {
		struct orphan *orphan = CONTAINER_OF(children->unclaimed.next, struct orphan, link);
		list_remove(&orphan->link);
		free(orphan->parent_step);
		free(orphan);
	}
}
