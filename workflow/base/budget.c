/* See budget.h. */
#include "workflow/base/budget.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/spent.h"

/* --- amounts ------------------------------------------------------------------------------------------------------ */

static bool read_member(const struct json *json, const char *of, const char *name, int64_t max, int64_t *value, struct error *error)
{
	const struct json *member = json_get(json, name);

	*value = BUDGET_NONE;
	if (!member)
		return true;
	if (!json_is_integer(member) || member->number < 1 || member->number > (double)max) {
		error_set(error, ERR_INVALID, "%s.%s: expected a whole number from 1 to %" PRId64, of, name, max);
		return false;
	}
	*value = (int64_t)member->number;
	return true;
}

int budget_read(const struct json *json, const char *name, struct budget_amount *limit, struct error *error)
{
	int64_t seconds;

	*limit = BUDGET_UNLIMITED;
	if (!json_is(json, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "%s: expected {tokens, seconds}, at least one of them, found %s", name, json ? json_type_name(json->type) : "nothing");
	for (size_t i = 0; i < json->object.count; i++)
		if (strcmp(json->object.members[i].name, "tokens") != 0 && strcmp(json->object.members[i].name, "seconds") != 0)
			return error_set(error, ERR_INVALID, "%s: unknown member '%s'; it has tokens and seconds", name, json->object.members[i].name);
	if (!read_member(json, name, "tokens", BUDGET_TOKENS_MAX, &limit->tokens, error) || !read_member(json, name, "seconds", BUDGET_SECONDS_MAX, &seconds, error))
		return error->code;
	if (json_count(json) == 0)
		return error_set(error, ERR_INVALID, "%s: it has neither tokens nor seconds", name);
	limit->us = seconds == BUDGET_NONE ? BUDGET_NONE : seconds * BUDGET_US;
	return 0;
}

void budget_take(const struct json *json, struct budget_amount *limit)
{
	double tokens = json_get_number(json, "tokens", -1), seconds = json_get_number(json, "seconds", -1);

	if (tokens >= 0 && tokens <= (double)BUDGET_TOKENS_MAX)
		limit->tokens = (int64_t)tokens;
	if (seconds >= 0 && seconds <= (double)BUDGET_SECONDS_MAX)
		limit->us = llround(seconds * BUDGET_US);
}

void budget_spend(struct budget_amount *spent, const struct json *told)
{
	struct spent one;

	if (!told || !spent_read_any(told, &one))
		return;
	spent->tokens += one.tokens;
	spent->us += one.us;
}

struct json *budget_json(struct arena *arena, const struct budget_amount *amount)
{
	struct json *json = json_object(arena);

	if (amount->tokens != BUDGET_NONE)
		json_set_number(arena, json, "tokens", (double)amount->tokens);
	if (amount->us != BUDGET_NONE)
		json_set_number(arena, json, "seconds", (double)amount->us / BUDGET_US);
	return json;
}

bool budget_limits(const struct budget_amount *limit)
{
	return limit->tokens != BUDGET_NONE || limit->us != BUDGET_NONE;
}

int budget_bound(struct budget_amount *limit, const struct budget_amount *bound, struct error *error)
{
	if (bound->tokens != BUDGET_NONE && limit->tokens > bound->tokens)
		return error_set(error, ERR_INVALID, "budget.tokens: %" PRId64 " is more than the %" PRId64 " that a run may have here (limits.run.tokens of the configuration)", limit->tokens,
				 bound->tokens);
	if (bound->us != BUDGET_NONE && limit->us > bound->us)
		return error_set(error, ERR_INVALID, "budget.seconds: %" PRId64 " is more than the %" PRId64 " that a run may have here (limits.run.seconds of the configuration)",
				 limit->us / BUDGET_US, bound->us / BUDGET_US);
	budget_cap(limit, bound);
	return 0;
}

static int64_t lesser(int64_t limit, int64_t bound)
{
	return limit == BUDGET_NONE || (bound != BUDGET_NONE && bound < limit) ? bound : limit;
}

void budget_cap(struct budget_amount *limit, const struct budget_amount *bound)
{
	*limit = (struct budget_amount){lesser(limit->tokens, bound->tokens), lesser(limit->us, bound->us)};
}

/* --- the ledger --------------------------------------------------------------------------------------------------- */

static struct budget *above(const struct budget *budget)
{
	return budget->up ? budget->up->budget : NULL;
}

/* What a claim of this ledger holds or has used is another now, here and in all above. */
static void change(struct budget *budget, int64_t held, int64_t tokens, int64_t us)
{
	while (true) {
		budget->held += held;
		budget->used.tokens += tokens;
		budget->used.us += us;
		if (!budget->up)
			return;
		budget->up->held += held;
		budget->up->used.tokens += tokens;
		budget->up->used.us += us;
		budget = budget->up->budget;
	}
}

static int64_t tokens_used(const struct budget *budget)
{
	return budget->spent.tokens + budget->used.tokens;
}

static int64_t us_used(const struct budget *budget)
{
	return budget->spent.us + budget->used.us;
}

static bool lacks_time(const struct budget *budget)
{
	return budget->limit.us != BUDGET_NONE && us_used(budget) >= budget->limit.us;
}

static bool lacks_tokens(const struct budget *budget, int64_t tokens)
{
	return budget->limit.tokens != BUDGET_NONE && tokens_used(budget) + tokens > budget->limit.tokens;
}

/* held: by this one already, which does not count against itself. */
static enum budget_answer judge(const struct budget *budget, int64_t tokens, int64_t held)
{
	enum budget_answer answer = BUDGET_GRANTED;

	for (; budget; budget = above(budget)) {
		if (lacks_time(budget) || lacks_tokens(budget, tokens))
			return BUDGET_REFUSED;
		if (lacks_tokens(budget, tokens + budget->held - held))
			answer = BUDGET_WAITS;
	}
	return answer;
}

static void hold(struct budget_claim *claim, int64_t tokens)
{
	change(claim->budget, tokens - claim->held, 0, 0);
	claim->held = tokens;
}

/* Some claim waits in this ledger now, or none does any more: those above know it. */
static void note_waiting(struct budget *budget)
{
	for (struct budget *up; (up = above(budget)) != NULL; budget = up) {
		bool waits = !list_empty(&budget->waiting) || !list_empty(&budget->below);
		if (waits == !list_empty(&budget->beside))
			return;
		if (waits)
			list_add_last(&up->below, &budget->beside);
		else
			list_remove(&budget->beside);
	}
}

static void begin_waiting(struct budget_claim *claim, int64_t tokens)
{
	claim->wanted = tokens;
	list_add_last(&claim->budget->waiting, &claim->link);
	note_waiting(claim->budget);
}

static void end_waiting(struct budget_claim *claim)
{
	list_remove(&claim->link);
	note_waiting(claim->budget);
}

/* The first one that waits in this ledger or those below, and need not any more. */
static struct budget_claim *find_next(struct budget *budget, enum budget_answer *answer)
{
	if (!list_empty(&budget->waiting)) {
		struct budget_claim *claim = CONTAINER_OF(budget->waiting.next, struct budget_claim, link);
		*answer = judge(budget, claim->wanted, 0);
		if (*answer != BUDGET_WAITS)
			return claim;
	}
	LIST_EACH (link, &budget->below) {
		struct budget_claim *claim = find_next(CONTAINER_OF(link, struct budget, beside), answer);
		if (claim)
			return claim;
	}
	return NULL;
}

/* Something of this ledger was given back: whoever waits anywhere in its tree may be let in by that. */
static void wake(struct budget *budget)
{
	struct budget_claim *claim;
	enum budget_answer answer;

	while (above(budget))
		budget = above(budget);
	budget->holders++; /* what is called may let it go */
	while ((claim = find_next(budget, &answer)) != NULL) {
		end_waiting(claim);
		if (answer == BUDGET_GRANTED)
			hold(claim, claim->wanted);
		claim->on_turn(claim, answer == BUDGET_GRANTED);
	}
	budget_release(budget);
}

struct budget *budget_new(const char *run_id, const struct budget_amount *limit, const struct budget_amount *spent)
{
	struct budget *budget = memory_zero(sizeof *budget);

	budget->holders = 1;
	snprintf(budget->run_id, sizeof budget->run_id, "%s", run_id);
	budget->limit = *limit;
	budget->spent = *spent;
	list_init(&budget->waiting);
	list_init(&budget->below);
	list_init(&budget->beside);
	return budget;
}

void budget_release(struct budget *budget)
{
	if (!budget || --budget->holders > 0)
		return;
	CHECK(list_empty(&budget->waiting) && list_empty(&budget->below)); /* claims hold it */
	if (budget->up)
		budget->up->below = NULL;
	free(budget);
}

void budget_set(struct budget *budget, const struct budget_amount *limit, const struct budget_amount *spent)
{
	int64_t tokens = spent->tokens - budget->spent.tokens, us = spent->us - budget->spent.us;

	budget->limit = *limit;
	budget->spent = *spent;
	if (!budget->up)
		return;
	budget->up->used.tokens += tokens;
	budget->up->used.us += us;
	change(budget->up->budget, 0, tokens, us);
}

void budget_link(struct budget *budget, struct budget_claim *up)
{
	if (budget->up || !up->budget || up->below)
		return;
	/* It may have been linked before, and been out of memory meanwhile. */
	change(up->budget, budget->held - up->held, tokens_used(budget) - up->used.tokens, us_used(budget) - up->used.us);
	up->held = budget->held;
	up->used = (struct budget_amount){tokens_used(budget), us_used(budget)};
	budget->up = up;
	up->below = budget;
	note_waiting(budget);
}

/* NULL: there is none. */
static struct budget *unlink_below(struct budget_claim *claim)
{
	struct budget *below = claim->below;

	if (!below)
		return NULL;
	list_remove(&below->beside);
	note_waiting(claim->budget);
	below->up = NULL;
	claim->below = NULL;
	return below;
}

static int64_t rest(int64_t limit, int64_t used)
{
	return limit > used ? limit - used : 0;
}

struct budget_amount budget_left(const struct budget *budget)
{
	struct budget_amount left = BUDGET_UNLIMITED;

	for (; budget; budget = above(budget)) {
		int64_t tokens = rest(budget->limit.tokens, tokens_used(budget)), us = rest(budget->limit.us, us_used(budget));
		if (budget->limit.tokens != BUDGET_NONE && (left.tokens == BUDGET_NONE || tokens < left.tokens))
			left.tokens = tokens;
		if (budget->limit.us != BUDGET_NONE && (left.us == BUDGET_NONE || us < left.us))
			left.us = us;
	}
	return left;
}

/* --- claims ------------------------------------------------------------------------------------------------------- */

void budget_join(struct budget_claim *claim, struct budget *budget)
{
	*claim = (struct budget_claim){.budget = budget};
	list_init(&claim->link);
	if (budget)
		budget->holders++;
}

enum budget_answer budget_ask(struct budget_claim *claim, int64_t tokens)
{
	if (!claim->budget)
		return BUDGET_GRANTED;
	if (tokens < 1)
		tokens = 1; /* what it may use is not known; it is not nothing */
	else if (tokens > BUDGET_TOKENS_MAX)
		tokens = BUDGET_TOKENS_MAX + 1; /* fits into none */
	CHECK(list_empty(&claim->link));
	enum budget_answer answer = judge(claim->budget, tokens, claim->held);
	/* Who holds something may take more before others that hold nothing. */
	if (answer == BUDGET_GRANTED && claim->held == 0 && !list_empty(&claim->budget->waiting))
		answer = BUDGET_WAITS;
	if (answer == BUDGET_GRANTED) {
		hold(claim, tokens);
		return answer;
	}
	int64_t held = claim->held;
	hold(claim, 0);
	if (answer == BUDGET_WAITS)
		begin_waiting(claim, tokens);
	if (held > 0)
		wake(claim->budget);
	return answer;
}

void budget_explain(const struct budget_claim *claim, int64_t tokens, char *text, size_t size)
{
	const struct budget *refusing = claim->budget;

	for (const struct budget *at = claim->budget; at; at = above(at)) /* the outermost: there it is to be raised */
		if (lacks_time(at) || lacks_tokens(at, tokens < 1 ? 1 : tokens))
			refusing = at;
	const char *around = refusing == claim->budget ? "" : ", of which this one is a part,";
	if (lacks_time(refusing)) {
		snprintf(text, size, "run %s%s may use a runtime for %.6g seconds, and has for %.6g; give it more, as far as limits.run of the configuration allows, and go on: reprise retry %s --budget seconds=%" PRId64, refusing->run_id, around,
			 (double)refusing->limit.us / BUDGET_US, (double)us_used(refusing) / BUDGET_US, refusing->run_id, us_used(refusing) / BUDGET_US * 2 + 1);
		return;
	}
	int64_t wanted = tokens < 1 ? 1 : tokens;
	snprintf(text, size, "run %s%s may use %" PRId64 " tokens and has used %" PRId64 "; this call may take %s%" PRId64 "; give it more, as far as limits.run of the configuration allows, and go on: reprise retry %s --budget tokens=%" PRId64,
		 refusing->run_id, around, refusing->limit.tokens, tokens_used(refusing), tokens < 1 ? "any number from " : "", wanted, refusing->run_id,
		 tokens_used(refusing) * 2 + wanted);
}

void budget_withdraw(struct budget_claim *claim)
{
	if (!claim->budget)
		return;
	bool mattered = claim->held > 0 || !list_empty(&claim->link);
	end_waiting(claim);
	if (claim->below)
		return; /* its child's, which ends by itself */
	hold(claim, 0);
	if (mattered)
		wake(claim->budget);
}

/* Without a look at who waits. The ledger that hung below it, and stands alone now. */
static struct budget *count_as(struct budget_claim *claim, int64_t tokens, int64_t us)
{
	struct budget *below = unlink_below(claim);

	end_waiting(claim);
	change(claim->budget, -claim->held, tokens - claim->used.tokens, us - claim->used.us);
	claim->held = 0;
	claim->used = (struct budget_amount){tokens, us};
	return below;
}

void budget_settle(struct budget_claim *claim, int64_t tokens, int64_t us)
{
	if (!claim->budget)
		return;
	struct budget *budget = claim->budget, *below = count_as(claim, tokens, us);
	budget->holders++; /* what is called may let them go */
	if (below) {
		below->holders++;
		wake(below); /* whom it waited for above is nothing to it any more */
		budget_release(below);
	}
	wake(budget);
	budget_release(budget);
}

void budget_leave_folded(struct budget_claim *claim)
{
	struct budget *budget = claim->budget;

	if (!budget)
		return;
	count_as(claim, 0, 0);
	claim->budget = NULL;
	budget_release(budget);
}

void budget_go_on(struct budget *budget)
{
	if (budget)
		wake(budget);
}

void budget_leave(struct budget_claim *claim)
{
	struct budget *budget = claim->budget;

	if (!budget)
		return;
	budget_settle(claim, 0, 0);
	claim->budget = NULL;
	budget_release(budget);
}
