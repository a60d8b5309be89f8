/* Tests of workflow/base/zone.c. The C library, which reads the same files by its own means, is the second opinion. */
#include "workflow/base/zone.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"

static struct bytes read_zone(struct arena *arena, const char *name)
{
	uint8_t *data = arena_alloc(arena, ZONE_BYTES_MAX + 1);
	char path[200];
	size_t len;
	FILE *file;

	snprintf(path, sizeof(path), "/usr/share/zoneinfo/%s", name);
	file = fopen(path, "rb");
	ck_assert_msg(file != NULL, "%s: the package tzdata is needed", path);
	len = fread(data, 1, ZONE_BYTES_MAX + 1, file);
	fclose(file);
	return (struct bytes){data, len};
}

static const struct zone *load(struct arena *arena, const char *name)
{
	struct error error = {0};
	const struct zone *zone = zone_parse(arena, read_zone(arena, name), &error);

	ck_assert_msg(zone != NULL, "%s: %s", name, error.message);
	return zone;
}

/* Northern, southern, half hours, none, a negative summer (Dublin), a rule of times past midnight (Godthab), changes by decree (Casablanca). */
static const char *const names[] = {"Europe/Berlin", "Europe/Dublin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca",
				    "America/Godthab", "Asia/Gaza", "Pacific/Apia", "Antarctica/Troll", "Etc/UTC", "America/Caracas", "Asia/Tehran"};

/* Offsets agree with localtime_r() from 1900 to 2100, hour by hour around every change and at random. */
START_TEST(offsets_agree_with_the_c_library)
{
	uint64_t random = 42;

	for (size_t i = 0; i < COUNT_OF(names); i++) {
		const struct zone *zone;
		struct arena arena;

		arena_init(&arena);
		zone = load(&arena, names[i]);
		setenv("TZ", names[i], 1);
		tzset();
		for (int n = 0; n < 10000; n++) {
			int64_t utc = n < 5000 ? INT64_C(1577836800) + n * INT64_C(3571) * 48 : (int64_t)((random = random * 6364136223846793005u + 1442695040888963407u) >> 31) - INT64_C(2200000000);
			time_t instant = (time_t)utc;
			struct tm local;

			ck_assert_ptr_nonnull(localtime_r(&instant, &local));
			ck_assert_msg(zone_offset(zone, utc) == local.tm_gmtoff, "%s at %lld: %d, not %ld", names[i], (long long)utc, zone_offset(zone, utc), local.tm_gmtoff);
		}
		arena_close(&arena);
	}
}
END_TEST

/* Local times: once, twice (the first is given), never (the instant after the gap). */
START_TEST(local_times_become_instants)
{
	static const struct {
		const char *zone, *local, *utc;
		enum zone_fit fit;
	} cases[] = {
		{"Europe/Berlin", "2026-01-15T12:00:00.000Z", "2026-01-15T11:00:00.000Z", ZONE_ONCE},
		{"Europe/Berlin", "2026-07-15T12:00:00.000Z", "2026-07-15T10:00:00.000Z", ZONE_ONCE},
		{"Europe/Berlin", "2026-03-29T01:59:59.000Z", "2026-03-29T00:59:59.000Z", ZONE_ONCE},
		{"Europe/Berlin", "2026-03-29T02:00:00.000Z", "2026-03-29T01:00:00.000Z", ZONE_NEVER},
		{"Europe/Berlin", "2026-03-29T02:59:59.000Z", "2026-03-29T01:00:00.000Z", ZONE_NEVER},
		{"Europe/Berlin", "2026-03-29T03:00:00.000Z", "2026-03-29T01:00:00.000Z", ZONE_ONCE},
		{"Europe/Berlin", "2026-10-25T02:30:00.000Z", "2026-10-25T00:30:00.000Z", ZONE_TWICE},
		{"Europe/Berlin", "2026-10-25T03:00:00.000Z", "2026-10-25T02:00:00.000Z", ZONE_ONCE},
		{"Europe/Berlin", "2090-03-26T02:30:00.000Z", "2090-03-26T01:00:00.000Z", ZONE_NEVER},
		{"Australia/Lord_Howe", "2026-10-04T02:15:00.000Z", "2026-10-03T15:30:00.000Z", ZONE_NEVER},
		{"Pacific/Apia", "2011-12-30T12:00:00.000Z", "2011-12-30T10:00:00.000Z", ZONE_NEVER}, /* a day that was left out */
		{"Etc/UTC", "2026-03-29T02:30:00.000Z", "2026-03-29T02:30:00.000Z", ZONE_ONCE},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		int64_t local, expected, utc;
		struct arena arena;

		arena_init(&arena);
		ck_assert(time_parse(cases[i].local, &local) && time_parse(cases[i].utc, &expected));
		ck_assert_msg(zone_instant(load(&arena, cases[i].zone), local / 1000, &utc) == cases[i].fit, "%s", cases[i].local);
		ck_assert_msg(utc * 1000 == expected, "%s %s: %lld", cases[i].zone, cases[i].local, (long long)utc);
		arena_close(&arena);
	}
	ck_assert_int_eq(zone_offset(NULL, 1789722636), 0);
}
END_TEST

/* Every prefix of a zone file and every file with one byte changed is read or refused, and nothing else happens; past the limit it is refused. */
START_TEST(damaged_files_do_no_harm)
{
	static uint8_t large[ZONE_BYTES_MAX + 1];
	struct error error = {0};
	struct arena arena;
	struct bytes good;

	arena_init(&arena);
	good = read_zone(&arena, "Europe/Berlin");
	for (size_t len = 0; len < good.len; len++) {
		uint8_t *copy = memory_alloc(len + 1);
		struct arena inner;

		arena_init(&inner);
		memcpy(copy, good.data, len);
		ck_assert_ptr_null(zone_parse(&inner, (struct bytes){copy, len}, &error));
		arena_close(&inner);
		free(copy);
	}
	for (size_t at = 0; at < good.len; at++)
		for (int bit = 0; bit < 8; bit++) {
			uint8_t *copy = memory_alloc(good.len);
			const struct zone *zone;
			struct arena inner;
			int64_t utc;

			arena_init(&inner);
			memcpy(copy, good.data, good.len);
			copy[at] ^= (uint8_t)(1 << bit);
			zone = zone_parse(&inner, (struct bytes){copy, good.len}, &error);
			if (zone != NULL)
				zone_instant(zone, 1789722636, &utc);
			arena_close(&inner);
			free(copy);
		}
	ck_assert_ptr_null(zone_parse(&arena, (struct bytes){large, sizeof(large)}, &error));
	ck_assert_int_eq(error.code, ERR_TOO_LARGE);
	arena_close(&arena);
}
END_TEST

/* A zone's name is no path that leads elsewhere. */
START_TEST(names_are_checked)
{
	static const char *const good[] = {"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"};
	static const char *const bad[] = {"", "/etc/passwd", "../x", "Europe//Berlin", "Europe/", "a.b", "Europe/Berlin ", "\xC3\xA4", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

	for (size_t i = 0; i < COUNT_OF(good); i++)
		ck_assert_msg(zone_name_is_valid(good[i]), "%s", good[i]);
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		ck_assert_msg(!zone_name_is_valid(bad[i]), "%s", bad[i]);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("base-zone", offsets_agree_with_the_c_library, local_times_become_instants, damaged_files_do_no_harm, names_are_checked)
