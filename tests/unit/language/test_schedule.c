/* Tests of workflow/language/schedule.c: what is read from a definition, and what is due. */
#include "workflow/language/schedule.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"
#include "workflow/language/consumption.h"
#include "workflow/language/definition.h"

enum { MINUTE = 60000, HOUR = 60 * MINUTE };
#define T0 INT64_C(1795950000000) /* 2026-11-29T11:00:00Z */

static struct definition *load(const char *metadata, const char *schedule, struct problems *problems)
{
	char text[1000];

	snprintf(text, sizeof(text), "document: {dsl: '1.0.3', namespace: a, name: b, version: '1.0.0', metadata: %s}\nschedule: %s\ndo: []\n", metadata, schedule);
	problems_init(problems);
	return definition_load(bytes_text(text), TEXT_YAML, problems);
}

/* Each kind, and the metadata beside it. */
START_TEST(schedules_are_read)
{
	struct problems problems;
	struct definition *definition = load("{}", "{every: {minutes: 5}}", &problems);

	ck_assert_msg(definition != NULL, "%s", problems.count > 0 ? problems.items[0].message : "");
	ck_assert_int_eq(definition->schedule->kind, SCHEDULE_EVERY);
	ck_assert_int_eq(definition->schedule->every_ms, 5 * MINUTE);
	ck_assert_int_eq(definition->schedule->overlap, SCHEDULE_OVERLAP_ALLOW);
	ck_assert_int_eq(definition->schedule->catch_up, SCHEDULE_CATCH_UP_LATEST);
	ck_assert_ptr_null(definition->schedule->time_zone);
	definition_free(definition);
	problems_close(&problems);

	definition = load("{timezone: Europe/Berlin, schedule: {overlap: skip, catchUp: all, catchUpMax: 3, maxLateness: PT1H}}", "{cron: '0 9 * * mon-fri'}", &problems);
	ck_assert_msg(definition != NULL, "%s", problems.count > 0 ? problems.items[0].message : "");
	ck_assert_int_eq(definition->schedule->kind, SCHEDULE_CRON);
	ck_assert_str_eq(definition->schedule->time_zone, "Europe/Berlin");
	ck_assert_int_eq(definition->schedule->overlap, SCHEDULE_OVERLAP_SKIP);
	ck_assert_int_eq(definition->schedule->catch_up, SCHEDULE_CATCH_UP_ALL);
	ck_assert_uint_eq(definition->schedule->catch_up_max, 3);
	ck_assert_int_eq(definition->schedule->lateness_max_ms, HOUR);
	definition_free(definition);
	problems_close(&problems);

	definition = load("{}", "{on: {all: [{with: {type: a}}, {with: {type: b}}]}}", &problems);
	ck_assert_msg(definition != NULL, "%s", problems.count > 0 ? problems.items[0].message : "");
	ck_assert_int_eq(definition->schedule->kind, SCHEDULE_ON);
	ck_assert_int_eq(definition->schedule->on->kind, EVENTS_ALL);
	ck_assert_uint_eq(definition->schedule->on->filter_count, 2);
	definition_free(definition);
	problems_close(&problems);

	definition = load("{}", "{after: {seconds: 0}}", &problems);
	ck_assert_int_eq(definition->schedule->kind, SCHEDULE_AFTER);
	definition_free(definition);
	problems_close(&problems);
}
END_TEST

/* What is wrong is told with its place. */
START_TEST(bad_schedules_are_refused)
{
	static const struct {
		const char *metadata, *schedule, *pointer, *message;
	} cases[] = {
		{"{}", "{}", "/schedule", "exactly one of"},
		{"{}", "{every: {seconds: 1}, cron: '* * * * *'}", "/schedule", "exactly one of"},
		{"{}", "5", "/schedule", "must be an object"},
		{"{}", "{on: {any: [{with: {type: x}}], until: '${ $workflow.id }'}}", "/schedule/on/until", "workflow"},
		{"{}", "{evry: {seconds: 1}}", "/schedule/evry", "unknown key 'evry'"},
		{"{}", "{on: {one: {with: {type: '${ $workflow.id }'}}}}", "/schedule/on/one/with/type", "workflow"},
		{"{}", "{on: {one: {}}}", "/schedule/on/one", "with"},
		{"{}", "{on: {one: {with: {type: x}}}, every: PT1M}", "/schedule", "exactly one of"},
		{"{}", "{every: {milliseconds: 999}}", "/schedule/every", "at least 1000"},
		{"{}", "{every: 30s}", "/schedule/every", "ISO 8601"},
		{"{}", "{cron: '* * * *'}", "/schedule/cron", "has 4 fields"},
		{"{}", "{cron: 5}", "/schedule/cron", "must be a string"},
		{"{timezone: ../etc/passwd}", "{every: PT1M}", "/document/metadata/timezone", "no name of a time zone"},
		{"{timezone: 5}", "{every: PT1M}", "/document/metadata/timezone", "must be a string"},
		{"{schedule: {overlap: never}}", "{every: PT1M}", "/document/metadata/schedule/overlap", "must be one of 'allow', 'skip'"},
		{"{schedule: {catchUp: none}}", "{every: PT1M}", "/document/metadata/schedule/catchUp", "'latest', 'skip', 'all'"},
		{"{schedule: {catchUpMax: 1001}}", "{every: PT1M}", "/document/metadata/schedule/catchUpMax", "1000"},
		{"{schedule: {catchUpMax: 0}}", "{every: PT1M}", "/document/metadata/schedule/catchUpMax", "1000"},
		{"{schedule: {maxLateness: soon}}", "{every: PT1M}", "/document/metadata/schedule/maxLateness", "ISO 8601"},
		{"{schedule: {foo: 1}}", "{every: PT1M}", "/document/metadata/schedule/foo", "unknown key 'foo'"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct problems problems;

		ck_assert_msg(load(cases[i].metadata, cases[i].schedule, &problems) == NULL, "%s %s", cases[i].metadata, cases[i].schedule);
		ck_assert_msg(strcmp(problems.items[0].pointer, cases[i].pointer) == 0, "%s: %s", cases[i].schedule, problems.items[0].pointer);
		ck_assert_msg(strstr(problems.items[0].message, cases[i].message) != NULL, "%s: %s", cases[i].schedule, problems.items[0].message);
		problems_close(&problems);
	}
}
END_TEST

/* One line for each situation: which ticks run, which are skipped and why. Times in minutes after T0, every tick a minute. */
START_TEST(what_is_due)
{
	static const struct {
		const char *what;
		int since, now_seconds;
		struct schedule schedule;
		bool is_open, paused;
		int runs[5], run_count;
		struct {
			int first, last, count;
			enum schedule_skip why;
		} skipped[3];
		int skipped_count, accounted, next;
	} cases[] = {
		{"not yet", 0, 59, {.every_ms = MINUTE}, false, false, {0}, 0, {{0}}, 0, 0, 1},
		{"on time", 0, 60, {.every_ms = MINUTE}, false, false, {1}, 1, {{0}}, 0, 1, 2},
		{"on time while a run is open: they may overlap", 0, 61, {.every_ms = MINUTE}, true, false, {1}, 1, {{0}}, 0, 1, 2},
		{"or not", 0, 61, {.every_ms = MINUTE, .overlap = SCHEDULE_OVERLAP_SKIP}, true, false, {0}, 0, {{1, 1, 1, SCHEDULE_OVERLAPPED}}, 1, 1, 2},
		{"an on-time tick makes older ones needless", 0, 310, {.every_ms = MINUTE}, false, false, {5}, 1, {{1, 4, 4, SCHEDULE_MISSED}}, 1, 5, 6},
		{"of missed ones the latest", 0, 350, {.every_ms = MINUTE}, false, false, {5}, 1, {{1, 4, 4, SCHEDULE_MISSED}}, 1, 5, 6},
		{"or none", 0, 350, {.every_ms = MINUTE, .catch_up = SCHEDULE_CATCH_UP_SKIP}, false, false, {0}, 0, {{1, 5, 5, SCHEDULE_MISSED}}, 1, 5, 6},
		{"none, but what is on time", 0, 310, {.every_ms = MINUTE, .catch_up = SCHEDULE_CATCH_UP_SKIP}, false, false, {5}, 1, {{1, 4, 4, SCHEDULE_MISSED}}, 1, 5, 6},
		{"or all up to a limit", 0, 350, {.every_ms = MINUTE, .catch_up = SCHEDULE_CATCH_UP_ALL, .catch_up_max = 3}, false, false, {3, 4, 5}, 3, {{1, 2, 2, SCHEDULE_OVER_MAX}}, 1, 5, 6},
		{"and not too late", 0, 350, {.every_ms = MINUTE, .catch_up = SCHEDULE_CATCH_UP_ALL, .catch_up_max = 10, .lateness_max_ms = 2 * MINUTE}, false, false,
		 {4, 5}, 2, {{1, 3, 3, SCHEDULE_LATE}}, 1, 5, 6},
		{"all, one after the other, is one where they must not overlap", 0, 350, {.every_ms = MINUTE, .catch_up = SCHEDULE_CATCH_UP_ALL, .catch_up_max = 10, .overlap = SCHEDULE_OVERLAP_SKIP},
		 false, false, {1}, 1, {{2, 5, 4, SCHEDULE_OVERLAPPED}}, 1, 5, 6},
		{"nothing runs while paused", 0, 310, {.every_ms = MINUTE}, false, true, {0}, 0, {{1, 5, 5, SCHEDULE_PAUSED}}, 1, 5, 6},
		{"a clock that was set back makes nothing due", 10, 60, {.every_ms = MINUTE}, false, false, {0}, 0, {{0}}, 0, 10, 11},
	};
	static struct schedule_plan plan;

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		schedule_plan(&cases[i].schedule, NULL, T0 + cases[i].since * MINUTE, T0 + cases[i].now_seconds * 1000, cases[i].is_open, cases[i].paused, &plan);
		ck_assert_msg((int)plan.run_count == cases[i].run_count, "%s: %zu runs", cases[i].what, plan.run_count);
		for (size_t n = 0; n < plan.run_count; n++)
			ck_assert_msg(plan.run_ms[n] == T0 + cases[i].runs[n] * MINUTE, "%s: run %zu", cases[i].what, n);
		ck_assert_msg((int)plan.skipped_count == cases[i].skipped_count, "%s: %zu skipped", cases[i].what, plan.skipped_count);
		for (size_t n = 0; n < plan.skipped_count; n++) {
			ck_assert_msg(plan.skipped[n].why == cases[i].skipped[n].why, "%s", cases[i].what);
			ck_assert_msg(plan.skipped[n].first_ms == T0 + cases[i].skipped[n].first * MINUTE && plan.skipped[n].last_ms == T0 + cases[i].skipped[n].last * MINUTE, "%s", cases[i].what);
			ck_assert_msg((int)plan.skipped[n].count == cases[i].skipped[n].count, "%s: %llu", cases[i].what, (unsigned long long)plan.skipped[n].count);
		}
		ck_assert_msg(plan.accounted_ms == T0 + cases[i].accounted * MINUTE, "%s", cases[i].what);
		ck_assert_msg(plan.next_ms == T0 + cases[i].next * MINUTE, "%s", cases[i].what);
	}
}
END_TEST

/* Ten years away are accounted for in one go: a fixed rate exactly, a cron's ticks as uncounted, and the newest tick runs. */
START_TEST(long_absence_is_cheap)
{
	const int64_t years = INT64_C(10) * 365 * 24 * HOUR;
	struct schedule every = {.every_ms = 1000}, cron = {.kind = SCHEDULE_CRON};
	static struct schedule_plan plan;
	struct error error = {0};

	schedule_plan(&every, NULL, T0, T0 + years, false, false, &plan);
	ck_assert_uint_eq(plan.skipped_count, 1);
	ck_assert_uint_eq(plan.skipped[0].count, (uint64_t)(years / 1000 - 1));
	ck_assert_uint_eq(plan.run_count, 1);
	ck_assert_int_eq(plan.run_ms[0], T0 + years);
	ck_assert_int_eq(cron_parse("* * * * *", &cron.cron, &error), 0);
	schedule_plan(&cron, NULL, T0, T0 + years, false, false, &plan);
	ck_assert_uint_eq(plan.skipped_count, 1);
	ck_assert(plan.skipped[0].is_uncounted);
	ck_assert_int_eq(plan.skipped[0].first_ms, T0 + MINUTE);
	ck_assert_int_eq(plan.skipped[0].last_ms, T0 + years - MINUTE);
	ck_assert_int_eq(plan.run_ms[0], T0 + years);
	ck_assert_int_eq(plan.next_ms, T0 + years + MINUTE);
}
END_TEST

/* A cron's ticks are planned in its zone, over the change of the clock. */
START_TEST(cron_is_planned_in_its_zone)
{
	struct schedule cron = {.kind = SCHEDULE_CRON, .catch_up = SCHEDULE_CATCH_UP_ALL, .catch_up_max = 10};
	static struct schedule_plan plan;
	struct error error = {0};
	int64_t since, now;

	ck_assert_int_eq(cron_parse("30 2 * * *", &cron.cron, &error), 0);
	ck_assert(time_parse("2026-03-27T12:00:00Z", &since) && time_parse("2026-03-30T12:00:00Z", &now));
	schedule_plan(&cron, NULL, since, now, false, false, &plan);
	ck_assert_uint_eq(plan.run_count, 3);
	ck_assert_int_eq(plan.run_ms[1] - plan.run_ms[0], 24 * HOUR);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("language-schedule", schedules_are_read, bad_schedules_are_refused, what_is_due, long_absence_is_cheap, cron_is_planned_in_its_zone)
