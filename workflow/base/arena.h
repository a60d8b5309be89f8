/* An arena: many small allocations, freed together. Not for several threads at once; handing over the arena hands over
 * all that lies in it. Memory is aligned for any type. */
#pragma once

#include "workflow/base/bytes.h"

struct arena_block;
struct arena {
	struct arena_block *blocks;
	size_t used; /* bytes handed out, for limits and reports */
};

void arena_init(struct arena *arena);
void arena_close(struct arena *arena); /* Frees all; the arena can be used again. */
void *arena_alloc(struct arena *arena, size_t size); /* not cleared */
void *arena_zero(struct arena *arena, size_t size);
char *arena_text(struct arena *arena, const char *text); /* copy */
char *arena_text_len(struct arena *arena, const char *text, size_t len); /* copy, NUL added */
struct bytes arena_bytes(struct arena *arena, struct bytes bytes); /* copy, NUL added behind it */
/* For arrays that grow item by item: room for items[count], twice as much each time. An arena resizes nothing, so the old array stays
 * behind in it. Start with NULL and a *cap of 0. */
void *arena_grow(struct arena *arena, const void *items, size_t count, size_t *cap, size_t item_size);
char *arena_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
