/* See event_hub.h. */
#include "daemon/event_hub.h"

#include <stdlib.h>

#include "workflow/base/check.h"
#include "workflow/base/log.h"
#include "workflow/language/cloud_event.h"

/* One page of the store, for the ring's end or for a sweep. */
struct hub_page {
	struct store_read read;
	struct event_hub *hub;
	bool reading;
	/* What is asked: behind `after`, of since_ms or later (0: of any time); `end_only`: nothing but where the journal ends. */
	uint64_t after;
	int64_t since_ms;
	bool end_only;
	/* The answer. */
	struct store_event *events;
	size_t count;
	uint64_t next; /* all that is there up to here, and asked for, is in `events` */
	bool more;
};

struct event_hub {
	uv_loop_t *loop;
	struct store *store;
	uv_timer_t timer; /* goes on in the next turn, or tries a read again */
	bool stopped, pumping, timer_closed;
	uint64_t started;

	/* A ring of events with seq in (ring_begin, ring_end], all that there are. Before the first read nothing is known. */
	struct hub_event *ring[HUB_RING_EVENTS_MAX];
	size_t ring_first, ring_count, ring_bytes;
	uint64_t ring_begin, ring_end;
	bool ring_known, dirty; /* dirty: there may be more than ring_end in the store */
	struct hub_page tail;

	/* The sweep's page: events with seq in (sweep_from, sweep_next] and time_ms >= sweep_since_ms. */
	struct hub_event *page[HUB_PAGE_EVENTS];
	size_t page_count, page_users;
	uint64_t sweep_from, sweep_next;
	int64_t sweep_since_ms;
	struct hub_page sweep;

	struct list ready, busy, current, behind;
	struct event_hub_counts counts;
};

/* --- events ------------------------------------------------------------------------------------------------------- */

static struct hub_event *event_make(const struct store_event *stored)
{
	struct hub_event *event = memory_zero(sizeof(*event));
	struct cloud_event read;
	struct error error = {0};

	*event = (struct hub_event){.seq = stored->seq, .time_ms = stored->time_ms, .references = 1};
	arena_init(&event->arena);
	event->bytes = arena_bytes(&event->arena, stored->event);
	/* Erased or damaged: nobody can match it, and nobody has to wait for it. */
	if (stored->event.data == NULL || cloud_event_read(&event->arena, event->bytes, &read, &error) != 0) {
		log_warn(LOG_DAEMON, "event %llu is not offered to listeners: %s", (unsigned long long)stored->seq,
			 stored->event.data == NULL ? "its content was erased" : error.message);
		event->envelope = NULL;
	} else {
		event->envelope = read.envelope;
	}
	return event;
}

static void event_release(struct hub_event *event)
{
	CHECK(event->references > 0);
	if (--event->references > 0)
		return;
	arena_close(&event->arena);
	free(event);
}

static struct hub_event *ring_at(const struct event_hub *hub, size_t index)
{
	return hub->ring[(hub->ring_first + index) % HUB_RING_EVENTS_MAX];
}

static void ring_drop_first(struct event_hub *hub)
{
	struct hub_event *event = ring_at(hub, 0);

	hub->ring_begin = event->seq;
	hub->ring_first = (hub->ring_first + 1) % HUB_RING_EVENTS_MAX;
	hub->ring_count--;
	hub->ring_bytes -= event->bytes.len;
	hub->counts.evicted++;
	event_release(event);
}

static void ring_add(struct event_hub *hub, struct hub_event *event)
{
	while (hub->ring_count > 0 && (hub->ring_count == HUB_RING_EVENTS_MAX || hub->ring_bytes + event->bytes.len > HUB_RING_BYTES_MAX))
		ring_drop_first(hub);
	hub->ring[(hub->ring_first + hub->ring_count) % HUB_RING_EVENTS_MAX] = event;
	hub->ring_count++;
	hub->ring_bytes += event->bytes.len;
	hub->ring_end = event->seq;
}

/* The first event behind a place, from the ring: by halving, since those who wait for a rare event stand far behind. */
static struct hub_event *ring_find(const struct event_hub *hub, uint64_t position)
{
	size_t low = 0, high = hub->ring_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (ring_at(hub, middle)->seq > position)
			high = middle;
		else
			low = middle + 1;
	}
	return low < hub->ring_count ? ring_at(hub, low) : NULL;
}

static struct hub_event *page_find(const struct event_hub *hub, uint64_t position)
{
	for (size_t i = 0; i < hub->page_count; i++)
		if (hub->page[i]->seq > position)
			return hub->page[i];
	return NULL;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void pump(struct event_hub *hub);

static void read_page(struct store_reader *reader, struct store_read *read)
{
	struct hub_page *page = read->owner;
	uint64_t size, begin;

	page->count = 0;
	page->more = false;
	if (reader_log_size(reader, &size, &read->error) != 0)
		return;
	page->next = size > 0 ? size - 1 : 0;
	if (page->end_only)
		return;
	if (page->since_ms > 0) {
		if (reader_events_begin(reader, page->since_ms, &begin, &read->error) != 0)
			return;
		if (begin > page->after)
			page->after = begin;
	}
	uint64_t end = page->next;
	if (reader_events(reader, &read->arena, page->after, page->since_ms, HUB_PAGE_EVENTS, &page->events, &page->count, &page->next, &read->error) != 0)
		return;
	/* A page that is not full may have ended for its bytes: only an empty one says that there is no more. */
	page->more = page->count > 0;
	if (!page->more)
		page->next = end > page->after ? end : page->after;
}

static void on_timer(uv_timer_t *timer)
{
	pump(timer->data);
}

static void go_on_later(struct event_hub *hub, uint64_t ms)
{
	if (!hub->stopped && (ms == 0 || !uv_is_active((uv_handle_t *)&hub->timer)))
		uv_timer_start(&hub->timer, on_timer, ms, 0);
}

static bool start_page(struct hub_page *page, store_read_cb on_done)
{
	page->read = (struct store_read){.work = read_page, .on_done = on_done, .owner = page};
	if (store_read(page->hub->store, &page->read) != 0) {
		go_on_later(page->hub, HUB_RETRY_MS);
		return false;
	}
	page->reading = true;
	page->hub->counts.pages++;
	return true;
}

/* Common to both: false when the page is none. */
static bool end_page(struct hub_page *page)
{
	struct event_hub *hub = page->hub;

	page->reading = false;
	if (hub->stopped)
		return false;
	if (page->read.error.code != ERR_NONE) {
		log_error(LOG_DAEMON, "read events behind %llu: %s", (unsigned long long)page->after, page->read.error.message);
		go_on_later(hub, HUB_RETRY_MS);
		return false;
	}
	return true;
}

static void on_tail(struct store_read *read)
{
	struct hub_page *page = read->owner;
	struct event_hub *hub = page->hub;

	if (end_page(page)) {
		if (!hub->ring_known) {
			hub->ring_known = true;
			hub->ring_begin = hub->ring_end = page->end_only ? page->next : page->after;
		}
		for (size_t i = 0; i < page->count; i++)
			ring_add(hub, event_make(&page->events[i]));
		if (page->next > hub->ring_end)
			hub->ring_end = page->next;
		hub->dirty |= page->more || page->end_only;
		list_move_all(&hub->ready, &hub->current);
		LIST_EACH (link, &hub->ready)
			CONTAINER_OF(link, struct event_subscription, link)->stage = SUBSCRIPTION_READY;
	} else {
		hub->dirty = true;
	}
	arena_close(&page->read.arena);
	pump(hub);
}

static void page_drop(struct event_hub *hub)
{
	for (size_t i = 0; i < hub->page_count; i++)
		event_release(hub->page[i]);
	hub->page_count = 0;
	hub->sweep_from = hub->sweep_next = 0;
}

static void on_sweep(struct store_read *read)
{
	struct hub_page *page = read->owner;
	struct event_hub *hub = page->hub;

	if (end_page(page)) {
		for (size_t i = 0; i < page->count; i++)
			hub->page[hub->page_count++] = event_make(&page->events[i]);
		hub->sweep_next = page->next;
		list_move_all(&hub->ready, &hub->behind);
		LIST_EACH (link, &hub->ready)
			CONTAINER_OF(link, struct event_subscription, link)->stage = SUBSCRIPTION_READY;
	}
	arena_close(&page->read.arena);
	pump(hub);
}

/* The next page of the sweep: where it stands if somebody waits there or further on, else from the hindmost on. So one that joins does
 * not hold up those who are ahead of it, and each sweep comes to its end. */
static void start_sweep(struct event_hub *hub)
{
	uint64_t ahead = UINT64_MAX, hindmost = UINT64_MAX;
	int64_t since_ms = INT64_MAX;

	LIST_EACH (link, &hub->behind) {
		const struct event_subscription *subscription = CONTAINER_OF(link, struct event_subscription, link);

		if (subscription->position >= hub->sweep_next && subscription->position < ahead)
			ahead = subscription->position;
		if (subscription->position < hindmost)
			hindmost = subscription->position;
		if (subscription->since_ms < since_ms)
			since_ms = subscription->since_ms;
	}
	uint64_t from = ahead != UINT64_MAX ? ahead : hindmost;
	page_drop(hub);
	hub->sweep_from = from;
	hub->sweep_since_ms = since_ms;
	hub->sweep.after = from;
	hub->sweep.since_ms = since_ms;
	start_page(&hub->sweep, on_sweep);
}

/* --- subscriptions ------------------------------------------------------------------------------------------------ */

static void enter(struct event_hub *hub, struct event_subscription *subscription, int stage)
{
	struct list *const lists[] = {[SUBSCRIPTION_READY] = &hub->ready, [SUBSCRIPTION_BUSY] = &hub->busy, [SUBSCRIPTION_CURRENT] = &hub->current, [SUBSCRIPTION_BEHIND] = &hub->behind};

	list_remove(&subscription->link);
	subscription->stage = stage;
	list_add_last(lists[stage], &subscription->link);
}

static void let_go(struct event_hub *hub, struct event_subscription *subscription)
{
	if (subscription->event == NULL)
		return;
	event_release(subscription->event);
	subscription->event = NULL;
	if (subscription->of_page)
		hub->page_users--;
	subscription->of_page = false;
}

static bool rejects(const struct event_subscription *subscription, const struct hub_event *event)
{
	return event->envelope == NULL || event->time_ms < subscription->since_ms ||
	       (subscription->strategy != NULL && event_strategy_rejects(subscription->strategy, event->envelope));
}

/* From its place on: to the next event that may be for it, or to where nothing is known. Returns how many events were looked at. */
static unsigned advance(struct event_hub *hub, struct event_subscription *subscription)
{
	unsigned steps = 1;

	for (;; steps++) {
		bool of_page = false;
		struct hub_event *event;

		if (hub->ring_known && subscription->position >= hub->ring_begin) {
			event = ring_find(hub, subscription->position);
			if (event == NULL) {
				if (subscription->position < hub->ring_end)
					subscription->position = hub->ring_end;
				enter(hub, subscription, SUBSCRIPTION_CURRENT);
				return steps;
			}
		} else if (subscription->position >= hub->sweep_from && subscription->position < hub->sweep_next && subscription->since_ms >= hub->sweep_since_ms) {
			event = page_find(hub, subscription->position);
			if (event == NULL) {
				subscription->position = hub->sweep_next;
				continue;
			}
			of_page = true;
		} else {
			enter(hub, subscription, SUBSCRIPTION_BEHIND);
			return steps;
		}
		subscription->position = event->seq;
		if (rejects(subscription, event)) {
			hub->counts.rejected++;
			continue;
		}
		hub->counts.offered++;
		event->references++;
		subscription->event = event;
		subscription->of_page = of_page;
		hub->page_users += of_page;
		enter(hub, subscription, SUBSCRIPTION_BUSY);
		subscription->on_event(subscription, event);
		return steps; /* it may be gone */
	}
}

/* Everything moves here, in a turn of its own: who subscribes, or is done, may be in the middle of something that an event would
 * disturb. */
static void pump(struct event_hub *hub)
{
	unsigned steps = 0;

	if (hub->pumping || hub->stopped)
		return;
	hub->pumping = true;
	while (!list_empty(&hub->ready) && steps < HUB_STEPS_MAX && !hub->stopped)
		steps += advance(hub, CONTAINER_OF(hub->ready.next, struct event_subscription, link));
	hub->pumping = false;
	if (hub->stopped)
		return;
	bool anybody = !list_empty(&hub->ready) || !list_empty(&hub->busy) || !list_empty(&hub->current) || !list_empty(&hub->behind);
	if (anybody && !hub->tail.reading && (!hub->ring_known || hub->dirty)) {
		hub->tail.end_only = !hub->ring_known;
		hub->tail.after = hub->ring_end;
		/* Before the read: what is committed meanwhile makes it dirty again. */
		hub->dirty = !start_page(&hub->tail, on_tail);
	}
	if (!list_empty(&hub->ready)) /* not 0: libuv would call a timer that is due at once again before all else */
		uv_timer_start(&hub->timer, on_timer, HUB_PAUSE_MS, 0);
	else if (!list_empty(&hub->behind) && hub->ring_known && !hub->sweep.reading && hub->page_users == 0)
		start_sweep(hub);
}

void event_hub_subscribe(struct event_hub *hub, struct event_subscription *subscription)
{
	subscription->event = NULL;
	subscription->of_page = false;
	list_init(&subscription->link);
	hub->counts.subscriptions++;
	enter(hub, subscription, SUBSCRIPTION_READY);
	go_on_later(hub, 0);
}

void event_hub_unsubscribe(struct event_hub *hub, struct event_subscription *subscription)
{
	let_go(hub, subscription);
	list_remove(&subscription->link);
	hub->counts.subscriptions--;
	/* Nobody is left: what is in memory would only grow old. */
	if (hub->counts.subscriptions == 0) {
		while (hub->ring_count > 0)
			ring_drop_first(hub);
		hub->ring_known = false;
		if (!hub->sweep.reading)
			page_drop(hub);
	}
	go_on_later(hub, 0);
}

void event_hub_next(struct event_hub *hub, struct event_subscription *subscription)
{
	CHECK(subscription->stage == SUBSCRIPTION_BUSY);
	let_go(hub, subscription);
	enter(hub, subscription, SUBSCRIPTION_READY);
	go_on_later(hub, 0);
}

void event_hub_wake(struct event_hub *hub)
{
	hub->dirty = true;
	if (hub->counts.subscriptions > 0)
		go_on_later(hub, 0);
}

/* --- around it ---------------------------------------------------------------------------------------------------- */

static size_t length(const struct list *list)
{
	size_t count = 0;

	LIST_EACH (link, list)
		count++;
	return count;
}

void event_hub_counts(const struct event_hub *hub, struct event_hub_counts *counts)
{
	*counts = hub->counts;
	counts->behind = length(&hub->behind);
	counts->busy = length(&hub->busy);
	counts->ring_events = hub->ring_count;
	counts->ring_bytes = hub->ring_bytes;
}

uint64_t event_hub_done_seq(const struct event_hub *hub)
{
	const struct list *const lists[] = {&hub->ready, &hub->busy, &hub->behind, &hub->current};
	uint64_t done = UINT64_MAX;

	for (size_t i = 0; i < COUNT_OF(lists); i++)
		LIST_EACH (link, lists[i]) {
			const struct event_subscription *subscription = CONTAINER_OF(link, struct event_subscription, link);
			uint64_t at = subscription->event != NULL ? subscription->event->seq - 1 : subscription->position;

			if (at < done)
				done = at;
		}
	return done;
}

struct event_hub *event_hub_new(uv_loop_t *loop, struct store *store)
{
	struct event_hub *hub = memory_zero(sizeof(*hub));

	hub->loop = loop;
	hub->store = store;
	hub->tail.hub = hub->sweep.hub = hub;
	list_init(&hub->ready);
	list_init(&hub->busy);
	list_init(&hub->current);
	list_init(&hub->behind);
	CHECK(uv_timer_init(loop, &hub->timer) == 0);
	hub->timer.data = hub;
	return hub;
}

void event_hub_stop(struct event_hub *hub)
{
	hub->stopped = true;
	uv_timer_stop(&hub->timer);
}

bool event_hub_is_reading(const struct event_hub *hub)
{
	return hub->tail.reading || hub->sweep.reading;
}

static void on_timer_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void event_hub_close(struct event_hub *hub)
{
	static const int stages = 4;
	struct list *const lists[] = {&hub->ready, &hub->busy, &hub->current, &hub->behind};

	CHECK(!event_hub_is_reading(hub));
	hub->stopped = true;
	for (int i = 0; i < stages; i++)
		while (!list_empty(lists[i])) {
			struct event_subscription *subscription = CONTAINER_OF(lists[i]->next, struct event_subscription, link);

			let_go(hub, subscription);
			list_remove(&subscription->link);
		}
	while (hub->ring_count > 0)
		ring_drop_first(hub);
	page_drop(hub);
	uv_close((uv_handle_t *)&hub->timer, on_timer_closed);
}
