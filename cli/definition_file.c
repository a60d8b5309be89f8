/* Definition files: read, their `file:` resources inlined (semantics.md 5), checked here before they are sent. Start at
 * definition_check_file(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/jq.h"
#include "workflow/base/check.h"

enum { RESOURCE_FILES_MAX = 1000, RESOURCE_BYTES_MAX = 8 << 20 };

struct inlining {
	struct command *command;
	struct arena *arena;
	const char *folder; /* of the definition, "" or with a final slash */
	struct text_positions *positions;
	struct problems *problems;
	size_t files;
	uint64_t bytes;
};

static void add_problem(struct inlining *inlining, const char *pointer, const char *message)
{
	size_t line = 0, column = 0;
	if (inlining->positions != NULL)
		text_position(inlining->positions, pointer, false, &line, &column);
	problems_add(inlining->problems, false, pointer, line, column, NULL, "%s", message);
}

/* "file:schema.json", "file:///etc/schema.json" → a path, relative ones to the definition's folder. */
static const char *resource_path(struct inlining *inlining, const char *uri)
{
	const char *path = uri + strlen("file:");
	if (strncmp(path, "//", 2) == 0)
		path += 2;
	return path[0] == '/' ? arena_text(inlining->arena, path) : arena_printf(inlining->arena, "%s%s", inlining->folder, path);
}

static struct json *load_resource(struct inlining *inlining, const char *uri, const char *pointer)
{
	const char *path = resource_path(inlining, uri);
	struct error error;
	FILE *file = fopen(path, "rbe");
	if (file == NULL) {
		add_problem(inlining, pointer, arena_printf(inlining->arena, "cannot open %s: %s", path, strerror(errno)));
		return NULL;
	}
	struct buffer content;
	char block[65536];
	size_t got;
	buffer_init(&content, RESOURCE_BYTES_MAX);
	while ((got = fread(block, 1, sizeof block, file)) > 0 && !content.overflow)
		buffer_add(&content, block, got);
	bool failed = ferror(file) != 0;
	fclose(file);

	struct json *value = NULL;
	inlining->files++;
	inlining->bytes += content.len;
	if (failed) {
		add_problem(inlining, pointer, arena_printf(inlining->arena, "cannot read %s", path));
	} else if (content.overflow || inlining->bytes > RESOURCE_BYTES_MAX) {
		add_problem(inlining, pointer, arena_printf(inlining->arena, "%s: resources are over the limit of %d bytes (RESOURCE_BYTES_MAX)", path, RESOURCE_BYTES_MAX));
	} else if (inlining->files > RESOURCE_FILES_MAX) {
		add_problem(inlining, pointer, arena_printf(inlining->arena, "more than %d resources (RESOURCE_FILES_MAX)", RESOURCE_FILES_MAX));
	} else if ((value = json_parse(inlining->arena, buffer_bytes(&content), JSON_STRICT, NULL, &error)) == NULL) {
		struct problems inner;
		problems_init(&inner);
		value = text_load(inlining->arena, buffer_bytes(&content), TEXT_GUESS, NULL, &inner);
		if (value == NULL)
			add_problem(inlining, pointer, arena_printf(inlining->arena, "%s is neither JSON nor YAML: %s", path, error.message));
		problems_close(&inner);
	}
	buffer_close(&content);
	return value;
}

/* Walk the document; every {resource: {endpoint: 'file:…'}} becomes {document: …} in place. The endpoint is a text or {uri}. */
static bool inline_resources(struct inlining *inlining, struct json *value, struct buffer *pointer)
{
	bool any = false;
	size_t len = pointer->len;
	if (json_is(value, JSON_ARRAY)) {
		for (size_t i = 0; i < value->array.count; i++) {
			buffer_printf(pointer, "/%zu", i);
			any |= inline_resources(inlining, value->array.items[i], pointer);
			pointer->len = len;
			pointer->data[len] = '\0';
		}
		return any;
	}
	if (!json_is(value, JSON_OBJECT))
		return false;
	struct json *endpoint = json_get(json_get(value, "resource"), "endpoint");
	const char *uri = json_is(endpoint, JSON_STRING) ? endpoint->string.text : json_get_text(endpoint, "uri");
	if (uri != NULL && strncmp(uri, "file:", 5) == 0) {
		const char *where = arena_printf(inlining->arena, "%s/resource/endpoint", buffer_text(pointer));
		struct json *document = load_resource(inlining, uri, where);
		if (document != NULL) {
			json_remove(value, "resource");
			json_set(inlining->arena, value, "document", document);
		}
		return true;
	}
	for (size_t i = 0; i < value->object.count; i++) {
		json_pointer_add(pointer, value->object.members[i].name);
		any |= inline_resources(inlining, value->object.members[i].value, pointer);
		pointer->len = len;
		if (pointer->data != NULL)
			pointer->data[len] = '\0';
	}
	return any;
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
	struct inlining inlining = {.command = command, .arena = arena, .folder = "", .problems = &problems};
	const char *slash = strrchr(path, '/');
	if (slash != NULL)
		inlining.folder = arena_text_len(arena, path, (size_t)(slash - path) + 1);

	problems_init(&problems);
	struct json *tree = text_load(arena, *source, TEXT_GUESS, &inlining.positions, &problems);
	if (tree != NULL) {
		struct buffer pointer;
		buffer_init(&pointer, 1 << 16);
		*inlined = inline_resources(&inlining, tree, &pointer);
		buffer_close(&pointer);
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
	collect_problems(arena, strcmp(path, "-") == 0 ? "standard input" : path, &problems, inlining.positions, problems_out);
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
