/* Starting and ending of one runtime through reprise-launcher, a small program of its own that holds no keys (activities/launcher_program.c).
 *
 * The daemon starts one launcher for each runtime that it is to launch, before it opens keys or journal and before it confines itself, so that
 * a runtime inherits nothing of that. They talk over a socket pair, one JSON object to a message; the descriptors of the executable and of the
 * log travel with `start`. The launcher is the subreaper of what it starts: whoever outlives the runtime becomes its child, and is killed.
 * When the daemon is gone, the socket ends, and the launcher ends the runtime (unless `keep`) and itself.
 *
 *     daemon  {"op":"start","argv","env","folder","graceMs","keep","stop"?} + 2 descriptors      {"op":"stop"}      {"op":"end","env","folder","graceMs","stop"}
 *     launcher {"op":"started","pid","start"}   {"op":"failed","why"}   {"op":"exited","status","signal","left"}
 *
 * Threads: launcher_spawn() before there are any; the rest on the loop. New here? Read launcher_program.c. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "workflow/base/error.h"

enum {
	LAUNCHER_SOCKET = 3, /* the launcher's end has this number there */
	LAUNCHER_MESSAGE_MAX = 100 << 10, /* bytes; a socket pair takes some 200 KiB */
	LAUNCHER_WORDS_MAX = 1024, /* arguments, and variables */
	LAUNCHER_WORDS_BYTES_MAX = 32 << 10, /* … and their bytes in all, each of the two */
	LAUNCHER_KILL_MS = 10 * 1000, /* how long what does not die of SIGKILL is waited for */
	LAUNCHER_SWEEP_MS = 20, /* … and looked for */
	LAUNCHER_CONTAINER_MS = 10 * 1000, /* an engine's `stop` gets this beside the grace */
};

/* What to start. Lists end with NULL. */
struct launch {
	const char *const *argv;
	const char *const *env; /* "NAME=value": all that it gets */
	const char *folder; /* working folder */
	const char *const *stop; /* a command that ends it, beside SIGTERM (a container's engine), or NULL; found by PATH of `env` */
	int64_t grace_ms; /* from SIGTERM to SIGKILL */
	bool keep; /* it goes on when the daemon ends */
};

struct launcher;
struct launcher_events {
	void (*on_started)(void *arg, pid_t pid, const char *start); /* start: in the kernel's ticks since boot, which makes pid unique */
	void (*on_failed)(void *arg, const char *why); /* nothing was started */
	/* It ended, by itself or asked, and so did all that came of it; left: processes that even SIGKILL has not ended. */
	void (*on_exited)(void *arg, int status, int signal_number, unsigned left);
	void (*on_lost)(void *arg); /* the launcher is gone; nothing follows */
};

/* Starts the program; *socket is the daemon's end of the pair. */
int launcher_spawn(const char *program, int *socket, struct error *error);
/* Takes over `socket`. */
struct launcher *launcher_open(uv_loop_t *loop, int socket, const struct launcher_events *events, void *arg);
/* One of on_started, on_failed or on_lost follows. The descriptors stay the caller's. ERR_TOO_LARGE past LAUNCHER_MESSAGE_MAX, ERR_IO when it is gone. */
int launcher_start(struct launcher *launcher, const struct launch *launch, int executable, int log, struct error *error);
void launcher_stop(struct launcher *launcher); /* on_exited follows; nothing when nothing runs */
void launcher_kill(struct launcher *launcher); /* the same without grace */
/* Runs `stop` alone, for a container that this launcher has not started: on_exited follows when the command is over, or had its time. Of `launch` env, folder,
 * stop and grace_ms count. 0, or an error as of launcher_start(); nothing may be running. */
int launcher_end(struct launcher *launcher, const struct launch *launch, struct error *error);
void launcher_close(struct launcher *launcher, void (*on_closed)(void *arg), void *arg); /* ends the launcher too, in its own time */
