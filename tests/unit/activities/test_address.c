/* The allow-list of addresses. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "activities/address.h"
#include "workflow/base/check.h"

static const struct sockaddr *address(const char *text)
{
	static struct sockaddr_in v4;
	static struct sockaddr_in6 v6;

	v4 = (struct sockaddr_in){.sin_family = AF_INET};
	v6 = (struct sockaddr_in6){.sin6_family = AF_INET6};
	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
		return (const struct sockaddr *)&v4;
	ck_assert_msg(inet_pton(AF_INET6, text, &v6.sin6_addr) == 1, "%s", text);
	return (const struct sockaddr *)&v6;
}

static bool allowed(const char *rule, const char *host, const char *text)
{
	struct error error;
	struct address_rules *rules = address_rules_new(&rule, 1, &error);
	bool result;

	ck_assert_msg(rules != NULL, "%s", error.message);
	result = address_allowed(rules, host, address(text));
	address_rules_free(rules);
	return result;
}

/* Inner, private, link-local and special addresses are not public, in no disguise of IPv6. */
START_TEST(public_means_public)
{
	static const char *const inner[] = {
		"0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.168.1.1",
		"192.0.2.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1",
		"2001::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:c0a8:101::1",
	};
	static const char *const outer[] = {"8.8.8.8", "172.15.0.1", "172.32.0.1", "100.128.0.1", "223.255.255.255", "2a00:1450::1", "2606:4700::1111",
					    "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"};

	for (size_t i = 0; i < COUNT_OF(inner); i++)
		ck_assert_msg(!address_is_public(address(inner[i])), "%s", inner[i]);
	for (size_t i = 0; i < COUNT_OF(outer); i++)
		ck_assert_msg(address_is_public(address(outer[i])), "%s", outer[i]);
}
END_TEST

/* Networks match by their bits, IPv4 also in its IPv6 form; names match whatever address they have. */
START_TEST(rules_match)
{
	ck_assert(allowed("127.0.0.0/8", "x", "127.9.9.9"));
	ck_assert(allowed("127.0.0.0/8", "x", "::ffff:127.9.9.9"));
	ck_assert(!allowed("127.0.0.0/8", "x", "128.0.0.1"));
	ck_assert(!allowed("127.0.0.0/8", "x", "::1"));
	ck_assert(allowed("10.0.0.0/9", "x", "10.127.0.1"));
	ck_assert(!allowed("10.0.0.0/9", "x", "10.128.0.1"));
	ck_assert(allowed("10.1.2.3", "x", "10.1.2.3"));
	ck_assert(!allowed("10.1.2.3", "x", "10.1.2.4"));
	ck_assert(allowed("0.0.0.0/0", "x", "1.2.3.4"));
	ck_assert(!allowed("0.0.0.0/0", "x", "2a00::1"));
	ck_assert(allowed("[::1]/128", "x", "::1"));
	ck_assert(allowed("[::1]", "x", "::1"));
	ck_assert(allowed("fd00::/8", "x", "fd99::1"));
	ck_assert(!allowed("fd00::/8", "x", "fc99::1"));
	ck_assert(allowed("public", "x", "8.8.8.8"));
	ck_assert(!allowed("public", "x", "10.0.0.1"));
	ck_assert(allowed("host.example", "HOST.example.", "10.0.0.1"));
	ck_assert(!allowed("host.example", "host.example.evil.example", "10.0.0.1"));
	ck_assert(!allowed("host.example", "evil-host.example", "10.0.0.1"));
	ck_assert(allowed("localhost", "localhost", "127.0.0.1"));
}
END_TEST

/* No rules: nothing. More than ADDRESS_RULES_MAX, and rules that are none: an error that names them. */
START_TEST(bad_rules_are_refused)
{
	static const char *const bad[] = {"", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "::1/129", "[::1", "a b", "-x", "http://x", "10.0.0.0/8x", "127.0.0.1:21300", "[::1]:80", "host.example:80", "*.example", "1.2.3"};
	static const char *many[ADDRESS_RULES_MAX + 1];
	struct address_rules *rules;
	struct error error;

	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		ck_assert_msg(address_rules_new(&bad[i], 1, &error) == NULL, "\"%s\"", bad[i]);
		ck_assert_int_eq(error.code, ERR_INVALID);
		ck_assert_ptr_nonnull(strstr(error.message, "http.allow"));
		ck_assert_ptr_nonnull(strstr(error.message, "ports are not part of it"));
	}
	for (size_t i = 0; i < COUNT_OF(many); i++)
		many[i] = "10.0.0.0/8";
	ck_assert_ptr_null(address_rules_new(many, COUNT_OF(many), &error));
	ck_assert_int_eq(error.code, ERR_TOO_LARGE);
	rules = address_rules_new(many, ADDRESS_RULES_MAX, &error);
	ck_assert_ptr_nonnull(rules);
	address_rules_free(rules);
	rules = address_rules_new(NULL, 0, &error);
	ck_assert(address_rules_empty(rules));
	ck_assert(!address_allowed(rules, "x", address("8.8.8.8")));
	address_rules_free(rules);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("address");
	TCase *cases = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(cases, public_means_public);
	tcase_add_test(cases, rules_match);
	tcase_add_test(cases, bad_rules_are_refused);
	suite_add_tcase(suite, cases);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
