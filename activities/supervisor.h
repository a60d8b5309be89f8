/* Supervision of a runtime that the daemon launches: started, known to be ready, watched, started anew, ended; each of it a journal entry.
 *
 *     stopped ─▶ starting ─▶ ready ─▶ stopping ─▶ stopped
 *        ▲          │          └─ it ended by itself, its engine is dead, the watchdog tripped ─▶ restarting ─▶ starting
 *        │          ├─▶ restarting (a refusal that may pass)                                      └─▶ failed: too many in a row
 *        └──────────┴─▶ refused: its log says why
 *
 * Its queue moves while it is ready alone: attempts wait while it starts, are let go with the cause when it cannot be started, and are lost,
 * with a class that is tried again, when it ends under them. Threads: loop; executables are opened and hashed on the uv pool.
 * New here? Read begin_start(), then on_exited() in supervisor.c. */
#pragma once

#include "activities/runtimes.h"

enum {
	SUPERVISOR_POLL_MS = 250, /* between two looks whether it is ready */
	SUPERVISOR_ASK_MS = 5 * 1000, /* how long one look may take */
	SUPERVISOR_LIFE_MS = 10 * 1000, /* between two looks whether one that was ready still has its engine (adapter->life) */
	SUPERVISOR_DOUBT_MS = 500, /* … while there is reason to doubt it */
	SUPERVISOR_DEAD_LOOKS = 3, /* in a row that say 503, or nothing behind one that did: it is dead */
	SUPERVISOR_ALIVE_MS = 250, /* between two looks whether a process that is nobody's child is there */
	SUPERVISOR_PREDECESSOR_MS = 5 * 1000, /* beside its grace: what an earlier daemon left has to be gone by then */
	SUPERVISOR_KILLED_MS = 10 * 1000, /* after SIGKILL: what is there then hangs in the kernel, and the start is refused */
	SUPERVISOR_TAIL_LINES = 50, /* of the log, kept with a refusal or a crash; and shown */
	SUPERVISOR_FILE_MAX = 20 << 10, /* bytes of the note about a process that goes on */
	SUPERVISOR_ENGINE_LEN_MAX = 255, /* of a container's engine, and of its name, in that note; of longer ones it says nothing */
};

enum runtime_state {
	RUNTIME_STOPPED,
	RUNTIME_STARTING,
	RUNTIME_READY,
	RUNTIME_STOPPING,
	RUNTIME_RESTARTING,
	RUNTIME_REFUSED,
	RUNTIME_FAILED,
	RUNTIME_STATE_COUNT,
};
const char *runtime_state_name(enum runtime_state state);

struct supervisor;
/* One for each runtime with `launch`; spool: folder for logs and notes. The runtimes are started in the loop's next turns. */
void supervisors_open(struct activities *activities, const char *spool);
struct json *supervisors_json(const struct activities *activities, struct arena *arena); /* for metrics: {name: {state, starts, alarms, trips}} */
/* The daemon ends: so does the runtime, unless it is kept. The activities stay until that is over. All take NULL. */
void supervisor_end(struct supervisor *supervisor);
void supervisor_free(struct supervisor *supervisor);

/* What an operator asks for. reason: NULL or his words; copied. */
void supervisor_start(struct supervisor *supervisor, const char *reason);
void supervisor_stop(struct supervisor *supervisor, const char *reason);
void supervisor_reload(struct supervisor *supervisor, const char *reason); /* stop, and start anew */

/* An attempt gives reason to doubt that it still has its engine, or (broke) that it is there at all: look now, and hold its queue until that is known. NULL, and in any
 * other state than ready: nothing. */
void supervisor_doubt(struct supervisor *supervisor, bool broke);
/* It starts or is ready: what answers at its address is its process. NULL: not launched, so nothing is known, which is no objection. */
bool supervisor_is_up(const struct supervisor *supervisor);
/* The process that it has; false: it has none, or the runtime is not launched (NULL). */
bool supervisor_instance(const struct supervisor *supervisor, struct runtime_instance *instance);
const struct json *supervisor_launched(const struct supervisor *supervisor); /* fields of the configuration record, or NULL */
const char *supervisor_folder(const struct supervisor *supervisor); /* that it starts in */
struct json *supervisor_json(const struct supervisor *supervisor, struct arena *arena, bool with_log);
