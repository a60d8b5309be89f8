/* See decide.h. Read workflow_decide() at the end, then decide_flow.c.
 *
 * A decision is spread over the decide_*.c of this folder; deciding.h is what they share:
 *   decide.c              triggers: what came in from outside
 *   decide_flow.c         going on: sequences, loops, forks
 *   decide_tasks.c        beginning one task, by kind
 *   decide_faults.c       how things end: completion, faults, try and catch
 *   decide_listen.c       an event for a listen
 *   decide_fork.c         a run that goes on from another one's state
 *   decide_facts.c        a candidate becomes a signed fact
 *   decide_expressions.c  expressions and data flow
 *   decide_values.c       entries and the values they name
 *
 * Every step is made of the same three moves: build an entry, fold it into the draft (decide_emit), go on from what the draft
 * says then. Nothing recurses over tasks or iterations: work that appears elsewhere in the tree goes to a queue. */
#include "workflow/deciding.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/duration.h"
#include "workflow/retry.h"

struct digest submission_digest(const struct digest *definition, const struct digest *input, const struct json *labels, const struct json *budget)
{
	struct arena arena;

	arena_init(&arena);
	struct json *content = json_object(&arena);
	json_set_digest(&arena, content, "definition", definition);
	json_set_digest(&arena, content, "input", input);
	json_set(&arena, content, "labels", labels ? (struct json *)labels : json_object(&arena));
	if (budget)
		json_set(&arena, content, "budget", (struct json *)budget);
	struct digest digest = json_digest(content);
	arena_close(&arena);
	return digest;
}

struct entry *decide_new_created(struct deciding *d)
{
	const struct trigger *trigger = d->trigger;
	const struct definition *definition = d->draft.definition;
	struct entry *entry = decide_new_entry(d, ENTRY_RUN_CREATED);
	struct json *workflow = json_object(d->arena);

	json_set_text(d->arena, workflow, "namespace", definition->namespace);
	json_set_text(d->arena, workflow, "name", definition->name);
	json_set_text(d->arena, workflow, "version", definition->version);
	json_set(d->arena, entry->data, "workflow", workflow);
	json_set_digest(d->arena, entry->data, "definition", &definition->digest);
	entry_add_value(d->arena, entry, "input", trigger->input);
	if (json_count(trigger->labels) > 0)
		entry_add_value(d->arena, entry, "labels", json_print_arena(trigger->labels, d->arena));
	if (trigger->budget && budget_limits(trigger->budget))
		json_set(d->arena, entry->data, "budget", budget_json(d->arena, trigger->budget));
	if (trigger->budget_asked)
		json_set(d->arena, entry->data, "budgetAsked", json_copy(d->arena, trigger->budget_asked));
	return entry;
}

static void on_submitted(struct deciding *d)
{
	const struct trigger *trigger = d->trigger;
	const struct definition *definition = d->draft.definition;
	static const uint64_t path[1];
	struct scope_context s = {.d = d, .task = definition->root, .path = path, .input = decide_value_of_bytes(d, NULL, trigger->input)};
	struct flaw flaw;
	struct value *start = decide_apply_transform(d, &s, &definition->root->input, "input", &flaw);
	if (d->decision->need_count > 0)
		return;
	struct scope_context started = {.d = d, .task = definition->root, .path = path, .input = start, .raw_input = s.input};
	struct error error = {0};
	int64_t timeout_ms = 0;
	bool good = !start || decide_read_duration(d, &started, definition->timeout, &timeout_ms, &error);
	if (d->decision->need_count > 0)
		return;
	struct entry *entry = decide_new_created(d);
	struct digest input = digest_of(trigger->input);
	struct digest request = submission_digest(&definition->digest, &input, json_count(trigger->labels) > 0 ? trigger->labels : NULL, trigger->budget_asked);
	json_set_digest(d->arena, entry->data, "request", &request);
	if (trigger->parent)
		json_set(d->arena, entry->data, "parent", json_copy(d->arena, trigger->parent));
	if (start && start != s.input)
		decide_name_value(d, entry, "start", start);
	if (definition->timeout && start && good)
		decide_set_time(d, entry, "timeout", trigger->wall_ms + timeout_ms);
	decide_emit(d, entry);
	if (!good)
		decide_fault_run(d, decide_error_json(d, ERROR_TYPE("expression"), 400, "Expression failed", error.message, "/timeout", NULL));
	else if (start)
		decide_push(d, definition->root, false, path, 0);
	else
		decide_fault_run(d, decide_flaw_json(d, &flaw, "/input"));
}

/* What is due first of all that is; NULL and 0: nothing is. NULL and a time: the run itself. */
static const struct instance *first_due(struct deciding *d, int64_t *due_ms, enum instance_timer *timer)
{
	const struct instance *first = NULL;
	const struct list *lists[] = {&d->base->live, &d->draft.live};

	*due_ms = d->draft.timeout_ms != 0 && d->draft.timeout_ms <= d->trigger->wall_ms ? d->draft.timeout_ms : 0;
	for (size_t i = 0; i < COUNT_OF(lists); i++)
		LIST_EACH(link, lists[i]) {
			const struct instance *was = CONTAINER_OF(link, struct instance, live);
			const struct instance *instance = i == 0 ? state_find(&d->draft, was->task, was->is_body, was->path, was->path_count) : was;
			enum instance_timer of;
			int64_t due = instance_next_timer(instance, &of);
			if (due == 0 || due > d->trigger->wall_ms || (*due_ms != 0 && due >= *due_ms && (first || due > *due_ms)))
				continue;
			first = instance;
			*due_ms = due;
			*timer = of;
		}
	return first;
}

static struct entry *new_fired(struct deciding *d, const struct instance *instance, const char *timer)
{
	struct entry *entry = decide_new_task_entry(d, ENTRY_TIMER_FIRED, instance->task, instance->path, instance->execution);

	json_set_text(d->arena, entry->data, "timer", timer);
	return entry;
}

/* A wait is over, or the next attempt of a call or a try begins. */
static void fire_due(struct deciding *d, const struct instance *instance)
{
	const struct task *task = instance->task;
	struct error error = {0};

	switch (task->kind) {
	case TASK_WAIT:
		decide_emit(d, new_fired(d, instance, "wait"));
		if (decide_complete_task(d, task, instance->path, instance->path_count, NULL, instance->input, NULL))
			decide_push_parent(d, task, instance->path, instance->path_count);
		return;
	case TASK_TRY: {
		struct scope_context s = {d, task, instance->path, instance->path_count, instance->input, NULL};
		const struct retry *retry = task->catch->retry;
		int64_t attempt_ms;
		bool good = decide_read_duration(d, &s, retry->attempt_duration, &attempt_ms, &error);
		if (d->decision->need_count > 0)
			return;
		struct entry *entry = new_fired(d, instance, "retry");
		decide_set_attempt_end(d, entry, retry, attempt_ms, instance->retry_until_ms);
		decide_emit(d, entry);
		if (good)
			decide_push(d, task, false, instance->path, instance->path_count);
		else
			decide_fault_expression(d, task, instance->path, instance->path_count, &error);
		return;
	}
	default: {
		const struct json *arguments = decide_value_json(d, instance->with);
		if (arguments)
			decide_start_attempt(d, task, instance->path, instance->path_count, instance->execution, instance->attempt + 1, instance->with, arguments);
		return;
	}
	}
}

static struct json *timeout_error(struct deciding *d, const char *detail, const char *instance)
{
	return decide_error_json(d, ERROR_TYPE("timeout"), 408, "Timed out", detail, instance, NULL);
}

/* An attempt of a try has taken too long: as if its list had faulted. */
static void fire_attempt_end(struct deciding *d, const struct instance *instance)
{
	const struct task *task = instance->task;
	struct error error = {0};
	const struct json *fault = timeout_error(d, "the attempt took longer than the retry policy allows", task->reference);
	struct value *value = decide_make_value(d, fault);
	uint64_t path[STATE_LOOP_DEPTH_MAX];

	memcpy(path, instance->path, instance->path_count * sizeof *path);
	decide_emit(d, new_fired(d, instance, "attempt"));
	enum verdict verdict = decide_catches(d, instance, fault, &error);
	if (d->decision->need_count > 0)
		return;
	decide_end_live(d, &(struct ending){.within = task, .strictly = true, .path = path});
	if (verdict == VERDICT_YES)
		decide_handle_error(d, state_find(&d->draft, task, false, path, task->loop_depth), fault, value);
	else if (verdict == VERDICT_NO)
		decide_fault_task(d, task, path, task->loop_depth, fault);
	else
		decide_fault_expression(d, task, path, task->loop_depth, &error);
}

/* The time of a task, or of the whole run, is over. */
static void fire_timeout(struct deciding *d, const struct instance *instance)
{
	if (instance) {
		decide_emit(d, new_fired(d, instance, "timeout"));
		decide_fault_task(d, instance->task, instance->path, instance->path_count,
				  timeout_error(d, "the task took longer than its timeout allows", instance->task->reference));
		return;
	}
	struct entry *entry = decide_new_entry(d, ENTRY_TIMER_FIRED);
	json_set_text(d->arena, entry->data, "timer", "timeout");
	decide_emit(d, entry);
	decide_end_live(d, &(struct ending){0});
	decide_fault_run(d, timeout_error(d, "the run took longer than the workflow's timeout allows", "/"));
}

/* One after the other in the order of their times, each seeing what the one before brought about: a wait that was over before a timeout, while
 * nobody was there to see it, was in time. */
static void on_deadline(struct deciding *d)
{
	enum instance_timer timer = TIMER_TIMEOUT;
	int64_t due_ms;

	if (d->draft.status == RUN_SUSPENDED)
		return; /* what is due waits for RESUME */
	LIST_EACH(link, &d->base->live) { /* what they need is loaded at once */
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		if (instance->task->kind == TASK_CALL && instance->phase == INSTANCE_BACKING_OFF && instance->due_ms <= d->trigger->wall_ms)
			decide_value_json(d, instance->with);
	}
	while (!decide_stopped(d) && d->decision->entry_count - d->entries_before < DECISION_ENTRIES_MAX) { /* what is left stays due */
		const struct instance *instance = first_due(d, &due_ms, &timer);
		if (due_ms == 0)
			return;
		if (!instance || timer == TIMER_TIMEOUT)
			fire_timeout(d, instance);
		else if (timer == TIMER_ATTEMPT)
			fire_attempt_end(d, instance);
		else
			fire_due(d, instance);
		decide_run_queue(d);
	}
}

/* The daemon went away while attempts were in flight. Each is done again under the same key; it costs no retry (C38). Where the run is suspended
 * that is left to on_resume(). */
static void on_restarted(struct deciding *d)
{
	bool goes_on = d->draft.status != RUN_SUSPENDED;

	LIST_EACH(link, &d->base->live) {
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		if (!instance->in_flight)
			continue;
		const struct json *arguments = goes_on ? decide_value_json(d, instance->with) : NULL;
		if ((goes_on && !arguments) || d->decision->need_count > 0)
			continue;
		struct entry *entry = decide_new_task_entry(d, ENTRY_ATTEMPT_FAILED, instance->task, instance->path, instance->execution);
		json_set_number(d->arena, entry->data, "attempt", instance->attempt);
		json_set_text(d->arena, entry->data, "class", failure_name(FAILURE_INTERRUPTED));
		decide_emit(d, entry);
		if (goes_on)
			decide_start_attempt(d, instance->task, instance->path, instance->path_count, instance->execution, instance->attempt + 1, instance->with, arguments);
	}
	if (d->decision->need_count == 0 && goes_on)
		decide_push_all(d);
}

/* An attempt that the daemon's end interrupted while the run was suspended: its task is under way and nothing of it is. */
static bool is_interrupted(const struct instance *instance)
{
	return instance->task->kind == TASK_CALL && !instance->is_body && instance->phase == INSTANCE_STARTED && !instance->in_flight;
}

/* For the lifecycle events of the tasks (dsl.md 1.12): the entry alone has to tell them. */
static void name_tasks(struct deciding *d, struct entry *entry)
{
	struct json *tasks = json_array(d->arena);
	size_t bytes = 0, more = 0;

	LIST_EACH(link, &d->base->live) {
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		if (instance->is_body || !instance->task->parent)
			continue;
		const char *step = decide_step_text(d, instance->task, instance->path, instance->path_count, instance->execution, NULL);
		bytes += strlen(step) + 3;
		if (bytes > SUSPENDED_TASKS_BYTES_MAX)
			more++;
		else
			json_add(d->arena, tasks, json_text(d->arena, step));
	}
	json_set(d->arena, entry->data, "tasks", tasks);
	if (more > 0)
		json_set_number(d->arena, entry->data, "more", (double)more);
}

static void carry_reason(struct deciding *d, struct entry *entry)
{
	if (d->trigger->reason)
		decide_carry(d, entry, "reason", json_print_arena(json_text(d->arena, d->trigger->reason), d->arena));
}

/* What is in flight may finish and is recorded; nothing begins: see decide_trigger(). */
static void on_pause(struct deciding *d)
{
	if (d->draft.status == RUN_SUSPENDED && !d->trigger->quarantine)
		return;
	struct entry *entry = decide_new_entry(d, ENTRY_RUN_SUSPENDED);
	carry_reason(d, entry);
	if (d->trigger->quarantine)
		json_set_boolean(d->arena, entry->data, "quarantined", true);
	name_tasks(d, entry);
	decide_emit(d, entry);
}

/* Everything that could have gone on meanwhile goes on now; what came due is next (state_next_deadline_ms()). */
static void on_resume(struct deciding *d)
{
	if (d->draft.status != RUN_SUSPENDED)
		return;
	LIST_EACH(link, &d->base->live) {
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		if (is_interrupted(instance))
			decide_value_json(d, instance->with);
	}
	if (d->decision->need_count > 0)
		return;
	struct entry *entry = decide_new_entry(d, ENTRY_RUN_RESUMED);
	carry_reason(d, entry);
	name_tasks(d, entry);
	decide_emit(d, entry);
	LIST_EACH(link, &d->base->live) {
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		if (is_interrupted(instance))
			decide_start_attempt(d, instance->task, instance->path, instance->path_count, instance->execution, instance->attempt + 1, instance->with,
					     decide_value_json(d, instance->with));
	}
	decide_push_all(d);
}

static void finish_attempt(struct deciding *d, const struct instance *instance, const char *step, enum entry_kind kind)
{
	const struct outcome *outcome = d->trigger->outcome;
	struct entry *entry = decide_new_step_entry(d, kind, step);

	json_set_number(d->arena, entry->data, "attempt", instance->attempt);
	if (kind == ENTRY_ATTEMPT_FAILED)
		json_set_text(d->arena, entry->data, "class", failure_name(outcome->failure));
	if (spent_is_any(&outcome->spent))
		json_set(d->arena, entry->data, "spent", spent_json(d->arena, &outcome->spent));
	if (outcome->record)
		decide_carry(d, entry, "record", json_print_arena(outcome->record, d->arena));
	decide_carry(d, entry, "request", outcome->request);
	decide_carry(d, entry, "response", outcome->response);
	if (outcome->error)
		decide_carry(d, entry, "error", json_print_arena(outcome->error, d->arena));
	decide_emit(d, entry);
}

void decide_complete_call(struct deciding *d, const struct instance *instance, struct value *output)
{
	if (!decide_complete_task(d, instance->task, instance->path, instance->path_count, NULL, output, NULL))
		return;
	decide_push_parent(d, instance->task, instance->path, instance->path_count);
}

static void fail_attempt(struct deciding *d, const struct instance *instance, const char *step)
{
	const struct outcome *outcome = d->trigger->outcome;
	unsigned failures = instance->failures + (outcome->failure != FAILURE_INTERRUPTED);

	finish_attempt(d, instance, step, ENTRY_ATTEMPT_FAILED);
	if (failure_may_retry(outcome->failure) && failures < outcome->retry_attempts) {
		struct entry *entry = decide_new_step_entry(d, ENTRY_TASK_RETRYING, step);
		json_set_number(d->arena, entry->data, "attempt", instance->attempt + 1);
		json_set_text(d->arena, entry->data, "class", failure_name(outcome->failure));
		int64_t delay_ms = retry_delay_ms(d->draft.id, step, failures ? failures : 1, outcome->retry_floor_ms, outcome->retry_cap_ms,
						  outcome->retry_after_ms);
		decide_set_time(d, entry, "due", d->trigger->wall_ms + delay_ms);
		decide_emit(d, entry);
		return;
	}
	if (outcome->output) { /* onFailure: continue. The section's outcome names the class (semantics.md 6). */
		decide_complete_call(d, instance, decide_make_value(d, outcome->output));
		return;
	}
	if (outcome->error) {
		struct json *error = json_copy(d->arena, outcome->error);
		json_set_text(d->arena, error, "instance", instance->task->reference);
		decide_fault_task(d, instance->task, instance->path, instance->path_count, error);
		return;
	}
	const char *title = arena_printf(d->arena, "Attempt %u failed: %s", instance->attempt, failure_name(outcome->failure));
	int status = outcome->status >= 300 ? outcome->status : failure_status(outcome->failure);
	decide_fault_task(d, instance->task, instance->path, instance->path_count,
			  decide_error_json(d, failure_error_type(outcome->failure), status, title, outcome->detail, instance->task->reference,
					    failure_name(outcome->failure)));
}

/* An answer that could not be kept is one that cannot be used: the attempt has failed. */
static void refuse_output(struct deciding *d, const struct instance *instance, const char *step, const struct error *error)
{
	const struct trigger *trigger = d->trigger;
	struct outcome refused = *trigger->outcome;
	struct trigger instead = *trigger;

	refused.ok = false;
	refused.failure = FAILURE_SCHEMA_INVALID;
	refused.detail = error->message;
	refused.status = 0;
	refused.output = NULL;
	instead.outcome = &refused;
	d->trigger = &instead;
	fail_attempt(d, instance, step);
	d->trigger = trigger;
}

static void on_activity_done(struct deciding *d)
{
	const struct trigger *trigger = d->trigger;
	const struct outcome *outcome = trigger->outcome;
	uint64_t execution = 0;
	const struct instance *instance = state_find_step(&d->draft, trigger->step_id, d->arena, &execution);

	if (!instance || instance->execution != execution || !instance->in_flight || instance->attempt != trigger->attempt)
		return; /* late or twice: what it says is about an attempt that is over */
	if (!outcome->ok) {
		fail_attempt(d, instance, trigger->step_id);
		return;
	}
	struct error error = {0};
	/* Of a child that nobody waits for nothing comes back. */
	bool is_let_go = instance->task->function == FUNCTION_RUN && !instance->task->awaits;
	struct value *output = is_let_go ? instance->input : decide_make_bounded(d, outcome->output, &error);
	if (!output) {
		refuse_output(d, instance, trigger->step_id, &error);
		return;
	}
	if (outcome->document.data) {
		struct entry *entry = decide_new_entry(d, ENTRY_DOCUMENT_ADDED);
		entry_add_value(d->arena, entry, "document", outcome->document);
		json_set_number(d->arena, entry->data, "bytes", (double)outcome->document.len);
		json_set_text(d->arena, entry->data, "mediaType", outcome->document_media_type ? outcome->document_media_type : "text/plain");
		decide_emit(d, entry);
	}
	finish_attempt(d, instance, trigger->step_id, ENTRY_ATTEMPT_SUCCEEDED);
	if (outcome->facts)
		output = decide_make_value(d, decide_record_facts(d, instance, trigger->step_id));
	/* The draft's copy may have moved: decide_emit() changed it. */
	decide_complete_call(d, state_find_step(&d->draft, trigger->step_id, d->arena, NULL), output);
}

static void on_cancel(struct deciding *d)
{
	decide_end_live(d, &(struct ending){0});
	struct entry *entry = decide_new_entry(d, d->trigger->kill ? ENTRY_RUN_KILLED : ENTRY_RUN_CANCELLED);
	carry_reason(d, entry);
	decide_end_run(d, entry);
}

bool decide_resume_task(struct deciding *d, const struct instance *instance)
{
	const struct task *task = instance->task;
	const struct retry *retry = task->kind == TASK_TRY ? task->catch->retry : NULL;
	struct scope_context s = {d, task, instance->path, instance->path_count, instance->input, NULL};
	struct error error = {0};
	int64_t timeout_ms = 0, attempt_ms = 0, all_ms = 0;
	bool in_attempt = retry && !instance->in_handler && instance->phase == INSTANCE_STARTED;

	if (!decide_read_duration(d, &s, task->timeout, &timeout_ms, &error) ||
	    (retry && (!decide_read_duration(d, &s, retry->attempt_duration, &attempt_ms, &error) || !decide_read_duration(d, &s, retry->duration, &all_ms, &error)))) {
		if (d->decision->need_count == 0)
			decide_fault_expression(d, task, instance->path, instance->path_count, &error);
		return false;
	}
	struct entry *entry = decide_new_task_entry(d, ENTRY_TASK_RESUMED, task, instance->path, instance->execution);
	if (task->timeout)
		decide_set_time(d, entry, "timeout", d->trigger->wall_ms + timeout_ms);
	int64_t until_ms = retry && retry->duration ? d->trigger->wall_ms + all_ms : 0;
	if (until_ms != 0)
		decide_set_time(d, entry, "retryUntil", until_ms);
	if (in_attempt)
		decide_set_attempt_end(d, entry, retry, attempt_ms, until_ms);
	if (instance_listens(instance))
		decide_set_time(d, entry, "since", instance->since_ms);
	decide_emit(d, entry);
	return true;
}

static void on_retry(struct deciding *d)
{
	const struct definition *definition = d->draft.definition;
	const struct instance *root = state_root(d->base);
	struct scope_context s = {.d = d, .task = definition->root, .path = root->path, .input = root->input, .raw_input = d->draft.input};
	struct error error = {0};
	int64_t timeout_ms = 0;
	bool good = decide_read_duration(d, &s, definition->timeout, &timeout_ms, &error);

	if (d->decision->need_count > 0)
		return;
	struct entry *entry = decide_new_entry(d, ENTRY_RUN_RETRIED);
	if (d->trigger->reason)
		decide_carry(d, entry, "reason", json_print_arena(json_text(d->arena, d->trigger->reason), d->arena));
	if (definition->timeout && good)
		decide_set_time(d, entry, "timeout", d->trigger->wall_ms + timeout_ms);
	if (d->trigger->budget && budget_limits(d->trigger->budget))
		json_set(d->arena, entry->data, "budget", budget_json(d->arena, d->trigger->budget));
	decide_emit(d, entry);
	LIST_EACH(link, &d->base->live) {
		const struct instance *was = CONTAINER_OF(link, struct instance, live);
		const struct instance *instance = state_find(&d->draft, was->task, was->is_body, was->path, was->path_count);
		bool is_live = instance->phase == INSTANCE_STARTED || instance->phase == INSTANCE_BACKING_OFF;
		if (is_live && !instance->is_body && instance->task->parent && !decide_resume_task(d, instance))
			return;
	}
	decide_push_all(d);
}

static void decide_trigger(struct deciding *d)
{
	switch (d->trigger->kind) {
	case TRIGGER_SUBMITTED:
		if (d->trigger->fork)
			decide_on_forked(d);
		else
			on_submitted(d);
		break;
	case TRIGGER_RESTARTED:
		on_restarted(d);
		break;
	case TRIGGER_CONTINUE:
		if (d->draft.status != RUN_SUSPENDED)
			decide_push_all(d);
		break;
	case TRIGGER_ACTIVITY_DONE:
		on_activity_done(d);
		break;
	case TRIGGER_DEADLINE:
		on_deadline(d);
		break;
	case TRIGGER_CANCEL:
		on_cancel(d);
		break;
	case TRIGGER_RETRY:
		on_retry(d);
		break;
	case TRIGGER_PAUSE:
		on_pause(d);
		break;
	case TRIGGER_RESUME:
		on_resume(d);
		break;
	case TRIGGER_EVENT:
		if (d->draft.status != RUN_SUSPENDED) /* it stays in the journal, and is offered again */
			decide_on_event(d);
		break;
	}
	if (d->draft.status != RUN_SUSPENDED) /* all that begins, begins from there */
		decide_run_queue(d);
}

/* Where the trigger left the run waiting, its last entry says so. Per trigger, since replay decides them one by one, however many were decided
 * together; not where it stopped at a limit, for then it goes on at once. */
static void mark_waiting(struct deciding *d)
{
	if (d->decision->entry_count == d->entries_before || decide_stopped(d) || d->draft.status == RUN_SUSPENDED || !state_only_waits(&d->draft))
		return;
	json_set_boolean(d->arena, d->decision->entries[d->decision->entry_count - 1].data, "waits", true);
	d->draft.status = RUN_WAITING;
	int64_t wakes_ms = state_wakes_ms(&d->draft);
	if (wakes_ms != 0)
		decide_set_time(d, &d->decision->entries[d->decision->entry_count - 1], "wakes", wakes_ms);
}

void workflow_decide(const struct state *state, const struct trigger *triggers, size_t trigger_count, const struct decide_context *context,
		     struct decision *decision)
{
	struct deciding d = {.base = state, .decision = decision, .arena = &decision->arena, .context = context};

	CHECK(trigger_count > 0 && (triggers[0].kind == TRIGGER_SUBMITTED) == (state->entry_count == 0));
	struct error why = {0};
	if (triggers[0].kind == TRIGGER_RETRY ? state_may_retry(state, &why) != 0 : run_status_ended(state->status)) {
		decision->trigger_count = trigger_count;
		return;
	}
	state_draft(&d.draft, state, d.arena);
	for (size_t i = 0; i < trigger_count; i++) {
		CHECK(trigger_count == 1 || triggers[i].kind == TRIGGER_ACTIVITY_DONE); /* the others look at the base's lists */
		d.trigger = &triggers[i];
		d.entries_before = decision->entry_count;
		d.made_bytes = 0;
		d.results = NULL; /* those that no entry followed */
		d.result_bytes = 0;
		decide_set_safe(&d);
		decide_trigger(&d);
		mark_waiting(&d);
		decision->trigger_count = i + 1;
		if (decide_stopped(&d) || decision->entry_count >= DECISION_ENTRIES_MAX)
			break;
	}
	if (decision->need_count > 0 && !decide_settle(&d))
		decision->entry_count = decision->effect_count = 0;
}
