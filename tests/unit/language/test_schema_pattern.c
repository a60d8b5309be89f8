/* Patterns of schemas: ECMA-262 in, what PCRE2 makes of it out, and every limit. */
#include "workflow/language/schema_pattern.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "workflow/base/check.h"

static enum pattern_verdict match(const char *text, const char *subject, struct error *error)
{
	struct pattern *pattern = pattern_new(text, strlen(text), error);
	struct pattern_matcher *matcher = pattern_matcher_new();
	enum pattern_verdict verdict;

	ck_assert_msg(pattern != NULL, "%s: %s", text, error->message);
	verdict = pattern_match(pattern, matcher, subject, strlen(subject), error);
	pattern_matcher_free(matcher);
	pattern_free(pattern);
	return verdict;
}

/* What means something else in PCRE2 means here what ECMA-262 says. */
START_TEST(means_what_ecma_says)
{
	static const struct {
		const char *pattern, *text;
		bool matches;
	} rows[] = {
		{"b", "abc", true}, /* anywhere */
		{"^$", "", true},
		{"^a$", "a\n", false}, /* the end alone */
		{"^b", "a\nb", false},
		{"^.$", "\n", false},
		{"^.$", "\r", false},
		{"^.$", "\xE2\x80\xA8", false}, /* U+2028 */
		{"^.$", "\xF0\x9F\x98\x80", true}, /* one character */
		{"^\\ud83d\\ude00$", "\xF0\x9F\x98\x80", true},
		{"^[\\ud83d\\ude00-\\ud83d\\ude02]$", "\xF0\x9F\x98\x81", true},
		{"^\\u{1f600}$", "\xF0\x9F\x98\x80", true},
		{"^\\x41\\u0042$", "AB", true},
		{"^\\d$", "\xD9\xA1", false}, /* ASCII digits alone */
		{"^\\w$", "\xC3\xA9", false},
		{"^\\W$", "\xC3\xA9", true},
		{"^\\s$", "\xC2\xA0", true},
		{"^\\s$", "\xEF\xBB\xBF", true},
		{"^\\S$", "\xE3\x80\x80", false},
		{"^[\\s]$", "\xE2\x80\xA9", true},
		{"^[\\S]$", "x", true},
		{"^[^\\S]$", "x", false},
		{"^[\\S]$", "\xE2\x80\xA9", false},
		{"^\\cA$", "\x01", true},
		{"^[\\b]$", "\b", true},
		{"^\\p{Letter}+$", "\xC3\xA9x", true},
		{"^\\P{Letter}+$", "12", true},
		{"^[\\p{Lu}\\d]+$", "\xC3\x89" "1", true},
		{"^\\p{Script=Greek}$", "\xCE\xB1", true},
		{"^\\p{sc=Greek}$", "a", false},
		{"^\\p{Assigned}\\p{ASCII}$", "ab", true},
		{"^[]$", "a", false},
		{"^[^]$", "\n", true},
		{"^[[:alpha:]]$", "a]", true}, /* a class of [ : a l p h, then ] */
		{"^[a-]+$", "a-", true},
		{"^[\\w-]+$", "a-b", true},
		{"^[^a]$", "\n", true},
		{"^[\\\\\\]^-]+$", "\\]^-", true},
		{"^{a}$", "{a}", true}, /* a brace that counts nothing */
		{"^a{2,3}?$", "aaa", true},
		{"^(?<y>\\d{4})-\\k<y>$", "2024-2024", true},
		{"^(a)?\\1b$", "b", true}, /* what caught nothing matches nothing */
		{"^(a|b)\\1$", "bb", true},
		{"(?<=a)b", "ab", true},
		{"(?<!a)b", "ab", false},
		{"a(?!b)", "ab", false},
		{"^a#b c$", "a#b c", true},
		{"^\\/\\-\\.$", "/-.", true},
		{"\\ud800", "a", false}, /* half a pair is in no text */
		{"^\\0$", "a", false},
		{"^\\t\\n\\v\\f\\r$", "\t\n\v\f\r", true},
		{"^\\cz\\cJ$", "\x1A\n", true},
		{"\\bfoo\\b", "a foo b", true},
		{"\\bfoo\\b", "afoob", false},
		{"\\Boo\\b", "foo", true},
		{"\\Bfoo", "foo", false},
		{"^[a-\\d]+$", "a-7", true}, /* no range, but three things */
		{"^[a-\\d]$", "b", false},
		{"^[\\d-x]+$", "7-x", true},
		{"^[+--]+$", "+,-", true},
		{"^[\\ud800-\\uffff]$", "\xEE\x80\x80", true}, /* U+E000 */
		{"^[\\u{d7ff}-\\ud900]$", "\xED\x9F\xBF", true}, /* U+D7FF */
		{"^[\\ud800-\\udfff]$", "a", false},
		{"^[a\\ud83d]$", "a", true},
		{"^\\p{General_Category=Uppercase_Letter}\\p{gc=Nd}$", "A1", true},
		{"^\\p{gc=Lu}$", "a", false},
		{"^\\P{gc=Lu}$", "a", true},
		{"^\\P{ASCII}$", "\xC3\xA9", true},
		{"^\\P{ASCII}$", "e", false},
		{"^\\P{Assigned}$", "a", false},
		{"^\\P{Script=Greek}$", "a", true},
		{"^\\P{Script=Greek}$", "\xCE\xB1", false},
		{"^\\p{Script_Extensions=Greek}$", "\xCE\xB1", true},
		{"^\\P{Script_Extensions=Greek}$", "\xCE\xB1", false},
		{"^\\P{White_Space}$", "a", true},
		{"^a{2,}$", "aaa", true},
		{"^a{2,}$", "a", false},
		{"^a{,2}$", "a{,2}", true}, /* counts nothing */
		{"^a{2$", "a{2", true},
		{"^a{2,$", "a{2,", true},
		{"^a{2,3$", "a{2,3", true},
		{"^(?:a)$", "a", true},
		{"^\xC3\xA4{2}$", "\xC3\xA4\xC3\xA4", true}, /* a character, not a byte, is repeated */
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct error error = {0};
		enum pattern_verdict verdict = match(rows[i].pattern, rows[i].text, &error);

		ck_assert_msg(verdict == (rows[i].matches ? PATTERN_MATCHES : PATTERN_DIFFERS), "row %zu, %s: %d", i, rows[i].pattern, (int)verdict);
	}
}
END_TEST

/* What PCRE2 knows and ECMA-262 does not is refused, and so is what is too large. */
START_TEST(refuses_what_is_not_ecma)
{
	static const char *const rows[] = {
		"(?R)", "(?1)", "(?>a)", "(?i)a", "(?#x)", "(?|a)", "(*ACCEPT)", "(*UTF)a", "a++", "a**", "*", "+a", "|?", "^*", "a{1}{2}", "\\Qa\\E",
		"\\K", "\\R", "\\h", "\\a", "\\e", "\\A", "\\Z", "\\z", "\\G", "\\X", "\\C", "\\N", "\\01", "\\8", "\\k", "\\k<a", "\\x1", "\\u12",
		"\\u{110000}", "\\u{}", "\\c1", "\\p", "\\p{}", "\\p{Nothing}", "\\p{^L}", "\\", "[", "[a", "[b-a]", "[\\1]", "(", ")", "(?<a", "(?<>a)",
		"\\u{41", "\\u{}", "\\xg0", "\\c", "[\\c]", "[\\a-b]", "[a-\\a]", "[a-\\p{Nothing}]", "[\\p]", "\\p{L", "a{2,1}", "a{999999999999}", "(?", "(?P<a>b)", "[z-\\u0061]",
		"(?<a-b>c)", "(?<=a+)b", "a{99999}", "((a{500}){500}){500}", "\\_",
	};
	struct error error;
	char *text;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct pattern *pattern = pattern_new(rows[i], strlen(rows[i]), &error);

		ck_assert_msg(pattern == NULL, "%s was taken", rows[i]);
		ck_assert_int_eq(error.code, ERR_INVALID);
		ck_assert_ptr_nonnull(strstr(error.message, "not a regular expression"));
	}
	text = memory_zero(PATTERN_LEN_MAX + 2);
	memset(text, 'a', PATTERN_LEN_MAX + 1);
	ck_assert_ptr_null(pattern_new(text, PATTERN_LEN_MAX + 1, &error));
	ck_assert_ptr_nonnull(strstr(error.message, "PATTERN_LEN_MAX 4096"));
	pattern_free(pattern_new(text, 1000, &error));
	for (size_t i = 0; i < PATTERN_LEN_MAX; i++)
		text[i] = i < PATTERN_LEN_MAX / 2 ? '(' : ')';
	ck_assert_ptr_null(pattern_new(text, PATTERN_LEN_MAX, &error));
	free(text);
}
END_TEST

static double seconds_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

/* Patterns that take exponential or quadratic time elsewhere are stopped by a named limit within a few seconds, sanitizers included. */
START_TEST(stops_hostile_patterns)
{
	static const struct {
		const char *pattern;
		char filler;
		size_t len;
	} rows[] = {
		{"^(a+)+$", 'a', 60}, {"^(a|a)*$", 'a', 60}, {"^(a|aa)+$", 'a', 80}, {"(a*)*b", 'a', 40}, {"^(.*?,){20}P", ',', 400},
		{"x*[yz]", 'x', 1 << 20}, {"x{1,60000}[yz]", 'x', 1 << 20}, {"x{60000}", 'x', 59999}, {"(x*)\\1[yz]", 'x', 1 << 16},
		{"(?:x?){300}x{300}[yz]", 'x', 300}, {"(?=(x+))(?=(x+))(?=(x+))[yz]", 'x', 1 << 18}, {"(?:x|y)*z", 'x', 1 << 20},
		{"((x*)*)*[yz]", 'x', 64}, {"x.*x.*x.*x.*x.*[yz]", 'x', 2000},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char *text = memory_zero(rows[i].len + 2);
		struct timespec start;
		struct error error = {0};
		enum pattern_verdict verdict;

		memset(text, rows[i].filler, rows[i].len);
		text[rows[i].len] = '!';
		clock_gettime(CLOCK_MONOTONIC, &start);
		verdict = match(rows[i].pattern, text, &error);
		ck_assert_msg(seconds_since(&start) < 10, "%s: %.1f s", rows[i].pattern, seconds_since(&start));
		if (getenv("PATTERN_TIMES"))
			printf("%-30s %d %.3f s %s\n", rows[i].pattern, (int)verdict, seconds_since(&start), error.message);
		ck_assert_msg(verdict != PATTERN_MATCHES, "%s", rows[i].pattern);
		if (verdict == PATTERN_STOPPED) {
			ck_assert_int_eq(error.code, ERR_TOO_LARGE);
			ck_assert_ptr_nonnull(strstr(error.message, "PATTERN_"));
		}
		free(text);
	}
}
END_TEST

/* Both limits are reached by their own pattern: steps, and memory to go back. */
START_TEST(names_the_limit)
{
	struct error error;
	char *text = memory_zero((1 << 20) + 1);

	memset(text, 'x', 1 << 20);
	ck_assert_int_eq(match("^(x+x+)+[yz]", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", &error), PATTERN_STOPPED);
	ck_assert_ptr_nonnull(strstr(error.message, "PATTERN_STEPS_MAX"));
	ck_assert_int_eq(match("^(?:x|y)*$", text, &error), PATTERN_STOPPED);
	ck_assert_ptr_nonnull(strstr(error.message, "PATTERN_HEAP_KIB_MAX"));
	/* What is harmless may be long. */
	ck_assert_int_eq(match("^x*$", text, &error), PATTERN_MATCHES);
	ck_assert_int_eq(match("y", text, &error), PATTERN_DIFFERS);
	ck_assert_int_eq(match("^[^y]+$", text, &error), PATTERN_MATCHES);
	free(text);
}
END_TEST

/* The steps of several matches add up: many texts cost no more than one. */
START_TEST(counts_steps_over_matches)
{
	struct error error;
	struct pattern *pattern = pattern_new("^(a|b)*[cd]", 11, &error);
	struct pattern_matcher *matcher = pattern_matcher_new();
	static const char text[] = "abababababababababababababababababababababababababababababababab";
	size_t rounds = 0;

	while (pattern_match(pattern, matcher, text, sizeof(text) - 1, &error) == PATTERN_DIFFERS)
		rounds++;
	ck_assert_uint_gt(rounds, 100);
	ck_assert_uint_lt(rounds, PATTERN_STEPS_MAX);
	ck_assert_ptr_nonnull(strstr(error.message, "PATTERN_STEPS_MAX 2000000"));
	pattern_matcher_free(matcher);
	pattern_free(pattern);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("schema_pattern");
	TCase *tests = tcase_create("schema_pattern");
	SRunner *runner = srunner_create(suite);
	int failed;

	setvbuf(stdout, NULL, _IOLBF, 0);
	tcase_add_test(tests, means_what_ecma_says);
	tcase_add_test(tests, refuses_what_is_not_ecma);
	tcase_add_test(tests, stops_hostile_patterns);
	tcase_add_test(tests, names_the_limit);
	tcase_add_test(tests, counts_steps_over_matches);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
