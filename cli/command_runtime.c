/* reprise runtime list | show | probe. */
#include <string.h>

#include "cli/command.h"

static const char *count_text(struct arena *arena, const struct json *object, const char *name)
{
	return json_get(object, name) == NULL ? NULL : arena_printf(arena, "%.0f", json_get_number(object, name, 0));
}

static void runtime_cells(struct command *command, const struct json *item, const char **cells)
{
	struct arena *arena = &command->arena;
	const char *in_flight = count_text(arena, item, "inFlight"), *concurrency = count_text(arena, item, "concurrency"), *kind = json_get_text(item, "kind");
	cells[0] = json_get_text(item, "name");
	/* A simulator behind another kind says so. */
	cells[1] = json_get_boolean(item, "simulated", false) && strcmp(kind, "simulator") != 0 ? arena_printf(arena, "%s (simulated)", kind) : kind;
	cells[2] = json_get_text(item, "status");
	cells[3] = in_flight == NULL ? NULL : arena_printf(arena, "%s of %s", in_flight, concurrency == NULL ? "?" : concurrency);
	cells[4] = count_text(arena, item, "waiting");
	cells[5] = json_get_text(item, "model");
	cells[6] = json_get_text(item, "url");
}

int command_runtime_list(struct command *command)
{
	static const struct table_column columns[] = {{"NAME", 0, false}, {"KIND", 0, false}, {"STATUS", 0, false}, {"IN FLIGHT", 0, true}, {"WAITING", 0, true},
						      {"MODEL", 40, false}, {"URL", 0, false}};
	struct json *answer;
	int status = command_get(command, "/v1/runtimes", &answer);
	if (status == STATUS_OK)
		command_print_list(command, answer, "runtimes", columns, sizeof columns / sizeof *columns, runtime_cells);
	return status;
}

/* Members one a line; deeper ones as JSON. */
static void print_runtime(struct command *command, const struct json *runtime)
{
	for (size_t i = 0; json_is(runtime, JSON_OBJECT) && i < runtime->object.count; i++) {
		const struct json_member *member = &runtime->object.members[i];
		if (json_count(member->value) == 0) {
			output_line(&command->output, "%-14s %s", member->name, value_text(&command->arena, member->value));
		} else {
			output_line(&command->output, "%s", member->name);
			enum output_format format = command->output.format;
			command->output.format = FORMAT_JSON;
			output_json(&command->output, member->value);
			command->output.format = format;
		}
	}
}

static void print_probe(struct command *command, const struct json *answer)
{
	const struct json *models = json_get(answer, "models");
	output_line(&command->output, "%s%s  %s", json_get_text(answer, "name"), json_get_boolean(answer, "simulated", false) ? " (simulated)" : "", json_get_text(answer, "digest"));
	for (size_t i = 0; i < json_count(models); i++)
		output_line(&command->output, "serves %s", value_text(&command->arena, json_get(json_at(models, i), "id")));
	command_print_record(command, json_get(answer, "configuration"));
}

static int print_answer(struct command *command, const struct json *answer)
{
	if (command->output.format == FORMAT_TEXT && json_get(answer, "record") == NULL && json_is(json_get(answer, "configuration"), JSON_OBJECT))
		print_probe(command, answer);
	else if (command->output.format == FORMAT_TEXT)
		print_runtime(command, answer);
	else if (command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s", command->arguments[0]);
	else
		output_json(&command->output, answer);
	return STATUS_OK;
}

int command_runtime_show(struct command *command)
{
	struct json *answer;
	int status = command_get(command, "/v1/runtimes", &answer);
	if (status != STATUS_OK)
		return status;
	const struct json *list = json_get(answer, "runtimes");
	for (size_t i = 0; i < json_count(list); i++) {
		const char *name = json_get_text(json_at(list, i), "name");
		if (name != NULL && strcmp(name, command->arguments[0]) == 0)
			return print_answer(command, json_at(list, i));
	}
	return command_fail(command, STATUS_NOT_FOUND, "reprise runtime list shows the runtimes", "the daemon knows no runtime %s", command->arguments[0]);
}

int command_runtime_probe(struct command *command)
{
	struct json *answer;
	int status = command_post(command, path_of(command, "/v1/runtimes/", command->arguments[0], "/probe"), NULL, &answer);
	if (status != STATUS_OK)
		return status;
	print_answer(command, answer);
	if (!json_get_boolean(answer, "reachable", true)) {
		output_note(&command->output, "runtime %s does not answer: is it started, and is its url right?", command->arguments[0]);
		return STATUS_ERROR;
	}
	return STATUS_OK;
}
