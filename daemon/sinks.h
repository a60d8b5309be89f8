/* HTTP sinks: every CloudEvent out (lifecycle, and what runs emit) to each configured URL, in the order of the journal, one request at a
 * time, at least once. A delivery that fails is tried again, later and later, for as long as it takes: nothing is left out, and a sink
 * that is down holds up itself alone. In memory is one page; the place is an entry of the journal, written now and then.
 *
 * Thread: loop; pages are read on the reader thread. New here? Read advance() in sinks.c. */
#pragma once

#include <uv.h>

#include "workflow/base/bytes.h"

enum {
	SINK_PAGE = 64, /* entries of the journal that are looked at together */
	SINK_PAGE_BYTES = 2 << 20, /* a page ends past it */
	SINK_RETRY_FLOOR_MS = 500,
	SINK_RETRY_CAP_MS = 60000,
	SINK_TIMEOUT_MS = 30000, /* of one delivery */
	SINK_ADVANCE_MS = 1000, /* the place is written at most so often */
};

struct daemon;
struct sinks;

struct sinks *sinks_open(struct daemon *daemon); /* as config.sinks says; a sink that is new begins with what comes now */
void sinks_wake(struct sinks *sinks); /* there may be new events */
void sinks_stop(struct sinks *sinks);
bool sinks_are_reading(const struct sinks *sinks); /* the store must not close yet */
void sinks_close(struct sinks *sinks); /* nothing is under way; run the loop once more: it frees the struct then */
void sinks_metrics(const struct sinks *sinks, struct buffer *out);
