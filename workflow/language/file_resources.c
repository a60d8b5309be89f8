/* See file_resources.h. */
#include "workflow/language/file_resources.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/openapi.h"
#include "workflow/language/task_walk.h"

bool file_resources_may_be_in(struct bytes text)
{
	return memmem(text.data, text.len, "file:", 5) != NULL;
}

static void complain(struct file_resources *r, const char *pointer, const char *message)
{
	size_t line = 0, column = 0;

	if (r->positions)
		text_position(r->positions, pointer, false, &line, &column);
	problems_add(r->problems, false, pointer, line, column, NULL, "%s", message);
}

static const char *path_of(const char *uri)
{
	return strncmp(uri + 5, "//", 2) == 0 ? uri + 7 : uri + 5;
}

/* The endpoint is a text or {uri}. NULL: it is none of ours. */
static const char *file_uri(const struct json *resource)
{
	const struct json *endpoint = json_get(resource, "endpoint");
	const char *uri = json_is(endpoint, JSON_STRING) ? endpoint->string.text : json_get_text(endpoint, "uri");

	return uri && strncmp(uri, "file:", 5) == 0 ? uri : NULL;
}

/* NULL: a problem was added. */
static struct json *load(struct file_resources *r, const char *uri, const char *pointer, struct bytes *bytes)
{
	struct error error = {0};
	struct problems inner;
	struct json *value;

	if (r->files++ >= RESOURCE_FILES_MAX) {
		complain(r, pointer, arena_printf(r->arena, "more than %d resources (RESOURCE_FILES_MAX)", RESOURCE_FILES_MAX));
		return NULL;
	}
	if (r->read(r->arg, r->arena, path_of(uri), bytes, &error) != 0) {
		complain(r, pointer, error.message);
		return NULL;
	}
	r->bytes += bytes->len;
	if (r->bytes > RESOURCE_BYTES_MAX) {
		complain(r, pointer, arena_printf(r->arena, "%.200s: resources are over the limit of %d bytes (RESOURCE_BYTES_MAX)", path_of(uri), RESOURCE_BYTES_MAX));
		return NULL;
	}
	if ((value = json_parse(r->arena, *bytes, JSON_STRICT, NULL, &error)) != NULL)
		return value;
	problems_init(&inner);
	value = text_load(r->arena, *bytes, TEXT_GUESS, NULL, &inner);
	if (!value)
		complain(r, pointer, arena_printf(r->arena, "%.200s is neither JSON nor YAML: %s", path_of(uri), error.message));
	problems_close(&inner);
	return value;
}

/* A file has no host of its own, so the description has to name one. */
static bool has_host(const char *server)
{
	const char *host = server ? strstr(server, "://") : NULL;

	return host && strncmp(server, "http", 4) == 0 && host[3] && host[3] != '/';
}

static void inline_description(struct file_resources *r, struct json *call, const char *uri, const char *pointer)
{
	struct json *with = json_get(call, "with"), *document = json_get(with, "document");
	const char *id = json_get_text(with, "operationId");
	struct bytes bytes;
	struct error error = {0};
	char text[DIGEST_TEXT_LEN + 1];
	const struct json *description = load(r, uri, pointer, &bytes);

	if (!description || !id)
		return;
	struct json *operation = openapi_operation(r->arena, description, id, "file:///", &error);
	if (operation && !has_host(json_get_text(operation, "server")))
		error_set(&error, ERR_INVALID, "names no server with a host; one that is a file has to");
	if (error.code != ERR_NONE) {
		complain(r, pointer, arena_printf(r->arena, "the description %.200s: %s", path_of(uri), error.message));
		return;
	}
	struct digest digest = digest_of(bytes);
	digest_text(&digest, text);
	json_set_text(r->arena, document, "digest", text);
	json_set(r->arena, document, "operation", operation);
}

struct inlining {
	struct file_resources *resources;
	bool any;
};

/* The schema of holder's input, output, export or with. */
static void inline_schema(struct inlining *in, const struct json *holder, const char *name, const char *pointer)
{
	struct file_resources *r = in->resources;
	struct json *schema = json_get(json_get(holder, name), "schema");
	const char *uri = file_uri(json_get(schema, "resource"));
	struct bytes bytes;

	if (!uri)
		return;
	in->any = true;
	struct json *document = load(r, uri, arena_printf(r->arena, "%s/%s/schema/resource/endpoint", pointer, name), &bytes);
	if (!document)
		return;
	json_remove(schema, "resource");
	json_set(r->arena, schema, "document", document);
}

static bool inline_task(void *arg, struct json *task, const char *pointer)
{
	static const char *const both[] = {"output", "export"};
	struct inlining *in = arg;
	struct arena *arena = in->resources->arena;
	const struct json *foreach = json_get(task, "foreach"), *description = json_get(json_get(task, "with"), "document");
	const char *call = json_get_text(task, "call"), *uri;

	inline_schema(in, task, "input", pointer);
	for (size_t i = 0; i < COUNT_OF(both); i++) {
		inline_schema(in, task, both[i], pointer);
		if (foreach)
			inline_schema(in, foreach, both[i], arena_printf(arena, "%s/foreach", pointer));
	}
	if (call && (strcmp(call, "extraction") == 0 || strcmp(call, "inference") == 0 || strcmp(call, "reproducibility-gate") == 0))
		inline_schema(in, task, "with", pointer);
	uri = call && strcmp(call, "openapi") == 0 && !json_get(description, "operation") ? file_uri(description) : NULL;
	if (uri) {
		inline_description(in->resources, task, uri, arena_printf(arena, "%s/with/document/endpoint", pointer));
		in->any = true;
	}
	return false;
}

bool file_resources_inline(struct file_resources *resources, struct json *document)
{
	struct inlining in = {.resources = resources};

	inline_schema(&in, document, "input", "");
	inline_schema(&in, document, "output", "");
	tasks_visit(document, inline_task, &in);
	return in.any;
}
