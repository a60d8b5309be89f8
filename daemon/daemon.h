/* What the files of daemon/ share: the one struct with everything of the process, in the order in which it is made.
 * Thread: loop. New here? Read main.c, then api.c. */
#pragma once

#include <uv.h>

#include "activities/activity.h"
#include "activities/jq_pool.h"
#include "daemon/children.h"
#include "daemon/config.h"
#include "daemon/definitions.h"
#include "daemon/engine.h"
#include "daemon/event_hub.h"
#include "daemon/event_keeper.h"
#include "daemon/feeds.h"
#include "daemon/token_spool.h"
#include "daemon/http_server.h"
#include "daemon/listeners.h"
#include "daemon/ports.h"
#include "daemon/schedules.h"
#include "daemon/simulator.h"
#include "daemon/sinks.h"
#include "store/store.h"

enum {
	RECOVER_PAGE = 10000, /* open runs read at once at start */
	GATES_AT_START_MAX = 200, /* the newest ones, of all runtimes; facts of a configuration measured before them say "unmeasured" */
	STOP_FLUSH_MS = 2000, /* for answers on their way when the daemon stops */
	BACKUP_PATH_MAX = 4000, /* bytes of a backup's path */
	STOP_QUIET_MS = 30000, /* for the journal and the activities to come to rest */
	DRAIN_MAX_MS = 24 * 60 * 60 * 1000, /* the longest that activities may be waited for */
};

enum daemon_stage { DAEMON_STARTING, DAEMON_SERVING, DAEMON_DRAINING, DAEMON_STOPPING, DAEMON_STOPPED };

struct daemon {
	uv_loop_t loop;
	struct config config;
	uint64_t started_us;
	int64_t drain_ms;
	enum daemon_stage stage;

	struct store *store;
	struct ports ports;
	struct definitions definitions;
	struct simulators simulators;
	struct jq_pool *jq; /* expressions that need it */
	struct activities *activities;
	struct engine *engine;
	struct children children; /* runs that runs start */
	uv_timer_t sweep_timer; /* children_sweep() */
	struct event_hub *hub; /* events to those who wait for them */
	struct listeners *listeners; /* … the engine's */
	struct event_keeper *event_keeper;
	struct sinks *sinks;
	struct feeds feeds;
	struct token_spool tokens;
	unsigned forks; /* that are being made */
	struct schedules schedules;
	struct http_server *http;
	struct backup_job { /* api_journal.c: the backup under way, or the last one */
		struct store_backup backup;
		char *path; /* NULL: none was begun */
		int64_t started_ms, ended_ms;
		bool is_running;
	} backup;
	uint64_t open_at_start;
	struct start_record { /* start.c: what the journal is told of this start */
		struct store_append append;
		struct entry entries[5];
		size_t count;
		struct arena arena;
		uv_timer_t timer; /* tries again */
		struct daemon *daemon;
		bool is_done, is_late; /* answered; there was no room, and the daemon has gone on without it */
	} record;

	/* shutdown.c */
	uv_signal_t signals[2];
	uv_timer_t stop_timer;
	uv_prepare_t stop_prepare;
	bool stop_asked, activities_closed, activities_closing, stop_due, farewell_sent, farewell_done;
	struct store_append farewell;
	struct entry farewell_entry;
	struct arena farewell_arena;
	int exit_status;
};

/* clock.c: the only place of the daemon that looks at a clock. */
uint64_t clock_now_us(void);
int64_t clock_wall_ms(void);

/* shutdown.c */
int shutdown_watch_signals(struct daemon *daemon); /* 0, or libuv's error: nothing is watched then */
/* Activities under way may finish until drain_ms have passed; 0: they are interrupted at once. Draining already: ends that. */
void shutdown_begin(struct daemon *daemon, const char *why, int64_t drain_ms);
/* The same on request; draining already: until this much later than now. False: it stops already. */
bool shutdown_drain(struct daemon *daemon, int64_t drain_ms);
size_t shutdown_under_way(const struct daemon *daemon); /* activities that a drain waits for */

/* notify.c: systemd's readiness protocol; nothing happens without $NOTIFY_SOCKET. False: told nobody, or it failed (logged). */
bool notify_supervisor(const char *message);

/* api.c */
extern const struct http_handler api_handler;

/* built_in.c: definitions that ship with the daemon. */
extern const char *const built_in_definitions[];
extern const size_t built_in_definition_count;
