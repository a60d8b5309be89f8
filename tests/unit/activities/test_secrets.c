/* Secrets: who may use them, where they may go, and that they are blotted out of what comes back. */
#include "activities/secrets.h"

#include <check.h>
#include <signal.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

/* A workflow gets a secret when its namespace and the host are both listed; no list is an empty one. Messages never hold the value. */
START_TEST(a_secret_has_hosts_and_namespaces)
{
	struct arena arena;

	arena_init(&arena);
	const struct json *hosts = json_parse(&arena, BYTES_OF("[\"api.example\",\"::1\"]"), JSON_STRICT, NULL, NULL);
	const struct json *namespaces = json_parse(&arena, BYTES_OF("[\"one\",\"two\"]"), JSON_STRICT, NULL, NULL);
	const struct secret_config secrets[] = {
		{"key", "the value", hosts, namespaces}, {"runtime-only", "the value", hosts, NULL}, {"nowhere", "the value", NULL, namespaces}};
	static const struct {
		const char *name, *namespace, *host, *message; /* NULL: it is given */
	} cases[] = {
		{"key", "one", "api.example", NULL}, {"key", "two", "API.Example", NULL}, {"key", "one", "::1", NULL},
		{"key", "three", "api.example", "may not be used by workflows of namespace three"}, {"key", "ONE", "api.example", "namespace ONE"},
		{"key", "", "api.example", "namespace"}, {"key", "one", "evil.example", "may not be sent to evil.example"},
		{"key", "one", "api.example.evil.example", "may not be sent"}, {"runtime-only", "one", "api.example", "may not be used"},
		{"nowhere", "one", "api.example", "may not be sent"}, {"other", "one", "api.example", "there is no secret 'other'"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct error error = {0};
		const struct secret_config *found = secret_find(secrets, COUNT_OF(secrets), cases[i].name, cases[i].namespace, cases[i].host, &error);

		ck_assert_msg((found != NULL) == (cases[i].message == NULL), "case %zu", i);
		if (found) {
			ck_assert_str_eq(found->value, "the value");
			continue;
		}
		ck_assert_int_eq(error.code, ERR_DENIED);
		ck_assert_msg(strstr(error.message, cases[i].message) != NULL, "case %zu: %s", i, error.message);
		ck_assert_ptr_null(strstr(error.message, "the value"));
	}
	arena_close(&arena);
}
END_TEST

/* Each occurrence goes, also as JSON writes it; what is too short to be a secret stays. */
START_TEST(secrets_are_blotted_out)
{
	static const struct {
		const char *secret, *before, *after;
	} cases[] = {
		{"sesame", "open sesame, sesame!", "open ******, ******!"}, {"sesame", "sesamesesame", "************"}, {"sesame", "sesam", "sesam"},
		{"a\"b\\c", "{\"x\":\"a\\\"b\\\\c\"} a\"b\\c", "{\"x\":\"*******\"} *****"}, {"two\nlines", "two\\nlines|two\nlines", "**********|*********"},
		{"abc", "abc", "abc"}, {"", "abc", "abc"}, {"sesame", "", ""},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct secret_texts used = {0};
		char text[64];

		secret_texts_add(&used, cases[i].secret);
		strcpy(text, cases[i].before);
		secret_texts_blot(&used, (uint8_t *)text, strlen(text));
		ck_assert_str_eq(text, cases[i].after);
		secret_texts_close(&used);
	}
}
END_TEST

/* One that begins, or stands in, another leaves nothing of that: the longer one goes first, in whatever order they came. */
START_TEST(longer_secrets_go_first)
{
	static const char *const secrets[] = {"sesame", "open sesame now", "sesame now"};

	for (int order = 0; order < 2; order++) {
		struct secret_texts used = {0};
		char text[] = "open sesame now sesame now sesame";

		for (int i = 0; i < 3; i++)
			secret_texts_add(&used, secrets[order == 0 ? i : 2 - i]);
		secret_texts_blot(&used, (uint8_t *)text, strlen(text));
		ck_assert_str_eq(text, "*************** ********** ******");
		ck_assert(secret_texts_found(&used, "http://SeSame.example/"));
		ck_assert(!secret_texts_found(&used, "http://sesam.example/"));
		secret_texts_close(&used);
	}
}
END_TEST

/* One attempt keeps SECRETS_USED_MAX of them; who adds more has not counted. */
START_TEST(too_many_are_a_mistake_of_ours)
{
	struct secret_texts used = {0};

	for (int i = 0; i <= SECRETS_USED_MAX; i++)
		secret_texts_add(&used, "sesame");
}
END_TEST

SUITE_ABORTS(too_many_are_a_mistake_of_ours)
SUITE_MAIN("secrets", a_secret_has_hosts_and_namespaces, secrets_are_blotted_out, longer_secrets_go_first)
