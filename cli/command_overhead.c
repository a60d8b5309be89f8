/* reprise overhead: where the time outside the activities went (semantics.md 8). */
#include <string.h>

#include "cli/command.h"

static void print_one(struct command *command, const struct json *run)
{
	static const struct table_column columns[] = {{"STAGE", 0, false}, {"SUM OF ALL ATTEMPTS", 0, true}, {"", 0, false}};
	const struct json *overhead = json_get(run, "overhead");
	struct arena *arena = &command->arena;
	struct table table;

	output_line(&command->output, "run       %s  %s", json_get_text(run, "id"), json_get_text(run, "status"));
	output_line(&command->output, "wall      %s", text_milliseconds(arena, json_get_number(overhead, "wallMs", 0)));
	output_line(&command->output, "activity  %s", text_milliseconds(arena, json_get_number(overhead, "activityMs", 0)));
	output_line(&command->output, "queued    %s", text_milliseconds(arena, json_get_number(overhead, "queuedMs", 0)));
	for (size_t i = 0; i < json_count(json_get(overhead, "waitedMs")); i++) {
		const struct json_member *member = &json_get(overhead, "waitedMs")->object.members[i];
		output_line(&command->output, "          for %s: %s in all attempts", member->name, text_milliseconds(arena, json_is(member->value, JSON_NUMBER) ? member->value->number : 0));
	}
	output_line(&command->output, "overhead  %s", text_milliseconds(arena, json_get_number(overhead, "overheadMs", 0)));
	if (json_get_boolean(overhead, "withoutLastCommit", false))
		output_line(&command->output, "          (as journaled: without the commit of the run's end)");
	table_init(&table, arena, columns, 3);
	for (size_t i = 0; i < STAGE_COUNT; i++) {
		const struct json *stage = json_get(json_get(overhead, "stages"), stage_names[i]);
		if (stage == NULL)
			continue;
		bool activity = strcmp(stage_names[i], "connect") == 0 || strcmp(stage_names[i], "firstToken") == 0 || strcmp(stage_names[i], "generation") == 0;
		const char *cells[] = {stage_names[i], text_milliseconds(arena, json_is(stage, JSON_NUMBER) ? stage->number : 0), activity ? "activity" : strcmp(stage_names[i], "queue") == 0 ? "waiting" : "overhead"};
		table_add(&table, cells);
		table_colour(&table, 2, COLOUR_DIM);
	}
	if (table.row_count > 0) {
		table_print(&table, &command->output);
		output_line(&command->output, "Attempts that overlap count each for itself here, and once above.");
	}
	table_close(&table);
}

static int show_recent(struct command *command)
{
	static const struct table_column columns[] = {{"ID", 0, false}, {"STATUS", 0, false}, {"WALL", 0, true}, {"ACTIVITY", 0, true},
						      {"QUEUED", 0, true}, {"OVERHEAD", 0, true}, {"WORKFLOW", 0, false}};
	struct arena *arena = &command->arena;
	uint64_t limit = 20;
	struct json *answer, *all = json_array(arena);
	int status = command_number(command, "limit", COMMAND_PAGE, &limit);
	if (status != STATUS_OK || (status = command_get(command, arena_printf(arena, "/v1/runs?limit=%llu", (unsigned long long)limit), &answer)) != STATUS_OK)
		return status;
	struct table table;
	table_init(&table, arena, columns, sizeof columns / sizeof *columns);
	const struct json *runs = json_get(answer, "runs");
	for (size_t i = 0; json_is(runs, JSON_ARRAY) && i < json_count(runs); i++) {
		const char *id = json_get_text(json_at(runs, i), "id");
		struct json *run;
		if ((status = command_get(command, path_of(command, "/v1/runs/", id, ""), &run)) != STATUS_OK)
			break;
		const struct json *overhead = json_get(run, "overhead");
		struct json *row = json_object(arena);
		json_set_text(arena, row, "id", id);
		json_set(arena, row, "overhead", overhead == NULL ? json_null(arena) : json_copy(arena, overhead));
		json_add(arena, all, row);
		static const char *const figures[] = {"wallMs", "activityMs", "queuedMs", "overheadMs"};
		const char *cells[7] = {id, json_get_text(run, "status")};
		for (size_t f = 0; f < sizeof figures / sizeof *figures; f++)
			cells[2 + f] = run_has_overhead(run) ? text_milliseconds(arena, json_get_number(overhead, figures[f], 0)) : "-";
		cells[6] = run_workflow_text(command, run);
		table_add(&table, cells);
		table_colour(&table, 1, status_colour(cells[1]));
	}
	if (status == STATUS_OK && command->output.format == FORMAT_TEXT) {
		table_print(&table, &command->output);
	} else if (status == STATUS_OK && command->output.format == FORMAT_JSON) {
		struct json *result = json_object(arena);
		json_set(arena, result, "runs", all);
		output_json(&command->output, result);
	} else if (status == STATUS_OK) {
		for (size_t i = 0; i < json_count(all); i++) {
			if (command->output.format == FORMAT_IDS)
				output_line(&command->output, "%s", json_get_text(json_at(all, i), "id"));
			else
				output_json(&command->output, json_at(all, i));
		}
	}
	table_close(&table);
	return status;
}

int command_overhead(struct command *command)
{
	struct json *run;
	if (command->argument_count == 0)
		return show_recent(command);
	int status = command_get(command, path_of(command, "/v1/runs/", command->arguments[0], ""), &run);
	if (status != STATUS_OK)
		return status;
	const struct json *overhead = json_get(run, "overhead");
	if (overhead == NULL)
		return command_fail(command, STATUS_ERROR, NULL, "run %s carries no overhead figures", command->arguments[0]);
	if (command->output.format == FORMAT_TEXT && !run_has_overhead(run))
		output_note(&command->output, "run %s has not ended, its figures come when it has", command->arguments[0]);
	else if (command->output.format == FORMAT_TEXT)
		print_one(command, run);
	else if (command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s", json_get_text(run, "id"));
	else
		output_json(&command->output, overhead);
	return STATUS_OK;
}
