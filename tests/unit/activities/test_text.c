/* Code points, white space and fences. */
#include <check.h>
#include <stdlib.h>

#include "activities/text.h"

/* A fence around all of an answer is taken off, with or without a language and blanks around; anything else stays as it is. */
START_TEST(fences_are_taken_off)
{
	static const struct {
		const char *answer, *inner; /* NULL: no fence */
	} rows[] = {
		{"```json\n{\"a\":1}\n```", "{\"a\":1}\n"},
		{" \r\n\t```\n[1]```\n ", "[1]"},
		{"```\n```", ""},
		{"```json\n```", ""},
		{"{\"a\":1}", NULL},
		{"", NULL},
		{" \n", NULL},
		{"```", NULL},
		{"``````", NULL},
		{"```json```", NULL},
		{"```json\n{\"a\":1}", NULL},
		{"Here it is: ```json\n{\"a\":1}\n```", NULL},
		{"```json\n{\"a\":1}\n``` as asked", NULL},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct bytes answer = bytes_text(rows[i].answer), inner;
		bool unfenced = rows[i].inner == NULL;

		inner = text_take_fence_off(answer, &unfenced);
		ck_assert_msg(unfenced == (rows[i].inner != NULL), "row %zu", i);
		ck_assert_msg(bytes_equal_text(inner, rows[i].inner != NULL ? rows[i].inner : rows[i].answer), "row %zu", i);
		ck_assert_ptr_eq(text_take_fence_off(answer, NULL).data, inner.data);
	}
	/* A NUL is no white space. */
	ck_assert_uint_eq(text_take_fence_off((struct bytes){(const uint8_t *)"\0```\n1```", 9}, NULL).len, 9);
}
END_TEST

/* Characters of one to four bytes are read whole, and white space is Unicode's. */
START_TEST(characters_are_read)
{
	struct bytes text = bytes_text("aä\u3000\U0001F600");
	static const utf8proc_int32_t expected[] = {'a', 0xE4, 0x3000, 0x1F600}, no_space[] = {0, 'a', 0x8, 0xE, 0x200B, 0x2060, 0xFEFF};
	static const utf8proc_int32_t space[] = {' ', '\t', '\n', '\v', '\f', '\r', 0x85, 0xA0, 0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
	size_t at = 0;

	for (size_t i = 0; i < COUNT_OF(expected); i++) {
		size_t len;

		ck_assert_int_eq(text_code_point(text, at, &len), expected[i]);
		ck_assert_uint_eq(len, i + 1);
		at += len;
	}
	ck_assert_uint_eq(at, text.len);
	for (size_t i = 0; i < COUNT_OF(space); i++)
		ck_assert_msg(text_is_white_space(space[i]), "U+%04X", (unsigned)space[i]);
	for (size_t i = 0; i < COUNT_OF(no_space); i++)
		ck_assert_msg(!text_is_white_space(no_space[i]), "U+%04X", (unsigned)no_space[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("text");
	TCase *cases = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(cases, fences_are_taken_off);
	tcase_add_test(cases, characters_are_read);
	suite_add_tcase(suite, cases);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
