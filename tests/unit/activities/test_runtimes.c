/* Who answers: probes, configuration records, fingerprints, weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activities/loading.h"
#include "activities/runtimes.h"
#include "tests/unit/activities/rig.h"
#include "workflow/base/check.h"

static struct rig rig;
static struct sim sim;
static struct stub stub;

struct probe_task {
	struct runtime_probe probe;
	bool done;
};

static void on_probed(struct runtime_probe *probe)
{
	((struct probe_task *)probe->owner)->done = true;
}

static void run_probe(struct probe_task *task)
{
	*task = (struct probe_task){.probe = {.runtime = "r", .on_done = on_probed, .owner = task}};
	ck_assert_int_eq(activities_probe(rig.activities, &task->probe), 0);
	ck_assert(!task->done);
	while (!task->done)
		uv_run(&rig.loop, UV_RUN_ONCE);
}

static const char *field_text(const struct json *record, const char *group, const char *field, const char *member)
{
	return json_get_text(json_get(json_get(record, group), field), member);
}

/* Each field has value, basis and source; what is not known is written as unknown; the digest covers the values alone. */
START_TEST(record_is_whole)
{
	struct probe_task task;
	const struct json *record;
	struct digest digest, expected;
	struct arena arena;
	struct json *values;
	size_t groups = 0, unknown = 0;

	rig_init(&rig);
	sim_start(&sim, NULL);
	rig_runtime(&rig, "r", sim.url);
	rig_open(&rig);
	run_probe(&task);
	ck_assert_msg(task.probe.error.code == ERR_NONE, "%s", task.probe.error.message);
	ck_assert_str_eq(json_get_text(task.probe.result, "name"), "r");
	ck_assert(json_get_boolean(task.probe.result, "reachable", false));
	ck_assert(json_get_boolean(task.probe.result, "simulated", false));
	ck_assert_str_eq(json_get_text(json_at(json_get(task.probe.result, "models"), 0), "id"), "m");
	record = json_get(task.probe.result, "configuration");
	arena_init(&arena);
	values = json_object(&arena);
	for (size_t i = 0; i < json_count(record); i++, groups++) {
		const struct json_member *group = &record->object.members[i];
		struct json *fields = json_object(&arena);

		for (size_t j = 0; j < json_count(group->value); j++) {
			const struct json_member *field = &group->value->object.members[j];
			const char *basis = json_get_text(field->value, "basis");
			bool known = json_get(field->value, "value")->type != JSON_NULL;

			ck_assert_uint_eq(json_count(field->value), 3);
			ck_assert(known == (strcmp(basis, "unknown") != 0));
			ck_assert(known == json_is(json_get(field->value, "source"), JSON_STRING));
			unknown += !known;
			json_set(&arena, fields, field->name, json_get(field->value, "value"));
		}
		json_set(&arena, values, group->name, fields);
	}
	ck_assert_uint_eq(groups, 5);
	ck_assert_uint_gt(unknown, 10);
	expected = json_digest(values);
	ck_assert(digest_parse(json_get_text(task.probe.result, "digest"), &digest));
	ck_assert(digest_equal(&digest, &expected));
	ck_assert_str_eq(field_text(record, "A", "runtime_kind", "value"), "openai");
	ck_assert_int_eq(strncmp(field_text(record, "A", "server", "value"), "reprise-sim", 11), 0);
	ck_assert_str_eq(field_text(record, "A", "runtime_version", "basis"), "reported");
	ck_assert_str_eq(field_text(record, "B", "model_id", "basis"), "reported");
	ck_assert_str_eq(field_text(record, "B", "weights_digest", "basis"), "unknown");
	ck_assert_str_eq(field_text(record, "D", "kernel", "basis"), "measured");
	/* The record that was made durable is the same. */
	ck_assert_uint_eq(rig.notes, 1);
	ck_assert(json_equal(record, rig.last_note));
	arena_close(&task.probe.arena);

	/* Nothing has changed: nothing to note again. */
	run_probe(&task);
	ck_assert_uint_eq(rig.notes, 1);
	arena_close(&task.probe.arena);
	arena_close(&arena);
	rig_close(&rig);
	sim_stop(&sim);
}
END_TEST

/* No request leaves before the record is durable, and none at all if it cannot be. */
START_TEST(record_comes_first)
{
	struct task task;

	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig_runtime(&rig, "r", stub.url);
	rig.hold_notes = true;
	stub.pieces[0].text = SSE_HEAD SSE_TEXT("x") SSE_FINISH("stop") SSE_DONE;
	rig_open(&rig);
	task_init(&task, ACTIVITY_INFERENCE, ASK);
	task_start(&rig, &task);
	for (unsigned i = 0; i < 1000 && rig.held_note == NULL; i++) /* however slow the machine is */
		rig_turns(&rig, 10);
	ck_assert_ptr_nonnull(rig.held_note);
	rig_turns(&rig, 50);
	ck_assert_uint_eq(stub.requests, 0);
	rig.hold_notes = false;
	rig.held_note->error = (struct error){0};
	rig.held_note->on_done(rig.held_note);
	task_wait(&rig, &task);
	ck_assert_msg(task.activity.result.ok, "%s", task.activity.result.detail);
	ck_assert_uint_eq(stub.requests, 1);
	task_close(&task);
	rig_close(&rig);

	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig_runtime(&rig, "r", stub.url);
	stub.pieces[0].text = SSE_HEAD SSE_TEXT("x") SSE_FINISH("stop") SSE_DONE;
	rig.notes_fail = true;
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_RUNTIME_ERROR, "disk full");
	ck_assert_uint_eq(stub.requests, 0);
	rig.notes_fail = false;
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_NONE, NULL);
	rig_close(&rig);
}
END_TEST

static void run_inference(char configuration[DIGEST_TEXT_LEN + 1])
{
	struct task task;

	task_init(&task, ACTIVITY_INFERENCE, ASK);
	task_run(&rig, &task);
	ck_assert_msg(task.activity.result.ok, "%s", task.activity.result.detail);
	strcpy(configuration, json_get_text(json_get(task.activity.result.output, "provenance"), "configuration"));
	task_close(&task);
}

/* A fingerprint that an answer carries becomes part of the record before the answer is used. Another one is another runtime: that attempt
 * fails and names the field, the next one is made under the new record. */
START_TEST(fingerprint_is_part_of_it)
{
	static const char answer_a[] = SSE_HEAD SSE_TEXT("x") "data: {\"system_fingerprint\":\"fp_a\",\"choices\":[]}\n\n" SSE_FINISH("stop") SSE_DONE;
	static const char answer_b[] = SSE_HEAD SSE_TEXT("x") "data: {\"system_fingerprint\":\"fp_b\",\"choices\":[]}\n\n" SSE_FINISH("stop") SSE_DONE;
	char first[DIGEST_TEXT_LEN + 1], again[DIGEST_TEXT_LEN + 1], other[DIGEST_TEXT_LEN + 1];

	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig_runtime(&rig, "r", stub.url);
	rig_open(&rig);
	stub.pieces[0].text = answer_a;
	run_inference(first);
	ck_assert_uint_eq(rig.notes, 2);
	ck_assert_str_eq(field_text(rig.last_note, "E", "system_fingerprint", "value"), "fp_a");
	run_inference(again);
	ck_assert_str_eq(first, again);
	ck_assert_uint_eq(rig.notes, 2);
	stub.pieces[0].text = answer_b;
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_RUNTIME_ERROR, "E.system_fingerprint \"fp_a\" -> \"fp_b\"");
	run_inference(other);
	ck_assert_str_ne(first, other);
	ck_assert_uint_eq(rig.notes, 3);
	stub.pieces[0].text = answer_a;
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_RUNTIME_ERROR, "E.system_fingerprint");
	run_inference(again);
	ck_assert_str_eq(first, again);
	ck_assert_uint_eq(rig.notes, 3); /* known from before */
	rig_close(&rig);
}
END_TEST

/* Who answers behind a new connection is asked again. Another Server header is another runtime: the attempt fails and names it, the next
 * one is made under the new record. A header that fits no probe fails each attempt. */
START_TEST(server_header_is_watched)
{
	char before[DIGEST_TEXT_LEN + 1], after[DIGEST_TEXT_LEN + 1];
	unsigned gets;

	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig_runtime(&rig, "r", stub.url);
	rig_open(&rig);
	stub.pieces[0].text = SSE_HEAD SSE_TEXT("x") SSE_FINISH("stop") SSE_DONE;
	run_inference(before);
	gets = stub.gets;
	run_inference(after);
	ck_assert_str_eq(before, after);
	ck_assert_uint_eq(stub.gets, gets + 2); /* the stub closes its connections */
	stub.server = "engine/2";
	stub.pieces[0].text = "HTTP/1.1 200 OK\r\nServer: engine/2\r\nConnection: close\r\n\r\n" SSE_TEXT("x") SSE_FINISH("stop") SSE_DONE;
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_RUNTIME_ERROR, "A.server \"stub\" -> \"engine/2\"");
	run_inference(after);
	ck_assert_str_ne(before, after);
	ck_assert_uint_gt(stub.gets, gets);
	stub.server = "engine/3";
	stub.pieces[0].text = "HTTP/1.1 200 OK\r\nServer: engine/4\r\nConnection: close\r\n\r\n" SSE_TEXT("x") SSE_FINISH("stop") SSE_DONE;
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_RUNTIME_ERROR, "A.server");
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_RUNTIME_ERROR, "Server header");
	rig_close(&rig);
}
END_TEST

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	ck_assert_int_eq(fclose(file), 0);
}

/* The weights file is hashed once and again when it is another; a missing one is told as a mistake of the configuration. */
START_TEST(weights_are_measured)
{
	char path[] = "/tmp/reprise-test-XXXXXX", hex[DIGEST_HEX_LEN + 1];
	struct probe_task probe;
	struct digest digest, measured;
	struct task task;
	int fd = mkstemp(path);

	close(fd);
	write_file(path, "weights");
	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig_runtime(&rig, "r", stub.url)->weights_file = path;
	stub.pieces[0].text = SSE_HEAD SSE_TEXT("x") SSE_FINISH("stop") SSE_DONE;
	rig_open(&rig);
	task_init(&task, ACTIVITY_INFERENCE, ASK);
	task_run(&rig, &task);
	ck_assert_msg(task.activity.result.ok, "%s", task.activity.result.detail);
	digest = digest_of(BYTES_OF("weights"));
	digest_hex(&digest, hex);
	ck_assert_str_eq(field_text(rig.last_note, "B", "weights_digest", "value"), hex);
	ck_assert_str_eq(field_text(rig.last_note, "B", "weights_digest", "basis"), "measured");
	ck_assert(json_get_digest(json_at(json_get(json_get(task.activity.result.evidence, "model"), "weights"), 0), "digest", &measured));
	ck_assert(digest_equal(&digest, &measured));
	task_close(&task);
	write_file(path, "other weights");
	run_probe(&probe);
	arena_close(&probe.probe.arena);
	digest = digest_of(BYTES_OF("other weights"));
	digest_hex(&digest, hex);
	ck_assert_str_eq(field_text(rig.last_note, "B", "weights_digest", "value"), hex);
	ck_assert_uint_eq(rig.notes, 2);

	/* Without being asked it is looked at again after WEIGHTS_CHECK_MS, not earlier. */
	write_file(path, "third weights");
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_NONE, NULL);
	ck_assert_uint_eq(rig.notes, 2);
	rig.skew_us = (uint64_t)(WEIGHTS_CHECK_MS + 1) * 1000;
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_NONE, NULL);
	ck_assert_uint_eq(rig.notes, 3);
	rig.skew_us *= 2;
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_NONE, NULL);
	ck_assert_uint_eq(rig.notes, 3);
	unlink(path);
	run_probe(&probe);
	ck_assert_int_eq(probe.probe.error.code, ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(probe.probe.error.message, path));
	arena_close(&probe.probe.arena);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_CONFIGURATION, "No such file");
	rig_close(&rig);
}
END_TEST

/* A runtime on another machine: this host's facts are not its own. One that serves a single model needs no name. */
START_TEST(what_is_not_known_is_not_claimed)
{
	struct runtime_config config = {.name = "r", .kind = "openai", .url = "http://192.0.2.1:1"};
	struct runtime_facts facts = {.server = ""};
	struct weights weights = {0};
	struct configuration_input input = {.config = &config, .adapter = &openai_adapter, .facts = &facts, .weights = &weights};
	struct configuration *configuration = configuration_new(&input), *other;
	struct arena arena;

	ck_assert_str_eq(field_text(configuration->record, "D", "kernel", "basis"), "unknown");
	ck_assert_str_eq(field_text(configuration->record, "B", "model_id", "basis"), "unknown");
	ck_assert(!configuration->simulated);
	arena_init(&arena);
	facts.models = json_parse(&arena, BYTES_OF("[{\"id\":\"only\",\"contextLength\":4096}]"), 0, NULL, NULL);
	other = configuration_new(&input);
	ck_assert_str_eq(other->model, "only");
	ck_assert_double_eq(json_get_number(json_get(json_get(other->record, "C"), "context_length"), "value", 0), 4096);
	ck_assert(!digest_equal(&configuration->digest, &other->digest));
	configuration_release(other);
	facts.server = "reprise-simple";
	other = configuration_new(&input);
	ck_assert(!other->simulated);
	configuration_release(other);
	configuration_release(configuration);
	arena_close(&arena);
}
END_TEST

/* Of a runtime's records CONFIGURATIONS_KEPT_MAX are remembered; an older one is made durable again. */
START_TEST(records_kept_are_bounded)
{
	char configuration[DIGEST_TEXT_LEN + 1], answer[1024];

	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig_runtime(&rig, "r", stub.url);
	rig_open(&rig);
	stub.pieces[0].text = answer;
	for (int i = 0; i <= CONFIGURATIONS_KEPT_MAX; i++) {
		snprintf(answer, sizeof(answer), "%sdata: {\"system_fingerprint\":\"fp_%d\",\"choices\":[]}\n\n%s%s", SSE_HEAD, i, SSE_FINISH("stop"), SSE_DONE);
		if (i > 0)
			task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_RUNTIME_ERROR, "E.system_fingerprint");
		run_inference(configuration);
	}
	ck_assert_uint_eq(rig.notes, CONFIGURATIONS_KEPT_MAX + 2);
	snprintf(answer, sizeof(answer), "%sdata: {\"system_fingerprint\":\"fp_0\",\"choices\":[]}\n\n%s%s", SSE_HEAD, SSE_FINISH("stop"), SSE_DONE);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_RUNTIME_ERROR, "E.system_fingerprint");
	run_inference(configuration);
	ck_assert_uint_eq(rig.notes, CONFIGURATIONS_KEPT_MAX + 3);
	rig_close(&rig);
}
END_TEST

/* Of each request one 500 is remembered, until its second one; of more than RUNTIME_ERRED_MAX the oldest is forgotten. */
START_TEST(a_second_500_is_known)
{
	struct runtime *runtime;
	char key[65];

	rig_init(&rig);
	rig_runtime(&rig, "r", "http://127.0.0.1:1");
	rig_open(&rig);
	runtime = runtime_get(rig.activities, "r");
	for (unsigned i = 0; i < RUNTIME_ERRED_MAX + 1; i++) {
		snprintf(key, sizeof(key), "%0*x", RUNTIME_ERRED_KEY_LEN, i); /* the beginning is compared */
		ck_assert(!runtime_erred(runtime, key));
	}
	ck_assert(runtime_erred(runtime, key));
	ck_assert_ptr_nonnull(runtime->probe); /* is it ready at all? */
	ck_assert(!runtime_erred(runtime, key)); /* it begins anew */
	snprintf(key, sizeof(key), "%0*x", RUNTIME_ERRED_KEY_LEN, 0);
	ck_assert(!runtime_erred(runtime, key)); /* forgotten */
	ck_assert(!runtime_erred(runtime, "short"));
	rig_close(&rig);
}
END_TEST

/* A name that is not configured is refused with those that are, the similar one, and in one wording wherever it is said. */
START_TEST(unknown_names_are_refused)
{
	static const struct {
		const char *name, *message;
	} names[] = {
		{"nope", "no runtime 'nope' is configured; configured: extractor, b"},
		{"extracto", "no runtime 'extracto' is configured; configured: extractor, b; did you mean 'extractor'?"},
		{"extrractor", "no runtime 'extrractor' is configured; configured: extractor, b; did you mean 'extractor'?"},
		{"extraktor", "no runtime 'extraktor' is configured; configured: extractor, b; did you mean 'extractor'?"},
		{"Extractor", "no runtime 'Extractor' is configured; configured: extractor, b; did you mean 'extractor'?"},
		{"extrakto", "no runtime 'extrakto' is configured; configured: extractor, b"},
		{"a", "no runtime 'a' is configured; configured: extractor, b"},
		{"", "no runtime '' is configured; configured: extractor, b"},
	};
	static const struct {
		enum activity_kind kind;
		const char *with;
	} tasks[] = {
		{ACTIVITY_INFERENCE, "{\"runtime\":\"nope\",\"prompt\":\"x\"}"},
		{ACTIVITY_EXTRACT, "{\"plan\":{\"runtime\":\"nope\"},\"section\":{}}"},
	};
	char long_name[2][65];
	struct error error;

	rig_init(&rig);
	rig_open(&rig);
	ck_assert_int_eq(runtime_refuse_name(rig.activities, "nope", &error), ERR_NOT_FOUND);
	ck_assert_str_eq(error.message, "no runtime 'nope' is configured, and no other; runtimes: in the configuration file names them");
	rig_close(&rig);

	rig_init(&rig);
	rig_runtime(&rig, "extractor", "http://127.0.0.1:1");
	rig_runtime(&rig, "b", "http://127.0.0.1:1");
	rig_open(&rig);
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		ck_assert_int_eq(runtime_refuse_name(rig.activities, names[i].name, &error), ERR_NOT_FOUND);
		ck_assert_str_eq(error.message, names[i].message);
	}
	for (size_t i = 0; i < COUNT_OF(tasks); i++) {
		struct task task;

		task_init(&task, tasks[i].kind, tasks[i].with);
		ck_assert_int_eq(activity_start(rig.activities, &task.activity, &error), ERR_NOT_FOUND);
		ck_assert_str_eq(error.message, names[0].message);
		arena_close(&task.arena);
	}
	task_expect(&rig, ACTIVITY_SECTIONS, "{\"runtime\":\"nope\",\"document\":{\"text\":\"x\"},\"schema\":{\"document\":{}}}", FAILURE_CONFIGURATION,
		    names[0].message);
	rig_close(&rig);

	/* Names past RUNTIMES_NAMED_LEN_MAX are counted; the similar one is told all the same. */
	rig_init(&rig);
	for (size_t i = 0; i < 2; i++) {
		memset(long_name[i], 'x', 64);
		long_name[i][63] = (char)('0' + i);
		long_name[i][64] = '\0';
	}
	for (size_t i = 0; i < RIG_RUNTIMES_MAX - 1; i++)
		rig_runtime(&rig, long_name[0], "http://127.0.0.1:1");
	rig_runtime(&rig, "last", "http://127.0.0.1:1");
	rig_open(&rig);
	runtime_refuse_name(rig.activities, "lost", &error);
	ck_assert_msg(strstr(error.message, " more; did you mean 'last'?") != NULL, "%s", error.message);
	runtime_refuse_name(rig.activities, long_name[1], &error);
	ck_assert_msg(strcmp(error.message + strlen(error.message) - 2, "'?") == 0, "%s", error.message);
	rig_close(&rig);
}
END_TEST

/* Lists and counters say what is the case; a probe of nobody is an error with the address; one that hangs ends in time. */
START_TEST(views_tell_the_truth)
{
	struct probe_task task;
	struct arena arena;
	const struct json *list;

	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig_runtime(&rig, "r", stub.url)->concurrency = 3;
	rig_runtime(&rig, "gone", "http://127.0.0.1:1/")->api_key = "s3cret";
	rig_open(&rig);
	ck_assert(activities_has_runtime(rig.activities, "gone"));
	ck_assert(!activities_has_runtime(rig.activities, "nobody"));
	stub.pieces[0].text = SSE_HEAD SSE_TEXT("x") SSE_FINISH("stop") SSE_DONE;
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_NONE, NULL);
	task_expect(&rig, ACTIVITY_INFERENCE, "{\"runtime\":\"gone\",\"prompt\":\"x\"}", FAILURE_UNREACHABLE, NULL);
	arena_init(&arena);
	list = activities_runtimes_json(rig.activities, &arena);
	ck_assert_uint_eq(json_count(list), 2);
	ck_assert_str_eq(json_get_text(json_at(list, 0), "status"), "reachable");
	ck_assert_double_eq(json_get_number(json_at(list, 0), "concurrency", 0), 3);
	ck_assert_double_eq(json_get_number(json_at(list, 0), "inFlight", -1), 0);
	ck_assert_int_eq(strncmp(json_get_text(json_at(list, 0), "configuration"), "sha256:", 7), 0);
	ck_assert(!json_get_boolean(json_at(list, 0), "simulated", true));
	ck_assert_str_eq(json_get_text(json_at(list, 1), "status"), "unreachable");
	ck_assert_ptr_nonnull(strstr(json_get_text(json_at(list, 1), "lastError"), "127.0.0.1:1"));
	ck_assert_ptr_null(strstr((const char *)json_print_arena(list, &arena).data, "s3cret"));
	list = json_get(activities_counters_json(rig.activities, &arena), "attempts");
	ck_assert_double_eq(json_get_number(list, "succeeded", 0), 1);
	ck_assert_double_eq(json_get_number(list, "unreachable", 0), 1);
	arena_close(&arena);

	task = (struct probe_task){.probe = {.runtime = "nobody", .on_done = on_probed, .owner = &task}};
	ck_assert_int_eq(activities_probe(rig.activities, &task.probe), ERR_NOT_FOUND);
	arena_close(&task.probe.arena);
	task = (struct probe_task){.probe = {.runtime = "gone", .on_done = on_probed, .owner = &task}};
	ck_assert_int_eq(activities_probe(rig.activities, &task.probe), 0);
	while (!task.done)
		uv_run(&rig.loop, UV_RUN_ONCE);
	ck_assert_int_eq(task.probe.error.code, ERR_UNREACHABLE);
	arena_close(&task.probe.arena);

	stub.silent = true;
	run_probe(&task);
	ck_assert_int_eq(task.probe.error.code, ERR_UNREACHABLE);
	ck_assert_ptr_nonnull(strstr(task.probe.error.message, "PROBE_TIMEOUT_MS"));
	arena_close(&task.probe.arena);

	/* Closing with a probe under way: it ends, once. */
	task = (struct probe_task){.probe = {.runtime = "r", .on_done = on_probed, .owner = &task}};
	ck_assert_int_eq(activities_probe(rig.activities, &task.probe), 0);
	rig_close(&rig);
	ck_assert(task.done);
	ck_assert_int_eq(task.probe.error.code, ERR_CANCELLED);
	arena_close(&task.probe.arena);
}
END_TEST

/* A connection that does not come about ends at timeouts.connect: here the queue of the listener is full. */
START_TEST(connect_limit_holds)
{
	struct full_listener full;

	full_listener_open(&full);
	rig_init(&rig);
	rig_runtime(&rig, "r", full.url)->connect_ms = 200;
	rig_open(&rig);
	task_expect(&rig, ACTIVITY_INFERENCE, ASK, FAILURE_UNREACHABLE, "within 200 ms (timeouts.connect)");
	rig_close(&rig);
	full_listener_close(&full);
}
END_TEST

/* Configurations that cannot be are refused when they are opened, with the runtime's name. */
START_TEST(bad_configurations_are_refused)
{
	static const struct runtime_config bad[] = {
		{.name = "a", .kind = "nonsense", .url = "http://x"},
		{.name = "a", .kind = "openai", .url = "ftp://x"},
		{.name = "a", .kind = "openai", .url = "http://x", .concurrency = RUNTIME_CONCURRENCY_MAX + 1},
		{.name = "a", .kind = "openai", .url = "http://x", .api_key = "a\nb"},
	};
	static struct runtime_config many[RUNTIMES_MAX + 1];
	struct activity_ports ports = {0};
	struct activities *activities;
	struct error error;
	uv_loop_t loop;

	uv_loop_init(&loop);
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		struct activities_config config = {.runtimes = &bad[i], .runtime_count = 1};

		ck_assert_int_ne(activities_open(&activities, &loop, &config, &ports, &error), 0);
		ck_assert_msg(strstr(error.message, "runtime a") != NULL, "%s", error.message);
		ck_assert_ptr_null(strstr(error.message, "a\nb"));
	}
	ck_assert_int_eq(activities_open(&activities, &loop, &(struct activities_config){.runtimes = many, .runtime_count = COUNT_OF(many)}, &ports, &error),
			 ERR_TOO_LARGE);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

static void do_nothing(uv_work_t *work)
{
	(void)work;
}

static void on_had_turn(uv_work_t *work, int status)
{
	ck_assert_int_eq(status, 0);
	*(bool *)work->data = true;
}

/* Large weights do not keep the pool: with one thread alone, other work has its turn long before they are hashed; a probe that is given up in the middle ends. */
START_TEST(hashing_leaves_the_pool_to_others)
{
	char path[] = "/tmp/reprise-test-XXXXXX";
	double done = 0, total = 0;
	bool had_turn = false;
	uv_work_t other = {.data = &had_turn};
	struct task task;
	int fd = mkstemp(path);

	setenv("UV_THREADPOOL_SIZE", "1", 1);
	ck_assert_int_eq(ftruncate(fd, 64 * (off_t)WEIGHTS_SLICE), 0);
	close(fd);
	rig_init(&rig);
	rig_stub(&rig, &stub);
	rig_runtime(&rig, "r", stub.url)->weights_file = path;
	rig_open(&rig);
	task_init(&task, ACTIVITY_INFERENCE, ASK);
	task_start(&rig, &task);
	while (done == 0 || total == 0) {
		uv_run(&rig.loop, UV_RUN_NOWAIT);
		runtime_hashing(rig.activities->runtimes[0], &done, &total);
	}
	ck_assert_double_eq(total, 64.0 * WEIGHTS_SLICE);
	ck_assert_int_eq(uv_queue_work(&rig.loop, &other, do_nothing, on_had_turn), 0);
	while (!had_turn)
		uv_run(&rig.loop, UV_RUN_ONCE);
	ck_assert(runtime_hashing(rig.activities->runtimes[0], &done, &total));
	ck_assert_double_lt(done, total);
	rig_close(&rig);
	ck_assert(task.done);
	task_close(&task);
	unlink(path);
}
END_TEST

/* A load or an unload that nobody answers is given up after its limit, here after less; who waits is let go on, and the order may be given anew. */
START_TEST(loads_have_limits)
{
	static const struct {
		const char *models;
		enum runtime_order order;
		const char *detail;
	} rows[] = {
		{"{\"models\":[{\"type\":\"llm\",\"key\":\"m\",\"loaded_instances\":[]}]}", RUNTIME_START, "no answer within 200 ms (LOADING_LOAD_MS) while its model was to be loaded; see "},
		{"{\"models\":[{\"type\":\"llm\",\"key\":\"m\",\"loaded_instances\":[{\"id\":\"m\",\"config\":{}}]}]}", RUNTIME_STOP, "no answer within 200 ms (LOADING_UNLOAD_MS) while its model was to be unloaded; see "},
	};
	struct error error;

	rig_init(&rig);
	rig_stub(&rig, &stub);
	stub.pieces[0] = (struct stub_piece){.text = "HTTP/1.1 200 OK\r\n", .delay_ms = 600 * 1000};
	rig_runtime(&rig, "r", stub.url)->kind = "lmstudio";
	rig_open(&rig);
	ck_assert_int_eq(rig.activities->loading.load_ms, LOADING_LOAD_MS);
	ck_assert_int_eq(rig.activities->loading.unload_ms, LOADING_UNLOAD_MS);
	rig.activities->loading.load_ms = rig.activities->loading.unload_ms = 200;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const char *state = "";

		stub.models = rows[i].models;
		ck_assert_int_eq(activities_order_runtime(rig.activities, "r", rows[i].order, NULL, &error), 0);
		while (strcmp(state, "failed") != 0) {
			struct arena arena;
			const struct json *load;

			uv_run(&rig.loop, UV_RUN_ONCE);
			arena_init(&arena);
			load = json_get(activities_runtime_json(rig.activities, &arena, "r"), "load");
			state = strcmp(json_get_text(load, "state"), "failed") == 0 ? "failed" : "";
			if (state[0] != '\0')
				ck_assert_msg(strncmp(json_get_text(load, "detail"), rows[i].detail, strlen(rows[i].detail)) == 0, "%s", json_get_text(load, "detail"));
			arena_close(&arena);
		}
	}
	rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("runtimes");
	TCase *cases = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(cases, 300);
	tcase_add_test(cases, record_is_whole);
	tcase_add_test(cases, record_comes_first);
	tcase_add_test(cases, fingerprint_is_part_of_it);
	tcase_add_test(cases, server_header_is_watched);
	tcase_add_test(cases, weights_are_measured);
	tcase_add_test(cases, hashing_leaves_the_pool_to_others);
	tcase_add_test(cases, what_is_not_known_is_not_claimed);
	tcase_add_test(cases, records_kept_are_bounded);
	tcase_add_test(cases, a_second_500_is_known);
	tcase_add_test(cases, unknown_names_are_refused);
	tcase_add_test(cases, views_tell_the_truth);
	tcase_add_test(cases, connect_limit_holds);
	tcase_add_test(cases, bad_configurations_are_refused);
	tcase_add_test(cases, loads_have_limits);
	suite_add_tcase(suite, cases);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
