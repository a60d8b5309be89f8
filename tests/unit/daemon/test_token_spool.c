/* The texts of attempts in memory: what is kept, and what goes when there is too much. Streams: tests/integration/tokens.mjs. */
#include "daemon/token_spool.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

static struct token_spool spool;
static struct arena arena;

static struct activity activity_of(const char *run, const char *step, unsigned attempt)
{
	return (struct activity){.run_id = run, .step_id = step, .attempt = attempt};
}

static const struct json *attempts_of(const char *run, const char *step)
{
	return json_get(token_spool_json(&spool, run, step, &arena), "attempts");
}

static void add(struct activity *activity, const char *text)
{
	token_spool_add(&spool, activity, bytes_text(text), false);
}

static void add_many(struct activity *activity, char letter, size_t len)
{
	char *text = memory_alloc(len + 1);

	memset(text, letter, len);
	token_spool_add(&spool, activity, (struct bytes){(const uint8_t *)text, len}, false);
	free(text);
}

/* --- a client of ours in place of the socket: it has room for so much, and takes all when it is told to -------------------------------- */

enum { CLIENT_ROOM = 64 << 10 };
static struct http_stream client;
static struct buffer taken;

struct http_stream *request_stream(struct request *request)
{
	(void)request;
	client = (struct http_stream){0};
	buffer_init(&client.out, 4 * CLIENT_ROOM);
	buffer_init(&taken, 64 << 20);
	return &client;
}

bool stream_is_full(const struct http_stream *stream)
{
	return stream->out.len >= CLIENT_ROOM;
}

void stream_add(struct http_stream *stream, struct bytes bytes)
{
	ck_assert(!stream->ended);
	buffer_add_bytes(&stream->out, bytes);
	ck_assert(!stream->out.overflow);
}

void stream_end(struct http_stream *stream)
{
	stream->ended = true;
}

static void take(void)
{
	buffer_add_bytes(&taken, buffer_bytes(&client.out));
	buffer_clear(&client.out);
	if (!client.ended)
		client.on_drained(&client);
}

static void go_away(void)
{
	client.on_closed(&client);
	buffer_close(&client.out);
	buffer_close(&taken);
}

static size_t count_events(const char *name)
{
	char line[40];
	size_t count = 0, len = (size_t)snprintf(line, sizeof line, "event: %s\n", name);

	/* By hand: under ASan each strstr() reads all that is left. */
	for (size_t at = 0; at + len <= taken.len; at++)
		count += taken.data[at] == line[0] && memcmp(taken.data + at, line, len) == 0;
	return count;
}

static void begin(void)
{
	token_spool_init(&spool);
	arena_init(&arena);
}

static void end(void)
{
	token_spool_close(&spool);
	arena_close(&arena);
}

/* Pieces become one text, by run, step and attempt; the end says how it went, once. */
START_TEST(texts_by_attempt)
{
	struct activity first = activity_of("a", "/do/0/x@1", 1), second = activity_of("a", "/do/0/x@1", 2), other = activity_of("b", "/do/0/x@1", 1);

	begin();
	add(&first, "one ");
	add(&other, "elsewhere");
	add(&first, "two");
	first.result.failure = FAILURE_STALLED;
	token_spool_end(&spool, &first);
	token_spool_end(&spool, &first);
	add(&second, "three");
	token_spool_add(&spool, &second, bytes_text("hm"), true);
	ck_assert_uint_eq(json_count(attempts_of("a", NULL)), 2);
	ck_assert_str_eq(json_get_text(json_at(attempts_of("a", NULL), 0), "text"), "one two");
	ck_assert_str_eq(json_get_text(json_at(attempts_of("a", NULL), 0), "outcome"), "stalled");
	ck_assert_ptr_null(json_get(json_at(attempts_of("a", NULL), 0), "reasoning"));
	ck_assert_str_eq(json_get_text(json_at(attempts_of("a", NULL), 1), "reasoning"), "hm");
	ck_assert(!json_get_boolean(json_at(attempts_of("a", NULL), 1), "ended", true));
	ck_assert_uint_eq(json_count(attempts_of("a", "/do/0/y@1")), 0);
	ck_assert_uint_eq(json_count(attempts_of("nobody", NULL)), 0);
	ck_assert_uint_eq(spool.bytes, 7 + 9 + 5 + 2);
	end();
}
END_TEST

/* Of a text over TOKEN_ATTEMPT_MAX the front goes, whole characters, and the offset says how much; of one piece that is longer alone, too. */
START_TEST(long_texts_lose_their_front)
{
	struct activity activity = activity_of("a", "/do/0/x@1", 1);
	const struct json *attempt;
	double offset;
	size_t len;

	begin();
	for (size_t i = 0; i < TOKEN_ATTEMPT_MAX / 3 + 1; i++)
		add(&activity, "€");
	attempt = json_at(attempts_of("a", NULL), 0);
	offset = json_get_number(attempt, "offset", 0);
	len = json_get(attempt, "text")->string.len;
	ck_assert_double_gt(offset, 0);
	ck_assert_uint_le(len, TOKEN_ATTEMPT_MAX);
	ck_assert_uint_eq((size_t)offset + len, (TOKEN_ATTEMPT_MAX / 3 + 1) * 3);
	ck_assert_uint_eq((size_t)offset % 3, 0);
	ck_assert_uint_eq(spool.bytes, len);
	add_many(&activity, 'x', TOKEN_ATTEMPT_MAX + 5);
	attempt = json_at(attempts_of("a", NULL), 0);
	ck_assert_uint_eq(json_get(attempt, "text")->string.len, TOKEN_ATTEMPT_MAX);
	ck_assert_double_eq(json_get_number(attempt, "offset", 0), (TOKEN_ATTEMPT_MAX / 3 + 1) * 3 + 5);
	/* Such a piece is cut between two characters as well. */
	struct buffer piece;
	buffer_init(&piece, 4 * TOKEN_ATTEMPT_MAX);
	for (size_t i = 0; i < TOKEN_ATTEMPT_MAX / 2; i++)
		buffer_add_text(&piece, "€");
	token_spool_add(&spool, &activity, buffer_bytes(&piece), false);
	buffer_close(&piece);
	attempt = json_at(attempts_of("a", NULL), 0);
	ck_assert_uint_eq(json_get(attempt, "text")->string.len, TOKEN_ATTEMPT_MAX / 3 * 3);
	ck_assert_uint_eq((size_t)json_get_number(attempt, "offset", 0) + TOKEN_ATTEMPT_MAX / 3 * 3, (TOKEN_ATTEMPT_MAX / 3 + 1) * 3 + 5 + TOKEN_ATTEMPT_MAX + TOKEN_ATTEMPT_MAX / 2 * 3);
	end();
}
END_TEST

/* Past TOKEN_SPOOL_MAX those that have ended go first, the oldest before the others; then what those under way have, but never of the one that writes. */
START_TEST(room_for_all)
{
	enum { COUNT = TOKEN_SPOOL_MAX / TOKEN_ATTEMPT_MAX };
	struct activity activities[COUNT + 2];
	char runs[COUNT + 2][8];

	begin();
	for (size_t i = 0; i < COUNT + 2; i++) {
		snprintf(runs[i], sizeof runs[i], "r%zu", i);
		activities[i] = activity_of(runs[i], "/do/0/x@1", 1);
	}
	for (size_t i = 0; i < COUNT; i++)
		add_many(&activities[i], 'x', TOKEN_ATTEMPT_MAX);
	token_spool_end(&spool, &activities[3]);
	token_spool_end(&spool, &activities[5]);
	ck_assert_uint_eq(spool.bytes, TOKEN_SPOOL_MAX);
	add_many(&activities[COUNT], 'y', 1);
	ck_assert_uint_eq(json_count(attempts_of("r3", NULL)), 0);
	ck_assert_uint_eq(json_count(attempts_of("r5", NULL)), 1);
	add_many(&activities[COUNT], 'y', TOKEN_ATTEMPT_MAX - 1);
	ck_assert_uint_eq(json_count(attempts_of("r5", NULL)), 1);
	add_many(&activities[COUNT + 1], 'z', TOKEN_ATTEMPT_MAX);
	ck_assert_uint_eq(json_count(attempts_of("r5", NULL)), 0);
	add_many(&activities[0], 'x', 1); /* full itself: its own front goes */
	ck_assert_uint_eq(json_count(attempts_of("r0", NULL)), 1);
	token_spool_end(&spool, &activities[1]);
	token_spool_add(&spool, &activities[2], bytes_text("hm"), true);
	ck_assert_uint_le(spool.bytes, TOKEN_SPOOL_MAX);
	/* One that lost its text while it is written to goes on at its own offset: nobody takes the rest for all of it. */
	for (size_t i = 0; i < COUNT + 2; i++)
		add_many(&activities[i], 'n', TOKEN_ATTEMPT_MAX);
	ck_assert_str_eq(json_get_text(json_at(attempts_of("r0", NULL), 0), "text"), "");
	token_spool_stream(&spool, NULL, "r0", NULL, false);
	add(&activities[0], "again");
	ck_assert_str_eq(json_get_text(json_at(attempts_of("r0", NULL), 0), "text"), "again");
	ck_assert_double_eq(json_get_number(json_at(attempts_of("r0", NULL), 0), "offset", 0), 2 * TOKEN_ATTEMPT_MAX + 1);
	take();
	ck_assert_uint_eq(count_events("attempt"), 1);
	ck_assert_msg(strstr(buffer_text(&taken), "\"offset\":2097153,") != NULL, "%s", buffer_text(&taken));
	go_away();
	end();
}
END_TEST

/* Attempts of few words count as well (TOKEN_ATTEMPTS_MAX). */
START_TEST(many_short_ones)
{
	begin();
	for (unsigned i = 0; i < TOKEN_ATTEMPTS_MAX + 10; i++) {
		struct activity activity = activity_of("a", "/do/0/x@1", i + 1);
		add(&activity, "x");
		token_spool_end(&spool, &activity);
	}
	ck_assert_uint_eq(spool.attempt_count, TOKEN_ATTEMPTS_MAX);
	ck_assert_double_eq(json_get_number(json_at(attempts_of("a", NULL), 0), "attempt", 0), 11);
	end();
}
END_TEST

/* A stream tells each of very many attempts once, as they come, though it is drained after each of them, and remembers none that is gone. */
START_TEST(a_stream_of_many)
{
	begin();
	token_spool_stream(&spool, NULL, "a", NULL, false);
	for (unsigned i = 0; i < TOKEN_ATTEMPTS_MAX + 10; i++) {
		struct activity activity = activity_of("a", "/do/0/x@1", i + 1);
		add(&activity, "x");
		take();
		token_spool_end(&spool, &activity);
	}
	ck_assert_uint_eq(spool.told_count, TOKEN_ATTEMPTS_MAX);
	token_spool_on_run_ended(&spool, "a");
	take();
	ck_assert(client.ended);
	ck_assert_uint_eq(count_events("attempt"), TOKEN_ATTEMPTS_MAX + 10);
	ck_assert_uint_eq(count_events("text"), TOKEN_ATTEMPTS_MAX + 10);
	ck_assert_uint_eq(count_events("end"), TOKEN_ATTEMPTS_MAX + 10);
	go_away();
	ck_assert_uint_eq(spool.told_count, 0);
	end();
}
END_TEST

/* A stream that comes late, to many attempts and a long text, has all of it once it is drained often enough, also what was added while it was full. */
START_TEST(a_stream_that_lags)
{
	struct activity activities[2000], last = activity_of("a", "/do/1/y@1", 1);
	unsigned drains = 0;

	begin();
	for (unsigned i = 0; i < COUNT_OF(activities); i++) {
		activities[i] = activity_of("a", "/do/0/x@1", i + 1);
		add(&activities[i], "x");
	}
	token_spool_stream(&spool, NULL, "a", NULL, false);
	ck_assert(stream_is_full(&client));
	add_many(&last, 'y', TOKEN_ATTEMPT_MAX / 2);
	add(&activities[0], "x");
	for (unsigned i = 0; i < COUNT_OF(activities); i++)
		token_spool_end(&spool, &activities[i]);
	token_spool_end(&spool, &last);
	token_spool_on_run_ended(&spool, "a");
	while (!client.ended && ++drains < 1000)
		take();
	take();
	ck_assert(client.ended);
	ck_assert_uint_eq(count_events("attempt"), COUNT_OF(activities) + 1);
	ck_assert_uint_eq(count_events("end"), COUNT_OF(activities) + 1);
	ck_assert_uint_gt(taken.len, TOKEN_ATTEMPT_MAX / 2);
	go_away();
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("daemon-token_spool");
	TCase *tests = tcase_create("tests");
	SRunner *runner;
	int failed;

	tcase_add_test(tests, texts_by_attempt);
	tcase_add_test(tests, long_texts_lose_their_front);
	tcase_add_test(tests, room_for_all);
	tcase_add_test(tests, many_short_ones);
	tcase_add_test(tests, a_stream_of_many);
	tcase_add_test(tests, a_stream_that_lags);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
