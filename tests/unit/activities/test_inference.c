/* Inference against the real simulator, and against a small server for what the simulator does not say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activities/inference.h"
#include "tests/unit/activities/rig.h"
#include "workflow/base/check.h"

static struct rig rig;
static struct sim sim;
static struct stub stub;

static void open_sim(const char *script)
{
	rig_init(&rig);
	sim_start(&sim, script);
	rig_runtime(&rig, "r", sim.url);
}

static void close_sim(void)
{
	rig_close(&rig);
	sim_stop(&sim);
}

static void open_stub(void)
{
	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig_runtime(&rig, "r", stub.url);
}

/* A streamed answer gives text, usage, the record of who answered, and stages that add up to the attempt's wall time. */
START_TEST(stream_gives_all)
{
	struct task task;
	struct activity_result *result = &task.activity.result;
	struct digest request;
	char text[DIGEST_TEXT_LEN + 1];
	const struct json *output;
	struct arena arena;

	open_sim("{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"Grüße, 世界, and all the others there.\",\"reasoning\":\"hm\"}]},"
		 "\"cadence\":{\"firstByteMs\":30,\"chunkMs\":10,\"splitUtf8\":true}}");
	rig.runtimes[0].sampling = NULL;
	rig_open(&rig);
	task_init(&task, ACTIVITY_INFERENCE,
		  "{\"runtime\":\"r\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"sampling\":{\"temperature\":0.6,\"topP\":0.95,"
		  "\"seed\":\"42\",\"maxTokens\":200}}");
	task_run(&rig, &task);
	ck_assert_msg(result->ok, "%s", result->detail);
	output = result->output;
	ck_assert_str_eq(json_get_text(output, "text"), "Grüße, 世界, and all the others there.");
	ck_assert_str_eq(json_get_text(output, "reasoning"), "hm");
	ck_assert_str_eq(json_get_text(output, "finishReason"), "stop");
	ck_assert(json_get_number(json_get(output, "usage"), "promptTokens", 0) > 0);
	ck_assert(json_get_number(json_get(output, "usage"), "completionTokens", 0) > 5);
	ck_assert_str_eq(json_get_text(json_get(output, "provenance"), "model"), "m");
	ck_assert(json_get_boolean(json_get(output, "provenance"), "simulated", false));
	ck_assert_str_eq(json_get_text(json_get(output, "reproducibility"), "class"), "unmeasured");
	ck_assert_int_eq(strncmp(json_get_text(json_get(output, "provenance"), "configuration"), "sha256:", 7), 0);
	ck_assert(json_get_boolean(result->record, "simulated", false));
	ck_assert_int_eq(result->status, 200);

	/* The stages: nothing is lost between them. */
	ck_assert_int_ge(stages_sum(&result->stages), 30 * 1000 + 20 * 1000);
	ck_assert_int_le(stages_sum(&result->stages), (int64_t)(task.ended_us - task.begun_us));
	ck_assert_int_eq(stages_sum(&result->stages), (int64_t)(rig.last_now_us - rig.first_now_us));
	ck_assert_int_ge(result->stages.first_token, 25 * 1000);
	ck_assert_int_ge(result->stages.generation, 10 * 1000);
	ck_assert_int_ge((int64_t)(result->active_until_us - result->active_from_us), 40 * 1000);

	/* What is called the request is what the server got, every field of sampling explicit. */
	arena_init(&arena);
	request = digest_of(result->request);
	ck_assert(json_equal(json_get(sim_state(&sim, &arena), "lastRequest"), json_parse(&arena, result->request, 0, NULL, NULL)));
	digest_text(&request, text);
	ck_assert_str_eq((const char *)result->request.data,
			 "{\"max_tokens\":200,\"messages\":[{\"content\":\"Hello\",\"role\":\"user\"}],\"model\":\"m\",\"seed\":42,\"stream\":true,"
			 "\"stream_options\":{\"include_usage\":true},\"temperature\":0.6,\"top_p\":0.95}");
	ck_assert_str_eq(json_get_text(json_get(result->evidence, "sampling"), "seed"), "42");
	ck_assert_ptr_nonnull(strstr((const char *)result->response.data, "data: [DONE]"));
	ck_assert_int_eq(result->retry_attempts, 3);
	arena_close(&arena);
	task_close(&task);
	close_sim();
}
END_TEST

/* A server that ignores `stream` and answers with plain JSON is understood; so are a stream without end marker but with a finish
 * reason, a chunk sent twice, and a wrong Content-Type. */
START_TEST(odd_servers_are_understood)
{
	static const char *const scripts[] = {
		"{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"yes\"}]},\"options\":{\"ignoreStream\":true}}",
		"{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"yes\"}]},\"options\":{\"noDone\":true}}",
		"{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"yes\"}]},\"faults\":[{\"on\":1,\"kind\":\"contentType\"}]}",
	};

	open_sim(NULL);
	rig_open(&rig);
	for (size_t i = 0; i < COUNT_OF(scripts); i++) {
		struct task task;

		sim_set_script(&sim, scripts[i]);
		task_init(&task, ACTIVITY_INFERENCE, ASK);
		task_run(&rig, &task);
		ck_assert_msg(task.activity.result.ok, "%zu: %s", i, task.activity.result.detail);
		ck_assert_str_eq(json_get_text(task.activity.result.output, "text"), "yes");
		task_close(&task);
	}
	close_sim();
}
END_TEST

/* Each thing that goes wrong has its class, and only those where it may help are tried again. */
START_TEST(faults_have_classes)
{
	static const struct {
		const char *fault; /* of the first request; where curl sends again (a reused connection broke before any byte), of that too */
		enum failure_class failure;
		const char *detail;
	} cases[] = {
		{"\"kind\":\"refuse\"", FAILURE_UNREACHABLE, NULL},
		{"\"kind\":\"close\"", FAILURE_UNREACHABLE, "without an answer"},
		{"\"kind\":\"reset\",\"afterBytes\":300", FAILURE_RUNTIME_ERROR, "broke off"},
		{"\"kind\":\"eof\"", FAILURE_TRUNCATED, "without a finish reason"},
		{"\"kind\":\"errorEvent\"", FAILURE_RUNTIME_ERROR, "in the middle"},
		{"\"kind\":\"truncatedJson\"", FAILURE_RUNTIME_ERROR, "not JSON"},
		{"\"kind\":\"cutByLength\"", FAILURE_TRUNCATED, "maxTokens"},
		{"\"kind\":\"status\",\"status\":400", FAILURE_REFUSED, "400"},
		{"\"kind\":\"status\",\"status\":401", FAILURE_REFUSED, "401"},
		{"\"kind\":\"status\",\"status\":422", FAILURE_REFUSED, "422"},
		{"\"kind\":\"status\",\"status\":500", FAILURE_RUNTIME_ERROR, "500"},
		{"\"times\":1,\"kind\":\"status\",\"status\":503", FAILURE_UNREACHABLE, "503"},
		{"\"kind\":\"stall\",\"afterBytes\":700", FAILURE_STALLED, "timeouts.betweenTokens"},
		{"\"kind\":\"hang\"", FAILURE_STALLED, "timeouts.firstToken"},
	};

	open_sim(NULL);
	rig.runtimes[0].between_tokens_ms = 2000; /* a busy machine may take a while over the other ones */
	rig.runtimes[0].first_token_ms = 3000;
	rig_open(&rig);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char script[512];

		snprintf(script, sizeof(script),
			 "{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"one two three four five six seven eight nine ten\"}]},"
			 "\"cadence\":{\"tokensPerChunk\":1},\"faults\":[{\"on\":%s,%s}]}",
			 cases[i].failure == FAILURE_UNREACHABLE ? "[1,2]" : "1", cases[i].fault);
		sim_set_script(&sim, script);
		task_expect(&rig, ACTIVITY_INFERENCE, ASK, cases[i].failure, cases[i].detail);
		/* The next one is answered: nothing of the fault stays behind. */
		task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_NONE, NULL);
	}
	close_sim();
}
END_TEST

/* Retry-After is read, and 429 is an own class. */
START_TEST(rate_limit_says_when)
{
	struct task task;

	open_sim("{\"faults\":[{\"on\":1,\"kind\":\"status\",\"status\":429,\"retryAfter\":7}]}");
	rig_open(&rig);
	task_init(&task, ACTIVITY_INFERENCE, ASK);
	task_run(&rig, &task);
	ck_assert_int_eq(task.activity.result.failure, FAILURE_RATE_LIMITED);
	ck_assert_int_eq(task.activity.result.retry_after_ms, 7000);
	task_close(&task);
	close_sim();
}
END_TEST

/* A kept connection that breaks before any byte came, by an orderly end or by a reset, is tried once more by curl, and the record
 * says so. */
START_TEST(sending_again_is_recorded)
{
	static const char *const faults[] = {"close", "refuse"};

	for (size_t i = 0; i < COUNT_OF(faults); i++) {
		struct task task;
		char script[128];

		snprintf(script, sizeof(script), "{\"faults\":[{\"on\":2,\"kind\":\"%s\"}]}", faults[i]);
		open_sim(script);
		rig_open(&rig);
		task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_NONE, NULL);
		task_init(&task, ACTIVITY_INFERENCE, ASK);
		task_run(&rig, &task);
		ck_assert_msg(task.activity.result.ok, "%s: %s", faults[i], task.activity.result.detail);
		ck_assert_double_eq(json_get_number(task.activity.result.record, "connections", 0), 1);
		ck_assert_double_eq(json_get_number(task.activity.result.record, "sentAgain", 0), 1);
		task_close(&task);
		close_sim();
	}
}
END_TEST

/* Pings and comments do not hide that no token comes. */
START_TEST(pings_do_not_feed_the_timer)
{
	open_sim("{\"cadence\":{\"firstByteMs\":20000,\"pingMs\":20}}");
	rig.runtimes[0].first_token_ms = 300;
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_STALLED, "300 ms");
	close_sim();
}
END_TEST

/* A slow answer that never pauses runs into the total limit. */
START_TEST(total_limit_holds)
{
	open_sim("{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h\"}]},"
		 "\"cadence\":{\"chunkMs\":50,\"tokensPerChunk\":1}}");
	rig.runtimes[0].total_ms = 250;
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_TIMED_OUT, "timeouts.total");
	close_sim();
}
END_TEST

/* Cancelling closes the stream at once: the server sees its client go, the slot is free for the next. */
START_TEST(cancel_closes_the_stream)
{
	struct task first, second;
	struct arena arena;

	open_sim("{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"a b c d e f g h i j k l m n o p q r s t u v w x y z\"}]},"
		 "\"cadence\":{\"chunkMs\":20,\"tokensPerChunk\":1}}");
	rig_open(&rig);
	task_init(&first, ACTIVITY_INFERENCE, ASK);
	task_init(&second, ACTIVITY_INFERENCE, ASK);
	task_start(&rig, &first);
	task_start(&rig, &second);
	while (((struct work *)first.activity.work)->clock.stage != &first.activity.result.stages.generation)
		rig_turns(&rig, 1);
	rig_turns(&rig, 40); /* two chunks more */
	activity_cancel(rig.activities, &first.activity);
	ck_assert(!first.done);
	activity_cancel(rig.activities, &first.activity);
	task_wait(&rig, &first);
	ck_assert_int_eq(first.activity.result.failure, FAILURE_CANCELLED);
	ck_assert_int_gt(first.activity.result.response.len, 0);
	ck_assert_uint_ne(first.activity.result.active_until_us, 0);
	task_wait(&rig, &second);
	ck_assert_msg(second.activity.result.ok, "%s", second.activity.result.detail);
	ck_assert_uint_gt(second.activity.result.queued_us, 20 * 1000); /* at least one chunk of the first */
	arena_init(&arena);
	ck_assert_double_eq(json_get_number(sim_state(&sim, &arena), "cancelled", -1), 1);
	arena_close(&arena);
	task_close(&first);
	task_close(&second);
	close_sim();
}
END_TEST

/* However an attempt that was sent ended: what it used of the runtime, by usage or, where it told none, by the pieces that came; a runtime that
 * refuses has used nothing. Of one that was not sent nothing is said. */
START_TEST(what_was_spent_is_told)
{
	static const struct {
		const char *fault;
		int tokens; /* negative: at least so many, and fewer than the whole answer has */
	} cases[] = {
		{"\"kind\":\"reset\",\"afterBytes\":900", -1}, {"\"kind\":\"eof\"", -1}, {"\"kind\":\"status\",\"status\":500", 0}, {"\"kind\":\"hang\"", 0},
	};
	struct task task, waiting;

	open_sim("{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"one two three\"}]},\"cadence\":{\"firstByteMs\":20}}");
	rig.runtimes[0].first_token_ms = 3000;
	rig_open(&rig);
	task_init(&task, ACTIVITY_INFERENCE, ASK);
	task_run(&rig, &task);
	ck_assert_msg(task.activity.result.ok, "%s", task.activity.result.detail);
	ck_assert_str_eq(task.activity.result.spent.runtime, "r");
	ck_assert_double_eq((double)task.activity.result.spent.tokens,
			    json_get_number(json_get(task.activity.result.output, "usage"), "promptTokens", -1) + json_get_number(json_get(task.activity.result.output, "usage"), "completionTokens", -1));
	ck_assert_int_ge(task.activity.result.spent.us, 20 * 1000);
	ck_assert_int_le(task.activity.result.spent.us, (int64_t)(task.ended_us - task.begun_us));
	task_close(&task);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char script[512];
		int64_t tokens;

		snprintf(script, sizeof(script), "{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"one two three four five six seven eight nine ten\"}]},"
						 "\"cadence\":{\"tokensPerChunk\":1},\"faults\":[{\"on\":1,%s}]}", cases[i].fault);
		sim_set_script(&sim, script);
		task_init(&task, ACTIVITY_INFERENCE, ASK);
		task_run(&rig, &task);
		ck_assert(!task.activity.result.ok);
		ck_assert_msg(task.activity.result.spent.runtime != NULL, "%zu", i);
		tokens = task.activity.result.spent.tokens;
		ck_assert_msg(cases[i].tokens >= 0 ? tokens == cases[i].tokens : tokens >= 1 && tokens < 40, "%zu: %lld", i, (long long)tokens);
		task_close(&task);
	}
	/* One that is called off in its middle has used the runtime as well, one that waited for it has not. */
	sim_set_script(&sim, "{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"a b c d e f g h i j k l m n o p q r s t u v w x y z\"}]},\"cadence\":{\"chunkMs\":20,\"tokensPerChunk\":1}}");
	task_init(&task, ACTIVITY_INFERENCE, ASK);
	task_init(&waiting, ACTIVITY_INFERENCE, ASK);
	task_start(&rig, &task);
	task_start(&rig, &waiting);
	while (((struct work *)task.activity.work)->clock.stage != &task.activity.result.stages.generation)
		rig_turns(&rig, 1);
	activity_cancel(rig.activities, &waiting.activity);
	activity_cancel(rig.activities, &task.activity);
	task_wait(&rig, &task);
	task_wait(&rig, &waiting);
	ck_assert_int_ge(task.activity.result.spent.tokens, 1);
	ck_assert_ptr_null(waiting.activity.result.spent.runtime);
	task_close(&waiting);
	/* A daemon that ends has closed its runtimes before it has decided the last results. */
	close_sim();
	ck_assert_str_eq(task.activity.result.spent.runtime, "r");
	task_close(&task);
}
END_TEST

/* No more requests in flight than `concurrency`, and the queue is first come, first served. */
START_TEST(slots_are_kept)
{
	enum { TASKS = 7 };
	struct task tasks[TASKS];
	struct arena arena;
	unsigned first;

	open_sim("{\"cadence\":{\"firstByteMs\":40}}");
	rig.runtimes[0].concurrency = 2;
	rig_open(&rig);
	for (int i = 0; i < TASKS; i++) {
		task_init(&tasks[i], ACTIVITY_INFERENCE, ASK);
		task_start(&rig, &tasks[i]);
	}
	for (int i = 0; i < TASKS; i++)
		task_wait(&rig, &tasks[i]);
	first = tasks[0].order < tasks[1].order ? tasks[0].order : tasks[1].order;
	for (int i = 0; i < TASKS; i++) {
		ck_assert_msg(tasks[i].activity.result.ok, "%s", tasks[i].activity.result.detail);
		ck_assert_int_le(abs((int)(tasks[i].order - first) - i), 1);
		task_close(&tasks[i]);
	}
	arena_init(&arena);
	ck_assert_double_eq(json_get_number(sim_state(&sim, &arena), "maxInFlight", -1), 2);
	ck_assert_double_eq(json_get_number(sim_state(&sim, &arena), "requests", -1), TASKS);
	arena_close(&arena);
	/* One record for what the probe told, one more with the fingerprint that the answers carry; not one per attempt. */
	ck_assert_uint_eq(rig.notes, 2);
	close_sim();
}
END_TEST

/* An answer larger than POOL_BYTES_MIN is parsed and checked off the loop's thread; it may be cancelled there, and closing waits. */
START_TEST(large_answers_are_read_aside)
{
	enum { ITEMS = 20 * 1000 };
	static const char *const ends[] = {"1]", "x]", "\\\"a\\\"]", "1]", "1]"};
	static char answer[ITEMS * 8 + 1000];
	static const char ask[] = "{\"runtime\":\"r\",\"prompt\":\"Numbers\",\"schema\":{\"document\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}}}}";
	struct task task;

	open_stub();
	rig_open(&rig);
	for (size_t i = 0; i < COUNT_OF(ends); i++) {
		size_t len = (size_t)snprintf(answer, sizeof(answer), "%s",
					      JSON_HEAD "{\"model\":\"m\",\"choices\":[{\"index\":0,\"finish_reason\":\"stop\",\"message\":{\"content\":\"[");

		for (size_t j = 0; j < ITEMS; j++, len += 8)
			memcpy(answer + len, "1234567,", 8);
		snprintf(answer + len, sizeof(answer) - len, "%s\"}}]}", ends[i]);
		stub.pieces[0] = (struct stub_piece){.text = answer};
		task_init(&task, ACTIVITY_INFERENCE, ask);
		task_start(&rig, &task);
		while (rig.activities->outside == 0 || task.activity.result.response.len == 0)
			uv_run(&rig.loop, UV_RUN_ONCE);
		ck_assert(!task.done);
		if (i == 3)
			activity_cancel(rig.activities, &task.activity);
		if (i == 4)
			rig_close(&rig);
		else
			task_wait(&rig, &task);
		ck_assert(task.done);
		if (i == 0) {
			ck_assert_msg(task.activity.result.ok, "%s", task.activity.result.detail);
			ck_assert_uint_eq(json_count(json_get(task.activity.result.output, "json")), ITEMS + 1);
			ck_assert_ptr_nonnull(task.activity.result.evidence);
			ck_assert_int_eq(stages_sum(&task.activity.result.stages), (int64_t)(rig.last_now_us - rig.first_now_us));
		} else {
			static const enum failure_class failures[] = {FAILURE_NONE, FAILURE_SCHEMA_INVALID, FAILURE_SCHEMA_INVALID, FAILURE_CANCELLED, FAILURE_INTERRUPTED};

			ck_assert_msg(task.activity.result.failure == failures[i], "%zu: %s", i, task.activity.result.detail);
			ck_assert_ptr_null(task.activity.result.output);
			if (i <= 2)
				ck_assert_msg(strstr(task.activity.result.detail, i == 1 ? "not JSON" : "schema") != NULL, "%s", task.activity.result.detail);
		}
		task_close(&task);
	}
}
END_TEST

/* Past ACTIVITY_QUEUE_MAX attempts in the queue the next one is refused; closing then ends them all as interrupted. */
START_TEST(queue_is_bounded)
{
	size_t count = ACTIVITY_QUEUE_MAX + 1; /* one has the slot */
	struct task *tasks = memory_zero((count + 1) * sizeof(*tasks));

	open_stub();
	stub.silent = true;
	rig_open(&rig);
	for (size_t i = 0; i <= count; i++)
		task_init(&tasks[i], ACTIVITY_INFERENCE, ASK);
	for (size_t i = 0; i < count; i++)
		task_start(&rig, &tasks[i]);
	ck_assert_int_eq(activity_start(rig.activities, &tasks[count].activity, &tasks[count].error), ERR_BUSY);
	ck_assert_ptr_nonnull(strstr(tasks[count].error.message, "ACTIVITY_QUEUE_MAX"));
	rig_close(&rig);
	for (size_t i = 0; i < count; i++) {
		ck_assert(tasks[i].done);
		ck_assert_int_eq(tasks[i].activity.result.failure, FAILURE_INTERRUPTED);
		task_close(&tasks[i]);
	}
	ck_assert(!tasks[count].done);
	arena_close(&tasks[count].arena);
	free(tasks);
}
END_TEST

/* Nobody there: unreachable with the runtime's address, and the next attempt asks again who answers. */
START_TEST(nobody_there)
{
	rig_init(&rig);
	rig_runtime(&rig, "r", "http://127.0.0.1:1");
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_UNREACHABLE, "http://127.0.0.1:1");
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_UNREACHABLE, "does not answer");
	ck_assert_uint_eq(rig.notes, 0);
	rig_close(&rig);
}
END_TEST

/* A runtime that was known and is gone: the attempt says so, and the next one asks anew who answers. */
START_TEST(gone_after_it_was_known)
{
	rig_init(&rig);
	sim_start(&sim, NULL);
	rig_runtime(&rig, "r", sim.url);
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_NONE, NULL);
	sim_stop(&sim);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_UNREACHABLE, "cannot be reached");
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_UNREACHABLE, "does not answer");
	rig_close(&rig);
}
END_TEST

/* Another model's answer is a failed attempt, not a result. */
START_TEST(wrong_model_is_refused)
{
	open_stub();
	stub.pieces[0].text = SSE_HEAD "data: {\"model\":\"other\",\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n" SSE_DONE;
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_WRONG_MODEL, "other answered");
	rig_close(&rig);
}
END_TEST

/* The end marker ends the answer even if the server then keeps the connection open and silent. */
START_TEST(end_marker_is_enough)
{
	open_stub();
	stub.pieces[0].text = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nServer: stub\r\n\r\n" SSE_TEXT("x") SSE_FINISH("stop") SSE_DONE;
	stub.keep_open = true;
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_NONE, NULL);
	rig_close(&rig);
}
END_TEST

/* A line of the stream and a character in it may be cut anywhere. */
START_TEST(pieces_may_end_anywhere)
{
	static const char all[] = SSE_HEAD ": ping\n\n" SSE_TEXT("ä世") SSE_FINISH("stop") SSE_DONE;
	size_t head = sizeof(SSE_HEAD ": ping\n\n") - 1;

	open_stub();
	rig_open(&rig);
	for (size_t cut = head + 60; cut < head + 90; cut++) {
		stub.pieces[0] = (struct stub_piece){.text = all, .len = cut};
		stub.pieces[1] = (struct stub_piece){.text = all + cut, .delay_ms = 1};
		task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_NONE, NULL);
	}
	rig_close(&rig);
}
END_TEST

/* Text that is no UTF-8, an empty body, a web page, and flat error forms are failures with a class. */
START_TEST(nonsense_is_refused)
{
	static const struct {
		const char *answer;
		enum failure_class failure;
		const char *detail;
	} cases[] = {
		{SSE_HEAD SSE_TEXT("\xC3(") SSE_FINISH("stop") SSE_DONE, FAILURE_RUNTIME_ERROR, "utf8"},
		{SSE_HEAD, FAILURE_RUNTIME_ERROR, "empty body"},
		{JSON_HEAD "<html>no</html>", FAILURE_RUNTIME_ERROR, "neither"},
		{SSE_HEAD SSE_TEXT("half"), FAILURE_TRUNCATED, "end marker"},
		{SSE_HEAD SSE_TEXT("half") SSE_DONE, FAILURE_TRUNCATED, "the stream ended without a finish reason"},
		{JSON_HEAD "{\"model\":\"m\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"half\"}}]}", FAILURE_TRUNCATED, "the answer came without a finish reason; "},
		{JSON_HEAD "{\"model\":\"m\",\"choices\":[{\"index\":0,\"finish_reason\":null,\"message\":{\"content\":\"half\"}}]}", FAILURE_TRUNCATED, "the answer came without a finish reason; "},
		{JSON_HEAD "{\"error\":\"Unexpected endpoint or method. (POST /v1/x)\"}", FAILURE_REFUSED, "Unexpected endpoint"},
		{"HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"CUDA out of memory\",\"code\":500}}", FAILURE_OUT_OF_MEMORY, "CUDA"},
		{"HTTP/1.1 404 No\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"no m\",\"code\":\"model_not_found\"}}", FAILURE_WRONG_MODEL, "no m"},
		{"HTTP/1.1 422 No\r\nConnection: close\r\n\r\n{\"detail\":\"Unexpected keys\"}", FAILURE_REFUSED, "Unexpected keys"},
		{"HTTP/1.1 400 No\r\nConnection: close\r\n\r\n\xFF\xFE nonsense", FAILURE_REFUSED, "?? nonsense"},
		{SSE_HEAD "data: {\"error\":{\"message\":\"busy\",\"code\":429}}\n\n", FAILURE_RATE_LIMITED, "busy"},
		{SSE_HEAD "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"content_filter\"}]}\n\n" SSE_DONE, FAILURE_REFUSED, "filter"},
	};

	open_stub();
	rig_open(&rig);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		stub.pieces[0].text = cases[i].answer;
		task_expect(&rig, ACTIVITY_INFERENCE, ASK, cases[i].failure, cases[i].detail);
	}
	rig_close(&rig);
}
END_TEST

/* A response past ACTIVITY_BODY_MAX and an event past SSE_EVENT_MAX end the attempt with the limit's name. */
START_TEST(bodies_are_bounded)
{
	static char chunk[64 << 10];

	memset(chunk, ' ', sizeof(chunk));
	memcpy(chunk, ":", 1);
	chunk[sizeof(chunk) - 1] = '\n';
	open_stub();
	stub.pieces[0].text = SSE_HEAD;
	stub.pieces[1] = (struct stub_piece){.text = chunk, .len = sizeof(chunk), .repeat = ACTIVITY_BODY_MAX / sizeof(chunk) + 1};
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_RUNTIME_ERROR, "ACTIVITY_BODY_MAX");
	chunk[sizeof(chunk) - 1] = ' ';
	stub.pieces[1].repeat = SSE_EVENT_MAX / sizeof(chunk) + 1;
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_RUNTIME_ERROR, "SSE_EVENT_MAX");
	rig_close(&rig);
}
END_TEST

/* With a schema the answer is parsed and checked; without a match it is no result. */
START_TEST(schema_is_checked)
{
	static const char with[] = "{\"runtime\":\"r\",\"prompt\":\"p\",\"schema\":{\"document\":{\"type\":\"object\",\"required\":[\"a\"],"
				   "\"properties\":{\"a\":{\"type\":\"number\"}}}}}";
	struct task task;

	open_sim("{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"{\\\"a\\\":1}\"},{\"text\":\"{\\\"a\\\":\\\"x\\\"}\"},{\"text\":\"no\"},"
		 "{\"text\":\"```json\\n{\\\"a\\\":2}\\n```\"}]}}");
	rig_open(&rig);
	task_init(&task, ACTIVITY_INFERENCE, with);
	task_run(&rig, &task);
	ck_assert_msg(task.activity.result.ok, "%s", task.activity.result.detail);
	ck_assert_double_eq(json_get_number(json_get(task.activity.result.output, "json"), "a", 0), 1);
	ck_assert_ptr_nonnull(strstr((const char *)task.activity.result.request.data, "\"response_format\":{\"json_schema\":{\"name\":\"answer\""));
	task_close(&task);
	task_expect(&rig, ACTIVITY_INFERENCE, with, FAILURE_SCHEMA_INVALID, "/a");
	task_expect(&rig, ACTIVITY_INFERENCE, with, FAILURE_SCHEMA_INVALID, "not JSON");
	task_expect(&rig, ACTIVITY_INFERENCE, with, FAILURE_NONE, NULL);
	close_sim();
}
END_TEST

/* Arguments that cannot be are refused at the start, and the callback never fires. */
START_TEST(arguments_are_checked)
{
	static const struct {
		const char *with;
		int code;
	} cases[] = {
		{"{}", ERR_INVALID},
		{"{\"runtime\":\"nobody\",\"prompt\":\"x\"}", ERR_NOT_FOUND},
		{"{\"runtime\":\"r\"}", ERR_INVALID},
		{"{\"runtime\":\"r\",\"prompt\":\"x\",\"messages\":[]}", ERR_INVALID},
		{"{\"runtime\":\"r\",\"messages\":[{\"role\":\"user\"}]}", ERR_INVALID},
		{"{\"runtime\":\"r\",\"prompt\":\"x\",\"sampling\":{\"temprature\":1}}", ERR_INVALID},
		{"{\"runtime\":\"r\",\"prompt\":\"x\",\"sampling\":{\"seed\":\"12x\"}}", ERR_INVALID},
		{"{\"runtime\":\"r\",\"prompt\":\"x\",\"sampling\":{\"seed\":\"9007199254740993\"}}", ERR_INVALID},
		{"{\"runtime\":\"r\",\"prompt\":\"x\",\"sampling\":{\"maxTokens\":0}}", ERR_INVALID},
		{"{\"runtime\":\"r\",\"prompt\":\"x\",\"sampling\":{\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\"]}}", ERR_INVALID}, /* the openai kind takes 4 */
		{"{\"runtime\":\"r\",\"prompt\":\"x\",\"sampling\":{\"mirostat\":2}}", ERR_INVALID}, /* which has no such field */
		{"{\"runtime\":\"r\",\"prompt\":\"x\",\"sampling\":{\"temprature\":null}}", ERR_INVALID},
		{"{\"runtime\":\"r\",\"prompt\":\"x\",\"schema\":{\"document\":{\"type\":\"nonsense\"}}}", ERR_INVALID},
	};

	static char many[32 + 40 * 10001 + 4];
	size_t len = (size_t)snprintf(many, sizeof(many), "{\"runtime\":\"r\",\"messages\":[");
	struct task over;

	for (int i = 0; i < 10001; i++)
		len += (size_t)snprintf(many + len, sizeof(many) - len, "%s{\"role\":\"user\",\"content\":\"x\"}", i > 0 ? "," : "");
	snprintf(many + len, sizeof(many) - len, "]}");
	open_stub();
	rig_open(&rig);
	task_init(&over, ACTIVITY_INFERENCE, many);
	ck_assert_int_eq(activity_start(rig.activities, &over.activity, &over.error), ERR_INVALID);
	ck_assert_msg(strstr(over.error.message, "MESSAGES_MAX") != NULL, "%s", over.error.message);
	arena_close(&over.arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct task task;

		task_init(&task, ACTIVITY_INFERENCE, cases[i].with);
		ck_assert_msg(activity_start(rig.activities, &task.activity, &task.error) == cases[i].code, "%s: %d %s", cases[i].with, task.error.code,
			      task.error.message);
		arena_close(&task.arena);
	}
	rig_close(&rig);
}
END_TEST

/* The runtime's sampling is overlaid by the definition's, which takes away what it says null for; the key of the attempt and of the runtime travel as headers. */
START_TEST(request_carries_all)
{
	struct arena arena;

	open_stub();
	arena_init(&arena);
	rig.runtimes[0].sampling = json_parse(&arena, bytes_text("{\"temperature\":0.6,\"seed\":7,\"minP\":0.1,\"topP\":0.9,\"stop\":[\"x\"]}"), 0, NULL, NULL);
	rig.runtimes[0].api_key = "s3cret";
	stub.pieces[0].text = SSE_HEAD SSE_TEXT("x") SSE_FINISH("stop") SSE_DONE;
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, "{\"runtime\":\"r\",\"prompt\":\"p\",\"sampling\":{\"temperature\":0,\"topP\":null,\"stop\":null,\"topK\":null}}", FAILURE_NONE, NULL);
	ck_assert_ptr_nonnull(strstr(stub.seen, "Authorization: Bearer s3cret\r\n"));
	ck_assert_ptr_nonnull(strstr(stub.seen, "Idempotency-Key: 00000000000000000000000000000000000000000000000000000000000000ab\r\n"));
	ck_assert_ptr_null(strcasestr(stub.seen, "\r\nExpect:"));
	ck_assert_ptr_nonnull(strstr(stub.seen, "\"min_p\":0.1,"));
	ck_assert_ptr_nonnull(strstr(stub.seen, "\"seed\":7,"));
	ck_assert_ptr_nonnull(strstr(stub.seen, "\"temperature\":0}"));
	ck_assert_ptr_null(strstr(stub.seen, "\"top_p\""));
	ck_assert_ptr_null(strstr(stub.seen, "\"stop\""));
	arena_close(&arena);
	rig_close(&rig);
}
END_TEST

/* A runtime that says the key back, in pieces, gets it neither into the error nor into what is kept of its answer. */
START_TEST(a_key_that_comes_back_is_blotted_out)
{
	struct task task;

	open_stub();
	rig.runtimes[0].api_key = "s3cret key";
	stub.pieces[0].text = "HTTP/1.1 401 No\r\nContent-Type: application/json\r\nX-Key: s3cret key\r\nConnection: close\r\n\r\n"
			      "{\"error\":{\"message\":\"bad key s3cr";
	stub.pieces[1] = (struct stub_piece){.text = "et key, again s3cret key\"}}", .delay_ms = 50};
	rig_open(&rig);
	task_init(&task, ACTIVITY_INFERENCE, ASK);
	task_run(&rig, &task);
	ck_assert_ptr_nonnull(strstr(task.activity.result.detail, "bad key **********, again **********"));
	ck_assert_ptr_nonnull(memmem(task.activity.result.response.data, task.activity.result.response.len, "bad key", 7));
	ck_assert_ptr_null(memmem(task.activity.result.response.data, task.activity.result.response.len, "et key", 6));
	task_close(&task);
	rig_close(&rig);
}
END_TEST

#define ASK_NUMBER                                                                                                                       \
	"{\"runtime\":\"r\",\"prompt\":\"Give a number.\",\"schema\":{\"document\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":"   \
	"\"integer\",\"minimum\":3},\"more\":{\"type\":\"string\"}},\"required\":[\"n\"]}}}"

/* What a runtime refuses of a schema is left out of the next request of the same attempt, rung by rung; the record and the evidence say what
 * was sent and why, and the next attempt begins at the rung that was taken. The slot is one throughout. */
START_TEST(refused_schemas_go_down_the_ladder)
{
	static const struct {
		const char *option, *taken;
		unsigned refused;
		const char *in_request; /* of the last request */
	} rows[] = {
		{"noDone", "full", 0, "\"minimum\":3"},
		{"plainSchemas", "plain", 1, "\"schema\":{\"anyOf\":[{\"additionalProperties\":false,\"properties\":{\"n\":{\"type\":\"integer\"}},\"required\":[\"n\"]"},
		{"noSchemas", "json", 2, "\"response_format\":{\"type\":\"json_object\"}"},
		{"noFormats", "none", 3, "\"messages\":[{\"content\":\"Give a number.\",\"role\":\"user\"}],\"model\":\"m\",\"stream\":true"},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char script[200];

		snprintf(script, sizeof(script), "{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"{\\\"n\\\":5}\"}]},\"options\":{\"%s\":true}}", rows[i].option);
		open_sim(script);
		rig.runtimes[0].concurrency = 1;
		rig_open(&rig);
		for (unsigned again = 0; again < 2; again++) {
			struct task task;
			struct activity_result *result = &task.activity.result;
			const struct json *schema, *refused;
			const char *request;
			struct arena arena;

			task_init(&task, ACTIVITY_INFERENCE, ASK_NUMBER);
			task.activity.idempotency_key = "key";
			task_run(&rig, &task);
			ck_assert_msg(result->ok, "%s: %s", rows[i].taken, result->detail);
			ck_assert_double_eq(json_get_number(json_get(result->output, "json"), "n", 0), 5);
			request = arena_text_len(&task.arena, (const char *)result->request.data, result->request.len);
			ck_assert_msg(strstr(request, rows[i].in_request) != NULL, "%s: %s", rows[i].taken, request);
			schema = json_get(result->record, "schema");
			refused = json_get(schema, "refused");
			ck_assert_uint_eq(json_count(refused), again ? 0 : rows[i].refused);
			if (rows[i].refused == 0)
				ck_assert_ptr_null(schema);
			else
				ck_assert_str_eq(json_get_text(schema, "sent"), rows[i].taken);
			if (json_count(refused) > 0) {
				ck_assert_str_eq(json_get_text(json_at(refused, 0), "rung"), "full");
				ck_assert_double_eq(json_get_number(json_at(refused, 0), "status", 0), 400);
				ck_assert_ptr_nonnull(strstr(json_get_text(json_at(refused, 0), "detail"), i == 1 ? "required" : "response_format"));
			}
			ck_assert_pstr_eq(json_get_text(json_get(json_get(result->evidence, "request"), "annotations"), "schemaSent"), rows[i].refused ? rows[i].taken : NULL);
			ck_assert_int_eq(stages_sum(&result->stages), (int64_t)(rig.last_now_us - rig.first_now_us));
			arena_init(&arena);
			ck_assert_double_eq(json_get_number(sim_state(&sim, &arena), "requests", 0), (again ? 2 : 1) + rows[i].refused);
			ck_assert_double_eq(json_get_number(sim_state(&sim, &arena), "maxInFlight", 0), 1);
			/* Each request has a key of its own. */
			ck_assert_double_eq(json_get_number(json_get(json_get(sim_state(&sim, &arena), "byIdempotencyKey"), arena_printf(&arena, rows[i].refused ? "key/%s" : "key", rows[i].taken)), "requests", 0), again ? 2 : 1);
			arena_close(&arena);
			task_close(&task);
		}
		close_sim();
	}
}
END_TEST

/* A plainer schema was sent, but the whole one counts. An error that is none of the schema's is told as it came, with no second request; where
 * all rungs are refused, the last refusal is the failure. */
START_TEST(the_whole_schema_counts)
{
	struct arena arena;

	open_sim("{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"{\\\"n\\\":2}\"}]},\"options\":{\"plainSchemas\":true}}");
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK_NUMBER, FAILURE_SCHEMA_INVALID, "at least 3");
	sim_set_script(&sim, "{\"faults\":[{\"on\":{\"every\":1},\"kind\":\"status\",\"status\":400}]}");
	task_expect(&rig, ACTIVITY_INFERENCE, ASK_NUMBER, FAILURE_REFUSED, "the runtime answered 400");
	arena_init(&arena);
	ck_assert_double_eq(json_get_number(sim_state(&sim, &arena), "requests", 0), 1);
	arena_close(&arena);
	close_sim();

	open_stub();
	stub.pieces[0].text = "HTTP/1.1 400 No\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"error\":\"no schema, and none of anything else\"}";
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK_NUMBER, FAILURE_REFUSED, "none of anything else");
	ck_assert_uint_eq(stub.requests, SCHEMA_RUNG_COUNT);
	rig_close(&rig);

	/* In a stream that began well, but before any text. */
	open_stub();
	stub.pieces[0].text = SSE_HEAD "data: {\"error\":{\"message\":\"grammar: not this one\",\"code\":400}}\n\n";
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK_NUMBER, FAILURE_REFUSED, "not this one");
	ck_assert_uint_eq(stub.requests, SCHEMA_RUNG_COUNT);
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("inference");
	TCase *cases = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(cases, 300);
	tcase_add_test(cases, stream_gives_all);
	tcase_add_test(cases, a_key_that_comes_back_is_blotted_out);
	tcase_add_test(cases, odd_servers_are_understood);
	tcase_add_test(cases, faults_have_classes);
	tcase_add_test(cases, rate_limit_says_when);
	tcase_add_test(cases, sending_again_is_recorded);
	tcase_add_test(cases, pings_do_not_feed_the_timer);
	tcase_add_test(cases, total_limit_holds);
	tcase_add_test(cases, cancel_closes_the_stream);
	tcase_add_test(cases, slots_are_kept);
	tcase_add_test(cases, large_answers_are_read_aside);
	tcase_add_test(cases, queue_is_bounded);
	tcase_add_test(cases, nobody_there);
	tcase_add_test(cases, gone_after_it_was_known);
	tcase_add_test(cases, wrong_model_is_refused);
	tcase_add_test(cases, what_was_spent_is_told);
	tcase_add_test(cases, end_marker_is_enough);
	tcase_add_test(cases, pieces_may_end_anywhere);
	tcase_add_test(cases, nonsense_is_refused);
	tcase_add_test(cases, bodies_are_bounded);
	tcase_add_test(cases, schema_is_checked);
	tcase_add_test(cases, refused_schemas_go_down_the_ladder);
	tcase_add_test(cases, the_whole_schema_counts);
	tcase_add_test(cases, arguments_are_checked);
	tcase_add_test(cases, request_carries_all);
	suite_add_tcase(suite, cases);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
