/* The simulator as a whole: one loop, one script, the counters, the runtime's state, the two ports. Threads: one. */
#pragma once

#include "tests/sim/counters.h"
#include "tests/sim/http.h"
#include "tests/sim/kind.h"
#include "tests/sim/process.h"
#include "tests/sim/runtime.h"
#include "tests/sim/script.h"

struct sim {
	uv_loop_t loop;
	const struct kind *kind;
	struct script *script;
	struct script_defaults defaults; /* for scripts that come later */
	struct counters counters;
	struct runtime runtime;
	struct process process;
	struct http_server product, control;
	bool has_control, verbose;
	bool closing, reloading; /* what ends now was ended by us */
	uv_signal_t signals[2]; /* SIGTERM, SIGINT */
};

/* exchange.c: the requests of the product port; control.c: those of the control port. Their context is struct sim. */
extern const struct http_handler product_handler;
extern const struct http_handler control_handler;

/* exchange.c: end what is still generated for clients that have gone away. */
void exchange_end_abandoned(struct sim *sim);
/* exchange.c: the pauses that answers are in now are over. */
void exchange_release(struct sim *sim);

/* main.c: what the script says of connections and of models that are loaded from the start. */
void sim_apply_script(struct sim *sim);
/* main.c: another process under the same address. All connections end. On an error (it was done a moment ago) the old one stays away. */
int sim_reload(struct sim *sim, struct error *error);
/* main.c: the line on standard output that says which ports it has; word: "starting" or "ready". */
void sim_print_addresses(const struct sim *sim, const char *word);
/* main.c: let go of everything, so that the loop ends. */
void sim_close(struct sim *sim);
