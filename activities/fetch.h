/* A resource that a definition names, fetched once when it is registered (semantics.md 5): a GET through the allow-list of http.allow,
 * without redirects and credentials. Thread: loop. New here? Read resource_fetch_start(). */
#pragma once

#include "activities/activity.h"

enum {
	RESOURCE_BODY_MAX = 1 << 20, /* bytes */
	RESOURCE_TOTAL_MS = 30 * 1000,
};

struct resource_fetch;
struct resource_fetch {
	/* Request; borrowed until on_done, which fires exactly once, later. */
	const char *url;
	void (*on_done)(struct resource_fetch *fetch);
	void *owner;
	/* Result; the bytes live until on_done returns. */
	struct bytes bytes;
	struct error error; /* ERR_DENIED: http.allow does not name it; others: it could not be had */
};
/* 0, or the error: on_done then never fires. activities_close() waits for it. */
int resource_fetch_start(struct activities *activities, struct resource_fetch *fetch, struct error *error);
