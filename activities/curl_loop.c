/* See curl_loop.h. Loop thread. Start at transfer_start(), then on_poll(), act() and drain(). */
#include "activities/curl_loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "workflow/base/check.h"

enum { SLOTS_FIRST = 64, CONNECT_NEVER_MS = 24 * 60 * 60 * 1000 };

/* A descriptor that curl wants watched. There is one only while it does: curl closes descriptors on which no connection came about
 * (7.88) without a word to on_close_socket(), and their numbers are soon used again. */
struct watch {
	uv_poll_t poll;
	struct curl_loop *loop;
	curl_socket_t fd;
	int events;
};

/* By the descriptor's number; the close callback has nothing else to find it by. */
struct slot {
	struct watch *watch; /* NULL: not watched now */
	bool open; /* by on_open_socket() */
};

struct curl_loop {
	uv_loop_t *loop;
	uv_timer_t timer, failing; /* failing: set while a transfer is marked as failed */
	CURLM *multi;
	uint64_t (*now_us)(void *arg);
	void (*on_answer)(void *arg);
	void *arg;
	struct slot *slots; /* by descriptor */
	size_t slot_count;
	struct list transfers;
	CURL *kept[CURL_EASY_KEPT_MAX];
	size_t kept_count;
	struct curl_loop_counters counters;
	size_t handles; /* uv handles that are not closed yet */
	bool closing;
	void (*on_closed)(void *arg);
	void *closed_arg;
};

/* ---- Sockets ---- */

static void act(struct curl_loop *loop, curl_socket_t fd, int flags);

static void end_when_empty(struct curl_loop *loop)
{
	void (*on_closed)(void *arg) = loop->on_closed;
	void *arg = loop->closed_arg;

	if (!loop->closing || loop->handles > 0)
		return;
	free(loop->slots);
	free(loop);
	on_closed(arg);
}

static void on_watch_closed(uv_handle_t *handle)
{
	struct watch *watch = handle->data;
	struct curl_loop *loop = watch->loop;

	free(watch);
	loop->handles--;
	end_when_empty(loop);
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
	struct watch *watch = handle->data;
	int flags = 0;

	/* A broken connection is told as something to read, not as CURL_CSELECT_ERR: only when reading itself fails does curl
	 * notice that a kept connection died under the request, and sends it again on a new one. */
	flags |= status < 0 || (events & UV_READABLE) ? CURL_CSELECT_IN : 0;
	flags |= status < 0 || (events & UV_WRITABLE) ? CURL_CSELECT_OUT : 0;
	act(watch->loop, watch->fd, flags);
}

static struct slot *slot_of(struct curl_loop *loop, curl_socket_t fd)
{
	size_t count = loop->slot_count > 0 ? loop->slot_count : SLOTS_FIRST;

	while (count <= (size_t)fd)
		count *= 2;
	if (count > loop->slot_count) {
		loop->slots = memory_resize(loop->slots, count * sizeof(*loop->slots));
		memset(loop->slots + loop->slot_count, 0, (count - loop->slot_count) * sizeof(*loop->slots));
		loop->slot_count = count;
	}
	return &loop->slots[fd];
}

static void unwatch(struct slot *slot)
{
	if (slot->watch != NULL)
		uv_close((uv_handle_t *)&slot->watch->poll, on_watch_closed);
	slot->watch = NULL;
}

/* Begins to watch the descriptor, or changes what for. */
static bool watch(struct curl_loop *loop, curl_socket_t fd, int events)
{
	struct slot *slot = slot_of(loop, fd);

	if (slot->watch == NULL) {
		struct watch *made = memory_zero(sizeof(*made));

		if (uv_poll_init(loop->loop, &made->poll, fd) != 0) {
			free(made);
			return false;
		}
		made->poll.data = made;
		made->loop = loop;
		made->fd = fd;
		slot->watch = made;
		loop->handles++;
	}
	slot->watch->events = events;
	return uv_poll_start(&slot->watch->poll, events, on_poll) == 0;
}

/* ---- Transfers that curl cannot go on with ---- */

static void on_failing(uv_timer_t *handle);

/* It ends in the loop's next turn: here curl may be in the middle of something. */
static void mark_failed(struct transfer *transfer, const char *why)
{
	if (transfer->failed)
		return;
	transfer->failed = true;
	snprintf(transfer->error_text, sizeof(transfer->error_text), "%s", why);
	CHECK(uv_timer_start(&transfer->loop->failing, on_failing, 0, 0) == 0);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_data)
{
	struct curl_loop *loop = arg;
	struct transfer *transfer = NULL;

	(void)socket_data;
	if (what == CURL_POLL_REMOVE)
		unwatch(slot_of(loop, fd));
	else if (loop->closing)
		return 0; /* curl asks for readability of what it is about to close */
	else if (!watch(loop, fd, (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0)) &&
		 curl_easy_getinfo(easy, CURLINFO_PRIVATE, &transfer) == CURLE_OK && transfer != NULL)
		mark_failed(transfer, "the socket cannot be watched");
	return 0; /* an error would end curl's whole multi handle, and all transfers with it */
}

static curl_socket_t on_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct transfer *transfer = arg;
	struct curl_loop *loop = transfer->loop;
	struct slot *slot;
	curl_socket_t fd;

	(void)purpose;
	address_text(&address->addr, transfer->address);
	if (transfer->allow != NULL && !address_allowed(transfer->allow, transfer->host, &address->addr)) {
		transfer->not_allowed = true;
		return CURL_SOCKET_BAD;
	}
	fd = socket(address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->protocol);
	if (fd < 0)
		return CURL_SOCKET_BAD;
	if (fd >= CURL_SOCKETS_MAX) {
		close(fd);
		return CURL_SOCKET_BAD;
	}
	slot = slot_of(loop, fd);
	/* The next address of a name may get the number of the one before, and curl then takes it for watched already. */
	if (slot->watch != NULL) {
		int events = slot->watch->events;

		unwatch(slot);
		if (!watch(loop, fd, events))
			mark_failed(transfer, "the socket cannot be watched");
	}
	loop->counters.sockets_open += !slot->open;
	slot->open = true;
	loop->counters.connections_opened++;
	if (!transfer->has_connecting && transfer->on_connecting != NULL)
		transfer->on_connecting(transfer);
	transfer->has_connecting = true;
	return fd;
}

/* The one moment at which the descriptor is surely still ours: leave libuv before its number is used again. A connection
 * outlives the transfer that opened it, so arg is the loop. */
static int on_close_socket(void *arg, curl_socket_t fd)
{
	struct curl_loop *loop = arg;
	struct slot *slot = slot_of(loop, fd);

	unwatch(slot);
	loop->counters.sockets_open -= slot->open;
	slot->open = false;
	return close(fd);
}

/* ---- Driving ---- */

static void finish(struct transfer *transfer, CURLcode code)
{
	struct curl_loop *loop = transfer->loop;
	CURL *easy = transfer->easy;
	curl_off_t retry_after = 0;
	long status = 0;
	char *url = NULL;

	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &retry_after);
	curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &transfer->connections);
	curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &url);
	transfer->status = (int)status;
	transfer->retry_after_ms = retry_after > 0 && retry_after < 1000 * 1000 ? retry_after * 1000 : 0;
	transfer->redirect_url = url != NULL ? memory_text(url) : NULL;

	if (transfer->too_large)
		transfer->end = TRANSFER_TOO_LARGE;
	else if (transfer->stopped)
		transfer->end = TRANSFER_STOPPED;
	else if (code == CURLE_OK)
		transfer->end = TRANSFER_COMPLETE;
	else if (transfer->not_allowed && !transfer->has_connecting)
		transfer->end = TRANSFER_NOT_ALLOWED;
	else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_ISSUER_ERROR)
		transfer->end = TRANSFER_NOT_TRUSTED;
	else if (code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT || code == CURLE_SSL_CONNECT_ERROR ||
		 code == CURLE_OPERATION_TIMEDOUT)
		transfer->end = TRANSFER_NOT_CONNECTED;
	else
		transfer->end = TRANSFER_BROKEN;
	snprintf(transfer->detail, sizeof(transfer->detail), "%s",
		 transfer->error_text[0] != '\0' ? transfer->error_text : curl_easy_strerror(code));

	curl_multi_remove_handle(loop->multi, easy);
	if (transfer->header_lines.overflow)
		transfer->end = TRANSFER_TOO_LARGE;
}

static void put_back(struct transfer *transfer)
{
	struct curl_loop *loop = transfer->loop;

	/* Reset at once: nothing of this transfer, a key in its headers above all, stays behind in the handle. */
	curl_easy_reset(transfer->easy);
	if (loop->kept_count < CURL_EASY_KEPT_MAX)
		loop->kept[loop->kept_count++] = transfer->easy;
	else
		curl_easy_cleanup(transfer->easy);
	curl_slist_free_all(transfer->header_list);
	transfer->easy = NULL;
	transfer->header_list = NULL;
	list_remove(&transfer->link);
}

static void tell_answer(const struct curl_loop *loop)
{
	if (loop->on_answer != NULL)
		loop->on_answer(loop->arg);
}

static void drain(struct curl_loop *loop)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(loop->multi, &left)) != NULL) {
		CURLcode code = message->data.result; /* the message is gone once its handle is removed */
		struct transfer *transfer;

		if (message->msg != CURLMSG_DONE)
			continue;
		tell_answer(loop);
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
		finish(transfer, code);
		put_back(transfer);
		transfer->on_done(transfer);
	}
}

static struct transfer *find_failed(const struct curl_loop *loop)
{
	LIST_EACH(link, &loop->transfers)
		if (CONTAINER_OF(link, struct transfer, link)->failed)
			return CONTAINER_OF(link, struct transfer, link);
	return NULL;
}

static void on_failing(uv_timer_t *handle)
{
	struct curl_loop *loop = handle->data;
	struct transfer *transfer;

	/* From the start each time: on_done may end others. */
	while ((transfer = find_failed(loop)) != NULL) {
		finish(transfer, transfer->sending ? CURLE_SEND_ERROR : CURLE_COULDNT_CONNECT);
		put_back(transfer);
		transfer->on_done(transfer);
	}
}

static void act(struct curl_loop *loop, curl_socket_t fd, int flags)
{
	int running;
	CURLMcode code = curl_multi_socket_action(loop->multi, fd, flags, &running);

	/* Which of them it concerns is not told. */
	if (code != CURLM_OK)
		LIST_EACH(link, &loop->transfers)
			mark_failed(CONTAINER_OF(link, struct transfer, link), curl_multi_strerror(code));
	drain(loop);
}

static void on_timer(uv_timer_t *handle)
{
	act(handle->data, CURL_SOCKET_TIMEOUT, 0);
}

/* A time of 0 fires in the loop's next turn. Never rounded up: 1 ms here was measured to cost 1 ms for each request. */
static int on_curl_timer(CURLM *multi, long timeout_ms, void *arg)
{
	struct curl_loop *loop = arg;

	(void)multi;
	if (loop->closing || timeout_ms < 0)
		uv_timer_stop(&loop->timer);
	else
		uv_timer_start(&loop->timer, on_timer, (uint64_t)timeout_ms, 0);
	return 0;
}

/* ---- One transfer ---- */

/* In the last `len` bytes, and where a secret began before them. */
static void blot(const struct transfer *transfer, struct buffer *buffer, size_t len)
{
	size_t before;

	if (transfer->secrets == NULL || transfer->secrets->count == 0 || buffer->overflow)
		return;
	before = buffer->len - len;
	if (before > strlen(transfer->secrets->texts[0]))
		before = strlen(transfer->secrets->texts[0]);
	secret_texts_blot(transfer->secrets, buffer->data + buffer->len - len - before, len + before);
}

static size_t on_header_line(char *data, size_t size, size_t count, void *arg)
{
	struct transfer *transfer = arg;
	size_t len = size * count;

	if (len >= 5 && memcmp(data, "HTTP/", 5) == 0) {
		buffer_clear(&transfer->header_lines); /* what came before was an interim response */
		tell_answer(transfer->loop);
	}
	buffer_add(&transfer->header_lines, data, len);
	blot(transfer, &transfer->header_lines, len);
	transfer->last_byte_us = transfer->loop->now_us(transfer->loop->arg);
	return transfer->header_lines.overflow ? 0 : len;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
	struct transfer *transfer = arg;
	size_t len = size * count;
	long status = 0;

	transfer->last_byte_us = transfer->loop->now_us(transfer->loop->arg);
	buffer_add(&transfer->received, data, len);
	if (transfer->received.overflow) {
		transfer->too_large = true;
		return 0;
	}
	blot(transfer, &transfer->received, len);
	if (transfer->status == 0 && curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK)
		transfer->status = (int)status;
	if (transfer->on_data != NULL && !transfer->on_data(transfer, (struct bytes){transfer->received.data + transfer->received.len - len, len})) {
		transfer->stopped = true;
		return 0;
	}
	return len;
}

static int on_before_send(void *arg, char *address, char *local_address, int port, int local_port)
{
	struct transfer *transfer = arg;

	(void)local_address, (void)port, (void)local_port;
	if (address != NULL)
		snprintf(transfer->address, sizeof(transfer->address), "%s", address);
	transfer->sending = true;
	if (transfer->on_sending != NULL)
		transfer->on_sending(transfer);
	return CURL_PREREQFUNC_OK;
}

static void add_header(struct transfer *transfer, const char *line)
{
	struct curl_slist *list = curl_slist_append(transfer->header_list, line);

	CHECK(list != NULL);
	transfer->header_list = list;
}

static int add_headers(struct transfer *transfer, struct error *error)
{
	const char *line = transfer->headers;

	/* Sent, it would make curl wait for a go-ahead that many runtimes never give. */
	add_header(transfer, "Expect:");
	if (line == NULL)
		return 0;
	if (strlen(line) > CURL_REQUEST_HEADERS_MAX)
		return error_set(error, ERR_TOO_LARGE, "the request's headers are larger than %d bytes", CURL_REQUEST_HEADERS_MAX);
	while (*line != '\0') {
		const char *end = strchr(line, '\n');
		char *copy;

		CHECK(end != NULL);
		copy = memory_alloc((size_t)(end - line) + 1);
		memcpy(copy, line, (size_t)(end - line));
		copy[end - line] = '\0';
		/* "Name:" alone would take the header away instead of sending it empty. */
		if (end > line && end[-1] == ':')
			copy[end - line - 1] = ';';
		add_header(transfer, copy);
		free(copy);
		line = end + 1;
	}
	return 0;
}

unsigned url_port(const char *url)
{
	CURLU *parts = curl_url();
	char *text = NULL;
	unsigned port = 0;

	CHECK(parts != NULL);
	if (curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK && curl_url_get(parts, CURLUPART_PORT, &text, CURLU_DEFAULT_PORT) == CURLUE_OK)
		port = (unsigned)strtoul(text, NULL, 10);
	curl_free(text);
	curl_url_cleanup(parts);
	return port;
}

static bool is_token(const char *text)
{
	if (*text == '\0' || strlen(text) > 32)
		return false;
	for (; *text != '\0'; text++)
		if (!((*text >= 'A' && *text <= 'Z') || (*text >= 'a' && *text <= 'z') || *text == '-'))
			return false;
	return true;
}

bool url_check(const char *url, char host[256], struct error *error)
{
	CURLU *parts = curl_url();
	char *scheme = NULL, *name = NULL, *user = NULL;
	size_t len;
	bool ok = false;

	CHECK(parts != NULL);
	if (strlen(url) > CURL_URL_LEN_MAX) {
		error_set(error, ERR_TOO_LARGE, "the URL is longer than %d bytes (CURL_URL_LEN_MAX)", CURL_URL_LEN_MAX);
		goto out;
	}
	if (curl_url_set(parts, CURLUPART_URL, url, 0) != CURLUE_OK || curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
	    curl_url_get(parts, CURLUPART_HOST, &name, 0) != CURLUE_OK) {
		error_set(error, ERR_INVALID, "\"%.120s\" is not a URL", url);
		goto out;
	}
	if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0) {
		error_set(error, ERR_INVALID, "\"%.120s\" is neither http nor https", url);
		goto out;
	}
	if (curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_OK) {
		error_set(error, ERR_INVALID, "a URL must not carry a user or password");
		goto out;
	}
	len = strlen(name);
	if (len >= 256) {
		error_set(error, ERR_INVALID, "the host of the URL is longer than 255 bytes");
		goto out;
	}
	if (len >= 2 && name[0] == '[' && name[len - 1] == ']') {
		memcpy(host, name + 1, len - 2);
		host[len - 2] = '\0';
	} else {
		memcpy(host, name, len + 1);
	}
	ok = true;
out:
	curl_free(scheme);
	curl_free(name);
	curl_free(user);
	curl_url_cleanup(parts);
	return ok;
}

static void set_options(struct transfer *transfer)
{
	CURL *easy = transfer->easy;
	bool is_head = strcmp(transfer->method, "HEAD") == 0;

	curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->error_text);
	curl_easy_setopt(easy, CURLOPT_URL, transfer->url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L); /* else sigaction calls around each step */
	/* A lookup under way when a transfer is cancelled is left to its thread; else the loop would wait for it. */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	/* The owner's own timer decides; curl's would be 300 s. */
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_NEVER_MS);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->header_list);
	if (transfer->has_body) {
		/* The size first: curl looks at it when it is given the body. The body is not copied. */
		curl_easy_setopt(easy, CURLOPT_POST, 1L);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)transfer->body.len);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, transfer->body.len > 0 ? (const char *)transfer->body.data : "");
	}
	if (transfer->digest_username != NULL) {
		curl_easy_setopt(easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_DIGEST);
		curl_easy_setopt(easy, CURLOPT_USERNAME, transfer->digest_username);
		curl_easy_setopt(easy, CURLOPT_PASSWORD, transfer->digest_password);
	}
	if (is_head)
		curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	else
		curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, transfer->method);
	if (transfer->effectful) {
		curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
		curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
	}
	curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)CURL_IDLE_MAX_S);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header_line);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
	curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_before_send);
	curl_easy_setopt(easy, CURLOPT_PREREQDATA, transfer);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, transfer);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close_socket);
	curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, transfer->loop);
}

int transfer_start(struct curl_loop *loop, struct transfer *transfer, struct error *error)
{
	char host[256];
	CURLMcode code;

	buffer_init(&transfer->header_lines, CURL_RESPONSE_HEADERS_MAX);
	buffer_init(&transfer->received, transfer->body_max);
	list_init(&transfer->link);
	transfer->loop = loop;
	transfer->easy = NULL;
	transfer->header_list = NULL;
	transfer->redirect_url = NULL;
	transfer->status = 0;
	transfer->retry_after_ms = 0;
	transfer->connections = 0;
	transfer->last_byte_us = 0;
	transfer->address[0] = transfer->error_text[0] = transfer->detail[0] = '\0';
	transfer->not_allowed = transfer->too_large = transfer->stopped = transfer->has_connecting = transfer->sending = transfer->failed = false;
	CHECK(!loop->closing);

	if (!is_token(transfer->method))
		return error_set(error, ERR_INVALID, "\"%.40s\" is not an HTTP method", transfer->method);
	if (!url_check(transfer->url, host, error))
		return error->code;
	if (add_headers(transfer, error) != 0) {
		curl_slist_free_all(transfer->header_list);
		transfer->header_list = NULL;
		return error->code;
	}
	transfer->easy = loop->kept_count > 0 ? loop->kept[--loop->kept_count] : curl_easy_init();
	CHECK(transfer->easy != NULL);
	set_options(transfer);
	list_add_last(&loop->transfers, &transfer->link);
	code = curl_multi_add_handle(loop->multi, transfer->easy);
	if (code != CURLM_OK)
		mark_failed(transfer, curl_multi_strerror(code));
	return 0;
}

void transfer_cancel(struct transfer *transfer)
{
	if (transfer->easy == NULL)
		return;
	CHECK(curl_multi_remove_handle(transfer->loop->multi, transfer->easy) == CURLM_OK);
	put_back(transfer);
}

void transfer_close(struct transfer *transfer)
{
	CHECK(transfer->easy == NULL);
	buffer_close(&transfer->header_lines);
	buffer_close(&transfer->received);
	free(transfer->redirect_url);
	transfer->redirect_url = NULL;
}

const char *transfer_header(const struct transfer *transfer, const char *name, char *value, size_t size)
{
	const char *line = buffer_text(&transfer->header_lines);
	size_t name_len = strlen(name), len = 0;

	CHECK(size > 0);
	while (line != NULL && *line != '\0') {
		if (strncasecmp(line, name, name_len) == 0 && line[name_len] == ':') {
			line += name_len + 1;
			while (*line == ' ' || *line == '\t')
				line++;
			while (*line != '\0' && *line != '\r' && *line != '\n' && len + 1 < size) {
				value[len++] = *line >= ' ' && *line <= '~' ? *line : '?';
				line++;
			}
			break;
		}
		line = strchr(line, '\n');
		line = line != NULL ? line + 1 : NULL;
	}
	value[len] = '\0';
	return value;
}

struct curl_loop_counters curl_loop_counters(const struct curl_loop *loop)
{
	return loop->counters;
}

/* ---- Life ---- */

static void on_timer_closed(uv_handle_t *handle)
{
	struct curl_loop *loop = handle->data;

	loop->handles--;
	end_when_empty(loop);
}

int curl_loop_open(struct curl_loop **curl_loop, uv_loop_t *uv_loop, uint64_t (*now_us)(void *arg), void (*on_answer)(void *arg), void *arg, struct error *error)
{
	struct curl_loop *loop;

	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return error_set(error, ERR_INTERNAL, "libcurl cannot be initialised");
	loop = memory_zero(sizeof(*loop));
	loop->loop = uv_loop;
	loop->now_us = now_us;
	loop->on_answer = on_answer;
	loop->arg = arg;
	list_init(&loop->transfers);
	CHECK(uv_timer_init(uv_loop, &loop->timer) == 0);
	CHECK(uv_timer_init(uv_loop, &loop->failing) == 0);
	loop->timer.data = loop->failing.data = loop;
	loop->handles = 2;
	loop->multi = curl_multi_init();
	CHECK(loop->multi != NULL);
	curl_multi_setopt(loop->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(loop->multi, CURLMOPT_SOCKETDATA, loop);
	curl_multi_setopt(loop->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
	curl_multi_setopt(loop->multi, CURLMOPT_TIMERDATA, loop);
	/* The default follows the number of handles, so that a burst would drop connections when it ends. */
	curl_multi_setopt(loop->multi, CURLMOPT_MAXCONNECTS, (long)CURL_CONNECTIONS_KEPT_MAX);
	curl_multi_setopt(loop->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	*curl_loop = loop;
	return 0;
}

void curl_loop_close(struct curl_loop *loop, void (*on_closed)(void *arg), void *arg)
{
	CHECK(list_empty(&loop->transfers));
	loop->closing = true;
	loop->on_closed = on_closed;
	loop->closed_arg = arg;
	while (loop->kept_count > 0)
		curl_easy_cleanup(loop->kept[--loop->kept_count]);
	curl_multi_cleanup(loop->multi); /* closes the idle connections: on_close_socket() */
	for (size_t fd = 0; fd < loop->slot_count; fd++)
		unwatch(&loop->slots[fd]);
	uv_close((uv_handle_t *)&loop->timer, on_timer_closed);
	uv_close((uv_handle_t *)&loop->failing, on_timer_closed);
	curl_global_cleanup();
}
