/* Tests of workflow/base/error.c. */
#include "workflow/base/error.h"

#include <signal.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/json.h"

/* The code comes back, and the message reads from the outside in. */
START_TEST(context_goes_in_front)
{
	struct error error;

	ck_assert_int_eq(error_set(&error, ERR_FULL, "disk full after %d bytes", 12), ERR_FULL);
	ck_assert_int_eq(error_wrap(&error, "migrate %d", 3), ERR_FULL);
	ck_assert_int_eq(error_wrap(&error, "open journal %s", "/x"), ERR_FULL);
	ck_assert_int_eq(error.code, ERR_FULL);
	ck_assert_str_eq(error.message, "open journal /x: migrate 3: disk full after 12 bytes");
}
END_TEST

/* Without a place for the message the code is still told, and a wrapped error never looks like success. */
START_TEST(message_may_be_left_out)
{
	ck_assert_int_eq(error_set(NULL, ERR_BUSY, "queue of %d", 5), ERR_BUSY);
	ck_assert_int_ne(error_wrap(NULL, "submit"), ERR_NONE);
}
END_TEST

/* A message may be built from itself. */
START_TEST(arguments_may_lie_in_the_error)
{
	struct error error;

	error_set(&error, ERR_IO, "inner");
	error_set(&error, ERR_CORRUPT, "outer of %s", error.message);
	ck_assert_str_eq(error.message, "outer of inner");
	error_wrap(&error, "again %s", error.message);
	ck_assert_str_eq(error.message, "again outer of inner: outer of inner");
}
END_TEST

/* A message that is too long is cut at its end, at the last whole character, wherever the cut falls. */
START_TEST(long_message_is_cut_at_a_character)
{
	static const char *const characters[] = {"x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};

	for (size_t kind = 0; kind < 4; kind++) {
		for (size_t shift = 0; shift < 4; shift++) {
			struct error error;
			char text[2000] = "";
			size_t len;

			memset(text, 'a', shift);
			text[shift] = '\0';
			for (int i = 0; i < 400; i++)
				strcat(text, characters[kind]);
			error_set(&error, ERR_INVALID, "%s", text);
			len = strlen(error.message);
			ck_assert_uint_lt(len, sizeof(error.message));
			ck_assert_uint_ge(len, kind == 0 ? 400 : sizeof(error.message) - 4);
			ck_assert_mem_eq(error.message, text, len);
			ck_assert(utf8_valid(bytes_text(error.message), NULL));
			error_wrap(&error, "outer");
			ck_assert_mem_eq(error.message, "outer: ", 7);
			ck_assert_uint_lt(strlen(error.message), sizeof(error.message));
			ck_assert(utf8_valid(bytes_text(error.message), NULL));
		}
	}
}
END_TEST

/* Every code has a name of its own and a status of HTTP. */
START_TEST(every_code_has_a_name)
{
	for (int code = 0; code < ERROR_CODE_COUNT; code++) {
		ck_assert_ptr_nonnull(error_code_name(code));
		ck_assert_int_ge(error_code_http_status(code), 200);
		ck_assert_int_lt(error_code_http_status(code), 600);
		for (int other = 0; other < code; other++)
			ck_assert_str_ne(error_code_name(code), error_code_name(other));
	}
	ck_assert_str_eq(error_code_name(ERR_INVALID), "invalid-input");
	ck_assert_int_eq(error_code_http_status(ERR_BUSY), 503);
}
END_TEST

/* A code that is none is a mistake of ours. */
START_TEST(stop_on_a_code_that_is_none)
{
	error_code_name(ERROR_CODE_COUNT);
}
END_TEST

SUITE_ABORTS(stop_on_a_code_that_is_none)
SUITE_MAIN("base-error", context_goes_in_front, message_may_be_left_out, arguments_may_lie_in_the_error,
	   long_message_is_cut_at_a_character, every_code_has_a_name)
