/* See activity.h and internal.h. Loop thread. In this order: clocks and deadlines; how an attempt begins and ends; the API's
 * views; life. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activities/internal.h"
#include "activities/loading.h"
#include "activities/runtimes.h"
#include "activities/supervisor.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"
#include "workflow/base/time.h"

static int (*const starters[ACTIVITY_KIND_COUNT])(struct activities *activities, struct activity *activity, struct error *error) = {
	[ACTIVITY_HTTP] = http_activity_start,
	[ACTIVITY_INFERENCE] = inference_activity_start,
	[ACTIVITY_SECTIONS] = sections_activity_start,
	[ACTIVITY_EXTRACT] = extract_activity_start,
	[ACTIVITY_GATE] = gate_activity_start,
};

/* ---- Clocks and deadlines ---- */

uint64_t now_us(const struct activities *activities)
{
	return activities->ports.now_us(activities->ports.arg);
}

void stage_enter_at(struct work *work, int64_t *stage, uint64_t at_us)
{
	struct stage_clock *clock = &work->clock;

	if (at_us < clock->since_us)
		at_us = clock->since_us;
	if (clock->stage != NULL)
		*clock->stage += (int64_t)(at_us - clock->since_us);
	clock->stage = stage;
	clock->since_us = at_us;
}

void stage_enter(struct work *work, int64_t *stage)
{
	stage_enter_at(work, stage, now_us(work->activities));
}

static void on_timer(uv_timer_t *timer)
{
	struct deadline *deadline = CONTAINER_OF(timer, struct deadline, timer);

	deadline->on_due(deadline);
}

struct deadline *deadline_new(struct activities *activities, void (*on_due)(struct deadline *deadline), void *owner)
{
	struct deadline *deadline;

	if (list_empty(&activities->deadlines_free)) {
		deadline = memory_zero(sizeof(*deadline));
		CHECK(uv_timer_init(activities->loop, &deadline->timer) == 0);
		deadline->timer.data = activities;
		activities->handles++;
		list_init(&deadline->link);
	} else {
		deadline = CONTAINER_OF(activities->deadlines_free.next, struct deadline, link);
		list_remove(&deadline->link);
	}
	deadline->on_due = on_due;
	deadline->owner = owner;
	list_add_last(&activities->deadlines_used, &deadline->link);
	return deadline;
}

void deadline_start(struct deadline *deadline, int64_t after_ms)
{
	CHECK(uv_timer_start(&deadline->timer, on_timer, after_ms > 0 ? (uint64_t)after_ms : 0, 0) == 0);
}

void deadline_stop(struct deadline *deadline)
{
	uv_timer_stop(&deadline->timer);
}

void deadline_free(struct activities *activities, struct deadline *deadline)
{
	if (deadline == NULL)
		return;
	deadline_stop(deadline);
	list_remove(&deadline->link);
	list_add_first(&activities->deadlines_free, &deadline->link);
}

/* ---- Texts ---- */

/* Whatever came from a peer becomes valid UTF-8: a bad byte a question mark, a character cut at the end left out. */
static void mend_text(char *text)
{
	size_t len = strlen(text), bad, limit = len > 3 ? len - 3 : 0;

	while (!utf8_valid((struct bytes){(const uint8_t *)text, len}, &bad)) {
		if (len == ACTIVITY_DETAIL_MAX - 1 && bad >= limit && (text[bad] & 0xC0) == 0xC0) {
			text[bad] = '\0';
			return;
		}
		text[bad] = '?';
	}
}

void detail_print(char detail[ACTIVITY_DETAIL_MAX], const char *format, va_list args)
{
	vsnprintf(detail, ACTIVITY_DETAIL_MAX, format, args);
	mend_text(detail);
}

void detail_set(char detail[ACTIVITY_DETAIL_MAX], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	detail_print(detail, format, args);
	va_end(args);
}

/* ---- An attempt ---- */

static void begin_close_handles(struct activities *activities);

static void on_idle(uv_idle_t *idle)
{
	struct activities *activities = idle->data;
	struct list finished;

	/* What a callback finishes anew waits for the next turn, so that callbacks cannot keep the loop for themselves. */
	list_init(&finished);
	list_move_all(&finished, &activities->finished);
	uv_idle_stop(idle);
	while (!list_empty(&finished)) {
		struct activity *activity = CONTAINER_OF(finished.next, struct activity, link);

		list_remove(&activity->link);
		activity->on_done(activity);
	}
	begin_close_handles(activities);
}

void work_begin(struct activities *activities, struct activity *activity, struct work *work, int64_t *first)
{
	work->activities = activities;
	work->activity = activity;
	work->connections = -1;
	activity->work = work;
	work->clock = (struct stage_clock){.stage = first, .since_us = now_us(activities)};
	list_add_last(&activities->active, &activity->link);
	activities->active_count++;
}

struct json *work_record(struct work *work)
{
	struct activity *activity = work->activity;

	if (activity->result.record == NULL)
		activity->result.record = json_object(&activity->arena);
	return activity->result.record;
}

void work_set_retry(struct work *work, unsigned attempts, int64_t floor_ms, int64_t cap_ms)
{
	work->activity->result.retry_attempts = attempts;
	work->activity->result.retry_floor_ms = floor_ms;
	work->activity->result.retry_cap_ms = cap_ms;
}

static void write_record(struct work *work)
{
	struct activity *activity = work->activity;
	struct arena *arena = &activity->arena;
	const struct activity_result *result = &activity->result;
	struct json *record = work_record(work), *stages = json_object(arena);

	json_set_number(arena, stages, "queue", (double)result->stages.queue);
	json_set_number(arena, stages, "dispatch", (double)result->stages.dispatch);
	json_set_number(arena, stages, "connect", (double)result->stages.connect);
	json_set_number(arena, stages, "firstToken", (double)result->stages.first_token);
	json_set_number(arena, stages, "generation", (double)result->stages.generation);
	json_set_number(arena, stages, "parse", (double)result->stages.parse);
	json_set_number(arena, stages, "ground", (double)result->stages.ground);
	json_set(arena, record, "stages", stages);
	if (result->status != 0)
		json_set_number(arena, record, "status", result->status);
	if (work->connections >= 0)
		json_set_number(arena, record, "connections", (double)work->connections);
	if (result->detail[0] != '\0')
		json_set_text(arena, record, "detail", result->detail);
}

void work_finish(struct work *work, enum failure_class failure, const char *format, ...)
{
	struct activities *activities = work->activities;
	struct activity *activity = work->activity;
	struct activity_result *result = &activity->result;
	va_list args;

	CHECK(!work->queued);
	result->ok = failure == FAILURE_NONE;
	result->failure = failure;
	va_start(args, format);
	detail_print(result->detail, format, args);
	va_end(args);
	stage_enter(work, NULL);
	result->finished_ms = activities->ports.wall_ms(activities->ports.arg);
	write_record(work);
	activities->attempts[failure]++;
	activities->active_count--;
	activity->work = NULL;
	work->free(work);
	list_remove(&activity->link);
	list_add_last(&activities->finished, &activity->link);
	uv_idle_start(&activities->idle, on_idle);
}

void work_finish_cancelled(struct work *work)
{
	work_finish(work, work->cancel_class, "%s",
		    work->cancel_class == FAILURE_INTERRUPTED ? "the daemon stops; the task is begun again when it is back" : "cancelled");
}

static void cancel(struct activity *activity, enum failure_class failure)
{
	struct work *work = activity->work;

	if (work == NULL || work->cancelled)
		return;
	work->cancelled = true;
	work->cancel_class = failure;
	if (work->cancel(work))
		work_finish_cancelled(work);
}

int activity_start(struct activities *activities, struct activity *activity, struct error *error)
{
	struct error own;

	if (error == NULL)
		error = &own;
	*error = (struct error){0};
	arena_init(&activity->arena);
	activity->result = (struct activity_result){0};
	activity->work = NULL;
	activity->spooled = NULL;
	list_init(&activity->link);
	CHECK(activity->kind < ACTIVITY_KIND_COUNT && starters[activity->kind] != NULL);
	if (activities->closing)
		return error_set(error, ERR_BUSY, "the daemon stops");
	if (activities->queued >= ACTIVITY_QUEUE_MAX && (activity->kind == ACTIVITY_INFERENCE || activity->kind == ACTIVITY_EXTRACT || activity->kind == ACTIVITY_GATE))
		return error_set(error, ERR_BUSY, "%zu attempts wait for their runtimes; at most %d may (ACTIVITY_QUEUE_MAX)", activities->queued,
				 ACTIVITY_QUEUE_MAX);
	if (activities->http.waiting_count >= HTTP_WAITING_MAX && activity->kind == ACTIVITY_HTTP)
		return error_set(error, ERR_BUSY, "%zu requests of call: http wait while %zu are under way; at most %d may (HTTP_WAITING_MAX)",
				 activities->http.waiting_count, activities->http.in_flight, HTTP_WAITING_MAX);
	activity->result.started_ms = activities->ports.wall_ms(activities->ports.arg);
	if (starters[activity->kind](activities, activity, error) != 0) {
		arena_close(&activity->arena);
		activity->result = (struct activity_result){0};
		return (int)error->code;
	}
	return 0;
}

void activity_cancel(struct activities *activities, struct activity *activity)
{
	(void)activities;
	cancel(activity, FAILURE_CANCELLED);
}

const char *activity_waits_for(const struct activity *activity)
{
	const struct work *work = activity->kind != ACTIVITY_RUN ? activity->work : NULL;

	if (work == NULL || !work->queued)
		return NULL;
	return work->slot->waiting ? slot_wait_name(work->slot->queue->reason) : WAITS_RUN_BUDGET; /* before that it is in no queue */
}

void activity_close(struct activity *activity)
{
	CHECK(activity->work == NULL);
	arena_close(&activity->arena);
	activity->result = (struct activity_result){0};
}

/* ---- Views ---- */

bool activities_has_runtime(const struct activities *activities, const char *name)
{
	return runtime_get(activities, name) != NULL;
}

int activities_check_runtime(const struct activities *activities, const char *name, struct error *error)
{
	return activities_has_runtime(activities, name) ? 0 : runtime_refuse_name(activities, name, error);
}

static const char *reach_name(const struct runtime *runtime)
{
	switch (runtime->reach) {
	case RUNTIME_UNKNOWN:
		return "unknown";
	case RUNTIME_REACHABLE:
		return "reachable";
	case RUNTIME_UNREACHABLE:
		return "unreachable";
	}
	return "unknown";
}

/* Why those wait that wait, how long the first one has, and until when if that is known. */
static void describe_waiting(const struct runtime *runtime, struct arena *arena, struct json *item)
{
	const struct slot_queue *queue = &runtime->queue;
	uint64_t now = now_us(runtime->activities);

	if (queue->waiting_count == 0)
		return;
	json_set_text(arena, item, "waitsFor", slot_wait_name(queue->reason));
	json_set_number(arena, item, "oldestMs", (double)(int64_t)slot_queue_oldest_ms(queue, now));
	if (queue->reason_until_us != SLOT_NEVER && queue->reason_until_us > now)
		json_set_number(arena, item, "goesOnInMs", (double)((queue->reason_until_us - now) / 1000));
}

static struct json *describe_day(const struct spent_day *spent, struct arena *arena)
{
	struct json *json = json_object(arena);
	char text[TIME_TEXT_LEN + 1];

	time_text(spent->day * SPENT_DAY_MS, text);
	json_set(arena, json, "day", json_text_len(arena, text, strlen("2026-11-30")));
	json_set_number(arena, json, "tokens", (double)spent->tokens);
	json_set_number(arena, json, "seconds", (double)spent->us / 1e6);
	return json;
}

static void set_left(struct arena *arena, struct json *json, const char *name, double left)
{
	json_set_number(arena, json, name, left > 0 ? left : 0);
}

/* What was used of it in the day that it is, and what of its budget is left. */
static void describe_spending(const struct runtime *runtime, struct arena *arena, struct json *item)
{
	const struct activity_ports *ports = &runtime->activities->ports;
	const struct slot_budget *budget = &runtime->queue.budget;
	struct spent_day spent = spending_of(&runtime->spending, spent_day_of(ports->wall_ms(ports->arg)));
	struct json *today = describe_day(&spent, arena), *limits;
	double under_way = (double)slot_queue_under_way_us(&runtime->queue, now_us(runtime->activities));
	char ends[TIME_TEXT_LEN + 1];

	json_set(arena, item, "today", today);
	if (!runtime_has_budget(runtime))
		return;
	limits = json_object(arena);
	time_text((spent.day + 1) * SPENT_DAY_MS, ends);
	json_set_text(arena, limits, "until", ends);
	if (budget->tokens_max > 0) {
		json_set_number(arena, limits, "tokens", (double)budget->tokens_max);
		json_set_number(arena, limits, "tokensReserved", (double)budget->tokens_reserved);
		set_left(arena, limits, "tokensLeft", (double)(budget->tokens_max - spent.tokens - budget->tokens_reserved));
	}
	if (budget->us_max > 0) {
		json_set_number(arena, limits, "seconds", (double)budget->us_max / 1e6);
		json_set_number(arena, limits, "secondsUnderWay", under_way / 1e6);
		set_left(arena, limits, "secondsLeft", ((double)(budget->us_max - spent.us) - under_way) / 1e6);
	}
	json_set(arena, item, "budget", limits);
}

static struct json *describe_runtime(const struct runtime *runtime, struct arena *arena, bool with_log)
{
	const struct configuration *configuration = runtime->configuration;
	struct json *item = json_object(arena);
	char text[DIGEST_TEXT_LEN + 1];
	double done, total;

	json_set_text(arena, item, "name", runtime->config.name);
	json_set_text(arena, item, "kind", runtime->config.kind);
	json_set_text(arena, item, "url", runtime->config.url);
	json_set_text(arena, item, "model", runtime->config.model != NULL  ? runtime->config.model :
					    configuration != NULL	   ? configuration->model :
									     NULL);
	json_set_text(arena, item, "status", reach_name(runtime));
	json_set_number(arena, item, "inFlight", runtime->queue.in_flight);
	json_set_number(arena, item, "waiting", (double)runtime->queue.waiting_count);
	describe_waiting(runtime, arena, item);
	describe_spending(runtime, arena, item);
	json_set_number(arena, item, "concurrency", runtime->queue.concurrency);
	json_set_text(arena, item, "concurrencyBasis", runtime->concurrency_basis);
	if (runtime->concurrency_source[0] != '\0')
		json_set_text(arena, item, "concurrencySource", runtime->concurrency_source);
	if (configuration != NULL) {
		digest_text(&configuration->digest, text);
		json_set_text(arena, item, "configuration", text);
		json_set_boolean(arena, item, "simulated", configuration->simulated);
	}
	if (runtime->instance.basis != NULL)
		json_set(arena, item, "instance", instance_json(arena, &runtime->instance));
	if (runtime_hashing(runtime, &done, &total)) {
		struct json *hashing = json_object(arena);

		json_set_number(arena, hashing, "bytes", done);
		json_set_number(arena, hashing, "of", total);
		json_set(arena, item, "hashing", hashing);
	}
	if (runtime->last_error[0] != '\0')
		json_set_text(arena, item, "lastError", runtime->last_error);
	if (runtime->supervisor != NULL)
		json_set(arena, item, "launch", supervisor_json(runtime->supervisor, arena, with_log));
	if (runtime->loading != NULL)
		json_set(arena, item, "load", loading_json(runtime->loading, arena));
	return item;
}

struct json *activities_runtimes_json(const struct activities *activities, struct arena *arena)
{
	struct json *list = json_array(arena);

	for (size_t i = 0; i < activities->runtime_count; i++)
		json_add(arena, list, describe_runtime(activities->runtimes[i], arena, false));
	return list;
}

struct json *activities_runtime_json(const struct activities *activities, struct arena *arena, const char *name)
{
	const struct runtime *runtime = runtime_get(activities, name);
	struct json *item, *days;

	if (runtime == NULL)
		return NULL;
	item = describe_runtime(runtime, arena, true);
	days = json_array(arena);
	for (size_t i = runtime->spending.count; i > 0; i--)
		json_add(arena, days, describe_day(&runtime->spending.days[i - 1], arena));
	json_set(arena, item, "spending", days);
	return item;
}

int activities_order_runtime(struct activities *activities, const char *name, enum runtime_order order, const char *reason, struct error *error)
{
	static void (*const orders[])(struct supervisor *supervisor, const char *reason) = {
		[RUNTIME_START] = supervisor_start, [RUNTIME_STOP] = supervisor_stop, [RUNTIME_RELOAD] = supervisor_reload};
	static const enum loading_order loads[] = {[RUNTIME_START] = LOADING_START, [RUNTIME_STOP] = LOADING_STOP, [RUNTIME_RELOAD] = LOADING_RELOAD};
	struct runtime *runtime = runtime_get(activities, name);

	if (runtime == NULL)
		return runtime_refuse_name(activities, name, error);
	if (runtime->supervisor == NULL)
		return loading_begin(runtime, loads[order], reason, error);
	orders[order](runtime->supervisor, reason);
	return 0;
}

static struct json *count_spending(const struct activities *activities, struct arena *arena)
{
	const struct activity_ports *ports = &activities->ports;
	int64_t day = spent_day_of(ports->wall_ms(ports->arg));
	struct json *all = json_object(arena);

	for (size_t i = 0; i < activities->runtime_count; i++) {
		const struct runtime *runtime = activities->runtimes[i];
		struct spent_day spent = spending_of(&runtime->spending, day);
		struct json *item = json_object(arena);

		json_set_number(arena, item, "tokens", (double)spent.tokens);
		json_set_number(arena, item, "seconds", (double)spent.us / 1e6);
		if (runtime->config.budget_tokens > 0)
			json_set_number(arena, item, "tokensMax", (double)runtime->config.budget_tokens);
		if (runtime->config.budget_seconds > 0)
			json_set_number(arena, item, "secondsMax", (double)runtime->config.budget_seconds);
		json_set(arena, all, runtime->config.name, item);
	}
	return all;
}

void activities_note_spent(struct activities *activities, const char *name, const struct spent_day *day)
{
	struct runtime *runtime = runtime_get(activities, name);

	if (runtime != NULL)
		spending_add(&runtime->spending, day->day, day->tokens, day->us);
}

struct json *activities_counters_json(const struct activities *activities, struct arena *arena)
{
	struct curl_loop_counters curl = curl_loop_counters(activities->curl);
	struct json *counters = json_object(arena), *attempts = json_object(arena);
	size_t waiting = activities->queued + activities->http.waiting_count;

	json_set_number(arena, counters, "inFlight", (double)(activities->active_count - waiting));
	json_set_number(arena, counters, "waiting", (double)waiting);
	for (int i = 0; i < FAILURE_CLASS_COUNT; i++)
		json_set_number(arena, attempts, i == FAILURE_NONE ? "succeeded" : failure_name((enum failure_class)i), (double)activities->attempts[i]);
	json_set(arena, counters, "attempts", attempts);
	json_set(arena, counters, "launched", supervisors_json(activities, arena));
	json_set(arena, counters, "spending", count_spending(activities, arena));
	json_set_number(arena, counters, "connections", (double)curl.sockets_open);
	json_set_number(arena, counters, "connectionsOpened", (double)curl.connections_opened);
	return counters;
}

struct probe_request {
	struct configuration_wait wait;
	struct runtime_probe *probe;
	struct runtime *runtime;
	struct activities *activities;
};

static void on_probed(struct configuration_wait *wait)
{
	struct probe_request *request = CONTAINER_OF(wait, struct probe_request, wait);
	struct activities *activities = request->activities;
	struct runtime_probe *probe = request->probe;
	struct arena *arena = &probe->arena;

	if (wait->configuration == NULL) {
		error_set(&probe->error,
			  wait->failure == FAILURE_UNREACHABLE ? ERR_UNREACHABLE :
			  wait->failure == FAILURE_INTERRUPTED ? ERR_CANCELLED :
								 ERR_INVALID,
			  "%s", wait->detail);
	} else {
		char text[DIGEST_TEXT_LEN + 1];

		probe->result = json_object(arena);
		json_set_text(arena, probe->result, "name", request->runtime->config.name);
		json_set_boolean(arena, probe->result, "reachable", true);
		json_set(arena, probe->result, "models",
			 request->runtime->models != NULL ? json_copy(arena, request->runtime->models) : json_array(arena));
		json_set(arena, probe->result, "configuration", json_copy(arena, wait->configuration->record));
		digest_text(&wait->configuration->digest, text);
		json_set_text(arena, probe->result, "digest", text);
		json_set_boolean(arena, probe->result, "simulated", wait->configuration->simulated);
		configuration_release(wait->configuration);
	}
	free(request);
	probe->on_done(probe);
	outside_end(activities);
}

int activities_probe(struct activities *activities, struct runtime_probe *probe)
{
	struct runtime *runtime = runtime_get(activities, probe->runtime);
	struct probe_request *request;

	arena_init(&probe->arena);
	probe->result = NULL;
	probe->error = (struct error){0};
	if (runtime == NULL)
		return runtime_refuse_name(activities, probe->runtime, &probe->error);
	if (activities->closing)
		return error_set(&probe->error, ERR_BUSY, "the daemon stops");
	request = memory_zero(sizeof(*request));
	request->probe = probe;
	request->runtime = runtime;
	request->activities = activities;
	request->wait.on_done = on_probed;
	outside_begin(activities);
	/* Asked afresh, it is never there at once. */
	CHECK(!runtime_configure(runtime, &request->wait, probe->thorough ? ASK_THOROUGHLY : ASK_ANEW));
	return 0;
}

void activities_watch_runtimes(struct activities *activities)
{
	runtimes_watch(activities);
}

/* ---- Life ---- */

void outside_begin(struct activities *activities)
{
	activities->outside++;
}

void outside_end(struct activities *activities)
{
	CHECK(activities->outside > 0);
	activities->outside--;
	begin_close_handles(activities);
}

int activities_open(struct activities **result, uv_loop_t *loop, const struct activities_config *config, const struct activity_ports *ports,
		    struct error *error)
{
	struct activities *activities = memory_zero(sizeof(*activities));

	activities->loop = loop;
	activities->ports = *ports;
	snprintf(activities->user_agent, sizeof(activities->user_agent), "reprise/%.40s",
		 config->daemon_version != NULL ? config->daemon_version : "0");
	list_init(&activities->active);
	list_init(&activities->finished);
	list_init(&activities->notes);
	list_init(&activities->http.waiting);
	activities->http.total_ms = HTTP_TOTAL_MS;
	activities->loading.load_ms = LOADING_LOAD_MS;
	activities->loading.unload_ms = LOADING_UNLOAD_MS;
	list_init(&activities->deadlines_free);
	list_init(&activities->deadlines_used);
	documents_init(&activities->documents);
	activities->secrets = config->secrets;
	activities->secret_count = config->secret_count;
	activities->http_allow = address_rules_new(config->http_allow, config->http_allow_count, error);
	if (activities->http_allow == NULL)
		goto fail;
	if (runtimes_open(activities, config->runtimes, config->runtime_count, error) != 0)
		goto fail_rules;
	if (curl_loop_open(&activities->curl, loop, ports->now_us, ports->on_answer, ports->arg, error) != 0)
		goto fail_runtimes;
	CHECK(uv_idle_init(loop, &activities->idle) == 0);
	activities->idle.data = activities;
	activities->handles = 1;
	supervisors_open(activities, config->spool);
	*result = activities;
	return 0;
fail_runtimes:
	runtimes_close(activities);
fail_rules:
	address_rules_free(activities->http_allow);
fail:
	free(activities);
	return (int)error->code;
}

static void end_when_empty(struct activities *activities)
{
	void (*on_closed)(void *arg) = activities->on_closed;
	void *arg = activities->closed_arg;

	if (activities->handles > 0)
		return;
	address_rules_free(activities->http_allow);
	free(activities);
	on_closed(arg);
}

static void on_idle_closed(uv_handle_t *handle)
{
	struct activities *activities = handle->data;

	activities->handles--;
	end_when_empty(activities);
}

static void on_deadline_closed(uv_handle_t *handle)
{
	struct activities *activities = handle->data;

	free(CONTAINER_OF(handle, struct deadline, timer));
	activities->handles--;
	end_when_empty(activities);
}

static void on_curl_closed(void *arg)
{
	struct activities *activities = arg;

	activities->handles--;
	end_when_empty(activities);
}

/* Once nothing is under way, neither here nor outside. */
static void begin_close_handles(struct activities *activities)
{
	if (!activities->closing || activities->handles_closing || activities->outside > 0 || activities->active_count > 0 ||
	    !list_empty(&activities->finished))
		return;
	activities->handles_closing = true;
	CHECK(list_empty(&activities->deadlines_used));
	documents_close(activities);
	runtimes_close(activities);
	activities->handles++; /* curl's */
	curl_loop_close(activities->curl, on_curl_closed, activities);
	while (!list_empty(&activities->deadlines_free)) {
		struct deadline *deadline = CONTAINER_OF(activities->deadlines_free.next, struct deadline, link);

		list_remove(&deadline->link);
		uv_close((uv_handle_t *)&deadline->timer, on_deadline_closed);
	}
	uv_close((uv_handle_t *)&activities->idle, on_idle_closed);
}

void activities_close(struct activities *activities, void (*on_closed)(void *arg), void *arg)
{
	struct list active;

	CHECK(!activities->closing);
	activities->closing = true;
	activities->on_closed = on_closed;
	activities->closed_arg = arg;
	/* Nothing is closed within this call: the next turn looks, after the callbacks. */
	uv_idle_start(&activities->idle, on_idle);
	outside_begin(activities);
	/* Newest first: a slot that comes free would else go to the next one in the queue, just to be cancelled in its turn. */
	list_init(&active);
	list_move_all(&active, &activities->active);
	while (!list_empty(&active)) {
		struct activity *activity = CONTAINER_OF(active.prev, struct activity, link);

		list_remove(&activity->link);
		list_add_last(&activities->active, &activity->link);
		cancel(activity, FAILURE_INTERRUPTED);
	}
	runtimes_stop(activities);
	activities->outside--;
}
