/* What must hold, checked as it happens: when entries become durable, when an effect leaves, when a run has ended, and when
 * nothing is left to happen. All of it is told from committed entries, never from the engine's own state. */
#include "tests/simulation/simulation.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workflow/base/time.h"
#include "workflow/replay.h"
#include "workflow/retry.h"
#include "workflow/view.h"

enum { FOLD_ALWAYS = 48 }; /* runs up to so many entries are folded again at each commit, longer ones now and then */

void broken(struct world *world, const struct run_model *run, const char *format, ...)
{
	va_list arguments;

	printf("seed %" PRIu64 ": BROKEN after %" PRIu64 " events, %zu entries, %" PRIu64 " crashes: ", world->seed, world->counters.events,
	       world->journal.count, world->counters.crashes);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	if (run) {
		printf("run %s: created=%d acknowledged=%d ended=%d\n", run->id, run->created, run->acknowledged, run->ended);
		for (size_t i = 0; i < run->seq_count; i++)
			printf("%s\n", (const char *)world->journal.entries[run->seqs[i]].bytes.data);
	}
	printf("again: reprised-simulate --seed %" PRIu64 "\n", world->seed);
	fflush(stdout);
	_exit(1); /* The rest of this world is not worth taking apart. */
}

/* --- entries ------------------------------------------------------------------------------------------------------ */

struct step_model *model_step(struct run_model *run, const char *step_id, bool add)
{
	uint64_t hash = 0;

	for (const char *c = step_id; *c; c++)
		hash = random_mix(hash ^ (uint8_t)*c);
	struct step_model **slot = &run->steps[hash % STEP_SLOTS];
	for (struct step_model *step = *slot; step; step = step->next)
		if (strcmp(step->id, step_id) == 0)
			return step;
	if (!add)
		return NULL;
	struct step_model *step = memory_zero(sizeof *step);
	step->id = memory_text(step_id);
	step->next = *slot;
	*slot = step;
	return step;
}

static void check_fact(struct world *world, struct run_model *run, const struct entry *entry)
{
	struct digest payload;

	if (!json_get_digest(entry->data, "payload", &payload))
		broken(world, run, "a fact without a payload");
	if ((world->fact_count + 1) * 2 > world->fact_slots) {
		size_t slots = world->fact_slots ? world->fact_slots * 2 : 1024;
		struct digest *facts = memory_zero(slots * sizeof *facts);
		for (size_t i = 0; i < world->fact_slots; i++) {
			size_t at = 0;
			static const struct digest none;
			if (digest_equal(&world->facts[i], &none))
				continue;
			memcpy(&at, world->facts[i].bytes, sizeof at);
			for (at &= slots - 1; !digest_equal(&facts[at], &none);)
				at = (at + 1) & (slots - 1);
			facts[at] = world->facts[i];
		}
		free(world->facts);
		world->facts = facts;
		world->fact_slots = slots;
	}
	static const struct digest none;
	size_t at;
	memcpy(&at, payload.bytes, sizeof at);
	for (at &= world->fact_slots - 1; !digest_equal(&world->facts[at], &none); at = (at + 1) & (world->fact_slots - 1))
		if (digest_equal(&world->facts[at], &payload))
			broken(world, run, "a fact is recorded twice");
	world->facts[at] = payload;
	world->fact_count++;
	world->counters.facts++;
}

static void check_attempt_started(struct world *world, struct run_model *run, struct step_model *step, const struct entry *entry)
{
	unsigned attempt = (unsigned)json_get_number(entry->data, "attempt", 0);
	const char *key = json_get_text(entry->data, "key");
	struct arena arena;
	struct step_id id;
	char expected[DIGEST_HEX_LEN + 1];

	if (step->open)
		broken(world, run, "attempt %u of %s starts while attempt %u is under way", attempt, step->id, step->attempt);
	if (step->ended || !step->started)
		broken(world, run, "attempt %u of %s starts, but its task is not under way", attempt, step->id);
	if (attempt != step->attempt + 1)
		broken(world, run, "attempt %u of %s follows attempt %u", attempt, step->id, step->attempt);
	arena_init(&arena);
	CHECK(step_id_parse(&arena, step->id, &id));
	step_idempotency_key(run->id, &id, expected);
	arena_close(&arena);
	if (!key || strcmp(key, expected) != 0 || (step->key[0] && strcmp(key, step->key) != 0))
		broken(world, run, "attempt %u of %s has another idempotency key", attempt, step->id);
	snprintf(step->key, sizeof step->key, "%s", key);
	step->attempt = attempt;
	step->open = true;
	world->counters.retries += attempt > 1;
}

static void check_attempt_ended(struct world *world, struct run_model *run, struct step_model *step, const struct entry *entry)
{
	unsigned attempt = (unsigned)json_get_number(entry->data, "attempt", 0);
	const char *class = json_get_text(entry->data, "class");
	struct spent spent, told = step->spent;

	if (!step->open || step->attempt != attempt)
		broken(world, run, "attempt %u of %s ends, but is not under way", attempt, step->id);
	step->open = false;
	if (class && strcmp(class, failure_name(FAILURE_INTERRUPTED)) == 0)
		told = (struct spent){0};
	if (spent_read(json_get(entry->data, "spent"), &spent) != (told.runtime != NULL) || spent.tokens != told.tokens || spent.us != told.us)
		broken(world, run, "attempt %u of %s does not say what it spent", attempt, step->id);
	world->counters.spent += told.runtime != NULL;
	if (class && strcmp(class, failure_name(FAILURE_INTERRUPTED)) == 0) {
		world->counters.interruptions++;
		if (step->in_flight)
			broken(world, run, "attempt %u of %s is called interrupted while it is under way", attempt, step->id);
	} else if (class) {
		enum failure_class failure;
		if (!failure_parse(class, &failure))
			broken(world, run, "attempt %u of %s fails with an unknown class", attempt, step->id);
		step->must_retry = failure_may_retry(failure) && ++step->failures < step->allowed;
	}
}

/* The policy of the last answer, counted here once more. */
static void check_retry(struct world *world, struct run_model *run, struct step_model *step, const struct entry *entry)
{
	int64_t due, expected = entry->time_ms + retry_delay_ms(run->id, step->id, step->failures, step->floor_ms, step->cap_ms, step->after_ms);

	if (!step->must_retry)
		broken(world, run, "%s is tried again after %u failures, %u attempts are allowed", step->id, step->failures, step->allowed);
	if (!time_parse(json_get_text(entry->data, "due"), &due) || due != expected)
		broken(world, run, "%s is tried again at another time than its policy says", step->id);
	step->must_retry = false;
}

enum { LATE_US = 6000000 }; /* a disk may be full for three seconds, and what was decided before is committed only then */

static void read_time(struct world *world, const struct run_model *run, const struct entry *entry, const char *name, struct timer_model *timer)
{
	const char *text = json_get_text(entry->data, name);

	if (!text)
		return;
	if (!time_parse(text, &timer->due_ms))
		broken(world, run, "%s has a %s that is no time", entry_kind_name(entry->kind), name);
	int64_t left_ms = timer->due_ms - entry->time_ms;
	timer->at_us = world->now_us + (left_ms > 0 ? (uint64_t)left_ms * 1000 : 0);
	timer->boot = world->boot;
	/* Set forward between the decision, whose time the entry has, and its commit: then it is due as much earlier. */
	bool stepped = world->steps_forward > 0 && world_wall_ms(world) - entry->time_ms > LATE_US / 1000;
	timer->steps = stepped ? world->steps_forward - 1 : world->steps_forward;
}

/* Never early; and as soon as somebody is there to see it. */
static void check_fired(struct world *world, struct run_model *run, struct step_model *step, const struct entry *entry)
{
	const char *timer = json_get_text(entry->data, "timer");
	struct timer_model *due = !step ? &run->timeout : strcmp(timer, "timeout") == 0 ? &step->timeout : strcmp(timer, "attempt") == 0 ? &step->attempt_due : &step->due;

	if (step && (step->ended || !step->started))
		broken(world, run, "a timer of %s fires, but it is not under way", step->id);
	if (due->due_ms == 0 || entry->time_ms < due->due_ms)
		broken(world, run, "timer %s of %s fires before its time, or waits for none", timer, step ? step->id : "the run");
	/* Whatever the wall clock went through: so much time has to go by, and not much more. */
	if (due->steps == world->steps_forward && world->now_us + LATE_US < due->at_us)
		broken(world, run, "timer %s of %s fires %" PRIu64 " ms before so much time has gone by", timer, step ? step->id : "the run", (due->at_us - world->now_us) / 1000);
	if (due->boot == world->boot && !run->was_suspended && world->now_us > due->at_us + LATE_US)
		broken(world, run, "timer %s of %s fires %" PRIu64 " ms late", timer, step ? step->id : "the run", (world->now_us - due->at_us) / 1000);
	due->due_ms = 0;
	if (step)
		read_time(world, run, entry, "attemptDue", &step->attempt_due);
	world->counters.fired++;
}

/* Its id follows from the step that runs it: there can be no second one. */
static void check_child_created(struct world *world, struct run_model *run, const struct entry *entry)
{
	const struct json *parent = json_get(entry->data, "parent");
	const char *step_id = json_get_text(parent, "step");

	if (!parent)
		return;
	run->parent = world_run_model(world, json_get_text(parent, "run"));
	if (!run->parent || !run->parent->created)
		broken(world, run, "it is the child of a run that is not there");
	const struct step_model *step = model_step((struct run_model *)run->parent, step_id, false);
	if (!step || strlen(run->id) != CHILDREN_ID_LEN || strncmp(step->key, run->id, CHILDREN_ID_LEN) != 0)
		broken(world, run, "it is the child of a step that has another key");
	run->parent_step = memory_text(step_id);
	run->is_awaited = run->was_awaited = json_get_boolean(parent, "awaited", false);
	run->depth = (unsigned)json_get_number(parent, "depth", 0);
	if (run->depth != run->parent->depth + 1 || run->depth > RUN_DEPTH_MAX)
		broken(world, run, "it is at depth %u, its parent at %u", run->depth, run->parent->depth);
}

/* It goes on from another run's past, which has nothing of what comes later. */
static void check_forked(struct world *world, struct run_model *run, const struct entry *entry)
{
	const struct json *from = json_get(entry->data, "forkedFrom");

	if (!from)
		return;
	run->fork_of = world_run_model(world, json_get_text(from, "run"));
	run->fork_seq = (uint64_t)json_get_number(from, "seq", 0);
	run->detaches = strcmp(json_get_text(from, "children"), "detach") == 0;
	if (!run->fork_of || run->fork_seq <= run->fork_of->seqs[0] || run->fork_seq >= world->journal.count)
		broken(world, run, "it is forked of no run, or of none of its past");
	world->counters.forks++;
	world->counters.forks_of_open += !run->fork_of->ended;
}

/* Where something of it is under way, its end is still to come; what was cut off is entered again, under another number. */
static void check_carried(struct world *world, struct run_model *run, struct step_model *step, const struct entry *entry)
{
	const char *phase = json_get_text(entry->data, "phase");

	if (!run->fork_of)
		broken(world, run, "a run that is no fork carries something over");
	world->counters.carried++;
	if (!step || json_get_boolean(entry->data, "body", false))
		return;
	if (step->started || step->ended)
		broken(world, run, "%s is carried twice, or has begun", step->id);
	step->carried = step->started = true;
	step->ended = strcmp(phase, "running") != 0 && strcmp(phase, "waiting") != 0;
	step->last_event = (uint64_t)json_get_number(entry->data, "lastSeq", 0);
	step->due.due_ms = (int64_t)json_get_number(entry->data, "dueMs", 0);
	step->due.steps = UINT32_MAX; /* nobody knows when it was set */
}

void check_stored(struct world *world, struct run_model *run, const struct entry *entry)
{
	const char *step_id = json_get_text(entry->data, "stepId");
	bool is_body = json_get_boolean(entry->data, "body", false); /* of an iteration: no task's */
	struct step_model *step = step_id && !is_body ? model_step(run, step_id, true) : NULL;

	world->counters.checks++;
	if (!time_parse(json_get_text(entry->data, "wakes") ? json_get_text(entry->data, "wakes") : "", &run->wake_ms))
		run->wake_ms = 0;
	run->rested_ms = entry->time_ms;
	if (run->ended && entry->kind != ENTRY_RUN_RETRIED)
		broken(world, run, "%s after the run's end", entry_kind_name(entry->kind));
	if (run->created == (entry->kind == ENTRY_RUN_CREATED))
		broken(world, run, "%s: a run is created first, and once", entry_kind_name(entry->kind));
	if (run->suspended && (entry->kind == ENTRY_ATTEMPT_STARTED || entry->kind == ENTRY_TASK_STARTED || entry->kind == ENTRY_TIMER_FIRED || entry->kind == ENTRY_EVENT_CONSUMED ||
			       entry->kind == ENTRY_EVENT_EMITTED))
		broken(world, run, "%s while the run is suspended", entry_kind_name(entry->kind));
	switch (entry->kind) {
	case ENTRY_RUN_SUSPENDED:
	case ENTRY_RUN_RESUMED:
		if (run->suspended == (entry->kind == ENTRY_RUN_SUSPENDED))
			broken(world, run, "%s of a run that is so already", entry_kind_name(entry->kind));
		run->suspended = entry->kind == ENTRY_RUN_SUSPENDED;
		run->was_suspended = true;
		*(run->suspended ? &world->counters.pauses : &world->counters.resumes) += 1;
		break;
	case ENTRY_RUN_CREATED: {
		struct digest digest;
		run->created = true;
		check_child_created(world, run, entry);
		check_forked(world, run, entry);
		budgets_note_run(world, run, entry);
		read_time(world, run, entry, "timeout", &run->timeout);
		for (size_t i = 0; i < WORLD_DEFINITIONS; i++)
			if (json_get_digest(entry->data, "definition", &digest) && digest_equal(&digest, &world->definitions[i]->digest))
				run->definition = world->definitions[i];
		break;
	}
	case ENTRY_RUN_COMPLETED:
	case ENTRY_RUN_FAULTED:
	case ENTRY_RUN_CANCELLED:
	case ENTRY_RUN_KILLED:
		run->ended = true;
		run->ended_us = world->now_us;
		run->ended_by = entry->kind;
		budgets_note_run(world, run, entry);
		world->counters.ended++;
		for (size_t i = 0; i < STEP_SLOTS; i++)
			for (struct step_model *at = run->steps[i]; at; at = at->next)
				if (at->started && !at->ended)
					broken(world, run, "the run ends while %s is under way", at->id);
		if (entry->kind == ENTRY_RUN_FAULTED)
			world_plan_retry(world, run);
		world_plan_fork(world, run);
		break;
	case ENTRY_RUN_RETRIED:
		run->suspended = false; /* it may have failed while it was */
		if (!run->ended || run->ended_by != ENTRY_RUN_FAULTED)
			broken(world, run, "it is retried, but has not faulted");
		run->ended = run->is_awaited = false;
		run->retry_count++;
		budgets_note_run(world, run, entry);
		run->timeout.due_ms = 0;
		read_time(world, run, entry, "timeout", &run->timeout);
		world->counters.retried++;
		break;
	case ENTRY_TASK_RESUMED: /* its fault or cancellation does not count */
		if ((run->retry_count == 0 || !step->ended) && (!step->carried || step->ended))
			broken(world, run, "%s is resumed, but had not ended, nor was carried over", step->id);
		if (step->open || step->key[0])
			broken(world, run, "%s is resumed, but was no task with others in it that had ended", step->id);
		step->ended = false;
		step->timeout.due_ms = step->attempt_due.due_ms = 0;
		if (step->due.at_us < world->now_us) /* it goes on waiting for its next try, which may have been due while it had ended */
			step->due.at_us = world->now_us;
		read_time(world, run, entry, "timeout", &step->timeout);
		read_time(world, run, entry, "attemptDue", &step->attempt_due);
		world->counters.resumed++;
		break;
	case ENTRY_TASK_CARRIED:
		check_carried(world, run, step, entry);
		break;
	case ENTRY_TASK_STARTED:
		if (step->started || step->ended)
			broken(world, run, "%s starts twice", step->id);
		step->started = true;
		if (random_chance(&world->random, 20))
			world_plan_fork(world, run);
		read_time(world, run, entry, "due", &step->due);
		read_time(world, run, entry, "timeout", &step->timeout);
		read_time(world, run, entry, "attemptDue", &step->attempt_due);
		break;
	case ENTRY_TASK_COMPLETED:
	case ENTRY_TASK_FAULTED:
	case ENTRY_TASK_CANCELLED:
	case ENTRY_TASK_SKIPPED:
		if (step->ended)
			broken(world, run, "%s ends twice", step->id);
		if (step->open && entry->kind == ENTRY_TASK_COMPLETED)
			broken(world, run, "%s completes while attempt %u is under way", step->id, step->attempt);
		if (step->must_retry && entry->kind != ENTRY_TASK_CANCELLED)
			broken(world, run, "%s ends after %u failures, %u attempts are allowed", step->id, step->failures, step->allowed);
		step->started = step->ended = true;
		step->ended_us = world->now_us;
		step->open = false;
		break;
	case ENTRY_TASK_CAUGHT:
		if (step->ended || !step->started)
			broken(world, run, "%s catches, but is not under way", step->id);
		world->counters.caught++;
		break;
	case ENTRY_TIMER_FIRED:
		check_fired(world, run, step, entry);
		break;
	case ENTRY_TASK_RETRYING:
		if (step->open || step->ended || !step->started)
			broken(world, run, "%s waits for another attempt, but cannot", step->id);
		if (!json_get(entry->data, "error")) {
			check_retry(world, run, step, entry);
			break;
		}
		/* a try: the policy is the definition's, the oracle knows it */
		read_time(world, run, entry, "due", &step->due);
		if (step->due.due_ms <= entry->time_ms)
			broken(world, run, "%s is tried again at no time to come", step->id);
		world->counters.tries++;
		break;
	case ENTRY_ATTEMPT_STARTED:
		check_attempt_started(world, run, step, entry);
		break;
	case ENTRY_ATTEMPT_SUCCEEDED:
	case ENTRY_ATTEMPT_FAILED:
		check_attempt_ended(world, run, step, entry);
		break;
	case ENTRY_FACT_RECORDED:
		check_fact(world, run, entry);
		break;
	case ENTRY_EVENT_EMITTED:
		if (step->started || step->ended)
			broken(world, run, "%s emits, but has begun already", step->id);
		world->counters.emitted++;
		break;
	case ENTRY_EVENT_CONSUMED: {
		uint64_t seq = (uint64_t)json_get_number(entry->data, "eventSeq", 0);
		const struct sent *sent = events_find(world, seq);
		struct digest digest, was;
		if (step->ended || !step->started)
			broken(world, run, "%s consumes an event, but is not under way", step->id);
		if (!sent || seq <= step->last_event)
			broken(world, run, "%s consumes event %" PRIu64 ", which is none or not behind event %" PRIu64, step->id, seq, step->last_event);
		was = digest_of(sent->bytes);
		if (!json_get_digest(entry->data, "event", &digest) || !digest_equal(&digest, &was))
			broken(world, run, "%s consumes another event than the one at %" PRIu64, step->id, seq);
		step->last_event = seq;
		break;
	}
	default:
		broken(world, run, "%s is no entry of a run here", entry_kind_name(entry->kind));
	}
	if (step)
		budgets_note_step(world, run, step, entry);
}

/* --- the live state ----------------------------------------------------------------------------------------------- */

void check_committed(void *arg, const char *run_id, uint64_t seq_last, bool ended)
{
	struct world *world = arg;
	struct run_model *run = world_run_model(world, run_id);
	const struct state *live = engine_run_state(world->engine, run_id);

	if (run->seq_count == 0 || seq_last != run->seqs[run->seq_count - 1])
		broken(world, run, "entry %" PRIu64 " is called committed, which the store does not have as the run's last", seq_last);
	if (ended != run->ended)
		broken(world, run, "the run is said to be %s", ended ? "ended" : "open");
	if (!live)
		broken(world, run, "a run that was just committed is not in memory");
	if (run->seq_count > FOLD_ALWAYS && !random_chance(&world->random, 30))
		return;

	struct arena arena;
	struct state fold;
	struct error error = {0};
	size_t count;
	arena_init(&arena);
	const struct entry *entries = journal_entries(world, run, &arena, VALUE_INLINE_MAX, &count);
	state_init(&fold, run->definition);
	for (size_t i = 0; i < count; i++)
		if (workflow_apply(&fold, &entries[i], &error) != 0)
			broken(world, run, "the stored entries cannot be folded: %s", error.message);
	state_settle(&fold);
	struct digest a = state_digest(&fold), b = state_digest(live);
	if (!digest_equal(&a, &b))
		broken(world, run, "the state in memory is not the fold of the stored entries");
	if (state_next_deadline_ms(&fold) != state_next_deadline_ms(live) || state_is_idle(&fold) != state_is_idle(live))
		broken(world, run, "the state in memory waits for something else than the stored one");
	/* Counted once more, from the list: what is called waiting has nothing in flight of its own, and something that waits. */
	size_t busy = 0, waits = 0;
	LIST_EACH(link, &live->live) {
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		bool awaits = instance->in_flight && instance->waits_since_ms != 0;
		busy += instance->in_flight && !awaits;
		waits += awaits || instance->phase == INSTANCE_BACKING_OFF;
	}
	if (!run->ended && state_only_waits(live) != (busy == 0 && waits > 0))
		broken(world, run, "what is in flight and what waits was counted wrong");
	if (live->status == RUN_WAITING && (busy > 0 || waits == 0))
		broken(world, run, "it is called waiting with %zu attempts in flight and %zu tasks that wait", busy, waits);
	world->counters.waiting += live->status == RUN_WAITING;
	state_close(&fold);
	arena_close(&arena);
	world->counters.folds++;
}

/* --- effects ------------------------------------------------------------------------------------------------------ */

void check_start(struct world *world, const struct attempt *attempt)
{
	const struct activity *activity = attempt->activity;
	const struct run_model *run = attempt->run;
	const struct step_model *step = attempt->step;

	world->counters.checks++;
	if (world->stopping)
		broken(world, run, "%s starts while the daemon stops", activity->step_id);
	if (!step || !step->open || step->attempt != activity->attempt)
		broken(world, run, "attempt %u of %s leaves, but the journal does not say that it is under way", activity->attempt, activity->step_id);
	if (run->suspended)
		broken(world, run, "attempt %u of %s leaves while its run is suspended", activity->attempt, activity->step_id);
	if (step->ended || run->ended)
		broken(world, run, "attempt %u of %s leaves, but the journal says that its task has ended", activity->attempt, activity->step_id);
	if (step->in_flight)
		broken(world, run, "attempt %u of %s leaves while another one is in flight", activity->attempt, activity->step_id);
	if (strcmp(step->key, activity->idempotency_key) != 0)
		broken(world, run, "attempt %u of %s leaves with another key than the journal's", activity->attempt, activity->step_id);

	/* Iterations of each loop around it that have something in flight, this one included. */
	const struct task *loop = attempt->task;
	size_t depth = attempt->id.iteration_count;
	while (depth > 0) {
		loop = loop->parent;
		if (!task_is_loop(loop))
			continue;
		depth--;
		uint64_t seen[FOR_CONCURRENCY_MAX];
		size_t count = 0, limit = loop->concurrency ? loop->concurrency : 1;
		seen[count++] = attempt->id.iterations[depth];
		LIST_EACH(link, &world->attempts) {
			const struct attempt *other = CONTAINER_OF(link, struct attempt, link);
			if (other->run != run || other->cancelled || other->id.iteration_count <= depth ||
			    memcmp(other->id.iterations, attempt->id.iterations, depth * sizeof *seen) != 0)
				continue;
			const struct task *above = other->task;
			while (above && above != loop)
				above = above->parent;
			bool known = !above;
			for (size_t i = 0; i < count; i++)
				known |= seen[i] == other->id.iterations[depth];
			if (!known && count < COUNT_OF(seen))
				seen[count++] = other->id.iterations[depth];
		}
		if (count > limit)
			broken(world, run, "%zu iterations of %s are under way, %zu are allowed", count, loop->reference, limit);
	}
}

/* --- children ----------------------------------------------------------------------------------------------------- */

enum { CANCEL_WITHIN_US = 15000000 };

/* What a step that waited for a child has is what the child gave. */
static void check_children(struct world *world, struct run_model *run, const struct entry *entries, size_t count)
{
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < count; i++) {
		const struct entry *entry = &entries[i];
		const char *step_id = json_get_text(entry->data, "stepId");
		struct step_id id;
		const struct task *task = step_id && step_id_parse(&arena, step_id, &id) ? definition_find_task(run->definition, id.reference) : NULL;
		bool completed = entry->kind == ENTRY_TASK_COMPLETED, failed = entry->kind == ENTRY_ATTEMPT_FAILED && json_get(entry->data, "error");
		char child_id[CHILDREN_ID_LEN + 1];
		struct digest of_step, of_child;
		if (!task || task->function != FUNCTION_RUN || (!completed && !failed))
			continue;
		const struct step_model *step = model_step(run, step_id, false);
		if (run->detaches && step->carried && !step->key[0])
			continue;
		snprintf(child_id, sizeof child_id, "%.*s", CHILDREN_ID_LEN, step->key);
		const struct run_model *child = world_run_model(world, child_id);
		if (!child || !child->created)
			broken(world, run, "%s is over, but what it runs is not there", step_id);
		if (child->was_awaited != task->awaits || strcmp(child->parent_step, step_id) != 0 || child->parent != run)
			broken(world, run, "%s has a child of another step", step_id);
		if (!task->awaits || child->retry_count > 0) /* what was there when the parent looked is not its end any more */
			continue;
		if (!child->ended || (completed != (child->ended_by == ENTRY_RUN_COMPLETED)))
			broken(world, run, "%s %s, its child has ended otherwise", step_id, completed ? "has completed" : "has failed");
		size_t child_count;
		const struct entry *last = journal_entries(world, child, &arena, 0, &child_count) + child->seq_count - 1;
		const char *name = completed ? "output" : "error", *own = completed && json_get(entry->data, "raw") ? "raw" : name;
		if (child->ended_by != ENTRY_RUN_COMPLETED && child->ended_by != ENTRY_RUN_FAULTED)
			continue;
		if (!json_get_digest(entry->data, own, &of_step) || !json_get_digest(last->data, name, &of_child) || !digest_equal(&of_step, &of_child))
			broken(world, run, "%s has another %s than its child", step_id, name);
	}
	arena_close(&arena);
}

/* A child that nobody waits for any more is cancelled, whatever the daemon went through in the meantime. */
static void check_let_go(struct world *world, struct run_model *run)
{
	if (!run->is_awaited)
		return;
	const struct step_model *step = model_step((struct run_model *)run->parent, run->parent_step, false);
	bool cancelled = run->ended_by == ENTRY_RUN_CANCELLED || run->ended_by == ENTRY_RUN_KILLED;
	if (step->ended && !cancelled && run->ended_us > step->ended_us + CANCEL_WITHIN_US)
		broken(world, run, "its parent did not wait for it any more, but it went on for %" PRIu64 " ms", (run->ended_us - step->ended_us) / 1000);
}

/* --- ended runs --------------------------------------------------------------------------------------------------- */

/* {"journal": seed, "run", "definition", "entries": [{"entry", "values": [text, …]}, …]}, the values in the order of their places. */
static void keep_run(struct world *world, const struct run_model *run, const struct entry *entries, size_t count)
{
	struct arena arena;

	if (count > KEPT_ENTRIES_MAX || world->kept == KEPT_RUNS)
		return;
	arena_init(&arena);
	struct json *line = json_object(&arena), *list = json_array(&arena);
	json_set_number(&arena, line, "journal", (double)world->seed);
	json_set_text(&arena, line, "origin", world->journal.origin);
	json_set_text(&arena, line, "run", run->id);
	json_set(&arena, line, "definition", (struct json *)run->definition->document);
	for (size_t i = 0; i < count; i++) {
		struct json *one = json_object(&arena), *values = json_array(&arena);
		json_set(&arena, one, "entry", json_parse(&arena, world->journal.entries[run->seqs[i]].bytes, JSON_STORED, NULL, NULL));
		for (size_t k = 0; k < entries[i].value_count; k++)
			json_add(&arena, values, json_text_len(&arena, (const char *)entries[i].values[k].bytes.data, entries[i].values[k].bytes.len));
		json_set(&arena, one, "values", values);
		json_add(&arena, list, one);
	}
	json_set(&arena, line, "entries", list);
	struct bytes text = json_print_arena(line, &arena);
	if (text.len <= KEPT_BYTES_MAX) {
		fprintf(world->options.keep, "%s\n", (const char *)text.data);
		world->kept++;
	}
	arena_close(&arena);
}

/* A fork's entries, and before them those of the other run that are its past. */
static const struct entry *with_past(struct world *world, const struct run_model *run, struct arena *arena, const struct entry *entries, size_t count, size_t *all_count)
{
	size_t past_count, own_count;

	*all_count = count;
	if (!run->fork_of)
		return entries;
	const struct entry *own = journal_entries(world, run->fork_of, arena, UINT64_MAX, &own_count), *past = with_past(world, run->fork_of, arena, own, own_count, &past_count);
	while (past_count > 0 && past[past_count - 1].seq >= run->fork_seq)
		past_count--;
	struct entry *all = arena_alloc(arena, (past_count + count) * sizeof *all);
	memcpy(all, past, past_count * sizeof *all);
	memcpy(all + past_count, entries, count * sizeof *all);
	*all_count = past_count + count;
	return all;
}

void check_ended_run(struct world *world, struct run_model *run)
{
	struct arena arena;
	struct replay_result result;
	struct error error = {0};
	size_t count;
	const struct decide_context context = {world->journal.origin, "1.2.3", {NULL, NULL}};

	arena_init(&arena);
	const struct entry *entries = journal_entries(world, run, &arena, UINT64_MAX, &count);
	if (replay_run(&arena, entries, count, run->definition, &context, &result, &error) != 0)
		broken(world, run, "it cannot be replayed: %s", error.message);
	if (!result.equal)
		broken(world, run, "replay differs at entry %" PRIu64 " (%s): %s\nexpected %s\ngot      %s", result.seq, result.reference ? result.reference : "",
		       result.why, result.expected ? result.expected : "nothing", result.got ? result.got : "nothing");
	if (result.entries != count)
		broken(world, run, "replay compared %" PRIu64 " of %zu entries", result.entries, count);
	world->counters.replays++;

	static const char *const words[] = {[ENTRY_RUN_COMPLETED] = "completed", [ENTRY_RUN_FAULTED] = "faulted", [ENTRY_RUN_CANCELLED] = "cancelled",
					    [ENTRY_RUN_KILLED] = "cancelled"};
	const struct json *view = view_run(&arena, entries, count, run->definition, world->journal.origin, VIEW_ALL), *tasks = json_get(view, "tasks");
	if (strcmp(json_get_text(view, "status"), words[run->ended_by]) != 0)
		broken(world, run, "the run document says %s", json_get_text(view, "status"));
	for (size_t i = 0; i < json_count(tasks); i++) {
		const char *status = json_get_text(json_at(tasks, i), "status");
		if (strcmp(status, "running") == 0 || strcmp(status, "waiting") == 0)
			broken(world, run, "the run document says that %s is %s", json_get_text(json_at(tasks, i), "step"), status);
	}
	budgets_check_ended(world, run, entries, count, view);
	size_t all_count;
	const struct entry *all = with_past(world, run, &arena, entries, count, &all_count);
	oracle_check(world, run, &arena, all, all_count);
	if (world->options.keep)
		keep_run(world, run, entries, count);
	check_children(world, run, entries, count);
	check_let_go(world, run);
	if (run->ended_by == ENTRY_RUN_COMPLETED) {
		world->counters.completed++;
	} else if (run->ended_by == ENTRY_RUN_FAULTED) {
		world->counters.faulted++;
	} else {
		world->counters.cancelled++;
	}
	arena_close(&arena);
}

/* --- at the end ---------------------------------------------------------------------------------------------------- */

void check_rest(struct world *world)
{
	struct engine_counts counts;

	if (!list_empty(&world->attempts) || !list_empty(&world->settled))
		broken(world, NULL, "nothing is left to happen, but an activity is under way");
	for (size_t i = 0; i < world->run_count; i++) {
		const struct run_model *run = world->runs[i];
		if (run->acknowledged && !run->created)
			broken(world, run, "it was acknowledged and is lost");
		if (run->created && !run->ended)
			broken(world, run, "nothing is left to happen, but it has not ended (%s)", engine_run_is_open(world->engine, run->id) ? "the engine knows it" : "the engine has forgotten it");
	}
	events_check_rest(world);
	engine_counts(world->engine, &counts);
	if (counts.open != 0 || counts.in_flight != 0 || counts.committing != 0 || counts.quarantined != 0)
		broken(world, NULL, "at rest the engine counts open=%" PRIu64 " in flight=%" PRIu64 " committing=%" PRIu64 " failed=%" PRIu64, counts.open,
		       counts.in_flight, counts.committing, counts.quarantined);
	if (engine_next_deadline_ms(world->engine) != 0)
		broken(world, NULL, "at rest the engine waits for a deadline");
	for (size_t i = 0; i < world->run_count; i++)
		if (world->runs[i]->ended)
			check_ended_run(world, world->runs[i]);
	journal_check_deeply(world);
}
