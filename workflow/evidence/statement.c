/* The in-toto statement of one fact: built from parts, and checked on both sides of the disk by the same rules. Pure.
 * Start at the tables below: they are provenance.md 2.4, column "req". */
#include "workflow/evidence/statement.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"

static const char *const required_texts[] = {
	"/predicate/extraction/workflow/name", "/predicate/extraction/workflow/version",
	"/predicate/extraction/step", "/predicate/extraction/prompt/name",
	"/predicate/extraction/schema/name", "/predicate/extraction/request/mediaType",
	"/predicate/model/name", "/predicate/runtime/engine/name",
	"/predicate/runtime/engine/version", "/predicate/result/response/mediaType",
	"/predicate/run/daemon/name", "/predicate/run/daemon/version",
	"/predicate/run/journal", "/predicate/run/runId",
	"/predicate/run/stepId",
};

static const char *const required_digests[] = {
	"/predicate/extraction/workflow", "/predicate/extraction/source",  "/predicate/extraction/prompt",
	"/predicate/extraction/schema",   "/predicate/extraction/request", "/predicate/result/response",
};

/* Where the parent is there, so must the digest be. */
static const char *const conditional_digests[] = {
	"/predicate/configuration", "/predicate/runtime/launch", "/predicate/runtime/engine", "/predicate/run/daemon",
};

static const char *const required_bases[] = {"/predicate/model/basis", "/predicate/runtime/basis"};
static const char *const basis_words[] = {"measured", "launched", "reported", "declared", "unknown"};

static const char *const timestamps[] = {"/predicate/run/startedOn", "/predicate/run/finishedOn", "/predicate/run/signedOn"};

/* The tree that comes out is printed at once and dies with the arena; no part is changed. */
static void set_part(struct arena *arena, struct json *object, const char *name, const struct json *part)
{
	if (part)
		json_set(arena, object, name, (struct json *)part);
}

static void set_time(struct arena *arena, struct json *object, const char *name, int64_t wall_ms)
{
	char text[TIME_TEXT_LEN + 1];

	time_text(wall_ms, text);
	json_set_text(arena, object, name, text);
}

static struct json *build_extraction(struct arena *arena, const struct statement_parts *parts)
{
	struct json *extraction = json_object(arena);

	json_set_text(arena, extraction, "type", STATEMENT_EXTRACTION_TYPE);
	set_part(arena, extraction, "workflow", parts->workflow);
	json_set_text(arena, extraction, "step", parts->step);
	set_part(arena, extraction, "source", parts->source);
	set_part(arena, extraction, "prompt", parts->prompt);
	set_part(arena, extraction, "schema", parts->schema);
	set_part(arena, extraction, "sampling", parts->sampling);
	set_part(arena, extraction, "request", parts->request);
	return extraction;
}

static struct json *build_result(struct arena *arena, const struct statement_parts *parts)
{
	struct json *result = json_object(arena);

	set_part(arena, result, "response", parts->response);
	json_set_text(arena, result, "finishReason", parts->finish_reason);
	if (parts->prompt_tokens >= 0)
		json_set_number(arena, result, "promptTokens", parts->prompt_tokens);
	if (parts->completion_tokens >= 0)
		json_set_number(arena, result, "completionTokens", parts->completion_tokens);
	json_set_number(arena, result, "factIndex", parts->fact_index);
	json_set_number(arena, result, "factCount", parts->fact_count);
	set_part(arena, result, "gate", parts->gate);
	set_part(arena, result, "reproducibility", parts->reproducibility);
	return result;
}

static struct json *build_run(struct arena *arena, const struct statement_parts *parts)
{
	struct json *run = json_object(arena);

	set_part(arena, run, "daemon", parts->daemon);
	json_set_text(arena, run, "journal", parts->journal);
	json_set_text(arena, run, "runId", parts->run_id);
	json_set_text(arena, run, "stepId", parts->step_id);
	json_set_number(arena, run, "attempt", parts->attempt);
	set_time(arena, run, "startedOn", parts->started_ms);
	set_time(arena, run, "finishedOn", parts->finished_ms);
	set_time(arena, run, "signedOn", parts->signed_ms);
	json_set_number(arena, run, "durationMs", (double)parts->duration_ms);
	set_part(arena, run, "clock", parts->clock);
	return run;
}

struct bytes statement_build(struct arena *arena, const struct statement_parts *parts)
{
	struct json *statement = json_object(arena), *predicate = json_object(arena), *subject = json_object(arena);
	struct json *subjects = json_array(arena);
	struct error error;

	json_set_text(arena, subject, "name", parts->subject_name ? parts->subject_name : "fact");
	json_set_digest(arena, subject, "digest", &parts->subject);
	json_add(arena, subjects, subject);
	json_set(arena, predicate, "extraction", build_extraction(arena, parts));
	set_part(arena, predicate, "model", parts->model);
	set_part(arena, predicate, "configuration", parts->configuration);
	set_part(arena, predicate, "runtime", parts->runtime);
	json_set(arena, predicate, "result", build_result(arena, parts));
	json_set(arena, predicate, "run", build_run(arena, parts));
	json_set_text(arena, statement, "_type", STATEMENT_TYPE);
	json_set(arena, statement, "subject", subjects);
	json_set_text(arena, statement, "predicateType", STATEMENT_PREDICATE_TYPE);
	json_set(arena, statement, "predicate", predicate);
	/* What is signed can never be taken back: say which part is missing instead. */
	if (statement_check(statement, &error) != 0)
		check_failed(__FILE__, __LINE__, error.message);
	return json_print_arena(statement, arena);
}

int statement_check_in_toto(const struct json *statement, struct error *error)
{
	const char *type = json_get_text(statement, "_type");
	const struct json *subjects = json_get(statement, "subject");
	struct digest digest;

	if (!type || strcmp(type, STATEMENT_TYPE) != 0)
		return error_set(error, ERR_INVALID, "statement-type: _type is not " STATEMENT_TYPE);
	if (!json_is(subjects, JSON_ARRAY) || json_count(subjects) == 0)
		return error_set(error, ERR_INVALID, "statement-subject: no subject");
	for (size_t i = 0; i < json_count(subjects); i++)
		if (!json_is(json_get(json_at(subjects, i), "digest"), JSON_OBJECT) ||
		    !json_get_digest(json_at(subjects, i), "digest", &digest))
			return error_set(error, ERR_INVALID, "statement-subject: subject[%zu] has no sha256 digest", i);
	if (!json_get_text(statement, "predicateType"))
		return error_set(error, ERR_INVALID, "predicate-type: predicateType is missing");
	return 0;
}

static int refuse(struct error *error, const char *pointer, const char *why)
{
	return error_set(error, ERR_INVALID, "statement-field: %s %s", pointer, why);
}

static const char *text_at(const struct json *statement, const char *pointer)
{
	const struct json *json = json_pointer_get(statement, pointer);

	return json_is(json, JSON_STRING) ? json->string.text : NULL;
}

static bool is_one_of(const char *text, const char *const *words, size_t count)
{
	for (size_t i = 0; text && i < count; i++)
		if (strcmp(text, words[i]) == 0)
			return true;
	return false;
}

/* An integer of at least `least`. */
static bool is_count(const struct json *json, double least)
{
	return json_is_integer(json) && json->number >= least;
}

static int check_tables(const struct json *statement, struct error *error)
{
	struct digest digest;

	for (size_t i = 0; i < COUNT_OF(required_texts); i++) {
		const char *text = text_at(statement, required_texts[i]);

		if (!text || text[0] == '\0')
			return refuse(error, required_texts[i], "is missing, empty or no text");
	}
	for (size_t i = 0; i < COUNT_OF(required_digests); i++)
		if (!json_get_digest(json_pointer_get(statement, required_digests[i]), "digest", &digest))
			return refuse(error, required_digests[i], "has no sha256 digest");
	for (size_t i = 0; i < COUNT_OF(conditional_digests); i++) {
		const struct json *parent = json_pointer_get(statement, conditional_digests[i]);
		/* Engine and daemon may go without one, but not with something else in its place. */
		bool needed = i < 2 ? parent != NULL : json_get(parent, "digest") != NULL;

		if (needed && !json_get_digest(parent, "digest", &digest))
			return refuse(error, conditional_digests[i], "has no sha256 digest");
	}
	for (size_t i = 0; i < COUNT_OF(required_bases); i++)
		if (!is_one_of(text_at(statement, required_bases[i]), basis_words, COUNT_OF(basis_words)))
			return refuse(error, required_bases[i], "is not measured, launched, reported, declared or unknown");
	return 0;
}

static int check_extraction(const struct json *extraction, struct error *error)
{
	const char *type = json_get_text(extraction, "type");
	const struct json *sampling = json_get(extraction, "sampling"), *annotations = json_get(json_get(extraction, "source"), "annotations");

	if (!type || strcmp(type, STATEMENT_EXTRACTION_TYPE) != 0)
		return refuse(error, "/predicate/extraction/type", "is not " STATEMENT_EXTRACTION_TYPE);
	if (!json_is(sampling, JSON_OBJECT))
		return refuse(error, "/predicate/extraction/sampling", "is no object");
	if (json_get(sampling, "seed") && !json_get_text(sampling, "seed"))
		return refuse(error, "/predicate/extraction/sampling/seed", "is no text (64-bit numbers are written as text)");
	if (json_get(annotations, "byteStart") || json_get(annotations, "byteEnd")) {
		const struct json *start = json_get(annotations, "byteStart"), *end = json_get(annotations, "byteEnd");

		if (!is_count(start, 0) || !is_count(end, start->number))
			return refuse(error, "/predicate/extraction/source/annotations", "byteStart and byteEnd are no range");
	}
	return 0;
}

static int check_result(const struct json *result, struct error *error)
{
	const struct json *index = json_get(result, "factIndex"), *gate = json_get(result, "gate");
	const struct json *measured = json_get(result, "reproducibility");
	const char *verdict = json_get_text(gate, "result");

	if (!is_count(index, 0) || !is_count(json_get(result, "factCount"), index->number + 1))
		return refuse(error, "/predicate/result", "factIndex and factCount are no position in a list");
	if (!verdict || (strcmp(verdict, "PASSED") != 0 && strcmp(verdict, "FAILED") != 0))
		return refuse(error, "/predicate/result/gate/result", "is neither PASSED nor FAILED");
	if (!json_is(json_get(gate, "checks"), JSON_ARRAY))
		return refuse(error, "/predicate/result/gate/checks", "is no list");
	if (measured && !json_get_text(measured, "class"))
		return refuse(error, "/predicate/result/reproducibility/class", "is missing");
	return 0;
}

static int check_weights(const struct json *weights, struct error *error)
{
	struct digest digest;

	if (weights && !json_is(weights, JSON_ARRAY))
		return refuse(error, "/predicate/model/weights", "is no list");
	for (size_t i = 0; i < json_count(weights); i++)
		if (!json_get_digest(json_at(weights, i), "digest", &digest))
			return refuse(error, "/predicate/model/weights", "has a file without sha256 digest");
	return 0;
}

int statement_check(const struct json *statement, struct error *error)
{
	const struct json *predicate = json_get(statement, "predicate"), *launch = json_pointer_get(statement, "/predicate/runtime/launch");
	struct error own;

	error = error ? error : &own;
	if (statement_check_in_toto(statement, error) != 0)
		return error->code;
	if (strcmp(json_get_text(statement, "predicateType"), STATEMENT_PREDICATE_TYPE) != 0)
		return error_set(error, ERR_INVALID, "predicate-type: predicateType is not " STATEMENT_PREDICATE_TYPE);
	if (check_tables(statement, error) != 0 || check_extraction(json_get(predicate, "extraction"), error) != 0 ||
	    check_weights(json_get(json_get(predicate, "model"), "weights"), error) != 0 ||
	    check_result(json_get(predicate, "result"), error) != 0)
		return error->code;
	if (launch && !json_is(json_get(launch, "config"), JSON_OBJECT))
		return refuse(error, "/predicate/runtime/launch/config", "is no object");
	if (!is_count(json_pointer_get(statement, "/predicate/run/attempt"), 1))
		return refuse(error, "/predicate/run/attempt", "is no number from 1 upwards");
	for (size_t i = 0; i < COUNT_OF(timestamps); i++) {
		const char *text = text_at(statement, timestamps[i]);
		int64_t wall_ms;

		if (!text || text[0] == '\0' || text[strlen(text) - 1] != 'Z' || !time_parse(text, &wall_ms))
			return error_set(error, ERR_INVALID, "timestamp: %s is no RFC 3339 time in UTC", timestamps[i]);
	}
	return 0;
}

bool statement_subject_is(const struct json *statement, const struct digest *fact)
{
	const struct json *subjects = json_get(statement, "subject");
	struct digest digest;

	for (size_t i = 0; i < json_count(subjects); i++)
		if (json_get_digest(json_at(subjects, i), "digest", &digest) && digest_equal(&digest, fact))
			return true;
	return false;
}

bool statement_accepted(const struct json *statement)
{
	const char *verdict = text_at(statement, "/predicate/result/gate/result");

	return verdict && strcmp(verdict, "PASSED") == 0;
}
