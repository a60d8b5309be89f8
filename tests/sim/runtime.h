/* What a simulated runtime is at a moment: starting or ready, which models are loaded, what its prefix cache has seen, who
 * waits for a slot, and what its metrics say. One instance ends and another begins with a reload.
 *
 * Ownership: models keep their address until runtime_close(). Threads: loop. Start at runtime_load(). */
#pragma once

#include <uv.h>

#include "tests/sim/answer.h"
#include "workflow/base/list.h"

enum {
	MODELS_MAX = 256,                /* names ever seen as loadable; further ones do not exist */
	RUNTIME_SLOTS_MAX = 4096,
	CACHE_BLOCK_TOKENS = 4,
	CACHE_ENTRIES_MAX = 256 * 1024,  /* blocks and prompts remembered; when that many are, all are forgotten */
};

struct model_state {
	char *name;
	bool loaded;
	uint64_t loads;      /* how often it was loaded in this process, over all instances */
	uint64_t since_load; /* requests since */
	uint64_t ready_ms;   /* on the loop's clock: when the load under way ends */
	uint64_t busy;       /* answers that are being made */
	bool failed;         /* the last attempt to load it */
	bool by_request;     /* not told to be loaded, but needed */
	int context_tokens;  /* it was loaded with; 0: the option says */
	int64_t ttl_ms;      /* after the last answer; -1: never ends */
	uv_timer_t timer;
};

enum runtime_phase { RUNTIME_STARTING, RUNTIME_READY };

struct runtime {
	uv_loop_t *loop;
	enum runtime_phase phase;
	uint64_t instance; /* from 1; grows with each reload */

	struct model_state *models[MODELS_MAX];
	size_t model_count;

	uint64_t *cache; /* hash table of CACHE_ENTRIES_MAX * 2 slots; 0: free */
	size_t cache_count;

	struct list queue; /* exchanges that wait for a slot */
	const struct reply *slots[RUNTIME_SLOTS_MAX]; /* what is made in each; NULL: free */
	uint64_t running, waiting, abandoned; /* abandoned: of those that run, the client went away */

	/* Metrics of this instance. */
	uint64_t prompt_tokens, text_tokens, cached_tokens, cache_queries, finished_stop, finished_length, aborted;
};

void runtime_init(struct runtime *runtime, uv_loop_t *loop);
/* Ends the timers; the loop must run on until they are closed. Then runtime_free(). */
void runtime_close(struct runtime *runtime);
void runtime_free(struct runtime *runtime);

/* Another process under the same address: nothing is loaded or remembered, metrics begin at 0. */
void runtime_renew(struct runtime *runtime);

/* NULL: no such name yet and no room for it. A new one is not loaded. */
struct model_state *runtime_model(struct runtime *runtime, const char *name);
/* Loads it if it is not. True: it was loaded just now, and is ready `load_ms` later. */
bool runtime_load(struct runtime *runtime, struct model_state *model, int load_ms);
/* Of those that were loaded by request, this one alone stays, and those that are busy. */
void runtime_evict_others(struct runtime *runtime, const struct model_state *model);
void runtime_unload(struct runtime *runtime, struct model_state *model);
uint64_t runtime_load_left_ms(const struct runtime *runtime, const struct model_state *model);
/* An answer begins and ends. ttl_ms: when it has ended and no other comes, the model goes after it; 0: at once, -1: never. */
void runtime_begin_use(struct model_state *model);
void runtime_end_use(struct runtime *runtime, struct model_state *model, int64_t ttl_ms);

/* The lowest free slot, RUNTIME_SLOTS_MAX when all of these are taken; it counts as running all the same. */
int runtime_take_slot(struct runtime *runtime, const struct reply *reply);
void runtime_free_slot(struct runtime *runtime, int slot);

/* How many tokens of the prompt the cache has, whole blocks of CACHE_BLOCK_TOKENS and never the last token; remembers it for the
 * next time. *seen: the very same prompt was here before. Prompts of another salt have nothing in common. */
uint64_t runtime_cache_prompt(struct runtime *runtime, struct bytes prompt, uint64_t salt, bool *seen);
void runtime_flush_cache(struct runtime *runtime);
