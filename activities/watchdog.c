/* See watchdog.h. */
#include "activities/watchdog.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activities/memory_probe.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"
#include "workflow/base/time.h"

struct watch {
	struct watchdog *watchdog;
	const struct watch_config *config;
	struct deadline *due; /* the next sample, or the end of this one's time */
	bool busy; /* a sample is out */
	bool late; /* … for longer than it may take: told, and its result is not used */
	unsigned round; /* of the watchdog, when it was begun: a result of an earlier one is not used */
	bool failing;
	char why[ACTIVITY_DETAIL_MAX];
	bool has_baseline;
	double baseline;
	unsigned above; /* samples in a row */
	struct {
		double value;
		int64_t ms;
	} kept[WATCHDOG_SAMPLES_KEPT];
	size_t first, count;
	/* On the pool. */
	uv_work_t pool;
	pid_t pid;
	double value;
	struct error error;
	/* A command. */
	uv_process_t process;
	pid_t group; /* that the command leads, as long as something of it may be there; 0: none */
	uv_pipe_t output;
	unsigned handles; /* not closed yet */
	struct buffer text;
	char chunk[4096];
	int64_t status;
	int signal_number;
};

enum stage { RESTS, MEASURES_BASELINE, WATCHES };

struct watchdog {
	struct activities *activities;
	const struct launch_config *config;
	struct watchdog_events events;
	void *arg;
	enum stage stage;
	unsigned round;
	pid_t pid;
	void (*on_baseline)(void *arg);
	size_t baselines_out;
	uint64_t alarms, trips;
	struct watch *watches;
};

static void begin_sample(struct watch *watch);

/* ---- Judging ---- */

static void format_amount(char text[48], double value)
{
	if (value >= 1024.0 * 1024 * 1024)
		snprintf(text, 48, "%.0f (%.2f GiB)", value, value / (1024.0 * 1024 * 1024));
	else if (value >= 1024.0 * 1024)
		snprintf(text, 48, "%.0f (%.1f MiB)", value, value / (1024.0 * 1024));
	else
		snprintf(text, 48, "%g", value);
}

static void raise_alarm(struct watch *watch, const char *why)
{
	detail_set(watch->why, "%s", why);
	if (watch->failing)
		return;
	watch->failing = true;
	watch->watchdog->alarms++;
	log_warn(LOG_ACTIVITY, "watchdog probe %s sees nothing: %s", watch->config->name, watch->why);
}

static struct json *describe_watch(const struct watch *watch, struct arena *arena)
{
	struct json *json = json_object(arena), *samples = json_array(arena);
	char text[TIME_TEXT_LEN + 1];

	json_set_text(arena, json, "probe", watch->config->name);
	json_set_number(arena, json, "limit", watch->config->limit);
	json_set_boolean(arena, json, "grow", watch->config->grow);
	if (watch->has_baseline)
		json_set_number(arena, json, "baseline", watch->baseline);
	if (watch->failing)
		json_set_text(arena, json, "alarm", watch->why);
	for (size_t i = 0; i < watch->count; i++) {
		size_t at = (watch->first + i) % WATCHDOG_SAMPLES_KEPT;
		struct json *sample = json_object(arena);

		time_text(watch->kept[at].ms, text);
		json_set_text(arena, sample, "at", text);
		json_set_number(arena, sample, "value", watch->kept[at].value);
		json_add(arena, samples, sample);
	}
	json_set(arena, json, "samples", samples);
	return json;
}

static struct json *describe_all(const struct watchdog *watchdog, struct arena *arena)
{
	struct json *list = json_array(arena);

	for (size_t i = 0; i < watchdog->config->watch_count; i++)
		json_add(arena, list, describe_watch(&watchdog->watches[i], arena));
	return list;
}

static void trip(struct watch *watch, double measured)
{
	struct watchdog *watchdog = watch->watchdog;
	char text[48], limit[48], baseline[48], detail[ACTIVITY_DETAIL_MAX];
	struct arena arena;

	format_amount(text, measured);
	format_amount(limit, watch->config->limit);
	format_amount(baseline, watch->baseline);
	detail_set(detail, "watchdog probe %s: %u samples in a row above %s; now %s%s%s%s", watch->config->name, watch->config->samples, limit, text,
		   watch->config->grow ? " on top of " : "", watch->config->grow ? baseline : "", watch->config->grow ? ", as it was before the start" : "");
	watchdog->trips++;
	arena_init(&arena);
	watchdog_stop(watchdog);
	watchdog->events.on_tripped(watchdog->arg, detail, describe_all(watchdog, &arena));
	arena_close(&arena);
}

static void judge(struct watch *watch, double value)
{
	const struct watch_config *config = watch->config;
	double measured = config->grow ? value - watch->baseline : value;
	size_t at;

	if (watch->count == WATCHDOG_SAMPLES_KEPT) {
		watch->first = (watch->first + 1) % WATCHDOG_SAMPLES_KEPT;
		watch->count--;
	}
	at = (watch->first + watch->count++) % WATCHDOG_SAMPLES_KEPT;
	watch->kept[at].value = value;
	watch->kept[at].ms = watch->watchdog->activities->ports.wall_ms(watch->watchdog->activities->ports.arg);
	if (config->grow && !watch->has_baseline) {
		raise_alarm(watch, "there is no baseline from before the start, so growth is not known");
		return;
	}
	if (watch->failing)
		log_info(LOG_ACTIVITY, "watchdog probe %s sees again", config->name);
	watch->failing = false;
	watch->above = measured > config->limit ? watch->above + 1 : 0;
	if (watch->above >= config->samples)
		trip(watch, measured);
}

/* ---- Sampling ---- */

/* A sample came back, or its time is up; it may still be out then. */
static void take_sample(struct watch *watch, const struct error *error, double value)
{
	struct watchdog *watchdog = watch->watchdog;
	char why[ACTIVITY_DETAIL_MAX];

	deadline_stop(watch->due);
	if (error->code != ERR_NONE) {
		detail_set(why, "%s", error->message);
		raise_alarm(watch, why);
	}
	if (watchdog->stage == MEASURES_BASELINE) {
		if (error->code == ERR_NONE) {
			watch->has_baseline = true;
			watch->baseline = value;
			watch->failing = false;
		}
		if (--watchdog->baselines_out == 0) {
			watchdog->stage = RESTS;
			watchdog->on_baseline(watchdog->arg);
		}
		return;
	}
	deadline_start(watch->due, watch->config->every_ms);
	if (error->code == ERR_NONE)
		judge(watch, value);
}

/* It is not out any more. */
static void end_sample(struct watch *watch)
{
	struct watchdog *watchdog = watch->watchdog;
	bool counts = !watch->late && watch->round == watchdog->round && watchdog->stage != RESTS;

	watch->busy = watch->late = false;
	if (counts)
		take_sample(watch, &watch->error, watch->value);
	else if (watchdog->stage == MEASURES_BASELINE && watch->round != watchdog->round)
		begin_sample(watch); /* one of an earlier start was in the way */
	if (!watchdog_is_busy(watchdog) && watchdog->stage == RESTS)
		watchdog->events.on_rests(watchdog->arg);
}

static void read_on_pool(uv_work_t *pool)
{
	struct watch *watch = CONTAINER_OF(pool, struct watch, pool);

	memory_probe_read(watch->config, watch->pid, &watch->value, &watch->error);
}

static void on_pool_done(uv_work_t *pool, int status)
{
	(void)status;
	end_sample(CONTAINER_OF(pool, struct watch, pool));
}

/* It was started detached, so it leads a group of its own. What it began and left behind is in there, also when it is over itself. */
static void end_group(struct watch *watch)
{
	if (watch->group > 0)
		kill(-watch->group, SIGKILL);
	watch->group = 0;
}

/* The process is over and its output read. */
static void on_command_closed(uv_handle_t *handle)
{
	struct watch *watch = handle->data;

	if (--watch->handles > 0)
		return;
	end_group(watch);
	if (watch->error.code != ERR_NONE)
		;
	else if (watch->signal_number != 0 || watch->status != 0)
		error_set(&watch->error, ERR_IO, "%s ended with status %lld, signal %d", watch->config->argv[0], (long long)watch->status, watch->signal_number);
	else if (watch->text.overflow)
		error_set(&watch->error, ERR_TOO_LARGE, "%s printed more than %d bytes (MEMORY_PROBE_TEXT_MAX)", watch->config->argv[0], MEMORY_PROBE_TEXT_MAX);
	else
		memory_probe_parse(buffer_bytes(&watch->text), watch->config->unit, &watch->value, &watch->error);
	end_sample(watch);
}

static void close_output(struct watch *watch)
{
	if (!uv_is_closing((uv_handle_t *)&watch->output))
		uv_close((uv_handle_t *)&watch->output, on_command_closed);
}

static void on_command_exit(uv_process_t *process, int64_t status, int signal_number)
{
	struct watch *watch = process->data;

	watch->status = status;
	watch->signal_number = signal_number;
	uv_close((uv_handle_t *)process, on_command_closed);
	if (watch->late)
		close_output(watch); /* one that came of it may hold the pipe open */
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
	struct watch *watch = handle->data;

	(void)suggested;
	*buffer = uv_buf_init(watch->chunk, sizeof(watch->chunk));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
	struct watch *watch = stream->data;

	if (count > 0)
		buffer_add(&watch->text, buffer->base, (size_t)count);
	if (count < 0)
		close_output(watch);
}

static void begin_command(struct watch *watch)
{
	uv_loop_t *loop = watch->watchdog->activities->loop;
	uv_stdio_container_t streams[] = {{.flags = UV_IGNORE}, {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&watch->output},
					  {.flags = UV_IGNORE}};
	uv_process_options_t options = {.file = watch->config->argv[0], .args = (char **)watch->config->argv, .env = (char **)watch->watchdog->config->env,
					.exit_cb = on_command_exit, .stdio = streams, .stdio_count = COUNT_OF(streams), .flags = UV_PROCESS_DETACHED};
	int code;

	buffer_clear(&watch->text);
	watch->text.overflow = false;
	watch->status = 0;
	watch->signal_number = 0;
	CHECK(uv_pipe_init(loop, &watch->output, 0) == 0);
	watch->process.data = watch->output.data = watch;
	watch->handles = 2;
	code = uv_spawn(loop, &watch->process, &options);
	if (code != 0) {
		error_set(&watch->error, ERR_NOT_FOUND, "%s cannot be run: %s", watch->config->argv[0], uv_strerror(code));
		uv_close((uv_handle_t *)&watch->process, on_command_closed);
		close_output(watch);
		return;
	}
	watch->group = watch->process.pid;
	CHECK(uv_read_start((uv_stream_t *)&watch->output, on_alloc, on_read) == 0);
}

static void kill_command(struct watch *watch)
{
	if (watch->config->kind != WATCH_COMMAND)
		return;
	end_group(watch);
	close_output(watch);
}

static void begin_sample(struct watch *watch)
{
	struct watchdog *watchdog = watch->watchdog;

	watch->busy = true;
	watch->late = false;
	watch->round = watchdog->round;
	watch->error = (struct error){0};
	watch->value = 0;
	watch->pid = watchdog->stage == WATCHES ? watchdog->pid : 0;
	deadline_start(watch->due, watch->config->within_ms);
	if (watch->config->kind == WATCH_COMMAND)
		begin_command(watch);
	else
		CHECK(uv_queue_work(watchdog->activities->loop, &watch->pool, read_on_pool, on_pool_done) == 0);
}

static void on_due(struct deadline *deadline)
{
	struct watch *watch = deadline->owner;
	const struct watchdog *watchdog = watch->watchdog;
	struct error error;

	if (!watch->busy) {
		begin_sample(watch);
		return;
	}
	/* Still out: what hangs in a driver cannot be called back, so this probe pauses until it returns. */
	error_set(&error, ERR_TIMEOUT, "no answer within %lld ms (within)", (long long)watch->config->within_ms);
	if (!watch->late || (watchdog->stage == MEASURES_BASELINE && watch->round != watchdog->round)) {
		if (!watch->late)
			kill_command(watch);
		watch->late = true;
		watch->round = watchdog->round;
		take_sample(watch, &error, 0);
		return;
	}
	deadline_start(watch->due, watch->config->every_ms);
}

/* ---- Life ---- */

void watchdog_measure_baseline(struct watchdog *watchdog, void (*on_done)(void *arg))
{
	CHECK(watchdog->stage == RESTS);
	watchdog->round++;
	if (watchdog->config->watch_count == 0) {
		on_done(watchdog->arg);
		return;
	}
	watchdog->stage = MEASURES_BASELINE;
	watchdog->on_baseline = on_done;
	watchdog->baselines_out = watchdog->config->watch_count;
	for (size_t i = 0; i < watchdog->config->watch_count; i++) {
		struct watch *watch = &watchdog->watches[i];

		watch->has_baseline = false;
		watch->above = 0;
		watch->first = watch->count = 0;
		if (!watch->busy)
			begin_sample(watch);
		else
			deadline_start(watch->due, watch->config->within_ms); /* end_sample() begins it, or there is none */
	}
}

void watchdog_start(struct watchdog *watchdog, pid_t pid)
{
	watchdog->stage = WATCHES;
	watchdog->round++;
	watchdog->pid = pid;
	for (size_t i = 0; i < watchdog->config->watch_count; i++)
		deadline_start(watchdog->watches[i].due, watchdog->watches[i].config->every_ms);
}

void watchdog_stop(struct watchdog *watchdog)
{
	if (watchdog == NULL)
		return;
	watchdog->stage = RESTS;
	watchdog->round++;
	for (size_t i = 0; i < watchdog->config->watch_count; i++) {
		struct watch *watch = &watchdog->watches[i];

		deadline_stop(watch->due);
		if (watch->busy && !watch->late) {
			watch->late = true;
			kill_command(watch);
		}
	}
}

bool watchdog_is_busy(const struct watchdog *watchdog)
{
	for (size_t i = 0; watchdog != NULL && i < watchdog->config->watch_count; i++)
		if (watchdog->watches[i].busy)
			return true;
	return false;
}

void watchdog_describe(const struct watchdog *watchdog, struct arena *arena, struct json *json)
{
	if (watchdog != NULL && watchdog->config->watch_count > 0)
		json_set(arena, json, "watchdog", describe_all(watchdog, arena));
}

uint64_t watchdog_alarms(const struct watchdog *watchdog)
{
	return watchdog != NULL ? watchdog->alarms : 0;
}

uint64_t watchdog_trips(const struct watchdog *watchdog)
{
	return watchdog != NULL ? watchdog->trips : 0;
}

struct watchdog *watchdog_new(struct activities *activities, const struct launch_config *config, const struct watchdog_events *events, void *arg)
{
	struct watchdog *watchdog = memory_zero(sizeof(*watchdog));

	watchdog->activities = activities;
	watchdog->config = config;
	watchdog->events = *events;
	watchdog->arg = arg;
	watchdog->watches = memory_zero((config->watch_count + 1) * sizeof(*watchdog->watches));
	for (size_t i = 0; i < config->watch_count; i++) {
		struct watch *watch = &watchdog->watches[i];

		watch->watchdog = watchdog;
		watch->config = &config->watches[i];
		watch->due = deadline_new(activities, on_due, watch);
		buffer_init(&watch->text, MEMORY_PROBE_TEXT_MAX);
	}
	return watchdog;
}

void watchdog_free(struct watchdog *watchdog)
{
	if (watchdog == NULL)
		return;
	CHECK(!watchdog_is_busy(watchdog));
	for (size_t i = 0; i < watchdog->config->watch_count; i++) {
		deadline_free(watchdog->activities, watchdog->watches[i].due);
		buffer_close(&watchdog->watches[i].text);
	}
	free(watchdog->watches);
	free(watchdog);
}
