/* A state as bytes and back: a cache of the fold, so that a run of a million entries is not folded anew by each start (state.h).
 *
 *   format · program version · definition digest · run id · the run's numbers · values · the run's values · tasks · instances, live ones first
 *
 * A slot that holds a value is written as the value's place in the list, counted from 1. The order of the live ones is kept, for decisions
 * go through them in that order. A new member of struct state or struct instance has its line in one of the four lists below.
 * Read state_snapshot_print(). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/packed.h"
#include "workflow/state_internal.h"

/* Raised when what is written changes, or what the fold makes of an entry. */
enum { SNAPSHOT_FORMAT = 5 };

#define STATE_NUMBERS(X) X(retry_count) X(depth) X(created_ms) X(timeout_ms) X(suspended_ms) X(seq_first) X(seq_last) X(entry_count) X(fact_count) X(rejected_count) \
	X(budget.tokens) X(budget.us) X(spent.tokens) X(spent.us)
#define STATE_VALUES(X) X(input) X(output) X(error) X(context) X(emitted)
#define INSTANCE_NUMBERS(X) \
	X(phase) X(execution) X(scope) X(floor) X(used) X(started_ms) X(cursor) X(child_live) X(item_count) X(next_iteration) X(done_count) \
	X(live_count) X(winner) X(exited) X(in_handler) X(attempt_due_ms) X(retry_until_ms) X(attempt) X(failures) X(in_flight) X(attempt_ms) X(due_ms) \
	X(waits_since_ms) X(timeout_ms) X(start_seq) X(again) X(since_ms) X(last_seq) X(met) X(until_met) X(satisfied)
#define INSTANCE_VALUES(X) X(input) X(output) X(context) X(current) X(items) X(error) X(with) X(correlation)

/* Whoever adds a member comes by here. */
#if __SIZEOF_POINTER__ == 8
_Static_assert(sizeof(struct instance) == 472, "a new member of an instance has to be written, too");
_Static_assert(sizeof(struct state) == 440, "a new member of a state has to be written, too");
#endif

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void put_slot(struct buffer *out, const struct value *value)
{
	packed_put(out, value ? value->place : 0);
}

static void put_values(const struct state *state, struct buffer *out)
{
	uint32_t place = 0;

	for (size_t i = 0; i < state->value_slots; i++)
		for (struct value *value = state->values[i]; value; value = value->next)
			value->place = value->use_count > 0 ? ++place : 0;
	packed_put(out, place);
	for (size_t i = 0; i < state->value_slots; i++)
		for (const struct value *value = state->values[i]; value; value = value->next) {
			if (value->place == 0)
				continue;
			buffer_add(out, value->digest.bytes, sizeof value->digest.bytes);
			packed_put(out, value->size);
			packed_put(out, value->content_id);
		}
}

struct tasks {
	const struct task **items;
	size_t count, cap, last;
};

static size_t place_of(const struct tasks *tasks, const struct task *task)
{
	for (size_t i = 0; i < tasks->count; i++) { /* mostly the one after the last, or the same */
		size_t at = (tasks->last + i) % tasks->count;
		if (tasks->items[at] == task)
			return at;
	}
	return SIZE_MAX;
}

static void collect_task(struct tasks *tasks, const struct task *task)
{
	size_t at = place_of(tasks, task);

	if (at != SIZE_MAX) {
		tasks->last = at;
		return;
	}
	if (tasks->count == tasks->cap) {
		tasks->cap = tasks->cap ? tasks->cap * 2 : 16;
		tasks->items = memory_resize(tasks->items, tasks->cap * sizeof *tasks->items);
	}
	tasks->items[tasks->count++] = task;
}

static void put_instance(const struct instance *instance, struct tasks *tasks, struct buffer *out)
{
	tasks->last = place_of(tasks, instance->task);
	packed_put(out, tasks->last);
	packed_put(out, instance->is_body);
	packed_put(out, instance->path_count);
	for (size_t i = 0; i < instance->path_count; i++)
		packed_put(out, instance->path[i]);
#define PUT_NUMBER(name) packed_put(out, (uint64_t)instance->name);
#define PUT_VALUE(name) put_slot(out, instance->name);
	INSTANCE_NUMBERS(PUT_NUMBER)
	INSTANCE_VALUES(PUT_VALUE)
#undef PUT_NUMBER
#undef PUT_VALUE
}

void state_snapshot_print(const struct state *state, const char *program_version, struct buffer *out)
{
	struct tasks tasks = {0};
	uint64_t live = 0;

	CHECK(!state->base && state->entry_count > 0 && !run_status_ended(state->status) && state->closing_count == 0);
	packed_put(out, SNAPSHOT_FORMAT);
	packed_put_bytes(out, bytes_text(program_version));
	buffer_add(out, state->definition->digest.bytes, sizeof state->definition->digest.bytes);
	packed_put_bytes(out, bytes_text(state->id));
	packed_put(out, state->status);
#define PUT_NUMBER(name) packed_put(out, (uint64_t)state->name);
#define PUT_VALUE(name) put_slot(out, state->name);
	STATE_NUMBERS(PUT_NUMBER)
	packed_put_bytes(out, bytes_text(state->parent_run ? state->parent_run : ""));
	packed_put_bytes(out, bytes_text(state->parent_step ? state->parent_step : ""));
	packed_put_bytes(out, bytes_text(state->forked_from ? state->forked_from : ""));
	packed_put(out, state->consumed_count);
	for (size_t i = 0; i < state->consumed_count; i++)
		packed_put(out, state->consumed[i]);
	put_values(state, out);
	STATE_VALUES(PUT_VALUE)
#undef PUT_NUMBER
#undef PUT_VALUE

	for (size_t i = 0; i < state->instance_slots; i++)
		for (const struct instance *instance = state->instances[i]; instance; instance = instance->next)
			collect_task(&tasks, instance->task);
	packed_put(out, tasks.count);
	for (size_t i = 0; i < tasks.count; i++)
		packed_put_bytes(out, bytes_text(tasks.items[i]->reference));
	LIST_EACH(link, &state->live)
		live++;
	packed_put(out, live);
	packed_put(out, state->instance_count);
	LIST_EACH(link, &state->live)
		put_instance(CONTAINER_OF(link, struct instance, live), &tasks, out);
	for (size_t i = 0; i < state->instance_slots; i++)
		for (const struct instance *instance = state->instances[i]; instance; instance = instance->next)
			if (list_empty(&instance->live))
				put_instance(instance, &tasks, out);
	free(tasks.items);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

struct reading {
	struct state *state;
	struct bytes bytes;
	struct value **values;
	size_t value_count;
	const struct task **tasks;
	size_t task_count;
	bool damaged;
};

static uint64_t take(struct reading *r)
{
	uint64_t number = 0;

	if (!packed_take(&r->bytes, &number)) {
		r->damaged = true;
		r->bytes = (struct bytes){0};
		return 0;
	}
	return number;
}

/* At most `max`, that memory is not asked for by a damaged number: each of what follows has at least one byte. */
static size_t take_count(struct reading *r)
{
	uint64_t count = take(r);

	if (count <= r->bytes.len)
		return (size_t)count;
	r->damaged = true;
	return 0;
}

static struct bytes take_bytes(struct reading *r)
{
	struct bytes bytes = {0};

	if (!packed_take_bytes(&r->bytes, &bytes)) {
		r->damaged = true;
		r->bytes = (struct bytes){0};
	}
	return bytes;
}

/* NULL where it is empty. */
static char *take_text(struct reading *r)
{
	struct bytes bytes = take_bytes(r);

	if (bytes.len == 0)
		return NULL;
	char *text = memory_alloc(bytes.len + 1);
	memcpy(text, bytes.data, bytes.len);
	text[bytes.len] = '\0';
	return text;
}

static struct digest take_digest(struct reading *r)
{
	struct digest digest = {0};

	if (r->bytes.len < sizeof digest.bytes) {
		r->damaged = true;
		return digest;
	}
	memcpy(digest.bytes, r->bytes.data, sizeof digest.bytes);
	r->bytes.data += sizeof digest.bytes;
	r->bytes.len -= sizeof digest.bytes;
	return digest;
}

static void take_consumed(struct reading *r)
{
	size_t count = take_count(r);

	if (count > STATE_EVENTS_REMEMBERED_MAX)
		r->damaged = true;
	for (size_t i = 0; i < count && !r->damaged; i++)
		state_remember_consumed(r->state, take(r));
}

static void take_slot(struct reading *r, struct value **slot)
{
	uint64_t place = take(r);

	if (place > r->value_count)
		r->damaged = true;
	else if (place > 0)
		state_set_value(r->state, slot, r->values[place - 1]);
}

static void take_values(struct reading *r)
{
	size_t count = take_count(r);

	r->values = memory_zero((count + 1) * sizeof *r->values);
	for (size_t i = 0; i < count && !r->damaged; i++) {
		struct digest digest = take_digest(r);
		uint64_t size = take(r), content_id = take(r);
		if (r->damaged || state_find_value(r->state, &digest)) {
			r->damaged = true;
			return;
		}
		struct value *value = state_add_value(r->state, &digest);
		value->size = size;
		value->content_id = content_id;
		r->values[r->value_count++] = value;
	}
}

static void take_tasks(struct reading *r)
{
	size_t count = take_count(r);
	struct arena arena;

	arena_init(&arena);
	r->tasks = memory_zero((count + 1) * sizeof *r->tasks);
	for (size_t i = 0; i < count && !r->damaged; i++) {
		struct bytes reference = take_bytes(r);
		const struct task *task = definition_find_task(r->state->definition, arena_text_len(&arena, (const char *)reference.data, reference.len));
		if (!task)
			r->damaged = true;
		r->tasks[r->task_count++] = task;
	}
	arena_close(&arena);
}

static void take_instance(struct reading *r, bool live)
{
	uint64_t at = take(r), is_body = take(r), path_count = take(r), path[STATE_LOOP_DEPTH_MAX] = {0};

	if (r->damaged || at >= r->task_count || is_body > 1 || path_count != r->tasks[at]->loop_depth + is_body || path_count > STATE_LOOP_DEPTH_MAX) {
		r->damaged = true;
		return;
	}
	for (size_t i = 0; i < path_count; i++)
		path[i] = take(r);
	struct instance *instance = state_add_instance(r->state, r->tasks[at], is_body, path, path_count);
	if (!instance) {
		r->damaged = true;
		return;
	}
#define TAKE_NUMBER(name) instance->name = (typeof(instance->name))take(r);
#define TAKE_VALUE(name) take_slot(r, &instance->name);
	INSTANCE_NUMBERS(TAKE_NUMBER)
	INSTANCE_VALUES(TAKE_VALUE)
#undef TAKE_NUMBER
#undef TAKE_VALUE
	if (instance->phase > INSTANCE_SKIPPED || live != (instance->phase == INSTANCE_STARTED || instance->phase == INSTANCE_BACKING_OFF))
		r->damaged = true;
	if (live)
		list_add_last(&r->state->live, &instance->live);
	state_count_waiting(r->state, instance, 1);
}

static void take_all(struct reading *r, const char *program_version)
{
	struct state *state = r->state;

	if (take(r) != SNAPSHOT_FORMAT || !bytes_equal_text(take_bytes(r), program_version)) {
		r->damaged = true;
		return;
	}
	struct digest definition = take_digest(r);
	struct bytes id = take_bytes(r);
	if (r->damaged || !digest_equal(&definition, &state->definition->digest) || id.len > ID_LEN_MAX) {
		r->damaged = true;
		return;
	}
	memcpy(state->id, id.data, id.len);
	state->id[id.len] = '\0';
	uint64_t status = take(r);
	state->status = (enum run_status)status;
	if (status > RUN_COMPLETED || run_status_ended(state->status))
		r->damaged = true;
#define TAKE_NUMBER(name) state->name = (typeof(state->name))take(r);
#define TAKE_VALUE(name) take_slot(r, &state->name);
	STATE_NUMBERS(TAKE_NUMBER)
	state->parent_run = take_text(r);
	state->parent_step = take_text(r);
	state->forked_from = take_text(r);
	take_consumed(r);
	take_values(r);
	STATE_VALUES(TAKE_VALUE)
#undef TAKE_NUMBER
#undef TAKE_VALUE
	take_tasks(r);
	size_t live = take_count(r), count = take_count(r);
	if (live > count)
		r->damaged = true;
	for (size_t i = 0; i < count && !r->damaged; i++)
		take_instance(r, i < live);
	for (size_t i = 0; i < r->value_count && !r->damaged; i++)
		r->damaged = r->values[i]->use_count == 0; /* nobody would ever free it */
	if (r->bytes.len > 0 || !state_root(state))
		r->damaged = true;
}

int state_snapshot_read(struct state *state, struct bytes bytes, const char *program_version, struct error *error)
{
	struct reading r = {.state = state, .bytes = bytes};

	CHECK(!state->base && state->entry_count == 0);
	take_all(&r, program_version);
	free(r.values);
	free(r.tasks);
	return r.damaged ? error_set(error, ERR_CORRUPT, "the snapshot is damaged, or was made by another version or of another definition") : 0;
}
