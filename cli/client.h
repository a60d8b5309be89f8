/* HTTP to the daemon: libcurl over its Unix socket, or over a URL with a token. One thread, one connection that is kept.
 * Where the daemon is: --socket / --url, then $REPRISE_SOCKET / $REPRISE_URL, then DATA/reprise.sock.
 * New here? Read client_send(). */
#pragma once

#include <curl/curl.h>

#include "workflow/base/json.h"

enum {
	CLIENT_BODY_MAX = 256 << 20, /* bytes of an answer that is kept whole */
	CLIENT_EVENT_MAX = 64 << 20, /* bytes of one event of a stream */
	CLIENT_TIMEOUT_MS = 60000, /* of a request that waits for nothing */
	CLIENT_CONNECT_MS = 5000,
	CLIENT_STREAM_QUIET_S = 60, /* a stream that says nothing so long (the daemon comments every 15 s) is dead */
};

struct client {
	CURL *easy;
	char *socket_path; /* NULL: url */
	char *url; /* without a trailing slash */
	char *token; /* NULL: none */
	bool answered; /* the daemon has answered at least once: it is there, and is waited for when it goes away */
};

struct client_options {
	const char *socket_path, *url, *data_dir; /* what the user gave; NULL: not given */
};

int client_open(struct client *client, const struct client_options *options, struct error *error);
void client_close(struct client *client);
/* "DATA" as the daemon would choose it: --data, $REPRISE_DATA, $XDG_STATE_HOME/reprise, … In the arena. */
char *client_data_dir(struct arena *arena, const char *data_option);
const char *client_place(const struct client *client); /* socket path or URL, for messages */

struct request {
	const char *method; /* NULL: GET */
	const char *path; /* "/v1/runs?limit=10" */
	struct bytes body; /* data NULL: none */
	const char *content_type; /* NULL: application/json */
	const char *accept; /* NULL: any */
	uint64_t last_event_id;
	bool has_last_event_id;
	int64_t timeout_ms; /* 0: CLIENT_TIMEOUT_MS; negative: none */
};

struct reply {
	long status;
	struct buffer body;
	char content_type[128];
	int64_t retry_after_s; /* -1: not said */
	bool maybe_sent; /* after an error: the daemon may have seen the request */
};

/* 0 whatever the status is, or ERR_UNREACHABLE (nobody listens), ERR_IO (the connection broke), ERR_TIMEOUT, ERR_TOO_LARGE.
 * The caller calls reply_close() in every case. */
int client_send(struct client *client, const struct request *request, struct reply *reply, struct error *error);
void reply_close(struct reply *reply);

/* An event stream (text/event-stream). on_event gets each event's id (has_id false: none), name ("message" by default) and
 * data; it returns false to stop. Returns 0 when the daemon ended the stream or on_event stopped it; a status other than
 * 200 ends it at once with the body in the reply. */
typedef bool (*client_event_cb)(void *arg, bool has_id, uint64_t id, const char *name, struct bytes data);
int client_stream(struct client *client, const struct request *request, client_event_cb on_event, void *arg, struct reply *reply, struct error *error);

/* The parser behind it, fed in pieces of any size; for tests too. */
struct event_parser {
	struct buffer line, data;
	char name[64];
	uint64_t id;
	bool has_id, skip_newline, stopped, overflow;
	client_event_cb on_event;
	void *arg;
};
void event_parser_init(struct event_parser *parser, client_event_cb on_event, void *arg);
void event_parser_close(struct event_parser *parser);
void event_parser_add(struct event_parser *parser, const void *data, size_t len);

/* Add text percent-encoded for a path segment or a query value. */
void url_add(struct buffer *out, const char *text);
/* Add "?name=value" or "&name=value", whichever the path needs; nothing for a NULL value. */
void query_add(struct buffer *path, const char *name, const char *value);
/* Set up what every transfer of ours has in common; for the benchmarks' own handles. */
void client_prepare(const struct client *client, CURL *easy, const char *url);
char *client_url(struct arena *arena, const struct client *client, const char *path);
