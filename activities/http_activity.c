/* `call: http` (dsl.md 1.9): one request, its redirects if asked for, one result. Effects outside are possible, so each request
 * has a connection of its own and carries the idempotency key; addresses are checked where the socket is opened, on each hop
 * (semantics.md 3 and 10). Loop thread; a large answer is read on the uv pool. Start at http_activity_start(), then admit() and send_hop(). */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "activities/internal.h"
#include "workflow/base/check.h"

enum {
	QUERY_VALUE_LEN_MAX = 4096,
	HIDDEN_HEADERS_MAX = 24, /* headers of one request that come from secrets or from its authentication */
};
#define HIDDEN_TEXT "***" /* what is shown of them */

enum output_kind { OUTPUT_CONTENT, OUTPUT_RAW, OUTPUT_RESPONSE };

/* A header whose value is sent and never shown; in headers stands HIDDEN_TEXT. */
struct hidden_header {
	const char *name;
	char *value; /* wiped at the end */
};

struct http_work {
	struct work work;
	struct hidden_header hidden[HIDDEN_HEADERS_MAX];
	size_t hidden_count;
	char *digest_username, *digest_password; /* NULL: no digest authentication; wiped */
	struct secret_texts secrets; /* are blotted out of what the peer answers */
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

/* Those that curl and the connection decide. */
static bool is_our_header(const char *name)
{
	static const char *const ours[] = {"Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade"};

	for (size_t i = 0; i < COUNT_OF(ours); i++)
		if (strcasecmp(name, ours[i]) == 0)
			return true;
	return false;
}

static bool read_headers(struct http_work *own, const struct json *headers, struct error *error)
{
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
		if (is_our_header(member->name)) {
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

/* ---- Operations of call: openapi */

/* Of a parameter: a scalar, or for a list its items with a comma between. False: neither. */
static bool add_value(struct http_work *own, struct buffer *text, const struct json *value)
{
	const char *scalar = scalar_text(&own->work.activity->arena, value);

	if (scalar != NULL) {
		add_encoded(text, scalar);
		return true;
	}
	for (size_t i = 0; json_is(value, JSON_ARRAY) && i < json_count(value); i++) {
		scalar = scalar_text(&own->work.activity->arena, json_at(value, i));
		if (scalar == NULL)
			return false;
		if (i > 0)
			buffer_add_char(text, ',');
		add_encoded(text, scalar);
	}
	return json_is(value, JSON_ARRAY);
}

/* "/pet/{petId}" with the values of its parameters. */
static bool add_path(struct http_work *own, struct buffer *url, const char *path, const struct json *values, struct error *error)
{
	while (*path != '\0') {
		size_t len = strcspn(path, "{"), before;
		const char *name;

		buffer_add(url, path, len);
		path += len;
		if (*path == '\0')
			break;
		len = strcspn(++path, "}");
		name = arena_text_len(&own->work.activity->arena, path, len);
		path += len + (path[len] == '}');
		before = url->len;
		if (json_get(values, name) == NULL || !add_value(own, url, json_get(values, name))) {
			error_set(error, ERR_INVALID, "parameters.%.60s is missing, or no text, number, boolean or list of these", name);
			return false;
		}
		if (url->len == before && !url->overflow) {
			error_set(error, ERR_INVALID, "parameters.%.60s is empty: without it the path is another operation's", name);
			return false;
		}
	}
	return true;
}

static bool add_query(struct http_work *own, struct buffer *url, const struct json *parameter, const struct json *value, struct error *error)
{
	const char *name = json_get_text(parameter, "name");
	bool multi = json_is(value, JSON_ARRAY) && json_get_boolean(parameter, "multi", false), ok = true;

	for (size_t i = 0; i < (multi ? json_count(value) : 1) && ok; i++) {
		buffer_add_char(url, strchr(buffer_text(url), '?') != NULL ? '&' : '?');
		add_encoded(url, name);
		buffer_add_char(url, '=');
		ok = add_value(own, url, multi ? json_at(value, i) : value);
	}
	if (!ok)
		error_set(error, ERR_INVALID, "parameters.%.60s is no text, number, boolean or list of these", name);
	return ok;
}

/* The arguments that call: http would have for this operation. NULL: *error says why there are none. */
static const struct json *apply_operation(struct http_work *own, const struct json *with, struct error *error)
{
	const struct json *operation = json_get(with, "operation"), *values = json_get(with, "parameters"), *known = json_get(operation, "parameters");
	const char *server = json_get_text(operation, "server"), *path = json_get_text(operation, "path");
	struct arena *arena = &own->work.activity->arena;
	struct json *plain = json_object(arena), *headers = json_object(arena);
	struct buffer url;
	size_t server_len;
	bool ok;

	if (operation == NULL)
		return with;
	if (server == NULL || path == NULL || (values != NULL && !json_is(values, JSON_OBJECT) && !json_is(values, JSON_NULL))) {
		error_set(error, ERR_INVALID, "parameters is not an object");
		return NULL;
	}
	for (size_t i = 0; json_is(values, JSON_OBJECT) && i < json_count(values); i++) {
		bool found = false;

		for (size_t k = 0; k < json_count(known); k++)
			found |= strcmp(json_get_text(json_at(known, k), "name"), values->object.members[i].name) == 0;
		if (!found) {
			error_set(error, ERR_INVALID, "the operation has no parameter '%.60s'", values->object.members[i].name);
			return NULL;
		}
	}
	buffer_init(&url, CURL_URL_LEN_MAX + 1);
	server_len = strlen(server);
	buffer_add(&url, server, server_len - (server_len > 0 && server[server_len - 1] == '/'));
	ok = add_path(own, &url, path, values, error);
	for (size_t i = 0; i < json_count(known) && ok; i++) {
		const struct json *parameter = json_at(known, i), *value = json_get(values, json_get_text(parameter, "name"));
		const char *in = json_get_text(parameter, "in");

		if (value == NULL || json_is(value, JSON_NULL)) {
			ok = !json_get_boolean(parameter, "required", false);
			if (!ok)
				error_set(error, ERR_INVALID, "parameters.%.60s is missing: the operation needs it", json_get_text(parameter, "name"));
		} else if (strcmp(in, "query") == 0) {
			ok = add_query(own, &url, parameter, value, error);
		} else if (strcmp(in, "header") == 0) {
			const char *scalar = scalar_text(arena, value);

			if (scalar != NULL)
				json_set_text(arena, headers, json_get_text(parameter, "name"), scalar);
			else
				ok = error_set(error, ERR_INVALID, "parameters.%.60s is no text, number or boolean", json_get_text(parameter, "name")) == 0;
		} else if (strcmp(in, "body") == 0) {
			json_set(arena, plain, "body", (struct json *)value);
		}
	}
	if (ok && url.overflow)
		ok = error_set(error, ERR_TOO_LARGE, "the URL is longer than %d bytes (CURL_URL_LEN_MAX)", CURL_URL_LEN_MAX) == 0;
	for (size_t i = 0; i < json_count(with); i++)
		if (strcmp(with->object.members[i].name, "operation") != 0 && strcmp(with->object.members[i].name, "parameters") != 0)
			json_set(arena, plain, with->object.members[i].name, with->object.members[i].value);
	json_set_text(arena, plain, "endpoint", buffer_text(&url));
	json_set(arena, plain, "headers", headers);
	buffer_close(&url);
	return ok ? plain : NULL;
}

/* Is a part of the path "." or ".."? curl takes that, and what stands before, away: a value of a template or parameter would lead to another place. */
static bool leads_elsewhere(const char *url)
{
	const char *path = strstr(url, "//");

	path = path != NULL ? path + 2 + strcspn(path + 2, "/?") : "";
	while (*path == '/') {
		size_t len = strcspn(++path, "/?");

		if ((len == 1 || len == 2) && strspn(path, ".") >= len)
			return true;
		path += len;
	}
	return false;
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
	if (leads_elsewhere(buffer_text(&url))) {
		error_set(error, ERR_INVALID, "a part of the URL's path is . or .., which leads to another place: write the path without it");
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
	const struct json *with = apply_operation(own, own->work.activity->with, error);
	const char *method = json_get_text(with, "method"), *output = json_get_text(with, "output");
	char *upper;

	if (with == NULL)
		return false;

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

/* ---- Secrets and authentication ---- */

static void wipe_text(char **text)
{
	if (*text != NULL)
		explicit_bzero(*text, strlen(*text));
	free(*text);
	*text = NULL;
}

static void remove_header(struct http_work *own, const char *name)
{
	for (size_t i = json_count(own->headers); i > 0; i--)
		if (strcasecmp(own->headers->object.members[i - 1].name, name) == 0)
			json_remove(own->headers, own->headers->object.members[i - 1].name);
}

/* Takes the value. */
static bool hide_header(struct http_work *own, const char *name, char *value, struct error *error)
{
	if (own->hidden_count == HIDDEN_HEADERS_MAX)
		error_set(error, ERR_TOO_LARGE, "more than %d headers with secrets (HIDDEN_HEADERS_MAX)", HIDDEN_HEADERS_MAX);
	else if (!is_header_name(name) || is_our_header(name) || !is_header_value(value))
		error_set(error, ERR_INVALID, "headers.%.60s: not a header's name, set by the daemon, or its secret is not one line of text", name);
	else {
		remove_header(own, name); /* one of another case, or of the definition beside an authentication */
		json_set_text(&own->work.activity->arena, own->headers, name, HIDDEN_TEXT);
		own->hidden[own->hidden_count++] = (struct hidden_header){arena_text(&own->work.activity->arena, name), value};
		return true;
	}
	wipe_text(&value);
	return false;
}

static void wipe_secrets(struct http_work *own)
{
	for (size_t i = 0; i < own->hidden_count; i++)
		wipe_text(&own->hidden[i].value);
	own->hidden_count = 0;
	wipe_text(&own->digest_username);
	wipe_text(&own->digest_password);
}

/* Another host is told nothing that was meant for the first one. */
static void forget_secrets(struct http_work *own)
{
	for (size_t i = 0; i < own->hidden_count; i++)
		remove_header(own, own->hidden[i].name);
	wipe_secrets(own);
}

static const char *find_secret(struct http_work *own, const char *name, struct error *error)
{
	const struct activities *activities = own->work.activities;
	const struct activity *activity = own->work.activity;
	const char *namespace = activity->is_configured ? NULL : activity->namespace != NULL ? activity->namespace : "";
	const struct secret_config *secret = secret_find(activities->secrets, activities->secret_count, name, namespace, own->host, error);

	if (secret == NULL)
		return NULL;
	secret_texts_add(&own->secrets, secret->value);
	return secret->value;
}

/* One part of the authentication: from the arguments, from a secret, or from a secret that has all parts (`whole`). */
static const char *credential(struct http_work *own, const struct json *given, const struct json *names, const struct json *whole, const char *name, struct error *error)
{
	const char *secret = json_get_text(names, name), *text = NULL;

	if (whole != NULL)
		text = json_get_text(whole, name);
	else if (secret != NULL)
		text = find_secret(own, secret, error);
	else if (json_get(given, name) != NULL)
		text = scalar_text(&own->work.activity->arena, json_get(given, name));
	if (text == NULL && error->code == ERR_NONE)
		error_set(error, ERR_INVALID, "authentication: %s is missing or no text", name);
	return text;
}

/* {use: SECRET}: a JSON object with the parts, or "username:password", or the token alone. The parts live in `arena`, which is wiped. */
static struct json *whole_secret(struct http_work *own, struct arena *arena, const char *name, bool is_token, struct error *error)
{
	const char *text = find_secret(own, name, error), *colon;
	struct json *parts;

	if (text == NULL)
		return NULL;
	parts = text[0] == '{' ? json_parse(arena, bytes_text(text), JSON_STRICT, NULL, NULL) : NULL;
	if (json_is(parts, JSON_OBJECT))
		return parts;
	parts = json_object(arena);
	colon = strchr(text, ':');
	if (is_token)
		json_set_text(arena, parts, "token", text);
	else if (colon != NULL) {
		json_set(arena, parts, "username", json_text_len(arena, text, (size_t)(colon - text)));
		json_set_text(arena, parts, "password", colon + 1);
	}
	return parts;
}

static bool set_basic(struct http_work *own, const char *username, const char *password, struct error *error)
{
	struct buffer pair, value;
	bool ok;

	if (strchr(username, ':') != NULL) {
		error_set(error, ERR_INVALID, "authentication: a username for basic has no ':'");
		return false;
	}
	buffer_init(&pair, CURL_REQUEST_HEADERS_MAX);
	buffer_init(&value, 2 * (size_t)CURL_REQUEST_HEADERS_MAX);
	buffer_printf(&pair, "%s:%s", username, password);
	if (pair.overflow) {
		buffer_close(&pair); /* nothing came into it */
		error_set(error, ERR_TOO_LARGE, "authentication: username and password have more than %d bytes (CURL_REQUEST_HEADERS_MAX)", CURL_REQUEST_HEADERS_MAX);
		return false;
	}
	buffer_add_text(&value, "Basic ");
	base64_add(&value, buffer_bytes(&pair));
	secret_texts_add(&own->secrets, buffer_text(&value) + 6);
	ok = hide_header(own, "Authorization", memory_text(buffer_text(&value)), error);
	explicit_bzero(pair.data, pair.cap);
	explicit_bzero(value.data, value.cap);
	buffer_close(&pair);
	buffer_close(&value);
	return ok;
}

static bool set_bearer(struct http_work *own, const char *token, struct error *error)
{
	char *value = memory_alloc(strlen(token) + 8);

	memcpy(value, "Bearer ", 7);
	strcpy(value + 7, token);
	secret_texts_add(&own->secrets, token);
	return hide_header(own, "Authorization", value, error);
}

static bool read_authentication(struct http_work *own, const struct json *with, struct error *error)
{
	const struct json *given = json_get(with, "authentication"), *names = json_get(json_get(with, "secrets"), "authentication");
	const char *scheme = json_get_text(given, "scheme"), *use = json_get_text(names, "use"), *username, *password, *token;
	struct json *whole = NULL;
	struct arena arena;
	bool is_token, ok = false;

	if (scheme == NULL)
		return true;
	is_token = strcmp(scheme, "bearer") == 0;
	arena_init(&arena);
	if (use != NULL && (whole = whole_secret(own, &arena, use, is_token, error)) == NULL)
		goto out;
	if (is_token) {
		token = credential(own, given, names, whole, "token", error);
		ok = token != NULL && set_bearer(own, token, error);
		goto out;
	}
	username = credential(own, given, names, whole, "username", error);
	password = username != NULL ? credential(own, given, names, whole, "password", error) : NULL;
	if (password == NULL)
		goto out;
	secret_texts_add(&own->secrets, password);
	if (strcmp(scheme, "basic") == 0) {
		ok = set_basic(own, username, password, error);
	} else {
		own->digest_username = memory_text(username);
		own->digest_password = memory_text(password);
		remove_header(own, "Authorization");
		ok = true;
	}
out:
	for (size_t i = 0; i < json_count(whole); i++)
		if (json_is(whole->object.members[i].value, JSON_STRING))
			explicit_bzero((char *)whole->object.members[i].value->string.text, whole->object.members[i].value->string.len);
	arena_close(&arena);
	return ok;
}

/* Values for the names in `secrets`, which only the loader of the definition writes. */
static bool resolve_secrets(struct http_work *own, const struct json *with, struct error *error)
{
	const struct json *headers = json_get(json_get(with, "secrets"), "headers");

	for (size_t i = 0; i < json_count(headers); i++) {
		const struct json_member *member = &headers->object.members[i];
		const char *value = i < HIDDEN_HEADERS_MAX && json_is(member->value, JSON_STRING) ? find_secret(own, member->value->string.text, error) : NULL;

		if (i == HIDDEN_HEADERS_MAX)
			error_set(error, ERR_TOO_LARGE, "more than %d headers with secrets (HIDDEN_HEADERS_MAX)", HIDDEN_HEADERS_MAX);
		if (value == NULL || !hide_header(own, member->name, memory_text(value), error))
			return false;
	}
	return read_authentication(own, with, error);
}

/* ---- Results ---- */

/* Header bytes beyond ASCII have no stated meaning; taken as Latin-1 they always become a text. */
static void add_header_text(struct buffer *out, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c >= 0x80) {
			buffer_add_char(out, (char)(0xC0 | c >> 6));
			buffer_add_char(out, (char)(0x80 | (c & 0x3F)));
		} else if (c != '\0') {
			buffer_add_char(out, (char)c);
		}
	}
}

struct header_line {
	const char *name, *value;
	size_t value_len, index;
};

static int compare_header_lines(const void *left, const void *right)
{
	const struct header_line *a = left, *b = right;
	int order = strcmp(a->name, b->name);

	return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

/* In the order of the names, each name's in the order in which they came. */
static struct header_line *sort_header_lines(const struct transfer *transfer, struct arena *arena, size_t *count)
{
	const char *line = buffer_text(&transfer->header_lines), *next;
	struct header_line *lines = NULL;
	size_t cap = 0;

	*count = 0;
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
		lines = arena_grow(arena, lines, *count, &cap, sizeof(*lines));
		lines[*count] = (struct header_line){name, value, (size_t)(end - value), *count};
		(*count)++;
	}
	if (*count > 0)
		qsort(lines, *count, sizeof(*lines), compare_header_lines);
	return lines;
}

/* Lines of one name are put together at once: 64 KiB may hold 13,000 of them. */
static struct json *response_headers(const struct transfer *transfer, struct arena *arena)
{
	struct json *headers = json_object(arena);
	size_t count;
	const struct header_line *lines = sort_header_lines(transfer, arena, &count);
	struct buffer text;

	buffer_init(&text, 4 * (size_t)CURL_RESPONSE_HEADERS_MAX);
	for (size_t i = 0; i < count; i++) {
		if (i > 0 && strcmp(lines[i].name, lines[i - 1].name) == 0)
			buffer_add_text(&text, ", ");
		else
			buffer_clear(&text);
		add_header_text(&text, lines[i].value, lines[i].value_len);
		if (i + 1 == count || strcmp(lines[i].name, lines[i + 1].name) != 0)
			json_set(arena, headers, lines[i].name, json_text_len(arena, buffer_text(&text), text.len));
	}
	CHECK(!text.overflow);
	buffer_close(&text);
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
	if (own->hops > 0) { /* the peer wrote this one */
		char *shown = arena_text(arena, own->url);

		secret_texts_blot(&own->secrets, (uint8_t *)shown, strlen(shown));
		json_set_text(arena, request, "uri", shown);
	}
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
	wipe_secrets(own); /* the headers themselves are in the result perhaps */
	secret_texts_close(&own->secrets);
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
		bool tells = own->secrets.count > 0; /* the URL is the peer's, and a secret may stand in it, in whatever writing */

		work_finish(&own->work, FAILURE_REFUSED, "redirected to something unusable%s%s", tells ? "" : ": ", tells ? "" : error.message);
		return;
	}
	/* Its host would be looked up, and stand in every message. */
	if (secret_texts_found(&own->secrets, host)) {
		work_finish(&own->work, FAILURE_REFUSED, "redirected to a host whose name holds a secret of this request");
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
		forget_secrets(own);
		remove_header(own, "Authorization");
		remove_header(own, "Cookie");
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
	/* Before anything of it is kept: a peer may say back what it was told. */
	secret_texts_blot(&own->secrets, transfer->received.data, transfer->received.len);
	secret_texts_blot(&own->secrets, transfer->header_lines.data, transfer->header_lines.len);
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
	struct buffer headers;
	struct error error;
	bool failed, too_large;

	buffer_init(&headers, CURL_REQUEST_HEADERS_MAX);
	for (size_t i = 0; i < json_count(own->headers); i++) {
		const struct json_member *member = &own->headers->object.members[i];
		const char *value = member->value->string.text;

		for (size_t k = 0; k < own->hidden_count; k++)
			if (strcmp(own->hidden[k].name, member->name) == 0)
				value = own->hidden[k].value;
		buffer_add_text(&headers, member->name);
		buffer_add_text(&headers, value[0] != '\0' ? ": " : ":");
		buffer_add_text(&headers, value);
		buffer_add_char(&headers, '\n');
	}
	own->receiving = false;
	own->transfer = (struct transfer){
		.method = own->method,
		.url = own->url,
		.headers = buffer_text(&headers), /* curl copies them */
		.digest_username = own->digest_username,
		.digest_password = own->digest_password,
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
	too_large = headers.overflow;
	failed = too_large || transfer_start(work->activities->curl, &own->transfer, &error) != 0;
	own->transfer.headers = NULL;
	if (headers.data != NULL)
		explicit_bzero(headers.data, headers.cap);
	buffer_close(&headers);
	if (failed) {
		own->transfer_open = !too_large;
		work_finish(work, FAILURE_CONFIGURATION, "%s", error.message);
		return;
	}
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
	struct error why = {0};

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
	if (!resolve_secrets(own, activity->with, &why)) {
		work_finish(&own->work, why.code == ERR_DENIED ? FAILURE_FORBIDDEN : FAILURE_CONFIGURATION, "%s", why.message);
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
