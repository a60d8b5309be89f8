/* reprise definition add | list | show | validate. */
#include <string.h>

#include "cli/command.h"

int command_definition_add(struct command *command)
{
	const struct json *document;
	struct bytes source;
	bool inlined;
	struct json *answer = NULL;
	int status = command_load_definition(command, command->arguments[0], &document, &source, &inlined);
	if (status != STATUS_OK)
		return status;
	/* As it was written, so that the journal keeps the comments and line numbers; where resources came in from files there
	 * is only the document to send. */
	size_t first = 0;
	while (first < source.len && strchr(" \t\r\n", source.data[first]) != NULL)
		first++;
	bool is_json = inlined || (first < source.len && source.data[first] == '{');
	struct request request = {.method = "POST", .path = "/v1/definitions", .accept = "application/json",
				  .body = inlined ? json_print_arena(document, &command->arena) : source,
				  .content_type = is_json ? "application/json" : "application/yaml"};
	struct reply reply;
	struct error error;
	if ((status = command_send(command, &request, &reply)) == STATUS_OK) {
		if (reply.status != 200 && reply.status != 201)
			status = command_fail_reply(command, &request, &reply);
		else if ((answer = command_parse_reply(command, &reply, &error)) == NULL)
			status = command_fail(command, STATUS_ERROR, NULL, "definition add: the answer is not JSON: %s", error.message);
	}
	bool created = reply.status == 201;
	reply_close(&reply);
	if (status != STATUS_OK)
		return status;
	const char *namespace = json_get_text(answer, "namespace"), *name = json_get_text(answer, "name"), *version = json_get_text(answer, "version");
	if (command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s/%s:%s", namespace, name, version);
	else if (command->output.format == FORMAT_TEXT)
		output_line(&command->output, "%s/%s:%s  %s  %s", namespace, name, version, created ? "added" : "was there already", json_get_text(answer, "digest"));
	else
		output_json(&command->output, answer);
	return STATUS_OK;
}

static void definition_cells(struct command *command, const struct json *item, const char **cells)
{
	cells[0] = arena_printf(&command->arena, "%s/%s:%s", json_get_text(item, "namespace"), json_get_text(item, "name"), json_get_text(item, "version"));
	cells[1] = output_time(&command->output, &command->arena, json_get_text(item, "addedAt"));
	cells[2] = json_get_text(item, "digest");
}

int command_definition_list(struct command *command)
{
	static const struct table_column columns[] = {{"DEFINITION", 0, false}, {"ADDED", 0, false}, {"DIGEST", 0, false}};
	struct json *list = json_array(&command->arena);
	const char *cursor = NULL;
	do {
		struct json *answer;
		struct buffer path;
		buffer_init(&path, 4096);
		buffer_add_text(&path, "/v1/definitions");
		query_add(&path, "cursor", cursor);
		int status = command_get(command, buffer_text(&path), &answer);
		buffer_close(&path);
		if (status != STATUS_OK)
			return status;
		const struct json *page = json_get(answer, "definitions");
		for (size_t i = 0; json_is(page, JSON_ARRAY) && i < json_count(page); i++)
			json_add(&command->arena, list, json_at(page, i));
		cursor = json_count(page) == 0 ? NULL : json_get_text(answer, "cursor");
	} while (cursor != NULL);
	struct json *result = json_object(&command->arena);
	json_set(&command->arena, result, "definitions", list);
	command_print_list(command, result, "definitions", columns, sizeof columns / sizeof *columns, definition_cells);
	return STATUS_OK;
}

int command_definition_show(struct command *command)
{
	/* NAMESPACE/NAME[:VERSION] → /v1/definitions/{namespace}/{name}[/{version}] */
	const char *text = command->arguments[0], *slash = strchr(text, '/'), *colon = strchr(text, ':');
	struct json *answer;
	if (slash == NULL || (colon != NULL && colon < slash))
		return command_fail(command, STATUS_USAGE, "NAMESPACE/NAME[:VERSION] is meant", "%s names no definition", text);
	size_t name_len = colon == NULL ? strlen(slash + 1) : (size_t)(colon - slash - 1);
	struct buffer path;
	buffer_init(&path, 65536);
	buffer_add_text(&path, "/v1/definitions/");
	url_add(&path, arena_text_len(&command->arena, text, (size_t)(slash - text)));
	buffer_add_char(&path, '/');
	url_add(&path, arena_text_len(&command->arena, slash + 1, name_len));
	if (colon != NULL) {
		buffer_add_char(&path, '/');
		url_add(&path, colon + 1);
	}
	int status = command_get(command, buffer_text(&path), &answer);
	buffer_close(&path);
	if (status != STATUS_OK)
		return status;
	const char *source = json_get_text(answer, "source");
	if (command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s", text);
	else if (command->output.format == FORMAT_TEXT && source != NULL)
		output_text(&command->output, source[0] == '\0' || source[strlen(source) - 1] == '\n' ? source : arena_printf(&command->arena, "%s\n", source));
	else if (command->output.format == FORMAT_TEXT && json_is(json_get(answer, "document"), JSON_OBJECT) && json_get(answer, "digest") != NULL)
		output_json(&command->output, json_get(answer, "document"));
	else
		output_json(&command->output, answer);
	return STATUS_OK;
}

int command_definition_validate(struct command *command)
{
	struct arena *arena = &command->arena;
	struct json *files = json_array(arena);
	int worst = STATUS_OK;
	for (size_t i = 0; i < command->argument_count; i++) {
		const char *path = command->arguments[i];
		const struct json *document = NULL;
		struct bytes source;
		struct json *problems = json_array(arena), *file = json_object(arena);
		bool inlined, good;
		int status = definition_check_file(command, path, &document, &source, &inlined, problems, &good);
		if (status != STATUS_OK)
			return status;
		if (!good)
			worst = STATUS_ERROR;
		if (command->output.format == FORMAT_TEXT) {
			print_problems(command, problems);
			if (good) {
				const struct json *head = json_get(document, "document");
				output_line(&command->output, "%s: good: %s/%s:%s", path, json_get_text(head, "namespace"), json_get_text(head, "name"), json_get_text(head, "version"));
			} else {
				output_line(&command->output, "%s: cannot be run", path);
			}
			continue;
		}
		json_set_text(arena, file, "file", path);
		json_set_boolean(arena, file, "valid", good);
		if (good) {
			struct digest digest = json_digest(document);
			char text[DIGEST_TEXT_LEN + 1];
			digest_text(&digest, text);
			json_set_text(arena, file, "digest", text);
		}
		json_set(arena, file, "problems", problems);
		if (command->output.format == FORMAT_JSONL)
			output_json(&command->output, file);
		else if (command->output.format == FORMAT_IDS && good)
			output_line(&command->output, "%s", path);
		json_add(arena, files, file);
	}
	if (command->output.format == FORMAT_JSON) {
		struct json *result = json_object(arena);
		json_set_boolean(arena, result, "valid", worst == STATUS_OK);
		json_set(arena, result, "files", files);
		output_json(&command->output, result);
	}
	return worst;
}
