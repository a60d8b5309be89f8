/* The values of many entries by digest: a value travels with the entry that first names it, and later entries only name it. Pure. */
#pragma once

#include "workflow/entry.h"

struct value_index {
	const struct entry_value **slots; /* open addressing; the number is a power of two, at least half of them are empty */
	size_t slot_count;
};

/* The entries stay untouched as long as the index is used. Where several carry the same value, one that has its bytes counts. */
void value_index_make(struct value_index *index, struct arena *arena, const struct entry *entries, size_t count);
/* NULL: no entry carries it. */
const struct entry_value *value_index_find(const struct value_index *index, const struct digest *digest);
