/* Values by digest, with their parsed form, least recently used out first. Loop thread. Used twice: one for all runs, bounded
 * by bytes of text and trees, fed with what was committed lately; one for each decision that had to load values, without a bound, emptied when
 * the decision is made. */
#pragma once

#include "workflow/base/json.h"
#include "workflow/base/list.h"

struct cached_value;
struct value_cache {
	struct cached_value **slots;
	size_t slot_count, count, bytes, bytes_max; /* bytes_max 0: no bound */
	struct list recent; /* least recently used first */
};

void value_cache_init(struct value_cache *cache, size_t bytes_max);
void value_cache_clear(struct value_cache *cache);
void value_cache_put(struct value_cache *cache, const struct digest *digest, struct bytes bytes); /* copies */
/* Parsed on first use. NULL: not here, or no JSON. With a bound: valid until the next put or clear; without: until the clear. */
const struct json *value_cache_get(struct value_cache *cache, const struct digest *digest);
/* The value of another cache, in this one too, which has no bound: its tree stays until this one is cleared, whatever that one drops
 * meanwhile. So the array of a loop is parsed once, not by each decision of the loop. NULL: not there. */
const struct json *value_cache_share(struct value_cache *cache, struct value_cache *from, const struct digest *digest);
