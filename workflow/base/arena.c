/* The arena: blocks that grow, cut from the front, freed together. Start at take().
 *
 * Texts are packed without alignment. With AddressSanitizer the gaps between two pieces and the rest of each block are
 * poisoned, so that running over the end of a piece is found as it would be with malloc. */
#include "workflow/base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
enum { ARENA_GAP = 16 };
#define FORBID(data, size) ASAN_POISON_MEMORY_REGION(data, size)
#define ALLOW(data, size) ASAN_UNPOISON_MEMORY_REGION(data, size)
#else
enum { ARENA_GAP = 0 };
#define FORBID(data, size) ((void)(data), (void)(size))
#define ALLOW(data, size) ((void)(data), (void)(size))
#endif

enum {
	ARENA_BLOCK_FIRST = 1024,
	ARENA_BLOCK_MAX = 64 * 1024, /* What is larger gets a block of its own. */
	GROW_FIRST = 4,
	ARENA_ALIGN = _Alignof(max_align_t),
	TEXT_ALIGN = ARENA_GAP > 0 ? ARENA_ALIGN : 1,
};

/* The newest block that still has room is the first in the chain. */
struct arena_block {
	struct arena_block *next;
	size_t used, size; /* of data */
	_Alignas(max_align_t) uint8_t data[];
};

void arena_init(struct arena *arena)
{
	*arena = (struct arena){0};
}

void arena_close(struct arena *arena)
{
	struct arena_block *block = arena->blocks;

	while (block != NULL) {
		struct arena_block *next = block->next;

		ALLOW(block->data, block->size);
		free(block);
		block = next;
	}
	arena_init(arena);
}

static struct arena_block *make_block(size_t size)
{
	struct arena_block *block;

	CHECK(size <= SIZE_MAX - sizeof(*block));
	block = memory_alloc(sizeof(*block) + size);
	block->next = NULL;
	block->used = 0;
	block->size = size;
	FORBID(block->data, size);
	return block;
}

static void *take_block(struct arena *arena, size_t size)
{
	struct arena_block *first = arena->blocks;
	size_t block_size = first == NULL ? ARENA_BLOCK_FIRST : first->size * 2;
	struct arena_block *block;

	if (block_size > ARENA_BLOCK_MAX)
		block_size = ARENA_BLOCK_MAX;
	if (size > block_size / 2) {
		/* Behind the first, whose room is still good for smaller pieces. */
		block = make_block(size);
		block->used = size;
		if (first != NULL) {
			block->next = first->next;
			first->next = block;
		} else {
			arena->blocks = block;
		}
	} else {
		block = make_block(block_size);
		block->used = size;
		block->next = first;
		arena->blocks = block;
	}
	return block->data;
}

static void *take(struct arena *arena, size_t size, size_t align)
{
	struct arena_block *block = arena->blocks;
	void *memory;

	arena->used += size;
	if (block != NULL) {
		size_t start = (block->used + (block->used > 0 ? ARENA_GAP : 0) + align - 1) & ~(align - 1);

		if (start <= block->size && size <= block->size - start) {
			block->used = start + size;
			ALLOW(block->data + start, size);
			return block->data + start;
		}
	}
	memory = take_block(arena, size);
	ALLOW(memory, size);
	return memory;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	return take(arena, size, ARENA_ALIGN);
}

void *arena_zero(struct arena *arena, size_t size)
{
	return memset(arena_alloc(arena, size), 0, size);
}

char *arena_text(struct arena *arena, const char *text)
{
	return arena_text_len(arena, text, strlen(text));
}

char *arena_text_len(struct arena *arena, const char *text, size_t len)
{
	char *copy;

	CHECK(len < SIZE_MAX);
	copy = take(arena, len + 1, TEXT_ALIGN);
	if (len > 0)
		memcpy(copy, text, len);
	copy[len] = '\0';
	return copy;
}

struct bytes arena_bytes(struct arena *arena, struct bytes bytes)
{
	return (struct bytes){(uint8_t *)arena_text_len(arena, (const char *)bytes.data, bytes.len), bytes.len};
}

void *arena_grow(struct arena *arena, const void *items, size_t count, size_t *cap, size_t item_size)
{
	void *larger;

	if (count < *cap)
		return (void *)items;
	CHECK(*cap <= SIZE_MAX / 2 / item_size);
	*cap = *cap > 0 ? *cap * 2 : GROW_FIRST;
	larger = arena_alloc(arena, *cap * item_size);
	if (count > 0)
		memcpy(larger, items, count * item_size);
	return larger;
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
	char text[256], *made;
	va_list args, again;
	int len;

	va_start(args, format);
	va_copy(again, args);
	len = vsnprintf(text, sizeof(text), format, args);
	CHECK(len >= 0);
	if ((size_t)len < sizeof(text)) {
		made = arena_text_len(arena, text, (size_t)len);
	} else {
		made = take(arena, (size_t)len + 1, TEXT_ALIGN);
		vsnprintf(made, (size_t)len + 1, format, again);
	}
	va_end(again);
	va_end(args);
	return made;
}
