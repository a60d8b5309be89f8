#include "tests/unit/evidence/vectors.h"

#include <signal.h>

#include "workflow/base/time.h"
#include "workflow/evidence/envelope.h"
#include "workflow/evidence/statement.h"

struct fixture {
	struct json *want; /* the example, parsed */
	struct statement_parts parts;
};

static int64_t time_of(const struct json *json, const char *pointer)
{
	int64_t wall_ms;

	ck_assert(time_parse(json_pointer_get(json, pointer)->string.text, &wall_ms));
	return wall_ms;
}

static const char *text_of(const struct json *json, const char *pointer)
{
	return json_pointer_get(json, pointer)->string.text;
}

/* The example's parts, as the engine would bring them. The subject comes from the fact itself. */
static struct fixture *build(void)
{
	struct fixture *fixture = vectors_alloc(sizeof(*fixture));
	struct json *json = vectors_parse(vectors_load("fact/statement.pretty.json"));
	struct json *predicate = json_get(json, "predicate"), *extraction = json_get(predicate, "extraction");
	struct json *result = json_get(predicate, "result"), *run = json_get(predicate, "run");

	fixture->want = json;
	fixture->parts = (struct statement_parts){
		.subject_name = "fact:contract.penalty",
		.subject = json_digest(vectors_parse(vectors_load("fact/fact.json"))),
		.workflow = json_get(extraction, "workflow"),
		.step = json_get_text(extraction, "step"),
		.source = json_get(extraction, "source"),
		.prompt = json_get(extraction, "prompt"),
		.schema = json_get(extraction, "schema"),
		.sampling = json_get(extraction, "sampling"),
		.request = json_get(extraction, "request"),
		.model = json_get(predicate, "model"),
		.runtime = json_get(predicate, "runtime"),
		.response = json_get(result, "response"),
		.finish_reason = json_get_text(result, "finishReason"),
		.prompt_tokens = 118,
		.completion_tokens = 47,
		.fact_index = 0,
		.fact_count = 1,
		.gate = json_get(result, "gate"),
		.daemon = json_get(run, "daemon"),
		.journal = json_get_text(run, "journal"),
		.run_id = json_get_text(run, "runId"),
		.step_id = json_get_text(run, "stepId"),
		.attempt = 2,
		.started_ms = time_of(json, "/predicate/run/startedOn"),
		.finished_ms = time_of(json, "/predicate/run/finishedOn"),
		.signed_ms = time_of(json, "/predicate/run/signedOn"),
		.duration_ms = 1361,
		.clock = json_get(run, "clock"),
	};
	return fixture;
}

/* The example's statement comes out to the byte. */
START_TEST(test_build)
{
	struct fixture *fixture = build();
	struct arena arena;

	arena_init(&arena);
	vectors_assert_equal(statement_build(&arena, &fixture->parts), vectors_load("fact/statement.json"));
	arena_close(&arena);
}
END_TEST

/* Signed by the example's fact key it is the example's signature, and its digests are those of the journal's entry. */
START_TEST(test_sign)
{
	struct fixture *fixture = build();
	const struct json *envelope = vectors_parse(vectors_load("fact/envelope.json"));
	const struct json *data = json_get(vectors_parse(vectors_load("fact/fact.entry")), "data");
	struct secret_key key;
	struct envelope_signature signature;
	struct digest pae, payload, want;
	struct arena arena;
	struct bytes statement;
	struct buffer text, want_text;
	struct error error;

	arena_init(&arena);
	statement = statement_build(&arena, &fixture->parts);
	ck_assert(secret_key_parse_pem(&key, vectors_load("fact/keys/fact.TEST-ONLY.secret.pem"), &error) == 0);
	envelope_sign(&key, ENVELOPE_TYPE_STATEMENT, statement, &signature, &pae);
	buffer_init(&text, 1 << 20);
	envelope_print(ENVELOPE_TYPE_STATEMENT, statement, &signature, 1, &text);
	/* The example is laid out for reading; its values are what has to agree. */
	buffer_init(&want_text, 1 << 20);
	json_print(envelope, &want_text);
	vectors_assert_equal(buffer_bytes(&text), buffer_bytes(&want_text));
	payload = digest_of(statement);
	ck_assert(json_get_digest(data, "payload", &want));
	ck_assert(digest_equal(&payload, &want));
	ck_assert(json_get_digest(data, "pae", &want));
	ck_assert(digest_equal(&pae, &want));
	ck_assert(json_get_digest(data, "subject", &want));
	ck_assert(statement_subject_is(fixture->want, &want));
	ck_assert(digest_equal(&fixture->parts.subject, &want));
	buffer_close(&want_text);
	buffer_close(&text);
	arena_close(&arena);
}
END_TEST

/* Configuration and reproducibility stand where the format says; what was not reported is left out. */
START_TEST(test_optional_parts)
{
	struct fixture *fixture = build();
	struct arena arena;
	struct json *statement;
	struct error error;

	arena_init(&arena);
	fixture->parts.configuration = vectors_parse(
		BYTES_OF("{\"digest\":{\"sha256\":\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"}}"));
	fixture->parts.reproducibility = vectors_parse(BYTES_OF("{\"class\":\"unmeasured\"}"));
	fixture->parts.subject_name = NULL;
	fixture->parts.prompt_tokens = -1;
	fixture->parts.completion_tokens = -1;
	fixture->parts.finish_reason = NULL;
	fixture->parts.clock = NULL;
	statement = json_parse(&arena, statement_build(&arena, &fixture->parts), JSON_STRICT, NULL, &error);
	ck_assert_ptr_nonnull(statement);
	ck_assert_msg(statement_check(statement, &error) == 0, "%s", error.message);
	ck_assert_str_eq(text_of(statement, "/predicate/result/reproducibility/class"), "unmeasured");
	ck_assert_ptr_nonnull(json_pointer_get(statement, "/predicate/configuration/digest/sha256"));
	ck_assert_str_eq(text_of(statement, "/subject/0/name"), "fact");
	ck_assert_ptr_null(json_pointer_get(statement, "/predicate/result/promptTokens"));
	ck_assert_ptr_null(json_pointer_get(statement, "/predicate/result/completionTokens"));
	ck_assert_ptr_null(json_pointer_get(statement, "/predicate/result/finishReason"));
	ck_assert_ptr_null(json_pointer_get(statement, "/predicate/run/clock"));
	arena_close(&arena);
}
END_TEST

/* A part that is missing stops the process before anything is signed. */
START_TEST(test_missing_part)
{
	struct fixture *fixture = build();
	struct arena arena;

	arena_init(&arena);
	fixture->parts.model = NULL;
	statement_build(&arena, &fixture->parts);
}
END_TEST

/* Each required field is missed when it is not there, and named. */
START_TEST(test_required)
{
	static const struct {
		const char *parent, *name, *code;
	} fields[] = {
		{"", "_type", "statement-type"},
		{"", "subject", "statement-subject"},
		{"/subject/0", "digest", "statement-subject"},
		{"", "predicateType", "predicate-type"},
		{"", "predicate", "statement-field"},
		{"/predicate/extraction", "type", "statement-field"},
		{"/predicate/extraction", "workflow", "statement-field"},
		{"/predicate/extraction/workflow", "digest", "statement-field"},
		{"/predicate/extraction/workflow", "version", "statement-field"},
		{"/predicate/extraction", "step", "statement-field"},
		{"/predicate/extraction/source", "digest", "statement-field"},
		{"/predicate/extraction/source/annotations", "byteEnd", "statement-field"},
		{"/predicate/extraction/prompt", "name", "statement-field"},
		{"/predicate/extraction/schema", "digest", "statement-field"},
		{"/predicate/extraction", "sampling", "statement-field"},
		{"/predicate/extraction/request", "mediaType", "statement-field"},
		{"/predicate/model", "name", "statement-field"},
		{"/predicate/model", "basis", "statement-field"},
		{"/predicate/model/weights/0", "digest", "statement-field"},
		{"/predicate/runtime/engine", "version", "statement-field"},
		{"/predicate/runtime", "basis", "statement-field"},
		{"/predicate/runtime/launch", "digest", "statement-field"},
		{"/predicate/runtime/launch", "config", "statement-field"},
		{"/predicate/result", "response", "statement-field"},
		{"/predicate/result", "factIndex", "statement-field"},
		{"/predicate/result", "factCount", "statement-field"},
		{"/predicate/result/gate", "result", "statement-field"},
		{"/predicate/result/gate", "checks", "statement-field"},
		{"/predicate/run/daemon", "name", "statement-field"},
		{"/predicate/run", "journal", "statement-field"},
		{"/predicate/run", "runId", "statement-field"},
		{"/predicate/run", "stepId", "statement-field"},
		{"/predicate/run", "attempt", "statement-field"},
		{"/predicate/run", "startedOn", "timestamp"},
		{"/predicate/run", "finishedOn", "timestamp"},
		{"/predicate/run", "signedOn", "timestamp"},
	};
	struct fixture *fixture = build();
	struct error error;
	struct arena arena;

	arena_init(&arena);
	ck_assert(statement_check(fixture->want, &error) == 0);
	for (size_t i = 0; i < COUNT_OF(fields); i++) {
		struct json *damaged = json_copy(&arena, fixture->want);

		ck_assert_msg(json_remove(json_pointer_get(damaged, fields[i].parent), fields[i].name), "%s is not there", fields[i].name);
		ck_assert_msg(statement_check(damaged, &error) == ERR_INVALID, "without %s/%s", fields[i].parent, fields[i].name);
		ck_assert_msg(vectors_has_code(error.message, fields[i].code), "%s/%s: %s", fields[i].parent, fields[i].name, error.message);
	}
	ck_assert(statement_check(json_null(&arena), &error) == ERR_INVALID);
	ck_assert(statement_check(NULL, NULL) == ERR_INVALID);
	arena_close(&arena);
}
END_TEST

/* Values that are there and wrong are refused. */
START_TEST(test_wrong_values)
{
	static const struct {
		const char *parent, *name, *value, *code;
	} changes[] = {
		{"", "_type", "\"x\"", "statement-type"},
		{"", "subject", "[]", "statement-subject"},
		{"/subject/0", "digest", "{\"sha256\":\"87035BEBF02AAC18BE3DB7EC1D26DA44D3A5983457A8D8B73C7782A86A366243\"}", "statement-subject"},
		{"", "predicateType", "\"x\"", "predicate-type"},
		{"/predicate/extraction", "type", "\"x\"", "statement-field"},
		{"/predicate/extraction/sampling", "seed", "42", "statement-field"},
		{"/predicate/extraction/source/annotations", "byteEnd", "47", "statement-field"},
		{"/predicate/model", "basis", "\"guessed\"", "statement-field"},
		{"/predicate/model", "weights", "{}", "statement-field"},
		{"/predicate/runtime/engine", "digest", "\"x\"", "statement-field"},
		{"/predicate", "configuration", "{}", "statement-field"},
		{"/predicate/result", "factIndex", "1", "statement-field"},
		{"/predicate/result", "factIndex", "-1", "statement-field"},
		{"/predicate/result/gate", "result", "\"passed\"", "statement-field"},
		{"/predicate/result", "reproducibility", "{}", "statement-field"},
		{"/predicate/run", "attempt", "0", "statement-field"},
		{"/predicate/run", "attempt", "1.5", "statement-field"},
		{"/predicate/run", "signedOn", "\"2026-09-18T09:10:33.880+02:00\"", "timestamp"},
		{"/predicate/run", "signedOn", "\"\"", "timestamp"},
	};
	struct fixture *fixture = build();
	struct error error;
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(changes); i++) {
		struct json *damaged = json_copy(&arena, fixture->want);

		json_set(&arena, json_pointer_get(damaged, changes[i].parent), changes[i].name, vectors_parse(bytes_text(changes[i].value)));
		ck_assert_msg(statement_check(damaged, &error) == ERR_INVALID, "%s/%s = %s", changes[i].parent, changes[i].name, changes[i].value);
		ck_assert_msg(vectors_has_code(error.message, changes[i].code), "%s = %s: %s", changes[i].name, changes[i].value, error.message);
	}
	arena_close(&arena);
}
END_TEST

/* Only PASSED is accepted; subjects are found by digest alone. */
START_TEST(test_questions)
{
	struct fixture *fixture = build();
	struct digest other = digest_of(BYTES_OF("x"));
	struct arena arena;

	arena_init(&arena);
	ck_assert(statement_accepted(fixture->want));
	ck_assert(statement_subject_is(fixture->want, &fixture->parts.subject));
	ck_assert(!statement_subject_is(fixture->want, &other));
	json_set_text(&arena, json_pointer_get(fixture->want, "/predicate/result/gate"), "result", "FAILED");
	ck_assert(!statement_accepted(fixture->want));
	ck_assert(!statement_accepted(NULL));
	arena_close(&arena);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("statement");
	TCase *tcase = tcase_create("statement");

	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, test_build);
	tcase_add_test(tcase, test_sign);
	tcase_add_test(tcase, test_optional_parts);
	tcase_add_test_raise_signal(tcase, test_missing_part, SIGABRT);
	tcase_add_test(tcase, test_required);
	tcase_add_test(tcase, test_wrong_values);
	tcase_add_test(tcase, test_questions);
	suite_add_tcase(suite, tcase);
	return vectors_run(suite);
}
