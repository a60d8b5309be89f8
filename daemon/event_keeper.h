/* Lets go of old events: those that came in longer ago than events.keep are forgotten, by an entry of the journal, in portions. Neither are
 * they duplicates of what comes then, nor does a listener that begins then get them. What somebody still has to be given stays.
 *
 * Thread: loop; looked up on the reader thread. */
#pragma once

#include <stdbool.h>
#include <uv.h>

enum {
	EVENTS_FORGET_MAX = 10000, /* with one entry: the writer's transaction deletes as many rows */
	EVENTS_LOOK_EVERY_MS = 60000, /* for what is too old; more often where events.keep is short */
};

struct daemon;
struct event_keeper;

struct event_keeper *event_keeper_open(struct daemon *daemon);
void event_keeper_stop(struct event_keeper *keeper);
bool event_keeper_is_reading(const struct event_keeper *keeper); /* the store must not close yet */
void event_keeper_close(struct event_keeper *keeper); /* nothing is under way; run the loop once more: it frees the struct then */
