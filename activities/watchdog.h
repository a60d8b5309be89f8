/* The watchdog of a launched runtime: each of its probes is sampled, held against its limit, and trips it after some samples in a row above.
 *
 * A probe that fails or hangs is an alarm (log, metrics) and never a reason to end the runtime: it says nothing about memory. Samples that went
 * well in between count on, since a probe that cannot see is no proof that memory came back. Thread: loop; what may hang runs on the uv pool or as
 * a process of its own, with a time limit. New here? Read begin_sample(), then judge() in watchdog.c. */
#pragma once

#include "activities/internal.h"
#include "activities/launch.h"

enum { WATCHDOG_SAMPLES_KEPT = 20 }; /* of each probe, for views and the entry */

struct watchdog;
struct watchdog_events {
	/* Once, then it stops by itself. samples: of all probes; borrowed. */
	void (*on_tripped)(void *arg, const char *detail, const struct json *samples);
	void (*on_rests)(void *arg); /* the last sample that was out has come back, after a stop */
};

struct watchdog *watchdog_new(struct activities *activities, const struct launch_config *config, const struct watchdog_events *events, void *arg);
/* Before the runtime is started: what is in use without it. on_done(arg of new): later or within the call; not after watchdog_stop(). */
void watchdog_measure_baseline(struct watchdog *watchdog, void (*on_done)(void *arg));
void watchdog_start(struct watchdog *watchdog, pid_t pid);
void watchdog_stop(struct watchdog *watchdog);
bool watchdog_is_busy(const struct watchdog *watchdog); /* a sample is out still; on_rests tells of its end. False for NULL */
void watchdog_describe(const struct watchdog *watchdog, struct arena *arena, struct json *json); /* adds "watchdog" where there are probes */
uint64_t watchdog_alarms(const struct watchdog *watchdog); /* probes that began to fail, since the start of the daemon */
uint64_t watchdog_trips(const struct watchdog *watchdog);
void watchdog_free(struct watchdog *watchdog); /* not busy */
