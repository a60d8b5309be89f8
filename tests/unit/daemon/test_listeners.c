/* Tests of daemon/listeners.c over a real store and hub, with a port that plays the engine: what is offered to whom, and that removing one
 * at any moment is safe. */
#include "daemon/listeners.h"

#include "daemon/definitions.h"
#include "tests/unit/store/fixture.h"
#include "workflow/language/cloud_event.h"

enum { OFFERS_MAX = 64 };

struct engine_played {
	struct listeners *listeners;
	struct engine_offer *offers[OFFERS_MAX];
	size_t count;
	int code; /* what the call answers */
	bool answers_inside; /* … and on_done fires at once */
	enum error_code result; /* of an answer */
	const char *removes; /* the run that is removed within the offer */
};

static int offer(void *arg, struct engine_offer *given, struct error *error)
{
	struct engine_played *played = arg;

	ck_assert_uint_lt(played->count, OFFERS_MAX);
	played->offers[played->count++] = given;
	if (played->code != 0)
		return error_set(error, played->code, "played");
	if (played->removes)
		listeners_remove(played->listeners, played->removes, NULL);
	if (played->answers_inside) {
		given->error.code = played->result;
		given->on_done(given);
	}
	return 0;
}

static void answer(struct engine_offer *given, enum error_code code)
{
	given->error.code = code;
	given->on_done(given);
}

struct world {
	struct fixture f;
	struct event_hub *hub;
	struct engine_played played;
	struct definition *definition;
	const struct event_strategy *strategy;
	unsigned made;
};

static void open_world(struct world *w)
{
	struct event_attribute *attribute;
	struct event_filter *filter;
	struct event_strategy *strategy;
	struct problems problems;

	*w = (struct world){0};
	fixture_start(&w->f);
	problems_init(&problems);
	w->definition = definition_load(BYTES_OF("document: {dsl: '1.0.3', namespace: a, name: b, version: '1.0.0'}\ndo: []\n"), TEXT_YAML, &problems);
	ck_assert_ptr_nonnull(w->definition);
	problems_close(&problems);
	attribute = arena_zero(&w->f.arena, sizeof *attribute);
	filter = arena_zero(&w->f.arena, sizeof *filter);
	strategy = arena_zero(&w->f.arena, sizeof *strategy);
	*attribute = (struct event_attribute){.name = "type", .value = json_text(&w->f.arena, "t"), .is_literal = true};
	*filter = (struct event_filter){.attributes = attribute, .attribute_count = 1};
	*strategy = (struct event_strategy){.kind = EVENTS_ONE, .filters = filter, .filter_count = 1};
	w->strategy = strategy;
	struct listeners_ports ports = {.arg = &w->played, .offer = offer};
	w->hub = event_hub_new(&w->f.loop, w->f.store);
	w->played.listeners = listeners_new(w->hub, &ports);
}

static void close_world(struct world *w)
{
	event_hub_stop(w->hub);
	while (event_hub_is_reading(w->hub))
		uv_run(&w->f.loop, UV_RUN_ONCE);
	listeners_free(w->played.listeners);
	event_hub_close(w->hub);
	uv_run(&w->f.loop, UV_RUN_NOWAIT);
	definition_release(w->definition);
	fixture_end(&w->f);
}

static uint64_t add_event(struct world *w, const char *type)
{
	struct arena *arena = &w->f.arena;
	struct cloud_event event;
	struct entry entry = {.kind = ENTRY_EVENT_RECEIVED, .data = json_object(arena), .time_ms = 1000};

	ck_assert_int_eq(cloud_event_parse(arena, bytes_text(arena_printf(arena, "{\"specversion\":\"1.0\",\"source\":\"s\",\"id\":\"%u\",\"type\":\"%s\"}", w->made++, type)), &event, &w->f.error), 0);
	json_set_digest(arena, entry.data, "key", &event.key);
	entry_add_value(arena, &entry, "event", event.bytes);
	append_ok(&w->f, &entry, 1);
	event_hub_wake(w->hub);
	return entry.seq;
}

static void wait_for_events(struct world *w, const char *run, const char *step)
{
	listeners_add(w->played.listeners, run, step, w->strategy, w->definition, 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
	*(bool *)timer->data = true;
}

/* Turn the loop for a while: what should happen has happened, and nothing more does. */
static void settle(struct world *w)
{
	uv_timer_t timer;
	bool over = false;

	uv_timer_init(&w->f.loop, &timer);
	timer.data = &over;
	uv_update_time(&w->f.loop);
	uv_timer_start(&timer, on_timer, 100, 0);
	while (!over)
		uv_run(&w->f.loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&timer, NULL);
	uv_run(&w->f.loop, UV_RUN_NOWAIT);
}

/* Each is offered what may be for it, one event at a time; one that listens already is not doubled. */
START_TEST(offers)
{
	struct world w;

	open_world(&w);
	uint64_t first = add_event(&w, "t");
	add_event(&w, "other");
	uint64_t second = add_event(&w, "t");
	wait_for_events(&w, "r1", "/do/0/a@1");
	wait_for_events(&w, "r1", "/do/0/a@1");
	ck_assert_uint_eq(listeners_count(w.played.listeners), 1);
	settle(&w);
	ck_assert_uint_eq(w.played.count, 1);
	ck_assert_str_eq(w.played.offers[0]->run_id, "r1");
	ck_assert_str_eq(w.played.offers[0]->step_id, "/do/0/a@1");
	ck_assert_uint_eq(w.played.offers[0]->seq, first);
	ck_assert_ptr_nonnull(memmem(w.played.offers[0]->event.data, w.played.offers[0]->event.len, "\"id\":\"0\"", 8));
	wait_for_events(&w, "r1", "/do/0/a@1"); /* its run was loaded for the offer */
	answer(w.played.offers[0], ERR_NONE);
	settle(&w);
	ck_assert_uint_eq(w.played.count, 2);
	ck_assert_uint_eq(w.played.offers[1]->seq, second);
	answer(w.played.offers[1], ERR_NONE);
	settle(&w);
	ck_assert_uint_eq(w.played.count, 2);
	close_world(&w);
}
END_TEST

/* One that is removed while an event is on offer goes when that is answered; the same step may listen again before. */
START_TEST(removed_while_offering)
{
	struct world w;

	open_world(&w);
	add_event(&w, "t");
	wait_for_events(&w, "r1", "/do/0/a@1");
	wait_for_events(&w, "r1", "/do/1/b@1");
	settle(&w);
	ck_assert_uint_eq(w.played.count, 2);
	listeners_remove(w.played.listeners, "r1", "/do/0/a@1");
	ck_assert_uint_eq(listeners_count(w.played.listeners), 1);
	wait_for_events(&w, "r1", "/do/0/a@1");
	settle(&w);
	ck_assert_uint_eq(w.played.count, 3);
	answer(w.played.offers[0], ERR_NOT_FOUND);
	listeners_remove(w.played.listeners, "r1", NULL);
	ck_assert_uint_eq(listeners_count(w.played.listeners), 0);
	answer(w.played.offers[1], ERR_NONE);
	settle(&w);
	ck_assert_uint_eq(w.played.count, 3);
	close_world(&w); /* with the last offer unanswered */
}
END_TEST

/* Answers from inside the call, removal from inside it, and refusals: an unknown run's listener goes, one of a daemon that stops stays still. */
START_TEST(answers_and_refusals)
{
	struct world w;

	open_world(&w);
	for (int i = 0; i < 3; i++)
		add_event(&w, "t");
	w.played.answers_inside = true;
	wait_for_events(&w, "r1", "/do/0/a@1");
	settle(&w);
	ck_assert_uint_eq(w.played.count, 3);
	w.played.result = ERR_NOT_FOUND;
	wait_for_events(&w, "r2", "/do/0/a@1");
	settle(&w);
	ck_assert_uint_eq(w.played.count, 4);
	ck_assert_uint_eq(listeners_count(w.played.listeners), 1);
	w.played.removes = "r3";
	wait_for_events(&w, "r3", "/do/0/a@1");
	settle(&w);
	ck_assert_uint_eq(w.played.count, 5);
	ck_assert_uint_eq(listeners_count(w.played.listeners), 1);
	w.played.removes = NULL;
	w.played.code = ERR_NOT_FOUND;
	wait_for_events(&w, "r4", "/do/0/a@1");
	settle(&w);
	ck_assert_uint_eq(w.played.count, 6);
	ck_assert_uint_eq(listeners_count(w.played.listeners), 1);
	w.played.code = ERR_BUSY;
	wait_for_events(&w, "r5", "/do/0/a@1");
	settle(&w);
	ck_assert_uint_eq(w.played.count, 7);
	ck_assert_uint_eq(listeners_count(w.played.listeners), 2);
	close_world(&w);
}
END_TEST

/* Many runs: each is found again and removed alone. */
START_TEST(many)
{
	struct world w;
	char run[16];

	open_world(&w);
	for (int i = 0; i < 1000; i++) {
		snprintf(run, sizeof run, "r%d", i);
		wait_for_events(&w, run, "/do/0/a@1");
		wait_for_events(&w, run, "/do/0/a@2");
	}
	for (int i = 0; i < 999; i++) {
		snprintf(run, sizeof run, "r%d", i);
		listeners_remove(w.played.listeners, run, i % 2 ? NULL : "/do/0/a@1");
	}
	ck_assert_uint_eq(listeners_count(w.played.listeners), 500 + 2);
	w.played.answers_inside = true;
	for (int i = 0; i < 500; i += 2) {
		snprintf(run, sizeof run, "r%d", i);
		listeners_remove(w.played.listeners, run, "/do/0/a@2");
	}
	ck_assert_uint_eq(listeners_count(w.played.listeners), 252);
	close_world(&w);
}
END_TEST

TEST_MAIN("listeners", offers, removed_while_offering, answers_and_refusals, many)
