/* What a run may use of models: the limits that it was given, and the ledger of a run that is in memory.
 *
 * What a run has used follows from its entries (workflow/state.h). Between the moment a call is begun and the one at which its end is folded in, that is
 * not known there; so each attempt has a *claim* in its run's ledger: first what it may use at most (held), then what it did use. A call begins
 * if all of that together fits. One that does not fit for what others hold waits for their ends; one that could not fit without them is refused.
 * A child run that is awaited is its parent's claim: its ledger hangs below that, and what happens in it counts in every ledger above.
 *
 * Pure, but for the memory of a ledger. Thread: one at a time (the loop). New here? Read budget_ask(). */
#pragma once

#include "workflow/base/id.h"
#include "workflow/base/json.h"
#include "workflow/base/list.h"

/* The most that any budget allows: a run's, and a runtime's in a day. 10^12 tokens: sums of them stay exact in a JSON number. */
#define BUDGET_TOKENS_MAX INT64_C(1000000000000)
#define BUDGET_SECONDS_MAX INT64_C(1000000000)
enum { BUDGET_NONE = -1, BUDGET_US = 1000 * 1000 /* in a second */ };

/* Of limits: BUDGET_NONE, there is none. Tokens: of prompts and answers. us: microseconds in which a runtime's slot was held. */
struct budget_amount {
	int64_t tokens, us;
};
#define BUDGET_UNLIMITED ((struct budget_amount){BUDGET_NONE, BUDGET_NONE})

/* As people write it: {tokens?, seconds?}, at least one of them, whole numbers from 1 to the limits above. ERR_INVALID: which member, what it may be; name: what people call all of it. */
int budget_read(const struct json *json, const char *name, struct budget_amount *limit, struct error *error);
/* As entries have it, where 0 is possible, and parts of a second are: each member that is there replaces that of *limit. */
void budget_take(const struct json *json, struct budget_amount *limit);
void budget_spend(struct budget_amount *spent, const struct json *told); /* `spent` of an attempt's end (spent.h); NULL: nothing */
struct json *budget_json(struct arena *arena, const struct budget_amount *amount); /* {tokens?, seconds?}: without what is BUDGET_NONE */
bool budget_limits(const struct budget_amount *limit); /* anything at all */
/* What is asked for, and elsewhere the bound. ERR_INVALID where it is more: both numbers. */
int budget_bound(struct budget_amount *limit, const struct budget_amount *bound, struct error *error);

/* Nothing in it is more than the bound, which is its limit where it has none. */
void budget_cap(struct budget_amount *limit, const struct budget_amount *bound);

struct budget;
/* Of one attempt. Zero: it counts nowhere, and all that is done with it does nothing. */
struct budget_claim {
	struct list link; /* while it waits */
	struct budget *budget; /* held */
	struct budget *below; /* the ledger of the child that it stands for */
	/* It waited, and may go on as if budget_ask() had just said this. Called by whatever changes a ledger of its tree. */
	void (*on_turn)(struct budget_claim *claim, bool granted);
	int64_t wanted; /* while it waits */
	int64_t held;
	struct budget_amount used;
};

/* The ledger of one run. */
struct budget {
	unsigned holders; /* its run, and the claims in it */
	char run_id[ID_LEN_MAX + 1];
	struct budget_amount limit, spent; /* as the run's entries say; spent: what of it was folded in */
	struct budget_amount used; /* by claims, not folded in yet */
	int64_t held; /* tokens, by claims */
	struct list waiting; /* claims, first come, first served */
	/* Ledgers of children in which some claim waits, or anywhere below which one does, by `beside`: whoever looks for claims that may go on now sees these alone. */
	struct list below;
	struct list beside;
	struct budget_claim *up; /* the parent's claim that stands for this run; NULL: none that is known */
};

struct budget *budget_new(const char *run_id, const struct budget_amount *limit, const struct budget_amount *spent);
void budget_release(struct budget *budget); /* its run is gone from memory. NULL is allowed */
void budget_set(struct budget *budget, const struct budget_amount *limit, const struct budget_amount *spent); /* entries were folded in */
void budget_link(struct budget *budget, struct budget_claim *up); /* the run is a child for whose end that attempt of its parent waits */
struct budget_amount budget_left(const struct budget *budget); /* in it and all above; BUDGET_NONE: no limit */

void budget_join(struct budget_claim *claim, struct budget *budget); /* the attempt begins; NULL: its run has no budget */
/* May a call begin that uses so many tokens at most (as far as is known; at least one)? Instead of what the claim held before. BUDGET_WAITS: claim->on_turn
 * will be called, until budget_withdraw() or budget_leave(). */
enum budget_answer { BUDGET_GRANTED, BUDGET_WAITS, BUDGET_REFUSED };
enum budget_answer budget_ask(struct budget_claim *claim, int64_t tokens);
/* For people: which limit refuses it, how much is spent, what was wanted, what to do. */
void budget_explain(const struct budget_claim *claim, int64_t tokens, char *text, size_t size);
void budget_withdraw(struct budget_claim *claim); /* it neither waits nor holds */
void budget_settle(struct budget_claim *claim, int64_t tokens, int64_t us); /* the attempt has ended: so much was it */
void budget_leave(struct budget_claim *claim); /* nothing of it counts any more */
/* What it used has been folded in, by the budget_set() before this: it leaves. With several of one budget_set() nobody may look at the ledger before all
 * have left, since until then it is counted twice; so nobody who waits is asked before budget_go_on(). */
void budget_leave_folded(struct budget_claim *claim);
void budget_go_on(struct budget *budget); /* whoever waits in its tree and need not any more. NULL is allowed */
