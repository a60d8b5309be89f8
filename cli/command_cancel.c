/* reprise cancel, kill, pause, resume: what an operator does to runs under way. */
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "workflow/base/time.h"

/* Ending an ended run changes nothing and is no error, but it is not what was asked for either. A run that had been
 * cancelled before is told from one cancelled now by its time, where the daemon's clock is ours. */
static bool ended_before(struct command *command, const struct json *run, int64_t began_ms)
{
	const char *status = json_get_text(run, "status"), *ended = json_get_text(run, "endedAt");
	int64_t ended_ms;
	if (!run_ended(run))
		return false;
	return strcmp(status, "cancelled") != 0 || (command->client.socket_path != NULL && ended != NULL && time_parse(ended, &ended_ms) && ended_ms < began_ms);
}

struct control_verb {
	const char *name, *nothing; /* what is said where the question is answered with no */
	bool ends, asks;
};

/* One line, or one JSON object, for each id, a problem where it failed; the worst outcome is the exit status. */
static int control_runs(struct command *command, const struct control_verb *verb)
{
	const char **ids, *reason = command_option(command, "reason");
	char suffix[16];
	size_t count;
	int worst = STATUS_OK, status = command_read_ids(command, 0, &ids, &count);
	if (status != STATUS_OK)
		return status;
	if (reason != NULL && !utf8_valid(bytes_text(reason), NULL))
		return command_fail(command, STATUS_USAGE, NULL, "--reason: not UTF-8");
	if (verb->asks && count > 0 &&
	    !command_confirm(command, "%c%s %zu run%s: %s%s?", verb->name[0] - 32, verb->name + 1, count, count == 1 ? "" : "s", ids[0], count == 1 ? "" : " …"))
		return command_fail(command, STATUS_ERROR, NULL, "%s", verb->nothing);

	struct json *body = json_object(&command->arena);
	json_set_text(&command->arena, body, "reason", reason);
	snprintf(suffix, sizeof suffix, "/%s", verb->name);
	int64_t began_ms = clock_wall_ms();
	for (size_t i = 0; i < count; i++) {
		struct json *answer;
		status = command_post(command, path_of(command, "/v1/runs/", ids[i], suffix), body, &answer);
		/* One run that is gone or has ended does not spare the others. */
		if (status == STATUS_UNREACHABLE || status == STATUS_DENIED)
			return status;
		if (status != STATUS_OK) {
			worst = status > worst ? status : worst;
			continue;
		}
		if (command->output.format == FORMAT_IDS)
			output_line(&command->output, "%s", ids[i]);
		else if (command->output.format == FORMAT_TEXT)
			output_line(&command->output, verb->ends && ended_before(command, answer, began_ms) ? "%s  had already ended (%s)" : "%s  %s", ids[i],
				    json_get_text(answer, "status") != NULL ? json_get_text(answer, "status") : "asked for");
		else if (answer != NULL)
			output_json(&command->output, answer);
	}
	return worst;
}

int command_cancel(struct command *command)
{
	return control_runs(command, &(struct control_verb){"cancel", "nothing was ended", true, true});
}

int command_kill(struct command *command)
{
	return control_runs(command, &(struct control_verb){"kill", "nothing was ended", true, true});
}

int command_pause(struct command *command)
{
	return control_runs(command, &(struct control_verb){.name = "pause"});
}

int command_resume(struct command *command)
{
	return control_runs(command, &(struct control_verb){.name = "resume"});
}
