/* A time zone's rules, read from the bytes of a compiled zone file (TZif, RFC 8536, version 2 or later): its transitions and,
 * for all times after the last of them, the rule at its end. Who reads the file is the caller's business. Pure. */
#pragma once

#include "workflow/base/arena.h"
#include "workflow/base/bytes.h"
#include "workflow/base/error.h"

enum { ZONE_BYTES_MAX = 64 << 10, ZONE_NAME_MAX = 64 };

struct zone;

/* A name of the zone database ("Europe/Berlin"): letters, digits, "_+-/" only, no empty part, so that it is no path elsewhere. */
bool zone_name_is_valid(const char *name);
/* NULL with ERR_INVALID when it is no zone file, ERR_TOO_LARGE past ZONE_BYTES_MAX. Lives in the arena; keeps nothing of `file`. */
const struct zone *zone_parse(struct arena *arena, struct bytes file, struct error *error);
/* Seconds east of Greenwich at this instant (seconds since 1970). zone NULL: UTC, always 0. */
int zone_offset(const struct zone *zone, int64_t utc);

enum zone_fit { ZONE_ONCE, ZONE_TWICE, ZONE_NEVER };
/* The instant of a local time (as seconds since 1970 of a clock that shows it). TWICE (the clock was set back): the first of
 * the two. NEVER (it was set forward over it): the first instant after the gap. */
enum zone_fit zone_instant(const struct zone *zone, int64_t local, int64_t *utc);
