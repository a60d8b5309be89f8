/* /v1/gates: what was measured of the runtimes' reproducibility. A gate is a run of the built-in workflow (`POST /v1/gates`), its report an entry. */
#include <string.h>

#include "daemon/api.h"
#include "workflow/base/check.h"
#include "workflow/base/reproducibility.h"
#include "workflow/language/expression.h"

/* What a submission is longer than the body that it is made of: canonical JSON of numbers such as 1e15, and its other members. */
enum { SUBMISSION_GROWTH = 8, SUBMISSION_MORE = 256 };

static int gate_document(struct arena *arena, const struct store_gate *gate, struct json **document, struct error *error)
{
	struct json *json = gate->report.data ? json_parse(arena, gate->report, JSON_STORED, NULL, error) : json_object(arena);
	char hex[DIGEST_HEX_LEN + 1];

	if (!json)
		return error->code;
	digest_hex(&gate->id, hex);
	json_set_text(arena, json, "id", hex);
	json_set_number(arena, json, "seq", (double)gate->seq);
	json_set_text(arena, json, "run", gate->run_id);
	json_set_text(arena, json, "runtime", gate->runtime);
	json_set_text(arena, json, "class", gate->class);
	api_set_time(arena, json, "recordedAt", gate->time_ms);
	*document = json;
	return 0;
}

static void list_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	const struct store_gate_filter *filter = own->args;
	struct arena *arena = &read->arena;
	struct json *json = json_object(arena), *list = json_array(arena), *document;
	struct store_gate *gates;
	size_t count;

	if (reader_gates(reader, arena, filter, &gates, &count, &read->error) != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		if (gate_document(arena, &gates[i], &document, &read->error) != 0)
			return;
		json_add(arena, list, document);
	}
	json_set(arena, json, "gates", list);
	if (count == filter->limit)
		json_set_number(arena, json, "before", (double)gates[count - 1].seq);
	api_print(own, json);
}

void api_list_gates(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct store_gate_filter *filter = arena_zero(&request->arena, sizeof *filter);
	uint64_t limit;

	(void)parameters;
	if (!api_query_number(request, "before", 0, INT64_MAX, &filter->before_seq) || !api_query_number(request, "limit", API_LIMIT_DEFAULT, 1000, &limit))
		return;
	filter->runtime = request_query(request, "runtime");
	filter->limit = limit > 0 ? limit : API_LIMIT_DEFAULT;
	api_read(daemon, request, list_work, filter, NULL);
}

static void get_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct store_gate gate;
	struct json *document;

	if (reader_gate(reader, &read->arena, own->args, &gate, &read->error) == 0 && gate_document(&read->arena, &gate, &document, &read->error) == 0)
		api_print(own, document);
}

void api_get_gate(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	api_read(daemon, request, get_work, (void *)parameters[0], NULL);
}

/* --- what a definition asks of gates ------------------------------------------------------------------------------ */

static const struct json *get_input(void *context, const char *name)
{
	return strcmp(name, ".") == 0 ? context : NULL;
}

/* null: not given. NULL: not known before the run is at it. input: of the task, NULL: not known. */
static const struct json *value_of(struct arena *arena, const struct json *with, const char *name, const struct json *input)
{
	const struct scope scope = {.get = get_input, .context = (void *)input};
	const struct json *template = json_get(with, name), *value;
	struct error error;

	if (template == NULL)
		return json_null(arena);
	return template_eval(arena, template, &scope, &value, &error) == 0 ? value : NULL;
}

static bool is_phases(const struct json *value)
{
	bool good = json_is(value, JSON_ARRAY);

	for (size_t i = 0; good && i < json_count(value); i++)
		good = json_is(json_at(value, i), JSON_STRING);
	return good;
}

/* Without a request of its own it asks an extraction of ours, which has one; one that is not known yet may have. */
static bool may_have_schema(struct arena *arena, const struct json *with, const struct json *input)
{
	const struct json *messages = value_of(arena, with, "messages", input), *prompt = value_of(arena, with, "prompt", input);

	return json_get(with, "schema") != NULL || messages == NULL || prompt == NULL || (messages->type == JSON_NULL && prompt->type == JSON_NULL);
}

static int check_call(struct daemon *daemon, struct arena *arena, const struct json *with, const struct json *input, struct error *error)
{
	const struct json *runtime = value_of(arena, with, "runtime", input), *phases = value_of(arena, with, "phases", input), *width = value_of(arena, with, "concurrent", input);
	double together = 1;

	if (!json_is(runtime, JSON_STRING) || !activities_has_runtime(daemon->activities, runtime->string.text) || !is_phases(phases))
		return 0;
	for (size_t i = 0; i < json_count(phases); i++)
		if (strcmp(json_at(phases, i)->string.text, "concurrent") == 0 && width != NULL)
			together = json_is(width, JSON_NUMBER) ? width->number : GATE_CONCURRENT_DEFAULT;
	return activities_check_gate(daemon->activities, runtime->string.text, phases, may_have_schema(arena, with, input), together, error);
}

/* Wherever it stands in a task: `then: end` ends the run from inside of lists. Data of these names counts too, which only leaves more to the run. */
static bool may_leave(const struct json *json)
{
	bool leaves = false;

	for (size_t i = 0; !leaves && json_is(json, JSON_ARRAY) && i < json_count(json); i++)
		leaves = may_leave(json_at(json, i));
	for (size_t i = 0; !leaves && json_is(json, JSON_OBJECT) && i < json_count(json); i++) {
		const char *name = json->object.members[i].name;
		leaves = strcmp(name, "then") == 0 || strcmp(name, "switch") == 0 || strcmp(name, "raise") == 0 || may_leave(json->object.members[i].value);
	}
	return leaves;
}

struct gate_walk {
	struct daemon *daemon;
	struct arena *arena;
	const struct json *functions; /* of the definition: their names are looked for first */
	bool functions_leave; /* one of them may; it may be called anywhere in a task */
	bool goes_on; /* false once the run may leave the list */
};

/* Of what is bound to be reached: not behind an `if`, a jump or an error that is raised, not in a loop, which may have no item, nor where a `try` may want just
 * this refusal. input: of the first task. */
static int check_tasks(struct gate_walk *walk, const struct json *tasks, const struct json *input, struct error *error)
{
	int rc = 0;

	for (size_t i = 0; i < json_count(tasks) && rc == 0 && walk->goes_on; i++) {
		const struct json *item = json_at(tasks, i), *task = json_is(item, JSON_OBJECT) && json_count(item) == 1 ? item->object.members[0].value : NULL;
		const struct json *own = i == 0 && json_get(task, "input") == NULL ? input : NULL;
		const char *call = json_get_text(task, "call");
		bool is_sure = json_get(task, "if") == NULL && json_get(task, "for") == NULL;

		if (is_sure && json_get(task, "do") != NULL) {
			rc = check_tasks(walk, json_get(task, "do"), own, error);
			walk->goes_on &= json_get(task, "then") == NULL;
			continue;
		}
		if (is_sure && call != NULL && strcmp(call, "reproducibility-gate") == 0 && json_get(walk->functions, call) == NULL)
			rc = check_call(walk->daemon, walk->arena, json_get(task, "with"), own, error);
		walk->goes_on &= !walk->functions_leave && !may_leave(task);
	}
	return rc;
}

int api_check_gates(struct daemon *daemon, struct arena *arena, const struct definition *definition, const struct json *input, struct error *error)
{
	const struct json *document = definition->document, *functions = json_get(json_get(document, "use"), "functions");
	struct gate_walk walk = {.daemon = daemon, .arena = arena, .functions = functions, .functions_leave = may_leave(functions), .goes_on = true};

	return check_tasks(&walk, json_get(document, "do"), json_get(document, "input") == NULL ? input : NULL, error);
}

/* --- a gate as a run ---------------------------------------------------------------------------------------------- */

/* The body becomes that of a submission. */
static void make_submission(struct api_body *body)
{
	struct request *request = body->request;
	struct json *submission, *input;

	if (!json_get_text(body->json, "runtime")) {
		error_set(&body->error, ERR_INVALID, "runtime is missing: the name of a runtime in the daemon's configuration");
		return;
	}
	if (json_get(json_get(body->json, "request"), "schema")) {
		error_set(&body->error, ERR_INVALID, "request.schema: a schema is part of a definition; submit one with `call: reproducibility-gate`");
		return;
	}
	if (json_get(body->json, "concurrent") && !json_get(body->json, "phases")) {
		error_set(&body->error, ERR_INVALID, "concurrent is of a phase that is not asked for: add phases: [concurrent]");
		return;
	}
	submission = json_object(&request->arena);
	input = json_copy(&request->arena, body->json);
	json_set_text(&request->arena, submission, "definition", json_get(body->json, "phases") ? "reprise/gate:1.1.0" : "reprise/gate:1.0.0");
	static const char *const copied[] = {"id", "labels", "budget"};
	for (size_t i = 0; i < COUNT_OF(copied); i++) {
		const char *name = copied[i];
		if (json_get(body->json, name))
			json_set(&request->arena, submission, name, json_copy(&request->arena, json_get(body->json, name)));
		json_remove(input, name);
	}
	json_set(&request->arena, submission, "input", input);
	request->body.max = request->body.len * SUBMISSION_GROWTH + SUBMISSION_MORE; /* it was within the limit as it came */
	buffer_clear(&request->body);
	json_print(submission, &request->body);
	CHECK(!request->body.overflow);
}

static void submit_gate(struct api_body *body)
{
	struct error error;

	if (activities_check_runtime(body->daemon->activities, json_get_text(body->json, "runtime"), &error) != 0) /* a run could only fault */
		request_problem(body->request, &error);
	else
		api_submit_run(body->daemon, body->request, body->parameters);
}

/* The same as a submission of the built-in workflow. */
void api_add_gate(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct api_body *body = arena_zero(&request->arena, sizeof *body);

	*body = (struct api_body){.daemon = daemon, .request = request, .names = "runtime requests seeds request between phases concurrent id labels budget", .prepare = make_submission, .on_done = submit_gate,
				  .parameters = parameters};
	api_take_body(body);
}
