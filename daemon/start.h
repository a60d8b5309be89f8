/* The steps of the start, in order, and the end that undoes as many of them as were made. Thread: main, which becomes the loop. */
#pragma once

#include "daemon/daemon.h"

/* reprise-launcher for each runtime with `launch`: first of all, so that it knows nothing that the daemon learns later. */
int start_launchers(struct daemon *daemon, struct error *error);
int start_loop(struct daemon *daemon, struct error *error);
int start_journal(struct daemon *daemon, struct error *error);
int start_simulators(struct daemon *daemon, struct error *error);
int start_engine(struct daemon *daemon, struct error *error);
int start_server(struct daemon *daemon, struct error *error);
/* After shutdown.c has brought everything to rest, or after a step that failed. Returns the exit status. */
int stop_all(struct daemon *daemon);
