/* Tests of workflow/base/bytes.c. */
#include "workflow/base/bytes.h"

#include <signal.h>
#include <string.h>

#include "tests/unit/base/suite.h"

/* Byte strings are equal by length and content, NULs included. */
START_TEST(bytes_compare)
{
	ck_assert(bytes_equal(BYTES_OF("a\0b"), BYTES_OF("a\0b")));
	ck_assert(!bytes_equal(BYTES_OF("a\0b"), BYTES_OF("a\0c")));
	ck_assert(!bytes_equal(BYTES_OF("ab"), BYTES_OF("abc")));
	ck_assert(bytes_equal((struct bytes){NULL, 0}, BYTES_OF("")));
	ck_assert(bytes_equal_text(BYTES_OF("abc"), "abc"));
	ck_assert(!bytes_equal_text(BYTES_OF("abc\0"), "abc"));
	ck_assert_uint_eq(bytes_text("abc").len, 3);
}
END_TEST

/* All ways of adding join in order, with a NUL behind that does not count. */
START_TEST(buffer_grows)
{
	struct buffer buffer;
	struct bytes got;

	buffer_init(&buffer, 1000000);
	ck_assert_str_eq(buffer_text(&buffer), "");
	ck_assert_uint_eq(buffer_bytes(&buffer).len, 0);
	buffer_add(&buffer, "a\0b", 3);
	buffer_add_bytes(&buffer, BYTES_OF("cd"));
	buffer_add_text(&buffer, "ef");
	buffer_add_char(&buffer, 'g');
	buffer_printf(&buffer, "%d", 7);
	buffer_add(&buffer, NULL, 0);
	got = buffer_bytes(&buffer);
	ck_assert(bytes_equal(got, BYTES_OF("a\0bcdefg7")));
	ck_assert_int_eq(got.data[got.len], 0);
	for (int i = 0; i < 100000; i++)
		buffer_add_char(&buffer, 'x');
	ck_assert_uint_eq(buffer.len, 100009);
	ck_assert(!buffer.overflow);
	buffer_close(&buffer);
	ck_assert_uint_eq(buffer.len, 0);
}
END_TEST

/* Print of any length arrives whole. */
START_TEST(buffer_prints_long_texts)
{
	struct buffer buffer;
	char text[3000];

	memset(text, 'y', sizeof(text));
	for (size_t len = 250; len < 260; len++) {
		text[len] = '\0';
		buffer_init(&buffer, 10000);
		buffer_printf(&buffer, "<%s>", text);
		ck_assert_uint_eq(buffer.len, len + 2);
		ck_assert_int_eq(buffer.data[len + 1], '>');
		buffer_close(&buffer);
		text[len] = 'y';
	}
}
END_TEST

/* The maximum can be reached to the byte; one more changes nothing and is remembered, also when less is added later. */
START_TEST(buffer_has_a_maximum)
{
	for (size_t max = 0; max < 300; max++) {
		struct buffer buffer;

		buffer_init(&buffer, max);
		for (size_t i = 0; i < max; i++)
			buffer_add_char(&buffer, 'x');
		ck_assert(!buffer.overflow);
		ck_assert_uint_eq(buffer.len, max);
		buffer_add_char(&buffer, 'y');
		ck_assert(buffer.overflow);
		ck_assert_uint_eq(buffer.len, max);
		buffer_remove_front(&buffer, max / 2);
		buffer_add(&buffer, "z", 1);
		buffer_printf(&buffer, "%s", "zzz");
		ck_assert(buffer.overflow);
		ck_assert_uint_eq(buffer.len, max - max / 2);
		ck_assert_uint_le(buffer.cap, max + 1);
		buffer_clear(&buffer);
		ck_assert(!buffer.overflow);
		ck_assert_str_eq(buffer_text(&buffer), "");
		if (max > 0) {
			buffer_add_char(&buffer, 'a');
			ck_assert_str_eq(buffer_text(&buffer), "a");
		}
		buffer_close(&buffer);
	}
}
END_TEST

/* A piece that does not fit is not added in part, however large it claims to be. */
START_TEST(buffer_adds_all_or_nothing)
{
	struct buffer buffer;

	buffer_init(&buffer, 10);
	buffer_add_text(&buffer, "12345678");
	buffer_add(&buffer, "abc", 3);
	ck_assert(buffer.overflow);
	ck_assert_str_eq(buffer_text(&buffer), "12345678");
	buffer_clear(&buffer);
	buffer_add(&buffer, "x", SIZE_MAX);
	ck_assert(buffer.overflow);
	ck_assert_uint_eq(buffer.len, 0);
	buffer_close(&buffer);
}
END_TEST

/* What is taken from the front leaves the rest. */
START_TEST(buffer_loses_its_front)
{
	struct buffer buffer;

	buffer_init(&buffer, 100);
	buffer_remove_front(&buffer, 0);
	buffer_add_text(&buffer, "abcdef");
	buffer_remove_front(&buffer, 2);
	ck_assert_str_eq(buffer_text(&buffer), "cdef");
	buffer_remove_front(&buffer, 4);
	ck_assert_str_eq(buffer_text(&buffer), "");
	buffer_add_text(&buffer, "gh");
	ck_assert_str_eq(buffer_text(&buffer), "gh");
	buffer_close(&buffer);
}
END_TEST

/* Taking more than there is is a mistake of ours. */
START_TEST(stop_on_removing_too_much)
{
	struct buffer buffer;

	buffer_init(&buffer, 100);
	buffer_add_text(&buffer, "ab");
	buffer_remove_front(&buffer, 3);
}
END_TEST

SUITE_ABORTS(stop_on_removing_too_much)
SUITE_MAIN("base-bytes", bytes_compare, buffer_grows, buffer_prints_long_texts, buffer_has_a_maximum, buffer_adds_all_or_nothing,
	   buffer_loses_its_front)
