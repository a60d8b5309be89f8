/* Whose turn it is: order, starvation, the solo lane, models, limits per time; on a clock that the test steps. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "activities/slot_queue.h"

enum { SLOTS_MAX = 400 };
static const uint64_t second = 1000 * 1000;

static struct slot_server server;
static struct slot_queue a, b;
static struct slot slots[SLOTS_MAX];
static size_t used;
static uint64_t now, wake;

static void begin(void)
{
	slot_server_init(&server);
	slot_queue_init(&a, &server, "model-a");
	slot_queue_init(&b, &server, "model-b");
	used = 0;
	now = 1000 * second;
}

static struct slot *ask_as(struct slot_queue *queue, unsigned priority, const char *solo, bool last)
{
	ck_assert_uint_lt(used, SLOTS_MAX);
	slots[used] = (struct slot){.priority = priority, .solo = solo, .solo_last = last};
	slot_queue_add(queue, &slots[used], now);
	return &slots[used++];
}

static struct slot *ask(struct slot_queue *queue)
{
	return ask_as(queue, PRIORITY_USUAL, NULL, false);
}

static struct slot *next(void)
{
	return slot_server_next(&server, now, &wake);
}

static void leave(struct slot *slot)
{
	slot_queue_leave(slot->queue, slot, now);
}

static void end(void)
{
	for (size_t i = 0; i < used; i++)
		leave(&slots[i]);
	ck_assert_uint_eq(server.in_flight, 0);
	ck_assert(list_empty(&server.solos));
	slot_queue_close(&a);
	slot_queue_close(&b);
	ck_assert(list_empty(&server.queues));
}

/* First come, first served, up to the concurrency; a slot that comes free goes to the next; one that left the queue is not served. */
START_TEST(in_the_order_of_arrival)
{
	begin();
	a.concurrency = 2;
	struct slot *one = ask(&a), *two = ask(&a), *three = ask(&a), *four = ask(&a), *five = ask(&a);
	ck_assert_ptr_eq(next(), one);
	ck_assert_ptr_eq(next(), two);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_TURN);
	ck_assert_uint_eq(wake, SLOT_NEVER);
	leave(three);
	ck_assert_uint_eq(a.waiting_count, 2);
	leave(two);
	ck_assert_ptr_eq(next(), four);
	ck_assert_ptr_null(next());
	a.concurrency = 3;
	ck_assert_ptr_eq(next(), five);
	end();
}
END_TEST

/* How many may have been in flight beside one is known of each, while it is and afterwards: what its queue takes, also where that changed, and
 * what all queues of the server take where another one came in between or was there before. */
START_TEST(company_is_known)
{
	begin();
	struct slot *alone = ask(&a);
	ck_assert_ptr_eq(next(), alone);
	ck_assert_uint_eq(slot_company_max(alone), 1);
	leave(alone);
	b.concurrency = 3;
	struct slot *one = ask(&a), *other = ask(&b);
	ck_assert_ptr_eq(next(), one);
	ck_assert_uint_eq(one->in_flight, 1);
	ck_assert_uint_eq(slot_company_max(one), 1);
	ck_assert_ptr_eq(next(), other);
	ck_assert_uint_eq(other->in_flight, 2);
	ck_assert_uint_eq(slot_company_max(alone), 1);
	ck_assert_uint_eq(slot_company_max(one), 4);
	leave(one);
	struct slot *later = ask(&b);
	ck_assert_ptr_eq(next(), later);
	ck_assert_uint_eq(slot_company_max(later), 3); /* its own queue's alone */
	ck_assert_uint_eq(slot_company_max(other), 4);
	leave(other);
	b.concurrency = 2;
	ck_assert_uint_eq(slot_company_max(later), 3); /* so many were let in with it */
	b.concurrency = 5;
	ck_assert_uint_eq(slot_company_max(later), 5);
	leave(later);
	ck_assert_uint_eq(slot_company_max(one), 6);
	struct slot *lane = ask_as(&b, PRIORITY_USUAL, "s", true);
	ck_assert_ptr_eq(next(), lane);
	ck_assert_uint_eq(slot_company_max(lane), 1);
	end();
}
END_TEST

/* The higher priority goes first, equal ones in the order of arrival. */
START_TEST(higher_priority_first)
{
	begin();
	struct slot *low = ask_as(&a, 0, NULL, false), *usual = ask(&a), *high = ask_as(&a, PRIORITY_MAX, NULL, false), *usual_too = ask(&a),
		    *high_too = ask_as(&a, PRIORITY_MAX, NULL, false);
	struct slot *expected[] = {high, high_too, usual, usual_too, low};

	for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
		ck_assert_ptr_eq(next(), expected[i]);
		ck_assert_ptr_null(next());
		leave(expected[i]);
	}
	end();
}
END_TEST

/* However many of a higher priority keep coming, one of the lowest waits for those of its first nine minutes and no others. */
START_TEST(nobody_waits_for_ever)
{
	begin();
	struct slot *running = ask(&a);
	ck_assert_ptr_eq(next(), running);
	struct slot *low = ask_as(&a, 0, NULL, false);
	uint64_t came = now;
	unsigned passed = 0;
	for (;;) {
		now += 10 * second;
		ask_as(&a, PRIORITY_MAX, NULL, false);
		leave(running);
		running = next();
		ck_assert_ptr_nonnull(running);
		if (running == low)
			break;
		passed++;
	}
	/* The one that comes at the end of that time ties with it, and goes after it. */
	ck_assert_uint_eq(passed, PRIORITY_MAX * PRIORITY_STEP_MS / 10000 - 1);
	ck_assert_uint_eq(now - came, (uint64_t)PRIORITY_MAX * PRIORITY_STEP_MS * 1000);
	end();
}
END_TEST

/* A measurement begins when nothing else is in flight at the server, whatever its runtime is called; nobody passes it meanwhile, nobody comes
 * between its requests, and those that came before the next measurement have their turn before it. */
START_TEST(solo_lane_is_alone_and_fair)
{
	begin();
	a.concurrency = b.concurrency = 4;
	struct slot *one = ask(&a), *other = ask(&b);
	ck_assert_ptr_eq(next(), one);
	ck_assert_ptr_eq(next(), other);
	struct slot *gate = ask_as(&a, PRIORITY_USUAL, "gate", false), *after = ask(&a), *after_too = ask(&b);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_SOLO);
	ck_assert_uint_eq(b.reason, SLOT_WAITS_SOLO);
	leave(one);
	ck_assert_ptr_null(next());
	leave(other);
	ck_assert_ptr_eq(next(), gate);
	ck_assert_ptr_null(next());
	struct slot *second_gate = ask_as(&b, PRIORITY_USUAL, "second", true);
	leave(gate);
	/* It is between two requests: the lane is kept. */
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(wake, now + (uint64_t)SOLO_LINGER_MS * 1000);
	struct slot *last = ask_as(&a, PRIORITY_USUAL, "gate", true);
	ck_assert_ptr_eq(next(), last);
	ck_assert_ptr_null(next());
	leave(last);
	ck_assert_ptr_eq(next(), after);
	ck_assert_ptr_eq(next(), after_too);
	ck_assert_ptr_null(next());
	leave(after);
	leave(after_too);
	ck_assert_ptr_eq(next(), second_gate);
	ck_assert_ptr_null(next());
	end();
}
END_TEST

/* Who does not come back within the time for which the lane is kept loses it. */
START_TEST(solo_lane_is_not_kept_for_ever)
{
	begin();
	struct slot *gate = ask_as(&a, PRIORITY_USUAL, "gate", false), *other = ask(&b);
	ck_assert_ptr_eq(next(), gate);
	leave(gate);
	ck_assert_ptr_null(next());
	now = wake - 1;
	ck_assert_ptr_null(next());
	now = wake;
	ck_assert_ptr_eq(next(), other);
	end();
}
END_TEST

/* A stream of ordinary requests does not keep a measurement waiting, nor one of a higher priority for longer than any other. */
START_TEST(solo_lane_does_not_starve)
{
	begin();
	a.concurrency = 2;
	struct slot *one = ask(&a), *two = ask(&a);
	ck_assert_ptr_eq(next(), one);
	ck_assert_ptr_eq(next(), two);
	struct slot *gate = ask_as(&a, 0, "gate", true), *running[] = {one, two};
	unsigned turns = 0;
	while (!gate->held) {
		ck_assert_uint_lt(turns, 120);
		now += 10 * second;
		ask_as(&a, PRIORITY_MAX, NULL, false);
		leave(running[turns % 2]);
		struct slot *given = next();
		if (given != NULL && given != gate)
			running[turns % 2] = given;
		turns++;
	}
	ck_assert_uint_ge(turns, PRIORITY_MAX * PRIORITY_STEP_MS / 10000);
	end();
}
END_TEST

/* A server that holds one model: those for it go first, MODEL_ROW_MAX of them, then the others; without that it would load one for each request. */
START_TEST(requests_are_grouped_by_model)
{
	unsigned loads = 0;

	for (unsigned grouped = 0; grouped < 2; grouped++) {
		begin();
		server.models_max = grouped;
		for (unsigned i = 0; i < 150; i++) {
			ask(&a);
			ask(&b);
		}
		const char *loaded = "";
		loads = 0;
		for (unsigned i = 0; i < 300; i++) {
			struct slot *slot = next();
			ck_assert_ptr_nonnull(slot);
			loads += loaded != slot->queue->model;
			loaded = slot->queue->model;
			if (grouped == 1 && i == MODEL_ROW_MAX) /* the first of a passed nobody */
				ck_assert_ptr_eq(slot->queue, &a);
			if (grouped == 1 && i == MODEL_ROW_MAX + 1)
				ck_assert_ptr_eq(slot->queue, &b);
			/* The other queue is not served beside it: that would load its model. */
			if (grouped == 1) {
				ck_assert_ptr_null(next());
				struct slot_queue *other = slot->queue == &a ? &b : &a;
				if (other->waiting_count > 0)
					ck_assert_uint_eq(other->reason, SLOT_WAITS_MODEL);
			}
			leave(slot);
		}
		end();
		if (grouped == 0)
			ck_assert_uint_eq(loads, 300);
	}
	ck_assert_uint_eq(loads, 3);
}
END_TEST

/* The one that needs another model is passed for MODEL_STAY_MS at most, and at once by nobody of a lower priority. */
START_TEST(models_are_changed_in_time)
{
	begin();
	server.models_max = 1;
	struct slot *first = ask(&a), *other = ask(&b), *passing = ask(&a), *late = ask(&a);
	ck_assert_ptr_eq(next(), first);
	ck_assert_ptr_null(next());
	leave(first);
	ck_assert_ptr_eq(next(), passing);
	now += (uint64_t)MODEL_STAY_MS * 1000;
	leave(passing);
	ck_assert_ptr_eq(next(), other);
	leave(other);
	ck_assert_ptr_eq(next(), late);
	struct slot *urgent = ask_as(&b, PRIORITY_USUAL + 1, NULL, false);
	ask(&a);
	leave(late);
	ck_assert_ptr_eq(next(), urgent);
	end();
}
END_TEST

/* Where more models fit, the ones that fit are served side by side. */
START_TEST(several_models_side_by_side)
{
	begin();
	server.models_max = 2;
	ask(&a);
	ask(&b);
	ck_assert_ptr_nonnull(next());
	ck_assert_ptr_nonnull(next());
	ck_assert_uint_eq(server.loaded_count, 2);
	end();
}
END_TEST

/* So many requests at once, then one whenever there is room for it again; others of the server go on. What it waited for is told. */
START_TEST(requests_per_time)
{
	begin();
	a.concurrency = b.concurrency = 100;
	a.requests = (struct slot_rate){.limit = 3, .per_us = (int64_t)(60 * second)};
	for (unsigned i = 0; i < 6; i++)
		ask(&a);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_ptr_eq(next(), &slots[i]);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_RATE);
	ck_assert_uint_eq(wake, now + 20 * second);
	struct slot *other = ask(&b);
	ck_assert_ptr_eq(next(), other);
	now += 20 * second - 1;
	ck_assert_ptr_null(next());
	now += 1;
	ck_assert_ptr_eq(next(), &slots[3]);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(wake, now + 20 * second);
	ck_assert_uint_eq(slots[3].waited_us[SLOT_WAITS_RATE], 20 * second);
	ck_assert_uint_eq(slots[3].waited_us[SLOT_WAITS_TURN], 0);
	/* Unused time is not saved up beyond the whole. */
	now += 3600 * second;
	for (unsigned i = 0; i < 3; i++)
		ask(&a);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_ptr_nonnull(next());
	ck_assert_ptr_null(next());
	end();
}
END_TEST

/* A slot with which nothing was asked gives its request back; one that was used does not. */
START_TEST(unasked_requests_do_not_count)
{
	begin();
	a.concurrency = 100;
	a.requests = (struct slot_rate){.limit = 2, .per_us = (int64_t)(60 * second)};
	for (unsigned i = 0; i < 5; i++)
		ask(&a);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_ptr_eq(next(), &slots[i]);
	ck_assert_ptr_null(next());
	slots[0].unasked = true;
	slot_queue_leave(&a, &slots[0], now);
	slot_queue_leave(&a, &slots[1], now);
	ck_assert_ptr_eq(next(), &slots[2]);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(wake, now + 30 * second);
	end();
}
END_TEST

/* Tokens count as what may be answered until it is known what was; one over the limit goes alone, and is paid for afterwards. */
START_TEST(tokens_per_time)
{
	begin();
	a.concurrency = 100;
	a.tokens = (struct slot_rate){.limit = 1000, .per_us = (int64_t)(100 * second)};
	struct slot *one = ask(&a), *two = ask(&a), *huge = ask(&a), *after = ask(&a);
	one->tokens = two->tokens = 600;
	huge->tokens = 5000;
	after->tokens = 100;
	ck_assert_ptr_eq(next(), one);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(wake, now + 20 * second);
	/* It was shorter than it might have been. */
	one->tokens_used = 100;
	leave(one);
	ck_assert_ptr_eq(next(), two);
	/* And one was longer: its prompt counts, too. */
	two->tokens_used = 900;
	leave(two);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(wake, now + 100 * second);
	now = wake;
	ck_assert_ptr_eq(next(), huge);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(wake, now + 410 * second);
	end();
}
END_TEST

static void spend(struct slot_queue *queue, int64_t tokens, int64_t us, uint64_t ends_in_us)
{
	slot_queue_set_spent(queue, &(struct slot_day){.tokens = tokens, .us = us, .ends_in_us = (int64_t)ends_in_us, .look_in_us = (int64_t)(ends_in_us < 60 * second ? ends_in_us : 60 * second)}, now);
}

/* A request goes when all that it may take fits beside what was used and what those in flight may take, to the token; one that does not fit waits for
 * the end of the day, or for less to be used than was reserved, and others of the server do not. */
START_TEST(tokens_of_a_day)
{
	begin();
	a.concurrency = b.concurrency = 100;
	a.budget.tokens_max = 1000;
	spend(&a, 100, 0, 7200 * second);
	struct slot *one = ask(&a), *two = ask(&a), *three = ask(&a), *other = ask(&b);
	one->tokens = 600;
	two->tokens = 301; /* one too many */
	three->tokens = 1;
	ck_assert_ptr_eq(next(), one);
	ck_assert_ptr_eq(next(), other);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_BUDGET);
	ck_assert_uint_eq(a.reason_until_us, now + 7200 * second);
	ck_assert_uint_eq(wake, now + 60 * second); /* the wall clock may be set */
	ck_assert_int_eq(a.budget.tokens_reserved, 600);
	/* It took one less than it might have. */
	leave(one);
	spend(&a, 699, 0, 7200 * second);
	ck_assert_ptr_eq(next(), two);
	ck_assert_ptr_null(next()); /* 699 and 301 are all */
	leave(two);
	spend(&a, 1000, 0, 7200 * second);
	ck_assert_ptr_null(next());
	now += 30 * second;
	spend(&a, 0, 0, 86400 * second); /* a new day */
	ck_assert_ptr_eq(next(), three);
	ck_assert_uint_eq(three->waited_us[SLOT_WAITS_BUDGET], 30 * second);
	leave(three);
	ck_assert_int_eq(a.budget.tokens_reserved, 0);
	end();
}
END_TEST

/* Of one that names no bound only what was used counts: it goes while anything is left, and what those in flight use too much is a debt. */
START_TEST(tokens_without_a_bound)
{
	begin();
	a.concurrency = 2;
	a.budget.tokens_max = 10;
	spend(&a, 9, 0, second);
	struct slot *one = ask(&a), *two = ask(&a), *three = ask(&a);
	ck_assert_ptr_eq(next(), one);
	ck_assert_ptr_eq(next(), two);
	leave(one);
	spend(&a, 10, 0, second);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_BUDGET);
	leave(two);
	spend(&a, 5000, 0, second);
	ck_assert_ptr_null(next());
	spend(&a, 9, 0, second);
	ck_assert_ptr_eq(next(), three);
	end();
}
END_TEST

/* Prompt and answer count together once the prompt is known, beforehand or while the slot is held; what no day has room for is known, too. */
START_TEST(prompts_count_in_the_budget)
{
	begin();
	a.concurrency = 2;
	a.budget.tokens_max = 1000;
	spend(&a, 0, 0, second);
	struct slot *one = ask(&a), *two = ask(&a);
	one->tokens = 400;
	two->tokens = 500;
	ck_assert_ptr_eq(next(), one);
	ck_assert(slot_queue_reserve(&a, one, 100));
	ck_assert_int_eq(a.budget.tokens_reserved, 500);
	ck_assert_ptr_eq(next(), two);
	ck_assert_int_eq(a.budget.tokens_reserved, 1000);
	ck_assert(!slot_queue_reserve(&a, two, 1));
	ck_assert_int_eq(a.budget.tokens_reserved, 1000);
	ck_assert(!slot_exceeds_budget(&a, two));
	/* With its prompt known it waits, until the first one leaves. */
	leave(two);
	slot_queue_add(&a, two, now);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_BUDGET);
	leave(one);
	ck_assert_ptr_eq(next(), two);
	ck_assert_int_eq(a.budget.tokens_reserved, 501);
	ck_assert(!slot_exceeds_budget(&a, &(struct slot){.tokens = 900, .prompt_tokens = 100}));
	ck_assert(slot_exceeds_budget(&a, &(struct slot){.tokens = 900, .prompt_tokens = 101}));
	ck_assert(slot_exceeds_budget(&a, &(struct slot){.tokens = INT64_MAX, .prompt_tokens = INT64_MAX}));
	ck_assert(!slot_exceeds_budget(&b, &(struct slot){.tokens = INT64_MAX}));
	a.budget.tokens_max = BUDGET_TOKENS_MAX;
	ck_assert(!slot_exceeds_budget(&a, &(struct slot){.tokens = BUDGET_TOKENS_MAX}));
	ck_assert(slot_exceeds_budget(&a, &(struct slot){.tokens = BUDGET_TOKENS_MAX + 1}));
	end();
}
END_TEST

/* Of time what was used and what is under way counts: at the limit nothing begins, and what has begun goes on. The clock of a day that is set back
 * takes nothing away. */
START_TEST(seconds_of_a_day)
{
	begin();
	a.concurrency = 3;
	a.budget.us_max = (int64_t)(10 * second);
	spend(&a, 0, (int64_t)(4 * second), 7200 * second);
	struct slot *one = ask(&a), *two = ask(&a), *three = ask(&a);
	ck_assert_ptr_eq(next(), one);
	ck_assert_ptr_eq(next(), two);
	leave(three);
	now += 3 * second - 1;
	ck_assert_uint_eq(slot_queue_under_way_us(&a, now), 6 * second - 2);
	struct slot *four = ask(&a), *five = ask(&a);
	ck_assert_ptr_eq(next(), four); /* 4 s and twice 3 s, but for two microseconds */
	leave(four);
	ck_assert_uint_eq(four->held_us, 0);
	now += 1;
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_BUDGET);
	leave(one);
	ck_assert_uint_eq(one->held_us, 3 * second);
	spend(&a, 0, (int64_t)(7 * second), 7200 * second);
	ck_assert_ptr_null(next());
	now -= 900 * second;
	ck_assert_uint_eq(slot_queue_under_way_us(&a, now), 3 * second);
	ck_assert_ptr_null(next());
	leave(two);
	spend(&a, 0, (int64_t)(10 * second) - 1, 7200 * second);
	ck_assert_ptr_eq(next(), five);
	leave(five);
	ck_assert_uint_eq(slot_queue_under_way_us(&a, now), 0);
	end();
}
END_TEST

/* A measurement counts and waits as all others do, and keeps its lane meanwhile. */
START_TEST(measurements_keep_to_the_budget)
{
	begin();
	a.budget.tokens_max = 100;
	spend(&a, 0, 0, second);
	struct slot *gate = ask_as(&a, PRIORITY_USUAL, "gate", false);
	gate->tokens = 60;
	ck_assert_ptr_eq(next(), gate);
	leave(gate);
	spend(&a, 60, 0, second);
	struct slot *again = ask_as(&a, PRIORITY_USUAL, "gate", true), *other = ask(&b);
	again->tokens = 41;
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_BUDGET);
	ck_assert_uint_eq(b.reason, SLOT_WAITS_SOLO);
	ck_assert_uint_eq(wake, now + second);
	spend(&a, 59, 0, second);
	ck_assert_ptr_eq(next(), again);
	leave(again);
	ck_assert_ptr_eq(next(), other);
	end();
}
END_TEST

/* Numbers at their limits neither overflow nor hold anybody for longer than a day. */
START_TEST(limits_stay_within_bounds)
{
	begin();
	a.concurrency = 100;
	a.tokens = (struct slot_rate){.limit = 1, .per_us = (int64_t)RATE_PER_MAX_MS * 1000};
	for (unsigned i = 0; i < 3; i++)
		ask(&a)->tokens = INT64_MAX;
	ck_assert_ptr_nonnull(next());
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(wake, now + (uint64_t)RATE_PER_MAX_MS * 1000);
	slots[0].tokens_used = 0;
	leave(&slots[0]);
	ck_assert_ptr_nonnull(next());
	end();
}
END_TEST

/* A clock that is set back stands still for the queue: nobody waits an hour since it leapt an hour. */
START_TEST(clock_goes_backwards)
{
	begin();
	a.concurrency = 100;
	a.requests = (struct slot_rate){.limit = 1, .per_us = (int64_t)(60 * second)};
	ask(&a);
	ask(&a);
	ck_assert_ptr_nonnull(next());
	now -= 900 * second;
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(wake, now + 60 * second);
	now = wake;
	ck_assert_ptr_eq(next(), &slots[1]);
	end();
}
END_TEST

/* A runtime that wants to be left alone is, and others of its server are not. */
START_TEST(retry_after_holds_the_queue)
{
	begin();
	slot_queue_hold(&a, (int64_t)(7 * second), now);
	slot_queue_hold(&a, (int64_t)(2 * second), now);
	struct slot *held = ask(&a), *other = ask(&b);
	ck_assert_ptr_eq(next(), other);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_RATE);
	ck_assert_uint_eq(a.reason_until_us, now + 7 * second);
	now += 7 * second;
	ck_assert_ptr_eq(next(), held);
	end();
}
END_TEST

/* So many of a measurement as it wants are in flight together, and no more than the runtime takes; the lane ends with the last of them. */
START_TEST(solo_lane_may_be_wide)
{
	begin();
	a.concurrency = 3;
	struct slot *gate[5];
	for (unsigned i = 0; i < 5; i++) {
		gate[i] = ask_as(&a, PRIORITY_USUAL, "gate", i == 4);
		gate[i]->solo_width = 4;
	}
	struct slot *other = ask(&b);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_ptr_eq(next(), gate[i]);
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_SOLO);
	leave(gate[1]);
	ck_assert_ptr_eq(next(), gate[3]);
	leave(gate[0]);
	ck_assert_ptr_eq(next(), gate[4]);
	leave(gate[4]);
	leave(gate[2]);
	ck_assert_ptr_null(next());
	leave(gate[3]);
	ck_assert_ptr_eq(next(), other);
	end();
}
END_TEST

/* A measurement that a limit or its runtime holds up keeps its lane: others between its requests would spoil it. */
START_TEST(limits_do_not_end_a_measurement)
{
	begin();
	a.requests = (struct slot_rate){.limit = 1, .per_us = (int64_t)(60 * second)};
	struct slot *gate = ask_as(&a, PRIORITY_USUAL, "gate", false);
	ck_assert_ptr_eq(next(), gate);
	leave(gate);
	struct slot *again = ask_as(&a, PRIORITY_USUAL, "gate", false), *other = ask(&b);
	now += 10 * second;
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_RATE);
	ck_assert_uint_eq(b.reason, SLOT_WAITS_SOLO);
	now = wake;
	ck_assert_ptr_eq(next(), again);
	leave(again);
	a.open = false;
	struct slot *third = ask_as(&a, PRIORITY_USUAL, "gate", true);
	ck_assert_ptr_null(next());
	now += 100 * second;
	ck_assert_ptr_null(next());
	ck_assert_uint_eq(a.reason, SLOT_WAITS_RUNTIME);
	ck_assert(slot_queue_oldest_ms(&a, now) == 100000);
	/* It gives up. */
	leave(third);
	ck_assert_ptr_eq(next(), other);
	end();
}
END_TEST

/* All that one waited for adds up to how long it waited. */
START_TEST(waiting_is_told_apart)
{
	begin();
	a.requests = (struct slot_rate){.limit = 2, .per_us = (int64_t)(60 * second)};
	struct slot *running = ask(&a);
	ck_assert_ptr_eq(next(), running);
	struct slot *slot = ask(&a), *third = ask(&a);
	ck_assert_ptr_null(next());
	now += 3 * second;
	a.open = false;
	ck_assert_ptr_null(next());
	now += 5 * second;
	a.open = true;
	leave(running);
	ck_assert_ptr_eq(next(), slot);
	leave(slot);
	ck_assert_ptr_null(next());
	now += 22 * second;
	ck_assert_ptr_eq(next(), third);
	ck_assert_uint_eq(slot->waited_us[SLOT_WAITS_TURN], 3 * second);
	ck_assert_uint_eq(slot->waited_us[SLOT_WAITS_RUNTIME], 5 * second);
	ck_assert_uint_eq(third->waited_us[SLOT_WAITS_RATE], 22 * second);
	ck_assert_uint_eq(third->waited_us[SLOT_WAITS_RATE] + third->waited_us[SLOT_WAITS_TURN] + third->waited_us[SLOT_WAITS_RUNTIME], 30 * second);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slot queue");
	TCase *tcase = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tcase, in_the_order_of_arrival);
	tcase_add_test(tcase, company_is_known);
	tcase_add_test(tcase, higher_priority_first);
	tcase_add_test(tcase, nobody_waits_for_ever);
	tcase_add_test(tcase, solo_lane_is_alone_and_fair);
	tcase_add_test(tcase, solo_lane_is_not_kept_for_ever);
	tcase_add_test(tcase, solo_lane_does_not_starve);
	tcase_add_test(tcase, solo_lane_may_be_wide);
	tcase_add_test(tcase, requests_are_grouped_by_model);
	tcase_add_test(tcase, models_are_changed_in_time);
	tcase_add_test(tcase, several_models_side_by_side);
	tcase_add_test(tcase, requests_per_time);
	tcase_add_test(tcase, tokens_per_time);
	tcase_add_test(tcase, unasked_requests_do_not_count);
	tcase_add_test(tcase, tokens_of_a_day);
	tcase_add_test(tcase, tokens_without_a_bound);
	tcase_add_test(tcase, prompts_count_in_the_budget);
	tcase_add_test(tcase, seconds_of_a_day);
	tcase_add_test(tcase, measurements_keep_to_the_budget);
	tcase_add_test(tcase, limits_stay_within_bounds);
	tcase_add_test(tcase, clock_goes_backwards);
	tcase_add_test(tcase, retry_after_holds_the_queue);
	tcase_add_test(tcase, limits_do_not_end_a_measurement);
	tcase_add_test(tcase, waiting_is_told_apart);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
