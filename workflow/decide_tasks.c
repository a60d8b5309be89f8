/* A part of decide.c: one task begins. Read decide_start_task(). */
#include "workflow/deciding.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/reproducibility.h"
#include "workflow/language/cloud_event.h"
#include "workflow/language/expression.h"

void decide_start_attempt(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, uint64_t execution, unsigned attempt,
			  struct value *with, const struct json *arguments)
{
	struct effect *effect = decide_new_effect(d, EFFECT_START_ACTIVITY);

	effect->step_id = decide_step_text(d, task, path, path_count, execution, effect->key);
	effect->attempt = attempt;
	effect->function = task->function;
	effect->with = arguments;
	struct entry *entry = decide_new_step_entry(d, ENTRY_ATTEMPT_STARTED, effect->step_id);
	json_set_number(d->arena, entry->data, "attempt", attempt);
	json_set_text(d->arena, entry->data, "key", effect->key);
	if (task->function == FUNCTION_RUN && task->awaits)
		json_set_boolean(d->arena, entry->data, "awaits", true);
	decide_name_value(d, entry, "with", with);
	decide_emit(d, entry);
}

/* False: it has faulted, or values have to be loaded first. */
static bool complete_pure(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, struct value *input,
			  const struct json *json)
{
	struct error error = {0};
	struct value *output = decide_make_bounded(d, json, &error);

	if (!output) {
		decide_fault_expression(d, task, path, path_count, &error);
		return false;
	}
	return decide_complete_task(d, task, path, path_count, input, output, NULL);
}

/* FUNCTION_MERGE: section results -> {facts, sections, summary}. "No facts" and "could not ask" are counted apart (C85). */
static const struct json *merge_sections(struct arena *arena, const struct json *results)
{
	struct json *merged = json_object(arena), *facts = json_array(arena), *sections = json_array(arena), *summary = json_object(arena);
	size_t answered = 0, empty = 0, rejected = 0;

	for (size_t i = 0; i < json_count(results); i++) {
		const struct json *result = json_at(results, i), *found = json_get(result, "facts");
		struct json *section = json_copy(arena, result);
		for (size_t k = 0; k < json_count(found); k++)
			json_add(arena, facts, json_at(found, k));
		json_set_number(arena, section, "facts", (double)json_count(found));
		json_add(arena, sections, section);
		const char *outcome = json_get_text(result, "outcome"), *status = json_get_text(result, "status");
		answered += status && strcmp(status, "completed") == 0;
		empty += outcome && strcmp(outcome, "empty") == 0;
		rejected += (size_t)json_get_number(result, "rejected", 0);
	}
	json_set_number(arena, summary, "sections", (double)json_count(results));
	json_set_number(arena, summary, "answered", (double)answered);
	json_set_number(arena, summary, "empty", (double)empty);
	json_set_number(arena, summary, "failed", (double)(json_count(results) - answered));
	json_set_number(arena, summary, "facts", (double)json_count(facts));
	json_set_number(arena, summary, "rejected", (double)rejected);
	json_set(arena, merged, "facts", facts);
	json_set(arena, merged, "sections", sections);
	json_set(arena, merged, "summary", summary);
	return merged;
}

/* FUNCTION_GATE_REPORT: the report is an entry of its own, so that it outlives the run and every later fact can name it. */
static const struct json *record_gate(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, const struct json *asks)
{
	static const char *const copied[] = {"runtime", "class", "requests", "answered", "distinct", "configuration"};
	const struct json *report = gate_report(d->arena, asks, d->trigger->wall_ms);
	char key[DIGEST_HEX_LEN + 1];
	struct entry *entry = decide_new_step_entry(d, ENTRY_GATE_RECORDED, decide_step_text(d, task, path, path_count, state_next_execution(&d->draft, task, path, path_count), key));

	for (size_t i = 0; i < COUNT_OF(copied); i++)
		if (json_get(report, copied[i]))
			json_set(d->arena, entry->data, copied[i], json_get(report, copied[i]));
	struct digest id = entry_add_value(d->arena, entry, "report", json_print_arena(report, d->arena));
	decide_emit(d, entry);
	struct json *output = json_copy(d->arena, report);
	char *hex = arena_alloc(d->arena, DIGEST_HEX_LEN + 1);
	digest_hex(&id, hex);
	json_set_text(d->arena, output, "gate", hex);
	return output;
}

/* The URI template of `call: http` is filled from the input's members (dsl.md 1.3). Only what the author wrote is a template: an
 * endpoint that an expression gave is data, and data is never evaluated. */
static const struct json *fill_endpoint(struct deciding *d, const struct task *task, const struct json *arguments, struct value *input,
					struct error *error)
{
	const struct json *written = json_get(task->with, "endpoint");
	const char *filled, *template;
	struct bytes expression;

	if (json_is(written, JSON_OBJECT))
		written = json_get(written, "uri");
	template = json_is(written, JSON_STRING) ? written->string.text : NULL;
	if (!template || !strchr(template, '{') || expression_unwrap(template, &expression))
		return arguments;
	const struct json *values = decide_value_json(d, input);
	if (!values || uri_template_eval(d->arena, template, values, &filled, error) != 0)
		return NULL;
	struct json *with = json_object(d->arena); /* The other members are shared: together they may be larger than any copy should be. */
	for (size_t i = 0; i < arguments->object.count; i++)
		json_set(d->arena, with, arguments->object.members[i].name, arguments->object.members[i].value);
	json_set_text(d->arena, with, "endpoint", filled);
	return with;
}

/* The first case whose condition holds; the one without a condition, wherever it stands, when none does. NULL: no case, or the decision
 * needs values, or *error says why it failed. */
static const struct switch_case *choose_case(struct deciding *d, struct scope_context *s, struct error *error)
{
	const struct switch_case *otherwise = NULL;

	for (size_t i = 0; i < s->task->case_count; i++) {
		const struct switch_case *at = &s->task->cases[i];
		if (!at->when) {
			otherwise = at;
			continue;
		}
		const struct json *holds = decide_evaluate(d, s, NULL, at->when, error);
		if (!holds)
			return NULL;
		if (json_truthy(holds))
			return at;
	}
	return otherwise;
}

/* `if`. False: the task does not run: it is skipped, or cannot, or values have to be loaded. D4: a skipped task's `then` does not count. */
static bool may_run(struct deciding *d, struct scope_context *s, enum flow *flow)
{
	struct error error = {0};
	uint64_t execution = state_next_execution(&d->draft, s->task, s->path, s->path_count);

	*flow = FLOW_WAIT;
	if (execution > TASK_EXECUTIONS_MAX) {
		const char *detail = arena_printf(d->arena, "a task is entered at most %d times (TASK_EXECUTIONS_MAX)", TASK_EXECUTIONS_MAX);
		decide_fault_task(d, s->task, s->path, s->path_count,
				  decide_error_json(d, ERROR_TYPE("runtime"), 500, "Too many executions", detail, s->task->reference, NULL));
		return false;
	}
	if (!s->task->run_if)
		return true;
	const struct json *holds = decide_evaluate(d, s, NULL, s->task->run_if, &error);
	if (!holds) {
		if (d->decision->need_count == 0)
			decide_fault_expression(d, s->task, s->path, s->path_count, &error);
		return false;
	}
	if (json_truthy(holds))
		return true;
	struct entry *entry = decide_new_task_entry(d, ENTRY_TASK_SKIPPED, s->task, s->path, execution);
	decide_name_value(d, entry, "input", s->input);
	decide_name_value(d, entry, "output", s->input);
	decide_emit(d, entry);
	*flow = FLOW_NEXT;
	return false;
}

/* Its first entry, which says when its time is over; the caller adds what its kind has and emits it. */
static struct entry *begin_task(struct deciding *d, const struct scope_context *s, int64_t timeout_ms)
{
	uint64_t execution = state_next_execution(&d->draft, s->task, s->path, s->path_count);
	struct entry *entry = decide_new_task_entry(d, ENTRY_TASK_STARTED, s->task, s->path, execution);

	decide_name_value(d, entry, "input", s->input);
	if (s->task->timeout)
		decide_set_time(d, entry, "timeout", d->trigger->wall_ms + timeout_ms);
	return entry;
}

/* `source` and `dataschema` may be URI templates, filled from the input's members like an endpoint (dsl.md 1.3). */
static int fill_uris(struct deciding *d, const struct scope_context *s, struct json *with, struct error *error)
{
	static const char *const uris[] = {"source", "dataschema"};

	for (size_t i = 0; i < COUNT_OF(uris); i++) {
		const char *template = json_get_text(s->task->emit, uris[i]), *filled;
		const struct json *values;
		struct bytes expression;

		if (!template || !strchr(template, '{') || expression_unwrap(template, &expression))
			continue;
		values = decide_value_json(d, s->input);
		if (!values || uri_template_eval(d->arena, template, values, &filled, error) != 0)
			return values ? error->code : ERR_NOT_FOUND;
		json_set_text(d->arena, with, uris[i], filled);
	}
	return 0;
}

/* `emit`: one decision says that the event is out and that the task is done. Its id is that of the step, so that it is the same event however
 * often it is decided. D13: the event is the output. False: it has faulted, or values have to be loaded first. */
static bool emit_event(struct deciding *d, struct scope_context *s)
{
	const struct definition *definition = d->draft.definition;
	struct error error = {0};
	const struct json *evaluated = decide_evaluate(d, s, s->task->emit, NULL, &error);
	struct json *with = json_object(d->arena);
	struct cloud_event event;
	char id[DIGEST_HEX_LEN + 1];
	uint64_t execution = state_next_execution(&d->draft, s->task, s->path, s->path_count);
	const char *step = decide_step_text(d, s->task, s->path, s->path_count, execution, id);

	for (size_t i = 0; evaluated && i < evaluated->object.count; i++) /* shared: they may be large */
		json_set(d->arena, with, evaluated->object.members[i].name, evaluated->object.members[i].value);
	struct cloud_event_defaults defaults = {
		.id = id,
		.source = arena_printf(d->arena, "https://%s/%s/%s/%s", d->context->origin, definition->namespace, definition->name, definition->version),
		.time_ms = d->trigger->wall_ms,
	};
	if (!evaluated || fill_uris(d, s, with, &error) != 0 || cloud_event_make(d->arena, with, &defaults, &event, &error) != 0) {
		if (d->decision->need_count == 0)
			decide_fault_expression(d, s->task, s->path, s->path_count, &error);
		return false;
	}
	struct value *value = decide_make_bounded(d, event.envelope, &error);
	if (!value) {
		decide_fault_expression(d, s->task, s->path, s->path_count, &error);
		return false;
	}
	struct entry *entry = decide_new_step_entry(d, ENTRY_EVENT_EMITTED, step);
	json_set_digest(d->arena, entry->data, "key", &event.key);
	entry_add_value(d->arena, entry, "event", decide_bytes(d, value)); /* always carried: the table of events is made of these entries alone */
	decide_emit(d, entry);
	return decide_complete_task(d, s->task, s->path, s->path_count, s->input, state_find_value(&d->draft, &value->digest), NULL);
}

void decide_set_attempt_end(struct deciding *d, struct entry *entry, const struct retry *retry, int64_t attempt_ms, int64_t until_ms)
{
	int64_t due_ms = retry && retry->attempt_duration ? d->trigger->wall_ms + attempt_ms : 0;

	if (until_ms != 0 && (due_ms == 0 || until_ms < due_ms))
		due_ms = until_ms;
	if (due_ms != 0)
		decide_set_time(d, entry, "attemptDue", due_ms);
}

enum flow decide_start_task(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, struct value *input)
{
	struct scope_context s = {.d = d, .task = task, .path = path, .path_count = path_count, .input = input, .raw_input = input};
	struct error error = {0};
	struct flaw flaw;
	enum flow flow;
	int64_t timeout_ms, wait_ms;

	if (!may_run(d, &s, &flow))
		return flow;
	input = decide_apply_transform(d, &s, &task->input, "input", &flaw);
	if (!input) {
		if (d->decision->need_count == 0)
			decide_fault_task(d, task, path, path_count, decide_flaw_json(d, &flaw, task->reference));
		return FLOW_WAIT;
	}
	s.input = input;
	if (!decide_read_duration(d, &s, task->timeout, &timeout_ms, &error)) {
		if (d->decision->need_count == 0)
			decide_fault_expression(d, task, path, path_count, &error);
		return FLOW_WAIT;
	}
	switch (task->kind) {
	case TASK_SET: {
		const struct json *output = decide_evaluate(d, &s, task->set, NULL, &error);
		if (output)
			return complete_pure(d, task, path, path_count, input, output) ? FLOW_NEXT : FLOW_WAIT;
		if (d->decision->need_count == 0)
			decide_fault_expression(d, task, path, path_count, &error);
		return FLOW_WAIT;
	}
	case TASK_SWITCH: {
		const struct switch_case *chosen = choose_case(d, &s, &error);
		if (d->decision->need_count > 0)
			return FLOW_WAIT;
		if (error.code != ERR_NONE) {
			decide_fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		return decide_complete_task(d, task, path, path_count, input, input, chosen ? &chosen->then : NULL) ? FLOW_NEXT : FLOW_WAIT;
	}
	case TASK_RAISE: {
		const struct json *raised = decide_evaluate(d, &s, task->raise, NULL, &error);
		if (raised)
			decide_raise_error(d, task, path, path_count, raised);
		else if (d->decision->need_count == 0)
			decide_fault_expression(d, task, path, path_count, &error);
		return FLOW_WAIT;
	}
	case TASK_DO:
		decide_emit(d, begin_task(d, &s, timeout_ms));
		return FLOW_INSIDE;
	case TASK_FORK:
		decide_emit(d, begin_task(d, &s, timeout_ms));
		decide_push(d, task, false, path, path_count);
		return FLOW_WAIT;
	case TASK_TRY: {
		const struct retry *retry = task->catch->retry;
		int64_t attempt_ms = 0, all_ms = 0;
		if (retry && (!decide_read_duration(d, &s, retry->attempt_duration, &attempt_ms, &error) ||
			      !decide_read_duration(d, &s, retry->duration, &all_ms, &error))) {
			if (d->decision->need_count == 0)
				decide_fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		struct entry *entry = begin_task(d, &s, timeout_ms);
		int64_t until_ms = retry && retry->duration ? d->trigger->wall_ms + all_ms : 0;
		if (until_ms != 0)
			decide_set_time(d, entry, "retryUntil", until_ms);
		decide_set_attempt_end(d, entry, retry, attempt_ms, until_ms);
		decide_emit(d, entry);
		return FLOW_INSIDE;
	}
	case TASK_WAIT: {
		if (!decide_read_duration(d, &s, task->wait, &wait_ms, &error)) {
			if (d->decision->need_count == 0)
				decide_fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		struct entry *entry = begin_task(d, &s, timeout_ms);
		decide_set_time(d, entry, "due", d->trigger->wall_ms + wait_ms);
		decide_emit(d, entry);
		return FLOW_WAIT;
	}
	case TASK_EMIT:
		return emit_event(d, &s) ? FLOW_NEXT : FLOW_WAIT;
	case TASK_LISTEN: {
		struct entry *entry = begin_task(d, &s, timeout_ms);
		decide_set_time(d, entry, "since", d->trigger->wall_ms - d->context->event_window_ms);
		decide_emit(d, entry);
		return FLOW_WAIT;
	}
	case TASK_FOR: {
		const struct json *items = decide_evaluate(d, &s, NULL, task->in, &error);
		if (!items && d->decision->need_count > 0)
			return FLOW_WAIT;
		if (items && items->type != JSON_ARRAY)
			error_set(&error, ERR_INVALID, "for.in gives %s, not an array", json_type_name(items->type));
		struct value *in = items && items->type == JSON_ARRAY ? decide_make_bounded(d, items, &error) : NULL;
		if (!in) {
			decide_fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		struct entry *entry = begin_task(d, &s, timeout_ms);
		decide_name_value(d, entry, "in", in);
		json_set_number(d->arena, entry->data, "items", (double)json_count(items));
		decide_emit(d, entry);
		decide_push(d, task, false, path, path_count);
		return FLOW_WAIT;
	}
	case TASK_CALL: {
		const struct json *arguments = decide_evaluate(d, &s, task->with, NULL, &error);
		if (arguments && task->function == FUNCTION_HTTP)
			arguments = fill_endpoint(d, task, arguments, input, &error);
		if (!arguments) {
			if (d->decision->need_count == 0)
				decide_fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		if (task->function == FUNCTION_MERGE) {
			return complete_pure(d, task, path, path_count, input, merge_sections(d->arena, arguments)) ? FLOW_NEXT : FLOW_WAIT;
		}
		if (task->function == FUNCTION_GATE_PLAN && (arguments = gate_plan(d->arena, arguments, &error)) != NULL)
			return complete_pure(d, task, path, path_count, input, arguments) ? FLOW_NEXT : FLOW_WAIT;
		if (task->function == FUNCTION_GATE_REPORT)
			return complete_pure(d, task, path, path_count, input, record_gate(d, task, path, path_count, arguments)) ? FLOW_NEXT : FLOW_WAIT;
		struct value *with = arguments ? decide_make_bounded(d, arguments, &error) : NULL;
		if (!with) {
			decide_fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		uint64_t execution = state_next_execution(&d->draft, task, path, path_count);
		decide_emit(d, begin_task(d, &s, timeout_ms));
		decide_start_attempt(d, task, path, path_count, execution, 1, with, arguments);
		return FLOW_WAIT;
	}
	}
	return FLOW_WAIT;
}
