/* Tests of daemon/definitions.c. */
#include "daemon/definitions.h"

#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

static struct definition *make(int number, size_t padding)
{
	struct buffer text;
	struct problems problems;

	buffer_init(&text, 1 << 20);
	buffer_printf(&text, "document: {dsl: '1.0.3', namespace: test, name: d%d, version: '1.0.0', summary: '", number);
	for (size_t i = 0; i < padding; i++)
		buffer_add_char(&text, 'x');
	buffer_add_text(&text, "'}\ndo: [{a: {set: {x: 1}}}]\n");
	problems_init(&problems);
	struct definition *definition = definition_load(buffer_bytes(&text), TEXT_YAML, &problems);
	ck_assert_msg(definition != NULL, "%s", problems.count ? problems.items[0].message : "");
	problems_close(&problems);
	buffer_close(&text);
	return definition;
}

/* By digest always, by name only when it was registered. */
START_TEST(found_by_digest_and_name)
{
	struct definitions all;
	struct definition *a;

	definitions_init(&all);
	a = definitions_put(&all, make(1, 0), false);
	ck_assert_ptr_eq(definitions_by_digest(&all, &a->digest), a);
	ck_assert_ptr_null(definitions_by_name(&all, "test", "d1", "1.0.0"));
	/* The same content once more: the one that is here stays, and is registered from now on. */
	ck_assert_ptr_eq(definitions_put(&all, make(1, 0), true), a);
	ck_assert_ptr_eq(definitions_by_name(&all, "test", "d1", "1.0.0"), a);
	ck_assert_ptr_null(definitions_by_name(&all, "test", "d1", "1.0.1"));
	ck_assert_uint_eq(all.count, 1);
	/* Putting in what is in gives back the use that was brought. */
	definitions_put(&all, definition_hold(a), false);
	ck_assert_uint_eq(a->use_count, 1);
	definitions_close(&all);
}
END_TEST

/* Past the limit the one not looked at for longest goes; who holds one keeps it. */
START_TEST(limit_of_definitions)
{
	struct definitions all;
	struct definition *first, *second, *kept;

	definitions_init(&all);
	first = definitions_put(&all, make(0, 0), true);
	second = definition_hold(definitions_put(&all, make(1, 0), true));
	for (int i = 2; i < DEFINITIONS_CACHED_MAX; i++)
		definitions_put(&all, make(i, 0), true);
	ck_assert_uint_eq(all.count, DEFINITIONS_CACHED_MAX);
	ck_assert_ptr_eq(definitions_by_name(&all, "test", "d0", "1.0.0"), first); /* looked at: the second is the oldest now */
	kept = definitions_put(&all, make(DEFINITIONS_CACHED_MAX, 0), true);
	ck_assert_uint_eq(all.count, DEFINITIONS_CACHED_MAX);
	ck_assert_ptr_null(definitions_by_digest(&all, &second->digest));
	ck_assert_ptr_eq(definitions_by_digest(&all, &kept->digest), kept);
	ck_assert_ptr_eq(definitions_by_digest(&all, &first->digest), first);
	ck_assert_str_eq(second->name, "d1");
	ck_assert_uint_eq(second->use_count, 1);
	definition_release(second);
	definitions_close(&all);
}
END_TEST

/* The bytes have a limit too; the newest stays even when it is over the limit alone. */
START_TEST(limit_of_bytes)
{
	struct definitions all;

	definitions_init(&all);
	for (int i = 0; i < 12; i++) {
		definitions_put(&all, make(i, 500000), true);
		ck_assert(all.count == 1 || all.bytes <= DEFINITIONS_CACHED_BYTES_MAX);
	}
	ck_assert_uint_lt(all.count, 12);
	ck_assert_ptr_nonnull(definitions_by_name(&all, "test", "d11", "1.0.0"));
	ck_assert_ptr_null(definitions_by_name(&all, "test", "d0", "1.0.0"));
	definitions_close(&all);
	ck_assert_uint_eq(all.bytes, 0);
}
END_TEST

static Suite *make_suite(void)
{
	Suite *suite = suite_create("daemon/definitions");
	TCase *tests = tcase_create("definitions");

	tcase_add_test(tests, found_by_digest_and_name);
	tcase_add_test(tests, limit_of_definitions);
	tcase_add_test(tests, limit_of_bytes);
	suite_add_tcase(suite, tests);
	return suite;
}

int main(void)
{
	return suite_run(make_suite());
}
