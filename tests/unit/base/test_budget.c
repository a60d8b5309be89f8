/* Tests of workflow/base/budget.c. */
#include "workflow/base/budget.h"

#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"
#include "workflow/base/spent.h"

SUITE_NO_ABORTS

static struct arena arena; /* of the test that runs: each is a process of its own */

static const struct json *parse(const char *text)
{
	struct error error = {0};
	const struct json *json = json_parse(&arena, bytes_text(text), JSON_STRICT, NULL, &error);

	ck_assert_msg(json != NULL, "%s: %s", text, error.message);
	return json;
}

/* A budget has whole numbers from 1 to its limits, at least one, and nothing else; what is not said is no limit. */
START_TEST(budgets_are_read)
{
	static const struct {
		const char *text;
		int64_t tokens, us;
	} good[] = {
		{"{\"tokens\":1}", 1, BUDGET_NONE}, {"{\"seconds\":1}", BUDGET_NONE, BUDGET_US}, {"{\"seconds\":1000000000,\"tokens\":1000000000000}", BUDGET_TOKENS_MAX, BUDGET_SECONDS_MAX * BUDGET_US},
	};
	static const struct {
		const char *text, *says;
	} bad[] = {
		{"null", "expected {tokens, seconds}"}, {"{}", "neither tokens nor seconds"}, {"{\"tokens\":0}", "budget.tokens"}, {"{\"tokens\":1.5}", "whole number"},
		{"{\"tokens\":\"1\"}", "budget.tokens"}, {"{\"tokens\":1000000000001}", "to 1000000000000"}, {"{\"seconds\":1000000001}", "to 1000000000"}, {"{\"seconds\":0}", "budget.seconds"},
		{"{\"tokens\":1,\"minutes\":1}", "'minutes'"}, {"{\"tokens\":1,\"seconds\":null}", "budget.seconds"},
	};
	struct budget_amount limit;
	struct error error = {0};

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(good); i++) {
		ck_assert_int_eq(budget_read(parse(good[i].text), "budget", &limit, &error), 0);
		ck_assert_int_eq(limit.tokens, good[i].tokens);
		ck_assert_int_eq(limit.us, good[i].us);
		ck_assert(json_equal(budget_json(&arena, &limit), parse(good[i].text)));
	}
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		ck_assert_int_eq(budget_read(parse(bad[i].text), i % 2 ? "--budget" : "budget", &limit, &error), ERR_INVALID);
		ck_assert_msg(strstr(error.message, bad[i].says) != NULL, "%s: %s", bad[i].text, error.message);
		ck_assert_int_eq(strncmp(error.message, "--", 2) == 0, i % 2); /* by the name that it has for people */
	}
	arena_close(&arena);
}
END_TEST

/* What entries say takes the place of what was before, member by member; parts of a second come back to the microsecond. */
START_TEST(entries_are_taken)
{
	struct budget_amount limit = BUDGET_UNLIMITED;
	const struct budget_amount odd = {0, 1234567891};

	arena_init(&arena);
	budget_take(NULL, &limit);
	ck_assert(!budget_limits(&limit));
	budget_take(parse("{\"tokens\":5}"), &limit);
	ck_assert(budget_limits(&limit));
	budget_take(budget_json(&arena, &odd), &limit);
	ck_assert_int_eq(limit.tokens, 0);
	ck_assert_int_eq(limit.us, odd.us);
	budget_take(parse("{\"seconds\":2}"), &limit);
	ck_assert_int_eq(limit.tokens, 0);
	ck_assert_int_eq(limit.us, 2 * BUDGET_US);

	struct budget_amount spent = {0};
	budget_spend(&spent, NULL);
	budget_spend(&spent, parse("{\"runtime\":\"m\",\"tokens\":3,\"us\":4}"));
	budget_spend(&spent, parse("{\"tokens\":30,\"us\":40}")); /* of a child */
	budget_spend(&spent, parse("{\"tokens\":-1,\"us\":40}"));
	ck_assert_int_eq(spent.tokens, 33);
	ck_assert_int_eq(spent.us, 44);
	arena_close(&arena);
}
END_TEST

/* As much as the bound may be asked for, one more may not, and what was not asked for is the bound. */
START_TEST(bounds_hold)
{
	const struct budget_amount bound = {100, 10 * BUDGET_US}, none = BUDGET_UNLIMITED;
	struct budget_amount limit = {100, BUDGET_NONE};
	struct error error = {0};

	ck_assert_int_eq(budget_bound(&limit, &bound, &error), 0);
	ck_assert_int_eq(limit.tokens, 100);
	ck_assert_int_eq(limit.us, bound.us);
	ck_assert_int_eq(budget_bound(&limit, &none, &error), 0);
	ck_assert_int_eq(limit.tokens, 100);
	limit.tokens = 101;
	ck_assert_int_eq(budget_bound(&limit, &bound, &error), ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "101 is more than the 100"));
	limit = (struct budget_amount){1, 11 * BUDGET_US};
	ck_assert_int_eq(budget_bound(&limit, &bound, &error), ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "11 is more than the 10"));
	budget_cap(&limit, &bound);
	ck_assert_int_eq(limit.tokens, 1);
	ck_assert_int_eq(limit.us, 10 * BUDGET_US);
}
END_TEST

static char turns[64];

static void on_turn(struct budget_claim *claim, bool granted)
{
	size_t len = strlen(turns);

	ck_assert_uint_lt(len + 2, sizeof turns);
	turns[len] = granted ? (char)('a' + claim->wanted % 26) : '-';
}

static struct budget *make(const char *id, int64_t tokens, int64_t us)
{
	const struct budget_amount limit = {tokens, us}, spent = {0};

	turns[0] = 0;
	memset(turns, 0, sizeof turns);
	return budget_new(id, &limit, &spent);
}

static void join(struct budget_claim *claim, struct budget *budget)
{
	budget_join(claim, budget);
	claim->on_turn = on_turn;
}

/* Tokens: to the last one, not one more; what an attempt holds counts as much as what is spent, and only what is spent refuses. */
START_TEST(tokens_to_the_last)
{
	struct budget *budget = make("r", 100, BUDGET_NONE);
	struct budget_claim a, b, c;
	char text[400];

	join(&a, budget);
	join(&b, budget);
	join(&c, budget);
	ck_assert_int_eq(budget_ask(&a, 60), BUDGET_GRANTED);
	ck_assert_int_eq(budget_ask(&b, 40), BUDGET_GRANTED);
	ck_assert_int_eq(budget_ask(&c, 101), BUDGET_REFUSED); /* whatever the others do */
	ck_assert_int_eq(budget_ask(&c, 1), BUDGET_WAITS);
	ck_assert_int_eq(budget_left(budget).tokens, 100);
	budget_settle(&a, 59, 7);
	ck_assert_str_eq(turns, "b"); /* one token is free, and it wanted one */
	budget_settle(&b, 40, 7);
	ck_assert_int_eq(budget_left(budget).tokens, 1);
	budget_settle(&c, 0, 0);
	ck_assert_int_eq(budget_ask(&c, 2), BUDGET_REFUSED);
	budget_explain(&c, 2, text, sizeof text);
	ck_assert_str_eq(text, "run r may use 100 tokens and has used 99; this call may take 2; give it more, as far as limits.run of the configuration allows, and go on: reprise retry r --budget tokens=200");
	/* Folded in: the same once more, not twice. */
	budget_set(budget, &(struct budget_amount){100, BUDGET_NONE}, &(struct budget_amount){99, 14});
	budget_leave(&a);
	budget_leave(&b);
	ck_assert_int_eq(budget_left(budget).tokens, 1);
	ck_assert_int_eq(budget_ask(&c, 1), BUDGET_GRANTED);
	budget_leave(&c);
	budget_release(budget);
}
END_TEST

/* Time: a call begins while less than the limit is spent; how long it takes is not known before. */
START_TEST(time_to_the_last)
{
	struct budget *budget = make("r", BUDGET_NONE, 1000);
	struct budget_claim a, b;
	char text[400];

	join(&a, budget);
	join(&b, budget);
	ck_assert_int_eq(budget_ask(&a, 0), BUDGET_GRANTED);
	budget_settle(&a, 5, 999);
	ck_assert_int_eq(budget_ask(&b, 0), BUDGET_GRANTED);
	budget_withdraw(&b);
	budget_settle(&a, 5, 1000);
	ck_assert_int_eq(budget_ask(&b, 0), BUDGET_REFUSED);
	budget_explain(&b, 0, text, sizeof text);
	ck_assert_ptr_nonnull(strstr(text, "for 0.001 seconds, and has for 0.001; give it more, as far as limits.run of the configuration allows, and go on: reprise retry r --budget seconds=1"));
	budget_leave(&a);
	budget_leave(&b);
	budget_release(budget);
}
END_TEST

/* Who waits goes in turn; one that is refused by what was spent meanwhile hears of it; a call of unknown size takes at least one token; who holds
 * may ask for more before those that wait, and gives up what it holds when that does not fit. */
START_TEST(waiting_in_turn)
{
	struct budget *budget = make("r", 100, BUDGET_NONE);
	struct budget_claim a, b, c, d;

	join(&a, budget);
	join(&b, budget);
	join(&c, budget);
	join(&d, budget);
	ck_assert_int_eq(budget_ask(&a, 90), BUDGET_GRANTED);
	ck_assert_int_eq(budget_ask(&b, 53), BUDGET_WAITS);
	ck_assert_int_eq(budget_ask(&c, 2), BUDGET_WAITS); /* there would be room, but it is not its turn */
	ck_assert_int_eq(budget_ask(&a, 95), BUDGET_GRANTED);
	ck_assert_str_eq(turns, "");
	budget_settle(&a, 60, 0);
	ck_assert_str_eq(turns, "-c"); /* 53 do not fit any more; 2 do */
	ck_assert_int_eq(budget_ask(&d, 38), BUDGET_GRANTED);
	ck_assert_int_eq(budget_ask(&b, 0), BUDGET_WAITS);
	ck_assert_int_eq(budget_ask(&d, 39), BUDGET_WAITS); /* with c's 2 too much: b has its turn at what d held, d is behind it */
	ck_assert_str_eq(turns, "-cb");
	budget_withdraw(&c);
	ck_assert_str_eq(turns, "-cbn"); /* 1 + 39 */
	budget_withdraw(&d);
	budget_leave(&a);
	budget_leave(&b);
	budget_leave(&c);
	budget_leave(&d);
	ck_assert_int_eq(budget->held + budget->used.tokens, 0);
	budget_release(budget);
}
END_TEST

/* What a child holds and uses counts above while it is under way, once, over its own folds and being out of memory, and until its parent has folded its end in;
 * whoever waits in one child has its turn by what another one gives back. */
START_TEST(children_share)
{
	struct budget *top = make("top", 100, BUDGET_NONE), *one = make("one", 100, BUDGET_NONE), *two = make("two", 100, BUDGET_NONE);
	struct budget_claim first, second, a, b, own;
	const struct budget_amount hundred = {100, BUDGET_NONE};
	char text[400];

	join(&first, top);
	join(&second, top);
	join(&own, top);
	budget_link(one, &first);
	budget_link(two, &second);
	join(&a, one);
	join(&b, two);
	ck_assert_int_eq(budget_ask(&a, 70), BUDGET_GRANTED);
	ck_assert_int_eq(budget_ask(&b, 31), BUDGET_WAITS);
	ck_assert_int_eq(budget_ask(&own, 40), BUDGET_WAITS);
	budget_settle(&a, 50, 9);
	ck_assert_str_eq(turns, "o"); /* its own 40 wait first; 31 not beside them */
	budget_set(one, &hundred, &(struct budget_amount){50, 9});
	budget_leave(&a);
	ck_assert_int_eq(first.used.tokens, 50);
	ck_assert_int_eq(top->used.tokens, 50);
	ck_assert_int_eq(budget_left(two).tokens, 50);
	budget_withdraw(&own);
	ck_assert_str_eq(turns, "of");
	budget_settle(&b, 20, 1);
	ck_assert_int_eq(budget_left(one).tokens, 30);
	budget_release(one); /* parked */
	ck_assert_int_eq(top->used.tokens, 70);
	one = budget_new("one", &hundred, &(struct budget_amount){50, 9});
	budget_link(one, &first);
	ck_assert_int_eq(top->used.tokens, 70);
	join(&a, one);
	ck_assert_int_eq(budget_ask(&a, 31), BUDGET_REFUSED);
	budget_explain(&a, 31, text, sizeof text);
	ck_assert_ptr_nonnull(strstr(text, "run top, of which this one is a part, may use 100 tokens and has used 70"));
	budget_leave(&a);
	budget_settle(&first, 50, 9); /* it has ended */
	ck_assert_ptr_null(one->up);
	budget_release(one);
	budget_set(top, &hundred, &(struct budget_amount){50, 9});
	budget_leave(&first);
	ck_assert_int_eq(budget_left(top).tokens, 30);
	budget_leave(&b);
	budget_leave(&second); /* called off: what it used is not known any more */
	budget_leave(&own);
	budget_release(two);
	ck_assert_int_eq(budget_left(top).tokens, 50);
	budget_release(top);
}
END_TEST

/* Whoever looks for those that may go on sees ledgers in which somebody waits, however many others hang there, and finds them at any depth; what a ledger waited for above is nothing to
 * it when it stands alone. */
START_TEST(only_those_that_wait_are_looked_at)
{
	enum { OTHERS = 50 };
	struct budget *top = make("top", 100, BUDGET_NONE), *middle = make("middle", 100, BUDGET_NONE), *inner = make("inner", 100, BUDGET_NONE), *others[OTHERS];
	struct budget_claim of_others[OTHERS], own, of_middle, of_inner, b;

	join(&own, top);
	for (size_t i = 0; i < OTHERS; i++) {
		join(&of_others[i], top);
		others[i] = make("other", 100, BUDGET_NONE);
		budget_link(others[i], &of_others[i]);
	}
	join(&of_middle, top);
	budget_link(middle, &of_middle);
	join(&of_inner, middle);
	join(&b, inner);
	ck_assert_int_eq(budget_ask(&own, 60), BUDGET_GRANTED);
	ck_assert(list_empty(&top->below));
	budget_link(inner, &of_inner);
	ck_assert_int_eq(budget_ask(&b, 41), BUDGET_WAITS);
	ck_assert_ptr_eq(top->below.next, &middle->beside);
	ck_assert_ptr_eq(top->below.prev, &middle->beside);
	ck_assert_ptr_eq(middle->below.next, &inner->beside);
	budget_withdraw(&b);
	ck_assert(list_empty(&top->below) && list_empty(&middle->below) && list_empty(&inner->beside));
	ck_assert_int_eq(budget_ask(&b, 41), BUDGET_WAITS);
	budget_withdraw(&own);
	ck_assert_str_eq(turns, "p");
	ck_assert(list_empty(&top->below));
	ck_assert_int_eq(b.held, 41);
	ck_assert_int_eq(budget_ask(&own, 50), BUDGET_GRANTED);
	ck_assert_int_eq(budget_ask(&b, 51), BUDGET_WAITS);
	budget_leave(&of_inner); /* the run in between does not wait for it any more */
	ck_assert(list_empty(&top->below) && list_empty(&middle->below));
	ck_assert_int_eq(b.held, 51);
	budget_leave(&b);
	budget_leave(&own);
	budget_leave(&of_middle);
	for (size_t i = 0; i < OTHERS; i++) {
		budget_leave(&of_others[i]);
		budget_release(others[i]);
	}
	budget_release(inner);
	budget_release(middle);
	budget_release(top);
}
END_TEST

/* What several attempts used that are folded in together is not counted twice in between: who waits for others goes on waiting, and goes when they end. */
START_TEST(folded_in_together)
{
	struct budget *budget = make("r", 100, BUDGET_NONE);
	struct budget_claim a, b, c, d;

	join(&a, budget);
	join(&b, budget);
	join(&c, budget);
	join(&d, budget);
	ck_assert_int_eq(budget_ask(&a, 30), BUDGET_GRANTED);
	ck_assert_int_eq(budget_ask(&b, 30), BUDGET_GRANTED);
	ck_assert_int_eq(budget_ask(&c, 20), BUDGET_GRANTED);
	ck_assert_int_eq(budget_ask(&d, 30), BUDGET_WAITS);
	budget_settle(&a, 30, 1);
	budget_settle(&b, 30, 1);
	budget_set(budget, &(struct budget_amount){100, BUDGET_NONE}, &(struct budget_amount){60, 2});
	budget_leave_folded(&a);
	budget_leave_folded(&b);
	budget_go_on(budget);
	ck_assert_str_eq(turns, "");
	ck_assert_int_eq(budget_left(budget).tokens, 40);
	budget_settle(&c, 5, 1);
	ck_assert_str_eq(turns, "e"); /* it wanted 30 */
	budget_settle(&d, 0, 0);
	/* One that was called off in between is not in `spent`: that makes room. */
	ck_assert_int_eq(budget_ask(&d, 36), BUDGET_REFUSED);
	budget_leave_folded(&c);
	budget_go_on(budget);
	ck_assert_int_eq(budget_ask(&d, 36), BUDGET_GRANTED);
	budget_leave(&d);
	budget_go_on(NULL);
	budget_release(budget);
}
END_TEST

/* A run without a budget lets everything pass. */
START_TEST(nothing_is_limited_without)
{
	struct budget_claim claim;

	budget_join(&claim, NULL);
	ck_assert_int_eq(budget_ask(&claim, INT64_MAX), BUDGET_GRANTED);
	budget_withdraw(&claim);
	budget_settle(&claim, 5, 5);
	budget_leave_folded(&claim);
	budget_leave(&claim);
	budget_release(NULL);
	ck_assert_int_eq(budget_left(NULL).tokens, BUDGET_NONE);
}
END_TEST

SUITE_MAIN("base-budget", budgets_are_read, entries_are_taken, bounds_hold, tokens_to_the_last, time_to_the_last, waiting_in_turn, children_share, only_those_that_wait_are_looked_at, folded_in_together, nothing_is_limited_without)
