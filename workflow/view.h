/* The run document and its parts, from a run's entries (interface.md 3). Pure. */
#pragma once

#include "workflow/base/budget.h"
#include "workflow/entry.h"
#include "workflow/language/definition.h"

enum view_include { VIEW_INPUT = 1, VIEW_OUTPUT = 2, VIEW_TASKS = 4, VIEW_EVENTS = 8, VIEW_FACTS = 16, VIEW_LABELS = 32, VIEW_CHILDREN = 64, VIEW_ALL = 127 };
enum {
	VIEW_TASKS_MAX = 10000, /* of one document or page; `tasksLeftOut` says how many more there are */
	VIEW_EVENTS_MAX = 10000, /* of one document, the first ones; `eventsLeftOut` says how many more there are */
	VIEW_FACTS_MAX = 10000, /* of one document, the first ones; `factsLeftOut` says how many more there are */
};

/* entries: all of the run, in order, from run.created on; values that were not read come as {"digest": "sha256:…", "size": n}.
 * definition may be NULL: names then come from references. origin: for CloudEvents' source. */
struct json *view_run(struct arena *arena, const struct entry *entries, size_t count, const struct definition *definition, const char *origin,
		      unsigned include);
/* A child's `parent`. Its children are other runs: whoever reads them adds them to the document. */
struct json *view_parent(struct arena *arena, const char *run, const char *step);
/* `budget`, where it has one, and `spent`, where it has one or has used something: {tokens?, seconds?}. */
void view_set_budget(struct arena *arena, struct json *run, const struct budget_amount *budget, const struct budget_amount *spent);
struct json *view_forked_from(struct arena *arena, const struct json *from); /* of a fork: forkedFrom as run.created has it, as people are told it */
/* The same in pages, for a run of any length: entries and their arena may be dropped when view_add() returns. What stays is what the document
 * shows, what is under way, and sixteen bytes of each value that an entry may yet name. */
struct view;
/* What an entry names and an earlier page brought, or what the page left out. Bytes in the arena; false: it cannot be had. whole: the run's
 * own, which is shown whatever its size. */
struct view_source {
	bool (*load)(void *context, struct arena *arena, uint64_t content_id, const struct digest *digest, bool whole, struct bytes *bytes);
	void *context;
};
struct view *view_begin(struct arena *arena, const struct definition *definition, const char *origin, unsigned include, const struct view_source *source);
/* Of its tasks alone: see view_tasks(). */
struct view *view_begin_tasks(struct arena *arena, const struct definition *definition, uint64_t after, size_t limit, const struct view_source *source);
void view_add(struct view *view, const struct entry *entries, size_t count);
struct json *view_end(struct view *view);
struct json *view_end_tasks(struct view *view);
void view_drop(struct view *view); /* instead of its end, or after it */
/* A page of its tasks, in the order in which they began: at most `limit` of those that began behind the entry `after` (0: from the
 * first on). {"tasks": […], "next": where the next page begins, "left": how many there are behind this one}. */
struct json *view_tasks(struct arena *arena, const struct entry *entries, size_t count, const struct definition *definition, uint64_t after, size_t limit);
/* "input,output" or "all" -> bits; false: an unknown word, *bad points at it. */
bool view_include_parse(const char *text, unsigned *include, const char **bad);
/* One entry as GET /v1/runs/{id}/events shows it: {"seq", "kind", "ts", "data"}. */
struct json *view_entry(struct arena *arena, const struct entry *entry);
/* Adds the CloudEvents that an entry stands for: its lifecycle events (dsl.md 1.12), or the event that was emitted. Values that the entry
 * does not bring (or that were not read) are given as {"digest", "size"?}. */
void view_cloud_events(struct arena *arena, const struct entry *entry, const char *origin, struct json *list);
extern const uint64_t view_cloud_event_kinds; /* bit set over enum entry_kind */

/* Time of a run, as intervals in microseconds since its creation (semantics.md 8). */
struct interval {
	int64_t from, until;
};
struct interval_set {
	struct interval *items; /* disjoint, sorted */
	size_t count, cap;
	/* What lay before this time is kept as its length alone, see interval_fold(). */
	int64_t folded_until, folded;
};
void interval_add(struct interval_set *set, int64_t from, int64_t until);
int64_t interval_total(const struct interval_set *set);
int64_t interval_total_outside(const struct interval_set *set, const struct interval_set *other); /* of set, where other is not */
/* Nothing before `until` will be added any more: keep of it how long it was, of `queued` where `active` was not. So a long run's times
 * take no more memory than what is under way. */
void interval_fold(struct interval_set *active, struct interval_set *queued, int64_t until);
void interval_close(struct interval_set *set);
/* {"wallMs", "activityMs", "queuedMs", "overheadMs", "stages": {…ms}, "waitedMs"?: {…}}; stages_us: {name: µs, "waited"?: {for what: µs}} or NULL. */
struct json *view_overhead(struct arena *arena, int64_t wall_us, const struct interval_set *active, const struct interval_set *queued, const struct json *stages_us);
/* An attempt's record {"activeUs": [from, until]?, "queuedUs": [from, until]?, "stages": {…}, "waitedUs"?: {…}} into the sets and the sums. */
void view_add_record(struct arena *arena, const struct json *record, struct interval_set *active, struct interval_set *queued, struct json *stages_sum);
/* An attempt that the daemon's end cut off has no record: from its start to the entry that says so, in microseconds since the run was created, it waited for the daemon. */
#define WAITS_RESTART "restart"
void view_add_cut_off(struct arena *arena, int64_t from_us, int64_t until_us, struct interval_set *queued, struct json *stages_sum);
