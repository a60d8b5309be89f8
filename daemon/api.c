/* The HTTP API: which route a request takes, what its parameters may be, and how answers and problems are made. */
#include "daemon/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "workflow/base/check.h"
#include "workflow/base/id.h"
#include "workflow/base/time.h"
#include "workflow/language/cloud_event.h"

static const struct route routes[] = {
	{"POST", "/v1/runs", "wait include", BODY_SMALL, api_submit_run, LANE_ADMISSION},
	{"GET", "/v1/runs", "status workflow parent forkedFrom label since until limit cursor", BODY_NONE, api_list_runs},
	{"GET", "/v1/runs/count", "status workflow parent forkedFrom label since until", BODY_NONE, api_count_runs},
	{"GET", "/v1/runs/{}", "wait include", BODY_NONE, api_get_run},
	{"GET", "/v1/runs/{}/events", "after limit", BODY_NONE, api_run_events},
	{"GET", "/v1/runs/{}/tokens", "step", BODY_NONE, api_run_tokens},
	{"GET", "/v1/runs/{}/tasks", "after limit", BODY_NONE, api_run_tasks},
	{"POST", "/v1/runs/{}/cancel", "", BODY_SMALL, api_cancel_run, LANE_CONTROL},
	{"POST", "/v1/runs/{}/kill", "", BODY_SMALL, api_kill_run, LANE_CONTROL},
	{"POST", "/v1/runs/{}/retry", "wait include", BODY_SMALL, api_retry_run, LANE_ADMISSION},
	{"POST", "/v1/runs/{}/fork", "wait include", BODY_SMALL, api_fork_run, LANE_ADMISSION},
	{"POST", "/v1/runs/{}/pause", "", BODY_SMALL, api_pause_run, LANE_CONTROL},
	{"POST", "/v1/runs/{}/resume", "", BODY_SMALL, api_resume_run, LANE_CONTROL},
	{"POST", "/v1/runs/{}/replay", "", BODY_SMALL, api_replay_run},
	{"POST", "/v1/definitions", "", BODY_SMALL, api_add_definition, LANE_ADMISSION},
	{"GET", "/v1/definitions", "limit cursor", BODY_NONE, api_list_definitions},
	{"GET", "/v1/definitions/{}/{}", "", BODY_NONE, api_get_definition},
	{"GET", "/v1/definitions/{}/{}/{}", "", BODY_NONE, api_get_definition},
	{"GET", "/v1/schedules", "", BODY_NONE, api_list_schedules},
	{"GET", "/v1/schedules/{}", "", BODY_NONE, api_get_schedule},
	{"POST", "/v1/schedules/{}/pause", "", BODY_SMALL, api_pause_schedule},
	{"POST", "/v1/schedules/{}/resume", "", BODY_SMALL, api_resume_schedule},
	{"POST", "/v1/schedules/{}/trigger", "", BODY_SMALL, api_trigger_schedule, LANE_ADMISSION},
	{"POST", "/v1/documents", "", BODY_DOCUMENT, api_add_document, LANE_ADMISSION},
	{"GET", "/v1/documents/{}", "", BODY_NONE, api_get_document},
	{"GET", "/v1/facts", "after limit run document runtime class workflow rejected", BODY_NONE, api_list_facts},
	{"GET", "/v1/facts/{}", "", BODY_NONE, api_get_fact},
	{"GET", "/v1/facts/{}/attestation", "", BODY_NONE, api_get_attestation},
	{"GET", "/v1/facts/{}/entry", "", BODY_NONE, api_get_fact_entry},
	{"GET", "/v1/gates", "before limit runtime", BODY_NONE, api_list_gates},
	{"POST", "/v1/gates", "wait include", BODY_SMALL, api_add_gate, LANE_ADMISSION},
	{"GET", "/v1/gates/{}", "", BODY_NONE, api_get_gate},
	{"POST", "/v1/events", "", BODY_EVENT, api_add_event, LANE_ADMISSION},
	{"GET", "/v1/events", "after limit", BODY_NONE, api_list_events},
	{"GET", "/v1/provenance/{}", "against", BODY_NONE, api_get_provenance},
	{"GET", "/v1/runtimes", "", BODY_NONE, api_list_runtimes},
	{"GET", "/v1/runtimes/{}", "", BODY_NONE, api_get_runtime},
	{"POST", "/v1/runtimes/{}/start", "", BODY_SMALL, api_start_runtime, LANE_CONTROL},
	{"POST", "/v1/runtimes/{}/stop", "", BODY_SMALL, api_stop_runtime, LANE_CONTROL},
	{"POST", "/v1/runtimes/{}/reload", "", BODY_SMALL, api_reload_runtime, LANE_CONTROL},
	{"POST", "/v1/runtimes/{}/probe", "", BODY_SMALL, api_probe_runtime},
	{"GET", "/v1/keys", "", BODY_NONE, api_list_keys},
	{"GET", "/v1/log/checkpoint", "", BODY_NONE, api_get_checkpoint},
	{"POST", "/v1/log/checkpoint", "", BODY_SMALL, api_sign_checkpoint},
	{"GET", "/v1/log/checkpoints", "", BODY_NONE, api_list_checkpoints},
	{"GET", "/v1/log/entries", "from limit", BODY_NONE, api_list_entries},
	{"GET", "/v1/log/tile/*", "", BODY_NONE, api_get_tile},
	{"POST", "/v1/journal/backup", "", BODY_SMALL, api_begin_backup},
	{"GET", "/v1/journal/backup", "", BODY_NONE, api_get_backup},
	{"POST", "/v1/journal/backup/cancel", "", BODY_SMALL, api_cancel_backup},
	{"GET", "/v1/journal/stats", "", BODY_NONE, api_journal_stats},
	{"POST", "/v1/journal/purge", "", BODY_SMALL, api_purge_journal},
	{"POST", "/v1/journal/compact", "", BODY_SMALL, api_compact_journal},
	{"POST", "/v1/drain", "", BODY_SMALL, api_drain, LANE_CONTROL},
	{"GET", "/v1/config", "", BODY_NONE, api_get_config},
	{"GET", "/v1/version", "", BODY_NONE, api_get_version},
	{"GET", "/metrics", "", BODY_NONE, api_metrics},
	{"GET", "/healthz", "", BODY_NONE, api_health},
	{"GET", "/readyz", "", BODY_NONE, api_ready},
	{"GET", "/openapi.json", "", BODY_NONE, api_openapi},
};

/* What a request's route field points to. */
struct match {
	const struct route *route;
	const char *parameters[API_PARAMETERS_MAX];
};

/* --- routing ------------------------------------------------------------------------------------------------------ */

static bool match_path(struct arena *arena, const char *pattern, const char *path, const char **parameters)
{
	size_t count = 0;

	while (*pattern) {
		if (*pattern == '*') {
			parameters[count] = path;
			return *path != 0;
		}
		if (*pattern == '{') {
			size_t len = strcspn(path, "/");
			if (len == 0)
				return false;
			CHECK(count < API_PARAMETERS_MAX);
			parameters[count++] = arena_text_len(arena, path, len);
			path += len;
			pattern += 2;
			continue;
		}
		if (*pattern++ != *path++)
			return false;
	}
	return *path == 0;
}

static struct match *find_route(struct request *request, struct buffer *allowed)
{
	const char *parameters[API_PARAMETERS_MAX] = {0};

	/* A route without parameters goes before one with: /v1/runs/count is not a run. */
	for (int with_parameters = 0; with_parameters < 2; with_parameters++) {
		for (size_t i = 0; i < COUNT_OF(routes); i++) {
			if ((strchr(routes[i].pattern, '{') != NULL) != (with_parameters == 1) || !match_path(&request->arena, routes[i].pattern, request->path, parameters))
				continue;
			if (strcmp(routes[i].method, request->method) == 0) {
				struct match *match = arena_zero(&request->arena, sizeof *match);
				match->route = &routes[i];
				memcpy(match->parameters, parameters, sizeof parameters);
				return match;
			}
			buffer_printf(allowed, "%s%s", allowed->len > 0 ? ", " : "", strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method);
		}
		if (allowed->len > 0)
			break;
	}
	return NULL;
}

static uint64_t on_headers(void *arg, struct request *request)
{
	struct daemon *daemon = arg;
	struct buffer allowed;
	struct error error;
	uint64_t limit = daemon->config.limits.body;

	buffer_init(&allowed, 1024);
	struct match *match = find_route(request, &allowed);
	request->route = match;
	if (!match && allowed.len > 0) {
		error_set(&error, ERR_UNSUPPORTED, "%s %s: this path takes %s", request->method, request->path, buffer_text(&allowed));
		request_add_header(request, "Allow", arena_text(&request->arena, buffer_text(&allowed)));
		request_problem_at(request, 405, &error, NULL);
	} else if (!match) {
		error_set(&error, ERR_NOT_FOUND, "%s %s: there is no such route; /openapi.json lists them", request->method, request->path);
		request_problem(request, &error);
	} else if (!request_check_query(request, match->route->query, &error)) {
		request_problem(request, &error);
	} else if (match->route->lane == LANE_ADMISSION && daemon->stage >= DAEMON_DRAINING) {
		error_set(&error, ERR_BUSY, "the daemon is draining: it takes nothing new and stops when what is under way has finished; ask again when it is back");
		request_add_header(request, "Retry-After", "5");
		request_problem(request, &error);
	} else if (match->route->body != BODY_NONE && match->route->lane != LANE_CONTROL && store_queue_depth(daemon->store) >= STORE_QUEUE_MAX) {
		error_set(&error, ERR_BUSY, "the journal's queue is full: %d appends wait, the limit (STORE_QUEUE_MAX)", STORE_QUEUE_MAX);
		api_busy(request, &error);
	} else {
		static const uint64_t event_max = CLOUD_EVENT_BYTES_MAX;
		const uint64_t limits[] = {
			[BODY_NONE] = 0, [BODY_SMALL] = limit, [BODY_DOCUMENT] = daemon->config.limits.document, [BODY_EVENT] = limit < event_max ? limit : event_max,
		};
		limit = limits[match->route->body];
	}
	buffer_close(&allowed);
	return limit;
}

static void on_request(void *arg, struct request *request)
{
	const struct match *match = request->route;

	match->route->handle(arg, request, match->parameters);
}

static uint64_t handler_now_us(void *arg)
{
	(void)arg;
	return clock_now_us();
}

const struct http_handler api_handler = {.on_headers = on_headers, .on_request = on_request, .now_us = handler_now_us};

/* --- reads -------------------------------------------------------------------------------------------------------- */

static void on_read(struct store_read *read)
{
	struct api_read *own = read->owner;
	struct arena arena = read->arena, kept;

	if (own->again && read->error.code == ERR_NONE) {
		own->again = false;
		own->has_begun = true;
		arena_close(&arena);
		if (store_read(own->daemon->store, read) == 0)
			return;
		arena_init(&read->arena);
		arena = read->arena;
		error_set(&read->error, ERR_BUSY, "%d reads wait for the journal, the limit (STORE_READS_MAX)", STORE_READS_MAX);
	}
	kept = own->kept;
	if (own->then)
		own->then(own); /* may free the request and own with it */
	else
		api_answer_read(own);
	arena_close(&arena);
	arena_close(&kept);
}

/* Answering frees the request, and own with it: what is needed is copied first. */
void api_answer_read(struct api_read *own)
{
	struct error error = own->read.error;
	struct buffer body = own->body;

	if (error.code != ERR_NONE) {
		buffer_close(&body);
		api_fail(own->request, &error);
	} else {
		request_answer(own->request, own->status, own->content_type, &body);
	}
}

void api_answer_page(struct api_read *own, bool stream, enum feed_kind kind, uint64_t after, const char *run_id, const struct store_fact_filter *filter)
{
	if (own->read.error.code != ERR_NONE || !stream) {
		api_answer_read(own);
		return;
	}
	buffer_close(&own->body);
	feeds_open(&own->daemon->feeds, own->request, kind, after, run_id, filter);
}

bool api_read(struct daemon *daemon, struct request *request, store_read_work work, void *args, void (*then)(struct api_read *read))
{
	struct api_read *own = arena_zero(&request->arena, sizeof *own);

	own->read = (struct store_read){.work = work, .on_done = on_read, .owner = own};
	own->daemon = daemon;
	own->request = request;
	own->args = args;
	own->status = 200;
	own->content_type = "application/json";
	own->then = then;
	arena_init(&own->kept);
	buffer_init(&own->body, ANSWER_MAX);
	if (store_read(daemon->store, &own->read) == 0)
		return true;
	struct error error;
	error_set(&error, ERR_BUSY, "%d reads wait for the journal, the limit (STORE_READS_MAX)", STORE_READS_MAX);
	api_busy(request, &error);
	return false;
}

void api_print(struct api_read *read, const struct json *json)
{
	json_print(json, &read->body);
	buffer_add_char(&read->body, '\n');
}

/* --- problems ----------------------------------------------------------------------------------------------------- */

void api_invalid(struct request *request, const char *format, ...)
{
	struct error error = {.code = ERR_INVALID};
	va_list args;

	va_start(args, format);
	vsnprintf(error.message, sizeof error.message, format, args);
	va_end(args);
	request_problem(request, &error);
}

void api_busy(struct request *request, const struct error *error)
{
	request_add_header(request, "Retry-After", "1");
	request_problem(request, error);
}

void api_fail(struct request *request, const struct error *error)
{
	if (error->code == ERR_BUSY || error->code == ERR_FULL)
		api_busy(request, error);
	else
		request_problem(request, error);
}

void api_fail_check(struct request *request, const struct error *error)
{
	struct error told = *error;

	if (told.code == ERR_NOT_FOUND)
		told.code = ERR_UNSUPPORTED; /* 404 would be about the definition */
	else if (told.code == ERR_CANCELLED || told.code == ERR_IO)
		told.code = ERR_BUSY;
	error_wrap(&told, "an expression of the definition could not be compiled");
	api_fail(request, &told);
}

void api_problems(struct request *request, const struct problems *problems, const char *what)
{
	struct json *extra = json_object(&request->arena);
	struct error error;
	const struct problem *first = NULL;

	for (size_t i = 0; i < problems->count && !first; i++)
		if (!problems->items[i].warning)
			first = &problems->items[i];
	if (first && first->line > 0)
		error_set(&error, ERR_INVALID, "%s: line %zu, column %zu: %s%s", what, first->line, first->column, first->message, problems->errors > 1 ? " (and more)" : "");
	else
		error_set(&error, ERR_INVALID, "%s: %s%s%s%s", what, first && *first->pointer ? first->pointer : "", first && *first->pointer ? ": " : "",
			  first ? first->message : "refused", problems->errors > 1 ? " (and more)" : "");
	json_set(&request->arena, extra, "problems", problems_json(problems, &request->arena));
	request_problem_at(request, 400, &error, extra);
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

static bool read_number(const char *text, uint64_t *number)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno == 0 && *end == 0;
}

bool api_query_number(struct request *request, const char *name, uint64_t fallback, uint64_t max, uint64_t *number)
{
	const char *text = request_query(request, name);

	*number = fallback;
	if (!text)
		return true;
	if (read_number(text, number) && *number <= max)
		return true;
	api_invalid(request, "query parameter %s: '%s' is no whole number from 0 to %llu", name, text, (unsigned long long)max);
	return false;
}

bool api_query_flag(struct request *request, const char *name, bool *flag)
{
	const char *text = request_query(request, name);

	*flag = text && strcmp(text, "true") == 0;
	if (!text || *flag || strcmp(text, "false") == 0)
		return true;
	api_invalid(request, "query parameter %s: '%s' is neither true nor false", name, text);
	return false;
}

bool api_query_digest(struct request *request, const char *name, struct digest *digest, bool *given)
{
	const char *text = request_query(request, name);

	*given = text != NULL;
	if (!text || digest_parse(text, digest))
		return true;
	api_invalid(request, "query parameter %s: '%s' is no digest (sha256: and 64 hex digits)", name, text);
	return false;
}

bool api_split_name(struct arena *arena, const char *text, const char **namespace, const char **name, const char **version)
{
	const char *slash = strchr(text, '/'), *colon = slash ? strchr(slash, ':') : NULL;

	if (!slash)
		return false;
	*namespace = arena_text_len(arena, text, (size_t)(slash - text));
	*name = colon ? arena_text_len(arena, slash + 1, (size_t)(colon - slash - 1)) : slash + 1;
	*version = colon ? colon + 1 : NULL;
	return id_valid_label(*namespace) && id_valid_label(*name) && (!colon || id_valid_version(*version));
}

bool api_query_workflow(struct request *request, const char **namespace, const char **name, const char **version)
{
	const char *text = request_query(request, "workflow");

	*namespace = *name = *version = NULL;
	if (!text || api_split_name(&request->arena, text, namespace, name, version))
		return true;
	api_invalid(request, "query parameter workflow: '%s' is not NAMESPACE/NAME or NAMESPACE/NAME:VERSION", text);
	return false;
}

bool api_query_wait(struct request *request, int64_t *wait_ms)
{
	const char *text = request_query(request, "wait");
	struct error error;

	*wait_ms = 0;
	if (!text)
		return true;
	if (duration_parse(text, wait_ms, &error) != 0) {
		api_invalid(request, "query parameter wait: %s", error.message);
		return false;
	}
	if (*wait_ms > API_WAIT_MAX_MS) {
		api_invalid(request, "query parameter wait: '%s' is over the limit of 24h", text);
		return false;
	}
	return true;
}

bool api_wants_stream(const struct request *request)
{
	const char *accept = request_header(request, "Accept");

	return accept && strstr(accept, "text/event-stream") && !request->head;
}

bool api_after(struct request *request, uint64_t *after)
{
	const char *text = request_header(request, "Last-Event-ID");

	if (!text || !api_wants_stream(request))
		return api_query_number(request, "after", 0, API_SEQ_MAX, after);
	if (read_number(text, after) && *after <= API_SEQ_MAX)
		return true;
	api_invalid(request, "Last-Event-ID: '%s' is no position in the journal", text);
	return false;
}

bool api_content_type_is(const struct request *request, const char *type)
{
	const char *given = request_header(request, "Content-Type");
	size_t len = strlen(type);

	return given && strncasecmp(given, type, len) == 0 && strchr("; \t", given[len]) != NULL;
}

bool api_is_one_of(const char *names, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = names; *at;) {
		size_t part = strcspn(at, " ");
		if (part == len && memcmp(at, name, len) == 0)
			return true;
		at += part + (at[part] == ' ');
	}
	return false;
}

/* Pure: may run on the pool. */
static struct json *parse_body(struct request *request, const char *names, struct error *error)
{
	*error = (struct error){0};
	if (request->body.len == 0)
		return json_object(&request->arena);
	struct error why;
	struct json *json = json_parse(&request->arena, buffer_bytes(&request->body), JSON_STRICT, NULL, &why);
	if (!json) {
		error_set(error, ERR_INVALID, "the body is not JSON: %s", why.message);
		return NULL;
	}
	if (!json_is(json, JSON_OBJECT)) {
		error_set(error, ERR_INVALID, "the body is %s, expected an object", json_type_name(json->type));
		return NULL;
	}
	for (size_t i = 0; i < json->object.count; i++)
		if (!api_is_one_of(names, json->object.members[i].name)) {
			error_set(error, ERR_INVALID, "unknown member '%s' in the body; known here: %s", json->object.members[i].name, *names ? names : "none");
			return NULL;
		}
	return json;
}

struct json *api_body_object(struct request *request, const char *names)
{
	struct error error;
	struct json *json = NULL;

	if (request->body.len > API_PARSE_ON_LOOP_MAX) /* more than its members can hold */
		error_set(&error, ERR_TOO_LARGE, "the body has %zu bytes, the limit of this route is %d (API_PARSE_ON_LOOP_MAX)", request->body.len, API_PARSE_ON_LOOP_MAX);
	else
		json = parse_body(request, names, &error);
	if (!json)
		request_problem(request, &error);
	return json;
}

static void take_body(struct api_body *body)
{
	body->json = parse_body(body->request, body->names, &body->error);
	if (body->json && body->prepare)
		body->prepare(body);
}

static void on_body_taken(struct api_body *body)
{
	if (body->error.code != ERR_NONE)
		request_problem(body->request, &body->error);
	else
		body->on_done(body);
}

static void on_pool(uv_work_t *work)
{
	take_body(work->data);
}

static void on_pool_done(uv_work_t *work, int status)
{
	(void)status;
	on_body_taken(work->data);
}

void api_take_body(struct api_body *body)
{
	body->work.data = body;
	if (body->request->body.len > API_PARSE_ON_LOOP_MAX) {
		CHECK(uv_queue_work(&body->daemon->loop, &body->work, on_pool, on_pool_done) == 0);
		return;
	}
	take_body(body);
	on_body_taken(body);
}

void api_set_time(struct arena *arena, struct json *object, const char *name, int64_t wall_ms)
{
	char text[TIME_TEXT_LEN + 1];

	time_text(wall_ms, text);
	json_set_text(arena, object, name, text);
}

void api_set_digest(struct arena *arena, struct json *object, const char *name, const struct digest *digest)
{
	char text[DIGEST_TEXT_LEN + 1];

	digest_text(digest, text);
	json_set_text(arena, object, name, text);
}
