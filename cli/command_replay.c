/* reprise replay: decide a run again from its journal alone, no model called; 20 on the first difference. */
#include <string.h>

#include "cli/command.h"

static void print_difference(struct command *command, const char *id, const struct json *answer)
{
	const struct json *difference = json_get(answer, "difference");
	double line = json_get_number(difference, "line", 0);
	output_note(&command->output, "run %s: replay differs at entry %.0f%s", id, json_get_number(difference, "seq", -1),
		    line > 0 ? arena_printf(&command->arena, " (line %.0f of the definition)", line) : "");
	output_note(&command->output, "  expected: %s", value_text(&command->arena, json_get(difference, "expected")));
	output_note(&command->output, "  got:      %s", value_text(&command->arena, json_get(difference, "got")));
}

static int replay_one(struct command *command, const char *id)
{
	struct json *answer;
	int status = command_post(command, path_of(command, "/v1/runs/", id, "/replay"), NULL, &answer);
	if (status != STATUS_OK)
		return status;
	bool equal = json_get_boolean(answer, "equal", false);
	if (command->output.format == FORMAT_IDS) {
		output_line(&command->output, "%s", id);
	} else if (command->output.format != FORMAT_TEXT) {
		struct json *result = json_copy(&command->arena, answer);
		json_set_text(&command->arena, result, "run", id);
		output_json(&command->output, result);
	} else if (equal) {
		output_line(&command->output, "run %s: replay gives the same %.0f entries, no model was called", id, json_get_number(answer, "entries", 0));
	}
	if (!equal)
		print_difference(command, id, answer);
	return equal ? STATUS_OK : STATUS_REPLAY_DIFFERS;
}

int command_replay(struct command *command)
{
	if (!command_flag(command, "all")) {
		if (command->argument_count == 0)
			return command_fail(command, STATUS_USAGE, "usage: reprise replay RUN… | --all", "replay: which run?");
		const char **ids;
		size_t count;
		int status = command_read_ids(command, 0, &ids, &count), worst = STATUS_OK;
		for (size_t i = 0; status == STATUS_OK && i < count; i++) {
			int one = replay_one(command, ids[i]);
			if (one != STATUS_OK && one != STATUS_REPLAY_DIFFERS)
				return one;
			worst = one != STATUS_OK ? one : worst;
		}
		return status != STATUS_OK ? status : worst;
	}
	const char *cursor = NULL;
	size_t replayed = 0, different = 0;
	do {
		struct buffer path;
		struct json *answer;
		buffer_init(&path, 4096);
		buffer_add_text(&path, "/v1/runs");
		query_add(&path, "limit", arena_printf(&command->arena, "%d", COMMAND_PAGE));
		query_add(&path, "cursor", cursor);
		int status = command_get(command, buffer_text(&path), &answer);
		buffer_close(&path);
		if (status != STATUS_OK)
			return status;
		const struct json *runs = json_get(answer, "runs");
		for (size_t i = 0; json_is(runs, JSON_ARRAY) && i < json_count(runs); i++, replayed++) {
			status = replay_one(command, json_get_text(json_at(runs, i), "id"));
			if (status != STATUS_OK && status != STATUS_REPLAY_DIFFERS)
				return status;
			different += status != STATUS_OK;
		}
		cursor = json_count(runs) == 0 ? NULL : json_get_text(answer, "cursor");
	} while (cursor != NULL);
	output_note(&command->output, "%zu runs replayed, %zu differ", replayed, different);
	return different > 0 ? STATUS_REPLAY_DIFFERS : STATUS_OK;
}
