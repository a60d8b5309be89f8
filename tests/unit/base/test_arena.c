/* Tests of workflow/base/arena.c. */
#include "workflow/base/arena.h"

#include <stdint.h>
#include <string.h>

#include "tests/unit/base/suite.h"

/* Pieces of all sizes are aligned, apart from each other, and keep what was written into them. */
START_TEST(pieces_do_not_touch)
{
	enum { PIECES = 3000 };
	static uint8_t *pieces[PIECES];
	static size_t sizes[PIECES];
	struct arena arena;
	size_t total = 0;

	arena_init(&arena);
	for (size_t i = 0; i < PIECES; i++) {
		sizes[i] = i % 97 == 0 ? i * 50 : i % 61;
		pieces[i] = arena_alloc(&arena, sizes[i]);
		ck_assert_ptr_nonnull(pieces[i]);
		ck_assert_uint_eq((uintptr_t)pieces[i] % _Alignof(max_align_t), 0);
		memset(pieces[i], (int)(i % 251), sizes[i]);
		total += sizes[i];
	}
	ck_assert_uint_eq(arena.used, total);
	for (size_t i = 0; i < PIECES; i++) {
		for (size_t at = 0; at < sizes[i]; at++) {
			if (pieces[i][at] != i % 251)
				ck_abort_msg("piece %zu was written over at %zu", i, at);
		}
	}
	arena_close(&arena);
}
END_TEST

/* An array that grows item by item keeps what is in it. */
START_TEST(arrays_grow)
{
	struct arena arena;
	int *items = NULL;
	size_t count = 0, cap = 0;

	arena_init(&arena);
	for (int i = 0; i < 1000; i++) {
		items = arena_grow(&arena, items, count, &cap, sizeof(*items));
		ck_assert_uint_lt(count, cap);
		items[count++] = i;
	}
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(items[i], i);
	arena_close(&arena);
}
END_TEST

/* Texts are copies with a NUL behind; bytes may hold NULs; print of any length fits. */
START_TEST(texts_are_copies)
{
	struct arena arena;
	char text[2000], *copy;
	struct bytes bytes;

	arena_init(&arena);
	strcpy(text, "hello");
	copy = arena_text(&arena, text);
	text[0] = 'j';
	ck_assert_str_eq(copy, "hello");
	ck_assert_str_eq(arena_text_len(&arena, text, 3), "jel");
	ck_assert_str_eq(arena_text_len(&arena, NULL, 0), "");
	bytes = arena_bytes(&arena, BYTES_OF("a\0b"));
	ck_assert_uint_eq(bytes.len, 3);
	ck_assert_mem_eq(bytes.data, "a\0b", 4);
	memset(text, 'z', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	copy = arena_printf(&arena, "<%s|%d>", text, 42);
	ck_assert_uint_eq(strlen(copy), sizeof(text) - 1 + 5);
	ck_assert_str_eq(copy + sizeof(text), "|42>");
	ck_assert_str_eq(arena_printf(&arena, "%d", 42), "42");
	arena_close(&arena);
}
END_TEST

/* Cleared memory is clear although the block was used before it, and a closed arena can be used again. */
START_TEST(arena_can_be_used_again)
{
	struct arena arena;

	arena_init(&arena);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 100; i++) {
			uint8_t *dirty = arena_alloc(&arena, 33), *clear;

			memset(dirty, 0xFF, 33);
			clear = arena_zero(&arena, 77);
			for (int at = 0; at < 77; at++)
				ck_assert_uint_eq(clear[at], 0);
		}
		arena_close(&arena);
		ck_assert_uint_eq(arena.used, 0);
		ck_assert_ptr_null(arena.blocks);
	}
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("base-arena", pieces_do_not_touch, arrays_grow, texts_are_copies, arena_can_be_used_again)
