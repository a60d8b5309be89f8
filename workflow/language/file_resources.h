/* `file:` resources become part of a definition before it is checked (semantics.md 5): schemas are written out, a description of a service is
 * cut down to the operation that a call names (openapi.h), beside the digest of the whole. The command line does it relative to the
 * definition, the daemon beneath its own folders; who reads a file is the caller's business. Pure.
 * New here? Read file_resources_inline(). */
#pragma once

#include "workflow/language/definition.h"

enum {
	RESOURCE_FILES_MAX = 1000, /* of one definition */
	RESOURCE_BYTES_MAX = 8 << 20, /* of all of them together */
};

struct file_resources {
	struct arena *arena; /* for what comes in */
	/* path: of the URI, without "file:" and "//". The bytes lie in the arena, RESOURCE_BYTES_MAX of them at most. */
	int (*read)(void *arg, struct arena *arena, const char *path, struct bytes *bytes, struct error *error);
	void *arg;
	struct problems *problems;
	const struct text_positions *positions; /* may be NULL */
	size_t files; /* its own, from 0 */
	uint64_t bytes;
};
/* Whether the text may name one at all: cheap, and often wrong in saying yes. */
bool file_resources_may_be_in(struct bytes text);
/* In place. True: there were some; what could not be had is among the problems. */
bool file_resources_inline(struct file_resources *resources, struct json *document);
