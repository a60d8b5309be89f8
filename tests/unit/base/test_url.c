/* Tests of workflow/base/url.c. */
#include "workflow/base/url.h"

#include "tests/unit/base/suite.h"

static void check(struct bytes text, enum url_keep keep, const char *expected)
{
	struct buffer out;

	buffer_init(&out, 4096);
	buffer_add_char(&out, '<'); /* what is there already stays */
	url_encode(&out, text, keep);
	ck_assert_str_eq(buffer_text(&out) + 1, expected);
	ck_assert_int_eq(buffer_text(&out)[0], '<');
	buffer_close(&out);
}

/* A value says the same in a URL as outside: nothing of it divides a path, begins a query or is taken for an encoding. */
START_TEST(values_are_encoded)
{
	check(BYTES_OF(""), URL_KEEP_UNRESERVED, "");
	check(BYTES_OF("azAZ09-._~"), URL_KEEP_UNRESERVED, "azAZ09-._~");
	check(BYTES_OF("a/b c?d=e&f#g%h+i:@"), URL_KEEP_UNRESERVED, "a%2Fb%20c%3Fd%3De%26f%23g%25h%2Bi%3A%40");
	check(BYTES_OF("\xc3\xa9\x7f\n"), URL_KEEP_UNRESERVED, "%C3%A9%7F%0A");
	check(BYTES_OF("a\0b"), URL_KEEP_UNRESERVED, "a%00b");
}
END_TEST

/* Text of a URL keeps its parts, and loses what no URL may hold. */
START_TEST(texts_of_urls_keep_their_parts)
{
	check(BYTES_OF("http://h:1/a%20b?c=d&e#f[];,@!$'()*+"), URL_KEEP_LEGAL, "http://h:1/a%20b?c=d&e#f[];,@!$'()*+");
	check(BYTES_OF("a b\"<>\\^`{|}"), URL_KEEP_LEGAL, "a%20b%22%3C%3E%5C%5E%60%7B%7C%7D");
	check(BYTES_OF("\xc3\xa9\x7f\n"), URL_KEEP_LEGAL, "%C3%A9%7F%0A");
	check(BYTES_OF("a\0b"), URL_KEEP_LEGAL, "a%00b");
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("url", values_are_encoded, texts_of_urls_keep_their_parts)
