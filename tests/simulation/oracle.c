/* A second, plain interpreter of definitions: recursive, in memory, with the recorded answers in place of calls. What it computes
 * for a completed run has to be what the journal says, task by task; and no task may stand in the journal that it does not meet.
 * It shares the evaluation of expressions with the engine (tests/unit/language checks that) and nothing else. */
#include "tests/simulation/simulation.h"
#include "workflow/language/expression.h"

#include <string.h>

struct oracle {
	struct world *world;
	struct run_model *run;
	struct arena *arena;
	const struct entry *entries;
	size_t count;
	const struct json *input;
	uint64_t met; /* tasks that completed here */
	/* loops around the place, outermost first */
	struct {
		const struct task *task;
		const struct json *items;
		uint64_t index;
	} loops[STEP_LOOPS_MAX];
	size_t loop_count;
	/* of the task whose expression is evaluated */
	const struct task *task;
	const struct json *task_input;
};

static const struct json *value_of(const struct oracle *o, const struct json *data, const char *name)
{
	struct digest digest;

	if (!json_get_digest(data, name, &digest))
		return NULL;
	for (size_t i = 0; i < o->count; i++)
		for (size_t k = 0; k < o->entries[i].value_count; k++)
			if (digest_equal(&digest, &o->entries[i].values[k].digest))
				return json_parse(o->arena, o->entries[i].values[k].bytes, JSON_STRICT, NULL, NULL);
	return NULL;
}

static const struct json *scope_get(void *context, const char *name)
{
	struct oracle *o = context;
	struct json *json = json_object(o->arena);

	if (strcmp(name, ".") == 0 || strcmp(name, "input") == 0)
		return o->task_input;
	for (size_t i = o->loop_count; i-- > 0;) {
		if (strcmp(name, o->loops[i].task->each) == 0)
			return json_at(o->loops[i].items, o->loops[i].index);
		if (strcmp(name, o->loops[i].task->at) == 0)
			return json_number(o->arena, (double)o->loops[i].index);
	}
	if (strcmp(name, "workflow") == 0) {
		struct json *started = json_object(o->arena);
		char text[64];
		const struct json *ts = json_get(json_parse(o->arena, o->world->journal.entries[o->run->seqs[0]].bytes, JSON_STRICT, NULL, NULL), "ts");
		snprintf(text, sizeof text, "%s", ts->string.text);
		json_set_text(o->arena, started, "iso8601", text);
		json_set_text(o->arena, json, "id", o->run->id);
		json_set(o->arena, json, "input", (struct json *)o->input);
		json_set(o->arena, json, "startedAt", started);
	} else if (strcmp(name, "runtime") == 0) {
		json_set_text(o->arena, json, "version", "1.2.3");
	} else if (strcmp(name, "task") == 0) {
		json_set_text(o->arena, json, "name", o->task->name);
		json_set_text(o->arena, json, "reference", o->task->reference);
	} else if (strcmp(name, "context") != 0) {
		return NULL;
	}
	return json;
}

static const char *step_of(const struct oracle *o, const struct task *task)
{
	struct step_id id = {.reference = task->reference, .iteration_count = o->loop_count, .execution = 1};

	for (size_t i = 0; i < o->loop_count; i++)
		id.iterations[i] = o->loops[i].index;
	return step_id_print(o->arena, &id);
}

/* What the journal says that this task gave. */
static const struct json *recorded(struct oracle *o, const struct task *task)
{
	const char *step = step_of(o, task);

	for (size_t i = 0; i < o->count; i++)
		if (o->entries[i].kind == ENTRY_TASK_COMPLETED && strcmp(json_get_text(o->entries[i].data, "stepId"), step) == 0) {
			const struct json *output = value_of(o, o->entries[i].data, "output");
			if (!output)
				broken(o->world, o->run, "the output of %s is nowhere in the journal", step);
			o->met++;
			return output;
		}
	broken(o->world, o->run, "the journal does not say that %s completed", step);
}

static const struct json *evaluate(struct oracle *o, const struct task *task, const struct json *input, const struct json *template, const char *expression)
{
	const struct scope scope = {scope_get, o};
	const struct json *result = NULL;
	struct error error = {0};

	o->task = task;
	o->task_input = input;
	if ((expression ? expression_eval(o->arena, expression, &scope, &result, &error) : template_eval(o->arena, template, &scope, &result, &error)) != 0)
		broken(o->world, o->run, "%s cannot be evaluated, but the run completed: %s", step_of(o, task), error.message);
	return result;
}

static const struct json *run_list(struct oracle *o, const struct task *task, const struct json *input);

static const struct json *run_for(struct oracle *o, const struct task *task, const struct json *input)
{
	const struct json *items = evaluate(o, task, input, NULL, task->in), *current = input;
	struct json *outputs = json_array(o->arena);
	size_t depth = o->loop_count++;

	for (uint64_t i = 0; i < json_count(items); i++) {
		o->loops[depth].task = task;
		o->loops[depth].items = items;
		o->loops[depth].index = i;
		if (task->condition && !json_truthy(evaluate(o, task->body.tasks[0], current, NULL, task->condition)))
			break;
		const struct json *output = run_list(o, task, task->concurrency ? input : current);
		if (task->concurrency)
			json_add(o->arena, outputs, (struct json *)output);
		else
			current = output;
	}
	o->loop_count--;
	return task->concurrency ? outputs : current;
}

static const struct json *run_list(struct oracle *o, const struct task *task, const struct json *input)
{
	for (size_t i = 0; i < task->body.count; i++) {
		const struct task *at = task->body.tasks[i];
		const struct json *output = NULL;

		switch (at->kind) {
		case TASK_SET:
			output = evaluate(o, at, input, at->set, NULL);
			break;
		case TASK_DO:
			output = run_list(o, at, input);
			break;
		case TASK_FOR:
			output = run_for(o, at, input);
			break;
		case TASK_CALL:
			break;
		}
		const struct json *said = recorded(o, at);
		if (output && !json_equal(output, said))
			broken(o->world, o->run, "%s gave something else than it has to:\n%s\nand not\n%s", step_of(o, at), (const char *)json_print_arena(said, o->arena).data,
			       (const char *)json_print_arena(output, o->arena).data);
		input = said;
	}
	return input;
}

void oracle_check(struct world *world, struct run_model *run, struct arena *arena, const struct entry *entries, size_t count)
{
	struct oracle o = {.world = world, .run = run, .arena = arena, .entries = entries, .count = count};
	uint64_t completed = 0;

	o.input = value_of(&o, entries[0].data, "input");
	const struct json *output = run_list(&o, run->definition->root, o.input), *said = value_of(&o, entries[count - 1].data, "output");
	if (!said || !json_equal(output, said))
		broken(world, run, "the run's output is not that of its last task");
	for (size_t i = 0; i < count; i++)
		completed += entries[i].kind == ENTRY_TASK_COMPLETED;
	if (completed != o.met)
		broken(world, run, "%llu tasks completed in the journal, %llu have to", (unsigned long long)completed, (unsigned long long)o.met);
	world->counters.oracle_tasks += o.met;
}
