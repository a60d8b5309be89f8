/* Tests of daemon/expressions.c where every request costs a helper its life: the pool is played here, since a thousand processes that die
 * take longer than a test may. With helpers that live, and the first that die, it is tested by tests/integration/expressions.mjs. */
#include "daemon/expressions.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

static struct list waiting;
static size_t asked, ended;

int jq_pool_ask(struct jq_pool *pool, struct jq_request *request, struct error *error)
{
	(void)pool;
	(void)error;
	asked++;
	list_add_last(&waiting, &request->link);
	return 0;
}

static void on_done(struct expressions_check *check)
{
	(void)check;
	ended++;
}

static void run(struct expressions_check *check, size_t count)
{
	static struct definition_expression expressions[DEFINITION_EXPRESSIONS_MAX];
	static struct definition definition;
	static char texts[DEFINITION_EXPRESSIONS_MAX][16];

	for (size_t i = 0; i < count; i++) {
		snprintf(texts[i], sizeof texts[i], "error(%zu)", i);
		expressions[i] = (struct definition_expression){.pointer = "/do/0", .text = texts[i]};
	}
	definition = (struct definition){.expressions = expressions, .expression_count = count};
	check->definition = &definition;
	check->on_done = on_done;
	list_init(&waiting);
	asked = ended = 0;
	expressions_check(check);
	while (!list_empty(&waiting)) {
		struct jq_request *request = CONTAINER_OF(waiting.next, struct jq_request, link);

		list_remove(&request->link);
		error_set(&request->error, ERR_CORRUPT, "reprise-jq died of it");
		request->on_done(request);
	}
	ck_assert_uint_eq(ended, 1);
}

/* Batches that cost a helper its life are halved until each bad expression is known; past EXPRESSIONS_PARTS_MAX requests nobody knows, the
 * limit is named, and the definition is not taken for good. */
START_TEST(parts_are_limited)
{
	struct problems problems;
	struct expressions_check check = {.problems = &problems};

	problems_init(&problems);
	run(&check, 7 * 64); /* each batch and its halves are 127 */
	ck_assert_uint_eq(asked, 7 * 127);
	ck_assert_int_eq(check.error.code, ERR_NONE);
	ck_assert_uint_eq(problems.errors, 7 * 64);
	problems_close(&problems);
	problems_init(&problems);
	run(&check, 8 * 64);
	ck_assert_uint_eq(asked, EXPRESSIONS_PARTS_MAX);
	ck_assert_int_eq(check.error.code, ERR_TOO_LARGE);
	ck_assert_str_eq(check.error.message, "too many of its expressions cost jq its life to be told apart (EXPRESSIONS_PARTS_MAX)");
	problems_close(&problems);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("daemon-expressions", parts_are_limited)
