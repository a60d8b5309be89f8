/* Times as numbers and texts. Nothing here looks at a clock: times come in with triggers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "workflow/base/error.h"

enum { TIME_TEXT_LEN = 24, DURATION_DAYS_MAX = 36500 };

/* "2026-09-18T09:10:36.500Z" from milliseconds since 1970, UTC. CHECKs that the year has four digits. */
void time_text(int64_t wall_ms, char text[TIME_TEXT_LEN + 1]);
/* RFC 3339 with any zone and any number of decimals. */
bool time_parse(const char *text, int64_t *wall_ms);

/* Days since 1970-01-01 in the proleptic Gregorian calendar; months and days count from 1. */
int64_t time_days(int year, int month, int day);
void time_date(int64_t days, int *year, int *month, int *day);
int time_days_in_month(int year, int month);

/* Durations: "250ms", "30s", "5m", "1h", "2d", or ISO 8601 "PT1H30M", "P1DT2S" (no years, months). In milliseconds.
 * Return 0, or ERR_INVALID and *ms = 0 on nonsense, on negative ones and past DURATION_DAYS_MAX days. */
int duration_parse(const char *text, int64_t *ms, struct error *error);
