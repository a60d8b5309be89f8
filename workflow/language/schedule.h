/* When a workflow starts by itself: `schedule` of a definition, and what follows from it at some time of day. Pure: the caller
 * brings the time and the zone's rules.
 *
 *   every      a fixed rate, counted from when the definition was added
 *   cron       see cron.h; in UTC, or in document.metadata.timezone
 *   after      so long after the run before has ended, however it ended; the first at once
 *
 * What the language leaves open stands in document.metadata.schedule:
 *
 *   overlap    allow (the default: the language lets them overlap) | skip: a tick while a run of the schedule is under way is skipped
 *   catchUp    latest (the default) | skip | all: of the ticks that were missed while the daemon was away, run the newest, none, or all
 *              up to catchUpMax (default 10, at most SCHEDULE_CATCH_UP_MAX)
 *   maxLateness  a missed tick older than this is skipped in any case
 *
 * New here? Read schedule_plan(). */
#pragma once

#include "workflow/base/json.h"
#include "workflow/language/cron.h"

enum {
	SCHEDULE_EVERY_MIN_MS = 1000,
	SCHEDULE_CATCH_UP_DEFAULT = 10,
	SCHEDULE_CATCH_UP_MAX = 1000,
	SCHEDULE_ON_TIME_MS = 30000, /* a tick noticed so late still counts as on time */
	SCHEDULE_TICKS_MAX = 50000, /* ticks that one plan looks at; older ones are skipped uncounted */
};

enum schedule_kind { SCHEDULE_EVERY, SCHEDULE_CRON, SCHEDULE_AFTER, SCHEDULE_ON };
enum schedule_overlap { SCHEDULE_OVERLAP_ALLOW, SCHEDULE_OVERLAP_SKIP };
enum schedule_catch_up { SCHEDULE_CATCH_UP_LATEST, SCHEDULE_CATCH_UP_SKIP, SCHEDULE_CATCH_UP_ALL };

struct event_strategy;
struct schedule {
	enum schedule_kind kind;
	int64_t every_ms; /* EVERY, AFTER */
	const struct event_strategy *on; /* ON: consumption.h; without `until` */
	struct cron cron;
	const char *cron_text, *time_zone; /* time_zone NULL: UTC */
	enum schedule_overlap overlap;
	enum schedule_catch_up catch_up;
	unsigned catch_up_max;
	int64_t lateness_max_ms; /* 0: any */
};

/* Not for ON, which no clock moves. The first tick after `since_ms`. EVERY: since must be a tick or the anchor. AFTER: since is the end of the run before. */
int64_t schedule_next(const struct schedule *schedule, const struct zone *zone, int64_t since_ms);

struct checker;
/* Of a definition's document: its `schedule` and the metadata beside it, checked. NULL: it has none, or the checker was told what is
 * wrong. Lives in the definition's arena. Whether the zone exists is for the caller to find out. */
const struct schedule *schedule_read(struct checker *checker, const struct json *document);

/* Why ticks did not become runs. */
enum schedule_skip { SCHEDULE_MISSED, SCHEDULE_LATE, SCHEDULE_OVER_MAX, SCHEDULE_OVERLAPPED, SCHEDULE_PAUSED, SCHEDULE_TOO_LARGE, SCHEDULE_SKIP_COUNT };
const char *schedule_skip_name(enum schedule_skip skip); /* "missed", "too late", "catch-up limit", "overlap", "paused", "too large" */

struct schedule_skipped {
	int64_t first_ms, last_ms;
	uint64_t count;
	bool is_uncounted; /* there were more: a cron's ticks so long ago are not counted */
	enum schedule_skip why;
};

struct schedule_plan {
	int64_t run_ms[SCHEDULE_CATCH_UP_MAX]; /* ticks that become runs, oldest first */
	size_t run_count;
	struct schedule_skipped skipped[4]; /* oldest first, before the runs */
	size_t skipped_count;
	int64_t accounted_ms; /* the newest tick of the plan; since_ms when there is none */
	int64_t next_ms; /* the first tick after now */
};

/* Everything that was due after since_ms and is by now_ms, for EVERY and CRON. is_open: a run of the schedule is under way.
 * paused: all of it is skipped as paused. */
void schedule_plan(const struct schedule *schedule, const struct zone *zone, int64_t since_ms, int64_t now_ms, bool is_open, bool paused, struct schedule_plan *plan);
