/* See address.h. Pure: inet_pton and inet_ntop look at nothing but their arguments. Start at address_allowed(). */
#include "activities/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "workflow/base/check.h"

enum { HOST_LEN_MAX = 253, BITS_MAX = 128, MAPPED_BITS = 96 };

enum rule_kind { RULE_PUBLIC, RULE_NETWORK, RULE_HOST };

struct rule {
	enum rule_kind kind;
	uint8_t network[16]; /* IPv4 as ::ffff:a.b.c.d */
	unsigned bits;
	char host[HOST_LEN_MAX + 1];
};

struct address_rules {
	struct rule *items;
	size_t count;
};

struct network {
	const char *address;
	unsigned bits;
};

/* Not routed in the open Internet: the registries of special purpose addresses (RFC 6890 and its successors). */
static const struct network inner_v4[] = {
	{"0.0.0.0", 8}, {"10.0.0.0", 8}, {"100.64.0.0", 10}, {"127.0.0.0", 8}, {"169.254.0.0", 16}, {"172.16.0.0", 12},
	{"192.0.0.0", 24}, {"192.0.2.0", 24}, {"192.88.99.0", 24}, {"192.168.0.0", 16}, {"198.18.0.0", 15}, {"198.51.100.0", 24},
	{"203.0.113.0", 24}, {"224.0.0.0", 4}, {"240.0.0.0", 4},
};
/* Of IPv6 only 2000::/3 is given out; these parts of it are not for everybody. */
static const struct network inner_v6[] = {{"2001::", 23}, {"2001:db8::", 32}, {"3fff::", 20}};

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};

static bool in_network(const uint8_t address[16], const uint8_t network[16], unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	if (memcmp(address, network, whole) != 0)
		return false;
	return rest == 0 || ((address[whole] ^ network[whole]) & (uint8_t)(0xFF << (8 - rest))) == 0;
}

static bool read_address(const char *text, uint8_t address[16], bool *is_v4)
{
	*is_v4 = inet_pton(AF_INET, text, address + 12) == 1;
	if (*is_v4) {
		memcpy(address, mapped_prefix, sizeof(mapped_prefix));
		return true;
	}
	return inet_pton(AF_INET6, text, address) == 1;
}

static bool address_bytes(const struct sockaddr *address, uint8_t bytes[16])
{
	if (address->sa_family == AF_INET) {
		memcpy(bytes, mapped_prefix, sizeof(mapped_prefix));
		memcpy(bytes + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
		return true;
	}
	if (address->sa_family == AF_INET6) {
		memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
		return true;
	}
	return false;
}

static bool in_list(const uint8_t address[16], const struct network *networks, size_t count, unsigned more_bits)
{
	for (size_t i = 0; i < count; i++) {
		uint8_t network[16];
		bool is_v4;

		CHECK(read_address(networks[i].address, network, &is_v4));
		if (in_network(address, network, networks[i].bits + more_bits))
			return true;
	}
	return false;
}

static bool is_public(const uint8_t address[16])
{
	static const uint8_t nat64[12] = {0x00, 0x64, 0xFF, 0x9B};
	uint8_t inner[16];

	memcpy(inner, mapped_prefix, sizeof(mapped_prefix));
	if (memcmp(address, mapped_prefix, sizeof(mapped_prefix)) == 0)
		return !in_list(address, inner_v4, COUNT_OF(inner_v4), MAPPED_BITS);
	if (memcmp(address, nat64, sizeof(nat64)) == 0) {
		memcpy(inner + 12, address + 12, 4);
		return is_public(inner);
	}
	if (address[0] == 0x20 && address[1] == 0x02) { /* 6to4 */
		memcpy(inner + 12, address + 2, 4);
		return is_public(inner);
	}
	return (address[0] & 0xE0) == 0x20 && !in_list(address, inner_v6, COUNT_OF(inner_v6), 0);
}

bool address_is_public(const struct sockaddr *address)
{
	uint8_t bytes[16];

	return address_bytes(address, bytes) && is_public(bytes);
}

static bool is_host_name(const char *text)
{
	size_t len = strlen(text);
	bool has_letter = false;

	if (len == 0 || len > HOST_LEN_MAX || text[0] == '-' || text[0] == '.')
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

		has_letter |= letter;
		if (!letter && !(c >= '0' && c <= '9') && c != '-' && c != '.' && c != '_')
			return false;
	}
	return has_letter; /* "1.2.3" is an address gone wrong */
}

static bool read_rule(const char *text, struct rule *rule)
{
	char address[INET6_ADDRSTRLEN + 2];
	const char *slash = strchr(text, '/');
	size_t len = slash != NULL ? (size_t)(slash - text) : strlen(text);
	const char *start = text;
	char *end;
	unsigned long bits;
	bool is_v4;

	*rule = (struct rule){0};
	if (strcmp(text, "public") == 0) {
		rule->kind = RULE_PUBLIC;
		return true;
	}
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']')
		start++, len -= 2;
	if (len < sizeof(address)) {
		memcpy(address, start, len);
		address[len] = '\0';
		if (read_address(address, rule->network, &is_v4)) {
			rule->kind = RULE_NETWORK;
			rule->bits = BITS_MAX;
			if (slash == NULL)
				return true;
			if (slash[1] < '0' || slash[1] > '9')
				return false;
			bits = strtoul(slash + 1, &end, 10);
			if (*end != '\0' || bits > (is_v4 ? BITS_MAX - MAPPED_BITS : BITS_MAX))
				return false;
			rule->bits = (unsigned)bits + (is_v4 ? MAPPED_BITS : 0);
			return true;
		}
	}
	if (!is_host_name(text))
		return false;
	rule->kind = RULE_HOST;
	strcpy(rule->host, text);
	len = strlen(rule->host);
	if (rule->host[len - 1] == '.')
		rule->host[len - 1] = '\0';
	return true;
}

struct address_rules *address_rules_new(const char *const *texts, size_t count, struct error *error)
{
	struct address_rules *rules;

	if (count > ADDRESS_RULES_MAX) {
		error_set(error, ERR_TOO_LARGE, "http.allow has %zu rules; at most %d are possible", count, ADDRESS_RULES_MAX);
		return NULL;
	}
	rules = memory_zero(sizeof(*rules));
	rules->items = memory_zero((count + 1) * sizeof(*rules->items));
	for (size_t i = 0; i < count; i++) {
		if (!read_rule(texts[i], &rules->items[i])) {
			error_set(error, ERR_INVALID,
				  "http.allow: \"%.100s\" is none of: public, a network such as 10.0.0.0/8 or [fd00::]/8, an address, a host name; "
				  "ports are not part of it",
				  texts[i]);
			address_rules_free(rules);
			return NULL;
		}
		rules->count++;
	}
	return rules;
}

void address_rules_free(struct address_rules *rules)
{
	if (rules == NULL)
		return;
	free(rules->items);
	free(rules);
}

bool address_rules_empty(const struct address_rules *rules)
{
	return rules->count == 0;
}

static bool same_host(const char *rule, const char *host)
{
	size_t len = strlen(host);

	if (len > 0 && host[len - 1] == '.')
		len--;
	return strlen(rule) == len && strncasecmp(rule, host, len) == 0;
}

bool address_allowed(const struct address_rules *rules, const char *host, const struct sockaddr *address)
{
	uint8_t bytes[16];

	if (!address_bytes(address, bytes))
		return false;
	for (size_t i = 0; i < rules->count; i++) {
		const struct rule *rule = &rules->items[i];

		switch (rule->kind) {
		case RULE_PUBLIC:
			if (is_public(bytes))
				return true;
			break;
		case RULE_NETWORK:
			if (in_network(bytes, rule->network, rule->bits))
				return true;
			break;
		case RULE_HOST:
			if (same_host(rule->host, host))
				return true;
			break;
		}
	}
	return false;
}

void address_text(const struct sockaddr *address, char text[ADDRESS_TEXT_LEN_MAX])
{
	const void *bytes = address->sa_family == AF_INET6 ?
				    (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr :
				    (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;

	if ((address->sa_family != AF_INET && address->sa_family != AF_INET6) ||
	    inet_ntop(address->sa_family, bytes, text, ADDRESS_TEXT_LEN_MAX) == NULL)
		snprintf(text, ADDRESS_TEXT_LEN_MAX, "(address family %d)", address->sa_family);
}
