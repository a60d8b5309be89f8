/* See view.h. */
#include "workflow/view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"
#include "workflow/state.h"
#include "workflow/value_index.h"

/* --- intervals ---------------------------------------------------------------------------------------------------- */

void interval_add(struct interval_set *set, int64_t from, int64_t until)
{
	size_t first = set->count, last;

	if (from < set->folded_until)
		from = set->folded_until;
	if (until <= from)
		return;
	/* Mostly at the end: look from there. [first, last) are those that touch the new one. */
	while (first > 0 && set->items[first - 1].until >= from)
		first--;
	for (last = first; last < set->count && set->items[last].from <= until; last++) {
		if (set->items[last].from < from)
			from = set->items[last].from;
		if (set->items[last].until > until)
			until = set->items[last].until;
	}
	if (set->count + 1 - (last - first) > set->cap) {
		set->cap = set->cap ? set->cap * 2 : 4;
		set->items = memory_resize(set->items, set->cap * sizeof *set->items);
	}
	memmove(set->items + first + 1, set->items + last, (set->count - last) * sizeof *set->items);
	set->items[first] = (struct interval){from, until};
	set->count = set->count + 1 - (last - first);
}

int64_t interval_total(const struct interval_set *set)
{
	int64_t total = set->folded;

	for (size_t i = 0; i < set->count; i++)
		total += set->items[i].until - set->items[i].from;
	return total;
}

int64_t interval_total_outside(const struct interval_set *set, const struct interval_set *other)
{
	int64_t total = interval_total(set);
	size_t k = 0;

	for (size_t i = 0; i < set->count; i++) {
		struct interval at = set->items[i];
		while (k < other->count && other->items[k].until <= at.from)
			k++;
		for (size_t j = k; j < other->count && other->items[j].from < at.until; j++) {
			int64_t from = other->items[j].from > at.from ? other->items[j].from : at.from;
			int64_t until = other->items[j].until < at.until ? other->items[j].until : at.until;
			total -= until - from;
		}
	}
	return total;
}

/* The part of it that lies before `until`; the rest stays in `set`. */
static struct interval_set cut(struct interval_set *set, int64_t until)
{
	struct interval_set before = {.folded = set->folded};
	size_t whole = 0;

	while (whole < set->count && set->items[whole].until <= until)
		whole++;
	for (size_t i = 0; i < whole; i++)
		interval_add(&before, set->items[i].from, set->items[i].until);
	if (whole > 0)
		memmove(set->items, set->items + whole, (set->count - whole) * sizeof *set->items);
	set->count -= whole;
	if (set->count > 0 && set->items[0].from < until) {
		interval_add(&before, set->items[0].from, until);
		set->items[0].from = until;
	}
	return before;
}

void interval_fold(struct interval_set *active, struct interval_set *queued, int64_t until)
{
	if (until <= active->folded_until)
		return;
	struct interval_set active_before = cut(active, until), queued_before = cut(queued, until);
	active->folded = interval_total(&active_before);
	queued->folded = interval_total_outside(&queued_before, &active_before);
	active->folded_until = queued->folded_until = until;
	interval_close(&active_before);
	interval_close(&queued_before);
}

void interval_close(struct interval_set *set)
{
	free(set->items);
	*set = (struct interval_set){0};
}

/* --- overhead ----------------------------------------------------------------------------------------------------- */

static void add_milliseconds(struct arena *arena, struct json *to, const struct json *from_us)
{
	for (size_t i = 0; from_us && i < from_us->object.count; i++)
		if (json_is(from_us->object.members[i].value, JSON_NUMBER))
			json_set_number(arena, to, from_us->object.members[i].name, from_us->object.members[i].value->number / 1000);
}

struct json *view_overhead(struct arena *arena, int64_t wall_us, const struct interval_set *active, const struct interval_set *queued, const struct json *stages_us)
{
	struct json *overhead = json_object(arena), *stages = json_object(arena);
	int64_t activity_us = interval_total(active), queued_us = interval_total_outside(queued, active);

	if (activity_us <= wall_us && queued_us > wall_us - activity_us) /* waits for timers are known to the millisecond only */
		queued_us = wall_us - activity_us;

	json_set_number(arena, overhead, "wallMs", (double)wall_us / 1000);
	json_set_number(arena, overhead, "activityMs", (double)activity_us / 1000);
	json_set_number(arena, overhead, "queuedMs", (double)queued_us / 1000);
	json_set_number(arena, overhead, "overheadMs", (double)(wall_us - activity_us - queued_us) / 1000);
	add_milliseconds(arena, stages, stages_us);
	json_set(arena, overhead, "stages", stages);
	if (json_is(json_get(stages_us, "waited"), JSON_OBJECT)) {
		struct json *waited = json_object(arena);
		add_milliseconds(arena, waited, json_get(stages_us, "waited"));
		json_set(arena, overhead, "waitedMs", waited);
	}
	return overhead;
}

static void add_interval(struct interval_set *set, const struct json *pair)
{
	const struct json *from = json_at(pair, 0), *until = json_at(pair, 1);

	if (json_is(from, JSON_NUMBER) && json_is(until, JSON_NUMBER))
		interval_add(set, (int64_t)from->number, (int64_t)until->number);
}

/* The sum's own number grows in place: a run may have very many attempts. */
static void add_stage(struct arena *arena, struct json *sum, const char *name, double us)
{
	struct json *number = json_get(sum, name);

	if (json_is(number, JSON_NUMBER))
		number->number += us;
	else
		json_set_number(arena, sum, name, us);
}

static void add_stages(struct arena *arena, struct json *sum, const struct json *stages)
{
	for (size_t i = 0; json_is(stages, JSON_OBJECT) && i < stages->object.count; i++)
		if (json_is(stages->object.members[i].value, JSON_NUMBER))
			add_stage(arena, sum, stages->object.members[i].name, stages->object.members[i].value->number);
}

static struct json *waited_of(struct arena *arena, struct json *sum)
{
	if (!json_get(sum, "waited"))
		json_set(arena, sum, "waited", json_object(arena));
	return json_get(sum, "waited");
}

void view_add_record(struct arena *arena, const struct json *record, struct interval_set *active, struct interval_set *queued, struct json *sum)
{
	const struct json *waited = json_get(record, "waitedUs");

	add_interval(active, json_get(record, "activeUs"));
	add_interval(queued, json_get(record, "queuedUs"));
	add_stages(arena, sum, json_get(record, "stages"));
	if (json_is(waited, JSON_OBJECT))
		add_stages(arena, waited_of(arena, sum), waited);
}

void view_add_cut_off(struct arena *arena, int64_t from_us, int64_t until_us, struct interval_set *queued, struct json *sum)
{
	if (until_us <= from_us)
		return;
	interval_add(queued, from_us, until_us);
	add_stage(arena, waited_of(arena, sum), WAITS_RESTART, (double)(until_us - from_us));
}

/* --- the run document --------------------------------------------------------------------------------------------- */

bool view_include_parse(const char *text, unsigned *include, const char **bad)
{
	static const struct {
		const char *name;
		unsigned bit;
	} words[] = {{"input", VIEW_INPUT}, {"output", VIEW_OUTPUT}, {"tasks", VIEW_TASKS}, {"events", VIEW_EVENTS}, {"facts", VIEW_FACTS}, {"labels", VIEW_LABELS}, {"children", VIEW_CHILDREN}, {"all", VIEW_ALL}};

	*include = 0;
	while (*text) {
		size_t len = strcspn(text, ","), i;
		for (i = 0; i < COUNT_OF(words); i++)
			if (strlen(words[i].name) == len && memcmp(words[i].name, text, len) == 0)
				break;
		if (i == COUNT_OF(words)) {
			*bad = text;
			return false;
		}
		*include |= words[i].bit;
		text += len;
		text += *text == ',';
	}
	return true;
}

static void set_time(struct arena *arena, struct json *object, const char *name, int64_t wall_ms)
{
	char text[TIME_TEXT_LEN + 1];

	time_text(wall_ms, text);
	json_set_text(arena, object, name, text);
}

/* A text that is filled again and again. */
struct slate {
	char *text;
	size_t cap;
};

static void write_slate(struct arena *arena, struct slate *slate, const char *text)
{
	size_t len = strlen(text) + 1;

	if (len > slate->cap) {
		slate->cap = len * 2;
		slate->text = arena_alloc(arena, slate->cap);
	}
	memcpy(slate->text, text, len);
}

/* A task of the document, by its step id. json NULL: it is not on this page, and forgotten when it ends. */
struct task_view {
	struct slate step;
	struct json *json;
	struct task_view *next;
};

/* Where a value was brought, by the beginning of its digest: 0 is free. */
struct place {
	uint64_t key, content_id;
};

/* A step that waits for a timer, a child or an event, since when. */
struct wait_view {
	struct slate step;
	bool waits;
	int64_t since_ms; /* 0: a listen that is busy with an event; it waits again when that one's foreach is through */
	struct wait_view *next;
};

/* An attempt under way, by its step: a run may have thousands of them at once. */
struct flight_view {
	struct slate step;
	int64_t since_ms;
	struct flight_view *next;
};

enum { INPUTS_SHOWN = 16, PLACES_MIN = 256 };

struct view {
	struct arena *arena;
	struct view_source source;
	const struct definition *definition;
	const char *origin;
	unsigned include;
	size_t events_left_out, facts_left_out;
	struct arena page; /* of what is needed while a page is looked through */
	struct value_index values; /* of the page */
	struct place *places; /* of earlier ones; owned */
	size_t place_count, place_slots;
	struct json *tasks;
	uint64_t tasks_after; /* those that began at it or before are on earlier pages */
	size_t tasks_max, tasks_left_out;
	/* Large inputs that were shown in full lately: all iterations of a loop have the same one. */
	struct digest shown[INPUTS_SHOWN];
	size_t shown_count;
	struct task_view *slots[1024], *spare;
	/* of the run itself */
	struct json *run, *facts, *events, *sum;
	struct interval_set active, queued;
	struct wait_view *waits;
	struct flight_view *flights[256], *spare_flight;
	const struct json *record;
	enum run_status status;
	int64_t created_ms, last_ms, ended_ms, suspended_ms; /* suspended: since when; 0: it is not */
	struct budget_amount budget, spent;
};

static uint64_t place_key(const struct digest *digest)
{
	uint64_t key;

	memcpy(&key, digest->bytes, sizeof key);
	return key ? key : 1;
}

static struct place *find_place(const struct view *v, uint64_t key)
{
	for (size_t slot = key & (v->place_slots - 1);; slot = (slot + 1) & (v->place_slots - 1))
		if (v->places[slot].key == 0 || v->places[slot].key == key)
			return &v->places[slot];
}

static void add_place(struct view *v, const struct digest *digest, uint64_t content_id)
{
	if (v->place_count * 2 >= v->place_slots) {
		struct place *old = v->places;
		size_t old_slots = v->place_slots;
		v->place_slots = old_slots ? old_slots * 2 : PLACES_MIN;
		v->places = memory_zero(v->place_slots * sizeof *v->places);
		for (size_t i = 0; i < old_slots; i++)
			if (old[i].key)
				*find_place(v, old[i].key) = old[i];
		free(old);
	}
	struct place *place = find_place(v, place_key(digest));
	v->place_count += place->key == 0;
	*place = (struct place){place_key(digest), content_id};
}

static bool load_value(const struct view *v, struct arena *arena, const struct digest *digest, bool whole, struct bytes *bytes)
{
	if (!v->source.load || v->place_slots == 0)
		return false;
	const struct place *place = find_place(v, place_key(digest));
	return place->key != 0 && v->source.load(v->source.context, arena, place->content_id, digest, whole, bytes);
}

/* The value that data[name] names, whichever entry brought it. */
static struct json *value_in(const struct view *v, struct arena *arena, const struct json *data, const char *name, bool whole)
{
	struct digest digest;
	char text[DIGEST_TEXT_LEN + 1];
	struct bytes bytes = {0};

	if (!json_get_digest(data, name, &digest))
		return NULL;
	const struct entry_value *value = value_index_find(&v->values, &digest);
	if (value)
		bytes = value->bytes;
	if (bytes.data || load_value(v, arena, &digest, whole, &bytes)) {
		struct json *json = json_parse(arena, bytes, JSON_STORED, NULL, NULL);
		if (json)
			return json;
	}
	struct json *stub = json_object(arena);
	digest_text(&digest, text);
	json_set_text(arena, stub, "digest", text);
	if (value)
		json_set_number(arena, stub, "size", (double)value->size);
	return stub;
}

static struct json *value_of(const struct view *v, const struct json *data, const char *name)
{
	return value_in(v, v->arena, data, name, false);
}

/* A task's input: in full, but a large one only once; then by its digest. A loop of n iterations over n items would be quadratic. */
static struct json *input_of(struct view *v, const struct json *data)
{
	struct digest digest;

	if (!json_get_digest(data, "input", &digest))
		return NULL;
	const struct entry_value *value = value_index_find(&v->values, &digest);
	if (!value || value->size <= VALUE_INLINE_MAX)
		return value_of(v, data, "input");
	for (size_t i = 0; i < v->shown_count && i < INPUTS_SHOWN; i++)
		if (digest_equal(&v->shown[i], &digest)) {
			struct json *stub = json_object(v->arena);
			char text[DIGEST_TEXT_LEN + 1];
			digest_text(&digest, text);
			json_set_text(v->arena, stub, "digest", text);
			json_set_number(v->arena, stub, "size", (double)value->size);
			return stub;
		}
	v->shown[v->shown_count++ % INPUTS_SHOWN] = digest;
	return value_of(v, data, "input");
}

static struct task_view **find_task(struct view *v, const char *step)
{
	struct task_view **link = &v->slots[text_hash(step) % COUNT_OF(v->slots)];

	while (*link && strcmp((*link)->step.text, step) != 0)
		link = &(*link)->next;
	return link;
}

static bool ends_task(const struct entry *entry)
{
	return entry->kind == ENTRY_TASK_COMPLETED || entry->kind == ENTRY_TASK_FAULTED || entry->kind == ENTRY_TASK_CANCELLED || entry->kind == ENTRY_TASK_SKIPPED;
}

static struct json *view_task(struct view *v, const struct entry *entry)
{
	const char *step = json_get_text(entry->data, "stepId");
	struct step_id id;

	if (!step || !step_id_parse(&v->page, step, &id))
		return NULL;
	struct task_view **link = find_task(v, step), *view = *link;
	if (view) {
		struct json *known = view->json;
		if (!known && ends_task(entry)) { /* nothing follows: there may be very many of these */
			*link = view->next;
			view->next = v->spare;
			v->spare = view;
		}
		return known;
	}
	bool earlier = v->tasks_after && entry->seq <= v->tasks_after, left_out = !earlier && json_count(v->tasks) >= v->tasks_max;
	v->tasks_left_out += left_out;
	if ((earlier || left_out) && ends_task(entry))
		return NULL;
	view = v->spare;
	if (view)
		v->spare = view->next;
	else
		view = arena_zero(v->arena, sizeof *view);
	write_slate(v->arena, &view->step, step);
	view->json = NULL;
	view->next = NULL;
	*link = view;
	if (earlier || left_out)
		return NULL;

	struct json *task = json_object(v->arena), *iteration = json_array(v->arena);
	const struct task *defined = v->definition ? definition_find_task(v->definition, id.reference) : NULL;
	const char *slash = strrchr(id.reference, '/');
	json_set_text(v->arena, task, "name", defined ? defined->name : slash ? slash + 1 : id.reference);
	json_set_text(v->arena, task, "reference", id.reference);
	for (size_t i = 0; i < id.iteration_count; i++)
		json_add(v->arena, iteration, json_number(v->arena, (double)id.iterations[i]));
	if (id.iteration_count > 0)
		json_set(v->arena, task, "iteration", iteration);
	json_set_text(v->arena, task, "step", step);
	json_set_number(v->arena, task, "execution", (double)id.execution);
	json_set_text(v->arena, task, "status", "running");
	json_set_number(v->arena, task, "attempts", 0);
	json_set_number(v->arena, task, "startSeq", (double)entry->seq);
	json_add(v->arena, v->tasks, task);
	view->json = task;
	return task;
}

static void end_task(struct view *v, struct json *task, const struct entry *entry, const char *status)
{
	json_set_text(v->arena, task, "status", status);
	json_set_number(v->arena, task, "endSeq", (double)entry->seq);
	struct json *input = input_of(v, entry->data), *output = value_of(v, entry->data, "output"), *error = value_of(v, entry->data, "error");
	if (input)
		json_set(v->arena, task, "input", input);
	if (output)
		json_set(v->arena, task, "output", output);
	if (error)
		json_set(v->arena, task, "error", error);
}

static void add_task_entry(struct view *v, const struct entry *entry)
{
	struct json *task = view_task(v, entry);

	if (!task)
		return;
	switch (entry->kind) {
	case ENTRY_TASK_STARTED: {
		struct json *input = input_of(v, entry->data);
		if (input)
			json_set(v->arena, task, "input", input);
		if (json_get(entry->data, "items"))
			json_set(v->arena, task, "items", json_copy(v->arena, json_get(entry->data, "items")));
		if (json_get_text(entry->data, "due")) {
			json_set_text(v->arena, task, "status", "waiting");
			json_set_text(v->arena, task, "until", json_get_text(entry->data, "due"));
		}
		if (json_get_text(entry->data, "since")) { /* a listen */
			json_set_text(v->arena, task, "status", "waiting");
			json_set_number(v->arena, task, "consumed", 0);
		}
		break;
	}
	case ENTRY_TASK_CARRIED: {
		struct json *input = input_of(v, entry->data);
		if (input)
			json_set(v->arena, task, "input", input);
		json_set_text(v->arena, task, "status", json_get_text(entry->data, "phase"));
		if (json_get(entry->data, "attempt"))
			json_set_number(v->arena, task, "attempts", json_get_number(entry->data, "attempt", 0));
		break;
	}
	case ENTRY_EVENT_CONSUMED:
		json_set_number(v->arena, task, "consumed", json_get_number(task, "consumed", 0) + 1);
		if (json_get_boolean(entry->data, "last", false))
			json_set_text(v->arena, task, "status", "running");
		break;
	case ENTRY_TASK_CAUGHT:
		json_set_text(v->arena, task, "status", "running");
		break;
	case ENTRY_TASK_RESUMED:
		json_set_text(v->arena, task, "status", json_get(entry->data, "since") ? "waiting" : "running");
		json_remove(task, "endSeq");
		json_remove(task, "error");
		break;
	case ENTRY_TIMER_FIRED:
		if (strcmp(json_get_text(entry->data, "timer"), "retry") == 0) /* the next attempt of a try begins */
			json_set_number(v->arena, task, "attempts", json_get_number(task, "attempts", 0) + 1);
		json_set_text(v->arena, task, "status", "running");
		json_remove(task, "retryAt");
		json_remove(task, "until");
		break;
	case ENTRY_TASK_COMPLETED:
		end_task(v, task, entry, "completed");
		break;
	case ENTRY_TASK_FAULTED:
		end_task(v, task, entry, "faulted");
		break;
	case ENTRY_TASK_CANCELLED:
		end_task(v, task, entry, "cancelled");
		break;
	case ENTRY_TASK_SKIPPED:
		end_task(v, task, entry, "skipped");
		break;
	case ENTRY_TASK_RETRYING:
		json_set_text(v->arena, task, "status", "waiting");
		json_set_text(v->arena, task, "retryAt", json_get_text(entry->data, "due"));
		json_set_text(v->arena, task, "lastFailure", json_get_text(entry->data, "class"));
		if (!json_get(entry->data, "class")) /* of a try, which has no entry for the beginning of the first */
			json_set_number(v->arena, task, "attempts", json_get_number(entry->data, "attempt", 1) - 1);
		break;
	case ENTRY_ATTEMPT_STARTED:
		json_set_text(v->arena, task, "status", "running");
		json_set_number(v->arena, task, "attempts", json_get_number(entry->data, "attempt", 0));
		json_remove(task, "retryAt");
		break;
	default:
		break;
	}
}

static bool tells_of_task(const struct entry *entry)
{
	if (entry->kind == ENTRY_TASK_CARRIED) { /* what was over belongs to the run that this one was forked of */
		const char *phase = json_get_text(entry->data, "phase");
		bool is_live = phase && (strcmp(phase, instance_phase_name(INSTANCE_STARTED)) == 0 || strcmp(phase, instance_phase_name(INSTANCE_BACKING_OFF)) == 0);
		return is_live && json_get(entry->data, "stepId") && !json_get_boolean(entry->data, "body", false);
	}
	return json_get(entry->data, "stepId") && entry->kind != ENTRY_FACT_RECORDED && entry->kind != ENTRY_GATE_RECORDED;
}

/* "/do/0/a/foreach#3.0@1" is what "/do/0/a#3@2" does with its event 0. */
static bool is_foreach_of(struct arena *arena, const char *foreach, const char *step)
{
	struct step_id each, of;
	size_t len;

	if (!step_id_parse(arena, foreach, &each) || !step_id_parse(arena, step, &of) || each.iteration_count != of.iteration_count + 1)
		return false;
	len = strlen(of.reference);
	return strncmp(each.reference, of.reference, len) == 0 && strcmp(each.reference + len, "/foreach") == 0 &&
	       memcmp(each.iterations, of.iterations, of.iteration_count * sizeof *of.iterations) == 0;
}

/* Time in which a task waited for a timer, a child or an event alone is queued time: from the entry that says `due`, `awaits` or `since` to the next one of the step;
 * of a listen on to the one after that, and so on. */
static void add_wait(struct view *v, const struct entry *entry)
{
	const char *step = json_get_text(entry->data, "stepId");
	struct wait_view *at, *spare = NULL;

	if (!step)
		return;
	for (at = v->waits; at && (!at->waits || strcmp(at->step.text, step) != 0); at = at->next) {
		if (!at->waits)
			spare = at;
		else if (at->since_ms == 0 && (entry->kind == ENTRY_TASK_COMPLETED || entry->kind == ENTRY_TASK_SKIPPED) && is_foreach_of(&v->page, step, at->step.text))
			at->since_ms = entry->time_ms;
	}
	if (at && json_get(entry->data, "timer") && strcmp(json_get_text(entry->data, "timer"), "attempt") == 0)
		return;
	if (at) {
		if (at->since_ms != 0)
			interval_add(&v->queued, (at->since_ms - v->created_ms) * 1000, (entry->time_ms - v->created_ms) * 1000);
		if (entry->kind == ENTRY_EVENT_CONSUMED && !json_get_boolean(entry->data, "last", false)) {
			at->since_ms = json_get(entry->data, "iteration") ? 0 : entry->time_ms;
			return;
		}
		at->waits = false;
		spare = at;
	}
	if (!json_get(entry->data, "due") && !json_get(entry->data, "since") && !json_get_boolean(entry->data, "awaits", false))
		return;
	if (!spare) {
		spare = arena_zero(v->arena, sizeof *spare);
		spare->next = v->waits;
		v->waits = spare;
	}
	write_slate(v->arena, &spare->step, step);
	spare->waits = true;
	spare->since_ms = entry->time_ms;
}

/* An attempt that the daemon's end cut off waited for the daemon: nothing is known of what it did, and nothing of that counts. One that waits for a child is among the waits. */
static void add_flight(struct view *v, const struct entry *entry)
{
	const char *step = json_get_text(entry->data, "stepId"), *class = json_get_text(entry->data, "class");
	bool begins = entry->kind == ENTRY_ATTEMPT_STARTED && !json_get_boolean(entry->data, "awaits", false);
	bool ends = entry->kind == ENTRY_ATTEMPT_SUCCEEDED || entry->kind == ENTRY_ATTEMPT_FAILED || entry->kind == ENTRY_TASK_FAULTED || entry->kind == ENTRY_TASK_CANCELLED;

	if (!step || (!begins && !ends))
		return;
	struct flight_view **link = &v->flights[text_hash(step) % COUNT_OF(v->flights)], *flight;
	while (*link && strcmp((*link)->step.text, step) != 0)
		link = &(*link)->next;
	flight = *link;
	if (ends && flight) {
		if (entry->kind == ENTRY_ATTEMPT_FAILED && class && strcmp(class, failure_name(FAILURE_INTERRUPTED)) == 0)
			view_add_cut_off(v->arena, (flight->since_ms - v->created_ms) * 1000, (entry->time_ms - v->created_ms) * 1000, &v->queued, v->sum);
		*link = flight->next;
		flight->next = v->spare_flight;
		v->spare_flight = flight;
	}
	if (!begins)
		return;
	if (!flight) {
		flight = v->spare_flight ? v->spare_flight : arena_zero(v->arena, sizeof *flight);
		v->spare_flight = flight->next;
		write_slate(v->arena, &flight->step, step);
		flight->next = *link;
		*link = flight;
	}
	flight->since_ms = entry->time_ms;
}

struct json *view_parent(struct arena *arena, const char *run, const char *step)
{
	struct json *parent = json_object(arena);

	json_set_text(arena, parent, "run", run);
	json_set_text(arena, parent, "step", step);
	return parent;
}

static struct view *new_view(struct arena *arena, const struct definition *definition, const struct view_source *source)
{
	struct view *v = arena_zero(arena, sizeof *v);

	*v = (struct view){.arena = arena, .definition = definition, .tasks = json_array(arena), .tasks_max = VIEW_TASKS_MAX, .status = RUN_PENDING};
	if (source)
		v->source = *source;
	arena_init(&v->page);
	return v;
}

struct view *view_begin(struct arena *arena, const struct definition *definition, const char *origin, unsigned include, const struct view_source *source)
{
	struct view *v = new_view(arena, definition, source);

	v->origin = origin;
	v->include = include;
	v->run = json_object(arena);
	v->facts = json_array(arena);
	v->events = json_array(arena);
	v->sum = json_object(arena);
	return v;
}

struct view *view_begin_tasks(struct arena *arena, const struct definition *definition, uint64_t after, size_t limit, const struct view_source *source)
{
	struct view *v = new_view(arena, definition, source);

	CHECK(limit > 0 && limit <= VIEW_TASKS_MAX);
	v->tasks_after = after;
	v->tasks_max = limit;
	v->include = VIEW_TASKS;
	return v;
}

struct json *view_forked_from(struct arena *arena, const struct json *from)
{
	static const char *const names[] = {"run", "seq", "children", "kept", "more"};
	struct json *shown = json_object(arena);

	for (size_t i = 0; i < COUNT_OF(names); i++)
		if (json_get(from, names[i]))
			json_set(arena, shown, names[i], json_copy(arena, json_get(from, names[i])));
	json_set_text(arena, shown, "task", json_get_text(from, "step"));
	return shown;
}

void view_set_budget(struct arena *arena, struct json *run, const struct budget_amount *budget, const struct budget_amount *spent)
{
	bool limited = budget_limits(budget);

	if (limited)
		json_set(arena, run, "budget", budget_json(arena, budget));
	if (limited || spent->tokens > 0 || spent->us > 0)
		json_set(arena, run, "spent", budget_json(arena, spent));
}

static void begin_fork(struct view *v, const struct json *created)
{
	struct json *from = view_forked_from(v->arena, json_get(created, "forkedFrom"));

	if (v->include & VIEW_INPUT) {
		struct json *reason = value_in(v, v->arena, created, "reason", true);
		json_set(v->arena, from, "overrides", value_in(v, v->arena, created, "overrides", true));
		if (reason)
			json_set(v->arena, from, "reason", reason);
	}
	json_set(v->arena, v->run, "forkedFrom", from);
}

static void begin_run(struct view *v, const struct entry *entry)
{
	const struct json *created = entry->data, *parent = json_get(created, "parent");
	struct json *workflow = json_copy(v->arena, json_get(created, "workflow"));
	struct digest digest;
	char text[DIGEST_TEXT_LEN + 1];

	CHECK(entry->kind == ENTRY_RUN_CREATED);
	v->created_ms = entry->time_ms;
	v->budget = BUDGET_UNLIMITED;
	budget_take(json_get(created, "budget"), &v->budget);
	if (json_get_digest(created, "definition", &digest)) {
		digest_text(&digest, text);
		json_set_text(v->arena, workflow, "digest", text);
	}
	json_set_text(v->arena, v->run, "id", json_get_text(created, "runId"));
	json_set(v->arena, v->run, "workflow", workflow);
	if (parent)
		json_set(v->arena, v->run, "parent", view_parent(v->arena, json_get_text(parent, "run"), json_get_text(parent, "step")));
	if (json_get(created, "forkedFrom"))
		begin_fork(v, created);
	json_set(v->arena, v->run, "error", json_null(v->arena));
	set_time(v->arena, v->run, "createdAt", entry->time_ms);
	set_time(v->arena, v->run, "startedAt", entry->time_ms);
	if (v->include & VIEW_INPUT)
		json_set(v->arena, v->run, "input", value_in(v, v->arena, created, "input", true));
	if (v->include & VIEW_LABELS) {
		struct json *labels = value_in(v, v->arena, created, "labels", true);
		json_set(v->arena, v->run, "labels", labels ? labels : json_object(v->arena));
	}
}

static void add_run_entry(struct view *v, const struct entry *entry)
{
	struct digest digest;
	char text[DIGEST_TEXT_LEN + 1];

	v->status = run_status_after(v->status, entry);
	if (v->suspended_ms != 0 && v->status != RUN_SUSPENDED) {
		interval_add(&v->queued, (v->suspended_ms - v->created_ms) * 1000, (entry->time_ms - v->created_ms) * 1000);
		v->suspended_ms = 0;
		json_remove(v->run, "reason");
		json_remove(v->run, "quarantined");
	}
	switch (entry->kind) {
	case ENTRY_RUN_RETRIED: { /* in between it waited for whoever retried it */
		interval_add(&v->queued, (v->ended_ms - v->created_ms) * 1000, (entry->time_ms - v->created_ms) * 1000);
		v->ended_ms = 0;
		v->record = NULL;
		budget_take(json_get(entry->data, "budget"), &v->budget);
		json_set(v->arena, v->run, "error", json_null(v->arena));
		json_set_number(v->arena, v->run, "retries", json_get_number(v->run, "retries", 0) + 1);
		break;
	}
	case ENTRY_ATTEMPT_SUCCEEDED:
	case ENTRY_ATTEMPT_FAILED:
		budget_spend(&v->spent, json_get(entry->data, "spent"));
		break;
	case ENTRY_RUN_SUSPENDED: {
		struct json *reason = value_of(v, entry->data, "reason");
		if (v->suspended_ms == 0)
			v->suspended_ms = entry->time_ms;
		if (reason)
			json_set(v->arena, v->run, "reason", reason);
		if (json_get_boolean(entry->data, "quarantined", false))
			json_set_boolean(v->arena, v->run, "quarantined", true);
		break;
	}
	case ENTRY_RUN_COMPLETED:
	case ENTRY_RUN_FAULTED:
	case ENTRY_RUN_CANCELLED:
	case ENTRY_RUN_KILLED: {
		v->ended_ms = entry->time_ms;
		v->record = value_of(v, entry->data, "record");
		struct json *reason = value_of(v, entry->data, "reason");
		/* Of a run that is ended in quarantine nobody could say what was under way. */
		for (size_t i = 0; v->status == RUN_CANCELLED && i < json_count(v->tasks); i++) {
			struct json *task = (struct json *)json_at(v->tasks, i);
			if (json_get(task, "endSeq"))
				continue;
			json_set_text(v->arena, task, "status", "cancelled");
			json_set_number(v->arena, task, "endSeq", (double)entry->seq);
		}
		if (entry->kind == ENTRY_RUN_KILLED)
			json_set_text(v->arena, v->run, "reason", "killed");
		else if (reason)
			json_set(v->arena, v->run, "reason", reason);
		if (entry->kind == ENTRY_RUN_FAULTED)
			json_set(v->arena, v->run, "error", value_of(v, entry->data, "error"));
		if (entry->kind == ENTRY_RUN_COMPLETED && (v->include & VIEW_OUTPUT))
			json_set(v->arena, v->run, "output", value_in(v, v->arena, entry->data, "output", true));
		break;
	}
	case ENTRY_FACT_RECORDED: {
		const char *verdict = json_get_text(entry->data, "verdict");
		if ((v->include & VIEW_FACTS) && verdict && strcmp(verdict, "PASSED") == 0 && json_get_digest(entry->data, "payload", &digest)) {
			digest_hex(&digest, text);
			if (json_count(v->facts) < VIEW_FACTS_MAX)
				json_add(v->arena, v->facts, json_text(v->arena, text));
			else
				v->facts_left_out++;
		}
		break;
	}
	default:
		break;
	}
	if ((entry->kind == ENTRY_ATTEMPT_SUCCEEDED || entry->kind == ENTRY_ATTEMPT_FAILED) && json_get(entry->data, "record"))
		view_add_record(v->arena, value_in(v, &v->page, entry->data, "record", false), &v->active, &v->queued, v->sum);
	add_wait(v, entry);
	add_flight(v, entry);
	if (v->include & VIEW_EVENTS) {
		struct json *events = json_array(&v->page);
		view_cloud_events(&v->page, entry, v->origin, events);
		for (size_t i = 0; i < json_count(events); i++) {
			if (json_count(v->events) < VIEW_EVENTS_MAX)
				json_add(v->arena, v->events, json_copy(v->arena, json_at(events, i)));
			else
				v->events_left_out++;
		}
	}
}

void view_add(struct view *v, const struct entry *entries, size_t count)
{
	value_index_make(&v->values, &v->page, entries, count);
	for (size_t i = 0; i < count; i++) {
		const struct entry *entry = &entries[i];
		for (size_t slot = 0; slot < entry->value_count; slot++)
			add_place(v, &entry->values[slot].digest, CONTENT_ID(entry->seq, slot));
		if (v->run && !json_get(v->run, "id"))
			begin_run(v, entry);
		if (v->run)
			add_run_entry(v, entry);
		if ((v->include & VIEW_TASKS) && tells_of_task(entry))
			add_task_entry(v, entry);
		v->last_ms = entry->time_ms;
	}
	v->values = (struct value_index){0};
	arena_close(&v->page);
	if (!(v->include & (VIEW_TASKS | VIEW_OUTPUT))) { /* all else comes with the entry that names it */
		free(v->places);
		v->places = NULL;
		v->place_slots = v->place_count = 0;
	}
}

void view_drop(struct view *v)
{
	free(v->places);
	interval_close(&v->active);
	interval_close(&v->queued);
	v->places = NULL;
	v->place_slots = v->place_count = 0;
}

struct json *view_end_tasks(struct view *v)
{
	struct json *page = json_object(v->arena);
	size_t shown = json_count(v->tasks);

	json_set_number(v->arena, page, "next", shown > 0 ? json_get_number(json_at(v->tasks, shown - 1), "startSeq", 0) : (double)v->tasks_after);
	json_set_number(v->arena, page, "left", (double)v->tasks_left_out);
	json_set(v->arena, page, "tasks", v->tasks);
	view_drop(v);
	return page;
}

struct json *view_end(struct view *v)
{
	struct json *run = v->run;

	CHECK(json_get(run, "id") != NULL); /* it had entries */
	json_set_text(v->arena, run, "status", run_status_name(v->status));
	if (v->ended_ms)
		set_time(v->arena, run, "endedAt", v->ended_ms);
	view_set_budget(v->arena, run, &v->budget, &v->spent);
	if (v->include & VIEW_TASKS)
		json_set(v->arena, run, "tasks", v->tasks);
	if (v->tasks_left_out > 0)
		json_set_number(v->arena, run, "tasksLeftOut", (double)v->tasks_left_out);
	if (v->include & VIEW_FACTS)
		json_set(v->arena, run, "facts", v->facts);
	if (v->facts_left_out > 0)
		json_set_number(v->arena, run, "factsLeftOut", (double)v->facts_left_out);
	if (v->include & VIEW_EVENTS)
		json_set(v->arena, run, "events", v->events);
	if (v->events_left_out > 0)
		json_set_number(v->arena, run, "eventsLeftOut", (double)v->events_left_out);

	/* What still waits has waited until the last entry, too. */
	for (const struct wait_view *at = v->waits; at && !v->ended_ms; at = at->next)
		if (at->waits && at->since_ms != 0)
			interval_add(&v->queued, (at->since_ms - v->created_ms) * 1000, (v->last_ms - v->created_ms) * 1000);
	/* The run's own record knows the wall time to the microsecond and the stages outside attempts; without it (still under way): what
	 * the attempts say, and the time between the entries. */
	const struct json *stages = json_get(v->record, "stages");
	int64_t wall_us = (int64_t)json_get_number(v->record, "wallUs", (double)(v->last_ms - v->created_ms) * 1000);
	struct json *overhead = view_overhead(v->arena, wall_us, &v->active, &v->queued, json_is(stages, JSON_OBJECT) ? stages : v->sum);
	if (v->ended_ms) /* no entry can hold the duration of its own commit */
		json_set_boolean(v->arena, overhead, "withoutLastCommit", true);
	json_set(v->arena, run, "overhead", overhead);
	view_drop(v);
	return run;
}

struct json *view_run(struct arena *arena, const struct entry *entries, size_t count, const struct definition *definition, const char *origin, unsigned include)
{
	struct view *view = view_begin(arena, definition, origin, include, NULL);

	CHECK(count > 0);
	view_add(view, entries, count);
	return view_end(view);
}

struct json *view_tasks(struct arena *arena, const struct entry *entries, size_t count, const struct definition *definition, uint64_t after, size_t limit)
{
	struct view *view = view_begin_tasks(arena, definition, after, limit, NULL);

	view_add(view, entries, count);
	return view_end_tasks(view);
}

struct json *view_entry(struct arena *arena, const struct entry *entry)
{
	struct json *json = json_object(arena);

	json_set_number(arena, json, "seq", (double)entry->seq);
	json_set_text(arena, json, "kind", entry_kind_name(entry->kind));
	set_time(arena, json, "ts", entry->time_ms);
	json_set(arena, json, "data", entry->data);
	return json;
}

/* --- CloudEvents -------------------------------------------------------------------------------------------------- */

#define KIND(kind) ((uint64_t)1 << (kind))
const uint64_t view_cloud_event_kinds = KIND(ENTRY_RUN_CREATED) | KIND(ENTRY_RUN_COMPLETED) | KIND(ENTRY_RUN_FAULTED) | KIND(ENTRY_RUN_CANCELLED) |
					KIND(ENTRY_RUN_KILLED) | KIND(ENTRY_RUN_SUSPENDED) | KIND(ENTRY_RUN_RESUMED) | KIND(ENTRY_RUN_RETRIED) | KIND(ENTRY_TASK_STARTED) |
					KIND(ENTRY_TASK_COMPLETED) | KIND(ENTRY_TASK_FAULTED) | KIND(ENTRY_TASK_CANCELLED) | KIND(ENTRY_TASK_RETRYING) |
					KIND(ENTRY_EVENT_EMITTED) | KIND(ENTRY_EVENT_CONSUMED);

#define TYPE "io.serverlessworkflow."

/* What an entry stands for, in this order. An entry that says several things at once gives an event for each; `suffix` tells their ids
 * apart, and the one without is the entry's own. */
static const struct lifecycle {
	enum entry_kind kind;
	const char *type, *verb, *suffix;
	const char *only_with; /* a member that the entry must have, or NULL: a pure task, never started, has its input; a `listen` says since when
				  events count, and which one was the last */
} lifecycles[] = {
	{ENTRY_RUN_CREATED, TYPE "workflow.started.v1", "startedAt", "", NULL},
	{ENTRY_RUN_COMPLETED, TYPE "workflow.completed.v1", "completedAt", "", NULL},
	{ENTRY_RUN_FAULTED, TYPE "workflow.faulted.v1", "faultedAt", "", NULL},
	{ENTRY_RUN_CANCELLED, TYPE "workflow.cancelled.v1", "cancelledAt", "", NULL},
	{ENTRY_RUN_KILLED, TYPE "workflow.cancelled.v1", "cancelledAt", "", NULL},
	{ENTRY_RUN_SUSPENDED, TYPE "workflow.suspended.v1", "suspendedAt", "", NULL},
	{ENTRY_RUN_RESUMED, TYPE "workflow.resumed.v1", "resumedAt", "", NULL}, /* and each of its tasks: task_lifecycles */
	{ENTRY_RUN_RETRIED, TYPE "workflow.resumed.v1", "resumedAt", "", NULL},
	{ENTRY_TASK_STARTED, TYPE "task.created.v1", "createdAt", "-created", NULL},
	{ENTRY_TASK_STARTED, TYPE "task.started.v1", "startedAt", "", NULL},
	{ENTRY_TASK_STARTED, TYPE "workflow.correlation-started.v1", "startedAt", "-correlation", "since"},
	{ENTRY_EVENT_CONSUMED, TYPE "workflow.correlation-completed.v1", "completedAt", "", "last"},
	{ENTRY_TASK_COMPLETED, TYPE "task.created.v1", "createdAt", "-created", "input"},
	{ENTRY_TASK_COMPLETED, TYPE "task.started.v1", "startedAt", "-started", "input"},
	{ENTRY_TASK_COMPLETED, TYPE "task.completed.v1", "completedAt", "", NULL},
	{ENTRY_TASK_FAULTED, TYPE "task.faulted.v1", "faultedAt", "", NULL},
	{ENTRY_TASK_CANCELLED, TYPE "task.cancelled.v1", "cancelledAt", "", NULL},
	{ENTRY_TASK_RETRYING, TYPE "task.retried.v1", "retriedAt", "", NULL},
};

/* Of each task that run.suspended and run.resumed name. */
static const struct lifecycle task_lifecycles[] = {
	{ENTRY_RUN_SUSPENDED, TYPE "task.suspended.v1", "suspendedAt", "-task", NULL},
	{ENTRY_RUN_RESUMED, TYPE "task.resumed.v1", "resumedAt", "-task", NULL},
};

/* data[name] as the entry brought it, or by its digest where it did not. */
static struct json *brought_value(struct arena *arena, const struct entry *entry, const char *name)
{
	struct digest digest;
	char text[DIGEST_TEXT_LEN + 1];
	struct json *stub;

	if (!json_get_digest(entry->data, name, &digest))
		return NULL;
	stub = json_object(arena);
	digest_text(&digest, text);
	json_set_text(arena, stub, "digest", text);
	for (size_t i = 0; i < entry->value_count; i++)
		if (digest_equal(&entry->values[i].digest, &digest)) {
			struct json *json = entry->values[i].bytes.data ? json_parse(arena, entry->values[i].bytes, JSON_STORED, NULL, NULL) : NULL;
			if (json)
				return json;
			json_set_number(arena, stub, "size", (double)entry->values[i].size);
		}
	return stub;
}

/* number: of the event among those of the same kind that the entry gives, from 1; 0: there is one. */
static struct json *make_event(struct arena *arena, const struct entry *entry, const char *origin, const struct lifecycle *lifecycle, const char *step, size_t number)
{
	const char *run = json_get_text(entry->data, "runId");
	static const char *const values[] = {"input", "output", "error"};
	struct json *event = json_object(arena), *data = json_object(arena);
	struct step_id id;

	json_set_text(arena, event, "specversion", "1.0");
	json_set(arena, event, "id", number > 0 ? json_printf(arena, "%" PRIu64 "%s-%zu", entry->seq, lifecycle->suffix, number)
						: json_printf(arena, "%" PRIu64 "%s", entry->seq, lifecycle->suffix));
	json_set(arena, event, "source", json_printf(arena, "https://%s", origin));
	json_set_text(arena, event, "type", lifecycle->type);
	json_set_text(arena, event, "subject", run);
	set_time(arena, event, "time", entry->time_ms);
	json_set_text(arena, event, "datacontenttype", "application/json");
	json_set_text(arena, data, step ? "workflow" : "name", run);
	if (step) {
		json_set_text(arena, data, "task", step_id_parse(arena, step, &id) ? id.reference : step);
		json_set_text(arena, data, "step", step);
	}
	if (json_get(entry->data, "workflow"))
		json_set(arena, data, "definition", json_get(entry->data, "workflow"));
	set_time(arena, data, lifecycle->verb, entry->time_ms);
	for (size_t i = 0; *lifecycle->suffix == 0 && i < COUNT_OF(values); i++) {
		struct json *value = brought_value(arena, entry, values[i]);
		if (value)
			json_set(arena, data, values[i], value);
	}
	json_set(arena, event, "data", data);
	return event;
}

void view_cloud_events(struct arena *arena, const struct entry *entry, const char *origin, struct json *list)
{
	if (!json_get_text(entry->data, "runId"))
		return;
	if (entry->kind == ENTRY_EVENT_EMITTED) {
		struct json *event = brought_value(arena, entry, "event");
		if (event)
			json_add(arena, list, event);
		return;
	}
	for (size_t i = 0; i < COUNT_OF(lifecycles); i++)
		if (lifecycles[i].kind == entry->kind && (!lifecycles[i].only_with || json_get(entry->data, lifecycles[i].only_with)))
			json_add(arena, list, make_event(arena, entry, origin, &lifecycles[i], json_get_text(entry->data, "stepId"), 0));
	const struct json *tasks = json_get(entry->data, "tasks");
	for (size_t i = 0; i < COUNT_OF(task_lifecycles); i++)
		for (size_t k = 0; task_lifecycles[i].kind == entry->kind && k < json_count(tasks); k++)
			if (json_is(json_at(tasks, k), JSON_STRING))
				json_add(arena, list, make_event(arena, entry, origin, &task_lifecycles[i], json_at(tasks, k)->string.text, k + 1));
}
