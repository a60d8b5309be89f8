/* Descriptions that `call: openapi` names, fetched when a definition comes in: each call gets the digest of what was fetched and the
 * operation that it names, and both are part of the definition from then on (semantics.md 5). Thread: loop.
 * New here? Read resources_resolve(). */
#pragma once

#include "activities/fetch.h"
#include "daemon/config.h"
#include "workflow/language/definition.h"

enum {
	RESOURCES_MAX = 32, /* fetched for one definition */
	RESOURCES_CALLS_MAX = 256, /* that name them */
};

struct resources;
struct resources {
	/* Request; borrowed until on_done. */
	struct activities *activities;
	struct arena *arena; /* for the result */
	const struct json *document; /* of a definition, good or not: what is no call of openapi is left alone */
	void (*on_done)(struct resources *resources); /* perhaps at once */
	void *owner;
	/* Result: the document with all of it, or the error. */
	struct json *result;
	struct error error;

	struct resource_fetch fetch; /* its own */
	unsigned fetched, calls;
};
/* Files beneath the folders of `resources` (configuration), opened without following links. Blocks for as long as the disk takes: on the pool. */
bool resources_may_be_files(const struct config *config, struct bytes text);
/* Inlines what the document of a definition names of them, in place; false: there was nothing. Problems are added. */
bool resources_inline_files(const struct config *config, struct arena *arena, struct json *document, const struct text_positions *positions, struct problems *problems);
/* Whether there is anything to fetch. */
bool resources_are_missing(const struct json *document);
void resources_resolve(struct resources *resources);
