/* See fork.h. Read fork_find_add(), fork_carry(). */
#include "workflow/fork.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/state_internal.h"

static const char *const children_names[] = {"keep", "rerun", "detach"};

const char *fork_children_name(enum fork_children children)
{
	return children_names[children];
}

bool fork_children_parse(const char *text, enum fork_children *children)
{
	for (size_t i = 0; i < COUNT_OF(children_names); i++)
		if (strcmp(children_names[i], text) == 0) {
			*children = (enum fork_children)i;
			return true;
		}
	return false;
}

/* --- where -------------------------------------------------------------------------------------------------------- */

/* By its name, where only one task has it. */
static void find_named(const struct task *parent, const char *name, const struct task **found, size_t *count)
{
	const struct task_list *lists[] = {&parent->body, &parent->handler};

	for (size_t i = 0; i < COUNT_OF(lists); i++)
		for (size_t k = 0; k < lists[i]->count; k++) {
			const struct task *task = lists[i]->tasks[k];
			if (strcmp(task->name, name) == 0) {
				*found = task;
				++*count;
			}
			find_named(task, name, found, count);
		}
}

/* The task of a reference or name; the deepest nesting of a definition bounds the recursion. */
static const struct task *find_task(const struct definition *definition, const char *text, size_t *count)
{
	const struct task *task = definition_find_task(definition, text);

	*count = task != NULL;
	if (!task && *text != '/')
		find_named(definition->root, text, &task, count);
	return task;
}

int fork_find_begin(struct fork_find *find, struct error *error)
{
	size_t count = 0;
	const char *whole = arena_printf(find->arena, "%s@1", find->from);

	*error = (struct error){0};
	find->kept = json_array(find->arena);
	find->has_execution = step_id_parse(find->arena, find->from, &find->id) && (find->task = find_task(find->definition, find->id.reference, &count)) != NULL;
	if (!find->has_execution && step_id_parse(find->arena, whole, &find->id))
		find->task = find_task(find->definition, find->id.reference, &count);
	if (count > 1)
		return error_set(error, ERR_INVALID, "%zu tasks have the name %.128s; say which by its reference, such as %.200s", count, find->id.reference, find->task->reference);
	if (!find->task || !find->task->parent)
		return error_set(error, ERR_NOT_FOUND, "the definition of run %s has no task %.200s; reprise show %s lists its tasks", find->run_id, find->from, find->run_id);
	if (find->id.iteration_count != 0 && find->id.iteration_count != find->task->loop_depth)
		return error_set(error, ERR_INVALID, "%.200s: task %.200s stands in %zu loops, so its place is written with as many numbers after the #", find->from, find->task->reference,
				 find->task->loop_depth);
	return 0;
}

static bool matches(const struct fork_find *find, const struct task *task, const struct step_id *id)
{
	return task == find->task && (!find->has_execution || id->execution == find->id.execution) &&
	       (find->id.iteration_count == 0 || memcmp(id->iterations, find->id.iterations, id->iteration_count * sizeof *id->iterations) == 0);
}

/* It is among those that are remembered: a task that had started is told apart from one whose fault is all there is. */
static bool is_shown(const struct fork_find *find, const char *step)
{
	for (size_t i = 0; i < find->shown_count; i++)
		if (strcmp(find->shown[i], step) == 0)
			return true;
	return false;
}

static void show(struct fork_find *find, const char *step)
{
	if (find->shown_count < FORK_SHOWN_MAX)
		find->shown[find->shown_count++] = arena_text(find->arena, step);
}

static void keep_child(struct fork_find *find, const struct step_id *id)
{
	char key[DIGEST_HEX_LEN + 1];

	if (json_count(find->kept) >= FORK_KEPT_MAX) {
		find->kept_more++;
		return;
	}
	step_idempotency_key(find->run_id, id, key);
	json_add(find->arena, find->kept, json_text_len(find->arena, key, FORK_CHILD_ID_LEN));
}

/* Of a run that is a fork itself. */
static void read_origin(struct fork_find *find, const struct entry *created)
{
	const struct json *from = json_get(created->data, "forkedFrom"), *kept = json_get(from, "kept");

	if (json_get_text(from, "run"))
		find->origin = arena_text(find->arena, json_get_text(from, "run"));
	for (size_t i = 0; i < json_count(kept); i++)
		json_add(find->arena, find->kept, json_copy(find->arena, json_at(kept, i)));
	find->kept_more = (size_t)json_get_number(from, "more", 0);
	if (!json_get_digest(created->data, "labels", &find->labels))
		return;
	for (size_t i = 0; i < created->value_count; i++)
		if (digest_equal(&created->values[i].digest, &find->labels))
			find->labels_id = CONTENT_ID(created->seq, i);
}

static void find_in(struct fork_find *find, const struct entry *entry, struct arena *scratch)
{
	const char *step = json_get_text(entry->data, "stepId");
	struct step_id id;
	bool only_entry = entry->kind == ENTRY_TASK_SKIPPED || (entry->kind == ENTRY_TASK_COMPLETED && json_get(entry->data, "input"));

	if (!step || !step_id_parse(scratch, step, &id) || json_get_boolean(entry->data, "body", false))
		return;
	const struct task *task = definition_find_task(find->definition, id.reference);
	if (!task || id.iteration_count != task->loop_depth)
		return;
	bool is_child = task->kind == TASK_CALL && task->function == FUNCTION_RUN, is_it = matches(find, task, &id);
	if (entry->kind == ENTRY_TASK_CARRIED) {
		find->was_carried |= is_it;
		return;
	}
	if (entry->kind == ENTRY_TASK_COMPLETED && is_child && !only_entry && find->seq == 0)
		keep_child(find, &id);
	if (entry->kind == ENTRY_TASK_FAULTED || entry->kind == ENTRY_EVENT_EMITTED)
		only_entry = is_it && !is_shown(find, step); /* it could not even begin; an emit says first what it emits */
	else if (entry->kind == ENTRY_TASK_COMPLETED && is_it && is_shown(find, step))
		only_entry = false;
	if (entry->kind != ENTRY_TASK_STARTED && !only_entry)
		return;
	find->began++;
	if (is_child && !find->child_step && find->seq == 0) {
		find->child_step = arena_text(find->arena, step);
		find->child_seq = entry->seq;
	}
	if (is_it && find->steps++ == 0) {
		find->shown_count = 0; /* from now on those that match */
		find->seq = entry->seq;
		find->step = arena_text(find->arena, step);
	}
	if (is_it || find->steps == 0)
		show(find, step);
}

void fork_find_add(struct fork_find *find, const struct entry *entries, size_t count)
{
	struct arena scratch;

	arena_init(&scratch);
	for (size_t i = 0; i < count; i++) {
		if (entries[i].kind == ENTRY_RUN_CREATED)
			read_origin(find, &entries[i]);
		find_in(find, &entries[i], &scratch);
	}
	arena_close(&scratch);
}

static const char *shown_text(const struct fork_find *find)
{
	struct buffer text;

	buffer_init(&text, FORK_SHOWN_MAX * ENTRY_LEN_MAX);
	for (size_t i = 0; i < find->shown_count; i++)
		buffer_printf(&text, "%s%s", i == 0 ? "" : ", ", find->shown[i]);
	const char *shown = arena_text(find->arena, buffer_text(&text));
	buffer_close(&text);
	return shown;
}

int fork_find_end(struct fork_find *find, struct error *error)
{
	*error = (struct error){0};
	if (find->steps == 0 && find->was_carried)
		return error_set(error, ERR_INVALID, "task %.200s of run %s began before that run was forked: fork run %s from it", find->from, find->run_id, find->origin);
	if (find->steps == 0 && find->began == 0)
		return error_set(error, ERR_INVALID, "run %s has begun no task that a fork could begin with", find->run_id);
	if (find->steps == 0)
		return error_set(error, ERR_INVALID, "run %s has not begun task %.200s; a fork can begin with any of the %zu that reprise show %s lists: %s", find->run_id, find->from, find->began,
				 find->run_id, shown_text(find));
	if (find->steps > 1) { /* past those that are shown, one that faulted or emitted is counted twice */
		bool all_shown = find->steps <= FORK_SHOWN_MAX;
		return error_set(error, ERR_INVALID, "run %s has begun task %.200s %s%zu times; say which (reprise show %s lists them): %s", find->run_id, find->from, all_shown ? "" : "more than ",
				 all_shown ? find->steps : FORK_SHOWN_MAX, find->run_id, shown_text(find));
	}
	if (find->children != FORK_RERUN || !find->child_step || find->child_seq >= find->seq)
		return 0;
	find->seq = find->child_seq;
	find->step = find->child_step;
	find->moved = true;
	return 0;
}

/* --- what --------------------------------------------------------------------------------------------------------- */

struct carrying {
	struct state *state;
	struct arena *arena;
	const struct fork_find *find;
	const struct fork_source *source;
	struct entry *entries;
	size_t count, bytes;
	/* Values that an entry before brings: open addressing, as many slots as there can be values. */
	struct digest *brought;
	bool *is_taken;
	size_t slots;
};

static bool bring(struct carrying *c, const struct digest *digest)
{
	size_t slot;

	memcpy(&slot, digest->bytes, sizeof slot);
	for (slot &= c->slots - 1; c->is_taken[slot]; slot = (slot + 1) & (c->slots - 1))
		if (digest_equal(&c->brought[slot], digest))
			return false;
	c->is_taken[slot] = true;
	c->brought[slot] = *digest;
	return true;
}

/* The value's bytes, copied. */
static int load(struct carrying *c, const struct value *value, struct bytes *bytes, struct error *error)
{
	c->bytes += value->size;
	if (c->bytes > FORK_BYTES_MAX)
		return error_set(error, ERR_TOO_LARGE, "the values that run %s held when it began %s are together larger than %d MiB, the most that a fork copies (FORK_BYTES_MAX); fork from a task before "
				 "they were made", c->find->run_id, c->find->step, FORK_BYTES_MAX >> 20);
	if (value->bytes.data) {
		*bytes = arena_bytes(c->arena, value->bytes);
		return 0;
	}
	return c->source->load(c->source->context, c->arena, value->content_id, &value->digest, bytes, error);
}

static int carry_value(struct carrying *c, struct entry *entry, const char *name, const struct value *value, struct error *error)
{
	struct bytes bytes;

	if (!value)
		return 0;
	json_set_digest(c->arena, entry->data, name, &value->digest);
	if (!bring(c, &value->digest))
		return 0;
	if (load(c, value, &bytes, error) != 0)
		return error_wrap(error, "a fork of run %s from %s", c->find->run_id, c->find->step);
	CHECK(entry->value_count < ENTRY_VALUES_MAX);
	entry->values[entry->value_count++] = (struct entry_value){value->digest, bytes, bytes.len};
	return 0;
}

static int carry(struct carrying *c, const struct instance *instance, struct error *error)
{
	struct entry *entry = &c->entries[c->count++];
	struct step_id id = {.reference = instance->task->reference, .iteration_count = instance->path_count, .execution = instance->execution};

	*entry = (struct entry){.kind = ENTRY_TASK_CARRIED, .data = json_object(c->arena)};
	memcpy(id.iterations, instance->path, instance->path_count * sizeof *id.iterations);
	if (instance->task->parent)
		json_set_text(c->arena, entry->data, "stepId", step_id_print(c->arena, &id));
	if (instance->is_body)
		json_set_boolean(c->arena, entry->data, "body", true);
	json_set_text(c->arena, entry->data, "phase", instance_phase_name(instance->phase));
#define CARRY_NUMBER(member, name) \
	if (instance->member != 0) \
		json_set_number(c->arena, entry->data, name, (double)instance->member);
#define CARRY_MASK(member, name) \
	if (instance->member != 0) \
		json_set_text(c->arena, entry->data, name, arena_printf(c->arena, "%" PRIx64, instance->member));
#define CARRY_VALUE(member, name) \
	if (carry_value(c, entry, name, instance->member, error) != 0) \
		return error->code;
	CARRIED_NUMBERS(CARRY_NUMBER)
	CARRIED_MASKS(CARRY_MASK)
	CARRIED_VALUES(CARRY_VALUE)
#undef CARRY_NUMBER
#undef CARRY_MASK
#undef CARRY_VALUE
	return 0;
}

/* The run's own list; events that were consumed are told in as many entries as they need. */
static int carry_root(struct carrying *c, struct error *error)
{
	enum { EVENTS_IN_ENTRY = 3000 /* at 17 digits each */ };
	struct instance *root = (struct instance *)state_root(c->state);
	struct json *consumed = NULL;

	state_set_value(c->state, &root->context, c->state->context);
	if (carry(c, root, error) != 0)
		return error->code;
	for (size_t i = 0; i < c->state->consumed_count; i++) {
		if (i % EVENTS_IN_ENTRY == 0) {
			if (i > 0) {
				c->entries[c->count] = (struct entry){.kind = ENTRY_TASK_CARRIED, .data = json_copy(c->arena, c->entries[c->count - 1].data)};
				c->count++;
			}
			consumed = json_array(c->arena);
			json_set(c->arena, c->entries[c->count - 1].data, "consumed", consumed);
		}
		json_add(c->arena, consumed, json_number(c->arena, (double)c->state->consumed[i]));
	}
	return 0;
}

static int compare_instances(const void *a, const void *b)
{
	const struct instance *x = *(const struct instance *const *)a, *y = *(const struct instance *const *)b;
	int order = strcmp(x->task->reference, y->task->reference);

	if (order != 0 || x->path_count != y->path_count)
		return order ? order : (int)x->path_count - (int)y->path_count;
	for (size_t i = 0; i < x->path_count; i++)
		if (x->path[i] != y->path[i])
			return x->path[i] < y->path[i] ? -1 : 1;
	return 0;
}

/* What was in flight then is in flight in the other run alone. */
static void cut_off_live(struct state *state, bool detaches)
{
	LIST_EACH_SAFE(link, &state->live) {
		struct instance *instance = CONTAINER_OF(link, struct instance, live);
		bool is_call = instance->task->kind == TASK_CALL;
		if (instance->is_body || (!is_call && instance->task->kind != TASK_WAIT))
			continue;
		if (is_call && instance->task->function == FUNCTION_RUN && detaches) { /* decide completes it: see detach_children() */
			state_set_value(state, &instance->with, NULL);
			state_count_waiting(state, instance, -1);
			instance->in_flight = false;
			state_count_waiting(state, instance, 1);
			instance->attempt = instance->failures = 0;
			continue;
		}
		state_cut_off(state, instance);
		state_release_values(state, instance);
	}
}

/* The list that the task is about to begin in gives it another input. */
static int replace_input(struct state *state, const struct fork_find *find, struct bytes input, struct error *error)
{
	const struct task *task = find->task;
	struct digest digest = digest_of(input);
	struct step_id id;

	if (find->moved)
		return error_set(error, ERR_INVALID, "with children: rerun this fork begins with %s, before %.200s, whose input cannot be given then; fork from %s, or keep the children", find->step, find->from,
				 find->step);
	if (task->parent->kind == TASK_FORK)
		return error_set(error, ERR_INVALID, "task %.200s is a branch of %.200s, and all branches have one input; fork from %.200s, or from a task inside the branch", task->reference,
				 task->parent->reference, task->parent->reference);
	CHECK(step_id_parse(find->arena, find->step, &id));
	struct instance *list = state_begin_list(state, task, id.iterations, id.iteration_count);
	if (!list)
		return error_set(error, ERR_INVALID, "nothing can give task %.200s another input", find->step);
	struct value *value = state_find_value(state, &digest);
	if (!value) {
		value = state_add_value(state, &digest);
		value->size = input.len;
	}
	if (!value->bytes.data) {
		uint8_t *copy = memory_alloc(input.len + 1);
		memcpy(copy, input.data, input.len);
		copy[input.len] = 0;
		value->bytes = (struct bytes){copy, input.len};
		state->inline_bytes += input.len;
	}
	state_set_value(state, &list->current, value);
	return 0;
}

static const struct json *make_from(const struct fork_find *find)
{
	struct json *from = json_object(find->arena);

	json_set_text(find->arena, from, "run", find->run_id);
	json_set_text(find->arena, from, "step", find->step);
	json_set_number(find->arena, from, "seq", (double)find->seq);
	json_set_text(find->arena, from, "children", fork_children_name(find->children));
	if (find->children != FORK_KEEP)
		return from;
	if (json_count(find->kept) > 0)
		json_set(find->arena, from, "kept", find->kept);
	if (find->kept_more > 0)
		json_set_number(find->arena, from, "more", (double)find->kept_more);
	return from;
}

int fork_carry(struct state *state, const struct fork_find *find, const struct bytes *input, const struct fork_source *source, struct forking *forking,
	       struct bytes *run_input, struct error *error)
{
	struct carrying c = {.state = state, .arena = find->arena, .find = find, .source = source, .slots = 64};
	struct instance *root = (struct instance *)state_root(state);
	size_t count = 0;

	*error = (struct error){0};
	CHECK(!state->base && root && root->phase == INSTANCE_STARTED);
	state_settle(state);
	cut_off_live(state, find->children == FORK_DETACH);
	if (input && replace_input(state, find, *input, error) != 0)
		return error->code;
	if (state->instance_count > FORK_RECORDS_MAX)
		return error_set(error, ERR_TOO_LARGE, "run %s knew of %zu tasks and iterations when it began %s, more than %d, the most that a fork takes over (FORK_RECORDS_MAX); fork from the loop "
				 "itself, or from a task before it", find->run_id, state->instance_count, find->step, FORK_RECORDS_MAX);
	while (c.slots < state->value_count * 2 + 4)
		c.slots *= 2;
	c.brought = arena_alloc(c.arena, c.slots * sizeof *c.brought);
	c.is_taken = arena_zero(c.arena, c.slots * sizeof *c.is_taken);
	c.entries = arena_zero(c.arena, (state->instance_count + state->consumed_count / 1000 + 2) * sizeof *c.entries);
	/* run.created brings these two. */
	if (load(&c, state->input, run_input, error) != 0)
		return error_wrap(error, "a fork of run %s from %s", find->run_id, find->step);
	forking->start = *run_input;
	bring(&c, &state->input->digest);
	if (bring(&c, &root->input->digest) && load(&c, root->input, &forking->start, error) != 0)
		return error_wrap(error, "a fork of run %s from %s", find->run_id, find->step);

	if (carry_root(&c, error) != 0)
		return error->code;
	LIST_EACH(link, &state->live) {
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		if (instance != root && carry(&c, instance, error) != 0)
			return error->code;
	}
	const struct instance **rest = arena_alloc(c.arena, (state->instance_count + 1) * sizeof *rest);
	for (size_t i = 0; i < state->instance_slots; i++)
		for (const struct instance *instance = state->instances[i]; instance; instance = instance->next)
			if (list_empty(&instance->live))
				rest[count++] = instance;
	qsort(rest, count, sizeof *rest, compare_instances);
	for (size_t i = 0; i < count; i++)
		if (carry(&c, rest[i], error) != 0)
			return error->code;
	forking->from = make_from(find);
	forking->carried = c.entries;
	forking->carried_count = c.count;
	return 0;
}

/* --- another definition ------------------------------------------------------------------------------------------- */

/* RFC 7396. The target may be NULL. */
static struct json *merge(struct arena *arena, struct json *target, const struct json *patch)
{
	if (!json_is(patch, JSON_OBJECT))
		return json_copy(arena, patch);
	if (!json_is(target, JSON_OBJECT))
		target = json_object(arena);
	for (size_t i = 0; i < patch->object.count; i++) {
		const struct json_member *member = &patch->object.members[i];
		if (json_is(member->value, JSON_NULL))
			json_remove(target, member->name);
		else
			json_set(arena, target, member->name, merge(arena, json_get(target, member->name), member->value));
	}
	return target;
}

/* The call that an author wrote around a task that it was expanded to; NULL: there is none. */
static const struct task *built_in_around(const struct task *task)
{
	for (task = task->parent; task; task = task->parent)
		if (task->built_in)
			return task;
	return NULL;
}

struct json *fork_patch_document(struct arena *arena, const struct definition *definition, const struct fork_find *find, const struct json *patches, struct error *error)
{
	struct json *document = json_copy(arena, definition->document);

	*error = (struct error){0};
	for (size_t i = 0; i < json_count(patches); i++) {
		const char *reference = patches->object.members[i].name;
		const struct json *patch = patches->object.members[i].value;
		const struct task *task = definition_find_task(definition, reference), *around = task ? built_in_around(task) : NULL;
		struct json *written = task ? json_pointer_get(document, reference) : NULL;
		if (!task || !task->parent)
			error_set(error, ERR_INVALID, "the definition has no task %.200s, whose arguments could be set", reference);
		else if (around)
			error_set(error, ERR_INVALID, "task %.200s has its arguments from %.200s, which has taken them already; fork from %.200s to set them", reference, around->reference, around->reference);
		else if (!json_get_text(written, "call"))
			error_set(error, ERR_INVALID, "task %.200s is no call: only members of the `with` of a call can be set", reference);
		else if (!json_is(patch, JSON_OBJECT))
			error_set(error, ERR_INVALID, "task %.200s: what is set is an object of members of its `with`, not %s", reference, json_type_name(patch->type));
		for (const struct task *outer = find->task; outer && task && error->code == ERR_NONE; outer = outer->parent)
			if (outer == task && outer != find->task)
				error_set(error, ERR_INVALID, "task %.200s has taken its arguments before %.200s began; fork from %.200s to set them", reference, find->from, reference);
		if (error->code != ERR_NONE)
			return NULL;
		json_set(arena, written, "with", merge(arena, json_get(written, "with"), patch));
	}
	return document;
}

/* Can a list that has come to `from` (`is_live`: which is under way) begin the task at `index` from now on? What an `if` or a switch will decide is not known, so every way counts. */
static bool list_comes_to(const struct task_list *list, size_t from, bool is_live, size_t index)
{
	bool *comes = memory_zero(list->count + 1), found, grows = from < list->count;

	if (grows && !is_live)
		comes[from] = true;
	for (bool first = is_live; grows; first = false) {
		grows = false;
		for (size_t i = 0; i < list->count; i++) {
			const struct task *task = list->tasks[i];
			if (!comes[i] && !(first && i == from))
				continue;
			for (size_t k = 0; k <= task->case_count + 1; k++) { /* its own `then`, those of its cases, and the next task: it may have been left out by its `if` */
				const struct then *then = k == 0 ? &task->then : k <= task->case_count ? &task->cases[k - 1].then : NULL;
				size_t to = then && then->kind == THEN_TASK ? then->index : i + 1;
				if (to < list->count && !comes[to])
					comes[to] = grows = true;
			}
		}
	}
	found = index < list->count && comes[index];
	free(comes);
	return found;
}

/* Does the state, about to go on in or below `holder`, come to take the arguments of the task? What stands below something that is under way has a record of its own. */
static bool comes_to(const struct instance *holder, const struct task *task, const struct fork_find *find)
{
	const struct task *inner = task;

	if (holder->task == task) /* a call that was under way is begun anew; where a child is let go, nothing is */
		return task->kind == TASK_CALL && !(task->function == FUNCTION_RUN && find->children == FORK_DETACH);
	while (inner && inner->parent != holder->task)
		inner = inner->parent;
	if (!inner)
		return false;
	if (task_is_loop(holder->task) && !holder->is_body)
		return (holder->next_iteration < holder->item_count && !holder->exited) || (holder->task->kind == TASK_LISTEN && !holder->satisfied);
	if (holder->task->kind == TASK_FORK)
		return inner->index >= holder->next_iteration || holder->again > 0;
	if (holder->task->kind == TASK_TRY && holder->task->catch && holder->task->catch->retry && !inner->in_handler)
		return true;
	if (holder->task->kind == TASK_TRY && inner->in_handler != holder->in_handler)
		return inner->in_handler;
	return list_comes_to(state_list(holder), holder->cursor, holder->child_live, inner->index);
}

int fork_check_patches(struct state *state, const struct fork_find *find, const struct json *patches, struct error *error)
{
	*error = (struct error){0};
	state_settle(state);
	for (size_t i = 0; i < json_count(patches); i++) {
		const char *reference = patches->object.members[i].name;
		const struct task *task = definition_find_task(find->definition, reference);
		bool comes = false;

		CHECK(task); /* fork_patch_document() has seen to it */
		LIST_EACH(link, &state->live)
			comes |= comes_to(CONTAINER_OF(link, struct instance, live), task, find);
		if (!comes)
			return error_set(error, ERR_INVALID, "task %.200s comes before %.200s, where the fork begins, and is not begun again: what is set would have no effect; fork from %.200s, or from a task before "
					 "it, to set it", reference, find->step, reference);
	}
	return 0;
}

struct digest fork_request_digest(const char *run_id, const struct digest *overrides)
{
	struct arena arena;

	arena_init(&arena);
	struct json *content = json_object(&arena);
	json_set_text(&arena, content, "forkOf", run_id);
	json_set_digest(&arena, content, "overrides", overrides);
	struct digest digest = json_digest(content);
	arena_close(&arena);
	return digest;
}
