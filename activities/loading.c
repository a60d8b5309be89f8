/* See loading.h. Loop thread. In this order: notes; ends; requests, from the last one of an order back to the first; orders. */
#include "activities/loading.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "activities/refusal.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"
#include "workflow/base/time.h"

enum { US_PER_MS = 1000 };

enum loading_state { LOADING_STOPPING, LOADING_STARTING, LOADING_READY, LOADING_STOPPED, LOADING_REFUSED, LOADING_FAILED, LOADING_STATE_COUNT };

static const char *const state_names[LOADING_STATE_COUNT] = {
	[LOADING_STOPPING] = "stopping", [LOADING_STARTING] = "starting", [LOADING_READY] = "ready",
	[LOADING_STOPPED] = "stopped", [LOADING_REFUSED] = "refused", [LOADING_FAILED] = "failed",
};

struct loading {
	struct runtime *runtime;
	struct activities *activities;
	enum loading_state state;
	enum loading_order order;
	int64_t since_ms;
	uint64_t began_us;
	char detail[ACTIVITY_DETAIL_MAX];
	char *reason; /* NULL: none, or told */
	/* Of the order that is carried out. */
	struct arena arena;
	const char *model; /* as it is asked for */
	const struct json *card;
	size_t unloaded;
	struct transfer transfer;
	bool asking, configuring;
	struct deadline *deadline;
	int64_t within_ms; /* of what is asked, and the limit's name */
	const char *limit;
	struct configuration_wait wait;
};

/* ---- Notes ---- */

struct loading_note {
	struct runtime_note note;
	struct activities *activities;
	struct arena arena;
};

static void on_noted(struct runtime_note *done)
{
	struct loading_note *own = CONTAINER_OF(done, struct loading_note, note);
	struct activities *activities = own->activities;

	if (done->error.code != ERR_NONE)
		log_warn(LOG_ACTIVITY, "runtime=%s its %s is not in the journal: %s", done->runtime, done->kind, done->error.message);
	arena_close(&own->arena);
	free(own);
	outside_end(activities);
}

static struct loading_note *begin_note(struct loading *loading, const char *kind, const char *instance)
{
	struct loading_note *own = memory_zero(sizeof(*own));
	struct arena *arena = &own->arena;

	arena_init(arena);
	own->activities = loading->activities;
	own->note = (struct runtime_note){.kind = kind, .runtime = loading->runtime->config.name, .data = json_object(arena), .value = json_object(arena), .on_done = on_noted};
	json_set_text(arena, own->note.data, "runtime", loading->runtime->config.name);
	json_set_text(arena, own->note.data, "instance", instance);
	return own;
}

static void send_note(struct loading *loading, struct loading_note *own)
{
	struct activities *activities = loading->activities;

	json_set_text(&own->arena, own->note.value, "reason", loading->reason);
	free(loading->reason);
	loading->reason = NULL;
	outside_begin(activities);
	if (activities->ports.note_runtime != NULL)
		activities->ports.note_runtime(activities->ports.arg, &own->note);
	else
		on_noted(&own->note);
}

/* ---- Ends ---- */

/* Models of one server under one name are one: whoever asks it waits. */
static bool is_concerned(const struct loading *loading, const struct runtime *other)
{
	const char *model = loading->runtime->config.model, *others = other->config.model;

	return other == loading->runtime || (other->server == loading->runtime->server && other->supervisor == NULL &&
					     ((model == NULL && others == NULL) || (model != NULL && others != NULL && strcmp(model, others) == 0)));
}

static void hold(struct loading *loading, enum runtime_admission admission, enum failure_class failure, const char *detail)
{
	struct activities *activities = loading->activities;

	CHECK(admission != RUNTIME_ADMITS);
	for (size_t i = 0; i < activities->runtime_count; i++)
		if (is_concerned(loading, activities->runtimes[i]))
			runtime_admit(activities->runtimes[i], admission, failure, detail);
}

/* The last thing that is done: whoever goes on may be a gate, which begins the next order, for all of them, before this returns. */
static void admit(struct loading *loading)
{
	struct activities *activities = loading->activities;

	for (size_t i = 0; i < activities->runtime_count; i++) {
		struct runtime *runtime = activities->runtimes[i];

		if (is_concerned(loading, runtime)) {
			runtime->admission = RUNTIME_ADMITS;
			runtime->queue.open = true;
		}
	}
	runtime_admit(loading->runtime, RUNTIME_ADMITS, FAILURE_NONE, NULL); /* they have one server, whose turn it is now */
}

static void lose(struct loading *loading, const char *detail)
{
	struct activities *activities = loading->activities;

	for (size_t i = 0; i < activities->runtime_count; i++)
		if (is_concerned(loading, activities->runtimes[i]))
			runtime_lose(activities->runtimes[i], FAILURE_UNREACHABLE, detail);
}

/* Whoever asks next has to look who answers. */
static void set_loaded(struct loading *loading, int64_t at_ms)
{
	struct activities *activities = loading->activities;

	for (size_t i = 0; i < activities->runtime_count; i++) {
		struct runtime *runtime = activities->runtimes[i];

		if (!is_concerned(loading, runtime))
			continue;
		runtime->known = false;
		if (at_ms != 0)
			runtime->loaded_ms = at_ms;
	}
}

static int64_t wall_ms(const struct loading *loading)
{
	return loading->activities->ports.wall_ms(loading->activities->ports.arg);
}

static void set_state(struct loading *loading, enum loading_state state)
{
	loading->state = state;
	loading->since_ms = wall_ms(loading);
}

static void finish(struct loading *loading, enum loading_state state)
{
	deadline_free(loading->activities, loading->deadline);
	loading->deadline = NULL;
	arena_close(&loading->arena);
	loading->model = NULL;
	loading->card = NULL;
	free(loading->reason);
	loading->reason = NULL;
	set_state(loading, state);
}

/* It was not to be reached: what waits is let go on, and finds that out in its own time. */
static void fail(struct loading *loading, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct loading *loading, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	detail_print(loading->detail, format, args);
	va_end(args);
	log_warn(LOG_ACTIVITY, "runtime=%s %s", loading->runtime->config.name, loading->detail);
	set_loaded(loading, 0);
	finish(loading, LOADING_FAILED);
	admit(loading);
}

/* It says that it cannot: each request would only load it with other settings, or get the same answer. */
static void refuse(struct loading *loading, enum failure_class failure, const char *text)
{
	struct loading_note *own = begin_note(loading, "runtime.refused", NULL);
	struct bytes line = bytes_text(text);
	struct refusal refusal;

	refusal_classify(&line, 1, &refusal);
	detail_set(loading->detail, "runtime %s does not load its model: %s%s%s", loading->runtime->config.name, text, refusal.advice != NULL ? "; " : "",
		   refusal.advice != NULL ? refusal.advice : "");
	json_set_text(&own->arena, own->note.data, "class", refusal_name(refusal.class));
	json_set_text(&own->arena, own->note.value, "detail", loading->detail);
	send_note(loading, own);
	log_warn(LOG_ACTIVITY, "runtime=%s %s", loading->runtime->config.name, loading->detail);
	set_loaded(loading, 0);
	finish(loading, LOADING_REFUSED);
	hold(loading, RUNTIME_REFUSES, failure, loading->detail);
}

static void on_configured(struct configuration_wait *wait)
{
	struct loading *loading = CONTAINER_OF(wait, struct loading, wait);
	struct configuration *configuration = wait->configuration;
	struct runtime *runtime = loading->runtime;
	struct loading_note *own;

	loading->configuring = false;
	wait->configuration = NULL;
	if (configuration == NULL) {
		fail(loading, "its model is loaded, but who answers is not known: %s", wait->detail);
		return;
	}
	own = begin_note(loading, "runtime.ready", runtime->instance.id[0] != '\0' ? runtime->instance.id : NULL);
	json_set_number(&own->arena, own->note.data, "afterMs", (double)((now_us(loading->activities) - loading->began_us) / US_PER_MS));
	json_set_digest(&own->arena, own->note.data, "configuration", &configuration->digest);
	send_note(loading, own);
	configuration_release(configuration);
	loading->detail[0] = '\0';
	finish(loading, LOADING_READY);
	admit(loading);
}

static void configure(struct loading *loading)
{
	loading->wait.on_done = on_configured;
	loading->configuring = true;
	CHECK(!runtime_configure(loading->runtime, &loading->wait, ASK_ANEW));
}

/* ---- Requests ---- */

static void on_due(struct deadline *deadline)
{
	struct loading *loading = deadline->owner;

	CHECK(loading->asking);
	transfer_cancel(&loading->transfer);
	transfer_close(&loading->transfer);
	loading->asking = false;
	fail(loading, "no answer within %lld ms (%s) while its model was to be %s; see what it is doing, then give the order anew", (long long)loading->within_ms, loading->limit,
	     loading->state == LOADING_STOPPING ? "unloaded" : "loaded");
}

static void ask(struct loading *loading, const char *path, const struct json *body, int64_t within_ms, const char *limit, void (*on_done)(struct transfer *transfer))
{
	struct runtime *runtime = loading->runtime;
	struct arena *arena = &loading->arena;
	struct error error;

	loading->transfer = (struct transfer){
		.method = body != NULL ? "POST" : "GET",
		.url = arena_printf(arena, "%s%s", runtime->config.url, path),
		.headers = runtime_headers(runtime, arena, "Content-Type: application/json\n"),
		.body = body != NULL ? json_print_arena(body, arena) : (struct bytes){0},
		.has_body = body != NULL,
		.effectful = body != NULL, /* a load that is sent twice loads twice */
		.body_max = PROBE_BODY_MAX,
		.secrets = &runtime->secrets,
		.on_done = on_done,
		.owner = loading,
	};
	if (transfer_start(loading->activities->curl, &loading->transfer, &error) != 0) {
		transfer_close(&loading->transfer);
		fail(loading, "%s", error.message);
		return;
	}
	loading->asking = true;
	loading->within_ms = within_ms;
	loading->limit = limit;
	if (loading->deadline == NULL)
		loading->deadline = deadline_new(loading->activities, on_due, loading);
	deadline_start(loading->deadline, within_ms);
}

/* The transfer is over, and the next one may begin. False: there was no whole answer, and the order has failed. */
static bool take_answer(struct loading *loading, int *status, struct bytes *body)
{
	struct transfer *transfer = &loading->transfer;
	bool complete = transfer->end == TRANSFER_COMPLETE, unreachable = transfer->end == TRANSFER_NOT_CONNECTED;
	char why[ACTIVITY_DETAIL_MAX];

	loading->asking = false;
	deadline_stop(loading->deadline);
	*status = transfer->status;
	*body = arena_bytes(&loading->arena, buffer_bytes(&transfer->received));
	detail_set(why, "%s", transfer->detail);
	transfer_close(transfer);
	if (!complete) {
		runtime_doubt(loading->runtime, why, unreachable); /* who answers next may be somebody else */
		fail(loading, "it does not answer at %s: %s", loading->runtime->config.url, why);
	}
	return complete;
}

/* What it says, where it says no. */
static struct peer_error read_error(struct loading *loading, int status, struct bytes body)
{
	struct peer_error error = peer_error_read(json_parse(&loading->arena, body, JSON_ROUND_INTEGERS, NULL, NULL), status, &loading->arena);

	if (error.message == NULL)
		error.message = arena_printf(&loading->arena, "status %d, without a reason", status);
	return error;
}

static void on_loaded(struct transfer *transfer)
{
	struct loading *loading = transfer->owner;
	const struct adapter_loading *api = &loading->runtime->adapter->loading;

	struct peer_error error;
	struct bytes body;
	int status;

	if (!take_answer(loading, &status, &body))
		return;
	if (status == 200 && api->is_loaded(&loading->arena, body)) {
		set_loaded(loading, wall_ms(loading));
		configure(loading);
		return;
	}
	error = read_error(loading, status, body);
	refuse(loading, peer_error_class(&error), error.message);
}

static void load(struct loading *loading)
{
	const struct adapter_loading *api = &loading->runtime->adapter->loading;
	const char *why = NULL;
	struct json *body = api->make_load(&loading->arena, loading->card, loading->model, loading->runtime->config.context_length, &why);

	if (body == NULL)
		refuse(loading, FAILURE_CONFIGURATION, why);
	else
		ask(loading, api->load_path, body, loading->activities->loading.load_ms, "LOADING_LOAD_MS", on_loaded);
}

static void unload_next(struct loading *loading);

static void on_unloaded(struct transfer *transfer)
{
	struct loading *loading = transfer->owner;

	struct bytes body;
	int status;

	if (!take_answer(loading, &status, &body))
		return;
	/* 404: it went by itself. */
	if (status == 404 || (status == 200 && loading->runtime->adapter->loading.is_unloaded(&loading->arena, body))) {
		loading->unloaded++;
		unload_next(loading);
	} else {
		fail(loading, "it does not unload its model: %s", read_error(loading, status, body).message);
	}
}

/* What was loaded is not there any more. */
static void end_unloading(struct loading *loading)
{
	struct loading_note *own = begin_note(loading, "runtime.stopped", loading->runtime->instance.id[0] != '\0' ? loading->runtime->instance.id : NULL);

	json_set_text(&own->arena, own->note.data, "why", loading->order == LOADING_RELOAD ? "reload" : "asked");
	send_note(loading, own);
	set_loaded(loading, 0);
	if (loading->order == LOADING_STOP) {
		finish(loading, LOADING_STOPPED);
		return;
	}
	set_state(loading, LOADING_STARTING);
	load(loading);
}

static void unload_next(struct loading *loading)
{
	const struct adapter_loading *api = &loading->runtime->adapter->loading;
	const struct json *instance = json_at(json_get(loading->card, "loaded"), loading->unloaded);

	if (instance == NULL)
		end_unloading(loading);
	else
		ask(loading, api->unload_path, api->make_unload(&loading->arena, instance), loading->activities->loading.unload_ms, "LOADING_UNLOAD_MS", on_unloaded);
}

/* What there is, as it is now. */
static void on_listed(struct transfer *transfer)
{
	struct loading *loading = transfer->owner;
	struct runtime *runtime = loading->runtime;
	struct runtime_facts facts = {.arena = &loading->arena, .wanted = runtime->config.model, .context_length = runtime->config.context_length};
	struct bytes body;
	size_t count;
	int status;

	if (!take_answer(loading, &status, &body))
		return;
	if (status == 200)
		runtime->adapter->probes[0].read(body, &facts);
	if (facts.models == NULL) {
		fail(loading, "GET %s gives no list of models (status %d), so its model cannot be loaded over the API", runtime->adapter->probes[0].path, status);
		return;
	}
	loading->model = facts_model(&facts);
	loading->card = models_find(facts.models, loading->model);
	count = json_count(json_get(loading->card, "loaded"));
	if (loading->card == NULL) {
		refuse(loading, FAILURE_WRONG_MODEL, loading->model != NULL ? arena_printf(&loading->arena, "it has no model %.100s", loading->model) :
									      "it has several models, and the configuration does not say which one is meant (model)");
	} else if (count > LOADING_UNLOADS_MAX) {
		fail(loading, "its model is loaded %zu times; at most %d are unloaded (LOADING_UNLOADS_MAX)", count, LOADING_UNLOADS_MAX);
	} else if (loading->order == LOADING_START) {
		set_state(loading, LOADING_STARTING);
		if (count > 0)
			configure(loading);
		else
			load(loading);
	} else {
		unload_next(loading);
	}
}

/* ---- Orders ---- */

bool loading_is_possible(const struct runtime *runtime)
{
	return runtime->supervisor == NULL && runtime->adapter->loading.load_path != NULL;
}

int loading_begin(struct runtime *runtime, enum loading_order order, const char *reason, struct error *error)
{
	struct loading *loading = runtime->loading;
	char detail[ACTIVITY_DETAIL_MAX];

	if (!loading_is_possible(runtime))
		return error_set(error, ERR_UNSUPPORTED, "runtime %s has no `launch` in the configuration, and its kind no API to load models: whoever started it has to stop and start it",
				 runtime->config.name);
	if (runtime->activities->closing)
		return error_set(error, ERR_EXISTS, "the daemon stops");
	for (size_t i = 0; i < runtime->activities->runtime_count; i++) {
		const struct loading *other = runtime->activities->runtimes[i]->loading;

		if (other != NULL && (other->asking || other->configuring) && is_concerned(other, runtime))
			return error_set(error, ERR_EXISTS, "the model of runtime %s is %s already; wait until that is over (`reprise runtime show %s`)", runtime->config.name, state_names[other->state], runtime->config.name);
	}
	if (loading == NULL) {
		loading = runtime->loading = memory_zero(sizeof(*loading));
		loading->runtime = runtime;
		loading->activities = runtime->activities;
	}
	loading->order = order;
	loading->began_us = now_us(loading->activities);
	loading->detail[0] = '\0';
	loading->unloaded = 0;
	free(loading->reason);
	loading->reason = reason != NULL ? memory_text(reason) : NULL;
	arena_init(&loading->arena);
	list_init(&loading->wait.link);
	set_state(loading, order == LOADING_START ? LOADING_STARTING : LOADING_STOPPING);
	hold(loading, RUNTIME_HOLDS, FAILURE_NONE, NULL);
	detail_set(detail, "the model of runtime %s is loaded anew, or unloaded, by order", runtime->config.name);
	if (order != LOADING_START)
		lose(loading, detail);
	ask(loading, runtime->adapter->probes[0].path, NULL, PROBE_TIMEOUT_MS, "PROBE_TIMEOUT_MS", on_listed);
	return 0;
}

struct json *loading_json(const struct loading *loading, struct arena *arena)
{
	struct json *json = json_object(arena);
	char since[TIME_TEXT_LEN + 1];

	time_text(loading->since_ms, since);
	json_set_text(arena, json, "state", state_names[loading->state]);
	json_set_text(arena, json, "since", since);
	if (loading->detail[0] != '\0')
		json_set_text(arena, json, "detail", loading->detail);
	return json;
}

void loading_end(struct loading *loading)
{
	if (loading == NULL)
		return;
	if (loading->asking) {
		transfer_cancel(&loading->transfer);
		transfer_close(&loading->transfer);
	}
	if (loading->configuring)
		runtime_give_up(&loading->wait);
	if (loading->asking || loading->configuring)
		finish(loading, LOADING_FAILED);
	loading->asking = loading->configuring = false;
}

void loading_free(struct loading *loading)
{
	if (loading == NULL)
		return;
	CHECK(!loading->asking && !loading->configuring);
	free(loading->reason);
	free(loading);
}
