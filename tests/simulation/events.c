/* Events of the simulation: those who send them, the hub that offers them to listeners, and a plain matcher of its own, against which the oracle
 * holds what each listen consumed. */
#include "tests/simulation/simulation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/time.h"
#include "workflow/language/cloud_event.h"
#include "workflow/language/consumption.h"

enum { FEED_US = 500000, FEED_SLOWER = 64 /* the more there were, the rarer they become: some runs wait for hours */, OFFER_US = 20000, TYPES = 4, ROOMS = 3 };

/* --- what the journal has ------------------------------------------------------------------------------------------ */

bool events_know(const struct world *world, const struct digest *key)
{
	for (size_t i = 0; i < world->sent_count; i++)
		if (digest_equal(&world->sent[i].key, key))
			return true;
	return false;
}

static void pump_all(struct world *world, void *arg);

/* event.received or event.emitted has become durable. */
void events_add(struct world *world, const struct entry *entry)
{
	struct digest key;

	if (!json_get_digest(entry->data, "key", &key) || entry->value_count == 0)
		broken(world, NULL, "%s has no key or no event", entry_kind_name(entry->kind));
	if (events_know(world, &key))
		broken(world, NULL, "an event is in the journal twice");
	if (world->sent_count == world->sent_cap) {
		world->sent_cap = world->sent_cap ? world->sent_cap * 2 : 64;
		world->sent = memory_resize(world->sent, world->sent_cap * sizeof *world->sent);
	}
	for (size_t i = 0; i < entry->value_count; i++) {
		struct digest digest;
		if (!json_get_digest(entry->data, "event", &digest) || !digest_equal(&digest, &entry->values[i].digest))
			continue;
		world->sent[world->sent_count++] = (struct sent){.seq = entry->seq, .time_ms = entry->time_ms, .key = key, .bytes = arena_bytes(&world->arena, entry->values[i].bytes)};
		world_at(world, random_below(&world->random, OFFER_US), true, pump_all, NULL);
		return;
	}
	broken(world, NULL, "%s does not carry its event", entry_kind_name(entry->kind));
}

const struct sent *events_find(const struct world *world, uint64_t seq)
{
	for (size_t i = 0; i < world->sent_count; i++)
		if (world->sent[i].seq == seq)
			return &world->sent[i];
	return NULL;
}

/* --- who sends ------------------------------------------------------------------------------------------------------ */

struct sender {
	struct list link;
	struct world *world;
	struct arena arena;
	struct entry entry;
	struct store_append append;
	struct digest key;
	bool acknowledged, under_way;
};

static void on_send(struct world *world, void *arg);

static void on_sent(struct store_append *append)
{
	struct sender *sender = append->owner;

	sender->under_way = false;
	if (append->error.code == ERR_NONE || append->error.code == ERR_EXISTS) {
		sender->acknowledged = true;
		if (!events_know(sender->world, &sender->key)) /* now: the same one may be sent again and heal it */
			broken(sender->world, NULL, "an event was acknowledged and is lost");
	} else {
		world_at(sender->world, random_below(&sender->world->random, 500000), false, on_send, sender);
	}
}

/* Until it is acknowledged; and one that does not hear of it sends the same event again. */
static void on_send(struct world *world, void *arg)
{
	struct sender *sender = arg;

	if (events_know(world, &sender->key)) {
		world->counters.duplicates += !sender->acknowledged;
		sender->acknowledged = true;
		return;
	}
	if (sender->under_way)
		return;
	sender->entry.time_ms = world_wall_ms(world);
	sender->append = (struct store_append){.entries = &sender->entry, .entry_count = 1, .on_done = on_sent, .owner = sender};
	sender->under_way = journal_append(world, &sender->append) == 0;
	if (!sender->under_way)
		world_at(world, random_below(&world->random, 500000), false, on_send, sender);
}

static struct sender *new_sender(struct world *world)
{
	struct sender *sender = memory_zero(sizeof *sender);
	struct random *random = &world->random;
	struct json *event, *data;

	sender->world = world;
	arena_init(&sender->arena);
	list_init(&sender->link);
	list_add_last(&world->senders, &sender->link);
	event = json_object(&sender->arena);
	json_set_text(&sender->arena, event, "specversion", "1.0");
	json_set(&sender->arena, event, "id", json_printf(&sender->arena, "e%u", world->feed_count++));
	json_set_text(&sender->arena, event, "source", random_chance(random, 500) ? "/sensor" : "/other");
	json_set(&sender->arena, event, "type", json_printf(&sender->arena, "t%u", (unsigned)random_below(random, TYPES)));
	if (random_chance(random, 800))
		json_set(&sender->arena, event, "room", json_printf(&sender->arena, "r%u", (unsigned)random_below(random, ROOMS)));
	if (random_chance(random, 900)) {
		data = json_object(&sender->arena);
		json_set_number(&sender->arena, data, "n", (double)random_below(random, 10));
		if (random_chance(random, 100)) { /* larger than what is kept in memory */
			char *pad = arena_alloc(&sender->arena, 6001);
			for (size_t i = 0; i < 6000; i++)
				pad[i] = (char)('a' + random_below(random, 26));
			pad[6000] = 0;
			json_set_text(&sender->arena, data, "pad", pad);
		}
		json_set(&sender->arena, event, "data", random_chance(random, 50) ? json_text(&sender->arena, "odd") : data);
	}
	sender->key = cloud_event_key(json_get_text(event, "source"), json_get_text(event, "id"));
	sender->entry = (struct entry){.kind = ENTRY_EVENT_RECEIVED, .data = json_object(&sender->arena)};
	entry_add_value(&sender->arena, &sender->entry, "event", json_print_arena(event, &sender->arena));
	json_set_digest(&sender->arena, sender->entry.data, "key", &sender->key);
	return sender;
}

/* As long as there is a run that might wait. */
static void on_feed(struct world *world, void *arg)
{
	(void)arg;
	if (!journal_has_open_run(world)) {
		world->feeding = false;
		return;
	}
	struct sender *sender = new_sender(world);
	for (unsigned copies = random_chance(&world->random, 150) ? 2 : 1; copies > 0; copies--)
		world_at(world, random_below(&world->random, 20000), false, on_send, sender);
	world_at(world, random_below(&world->random, FEED_US * (1 + world->feed_count / FEED_SLOWER)), false, on_feed, NULL);
}

void events_feed(struct world *world)
{
	if (world->feeding)
		return;
	world->feeding = true;
	world_at(world, random_below(&world->random, FEED_US), false, on_feed, NULL);
}

/* The appends that a crash threw away are never answered. */
void events_forget_appends(struct world *world)
{
	LIST_EACH(link, &world->senders) {
		struct sender *sender = CONTAINER_OF(link, struct sender, link);
		if (sender->under_way && !sender->acknowledged)
			world_at(world, random_below(&world->random, 500000), false, on_send, sender);
		sender->under_way = false;
	}
}

/* --- the hub -------------------------------------------------------------------------------------------------------- */

struct listener {
	struct list link;
	struct world *world;
	char *run_id, *step_id;
	const struct task *task;
	struct definition *definition;
	int64_t since_ms;
	uint64_t after_seq;
	struct engine_offer offer;
	bool offering, gone;
};

static void free_listener(struct listener *listener)
{
	list_remove(&listener->link);
	if (--listener->definition->use_count == 0) /* the run was parked, and loaded it again since */
		definition_free(listener->definition);
	free(listener->run_id);
	free(listener->step_id);
	free(listener);
}

static void on_offered(struct engine_offer *offer)
{
	struct listener *listener = offer->owner;
	struct world *world = listener->world;

	listener->offering = false;
	if (offer->consumed && offer->error.code == ERR_NONE)
		world->counters.consumed++;
	if (listener->gone) {
		free_listener(listener);
		return;
	}
	if (offer->error.code == ERR_NONE && !random_chance(&world->random, 50)) /* now and then the same once more */
		listener->after_seq = offer->seq;
	world_at(world, random_below(&world->random, OFFER_US), true, pump_all, NULL);
}

static void pump(struct listener *listener)
{
	struct world *world = listener->world;
	struct arena arena;
	struct error error = {0};

	arena_init(&arena);
	for (size_t i = 0; i < world->sent_count && !listener->offering; i++) {
		const struct sent *sent = &world->sent[i];
		if (sent->seq <= listener->after_seq || sent->time_ms < listener->since_ms)
			continue;
		const struct json *envelope = json_parse(&arena, sent->bytes, JSON_STORED, NULL, NULL);
		if (event_strategy_rejects(listener->task->listen->to, envelope)) {
			listener->after_seq = sent->seq;
			continue;
		}
		listener->offer = (struct engine_offer){.run_id = listener->run_id, .step_id = listener->step_id, .seq = sent->seq, .time_ms = sent->time_ms,
							.event = sent->bytes, .on_done = on_offered, .owner = listener};
		listener->offering = true;
		world->counters.offers++;
		if (engine_offer_event(world->engine, &listener->offer, &error) != 0)
			listener->offering = false;
		break; /* its answer may have come already; the rest goes on from there */
	}
	arena_close(&arena);
}

static void pump_all(struct world *world, void *arg)
{
	(void)arg;
	LIST_EACH_SAFE(link, &world->listeners) {
		struct listener *listener = CONTAINER_OF(link, struct listener, link);
		if (!listener->offering && !listener->gone)
			pump(listener);
	}
}

void events_listen(void *arg, const char *run_id, const char *step_id, const struct task *task, struct definition *definition, int64_t since_ms, uint64_t after_seq)
{
	struct world *world = arg;
	struct listener *listener = memory_zero(sizeof *listener);

	LIST_EACH(link, &world->listeners) {
		const struct listener *other = CONTAINER_OF(link, struct listener, link);
		if (!other->gone && strcmp(other->run_id, run_id) == 0 && strcmp(other->step_id, step_id) == 0)
			broken(world, world_run_model(world, run_id), "%s listens twice", step_id);
	}
	listener->world = world;
	listener->run_id = memory_text(run_id);
	listener->step_id = memory_text(step_id);
	listener->task = task;
	listener->definition = definition;
	definition->use_count++;
	listener->since_ms = since_ms;
	listener->after_seq = after_seq;
	list_init(&listener->link);
	list_add_last(&world->listeners, &listener->link);
	world->counters.listeners++;
	world_at(world, random_below(&world->random, OFFER_US), true, pump_all, NULL);
}

void events_unlisten(void *arg, const char *run_id, const char *step_id)
{
	struct world *world = arg;

	LIST_EACH_SAFE(link, &world->listeners) {
		struct listener *listener = CONTAINER_OF(link, struct listener, link);
		if (listener->gone || strcmp(listener->run_id, run_id) != 0 || (step_id && strcmp(listener->step_id, step_id) != 0))
			continue;
		listener->gone = true;
		if (!listener->offering)
			free_listener(listener);
	}
}

/* The engine has gone, and all that it told the hub. */
void events_forget_listeners(struct world *world)
{
	LIST_EACH_SAFE(link, &world->listeners) {
		struct listener *listener = CONTAINER_OF(link, struct listener, link);
		if (listener->offering)
			broken(world, NULL, "an offer to %s was never answered", listener->step_id);
		free_listener(listener);
	}
}

void events_check_rest(const struct world *world)
{
	LIST_EACH(link, &world->senders) {
		const struct sender *sender = CONTAINER_OF(link, struct sender, link);
		if (sender->acknowledged && !events_know(world, &sender->key))
			broken((struct world *)world, NULL, "an event was acknowledged and is lost");
	}
}

void events_close(struct world *world)
{
	events_forget_listeners(world);
	while (!list_empty(&world->senders)) {
		struct sender *sender = CONTAINER_OF(world->senders.next, struct sender, link);
		list_remove(&sender->link);
		arena_close(&sender->arena);
		free(sender);
	}
	free(world->sent);
}

/* --- a plain matcher ------------------------------------------------------------------------------------------------ */

/* The filters that programs.c makes, read from the definition's text: an attribute is equal, or "^t[01]$", or `${ .n OP number }` of data. */
static bool attribute_matches(const struct json *event, const char *name, const struct json *wanted)
{
	const struct json *has = json_get(event, name);
	const char *text = json_is(wanted, JSON_STRING) ? wanted->string.text : "", *op;
	double number;

	if (strcmp(text, "^t[01]$") == 0)
		return has && (strcmp(has->string.text, "t0") == 0 || strcmp(has->string.text, "t1") == 0);
	if (strcmp(text, "${ (.n + 0) % 2 == 0 }") == 0) /* null is 0 for jq's +; a text has no members */
		return !json_is(has, JSON_STRING) && ((int)json_get_number(has, "n", 0)) % 2 == 0;
	if (strncmp(text, "${ .n ", 6) == 0) {
		op = text + 6;
		number = strtod(op + 2, NULL);
		if (json_is(has, JSON_STRING))
			return false;
		double n = json_get_number(has, "n", -1); /* null is less than any number */
		return *op == '<' ? n < number : n > number;
	}
	return has && json_equal(has, wanted);
}

static bool filter_matches(const struct json *filter, const struct json *event, const struct json *room)
{
	const struct json *with = json_get(filter, "with"), *correlate = json_get(json_get(filter, "correlate"), "room");

	for (size_t i = 0; i < with->object.count; i++)
		if (!attribute_matches(event, with->object.members[i].name, with->object.members[i].value))
			return false;
	if (!correlate)
		return true;
	const struct json *has = json_get(event, "room"), *expect = json_get(correlate, "expect");
	return has && (!room || json_equal(room, has)) && (!expect || json_equal(expect, has));
}

static int match_list(const struct json *to, const char *kind, uint64_t met, const struct json *event, const struct json *room, const struct json **matched)
{
	const struct json *filters = json_get(to, kind);
	bool is_one = json_is(filters, JSON_OBJECT);

	*matched = NULL;
	if (!is_one && json_count(filters) == 0)
		return 0;
	for (size_t i = 0; i < (is_one ? 1 : json_count(filters)); i++) {
		const struct json *filter = is_one ? filters : json_at(filters, i);
		if (strcmp(kind, "all") == 0 && (met >> i & 1))
			continue;
		if (!filter_matches(filter, event, room))
			continue;
		*matched = filter;
		return (int)i;
	}
	return -1;
}

static const char *kind_of(const struct json *to)
{
	return json_get(to, "one") ? "one" : json_get(to, "any") ? "any" : "all";
}

bool events_match(const struct json *to, struct listening *listening, const struct json *event, bool *is_until)
{
	const struct json *until = json_get(to, "until"), *matched;
	int filter = -1;

	*is_until = json_is(until, JSON_OBJECT);
	if (*is_until)
		filter = match_list(until, kind_of(until), listening->until_met, event, listening->room, &matched);
	*is_until = *is_until && filter >= 0;
	if (!*is_until)
		filter = match_list(to, kind_of(to), listening->met, event, listening->room, &matched);
	if (filter < 0)
		return false;
	*(*is_until ? &listening->until_met : &listening->met) |= UINT64_C(1) << filter;
	const struct json *of = *is_until ? until : to;
	if (json_get(json_get(matched, "correlate"), "room") && !listening->room)
		listening->room = json_get(event, "room");
	if (*is_until || !until)
		listening->over = strcmp(kind_of(of), "all") != 0 ||
				  (*is_until ? listening->until_met : listening->met) == (UINT64_C(1) << json_count(json_get(of, "all"))) - 1;
	return true;
}
