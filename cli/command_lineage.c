/* reprise retry: go on with runs that have faulted. */
#include "cli/command.h"

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
		if (runs[i] != NULL && (status = run_show_outcome(command, ids[i], runs[i], timeout_ms)) != STATUS_OK)
			worst = status > worst ? status : worst;
	return worst;
}
