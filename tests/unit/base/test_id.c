/* Tests of workflow/base/id.c. */
#include "workflow/base/id.h"

#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

/* 1 to 64 characters of the allowed ones, and nothing that a URL cannot name. */
START_TEST(client_ids)
{
	static const char *const good[] = {"a", "A-Z_0.9", "-", "...", ".a", "run-1"}, *const bad[] = {"", ".", "..", "a b", "a/b", "\xC3\xA9", "a\n", "a:b"};
	char text[ID_LEN_MAX + 2];

	for (size_t i = 0; i < COUNT_OF(good); i++)
		ck_assert_msg(id_valid(good[i]), "%s", good[i]);
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		ck_assert_msg(!id_valid(bad[i]), "%s", bad[i]);
	memset(text, 'x', sizeof(text));
	text[ID_LEN_MAX] = '\0';
	ck_assert(id_valid(text));
	text[ID_LEN_MAX] = 'x';
	text[ID_LEN_MAX + 1] = '\0';
	ck_assert(!id_valid(text));
}
END_TEST

/* Made ids have 26 characters, begin with the time as the public ULID examples do, and are ids. */
START_TEST(made_ids_are_ulids)
{
	static const uint8_t zero[10], ones[10] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
		     steps[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
	char id[27];

	id_make(0, zero, id);
	ck_assert_str_eq(id, "00000000000000000000000000");
	id_make(INT64_C(0xFFFFFFFFFFFF), ones, id);
	ck_assert_str_eq(id, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
	/* From the ULID specification's own example time: 1469918176385 is 01ARYZ6S41. */
	id_make(INT64_C(1469918176385), steps, id);
	ck_assert_mem_eq(id, "01ARYZ6S41", 10);
	/* 0x00010203040506070809 in base 32 by hand: 00000 00000 00000 10000 00100 00000 11000 00100 00000 10100 00011 00000 … */
	ck_assert_str_eq(id + 10, "000G40R40M30E209");
	ck_assert(id_valid(id));
}
END_TEST

/* Texts sort as their times do, whatever the randomness. */
START_TEST(made_ids_sort_by_time)
{
	static const uint8_t zero[10], ones[10] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255};

	for (int64_t time = 1700000000000, step = 1; time < INT64_C(0x7FFFFFFFFFFF); time += step, step *= 3) {
		char before[27], after[27];

		id_make(time, ones, before);
		id_make(time + 1, zero, after);
		ck_assert_int_lt(strcmp(before, after), 0);
	}
}
END_TEST

/* DNS labels: no hyphen at the ends, 63 characters. */
START_TEST(labels)
{
	static const char *const good[] = {"a", "A", "0", "a-b", "a--b", "Z9"}, *const bad[] = {"", "-", "-a", "a-", "a.b", "a_b", "\xC3\xA9"};
	char text[ID_LABEL_LEN_MAX + 2];

	for (size_t i = 0; i < COUNT_OF(good); i++)
		ck_assert_msg(id_valid_label(good[i]), "%s", good[i]);
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		ck_assert_msg(!id_valid_label(bad[i]), "%s", bad[i]);
	memset(text, 'x', sizeof(text));
	text[ID_LABEL_LEN_MAX] = '\0';
	ck_assert(id_valid_label(text));
	text[ID_LABEL_LEN_MAX] = 'x';
	text[ID_LABEL_LEN_MAX + 1] = '\0';
	ck_assert(!id_valid_label(text));
}
END_TEST

/* Semantic versions 2.0.0, and no longer than the limit. */
START_TEST(versions)
{
	static const char *const good[] = {"0.0.0", "1.2.3", "10.20.30", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-0.3.7", "1.0.0-x.7.z.92",
					   "1.0.0-x-y-z.--", "1.0.0+001", "1.0.0-beta+exp.sha.5114f85", "1.0.0-0a", "99999999999999999999.0.0"};
	static const char *const bad[] = {"", "1", "1.2", "1.2.3.4", "01.2.3", "1.02.3", "1.2.03", "v1.2.3", "1.2.3-", "1.2.3+", "1.2.3-01",
					  "1.2.3-a..b", "1.2.3-a.", "1.2.3+a+b", "1.2.3 ", " 1.2.3", "1.2.-3", "1.2.3-\xC3\xA9", "1.2.3-a_b", "1..3"};
	char text[ID_VERSION_LEN_MAX + 2] = "1.2.3-";

	for (size_t i = 0; i < COUNT_OF(good); i++)
		ck_assert_msg(id_valid_version(good[i]), "%s", good[i]);
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		ck_assert_msg(!id_valid_version(bad[i]), "%s", bad[i]);
	memset(text + 6, 'x', sizeof(text) - 6);
	text[ID_VERSION_LEN_MAX] = '\0';
	ck_assert(id_valid_version(text));
	text[ID_VERSION_LEN_MAX] = 'x';
	text[ID_VERSION_LEN_MAX + 1] = '\0';
	ck_assert(!id_valid_version(text));
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("base-id", client_ids, made_ids_are_ulids, made_ids_sort_by_time, labels, versions)
