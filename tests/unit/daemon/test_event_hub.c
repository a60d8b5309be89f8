/* Tests of daemon/event_hub.c over a real store: what each subscription is given, in which order, and how much is kept for it. */
#include "daemon/event_hub.h"

#include "tests/unit/store/fixture.h"
#include "workflow/language/cloud_event.h"

enum { GIVEN_MAX = 8192 };

struct waiter {
	struct event_subscription subscription;
	struct event_hub *hub;
	uint64_t given[GIVEN_MAX];
	size_t count, hold_after; /* it keeps the event number hold_after (from 1) to itself */
	bool leaves; /* … or unsubscribes with it */
	struct event_strategy strategy;
	struct event_filter filter;
	struct event_attribute attribute;
};

static void on_event(struct event_subscription *subscription, const struct hub_event *event)
{
	struct waiter *waiter = subscription->owner;

	ck_assert_uint_lt(waiter->count, GIVEN_MAX);
	ck_assert(waiter->count == 0 || waiter->given[waiter->count - 1] < event->seq);
	ck_assert_ptr_nonnull(json_get(event->envelope, "type"));
	waiter->given[waiter->count++] = event->seq;
	if (waiter->count == waiter->hold_after && !waiter->leaves)
		return;
	if (waiter->count == waiter->hold_after)
		event_hub_unsubscribe(waiter->hub, subscription);
	else
		event_hub_next(waiter->hub, subscription);
}

static struct waiter *wait_for(struct event_hub *hub, const char *type, int64_t since_ms, uint64_t after)
{
	struct waiter *waiter = memory_zero(sizeof(*waiter));

	waiter->hub = hub;
	waiter->subscription = (struct event_subscription){.since_ms = since_ms, .position = after, .on_event = on_event, .owner = waiter};
	if (type != NULL) {
		static struct json *value;
		static struct arena arena;

		value = json_text(&arena, type);
		waiter->attribute = (struct event_attribute){.name = "type", .wants = EVENT_WANTS_VALUE, .value = value, .is_literal = true};
		waiter->filter = (struct event_filter){.attributes = &waiter->attribute, .attribute_count = 1};
		waiter->strategy = (struct event_strategy){.kind = EVENTS_ONE, .filters = &waiter->filter, .filter_count = 1};
		waiter->subscription.strategy = &waiter->strategy;
	}
	return waiter;
}

static unsigned made;

static void make_event(struct fixture *f, struct entry *entry, const char *type, int64_t time_ms, size_t more)
{
	struct cloud_event event;
	struct bytes text = bytes_text(arena_printf(&f->arena, "{\"specversion\":\"1.0\",\"source\":\"s\",\"id\":\"%u\",\"type\":\"%s\",\"data\":\"%0*d\"}", made++, type, (int)more, 0));

	ck_assert_msg(cloud_event_parse(&f->arena, text, &event, &f->error) == 0, "%s", f->error.message);
	*entry = (struct entry){.kind = ENTRY_EVENT_RECEIVED, .data = json_object(&f->arena), .time_ms = time_ms};
	json_set_digest(&f->arena, entry->data, "key", &event.key);
	entry_add_value(&f->arena, entry, "event", event.bytes);
}

static uint64_t add_event(struct fixture *f, const char *type, int64_t time_ms)
{
	struct entry entry;

	make_event(f, &entry, type, time_ms, 1);
	append_ok(f, &entry, 1);
	return entry.seq;
}

static void add_many(struct fixture *f, size_t count, const char *type, size_t more)
{
	struct entry *entries = memory_alloc(count * sizeof(*entries));

	for (size_t i = 0; i < count; i++)
		make_event(f, &entries[i], type, 5000, more);
	append_ok(f, entries, count);
	free(entries);
}

static bool expired;
static unsigned ticks; /* of TICK_MS, which are left: a turn in which the last event is given must not sleep until the end */
enum { TICK_MS = 10 };

static void on_tick(uv_timer_t *timer)
{
	(void)timer;
	expired = --ticks == 0;
}

/* Turn the loop until the waiter has been given so many, and a little longer: no more must come. */
static void run_until(struct fixture *f, const size_t *count, size_t wanted)
{
	uv_timer_t timer;

	uv_timer_init(&f->loop, &timer);
	uv_update_time(&f->loop);
	uv_timer_start(&timer, on_tick, TICK_MS, TICK_MS);
	ticks = 120000 / TICK_MS;
	expired = false;
	while (*count < wanted && !expired)
		uv_run(&f->loop, UV_RUN_ONCE);
	ck_assert_msg(*count == wanted, "%zu given, %zu wanted", *count, wanted);
	ticks = 30 / TICK_MS;
	expired = false;
	while (!expired)
		uv_run(&f->loop, UV_RUN_ONCE);
	ck_assert_msg(*count == wanted, "%zu given, %zu wanted", *count, wanted);
	uv_close((uv_handle_t *)&timer, NULL);
	uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void end(struct fixture *f, struct event_hub *hub)
{
	event_hub_stop(hub);
	while (event_hub_is_reading(hub))
		uv_run(&f->loop, UV_RUN_ONCE);
	event_hub_close(hub);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	fixture_end(f);
}

/* Each gets what lies behind its place and is young enough, then what comes, in order and once; other types it never sees. */
START_TEST(places)
{
	struct fixture f;
	struct event_hub_counts counts;
	uint64_t seq[6];

	fixture_start(&f);
	struct event_hub *hub = event_hub_new(&f.loop, f.store);
	for (int i = 0; i < 4; i++)
		seq[i] = add_event(&f, i % 2 ? "odd" : "even", 1000 + i);
	struct waiter *all = wait_for(hub, NULL, 0, 0), *young = wait_for(hub, NULL, 1002, 0), *behind = wait_for(hub, NULL, 0, seq[2]), *odd = wait_for(hub, "odd", 0, 0),
		      *none = wait_for(hub, "other", 0, 0);
	struct waiter *const waiters[] = {all, young, behind, odd, none};
	for (size_t i = 0; i < COUNT_OF(waiters); i++)
		event_hub_subscribe(hub, &waiters[i]->subscription);
	run_until(&f, &all->count, 4);
	ck_assert_uint_eq(young->count, 2);
	ck_assert_uint_eq(behind->count, 1);
	ck_assert_uint_eq(odd->count, 2);
	for (int i = 4; i < 6; i++) {
		seq[i] = add_event(&f, i % 2 ? "odd" : "even", 3000 + i);
		event_hub_wake(hub);
	}
	run_until(&f, &all->count, 6);
	for (size_t i = 0; i < 6; i++)
		ck_assert_uint_eq(all->given[i], seq[i]);
	ck_assert_uint_eq(young->given[0], seq[2]);
	ck_assert_uint_eq(young->count, 4);
	ck_assert_uint_eq(behind->given[0], seq[3]);
	ck_assert_uint_eq(behind->count, 3);
	ck_assert_uint_eq(odd->given[2], seq[5]);
	ck_assert_uint_eq(odd->count, 3);
	ck_assert_uint_eq(none->count, 0);
	ck_assert_uint_ge(event_hub_done_seq(hub), seq[5]);
	event_hub_counts(hub, &counts);
	ck_assert_uint_eq(counts.subscriptions, 5);
	ck_assert_uint_gt(counts.rejected, 6);
	for (size_t i = 0; i < COUNT_OF(waiters); i++) {
		event_hub_unsubscribe(hub, &waiters[i]->subscription);
		free(waiters[i]);
	}
	event_hub_counts(hub, &counts);
	ck_assert_uint_eq(counts.subscriptions + counts.ring_events, 0);
	ck_assert(event_hub_done_seq(hub) == UINT64_MAX);
	end(&f, hub);
}
END_TEST

/* One event at a time: while one is held nothing else comes to this one, others go on; it goes on where it was. What it holds may not be forgotten.
 * Leaving from inside is allowed. */
START_TEST(one_at_a_time)
{
	struct fixture f;
	uint64_t seq[3];

	fixture_start(&f);
	struct event_hub *hub = event_hub_new(&f.loop, f.store);
	struct waiter *slow = wait_for(hub, NULL, 0, 0), *quick = wait_for(hub, NULL, 0, 0), *leaves = wait_for(hub, NULL, 0, 0);
	slow->hold_after = 1;
	leaves->hold_after = 2;
	leaves->leaves = true;
	event_hub_subscribe(hub, &slow->subscription);
	event_hub_subscribe(hub, &quick->subscription);
	event_hub_subscribe(hub, &leaves->subscription);
	for (int i = 0; i < 3; i++) {
		seq[i] = add_event(&f, "t", 1000);
		event_hub_wake(hub);
	}
	run_until(&f, &quick->count, 3);
	ck_assert_uint_eq(slow->count, 1);
	ck_assert_uint_eq(leaves->count, 2);
	ck_assert_uint_eq(event_hub_done_seq(hub), seq[0] - 1);
	event_hub_next(hub, &slow->subscription);
	run_until(&f, &slow->count, 3);
	event_hub_unsubscribe(hub, &slow->subscription);
	event_hub_unsubscribe(hub, &quick->subscription);
	free(slow);
	free(quick);
	free(leaves);
	end(&f, hub);
}
END_TEST

/* The ring holds so many events and bytes and no more; who stands behind it is served from the store and misses nothing, and all who do
 * are served by the same pages. */
START_TEST(ring_and_sweep)
{
	enum { BEHIND = 50, EXTRA = 300 };
	struct event_hub_counts before, after;
	struct waiter *behind[BEHIND];
	struct fixture f;

	fixture_start(&f);
	struct event_hub *hub = event_hub_new(&f.loop, f.store);
	struct waiter *live = wait_for(hub, NULL, 0, 0);
	event_hub_subscribe(hub, &live->subscription);
	add_many(&f, HUB_RING_EVENTS_MAX + EXTRA, "t", 1);
	event_hub_wake(hub);
	run_until(&f, &live->count, HUB_RING_EVENTS_MAX + EXTRA);
	event_hub_counts(hub, &before);
	ck_assert_uint_le(before.ring_events, HUB_RING_EVENTS_MAX);
	ck_assert_uint_ge(before.evicted, EXTRA - HUB_PAGE_EVENTS);
	for (size_t i = 0; i < BEHIND; i++) {
		behind[i] = wait_for(hub, i % 2 ? NULL : "other", 0, 0);
		event_hub_subscribe(hub, &behind[i]->subscription);
	}
	run_until(&f, &behind[BEHIND - 1]->count, HUB_RING_EVENTS_MAX + EXTRA);
	for (size_t i = 0; i < BEHIND; i++)
		ck_assert_uint_eq(behind[i]->count, i % 2 ? HUB_RING_EVENTS_MAX + EXTRA : 0);
	event_hub_counts(hub, &after);
	ck_assert_uint_eq(after.behind, 0);
	ck_assert_uint_le(after.pages - before.pages, 3 * (EXTRA / HUB_PAGE_EVENTS + 2));
	for (size_t i = 0; i < BEHIND; i++) {
		event_hub_unsubscribe(hub, &behind[i]->subscription);
		free(behind[i]);
	}
	/* In bytes: ten events of 600 KB are more than the ring may hold. */
	size_t count = live->count;
	add_many(&f, 10, "t", 600000);
	event_hub_wake(hub);
	run_until(&f, &live->count, count + 10);
	event_hub_counts(hub, &after);
	ck_assert_uint_le(after.ring_bytes, HUB_RING_BYTES_MAX);
	ck_assert_uint_le(after.ring_events, 6);
	event_hub_unsubscribe(hub, &live->subscription);
	free(live);
	end(&f, hub);
}
END_TEST

/* One that holds an event while the ring moves on by more than its size, and one that joins a sweep under way, miss nothing. */
START_TEST(slow_and_late)
{
	struct fixture f;

	fixture_start(&f);
	struct event_hub *hub = event_hub_new(&f.loop, f.store);
	struct waiter *slow = wait_for(hub, NULL, 0, 0), *live = wait_for(hub, NULL, 0, 0), *late = wait_for(hub, NULL, 0, 0);
	slow->hold_after = 1;
	event_hub_subscribe(hub, &slow->subscription);
	event_hub_subscribe(hub, &live->subscription);
	add_many(&f, HUB_RING_EVENTS_MAX + 400, "t", 1);
	event_hub_wake(hub);
	run_until(&f, &live->count, HUB_RING_EVENTS_MAX + 400);
	ck_assert_uint_eq(slow->count, 1);
	event_hub_next(hub, &slow->subscription);
	while (slow->count < 100)
		uv_run(&f.loop, UV_RUN_ONCE);
	event_hub_subscribe(hub, &late->subscription);
	add_many(&f, 10, "t", 1);
	event_hub_wake(hub);
	run_until(&f, &late->count, HUB_RING_EVENTS_MAX + 410);
	ck_assert_uint_eq(slow->count, HUB_RING_EVENTS_MAX + 410);
	ck_assert_uint_eq(live->count, HUB_RING_EVENTS_MAX + 410);
	end(&f, hub);
	free(slow);
	free(live);
	free(late);
}
END_TEST

/* In one turn of the loop about HUB_STEPS_MAX events are looked at, however many wait to be: the rest follows in the next ones, and nobody
 * is left out. */
START_TEST(turns_are_short)
{
	enum { EVENTS = 1000, WAITERS = 3 * HUB_STEPS_MAX / EVENTS };
	struct event_hub_counts before, counts;
	struct waiter *waiters[WAITERS];
	struct fixture f;
	uint64_t most = 0;

	fixture_start(&f);
	struct event_hub *hub = event_hub_new(&f.loop, f.store);
	struct waiter *live = wait_for(hub, NULL, 0, 0);
	event_hub_subscribe(hub, &live->subscription);
	add_many(&f, EVENTS, "t", 1);
	event_hub_wake(hub);
	run_until(&f, &live->count, EVENTS);
	for (size_t i = 0; i < WAITERS; i++) {
		waiters[i] = wait_for(hub, "other", 0, live->given[0] - 1);
		event_hub_subscribe(hub, &waiters[i]->subscription);
	}
	event_hub_counts(hub, &counts);
	const uint64_t end_count = counts.rejected + (uint64_t)EVENTS * WAITERS;
	unsigned turns = 0;
	while (counts.rejected < end_count && turns++ < 1000) {
		before = counts;
		uv_sleep(2 * HUB_PAUSE_MS);
		uv_run(&f.loop, UV_RUN_NOWAIT);
		event_hub_counts(hub, &counts);
		if (counts.rejected - before.rejected > most)
			most = counts.rejected - before.rejected;
	}
	ck_assert_uint_eq(counts.rejected, end_count);
	ck_assert_uint_ge(most, HUB_STEPS_MAX - WAITERS); /* one step each is the end of the ring */
	ck_assert_uint_lt(most, HUB_STEPS_MAX + EVENTS);
	for (size_t i = 0; i < WAITERS; i++) {
		event_hub_unsubscribe(hub, &waiters[i]->subscription);
		free(waiters[i]);
	}
	event_hub_unsubscribe(hub, &live->subscription);
	free(live);
	end(&f, hub);
}
END_TEST

TEST_MAIN("event_hub", places, one_at_a_time, ring_and_sweep, slow_and_late, turns_are_short)
