/* `kind: simulator` without a url: the daemon starts a reprise-sim for it, at start-up, and stops it at the end. A simulator does
 * not outlive its daemon, however that ends. Thread: loop, before it serves. */
#pragma once

#include <uv.h>

#include "daemon/config.h"

enum { SIMULATOR_READY_MS = 10000, SIMULATOR_LINE_MAX = 256 };

struct simulator;
struct simulators {
	struct simulator *items;
	size_t count;
	uv_timer_t timer; /* for how long the start may take */
	bool stopping;
};

/* Runs the loop until each has said where it listens; fills in runtimes[i].url. */
int simulators_start(struct simulators *simulators, uv_loop_t *loop, struct config *config, struct error *error);
void simulators_stop(struct simulators *simulators); /* the handles close as the loop runs */
void simulators_free(struct simulators *simulators); /* after the loop has ended */
/* "reprised --run-child PROGRAM ARGUMENT…": become PROGRAM, to be killed when the parent dies. Returns on failure only. */
int simulator_become(char **arguments);
