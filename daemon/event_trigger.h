/* What `schedule.on` waits for: events are matched here as a `listen` task matches them, and when the last one that is wanted has come, the
 * owner is given all of them, to make a run of. What has come so far is in memory alone: after a restart the events behind the last firing
 * are looked at again, and give the same.
 *
 * Thread: loop. New here? Read on_event() in event_trigger.c. */
#pragma once

#include "activities/jq_pool.h"
#include "daemon/event_hub.h"
#include "workflow/language/definition.h"

enum {
	TRIGGER_BYTES_MAX = 8 << 20, /* of the events of one firing */
	TRIGGER_EVENTS_MAX = 10000, /* of one firing: an `until` may never hold */
	TRIGGER_EVALUATIONS_MAX = 1024, /* by jq, for one event */
	TRIGGER_RETRY_MS = 200, /* jq's queue was full, or no helper could be started */
};

struct event_trigger;
struct event_trigger_config {
	uv_loop_t *loop;
	struct event_hub *hub;
	struct jq_pool *jq;
	const char *name; /* for the log; copied */
	struct definition *definition; /* a reference of its own is taken */
	const struct event_strategy *strategy; /* of the definition */
	int64_t since_ms;
	uint64_t after_seq;
	/* All that was wanted has come. input: the array of the envelopes, in the order of their coming (no data: they are more than
	 * TRIGGER_BYTES_MAX or TRIGGER_EVENTS_MAX); seq, time_ms: of the last one. No further event is looked at until event_trigger_next(). */
	void (*on_fire)(void *arg, struct bytes input, uint64_t seq, int64_t time_ms);
	void *arg;
};

struct event_trigger *event_trigger_new(const struct event_trigger_config *config);
void event_trigger_next(struct event_trigger *trigger); /* the firing is durable: go on behind it, from nothing */
/* At any time; the memory goes when what is under way is over: run the loop. NULL is allowed. */
void event_trigger_end(struct event_trigger *trigger);
