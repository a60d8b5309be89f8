/* reprise gate: does a runtime repeat itself, and what is that worth? A durable run of the built-in workflow. */
#include <string.h>

#include "cli/command.h"
#include "workflow/base/id.h"
#include "workflow/base/reproducibility.h"

#define GATE_WORKFLOW "reprise/gate:1.0.0"
#define GATE_PHASES_WORKFLOW "reprise/gate:1.1.0"

enum { ANSWER_TEXT_WIDTH = 60, REQUESTS_MIN = 2 /* equal answers are counted */ };

/* The file holds what the requests are made of: messages or a prompt, schema, sampling. */
static int read_request(struct command *command, struct json **request)
{
	static const char *const known[] = {"messages", "prompt", "schema", "sampling"};
	const char *path = command_option(command, "request");
	int status;

	*request = NULL;
	if (path == NULL)
		return STATUS_OK;
	if ((status = command_read_value(command, "--request", strcmp(path, "-") == 0 ? path : arena_printf(&command->arena, "@%s", path), request)) != STATUS_OK)
		return status;
	if (!json_is(*request, JSON_OBJECT))
		return command_fail(command, STATUS_USAGE, NULL, "--request %s: an object with `messages` or `prompt` is meant", path);
	for (size_t i = 0; i < json_count(*request); i++) {
		const char *name = (*request)->object.members[i].name;
		if (strcmp(name, known[0]) != 0 && strcmp(name, known[1]) != 0 && strcmp(name, known[2]) != 0 && strcmp(name, known[3]) != 0)
			return command_fail(command, STATUS_USAGE, NULL, "--request %s: unknown member '%s'; it may hold messages, prompt, schema and sampling", path, name);
	}
	if ((json_get(*request, "messages") == NULL) == (json_get(*request, "prompt") == NULL))
		return command_fail(command, STATUS_USAGE, NULL, "--request %s: exactly one of `messages` and `prompt` is needed", path);
	return STATUS_OK;
}

/* With a schema the same call is written out: a schema is checked when its definition comes in. */
static struct json *definition_with_schema(struct command *command, struct json *schema, bool in_phases)
{
	static const char *const names[][2] = {{"runtime", "${ .runtime }"}, {"requests", "${ .requests }"}, {"seeds", "${ .seeds }"}, {"between", "${ .between }"},
					       {"messages", "${ .request.messages }"}, {"prompt", "${ .request.prompt }"}, {"sampling", "${ .request.sampling }"}};
	struct json *with = json_object(&command->arena);

	if (in_phases) {
		json_set_text(&command->arena, with, "phases", "${ .phases }");
		json_set_text(&command->arena, with, "concurrent", "${ .concurrent }");
	}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		json_set_text(&command->arena, with, names[i][0], names[i][1]);
	return make_call_definition(&command->arena, "gate-with-schema", "gate", "reproducibility-gate", with, schema);
}

/* --phases a,b,c; --concurrent N alone asks for its phase. */
static int read_phases(struct command *command, struct json *input)
{
	static const char *const known[] = {GATE_PHASES};
	const char *text = command_option(command, "phases"), *concurrent = command_option(command, "concurrent");
	struct json *phases = json_array(&command->arena);
	uint64_t width = 0;
	bool has_concurrent = false;
	int status;

	if (text == NULL && concurrent == NULL)
		return STATUS_OK;
	if ((status = command_number(command, "concurrent", GATE_CONCURRENT_MAX, &width)) != STATUS_OK)
		return status;
	if (concurrent != NULL && width < 2)
		return command_fail(command, STATUS_USAGE, NULL, "--concurrent %s: 2 to %d are possible", concurrent, GATE_CONCURRENT_MAX);
	while (text != NULL && *text != '\0') {
		size_t len = strcspn(text, ","), k = 0;

		while (k < sizeof known / sizeof *known && (strlen(known[k]) != len || strncmp(known[k], text, len) != 0))
			k++;
		if (k == sizeof known / sizeof *known)
			return command_fail(command, STATUS_USAGE, NULL, "--phases %.*s: interleaved, uncached, withoutSchema, concurrent and reload are possible, with commas between", (int)len, text);
		has_concurrent |= strcmp(known[k], "concurrent") == 0;
		json_add(&command->arena, phases, json_text(&command->arena, known[k]));
		text += len + (text[len] == ',');
	}
	if (concurrent != NULL && !has_concurrent)
		json_add(&command->arena, phases, json_text(&command->arena, "concurrent"));
	json_set(&command->arena, input, "phases", phases);
	if (concurrent != NULL)
		json_set_number(&command->arena, input, "concurrent", (double)width);
	return STATUS_OK;
}

static int make_input(struct command *command, const char *runtime, const struct json *request, struct json **input)
{
	struct arena *arena = &command->arena;
	struct json *between = json_array(arena);
	uint64_t requests = 0, seeds = 0;
	const char *text;
	int status;

	*input = json_object(arena);
	json_set_text(arena, *input, "runtime", runtime);
	if ((status = command_number_from(command, "requests", REQUESTS_MIN, GATE_REQUESTS_MAX, &requests)) != STATUS_OK ||
	    (status = command_number(command, "seeds", GATE_SEEDS_MAX, &seeds)) != STATUS_OK)
		return status;
	if (command_option(command, "requests") != NULL)
		json_set_number(arena, *input, "requests", (double)requests);
	if (command_option(command, "seeds") != NULL)
		json_set_number(arena, *input, "seeds", (double)seeds);
	for (size_t i = 0; (text = command_option_at(command, "between", i)) != NULL; i++) {
		if (i == GATE_BETWEEN_MAX)
			return command_fail(command, STATUS_USAGE, NULL, "more than %d times --between", GATE_BETWEEN_MAX);
		if (text[0] == '\0' || !utf8_valid(bytes_text(text), NULL))
			return command_fail(command, STATUS_USAGE, NULL, "--between: a prompt is empty, or not UTF-8");
		json_add(arena, between, json_text(arena, text));
	}
	if ((status = read_phases(command, *input)) != STATUS_OK)
		return status;
	if (json_count(between) > 0)
		json_set(arena, *input, "between", between);
	if (request != NULL) {
		struct json *kept = json_copy(arena, request);
		json_remove(kept, "schema");
		json_set(arena, *input, "request", kept);
	}
	return STATUS_OK;
}

static const char *percent(struct arena *arena, double fraction)
{
	return arena_printf(arena, fraction < 0.1 ? "%.1f %%" : "%.0f %%", fraction * 100);
}

static void print_answers(struct command *command, const struct json *report)
{
	static const struct table_column columns[] = {{"COUNT", 0, true}, {"FIRST", 0, true}, {"TOKENS", 0, true}, {"SHA-256", 12, false}, {"ANSWER", ANSWER_TEXT_WIDTH, false}};
	const struct json *answers = json_get(report, "answers");
	struct arena *arena = &command->arena;
	struct table table;

	table_init(&table, arena, columns, sizeof columns / sizeof *columns);
	for (size_t i = 0; i < json_count(answers); i++) {
		const struct json *answer = json_at(answers, i);
		const char *digest = json_get_text(answer, "digest");
		double tokens = json_get_number(answer, "tokens", -1);
		const char *cells[] = {arena_printf(arena, "%.0f", json_get_number(answer, "count", 0)), arena_printf(arena, "%.0f", json_get_number(answer, "first", 0) + 1),
				       tokens >= 0 ? arena_printf(arena, "%.0f", tokens) : NULL, digest != NULL && strlen(digest) > 7 ? digest + 7 : digest, json_get_text(answer, "text")};
		table_add(&table, cells);
	}
	if (table.row_count > 0)
		table_print(&table, &command->output);
	table_close(&table);
	if (json_get(report, "answersLeftOut") != NULL)
		output_line(&command->output, "and %.0f more", json_get_number(report, "answersLeftOut", 0));
}

static void print_phases(struct command *command, const struct json *report)
{
	const struct json *phases = json_get(report, "phases"), *verdicts = json_get(report, "verdicts");
	struct buffer text;

	buffer_init(&text, 4096);
	for (size_t i = 0; i < json_count(phases); i++) {
		const struct json *phase = phases->object.members[i].value;
		const char *bypass = json_get_text(phase, "cacheBypass");
		buffer_printf(&text, "%s%s%s%s%s %.0f of %.0f answered, %.0f distinct", i == 0 ? "" : "; ", phases->object.members[i].name, bypass != NULL ? " (" : "", bypass != NULL ? bypass : "",
			      bypass != NULL ? ")" : "", json_get_number(phase, "answered", 0), json_get_number(phase, "asked", 0), json_get_number(phase, "distinct", 0));
	}
	output_line(&command->output, "phases      %s", buffer_text(&text));
	buffer_close(&text);
	buffer_init(&text, 4096);
	for (size_t i = 0; i < json_count(verdicts); i++)
		buffer_printf(&text, "%s%s", i == 0 ? "" : ", ", json_at(verdicts, i)->string.text);
	if (text.len > 0)
		output_line(&command->output, "verdicts    %s", buffer_text(&text));
	buffer_close(&text);
}

static void print_report(struct command *command, const struct json *report)
{
	struct arena *arena = &command->arena;
	double answered = json_get_number(report, "answered", 0), distinct = json_get_number(report, "distinct", 0);
	const char *class = json_get_text(report, "class"), *cache = json_get_text(json_get(report, "conditions"), "cachePath"), *configuration = json_get_text(report, "configuration");

	output_line(&command->output, "runtime     %s%s%s", json_get_text(report, "runtime"), json_get_text(report, "model") != NULL ? ", model " : "",
		    json_get_text(report, "model") != NULL ? json_get_text(report, "model") : "");
	output_line(&command->output, "class       %s", class);
	if (json_get_text(report, "reason") != NULL)
		output_line(&command->output, "reason      %s", json_get_text(report, "reason"));
	output_line(&command->output, "answers     %.0f of %.0f identical requests, one at a time: %.0f distinct%s", answered, json_get_number(report, "requests", 0), distinct,
		    json_get(report, "distinctJson") != NULL ? arena_printf(arena, ", %.0f as JSON", json_get_number(report, "distinctJson", 0)) : "");
	if (json_get(report, "upperBound95") != NULL)
		output_line(&command->output, "worth       another answer may still come in up to %s of requests (95 %% upper bound)", percent(arena, json_get_number(report, "upperBound95", 1)));
	print_phases(command, report);
	output_line(&command->output, "conditions  %s in flight, %s schema, cache %s", json_get_number(json_get(report, "conditions"), "requestsInFlight", 1) > 1 ?
			arena_printf(arena, "one request, and %.0f together,", json_get_number(json_get(report, "conditions"), "requestsInFlight", 1)) : "one request",
		    json_get_boolean(json_get(report, "conditions"), "schema", false) ? "with a" : "no",
		    cache == NULL || strcmp(cache, "unknown") == 0 ? "not told" : strcmp(cache, "none") == 0 ? "not used" : strcmp(cache, "any") == 0 ? "used or not" : "used");
	if (json_get(report, "firstDifference") != NULL)
		output_line(&command->output, "difference  from byte %.0f on", json_get_number(report, "firstDifference", 0));
	if (configuration != NULL)
		output_line(&command->output, "record      %s  (reprise provenance show)", configuration);
	print_answers(command, report);
	if (json_get_boolean(report, "simulated", false))
		output_line(&command->output, SIMULATED_LINE);
}

/* The built-in workflow's output is the report; the one that is written out has it one deeper. */
static const struct json *report_of(const struct json *output)
{
	if (json_get_text(output, "class") != NULL)
		return output;
	return json_is(output, JSON_OBJECT) && json_count(output) == 1 ? output->object.members[0].value : NULL;
}

int command_gate(struct command *command)
{
	struct arena *arena = &command->arena;
	const char *runtime = command->arguments[0], *id = command_option(command, "id");
	struct json *body = json_object(arena), *input, *labels, *request, *run = NULL;
	int64_t timeout_ms = -1;
	int status;

	if (id != NULL && !id_valid(id))
		return command_fail(command, STATUS_USAGE, NULL, "--id %s: an id is 1 to %d of A-Z a-z 0-9 . _ -", id, ID_LEN_MAX);
	if ((status = command_duration(command, "timeout", &timeout_ms)) != STATUS_OK || (status = command_read_pairs(command, "label", &labels)) != STATUS_OK || (status = command_read_budget(command, body)) != STATUS_OK ||
	    (status = read_request(command, &request)) != STATUS_OK || (status = make_input(command, runtime, request, &input)) != STATUS_OK)
		return status;
	if ((status = check_runtime(command, runtime)) != STATUS_OK)
		return status;
	if (id == NULL)
		id = new_run_id(command);
	if (json_get(request, "schema") != NULL)
		json_set(arena, body, "definition", definition_with_schema(command, json_get(request, "schema"), json_get(input, "phases") != NULL));
	else
		json_set_text(arena, body, "definition", json_get(input, "phases") != NULL ? GATE_PHASES_WORKFLOW : GATE_WORKFLOW);
	json_set_text(arena, body, "id", id);
	json_set(arena, body, "input", input);
	if (labels != NULL)
		json_set(arena, body, "labels", labels);
	interrupt_say(arena_printf(arena, "\nreprise: interrupted; the gate goes on: reprise result %s --wait\n", id));
	if ((status = run_submit(command, body, &run)) != STATUS_OK || (status = run_wait(command, id, timeout_ms, "output", &run)) != STATUS_OK)
		return status;

	int outcome = run_exit_status(run);
	const struct json *report = outcome == STATUS_OK ? report_of(json_get(run, "output")) : NULL;
	if (command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s", report != NULL ? json_get_text(report, "gate") : id);
	else if (command->output.format != FORMAT_TEXT)
		output_json(&command->output, report != NULL ? report : run);
	else if (report != NULL)
		print_report(command, report);
	if (outcome != STATUS_OK) {
		run_print_error(command, run);
		return outcome;
	}
	output_note(&command->output, "run %s", id);
	enum reproducibility_class class;
	if (!reproducibility_class_parse(json_get_text(report, "class"), &class) || class < CLASS_UNSTABLE)
		return STATUS_ERROR;
	return json_get_number(report, "distinct", 0) > 1 || class == CLASS_SOLO_ONLY ? STATUS_NOT_REPRODUCIBLE : STATUS_OK;
}
