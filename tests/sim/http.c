/* The simulator's HTTP server. Loop thread. Start at run_parser(): all input passes through there. */
#include "tests/sim/http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "workflow/base/check.h"

enum {
	SEND_PIECES_MAX = 8,
	ERROR_BYTES_MAX = 16 * 1024,
	BODY_KEPT_MAX = 256 * 1024, /* memory a waiting connection keeps for its next body */
};

struct write {
	uv_write_t request;
	struct http_connection *connection;
	uint8_t data[];
};

static void run_parser(struct http_connection *connection);

/* ---- Connections: closing ---- */

static void on_connection_closed(uv_handle_t *handle)
{
	struct http_connection *connection = handle->data;

	if (--connection->open_handles > 0)
		return;
	connection->server->connection_count--;
	list_remove(&connection->link);
	buffer_close(&connection->path);
	buffer_close(&connection->query);
	buffer_close(&connection->body);
	buffer_close(&connection->url);
	buffer_close(&connection->ahead);
	buffer_close(&connection->field);
	buffer_close(&connection->value);
	buffer_close(&connection->late);
	free(connection);
}

/* Tell the handler first, so that it never sees a connection that is half gone. */
static void drop(struct http_connection *connection)
{
	if (connection->closing)
		return;
	connection->closing = true;
	if (connection->open) {
		connection->open = false;
		connection->server->handler->on_gone(connection);
	}
	uv_close((uv_handle_t *)&connection->idle, on_connection_closed);
	uv_close((uv_handle_t *)&connection->tcp, on_connection_closed);
}

static void on_idle(uv_timer_t *timer)
{
	drop(timer->data);
}

/* The time in which the next request must begin. */
static void await_request(struct http_connection *connection)
{
	if (connection->server->idle_ms > 0 && !connection->closing)
		uv_timer_start(&connection->idle, on_idle, (uint64_t)connection->server->idle_ms, 0);
}

static void on_shut_down(uv_shutdown_t *request, int status)
{
	struct http_connection *connection = CONTAINER_OF(request, struct http_connection, shutdown);

	(void)status;
	if (!connection->discarding)
		drop(connection);
}

void http_close(struct http_connection *connection)
{
	connection->open = false;
	if (connection->closing)
		return;
	if (uv_shutdown(&connection->shutdown, (uv_stream_t *)&connection->tcp, on_shut_down) != 0)
		drop(connection);
}

void http_reset(struct http_connection *connection)
{
	connection->open = false;
	if (connection->closing)
		return;
	connection->closing = true;
	uv_close((uv_handle_t *)&connection->idle, on_connection_closed);
	if (uv_tcp_close_reset(&connection->tcp, on_connection_closed) != 0)
		uv_close((uv_handle_t *)&connection->tcp, on_connection_closed);
}

void http_finish(struct http_connection *connection)
{
	if (!connection->keep_alive) {
		http_close(connection);
		return;
	}
	connection->open = false;
	await_request(connection);
	if (!connection->closing)
		run_parser(connection); /* The client may have sent its next request already. */
}

/* ---- Sending ---- */

size_t http_queued(const struct http_connection *connection)
{
	return uv_stream_get_write_queue_size((const uv_stream_t *)&connection->tcp);
}

static void on_written(uv_write_t *request, int status)
{
	struct write *write = CONTAINER_OF(request, struct write, request);
	struct http_connection *connection = write->connection;

	free(write);
	connection->writes--;
	if (connection->closing)
		return;
	if (status < 0)
		drop(connection);
	else if (connection->writes == 0 && connection->open)
		connection->server->handler->on_drained(connection);
}

void http_send(struct http_connection *connection, const uv_buf_t *pieces, unsigned count)
{
	size_t total = 0, taken = 0, offset = 0;
	struct write *write;
	uv_buf_t rest;
	int result;

	CHECK(count <= SEND_PIECES_MAX);
	if (connection->closing)
		return;
	for (unsigned i = 0; i < count; i++)
		total += pieces[i].len;
	if (total == 0)
		return;
	if (connection->writes == 0) { /* else uv_try_write would answer UV_EAGAIN anyway */
		result = uv_try_write((uv_stream_t *)&connection->tcp, pieces, count);
		if (result > 0)
			taken = (size_t)result;
		else if (result < 0 && result != UV_EAGAIN)
			return; /* The read side hears of it and drops the connection. */
		if (taken == total)
			return;
	}
	write = memory_alloc(sizeof(*write) + total - taken);
	write->connection = connection;
	for (unsigned i = 0; i < count; i++) {
		size_t skip = taken < pieces[i].len ? taken : pieces[i].len;

		memcpy(write->data + offset, pieces[i].base + skip, pieces[i].len - skip);
		offset += pieces[i].len - skip;
		taken -= skip;
	}
	rest = uv_buf_init((char *)write->data, (unsigned)offset);
	connection->writes++;
	if (uv_write(&write->request, (uv_stream_t *)&connection->tcp, &rest, 1, on_written) != 0) {
		connection->writes--;
		free(write);
	}
}

void http_print_head(const struct http_connection *connection, int status, const char *content_type, const char *headers,
	int64_t length, struct buffer *out)
{
	buffer_printf(out, "HTTP/1.1 %d %s\r\nServer: reprise-sim\r\nContent-Type: %s\r\n%s", status,
		http_status_str((enum http_status)status), content_type, headers);
	if (length >= 0)
		buffer_printf(out, "Content-Length: %lld\r\n", (long long)length);
	else if (connection->chunked)
		buffer_add_text(out, "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n");
	if (connection->keep_alive && connection->server->idle_header != NULL)
		buffer_add_text(out, connection->server->idle_header);
	buffer_add_text(out, connection->keep_alive ? "\r\n" : "Connection: close\r\n\r\n");
}

void http_reply(struct http_connection *connection, int status, const char *content_type, const char *headers, struct bytes body)
{
	struct buffer head;
	uv_buf_t pieces[2];

	connection->server->replies++;
	buffer_init(&head, 16 * 1024);
	http_print_head(connection, status, content_type, headers, (int64_t)body.len, &head);
	pieces[0] = uv_buf_init((char *)head.data, (unsigned)head.len);
	pieces[1] = uv_buf_init((char *)(uintptr_t)body.data, (unsigned)body.len);
	http_send(connection, pieces, 2);
	buffer_close(&head);
	http_finish(connection);
}

static void on_late(uv_timer_t *timer)
{
	struct http_connection *connection = timer->data;

	http_reply(connection, connection->late_status, "application/json", "", buffer_bytes(&connection->late));
}

void http_reply_later(struct http_connection *connection, int status, struct bytes body, uint64_t ms)
{
	buffer_clear(&connection->late);
	buffer_add_bytes(&connection->late, body);
	CHECK(!connection->late.overflow);
	connection->late_status = status;
	uv_timer_start(&connection->idle, on_late, ms, 0);
}

/* ---- Reading ---- */

/* An answer to a request that cannot be read on: the rest of its input is thrown away, because closing with unread
 * input makes the kernel reset the connection, and the client would never see why. */
static void refuse_request(struct http_connection *connection, int status)
{
	struct buffer body;

	buffer_init(&body, ERROR_BYTES_MAX);
	connection->server->handler->print_error(connection, status, &body);
	if (connection->open) {
		connection->open = false;
		connection->rejected = true;
		connection->server->handler->on_gone(connection);
	}
	connection->keep_alive = false;
	connection->discarding = true;
	http_reply(connection, status, "application/json", "", buffer_bytes(&body));
	buffer_close(&body);
}

static struct http_connection *of_parser(http_parser *parser)
{
	return parser->data;
}

static int on_message_begin(http_parser *parser)
{
	struct http_connection *connection = of_parser(parser);

	buffer_clear(&connection->url);
	buffer_clear(&connection->path);
	buffer_clear(&connection->query);
	uv_timer_stop(&connection->idle);
	if (connection->body.cap > BODY_KEPT_MAX) {
		buffer_close(&connection->body);
		buffer_init(&connection->body, HTTP_BODY_MAX);
	}
	buffer_clear(&connection->body);
	buffer_clear(&connection->field);
	buffer_clear(&connection->value);
	connection->idempotency_key[0] = connection->authorization[0] = connection->request_id[0] = connection->content_type[0] = '\0';
	connection->in_value = connection->expects_continue = connection->too_large = false;
	connection->exchange = NULL;
	return 0;
}

static int on_url(http_parser *parser, const char *at, size_t len)
{
	struct http_connection *connection = of_parser(parser);

	buffer_add(&connection->url, at, len);
	return connection->url.overflow ? 1 : 0;
}

static void keep_value(char kept[static HTTP_KEY_MAX + 1], const char *value)
{
	size_t len = strnlen(value, HTTP_KEY_MAX);

	memcpy(kept, value, len);
	kept[len] = '\0';
}

/* One header line is whole. Only a few matter here; the buffers are capped, a value that does not fit is cut. */
static void end_header_line(struct http_connection *connection)
{
	const char *field = buffer_text(&connection->field);
	const char *value = buffer_text(&connection->value);

	if (strcasecmp(field, "idempotency-key") == 0)
		keep_value(connection->idempotency_key, value);
	else if (strcasecmp(field, "authorization") == 0)
		keep_value(connection->authorization, value);
	else if (strcasecmp(field, "x-request-id") == 0)
		keep_value(connection->request_id, value);
	else if (strcasecmp(field, "content-type") == 0)
		keep_value(connection->content_type, value);
	else if (strcasecmp(field, "expect") == 0 && strcasecmp(value, "100-continue") == 0)
		connection->expects_continue = true;
	buffer_clear(&connection->field);
	buffer_clear(&connection->value);
	connection->in_value = false;
}

static void add_capped(struct buffer *buffer, const char *data, size_t len)
{
	size_t room = buffer->max - buffer->len;

	buffer_add(buffer, data, len < room ? len : room);
}

static int on_header_field(http_parser *parser, const char *at, size_t len)
{
	struct http_connection *connection = of_parser(parser);

	if (connection->in_value)
		end_header_line(connection);
	add_capped(&connection->field, at, len);
	return 0;
}

static int on_header_value(http_parser *parser, const char *at, size_t len)
{
	struct http_connection *connection = of_parser(parser);

	connection->in_value = true;
	add_capped(&connection->value, at, len);
	return 0;
}

static int on_headers_complete(http_parser *parser)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct http_connection *connection = of_parser(parser);
	struct http_parser_url parts;
	uv_buf_t piece = uv_buf_init((char *)(uintptr_t)go_on, sizeof(go_on) - 1);

	end_header_line(connection);
	parser->upgrade = 0; /* An offer to upgrade may be ignored. */
	connection->method = (enum http_method)parser->method;
	connection->keep_alive = http_should_keep_alive(parser) != 0;
	connection->chunked = parser->http_major > 1 || (parser->http_major == 1 && parser->http_minor >= 1);
	http_parser_url_init(&parts);
	if (http_parser_parse_url((const char *)connection->url.data, connection->url.len, 0, &parts) != 0)
		return -1;
	if (parts.field_set & (1 << UF_PATH))
		buffer_add(&connection->path, connection->url.data + parts.field_data[UF_PATH].off, parts.field_data[UF_PATH].len);
	if (parts.field_set & (1 << UF_QUERY))
		buffer_add(&connection->query, connection->url.data + parts.field_data[UF_QUERY].off, parts.field_data[UF_QUERY].len);
	connection->open = true;
	if (!connection->server->handler->on_header(connection)) {
		connection->refuse = true;
		return -1;
	}
	if (parser->content_length != UINT64_MAX && parser->content_length > HTTP_BODY_MAX) {
		connection->too_large = true;
		return -1;
	}
	if (connection->expects_continue)
		http_send(connection, &piece, 1);
	return 0;
}

static int on_body(http_parser *parser, const char *at, size_t len)
{
	struct http_connection *connection = of_parser(parser);

	buffer_add(&connection->body, at, len);
	connection->too_large = connection->body.overflow; /* a chunked body does not say its length before */
	return connection->too_large ? 1 : 0;
}

static int on_message_complete(http_parser *parser)
{
	struct http_connection *connection = of_parser(parser);

	connection->complete = true;
	http_parser_pause(parser, 1); /* The next request waits until this one is answered. */
	return 0;
}

static const http_parser_settings parser_settings = {
	.on_message_begin = on_message_begin,
	.on_url = on_url,
	.on_header_field = on_header_field,
	.on_header_value = on_header_value,
	.on_headers_complete = on_headers_complete,
	.on_body = on_body,
	.on_message_complete = on_message_complete,
};

/* Parse what has arrived, up to the end of one request, and again when that was answered at once. `parsing` keeps a
 * client that sends many small requests in one piece from growing our stack. */
static void run_parser(struct http_connection *connection)
{
	if (connection->parsing)
		return;
	connection->parsing = true;
	while (connection->ahead.len > 0 && !connection->closing && !connection->discarding) {
		size_t used;

		if (connection->open && connection->complete)
			break;
		connection->complete = false;
		used = http_parser_execute(&connection->parser, &parser_settings, (const char *)connection->ahead.data,
			connection->ahead.len);
		buffer_remove_front(&connection->ahead, used);
		if (connection->complete) {
			http_parser_pause(&connection->parser, 0);
			connection->server->handler->on_request(connection);
		} else if (connection->refuse) {
			http_reset(connection);
		} else if (connection->too_large) {
			refuse_request(connection, 413);
		} else if (connection->url.overflow) {
			refuse_request(connection, 414);
		} else if (HTTP_PARSER_ERRNO(&connection->parser) != HPE_OK) {
			refuse_request(connection, HTTP_PARSER_ERRNO(&connection->parser) == HPE_HEADER_OVERFLOW ? 431 : 400);
		}
	}
	connection->parsing = false;
}

/* One buffer for all connections: what is read is taken over before the next read. */
static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
	static char shared[HTTP_AHEAD_MAX];

	(void)handle;
	(void)suggested;
	*buffer = uv_buf_init(shared, sizeof(shared));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
	struct http_connection *connection = stream->data;

	if (count < 0) {
		drop(connection);
		return;
	}
	if (connection->discarding) {
		connection->discarded += (size_t)count;
		if (connection->discarded > HTTP_DISCARD_MAX)
			drop(connection);
		return;
	}
	buffer_add(&connection->ahead, buffer->base, (size_t)count);
	if (connection->ahead.overflow)
		drop(connection);
	else
		run_parser(connection);
}

static void on_connection(uv_stream_t *listener, int status)
{
	struct http_server *server = listener->data;
	struct http_connection *connection;

	if (status < 0)
		return;
	connection = memory_zero(sizeof(*connection));
	connection->server = server;
	list_add_last(&server->connections, &connection->link);
	server->connection_count++;
	buffer_init(&connection->path, HTTP_URL_MAX);
	buffer_init(&connection->query, HTTP_URL_MAX);
	buffer_init(&connection->url, HTTP_URL_MAX);
	buffer_init(&connection->body, HTTP_BODY_MAX);
	buffer_init(&connection->ahead, HTTP_AHEAD_MAX);
	buffer_init(&connection->field, HTTP_KEY_MAX);
	buffer_init(&connection->value, HTTP_KEY_MAX);
	buffer_init(&connection->late, HTTP_BODY_MAX);
	http_parser_init(&connection->parser, HTTP_REQUEST);
	connection->parser.data = connection;
	CHECK(uv_tcp_init(listener->loop, &connection->tcp) == 0 && uv_timer_init(listener->loop, &connection->idle) == 0);
	connection->tcp.data = connection->idle.data = connection;
	connection->open_handles = 2;
	if (uv_accept(listener, (uv_stream_t *)&connection->tcp) != 0) {
		drop(connection);
		return;
	}
	if (server->connection_count > server->connections_max) {
		server->connections_refused++;
		drop(connection);
		return;
	}
	uv_tcp_nodelay(&connection->tcp, 1); /* Two writes shall be two packets: cadence and split events depend on it. */
	if (uv_read_start((uv_stream_t *)&connection->tcp, give_buffer, on_read) != 0)
		drop(connection);
}

/* ---- The server ---- */

static uv_tcp_t *listener_of(struct http_server *server)
{
	return &server->listeners[server->turn].tcp;
}

static void on_listener_closed(uv_handle_t *handle)
{
	CONTAINER_OF(handle, struct http_listener, tcp)->closing = false;
}

static void close_listener(struct http_server *server)
{
	server->listeners[server->turn].closing = true;
	uv_close((uv_handle_t *)listener_of(server), on_listener_closed);
}

static int bind_port(struct http_server *server, int port, struct error *error)
{
	struct sockaddr_in address;
	int length = sizeof(address);
	int result;

	CHECK(uv_tcp_init(server->loop, listener_of(server)) == 0);
	listener_of(server)->data = server;
	uv_ip4_addr("127.0.0.1", port, &address);
	result = uv_tcp_bind(listener_of(server), (const struct sockaddr *)&address, 0);
	if (result == 0)
		result = uv_tcp_getsockname(listener_of(server), (struct sockaddr *)&address, &length);
	if (result != 0)
		return error_set(error, ERR_IO, "listen on 127.0.0.1:%d: %s", port, uv_strerror(result));
	server->port = ntohs(address.sin_port);
	return 0;
}

int http_bind(struct http_server *server, uv_loop_t *loop, int port, const struct http_handler *handler, void *context,
	struct error *error)
{
	memset(server, 0, sizeof(*server));
	list_init(&server->connections);
	server->loop = loop;
	server->handler = handler;
	server->context = context;
	server->connections_max = HTTP_CONNECTIONS_MAX;
	return bind_port(server, port, error);
}

int http_listen(struct http_server *server, struct error *error)
{
	int result = uv_listen((uv_stream_t *)listener_of(server), HTTP_BACKLOG, on_connection);

	if (result != 0)
		return error_set(error, ERR_IO, "listen on 127.0.0.1:%d: %s", server->port, uv_strerror(result));
	return 0;
}

int http_unlisten(struct http_server *server, struct error *error)
{
	if (server->listeners[server->turn ^ 1].closing)
		return error_set(error, ERR_BUSY, "the port was given back a moment ago");
	close_listener(server);
	server->turn ^= 1;
	return bind_port(server, server->port, error);
}

void http_drop_connections(struct http_server *server)
{
	LIST_EACH_SAFE(link, &server->connections)
		drop(CONTAINER_OF(link, struct http_connection, link));
}

void http_server_close(struct http_server *server)
{
	close_listener(server);
	http_drop_connections(server);
}
