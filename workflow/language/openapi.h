/* Descriptions of HTTP services (Swagger 2.0, OpenAPI 3.x): the one operation that a call names, cut down to what a request needs. That
 * is what a definition keeps, so that it means the same for ever. Pure. New here? Read openapi_operation(). */
#pragma once

#include "workflow/base/json.h"

enum { OPENAPI_PARAMETERS_MAX = 256, OPENAPI_REFERENCES_MAX = 8 /* $ref behind one another */, OPENAPI_SERVER_MAX = 8192 /* bytes of a server's URL */ };

/* {"method", "server", "path", "parameters": [{"name", "in": "path" | "query" | "header" | "body", "required", "multi"}]}. url: where
 * the description came from, for relative servers. ERR_NOT_FOUND: no such operation; ERR_UNSUPPORTED: one that this release cannot call. */
struct json *openapi_operation(struct arena *arena, const struct json *description, const char *operation_id, const char *url, struct error *error);
/* Whether a value has that form; for operations that an author wrote. */
bool openapi_operation_valid(const struct json *operation);
