/* Joins the engine and the activities to the store: each port is a request struct in, a read or an append behind it, the same struct
 * back. Nobody but this file knows both sides.
 *
 * Reads of the engine and the activities are never refused: past the store's limit they wait here and are tried again.
 * Thread: loop; the work of a read runs on the reader thread. */
#pragma once

#include <uv.h>

#include "activities/activity.h"
#include "daemon/children.h"
#include "daemon/engine.h"

enum {
	PORT_RETRY_MS = 20, /* a read that the store could not take */
	PORT_SLEEP_MAX_MS = 60000, /* the longest sleep before a deadline: the wall clock may have been set forward meanwhile (C58) */
};

struct daemon;

struct ports {
	struct daemon *daemon;
	uv_timer_t retry, deadline;
	uv_prepare_t prepare;
	struct list postponed; /* of struct port_read */
	struct list refused; /* of struct engine_evaluate: jq's queue is full, which the engine is told of later */
	int64_t armed_ms; /* deadline the timer was started for */
};

void ports_init(struct ports *ports, struct daemon *daemon);
void ports_close(struct ports *ports); /* nothing may be under way */
struct engine_ports ports_for_engine(struct ports *ports);
struct activity_ports ports_for_activities(struct ports *ports);
struct children_ports ports_for_children(struct ports *ports);
/* Open runs below this one, in awaited steps alone, level by level; at most `limit`. On the reader thread. */
int read_below(struct store_reader *reader, struct arena *arena, const char *id, size_t limit, struct store_run **found, size_t *count, struct error *error);
