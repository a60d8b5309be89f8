/* The first step of `call: extraction`: a document is checked and cut into sections, each of which then becomes an iteration
 * of its own (semantics.md 4). Loop thread; a large document is cut on the uv pool. Start at sections_activity_start(). */
#include <stdlib.h>
#include <string.h>

#include "activities/inference.h"
#include "activities/sections.h"
#include "workflow/base/check.h"
#include "workflow/language/json_schema.h"

enum { SECTION_TOKENS_MAX = 1000 * 1000 };

struct sections_work {
	struct work work;
	struct document_wait wait;
	bool loading;
	enum sections_by by;
	unsigned max_tokens;
	const char *media_type;
	struct bytes document;
	struct digest digest;
	struct json *plan;

	/* For the pool, which has the attempt's arena to itself meanwhile. */
	uv_work_t pool;
	bool in_pool;
	struct json *output;
	struct error error;
};

static bool cancel_work(struct work *work)
{
	struct sections_work *own = CONTAINER_OF(work, struct sections_work, work);

	if (own->in_pool)
		return false;
	if (own->loading)
		document_give_up(&own->wait);
	return true;
}

static void free_work(struct work *work)
{
	struct sections_work *own = CONTAINER_OF(work, struct sections_work, work);

	document_release(work->activities, own->wait.document);
	free(own);
}

static const char *media_type_of(enum sections_by by)
{
	return by == SECTIONS_BY_HEADING ? "text/markdown; charset=utf-8" : "text/plain; charset=utf-8";
}

/* Any thread. */
static void cut(struct sections_work *own)
{
	struct arena *arena = &own->work.activity->arena;
	struct sections sections;
	struct json *list, *document;
	char text[DIGEST_TEXT_LEN + 1];

	if (sections_cut(arena, own->document, own->by, own->max_tokens, &sections, &own->error) != 0)
		return;
	own->digest = digest_of(own->document);
	digest_text(&own->digest, text);
	document = json_object(arena);
	json_set_text(arena, document, "digest", text);
	json_set_text(arena, document, "mediaType", own->media_type);
	json_set(arena, own->plan, "document", document);
	list = json_array(arena);
	for (size_t i = 0; i < sections.count; i++) {
		const struct section *section = &sections.items[i];
		struct json *item = json_object(arena), *bytes = json_array(arena);
		struct digest digest = digest_of((struct bytes){own->document.data + section->start, section->end - section->start});

		digest_text(&digest, text);
		json_set_number(arena, item, "index", (double)i);
		json_set_text(arena, item, "digest", text);
		json_add(arena, bytes, json_number(arena, (double)section->start));
		json_add(arena, bytes, json_number(arena, (double)section->end));
		json_set(arena, item, "bytes", bytes);
		json_set_text(arena, item, "heading", section->heading);
		json_add(arena, list, item);
	}
	own->output = json_object(arena);
	json_set(arena, own->output, "plan", own->plan);
	json_set(arena, own->output, "sections", list);
}

static void finish(struct sections_work *own)
{
	struct activity *activity = own->work.activity;

	if (own->work.cancelled) {
		work_finish_cancelled(&own->work);
		return;
	}
	if (own->output == NULL) {
		work_finish(&own->work, FAILURE_CONFIGURATION, "the document cannot be used: %s", own->error.message);
		return;
	}
	activity->result.output = own->output;
	work_finish(&own->work, FAILURE_NONE, "%s", "");
}

static void on_pool(uv_work_t *pool)
{
	cut(CONTAINER_OF(pool, struct sections_work, pool));
}

static void on_pool_done(uv_work_t *pool, int status)
{
	struct sections_work *own = CONTAINER_OF(pool, struct sections_work, pool);
	struct activities *activities = own->work.activities;

	(void)status;
	own->in_pool = false;
	finish(own);
	outside_end(activities);
}

static void begin_cut(struct sections_work *own)
{
	struct work *work = &own->work;

	stage_enter(work, &work->activity->result.stages.parse);
	if (own->document.len <= POOL_BYTES_MIN) {
		cut(own);
		finish(own);
		return;
	}
	own->in_pool = true;
	outside_begin(work->activities);
	CHECK(uv_queue_work(work->activities->loop, &own->pool, on_pool, on_pool_done) == 0);
}

static void on_loaded(struct document_wait *wait)
{
	struct sections_work *own = CONTAINER_OF(wait, struct sections_work, wait);
	char text[DIGEST_TEXT_LEN + 1];

	own->loading = false;
	if (wait->document == NULL) {
		digest_text(&wait->digest, text);
		if (wait->error.code == ERR_NOT_FOUND)
			work_finish(&own->work, FAILURE_CONFIGURATION, "there is no document %s; add it first, or give the text itself", text);
		else
			work_finish(&own->work, FAILURE_RUNTIME_ERROR, "document %s cannot be loaded: %s", text, wait->error.message);
		return;
	}
	own->document = wait->bytes;
	begin_cut(own);
}

static bool read_sections(const struct json *sections, struct sections_work *own, struct error *error)
{
	const char *by = json_get_text(sections, "by");
	const struct json *tokens = json_get(sections, "maxTokens");

	own->by = SECTIONS_BY_HEADING;
	own->max_tokens = SECTION_TOKENS_DEFAULT;
	if (sections != NULL && sections->type != JSON_OBJECT) {
		error_set(error, ERR_INVALID, "sections is not an object");
		return false;
	}
	if (json_get(sections, "by") != NULL) {
		if (by != NULL && strcmp(by, "heading") == 0) {
			own->by = SECTIONS_BY_HEADING;
		} else if (by != NULL && strcmp(by, "paragraph") == 0) {
			own->by = SECTIONS_BY_PARAGRAPH;
		} else if (by != NULL && strcmp(by, "none") == 0) {
			own->by = SECTIONS_BY_NONE;
		} else {
			error_set(error, ERR_INVALID, "sections.by is none of heading, paragraph, none");
			return false;
		}
	}
	if (tokens != NULL) {
		if (!json_is_integer(tokens) || tokens->number < 1 || tokens->number > SECTION_TOKENS_MAX) {
			error_set(error, ERR_INVALID, "sections.maxTokens is not a whole number from 1 to %d", SECTION_TOKENS_MAX);
			return false;
		}
		own->max_tokens = (unsigned)tokens->number;
	}
	return true;
}

/* What each section's attempt needs, checked once, so that a mistake is told before the first request. */
static bool make_plan(struct sections_work *own, struct error *error)
{
	struct work *work = &own->work;
	struct arena *arena = &work->activity->arena;
	const struct json *with = work->activity->with, *schema = json_get(json_get(with, "schema"), "document");
	const struct json *sampling = json_get(with, "sampling"), *prompt = json_get(with, "prompt"), *on_failure = json_get(with, "onFailure");
	const char *name = json_get_text(with, "runtime"), *text = json_get_text(with, "onFailure");
	const struct runtime *runtime = runtime_get(work->activities, name);
	struct json *kept = json_object(arena);
	struct json_schema *program;
	unsigned priority;

	own->plan = json_object(arena);
	if (name == NULL) {
		error_set(error, ERR_INVALID, "call: extraction lacks `runtime`");
		return false;
	}
	if (runtime == NULL) {
		runtime_refuse_name(work->activities, name, error);
		return false;
	}
	if (schema == NULL) {
		error_set(error, ERR_INVALID, "schema lacks `document`");
		return false;
	}
	program = json_schema_compile_taken(schema, error);
	if (program == NULL) {
		error_wrap(error, "schema");
		return false;
	}
	json_schema_free(program);
	if (inference_sampling(arena, runtime, sampling, error) == NULL)
		return false;
	if (prompt != NULL && prompt->type != JSON_NULL && prompt->type != JSON_STRING) {
		error_set(error, ERR_INVALID, "prompt is not a text");
		return false;
	}
	if (on_failure != NULL && (text == NULL || (strcmp(text, "continue") != 0 && strcmp(text, "fault") != 0))) {
		error_set(error, ERR_INVALID, "onFailure is neither continue nor fault");
		return false;
	}
	if (!read_sections(json_get(with, "sections"), own, error))
		return false;
	json_set_text(arena, own->plan, "runtime", name);
	json_set(arena, kept, "document", json_copy(arena, schema));
	json_set(arena, own->plan, "schema", kept);
	if (json_is(sampling, JSON_OBJECT))
		json_set(arena, own->plan, "sampling", json_copy(arena, sampling));
	if (json_is(prompt, JSON_STRING))
		json_set(arena, own->plan, "prompt", json_copy(arena, prompt));
	if (json_get(with, "requireClass") != NULL)
		json_set(arena, own->plan, "requireClass", json_copy(arena, json_get(with, "requireClass")));
	if (!inference_priority(json_get(with, "priority"), &priority, error))
		return false;
	if (json_get(with, "priority") != NULL)
		json_set_number(arena, own->plan, "priority", priority);
	json_set_text(arena, own->plan, "onFailure", text != NULL ? text : "continue");
	return true;
}

int sections_activity_start(struct activities *activities, struct activity *activity, struct error *error)
{
	const struct json *document = json_get(activity->with, "document");
	struct sections_work *own = memory_zero(sizeof(*own));
	struct error problem = {0};

	(void)error;
	own->work.cancel = cancel_work;
	own->work.free = free_work;
	work_begin(activities, activity, &own->work, &activity->result.stages.dispatch);
	if (!make_plan(own, &problem)) {
		work_finish(&own->work, FAILURE_CONFIGURATION, "%s", problem.message);
		return 0;
	}
	own->media_type = media_type_of(own->by);
	if (json_is(document, JSON_STRING)) {
		if (document->string.len == 0) {
			work_finish(&own->work, FAILURE_CONFIGURATION, "the document is empty");
			return 0;
		}
		own->document = arena_bytes(&activity->arena, (struct bytes){(const uint8_t *)document->string.text, document->string.len});
		activity->result.document = own->document;
		activity->result.document_media_type = own->media_type;
		begin_cut(own);
		return 0;
	}
	if (!json_is(document, JSON_OBJECT) || json_get_text(document, "digest") == NULL ||
	    !digest_parse(json_get_text(document, "digest"), &own->wait.digest)) {
		work_finish(&own->work, FAILURE_CONFIGURATION, "document is neither a text nor {digest: \"sha256:…\"}%s%s",
			    document != NULL ? ", but " : "", document != NULL ? json_type_name(document->type) : "");
		return 0;
	}
	own->wait.on_done = on_loaded;
	own->loading = !document_hold(activities, &own->wait);
	if (!own->loading)
		on_loaded(&own->wait);
	return 0;
}
