/* reprise provenance show | diff: configuration records, field by field. `runtime probe` prints its record the same way. */
#include <string.h>

#include "cli/command.h"

static const struct {
	const char *letter, *title;
} groups[] = {{"A", "runtime"}, {"B", "model"}, {"C", "launch"}, {"D", "machine"}, {"E", "fingerprint"}, {"G", "observed beside it"}};

static bool is_known(const struct json *field)
{
	return json_get(field, "value") != NULL && json_get(field, "value")->type != JSON_NULL;
}

/* What was asked for, or said, where the value is another. */
static const char *beside(struct arena *arena, const struct json *field)
{
	static const char *const weaker[] = {"declared", "launched", "reported"};

	for (size_t i = 0; i < sizeof weaker / sizeof *weaker; i++)
		if (json_get(field, weaker[i]) != NULL)
			return arena_printf(arena, " (%s: %s)", weaker[i], value_text(arena, json_get(field, weaker[i])));
	return "";
}

void command_print_record(struct command *command, const struct json *record)
{
	static const struct table_column columns[] = {{"FIELD", 0, false}, {"BASIS", 0, false}, {"SOURCE", 48, false}, {"VALUE", 0, false}};
	struct arena *arena = &command->arena;
	struct buffer unknown;
	struct table table;

	buffer_init(&unknown, 64 << 10);
	table_init(&table, arena, columns, sizeof columns / sizeof *columns);
	for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
		const struct json *fields = json_get(record, groups[g].letter);

		for (size_t i = 0; i < json_count(fields); i++) {
			const struct json_member *field = &fields->object.members[i];
			const char *name = arena_printf(arena, "%s.%s", groups[g].letter, field->name);

			if (!is_known(field->value)) {
				buffer_printf(&unknown, "%s%s", unknown.len > 0 ? ", " : "", name);
				continue;
			}
			const char *cells[] = {name, json_get_text(field->value, "basis"), json_get_text(field->value, "source"),
					       arena_printf(arena, "%s%s", value_text(arena, json_get(field->value, "value")), beside(arena, field->value))};
			table_add(&table, cells);
		}
	}
	table_print(&table, &command->output);
	table_close(&table);
	if (unknown.len > 0)
		output_line(&command->output, "not known: %s", buffer_text(&unknown));
	buffer_close(&unknown);
}

int command_provenance_show(struct command *command)
{
	struct json *answer;
	int status = command_get(command, path_of(command, "/v1/provenance/", command->arguments[0], ""), &answer);

	if (status != STATUS_OK)
		return status;
	if (command->output.format == FORMAT_TEXT)
		command_print_record(command, json_get(answer, "record"));
	else if (command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s", json_get_text(answer, "digest"));
	else
		output_json(&command->output, answer);
	return STATUS_OK;
}

static void difference_cells(struct command *command, const struct json *item, const char **cells)
{
	struct arena *arena = &command->arena;

	cells[0] = json_get_text(item, "field");
	cells[1] = arena_printf(arena, "%s -> %s", json_get_text(json_get(item, "basis"), "old"), json_get_text(json_get(item, "basis"), "new"));
	cells[2] = value_text(arena, json_get(item, "old"));
	cells[3] = value_text(arena, json_get(item, "new"));
}

int command_provenance_diff(struct command *command)
{
	static const struct table_column columns[] = {{"FIELD", 0, false}, {"BASIS", 0, false}, {"OLD", 60, false}, {"NEW", 0, false}};
	struct json *answer;
	int status = command_get(command, path_of(command, path_of(command, "/v1/provenance/", command->arguments[0], "?against="), command->arguments[1], ""), &answer);

	if (status != STATUS_OK)
		return status;
	if (command->output.format == FORMAT_TEXT && json_count(json_get(answer, "differences")) == 0)
		output_line(&command->output, "the two records have the same values");
	else
		command_print_list(command, answer, "differences", columns, sizeof columns / sizeof *columns, difference_cells);
	return STATUS_OK;
}
