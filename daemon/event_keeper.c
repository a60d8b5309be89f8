/* See event_keeper.h. */
#include "daemon/event_keeper.h"

#include <stdlib.h>

#include "daemon/daemon.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"

enum { LOOKS_PER_KEEP = 4, LOOK_MIN_MS = 100 };

struct event_keeper {
	struct daemon *daemon;
	uv_timer_t timer;
	bool stopped, reading, appending;

	struct store_read read;
	int64_t before_ms;
	uint64_t before; /* the answer */
	size_t count;

	struct store_append append;
	struct entry entry;
	struct arena arena; /* of the append */
};

static void on_timer(uv_timer_t *timer);

static void look_again(struct event_keeper *keeper, bool at_once)
{
	int64_t every_ms = keeper->daemon->config.events_keep_ms / LOOKS_PER_KEEP;

	if (every_ms > EVENTS_LOOK_EVERY_MS)
		every_ms = EVENTS_LOOK_EVERY_MS;
	if (every_ms < LOOK_MIN_MS)
		every_ms = LOOK_MIN_MS;
	if (!keeper->stopped)
		uv_timer_start(&keeper->timer, on_timer, at_once ? 0 : (uint64_t)every_ms, 0);
}

static void look(struct store_reader *reader, struct store_read *read)
{
	struct event_keeper *keeper = read->owner;

	reader_events_old(reader, keeper->before_ms, EVENTS_FORGET_MAX, &keeper->before, &keeper->count, &read->error);
}

static void on_forgotten(struct store_append *append)
{
	struct event_keeper *keeper = append->owner;
	bool good = append->error.code == ERR_NONE;

	keeper->appending = false;
	arena_close(&keeper->arena);
	if (!good)
		log_warn(LOG_DAEMON, "old events are kept for now: %s", append->error.message);
	look_again(keeper, good && keeper->count == EVENTS_FORGET_MAX);
}

static void on_looked(struct store_read *read)
{
	struct event_keeper *keeper = read->owner;
	uint64_t done = event_hub_done_seq(keeper->daemon->hub);

	keeper->reading = false;
	arena_close(&read->arena);
	if (keeper->stopped)
		return;
	if (read->error.code != ERR_NONE)
		log_error(LOG_DAEMON, "look for old events: %s", read->error.message);
	else if (keeper->count > 0 && keeper->before <= done) { /* else a listener is behind them: later */
		arena_init(&keeper->arena);
		keeper->entry = (struct entry){.kind = ENTRY_EVENTS_FORGOTTEN, .data = json_object(&keeper->arena), .time_ms = clock_wall_ms()};
		json_set_number(&keeper->arena, keeper->entry.data, "before", (double)keeper->before);
		keeper->append = (struct store_append){.entries = &keeper->entry, .entry_count = 1, .on_done = on_forgotten, .owner = keeper};
		keeper->appending = store_append(keeper->daemon->store, &keeper->append) == 0;
		if (keeper->appending)
			return;
		arena_close(&keeper->arena);
	}
	look_again(keeper, false);
}

static void on_timer(uv_timer_t *timer)
{
	struct event_keeper *keeper = timer->data;

	keeper->before_ms = clock_wall_ms() - keeper->daemon->config.events_keep_ms;
	keeper->read = (struct store_read){.work = look, .on_done = on_looked, .owner = keeper};
	keeper->reading = store_read(keeper->daemon->store, &keeper->read) == 0;
	if (!keeper->reading)
		look_again(keeper, false);
}

struct event_keeper *event_keeper_open(struct daemon *daemon)
{
	struct event_keeper *keeper = memory_zero(sizeof *keeper);

	keeper->daemon = daemon;
	CHECK(uv_timer_init(&daemon->loop, &keeper->timer) == 0);
	keeper->timer.data = keeper;
	look_again(keeper, false);
	return keeper;
}

void event_keeper_stop(struct event_keeper *keeper)
{
	keeper->stopped = true;
	uv_timer_stop(&keeper->timer);
}

bool event_keeper_is_reading(const struct event_keeper *keeper)
{
	return keeper->reading;
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void event_keeper_close(struct event_keeper *keeper)
{
	uv_close((uv_handle_t *)&keeper->timer, on_closed);
}
