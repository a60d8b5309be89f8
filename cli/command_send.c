/* reprise send: one CloudEvent to the daemon. What one need not think about is filled in here, the id before all, so that sending it again
 * is safe. */
#include "cli/command.h"
#include "workflow/language/cloud_event.h"

static const char default_source[] = "urn:reprise:send";

int command_send_event(struct command *command)
{
	struct arena *arena = &command->arena;
	struct json *value, *answer;
	struct cloud_event event;
	struct error error;
	struct cloud_event_defaults defaults = {.id = new_run_id(command), .source = default_source, .time_ms = clock_wall_ms()};

	int status = command_read_value(command, "EVENT", command->arguments[0], &value);
	if (status != STATUS_OK)
		return status;
	if (cloud_event_make(arena, value, &defaults, &event, &error) != 0)
		return command_fail(command, STATUS_USAGE, json_get_text(value, "type") ? NULL : "an event needs a `type`, a text; `data` is what it brings", "%s", error.message);
	if ((status = command_post(command, "/v1/events", event.envelope, &answer)) != STATUS_OK)
		return status;
	switch (command->output.format) {
	case FORMAT_JSON:
	case FORMAT_JSONL:
		output_json(&command->output, answer);
		break;
	case FORMAT_IDS:
		output_line(&command->output, "%s", event.id);
		break;
	case FORMAT_TEXT:
		output_line(&command->output, "%s  %s%s", event.id, event.type, json_get_boolean(answer, "duplicate", false) ? "  known already" : "");
		break;
	}
	return STATUS_OK;
}
