/* References of schemas against a base: the examples of RFC 3986, section 5.4, and what JSON Schema makes of them. */
#include "tests/unit/base/suite.h"

#include "workflow/base/check.h"
#include "workflow/language/schema_program.h"

/* Each reference gives the URI that RFC 3986 says. */
START_TEST(references_are_resolved)
{
	static const char base[] = "http://a/b/c/d;p?q";
	static const char *const cases[][2] = {
		/* 5.4.1 */
		{"g:h", "g:h"}, {"g", "http://a/b/c/g"}, {"./g", "http://a/b/c/g"}, {"g/", "http://a/b/c/g/"}, {"/g", "http://a/g"}, {"//g", "http://g"}, {"?y", "http://a/b/c/d;p?y"},
		{"g?y", "http://a/b/c/g?y"}, {"#s", "http://a/b/c/d;p?q#s"}, {"g#s", "http://a/b/c/g#s"}, {"g?y#s", "http://a/b/c/g?y#s"}, {";x", "http://a/b/c/;x"}, {"g;x", "http://a/b/c/g;x"},
		{"g;x?y#s", "http://a/b/c/g;x?y#s"}, {"", "http://a/b/c/d;p?q"}, {".", "http://a/b/c/"}, {"./", "http://a/b/c/"}, {"..", "http://a/b/"}, {"../", "http://a/b/"}, {"../g", "http://a/b/g"},
		{"../..", "http://a/"}, {"../../", "http://a/"}, {"../../g", "http://a/g"},
		/* 5.4.2 */
		{"../../../g", "http://a/g"}, {"../../../../g", "http://a/g"}, {"/./g", "http://a/g"}, {"/../g", "http://a/g"}, {"g.", "http://a/b/c/g."}, {".g", "http://a/b/c/.g"}, {"g..", "http://a/b/c/g.."},
		{"..g", "http://a/b/c/..g"}, {"./../g", "http://a/b/g"}, {"./g/.", "http://a/b/c/g/"}, {"g/./h", "http://a/b/c/g/h"}, {"g/../h", "http://a/b/c/h"}, {"g;x=1/./y", "http://a/b/c/g;x=1/y"},
		{"g;x=1/../y", "http://a/b/c/y"}, {"g?y/./x", "http://a/b/c/g?y/./x"}, {"g?y/../x", "http://a/b/c/g?y/../x"}, {"g#s/./x", "http://a/b/c/g#s/./x"}, {"g#s/../x", "http://a/b/c/g#s/../x"},
	};
	/* Other bases: without a path, without an authority, with neither. */
	static const char *const others[][3] = {
		{"http://a", "g", "http://a/g"}, {"http://a", "../g", "http://a/g"}, {"http://a?q", "#s", "http://a?q#s"}, {"http://a/b#f", "", "http://a/b"}, {"urn:x:y", "#s", "urn:x:y#s"}, {"urn:x:y", "urn:z", "urn:z"},
		{"file:///a/b", "c", "file:///a/c"}, {"file:///a/b", "../../c", "file:///c"}, {"file:/a/b", "./c", "file:/a/c"}, {"http://a/b/", "?", "http://a/b/?"}, {"http://a/b", "#", "http://a/b#"},
	};
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		const char *found = schema_uri_resolve(&arena, base, cases[i][0]);

		ck_assert_msg(strcmp(found, cases[i][1]) == 0, "%s: %s, not %s", cases[i][0], found, cases[i][1]);
	}
	for (size_t i = 0; i < COUNT_OF(others); i++) {
		const char *found = schema_uri_resolve(&arena, others[i][0], others[i][1]);

		ck_assert_msg(strcmp(found, others[i][2]) == 0, "%s from %s: %s, not %s", others[i][1], others[i][0], found, others[i][2]);
	}
	arena_close(&arena);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("language-schema-uri", references_are_resolved)
