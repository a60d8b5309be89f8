/* See duration.h. */
#include "workflow/language/duration.h"

#include <math.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"

/* ISO 8601 that duration_parse() refuses: what is wrong with it, in words of the language (it takes no "30s"). */
static int refuse_text(const char *text, struct error *error)
{
	size_t date_len = strcspn(text, "T");

	if (strspn(text, "P0123456789YMWD") >= date_len && strcspn(text, "YM") < date_len)
		return error_set(error, ERR_INVALID, "'%.40s': years and months have no fixed length; write days (P30D)", text);
	return error_set(error, ERR_INVALID, "'%.40s' is no ISO 8601 duration of at most %d days (PT30S, P1DT12H)", text, DURATION_DAYS_MAX);
}

int duration_read(const struct json *value, int64_t *ms, struct error *error)
{
	static const struct {
		const char *name;
		int64_t ms;
	} units[] = {{"days", 86400000}, {"hours", 3600000}, {"minutes", 60000}, {"seconds", 1000}, {"milliseconds", 1}};
	const int64_t max_ms = (int64_t)DURATION_DAYS_MAX * 86400000;
	int64_t sum = 0;

	*ms = 0;
	if (json_is(value, JSON_STRING)) {
		if (value->string.text[0] != 'P')
			return error_set(error, ERR_INVALID, "a duration is an object ({seconds: 30}) or an ISO 8601 text ('PT30S'), not '%.40s'", value->string.text);
		return duration_parse(value->string.text, ms, NULL) == 0 ? 0 : refuse_text(value->string.text, error);
	}
	if (!json_is(value, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "a duration is an object ({seconds: 30}) or an ISO 8601 text ('PT30S'), not %s", json_type_name(value->type));
	if (value->object.count == 0)
		return error_set(error, ERR_INVALID, "a duration needs at least one of days, hours, minutes, seconds, milliseconds");
	for (size_t i = 0; i < value->object.count; i++) {
		const struct json_member *member = &value->object.members[i];
		double number = json_is(member->value, JSON_NUMBER) ? member->value->number : -1;
		size_t unit = 0;

		while (unit < COUNT_OF(units) && strcmp(units[unit].name, member->name) != 0)
			unit++;
		if (unit == COUNT_OF(units))
			return error_set(error, ERR_INVALID, "'%.40s' is no part of a duration: days, hours, minutes, seconds, milliseconds", member->name);
		if (number < 0 || number != floor(number))
			return error_set(error, ERR_INVALID, "%s must be a whole number, 0 or more", member->name);
		if (number > (double)(max_ms / units[unit].ms) || (sum += (int64_t)number * units[unit].ms) > max_ms)
			return error_set(error, ERR_INVALID, "a duration is at most %d days", DURATION_DAYS_MAX);
	}
	*ms = sum;
	return 0;
}
