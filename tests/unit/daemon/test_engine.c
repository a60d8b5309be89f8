/* The engine's clocks (C58), to the millisecond: deadlines are wall time, waiting is not. The store commits what it is given at once when
 * the test says so; everything else of the engine runs in tests/simulation. */
#include <check.h>
#include <string.h>

#include "daemon/engine.h"
#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"
#include "workflow/language/evaluation.h"

enum { SECOND = 1000, HOUR = 3600 * 1000 };

static const int64_t start_ms = 1790000000000;

struct fixture {
	struct engine *engine;
	struct definition *definition;
	uint64_t gone_ms; /* since the start, as it goes by */
	int64_t set_ms; /* by how much the wall clock was set */
	uint64_t seq;
	char fired[256]; /* times of timer.fired since the start, in seconds */
	int64_t stepped_ms;
	unsigned steps;
	struct entry entries[512]; /* of the run, for a load */
	size_t entry_count;
	struct arena arena;
	unsigned ended;
	bool full; /* the store takes urgent appends only */
	bool damaged; /* a load finds the run damaged */
	unsigned loads, failed;
	bool holds_loads; /* each is answered by answer_load() */
	struct engine_load_run *held;
	enum error_code refusal; /* what becomes of commits */
	struct activity *started; /* the last one, of so many */
	unsigned starts;
	unsigned cancelled;
	bool forgets; /* the last commit takes the run's snapshot away */
	size_t forgets_also; /* so many others' */
	bool has_trees; /* runs may have others below them: answer_look() says which */
	struct engine_look *look;
	unsigned looks;
	size_t tree_runs; /* limit; 0: 3 */
	struct engine_evaluate *asked; /* to be answered by answer_evaluation() */
};

static uint64_t now_us(void *arg)
{
	return (1000 + ((struct fixture *)arg)->gone_ms) * 1000;
}

static int64_t wall_ms(void *arg)
{
	const struct fixture *f = arg;

	return start_ms + (int64_t)f->gone_ms + f->set_ms;
}

static struct store_append *waiting;

static int take_append(void *arg, struct store_append *append)
{
	if (((struct fixture *)arg)->full && !append->urgent)
		return ERR_BUSY;
	ck_assert_ptr_null(waiting);
	waiting = append;
	return 0;
}

static void commit(struct fixture *f)
{
	while (waiting) {
		struct store_append *append = waiting;
		waiting = NULL;
		if (f->refusal != ERR_NONE) {
			error_set(&append->error, f->refusal, "it is refused");
			append->on_done(append);
			continue;
		}
		for (size_t i = 0; i < append->entry_count; i++) {
			struct entry *entry = (struct entry *)&append->entries[i];
			entry->seq = ++f->seq;
			if (entry->kind == ENTRY_TIMER_FIRED)
				snprintf(f->fired + strlen(f->fired), sizeof f->fired - strlen(f->fired), "%s@%lld ", json_get_text(entry->data, "timer"),
					 (long long)((entry->time_ms - start_ms) / SECOND));
			ck_assert_uint_lt(f->entry_count, COUNT_OF(f->entries));
			struct entry *kept = &f->entries[f->entry_count++];
			*kept = *entry;
			kept->data = json_copy(&f->arena, entry->data);
			for (size_t k = 0; k < entry->value_count; k++)
				kept->values[k].bytes = arena_bytes(&f->arena, entry->values[k].bytes);
		}
		append->error = (struct error){0};
		f->forgets = append->forget_snapshot;
		f->forgets_also = append->forget_also_count;
		append->on_done(append);
	}
}

static void answer_load(struct fixture *f, struct engine_load_run *load)
{
	arena_init(&load->arena);
	if (f->damaged)
		error_set(&load->error, ERR_CORRUPT, "it is damaged");
	load->entries = f->entries;
	load->entry_count = f->entry_count;
	load->document = json_print_arena(f->definition->document, &load->arena);
	load->on_done(load);
}

static void load_run(void *arg, struct engine_load_run *load)
{
	struct fixture *f = arg;

	f->loads++;
	if (f->holds_loads)
		f->held = load;
	else
		answer_load(f, load);
}

static int start_activity(void *arg, struct activity *activity, struct error *error)
{
	(void)error;
	((struct fixture *)arg)->started = activity;
	((struct fixture *)arg)->starts++;
	return 0;
}

static void cancel_activity(void *arg, struct activity *activity)
{
	(void)activity;
	((struct fixture *)arg)->cancelled++;
}

static void close_activity(void *arg, struct activity *activity)
{
	(void)arg;
	(void)activity;
}

static void on_committed(void *arg, const char *run_id, uint64_t seq_last, bool ended)
{
	(void)run_id;
	(void)seq_last;
	((struct fixture *)arg)->ended += ended;
}

static void on_run_failed(void *arg, const char *run_id, const struct error *error)
{
	(void)run_id;
	(void)error;
	((struct fixture *)arg)->failed++;
}

static void look_below(void *arg, struct engine_look *look)
{
	struct fixture *f = arg;

	f->looks++;
	f->look = look;
}

static void hold_evaluation(void *arg, struct engine_evaluate *evaluate)
{
	((struct fixture *)arg)->asked = evaluate;
}

static void on_stepped(void *arg, int64_t by_ms)
{
	struct fixture *f = arg;

	f->steps++;
	f->stepped_ms = by_ms;
}

static void on_submitted(struct engine_submit *submit)
{
	ck_assert_int_eq(submit->error.code, ERR_NONE);
}

static void start(struct fixture *f, int64_t park_after_ms)
{
	const struct engine_ports ports = {.arg = f, .now_us = now_us, .wall_ms = wall_ms, .append = take_append, .load_run = load_run, .on_committed = on_committed,
					   .on_clock_stepped = on_stepped, .on_run_failed = on_run_failed, .evaluate = hold_evaluation,
					   .look_below = f->has_trees ? look_below : NULL, .start_activity = start_activity, .cancel_activity = cancel_activity, .close_activity = close_activity};

	f->engine = engine_new(&(struct engine_config){.origin = "test", .daemon_version = "1", .park_after_ms = park_after_ms, .tree_runs = f->tree_runs ? f->tree_runs : 3,
						       .snapshot_entries = f->has_trees}, &ports);
}

static void fixture_open(struct fixture *f, const char *tasks, int64_t park_after_ms)
{
	struct problems problems;
	static struct engine_submit submit;
	struct error error = {0};

	memset(f, 0, sizeof *f);
	arena_init(&f->arena);
	problems_init(&problems);
	f->definition = definition_load(bytes_text(arena_printf(&f->arena, "{\"document\":{\"dsl\":\"1.0.3\",\"namespace\":\"test\",\"name\":\"it\",\"version\":\"1.0.0\"},\"do\":%s}", tasks)),
					TEXT_JSON, &problems);
	ck_assert_msg(f->definition != NULL, "%s", problems.count ? problems.items[0].message : "");
	problems_close(&problems);
	start(f, park_after_ms);
	submit = (struct engine_submit){.definition = f->definition, .id = "r", .input = BYTES_OF("null"), .received_us = now_us(f), .on_done = on_submitted};
	ck_assert_int_eq(engine_submit(f->engine, &submit, &error), 0);
	commit(f);
}

static void fixture_close(struct fixture *f)
{
	engine_free(f->engine);
	definition_free(f->definition);
	arena_close(&f->arena);
}

/* Time goes by; the engine is asked now and then, and when what it waits for is due. */
static void go_on(struct fixture *f, uint64_t ms)
{
	f->gone_ms += ms;
	engine_on_time(f->engine);
	commit(f);
}

static const char wait_ten[] = "[{\"w\":{\"wait\":{\"seconds\":10}}}]";

/* Set back by an hour while it waits: the wait takes its ten seconds all the same, and not one millisecond less. The journal's times go on. */
START_TEST(set_back)
{
	for (int park = 0; park < 2; park++) {
		struct fixture f;

		fixture_open(&f, wait_ten, park ? 0 : -1);
		go_on(&f, 3 * SECOND);
		f.set_ms = -HOUR;
		go_on(&f, 6 * SECOND + 999);
		ck_assert_str_eq(f.fired, "");
		ck_assert_int_eq(engine_next_deadline_ms(f.engine), wall_ms(&f) + 1);
		go_on(&f, 1);
		ck_assert_str_eq(f.fired, "wait@10 ");
		ck_assert_uint_eq(f.ended, 1);
		ck_assert_uint_eq(f.steps, 1);
		ck_assert_int_eq(f.stepped_ms, -HOUR);
		fixture_close(&f);
	}
}
END_TEST

/* Set forward past what it waits for: due as soon as that is noticed. */
START_TEST(set_forward)
{
	struct fixture f;

	fixture_open(&f, wait_ten, -1);
	f.set_ms = 9 * SECOND;
	go_on(&f, 999);
	ck_assert_str_eq(f.fired, "");
	go_on(&f, 1);
	ck_assert_str_eq(f.fired, "wait@10 ");
	ck_assert_int_eq(f.stepped_ms, 9 * SECOND);
	fixture_close(&f);
}
END_TEST

/* Back and forth: nothing happened in the end. What was set forward again is no longer ahead. */
START_TEST(back_and_forth)
{
	struct fixture f;

	fixture_open(&f, wait_ten, -1);
	f.set_ms = -HOUR;
	go_on(&f, SECOND);
	f.set_ms = 0;
	go_on(&f, SECOND);
	ck_assert_uint_eq(f.steps, 2);
	ck_assert_int_eq(engine_next_deadline_ms(f.engine), start_ms + 10 * SECOND);
	go_on(&f, 8 * SECOND - 1);
	ck_assert_str_eq(f.fired, "");
	go_on(&f, 1);
	ck_assert_str_eq(f.fired, "wait@10 ");
	fixture_close(&f);
}
END_TEST

/* A run lives in one time as long as it waits: what it begins after the step does not end before what began before, and each wait is whole. */
START_TEST(several_waits)
{
	struct fixture f;

	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[{\"a\":{\"wait\":{\"seconds\":10}}},{\"b\":{\"do\":[{\"c\":{\"wait\":{\"seconds\":2}}},{\"d\":{\"wait\":{\"seconds\":4}}}]}}]}}}]", -1);
	f.set_ms = -HOUR;
	go_on(&f, 2 * SECOND);
	ck_assert_str_eq(f.fired, "wait@2 ");
	go_on(&f, 4 * SECOND - 1);
	ck_assert_str_eq(f.fired, "wait@2 ");
	go_on(&f, 1);
	ck_assert_str_eq(f.fired, "wait@2 wait@6 ");
	f.set_ms = -2 * HOUR;
	go_on(&f, 4 * SECOND - 1);
	ck_assert_str_eq(f.fired, "wait@2 wait@6 ");
	go_on(&f, 1);
	ck_assert_str_eq(f.fired, "wait@2 wait@6 wait@10 ");
	fixture_close(&f);
}
END_TEST

/* Set back while the daemon was away: nobody knows by how much, but the run's times go on from the last one on record. */
START_TEST(set_back_unseen)
{
	for (int left_alone = 0; left_alone < 2; left_alone++) {
		struct fixture f;

		fixture_open(&f, wait_ten, -1);
		go_on(&f, 3 * SECOND);
		engine_drop(f.engine);
		f.set_ms = -HOUR;
		start(&f, -1);
		engine_recover(f.engine, "r", left_alone ? start_ms + 10 * SECOND : 0, left_alone ? start_ms : 0);
		ck_assert((engine_run_state(f.engine, "r") == NULL) == left_alone); /* parked, or loaded at once */
		commit(&f);
		ck_assert_int_eq(engine_next_deadline_ms(f.engine), wall_ms(&f) + 10 * SECOND);
		go_on(&f, 10 * SECOND - 1);
		ck_assert_str_eq(f.fired, "");
		go_on(&f, 1);
		ck_assert_str_eq(f.fired, "wait@10 ");
		fixture_close(&f);
	}
}
END_TEST

/* Set back between a decision and its commit: what it decided to wait for is waited for from the decision on. */
START_TEST(set_back_while_committing)
{
	struct fixture f;

	fixture_open(&f, "[{\"a\":{\"wait\":{\"seconds\":1}}},{\"b\":{\"wait\":{\"seconds\":10}}}]", -1);
	f.gone_ms += SECOND;
	engine_on_time(f.engine);
	f.set_ms = -HOUR;
	f.gone_ms += 3 * SECOND;
	commit(&f);
	go_on(&f, 7 * SECOND - 1);
	ck_assert_str_eq(f.fired, "wait@1 ");
	go_on(&f, 1);
	ck_assert_str_eq(f.fired, "wait@1 wait@11 ");
	fixture_close(&f);
}
END_TEST

/* Slowed down or sped up by less than ENGINE_CLOCK_SLACK_MS between two looks: not a step. */
START_TEST(slewed)
{
	struct fixture f;

	fixture_open(&f, wait_ten, -1);
	for (int i = 1; i <= 9; i++) {
		f.set_ms = -i * ENGINE_CLOCK_SLACK_MS;
		go_on(&f, SECOND);
	}
	ck_assert_uint_eq(f.steps, 0);
	f.set_ms -= ENGINE_CLOCK_SLACK_MS + 1;
	go_on(&f, 1);
	ck_assert_uint_eq(f.steps, 1);
	fixture_close(&f);
}
END_TEST

static void on_controlled(struct engine_control *control)
{
	*(int *)control->owner = (int)control->error.code;
}

static int control(struct fixture *f, enum engine_verb verb)
{
	int code = -1;
	struct error error = {0};
	struct engine_control asked = {.verb = verb, .id = "r", .on_done = on_controlled, .owner = &code};

	if (engine_control(f->engine, &asked, &error) != 0)
		return (int)error.code;
	commit(f);
	ck_assert_int_ne(code, -1); /* at once: within this very turn */
	return code;
}

/* The store's queue is full, and a decision of the run waits for room in it: a pause, a resume and a cancel act at once all the same. What was decided
 * before and had no room is decided anew. */
START_TEST(control_past_a_full_queue)
{
	struct fixture f;

	fixture_open(&f, wait_ten, -1);
	f.full = true;
	go_on(&f, 10 * SECOND);
	ck_assert_str_eq(f.fired, "");
	ck_assert_int_eq(control(&f, CONTROL_PAUSE), ERR_NONE);
	ck_assert_int_eq(engine_run_state(f.engine, "r")->status, RUN_SUSPENDED);
	ck_assert_int_eq(control(&f, CONTROL_PAUSE), ERR_NONE);
	ck_assert_int_eq(engine_next_deadline_ms(f.engine), 0);
	ck_assert_int_eq(control(&f, CONTROL_RESUME), ERR_NONE);
	go_on(&f, 1);
	f.full = false;
	go_on(&f, ENGINE_RETRY_APPEND_MS);
	ck_assert_str_eq(f.fired, "wait@10 ");
	fixture_close(&f);

	fixture_open(&f, wait_ten, -1);
	f.full = true;
	go_on(&f, 10 * SECOND);
	ck_assert_int_eq(control(&f, CONTROL_CANCEL), ERR_NONE);
	ck_assert_uint_eq(f.ended, 1);
	fixture_close(&f);
}
END_TEST

/* A run that cannot be loaded: ENGINE_RECOVERY_TRIES times, then quarantine, one durable entry. A resume tries once more; one that helps ends it. A
 * start leaves it alone. */
START_TEST(quarantine)
{
	struct fixture f;
	struct engine_counts counts;

	fixture_open(&f, wait_ten, -1);
	engine_drop(f.engine);
	f.damaged = true;
	start(&f, -1);
	engine_recover(f.engine, "r", 0, 0);
	ck_assert_uint_eq(f.loads, 1);
	for (unsigned tries = 1; tries < ENGINE_RECOVERY_TRIES; tries++) {
		go_on(&f, ENGINE_RECOVERY_RETRY_MS - 1);
		ck_assert_uint_eq(f.loads, tries);
		go_on(&f, 1);
		ck_assert_uint_eq(f.loads, tries + 1);
	}
	commit(&f);
	engine_counts(f.engine, &counts);
	ck_assert_uint_eq(counts.quarantined, 1);
	ck_assert_uint_eq(f.failed, 1);
	const struct entry *last = &f.entries[f.entry_count - 1];
	ck_assert(last->kind == ENTRY_RUN_SUSPENDED && json_get_boolean(last->data, "quarantined", false));
	ck_assert_ptr_nonnull(strstr((const char *)last->values[0].bytes.data, "it is damaged"));
	size_t entries = f.entry_count;
	ck_assert_int_eq(control(&f, CONTROL_RESUME), ERR_CORRUPT);
	ck_assert_int_eq(control(&f, CONTROL_PAUSE), ERR_EXISTS);
	ck_assert_uint_eq(f.entry_count, entries);

	engine_drop(f.engine);
	start(&f, -1);
	engine_set_aside(f.engine, "r");
	f.loads = 0;
	go_on(&f, HOUR);
	ck_assert_uint_eq(f.loads, 0);
	f.damaged = false;
	ck_assert_int_eq(control(&f, CONTROL_RESUME), ERR_NONE);
	go_on(&f, 1);
	ck_assert_ptr_nonnull(strstr(f.fired, "wait@"));
	ck_assert_uint_eq(f.ended, 1);
	engine_counts(f.engine, &counts);
	ck_assert_uint_eq(counts.quarantined, 0);
	fixture_close(&f);

	fixture_open(&f, wait_ten, -1); /* or it is ended without being asked */
	engine_drop(f.engine);
	f.damaged = true;
	start(&f, -1);
	engine_set_aside(f.engine, "r");
	ck_assert_int_eq(control(&f, CONTROL_KILL), ERR_NONE);
	ck_assert(f.entries[f.entry_count - 1].kind == ENTRY_RUN_KILLED);
	ck_assert(f.forgets);
	ck_assert(!engine_run_is_open(f.engine, "r"));
	fixture_close(&f);
}
END_TEST

/* What a run waited for before it came into quarantine is let go when it is ended there: nobody waits for the child any more. */
START_TEST(children_of_quarantine)
{
	struct fixture f;

	fixture_open(&f, "[{\"f\":{\"fork\":{\"branches\":[{\"w\":{\"wait\":{\"seconds\":10}}},"
			 "{\"c\":{\"run\":{\"workflow\":{\"namespace\":\"test\",\"name\":\"child\",\"version\":\"1.0.0\"}}}}]}}}]", -1);
	ck_assert_ptr_nonnull(f.started);
	f.damaged = true;
	f.refusal = ERR_CORRUPT;
	go_on(&f, 10 * SECOND);
	f.refusal = ERR_NONE;
	for (unsigned tries = 1; tries < ENGINE_RECOVERY_TRIES; tries++)
		go_on(&f, ENGINE_RECOVERY_RETRY_MS);
	ck_assert_uint_eq(f.failed, 1);
	ck_assert_uint_eq(f.cancelled, 0); /* a resume attaches to it */
	ck_assert_int_eq(control(&f, CONTROL_KILL), ERR_NONE);
	ck_assert_uint_eq(f.cancelled, 1);
	ck_assert(f.started->is_kill);
	f.started->result = (struct activity_result){.failure = FAILURE_CANCELLED};
	f.started->on_done(f.started);
	fixture_close(&f);
}
END_TEST

/* While the daemon drains a parked run is loaded when an operator asks something of it, and for nothing else. */
START_TEST(control_while_draining)
{
	struct fixture f;

	fixture_open(&f, wait_ten, 0);
	ck_assert_ptr_null(engine_run_state(f.engine, "r"));
	engine_stop(f.engine);
	go_on(&f, 10 * SECOND);
	ck_assert_uint_eq(f.loads, 0);
	ck_assert_int_eq(control(&f, CONTROL_PAUSE), ERR_NONE);
	ck_assert(engine_run_is_suspended(f.engine, "r"));
	ck_assert_int_eq(control(&f, CONTROL_CANCEL), ERR_NONE);
	ck_assert_uint_eq(f.ended, 1);
	ck_assert_str_eq(f.fired, "");
	fixture_close(&f);
}
END_TEST

static void on_retried(struct engine_retry *retry)
{
	*(int *)retry->owner = (int)retry->error.code;
}

/* What is asked of a run that is being read for a retry goes behind it: a pause pauses what goes on. Where the daemon stops meanwhile, both are told so. */
START_TEST(control_of_a_retry)
{
	for (int stops = 0; stops < 2; stops++) {
		struct fixture f;
		struct error error = {0};
		int retried = -1, paused = -1;
		struct engine_retry retry = {.id = "r", .on_done = on_retried, .owner = &retried};
		struct engine_control pause = {.verb = CONTROL_PAUSE, .id = "r", .on_done = on_controlled, .owner = &paused};

		fixture_open(&f, "[{\"w\":{\"wait\":{\"seconds\":10},\"timeout\":{\"after\":\"PT1S\"}}}]", -1);
		go_on(&f, SECOND);
		ck_assert_uint_eq(f.ended, 1);
		f.holds_loads = true;
		ck_assert_int_eq(engine_retry(f.engine, &retry, &error), 0);
		ck_assert_int_eq(engine_control(f.engine, &pause, &error), 0);
		if (stops)
			engine_stop(f.engine);
		answer_load(&f, f.held);
		commit(&f);
		ck_assert_int_eq(retried, stops ? ERR_BUSY : ERR_NONE);
		ck_assert_int_eq(paused, stops ? ERR_BUSY : ERR_NONE);
		ck_assert(engine_run_is_suspended(f.engine, "r") == !stops);
		ck_assert(engine_run_is_open(f.engine, "r") == !stops);
		fixture_close(&f);
	}
}
END_TEST

/* A run whose resume is on its way counts as suspended no more: a child that is submitted meanwhile would stay paused. */
START_TEST(resume_on_its_way)
{
	struct fixture f;
	struct error error = {0};
	int code = -1;
	struct engine_control resume = {.verb = CONTROL_RESUME, .id = "r", .on_done = on_controlled, .owner = &code};

	fixture_open(&f, wait_ten, -1);
	ck_assert_int_eq(control(&f, CONTROL_PAUSE), ERR_NONE);
	ck_assert(engine_run_is_suspended(f.engine, "r"));
	ck_assert_int_eq(engine_control(f.engine, &resume, &error), 0);
	ck_assert_int_eq(code, -1);
	ck_assert(!engine_run_is_suspended(f.engine, "r"));
	commit(&f);
	ck_assert_int_eq(code, ERR_NONE);
	fixture_close(&f);
}
END_TEST

static const char parent_task[] = "[{\"c\":{\"run\":{\"workflow\":{\"namespace\":\"test\",\"name\":\"child\",\"version\":\"1.0.0\"}}}}]";

enum { TREE_IDS = ENGINE_TREE_TURN + 2 };

/* Runs that wait for another one: "r", and those that stand for its children: "s", "s1"… */
static void open_tree_of(struct fixture *f, const char *tasks, size_t count)
{
	static struct engine_submit submit;
	struct error error = {0};

	fixture_open(f, tasks, -1);
	engine_drop(f->engine);
	f->has_trees = true;
	f->tree_runs = count > 2 ? count + 1 : 0;
	f->entry_count = 0;
	start(f, -1);
	for (unsigned i = 0; i < count; i++) {
		const char *id = i == 0 ? "r" : i == 1 ? "s" : arena_printf(&f->arena, "s%u", i - 1);
		submit = (struct engine_submit){.definition = f->definition, .id = id, .input = BYTES_OF("null"), .received_us = now_us(f), .on_done = on_submitted};
		ck_assert_int_eq(engine_submit(f->engine, &submit, &error), 0);
		commit(f);
	}
}

static void open_tree(struct fixture *f)
{
	open_tree_of(f, parent_task, 2);
}

static void answer_look(struct fixture *f, size_t count, enum error_code code)
{
	static const char *few[] = {"s", "gone", "more"}, *many[TREE_IDS];
	const char **ids = few;

	if (count > COUNT_OF(few)) {
		ck_assert_uint_le(count, COUNT_OF(many));
		for (size_t i = 0; i < count; i++)
			many[i] = i == 0 ? "s" : arena_printf(&f->arena, "s%zu", i);
		ids = many;
	}
	arena_init(&f->look->arena);
	if (code != ERR_NONE)
		error_set(&f->look->error, code, "it cannot be read");
	f->look->ids = ids;
	f->look->count = count;
	f->look->on_done(f->look);
}

static void on_tree(struct engine_tree *tree)
{
	*(int *)tree->owner = (int)tree->error.code;
}

static size_t count_entries(const struct fixture *f, enum entry_kind kind, const char *id)
{
	size_t count = 0;

	for (size_t i = 0; i < f->entry_count; i++)
		count += f->entries[i].kind == kind && strcmp(json_get_text(f->entries[i].data, "runId"), id) == 0;
	return count;
}

static void close_tree(struct fixture *f)
{
	engine_drop(f->engine);
	definition_free(f->definition);
	arena_close(&f->arena);
}

/* All entries of a tree go in one append, also after the store had no room; until then its runs are held, and an answer that comes meanwhile waits. */
START_TEST(tree_is_one_append)
{
	struct fixture f;
	struct error error = {0};
	int code = -1;
	struct engine_tree tree = {.root = {.verb = CONTROL_PAUSE, .id = "r"}, .on_done = on_tree, .owner = &code};

	open_tree(&f);
	struct activity *child = f.started; /* of "s" */
	ck_assert_int_eq(engine_control_tree(f.engine, &tree, &error), 0);
	ck_assert(engine_run_is_held(f.engine, "r") && !engine_run_is_held(f.engine, "s"));
	answer_look(&f, 2, ERR_NONE);
	ck_assert(engine_run_is_held(f.engine, "s"));
	ck_assert_uint_eq(f.looks, 2); /* until nothing is new */
	child->result = (struct activity_result){.failure = FAILURE_RUNTIME_ERROR, .retry_attempts = 1};
	child->on_done(child);
	ck_assert_ptr_null(waiting);
	answer_look(&f, 2, ERR_NONE);
	ck_assert_ptr_nonnull(waiting);
	ck_assert_uint_eq(waiting->entry_count, 2);
	f.refusal = ERR_FULL;
	size_t before = f.entry_count;
	commit(&f);
	ck_assert_uint_eq(f.entry_count, before);
	ck_assert_int_eq(code, -1);
	f.refusal = ERR_NONE;
	go_on(&f, ENGINE_RETRY_APPEND_MS);
	ck_assert_int_eq(code, ERR_NONE);
	ck_assert_uint_eq(tree.run_count, 2);
	ck_assert_uint_eq(count_entries(&f, ENTRY_RUN_SUSPENDED, "r") + count_entries(&f, ENTRY_RUN_SUSPENDED, "s"), 2);
	ck_assert(!engine_run_is_held(f.engine, "r") && !engine_run_is_held(f.engine, "s"));
	ck_assert(f.entries[before].kind == ENTRY_RUN_SUSPENDED && f.entries[before + 1].kind == ENTRY_RUN_SUSPENDED);
	ck_assert_uint_eq(count_entries(&f, ENTRY_ATTEMPT_FAILED, "s"), 1); /* behind them */
	close_tree(&f);
}
END_TEST

/* The child that the run waited for has ended. */
static void end_child(struct fixture *f, struct activity *child)
{
	child->result = (struct activity_result){.ok = true, .output = json_number(&f->arena, 7)};
	child->on_done(child);
	commit(f);
}

static int control_tree(struct fixture *f, struct engine_tree *tree, enum engine_verb verb, size_t below)
{
	static int code;
	struct error error = {0};

	code = -1;
	*tree = (struct engine_tree){.root = {.verb = verb, .id = "r"}, .on_done = on_tree, .owner = &code};
	ck_assert_int_eq(engine_control_tree(f->engine, tree, &error), 0);
	answer_look(f, below, ERR_NONE);
	answer_look(f, below, ERR_NONE);
	for (unsigned turns = 0; turns < 8; turns++)
		go_on(f, 1);
	return code;
}

/* A run that the resume of its tree ends loses its snapshot with that one append; the others' next appends take nobody's away. */
START_TEST(tree_forgets_snapshots_once)
{
	struct fixture f;
	struct engine_tree tree;

	open_tree(&f);
	struct activity *child = f.started; /* of "s" */
	ck_assert_int_eq(control_tree(&f, &tree, CONTROL_PAUSE, 1), ERR_NONE);
	end_child(&f, child);
	ck_assert(engine_run_is_open(f.engine, "s"));
	f.forgets_also = 0;
	ck_assert_int_eq(control_tree(&f, &tree, CONTROL_RESUME, 1), ERR_NONE);
	ck_assert(!engine_run_is_open(f.engine, "s") && engine_run_is_open(f.engine, "r"));
	ck_assert_uint_eq(f.forgets_also, 1);
	ck_assert_int_eq(control(&f, CONTROL_PAUSE), ERR_NONE);
	ck_assert_uint_eq(f.forgets_also, 0);
	close_tree(&f);
}
END_TEST

/* A tree that takes more than one turn of the loop to decide, and something comes in between for a run whose turn is still to come: its own decision, which needs an
 * evaluation first, is waited for all the same, and is in the one append. */
START_TEST(tree_waits_for_late_decisions)
{
	static const char tasks[] = "[{\"c\":{\"run\":{\"workflow\":{\"namespace\":\"test\",\"name\":\"child\",\"version\":\"1.0.0\"}}}},"
				    "{\"x\":{\"set\":{\"v\":\"${ [1,2] | map(. + 1) }\"}}}]";
	struct fixture *f = memory_zero(sizeof *f);
	struct error error = {0};
	int code = -1, late = -1;
	struct engine_tree tree;
	struct buffer kept;
	const char *last;

	open_tree_of(f, tasks, TREE_IDS);
	last = arena_printf(&f->arena, "s%d", TREE_IDS - 2);
	struct activity *child = f->started; /* of the last one */
	ck_assert_str_eq(child->run_id, last);
	ck_assert_int_eq(control_tree(f, &tree, CONTROL_PAUSE, TREE_IDS - 1), ERR_NONE);
	ck_assert_uint_eq(tree.run_count, TREE_IDS);
	end_child(f, child);
	ck_assert_ptr_null(f->asked);

	tree = (struct engine_tree){.root = {.verb = CONTROL_RESUME, .id = "r"}, .on_done = on_tree, .owner = &code};
	ck_assert_int_eq(engine_control_tree(f->engine, &tree, &error), 0);
	answer_look(f, TREE_IDS - 1, ERR_NONE);
	answer_look(f, TREE_IDS - 1, ERR_NONE); /* the first turn: the last two are still to decide */
	struct engine_control asked = {.verb = CONTROL_PAUSE, .id = last, .on_done = on_controlled, .owner = &late};
	ck_assert_int_eq(engine_control(f->engine, &asked, &error), 0);
	engine_on_time(f->engine);
	ck_assert_ptr_nonnull(f->asked);
	ck_assert_ptr_null(waiting);
	buffer_init(&kept, EVALUATION_ANSWER_MAX);
	buffer_add_text(&kept, "[[2,3]]");
	f->asked->kept = buffer_bytes(&kept);
	f->asked->on_done(f->asked);
	buffer_close(&kept);
	ck_assert_ptr_nonnull(waiting);
	size_t before = f->entry_count;
	ck_assert_uint_gt(waiting->entry_count, TREE_IDS);
	for (unsigned turns = 0; turns < 8; turns++)
		go_on(f, 1);
	ck_assert_int_eq(code, ERR_NONE);
	ck_assert_uint_eq(tree.run_count, TREE_IDS);
	ck_assert_uint_gt(f->entry_count, before + TREE_IDS);
	ck_assert_uint_eq(count_entries(f, ENTRY_RUN_RESUMED, last), 1);
	ck_assert_uint_eq(count_entries(f, ENTRY_RUN_COMPLETED, last), 1); /* in that append, before the pause had its turn */
	ck_assert_int_eq(late, ERR_NONE);
	close_tree(f);
	free(f);
}
END_TEST

/* A tree that is asked for while its runs are still read after a start: what a resume begins is not taken for what the daemon's end interrupted, and begun a second
 * time beside it; what a pause or a cancel meets has not begun again. */
START_TEST(tree_of_a_restart)
{
	static const char tasks[] = "[{\"a\":{\"run\":{\"workflow\":{\"namespace\":\"test\",\"name\":\"child\",\"version\":\"1.0.0\"}}}},"
				    "{\"b\":{\"run\":{\"workflow\":{\"namespace\":\"test\",\"name\":\"child\",\"version\":\"1.0.0\"}}}}]";
	static const struct {
		enum engine_verb verb;
		bool suspended; /* before the start, with `a` done; else `a` is under way */
		unsigned starts, failed; /* attempts after it */
	} cases[] = {{CONTROL_RESUME, true, 1, 0}, {CONTROL_RESUME, false, 1, 1}, {CONTROL_PAUSE, false, 0, 1}, {CONTROL_CANCEL, false, 0, 0}};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct fixture f;
		struct engine_tree tree;
		struct error error = {0};
		int code = -1;

		open_tree_of(&f, tasks, 1);
		if (cases[i].suspended) {
			ck_assert_int_eq(control(&f, CONTROL_PAUSE), ERR_NONE);
			end_child(&f, f.started);
		}
		engine_drop(f.engine);
		f.holds_loads = true;
		start(&f, -1);
		f.starts = 0;
		engine_recover(f.engine, "r", 0, 0);
		tree = (struct engine_tree){.root = {.verb = cases[i].verb, .id = "r"}, .on_done = on_tree, .owner = &code};
		ck_assert_int_eq(engine_control_tree(f.engine, &tree, &error), 0);
		answer_load(&f, f.held);
		commit(&f);
		answer_look(&f, 0, ERR_NONE);
		commit(&f);
		for (unsigned turns = 0; turns < 4; turns++)
			go_on(&f, 1);
		ck_assert_int_eq(code, ERR_NONE);
		ck_assert_uint_eq(f.starts, cases[i].starts);
		ck_assert_uint_eq(count_entries(&f, ENTRY_ATTEMPT_FAILED, "r"), cases[i].failed);
		ck_assert_uint_eq(count_entries(&f, ENTRY_RUN_RESUMED, "r"), cases[i].suspended);
		ck_assert_uint_eq(count_entries(&f, ENTRY_RUN_SUSPENDED, "r"), cases[i].suspended || cases[i].verb == CONTROL_PAUSE);
		close_tree(&f);
	}
}
END_TEST

/* The daemon goes away while a tree's entries wait for room: what its runs have decided is let go before what it points into. */
START_TEST(tree_is_dropped)
{
	struct fixture f;
	struct error error = {0};
	int code = -1;
	struct engine_tree tree = {.root = {.verb = CONTROL_CANCEL, .id = "r"}, .on_done = on_tree, .owner = &code};

	open_tree(&f);
	size_t before = f.entry_count;
	ck_assert_int_eq(engine_control_tree(f.engine, &tree, &error), 0);
	answer_look(&f, 1, ERR_NONE);
	answer_look(&f, 1, ERR_NONE);
	f.refusal = ERR_FULL;
	commit(&f);
	ck_assert(engine_is_quiet(f.engine) && engine_run_is_held(f.engine, "s"));
	close_tree(&f);
	ck_assert_int_eq(code, ERR_CANCELLED);
	ck_assert_uint_eq(f.entry_count, before);
}
END_TEST

/* Nothing is done to a tree of more than ENGINE_TREE_RUNS_MAX runs, or of which the journal cannot be asked, or that the store refuses; its runs go on. */
START_TEST(tree_that_is_refused)
{
	static const struct {
		size_t below;
		enum error_code look, append, result;
	} cases[] = {{3, ERR_NONE, ERR_NONE, ERR_TOO_LARGE}, {1, ERR_CORRUPT, ERR_NONE, ERR_CORRUPT}, {1, ERR_NONE, ERR_TOO_LARGE, ERR_TOO_LARGE}};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct fixture f;
		struct error error = {0};
		int code = -1;
		struct engine_tree tree = {.root = {.verb = CONTROL_CANCEL, .id = "r"}, .on_done = on_tree, .owner = &code};

		open_tree(&f);
		size_t before = f.entry_count;
		ck_assert_int_eq(engine_control_tree(f.engine, &tree, &error), 0);
		answer_look(&f, cases[i].below, cases[i].look);
		if (cases[i].append != ERR_NONE)
			answer_look(&f, cases[i].below, cases[i].look);
		f.refusal = cases[i].append;
		commit(&f);
		f.refusal = ERR_NONE;
		ck_assert_int_eq(code, (int)cases[i].result);
		ck_assert_uint_eq(f.entry_count, before);
		ck_assert(!engine_run_is_held(f.engine, "r") && !engine_run_is_held(f.engine, "s"));
		ck_assert_int_eq(control(&f, CONTROL_CANCEL), ERR_NONE);
		ck_assert_uint_eq(count_entries(&f, ENTRY_RUN_CANCELLED, "r"), 1);
		close_tree(&f);
	}
}
END_TEST

/* Trees take their turn, ENGINE_TREES_MAX at most; a daemon that goes away meanwhile has done nothing of what waits, and says so. */
START_TEST(trees_take_turns)
{
	struct fixture f;
	struct error error = {0};
	int codes[ENGINE_TREES_MAX + 1];
	struct engine_tree *trees = memory_zero((ENGINE_TREES_MAX + 1) * sizeof *trees);

	open_tree(&f);
	for (size_t i = 0; i <= ENGINE_TREES_MAX; i++) {
		codes[i] = -1;
		trees[i] = (struct engine_tree){.root = {.verb = i % 2 == 0 ? CONTROL_PAUSE : CONTROL_RESUME, .id = "r"}, .on_done = on_tree, .owner = &codes[i]};
		ck_assert_int_eq(engine_control_tree(f.engine, &trees[i], &error), i < ENGINE_TREES_MAX ? 0 : ERR_BUSY);
	}
	ck_assert_ptr_nonnull(strstr(error.message, "ENGINE_TREES_MAX"));
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(f.looks, i + 1);
		answer_look(&f, 0, ERR_NONE);
		commit(&f);
		ck_assert_int_eq(codes[i], ERR_NONE);
		ck_assert_int_eq(codes[i + 1], -1);
		go_on(&f, 1); /* the next turn of the loop */
	}
	ck_assert_uint_eq(count_entries(&f, ENTRY_RUN_SUSPENDED, "r"), 1);
	ck_assert_uint_eq(count_entries(&f, ENTRY_RUN_RESUMED, "r"), 1);
	arena_init(&f.look->arena);
	close_tree(&f);
	ck_assert_int_eq(codes[2], ERR_CANCELLED);
	ck_assert_int_eq(codes[ENGINE_TREES_MAX - 1], ERR_CANCELLED);
	free(trees);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("daemon-engine", control_past_a_full_queue, quarantine, children_of_quarantine, control_while_draining, control_of_a_retry, resume_on_its_way, tree_is_one_append, tree_that_is_refused, trees_take_turns, tree_forgets_snapshots_once, tree_waits_for_late_decisions, tree_of_a_restart, tree_is_dropped, set_back, set_forward, back_and_forth, several_waits, set_back_unseen, set_back_while_committing, slewed)
