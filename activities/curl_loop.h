/* libcurl's multi interface on the uv loop: one struct transfer per HTTP exchange. Knows HTTP, not runtimes or workflows.
 *
 * Threads: loop. curl's socket and timer callbacks only arm uv handles; only the drain finishes a transfer. Proxy variables
 * of the environment are ignored; redirects are not followed (who wants them starts the next transfer, so that each hop is
 * checked). New here? Read transfer_start(), then on_poll() in curl_loop.c. */
#pragma once

#include <curl/curl.h>
#include <uv.h>

#include "activities/address.h"
#include "activities/secrets.h"
#include "workflow/base/bytes.h"
#include "workflow/base/error.h"
#include "workflow/base/list.h"

enum {
	CURL_SOCKETS_MAX = 65536, /* highest descriptor; past it a connection fails as if refused */
	CURL_CONNECTIONS_KEPT_MAX = 1024, /* idle ones kept for later requests */
	CURL_IDLE_MAX_S = 3, /* an idle connection is not used again after this: servers close theirs after 5 s */
	CURL_EASY_KEPT_MAX = 256, /* handles kept for later transfers */
	CURL_RESPONSE_HEADERS_MAX = 64 << 10, /* bytes of all header lines of a response */
	CURL_REQUEST_HEADERS_MAX = 64 << 10,
	CURL_URL_LEN_MAX = 8192,
};

struct curl_loop;
struct transfer;

enum transfer_end {
	TRANSFER_COMPLETE, /* a whole response came, whatever its status */
	TRANSFER_NOT_CONNECTED, /* no connection: name unknown, refused, no route */
	TRANSFER_NOT_ALLOWED, /* the address is not on the allow-list */
	TRANSFER_NOT_TRUSTED, /* the peer's certificate does not hold */
	TRANSFER_BROKEN, /* the connection ended in the middle */
	TRANSFER_TOO_LARGE, /* body_max or CURL_RESPONSE_HEADERS_MAX */
	TRANSFER_STOPPED, /* on_data returned false */
};

/* Request: the caller owns the struct and what it points to, and leaves both alone until on_done or transfer_cancel(). */
struct transfer {
	const char *method, *url;
	const char *headers; /* lines "Name: value", each ending in '\n'; NULL: none */
	/* For a peer that asks for HTTP digest authentication: curl answers its challenge within the transfer. NULL: none. */
	const char *digest_username, *digest_password;
	struct bytes body;
	bool has_body;
	bool effectful; /* a connection of its own, used once: curl re-sends on a reused one that breaks (semantics.md 3) */
	const struct address_rules *allow; /* NULL: any address */
	const struct secret_texts *secrets; /* blotted out of what comes, before anybody sees it; NULL: none. A stream is cut at random, and its pieces are given on at once */
	const char *host; /* of the URL; for `allow` */
	size_t body_max; /* of the response */

	/* Called from within curl: must not start, cancel or free a transfer. May be NULL. */
	void (*on_connecting)(struct transfer *transfer); /* the first time a socket is opened for it */
	void (*on_sending)(struct transfer *transfer); /* connected; the first byte is handed over next */
	bool (*on_data)(struct transfer *transfer, struct bytes data); /* false: stop here */
	void (*on_done)(struct transfer *transfer); /* exactly once, later; not after transfer_cancel() */
	void *owner;

	/* Result, valid from on_done on until transfer_close(). */
	enum transfer_end end;
	char detail[CURL_ERROR_SIZE];
	int status; /* 0: none came. Already valid in on_data */
	int64_t retry_after_ms;
	long connections; /* opened for it: 0 when one was reused */
	char address[ADDRESS_TEXT_LEN_MAX]; /* where it went, or was not allowed to go */
	struct buffer header_lines; /* of the last response, status line first; valid in on_data too */
	struct buffer received; /* the body after transfer decoding */
	uint64_t last_byte_us; /* monotonic, by now_us; 0: none came */
	char *redirect_url; /* where a 3xx points to, absolute; freed by transfer_close() */

	/* The loop's own. */
	struct curl_loop *loop;
	CURL *easy;
	struct curl_slist *header_list;
	char error_text[CURL_ERROR_SIZE];
	struct list link;
	bool not_allowed, too_large, stopped, has_connecting, sending;
	bool failed; /* curl or the loop cannot go on with it: about to end */
};

/* on_answer: a response begins to arrive, or is complete; before anything is done with it. May be NULL. */
int curl_loop_open(struct curl_loop **curl_loop, uv_loop_t *loop, uint64_t (*now_us)(void *arg), void (*on_answer)(void *arg), void *arg, struct error *error);
/* No transfer may be under way. on_closed fires later, when the last handle is gone; the memory is freed then. */
void curl_loop_close(struct curl_loop *curl_loop, void (*on_closed)(void *arg), void *arg);

/* Return 0, or ERR_INVALID for a URL, a method or headers that cannot be: on_done then never fires. */
int transfer_start(struct curl_loop *curl_loop, struct transfer *transfer, struct error *error);
void transfer_cancel(struct transfer *transfer); /* Closes the connection at once. Does nothing when it is over. */
void transfer_close(struct transfer *transfer); /* Frees the result; after on_done, a cancel or a failed start. */

/* The value of a response header, copied with all but printable ASCII as '?'; "" when it is not there. Returns value. */
const char *transfer_header(const struct transfer *transfer, const char *name, char *value, size_t size);
/* Split a URL: http or https, a host, no user and password. host needs 256 bytes and carries no brackets. */
bool url_check(const char *url, char host[256], struct error *error);
unsigned url_port(const char *url); /* its own, or its scheme's; 0: it has none */

struct curl_loop_counters {
	size_t sockets_open;
	uint64_t connections_opened;
};
struct curl_loop_counters curl_loop_counters(const struct curl_loop *curl_loop);
