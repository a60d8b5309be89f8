/* See value_cache.h. */
#include "daemon/value_cache.h"

#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

enum { SLOTS_MIN = 16 };

struct cached_value {
	struct digest digest;
	struct arena arena; /* of the bytes and of the tree */
	struct bytes bytes;
	struct json *json;
	struct cached_value *shared; /* the value lies in another cache, which keeps it while it is held here */
	unsigned holds;
	bool dropped; /* no cache has it any more: goes with the last hold */
	struct list recent;
	struct cached_value *next;
};

static size_t slot_of(const struct digest *digest, size_t slot_count)
{
	uint64_t hash;

	memcpy(&hash, digest->bytes, sizeof hash);
	return hash & (slot_count - 1);
}

void value_cache_init(struct value_cache *cache, size_t bytes_max)
{
	*cache = (struct value_cache){.bytes_max = bytes_max};
	list_init(&cache->recent);
}

static void free_value(struct cached_value *value)
{
	arena_close(&value->arena);
	free(value);
}

static void drop(struct value_cache *cache, struct cached_value *value)
{
	struct cached_value **link = &cache->slots[slot_of(&value->digest, cache->slot_count)];

	while (*link != value)
		link = &(*link)->next;
	*link = value->next;
	list_remove(&value->recent);
	cache->count--;
	cache->bytes -= value->arena.used;
	if (value->shared && --value->shared->holds == 0 && value->shared->dropped)
		free_value(value->shared);
	value->dropped = true;
	if (value->holds == 0)
		free_value(value);
}

/* The last one stays: the array of a loop is larger as a tree than it was as a text, and each decision of the loop looks into it. */
static void keep_to_bound(struct value_cache *cache)
{
	while (cache->bytes_max && cache->bytes > cache->bytes_max && cache->count > 1)
		drop(cache, CONTAINER_OF(cache->recent.next, struct cached_value, recent));
}

void value_cache_clear(struct value_cache *cache)
{
	while (!list_empty(&cache->recent))
		drop(cache, CONTAINER_OF(cache->recent.next, struct cached_value, recent));
	free(cache->slots);
	cache->slots = NULL;
	cache->slot_count = 0;
}

static struct cached_value *find(const struct value_cache *cache, const struct digest *digest)
{
	if (cache->slot_count == 0)
		return NULL;
	struct cached_value *value = cache->slots[slot_of(digest, cache->slot_count)];
	while (value && !digest_equal(&value->digest, digest))
		value = value->next;
	return value;
}

static void grow(struct value_cache *cache)
{
	size_t slot_count = cache->slot_count ? cache->slot_count * 2 : SLOTS_MIN;
	struct cached_value **slots = memory_zero(slot_count * sizeof *slots);

	LIST_EACH(link, &cache->recent) {
		struct cached_value *value = CONTAINER_OF(link, struct cached_value, recent);
		size_t slot = slot_of(&value->digest, slot_count);
		value->next = slots[slot];
		slots[slot] = value;
	}
	free(cache->slots);
	cache->slots = slots;
	cache->slot_count = slot_count;
}

static struct cached_value *add(struct value_cache *cache, const struct digest *digest)
{
	struct cached_value *value = memory_zero(sizeof *value);

	if (cache->count >= cache->slot_count)
		grow(cache);
	arena_init(&value->arena);
	value->digest = *digest;
	size_t slot = slot_of(digest, cache->slot_count);
	value->next = cache->slots[slot];
	cache->slots[slot] = value;
	list_add_last(&cache->recent, &value->recent);
	cache->count++;
	return value;
}

void value_cache_put(struct value_cache *cache, const struct digest *digest, struct bytes bytes)
{
	struct cached_value *value = find(cache, digest);

	if (value || (cache->bytes_max && bytes.len > cache->bytes_max / 4))
		return;
	value = add(cache, digest);
	value->bytes = arena_bytes(&value->arena, bytes);
	cache->bytes += value->arena.used;
	keep_to_bound(cache);
}

static struct cached_value *use(struct value_cache *cache, const struct digest *digest)
{
	struct cached_value *value = find(cache, digest);

	if (value) {
		list_remove(&value->recent);
		list_add_last(&cache->recent, &value->recent);
	}
	return value;
}

const struct json *value_cache_get(struct value_cache *cache, const struct digest *digest)
{
	struct cached_value *value = use(cache, digest);

	if (!value)
		return NULL;
	if (value->shared)
		return value->shared->json;
	if (!value->json) {
		size_t before = value->arena.used;
		value->json = json_parse(&value->arena, value->bytes, JSON_STORED, NULL, NULL);
		cache->bytes += value->arena.used - before; /* the next put sees to the bound */
	}
	return value->json;
}

const struct json *value_cache_share(struct value_cache *cache, struct value_cache *from, const struct digest *digest)
{
	struct cached_value *value = use(from, digest);

	CHECK(cache->bytes_max == 0);
	if (find(cache, digest))
		return value_cache_get(cache, digest);
	if (!value || value_cache_get(from, digest) == NULL)
		return NULL;
	value->holds++;
	add(cache, digest)->shared = value;
	keep_to_bound(from);
	return value->json;
}
