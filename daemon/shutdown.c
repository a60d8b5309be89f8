/* The end of the daemon, in order: no new work, what is decided becomes durable, those who wait are answered, activities are closed
 * (their started entries resume them at the next start), the journal says goodbye.
 *
 *   SERVING ─▶ DRAINING ─▶ STOPPING ─▶ STOPPED       (DRAINING only with --drain or POST /v1/drain; a signal ends it)
 *
 * While it drains nothing new comes in or begins, what is under way may finish, and whoever looks or cancels is still served.
 *
 * Each turn of the loop asks once whether the next step can be taken: whatever makes it possible was a callback of that turn.
 * Thread: loop. New here? Read advance(). */
#include <signal.h>
#include <string.h>

#include "daemon/daemon.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/log.h"

static void on_stop_timer(uv_timer_t *timer)
{
	struct daemon *daemon = timer->data;

	daemon->stop_due = true;
}

static void start_stop_timer(struct daemon *daemon, int64_t ms)
{
	daemon->stop_due = false;
	uv_update_time(&daemon->loop);
	uv_timer_start(&daemon->stop_timer, on_stop_timer, (uint64_t)ms, 0);
}

static void on_activities_closed(void *arg)
{
	((struct daemon *)arg)->activities_closed = true;
}

static void on_farewell(struct store_append *append)
{
	struct daemon *daemon = append->owner;

	if (append->error.code != ERR_NONE)
		log_warn(LOG_DAEMON, "daemon.stopping was not recorded: %s", append->error.message);
	FAIL_POINT(STOP_FAREWELL);
	daemon->farewell_done = true;
}

static void send_farewell(struct daemon *daemon)
{
	daemon->farewell_sent = true;
	arena_init(&daemon->farewell_arena);
	daemon->farewell_entry = (struct entry){.kind = ENTRY_DAEMON_STOPPING, .data = json_object(&daemon->farewell_arena), .time_ms = clock_wall_ms()};
	json_set_text(&daemon->farewell_arena, daemon->farewell_entry.data, "version", REPRISE_VERSION);
	daemon->farewell = (struct store_append){.entries = &daemon->farewell_entry, .entry_count = 1, .on_done = on_farewell, .owner = daemon};
	if (store_append(daemon->store, &daemon->farewell) != 0)
		daemon->farewell_done = true;
}

/* A run that waits for another one does nothing itself: the other's activities count. */
size_t shutdown_under_way(const struct daemon *daemon)
{
	struct engine_counts counts;

	engine_counts(daemon->engine, &counts);
	return counts.in_flight > daemon->children.count ? counts.in_flight - daemon->children.count : 0;
}

static bool is_drained(const struct daemon *daemon)
{
	struct engine_counts counts;

	engine_counts(daemon->engine, &counts);
	return counts.committing == 0 && shutdown_under_way(daemon) == 0;
}

static void stop_now(struct daemon *daemon)
{
	daemon->stage = DAEMON_STOPPING;
	http_server_stop_accepting(daemon->http);
	start_stop_timer(daemon, STOP_QUIET_MS);
	daemon->activities_closing = true;
	uv_timer_stop(&daemon->sweep_timer);
	children_stop(&daemon->children);
	activities_close(daemon->activities, on_activities_closed, daemon);
}

static void advance(struct daemon *daemon)
{
	if (daemon->stage == DAEMON_DRAINING && (daemon->stop_due || is_drained(daemon))) {
		log_info(LOG_DAEMON, daemon->stop_due ? "drain time is up: activities are interrupted" : "drained");
		stop_now(daemon);
	}
	if (daemon->stage != DAEMON_STOPPING)
		return;
	http_server_release_waiters(daemon->http);
	bool quiet = daemon->activities_closed && children_are_quiet(&daemon->children) && engine_is_quiet(daemon->engine);
	if (quiet && !daemon->farewell_sent)
		send_farewell(daemon);
	if (daemon->stop_due) {
		/* A disk that is full, for one: the journal takes nothing, or somebody waits for an answer that cannot be written down. What was not acknowledged is not
		 * lost, the next start carries on. */
		log_warn(LOG_DAEMON, "%s within %d ms: stopping all the same", daemon->farewell_done ? "not everybody could be answered" : "the journal did not come to rest", STOP_QUIET_MS);
		daemon->exit_status = 1;
		daemon->stage = DAEMON_STOPPED;
	} else if (daemon->farewell_done && !http_server_is_busy(daemon->http) && !feeds_are_reading(&daemon->feeds) &&
	    !event_hub_is_reading(daemon->hub) && !event_keeper_is_reading(daemon->event_keeper) && !sinks_are_reading(daemon->sinks))
		daemon->stage = DAEMON_STOPPED;
}

static void on_prepare(uv_prepare_t *prepare)
{
	struct daemon *daemon = prepare->data;

	advance(daemon);
	if (daemon->stage == DAEMON_STOPPED)
		uv_stop(&daemon->loop);
}

void shutdown_begin(struct daemon *daemon, const char *why, int64_t drain_ms)
{
	if (daemon->stage >= DAEMON_STOPPING)
		return;
	if (daemon->stage == DAEMON_DRAINING) {
		daemon->stop_due = true;
		return;
	}
	log_info(LOG_DAEMON, "stopping: %s", why);
	notify_supervisor("STOPPING=1");
	daemon->stage = DAEMON_DRAINING;
	FAIL_POINT(STOP_BEGUN);
	schedules_stop(&daemon->schedules);
	sinks_stop(daemon->sinks);
	event_keeper_stop(daemon->event_keeper);
	event_hub_stop(daemon->hub);
	engine_stop(daemon->engine);
	uv_prepare_start(&daemon->stop_prepare, on_prepare);
	start_stop_timer(daemon, drain_ms);
	if (drain_ms == 0)
		stop_now(daemon);
}

bool shutdown_drain(struct daemon *daemon, int64_t drain_ms)
{
	if (daemon->stage >= DAEMON_STOPPING)
		return false;
	if (daemon->stage == DAEMON_DRAINING)
		start_stop_timer(daemon, drain_ms);
	else
		shutdown_begin(daemon, "asked to drain", drain_ms);
	return true;
}

static void on_signal(uv_signal_t *handle, int number)
{
	struct daemon *daemon = handle->data;

	if (daemon->stage == DAEMON_STARTING) {
		daemon->stop_asked = true; /* main() looks when the start is over */
		return;
	}
	shutdown_begin(daemon, number == SIGTERM ? "SIGTERM" : "SIGINT", daemon->drain_ms);
}

int shutdown_watch_signals(struct daemon *daemon)
{
	static const int numbers[] = {SIGTERM, SIGINT};

	for (size_t i = 0; i < COUNT_OF(numbers); i++) {
		int code = uv_signal_init(&daemon->loop, &daemon->signals[i]);
		if (code != 0 && i == 0) /* the loop's own pipe for signals is made with the first */
			return code;
		CHECK(code == 0);
		daemon->signals[i].data = daemon;
		CHECK(uv_signal_start(&daemon->signals[i], on_signal, numbers[i]) == 0);
	}
	CHECK(uv_timer_init(&daemon->loop, &daemon->stop_timer) == 0);
	CHECK(uv_prepare_init(&daemon->loop, &daemon->stop_prepare) == 0);
	daemon->stop_timer.data = daemon->stop_prepare.data = daemon;
	return 0;
}
