/* Tests of workflow/language/duration.c. */
#include "workflow/language/duration.h"

#include <signal.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

/* Objects and ISO 8601 texts, the longest among them; what is no duration says why. */
START_TEST(durations)
{
	static const struct {
		const char *json;
		int64_t ms; /* -1: refused */
		const char *message;
	} cases[] = {
		{"{\"seconds\":30}", 30000, NULL},
		{"{\"days\":1,\"hours\":2,\"minutes\":3,\"seconds\":4,\"milliseconds\":5}", 93784005, NULL},
		{"{\"milliseconds\":0}", 0, NULL},
		{"\"PT1H30M\"", 5400000, NULL},
		{"\"P1DT0.5S\"", 86400500, NULL},
		{"{\"days\":36500}", INT64_C(3153600000000), NULL},
		{"{\"days\":36500,\"milliseconds\":1}", -1, "at most 36500 days"},
		{"{\"seconds\":1e300}", -1, "at most 36500 days"},
		{"{}", -1, "at least one of"},
		{"{\"weeks\":1}", -1, "'weeks' is no part"},
		{"{\"seconds\":1.5}", -1, "whole number"},
		{"{\"seconds\":-1}", -1, "whole number"},
		{"{\"seconds\":\"1\"}", -1, "whole number"},
		{"\"30s\"", -1, "ISO 8601"},
		{"\"P1Y\"", -1, "'P1Y': years and months have no fixed length"},
		{"\"P1MT1M\"", -1, "years and months"},
		{"\"P\"", -1, "is no ISO 8601 duration"},
		{"\"PT1MX\"", -1, "is no ISO 8601 duration"},
		{"\"P36501D\"", -1, "at most 36500 days"},
		{"30", -1, "not number"},
		{"null", -1, "not null"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct error error = {0};
		struct arena arena;
		int64_t ms = 42;
		int code;

		arena_init(&arena);
		code = duration_read(json_parse(&arena, bytes_text(cases[i].json), JSON_STRICT, NULL, NULL), &ms, &error);
		ck_assert_msg((code == 0) == (cases[i].ms >= 0), "%s: %s", cases[i].json, error.message);
		ck_assert_msg(ms == (code == 0 ? cases[i].ms : 0), "%s: %lld", cases[i].json, (long long)ms);
		if (code != 0)
			ck_assert_msg(strstr(error.message, cases[i].message) != NULL, "%s: %s", cases[i].json, error.message);
		arena_close(&arena);
	}
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("language-duration", durations)
