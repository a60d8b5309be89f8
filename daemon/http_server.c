/* See http_server.h. What libmicrohttpd needs to be told, each learnt from a hang or an abort:
 *
 * - Its sockets are edge-triggered and it stops when its own buffers are full: one MHD_run per wake-up is not enough. Run it until
 *   MHD_get_timeout() is not 0, then leave the rest to a timer.
 * - Never suspend and resume a connection within one call of the handler: it stays asleep. So the handler runs first, and only
 *   a request that has no answer then is suspended.
 * - Never answer a POST in its first call (headers alone) unless the connection may close.
 * - Stopping it while a connection is suspended aborts the process. */
#include "daemon/http_server.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "workflow/base/check.h"
#include "workflow/base/hex.h"
#include "workflow/base/log.h"

#define PROBLEM_TYPE "https://reprise.example/problems/"
#define RETRY_AFTER_S "1"

struct listener {
	struct http_server *server;
	const char *path;
	struct MHD_Daemon *mhd;
	int fd;
	bool quiesced, bound;
	uv_poll_t poll;
	uv_timer_t timer;
};

/* A connection, for the time that it takes over a request: libmicrohttpd times silence only, not a byte a second. */
struct connection {
	struct MHD_Connection *connection;
	uint64_t since_ms; /* it was opened, or its last request was over */
	bool has_request; /* the head of one is complete */
	struct list link;
};

struct http_server {
	uv_loop_t *loop;
	const struct config *config;
	struct http_handler handler;
	struct listener listeners[CONFIG_LISTEN_MAX];
	size_t listener_count;
	uv_prepare_t prepare;
	uv_timer_t wake; /* active while something waits */
	uv_timer_t slow; /* looks for heads that do not end; active while there are connections */
	bool resumed, stopping, running;
	struct list connections, requests, waiters, streams;
	struct http_counts counts;
	uint64_t body_bytes, unanswered;
};

/* --- driving libmicrohttpd ---------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

static void run_listener(struct listener *listener)
{
	MHD_UNSIGNED_LONG_LONG timeout = 0;

	if (!listener->mhd)
		return;
	for (int i = 0; i < HTTP_ROUNDS_MAX; i++) {
		MHD_run(listener->mhd);
		if (MHD_get_timeout(listener->mhd, &timeout) != MHD_YES) {
			uv_timer_stop(&listener->timer);
			return;
		}
		if (timeout > 0)
			break;
	}
	uv_timer_start(&listener->timer, on_timer, timeout, 0);
}

/* Not from inside itself: an answer given by a handler may come from within MHD_run. */
static void run_server(struct http_server *server)
{
	if (server->running)
		return;
	server->running = true;
	server->resumed = false;
	for (size_t i = 0; i < server->listener_count; i++)
		run_listener(&server->listeners[i]);
	server->running = false;
}

static void on_timer(uv_timer_t *timer)
{
	run_server(((struct listener *)timer->data)->server);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	(void)status, (void)events;
	run_server(((struct listener *)poll->data)->server);
}

/* A whole batch of answers costs one run of libmicrohttpd, at the end of the turn in which they were given. */
static void on_prepare(uv_prepare_t *prepare)
{
	struct http_server *server = prepare->data;

	if (server->resumed)
		run_server(server);
}

static void resume(struct request *request)
{
	MHD_resume_connection(request->connection);
	request->server->resumed = true;
}

/* --- those that wait ---------------------------------------------------------------------------------------------- */

static bool client_is_gone(const struct request *request)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	char byte;

	if (!info)
		return false;
	/* libmicrohttpd takes the end of a client's sending half for its end (it drops the answer then), so we do too. Bytes of a next
	 * request may hide that end: a hang-up of both halves shows all the same. */
	struct pollfd look = {.fd = info->connect_fd, .events = POLLIN};
	if (poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLERR | POLLNVAL)))
		return true;
	ssize_t got = recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

static void stop_waiting(struct request *request)
{
	if (!request->waits)
		return;
	request->waits = false;
	list_remove(&request->wait_link);
	request->server->counts.waiters--;
}

static void let_go(struct request *request, const struct error *why)
{
	void (*on_gone)(struct request *) = request->on_gone;

	request->on_gone = NULL;
	if (on_gone)
		on_gone(request);
	request_add_header(request, "Retry-After", RETRY_AFTER_S);
	request_problem_at(request, 503, why, NULL);
}

static void on_wake(uv_timer_t *timer)
{
	struct http_server *server = timer->data;
	struct error why;

	error_set(&why, ERR_CANCELLED, "the client went away");
	LIST_EACH_SAFE(link, &server->waiters) {
		struct request *request = CONTAINER_OF(link, struct request, wait_link);
		if (client_is_gone(request)) {
			server->counts.waiters_gone++;
			let_go(request, &why);
		}
	}
	/* Writing is what shows whether a stream's client is still there. */
	LIST_EACH(link, &server->streams) {
		struct http_stream *stream = CONTAINER_OF(link, struct http_stream, link);
		if (stream->suspended)
			stream_add(stream, BYTES_OF(":\n\n"));
	}
	if (list_empty(&server->waiters) && list_empty(&server->streams))
		uv_timer_stop(timer);
}

static void start_waking(struct http_server *server)
{
	uint64_t every = (uint64_t)server->config->limits.wake_every_ms;

	if (!uv_is_active((uv_handle_t *)&server->wake) && !uv_is_closing((uv_handle_t *)&server->wake))
		uv_timer_start(&server->wake, on_wake, every, every);
}

/* --- those that take too long ------------------------------------------------------------------------------------- */

/* Between two requests a silent connection is libmicrohttpd's to close (limits.idle). One that is older is sending, and had
 * limits.request on top of that to come to the end of a head. */
static void on_slow(uv_timer_t *timer)
{
	struct http_server *server = timer->data;
	uint64_t allowed_ms = (uint64_t)(server->config->limits.idle_ms + server->config->limits.request_ms);

	LIST_EACH(link, &server->connections) {
		const struct connection *own = CONTAINER_OF(link, struct connection, link);
		if (own->has_request || uv_now(server->loop) - own->since_ms <= allowed_ms)
			continue;
		log_debug(LOG_HTTP, "a request's head was not complete after %llu ms", (unsigned long long)allowed_ms);
		server->counts.slow++;
		/* libmicrohttpd sees the end of it and closes. */
		shutdown(MHD_get_connection_info(own->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd, SHUT_RDWR);
	}
	if (list_empty(&server->connections))
		uv_timer_stop(timer);
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **state, enum MHD_ConnectionNotificationCode code)
{
	struct http_server *server = ((struct listener *)arg)->server;
	struct connection *own = *state;
	uint64_t every_ms = (uint64_t)(server->config->limits.request_ms + 3) / 4;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		list_remove(&own->link);
		free(own);
		*state = NULL;
		return;
	}
	*state = own = memory_zero(sizeof *own);
	own->connection = connection;
	own->since_ms = uv_now(server->loop);
	list_add_last(&server->connections, &own->link);
	if (!uv_is_active((uv_handle_t *)&server->slow) && !uv_is_closing((uv_handle_t *)&server->slow)) {
		uv_timer_start(&server->slow, on_slow, every_ms, every_ms);
		uv_unref((uv_handle_t *)&server->slow);
	}
}

static struct connection *connection_of(struct MHD_Connection *connection)
{
	return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* The same for a body: a whole request's time, and more for a long body at a slow but honest pace. */
static bool body_is_late(const struct request *request)
{
	uint64_t allowed_ms = (uint64_t)request->server->config->limits.request_ms + (request->body_counted + request->drained) / HTTP_BODY_BYTES_PER_MS;

	return uv_now(request->server->loop) - request->began_ms > allowed_ms;
}

static bool refuse_one_more(struct request *request, const char *what, const char *name, unsigned limit)
{
	struct error error;

	error_set(&error, ERR_BUSY, "%u %s are open, the limit (limits.%s)", limit, what, name);
	request_add_header(request, "Retry-After", RETRY_AFTER_S);
	request_problem(request, &error);
	return false;
}

bool request_wait(struct request *request)
{
	struct http_server *server = request->server;

	if (request->waits)
		return true;
	if (server->counts.waiters >= server->config->limits.waiters)
		return refuse_one_more(request, "waiting requests", "waiters", server->config->limits.waiters);
	request->waits = true;
	list_add_last(&server->waiters, &request->wait_link);
	server->counts.waiters++;
	start_waking(server);
	return true;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static struct request *request_new(struct http_server *server, struct MHD_Connection *connection, const char *path, const char *method)
{
	struct request *request = memory_zero(sizeof *request);

	request->server = server;
	request->connection = connection;
	request->began_ms = uv_now(server->loop);
	connection_of(connection)->has_request = true;
	arena_init(&request->arena);
	request->head = strcmp(method, "HEAD") == 0;
	request->method = request->head ? "GET" : method;
	request->path = path;
	buffer_init(&request->answer, ANSWER_MAX);
	buffer_init(&request->body, 0);
	list_init(&request->link);
	list_init(&request->wait_link);
	list_add_last(&server->requests, &request->link);
	server->counts.requests++;
	server->unanswered++;
	return request;
}

static void free_body(struct request *request)
{
	request->server->body_bytes -= request->body_counted;
	request->body_counted = 0;
	buffer_close(&request->body);
}

/* What a request is before its head is complete, when its query has more parameters than libmicrohttpd has memory for: it would
 * close the connection without a word. */
static struct request too_many_parameters;

/* The request's line is there and its query has not been taken apart yet. Cut away, such a query makes no parameters: the text is
 * in the connection's own buffer, and the request is refused when its head is complete. */
static void *on_uri(void *arg, const char *uri, struct MHD_Connection *connection)
{
	char *query = strchr(uri, '?');
	size_t count = 0;

	(void)arg, (void)connection;
	for (const char *at = query; at; at = strchr(at + 1, '&'))
		count++;
	if (count <= HTTP_QUERY_MAX)
		return NULL;
	query[1] = 0;
	return &too_many_parameters;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code)
{
	struct request *request = *state;
	struct connection *own = connection_of(connection);

	(void)arg, (void)code;
	if (own) {
		own->has_request = false;
		own->since_ms = uv_now(((struct listener *)arg)->server->loop);
	}
	*state = NULL;
	if (!request || request == &too_many_parameters)
		return;
	if (request->stage < REQUEST_ANSWERED) /* broken off while its body came in */
		request->server->unanswered--;
	CHECK(request->stage != REQUEST_SUSPENDED);
	stop_waiting(request);
	if (request->stream) {
		struct http_stream *stream = request->stream;
		list_remove(&stream->link);
		request->server->counts.streams--;
		if (stream->on_closed)
			stream->on_closed(stream);
		buffer_close(&stream->out);
		free(stream);
	}
	list_remove(&request->link);
	free_body(request);
	buffer_close(&request->answer);
	arena_close(&request->arena);
	free(request);
}

/* The stage in which an answer is possible has been left for good. */
static void answered(struct request *request)
{
	enum request_stage before = request->stage;

	CHECK(before < REQUEST_ANSWERED);
	stop_waiting(request);
	request->on_gone = NULL;
	request->owner = NULL;
	request->stage = REQUEST_ANSWERED;
	request->server->unanswered--;
	if (request->status >= 100 && request->status < 600)
		request->server->counts.by_class[request->status / 100]++;
	if (before == REQUEST_READING)
		request->refused = true;
	if (before == REQUEST_SUSPENDED)
		resume(request);
}

void request_answer(struct request *request, unsigned status, const char *content_type, struct buffer *body)
{
	request->status = status;
	request->content_type = content_type;
	if (body->overflow) { /* past ANSWER_MAX: half an answer is none */
		struct error error;
		buffer_close(body);
		buffer_init(&request->answer, ANSWER_MAX);
		error_set(&error, ERR_TOO_LARGE, "the answer is over the limit of %d bytes; ask for less: limit, include (ANSWER_MAX)", ANSWER_MAX);
		request->status = 500;
		request->content_type = "application/problem+json";
		json_print(problem_json(&request->arena, 500, &error), &request->answer);
	} else {
		buffer_close(&request->answer);
		request->answer = *body;
		buffer_init(body, body->max);
	}
	answered(request);
}

void request_answer_json(struct request *request, unsigned status, const struct json *json)
{
	struct buffer body;

	buffer_init(&body, ANSWER_MAX);
	json_print(json, &body);
	buffer_add_char(&body, '\n');
	request_answer(request, status, status >= 400 ? "application/problem+json" : "application/json", &body);
}

void request_answer_text(struct request *request, unsigned status, const char *content_type, const char *text)
{
	struct buffer body;

	buffer_init(&body, ANSWER_MAX);
	buffer_add_text(&body, text);
	request_answer(request, status, content_type, &body);
}

/* Messages quote what clients sent, and are cut anywhere: make them UTF-8 again. */
static struct json *clean_text(struct arena *arena, const char *text)
{
	struct bytes rest = bytes_text(text);
	struct buffer clean;
	size_t bad;

	buffer_init(&clean, 3 * rest.len + 1);
	while (!utf8_valid(rest, &bad)) {
		buffer_add(&clean, rest.data, bad);
		buffer_add_text(&clean, "\xef\xbf\xbd");
		rest.data += bad + 1;
		rest.len -= bad + 1;
	}
	buffer_add_bytes(&clean, rest);
	struct json *json = json_text(arena, buffer_text(&clean));
	buffer_close(&clean);
	return json;
}

struct json *problem_json(struct arena *arena, unsigned status, const struct error *error)
{
	struct json *json = json_object(arena);
	const char *name = error_code_name(error->code);
	char *title = arena_text(arena, name);

	for (char *c = title; *c; c++)
		if (*c == '-')
			*c = ' ';
	json_set(arena, json, "type", json_printf(arena, PROBLEM_TYPE "%s", name));
	json_set_text(arena, json, "title", title);
	json_set_number(arena, json, "status", status);
	json_set(arena, json, "detail", clean_text(arena, error->message));
	return json;
}

void request_problem_at(struct request *request, unsigned status, const struct error *error, struct json *extra)
{
	struct json *json = problem_json(&request->arena, status, error);

	for (size_t i = 0; extra && i < extra->object.count; i++)
		json_set(&request->arena, json, extra->object.members[i].name, extra->object.members[i].value);
	if (status >= 500 && status != 503)
		log_warn(LOG_HTTP, "%s %s: %u %s", request->method, request->path, status, error->message);
	request_answer_json(request, status, json);
}

void request_problem(struct request *request, const struct error *error)
{
	request_problem_at(request, (unsigned)error_code_http_status(error->code), error, NULL);
}

void request_add_header(struct request *request, const char *name, const char *value)
{
	if (request->header_count < HTTP_HEADERS_MAX) {
		request->headers[request->header_count].name = name;
		request->headers[request->header_count++].value = value;
	}
}

const char *request_query(const struct request *request, const char *name)
{
	return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *request_header(const struct request *request, const char *name)
{
	return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

struct header_walk {
	void (*each)(void *arg, const char *name, const char *value);
	void *arg;
};

static enum MHD_Result on_header(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
	const struct header_walk *walk = arg;

	(void)kind;
	if (value)
		walk->each(walk->arg, name, value);
	return MHD_YES;
}

void request_each_header(const struct request *request, void (*each)(void *arg, const char *name, const char *value), void *arg)
{
	struct header_walk walk = {.each = each, .arg = arg};

	MHD_get_connection_values(request->connection, MHD_HEADER_KIND, on_header, &walk);
}

struct query_check {
	const char *names;
	const char *seen[HTTP_QUERY_MAX];
	size_t count;
	struct error *error;
};

static bool has_word(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = words; len > 0 && (at = strstr(at, word)) != NULL; at += len)
		if ((at == words || at[-1] == ' ') && (at[len] == ' ' || at[len] == 0))
			return true;
	return false;
}

static enum MHD_Result check_parameter(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct query_check *check = arg;

	(void)kind;
	if (!has_word(check->names, name) || strchr(name, ' ')) {
		error_set(check->error, ERR_INVALID, "unknown query parameter '%s'; known here: %s", name, *check->names ? check->names : "none");
	} else if (!value) {
		error_set(check->error, ERR_INVALID, "query parameter '%s' has no value", name);
	} else if (!utf8_valid(bytes_text(value), NULL)) {
		error_set(check->error, ERR_INVALID, "query parameter '%s' is not valid UTF-8", name);
	} else {
		CHECK(check->count < HTTP_QUERY_MAX); /* known ones come once, and no route knows so many */
		for (size_t i = 0; i < check->count; i++)
			if (strcmp(check->seen[i], name) == 0)
				error_set(check->error, ERR_INVALID, "query parameter '%s' comes twice; one of each is taken", name);
		check->seen[check->count++] = name;
	}
	return check->error->code == ERR_NONE ? MHD_YES : MHD_NO;
}

bool request_check_query(const struct request *request, const char *names, struct error *error)
{
	struct query_check check = {.names = names, .error = error};

	*error = (struct error){0};
	MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, check_parameter, &check);
	return error->code == ERR_NONE;
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

struct http_stream *request_stream(struct request *request)
{
	struct http_server *server = request->server;

	if (server->counts.streams >= server->config->limits.streams) {
		refuse_one_more(request, "event streams", "streams", server->config->limits.streams);
		return NULL;
	}
	struct http_stream *stream = memory_zero(sizeof *stream);
	stream->request = request;
	buffer_init(&stream->out, 2 * STREAM_BUFFER_MAX + (64 << 20)); /* full at STREAM_BUFFER_MAX; one event may go past it */
	list_add_last(&server->streams, &stream->link);
	server->counts.streams++;
	request->stream = stream;
	request->status = 200;
	request->content_type = "text/event-stream";
	request_add_header(request, "Cache-Control", "no-store");
	answered(request);
	start_waking(server);
	return stream;
}

bool stream_is_full(const struct http_stream *stream)
{
	return stream->out.len - stream->taken >= STREAM_BUFFER_MAX;
}

static void wake_stream(struct http_stream *stream)
{
	if (!stream->suspended)
		return;
	stream->suspended = false;
	resume(stream->request);
}

void stream_add(struct http_stream *stream, struct bytes bytes)
{
	if (stream->ended)
		return;
	buffer_add_bytes(&stream->out, bytes);
	if (stream->out.overflow) /* a gap would be a lie; the client resumes from the last event it has */
		stream->ended = true;
	wake_stream(stream);
}

void stream_end(struct http_stream *stream)
{
	stream->ended = true;
	wake_stream(stream);
}

static ssize_t on_stream_read(void *arg, uint64_t position, char *target, size_t max)
{
	struct http_stream *stream = arg;

	(void)position;
	if (stream->taken == stream->out.len && !stream->ended && stream->on_drained)
		stream->on_drained(stream);
	size_t left = stream->out.len - stream->taken, count = left < max ? left : max;
	if (count > 0) {
		memcpy(target, stream->out.data + stream->taken, count);
		stream->taken += count;
		if (stream->taken == stream->out.len) {
			bool large = stream->out.cap > (64 << 10), overflow = stream->out.overflow;
			size_t limit = stream->out.max;
			if (large) { /* idle streams are many: keep no large buffers for them */
				buffer_close(&stream->out);
				buffer_init(&stream->out, limit);
			}
			buffer_clear(&stream->out);
			stream->out.overflow = overflow;
			stream->taken = 0;
		}
		return (ssize_t)count;
	}
	if (stream->ended)
		return MHD_CONTENT_READER_END_OF_STREAM;
	stream->suspended = true;
	MHD_suspend_connection(stream->request->connection);
	return 0;
}

/* --- the handler that libmicrohttpd calls --------------------------------------------------------------------------- */

static enum MHD_Result send_answer(struct request *request)
{
	struct MHD_Response *response;

	if (request->stream) {
		response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, on_stream_read, request->stream, NULL);
	} else if (request->answer.len == 0) {
		response = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
	} else {
		response = MHD_create_response_from_buffer(request->answer.len, request->answer.data, MHD_RESPMEM_MUST_FREE);
		buffer_init(&request->answer, ANSWER_MAX);
	}
	CHECK(response != NULL);
	MHD_add_response_header(response, "Content-Type", request->content_type);
	for (size_t i = 0; i < request->header_count; i++)
		MHD_add_response_header(response, request->headers[i].name, request->headers[i].value);
	if (request->server->stopping)
		MHD_add_response_header(response, "Connection", "close");
	enum MHD_Result result = MHD_queue_response(request->connection, request->status, response);
	MHD_destroy_response(response);
	request->stage = REQUEST_SENDING;
	return result;
}

static void refuse_length(struct request *request, uint64_t length, uint64_t limit)
{
	struct error error;
	struct json *extra = json_object(&request->arena);

	if (limit == 0)
		error_set(&error, ERR_TOO_LARGE, "%s %s takes no body, %llu bytes were announced", request->method, request->path, (unsigned long long)length);
	else
		error_set(&error, ERR_TOO_LARGE, "the body has %llu bytes, the limit of %s %s is %llu", (unsigned long long)length, request->method, request->path,
			  (unsigned long long)limit);
	json_set_number(&request->arena, extra, "limit", (double)limit);
	json_set_number(&request->arena, extra, "size", (double)length);
	request_problem_at(request, 413, &error, extra);
}

/* Only the headers are known. True: answer at once and let the connection close. */
static bool begin_request(struct request *request, bool too_many)
{
	struct http_server *server = request->server;
	const char *text = request_header(request, "Content-Length"), *expect = request_header(request, "Expect");
	uint64_t length = text ? strtoull(text, NULL, 10) : 0;
	struct error error;

	if (server->stopping) {
		error_set(&error, ERR_BUSY, "the daemon is stopping");
		request_add_header(request, "Retry-After", "5");
		request_problem(request, &error);
	} else if (too_many) {
		error_set(&error, ERR_INVALID, "the query has more than %d parameters (HTTP_QUERY_MAX)", HTTP_QUERY_MAX);
		request_problem(request, &error);
	} else if (strlen(request->path) > HTTP_URL_MAX) {
		error_set(&error, ERR_TOO_LARGE, "the URL's path has %zu bytes, the limit is %d", strlen(request->path), HTTP_URL_MAX);
		request_problem_at(request, 414, &error, NULL);
	} else {
		uint64_t limit = server->handler.on_headers(server->handler.arg, request);
		request->body.max = limit + 1 > SIZE_MAX ? SIZE_MAX : (size_t)limit;
		if (!request->refused && length > limit)
			refuse_length(request, length, limit);
	}
	if (!request->refused)
		return false;
	server->counts.refused++;
	return length > HTTP_DRAIN_MAX || (expect && length > 0);
}

/* False: enough was thrown away, the connection ends. */
static bool take_body(struct request *request, const char *data, size_t len)
{
	struct http_server *server = request->server;
	struct error error;

	if (body_is_late(request)) {
		log_debug(LOG_HTTP, "%s %s: the body was not complete in time", request->method, request->path);
		server->counts.slow++;
		return false;
	}
	if (request->refused) { /* thrown away, so that its sender comes to see the answer */
		request->drained += len;
		return request->drained <= HTTP_DRAIN_MAX;
	}
	request->body_counted += len;
	server->body_bytes += len;
	if (request->body.len + len > request->body.max) { /* chunked: its length was not announced */
		refuse_length(request, request->body.len + len, request->body.max);
	} else if (server->body_bytes > server->config->limits.bodies) {
		error_set(&error, ERR_BUSY, "the bodies of all requests under way are over the limit of %llu bytes together (limits.bodies)",
			  (unsigned long long)server->config->limits.bodies);
		request_add_header(request, "Retry-After", RETRY_AFTER_S);
		request_problem(request, &error);
	} else {
		buffer_add(&request->body, data, len);
		return true;
	}
	server->counts.refused++;
	free_body(request);
	return true;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method, const char *version, const char *data,
				  size_t *len, void **state)
{
	struct listener *listener = arg;
	struct http_server *server = listener->server;
	struct request *request = *state;

	(void)version;
	if (!request || request == &too_many_parameters) {
		bool too_many = request != NULL;
		*state = request = request_new(server, connection, url, method);
		return begin_request(request, too_many) ? send_answer(request) : MHD_YES;
	}
	if (*len > 0) {
		bool more = take_body(request, data, *len);
		*len = 0;
		return more ? MHD_YES : MHD_NO;
	}
	if (request->stage == REQUEST_READING) {
		request->stage = REQUEST_HANDLED;
		request->received_us = server->handler.now_us(server->handler.arg);
		server->handler.on_request(server->handler.arg, request);
		if (request->stage == REQUEST_HANDLED) {
			request->stage = REQUEST_SUSPENDED;
			MHD_suspend_connection(connection);
			return MHD_YES;
		}
	}
	return request->stage == REQUEST_ANSWERED ? send_answer(request) : MHD_YES;
}

/* --- opening and closing ------------------------------------------------------------------------------------------ */

/* A file that a daemon left behind when it was killed. The lock says that none of this data folder runs; a socket elsewhere may
 * belong to somebody else, so it is asked first. */
static int remove_stale(const struct sockaddr_un *address, struct error *error)
{
	struct stat status;
	int fd, rc;

	if (lstat(address->sun_path, &status) != 0)
		return 0;
	if (!S_ISSOCK(status.st_mode))
		return error_set(error, ERR_EXISTS, "listen unix:%s: a file that is no socket is in the way", address->sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rc = fd < 0 ? -1 : connect(fd, (const struct sockaddr *)address, sizeof *address);
	int reason = errno;
	if (fd >= 0)
		close(fd);
	if (rc == 0 || (reason != ECONNREFUSED && reason != ENOENT))
		return error_set(error, ERR_BUSY, "listen unix:%s: another program listens there; choose another path with --listen", address->sun_path);
	if (unlink(address->sun_path) != 0 && errno != ENOENT)
		return error_set(error, ERR_IO, "listen unix:%s: the stale socket cannot be removed: %s", address->sun_path, strerror(errno));
	return 0;
}

static int bind_socket(struct listener *listener, struct error *error)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	CHECK(strlen(listener->path) < sizeof address.sun_path);
	strcpy(address.sun_path, listener->path);
	if (remove_stale(&address, error) != 0)
		return error->code;
	listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	/* The mode of the descriptor is the mode the file gets, so there is no moment in which others could connect. */
	if (listener->fd < 0 || fchmod(listener->fd, 0600) != 0 || bind(listener->fd, (struct sockaddr *)&address, sizeof address) != 0)
		return error_set(error, errno == EACCES || errno == EPERM ? ERR_DENIED : ERR_IO, "listen unix:%s: %s", listener->path, strerror(errno));
	listener->bound = true;
	if (listen(listener->fd, HTTP_BACKLOG) != 0)
		return error_set(error, ERR_IO, "listen unix:%s: %s", listener->path, strerror(errno));
	return 0;
}

__attribute__((format(printf, 2, 0))) static void on_log(void *arg, const char *format, va_list args)
{
	char line[512];

	(void)arg;
	vsnprintf(line, sizeof line, format, args);
	line[strcspn(line, "\n")] = 0;
	log_debug(LOG_HTTP, "libmicrohttpd: %s", line);
}

/* %41 becomes A, in place. What cannot be decoded stays as it is, and so does %00: it would cut the text short, and
 * /v1/runs/a%00b would be run a. */
static size_t decode_percent(void *arg, struct MHD_Connection *connection, char *text)
{
	char *to = text;

	(void)arg, (void)connection;
	for (const char *from = text; *from; from++) {
		int high = *from == '%' ? hex_value(from[1]) : -1, low = high >= 0 ? hex_value(from[2]) : -1;
		if (low >= 0 && high + low > 0) {
			*to++ = (char)(high << 4 | low);
			from += 2;
		} else {
			*to++ = *from;
		}
	}
	*to = 0;
	return (size_t)(to - text);
}

static int open_listener(struct listener *listener, struct error *error)
{
	struct http_server *server = listener->server;

	if (bind_socket(listener, error) != 0)
		return error->code;
	listener->mhd = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, listener, MHD_OPTION_LISTEN_SOCKET,
					 listener->fd, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed, listener,
					 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_CONNECTION_MEMORY, MHD_OPTION_CONNECTION_LIMIT, server->config->limits.connections,
					 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)((server->config->limits.idle_ms + 999) / 1000), MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
					 MHD_OPTION_UNESCAPE_CALLBACK, decode_percent, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, listener,
					 MHD_OPTION_URI_LOG_CALLBACK, on_uri, NULL,
					 MHD_OPTION_END);
	if (!listener->mhd)
		return error_set(error, ERR_INTERNAL, "listen unix:%s: libmicrohttpd did not start", listener->path);
	int epoll = MHD_get_daemon_info(listener->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
	CHECK(uv_poll_init(server->loop, &listener->poll, epoll) == 0);
	CHECK(uv_timer_init(server->loop, &listener->timer) == 0);
	listener->poll.data = listener->timer.data = listener;
	CHECK(uv_poll_start(&listener->poll, UV_READABLE, on_readable) == 0);
	return 0;
}

static void close_listener(struct listener *listener)
{
	if (listener->mhd) {
		uv_poll_stop(&listener->poll); /* before libmicrohttpd closes the descriptor */
		MHD_stop_daemon(listener->mhd);
		listener->mhd = NULL;
	} else if (listener->fd >= 0) {
		listener->quiesced = true;
	}
	/* libmicrohttpd closes the listening socket unless it was taken from it. */
	if (listener->fd >= 0 && listener->quiesced)
		close(listener->fd);
	listener->fd = -1;
	if (listener->bound)
		unlink(listener->path);
	listener->bound = false;
}

int http_server_open(struct http_server **out, uv_loop_t *loop, const struct config *config, const struct http_handler *handler, struct error *error)
{
	struct http_server *server = memory_zero(sizeof *server);

	*out = server;
	server->loop = loop;
	server->config = config;
	server->handler = *handler;
	list_init(&server->connections);
	list_init(&server->requests);
	list_init(&server->waiters);
	list_init(&server->streams);
	CHECK(uv_prepare_init(loop, &server->prepare) == 0);
	CHECK(uv_timer_init(loop, &server->wake) == 0);
	CHECK(uv_timer_init(loop, &server->slow) == 0);
	server->prepare.data = server->wake.data = server->slow.data = server;
	CHECK(uv_prepare_start(&server->prepare, on_prepare) == 0);
	uv_unref((uv_handle_t *)&server->prepare);
	for (size_t i = 0; i < config->listen_count; i++) {
		struct listener *listener = &server->listeners[i];
		*listener = (struct listener){.server = server, .path = config->listen[i], .fd = -1};
		server->listener_count++;
		if (open_listener(listener, error) != 0)
			return error->code;
	}
	return 0;
}

void http_server_stop_accepting(struct http_server *server)
{
	server->stopping = true;
	for (size_t i = 0; i < server->listener_count; i++) {
		struct listener *listener = &server->listeners[i];
		if (!listener->quiesced && listener->mhd && MHD_quiesce_daemon(listener->mhd) != MHD_INVALID_SOCKET)
			listener->quiesced = true;
	}
}

void http_server_release_waiters(struct http_server *server)
{
	struct error why;

	error_set(&why, ERR_BUSY, "the daemon is stopping; the run goes on when it is back");
	while (!list_empty(&server->waiters))
		let_go(CONTAINER_OF(server->waiters.next, struct request, wait_link), &why);
	LIST_EACH(link, &server->streams)
		stream_end(CONTAINER_OF(link, struct http_stream, link));
	run_server(server);
}

bool http_server_is_busy(const struct http_server *server)
{
	return server->unanswered > 0;
}

bool http_server_is_sending(const struct http_server *server)
{
	LIST_EACH(link, &server->requests)
		if (CONTAINER_OF(link, struct request, link)->stage >= REQUEST_ANSWERED)
			return true;
	return false;
}

void http_server_close(struct http_server *server)
{
	run_server(server);
	for (size_t i = 0; i < server->listener_count; i++) {
		struct listener *listener = &server->listeners[i];
		bool opened = listener->mhd != NULL;
		close_listener(listener);
		if (opened) {
			uv_close((uv_handle_t *)&listener->poll, NULL);
			uv_close((uv_handle_t *)&listener->timer, NULL);
		}
	}
	uv_close((uv_handle_t *)&server->prepare, NULL);
	uv_close((uv_handle_t *)&server->wake, NULL);
	uv_close((uv_handle_t *)&server->slow, NULL);
}

void http_server_free(struct http_server *server)
{
	CHECK(list_empty(&server->requests));
	free(server);
}

void http_server_counts(const struct http_server *server, struct http_counts *counts)
{
	*counts = server->counts;
	counts->connections = 0;
	for (size_t i = 0; i < server->listener_count; i++) {
		const union MHD_DaemonInfo *info = server->listeners[i].mhd ? MHD_get_daemon_info(server->listeners[i].mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS) : NULL;
		counts->connections += info ? info->num_connections : 0;
	}
	counts->stream_bytes = 0;
	LIST_EACH(link, &server->streams) {
		const struct http_stream *stream = CONTAINER_OF(link, struct http_stream, link);
		counts->stream_bytes += stream->out.len - stream->taken;
	}
}
