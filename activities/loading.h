/* Loading the model of a runtime anew over its own API (runtimes.md 5d), where the daemon does not launch the process: what `runtime start`,
 * `stop` and `reload` mean for LM Studio, and what a gate's phase `reload` does there.
 *
 *     start:          list ─▶ load ─▶ ask who answers ─▶ ready         refused: the runtime says that it cannot load it; attempts hear why
 *     reload: list ─▶ unload each ─▶ load ─▶ …                         failed: it was not to be reached; attempts go on, and find out
 *     stop:   list ─▶ unload each ─▶ stopped
 *
 * While it lasts, and when it was stopped, the queue is held, that of all runtimes which ask this model of this server; what is in flight is lost
 * first, with a class that is tried again. A model is loaded with the settings that it had, so that a reload changes the process's state alone.
 * Each order is in the journal (runtime.stopped, .ready, .refused). Nothing of it outlives the daemon: another one admits what the server has.
 * Threads: loop. New here? Read loading_begin(), then on_listed() in loading.c. */
#pragma once

#include "activities/runtimes.h"

enum {
	LOADING_UNLOADS_MAX = 16, /* instances of one model; of more it is not guessed which are meant */
	LOADING_UNLOAD_MS = 60 * 1000,
	LOADING_LOAD_MS = 20 * 60 * 1000, /* large models come from slow disks */
};

enum loading_order { LOADING_START, LOADING_STOP, LOADING_RELOAD };

struct loading;
bool loading_is_possible(const struct runtime *runtime); /* its kind has such an API, and the daemon does not launch it */
/* reason: NULL or the operator's words; copied. Sets and returns ERR_UNSUPPORTED, or ERR_EXISTS while another order is carried out. */
int loading_begin(struct runtime *runtime, enum loading_order order, const char *reason, struct error *error);
struct json *loading_json(const struct loading *loading, struct arena *arena);
void loading_end(struct loading *loading); /* the daemon stops; it stays until its notes are back. Takes NULL, as the next one does */
void loading_free(struct loading *loading);
