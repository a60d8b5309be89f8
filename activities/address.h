/* The allow-list of addresses that `call: http` may reach (http.allow, semantics.md 10). Looked at where the socket is
 * opened, that is after DNS and again on each redirect, so that a name cannot stand for an inner address. Pure.
 *
 * A rule is one of: "public" (every address that is routed in the open Internet), a network ("10.0.0.0/8", "[fd00::]/8",
 * "::1/128"), an address ("127.0.0.1", "[::1]") or the name of a host ("host.example"), which may have any address. */
#pragma once

#include <sys/socket.h>

#include "workflow/base/bytes.h"
#include "workflow/base/error.h"

enum { ADDRESS_RULES_MAX = 1000, ADDRESS_TEXT_LEN_MAX = 64 };

struct address_rules;

/* ERR_INVALID names the rule that cannot be read. count 0: nothing is allowed. */
struct address_rules *address_rules_new(const char *const *texts, size_t count, struct error *error);
void address_rules_free(struct address_rules *rules);
bool address_rules_empty(const struct address_rules *rules);
/* host: the name or address of the URL, in brackets or not; compared without regard to case, a last dot left out. */
bool address_allowed(const struct address_rules *rules, const char *host, const struct sockaddr *address);
/* IPv4 addresses inside of IPv6 ones (mapped, NAT64, 6to4) are judged as what they lead to. */
bool address_is_public(const struct sockaddr *address);
void address_text(const struct sockaddr *address, char text[ADDRESS_TEXT_LEN_MAX]);
