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

static void drop(struct value_cache *cache, struct cached_value *value)
{
	struct cached_value **link = &cache->slots[slot_of(&value->digest, cache->slot_count)];

	while (*link != value)
		link = &(*link)->next;
	*link = value->next;
	list_remove(&value->recent);
	cache->count--;
	cache->bytes -= value->bytes.len;
	arena_close(&value->arena);
	free(value);
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

void value_cache_put(struct value_cache *cache, const struct digest *digest, struct bytes bytes)
{
	struct cached_value *value = find(cache, digest);

	if (value || (cache->bytes_max && bytes.len > cache->bytes_max / 4))
		return;
	if (cache->count >= cache->slot_count)
		grow(cache);
	value = memory_zero(sizeof *value);
	arena_init(&value->arena);
	value->digest = *digest;
	value->bytes = arena_bytes(&value->arena, bytes);
	size_t slot = slot_of(digest, cache->slot_count);
	value->next = cache->slots[slot];
	cache->slots[slot] = value;
	list_add_last(&cache->recent, &value->recent);
	cache->count++;
	cache->bytes += bytes.len;
	while (cache->bytes_max && cache->bytes > cache->bytes_max)
		drop(cache, CONTAINER_OF(cache->recent.next, struct cached_value, recent));
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

struct bytes value_cache_bytes(struct value_cache *cache, const struct digest *digest)
{
	const struct cached_value *value = use(cache, digest);

	return value ? value->bytes : (struct bytes){0};
}

const struct json *value_cache_get(struct value_cache *cache, const struct digest *digest)
{
	struct cached_value *value = use(cache, digest);

	if (!value)
		return NULL;
	if (!value->json)
		value->json = json_parse(&value->arena, value->bytes, JSON_STORED, NULL, NULL);
	return value->json;
}
