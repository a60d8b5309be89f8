/* See client.h. */
#include "cli/client.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>
#include <unistd.h>

#include "workflow/base/check.h"
#include "workflow/base/url.h"

char *client_data_dir(struct arena *arena, const char *data_option)
{
	const char *value = data_option != NULL ? data_option : getenv("REPRISE_DATA");
	if (value != NULL && value[0] != '\0')
		return arena_text(arena, value);
	value = getenv("XDG_STATE_HOME");
	if (value != NULL && value[0] != '\0')
		return arena_printf(arena, "%s/reprise", value);
	const char *home = getenv("HOME");
	if (geteuid() == 0 || home == NULL)
		return arena_text(arena, "/var/lib/reprise");
	return arena_printf(arena, "%s/.local/state/reprise", home);
}

static const char *nonempty_env(const char *name)
{
	const char *value = getenv(name);
	return value != NULL && value[0] != '\0' ? value : NULL;
}

int client_open(struct client *client, const struct client_options *options, struct error *error)
{
	memset(client, 0, sizeof *client);
	const char *socket_path = options->socket_path, *url = options->url;
	/* An empty word is mostly a variable that was not set: it must not mean the default's daemon, nor any. */
	if (socket_path != NULL && (socket_path[0] == '\0' || strcmp(socket_path, "unix:") == 0))
		return error_set(error, ERR_INVALID, "--socket is empty: the path of the daemon's socket is meant");
	if (url != NULL && url[0] == '\0')
		return error_set(error, ERR_INVALID, "--url is empty: the daemon's address is meant");
	if (options->data_dir != NULL && options->data_dir[0] == '\0')
		return error_set(error, ERR_INVALID, "--data is empty: the daemon's data folder is meant");
	if (socket_path != NULL && url != NULL)
		return error_set(error, ERR_INVALID, "--socket and --url exclude each other: give one of them");
	/* A flag for one of the two is stronger than the environment's word for the other. */
	if (socket_path == NULL && url == NULL && options->data_dir == NULL) {
		socket_path = nonempty_env("REPRISE_SOCKET");
		url = socket_path == NULL ? nonempty_env("REPRISE_URL") : NULL;
	}
	if (url != NULL) {
		if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
			return error_set(error, ERR_INVALID, "URL %s: begins with neither http:// nor https://", url);
		client->url = memory_text(url);
		for (size_t len = strlen(client->url); len > 0 && client->url[len - 1] == '/'; len--)
			client->url[len - 1] = '\0';
	} else if (socket_path != NULL) {
		client->socket_path = memory_text(strncmp(socket_path, "unix:", 5) == 0 ? socket_path + 5 : socket_path);
	} else {
		struct arena arena;
		arena_init(&arena);
		client->socket_path = memory_text(arena_printf(&arena, "%s/reprise.sock", client_data_dir(&arena, options->data_dir)));
		arena_close(&arena);
	}
	size_t path_max = sizeof ((struct sockaddr_un *)NULL)->sun_path - 1;
	if (client->socket_path != NULL && strlen(client->socket_path) > path_max) {
		error_set(error, ERR_INVALID, "socket path of %zu bytes is over the system's limit of %zu: %s", strlen(client->socket_path), path_max, client->socket_path);
		client_close(client);
		return ERR_INVALID;
	}
	const char *token = nonempty_env("REPRISE_TOKEN");
	client->token = token == NULL ? NULL : memory_text(token);
	return 0;
}

void client_close(struct client *client)
{
	if (client->easy != NULL)
		curl_easy_cleanup(client->easy);
	free(client->socket_path);
	free(client->url);
	if (client->token != NULL)
		explicit_bzero(client->token, strlen(client->token));
	free(client->token);
	memset(client, 0, sizeof *client);
}

const char *client_place(const struct client *client)
{
	return client->socket_path != NULL ? client->socket_path : client->url;
}

char *client_url(struct arena *arena, const struct client *client, const char *path)
{
	return arena_printf(arena, "%s%s", client->url != NULL ? client->url : "http://reprise", path);
}

void client_prepare(const struct client *client, CURL *easy, const char *url)
{
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "reprise/" REPRISE_VERSION);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CLIENT_CONNECT_MS);
	curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
	if (client->socket_path != NULL)
		curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, client->socket_path);
	if (client->token != NULL) {
		/* Redirects are not followed, so the token goes nowhere else. */
		curl_easy_setopt(easy, CURLOPT_XOAUTH2_BEARER, client->token);
		curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
	}
}

/* NULL, an id that an answer should have had and has not, adds nothing: the daemon then says that there is no such path. */
void url_add(struct buffer *out, const char *text)
{
	if (text == NULL)
		return;
	url_encode(out, bytes_text(text), URL_KEEP_UNRESERVED);
}

void query_add(struct buffer *path, const char *name, const char *value)
{
	if (value == NULL)
		return;
	buffer_add_char(path, strchr(buffer_text(path), '?') == NULL ? '?' : '&');
	buffer_add_text(path, name);
	buffer_add_char(path, '=');
	url_add(path, value);
}

struct transfer {
	struct client *client;
	struct reply *reply;
	struct event_parser *parser; /* NULL: keep the body */
};

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
	struct transfer *transfer = arg;
	size_t len = size * count;
	long status = 0;
	curl_easy_getinfo(transfer->client->easy, CURLINFO_RESPONSE_CODE, &status);
	if (transfer->parser != NULL && status == 200) {
		event_parser_add(transfer->parser, data, len);
		return transfer->parser->stopped || transfer->parser->overflow ? 0 : len;
	}
	buffer_add(&transfer->reply->body, data, len);
	return transfer->reply->body.overflow ? 0 : len;
}

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
	struct reply *reply = ((struct transfer *)arg)->reply;
	size_t len = size * count;
	static const char retry[] = "retry-after:";
	if (len > sizeof retry && strncasecmp(data, retry, sizeof retry - 1) == 0) {
		char number[32];
		size_t copy = len - (sizeof retry - 1) < sizeof number - 1 ? len - (sizeof retry - 1) : sizeof number - 1;
		memcpy(number, data + sizeof retry - 1, copy);
		number[copy] = '\0';
		reply->retry_after_s = atoll(number);
	}
	return len;
}

static enum error_code code_of(CURLcode result, struct reply *reply)
{
	switch (result) {
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
		reply->maybe_sent = false;
		return ERR_UNREACHABLE;
	case CURLE_OPERATION_TIMEDOUT:
		return ERR_TIMEOUT;
	default:
		return ERR_IO;
	}
}

static int perform(struct client *client, const struct request *request, struct event_parser *parser, struct reply *reply, struct error *error)
{
	memset(reply, 0, sizeof *reply);
	buffer_init(&reply->body, CLIENT_BODY_MAX);
	reply->retry_after_s = -1;
	reply->maybe_sent = true;
	if (client->easy == NULL && (client->easy = curl_easy_init()) == NULL)
		return error_set(error, ERR_INTERNAL, "libcurl cannot be initialised");

	struct arena arena;
	arena_init(&arena);
	struct transfer transfer = {client, reply, parser};
	char detail[CURL_ERROR_SIZE] = "";
	CURL *easy = client->easy;
	struct curl_slist *headers = NULL;
	const char *method = request->method == NULL ? "GET" : request->method;

	curl_easy_reset(easy);
	client_prepare(client, easy, client_url(&arena, client, request->path));
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, detail);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
	if (parser != NULL) {
		curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
		curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)CLIENT_STREAM_QUIET_S);
	} else if (request->timeout_ms >= 0) {
		curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(request->timeout_ms == 0 ? CLIENT_TIMEOUT_MS : request->timeout_ms));
	}
	if (strcmp(method, "GET") != 0) {
		/* A POST without a body still says Content-Length: 0. */
		curl_easy_setopt(easy, CURLOPT_POST, 1L);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body.data == NULL ? "" : (const char *)request->body.data);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
		curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
		headers = curl_slist_append(headers, arena_printf(&arena, "Content-Type: %s", request->content_type == NULL ? "application/json" : request->content_type));
		headers = curl_slist_append(headers, "Expect:");
	}
	if (request->accept != NULL)
		headers = curl_slist_append(headers, arena_printf(&arena, "Accept: %s", request->accept));
	if (request->has_last_event_id)
		headers = curl_slist_append(headers, arena_printf(&arena, "Last-Event-ID: %llu", (unsigned long long)request->last_event_id));
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);

	CURLcode result = curl_easy_perform(easy);
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &reply->status);
	client->answered |= reply->status > 0; /* also where the connection broke behind the first line */
	const char *type = NULL;
	if (curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type) == CURLE_OK && type != NULL)
		snprintf(reply->content_type, sizeof reply->content_type, "%s", type);
	curl_slist_free_all(headers);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, NULL);

	int code = 0;
	bool stopped = parser != NULL && parser->stopped;
	if (reply->body.overflow)
		code = error_set(error, ERR_TOO_LARGE, "%s %s: the answer is over the command line's limit of %d bytes", method, request->path, CLIENT_BODY_MAX);
	else if (parser != NULL && parser->overflow)
		code = error_set(error, ERR_TOO_LARGE, "%s %s: one event is over the command line's limit of %d bytes", method, request->path, CLIENT_EVENT_MAX);
	else if (result != CURLE_OK && !stopped)
		code = error_set(error, code_of(result, reply), "%s %s: %s", method, request->path, detail[0] != '\0' ? detail : curl_easy_strerror(result));
	arena_close(&arena);
	return code;
}

int client_send(struct client *client, const struct request *request, struct reply *reply, struct error *error)
{
	return perform(client, request, NULL, reply, error);
}

int client_stream(struct client *client, const struct request *request, client_event_cb on_event, void *arg, struct reply *reply, struct error *error)
{
	struct event_parser parser;
	event_parser_init(&parser, on_event, arg);
	struct request stream = *request;
	stream.accept = "text/event-stream";
	int code = perform(client, &stream, &parser, reply, error);
	event_parser_close(&parser);
	return code;
}

void reply_close(struct reply *reply)
{
	buffer_close(&reply->body);
}

void event_parser_init(struct event_parser *parser, client_event_cb on_event, void *arg)
{
	memset(parser, 0, sizeof *parser);
	buffer_init(&parser->line, CLIENT_EVENT_MAX);
	buffer_init(&parser->data, CLIENT_EVENT_MAX);
	parser->on_event = on_event;
	parser->arg = arg;
}

void event_parser_close(struct event_parser *parser)
{
	buffer_close(&parser->line);
	buffer_close(&parser->data);
}

/* A blank line ends an event; one without data is none, but its id counts. */
static void finish_event(struct event_parser *parser)
{
	if (parser->data.len > 0) {
		parser->data.len--; /* the newline behind the last line */
		parser->data.data[parser->data.len] = '\0';
		if (!parser->on_event(parser->arg, parser->has_id, parser->id, parser->name[0] == '\0' ? "message" : parser->name, buffer_bytes(&parser->data)))
			parser->stopped = true;
	}
	buffer_clear(&parser->data);
	parser->name[0] = '\0';
}

static void finish_line(struct event_parser *parser)
{
	char *line = (char *)buffer_text(&parser->line);
	if (parser->line.len == 0) {
		finish_event(parser);
		return;
	}
	char *value = strchr(line, ':');
	if (value == line)
		return; /* a comment: the daemon shows that it lives */
	if (value == NULL) {
		value = line + strlen(line);
	} else {
		*value++ = '\0';
		if (*value == ' ')
			value++;
	}
	if (strcmp(line, "data") == 0) {
		buffer_add_text(&parser->data, value);
		buffer_add_char(&parser->data, '\n');
		parser->overflow |= parser->data.overflow;
	} else if (strcmp(line, "event") == 0) {
		snprintf(parser->name, sizeof parser->name, "%s", value);
	} else if (strcmp(line, "id") == 0) {
		char *end;
		unsigned long long id = strtoull(value, &end, 10);
		if (end != value && *end == '\0') {
			parser->id = id;
			parser->has_id = true;
		}
	}
}

void event_parser_add(struct event_parser *parser, const void *data, size_t len)
{
	const char *bytes = data;
	for (size_t i = 0; i < len && !parser->stopped && !parser->overflow; i++) {
		bool skip = parser->skip_newline && bytes[i] == '\n';
		parser->skip_newline = false;
		if (skip)
			continue;
		size_t end = i;
		while (end < len && bytes[end] != '\n' && bytes[end] != '\r')
			end++;
		buffer_add(&parser->line, bytes + i, end - i);
		parser->overflow |= parser->line.overflow;
		i = end;
		if (end < len && !parser->overflow) {
			parser->skip_newline = bytes[end] == '\r';
			finish_line(parser);
			buffer_clear(&parser->line);
		}
	}
}
