/* See value_index.h. */
#include "workflow/value_index.h"

#include <string.h>

enum { SLOTS_MIN = 16 };

/* Digests are evenly spread, so their first bytes are hash enough. */
static const struct entry_value **find_slot(const struct value_index *index, const struct digest *digest)
{
	uint64_t hash;

	memcpy(&hash, digest->bytes, sizeof hash);
	for (size_t slot = hash & (index->slot_count - 1);; slot = (slot + 1) & (index->slot_count - 1))
		if (!index->slots[slot] || digest_equal(&index->slots[slot]->digest, digest))
			return &index->slots[slot];
}

void value_index_make(struct value_index *index, struct arena *arena, const struct entry *entries, size_t count)
{
	size_t values = 0;

	for (size_t i = 0; i < count; i++)
		values += entries[i].value_count;
	index->slot_count = SLOTS_MIN;
	while (index->slot_count < values * 2)
		index->slot_count *= 2;
	index->slots = arena_zero(arena, index->slot_count * sizeof *index->slots);
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < entries[i].value_count; k++) {
			const struct entry_value *value = &entries[i].values[k], **slot = find_slot(index, &value->digest);

			if (!*slot || !(*slot)->bytes.data)
				*slot = value;
		}
}

const struct entry_value *value_index_find(const struct value_index *index, const struct digest *digest)
{
	return *find_slot(index, digest);
}
