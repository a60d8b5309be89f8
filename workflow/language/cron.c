/* Cron expressions. Start at cron_parse() and cron_next(). */
#include "workflow/language/cron.h"

#include <string.h>
#include <strings.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"

enum {
	FIELD_COUNT = 5,
	DAYS_AHEAD_MAX = 366 * 41, /* a 29th of February on one day of the week comes every 28 years, over 2100 after 40 */
	MINUTES_PER_DAY = 1440,
	SECONDS_PER_MINUTE = 60,
	SECONDS_PER_DAY = 86400,
};

static const struct field {
	const char *name;
	unsigned min, max;
	const char *const *names; /* of min, min + 1 … */
} fields[FIELD_COUNT] = {
	{"minute", 0, 59, NULL},
	{"hour", 0, 23, NULL},
	{"day of month", 1, 31, NULL},
	{"month", 1, 12, (const char *const[]){"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", NULL}},
	{"day of week", 0, 7, (const char *const[]){"sun", "mon", "tue", "wed", "thu", "fri", "sat", NULL}},
};

static int refuse(const struct field *field, const char *text, struct error *error)
{
	return error_set(error, ERR_INVALID, "cron: the %s field is '%.40s'; it takes %u to %u, lists (1,2), ranges (1-5) and steps (*/2)", field->name, text,
			 field->min, field->max);
}

static bool take_value(const struct field *field, const char **at, unsigned *value)
{
	size_t len = strcspn(*at, ",-/");

	for (size_t i = 0; field->names != NULL && field->names[i] != NULL; i++)
		if (strlen(field->names[i]) == len && strncasecmp(*at, field->names[i], len) == 0) {
			*value = field->min + (unsigned)i;
			*at += len;
			return true;
		}
	if (len == 0 || len > 2 || strspn(*at, "0123456789") < len)
		return false;
	for (*value = 0; len > 0; len--, (*at)++)
		*value = *value * 10 + (unsigned)(**at - '0');
	return *value >= field->min && *value <= field->max;
}

/* One of the parts between commas. */
static bool take_part(const struct field *field, const char **at, uint64_t *bits)
{
	unsigned first = field->min, last = field->max, step = 1;
	bool is_single = false;

	if (**at == '*') {
		(*at)++;
	} else {
		if (!take_value(field, at, &first))
			return false;
		last = first;
		is_single = **at != '-';
		if (!is_single) {
			(*at)++;
			if (!take_value(field, at, &last) || last < first)
				return false;
		}
	}
	if (**at == '/') {
		const struct field steps = {field->name, 1, field->max > 0 ? field->max : 1, NULL};

		(*at)++;
		if (is_single) /* "5/15": from 5 on */
			last = field->max;
		if (!take_value(&steps, at, &step))
			return false;
	}
	for (unsigned value = first; value <= last; value += step)
		*bits |= (uint64_t)1 << value;
	return true;
}

static int parse_field(const struct field *field, const char *text, uint64_t *bits, struct error *error)
{
	const char *at = text;

	*bits = 0;
	for (;;) {
		if (!take_part(field, &at, bits))
			return refuse(field, text, error);
		if (*at == '\0')
			return 0;
		if (*at != ',')
			return refuse(field, text, error);
		at++;
	}
}

static bool day_matches(const struct cron *cron, int64_t day)
{
	unsigned weekday = (unsigned)(((day + 4) % 7 + 7) % 7); /* 1970-01-01 was a Thursday. */
	bool by_day, by_weekday;
	int year, month, date;

	time_date(day, &year, &month, &date);
	if ((cron->months >> month & 1) == 0)
		return false;
	by_day = cron->days >> date & 1;
	by_weekday = cron->weekdays >> weekday & 1;
	return cron->any_day || cron->any_weekday ? by_day && by_weekday : by_day || by_weekday;
}

int cron_parse(const char *text, struct cron *cron, struct error *error)
{
	char copy[CRON_TEXT_MAX + 1], *words[FIELD_COUNT], *rest = NULL;
	uint64_t bits[FIELD_COUNT];
	size_t count = 0;

	if (strlen(text) > CRON_TEXT_MAX)
		return error_set(error, ERR_INVALID, "cron: %zu bytes, at most %d", strlen(text), CRON_TEXT_MAX);
	strcpy(copy, text);
	for (char *word = strtok_r(copy, " \t", &rest); word != NULL; word = strtok_r(NULL, " \t", &rest)) {
		if (count < FIELD_COUNT)
			words[count] = word;
		count++;
	}
	if (count != FIELD_COUNT)
		return error_set(error, ERR_INVALID, "cron: '%.60s' has %zu fields, not the five: minute, hour, day of month, month, day of week", text, count);
	for (size_t i = 0; i < FIELD_COUNT; i++)
		if (parse_field(&fields[i], words[i], &bits[i], error) != 0)
			return error->code;
	*cron = (struct cron){
		.minutes = bits[0],
		.hours = (uint32_t)bits[1],
		.days = (uint32_t)bits[2],
		.months = (uint32_t)bits[3],
		.weekdays = (uint8_t)((bits[4] | bits[4] >> 7) & 0x7F),
		.any_hour = words[1][0] == '*' && words[1][1] == '\0',
		.any_day = words[2][0] == '*',
		.any_weekday = words[4][0] == '*',
	};
	/* Every kind of year comes by in that time. */
	for (int64_t day = time_days(2024, 1, 1); day < time_days(2024, 1, 1) + DAYS_AHEAD_MAX; day++)
		if (day_matches(cron, day))
			return 0;
	return error_set(error, ERR_INVALID, "cron: '%.60s' never comes: there is no such day", text);
}

static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b != 0 && a < 0);
}

/* The clock on the wall, minute by minute; days that do not match are skipped. */
static int64_t next_of_any_hour(const struct cron *cron, const struct zone *zone, int64_t utc)
{
	for (int64_t end = utc + (int64_t)DAYS_AHEAD_MAX * SECONDS_PER_DAY; utc < end;) {
		int64_t local = utc + zone_offset(zone, utc), day = floor_div(local, SECONDS_PER_DAY);
		int64_t minute = (local - day * SECONDS_PER_DAY) / SECONDS_PER_MINUTE;

		if (!day_matches(cron, day)) {
			int64_t midnight;

			zone_instant(zone, (day + 1) * SECONDS_PER_DAY, &midnight);
			utc = midnight > utc ? midnight : utc + SECONDS_PER_MINUTE;
			continue;
		}
		if (cron->minutes >> minute % 60 & 1)
			return utc;
		utc += SECONDS_PER_MINUTE;
	}
	return -1;
}

static int64_t next_of_named_hours(const struct cron *cron, const struct zone *zone, int64_t after)
{
	int64_t local = after + zone_offset(zone, after), day = floor_div(local, SECONDS_PER_DAY);
	int64_t from = (local - day * SECONDS_PER_DAY) / SECONDS_PER_MINUTE;

	for (int64_t last = day + DAYS_AHEAD_MAX; day < last; day++, from = 0) {
		if (!day_matches(cron, day))
			continue;
		for (int64_t minute = from; minute < MINUTES_PER_DAY; minute++) {
			int64_t utc;

			if ((cron->hours >> minute / 60 & 1) == 0 || (cron->minutes >> minute % 60 & 1) == 0)
				continue;
			zone_instant(zone, day * SECONDS_PER_DAY + minute * SECONDS_PER_MINUTE, &utc);
			if (utc > after)
				return utc;
		}
	}
	return -1;
}

int64_t cron_next(const struct cron *cron, const struct zone *zone, int64_t after_ms)
{
	int64_t after = floor_div(after_ms, 1000), utc;

	if (cron->any_hour)
		utc = next_of_any_hour(cron, zone, (floor_div(after, SECONDS_PER_MINUTE) + 1) * SECONDS_PER_MINUTE);
	else
		utc = next_of_named_hours(cron, zone, after);
	CHECK(utc > after); /* cron_parse() saw to it that some day comes. */
	return utc * 1000;
}
