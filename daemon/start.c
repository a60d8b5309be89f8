/* See start.h. Steps that need the journal's threads run the loop until their answer is there: nobody is served yet. */
#include "daemon/start.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activities/launcher.h"
#include "daemon/last_words.h"
#include "daemon/program.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/log.h"

/* An I/O error at COMMIT leaves the truth unknown. Nothing more may be promised: the next start reads what is there. */
static void on_broken(void *arg, const struct error *error)
{
	(void)arg;
	log_error(LOG_STORE, "the journal cannot be written any more, stopping: %s", error->message);
	notify_supervisor("STATUS=the journal cannot be written");
	_exit(1);
}

int start_launchers(struct daemon *daemon, struct error *error)
{
	char program[PATH_MAX];

	for (size_t i = 0; i < daemon->config.runtime_count; i++) {
		struct runtime_config *runtime = &daemon->config.runtimes[i];
		if (!runtime->launch)
			continue;
		if (!program_find("reprise-launcher", "../activities/reprise-launcher", program))
			return error_set(error, ERR_NOT_FOUND, "runtime %s has launch, but the program reprise-launcher is neither beside reprised nor in PATH", runtime->name);
		if (launcher_spawn(program, &runtime->launcher, error) != 0)
			return error->code;
	}
	return 0;
}

/* For the logs of what is launched; owner's alone, as all that the daemon makes (umask). */
static int make_spool(const struct daemon *daemon, char path[PATH_MAX], struct error *error)
{
	static const char *const levels[] = {"spool", "spool/runtimes"};

	for (size_t i = 0; i < COUNT_OF(levels); i++) {
		if (snprintf(path, PATH_MAX, "%s/%s", daemon->config.data_dir, levels[i]) >= PATH_MAX)
			return error_set(error, ERR_TOO_LARGE, "the data folder's path is too long");
		if (mkdir(path, 0700) != 0 && errno != EEXIST)
			return error_set(error, ERR_IO, "folder %s: %s", path, strerror(errno));
	}
	char *whole = realpath(path, NULL); /* the log's place is shown to people who stand elsewhere */
	if (!whole || strlen(whole) >= PATH_MAX) {
		error_set(error, ERR_IO, "folder %s: %s", path, whole ? "its path is too long" : strerror(errno));
		free(whole);
		return error->code;
	}
	strcpy(path, whole);
	free(whole);
	return 0;
}

/* Descriptors and memory may be short: that is said, and is none of our mistakes. */
int start_loop(struct daemon *daemon, struct error *error)
{
	int code = uv_loop_init(&daemon->loop);

	if (code != 0)
		return error_set(error, ERR_IO, "start: %s (see ulimit -n)", uv_strerror(code));
	code = shutdown_watch_signals(daemon);
	if (code == 0)
		return 0;
	CHECK(uv_loop_close(&daemon->loop) == 0);
	return error_set(error, ERR_IO, "watch for signals: %s (see ulimit -n)", uv_strerror(code));
}

int start_journal(struct daemon *daemon, struct error *error)
{
	const struct config *config = &daemon->config;
	struct store_options options = {
		.data_dir = config->data_dir, .fact_key_file = config->fact_key_file, .log_key_file = config->log_key_file,
		.checkpoint_entries = config->checkpoint_entries, .checkpoint_every_ms = config->checkpoint_every_ms,
		.reserve_bytes = config->limits.reserve, .low_bytes = config->limits.low_space, .wal_max_bytes = config->limits.wal,
		.retention = {.runs_ms = config->retention_runs_ms, .entries_ms = config->retention_entries_ms, .drop_facts = config->retention_drop_facts,
			      .grace_ms = STORE_RETENTION_GRACE_MS},
		.now_us = clock_now_us, .wall_ms = clock_wall_ms, .on_broken = on_broken, .arg = daemon,
	};

	definitions_init(&daemon->definitions);
	feeds_init(&daemon->feeds, daemon);
	token_spool_init(&daemon->tokens);
	ports_init(&daemon->ports, daemon);
	schedules_init(&daemon->schedules, daemon);
	struct children_ports children_ports = ports_for_children(&daemon->ports);
	children_init(&daemon->children, &children_ports);
	CHECK(uv_timer_init(&daemon->loop, &daemon->sweep_timer) == 0);
	daemon->sweep_timer.data = daemon;
	CHECK(uv_timer_init(&daemon->loop, &daemon->record.timer) == 0);
	daemon->record.timer.data = &daemon->record;
	daemon->record.daemon = daemon;
	arena_init(&daemon->record.arena);
	return store_open(&daemon->store, &daemon->loop, &options, error);
}

int start_simulators(struct daemon *daemon, struct error *error)
{
	return simulators_start(&daemon->simulators, &daemon->loop, &daemon->config, error);
}

/* --- what the journal knows ---------------------------------------------------------------------------------------- */

struct first_look {
	struct store_read read;
	uint64_t after;
	bool done;
	struct store_open_run *runs;
	size_t run_count;
	struct definition *built_in[4];
	bool missing[4];
	struct arena gates_arena;
	struct store_gate *gates; /* newest first */
	size_t gate_count;
	bool has_gates; /* they, and the days, were looked for */
	const struct config *config;
	struct spent_day **days; /* of each configured runtime: what was used of it, oldest first; in gates_arena */
	size_t *day_counts;
};

static int read_spending(struct store_reader *reader, struct first_look *look, struct error *error)
{
	size_t count = look->config->runtime_count;

	look->days = arena_zero(&look->gates_arena, (count + 1) * sizeof *look->days);
	look->day_counts = arena_zero(&look->gates_arena, (count + 1) * sizeof *look->day_counts);
	for (size_t i = 0; i < count; i++)
		if (reader_spending(reader, &look->gates_arena, look->config->runtimes[i].name, &look->days[i], &look->day_counts[i], error) != 0)
			return error->code;
	return 0;
}

static void first_look_work(struct store_reader *reader, struct store_read *read)
{
	struct first_look *look = read->owner;
	struct store_definition row;
	struct store_gate_filter newest = {.limit = GATES_AT_START_MAX};
	struct error error;

	if (!look->has_gates && reader_gates(reader, &look->gates_arena, &newest, &look->gates, &look->gate_count, &read->error) != 0)
		return;
	if (!look->has_gates && read_spending(reader, look, &read->error) != 0)
		return;
	look->has_gates = true;
	if (reader_open_runs(reader, &read->arena, look->after, RECOVER_PAGE, &look->runs, &look->run_count, &read->error) != 0)
		return;
	for (size_t i = 0; i < built_in_definition_count && look->built_in[i]; i++) {
		const struct definition *definition = look->built_in[i];
		int code = reader_definition(reader, &read->arena, definition->namespace, definition->name, definition->version, &row, &error);
		look->missing[i] = code == ERR_NOT_FOUND;
		if (code == 0 && !digest_equal(&row.digest, &definition->digest))
			log_warn(LOG_DAEMON, "%s/%s:%s is registered with other content than this release ships; the registered one is used", definition->namespace, definition->name,
				 definition->version);
	}
}

static void on_first_look(struct store_read *read)
{
	((struct first_look *)read->owner)->done = true;
}

static int begin_look(struct daemon *daemon, struct first_look *look, struct error *error)
{
	look->done = false;
	look->read = (struct store_read){.work = first_look_work, .on_done = on_first_look, .owner = look};
	if (store_read(daemon->store, &look->read) != 0)
		return error_set(error, ERR_BUSY, "the journal takes no reads");
	return 0;
}

static int await_look(struct daemon *daemon, struct first_look *look, struct error *error)
{
	while (!look->done)
		uv_run(&daemon->loop, UV_RUN_ONCE);
	if (look->read.error.code != ERR_NONE)
		*error = look->read.error;
	return error->code;
}

static int look(struct daemon *daemon, struct first_look *look, struct error *error)
{
	return begin_look(daemon, look, error) == 0 ? await_look(daemon, look, error) : (int)error->code;
}

static void load_built_in(struct first_look *look)
{
	CHECK(built_in_definition_count <= COUNT_OF(look->built_in));
	for (size_t i = 0; i < built_in_definition_count; i++) {
		struct problems problems;
		problems_init(&problems);
		look->built_in[i] = definition_load(bytes_text(built_in_definitions[i]), TEXT_YAML, &problems);
		if (!look->built_in[i])
			log_error(LOG_DAEMON, "a built-in definition cannot be read: %s", problems.count > 0 ? problems.items[0].message : "");
		CHECK(look->built_in[i] != NULL);
		problems_close(&problems);
	}
}

static void on_recorded(struct store_append *append);
static void await_room(struct start_record *record);

static int append_record(struct start_record *record)
{
	record->append = (struct store_append){.entries = record->entries, .entry_count = record->count, .on_done = on_recorded, .owner = record};
	return store_append(record->daemon->store, &record->append);
}

static void on_recorded(struct store_append *append)
{
	struct start_record *record = append->owner;
	enum error_code code = append->error.code;

	if (!record->is_late) {
		record->is_done = true;
		return;
	}
	if (code == ERR_FULL || code == ERR_BUSY) {
		await_room(record);
		return;
	}
	if (code != ERR_NONE)
		log_error(LOG_DAEMON, "the start was not recorded: %s", append->error.message);
	arena_close(&record->arena);
}

static void on_record_due(uv_timer_t *timer)
{
	if (append_record(timer->data) != 0)
		await_room(timer->data);
}

static void await_room(struct start_record *record)
{
	if (record->daemon->stage < DAEMON_STOPPING)
		uv_timer_start(&record->timer, on_record_due, ENGINE_RETRY_APPEND_MS, 0);
}

/* daemon.started, and the built-in definitions that the journal does not have yet. A full disk keeps nobody from reading: there it is written down
 * as soon as there is room, behind what runs wrote until then. */
static int record_start(struct daemon *daemon, const struct first_look *look, struct error *error)
{
	struct start_record *record = &daemon->record;
	struct arena *arena = &record->arena;
	struct entry *entries = record->entries;

	static_assert(COUNT_OF(record->entries) == 1 + COUNT_OF(look->built_in), "all of them fit");
	entries[0] = (struct entry){.kind = ENTRY_DAEMON_STARTED, .data = json_object(arena), .time_ms = clock_wall_ms()};
	json_set_text(arena, entries[0].data, "version", REPRISE_VERSION);
	json_set_number(arena, entries[0].data, "recovered", (double)daemon->open_at_start);
	record->count = 1;
	for (size_t i = 0; i < built_in_definition_count; i++) {
		const struct definition *definition = look->built_in[i];
		if (!look->missing[i])
			continue;
		struct entry *entry = &entries[record->count++];
		*entry = (struct entry){.kind = ENTRY_DEFINITION_ADDED, .data = json_object(arena), .time_ms = clock_wall_ms()};
		json_set_text(arena, entry->data, "namespace", definition->namespace);
		json_set_text(arena, entry->data, "name", definition->name);
		json_set_text(arena, entry->data, "version", definition->version);
		json_set_boolean(arena, entry->data, "registered", true);
		entry_add_value(arena, entry, "source", arena_bytes(arena, definition->source));
		entry_add_value(arena, entry, "definition", json_print_arena(definition->document, arena));
	}
	if (append_record(record) != 0)
		return error_set(error, ERR_BUSY, "the journal takes no entries");
	while (!record->is_done)
		uv_run(&daemon->loop, UV_RUN_ONCE);
	if (record->append.error.code == ERR_FULL) {
		log_warn(LOG_DAEMON, "the start is recorded as soon as there is room: %s", record->append.error.message);
		record->is_late = true;
		await_room(record);
		return 0;
	}
	arena_close(arena);
	if (record->append.error.code != ERR_NONE)
		*error = record->append.error;
	return error->code;
}

static void take_up_run(struct daemon *daemon, const struct store_open_run *run)
{
	if (run->is_awaited)
		children_add_open(&daemon->children, run->id, run->parent, run->parent_step);
	unsigned stops = last_words_count(run->id);
	if (run->is_quarantined) {
		engine_set_aside(daemon->engine, run->id);
	} else if (stops >= ENGINE_RECOVERY_TRIES) {
		char reason[256];
		snprintf(reason, sizeof reason, "run %s was being decided each of the %u times that a mistake of the daemon's own stopped it; its log says which", run->id, stops);
		engine_quarantine(daemon->engine, run->id, reason);
		last_words_strike(run->id);
	} else {
		if (stops > 0)
			log_warn(LOG_DAEMON, "run=%s was being decided when the daemon was stopped by a mistake of its own, stop %u of %d", run->id, stops, ENGINE_RECOVERY_TRIES);
		engine_recover(daemon->engine, run->id, run->wake_ms, run->rested_ms);
	}
}

static void on_sweep(uv_timer_t *timer)
{
	struct daemon *daemon = timer->data;

	if (!children_sweep(&daemon->children) && !engine_is_recovering(daemon->engine))
		uv_timer_stop(timer);
}

/* Every run that had not ended is known before anybody is served; they are loaded behind that (C20, C33). */
static int recover_runs(struct daemon *daemon, struct first_look *first, struct error *error)
{
	while (first->run_count > 0 && error->code == ERR_NONE) {
		const struct store_open_run *runs = first->runs;
		size_t count = first->run_count;
		struct arena arena = first->read.arena;
		/* The next page is read while this one is gone through. */
		first->after = runs[count - 1].seq;
		int begun = begin_look(daemon, first, error);
		for (size_t i = 0; i < count; i++)
			take_up_run(daemon, &runs[i]);
		arena_close(&arena);
		if (begun == 0)
			await_look(daemon, first, error);
	}
	return error->code;
}

static int count_open_runs(struct daemon *daemon, struct error *error);

/* No process is started here: the first expression that needs one does it, so that a daemon without such expressions has none. */
static struct jq_pool *open_jq_pool(uv_loop_t *loop)
{
	char program[PATH_MAX];
	bool found = program_find("reprise-jq", "../activities/reprise-jq", program);

	if (!found)
		log_warn(LOG_DAEMON, "the program reprise-jq is neither beside reprised nor in PATH: definitions whose expressions need jq are refused, runs of them wait");

	return jq_pool_open(loop, &(struct jq_pool_config){.program = found ? program : NULL});
}

static int offer_event(void *arg, struct engine_offer *offer, struct error *error)
{
	return engine_offer_event(((struct daemon *)arg)->engine, offer, error);
}

static void on_schedules_known(struct schedule_reload *reload)
{
	*(bool *)reload->owner = true;
}

/* Who connects right after the start would else be told that there is no such schedule. */
static void start_schedules(struct daemon *daemon)
{
	bool done = false;
	struct schedule_reload reload = {.on_done = on_schedules_known, .owner = &done};

	schedules_start(&daemon->schedules, &reload);
	while (!done)
		uv_run(&daemon->loop, UV_RUN_ONCE);
}

int start_engine(struct daemon *daemon, struct error *error)
{
	struct activities_config activities = {
		.runtimes = daemon->config.runtimes, .runtime_count = daemon->config.runtime_count, .http_allow = (const char *const *)daemon->config.http_allow,
		.http_allow_count = daemon->config.http_allow_count, .secrets = daemon->config.secrets, .secret_count = daemon->config.secret_count, .daemon_version = REPRISE_VERSION,
	};
	struct activity_ports activity_ports = ports_for_activities(&daemon->ports);
	char spool[PATH_MAX];
	struct engine_ports engine_ports = ports_for_engine(&daemon->ports);
	struct first_look *first = memory_zero(sizeof *first);

	arena_init(&first->gates_arena);
	first->config = &daemon->config;
	last_words_open(daemon->config.data_dir);
	for (size_t i = 0; i < daemon->config.runtime_count && !activities.spool; i++)
		if (daemon->config.runtimes[i].launch)
			activities.spool = spool;
	load_built_in(first);
	if ((activities.spool && make_spool(daemon, spool, error) != 0) || count_open_runs(daemon, error) != 0 || look(daemon, first, error) != 0 || record_start(daemon, first, error) != 0 ||
	    activities_open(&daemon->activities, &daemon->loop, &activities, &activity_ports, error) != 0)
		goto end;
	for (size_t i = first->gate_count; i > 0; i--) /* oldest first */
		if (first->gates[i - 1].report.data)
			activities_note_gate(daemon->activities, &first->gates[i - 1].id, first->gates[i - 1].report);
	for (size_t i = 0; i < daemon->config.runtime_count; i++)
		for (size_t day = 0; day < first->day_counts[i]; day++)
			activities_note_spent(daemon->activities, daemon->config.runtimes[i].name, &first->days[i][day]);
	struct engine_config config = {.origin = store_origin(daemon->store), .daemon_version = REPRISE_VERSION, .park_after_ms = 60000, .event_window_ms = daemon->config.events_window_ms, .runs = daemon->open_at_start, .budget = &daemon->config.limits.run};
	FAIL_POINT(START_RECORDED);
	daemon->jq = open_jq_pool(&daemon->loop);
	struct listeners_ports listeners_ports = {.arg = daemon, .offer = offer_event};
	daemon->hub = event_hub_new(&daemon->loop, daemon->store);
	daemon->listeners = listeners_new(daemon->hub, &listeners_ports);
	daemon->event_keeper = event_keeper_open(daemon);
	daemon->sinks = sinks_open(daemon);
	daemon->engine = engine_new(&config, &engine_ports);
	daemon->children.engine = daemon->engine;
	if (recover_runs(daemon, first, error) == 0)
		uv_timer_start(&daemon->sweep_timer, on_sweep, 0, CHILDREN_SWEEP_MS);
	FAIL_POINT(START_RECOVERED);
	if (error->code == ERR_NONE)
		start_schedules(daemon);
end:
	for (size_t i = 0; i < COUNT_OF(first->built_in); i++)
		definition_release(first->built_in[i]);
	arena_close(&first->read.arena);
	arena_close(&first->gates_arena);
	free(first);
	return error->code;
}

struct counting {
	struct store_read read;
	uint64_t open;
	bool done;
};

static void count_work(struct store_reader *reader, struct store_read *read)
{
	struct counting *counting = read->owner;
	struct store_stats stats;

	if (reader_stats(reader, &stats, &read->error) == 0)
		counting->open = stats.open_runs;
}

static void on_counted(struct store_read *read)
{
	((struct counting *)read->owner)->done = true;
}

static int count_open_runs(struct daemon *daemon, struct error *error)
{
	struct counting counting = {.read = {.work = count_work, .on_done = on_counted, .owner = &counting}};

	if (store_read(daemon->store, &counting.read) != 0)
		return error_set(error, ERR_BUSY, "the journal takes no reads");
	while (!counting.done)
		uv_run(&daemon->loop, UV_RUN_ONCE);
	arena_close(&counting.read.arena);
	daemon->open_at_start = counting.open;
	if (counting.read.error.code != ERR_NONE)
		*error = counting.read.error;
	return error->code;
}

int start_server(struct daemon *daemon, struct error *error)
{
	struct http_handler handler = api_handler;

	handler.arg = daemon;
	if (http_server_open(&daemon->http, &daemon->loop, &daemon->config, &handler, error) == 0)
		activities_watch_runtimes(daemon->activities);
	FAIL_POINT(START_SERVED);
	return error->code;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void on_stopped_activities(void *arg)
{
	((struct daemon *)arg)->activities_closed = true;
}

static void on_flush_due(uv_timer_t *timer)
{
	((struct daemon *)timer->data)->stop_due = true;
}

/* Answers that are on their way get a moment; a client that does not read them gets no more. */
static void flush_answers(struct daemon *daemon)
{
	daemon->stop_due = false;
	uv_update_time(&daemon->loop);
	uv_timer_start(&daemon->stop_timer, on_flush_due, STOP_FLUSH_MS, 0);
	while (http_server_is_sending(daemon->http) && !daemon->stop_due)
		uv_run(&daemon->loop, UV_RUN_ONCE);
}

int stop_all(struct daemon *daemon)
{
	daemon->stage = DAEMON_STOPPED;
	uv_prepare_stop(&daemon->stop_prepare);
	uv_timer_stop(&daemon->sweep_timer);
	children_stop(&daemon->children);
	if (daemon->activities && !daemon->activities_closing)
		activities_close(daemon->activities, on_stopped_activities, daemon);
	while (daemon->activities && !daemon->activities_closed)
		uv_run(&daemon->loop, UV_RUN_ONCE);
	if (daemon->http)
		flush_answers(daemon);
	if (daemon->store)
		store_close(daemon->store);
	FAIL_POINT(STOP_CLOSED);
	if ((daemon->engine && !engine_is_quiet(daemon->engine)) || (daemon->http && http_server_is_busy(daemon->http))) {
		log_warn(LOG_DAEMON, "something is still under way; the next start takes it up");
		_exit(1);
	}
	if (daemon->http)
		http_server_close(daemon->http);
	if (daemon->engine)
		engine_free(daemon->engine);
	jq_pool_close(daemon->jq);
	simulators_stop(&daemon->simulators);
	schedules_close(&daemon->schedules);
	if (daemon->hub) {
		listeners_free(daemon->listeners);
		sinks_close(daemon->sinks);
		event_keeper_close(daemon->event_keeper);
		event_hub_close(daemon->hub);
	}
	children_close(&daemon->children);
	uv_close((uv_handle_t *)&daemon->sweep_timer, NULL);
	uv_close((uv_handle_t *)&daemon->record.timer, NULL);
	arena_close(&daemon->record.arena);
	ports_close(&daemon->ports);
	for (size_t i = 0; i < COUNT_OF(daemon->signals); i++)
		uv_close((uv_handle_t *)&daemon->signals[i], NULL);
	uv_close((uv_handle_t *)&daemon->stop_timer, NULL);
	uv_close((uv_handle_t *)&daemon->stop_prepare, NULL);
	uv_run(&daemon->loop, UV_RUN_DEFAULT);
	CHECK(uv_loop_close(&daemon->loop) == 0); /* finds a handle that was left open */
	if (daemon->http)
		http_server_free(daemon->http);
	token_spool_close(&daemon->tokens);
	simulators_free(&daemon->simulators);
	definitions_close(&daemon->definitions);
	if (daemon->farewell_sent)
		arena_close(&daemon->farewell_arena);
	free(daemon->backup.path);
	config_close(&daemon->config);
	if (daemon->exit_status == 0)
		last_words_close();
	uv_library_shutdown();
	return daemon->exit_status;
}
