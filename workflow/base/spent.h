/* What an attempt used of a runtime: activities tell it, entries say it (`spent`), budgets add it up. Pure. */
#pragma once

#include "workflow/base/json.h"

enum {
	SPENT_TOKENS_MAX = 1 << 30, /* of one attempt; a runtime that tells of more is not believed beyond it */
	SPENT_RUNTIME_LEN_MAX = 64, /* bytes of its name, as the configuration takes it */
	SPENT_DAYS_MAX = 35, /* days of a runtime that are remembered: the newest ones, and the one under way, if the clock says another */
	SPENT_DAY_MS = 24 * 60 * 60 * 1000,
};
#define SPENT_SUM_MAX ((int64_t)1 << 50) /* of a run, with its children */
#define SPENT_US_MAX ((int64_t)1 << 50) /* … and so long */

struct spent {
	const char *runtime; /* as the configuration names it; NULL: nothing was sent; or it is a run's own sum, which counts for no runtime (again) */
	int64_t tokens; /* of prompt and answer, as the runtime told; else as far as is known without it */
	int64_t us; /* a slot of the runtime was held */
};

/* What was used of one runtime in one day of UTC. */
struct spent_day {
	int64_t day; /* since 1970-01-01 */
	int64_t tokens, us;
};

/* By the wall clock, which may be wrong, and before 1970. */
int64_t spent_day_of(int64_t wall_ms);

/* {"runtime"?, "tokens", "us"} */
struct json *spent_json(struct arena *arena, const struct spent *spent);
/* From a member of an entry's data that may be absent. False: none, or not one of ours. runtime is borrowed from it. */
bool spent_read(const struct json *json, struct spent *spent);
/* The same, and also the sum of a child's run, or at the end of a run, which names no runtime. */
bool spent_read_any(const struct json *json, struct spent *spent);
bool spent_is_any(const struct spent *spent); /* there is something to tell */
