/* A second, plain interpreter of definitions: recursive, in memory, with the recorded answers in place of calls. What it computes
 * has to be what the journal says, task by task, and how the run ended; and no task may stand in the journal that it does not meet.
 * It shares the evaluation of expressions with the engine (tests/unit/language checks that) and nothing else. */
#include "tests/simulation/simulation.h"
#include "workflow/base/time.h"
#include "workflow/language/expression.h"
#include "workflow/language/json_schema.h"
#include "workflow/value_index.h"

#include <stdlib.h>
#include <string.h>

/* How a list or a task came out. */
enum fate {
	GAVE, /* an output */
	ENDED, /* `then: end`, with the run's output */
	FAULTED, /* with an error */
	CUT, /* the journal does not go on here: cancelled, or never begun; something around it has to explain that */
};

struct result {
	enum fate fate;
	bool exit; /* of a list: a task said `exit` */
	const struct json *value;
	uint64_t seq; /* of a task: its record */
};

/* How one execution of a task ended, as the journal has it. */
struct record {
	const char *step; /* without the execution number */
	uint64_t execution;
	const struct entry *entry;
	bool met;
	struct record *next; /* of its bucket, in the order of the journal */
};

enum { BUCKETS = 1024 };

struct oracle {
	struct world *world;
	struct run_model *run;
	const struct run_model *era; /* whose decision it is: of a fork's past that of the run it was forked of */
	struct arena *arena;
	struct value_index values;
	const struct json *input;
	struct record *records[BUCKETS];
	uint64_t met, ended; /* records */
	uint64_t until; /* seq of the record of the task around: what is in it ended before */
	/* loops around the place, outermost first */
	struct {
		const struct task *task;
		const struct json *items;
		uint64_t index;
	} loops[STEP_LOOPS_MAX];
	size_t loop_count;
	/* errors that are caught, outermost first, under the names of their handlers */
	struct {
		const char *name;
		const struct json *error;
	} caught[DEFINITION_DEPTH_MAX];
	size_t caught_count;
	const struct json *caught_dot; /* what `.` is, for a catch's conditions */
	/* of the task whose expression is evaluated */
	const struct task *task;
	const struct json *dot, *task_input, *raw_input, *output, *raw_output;
	const struct json *context;
	const struct entry *entries;
	size_t count;
	const char *step; /* of the task at hand, as its record has it */
};

static const struct json *value_of(const struct oracle *o, const struct json *data, const char *name)
{
	struct digest digest;

	if (!json_get_digest(data, name, &digest))
		return NULL;
	const struct entry_value *value = value_index_find(&o->values, &digest);
	return value && value->bytes.data ? json_parse(o->arena, value->bytes, JSON_STRICT, NULL, NULL) : NULL;
}

static const struct json *scope_get(void *context, const char *name)
{
	struct oracle *o = context;
	struct json *json = json_object(o->arena);

	if (strcmp(name, ".") == 0)
		return o->caught_dot ? o->caught_dot : o->dot;
	if (strcmp(name, "input") == 0)
		return o->task_input;
	if (strcmp(name, "output") == 0)
		return o->output;
	if (strcmp(name, "context") == 0)
		return o->context;
	for (size_t i = o->loop_count; i-- > 0;) {
		if (strcmp(name, o->loops[i].task->each) == 0)
			return json_at(o->loops[i].items, o->loops[i].index);
		if (strcmp(name, o->loops[i].task->at) == 0)
			return json_number(o->arena, (double)o->loops[i].index);
	}
	for (size_t i = o->caught_count; i-- > 0;)
		if (strcmp(name, o->caught[i].name) == 0)
			return o->caught[i].error;
	if (strcmp(name, "workflow") == 0) {
		struct json *started = json_object(o->arena);
		char text[64];
		const struct json *ts = json_get(json_parse(o->arena, o->world->journal.entries[o->era->seqs[0]].bytes, JSON_STRICT, NULL, NULL), "ts");
		snprintf(text, sizeof text, "%s", ts->string.text);
		json_set_text(o->arena, started, "iso8601", text);
		json_set_text(o->arena, json, "id", o->era->id);
		json_set(o->arena, json, "input", (struct json *)o->input);
		json_set(o->arena, json, "startedAt", started);
	} else if (strcmp(name, "runtime") == 0) {
		json_set_text(o->arena, json, "version", "1.2.3");
	} else if (strcmp(name, "task") == 0) {
		json_set_text(o->arena, json, "name", o->task->name);
		json_set_text(o->arena, json, "reference", o->task->reference);
		json_set(o->arena, json, "input", (struct json *)o->raw_input);
		if (o->raw_output)
			json_set(o->arena, json, "output", (struct json *)o->raw_output);
	} else {
		return NULL;
	}
	return json;
}

/* The step without its execution number. */
static const char *step_of(const struct oracle *o, const struct task *task)
{
	struct step_id id = {.reference = task->reference, .iteration_count = o->loop_count, .execution = 1};

	for (size_t i = 0; i < o->loop_count; i++)
		id.iterations[i] = o->loops[i].index;
	char *text = step_id_print(o->arena, &id);
	*strrchr(text, '@') = 0;
	return text;
}

static struct record **bucket_of(struct oracle *o, const char *step)
{
	uint64_t hash = 0;

	for (const char *c = step; *c; c++)
		hash = random_mix(hash ^ (uint8_t)*c);
	return &o->records[hash % BUCKETS];
}

static struct record *find_record(struct oracle *o, const struct entry *entry)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct record *record = o->records[i]; record; record = record->next)
			if (record->entry == entry)
				return record;
	return NULL;
}

static bool began_before(const struct entry *entries, size_t at)
{
	const char *step = json_get_text(entries[at].data, "stepId");

	for (size_t i = 0; i < at; i++)
		if (entries[i].kind == ENTRY_TASK_STARTED && strcmp(json_get_text(entries[i].data, "stepId"), step) == 0)
			return true;
	return false;
}

/* The run was gone on with: what its fault had ended did not happen. A task that holds others goes on, its end is still to come; any other is
 * entered once more. */
static void undo_fault(struct oracle *o, const struct entry *entries, size_t retried)
{
	struct step_id id;
	bool began = true;

	CHECK(retried >= 2 && entries[retried - 1].kind == ENTRY_RUN_FAULTED);
	for (size_t i = retried - 1; began && i-- > 0 && (entries[i].kind == ENTRY_TASK_FAULTED || entries[i].kind == ENTRY_TASK_CANCELLED);) {
		CHECK(step_id_parse(o->arena, json_get_text(entries[i].data, "stepId"), &id));
		const struct task *task = definition_find_task(o->run->definition, id.reference);
		struct record *record = find_record(o, &entries[i]);
		began = began_before(entries, i); /* one that did not was the first of it */
		o->ended--;
		record->met = true;
		if (!began || task->kind == TASK_CALL || task->kind == TASK_WAIT)
			continue;
		struct record **link = bucket_of(o, record->step);
		while (*link != record)
			link = &(*link)->next;
		*link = record->next;
	}
}

/* A call or a wait that was under way when the run was forked: the fork enters it again, under the next number. */
static void add_cut_off(struct oracle *o, const struct entry *carried)
{
	const char *step = json_get_text(carried->data, "stepId"), *phase = json_get_text(carried->data, "phase");

	if (!step || strcmp(phase, "cancelled") != 0)
		return;
	struct record *record = arena_zero(o->arena, sizeof *record);
	char *text = arena_text(o->arena, step);
	*strrchr(text, '@') = 0;
	*record = (struct record){.step = text, .execution = strtoull(strrchr(step, '@') + 1, NULL, 10), .entry = carried, .met = true};
	struct record **slot = bucket_of(o, text);
	for (; *slot; slot = &(*slot)->next)
		if (strcmp((*slot)->step, text) == 0 && (*slot)->execution == record->execution)
			return; /* it had been cancelled before */
	*slot = record;
}

static void read_records(struct oracle *o, const struct entry *entries, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (entries[i].kind == ENTRY_RUN_RETRIED)
			undo_fault(o, entries, i);
		const char *step = json_get_text(entries[i].data, "stepId");
		struct record *record;

		switch (entries[i].kind) {
		case ENTRY_TASK_COMPLETED:
		case ENTRY_TASK_FAULTED:
		case ENTRY_TASK_CANCELLED:
		case ENTRY_TASK_SKIPPED:
			record = arena_zero(o->arena, sizeof *record);
			char *text = arena_text(o->arena, step);
			*strrchr(text, '@') = 0;
			record->step = text;
			record->execution = strtoull(strrchr(step, '@') + 1, NULL, 10);
			record->entry = &entries[i];
			struct record **slot = bucket_of(o, text);
			while (*slot)
				slot = &(*slot)->next;
			*slot = record;
			o->ended++;
			break;
		case ENTRY_TASK_CARRIED:
			add_cut_off(o, &entries[i]);
			break;
		default:
			break;
		}
	}
}

/* How the next execution of this task ended; NULL: the journal has none. Numbers count up from 1; inside loops they may leave some out
 * (a loop that is entered again goes on after the highest number in it). */
static const struct entry *take_record(struct oracle *o, const struct task *task)
{
	const char *step = step_of(o, task);
	uint64_t last = 0;

	for (struct record *record = *bucket_of(o, step); record; record = record->next) {
		if (strcmp(record->step, step) != 0)
			continue;
		if (record->execution <= last || (task->loop_depth == 0 && record->execution != last + 1))
			broken(o->world, o->run, "execution %llu of %s follows %llu", (unsigned long long)record->execution, step, (unsigned long long)last);
		last = record->execution;
		if (record->met)
			continue;
		if (record->entry->seq > o->until)
			return NULL; /* of a later execution of what is around: in this one it never began */
		record->met = true;
		o->met++;
		return record->entry;
	}
	return NULL;
}

/* What needs jq, computed plainly. */
static int compute(void *context, const char *text, const struct json **result, struct error *error)
{
	struct oracle *o = context;
	const struct scope scope = {scope_get, o, NULL};

	*result = shape_compute(o->arena, text, &scope);
	return *result ? 0 : error_set(error, ERR_INVALID, "'%s' is no shape of expressions.c", text);
}

/* In the scope as it is set. NULL: it cannot be evaluated. */
static const struct json *evaluate_in_scope(struct oracle *o, const struct json *template, const char *expression)
{
	const struct scope scope = {scope_get, o, compute};
	const struct json *result = NULL;
	struct error error = {0};

	if ((expression ? expression_eval(o->arena, expression, &scope, &result, &error) : template_eval(o->arena, template, &scope, &result, &error)) != 0)
		return NULL;
	return result;
}

/* Of a task that has not begun, or works on what it was given. */
static const struct json *evaluate(struct oracle *o, const struct task *task, const struct json *input, const struct json *template, const char *expression)
{
	o->task = task;
	o->dot = o->task_input = input;
	o->output = o->raw_output = NULL;
	if (!o->raw_input)
		o->raw_input = input;
	return evaluate_in_scope(o, template, expression);
}

/* A value through `input`, `output` or `export`, in the scope as it is set but for `.`. NULL: it does not get through. */
static const struct json *pass(struct oracle *o, const struct transform *transform, const struct json *value, bool schema_first)
{
	const struct json *result = value;

	o->dot = value;
	if (transform->expression || transform->template)
		result = evaluate_in_scope(o, transform->template, transform->expression);
	if (transform->schema && result && json_schema_match(transform->schema, schema_first ? value : result, NULL) != 0)
		return NULL;
	return result;
}

static const struct json *pass_in(struct oracle *o, const struct task *task, const struct json *raw)
{
	o->task = task;
	o->task_input = o->raw_input = raw;
	o->output = o->raw_output = NULL;
	return pass(o, &task->input, raw, true);
}

/* What a task that gave `output` gives its list, and the context after it. */
static const struct json *pass_out(struct oracle *o, const struct task *task, const struct json *raw_input, const struct json *input, const struct json *output,
				   const struct json **context)
{
	o->task = task;
	o->task_input = input;
	o->raw_input = raw_input;
	o->raw_output = output;
	o->output = NULL;
	output = pass(o, &task->output, output, false);
	*context = o->context;
	o->output = output;
	if (output && (task->export.expression || task->export.template))
		*context = pass(o, &task->export, output, false);
	return *context ? output : NULL;
}

static struct result run_list(struct oracle *o, const struct task *task, const struct task_list *list, const struct json *input);
static struct result run_task(struct oracle *o, const struct task *task, const struct json *input);

static const struct result failed = {FAULTED, false, NULL}; /* an expression did; the text of the error is the journal's */

static struct result run_for(struct oracle *o, const struct task *task, const struct json *input)
{
	const struct json *items = evaluate(o, task, input, NULL, task->in), *current = input;
	struct json *outputs = json_array(o->arena);
	struct result all = {GAVE, false, NULL};
	const struct json *context = o->context;
	size_t depth = o->loop_count;

	if (!json_is(items, JSON_ARRAY))
		return failed;
	o->loop_count++;
	for (uint64_t i = 0; i < json_count(items); i++) {
		o->loops[depth].task = task;
		o->loops[depth].items = items;
		o->loops[depth].index = i;
		if (task->condition) {
			o->raw_input = NULL;
			const struct json *goes_on = evaluate(o, task->body.tasks[0], current, NULL, task->condition);
			if (!goes_on)
				all = failed;
			if (!goes_on || !json_truthy(goes_on))
				break;
		}
		if (task->concurrency)
			o->context = context;
		struct result one = run_list(o, task, &task->body, task->concurrency ? input : current);
		if (one.fate == GAVE) {
			json_add(o->arena, outputs, (struct json *)one.value);
			current = one.value;
		} else if (all.fate == GAVE || all.fate == CUT) {
			all = one; /* in a map, the others are cut then */
		} else if (one.fate != CUT) {
			broken(o->world, o->run, "two iterations of %s end it", task->reference);
		}
		if (!task->concurrency && (one.exit || one.fate != GAVE))
			break;
	}
	o->loop_count--;
	if (task->concurrency)
		o->context = context;
	if (all.fate == GAVE)
		all.value = task->concurrency ? outputs : current;
	return all;
}

/* Where the list goes on after the task; `then` of a skipped task does not count. */
static const struct then *choose_then(struct oracle *o, const struct task *task, const struct json *input, bool *fails)
{
	const struct switch_case *otherwise = NULL;

	for (size_t i = 0; i < task->case_count; i++) {
		const struct json *holds = task->cases[i].when ? evaluate(o, task, input, NULL, task->cases[i].when) : NULL;
		if (!task->cases[i].when)
			otherwise = &task->cases[i];
		else if (!holds)
			*fails = true;
		else if (json_truthy(holds))
			return &task->cases[i].then;
		if (*fails)
			return NULL;
	}
	return otherwise ? &otherwise->then : &task->then;
}

/* Whatever holds of this error: as the specification has the words, and the five spellings of a type are one. */
static bool catches(struct oracle *o, const struct task *task, const struct json *input, const struct json *error, bool *fails)
{
	const struct catch *catch = task->catch;

	for (size_t i = 0; i < json_count(catch->with); i++) {
		const struct json_member *wanted = &catch->with->object.members[i];
		const struct json *has = json_get(error, wanted->name);
		const char *a = json_is(has, JSON_STRING) ? has->string.text : NULL, *b = json_is(wanted->value, JSON_STRING) ? wanted->value->string.text : NULL;
		bool standard = a && b && (strstr(a, "/errors/types/") || strstr(a, "1.0.0/errors/")) && (strstr(b, "/errors/types/") || strstr(b, "1.0.0/errors/"));
		if (!has || (standard ? strcmp(strrchr(a, '/'), strrchr(b, '/')) != 0 : !json_equal(has, wanted->value)))
			return false;
	}
	const char *const conditions[] = {catch->when, catch->except_when};
	for (size_t i = 0; i < COUNT_OF(conditions); i++) {
		if (!conditions[i])
			continue;
		o->caught_dot = error;
		o->caught[o->caught_count].name = catch->as;
		o->caught[o->caught_count++].error = error;
		const struct json *holds = evaluate(o, task, input, NULL, conditions[i]);
		o->caught_count--;
		o->caught_dot = NULL;
		*fails = !holds;
		if (!holds || json_truthy(holds) == (i == 1))
			return false;
	}
	return true;
}

/* Attempts of the list, as the journal has them; then the handler. How often it is tried is counted here once more. */
static struct result run_try(struct oracle *o, const struct task *task, const struct json *input)
{
	const struct retry *retry = task->catch->retry;

	for (uint64_t attempt = 1;; attempt++) {
		struct result result = run_list(o, task, &task->body, input);
		bool fails = false;
		if (result.fate != FAULTED)
			return result;
		if (!result.value || !catches(o, task, input, result.value, &fails))
			return fails ? failed : result;
		if (retry && attempt <= retry->count)
			continue;
		if (task->handler.count == 0)
			return retry ? result : (struct result){GAVE, false, input};
		o->caught[o->caught_count].name = task->catch->as;
		o->caught[o->caught_count++].error = result.value;
		result = run_list(o, task, &task->handler, input);
		o->caught_count--;
		return result;
	}
}

/* All branches, their outputs in the order of declaration; or the first that completed. Which one that was the journal says. */
static struct result run_fork(struct oracle *o, const struct task *task, const struct json *input)
{
	struct json *outputs = json_array(o->arena);
	const struct json *context = o->context, *won = context; /* what a branch exports is the branch's, and the winner's goes on (D5) */
	struct result all = {GAVE, false, NULL, 0}, first = {CUT, false, NULL, 0}, last = first;
	bool cut = false;

	for (size_t i = 0; i < task->body.count; i++) {
		const struct task *at = task->body.tasks[i];
		const struct json *holds = at->run_if ? evaluate(o, at, input, NULL, at->run_if) : NULL;
		bool fails = false, runs = !at->run_if || (holds && json_truthy(holds));
		const struct then *then = choose_then(o, at, input, &fails);
		struct result one = run_task(o, at, input);
		if (one.fate == GAVE && runs && then && then->kind == THEN_END)
			one.fate = ENDED;
		if (one.fate == ENDED)
			all = one; /* nothing goes on */
		else if (one.fate == GAVE) {
			json_add(o->arena, outputs, (struct json *)one.value);
			if (first.fate != GAVE || one.seq < first.seq) {
				first = one;
				won = o->context;
			}
		} else if (one.fate == CUT) {
			cut = true;
		} else {
			if (!task->compete && last.fate == FAULTED)
				broken(o->world, o->run, "two branches of %s fault", task->reference);
			if (last.fate != FAULTED || one.seq > last.seq)
				last = one;
		}
		o->context = context;
	}
	if (all.fate == ENDED)
		return all;
	if (task->compete && first.fate == GAVE)
		o->context = won;
	if (task->compete)
		return first.fate == GAVE ? first : cut ? (struct result){CUT, false, NULL, 0} : last;
	if (last.fate == FAULTED)
		return last;
	all.fate = cut ? CUT : GAVE;
	all.value = outputs;
	return all;
}

static const struct entry *find_entry(const struct oracle *o, enum entry_kind kind, const char *step)
{
	for (size_t i = 0; i < o->count; i++) {
		const char *of = json_get_text(o->entries[i].data, "stepId");
		if (o->entries[i].kind == kind && of && strcmp(of, step) == 0)
			return &o->entries[i];
	}
	return NULL;
}

/* The event is what its attributes give, with the step's key and the time of its entry. */
static struct result run_emit(struct oracle *o, const struct task *task, const struct json *input)
{
	const struct entry *entry = find_entry(o, ENTRY_EVENT_EMITTED, o->step);
	const struct json *with = evaluate(o, task, input, task->emit, NULL);
	char key[DIGEST_HEX_LEN + 1], time[TIME_TEXT_LEN + 1];
	struct step_id id;

	if (!with)
		return failed;
	if (!entry)
		broken(o->world, o->run, "%s has emitted nothing", o->step);
	struct json *event = json_copy(o->arena, with);
	CHECK(step_id_parse(o->arena, o->step, &id));
	step_idempotency_key(o->era->id, &id, key);
	json_set_text(o->arena, event, "specversion", "1.0");
	json_set_text(o->arena, event, "id", key);
	time_text(entry->time_ms, time);
	json_set_text(o->arena, event, "time", time);
	if (!json_get(event, "source"))
		json_set(o->arena, event, "source", json_printf(o->arena, "https://%s/simulation/%s/1.0.0", o->world->journal.origin, o->run->definition->name));
	if (!json_equal(value_of(o, entry->data, "event"), event))
		broken(o->world, o->run, "%s emits something else than\n%s", o->step, (const char *)json_print_arena(event, o->arena).data);
	return (struct result){GAVE, false, event, 0};
}

/* Some other listener of the run had it. */
static bool consumed_elsewhere(const struct oracle *o, uint64_t seq, const char *step)
{
	for (size_t i = 0; i < o->count; i++)
		if (o->entries[i].kind == ENTRY_EVENT_CONSUMED && (uint64_t)json_get_number(o->entries[i].data, "eventSeq", 0) == seq &&
		    strcmp(json_get_text(o->entries[i].data, "stepId"), step) != 0)
			return true;
	return false;
}

/* Through all events of the journal, in order: each that matches was consumed, and no other one. */
static struct result run_listen(struct oracle *o, const struct task *task, const struct json *input)
{
	const char *step = o->step;
	const struct entry *started = find_entry(o, ENTRY_TASK_STARTED, step), *last = NULL;
	const struct json *of = json_pointer_get(o->run->definition->document, task->reference), *to = json_get(json_get(of, "listen"), "to");
	const char *read = json_get_text(json_get(of, "listen"), "read"), *until = json_get_text(to, "until");
	struct json *items = json_array(o->arena), *outputs = json_array(o->arena);
	struct listening listening = {0};
	int64_t since_ms = 0;
	size_t at = 0;
	struct bytes inner;

	if (until && expression_unwrap(until, &inner))
		until = arena_text_len(o->arena, (const char *)inner.data, inner.len);
	if (!started)
		return failed; /* its own input, or a duration */
	CHECK(time_parse(json_get_text(started->data, "since"), &since_ms));
	o->world->counters.listens++;
	for (size_t i = 0; i < o->world->sent_count && !listening.over; i++) {
		const struct sent *sent = &o->world->sent[i];
		const struct json *event = json_parse(o->arena, sent->bytes, JSON_STORED, NULL, NULL);
		struct listening before = listening;
		bool is_until;

		if (sent->time_ms < since_ms || !events_match(to, &listening, event, &is_until))
			continue;
		while (at < o->count && (o->entries[at].kind != ENTRY_EVENT_CONSUMED || strcmp(json_get_text(o->entries[at].data, "stepId"), step) != 0))
			at++;
		uint64_t consumed = at < o->count ? (uint64_t)json_get_number(o->entries[at].data, "eventSeq", 0) : UINT64_MAX;
		if (consumed != sent->seq) {
			listening = before;
			if (sent->seq < started->seq && consumed_elsewhere(o, sent->seq, step))
				continue;
			if (consumed == UINT64_MAX)
				break; /* it ended before it was offered this one */
			broken(o->world, o->run, "%s takes event %llu, though event %llu is for it", step, (unsigned long long)consumed, (unsigned long long)sent->seq);
		}
		last = &o->entries[at++];
		if (json_get_boolean(last->data, "until", false) != is_until)
			broken(o->world, o->run, "%s takes event %llu as what it is not", step, (unsigned long long)consumed);
		if (!is_until) {
			const struct json *data = json_get(event, "data"), *item = read && strcmp(read, "envelope") == 0 ? event : data ? data : json_null(o->arena);
			if (read && strcmp(read, "raw") == 0 && data && !json_is(data, JSON_STRING))
				item = json_text(o->arena, (const char *)json_print_arena(data, o->arena).data);
			json_add(o->arena, items, (struct json *)item);
		}
		if (until && !is_until) {
			const struct scope scope = {scope_get, o, compute};
			const struct json *holds = NULL;
			struct error error = {0};
			o->task = task;
			o->dot = items;
			listening.over = expression_eval(o->arena, until, &scope, &holds, &error) == 0 && json_truthy(holds);
		}
		if (json_get_boolean(last->data, "last", false) != listening.over)
			broken(o->world, o->run, "%s %s with event %llu, listening to %s", step, listening.over ? "ends" : "goes on", (unsigned long long)consumed,
			       (const char *)json_print_arena(to, o->arena).data);
	}
	for (; at < o->count; at++)
		if (o->entries[at].kind == ENTRY_EVENT_CONSUMED && strcmp(json_get_text(o->entries[at].data, "stepId"), step) == 0)
			broken(o->world, o->run, "%s takes event %llu, which is not for it", step, (unsigned long long)json_get_number(o->entries[at].data, "eventSeq", 0));
	if (task->body.count == 0)
		return (struct result){listening.over ? GAVE : CUT, false, items, 0};
	size_t depth = o->loop_count++;
	struct result all = {listening.over ? GAVE : CUT, false, outputs, 0};
	for (uint64_t i = 0; i < json_count(items); i++) {
		o->loops[depth].task = task;
		o->loops[depth].items = items;
		o->loops[depth].index = i;
		struct result one = run_list(o, task, &task->body, input);
		if (one.fate != GAVE) {
			all = one;
			break;
		}
		json_add(o->arena, outputs, (struct json *)one.value);
	}
	o->loop_count--;
	return all;
}

static struct result run_inside(struct oracle *o, const struct task *task, const struct json *input, bool *known)
{
	struct result result = {GAVE, false, NULL};

	*known = true;
	switch (task->kind) {
	case TASK_SET:
		result.value = evaluate(o, task, input, task->set, NULL);
		return result.value ? result : failed;
	case TASK_SWITCH: {
		bool fails = false;
		choose_then(o, task, input, &fails);
		result.value = input;
		return fails ? failed : result;
	}
	case TASK_RAISE: {
		const struct json *raised = evaluate(o, task, input, task->raise, NULL);
		if (!raised)
			return failed;
		struct json *error = json_copy(o->arena, raised);
		static const char *const texts[] = {"title", "detail"};
		for (size_t i = 0; i < COUNT_OF(texts); i++) {
			const struct json *text = json_get(error, texts[i]);
			if (text && !json_is(text, JSON_STRING) && !json_is(text, JSON_NULL))
				return failed;
			if (json_is(text, JSON_NULL))
				json_remove(error, texts[i]);
		}
		json_set_text(o->arena, error, "instance", task->reference);
		return (struct result){FAULTED, false, error};
	}
	case TASK_DO:
		return run_list(o, task, &task->body, input);
	case TASK_FOR:
		return run_for(o, task, input);
	case TASK_TRY:
		return run_try(o, task, input);
	case TASK_FORK:
		return run_fork(o, task, input);
	case TASK_WAIT:
		result.value = input;
		return result;
	case TASK_EMIT:
		return run_emit(o, task, input);
	case TASK_LISTEN:
		return run_listen(o, task, input);
	case TASK_CALL:
		break;
	}
	*known = false; /* a peer's answer: the journal's */
	return result;
}

static _Noreturn void differs(struct oracle *o, const struct task *task, const struct entry *record, const struct json *got, const struct result *expected)
{
	static const char *const fates[] = {"an output", "the end of the workflow", "a fault", "nothing"};

	broken(o->world, o->run, "%s has %s with\n%s\nand not %s\n%s", step_of(o, task), entry_kind_name(record->kind),
	       got ? (const char *)json_print_arena(got, o->arena).data : "", fates[expected->fate],
	       expected->value ? (const char *)json_print_arena(expected->value, o->arena).data : "");
}

static void set_era(struct oracle *o, uint64_t seq)
{
	o->era = o->run;
	while (o->era->fork_of && seq < o->era->fork_seq)
		o->era = o->era->fork_of;
}

/* One task: what the journal says of it has to be what comes out here. */
static struct result run_task(struct oracle *o, const struct task *task, const struct json *input)
{
	const struct entry *record = take_record(o, task);
	const struct json *transformed, *context = o->context;
	struct result result;
	bool known = true, flawed = false;

	if (!record)
		return (struct result){CUT, false, NULL};
	uint64_t until = o->until;
	o->until = record->seq;
	o->step = json_get_text(record->data, "stepId");
	const struct entry *started = o->run->fork_of ? find_entry(o, ENTRY_TASK_STARTED, o->step) : NULL;
	set_era(o, started ? started->seq : record->seq);
	if (task->run_if) {
		o->raw_input = input;
		const struct json *holds = evaluate(o, task, input, NULL, task->run_if);
		if (holds && json_truthy(holds) == (record->kind == ENTRY_TASK_SKIPPED))
			broken(o->world, o->run, "%s has %s, against its `if`", step_of(o, task), entry_kind_name(record->kind));
		if (record->kind == ENTRY_TASK_SKIPPED) {
			result = (struct result){GAVE, false, input};
			const struct json *output = value_of(o, record->data, "output");
			if (!output || !json_equal(output, input))
				differs(o, task, record, output, &result);
			o->until = until;
			result.seq = record->seq;
			return result;
		}
		transformed = holds ? pass_in(o, task, input) : NULL;
	} else {
		transformed = pass_in(o, task, input);
	}
	result = transformed ? run_inside(o, task, transformed, &known) : failed;
	o->until = until;
	set_era(o, record->seq);
	const struct json *output = value_of(o, record->data, "output"), *error = value_of(o, record->data, "error");
	if (!known) { /* of a call the journal has the answer, unless there was none */
		result.value = value_of(o, record->data, json_get(record->data, "raw") ? "raw" : "output");
		if (!result.value)
			result.fate = FAULTED;
		else if (task->function == FUNCTION_RUN && !task->awaits && !json_equal(result.value, transformed))
			broken(o->world, o->run, "%s lets a child go and gives something else than its input", step_of(o, task));
	}
	if (result.fate == GAVE) { /* What ended the workflow passes through nothing more. */
		result.value = pass_out(o, task, input, transformed, result.value, &context);
		flawed = !result.value;
		if (flawed)
			result = failed;
	}
	switch (record->kind) {
	case ENTRY_TASK_COMPLETED:
		if (!output)
			broken(o->world, o->run, "the output of %s is nowhere in the journal", step_of(o, task));
		if ((result.fate != GAVE && result.fate != ENDED) || !json_equal(output, result.value))
			differs(o, task, record, output, &result);
		if (result.fate == GAVE && (task->export.expression || task->export.template)) {
			const struct json *exported = value_of(o, record->data, "context");
			if (!exported || !json_equal(exported, context))
				broken(o->world, o->run, "%s exports something else", step_of(o, task));
		}
		if (result.fate == GAVE)
			o->context = context;
		return (struct result){result.fate, false, output, record->seq};
	case ENTRY_TASK_FAULTED:
		if (task->timeout && json_get_number(error, "status", 0) == 408 && strcmp(json_get_text(error, "instance"), task->reference) == 0 &&
		    (result.fate == CUT || !known || task->kind == TASK_WAIT))
			return (struct result){FAULTED, false, error, record->seq}; /* in time or not, the invariants check */
		if ((known || flawed) && (result.fate != FAULTED || (result.value && !json_equal(error, result.value))))
			differs(o, task, record, error, &result);
		if (!result.value && strcmp(json_get_text(error, "instance"), task->reference) != 0)
			broken(o->world, o->run, "the error of %s says it is of %s", step_of(o, task), json_get_text(error, "instance"));
		return (struct result){FAULTED, false, error, record->seq};
	case ENTRY_TASK_CANCELLED:
		return (struct result){CUT, false, NULL};
	default:
		broken(o->world, o->run, "%s is skipped without an `if`", step_of(o, task));
	}
}

static struct result run_list(struct oracle *o, const struct task *task, const struct task_list *list, const struct json *input)
{
	struct result result = {GAVE, false, input};
	(void)task;

	for (size_t i = 0; i < list->count;) {
		const struct task *at = list->tasks[i];
		o->raw_input = result.value;
		const struct json *holds = at->run_if ? evaluate(o, at, result.value, NULL, at->run_if) : NULL;
		bool fails = false;
		const struct json *transformed = pass_in(o, at, result.value);
		const struct then *then = transformed ? choose_then(o, at, transformed, &fails) : NULL;
		if (at->run_if && (!holds || !json_truthy(holds)))
			then = NULL;
		result = run_task(o, at, result.value);
		if (result.fate != GAVE)
			return result;
		enum then_kind kind = then ? then->kind : THEN_CONTINUE;
		if (kind == THEN_END)
			result.fate = ENDED;
		result.exit = kind == THEN_EXIT;
		if (kind == THEN_END || kind == THEN_EXIT)
			return result;
		i = kind == THEN_TASK ? then->index : i + 1;
	}
	return result;
}

void oracle_check(struct world *world, struct run_model *run, struct arena *arena, const struct entry *entries, size_t count)
{
	struct oracle *o = arena_zero(arena, sizeof *o);

	*o = (struct oracle){.world = world, .run = run, .era = run, .arena = arena, .until = UINT64_MAX, .entries = entries, .count = count};
	value_index_make(&o->values, arena, entries, count);
	read_records(o, entries, count);
	o->input = value_of(o, entries[0].data, "input");
	o->context = json_object(arena);
	const struct task *root = run->definition->root;
	const struct json *started = pass_in(o, root, o->input);
	struct result result = started ? run_list(o, root, &root->body, started) : failed;
	if (result.fate == GAVE || result.fate == ENDED) {
		o->task = root;
		o->era = run;
		result.value = pass(o, &root->output, result.value, false);
		if (!result.value)
			result = failed;
	}
	const struct entry *last = &entries[count - 1];
	const struct json *output = value_of(o, last->data, "output"), *error = value_of(o, last->data, "error");
	if (run->ended_by == ENTRY_RUN_COMPLETED && ((result.fate != GAVE && result.fate != ENDED) || !output || !json_equal(output, result.value)))
		broken(world, run, "the run's output is not what its tasks give");
	bool timed_out = run->definition->timeout && json_get_number(error, "status", 0) == 408 && strcmp(json_get_text(error, "instance"), "/") == 0;
	if (run->ended_by == ENTRY_RUN_FAULTED && result.fate == FAULTED && !result.value && error) { /* of the workflow's own input or output */
		const char *instance = json_get_text(error, "instance");
		if (strcmp(instance, started ? "/output" : "/input") == 0)
			result.value = error;
	}
	if (run->ended_by == ENTRY_RUN_FAULTED && !(timed_out && result.fate == CUT) && (result.fate != FAULTED || !error || !json_equal(error, result.value)))
		broken(world, run, "the run's error is not what its tasks give");
	bool suspended = false; /* then it may have had nothing left to do but to end */
	for (size_t i = 0; i < count; i++)
		if (entries[i].kind == ENTRY_RUN_SUSPENDED || entries[i].kind == ENTRY_RUN_RESUMED)
			suspended = entries[i].kind == ENTRY_RUN_SUSPENDED;
	if ((run->ended_by == ENTRY_RUN_CANCELLED || run->ended_by == ENTRY_RUN_KILLED) && result.fate != CUT && !suspended)
		broken(world, run, "the run was cancelled, but nothing of it was left to do");
	if (o->met != o->ended)
		for (size_t i = 0; i < BUCKETS; i++)
			for (struct record *record = o->records[i]; record; record = record->next)
				if (!record->met)
					broken(world, run, "execution %llu of %s stands in the journal, but does not happen", (unsigned long long)record->execution, record->step);
	world->counters.oracle_tasks += o->met;
}
