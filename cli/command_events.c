/* reprise events: the journal entries of one run, also live. */
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"

static bool print_entry(void *arg, const struct json *entry)
{
	struct command *command = arg;
	if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL) {
		/* An array cannot be closed while it grows: entries are one a line in both. */
		enum output_format format = command->output.format;
		command->output.format = FORMAT_JSONL;
		output_json(&command->output, entry);
		command->output.format = format;
	} else if (command->output.format == FORMAT_IDS) {
		output_line(&command->output, "%.0f", json_get_number(entry, "seq", 0));
	} else {
		struct arena arena;
		arena_init(&arena);
		const struct json *data = json_get(entry, "data");
		const char *step = json_get_text(data, "stepId"), *class = json_get_text(data, "class"), *verdict = json_get_text(data, "verdict");
		double attempt = json_get_number(data, "attempt", 0), event = json_get_number(data, "eventSeq", 0);
		const char *number = attempt > 0 ? arena_printf(&arena, "  attempt %.0f", attempt) : event > 0 ? arena_printf(&arena, "  event %.0f", event) : "";
		output_line(&command->output, "%8.0f  %s  %-*s%s%s%s%s", json_get_number(entry, "seq", 0),
			    command->output.time_format == TIME_RELATIVE ? json_get_text(entry, "ts") : output_time(&command->output, &arena, json_get_text(entry, "ts")),
			    step == NULL && class == NULL && verdict == NULL ? 0 : 19, json_get_text(entry, "kind"), step == NULL ? "" : step, number,
			    class != NULL || verdict != NULL ? "  " : "", verdict != NULL ? verdict : class != NULL ? class : "");
		arena_close(&arena);
	}
	fflush(stdout);
	return true;
}

int command_events(struct command *command)
{
	struct arena *arena = &command->arena;
	const char *id = command->arguments[0];
	uint64_t after = 0;
	bool has_after = command_option(command, "after") != NULL;
	int status = command_number(command, "after", 1ull << 53, &after);
	if (status != STATUS_OK)
		return status;
	if (command_flag(command, "follow")) {
		/* Behind the last entry of a run that has ended nothing will ever come: its entries are all there is. */
		struct json *run = NULL;
		if (has_after && (status = command_get(command, path_of(command, "/v1/runs/", id, ""), &run)) != STATUS_OK)
			return status;
		if (!run_ended(run))
			return run_follow(command, id, after, has_after, print_entry, command);
	}

	struct json *all = json_array(arena);
	bool whole = command->output.format == FORMAT_JSON && !command_flag(command, "follow");
	for (double next = has_after ? (double)after : -1;;) {
		struct json *answer;
		const char *path = next < 0 ? path_of(command, "/v1/runs/", id, "/events")
					    : path_of(command, "/v1/runs/", id, arena_printf(arena, "/events?after=%.0f", next));
		if ((status = command_get(command, path, &answer)) != STATUS_OK)
			return status;
		const struct json *events = json_get(answer, "events");
		for (size_t i = 0; json_is(events, JSON_ARRAY) && i < json_count(events); i++) {
			if (whole)
				json_add(arena, all, json_at(events, i));
			else
				print_entry(command, json_at(events, i));
		}
		double on = json_get_number(answer, "next", -1);
		if (json_count(events) == 0 || on <= next)
			break;
		next = on;
	}
	if (whole) {
		struct json *result = json_object(arena);
		json_set(arena, result, "events", all);
		output_json(&command->output, result);
	}
	return STATUS_OK;
}
