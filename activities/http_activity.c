/* `call: http` (dsl.md 1.9): one request, its redirects if asked for, one result. Effects outside are possible, so each request
 * has a connection of its own and carries the idempotency key; addresses are checked where the socket is opened, on each hop
 * (semantics.md 3 and 10). Loop thread; a large answer is read on the uv pool. Start at http_activity_start(), then admit() and send_hop(). */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "activities/internal.h"
#include "workflow/base/check.h"

enum { QUERY_VALUE_LEN_MAX = 4096 };

enum output_kind { OUTPUT_CONTENT, OUTPUT_RAW, OUTPUT_RESPONSE };

struct http_work {
	struct work work;
	enum output_kind output;
	bool follow;
	const char *method, *url;
	struct json *headers; /* as sent, by name */
	struct bytes body;
	bool has_body;
	char host[256];
	const char *first_url; /* whose scheme, host and port may be told secrets */
	unsigned hops;
	struct transfer transfer;
	bool transfer_open;
	struct deadline *connect, *total;
	bool receiving;
	struct list link; /* in activities->http.waiting */
	bool waiting, in_flight;

	/* For the pool, which has the attempt's arena to itself meanwhile. */
	uv_work_t pool;
	bool in_pool;
	struct json *result; /* NULL: error says why */
	struct error error;
};

/* ---- Arguments ---- */

/* A text, number or boolean as a text; NULL for anything else. */
static const char *scalar_text(struct arena *arena, const struct json *json)
{
	struct buffer text;
	const char *copy;

	if (json_is(json, JSON_STRING))
		return json->string.text;
	if (!json_is(json, JSON_NUMBER) && !json_is(json, JSON_BOOLEAN))
		return NULL;
	buffer_init(&text, 64);
	json_print(json, &text);
	copy = arena_text(arena, buffer_text(&text));
	buffer_close(&text);
	return copy;
}

static const struct json *find_header(const struct json *headers, const char *name)
{
	for (size_t i = 0; i < json_count(headers); i++)
		if (strcasecmp(headers->object.members[i].name, name) == 0)
			return headers->object.members[i].value;
	return NULL;
}

static bool is_header_name(const char *name)
{
	return name[0] != '\0' && name[strspn(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] == '\0';
}

static bool is_header_value(const char *value)
{
	for (; *value != '\0'; value++)
		if (((unsigned char)*value < ' ' && *value != '\t') || *value == 0x7F)
			return false;
	return true;
}

static bool read_headers(struct http_work *own, const struct json *headers, struct error *error)
{
	static const char *const ours[] = {"Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade"};
	struct activity *activity = own->work.activity;
	struct arena *arena = &activity->arena;

	own->headers = json_object(arena);
	if (headers != NULL && headers->type != JSON_OBJECT && headers->type != JSON_NULL) {
		error_set(error, ERR_INVALID, "headers is not an object");
		return false;
	}
	for (size_t i = 0; json_is(headers, JSON_OBJECT) && i < json_count(headers); i++) {
		const struct json_member *member = &headers->object.members[i];
		const char *value = scalar_text(arena, member->value);

		if (!is_header_name(member->name) || value == NULL || !is_header_value(value)) {
			error_set(error, ERR_INVALID, "headers.%.60s: not a header's name, or not a text on one line", member->name);
			return false;
		}
		for (size_t j = 0; j < COUNT_OF(ours); j++)
			if (strcasecmp(member->name, ours[j]) == 0) {
				error_set(error, ERR_INVALID, "headers.%.60s is set by the daemon", member->name);
				return false;
			}
		json_set_text(arena, own->headers, member->name, value);
	}
	if (find_header(own->headers, "Idempotency-Key") == NULL && activity->idempotency_key != NULL)
		json_set_text(arena, own->headers, "Idempotency-Key", activity->idempotency_key);
	if (find_header(own->headers, "User-Agent") == NULL)
		json_set_text(arena, own->headers, "User-Agent", own->work.activities->user_agent);
	return true;
}

static bool read_body(struct http_work *own, const struct json *body, struct error *error)
{
	struct arena *arena = &own->work.activity->arena;
	const char *type = "application/json";
	struct buffer text;
	bool ok;

	if (body == NULL || body->type == JSON_NULL) {
		/* Without this, servers wait or answer 411. */
		own->has_body = strcmp(own->method, "POST") == 0 || strcmp(own->method, "PUT") == 0 || strcmp(own->method, "PATCH") == 0;
		if (own->has_body && find_header(own->headers, "Content-Type") == NULL)
			json_set_text(arena, own->headers, "Content-Type", type);
		return true;
	}
	own->has_body = true;
	buffer_init(&text, ACTIVITY_BODY_MAX);
	if (body->type == JSON_STRING) {
		buffer_add(&text, body->string.text, body->string.len);
		type = "text/plain; charset=utf-8";
	} else {
		json_print(body, &text);
	}
	ok = !text.overflow;
	if (ok)
		own->body = arena_bytes(arena, buffer_bytes(&text));
	else
		error_set(error, ERR_TOO_LARGE, "the body is larger than %d bytes (ACTIVITY_BODY_MAX)", ACTIVITY_BODY_MAX);
	buffer_close(&text);
	if (find_header(own->headers, "Content-Type") == NULL)
		json_set_text(arena, own->headers, "Content-Type", type);
	return ok;
}

static void add_encoded(struct buffer *url, const char *text)
{
	static const char hex[] = "0123456789ABCDEF";

	for (; *text != '\0'; text++) {
		unsigned char c = (unsigned char)*text;

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~", c) != NULL) {
			buffer_add_char(url, (char)c);
		} else {
			buffer_add_char(url, '%');
			buffer_add_char(url, hex[c >> 4]);
			buffer_add_char(url, hex[c & 15]);
		}
	}
}

static bool read_url(struct http_work *own, const struct json *with, struct error *error)
{
	struct arena *arena = &own->work.activity->arena;
	const struct json *endpoint = json_get(with, "endpoint"), *query = json_get(with, "query");
	const char *text = json_get_text(with, "endpoint"), *fragment;
	struct buffer url;
	char separator;
	bool ok = false;

	if (text == NULL)
		text = json_get_text(endpoint, "uri");
	if (text == NULL) {
		error_set(error, ERR_INVALID, "endpoint is neither a text nor {uri: text}");
		return false;
	}
	buffer_init(&url, CURL_URL_LEN_MAX + 1);
	fragment = strchr(text, '#'); /* is never sent */
	buffer_add(&url, text, fragment != NULL ? (size_t)(fragment - text) : strlen(text));
	separator = strchr(buffer_text(&url), '?') != NULL ? '&' : '?';
	if (query != NULL && query->type != JSON_OBJECT && query->type != JSON_NULL) {
		error_set(error, ERR_INVALID, "query is not an object");
		goto out;
	}
	for (size_t i = 0; json_is(query, JSON_OBJECT) && i < json_count(query); i++) {
		const struct json_member *member = &query->object.members[i];
		const char *value = scalar_text(arena, member->value);

		if (value == NULL || strlen(value) > QUERY_VALUE_LEN_MAX) {
			error_set(error, ERR_INVALID, "query.%.60s is no text, number or boolean, or longer than %d bytes (QUERY_VALUE_LEN_MAX)", member->name,
				  QUERY_VALUE_LEN_MAX);
			goto out;
		}
		buffer_add_char(&url, separator);
		add_encoded(&url, member->name);
		buffer_add_char(&url, '=');
		add_encoded(&url, value);
		separator = '&';
	}
	if (url.overflow) {
		error_set(error, ERR_TOO_LARGE, "the URL is longer than %d bytes (CURL_URL_LEN_MAX)", CURL_URL_LEN_MAX);
		goto out;
	}
	own->url = arena_text(arena, buffer_text(&url));
	ok = url_check(own->url, own->host, error);
	own->first_url = own->url;
out:
	buffer_close(&url);
	return ok;
}

static bool read_arguments(struct http_work *own, struct error *error)
{
	const struct json *with = own->work.activity->with;
	const char *method = json_get_text(with, "method"), *output = json_get_text(with, "output");
	char *upper;

	if (method == NULL || method[0] == '\0' || method[strspn(method, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")] != '\0') {
		error_set(error, ERR_INVALID, "method is missing, or not the name of an HTTP method");
		return false;
	}
	upper = arena_text(&own->work.activity->arena, method);
	for (char *at = upper; *at != '\0'; at++)
		if (*at >= 'a' && *at <= 'z')
			*at = (char)(*at - 'a' + 'A');
	own->method = upper;
	if (output == NULL ? json_truthy(json_get(with, "output")) :
			     strcmp(output, "content") != 0 && strcmp(output, "raw") != 0 && strcmp(output, "response") != 0) {
		error_set(error, ERR_INVALID, "output is none of content, raw, response");
		return false;
	}
	own->output = output == NULL || output[0] == 'c' ? OUTPUT_CONTENT : output[1] == 'a' ? OUTPUT_RAW : OUTPUT_RESPONSE;
	own->follow = json_get_boolean(with, "redirect", false);
	return read_url(own, with, error) && read_headers(own, json_get(with, "headers"), error) &&
	       read_body(own, json_get(with, "body"), error);
}

/* ---- Results ---- */

/* Header bytes beyond ASCII have no stated meaning; taken as Latin-1 they always become a text. */
static struct json *header_text(struct arena *arena, const char *text, size_t len)
{
	struct buffer out;
	struct json *json;

	buffer_init(&out, 2 * (size_t)CURL_RESPONSE_HEADERS_MAX);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c >= 0x80) {
			buffer_add_char(&out, (char)(0xC0 | c >> 6));
			buffer_add_char(&out, (char)(0x80 | (c & 0x3F)));
		} else if (c != '\0') {
			buffer_add_char(&out, (char)c);
		}
	}
	json = json_text_len(arena, buffer_text(&out), out.len);
	buffer_close(&out);
	return json;
}

static struct json *response_headers(const struct transfer *transfer, struct arena *arena)
{
	struct json *headers = json_object(arena);
	const char *line = buffer_text(&transfer->header_lines), *next;

	for (line = strchr(line, '\n'); line != NULL; line = next) {
		const char *end, *colon, *value;
		char *name;

		line++;
		next = strchr(line, '\n');
		end = next != NULL ? next : line + strlen(line);
		colon = memchr(line, ':', (size_t)(end - line));
		if (colon == NULL || colon == line)
			continue;
		name = arena_text_len(arena, line, (size_t)(colon - line));
		if (!is_header_name(name))
			continue;
		for (char *at = name; *at != '\0'; at++)
			if (*at >= 'A' && *at <= 'Z')
				*at = (char)(*at - 'A' + 'a');
		value = colon + 1;
		while (value < end && (*value == ' ' || *value == '\t'))
			value++;
		while (end > value && strchr(" \t\r\n", end[-1]) != NULL)
			end--;
		if (json_get_text(headers, name) != NULL) {
			const struct json *more = header_text(arena, value, (size_t)(end - value));

			json_set(arena, headers, name, json_printf(arena, "%s, %s", json_get_text(headers, name), more->string.text));
		} else {
			json_set(arena, headers, name, header_text(arena, value, (size_t)(end - value)));
		}
	}
	return headers;
}

static struct json *base64_text(struct arena *arena, struct bytes bytes)
{
	struct buffer text;
	struct json *json;

	buffer_init(&text, ((size_t)ACTIVITY_BODY_MAX + 2) / 3 * 4);
	base64_add(&text, bytes);
	json = json_text_len(arena, buffer_text(&text), text.len);
	buffer_close(&text);
	return json;
}

static bool is_json_type(const char *type)
{
	size_t len = strcspn(type, "; \t");

	return (len == 16 && strncasecmp(type, "application/json", len) == 0) || (len > 5 && strncasecmp(type + len - 5, "+json", 5) == 0) ||
	       (len == 9 && strncasecmp(type, "text/json", len) == 0);
}

static struct json *read_content(struct http_work *own, struct bytes body, struct error *error)
{
	struct arena *arena = &own->work.activity->arena;
	char type[256];

	if (body.len == 0)
		return json_null(arena);
	if (is_json_type(transfer_header(&own->transfer, "Content-Type", type, sizeof(type))))
		return json_parse(arena, body, JSON_STRICT, NULL, error);
	/* A NUL cannot stand in our texts. */
	if (utf8_valid(body, NULL) && memchr(body.data, 0, body.len) == NULL)
		return json_text_len(arena, (const char *)body.data, body.len);
	return base64_text(arena, body);
}

static struct json *make_output(struct http_work *own, struct error *error)
{
	struct arena *arena = &own->work.activity->arena;
	struct bytes body = buffer_bytes(&own->transfer.received);
	struct json *content, *output, *request;

	if (own->output == OUTPUT_RAW)
		return base64_text(arena, body);
	content = read_content(own, body, error);
	if (content == NULL || own->output == OUTPUT_CONTENT)
		return content;
	output = json_object(arena);
	request = json_object(arena);
	json_set_text(arena, request, "method", own->method);
	json_set_text(arena, request, "uri", own->url);
	json_set(arena, request, "headers", own->headers);
	json_set(arena, output, "request", request);
	json_set_number(arena, output, "statusCode", own->transfer.status);
	json_set(arena, output, "headers", response_headers(&own->transfer, arena));
	json_set(arena, output, "content", content);
	return output;
}

/* ---- The exchange ---- */

static void send_hop(struct http_work *own);
static void admit(struct activities *activities);

static void leave_wire(struct http_work *own)
{
	struct activities *activities = own->work.activities;

	deadline_free(activities, own->connect);
	deadline_free(activities, own->total);
	own->connect = own->total = NULL;
	if (own->transfer_open)
		transfer_close(&own->transfer);
	own->transfer_open = false;
}

static bool cancel_work(struct work *work)
{
	struct http_work *own = CONTAINER_OF(work, struct http_work, work);

	if (own->in_pool)
		return false;
	if (own->waiting)
		work->activity->result.queued_us = now_us(work->activities) - work->clock.since_us;
	if (own->transfer_open)
		transfer_cancel(&own->transfer);
	if (work->activity->result.active_from_us != 0)
		work->activity->result.active_until_us = now_us(work->activities);
	leave_wire(own);
	return true;
}

static void free_work(struct work *work)
{
	struct http_work *own = CONTAINER_OF(work, struct http_work, work);
	struct activities *activities = work->activities;

	leave_wire(own);
	if (own->waiting) {
		list_remove(&own->link);
		activities->http.waiting_count--;
	}
	activities->http.in_flight -= own->in_flight;
	free(own);
	admit(activities);
}

static bool is_redirect(int status)
{
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static size_t origin_len(const char *url)
{
	const char *host = strstr(url, "//");

	host = host != NULL ? host + 2 : url;
	return (size_t)(host - url) + strcspn(host, "/?");
}

/* Compared as written: a difference in writing alone costs the headers, no more. */
static bool same_origin(const struct http_work *own)
{
	size_t len = origin_len(own->first_url);

	return len == origin_len(own->url) && strncasecmp(own->first_url, own->url, len) == 0;
}

/* RFC 9110 15.4: 303 becomes a GET; so do POSTs after 301 and 302, as every client does it. 307 and 308 keep all. */
static void follow(struct http_work *own)
{
	struct arena *arena = &own->work.activity->arena;
	int status = own->transfer.status;
	char host[256];
	struct error error;

	own->url = arena_text(arena, own->transfer.redirect_url);
	transfer_close(&own->transfer);
	own->transfer_open = false;
	if (!url_check(own->url, host, &error)) {
		work_finish(&own->work, FAILURE_REFUSED, "redirected to something unusable: %s", error.message);
		return;
	}
	if (strcmp(own->method, "HEAD") != 0 && (status == 303 || ((status == 301 || status == 302) && strcmp(own->method, "POST") == 0))) {
		own->method = "GET";
		own->has_body = false;
		own->body = (struct bytes){0};
		while (find_header(own->headers, "Content-Type") != NULL)
			for (size_t i = 0; i < json_count(own->headers); i++)
				if (strcasecmp(own->headers->object.members[i].name, "Content-Type") == 0) {
					json_remove(own->headers, own->headers->object.members[i].name);
					break;
				}
	}
	/* Another origin is not told what was meant for the first one. */
	if (!same_origin(own)) {
		static const char *const secret[] = {"Authorization", "Cookie"};

		for (size_t j = 0; j < COUNT_OF(secret); j++)
			for (size_t i = json_count(own->headers); i > 0; i--)
				if (strcasecmp(own->headers->object.members[i - 1].name, secret[j]) == 0)
					json_remove(own->headers, own->headers->object.members[i - 1].name);
	}
	memcpy(own->host, host, sizeof(host));
	send_hop(own);
}

static enum failure_class class_of_status(int status)
{
	if (status == 429)
		return FAILURE_RATE_LIMITED;
	if (status == 408)
		return FAILURE_TIMED_OUT;
	return status >= 500 ? FAILURE_RUNTIME_ERROR : FAILURE_REFUSED;
}

static void finish(struct http_work *own)
{
	struct error error = own->error;

	if (own->work.cancelled) {
		work_finish_cancelled(&own->work);
		return;
	}
	own->work.activity->result.output = own->result;
	if (own->result == NULL)
		work_finish(&own->work, FAILURE_SCHEMA_INVALID, "the answer is called JSON but cannot be used: %s; output: raw gives its bytes",
			    error.message);
	else
		work_finish(&own->work, FAILURE_NONE, "%s", "");
}

static void on_pool(uv_work_t *pool)
{
	struct http_work *own = CONTAINER_OF(pool, struct http_work, pool);

	own->result = make_output(own, &own->error);
}

static void on_pool_done(uv_work_t *pool, int status)
{
	struct http_work *own = CONTAINER_OF(pool, struct http_work, pool);
	struct activities *activities = own->work.activities;

	(void)status;
	own->in_pool = false;
	finish(own);
	outside_end(activities);
}

static void read_answer(struct http_work *own)
{
	struct transfer *transfer = &own->transfer;
	int status = transfer->status;

	if (is_redirect(status) && own->follow && transfer->redirect_url != NULL) {
		if (++own->hops > HTTP_REDIRECTS_MAX) {
			work_finish(&own->work, FAILURE_REFUSED, "more than %d redirects (HTTP_REDIRECTS_MAX)", HTTP_REDIRECTS_MAX);
			return;
		}
		follow(own);
		return;
	}
	if (status >= 300 && status < 400 && !own->follow) {
		work_finish(&own->work, FAILURE_REFUSED, "%s answered %d; set redirect: true to follow redirects", own->host, status);
		return;
	}
	if (status < 200 || status >= 400) {
		struct bytes body = buffer_bytes(&transfer->received);

		work_finish(&own->work, class_of_status(status), "%s answered %d%s%.*s", own->host, status, body.len > 0 ? ": " : "",
			    (int)(body.len < 200 ? body.len : 200), body.len > 0 ? (const char *)body.data : "");
		return;
	}
	deadline_stop(own->total);
	if (transfer->received.len <= POOL_BYTES_MIN) {
		own->result = make_output(own, &own->error);
		finish(own);
		return;
	}
	own->in_pool = true;
	outside_begin(own->work.activities);
	CHECK(uv_queue_work(own->work.activities->loop, &own->pool, on_pool, on_pool_done) == 0);
}

static void on_transferred(struct transfer *transfer)
{
	struct http_work *own = transfer->owner;
	struct work *work = &own->work;
	struct activity_result *result = &work->activity->result;

	deadline_stop(own->connect);
	if (result->active_from_us != 0)
		result->active_until_us = transfer->last_byte_us != 0 && transfer->end == TRANSFER_COMPLETE ? transfer->last_byte_us :
													       now_us(work->activities);
	if (transfer->last_byte_us != 0)
		stage_enter_at(work, &result->stages.parse, transfer->last_byte_us);
	else
		stage_enter(work, &result->stages.parse);
	result->response = arena_bytes(&work->activity->arena, buffer_bytes(&transfer->received));
	result->status = transfer->status;
	result->retry_after_ms = transfer->retry_after_ms;
	work->connections = (work->connections > 0 ? work->connections : 0) + transfer->connections;
	switch (transfer->end) {
	case TRANSFER_COMPLETE:
		read_answer(own);
		return;
	case TRANSFER_NOT_ALLOWED:
		work_finish(work, FAILURE_CONFIGURATION,
			    "%.100s (%s) may not be reached: http.allow does not name it; to allow it add this entry to the configuration file, "
			    "http: {allow: ['%s/%d']}, and restart reprised",
			    own->host, transfer->address, transfer->address, strchr(transfer->address, ':') != NULL ? 128 : 32);
		return;
	case TRANSFER_NOT_CONNECTED:
		work_finish(work, FAILURE_UNREACHABLE, "%s cannot be reached: %s", own->host, transfer->detail);
		return;
	case TRANSFER_NOT_TRUSTED:
		work_finish(work, FAILURE_CONFIGURATION, "%s: %s", own->host, transfer->detail);
		return;
	case TRANSFER_TOO_LARGE:
		work_finish(work, FAILURE_RUNTIME_ERROR, "the answer of %s is larger than %d bytes (ACTIVITY_BODY_MAX), or its headers than %d",
			    own->host, ACTIVITY_BODY_MAX, CURL_RESPONSE_HEADERS_MAX);
		return;
	case TRANSFER_BROKEN:
	case TRANSFER_STOPPED:
		work_finish(work, FAILURE_RUNTIME_ERROR, "the connection to %s broke off; whether it acted is not known: %s", own->host,
			    transfer->detail);
		return;
	}
}

static void on_connect_due(struct deadline *deadline)
{
	struct http_work *own = deadline->owner;

	cancel_work(&own->work);
	work_finish(&own->work, FAILURE_UNREACHABLE, "no connection to %s within %d ms (HTTP_CONNECT_MS)", own->host, HTTP_CONNECT_MS);
}

static void on_total_due(struct deadline *deadline)
{
	struct http_work *own = deadline->owner;

	cancel_work(&own->work);
	work_finish(&own->work, FAILURE_TIMED_OUT, "no whole answer of %s within %lld ms (HTTP_TOTAL_MS)", own->host,
		    (long long)own->work.activities->http.total_ms);
}

static void on_connecting(struct transfer *transfer)
{
	struct http_work *own = transfer->owner;
	struct activity_result *result = &own->work.activity->result;

	stage_enter(&own->work, &result->stages.connect);
	if (result->active_from_us == 0)
		result->active_from_us = now_us(own->work.activities);
}

static void on_sending(struct transfer *transfer)
{
	struct http_work *own = transfer->owner;

	stage_enter(&own->work, &own->work.activity->result.stages.first_token);
	deadline_stop(own->connect);
}

static bool on_data(struct transfer *transfer, struct bytes data)
{
	struct http_work *own = transfer->owner;

	(void)data;
	if (!own->receiving)
		stage_enter(&own->work, &own->work.activity->result.stages.generation);
	own->receiving = true;
	return true;
}

static void send_hop(struct http_work *own)
{
	struct work *work = &own->work;
	struct arena *arena = &work->activity->arena;
	struct buffer headers;
	struct error error;

	buffer_init(&headers, CURL_REQUEST_HEADERS_MAX);
	for (size_t i = 0; i < json_count(own->headers); i++) {
		const struct json_member *member = &own->headers->object.members[i];

		buffer_add_text(&headers, member->name);
		buffer_add_text(&headers, member->value->string.len > 0 ? ": " : ":");
		buffer_add_text(&headers, member->value->string.text);
		buffer_add_char(&headers, '\n');
	}
	own->receiving = false;
	own->transfer = (struct transfer){
		.method = own->method,
		.url = own->url,
		.headers = arena_text(arena, buffer_text(&headers)),
		.body = own->body,
		.has_body = own->has_body,
		.effectful = true,
		.allow = work->activities->http_allow,
		.host = own->host,
		.body_max = ACTIVITY_BODY_MAX,
		.on_connecting = on_connecting,
		.on_sending = on_sending,
		.on_data = on_data,
		.on_done = on_transferred,
		.owner = own,
	};
	own->transfer_open = true;
	if (headers.overflow)
		error_set(&error, ERR_TOO_LARGE, "the request's headers are larger than %d bytes (CURL_REQUEST_HEADERS_MAX)", CURL_REQUEST_HEADERS_MAX);
	if (headers.overflow || transfer_start(work->activities->curl, &own->transfer, &error) != 0) {
		own->transfer_open = !headers.overflow;
		work_finish(work, FAILURE_CONFIGURATION, "%s", error.message);
		buffer_close(&headers);
		return;
	}
	buffer_close(&headers);
	deadline_start(own->connect, HTTP_CONNECT_MS);
}

/* Begins the requests whose turn it is. A turn lasts until the attempt ends: its answer is in memory as long. */
static void admit(struct activities *activities)
{
	/* What ends while it begins comes back here; the loop below goes on then. */
	if (activities->http.admitting || activities->closing)
		return;
	activities->http.admitting = true;
	while (activities->http.in_flight < HTTP_IN_FLIGHT_MAX && !list_empty(&activities->http.waiting)) {
		struct http_work *own = CONTAINER_OF(activities->http.waiting.next, struct http_work, link);
		struct activity_result *result = &own->work.activity->result;

		list_remove(&own->link);
		activities->http.waiting_count--;
		activities->http.in_flight++;
		own->waiting = false;
		own->in_flight = true;
		if (own->work.clock.stage == &result->stages.queue) {
			stage_enter(&own->work, &result->stages.dispatch);
			result->queued_us = (uint64_t)result->stages.queue;
		}
		deadline_start(own->total, activities->http.total_ms);
		send_hop(own);
	}
	activities->http.admitting = false;
}

int http_activity_start(struct activities *activities, struct activity *activity, struct error *error)
{
	struct http_work *own = memory_zero(sizeof(*own));

	own->work.cancel = cancel_work;
	own->work.free = free_work;
	own->work.activities = activities;
	own->work.activity = activity;
	if (!read_arguments(own, error)) {
		free(own);
		return (int)error->code;
	}
	work_begin(activities, activity, &own->work, &activity->result.stages.dispatch);
	work_set_retry(&own->work, HTTP_RETRY_ATTEMPTS, RETRY_FLOOR_MS, RETRY_CAP_MS);
	activity->result.request = own->body;
	/* Not even a name is looked up for what cannot be allowed. */
	if (address_rules_empty(activities->http_allow)) {
		work_finish(&own->work, FAILURE_CONFIGURATION,
			    "the host may not be reached: http.allow is empty; to allow it add http: {allow: ['%s']} to the configuration file and "
			    "restart reprised",
			    own->host);
		return 0;
	}
	own->connect = deadline_new(activities, on_connect_due, own);
	own->total = deadline_new(activities, on_total_due, own);
	own->waiting = true;
	list_add_last(&activities->http.waiting, &own->link);
	activities->http.waiting_count++;
	if (activities->http.in_flight >= HTTP_IN_FLIGHT_MAX)
		stage_enter(&own->work, &activity->result.stages.queue);
	admit(activities);
	return 0;
}
