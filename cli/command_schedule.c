/* reprise schedule list | show | pause | resume | trigger: workflows that start by themselves. */
#include <string.h>

#include "cli/command.h"

/* "on com.example.paid", "on all of com.example.paid, com.example.packed", "on any of * until com.example.done": the types of a strategy's filters, "*" for a filter
 * without one. */
static const char *events_text(struct arena *arena, const struct json *strategy)
{
	const struct json *one = json_get(strategy, "one"), *all = json_get(strategy, "all"), *filters = all != NULL ? all : json_get(strategy, "any");
	const char *text = "";
	size_t count = one != NULL ? 1 : json_count(filters);
	for (size_t i = 0; i < count; i++) {
		const char *type = json_get_text(json_get(one != NULL ? one : json_at(filters, i), "with"), "type");
		text = arena_printf(arena, "%s%s%s", text, i == 0 ? "" : ", ", type != NULL ? type : "*");
	}
	const struct json *until = json_get(strategy, "until");
	const char *end = until == NULL ? "" : json_is(until, JSON_STRING) ? until->string.text : events_text(arena, until) + strlen("on ");
	return arena_printf(arena, "on %s%s%s%s", one != NULL ? "" : all != NULL ? "all of " : "any of ", count == 0 ? "*" : text, until != NULL ? " until " : "", end);
}

/* "every 1h 30m", "cron 0 9 * * mon-fri", "after PT5M", "on com.example.paid". */
static const char *when_text(struct arena *arena, const struct json *schedule)
{
	static const char *const units[][2] = {{"days", "d"}, {"hours", "h"}, {"minutes", "m"}, {"seconds", "s"}, {"milliseconds", "ms"}};
	const struct json *value;
	const char *text;
	if (!json_is(schedule, JSON_OBJECT) || json_count(schedule) == 0)
		return NULL;
	text = schedule->object.members[0].name;
	value = schedule->object.members[0].value;
	if (json_is(value, JSON_STRING))
		return arena_printf(arena, "%s %s", text, value->string.text);
	if (strcmp(text, "on") == 0)
		return events_text(arena, value);
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (json_get(value, units[i][0]) != NULL)
			text = arena_printf(arena, "%s %.0f%s", text, json_get_number(value, units[i][0], 0), units[i][1]);
	return text;
}

static void schedule_cells(struct command *command, const struct json *item, const char **cells)
{
	struct arena *arena = &command->arena;
	cells[0] = json_get_text(item, "id");
	cells[1] = json_get_text(item, "status");
	cells[2] = when_text(arena, json_get(item, "schedule"));
	cells[3] = output_time(&command->output, arena, json_get_text(item, "nextAt"));
	cells[4] = output_time(&command->output, arena, json_get_text(item, "lastAt"));
	cells[5] = arena_printf(arena, "%.0f", json_get_number(item, "runs", 0));
	cells[6] = arena_printf(arena, "%.0f", json_get_number(item, "skipped", 0));
}

int command_schedule_list(struct command *command)
{
	static const struct table_column columns[] = {{"ID", 0, false},	  {"STATUS", 0, false}, {"WHEN", 40, false},  {"NEXT", 0, false},
						      {"LAST", 0, false}, {"RUNS", 0, true},	{"SKIPPED", 0, true}};
	struct json *answer;
	int status = command_get(command, "/v1/schedules", &answer);
	if (status != STATUS_OK)
		return status;
	if (command->output.format == FORMAT_TEXT && json_count(json_get(answer, "schedules")) == 0)
		output_note(&command->output, "no schedules; a definition with `schedule` makes one when it is added");
	else
		command_print_list(command, answer, "schedules", columns, sizeof columns / sizeof *columns, schedule_cells);
	return STATUS_OK;
}

static void print_schedule(struct command *command, const struct json *item)
{
	static const char *const lines[][2] = {{"id", NULL},	 {"status", NULL}, {"workflow", NULL}, {"schedule", "when"}, {"timezone", NULL},  {"overlap", NULL},
					       {"catchUp", "catch-up"}, {"nextAt", "next"}, {"lastAt", "last"}, {"lastRun", "last run"}, {"runs", NULL}, {"skipped", NULL},
					       {"skippedWhy", "skipped last"}, {"addedAt", "added"}};
	struct arena *arena = &command->arena;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		const char *name = lines[i][0];
		const struct json *value = json_get(item, name);
		if (value == NULL)
			continue;
		const char *text = strcmp(name, "workflow") == 0 ? run_workflow_text(command, item) :
				   strcmp(name, "schedule") == 0 ? when_text(arena, value) :
				   strlen(name) > 2 && strcmp(name + strlen(name) - 2, "At") == 0 ? output_time(&command->output, arena, value->string.text) :
				   value_text(arena, value);
		output_line(&command->output, "%-13s %s", lines[i][1] != NULL ? lines[i][1] : name, text);
	}
}

static int print_answer(struct command *command, const struct json *answer)
{
	if (command->output.format == FORMAT_TEXT)
		print_schedule(command, answer);
	else if (command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s", json_get_text(answer, "id"));
	else
		output_json(&command->output, answer);
	return STATUS_OK;
}

int command_schedule_show(struct command *command)
{
	struct json *answer;
	int status = command_get(command, path_of(command, "/v1/schedules/", command->arguments[0], ""), &answer);
	return status != STATUS_OK ? status : print_answer(command, answer);
}

int command_schedule_pause(struct command *command)
{
	struct json *answer, *body = json_object(&command->arena);
	const char *reason = command_option(command, "reason");
	if (reason != NULL && !utf8_valid(bytes_text(reason), NULL))
		return command_fail(command, STATUS_USAGE, NULL, "--reason: not UTF-8");
	json_set_text(&command->arena, body, "reason", reason);
	int status = command_post(command, path_of(command, "/v1/schedules/", command->arguments[0], "/pause"), body, &answer);
	return status != STATUS_OK ? status : print_answer(command, answer);
}

int command_schedule_resume(struct command *command)
{
	struct json *answer;
	int status = command_post(command, path_of(command, "/v1/schedules/", command->arguments[0], "/resume"), NULL, &answer);
	return status != STATUS_OK ? status : print_answer(command, answer);
}

/* One run now, beside what is due. */
int command_schedule_trigger(struct command *command)
{
	struct json *answer;
	int status = command_post(command, path_of(command, "/v1/schedules/", command->arguments[0], "/trigger"), NULL, &answer);
	if (status != STATUS_OK)
		return status;
	if (command->output.format == FORMAT_TEXT || command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s", json_get_text(answer, "run"));
	else
		output_json(&command->output, answer);
	return STATUS_OK;
}
