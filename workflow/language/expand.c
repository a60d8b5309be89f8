/* Expansion of built-in functions into tasks (expand.h). Pure. New here? Read expand_extraction(). */
#include "workflow/language/expand.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/reproducibility.h"

/* The schema that an extraction uses when it names none: schema/facts.schema.json, byte for byte but for white space. This
 * folder includes nothing of schema/, so the text stands here again; a test compares the two by digest. */
static const char default_facts_schema[] =
	"{\"type\":\"object\",\"properties\":{\"facts\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
	"\"subject\":{\"type\":\"string\"},\"predicate\":{\"type\":\"string\"},\"object\":{\"type\":\"string\"},\"quote\":{\"type\":\"string\"}},"
	"\"required\":[\"subject\",\"predicate\",\"object\",\"quote\"],\"additionalProperties\":false}}},"
	"\"required\":[\"facts\"],\"additionalProperties\":false}";

void task_list_make(struct definition *definition, struct task_list *list, size_t count)
{
	list->tasks = arena_zero(&definition->arena, (count + 1) * sizeof *list->tasks);
	list->count = count;
}

const char *task_list_segment(const struct task *parent, bool handler)
{
	return handler ? "catch/do" : parent->kind == TASK_TRY ? "try" : parent->kind == TASK_FORK ? "fork/branches" : "do";
}

struct task *task_list_set(struct definition *definition, struct task *parent, size_t index, enum task_kind kind, const char *name)
{
	return task_list_set_in(definition, parent, false, index, kind, name);
}

struct task *task_list_set_in(struct definition *definition, struct task *parent, bool handler, size_t index, enum task_kind kind, const char *name)
{
	struct task_list *list = handler ? &parent->handler : &parent->body;
	struct task *task = arena_zero(&definition->arena, sizeof *task);
	struct buffer reference;

	CHECK(index < list->count);
	buffer_init(&reference, 4 * DEFINITION_SOURCE_MAX);
	if (parent->kind == TASK_LISTEN) { /* one task, which has no name of its own */
		buffer_printf(&reference, "%s/foreach", parent->reference);
	} else {
		buffer_printf(&reference, "%s/%s/%zu", parent->reference, task_list_segment(parent, handler), index);
		json_pointer_add(&reference, name);
	}
	CHECK(!reference.overflow);
	task->kind = kind;
	task->name = arena_text(&definition->arena, name);
	task->reference = arena_text_len(&definition->arena, buffer_text(&reference), reference.len);
	task->parent = parent;
	task->index = index;
	task->loop_depth = parent->loop_depth + (task_is_loop(parent) ? 1 : 0);
	task->parallel = parent->parallel * (parent->kind == TASK_FOR && parent->concurrency > 0 ? parent->concurrency : 1);
	if (parent->kind == TASK_FORK)
		task->parallel = parent->parallel * (unsigned)parent->body.count;
	task->in_handler = handler;
	list->tasks[index] = task;
	definition->task_count++;
	buffer_close(&reference);
	return task;
}

void task_set_concurrency(struct task *task, unsigned concurrency)
{
	CHECK(concurrency > 0);
	CHECK(task->parallel > 0);
	CHECK(task->parallel <= FOR_CONCURRENCY_MAX);
	task->concurrency = concurrency <= FOR_CONCURRENCY_MAX / task->parallel ? concurrency : FOR_CONCURRENCY_MAX / task->parallel;
}

static struct json *facts_schema(struct arena *arena)
{
	struct json *schema = json_object(arena), *document = json_parse(arena, BYTES_OF(default_facts_schema), JSON_STRICT, NULL, NULL);

	CHECK(document);
	json_set(arena, schema, "document", document);
	return schema;
}

/* The arguments with what the definition left out. Never a change to the document itself: it is hashed. */
static const struct json *complete_extraction(struct arena *arena, const struct json *with)
{
	struct json *complete = json_copy(arena, with), *sections = json_get(complete, "sections");

	if (!sections) {
		sections = json_object(arena);
		json_set(arena, complete, "sections", sections);
	}
	if (json_is(sections, JSON_OBJECT)) { /* else an expression, whose value only the run knows */
		if (!json_get(sections, "by"))
			json_set_text(arena, sections, "by", "heading");
		if (!json_get(sections, "maxTokens"))
			json_set_number(arena, sections, "maxTokens", EXTRACTION_SECTION_TOKENS);
	}
	if (!json_get(complete, "schema"))
		json_set(arena, complete, "schema", facts_schema(arena));
	if (!json_get(complete, "onFailure"))
		json_set_text(arena, complete, "onFailure", "continue");
	return complete;
}

/* sections: document -> {plan, sections}; extract: one iteration and one model request per section; result: all of it. */
static void expand_extraction(struct definition *definition, struct task *task, const struct json *with)
{
	struct arena *arena = &definition->arena;
	struct task *sections, *loop, *section, *result;
	struct json *arguments;

	task_list_make(definition, &task->body, 3);
	sections = task_list_set(definition, task, 0, TASK_CALL, "sections");
	sections->function = FUNCTION_SECTIONS;
	sections->with = complete_extraction(arena, with);

	loop = task_list_set(definition, task, 1, TASK_FOR, "extract");
	loop->each = "section";
	loop->at = "index";
	loop->in = ".sections";
	task_set_concurrency(loop, EXTRACTION_CONCURRENCY);
	task_list_make(definition, &loop->body, 1);
	section = task_list_set(definition, loop, 0, TASK_CALL, "section");
	section->function = FUNCTION_EXTRACT;
	arguments = json_object(arena);
	json_set_text(arena, arguments, "plan", "${ .plan }");
	json_set_text(arena, arguments, "section", "${ $section }");
	section->with = arguments;

	result = task_list_set(definition, task, 2, TASK_CALL, "result");
	result->function = FUNCTION_MERGE;
	result->with = json_text(arena, "${ . }");
}

static void add_requests(struct definition *definition, struct task *loop, const char *in, unsigned concurrency)
{
	struct json *arguments = json_object(&definition->arena);
	struct task *ask;

	loop->each = "ask";
	loop->at = "index";
	loop->in = in;
	task_set_concurrency(loop, concurrency);
	task_list_make(definition, &loop->body, 1);
	ask = task_list_set(definition, loop, 0, TASK_CALL, "request");
	ask->function = FUNCTION_GATE_ASK;
	json_set_text(&definition->arena, arguments, "plan", "${ .plan }");
	json_set_text(&definition->arena, arguments, "ask", "${ $ask }");
	ask->with = arguments;
}

/* plan: what is asked; ask: one request after the other; report: what follows. With `phases`: group after group, and what is in one of them at once. */
static void expand_gate(struct definition *definition, struct task *task, const struct json *with)
{
	struct arena *arena = &definition->arena;
	struct task *plan, *loop, *report;
	struct json *arguments;

	task_list_make(definition, &task->body, 3);
	plan = task_list_set(definition, task, 0, TASK_CALL, "plan");
	plan->function = FUNCTION_GATE_PLAN;
	arguments = json_copy(arena, with);
	json_set(arena, arguments, "sectionSchema", facts_schema(arena)); /* of the section that is asked about when nothing is given */
	plan->with = arguments;

	loop = task_list_set(definition, task, 1, TASK_FOR, "ask");
	if (json_get(with, "phases")) {
		loop->each = "group";
		loop->at = "place";
		loop->in = ".groups";
		task_set_concurrency(loop, 1);
		task_list_make(definition, &loop->body, 1);
		add_requests(definition, task_list_set(definition, loop, 0, TASK_FOR, "group"), "$group", GATE_CONCURRENT_MAX);
	} else {
		add_requests(definition, loop, ".asks", 1);
	}

	report = task_list_set(definition, task, 2, TASK_CALL, "report");
	report->function = FUNCTION_GATE_REPORT;
	report->with = json_text(arena, "${ . }");
}

static const struct {
	const char *name;
	void (*expand)(struct definition *definition, struct task *task, const struct json *with);
} built_ins[] = {
	{"extraction", expand_extraction},
	{"reproducibility-gate", expand_gate},
};

bool expand_is_built_in(const char *name)
{
	for (size_t i = 0; i < COUNT_OF(built_ins); i++) {
		if (strcmp(built_ins[i].name, name) == 0)
			return true;
	}
	return false;
}

void expand_built_in(struct definition *definition, struct task *task, const char *name, const struct json *with)
{
	for (size_t i = 0; i < COUNT_OF(built_ins); i++) {
		if (strcmp(built_ins[i].name, name) == 0) {
			task->kind = TASK_DO;
			task->built_in = built_ins[i].name;
			built_ins[i].expand(definition, task, with);
			return;
		}
	}
	CHECK(!"a built-in function");
}
