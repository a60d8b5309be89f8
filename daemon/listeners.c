/* See listeners.h. */
#include "daemon/listeners.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/definitions.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"

enum { SLOTS_FIRST = 64 };

struct listener {
	struct event_subscription subscription;
	struct listeners *listeners;
	struct definition *definition; /* where the strategy lies */
	struct engine_offer offer;
	bool offering;
	bool gone; /* removed while an offer is under way: its answer frees it */
	struct listener *next; /* of its slot */
	struct list link; /* of those that are gone */
	char *step_id;
	char run_id[]; /* both texts */
};

struct listeners {
	struct event_hub *hub;
	struct listeners_ports ports;
	struct listener **slots; /* by run */
	size_t slot_count, count;
	struct list gone;
};

static void grow(struct listeners *listeners)
{
	size_t slot_count = listeners->slot_count ? listeners->slot_count * 2 : SLOTS_FIRST;
	struct listener **slots = memory_zero(slot_count * sizeof(struct listener *));

	for (size_t i = 0; i < listeners->slot_count; i++)
		for (struct listener *at = listeners->slots[i], *next; at; at = next) {
			struct listener **slot = &slots[text_hash(at->run_id) % slot_count];
			next = at->next;
			at->next = *slot;
			*slot = at;
		}
	free(listeners->slots);
	listeners->slots = slots;
	listeners->slot_count = slot_count;
}

static void free_listener(struct listener *listener)
{
	definition_release(listener->definition);
	free(listener);
}

/* It is in no slot any more. An offer under way has borrowed the event and the texts. */
static void end_listener(struct listener *listener)
{
	listener->listeners->count--;
	if (listener->offering) {
		listener->gone = true;
		list_add_last(&listener->listeners->gone, &listener->link);
		return;
	}
	event_hub_unsubscribe(listener->listeners->hub, &listener->subscription);
	free_listener(listener);
}

static void remove_one(struct listener *listener)
{
	struct listeners *listeners = listener->listeners;

	for (struct listener **at = &listeners->slots[text_hash(listener->run_id) % listeners->slot_count]; *at; at = &(*at)->next)
		if (*at == listener) {
			*at = listener->next;
			break;
		}
	end_listener(listener);
}

static void on_offered(struct engine_offer *offer)
{
	struct listener *listener = offer->owner;

	listener->offering = false;
	if (listener->gone) {
		list_remove(&listener->link);
		event_hub_unsubscribe(listener->listeners->hub, &listener->subscription);
		free_listener(listener);
	} else if (offer->error.code == ERR_NONE) {
		event_hub_next(listener->listeners->hub, &listener->subscription);
	} else if (offer->error.code != ERR_CANCELLED) { /* else the daemon stops; the event comes again after the next start */
		remove_one(listener);
	}
}

static void on_event(struct event_subscription *subscription, const struct hub_event *event)
{
	struct listener *listener = subscription->owner;
	struct error error = {0};

	listener->offer = (struct engine_offer){
		.run_id = listener->run_id, .step_id = listener->step_id, .seq = event->seq, .time_ms = event->time_ms, .event = event->bytes, .on_done = on_offered, .owner = listener,
	};
	listener->offering = true;
	if (listener->listeners->ports.offer(listener->listeners->ports.arg, &listener->offer, &error) == 0)
		return; /* it may be answered, and this one gone */
	listener->offering = false;
	if (error.code == ERR_NOT_FOUND)
		remove_one(listener);
}

void listeners_add(struct listeners *listeners, const char *run_id, const char *step_id, const struct event_strategy *strategy, struct definition *definition,
		   int64_t since_ms, uint64_t after_seq)
{
	size_t run_len = strlen(run_id), step_len = strlen(step_id);

	if (listeners->count >= listeners->slot_count)
		grow(listeners);
	struct listener **slot = &listeners->slots[text_hash(run_id) % listeners->slot_count];
	for (const struct listener *at = *slot; at; at = at->next)
		if (strcmp(at->run_id, run_id) == 0 && strcmp(at->step_id, step_id) == 0)
			return;
	struct listener *listener = memory_zero(sizeof(*listener) + run_len + step_len + 2);
	memcpy(listener->run_id, run_id, run_len + 1);
	listener->step_id = listener->run_id + run_len + 1;
	memcpy(listener->step_id, step_id, step_len + 1);
	listener->listeners = listeners;
	listener->definition = definition_hold(definition);
	listener->subscription = (struct event_subscription){.strategy = strategy, .since_ms = since_ms, .position = after_seq, .on_event = on_event, .owner = listener};
	list_init(&listener->link);
	listener->next = *slot;
	*slot = listener;
	listeners->count++;
	event_hub_subscribe(listeners->hub, &listener->subscription);
}

void listeners_remove(struct listeners *listeners, const char *run_id, const char *step_id)
{
	if (listeners->count == 0)
		return;
	for (struct listener **at = &listeners->slots[text_hash(run_id) % listeners->slot_count]; *at;) {
		struct listener *listener = *at;

		if (strcmp(listener->run_id, run_id) != 0 || (step_id && strcmp(listener->step_id, step_id) != 0)) {
			at = &listener->next;
			continue;
		}
		*at = listener->next;
		end_listener(listener);
	}
}

size_t listeners_count(const struct listeners *listeners)
{
	return listeners->count;
}

struct listeners *listeners_new(struct event_hub *hub, const struct listeners_ports *ports)
{
	struct listeners *listeners = memory_zero(sizeof(*listeners));

	listeners->hub = hub;
	listeners->ports = *ports;
	list_init(&listeners->gone);
	return listeners;
}

void listeners_free(struct listeners *listeners)
{
	for (size_t i = 0; i < listeners->slot_count; i++)
		for (struct listener *at = listeners->slots[i], *next; at; at = next) {
			next = at->next;
			event_hub_unsubscribe(listeners->hub, &at->subscription);
			free_listener(at);
		}
	while (!list_empty(&listeners->gone)) {
		struct listener *listener = CONTAINER_OF(listeners->gone.next, struct listener, link);

		list_remove(&listener->link);
		event_hub_unsubscribe(listeners->hub, &listener->subscription);
		free_listener(listener);
	}
	free(listeners->slots);
	free(listeners);
}
