/* See state.h. Read workflow_apply() first: the one fold. */
#include "workflow/state_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"
#include "workflow/language/consumption.h"

enum { TABLE_SLOTS_MIN = 16, STATE_TEXT_MAX = 1 << 30 /* bytes of what state_digest() hashes */ };

const char *run_status_name(enum run_status status)
{
	static const char *const names[] = {"pending", "running", "waiting", "suspended", "cancelled", "faulted", "completed"};
	return names[status];
}

bool run_status_parse(const char *name, enum run_status *status)
{
	for (*status = RUN_PENDING; *status <= RUN_COMPLETED; ++*status)
		if (strcmp(run_status_name(*status), name) == 0)
			return true;
	return false;
}

enum run_status run_status_after(enum run_status status, const struct entry *entry)
{
	switch (entry->kind) {
	case ENTRY_RUN_COMPLETED:
		return RUN_COMPLETED;
	case ENTRY_RUN_FAULTED:
		return RUN_FAULTED;
	case ENTRY_RUN_CANCELLED:
	case ENTRY_RUN_KILLED:
		return RUN_CANCELLED;
	case ENTRY_RUN_SUSPENDED:
		return RUN_SUSPENDED;
	case ENTRY_RUN_RETRIED:
		return json_get_boolean(entry->data, "waits", false) ? RUN_WAITING : RUN_RUNNING;
	default:
		if (!entry_kind_touches_run(entry->kind) || run_status_ended(status) || (status == RUN_SUSPENDED && entry->kind != ENTRY_RUN_RESUMED))
			return status;
		return json_get_boolean(entry->data, "waits", false) ? RUN_WAITING : RUN_RUNNING;
	}
}

bool run_status_ended(enum run_status status)
{
	return status == RUN_CANCELLED || status == RUN_FAULTED || status == RUN_COMPLETED;
}

const char *instance_phase_name(enum instance_phase phase)
{
	/* Status words of the interface: a task that backs off is waiting. */
	static const char *const names[] = {"pending", "running", "waiting", "completed", "faulted", "cancelled", "skipped"};
	return names[phase];
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static uint64_t digest_hash(const struct digest *digest)
{
	uint64_t hash;

	memcpy(&hash, digest->bytes, sizeof hash);
	return hash;
}

static struct value *find_own_value(const struct state *state, const struct digest *digest)
{
	if (state->value_slots == 0)
		return NULL;
	struct value *value = state->values[digest_hash(digest) & (state->value_slots - 1)];
	while (value && !digest_equal(&value->digest, digest))
		value = value->next;
	return value;
}

struct value *state_find_value(const struct state *state, const struct digest *digest)
{
	struct value *value = find_own_value(state, digest);

	return value || !state->base ? value : find_own_value(state->base, digest);
}

static void *allocate(struct state *state, size_t size)
{
	return state->arena ? arena_zero(state->arena, size) : memory_zero(size);
}

static void grow_values(struct state *state)
{
	size_t slots = state->value_slots ? state->value_slots * 2 : TABLE_SLOTS_MIN;
	struct value **values = allocate(state, slots * sizeof *values);

	for (size_t i = 0; i < state->value_slots; i++)
		for (struct value *value = state->values[i], *next; value; value = next) {
			size_t slot = digest_hash(&value->digest) & (slots - 1);
			next = value->next;
			value->next = values[slot];
			values[slot] = value;
		}
	if (!state->arena)
		free(state->values);
	state->values = values;
	state->value_slots = slots;
}

static struct value *add_value(struct state *state, const struct digest *digest)
{
	if (state->value_count >= state->value_slots)
		grow_values(state);
	struct value *value = allocate(state, sizeof *value);
	size_t slot = digest_hash(digest) & (state->value_slots - 1);
	value->digest = *digest;
	value->next = state->values[slot];
	state->values[slot] = value;
	state->value_count++;
	return value;
}

static void drop_value(struct state *state, struct value *value)
{
	if (!value || state->base)
		return;
	CHECK(value->use_count > 0);
	if (--value->use_count > 0)
		return;
	struct value **link = &state->values[digest_hash(&value->digest) & (state->value_slots - 1)];
	while (*link != value)
		link = &(*link)->next;
	*link = value->next;
	state->value_count--;
	state->inline_bytes -= value->bytes.len;
	free((void *)value->bytes.data);
	free(value);
}

/* It is loaded again where it is needed. */
static void forget_bytes(struct state *state, struct value *value)
{
	if (state->base || !value->content_id || !value->bytes.data)
		return;
	state->inline_bytes -= value->bytes.len;
	free((void *)value->bytes.data);
	value->bytes = (struct bytes){0};
}

/* Put a value into a slot of an instance or of the run. In the real state the slot counts as a use. */
static void set_value(struct state *state, struct value **slot, struct value *value)
{
	struct value *old = *slot;

	if (value && !state->base)
		value->use_count++;
	*slot = value;
	drop_value(state, old);
}

/* The value that data[name] names: it travels with this entry, or an earlier entry of the run brought it. */
static struct value *take_value(struct state *state, const struct entry *entry, const char *name)
{
	struct digest digest;

	if (!json_get_digest(entry->data, name, &digest))
		return NULL;
	struct value *value = state_find_value(state, &digest);
	for (size_t slot = 0; slot < entry->value_count; slot++) {
		const struct entry_value *carried = &entry->values[slot];
		if (!digest_equal(&carried->digest, &digest))
			continue;
		if (value && (value->content_id || state->base))
			return value;
		if (!value)
			value = add_value(state, &digest);
		value->size = carried->size;
		if (state->base) {
			value->bytes = carried->bytes; /* whole: it lives as long as the draft */
			return value;
		}
		value->content_id = CONTENT_ID(entry->seq, slot);
		if (carried->bytes.data && carried->size <= VALUE_INLINE_MAX && !value->bytes.data) {
			uint8_t *copy = memory_alloc(carried->size + 1);
			memcpy(copy, carried->bytes.data, carried->size);
			copy[carried->size] = 0;
			value->bytes = (struct bytes){copy, carried->size};
			state->inline_bytes += carried->size;
		}
		return value;
	}
	return value ? value : add_value(state, &digest); /* Named earlier, no longer in memory: loaded by digest when needed. */
}

/* --- instances ---------------------------------------------------------------------------------------------------- */

static uint64_t instance_hash(const struct task *task, bool is_body, const uint64_t *path, size_t path_count)
{
	uint64_t hash = ((uint64_t)(uintptr_t)task >> 4) * 0x9e3779b97f4a7c15u + is_body;

	for (size_t i = 0; i < path_count; i++)
		hash = (hash ^ path[i]) * 0x100000001b3u + (hash >> 29);
	return hash ^ (hash >> 32);
}

static struct instance *find_own(const struct state *state, const struct task *task, bool is_body, const uint64_t *path, size_t path_count)
{
	if (state->instance_slots == 0)
		return NULL;
	struct instance *instance = state->instances[instance_hash(task, is_body, path, path_count) & (state->instance_slots - 1)];
	for (; instance; instance = instance->next)
		if (instance->task == task && instance->is_body == is_body && instance->path_count == path_count &&
		    memcmp(instance->path, path, path_count * sizeof *path) == 0)
			return instance;
	return NULL;
}

const struct instance *state_find(const struct state *state, const struct task *task, bool is_body, const uint64_t *path, size_t path_count)
{
	const struct instance *instance = find_own(state, task, is_body, path, path_count);

	return instance || !state->base ? instance : find_own(state->base, task, is_body, path, path_count);
}

static void grow_instances(struct state *state)
{
	size_t slots = state->instance_slots ? state->instance_slots * 2 : TABLE_SLOTS_MIN;
	struct instance **instances = allocate(state, slots * sizeof *instances);

	for (size_t i = 0; i < state->instance_slots; i++)
		for (struct instance *instance = state->instances[i], *next; instance; instance = next) {
			size_t slot = instance_hash(instance->task, instance->is_body, instance->path, instance->path_count) & (slots - 1);
			next = instance->next;
			instance->next = instances[slot];
			instances[slot] = instance;
		}
	if (!state->arena)
		free(state->instances);
	state->instances = instances;
	state->instance_slots = slots;
}

static void link_instance(struct state *state, struct instance *instance)
{
	if (state->instance_count >= state->instance_slots)
		grow_instances(state);
	size_t slot = instance_hash(instance->task, instance->is_body, instance->path, instance->path_count) & (state->instance_slots - 1);
	instance->next = state->instances[slot];
	state->instances[slot] = instance;
	state->instance_count++;
}

/* For changing: a draft gets its own copy first. NULL: never entered. */
static struct instance *edit(struct state *state, const struct task *task, bool is_body, const uint64_t *path, size_t path_count)
{
	struct instance *instance = find_own(state, task, is_body, path, path_count);

	if (instance || !state->base)
		return instance;
	const struct instance *original = find_own(state->base, task, is_body, path, path_count);
	if (!original)
		return NULL;
	instance = arena_alloc(state->arena, sizeof *instance);
	*instance = *original;
	instance->copied = true;
	instance->base_live = !list_empty(&original->live);
	list_init(&instance->live);
	link_instance(state, instance);
	return instance;
}

static struct instance *edit_or_add(struct state *state, const struct task *task, bool is_body, const uint64_t *path, size_t path_count)
{
	struct instance *instance = edit(state, task, is_body, path, path_count);

	if (instance)
		return instance;
	instance = allocate(state, sizeof *instance);
	instance->task = task;
	instance->is_body = is_body;
	memcpy(instance->path, path, path_count * sizeof *path);
	instance->path_count = (uint8_t)path_count;
	list_init(&instance->live);
	link_instance(state, instance);
	return instance;
}

/* by: 1 or -1. Around each change of what an instance is waiting for. */
static void count_waiting(struct state *state, const struct instance *instance, int by)
{
	size_t change = (size_t)by; /* wraps around, as unsigned numbers do */

	state->in_flight_count += instance->in_flight ? change : 0;
	state->awaiting_count += instance->in_flight && instance->waits_since_ms != 0 ? change : 0;
	state->backing_off_count += instance->phase == INSTANCE_BACKING_OFF ? change : 0;
	state->listening_count += instance_listens(instance) ? change : 0;
}

/* waits_since_ms: of a child that is awaited; else 0. */
static void set_in_flight(struct state *state, struct instance *instance, bool in_flight, int64_t waits_since_ms)
{
	count_waiting(state, instance, -1);
	instance->in_flight = in_flight;
	instance->waits_since_ms = waits_since_ms;
	count_waiting(state, instance, 1);
}

static void set_phase(struct state *state, struct instance *instance, enum instance_phase phase)
{
	bool live = phase == INSTANCE_STARTED || phase == INSTANCE_BACKING_OFF;

	count_waiting(state, instance, -1);
	instance->phase = phase;
	count_waiting(state, instance, 1);
	if (instance->base_live) { /* whoever walks the base's list looks at the copy */
		instance->base_live = live; /* over: when it begins again it stands at the end, as it will in the base's list */
		return;
	}
	if (!live)
		list_remove(&instance->live);
	else if (list_empty(&instance->live))
		list_add_last(&state->live, &instance->live);
}

/* What a finished instance no longer needs. Its record stays for the execution number and, in a for, the output. */
static void release_values(struct state *state, struct instance *instance)
{
	set_value(state, &instance->input, NULL);
	set_value(state, &instance->context, NULL);
	set_value(state, &instance->current, NULL);
	set_value(state, &instance->items, NULL);
	set_value(state, &instance->with, NULL);
	set_value(state, &instance->error, NULL);
	set_value(state, &instance->correlation, NULL);
}

static void free_instance(struct state *state, struct instance *instance)
{
	struct instance **link = &state->instances[instance_hash(instance->task, instance->is_body, instance->path, instance->path_count) & (state->instance_slots - 1)];

	while (*link != instance)
		link = &(*link)->next;
	*link = instance->next;
	state->instance_count--;
	count_waiting(state, instance, -1);
	release_values(state, instance);
	set_value(state, &instance->output, NULL);
	list_remove(&instance->live);
	free(instance);
}

/* For state_snapshot.c. */
void state_count_waiting(struct state *state, const struct instance *instance, int by)
{
	count_waiting(state, instance, by);
}

struct value *state_add_value(struct state *state, const struct digest *digest)
{
	return add_value(state, digest);
}

void state_set_value(struct state *state, struct value **slot, struct value *value)
{
	set_value(state, slot, value);
}

struct instance *state_add_instance(struct state *state, const struct task *task, bool is_body, const uint64_t *path, size_t path_count)
{
	return find_own(state, task, is_body, path, path_count) ? NULL : edit_or_add(state, task, is_body, path, path_count);
}

const struct instance *state_root(const struct state *state)
{
	return state_find(state, state->definition->root, false, (const uint64_t[1]){0}, 0);
}

/* The loop whose iteration holds (task, path); NULL: none does. */
static const struct instance *find_loop(const struct state *state, const struct task *task, const uint64_t *path)
{
	do
		task = task->parent;
	while (task && !task_is_loop(task));
	return task ? state_find(state, task, false, path, task->loop_depth) : NULL;
}

uint64_t state_next_execution(const struct state *state, const struct task *task, const uint64_t *path, size_t path_count)
{
	const struct instance *loop = find_loop(state, task, path), *instance = state_find(state, task, false, path, path_count);

	if (instance && instance->scope == (loop ? loop->execution : 0))
		return instance->execution + 1;
	return (loop ? loop->floor : 0) + 1;
}

/* (task, path) is entered: what is remembered of execution numbers when the records of its iteration are dropped. Loops further out know
 * at least as high a number as those within them. */
static void count_execution(struct state *state, struct instance *instance, uint64_t execution)
{
	const struct instance *loop = find_loop(state, instance->task, instance->path);
	uint64_t scope = loop ? loop->execution : 0;

	if (task_is_loop(instance->task)) {
		if (instance->execution == 0 || instance->scope != scope)
			instance->used = loop ? loop->floor : 0;
		instance->floor = instance->used;
	}
	instance->execution = execution;
	instance->scope = scope;
	for (; loop && loop->used < execution; loop = find_loop(state, loop->task, loop->path)) {
		struct instance *changed = edit(state, loop->task, false, loop->path, loop->path_count);
		changed->used = execution;
		loop = changed;
	}
}

/* The innermost place that keeps what is exported inside it to itself: an iteration of a map (*is_body), or a branch of a fork (D5), which
 * the task itself may be. NULL: there is none, exports are the run's. */
static const struct task *context_holder(const struct task *task, bool *is_body)
{
	for (; task->parent; task = task->parent) {
		*is_body = task->parent->kind == TASK_FOR && task->parent->concurrency > 0;
		if (*is_body)
			return task->parent;
		if (task->parent->kind == TASK_FORK)
			return task;
	}
	return NULL;
}

struct value *state_context(const struct state *state, const struct task *task, const uint64_t *path)
{
	const struct instance *won = task->kind == TASK_FORK ? state_find(state, task, false, path, task->loop_depth) : NULL;
	bool is_body = false;

	if (won && won->context)
		return won->context;
	for (task = context_holder(task, &is_body); task; task = context_holder(is_body ? task : task->parent, &is_body)) {
		const struct instance *holder = state_find(state, task, is_body, path, task->loop_depth + is_body);
		if (holder && holder->context)
			return holder->context;
	}
	return state->context;
}

const struct instance *state_find_step(const struct state *state, const char *text, struct arena *arena, uint64_t *execution)
{
	struct step_id id;

	if (!text || !step_id_parse(arena, text, &id))
		return NULL;
	const struct task *task = definition_find_task(state->definition, id.reference);
	if (!task || id.iteration_count != task->loop_depth)
		return NULL;
	if (execution)
		*execution = id.execution;
	return state_find(state, task, false, id.iterations, id.iteration_count);
}

/* --- the state ---------------------------------------------------------------------------------------------------- */

void state_init(struct state *state, const struct definition *definition)
{
	*state = (struct state){.definition = definition, .budget = BUDGET_UNLIMITED};
	list_init(&state->live);
}

void state_draft(struct state *draft, const struct state *base, struct arena *arena)
{
	CHECK(base->closing_count == 0); /* state_settle() */
	*draft = *base;
	draft->closings = NULL;
	draft->base = base;
	draft->arena = arena;
	draft->instances = NULL;
	draft->instance_slots = draft->instance_count = 0;
	draft->values = NULL;
	draft->value_slots = draft->value_count = 0;
	draft->consumed = NULL;
	draft->consumed_count = draft->consumed_cap = 0;
	list_init(&draft->live);
}

static void drop_closings(struct state *state)
{
	while (state->closing_count > 0)
		free(state->closings[--state->closing_count].step);
}

void state_close(struct state *state)
{
	for (size_t i = 0; i < state->instance_slots; i++)
		while (state->instances[i])
			free_instance(state, state->instances[i]);
	set_value(state, &state->input, NULL);
	set_value(state, &state->output, NULL);
	set_value(state, &state->error, NULL);
	set_value(state, &state->context, NULL);
	set_value(state, &state->emitted, NULL);
	for (size_t i = 0; i < state->value_slots; i++)
		for (struct value *value = state->values[i], *next; value; value = next) {
			next = value->next;
			free((void *)value->bytes.data);
			free(value);
		}
	drop_closings(state);
	free(state->closings);
	free(state->instances);
	free(state->values);
	free(state->parent_run);
	free(state->parent_step);
	free(state->forked_from);
	free(state->consumed);
	*state = (struct state){0};
}

bool state_has_consumed(const struct state *state, uint64_t event_seq)
{
	for (const struct state *at = state; at; at = at->base)
		for (size_t i = 0; i < at->consumed_count; i++)
			if (at->consumed[i] == event_seq)
				return true;
	return false;
}

/* The older half is forgotten at once when there are too many: all of a draft's are fewer than that. */
static void remember_consumed(struct state *state, uint64_t event_seq)
{
	if (state->base) {
		state->consumed = arena_grow(state->arena, state->consumed, state->consumed_count, &state->consumed_cap, sizeof *state->consumed);
	} else if (state->consumed_count == STATE_EVENTS_REMEMBERED_MAX) {
		state->consumed_count /= 2;
		memmove(state->consumed, state->consumed + (STATE_EVENTS_REMEMBERED_MAX - state->consumed_count), state->consumed_count * sizeof *state->consumed);
	} else if (state->consumed_count == state->consumed_cap) {
		state->consumed_cap = state->consumed_cap ? state->consumed_cap * 2 : TABLE_SLOTS_MIN;
		state->consumed = memory_resize(state->consumed, state->consumed_cap * sizeof *state->consumed);
	}
	state->consumed[state->consumed_count++] = event_seq;
}

/* For state_snapshot.c. */
void state_remember_consumed(struct state *state, uint64_t event_seq)
{
	remember_consumed(state, event_seq);
}

bool instance_listens(const struct instance *instance)
{
	return !instance->is_body && instance->task->kind == TASK_LISTEN && instance->phase == INSTANCE_BACKING_OFF;
}

const struct task_list *state_list(const struct instance *sequence)
{
	return sequence->in_handler ? &sequence->task->handler : &sequence->task->body;
}

int64_t instance_next_timer(const struct instance *instance, enum instance_timer *timer)
{
	const int64_t times[] = {
		[TIMER_DUE] = instance->phase == INSTANCE_BACKING_OFF ? instance->due_ms : 0,
		[TIMER_ATTEMPT] = instance->attempt_due_ms,
		[TIMER_TIMEOUT] = instance->timeout_ms,
	};
	int64_t earliest = 0;

	if (instance->is_body || (instance->phase != INSTANCE_STARTED && instance->phase != INSTANCE_BACKING_OFF))
		return 0;
	for (size_t i = 0; i < COUNT_OF(times); i++)
		if (times[i] != 0 && (earliest == 0 || times[i] < earliest)) {
			earliest = times[i];
			*timer = (enum instance_timer)i;
		}
	return earliest;
}

static void take_earlier(int64_t *earliest_ms, const struct instance *instance)
{
	enum instance_timer timer;
	int64_t due_ms = instance_next_timer(instance, &timer);

	if (due_ms != 0 && (*earliest_ms == 0 || due_ms < *earliest_ms))
		*earliest_ms = due_ms;
}

int64_t state_next_deadline_ms(const struct state *state)
{
	int64_t earliest_ms = state->timeout_ms;

	CHECK(state->closing_count == 0);
	if (run_status_ended(state->status) || state->status == RUN_SUSPENDED)
		return 0;
	LIST_EACH(link, &state->live)
		take_earlier(&earliest_ms, CONTAINER_OF(link, struct instance, live));
	if (!state->base)
		return earliest_ms;
	LIST_EACH(link, &state->base->live) { /* where a draft has a copy, that counts */
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		const struct instance *copy = find_own(state, instance->task, instance->is_body, instance->path, instance->path_count);
		if (!copy || copy->base_live)
			take_earlier(&earliest_ms, copy ? copy : instance);
	}
	return earliest_ms;
}

static bool is_interruption(const struct entry *entry)
{
	const char *class = entry->kind == ENTRY_ATTEMPT_FAILED ? json_get_text(entry->data, "class") : NULL;

	return class && strcmp(class, failure_name(FAILURE_INTERRUPTED)) == 0;
}

bool state_ends_wait(const struct state *state, const struct entry *entry, int64_t *since_ms, bool *cut_off)
{
	struct arena arena;
	bool waits = false;

	*cut_off = false;
	switch (entry->kind) {
	case ENTRY_RUN_RESUMED:
	case ENTRY_RUN_COMPLETED:
	case ENTRY_RUN_FAULTED:
	case ENTRY_RUN_CANCELLED:
	case ENTRY_RUN_KILLED:
		*since_ms = state->suspended_ms;
		return state->suspended_ms != 0;
	case ENTRY_TIMER_FIRED:
	case ENTRY_ATTEMPT_STARTED:
	case ENTRY_ATTEMPT_SUCCEEDED:
	case ENTRY_ATTEMPT_FAILED:
	case ENTRY_TASK_FAULTED:
	case ENTRY_TASK_CANCELLED:
	case ENTRY_EVENT_CONSUMED:
		break;
	default:
		return false;
	}
	arena_init(&arena);
	const struct instance *instance = state_find_step(state, json_get_text(entry->data, "stepId"), &arena, NULL);
	if (instance && (instance->phase == INSTANCE_BACKING_OFF || (instance->in_flight && instance->waits_since_ms != 0))) {
		*since_ms = instance->waits_since_ms;
		waits = true;
	} else if (instance && instance->in_flight && is_interruption(entry)) {
		*since_ms = instance->attempt_ms;
		waits = *cut_off = true;
	}
	arena_close(&arena);
	return waits;
}

bool state_is_idle(const struct state *state)
{
	CHECK(state->closing_count == 0);
	return state->in_flight_count == 0 || run_status_ended(state->status);
}

bool state_only_waits(const struct state *state)
{
	return state->in_flight_count == state->awaiting_count && state->awaiting_count + state->backing_off_count > 0;
}

/* A decision stopped at its limit, and what it left is to be continued at once, whatever else was decided in between. */
static bool goes_on(const struct state *state, const struct instance *instance)
{
	const struct task *task = instance->task;

	if (instance->phase != INSTANCE_STARTED)
		return false;
	if (instance->is_body) { /* no entry ends it: in a draft it is still there when its loop has ended */
		const struct instance *loop = state_find(state, task, false, instance->path, instance->path_count - 1);
		if (!loop || loop->phase != INSTANCE_STARTED)
			return false;
	}
	if (instance->is_body || task->kind == TASK_DO || task->kind == TASK_TRY)
		return !instance->child_live;
	if (task->kind == TASK_FORK)
		return instance->live_count == 0 || instance->next_iteration < task->body.count || instance->again > 0 || (task->compete && instance->winner != 0);
	if (task_is_loop(task))
		return instance->live_count == 0 ||
		       (instance->next_iteration < instance->item_count && instance->live_count < (task->concurrency ? task->concurrency : 1));
	return false;
}

static bool any_goes_on(const struct state *state)
{
	LIST_EACH(link, &state->live)
		if (goes_on(state, CONTAINER_OF(link, struct instance, live)))
			return true;
	if (!state->base)
		return false;
	LIST_EACH(link, &state->base->live) { /* where a draft has a copy, that counts */
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		const struct instance *copy = find_own(state, instance->task, instance->is_body, instance->path, instance->path_count);
		if ((!copy || copy->base_live) && goes_on(state, copy ? copy : instance))
			return true;
	}
	return false;
}

int64_t state_wakes_ms(const struct state *state)
{
	return state_is_idle(state) && state->listening_count == 0 && !any_goes_on(state) ? state_next_deadline_ms(state) : 0;
}

/* --- the fold ----------------------------------------------------------------------------------------------------- */

/* The task and iterations that data.stepId names. */
static const struct task *step_task(const struct state *state, const struct entry *entry, struct arena *arena, struct step_id *id)
{
	const char *text = json_get_text(entry->data, "stepId");

	if (!text || !step_id_parse(arena, text, id))
		return NULL;
	const struct task *task = definition_find_task(state->definition, id->reference);
	return task && id->iteration_count == task->loop_depth ? task : NULL;
}

/* The sequence around (task, path); an iteration comes to life with the first entry of one of its tasks. */
static struct instance *edit_sequence(struct state *state, const struct task *task, const uint64_t *path, size_t path_count, uint64_t seq)
{
	const struct task *parent = task->parent;

	CHECK(parent != NULL); /* the root is in none */
	bool is_body = task_is_loop(parent);
	struct instance *sequence = edit(state, parent, is_body, path, path_count);
	if (!is_body)
		return sequence && sequence->phase == INSTANCE_STARTED ? sequence : NULL;

	const struct instance *known = state_find(state, parent, false, path, path_count - 1);
	if (!known || known->phase != INSTANCE_STARTED)
		return NULL;
	if (sequence && sequence->phase == INSTANCE_STARTED && sequence->execution == known->execution)
		return sequence;
	if (path[path_count - 1] != known->next_iteration || known->next_iteration >= known->item_count || known->exited)
		return NULL;
	struct instance *loop = edit(state, parent, false, path, path_count - 1);
	loop->next_iteration++;
	loop->live_count++;
	sequence = edit_or_add(state, parent, true, path, path_count);
	sequence->execution = loop->execution;
	sequence->start_seq = seq;
	sequence->cursor = 0;
	sequence->child_live = false;
	set_value(state, &sequence->output, NULL);
	set_value(state, &sequence->context, NULL);
	set_value(state, &sequence->current, parent->concurrency == 0 && loop->current ? loop->current : loop->input);
	set_phase(state, sequence, INSTANCE_STARTED);
	return sequence;
}

/* A task of the sequence has its output: move on to where `then` says; the end of its list ends an iteration. */
static void advance_sequence(struct state *state, struct instance *sequence, const struct task *task, struct value *output, const struct then *then,
			     int64_t time_ms)
{
	switch (then->kind) {
	case THEN_CONTINUE:
		sequence->cursor = task->index + 1;
		break;
	case THEN_TASK:
		sequence->cursor = then->index;
		break;
	case THEN_EXIT:
	case THEN_END:
		sequence->cursor = state_list(sequence)->count;
		break;
	}
	sequence->child_live = false;
	set_value(state, &sequence->current, output);
	if (!sequence->is_body || sequence->cursor < state_list(sequence)->count)
		return;

	struct instance *loop = edit(state, sequence->task, false, sequence->path, (size_t)sequence->path_count - 1);
	CHECK(loop != NULL);
	loop->done_count++;
	loop->live_count--;
	if (task_is_chained(loop->task)) {
		set_value(state, &loop->current, output); /* the next iteration's input */
		loop->exited = then->kind == THEN_EXIT;
	} else {
		set_value(state, &sequence->output, output);
		if (state->inline_bytes > STATE_INLINE_BYTES_MAX)
			forget_bytes(state, output);
	}
	set_phase(state, sequence, INSTANCE_COMPLETED);
	struct value *event = NULL; /* of a listen; its `until` may ask for all of them */
	if (loop->task->kind == TASK_LISTEN && loop->task->listen->to->until)
		set_value(state, &event, sequence->items);
	release_values(state, sequence);
	set_value(state, &sequence->items, event);
	set_value(state, &event, NULL);
	if (loop->task->kind == TASK_LISTEN && !loop->satisfied) {
		loop->waits_since_ms = time_ms;
		set_phase(state, loop, INSTANCE_BACKING_OFF);
	}
}

/* data.then, which only says what the definition has: its own, or that of a case. False: something else. */
static bool read_then(const struct task *task, const struct entry *entry, struct then *then)
{
	const char *text = json_get_text(entry->data, "then");

	*then = (struct then){0};
	if (!text)
		return true;
	if (task->then.name && strcmp(task->then.name, text) == 0) {
		*then = task->then;
		return true;
	}
	for (size_t i = 0; i < task->case_count; i++)
		if (strcmp(task->cases[i].then.name, text) == 0) {
			*then = task->cases[i].then;
			return true;
		}
	then->kind = THEN_END; /* a task inside it said so */
	return strcmp(text, "end") == 0;
}

/* What a task exported replaces the context. */
static void set_context(struct state *state, const struct task *task, const uint64_t *path, struct value *context)
{
	bool is_body = false;
	const struct task *where = context_holder(task, &is_body);

	if (!context)
		return;
	if (!where) {
		set_value(state, &state->context, context);
		return;
	}
	struct instance *holder = edit(state, where, is_body, path, where->loop_depth + is_body);
	CHECK(holder != NULL);
	set_value(state, &holder->context, context);
}

static int corrupt(const struct state *state, const struct entry *entry, const char *expected, struct error *error)
{
	const char *step = json_get_text(entry->data, "stepId");

	return error_set(error, ERR_CORRUPT, "run %s: entry %" PRIu64 " (%s%s%s) cannot follow: %s", state->id, entry->seq,
			 entry_kind_name(entry->kind), step ? " " : "", step ? step : "", expected);
}

/* data[name], a time. 0 when it is not there. False: it is none. */
static bool read_time(const struct entry *entry, const char *name, int64_t *ms)
{
	const char *text = json_get_text(entry->data, name);

	*ms = 0;
	return !text || time_parse(text, ms);
}

static bool read_times(const struct entry *entry, struct instance *instance)
{
	return read_time(entry, "due", &instance->due_ms) && read_time(entry, "timeout", &instance->timeout_ms) &&
	       read_time(entry, "attemptDue", &instance->attempt_due_ms) && read_time(entry, "retryUntil", &instance->retry_until_ms) &&
	       read_time(entry, "since", &instance->since_ms);
}

/* A try begins its list, or its handler's, with its own input. */
static void restart_list(struct state *state, struct instance *try)
{
	try->cursor = 0;
	set_value(state, &try->current, try->input);
}

/* A task that was under way has no output: its sequence waits for it no more. Whether and where it goes on another entry says. */
static void release_holder(struct state *state, const struct task *task, const uint64_t *path, size_t path_count)
{
	const struct task *parent = task->parent;

	CHECK(parent != NULL);
	struct instance *holder = edit(state, parent, task_is_loop(parent), path, path_count);
	if (holder && parent->kind == TASK_FORK)
		holder->live_count--;
	else if (holder)
		holder->child_live = false;
}

static int apply_timer(struct state *state, const struct entry *entry, struct arena *arena, struct error *error)
{
	struct step_id id;
	const char *timer = json_get_text(entry->data, "timer");
	const struct task *task;

	if (!json_get(entry->data, "stepId")) {
		if (state->timeout_ms == 0)
			return corrupt(state, entry, "the run has no timeout", error);
		state->timeout_ms = 0;
		return 0;
	}
	task = step_task(state, entry, arena, &id);
	struct instance *instance = task ? edit(state, task, false, id.iterations, id.iteration_count) : NULL;
	if (!timer || !instance || instance->execution != id.execution)
		return corrupt(state, entry, "the task is not under way", error);
	int64_t *waits = strcmp(timer, "timeout") == 0 ? &instance->timeout_ms : strcmp(timer, "attempt") == 0 ? &instance->attempt_due_ms : &instance->due_ms;
	if (*waits == 0 || (instance->phase != INSTANCE_STARTED && instance->phase != INSTANCE_BACKING_OFF))
		return corrupt(state, entry, "it does not wait for this", error);
	*waits = 0;
	if (waits == &instance->due_ms) {
		set_phase(state, instance, INSTANCE_STARTED);
		if (!read_time(entry, "attemptDue", &instance->attempt_due_ms))
			return corrupt(state, entry, "a time that is none", error);
	}
	return 0;
}

/* A fork that ended before all of its branches that had been cut off were entered again. */
static void forget_again(struct state *state, struct instance *fork)
{
	fork->again = 0;
	for (size_t i = 0; i < fork->task->body.count; i++) {
		struct instance *branch = edit(state, fork->task->body.tasks[i], false, fork->path, fork->path_count);
		if (branch)
			branch->again = 0;
	}
}

static int apply_task(struct state *state, const struct entry *entry, struct arena *arena, struct error *error)
{
	struct step_id id;
	const struct task *task = step_task(state, entry, arena, &id);

	if (!task || !task->parent)
		return corrupt(state, entry, "the definition has no such task", error);
	struct instance *instance = edit(state, task, false, id.iterations, id.iteration_count);
	bool live = instance && instance->execution == id.execution && (instance->phase == INSTANCE_STARTED || instance->phase == INSTANCE_BACKING_OFF);

	if (!live) { /* It begins here: task.started, or a pure task's only entry. */
		struct instance *sequence = edit_sequence(state, task, id.iterations, id.iteration_count, entry->seq);
		bool branch = task->parent->kind == TASK_FORK, again = branch && sequence && sequence->again > 0 && instance && instance->again;
		if (!sequence || (branch ? sequence->next_iteration != task->index && !again :
					   sequence->child_live || sequence->cursor != task->index || sequence->in_handler != task->in_handler))
			return corrupt(state, entry, "it is not this task's turn", error);
		if (id.execution != state_next_execution(state, task, id.iterations, id.iteration_count))
			return corrupt(state, entry, "the execution number is not the next one", error);
		if (entry->kind != ENTRY_TASK_STARTED && entry->kind != ENTRY_TASK_COMPLETED && entry->kind != ENTRY_TASK_SKIPPED &&
		    entry->kind != ENTRY_TASK_FAULTED)
			return corrupt(state, entry, "the task is not under way", error);
		instance = edit_or_add(state, task, false, id.iterations, id.iteration_count);
		/* Of one that was cut off they are most likely the same again: held, that their place stays known. */
		struct value *held_input = NULL, *held_with = NULL;
		set_value(state, &held_input, instance->input);
		set_value(state, &held_with, instance->with);
		set_value(state, &instance->output, NULL);
		release_values(state, instance);
		if (branch) {
			sequence->next_iteration += !again;
			sequence->again -= again;
			sequence->live_count++;
		}
		if (task->kind == TASK_FORK && instance->again > 0)
			forget_again(state, instance);
		instance->again = 0;
		if (entry->kind == ENTRY_TASK_FAULTED)
			state->failed_seq = entry->seq;
		count_execution(state, instance, id.execution);
		instance->cursor = 0;
		set_in_flight(state, instance, false, 0);
		instance->child_live = instance->exited = false;
		instance->attempt = instance->failures = 0;
		instance->item_count = instance->next_iteration = instance->done_count = instance->live_count = 0;
		instance->in_handler = false;
		instance->winner = 0;
		instance->last_seq = instance->met = instance->until_met = 0;
		instance->satisfied = false;
		if (!read_times(entry, instance))
			return corrupt(state, entry, "a time that is none", error);
		instance->start_seq = entry->seq;
		instance->started_ms = entry->time_ms;
		if (entry->kind == ENTRY_TASK_STARTED) {
			sequence->child_live = !branch;
			set_value(state, &instance->input, take_value(state, entry, "input"));
			set_value(state, &instance->with, held_with); /* until its attempt starts */
			set_value(state, &held_input, NULL);
			set_value(state, &held_with, NULL);
			if (task->kind == TASK_DO || task->kind == TASK_TRY)
				set_value(state, &instance->current, instance->input);
			instance->attempt = task->kind == TASK_TRY;
			if (task->kind == TASK_FOR) {
				set_value(state, &instance->items, take_value(state, entry, "in"));
				instance->item_count = (uint64_t)json_get_number(entry->data, "items", 0);
			}
			instance->waits_since_ms = entry->time_ms;
			set_phase(state, instance, task->kind == TASK_WAIT || task->kind == TASK_LISTEN ? INSTANCE_BACKING_OFF : INSTANCE_STARTED);
			return 0;
		}
		set_value(state, &held_input, NULL);
		set_value(state, &held_with, NULL);
	} else if (entry->kind == ENTRY_TASK_STARTED || entry->kind == ENTRY_TASK_SKIPPED) {
		return corrupt(state, entry, "the task is under way already", error);
	}

	switch (entry->kind) {
	case ENTRY_TASK_COMPLETED:
	case ENTRY_TASK_SKIPPED: {
		struct instance *sequence = edit_sequence(state, task, id.iterations, id.iteration_count, entry->seq);
		struct value *output = take_value(state, entry, "output"), *context = NULL;
		struct then then;
		if (!sequence || !output || !read_then(task, entry, &then))
			return corrupt(state, entry, "no output, no such way on, or nothing holds this task", error);
		if (then.kind != THEN_END && (instance->in_flight || instance->live_count > 0 || instance->child_live))
			return corrupt(state, entry, "something inside it is still under way", error);
		/* Held, since they may be what the slots hold that are filled first. */
		struct value *held_output = NULL, *held_context = NULL;
		context = take_value(state, entry, "context");
		set_value(state, &held_output, output);
		set_value(state, &held_context, context);
		if (task->kind == TASK_FORK) /* what its winner exported goes on, unless the fork has an export itself */
			set_context(state, task, id.iterations, instance->context);
		set_context(state, task, id.iterations, context);
		set_phase(state, instance, entry->kind == ENTRY_TASK_COMPLETED ? INSTANCE_COMPLETED : INSTANCE_SKIPPED);
		if (then.kind != THEN_END && task->parent->kind == TASK_FORK) {
			sequence->live_count--;
			sequence->done_count++;
			if (sequence->winner == 0) {
				sequence->winner = task->index + 1;
				if (task->parent->compete)
					set_value(state, &sequence->context, instance->context);
			}
			set_value(state, &instance->output, output);
		} else if (then.kind != THEN_END) {
			advance_sequence(state, sequence, task, output, &then, entry->time_ms);
		} else { /* nothing goes on: the run's end follows */
			state->ended_early = true;
		}
		set_value(state, &state->emitted, NULL);
		release_values(state, instance);
		set_value(state, &held_output, NULL);
		set_value(state, &held_context, NULL);
		return 0;
	}
	case ENTRY_TASK_FAULTED:
	case ENTRY_TASK_CANCELLED:
		if (live || task->parent->kind == TASK_FORK)
			release_holder(state, task, id.iterations, id.iteration_count);
		set_in_flight(state, instance, false, instance->waits_since_ms);
		set_phase(state, instance, entry->kind == ENTRY_TASK_FAULTED ? INSTANCE_FAULTED : INSTANCE_CANCELLED);
		set_value(state, &state->emitted, NULL);
		release_values(state, instance);
		return 0;
	case ENTRY_TASK_RETRYING: {
		const char *due = json_get_text(entry->data, "due");
		if (instance->in_flight || !due || !time_parse(due, &instance->due_ms))
			return corrupt(state, entry, "no time, or an attempt is in flight", error);
		if (task->kind == TASK_TRY && (instance->child_live || instance->in_handler))
			return corrupt(state, entry, "something inside it is still under way", error);
		instance->waits_since_ms = entry->time_ms;
		set_phase(state, instance, INSTANCE_BACKING_OFF);
		if (task->kind == TASK_TRY) {
			instance->attempt = (unsigned)json_get_number(entry->data, "attempt", 0);
			instance->attempt_due_ms = 0;
			restart_list(state, instance);
		}
		return 0;
	}
	case ENTRY_TASK_CAUGHT:
		if (task->kind != TASK_TRY || instance->phase != INSTANCE_STARTED || instance->child_live || instance->in_handler)
			return corrupt(state, entry, "it is no try that just caught", error);
		instance->in_handler = true;
		instance->attempt_due_ms = 0;
		set_value(state, &instance->error, take_value(state, entry, "error"));
		restart_list(state, instance);
		return 0;
	default:
		CHECK(!"a task entry");
		return 0;
	}
}

static int apply_attempt(struct state *state, const struct entry *entry, struct arena *arena, struct error *error)
{
	struct step_id id;
	const struct task *task = step_task(state, entry, arena, &id);
	struct instance *instance = task ? edit(state, task, false, id.iterations, id.iteration_count) : NULL;
	unsigned attempt = (unsigned)json_get_number(entry->data, "attempt", 0);

	if (!instance || instance->execution != id.execution)
		return corrupt(state, entry, "the task is not under way", error);
	switch (entry->kind) {
	case ENTRY_ATTEMPT_STARTED:
		if (instance->in_flight || attempt != instance->attempt + 1 ||
		    (instance->phase != INSTANCE_STARTED && instance->phase != INSTANCE_BACKING_OFF))
			return corrupt(state, entry, "another attempt is in flight, or its number is not the next one", error);
		instance->attempt = attempt;
		instance->attempt_ms = entry->time_ms;
		instance->due_ms = 0;
		set_in_flight(state, instance, true, json_get_boolean(entry->data, "awaits", false) ? entry->time_ms : 0);
		set_value(state, &instance->with, take_value(state, entry, "with"));
		set_phase(state, instance, INSTANCE_STARTED);
		return 0;
	case ENTRY_ATTEMPT_SUCCEEDED:
	case ENTRY_ATTEMPT_FAILED:
		if (!instance->in_flight || attempt != instance->attempt)
			return corrupt(state, entry, "this attempt is not in flight", error);
		budget_spend(&state->spent, json_get(entry->data, "spent"));
		set_in_flight(state, instance, false, instance->waits_since_ms);
		instance->failures += entry->kind == ENTRY_ATTEMPT_FAILED && !is_interruption(entry);
		return 0;
	default:
		CHECK(!"an attempt entry");
		return 0;
	}
}

/* An event that a listener took: one more iteration, or one event less that its `until` waits for. */
static int apply_consumed(struct state *state, const struct entry *entry, struct arena *arena, struct error *error)
{
	struct step_id id;
	const struct task *task = step_task(state, entry, arena, &id);
	struct instance *instance = task ? edit(state, task, false, id.iterations, id.iteration_count) : NULL;
	double seq = json_get_number(entry->data, "eventSeq", 0), filter = json_get_number(entry->data, "filter", -1);
	bool is_until = json_get_boolean(entry->data, "until", false);
	struct value *event = take_value(state, entry, "event"), *held = NULL;
	uint64_t path[STATE_LOOP_DEPTH_MAX + 1];

	if (!instance || !instance_listens(instance) || instance->execution != id.execution)
		return corrupt(state, entry, "no listen waits for an event here", error);
	if (!event || filter < 0 || filter >= EVENT_FILTERS_MAX || seq <= (double)instance->last_seq)
		return corrupt(state, entry, "no event, no such filter, or an event before the last one", error);
	set_value(state, &held, event);
	instance->last_seq = (uint64_t)seq;
	*(is_until ? &instance->until_met : &instance->met) |= UINT64_C(1) << (unsigned)filter;
	instance->satisfied = json_get_boolean(entry->data, "last", false);
	if (json_get(entry->data, "correlation"))
		set_value(state, &instance->correlation, take_value(state, entry, "correlation"));
	remember_consumed(state, instance->last_seq);
	bool begins = !is_until && task->body.count > 0; /* an iteration of its foreach */
	if (!is_until) {
		memcpy(path, id.iterations, id.iteration_count * sizeof *path);
		path[id.iteration_count] = instance->item_count++;
		struct instance *body = edit_or_add(state, task, true, path, id.iteration_count + 1);
		body->execution = begins ? 0 : instance->execution; /* 0: its first entry is still to come */
		set_value(state, &body->items, event);
		set_value(state, &body->output, begins ? NULL : event);
		set_phase(state, body, begins ? INSTANCE_NONE : INSTANCE_COMPLETED);
		instance->next_iteration += !begins;
		instance->done_count += !begins;
	}
	instance->waits_since_ms = entry->time_ms;
	set_phase(state, instance, begins || instance->satisfied ? INSTANCE_STARTED : INSTANCE_BACKING_OFF);
	set_value(state, &held, NULL);
	return 0;
}

static int apply_emitted(struct state *state, const struct entry *entry, struct arena *arena, struct error *error)
{
	struct step_id id;
	const struct task *task = step_task(state, entry, arena, &id);
	struct value *event = take_value(state, entry, "event");

	if (!task || task->kind != TASK_EMIT || !event)
		return corrupt(state, entry, "no emit, or no event", error);
	set_value(state, &state->emitted, event); /* mostly the task's output as well */
	return 0;
}

static int apply_created(struct state *state, const struct entry *entry, struct error *error)
{
	const char *id = json_get_text(entry->data, "runId");

	if (state->entry_count > 0 || !id || !id_valid(id))
		return corrupt(state, entry, "a run is created once, with a good id", error);
	snprintf(state->id, sizeof state->id, "%s", id);
	state->status = RUN_RUNNING;
	state->created_ms = entry->time_ms;
	state->seq_first = entry->seq;
	if (!read_time(entry, "timeout", &state->timeout_ms))
		return corrupt(state, entry, "a time that is none", error);
	const struct json *parent = json_get(entry->data, "parent");
	if (parent) {
		const char *run = json_get_text(parent, "run"), *step = json_get_text(parent, "step");
		if (!run || !id_valid(run) || !step)
			return corrupt(state, entry, "a parent without its id or step", error);
		state->depth = (unsigned)json_get_number(parent, "depth", 1);
		if (!state->base) { /* a draft's are gone before anybody looks */
			state->parent_run = memory_text(run);
			state->parent_step = memory_text(step);
		}
	}
	budget_take(json_get(entry->data, "budget"), &state->budget);
	const struct json *from = json_get(entry->data, "forkedFrom");
	state->carries = from != NULL;
	if (from && !state->base) {
		struct buffer text;
		buffer_init(&text, ENTRY_LEN_MAX);
		json_print(from, &text);
		state->forked_from = memory_text(buffer_text(&text));
		buffer_close(&text);
	}
	set_value(state, &state->input, take_value(state, entry, "input"));
	struct instance *root = edit_or_add(state, state->definition->root, false, (const uint64_t[1]){0}, 0);
	root->execution = 1;
	root->start_seq = entry->seq;
	struct value *start = take_value(state, entry, "start");
	set_value(state, &root->input, start ? start : state->input);
	set_value(state, &root->current, root->input);
	set_phase(state, root, INSTANCE_STARTED);
	return 0;
}

static int apply_ended(struct state *state, const struct entry *entry, struct error *error)
{
	struct instance *root = edit(state, state->definition->root, false, (const uint64_t[1]){0}, 0);

	if (!root || run_status_ended(state->status))
		return corrupt(state, entry, "the run has ended already", error);
	switch (entry->kind) {
	case ENTRY_RUN_COMPLETED:
		state->status = RUN_COMPLETED;
		set_value(state, &state->output, take_value(state, entry, "output"));
		set_phase(state, root, INSTANCE_COMPLETED);
		break;
	case ENTRY_RUN_FAULTED: /* what was under way stays as it was, for run.retried */
		drop_closings(state);
		state->status = RUN_FAULTED;
		set_value(state, &state->error, take_value(state, entry, "error"));
		state->ended_ms = entry->time_ms;
		return 0;
	default:
		state->status = RUN_CANCELLED;
		state->killed = entry->kind == ENTRY_RUN_KILLED;
		set_phase(state, root, INSTANCE_CANCELLED);
		break;
	}
	state->ended_ms = entry->time_ms;
	release_values(state, root);
	if (!state->base) /* Nothing of an ended run decides anything any more. */
		for (size_t i = 0; i < state->instance_slots; i++)
			while (state->instances[i])
				free_instance(state, state->instances[i]);
	return 0;
}

/* A call or a wait that was under way when the run failed: its list is where it stood before it was entered. */
static void cut_off(struct state *state, struct instance *instance)
{
	const struct task *task = instance->task;

	set_in_flight(state, instance, false, 0);
	set_phase(state, instance, INSTANCE_CANCELLED);
	release_holder(state, task, instance->path, instance->path_count);
	if (task->parent->kind != TASK_FORK)
		return;
	instance->again = 1;
	edit(state, task->parent, false, instance->path, task->parent->loop_depth)->again++;
}

/* A branch of a fork that failed without having been under way; elsewhere the place in the list is enough. */
static void mark_failed_branch(struct state *state, const struct instance *fork)
{
	for (size_t i = 0; i < fork->next_iteration; i++) {
		const struct instance *known = state_find(state, fork->task->body.tasks[i], false, fork->path, fork->path_count);
		if (!known || known->phase != INSTANCE_FAULTED || known->start_seq != state->failed_seq)
			continue;
		edit(state, known->task, false, known->path, known->path_count)->again = 1;
		edit(state, fork->task, false, fork->path, fork->path_count)->again++;
	}
}

int state_may_retry(const struct state *state, struct error *error)
{
	const struct instance *root = state_root(state);

	if (state->status != RUN_FAULTED)
		return error_set(error, ERR_EXISTS, "run %s is %s; only a run that has faulted can be retried", state->id,
				 state->killed ? "killed" : run_status_name(state->status));
	/* run.created and run.faulted alone. */
	if (!root || state->entry_count == 2)
		return error_set(error, ERR_EXISTS, "run %s failed before its first task, at its input or its timeout; submit it again as it should be", state->id);
	if (state->ended_early)
		return error_set(error, ERR_EXISTS, "run %s failed at its output, after a task had ended it (`then: end`): nothing of it is left to be done; submit it again", state->id);
	return 0;
}

/* For fork.c. */
struct instance *state_begin_list(struct state *state, const struct task *task, const uint64_t *path, size_t path_count)
{
	return edit_sequence(state, task, path, path_count, state->seq_last);
}

void state_cut_off(struct state *state, struct instance *instance)
{
	cut_off(state, instance);
}

void state_release_values(struct state *state, struct instance *instance)
{
	release_values(state, instance);
	set_value(state, &instance->output, NULL);
}

static bool read_phase(const struct json *data, enum instance_phase *phase)
{
	const char *text = json_get_text(data, "phase");

	for (*phase = INSTANCE_NONE; text && *phase <= INSTANCE_SKIPPED; ++*phase)
		if (strcmp(instance_phase_name(*phase), text) == 0)
			return true;
	return false;
}

/* Of a member that holds a truth or a number. False: it is neither, or negative. */
static bool read_number(const struct json *data, const char *name, uint64_t *number)
{
	const struct json *member = json_get(data, name);

	*number = json_get_boolean(data, name, false);
	if (!member || json_is(member, JSON_BOOLEAN))
		return true;
	if (!json_is_integer(member) || member->number < 0)
		return false;
	*number = (uint64_t)member->number;
	return true;
}

static bool read_mask(const struct json *data, const char *name, uint64_t *mask)
{
	const char *text = json_get_text(data, name);
	char *end;

	*mask = text ? strtoull(text, &end, 16) : 0;
	return !text || (*text && !*end);
}

/* A record of the state that a fork goes on from. They stand right behind run.created, each once, the live ones in the order in which they began. */
static int apply_carried(struct state *state, const struct entry *entry, struct arena *arena, struct error *error)
{
	struct step_id id = {0};
	const struct json *data = entry->data, *consumed = json_get(data, "consumed");
	bool is_root = !json_get(data, "stepId"), is_body = json_get_boolean(data, "body", false);
	const struct task *task = state->definition->root;
	enum instance_phase phase;
	uint64_t number;

	if (!state->carries)
		return corrupt(state, entry, "nothing is carried into a run after its beginning", error);
	if (!is_root) {
		const char *text = json_get_text(data, "stepId");
		task = text && step_id_parse(arena, text, &id) ? definition_find_task(state->definition, id.reference) : NULL;
	}
	if (!task || (is_root && is_body) || id.iteration_count != task->loop_depth + is_body)
		return corrupt(state, entry, "the definition has no such task", error);
	if (!read_phase(data, &phase))
		return corrupt(state, entry, "no such phase", error);
	if (!is_root && find_own(state, task, is_body, id.iterations, id.iteration_count))
		return corrupt(state, entry, "it is there already", error);
	struct instance *instance = edit_or_add(state, task, is_body, id.iterations, id.iteration_count);
#define READ_NUMBER(member, name)                                                                \
	if (!read_number(data, name, &number))                                                   \
		return corrupt(state, entry, name " is no number", error);                      \
	instance->member = (typeof(instance->member))number;
#define READ_MASK(member, name)                                                                  \
	if (!read_mask(data, name, &instance->member))                                           \
		return corrupt(state, entry, name " is no mask", error);
#define READ_VALUE(member, name) set_value(state, &instance->member, take_value(state, entry, name));
	CARRIED_NUMBERS(READ_NUMBER)
	CARRIED_MASKS(READ_MASK)
	CARRIED_VALUES(READ_VALUE)
#undef READ_NUMBER
#undef READ_MASK
#undef READ_VALUE
	set_phase(state, instance, phase);
	if (is_root) { /* its context is the run's */
		set_value(state, &state->context, instance->context);
		set_value(state, &instance->context, NULL);
	}
	for (size_t i = 0; i < json_count(consumed); i++)
		if (json_is_integer(json_at(consumed, i)))
			remember_consumed(state, (uint64_t)json_at(consumed, i)->number);
	return 0;
}

/* What was under way begins anew: calls and waits where they stood in their lists; what holds them goes on. */
static int apply_retried(struct state *state, const struct entry *entry, struct error *error)
{
	struct error why = {0};

	if (state_may_retry(state, &why) != 0)
		return corrupt(state, entry, "a faulted run", error);
	if (!read_time(entry, "timeout", &state->timeout_ms))
		return corrupt(state, entry, "a time that is none", error);
	budget_take(json_get(entry->data, "budget"), &state->budget);
	state->status = RUN_RUNNING;
	state->suspended_ms = 0;
	state->retry_count++;
	state->ended_ms = 0;
	set_value(state, &state->error, NULL);
	set_value(state, &state->emitted, NULL);
	const struct list *lists[] = {state->base ? &state->base->live : NULL, &state->live};
	for (size_t i = state->base == NULL; i < COUNT_OF(lists); i++)
		LIST_EACH_SAFE(link, lists[i]) {
			struct instance *was = CONTAINER_OF(link, struct instance, live);
			if (was->is_body)
				continue;
			if (was->task->kind == TASK_CALL || was->task->kind == TASK_WAIT)
				cut_off(state, edit(state, was->task, false, was->path, was->path_count));
			else if (was->task->kind == TASK_FORK && state->failed_seq != 0)
				mark_failed_branch(state, was);
		}
	return 0;
}

/* Its times begin anew. */
static int apply_resumed(struct state *state, const struct entry *entry, struct arena *arena, struct error *error)
{
	struct step_id id;
	const struct task *task = step_task(state, entry, arena, &id);
	struct instance *instance = task && task->parent ? edit(state, task, false, id.iterations, id.iteration_count) : NULL;

	if (!instance || instance->execution != id.execution || (instance->phase != INSTANCE_STARTED && instance->phase != INSTANCE_BACKING_OFF))
		return corrupt(state, entry, "the task was not under way", error);
	if (!read_time(entry, "timeout", &instance->timeout_ms) || !read_time(entry, "attemptDue", &instance->attempt_due_ms) ||
	    !read_time(entry, "retryUntil", &instance->retry_until_ms))
		return corrupt(state, entry, "a time that is none", error);
	instance->waits_since_ms = entry->time_ms;
	return 0;
}

static void forget_iterations(struct state *state, const struct task *loop, uint64_t *path, size_t path_count, uint64_t from, uint64_t until);

/* Drop the records of the tasks in a list, at one iteration path, and of all below them. The loop around them remembers their execution
 * numbers (`used`). Base only; a draft is short-lived and tells by `scope`. */
static void forget_list(struct state *state, const struct task_list *list, uint64_t *path, size_t path_count)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct task *child = list->tasks[i];
		struct instance *instance = find_own(state, child, false, path, path_count);
		if (!instance)
			continue;
		if (task_is_loop(child))
			forget_iterations(state, child, path, path_count, 0, child->kind == TASK_LISTEN ? instance->item_count : instance->next_iteration);
		else
			forget_list(state, &child->body, path, path_count);
		forget_list(state, &child->handler, path, path_count);
		free_instance(state, instance);
	}
}

static void forget_iterations(struct state *state, const struct task *loop, uint64_t *path, size_t path_count, uint64_t from, uint64_t until)
{
	for (path[path_count] = from; path[path_count] < until; path[path_count]++) {
		struct instance *body = find_own(state, loop, true, path, path_count + 1);
		forget_list(state, &loop->body, path, path_count + 1);
		if (body)
			free_instance(state, body);
	}
}

/* What a task that has ended leaves behind: nothing of a loop's iterations, and nothing of an iteration that ended with it but, in a map,
 * its output. So a loop of any length costs what is under way; outside of loops each task has one record, which counts its executions. */
static void forget_finished(struct state *state, const struct entry *entry, struct arena *arena)
{
	struct step_id id;
	const struct task *task = step_task(state, entry, arena, &id);
	uint64_t path[STATE_LOOP_DEPTH_MAX + 1];

	if (state->base || !task)
		return;
	memcpy(path, id.iterations, id.iteration_count * sizeof *path);
	if (task_is_loop(task)) {
		struct instance *instance = find_own(state, task, false, path, id.iteration_count);
		bool whole = entry->kind == ENTRY_TASK_COMPLETED && task_is_chained(task); /* each is forgotten when it ends */
		if (instance && !whole)
			forget_iterations(state, task, path, id.iteration_count, 0, task->kind == TASK_LISTEN ? instance->item_count : instance->next_iteration);
	}
	for (size_t i = 0; task->kind == TASK_FORK && i < task->body.count; i++) {
		struct instance *branch = find_own(state, task->body.tasks[i], false, path, id.iteration_count);
		if (branch)
			set_value(state, &branch->output, NULL);
	}
	if (!task_is_loop(task->parent))
		return;
	struct instance *body = find_own(state, task->parent, true, path, id.iteration_count);
	if (!body || body->phase != INSTANCE_COMPLETED)
		return;
	forget_list(state, &task->parent->body, path, id.iteration_count);
	if (task_is_chained(task->parent))
		free_instance(state, body);
}

/* Held back, that it can be let go. A task that was not under way leaves a record by its fault, which has to be there. */
static bool is_closing(const struct state *state, const struct entry *entry)
{
	struct arena arena;
	uint64_t execution = 0;

	if (entry->kind != ENTRY_TASK_FAULTED && entry->kind != ENTRY_TASK_CANCELLED)
		return false;
	arena_init(&arena);
	const struct instance *instance = state_find_step(state, json_get_text(entry->data, "stepId"), &arena, &execution);
	arena_close(&arena);
	return instance && instance->execution == execution && (instance->phase == INSTANCE_STARTED || instance->phase == INSTANCE_BACKING_OFF);
}

static void hold_back(struct state *state, const struct entry *entry)
{
	if (state->closing_count == state->closing_cap) {
		state->closing_cap = state->closing_cap ? state->closing_cap * 2 : TABLE_SLOTS_MIN;
		state->closings = memory_resize(state->closings, state->closing_cap * sizeof *state->closings);
	}
	state->closings[state->closing_count++] = (struct closing){
		.step = memory_text(json_get_text(entry->data, "stepId")), .kind = entry->kind, .seq = entry->seq, .time_ms = entry->time_ms,
	};
}

void state_settle(struct state *state)
{
	struct arena arena;

	if (state->closing_count == 0)
		return;
	arena_init(&arena);
	for (size_t i = 0; i < state->closing_count; i++) {
		const struct closing *closing = &state->closings[i];
		struct entry entry = {.kind = closing->kind, .data = json_object(&arena), .seq = closing->seq, .time_ms = closing->time_ms};
		struct error error = {0};
		json_set_text(&arena, entry.data, "stepId", closing->step);
		if (apply_task(state, &entry, &arena, &error) != 0) /* it was under way when it was held back, and nothing came between */
			check_failed(__FILE__, __LINE__, error.message);
		forget_finished(state, &entry, &arena);
	}
	arena_close(&arena);
	drop_closings(state);
}

int workflow_apply(struct state *state, const struct entry *entry, struct error *error)
{
	struct arena arena;
	int rc = 0;

	if (entry->kind != ENTRY_RUN_CREATED && state->entry_count == 0)
		return corrupt(state, entry, "the run was not created", error);
	if (state->closing_count > 0 && state->closings[0].time_ms != entry->time_ms)
		state_settle(state); /* the entries of one decision have one time: these are another one's */
	if (!state->base && is_closing(state, entry)) {
		hold_back(state, entry);
		state->status = run_status_after(state->status, entry);
		state->entry_count++;
		state->seq_last = entry->seq;
		return 0;
	}
	if (entry->kind != ENTRY_RUN_FAULTED)
		state_settle(state);
	arena_init(&arena);
	switch (entry->kind) {
	case ENTRY_RUN_CREATED:
		rc = apply_created(state, entry, error);
		break;
	case ENTRY_RUN_COMPLETED:
	case ENTRY_RUN_FAULTED:
	case ENTRY_RUN_CANCELLED:
	case ENTRY_RUN_KILLED:
		rc = apply_ended(state, entry, error);
		break;
	case ENTRY_RUN_SUSPENDED:
	case ENTRY_RUN_RESUMED:
		if ((state->status == RUN_SUSPENDED) == (entry->kind == ENTRY_RUN_SUSPENDED) && !json_get_boolean(entry->data, "quarantined", false))
			rc = corrupt(state, entry, "the run is suspended already, or is not", error);
		if (entry->kind == ENTRY_RUN_RESUMED)
			state->suspended_ms = 0;
		else if (state->suspended_ms == 0)
			state->suspended_ms = entry->time_ms;
		break;
	case ENTRY_RUN_RETRIED:
		rc = apply_retried(state, entry, error);
		break;
	case ENTRY_TASK_RESUMED:
		rc = apply_resumed(state, entry, &arena, error);
		break;
	case ENTRY_TASK_CARRIED:
		rc = apply_carried(state, entry, &arena, error);
		break;
	case ENTRY_TASK_STARTED:
	case ENTRY_TASK_COMPLETED:
	case ENTRY_TASK_FAULTED:
	case ENTRY_TASK_CANCELLED:
	case ENTRY_TASK_SKIPPED:
	case ENTRY_TASK_RETRYING:
	case ENTRY_TASK_CAUGHT:
		rc = apply_task(state, entry, &arena, error);
		if (rc == 0 && entry->kind != ENTRY_TASK_STARTED && entry->kind != ENTRY_TASK_RETRYING && entry->kind != ENTRY_TASK_CAUGHT)
			forget_finished(state, entry, &arena);
		break;
	case ENTRY_ATTEMPT_STARTED:
	case ENTRY_ATTEMPT_SUCCEEDED:
	case ENTRY_ATTEMPT_FAILED:
		rc = apply_attempt(state, entry, &arena, error);
		break;
	case ENTRY_FACT_RECORDED: {
		const char *verdict = json_get_text(entry->data, "verdict");
		if (verdict && strcmp(verdict, "PASSED") == 0)
			state->fact_count++;
		else
			state->rejected_count++;
		break;
	}
	case ENTRY_TIMER_FIRED:
		rc = apply_timer(state, entry, &arena, error);
		break;
	case ENTRY_EVENT_EMITTED:
		rc = apply_emitted(state, entry, &arena, error);
		break;
	case ENTRY_EVENT_CONSUMED:
		rc = apply_consumed(state, entry, &arena, error);
		break;
	case ENTRY_TIMER_SET:
	case ENTRY_GATE_RECORDED:
	case ENTRY_DOCUMENT_ADDED: /* stands among a run's entries when its input held the document */
		break;
	case ENTRY_JOURNAL_OPENED:
	case ENTRY_KEY_ADDED:
	case ENTRY_DAEMON_STARTED:
	case ENTRY_DAEMON_STOPPING:
	case ENTRY_CLOCK_STEPPED:
	case ENTRY_CONFIG_LOADED:
	case ENTRY_DEFINITION_ADDED:
	case ENTRY_OPERATOR_ACTION:
	case ENTRY_FACT_ERASED:
	case ENTRY_SCHEDULE_TICKED:
	case ENTRY_SCHEDULE_SKIPPED:
	case ENTRY_SCHEDULE_PAUSED:
	case ENTRY_SCHEDULE_RESUMED:
	case ENTRY_EVENT_RECEIVED:
	case ENTRY_EVENTS_FORGOTTEN:
	case ENTRY_SINK_ADVANCED:
	case ENTRY_RUNS_PURGED:
	case ENTRY_CONTENT_ERASED:
	case ENTRY_JOURNAL_PRUNED:
	case ENTRY_RUNTIME_STARTED:
	case ENTRY_RUNTIME_READY:
	case ENTRY_RUNTIME_REFUSED:
	case ENTRY_RUNTIME_STOPPED:
	case ENTRY_RUNTIME_SPENT:
	case ENTRY_KIND_COUNT:
		rc = corrupt(state, entry, "no such entry belongs to a run", error);
		break;
	}
	arena_close(&arena);
	if (rc == 0) {
		state->status = run_status_after(state->status, entry);
		state->carries &= entry->kind == ENTRY_RUN_CREATED || entry->kind == ENTRY_TASK_CARRIED;
		state->entry_count++;
		state->seq_last = entry->seq;
	}
	return rc;
}

/* --- comparing states --------------------------------------------------------------------------------------------- */

static void print_value(struct buffer *out, const char *name, const struct value *value)
{
	char hex[DIGEST_HEX_LEN + 1] = "-";

	if (value)
		digest_hex(&value->digest, hex);
	buffer_printf(out, " %s=%s", name, hex);
}

static int compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct digest state_digest(const struct state *state)
{
	struct arena arena;
	struct buffer out;
	size_t count = 0;

	CHECK(state->closing_count == 0);
	arena_init(&arena);
	buffer_init(&out, STATE_TEXT_MAX);
	buffer_printf(&out, "%s %s %d timeout=%" PRId64 " suspended=%" PRId64, state->id, run_status_name(state->status), state->killed, state->timeout_ms,
		      state->suspended_ms);
	print_value(&out, "input", state->input);
	print_value(&out, "output", state->output);
	print_value(&out, "error", state->error);
	print_value(&out, "context", state->context);
	buffer_printf(&out, " facts=%" PRIu64 "/%" PRIu64 " budget=%" PRId64 "/%" PRId64 " spent=%" PRId64 "/%" PRId64 "\n", state->fact_count, state->rejected_count, state->budget.tokens,
		      state->budget.us, state->spent.tokens, state->spent.us);

	for (size_t i = 0; i < state->consumed_count; i++)
		buffer_printf(&out, " %" PRIu64, state->consumed[i]);
	buffer_printf(&out, "\n");

	/* Hash order depends on addresses: sort the lines. */
	char **lines = arena_alloc(&arena, (state->instance_count + 1) * sizeof *lines);
	for (size_t slot = 0; slot < state->instance_slots; slot++)
		for (const struct instance *instance = state->instances[slot]; instance; instance = instance->next) {
			struct buffer line;
			buffer_init(&line, ENTRY_LEN_MAX);
			buffer_printf(&line, "%s%s", instance->task->reference, instance->is_body ? " body" : "");
			for (size_t i = 0; i < instance->path_count; i++)
				buffer_printf(&line, "#%" PRIu64, instance->path[i]);
			buffer_printf(&line, "@%" PRIu64 " scope=%" PRIu64 " floor=%" PRIu64 " used=%" PRIu64 " exited=%d", instance->execution, instance->scope,
				      instance->floor, instance->used, instance->exited);
			buffer_printf(&line, " winner=%zu again=%" PRIu64 " handler=%d until=%" PRId64 "/%" PRId64 "/%" PRId64, instance->winner, instance->again, instance->in_handler, instance->timeout_ms, instance->attempt_due_ms,
				      instance->retry_until_ms);
			print_value(&line, "caught", instance->error);
			buffer_printf(&line, " %s cursor=%zu child=%d items=%" PRIu64 " next=%" PRIu64 " done=%" PRIu64 " live=%" PRIu64
					     " attempt=%u failures=%u flight=%d due=%" PRId64,
				      instance_phase_name(instance->phase), instance->cursor, instance->child_live, instance->item_count,
				      instance->next_iteration, instance->done_count, instance->live_count, instance->attempt, instance->failures,
				      instance->in_flight, instance->due_ms);
			print_value(&line, "input", instance->input);
			print_value(&line, "output", instance->output);
			print_value(&line, "context", instance->context);
			print_value(&line, "current", instance->current);
			print_value(&line, "items", instance->items);
			print_value(&line, "with", instance->with);
			buffer_printf(&line, " since=%" PRId64 " last=%" PRIu64 " met=%" PRIx64 "/%" PRIx64 " satisfied=%d", instance->since_ms, instance->last_seq, instance->met,
				      instance->until_met, instance->satisfied);
			print_value(&line, "correlation", instance->correlation);
			CHECK(!line.overflow);
			lines[count++] = arena_text(&arena, buffer_text(&line));
			buffer_close(&line);
		}
	qsort(lines, count, sizeof *lines, compare_lines);
	for (size_t i = 0; i < count; i++)
		buffer_printf(&out, "%s\n", lines[i]);
	CHECK(!out.overflow);
	struct digest digest = digest_of(buffer_bytes(&out));
	buffer_close(&out);
	arena_close(&arena);
	return digest;
}
