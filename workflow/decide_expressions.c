/* A part of decide.c: what an expression sees, and what becomes of values on their way into and out of a task. Read scope_get(),
 * decide_apply_transform(). */
#include "workflow/deciding.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"
#include "workflow/language/consumption.h"
#include "workflow/language/duration.h"
#include "workflow/language/expression.h"
#include "workflow/language/json_schema.h"

/* --- expressions -------------------------------------------------------------------------------------------------- */

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
	for (const struct task *at = s->inside ? s->inside : s->task, *around; (around = at->parent) != NULL; at = around) {
		const struct instance *instance = task_is_loop(around) || around->kind == TASK_TRY ?
							  state_find(&d->draft, around, false, s->path, around->loop_depth) : NULL;
		if (around->kind == TASK_TRY && at->in_handler && strcmp(name, around->catch->as) == 0)
			return instance && instance->error ? decide_value_json(d, instance->error) : NULL;
		if (!task_is_loop(around))
			continue;
		uint64_t index = s->path[around->loop_depth];
		if (strcmp(name, around->at) == 0)
			return json_number(d->arena, (double)index);
		if (strcmp(name, around->each) == 0 && around->kind == TASK_LISTEN) {
			const struct instance *body = state_find(&d->draft, around, true, s->path, around->loop_depth + 1);
			const struct json *event = body && body->items ? decide_value_json(d, body->items) : NULL;
			return event ? event_read(d->arena, event, (enum event_reading)around->listen->reading) : NULL;
		}
		if (strcmp(name, around->each) == 0) {
			const struct json *items = instance && instance->items ? decide_value_json(d, instance->items) : NULL;
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

	if (strcmp(name, ".") == 0 && s->listener)
		return decide_events_so_far(d, s->listener, s->self);
	if (strcmp(name, ".") == 0 && (s->self || s->caught))
		return s->self ? s->self : s->caught;
	if (strcmp(name, ".") == 0)
		return decide_value_json(d, s->input);
	if (strcmp(name, "input") == 0)
		return decide_value_json(d, s->transformed ? s->transformed : s->input);
	if (strcmp(name, "output") == 0)
		return s->output ? decide_value_json(d, s->output) : NULL;
	const struct json *variable = scoped_variable(s, name, &known);
	if (known)
		return variable;
	struct json *json = json_object(d->arena);
	if (strcmp(name, "context") == 0) { /* D3: {} until something exports */
		struct value *exported = state_context(&d->draft, s->inside ? s->inside : s->task, s->path);
		return exported ? decide_value_json(d, exported) : json;
	}
	if (strcmp(name, "workflow") == 0) {
		bool created = d->draft.entry_count > 0; /* else this is the workflow's own input.from */
		const struct json *input = decide_value_json(d, created ? d->draft.input : s->raw_input ? s->raw_input : s->input);
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
		struct value *raw = s->raw_input || !s->task->parent ? s->raw_input
								     : decide_find_raw_input(d, s->task, s->path, s->task->loop_depth);
		const struct json *input = decide_value_json(d, raw ? raw : s->input);
		const struct json *output = s->raw_output ? decide_value_json(d, s->raw_output) : NULL;
		const struct json *definition = json_pointer_get(d->draft.definition->document, s->task->reference);
		const struct instance *instance = state_find(&d->draft, s->task, false, s->path, s->task->loop_depth);
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
		decide_need_result(d, &(struct digest){{0}}, evaluation);
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
	decide_need_result(d, &digest, evaluation);
	return error_set(error, ERR_NOT_FOUND, "the result of '%.*s'", shown_len(text), text);
}

const struct json *decide_evaluate(struct deciding *d, struct scope_context *s, const struct json *template, const char *expression, struct error *error)
{
	struct scope scope = {scope_get, s, evaluate_jq};
	const struct json *result = NULL;
	int rc = expression ? expression_eval(d->arena, expression, &scope, &result, error)
			    : template_eval(d->arena, template, &scope, &result, error);

	return rc == 0 && d->decision->need_count == 0 ? result : NULL;
}

bool decide_read_duration(struct deciding *d, struct scope_context *s, const struct json *template, int64_t *ms, struct error *error)
{
	*ms = 0;
	if (!template)
		return true;
	const struct json *value = decide_evaluate(d, s, template, NULL, error);
	return value && duration_read(value, ms, error) == 0;
}

void decide_set_time(struct deciding *d, struct entry *entry, const char *name, int64_t wall_ms)
{
	char text[TIME_TEXT_LEN + 1];

	time_text(wall_ms, text);
	json_set_text(d->arena, entry->data, name, text);
}

/* --- data flow ---------------------------------------------------------------------------------------------------- */

static bool fits(struct deciding *d, const struct transform *transform, const struct value *value, struct flaw *flaw)
{
	if (!transform->schema)
		return true;
	const struct json *json = decide_value_json(d, value);
	if (!json)
		return false;
	flaw->is_schema = true;
	return json_schema_match(transform->schema, json, &flaw->error) == 0;
}

struct value *decide_apply_transform(struct deciding *d, struct scope_context *s, const struct transform *transform, const char *name, struct flaw *flaw)
{
	bool is_input = strcmp(name, "input") == 0;
	struct value *value = s->input;

	*flaw = (struct flaw){0};
	if (is_input && !fits(d, transform, value, flaw))
		goto fail;
	if (transform->expression || transform->template) {
		flaw->is_schema = false;
		const struct json *result = decide_evaluate(d, s, transform->template, transform->expression, &flaw->error);
		value = result ? decide_make_bounded(d, result, &flaw->error) : NULL;
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

struct value *decide_find_raw_input(const struct deciding *d, const struct task *task, const uint64_t *path, size_t path_count)
{
	const struct task *parent = task->parent;
	bool is_body = task_is_loop(parent);
	const struct instance *list = state_find(&d->draft, parent, is_body, path, path_count);
	const struct instance *loop = is_body ? state_find(&d->draft, parent, false, path, path_count - 1) : NULL;

	if (parent->kind == TASK_FORK)
		return list->input; /* every branch has it */
	if (list && (!loop || list->execution == loop->execution))
		return list->current;
	CHECK(loop != NULL); /* an iteration that begins with its first task */
	return parent->concurrency == 0 && loop->current ? loop->current : loop->input;
}
