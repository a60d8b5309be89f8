/* See resources.h. */
#include "daemon/resources.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/definition.h"
#include "workflow/language/openapi.h"

static const char *endpoint_of(const struct json *description)
{
	const char *uri = json_get_text(description, "endpoint");

	return uri ? uri : json_get_text(json_get(description, "endpoint"), "uri");
}

/* A call of openapi without its operation: its `with`, else NULL. */
static struct json *call_of(const struct json *value)
{
	struct json *with = json_get(value, "with");
	const char *call = json_get_text(value, "call");

	return call && strcmp(call, "openapi") == 0 && endpoint_of(json_get(with, "document")) && json_get_text(with, "operationId") &&
	       !json_get(json_get(with, "document"), "operation") ? with : NULL;
}

/* The first of them. Tasks stand in lists, functions beside one another: all is looked at. */
static struct json *find_call(const struct json *value)
{
	struct json *found = call_of(value);

	if (found)
		return found;
	for (size_t i = 0; json_is(value, JSON_ARRAY) && i < json_count(value) && !found; i++)
		found = find_call(json_at(value, i));
	for (size_t i = 0; json_is(value, JSON_OBJECT) && i < json_count(value) && !found; i++)
		found = find_call(value->object.members[i].value);
	return found;
}

bool resources_are_missing(const struct json *document)
{
	return find_call(json_get(document, "do")) || find_call(json_get(json_get(document, "use"), "functions"));
}

static struct json *next_call(struct resources *r)
{
	struct json *call = find_call(json_get(r->result, "do"));

	return call ? call : find_call(json_get(json_get(r->result, "use"), "functions"));
}

static void fail(struct resources *r, const struct error *error)
{
	struct error made;

	/* It is the definition that cannot be used. */
	error_set(&made, error->code == ERR_NOT_FOUND || error->code == ERR_DENIED ? ERR_INVALID : error->code, "the description %.200s: %s", r->fetch.url, error->message);
	r->error = made;
	r->on_done(r);
}

static void fetch_next(struct resources *r);

struct fetched {
	const struct json *description;
	const char *digest;
	struct error error;
};

/* Every call that names this description gets its operation; one walk for all of them. */
static void apply(struct resources *r, struct fetched *fetched, const struct json *value)
{
	struct json *with = call_of(value);

	if (with && strcmp(endpoint_of(json_get(with, "document")), r->fetch.url) == 0) {
		struct json *operation;
		if (r->calls++ == RESOURCES_CALLS_MAX) {
			error_set(&fetched->error, ERR_TOO_LARGE, "more than %d calls of openapi in one definition (RESOURCES_CALLS_MAX)", RESOURCES_CALLS_MAX);
			return;
		}
		operation = openapi_operation(r->arena, fetched->description, json_get_text(with, "operationId"), r->fetch.url, &fetched->error);
		if (!operation)
			return;
		json_set_text(r->arena, json_get(with, "document"), "digest", fetched->digest);
		json_set(r->arena, json_get(with, "document"), "operation", operation);
		return;
	}
	for (size_t i = 0; json_is(value, JSON_ARRAY) && i < json_count(value) && fetched->error.code == ERR_NONE; i++)
		apply(r, fetched, json_at(value, i));
	for (size_t i = 0; json_is(value, JSON_OBJECT) && i < json_count(value) && fetched->error.code == ERR_NONE; i++)
		apply(r, fetched, value->object.members[i].value);
}

static void on_fetched(struct resource_fetch *fetch)
{
	struct resources *r = fetch->owner;
	struct problems problems;
	struct error error = fetch->error;
	struct fetched fetched = {0};
	struct digest digest;
	char text[DIGEST_TEXT_LEN + 1];

	problems_init(&problems);
	if (error.code == ERR_NONE) {
		fetched.description = text_load(r->arena, fetch->bytes, TEXT_GUESS, NULL, &problems);
		if (!fetched.description)
			error_set(&error, ERR_INVALID, "%s", problems.count > 0 ? problems.items[0].message : "is neither JSON nor YAML");
	}
	problems_close(&problems);
	digest = digest_of(fetch->bytes);
	digest_text(&digest, text);
	if (error.code == ERR_NONE) {
		fetched.digest = text;
		apply(r, &fetched, json_get(r->result, "do"));
		if (fetched.error.code == ERR_NONE)
			apply(r, &fetched, json_get(json_get(r->result, "use"), "functions"));
		error = fetched.error;
	}
	if (error.code != ERR_NONE)
		fail(r, &error);
	else
		fetch_next(r);
}

static void fetch_next(struct resources *r)
{
	struct json *with = next_call(r);
	struct error error = {0};

	if (!with) {
		r->on_done(r);
		return;
	}
	r->fetch = (struct resource_fetch){.url = endpoint_of(json_get(with, "document")), .on_done = on_fetched, .owner = r};
	if (r->fetched++ == RESOURCES_MAX)
		error_set(&error, ERR_TOO_LARGE, "more than %d are fetched for one definition (RESOURCES_MAX)", RESOURCES_MAX);
	else
		resource_fetch_start(r->activities, &r->fetch, &error);
	if (error.code != ERR_NONE)
		fail(r, &error);
}

void resources_resolve(struct resources *r)
{
	r->result = json_copy(r->arena, r->document);
	r->error = (struct error){0};
	r->fetched = r->calls = 0;
	fetch_next(r);
}
