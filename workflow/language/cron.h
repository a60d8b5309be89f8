/* Cron expressions of `schedule.cron`: five fields (minute, hour, day of month, month, day of week), each a list of numbers, names
 * (jan…dec, sun…sat), ranges and steps; 7 is Sunday as well. When both days are restricted, either is enough, as in every cron. Pure.
 *
 * When the clock changes: an expression that names hours runs once for each time it names. A time that is skipped comes at the first
 * instant after the gap; a time that comes twice runs the first time. With `*` for the hour the clock on the wall counts, minute by
 * minute, so that "every ten minutes" neither pauses nor doubles. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "workflow/base/error.h"
#include "workflow/base/zone.h"

enum { CRON_TEXT_MAX = 256 };

struct cron {
	uint64_t minutes;
	uint32_t hours, days, months; /* bit n: the value n */
	uint8_t weekdays;
	bool any_hour, any_day, any_weekday;
};

/* ERR_INVALID says which field, and why. An expression that never comes ("0 0 30 2 *") is refused as well. */
int cron_parse(const char *text, struct cron *cron, struct error *error);
/* The first time after `after_ms` (milliseconds since 1970). zone NULL: UTC. Always later than after_ms. */
int64_t cron_next(const struct cron *cron, const struct zone *zone, int64_t after_ms);
