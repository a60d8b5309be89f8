/* See file_resources.h. */
#include "workflow/language/file_resources.h"

#include <string.h>

#include "workflow/language/openapi.h"

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

static bool walk(struct file_resources *r, struct json *value, struct buffer *pointer)
{
	size_t len = pointer->len, count = json_is(value, JSON_ARRAY) || json_is(value, JSON_OBJECT) ? json_count(value) : 0;
	const char *uri, *call;
	struct bytes bytes;
	bool any = false;

	if (json_is(value, JSON_OBJECT) && (uri = file_uri(json_get(value, "resource"))) != NULL) {
		struct json *document = load(r, uri, arena_printf(r->arena, "%s/resource/endpoint", buffer_text(pointer)), &bytes);
		if (document) {
			json_remove(value, "resource");
			json_set(r->arena, value, "document", document);
		}
		return true;
	}
	if (json_is(value, JSON_OBJECT) && (call = json_get_text(value, "call")) != NULL && strcmp(call, "openapi") == 0 &&
	    (uri = file_uri(json_get(json_get(value, "with"), "document"))) != NULL && !json_get(json_get(json_get(value, "with"), "document"), "operation")) {
		inline_description(r, value, uri, arena_printf(r->arena, "%s/with/document/endpoint", buffer_text(pointer)));
		any = true;
	}
	for (size_t i = 0; i < count; i++) {
		if (json_is(value, JSON_ARRAY))
			buffer_printf(pointer, "/%zu", i);
		else
			json_pointer_add(pointer, value->object.members[i].name);
		any |= walk(r, json_is(value, JSON_ARRAY) ? json_at(value, i) : value->object.members[i].value, pointer);
		pointer->len = len;
		if (pointer->data)
			pointer->data[len] = '\0';
	}
	return any;
}

bool file_resources_inline(struct file_resources *resources, struct json *document)
{
	struct buffer pointer;

	buffer_init(&pointer, 4 * DEFINITION_SOURCE_MAX);
	bool any = walk(resources, document, &pointer);
	buffer_close(&pointer);
	return any;
}
