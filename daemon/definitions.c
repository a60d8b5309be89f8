/* See definitions.h. A few hundred at most, so a list is searched; the newest first. */
#include "daemon/definitions.h"

#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

struct cached_definition {
	struct definition *definition;
	bool registered;
	struct list link;
};

void definitions_init(struct definitions *definitions)
{
	*definitions = (struct definitions){0};
	list_init(&definitions->recent);
}

static void drop(struct definitions *definitions, struct cached_definition *cached)
{
	list_remove(&cached->link);
	definitions->count--;
	definitions->bytes -= cached->definition->arena.used;
	definition_release(cached->definition);
	free(cached);
}

void definitions_close(struct definitions *definitions)
{
	while (!list_empty(&definitions->recent))
		drop(definitions, CONTAINER_OF(definitions->recent.next, struct cached_definition, link));
}

static struct definition *touch(struct definitions *definitions, struct cached_definition *cached)
{
	list_remove(&cached->link);
	list_add_last(&definitions->recent, &cached->link);
	return cached->definition;
}

static struct cached_definition *find_digest(struct definitions *definitions, const struct digest *digest)
{
	for (struct list *link = definitions->recent.prev; link != &definitions->recent; link = link->prev) {
		struct cached_definition *cached = CONTAINER_OF(link, struct cached_definition, link);
		if (digest_equal(&cached->definition->digest, digest))
			return cached;
	}
	return NULL;
}

struct definition *definitions_by_digest(struct definitions *definitions, const struct digest *digest)
{
	struct cached_definition *cached = find_digest(definitions, digest);

	return cached ? touch(definitions, cached) : NULL;
}

struct definition *definitions_by_name(struct definitions *definitions, const char *namespace, const char *name, const char *version)
{
	for (struct list *link = definitions->recent.prev; link != &definitions->recent; link = link->prev) {
		struct cached_definition *cached = CONTAINER_OF(link, struct cached_definition, link);
		const struct definition *definition = cached->definition;
		if (cached->registered && strcmp(definition->name, name) == 0 && strcmp(definition->namespace, namespace) == 0 &&
		    strcmp(definition->version, version) == 0)
			return touch(definitions, cached);
	}
	return NULL;
}

struct definition *definitions_put(struct definitions *definitions, struct definition *definition, bool registered)
{
	struct cached_definition *cached = find_digest(definitions, &definition->digest);

	if (cached) {
		cached->registered |= registered;
		if (cached->definition != definition)
			definition_release(definition);
		else
			definition->use_count--; /* the place here has one already */
		return touch(definitions, cached);
	}
	cached = memory_zero(sizeof *cached);
	cached->definition = definition;
	cached->registered = registered;
	list_add_last(&definitions->recent, &cached->link);
	definitions->count++;
	definitions->bytes += definition->arena.used;
	/* The newest stays whatever its size: somebody is about to use it. */
	while (definitions->count > 1 && (definitions->count > DEFINITIONS_CACHED_MAX || definitions->bytes > DEFINITIONS_CACHED_BYTES_MAX))
		drop(definitions, CONTAINER_OF(definitions->recent.next, struct cached_definition, link));
	return definition;
}

struct definition *definition_hold(struct definition *definition)
{
	definition->use_count++;
	return definition;
}

void definition_release(struct definition *definition)
{
	if (!definition)
		return;
	CHECK(definition->use_count > 0);
	if (--definition->use_count == 0)
		definition_free(definition);
}
