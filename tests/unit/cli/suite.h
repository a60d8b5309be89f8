/* What every test program of cli/ shares: one suite from a list of tests. */
#pragma once

#include <check.h>
#include <stdlib.h>

#define RUN_SUITE(name, ...)                                                              \
	int main(void)                                                                    \
	{                                                                                 \
		const TTest *const tests[] = {__VA_ARGS__};                               \
		Suite *suite = suite_create(name);                                        \
		TCase *all = tcase_create("all");                                         \
		for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)                 \
			tcase_add_test(all, tests[i]);                                    \
		suite_add_tcase(suite, all);                                              \
		SRunner *runner = srunner_create(suite);                                  \
		srunner_run_all(runner, CK_ENV);                                          \
		int failed = srunner_ntests_failed(runner);                               \
		srunner_free(runner);                                                     \
		return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;                         \
	}
