/* Secrets as the operator configured them, and what an attempt may do with them (semantics.md 10): sent to the hosts that each one
 * lists, for workflows of the namespaces that it lists, and blotted out of whatever a peer sends back.
 *
 * Values are resolved when a request is sent and live in memory of that attempt alone, which is wiped at its end: never in its
 * arguments, which are journaled. Thread: loop; the texts live as long as the daemon. New here? Read secret_find(). */
#pragma once

#include "workflow/base/bytes.h"
#include "workflow/base/json.h"

enum {
	SECRETS_USED_MAX = 64, /* texts of one attempt that must not show */
	SECRET_BLOT_MIN = 4, /* bytes; shorter ones would blot out half the text and are no secrets */
};

struct secret_config {
	const char *name, *value;
	const struct json *hosts; /* [text], or NULL: any, for runtimes; none, for workflows */
	const struct json *namespaces; /* [text] of workflows, or NULL: none */
};

bool secret_allows_host(const struct secret_config *secret, const char *host); /* host without brackets and port */
/* The secret that a workflow of this namespace may send to this host; namespace NULL: the configuration itself sends it. NULL: *error says why not (ERR_DENIED), and never anything of a value. */
const struct secret_config *secret_find(const struct secret_config *secrets, size_t count, const char *name, const char *namespace, const char *host,
					struct error *error);

/* What must not show, of one attempt. */
struct secret_texts {
	char *texts[SECRETS_USED_MAX]; /* the longest first */
	size_t count;
};
void secret_texts_add(struct secret_texts *used, const char *text); /* as it is and as JSON writes it */
void secret_texts_close(struct secret_texts *used); /* wipes them */
/* Whether one of them stands in the text, in capitals or not: names of hosts are written in either. */
bool secret_texts_found(const struct secret_texts *used, const char *text);
/* Each occurrence becomes as many asterisks. */
void secret_texts_blot(const struct secret_texts *used, uint8_t *data, size_t len);
