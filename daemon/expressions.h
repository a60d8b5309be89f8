/* A definition's expressions that need jq, compiled before it is accepted: side by side, in batches, by the helpers of activities/jq_pool.h.
 * Thread: loop. New here? Read expressions_check(). */
#pragma once

#include "activities/jq_pool.h"
#include "workflow/language/definition.h"

enum { EXPRESSIONS_PARTS_MAX = 1000 }; /* requests for one definition: batches, and halves of those that cost a helper its life */

struct expressions_check;
struct expressions_check {
	/* Request; borrowed until on_done. */
	struct jq_pool *pool;
	const struct definition *definition;
	struct problems *problems; /* what does not compile is added to it */
	void (*on_done)(struct expressions_check *check); /* at once when there is nothing to compile */
	void *owner;
	/* ERR_NONE: all were looked at. ERR_BUSY, ERR_NOT_FOUND (no helper program), ERR_IO, ERR_CANCELLED: nobody knows whether they compile. */
	struct error error;
	size_t parts, under_way; /* its own */
};
void expressions_check(struct expressions_check *check);
