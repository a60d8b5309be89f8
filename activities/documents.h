/* Documents that extractions read: loaded through the port once and shared by the attempts on their sections. Loop thread.
 *
 * Those that nobody holds are kept up to DOCUMENTS_MAX and DOCUMENTS_BYTES_MAX, the least recently used goes first. Who holds
 * one has a slot of a runtime, so the number of those is bounded by the runtimes' concurrency. */
#pragma once

#include "activities/activity.h"

enum { DOCUMENTS_MAX = 4, DOCUMENTS_BYTES_MAX = 32 << 20 };

struct document;
struct document_wait;
typedef void (*document_wait_cb)(struct document_wait *wait);

/* Request: hold a document. The caller owns the struct and leaves it alone until on_done or document_give_up(). */
struct document_wait {
	struct digest digest;
	document_wait_cb on_done;
	void *owner;

	struct document *document; /* NULL: error says why. Held until document_release() */
	struct bytes bytes;
	struct error error;

	struct list link;
	struct document *loading;
};

struct documents {
	struct list items; /* least recently used first */
	size_t count, bytes; /* of those that nobody holds */
};

void documents_init(struct documents *documents);
void documents_close(struct activities *activities); /* nothing may be held or loading */
/* True: the document is there at once, and on_done is not called. False: on_done follows, later. */
bool document_hold(struct activities *activities, struct document_wait *wait);
void document_give_up(struct document_wait *wait); /* on_done does not fire any more */
void document_release(struct activities *activities, struct document *document); /* NULL is allowed */
