/* Tests of workflow/language/cron.c: a table of times, both changes of the clock among them, and a plain minute-by-minute search
 * with the C library's calendar as the second opinion. */
#include "workflow/language/cron.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"

static const struct zone *load(struct arena *arena, const char *name)
{
	uint8_t *data = arena_alloc(arena, ZONE_BYTES_MAX);
	struct error error = {0};
	const struct zone *zone;
	char path[200];
	FILE *file;

	snprintf(path, sizeof(path), "/usr/share/zoneinfo/%s", name);
	file = fopen(path, "rb");
	ck_assert_msg(file != NULL, "%s: the package tzdata is needed", path);
	zone = zone_parse(arena, (struct bytes){data, fread(data, 1, ZONE_BYTES_MAX, file)}, &error);
	fclose(file);
	ck_assert_msg(zone != NULL, "%s", error.message);
	return zone;
}

static struct cron parse(const char *text)
{
	struct error error = {0};
	struct cron cron;

	ck_assert_msg(cron_parse(text, &cron, &error) == 0, "%s: %s", text, error.message);
	return cron;
}

/* One expression after the other: what comes next, and next again. */
START_TEST(times_that_come)
{
	static const struct {
		const char *cron, *zone, *after, *next[4];
	} cases[] = {
		{"*/15 * * * *", NULL, "2026-11-29T10:07:30Z", {"2026-11-29T10:15:00.000Z", "2026-11-29T10:30:00.000Z"}},
		{"0 0 * * *", NULL, "2026-12-31T00:00:00Z", {"2027-01-01T00:00:00.000Z"}},
		{"0 0 29 2 *", NULL, "2026-11-29T00:00:00Z", {"2028-02-29T00:00:00.000Z", "2032-02-29T00:00:00.000Z"}},
		{"0 0 29 2 */7", NULL, "2060-03-01T00:00:00Z", {"2088-02-29T00:00:00.000Z", "2128-02-29T00:00:00.000Z"}},
		{"30 9 * * mon-fri", NULL, "2026-11-27T09:30:00Z", {"2026-11-30T09:30:00.000Z", "2026-12-01T09:30:00.000Z"}},
		{"0 12 13 * 5", NULL, "2026-11-01T00:00:00Z", {"2026-11-06T12:00:00.000Z", "2026-11-13T12:00:00.000Z", "2026-11-20T12:00:00.000Z"}},
		{"0 0 1,15 jan,jul *", NULL, "2026-11-29T00:00:00Z", {"2027-01-01T00:00:00.000Z", "2027-01-15T00:00:00.000Z", "2027-07-01T00:00:00.000Z"}},
		{"5/20 8-10/2 * * 7", NULL, "2026-11-29T00:00:00Z", {"2026-11-29T08:05:00.000Z", "2026-11-29T08:25:00.000Z", "2026-11-29T08:45:00.000Z", "2026-11-29T10:05:00.000Z"}},
		/* The clock is set forward at 02:00 on the 29th of March 2026 in Berlin: a skipped time comes right after the gap, once. */
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", {"2026-03-28T01:30:00.000Z", "2026-03-29T01:00:00.000Z", "2026-03-30T00:30:00.000Z"}},
		{"0,15,30 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", {"2026-03-29T01:00:00.000Z", "2026-03-30T00:00:00.000Z"}},
		{"0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", {"2026-03-29T01:00:00.000Z", "2026-03-30T00:00:00.000Z", "2026-03-30T01:00:00.000Z"}},
		{"*/30 * * * *", "Europe/Berlin", "2026-03-29T00:15:00Z", {"2026-03-29T00:30:00.000Z", "2026-03-29T01:00:00.000Z", "2026-03-29T01:30:00.000Z"}},
		/* It is set back at 03:00 on the 25th of October: a doubled time comes once, every half hour goes on. */
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", {"2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", {"2026-10-26T01:30:00.000Z"}},
		{"*/30 * * * *", "Europe/Berlin", "2026-10-25T00:15:00Z", {"2026-10-25T00:30:00.000Z", "2026-10-25T01:00:00.000Z", "2026-10-25T01:30:00.000Z", "2026-10-25T02:00:00.000Z"}},
		/* Midnight itself is skipped or doubled. */
		{"0 0 * * *", "America/Havana", "2026-03-07T12:00:00Z", {"2026-03-08T05:00:00.000Z", "2026-03-09T04:00:00.000Z"}},
		{"0 0 * * *", "America/Havana", "2026-10-31T12:00:00Z", {"2026-11-01T04:00:00.000Z", "2026-11-02T05:00:00.000Z"}},
		/* Half an hour only. */
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", {"2026-10-03T15:30:00.000Z", "2026-10-04T15:15:00.000Z"}},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct cron cron = parse(cases[i].cron);
		const struct zone *zone;
		struct arena arena;
		int64_t at;

		arena_init(&arena);
		zone = cases[i].zone == NULL ? NULL : load(&arena, cases[i].zone);
		ck_assert(time_parse(cases[i].after, &at));
		for (size_t n = 0; n < 4 && cases[i].next[n] != NULL; n++) {
			char text[TIME_TEXT_LEN + 1];

			at = cron_next(&cron, zone, at);
			time_text(at, text);
			ck_assert_msg(strcmp(text, cases[i].next[n]) == 0, "%s in %s: %s, not %s", cases[i].cron, cases[i].zone, text, cases[i].next[n]);
		}
		arena_close(&arena);
	}
}
END_TEST

/* What is refused, and the word that says why. */
START_TEST(nonsense_is_refused)
{
	static const char *const cases[][2] = {
		{"", "has 0 fields"}, {"* * * *", "has 4 fields"}, {"* * * * * *", "has 6 fields"}, {"@daily", "has 1 fields"}, {"60 * * * *", "minute"}, {"* 24 * * *", "hour"},
		{"* * 0 * *", "day of month"}, {"* * * 13 *", "month"}, {"* * * * 8", "day of week"}, {"*/0 * * * *", "minute"}, {"5-1 * * * *", "minute"}, {"1,,2 * * * *", "minute"},
		{"1- * * * *", "minute"}, {"-1 * * * *", "minute"}, {"* * * foo *", "month"}, {"1x * * * *", "minute"}, {"0 0 30 2 *", "never comes"}, {"0 0 31 4,6 *", "never comes"},
		{"100 * * * *", "minute"}, {"*/60 * * * *", "minute"}, {"** * * * *", "minute"},
	};
	char large[CRON_TEXT_MAX + 20];
	struct error error = {0};
	struct cron cron;

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		error = (struct error){0};
		ck_assert_msg(cron_parse(cases[i][0], &cron, &error) == ERR_INVALID, "%s", cases[i][0]);
		ck_assert_msg(strstr(error.message, cases[i][1]) != NULL, "%s: %s", cases[i][0], error.message);
	}
	memset(large, ' ', sizeof(large));
	memcpy(large, "* * * * *", 9);
	large[sizeof(large) - 1] = '\0';
	ck_assert_int_eq(cron_parse(large, &cron, &error), ERR_INVALID);
}
END_TEST

/* Random expressions at random times: the same as asking the C library's clock minute by minute. Hours are `*`, or the zone never changes. */
START_TEST(agrees_with_a_plain_search)
{
	static const char *const zones[] = {"Europe/Berlin", "America/New_York", "Asia/Kolkata", "Etc/UTC"};
	uint64_t random = 7;
	unsigned compared = 0;

	for (int n = 0; n < 400; n++) {
		unsigned draw[8];
		const struct zone *zone;
		struct cron cron;
		struct arena arena;
		char text[80];
		int64_t after, expected;
		bool fixed = n % 4 >= 2;

		for (size_t i = 0; i < COUNT_OF(draw); i++)
			draw[i] = (unsigned)((random = random * 6364136223846793005u + 1442695040888963407u) >> 40);
		if (fixed)
			snprintf(text, sizeof(text), "%u,%u %u %s %u-12 %s", draw[0] % 60, draw[1] % 60, draw[2] % 24, draw[3] % 2 ? "*" : "1-20", draw[4] % 3 + 1, draw[5] % 2 ? "*" : "1-4");
		else
			snprintf(text, sizeof(text), "*/%u * %u-31 * %s", draw[0] % 40 + 1, draw[1] % 20 + 1, draw[5] % 2 ? "*" : "mon");
		cron = parse(text);
		arena_init(&arena);
		zone = load(&arena, zones[n % 4]);
		setenv("TZ", zones[n % 4], 1);
		tzset();
		after = INT64_C(1767225600) + (int64_t)draw[6] * 3 % 31000000;
		for (expected = (after / 60 + 1) * 60;; expected += 60) {
			time_t instant = (time_t)expected;
			struct tm tm;
			bool by_day, by_weekday;

			localtime_r(&instant, &tm);
			by_day = cron.days >> tm.tm_mday & 1;
			by_weekday = cron.weekdays >> tm.tm_wday & 1;
			if ((cron.minutes >> tm.tm_min & 1) && (cron.hours >> tm.tm_hour & 1) && (cron.months >> (tm.tm_mon + 1) & 1) &&
			    (cron.any_day || cron.any_weekday ? by_day && by_weekday : by_day || by_weekday))
				break;
		}
		ck_assert_msg(cron_next(&cron, zone, after * 1000) == expected * 1000, "'%s' in %s after %lld", text, zones[n % 4], (long long)after);
		compared++;
		arena_close(&arena);
	}
	ck_assert_uint_eq(compared, 400);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("language-cron", times_that_come, nonsense_is_refused, agrees_with_a_plain_search)
