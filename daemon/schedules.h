/* Workflows that start by themselves. What a schedule has done so far is in the journal; here is when it comes next, and one timer for
 * all. A tick and the run it starts are committed together; so is every tick that was skipped, with its reason.
 *
 * Thread: loop; rows, definitions and zone files are read on the reader thread. New here? Read advance() in schedules.c. */
#pragma once

#include <uv.h>

#include "workflow/base/arena.h"
#include "workflow/base/error.h"
#include "workflow/base/list.h"

enum {
	SCHEDULES_MAX = 1000,
	SCHEDULES_SLEEP_MAX_MS = 60000, /* the wall clock may be set while we sleep (C58) */
	SCHEDULES_RETRY_MS = 500, /* the journal was full or busy */
	SCHEDULE_CONTROLS_MAX = 16, /* pauses, resumes and triggers that wait while one schedule is being written */
};

struct daemon;
struct json;
struct digest;
struct zone;

struct schedules {
	struct daemon *daemon;
	uv_timer_t timer;
	struct list items;
	size_t count;
	uint64_t ticked, skipped; /* since the start */
};

void schedules_init(struct schedules *schedules, struct daemon *daemon);
struct schedule_reload {
	void (*on_done)(struct schedule_reload *reload);
	void *owner;
	struct list link; /* its own */
};
/* Read them all; afterwards what was missed is caught up as each schedule says. on_done fires when all are known, or cannot be read. */
void schedules_start(struct schedules *schedules, struct schedule_reload *reload);
/* No more ticks. */
void schedules_stop(struct schedules *schedules);
void schedules_close(struct schedules *schedules); /* nothing may be under way */

/* The row of a schedule may have changed: a definition of this name was added. on_done fires, perhaps at once, when the schedule follows the row
 * or cannot be read. */
void schedules_reload(struct schedules *schedules, const char *namespace, const char *name, struct schedule_reload *reload);
void schedules_on_run_ended(struct schedules *schedules, const char *run_id);
/* Durably, one that had faulted. `after` waits for its end once more, as it does after a restart, where the row of the run tells no other. */
void schedules_on_run_retried(struct schedules *schedules, const char *run_id);
/* ERR_TOO_LARGE: SCHEDULES_MAX are there and this is not one of them. */
int schedules_have_room(const struct schedules *schedules, const char *namespace, const char *name, struct error *error);
/* The rules of a zone from the system's zone files. Blocks: not on the loop. ERR_NOT_FOUND: there is no such zone. */
int schedules_load_zone(struct arena *arena, const char *name, const struct zone **zone, struct digest *digest, struct error *error);

/* --- for the API -------------------------------------------------------------------------------------------------- */

struct json *schedules_json(const struct schedules *schedules, struct arena *arena); /* all, by id */
struct json *schedules_item_json(const struct schedules *schedules, const char *id, struct arena *arena); /* NULL: unknown */

enum schedule_verb { SCHEDULE_PAUSE, SCHEDULE_RESUME, SCHEDULE_TRIGGER };
struct schedule_control;
struct schedule_control {
	const char *id, *reason; /* reason: of a pause, or NULL */
	enum schedule_verb verb;
	void (*on_done)(struct schedule_control *control); /* durable, or error */
	void *owner;
	char run_id[27]; /* TRIGGER: the run it started */
	struct error error;
	struct list link; /* its own */
};
/* While it is being written, which one that feeds itself with events is nearly always, the control waits and comes before the next tick.
 * 0, ERR_NOT_FOUND, ERR_INVALID, or ERR_BUSY (SCHEDULE_CONTROLS_MAX wait already): on_done then never fires. */
int schedules_control(struct schedules *schedules, struct schedule_control *control, struct error *error);
