/* The second step of `call: extraction`, once per section: the section's bytes into a prompt, the model's answer into candidate
 * facts whose quotes the daemon itself finds in the source (semantics.md 6). Loop thread; a large document is grounded on the
 * uv pool. The request is inference.c's. Start at extract_activity_start(), then on_answer(). */
#include <stdlib.h>
#include <string.h>

#include "activities/candidates.h"
#include "activities/inference.h"
#include "workflow/base/check.h"

enum {
	CANDIDATE_LEN_MIN = 16, /* bytes of the shortest fact that has a quote, about */
	GROUND_BYTES_MAX = 512 << 10, /* of the section, read once for each fact that may be in the answer; more leaves the loop thread */
};

struct extract_work {
	struct work work;
	struct inference inference;
	struct document_wait wait;
	bool loading;

	const struct json *plan, *section;
	const char *document_digest, *section_digest;
	size_t start, end;
	struct bytes prompt; /* the template; none: the built-in one */
	bool may_continue; /* a section that fails does not fault the run */

	/* For the pool, which has the attempt's arena to itself meanwhile. */
	uv_work_t pool;
	bool in_pool;
	struct json *facts;
	enum failure_class failure;
	char detail[ACTIVITY_DETAIL_MAX];
};

static bool cancel_work(struct work *work)
{
	struct extract_work *own = CONTAINER_OF(work, struct extract_work, work);

	if (own->in_pool)
		return false;
	if (own->loading)
		document_give_up(&own->wait);
	inference_cancel(&own->inference);
	return true;
}

static void free_work(struct work *work)
{
	struct extract_work *own = CONTAINER_OF(work, struct extract_work, work);

	inference_close(&own->inference);
	document_release(work->activities, own->wait.document);
	free(own);
}

/* ---- Results ---- */

static struct json *make_output(struct extract_work *own, const char *status, const char *outcome)
{
	struct arena *arena = &own->work.activity->arena;
	static const char *const copied[] = {"index", "digest", "bytes", "heading"};
	struct json *output = json_object(arena);

	for (size_t i = 0; i < COUNT_OF(copied); i++)
		if (json_get(own->section, copied[i]) != NULL)
			json_set(arena, output, copied[i], json_copy(arena, json_get(own->section, copied[i])));
	json_set_text(arena, output, "status", status);
	json_set_text(arena, output, "outcome", outcome);
	return output;
}

static void fail(struct extract_work *own, enum failure_class failure, const char *detail)
{
	char copy[ACTIVITY_DETAIL_MAX];

	/* Where no attempt is left the engine takes this as the section's result: "could not ask" is not "no facts" (C85). But a run without budget is to
	 * stop, and to be gone on with, before each of its sections has "failed". */
	if (own->may_continue && failure != FAILURE_BUDGET)
		own->work.activity->result.output = make_output(own, "failed", failure_name(failure));
	detail_set(copy, "%s", detail); /* detail may lie in what is freed now */
	work_finish(&own->work, failure, "%s", copy);
}

static struct json *describe_source(struct extract_work *own)
{
	struct arena *arena = &own->work.activity->arena;
	struct json *source = json_object(arena), *annotations = json_object(arena);
	const char *heading = json_get_text(own->section, "heading"), *media_type = json_get_text(json_get(own->plan, "document"), "mediaType");
	struct digest document, section;
	char hex[DIGEST_HEX_LEN + 1];

	CHECK(digest_parse(own->document_digest, &document) && digest_parse(own->section_digest, &section));
	if (heading != NULL && heading[0] != '\0')
		json_set_text(arena, source, "name", heading);
	else
		json_set(arena, source, "name", json_printf(arena, "section %.0f", json_get_number(own->section, "index", 0)));
	json_set_text(arena, source, "mediaType", media_type != NULL ? media_type : "text/plain; charset=utf-8");
	json_set_digest(arena, source, "digest", &section);
	digest_hex(&document, hex);
	json_set_text(arena, annotations, "documentSha256", hex);
	json_set_number(arena, annotations, "byteStart", (double)own->start);
	json_set_number(arena, annotations, "byteEnd", (double)own->end);
	json_set(arena, source, "annotations", annotations);
	return source;
}

static struct json *describe_named(struct arena *arena, const char *name, struct digest digest)
{
	struct json *json = json_object(arena);

	json_set_text(arena, json, "name", name);
	json_set_digest(arena, json, "digest", &digest);
	return json;
}

static const struct json *schema_of(const struct extract_work *own)
{
	return json_get(json_get(own->plan, "schema"), "document");
}

static struct json *make_evidence(struct extract_work *own)
{
	struct arena *arena = &own->work.activity->arena;
	struct json *evidence = inference_evidence(&own->inference, arena);
	const char *title = json_get_text(schema_of(own), "title");
	bool custom = own->prompt.data != NULL;

	json_set(arena, evidence, "source", describe_source(own));
	json_set(arena, evidence, "prompt",
		 describe_named(arena, custom ? "prompt of the definition" : extraction_prompt_name,
				digest_of(custom ? own->prompt : extraction_prompt_template())));
	json_set(arena, evidence, "schema",
		 describe_named(arena, title != NULL && title[0] != '\0' ? title : "facts.schema.json", json_digest(schema_of(own))));
	return evidence;
}

/* ---- From the answer to candidates ---- */

/* Any thread. */
static void ground(struct extract_work *own)
{
	struct candidates_input input = {
		.answer = buffer_bytes(&own->inference.answer.text),
		.schema = schema_of(own),
		.document = own->wait.bytes,
		.section_start = own->start,
		.section_end = own->end,
		.document_digest = own->document_digest,
		.section_digest = own->section_digest,
	};

	own->failure = candidates_read(&own->work.activity->arena, &input, &own->facts, own->detail);
}

/* "No facts" is one thing, "all that it said was refused" another (C85). */
static const char *outcome_of(const struct json *facts)
{
	bool grounded = true;

	if (json_count(facts) == 0)
		return "empty";
	for (size_t i = 0; i < json_count(facts); i++) {
		const struct json *fact = json_at(facts, i), *checks = json_get(fact, "checks");

		if (json_get_boolean(fact, "accepted", false))
			return "facts";
		for (size_t c = 0; c < json_count(checks); c++)
			if (strcmp(json_get_text(json_at(checks, c), "name"), "quote-in-source") == 0)
				grounded &= strcmp(json_get_text(json_at(checks, c), "result"), "PASSED") == 0;
	}
	return failure_name(grounded ? FAILURE_SCHEMA_INVALID : FAILURE_UNGROUNDED);
}

static void finish(struct extract_work *own)
{
	struct activity_result *result = &own->work.activity->result;

	if (own->work.cancelled) {
		work_finish_cancelled(&own->work);
		return;
	}
	if (own->failure != FAILURE_NONE) {
		fail(own, own->failure, own->detail);
		return;
	}
	result->facts = own->facts;
	result->evidence = make_evidence(own);
	result->output = make_output(own, "completed", outcome_of(own->facts));
	work_finish(&own->work, FAILURE_NONE, "%s", "");
}

static void on_pool(uv_work_t *pool)
{
	ground(CONTAINER_OF(pool, struct extract_work, pool));
}

static void on_pool_done(uv_work_t *pool, int status)
{
	struct extract_work *own = CONTAINER_OF(pool, struct extract_work, pool);
	struct activities *activities = own->work.activities;

	(void)status;
	own->in_pool = false;
	finish(own);
	outside_end(activities);
}

static void on_answer(struct inference *inference)
{
	struct extract_work *own = inference->owner;
	struct work *work = &own->work;

	if (inference->failure != FAILURE_NONE) {
		fail(own, inference->failure, inference->detail);
		return;
	}
	stage_enter(work, &work->activity->result.stages.ground);
	/* Offsets are counted from the document's start, so its whole length is what counts. And each quote is looked for in the
	 * whole section: 400 of one letter in 32 KiB, which a model gone wrong may well answer, were measured to take 59 ms. */
	if (own->end + inference->answer.text.len <= POOL_BYTES_MIN &&
	    (own->end - own->start) * (inference->answer.text.len / CANDIDATE_LEN_MIN + 1) <= GROUND_BYTES_MAX) {
		ground(own);
		finish(own);
		return;
	}
	own->in_pool = true;
	outside_begin(work->activities);
	CHECK(uv_queue_work(work->activities->loop, &own->pool, on_pool, on_pool_done) == 0);
}

/* ---- From the document to the request ---- */

static void refuse(struct extract_work *own, enum failure_class failure, const char *detail)
{
	inference_end(&own->inference, failure, "%s", detail);
	fail(own, failure, detail);
}

static void on_loaded(struct document_wait *wait)
{
	struct extract_work *own = CONTAINER_OF(wait, struct extract_work, wait);
	struct arena *arena = &own->work.activity->arena;
	struct bytes section;
	struct digest digest, expected;
	char detail[ACTIVITY_DETAIL_MAX];

	own->loading = false;
	if (wait->document == NULL) {
		bool missing = wait->error.code == ERR_NOT_FOUND;

		detail_set(detail, "document %s cannot be loaded: %s", own->document_digest, wait->error.message);
		refuse(own, missing ? FAILURE_CONFIGURATION : FAILURE_RUNTIME_ERROR, detail);
		return;
	}
	if (own->end > wait->bytes.len) {
		refuse(own, FAILURE_CONFIGURATION, "the section ends behind the end of its document");
		return;
	}
	section = (struct bytes){wait->bytes.data + own->start, own->end - own->start};
	digest = digest_of(section);
	CHECK(digest_parse(own->section_digest, &expected));
	if (!digest_equal(&digest, &expected) || !utf8_valid(section, NULL)) {
		refuse(own, FAILURE_CONFIGURATION, "the section's bytes are not those of its digest");
		return;
	}
	own->inference.messages = extraction_messages(arena, own->prompt, section, own->inference.schema);
	if (own->inference.messages == NULL) {
		detail_set(detail, "a message of the prompt would be longer than %d bytes (PROMPT_LEN_MAX)", PROMPT_LEN_MAX);
		refuse(own, FAILURE_CONFIGURATION, detail);
		return;
	}
	inference_send(&own->inference);
}

/* The document is held only with a slot in hand, so that the number of held ones has a limit. */
static void on_slot(struct inference *inference)
{
	struct extract_work *own = inference->owner;

	own->loading = !document_hold(own->work.activities, &own->wait);
	if (!own->loading)
		on_loaded(&own->wait);
}

static bool read_section(struct extract_work *own, struct error *error)
{
	const struct json *bytes = json_get(own->section, "bytes"), *start = json_at(bytes, 0), *end = json_at(bytes, 1);
	struct digest digest;

	own->document_digest = json_get_text(json_get(own->plan, "document"), "digest");
	own->section_digest = json_get_text(own->section, "digest");
	if (own->document_digest == NULL || !digest_parse(own->document_digest, &own->wait.digest) || own->section_digest == NULL ||
	    !digest_parse(own->section_digest, &digest)) {
		error_set(error, ERR_INVALID, "plan.document.digest or section.digest is missing, or no digest");
		return false;
	}
	if (!json_is_integer(start) || !json_is_integer(end) || start->number < 0 || end->number < start->number) {
		error_set(error, ERR_INVALID, "section.bytes is not [start, end]");
		return false;
	}
	own->start = (size_t)start->number;
	own->end = (size_t)end->number;
	if (!json_is(schema_of(own), JSON_OBJECT)) {
		error_set(error, ERR_INVALID, "plan.schema.document is missing");
		return false;
	}
	return true;
}

int extract_activity_start(struct activities *activities, struct activity *activity, struct error *error)
{
	struct extract_work *own = memory_zero(sizeof(*own));
	const char *name, *on_failure;
	const struct json *prompt;
	struct runtime *runtime;
	struct json *sampling;

	own->plan = json_get(activity->with, "plan");
	own->section = json_get(activity->with, "section");
	name = json_get_text(own->plan, "runtime");
	runtime = runtime_get(activities, name);
	if (runtime == NULL) {
		if (name != NULL)
			runtime_refuse_name(activities, name, error);
		else
			error_set(error, ERR_INVALID, "the plan lacks `runtime`");
		goto fail;
	}
	if (!read_section(own, error))
		goto fail;
	sampling = inference_sampling(&activity->arena, runtime, json_get(own->plan, "sampling"), error);
	if (sampling == NULL)
		goto fail;
	prompt = json_get(own->plan, "prompt");
	if (json_is(prompt, JSON_STRING))
		own->prompt = (struct bytes){(const uint8_t *)prompt->string.text, prompt->string.len};
	on_failure = json_get_text(own->plan, "onFailure");
	own->may_continue = on_failure == NULL || strcmp(on_failure, "continue") == 0;

	own->work.cancel = cancel_work;
	own->work.free = free_work;
	work_begin(activities, activity, &own->work, &activity->result.stages.dispatch);
	own->wait.on_done = on_loaded;
	own->inference.work = &own->work;
	own->inference.runtime = runtime;
	own->inference.schema = schema_ordered(&activity->arena, schema_of(own));
	own->inference.schema_name = "facts";
	own->inference.judge = schema_of(own);
	own->inference.judge_except = candidates_item_schema(schema_of(own)); /* a bad fact is a rejected candidate */
	own->inference.sampling = sampling;
	own->inference.on_slot = on_slot;
	own->inference.on_done = on_answer;
	own->inference.owner = own;
	inference_require(&own->inference, json_get(own->plan, "requireClass"));
	own->inference.priority = json_get(own->plan, "priority");
	inference_start(&own->inference);
	return 0;
fail:
	free(own);
	return (int)error->code;
}
