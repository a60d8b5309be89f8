/* HTTP over Unix sockets: libmicrohttpd on the daemon's loop. It takes requests apart, keeps the limits, holds those that wait, and
 * knows nothing of runs: what a request means is the handler's (api.c).
 *
 * The loop asks libmicrohttpd's own epoll descriptor through one uv_poll_t. A request that is not answered at once is
 * suspended; a suspended connection does not notice that its client went away, so every wake_every_ms all that wait are
 * looked at: streams get a comment line, waiters' sockets are asked whether the other end is still there.
 *
 * Thread: loop. New here? Read on_request() in http_server.c. */
#pragma once

#include <uv.h>

#include "daemon/config.h"
#include "workflow/base/list.h"

enum {
	HTTP_CONNECTION_MEMORY = 8 << 10, /* bytes of one request's line and headers; past it 431 */
	HTTP_URL_MAX = 4 << 10,
	HTTP_QUERY_MAX = 32, /* parameters of a request; no route knows so many */
	HTTP_BODY_BYTES_PER_MS = 16, /* a body may take limits.request and a millisecond for every so many bytes */
	HTTP_DRAIN_MAX = 64 << 20, /* a refused body up to this size is read and thrown away, so that its sender sees the answer */
	HTTP_BACKLOG = 1024,
	HTTP_ROUNDS_MAX = 16, /* of libmicrohttpd in one turn of the loop */
	HTTP_HEADERS_MAX = 4, /* of ours on one answer */
	STREAM_BUFFER_MAX = 1 << 20, /* bytes of a stream that its client has not taken; past it the stream is not filled */
	ANSWER_MAX = 512 << 20, /* bytes of one answer */
};

struct MHD_Connection;
struct http_server;
struct http_stream;
struct request;

enum request_stage {
	REQUEST_READING, /* the body is coming in */
	REQUEST_HANDLED, /* the handler has it */
	REQUEST_SUSPENDED, /* … and has not answered; libmicrohttpd leaves the connection alone */
	REQUEST_ANSWERED, /* the answer is there, to be handed to libmicrohttpd */
	REQUEST_SENDING,
};

/* One request, from its headers to the last byte of its answer. */
struct request {
	struct http_server *server;
	struct MHD_Connection *connection;
	const char *method, *path; /* path: decoded, without the query */
	bool head; /* HEAD: method reads "GET", no body is sent */
	struct arena arena; /* lives as long as the request */
	struct buffer body;
	const void *route; /* the handler's own */
	uint64_t began_ms; /* when its head was complete, by the loop's clock */
	uint64_t received_us; /* when the last byte was read */

	/* The handler's own, while it has not answered. on_gone: the client went away or the daemon stops: let go of whatever would
	 * answer, and answer no more. NULL: it cannot be let go of, an answer comes soon anyway. */
	void *owner;
	void (*on_gone)(struct request *request);

	enum request_stage stage;
	bool refused; /* answered before its body was read */
	bool waits; /* counted as a waiter */
	size_t body_counted, drained;
	unsigned status;
	struct buffer answer;
	const char *content_type;
	struct {
		const char *name, *value;
	} headers[HTTP_HEADERS_MAX];
	size_t header_count;
	struct http_stream *stream;
	struct list link, wait_link;
};

struct http_handler {
	void *arg;
	/* The headers are there: choose request->route. The body's limit in bytes, 0: none is expected. To refuse the request:
	 * answer it here with request_problem(). */
	uint64_t (*on_headers)(void *arg, struct request *request);
	/* All of it is there. Answer now or later. */
	void (*on_request)(void *arg, struct request *request);
	uint64_t (*now_us)(void *arg);
};

struct http_counts {
	uint64_t requests, connections, waiters, streams, waiters_gone, refused, slow /* closed because a request took too long to come in */;
	uint64_t stream_bytes; /* written into streams and not taken by their clients */
	uint64_t by_class[6]; /* answers by hundreds of their status */
};

/* Sockets are made with mode 0600; a stale one is removed, so the data folder's lock must be held. */
/* After an error too: close and free what there is. */
int http_server_open(struct http_server **server, uv_loop_t *loop, const struct config *config, const struct http_handler *handler, struct error *error);
/* No new connections, and 503 for new requests on those that are there. */
void http_server_stop_accepting(struct http_server *server);
/* Answer all who wait with 503 and end all streams; on_gone is called for each. */
void http_server_release_waiters(struct http_server *server);
/* Every request must have been answered (what was under way came back). Its uv handles close later: run the loop dry, then free. */
void http_server_close(struct http_server *server);
void http_server_free(struct http_server *server);
bool http_server_is_sending(const struct http_server *server); /* an answer is on its way */
bool http_server_is_busy(const struct http_server *server); /* requests that the handler has not answered */
void http_server_counts(const struct http_server *server, struct http_counts *counts);

/* --- looking at a request ------------------------------------------------------------------------------------------ */

const char *request_query(const struct request *request, const char *name); /* decoded; NULL: absent */
const char *request_header(const struct request *request, const char *name);
void request_each_header(const struct request *request, void (*each)(void *arg, const char *name, const char *value), void *arg);
/* Each parameter must be in `names` (separated by spaces) and come once; else false and *error says which. */
bool request_check_query(const struct request *request, const char *names, struct error *error);

/* --- answering ------------------------------------------------------------------------------------------------------ */

/* Once per request, at any time from on_headers on. The request may be gone afterwards. The buffer moves into the answer. */
void request_answer(struct request *request, unsigned status, const char *content_type, struct buffer *body);
void request_answer_json(struct request *request, unsigned status, const struct json *json);
void request_answer_text(struct request *request, unsigned status, const char *content_type, const char *text);
/* application/problem+json (RFC 9457). */
void request_problem(struct request *request, const struct error *error);
void request_problem_at(struct request *request, unsigned status, const struct error *error, struct json *extra /* more members, or NULL */);
/* Before the answer. Texts live as long as the request. */
void request_add_header(struct request *request, const char *name, const char *value);
struct json *problem_json(struct arena *arena, unsigned status, const struct error *error);

/* A request that waits for something that may take long. False: too many do, and the request was answered with 503. */
bool request_wait(struct request *request);

/* --- streams ------------------------------------------------------------------------------------------------------- */

/* An answer without an end (text/event-stream). */
struct http_stream {
	struct request *request;
	struct buffer out; /* what the client has not taken yet */
	size_t taken;
	bool suspended, ended;
	/* The client has taken everything: more may be added. */
	void (*on_drained)(struct http_stream *stream);
	/* It is over, by whomever: the client, the daemon, stream_end(). The memory is the server's from here on. */
	void (*on_closed)(struct http_stream *stream);
	void *owner;
	struct list link;
};
/* Answers the request with a stream. NULL: too many, answered with 503. */
struct http_stream *request_stream(struct request *request);
void stream_add(struct http_stream *stream, struct bytes bytes);
bool stream_is_full(const struct http_stream *stream);
void stream_end(struct http_stream *stream); /* after what was added */
