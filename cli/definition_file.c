/* Definition files: read, their `file:` resources inlined (semantics.md 5), checked here before they are sent. Start at
 * definition_check_file(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/jq.h"
#include "workflow/base/check.h"
#include "workflow/base/zone.h"
#include "workflow/language/file_resources.h"
#include "workflow/language/schedule.h"

/* Relative to the definition. */
static int read_resource(void *arg, struct arena *arena, const char *path, struct bytes *bytes, struct error *error)
{
	const char *folder = arg, *full = path[0] == '/' ? path : arena_printf(arena, "%s%s", folder, path);
	FILE *file = fopen(full, "rbe");
	struct buffer content;
	char block[65536];
	size_t got;
	if (file == NULL)
		return error_set(error, ERR_NOT_FOUND, "cannot open %.200s: %s", full, strerror(errno));
	buffer_init(&content, RESOURCE_BYTES_MAX + 1);
	while ((got = fread(block, 1, sizeof block, file)) > 0 && !content.overflow)
		buffer_add(&content, block, got);
	if (ferror(file) != 0)
		error_set(error, ERR_IO, "cannot read %.200s", full);
	else if (content.overflow)
		error_set(error, ERR_TOO_LARGE, "%.200s: resources are over the limit of %d bytes (RESOURCE_BYTES_MAX)", full, RESOURCE_BYTES_MAX);
	else
		*bytes = arena_bytes(arena, buffer_bytes(&content));
	fclose(file);
	buffer_close(&content);
	return (int)error->code;
}

#define ZONE_FOLDER "/usr/share/zoneinfo"

/* The daemon has the last word; but a zone that is in no file here is mostly a misspelt one. Without zone files nothing is said. */
static void check_zone(struct arena *arena, const struct definition *definition, struct problems *problems)
{
	const char *name = definition->schedule != NULL ? definition->schedule->time_zone : NULL;
	char bytes[ZONE_BYTES_MAX + 1];
	struct error error;
	if (name == NULL || access(ZONE_FOLDER "/UTC", R_OK) != 0)
		return;
	FILE *file = fopen(arena_printf(arena, ZONE_FOLDER "/%s", name), "rbe"); /* the name is checked: it is no path elsewhere */
	size_t len = file == NULL ? 0 : fread(bytes, 1, sizeof bytes, file);
	if (file != NULL)
		fclose(file);
	if (file == NULL || zone_parse(arena, (struct bytes){(const uint8_t *)bytes, len}, &error) == NULL)
		problems_add(problems, false, "/document/metadata/timezone", 0, 0, "Europe/Berlin, UTC", "there is no time zone %s in " ZONE_FOLDER, name);
}

static void collect_problems(struct arena *arena, const char *path, const struct problems *problems, struct text_positions *positions, struct json *out)
{
	for (size_t i = 0; i < problems->count; i++) {
		const struct problem *problem = &problems->items[i];
		size_t line = problem->line, column = problem->column;
		if (line == 0 && positions != NULL)
			text_position(positions, problem->pointer, false, &line, &column);
		struct json *item = json_object(arena);
		json_set_text(arena, item, "file", path);
		json_set_text(arena, item, "pointer", problem->pointer);
		if (line > 0) {
			json_set_number(arena, item, "line", (double)line);
			json_set_number(arena, item, "column", (double)column);
		}
		json_set_text(arena, item, "message", problem->message);
		json_set_text(arena, item, "hint", problem->hint);
		json_set_text(arena, item, "severity", problem->warning ? "warning" : "error");
		json_add(arena, out, item);
	}
}

int definition_check_file(struct command *command, const char *path, const struct json **document, struct bytes *source, bool *inlined,
			  struct json *problems_out, bool *good)
{
	struct arena *arena = &command->arena;
	*good = false;
	*inlined = false;
	int status = command_read_named(command, "definition", path, DEFINITION_SOURCE_MAX, "DEFINITION_SOURCE_MAX", source);
	if (status != STATUS_OK)
		return status;

	struct problems problems;
	struct definition *definition = NULL;
	const char *slash = strrchr(path, '/');
	struct text_positions *positions = NULL;

	problems_init(&problems);
	struct json *tree = text_load(arena, *source, TEXT_GUESS, &positions, &problems);
	if (tree != NULL) {
		struct file_resources resources = {.arena = arena, .read = read_resource, .problems = &problems, .positions = positions,
						   .arg = slash == NULL ? "" : arena_text_len(arena, path, (size_t)(slash - path) + 1)};
		*inlined = file_resources_inline(&resources, tree);
	}
	if (!*inlined) {
		/* The text itself: its problems come with lines and columns of their own. */
		problems_close(&problems);
		problems_init(&problems);
		definition = definition_load(*source, TEXT_GUESS, &problems);
	} else if (problems.errors == 0) {
		definition = definition_load_json(tree, &problems);
	}
	if (definition != NULL)
		jq_check(definition, &problems);
	if (definition != NULL)
		check_zone(arena, definition, &problems);
	collect_problems(arena, strcmp(path, "-") == 0 ? "standard input" : path, &problems, positions, problems_out);
	*good = definition != NULL && problems.errors == 0;
	*document = definition == NULL ? NULL : json_copy(arena, definition->document);
	if (definition != NULL)
		definition_free(definition);
	problems_close(&problems);
	return STATUS_OK;
}

/* [{file?, pointer, line?, column?, message, hint?, severity?}]: one line each, as compilers write them. */
void print_problems(struct command *command, const struct json *problems)
{
	for (size_t i = 0; i < json_count(problems); i++) {
		const struct json *problem = json_at(problems, i);
		const char *file = json_get_text(problem, "file"), *pointer = json_get_text(problem, "pointer"), *hint = json_get_text(problem, "hint");
		const char *severity = json_get_text(problem, "severity");
		double line = json_get_number(problem, "line", 0);
		char place[64] = "";
		if (line > 0)
			snprintf(place, sizeof place, "%.0f:%.0f: ", line, json_get_number(problem, "column", 0));
		const char *message = json_get_text(problem, "message");
		output_note(&command->output, "%s%s%s%s: %s%s%s%s", file == NULL ? "  " : file, file == NULL ? "" : ":", place[0] == '\0' && file != NULL ? " " : place,
			    severity == NULL ? "error" : severity, message == NULL ? "?" : message, pointer == NULL || *pointer == '\0' ? "" : "  (at ",
			    pointer == NULL ? "" : pointer, pointer == NULL || *pointer == '\0' ? "" : ")");
		if (hint != NULL)
			output_note(&command->output, "    %s", hint);
	}
}

static bool looks_like_document(const char *path)
{
	static const char *const suffixes[] = {".md", ".markdown", ".txt"};
	const char *suffix = strrchr(path, '.');
	for (size_t i = 0; suffix != NULL && i < COUNT_OF(suffixes); i++)
		if (strcasecmp(suffix, suffixes[i]) == 0)
			return true;
	return false;
}

/* A warning without a hint asks nothing of who starts a run: `definition validate` and `definition add` tell it, once. */
static struct json *with_hints(struct arena *arena, const struct json *problems)
{
	struct json *kept = json_array(arena);
	for (size_t i = 0; i < json_count(problems); i++) {
		const char *severity = json_get_text(json_at(problems, i), "severity");
		if (severity == NULL || strcmp(severity, "warning") != 0 || json_get_text(json_at(problems, i), "hint") != NULL)
			json_add(arena, kept, json_at(problems, i));
	}
	return kept;
}

int command_load_definition(struct command *command, const char *path, const struct json **document, struct bytes *source, bool *inlined)
{
	bool good, adding = strcmp(command->verb->name, "definition add") == 0;
	struct json *problems = json_array(&command->arena);
	int status = definition_check_file(command, path, document, source, inlined, problems, &good);
	if (status != STATUS_OK)
		return status;
	if (!good && looks_like_document(path))
		return command_fail(command, STATUS_ERROR, arena_printf(&command->arena, "reprise extract %s takes facts from it", path), "%s is a document, not a definition", path);
	print_problems(command, adding || !good ? problems : with_hints(&command->arena, problems));
	if (!good)
		return command_fail(command, STATUS_ERROR, "nothing was sent", "%s is not a definition that this release can run", path);
	return STATUS_OK;
}
