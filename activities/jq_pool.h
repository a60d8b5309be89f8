/* Helper processes that evaluate expressions (reprise-jq, activities/jq_helper.c): started, asked, killed at a deadline, replaced.
 *
 *   starting ─▶ idle ─▶ busy ─▶ idle            busy ─▶ ending (deadline, death)       idle ─▶ ending (worked long enough, not needed)
 *
 * A helper that does not have the program of an evaluation says so, and is first given all programs that wait, as one: compiling one takes
 * as long as compiling many.
 *
 * The first request starts the first helper and a spare one, which takes over at once when a hostile expression costs the other its
 * life. Without requests there is no process at all. What a request asks for and what comes back are bytes (workflow/language/evaluation.h).
 *
 * Thread: the loop. New here? Read jq_pool_ask(), then dispatch() in jq_pool.c. */
#pragma once

#include <uv.h>

#include "workflow/base/bytes.h"
#include "workflow/base/error.h"
#include "workflow/base/list.h"

enum {
	JQ_WORKING_MAX = 2, /* helpers at work at once */
	JQ_HELPERS_MAX = JQ_WORKING_MAX + 1, /* and one spare */
	JQ_QUEUE_MAX = 10000, /* requests that wait */
	JQ_EVALUATE_MS = 1000, /* of processor time, so that a busy machine fails no good expression */
	JQ_COMPILE_MS = 5000, /* … too */
	JQ_WAIT_TIMES = 30, /* times as long as that an answer is waited for in any case */
	JQ_BUSY_MS_MAX = 60000, /* a helper that has worked so long is replaced: what it holds for its programs goes back */
	JQ_IDLE_MS = 600000, /* without a request for so long, the helpers end */
};

struct jq_pool;
struct jq_helper;

struct jq_request;
struct jq_request {
	struct bytes request; /* borrowed until on_done */
	void (*on_done)(struct jq_request *request); /* once, never inside jq_pool_ask() */
	void *owner;
	/* ERR_NONE: there is an answer. ERR_TIMEOUT: it was killed at its deadline, of processor time or of waiting. ERR_CORRUPT: the helper died of it. ERR_IO: none could be
	 * started. ERR_CANCELLED: the pool closes. The message is for whoever wrote the expression. */
	struct error error;
	struct bytes answer; /* valid in the callback */
	bool alone; /* the pool's own: compile no other together with it */
	struct list link; /* the pool's own */
};

struct jq_pool_config {
	const char *program; /* path of reprise-jq; NULL: there is none, and every request is refused */
	/* For tests that have to reach them; 0: the limits above. */
	size_t queue_max;
	uint64_t evaluate_ms, compile_ms, busy_ms, idle_ms;
};

struct jq_counts {
	size_t helpers, working, waiting; /* now */
	uint64_t started, answered, killed, died, retired, refused; /* since the start */
};

struct jq_pool *jq_pool_open(uv_loop_t *loop, const struct jq_pool_config *config);
/* 0; ERR_BUSY: JQ_QUEUE_MAX requests wait; ERR_NOT_FOUND: there is no program. on_done then never fires. */
int jq_pool_ask(struct jq_pool *pool, struct jq_request *request, struct error *error);
void jq_pool_counts(const struct jq_pool *pool, struct jq_counts *counts);
/* Requests under way end with ERR_CANCELLED before it returns; the pool is freed as the loop runs on. NULL is allowed. */
void jq_pool_close(struct jq_pool *pool);
