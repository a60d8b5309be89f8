/* Sections and extraction against the real simulator, whose answers quote the section that it was sent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activities/documents.h"
#include "activities/runtimes.h"
#include "activities/sections.h"
#include "tests/unit/activities/rig.h"
#include "workflow/base/check.h"

#define SCHEMA                                                                                                                     \
	"{\"type\":\"object\",\"properties\":{\"facts\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"subject\":{\"type\":"  \
	"\"string\"},\"predicate\":{\"type\":\"string\"},\"object\":{\"type\":\"string\"},\"quote\":{\"type\":\"string\"}},\"required\":[\"subject\"," \
	"\"predicate\",\"object\",\"quote\"],\"additionalProperties\":false}}},\"required\":[\"facts\"],\"additionalProperties\":false}"

static const char text_of_two[] = "# Größe\n\nNordwind AG was founded in 1987. Nordwind AG is located in Köln.\n\n# Leer\n\nHier steht nichts von Belang.\n";

static struct rig rig;
static struct sim sim;

static void open_all(const char *script)
{
	rig_init(&rig);
	sim_start(&sim, script);
	rig_runtime(&rig, "r", sim.url);
	rig_open(&rig);
}

static void close_all(void)
{
	rig_close(&rig);
	sim_stop(&sim);
}

/* with of a sections activity; document: JSON. */
static char *sections_with(const char *document, const char *more)
{
	size_t size = strlen(document) + 4096;
	char *with = memory_alloc(size);

	snprintf(with, size, "{\"runtime\":\"r\",\"document\":%s,\"schema\":{\"document\":" SCHEMA "}%s}", document, more);
	return with;
}

static char *quoted(const char *text)
{
	struct buffer out;
	char *copy;

	buffer_init(&out, 1 << 20);
	json_print_string(text, strlen(text), &out);
	copy = memory_text(buffer_text(&out));
	buffer_close(&out);
	return copy;
}

static void expect_sections(const char *document, const char *more, enum failure_class failure, const char *detail)
{
	char *with = sections_with(document, more);

	task_expect(&rig, ACTIVITY_SECTIONS, with, failure, detail);
	free(with);
}

static void run_sections(struct task *task, const char *text, const char *more)
{
	char *document = quoted(text), *with = sections_with(document, more);

	task_init(task, ACTIVITY_SECTIONS, with);
	task_run(&rig, task);
	ck_assert_msg(task->activity.result.ok, "%s", task->activity.result.detail);
	free(document);
	free(with);
}

/* with of an extract activity, for section `index` of a sections task. */
static void init_extract(struct task *task, const struct task *sections, size_t index)
{
	struct arena arena;
	struct json *with;
	struct bytes text;

	arena_init(&arena);
	with = json_object(&arena);
	json_set(&arena, with, "plan", json_copy(&arena, json_get(sections->activity.result.output, "plan")));
	json_set(&arena, with, "section", json_copy(&arena, json_at(json_get(sections->activity.result.output, "sections"), index)));
	text = json_print_arena(with, &arena);
	task_init(task, ACTIVITY_EXTRACT, arena_text_len(&arena, (const char *)text.data, text.len));
	arena_close(&arena);
}

/* While a section is being prepared its runtime ends: nobody is asked at its address, and the attempt goes on once it is there again. */
START_TEST(prepared_while_the_runtime_ends)
{
	struct task sections, extract;
	struct runtime *runtime;

	open_all(NULL);
	runtime = runtime_get(rig.activities, "r");
	run_sections(&sections, "# Title\n\nNorthlight Instruments was founded by Ingrid Solberg.\n", "");
	rig_document(&rig, sections.activity.result.document);
	init_extract(&extract, &sections, 0);
	task_start(&rig, &extract); /* it has its slot, and loads the section */
	ck_assert_uint_eq(runtime->queue.in_flight, 1);
	runtime_admit(runtime, RUNTIME_HOLDS, FAILURE_NONE, NULL);
	runtime->known = false;
	rig_turns(&rig, 100);
	ck_assert(!extract.done);
	ck_assert_ptr_null(runtime->probe);
	ck_assert_uint_eq(runtime->queue.waiting_count, 1);
	ck_assert_uint_eq(runtime->queue.in_flight, 0);
	runtime_admit(runtime, RUNTIME_ADMITS, FAILURE_NONE, NULL);
	task_wait(&rig, &extract);
	ck_assert_msg(extract.activity.result.ok, "%s", extract.activity.result.detail);
	task_close(&extract);
	task_close(&sections);
	close_all();
}
END_TEST

/* A document becomes sections, a section becomes facts whose quotes stand where their offsets say, and every part of the
 * statement is there. A section without facts is `empty`, which is no failure. */
START_TEST(document_becomes_facts)
{
	struct task sections, extract;
	struct activity_result *result = &extract.activity.result;
	const struct json *fact, *evidence, *bytes;
	struct digest digest, expected;
	const char *quote;

	open_all(NULL);
	run_sections(&sections, text_of_two, ",\"sampling\":{\"seed\":42,\"temperature\":0}");
	ck_assert_uint_eq(json_count(json_get(sections.activity.result.output, "sections")), 2);
	ck_assert(bytes_equal_text(sections.activity.result.document, text_of_two));
	ck_assert_ptr_nonnull(sections.activity.result.document_media_type);
	ck_assert_str_eq(json_get_text(json_get(sections.activity.result.output, "plan"), "onFailure"), "continue");
	ck_assert_uint_eq(sections.activity.result.active_from_us, 0);
	rig_document(&rig, sections.activity.result.document);

	init_extract(&extract, &sections, 0);
	task_run(&rig, &extract);
	ck_assert_msg(result->ok, "%s", result->detail);
	ck_assert_uint_eq(json_count(result->facts), 2);
	for (size_t i = 0; i < json_count(result->facts); i++) {
		fact = json_at(result->facts, i);
		ck_assert(json_get_boolean(fact, "accepted", false));
		quote = json_get_text(fact, "quote");
		bytes = json_get(json_get(fact, "grounding"), "bytes");
		ck_assert_int_eq(strncmp(text_of_two + (size_t)json_at(bytes, 0)->number, quote, strlen(quote)), 0);
		ck_assert_double_eq(json_at(bytes, 1)->number - json_at(bytes, 0)->number, (double)strlen(quote));
	}
	ck_assert_str_eq(json_get_text(json_get(json_at(result->facts, 1), "value"), "object"), "Köln");
	ck_assert_str_eq(json_get_text(result->output, "status"), "completed");
	ck_assert_str_eq(json_get_text(result->output, "outcome"), "facts");
	ck_assert_str_eq(json_get_text(result->output, "heading"), "Größe");

	evidence = result->evidence;
	ck_assert(json_get_digest(json_get(evidence, "request"), "digest", &digest));
	expected = digest_of(result->request);
	ck_assert(digest_equal(&digest, &expected));
	ck_assert(json_get_digest(json_get(evidence, "response"), "digest", &digest));
	expected = digest_of(result->response);
	ck_assert(digest_equal(&digest, &expected));
	ck_assert_str_eq(json_get_text(json_get(evidence, "sampling"), "seed"), "42");
	ck_assert_str_eq(json_get_text(json_get(evidence, "reproducibility"), "class"), "unmeasured");
	ck_assert_str_eq(json_get_text(json_get(evidence, "model"), "name"), "m");
	ck_assert_str_eq(json_get_text(json_get(evidence, "model"), "basis"), "reported");
	ck_assert(json_get_boolean(evidence, "simulated", false));
	ck_assert_str_eq(json_get_text(evidence, "finishReason"), "stop");
	ck_assert_ptr_nonnull(json_get_text(json_get(json_get(evidence, "runtime"), "engine"), "version"));
	ck_assert_str_eq(json_get_text(evidence, "runtimeName"), "r");
	ck_assert(json_is(json_get(json_get(evidence, "clock"), "synchronized"), JSON_BOOLEAN));
	ck_assert_ptr_nonnull(json_get_text(json_get(evidence, "prompt"), "name"));
	ck_assert_ptr_nonnull(json_get_text(json_get(evidence, "schema"), "name"));
	ck_assert(json_get_digest(json_get(evidence, "configuration"), "digest", &digest));
	ck_assert(json_get_digest(json_get(evidence, "source"), "digest", &digest));
	expected = digest_of((struct bytes){(const uint8_t *)text_of_two, (size_t)json_at(json_get(result->output, "bytes"), 1)->number});
	ck_assert(digest_equal(&digest, &expected));
	task_close(&extract);

	init_extract(&extract, &sections, 1);
	task_run(&rig, &extract);
	ck_assert_msg(result->ok, "%s", result->detail);
	ck_assert_str_eq(json_get_text(result->output, "outcome"), "empty");
	ck_assert_uint_eq(json_count(result->facts), 0);
	ck_assert_uint_eq(rig.loads, 1); /* both sections read the one copy */
	task_close(&extract);
	task_close(&sections);
	close_all();
}
END_TEST

/* An answer that cannot be used yields no candidate, and with onFailure continue the section's output says which class. */
START_TEST(unusable_answers_are_no_facts)
{
	static const struct {
		const char *fault;
		enum failure_class failure;
		const char *name;
	} cases[] = {
		{"notJson", FAILURE_SCHEMA_INVALID, "schema-invalid"},
		{"cutByLength", FAILURE_TRUNCATED, "truncated"},
		{"cutText", FAILURE_SCHEMA_INVALID, "schema-invalid"},
		{"eof", FAILURE_TRUNCATED, "truncated"},
	};
	struct task sections, extract;
	struct activity_result *result = &extract.activity.result;

	open_all(NULL);
	run_sections(&sections, text_of_two, "");
	rig_document(&rig, sections.activity.result.document);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char script[256];

		snprintf(script, sizeof(script), "{\"faults\":[{\"on\":1,\"kind\":\"%s\"}]}", cases[i].fault);
		sim_set_script(&sim, script);
		init_extract(&extract, &sections, 0);
		task_run(&rig, &extract);
		ck_assert_msg(result->failure == cases[i].failure, "%s: %s: %s", cases[i].fault, failure_name(result->failure), result->detail);
		ck_assert(!result->ok);
		ck_assert_ptr_null(result->facts);
		ck_assert_str_eq(json_get_text(result->output, "status"), "failed");
		ck_assert_str_eq(json_get_text(result->output, "outcome"), cases[i].name);
		ck_assert_uint_gt(result->response.len, 0);
		task_close(&extract);
	}
	task_close(&sections);

	/* With onFailure fault there is no output to go on with. */
	run_sections(&sections, text_of_two, ",\"onFailure\":\"fault\"");
	sim_set_script(&sim, "{\"faults\":[{\"on\":1,\"kind\":\"notJson\"}]}");
	init_extract(&extract, &sections, 0);
	task_run(&rig, &extract);
	ck_assert_int_eq(result->failure, FAILURE_SCHEMA_INVALID);
	ck_assert_ptr_null(result->output);
	task_close(&extract);
	task_close(&sections);
	close_all();
}
END_TEST

/* A quote that is not in the section makes a rejected candidate, kept and marked. */
START_TEST(ungrounded_is_rejected)
{
	struct task sections, extract;
	unsigned accepted = 0;

	open_all("{\"faults\":[{\"on\":1,\"kind\":\"ungrounded\"}]}");
	run_sections(&sections, text_of_two, "");
	rig_document(&rig, sections.activity.result.document);
	init_extract(&extract, &sections, 0);
	task_run(&rig, &extract);
	ck_assert_msg(extract.activity.result.ok, "%s", extract.activity.result.detail);
	ck_assert_uint_eq(json_count(extract.activity.result.facts), 2);
	for (size_t i = 0; i < 2; i++)
		accepted += json_get_boolean(json_at(extract.activity.result.facts, i), "accepted", true);
	ck_assert_uint_eq(accepted, 1);
	task_close(&extract);
	task_close(&sections);
	close_all();
}
END_TEST

/* A section of whose candidates none is accepted is not "empty": its outcome says why. */
START_TEST(all_rejected_is_not_empty)
{
	struct task sections, extract;

	open_all("{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"{\\\"facts\\\":[{\\\"subject\\\":\\\"a\\\",\\\"predicate\\\":\\\"b\\\","
		 "\\\"object\\\":\\\"c\\\",\\\"quote\\\":\\\"nowhere to be found\\\"}]}\"}]}}");
	run_sections(&sections, text_of_two, "");
	rig_document(&rig, sections.activity.result.document);
	init_extract(&extract, &sections, 0);
	task_run(&rig, &extract);
	ck_assert_msg(extract.activity.result.ok, "%s", extract.activity.result.detail);
	ck_assert_uint_eq(json_count(extract.activity.result.facts), 1);
	ck_assert_str_eq(json_get_text(extract.activity.result.output, "outcome"), "ungrounded");
	ck_assert_str_eq(json_get_text(extract.activity.result.output, "status"), "completed");
	task_close(&extract);
	task_close(&sections);
	close_all();
}
END_TEST

/* What cannot be a document is told before any request, and no further attempt would help. */
START_TEST(bad_documents_are_refused)
{
	static const char missing[] = "{\"digest\":\"sha256:0000000000000000000000000000000000000000000000000000000000000000\"}";
	char text[DIGEST_TEXT_LEN + 1], document[256];
	struct digest digest;

	open_all(NULL);
	expect_sections("\"\"", "", FAILURE_CONFIGURATION, "empty");
	expect_sections("\" \\n \"", "", FAILURE_CONFIGURATION, "empty");
	expect_sections(missing, "", FAILURE_CONFIGURATION, "there is no document sha256:00");
	expect_sections("17", "", FAILURE_CONFIGURATION, "number");
	expect_sections("null", "", FAILURE_CONFIGURATION, "neither");
	digest = rig_document(&rig, BYTES_OF("abc \xFF\xFE def"));
	digest_text(&digest, text);
	snprintf(document, sizeof(document), "{\"digest\":\"%s\"}", text);
	expect_sections(document, "", FAILURE_CONFIGURATION, "UTF-8");
	digest = rig_document(&rig, BYTES_OF("abc \0 def"));
	digest_text(&digest, text);
	snprintf(document, sizeof(document), "{\"digest\":\"%s\"}", text);
	expect_sections(document, "", FAILURE_CONFIGURATION, "NUL");
	expect_sections("\"x\"", ",\"sections\":{\"by\":\"page\"}", FAILURE_CONFIGURATION, "sections.by");
	expect_sections("\"x\"", ",\"sampling\":{\"nonsense\":1}", FAILURE_CONFIGURATION, "sampling.nonsense");
	expect_sections("\"x\"", ",\"onFailure\":\"maybe\"", FAILURE_CONFIGURATION, "onFailure");
	task_expect(&rig, ACTIVITY_SECTIONS, "{\"runtime\":\"nobody\",\"document\":\"x\",\"schema\":{\"document\":{\"type\":\"object\"}}}",
		    FAILURE_CONFIGURATION, "nobody");
	task_expect(&rig, ACTIVITY_SECTIONS, "{\"runtime\":\"r\",\"document\":\"x\",\"schema\":{\"document\":{\"type\":7}}}", FAILURE_CONFIGURATION, "schema");
	ck_assert_uint_eq(rig.notes, 0);
	close_all();
}
END_TEST

/* A large document is cut on the pool: the loop goes on, cancelling waits for the pool, and the result is the same as without. */
START_TEST(large_documents_leave_the_loop)
{
	struct buffer text;
	struct task sections, extract;
	char *document, *with;
	size_t count;

	open_all(NULL);
	buffer_init(&text, 1 << 20);
	for (int i = 0; i < 1000; i++)
		buffer_printf(&text, "# Part %d\n\nFirma %d was founded in %d. %s\n\n", i, i, 1900 + i % 100, "Much more could be said of it, and will be said elsewhere.");
	ck_assert_uint_gt(text.len, 64 << 10);
	document = quoted(buffer_text(&text));
	with = sections_with(document, "");
	task_init(&sections, ACTIVITY_SECTIONS, with);
	task_start(&rig, &sections);
	activity_cancel(rig.activities, &sections.activity);
	ck_assert(!sections.done);
	task_wait(&rig, &sections);
	ck_assert_int_eq(sections.activity.result.failure, FAILURE_CANCELLED);
	task_close(&sections);

	task_init(&sections, ACTIVITY_SECTIONS, with);
	task_run(&rig, &sections);
	count = json_count(json_get(sections.activity.result.output, "sections"));
	ck_assert_uint_eq(count, 1000);
	rig_document(&rig, sections.activity.result.document);
	init_extract(&extract, &sections, count - 1);
	task_run(&rig, &extract);
	ck_assert_msg(extract.activity.result.ok, "%s", extract.activity.result.detail);
	ck_assert_uint_eq(json_count(extract.activity.result.facts), 1);
	ck_assert(json_get_boolean(json_at(extract.activity.result.facts, 0), "accepted", false));
	task_close(&extract);

	/* Cancelled while the document is being loaded, and while the request is under way. */
	for (unsigned turns = 0; turns < 20; turns += 4) {
		init_extract(&extract, &sections, turns);
		task_start(&rig, &extract);
		for (unsigned i = 0; i < turns && !extract.done; i++)
			uv_run(&rig.loop, UV_RUN_NOWAIT);
		activity_cancel(rig.activities, &extract.activity);
		task_wait(&rig, &extract);
		ck_assert(extract.activity.result.ok || extract.activity.result.failure == FAILURE_CANCELLED);
		task_close(&extract);
	}
	task_close(&sections);
	free(document);
	free(with);
	buffer_close(&text);
	close_all();
}
END_TEST

/* Of documents that nobody reads at the moment DOCUMENTS_MAX are kept, the least recently used is loaded again. */
START_TEST(documents_kept_are_bounded)
{
	struct task sections[DOCUMENTS_MAX + 1], extract;

	open_all(NULL);
	for (int i = 0; i <= DOCUMENTS_MAX; i++) {
		char text[100];

		snprintf(text, sizeof(text), "Firma %d was founded in 1999.\n", i);
		run_sections(&sections[i], text, "");
		rig_document(&rig, sections[i].activity.result.document);
	}
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < DOCUMENTS_MAX; i++) {
			init_extract(&extract, &sections[i], 0);
			task_run(&rig, &extract);
			ck_assert_msg(extract.activity.result.ok, "%s", extract.activity.result.detail);
			task_close(&extract);
		}
	ck_assert_uint_eq(rig.loads, DOCUMENTS_MAX);
	for (int i = DOCUMENTS_MAX; i >= 0; i -= DOCUMENTS_MAX) { /* one more, which drops the first, and the first again */
		init_extract(&extract, &sections[i], 0);
		task_run(&rig, &extract);
		task_close(&extract);
	}
	ck_assert_uint_eq(rig.loads, DOCUMENTS_MAX + 2);
	for (int i = 0; i <= DOCUMENTS_MAX; i++)
		task_close(&sections[i]);
	close_all();
}
END_TEST

static void on_held(struct document_wait *wait)
{
	*(bool *)wait->owner = true;
}

static void hold_and_release(struct digest digest)
{
	bool done = false;
	struct document_wait wait = {.digest = digest, .on_done = on_held, .owner = &done};

	if (!document_hold(rig.activities, &wait))
		while (!done)
			uv_run(&rig.loop, UV_RUN_ONCE);
	ck_assert_msg(wait.document != NULL, "%s", wait.error.message);
	document_release(rig.activities, wait.document);
}

/* … and of those DOCUMENTS_BYTES_MAX bytes together: two that fill it stay, a third of one byte drops the least recently used. */
START_TEST(bytes_of_documents_kept_are_bounded)
{
	enum { HALF = DOCUMENTS_BYTES_MAX / 2 };
	char *text = memory_zero(2 * (size_t)HALF);
	struct digest digests[3];

	open_all(NULL);
	text[HALF] = 1;
	digests[0] = rig_document(&rig, (struct bytes){(const uint8_t *)text, HALF});
	digests[1] = rig_document(&rig, (struct bytes){(const uint8_t *)text + HALF, HALF});
	digests[2] = rig_document(&rig, (struct bytes){(const uint8_t *)text, 1});
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 2; i++)
			hold_and_release(digests[i]);
	ck_assert_uint_eq(rig.loads, 2);
	hold_and_release(digests[2]);
	hold_and_release(digests[1]);
	ck_assert_uint_eq(rig.loads, 3);
	hold_and_release(digests[0]); /* again; the other two are over the limit with it, and the small one goes first */
	ck_assert_uint_eq(rig.loads, 4);
	hold_and_release(digests[1]);
	ck_assert_uint_eq(rig.loads, 4);
	hold_and_release(digests[2]);
	ck_assert_uint_eq(rig.loads, 5);
	close_all();
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("extract");
	TCase *cases = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(cases, 300);
	tcase_add_test(cases, prepared_while_the_runtime_ends);
	tcase_add_test(cases, document_becomes_facts);
	tcase_add_test(cases, unusable_answers_are_no_facts);
	tcase_add_test(cases, ungrounded_is_rejected);
	tcase_add_test(cases, all_rejected_is_not_empty);
	tcase_add_test(cases, bad_documents_are_refused);
	tcase_add_test(cases, large_documents_leave_the_loop);
	tcase_add_test(cases, documents_kept_are_bounded);
	tcase_add_test(cases, bytes_of_documents_kept_are_bounded);
	suite_add_tcase(suite, cases);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
