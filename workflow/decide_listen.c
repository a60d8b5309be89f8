/* A part of decide.c: an event for a listen. Read decide_on_event().
 *
 * A listen is a loop whose items come from outside: run_loop() begins an iteration for each event (or, without `foreach`, the fold makes it
 * one that is done) and completes the task when the listener is satisfied. */
#include "workflow/deciding.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/consumption.h"

const struct json *decide_listen_output(struct deciding *d, const struct task *listen, const struct json *output)
{
	return listen->body.count > 0 ? output : event_read(d->arena, output, (enum event_reading)listen->listen->reading);
}

/* event_scope.evaluate: in the scope of the listen itself, whose own item is not there yet. */
static int evaluate_for(void *context, const struct json *self, const struct json *template, const char *expression, const struct json **result, struct error *error)
{
	const struct scope_context *listen = context;
	struct scope_context s = *listen;

	s.self = self;
	*result = decide_evaluate(s.d, &s, template, expression, error);
	return *result ? 0 : s.d->decision->need_count > 0 ? ERR_NOT_FOUND : ERR_INVALID;
}

const struct json *decide_events_so_far(struct deciding *d, const struct instance *instance, const struct json *event)
{
	enum event_reading reading = (enum event_reading)instance->task->listen->reading;
	struct json *events = json_array(d->arena);
	uint64_t path[STATE_LOOP_DEPTH_MAX];

	memcpy(path, instance->path, instance->path_count * sizeof *path);
	for (uint64_t i = 0; i < instance->item_count; i++) {
		path[instance->path_count] = i;
		const struct instance *body = state_find(&d->draft, instance->task, true, path, (size_t)instance->path_count + 1);
		CHECK(body && body->items);
		const struct json *earlier = decide_value_json(d, body->items);
		if (earlier && d->decision->need_count == 0)
			json_add(d->arena, events, (struct json *)event_read(d->arena, earlier, reading));
	}
	json_add(d->arena, events, (struct json *)event_read(d->arena, event, reading));
	return d->decision->need_count == 0 ? events : NULL;
}

static void fault_too_many(struct deciding *d, const struct instance *instance)
{
	decide_fault_task(d, instance->task, instance->path, instance->path_count,
			  decide_error_json(d, ERROR_TYPE("runtime"), 500, "Too many events",
					    arena_printf(d->arena, "a listener consumes at most %d events (LISTEN_EVENTS_MAX)", LISTEN_EVENTS_MAX),
					    instance->task->reference, NULL));
}

/* It is for this listener. */
static void consume(struct deciding *d, const struct instance *instance, struct scope_context *s, struct value *event, const struct event_match *match)
{
	const struct task *task = instance->task;
	const struct json *known = instance->correlation ? decide_value_json(d, instance->correlation) : NULL;
	const char *until = match->is_until ? NULL : task->listen->to->until;
	struct error error = {0};
	bool is_last = match->is_last;

	if (until) {
		s->self = decide_value_json(d, event);
		s->listener = instance;
		const struct json *holds = decide_evaluate(d, s, NULL, until, &error);
		if (d->decision->need_count > 0)
			return;
		if (holds)
			is_last = json_truthy(holds);
		else
			error_wrap(&error, "listen.to.until");
	}
	struct value *correlation = match->progress.correlation && (!known || !json_equal(known, match->progress.correlation)) ?
					    decide_make_bounded(d, match->progress.correlation, &error) : NULL;
	if (d->decision->need_count > 0)
		return;
	struct entry *entry = decide_new_step_entry(d, ENTRY_EVENT_CONSUMED, d->trigger->step_id);
	decide_name_value(d, entry, "event", event);
	json_set_number(d->arena, entry->data, "eventSeq", (double)d->trigger->event_seq);
	json_set_number(d->arena, entry->data, "filter", (double)match->filter);
	if (match->is_until)
		json_set_boolean(d->arena, entry->data, "until", true);
	else if (task->body.count > 0)
		json_set_number(d->arena, entry->data, "iteration", (double)instance->item_count);
	if (is_last)
		json_set_boolean(d->arena, entry->data, "last", true);
	if (correlation)
		decide_name_value(d, entry, "correlation", correlation);
	decide_emit(d, entry);
	instance = state_find(&d->draft, task, false, s->path, s->path_count);
	if (error.code != ERR_NONE)
		decide_fault_expression(d, task, s->path, s->path_count, &error);
	else if (!is_last && instance->item_count >= LISTEN_EVENTS_MAX)
		fault_too_many(d, instance);
	else
		decide_push(d, task, false, s->path, s->path_count);
}

void decide_on_event(struct deciding *d)
{
	const struct trigger *trigger = d->trigger;
	uint64_t execution = 0, path[STATE_LOOP_DEPTH_MAX];
	const struct instance *instance = state_find_step(&d->draft, trigger->step_id, d->arena, &execution);
	struct error error = {0};
	struct event_match match;

	if (!instance || instance->execution != execution || !instance_listens(instance) || trigger->event_seq <= instance->last_seq)
		return; /* it has ended, or had this event already */
	if (trigger->event_seq < instance->start_seq && state_has_consumed(d->base, trigger->event_seq))
		return; /* from before it began: another task of the run had it */
	memcpy(path, instance->path, instance->path_count * sizeof *path); /* what it points to may move */
	struct value *event = decide_value_of_bytes(d, NULL, trigger->event);
	const struct json *envelope = decide_value_json(d, event);
	struct event_progress progress = {.met = instance->met, .until_met = instance->until_met};
	if (instance->correlation)
		progress.correlation = decide_value_json(d, instance->correlation);
	if (d->decision->need_count > 0)
		return;
	struct scope_context s = {.d = d, .task = instance->task, .path = path, .path_count = instance->path_count, .input = instance->input};
	s.raw_input = decide_find_raw_input(d, instance->task, path, instance->path_count);
	struct event_scope scope = {evaluate_for, &s};
	int rc = event_match(d->arena, instance->task->listen->to, &progress, envelope, &scope, &match, &error);
	if (rc == 0 && match.matches) {
		consume(d, instance, &s, event, &match);
	} else if (rc != 0 && d->decision->need_count == 0) { /* The definition's own mistake. The entry says at which event. */
		struct entry *entry = decide_new_step_entry(d, ENTRY_EVENT_CONSUMED, trigger->step_id);
		decide_name_value(d, entry, "event", event);
		json_set_number(d->arena, entry->data, "eventSeq", (double)trigger->event_seq);
		json_set_number(d->arena, entry->data, "filter", (double)match.filter);
		if (match.is_until)
			json_set_boolean(d->arena, entry->data, "until", true);
		decide_emit(d, entry);
		decide_fault_expression(d, instance->task, path, s.path_count, &error);
	}
}
