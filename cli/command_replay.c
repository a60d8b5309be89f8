/* reprise replay: decide runs again from their journal alone, no model called; 20 when a decision differs. */
#include <string.h>

#include "cli/command.h"

struct totals {
	size_t runs, replayed, different, failed; /* runs: that there were when it began */
	double entries;
	int failure; /* exit status of the first that could not be replayed */
};

static const char *shown(struct command *command, const struct json *value)
{
	return value == NULL ? "nothing" : value_text(&command->arena, value);
}

/* Only the members that are not the same: an entry is long, and mostly one digest differs. */
static void print_members(struct command *command, const struct json *expected, const struct json *got)
{
	const struct json *both[] = {expected, got};
	for (size_t side = 0; side < 2; side++)
		for (size_t i = 0; json_is(both[side], JSON_OBJECT) && i < json_count(both[side]); i++) {
			const char *name = both[side]->object.members[i].name;
			const struct json *was = json_get(expected, name), *is = json_get(got, name);
			if ((side == 1 && was != NULL) || (was != NULL && is != NULL && json_equal(was, is)))
				continue;
			output_note(&command->output, "  %s: expected %s, got %s", shown(command, json_text(&command->arena, name)), shown(command, was), shown(command, is));
		}
}

static void print_difference(struct command *command, const char *id, const struct json *answer)
{
	const struct json *difference = json_get(answer, "difference"), *expected = json_get(difference, "expected"), *got = json_get(difference, "got");
	const char *reference = json_get_text(difference, "reference"), *why = json_get_text(difference, "why");
	double line = json_get_number(difference, "line", 0);
	struct arena *arena = &command->arena;
	output_note(&command->output, "run %s: replay differs at entry %.0f%s%s%s", id, json_get_number(difference, "seq", -1),
		    reference != NULL ? arena_printf(arena, ", %s", value_text(arena, json_get(difference, "reference"))) : "",
		    line > 0 ? arena_printf(arena, " (line %.0f, column %.0f of the definition)", line, json_get_number(difference, "column", 1)) : "", why != NULL ? arena_printf(arena, ": %s", value_text(arena, json_get(difference, "why"))) : "");
	const char *kinds[] = {shown(command, json_get(expected, "kind")), shown(command, json_get(got, "kind"))};
	if (strcmp(kinds[0], kinds[1]) != 0)
		output_note(&command->output, "  kind: expected %s, got %s", kinds[0], kinds[1]);
	else
		output_note(&command->output, "  %s", kinds[0]);
	print_members(command, json_get(expected, "data"), json_get(got, "data"));
	output_note(&command->output, "  -o json shows both entries whole; journal verify says whether the journal itself is damaged");
}

static int replay_one(struct command *command, const char *id, struct totals *totals)
{
	struct json *answer;
	int status = command_post(command, path_of(command, "/v1/runs/", id, "/replay"), NULL, &answer);
	if (status != STATUS_OK)
		return status;
	bool equal = json_get_boolean(answer, "equal", false);
	totals->replayed++;
	totals->different += !equal;
	totals->entries += json_get_number(answer, "entries", 0);
	if (command->output.format == FORMAT_IDS) {
		output_line(&command->output, "%s", id);
	} else if (command->output.format != FORMAT_TEXT) {
		struct json *result = json_copy(&command->arena, answer);
		json_set_text(&command->arena, result, "run", id);
		output_json(&command->output, result);
	} else if (equal && !command_flag(command, "all")) {
		output_line(&command->output, "run %s: replay gives the same %.0f entries, no model was called", id, json_get_number(answer, "entries", 0));
	}
	if (!equal) {
		progress_clear(&command->output);
		print_difference(command, id, answer);
	}
	return equal ? STATUS_OK : STATUS_REPLAY_DIFFERS;
}

/* One that cannot be replayed, removed meanwhile or with a value that was erased, does not keep the others from it. */
static int replay_page(struct command *command, const struct json *runs, struct totals *totals)
{
	for (size_t i = 0; json_is(runs, JSON_ARRAY) && i < json_count(runs); i++) {
		struct arena kept = command->arena;
		char text[80];
		arena_init(&command->arena);
		int status = replay_one(command, json_get_text(json_at(runs, i), "id"), totals);
		arena_close(&command->arena);
		command->arena = kept;
		if (status == STATUS_UNREACHABLE || status == STATUS_INTERRUPTED)
			return status;
		if (status != STATUS_OK && status != STATUS_REPLAY_DIFFERS && totals->failed++ == 0)
			totals->failure = status;
		snprintf(text, sizeof text, "%zu runs replayed", totals->replayed);
		progress_show(&command->output, totals->replayed, totals->runs, text);
	}
	return STATUS_OK;
}

static int get_runs(struct command *command, const char *route, const char *status_word, const char *since, const char *limit, const char *cursor, struct json **answer)
{
	struct buffer path;
	buffer_init(&path, 4096);
	buffer_add_text(&path, route);
	query_add(&path, "status", status_word);
	query_add(&path, "since", since);
	query_add(&path, "limit", limit);
	query_add(&path, "cursor", cursor);
	int status = command_get(command, buffer_text(&path), answer);
	buffer_close(&path);
	return status;
}

static int replay_all(struct command *command)
{
	const char *cursor = NULL, *since, *status_word;
	struct totals totals = {.failure = STATUS_OK};
	struct json *answer;
	int status = run_status_option(command, &status_word);
	if (status != STATUS_OK || (status = command_time(command, "since", &since)) != STATUS_OK ||
	    (status = get_runs(command, "/v1/runs/count", status_word, since, NULL, NULL, &answer)) != STATUS_OK)
		return status;
	totals.runs = (size_t)json_get_number(answer, "count", 0);
	do {
		status = get_runs(command, "/v1/runs", status_word, since, arena_printf(&command->arena, "%d", COMMAND_PAGE), cursor, &answer);
		if (status == STATUS_OK)
			status = replay_page(command, json_get(answer, "runs"), &totals);
		if (status != STATUS_OK)
			return status;
		cursor = json_count(json_get(answer, "runs")) == 0 ? NULL : json_get_text(answer, "cursor");
	} while (cursor != NULL);
	progress_clear(&command->output);
	output_note(&command->output, "%zu runs replayed, %.0f entries, no model was called: %zu differ%s", totals.replayed, totals.entries, totals.different,
		    totals.failed > 0 ? arena_printf(&command->arena, ", %zu could not be replayed", totals.failed) : "");
	return totals.different > 0 ? STATUS_REPLAY_DIFFERS : totals.failure;
}

int command_replay(struct command *command)
{
	if (command_flag(command, "all"))
		return replay_all(command);
	if (command->argument_count == 0)
		return command_fail(command, STATUS_USAGE, "usage: reprise replay RUN… | --all", "replay: which run?");
	const char **ids;
	size_t count;
	struct totals totals = {.failure = STATUS_OK};
	int status = command_read_ids(command, 0, &ids, &count), worst = STATUS_OK;
	for (size_t i = 0; status == STATUS_OK && i < count; i++) {
		int one = replay_one(command, ids[i], &totals);
		if (one != STATUS_OK && one != STATUS_REPLAY_DIFFERS)
			return one;
		worst = one != STATUS_OK ? one : worst;
	}
	return status != STATUS_OK ? status : worst;
}
