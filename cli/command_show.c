/* reprise show and reprise result: one run; what it gave. */
#include <string.h>

#include "cli/command.h"

int command_show(struct command *command)
{
	struct json *run;
	const char *include = command->output.format == FORMAT_TEXT ? "?include=input,output,tasks,facts,labels,children" : command->output.format == FORMAT_IDS ? "" : "?include=all";
	int status = command_get(command, path_of(command, "/v1/runs/", command->arguments[0], include), &run);
	if (status != STATUS_OK)
		return status;
	bool is_json = command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL;
	if (is_json && (status = run_complete_tasks(command, run)) != STATUS_OK)
		return status;
	if (command->output.format == FORMAT_TEXT)
		run_print(command, run);
	else if (command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s", json_get_text(run, "id"));
	else
		output_json(&command->output, run);
	int outcome = run_exit_status(run);
	return command_flag(command, "exit-status") && outcome > 0 ? outcome : STATUS_OK;
}

int command_result(struct command *command)
{
	const char *id = command->arguments[0];
	struct json *run = NULL;
	int64_t timeout_ms = -1;
	bool wait = command_flag(command, "wait");
	int status = command_duration(command, "timeout", &timeout_ms);
	if (status != STATUS_OK)
		return status;
	if (wait) {
		interrupt_say(arena_printf(&command->arena, "\nreprise: interrupted; the run goes on: reprise result %s --wait\n", id));
		status = run_wait(command, id, timeout_ms, "output", &run);
	} else {
		status = command_get(command, path_of(command, "/v1/runs/", id, "?include=output"), &run);
	}
	if (status != STATUS_OK)
		return status;
	int outcome = run_exit_status(run);
	if (outcome < 0)
		return command_fail(command, STATUS_ERROR, arena_printf(&command->arena, "wait for it with: reprise result %s --wait", id), "run %s has no result yet: it is %s", id,
				    json_get_text(run, "status"));
	if (outcome != STATUS_OK) {
		run_print_error(command, run);
		if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL) {
			const struct json *error = json_get(run, "error");
			output_json(&command->output, error != NULL ? error : json_null(&command->arena));
		} else if (!json_is(json_get(run, "error"), JSON_OBJECT)) {
			output_note(&command->output, "run %s was %s", id, outcome == STATUS_KILLED ? "killed" : json_get_text(run, "status"));
		}
		/* Without --wait or --exit-status the status says whether the command worked: there is no output to give. */
		return wait || command_flag(command, "exit-status") ? outcome : STATUS_ERROR;
	}
	const struct json *result = json_get(run, "output");
	if (command->output.format == FORMAT_TEXT && json_is(result, JSON_STRING)) {
		output_line(&command->output, "%s", result->string.text);
		return STATUS_OK;
	}
	output_json(&command->output, result != NULL ? result : json_null(&command->arena));
	return STATUS_OK;
}
