/* Durations of the workflow language: an object of days, hours, minutes, seconds and milliseconds (at least one, whole numbers), or an
 * ISO 8601 text ("PT1H30M"; years and months have no fixed length and are refused). Pure. */
#pragma once

#include "workflow/base/json.h"

/* In milliseconds. ERR_INVALID with what is wrong; at most DURATION_DAYS_MAX days (base/time.h). */
int duration_read(const struct json *value, int64_t *ms, struct error *error);
