/* Whose turn it is at a server. Several runtimes of the configuration may be models of one server (the same URL): each has a queue of its own, with
 * its limits, and what they have in common is one struct slot_server. Pure: no timer, no callback, and the time comes in. Loop thread.
 *
 * In this order: 1. who is not admitted now (its runtime is starting, at a limit of requests or tokens per time, or at the end of its budget) lets others go first; 2. of all
 * others the one of the highest priority, each level being worth PRIORITY_STEP_MS of waiting, so that nobody waits for ever; 3. where a server holds
 * fewer models than it serves, those for the models it holds go before one that needs another, MODEL_ROW_MAX times or MODEL_STAY_MS long. A request
 * that wants the server for itself takes its turn like any other, and those behind it wait until it had it.
 *
 * New here? Read slot_server_next(). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "workflow/base/budget.h"
#include "workflow/base/failure.h"
#include "workflow/base/list.h"
#include "workflow/base/priority.h"

enum {
	PRIORITY_COUNT = PRIORITY_MAX + 1,
	PRIORITY_STEP_MS = 60 * 1000, /* what came so much later is passed by one priority less: whoever waits is passed by what comes within nine of them */
	SOLO_LINGER_MS = 2000,
	SOLO_KEY_LEN_MAX = 200, /* a longer key is cut */
	MODELS_LOADED_MAX = 8,
	MODEL_ROW_MAX = 100, /* so many requests for loaded models pass one that needs another */
	MODEL_STAY_MS = 60 * 1000, /* ... and for so long */
	RATE_COST_MAX = 1 << 26, /* tokens or requests in a limit, and tokens of one request that are counted */
	RATE_PER_MIN_MS = 1000,
	RATE_PER_MAX_MS = 24 * 60 * 60 * 1000,
};
#define SLOT_NEVER UINT64_MAX

/* Why a request waits. Columns: name, text. */
#define SLOT_WAITS(X)                                                                               \
	X(SLOT_WAITS_TURN, "slot") /* as many as may be are in flight, or others come first */      \
	X(SLOT_WAITS_RUNTIME, "runtime") /* which is starting, or stopped */                        \
	X(SLOT_WAITS_SOLO, "solo") /* somebody has the server for himself, or is about to */        \
	X(SLOT_WAITS_RATE, "rate") /* requests or tokens per time, or the runtime asked to wait */  \
	X(SLOT_WAITS_BUDGET, "budget") /* what may be used in a day is, or may be by those in flight */ \
	X(SLOT_WAITS_MODEL, "model") /* the server holds others, and is not done with them */
enum slot_wait {
#define X(name, text) name,
	SLOT_WAITS(X)
#undef X
	SLOT_WAIT_COUNT
};
const char *slot_wait_name(enum slot_wait wait);

/* A turn in a runtime's queue. The caller fills in the request and leaves it alone until it has left. */
struct slot {
	struct list link;
	void (*on_slot)(struct slot *slot); /* may fire inside of runtime_queue() */
	/* A launched runtime: it cannot be started (the slot waited), or was ended while the slot was held. May be NULL: then nothing is told, and
	 * the slot waits on or is held as before. Else it no longer waits, but is still held. */
	void (*on_lost)(struct slot *slot, enum failure_class failure, const char *detail);
	bool waiting, held;
	/* The solo lane: nothing else is in flight at the server while it is held, and for SOLO_LINGER_MS afterwards, and as long as one with the same
	 * key waits, it serves no others, so that a measurement of many requests has the server for itself. NULL: an ordinary slot. */
	const char *solo;
	unsigned solo_width; /* so many with this key may be in flight at once, never more than the queue's concurrency; 0: one */
	bool solo_last; /* no further one with this key follows */
	unsigned priority; /* 0 to PRIORITY_MAX */
	int64_t tokens; /* what the answer may have at most; counted against the limits of tokens until `tokens_used` is known. 0: not said */
	int64_t prompt_tokens; /* counted beforehand, against the budget alone; 0: not known */
	int64_t tokens_used; /* -1: not known when it leaves */
	bool unasked; /* when it leaves: no request was sent, so none counts against the limit of requests, and nothing was spent */
	int64_t tokens_spent; /* when it leaves, as far as is known */

	/* The queue's own. */
	struct list solo_link;
	struct slot_queue *queue;
	uint64_t order_us, number; /* who is first: by these two */
	uint64_t since_us;
	unsigned passed; /* by others for models that are loaded */
	uint64_t passed_since_us;
	uint64_t given_to_others; /* by the server to other queues, when it was given the slot */
	bool mixed; /* requests of other queues were in flight beside it: then, or once it has left */
	unsigned in_flight; /* at its server when it was given the slot, itself among them */
	unsigned concurrency; /* of its queue, at that moment */
	uint64_t given_us; /* by the server's clock */
	int64_t reserved; /* of the budget's tokens, while it is held */
	uint64_t held_us; /* once it has left: how long */
	uint64_t waited_us[SLOT_WAIT_COUNT]; /* once it is held: how long for what; before that the queue's sums when it came */
};

/* So much in any `per_us`, all of it at once if need be; a larger one goes alone, and the next waits the longer. limit 0: no limit. */
struct slot_rate {
	int64_t limit, per_us;
	uint64_t full_us; /* when all of it is there again */
};

/* What may be used in a day. Whose day it is, and what was used in it, is the caller's to say, whenever that changes. A request goes when what it
 * may take at most fits beside what was used and what those in flight may take; without such a bound, and of time, when anything is left: then those in
 * flight may use more in the end. Those behind it wait with it. */
struct slot_budget {
	int64_t tokens_max, us_max; /* 0: no limit */
	int64_t tokens_spent, us_spent; /* in this day, by those that have left */
	int64_t tokens_reserved; /* for those in flight */
	uint64_t given_sum_us; /* of those in flight, when they were given their slots: their time under way is in_flight * now - this */
	uint64_t ends_us, look_us; /* by the queue's clock, the day is over, and somebody has to look whether it is; SLOT_NEVER: nobody said */
};

/* Of the day that it is: what was used in it, and how long from now on. */
struct slot_day {
	int64_t tokens, us;
	int64_t ends_in_us, look_in_us;
};

struct slot_queue {
	struct list link; /* in server->queues */
	struct slot_server *server;
	const char *model; /* borrowed; "": none is named */
	unsigned concurrency;
	bool open; /* false: its runtime cannot be asked now */
	struct slot_rate requests, tokens;
	struct slot_budget budget;
	uint64_t held_until_us; /* the runtime said so */
	struct list waiting[PRIORITY_COUNT], holding;
	unsigned levels; /* bit p: waiting[p] holds something */
	size_t waiting_count;
	unsigned in_flight;
	uint64_t given; /* slots, so far */
	enum slot_wait reason; /* why the first one waits, so all of them */
	uint64_t reason_since_us, reason_until_us; /* until: SLOT_NEVER when that is not known */
	uint64_t waited_us[SLOT_WAIT_COUNT];
};

struct slot_server {
	struct list queues;
	struct list solos; /* waiting slots of the solo lane */
	unsigned in_flight;
	uint64_t numbers;
	uint64_t given; /* slots, so far */
	char solo[SOLO_KEY_LEN_MAX]; /* the lane is kept for this key, who holds a slot has it; "": for nobody */
	bool solo_over; /* its last one was there */
	uint64_t solo_until_us;
	unsigned models_max; /* that it holds at once; 0: it does not matter */
	const char *loaded[MODELS_LOADED_MAX]; /* as far as we caused it; the one used last is last */
	size_t loaded_count;
	uint64_t last_us, offset_us; /* the clock, which is not to go backwards */
};

void slot_server_init(struct slot_server *server);
/* Every limit is set afterwards, in the struct. */
void slot_queue_init(struct slot_queue *queue, struct slot_server *server, const char *model);
void slot_queue_close(struct slot_queue *queue); /* nothing waits or is held */

/* now_us: any clock that counts microseconds. One that goes backwards is taken to stand still meanwhile. */
void slot_queue_add(struct slot_queue *queue, struct slot *slot, uint64_t now_us);
/* The next one, which holds its slot from now on; NULL: nobody may go now. Call it until then, and again after every change, and at *wake_us by
 * the same clock (SLOT_NEVER: not by time alone). */
struct slot *slot_server_next(struct slot_server *server, uint64_t now_us, uint64_t *wake_us);
void slot_queue_leave(struct slot_queue *queue, struct slot *slot, uint64_t now_us); /* gives it back, or leaves the queue; else nothing */
void slot_queue_hold(struct slot_queue *queue, int64_t for_us, uint64_t now_us); /* nobody goes for so long */
/* What was used in the day that it is, from now on: said before slot_server_next(), and whenever somebody has left. */
void slot_queue_set_spent(struct slot_queue *queue, const struct slot_day *day, uint64_t now_us);
/* It is known now that the prompt of a held one has so many tokens. False: the budget has no room for that now; the slot is held as before. */
bool slot_queue_reserve(struct slot_queue *queue, struct slot *slot, int64_t prompt_tokens);
/* Is it larger than the whole budget of tokens? Then it would wait for ever. */
bool slot_exceeds_budget(const struct slot_queue *queue, const struct slot *slot);
/* Held by those in flight so far. */
uint64_t slot_queue_under_way_us(const struct slot_queue *queue, uint64_t now_us);
void slot_server_end_solo(struct slot_server *server); /* nobody keeps the lane any more */
/* Held, or left: how many may have been in flight at its server at once meanwhile, so far? Of a queue that takes one at a time, and of the solo lane
 * without a width, 1 is a fact; else what the queue takes at once, and where other queues of the server came in between, what all of them take. */
unsigned slot_company_max(const struct slot *slot);
/* Milliseconds that the one waits which came first; 0: none waits. */
double slot_queue_oldest_ms(const struct slot_queue *queue, uint64_t now_us);
