/* The event stream parser, by bytes. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "activities/sse.h"
#include "workflow/base/check.h"

struct seen {
	struct buffer text; /* "name=data|" per event */
	unsigned count, stop_at;
};

static bool on_event(void *arg, const char *name, struct bytes data)
{
	struct seen *seen = arg;

	buffer_add_text(&seen->text, name);
	buffer_add_char(&seen->text, '=');
	buffer_add_bytes(&seen->text, data);
	buffer_add_char(&seen->text, '|');
	return ++seen->count != seen->stop_at;
}

/* Feeds text in two pieces, cut after `cut` bytes, and compares. */
static void expect(const char *text, size_t cut, const char *expected)
{
	struct seen seen = {0};
	struct sse sse;

	buffer_init(&seen.text, 1 << 20);
	sse_init(&sse, on_event, &seen);
	ck_assert(sse_feed(&sse, (struct bytes){(const uint8_t *)text, cut}));
	ck_assert(sse_feed(&sse, (struct bytes){(const uint8_t *)text + cut, strlen(text) - cut}));
	ck_assert(sse_finish(&sse));
	ck_assert_msg(strcmp(buffer_text(&seen.text), expected) == 0, "cut %zu: \"%s\"", cut, buffer_text(&seen.text));
	sse_close(&sse);
	buffer_close(&seen.text);
}

/* Wherever a stream is cut, in a line, a line break or a character, the events are the same. */
START_TEST(any_cut_gives_the_same)
{
	static const char text[] = "\xEF\xBB\xBF: hello\r\n\r\ndata: {\"ä\":\"世界\"}\r\n\r\nevent: chat.end\rdata:a\rdata:  b\r\r: ping\ndata\n\n"
				   "id: 7\nretry: 1\nother: x\n\ndata: [DONE]\n\n";

	for (size_t cut = 0; cut < sizeof(text); cut++)
		expect(text, cut, "={\"ä\":\"世界\"}|chat.end=a\n b|=|=[DONE]|");
}
END_TEST

/* At the end whole lines count even without their empty line, and so does an unfinished end marker; a cut line does not. */
START_TEST(the_end_is_lenient)
{
	expect("data: a\n", 8, "=a|");
	expect("data: a", 7, "");
	expect("data: a\n\ndata: [DONE]", 5, "=a|=[DONE]|");
	expect("data: a\ndata:[DONE]", 5, "=a|=[DONE]|");
	expect("data: [DON", 5, "");
	expect("", 0, "");
}
END_TEST

/* The callback's false stops the reading; nothing more is given out. */
START_TEST(callback_stops)
{
	struct seen seen = {.stop_at = 1};
	struct sse sse;

	buffer_init(&seen.text, 1 << 20);
	sse_init(&sse, on_event, &seen);
	ck_assert(!sse_feed(&sse, BYTES_OF("data: a\n\ndata: b\n\n")));
	ck_assert(!sse_finish(&sse));
	ck_assert(!sse.overflow);
	ck_assert_str_eq(buffer_text(&seen.text), "=a|");
	sse_close(&sse);
	buffer_close(&seen.text);
}
END_TEST

/* A line, and an event of many lines, may have SSE_EVENT_MAX bytes and no more. */
START_TEST(events_are_bounded)
{
	size_t size = SSE_EVENT_MAX + 1;
	char *text = memory_alloc(size);
	struct seen seen = {0};
	struct sse sse;

	buffer_init(&seen.text, 4 << 20);
	memset(text, 'x', size);
	memcpy(text, "data:", 5);
	sse_init(&sse, on_event, &seen);
	ck_assert(sse_feed(&sse, (struct bytes){(uint8_t *)text, SSE_EVENT_MAX}));
	ck_assert(sse_feed(&sse, BYTES_OF("\n\n")));
	ck_assert_uint_eq(seen.count, 1);
	ck_assert_uint_eq(seen.text.len, SSE_EVENT_MAX - 5 + 2);
	ck_assert(!sse_feed(&sse, (struct bytes){(uint8_t *)text, size}));
	ck_assert(sse.overflow);
	sse_close(&sse);

	sse_init(&sse, on_event, &seen);
	text[99999] = '\n';
	for (int i = 0; i < SSE_EVENT_MAX / 100000; i++)
		ck_assert(sse_feed(&sse, (struct bytes){(uint8_t *)text, 100000}));
	ck_assert(!sse_feed(&sse, (struct bytes){(uint8_t *)text, 100000}));
	ck_assert(sse.overflow);
	sse_close(&sse);
	buffer_close(&seen.text);
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sse");
	TCase *cases = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(cases, any_cut_gives_the_same);
	tcase_add_test(cases, the_end_is_lenient);
	tcase_add_test(cases, callback_stops);
	tcase_add_test(cases, events_are_bounded);
	suite_add_tcase(suite, cases);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
