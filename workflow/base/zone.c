/* Time zones from TZif bytes. Start at zone_parse() and zone_offset(). */
#include "workflow/base/zone.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"

enum {
	HEADER_LEN = 44,
	TYPE_LEN = 6,
	TRANSITIONS_MAX = 4000, /* the largest of the zone database has some 240 */
	OFFSET_MAX = 26 * 3600, /* RFC 8536: more is not to be expected */
	RULE_LEN_MAX = 128,
	RULE_HOURS_MAX = 167,
	SECONDS_PER_DAY = 86400,
	WINDOW = 2 * SECONDS_PER_DAY, /* no offset is as large */
};

struct transition {
	int64_t utc;
	int offset; /* from then on */
};

/* When daylight saving begins or ends, each year: Mm.w.d, Jn or n, and a time of that day in seconds of the clock before. */
struct turn {
	enum { TURN_MONTH, TURN_JULIAN, TURN_DAY } kind;
	int month, week, day, time;
};

struct zone {
	int first_offset;
	size_t count;
	const struct transition *transitions;
	bool has_rule, has_daylight;
	int standard, daylight;
	struct turn begin, end;
};

bool zone_name_is_valid(const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len > ZONE_NAME_MAX || name[0] == '/' || name[len - 1] == '/')
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = name[i];
		bool is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '+' || c == '-' || c == '/';

		if (!is_good || (c == '/' && name[i + 1] == '/'))
			return false;
	}
	return true;
}

/* ---- The rule at the end: "CET-1CEST,M3.5.0,M10.5.0/3" ---- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool take_char(const char **at, char c)
{
	if (**at != c)
		return false;
	(*at)++;
	return true;
}

static bool take_count(const char **at, int max, int *number)
{
	if (!is_digit(**at))
		return false;
	for (*number = 0; is_digit(**at); (*at)++) {
		*number = *number * 10 + (**at - '0');
		if (*number > max)
			return false;
	}
	return true;
}

static bool take_name(const char **at)
{
	const char *start = *at;

	if (take_char(at, '<')) {
		while (**at != '\0' && **at != '>')
			(*at)++;
		return take_char(at, '>');
	}
	while ((**at >= 'A' && **at <= 'Z') || (**at >= 'a' && **at <= 'z'))
		(*at)++;
	return *at - start >= 3;
}

/* [+-]hh[:mm[:ss]] in seconds. */
static bool take_clock(const char **at, int hours_max, int *seconds)
{
	bool negative = **at == '-';
	int hours, minutes = 0, rest = 0;

	if (**at == '+' || **at == '-')
		(*at)++;
	if (!take_count(at, hours_max, &hours))
		return false;
	if (take_char(at, ':') && (!take_count(at, 59, &minutes) || (take_char(at, ':') && !take_count(at, 59, &rest))))
		return false;
	*seconds = hours * 3600 + minutes * 60 + rest;
	if (negative)
		*seconds = -*seconds;
	return true;
}

static bool take_turn(const char **at, struct turn *turn)
{
	*turn = (struct turn){.time = 2 * 3600};
	if (!take_char(at, ','))
		return false;
	if (take_char(at, 'M')) {
		turn->kind = TURN_MONTH;
		if (!take_count(at, 12, &turn->month) || turn->month < 1 || !take_char(at, '.') || !take_count(at, 5, &turn->week) || turn->week < 1 ||
		    !take_char(at, '.') || !take_count(at, 6, &turn->day))
			return false;
	} else if (take_char(at, 'J')) {
		turn->kind = TURN_JULIAN;
		if (!take_count(at, 365, &turn->day) || turn->day < 1)
			return false;
	} else {
		turn->kind = TURN_DAY;
		if (!take_count(at, 365, &turn->day))
			return false;
	}
	return !take_char(at, '/') || take_clock(at, RULE_HOURS_MAX, &turn->time);
}

static bool parse_rule(const char *text, struct zone *zone)
{
	int offset;

	if (*text == '\0')
		return true; /* No rule: the last transition holds for ever. */
	if (!take_name(&text) || !take_clock(&text, 24, &offset))
		return false;
	zone->has_rule = true;
	zone->standard = -offset; /* POSIX counts west of Greenwich. */
	if (*text == '\0')
		return true;
	zone->has_daylight = true;
	zone->daylight = zone->standard + 3600;
	if (!take_name(&text))
		return false;
	if (*text != ',') {
		if (!take_clock(&text, 24, &offset))
			return false;
		zone->daylight = -offset;
	}
	return take_turn(&text, &zone->begin) && take_turn(&text, &zone->end) && *text == '\0';
}

/* The instant of a turn in a year, as the clock with `offset` shows it. */
static int64_t turn_instant(const struct turn *turn, int year, int offset)
{
	int64_t day;

	if (turn->kind == TURN_MONTH) {
		int64_t first = time_days(year, turn->month, 1);
		int weekday = (int)(((first + 4) % 7 + 7) % 7); /* 1970-01-01 was a Thursday. */
		int at = (turn->day - weekday + 7) % 7 + (turn->week - 1) * 7;

		while (at >= time_days_in_month(year, turn->month))
			at -= 7;
		day = first + at;
	} else {
		day = time_days(year, 1, 1) + turn->day;
		if (turn->kind == TURN_JULIAN) /* The 29th of February is never counted. */
			day += turn->day >= 60 && time_days_in_month(year, 2) == 29 ? 0 : -1;
	}
	return day * SECONDS_PER_DAY + turn->time - offset;
}

static int rule_offset(const struct zone *zone, int64_t utc)
{
	int64_t local = utc + zone->standard, begin, end;
	int year, month, day;

	if (!zone->has_daylight)
		return zone->standard;
	time_date(local >= 0 ? local / SECONDS_PER_DAY : (local - SECONDS_PER_DAY + 1) / SECONDS_PER_DAY, &year, &month, &day);
	begin = turn_instant(&zone->begin, year, zone->standard);
	end = turn_instant(&zone->end, year, zone->daylight);
	if (begin < end)
		return utc >= begin && utc < end ? zone->daylight : zone->standard;
	return utc >= end && utc < begin ? zone->standard : zone->daylight;
}

/* ---- The file ---- */

struct counts {
	uint32_t utc_flags, standard_flags, leaps, transitions, types, characters;
};

static uint32_t big_endian(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int64_t big_endian_long(const uint8_t *at)
{
	return (int64_t)((uint64_t)big_endian(at) << 32 | big_endian(at + 4));
}

static bool read_header(const uint8_t *at, size_t left, struct counts *counts)
{
	if (left < HEADER_LEN || memcmp(at, "TZif", 4) != 0 || at[4] < '2')
		return false;
	*counts = (struct counts){big_endian(at + 20), big_endian(at + 24), big_endian(at + 28), big_endian(at + 32), big_endian(at + 36), big_endian(at + 40)};
	return counts->types > 0 && counts->types <= 256 && counts->transitions <= TRANSITIONS_MAX && counts->characters <= ZONE_BYTES_MAX &&
	       counts->leaps <= ZONE_BYTES_MAX && counts->utc_flags <= 256 && counts->standard_flags <= 256;
}

static size_t body_len(const struct counts *counts, size_t time_len)
{
	return counts->transitions * (time_len + 1) + counts->types * (size_t)TYPE_LEN + counts->characters + counts->leaps * (time_len + 4) +
	       counts->standard_flags + counts->utc_flags;
}

static bool read_transitions(struct arena *arena, const uint8_t *at, const struct counts *counts, struct zone *zone)
{
	const uint8_t *kinds = at + counts->transitions * sizeof(int64_t), *types = kinds + counts->transitions;
	struct transition *transitions = arena_alloc(arena, counts->transitions * sizeof(*transitions) + 1);

	for (uint32_t i = 0; i < counts->types; i++) {
		int offset = (int)(int32_t)big_endian(types + i * TYPE_LEN);

		if (offset < -OFFSET_MAX || offset > OFFSET_MAX)
			return false;
		if (i == 0)
			zone->first_offset = offset;
	}
	for (uint32_t i = 0; i < counts->transitions; i++) {
		transitions[i].utc = big_endian_long(at + i * sizeof(int64_t));
		if (kinds[i] >= counts->types || (i > 0 && transitions[i].utc <= transitions[i - 1].utc))
			return false;
		transitions[i].offset = (int)(int32_t)big_endian(types + kinds[i] * TYPE_LEN);
	}
	zone->transitions = transitions;
	zone->count = counts->transitions;
	return true;
}

const struct zone *zone_parse(struct arena *arena, struct bytes file, struct error *error)
{
	struct zone *zone = arena_zero(arena, sizeof(*zone));
	const uint8_t *at = file.data;
	size_t left = file.len;
	char rule[RULE_LEN_MAX];
	struct counts counts;
	const uint8_t *end;

	if (file.len > ZONE_BYTES_MAX) {
		error_set(error, ERR_TOO_LARGE, "a time zone file of %zu bytes, at most %d", file.len, ZONE_BYTES_MAX);
		return NULL;
	}
	/* First the old block with times of 32 bits, then the one that counts. */
	for (int block = 0; block < 2; block++) {
		size_t len;

		if (!read_header(at, left, &counts))
			goto bad;
		len = HEADER_LEN + body_len(&counts, block == 0 ? 4 : 8);
		if (len > left)
			goto bad;
		if (block == 1 && !read_transitions(arena, at + HEADER_LEN, &counts, zone))
			goto bad;
		at += len;
		left -= len;
	}
	if (left < 2 || *at != '\n')
		goto bad;
	end = memchr(at + 1, '\n', left - 1);
	if (end == NULL || (size_t)(end - at) > sizeof(rule))
		goto bad;
	memcpy(rule, at + 1, (size_t)(end - at) - 1);
	rule[end - at - 1] = '\0';
	if (!parse_rule(rule, zone))
		goto bad;
	return zone;
bad:
	error_set(error, ERR_INVALID, "this is no time zone file (TZif, version 2 or later)");
	return NULL;
}

int zone_offset(const struct zone *zone, int64_t utc)
{
	size_t low = 0, high;

	if (zone == NULL)
		return 0;
	high = zone->count;
	while (low < high) { /* how many transitions are not later */
		size_t middle = low + (high - low) / 2;

		if (zone->transitions[middle].utc <= utc)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == zone->count && zone->has_rule)
		return rule_offset(zone, utc);
	return low == 0 ? zone->first_offset : zone->transitions[low - 1].offset;
}

enum zone_fit zone_instant(const struct zone *zone, int64_t local, int64_t *utc)
{
	int before = zone_offset(zone, local - WINDOW), after = zone_offset(zone, local + WINDOW);
	bool fits_before = zone_offset(zone, local - before) == before, fits_after = zone_offset(zone, local - after) == after;
	int64_t low, high;

	if (fits_before || fits_after) {
		*utc = local - (fits_before ? before : after);
		return fits_before && fits_after && before != after ? ZONE_TWICE : ZONE_ONCE;
	}
	/* The clock jumps over it: find the jump. */
	low = local - WINDOW;
	high = local + WINDOW;
	while (high - low > 1) {
		int64_t middle = low + (high - low) / 2;

		if (middle + zone_offset(zone, middle) > local)
			high = middle;
		else
			low = middle;
	}
	*utc = high;
	return ZONE_NEVER;
}
