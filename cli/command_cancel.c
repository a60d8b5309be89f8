/* reprise cancel and reprise kill: end runs before their time. */
#include <string.h>

#include "cli/command.h"

static int end_runs(struct command *command, const char *suffix, const char *verb)
{
	const char **ids, *reason = command_option(command, "reason");
	size_t count;
	int worst = STATUS_OK, status = command_read_ids(command, 0, &ids, &count);
	if (status != STATUS_OK)
		return status;
	if (reason != NULL && !utf8_valid(bytes_text(reason), NULL))
		return command_fail(command, STATUS_USAGE, NULL, "--reason: not UTF-8");
	if (count > 0 && !command_confirm(command, "%c%s %zu run%s: %s%s?", verb[0] - 32, verb + 1, count, count == 1 ? "" : "s", ids[0], count == 1 ? "" : " …"))
		return command_fail(command, STATUS_ERROR, NULL, "nothing was ended");

	struct json *body = json_object(&command->arena);
	json_set_text(&command->arena, body, "reason", reason);
	for (size_t i = 0; i < count; i++) {
		struct json *answer;
		status = command_post(command, path_of(command, "/v1/runs/", ids[i], suffix), body, &answer);
		/* One run that is gone or has ended does not spare the others. */
		if (status == STATUS_UNREACHABLE || status == STATUS_DENIED)
			return status;
		if (status != STATUS_OK) {
			worst = status;
			continue;
		}
		if (command->output.format == FORMAT_IDS)
			output_line(&command->output, "%s", ids[i]);
		else if (command->output.format == FORMAT_TEXT)
			output_line(&command->output, "%s  %s", ids[i], json_get_text(answer, "status") != NULL ? json_get_text(answer, "status") : "asked for");
		else if (answer != NULL)
			output_json(&command->output, answer);
	}
	return worst;
}

int command_cancel(struct command *command)
{
	return end_runs(command, "/cancel", "cancel");
}

int command_kill(struct command *command)
{
	return end_runs(command, "/kill", "kill");
}
