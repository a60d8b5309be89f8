/* Schedules: what is due. Start at schedule_plan(). */
#include "workflow/language/schedule.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"
#include "workflow/language/checker.h"
#include "workflow/language/consumption.h"
#include "workflow/language/duration.h"

const char *schedule_skip_name(enum schedule_skip skip)
{
	static const char *const names[SCHEDULE_SKIP_COUNT] = {"missed", "too late", "catch-up limit", "overlap", "paused", "too large"};

	CHECK(skip < SCHEDULE_SKIP_COUNT);
	return names[skip];
}

int64_t schedule_next(const struct schedule *schedule, const struct zone *zone, int64_t since_ms)
{
	return schedule->kind == SCHEDULE_CRON ? cron_next(&schedule->cron, zone, since_ms) : since_ms + schedule->every_ms;
}

static void skip(struct schedule_plan *plan, int64_t due_ms, uint64_t count, int64_t last_ms, enum schedule_skip why)
{
	struct schedule_skipped *last = plan->skipped_count > 0 ? &plan->skipped[plan->skipped_count - 1] : NULL;

	if (last == NULL || last->why != why) {
		CHECK(plan->skipped_count < COUNT_OF(plan->skipped));
		last = &plan->skipped[plan->skipped_count++];
		*last = (struct schedule_skipped){.first_ms = due_ms, .why = why};
	}
	last->last_ms = last_ms;
	last->count += count;
}

/* How many of the missed ticks may run. */
static size_t catch_up_max(const struct schedule *schedule)
{
	switch (schedule->catch_up) {
	case SCHEDULE_CATCH_UP_SKIP:
		return 0;
	case SCHEDULE_CATCH_UP_LATEST:
		return 1;
	case SCHEDULE_CATCH_UP_ALL:
		break;
	}
	return schedule->catch_up_max;
}

/* Ticks far back are not walked one by one: a fixed rate is counted, a cron's are left uncounted past SCHEDULE_TICKS_MAX minutes. */
static int64_t skip_far_back(const struct schedule *schedule, const struct zone *zone, int64_t since_ms, int64_t now_ms, bool paused,
			     struct schedule_plan *plan)
{
	enum schedule_skip why = paused ? SCHEDULE_PAUSED : schedule->catch_up == SCHEDULE_CATCH_UP_ALL ? SCHEDULE_OVER_MAX : SCHEDULE_MISSED;
	int64_t first_ms, last_ms;

	if (schedule->kind == SCHEDULE_CRON) {
		int64_t from_ms = now_ms - (int64_t)SCHEDULE_TICKS_MAX * 60000;

		first_ms = schedule_next(schedule, zone, since_ms);
		if (first_ms >= from_ms)
			return since_ms;
		skip(plan, first_ms, 1, from_ms, why);
		plan->skipped[plan->skipped_count - 1].is_uncounted = true;
		return from_ms;
	}
	uint64_t due = (uint64_t)(now_ms - since_ms) / (uint64_t)schedule->every_ms;
	if (due <= SCHEDULE_TICKS_MAX)
		return since_ms;
	first_ms = since_ms + schedule->every_ms;
	last_ms = since_ms + (int64_t)(due - SCHEDULE_TICKS_MAX) * schedule->every_ms;
	skip(plan, first_ms, due - SCHEDULE_TICKS_MAX, last_ms, why);
	return last_ms;
}

static uint64_t count_due(const struct schedule *schedule, const struct zone *zone, int64_t since_ms, int64_t now_ms)
{
	uint64_t count = 0;

	for (int64_t due_ms = schedule_next(schedule, zone, since_ms); due_ms <= now_ms; due_ms = schedule_next(schedule, zone, due_ms))
		count++;
	return count;
}

void schedule_plan(const struct schedule *schedule, const struct zone *zone, int64_t since_ms, int64_t now_ms, bool is_open, bool paused, struct schedule_plan *plan)
{
	int64_t due_ms;
	uint64_t left, may_catch_up = catch_up_max(schedule);

	CHECK(schedule->kind != SCHEDULE_AFTER);
	CHECK(schedule->kind != SCHEDULE_ON);
	plan->run_count = plan->skipped_count = 0;
	plan->accounted_ms = since_ms;
	if (now_ms > since_ms)
		plan->accounted_ms = since_ms = skip_far_back(schedule, zone, since_ms, now_ms, paused, plan);
	left = now_ms > since_ms ? count_due(schedule, zone, since_ms, now_ms) : 0;
	for (due_ms = schedule_next(schedule, zone, since_ms); left > 0; due_ms = schedule_next(schedule, zone, due_ms), left--) {
		bool on_time = left == 1 && now_ms - due_ms <= SCHEDULE_ON_TIME_MS;

		plan->accounted_ms = due_ms;
		if (paused)
			skip(plan, due_ms, 1, due_ms, SCHEDULE_PAUSED);
		else if (!on_time && schedule->lateness_max_ms > 0 && now_ms - due_ms > schedule->lateness_max_ms)
			skip(plan, due_ms, 1, due_ms, SCHEDULE_LATE);
		else if (!on_time && left > may_catch_up)
			skip(plan, due_ms, 1, due_ms, schedule->catch_up == SCHEDULE_CATCH_UP_ALL ? SCHEDULE_OVER_MAX : SCHEDULE_MISSED);
		else if (schedule->overlap == SCHEDULE_OVERLAP_SKIP && (is_open || plan->run_count > 0))
			skip(plan, due_ms, 1, due_ms, SCHEDULE_OVERLAPPED);
		else
			plan->run_ms[plan->run_count++] = due_ms;
	}
	plan->next_ms = due_ms;
}

/* ---- Reading ---- */

static void read_interval(struct checker *checker, const char *name, const struct json *value, struct schedule *schedule)
{
	size_t len = checker_enter(checker, name);
	struct error error = {0};

	if (duration_read(value, &schedule->every_ms, &error) != 0)
		checker_fail(checker, "every: {minutes: 5}", "%s", error.message);
	else if (schedule->kind == SCHEDULE_EVERY && schedule->every_ms < SCHEDULE_EVERY_MIN_MS)
		checker_fail(checker, NULL, "must be at least %d milliseconds", SCHEDULE_EVERY_MIN_MS);
	checker_leave(checker, len);
}

static void read_cron(struct checker *checker, const struct json *value, struct schedule *schedule)
{
	size_t len = checker_enter(checker, "cron");
	struct error error = {0};

	if (checker_type(checker, value, JSON_STRING, false)) {
		schedule->cron_text = value->string.text;
		if (cron_parse(value->string.text, &schedule->cron, &error) != 0)
			checker_fail(checker, "cron: '0 9 * * mon-fri'", "%s", error.message);
	}
	checker_leave(checker, len);
}

/* Nothing of a run is there yet, so its expressions know no variables. */
static void read_on(struct checker *checker, const struct json *value, struct schedule *schedule)
{
	size_t len = checker_enter(checker, "on"), variable_count = checker->variable_count;

	checker->variable_count = 0;
	schedule->on = consumption_read(checker, value);
	checker->variable_count = variable_count;
	checker_leave(checker, len);
}

/* Which of the words, 0 when there is none. */
static unsigned read_word(struct checker *checker, const struct json *object, const char *name, const char *const *words, size_t count)
{
	const struct json *value = json_get(object, name);
	unsigned found = 0;
	size_t len;

	if (value == NULL)
		return 0;
	len = checker_enter(checker, name);
	for (found = 0; found < count; found++)
		if (json_is(value, JSON_STRING) && strcmp(value->string.text, words[found]) == 0)
			break;
	if (found == count) {
		checker_fail(checker, NULL, count == 2 ? "must be one of '%s', '%s'" : "must be one of '%s', '%s', '%s'", words[0], words[1], words[count - 1]);
		found = 0;
	}
	checker_leave(checker, len);
	return found;
}

static void read_policy(struct checker *checker, const struct json *policy, struct schedule *schedule)
{
	static const char *const overlaps[] = {"allow", "skip"}, *const catch_ups[] = {"latest", "skip", "all"};
	static const struct key keys[] = {{"overlap", KEY_OPTIONAL, NULL}, {"catchUp", KEY_OPTIONAL, NULL}, {"catchUpMax", KEY_OPTIONAL, NULL}, {"maxLateness", KEY_OPTIONAL, NULL}};
	const struct json *max = json_get(policy, "catchUpMax"), *lateness = json_get(policy, "maxLateness");
	struct error error = {0};
	size_t len;

	if (!checker_type(checker, policy, JSON_OBJECT, false))
		return;
	checker_keys(checker, policy, keys, COUNT_OF(keys), "'metadata.schedule'");
	schedule->overlap = (enum schedule_overlap)read_word(checker, policy, "overlap", overlaps, COUNT_OF(overlaps));
	schedule->catch_up = (enum schedule_catch_up)read_word(checker, policy, "catchUp", catch_ups, COUNT_OF(catch_ups));
	if (max != NULL) {
		len = checker_enter(checker, "catchUpMax");
		if (checker_type(checker, max, JSON_NUMBER, false)) {
			checker_integer(checker, max, 1, SCHEDULE_CATCH_UP_MAX);
			if (max->number >= 1 && max->number <= SCHEDULE_CATCH_UP_MAX)
				schedule->catch_up_max = (unsigned)max->number;
		}
		checker_leave(checker, len);
	}
	if (lateness != NULL) {
		len = checker_enter(checker, "maxLateness");
		if (duration_read(lateness, &schedule->lateness_max_ms, &error) != 0)
			checker_fail(checker, "maxLateness: {hours: 1}", "%s", error.message);
		checker_leave(checker, len);
	}
}

static void read_metadata(struct checker *checker, const struct json *metadata, struct schedule *schedule)
{
	const struct json *zone = json_get(metadata, "timezone"), *policy = json_get(metadata, "schedule");
	size_t outer = checker_enter(checker, "document"), len = checker_enter(checker, "metadata"), inner;

	if (zone != NULL) {
		inner = checker_enter(checker, "timezone");
		if (checker_type(checker, zone, JSON_STRING, false)) {
			schedule->time_zone = zone->string.text;
			if (!zone_name_is_valid(zone->string.text))
				checker_fail(checker, "timezone: Europe/Berlin", "is no name of a time zone");
		}
		checker_leave(checker, inner);
	}
	if (policy != NULL) {
		inner = checker_enter(checker, "schedule");
		read_policy(checker, policy, schedule);
		checker_leave(checker, inner);
	}
	checker_leave(checker, len);
	checker_leave(checker, outer);
}

const struct schedule *schedule_read(struct checker *checker, const struct json *document)
{
	static const struct key keys[] = {{"every", KEY_OPTIONAL, NULL}, {"cron", KEY_OPTIONAL, NULL}, {"after", KEY_OPTIONAL, NULL}, {"on", KEY_OPTIONAL, NULL}};
	const struct json *value = json_get(document, "schedule"), *metadata = json_get(json_get(document, "document"), "metadata");
	struct schedule *schedule = arena_zero(&checker->definition->arena, sizeof(*schedule));
	size_t errors = checker->problems->errors, len;

	if (value == NULL)
		return NULL;
	schedule->catch_up_max = SCHEDULE_CATCH_UP_DEFAULT;
	len = checker_enter(checker, "schedule");
	if (checker_type(checker, value, JSON_OBJECT, false)) {
		const struct json *every = json_get(value, "every"), *cron = json_get(value, "cron"), *after = json_get(value, "after"), *on = json_get(value, "on");

		checker_keys(checker, value, keys, COUNT_OF(keys), "'schedule'");
		if (checker->problems->errors == errors && (every != NULL) + (cron != NULL) + (after != NULL) + (on != NULL) != 1)
			checker_fail(checker, "schedule: {every: {hours: 1}}", "must have exactly one of every, cron, after, on");
		schedule->kind = on != NULL ? SCHEDULE_ON : cron != NULL ? SCHEDULE_CRON : after != NULL ? SCHEDULE_AFTER : SCHEDULE_EVERY;
		if (on != NULL)
			read_on(checker, on, schedule);
		else if (cron != NULL)
			read_cron(checker, cron, schedule);
		else if (every != NULL || after != NULL)
			read_interval(checker, every != NULL ? "every" : "after", every != NULL ? every : after, schedule);
	}
	checker_leave(checker, len);
	if (json_is(metadata, JSON_OBJECT))
		read_metadata(checker, metadata, schedule);
	return checker->problems->errors > errors ? NULL : schedule;
}
