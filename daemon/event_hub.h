/* Events to those who wait for them. A subscription stands at a place in the journal and is given the events behind it, in order, one at a
 * time: the next one when it has said that it is done with the last. What a literal attribute already rules out it never sees.
 *
 * Recent events are kept in memory, a ring with a limit; a subscription behind the ring is served from the store, page by page, all that are
 * behind together (a *sweep*), so that ten thousand listeners after a restart cost one walk over the events and not ten thousand.
 * Nothing here is durable and nothing needs to be: a place follows from what was consumed.
 *
 * Thread: loop; pages are read on the reader thread. New here? Read advance() in event_hub.c. */
#pragma once

#include <uv.h>

#include "store/store.h"
#include "workflow/language/consumption.h"

enum {
	HUB_RING_EVENTS_MAX = 1024,
	HUB_RING_BYTES_MAX = 4 << 20,
	HUB_PAGE_EVENTS = 64,
	HUB_STEPS_MAX = 20000, /* events that are looked at in one turn of the loop */
	HUB_PAUSE_MS = 1, /* between two such turns: the least that lets the rest of the loop have one */
	HUB_RETRY_MS = 100, /* the store took no read, or it failed */
};

struct hub_event {
	uint64_t seq;
	int64_t time_ms;
	struct bytes bytes; /* the canonical envelope */
	const struct json *envelope;
	/* The hub's own. */
	struct arena arena;
	unsigned references;
};

struct event_hub;
struct event_subscription {
	/* The owner's; left alone from subscribe on. */
	const struct event_strategy *strategy; /* NULL: every event */
	int64_t since_ms; /* only events of this time or later */
	uint64_t position; /* … and behind this one; the hub's from then on: all up to it were looked at */
	/* One event, never inside a call of the owner's. It stays until event_hub_next() or event_hub_unsubscribe(), each of which may be called
	 * inside. */
	void (*on_event)(struct event_subscription *subscription, const struct hub_event *event);
	void *owner;

	/* The hub's own. */
	enum { SUBSCRIPTION_READY, SUBSCRIPTION_BUSY, SUBSCRIPTION_CURRENT, SUBSCRIPTION_BEHIND } stage;
	struct hub_event *event;
	bool of_page; /* … which is one of the sweep's page */
	struct list link;
};

struct event_hub_counts {
	uint64_t subscriptions, behind, busy, ring_events, ring_bytes; /* now */
	uint64_t offered, rejected, pages, evicted; /* since the start */
};

struct event_hub *event_hub_new(uv_loop_t *loop, struct store *store);
/* No page is read any more; what is under way may still come back. */
void event_hub_stop(struct event_hub *hub);
bool event_hub_is_reading(const struct event_hub *hub); /* the store must not close yet */
void event_hub_close(struct event_hub *hub); /* nothing is being read; run the loop once more: it frees the struct then */

void event_hub_subscribe(struct event_hub *hub, struct event_subscription *subscription);
void event_hub_unsubscribe(struct event_hub *hub, struct event_subscription *subscription);
void event_hub_next(struct event_hub *hub, struct event_subscription *subscription); /* it is done with its event */
void event_hub_wake(struct event_hub *hub); /* an event was committed */
void event_hub_counts(const struct event_hub *hub, struct event_hub_counts *counts);
/* No event at or below this seq is still to be given to anybody: those may be forgotten. UINT64_MAX: nobody waits for any. */
uint64_t event_hub_done_seq(const struct event_hub *hub);
