/* reprise retry: go on with runs that have faulted. */
#include "cli/command.h"

/* Shows one run that was begun or gone on with; waits for it first where that is asked for. Its outcome is the status then. */
static int show_outcome(struct command *command, const char *id, struct json *run, int64_t timeout_ms)
{
	bool wait = command_flag(command, "wait");
	int status = STATUS_OK;

	if (wait) {
		const char *include = command->output.format == FORMAT_TEXT ? "output" : "all";
		if ((status = run_wait(command, id, timeout_ms, include, &run)) != STATUS_OK)
			return status;
		status = run_exit_status(run);
	}
	switch (command->output.format) {
	case FORMAT_JSON:
	case FORMAT_JSONL:
		output_json(&command->output, run);
		break;
	case FORMAT_IDS:
		output_line(&command->output, "%s", id);
		break;
	case FORMAT_TEXT:
		if (wait)
			run_print(command, run);
		else
			output_line(&command->output, "%s  %s", id, json_get_text(run, "status"));
		break;
	}
	if (status != STATUS_OK)
		run_print_error(command, run);
	return status;
}

static int read_wait(struct command *command, int64_t *timeout_ms)
{
	*timeout_ms = -1;
	if (!command_flag(command, "wait") && command_option(command, "timeout") != NULL)
		return command_fail(command, STATUS_USAGE, NULL, "--timeout goes with --wait: it limits the waiting, not the run");
	return command_duration(command, "timeout", timeout_ms);
}

int command_retry(struct command *command)
{
	struct json *body = json_object(&command->arena);
	const char **ids, *reason = command_option(command, "reason");
	size_t count;
	int64_t timeout_ms;
	int worst = STATUS_OK, status = read_wait(command, &timeout_ms);

	if (status != STATUS_OK || (status = command_read_ids(command, 0, &ids, &count)) != STATUS_OK)
		return status;
	if (reason != NULL && !utf8_valid(bytes_text(reason), NULL))
		return command_fail(command, STATUS_USAGE, NULL, "--reason: not UTF-8");
	json_set_text(&command->arena, body, "reason", reason);
	struct json **runs = arena_zero(&command->arena, (count + 1) * sizeof *runs);
	for (size_t i = 0; i < count; i++) { /* first all are asked for, then waited for: they go on side by side */
		status = command_post(command, path_of(command, "/v1/runs/", ids[i], "/retry"), body, &runs[i]);
		if (status == STATUS_UNREACHABLE || status == STATUS_DENIED)
			return status;
		if (status == STATUS_OK)
			continue;
		runs[i] = NULL; /* one that cannot be gone on with does not hold up the others */
		worst = status > worst ? status : worst;
	}
	for (size_t i = 0; i < count; i++)
		if (runs[i] != NULL && (status = show_outcome(command, ids[i], runs[i], timeout_ms)) != STATUS_OK)
			worst = status > worst ? status : worst;
	return worst;
}
