/* A part of decide.c: the first decision of a fork (fork.h). Read decide_on_forked(). */
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/deciding.h"
#include "workflow/fork.h"

/* A record of the other run's state, with those of its values that nothing before it has brought. */
static void carry(struct deciding *d, const struct entry *carried)
{
	struct entry *entry = decide_new_entry(d, ENTRY_TASK_CARRIED);

	for (size_t i = 0; i < carried->data->object.count; i++)
		if (strcmp(carried->data->object.members[i].name, "runId") != 0)
			json_set(d->arena, entry->data, carried->data->object.members[i].name, carried->data->object.members[i].value);
	for (size_t i = 0; i < carried->value_count; i++)
		if (!state_find_value(&d->draft, &carried->values[i].digest))
			entry->values[entry->value_count++] = carried->values[i];
	decide_emit(d, entry);
}

/* Tasks that waited for a child which is the other run's alone: nobody waits for it here. Only where that was asked for are any of them under way. */
static void detach_children(struct deciding *d)
{
	bool found = true;

	while (found && !decide_stopped(d)) {
		found = false;
		LIST_EACH(link, &d->draft.live) {
			const struct instance *instance = CONTAINER_OF(link, struct instance, live);
			if (instance->is_body || instance->task->kind != TASK_CALL || instance->task->function != FUNCTION_RUN || instance->in_flight)
				continue;
			decide_complete_call(d, instance, instance->input);
			found = true;
			break;
		}
	}
}

void decide_on_forked(struct deciding *d)
{
	const struct trigger *trigger = d->trigger;
	const struct forking *fork = trigger->fork;
	const struct definition *definition = d->draft.definition;
	static const uint64_t path[1];
	struct value *input = decide_value_of_bytes(d, NULL, trigger->input), *start = decide_value_of_bytes(d, NULL, fork->start);
	struct scope_context s = {.d = d, .task = definition->root, .path = path, .input = start, .raw_input = input};
	struct error error = {0};
	int64_t timeout_ms = 0;
	bool good = decide_read_duration(d, &s, definition->timeout, &timeout_ms, &error);

	if (d->decision->need_count > 0)
		return;
	struct entry *entry = decide_new_created(d);
	struct digest overrides = entry_add_value(d->arena, entry, "overrides", fork->overrides);
	struct digest request = fork_request_digest(json_get_text(fork->from, "run"), &overrides);
	json_set_digest(d->arena, entry->data, "request", &request);
	json_set(d->arena, entry->data, "forkedFrom", json_copy(d->arena, fork->from));
	if (fork->reason)
		decide_carry(d, entry, "reason", json_print_arena(json_text(d->arena, fork->reason), d->arena));
	if (!digest_equal(&start->digest, &input->digest))
		decide_name_value(d, entry, "start", start);
	if (definition->timeout && good)
		decide_set_time(d, entry, "timeout", trigger->wall_ms + timeout_ms);
	decide_emit(d, entry);
	if (!good) {
		decide_fault_run(d, decide_error_json(d, ERROR_TYPE("expression"), 400, "Expression failed", error.message, "/timeout", NULL));
		return;
	}
	for (size_t i = 0; i < fork->carried_count; i++)
		carry(d, &fork->carried[i]);
	/* However much was carried, what follows has the limits of a decision, and may stop here. */
	d->entries_before = d->decision->entry_count - 1;
	d->made_bytes = 0;
	decide_set_safe(d);
	LIST_EACH(link, &d->draft.live) {
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		bool waits = instance->task->kind == TASK_CALL; /* detached */
		if (!instance->is_body && instance->task->parent && !waits && !decide_resume_task(d, instance))
			return;
	}
	detach_children(d);
	decide_push_all(d);
}
