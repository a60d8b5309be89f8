/* See schedules.h. */
#include "daemon/schedules.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/api.h"
#include "daemon/event_trigger.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/id.h"
#include "workflow/base/log.h"
#include "workflow/language/schedule.h"

#define ZONE_FOLDER "/usr/share/zoneinfo"

struct item {
	struct list link; /* by id */
	struct schedules *owner;
	char id[STORE_SCHEDULE_ID_MAX + 1];
	struct definition *definition; /* held */
	struct arena arena; /* of the zone */
	const struct zone *zone;
	struct digest zone_digest;
	int64_t added_ms, accounted_ms, next_ms; /* next_ms 0: nothing to wait for */
	int64_t last_due_ms, last_ended_ms, retry_ms;
	char last_run[ID_LEN_MAX + 1];
	uint64_t ticked, skipped;
	char skipped_why[32];
	bool paused;
	struct writing *writing; /* the append of it that is under way, or NULL */
	struct list controls; /* struct schedule_control: what is asked of it meanwhile, done next, before any tick */
	size_t control_count;
	bool is_stale; /* reload it when that is done */
	struct list reloads; /* struct schedule_reload: who waits for that */
	struct schedule_plan *plan; /* its runs that have not been submitted yet, from plan_at on */
	size_t plan_at;
	/* `on`: */
	struct event_trigger *trigger;
	uint64_t event_seq, seq; /* all events up to it have counted; of definition.added */
	bool fired; /* it is being written, or tried again */
	struct bytes fired_input; /* the trigger's, until its next */
	uint64_t fired_seq;
	int64_t fired_ms;
};

/* One append of an item: skipped ticks, a tick with its run, a pause. */
struct writing {
	struct item *item;
	struct arena arena;
	struct entry entries[2 + COUNT_OF(((struct schedule_plan *)0)->skipped)];
	size_t entry_count;
	struct engine_submit submit;
	struct store_append append;
	struct schedule_control *control; /* or NULL */
	char run_id[27];
	int64_t due_ms; /* of the tick; 0: none */
	int64_t ended_ms; /* a run may end in the very commit that creates it; 0: not yet */
	struct schedule_skipped skipped[COUNT_OF(((struct schedule_plan *)0)->skipped)];
	size_t skipped_count;
	bool by_operator, pauses, resumes;
	uint64_t event_seq; /* of the firing that this writes; 0: none */
};

static void advance(struct item *item);
static void arm(struct schedules *schedules);
static void reload(struct schedules *schedules, const char *id, struct list *reloads);
static void start_control(struct item *item, struct schedule_control *control);

/* --- zone files --------------------------------------------------------------------------------------------------- */

int schedules_load_zone(struct arena *arena, const char *name, const struct zone **zone, struct digest *digest, struct error *error)
{
	char path[sizeof(ZONE_FOLDER) + ZONE_NAME_MAX + 1];
	uint8_t bytes[ZONE_BYTES_MAX + 1];
	struct stat status;
	ssize_t len = -1;

	CHECK(zone_name_is_valid(name));
	snprintf(path, sizeof path, "%s/%s", ZONE_FOLDER, name);
	int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (descriptor >= 0 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode))
		len = read(descriptor, bytes, sizeof bytes);
	if (descriptor >= 0)
		close(descriptor);
	if (len < 0)
		return error_set(error, ERR_NOT_FOUND, "there is no time zone %s in %s; is the package tzdata installed?", name, ZONE_FOLDER);
	*digest = digest_of((struct bytes){bytes, (size_t)len});
	*zone = zone_parse(arena, (struct bytes){bytes, (size_t)len}, error);
	return *zone != NULL ? 0 : error_wrap(error, "time zone %s", name);
}

/* --- items -------------------------------------------------------------------------------------------------------- */

static struct item *find(const struct schedules *schedules, const char *id)
{
	LIST_EACH (link, &schedules->items) {
		struct item *item = CONTAINER_OF(link, struct item, link);
		if (strcmp(item->id, id) == 0)
			return item;
	}
	return NULL;
}

static void free_item(struct item *item)
{
	CHECK(item->writing == NULL && list_empty(&item->controls) && list_empty(&item->reloads));
	event_trigger_end(item->trigger);
	list_remove(&item->link);
	item->owner->count--;
	definition_release(item->definition);
	arena_close(&item->arena);
	free(item->plan);
	free(item);
}

static struct item *make_item(struct schedules *schedules, const char *id)
{
	struct item *item = memory_zero(sizeof *item);
	struct list *place = schedules->items.next;

	item->owner = schedules;
	snprintf(item->id, sizeof item->id, "%s", id);
	arena_init(&item->arena);
	list_init(&item->link);
	list_init(&item->controls);
	list_init(&item->reloads);
	while (place != &schedules->items && strcmp(CONTAINER_OF(place, struct item, link)->id, id) < 0)
		place = place->next;
	list_add_last(place, &item->link); /* before it */
	schedules->count++;
	return item;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static struct entry *add_entry(struct writing *w, enum entry_kind kind)
{
	CHECK(w->entry_count < COUNT_OF(w->entries));
	struct entry *entry = &w->entries[w->entry_count++];
	*entry = (struct entry){.kind = kind, .data = json_object(&w->arena), .time_ms = clock_wall_ms()};
	json_set_text(&w->arena, entry->data, "schedule", w->item->id);
	return entry;
}

static void add_skipped(struct writing *w, const struct schedule_skipped *skipped)
{
	struct entry *entry = add_entry(w, ENTRY_SCHEDULE_SKIPPED);

	api_set_time(&w->arena, entry->data, "first", skipped->first_ms);
	api_set_time(&w->arena, entry->data, "last", skipped->last_ms);
	json_set_number(&w->arena, entry->data, "count", (double)skipped->count);
	if (skipped->is_uncounted)
		json_set_boolean(&w->arena, entry->data, "more", true);
	json_set_text(&w->arena, entry->data, "why", schedule_skip_name(skipped->why));
	if (w->event_seq != 0)
		json_set_number(&w->arena, entry->data, "eventSeq", (double)w->event_seq);
	w->skipped[w->skipped_count++] = *skipped;
}

static struct writing *begin_writing(struct item *item)
{
	struct writing *w = memory_zero(sizeof *w);

	CHECK(item->writing == NULL);
	item->writing = w;
	w->item = item;
	arena_init(&w->arena);
	return w;
}

static void end_writing(struct writing *w, const struct error *error)
{
	struct item *item = w->item;
	struct schedules *schedules = item->owner;

	item->writing = NULL;
	if (error->code == ERR_NONE) {
		for (size_t i = 0; i < w->skipped_count; i++) {
			item->accounted_ms = w->skipped[i].last_ms;
			item->skipped += w->skipped[i].count;
			schedules->skipped += w->skipped[i].count;
			snprintf(item->skipped_why, sizeof item->skipped_why, "%s", schedule_skip_name(w->skipped[i].why));
			log_info(LOG_ENGINE, "schedule=%s skipped=%llu why=\"%s\"", item->id, (unsigned long long)w->skipped[i].count, schedule_skip_name(w->skipped[i].why));
		}
		if (w->due_ms != 0) {
			if (!w->by_operator && w->due_ms > item->accounted_ms)
				item->accounted_ms = w->due_ms;
			item->last_due_ms = w->due_ms;
			item->last_ended_ms = w->ended_ms;
			snprintf(item->last_run, sizeof item->last_run, "%s", w->run_id);
			item->ticked++;
			schedules->ticked++;
			item->plan_at += !w->by_operator && item->plan != NULL;
		}
		if (w->event_seq != 0) {
			item->event_seq = w->event_seq;
			item->fired = false;
			event_trigger_next(item->trigger);
		}
		item->paused = w->pauses || (item->paused && !w->resumes);
		item->retry_ms = 0;
	} else {
		if (w->control == NULL)
			log_warn(LOG_ENGINE, "schedule=%s: %s; it is tried again", item->id, error->message);
		item->retry_ms = clock_wall_ms() + SCHEDULES_RETRY_MS;
		free(item->plan); /* planned anew: nothing of it is durable */
		item->plan = NULL;
	}
	if (w->control != NULL) {
		w->control->error = *error;
		memcpy(w->control->run_id, w->run_id, sizeof w->run_id);
		w->control->on_done(w->control);
	}
	arena_close(&w->arena);
	free(w);
	if (item->writing == NULL && !list_empty(&item->controls)) {
		struct schedule_control *next = CONTAINER_OF(item->controls.next, struct schedule_control, link);
		list_remove(&next->link);
		item->control_count--;
		start_control(item, next);
	} else if (item->is_stale) {
		item->is_stale = false;
		free(item->plan);
		item->plan = NULL;
		reload(schedules, item->id, &item->reloads);
	} else if (item->retry_ms == 0) {
		advance(item);
	}
	arm(schedules);
}

static void on_submitted(struct engine_submit *submit)
{
	FAIL_POINT(SCHEDULE_RECORDED);
	end_writing(submit->owner, &submit->error);
}

static void on_appended(struct store_append *append)
{
	end_writing(append->owner, &append->error);
}

static void append_entries(struct writing *w)
{
	struct error error = {0};

	w->append = (struct store_append){.entries = w->entries, .entry_count = w->entry_count, .on_done = on_appended, .owner = w};
	FAIL_POINT(SCHEDULE_TICK);
	if (store_append(w->item->owner->daemon->store, &w->append) == 0)
		return;
	error_set(&error, ERR_BUSY, "the journal takes no entries now");
	end_writing(w, &error);
}

/* A tick and its run, in one transaction. */
static void submit_tick(struct writing *w, int64_t due_ms)
{
	struct item *item = w->item;
	struct entry *entry = add_entry(w, ENTRY_SCHEDULE_TICKED);
	struct json *labels = json_object(&w->arena);
	struct error error = {0};
	uint8_t random[10];

	CHECK(getrandom(random, sizeof random, 0) == sizeof random);
	id_make(clock_wall_ms(), random, w->run_id);
	w->due_ms = due_ms;
	api_set_time(&w->arena, entry->data, "due", due_ms);
	json_set_text(&w->arena, entry->data, "runId", w->run_id);
	if (w->by_operator)
		json_set_text(&w->arena, entry->data, "by", "operator");
	if (item->zone != NULL)
		json_set_digest(&w->arena, entry->data, "zone", &item->zone_digest);
	if (w->event_seq != 0)
		json_set_number(&w->arena, entry->data, "eventSeq", (double)w->event_seq);
	json_set_text(&w->arena, labels, "schedule", item->id);
	w->submit = (struct engine_submit){
		.definition = item->definition, .id = w->run_id, .input = w->event_seq != 0 ? item->fired_input : bytes_text("null"), .labels = labels, .received_us = clock_now_us(), .extra = w->entries,
		.extra_count = w->entry_count, .on_done = on_submitted, .owner = w,
	};
	FAIL_POINT(SCHEDULE_TICK);
	if (engine_submit(item->owner->daemon->engine, &w->submit, &error) != 0)
		end_writing(w, &error);
}

/* --- what is due -------------------------------------------------------------------------------------------------- */

static bool may_write(const struct item *item)
{
	return item->writing == NULL && item->definition != NULL && item->owner->daemon->stage < DAEMON_DRAINING;
}

static bool may_tick(const struct item *item)
{
	return may_write(item) && !item->paused;
}

/* What was wanted has come: a run, or why there is none, in any case with the last event's seq, so that it has counted. */
static void write_firing(struct item *item)
{
	struct schedule_skipped skipped = {.first_ms = item->fired_ms, .last_ms = item->fired_ms, .count = 1, .why = SCHEDULE_SKIP_COUNT};

	if (!may_write(item))
		return;
	if (item->paused)
		skipped.why = SCHEDULE_PAUSED;
	else if (item->fired_input.data == NULL)
		skipped.why = SCHEDULE_TOO_LARGE;
	else if (item->definition->schedule->overlap == SCHEDULE_OVERLAP_SKIP && item->last_run[0] != '\0' && engine_run_is_open(item->owner->daemon->engine, item->last_run))
		skipped.why = SCHEDULE_OVERLAPPED;
	struct writing *w = begin_writing(item);
	w->event_seq = item->fired_seq;
	if (skipped.why == SCHEDULE_SKIP_COUNT) {
		submit_tick(w, item->fired_ms);
		return;
	}
	add_skipped(w, &skipped);
	append_entries(w);
}

static void on_fire(void *arg, struct bytes input, uint64_t seq, int64_t time_ms)
{
	struct item *item = arg;

	item->fired = true;
	item->fired_input = input;
	item->fired_seq = seq;
	item->fired_ms = time_ms;
	write_firing(item);
	arm(item->owner);
}

static void listen_for_events(struct item *item)
{
	const struct event_trigger_config config = {
		.loop = &item->owner->daemon->loop, .hub = item->owner->daemon->hub, .jq = item->owner->daemon->jq, .name = item->id, .definition = item->definition,
		.strategy = item->definition->schedule->on, .since_ms = item->added_ms, .after_seq = item->event_seq > item->seq ? item->event_seq : item->seq,
		.on_fire = on_fire, .arg = item,
	};

	item->trigger = event_trigger_new(&config);
}

/* `after`: the first at once, then so long after the end of the run before. 0: that one is still under way. */
static int64_t next_after(const struct item *item)
{
	if (item->last_run[0] == '\0')
		return item->added_ms;
	return item->last_ended_ms != 0 ? schedule_next(item->definition->schedule, NULL, item->last_ended_ms) : 0;
}

static void advance(struct item *item)
{
	const struct schedule *schedule = item->definition != NULL ? item->definition->schedule : NULL;
	int64_t now_ms = clock_wall_ms();

	if (!list_empty(&item->controls)) /* they come first: end_writing() is about to start one */
		return;
	item->next_ms = 0;
	if (schedule != NULL && schedule->kind == SCHEDULE_ON && item->fired)
		write_firing(item);
	if (!may_tick(item) || schedule->kind == SCHEDULE_ON)
		return;
	if (schedule->kind == SCHEDULE_AFTER) {
		item->next_ms = next_after(item);
		if (item->next_ms != 0 && item->next_ms <= now_ms)
			submit_tick(begin_writing(item), item->next_ms);
		return;
	}
	if (item->plan != NULL && item->plan_at < item->plan->run_count) {
		submit_tick(begin_writing(item), item->plan->run_ms[item->plan_at]);
		return;
	}
	free(item->plan);
	item->plan = NULL;
	item->next_ms = schedule_next(schedule, item->zone, item->accounted_ms);
	if (item->next_ms > now_ms)
		return;
	item->plan = memory_alloc(sizeof *item->plan);
	item->plan_at = 0;
	schedule_plan(schedule, item->zone, item->accounted_ms, now_ms, item->last_run[0] != '\0' && engine_run_is_open(item->owner->daemon->engine, item->last_run), false,
		      item->plan);
	struct writing *w = begin_writing(item);
	for (size_t i = 0; i < item->plan->skipped_count; i++)
		add_skipped(w, &item->plan->skipped[i]);
	/* Skipped ticks may be newer than those that run; the journal is told of all of them before the first run. */
	if (item->plan->run_count > 0)
		submit_tick(w, item->plan->run_ms[0]);
	else
		append_entries(w);
}

static void on_timer(uv_timer_t *timer)
{
	struct schedules *schedules = timer->data;
	int64_t now_ms = clock_wall_ms();

	LIST_EACH_SAFE (link, &schedules->items) {
		struct item *item = CONTAINER_OF(link, struct item, link);
		if (item->retry_ms != 0 && item->retry_ms <= now_ms)
			item->retry_ms = 0;
		if (item->retry_ms == 0 && item->writing == NULL)
			advance(item);
	}
	arm(schedules);
}

static void arm(struct schedules *schedules)
{
	int64_t now_ms = clock_wall_ms(), due_ms = 0;

	LIST_EACH (link, &schedules->items) {
		const struct item *item = CONTAINER_OF(link, struct item, link);
		int64_t at_ms = item->retry_ms != 0 ? item->retry_ms : item->next_ms;
		if (at_ms != 0 && item->writing == NULL && (due_ms == 0 || at_ms < due_ms))
			due_ms = at_ms;
	}
	if (due_ms == 0 || schedules->daemon->stage >= DAEMON_DRAINING) {
		uv_timer_stop(&schedules->timer);
		return;
	}
	int64_t left_ms = due_ms - now_ms;
	uv_update_time(&schedules->daemon->loop);
	uv_timer_start(&schedules->timer, on_timer, (uint64_t)(left_ms < 0 ? 0 : left_ms > SCHEDULES_SLEEP_MAX_MS ? SCHEDULES_SLEEP_MAX_MS : left_ms), 0);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

struct loading {
	struct store_read read;
	struct schedules *schedules;
	char id[STORE_SCHEDULE_ID_MAX + 1]; /* empty: all */
	struct list reloads; /* struct schedule_reload: who waits for it */
	struct store_schedule *rows;
	struct loaded {
		struct definition *definition;
		struct arena arena;
		const struct zone *zone;
		struct digest zone_digest;
		struct error error;
	} *loaded;
	size_t count;
};

static void load_row(struct store_reader *reader, struct arena *arena, const struct store_schedule *row, struct loaded *loaded)
{
	struct problems problems;
	struct bytes document;
	struct json *json;

	arena_init(&loaded->arena);
	if (reader_definition_document(reader, arena, &row->definition, &document, NULL, &loaded->error) != 0 ||
	    (json = json_parse(arena, document, JSON_STORED, NULL, &loaded->error)) == NULL)
		return;
	problems_init(&problems);
	loaded->definition = definition_load_stored(json, &problems);
	if (loaded->definition == NULL || loaded->definition->schedule == NULL)
		error_set(&loaded->error, ERR_UNSUPPORTED, "its definition cannot be read by this release: %s", problems.count > 0 ? problems.items[0].message : "no schedule");
	problems_close(&problems);
	if (loaded->error.code == ERR_NONE && loaded->definition->schedule->time_zone != NULL)
		schedules_load_zone(&loaded->arena, loaded->definition->schedule->time_zone, &loaded->zone, &loaded->zone_digest, &loaded->error);
}

static void load_work(struct store_reader *reader, struct store_read *read)
{
	struct loading *loading = read->owner;
	int code = loading->id[0] != '\0' ? reader_schedule(reader, &read->arena, loading->id, &loading->rows, &loading->count, &read->error)
					  : reader_schedules(reader, &read->arena, NULL, 2 * SCHEDULES_MAX /* a few may have come in at once */, &loading->rows, &loading->count, &read->error);

	if (code != 0)
		return;
	loading->loaded = arena_zero(&read->arena, (loading->count + 1) * sizeof *loading->loaded);
	for (size_t i = 0; i < loading->count; i++)
		load_row(reader, &read->arena, &loading->rows[i], &loading->loaded[i]);
}

static void take_row(struct schedules *schedules, const struct store_schedule *row, struct loaded *loaded)
{
	struct item *item = find(schedules, row->id);

	if (item == NULL)
		item = make_item(schedules, row->id);
	if (loaded->error.code != ERR_NONE)
		log_error(LOG_ENGINE, "schedule=%s does not run: %s", row->id, loaded->error.message);
	event_trigger_end(item->trigger);
	item->trigger = NULL;
	item->fired = false;
	definition_release(item->definition);
	arena_close(&item->arena);
	free(item->plan);
	item->plan = NULL;
	item->definition = loaded->error.code == ERR_NONE ? loaded->definition : NULL;
	if (item->definition == NULL)
		definition_release(loaded->definition);
	item->arena = loaded->arena;
	item->zone = loaded->zone;
	item->zone_digest = loaded->zone_digest;
	item->added_ms = row->added_ms;
	item->accounted_ms = row->accounted_ms;
	item->last_due_ms = row->last_due_ms;
	item->last_ended_ms = row->last_run != NULL && !row->last_is_known ? row->last_due_ms : row->last_ended_ms;
	snprintf(item->last_run, sizeof item->last_run, "%s", row->last_run != NULL ? row->last_run : "");
	item->ticked = row->ticked;
	item->skipped = row->skipped;
	snprintf(item->skipped_why, sizeof item->skipped_why, "%s", row->skipped_why != NULL ? row->skipped_why : "");
	item->paused = row->paused;
	item->event_seq = row->event_seq;
	item->seq = row->seq;
	if (item->definition != NULL && item->definition->schedule->kind == SCHEDULE_ON)
		listen_for_events(item);
	advance(item);
}

static void drop_loaded(struct loaded *loaded)
{
	definition_release(loaded->definition);
	arena_close(&loaded->arena);
}

static void tell_reloaded(struct list *reloads)
{
	LIST_EACH_SAFE (link, reloads) {
		struct schedule_reload *reload = CONTAINER_OF(link, struct schedule_reload, link);
		list_remove(link);
		reload->on_done(reload);
	}
}

static void on_loaded(struct store_read *read)
{
	struct loading *loading = read->owner;
	struct schedules *schedules = loading->schedules;
	struct item *item = loading->id[0] != '\0' ? find(schedules, loading->id) : NULL;

	if (read->error.code != ERR_NONE) {
		log_error(LOG_ENGINE, "schedules cannot be read: %s", read->error.message);
	} else if (item != NULL && item->writing != NULL) {
		/* What was read is older than what is being written. */
		item->is_stale = true;
		list_move_all(&item->reloads, &loading->reloads);
		for (size_t i = 0; i < loading->count; i++)
			drop_loaded(&loading->loaded[i]);
	} else {
		if (item != NULL && loading->count == 0)
			free_item(item);
		for (size_t i = 0; i < loading->count; i++)
			take_row(schedules, &loading->rows[i], &loading->loaded[i]);
	}
	tell_reloaded(&loading->reloads);
	arena_close(&read->arena);
	free(loading);
	arm(schedules);
}

/* Takes all of `reloads`. */
static void reload(struct schedules *schedules, const char *id, struct list *reloads)
{
	struct loading *loading = memory_zero(sizeof *loading);

	loading->schedules = schedules;
	snprintf(loading->id, sizeof loading->id, "%s", id);
	list_init(&loading->reloads);
	list_move_all(&loading->reloads, reloads);
	loading->read = (struct store_read){.work = load_work, .on_done = on_loaded, .owner = loading};
	if (store_read(schedules->daemon->store, &loading->read) == 0)
		return;
	log_error(LOG_ENGINE, "schedule=%s: %d reads of the journal wait, the limit (STORE_READS_MAX); it runs again after the next start", id, STORE_READS_MAX);
	tell_reloaded(&loading->reloads);
	free(loading);
}

void schedules_reload(struct schedules *schedules, const char *namespace, const char *name, struct schedule_reload *wanted)
{
	char id[STORE_SCHEDULE_ID_MAX + 1];
	struct item *item;
	struct list wanting;

	snprintf(id, sizeof id, "%.63s.%.63s", namespace, name);
	item = find(schedules, id);
	list_init(&wanting);
	list_add_last(&wanting, &wanted->link);
	if (item != NULL && item->writing != NULL) {
		item->is_stale = true;
		list_move_all(&item->reloads, &wanting);
	} else {
		reload(schedules, id, &wanting);
	}
}

int schedules_have_room(const struct schedules *schedules, const char *namespace, const char *name, struct error *error)
{
	char id[STORE_SCHEDULE_ID_MAX + 1];

	snprintf(id, sizeof id, "%.63s.%.63s", namespace, name);
	if (schedules->count < SCHEDULES_MAX || find(schedules, id) != NULL)
		return 0;
	return error_set(error, ERR_TOO_LARGE, "%d schedules are there, the limit (SCHEDULES_MAX); end one with a version that has no `schedule`", SCHEDULES_MAX);
}

void schedules_on_run_ended(struct schedules *schedules, const char *run_id)
{
	LIST_EACH_SAFE (link, &schedules->items) {
		struct item *item = CONTAINER_OF(link, struct item, link);
		if (item->writing != NULL && strcmp(item->writing->run_id, run_id) == 0)
			item->writing->ended_ms = clock_wall_ms();
		if (strcmp(item->last_run, run_id) != 0)
			continue;
		item->last_ended_ms = clock_wall_ms();
		if (item->definition != NULL && item->definition->schedule->kind == SCHEDULE_AFTER) {
			advance(item);
			arm(schedules);
		}
	}
}

void schedules_on_run_retried(struct schedules *schedules, const char *run_id)
{
	if (!engine_run_is_open(schedules->daemon->engine, run_id)) /* it has ended again meanwhile, and that was told */
		return;
	LIST_EACH_SAFE (link, &schedules->items) {
		struct item *item = CONTAINER_OF(link, struct item, link);
		if (strcmp(item->last_run, run_id) != 0)
			continue;
		item->last_ended_ms = 0;
		if (item->definition != NULL && item->definition->schedule->kind == SCHEDULE_AFTER) {
			advance(item);
			arm(schedules);
		}
	}
}

void schedules_init(struct schedules *schedules, struct daemon *daemon)
{
	*schedules = (struct schedules){.daemon = daemon};
	list_init(&schedules->items);
	CHECK(uv_timer_init(&daemon->loop, &schedules->timer) == 0);
	schedules->timer.data = schedules;
}

void schedules_start(struct schedules *schedules, struct schedule_reload *wanted)
{
	struct list wanting;

	list_init(&wanting);
	list_add_last(&wanting, &wanted->link);
	reload(schedules, "", &wanting);
}

void schedules_stop(struct schedules *schedules)
{
	uv_timer_stop(&schedules->timer);
}

void schedules_close(struct schedules *schedules)
{
	while (!list_empty(&schedules->items))
		free_item(CONTAINER_OF(schedules->items.next, struct item, link));
	uv_close((uv_handle_t *)&schedules->timer, NULL);
}

/* --- for the API -------------------------------------------------------------------------------------------------- */

static void set_known_time(struct arena *arena, struct json *json, const char *name, int64_t ms)
{
	if (ms != 0)
		api_set_time(arena, json, name, ms);
}

static struct json *item_json(const struct item *item, struct arena *arena)
{
	static const char *const overlaps[] = {"allow", "skip"}, *const catch_ups[] = {"latest", "skip", "all"};
	const struct definition *definition = item->definition;
	struct json *json = json_object(arena);

	json_set_text(arena, json, "id", item->id);
	json_set_text(arena, json, "status", definition == NULL ? "broken" : item->paused ? "paused" : "active");
	if (definition != NULL) {
		const struct schedule *schedule = definition->schedule;
		struct json *workflow = json_object(arena);
		json_set_text(arena, workflow, "namespace", definition->namespace);
		json_set_text(arena, workflow, "name", definition->name);
		json_set_text(arena, workflow, "version", definition->version);
		json_set(arena, json, "workflow", workflow);
		json_set(arena, json, "schedule", json_copy(arena, json_get(definition->document, "schedule")));
		json_set_text(arena, json, "timezone", schedule->time_zone != NULL ? schedule->time_zone : "UTC");
		json_set_text(arena, json, "overlap", overlaps[schedule->overlap]);
		json_set_text(arena, json, "catchUp", catch_ups[schedule->catch_up]);
	}
	set_known_time(arena, json, "addedAt", item->added_ms);
	set_known_time(arena, json, "nextAt", item->paused ? 0 : item->next_ms);
	set_known_time(arena, json, "lastAt", item->last_due_ms);
	if (item->last_run[0] != '\0')
		json_set_text(arena, json, "lastRun", item->last_run);
	json_set_number(arena, json, "runs", (double)item->ticked);
	json_set_number(arena, json, "skipped", (double)item->skipped);
	if (item->skipped_why[0] != '\0')
		json_set_text(arena, json, "skippedWhy", item->skipped_why);
	return json;
}

struct json *schedules_json(const struct schedules *schedules, struct arena *arena)
{
	struct json *list = json_array(arena);

	LIST_EACH (link, &schedules->items)
		json_add(arena, list, item_json(CONTAINER_OF(link, struct item, link), arena));
	return list;
}

struct json *schedules_item_json(const struct schedules *schedules, const char *id, struct arena *arena)
{
	const struct item *item = find(schedules, id);

	return item != NULL ? item_json(item, arena) : NULL;
}

/* What was due while it was paused is skipped, whatever it says about catching up (C59). */
static void skip_paused(struct writing *w)
{
	const struct item *item = w->item;
	struct schedule_plan *plan;

	if (item->definition == NULL || item->definition->schedule->kind == SCHEDULE_AFTER || item->definition->schedule->kind == SCHEDULE_ON)
		return;
	plan = memory_alloc(sizeof *plan);
	schedule_plan(item->definition->schedule, item->zone, item->accounted_ms, clock_wall_ms(), false, true, plan);
	for (size_t i = 0; i < plan->skipped_count; i++)
		add_skipped(w, &plan->skipped[i]);
	free(plan);
}

static void start_control(struct item *item, struct schedule_control *control)
{
	struct writing *w = begin_writing(item);

	w->control = control;
	if (control->verb == SCHEDULE_TRIGGER) {
		w->by_operator = true;
		submit_tick(w, clock_wall_ms());
		return;
	}
	struct entry *entry = add_entry(w, control->verb == SCHEDULE_PAUSE ? ENTRY_SCHEDULE_PAUSED : ENTRY_SCHEDULE_RESUMED);
	w->pauses = control->verb == SCHEDULE_PAUSE;
	w->resumes = !w->pauses;
	if (control->reason != NULL)
		entry_add_value(&w->arena, entry, "reason", json_print_arena(json_text(&w->arena, control->reason), &w->arena));
	if (w->resumes && item->paused)
		skip_paused(w);
	append_entries(w);
}

int schedules_control(struct schedules *schedules, struct schedule_control *control, struct error *error)
{
	struct item *item = find(schedules, control->id);

	if (item == NULL)
		return error_set(error, ERR_NOT_FOUND, "there is no schedule %.130s; reprise schedule list shows those there are", control->id);
	if (control->verb == SCHEDULE_TRIGGER && item->definition == NULL)
		return error_set(error, ERR_INVALID, "schedule %s cannot run: its definition or its time zone cannot be read; the log says why", item->id);
	list_init(&control->link);
	if (item->writing == NULL) {
		start_control(item, control);
		return 0;
	}
	if (item->control_count >= SCHEDULE_CONTROLS_MAX)
		return error_set(error, ERR_BUSY, "%d pauses, resumes and triggers of schedule %s wait, the most allowed (SCHEDULE_CONTROLS_MAX); try again", SCHEDULE_CONTROLS_MAX,
				 item->id);
	list_add_last(&item->controls, &control->link);
	item->control_count++;
	return 0;
}
