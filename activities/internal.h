/* What the files of activities/ share with each other and with nobody else: the head of an attempt's work, its stage clock,
 * deadlines, and the way an attempt ends. Threads: loop. New here? Read struct work, then work_finish() in activities.c. */
#pragma once

#include "activities/activity.h"
#include "activities/curl_loop.h"
#include "activities/documents.h"

enum {
	HTTP_CONNECT_MS = 10 * 1000,
	HTTP_TOTAL_MS = 5 * 60 * 1000,
	HTTP_REDIRECTS_MAX = 10,
	HTTP_RETRY_ATTEMPTS = 3,
	HTTP_IN_FLIGHT_MAX = 256, /* requests of call: http at once: each has a connection, and its answer in memory until it ends */
	HTTP_WAITING_MAX = 10 * 1000, /* requests of call: http that wait for their turn */
	RETRY_FLOOR_MS = 500,
	RETRY_CAP_MS = 60 * 1000,
	POOL_BYTES_MIN = 64 << 10, /* CPU work on more than this leaves the loop thread */
};

struct runtime;
struct slot;

/* One timer of an attempt; kept and used again, since a uv handle cannot be freed at once. */
struct deadline {
	uv_timer_t timer;
	void (*on_due)(struct deadline *deadline);
	void *owner;
	struct list link; /* in activities->deadlines_free or deadlines_used */
};

/* Every moment of an attempt belongs to exactly one stage, so the stages add up to its wall time (semantics.md 8). */
struct stage_clock {
	int64_t *stage; /* the one that runs; NULL before the first and after the end */
	uint64_t since_us;
};

/* Head of the struct that each kind keeps for one attempt (activity->work). */
struct work {
	struct activities *activities;
	struct activity *activity;
	struct stage_clock clock;
	/* Give up: release all that can be released now. True: work_finish() may follow at once; false: something is still out
	 * (the uv pool, a port), whose return looks at `cancelled` and calls work_finish_cancelled(). */
	bool (*cancel)(struct work *work);
	void (*free)(struct work *work);
	bool cancelled;
	enum failure_class cancel_class;
	bool queued; /* counted in activities->queued: not yet at a slot of its runtime */
	struct inference *inference; /* that may wait for a place in its run's budget; NULL: none does */
	const struct slot *slot; /* that it waits for while it is queued */
	long connections; /* opened for this attempt; -1: none was asked for */
};

struct activities {
	uv_loop_t *loop;
	struct activity_ports ports;
	struct curl_loop *curl;
	struct runtime **runtimes;
	size_t runtime_count;
	struct list notes; /* configuration records on their way to the journal; runtimes.c */
	struct address_rules *http_allow;
	const struct secret_config *secrets;
	size_t secret_count;
	struct {
		struct list waiting; /* first come, first served */
		size_t waiting_count, in_flight;
		bool admitting;
		int64_t total_ms; /* HTTP_TOTAL_MS; a test does not wait that long */
	} http; /* http_activity.c */
	struct {
		int64_t load_ms, unload_ms; /* LOADING_LOAD_MS, LOADING_UNLOAD_MS; a test does not wait that long */
	} loading; /* loading.c */
	struct documents documents;
	char user_agent[64];

	struct list active; /* accepted, no result yet */
	struct list finished; /* result there, callback not yet called */
	size_t active_count, queued;
	uv_idle_t idle; /* active while `finished` holds something */
	struct list deadlines_free, deadlines_used;
	size_t outside; /* calls into ports and the uv pool that have not come back */
	uint64_t attempts[FAILURE_CLASS_COUNT];

	bool closing, handles_closing;
	size_t handles; /* uv handles to close */
	void (*on_closed)(void *arg);
	void *closed_arg;
};

uint64_t now_us(const struct activities *activities);
void stage_enter(struct work *work, int64_t *stage);
void stage_enter_at(struct work *work, int64_t *stage, uint64_t at_us); /* at_us: between the last change and now */

struct deadline *deadline_new(struct activities *activities, void (*on_due)(struct deadline *deadline), void *owner);
void deadline_start(struct deadline *deadline, int64_t after_ms); /* starting again moves it */
void deadline_stop(struct deadline *deadline);
void deadline_free(struct activities *activities, struct deadline *deadline); /* NULL is allowed */

/* Calls that leave the loop thread or the module; activities_close() waits for them. */
void outside_begin(struct activities *activities);
void outside_end(struct activities *activities);

/* Ends an attempt; the callback fires in the loop's next turn. Frees the work. failure FAILURE_NONE: result.ok. */
void work_finish(struct work *work, enum failure_class failure, const char *format, ...) __attribute__((format(printf, 3, 4)));
void work_finish_cancelled(struct work *work);
/* The attempt's record so far, to add to. */
struct json *work_record(struct work *work);
/* Its policy for further attempts. */
void work_set_retry(struct work *work, unsigned attempts, int64_t floor_ms, int64_t cap_ms);

/* A text for people, out of what peers sent perhaps: valid UTF-8, cut at ACTIVITY_DETAIL_MAX. */
void detail_print(char detail[ACTIVITY_DETAIL_MAX], const char *format, va_list args) __attribute__((format(printf, 2, 0)));
void detail_set(char detail[ACTIVITY_DETAIL_MAX], const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One per kind: checks the arguments, makes the work and begins. Must not finish it at once in any other way than by
 * work_finish(). Returns 0, or the error; nothing of the work is left then. */
int http_activity_start(struct activities *activities, struct activity *activity, struct error *error);
int inference_activity_start(struct activities *activities, struct activity *activity, struct error *error);
int sections_activity_start(struct activities *activities, struct activity *activity, struct error *error);
int extract_activity_start(struct activities *activities, struct activity *activity, struct error *error);
int gate_activity_start(struct activities *activities, struct activity *activity, struct error *error);

/* For a kind's start: the head filled in, stage `first` running, the activity counted as active. */
void work_begin(struct activities *activities, struct activity *activity, struct work *work, int64_t *first);
