/* reprise list and reprise count: which runs there are. */
#include <string.h>

#include "cli/command.h"

/* The filters that list and count share. */
static int add_filters(struct command *command, struct buffer *path)
{
	const char *since, *until, *status_word;
	int status;
	if ((status = run_status_option(command, &status_word)) != STATUS_OK || (status = command_time(command, "since", &since)) != STATUS_OK ||
	    (status = command_time(command, "until", &until)) != STATUS_OK)
		return status;
	query_add(path, "status", status_word);
	query_add(path, "workflow", command_option(command, "workflow"));
	query_add(path, "parent", command_option(command, "parent"));
	query_add(path, "forkedFrom", command_option(command, "forked-from"));
	query_add(path, "label", command_option(command, "label"));
	query_add(path, "since", since);
	query_add(path, "until", until);
	return STATUS_OK;
}

static void print_runs(struct command *command, const struct json *runs)
{
	static const struct table_column columns[] = {{"ID", 0, false}, {"STATUS", 0, false}, {"CREATED", 0, false}, {"TOOK", 0, true}, {"WORKFLOW", 0, false}, {"REASON", 0, false}};
	const char *asked = command_option(command, "status");
	bool tells_why = asked != NULL && strcmp(asked, "suspended") == 0;
	struct arena *arena = &command->arena;
	struct table table;
	table_init(&table, arena, columns, sizeof columns / sizeof *columns - !tells_why);
	for (size_t i = 0; json_is(runs, JSON_ARRAY) && i < json_count(runs); i++) {
		const struct json *run = json_at(runs, i);
		const char *cells[] = {json_get_text(run, "id"), json_get_text(run, "status"), output_time(&command->output, arena, json_get_text(run, "createdAt")),
				       run_wall_text(command, run), run_workflow_text(command, run), tells_why ? json_get_text(run, "reason") : NULL};
		table_add(&table, cells);
		table_colour(&table, 1, status_colour(cells[1]));
	}
	table_print(&table, &command->output);
	table_close(&table);
}

int command_list(struct command *command)
{
	struct arena *arena = &command->arena;
	uint64_t limit = COMMAND_LIST_DEFAULT;
	int status = command_number(command, "limit", UINT64_MAX / 2, &limit);
	if (status != STATUS_OK)
		return status;
	if (command_flag(command, "all"))
		limit = UINT64_MAX / 2;

	struct json *all = json_array(arena);
	char cursor[512] = "";
	uint64_t given = 0;
	bool streamed = command->output.format == FORMAT_IDS || command->output.format == FORMAT_JSONL;
	do {
		/* Pages that are printed as they come are not kept: a list of any length takes the memory of one page. */
		struct arena kept = *arena;
		if (streamed)
			arena_init(arena);
		struct buffer path;
		struct json *answer;
		buffer_init(&path, 65536);
		buffer_add_text(&path, "/v1/runs");
		status = add_filters(command, &path);
		uint64_t page = limit - given < COMMAND_PAGE ? limit - given : COMMAND_PAGE;
		query_add(&path, "limit", arena_printf(arena, "%llu", (unsigned long long)page));
		query_add(&path, "cursor", cursor[0] == '\0' ? NULL : cursor);
		if (status == STATUS_OK)
			status = command_get(command, buffer_text(&path), &answer);
		buffer_close(&path);
		const struct json *runs = status == STATUS_OK ? json_get(answer, "runs") : NULL;
		const char *next = status == STATUS_OK ? json_get_text(answer, "cursor") : NULL;
		snprintf(cursor, sizeof cursor, "%s", next == NULL || json_count(runs) == 0 ? "" : next);
		for (size_t i = 0; json_is(runs, JSON_ARRAY) && i < json_count(runs) && given < limit; i++, given++) {
			struct json *run = json_at(runs, i);
			if (command->output.format == FORMAT_IDS)
				output_line(&command->output, "%s", json_get_text(run, "id"));
			else if (command->output.format == FORMAT_JSONL)
				output_json(&command->output, run);
			else
				json_add(arena, all, run);
		}
		if (streamed) {
			arena_close(arena);
			*arena = kept;
		}
		if (status != STATUS_OK)
			return status;
	} while (cursor[0] != '\0' && given < limit);

	if (command->output.format == FORMAT_JSON) {
		struct json *result = json_object(arena);
		json_set(arena, result, "runs", all);
		json_set(arena, result, "cursor", cursor[0] == '\0' ? json_null(arena) : json_text(arena, cursor));
		output_json(&command->output, result);
	} else if (command->output.format == FORMAT_TEXT) {
		print_runs(command, all);
		if (cursor[0] != '\0')
			output_note(&command->output, "showing %llu; --all lists every one", (unsigned long long)given);
	}
	return STATUS_OK;
}

int command_count(struct command *command)
{
	struct buffer path;
	struct json *answer;
	buffer_init(&path, 65536);
	buffer_add_text(&path, "/v1/runs/count");
	int status = add_filters(command, &path);
	if (status == STATUS_OK)
		status = command_get(command, buffer_text(&path), &answer);
	buffer_close(&path);
	if (status != STATUS_OK)
		return status;
	if (command->output.format == FORMAT_TEXT || command->output.format == FORMAT_IDS)
		output_line(&command->output, "%.0f", json_get_number(answer, "count", 0));
	else
		output_json(&command->output, answer);
	return STATUS_OK;
}
