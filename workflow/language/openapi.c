/* See openapi.h. */
#include "workflow/language/openapi.h"

#include <string.h>
#include <strings.h>

#include "workflow/base/check.h"

static const char *const methods[] = {"get", "put", "post", "delete", "options", "head", "patch"};
static const char *const places[] = {"path", "query", "header", "body"};

/* A reference within the description, followed. NULL: it leads nowhere. */
static const struct json *follow(const struct json *description, const struct json *value)
{
	for (int i = 0; i < OPENAPI_REFERENCES_MAX; i++) {
		const char *reference = json_get_text(value, "$ref");
		if (!reference)
			return value;
		value = reference[0] == '#' ? json_pointer_get(description, reference + 1) : NULL;
	}
	return NULL;
}

/* What others wrote must not become an expression or a template of ours. */
static bool is_plain(const char *text)
{
	for (const char *at = text; *at; at++)
		if ((unsigned char)*at <= ' ' || *at == 0x7f)
			return false;
	return !strstr(text, "${");
}

static bool is_place(const char *in)
{
	for (size_t i = 0; i < COUNT_OF(places); i++)
		if (in && strcmp(places[i], in) == 0)
			return true;
	return false;
}

bool openapi_operation_valid(const struct json *operation)
{
	const char *method = json_get_text(operation, "method"), *server = json_get_text(operation, "server"), *path = json_get_text(operation, "path");
	const struct json *parameters = json_get(operation, "parameters");
	bool known = false;

	for (size_t i = 0; method && i < COUNT_OF(methods); i++)
		known |= strcmp(methods[i], method) == 0;
	if (!known || !server || !path || path[0] != '/' || !is_plain(server) || !is_plain(path) || strpbrk(server, "{}?#") ||
	    (strncasecmp(server, "http://", 7) != 0 && strncasecmp(server, "https://", 8) != 0) || !json_is(parameters, JSON_ARRAY) ||
	    json_count(parameters) > OPENAPI_PARAMETERS_MAX || json_count(operation) != 4)
		return false;
	for (size_t i = 0; i < json_count(parameters); i++) {
		const struct json *parameter = json_at(parameters, i);
		const char *name = json_get_text(parameter, "name");
		if (!name || !*name || !is_plain(name) || !is_place(json_get_text(parameter, "in")) || !json_is(json_get(parameter, "required"), JSON_BOOLEAN) ||
		    !json_is(json_get(parameter, "multi"), JSON_BOOLEAN) || json_count(parameter) != 4)
			return false;
	}
	return true;
}

/* ---- Where it is */

/* "https://host:1" of "https://host:1/a/b". */
static const char *origin_of(struct arena *arena, const char *url)
{
	const char *host = strstr(url, "://");

	host = host ? host + 3 : url;
	return arena_text_len(arena, url, (size_t)(host - url) + strcspn(host, "/?#"));
}

/* Where its siblings are: "https://host/a/" of "https://host/a/b?c", "https://host/" of "https://host". */
static const char *folder_of(struct arena *arena, const char *url)
{
	const char *origin = origin_of(arena, url), *path = url + strlen(origin);
	size_t len = strcspn(path, "?#");

	while (len > 0 && path[len - 1] != '/')
		len--;
	return arena_printf(arena, "%s%.*s", origin, len > 0 ? (int)len : 1, len > 0 ? path : "/");
}

static const char *swagger_server(struct arena *arena, const struct json *description, const char *url)
{
	const char *host = json_get_text(description, "host"), *base = json_get_text(description, "basePath"), *scheme = NULL;
	const struct json *schemes = json_get(description, "schemes");

	for (size_t i = 0; json_is(schemes, JSON_ARRAY) && i < json_count(schemes); i++) {
		const char *named = json_is(json_at(schemes, i), JSON_STRING) ? json_at(schemes, i)->string.text : "";
		if (strcmp(named, "https") == 0 || (!scheme && strcmp(named, "http") == 0))
			scheme = named;
	}
	if (!scheme)
		scheme = strncasecmp(url, "https:", 6) == 0 ? "https" : "http";
	if (!host)
		host = strstr(origin_of(arena, url), "://") + 3;
	return arena_printf(arena, "%s://%s%s", scheme, host, base && strcmp(base, "/") != 0 ? base : "");
}

/* The first server, its variables at their defaults, relative to where the description came from. */
static const char *openapi_server(struct arena *arena, const struct json *description, const char *url)
{
	const struct json *server = json_at(json_get(description, "servers"), 0), *variables = json_get(server, "variables");
	const char *written = json_get_text(server, "url"), *result;
	struct buffer text;

	if (!written)
		written = "/";
	buffer_init(&text, OPENAPI_SERVER_MAX);
	if (written[0] == '/')
		buffer_add_text(&text, origin_of(arena, url));
	else if (!strstr(written, "://")) /* beside the description */
		buffer_add_text(&text, folder_of(arena, url));
	while (*written) {
		size_t len = strcspn(written, "{"), name_len;
		buffer_add(&text, written, len);
		written += len;
		if (!*written)
			break;
		name_len = strcspn(++written, "}");
		const char *name = arena_text_len(arena, written, name_len), *value = json_get_text(json_get(variables, name), "default");
		buffer_add_text(&text, value ? value : "{}"); /* refused below */
		written += name_len + (written[name_len] == '}');
	}
	result = text.overflow ? "{}" : arena_text(arena, buffer_text(&text));
	buffer_close(&text);
	return result;
}

/* ---- What it takes */

/* Adds or replaces: an operation's own parameters go before those of its path. */
static int add_parameters(struct arena *arena, const struct json *description, const struct json *list, bool is_swagger, struct json *parameters, struct error *error)
{
	for (size_t i = 0; json_is(list, JSON_ARRAY) && i < json_count(list); i++) {
		const struct json *written = follow(description, json_at(list, i));
		const char *name = json_get_text(written, "name"), *in = json_get_text(written, "in");
		struct json *parameter = NULL;
		bool required = json_get_boolean(written, "required", false);

		if (!name || !*name || !in)
			return error_set(error, ERR_INVALID, "a parameter of the operation has no name or place");
		if (!is_place(in)) {
			if (!required)
				continue; /* cannot be given, need not be given */
			return error_set(error, ERR_UNSUPPORTED, "the parameter '%.80s' stands in '%.40s': not supported in this release", name, in);
		}
		for (size_t k = 0; k < json_count(parameters) && !parameter; k++)
			if (strcmp(json_get_text(json_at(parameters, k), "name"), name) == 0 && strcmp(json_get_text(json_at(parameters, k), "in"), in) == 0)
				parameter = json_at(parameters, k);
		if (!parameter) {
			if (json_count(parameters) == OPENAPI_PARAMETERS_MAX)
				return error_set(error, ERR_TOO_LARGE, "the operation has more than %d parameters (OPENAPI_PARAMETERS_MAX)", OPENAPI_PARAMETERS_MAX);
			parameter = json_object(arena);
			json_add(arena, parameters, parameter);
		}
		const char *format = json_get_text(written, "collectionFormat");
		json_set_text(arena, parameter, "name", name);
		json_set_text(arena, parameter, "in", in);
		json_set_boolean(arena, parameter, "required", required);
		json_set_boolean(arena, parameter, "multi", is_swagger ? format && strcmp(format, "multi") == 0 : strcmp(in, "query") == 0 && json_get_boolean(written, "explode", true));
	}
	return 0;
}

/* OpenAPI 3 has the body apart from the parameters; a call names it `body`. */
static int add_body(struct arena *arena, const struct json *description, const struct json *body, struct json *parameters, struct error *error)
{
	const struct json *content = json_get(follow(description, body), "content");
	bool required = json_get_boolean(follow(description, body), "required", false), is_json = false;
	struct json *parameter;

	if (!content)
		return 0;
	for (size_t i = 0; json_is(content, JSON_OBJECT) && i < json_count(content); i++)
		is_json |= strstr(content->object.members[i].name, "json") != NULL || strcmp(content->object.members[i].name, "*/*") == 0;
	if (!is_json)
		return required ? error_set(error, ERR_UNSUPPORTED, "the operation takes a body that is no JSON: not supported in this release") : 0;
	parameter = json_object(arena);
	json_set_text(arena, parameter, "name", "body");
	json_set_text(arena, parameter, "in", "body");
	json_set_boolean(arena, parameter, "required", required);
	json_set_boolean(arena, parameter, "multi", false);
	json_add(arena, parameters, parameter);
	return 0;
}

struct json *openapi_operation(struct arena *arena, const struct json *description, const char *operation_id, const char *url, struct error *error)
{
	const char *swagger = json_get_text(description, "swagger"), *openapi = json_get_text(description, "openapi");
	const struct json *paths = json_get(description, "paths");
	bool is_swagger = swagger && strcmp(swagger, "2.0") == 0;

	*error = (struct error){0};
	if (!is_swagger && !(openapi && strncmp(openapi, "3.", 2) == 0)) {
		error_set(error, ERR_UNSUPPORTED, "is no description in Swagger 2.0 or OpenAPI 3");
		return NULL;
	}
	for (size_t i = 0; json_is(paths, JSON_OBJECT) && i < json_count(paths); i++) {
		const struct json *path = follow(description, paths->object.members[i].value);
		for (size_t m = 0; m < COUNT_OF(methods); m++) {
			const struct json *written = json_get(path, methods[m]);
			const char *id = json_get_text(written, "operationId");
			if (!id || strcmp(id, operation_id) != 0)
				continue;
			struct json *operation = json_object(arena), *parameters = json_array(arena);
			json_set_text(arena, operation, "method", methods[m]);
			json_set_text(arena, operation, "path", paths->object.members[i].name);
			json_set_text(arena, operation, "server", is_swagger ? swagger_server(arena, description, url) : openapi_server(arena, description, url));
			json_set(arena, operation, "parameters", parameters);
			if (add_parameters(arena, description, json_get(path, "parameters"), is_swagger, parameters, error) != 0 ||
			    add_parameters(arena, description, json_get(written, "parameters"), is_swagger, parameters, error) != 0 ||
			    (!is_swagger && add_body(arena, description, json_get(written, "requestBody"), parameters, error) != 0))
				return NULL;
			if (!openapi_operation_valid(operation)) {
				error_set(error, ERR_INVALID, "the operation '%.80s' has a server, a path or a parameter that cannot be used", operation_id);
				return NULL;
			}
			return operation;
		}
	}
	error_set(error, ERR_NOT_FOUND, "has no operation '%.80s'", operation_id);
	return NULL;
}
