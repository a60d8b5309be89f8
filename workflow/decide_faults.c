/* A part of decide.c: how a task, a try and the run end. Read decide_complete_task(), decide_fault_task(). */
#include "workflow/deciding.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/spent.h"
#include "workflow/retry.h"

struct json *decide_error_json(struct deciding *d, const char *type, int status, const char *title, const char *detail, const char *instance,
			       const char *class)
{
	struct json *json = json_object(d->arena);

	json_set_text(d->arena, json, "type", type);
	json_set_number(d->arena, json, "status", status);
	json_set_text(d->arena, json, "title", title);
	if (detail && *detail)
		json_set_text(d->arena, json, "detail", detail);
	json_set_text(d->arena, json, "instance", instance);
	if (class && *class)
		json_set_text(d->arena, json, "class", class);
	return json;
}

void decide_end_run(struct deciding *d, struct entry *entry)
{
	if (d->trigger->run_record)
		decide_carry(d, entry, "record", json_print_arena(d->trigger->run_record, d->arena));
	const struct spent spent = {.tokens = d->draft.spent.tokens, .us = d->draft.spent.us};
	if (spent_is_any(&spent)) /* a parent that waits for it reads this entry alone */
		json_set(d->arena, entry->data, "spent", spent_json(d->arena, &spent));
	decide_emit(d, entry);
	decide_new_effect(d, EFFECT_RUN_ENDED);
	d->ended = true;
}

/* (task, path) is (outer, outer_path) or something in it. A task's path is as long as the number of loops around it. */
static bool is_inside(const struct task *task, const uint64_t *path, const struct task *outer, const uint64_t *outer_path)
{
	while (task && task != outer)
		task = task->parent;
	return task && memcmp(path, outer_path, outer->loop_depth * sizeof *path) == 0;
}

/* An attempt of a task that ends is called off. One that this same decision meant to start does not leave at all. */
static void call_off(struct deciding *d, const char *step, unsigned attempt)
{
	struct decision *decision = d->decision;

	for (size_t i = 0; i < decision->effect_count; i++) {
		struct effect *effect = &decision->effects[i];
		if (effect->kind != EFFECT_START_ACTIVITY || effect->attempt != attempt || strcmp(effect->step_id, step) != 0)
			continue;
		memmove(effect, effect + 1, (--decision->effect_count - i) * sizeof *effect);
		d->safe = false; /* the effects are no longer those of the entries up to there */
		return;
	}
	struct effect *effect = decide_new_effect(d, EFFECT_CANCEL_ACTIVITY);
	effect->step_id = step;
	effect->attempt = attempt;
}

void decide_end_live(struct deciding *d, const struct ending *ending)
{
	const struct instance **live = NULL;
	size_t count = 0, cap = 0;

	LIST_EACH(link, &d->base->live) {
		const struct instance *was = CONTAINER_OF(link, struct instance, live);
		live = arena_grow(d->arena, live, count, &cap, sizeof *live);
		live[count++] = state_find(&d->draft, was->task, was->is_body, was->path, was->path_count);
	}
	LIST_EACH(link, &d->draft.live) {
		live = arena_grow(d->arena, live, count, &cap, sizeof *live);
		live[count++] = CONTAINER_OF(link, struct instance, live);
	}
	while (count-- > 0) {
		const struct instance *instance = live[count];
		if (instance->is_body || !instance->task->parent || (instance->phase != INSTANCE_STARTED && instance->phase != INSTANCE_BACKING_OFF))
			continue;
		if (ending->within && (!is_inside(instance->task, instance->path, ending->within, ending->path) ||
				       (ending->strictly && instance->task == ending->within)))
			continue;
		const char *step = decide_step_text(d, instance->task, instance->path, instance->path_count, instance->execution, NULL);
		if (instance->in_flight)
			call_off(d, step, instance->attempt);
		if (ending->around && is_inside(ending->around, ending->path, instance->task, instance->path)) {
			struct entry *entry = decide_new_step_entry(d, ending->error ? ENTRY_TASK_FAULTED : ENTRY_TASK_COMPLETED, step);
			decide_name_value(d, entry, ending->error ? "error" : "output", ending->error ? ending->error : ending->output);
			if (d->raw_output && ending->error && instance->task == ending->around)
				decide_name_value(d, entry, "raw", d->raw_output);
			if (!ending->error)
				json_set_text(d->arena, entry->data, "then", "end");
			decide_emit(d, entry);
			continue;
		}
		decide_emit(d, decide_new_step_entry(d, ENTRY_TASK_CANCELLED, step));
	}
}

struct json *decide_flaw_json(struct deciding *d, const struct flaw *flaw, const char *instance)
{
	return decide_error_json(d, flaw->is_schema ? ERROR_TYPE("validation") : ERROR_TYPE("expression"), 400,
				 flaw->is_schema ? "Schema does not match" : "Expression failed", flaw->error.message, instance, NULL);
}

void decide_fault_run(struct deciding *d, const struct json *error)
{
	struct entry *entry = decide_new_entry(d, ENTRY_RUN_FAULTED);

	/* Always carried: what held it in the state may be over by then, though the draft still knows it. */
	entry_add_value(d->arena, entry, "error", json_print_arena(error, d->arena));
	decide_end_run(d, entry);
}

void decide_complete_run(struct deciding *d, struct value *output)
{
	const struct task *root = d->draft.definition->root;
	static const uint64_t path[1];
	struct scope_context s = {.d = d, .task = root, .path = path, .input = output};
	struct flaw flaw;

	output = decide_apply_transform(d, &s, &root->output, "output", &flaw);
	if (!output) {
		if (d->decision->need_count == 0)
			decide_fault_run(d, decide_flaw_json(d, &flaw, "/output"));
		return;
	}
	struct entry *entry = decide_new_entry(d, ENTRY_RUN_COMPLETED);

	decide_name_value(d, entry, "output", output);
	decide_end_run(d, entry);
}

static bool changes(const struct transform *transform)
{
	return transform->expression || transform->template || transform->schema;
}

/* `output` and `export`: the task's output, and its context or NULL. False: values have to be loaded first, or the task has faulted. */
static bool pass_out(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, struct value *input, struct value **output,
		     struct value **context)
{
	struct scope_context s = {.d = d, .task = task, .path = path, .path_count = path_count, .input = *output, .transformed = input,
				  .raw_output = *output};
	struct flaw flaw;

	*context = NULL;
	s.raw_input = decide_find_raw_input(d, task, path, path_count);
	*output = decide_apply_transform(d, &s, &task->output, "output", &flaw);
	if (*output && changes(&task->export)) {
		s.input = s.output = *output;
		*context = decide_apply_transform(d, &s, &task->export, "export", &flaw);
		if (!*context)
			*output = NULL;
		if (!task->export.expression && !task->export.template)
			*context = NULL; /* without `as` the context stays; the schema is that of what would have been exported */
	}
	if (!*output && d->decision->need_count == 0)
		decide_fault_task(d, task, path, path_count, decide_flaw_json(d, &flaw, task->reference));
	return *output != NULL;
}

bool decide_complete_task(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, struct value *input, struct value *output,
			  const struct then *then)
{
	const struct instance *instance = state_find(&d->draft, task, false, path, path_count);
	struct value *raw = output, *context = NULL;

	if (changes(&task->output) || changes(&task->export)) {
		/* What a peer answered cannot be found again; what our own tasks give can. */
		d->raw_output = !input && task->kind == TASK_CALL ? raw : NULL;
		if (!pass_out(d, task, path, path_count, input ? input : instance->input, &output, &context)) {
			d->raw_output = NULL;
			return false;
		}
	}
	uint64_t execution = input ? state_next_execution(&d->draft, task, path, path_count) : instance->execution;
	struct entry *entry = decide_new_task_entry(d, ENTRY_TASK_COMPLETED, task, path, execution);

	if (!then)
		then = &task->then;
	if (input)
		decide_name_value(d, entry, "input", input);
	decide_name_value(d, entry, "output", output);
	if (context)
		decide_name_value(d, entry, "context", context);
	if (d->raw_output && raw != output)
		decide_name_value(d, entry, "raw", raw);
	d->raw_output = NULL;
	if (then->kind != THEN_CONTINUE)
		json_set_text(d->arena, entry->data, "then", then->name);
	decide_emit(d, entry);
	if (then->kind == THEN_END) {
		decide_end_live(d, &(struct ending){.around = task, .path = path, .output = output});
		decide_complete_run(d, output);
	}
	return true;
}

/* Five spellings of the standard error types are one (D11): the last part counts. */
static const char *standard_type(const char *type)
{
	static const char *const prefixes[] = {
		ERROR_TYPE(""), "https://open-workflow-specification.org/spec/1.0.0/errors/",
		"https://serverlessworkflow.io/dsl/errors/types/", "https://open-workflow-specification.org/dsl/errors/types/",
		"https://serverlessworkflow.io.io/dsl/errors/types/",
	};

	for (size_t i = 0; i < COUNT_OF(prefixes); i++)
		if (strncmp(type, prefixes[i], strlen(prefixes[i])) == 0)
			return type + strlen(prefixes[i]);
	return NULL;
}

static bool types_equal(const char *a, const char *b)
{
	const char *x = standard_type(a), *y = standard_type(b);

	return x && y ? strcmp(x, y) == 0 : strcmp(a, b) == 0;
}

static bool matches_filter(const struct json *filter, const struct json *error)
{
	for (size_t i = 0; filter && i < filter->object.count; i++) {
		const struct json_member *wanted = &filter->object.members[i];
		const char *name = strcmp(wanted->name, "details") == 0 ? "detail" : wanted->name; /* so the schema of 1.0.3 calls it */
		const struct json *has = json_get(error, name);

		bool is_type = strcmp(name, "type") == 0 && json_is(has, JSON_STRING);

		if (!has || !(is_type ? types_equal(has->string.text, wanted->value->string.text) : json_equal(has, wanted->value)))
			return false;
	}
	return true;
}

static enum verdict check_conditions(struct deciding *d, struct scope_context *s, const char *when, const char *except_when, struct error *error)
{
	const struct json *holds = when ? decide_evaluate(d, s, NULL, when, error) : NULL;

	if (when && !holds)
		return VERDICT_UNKNOWN;
	if (when && !json_truthy(holds))
		return VERDICT_NO;
	holds = except_when ? decide_evaluate(d, s, NULL, except_when, error) : NULL;
	if (except_when && !holds)
		return VERDICT_UNKNOWN;
	return except_when && json_truthy(holds) ? VERDICT_NO : VERDICT_YES;
}

static struct scope_context catch_scope(struct deciding *d, const struct instance *try, const struct json *caught)
{
	return (struct scope_context){d, try->task, try->path, try->path_count, try->input, caught};
}

/* When the try is done again. VERDICT_NO: not again, for the policy is exhausted or does not want it. */
static enum verdict plan_retry(struct deciding *d, const struct instance *try, const struct json *caught, int64_t *due_ms, struct error *error)
{
	const struct retry *retry = try->task->catch->retry;
	struct scope_context s = catch_scope(d, try, caught);
	int64_t delay, from, to;

	if (!retry || try->attempt > retry->count)
		return VERDICT_NO;
	enum verdict verdict = check_conditions(d, &s, retry->when, retry->except_when, error);
	if (verdict != VERDICT_YES)
		return verdict;
	if (!decide_read_duration(d, &s, retry->delay, &delay, error) || !decide_read_duration(d, &s, retry->jitter_from, &from, error) ||
	    !decide_read_duration(d, &s, retry->jitter_to, &to, error))
		return VERDICT_UNKNOWN;
	const char *step = decide_step_text(d, try->task, try->path, try->path_count, try->execution, NULL);
	*due_ms = d->trigger->wall_ms + retry_backoff_ms(retry->backoff, delay, try->attempt);
	*due_ms += retry_jitter_ms(d->draft.id, step, try->attempt, from, to);
	return try->retry_until_ms != 0 && *due_ms > try->retry_until_ms ? VERDICT_NO : VERDICT_YES;
}

void decide_handle_error(struct deciding *d, const struct instance *try, const struct json *caught, struct value *value)
{
	const struct task *task = try->task;
	struct error error = {0};
	int64_t due_ms;

	switch (plan_retry(d, try, caught, &due_ms, &error)) {
	case VERDICT_UNKNOWN:
		if (d->decision->need_count == 0)
			decide_fault_expression(d, task, try->path, try->path_count, &error);
		return;
	case VERDICT_YES: {
		struct entry *entry = decide_new_task_entry(d, ENTRY_TASK_RETRYING, task, try->path, try->execution);
		json_set_number(d->arena, entry->data, "attempt", try->attempt + 1);
		decide_name_value(d, entry, "error", value);
		decide_set_time(d, entry, "due", due_ms);
		decide_emit(d, entry);
		return;
	}
	case VERDICT_NO:
		break;
	}
	if (task->handler.count > 0) {
		struct entry *entry = decide_new_task_entry(d, ENTRY_TASK_CAUGHT, task, try->path, try->execution);
		decide_name_value(d, entry, "error", value);
		decide_emit(d, entry);
		decide_push(d, task, false, try->path, try->path_count);
	} else if (task->catch->retry) {
		decide_fault_task(d, task, try->path, try->path_count, caught);
	} else {
		if (decide_complete_task(d, task, try->path, try->path_count, NULL, try->input, NULL))
			decide_push_parent(d, task, try->path, try->path_count);
	}
}

enum verdict decide_catches(struct deciding *d, const struct instance *try, const struct json *caught, struct error *error)
{
	const struct catch *catch = try->task->catch;
	struct scope_context s = catch_scope(d, try, caught);

	return matches_filter(catch->with, caught) ? check_conditions(d, &s, catch->when, catch->except_when, error) : VERDICT_NO;
}

/* This branch of a fork has faulted: has another one won, or may it still? D7: without `compete` one fault ends them all. */
static bool others_compete(struct deciding *d, const struct task *branch, const uint64_t *path)
{
	const struct task *task = branch->parent;
	const struct instance *fork = state_find(&d->draft, task, false, path, task->loop_depth);
	const struct instance *own = state_find(&d->draft, branch, false, path, branch->loop_depth);
	bool live = own && (own->phase == INSTANCE_STARTED || own->phase == INSTANCE_BACKING_OFF);

	if (!task->compete)
		return false;
	if (fork->again > (own ? own->again : 0)) /* cut off by an earlier fault of the run, and not entered again yet */
		return true;
	return fork->winner != 0 || fork->live_count > (live ? 1 : 0) || (fork->next_iteration < task->body.count && branch->index + 1 < task->body.count);
}

void decide_fault_task(struct deciding *d, const struct task *task, const uint64_t *task_path, size_t path_count, const struct json *error)
{
	const struct instance *instance = state_find(&d->draft, task, false, task_path, path_count), *catcher = NULL;
	bool live = instance && (instance->phase == INSTANCE_STARTED || instance->phase == INSTANCE_BACKING_OFF);
	struct value *value = decide_make_value(d, error);
	struct error why = {0};
	enum verdict verdict = VERDICT_NO;
	const struct task *top = task;
	uint64_t path[STATE_LOOP_DEPTH_MAX];
	bool lost = false;

	memcpy(path, task_path, path_count * sizeof *path); /* what it points to may move */
	for (; top->parent; top = top->parent) {
		if (top->parent->kind == TASK_FORK && others_compete(d, top, path)) {
			lost = true;
			break;
		}
		if (top->parent->kind != TASK_TRY || top->in_handler)
			continue;
		catcher = state_find(&d->draft, top->parent, false, path, top->parent->loop_depth);
		verdict = decide_catches(d, catcher, error, &why);
		if (d->decision->need_count > 0)
			return;
		if (verdict != VERDICT_NO)
			break;
	}
	if (live) { /* First what is in it. */
		decide_end_live(d, &(struct ending){.within = task, .around = task, .path = path, .error = value});
	} else {
		struct entry *entry = decide_new_task_entry(d, ENTRY_TASK_FAULTED, task, path, state_next_execution(&d->draft, task, path, path_count));
		decide_name_value(d, entry, "error", value);
		decide_emit(d, entry);
	}
	decide_end_live(d, &(struct ending){.within = top->parent ? top : NULL, .around = task, .path = path, .error = value});
	if (lost) { /* a competing branch; the others go on */
		decide_push_parent(d, top, path, top->loop_depth);
	} else if (verdict == VERDICT_YES) {
		decide_handle_error(d, state_find(&d->draft, catcher->task, false, catcher->path, catcher->path_count), error, value);
	} else if (verdict == VERDICT_UNKNOWN) {
		decide_fault_expression(d, catcher->task, catcher->path, catcher->path_count, &why);
	} else {
		decide_fault_run(d, error);
	}
}

void decide_fault_expression(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, const struct error *error)
{
	const struct flaw flaw = {.error = *error};

	decide_fault_task(d, task, path, path_count, decide_flaw_json(d, &flaw, task->reference));
}

void decide_raise_error(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, const struct json *written)
{
	struct error error = {0};
	const struct json *type = json_get(written, "type"), *status = json_get(written, "status");

	if (!json_is(type, JSON_STRING))
		error_set(&error, ERR_INVALID, "the type of a raised error must be a string, not %s", type ? json_type_name(type->type) : "nothing");
	else if (!json_is_integer(status) || status->number < ERROR_STATUS_MIN || status->number > ERROR_STATUS_MAX)
		error_set(&error, ERR_INVALID, "the status of a raised error must be an integer from %d to %d", ERROR_STATUS_MIN, ERROR_STATUS_MAX);
	struct json *raised = json_object(d->arena);
	for (size_t i = 0; error.code == ERR_NONE && i < written->object.count; i++) {
		const struct json_member *member = &written->object.members[i];
		if (json_is(member->value, JSON_NULL) || strcmp(member->name, "instance") == 0)
			continue;
		if (member->value != status && !json_is(member->value, JSON_STRING))
			error_set(&error, ERR_INVALID, "the %s of a raised error must be a string, not %s", member->name, json_type_name(member->value->type));
		json_set(d->arena, raised, member->name, member->value);
	}
	json_set_text(d->arena, raised, "instance", task->reference);
	if (error.code == ERR_NONE && decide_make_bounded(d, raised, &error))
		decide_fault_task(d, task, path, path_count, raised);
	else
		decide_fault_expression(d, task, path, path_count, &error);
}
