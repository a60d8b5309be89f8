/* `call: http` against a small server: outputs, errors, redirects, the allow-list. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activities/internal.h"
#include "tests/unit/activities/rig.h"
#include "workflow/base/check.h"

#define OK "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "

static struct rig rig;
static struct stub stub;

static void open_all(const char *allow)
{
	rig_init(&rig);
	rig_stub(&rig, &stub);
	if (allow != NULL)
		rig.http_allow[rig.http_allow_count++] = allow;
	rig_open(&rig);
}

static const char *with(const char *method, const char *path, const char *more)
{
	static char text[2048];

	snprintf(text, sizeof(text), "{\"method\":\"%s\",\"endpoint\":\"%s%s\"%s}", method, stub.url, path, more);
	return text;
}

static void run(struct task *task, const char *method, const char *path, const char *more)
{
	task_init(task, ACTIVITY_HTTP, with(method, path, more));
	task_run(&rig, task);
}

static void expect(const char *method, const char *path, const char *more, enum failure_class failure, const char *detail)
{
	task_expect(&rig, ACTIVITY_HTTP, with(method, path, more), failure, detail);
}

/* What was asked is what is sent: query, body, headers, and the idempotency key unless the definition sets its own. */
START_TEST(request_is_sent_as_asked)
{
	struct task task;

	open_all("127.0.0.0/8");
	stub.pieces[0].text = OK "application/json\r\n\r\n{\"a\":[1,2.5]}";
	run(&task, "post", "/x?y=1", ",\"query\":{\"q\":\"a b&ä\",\"n\":2},\"headers\":{\"X-Test\":\"7\",\"Empty\":\"\"},\"body\":{\"b\":1,\"a\":null}");
	ck_assert_msg(task.activity.result.ok, "%s", task.activity.result.detail);
	ck_assert_int_eq(strncmp(stub.seen, "POST /x?y=1&n=2&q=a%20b%26%C3%A4 HTTP/1.1\r\n", 42), 0);
	ck_assert_ptr_nonnull(strstr(stub.seen, "\r\nX-Test: 7\r\n"));
	ck_assert_ptr_nonnull(strstr(stub.seen, "\r\nEmpty:\r\n"));
	ck_assert_ptr_nonnull(strstr(stub.seen, "\r\nContent-Type: application/json\r\n"));
	ck_assert_ptr_nonnull(strstr(stub.seen, "\r\nIdempotency-Key: 00000000000000000000000000000000000000000000000000000000000000ab\r\n"));
	ck_assert_ptr_nonnull(strstr(stub.seen, "\r\n\r\n{\"a\":null,\"b\":1}"));
	ck_assert(bytes_equal_text(task.activity.result.request, "{\"a\":null,\"b\":1}"));
	ck_assert(bytes_equal_text(task.activity.result.response, "{\"a\":[1,2.5]}"));
	ck_assert_double_eq(json_at(json_get(task.activity.result.output, "a"), 1)->number, 2.5);
	ck_assert_int_le(stages_sum(&task.activity.result.stages), (int64_t)(task.ended_us - task.begun_us));
	ck_assert_int_eq(stages_sum(&task.activity.result.stages), (int64_t)(rig.last_now_us - rig.first_now_us));
	ck_assert_uint_ge(task.activity.result.active_until_us, task.activity.result.active_from_us);
	ck_assert_uint_ne(task.activity.result.active_from_us, 0);
	ck_assert_uint_eq(task.activity.result.retry_attempts, HTTP_RETRY_ATTEMPTS);
	task_close(&task);

	run(&task, "PUT", "/x", ",\"headers\":{\"idempotency-key\":\"own\"},\"body\":\"plain\"");
	ck_assert_ptr_nonnull(strstr(stub.seen, "\r\nidempotency-key: own\r\n"));
	ck_assert_ptr_null(strstr(stub.seen, "00000000ab"));
	ck_assert_ptr_nonnull(strstr(stub.seen, "text/plain"));
	ck_assert_ptr_nonnull(strstr(stub.seen, "\r\n\r\nplain"));
	task_close(&task);
	rig_close(&rig);
}
END_TEST

/* Each effectful request has a connection of its own, used once. */
START_TEST(connections_are_not_shared)
{
	struct task task;

	open_all("127.0.0.0/8");
	stub.pieces[0].text = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
	stub.keep_open = true;
	for (int i = 0; i < 3; i++) {
		run(&task, "GET", "/", "");
		ck_assert_msg(task.activity.result.ok, "%s", task.activity.result.detail);
		ck_assert_double_eq(json_get_number(task.activity.result.record, "connections", 0), 1);
		task_close(&task);
	}
	rig_turns(&rig, 20);
	ck_assert_uint_eq(stub.closed_by_client, 3);
	rig_close(&rig);
}
END_TEST

/* content, raw and response are what the language says. */
START_TEST(outputs_have_their_form)
{
	struct task task;
	const struct json *output;

	open_all("127.0.0.1");
	stub.pieces[0].text = OK "text/plain\r\nX-A: 1\r\nx-a: 2\r\nX-Latin: \xE4\r\n\r\ngr\xC3\xBC\xC3\x9F";
	run(&task, "GET", "/", "");
	ck_assert_str_eq(task.activity.result.output->string.text, "grüß");
	task_close(&task);
	run(&task, "GET", "/", ",\"output\":\"raw\"");
	ck_assert_str_eq(task.activity.result.output->string.text, "Z3LDvMOf");
	task_close(&task);
	run(&task, "GET", "/p", ",\"output\":\"response\",\"headers\":{\"X-B\":\"b\"}");
	output = task.activity.result.output;
	ck_assert_double_eq(json_get_number(output, "statusCode", 0), 200);
	ck_assert_str_eq(json_get_text(output, "content"), "grüß");
	ck_assert_str_eq(json_get_text(json_get(output, "headers"), "x-a"), "1, 2");
	ck_assert_str_eq(json_get_text(json_get(output, "headers"), "x-latin"), "ä");
	ck_assert_str_eq(json_get_text(json_get(output, "request"), "method"), "GET");
	ck_assert_str_eq(json_get_text(json_get(json_get(output, "request"), "headers"), "X-B"), "b");
	task_close(&task);

	stub.pieces[0].text = OK "application/octet-stream\r\n\r\n\xFF\x00\x01";
	stub.pieces[0].len = strlen(stub.pieces[0].text) + 2;
	run(&task, "GET", "/", "");
	ck_assert_str_eq(task.activity.result.output->string.text, "/wAB");
	task_close(&task);
	stub.pieces[0] = (struct stub_piece){.text = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"};
	run(&task, "DELETE", "/", "");
	ck_assert_msg(task.activity.result.ok, "%s", task.activity.result.detail);
	ck_assert(json_is(task.activity.result.output, JSON_NULL));
	task_close(&task);
	stub.pieces[0].text = OK "application/problem+json\r\n\r\n{\"a\":1,";
	expect("GET", "/", "", FAILURE_SCHEMA_INVALID, "output: raw");
	rig_close(&rig);
}
END_TEST

/* Each status has its class; those that cannot change are not tried again. */
START_TEST(statuses_have_classes)
{
	static const struct {
		int status;
		enum failure_class failure;
	} cases[] = {{400, FAILURE_REFUSED}, {404, FAILURE_REFUSED}, {408, FAILURE_TIMED_OUT}, {429, FAILURE_RATE_LIMITED}, {500, FAILURE_RUNTIME_ERROR},
		     {503, FAILURE_RUNTIME_ERROR}, {302, FAILURE_REFUSED}};
	struct task task;

	open_all("127.0.0.1");
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char answer[200], code[16];

		snprintf(answer, sizeof(answer), "HTTP/1.1 %d X\r\nRetry-After: 3\r\nLocation: /y\r\nContent-Length: 4\r\nConnection: close\r\n\r\nwhy?", cases[i].status);
		snprintf(code, sizeof(code), "%d", cases[i].status);
		stub.pieces[0].text = answer;
		run(&task, "GET", "/", "");
		ck_assert_msg(task.activity.result.failure == cases[i].failure, "%d: %s", cases[i].status, failure_name(task.activity.result.failure));
		ck_assert_ptr_nonnull(strstr(task.activity.result.detail, code));
		ck_assert_int_eq(task.activity.result.status, cases[i].status);
		ck_assert_int_eq(task.activity.result.retry_after_ms, 3000);
		task_close(&task);
	}
	stub.pieces[0].text = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf";
	expect("GET", "/", "", FAILURE_RUNTIME_ERROR, "broke off");
	rig_close(&rig);
}
END_TEST

/* Nothing is allowed unless the configuration says so; the message names the setting. The server never hears of it. */
START_TEST(addresses_are_checked)
{
	char text[256];

	open_all(NULL);
	expect("GET", "/", "", FAILURE_CONFIGURATION, "http: {allow: ['127.0.0.1']}");
	ck_assert_uint_eq(stub.requests, 0);
	rig_close(&rig);

	open_all("public");
	expect("GET", "/", "", FAILURE_CONFIGURATION, "http: {allow: ['127.0.0.1/32']}");
	snprintf(text, sizeof(text), "{\"method\":\"GET\",\"endpoint\":\"http://localhost:%d/\"}", stub.port);
	task_expect(&rig, ACTIVITY_HTTP, text, FAILURE_CONFIGURATION, "http.allow");
	ck_assert_uint_eq(stub.requests, 0);
	rig_close(&rig);
}
END_TEST

/* The entries that the refusals name do allow it. */
START_TEST(named_entries_allow)
{
	static const char *const entries[] = {"127.0.0.1", "127.0.0.1/32"};

	for (size_t i = 0; i < COUNT_OF(entries); i++) {
		open_all(entries[i]);
		stub.pieces[0].text = OK "text/plain\r\n\r\nx";
		expect("GET", "/", "", FAILURE_NONE, NULL);
		rig_close(&rig);
	}
}
END_TEST

/* A name on the list may have any address. */
START_TEST(names_are_allowed)
{
	char text[256];

	open_all("localhost");
	stub.pieces[0].text = OK "text/plain\r\n\r\nx";
	snprintf(text, sizeof(text), "{\"method\":\"GET\",\"endpoint\":{\"uri\":\"http://localhost:%d/\"}}", stub.port);
	task_expect(&rig, ACTIVITY_HTTP, text, FAILURE_NONE, NULL);
	expect("GET", "/", "", FAILURE_CONFIGURATION, "http.allow");
	rig_close(&rig);
}
END_TEST

/* Redirects are followed only if asked for, each hop is checked anew, a POST becomes a GET after 303, and they end. */
START_TEST(redirects_are_checked)
{
	struct stub second;
	char answer[256];

	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig_stub(&rig, &second);
	rig.http_allow[rig.http_allow_count++] = "127.0.0.1";
	rig_open(&rig);
	second.pieces[0].text = OK "text/plain\r\n\r\nthere";
	snprintf(answer, sizeof(answer), "HTTP/1.1 303 See\r\nLocation: %s/next\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", second.url);
	stub.pieces[0].text = answer;
	expect("POST", "/", ",\"body\":{\"a\":1}", FAILURE_REFUSED, "redirect: true");
	ck_assert_uint_eq(second.requests, 0);
	expect("POST", "/", ",\"body\":{\"a\":1},\"redirect\":true,\"headers\":{\"Authorization\":\"x\"}", FAILURE_NONE, NULL);
	ck_assert_int_eq(strncmp(second.seen, "GET /next HTTP/1.1\r\n", 20), 0);
	ck_assert_ptr_null(strstr(second.seen, "Content-Type"));
	ck_assert_ptr_null(strstr(second.seen, "Authorization")); /* another port is another origin */
	ck_assert_ptr_nonnull(strstr(second.seen, "Idempotency-Key"));

	snprintf(answer, sizeof(answer), "HTTP/1.1 307 Go\r\nLocation: http://127.0.0.2:%d/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", second.port);
	second.requests = 0;
	expect("POST", "/", ",\"body\":{\"a\":1},\"redirect\":true", FAILURE_CONFIGURATION, "127.0.0.2");
	ck_assert_uint_eq(second.requests, 0);
	snprintf(answer, sizeof(answer), "HTTP/1.1 302 Go\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
	expect("GET", "/", ",\"redirect\":true", FAILURE_REFUSED, "unusable");

	snprintf(answer, sizeof(answer), "HTTP/1.1 307 Go\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
	stub.requests = 0;
	expect("GET", "/", ",\"redirect\":true", FAILURE_REFUSED, "HTTP_REDIRECTS_MAX");
	ck_assert_uint_eq(stub.requests, HTTP_REDIRECTS_MAX + 1);
	rig_close(&rig);
}
END_TEST

/* A peer that was told a secret and puts it into a redirect gets it into no message: not as a host, not in a URL that cannot be. */
START_TEST(redirects_keep_secrets)
{
	static const char *const locations[] = {"http://ses4me.invalid/", "http://SES4ME.invalid/", "http://ses4m%65.invalid/", "ftp://x/ses4me",
						"ftp://x/ses4m%65", "http://u:ses4me@127.0.0.1/"};
	static const char hosts[] = "[\"127.0.0.1\"]", namespaces[] = "[\"n\"]";
	struct secret_config secret = {.name = "key", .value = "ses4me"};
	char answer[256], text[512];
	struct arena arena;

	arena_init(&arena);
	secret.hosts = json_parse(&arena, bytes_text(hosts), JSON_STRICT, NULL, NULL);
	secret.namespaces = json_parse(&arena, bytes_text(namespaces), JSON_STRICT, NULL, NULL);
	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig.http_allow[rig.http_allow_count++] = "127.0.0.1";
	rig_open(&rig);
	rig.activities->secrets = &secret;
	rig.activities->secret_count = 1;
	snprintf(text, sizeof(text), "{\"method\":\"GET\",\"endpoint\":\"%s/\",\"redirect\":true,\"secrets\":{\"headers\":{\"X-Key\":\"key\"}}}", stub.url);
	for (size_t i = 0; i < COUNT_OF(locations); i++) {
		struct task task;

		snprintf(answer, sizeof(answer), "HTTP/1.1 302 Go\r\nLocation: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", locations[i]);
		stub.pieces[0].text = answer;
		task_init(&task, ACTIVITY_HTTP, text);
		task.activity.namespace = "n";
		task_run(&rig, &task);
		ck_assert_msg(task.activity.result.failure == FAILURE_REFUSED, "%s: %s", locations[i], task.activity.result.detail);
		ck_assert_msg(strstr(task.activity.result.detail, "redirected to") == task.activity.result.detail, "%s", task.activity.result.detail);
		ck_assert_msg(strcasestr(task.activity.result.detail, "ses4m") == NULL, "%s", task.activity.result.detail);
		ck_assert_ptr_nonnull(strstr(stub.seen, "ses4me")); /* it was told */
		task_close(&task);
	}
	rig_close(&rig);
	arena_close(&arena);
}
END_TEST

/* Thousands of header lines of one name become one text, in their order, at a cost that does not grow with the square of them. */
START_TEST(header_lines_are_put_together)
{
	static char answer[CURL_RESPONSE_HEADERS_MAX + 100];
	struct task task;
	size_t len;

	open_all("127.0.0.1");
	len = (size_t)sprintf(answer, "HTTP/1.1 200 OK\r\nConnection: close\r\nB: \xE9\r\na: first\r\n");
	for (int i = 0; i < 12000; i++)
		len += (size_t)sprintf(answer + len, "%c:%d\r\n", i % 2 != 0 ? 'a' : 'A', i % 10);
	sprintf(answer + len, "\r\nx");
	stub.pieces[0].text = answer;
	task_init(&task, ACTIVITY_HTTP, with("GET", "/", ",\"output\":\"response\""));
	task_run(&rig, &task);
	ck_assert_msg(task.activity.result.ok, "%s", task.activity.result.detail);
	const struct json *headers = json_get(task.activity.result.output, "headers");
	ck_assert_uint_eq(json_count(headers), 3);
	ck_assert_str_eq(json_get_text(headers, "b"), "\u00e9");
	ck_assert_uint_eq(strlen(json_get_text(headers, "a")), 5 + 12000 * 3);
	ck_assert_int_eq(strncmp(json_get_text(headers, "a"), "first, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1", 41), 0);
	ck_assert_uint_lt(task.arena.used + task.activity.arena.used, 4 << 20);
	task_close(&task);
	rig_close(&rig);
}
END_TEST

/* A body past ACTIVITY_BODY_MAX and headers past CURL_RESPONSE_HEADERS_MAX end the attempt. */
START_TEST(answers_are_bounded)
{
	static char chunk[64 << 10];

	memset(chunk, 'x', sizeof(chunk));
	open_all("127.0.0.1");
	stub.pieces[0].text = OK "text/plain\r\n\r\n";
	stub.pieces[1] = (struct stub_piece){.text = chunk, .len = sizeof(chunk), .repeat = ACTIVITY_BODY_MAX / sizeof(chunk) + 1};
	expect("GET", "/", "", FAILURE_RUNTIME_ERROR, "ACTIVITY_BODY_MAX");
	stub.pieces[0].text = "HTTP/1.1 200 OK\r\n";
	stub.pieces[1] = (struct stub_piece){.text = "X-Filler: 0123456789012345678901234567890123456789012345678901234567890123456789\r\n", .repeat = 900};
	expect("GET", "/", "", FAILURE_RUNTIME_ERROR, "headers");
	rig_close(&rig);
}
END_TEST

/* An answer larger than POOL_BYTES_MIN is read off the loop's thread, which turns on meanwhile; its end is that of a small one. */
START_TEST(large_answers_are_read_aside)
{
	enum { ITEMS = 1 << 20 }; /* 8 MiB */
	static char items[ITEMS * 8 + 1];
	struct task task;

	for (size_t i = 0; i < ITEMS; i++)
		memcpy(items + 8 * i, "1234567,", 8);
	open_all("127.0.0.1");
	for (int i = 0; i < 3; i++) {
		stub.pieces[0] = (struct stub_piece){.text = OK "application/json\r\n\r\n["};
		stub.pieces[1] = (struct stub_piece){.text = items, .len = sizeof(items) - 1};
		stub.pieces[2] = (struct stub_piece){.text = i == 1 ? "x]" : "1]"};
		task_init(&task, ACTIVITY_HTTP, with("GET", "/", ""));
		task_start(&rig, &task);
		/* The whole answer is there once the stage that reads it has begun, and no callback came: it is elsewhere. */
		while (task.activity.result.response.len == 0)
			uv_run(&rig.loop, UV_RUN_ONCE);
		ck_assert(!task.done);
		ck_assert_uint_eq(rig.activities->outside, 1);
		if (i == 2) {
			activity_cancel(rig.activities, &task.activity);
			activity_cancel(rig.activities, &task.activity);
			ck_assert_uint_eq(rig.activities->outside, 1);
		}
		task_wait(&rig, &task);
		if (i == 0) {
			ck_assert_msg(task.activity.result.ok, "%s", task.activity.result.detail);
			ck_assert_uint_eq(json_count(task.activity.result.output), ITEMS + 1);
			ck_assert_int_eq(stages_sum(&task.activity.result.stages), (int64_t)(rig.last_now_us - rig.first_now_us));
		} else {
			ck_assert_int_eq(task.activity.result.failure, i == 1 ? FAILURE_SCHEMA_INVALID : FAILURE_CANCELLED);
			ck_assert_ptr_null(task.activity.result.output);
		}
		task_close(&task);
	}
	/* Closing waits for it. */
	task_init(&task, ACTIVITY_HTTP, with("GET", "/", ""));
	task_start(&rig, &task);
	while (task.activity.result.response.len == 0)
		uv_run(&rig.loop, UV_RUN_ONCE);
	ck_assert_uint_eq(rig.activities->outside, 1);
	rig_close(&rig);
	ck_assert(task.done);
	ck_assert_int_eq(task.activity.result.failure, FAILURE_INTERRUPTED);
	task_close(&task);
}
END_TEST

/* Cancelling closes the connection; so does the end of everything. */
START_TEST(cancel_closes)
{
	struct task first, second;

	open_all("127.0.0.1");
	stub.silent = true;
	task_init(&first, ACTIVITY_HTTP, with("GET", "/", ""));
	task_start(&rig, &first);
	task_init(&second, ACTIVITY_HTTP, with("GET", "/", ""));
	task_start(&rig, &second);
	rig_turns(&rig, 30);
	activity_cancel(rig.activities, &first.activity);
	task_wait(&rig, &first);
	ck_assert_int_eq(first.activity.result.failure, FAILURE_CANCELLED);
	rig_turns(&rig, 30);
	ck_assert_uint_eq(stub.closed_by_client, 1);
	task_close(&first);

	/* While the name is looked up, too, and without waiting for that. */
	task_init(&first, ACTIVITY_HTTP, "{\"method\":\"GET\",\"endpoint\":\"http://nobody.invalid/\"}");
	task_start(&rig, &first);
	for (int i = 0; i < 3; i++)
		uv_run(&rig.loop, UV_RUN_NOWAIT);
	activity_cancel(rig.activities, &first.activity);
	task_wait(&rig, &first);
	ck_assert(first.activity.result.failure == FAILURE_CANCELLED || first.activity.result.failure == FAILURE_UNREACHABLE);
	rig_close(&rig);
	ck_assert(second.done);
	ck_assert_int_eq(second.activity.result.failure, FAILURE_INTERRUPTED);
	task_close(&first);
	task_close(&second);
}
END_TEST

/* Arguments that cannot be are refused at the start. */
START_TEST(arguments_are_checked)
{
	static const char *const bad[] = {
		"{}",
		"{\"method\":\"GET\"}",
		"{\"method\":\"G T\",\"endpoint\":\"http://x/\"}",
		"{\"method\":\"GET\",\"endpoint\":7}",
		"{\"method\":\"GET\",\"endpoint\":\"ftp://x/\"}",
		"{\"method\":\"GET\",\"endpoint\":\"http://user:secret@x/\"}",
		"{\"method\":\"GET\",\"endpoint\":\"no url\"}",
		"{\"method\":\"GET\",\"endpoint\":\"http://x/\",\"headers\":{\"A\":\"b\\r\\nEvil: 1\"}}",
		"{\"method\":\"GET\",\"endpoint\":\"http://x/\",\"headers\":{\"A B\":\"c\"}}",
		"{\"method\":\"GET\",\"endpoint\":\"http://x/\",\"headers\":{\"content-length\":\"9\"}}",
		"{\"method\":\"GET\",\"endpoint\":\"http://x/\",\"headers\":[]}",
		"{\"method\":\"GET\",\"endpoint\":\"http://x/\",\"query\":{\"a\":[]}}",
		"{\"method\":\"GET\",\"endpoint\":\"http://x/\",\"output\":\"all\"}",
	};

	open_all("127.0.0.1");
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		struct task task;

		task_init(&task, ACTIVITY_HTTP, bad[i]);
		ck_assert_msg(activity_start(rig.activities, &task.activity, &task.error) == ERR_INVALID, "%s: %s", bad[i], task.error.message);
		arena_close(&task.arena);
	}
	rig_close(&rig);
}
END_TEST

/* What is too long is refused, and the limit named: a query's value, the URL, the header lines of a request. */
START_TEST(limits_of_requests_are_named)
{
	static char filling[CURL_REQUEST_HEADERS_MAX + 1], text[CURL_REQUEST_HEADERS_MAX + 200];
	static const struct {
		const char *before, *after, *limit;
		int len;
	} rows[] = {
		{"{\"method\":\"GET\",\"endpoint\":\"http://127.0.0.1:1/\",\"query\":{\"a\":\"", "\"}}", "QUERY_VALUE_LEN_MAX", 4096},
		{"{\"method\":\"GET\",\"endpoint\":\"http://127.0.0.1:1/", "\"}", "CURL_URL_LEN_MAX", CURL_URL_LEN_MAX - (int)(sizeof("http://127.0.0.1:1/") - 1)},
	};

	memset(filling, 'x', sizeof(filling) - 1);
	open_all("127.0.0.1");
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct task task;

		snprintf(text, sizeof(text), "%s%.*s%s", rows[i].before, rows[i].len, filling, rows[i].after);
		task_expect(&rig, ACTIVITY_HTTP, text, FAILURE_UNREACHABLE, NULL);
		snprintf(text, sizeof(text), "%s%.*s%s", rows[i].before, rows[i].len + 1, filling, rows[i].after);
		task_init(&task, ACTIVITY_HTTP, text);
		ck_assert_int_ne(activity_start(rig.activities, &task.activity, &task.error), 0);
		ck_assert_msg(strstr(task.error.message, rows[i].limit) != NULL, "%s", task.error.message);
		arena_close(&task.arena);
	}
	snprintf(text, sizeof(text), "{\"method\":\"GET\",\"endpoint\":\"http://127.0.0.1:1/\",\"headers\":{\"A\":\"%s\"}}", filling);
	task_expect(&rig, ACTIVITY_HTTP, text, FAILURE_CONFIGURATION, "CURL_REQUEST_HEADERS_MAX");
	rig_close(&rig);
}
END_TEST

/* Past HTTP_IN_FLIGHT_MAX requests wait for their turn, first come, first served; past HTTP_WAITING_MAX the next one is refused. */
START_TEST(requests_are_bounded)
{
	enum { FLYING = HTTP_IN_FLIGHT_MAX, COUNT = HTTP_IN_FLIGHT_MAX + HTTP_WAITING_MAX, SERVED = 20 };
	struct task *tasks = memory_zero((COUNT + 1) * sizeof(*tasks));
	struct activity_result *result;
	struct json *counters;
	struct arena arena;

	open_all("127.0.0.1");
	stub.silent = true;
	stub.pieces[0].text = OK "text/plain\r\n\r\nx";
	for (size_t i = 0; i <= COUNT; i++)
		task_init(&tasks[i], ACTIVITY_HTTP, with("GET", "/", ""));
	for (size_t i = 0; i < COUNT; i++)
		task_start(&rig, &tasks[i]);
	ck_assert_int_eq(activity_start(rig.activities, &tasks[COUNT].activity, &tasks[COUNT].error), ERR_BUSY);
	ck_assert_ptr_nonnull(strstr(tasks[COUNT].error.message, "HTTP_WAITING_MAX"));
	rig_turns(&rig, 300);
	arena_init(&arena);
	counters = activities_counters_json(rig.activities, &arena);
	ck_assert_double_eq(json_get_number(counters, "inFlight", 0), FLYING);
	ck_assert_double_eq(json_get_number(counters, "waiting", 0), HTTP_WAITING_MAX);
	ck_assert_double_eq(json_get_number(counters, "connections", 0), FLYING);

	/* One that waits is cancelled; it never had a connection. */
	activity_cancel(rig.activities, &tasks[FLYING + 1].activity);
	task_wait(&rig, &tasks[FLYING + 1]);
	result = &tasks[FLYING + 1].activity.result;
	ck_assert_int_eq(result->failure, FAILURE_CANCELLED);
	ck_assert_uint_gt(result->queued_us, 0);
	ck_assert_int_eq(json_get(result->record, "connections") == NULL, true);

	/* One turn comes free, and goes from one to the next. */
	stub.silent = false;
	activity_cancel(rig.activities, &tasks[FLYING - 1].activity);
	task_wait(&rig, &tasks[FLYING + SERVED]);
	for (size_t i = 0; i < FLYING; i++)
		ck_assert(tasks[i].done == (i == FLYING - 1));
	for (size_t i = FLYING + 2; i <= FLYING + SERVED; i++) {
		result = &tasks[i].activity.result;
		ck_assert_msg(tasks[i].done && result->ok, "%zu: %s", i, result->detail);
		ck_assert_uint_gt(tasks[i].order, tasks[i == FLYING + 2 ? FLYING : i - 1].order);
		ck_assert_int_ge(result->stages.queue, 100 * 1000);
		ck_assert_uint_eq(result->queued_us, (uint64_t)result->stages.queue);
	}
	ck_assert(!tasks[COUNT - 1].done);
	ck_assert_uint_eq(rig.activities->http.in_flight, FLYING);
	task_start(&rig, &tasks[COUNT]); /* there is room again */
	rig_close(&rig);
	for (size_t i = 0; i <= COUNT; i++) {
		ck_assert(tasks[i].done);
		task_close(&tasks[i]);
	}
	arena_close(&arena);
	free(tasks);
}
END_TEST

/* Nobody listens: unreachable. A name that does not exist: the same. */
START_TEST(nobody_there)
{
	open_all("127.0.0.1");
	task_expect(&rig, ACTIVITY_HTTP, "{\"method\":\"GET\",\"endpoint\":\"http://127.0.0.1:1/\"}", FAILURE_UNREACHABLE, "127.0.0.1");
	task_expect(&rig, ACTIVITY_HTTP, "{\"method\":\"GET\",\"endpoint\":\"http://nobody.invalid/\"}", FAILURE_UNREACHABLE, "nobody.invalid");
	rig_close(&rig);
}
END_TEST

/* A connection that does not come about ends after HTTP_CONNECT_MS. */
START_TEST(connect_limit_holds)
{
	struct full_listener full;
	char text[128];

	full_listener_open(&full);
	open_all("127.0.0.1");
	snprintf(text, sizeof(text), "{\"method\":\"GET\",\"endpoint\":\"%s/\"}", full.url);
	task_expect(&rig, ACTIVITY_HTTP, text, FAILURE_UNREACHABLE, "HTTP_CONNECT_MS");
	rig_close(&rig);
	full_listener_close(&full);
}
END_TEST

/* An answer that does not come to its end is given up after HTTP_TOTAL_MS, redirects and all; here after less. */
START_TEST(total_limit_holds)
{
	open_all("127.0.0.1");
	ck_assert_int_eq(rig.activities->http.total_ms, HTTP_TOTAL_MS);
	rig.activities->http.total_ms = 200;
	stub.pieces[0].text = OK "text/plain\r\n\r\nx";
	stub.pieces[1] = (struct stub_piece){.text = "y", .delay_ms = 5000};
	expect("GET", "/", "", FAILURE_TIMED_OUT, "HTTP_TOTAL_MS");
	rig_turns(&rig, 30);
	ck_assert_uint_eq(stub.closed_by_client, 1);
	stub.pieces[0] = (struct stub_piece){.text = "HTTP/1.1 307 Go\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", .delay_ms = 60};
	stub.pieces[1] = (struct stub_piece){0};
	expect("GET", "/", ",\"redirect\":true", FAILURE_TIMED_OUT, "HTTP_TOTAL_MS");
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("http");
	TCase *cases = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(cases, 300);
	tcase_add_test(cases, request_is_sent_as_asked);
	tcase_add_test(cases, connections_are_not_shared);
	tcase_add_test(cases, outputs_have_their_form);
	tcase_add_test(cases, statuses_have_classes);
	tcase_add_test(cases, addresses_are_checked);
	tcase_add_test(cases, named_entries_allow);
	tcase_add_test(cases, names_are_allowed);
	tcase_add_test(cases, redirects_are_checked);
	tcase_add_test(cases, redirects_keep_secrets);
	tcase_add_test(cases, header_lines_are_put_together);
	tcase_add_test(cases, answers_are_bounded);
	tcase_add_test(cases, large_answers_are_read_aside);
	tcase_add_test(cases, cancel_closes);
	tcase_add_test(cases, arguments_are_checked);
	tcase_add_test(cases, limits_of_requests_are_named);
	tcase_add_test(cases, requests_are_bounded);
	tcase_add_test(cases, nobody_there);
	tcase_add_test(cases, connect_limit_holds);
	tcase_add_test(cases, total_limit_holds);
	suite_add_tcase(suite, cases);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
