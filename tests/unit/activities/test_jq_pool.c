/* The pool of helper processes, with the real helper program (REPRISE_JQ): limits, deadline, death, replacement, the end. */
#include "tests/unit/base/suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activities/jq_pool.h"
#include "workflow/base/arena.h"
#include "workflow/base/check.h"
#include "workflow/language/evaluation.h"

enum { ASKED_MAX = 400 };

struct asked {
	struct jq_request jq;
	struct fixture *fixture;
	char answer[200];
};

struct fixture {
	uv_loop_t loop;
	struct jq_pool *pool;
	struct arena arena;
	struct asked asked[ASKED_MAX];
	size_t count, done;
};

static void on_done(struct jq_request *jq)
{
	struct asked *asked = jq->owner;
	size_t len = jq->answer.len < sizeof asked->answer - 1 ? jq->answer.len : sizeof asked->answer - 1;

	memcpy(asked->answer, jq->answer.data ? jq->answer.data : (const uint8_t *)"", len);
	asked->fixture->done++;
}

static void fixture_open(struct fixture *f, const struct jq_pool_config *config)
{
	struct jq_pool_config used = *config;

	memset(f, 0, sizeof *f);
	signal(SIGPIPE, SIG_IGN); /* as the daemon does */
	arena_init(&f->arena);
	ck_assert_int_eq(uv_loop_init(&f->loop), 0);
	if (!used.program)
		used.program = getenv("REPRISE_JQ");
	ck_assert_ptr_nonnull(used.program);
	f->pool = jq_pool_open(&f->loop, &used);
}

static void fixture_close(struct fixture *f)
{
	jq_pool_close(f->pool);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&f->loop), 0); /* nothing was left open */
	arena_close(&f->arena);
}

static int ask(struct fixture *f, const char *expression, const char *argument, struct error *error)
{
	struct asked *asked = &f->asked[f->count++];
	struct evaluation evaluation;
	struct json *input = json_parse(&f->arena, bytes_text(argument), JSON_STRICT, NULL, NULL);

	ck_assert_uint_le(f->count, ASKED_MAX);
	ck_assert_int_eq(evaluation_request(&f->arena, expression, input, NULL, NULL, 0, &evaluation, error), 0);
	asked->fixture = f;
	asked->jq = (struct jq_request){.request = evaluation.request, .on_done = on_done, .owner = asked};
	list_init(&asked->jq.link);
	return jq_pool_ask(f->pool, &asked->jq, error);
}

static void ask_well(struct fixture *f, const char *expression, const char *argument)
{
	struct error error = {0};
	size_t done = f->done;

	ck_assert_msg(ask(f, expression, argument, &error) == 0, "%s", error.message);
	ck_assert_uint_eq(f->done, done); /* never inside the call */
}

static void wait_for(struct fixture *f, size_t done)
{
	while (f->done < done)
		uv_run(&f->loop, UV_RUN_ONCE);
}

static struct jq_counts counts_of(const struct fixture *f)
{
	struct jq_counts counts;

	jq_pool_counts(f->pool, &counts);
	return counts;
}

/* The first request starts a helper and a spare one; before it there is none. */
START_TEST(helpers_start_with_the_first_request)
{
	struct fixture f;

	fixture_open(&f, &(struct jq_pool_config){0});
	ck_assert_uint_eq(counts_of(&f).started, 0);
	ask_well(&f, ".a + 1", "{\"a\":41}");
	wait_for(&f, 1);
	ck_assert_int_eq(f.asked[0].jq.error.code, ERR_NONE);
	ck_assert_str_eq(f.asked[0].answer, "V[42]");
	ck_assert_uint_eq(counts_of(&f).started, 2);
	for (size_t i = 0; i < 10; i++) {
		ask_well(&f, ".a + 1", "{\"a\":1}");
		wait_for(&f, i + 2);
	}
	ck_assert_uint_eq(counts_of(&f).started, 2); /* the same ones serve on */
	ck_assert_uint_eq(counts_of(&f).answered, 11);
	fixture_close(&f);
}
END_TEST

/* However many wait, JQ_WORKING_MAX helpers work, and all are answered. */
START_TEST(helpers_are_limited)
{
	struct fixture f;

	fixture_open(&f, &(struct jq_pool_config){.evaluate_ms = 60000});
	for (size_t i = 0; i < 20; i++) {
		ask_well(&f, "[.[] * 2] | add", "[1,2]");
		ck_assert_uint_le(counts_of(&f).working, JQ_WORKING_MAX);
		ck_assert_uint_le(counts_of(&f).helpers, JQ_HELPERS_MAX);
	}
	ck_assert_uint_eq(counts_of(&f).waiting, 20 - JQ_WORKING_MAX);
	wait_for(&f, 20);
	ck_assert_uint_eq(counts_of(&f).started, JQ_HELPERS_MAX);
	for (size_t i = 0; i < 20; i++)
		ck_assert_str_eq(f.asked[i].answer, "V[6]");
	fixture_close(&f);
}
END_TEST

/* A loop that is held up for longer than the deadline finds the answer all the same; what runs on is killed still. */
START_TEST(late_loops_kill_nobody)
{
	enum { LATE_MS = 3000 }; /* in which 1 + 1 is found on a busy machine, too */
	struct fixture f;

	fixture_open(&f, &(struct jq_pool_config){.evaluate_ms = LATE_MS});
	ask_well(&f, "1", "null");
	wait_for(&f, 1);
	ask_well(&f, "1 + 1", "null");
	usleep((LATE_MS + 500) * 1000);
	wait_for(&f, 2);
	ck_assert_str_eq(f.asked[1].answer, "V[2]");
	ck_assert_uint_eq(counts_of(&f).killed, 0);
	ask_well(&f, "last(range(infinite))", "null");
	usleep((LATE_MS + 500) * 1000);
	wait_for(&f, 3);
	ck_assert_int_eq(f.asked[2].jq.error.code, ERR_TIMEOUT);
	fixture_close(&f);
}
END_TEST

/* Stops, or lets go on, all helpers of this process. */
static void signal_helpers(int number)
{
	char path[64], line[256] = "";
	FILE *file;

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
	fclose(file);
	for (char *at = line, *end; *at != '\0' && *at != '\n'; at = end + strspn(end, " ")) {
		long pid = strtol(at, &end, 10);
		ck_assert_ptr_ne(at, end);
		ck_assert_int_eq(kill((pid_t)pid, number), 0);
	}
}

static void on_go_on(uv_timer_t *timer)
{
	signal_helpers(SIGCONT);
	uv_close((uv_handle_t *)timer, NULL);
}

/* An expression that others keep from the processor for longer than its limit is not to blame, and answered; but not waited for without end. */
START_TEST(busy_machines_kill_nobody)
{
	uv_timer_t timer;
	struct fixture f;

	fixture_open(&f, &(struct jq_pool_config){.evaluate_ms = 1500});
	ask_well(&f, "1", "null");
	wait_for(&f, 1);
	signal_helpers(SIGSTOP);
	ck_assert_int_eq(uv_timer_init(&f.loop, &timer), 0);
	ck_assert_int_eq(uv_timer_start(&timer, on_go_on, 4000, 0), 0);
	ask_well(&f, "1 + 1", "null");
	wait_for(&f, 2);
	ck_assert_str_eq(f.asked[1].answer, "V[2]");
	ck_assert_uint_eq(counts_of(&f).killed, 0);
	fixture_close(&f);

	fixture_open(&f, &(struct jq_pool_config){.evaluate_ms = 100});
	while (f.done == 0 || f.asked[f.done - 1].jq.error.code != ERR_NONE) { /* so little may be too little for its start */
		ask_well(&f, "1", "null");
		wait_for(&f, f.count);
	}
	signal_helpers(SIGSTOP);
	ask_well(&f, "1 + 1", "null");
	wait_for(&f, f.count);
	ck_assert_int_eq(f.asked[f.count - 1].jq.error.code, ERR_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(f.asked[f.count - 1].jq.error.message, "within 3000 ms (30 times JQ_EVALUATE_MS, JQ_WAIT_TIMES)"));
	fixture_close(&f);
}
END_TEST

/* At its deadline a helper is killed, the request says so and names the limit, and the ones behind it are answered. */
START_TEST(deadlines_kill)
{
	struct fixture f;

	fixture_open(&f, &(struct jq_pool_config){.evaluate_ms = 1500});
	ask_well(&f, "last(range(infinite))", "null");
	ask_well(&f, "def f: f; f", "null");
	ask_well(&f, "1 + 1", "null");
	wait_for(&f, 3);
	for (size_t i = 0; i < 2; i++) {
		ck_assert_int_eq(f.asked[i].jq.error.code, ERR_TIMEOUT);
		ck_assert_ptr_nonnull(strstr(f.asked[i].jq.error.message, "1500 ms, the most allowed (JQ_EVALUATE_MS)"));
	}
	ck_assert_str_eq(f.asked[2].answer, "V[2]");
	ck_assert_uint_eq(counts_of(&f).killed, 2);
	fixture_close(&f);
}
END_TEST

/* An expression that costs its helper its life costs nobody else anything. */
START_TEST(deaths_are_replaced)
{
	static const char *const killers[] = {
		"[1,2] | .[nan:1]",
#ifndef __SANITIZE_THREAD__ /* which has no way to bound the memory of the helper */
		"null | setpath([100000000]; 1)",
		"reduce range(60) as $i (\"x\"; . + .)",
#endif
	};
	struct fixture f;

	fixture_open(&f, &(struct jq_pool_config){.evaluate_ms = 60000});
	for (size_t i = 0; i < COUNT_OF(killers); i++) {
		ask_well(&f, killers[i], "null");
		ask_well(&f, "1 + 1", "null");
		wait_for(&f, 2 * i + 2);
		ck_assert_int_eq(f.asked[2 * i].jq.error.code, ERR_CORRUPT);
		ck_assert_ptr_nonnull(strstr(f.asked[2 * i].jq.error.message, "the process that evaluated it is gone"));
		ck_assert_str_eq(f.asked[2 * i + 1].answer, "V[2]");
	}
	ck_assert_uint_eq(counts_of(&f).died, COUNT_OF(killers));
	fixture_close(&f);
}
END_TEST

/* Past the queue's limit a request is refused at once, with the limit's name; the ones before it are served. */
START_TEST(the_queue_is_limited)
{
	struct fixture f;
	struct error error = {0};

	fixture_open(&f, &(struct jq_pool_config){.queue_max = 3, .evaluate_ms = 60000});
	for (size_t i = 0; i < JQ_WORKING_MAX + 3; i++)
		ask_well(&f, ". + 1", "1");
	ck_assert_int_eq(ask(&f, ". + 1", "1", &error), ERR_BUSY);
	ck_assert_ptr_nonnull(strstr(error.message, "JQ_QUEUE_MAX"));
	ck_assert_uint_eq(counts_of(&f).refused, 1);
	wait_for(&f, JQ_WORKING_MAX + 3);
	ask_well(&f, ". + 1", "1"); /* there is room again */
	wait_for(&f, JQ_WORKING_MAX + 4);
	fixture_close(&f);
}
END_TEST

/* A helper that has worked for long is replaced between two requests, which notice nothing. */
START_TEST(old_helpers_are_replaced)
{
	struct fixture f;

	fixture_open(&f, &(struct jq_pool_config){.busy_ms = 1, .evaluate_ms = 60000});
	for (size_t i = 0; i < 5; i++) {
		ask_well(&f, "[range(20000)] | add", "null");
		wait_for(&f, i + 1);
		ck_assert_str_eq(f.asked[i].answer, "V[199990000]");
	}
	ck_assert_uint_ge(counts_of(&f).retired, 4);
	ck_assert_uint_eq(counts_of(&f).killed + counts_of(&f).died, 0);
	fixture_close(&f);
}
END_TEST

/* Without requests the helpers end, and come back with the next one. */
START_TEST(idle_helpers_end)
{
	struct fixture f;

	fixture_open(&f, &(struct jq_pool_config){.idle_ms = 50, .evaluate_ms = 60000});
	ask_well(&f, "1 + 1", "null");
	wait_for(&f, 1);
	while (counts_of(&f).helpers > 0)
		uv_run(&f.loop, UV_RUN_ONCE);
	ask_well(&f, "1 + 2", "null");
	wait_for(&f, 2);
	ck_assert_str_eq(f.asked[1].answer, "V[3]");
	fixture_close(&f);
}
END_TEST

/* A program that is not there, and one that cannot be started or ends at once, are errors of the requests. */
START_TEST(no_program)
{
	struct fixture f;
	struct error error = {0};

	fixture_open(&f, &(struct jq_pool_config){.program = "/nowhere/reprise-jq"});
	ask_well(&f, "1 + 1", "null");
	ask_well(&f, "1 + 2", "null");
	wait_for(&f, 2);
	ck_assert_int_eq(f.asked[0].jq.error.code, ERR_IO);
	ck_assert_int_eq(f.asked[1].jq.error.code, ERR_IO);
	ck_assert_ptr_nonnull(strstr(f.asked[0].jq.error.message, "/nowhere/reprise-jq"));
	fixture_close(&f);

	fixture_open(&f, &(struct jq_pool_config){.program = "/bin/true"});
	ask_well(&f, "1 + 1", "null");
	wait_for(&f, 1);
	ck_assert_int_eq(f.asked[0].jq.error.code, ERR_CORRUPT);
	fixture_close(&f);

	memset(&f, 0, sizeof f);
	arena_init(&f.arena);
	ck_assert_int_eq(uv_loop_init(&f.loop), 0);
	f.pool = jq_pool_open(&f.loop, &(struct jq_pool_config){0});
	ck_assert_int_eq(ask(&f, "1 + 1", "null", &error), ERR_NOT_FOUND);
	fixture_close(&f);
}
END_TEST

/* A peer that talks without being asked, or sends more than an answer may have, is no helper any more. */
START_TEST(bad_peers_are_dropped)
{
	struct fixture f;
	char path[] = "/tmp/reprise-peer-XXXXXX";
	int fd = mkstemp(path);
	static const char script[] = "#!/bin/sh\nprintf '\\377\\377\\377\\177 too much' >&0\nsleep 1\n";

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq((int)write(fd, script, sizeof script - 1), (int)sizeof script - 1);
	ck_assert_int_eq(fchmod(fd, 0700), 0);
	close(fd);
	fixture_open(&f, &(struct jq_pool_config){.program = path, .evaluate_ms = 60000});
	ask_well(&f, "1 + 1", "null");
	wait_for(&f, 1);
	ck_assert_int_eq(f.asked[0].jq.error.code, ERR_CORRUPT);
	fixture_close(&f);
	unlink(path);
}
END_TEST

/* When the pool closes, everything under way or waiting ends at once. */
START_TEST(closing_cancels)
{
	struct fixture f;

	fixture_open(&f, &(struct jq_pool_config){.evaluate_ms = 60000});
	for (size_t i = 0; i < 5; i++)
		ask_well(&f, "last(range(infinite))", "null");
	jq_pool_close(f.pool);
	ck_assert_uint_eq(f.done, 5);
	for (size_t i = 0; i < 5; i++)
		ck_assert_int_eq(f.asked[i].jq.error.code, ERR_CANCELLED);
	f.pool = NULL;
	fixture_close(&f);
}
END_TEST

/* Programs that wait are compiled together; more of them than a helper keeps, and each still gives its own result. */
START_TEST(programs_are_compiled_together)
{
	struct fixture f;

	fixture_open(&f, &(struct jq_pool_config){.evaluate_ms = 60000, .compile_ms = 60000});
	for (int round = 0, at = 0; round < 2; round++) {
		for (int i = 0; i < 300 - round * 290; i++)
			ask_well(&f, arena_printf(&f.arena, ".a + %d # %d", i, i), "{\"a\":1}");
		wait_for(&f, f.count);
		for (int i = 0; at < (int)f.count; i++, at++)
			ck_assert_str_eq(f.asked[at].answer, arena_printf(&f.arena, "V[%d]", i + 1));
	}
	ck_assert_uint_eq(counts_of(&f).answered, 310);
	ck_assert_uint_eq(counts_of(&f).killed + counts_of(&f).died, 0);
	fixture_close(&f);
}
END_TEST

/* One that cannot be compiled, among others that wait, fails alone. */
START_TEST(a_bad_program_fails_alone)
{
	struct fixture f;

	fixture_open(&f, &(struct jq_pool_config){.evaluate_ms = 60000, .compile_ms = 60000});
	for (int i = 0; i < 10; i++)
		ask_well(&f, i == 6 ? "nope(.a)" : arena_printf(&f.arena, ".a + %d", i), "{\"a\":1}");
	wait_for(&f, f.count);
	for (int i = 0; i < 10; i++)
		ck_assert_str_eq(f.asked[i].answer, i == 6 ? "Fnope/1 is not defined" : arena_printf(&f.arena, "V[%d]", i + 1));
	fixture_close(&f);
}
END_TEST

/* A batch tells every expression that does not compile, each with its own line; what leaves its place is none of them. */
START_TEST(batches_compile)
{
	static const struct {
		const char *names, *expression;
	} parts[] = {{"", ".a+1"}, {"", "foo(1)"}, {"item", "$item.x+1"}, {"", ".a +\n + 2"}, {"", "$item"}, {"", "if .a then 1 end"}, {"", ".a # comment"}};
	struct fixture f;
	struct buffer request;
	struct error error;

	fixture_open(&f, &(struct jq_pool_config){.compile_ms = 60000});
	buffer_init(&request, EVALUATION_REQUEST_MAX);
	for (size_t i = 0; i < COUNT_OF(parts); i++)
		evaluation_add_compile(&request, parts[i].expression, (const char *const[]){parts[i].names}, *parts[i].names ? 1 : 0);
	struct asked *asked = &f.asked[f.count++];
	static char answer[4096];
	asked->fixture = &f;
	asked->jq = (struct jq_request){.request = buffer_bytes(&request), .on_done = on_done, .owner = asked};
	list_init(&asked->jq.link);
	ck_assert_int_eq(jq_pool_ask(f.pool, &asked->jq, &error), 0);
	while (f.done < 1) {
		uv_run(&f.loop, UV_RUN_ONCE);
		if (asked->jq.answer.data)
			break;
	}
	snprintf(answer, sizeof answer, "%s", asked->answer);
	/* The text is cut at 200 bytes; the first two are in it, the syntax errors come first. */
	ck_assert_msg(strncmp(answer, "P[{\"index\":3,\"line\":2,", 22) == 0, "%s", answer);
	ck_assert_ptr_nonnull(strstr(answer, "{\"index\":5,\"line\":1,"));
	buffer_close(&request);
	fixture_close(&f);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("activities-jq-pool", helpers_start_with_the_first_request, helpers_are_limited, late_loops_kill_nobody,
	   busy_machines_kill_nobody, deadlines_kill, deaths_are_replaced, the_queue_is_limited,
	   old_helpers_are_replaced, idle_helpers_end, no_program, bad_peers_are_dropped, closing_cancels, batches_compile, programs_are_compiled_together, a_bad_program_fails_alone)
