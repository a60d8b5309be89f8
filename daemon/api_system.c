/* What the daemon says about itself: runtimes, provenance, configuration, version, metrics, health, the description of the API. */
#include <stdlib.h>
#include <string.h>

#include "activities/configuration.h"
#include "daemon/api.h"
#include "embedded.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"

/* --- runtimes ----------------------------------------------------------------------------------------------------- */

void api_list_runtimes(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct json *json = json_object(&request->arena);

	(void)parameters;
	json_set(&request->arena, json, "runtimes", activities_runtimes_json(daemon->activities, &request->arena));
	request_answer_json(request, 200, json);
}

/* One, with the last lines of its log when the daemon launches it. */
void api_get_runtime(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct json *json = activities_runtime_json(daemon->activities, &request->arena, parameters[0]);
	struct error error;

	if (json) {
		request_answer_json(request, 200, json);
		return;
	}
	activities_check_runtime(daemon->activities, parameters[0], &error);
	request_problem(request, &error);
}

/* What is asked has begun when the answer is there; what becomes of it, the runtime's document tells. */
static void order_runtime(struct daemon *daemon, struct request *request, const char *name, enum runtime_order order)
{
	const char *reason;
	struct error error;

	if (!api_read_reason(request, &reason))
		return;
	if (activities_order_runtime(daemon->activities, name, order, reason, &error) != 0)
		request_problem(request, &error);
	else
		request_answer_json(request, 200, activities_runtime_json(daemon->activities, &request->arena, name));
}

void api_start_runtime(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	order_runtime(daemon, request, parameters[0], RUNTIME_START);
}

void api_stop_runtime(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	order_runtime(daemon, request, parameters[0], RUNTIME_STOP);
}

void api_reload_runtime(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	order_runtime(daemon, request, parameters[0], RUNTIME_RELOAD);
}

struct probing {
	struct runtime_probe probe;
	struct request *request;
};

static void on_probed(struct runtime_probe *probe)
{
	struct probing *own = probe->owner;

	if (probe->error.code != ERR_NONE)
		api_fail(own->request, &probe->error);
	else
		request_answer_json(own->request, 200, probe->result);
	arena_close(&probe->arena);
}

void api_probe_runtime(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct probing *own = arena_zero(&request->arena, sizeof *own);
	struct error error;

	if (!api_body_object(request, ""))
		return;
	own->request = request;
	own->probe = (struct runtime_probe){.runtime = parameters[0], .thorough = true, .on_done = on_probed, .owner = own};
	if (activities_probe(daemon->activities, &own->probe) != 0) {
		error = own->probe.error;
		arena_close(&own->probe.arena);
		if (error.code == ERR_BUSY)
			api_busy(request, &error);
		else
			request_problem(request, &error);
	}
}

struct provenance_question {
	struct digest digest, against;
	bool compares;
};

static struct json *read_record(struct store_reader *reader, struct arena *arena, const struct digest *digest, struct error *error)
{
	char text[DIGEST_TEXT_LEN + 1];
	struct bytes record;

	if (reader_configuration(reader, arena, digest, &record, error) == 0)
		return json_parse(arena, record, JSON_STORED, NULL, error);
	digest_text(digest, text);
	if (error->code == ERR_NOT_FOUND)
		error_set(error, ERR_NOT_FOUND, "no configuration %s was recorded", text);
	return NULL;
}

static void provenance_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	const struct provenance_question *question = own->args;
	struct arena *arena = &read->arena;
	struct json *json = json_object(arena), *record = read_record(reader, arena, &question->digest, &read->error), *other;

	if (record == NULL)
		return;
	api_set_digest(arena, json, "digest", &question->digest);
	json_set(arena, json, "record", record);
	if (question->compares) {
		other = read_record(reader, arena, &question->against, &read->error);
		if (other == NULL)
			return;
		api_set_digest(arena, json, "against", &question->against);
		json_set(arena, json, "differences", configuration_differences(arena, record, other));
	}
	api_print(own, json);
}

void api_get_provenance(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct provenance_question *question = arena_zero(&request->arena, sizeof *question);
	struct error error;

	if (!digest_parse(parameters[0], &question->digest)) {
		error_set(&error, ERR_NOT_FOUND, "'%s' is no digest (sha256: and 64 hex digits)", parameters[0]);
		request_problem(request, &error);
		return;
	}
	if (api_query_digest(request, "against", &question->against, &question->compares))
		api_read(daemon, request, provenance_work, question, NULL);
}

/* --- the daemon itself --------------------------------------------------------------------------------------------- */

void api_get_config(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	(void)parameters;
	request_answer_json(request, 200, config_json(&daemon->config, &request->arena));
}

void api_get_version(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct arena *arena = &request->arena;
	struct json *json = json_object(arena);

	(void)daemon, (void)parameters;
	json_set_text(arena, json, "name", "reprised");
	json_set_text(arena, json, "version", REPRISE_VERSION);
	json_set_text(arena, json, "sqlite", store_library_version());
	json_set_text(arena, json, "libuv", uv_version_string());
	json_set_text(arena, json, "dsl", "1.0.3");
	request_answer_json(request, 200, json);
}

void api_health(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	(void)daemon, (void)parameters;
	request_answer_text(request, 200, "text/plain; charset=utf-8", "alive\n");
}

/* Alive and serving are two things (C31): a daemon that still loads its runs, or that stops, is alive. */
void api_ready(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct error error;

	(void)parameters;
	if (daemon->stage != DAEMON_SERVING)
		error_set(&error, ERR_BUSY, daemon->stage == DAEMON_STARTING   ? "the daemon is starting"
					    : daemon->stage == DAEMON_DRAINING ? "the daemon is draining"
									       : "the daemon is stopping");
	else if (engine_is_recovering(daemon->engine))
		error_set(&error, ERR_BUSY, "runs of before the start are being loaded");
	else if (store_disk_check(daemon->store, &error) == 0) { /* else it serves, but takes no new work */
		request_answer_text(request, 200, "text/plain; charset=utf-8", "ready\n");
		return;
	}
	api_busy(request, &error);
}

/* Nothing new from now on; the daemon stops when what is under way has finished, or the time is up. */
void api_drain(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct json *body = api_body_object(request, "within"), *json = json_object(&request->arena);
	int64_t within_ms = DRAIN_MAX_MS;
	struct error error = {0};

	(void)parameters;
	if (!body)
		return;
	const struct json *within = json_get(body, "within");
	if (within && (!json_is(within, JSON_STRING) || duration_parse(within->string.text, &within_ms, &error) != 0 || within_ms > DRAIN_MAX_MS)) {
		api_invalid(request, "within: expected a duration of at most 24h (DRAIN_MAX_MS), such as 30s, 5m or PT1H");
		return;
	}
	if (!shutdown_drain(daemon, within_ms)) {
		error_set(&error, ERR_BUSY, "the daemon is stopping");
		api_busy(request, &error);
		return;
	}
	json_set_boolean(&request->arena, json, "draining", true);
	json_set_number(&request->arena, json, "underWay", (double)shutdown_under_way(daemon));
	api_set_time(&request->arena, json, "until", clock_wall_ms() + within_ms);
	request_answer_json(request, 202, json);
}

static void openapi_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct problems problems;

	(void)reader;
	problems_init(&problems);
	struct json *json = text_load(&read->arena, (struct bytes){(const uint8_t *)schema_openapi_yaml, schema_openapi_yaml_len}, TEXT_YAML, NULL, &problems);
	if (json)
		api_print(own, json);
	else
		error_set(&read->error, ERR_INTERNAL, "the embedded description cannot be read: %s", problems.count > 0 ? problems.items[0].message : "unknown reason");
	problems_close(&problems);
}

void api_openapi(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	(void)parameters;
	api_read(daemon, request, openapi_work, NULL, NULL); /* on the reader thread: it takes some milliseconds */
}

/* --- metrics (Prometheus text format) ----------------------------------------------------------------------------- */

static void metric(struct buffer *out, const char *name, const char *type, const char *help, double value)
{
	buffer_printf(out, "# HELP reprise_%s %s\n# TYPE reprise_%s %s\nreprise_%s ", name, help, name, type, name);
	json_print_number(value, out);
	buffer_add_char(out, '\n');
}

static void labelled(struct buffer *out, const char *name, const char *label, const char *value, double number)
{
	buffer_printf(out, "reprise_%s{%s=\"%s\"} ", name, label, value);
	json_print_number(number, out);
	buffer_add_char(out, '\n');
}

static void head(struct buffer *out, const char *name, const char *type, const char *help)
{
	buffer_printf(out, "# HELP reprise_%s %s\n# TYPE reprise_%s %s\n", name, help, name, type);
}

static void add_engine(struct buffer *out, const struct daemon *daemon)
{
	struct engine_counts counts;

	engine_counts(daemon->engine, &counts);
	head(out, "runs_open", "gauge", "Runs that have not ended");
	labelled(out, "runs_open", "state", "in_memory", (double)(counts.open - counts.parked));
	labelled(out, "runs_open", "state", "parked", (double)counts.parked);
	head(out, "runs_total", "counter", "Runs since the start, by what became of them");
	labelled(out, "runs_total", "outcome", "created", (double)counts.created);
	labelled(out, "runs_total", "outcome", "completed", (double)counts.completed);
	labelled(out, "runs_total", "outcome", "faulted", (double)counts.faulted);
	labelled(out, "runs_total", "outcome", "cancelled", (double)counts.cancelled);
	metric(out, "runs_recovered", "gauge", "Runs that were open when the daemon started", (double)counts.recovered);
	metric(out, "runs_quarantined", "gauge", "Runs that could not go on, suspended until an operator resumes or cancels them: more than 0 is an alarm", (double)counts.quarantined);
	metric(out, "activities_in_flight", "gauge", "Attempts under way", (double)counts.in_flight);
	metric(out, "decisions_committing", "gauge", "Decisions on their way to the disk", (double)counts.committing);
	metric(out, "entries_total", "counter", "Journal entries since the start", (double)counts.entries);
	metric(out, "schedules", "gauge", "Schedules", (double)daemon->schedules.count);
	metric(out, "schedule_ticks_total", "counter", "Runs that schedules started", (double)daemon->schedules.ticked);
	metric(out, "schedule_skipped_total", "counter", "Ticks of schedules that were skipped; journal entries schedule.skipped say why", (double)daemon->schedules.skipped);
	metric(out, "clock_steps_total", "counter", "How often the wall clock was set", (double)counts.clock_steps);
	metric(out, "stale_triggers_total", "counter", "Answers that came for attempts that were over", (double)counts.stale_triggers);
}

static void add_activities(struct buffer *out, const struct json *counters)
{
	const struct json *attempts = json_get(counters, "attempts");

	metric(out, "attempts_waiting", "gauge", "Attempts that wait for a slot of their runtime", json_get_number(counters, "waiting", 0));
	metric(out, "activity_connections", "gauge", "Connections to runtimes and services", json_get_number(counters, "connections", 0));
	head(out, "attempts_total", "counter", "Attempts since the start, by class");
	for (size_t i = 0; i < json_count(attempts); i++)
		labelled(out, "attempts_total", "class", attempts->object.members[i].name, attempts->object.members[i].value->number);
}

static void add_launched(struct buffer *out, const struct json *launched)
{
	static const struct {
		const char *name, *member, *type, *help;
	} rows[] = {
		{"runtime_starts_total", "starts", "counter", "Starts of runtimes that the daemon launches"},
		{"watchdog_alarms_total", "alarms", "counter", "Probes of a watchdog that began to fail: it sees nothing, and ends nothing"},
		{"watchdog_trips_total", "trips", "counter", "Runtimes that a watchdog has ended"},
	};

	if (json_count(launched) == 0)
		return;
	head(out, "runtime_ready", "gauge", "1: a runtime that the daemon launches is ready");
	for (size_t i = 0; i < json_count(launched); i++) {
		const struct json_member *member = &launched->object.members[i];
		labelled(out, "runtime_ready", "runtime", member->name, strcmp(json_get_text(member->value, "state"), "ready") == 0);
	}
	for (size_t row = 0; row < COUNT_OF(rows); row++) {
		head(out, rows[row].name, rows[row].type, rows[row].help);
		for (size_t i = 0; i < json_count(launched); i++)
			labelled(out, rows[row].name, "runtime", launched->object.members[i].name, json_get_number(launched->object.members[i].value, rows[row].member, 0));
	}
}

static void add_spending(struct buffer *out, const struct json *spending)
{
	static const struct {
		const char *name, *member, *help;
	} rows[] = {
		{"runtime_spent_tokens", "tokens", "Tokens used of a runtime in this day of UTC"},
		{"runtime_spent_seconds", "seconds", "Seconds in which its slots were held in this day of UTC"},
		{"runtime_budget_tokens", "tokensMax", "Tokens that may be used of it in a day"},
		{"runtime_budget_seconds", "secondsMax", "Seconds that its slots may be held in a day"},
	};

	for (size_t row = 0; row < COUNT_OF(rows); row++) {
		bool any = false;

		for (size_t i = 0; i < json_count(spending); i++) {
			const struct json *number = json_get(spending->object.members[i].value, rows[row].member);
			if (!number)
				continue;
			if (!any)
				head(out, rows[row].name, "gauge", rows[row].help);
			any = true;
			labelled(out, rows[row].name, "runtime", spending->object.members[i].name, number->number);
		}
	}
}

static void add_expressions(struct buffer *out, const struct daemon *daemon)
{
	struct jq_counts counts;

	jq_pool_counts(daemon->jq, &counts);
	metric(out, "jq_helpers", "gauge", "Processes that evaluate expressions", (double)counts.helpers);
	metric(out, "jq_working", "gauge", "Of them those at work", (double)counts.working);
	metric(out, "jq_waiting", "gauge", "Evaluations and compilations that wait for one", (double)counts.waiting);
	metric(out, "jq_started_total", "counter", "Helpers started", (double)counts.started);
	metric(out, "jq_answered_total", "counter", "Evaluations and compilations that were answered", (double)counts.answered);
	metric(out, "jq_killed_total", "counter", "Helpers that were killed at a deadline", (double)counts.killed);
	metric(out, "jq_died_total", "counter", "Helpers that died of an expression", (double)counts.died);
	metric(out, "jq_retired_total", "counter", "Helpers that were replaced or ended because they were not needed", (double)counts.retired);
	metric(out, "jq_refused_total", "counter", "Requests refused because too many waited", (double)counts.refused);
}

static void add_children(struct buffer *out, const struct children *children)
{
	metric(out, "children_waiting", "gauge", "Tasks that start a run or wait for one they started", (double)children->count);
	metric(out, "children_started_total", "counter", "Runs that runs started", (double)children->started);
	metric(out, "children_attached_total", "counter", "Attempts that found the run of an attempt before", (double)children->attached);
	metric(out, "children_orphans_total", "counter", "Runs cancelled at the start, because the run that waited for them had ended", (double)children->orphans);
}

static void add_http(struct buffer *out, const struct daemon *daemon)
{
	static const char *const classes[] = {"0xx", "1xx", "2xx", "3xx", "4xx", "5xx"};
	struct http_counts counts;

	http_server_counts(daemon->http, &counts);
	metric(out, "http_connections", "gauge", "Open connections", (double)counts.connections);
	metric(out, "http_waiters", "gauge", "Requests that wait for a run to end", (double)counts.waiters);
	metric(out, "http_streams", "gauge", "Open event streams", (double)counts.streams);
	metric(out, "http_stream_bytes", "gauge", "Bytes in streams that their clients have not taken", (double)counts.stream_bytes);
	metric(out, "http_waiters_gone_total", "counter", "Waiting clients that went away", (double)counts.waiters_gone);
	metric(out, "http_requests_total", "counter", "Requests", (double)counts.requests);
	metric(out, "http_refused_total", "counter", "Requests refused before their body was taken", (double)counts.refused);
	metric(out, "http_slow_closed_total", "counter", "Connections closed because a request took too long to come in", (double)counts.slow);
	head(out, "http_answers_total", "counter", "Answers, by class of their status");
	for (size_t i = 2; i < COUNT_OF(classes); i++)
		labelled(out, "http_answers_total", "class", classes[i], (double)counts.by_class[i]);
}

static void add_disk(struct buffer *out, struct store *store)
{
	struct store_disk disk;

	store_disk(store, &disk);
	metric(out, "journal_state", "gauge", "The data folder's disk: 0 ok, 1 low (new work is refused), 2 full (nothing can be written)", disk.state);
	metric(out, "disk_free_bytes", "gauge", "Free space for us on the data folder's disk", (double)disk.free_bytes);
	metric(out, "disk_reserve_bytes", "gauge", "Held in the reserve for what is under way when the disk is full", (double)disk.reserve_bytes);
}

struct metrics_args {
	struct buffer memory_part; /* what only the loop knows */
};

static void metrics_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct metrics_args *args = own->args;
	struct store_stats stats;

	if (reader_stats(reader, &stats, &read->error) != 0)
		return;
	own->content_type = "text/plain; version=0.0.4; charset=utf-8";
	buffer_add_bytes(&own->body, buffer_bytes(&args->memory_part));
	metric(&own->body, "journal_entries", "gauge", "Entries of the journal", (double)stats.entries);
	metric(&own->body, "journal_runs", "gauge", "Runs in the journal", (double)stats.runs);
	metric(&own->body, "journal_facts", "gauge", "Facts in the journal", (double)stats.facts);
	metric(&own->body, "journal_checkpoints", "gauge", "Signed checkpoints", (double)stats.checkpoints);
	metric(&own->body, "journal_database_bytes", "gauge", "Size of the database", (double)stats.database_bytes);
	metric(&own->body, "journal_free_bytes", "gauge", "Free inside the database", (double)stats.free_bytes);
	metric(&own->body, "journal_wal_bytes", "gauge", "Size of the write-ahead log", (double)stats.wal_bytes);
}

static void on_metrics(struct api_read *own)
{
	struct metrics_args *args = own->args;
	struct error error = own->read.error;
	struct buffer body = own->body;

	buffer_close(&args->memory_part);
	if (error.code != ERR_NONE) {
		buffer_close(&body);
		api_fail(own->request, &error);
	} else {
		request_answer(own->request, 200, own->content_type, &body);
	}
}

void api_metrics(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct metrics_args *args = arena_zero(&request->arena, sizeof *args);
	struct buffer *out = &args->memory_part;

	(void)parameters;
	buffer_init(out, 1 << 20);
	buffer_printf(out, "# HELP reprise_info Version\n# TYPE reprise_info gauge\nreprise_info{version=\"%s\"} 1\n", REPRISE_VERSION);
	metric(out, "up_seconds", "gauge", "Since the start", (double)((clock_now_us() - daemon->started_us) / 1000000));
	add_engine(out, daemon);
	const struct json *counters = activities_counters_json(daemon->activities, &request->arena);
	add_activities(out, counters);
	add_launched(out, json_get(counters, "launched"));
	add_spending(out, json_get(counters, "spending"));
	add_expressions(out, daemon);
	add_children(out, &daemon->children);
	metric(out, "store_queue", "gauge", "Appends that wait for the journal", store_queue_depth(daemon->store));
	add_disk(out, daemon->store);
	add_http(out, daemon);
	struct event_hub_counts events;
	event_hub_counts(daemon->hub, &events);
	metric(out, "event_listeners", "gauge", "Tasks and schedules that wait for events", (double)events.subscriptions);
	metric(out, "event_listeners_behind", "gauge", "Of them those that older events are read for", (double)events.behind);
	metric(out, "events_offered_total", "counter", "Events that were given to a listener to look at", (double)events.offered);
	sinks_metrics(daemon->sinks, out);
	api_read(daemon, request, metrics_work, args, on_metrics);
}
