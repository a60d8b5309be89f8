/* Grounding: where quotes are found, in bytes, code points and UTF-16 units, and where they are not. */
#include "activities/grounding.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

struct row {
	const char *text, *quote;
	size_t from;
	enum grounding_grade grade;
	size_t bytes[2], code_points[2], utf16[2];
};

static void run_rows(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct row *row = &rows[i];
		struct grounding_text *text = grounding_text_new(bytes_text(row->text));
		struct grounding got;

		grounding_find(text, bytes_text(row->quote), row->from, &got);
		ck_assert_msg(got.grade == row->grade, "row %zu: %s", i, grounding_grade_name(got.grade));
		ck_assert_msg(got.score == (row->grade == GROUNDING_UNGROUNDED ? 0 : 1), "row %zu: score %g", i, got.score);
		ck_assert_msg(got.byte_start == row->bytes[0] && got.byte_end == row->bytes[1], "row %zu: bytes %zu to %zu", i, got.byte_start,
			      got.byte_end);
		ck_assert_msg(got.code_point_start == row->code_points[0] && got.code_point_end == row->code_points[1],
			      "row %zu: code points %zu to %zu", i, got.code_point_start, got.code_point_end);
		ck_assert_msg(got.utf16_start == row->utf16[0] && got.utf16_end == row->utf16[1], "row %zu: UTF-16 %zu to %zu", i,
			      got.utf16_start, got.utf16_end);
		grounding_text_free(text);
	}
}

#define EXACT GROUNDING_EXACT
#define NORMALISED GROUNDING_NORMALISED
#define UNGROUNDED GROUNDING_UNGROUNDED

/* The bytes of the quote are found as they stand, and all three kinds of offsets are those of the text. */
START_TEST(finds_exact_quotes)
{
	static const struct row rows[] = {
		{"Vellamo was founded in 1931.", "founded in 1931", 0, EXACT, {12, 27}, {12, 27}, {12, 27}},
		{"Vellamo", "Vellamo", 0, EXACT, {0, 7}, {0, 7}, {0, 7}},
		/* Chinese: three bytes, one code point, one unit each. */
		{"北岭成立于1931年。总部在青港。", "总部在青港", 0, EXACT, {25, 40}, {11, 16}, {11, 16}},
		/* Beyond the basic plane: four bytes, one code point, two units. */
		{"😀 𝒳 is part of Nordhelm", "is part of", 0, EXACT, {10, 20}, {4, 14}, {6, 16}},
		/* Right to left: bytes are in reading order, whatever a screen does with them. */
		{"החברה נוסדה בשנת 1931", "נוסדה", 0, EXACT, {11, 21}, {6, 11}, {6, 11}},
		/* A decomposed letter, whole. */
		{"Le Cafe\xCC\x81 Bleu", "Cafe\xCC\x81", 0, EXACT, {3, 9}, {3, 8}, {3, 8}},
		/* Several hits: the first at or after `from`, else the first of all. */
		{"ab ab ab", "ab", 0, EXACT, {0, 2}, {0, 2}, {0, 2}},
		{"ab ab ab", "ab", 1, EXACT, {3, 5}, {3, 5}, {3, 5}},
		{"ab ab ab", "ab", 5, EXACT, {6, 8}, {6, 8}, {6, 8}},
		{"ab ab ab", "ab", 7, EXACT, {0, 2}, {0, 2}, {0, 2}},
		{"ab ab ab", "ab", 8, EXACT, {0, 2}, {0, 2}, {0, 2}},
		/* Hits that overlap one that was passed over are seen. */
		{"aaaa", "aa", 1, EXACT, {1, 3}, {1, 3}, {1, 3}},
		/* A mark behind a line break stands on nothing, so that it is a character of its own. */
		{"a\n\xE0\xA4\xBF" "b", "\xE0\xA4\xBF" "b", 0, EXACT, {2, 6}, {2, 4}, {2, 4}},
		/* An exact hit is better than a normalised one that comes earlier. */
		{"a\xC2\xA0" "b, a b", "a b", 0, EXACT, {6, 9}, {5, 8}, {5, 8}},
	};

	run_rows(rows, COUNT_OF(rows));
}
END_TEST

/* What NFKC, white space and typography change is found, and the range is that of the original bytes. */
START_TEST(finds_normalised_quotes)
{
	static const struct row rows[] = {
		/* Composed and decomposed, both ways. */
		{"Le Cafe\xCC\x81 Bleu", "Caf\xC3\xA9", 0, NORMALISED, {3, 9}, {3, 8}, {3, 8}},
		{"Le Caf\xC3\xA9 Bleu", "Cafe\xCC\x81 B", 0, NORMALISED, {3, 10}, {3, 9}, {3, 9}},
		/* Two marks in another order. */
		{"xq\xCC\xA3\xCC\x87y", "q\xCC\x87\xCC\xA3", 0, NORMALISED, {1, 6}, {1, 4}, {1, 4}},
		/* Ligature fi, alone and inside a word. */
		{"the o\xEF\xAC\x83" "ce in Brask", "office", 0, NORMALISED, {4, 10}, {4, 8}, {4, 8}},
		{"\xEF\xAC\x81rm", "firm", 0, NORMALISED, {0, 5}, {0, 3}, {0, 3}},
		/* Full-width letters and digits; half-width kana with its voicing mark. */
		{"\xEF\xBC\xA1\xEF\xBC\x91 b", "A1", 0, NORMALISED, {0, 6}, {0, 2}, {0, 2}},
		{"\xEF\xBD\xB6\xEF\xBE\x9E\xEF\xBD\xBD", "ガス", 0, NORMALISED, {0, 9}, {0, 3}, {0, 3}},
		/* Hangul: letters that combine across grapheme clusters, and syllables of two forms. */
		{"\xE3\x84\xB1\xE3\x85\x8F \xED\x95\x9C", "\xEA\xB0\x80", 0, NORMALISED, {0, 6}, {0, 2}, {0, 2}},
		{"\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB x", "\xED\x95\x9C", 0, NORMALISED, {0, 9}, {0, 3}, {0, 3}},
		/* Soft hyphens and zero-width characters show nothing. */
		{"a co\xC2\xADoperative b", "cooperative", 0, NORMALISED, {2, 15}, {2, 14}, {2, 14}},
		{"co\xC2\xADoperative", "coop", 0, NORMALISED, {0, 6}, {0, 5}, {0, 5}},
		{"x \xC2\xADoperative", "operative", 0, EXACT, {4, 13}, {3, 12}, {3, 12}},
		{"cooperative", "co\xC2\xADoperative", 0, NORMALISED, {0, 11}, {0, 11}, {0, 11}},
		{"\xE2\x80\x8Fנוסדה\xE2\x80\x8F בשנת", "נוסדה בשנת", 0, NORMALISED, {3, 25}, {1, 12}, {1, 12}},
		/* White space: no-break, ideographic, line breaks, runs; around the quote too. */
		{"20\xC2\xA0km", "20 km", 0, NORMALISED, {0, 6}, {0, 5}, {0, 5}},
		{"北岭\xE3\x80\x80青港", "北岭 青港", 0, NORMALISED, {0, 15}, {0, 5}, {0, 5}},
		{"was founded\r\n  in 1931", "founded in 1931", 0, NORMALISED, {4, 22}, {4, 22}, {4, 22}},
		{"was founded in", "founded\nin", 0, NORMALISED, {4, 14}, {4, 14}, {4, 14}},
		{"was founded in", " founded in\n", 0, NORMALISED, {4, 14}, {4, 14}, {4, 14}},
		{"a \xC2\xAD b", "a b", 0, NORMALISED, {0, 6}, {0, 5}, {0, 5}},
		/* Typographic quotes and dashes, both ways. */
		{"the \xE2\x80\x9CNorth\xE2\x80\x9D plan", "\"North\" plan", 0, NORMALISED, {4, 20}, {4, 16}, {4, 16}},
		{"Orrin\xE2\x80\x99s mill", "Orrin's mill", 0, NORMALISED, {0, 14}, {0, 12}, {0, 12}},
		{"Orrin's mill", "Orrin\xE2\x80\x99s", 0, NORMALISED, {0, 7}, {0, 7}, {0, 7}},
		{"\xE2\x80\x9EWerk\xE2\x80\x9C", "\"Werk\"", 0, NORMALISED, {0, 10}, {0, 6}, {0, 6}},
		{"1931\xE2\x80\x93" "1940 \xE2\x80\x94 all", "1931-1940 - all", 0, NORMALISED, {0, 19}, {0, 15}, {0, 15}},
		/* One character that becomes three is found whole. */
		{"and so on\xE2\x80\xA6 then", "on...", 0, NORMALISED, {7, 12}, {7, 10}, {7, 10}},
		/* UTF-16 behind a character beyond the basic plane. */
		{"😀 20\xC2\xA0km", "20 km", 0, NORMALISED, {5, 11}, {2, 7}, {3, 8}},
		/* Several hits. */
		{"a\xC2\xA0" "b a\xC2\xA0" "b", "a b", 1, NORMALISED, {5, 9}, {4, 7}, {4, 7}},
		{"a\xC2\xA0" "b a\xC2\xA0" "b", "a b", 6, NORMALISED, {0, 4}, {0, 3}, {0, 3}},
	};

	run_rows(rows, COUNT_OF(rows));
}
END_TEST

/* What is not in the text is not found, and neither is a part of a character. */
START_TEST(leaves_the_rest_ungrounded)
{
	static const struct row rows[] = {
		{"Vellamo was founded in 1931.", "founded in 1932", 0, UNGROUNDED, {0}, {0}, {0}},
		{"Vellamo", "vellamo", 0, UNGROUNDED, {0}, {0}, {0}}, /* case is kept */
		{"Vellamo", "", 0, UNGROUNDED, {0}, {0}, {0}},
		{"a b", " \n", 0, UNGROUNDED, {0}, {0}, {0}},
		{"a\xC2\xAD b", "\xC2\xAD", 0, UNGROUNDED, {0}, {0}, {0}},
		{"", "a", 0, UNGROUNDED, {0}, {0}, {0}},
		{"", "", 0, UNGROUNDED, {0}, {0}, {0}},
		{"ab", "abc", 0, UNGROUNDED, {0}, {0}, {0}},
		/* A letter without its mark, a mark without its letter, in either form. */
		{"Cafe\xCC\x81", "Cafe", 0, UNGROUNDED, {0}, {0}, {0}},
		{"Caf\xC3\xA9", "Cafe", 0, UNGROUNDED, {0}, {0}, {0}},
		{"Cafe\xCC\x81 au", "\xCC\x81 au", 0, UNGROUNDED, {0}, {0}, {0}},
		{"किताब", "क", 0, UNGROUNDED, {0}, {0}, {0}},
		/* Half a ligature, one dot of three. */
		{"o\xEF\xAC\x83" "ce", "of", 0, UNGROUNDED, {0}, {0}, {0}},
		{"on\xE2\x80\xA6", "on.", 0, UNGROUNDED, {0}, {0}, {0}},
	};

	run_rows(rows, COUNT_OF(rows));

	/* The first hit is cut off a mark, the second one stands free. */
	run_rows(&(struct row){"cafe\xCC\x81 cafe", "cafe", 0, EXACT, {7, 11}, {6, 10}, {6, 10}}, 1);
}
END_TEST

/* A chain of marks longer than UNIT_CODE_POINTS_MAX is cut into units, takes no quadratic time, and is still found. */
START_TEST(endures_long_chains_of_marks)
{
	enum { MARKS = 200000 };
	char *text = memory_alloc(2 * MARKS + 8), *quote;
	struct grounding_text *prepared;
	struct grounding got;

	text[0] = 'e';
	for (size_t i = 0; i < MARKS; i++) /* Alternating, so that sorting them would have to move each. */
		memcpy(text + 1 + 2 * i, i % 2 == 0 ? "\xCC\x81" : "\xCC\xA3", 2);
	memcpy(text + 1 + 2 * MARKS, "\xC2\xA0z", 4);
	quote = memory_text(text);
	memcpy(quote + 1 + 2 * MARKS, " z", 3);
	prepared = grounding_text_new(bytes_text(text));
	grounding_find(prepared, bytes_text(quote), 0, &got);
	ck_assert_int_eq(got.grade, GROUNDING_NORMALISED);
	ck_assert_uint_eq(got.byte_start, 0);
	ck_assert_uint_eq(got.byte_end, 2 * MARKS + 4);
	ck_assert_uint_eq(got.code_point_end, MARKS + 3);
	grounding_text_free(prepared);
	free(quote);
	free(text);
}
END_TEST

/* Hits that all have to be passed over cost one walk over the text, not one walk each. */
START_TEST(endures_many_hits_that_do_not_count)
{
	enum { LETTERS = 200000, NEEDLE = 8000 };
	char *text = memory_alloc(3 * LETTERS + 1);
	struct grounding_text *prepared;
	struct grounding got;

	for (size_t i = 0; i < LETTERS; i++)
		memcpy(text + 3 * i, "a\xCC\xA3", 4);
	prepared = grounding_text_new((struct bytes){(const uint8_t *)text, 3 * LETTERS});
	/* Ends with a letter whose mark is cut off, wherever it is found. */
	grounding_find(prepared, (struct bytes){(const uint8_t *)text, 3 * NEEDLE + 1}, 0, &got);
	ck_assert_int_eq(got.grade, GROUNDING_UNGROUNDED);
	ck_assert_uint_eq(got.byte_end, 0);
	grounding_text_free(prepared);
	free(text);
}
END_TEST

/* Counting units at every offset of a text agrees with counting them one by one. */
START_TEST(counts_units)
{
	static const char text[] = "a\xC3\xA4\xE6\x97\xA5\xF0\x9F\x98\x80 plain text of some length \xF0\x9F\x98\x80\xF0\x9F\x98\x80\xE6\x97\xA5\xC3\xA4.";
	size_t code_points = 0, utf16 = 0, got_code_points, got_utf16;

	for (size_t at = 0; at < sizeof(text); at++) {
		uint8_t c = (uint8_t)text[at];

		text_units(bytes_text(text), at, &got_code_points, &got_utf16);
		if (at == sizeof(text) - 1 || (c & 0xC0) != 0x80) {
			ck_assert_uint_eq(got_code_points, code_points);
			ck_assert_uint_eq(got_utf16, utf16);
			code_points++;
			utf16 += c >= 0xF0 ? 2 : 1;
		}
	}
}
END_TEST

/* The names are those of the contract. */
START_TEST(names_grades)
{
	ck_assert_str_eq(grounding_grade_name(GROUNDING_EXACT), "exact");
	ck_assert_str_eq(grounding_grade_name(GROUNDING_NORMALISED), "normalised");
	ck_assert_str_eq(grounding_grade_name(GROUNDING_FUZZY), "fuzzy");
	ck_assert_str_eq(grounding_grade_name(GROUNDING_UNGROUNDED), "ungrounded");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("grounding");
	TCase *tests = tcase_create("grounding");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, finds_exact_quotes);
	tcase_add_test(tests, finds_normalised_quotes);
	tcase_add_test(tests, leaves_the_rest_ungrounded);
	tcase_add_test(tests, endures_long_chains_of_marks);
	tcase_add_test(tests, endures_many_hits_that_do_not_count);
	tcase_add_test(tests, counts_units);
	tcase_add_test(tests, names_grades);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
