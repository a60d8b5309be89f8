/* What every test program of this folder ends with: run one suite, answer with the exit code meson wants. */
#pragma once

#include <check.h>
#include <stdlib.h>

static inline int suite_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* A suite of one case with the tests given, the form that most files need. */
#define SUITE_MAIN(name, ...)                                                                    \
	int main(void)                                                                           \
	{                                                                                        \
		const TTest *const tests[] = {__VA_ARGS__};                                      \
		Suite *suite = suite_create(name);                                               \
		TCase *tcase = tcase_create(name);                                               \
												 \
		for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)                    \
			tcase_add_test(tcase, tests[i]);                                         \
		suite_add_tcase(suite, tcase);                                                   \
		add_aborting_tests(suite);                                                       \
		return suite_run(suite);                                                         \
	}

/* Tests that must end in CHECK, that is in SIGABRT. */
#define SUITE_NO_ABORTS                                           \
	static void add_aborting_tests(Suite *suite)              \
	{                                                         \
		(void)suite;                                      \
	}
#define SUITE_ABORTS(...)                                                                        \
	static void add_aborting_tests(Suite *suite)                                             \
	{                                                                                        \
		const TTest *const tests[] = {__VA_ARGS__};                                      \
		TCase *tcase = tcase_create("stops");                                            \
												 \
		for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)                    \
			tcase_add_test_raise_signal(tcase, tests[i], SIGABRT);                   \
		suite_add_tcase(suite, tcase);                                                   \
	}
