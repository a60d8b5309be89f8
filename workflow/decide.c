/* See decide.h. Read workflow_decide() at the end, then run_sequence() and run_loop().
 *
 * Every step is made of the same three moves: build an entry, fold it into the draft (emit), go on from what the draft says
 * then. Nothing here recurses over tasks or iterations: work that appears elsewhere in the tree goes to a queue. */
#include "workflow/decide.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"
#include "workflow/evidence/statement.h"
#include "workflow/language/duration.h"
#include "workflow/language/expression.h"
#include "workflow/language/json_schema.h"
#include "workflow/retry.h"

/* A place in the tree where something may go on: a sequence (do, iteration, root) or a loop. */
struct place {
	const struct task *task;
	bool is_body;
	uint64_t path[STATE_LOOP_DEPTH_MAX];
	size_t path_count;
};

/* One after the other the expressions of a task ask for the same few values: its input, the run's, the arrays of the loops around it. */
enum { PARSED_KEPT = 4 };

struct deciding {
	const struct state *base;
	struct state draft;
	struct decision *decision;
	struct arena *arena;
	const struct trigger *trigger;
	const struct decide_context *context;
	struct place *queue;
	size_t queue_head, queue_tail, queue_cap;
	struct {
		const struct value *value;
		const struct json *json;
	} parsed[PARSED_KEPT]; /* the last ones, in turn */
	size_t parsed_next;
	uint32_t *need_slots; /* hash set over the decision's needs: index + 1, 0 is free; a loop can need the outputs of all iterations */
	size_t need_slot_count;
	struct json *results; /* of evaluations since the last entry: the next one carries them */
	size_t result_bytes;
	size_t evaluation_needs;
	/* What could be committed as it stands: see context.settle. */
	size_t safe_entries, safe_effects;
	bool safe, safe_inside; /* inside: behind the trigger's first entry, so that CONTINUE has to follow */
	struct value *raw_output; /* of the call that is being completed, until an entry carries it */
	size_t entries_before; /* of the trigger at hand: the limit counts per trigger, so that replay stops where the decision did */
	bool ended; /* the run has ended in the draft, or asked to be continued: nothing more is started */
};

/* --- the decision's lists ----------------------------------------------------------------------------------------- */

void decision_init(struct decision *decision)
{
	*decision = (struct decision){0};
	arena_init(&decision->arena);
}

void decision_close(struct decision *decision)
{
	arena_close(&decision->arena);
	*decision = (struct decision){0};
}

static void name_results(struct deciding *d, struct entry *entry);

/* The entry is added, with an empty data object, and folded in by emit(). */
static struct entry *new_entry(struct deciding *d, enum entry_kind kind)
{
	struct decision *decision = d->decision;

	decision->entries = arena_grow(d->arena, decision->entries, decision->entry_count, &decision->entry_cap, sizeof *decision->entries);
	struct entry *entry = &decision->entries[decision->entry_count++];
	*entry = (struct entry){.kind = kind, .data = json_object(d->arena), .time_ms = d->trigger->wall_ms};
	const char *id = d->draft.entry_count > 0 ? d->draft.id : d->trigger->run_id;
	if (entry_kind_touches_run(kind))
		json_set_text(d->arena, entry->data, "runId", id);
	name_results(d, entry);
	return entry;
}

static void emit(struct deciding *d, struct entry *entry)
{
	struct error error = {0};

	if (workflow_apply(&d->draft, entry, &error) != 0) /* a mistake of ours: say which */
		check_failed(__FILE__, __LINE__, error.message);
}

static struct effect *new_effect(struct deciding *d, enum effect_kind kind)
{
	struct decision *decision = d->decision;

	decision->effects = arena_grow(d->arena, decision->effects, decision->effect_count, &decision->effect_cap, sizeof *decision->effects);
	struct effect *effect = &decision->effects[decision->effect_count++];
	*effect = (struct effect){.kind = kind};
	return effect;
}

static bool stopped(const struct deciding *d)
{
	return d->ended || d->decision->need_count > 0;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Where this digest stands among the needs, or where its number would have to be put. */
static uint32_t *find_need(const struct deciding *d, const struct digest *digest)
{
	uint64_t hash;

	memcpy(&hash, digest->bytes, sizeof hash);
	for (size_t slot = hash & (d->need_slot_count - 1);; slot = (slot + 1) & (d->need_slot_count - 1))
		if (d->need_slots[slot] == 0 || digest_equal(&d->decision->needs[d->need_slots[slot] - 1].digest, digest))
			return &d->need_slots[slot];
}

static void need_value(struct deciding *d, const struct value *value)
{
	struct decision *decision = d->decision;

	if (decision->need_count * 2 >= d->need_slot_count) {
		d->need_slot_count = d->need_slot_count ? d->need_slot_count * 2 : 16;
		d->need_slots = arena_zero(d->arena, d->need_slot_count * sizeof *d->need_slots);
		for (size_t i = 0; i < decision->need_count; i++)
			*find_need(d, &decision->needs[i].digest) = (uint32_t)i + 1;
	}
	uint32_t *slot = find_need(d, &value->digest);
	if (*slot != 0 || decision->need_count >= DECISION_NEEDS_MAX)
		return;
	decision->needs = arena_grow(d->arena, decision->needs, decision->need_count, &decision->need_cap, sizeof *decision->needs);
	decision->needs[decision->need_count++] = (struct value_need){value->digest, value->content_id, value->size, NULL};
	*slot = (uint32_t)decision->need_count;
}

static void need_result(struct deciding *d, const struct digest *digest, const struct evaluation *evaluation)
{
	const struct value value = {.digest = *digest, .size = evaluation->request.len};
	size_t before = d->decision->need_count;

	if (d->evaluation_needs >= DECISION_EVALUATIONS_MAX)
		return; /* others are needed as it is */
	need_value(d, &value);
	if (d->decision->need_count == before)
		return;
	d->decision->needs[before].evaluation = evaluation;
	d->evaluation_needs++;
}

/* NULL: it has to be loaded first, and the decision says so. */
static const struct json *value_json(struct deciding *d, const struct value *value)
{
	struct error error = {0};

	if (value->json)
		return value->json;
	for (size_t i = 0; i < PARSED_KEPT; i++)
		if (d->parsed[i].value == value)
			return d->parsed[i].json;
	const struct json *json = NULL;
	if (value->bytes.data) {
		json = json_parse(d->arena, value->bytes, JSON_STORED, NULL, &error);
		CHECK(json != NULL); /* We printed it, and its digest was checked when it was read. */
	} else if (d->context->values.get) {
		json = d->context->values.get(d->context->values.context, &value->digest);
	}
	if (!json) {
		need_value(d, value);
		return NULL;
	}
	d->parsed[d->parsed_next].value = value;
	d->parsed[d->parsed_next].json = json;
	d->parsed_next = (d->parsed_next + 1) % PARSED_KEPT;
	return json;
}

/* A value of this decision: canonical bytes and digest. Not yet carried by any entry unless the run knows it already. */
static struct value *value_of_bytes(struct deciding *d, const struct json *json, struct bytes bytes)
{
	struct digest digest = digest_of(bytes);
	struct value *value = state_find_value(&d->draft, &digest);

	if (value)
		return value;
	value = arena_zero(d->arena, sizeof *value);
	value->digest = digest;
	value->size = bytes.len;
	value->bytes = bytes;
	value->json = json;
	return value;
}

static struct value *make_value(struct deciding *d, const struct json *json)
{
	return value_of_bytes(d, json, json_print_arena(json, d->arena));
}

/* What an expression or a loop put together, or a peer answered: a few tasks can make much of little, and what is committed must be
 * readable for ever. NULL and an error past DECISION_VALUE_MAX or JSON_DEPTH_MAX. */
static struct value *make_bounded(struct deciding *d, const struct json *json, struct error *error)
{
	struct buffer text;
	struct value *value = NULL;

	if (!json_nests_within(json, JSON_DEPTH_MAX)) {
		error_set(error, ERR_TOO_LARGE, "the value nests deeper than %d levels, the most allowed (JSON_DEPTH_MAX)", JSON_DEPTH_MAX);
		return NULL;
	}
	buffer_init(&text, DECISION_VALUE_MAX);
	json_print(json, &text);
	if (text.overflow)
		error_set(error, ERR_TOO_LARGE, "the value is larger than %d MiB, the most allowed (DECISION_VALUE_MAX)", DECISION_VALUE_MAX >> 20);
	else
		value = value_of_bytes(d, json, arena_bytes(d->arena, buffer_bytes(&text)));
	buffer_close(&text);
	return value;
}

/* data[name] names the value; the first entry that names a new one carries it. */
static void name_value(struct deciding *d, struct entry *entry, const char *name, struct value *value)
{
	json_set_digest(d->arena, entry->data, name, &value->digest);
	if (state_find_value(&d->draft, &value->digest))
		return; /* known to the run, or carried by an earlier entry of this decision */
	for (size_t i = 0; i < entry->value_count; i++)
		if (digest_equal(&entry->values[i].digest, &value->digest))
			return;
	CHECK(entry->value_count < ENTRY_VALUES_MAX);
	entry->values[entry->value_count++] = (struct entry_value){value->digest, value->bytes, value->size};
}

/* Results of evaluations stand beside what became of them, so that replay evaluates nothing and still puts every value together anew:
 * one as itself, for it mostly is the task's output as well; several, or a failure, as [[value] or text …]. */
static void name_results(struct deciding *d, struct entry *entry)
{
	const struct json *results = d->results, *only = json_count(results) == 1 ? json_at(json_at(results, 0), 0) : NULL;

	if (json_count(results) == 0)
		return;
	d->results = NULL;
	d->result_bytes = 0;
	name_value(d, entry, only ? "result" : "results", make_value(d, only ? only : results));
}

/* Values that nothing in the state holds (records, requests, answers): always carried. */
static void carry(struct deciding *d, struct entry *entry, const char *name, struct bytes bytes)
{
	if (bytes.data && bytes.len > 0)
		entry_add_value(d->arena, entry, name, bytes);
}

/* --- step ids ----------------------------------------------------------------------------------------------------- */

static const char *step_text(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, uint64_t execution, char key[DIGEST_HEX_LEN + 1])
{
	struct step_id id = {.reference = task->reference, .iteration_count = path_count, .execution = execution};

	memcpy(id.iterations, path, path_count * sizeof *path);
	if (key)
		step_idempotency_key(d->draft.id, &id, key);
	return step_id_print(d->arena, &id);
}

static struct entry *new_step_entry(struct deciding *d, enum entry_kind kind, const char *step)
{
	struct entry *entry = new_entry(d, kind);

	json_set_text(d->arena, entry->data, "stepId", step);
	return entry;
}

/* --- expressions -------------------------------------------------------------------------------------------------- */

struct scope_context {
	struct deciding *d;
	const struct task *task;
	const uint64_t *path;
	size_t path_count;
	struct value *input; /* `.` */
	const struct json *caught; /* of a catch's conditions: the error, which is "." and $as then */
	struct value *transformed; /* $input; NULL: the same */
	struct value *raw_input, *raw_output; /* of $task; NULL: the input is the same, the output is not there yet */
	struct value *output; /* $output */
};

static struct json *time_json(struct arena *arena, int64_t wall_ms)
{
	struct json *json = json_object(arena), *epoch = json_object(arena);
	char text[TIME_TEXT_LEN + 1];

	time_text(wall_ms, text);
	json_set_text(arena, json, "iso8601", text);
	json_set_number(arena, epoch, "seconds", (double)(wall_ms / 1000));
	json_set_number(arena, epoch, "milliseconds", (double)wall_ms);
	json_set(arena, json, "epoch", epoch);
	return json;
}

/* $item and $index of the loops around the task, $error of the catch it stands in; innermost first. */
static const struct json *scoped_variable(const struct scope_context *s, const char *name, bool *known)
{
	struct deciding *d = s->d;

	*known = true;
	if (s->caught && strcmp(name, s->task->catch->as) == 0)
		return s->caught;
	for (const struct task *at = s->task, *around; (around = at->parent) != NULL; at = around) {
		const struct instance *instance = around->kind == TASK_FOR || around->kind == TASK_TRY ?
							  state_find(&d->draft, around, false, s->path, around->loop_depth) : NULL;
		if (around->kind == TASK_TRY && at->in_handler && strcmp(name, around->catch->as) == 0)
			return instance && instance->error ? value_json(d, instance->error) : NULL;
		if (around->kind != TASK_FOR)
			continue;
		uint64_t index = s->path[around->loop_depth];
		if (strcmp(name, around->at) == 0)
			return json_number(d->arena, (double)index);
		if (strcmp(name, around->each) == 0) {
			const struct json *items = instance && instance->items ? value_json(d, instance->items) : NULL;
			return items ? json_at(items, index) : NULL;
		}
	}
	*known = false;
	return NULL;
}

static const struct json *scope_get(void *context, const char *name)
{
	const struct scope_context *s = context;
	struct deciding *d = s->d;
	bool known = false;

	if (s->caught && strcmp(name, ".") == 0)
		return s->caught;
	if (strcmp(name, ".") == 0)
		return value_json(d, s->input);
	if (strcmp(name, "input") == 0)
		return value_json(d, s->transformed ? s->transformed : s->input);
	if (strcmp(name, "output") == 0)
		return s->output ? value_json(d, s->output) : NULL;
	const struct json *variable = scoped_variable(s, name, &known);
	if (known)
		return variable;
	struct json *json = json_object(d->arena);
	if (strcmp(name, "context") == 0) { /* D3: {} until something exports */
		struct value *exported = state_context(&d->draft, s->task, s->path, s->path_count);
		return exported ? value_json(d, exported) : json;
	}
	if (strcmp(name, "workflow") == 0) {
		bool created = d->draft.entry_count > 0; /* else this is the workflow's own input.from */
		const struct json *input = value_json(d, created ? d->draft.input : s->input);
		if (!input)
			return NULL;
		json_set_text(d->arena, json, "id", created ? d->draft.id : d->trigger->run_id);
		json_set(d->arena, json, "definition", (struct json *)d->draft.definition->document);
		json_set(d->arena, json, "input", (struct json *)input);
		json_set(d->arena, json, "startedAt", time_json(d->arena, created ? d->draft.created_ms : d->trigger->wall_ms));
		return json;
	}
	if (strcmp(name, "runtime") == 0) {
		json_set_text(d->arena, json, "name", "reprise");
		json_set_text(d->arena, json, "version", d->context->daemon_version);
		json_set(d->arena, json, "metadata", json_object(d->arena));
		return json;
	}
	if (strcmp(name, "task") == 0) {
		const struct json *input = value_json(d, s->raw_input ? s->raw_input : s->input);
		const struct json *output = s->raw_output ? value_json(d, s->raw_output) : NULL;
		const struct json *definition = json_pointer_get(d->draft.definition->document, s->task->reference);
		const struct instance *instance = state_find(&d->draft, s->task, false, s->path, s->path_count);
		bool started = instance && instance->phase == INSTANCE_STARTED;
		if (!input || (s->raw_output && !output))
			return NULL;
		json_set_text(d->arena, json, "name", s->task->name);
		json_set_text(d->arena, json, "reference", s->task->reference);
		if (definition)
			json_set(d->arena, json, "definition", (struct json *)definition);
		json_set(d->arena, json, "input", (struct json *)input);
		if (output)
			json_set(d->arena, json, "output", (struct json *)output);
		json_set(d->arena, json, "startedAt", time_json(d->arena, started ? instance->started_ms : d->trigger->wall_ms));
		return json;
	}
	return NULL;
}

/* How much of an expression an error message repeats; never a part of a character. */
static int shown_len(const char *text)
{
	enum { SHOWN_MAX = 80 };
	size_t len = strlen(text);

	if (len > SHOWN_MAX)
		for (len = SHOWN_MAX; len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80;)
			len--;
	return (int)len;
}

/* What is kept of an answer becomes what the expression gives. */
static int take_result(struct deciding *d, const char *text, const struct json *kept, const struct json **result, struct error *error)
{
	size_t bytes = json_print_arena(kept, d->arena).len;

	if (!d->results)
		d->results = json_array(d->arena);
	if (d->result_bytes + bytes > DECISION_RESULTS_BYTES_MAX)
		kept = json_printf(d->arena, "results of more than %d MiB together, the most that one task may have (DECISION_RESULTS_BYTES_MAX)",
				   DECISION_RESULTS_BYTES_MAX >> 20);
	d->result_bytes += bytes;
	json_add(d->arena, d->results, (struct json *)kept);
	if (json_is(kept, JSON_ARRAY)) {
		*result = json_at(kept, 0);
		return 0;
	}
	return error_set(error, ERR_INVALID, "expression '%.*s': %s", shown_len(text), text, json_is(kept, JSON_STRING) ? kept->string.text : "?");
}

/* scope.evaluate: the result if it is at hand, else the decision says what it needs. */
static int evaluate_jq(void *context, const char *text, const struct json **result, struct error *error)
{
	struct scope_context *s = context;
	struct deciding *d = s->d;
	const struct json *kept = NULL;
	struct evaluation *evaluation = arena_zero(d->arena, sizeof *evaluation);
	const char *const *mentioned;

	if (d->context->recorded.get) {
		kept = d->context->recorded.get(d->context->recorded.context, d->decision->entry_count, json_count(d->results));
		if (kept)
			return take_result(d, text, kept, result, error);
		need_result(d, &(struct digest){{0}}, evaluation);
		return error_set(error, ERR_NOT_FOUND, "the result of '%.*s'", shown_len(text), text);
	}
	size_t count = expression_variables(d->arena, text, &mentioned), bound = 0;
	const char **names = arena_alloc(d->arena, (count + 1) * sizeof *names);
	const struct json **values = arena_alloc(d->arena, (count + 1) * sizeof *values), *input = scope_get(s, ".");
	for (size_t i = 0; i < count; i++) {
		values[bound] = scope_get(s, mentioned[i]);
		names[bound] = mentioned[i];
		bound += values[bound] != NULL; /* else it is one of the expression's own, or its value is needed */
	}
	if (d->decision->need_count > d->evaluation_needs || !input)
		return error_set(error, ERR_NOT_FOUND, "a value that '%.*s' speaks of", shown_len(text), text);
	if (evaluation_request(d->arena, text, input, names, values, bound, evaluation, error) != 0)
		return take_result(d, text, json_text(d->arena, error->message), result, error);
	struct digest digest = digest_of(evaluation->request);
	kept = d->context->values.get ? d->context->values.get(d->context->values.context, &digest) : NULL;
	if (kept)
		return take_result(d, text, kept, result, error);
	need_result(d, &digest, evaluation);
	return error_set(error, ERR_NOT_FOUND, "the result of '%.*s'", shown_len(text), text);
}

/* The three ways out of an evaluation: a result; NULL and needs; NULL and an error. */
static const struct json *evaluate(struct deciding *d, struct scope_context *s, const struct json *template, const char *expression, struct error *error)
{
	struct scope scope = {scope_get, s, evaluate_jq};
	const struct json *result = NULL;
	int rc = expression ? expression_eval(d->arena, expression, &scope, &result, error) : template_eval(d->arena, template, &scope, &result, error);

	return rc == 0 && d->decision->need_count == 0 ? result : NULL;
}

/* A duration, which an expression may give. False: the decision needs values, or *error says what is wrong. NULL is none: 0. */
static bool read_duration(struct deciding *d, struct scope_context *s, const struct json *template, int64_t *ms, struct error *error)
{
	*ms = 0;
	if (!template)
		return true;
	const struct json *value = evaluate(d, s, template, NULL, error);
	return value && duration_read(value, ms, error) == 0;
}

static void set_time(struct deciding *d, struct entry *entry, const char *name, int64_t wall_ms)
{
	char text[TIME_TEXT_LEN + 1];

	time_text(wall_ms, text);
	json_set_text(d->arena, entry->data, name, text);
}

/* --- data flow ---------------------------------------------------------------------------------------------------- */

/* Why a value could not pass. */
struct flaw {
	bool is_schema;
	struct error error;
};

static bool fits(struct deciding *d, const struct transform *transform, const struct value *value, struct flaw *flaw)
{
	if (!transform->schema)
		return true;
	const struct json *json = value_json(d, value);
	if (!json)
		return false;
	flaw->is_schema = true;
	return json_schema_match(transform->schema, json, &flaw->error) == 0;
}

/* What becomes of a value on its way in or out (dsl.md 1.2). An input has to fit its schema as it comes, all else as it goes. NULL: values
 * have to be loaded first, or the flaw says why not. name: what the definition calls it. */
static struct value *apply_transform(struct deciding *d, struct scope_context *s, const struct transform *transform, const char *name, struct flaw *flaw)
{
	bool is_input = strcmp(name, "input") == 0;
	struct value *value = s->input;

	*flaw = (struct flaw){0};
	if (is_input && !fits(d, transform, value, flaw))
		goto fail;
	if (transform->expression || transform->template) {
		flaw->is_schema = false;
		const struct json *result = evaluate(d, s, transform->template, transform->expression, &flaw->error);
		value = result ? make_bounded(d, result, &flaw->error) : NULL;
		if (!value)
			goto fail;
	}
	if (!is_input && !fits(d, transform, value, flaw))
		goto fail;
	return value;
fail:
	if (d->decision->need_count == 0)
		error_wrap(&flaw->error, "%s.%s", name, flaw->is_schema ? "schema" : is_input ? "from" : "as");
	return NULL;
}

/* What the list around a task gives it: its raw input. Kept by the list until the task is over. */
static struct value *find_raw_input(const struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count)
{
	const struct task *parent = task->parent;
	bool is_body = parent->kind == TASK_FOR;
	const struct instance *list = state_find(&d->draft, parent, is_body, path, path_count);
	const struct instance *loop = is_body ? state_find(&d->draft, parent, false, path, path_count - 1) : NULL;

	if (parent->kind == TASK_FORK)
		return list->input; /* every branch has it */
	if (list && (!loop || list->execution == loop->execution))
		return list->current;
	CHECK(loop != NULL); /* an iteration that begins with its first task */
	return parent->concurrency == 0 && loop->current ? loop->current : loop->input;
}

/* --- faults ------------------------------------------------------------------------------------------------------- */

static struct json *error_json(struct deciding *d, const char *type, int status, const char *title, const char *detail, const char *instance, const char *class)
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

static void end_run(struct deciding *d, struct entry *entry)
{
	if (d->trigger->run_record)
		carry(d, entry, "record", json_print_arena(d->trigger->run_record, d->arena));
	emit(d, entry);
	new_effect(d, EFFECT_RUN_ENDED);
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
	struct effect *effect = new_effect(d, EFFECT_CANCEL_ACTIVITY);
	effect->step_id = step;
	effect->attempt = attempt;
}

/* What of all that is under way ends. */
struct ending {
	const struct task *within; /* only what is in it; NULL: all */
	bool strictly; /* not `within` itself */
	const struct task *around; /* itself and what is around it ends with the error or the output; all else as cancelled. May be NULL */
	const uint64_t *path; /* of the longer of the two */
	struct value *error, *output;
};

/* Innermost first. */
static void end_live(struct deciding *d, const struct ending *ending)
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
		const char *step = step_text(d, instance->task, instance->path, instance->path_count, instance->execution, NULL);
		if (instance->in_flight)
			call_off(d, step, instance->attempt);
		if (ending->around && is_inside(ending->around, ending->path, instance->task, instance->path)) {
			struct entry *entry = new_step_entry(d, ending->error ? ENTRY_TASK_FAULTED : ENTRY_TASK_COMPLETED, step);
			name_value(d, entry, ending->error ? "error" : "output", ending->error ? ending->error : ending->output);
			if (d->raw_output && ending->error && instance->task == ending->around)
				name_value(d, entry, "raw", d->raw_output);
			if (!ending->error)
				json_set_text(d->arena, entry->data, "then", "end");
			emit(d, entry);
			continue;
		}
		emit(d, new_step_entry(d, ENTRY_TASK_CANCELLED, step));
	}
}

static struct json *flaw_json(struct deciding *d, const struct flaw *flaw, const char *instance)
{
	return error_json(d, flaw->is_schema ? "https://serverlessworkflow.io/spec/1.0.0/errors/validation" : "https://serverlessworkflow.io/spec/1.0.0/errors/expression",
			  400, flaw->is_schema ? "Schema does not match" : "Expression failed", flaw->error.message, instance, NULL);
}

/* Of the workflow itself: no task is under way. */
static void fault_run(struct deciding *d, const struct json *error)
{
	struct value *value = make_value(d, error);
	struct entry *entry = new_entry(d, ENTRY_RUN_FAULTED);

	name_value(d, entry, "error", value);
	end_run(d, entry);
}

static void complete_run(struct deciding *d, struct value *output)
{
	const struct task *root = d->draft.definition->root;
	static const uint64_t path[1];
	struct scope_context s = {.d = d, .task = root, .path = path, .input = output};
	struct flaw flaw;

	output = apply_transform(d, &s, &root->output, "output", &flaw);
	if (!output) {
		if (d->decision->need_count == 0)
			fault_run(d, flaw_json(d, &flaw, "/output"));
		return;
	}
	struct entry *entry = new_entry(d, ENTRY_RUN_COMPLETED);

	name_value(d, entry, "output", output);
	end_run(d, entry);
}

static void fault_task(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, const struct json *error);

/* `output` and `export`: the task's output, and its context or NULL. False: values have to be loaded first, or the task has faulted. */
static bool pass_out(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, struct value *input, struct value **output,
		     struct value **context)
{
	struct scope_context s = {.d = d, .task = task, .path = path, .path_count = path_count, .input = *output, .transformed = input, .raw_output = *output};
	struct flaw flaw;

	*context = NULL;
	s.raw_input = find_raw_input(d, task, path, path_count);
	*output = apply_transform(d, &s, &task->output, "output", &flaw);
	if (*output && (task->export.expression || task->export.template || task->export.schema)) {
		s.input = s.output = *output;
		*context = apply_transform(d, &s, &task->export, "export", &flaw);
		if (!*context)
			*output = NULL;
		if (!task->export.expression && !task->export.template)
			*context = NULL; /* without `as` the context stays; the schema is that of what would have been exported */
	}
	if (!*output && d->decision->need_count == 0)
		fault_task(d, task, path, path_count, flaw_json(d, &flaw, task->reference));
	return *output != NULL;
}

/* The one place where a task completes. input: of a pure task, whose only entry this is; else NULL, it has started. output: the raw one.
 * then: where its list goes on, if not where the task says; `end` ends the run here. False: values have to be loaded first, or it has
 * faulted. */
static bool complete_task(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, struct value *input, struct value *output,
			  const struct then *then)
{
	const struct instance *instance = state_find(&d->draft, task, false, path, path_count);
	struct value *raw = output, *context = NULL;

	if (task->output.expression || task->output.template || task->output.schema || task->export.expression || task->export.template || task->export.schema) {
		/* What a peer answered cannot be found again; what our own tasks give can. */
		d->raw_output = !input && task->kind == TASK_CALL ? raw : NULL;
		if (!pass_out(d, task, path, path_count, input ? input : instance->input, &output, &context)) {
			d->raw_output = NULL;
			return false;
		}
	}
	uint64_t execution = input ? state_next_execution(&d->draft, task, path, path_count) : instance->execution;
	struct entry *entry = new_step_entry(d, ENTRY_TASK_COMPLETED, step_text(d, task, path, path_count, execution, NULL));

	if (!then)
		then = &task->then;
	if (input)
		name_value(d, entry, "input", input);
	name_value(d, entry, "output", output);
	if (context)
		name_value(d, entry, "context", context);
	if (d->raw_output && raw != output)
		name_value(d, entry, "raw", raw);
	d->raw_output = NULL;
	if (then->kind != THEN_CONTINUE)
		json_set_text(d->arena, entry->data, "then", then->name);
	emit(d, entry);
	if (then->kind == THEN_END) {
		end_live(d, &(struct ending){.around = task, .path = path, .output = output});
		complete_run(d, output);
	}
	return true;
}

/* Five spellings of the standard error types are one (D11): the last part counts. */
static const char *standard_type(const char *type)
{
	static const char *const prefixes[] = {
		"https://serverlessworkflow.io/spec/1.0.0/errors/", "https://open-workflow-specification.org/spec/1.0.0/errors/",
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

		if (!has || (strcmp(name, "type") == 0 && json_is(has, JSON_STRING) ? !types_equal(has->string.text, wanted->value->string.text) :
										       !json_equal(has, wanted->value)))
			return false;
	}
	return true;
}

enum verdict { VERDICT_NO, VERDICT_YES, VERDICT_UNKNOWN /* values are missing, or a condition cannot be evaluated: *error */ };

static enum verdict check_conditions(struct deciding *d, struct scope_context *s, const char *when, const char *except_when, struct error *error)
{
	const struct json *holds = when ? evaluate(d, s, NULL, when, error) : NULL;

	if (when && !holds)
		return VERDICT_UNKNOWN;
	if (when && !json_truthy(holds))
		return VERDICT_NO;
	holds = except_when ? evaluate(d, s, NULL, except_when, error) : NULL;
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
	if (!read_duration(d, &s, retry->delay, &delay, error) || !read_duration(d, &s, retry->jitter_from, &from, error) ||
	    !read_duration(d, &s, retry->jitter_to, &to, error))
		return VERDICT_UNKNOWN;
	const char *step = step_text(d, try->task, try->path, try->path_count, try->execution, NULL);
	*due_ms = d->trigger->wall_ms + retry_backoff_ms(retry->backoff, delay, try->attempt) + retry_jitter_ms(d->draft.id, step, try->attempt, from, to);
	return try->retry_until_ms != 0 && *due_ms > try->retry_until_ms ? VERDICT_NO : VERDICT_YES;
}

static void push(struct deciding *d, const struct task *task, bool is_body, const uint64_t *path, size_t path_count);
static void push_parent(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count);
static void fault_task(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, const struct json *error);
static void fault_expression(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, const struct error *error);

/* The try catches this error, and nothing in it is under way any more: again, or catch.do, or it is done (D6). */
static void handle_error(struct deciding *d, const struct instance *try, const struct json *caught, struct value *value)
{
	const struct task *task = try->task;
	struct error error = {0};
	int64_t due_ms;

	switch (plan_retry(d, try, caught, &due_ms, &error)) {
	case VERDICT_UNKNOWN:
		if (d->decision->need_count == 0)
			fault_expression(d, task, try->path, try->path_count, &error);
		return;
	case VERDICT_YES: {
		struct entry *entry = new_step_entry(d, ENTRY_TASK_RETRYING, step_text(d, task, try->path, try->path_count, try->execution, NULL));
		json_set_number(d->arena, entry->data, "attempt", try->attempt + 1);
		name_value(d, entry, "error", value);
		set_time(d, entry, "due", due_ms);
		emit(d, entry);
		return;
	}
	case VERDICT_NO:
		break;
	}
	if (task->handler.count > 0) {
		struct entry *entry = new_step_entry(d, ENTRY_TASK_CAUGHT, step_text(d, task, try->path, try->path_count, try->execution, NULL));
		name_value(d, entry, "error", value);
		emit(d, entry);
		push(d, task, false, try->path, try->path_count);
	} else if (task->catch->retry) {
		fault_task(d, task, try->path, try->path_count, caught);
	} else {
		if (complete_task(d, task, try->path, try->path_count, NULL, try->input, NULL))
			push_parent(d, task, try->path, try->path_count);
	}
}

/* Does this try, whose list the error comes out of, catch it? */
static enum verdict catches(struct deciding *d, const struct instance *try, const struct json *caught, struct error *error)
{
	const struct catch *catch = try->task->catch;
	struct scope_context s = catch_scope(d, try, caught);

	return matches_filter(catch->with, caught) ? check_conditions(d, &s, catch->when, catch->except_when, error) : VERDICT_NO;
}

/* This branch of a fork has faulted: are there others that may still win? D7: without `compete` one fault ends them all. */
static bool others_compete(struct deciding *d, const struct task *branch, const uint64_t *path)
{
	const struct task *task = branch->parent;
	const struct instance *fork = state_find(&d->draft, task, false, path, task->loop_depth), *own = state_find(&d->draft, branch, false, path, branch->loop_depth);
	bool live = own && (own->phase == INSTANCE_STARTED || own->phase == INSTANCE_BACKING_OFF);

	return task->compete && (fork->live_count > (live ? 1 : 0) || (fork->next_iteration < task->body.count && branch->index + 1 < task->body.count));
}

/* A fault goes outwards, ending what it meets, until a try catches it; or it is the fault of the run. */
static void fault_task(struct deciding *d, const struct task *task, const uint64_t *task_path, size_t path_count, const struct json *error)
{
	const struct instance *instance = state_find(&d->draft, task, false, task_path, path_count), *catcher = NULL;
	bool live = instance && (instance->phase == INSTANCE_STARTED || instance->phase == INSTANCE_BACKING_OFF);
	struct value *value = make_value(d, error);
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
		verdict = catches(d, catcher, error, &why);
		if (d->decision->need_count > 0)
			return;
		if (verdict != VERDICT_NO)
			break;
	}
	if (live) { /* First what is in it. */
		end_live(d, &(struct ending){.within = task, .around = task, .path = path, .error = value});
	} else {
		struct entry *entry = new_step_entry(d, ENTRY_TASK_FAULTED, step_text(d, task, path, path_count, state_next_execution(&d->draft, task, path, path_count), NULL));
		name_value(d, entry, "error", value);
		emit(d, entry);
	}
	end_live(d, &(struct ending){.within = top->parent ? top : NULL, .around = task, .path = path, .error = value});
	if (lost) { /* a competing branch; the others go on */
		push_parent(d, top, path, top->loop_depth);
	} else if (verdict == VERDICT_YES) {
		handle_error(d, state_find(&d->draft, catcher->task, false, catcher->path, catcher->path_count), error, value);
	} else if (verdict == VERDICT_UNKNOWN) {
		fault_expression(d, catcher->task, catcher->path, catcher->path_count, &why);
	} else {
		struct entry *entry = new_entry(d, ENTRY_RUN_FAULTED);
		json_set_digest(d->arena, entry->data, "error", &value->digest);
		entry->values[entry->value_count++] = (struct entry_value){value->digest, value->bytes, value->size};
		end_run(d, entry);
	}
}

static void fault_expression(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, const struct error *error)
{
	fault_task(d, task, path, path_count,
		   error_json(d, "https://serverlessworkflow.io/spec/1.0.0/errors/expression", 400, "Expression failed", error->message, task->reference, NULL));
}

/* `raise`: what the author wrote, with the expressions in it evaluated; the instance is ours to say. */
static void raise_error(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, const struct json *written)
{
	struct error error = {0};
	const struct json *type = json_get(written, "type"), *status = json_get(written, "status");

	if (!json_is(type, JSON_STRING))
		error_set(&error, ERR_INVALID, "the type of a raised error must be a string, not %s", type ? json_type_name(type->type) : "nothing");
	else if (!json_is_integer(status))
		error_set(&error, ERR_INVALID, "the status of a raised error must be an integer");
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
	if (error.code == ERR_NONE && make_bounded(d, raised, &error))
		fault_task(d, task, path, path_count, raised);
	else
		fault_expression(d, task, path, path_count, &error);
}

/* --- going on ----------------------------------------------------------------------------------------------------- */

static void push(struct deciding *d, const struct task *task, bool is_body, const uint64_t *path, size_t path_count)
{
	if (d->queue_tail > d->queue_head) {
		const struct place *last = &d->queue[d->queue_tail - 1];
		if (last->task == task && last->is_body == is_body && last->path_count == path_count && memcmp(last->path, path, path_count * sizeof *path) == 0)
			return;
	}
	d->queue = arena_grow(d->arena, d->queue, d->queue_tail, &d->queue_cap, sizeof *d->queue);
	struct place *place = &d->queue[d->queue_tail++];
	*place = (struct place){.task = task, .is_body = is_body, .path_count = path_count};
	memcpy(place->path, path, path_count * sizeof *path);
}

/* Here the decision could stop as well: what follows is found again by CONTINUE. */
static void set_safe(struct deciding *d)
{
	d->safe = true;
	d->safe_inside = d->decision->entry_count > d->entries_before;
	d->safe_entries = d->decision->entry_count;
	d->safe_effects = d->decision->effect_count;
}

/* Needs results, and enough rounds were made: give what there is up to the last safe place. */
static bool settle(struct deciding *d)
{
	struct decision *decision = d->decision;

	if (!d->context->settle || !d->safe || d->safe_entries == 0 || d->evaluation_needs == 0 || d->evaluation_needs < decision->need_count)
		return false;
	decision->need_count = 0;
	decision->entry_count = d->safe_entries;
	decision->effect_count = d->safe_effects;
	if (d->safe_inside)
		new_effect(d, EFFECT_CONTINUE);
	else
		decision->trigger_count--; /* of this trigger nothing stays: it is decided again */
	return true;
}

/* At the soft limit: commit what there is and carry on afterwards. */
static bool over_limit(struct deciding *d)
{
	if (d->decision->entry_count - d->entries_before < DECISION_ENTRIES_MAX) {
		set_safe(d);
		return false;
	}
	if (!d->ended)
		new_effect(d, EFFECT_CONTINUE);
	d->ended = true;
	return true;
}

static void start_attempt(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, uint64_t execution, unsigned attempt,
			  struct value *with, const struct json *arguments)
{
	struct effect *effect = new_effect(d, EFFECT_START_ACTIVITY);

	effect->step_id = step_text(d, task, path, path_count, execution, effect->key);
	effect->attempt = attempt;
	effect->function = task->function;
	effect->with = arguments;
	struct entry *entry = new_step_entry(d, ENTRY_ATTEMPT_STARTED, effect->step_id);
	json_set_number(d->arena, entry->data, "attempt", attempt);
	json_set_text(d->arena, entry->data, "key", effect->key);
	name_value(d, entry, "with", with);
	emit(d, entry);
}

/* False: it has faulted, or values have to be loaded first. */
static bool complete_pure(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, struct value *input, const struct json *json)
{
	struct error error = {0};
	struct value *output = make_bounded(d, json, &error);

	if (!output) {
		fault_expression(d, task, path, path_count, &error);
		return false;
	}
	return complete_task(d, task, path, path_count, input, output, NULL);
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

/* The URI template of `call: http` is filled from the input's members (dsl.md 1.3). Only what the author wrote is a template: an
 * endpoint that an expression gave is data, and data is never evaluated. */
static const struct json *fill_endpoint(struct deciding *d, const struct task *task, const struct json *arguments, struct value *input, struct error *error)
{
	const struct json *written = json_get(task->with, "endpoint");
	const char *filled, *template;
	struct bytes expression;

	if (json_is(written, JSON_OBJECT))
		written = json_get(written, "uri");
	template = json_is(written, JSON_STRING) ? written->string.text : NULL;
	if (!template || !strchr(template, '{') || expression_unwrap(template, &expression))
		return arguments;
	const struct json *values = value_json(d, input);
	if (!values || uri_template_eval(d->arena, template, values, &filled, error) != 0)
		return NULL;
	struct json *with = json_object(d->arena); /* The other members are shared: together they may be larger than any copy should be. */
	for (size_t i = 0; i < arguments->object.count; i++)
		json_set(d->arena, with, arguments->object.members[i].name, arguments->object.members[i].value);
	json_set_text(d->arena, with, "endpoint", filled);
	return with;
}

enum flow { FLOW_NEXT, FLOW_INSIDE, FLOW_WAIT };

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
		const struct json *holds = evaluate(d, s, NULL, at->when, error);
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
		fault_task(d, s->task, s->path, s->path_count,
			   error_json(d, "https://serverlessworkflow.io/spec/1.0.0/errors/runtime", 500, "Too many executions",
				      arena_printf(d->arena, "a task is entered at most %d times (TASK_EXECUTIONS_MAX)", TASK_EXECUTIONS_MAX), s->task->reference, NULL));
		return false;
	}
	if (!s->task->run_if)
		return true;
	const struct json *holds = evaluate(d, s, NULL, s->task->run_if, &error);
	if (!holds) {
		if (d->decision->need_count == 0)
			fault_expression(d, s->task, s->path, s->path_count, &error);
		return false;
	}
	if (json_truthy(holds))
		return true;
	struct entry *entry = new_step_entry(d, ENTRY_TASK_SKIPPED, step_text(d, s->task, s->path, s->path_count, execution, NULL));
	name_value(d, entry, "input", s->input);
	name_value(d, entry, "output", s->input);
	emit(d, entry);
	*flow = FLOW_NEXT;
	return false;
}

/* Its first entry, which says when its time is over; the caller adds what its kind has and emits it. */
static struct entry *begin_task(struct deciding *d, const struct scope_context *s, int64_t timeout_ms)
{
	uint64_t execution = state_next_execution(&d->draft, s->task, s->path, s->path_count);
	struct entry *entry = new_step_entry(d, ENTRY_TASK_STARTED, step_text(d, s->task, s->path, s->path_count, execution, NULL));

	name_value(d, entry, "input", s->input);
	if (s->task->timeout)
		set_time(d, entry, "timeout", d->trigger->wall_ms + timeout_ms);
	return entry;
}

/* An attempt of a try ends with its own time or with that of all of them, whichever comes first. */
static void set_attempt_end(struct deciding *d, struct entry *entry, const struct retry *retry, int64_t attempt_ms, int64_t until_ms)
{
	int64_t due_ms = retry && retry->attempt_duration ? d->trigger->wall_ms + attempt_ms : 0;

	if (until_ms != 0 && (due_ms == 0 || until_ms < due_ms))
		due_ms = until_ms;
	if (due_ms != 0)
		set_time(d, entry, "attemptDue", due_ms);
}

/* Begin one task. FLOW_NEXT: it is done already. FLOW_INSIDE: go on with its list. FLOW_WAIT: it is under way, or has faulted, or all stopped. */
static enum flow start_task(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count, struct value *input)
{
	struct scope_context s = {.d = d, .task = task, .path = path, .path_count = path_count, .input = input, .raw_input = input};
	struct error error = {0};
	struct flaw flaw;
	enum flow flow;
	int64_t timeout_ms, wait_ms;

	if (!may_run(d, &s, &flow))
		return flow;
	input = apply_transform(d, &s, &task->input, "input", &flaw);
	if (!input) {
		if (d->decision->need_count == 0)
			fault_task(d, task, path, path_count, flaw_json(d, &flaw, task->reference));
		return FLOW_WAIT;
	}
	s.input = input;
	if (!read_duration(d, &s, task->timeout, &timeout_ms, &error)) {
		if (d->decision->need_count == 0)
			fault_expression(d, task, path, path_count, &error);
		return FLOW_WAIT;
	}
	switch (task->kind) {
	case TASK_SET: {
		const struct json *output = evaluate(d, &s, task->set, NULL, &error);
		if (output)
			return complete_pure(d, task, path, path_count, input, output) ? FLOW_NEXT : FLOW_WAIT;
		if (d->decision->need_count == 0)
			fault_expression(d, task, path, path_count, &error);
		return FLOW_WAIT;
	}
	case TASK_SWITCH: {
		const struct switch_case *chosen = choose_case(d, &s, &error);
		if (d->decision->need_count > 0)
			return FLOW_WAIT;
		if (error.code != ERR_NONE) {
			fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		return complete_task(d, task, path, path_count, input, input, chosen ? &chosen->then : NULL) ? FLOW_NEXT : FLOW_WAIT;
	}
	case TASK_RAISE: {
		const struct json *raised = evaluate(d, &s, task->raise, NULL, &error);
		if (raised)
			raise_error(d, task, path, path_count, raised);
		else if (d->decision->need_count == 0)
			fault_expression(d, task, path, path_count, &error);
		return FLOW_WAIT;
	}
	case TASK_DO:
		emit(d, begin_task(d, &s, timeout_ms));
		return FLOW_INSIDE;
	case TASK_FORK:
		emit(d, begin_task(d, &s, timeout_ms));
		push(d, task, false, path, path_count);
		return FLOW_WAIT;
	case TASK_TRY: {
		const struct retry *retry = task->catch->retry;
		int64_t attempt_ms = 0, all_ms = 0;
		if (retry && (!read_duration(d, &s, retry->attempt_duration, &attempt_ms, &error) || !read_duration(d, &s, retry->duration, &all_ms, &error))) {
			if (d->decision->need_count == 0)
				fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		struct entry *entry = begin_task(d, &s, timeout_ms);
		int64_t until_ms = retry && retry->duration ? d->trigger->wall_ms + all_ms : 0;
		if (until_ms != 0)
			set_time(d, entry, "retryUntil", until_ms);
		set_attempt_end(d, entry, retry, attempt_ms, until_ms);
		emit(d, entry);
		return FLOW_INSIDE;
	}
	case TASK_WAIT: {
		if (!read_duration(d, &s, task->wait, &wait_ms, &error)) {
			if (d->decision->need_count == 0)
				fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		struct entry *entry = begin_task(d, &s, timeout_ms);
		set_time(d, entry, "due", d->trigger->wall_ms + wait_ms);
		emit(d, entry);
		return FLOW_WAIT;
	}
	case TASK_FOR: {
		const struct json *items = evaluate(d, &s, NULL, task->in, &error);
		if (!items && d->decision->need_count > 0)
			return FLOW_WAIT;
		if (items && items->type != JSON_ARRAY)
			error_set(&error, ERR_INVALID, "for.in gives %s, not an array", json_type_name(items->type));
		struct value *in = items && items->type == JSON_ARRAY ? make_bounded(d, items, &error) : NULL;
		if (!in) {
			fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		struct entry *entry = begin_task(d, &s, timeout_ms);
		name_value(d, entry, "in", in);
		json_set_number(d->arena, entry->data, "items", (double)json_count(items));
		emit(d, entry);
		push(d, task, false, path, path_count);
		return FLOW_WAIT;
	}
	case TASK_CALL: {
		const struct json *arguments = evaluate(d, &s, task->with, NULL, &error);
		if (arguments && task->function == FUNCTION_HTTP)
			arguments = fill_endpoint(d, task, arguments, input, &error);
		if (!arguments) {
			if (d->decision->need_count == 0)
				fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		if (task->function == FUNCTION_MERGE) {
			return complete_pure(d, task, path, path_count, input, merge_sections(d->arena, arguments)) ? FLOW_NEXT : FLOW_WAIT;
		}
		struct value *with = make_bounded(d, arguments, &error);
		if (!with) {
			fault_expression(d, task, path, path_count, &error);
			return FLOW_WAIT;
		}
		uint64_t execution = state_next_execution(&d->draft, task, path, path_count);
		emit(d, begin_task(d, &s, timeout_ms));
		start_attempt(d, task, path, path_count, execution, 1, with, arguments);
		return FLOW_WAIT;
	}
	}
	return FLOW_WAIT;
}

/* Go on with a sequence until something is under way or its end is reached; its end goes on with what holds it. Only run_loop() begins
 * an iteration: the conditions are its. */
static void run_sequence(struct deciding *d, const struct place *from, bool begin)
{
	struct place at = *from;

	while (!stopped(d)) {
		const struct instance *sequence = state_find(&d->draft, at.task, at.is_body, at.path, at.path_count);
		struct value *input;
		size_t cursor = 0;

		const struct instance *loop = at.is_body ? state_find(&d->draft, at.task, false, at.path, at.path_count - 1) : NULL;
		if (loop && sequence && sequence->execution != loop->execution)
			sequence = NULL; /* of an earlier execution of the loop */
		if (loop && (loop->phase != INSTANCE_STARTED || (!sequence && !begin)))
			return;
		if (sequence) {
			if (sequence->child_live || (sequence->phase != INSTANCE_STARTED && !(at.is_body && sequence->phase == INSTANCE_COMPLETED)))
				return;
			cursor = sequence->cursor;
			input = sequence->current;
		} else { /* an iteration that begins with its first task */
			input = at.task->concurrency == 0 && loop->current ? loop->current : loop->input;
		}
		const struct task_list *list = sequence ? state_list(sequence) : &at.task->body;
		if (cursor < list->count) {
			const struct task *task = list->tasks[cursor];
			if (over_limit(d))
				return;
			enum flow flow = start_task(d, task, at.path, at.path_count, input);
			if (flow == FLOW_WAIT)
				return;
			if (flow == FLOW_INSIDE) {
				at.task = task;
				at.is_body = false;
			}
			continue;
		}
		if (at.is_body) { /* The loop decides what comes next. */
			push(d, at.task, false, at.path, at.path_count - 1);
			return;
		}
		if (!at.task->parent) {
			complete_run(d, sequence->current);
			return;
		}
		if (!complete_task(d, at.task, at.path, at.path_count, NULL, sequence->current, NULL))
			return;
		if (at.task->parent->kind == TASK_FORK) {
			push_parent(d, at.task, at.path, at.path_count);
			return;
		}
		at.is_body = at.task->parent->kind == TASK_FOR;
		at.task = at.task->parent;
	}
}

/* The outputs of all iterations, in order. NULL: some have to be loaded first. */
static const struct json *collect_outputs(struct deciding *d, const struct instance *loop)
{
	struct json *outputs = json_array(d->arena);
	uint64_t path[STATE_LOOP_DEPTH_MAX];

	memcpy(path, loop->path, loop->path_count * sizeof *path);
	for (uint64_t i = 0; i < loop->item_count; i++) {
		path[loop->path_count] = i;
		const struct instance *body = state_find(&d->draft, loop->task, true, path, (size_t)loop->path_count + 1);
		CHECK(loop->task->body.count == 0 || (body && body->output));
		const struct json *output = value_json(d, body ? body->output : loop->input);
		if (output && d->decision->need_count == 0)
			json_add(d->arena, outputs, (struct json *)output);
	}
	return d->decision->need_count == 0 ? outputs : NULL;
}

/* Start iterations as far as the concurrency allows; complete the loop when all are done. */
static void run_loop(struct deciding *d, const struct place *at)
{
	const struct task *task = at->task;
	size_t concurrency = task->concurrency ? task->concurrency : 1;
	const struct instance *loop;

	for (;;) {
		loop = state_find(&d->draft, task, false, at->path, at->path_count);
		if (stopped(d) || loop->phase != INSTANCE_STARTED)
			return;
		if (loop->live_count >= concurrency)
			return;
		/* Iterations without a task leave no entry: each gives its input, at once. */
		if (loop->next_iteration >= loop->item_count || loop->exited || task->body.count == 0)
			break;
		if (over_limit(d))
			return;
		struct place body = *at;
		body.is_body = true;
		body.path[body.path_count++] = loop->next_iteration;
		if (task->condition) { /* chained only: the loop variables are bound, the input is the iteration's */
			struct scope_context s = {.d = d, .task = task->body.tasks[0], .path = body.path, .path_count = body.path_count,
						  .input = loop->current ? loop->current : loop->input};
			struct error error = {0};
			const struct json *condition = evaluate(d, &s, NULL, task->condition, &error);
			if (!condition && d->decision->need_count == 0)
				fault_expression(d, task, at->path, at->path_count, &error);
			if (!condition)
				return;
			if (!json_truthy(condition))
				break;
		}
		run_sequence(d, &body, true);
		/* An iteration that could not even begin (values to load, a fault) has stopped everything. */
	}
	if (loop->live_count > 0)
		return;
	struct value *output;
	if (task->concurrency == 0) {
		output = loop->current ? loop->current : loop->input;
	} else {
		const struct json *outputs = collect_outputs(d, loop);
		if (!outputs)
			return;
		struct error error = {0};
		output = make_bounded(d, outputs, &error);
		if (!output) {
			fault_expression(d, task, at->path, at->path_count, &error);
			return;
		}
	}
	if (!complete_task(d, task, at->path, at->path_count, NULL, output, NULL))
		return;
	push(d, task->parent, task->parent->kind == TASK_FOR, at->path, at->path_count);
}

/* The outputs of all branches, in the order of declaration. NULL: some have to be loaded first. */
static const struct json *collect_branches(struct deciding *d, const struct instance *fork)
{
	struct json *outputs = json_array(d->arena);

	for (size_t i = 0; i < fork->task->body.count; i++) {
		const struct instance *branch = state_find(&d->draft, fork->task->body.tasks[i], false, fork->path, fork->path_count);
		const struct json *output = value_json(d, branch->output);
		if (output && d->decision->need_count == 0)
			json_add(d->arena, outputs, (struct json *)output);
	}
	return d->decision->need_count == 0 ? outputs : NULL;
}

/* Start the branches; complete the fork when all are done, or with the first one that is. */
static void run_fork(struct deciding *d, const struct place *at)
{
	const struct task *task = at->task;
	const struct instance *fork;
	struct value *output;

	for (;;) {
		fork = state_find(&d->draft, task, false, at->path, at->path_count);
		if (stopped(d) || fork->phase != INSTANCE_STARTED)
			return;
		if (fork->next_iteration >= task->body.count || (task->compete && fork->winner))
			break;
		if (over_limit(d))
			return;
		const struct task *branch = task->body.tasks[fork->next_iteration];
		if (start_task(d, branch, at->path, at->path_count, fork->input) == FLOW_INSIDE)
			push(d, branch, false, at->path, at->path_count);
	}
	if (task->compete) {
		if (!fork->winner)
			return; /* the last fault, if it comes to that, is the fork's */
		end_live(d, &(struct ending){.within = task, .strictly = true, .path = at->path});
		output = state_find(&d->draft, task->body.tasks[fork->winner - 1], false, at->path, at->path_count)->output;
	} else {
		if (fork->live_count > 0)
			return;
		const struct json *outputs = collect_branches(d, fork);
		struct error error = {0};
		if (!outputs)
			return;
		output = make_bounded(d, outputs, &error);
		if (!output) {
			fault_expression(d, task, at->path, at->path_count, &error);
			return;
		}
	}
	if (!complete_task(d, task, at->path, at->path_count, NULL, output, NULL))
		return;
	push_parent(d, task, at->path, at->path_count);
}

static void run_queue(struct deciding *d)
{
	while (d->queue_head < d->queue_tail && !stopped(d)) {
		struct place place = d->queue[d->queue_head++];
		if (place.task->kind == TASK_FOR && !place.is_body)
			run_loop(d, &place);
		else if (place.task->kind == TASK_FORK)
			run_fork(d, &place);
		else
			run_sequence(d, &place, false);
	}
}

/* Every place at which something could go on: after a restart, and after a decision that stopped at its limit. */
static void push_all(struct deciding *d)
{
	LIST_EACH(link, &d->base->live) {
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		enum task_kind kind = instance->task->kind;
		bool is_loop = (kind == TASK_FOR && !instance->is_body) || kind == TASK_FORK, is_list = kind == TASK_DO || kind == TASK_TRY || instance->is_body;
		if (instance->phase == INSTANCE_STARTED && (is_loop || (is_list && !instance->child_live)))
			push(d, instance->task, instance->is_body, instance->path, instance->path_count);
	}
}

static void push_parent(struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count)
{
	push(d, task->parent, task->parent->kind == TASK_FOR, path, path_count);
}

/* --- triggers ----------------------------------------------------------------------------------------------------- */

struct digest submission_digest(const struct digest *definition, const struct digest *input, const struct json *labels)
{
	struct arena arena;

	arena_init(&arena);
	struct json *content = json_object(&arena);
	json_set_digest(&arena, content, "definition", definition);
	json_set_digest(&arena, content, "input", input);
	json_set(&arena, content, "labels", labels ? (struct json *)labels : json_object(&arena));
	struct digest digest = json_digest(content);
	arena_close(&arena);
	return digest;
}

static void on_submitted(struct deciding *d)
{
	const struct trigger *trigger = d->trigger;
	const struct definition *definition = d->draft.definition;
	static const uint64_t path[1];
	struct scope_context s = {.d = d, .task = definition->root, .path = path, .input = value_of_bytes(d, NULL, trigger->input)};
	struct flaw flaw;
	struct value *start = apply_transform(d, &s, &definition->root->input, "input", &flaw);
	if (d->decision->need_count > 0)
		return;
	struct entry *entry = new_entry(d, ENTRY_RUN_CREATED);
	struct json *workflow = json_object(d->arena);

	json_set_text(d->arena, workflow, "namespace", definition->namespace);
	json_set_text(d->arena, workflow, "name", definition->name);
	json_set_text(d->arena, workflow, "version", definition->version);
	json_set(d->arena, entry->data, "workflow", workflow);
	json_set_digest(d->arena, entry->data, "definition", &definition->digest);
	struct digest input = entry_add_value(d->arena, entry, "input", trigger->input);
	if (json_count(trigger->labels) > 0)
		entry_add_value(d->arena, entry, "labels", json_print_arena(trigger->labels, d->arena));
	struct digest request = submission_digest(&definition->digest, &input, json_count(trigger->labels) > 0 ? trigger->labels : NULL);
	json_set_digest(d->arena, entry->data, "request", &request);
	if (start && start != s.input)
		name_value(d, entry, "start", start);
	if (definition->timeout) {
		struct error error = {0};
		int64_t timeout_ms;
		CHECK(duration_read(definition->timeout, &timeout_ms, &error) == 0); /* the loader takes no expression here */
		set_time(d, entry, "timeout", trigger->wall_ms + timeout_ms);
	}
	emit(d, entry);
	if (start)
		push(d, definition->root, false, path, 0);
	else
		fault_run(d, flaw_json(d, &flaw, "/input"));
}

static const char timeout_type[] = "https://serverlessworkflow.io/spec/1.0.0/errors/timeout";

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
	struct entry *entry = new_step_entry(d, ENTRY_TIMER_FIRED, step_text(d, instance->task, instance->path, instance->path_count, instance->execution, NULL));

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
		emit(d, new_fired(d, instance, "wait"));
		if (complete_task(d, task, instance->path, instance->path_count, NULL, instance->input, NULL))
			push_parent(d, task, instance->path, instance->path_count);
		return;
	case TASK_TRY: {
		struct scope_context s = {d, task, instance->path, instance->path_count, instance->input, NULL};
		const struct retry *retry = task->catch->retry;
		int64_t attempt_ms;
		bool good = read_duration(d, &s, retry->attempt_duration, &attempt_ms, &error);
		if (d->decision->need_count > 0)
			return;
		struct entry *entry = new_fired(d, instance, "retry");
		set_attempt_end(d, entry, retry, attempt_ms, instance->retry_until_ms);
		emit(d, entry);
		if (good)
			push(d, task, false, instance->path, instance->path_count);
		else
			fault_expression(d, task, instance->path, instance->path_count, &error);
		return;
	}
	default: {
		const struct json *arguments = value_json(d, instance->with);
		if (arguments)
			start_attempt(d, task, instance->path, instance->path_count, instance->execution, instance->attempt + 1, instance->with, arguments);
		return;
	}
	}
}

/* An attempt of a try has taken too long: as if its list had faulted. */
static void fire_attempt_end(struct deciding *d, const struct instance *instance)
{
	const struct task *task = instance->task;
	struct error error = {0};
	const struct json *fault = error_json(d, timeout_type, 408, "Timed out", "the attempt took longer than the retry policy allows", task->reference, NULL);
	struct value *value = make_value(d, fault);
	uint64_t path[STATE_LOOP_DEPTH_MAX];

	memcpy(path, instance->path, instance->path_count * sizeof *path);
	emit(d, new_fired(d, instance, "attempt"));
	enum verdict verdict = catches(d, instance, fault, &error);
	if (d->decision->need_count > 0)
		return;
	end_live(d, &(struct ending){.within = task, .strictly = true, .path = path});
	if (verdict == VERDICT_YES)
		handle_error(d, state_find(&d->draft, task, false, path, task->loop_depth), fault, value);
	else if (verdict == VERDICT_NO)
		fault_task(d, task, path, task->loop_depth, fault);
	else
		fault_expression(d, task, path, task->loop_depth, &error);
}

/* The time of a task, or of the whole run, is over. */
static void fire_timeout(struct deciding *d, const struct instance *instance)
{
	if (instance) {
		emit(d, new_fired(d, instance, "timeout"));
		fault_task(d, instance->task, instance->path, instance->path_count,
			   error_json(d, timeout_type, 408, "Timed out", "the task took longer than its timeout allows", instance->task->reference, NULL));
		return;
	}
	struct entry *entry = new_entry(d, ENTRY_TIMER_FIRED);
	json_set_text(d->arena, entry->data, "timer", "timeout");
	emit(d, entry);
	end_live(d, &(struct ending){0});
	struct value *value = make_value(d, error_json(d, timeout_type, 408, "Timed out", "the run took longer than the workflow's timeout allows", "/", NULL));
	entry = new_entry(d, ENTRY_RUN_FAULTED);
	json_set_digest(d->arena, entry->data, "error", &value->digest);
	entry->values[entry->value_count++] = (struct entry_value){value->digest, value->bytes, value->size};
	end_run(d, entry);
}

/* One after the other in the order of their times, each seeing what the one before brought about: a wait that was over before a timeout, while
 * nobody was there to see it, was in time. */
static void on_deadline(struct deciding *d)
{
	enum instance_timer timer = TIMER_TIMEOUT;
	int64_t due_ms;

	LIST_EACH(link, &d->base->live) { /* what they need is loaded at once */
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		if (instance->task->kind == TASK_CALL && instance->phase == INSTANCE_BACKING_OFF && instance->due_ms <= d->trigger->wall_ms)
			value_json(d, instance->with);
	}
	while (!stopped(d) && d->decision->entry_count - d->entries_before < DECISION_ENTRIES_MAX) { /* what is left stays due */
		const struct instance *instance = first_due(d, &due_ms, &timer);
		if (due_ms == 0)
			return;
		if (!instance || timer == TIMER_TIMEOUT)
			fire_timeout(d, instance);
		else if (timer == TIMER_ATTEMPT)
			fire_attempt_end(d, instance);
		else
			fire_due(d, instance);
		run_queue(d);
	}
}

/* The daemon went away while attempts were in flight. Each is done again under the same key; it costs no retry (C38). */
static void on_restarted(struct deciding *d)
{
	LIST_EACH(link, &d->base->live) {
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		if (!instance->in_flight)
			continue;
		const struct json *arguments = value_json(d, instance->with);
		if (!arguments || d->decision->need_count > 0)
			continue;
		struct entry *entry = new_step_entry(d, ENTRY_ATTEMPT_FAILED,
						     step_text(d, instance->task, instance->path, instance->path_count, instance->execution, NULL));
		json_set_number(d->arena, entry->data, "attempt", instance->attempt);
		json_set_text(d->arena, entry->data, "class", failure_name(FAILURE_INTERRUPTED));
		emit(d, entry);
		start_attempt(d, instance->task, instance->path, instance->path_count, instance->execution, instance->attempt + 1, instance->with, arguments);
	}
	if (d->decision->need_count == 0)
		push_all(d);
}

/* One signed statement and one fact document for a candidate. Returns the fact's id (hex). */
static const char *record_fact(struct deciding *d, const struct instance *instance, const char *step, const struct json *candidate, size_t index, size_t count)
{
	const struct outcome *outcome = d->trigger->outcome;
	const struct json *evidence = outcome->evidence;
	const struct definition *definition = d->draft.definition;
	struct arena *arena = d->arena;
	bool accepted = json_get_boolean(candidate, "accepted", false);

	struct json *fact = json_object(arena);
	json_set(arena, fact, "value", json_get(candidate, "value"));
	json_set(arena, fact, "quote", json_get(candidate, "quote"));
	struct digest subject = json_digest(fact);

	struct json *workflow = json_object(arena), *gate = json_object(arena), *daemon = json_object(arena);
	json_set_text(arena, workflow, "name", definition->name);
	json_set_text(arena, workflow, "namespace", definition->namespace);
	json_set_text(arena, workflow, "version", definition->version);
	json_set_digest(arena, workflow, "digest", &definition->digest);
	json_set_text(arena, gate, "result", accepted ? "PASSED" : "FAILED");
	json_set(arena, gate, "checks", json_get(candidate, "checks"));
	json_set_text(arena, daemon, "name", "reprise");
	json_set_text(arena, daemon, "version", d->context->daemon_version);

	const char *predicate = json_get_text(json_get(candidate, "value"), "predicate");
	struct statement_parts parts = {
		.subject_name = predicate && strlen(predicate) <= 128 ? arena_printf(arena, "fact:%s", predicate) : "fact",
		.subject = subject,
		.workflow = workflow,
		.step = instance->task->reference,
		.source = json_get(evidence, "source"),
		.prompt = json_get(evidence, "prompt"),
		.schema = json_get(evidence, "schema"),
		.sampling = json_get(evidence, "sampling"),
		.request = json_get(evidence, "request"),
		.model = json_get(evidence, "model"),
		.configuration = json_get(evidence, "configuration"),
		.reproducibility = json_get(evidence, "reproducibility"),
		.runtime = json_get(evidence, "runtime"),
		.response = json_get(evidence, "response"),
		.finish_reason = json_get_text(evidence, "finishReason"),
		.prompt_tokens = json_get_number(evidence, "promptTokens", -1),
		.completion_tokens = json_get_number(evidence, "completionTokens", -1),
		.fact_index = (unsigned)index,
		.fact_count = (unsigned)count,
		.gate = gate,
		.daemon = daemon,
		.journal = d->context->origin,
		.run_id = d->draft.id,
		.step_id = step,
		.attempt = instance->attempt,
		.started_ms = outcome->started_ms,
		.finished_ms = outcome->finished_ms,
		.signed_ms = d->trigger->wall_ms,
		.duration_ms = outcome->duration_ms,
		.clock = json_get(evidence, "clock"),
	};
	struct bytes payload = statement_build(arena, &parts);
	struct digest id = digest_of(payload);
	char *hex = arena_alloc(arena, DIGEST_HEX_LEN + 1), content[DIGEST_TEXT_LEN + 1];
	digest_hex(&id, hex);
	digest_text(&subject, content); /* no salt, positions or confidence in it: the content digest too */

	struct digest configuration;
	char configuration_text[DIGEST_TEXT_LEN + 1] = "";
	if (json_get_digest(parts.configuration, "digest", &configuration))
		digest_text(&configuration, configuration_text);
	const char *runtime = json_get_text(evidence, "runtimeName"), *class = json_get_text(parts.reproducibility, "class");
	struct json *document = json_copy(arena, candidate);
	json_set_text(arena, document, "contentDigest", content);
	json_set_text(arena, document, "run", d->draft.id);
	json_set_text(arena, document, "task", instance->task->reference);
	json_set_text(arena, document, "step", step);
	json_set_number(arena, document, "attempt", instance->attempt);
	json_set_text(arena, document, "runtime", runtime);
	json_set_text(arena, document, "model", json_get_text(parts.model, "name"));
	if (configuration_text[0])
		json_set_text(arena, document, "configuration", configuration_text);
	json_set_boolean(arena, document, "simulated", json_get_boolean(evidence, "simulated", false));
	if (parts.reproducibility)
		json_set(arena, document, "reproducibility", (struct json *)parts.reproducibility);

	struct entry *entry = new_step_entry(d, ENTRY_FACT_RECORDED, step);
	json_set_number(arena, entry->data, "attempt", instance->attempt);
	json_set_number(arena, entry->data, "index", (double)index);
	json_set_text(arena, entry->data, "verdict", accepted ? "PASSED" : "FAILED");
	json_set_digest(arena, entry->data, "subject", &subject);
	json_set_text(arena, entry->data, "runtime", runtime);
	json_set_text(arena, entry->data, "class", class ? class : "unmeasured");
	struct digest source;
	if (digest_parse(json_get_text(candidate, "document") ? json_get_text(candidate, "document") : "", &source))
		json_set_digest(arena, entry->data, "document", &source);
	if (configuration_text[0])
		json_set_digest(arena, entry->data, "configuration", &configuration);
	entry->statement = payload;
	entry_add_value(arena, entry, "payload", payload);
	entry_add_value(arena, entry, "fact", json_print_arena(document, arena));
	emit(d, entry);
	return hex;
}

static const struct json *record_facts(struct deciding *d, const struct instance *instance, const char *step)
{
	const struct outcome *outcome = d->trigger->outcome;
	struct json *output = json_copy(d->arena, outcome->output), *facts = json_array(d->arena);
	size_t count = json_count(outcome->facts), rejected = 0;

	for (size_t i = 0; i < count; i++) {
		const struct json *candidate = json_at(outcome->facts, i);
		const char *id = record_fact(d, instance, step, candidate, i, count);
		if (!json_get_boolean(candidate, "accepted", false)) {
			rejected++;
			continue;
		}
		struct json *fact = json_object(d->arena);
		json_set_text(d->arena, fact, "id", id);
		json_set(d->arena, fact, "value", json_get(candidate, "value"));
		json_set(d->arena, fact, "quote", json_get(candidate, "quote"));
		json_add(d->arena, facts, fact);
	}
	json_set(d->arena, output, "facts", facts);
	json_set_number(d->arena, output, "rejected", (double)rejected);
	return output;
}

static void finish_attempt(struct deciding *d, const struct instance *instance, const char *step, enum entry_kind kind)
{
	const struct outcome *outcome = d->trigger->outcome;
	struct entry *entry = new_step_entry(d, kind, step);

	json_set_number(d->arena, entry->data, "attempt", instance->attempt);
	if (kind == ENTRY_ATTEMPT_FAILED)
		json_set_text(d->arena, entry->data, "class", failure_name(outcome->failure));
	if (outcome->record)
		carry(d, entry, "record", json_print_arena(outcome->record, d->arena));
	carry(d, entry, "request", outcome->request);
	carry(d, entry, "response", outcome->response);
	emit(d, entry);
}

static void complete_call(struct deciding *d, const struct instance *instance, struct value *output)
{
	if (!complete_task(d, instance->task, instance->path, instance->path_count, NULL, output, NULL))
		return;
	push_parent(d, instance->task, instance->path, instance->path_count);
}

static void fail_attempt(struct deciding *d, const struct instance *instance, const char *step)
{
	const struct outcome *outcome = d->trigger->outcome;
	unsigned failures = instance->failures + (outcome->failure != FAILURE_INTERRUPTED);

	finish_attempt(d, instance, step, ENTRY_ATTEMPT_FAILED);
	if (failure_may_retry(outcome->failure) && failures < outcome->retry_attempts) {
		struct entry *entry = new_step_entry(d, ENTRY_TASK_RETRYING, step);
		json_set_number(d->arena, entry->data, "attempt", instance->attempt + 1);
		json_set_text(d->arena, entry->data, "class", failure_name(outcome->failure));
		set_time(d, entry, "due", d->trigger->wall_ms + retry_delay_ms(d->draft.id, step, failures ? failures : 1, outcome->retry_floor_ms,
										outcome->retry_cap_ms, outcome->retry_after_ms));
		emit(d, entry);
		return;
	}
	if (outcome->output) { /* onFailure: continue. The section's outcome names the class (semantics.md 6). */
		complete_call(d, instance, make_value(d, outcome->output));
		return;
	}
	const char *title = arena_printf(d->arena, "Attempt %u failed: %s", instance->attempt, failure_name(outcome->failure));
	fault_task(d, instance->task, instance->path, instance->path_count,
		   error_json(d, failure_error_type(outcome->failure), outcome->status >= 300 ? outcome->status : failure_status(outcome->failure), title,
			      outcome->detail, instance->task->reference, failure_name(outcome->failure)));
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
	struct value *output = make_bounded(d, outcome->output, &error);
	if (!output) {
		refuse_output(d, instance, trigger->step_id, &error);
		return;
	}
	if (outcome->document.data) {
		struct entry *entry = new_entry(d, ENTRY_DOCUMENT_ADDED);
		entry_add_value(d->arena, entry, "document", outcome->document);
		json_set_number(d->arena, entry->data, "bytes", (double)outcome->document.len);
		json_set_text(d->arena, entry->data, "mediaType", outcome->document_media_type ? outcome->document_media_type : "text/plain");
		emit(d, entry);
	}
	finish_attempt(d, instance, trigger->step_id, ENTRY_ATTEMPT_SUCCEEDED);
	if (outcome->facts)
		output = make_value(d, record_facts(d, instance, trigger->step_id));
	/* The draft's copy may have moved: emit() changed it. */
	complete_call(d, state_find_step(&d->draft, trigger->step_id, d->arena, NULL), output);
}

static void on_cancel(struct deciding *d)
{
	end_live(d, &(struct ending){0});
	struct entry *entry = new_entry(d, d->trigger->kill ? ENTRY_RUN_KILLED : ENTRY_RUN_CANCELLED);
	if (d->trigger->reason)
		carry(d, entry, "reason", json_print_arena(json_text(d->arena, d->trigger->reason), d->arena));
	end_run(d, entry);
}

static void decide_trigger(struct deciding *d)
{
	switch (d->trigger->kind) {
	case TRIGGER_SUBMITTED:
		on_submitted(d);
		break;
	case TRIGGER_RESTARTED:
		on_restarted(d);
		break;
	case TRIGGER_CONTINUE:
		push_all(d);
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
	}
	run_queue(d);
}

void workflow_decide(const struct state *state, const struct trigger *triggers, size_t trigger_count, const struct decide_context *context,
		     struct decision *decision)
{
	struct deciding d = {.base = state, .decision = decision, .arena = &decision->arena, .context = context};

	CHECK(trigger_count > 0 && (triggers[0].kind == TRIGGER_SUBMITTED) == (state->entry_count == 0));
	if (run_status_ended(state->status)) {
		decision->trigger_count = trigger_count;
		return;
	}
	state_draft(&d.draft, state, d.arena);
	for (size_t i = 0; i < trigger_count; i++) {
		CHECK(trigger_count == 1 || triggers[i].kind == TRIGGER_ACTIVITY_DONE); /* the others look at the base's lists */
		d.trigger = &triggers[i];
		d.entries_before = decision->entry_count;
		d.results = NULL; /* those that no entry followed */
		d.result_bytes = 0;
		set_safe(&d);
		decide_trigger(&d);
		decision->trigger_count = i + 1;
		if (stopped(&d) || decision->entry_count >= DECISION_ENTRIES_MAX)
			break;
	}
	if (decision->need_count > 0 && !settle(&d))
		decision->entry_count = decision->effect_count = 0;
}
