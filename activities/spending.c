/* See spending.h. */
#include "activities/spending.h"

#include <string.h>

#include "workflow/base/check.h"

enum { US_PER_MS = 1000 };

static size_t find_place(const struct spending *spending, int64_t day)
{
	size_t place = 0;

	while (place < spending->count && spending->days[place].day < day)
		place++;
	return place;
}

void spending_add(struct spending *spending, int64_t day, int64_t tokens, int64_t us)
{
	size_t place = find_place(spending, day);
	struct spent_day *days = spending->days;

	if (place == spending->count || days[place].day != day) {
		if (spending->count == COUNT_OF(spending->days)) {
			memmove(days, days + 1, --spending->count * sizeof(*days));
			place -= place > 0; /* one before them all takes the place of the oldest: the clock says that it is now */
		}
		memmove(&days[place + 1], &days[place], (spending->count - place) * sizeof(*days));
		days[place] = (struct spent_day){.day = day};
		spending->count++;
	}
	days[place].tokens += tokens;
	days[place].us += us;
}

struct spent_day spending_of(const struct spending *spending, int64_t day)
{
	size_t place = find_place(spending, day);

	return place < spending->count && spending->days[place].day == day ? spending->days[place] : (struct spent_day){.day = day};
}

void spending_tell(const struct spending *spending, struct slot_queue *queue, int64_t wall_ms, uint64_t now_us)
{
	struct spent_day today = spending_of(spending, spent_day_of(wall_ms));
	int64_t left_ms = (today.day + 1) * SPENT_DAY_MS - wall_ms;

	slot_queue_set_spent(queue, &(struct slot_day){
		.tokens = today.tokens,
		.us = today.us,
		.ends_in_us = left_ms * US_PER_MS,
		.look_in_us = (left_ms < SPENDING_LOOK_MS ? left_ms : SPENDING_LOOK_MS) * US_PER_MS,
	}, now_us);
}
