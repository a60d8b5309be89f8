/* The engine's listeners at the hub: each `listen` task that waits is a subscription, each event for it an offer to its run.
 * Thread: loop. New here? Read on_event() in listeners.c. */
#pragma once

#include "daemon/engine.h"
#include "daemon/event_hub.h"

struct listeners;
struct listeners_ports {
	void *arg;
	int (*offer)(void *arg, struct engine_offer *offer, struct error *error); /* engine_offer_event() */
};

struct listeners *listeners_new(struct event_hub *hub, const struct listeners_ports *ports);
void listeners_free(struct listeners *listeners); /* nothing may be offered any more; before the hub is closed */
size_t listeners_count(const struct listeners *listeners);

/* struct engine_ports, `listen` and `unlisten`. One that listens already goes on as it is: its run was parked and is back. */
void listeners_add(struct listeners *listeners, const char *run_id, const char *step_id, const struct event_strategy *strategy, struct definition *definition,
		   int64_t since_ms, uint64_t after_seq);
void listeners_remove(struct listeners *listeners, const char *run_id, const char *step_id /* NULL: all of the run */);
