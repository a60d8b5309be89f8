/* Times as numbers and texts, in the proleptic Gregorian calendar, UTC. Pure. Start at time_parse(). */
#include "workflow/base/time.h"

#include <stdio.h>
#include <string.h>

#include "workflow/base/check.h"

#define MS_PER_SECOND INT64_C(1000)
#define MS_PER_MINUTE (60 * MS_PER_SECOND)
#define MS_PER_HOUR (60 * MS_PER_MINUTE)
#define MS_PER_DAY (24 * MS_PER_HOUR)
#define TIME_MS_MIN INT64_C(-62167219200000) /* 0000-01-01T00:00:00.000Z */
#define TIME_MS_MAX INT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_leap(int year)
{
	return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

int time_days_in_month(int year, int month)
{
	static const int days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

	return month == 2 && is_leap(year) ? 29 : days[month - 1];
}

/* Days from 1970-01-01. Years are counted from March, so that the leap day is the last of its year. */
int64_t time_days(int year, int month, int day)
{
	int64_t y = month <= 2 ? year - 1 : year;
	int64_t era = (y >= 0 ? y : y - 399) / 400, year_of_era = y - era * 400;
	int64_t day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;

	return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

void time_date(int64_t days, int *year, int *month, int *day)
{
	int64_t era, day_of_era, year_of_era, day_of_year, month_from_march;

	days += 719468;
	era = (days >= 0 ? days : days - 146096) / 146097;
	day_of_era = days - era * 146097;
	year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
	day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	month_from_march = (5 * day_of_year + 2) / 153;
	*day = (int)(day_of_year - (153 * month_from_march + 2) / 5 + 1);
	*month = (int)(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
	*year = (int)(era * 400 + year_of_era + (*month <= 2));
}

/* Every entry has a time: snprintf() takes twelve times as many instructions. */
static void put_number(char *text, int digits, int number)
{
	for (int i = digits - 1; i >= 0; i--, number /= 10)
		text[i] = (char)('0' + number % 10);
}

void time_text(int64_t wall_ms, char text[TIME_TEXT_LEN + 1])
{
	int64_t days, ms;
	int year, month, day;

	CHECK(wall_ms >= TIME_MS_MIN);
	CHECK(wall_ms <= TIME_MS_MAX);
	days = (wall_ms - TIME_MS_MIN) / MS_PER_DAY + TIME_MS_MIN / MS_PER_DAY;
	ms = wall_ms - days * MS_PER_DAY;
	time_date(days, &year, &month, &day);
	memcpy(text, "0000-00-00T00:00:00.000Z", TIME_TEXT_LEN + 1);
	put_number(text, 4, year);
	put_number(text + 5, 2, month);
	put_number(text + 8, 2, day);
	put_number(text + 11, 2, (int)(ms / MS_PER_HOUR));
	put_number(text + 14, 2, (int)(ms / MS_PER_MINUTE % 60));
	put_number(text + 17, 2, (int)(ms / MS_PER_SECOND % 60));
	put_number(text + 20, 3, (int)(ms % MS_PER_SECOND));
}

/* Exactly `count` digits, then nothing is said about what follows. */
static bool take_number(const char **at, int count, int *number)
{
	*number = 0;
	for (int i = 0; i < count; i++) {
		if (!is_digit(**at))
			return false;
		*number = *number * 10 + (*(*at)++ - '0');
	}
	return true;
}

static bool take_char(const char **at, const char *either)
{
	if (**at == '\0' || strchr(either, **at) == NULL)
		return false;
	(*at)++;
	return true;
}

/* ".5" to 500; digits past the third are cut, not rounded: a rounded time could lie in the next day. */
static bool take_fraction(const char **at, int *ms)
{
	int scale = 100;

	*ms = 0;
	if (!take_char(at, "."))
		return true;
	if (!is_digit(**at))
		return false;
	for (; is_digit(**at); (*at)++, scale /= 10)
		*ms += (**at - '0') * scale;
	return true;
}

static bool take_zone(const char **at, int *minutes)
{
	bool east = **at == '+';
	int hour, minute;

	*minutes = 0;
	if (take_char(at, "Zz"))
		return true;
	if (!take_char(at, "+-"))
		return false;
	if (!take_number(at, 2, &hour) || !take_char(at, ":") || !take_number(at, 2, &minute) || hour > 23 || minute > 59)
		return false;
	*minutes = (hour * 60 + minute) * (east ? 1 : -1);
	return true;
}

bool time_parse(const char *text, int64_t *wall_ms)
{
	const char *at = text;
	int year, month, day, hour, minute, second, fraction_ms, zone_minutes;
	int64_t parsed;

	if (!take_number(&at, 4, &year) || !take_char(&at, "-") || !take_number(&at, 2, &month) || !take_char(&at, "-") ||
	    !take_number(&at, 2, &day) || !take_char(&at, "Tt") || !take_number(&at, 2, &hour) || !take_char(&at, ":") ||
	    !take_number(&at, 2, &minute) || !take_char(&at, ":") || !take_number(&at, 2, &second) ||
	    !take_fraction(&at, &fraction_ms) || !take_zone(&at, &zone_minutes) || *at != '\0')
		return false;
	if (month < 1 || month > 12 || day < 1 || day > time_days_in_month(year, month) || hour > 23 || minute > 59 || second > 60)
		return false;
	parsed = time_days(year, month, day) * MS_PER_DAY + hour * MS_PER_HOUR + minute * MS_PER_MINUTE +
		 second * MS_PER_SECOND + fraction_ms - zone_minutes * MS_PER_MINUTE;
	/* A leap second is the last of a UTC day; it is read as the first of the next one, as POSIX time does. */
	if (second == 60 && (parsed - TIME_MS_MIN) % MS_PER_DAY >= MS_PER_SECOND)
		return false;
	if (parsed < TIME_MS_MIN || parsed > TIME_MS_MAX)
		return false;
	*wall_ms = parsed;
	return true;
}

/* Digits to a number, stopped at a value that no duration may have, so that nothing overflows on the way. */
static bool take_amount(const char **at, int64_t *amount)
{
	if (!is_digit(**at))
		return false;
	for (*amount = 0; is_digit(**at); (*at)++) {
		if (*amount <= DURATION_DAYS_MAX * MS_PER_DAY)
			*amount = *amount * 10 + (**at - '0');
	}
	return true;
}

/* Add amount * unit_ms; false past the limit. */
static bool add_amount(int64_t *total_ms, int64_t amount, int64_t unit_ms)
{
	if (amount > (DURATION_DAYS_MAX * MS_PER_DAY - *total_ms) / unit_ms)
		return false;
	*total_ms += amount * unit_ms;
	return true;
}

enum duration_verdict { DURATION_FINE, DURATION_NONSENSE, DURATION_TOO_LONG };

/* "30s": one number, one unit. */
static enum duration_verdict parse_short(const char *at, int64_t *ms)
{
	static const struct {
		const char *name;
		int64_t ms;
	} units[] = {{"ms", 1}, {"s", MS_PER_SECOND}, {"m", MS_PER_MINUTE}, {"h", MS_PER_HOUR}, {"d", MS_PER_DAY}};
	int64_t amount;

	if (!take_amount(&at, &amount))
		return DURATION_NONSENSE;
	for (size_t i = 0; i < COUNT_OF(units); i++) {
		if (strcmp(at, units[i].name) == 0)
			return add_amount(ms, amount, units[i].ms) ? DURATION_FINE : DURATION_TOO_LONG;
	}
	return DURATION_NONSENSE;
}

/* "P1DT2H3M4.5S" or "P2W": each part at most once and in this order; a fraction only of seconds. */
static enum duration_verdict parse_iso(const char *at, int64_t *ms)
{
	static const struct {
		char name;
		bool in_time;
		int64_t ms;
	} units[] = {{'W', false, 7 * MS_PER_DAY}, {'D', false, MS_PER_DAY}, {'H', true, MS_PER_HOUR},
		     {'M', true, MS_PER_MINUTE}, {'S', true, MS_PER_SECOND}};
	size_t next = 0, parts = 0, parts_at_time = 0;
	bool in_time = false, too_long = false;

	if (*at++ != 'P')
		return DURATION_NONSENSE;
	while (*at != '\0') {
		int64_t amount;
		int fraction_ms = 0;
		bool has_fraction;
		size_t unit = next;

		if (*at == 'T' && !in_time) {
			in_time = true;
			parts_at_time = parts;
			at++;
			continue;
		}
		if (!take_amount(&at, &amount))
			return DURATION_NONSENSE;
		has_fraction = *at == '.';
		if (!take_fraction(&at, &fraction_ms))
			return DURATION_NONSENSE;
		while (unit < COUNT_OF(units) && (units[unit].name != *at || units[unit].in_time != in_time))
			unit++;
		if (unit == COUNT_OF(units) || (has_fraction && units[unit].name != 'S'))
			return DURATION_NONSENSE;
		if (!add_amount(ms, amount, units[unit].ms) || !add_amount(ms, fraction_ms, 1))
			too_long = true;
		next = units[unit].name == 'W' ? COUNT_OF(units) : unit + 1; /* Weeks stand alone. */
		parts++;
		at++;
	}
	if (parts == 0 || (in_time && parts == parts_at_time))
		return DURATION_NONSENSE;
	return too_long ? DURATION_TOO_LONG : DURATION_FINE;
}

int duration_parse(const char *text, int64_t *ms, struct error *error)
{
	int64_t parsed = 0;
	enum duration_verdict verdict = *text == 'P' ? parse_iso(text, &parsed) : parse_short(text, &parsed);

	*ms = 0;
	if (verdict == DURATION_NONSENSE)
		return error_set(error, ERR_INVALID, "\"%.40s\" is not a duration; write 250ms, 30s, 5m, 1h, 2d or ISO 8601 such as PT1H30M", text);
	if (verdict == DURATION_TOO_LONG)
		return error_set(error, ERR_INVALID, "duration \"%.40s\" is longer than %d days", text, (int)DURATION_DAYS_MAX);
	*ms = parsed;
	return 0;
}
