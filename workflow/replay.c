/* See replay.h.
 *
 * A recorded run is a row of decisions; where one ends and the next begins is told by what kind of entry a decision opens with:
 * every trigger makes an entry first that nothing else makes. The replayed state moves by the recorded entries, so one
 * difference is reported, not its consequences. */
#include "workflow/replay.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"
#include "workflow/fork.h"
#include "workflow/value_index.h"

enum {
	WINDOW_ENTRIES = 1024, /* that are at hand at once; more while one decision has more */
	WINDOW_AHEAD = 300, /* fewer than these behind the decision at hand: the next ones are read */
	WINDOW_ENTRIES_MAX = 1 << 18,
};
_Static_assert((int)WINDOW_AHEAD > (int)DECISION_ENTRIES_MAX, "most decisions are whole in a window");

struct replay {
	struct arena *arena; /* of one decision: `scratch` */
	const struct entry *entries; /* the window: those of the decision at hand and some that follow */
	size_t count;
	const struct definition *definition;
	struct decide_context context;
	struct replay_result *result;
	struct state state;
	struct value_index values; /* of the window */
	size_t at; /* the first entry of the decision at hand */
	/* Where the window comes from. */
	struct replay_source source;
	struct arena *result_arena, scratch, window;
	size_t window_size;
	uint64_t seq_last; /* of what was decided */
	bool more; /* there are entries behind the window */
	bool too_short; /* the decision at hand goes on behind the window */
	bool is_quarantined; /* what ends the run now was not decided */
	bool tells_waiting; /* an entry of the run has said that it waits: older journals never do */
	/* A large value that is looked into again and again, like the array of a loop. */
	struct {
		struct arena arena;
		struct digest digest;
		const struct json *json;
		bool in_use; /* by the decision at hand */
	} large;
};

/* Where the window's entry is that brings the value. */
static uint64_t find_place(const struct replay *r, const struct digest *digest)
{
	for (size_t i = 0; i < r->count; i++)
		for (size_t v = 0; v < r->entries[i].value_count; v++)
			if (digest_equal(&r->entries[i].values[v].digest, digest))
				return CONTENT_ID(r->entries[i].seq, v);
	return 0;
}

static struct bytes bytes_of(const struct replay *r, const struct digest *digest)
{
	const struct entry_value *value = value_index_find(&r->values, digest);
	const struct value *known = value ? NULL : state_find_value(&r->state, digest); /* an entry that does not bring it knew it */
	struct bytes bytes = value ? value->bytes : known ? known->bytes : (struct bytes){0};
	uint64_t place = known ? known->content_id : 0;

	if (bytes.data || !r->source.load)
		return bytes;
	if (!place)
		place = find_place(r, digest);
	return r->source.load(r->source.context, r->arena, place, digest, &bytes) ? bytes : (struct bytes){0};
}

/* The value that data[name] names, among all of the run. */
static struct bytes find_value(const struct replay *r, const struct json *data, const char *name)
{
	struct digest digest;

	return json_get_digest(data, name, &digest) ? bytes_of(r, &digest) : (struct bytes){0};
}

static const struct json *find_json(const struct replay *r, const struct json *data, const char *name)
{
	struct bytes bytes = find_value(r, data, name);

	return bytes.data ? json_parse(r->arena, bytes, JSON_STORED, NULL, NULL) : NULL;
}

/* Values for decide: by digest, among all of the run. */
static const struct json *source_get(void *context, const struct digest *digest)
{
	struct replay *r = context;
	bool is_large = r->large.json && digest_equal(&r->large.digest, digest);

	r->large.in_use |= is_large;
	if (is_large)
		return r->large.json;
	struct bytes bytes = bytes_of(r, digest);
	if (bytes.data && bytes.len > VALUE_INLINE_MAX && !r->large.in_use) {
		arena_close(&r->large.arena);
		r->large.digest = *digest;
		r->large.json = json_parse(&r->large.arena, bytes, JSON_STORED, NULL, NULL);
		r->large.in_use = r->large.json != NULL;
		return r->large.json;
	}
	return bytes.data ? json_parse(r->arena, bytes, JSON_STORED, NULL, NULL) : NULL;
}

/* Results of evaluations: those that the entry carries which the decision comes to next. */
static const struct json *recorded_get(void *context, size_t entry, size_t index)
{
	const struct replay *r = context;

	if (r->at + entry >= r->count)
		return NULL;
	const struct json *data = r->entries[r->at + entry].data, *only = find_json(r, data, "result");
	if (!only)
		return json_at(find_json(r, data, "results"), index);
	if (index > 0)
		return NULL;
	struct json *kept = json_array(r->arena);
	json_add(r->arena, kept, (struct json *)only);
	return kept;
}

/* How many entries, from `at` on, may come of one decision: all have the time of its trigger. Where evaluations took many rounds, it
 * stopped before its usual limit; what follows later was decided later. */
static size_t entries_of_one_time(const struct replay *r, size_t at)
{
	size_t count = 1;

	while (at + count < r->count && r->entries[at + count].time_ms == r->entries[at].time_ms)
		count++;
	return at + count < r->count ? count : SIZE_MAX;
}

static const char *text_of(const struct replay *r, const struct entry *entry)
{
	struct json *json = json_object(r->arena);

	if (!entry)
		return NULL;
	json_set_text(r->arena, json, "kind", entry_kind_name(entry->kind));
	json_set(r->arena, json, "data", entry->data);
	return (const char *)json_print_arena(json, r->result_arena).data;
}

/* What decide says and what was recorded, without what the writer adds when it signs. */
static bool same(const struct replay *r, const struct entry *expected, const struct entry *got)
{
	static const char *const by_writer[] = {"pae", "signatures"};

	if (expected->kind != got->kind)
		return false;
	struct json *a = json_copy(r->arena, expected->data), *b = json_copy(r->arena, got->data);
	for (size_t i = 0; i < COUNT_OF(by_writer); i++) {
		json_remove(a, by_writer[i]);
		json_remove(b, by_writer[i]);
	}
	if (!r->tells_waiting)
		json_remove(b, "waits");
	if (!json_get(a, "wakes")) /* older builds left it out; a start then looks at the run, which is never wrong */
		json_remove(b, "wakes");
	if (expected->kind == ENTRY_TASK_STARTED) { /* how far back a listener looks is configuration */
		json_remove(a, "since");
		json_remove(b, "since");
	}
	if (expected->kind == ENTRY_RUN_SUSPENDED && json_get_boolean(a, "quarantined", false)) { /* nobody could tell */
		json_remove(b, "tasks");
		json_remove(b, "more");
	}
	/* The run's own record is a measurement. */
	if (expected->kind >= ENTRY_RUN_COMPLETED && expected->kind <= ENTRY_RUN_KILLED) {
		json_remove(a, "record");
		json_remove(b, "record");
	}
	return json_equal(a, b);
}

static void differs(struct replay *r, const struct entry *expected, const struct entry *got, const char *why)
{
	struct step_id id;
	const char *step = json_get_text(expected ? expected->data : got->data, "stepId");

	r->result->equal = false;
	r->result->seq = expected ? expected->seq : r->entries[r->count - 1].seq + 1;
	r->result->expected = text_of(r, expected);
	r->result->got = text_of(r, got);
	r->result->reference = step && step_id_parse(r->result_arena, step, &id) ? id.reference : NULL;
	r->result->why = why;
}

/* How the attempt whose end is recorded at `at` ended: rebuilt from the entries that the decision made of it. */
static size_t attempt_outcome(struct replay *r, size_t at, struct trigger *trigger, struct outcome *outcome)
{
	const struct entry *entry = &r->entries[at];
	const char *step = json_get_text(entry->data, "stepId");

	if (entry->kind == ENTRY_DOCUMENT_ADDED) { /* stands before the attempt's own entry */
		outcome->document = find_value(r, entry->data, "document");
		outcome->document_media_type = json_get_text(entry->data, "mediaType");
		if (++at >= r->count)
			return at;
		entry = &r->entries[at];
		step = json_get_text(entry->data, "stepId");
	}
	trigger->kind = TRIGGER_ACTIVITY_DONE;
	trigger->wall_ms = entry->time_ms;
	trigger->step_id = step;
	trigger->attempt = (unsigned)json_get_number(entry->data, "attempt", 0);
	trigger->outcome = outcome;
	outcome->record = find_json(r, entry->data, "record");
	outcome->request = find_value(r, entry->data, "request");
	outcome->response = find_value(r, entry->data, "response");
	outcome->error = find_json(r, entry->data, "error");
	spent_read_any(json_get(entry->data, "spent"), &outcome->spent); /* absent in journals of before: nothing */
	outcome->ok = entry->kind == ENTRY_ATTEMPT_SUCCEEDED;
	failure_parse(json_get_text(entry->data, "class") ? json_get_text(entry->data, "class") : "", &outcome->failure);

	/* What followed it in the same decision: facts, the output, a retry, or a fault. */
	struct json *facts = NULL, *evidence = NULL;
	for (size_t i = at + 1; i < r->count; i++) {
		const struct entry *next = &r->entries[i];
		const char *next_step = json_get_text(next->data, "stepId");
		if (!next_step || !step || strcmp(next_step, step) != 0)
			break;
		if (next->kind == ENTRY_FACT_RECORDED) {
			const struct json *recorded = find_json(r, next->data, "fact"), *statement = find_json(r, next->data, "payload");
			if (!recorded || !statement) { /* erased */
				outcome->output = NULL;
				return at;
			}
			struct json *document = json_copy(r->arena, recorded);
			const struct json *predicate = json_get(statement, "predicate");
			static const char *const ours[] = {"contentDigest", "run", "task", "step", "attempt", "runtime", "model", "configuration", "reproducibility"};
			if (!facts) {
				const struct json *extraction = json_get(predicate, "extraction"), *result = json_get(predicate, "result"), *run = json_get(predicate, "run");
				facts = json_array(r->arena);
				evidence = json_object(r->arena);
				static const char *const of_extraction[] = {"source", "prompt", "schema", "sampling", "request"};
				for (size_t k = 0; k < COUNT_OF(of_extraction); k++)
					if (json_get(extraction, of_extraction[k]))
						json_set(r->arena, evidence, of_extraction[k], json_get(extraction, of_extraction[k]));
				static const char *const of_result[] = {"response", "finishReason", "promptTokens", "completionTokens", "reproducibility"};
				for (size_t k = 0; k < COUNT_OF(of_result); k++)
					if (json_get(result, of_result[k]))
						json_set(r->arena, evidence, of_result[k], json_get(result, of_result[k]));
				static const char *const of_predicate[] = {"model", "configuration", "runtime"};
				for (size_t k = 0; k < COUNT_OF(of_predicate); k++)
					if (json_get(predicate, of_predicate[k]))
						json_set(r->arena, evidence, of_predicate[k], json_get(predicate, of_predicate[k]));
				if (json_get(run, "clock"))
					json_set(r->arena, evidence, "clock", json_get(run, "clock"));
				json_set_boolean(r->arena, evidence, "simulated", json_get_boolean(document, "simulated", false));
				json_set_text(r->arena, evidence, "runtimeName", json_get_text(document, "runtime"));
				time_parse(json_get_text(run, "startedOn") ? json_get_text(run, "startedOn") : "", &outcome->started_ms);
				time_parse(json_get_text(run, "finishedOn") ? json_get_text(run, "finishedOn") : "", &outcome->finished_ms);
				outcome->duration_ms = (int64_t)json_get_number(run, "durationMs", 0);
			}
			for (size_t k = 0; k < COUNT_OF(ours); k++)
				json_remove(document, ours[k]);
			json_remove(document, "simulated");
			json_remove(document, "unattested"); /* decided anew, by the model */
			json_add(r->arena, facts, document);
			continue;
		}
		if (next->kind == ENTRY_TASK_COMPLETED)
			outcome->output = find_json(r, next->data, json_get(next->data, "raw") ? "raw" : "output");
		if (next->kind == ENTRY_TASK_RETRYING) {
			/* Any policy that allows it and is due then; the delay itself is compared below by setting floor and cap to it. */
			int64_t due = 0;
			time_parse(json_get_text(next->data, "due") ? json_get_text(next->data, "due") : "", &due);
			outcome->retry_attempts = 1000000;
			outcome->retry_floor_ms = outcome->retry_cap_ms = due - entry->time_ms;
		}
		if (next->kind == ENTRY_TASK_FAULTED) {
			const struct json *error = find_json(r, next->data, "error");
			outcome->output = find_json(r, next->data, "raw"); /* a good answer, of which nothing could be made */
			outcome->detail = json_get_text(error, "detail");
			outcome->status = (int)json_get_number(error, "status", 0);
		}
		break;
	}
	const struct task *task = NULL;
	struct step_id id;
	if (step && step_id_parse(r->arena, step, &id))
		task = definition_find_task(r->definition, id.reference);
	if (outcome->ok && outcome->output && task && task->function == FUNCTION_EXTRACT) {
		struct json *output = json_copy(r->arena, outcome->output);
		json_remove(output, "facts");
		json_remove(output, "rejected");
		outcome->output = output;
		outcome->facts = facts ? facts : json_array(r->arena);
		outcome->evidence = evidence ? evidence : json_object(r->arena);
	}
	return at;
}

/* The beginning of a fork: it needs nothing of the run that it goes on from. False: a value is missing. */
static bool read_fork(struct replay *r, size_t at, struct trigger *trigger)
{
	const struct entry *created = &r->entries[at];
	struct forking *fork = arena_zero(r->arena, sizeof *fork);
	const struct json *reason = find_json(r, created->data, "reason");
	size_t until = at + 1;

	while (until < r->count && r->entries[until].kind == ENTRY_TASK_CARRIED)
		until++;
	if (until == r->count && r->more) { /* part of a state is none */
		r->too_short = true;
		return false;
	}
	struct entry *carried = arena_alloc(r->arena, (until - at) * sizeof *carried);
	memcpy(carried, created + 1, (until - at - 1) * sizeof *carried);
	for (size_t i = 0; i < until - at - 1; i++)
		for (size_t k = 0; k < carried[i].value_count; k++) {
			carried[i].values[k].bytes = bytes_of(r, &carried[i].values[k].digest);
			if (!carried[i].values[k].bytes.data)
				return false;
		}
	*fork = (struct forking){
		.from = json_get(created->data, "forkedFrom"), .overrides = find_value(r, created->data, "overrides"), .reason = json_is(reason, JSON_STRING) ? reason->string.text : NULL,
		.start = json_get(created->data, "start") ? find_value(r, created->data, "start") : trigger->input, .carried = carried, .carried_count = until - at - 1,
	};
	trigger->fork = fork;
	return fork->overrides.data && fork->start.data;
}

static void read_reason(const struct replay *r, const struct entry *entry, struct trigger *trigger)
{
	const struct json *reason = find_json(r, entry->data, "reason");

	if (json_is(reason, JSON_STRING))
		trigger->reason = reason->string.text;
}

static const struct budget_amount *read_budget(struct replay *r, const struct entry *entry)
{
	struct budget_amount *budget = arena_alloc(r->arena, sizeof *budget);

	*budget = BUDGET_UNLIMITED;
	budget_take(json_get(entry->data, "budget"), budget);
	return budget;
}

/* What is cancelled first: all of the run, at whose end that stands; else the losers of a fork, whose winner an earlier decision has. */
static void read_cancel(struct replay *r, size_t at, struct trigger *trigger)
{
	while (at < r->count && r->entries[at].kind == ENTRY_TASK_CANCELLED)
		at++;
	trigger->kind = TRIGGER_CONTINUE;
	r->too_short |= at == r->count && r->more;
	if (at == r->count || (r->entries[at].kind != ENTRY_RUN_CANCELLED && r->entries[at].kind != ENTRY_RUN_KILLED))
		return;
	trigger->kind = TRIGGER_CANCEL;
	trigger->kill = r->entries[at].kind == ENTRY_RUN_KILLED;
	read_reason(r, &r->entries[at], trigger);
}

/* The trigger of the decision that begins at entry `at`. False: no decision begins like that. */
static bool read_trigger(struct replay *r, size_t at, struct trigger *trigger, struct outcome *outcome)
{
	const struct entry *entry = &r->entries[at];

	*trigger = (struct trigger){.wall_ms = entry->time_ms};
	*outcome = (struct outcome){0};
	switch (entry->kind) {
	case ENTRY_RUN_CREATED:
		trigger->kind = TRIGGER_SUBMITTED;
		trigger->run_id = json_get_text(entry->data, "runId");
		trigger->input = find_value(r, entry->data, "input");
		trigger->labels = find_json(r, entry->data, "labels");
		trigger->parent = json_get(entry->data, "parent");
		trigger->budget = read_budget(r, entry);
		trigger->budget_asked = json_get(entry->data, "budgetAsked");
		if (json_get(entry->data, "forkedFrom"))
			return trigger->input.data && read_fork(r, at, trigger);
		return trigger->input.data != NULL;
	case ENTRY_RUN_RETRIED: {
		const struct json *reason = find_json(r, entry->data, "reason");
		trigger->kind = TRIGGER_RETRY;
		trigger->reason = json_is(reason, JSON_STRING) ? reason->string.text : NULL;
		trigger->budget = read_budget(r, entry);
		return true;
	}
	case ENTRY_DOCUMENT_ADDED:
	case ENTRY_ATTEMPT_SUCCEEDED:
		attempt_outcome(r, at, trigger, outcome);
		return outcome->output != NULL; /* else it, or a fact's, is erased or was never there */
	case ENTRY_ATTEMPT_FAILED:
		if (strcmp(json_get_text(entry->data, "class") ? json_get_text(entry->data, "class") : "", failure_name(FAILURE_INTERRUPTED)) == 0)
			trigger->kind = TRIGGER_RESTARTED;
		else
			attempt_outcome(r, at, trigger, outcome);
		return true;
	case ENTRY_ATTEMPT_STARTED:
	case ENTRY_TIMER_FIRED:
		trigger->kind = TRIGGER_DEADLINE;
		return true;
	case ENTRY_EVENT_CONSUMED:
		trigger->kind = TRIGGER_EVENT;
		trigger->step_id = json_get_text(entry->data, "stepId");
		trigger->event = find_value(r, entry->data, "event");
		trigger->event_seq = (uint64_t)json_get_number(entry->data, "eventSeq", 0);
		return trigger->event.data != NULL;
	case ENTRY_TASK_CANCELLED:
	case ENTRY_RUN_CANCELLED:
	case ENTRY_RUN_KILLED:
		read_cancel(r, at, trigger);
		return true;
	case ENTRY_RUN_SUSPENDED:
	case ENTRY_RUN_RESUMED:
		trigger->kind = entry->kind == ENTRY_RUN_SUSPENDED ? TRIGGER_PAUSE : TRIGGER_RESUME;
		trigger->quarantine = json_get_boolean(entry->data, "quarantined", false);
		read_reason(r, entry, trigger);
		return true;
	default:
		trigger->kind = TRIGGER_CONTINUE;
		return true;
	}
}

static struct replay *new_replay(struct arena *arena, const struct definition *definition, const struct decide_context *context, struct replay_result *result)
{
	struct replay *r = arena_zero(arena, sizeof *r);

	*result = (struct replay_result){.equal = true};
	arena_init(&r->scratch);
	arena_init(&r->window);
	arena_init(&r->large.arena);
	r->arena = &r->scratch;
	r->result_arena = arena;
	r->definition = definition;
	r->result = result;
	r->context = *context;
	r->context.values = (struct value_source){source_get, r};
	r->context.recorded = (struct result_source){recorded_get, r};
	/* A decision that was cut after many evaluations may go on here, and in another order than the next one did: what it lacks then is not
	 * this one's any more, and only entries of its time are compared. */
	r->context.settle = true;
	state_init(&r->state, definition);
	return r;
}

struct replay *replay_begin(struct arena *arena, const struct definition *definition, const struct decide_context *context, const struct replay_source *source,
			    struct replay_result *result)
{
	struct replay *r = new_replay(arena, definition, context, result);

	r->source = *source;
	r->window_size = WINDOW_ENTRIES;
	r->more = true;
	return r;
}

void replay_end(struct replay *r)
{
	state_close(&r->state);
	arena_close(&r->scratch);
	arena_close(&r->window);
	arena_close(&r->large.arena);
}

static int move_window(struct replay *r, struct error *error)
{
	struct entry *entries;

	arena_close(&r->window);
	r->at = 0;
	r->count = 0;
	if (r->source.fetch(r->source.context, &r->window, r->seq_last, r->window_size, &entries, &r->count, error) != 0)
		return error->code;
	r->entries = entries;
	r->more = r->count == r->window_size;
	value_index_make(&r->values, &r->window, r->entries, r->count);
	return 0;
}

static const char *needs_text(const struct replay *r, const struct value_need *need)
{
	char text[DIGEST_TEXT_LEN + 1];

	if (need->evaluation)
		return "a value that this decision needs is missing from the journal";
	digest_text(&need->digest, text);
	return arena_printf(r->result_arena, "a value of %llu bytes that this decision needs is missing from the journal: %s", (unsigned long long)need->size, text);
}

/* Decide what the entries at hand came of, and compare. */
static int decide_again(struct replay *r, struct error *error)
{
	struct replay_result *result = r->result;
	struct trigger trigger;
	struct outcome outcome;
	struct decision decision;
	size_t made = 0, at = r->at, most = entries_of_one_time(r, at);

	decision_init(&decision);
	if (r->is_quarantined && (r->entries[at].kind == ENTRY_RUN_CANCELLED || r->entries[at].kind == ENTRY_RUN_KILLED)) {
		made = 1; /* ended by hand: nobody could decide what of it was under way */
		goto apply;
	}
	bool is_read = read_trigger(r, at, &trigger, &outcome);
	if (is_read)
		workflow_decide(&r->state, &trigger, 1, &r->context, &decision);
	r->too_short |= r->more && at + decision.entry_count + 1 >= r->count;
	if (r->too_short)
		goto end;
	if (!is_read)
		differs(r, &r->entries[at], NULL, "a value of this entry is missing from the journal");
	else if (decision.need_count > 0)
		differs(r, &r->entries[at], NULL, needs_text(r, &decision.needs[0]));
	else if (decision.entry_count == 0)
		differs(r, &r->entries[at], NULL, "nothing is decided here any more");
	for (; made < decision.entry_count && made < most && result->equal; made++) {
		if (at + made < r->count)
			r->tells_waiting |= json_get_boolean(r->entries[at + made].data, "waits", false);
		if (at + made >= r->count)
			differs(r, NULL, &decision.entries[made], "the journal ends before this entry");
		else if (!same(r, &r->entries[at + made], &decision.entries[made]))
			differs(r, &r->entries[at + made], &decision.entries[made], "another entry is decided");
	}
	if (!result->equal)
		goto end;
apply:
	for (size_t i = 0; i < made && error->code == ERR_NONE; i++) {
		const struct entry *entry = &r->entries[at + i];
		workflow_apply(&r->state, entry, error);
		if (entry->kind == ENTRY_RUN_SUSPENDED || entry->kind == ENTRY_RUN_RESUMED)
			r->is_quarantined = json_get_boolean(entry->data, "quarantined", false);
	}
	if (error->code == ERR_NONE)
		state_settle(&r->state);
	result->entries += made;
	r->seq_last = r->entries[at + made - 1].seq;
	r->at += made;
end:
	decision_close(&decision);
	arena_close(&r->scratch);
	r->large.in_use = false;
	return error->code;
}

int replay_step(struct replay *r, bool *done, struct error *error)
{
	*done = true;
	*error = (struct error){0};
	if (r->more && r->count - r->at < WINDOW_AHEAD && move_window(r, error) != 0)
		return error->code;
	if (r->seq_last == 0 && r->result->entries == 0 && (r->count == 0 || r->entries[0].kind != ENTRY_RUN_CREATED))
		return error_set(error, ERR_CORRUPT, "its first entry is not run.created");
	if (r->at == r->count)
		return 0;
	while (decide_again(r, error) == 0 && r->too_short) {
		r->too_short = false;
		if (r->window_size >= WINDOW_ENTRIES_MAX)
			return error_set(error, ERR_TOO_LARGE, "a decision of more than %d entries", WINDOW_ENTRIES_MAX);
		r->window_size *= 4;
		if (move_window(r, error) != 0)
			return error->code;
	}
	r->window_size = WINDOW_ENTRIES;
	*done = error->code != ERR_NONE || !r->result->equal || (r->at == r->count && !r->more);
	return error->code;
}

int replay_run(struct arena *arena, const struct entry *entries, size_t count, const struct definition *definition,
	       const struct decide_context *context, struct replay_result *result, struct error *error)
{
	struct replay *r = new_replay(arena, definition, context, result);
	bool done = false;

	r->entries = entries;
	r->count = count;
	value_index_make(&r->values, &r->window, entries, count);
	while (!done && replay_step(r, &done, error) == 0)
		continue;
	replay_end(r);
	return error->code;
}
