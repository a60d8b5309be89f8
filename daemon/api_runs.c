/* /v1/runs: submitting, looking, waiting, cancelling, pausing, replaying.
 *
 * A submission goes through these stations, each of which may be skipped: parse (on the pool when large), find its definition (cache,
 * else a read), engine_submit, durable; then 201, or with ?wait a watch. An id that is taken leads to a read that compares.
 * New here? Read api_submit_run() and follow the names from there. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/api.h"
#include "daemon/resources.h"
#include "daemon/expressions.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/id.h"
#include "workflow/base/log.h"
#include "workflow/base/time.h"
#include "workflow/replay.h"
#include "workflow/view.h"

enum { LABEL_LEN_MAX = 256 };

static const char run_members[] = "definition input id labels budget";

/* --- the run document --------------------------------------------------------------------------------------------- */

struct looking;

/* Attempts that wait for their turn at a runtime. */
struct wait {
	const char *step, *reason;
};
struct waits {
	struct arena *arena;
	struct wait *items;
	size_t count;
};

struct document_args {
	struct json *tree; /* what was done to it was done to these, see tree_json(); or NULL */
	const char *id;
	unsigned include;
	unsigned status;
	struct definition *definition; /* held, or NULL */
	struct json *overhead; /* of a run that ended lately, with its last commit; or NULL */
	struct waits waits; /* of its attempts under way, at the moment of the question */
	struct looking *looking; /* has begun */
};

static struct json *row_json(struct arena *arena, const struct store_run *run);

/* A look through a run of any length, in parts: see struct api_read. */
struct looking {
	struct store_reader *reader; /* of the part at hand */
	const char *id;
	struct view *view;
	uint64_t after, until; /* what comes behind `until` came while we looked */
	uint64_t budget; /* bytes of values that may yet be shown */
};

/* Requests and answers of models are never asked for. */
static bool load_shown(void *context, struct arena *arena, uint64_t content_id, const struct digest *digest, bool whole, struct bytes *bytes)
{
	struct looking *looking = context;
	struct error error;
	uint64_t size;

	if (!whole && (reader_content_size(looking->reader, content_id, &size, &error) != 0 || size > looking->budget))
		return false;
	if (reader_content(looking->reader, arena, content_id, digest, looking->id, bytes, &error) != 0)
		return false; /* erased: the document shows its digest */
	if (!whole)
		looking->budget -= size;
	return true;
}

static struct view_source source_of(struct looking *looking)
{
	return (struct view_source){.load = load_shown, .context = looking};
}

/* Read on. False: another part has to follow, or *error. */
static bool look_on(struct api_read *own, struct looking *looking, struct store_reader *reader, struct error *error)
{
	uint64_t begin_us = clock_now_us();

	looking->reader = reader;
	while (looking->after < looking->until) {
		struct arena arena;
		struct entry *page;
		size_t count;

		if (clock_now_us() - begin_us > API_READ_SLICE_MS * 1000) {
			own->again = true;
			return false;
		}
		arena_init(&arena);
		if (reader_run_entries(reader, &arena, looking->id, looking->after, API_READ_PAGE, VALUE_INLINE_MAX, &page, &count, error) != 0) {
			arena_close(&arena);
			return false;
		}
		if (count == 0)
			looking->after = looking->until;
		else
			looking->after = page[count - 1].seq;
		while (count > 0 && page[count - 1].seq > looking->until)
			count--;
		if (count > 0)
			view_add(looking->view, page, count);
		arena_close(&arena);
	}
	return true;
}

static struct looking *begin_looking(struct api_read *own, const char *id, struct store_reader *reader, struct store_read *read)
{
	struct looking *looking = arena_zero(&own->kept, sizeof *looking);
	struct store_run run;

	if (reader_run(reader, &read->arena, id, &run, &read->error) != 0) {
		if (read->error.code == ERR_NOT_FOUND)
			error_set(&read->error, ERR_NOT_FOUND, "there is no run %s", id);
		return NULL;
	}
	*looking = (struct looking){.id = id, .until = run.seq_last, .budget = API_VIEW_BYTES_MAX};
	return looking;
}

/* The newest first, as in lists. Runs without children pay for one look into an index. */
static int add_children(struct store_reader *reader, struct arena *arena, const char *id, struct json *json, struct error *error)
{
	const struct store_run_filter filter = {.parent = id, .limit = API_VIEW_CHILDREN_MAX};
	struct json *list = json_array(arena);
	struct store_run *runs;
	size_t count;
	uint64_t all = 0;

	if (reader_runs(reader, arena, &filter, &runs, &count, error) != 0 ||
	    (count == API_VIEW_CHILDREN_MAX && reader_run_count(reader, &filter, &all, error) != 0))
		return error->code;
	for (size_t i = 0; i < count; i++) {
		struct json *child = row_json(arena, &runs[i]);
		json_remove(child, "parent"); /* this one */
		json_set_text(arena, child, "step", runs[i].parent_step);
		json_set_boolean(arena, child, "awaited", runs[i].is_awaited);
		json_add(arena, list, child);
	}
	json_set(arena, json, "children", list);
	if (all > count)
		json_set_number(arena, json, "childrenLeftOut", (double)(all - count));
	return 0;
}

/* The newest first, by their ids; only where there are any. */
static int add_forks(struct store_reader *reader, struct arena *arena, const char *id, struct json *json, struct error *error)
{
	const struct store_run_filter filter = {.forked_from = id, .limit = API_VIEW_FORKS_MAX};
	struct json *list = json_array(arena);
	struct store_run *runs;
	size_t count;
	uint64_t all = 0;

	if (reader_runs(reader, arena, &filter, &runs, &count, error) != 0 || (count == API_VIEW_FORKS_MAX && reader_run_count(reader, &filter, &all, error) != 0))
		return error->code;
	for (size_t i = 0; i < count; i++)
		json_add(arena, list, json_text(arena, runs[i].id));
	if (count > 0)
		json_set(arena, json, "forks", list);
	if (all > count)
		json_set_number(arena, json, "forksLeftOut", (double)(all - count));
	return 0;
}

/* What memory knows of tasks that the journal has begun. */
static void add_waits(struct arena *arena, const struct waits *waits, const struct json *tasks)
{
	for (size_t i = 0; waits->count > 0 && i < json_count(tasks); i++) {
		struct json *task = json_at(tasks, i);
		const char *step = json_get_text(task, "step"), *status = json_get_text(task, "status");

		for (size_t k = 0; status && strcmp(status, "running") == 0 && k < waits->count; k++)
			if (strcmp(waits->items[k].step, step) == 0) {
				json_set_text(arena, task, "waitsFor", waits->items[k].reason);
				break;
			}
	}
}

static bool keep_wait(void *arg, const struct activity *activity)
{
	struct waits *waits = arg;
	const char *reason = activity_waits_for(activity);

	if (reason)
		waits->items[waits->count++] = (struct wait){arena_text(waits->arena, activity->step_id), reason};
	return waits->count < API_VIEW_WAITS_MAX;
}

static void document_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct document_args *args = own->args;

	if (!args->looking) {
		args->looking = begin_looking(own, args->id, reader, read);
		if (!args->looking)
			return;
		const struct view_source source = source_of(args->looking);
		args->looking->view = view_begin(&own->kept, args->definition, store_origin(own->daemon->store), args->include, &source);
	}
	if (!look_on(own, args->looking, reader, &read->error))
		return;
	own->status = args->status;
	struct json *json = view_end(args->looking->view);
	add_waits(&own->kept, &args->waits, json_get(json, "tasks"));
	if (args->overhead && json_get(json, "endedAt"))
		json_set(&own->kept, json, "overhead", args->overhead);
	if (args->tree)
		json_set(&own->kept, json, "tree", args->tree);
	if ((args->include & VIEW_CHILDREN) &&
	    (add_children(reader, &own->kept, args->id, json, &read->error) != 0 || add_forks(reader, &own->kept, args->id, json, &read->error) != 0))
		return;
	api_print(own, json);
}

static void on_document(struct api_read *own)
{
	const struct document_args *args = own->args;

	if (args->looking && args->looking->view)
		view_drop(args->looking->view);
	definition_release(args->definition);
	api_answer_read(own);
}

/* Retention may have removed it: the journal knows. */
static bool may_be_removed(const struct daemon *daemon, const struct json *run)
{
	const char *ended = json_get_text(run, "endedAt");
	int64_t ended_ms;

	return daemon->config.retention_runs_ms > 0 && ended && time_parse(ended, &ended_ms) && clock_wall_ms() - ended_ms >= daemon->config.retention_runs_ms;
}

/* From memory when nothing large is asked for and the engine knows the run; else from the journal. */
static void answer_run_with(struct daemon *daemon, struct request *request, const char *id, unsigned include, unsigned status, struct json *tree)
{
	struct json *json = engine_run_json(daemon->engine, id, &request->arena);

	const char *known = json_get_text(json, "status");
	/* Why it is suspended stands in the journal alone. */
	if (json && include == 0 && !may_be_removed(daemon, json) && strcmp(known, run_status_name(RUN_SUSPENDED)) != 0) {
		if (tree)
			json_set(&request->arena, json, "tree", tree);
		request_answer_json(request, status, json);
		return;
	}
	struct document_args *args = arena_zero(&request->arena, sizeof *args);
	*args = (struct document_args){.tree = tree, .id = id, .include = include, .status = status, .overhead = json_get(json, "endedAt") ? json_get(json, "overhead") : NULL};
	if (include & VIEW_TASKS) {
		args->waits = (struct waits){.arena = &request->arena, .items = arena_alloc(&request->arena, API_VIEW_WAITS_MAX * sizeof *args->waits.items)};
		engine_each_activity(daemon->engine, id, keep_wait, &args->waits);
	}
	api_read(daemon, request, document_work, args, on_document);
}

static void answer_run(struct daemon *daemon, struct request *request, const char *id, unsigned include, unsigned status)
{
	answer_run_with(daemon, request, id, include, status, NULL);
}

/* --- waiting for the end ------------------------------------------------------------------------------------------ */

/* Lives until its timer is closed, which may be after the request. */
struct waiter {
	struct engine_watch watch;
	uv_timer_t timer;
	struct daemon *daemon;
	struct request *request;
	char id[ID_LEN_MAX + 1];
	unsigned include, status;
};

static void on_waiter_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void end_wait(struct waiter *waiter)
{
	engine_unwatch(&waiter->watch);
	uv_close((uv_handle_t *)&waiter->timer, on_waiter_closed);
}

static void answer_waiter(struct waiter *waiter)
{
	struct request *request = waiter->request;

	request->on_gone = NULL;
	request->owner = NULL;
	end_wait(waiter);
	answer_run(waiter->daemon, request, arena_text(&request->arena, waiter->id), waiter->include, waiter->status);
}

static void on_run_ended(struct engine_watch *watch)
{
	answer_waiter(watch->owner);
}

static void on_time_up(uv_timer_t *timer)
{
	answer_waiter(timer->data);
}

static void on_waiter_gone(struct request *request)
{
	end_wait(request->owner);
}

/* Answers when the run has ended or the time is up; at once when it is not under way. */
void api_wait_for_run(struct daemon *daemon, struct request *request, const char *id, int64_t wait_ms, unsigned include, unsigned status)
{
	if (wait_ms == 0 || !engine_run_is_open(daemon->engine, id)) {
		answer_run(daemon, request, id, include, status);
		return;
	}
	if (!request_wait(request))
		return;
	struct waiter *waiter = memory_zero(sizeof *waiter);
	waiter->daemon = daemon;
	waiter->request = request;
	strcpy(waiter->id, id); /* valid, so it fits */
	waiter->include = include;
	waiter->status = status;
	waiter->watch = (struct engine_watch){.id = waiter->id, .on_ended = on_run_ended, .owner = waiter};
	CHECK(uv_timer_init(&daemon->loop, &waiter->timer) == 0);
	waiter->timer.data = waiter;
	uv_update_time(&daemon->loop);
	uv_timer_start(&waiter->timer, on_time_up, (uint64_t)wait_ms, 0);
	request->owner = waiter;
	request->on_gone = on_waiter_gone;
	CHECK(engine_watch(daemon->engine, &waiter->watch) == 0);
}

bool api_read_include(struct request *request, unsigned *include)
{
	const char *text = request_query(request, "include"), *bad;

	*include = 0;
	if (!text || view_include_parse(text, include, &bad))
		return true;
	api_invalid(request, "query parameter include: unknown word at '%s'; known: input, output, tasks, events, facts, labels, children, all", bad);
	return false;
}

bool api_check_id(struct request *request, const char *id)
{
	struct error error;

	if (id_valid(id))
		return true;
	error_set(&error, ERR_NOT_FOUND, "'%s' is no run id: 1 to %d of A-Z a-z 0-9 . _ -", id, ID_LEN_MAX);
	request_problem(request, &error);
	return false;
}

void api_get_run(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	unsigned include;
	int64_t wait_ms;

	if (api_check_id(request, parameters[0]) && api_read_include(request, &include) && api_query_wait(request, &wait_ms))
		api_wait_for_run(daemon, request, parameters[0], wait_ms, include, 200);
}

/* --- submitting --------------------------------------------------------------------------------------------------- */

struct submission {
	struct daemon *daemon;
	struct request *request;
	uv_work_t work;

	/* parse(), perhaps on the pool */
	bool is_yaml, load_at_once;
	struct json *root;
	const struct json *document; /* inline definition */
	const struct json *resolved; /* … with what had to be fetched for it; NULL: nothing had */
	struct digest digest;
	struct definition *loaded;
	struct problems problems;
	struct error error;
	struct resources resources;
	struct expressions_check check;

	const char *id, *namespace, *name, *version;
	struct bytes input;
	const struct json *labels, *budget_asked;
	struct budget_amount budget; /* what was asked for, and else what the configuration says */
	int64_t wait_ms;
	unsigned include;
	struct definition *definition; /* held */
	struct digest request_digest;
	struct entry extra;
	struct engine_submit submit;
	struct api_twin twin;
	struct error refusal; /* by what the configuration and its runtimes say now */
};

static void submit_definition(struct submission *s, struct definition *definition, bool is_known);

static void submission_fail(struct submission *s, const struct error *error)
{
	definition_release(s->definition);
	s->definition = NULL;
	api_fail(s->request, error);
}

/* Pure: may run on the pool. */
static void parse(struct submission *s)
{
	struct arena *arena = &s->request->arena;

	problems_init(&s->problems);
	if (s->is_yaml) {
		s->root = text_load(arena, buffer_bytes(&s->request->body), TEXT_YAML, NULL, &s->problems);
		if (!s->root)
			return;
	} else {
		s->root = json_parse(arena, buffer_bytes(&s->request->body), JSON_STRICT, NULL, &s->error);
		if (!s->root) {
			error_wrap(&s->error, "the body is not JSON");
			s->error.code = ERR_INVALID;
			return;
		}
	}
	const struct json *definition = json_get(s->root, "definition");
	if (!json_is(definition, JSON_OBJECT))
		return;
	if (resources_may_be_files(&s->daemon->config, buffer_bytes(&s->request->body))) {
		resources_inline_files(&s->daemon->config, arena, json_get(s->root, "definition"), NULL, &s->problems);
		if (s->problems.errors > 0)
			return;
	}
	struct bytes text = json_print_arena(definition, arena);
	s->document = definition;
	s->digest = digest_of(text);
	if (text.len > DEFINITION_SOURCE_MAX)
		error_set(&s->error, ERR_TOO_LARGE, "the definition has %zu bytes, the limit is %d (DEFINITION_SOURCE_MAX)", text.len, DEFINITION_SOURCE_MAX);
	else if (s->load_at_once)
		s->loaded = definition_load_json(definition, &s->problems);
}

/* --- the definition --- */

struct find_definition {
	struct submission *submission;
	struct definition *definition;
	struct problems problems;
};

/* A registered one by name, or an inline one by digest. */
static void find_definition_work(struct store_reader *reader, struct store_read *read)
{
	struct find_definition *find = ((struct api_read *)read->owner)->args;
	const struct submission *s = find->submission;
	struct store_definition row;
	struct bytes document;
	struct digest digest = s->digest;
	struct error error;

	if (!s->document) {
		if (reader_definition(reader, &read->arena, s->namespace, s->name, s->version, &row, &read->error) != 0)
			return;
		digest = row.digest;
	}
	if (reader_definition_document(reader, &read->arena, &digest, &document, NULL, &read->error) != 0 || s->document)
		return;
	struct json *json = json_parse(&read->arena, document, JSON_STORED, NULL, &error);
	find->definition = json ? definition_load_stored(json, &find->problems) : NULL;
	if (!find->definition)
		error_set(&read->error, ERR_CORRUPT, "definition %s/%s:%s in the journal cannot be read: %s", row.namespace, row.name, row.version,
			  json ? find->problems.count > 0 ? find->problems.items[0].message : "refused" : error.message);
}

static void on_definition_found(struct api_read *own)
{
	struct find_definition *find = own->args;
	struct submission *s = find->submission;
	struct error error = own->read.error;

	buffer_close(&own->body);
	problems_close(&find->problems);
	if (s->document) {
		if (error.code != ERR_NONE && error.code != ERR_NOT_FOUND) {
			definition_free(s->loaded);
			submission_fail(s, &error);
		} else {
			bool is_known = error.code == ERR_NONE;
			submit_definition(s, is_known ? definition_hold(definitions_put(&s->daemon->definitions, s->loaded, false)) : s->loaded, is_known);
		}
		return;
	}
	if (error.code == ERR_NOT_FOUND)
		error_set(&error, ERR_NOT_FOUND, "no definition %s/%s%s%s is registered; reprise definition list shows those that are", s->namespace, s->name,
			  s->version ? ":" : "", s->version ? s->version : "");
	if (error.code != ERR_NONE)
		submission_fail(s, &error);
	else
		submit_definition(s, definition_hold(definitions_put(&s->daemon->definitions, find->definition, true)), true);
}

static void find_definition(struct submission *s)
{
	struct find_definition *find = arena_zero(&s->request->arena, sizeof *find);

	find->submission = s;
	problems_init(&find->problems);
	if (api_read(s->daemon, s->request, find_definition_work, find, on_definition_found))
		return;
	problems_close(&find->problems);
	if (s->loaded)
		definition_free(s->loaded);
}

/* --- durable, or not --- */

static void twin_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct api_twin *twin = own->args;
	struct store_run run;

	if (reader_run(reader, &read->arena, twin->id, &run, &read->error) == 0)
		twin->found = run.request;
}

static void on_look_again(uv_timer_t *timer)
{
	api_look_for_twin(timer->data);
}

static void on_look_timer_closed(uv_handle_t *handle)
{
	free(handle);
}

static void end_looking(uv_timer_t *timer)
{
	if (timer)
		uv_close((uv_handle_t *)timer, on_look_timer_closed);
}

static void on_looked(struct api_read *own)
{
	struct api_twin *twin = own->args;
	struct request *request = twin->request;
	struct error error = own->read.error;
	char digests[2][DIGEST_TEXT_LEN + 1];

	buffer_close(&own->body);
	/* The other submission of this id has not been committed yet: what it will be is known in a moment. */
	if (error.code == ERR_NOT_FOUND && !twin->on_none && ++twin->looks < API_REQUEST_ID_TRIES_MAX && twin->daemon->stage < DAEMON_STOPPING) {
		if (!twin->timer) {
			twin->timer = memory_zero(sizeof *twin->timer);
			CHECK(uv_timer_init(&twin->daemon->loop, twin->timer) == 0);
			twin->timer->data = twin;
		}
		uv_timer_start(twin->timer, on_look_again, API_LOOK_AGAIN_MS, 0);
		return;
	}
	end_looking(twin->timer);
	if (error.code == ERR_NOT_FOUND && twin->on_none) {
		twin->on_none(twin);
		return;
	}
	twin->release(twin->owner);
	if (error.code == ERR_NOT_FOUND) {
		error_set(&error, ERR_BUSY, "run %s: another submission of this id is under way; retry", twin->id);
		api_busy(request, &error);
	} else if (error.code != ERR_NONE) {
		if (error.code == ERR_GONE)
			error_wrap(&error, "the id is not used again, choose another");
		api_fail(request, &error);
	} else if (digest_equal(&twin->found, &twin->digest)) {
		api_wait_for_run(twin->daemon, request, twin->id, twin->wait_ms, twin->include, 200);
	} else {
		struct json *extra = json_object(&request->arena);
		digest_text(&twin->found, digests[0]);
		digest_text(&twin->digest, digests[1]);
		json_set_text(&request->arena, extra, "run", twin->id);
		json_set_text(&request->arena, extra, "existing", digests[0]);
		json_set_text(&request->arena, extra, "submitted", digests[1]);
		error_set(&error, ERR_EXISTS, "run %s exists with other content (%s): it has %s, this one %s; choose another id", twin->id, twin->content, digests[0], digests[1]);
		request_problem_at(request, 409, &error, extra);
	}
}

void api_look_for_twin(struct api_twin *twin)
{
	void (*release)(void *owner) = twin->release;
	void *owner = twin->owner;
	uv_timer_t *timer = twin->timer;

	if (api_read(twin->daemon, twin->request, twin_work, twin, on_looked))
		return;
	end_looking(timer); /* the request is answered, and the twin gone with it */
	release(owner);
}

static void release_definition(void *owner)
{
	definition_release(owner);
}

static void look_for_twin(struct submission *s, void (*on_none)(struct api_twin *twin))
{
	s->twin = (struct api_twin){
		.daemon = s->daemon, .request = s->request, .id = s->id, .digest = s->request_digest, .content = "definition, input, labels or budget", .wait_ms = s->wait_ms,
		.include = s->include, .on_none = on_none, .release = release_definition, .owner = s->definition,
	};
	api_look_for_twin(&s->twin);
}

static void on_submitted(struct engine_submit *submit)
{
	struct submission *s = submit->owner;
	struct request *request = s->request;
	struct error error = submit->error;

	if (error.code == ERR_EXISTS) {
		look_for_twin(s, NULL);
		return;
	}
	if (error.code != ERR_NONE) {
		submission_fail(s, &error);
		return;
	}
	FAIL_POINT(SUBMIT_ANSWERED);
	if (submit->extra_count > 0)
		definitions_put(&s->daemon->definitions, s->definition, false); /* takes over this use */
	else
		definition_release(s->definition);
	s->definition = NULL;
	request_add_header(request, "Location", arena_printf(&request->arena, "/v1/runs/%s", s->id));
	api_wait_for_run(s->daemon, request, s->id, s->wait_ms, s->include, 201);
}

void api_add_unregistered(struct arena *arena, const struct definition *definition, struct entry *entry)
{
	*entry = (struct entry){.kind = ENTRY_DEFINITION_ADDED, .data = json_object(arena), .time_ms = clock_wall_ms()};
	json_set_text(arena, entry->data, "namespace", definition->namespace);
	json_set_text(arena, entry->data, "name", definition->name);
	json_set_text(arena, entry->data, "version", definition->version);
	json_set_boolean(arena, entry->data, "registered", false);
	entry_add_value(arena, entry, "definition", json_print_arena(definition->document, arena));
}

static void on_no_twin(struct api_twin *twin)
{
	struct submission *s = CONTAINER_OF(twin, struct submission, twin);

	struct error why = s->refusal; /* which goes with the request */

	submission_fail(s, &why);
}

/* Takes over one use of the definition. is_known: the journal has it. */
static void submit_definition(struct submission *s, struct definition *definition, bool is_known)
{
	struct arena *arena = &s->request->arena;
	struct digest input = digest_of(s->input);
	struct error error = {0};

	s->definition = definition;
	s->request_digest = submission_digest(&definition->digest, &input, s->labels, s->budget_asked);
	/* Its gates could only fault; or it asks for more than a run may use. One that was taken before that was so is there all the same. */
	if (s->refusal.code != ERR_NONE || api_check_gates(s->daemon, arena, definition, json_get(s->root, "input"), &s->refusal) != 0) {
		look_for_twin(s, on_no_twin);
		return;
	}
	s->submit = (struct engine_submit){
		.definition = definition, .id = s->id, .input = s->input, .labels = s->labels, .budget = &s->budget, .budget_asked = s->budget_asked, .received_us = s->request->received_us, .on_done = on_submitted, .owner = s,
	};
	if (!is_known) {
		api_add_unregistered(arena, definition, &s->extra);
		s->submit.extra = &s->extra;
		s->submit.extra_count = 1;
	}
	int code = engine_submit(s->daemon->engine, &s->submit, &error);
	if (code == ERR_EXISTS)
		look_for_twin(s, NULL);
	else if (code != 0)
		submission_fail(s, &error);
}

/* --- what was sent --- */

bool api_read_budget(struct daemon *daemon, struct request *request, const struct json *body, struct budget_amount *budget, const struct json **asked, struct error *over)
{
	struct error error = {0};

	*budget = BUDGET_UNLIMITED;
	*asked = json_is(json_get(body, "budget"), JSON_NULL) ? NULL : json_get(body, "budget");
	if ((!*asked || budget_read(*asked, "budget", budget, &error) == 0) && (budget_bound(budget, &daemon->config.limits.run, over ? over : &error) == 0 || over))
		return true;
	api_invalid(request, "%s", error.message);
	return false;
}

bool api_check_labels(struct request *request, const struct json *labels)
{
	if (!json_is(labels, JSON_OBJECT)) {
		api_invalid(request, "labels: expected an object of texts, found %s", json_type_name(labels->type));
		return false;
	}
	if (json_count(labels) > API_LABELS_MAX) {
		api_invalid(request, "labels: %zu of them, the limit is %d", json_count(labels), API_LABELS_MAX);
		return false;
	}
	for (size_t i = 0; i < labels->object.count; i++) {
		const struct json_member *label = &labels->object.members[i];
		if (label->name_len == 0 || label->name_len > LABEL_LEN_MAX || !json_is(label->value, JSON_STRING) || label->value->string.len > LABEL_LEN_MAX) {
			api_invalid(request, "label '%s': name and value are texts of at most %d bytes", label->name, LABEL_LEN_MAX);
			return false;
		}
	}
	return true;
}

const char *api_make_id(struct arena *arena)
{
	char made[27];
	uint8_t random[10];

	CHECK(getrandom(random, sizeof random, 0) == sizeof random);
	id_make(clock_wall_ms(), random, made);
	return arena_text(arena, made);
}

static bool read_members(struct submission *s)
{
	struct request *request = s->request;
	struct arena *arena = &request->arena;
	const struct json *definition = json_get(s->root, "definition"), *input = json_get(s->root, "input"), *id = json_get(s->root, "id"), *labels = json_get(s->root, "labels");

	if (!json_is(s->root, JSON_OBJECT)) {
		api_invalid(request, "the body is %s, expected an object with definition and input", json_type_name(s->root->type));
		return false;
	}
	for (size_t i = 0; i < s->root->object.count; i++) {
		const char *name = s->root->object.members[i].name;
		if (!api_is_one_of(run_members, name)) {
			api_invalid(request, "unknown member '%s'; a run takes %s", name, run_members);
			return false;
		}
	}
	if (json_is(definition, JSON_STRING)) {
		if (!api_split_name(arena, definition->string.text, &s->namespace, &s->name, &s->version)) {
			api_invalid(request, "definition: '%s' is not NAMESPACE/NAME or NAMESPACE/NAME:VERSION", definition->string.text);
			return false;
		}
	} else if (!s->document) {
		api_invalid(request, "definition: expected an object or the name of a registered one, found %s", definition ? json_type_name(definition->type) : "nothing");
		return false;
	}
	if (id && (!json_is(id, JSON_STRING) || !id_valid(id->string.text))) {
		api_invalid(request, "id: expected 1 to %d of A-Z a-z 0-9 . _ -", ID_LEN_MAX);
		return false;
	}
	if (labels && json_is(labels, JSON_NULL))
		labels = NULL;
	if (labels && !api_check_labels(request, labels))
		return false;
	if (!api_read_budget(s->daemon, request, s->root, &s->budget, &s->budget_asked, &s->refusal))
		return false;
	s->id = id ? id->string.text : api_make_id(arena);
	s->labels = labels && json_count(labels) > 0 ? labels : NULL;
	s->input = json_print_arena(input ? input : json_null(arena), arena);
	return true;
}

static void on_compiled(struct expressions_check *check)
{
	struct submission *s = check->owner;

	if (check->error.code == ERR_NONE && s->problems.errors == 0) {
		problems_close(&s->problems);
		find_definition(s);
		return;
	}
	if (s->problems.errors > 0)
		api_problems(s->request, &s->problems, "definition");
	else
		api_fail_check(s->request, &check->error);
	problems_close(&s->problems);
	definition_free(s->loaded);
	s->loaded = NULL;
}

static void on_parsed(struct submission *s);

/* The inline definition with what was fetched for it is another one than what was sent: it has the digest of all of it. */
static void on_resolved(struct resources *resources)
{
	struct submission *s = resources->owner;

	if (resources->error.code != ERR_NONE) {
		api_fail(s->request, &resources->error);
		problems_close(&s->problems);
		if (s->loaded)
			definition_free(s->loaded);
		return;
	}
	if (s->loaded)
		definition_free(s->loaded);
	s->loaded = NULL;
	s->resolved = s->document = resources->result;
	s->digest = json_digest(s->document);
	on_parsed(s);
}

static void on_parsed(struct submission *s)
{
	struct definition *cached = NULL;

	if (s->error.code != ERR_NONE) {
		struct json *extra = json_object(&s->request->arena);
		if (s->error.code == ERR_TOO_LARGE)
			json_set_number(&s->request->arena, extra, "limit", DEFINITION_SOURCE_MAX);
		request_problem_at(s->request, (unsigned)error_code_http_status(s->error.code), &s->error, extra);
		goto end;
	}
	if (s->problems.errors > 0) {
		api_problems(s->request, &s->problems, s->root ? "definition" : "the body is not YAML");
		goto end;
	}
	if (!read_members(s))
		goto end;
	if (s->document && !s->resolved && resources_are_missing(s->document)) {
		s->resources = (struct resources){.activities = s->daemon->activities, .arena = &s->request->arena, .document = s->document, .on_done = on_resolved, .owner = s};
		resources_resolve(&s->resources);
		return;
	}
	if (s->document)
		cached = definitions_by_digest(&s->daemon->definitions, &s->digest);
	else if (s->version)
		cached = definitions_by_name(&s->daemon->definitions, s->namespace, s->name, s->version);
	if (cached) {
		if (s->loaded)
			definition_free(s->loaded);
		problems_close(&s->problems);
		submit_definition(s, definition_hold(cached), true);
		return;
	}
	if (s->document && !s->loaded) {
		s->loaded = definition_load_json(s->document, &s->problems);
		if (!s->loaded) {
			api_problems(s->request, &s->problems, "definition");
			goto end;
		}
	}
	if (s->loaded) {
		s->check = (struct expressions_check){.pool = s->daemon->jq, .definition = s->loaded, .problems = &s->problems, .on_done = on_compiled, .owner = s};
		expressions_check(&s->check);
		return;
	}
	problems_close(&s->problems);
	find_definition(s);
	return;
end:
	problems_close(&s->problems);
	if (s->loaded)
		definition_free(s->loaded);
}

static void on_pool(uv_work_t *work)
{
	parse(work->data);
}

static void on_pool_done(uv_work_t *work, int status)
{
	(void)status;
	on_parsed(work->data);
}

void api_submit_run(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct submission *s = arena_zero(&request->arena, sizeof *s);

	(void)parameters;
	store_expect(daemon->store);
	s->daemon = daemon;
	s->request = request;
	s->work.data = s;
	if (!api_read_include(request, &s->include) || !api_query_wait(request, &s->wait_ms))
		return;
	s->is_yaml = api_content_type_is(request, "application/yaml") || api_content_type_is(request, "application/x-yaml") || api_content_type_is(request, "text/yaml");
	if (request->body.len == 0) {
		api_invalid(request, "the body is empty, expected {definition, input, id?, labels?, budget?}");
		return;
	}
	if (request->body.len > API_PARSE_ON_LOOP_MAX || resources_may_be_files(&daemon->config, buffer_bytes(&request->body))) {
		s->load_at_once = true;
		CHECK(uv_queue_work(&daemon->loop, &s->work, on_pool, on_pool_done) == 0);
		return;
	}
	parse(s);
	on_parsed(s);
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

/* A time, or how long ago. */
static bool read_time(struct request *request, const char *name, int64_t *ms)
{
	const char *text = request_query(request, name);
	int64_t ago;

	*ms = 0;
	if (!text || time_parse(text, ms))
		return true;
	if (duration_parse(text, &ago, NULL) == 0) {
		*ms = clock_wall_ms() - ago;
		return true;
	}
	api_invalid(request, "query parameter %s: '%s' is neither a time (2026-09-18T09:10:36Z) nor how long ago (2h)", name, text);
	return false;
}

static bool read_filter(struct request *request, struct store_run_filter *filter)
{
	const char *label = request_query(request, "label");

	enum run_status status;

	filter->status = request_query(request, "status");
	filter->parent = request_query(request, "parent");
	filter->forked_from = request_query(request, "forkedFrom");
	if (filter->status && !run_status_parse(filter->status, &status)) {
		api_invalid(request, "query parameter status: '%s'; known: pending, running, waiting, suspended, cancelled, faulted, completed", filter->status);
		return false;
	}
	if (label) {
		const char *equals = strchr(label, '=');
		if (!equals || equals == label) {
			api_invalid(request, "query parameter label: '%s' is not KEY=VALUE", label);
			return false;
		}
		filter->label_key = arena_text_len(&request->arena, label, (size_t)(equals - label));
		filter->label_value = equals + 1;
	}
	return api_query_workflow(request, &filter->namespace, &filter->name, &filter->version) && read_time(request, "since", &filter->since_ms) &&
	       read_time(request, "until", &filter->until_ms);
}

static struct json *row_json(struct arena *arena, const struct store_run *run)
{
	struct json *json = json_object(arena), *workflow = json_object(arena);

	json_set_text(arena, json, "id", run->id);
	json_set_text(arena, workflow, "namespace", run->namespace);
	json_set_text(arena, workflow, "name", run->name);
	json_set_text(arena, workflow, "version", run->version);
	api_set_digest(arena, workflow, "digest", &run->definition);
	json_set(arena, json, "workflow", workflow);
	json_set_text(arena, json, "status", run->status);
	if (run->killed)
		json_set_text(arena, json, "reason", "killed");
	if (run->parent)
		json_set(arena, json, "parent", view_parent(arena, run->parent, run->parent_step));
	if (run->forked_from) {
		struct json *from = json_object(arena);
		json_set_text(arena, from, "run", run->forked_from);
		json_set(arena, json, "forkedFrom", from);
	}
	api_set_time(arena, json, "createdAt", run->created_ms);
	api_set_time(arena, json, "startedAt", run->created_ms);
	if (run->ended_ms != 0)
		api_set_time(arena, json, "endedAt", run->ended_ms);
	json_set_number(arena, json, "seq", (double)run->seq);
	return json;
}

/* Why it is suspended. */
static int add_reason(struct store_reader *reader, struct arena *arena, const struct store_run *run, struct json *json, struct error *error)
{
	struct entry *entries;
	size_t count;
	struct digest digest;

	if (run->suspended_seq == 0)
		return 0;
	if (run->is_quarantined)
		json_set_boolean(arena, json, "quarantined", true);
	if (reader_run_entries(reader, arena, run->id, run->suspended_seq - 1, 1, VALUE_INLINE_MAX, &entries, &count, error) != 0)
		return error->code;
	for (size_t i = 0; count > 0 && json_get_digest(entries[0].data, "reason", &digest) && i < entries[0].value_count; i++)
		if (entries[0].values[i].bytes.data && digest_equal(&entries[0].values[i].digest, &digest))
			json_set(arena, json, "reason", json_parse(arena, entries[0].values[i].bytes, JSON_STORED, NULL, NULL));
	return 0;
}

static void list_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	const struct store_run_filter *filter = own->args;
	struct arena *arena = &read->arena;
	struct json *json = json_object(arena), *list = json_array(arena);
	struct store_run *runs;
	size_t count;

	if (reader_runs(reader, arena, filter, &runs, &count, &read->error) != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		struct json *row = row_json(arena, &runs[i]);
		if (add_reason(reader, arena, &runs[i], row, &read->error) != 0)
			return;
		json_add(arena, list, row);
	}
	json_set(arena, json, "runs", list);
	json_set(arena, json, "cursor", count == filter->limit ? json_printf(arena, "%llu", (unsigned long long)runs[count - 1].seq) : json_null(arena));
	api_print(own, json);
}

void api_list_runs(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct store_run_filter *filter = arena_zero(&request->arena, sizeof *filter);
	uint64_t limit;

	(void)parameters;
	if (!read_filter(request, filter) || !api_query_number(request, "limit", API_LIMIT_DEFAULT, STORE_PAGE_MAX, &limit) ||
	    !api_query_number(request, "cursor", 0, API_SEQ_MAX, &filter->before_seq))
		return;
	filter->limit = limit > 0 ? limit : API_LIMIT_DEFAULT;
	api_read(daemon, request, list_work, filter, NULL);
}

static void count_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct json *json = json_object(&read->arena);
	uint64_t count;

	if (reader_run_count(reader, own->args, &count, &read->error) != 0)
		return;
	json_set_number(&read->arena, json, "count", (double)count);
	api_print(own, json);
}

void api_count_runs(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct store_run_filter *filter = arena_zero(&request->arena, sizeof *filter);

	(void)parameters;
	if (read_filter(request, filter))
		api_read(daemon, request, count_work, filter, NULL);
}

/* --- entries of a run --------------------------------------------------------------------------------------------- */

struct tokens_args {
	const char *id, *step;
	bool stream;
};

static void tokens_work(struct store_reader *reader, struct store_read *read)
{
	const struct tokens_args *args = ((struct api_read *)read->owner)->args;
	struct store_run run;

	reader_run(reader, &read->arena, args->id, &run, &read->error);
}

static void answer_tokens(struct daemon *daemon, struct request *request, const struct tokens_args *args, bool run_ended)
{
	if (args->stream)
		token_spool_stream(&daemon->tokens, request, args->id, args->step, run_ended);
	else
		request_answer_json(request, 200, token_spool_json(&daemon->tokens, args->id, args->step, &request->arena));
}

static void on_tokens(struct api_read *own)
{
	if (own->read.error.code != ERR_NONE)
		api_answer_read(own);
	else
		answer_tokens(own->daemon, own->request, own->args, !engine_run_is_open(own->daemon->engine, ((struct tokens_args *)own->args)->id));
}

void api_run_tokens(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct tokens_args *args = arena_zero(&request->arena, sizeof *args);

	if (!api_check_id(request, parameters[0]))
		return;
	*args = (struct tokens_args){.id = parameters[0], .step = request_query(request, "step"), .stream = api_wants_stream(request)};
	if (engine_run_is_open(daemon->engine, args->id))
		answer_tokens(daemon, request, args, false);
	else
		api_read(daemon, request, tokens_work, args, on_tokens); /* or is there no such run? */
}

struct events_args {
	const char *id;
	uint64_t after, limit;
	bool stream;
};

static void events_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct events_args *args = own->args;
	struct arena *arena = &read->arena;
	struct json *json = json_object(arena), *list = json_array(arena);
	struct store_run run;
	struct entry *entries;
	size_t count;
	uint64_t next = args->after;

	if (reader_run(reader, arena, args->id, &run, &read->error) != 0) {
		if (read->error.code == ERR_NOT_FOUND)
			error_set(&read->error, ERR_NOT_FOUND, "there is no run %s", args->id);
		return;
	}
	if (args->stream || reader_run_entries(reader, arena, args->id, args->after, args->limit, 0, &entries, &count, &read->error) != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		json_add(arena, list, view_entry(arena, &entries[i]));
		next = entries[i].seq;
	}
	json_set(arena, json, "events", list);
	json_set_number(arena, json, "next", (double)next);
	api_print(own, json);
}

static void on_events(struct api_read *own)
{
	const struct events_args *args = own->args;

	api_answer_page(own, args->stream, FEED_RUN, args->after, args->id, NULL);
}

void api_run_events(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct events_args *args = arena_zero(&request->arena, sizeof *args);

	args->id = parameters[0];
	args->stream = api_wants_stream(request);
	if (api_check_id(request, args->id) && api_after(request, &args->after) && api_query_number(request, "limit", 1000, STORE_PAGE_MAX, &args->limit))
		api_read(daemon, request, events_work, args, on_events);
}

/* --- tasks of a run ----------------------------------------------------------------------------------------------- */

struct tasks_args {
	const char *id;
	uint64_t after, limit;
	struct looking *looking; /* has begun */
};

static void tasks_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct tasks_args *args = own->args;

	if (!args->looking) {
		args->looking = begin_looking(own, args->id, reader, read);
		if (!args->looking)
			return;
		const struct view_source source = source_of(args->looking);
		args->looking->view = view_begin_tasks(&own->kept, NULL, args->after, args->limit, &source);
	}
	if (look_on(own, args->looking, reader, &read->error))
		api_print(own, view_end_tasks(args->looking->view));
}

static void on_tasks(struct api_read *own)
{
	const struct tasks_args *args = own->args;

	if (args->looking && args->looking->view)
		view_drop(args->looking->view);
	api_answer_read(own);
}

void api_run_tasks(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct tasks_args *args = arena_zero(&request->arena, sizeof *args);

	args->id = parameters[0];
	if (!api_check_id(request, args->id) || !api_query_number(request, "after", 0, API_SEQ_MAX, &args->after) ||
	    !api_query_number(request, "limit", 1000, VIEW_TASKS_MAX, &args->limit))
		return;
	if (args->limit == 0)
		args->limit = 1000;
	api_read(daemon, request, tasks_work, args, on_tasks);
}

/* --- cancel, kill, pause, resume ---------------------------------------------------------------------------------- */

/* What is done to a run is done to all below it that is awaited, in one transaction (engine_control_tree). What is too much for that goes as it can: the
 * run first, durably; ends go on down the tree by themselves (daemon/children.c), a pause or a resume is carried on from here in steps of at most this many,
 * until none is left that is otherwise. Cut off in between, asking again goes on. */
enum { CONTROL_TREE_STEP_MAX = 1000 };

struct controlling {
	struct engine_tree tree;
	struct engine_control control; /* of the run alone, where the tree is too large */
	bool in_steps;
	struct daemon *daemon;
	struct request *request;
	/* The step at hand. */
	struct engine_control *below;
	size_t pending;
	struct error error;
};

/* Cancelling what has ended changes nothing and is no error (C44); it cannot be paused or resumed any more. */
static int check_open(enum engine_verb verb, const char *id, const char *status, struct error *error)
{
	enum run_status known;

	if (verb == CONTROL_CANCEL || verb == CONTROL_KILL || !run_status_parse(status, &known) || !run_status_ended(known))
		return 0;
	return error_set(error, ERR_EXISTS, "run %s has ended (%s): only a run that has not can be %s", id, status, verb == CONTROL_PAUSE ? "paused" : "resumed");
}

bool api_read_reason(struct request *request, const char **text)
{
	const struct json *body;

	return api_read_command(request, "reason", &body, text);
}

bool api_read_command(struct request *request, const char *names, const struct json **body, const char **text)
{
	*body = api_body_object(request, names);
	const struct json *reason = json_get(*body, "reason");

	if (reason && !json_is(reason, JSON_STRING) && !json_is(reason, JSON_NULL)) {
		api_invalid(request, "reason: expected a text, found %s", json_type_name(reason->type));
		return false;
	}
	if (json_is(reason, JSON_STRING) && reason->string.len > REASON_MAX) {
		api_invalid(request, "reason: %zu bytes are over the limit of %d (REASON_MAX)", reason->string.len, REASON_MAX);
		return false;
	}
	*text = json_get_text(*body, "reason");
	return *body != NULL;
}

/* How many runs were dealt with together; NULL: it was this one alone. */
static struct json *tree_json(const struct controlling *own, struct arena *arena)
{
	struct json *json = json_object(arena);

	if (own->tree.run_count <= 1 && !own->in_steps)
		return NULL;
	json_set_boolean(arena, json, "atomic", !own->in_steps);
	if (!own->in_steps)
		json_set_number(arena, json, "runs", (double)own->tree.run_count);
	return json;
}

static struct json *with_tree(const struct controlling *own, struct arena *arena, struct json *json)
{
	struct json *tree = tree_json(own, arena);

	if (tree)
		json_set(arena, json, "tree", tree);
	return json;
}

static void row_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	const struct controlling *controlling = own->args;
	struct store_run run;

	if (reader_run(reader, &read->arena, controlling->control.id, &run, &read->error) == 0 &&
	    check_open(controlling->control.verb, run.id, run.status, &read->error) == 0)
		api_print(own, with_tree(controlling, &read->arena, row_json(&read->arena, &run)));
}

static void answer_control(struct controlling *own)
{
	struct engine_control *control = &own->control;
	struct json *json = engine_run_json(own->daemon->engine, control->id, &own->request->arena);
	struct error error;

	if (control->verb == CONTROL_CANCEL || control->verb == CONTROL_KILL)
		answer_run_with(own->daemon, own->request, control->id, 0, 200, tree_json(own, &own->request->arena));
	else if (!json) /* parked, or it ended a while ago, or never was */
		api_read(own->daemon, own->request, row_work, own, NULL);
	else if (check_open(control->verb, control->id, json_get_text(json, "status"), &error) != 0)
		api_fail(own->request, &error);
	else
		request_answer_json(own->request, 200, with_tree(own, &own->request->arena, json));
}

/* What is open below the run and waited for, level by level; those that are not yet as they are to be. */
static void tree_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	const struct controlling *controlling = own->args;
	bool wants_suspended = controlling->control.verb == CONTROL_PAUSE;
	struct store_run *runs;
	size_t count, found = 0;
	struct json *list = json_array(&own->kept);

	if (read_below(reader, &read->arena, controlling->control.id, SIZE_MAX, &runs, &count, &read->error) != 0)
		return;
	for (size_t i = 0; i < count && found < CONTROL_TREE_STEP_MAX; i++) {
		bool is_suspended = strcmp(runs[i].status, run_status_name(RUN_SUSPENDED)) == 0;
		if (is_suspended == wants_suspended)
			continue;
		json_add(&own->kept, list, json_text(&own->kept, runs[i].id));
		found++;
	}
	json_print(list, &own->body);
}

static void look_below(struct controlling *own);

static void on_below(struct engine_control *control)
{
	struct controlling *own = control->owner;

	if (control->error.code != ERR_NONE && control->error.code != ERR_NOT_FOUND)
		own->error = control->error;
	if (--own->pending > 0)
		return;
	if (own->error.code != ERR_NONE)
		api_fail(own->request, &own->error);
	else
		look_below(own);
}

static void on_tree(struct api_read *read)
{
	struct controlling *own = read->args;
	struct arena *arena = &own->request->arena;
	struct error error;

	if (read->read.error.code != ERR_NONE) {
		api_answer_read(read);
		return;
	}
	const struct json *list = json_parse(arena, arena_bytes(arena, buffer_bytes(&read->body)), JSON_STORED, NULL, NULL);
	size_t count = json_count(list), asked = 0;
	buffer_close(&read->body);
	own->below = arena_zero(arena, (count + 1) * sizeof *own->below);
	own->pending = 1; /* until all are asked */
	for (size_t i = 0; i < count; i++) {
		struct engine_control *below = &own->below[i];
		*below = (struct engine_control){.verb = own->control.verb, .id = json_at(list, i)->string.text, .reason = own->control.reason, .on_done = on_below, .owner = own};
		list_init(&below->link);
		own->pending++;
		if (engine_control(own->daemon->engine, below, &error) == 0)
			asked++;
		else
			own->pending--; /* it ended meanwhile, or cannot be loaded */
	}
	if (asked == 0) {
		answer_control(own);
		return;
	}
	own->pending--;
	if (own->pending == 0)
		look_below(own);
}

static void look_below(struct controlling *own)
{
	api_read(own->daemon, own->request, tree_work, own, on_tree);
}

static void on_controlled(struct engine_control *control)
{
	struct controlling *own = control->owner;

	if (control->error.code != ERR_NONE && control->error.code != ERR_NOT_FOUND)
		api_fail(own->request, &control->error);
	else if (control->error.code == ERR_NONE && (control->verb == CONTROL_PAUSE || control->verb == CONTROL_RESUME))
		look_below(own);
	else
		answer_control(own);
}

static void control_in_steps(struct controlling *own)
{
	struct error error;

	own->in_steps = true;
	int code = engine_control(own->daemon->engine, &own->control, &error);
	if (code == ERR_NOT_FOUND)
		answer_control(own);
	else if (code != 0)
		api_fail(own->request, &error);
}

static void on_tree_controlled(struct engine_tree *tree)
{
	struct controlling *own = tree->owner;

	if (tree->error.code == ERR_TOO_LARGE) {
		log_info(LOG_ENGINE, "run=%s not in one transaction: %s", own->control.id, tree->error.message);
		control_in_steps(own);
	} else {
		own->control.error = tree->error;
		on_controlled(&own->control); /* what was left out, or came meanwhile, is looked for once more */
	}
}

static void control_run(struct daemon *daemon, struct request *request, const char *id, enum engine_verb verb)
{
	struct controlling *own = arena_zero(&request->arena, sizeof *own);
	const char *reason;
	struct error error;

	if (!api_check_id(request, id) || !api_read_reason(request, &reason))
		return;
	own->daemon = daemon;
	own->request = request;
	own->control = (struct engine_control){.verb = verb, .id = id, .reason = reason, .on_done = on_controlled, .owner = own};
	list_init(&own->control.link);
	own->tree = (struct engine_tree){.root = own->control, .on_done = on_tree_controlled, .owner = own};
	int code = engine_control_tree(daemon->engine, &own->tree, &error);
	if (code == ERR_NOT_FOUND) /* ended before, or unknown: the store says which */
		answer_control(own);
	else if (code != 0)
		api_fail(request, &error);
}

void api_cancel_run(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	control_run(daemon, request, parameters[0], CONTROL_CANCEL);
}

void api_kill_run(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	control_run(daemon, request, parameters[0], CONTROL_KILL);
}

void api_pause_run(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	control_run(daemon, request, parameters[0], CONTROL_PAUSE);
}

void api_resume_run(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	control_run(daemon, request, parameters[0], CONTROL_RESUME);
}

/* --- replay ------------------------------------------------------------------------------------------------------- */

/* Only replay_run()'s own values are looked up by place; the rest come with the entries. */
static const struct json *no_value(void *context, const struct digest *digest)
{
	(void)context, (void)digest;
	return NULL;
}

static void add_difference(struct arena *arena, struct json *json, const struct replay_result *result, struct bytes source)
{
	struct json *difference = json_object(arena);
	struct text_positions *positions;
	struct problems problems;
	size_t line, column;

	json_set_number(arena, difference, "seq", (double)result->seq);
	json_set(arena, difference, "expected", result->expected ? json_parse(arena, bytes_text(result->expected), JSON_STORED, NULL, NULL) : json_null(arena));
	json_set(arena, difference, "got", result->got ? json_parse(arena, bytes_text(result->got), JSON_STORED, NULL, NULL) : json_null(arena));
	json_set_text(arena, difference, "reference", result->reference);
	json_set_text(arena, difference, "why", result->why);
	problems_init(&problems);
	if (result->reference && text_load(arena, source, TEXT_GUESS, &positions, &problems) && text_position(positions, result->reference, true, &line, &column)) {
		json_set_number(arena, difference, "line", (double)line);
		json_set_number(arena, difference, "column", (double)column);
	}
	problems_close(&problems);
	json_set(arena, json, "difference", difference);
}

/* A replay in parts: see struct api_read. */
struct replaying {
	const char *id;
	struct store_reader *reader; /* of the part at hand */
	uint64_t until; /* what comes behind it came while we looked */
	struct replay *replay; /* has begun */
	struct definition *definition;
	struct bytes source;
	struct replay_result result;
	struct error gone; /* the first value that was erased: without it nothing can be decided */
};

/* Small values come with the entries; those that are erased come without bytes. */
static void notice_erased(struct replaying *replaying, struct arena *arena, const struct entry *entries, size_t count)
{
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < entries[i].value_count && replaying->gone.code == ERR_NONE; k++) {
			const struct entry_value *value = &entries[i].values[k];
			struct bytes bytes;
			struct error error;

			if (value->bytes.data || value->size > VALUE_INLINE_MAX)
				continue;
			if (reader_content(replaying->reader, arena, CONTENT_ID(entries[i].seq, k), &value->digest, replaying->id, &bytes, &error) == ERR_GONE)
				replaying->gone = error;
		}
}

static int read_recorded(void *context, struct arena *arena, uint64_t after_seq, size_t limit, struct entry **entries, size_t *count, struct error *error)
{
	struct replaying *replaying = context;
	size_t cap = 0;

	*count = 0;
	*entries = NULL;
	while (*count < limit) { /* a page has its own limit */
		struct entry *page;
		size_t page_count, want = limit - *count < STORE_PAGE_MAX ? limit - *count : STORE_PAGE_MAX;
		if (reader_run_entries(replaying->reader, arena, replaying->id, after_seq, want, VALUE_INLINE_MAX, &page, &page_count, error) != 0)
			return error->code;
		bool last = page_count < want;
		while (page_count > 0 && page[page_count - 1].seq > replaying->until)
			page_count--;
		for (size_t i = 0; i < page_count; i++) {
			*entries = arena_grow(arena, *entries, *count, &cap, sizeof **entries);
			(*entries)[(*count)++] = page[i];
		}
		notice_erased(replaying, arena, page, page_count);
		if (last || page_count == 0)
			break;
		after_seq = page[page_count - 1].seq;
	}
	return 0;
}

static bool load_recorded(void *context, struct arena *arena, uint64_t content_id, const struct digest *digest, struct bytes *bytes)
{
	struct replaying *replaying = context;
	struct error error;

	if (reader_content(replaying->reader, arena, content_id, digest, replaying->id, bytes, &error) == 0)
		return true;
	if (error.code == ERR_GONE && replaying->gone.code == ERR_NONE)
		replaying->gone = error;
	return false;
}

static int begin_replay(struct api_read *own, struct replaying *replaying, struct error *error)
{
	struct arena *arena = &own->kept;
	struct problems problems;
	struct bytes document;
	struct store_run run;

	if (reader_run(replaying->reader, arena, replaying->id, &run, error) != 0)
		return error->code == ERR_NOT_FOUND ? error_set(error, ERR_NOT_FOUND, "there is no run %s", replaying->id) : (int)error->code;
	replaying->until = run.seq_last;
	if (reader_definition_document(replaying->reader, arena, &run.definition, &document, &replaying->source, error) != 0)
		return error->code;
	if (!replaying->source.data)
		replaying->source = document;
	problems_init(&problems);
	struct json *parsed = json_parse(arena, document, JSON_STORED, NULL, error);
	replaying->definition = parsed ? definition_load_stored(parsed, &problems) : NULL;
	if (!replaying->definition && error->code == ERR_NONE)
		error_set(error, ERR_CORRUPT, "run %s: its definition cannot be read: %s", replaying->id, problems.count > 0 ? problems.items[0].message : "refused");
	problems_close(&problems);
	if (!replaying->definition)
		return error->code;
	const struct decide_context context = {.origin = store_origin(own->daemon->store), .daemon_version = REPRISE_VERSION, .values = {.get = no_value}};
	const struct replay_source source = {read_recorded, load_recorded, replaying};
	replaying->replay = replay_begin(arena, replaying->definition, &context, &source, &replaying->result);
	return 0;
}

static void replay_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	struct replaying *replaying = own->args;
	uint64_t begin_us = clock_now_us();
	bool done = false;

	replaying->reader = reader;
	if (!replaying->replay && begin_replay(own, replaying, &read->error) != 0)
		return;
	while (!done) {
		if (clock_now_us() - begin_us > API_READ_SLICE_MS * 1000) {
			own->again = true;
			return;
		}
		int code = replay_step(replaying->replay, &done, &read->error);
		if (replaying->gone.code != ERR_NONE && (code != 0 || (done && !replaying->result.equal))) {
			read->error = replaying->gone;
			error_wrap(&read->error, "run %s cannot be decided again: a value that it needs is not there any more", replaying->id);
			return;
		}
		if (code != 0)
			return;
	}
	struct json *json = json_object(&own->kept);
	json_set_text(&own->kept, json, "run", replaying->id);
	json_set_boolean(&own->kept, json, "equal", replaying->result.equal);
	json_set_number(&own->kept, json, "entries", (double)replaying->result.entries);
	json_set(&own->kept, json, "difference", json_null(&own->kept));
	if (!replaying->result.equal)
		add_difference(&own->kept, json, &replaying->result, replaying->source);
	api_print(own, json);
}

static void on_replayed(struct api_read *own)
{
	struct replaying *replaying = own->args;

	if (replaying->replay)
		replay_end(replaying->replay);
	if (replaying->definition)
		definition_free(replaying->definition);
	api_answer_read(own);
}

void api_replay_run(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct replaying *replaying = arena_zero(&request->arena, sizeof *replaying);

	replaying->id = parameters[0];
	if (api_check_id(request, parameters[0]) && api_body_object(request, ""))
		api_read(daemon, request, replay_work, replaying, on_replayed);
}
