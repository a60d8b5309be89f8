/* Children without an engine: what is refused at once, and what an answer of the journal brings about. The rest is in tests/simulation,
 * which runs all of it, and in tests/integration/children.mjs. */
#include <check.h>
#include <string.h>

#include "daemon/children.h"
#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

struct fixture {
	struct children children;
	struct children_look *look; /* the last one that was asked for */
	struct activity activity;
	struct arena arena;
	unsigned done;
};

static void take_look(void *arg, struct children_look *look)
{
	struct fixture *f = arg;

	arena_init(&look->arena);
	f->look = look;
}

static uint64_t now_us(void *arg)
{
	(void)arg;
	return 1000;
}

static int64_t wall_ms(void *arg)
{
	(void)arg;
	return 1790000000000;
}

static void on_done(struct activity *activity)
{
	((struct fixture *)activity->owner)->done++;
}

static void fixture_open(struct fixture *f)
{
	const struct children_ports ports = {f, take_look, now_us, wall_ms};

	memset(f, 0, sizeof *f);
	arena_init(&f->arena);
	children_init(&f->children, &ports);
	struct json *with = json_object(&f->arena);
	json_set_text(&f->arena, with, "namespace", "n");
	json_set_text(&f->arena, with, "name", "m");
	json_set_text(&f->arena, with, "version", "latest");
	f->activity = (struct activity){.kind = ACTIVITY_RUN, .run_id = "parent", .step_id = "/do/0/a@1", .attempt = 1, .with = with, .on_done = on_done, .owner = f,
					.idempotency_key = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};
}

static void fixture_close(struct fixture *f)
{
	children_close(&f->children);
	arena_close(&f->activity.arena);
	arena_close(&f->arena);
}

/* Both limits are told by name, and leave nothing behind. */
START_TEST(limits)
{
	struct fixture f;
	struct error error = {0};
	struct activity second;

	fixture_open(&f);
	f.activity.depth = RUN_DEPTH_MAX;
	ck_assert_int_eq(children_start(&f.children, &f.activity, &error), ERR_TOO_LARGE);
	ck_assert_ptr_nonnull(strstr(error.message, "RUN_DEPTH_MAX"));
	ck_assert(children_are_quiet(&f.children));
	f.activity.depth = RUN_DEPTH_MAX - 1;
	ck_assert_uint_eq(f.children.most, CHILDREN_MAX);
	f.children.most = 1;
	second = f.activity;
	ck_assert_int_eq(children_start(&f.children, &f.activity, &error), 0);
	ck_assert_int_eq(children_start(&f.children, &second, &error), ERR_BUSY);
	ck_assert_ptr_nonnull(strstr(error.message, "CHILDREN_MAX"));
	fixture_close(&f);
}
END_TEST

/* The id is the first half of the key; `latest` asks for no version. */
START_TEST(asks)
{
	struct fixture f;
	struct error error = {0};

	fixture_open(&f);
	ck_assert_int_eq(children_start(&f.children, &f.activity, &error), 0);
	ck_assert_str_eq(f.look->run_id, "0123456789abcdef0123456789abcdef");
	ck_assert_str_eq(f.look->name, "m");
	ck_assert_ptr_null(f.look->version);
	ck_assert_uint_eq(f.done, 0);
	fixture_close(&f);
}
END_TEST

/* What the journal says decides; the activity hears of it once. */
START_TEST(answers)
{
	static const struct {
		struct children_look answer;
		bool ok;
		enum failure_class failure;
		const char *says;
	} cases[] = {
		{{.error = {ERR_NOT_FOUND, "no such definition"}}, false, FAILURE_CONFIGURATION, "no such definition"},
		{{.error = {ERR_BUSY, "full"}}, false, FAILURE_RATE_LIMITED, "full"},
		{{.error = {ERR_CORRUPT, "damaged"}}, false, FAILURE_RUNTIME_ERROR, "damaged"},
		{{.is_there = true, .status = RUN_COMPLETED, .parent_run = "another", .parent_step = "/do/0/a@1"}, false, FAILURE_CONFIGURATION, "belongs to another run"},
		{{.is_there = true, .status = RUN_COMPLETED, .parent_run = "parent", .parent_step = "/do/0/a@2"}, false, FAILURE_CONFIGURATION, "belongs to another run"},
		{{.is_there = true, .status = RUN_COMPLETED, .parent_run = "parent", .parent_step = "/do/0/a@1", .output = {(const uint8_t *)"[1]", 3}}, true, FAILURE_NONE, ""},
		{{.is_there = true, .status = RUN_FAULTED, .parent_run = "parent", .parent_step = "/do/0/a@1", .run_error = {(const uint8_t *)"{\"status\":418}", 14}}, false,
		 FAILURE_RUNTIME_ERROR, "faulted"},
		{{.is_there = true, .status = RUN_CANCELLED, .parent_run = "parent", .parent_step = "/do/0/a@1", .reason = {(const uint8_t *)"\"why\"", 5}}, false,
		 FAILURE_CANCELLED, "was cancelled"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct fixture f;
		struct error error = {0};

		fixture_open(&f);
		ck_assert_int_eq(children_start(&f.children, &f.activity, &error), 0);
		for (unsigned looks = 0; f.done == 0 && looks < 2; looks++) { /* values are asked for once it is known that they are there */
			const struct children_look *answer = &cases[i].answer;
			f.look->is_there = answer->is_there;
			f.look->status = answer->status;
			f.look->parent_run = answer->parent_run;
			f.look->parent_step = answer->parent_step;
			f.look->output = answer->output;
			f.look->run_error = answer->run_error;
			f.look->reason = answer->reason;
			f.look->error = answer->error;
			f.look->on_done(f.look);
		}
		const struct activity_result *result = &f.activity.result;
		ck_assert_uint_eq(f.done, 1);
		ck_assert_int_eq(result->ok, cases[i].ok);
		ck_assert_int_eq(result->failure, cases[i].failure);
		ck_assert_msg(strstr(result->detail, cases[i].says) != NULL, "%zu: %s", i, result->detail);
		ck_assert_uint_eq(result->retry_attempts > 1, cases[i].failure == FAILURE_RATE_LIMITED);
		ck_assert_int_eq(result->error != NULL, cases[i].answer.status == RUN_FAULTED || cases[i].answer.status == RUN_CANCELLED);
		ck_assert(children_are_quiet(&f.children));
		fixture_close(&f);
	}
}
END_TEST

/* Cancelled before anything is known of a child: nothing is submitted; when the daemon stops it is an interruption, not an end. */
START_TEST(gives_up)
{
	struct fixture f;
	struct error error = {0};

	fixture_open(&f);
	ck_assert_int_eq(children_start(&f.children, &f.activity, &error), 0);
	children_cancel(&f.children, &f.activity);
	ck_assert_uint_eq(f.done, 0);
	f.look->error = (struct error){ERR_NOT_FOUND, "no such definition"};
	f.look->on_done(f.look);
	ck_assert_uint_eq(f.done, 1);
	ck_assert_int_eq(f.activity.result.failure, FAILURE_CANCELLED);
	fixture_close(&f);

	fixture_open(&f);
	ck_assert_int_eq(children_start(&f.children, &f.activity, &error), 0);
	children_stop(&f.children);
	ck_assert(!children_are_quiet(&f.children));
	f.look->on_done(f.look);
	ck_assert_int_eq(f.activity.result.failure, FAILURE_INTERRUPTED);
	ck_assert(children_are_quiet(&f.children));
	fixture_close(&f);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("daemon-children", limits, asks, answers, gives_up)
