/* Tests of cli/runs.c: which exit status a run's end gives. */
#include "cli/command.h"

#include "tests/unit/cli/suite.h"
#include "workflow/base/check.h"

/* interface.md 2: 0 completed, 10 faulted, 11 cancelled, 12 killed, 13 the workflow's own time-out; a task's time-out that
 * nobody caught is a fault like another. */
START_TEST(outcomes_have_their_status)
{
	static const struct {
		const char *run;
		int status;
	} rows[] = {
		{"{\"status\":\"completed\"}", 0},
		{"{\"status\":\"faulted\",\"error\":{\"status\":500}}", 10},
		{"{\"status\":\"faulted\"}", 10},
		{"{\"status\":\"cancelled\"}", 11},
		{"{\"status\":\"cancelled\",\"reason\":\"wrong input\"}", 11},
		{"{\"status\":\"cancelled\",\"reason\":\"killed\"}", 12},
		{"{\"status\":\"faulted\",\"error\":{\"status\":408}}", 13},
		{"{\"status\":\"faulted\",\"error\":{\"status\":408,\"instance\":\"\"}}", 13},
		{"{\"status\":\"faulted\",\"error\":{\"status\":408,\"instance\":\"/do/0/wait\"}}", 10},
		{"{\"status\":\"running\"}", -1},
		{"{\"status\":\"suspended\"}", -1},
		{"{}", -1},
	};
	struct arena arena;
	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct json *run = json_parse(&arena, bytes_text(rows[i].run), JSON_STRICT, NULL, NULL);
		ck_assert_ptr_nonnull(run);
		ck_assert_msg(run_exit_status(run) == rows[i].status, "%s: %d", rows[i].run, run_exit_status(run));
		ck_assert_int_eq(run_ended(run), rows[i].status >= 0);
	}
	arena_close(&arena);
}
END_TEST

RUN_SUITE("cli-runs", outcomes_have_their_status)
