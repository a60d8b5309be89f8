/* A small HTTP/1.1 server on a libuv loop, for the simulator only: one request at a time on a connection, keep-alive,
 * bodies read whole, answers written piece by piece so that they can be slow, cut or wrong on purpose. The parsing is
 * libhttp-parser's.
 *
 * Threads: everything on the loop thread. New here? Read struct http_handler, then http_finish(). */
#pragma once

#include <http_parser.h>
#include <uv.h>

#include "workflow/base/bytes.h"
#include "workflow/base/error.h"
#include "workflow/base/list.h"

enum {
	HTTP_BODY_MAX = 8 * 1024 * 1024, /* a larger request is answered with 413 */
	HTTP_CONNECTIONS_MAX = 4096,     /* per port; one more is closed as soon as it is accepted */
	HTTP_BACKLOG = 4096,
	HTTP_URL_MAX = 2048,             /* longer: 414 */
	HTTP_KEY_MAX = 128,              /* bytes kept of an Idempotency-Key and of the other headers below; the rest is left out */
	HTTP_AHEAD_MAX = 64 * 1024,      /* bytes a client may send before its last answer has ended; then it is cut off */
	HTTP_DISCARD_MAX = 64 * 1024 * 1024, /* bytes read and thrown away after a 413, so that the client reads the answer */
};

struct http_connection;

struct http_handler {
	/* The header is read, the body is not. False: drop the connection with a reset, nothing more is read. */
	bool (*on_header)(struct http_connection *connection);
	/* The request is whole. Later, or at once, it must end in http_finish(), http_close() or http_reset(). */
	void (*on_request)(struct http_connection *connection);
	/* The connection ended between on_header and the end of the answer; connection->rejected tells if because of us.
	 * Not called after http_finish(), http_close() or http_reset(). */
	void (*on_gone)(struct http_connection *connection);
	/* All that was sent so far has been taken by the kernel, after some of it had to wait. */
	void (*on_drained)(struct http_connection *connection);
	/* The JSON body of an error of HTTP itself: what was sent is no request, too long or too large. */
	void (*print_error)(struct http_connection *connection, int status, struct buffer *out);
};

struct http_listener {
	uv_tcp_t tcp;
	bool closing;
};

struct http_server {
	uv_loop_t *loop;
	struct http_listener listeners[2]; /* one at a time; the other may still be closing */
	unsigned turn;
	const struct http_handler *handler;
	void *context; /* the handler's own */
	struct list connections;
	unsigned connection_count, connections_max;
	uint64_t connections_refused; /* because of connections_max */
	uint64_t replies;             /* whole ones, by http_reply() */
	int port;
	int idle_ms;              /* a connection that waits for its next request is closed after it; 0: never */
	const char *idle_header;  /* a line for each answer, ending in "\r\n", or NULL */
};

struct http_connection {
	struct http_server *server;
	uv_tcp_t tcp;
	uv_timer_t idle; /* between requests; during one it is free for http_reply_later() */
	unsigned open_handles; /* tcp and idle */
	uv_shutdown_t shutdown;
	struct list link;
	void *exchange; /* the handler's own, from on_header on */

	/* The request; valid from on_request until the end of the answer. */
	enum http_method method;
	struct buffer path; /* without the query */
	struct buffer query; /* behind the "?" */
	struct buffer body;
	char idempotency_key[HTTP_KEY_MAX + 1]; /* "" when there was none */
	char authorization[HTTP_KEY_MAX + 1], request_id[HTTP_KEY_MAX + 1], content_type[HTTP_KEY_MAX + 1]; /* the same */
	bool keep_alive, chunked; /* chunked: the client knows chunked transfer (HTTP/1.1) */
	bool rejected; /* in on_gone: it was us who ended it, with a 4xx */

	/* http.c's own. */
	http_parser parser;
	struct buffer url, ahead, field, value;
	struct buffer late; /* of http_reply_later() */
	int late_status;
	bool in_value, expects_continue;
	bool parsing, complete, open, refuse, too_large, closing, discarding;
	size_t discarded;
	unsigned writes;
};

/* Take a port of 127.0.0.1, where connections are refused until http_listen(). Port 0 lets the kernel choose, server->port then
 * says which. */
int http_bind(struct http_server *server, uv_loop_t *loop, int port, const struct http_handler *handler, void *context,
	struct error *error);
int http_listen(struct http_server *server, struct error *error);
/* Refuse connections again, and drop those there are. The port stays ours: http_listen() goes on. */
int http_unlisten(struct http_server *server, struct error *error);
void http_drop_connections(struct http_server *server);
/* Stop listening and drop all connections; the loop ends when nothing else keeps it. */
void http_server_close(struct http_server *server);

/* Send bytes in order. They are copied if the kernel does not take them at once. */
void http_send(struct http_connection *connection, const uv_buf_t *pieces, unsigned count);
size_t http_queued(const struct http_connection *connection); /* bytes that wait for the kernel */

/* A whole answer with its header, and http_finish(). headers: further lines, each ending in "\r\n", or "". */
void http_reply(struct http_connection *connection, int status, const char *content_type, const char *headers, struct bytes body);
/* The same as JSON, `ms` later, unless the client goes away before. The body is copied. */
void http_reply_later(struct http_connection *connection, int status, struct bytes body, uint64_t ms);
/* The header of an answer: status line, Server, Content-Type, and Content-Length, or chunked transfer when length < 0. */
void http_print_head(const struct http_connection *connection, int status, const char *content_type, const char *headers,
	int64_t length, struct buffer *out);

/* The three ends of an answer. The request's memory may be gone after each. */
void http_finish(struct http_connection *connection); /* keeps the connection if the client wants that */
void http_close(struct http_connection *connection);  /* what was sent arrives, then the connection ends */
void http_reset(struct http_connection *connection);  /* TCP reset */
