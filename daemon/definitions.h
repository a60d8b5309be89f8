/* Definitions in memory, by digest and by registered name, least recently used out first. A definition that a run or a reader uses
 * outlives its place here: use_count. Thread: loop. New here? Read definitions_put(). */
#pragma once

#include "workflow/base/list.h"
#include "workflow/language/definition.h"

enum { DEFINITIONS_CACHED_MAX = 256, DEFINITIONS_CACHED_BYTES_MAX = 4 << 20 };

struct definitions {
	struct list recent; /* of struct cached_definition, least recently used first */
	size_t count, bytes;
};

void definitions_init(struct definitions *definitions);
void definitions_close(struct definitions *definitions);
/* Takes over one use of the definition and gives back the one to work with (the same, or one that was here already), borrowed until
 * the next put. It must be in the journal. registered: its name and version lead to it for ever. */
struct definition *definitions_put(struct definitions *definitions, struct definition *definition, bool registered);
struct definition *definitions_by_digest(struct definitions *definitions, const struct digest *digest);
struct definition *definitions_by_name(struct definitions *definitions, const char *namespace, const char *name, const char *version);

struct definition *definition_hold(struct definition *definition);
void definition_release(struct definition *definition); /* NULL is allowed */
