/* The world of one seed: its clock, its events, its clients, its crashes. Read world_run(). */
#include "tests/simulation/simulation.h"
#include "workflow/fork.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_MIN = 5, RUNS_MAX = 9, ARRIVALS_US = 12000000, FAULTS_UNTIL_US = 60000000, PARK_AFTER_MAX_MS = 300, SLEEP_MAX_MS = 60000,
       FULL_LEFT_MAX = 800 << 10,
       RETRIES_MAX = 3 /* of one run */,
       FORKS_OF_SEED_MAX = 4, RETRIES_OF_SEED_MAX = 8 /* a run that runs itself begins a tree of runs with each */ };

static const int64_t wall_start_ms = 1790000000000; /* September 2026 */

/* --- randomness: SplitMix64 ---------------------------------------------------------------------------------------- */

uint64_t random_mix(uint64_t value)
{
	value += 0x9e3779b97f4a7c15u;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
	return value ^ (value >> 31);
}

uint64_t random_next(struct random *random)
{
	uint64_t value = random_mix(random->state);

	random->state += 0x9e3779b97f4a7c15u;
	return value;
}

uint64_t random_below(struct random *random, uint64_t bound)
{
	return bound ? random_next(random) % bound : 0;
}

uint64_t random_between(struct random *random, uint64_t low, uint64_t high)
{
	return low + random_below(random, high - low + 1);
}

bool random_chance(struct random *random, unsigned per_mille)
{
	return random_below(random, 1000) < per_mille;
}

/* --- events: a heap by time, then by the order in which they were made --------------------------------------------- */

static bool before(const struct event *a, const struct event *b)
{
	return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

uint64_t world_event(struct world *world, uint64_t delay_us, bool with_engine, void (*fire)(struct world *, void *), void *arg)
{
	struct event event = {world->now_us + delay_us, ++world->event_order, with_engine ? world->boot : 0, fire, arg};
	size_t at = world->event_count++;

	if (at == world->event_cap) {
		world->event_cap = world->event_cap ? world->event_cap * 2 : 64;
		world->events = memory_resize(world->events, world->event_cap * sizeof *world->events);
	}
	for (; at > 0 && before(&event, &world->events[(at - 1) / 2]); at = (at - 1) / 2)
		world->events[at] = world->events[(at - 1) / 2];
	world->events[at] = event;
	return event.order;
}

void world_at(struct world *world, uint64_t delay_us, bool with_engine, void (*fire)(struct world *, void *), void *arg)
{
	world_event(world, delay_us, with_engine, fire, arg);
}

static struct event take_event(struct world *world)
{
	struct event first = world->events[0], last = world->events[--world->event_count];
	size_t at = 0;

	for (size_t child; (child = at * 2 + 1) < world->event_count; at = child) {
		if (child + 1 < world->event_count && before(&world->events[child + 1], &world->events[child]))
			child++;
		if (!before(&world->events[child], &last))
			break;
		world->events[at] = world->events[child];
	}
	if (world->event_count > 0)
		world->events[at] = last;
	return first;
}

void world_cancel_event(struct world *world, uint64_t order)
{
	for (size_t i = 0; i < world->event_count; i++)
		if (world->events[i].order == order)
			world->events[i].fire = NULL;
}

int64_t world_wall_ms(const struct world *world)
{
	return wall_start_ms + (int64_t)(world->now_us / 1000) + world->wall_offset_ms;
}

/* --- the engine's life --------------------------------------------------------------------------------------------- */

static uint64_t port_now_us(void *arg)
{
	return ((struct world *)arg)->now_us;
}

static int64_t port_wall_ms(void *arg)
{
	return world_wall_ms(arg);
}

static void port_run_failed(void *arg, const char *run_id, const struct error *error)
{
	broken(arg, world_run_model(arg, run_id), "the engine gives it up: %s", error->message);
}

static void on_sweep(struct world *world, void *arg)
{
	(void)arg;
	if (children_sweep(&world->children) || engine_is_recovering(world->engine))
		world_at(world, CHILDREN_SWEEP_MS * 1000, true, on_sweep, NULL);
}

static void close_children(struct world *world)
{
	world->counters.children += world->children.started;
	world->counters.attached += world->children.attached;
	world->counters.orphans += world->children.orphans;
	children_close(&world->children);
}

static void take_up_run(struct world *world, const struct store_open_run *row)
{
	struct run_model *run = world_run_model(world, row->id);

	if (!run || !run->created || run->ended)
		broken(world, run, "the store has %s among the open runs", row->id);
	if (row->wake_ms != run->wake_ms || (row->wake_ms != 0 && row->rested_ms != run->rested_ms) || row->is_awaited != run->is_awaited || row->is_quarantined)
		broken(world, run, "the store says that it wakes at %" PRId64 ", its last entry %" PRId64, row->wake_ms, run->wake_ms);
	run->recovering = row->wake_ms == 0;
	world->counters.left_alone += row->wake_ms != 0;
	if (row->is_awaited)
		children_add_open(&world->children, row->id, row->parent, row->parent_step);
	engine_recover(world->engine, row->id, row->wake_ms, row->rested_ms);
}

static void start_engine(struct world *world)
{
	const struct engine_ports ports = {
		.arg = world, .now_us = port_now_us, .wall_ms = port_wall_ms, .append = journal_append, .load_run = journal_load_run,
		.load_values = journal_load_values, .evaluate = expression_evaluate, .listen = events_listen, .unlisten = events_unlisten, .start_activity = attempt_start, .cancel_activity = attempt_cancel, .close_activity = attempt_close,
		.on_committed = check_committed, .on_run_failed = port_run_failed,
	};
	struct engine_config config = {.origin = world->journal.origin, .daemon_version = "1.2.3",
				       .event_window_ms = random_chance(&world->random, 500) ? 0 : (int64_t)random_below(&world->random, 5000),
				       .park_after_ms = (int64_t)random_below(&world->random, PARK_AFTER_MAX_MS)};

	if (random_chance(&world->random, 100))
		config.park_after_ms = -1;
	/* Small, so that values fall out of the cache and loads wait for one another. */
	config.value_cache_bytes = random_between(&world->random, 1, 256) << 10;
	config.snapshot_entries = world->counters.snapshots == 0 ? 1 : random_between(&world->random, 1, 30); /* each seed takes some */
	config.load_concurrency = random_between(&world->random, 1, 4);
	const struct children_ports children = {.arg = world, .look = journal_look, .now_us = port_now_us, .wall_ms = port_wall_ms};

	world->armed_ms = 0;
	world->stopping = false;
	events_forget_listeners(world);
	children_init(&world->children, &children);
	world->engine = world->children.engine = engine_new(&config, &ports);
	world_at(world, 0, true, on_sweep, NULL);
	journal_each_open_run(world, take_up_run);
	for (size_t i = 0; i < world->run_count; i++)
		if (world->runs[i]->created && !world->runs[i]->ended && !engine_run_is_open(world->engine, world->runs[i]->id))
			broken(world, world->runs[i], "it has not ended, but is not among the store's open runs");
}

void world_crash(struct world *world)
{
	world->counters.crashes++;
	journal_crash(world);
	children_abandon(&world->children);
	events_forget_appends(world);
	world->is_dropping = true;
	engine_drop(world->engine);
	world->is_dropping = false;
	close_children(world);
	if (!list_empty(&world->attempts))
		broken(world, NULL, "an activity outlives the engine that started it");
	world->boot++; /* what was to happen in the old one does not */
	journal_open(world);
	start_engine(world);
}

static void on_crash(struct world *world, void *arg)
{
	(void)arg;
	if (world->faults)
		world_crash(world);
}

static void on_stopping(struct world *world, void *arg)
{
	(void)arg;
	if (!engine_is_quiet(world->engine) || !list_empty(&world->attempts) || !children_are_quiet(&world->children)) {
		world_at(world, 1000, true, on_stopping, NULL);
		return;
	}
	children_abandon(&world->children);
	engine_free(world->engine);
	close_children(world);
	journal_stop(world);
	events_forget_appends(world);
	world->boot++;
	journal_open(world);
	start_engine(world);
}

static void on_stop(struct world *world, void *arg)
{
	(void)arg;
	if (world->stopping || !world->faults)
		return;
	world->counters.stops++;
	world->stopping = true;
	engine_stop(world->engine);
	children_stop(&world->children);
	attempts_interrupt(world);
	world_at(world, 1000, true, on_stopping, NULL);
}

static void on_clock_step(struct world *world, void *arg)
{
	(void)arg;
	if (!world->faults)
		return;
	int64_t step = (int64_t)random_between(&world->random, 10, random_chance(&world->random, 300) ? 3600000 : 5000);
	bool forward = random_chance(&world->random, 500);
	world->wall_offset_ms += forward ? step : -step;
	world->steps_forward += forward;
	world->counters.steps_clock++;
}

static void on_full_end(struct world *world, void *arg)
{
	(void)arg;
	journal_fill_disk(world, UINT64_MAX);
}

static void on_full(struct world *world, void *arg)
{
	(void)arg;
	if (world->faults)
		journal_fill_disk(world, random_below(&world->random, FULL_LEFT_MAX));
	world_at(world, random_between(&world->random, 1000, 3000000), false, on_full_end, NULL);
}

/* --- clients ------------------------------------------------------------------------------------------------------- */

struct run_model *world_run_model(struct world *world, const char *id)
{
	for (size_t i = 0; i < world->run_count; i++)
		if (strcmp(world->runs[i]->id, id) == 0)
			return world->runs[i];
	return NULL;
}

/* One who submits a run and asks again until it knows that the run is there; or one who cancels, pauses or resumes it. */
struct client {
	struct list link;
	struct world *world;
	struct run_model *run; /* NULL: not chosen yet */
	struct arena arena;
	unsigned definition;
	struct bytes input;
	const struct json *labels;
	struct engine_submit submit;
	struct engine_control control;
	enum engine_verb verb;
	struct engine_retry retry;
	unsigned retries_before;
	struct budget_amount limits;
	const struct budget_amount *budget; /* NULL: none */
	struct forking fork;
	struct run_model *original; /* of a fork */
	struct entry extra;
	struct engine_watch watch;
	bool watching, waiting;
};

static void on_submit(struct world *world, void *arg);
static void on_control(struct world *world, void *arg);

static void again(struct client *client, void (*fire)(struct world *, void *))
{
	world_at(client->world, random_between(&client->world->random, 1000, 2000000), false, fire, client);
}

static void on_run_ended(struct engine_watch *watch)
{
	struct client *client = watch->owner;

	client->watching = false;
	if (client->run->created && !client->run->ended)
		broken(client->world, client->run, "who watches is told of an end that is not durable");
}

static void on_submitted(struct engine_submit *submit)
{
	struct client *client = submit->owner;
	struct world *world = client->world;

	client->waiting = false;
	switch (submit->error.code) {
	case ERR_NONE:
		if (!client->run->created)
			broken(world, client->run, "it is acknowledged, but not in the store");
		client->run->acknowledged = true;
		break;
	case ERR_EXISTS:
		if (!client->run->created)
			broken(world, client->run, "it is said to exist, but is not in the store");
		break;
	case ERR_FULL:
	case ERR_BUSY:
	case ERR_CANCELLED: /* the daemon went away: nobody knows */
		again(client, on_submit);
		break;
	default:
		broken(world, client->run, "its submission fails: %s", submit->error.message);
	}
}

struct entry definition_entry(struct world *world, unsigned number, struct arena *arena)
{
	const struct definition *definition = world->definitions[number];
	struct entry entry = {.kind = ENTRY_DEFINITION_ADDED, .data = json_object(arena), .time_ms = world_wall_ms(world)};

	json_set_text(arena, entry.data, "namespace", definition->namespace);
	json_set_text(arena, entry.data, "name", definition->name);
	json_set_text(arena, entry.data, "version", definition->version);
	json_set_boolean(arena, entry.data, "registered", true);
	entry_add_value(arena, &entry, "definition", world->documents[number]);
	return entry;
}

static void on_submit(struct world *world, void *arg)
{
	struct client *client = arg;
	struct error error = {0};
	struct definition *definition = world->definitions[client->definition];

	client->submit = (struct engine_submit){.definition = definition, .id = client->run->id, .input = client->input, .labels = client->labels,
						.fork = client->original ? &client->fork : NULL, .budget = client->budget,
						.received_us = world->now_us > 500 ? world->now_us - random_below(&world->random, 500) : 0, .on_done = on_submitted,
						.owner = client};
	if (!world->definition_added[client->definition]) { /* goes into the journal with its first run */
		client->extra = definition_entry(world, client->definition, &client->arena);
		client->submit.extra = &client->extra;
		client->submit.extra_count = 1;
	}
	client->waiting = true;
	switch (engine_submit(world->engine, &client->submit, &error)) {
	case 0:
		if (!client->watching && random_chance(&world->random, 500)) {
			client->watch = (struct engine_watch){.id = client->run->id, .on_ended = on_run_ended, .owner = client};
			client->watching = engine_watch(world->engine, &client->watch) == 0;
		}
		return;
	case ERR_EXISTS: /* under way: the same run, or on its way to the store by someone else */
		client->waiting = false;
		if (!client->run->created)
			again(client, on_submit);
		return;
	case ERR_BUSY:
		client->waiting = false;
		again(client, on_submit);
		return;
	default:
		broken(world, client->run, "its submission is refused: %s", error.message);
	}
}

static void on_controlled(struct engine_control *control)
{
	struct client *client = control->owner;
	struct world *world = client->world;
	const struct run_model *run = client->run;

	client->waiting = false;
	switch (control->error.code) {
	case ERR_NONE:
		if (!run->ended && (control->verb == CONTROL_PAUSE ? !run->suspended : control->verb == CONTROL_RESUME ? run->suspended : true))
			broken(world, run, "what was asked of it is acknowledged, but not so in the store");
		world->counters.cancels += control->verb <= CONTROL_KILL;
		break;
	case ERR_CANCELLED:
		if (random_chance(&world->random, 700))
			again(client, on_control);
		break;
	case ERR_NOT_FOUND:
		if (run->created && !run->ended)
			broken(world, run, "the engine says that it is not under way");
		break;
	default:
		broken(world, run, "what was asked of it fails: %s", control->error.message);
	}
}

static void on_control(struct world *world, void *arg)
{
	struct client *client = arg;
	struct error error = {0};

	if (!client->run) /* any that is there by now, children too */
		client->run = world->runs[random_below(&world->random, world->run_count)];
	client->control = (struct engine_control){.verb = client->verb, .id = client->run->id, .reason = random_chance(&world->random, 500) ? "no longer needed" : NULL,
						  .on_done = on_controlled, .owner = client};
	client->waiting = true;
	if (engine_control(world->engine, &client->control, &error) == 0)
		return;
	client->waiting = false;
	if (error.code != ERR_NOT_FOUND)
		broken(world, client->run, "what is asked of it is refused: %s", error.message);
	if (client->run->created && !client->run->ended)
		broken(world, client->run, "what is asked of it finds no run, but it is open in the store");
}

static struct client *new_client(struct world *world, struct run_model *run)
{
	struct client *client = memory_zero(sizeof *client);

	client->world = world;
	client->run = run;
	arena_init(&client->arena);
	list_init(&client->watch.link);
	list_init(&client->link);
	list_add_last(&world->clients, &client->link);
	return client;
}

static void on_retry(struct world *world, void *arg);

/* The workflow's own output could not be made of what its tasks gave. */
static bool failed_at_output(const struct world *world, const struct run_model *run)
{
	const struct stored *last = &world->journal.entries[run->seqs[run->seq_count - 1]];
	struct arena arena;
	bool found = false;

	arena_init(&arena);
	for (size_t i = 0; i < last->value_count; i++) {
		const char *instance = json_get_text(json_parse(&arena, last->values[i].bytes, JSON_STORED, NULL, NULL), "instance");
		found |= instance && strcmp(instance, "/output") == 0;
	}
	arena_close(&arena);
	return found;
}

static void on_retried(struct engine_retry *retry)
{
	struct client *client = retry->owner;
	struct world *world = client->world;

	client->waiting = false;
	switch (retry->error.code) {
	case ERR_NONE:
		if (client->run->retry_count <= client->retries_before)
			broken(world, client->run, "its retry is acknowledged, but not in the store");
		break;
	case ERR_EXISTS:
		if (client->run->ended && client->run->ended_by == ENTRY_RUN_FAULTED && client->run->seq_count > 2 &&
		    !failed_at_output(world, client->run))
			broken(world, client->run, "it has faulted, but its retry is refused: %s", retry->error.message);
		world->counters.retries_refused++;
		break;
	case ERR_GONE: /* retention was faster */
		if (world->counters.purged == 0 || !client->run->ended)
			broken(world, client->run, "its retry finds it gone: %s", retry->error.message);
		break;
	case ERR_FULL:
	case ERR_BUSY:
	case ERR_CANCELLED:
		if (random_chance(&world->random, 700))
			again(client, on_retry);
		break;
	default:
		broken(world, client->run, "its retry fails: %s", retry->error.message);
	}
}

static void on_retry(struct world *world, void *arg)
{
	struct client *client = arg;
	struct error error = {0};

	client->retry = (struct engine_retry){.id = client->run->id, .reason = random_chance(&world->random, 500) ? "once more" : NULL,
					      .budget = budgets_raise(&world->random, client->run, &client->limits), .on_done = on_retried, .owner = client};
	client->retries_before = client->run->retry_count;
	client->waiting = true;
	if (engine_retry(world->engine, &client->retry, &error) == 0)
		return;
	client->waiting = false;
	if (error.code == ERR_BUSY)
		again(client, on_retry);
	else if (error.code != ERR_EXISTS)
		broken(world, client->run, "its retry is refused: %s", error.message);
}

void world_plan_retry(struct world *world, struct run_model *run)
{
	if (run->retry_count < RETRIES_MAX && world->retries_planned < RETRIES_OF_SEED_MAX && random_chance(&world->random, 500))
		world_at(world, random_below(&world->random, random_chance(&world->random, 300) ? 20000 : 8000000), false, on_retry, new_client(world, run));
	else
		return;
	world->retries_planned++;
}

/* A step of the run that began; NULL: none did. */
static const char *choose_step(struct world *world, const struct entry *entries, size_t count)
{
	const char *chosen = NULL;
	uint64_t seen = 0;

	for (size_t i = 0; i < count; i++) {
		const struct entry *entry = &entries[i];
		bool begins = entry->kind == ENTRY_TASK_STARTED || entry->kind == ENTRY_TASK_SKIPPED || entry->kind == ENTRY_EVENT_EMITTED || (entry->kind == ENTRY_TASK_COMPLETED && json_get(entry->data, "input"));
		if (begins && random_below(&world->random, ++seen) == 0)
			chosen = json_get_text(entry->data, "stepId");
	}
	return chosen;
}

static int load_past(void *context, struct arena *arena, uint64_t content_id, const struct digest *digest, struct bytes *bytes, struct error *error)
{
	struct client *client = context;
	size_t count;
	const struct entry *entries = journal_entries(client->world, client->original, arena, UINT64_MAX, &count);

	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < entries[i].value_count; k++)
			if ((content_id == 0 || content_id == CONTENT_ID(entries[i].seq, k)) && digest_equal(&entries[i].values[k].digest, digest)) {
				*bytes = entries[i].values[k].bytes;
				return 0;
			}
	return error_set(error, ERR_NOT_FOUND, "the run has no such value");
}

static void on_fork(struct world *world, void *arg)
{
	struct client *client = arg;
	struct arena *arena = &client->arena;
	const struct fork_source source = {load_past, client};
	struct error error = {0};
	struct state state;
	size_t count;

	if (!client->original->created)
		return;
	const struct entry *entries = journal_entries(world, client->original, arena, UINT64_MAX, &count);
	struct fork_find find = {.arena = arena, .definition = client->original->definition, .run_id = client->original->id, .from = choose_step(world, entries, count),
				 .children = (enum fork_children)random_below(&world->random, 3)};
	if (!find.from)
		return;
	if (fork_find_begin(&find, &error) != 0)
		broken(world, client->original, "it cannot be forked: %s", error.message);
	fork_find_add(&find, entries, count);
	if (fork_find_end(&find, &error) != 0)
		broken(world, client->original, "it cannot be forked: %s", error.message);
	state_init(&state, client->original->definition);
	for (size_t i = 0; i < count && entries[i].seq < find.seq; i++)
		if (workflow_apply(&state, &entries[i], &error) != 0)
			broken(world, client->original, "its past cannot be folded: %s", error.message);
	client->fork.overrides = bytes_text("{}");
	client->fork.reason = random_chance(&world->random, 500) ? "another way" : NULL;
	if (fork_carry(&state, &find, NULL, &source, &client->fork, &client->input, &error) != 0)
		broken(world, client->original, "its past cannot be carried over: %s", error.message);
	client->limits = state.budget;
	client->budget = budget_limits(&client->limits) ? &client->limits : NULL;
	state_close(&state);
	while (world->definitions[client->definition] != client->original->definition)
		client->definition++;
	client->run = world_add_run(world, arena_printf(arena, "fork-%zu", world->run_count));
	on_submit(world, client);
}

void world_plan_fork(struct world *world, struct run_model *run)
{
	if (world->forks_planned >= FORKS_OF_SEED_MAX || !random_chance(&world->random, 300))
		return;
	world->forks_planned++;
	struct client *client = new_client(world, NULL);
	client->original = run;
	world_at(world, random_below(&world->random, random_chance(&world->random, 500) ? 20000 : 8000000), false, on_fork, client);
}

struct run_model *world_add_run(struct world *world, const char *id)
{
	struct run_model *run = memory_zero(sizeof *run);

	snprintf(run->id, sizeof run->id, "%s", id);
	if (world->run_count == world->run_cap) {
		world->run_cap = world->run_cap ? world->run_cap * 2 : 16;
		world->runs = memory_resize(world->runs, world->run_cap * sizeof *world->runs);
	}
	world->runs[world->run_count++] = run;
	return run;
}

static struct client *plan_control(struct world *world, struct run_model *run, enum engine_verb verb, uint64_t at_us)
{
	struct client *client = new_client(world, run);

	client->verb = verb;
	world_at(world, at_us, false, on_control, client);
	return client;
}

/* Children that were begun by a parent that was suspended meanwhile are suspended later than that. */
static void on_resume_all(struct world *world, void *arg)
{
	bool any = false;

	(void)arg;
	for (size_t i = 0; i < world->run_count; i++) {
		if (!world->runs[i]->suspended || world->runs[i]->ended)
			continue;
		plan_control(world, world->runs[i], CONTROL_RESUME, random_below(&world->random, 1000000));
		any = true;
	}
	if (any)
		world_at(world, 3000000, false, on_resume_all, NULL);
}

static void on_faults_end(struct world *world, void *arg)
{
	(void)arg;
	world->faults = false;
	journal_fill_disk(world, UINT64_MAX);
	on_resume_all(world, NULL);
}

static void plan_run(struct world *world, unsigned number)
{
	char id[ID_LEN_MAX + 1];
	struct random *random = &world->random;
	uint64_t arrival = number == 0 ? 1000 : random_below(random, ARRIVALS_US);

	snprintf(id, sizeof id, "run-%u", number);
	struct run_model *run = world_add_run(world, id);
	for (unsigned copies = random_chance(random, 200) ? 2 : 1; copies > 0; copies--) {
		struct client *client = new_client(world, run);
		client->definition = number == 0 ? 0 : (unsigned)random_below(random, WORLD_DEFINITIONS);
		client->input = program_input(world, &client->arena);
		client->budget = budgets_choose(random, &client->limits);
		if (random_chance(random, 300)) {
			struct json *labels = json_object(&client->arena);
			json_set_text(&client->arena, labels, "team", "a");
			client->labels = labels;
		}
		world_at(world, arrival, false, on_submit, client);
		arrival += random_chance(random, 500) ? random_below(random, 3000) : random_below(random, ARRIVALS_US);
	}
	for (unsigned cancels = random_chance(random, 400) ? 1 + random_chance(random, 400) : 0; cancels > 0; cancels--)
		plan_control(world, run, random_chance(random, 250) ? CONTROL_KILL : CONTROL_CANCEL, arrival + random_below(random, random_chance(random, 500) ? 20000 : 8000000));
	/* Some are resumed soon, all when the faults are over. */
	for (unsigned pauses = random_chance(random, 500) ? 1 + random_chance(random, 400) : 0; pauses > 0; pauses--) {
		uint64_t at = arrival + random_below(random, random_chance(random, 500) ? 20000 : 3000000);
		plan_control(world, run, CONTROL_PAUSE, at);
		if (random_chance(random, 300))
			plan_control(world, run, CONTROL_PAUSE, at + random_below(random, 5000));
		if (random_chance(random, 600))
			plan_control(world, run, CONTROL_RESUME, at + random_below(random, random_chance(random, 500) ? 3000 : 15000000));
	}
}

/* Any run that is there by then, children too. */
static void plan_pauses(struct world *world)
{
	for (uint64_t i = random_below(&world->random, 12); i > 0; i--)
		plan_control(world, NULL, CONTROL_PAUSE, random_below(&world->random, ARRIVALS_US * 2));
}

/* --- one seed ------------------------------------------------------------------------------------------------------ */

static void load_programs(struct world *world)
{
	for (unsigned i = 0; i < WORLD_DEFINITIONS; i++) {
		enum text_format format;
		struct problems problems;
		struct bytes source = program_make(world, &world->arena, i, &format);
		problems_init(&problems);
		world->definitions[i] = definition_load(source, format, &problems);
		if (!world->definitions[i]) {
			printf("%s\n", (const char *)source.data);
			broken(world, NULL, "program %u is refused: %s: %s", i, problems.items[0].pointer, problems.items[0].message);
		}
		problems_close(&problems);
		world->documents[i] = json_print_arena(world->definitions[i]->document, &world->arena);
	}
}

static void plan_faults(struct world *world)
{
	struct random *random = &world->random;

	world->faults = true;
	for (uint64_t i = random_below(random, 4); i > 0; i--)
		world_at(world, random_below(random, FAULTS_UNTIL_US / 2), false, on_crash, NULL);
	for (uint64_t i = random_below(random, 3); i > 0; i--)
		world_at(world, random_below(random, FAULTS_UNTIL_US / 3), false, on_stop, NULL);
	for (uint64_t i = random_below(random, 4); i > 0; i--)
		world_at(world, random_below(random, FAULTS_UNTIL_US / 3), false, on_clock_step, NULL);
	for (uint64_t i = random_below(random, 3); i > 0; i--)
		world_at(world, random_below(random, ARRIVALS_US), false, on_full, NULL);
	world_at(world, FAULTS_UNTIL_US, false, on_faults_end, NULL);
}

/* Let the next thing happen. False: nothing is left. */
static bool step(struct world *world)
{
	int64_t deadline_ms = engine_next_deadline_ms(world->engine);
	uint64_t deadline_us = UINT64_MAX;

	while (world->event_count > 0 && (!world->events[0].fire || (world->events[0].boot != 0 && world->events[0].boot != world->boot)))
		take_event(world);
	if (deadline_ms != world->armed_ms || (deadline_ms != 0 && deadline_ms <= world_wall_ms(world))) { /* it sleeps in time that goes by, as daemon/ports.c */
		int64_t left_ms = deadline_ms - world_wall_ms(world);
		left_ms = left_ms < 0 ? 0 : left_ms > SLEEP_MAX_MS ? SLEEP_MAX_MS : left_ms;
		world->armed_ms = deadline_ms;
		world->armed_us = left_ms > 0 ? (world->now_us / 1000 + (uint64_t)left_ms) * 1000 : world->now_us;
	}
	if (deadline_ms != 0)
		deadline_us = world->armed_us < world->now_us ? world->now_us : world->armed_us;
	if (world->event_count == 0 && deadline_ms == 0)
		return false;
	if (++world->counters.events > WORLD_EVENTS_MAX)
		broken(world, NULL, "it does not come to rest within %d events", WORLD_EVENTS_MAX);
	if (world->event_count == 0 || deadline_us <= world->events[0].at_us) {
		world->now_us = deadline_us;
		world->armed_ms = 0;
		engine_on_time(world->engine);
		if (engine_next_deadline_ms(world->engine) != 0 && engine_next_deadline_ms(world->engine) <= world_wall_ms(world))
			broken(world, NULL, "the engine leaves a deadline that has passed");
		return true;
	}
	struct event event = take_event(world);
	world->now_us = event.at_us;
	event.fire(world, event.arg);
	return true;
}

static void close_world(struct world *world)
{
	children_abandon(&world->children);
	engine_free(world->engine);
	close_children(world);
	journal_stop(world);
	events_close(world);
	while (!list_empty(&world->clients)) {
		struct client *client = CONTAINER_OF(world->clients.next, struct client, link);
		list_remove(&client->link);
		if (client->waiting)
			broken(world, client->run, "a client was never answered");
		arena_close(&client->arena);
		free(client);
	}
	for (size_t i = 0; i < world->run_count; i++) {
		for (size_t slot = 0; slot < STEP_SLOTS; slot++)
			for (struct step_model *at = world->runs[i]->steps[slot], *next; at; at = next) {
				next = at->next;
				free(at->id);
				free(at);
			}
		free(world->runs[i]->seqs);
		free(world->runs[i]->parent_step);
		free(world->runs[i]);
	}
	for (size_t i = 0; i < WORLD_DEFINITIONS; i++) {
		if (world->definitions[i]->use_count != 1)
			broken(world, NULL, "a definition is held %u times at the end", world->definitions[i]->use_count);
		definition_free(world->definitions[i]);
	}
	journal_close(&world->journal);
	free(world->runs);
	free(world->facts);
	free(world->events);
	arena_close(&world->arena);
}

int world_run(uint64_t seed, const struct options *options, struct counters *sum)
{
	struct world world = {.seed = seed, .options = *options, .random = {random_mix(seed)}};
	const struct counters *c = &world.counters;

	arena_init(&world.arena);
	list_init(&world.attempts);
	list_init(&world.settled);
	list_init(&world.clients);
	list_init(&world.senders);
	list_init(&world.listeners);
	journal_format(&world);
	load_programs(&world);
	world.boot = 1;
	journal_open(&world);
	start_engine(&world);
	unsigned runs = options->runs ? options->runs : (unsigned)random_between(&world.random, RUNS_MIN, RUNS_MAX);
	for (unsigned i = 0; i < runs; i++)
		plan_run(&world, i);
	plan_pauses(&world);
	plan_faults(&world);
	while (step(&world))
		continue;
	check_rest(&world);
	world.counters.children += world.children.started;
	world.counters.attached += world.children.attached;
	world.counters.orphans += world.children.orphans;
	world.children.started = world.children.attached = world.children.orphans = 0;
	struct digest root = log_tree_root(&world.journal.tree);
	char hex[DIGEST_HEX_LEN + 1];
	digest_hex(&root, hex);
	printf("seed %" PRIu64 ": runs=%" PRIu64 " entries=%zu crashes=%" PRIu64 " stops=%" PRIu64 " faults=%" PRIu64 " retries=%" PRIu64 " loads=%" PRIu64
	       " parks=%" PRIu64 " timers=%" PRIu64 " caught=%" PRIu64 " tries=%" PRIu64 " cancels=%" PRIu64 " pauses=%" PRIu64 " facts=%" PRIu64 " replays=%" PRIu64 " children=%" PRIu64 " events=%zu consumed=%" PRIu64 " listens=%" PRIu64 " emits=%" PRIu64 " retried=%" PRIu64 " resumed=%" PRIu64 " forks=%" PRIu64 " log=%.16s ok\n",
	       seed, c->ended, world.journal.count, c->crashes, c->stops, c->faults, c->retries, c->loads + c->value_loads, c->parks, c->fired, c->caught, c->tries, c->cancels, c->pauses, c->facts,
	       c->replays, c->children, world.sent_count, c->consumed, c->listens, c->emitted, c->retried, c->resumed, c->forks, hex);
	if (options->verbose)
		printf("  dropped=%" PRIu64 " bytes=%" PRIu64 " in commit=%" PRIu64 " in open=%" PRIu64 " kept commits=%" PRIu64 " full=%" PRIu64 " refused=%" PRIu64 " waited=%" PRIu64 " commits=%" PRIu64
		       " deep checks=%" PRIu64 " purged=%" PRIu64 " pruned=%" PRIu64 " late=%" PRIu64 " stale=%" PRIu64 " doubled=%" PRIu64 "\n",
		       c->dropped, c->dropped_bytes, c->in_commit, c->in_open, c->kept_commits, c->full, c->full_refused, c->full_waited, c->commits, c->deep_checks, c->purged, c->pruned, c->late,
		       c->stale, c->doubled);
	if (options->verbose)
		printf("  completed=%" PRIu64 " faulted=%" PRIu64 " cancelled=%" PRIu64 " attempts=%" PRIu64 " refused=%" PRIu64 " interrupted=%" PRIu64
		       " values loaded=%" PRIu64 " clock steps=%" PRIu64 " checks=%" PRIu64 " states compared=%" PRIu64 " tasks by the oracle=%" PRIu64 " evaluations=%" PRIu64 " attached=%" PRIu64 " orphans=%" PRIu64 " offers=%" PRIu64 " duplicates=%" PRIu64 " listeners=%" PRIu64 " events=%" PRIu64 " snapshots=%" PRIu64 " loads from one=%" PRIu64 " left alone=%" PRIu64 " waiting=%" PRIu64 " resumes=%" PRIu64 "\n",
		       c->completed, c->faulted, c->cancelled, c->attempts, c->refused, c->interruptions, c->value_loads, c->steps_clock, c->checks, c->folds,
		       c->oracle_tasks, c->evaluations, c->attached, c->orphans, c->offers, c->duplicates, c->listeners, c->events, c->snapshots, c->from_snapshot, c->left_alone, c->waiting, c->resumes);
	close_world(&world);
	const uint64_t *figures = (const uint64_t *)&world.counters;
	for (size_t i = 0; i < sizeof world.counters / sizeof *figures; i++) /* of nothing else is it made */
		((uint64_t *)sum)[i] += figures[i];
	return 0;
}
