/* What was used of a runtime, by day of UTC, as far as the journal and this daemon know it; and what of it counts for the queue now. Pure: both
 * clocks come in. The day is the wall clock's, which may be set: each day that it says is remembered for itself, so nothing is lost where it is put
 * right again. Loop thread. New here? Read spending_tell(). */
#pragma once

#include "activities/slot_queue.h"
#include "workflow/base/spent.h"

enum { SPENDING_LOOK_MS = 60 * 1000 }; /* a request that waits for the next day looks so often whether the wall clock says it already */

struct spending {
	struct spent_day days[SPENT_DAYS_MAX + 1]; /* oldest first; as many as the journal keeps */
	size_t count;
};

/* Where there is no room for a new day the oldest other one is forgotten. */
void spending_add(struct spending *spending, int64_t day, int64_t tokens, int64_t us);
/* All of it is 0 where nothing was used. */
struct spent_day spending_of(const struct spending *spending, int64_t day);
/* The queue is told what was used in the day of wall_ms, and when that ends by its own clock. */
void spending_tell(const struct spending *spending, struct slot_queue *queue, int64_t wall_ms, uint64_t now_us);
