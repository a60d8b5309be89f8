/* reprise infer: one question to one runtime, as a durable run of the built-in workflow. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "workflow/base/id.h"

#define INFER_WORKFLOW "reprise/infer:1.0.0"

/* What --temperature and its like add to `sampling`. */
static int read_sampling(struct command *command, struct json **sampling)
{
	static const struct {
		const char *option, *name;
	} numbers[] = {{"temperature", "temperature"}, {"top-p", "topP"}}, whole[] = {{"seed", "seed"}, {"max-tokens", "maxTokens"}};
	const uint64_t exact_max = (1ull << 53) - 1; /* a larger seed would be sent as another one */
	*sampling = NULL;
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
		uint64_t number = 0;
		int status = command_number(command, whole[i].option, exact_max, &number);
		if (status != STATUS_OK)
			return status;
		if (command_option(command, whole[i].option) == NULL)
			continue;
		if (*sampling == NULL)
			*sampling = json_object(&command->arena);
		json_set_number(&command->arena, *sampling, whole[i].name, (double)number);
	}
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		const char *text = command_option(command, numbers[i].option);
		if (text == NULL)
			continue;
		char *end;
		double number = strtod(text, &end);
		if (end == text || *end != '\0' || !isfinite(number))
			return command_fail(command, STATUS_USAGE, NULL, "--%s %s: a number is meant", numbers[i].option, text);
		if (*sampling == NULL)
			*sampling = json_object(&command->arena);
		json_set_number(&command->arena, *sampling, numbers[i].name, number);
	}
	return STATUS_OK;
}

/* The built-in workflow takes runtime, prompt and sampling; with a schema the same call is written out. */
static struct json *definition_with_schema(struct command *command, struct json *schema)
{
	struct arena *arena = &command->arena;
	struct json *with = json_object(arena);
	json_set_text(arena, with, "runtime", "${ .runtime }");
	json_set_text(arena, with, "prompt", "${ .prompt }");
	json_set_text(arena, with, "sampling", "${ .sampling }");
	return make_call_definition(arena, "infer-with-schema", "answer", "inference", with, schema);
}

int command_infer(struct command *command)
{
	struct arena *arena = &command->arena;
	const char *prompt = command->arguments[0], *runtime, *id = command_option(command, "id");
	struct json *body = json_object(arena), *input = json_object(arena), *labels, *schema = NULL, *sampling, *run = NULL;
	int64_t timeout_ms = -1;
	int status;

	if (id != NULL && !id_valid(id))
		return command_fail(command, STATUS_USAGE, NULL, "--id %s: an id is 1 to %d of A-Z a-z 0-9 . _ -", id, ID_LEN_MAX);
	if ((status = command_duration(command, "timeout", &timeout_ms)) != STATUS_OK || (status = command_read_pairs(command, "label", &labels)) != STATUS_OK || (status = command_read_budget(command, body)) != STATUS_OK ||
	    (status = read_sampling(command, &sampling)) != STATUS_OK)
		return status;
	if (command_option(command, "schema") != NULL &&
	    (status = command_read_value(command, "--schema", arena_printf(arena, "@%s", command_option(command, "schema")), &schema)) != STATUS_OK)
		return status;
	if (strcmp(prompt, "-") == 0 || prompt[0] == '@') {
		struct bytes text;
		if ((status = command_read_file(command, prompt[0] == '@' ? prompt + 1 : "-", &text)) != STATUS_OK)
			return status;
		prompt = (const char *)text.data;
		if (memchr(text.data, 0, text.len) != NULL)
			return command_fail(command, STATUS_ERROR, NULL, "the prompt holds NUL bytes");
	}
	if (prompt[0] == '\0')
		return command_fail(command, STATUS_USAGE, NULL, "the prompt is empty");
	if (!utf8_valid(bytes_text(prompt), NULL))
		return command_fail(command, STATUS_USAGE, NULL, "the prompt is not UTF-8");
	if ((status = choose_runtime(command, &runtime)) != STATUS_OK)
		return status;

	if (schema != NULL)
		json_set(arena, body, "definition", definition_with_schema(command, schema));
	else
		json_set_text(arena, body, "definition", INFER_WORKFLOW);
	if (id == NULL)
		id = new_run_id(command);
	json_set_text(arena, body, "id", id);
	json_set_text(arena, input, "runtime", runtime);
	json_set_text(arena, input, "prompt", prompt);
	if (sampling != NULL)
		json_set(arena, input, "sampling", sampling);
	json_set(arena, body, "input", input);
	if (labels != NULL)
		json_set(arena, body, "labels", labels);
	interrupt_say(arena_printf(arena, "\nreprise: interrupted; the run goes on: reprise result %s --wait\n", id));
	if ((status = run_submit(command, body, &run)) != STATUS_OK || (status = run_wait(command, id, timeout_ms, "output", &run)) != STATUS_OK)
		return status;

	int outcome = run_exit_status(run);
	const struct json *output = json_get(run, "output");
	if (json_get(output, "text") == NULL && json_count(output) == 1 && json_is(output, JSON_OBJECT))
		output = output->object.members[0].value;
	if (command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s", id);
	else if (command->output.format != FORMAT_TEXT)
		output_json(&command->output, outcome == STATUS_OK && output != NULL ? output : run);
	else if (outcome == STATUS_OK && json_get_text(output, "text") != NULL)
		output_line(&command->output, "%s", json_get_text(output, "text"));
	else if (outcome == STATUS_OK && output != NULL)
		output_json(&command->output, output);
	if (outcome != STATUS_OK)
		run_print_error(command, run);
	else
		output_note(&command->output, "run %s", id);
	return outcome;
}
