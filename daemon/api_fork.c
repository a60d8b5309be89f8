/* POST /v1/runs/{id}/fork: the same run once more, from one of its tasks on.
 *
 * A fork goes through these stations: what is asked for (its digest makes a repetition harmless), a look for a run that has the id already, a long read in parts (where the task began, the
 * state before it, its values, the definition with what is set), the check of a definition that is new, engine_submit, durable. All that it needs lies in an arena of its
 * own until the run is durable. On the loop; the works run on the reader thread. New here? Read api_fork_run() and follow the names. */
#include <stdlib.h>
#include <string.h>

#include "daemon/api.h"
#include "daemon/children.h"
#include "daemon/expressions.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/id.h"
#include "workflow/fork.h"

_Static_assert((int)FORK_CHILD_ID_LEN == (int)CHILDREN_ID_LEN, "forkedFrom.kept names children as they are called");

static const char fork_members[] = "from id input set tasks children labels budget reason";

struct forked {
	struct daemon *daemon;
	struct request *request;
	struct arena arena; /* all of it, until the run is durable */

	/* Asked for. */
	const char *of, *id, *reason;
	struct bytes input; /* canonical JSON; data NULL: as it was */
	struct json *patches; /* {reference: merge patch of `with`}, but for `set`, whose task is known later */
	const struct json *set, *labels, *budget_asked;
	int64_t wait_ms;
	unsigned include;
	struct digest digest;

	/* The read. */
	struct store_read read;
	struct store_reader *reader; /* of the part at hand */
	enum { FORK_BEGIN, FORK_FIND, FORK_FOLD, FORK_TAKE } stage;
	bool again;
	uint64_t after, until;
	struct fork_find find;
	struct state state;
	bool has_state;
	struct definition *definition; /* of the other run */
	struct definition *changed; /* with what is set; NULL: nothing is */
	struct problems problems;
	bool is_known; /* the journal has `changed` */
	const struct json *all_labels;
	struct budget_amount budget;
	struct error refusal; /* it is more than the configuration allows now */

	/* The run. */
	struct forking forking;
	struct bytes run_input;
	struct expressions_check check;
	struct entry extra;
	struct engine_submit submit;
	struct definition *held;
	bool is_counted; /* in daemon->forks */
};

static void drop_state(struct forked *f)
{
	if (f->has_state)
		state_close(&f->state);
	f->has_state = false;
}

static void finish(struct forked *f)
{
	drop_state(f);
	f->daemon->forks -= f->is_counted;
	if (f->definition)
		definition_free(f->definition);
	if (f->changed)
		definition_free(f->changed);
	definition_release(f->held);
	problems_close(&f->problems);
	arena_close(&f->arena);
	free(f);
}

static void fail(struct forked *f, const struct error *error)
{
	struct request *request = f->request;
	struct error why = *error;

	finish(f);
	api_fail(request, &why);
}

/* --- durable, or not ---------------------------------------------------------------------------------------------- */

static void release(void *owner)
{
	finish(owner);
}

static void look_for_twin(struct forked *f, void (*on_none)(struct api_twin *twin))
{
	struct arena *arena = &f->request->arena;
	struct api_twin *twin = arena_zero(arena, sizeof *twin);

	*twin = (struct api_twin){
		.daemon = f->daemon, .request = f->request, .id = arena_text(arena, f->id), .digest = f->digest, .content = "the run it is forked of, the task, or what is replaced",
		.wait_ms = f->wait_ms, .include = f->include, .on_none = on_none, .release = release, .owner = f,
	};
	api_look_for_twin(twin);
}

static void on_submitted(struct engine_submit *submit)
{
	struct forked *f = submit->owner;
	struct request *request = f->request;

	if (submit->error.code == ERR_EXISTS) {
		look_for_twin(f, NULL);
		return;
	}
	if (submit->error.code != ERR_NONE) {
		fail(f, &submit->error);
		return;
	}
	FAIL_POINT(FORK_ANSWERED);
	if (submit->extra_count > 0)
		definitions_put(&f->daemon->definitions, definition_hold(f->held), false);
	struct daemon *daemon = f->daemon;
	const char *id = arena_text(&request->arena, f->id);
	int64_t wait_ms = f->wait_ms;
	unsigned include = f->include;
	finish(f);
	request_add_header(request, "Location", arena_printf(&request->arena, "/v1/runs/%s", id));
	api_wait_for_run(daemon, request, id, wait_ms, include, 201);
}

/* held is set; is_known: the journal has it. */
static void submit(struct forked *f, bool is_known)
{
	struct error error = {0};

	f->submit = (struct engine_submit){
		.definition = f->held, .id = f->id, .input = f->run_input, .labels = f->all_labels, .fork = &f->forking, .budget = &f->budget, .received_us = f->request->received_us, .on_done = on_submitted, .owner = f,
	};
	if (!is_known) {
		api_add_unregistered(&f->arena, f->held, &f->extra);
		f->submit.extra = &f->extra;
		f->submit.extra_count = 1;
	}
	FAIL_POINT(FORK_SUBMITTED);
	int code = engine_submit(f->daemon->engine, &f->submit, &error);
	if (code == ERR_EXISTS)
		look_for_twin(f, NULL);
	else if (code != 0)
		fail(f, &error);
}

static void on_compiled(struct expressions_check *check)
{
	struct forked *f = check->owner;
	struct request *request = f->request;

	if (check->error.code != ERR_NONE) {
		struct error error = check->error;
		finish(f);
		api_fail_check(request, &error);
	} else if (f->problems.errors > 0) {
		api_problems(request, &f->problems, "the definition with what is set");
		finish(f);
	} else {
		f->held = f->changed;
		f->changed = NULL;
		submit(f, false);
	}
}

static void on_read_all(struct forked *f)
{
	struct definition *known = f->changed && !f->is_known ? definitions_by_digest(&f->daemon->definitions, &f->changed->digest) : NULL;

	if (f->changed && !f->is_known && !known) {
		f->check = (struct expressions_check){.pool = f->daemon->jq, .definition = f->changed, .problems = &f->problems, .on_done = on_compiled, .owner = f};
		expressions_check(&f->check);
		return;
	}
	if (known) {
		f->held = definition_hold(known);
	} else {
		struct definition **from = f->changed ? &f->changed : &f->definition;
		f->held = definition_hold(definitions_put(&f->daemon->definitions, *from, false));
		*from = NULL;
	}
	submit(f, true);
}

/* --- the other run ------------------------------------------------------------------------------------------------ */

static int load_definition(struct forked *f, struct error *error)
{
	struct arena arena;
	struct bytes document;
	struct store_run run;
	struct json *json = NULL;
	struct problems problems;

	arena_init(&arena);
	problems_init(&problems);
	if (reader_run(f->reader, &arena, f->of, &run, error) != 0) {
		if (error->code == ERR_NOT_FOUND)
			error_set(error, ERR_NOT_FOUND, "there is no run %s", f->of);
		goto end;
	}
	f->until = run.seq_last;
	if (reader_definition_document(f->reader, &arena, &run.definition, &document, NULL, error) != 0)
		goto end;
	json = json_parse(&arena, document, JSON_STORED, NULL, error);
	f->definition = json ? definition_load_stored(json, &problems) : NULL;
	if (!f->definition && error->code == ERR_NONE)
		error_set(error, ERR_CORRUPT, "run %s: its definition cannot be read: %s", f->of, problems.count > 0 ? problems.items[0].message : "refused");
end:
	problems_close(&problems);
	arena_close(&arena);
	return error->code;
}

/* One page; *done: there is no other, or none is needed. */
static int read_page(struct forked *f, bool *done, struct error *error)
{
	bool folds = f->stage == FORK_FOLD;
	uint64_t until = folds ? f->find.seq - 1 : f->until;
	struct arena arena;
	struct entry *page;
	size_t count;

	arena_init(&arena);
	if (reader_run_entries(f->reader, &arena, f->of, f->after, API_READ_PAGE, folds ? VALUE_INLINE_MAX : 0, &page, &count, error) != 0)
		goto end;
	*done = count < API_READ_PAGE;
	while (count > 0 && page[count - 1].seq > until) {
		*done = true;
		count--;
	}
	if (count > 0)
		f->after = page[count - 1].seq;
	if (!folds)
		fork_find_add(&f->find, page, count);
	for (size_t i = 0; folds && i < count && error->code == ERR_NONE; i++)
		workflow_apply(&f->state, &page[i], error);
end:
	arena_close(&arena);
	return error->code;
}

static int load_value(void *context, struct arena *arena, uint64_t content_id, const struct digest *digest, struct bytes *bytes, struct error *error)
{
	struct forked *f = context;

	return reader_content(f->reader, arena, content_id, digest, f->of, bytes, error);
}

/* The labels of the other run, and those that were given. */
static int merge_labels(struct forked *f, struct error *error)
{
	struct json *labels = NULL;
	struct bytes bytes;

	if (f->find.labels_id != 0) {
		if (reader_content(f->reader, &f->arena, f->find.labels_id, &f->find.labels, f->of, &bytes, error) != 0)
			return error_wrap(error, "the labels of run %s", f->of);
		labels = json_parse(&f->arena, bytes, JSON_STORED, NULL, error);
		if (!labels)
			return error->code;
	}
	if (!labels)
		labels = json_object(&f->arena);
	for (size_t i = 0; i < json_count(f->labels); i++)
		json_set(&f->arena, labels, f->labels->object.members[i].name, f->labels->object.members[i].value);
	if (json_count(labels) > API_LABELS_MAX)
		return error_set(error, ERR_INVALID, "labels: %zu of them with those of run %s, the limit is %d", json_count(labels), f->of, API_LABELS_MAX);
	f->all_labels = json_count(labels) > 0 ? labels : NULL;
	return 0;
}

/* That of the other run where the fork begins, and in its place what was given; in no case more than a run may have now. */
static void choose_budget(struct forked *f)
{
	f->budget = f->state.budget;
	budget_take(f->budget_asked, &f->budget);
	budget_cap(&f->budget, &f->daemon->config.limits.run);
}

static int change_definition(struct forked *f, struct error *error)
{
	if (f->set)
		json_set(&f->arena, f->patches, f->find.task->reference, (struct json *)f->set);
	if (json_count(f->patches) == 0)
		return 0;
	struct json *document = fork_patch_document(&f->arena, f->definition, &f->find, f->patches, error);
	if (!document)
		return error->code;
	if (json_equal(document, f->definition->document))
		return 0;
	f->changed = definition_load_json(document, &f->problems);
	if (!f->changed)
		return 0; /* the problems say why */
	struct arena arena;
	struct bytes known;
	struct error unknown;
	arena_init(&arena);
	f->is_known = reader_definition_document(f->reader, &arena, &f->changed->digest, &known, NULL, &unknown) == 0;
	arena_close(&arena);
	return 0;
}

/* One part after the other: see API_READ_SLICE_MS. */
static void fork_work(struct store_reader *reader, struct store_read *read)
{
	struct forked *f = read->owner;
	struct error *error = &read->error;
	uint64_t begin_us = clock_now_us();
	bool done = false;

	f->reader = reader;
	f->again = false;
	while (error->code == ERR_NONE) {
		if (clock_now_us() - begin_us > API_READ_SLICE_MS * 1000) {
			f->again = true;
			return;
		}
		switch (f->stage) {
		case FORK_BEGIN:
			if (load_definition(f, error) != 0)
				return;
			f->find.definition = f->definition;
			if (fork_find_begin(&f->find, error) != 0)
				return;
			f->stage = FORK_FIND;
			break;
		case FORK_FIND:
			if (read_page(f, &done, error) != 0 || !done)
				break;
			if (fork_find_end(&f->find, error) != 0 || change_definition(f, error) != 0 || f->problems.errors > 0)
				return;
			state_init(&f->state, f->definition);
			f->has_state = true;
			f->after = 0;
			f->stage = FORK_FOLD;
			break;
		case FORK_FOLD:
			if (read_page(f, &done, error) == 0 && done)
				f->stage = FORK_TAKE;
			break;
		case FORK_TAKE: {
			const struct fork_source source = {load_value, f};
			choose_budget(f);
			if (fork_check_patches(&f->state, &f->find, f->patches, error) != 0)
				return;
			if (fork_carry(&f->state, &f->find, f->input.data ? &f->input : NULL, &source, &f->forking, &f->run_input, error) == 0)
				merge_labels(f, error);
			return;
		}
		}
	}
}

static void on_read(struct store_read *read)
{
	struct forked *f = read->owner;
	struct error error = read->error;

	arena_close(&read->arena);
	if (!f->again)
		drop_state(f); /* before the definition, whose tasks it speaks of, may go */
	if (error.code == ERR_NONE && f->again) {
		if (store_read(f->daemon->store, read) == 0)
			return;
		error_set(&error, ERR_BUSY, "%d reads wait for the journal, the limit (STORE_READS_MAX)", STORE_READS_MAX);
	}
	if (error.code != ERR_NONE) {
		fail(f, &error);
	} else if (f->problems.errors > 0) {
		api_problems(f->request, &f->problems, "the definition with what is set");
		finish(f);
	} else {
		on_read_all(f);
	}
}

static void begin_reading(struct forked *f)
{
	struct error error = {0};

	if (f->refusal.code != ERR_NONE) {
		fail(f, &f->refusal);
		return;
	}
	if (f->daemon->forks >= API_FORKS_MAX) { /* each holds the other run's state, and what it carries of it */
		error_set(&error, ERR_BUSY, "%d forks are being made, the limit (API_FORKS_MAX): ask again when they are", API_FORKS_MAX);
		fail(f, &error);
		return;
	}
	f->is_counted = true;
	f->daemon->forks++;
	f->read = (struct store_read){.work = fork_work, .on_done = on_read, .owner = f};
	if (store_read(f->daemon->store, &f->read) == 0)
		return;
	error_set(&error, ERR_BUSY, "%d reads wait for the journal, the limit (STORE_READS_MAX)", STORE_READS_MAX);
	fail(f, &error);
}

static void on_no_twin(struct api_twin *twin)
{
	begin_reading(twin->owner);
}

/* --- what is asked for -------------------------------------------------------------------------------------------- */

static bool check_object(struct request *request, const struct json *body, const char *name, bool of_objects, struct json **object)
{
	*object = json_get(body, name);
	if (json_is(*object, JSON_NULL))
		*object = NULL;
	if (*object && !json_is(*object, JSON_OBJECT)) {
		api_invalid(request, "%s: expected an object, found %s", name, json_type_name((*object)->type));
		return false;
	}
	for (size_t i = 0; of_objects && i < json_count(*object); i++)
		if (!json_is((*object)->object.members[i].value, JSON_OBJECT)) {
			api_invalid(request, "%s: '%s' is no object of members of the task's `with`", name, (*object)->object.members[i].name);
			return false;
		}
	return true;
}

static bool read_asked(struct forked *f, struct json *body)
{
	struct request *request = f->request;
	struct arena *arena = &f->arena;
	const char *from = json_get_text(body, "from"), *children = json_get_text(body, "children"), *reason = json_get_text(body, "reason"), *id = json_get_text(body, "id");
	struct json *set, *tasks, *labels, *overrides = json_object(arena);
	const struct json *budget;

	f->find = (struct fork_find){.arena = arena, .run_id = f->of};
	if (!from || !*from || strlen(from) > API_FORK_FROM_MAX) {
		api_invalid(request, "from: expected a task of the run, by its step id (/do/1/ask@1), its reference or its name, at most %d bytes", API_FORK_FROM_MAX);
		return false;
	}
	if ((json_get(body, "children") && !children) || (children && !fork_children_parse(children, &f->find.children))) {
		api_invalid(request, "children: expected keep, rerun or detach");
		return false;
	}
	if ((json_get(body, "id") && !id) || (id && !id_valid(id))) {
		api_invalid(request, "id: expected 1 to %d of A-Z a-z 0-9 . _ -", ID_LEN_MAX);
		return false;
	}
	if ((json_get(body, "reason") && !reason) || (reason && strlen(reason) > REASON_MAX)) {
		api_invalid(request, "reason: expected a text of at most %d bytes", REASON_MAX);
		return false;
	}
	if (!check_object(request, body, "set", false, &set) || !check_object(request, body, "tasks", true, &tasks) || !check_object(request, body, "labels", false, &labels) ||
	    (labels && !api_check_labels(request, labels)) || !api_read_budget(f->daemon, request, body, &f->budget, &budget, &f->refusal))
		return false;
	f->find.from = arena_text(arena, from);
	f->id = id ? arena_text(arena, id) : api_make_id(arena);
	f->reason = f->forking.reason = reason ? arena_text(arena, reason) : NULL;
	f->set = set ? json_copy(arena, set) : NULL;
	f->patches = tasks ? json_copy(arena, tasks) : json_object(arena);
	f->labels = labels ? json_copy(arena, labels) : NULL;
	f->budget_asked = budget ? json_copy(arena, budget) : NULL;
	if (json_get(body, "input"))
		f->input = json_print_arena(json_get(body, "input"), arena);
	json_set_text(arena, overrides, "from", from);
	json_set_text(arena, overrides, "children", fork_children_name(f->find.children));
	if (f->input.data)
		json_set(arena, overrides, "input", json_copy(arena, json_get(body, "input")));
	if (set)
		json_set(arena, overrides, "set", json_copy(arena, set));
	if (tasks)
		json_set(arena, overrides, "tasks", json_copy(arena, tasks));
	if (labels)
		json_set(arena, overrides, "labels", json_copy(arena, labels));
	if (budget)
		json_set(arena, overrides, "budget", json_copy(arena, budget));
	f->forking.overrides = json_print_arena(overrides, arena);
	struct digest digest = digest_of(f->forking.overrides);
	f->digest = fork_request_digest(f->of, &digest);
	return true;
}

static void on_body(struct api_body *body)
{
	struct forked *f = memory_zero(sizeof *f);
	const struct forked *asked = body->owner;

	FAIL_POINT(FORK_RECEIVED);
	*f = (struct forked){.daemon = body->daemon, .request = body->request, .wait_ms = asked->wait_ms, .include = asked->include};
	arena_init(&f->arena);
	problems_init(&f->problems);
	f->of = arena_text(&f->arena, body->parameters[0]);
	if (!read_asked(f, body->json))
		finish(f);
	else if (json_get(body->json, "id")) /* it may be there: then the other run is not needed, and may be gone */
		look_for_twin(f, on_no_twin);
	else
		begin_reading(f);
}

void api_fork_run(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct forked *asked = arena_zero(&request->arena, sizeof *asked); /* of it no more than the query */
	struct api_body *body = arena_zero(&request->arena, sizeof *body);

	if (!api_check_id(request, parameters[0]) || !api_read_include(request, &asked->include) || !api_query_wait(request, &asked->wait_ms))
		return;
	*body = (struct api_body){.daemon = daemon, .request = request, .names = fork_members, .on_done = on_body, .parameters = parameters, .owner = asked};
	api_take_body(body);
}
