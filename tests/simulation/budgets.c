/* Budgets of runs: when a call may begin, and what has to be true of that, counted here once more.
 *
 * What a run has spent is added up from its committed entries, what is under way from the attempts of the simulation. Between the two stands what has ended and is not
 * folded in yet (struct settled). Of some of it nobody outside can know whether the ledger still counts it: an answer whose task has been taken away, until the engine lets go
 * of it. So all is counted twice, without what is not certain (least) and with it (most): what is granted has to fit into the first, what is refused must not fit into
 * the second. Read check_answer(). */
#include "tests/simulation/simulation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHANCE_UNKNOWN = 250, CHANCE_COUNTED = 250, MARGIN_TOKENS = 600, REFUSED_WITHIN_US = 3000 };

/* An activity has ended, and its claim counts until its run has folded that in, or nobody waited for it. */
struct settled {
	struct list link;
	const struct activity *activity;
	const struct run_model *run;
	const struct step_model *step;
	unsigned attempt;
	struct budget_amount used;
	bool folded, dropped; /* its end is in the journal; or that of its task is, without it */
};

struct total {
	struct budget_amount least, most;
	int64_t held; /* tokens, of those that certainly hold them */
};

static void add(struct total *total, const struct budget_amount *amount, bool is_certain)
{
	total->most.tokens += amount->tokens;
	total->most.us += amount->us;
	if (!is_certain)
		return;
	total->least.tokens += amount->tokens;
	total->least.us += amount->us;
}

static void add_run(const struct world *world, const struct run_model *run, bool is_certain, struct total *total)
{
	add(total, &run->spent, is_certain);
	LIST_EACH (link, &world->settled) {
		const struct settled *settled = CONTAINER_OF(link, struct settled, link);
		if (settled->run == run && !settled->folded)
			add(total, &settled->used, is_certain && !settled->dropped);
	}
	LIST_EACH (link, &world->attempts) {
		const struct attempt *attempt = CONTAINER_OF(link, struct attempt, link);
		if (attempt->run != run)
			continue;
		if (is_certain && !attempt->cancelled)
			total->held += attempt->held;
		for (size_t i = 0; attempt->activity->kind == ACTIVITY_RUN && i < world->run_count; i++)
			if (world->runs[i]->up == attempt)
				add_run(world, world->runs[i], is_certain && !attempt->cancelled, total);
	}
}

static bool lacks(const struct budget_amount *limit, const struct budget_amount *used, int64_t wanted)
{
	return (limit->tokens != BUDGET_NONE && used->tokens + wanted > limit->tokens) || (limit->us != BUDGET_NONE && used->us >= limit->us);
}

/* Up through all runs around it that wait for one another: what the answer says has to follow from what they have used and hold. */
static void check_answer(const struct attempt *attempt, enum budget_answer answer, int64_t wanted)
{
	struct world *world = attempt->world;
	const struct budget *ledger = attempt->activity->claim.budget;
	bool certainly_lacks = false, certainly_waits = false, may_lack = false, is_certain = true;
	const char *step = attempt->activity->step_id;

	for (const struct run_model *run = attempt->run;;) {
		struct total total = {0};
		add_run(world, run, true, &total);
		struct budget_amount with_held = {total.least.tokens + total.held, 0};
		certainly_lacks |= is_certain && lacks(&run->budget, &total.least, wanted);
		certainly_waits |= is_certain && run->budget.tokens != BUDGET_NONE && lacks(&(struct budget_amount){run->budget.tokens, BUDGET_NONE}, &with_held, wanted);
		may_lack |= lacks(&run->budget, &total.most, wanted);
		int64_t tokens = ledger->spent.tokens + ledger->used.tokens, us = ledger->spent.us + ledger->used.us;
		if (strcmp(ledger->run_id, run->id) != 0)
			broken(world, run, "%s asks the ledger of run %s", step, ledger->run_id);
		if (tokens < total.least.tokens || tokens > total.most.tokens || us < total.least.us || us > total.most.us)
			broken(world, run, "its ledger has %" PRId64 " tokens and %" PRId64 " us, and not %" PRId64 " to %" PRId64 " and %" PRId64 " to %" PRId64, tokens, us, total.least.tokens,
			       total.most.tokens, total.least.us, total.most.us);
		if (!run->up)
			break;
		is_certain &= !run->up->cancelled;
		if (is_certain && (!ledger->up || ledger->up != &run->up->activity->claim))
			broken(world, run, "its ledger does not hang below that of the run that waits for it");
		if (!ledger->up)
			break;
		ledger = ledger->up->budget;
		run = run->up->run;
		world->counters.budget_shared++;
	}
	if (answer == BUDGET_GRANTED && (certainly_lacks || certainly_waits))
		broken(world, attempt->run, "%s may begin with %" PRId64 " tokens, which are not there", step, wanted);
	if (answer == BUDGET_REFUSED && !may_lack)
		broken(world, attempt->run, "%s may not begin with %" PRId64 " tokens, which are there", step, wanted);
	if (answer == BUDGET_WAITS && certainly_lacks)
		broken(world, attempt->run, "%s waits for %" PRId64 " tokens, which will never be there", step, wanted);
}

static void take_answer(struct attempt *attempt, enum budget_answer answer)
{
	struct world *world = attempt->world;
	int64_t wanted = attempt->wanted < 1 ? 1 : attempt->wanted;

	check_answer(attempt, answer, wanted);
	attempt->waits = answer == BUDGET_WAITS;
	switch (answer) {
	case BUDGET_GRANTED:
		attempt->held = wanted;
		attempt_go_on(attempt);
		break;
	case BUDGET_WAITS:
		world->counters.budget_waits++;
		break;
	case BUDGET_REFUSED:
		world->counters.budget_refused++;
		attempt->refused = true;
		attempt->spends = (struct spent){0};
		attempt_plan_end(attempt, random_below(&world->random, REFUSED_WITHIN_US));
		break;
	}
}

static void on_turn(struct budget_claim *claim, bool granted)
{
	struct attempt *attempt = CONTAINER_OF(claim, struct activity, claim)->work;

	if (attempt->world->is_dropping) /* nothing begins any more */
		return;
	if (!attempt->waits || attempt->cancelled)
		broken(attempt->world, attempt->run, "%s has its turn, but does not wait", attempt->activity->step_id);
	attempt->world->counters.budget_turns++;
	take_answer(attempt, granted ? BUDGET_GRANTED : BUDGET_REFUSED);
}

static void ask(struct attempt *attempt, int64_t wanted)
{
	attempt->wanted = wanted;
	attempt->held = 0; /* does not count against itself; and when others have their turn in here it holds nothing any more */
	attempt->waits = true;
	enum budget_answer answer = budget_ask(&attempt->activity->claim, wanted);
	take_answer(attempt, answer);
}

/* Its prompt is counted: it may be more than what let it in. */
void budgets_on_counted(struct attempt *attempt)
{
	attempt->is_counted = true;
	if (attempt->cancelled || attempt->interrupted)
		attempt_go_on(attempt);
	else
		ask(attempt, attempt->takes);
}

void budgets_begin(struct attempt *attempt)
{
	struct random random = {attempt->hash ^ 3};
	struct activity *activity = attempt->activity;

	if (!activity->claim.budget) {
		attempt_go_on(attempt);
		return;
	}
	bool is_unknown = random_chance(&random, CHANCE_UNKNOWN);
	attempt->counts_prompt = !is_unknown && random_chance(&random, CHANCE_COUNTED);
	attempt->takes = is_unknown ? 0 : attempt->spends.tokens + (int64_t)random_below(&random, MARGIN_TOKENS);
	activity->claim.on_turn = on_turn;
	ask(attempt, attempt->counts_prompt ? attempt->takes / 2 : attempt->takes);
}

/* Before its budget is asked for anything. */
void budgets_check_start(const struct attempt *attempt)
{
	const struct activity *activity = attempt->activity;
	struct run_model *run = attempt->run;
	const struct budget *ledger = activity->claim.budget;
	bool uses_models = activity->kind == ACTIVITY_INFERENCE || activity->kind == ACTIVITY_EXTRACT || activity->kind == ACTIVITY_GATE || activity->kind == ACTIVITY_RUN;

	if (run->parent_step && !run->up && budget_limits(&run->budget)) { /* whatever it starts, its ledger comes to hang below its parent's then */
		struct attempt *around = model_step((struct run_model *)run->parent, run->parent_step, false)->in_flight;
		if (around && !around->cancelled && around->activity->claim.budget && run->was_awaited)
			run->up = around;
	}
	if ((ledger != NULL) != (uses_models && budget_limits(&run->budget)))
		broken(attempt->world, run, "%s %s its run's ledger", activity->step_id, ledger ? "has a place in" : "is not in");
	if (!ledger)
		return;
	attempt->world->counters.budget_calls++;
	if (ledger->limit.tokens != run->budget.tokens || ledger->limit.us != run->budget.us || ledger->spent.tokens != run->spent.tokens || ledger->spent.us != run->spent.us)
		broken(attempt->world, run, "its ledger says %" PRId64 " of %" PRId64 " tokens, its entries %" PRId64 " of %" PRId64, ledger->spent.tokens, ledger->limit.tokens, run->spent.tokens,
		       run->budget.tokens);
}

/* Nobody waits for it any more, or the daemon stops. True: it waited for room, and ends by that. */
bool budgets_withdraw(struct attempt *attempt)
{
	if (!attempt->waits)
		return false;
	attempt->waits = false;
	attempt->cut_waiting = true;
	attempt->spends = (struct spent){0};
	budget_withdraw(&attempt->activity->claim);
	return true;
}

/* It is over, and no longer among the attempts; the engine hears of it next. */
void budgets_settle(const struct attempt *attempt)
{
	const struct activity *activity = attempt->activity;
	struct world *world = attempt->world;

	for (size_t i = 0; activity->kind == ACTIVITY_RUN && i < world->run_count; i++)
		if (world->runs[i]->up == attempt)
			world->runs[i]->up = NULL;
	if (!activity->claim.budget || attempt->cancelled || activity->result.failure == FAILURE_INTERRUPTED)
		return;
	struct settled *settled = memory_zero(sizeof *settled);
	*settled = (struct settled){.activity = activity, .run = attempt->run, .step = attempt->step, .attempt = activity->attempt,
				    .used = {activity->result.spent.tokens, activity->result.spent.us},
				    .dropped = attempt->step->ended || attempt->run->ended /* in the journal; the engine may not have heard of that yet, and counts it */};
	list_init(&settled->link);
	list_add_last(&world->settled, &settled->link);
}

/* The engine has let go of it. */
void budgets_forget(struct world *world, const struct activity *activity)
{
	LIST_EACH_SAFE (link, &world->settled) {
		struct settled *settled = CONTAINER_OF(link, struct settled, link);
		if (settled->activity != activity)
			continue;
		list_remove(&settled->link);
		free(settled);
	}
}

/* An entry about a step is in the journal. */
void budgets_note_step(struct world *world, struct run_model *run, const struct step_model *step, const struct entry *entry)
{
	bool ends_attempt = entry->kind == ENTRY_ATTEMPT_SUCCEEDED || entry->kind == ENTRY_ATTEMPT_FAILED;

	if (ends_attempt) {
		const struct json *spent = json_get(entry->data, "spent");
		run->spent.tokens += (int64_t)json_get_number(spent, "tokens", 0);
		run->spent.us += (int64_t)json_get_number(spent, "us", 0);
	}
	LIST_EACH (link, &world->settled) {
		struct settled *settled = CONTAINER_OF(link, struct settled, link);
		if (settled->step != step)
			continue;
		if (ends_attempt && settled->attempt == (unsigned)json_get_number(entry->data, "attempt", 0))
			settled->folded = true;
		else if (step->ended && !settled->folded)
			settled->dropped = true;
	}
}

/* run.created and run.retried: what is there from now on; the end: what it says of all. */
void budgets_note_run(struct world *world, struct run_model *run, const struct entry *entry)
{
	const struct json *budget = json_get(entry->data, "budget"), *spent = json_get(entry->data, "spent");

	if (entry->kind == ENTRY_RUN_CREATED || entry->kind == ENTRY_RUN_RETRIED) {
		if (entry->kind == ENTRY_RUN_CREATED)
			run->budget = BUDGET_UNLIMITED;
		if (json_get(budget, "tokens"))
			run->budget.tokens = (int64_t)json_get_number(budget, "tokens", 0);
		if (json_get(budget, "seconds"))
			run->budget.us = (int64_t)(json_get_number(budget, "seconds", 0) * BUDGET_US + 0.5);
		world->counters.budgets += entry->kind == ENTRY_RUN_CREATED && budget;
		world->counters.budgets_raised += entry->kind == ENTRY_RUN_RETRIED && budget;
		return;
	}
	if (json_get_number(spent, "tokens", 0) != (double)run->spent.tokens || json_get_number(spent, "us", 0) != (double)run->spent.us)
		broken(world, run, "its end says that it spent %.0f tokens and %.0f us, its attempts say %" PRId64 " and %" PRId64, json_get_number(spent, "tokens", 0), json_get_number(spent, "us", 0), run->spent.tokens,
		       run->spent.us);
}

static bool is_of_budget(const struct entry *entry)
{
	struct digest digest;
	struct arena arena;
	bool is = false;

	arena_init(&arena);
	for (size_t i = 0; json_get_digest(entry->data, "error", &digest) && i < entry->value_count; i++) {
		const struct json *error = digest_equal(&digest, &entry->values[i].digest) ? json_parse(&arena, entry->values[i].bytes, JSON_STORED, NULL, NULL) : NULL;
		const char *class = json_get_text(error, "class");
		is |= class && strcmp(class, failure_name(FAILURE_BUDGET)) == 0 && json_get_number(error, "status", 0) == 403;
	}
	arena_close(&arena);
	return is;
}

/* A call that a budget refused faults its task, at once and by that name; and the run document says what was spent. */
void budgets_check_ended(struct world *world, struct run_model *run, const struct entry *entries, size_t count, const struct json *view)
{
	const struct json *spent = json_get(view, "spent");

	for (size_t i = 0; i + 1 < count; i++) {
		const char *class = entries[i].kind == ENTRY_ATTEMPT_FAILED ? json_get_text(entries[i].data, "class") : NULL;
		if (!class || strcmp(class, failure_name(FAILURE_BUDGET)) != 0)
			continue;
		if (entries[i + 1].kind != ENTRY_TASK_FAULTED || strcmp(json_get_text(entries[i].data, "stepId"), json_get_text(entries[i + 1].data, "stepId")) != 0)
			broken(world, run, "%s goes on after its budget refused it", json_get_text(entries[i].data, "stepId"));
		if (entries[i + 1].value_count > 0 && !is_of_budget(&entries[i + 1]))
			broken(world, run, "%s does not say that its budget refused it", json_get_text(entries[i].data, "stepId"));
	}
	for (size_t i = 0; i < count; i++)
		world->counters.budget_ends += entries[i].kind == ENTRY_RUN_FAULTED && is_of_budget(&entries[i]);
	if (json_get_number(spent, "tokens", 0) != (double)run->spent.tokens)
		broken(world, run, "the run document says that %.0f tokens were spent, its entries %" PRId64, json_get_number(spent, "tokens", 0), run->spent.tokens);
}

/* Of a submission: perhaps some, sometimes too little. */
const struct budget_amount *budgets_choose(struct random *random, struct budget_amount *budget)
{
	*budget = BUDGET_UNLIMITED;
	if (!random_chance(random, 400))
		return NULL;
	if (random_chance(random, 750))
		budget->tokens = (int64_t)random_between(random, 2000, random_chance(random, 500) ? 20000 : 80000);
	if (budget->tokens == BUDGET_NONE || random_chance(random, 300))
		budget->us = (int64_t)random_between(random, 1, 40) * BUDGET_US;
	return budget;
}

/* Of a retry: mostly more than it has used. */
const struct budget_amount *budgets_raise(struct random *random, const struct run_model *run, struct budget_amount *budget)
{
	*budget = BUDGET_UNLIMITED;
	if (!budget_limits(&run->budget) || random_chance(random, 200))
		return NULL;
	if (run->budget.tokens != BUDGET_NONE)
		budget->tokens = run->spent.tokens + (int64_t)random_between(random, 1, 40000);
	if (run->budget.us != BUDGET_NONE)
		budget->us = (run->spent.us / BUDGET_US + (int64_t)random_between(random, 1, 30)) * BUDGET_US;
	return budget;
}
