/* Live feeds as text/event-stream: the entries of one run, all accepted facts, all CloudEvents. Each follows the journal from a seq
 * on: pages are read by the reader thread, written out, and the next is read when the client has taken the last and something
 * was committed since. The event's id is the journal's seq, so a client resumes with Last-Event-ID and misses nothing.
 *
 * Thread: loop; read works on the reader thread. New here? Read pump() in feeds.c. */
#pragma once

#include "daemon/http_server.h"
#include "store/store.h"

enum {
	FEED_PAGE = 256,
	FEED_PAGE_BYTES = 1 << 20, /* a page of CloudEvents ends past it */
};
enum feed_kind { FEED_RUN, FEED_FACTS, FEED_EVENTS };

struct daemon;

struct feeds {
	struct daemon *daemon;
	struct list all;
};

void feeds_init(struct feeds *feeds, struct daemon *daemon);
bool feeds_are_reading(const struct feeds *feeds); /* a page is being read: the store must not close yet */
/* Answers the request with a feed that begins behind `after`. filter: for FEED_FACTS, its texts live as long as the request.
 * run_id: for FEED_RUN, likewise. */
void feeds_open(struct feeds *feeds, struct request *request, enum feed_kind kind, uint64_t after, const char *run_id, const struct store_fact_filter *filter);
void feeds_on_committed(struct feeds *feeds, const char *run_id, uint64_t seq_last, bool ended);
