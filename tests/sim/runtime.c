/* The state of a simulated runtime. Loop thread. Start at runtime_load(). */
#include "tests/sim/runtime.h"

#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

void runtime_init(struct runtime *runtime, uv_loop_t *loop)
{
	*runtime = (struct runtime){.loop = loop, .phase = RUNTIME_READY, .instance = 1};
	list_init(&runtime->queue);
}

void runtime_close(struct runtime *runtime)
{
	for (size_t i = 0; i < runtime->model_count; i++)
		uv_close((uv_handle_t *)&runtime->models[i]->timer, NULL);
}

void runtime_free(struct runtime *runtime)
{
	for (size_t i = 0; i < runtime->model_count; i++) {
		free(runtime->models[i]->name);
		free(runtime->models[i]);
	}
	free(runtime->cache);
}

void runtime_renew(struct runtime *runtime)
{
	for (size_t i = 0; i < runtime->model_count; i++)
		runtime_unload(runtime, runtime->models[i]);
	runtime_flush_cache(runtime);
	runtime->instance++;
	runtime->prompt_tokens = runtime->text_tokens = runtime->cached_tokens = runtime->cache_queries = 0;
	runtime->finished_stop = runtime->finished_length = runtime->aborted = 0;
}

/* ---- Models ---- */

struct model_state *runtime_model(struct runtime *runtime, const char *name)
{
	struct model_state *model;

	for (size_t i = 0; i < runtime->model_count; i++) {
		if (strcmp(runtime->models[i]->name, name) == 0)
			return runtime->models[i];
	}
	if (runtime->model_count == MODELS_MAX)
		return NULL;
	model = memory_zero(sizeof(*model));
	model->name = memory_text(name);
	CHECK(uv_timer_init(runtime->loop, &model->timer) == 0);
	model->timer.data = runtime;
	runtime->models[runtime->model_count++] = model;
	return model;
}

bool runtime_load(struct runtime *runtime, struct model_state *model, int load_ms)
{
	if (model->loaded)
		return false;
	uv_update_time(runtime->loop);
	model->loaded = true;
	model->loads++;
	model->since_load = 0;
	model->ready_ms = uv_now(runtime->loop) + (uint64_t)load_ms;
	model->ttl_ms = -1;
	model->by_request = model->failed = false;
	model->context_tokens = 0;
	return true;
}

void runtime_unload(struct runtime *runtime, struct model_state *model)
{
	(void)runtime;
	model->loaded = false;
	uv_timer_stop(&model->timer);
}

uint64_t runtime_load_left_ms(const struct runtime *runtime, const struct model_state *model)
{
	uint64_t now = uv_now(runtime->loop);

	return model->ready_ms > now ? model->ready_ms - now : 0;
}

void runtime_evict_others(struct runtime *runtime, const struct model_state *model)
{
	for (size_t i = 0; i < runtime->model_count; i++) {
		struct model_state *other = runtime->models[i];

		if (other != model && other->loaded && other->by_request && other->busy == 0)
			runtime_unload(runtime, other);
	}
}

static void on_expired(uv_timer_t *timer)
{
	runtime_unload(timer->data, CONTAINER_OF(timer, struct model_state, timer));
}

void runtime_begin_use(struct model_state *model)
{
	model->busy++;
	uv_timer_stop(&model->timer);
}

void runtime_end_use(struct runtime *runtime, struct model_state *model, int64_t ttl_ms)
{
	model->ttl_ms = ttl_ms;
	if (--model->busy > 0 || !model->loaded || ttl_ms < 0)
		return;
	if (ttl_ms == 0)
		runtime_unload(runtime, model);
	else
		uv_timer_start(&model->timer, on_expired, (uint64_t)ttl_ms, 0);
}

int runtime_take_slot(struct runtime *runtime, const struct reply *reply)
{
	int slot = 0;

	while (slot < RUNTIME_SLOTS_MAX && runtime->slots[slot] != NULL)
		slot++;
	if (slot < RUNTIME_SLOTS_MAX)
		runtime->slots[slot] = reply;
	runtime->running++;
	return slot;
}

void runtime_free_slot(struct runtime *runtime, int slot)
{
	if (slot < RUNTIME_SLOTS_MAX)
		runtime->slots[slot] = NULL;
	runtime->running--;
}

/* ---- The prefix cache ---- */

static bool remember(struct runtime *runtime, uint64_t hash)
{
	size_t mask = (size_t)CACHE_ENTRIES_MAX * 2 - 1;
	size_t slot;

	if (runtime->cache == NULL)
		runtime->cache = memory_zero((mask + 1) * sizeof(*runtime->cache));
	if (hash == 0)
		hash = 1;
	for (slot = hash & mask; runtime->cache[slot] != 0; slot = (slot + 1) & mask) {
		if (runtime->cache[slot] == hash)
			return true;
	}
	if (runtime->cache_count == CACHE_ENTRIES_MAX) {
		runtime_flush_cache(runtime);
		slot = hash & mask;
	}
	runtime->cache[slot] = hash;
	runtime->cache_count++;
	return false;
}

void runtime_flush_cache(struct runtime *runtime)
{
	if (runtime->cache != NULL)
		memset(runtime->cache, 0, (size_t)CACHE_ENTRIES_MAX * 2 * sizeof(*runtime->cache));
	runtime->cache_count = 0;
}

uint64_t runtime_cache_prompt(struct runtime *runtime, struct bytes prompt, uint64_t salt, bool *seen)
{
	uint64_t hash = salt, cached = 0, tokens = token_count(prompt);
	bool all = true;
	size_t at = 0;

	for (uint64_t done = 0; done + CACHE_BLOCK_TOKENS < tokens; done += CACHE_BLOCK_TOKENS) {
		struct bytes rest = {prompt.data + at, prompt.len - at};

		rest.len = token_bytes(rest, CACHE_BLOCK_TOKENS);
		at += rest.len;
		hash = random_hash(hash, rest);
		if (!remember(runtime, hash))
			all = false;
		else if (all)
			cached += CACHE_BLOCK_TOKENS;
	}
	*seen = remember(runtime, random_hash(salt ^ UINT64_C(0x70726f6d7074), prompt)); /* apart from the hashes of blocks */
	runtime->cache_queries += tokens;
	runtime->cached_tokens += cached;
	return cached;
}
