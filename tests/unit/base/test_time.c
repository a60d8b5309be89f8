/* Tests of workflow/base/time.c. The C library's calendar is the second opinion. */
#include "workflow/base/time.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

#define FIRST_MS INT64_C(-62167219200000)
#define LAST_MS INT64_C(253402300799999)

/* Known times, the ends of the range among them. */
START_TEST(known_times)
{
	static const struct {
		int64_t ms;
		const char *text;
	} cases[] = {{0, "1970-01-01T00:00:00.000Z"},		 {-1, "1969-12-31T23:59:59.999Z"},
		     {1789722636500, "2026-09-18T09:10:36.500Z"}, {951782400000, "2000-02-29T00:00:00.000Z"},
		     {FIRST_MS, "0000-01-01T00:00:00.000Z"},	 {LAST_MS, "9999-12-31T23:59:59.999Z"}};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char text[TIME_TEXT_LEN + 1];
		int64_t ms;

		time_text(cases[i].ms, text);
		ck_assert_str_eq(text, cases[i].text);
		ck_assert(time_parse(text, &ms));
		ck_assert_int_eq(ms, cases[i].ms);
	}
}
END_TEST

/* Seeded times over the whole range read as gmtime_r() says and come back. */
START_TEST(times_agree_with_the_c_library)
{
	uint64_t seed = 42;

	for (int i = 0; i < 20000; i++) {
		char text[TIME_TEXT_LEN + 1], expected[64], part[32];
		int64_t ms, back;
		time_t seconds;
		struct tm tm;

		seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		ms = FIRST_MS + (int64_t)((seed >> 11) % (uint64_t)(LAST_MS - FIRST_MS));
		seconds = (time_t)((ms - FIRST_MS) / 1000 + FIRST_MS / 1000);
		gmtime_r(&seconds, &tm);
		strftime(part, sizeof(part), "%m-%dT%H:%M:%S", &tm);
		snprintf(expected, sizeof(expected), "%04d-%s.%03dZ", tm.tm_year + 1900, part, (int)(ms - (int64_t)seconds * 1000));
		time_text(ms, text);
		ck_assert_str_eq(text, expected);
		ck_assert(time_parse(text, &back));
		ck_assert_int_eq(back, ms);
	}
}
END_TEST

/* Zones, any number of decimals (cut, not rounded), lower case and leap seconds are read. */
START_TEST(forms_of_rfc_3339)
{
	static const struct {
		const char *text;
		int64_t ms;
	} cases[] = {{"1970-01-01T00:00:00Z", 0},	       {"1970-01-01t00:00:00z", 0},
		     {"1970-01-01T01:00:00+01:00", 0},	       {"1969-12-31T19:30:00-04:30", 0},
		     {"1970-01-01T00:00:00.5Z", 500},	       {"1970-01-01T00:00:00.123456789Z", 123},
		     {"1970-01-01T00:00:00.9999999999999Z", 999}, {"1970-01-01T00:00:00-00:00", 0},
		     {"1972-06-30T23:59:60Z", 78796800000},    {"1972-07-01T01:59:60+02:00", 78796800000}};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		int64_t ms = -7;

		ck_assert_msg(time_parse(cases[i].text, &ms), "%s", cases[i].text);
		ck_assert_int_eq(ms, cases[i].ms);
	}
}
END_TEST

/* What is no time is refused and changes nothing. */
START_TEST(no_times)
{
	static const char *const bad[] = {"", "1970", "1970-01-01", "1970-01-01T00:00Z", "1970-01-01T00:00:00", "1970-01-01 00:00:00Z",
		"1970-13-01T00:00:00Z", "1970-00-01T00:00:00Z", "1970-01-00T00:00:00Z", "1970-01-32T00:00:00Z", "1970-02-29T00:00:00Z",
		"1900-02-29T00:00:00Z", "1970-01-01T24:00:00Z", "1970-01-01T00:60:00Z", "1970-01-01T00:00:61Z", "1970-01-01T12:00:60Z",
		"1970-01-01T00:00:00.Z", "1970-01-01T00:00:00+1:00", "1970-01-01T00:00:00+0100", "1970-01-01T00:00:00+24:00",
		"1970-01-01T00:00:00+00:60", "1970-01-01T00:00:00Zx", "x1970-01-01T00:00:00Z", "+1970-01-01T00:00:00Z",
		"0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "1970-1-1T0:0:0Z", "-970-01-01T00:00:00Z"};

	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		int64_t ms = -7;

		ck_assert_msg(!time_parse(bad[i], &ms), "%s", bad[i]);
		ck_assert_int_eq(ms, -7);
	}
}
END_TEST

/* Durations of both forms, up to the limit. */
START_TEST(durations)
{
	static const struct {
		const char *text;
		int64_t ms;
	} cases[] = {{"0s", 0}, {"250ms", 250}, {"30s", 30000}, {"5m", 300000}, {"1h", 3600000}, {"2d", 172800000}, {"007s", 7000},
		     {"PT1H30M", 5400000}, {"P1DT2S", 86402000}, {"PT0S", 0}, {"P2W", 1209600000}, {"P1D", 86400000},
		     {"PT0.25S", 250}, {"P1DT2H3M4.5S", 93784500}, {"36500d", INT64_C(3153600000000)}, {"P36500D", INT64_C(3153600000000)}};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct error error = {0};
		int64_t ms = -7;

		ck_assert_msg(duration_parse(cases[i].text, &ms, &error) == 0, "%s: %s", cases[i].text, error.message);
		ck_assert_int_eq(ms, cases[i].ms);
	}
}
END_TEST

/* Nonsense, negative and endless durations are refused with a text that says what is wanted. */
START_TEST(no_durations)
{
	static const char *const bad[] = {"", "s", "1", "-1s", "+1s", "1.5s", "1 s", "1sec", "1s1s", "1h30m", "P", "PT", "P1DT", "P1Y", "P1M", "PT1D",
		"PT1S1M", "PT1H1H", "P1H", "p1d", "PT-1S", "PT.5S", "PT1.S", "PT1.5H", "P1W1D", "PT1STT", "TP1D", "P1DT1H ", "P1"};
	static const char *const endless[] = {"36501d", "3153600000001ms", "9223372036854775808s", "99999999999999999999999999999999d",
		"P36500DT0.001S", "PT99999999999999999999999H"};

	for (size_t i = 0; i < COUNT_OF(bad) + COUNT_OF(endless); i++) {
		bool nonsense = i < COUNT_OF(bad);
		const char *text = nonsense ? bad[i] : endless[i - COUNT_OF(bad)];
		struct error error = {0};
		int64_t ms = -7;

		ck_assert_msg(duration_parse(text, &ms, &error) == ERR_INVALID, "%s", text);
		ck_assert_int_eq(ms, 0);
		ck_assert_ptr_nonnull(strstr(error.message, nonsense ? "is not a duration; write 250ms" : "is longer than 36500 days"));
	}
}
END_TEST

/* A year of five digits has no text. */
START_TEST(stop_on_a_time_out_of_range)
{
	char text[TIME_TEXT_LEN + 1];

	time_text(LAST_MS + 1, text);
}
END_TEST

SUITE_ABORTS(stop_on_a_time_out_of_range)
SUITE_MAIN("base-time", known_times, times_agree_with_the_c_library, forms_of_rfc_3339, no_times, durations, no_durations)
