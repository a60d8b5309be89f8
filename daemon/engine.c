/* See engine.h. Read run_advance(), then on_entries_committed(): the life of a run goes round between the two.
 *
 *                      ┌───────────────────── run_advance ◀──────────────────────────┐
 *   parked ─▶ loading ─▶ idle ─▶ deciding ─▶ (loading values, evaluating ─▶ deciding) ─▶ committing
 *      ▲                  │                                                                  │
 *      └──────────────────┘                                       postponed ◀────────────────┘ (disk full, queue full)
 */
#include "daemon/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/last_words.h"
#include "daemon/value_cache.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/log.h"
#include "workflow/base/packed.h"
#include "workflow/base/time.h"
#include "workflow/view.h"

enum run_stage { STAGE_PARKED, STAGE_LOADING, STAGE_IDLE, STAGE_LOADING_VALUES, STAGE_EVALUATING, STAGE_DECIDED, STAGE_COMMITTING, STAGE_POSTPONED, STAGE_BROKEN };

/* One trigger on its way to a decision. */
struct message {
	struct list link;
	enum trigger_kind kind;
	struct engine_submit *submit;
	struct engine_offer *offer;
	struct list controls; /* struct engine_control: several callers may wait for one */
	bool of_tree; /* what is decided waits for the other runs of the tree, and is appended with theirs */
	struct engine_retry *retry;
	struct engine_activity *activity;
	struct outcome outcome; /* ACTIVITY_DONE: made of the activity's result when it is decided */
};

/* An attempt under way. It outlives its run when the run ends first: `run` is NULL then. */
struct engine_activity {
	struct activity activity;
	struct engine *engine;
	struct run *run;
	struct arena arena; /* of the request */
	struct list of_run, of_engine;
	uint64_t handed_us, committed_us; /* of the append that holds attempt.started */
	uint64_t done_us; /* its result was there */
	bool told; /* what it used of a runtime, by an entry of its run */
	struct error refused; /* activity_start() said no: the outcome is made from this */
};

/* An entry of a run that cannot be decided: into quarantine, or ended by an operator all the same. */
struct verdict {
	struct run *run;
	struct arena arena;
	struct entry entry;
	struct store_append append;
	struct engine_control *control; /* who asked for its end; NULL: quarantine */
	bool is_waiting; /* there was no room: again at the deadline */
};

/* What a run is while it is in memory. */
struct run_live {
	struct definition *definition;
	struct state state;
	struct list inbox; /* struct message */
	size_t inbox_count;
	struct list deciding; /* struct message: those being decided or committed, in order; several only when all are ends of attempts */
	struct decision decision;
	struct store_append append;
	size_t extra_count;
	int64_t decided_ms; /* time of the triggers at hand: it stays while they are decided again; 0: not decided yet */
	struct engine_load_values load_values;
	struct engine_evaluate *evaluations; /* in the decision's arena; `evaluating` of them are not answered yet */
	size_t evaluating;
	unsigned rounds; /* of evaluations, for the triggers at hand */
	bool evaluation_busy;
	struct value_cache loaded; /* values and results of evaluations */
	struct buffer snapshot; /* on its way with the append at hand */
	uint64_t snapshot_entries; /* that the last one had in it */
	bool has_snapshot;
	int64_t last_ms; /* while it is loaded: time of the last entry so far */
	struct list activities; /* struct engine_activity */
	struct budget *budget; /* NULL: it may use what it likes; see sync_budget() */
	struct list submitting; /* in the engine's list, of a child that is not durable yet */
	/* Time (semantics.md 8), in microseconds since the run was created. */
	uint64_t created_us;
	struct interval_set active, queued;
	int64_t admission_us, journal_us, commit_us, sign_us;
	struct arena sums_arena;
	struct json *sums; /* of the attempts' stages */
};

/* Step ids of those whose port was told to listen: also while the run is parked, when events come through the same port. */
struct listeners {
	size_t count, cap;
	char *steps[];
};

/* What a run has while it is more than parked: made when it is first asked for, by more_of(). */
struct run_more {
	struct run *run;
	struct verdict *verdict; /* on its way; NULL: none */
	/* By how much the wall clock was set back while the run waited for something: for it that has not happened, its times go on. */
	int64_t ahead_ms;
	struct list waiting; /* in the engine's list of runs to load */
	struct list watches; /* struct engine_watch */
	struct list early; /* struct message: came while it was not loaded */
	struct engine_load_run *load;
	struct listeners *listeners; /* NULL: none */
};

/* All that a parked run has in memory: there may be a million of them. */
struct run {
	struct engine *engine;
	struct run *next; /* in its hash chain */
	struct run_live *live; /* NULL: parked, loading or broken */
	struct run_more *more; /* NULL: none; see more_of() */
	int64_t deadline_ms; /* on the wall clock as it stands now; 0: none */
	uint32_t heap_index; /* from 1; 0: not in the heap */
	uint8_t stage; /* enum run_stage */
	uint8_t tries; /* to load it, or to go on, that failed one after the other */
	bool restarted : 1; /* tell it so once it is loaded */
	bool advancing : 1; /* inside run_advance(): a callback that posts something leaves it to that */
	bool reopening : 1; /* it has ended, and is loaded to be retried: until that is committed it may be let go again */
	bool is_suspended : 1; /* as far as is durable; kept while it is parked */
	bool is_quarantined : 1; /* durably */
	bool is_held : 1, is_ready : 1; /* part of the tree that is dealt with; done with what the tree waits for */
	char id[];
};

struct ended_run {
	char id[ID_LEN_MAX + 1];
	char *summary; /* JSON */
};

struct engine {
	struct engine_config config;
	struct engine_ports ports;
	struct run **slots;
	size_t slot_count, run_count;
	struct run **heap; /* by deadline; heap[1] is the earliest */
	size_t heap_count, heap_cap;
	struct list to_load;
	size_t loading, evaluating;
	struct list activities; /* all under way */
	struct list trees; /* struct tree_work: the first is being dealt with */
	size_t tree_count;
	bool tree_turn; /* it goes on in the next turn of the loop */
	struct list submitting; /* struct run_live: children on their way into the journal */
	struct value_cache values;
	struct definition *definitions[ENGINE_DEFINITIONS_KEPT]; /* one use of each; NULL: none yet */
	size_t definitions_next;
	struct ended_run *ended;
	size_t ended_next;
	struct engine_counts counts;
	uint64_t seen_us; /* when both clocks were last looked at, and */
	int64_t seen_ms; /* … how the wall clock stood; 0: never */
	bool stopping;
};

static void run_advance(struct run *run);
static void load_next(struct engine *engine);
static void on_activity_done(struct activity *activity);
static void tree_step(struct engine *engine);
static void member_ready(struct run *run);
static void leave_tree(struct engine *engine, bool was_ready, const char *id, const struct error *error);
static bool restarts_first(const struct run *run);

static uint64_t now_us(const struct engine *engine)
{
	return engine->ports.now_us(engine->ports.arg);
}

static int64_t wall_ms(const struct engine *engine)
{
	return engine->ports.wall_ms(engine->ports.arg);
}

/* --- runs by id --------------------------------------------------------------------------------------------------- */

static size_t id_slot(const char *id, size_t slot_count)
{
	return text_hash(id) & (slot_count - 1);
}

static struct run *find_run(const struct engine *engine, const char *id)
{
	if (engine->slot_count == 0)
		return NULL;
	struct run *run = engine->slots[id_slot(id, engine->slot_count)];
	while (run && strcmp(run->id, id) != 0)
		run = run->next;
	return run;
}

static struct run *add_run(struct engine *engine, const char *id)
{
	if (engine->run_count >= engine->slot_count) {
		size_t slot_count = engine->slot_count ? engine->slot_count * 2 : 64;
		while (slot_count < engine->config.runs)
			slot_count *= 2;
		struct run **slots = memory_zero(slot_count * sizeof *slots);
		for (size_t i = 0; i < engine->slot_count; i++)
			for (struct run *run = engine->slots[i], *next; run; run = next) {
				size_t slot = id_slot(run->id, slot_count);
				next = run->next;
				run->next = slots[slot];
				slots[slot] = run;
			}
		free(engine->slots);
		engine->slots = slots;
		engine->slot_count = slot_count;
	}
	struct run *run = memory_zero(offsetof(struct run, id) + strlen(id) + 1);
	strcpy(run->id, id);
	run->engine = engine;
	size_t slot = id_slot(id, engine->slot_count);
	run->next = engine->slots[slot];
	engine->slots[slot] = run;
	engine->run_count++;
	return run;
}

static struct run_more *more_of(struct run *run)
{
	if (run->more)
		return run->more;
	struct run_more *more = run->more = memory_zero(sizeof *more);
	more->run = run;
	list_init(&more->waiting);
	list_init(&more->watches);
	list_init(&more->early);
	return more;
}

/* It is parked: nothing of it may be left but its times. */
static void forget_more(struct run *run)
{
	const struct run_more *more = run->more;

	if (!more || more->verdict || more->load || more->listeners || more->ahead_ms != 0 || !list_empty(&more->waiting) || !list_empty(&more->watches) || !list_empty(&more->early))
		return;
	free(run->more);
	run->more = NULL;
}

static int64_t ahead_of(const struct run *run)
{
	return run->more ? run->more->ahead_ms : 0;
}

static bool waits_for_load(const struct run *run)
{
	return run->more && !list_empty(&run->more->waiting);
}

static bool has_early(const struct run *run)
{
	return run->more && !list_empty(&run->more->early);
}

/* --- deadlines: a binary heap ------------------------------------------------------------------------------------- */

static void heap_put(struct engine *engine, size_t index, struct run *run)
{
	engine->heap[index] = run;
	run->heap_index = (uint32_t)index;
}

static void heap_sift_down(struct engine *engine, size_t index, struct run *run)
{
	for (size_t child; (child = index * 2) <= engine->heap_count; index = child) {
		if (child < engine->heap_count && engine->heap[child + 1]->deadline_ms < engine->heap[child]->deadline_ms)
			child++;
		if (engine->heap[child]->deadline_ms >= run->deadline_ms)
			break;
		heap_put(engine, index, engine->heap[child]);
	}
	heap_put(engine, index, run);
}

static void heap_sift(struct engine *engine, size_t index, struct run *run)
{
	while (index > 1 && engine->heap[index / 2]->deadline_ms > run->deadline_ms) {
		heap_put(engine, index, engine->heap[index / 2]);
		index /= 2;
	}
	heap_sift_down(engine, index, run);
}

static void set_deadline(struct run *run, int64_t deadline_ms)
{
	struct engine *engine = run->engine;

	if (run->deadline_ms == deadline_ms && (deadline_ms == 0) == (run->heap_index == 0))
		return;
	run->deadline_ms = deadline_ms;
	if (deadline_ms == 0) {
		if (run->heap_index == 0)
			return;
		size_t index = run->heap_index;
		run->heap_index = 0;
		struct run *last = engine->heap[engine->heap_count--];
		if (last != run)
			heap_sift(engine, index, last);
		return;
	}
	if (run->heap_index == 0) {
		if (engine->heap_count + 2 > engine->heap_cap) {
			engine->heap_cap = engine->heap_cap ? engine->heap_cap * 2 : 64;
			engine->heap = memory_resize(engine->heap, engine->heap_cap * sizeof *engine->heap);
		}
		heap_sift(engine, ++engine->heap_count, run);
	} else {
		heap_sift(engine, run->heap_index, run);
	}
}

/* --- clocks --------------------------------------------------------------------------------------------------------- */

static void set_ahead(struct run *run, int64_t ahead_ms)
{
	if (ahead_of(run) == ahead_ms)
		return;
	if (run->deadline_ms != 0)
		run->deadline_ms += ahead_of(run) - ahead_ms;
	more_of(run)->ahead_ms = ahead_ms;
}

/* A run that waits for a time or is being decided goes on in its own time when the clock is set back, so that what is due is neither late
 * nor, when it has come, before its time; and its times never go backwards. It keeps what it is ahead until it waits for nothing, or the
 * clock is set forward again. A step forward is nothing to a run that is not ahead: what is due then, is due. */
static void notice_clock(struct engine *engine)
{
	uint64_t us = now_us(engine);
	int64_t ms = wall_ms(engine), by_ms = engine->seen_ms == 0 ? 0 : ms - engine->seen_ms - (int64_t)((us - engine->seen_us) / 1000);
	bool moved = false;

	engine->seen_us = us;
	engine->seen_ms = ms;
	if (by_ms >= -ENGINE_CLOCK_SLACK_MS && by_ms <= ENGINE_CLOCK_SLACK_MS)
		return; /* slowed down or sped up, as time services do, or two clocks that are read one after the other */
	engine->counts.clock_steps++;
	for (size_t i = 0; i < engine->slot_count; i++)
		for (struct run *run = engine->slots[i]; run; run = run->next) {
			int64_t ahead_ms = ahead_of(run) - by_ms;
			bool rests = run->stage == STAGE_IDLE || (run->stage == STAGE_PARKED && !waits_for_load(run) && !has_early(run));
			if (by_ms < 0 && run->deadline_ms == 0 && rests)
				continue; /* it waits for no time */
			set_ahead(run, ahead_ms > 0 ? ahead_ms : 0);
			moved = true;
		}
	for (size_t i = engine->heap_count / 2; moved && i > 0; i--) /* not all have moved by the same */
		heap_sift_down(engine, i, engine->heap[i]);
	if (engine->ports.on_clock_stepped)
		engine->ports.on_clock_stepped(engine->ports.arg, by_ms);
}

/* What time it is for this run. */
static int64_t run_time_ms(struct run *run)
{
	notice_clock(run->engine);
	return wall_ms(run->engine) + ahead_of(run);
}

/* deadline_ms: in the run's own time; 0: none. What happened to the clock was noticed while the run was still at work. */
static void set_due(struct run *run, int64_t deadline_ms)
{
	set_deadline(run, deadline_ms == 0 ? 0 : deadline_ms - ahead_of(run));
}

int64_t engine_next_deadline_ms(const struct engine *engine)
{
	if (engine->tree_turn)
		return 1; /* long ago */
	return engine->heap_count > 0 ? engine->heap[1]->deadline_ms : 0;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static struct message *new_message(enum trigger_kind kind)
{
	struct message *message = memory_zero(sizeof *message);

	message->kind = kind;
	list_init(&message->link);
	list_init(&message->controls);
	return message;
}

static void free_activity(struct engine_activity *activity)
{
	list_remove(&activity->of_run);
	list_remove(&activity->of_engine);
	activity->engine->counts.in_flight--;
	budget_leave(&activity->activity.claim);
	activity->engine->ports.close_activity(activity->engine->ports.arg, &activity->activity);
	arena_close(&activity->arena);
	free(activity);
}

/* Nobody waits for it, so no entry of its run says what it used, and it is used all the same. */
static void tell_spent(struct engine_activity *activity)
{
	const struct engine_ports *ports = &activity->engine->ports;

	if (activity->activity.result.spent.runtime && !activity->told && ports->on_spent)
		ports->on_spent(ports->arg, &activity->activity);
}

/* The message is dealt with: tell who waits for it. */
static void finish_message(struct message *message, const struct error *error)
{
	if (message->activity) {
		tell_spent(message->activity); /* it ended in the moment in which it was called off */
		free_activity(message->activity);
	}
	if (message->offer) {
		message->offer->error = *error;
		message->offer->on_done(message->offer);
	}
	if (message->submit) {
		message->submit->error = *error;
		message->submit->on_done(message->submit);
	}
	if (message->retry) {
		message->retry->error = *error;
		message->retry->on_done(message->retry);
	}
	while (!list_empty(&message->controls)) {
		struct engine_control *control = CONTAINER_OF(message->controls.next, struct engine_control, link);
		list_remove(&control->link);
		control->error = *error;
		control->on_done(control);
	}
	free(message);
}

static void post(struct run *run, struct message *message, bool first)
{
	struct list *inbox = run->live ? &run->live->inbox : &more_of(run)->early;

	if (first)
		list_add_first(inbox, &message->link);
	else
		list_add_last(inbox, &message->link);
	if (run->live)
		run->live->inbox_count++;
	if (run->stage == STAGE_PARKED && !waits_for_load(run)) {
		list_add_last(&run->engine->to_load, &more_of(run)->waiting);
		load_next(run->engine);
	}
}

static bool is_control(enum trigger_kind kind)
{
	return kind == TRIGGER_CANCEL || kind == TRIGGER_PAUSE || kind == TRIGGER_RESUME;
}

/* An operator waits for it: so it is loaded also while the daemon drains. */
static bool has_control(const struct run *run)
{
	const struct list *inbox = run->live ? &run->live->inbox : run->more ? &run->more->early : NULL;

	return run->is_held || (inbox && !list_empty(inbox) && is_control(CONTAINER_OF(inbox->next, struct message, link)->kind));
}

/* Past all others that wait to be loaded. */
static void load_first(struct run *run)
{
	list_remove(&more_of(run)->waiting);
	list_add_first(&run->engine->to_load, &more_of(run)->waiting);
	load_next(run->engine);
}

/* The control lane: an end goes before everything, the others before everything but what an operator asked for earlier. */
static void post_control(struct run *run, struct engine_control *control)
{
	struct list *inbox = run->live ? &run->live->inbox : &more_of(run)->early, *before = inbox;
	enum trigger_kind kind = control->verb == CONTROL_PAUSE ? TRIGGER_PAUSE : control->verb == CONTROL_RESUME ? TRIGGER_RESUME : TRIGGER_CANCEL;
	struct message *same = NULL;

	list_init(&control->link);
	LIST_EACH(link, inbox) {
		struct message *waiting = CONTAINER_OF(link, struct message, link);
		if (waiting->kind == TRIGGER_RETRY || waiting->kind == TRIGGER_RESTARTED) { /* before it there is nothing to control; what that finds in flight is of the time before the start */
			before = link;
			continue;
		}
		if (!is_control(waiting->kind))
			break;
		same = waiting->kind == kind ? waiting : NULL;
		if (kind == TRIGGER_CANCEL)
			break; /* it stands first */
		before = link;
	}
	if (same) { /* one is enough for all who ask */
		list_add_last(&same->controls, &control->link);
		return;
	}
	struct message *message = new_message(kind);
	list_add_last(&message->controls, &control->link);
	list_add_first(before, &message->link); /* behind it: a list's head is before its first */
	if (run->live)
		run->live->inbox_count++;
	if (run->stage == STAGE_PARKED)
		load_first(run);
}

/* --- a run in memory ---------------------------------------------------------------------------------------------- */

static struct run_live *live_new(struct run *run, struct definition *definition)
{
	struct run_live *live = memory_zero(sizeof *live);

	live->definition = definition;
	definition->use_count++;
	state_init(&live->state, definition);
	list_init(&live->inbox);
	list_init(&live->deciding);
	list_init(&live->activities);
	list_init(&live->submitting);
	value_cache_init(&live->loaded, 0);
	buffer_init(&live->snapshot, ENGINE_SNAPSHOT_MAX);
	arena_init(&live->sums_arena);
	live->sums = json_object(&live->sums_arena);
	while (has_early(run)) {
		struct list *link = run->more->early.next;
		list_remove(link);
		list_add_last(&live->inbox, link);
		live->inbox_count++;
	}
	run->live = live;
	return live;
}

static void release_definition(struct definition *definition)
{
	CHECK(definition->use_count > 0);
	if (--definition->use_count == 0)
		definition_free(definition);
}

static void live_free(struct run *run)
{
	struct run_live *live = run->live;

	if (!live)
		return;
	while (!list_empty(&live->activities)) {
		struct engine_activity *activity = CONTAINER_OF(live->activities.next, struct engine_activity, of_run);
		list_remove(&activity->of_run);
		activity->run = NULL;
	}
	list_remove(&live->submitting);
	decision_close(&live->decision);
	value_cache_clear(&live->loaded);
	buffer_close(&live->snapshot);
	state_close(&live->state);
	interval_close(&live->active);
	interval_close(&live->queued);
	arena_close(&live->sums_arena);
	release_definition(live->definition);
	budget_release(live->budget);
	free(live);
	run->live = NULL;
}

static void forget_listeners(struct run *run)
{
	struct listeners *listeners = run->more ? run->more->listeners : NULL;

	if (!listeners)
		return;
	if (run->engine->ports.unlisten)
		run->engine->ports.unlisten(run->engine->ports.arg, run->id, NULL);
	while (listeners->count > 0)
		free(listeners->steps[--listeners->count]);
	free(listeners);
	run->more->listeners = NULL;
}

/* error: what those hear who still wait for something of it; ERR_NONE when the run has ended durably. */
static void free_run(struct run *run, const struct error *error)
{
	struct engine *engine = run->engine;
	struct run **link = &engine->slots[id_slot(run->id, engine->slot_count)];

	set_deadline(run, 0);
	forget_listeners(run);
	struct run_more *more = more_of(run);
	if (more->verdict && more->verdict->control) { /* the daemon goes away */
		more->verdict->control->error = *error;
		more->verdict->control->on_done(more->verdict->control);
	}
	if (more->verdict) {
		arena_close(&more->verdict->arena);
		free(more->verdict);
	}
	list_remove(&more->waiting);
	while (*link != run)
		link = &(*link)->next;
	*link = run->next;
	engine->run_count--;
	struct list rest;
	list_init(&rest);
	list_move_all(&rest, &more->early);
	if (run->live)
		list_move_all(&rest, &run->live->inbox);
	live_free(run);
	struct list watches;
	list_init(&watches);
	list_move_all(&watches, &more->watches);
	free(more);
	bool was_held = run->is_held, was_ready = run->is_ready;
	char id[ID_LEN_MAX + 1];
	snprintf(id, sizeof id, "%s", run->id);
	free(run);
	/* The run is gone from memory and from the table: callbacks may do as they please. */
	while (!list_empty(&rest)) {
		struct message *message = CONTAINER_OF(rest.next, struct message, link);
		list_remove(&message->link);
		finish_message(message, error);
	}
	while (!list_empty(&watches)) {
		struct engine_watch *watch = CONTAINER_OF(watches.next, struct engine_watch, link);
		list_remove(&watch->link);
		watch->on_ended(watch);
	}
	if (was_held)
		leave_tree(engine, was_ready, id, error);
}

/* --- the run document, summary part ------------------------------------------------------------------------------- */

static struct json *stages_json(const struct run_live *live, struct arena *arena)
{
	struct json *stages = json_copy(arena, live->sums);

	json_set_number(arena, stages, "admission", (double)live->admission_us);
	json_set_number(arena, stages, "journal", json_get_number(stages, "journal", 0) + (double)live->journal_us);
	json_set_number(arena, stages, "commit", (double)live->commit_us);
	json_set_number(arena, stages, "sign", (double)live->sign_us);
	return stages;
}

static int64_t since_created(const struct run_live *live, uint64_t us)
{
	return us > live->created_us ? (int64_t)(us - live->created_us) : 0;
}

static struct json *summary_json(const struct run *run, struct arena *arena)
{
	const struct run_live *live = run->live;
	const struct definition *definition = live->definition;
	struct json *json = json_object(arena), *workflow = json_object(arena);
	char text[DIGEST_TEXT_LEN + 1], time[TIME_TEXT_LEN + 1];

	json_set_text(arena, json, "id", run->id);
	json_set_text(arena, workflow, "namespace", definition->namespace);
	json_set_text(arena, workflow, "name", definition->name);
	json_set_text(arena, workflow, "version", definition->version);
	digest_text(&definition->digest, text);
	json_set_text(arena, workflow, "digest", text);
	json_set(arena, json, "workflow", workflow);
	if (live->state.parent_run)
		json_set(arena, json, "parent", view_parent(arena, live->state.parent_run, live->state.parent_step));
	if (live->state.forked_from)
		json_set(arena, json, "forkedFrom", view_forked_from(arena, json_parse(arena, bytes_text(live->state.forked_from), JSON_STORED, NULL, NULL)));
	json_set_text(arena, json, "status", run_status_name(live->state.status));
	if (live->state.killed)
		json_set_text(arena, json, "reason", "killed");
	struct json *error = NULL;
	if (live->state.error && live->state.error->bytes.data)
		error = json_parse(arena, live->state.error->bytes, JSON_STORED, NULL, NULL);
	json_set(arena, json, "error", error ? error : json_null(arena));
	time_text(live->state.created_ms, time);
	json_set_text(arena, json, "createdAt", time);
	json_set_text(arena, json, "startedAt", time);
	if (live->state.ended_ms) {
		time_text(live->state.ended_ms, time);
		json_set_text(arena, json, "endedAt", time);
	}
	if (live->state.retry_count > 0)
		json_set_number(arena, json, "retries", live->state.retry_count);
	view_set_budget(arena, json, &live->state.budget, &live->state.spent);
	json_set(arena, json, "overhead",
		 view_overhead(arena, since_created(live, now_us(run->engine)), &live->active, &live->queued, stages_json(live, arena)));
	return json;
}

static void keep_ended(struct run *run)
{
	struct engine *engine = run->engine;
	struct arena arena;

	if (!engine->ended)
		engine->ended = memory_zero(ENGINE_ENDED_KEPT * sizeof *engine->ended);
	arena_init(&arena);
	struct ended_run *ended = &engine->ended[engine->ended_next++ % ENGINE_ENDED_KEPT];
	free(ended->summary);
	snprintf(ended->id, sizeof ended->id, "%s", run->id);
	ended->summary = memory_text((const char *)json_print_arena(summary_json(run, &arena), &arena).data);
	arena_close(&arena);
}

struct json *engine_run_json(const struct engine *engine, const char *id, struct arena *arena)
{
	const struct run *run = find_run(engine, id);

	if (run)
		return run->live && run->stage != STAGE_LOADING && run->live->state.entry_count > 0 ? summary_json(run, arena) : NULL;
	/* The newest first: it is the one that is asked for. */
	for (size_t i = 1; engine->ended && i <= ENGINE_ENDED_KEPT && i <= engine->ended_next; i++) {
		const struct ended_run *ended = &engine->ended[(engine->ended_next - i) % ENGINE_ENDED_KEPT];
		if (strcmp(ended->id, id) == 0)
			return json_parse(arena, bytes_text(ended->summary), JSON_STORED, NULL, NULL);
	}
	return NULL;
}

void engine_each_activity(const struct engine *engine, const char *id, bool (*tell)(void *arg, const struct activity *activity), void *arg)
{
	const struct run *run = find_run(engine, id);

	if (!run || !run->live)
		return;
	LIST_EACH(link, &run->live->activities)
		if (!tell(arg, &CONTAINER_OF(link, struct engine_activity, of_run)->activity))
			return;
}

bool engine_run_is_open(const struct engine *engine, const char *id)
{
	return find_run(engine, id) != NULL;
}

static bool has_resume(const struct list *messages)
{
	LIST_EACH(link, messages)
		if (CONTAINER_OF(link, struct message, link)->kind == TRIGGER_RESUME)
			return true;
	return false;
}

bool engine_run_is_suspended(const struct engine *engine, const char *id)
{
	const struct run *run = find_run(engine, id);

	return run && run->is_suspended && !(run->more && has_resume(&run->more->early)) && !(run->live && (has_resume(&run->live->deciding) || has_resume(&run->live->inbox)));
}

/* --- listeners ---------------------------------------------------------------------------------------------------- */

/* What is listened for changes after a commit only; then the port is told, before anybody hears of the commit. */
static void set_listening(struct run *run, const struct instance *instance, const char *step)
{
	struct engine *engine = run->engine;
	struct listeners *listeners = run->more ? run->more->listeners : NULL;
	size_t at = 0, count = listeners ? listeners->count : 0;

	while (at < count && strcmp(listeners->steps[at], step) != 0)
		at++;
	bool listens = instance_listens(instance) && run->live->state.status != RUN_SUSPENDED, is_known = at < count;
	if (listens == is_known || !engine->ports.listen)
		return;
	if (is_known) {
		if (count == 1) {
			forget_listeners(run);
			return;
		}
		free(listeners->steps[at]);
		listeners->steps[at] = listeners->steps[--listeners->count];
		engine->ports.unlisten(engine->ports.arg, run->id, step);
		return;
	}
	if (!listeners || count == listeners->cap) {
		size_t cap = listeners ? listeners->cap * 2 : 1;
		listeners = more_of(run)->listeners = memory_resize(listeners, sizeof *listeners + cap * sizeof *listeners->steps);
		listeners->count = count;
		listeners->cap = cap;
	}
	listeners->steps[listeners->count++] = memory_text(step);
	engine->ports.listen(engine->ports.arg, run->id, step, instance->task, run->live->definition, instance->since_ms, instance->last_seq);
}

static void check_listener(struct run *run, const struct task *task, const uint64_t *path, uint64_t execution, struct arena *arena)
{
	struct step_id id = {.reference = task->reference, .iteration_count = task->loop_depth, .execution = execution};
	const struct instance *instance = state_find(&run->live->state, task, false, path, task->loop_depth);

	/* A record that is gone, or is of a later execution, listens no more. */
	struct instance over = {.task = task};
	memcpy(id.iterations, path, task->loop_depth * sizeof *path);
	set_listening(run, instance && instance->execution == execution ? instance : &over, step_id_print(arena, &id));
}

/* Nobody listens yet: after the daemon's start, and after a run was suspended. */
static void find_listeners(struct run *run)
{
	struct arena arena;

	arena_init(&arena);
	LIST_EACH(link, &run->live->state.live) {
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		if (instance_listens(instance))
			check_listener(run, instance->task, instance->path, instance->execution, &arena);
	}
	arena_close(&arena);
}

/* An entry about a listen, or about what its foreach does, may have changed whether it listens. Where the record of an earlier execution was in the
 * way, its own last entry has told so. */
static void check_listeners(struct run *run, const struct entry *entries, size_t count)
{
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < count; i++) {
		struct step_id id;
		if (entries[i].kind == ENTRY_RUN_SUSPENDED)
			forget_listeners(run);
		if (entries[i].kind == ENTRY_RUN_RESUMED)
			find_listeners(run);
		const char *step = json_get_text(entries[i].data, "stepId");
		const struct task *task = step && step_id_parse(&arena, step, &id) ? definition_find_task(run->live->definition, id.reference) : NULL;
		if (!task || id.iteration_count != task->loop_depth)
			continue;
		if (task->kind == TASK_LISTEN) {
			check_listener(run, task, id.iterations, id.execution, &arena);
		} else if (task->parent && task->parent->kind == TASK_LISTEN) {
			const struct instance *listen = state_find(&run->live->state, task->parent, false, id.iterations, task->parent->loop_depth);
			if (listen)
				check_listener(run, task->parent, id.iterations, listen->execution, &arena);
		}
	}
	arena_close(&arena);
}

/* --- effects ------------------------------------------------------------------------------------------------------ */

static enum activity_kind activity_kind_of(enum task_function function)
{
	switch (function) {
	case FUNCTION_HTTP:
		return ACTIVITY_HTTP;
	case FUNCTION_INFERENCE:
		return ACTIVITY_INFERENCE;
	case FUNCTION_SECTIONS:
		return ACTIVITY_SECTIONS;
	case FUNCTION_EXTRACT:
		return ACTIVITY_EXTRACT;
	case FUNCTION_RUN:
		return ACTIVITY_RUN;
	case FUNCTION_GATE_ASK:
		return ACTIVITY_GATE;
	case FUNCTION_MERGE:
	case FUNCTION_GATE_PLAN:
	case FUNCTION_GATE_REPORT:
		break;
	}
	CHECK(!"a pure function has no activity");
	return ACTIVITY_HTTP;
}

static bool uses_models(enum activity_kind kind)
{
	return kind == ACTIVITY_INFERENCE || kind == ACTIVITY_EXTRACT || kind == ACTIVITY_GATE || kind == ACTIVITY_RUN;
}

/* What a run may use, and has used, follows from its entries; what is under way has its place in the ledger as well. */
static void sync_budget(struct run *run)
{
	struct run_live *live = run->live;

	if (live->budget)
		budget_set(live->budget, &live->state.budget, &live->state.spent);
	else if (budget_limits(&live->state.budget))
		live->budget = budget_new(run->id, &live->state.budget, &live->state.spent);
}

/* What a child uses counts for the run that waits for it while it is under way: its ledger hangs below its parent's. Only with both in memory, as they are but for the
 * first moments after a start. */
static void link_budget(struct run *run)
{
	struct run_live *live = run->live;

	if (!live->budget || live->budget->up || !live->state.parent_run)
		return;
	const struct run *parent = find_run(run->engine, live->state.parent_run);
	if (!parent || !parent->live || !parent->live->budget)
		return;
	LIST_EACH(link, &parent->live->activities) {
		struct activity *activity = &CONTAINER_OF(link, struct engine_activity, of_run)->activity;
		if (activity->kind != ACTIVITY_RUN || strcmp(activity->step_id, live->state.parent_step) != 0 || !json_get_boolean(activity->with, "await", true))
			continue;
		budget_link(live->budget, &activity->claim);
		return;
	}
}

static void start_activity(struct run *run, const struct effect *effect)
{
	struct engine *engine = run->engine;
	struct engine_activity *activity = memory_zero(sizeof *activity);

	arena_init(&activity->arena);
	activity->engine = engine;
	activity->run = run;
	activity->handed_us = run->live->append.handed_us;
	activity->committed_us = run->live->append.committed_us;
	activity->activity.kind = activity_kind_of(effect->function);
	activity->activity.run_id = arena_text(&activity->arena, run->id);
	activity->activity.step_id = arena_text(&activity->arena, effect->step_id);
	activity->activity.namespace = arena_text(&activity->arena, run->live->state.definition->namespace);
	activity->activity.idempotency_key = arena_text(&activity->arena, effect->key);
	activity->activity.attempt = effect->attempt;
	activity->activity.depth = run->live->state.depth;
	activity->activity.with = json_copy(&activity->arena, effect->with);
	budget_join(&activity->activity.claim, uses_models(activity->activity.kind) ? run->live->budget : NULL);
	link_budget(run);
	activity->activity.on_done = on_activity_done;
	activity->activity.owner = activity;
	list_init(&activity->of_run);
	list_add_last(&run->live->activities, &activity->of_run);
	list_init(&activity->of_engine);
	list_add_last(&engine->activities, &activity->of_engine);
	engine->counts.in_flight++;
	FAIL_POINT(ACTIVITY_START);
	if (engine->ports.start_activity(engine->ports.arg, &activity->activity, &activity->refused) == 0) {
		FAIL_POINT(ACTIVITY_STARTED);
		return;
	}
	struct message *message = new_message(TRIGGER_ACTIVITY_DONE);
	message->activity = activity;
	list_remove(&activity->of_run);
	post(run, message, false);
}

static void cancel_activity(struct run *run, const struct effect *effect)
{
	LIST_EACH_SAFE(link, &run->live->activities) {
		struct engine_activity *activity = CONTAINER_OF(link, struct engine_activity, of_run);
		if (activity->activity.attempt != effect->attempt || strcmp(activity->activity.step_id, effect->step_id) != 0)
			continue;
		list_remove(&activity->of_run);
		activity->run = NULL;
		activity->activity.is_kill = run->live->state.killed;
		run->engine->ports.cancel_activity(run->engine->ports.arg, &activity->activity);
		FAIL_POINT(ACTIVITY_CANCELLED);
	}
}

/* The one place where effects leave: all entries of the decision are durable and folded in. */
static bool release_effects(struct run *run)
{
	struct run_live *live = run->live;
	bool ended = false;

	for (size_t i = 0; i < live->decision.effect_count; i++) {
		const struct effect *effect = &live->decision.effects[i];
		switch (effect->kind) {
		case EFFECT_START_ACTIVITY:
			if (!run->engine->stopping) /* its start is on record: the next start of the daemon carries on */
				start_activity(run, effect);
			break;
		case EFFECT_CANCEL_ACTIVITY:
			cancel_activity(run, effect);
			break;
		case EFFECT_CONTINUE:
			/* Behind what waits already: a run that never rests must hear of its cancellation and of the ends of its attempts. */
			post(run, new_message(TRIGGER_CONTINUE), false);
			break;
		case EFFECT_RUN_ENDED:
			ended = true;
			break;
		}
		FAIL_POINT(EFFECT_RELEASED);
	}
	return ended;
}

static void on_activity_done(struct activity *done)
{
	struct engine_activity *activity = CONTAINER_OF(done, struct engine_activity, activity);
	struct run *run = activity->run;

	/* Nobody waits for it any more; or the daemon is going away, and the next start finds the attempt in flight. */
	if (!run || done->result.failure == FAILURE_INTERRUPTED) {
		if (!run)
			activity->engine->counts.stale_triggers++;
		tell_spent(activity);
		free_activity(activity);
		return;
	}
	FAIL_POINT(ACTIVITY_DONE);
	budget_settle(&done->claim, done->result.spent.tokens, done->result.spent.us);
	activity->done_us = now_us(run->engine);
	list_remove(&activity->of_run);
	struct message *message = new_message(TRIGGER_ACTIVITY_DONE);
	message->activity = activity;
	post(run, message, false);
	run_advance(run);
}

/* --- triggers ----------------------------------------------------------------------------------------------------- */

static void set_interval(struct arena *arena, struct json *record, const char *name, int64_t from, int64_t until)
{
	struct json *pair = json_array(arena);

	json_add(arena, pair, json_number(arena, (double)from));
	json_add(arena, pair, json_number(arena, (double)until));
	json_set(arena, record, name, pair);
}

/* The activity's record, completed with what only the engine knows: when it was, relative to the run, and the rest of the stages.
 * They add up to the attempt's own wall time, from handing over attempt.started to this decision. "journal" is all waiting for commits: of
 * its own start, and of what the run was committing when the answer came. */
static struct json *complete_record(struct run_live *live, struct engine_activity *activity, uint64_t now)
{
	struct activity_result *result = &activity->activity.result;
	struct arena *arena = &activity->arena;
	struct json *record = result->record ? json_copy(arena, result->record) : json_object(arena), *stages = json_object(arena);
	const struct stage_times *s = &result->stages;
	int64_t wall = (int64_t)(now - activity->handed_us), journal = (int64_t)(activity->committed_us - activity->handed_us + (now - activity->done_us));
	int64_t known = journal + s->queue + s->connect + s->first_token + s->generation + s->parse + s->ground;

	json_set_number(arena, stages, "journal", (double)journal);
	json_set_number(arena, stages, "queue", (double)s->queue);
	json_set_number(arena, stages, "dispatch", (double)(wall > known ? wall - known : 0));
	json_set_number(arena, stages, "connect", (double)s->connect);
	json_set_number(arena, stages, "firstToken", (double)s->first_token);
	json_set_number(arena, stages, "generation", (double)s->generation);
	json_set_number(arena, stages, "parse", (double)s->parse);
	json_set_number(arena, stages, "ground", (double)s->ground);
	json_set(arena, record, "stages", stages);
	json_set_number(arena, record, "wallUs", (double)wall);
	if (result->active_until_us > result->active_from_us)
		set_interval(arena, record, "activeUs", since_created(live, result->active_from_us), since_created(live, result->active_until_us));
	if (result->queued_us > 0) {
		int64_t from = since_created(live, activity->committed_us);
		set_interval(arena, record, "queuedUs", from, from + (int64_t)result->queued_us);
	}
	return record;
}

static void make_outcome(struct run *run, struct message *message)
{
	struct run_live *live = run->live;
	struct engine_activity *activity = message->activity;
	struct activity_result *result = &activity->activity.result;
	struct outcome *outcome = &message->outcome;

	if (activity->refused.code != ERR_NONE) {
		bool busy = activity->refused.code == ERR_BUSY;
		*outcome = (struct outcome){.failure = busy ? FAILURE_RATE_LIMITED : FAILURE_CONFIGURATION, .detail = activity->refused.message,
					    .retry_attempts = busy ? 1000 : 1, .retry_floor_ms = 500, .retry_cap_ms = 60000, .started_ms = wall_ms(run->engine),
					    .finished_ms = wall_ms(run->engine)};
		return;
	}
	*outcome = (struct outcome){
		.ok = result->ok, .failure = result->failure, .detail = result->detail, .status = result->status, .retry_after_ms = result->retry_after_ms,
		.retry_attempts = result->retry_attempts, .retry_floor_ms = result->retry_floor_ms, .retry_cap_ms = result->retry_cap_ms,
		.output = result->output, .record = complete_record(live, activity, now_us(run->engine)), .request = result->request,
		.response = result->response, .document = result->document, .document_media_type = result->document_media_type,
		.facts = result->facts, .evidence = result->evidence, .error = result->error, .spent = result->spent, .started_ms = result->started_ms, .finished_ms = result->finished_ms,
		.duration_ms = result->active_until_us > result->active_from_us ? (int64_t)(result->active_until_us - result->active_from_us) / 1000 : 0,
	};
}

static void make_trigger(struct run *run, struct message *message, struct trigger *trigger)
{
	struct run_live *live = run->live;

	*trigger = (struct trigger){.kind = message->kind, .wall_ms = live->decided_ms};
	switch (message->kind) {
	case TRIGGER_SUBMITTED:
		trigger->run_id = run->id;
		trigger->input = message->submit->input;
		trigger->labels = message->submit->labels;
		trigger->parent = message->submit->parent;
		trigger->fork = message->submit->fork;
		trigger->budget = message->submit->budget || message->submit->parent ? message->submit->budget : run->engine->config.budget;
		trigger->budget_asked = message->submit->budget_asked;
		break;
	case TRIGGER_ACTIVITY_DONE:
		make_outcome(run, message);
		trigger->step_id = message->activity->activity.step_id;
		trigger->attempt = message->activity->activity.attempt;
		trigger->outcome = &message->outcome;
		break;
	case TRIGGER_CANCEL:
	case TRIGGER_PAUSE:
	case TRIGGER_RESUME: {
		/* Several may ask at once: the first reason counts, and a kill is a kill. */
		LIST_EACH(link, &message->controls) {
			const struct engine_control *control = CONTAINER_OF(link, struct engine_control, link);
			if (!trigger->reason)
				trigger->reason = control->reason;
			trigger->kill |= control->verb == CONTROL_KILL;
		}
		break;
	}
	case TRIGGER_RETRY:
		trigger->reason = message->retry->reason;
		trigger->budget = message->retry->budget;
		break;
	case TRIGGER_EVENT:
		trigger->step_id = message->offer->step_id;
		trigger->event = message->offer->event;
		trigger->event_seq = message->offer->seq;
		break;
	case TRIGGER_RESTARTED:
	case TRIGGER_CONTINUE:
	case TRIGGER_DEADLINE:
		break;
	}
	/* The run's own record, for a decision that ends it. */
	struct json *record = json_object(&live->decision.arena);
	json_set_number(&live->decision.arena, record, "wallUs", (double)since_created(live, now_us(run->engine)));
	json_set(&live->decision.arena, record, "stages", stages_json(live, &live->decision.arena));
	trigger->run_record = record;
}

static struct message *message_at(const struct list *link)
{
	return CONTAINER_OF(link, struct message, link);
}

static struct message *first_message(const struct run_live *live)
{
	return message_at(live->deciding.next);
}

/* The next trigger of the inbox; and, since each commit of a run waits for the one before, all ends of attempts that follow it. */
static void take_messages(struct run_live *live)
{
	for (size_t count = 0; count < ENGINE_TRIGGERS_MAX && !list_empty(&live->inbox); count++) {
		struct message *message = message_at(live->inbox.next);
		if (count > 0 && (message->kind != TRIGGER_ACTIVITY_DONE || first_message(live)->kind != TRIGGER_ACTIVITY_DONE))
			return;
		list_remove(&message->link);
		live->inbox_count--;
		list_add_last(&live->deciding, &message->link);
	}
}

/* Those that a decision did not get to go back to the front, in order. */
static void put_back(struct run_live *live, size_t decided)
{
	struct list rest;
	size_t count = 0;

	list_init(&rest);
	LIST_EACH_SAFE(link, &live->deciding) {
		if (count++ < decided)
			continue;
		list_remove(link);
		list_add_last(&rest, link);
		live->inbox_count++;
	}
	list_move_all(&rest, &live->inbox);
	list_move_all(&live->inbox, &rest);
}

static const struct json *find_value(void *context, const struct digest *digest)
{
	struct run *run = context;
	const struct json *json = value_cache_get(&run->live->loaded, digest);

	/* The decision's effects point into it until they are released, and by then other runs may have pushed it out of the cache that
	 * all share: the decision holds it. */
	return json ? json : value_cache_share(&run->live->loaded, &run->engine->values, digest);
}

static void on_values_loaded(struct engine_load_values *load);
static void on_evaluated(struct engine_evaluate *evaluate);
static void on_entries_committed(struct store_append *append);
static void decide(struct run *run);
static void finish_decision(struct run *run, const struct error *error);
static void finish_messages(struct list *messages, const struct error *error);
static void break_run(struct run *run, const struct error *error);

/* --- snapshots ---------------------------------------------------------------------------------------------------- */

static void put_intervals(struct buffer *out, const struct interval_set *set)
{
	packed_put(out, (uint64_t)set->folded_until);
	packed_put(out, (uint64_t)set->folded);
	packed_put(out, set->count);
	for (size_t i = 0; i < set->count; i++) {
		packed_put(out, (uint64_t)set->items[i].from);
		packed_put(out, (uint64_t)set->items[i].until);
	}
}

static bool take_intervals(struct bytes *from, struct interval_set *set)
{
	uint64_t until, folded, count, begin, end;

	if (!packed_take(from, &until) || !packed_take(from, &folded) || !packed_take(from, &count))
		return false;
	for (; count > 0; count--) {
		if (!packed_take(from, &begin) || !packed_take(from, &end))
			return false;
		interval_add(set, (int64_t)begin, (int64_t)end);
	}
	set->folded_until = (int64_t)until;
	set->folded = (int64_t)folded;
	return true;
}

/* Everything that the entries so far have made of the run, so that its next load begins here. */
static void print_snapshot(const struct run_live *live, struct buffer *out)
{
	struct buffer part;

	buffer_init(&part, ENGINE_SNAPSHOT_MAX);
	state_snapshot_print(&live->state, REPRISE_VERSION, &part);
	packed_put_bytes(out, buffer_bytes(&part));
	out->overflow |= part.overflow;
	buffer_clear(&part);
	json_print(live->sums, &part);
	packed_put_bytes(out, buffer_bytes(&part));
	buffer_close(&part);
	put_intervals(out, &live->active);
	put_intervals(out, &live->queued);
}

static int read_snapshot(struct run_live *live, struct bytes bytes, struct error *error)
{
	struct bytes state, sums;

	if (!packed_take_bytes(&bytes, &state) || !packed_take_bytes(&bytes, &sums) || !take_intervals(&bytes, &live->active) ||
	    !take_intervals(&bytes, &live->queued) || bytes.len > 0)
		return error_set(error, ERR_CORRUPT, "the snapshot is damaged");
	live->sums = json_parse(&live->sums_arena, arena_bytes(&live->sums_arena, sums), JSON_STORED, NULL, error);
	if (!json_is(live->sums, JSON_OBJECT) || state_snapshot_read(&live->state, state, REPRISE_VERSION, error) != 0)
		return error->code != ERR_NONE ? (int)error->code : error_set(error, ERR_CORRUPT, "the snapshot is damaged");
	live->has_snapshot = true;
	live->snapshot_entries = live->state.entry_count;
	return 0;
}

/* Without a new one; the one that is there goes with the run's end. True: this decision ends it. */
static bool drop_snapshot(struct run *run)
{
	struct run_live *live = run->live;
	bool ends = false;

	for (size_t i = 0; i < live->decision.effect_count; i++)
		ends |= live->decision.effects[i].kind == EFFECT_RUN_ENDED;
	live->append.snapshot = (struct bytes){0};
	live->append.snapshot_run = run->id;
	live->append.forget_snapshot = ends && live->has_snapshot;
	return ends;
}

/* The state before this decision goes along with its entries, every so often: one write costs no sync of its own. How often grows with what
 * is written, so that each entry pays the same. */
static void add_snapshot(struct run *run)
{
	struct run_live *live = run->live;
	uint64_t apart = run->engine->config.snapshot_entries + live->state.instance_count / 4;

	if (drop_snapshot(run) || run->reopening || live->state.entry_count < live->snapshot_entries + apart)
		return;
	buffer_clear(&live->snapshot);
	print_snapshot(live, &live->snapshot);
	if (live->snapshot.overflow) {
		buffer_close(&live->snapshot);
		live->snapshot_entries = live->state.entry_count; /* perhaps the next time */
		return;
	}
	live->append.snapshot = buffer_bytes(&live->snapshot);
	live->append.snapshot_seq = live->state.seq_last;
}

static void on_snapshot_committed(struct run_live *live)
{
	if (!live->append.snapshot.data)
		return;
	live->append.snapshot = (struct bytes){0};
	buffer_close(&live->snapshot);
	live->snapshot_entries = live->state.entry_count; /* not folded in yet: what the snapshot has */
	live->has_snapshot = true;
}

static void append_decision(struct run *run)
{
	struct run_live *live = run->live;
	struct engine *engine = run->engine;

	live->append.on_done = on_entries_committed;
	live->append.owner = run;
	live->append.urgent = is_control(first_message(live)->kind);
	live->append.error = (struct error){0};
	add_snapshot(run);
	run->stage = STAGE_COMMITTING;
	engine->counts.committing++;
	if (engine->ports.append(engine->ports.arg, &live->append) == 0)
		return;
	engine->counts.committing--;
	live->append.error = (struct error){.code = ERR_BUSY};
	run->stage = STAGE_POSTPONED;
	set_deadline(run, wall_ms(engine) + ENGINE_RETRY_APPEND_MS);
}

static void evaluate(struct run *run)
{
	struct run_live *live = run->live;
	struct engine *engine = run->engine;
	size_t count = live->decision.need_count;

	run->stage = STAGE_EVALUATING;
	live->evaluations = arena_zero(&live->decision.arena, count * sizeof *live->evaluations);
	live->evaluation_busy = false;
	live->evaluating = count;
	live->rounds++;
	engine->evaluating += count;
	for (size_t i = 0; i < count; i++) {
		live->evaluations[i] = (struct engine_evaluate){.request = live->decision.needs[i].evaluation->request, .on_done = on_evaluated, .owner = run};
		list_init(&live->evaluations[i].link);
		engine->ports.evaluate(engine->ports.arg, &live->evaluations[i]); /* answers later */
	}
}

/* No evaluator: each of them fails, at once. */
static void fail_evaluations(struct run *run)
{
	struct run_live *live = run->live;
	struct buffer kept;

	buffer_init(&kept, EVALUATION_ANSWER_MAX);
	evaluation_keep_failure("expressions that need jq cannot be evaluated here", &kept);
	for (size_t i = 0; i < live->decision.need_count; i++)
		value_cache_put(&live->loaded, &live->decision.needs[i].digest, buffer_bytes(&kept));
	buffer_close(&kept);
	live->rounds++;
	decision_close(&live->decision);
	decide(run);
}

/* Values first: what is evaluated may speak of more of them. */
static void get_needs(struct run *run)
{
	struct run_live *live = run->live;
	struct engine *engine = run->engine;
	struct decision *decision = &live->decision;
	struct value_need *values = arena_alloc(&decision->arena, decision->need_count * sizeof *values);
	size_t count = 0;

	for (size_t i = 0; i < decision->need_count; i++)
		if (!decision->needs[i].evaluation)
			values[count++] = decision->needs[i];
	if (count == 0 && engine->ports.evaluate) {
		evaluate(run);
		return;
	}
	if (count == 0) {
		fail_evaluations(run);
		return;
	}
	run->stage = STAGE_LOADING_VALUES;
	live->load_values = (struct engine_load_values){.run_id = run->id, .needs = values, .need_count = count, .on_done = on_values_loaded, .owner = run};
	engine->loading++;
	engine->ports.load_values(engine->ports.arg, &live->load_values);
}

static void decide(struct run *run)
{
	struct run_live *live = run->live;
	struct engine *engine = run->engine;
	struct trigger triggers[ENGINE_TRIGGERS_MAX];
	struct decide_context context = {.origin = engine->config.origin, .daemon_version = engine->config.daemon_version, .values = {find_value, run},
					 .event_window_ms = engine->config.event_window_ms,
					 .settle = live->rounds >= ENGINE_EVALUATION_ROUNDS_MAX};
	const struct engine_submit *submit = first_message(live)->submit;
	static const struct error none = {0};
	size_t count = 0;

	decision_init(&live->decision);
	if (live->decided_ms == 0)
		live->decided_ms = run_time_ms(run);
	LIST_EACH(link, &live->deciding)
		make_trigger(run, message_at(link), &triggers[count++]);
	FAIL_POINT(DECIDE_BEGUN);
	last_words_begin(run->id);
	FAIL_POINT_RUN(run->id);
	workflow_decide(&live->state, triggers, count, &context, &live->decision);
	last_words_end();
	FAIL_POINT(DECIDE_DONE);
	if (live->decision.need_count > 0) {
		get_needs(run);
		return;
	}
	put_back(live, live->decision.trigger_count);
	if (live->decision.entry_count == 0) {
		struct error refused = {0};
		if (first_message(live)->kind == TRIGGER_RETRY) {
			CHECK(state_may_retry(&live->state, &refused) != 0);
			finish_decision(run, &refused);
			return;
		}
		if (first_message(live)->kind != TRIGGER_EVENT) /* an event that is for others */
			engine->counts.stale_triggers += live->decision.trigger_count;
		finish_decision(run, &none);
		return;
	}
	live->append.entries = live->decision.entries;
	live->append.entry_count = live->decision.entry_count;
	live->extra_count = 0;
	if (submit && submit->extra_count > 0) { /* one transaction: the extra ones go first */
		size_t extra = submit->extra_count, made = live->decision.entry_count;
		struct entry *all = arena_alloc(&live->decision.arena, (extra + made) * sizeof *all);
		memcpy(all, submit->extra, extra * sizeof *all);
		memcpy(all + extra, live->decision.entries, made * sizeof *all);
		live->append.entries = all;
		live->append.entry_count = extra + made;
		live->extra_count = extra;
	}
	if (first_message(live)->of_tree) {
		run->stage = STAGE_DECIDED;
		member_ready(run);
		return;
	}
	append_decision(run);
}

static void free_verdict(struct run *run)
{
	if (!run->more || !run->more->verdict)
		return;
	arena_close(&run->more->verdict->arena);
	free(run->more->verdict);
	run->more->verdict = NULL;
}

static void append_verdict(struct run *run);

/* Children that it attached to before it broke: nobody waits for them any more. */
static void cancel_detached(struct engine *engine, const char *id, bool is_kill)
{
	LIST_EACH_SAFE(link, &engine->activities) {
		struct engine_activity *activity = CONTAINER_OF(link, struct engine_activity, of_engine);
		if (activity->run || activity->activity.kind != ACTIVITY_RUN || strcmp(activity->activity.run_id, id) != 0)
			continue;
		activity->activity.is_kill |= is_kill;
		engine->ports.cancel_activity(engine->ports.arg, &activity->activity);
	}
}

static void on_verdict(struct store_append *append)
{
	struct run *run = append->owner;
	struct engine *engine = run->engine;
	struct engine_control *control = run->more->verdict->control;
	struct error error = append->error;
	uint64_t seq = append->seq_first;

	engine->counts.committing--;
	if (error.code == ERR_FULL || error.code == ERR_BUSY) {
		run->more->verdict->is_waiting = true;
		set_deadline(run, wall_ms(engine) + ENGINE_RETRY_APPEND_MS);
		return;
	}
	free_verdict(run);
	if (error.code != ERR_NONE)
		log_error(LOG_ENGINE, "run=%s %s", run->id, error.message);
	else if (engine->ports.on_committed)
		engine->ports.on_committed(engine->ports.arg, run->id, seq, control != NULL);
	if (!control) {
		run->is_suspended = run->is_quarantined = error.code == ERR_NONE;
		return;
	}
	if (error.code == ERR_NONE) {
		static const struct error none = {0};
		cancel_detached(engine, run->id, control->verb == CONTROL_KILL);
		engine->counts.quarantined--;
		engine->counts.cancelled++;
		free_run(run, &none);
	}
	control->error = error;
	control->on_done(control);
}

static void append_verdict(struct run *run)
{
	struct engine *engine = run->engine;

	run->more->verdict->is_waiting = false;
	engine->counts.committing++;
	if (engine->ports.append(engine->ports.arg, &run->more->verdict->append) == 0)
		return;
	engine->counts.committing--;
	run->more->verdict->is_waiting = true;
	set_deadline(run, wall_ms(engine) + ENGINE_RETRY_APPEND_MS);
}

/* Nothing can be decided of it: the entry is made here. */
static void give_verdict(struct run *run, enum entry_kind kind, const char *reason, struct engine_control *control)
{
	struct verdict *verdict = more_of(run)->verdict = memory_zero(sizeof *verdict);

	verdict->run = run;
	verdict->control = control;
	arena_init(&verdict->arena);
	verdict->entry = (struct entry){.kind = kind, .data = json_object(&verdict->arena), .time_ms = wall_ms(run->engine)};
	json_set_text(&verdict->arena, verdict->entry.data, "runId", run->id);
	if (kind == ENTRY_RUN_SUSPENDED)
		json_set_boolean(&verdict->arena, verdict->entry.data, "quarantined", true);
	if (reason)
		entry_add_value(&verdict->arena, &verdict->entry, "reason", json_print_arena(json_text(&verdict->arena, reason), &verdict->arena));
	verdict->append = (struct store_append){.entries = &verdict->entry, .entry_count = 1, .urgent = true, .snapshot_run = run->id, .forget_snapshot = control != NULL,
						.on_done = on_verdict, .owner = run};
	append_verdict(run);
}

/* It cannot go on. Nothing of it is lost: it is loaded again, in case that helps, and after ENGINE_RECOVERY_TRIES it is put into quarantine, out of
 * the way of all others, until an operator resumes it (C31). None of its triggers will be decided. */
static void break_run(struct run *run, const struct error *error)
{
	struct engine *engine = run->engine;
	struct list rest;

	list_init(&rest);
	list_move_all(&rest, &more_of(run)->early);
	if (run->live) {
		list_move_all(&rest, &run->live->deciding);
		list_move_all(&rest, &run->live->inbox);
		while (!list_empty(&run->live->activities)) { /* a later attempt must not run beside it (C41); to a child it attaches */
			struct engine_activity *activity = CONTAINER_OF(run->live->activities.next, struct engine_activity, of_run);
			list_remove(&activity->of_run);
			activity->run = NULL;
			if (activity->activity.kind != ACTIVITY_RUN)
				engine->ports.cancel_activity(engine->ports.arg, &activity->activity);
		}
		live_free(run);
	}
	if (run->reopening) { /* it stays as it ended */
		free_run(run, error);
		finish_messages(&rest, error);
		return;
	}
	forget_listeners(run);
	run->restarted = true;
	if (++run->tries < ENGINE_RECOVERY_TRIES) {
		log_warn(LOG_ENGINE, "run=%s try %u of %d: %s", run->id, run->tries, ENGINE_RECOVERY_TRIES, error->message);
		run->stage = STAGE_PARKED;
		set_deadline(run, wall_ms(engine) + ENGINE_RECOVERY_RETRY_MS);
	} else {
		run->stage = STAGE_BROKEN;
		set_deadline(run, 0);
		engine->counts.quarantined++;
		if (engine->ports.on_run_failed)
			engine->ports.on_run_failed(engine->ports.arg, run->id, error);
		if (!run->is_quarantined && !more_of(run)->verdict)
			give_verdict(run, ENTRY_RUN_SUSPENDED, error->message, NULL);
	}
	bool was_held = run->is_held, was_ready = run->is_ready;
	char id[ID_LEN_MAX + 1];
	snprintf(id, sizeof id, "%s", run->id);
	run->is_held = run->is_ready = false;
	finish_messages(&rest, error);
	if (was_held)
		leave_tree(engine, was_ready, id, error);
}

void engine_set_aside(struct engine *engine, const char *id)
{
	if (find_run(engine, id))
		return;
	struct run *run = add_run(engine, id);
	run->stage = STAGE_BROKEN;
	run->is_suspended = run->is_quarantined = run->restarted = true;
	engine->counts.quarantined++;
}

void engine_quarantine(struct engine *engine, const char *id, const char *reason)
{
	struct error error = {0};

	if (find_run(engine, id))
		return;
	struct run *run = add_run(engine, id);
	run->stage = STAGE_BROKEN;
	run->restarted = true;
	engine->counts.quarantined++;
	error_set(&error, ERR_INTERNAL, "%s", reason);
	if (engine->ports.on_run_failed)
		engine->ports.on_run_failed(engine->ports.arg, id, &error);
	give_verdict(run, ENTRY_RUN_SUSPENDED, reason, NULL);
}

/* What can be done to a run in quarantine: try it once more, or end it without asking it. */
static int control_broken(struct run *run, struct engine_control *control, struct error *error)
{
	struct engine *engine = run->engine;

	if ((run->more && run->more->verdict) || engine->stopping)
		return error_set(error, ERR_BUSY, "run %s is being put into quarantine, or the daemon stops; ask again", run->id);
	switch (control->verb) {
	case CONTROL_RESUME:
		engine->counts.quarantined--;
		run->tries = ENGINE_RECOVERY_TRIES - 1;
		run->stage = STAGE_PARKED;
		post_control(run, control);
		return 0;
	case CONTROL_CANCEL:
	case CONTROL_KILL:
		list_init(&control->link);
		give_verdict(run, control->verb == CONTROL_KILL ? ENTRY_RUN_KILLED : ENTRY_RUN_CANCELLED, control->reason, control);
		return 0;
	case CONTROL_PAUSE:
		break;
	}
	return error_set(error, ERR_EXISTS, "run %s is in quarantine: resume it to try it again, or cancel it", run->id);
}

static void on_values_loaded(struct engine_load_values *load)
{
	struct run *run = load->owner;
	struct run_live *live = run->live;
	struct engine *engine = run->engine;

	CHECK(run->stage == STAGE_LOADING_VALUES);
	notice_clock(engine);
	engine->loading--;
	if (load->error.code != ERR_NONE) {
		struct error error = load->error;
		arena_close(&load->arena);
		decision_close(&live->decision);
		if (error.code == ERR_BUSY) { /* the reader's queue is full */
			run->stage = STAGE_POSTPONED;
			set_deadline(run, wall_ms(engine) + ENGINE_RETRY_APPEND_MS);
		} else {
			error_wrap(&error, "run %s: load a value", run->id);
			break_run(run, &error);
		}
		load_next(engine);
		return;
	}
	for (size_t i = 0; i < load->need_count; i++) {
		/* What is needed alone is likely to be needed by the next decision as well: the array of a loop after a restart. */
		if (load->need_count <= ENGINE_SHARED_NEEDS_MAX && load->values[i].len > VALUE_INLINE_MAX)
			value_cache_put(&engine->values, &load->needs[i].digest, load->values[i]);
		if (!value_cache_share(&live->loaded, &engine->values, &load->needs[i].digest))
			value_cache_put(&live->loaded, &load->needs[i].digest, load->values[i]);
	}
	arena_close(&load->arena);
	decision_close(&live->decision);
	decide(run); /* the same triggers, with more values at hand */
	run_advance(run); /* they may have come to nothing */
	load_next(engine); /* runs wait for this place too */
}

static void on_evaluated(struct engine_evaluate *evaluate)
{
	struct run *run = evaluate->owner;
	struct run_live *live = run->live;
	struct engine *engine = run->engine;

	CHECK(run->stage == STAGE_EVALUATING);
	if (evaluate->busy)
		live->evaluation_busy = true;
	else
		value_cache_put(&live->loaded, &live->decision.needs[evaluate - live->evaluations].digest, evaluate->kept);
	engine->evaluating--;
	if (--live->evaluating > 0)
		return;
	live->evaluations = NULL;
	decision_close(&live->decision);
	if (live->evaluation_busy) {
		run->stage = STAGE_POSTPONED;
		set_deadline(run, wall_ms(engine) + ENGINE_RETRY_APPEND_MS);
		return;
	}
	decide(run); /* the same triggers, with more results at hand */
	run_advance(run); /* they may have come to nothing */
}

/* --- after the commit --------------------------------------------------------------------------------------------- */

static void count_time(struct run *run)
{
	struct run_live *live = run->live;
	int64_t sign = (int64_t)live->append.sign_us, commit = (int64_t)(live->append.committed_us - live->append.handed_us) - sign;

	LIST_EACH(link, &live->deciding) {
		const struct message *message = message_at(link);
		if (message->kind == TRIGGER_ACTIVITY_DONE && message->outcome.record)
			view_add_record(&live->sums_arena, message->outcome.record, &live->active, &live->queued, live->sums);
	}
	/* The commit of a start is in its attempt's own stages ("journal"); that of an end, or of pure tasks, is the run's. */
	bool starts = false;
	for (size_t i = 0; i < live->decision.effect_count; i++)
		starts |= live->decision.effects[i].kind == EFFECT_START_ACTIVITY;
	if (!starts)
		live->commit_us += commit;
	live->sign_us += sign;
}

/* Time in which a task waited for a timer alone is queued time. Before the entry is folded in. */
static void count_wait(struct run_live *live, const struct entry *entry)
{
	int64_t since_ms, created_ms = live->state.created_ms;
	bool cut_off;

	if (entry->kind == ENTRY_RUN_RETRIED) /* it waited for whoever retried it */
		interval_add(&live->queued, (live->state.ended_ms - created_ms) * 1000, (entry->time_ms - created_ms) * 1000);
	if (!state_ends_wait(&live->state, entry, &since_ms, &cut_off))
		return;
	if (cut_off)
		view_add_cut_off(&live->sums_arena, (since_ms - created_ms) * 1000, (entry->time_ms - created_ms) * 1000, &live->queued, live->sums);
	else
		interval_add(&live->queued, (since_ms - created_ms) * 1000, (entry->time_ms - created_ms) * 1000);
}

/* Of what is over its length is enough: everything that may yet be told is of what is under way, with a second for the two clocks. */
static void fold_times(struct run_live *live, int64_t last_ms)
{
	int64_t until_ms = last_ms;

	if (live->active.count + live->queued.count <= ENGINE_INTERVALS_MAX)
		return;
	if (live->state.suspended_ms != 0)
		until_ms = live->state.suspended_ms;
	LIST_EACH(link, &live->state.live) {
		const struct instance *instance = CONTAINER_OF(link, struct instance, live);
		int64_t since_ms = instance->phase == INSTANCE_BACKING_OFF ? instance->waits_since_ms : instance->started_ms;
		if ((instance->task->kind == TASK_CALL || instance->phase == INSTANCE_BACKING_OFF) && !instance->is_body && since_ms < until_ms)
			until_ms = since_ms;
	}
	interval_fold(&live->active, &live->queued, (until_ms - live->state.created_ms - 1000) * 1000);
}

/* Not where a trigger before it in the same decision took its task away. */
static bool tells_spent(const struct store_append *append, const struct activity *activity)
{
	for (size_t i = 0; i < append->entry_count; i++) {
		const struct entry *entry = &append->entries[i];
		if ((entry->kind == ENTRY_ATTEMPT_SUCCEEDED || entry->kind == ENTRY_ATTEMPT_FAILED) && json_get(entry->data, "spent") &&
		    json_get_number(entry->data, "attempt", 0) == activity->attempt && strcmp(json_get_text(entry->data, "stepId"), activity->step_id) == 0)
			return true;
	}
	return false;
}

static void apply_entries(struct run *run)
{
	struct run_live *live = run->live;
	struct error error = {0};

	for (size_t i = live->extra_count; i < live->append.entry_count; i++) {
		const struct entry *entry = &live->append.entries[i];
		count_wait(live, entry);
		if (workflow_apply(&live->state, entry, &error) != 0) {
			log_error(LOG_ENGINE, "%s", error.message);
			CHECK(!"a committed entry cannot be folded in");
		}
		if (entry->kind == ENTRY_GATE_RECORDED && run->engine->ports.on_gate)
			run->engine->ports.on_gate(run->engine->ports.arg, &entry->values[0].digest, entry->values[0].bytes);
		for (size_t k = 0; k < entry->value_count; k++)
			if (entry->values[k].size > VALUE_INLINE_MAX)
				value_cache_put(&run->engine->values, &entry->values[k].digest, entry->values[k].bytes);
	}
	state_settle(&live->state);
	sync_budget(run);
	LIST_EACH(link, &live->deciding) { /* what these used is folded in */
		struct engine_activity *activity = message_at(link)->activity;
		if (!activity)
			continue;
		activity->told = activity->activity.result.spent.runtime && tells_spent(&live->append, &activity->activity);
		budget_leave_folded(&activity->activity.claim);
	}
	budget_go_on(live->budget);
	fold_times(live, live->append.entries[live->append.entry_count - 1].time_ms);
	run->engine->counts.entries += live->append.entry_count;
}

static void finish_messages(struct list *messages, const struct error *error)
{
	while (!list_empty(messages)) {
		struct message *message = message_at(messages->next);
		list_remove(&message->link);
		finish_message(message, error);
	}
}

static void finish_decision(struct run *run, const struct error *error)
{
	struct list decided;

	list_init(&decided);
	list_move_all(&decided, &run->live->deciding);
	decision_close(&run->live->decision);
	value_cache_clear(&run->live->loaded);
	run->live->decided_ms = 0;
	run->live->rounds = 0;
	run->stage = STAGE_IDLE;
	finish_messages(&decided, error);
}

static void end_run(struct run *run)
{
	struct engine *engine = run->engine;
	struct list decided;
	static const struct error none = {0};

	list_init(&decided);
	list_move_all(&decided, &run->live->deciding);
	switch (run->live->state.status) {
	case RUN_COMPLETED:
		engine->counts.completed++;
		break;
	case RUN_FAULTED:
		engine->counts.faulted++;
		break;
	default:
		engine->counts.cancelled++;
		break;
	}
	FAIL_POINT(RUN_ENDED);
	keep_ended(run);
	log_info(LOG_ENGINE, "run=%s %s", run->id, run_status_name(run->live->state.status)); /* a write(): after what counts time */
	run->stage = STAGE_IDLE;
	free_run(run, &none); /* Watchers hear of it here. */
	finish_messages(&decided, &none);
}

/* The entries are on disk: fold them in, then let the world see what they cause. */
static void on_entries_committed(struct store_append *append)
{
	struct run *run = append->owner;
	struct run_live *live = run->live;
	struct engine *engine = run->engine;

	CHECK(run->stage == STAGE_COMMITTING);
	notice_clock(engine);
	engine->counts.committing--;
	if (append->error.code != ERR_NONE) {
		struct error error = append->error;
		if (first_message(live)->kind == TRIGGER_SUBMITTED) { /* Nothing of it exists. */
			struct message *message = first_message(live);
			struct error never = {0};
			list_remove(&message->link);
			error_set(&never, ERR_NOT_FOUND, "run %s was not created: %s", run->id, error.message);
			free_run(run, &never);
			finish_message(message, &error);
			tree_step(engine); /* it may have waited for this child */
			return;
		}
		if ((error.code != ERR_FULL && error.code != ERR_BUSY) || run->reopening) { /* it would be refused again and again */
			error_wrap(&error, "run %s: commit", run->id);
			break_run(run, &error);
			return;
		}
		log_warn(LOG_ENGINE, "run=%s commit postponed: %s", run->id, error.message);
		run->stage = STAGE_POSTPONED;
		set_deadline(run, wall_ms(engine) + ENGINE_RETRY_APPEND_MS);
		return;
	}
	FAIL_POINT(APPLY_BEGUN);
	on_snapshot_committed(live);
	bool emitted = false;
	for (size_t i = 0; i < append->entry_count; i++)
		emitted |= append->entries[i].kind == ENTRY_EVENT_EMITTED;
	last_words_begin(run->id);
	apply_entries(run);
	last_words_end();
	FAIL_POINT(APPLY_DONE);
	run->is_suspended = live->state.status == RUN_SUSPENDED;
	run->is_quarantined &= run->is_suspended;
	run->tries = 0;
	check_listeners(run, append->entries, append->entry_count);
	if (run->reopening)
		find_listeners(run);
	run->reopening = false;
	if (first_message(live)->offer) {
		first_message(live)->offer->consumed = true;
		FAIL_POINT(EVENT_CONSUMED);
	}
	if (first_message(live)->kind == TRIGGER_CANCEL)
		FAIL_POINT(CANCEL_COMMITTED);
	count_time(run);
	bool ended = release_effects(run);
	FAIL_POINT(EFFECTS_DONE);
	if (first_message(live)->kind == TRIGGER_SUBMITTED) {
		engine->counts.created++;
		log_info(LOG_ENGINE, "run=%s created workflow=%s/%s:%s", run->id, live->definition->namespace, live->definition->name, live->definition->version);
	}
	if (emitted && engine->ports.on_emitted)
		engine->ports.on_emitted(engine->ports.arg);
	if (engine->ports.on_committed)
		engine->ports.on_committed(engine->ports.arg, run->id, live->state.seq_last, ended);
	bool was_submitted = !list_empty(&live->submitting);
	list_remove(&live->submitting);
	if (ended) {
		end_run(run);
	} else {
		struct error none = {0};
		char id[ID_LEN_MAX + 1];
		snprintf(id, sizeof id, "%s", run->id);
		finish_decision(run, &none);
		/* A callback may have ended or freed it. */
		run = find_run(engine, id);
		if (run)
			run_advance(run); /* May free run: touch nothing after this line. */
	}
	if (was_submitted)
		tree_step(engine); /* which may have waited for this child */
}

static bool may_park(const struct run *run)
{
	const struct run_live *live = run->live;
	int64_t park_after = run->engine->config.park_after_ms;

	if (park_after < 0 || !list_empty(&live->activities) || !state_is_idle(&live->state))
		return false;
	return run->deadline_ms == 0 || run->deadline_ms - wall_ms(run->engine) > park_after;
}

/* Decide the next trigger of the inbox, if the run is free to. May free the run. */
static void run_advance(struct run *run)
{
	struct run_live *live = run->live;

	if (run->stage != STAGE_IDLE || run->advancing)
		return;
	if (run->is_held && !restarts_first(run)) {
		member_ready(run);
		return;
	}
	/* Nor is it ever idle, when its timers are looked at. Once: what is not due after all must not come round for ever. */
	if (!list_empty(&live->inbox) && message_at(live->inbox.next)->kind == TRIGGER_CONTINUE && !run->engine->stopping) {
		int64_t due_ms = state_next_deadline_ms(&live->state);
		if (due_ms != 0 && due_ms <= run_time_ms(run))
			post(run, new_message(TRIGGER_DEADLINE), true);
	}
	while (!list_empty(&live->inbox) && (!run->is_held || restarts_first(run))) {
		take_messages(live);
		run->advancing = true;
		decide(run);
		run->advancing = false;
		if (run->stage != STAGE_IDLE)
			return;
		/* A stale trigger changed nothing: on to the next. */
	}
	if (run->is_held) { /* what it had to do brought that about */
		member_ready(run);
		return;
	}
	if (run->reopening) { /* it was refused: the run stays as it ended */
		static const struct error none = {0};
		free_run(run, &none);
		return;
	}
	set_due(run, state_next_deadline_ms(&live->state));
	if (run->deadline_ms == 0)
		set_ahead(run, 0);
	if (may_park(run)) {
		FAIL_POINT(RUN_PARKED);
		live_free(run);
		run->stage = STAGE_PARKED;
		forget_more(run);
	}
}

static void append_tree(struct engine *engine);

void engine_on_time(struct engine *engine)
{
	notice_clock(engine);
	if (engine->tree_turn) {
		engine->tree_turn = false;
		tree_step(engine);
	}
	/* The clock is asked each time: were it set back in between, a deadline that is not due any more would come round for ever. */
	while (engine->heap_count > 0 && engine->heap[1]->deadline_ms <= wall_ms(engine)) {
		struct run *run = engine->heap[1];
		set_deadline(run, 0);
		switch (run->stage) {
		case STAGE_POSTPONED: /* of a decision that is made already, or of one that could not load its values */
			if (run->live->decision.entry_count > 0)
				append_decision(run);
			else
				decide(run);
			run_advance(run);
			break;
		case STAGE_IDLE:
			FAIL_POINT(TIMER_DUE);
			if (list_empty(&run->live->inbox) && !engine->stopping)
				post(run, new_message(TRIGGER_DEADLINE), false);
			if (!list_empty(&run->live->inbox))
				run_advance(run);
			break;
		case STAGE_PARKED:
			if (!engine->stopping && !run->restarted && !has_early(run))
				post(run, new_message(TRIGGER_DEADLINE), false);
			else if (!waits_for_load(run) && has_control(run)) /* its load was refused once: again */
				list_add_first(&engine->to_load, &more_of(run)->waiting);
			else if (!engine->stopping && !waits_for_load(run))
				list_add_last(&engine->to_load, &more_of(run)->waiting);
			load_next(engine);
			break;
		case STAGE_DECIDED: /* as part of a tree, that the store had no room for */
			append_tree(engine);
			break;
		case STAGE_LOADING:
		case STAGE_LOADING_VALUES:
		case STAGE_EVALUATING:
		case STAGE_COMMITTING:
			break; /* It looks at its deadline again when it is idle. */
		case STAGE_BROKEN:
			if (run->more && run->more->verdict && run->more->verdict->is_waiting)
				append_verdict(run);
			break;
		}
	}
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

/* The definition of a stored document, of which the engine keeps one use; NULL: *error. */
static struct definition *load_definition(struct engine *engine, struct bytes bytes, struct error *error)
{
	struct digest digest = digest_of(bytes); /* the document is canonical, so this is the definition's own */
	struct problems problems;

	for (size_t i = 0; i < ENGINE_DEFINITIONS_KEPT && engine->definitions[i]; i++)
		if (digest_equal(&engine->definitions[i]->digest, &digest))
			return engine->definitions[i];
	problems_init(&problems);
	struct json *document = json_parse(&problems.arena, bytes, JSON_STORED, NULL, error);
	struct definition *definition = document ? definition_load_stored(document, &problems) : NULL;
	if (!definition && document)
		error_set(error, ERR_CORRUPT, "its definition is refused by this version: %s", problems.count ? problems.items[0].message : "unknown reason");
	problems_close(&problems);
	if (!definition)
		return NULL;
	struct definition **kept = &engine->definitions[engine->definitions_next++ % ENGINE_DEFINITIONS_KEPT];
	if (*kept)
		release_definition(*kept);
	return *kept = definition;
}

/* The first page: its definition, and the state that its snapshot has. */
static int begin_rebuild(struct run *run, struct engine_load_run *load, struct error *error)
{
	struct definition *definition = load_definition(run->engine, load->document, error);
	struct error why = {0};

	if (!definition)
		return error->code;
	struct run_live *live = live_new(run, definition);
	live->has_snapshot = load->whole;
	if (!load->snapshot.data || read_snapshot(live, load->snapshot, &why) == 0)
		return 0;
	/* A cache: all entries are the other way. What waits for the run goes on waiting. */
	log_warn(LOG_ENGINE, "run=%s %s: all its entries are read instead", run->id, why.message);
	list_move_all(&more_of(run)->early, &live->inbox);
	live_free(run);
	load->whole = true;
	return 0;
}

static int fold_page(struct run *run, const struct engine_load_run *load, struct error *error)
{
	struct run_live *live = run->live;

	for (size_t i = 0; i < load->entry_count; i++) {
		const struct entry *entry = &load->entries[i];
		count_wait(live, entry);
		if (workflow_apply(&live->state, entry, error) != 0)
			return error->code;
		struct digest digest;
		if (!json_get_digest(entry->data, "record", &digest))
			continue;
		for (size_t k = 0; k < entry->value_count; k++)
			if (entry->values[k].bytes.data && digest_equal(&entry->values[k].digest, &digest)) {
				struct arena arena;
				arena_init(&arena);
				const struct json *record = json_parse(&arena, entry->values[k].bytes, JSON_STORED, NULL, NULL);
				if (record)
					view_add_record(&live->sums_arena, record, &live->active, &live->queued, live->sums);
				arena_close(&arena);
			}
	}
	if (load->entry_count > 0) {
		live->last_ms = load->entries[load->entry_count - 1].time_ms;
		fold_times(live, live->last_ms);
	}
	return 0;
}

/* Set back while nobody looked: its times go on from the last one that is on record. */
static void resume_times(struct run *run, int64_t last_ms)
{
	int64_t wall = wall_ms(run->engine);

	if (last_ms > wall + ahead_of(run))
		set_ahead(run, last_ms - wall);
}

static int end_rebuild(struct run *run, struct error *error)
{
	struct run_live *live = run->live;

	if (live->state.entry_count == 0)
		return error_set(error, ERR_CORRUPT, "it has no entries");
	state_settle(&live->state);
	if (state_next_deadline_ms(&live->state) != 0)
		resume_times(run, live->last_ms);
	int64_t age_ms = wall_ms(run->engine) + ahead_of(run) - live->state.created_ms;
	uint64_t now = now_us(run->engine);
	live->created_us = age_ms > 0 && (uint64_t)age_ms * 1000 < now ? now - (uint64_t)age_ms * 1000 : now > 0 && age_ms > 0 ? 0 : now;
	return 0;
}

static void on_run_loaded(struct engine_load_run *load);

/* A page at a time, so that neither the reader nor the loop nor memory is taken up by one run's history. */
static void load_page(struct run *run, uint64_t after_seq, bool whole)
{
	struct engine *engine = run->engine;
	struct engine_load_run *load = memory_zero(sizeof *load);

	run->stage = STAGE_LOADING;
	more_of(run)->load = load;
	*load = (struct engine_load_run){.run_id = run->id, .after_seq = after_seq, .whole = whole, .on_done = on_run_loaded, .owner = run};
	engine->loading++;
	engine->ports.load_run(engine->ports.arg, load);
}

static void on_whole_run(struct run *run)
{
	static const struct error none = {0};

	run->is_suspended = run->live->state.status == RUN_SUSPENDED;
	if (run->restarted && !run_status_ended(run->live->state.status))
		find_listeners(run);
	run->stage = STAGE_IDLE;
	if (run->restarted) {
		FAIL_POINT(RECOVER_LOADED);
		run->engine->counts.recovered++;
		post(run, new_message(TRIGGER_RESTARTED), true);
	}
	run->restarted = false;
	if (run_status_ended(run->live->state.status) && !run->reopening)
		free_run(run, &none);
	else
		run_advance(run);
}

/* Its queue is full: what is folded in so far is forgotten. */
static void park_half_loaded(struct run *run)
{
	if (run->live) {
		list_move_all(&more_of(run)->early, &run->live->inbox);
		live_free(run);
	}
	run->stage = STAGE_PARKED;
	set_deadline(run, wall_ms(run->engine) + ENGINE_RETRY_APPEND_MS);
}

/* The daemon stops: the run stays as it ended. */
static void refuse_reopening(struct run *run)
{
	struct error stopping = {0};

	error_set(&stopping, ERR_BUSY, "the daemon is stopping; retry when it is back");
	free_run(run, &stopping);
}

static void on_run_loaded(struct engine_load_run *load)
{
	struct run *run = load->owner;
	struct engine *engine = run->engine;
	struct error error = load->error;
	bool first = load->after_seq == 0, again = false;

	notice_clock(engine);
	engine->loading--;
	FAIL_POINT(RECOVER_PAGE);
	more_of(run)->load = NULL;
	if (engine->stopping && run->reopening) {
		refuse_reopening(run);
		goto end;
	}
	if (error.code == ERR_BUSY || (engine->stopping && !has_control(run))) {
		park_half_loaded(run);
		goto end;
	}
	last_words_begin(run->id);
	if (error.code == ERR_NONE && first && begin_rebuild(run, load, &error) == 0 && !run->live)
		again = true;
	else if (error.code == ERR_NONE && fold_page(run, load, &error) == 0 && !load->more)
		end_rebuild(run, &error);
	last_words_end();
	if (error.code != ERR_NONE) {
		error_wrap(&error, "run %s cannot go on", run->id);
		break_run(run, &error);
	} else if (again) {
		load_page(run, 0, true);
	} else if (load->more) {
		load_page(run, run->live->state.seq_last, false);
	} else {
		on_whole_run(run); /* May free run. */
	}
end:
	arena_close(&load->arena);
	free(load);
	load_next(engine);
}

static void load_next(struct engine *engine)
{
	while (engine->loading < engine->config.load_concurrency && !list_empty(&engine->to_load)) {
		struct run *run = CONTAINER_OF(engine->to_load.next, struct run_more, waiting)->run;
		if (engine->stopping && !has_control(run)) /* those that have stand first */
			return;
		list_remove(&more_of(run)->waiting);
		load_page(run, 0, false);
	}
}

void engine_recover(struct engine *engine, const char *id, int64_t wake_ms, int64_t rested_ms)
{
	if (find_run(engine, id))
		return;
	FAIL_POINT(RECOVER_RUN);
	struct run *run = add_run(engine, id);
	if (wake_ms != 0) {
		resume_times(run, rested_ms);
		set_due(run, wake_ms);
		engine->counts.recovered++;
		return;
	}
	run->restarted = true;
	list_add_last(&engine->to_load, &more_of(run)->waiting);
	load_next(engine);
}

bool engine_is_recovering(const struct engine *engine)
{
	return !list_empty(&engine->to_load) || engine->loading > 0;
}

/* --- from outside ------------------------------------------------------------------------------------------------- */

int engine_submit(struct engine *engine, struct engine_submit *submit, struct error *error)
{
	static const struct error none = {0};

	if (engine->stopping)
		return error_set(error, ERR_BUSY, "the daemon is stopping; submit again when it is back");
	if (engine->run_count >= ENGINE_RUNS_MAX)
		return error_set(error, ERR_BUSY, "%d runs are under way, the most allowed (ENGINE_RUNS_MAX)", ENGINE_RUNS_MAX);
	if (find_run(engine, submit->id))
		return error_set(error, ERR_EXISTS, "run %s is under way", submit->id);
	if (FAIL_POINT_FAILS(SUBMIT_RECEIVED, error))
		return error->code;
	struct run *run = add_run(engine, submit->id);
	struct run_live *live = live_new(run, submit->definition);
	struct message *message = new_message(TRIGGER_SUBMITTED);
	live->created_us = submit->received_us;
	live->admission_us = (int64_t)(now_us(engine) - submit->received_us);
	message->submit = submit;
	list_add_last(&live->deciding, &message->link);
	if (submit->parent)
		list_add_last(&engine->submitting, &live->submitting);
	run->stage = STAGE_IDLE;
	decide(run);
	FAIL_POINT(SUBMIT_DECIDED);
	if (run->stage != STAGE_POSTPONED)
		return 0;
	/* The journal's queue is full: the client is told, nothing of the run exists. */
	list_remove(&message->link);
	free(message);
	free_run(run, &none); /* nobody can wait for it yet */
	return error_set(error, ERR_BUSY, "%d appends wait for the journal, the most allowed (STORE_QUEUE_MAX); retry", STORE_QUEUE_MAX);
}

/* A decision that the store had no room for, or that could not get its values: nothing of it is durable, so what is asked for now is decided first. */
static void withdraw_decision(struct run *run)
{
	struct run_live *live = run->live;

	if (run->stage != STAGE_POSTPONED || first_message(live)->kind == TRIGGER_SUBMITTED || is_control(first_message(live)->kind))
		return;
	put_back(live, 0);
	decision_close(&live->decision);
	value_cache_clear(&live->loaded);
	live->decided_ms = 0;
	live->rounds = 0;
	set_deadline(run, 0);
	run->stage = STAGE_IDLE;
}

int engine_control(struct engine *engine, struct engine_control *control, struct error *error)
{
	struct run *run = find_run(engine, control->id);

	if (!run)
		return error_set(error, ERR_NOT_FOUND, "run %s is not under way", control->id);
	if (run->stage == STAGE_BROKEN)
		return control_broken(run, control, error);
	FAIL_POINT(CANCEL_RECEIVED);
	withdraw_decision(run);
	post_control(run, control);
	run_advance(run);
	return 0;
}

/* --- trees -------------------------------------------------------------------------------------------------------- */

/* A run and all below it, as one transaction. First they are held: each comes to rest and stays so, and the journal is asked for what is open below
 * until it names none that is not held. Since runs that are held start no children, and children on their way are waited for, that is all. Then each
 * decides, and one append takes the entries of all. Trees are disjoint or one inside the other, and only one is held at a time, so none waits for another. */
enum tree_phase { TREE_WAITING, TREE_HOLDING, TREE_LOOKING, TREE_DECIDING, TREE_COMMITTING, TREE_APPLYING, TREE_RELEASING };

struct tree_work {
	struct list link;
	struct engine_tree *asked;
	enum tree_phase phase;
	struct arena arena;
	const char **ids; /* parents before their children; some may be gone, or not held, meanwhile */
	size_t count, cap;
	size_t at; /* so many of them are dealt with in this phase */
	const char *reason; /* for those below the root */
	size_t pending; /* members that are not ready */
	bool is_stepping, again;
	bool is_over; /* with asked->error, or well */
	struct engine_look look;
	struct engine_control *controls; /* one for each id */
	struct store_append append;
};

static struct tree_work *current_tree(const struct engine *engine)
{
	return list_empty(&engine->trees) ? NULL : CONTAINER_OF(engine->trees.next, struct tree_work, link);
}

static struct run *find_member(const struct engine *engine, const char *id)
{
	struct run *run = find_run(engine, id);

	return run && run->is_held ? run : NULL;
}

static void member_ready(struct run *run)
{
	struct tree_work *work = current_tree(run->engine);

	if (run->is_ready)
		return;
	run->is_ready = true;
	CHECK(work->pending > 0);
	if (--work->pending == 0)
		tree_step(run->engine);
}

/* It is gone, or broken. */
static void leave_tree(struct engine *engine, bool was_ready, const char *id, const struct error *error)
{
	struct tree_work *work = current_tree(engine);

	if (!work)
		return; /* the engine goes away */
	if (error->code != ERR_NONE && strcmp(id, work->asked->root.id) == 0 && !work->is_over) {
		work->asked->error = *error;
		work->is_over = true;
	}
	CHECK(was_ready || work->pending > 0);
	if (!was_ready && --work->pending == 0)
		tree_step(engine);
}

static void withdraw_decision(struct run *run);

static void hold(struct tree_work *work, struct run *run)
{
	work->ids = arena_grow(&work->arena, work->ids, work->count, &work->cap, sizeof *work->ids);
	work->ids[work->count++] = arena_text(&work->arena, run->id);
	run->is_held = true;
	run->is_ready = false;
	work->pending++;
	withdraw_decision(run);
	if (run->stage == STAGE_PARKED)
		load_first(run);
	else if (run->stage == STAGE_IDLE && !run->advancing)
		member_ready(run);
}

/* A resume begins attempts, and a restart takes what it finds in flight for interrupted: so that comes first, although the run is held. With the others it is
 * the other way round: what begins anew only to be called off, or put off, need not begin. */
static bool restarts_first(const struct run *run)
{
	const struct list *inbox = &run->live->inbox;

	return !list_empty(inbox) && message_at(inbox->next)->kind == TRIGGER_RESTARTED && current_tree(run->engine)->asked->root.verb == CONTROL_RESUME;
}

/* Which of them the journal does not know yet. */
static bool has_children_on_their_way(const struct engine *engine)
{
	LIST_EACH(link, &engine->submitting) {
		const struct run_live *live = CONTAINER_OF(link, struct run_live, submitting);
		const char *parent = json_get_text(first_message(live)->submit->parent, "run");
		if (parent && find_member(engine, parent))
			return true;
	}
	return false;
}

static void on_looked_below(struct engine_look *look)
{
	struct engine *engine = look->owner;
	struct tree_work *work = current_tree(engine);
	bool is_new = false;

	engine->loading--;
	work->phase = TREE_HOLDING;
	if (look->error.code != ERR_NONE) {
		work->asked->error = look->error;
		work->is_over = true;
	} else if (look->count >= engine->config.tree_runs) {
		error_set(&work->asked->error, ERR_TOO_LARGE, "more than %zu runs are below run %s (ENGINE_TREE_RUNS_MAX)", engine->config.tree_runs - 1, work->asked->root.id);
		work->is_over = true;
	}
	work->is_stepping = true; /* not before all are held */
	for (size_t i = 0; i < look->count && !work->is_over; i++) {
		struct run *run = find_run(engine, look->ids[i]);
		if (!run || run->is_held || run->stage == STAGE_BROKEN)
			continue;
		hold(work, run);
		is_new = true;
	}
	work->is_stepping = false;
	arena_close(&look->arena);
	if (!is_new && !work->is_over)
		work->phase = TREE_DECIDING;
	tree_step(engine);
	load_next(engine); /* runs wait for this place too */
}

static void look_below(struct engine *engine, struct tree_work *work)
{
	work->phase = TREE_LOOKING;
	work->look = (struct engine_look){.run_id = work->asked->root.id, .limit = engine->config.tree_runs, .on_done = on_looked_below, .owner = engine};
	engine->loading++;
	engine->ports.look_below(engine->ports.arg, &work->look);
}

static void on_member_controlled(struct engine_control *control)
{
	(void)control; /* the tree as a whole is answered for */
}

static void decide_member(struct run *run, struct engine_control *control, const struct engine_control *root, const char *reason)
{
	enum trigger_kind kind = root->verb == CONTROL_PAUSE ? TRIGGER_PAUSE : root->verb == CONTROL_RESUME ? TRIGGER_RESUME : TRIGGER_CANCEL;
	struct message *message = new_message(kind);

	*control = (struct engine_control){.verb = root->verb, .id = run->id, .reason = reason, .on_done = on_member_controlled};
	CHECK(run->stage == STAGE_IDLE);
	list_init(&control->link);
	list_add_last(&message->controls, &control->link);
	message->of_tree = true;
	list_add_last(&run->live->deciding, &message->link);
	run->advancing = true;
	decide(run);
	run->advancing = false;
	if (run->stage == STAGE_IDLE) /* it is so already, or has ended */
		member_ready(run);
}

/* False: the next turn goes on. */
static bool decide_some(struct engine *engine, struct tree_work *work)
{
	const struct engine_control *root = &work->asked->root;
	size_t until = work->count - work->at > ENGINE_TREE_TURN ? work->at + ENGINE_TREE_TURN : work->count;

	if (!work->controls) {
		work->pending++; /* until all have decided */
		work->reason = root->reason;
		if (!work->reason && (root->verb == CONTROL_CANCEL || root->verb == CONTROL_KILL))
			work->reason = arena_printf(&work->arena, "run %s was %s, and does not wait for it any more", root->id, root->verb == CONTROL_KILL ? "killed" : "cancelled");
		work->controls = arena_alloc(&work->arena, (work->count + 1) * sizeof *work->controls);
	}
	for (; work->at < until; work->at++) {
		struct run *run = find_member(engine, work->ids[work->at]);
		if (!run)
			continue;
		run->is_ready = false; /* not before its turn: what comes for it until then waits in its inbox, and is not its decision */
		work->pending++;
		work->asked->run_count++;
		decide_member(run, &work->controls[work->at], root, work->at == 0 ? root->reason : work->reason);
	}
	if (work->at < work->count)
		return false;
	work->pending--;
	return true;
}

static void on_tree_committed(struct store_append *append);

/* All entries, one run's after the other's. False: nothing is to be appended. */
static bool gather_entries(struct engine *engine, struct tree_work *work)
{
	size_t count = 0, bytes = 0;
	struct entry *entries = NULL;
	const char **forget = arena_alloc(&work->arena, (work->count + 1) * sizeof *forget);

	work->append = (struct store_append){.urgent = true, .on_done = on_tree_committed, .owner = engine, .forget_also = forget};
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < work->count; i++) {
			struct run *run = find_member(engine, work->ids[i]);
			if (!run || run->stage != STAGE_DECIDED)
				continue;
			struct run_live *live = run->live;
			if (pass == 1) {
				memcpy(entries + work->append.entry_count, live->append.entries, live->append.entry_count * sizeof *entries);
				live->append.entries = entries + work->append.entry_count;
				work->append.entry_count += live->append.entry_count;
				continue;
			}
			count += live->append.entry_count;
			for (size_t k = 0; k < live->append.entry_count; k++)
				for (size_t v = 0; v < live->append.entries[k].value_count; v++)
					bytes += live->append.entries[k].values[v].size;
			drop_snapshot(run); /* one for each of so many would hold up the loop */
			if (live->append.forget_snapshot)
				forget[work->append.forget_also_count++] = work->ids[i];
		}
		if (count > STORE_APPEND_ENTRIES_MAX || bytes > ENGINE_TREE_VALUES_MAX) {
			error_set(&work->asked->error, ERR_TOO_LARGE, "%zu entries with %zu bytes of values are too much for one transaction (STORE_APPEND_ENTRIES_MAX, ENGINE_TREE_VALUES_MAX)",
				  count, bytes);
			return false;
		}
		if (pass == 0)
			entries = arena_alloc(&work->arena, (count + 1) * sizeof *entries);
	}
	work->append.entries = entries;
	return count > 0;
}

static void append_tree(struct engine *engine)
{
	struct tree_work *work = current_tree(engine);

	work->append.error = (struct error){0};
	engine->counts.committing++;
	if (engine->ports.append(engine->ports.arg, &work->append) == 0)
		return;
	work->append.error.code = ERR_BUSY;
	on_tree_committed(&work->append);
}

static void on_tree_committed(struct store_append *append)
{
	struct engine *engine = append->owner;
	struct tree_work *work = current_tree(engine);

	notice_clock(engine);
	engine->counts.committing--;
	if (append->error.code == ERR_FULL || append->error.code == ERR_BUSY) {
		for (size_t i = 0; i < work->count; i++) {
			struct run *run = find_member(engine, work->ids[i]);
			if (!run || run->stage != STAGE_DECIDED)
				continue;
			set_deadline(run, wall_ms(engine) + ENGINE_RETRY_APPEND_MS); /* one of them keeps the time for all */
			return;
		}
	}
	if (append->error.code == ERR_NONE)
		FAIL_POINT(TREE_COMMITTED);
	else
		work->asked->error = append->error;
	work->at = 0;
	work->phase = append->error.code == ERR_NONE ? TREE_APPLYING : TREE_RELEASING;
	tree_step(engine);
}

static void apply_member(struct run *run, const struct store_append *append)
{
	struct run_live *live = run->live;
	const char *id = live->append.snapshot_run;
	struct entry *entries = live->append.entries;
	size_t count = live->append.entry_count;

	live->append = *append;
	live->append.snapshot_run = id;
	live->append.snapshot = (struct bytes){0};
	live->append.forget_also = NULL; /* was the tree's: the run's next append must not name them */
	live->append.forget_also_count = 0;
	live->append.entries = entries;
	live->append.entry_count = count;
	live->append.seq_first = entries[0].seq;
	live->append.owner = run;
	live->append.sign_us = 0;
	run->stage = STAGE_COMMITTING;
	run->engine->counts.committing++;
	on_entries_committed(&live->append); /* May free run. */
	FAIL_POINT(TREE_APPLIED);
}

static void release_member(struct run *run)
{
	static const struct error none = {0};

	if (run->stage == STAGE_DECIDED) { /* of which nothing is durable */
		finish_decision(run, &none);
		set_deadline(run, 0);
	}
	run->is_held = run->is_ready = false;
	if (run->stage == STAGE_PARKED && !waits_for_load(run))
		load_first(run); /* its load was refused: its times, or what came for it, would wait for ever */
	run_advance(run);
}

/* Apply or release: no more in one turn than the loop can bear. */
static bool pass_some(struct engine *engine, struct tree_work *work)
{
	size_t until = work->count - work->at > ENGINE_TREE_TURN ? work->at + ENGINE_TREE_TURN : work->count;

	for (; work->at < until; work->at++) {
		struct run *run = find_member(engine, work->ids[work->at]);
		if (run && work->phase == TREE_RELEASING)
			release_member(run);
		else if (run && run->stage == STAGE_DECIDED)
			apply_member(run, &work->append);
	}
	return work->at == work->count;
}

static void hold_root(struct engine *engine, struct tree_work *work)
{
	struct run *run = find_run(engine, work->asked->root.id);

	work->phase = TREE_HOLDING;
	if (run && run->stage != STAGE_BROKEN && !run->reopening)
		hold(work, run);
	else
		work->is_over = true; /* it ended, or broke, while it waited for its turn: whoever asked looks what became of it */
}

/* What can be done now. True: all is. */
static bool tree_go_on(struct engine *engine, struct tree_work *work)
{
	bool passed;

	if (work->phase == TREE_WAITING)
		hold_root(engine, work);
	if (work->is_over && work->phase == TREE_HOLDING)
		work->phase = TREE_RELEASING;
	switch (work->phase) {
	case TREE_HOLDING:
		if (work->pending == 0 && !has_children_on_their_way(engine))
			look_below(engine, work);
		return false;
	case TREE_DECIDING:
		if (work->at < work->count || !work->controls) {
			passed = decide_some(engine, work);
			engine->tree_turn = !passed;
			if (!passed)
				return false;
		}
		if (work->pending > 0)
			return false;
		if (!work->is_over && gather_entries(engine, work)) {
			FAIL_POINT(TREE_DECIDED);
			work->phase = TREE_COMMITTING;
			append_tree(engine);
			return false;
		}
		work->at = 0;
		work->phase = TREE_RELEASING;
		work->again = true;
		return false;
	case TREE_APPLYING:
		passed = pass_some(engine, work);
		engine->tree_turn = !passed;
		if (passed) {
			work->at = 0;
			work->phase = TREE_RELEASING;
			work->again = true;
		}
		return false;
	case TREE_RELEASING:
		passed = pass_some(engine, work);
		engine->tree_turn = !passed;
		return passed;
	case TREE_WAITING:
	case TREE_LOOKING:
	case TREE_COMMITTING:
		break;
	}
	return false;
}

static void tree_step(struct engine *engine)
{
	struct tree_work *work = current_tree(engine);
	bool done = false;

	if (!work)
		return;
	if (work->is_stepping) {
		work->again = true;
		return;
	}
	work->is_stepping = true;
	do {
		work->again = false;
		done = tree_go_on(engine, work);
	} while (work->again && !done);
	work->is_stepping = false;
	if (!done)
		return;
	struct engine_tree *asked = work->asked;
	list_remove(&work->link);
	engine->tree_count--;
	arena_close(&work->arena);
	free(work);
	if (engine->ports.on_tree_done)
		engine->ports.on_tree_done(engine->ports.arg);
	engine->tree_turn = !list_empty(&engine->trees);
	asked->on_done(asked);
}

static bool awaits_runs(const struct task *task)
{
	if (task->kind == TASK_CALL && task->function == FUNCTION_RUN && task->awaits)
		return true;
	for (size_t i = 0; i < task->body.count; i++)
		if (awaits_runs(task->body.tasks[i]))
			return true;
	for (size_t i = 0; i < task->handler.count; i++)
		if (awaits_runs(task->handler.tasks[i]))
			return true;
	return false;
}

/* A run that waits for others stays in memory, but for one that is suspended, or was not read since the start. */
static bool may_have_below(const struct run *run)
{
	if (!run->engine->ports.look_below || run->reopening)
		return false;
	return run->live ? awaits_runs(run->live->definition->root) : run->restarted || run->is_suspended || run->stage == STAGE_LOADING;
}

static void on_root_controlled(struct engine_control *control)
{
	struct engine_tree *tree = control->owner;

	tree->error = control->error;
	tree->run_count = 1;
	tree->on_done(tree);
}

int engine_control_tree(struct engine *engine, struct engine_tree *tree, struct error *error)
{
	struct run *run = find_run(engine, tree->root.id);

	tree->error = (struct error){0};
	tree->run_count = 0;
	if (!run || run->stage == STAGE_BROKEN || !may_have_below(run)) {
		tree->root.on_done = on_root_controlled;
		tree->root.owner = tree;
		return engine_control(engine, &tree->root, error);
	}
	if (engine->tree_count >= ENGINE_TREES_MAX)
		return error_set(error, ERR_BUSY, "%d trees of runs wait for their turn, the most allowed (ENGINE_TREES_MAX); ask again", ENGINE_TREES_MAX);
	FAIL_POINT(TREE_RECEIVED);
	struct tree_work *work = memory_zero(sizeof *work);
	work->asked = tree;
	arena_init(&work->arena);
	list_init(&work->link);
	list_add_last(&engine->trees, &work->link);
	if (++engine->tree_count == 1)
		tree_step(engine);
	return 0;
}

bool engine_run_is_held(const struct engine *engine, const char *id)
{
	return find_member(engine, id) != NULL;
}

/* The engine goes away, and its runs have: nothing of them was done. */
static void drop_trees(struct list *trees, const struct error *gone)
{
	while (!list_empty(trees)) {
		struct tree_work *work = CONTAINER_OF(trees->next, struct tree_work, link);
		struct engine_tree *asked = work->asked;
		list_remove(&work->link);
		arena_close(&work->arena);
		free(work);
		asked->error = *gone;
		asked->on_done(asked);
	}
}

int engine_retry(struct engine *engine, struct engine_retry *retry, struct error *error)
{
	if (engine->stopping)
		return error_set(error, ERR_BUSY, "the daemon is stopping; retry when it is back");
	if (engine->run_count >= ENGINE_RUNS_MAX)
		return error_set(error, ERR_BUSY, "%d runs are under way, the most allowed (ENGINE_RUNS_MAX)", ENGINE_RUNS_MAX);
	if (find_run(engine, retry->id))
		return error_set(error, ERR_EXISTS, "run %s is under way; only a run that has faulted can be retried", retry->id);
	struct run *run = add_run(engine, retry->id);
	struct message *message = new_message(TRIGGER_RETRY);
	run->reopening = true;
	message->retry = retry;
	post(run, message, false);
	return 0;
}

int engine_offer_event(struct engine *engine, struct engine_offer *offer, struct error *error)
{
	struct run *run = find_run(engine, offer->run_id);

	if (!run)
		return error_set(error, ERR_NOT_FOUND, "run %s is not under way", offer->run_id);
	if (run->stage == STAGE_BROKEN)
		return error_set(error, ERR_NOT_FOUND, "run %s is in quarantine", offer->run_id);
	if (engine->stopping)
		return error_set(error, ERR_BUSY, "the daemon is stopping");
	FAIL_POINT(EVENT_OFFERED);
	struct message *message = new_message(TRIGGER_EVENT);
	message->offer = offer;
	offer->consumed = false;
	post(run, message, false);
	run_advance(run);
	return 0;
}

int engine_watch(struct engine *engine, struct engine_watch *watch)
{
	struct run *run = find_run(engine, watch->id);

	list_init(&watch->link);
	if (!run)
		return ERR_NOT_FOUND;
	list_add_last(&more_of(run)->watches, &watch->link);
	return 0;
}

void engine_unwatch(struct engine_watch *watch)
{
	list_remove(&watch->link);
}

enum engine_flight engine_step_flight(const struct engine *engine, const char *id, const char *step_id)
{
	const struct run *run = find_run(engine, id);
	struct arena arena;
	uint64_t execution = 0;

	if (!run)
		return FLIGHT_NO;
	if (run->restarted || run->stage == STAGE_BROKEN || (run->live && run->stage == STAGE_LOADING))
		return FLIGHT_UNKNOWN;
	if (!run->live)
		return run->is_suspended ? FLIGHT_UNKNOWN : FLIGHT_NO; /* parked: nothing is in flight */
	arena_init(&arena);
	const struct instance *instance = state_find_step(&run->live->state, step_id, &arena, &execution);
	arena_close(&arena);
	if (!instance || instance->execution != execution)
		return FLIGHT_NO;
	return instance->in_flight ? FLIGHT_YES : run->is_suspended && instance->phase == INSTANCE_STARTED ? FLIGHT_UNKNOWN : FLIGHT_NO;
}

void engine_counts(const struct engine *engine, struct engine_counts *counts)
{
	*counts = engine->counts;
	counts->open = engine->run_count;
	for (size_t i = 0; i < engine->slot_count; i++)
		for (const struct run *run = engine->slots[i]; run; run = run->next)
			counts->parked += run->stage == STAGE_PARKED;
}

struct engine *engine_new(const struct engine_config *config, const struct engine_ports *ports)
{
	struct engine *engine = memory_zero(sizeof *engine);

	engine->config = *config;
	engine->ports = *ports;
	if (engine->config.value_cache_bytes == 0)
		engine->config.value_cache_bytes = ENGINE_VALUE_CACHE_BYTES;
	if (engine->config.snapshot_entries == 0)
		engine->config.snapshot_entries = ENGINE_SNAPSHOT_ENTRIES;
	if (engine->config.load_concurrency == 0)
		engine->config.load_concurrency = ENGINE_RECOVER_CONCURRENCY;
	if (engine->config.tree_runs == 0)
		engine->config.tree_runs = ENGINE_TREE_RUNS_MAX;
	list_init(&engine->to_load);
	list_init(&engine->activities);
	list_init(&engine->trees);
	list_init(&engine->submitting);
	value_cache_init(&engine->values, engine->config.value_cache_bytes);
	return engine;
}

void engine_stop(struct engine *engine)
{
	engine->stopping = true;
	/* Who waits for a retry would wait until the drain is over; one that is being read is refused when that is done. */
	for (size_t i = 0; i < engine->slot_count; i++)
		for (struct run *run = engine->slots[i], *next; run; run = next) {
			next = run->next;
			if (run->reopening && run->stage == STAGE_PARKED)
				refuse_reopening(run);
		}
}

void engine_forget_removed(struct engine *engine)
{
	value_cache_clear(&engine->values);
	for (size_t i = 0; engine->ended && i < ENGINE_ENDED_KEPT; i++)
		engine->ended[i].id[0] = '\0'; /* the journal knows those that are left */
}

bool engine_is_quiet(const struct engine *engine)
{
	return engine->counts.committing == 0 && engine->loading == 0 && engine->evaluating == 0;
}

const struct state *engine_run_state(const struct engine *engine, const char *id)
{
	const struct run *run = find_run(engine, id);

	return run && run->live && run->stage != STAGE_LOADING ? &run->live->state : NULL;
}

void engine_free(struct engine *engine)
{
	CHECK(engine_is_quiet(engine));
	engine_drop(engine);
}

void engine_drop(struct engine *engine)
{
	struct error gone = {.code = ERR_CANCELLED, .message = "the daemon is stopping"};

	struct list trees; /* what their runs have decided points into them */

	engine->ports.unlisten = NULL; /* whoever listened goes away too */
	engine->ports.on_spent = NULL; /* the next start finds in flight what is not on record */
	list_init(&trees);
	list_move_all(&trees, &engine->trees);
	for (size_t i = 0; i < engine->slot_count; i++)
		while (engine->slots[i]) {
			struct run *run = engine->slots[i];
			struct list deciding;
			list_init(&deciding);
			if (run->live)
				list_move_all(&deciding, &run->live->deciding);
			free(more_of(run)->load);
			while (!list_empty(&run->more->watches)) /* whoever watches goes away too */
				list_remove(run->more->watches.next);
			free_run(run, &gone);
			finish_messages(&deciding, &gone);
		}
	drop_trees(&trees, &gone);
	while (!list_empty(&engine->activities))
		free_activity(CONTAINER_OF(engine->activities.next, struct engine_activity, of_engine));
	value_cache_clear(&engine->values);
	for (size_t i = 0; i < ENGINE_DEFINITIONS_KEPT && engine->definitions[i]; i++)
		release_definition(engine->definitions[i]);
	for (size_t i = 0; engine->ended && i < ENGINE_ENDED_KEPT; i++)
		free(engine->ended[i].summary);
	free(engine->ended);
	free(engine->heap);
	free(engine->slots);
	free(engine);
}
