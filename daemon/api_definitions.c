/* /v1/definitions: what a run can be started from by name. A name and version stand for one content for ever. */
#include <stdlib.h>
#include <string.h>

#include "daemon/api.h"
#include "daemon/expressions.h"
#include "daemon/resources.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/id.h"
#include "workflow/language/schedule.h"

struct addition {
	struct daemon *daemon;
	struct request *request;
	uv_work_t work;
	enum text_format format;
	struct definition *definition;
	struct problems problems;
	struct resources resources;
	struct expressions_check check;

	struct store_definition existing;
	struct error zone_error; /* of its schedule's time zone */
	struct entry entry;
	struct store_append append;
	struct schedule_reload reload;
};

static struct json *definition_json(struct arena *arena, const char *namespace, const char *name, const char *version, const struct digest *digest)
{
	struct json *json = json_object(arena);

	json_set_text(arena, json, "namespace", namespace);
	json_set_text(arena, json, "name", name);
	json_set_text(arena, json, "version", version);
	api_set_digest(arena, json, "digest", digest);
	return json;
}

static void finish(struct addition *a, unsigned status)
{
	struct arena *arena = &a->request->arena;
	const struct definition *d = a->definition;
	struct json *json = definition_json(arena, d->namespace, d->name, d->version, &d->digest);

	json_set_text(arena, json, "title", d->title);
	if (a->problems.count > 0)
		json_set(arena, json, "warnings", problems_json(&a->problems, arena));
	if (status == 201)
		request_add_header(a->request, "Location", arena_printf(arena, "/v1/definitions/%s/%s/%s", d->namespace, d->name, d->version));
	definitions_put(&a->daemon->definitions, a->definition, true);
	problems_close(&a->problems);
	request_answer_json(a->request, status, json);
}

static void give_up(struct addition *a)
{
	definition_free(a->definition);
	problems_close(&a->problems);
}

static void answer_conflict(struct addition *a, const struct digest *existing)
{
	struct json *extra = json_object(&a->request->arena);
	const struct definition *d = a->definition;
	struct error error;

	api_set_digest(&a->request->arena, extra, "existing", existing);
	api_set_digest(&a->request->arena, extra, "submitted", &d->digest);
	error_set(&error, ERR_EXISTS, "%s/%s:%s is registered already, with other content; give this one another version", d->namespace, d->name, d->version);
	request_problem_at(a->request, 409, &error, extra);
	give_up(a);
}

static void look_up(struct addition *a);

/* Answered only now: whoever reads 201 finds the schedule there. */
static void on_schedule_reloaded(struct schedule_reload *reload)
{
	finish(reload->owner, 201);
}

static void on_added(struct store_append *append)
{
	struct addition *a = append->owner;

	if (append->error.code == ERR_NONE) {
		FAIL_POINT(DEFINITION_RECORDED);
		a->reload = (struct schedule_reload){.on_done = on_schedule_reloaded, .owner = a};
		schedules_reload(&a->daemon->schedules, a->definition->namespace, a->definition->name, &a->reload);
	} else if (append->error.code == ERR_EXISTS) { /* somebody was faster: the look shows with what */
		look_up(a);
	} else {
		api_fail(a->request, &append->error);
		give_up(a);
	}
}

static void look_up_work(struct store_reader *reader, struct store_read *read)
{
	struct addition *a = ((struct api_read *)read->owner)->args;

	const char *zone_name = a->definition->schedule != NULL ? a->definition->schedule->time_zone : NULL;
	const struct zone *zone;
	struct digest digest;

	if (reader_definition(reader, &read->arena, a->definition->namespace, a->definition->name, a->definition->version, &a->existing, &read->error) != ERR_NOT_FOUND ||
	    zone_name == NULL)
		return;
	schedules_load_zone(&read->arena, zone_name, &zone, &digest, &a->zone_error);
}

static void on_looked_up(struct api_read *own)
{
	struct addition *a = own->args;
	struct definition *d = a->definition;
	struct arena *arena = &a->request->arena;
	struct error error = own->read.error;

	buffer_close(&own->body);
	if (error.code == ERR_NONE) {
		if (digest_equal(&a->existing.digest, &d->digest))
			finish(a, 200);
		else
			answer_conflict(a, &a->existing.digest);
		return;
	}
	if (error.code == ERR_NOT_FOUND && a->zone_error.code != ERR_NONE) {
		problems_add(&a->problems, false, "/document/metadata/timezone", 0, 0, "Europe/Berlin, UTC", "%s", a->zone_error.message);
		api_problems(a->request, &a->problems, "definition");
		give_up(a);
		return;
	}
	if (error.code == ERR_NOT_FOUND && d->schedule != NULL && schedules_have_room(&a->daemon->schedules, d->namespace, d->name, &error) != 0) {
		api_fail(a->request, &error);
		give_up(a);
		return;
	}
	if (error.code == ERR_NOT_FOUND) {
		a->entry = (struct entry){.kind = ENTRY_DEFINITION_ADDED, .data = json_object(arena), .time_ms = clock_wall_ms()};
		json_set_text(arena, a->entry.data, "namespace", d->namespace);
		json_set_text(arena, a->entry.data, "name", d->name);
		json_set_text(arena, a->entry.data, "version", d->version);
		json_set_boolean(arena, a->entry.data, "registered", true);
		if (d->schedule != NULL)
			json_set_boolean(arena, a->entry.data, "scheduled", true);
		entry_add_value(arena, &a->entry, "source", d->source);
		entry_add_value(arena, &a->entry, "definition", json_print_arena(d->document, arena));
		a->append = (struct store_append){.entries = &a->entry, .entry_count = 1, .on_done = on_added, .owner = a};
		FAIL_POINT(DEFINITION_RECEIVED);
		if (store_append(a->daemon->store, &a->append) == 0)
			return;
		error_set(&error, ERR_BUSY, "%d appends wait for the journal, the limit (STORE_QUEUE_MAX); retry", STORE_QUEUE_MAX);
	}
	api_fail(a->request, &error);
	give_up(a);
}

static void look_up(struct addition *a)
{
	if (!api_read(a->daemon, a->request, look_up_work, a, on_looked_up))
		give_up(a);
}

static void load(struct addition *a)
{
	struct bytes source = buffer_bytes(&a->request->body);
	struct text_positions *positions;

	problems_init(&a->problems);
	if (resources_may_be_files(&a->daemon->config, source)) {
		struct json *document = text_load(&a->request->arena, source, a->format, &positions, &a->problems);
		bool any = document && resources_inline_files(&a->daemon->config, &a->request->arena, document, positions, &a->problems);
		if (any && a->problems.errors == 0)
			a->definition = definition_load_json(document, &a->problems);
		if (a->definition)
			a->definition->source = arena_bytes(&a->definition->arena, source);
		if (any || a->problems.errors > 0)
			return;
	}
	a->definition = definition_load(source, a->format, &a->problems);
}

static void on_compiled(struct expressions_check *check)
{
	struct addition *a = check->owner;

	if (check->error.code == ERR_NONE && a->problems.errors == 0) {
		look_up(a);
		return;
	}
	if (a->problems.errors > 0)
		api_problems(a->request, &a->problems, "definition");
	else
		api_fail_check(a->request, &check->error);
	give_up(a);
}

static void on_loaded(struct addition *a);

/* What was fetched is part of the definition now; its source stays what the author wrote. */
static void on_resolved(struct resources *resources)
{
	struct addition *a = resources->owner;
	struct definition *written = a->definition;
	struct bytes source = arena_bytes(&a->request->arena, written->source);

	if (resources->error.code != ERR_NONE) {
		api_fail(a->request, &resources->error);
		give_up(a);
		return;
	}
	definition_free(written);
	problems_close(&a->problems);
	problems_init(&a->problems);
	a->definition = definition_load_json(resources->result, &a->problems);
	if (a->definition)
		a->definition->source = arena_bytes(&a->definition->arena, source);
	on_loaded(a);
}

static void on_loaded(struct addition *a)
{
	if (a->definition && resources_are_missing(a->definition->document)) {
		a->resources = (struct resources){.activities = a->daemon->activities, .arena = &a->request->arena, .document = a->definition->document, .on_done = on_resolved, .owner = a};
		resources_resolve(&a->resources);
		return;
	}
	if (a->definition) {
		a->check = (struct expressions_check){.pool = a->daemon->jq, .definition = a->definition, .problems = &a->problems, .on_done = on_compiled, .owner = a};
		expressions_check(&a->check);
		return;
	}
	api_problems(a->request, &a->problems, "definition");
	problems_close(&a->problems);
}

static void on_pool(uv_work_t *work)
{
	load(work->data);
}

static void on_pool_done(uv_work_t *work, int status)
{
	(void)status;
	on_loaded(work->data);
}

void api_add_definition(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct addition *a = arena_zero(&request->arena, sizeof *a);

	(void)parameters;
	a->daemon = daemon;
	a->request = request;
	a->work.data = a;
	a->format = api_content_type_is(request, "application/json") ? TEXT_JSON : TEXT_GUESS;
	if (request->body.len > DEFINITION_SOURCE_MAX) {
		struct json *extra = json_object(&request->arena);
		struct error error;
		error_set(&error, ERR_TOO_LARGE, "the definition has %zu bytes, the limit is %d (DEFINITION_SOURCE_MAX)", request->body.len, DEFINITION_SOURCE_MAX);
		json_set_number(&request->arena, extra, "limit", DEFINITION_SOURCE_MAX);
		json_set_number(&request->arena, extra, "size", (double)request->body.len);
		request_problem_at(request, 413, &error, extra);
		return;
	}
	if (request->body.len > API_PARSE_ON_LOOP_MAX || resources_may_be_files(&daemon->config, buffer_bytes(&request->body))) {
		CHECK(uv_queue_work(&daemon->loop, &a->work, on_pool, on_pool_done) == 0);
		return;
	}
	load(a);
	on_loaded(a);
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

struct list_args {
	uint64_t limit, cursor;
};

static void list_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	const struct list_args *args = own->args;
	struct arena *arena = &read->arena;
	struct json *json = json_object(arena), *list = json_array(arena);
	struct store_definition *definitions;
	size_t count;

	if (reader_definitions(reader, arena, args->cursor, args->limit, &definitions, &count, &read->error) != 0)
		return;
	for (size_t i = 0; i < count; i++) {
		struct json *item = definition_json(arena, definitions[i].namespace, definitions[i].name, definitions[i].version, &definitions[i].digest);
		api_set_time(arena, item, "addedAt", definitions[i].added_ms);
		json_add(arena, list, item);
	}
	json_set(arena, json, "definitions", list);
	json_set(arena, json, "cursor", count == args->limit ? json_printf(arena, "%llu", (unsigned long long)definitions[count - 1].seq) : json_null(arena));
	api_print(own, json);
}

void api_list_definitions(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct list_args *args = arena_zero(&request->arena, sizeof *args);

	(void)parameters;
	if (!api_query_number(request, "limit", 1000, STORE_PAGE_MAX, &args->limit) || !api_query_number(request, "cursor", 0, API_SEQ_MAX, &args->cursor))
		return;
	if (args->limit == 0)
		args->limit = 1000;
	api_read(daemon, request, list_work, args, NULL);
}

struct get_args {
	const char *namespace, *name, *version;
	bool as_yaml;
};

static void get_work(struct store_reader *reader, struct store_read *read)
{
	struct api_read *own = read->owner;
	const struct get_args *args = own->args;
	struct arena *arena = &read->arena;
	struct store_definition row;
	struct bytes document, source = {0};

	if (reader_definition(reader, arena, args->namespace, args->name, args->version, &row, &read->error) != 0 ||
	    reader_definition_document(reader, arena, &row.digest, &document, &source, &read->error) != 0) {
		if (read->error.code == ERR_NOT_FOUND)
			error_set(&read->error, ERR_NOT_FOUND, "no definition %s/%s%s%s is registered; reprise definition list shows those that are", args->namespace, args->name,
				  args->version ? ":" : "", args->version ? args->version : "");
		return;
	}
	if (source.data == NULL)
		source = document;
	if (args->as_yaml) {
		own->content_type = "application/yaml";
		buffer_add_bytes(&own->body, source);
		return;
	}
	struct json *json = definition_json(arena, row.namespace, row.name, row.version, &row.digest);
	api_set_time(arena, json, "addedAt", row.added_ms);
	json_set(arena, json, "document", json_parse(arena, document, JSON_STORED, NULL, &read->error));
	if (read->error.code != ERR_NONE)
		return;
	json_set(arena, json, "source", json_text_len(arena, (const char *)source.data, source.len));
	api_print(own, json);
}

void api_get_definition(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct get_args *args = arena_zero(&request->arena, sizeof *args);
	const char *accept = request_header(request, "Accept");
	struct error error;

	*args = (struct get_args){.namespace = parameters[0], .name = parameters[1], .version = parameters[2], .as_yaml = accept && strstr(accept, "application/yaml")};
	if (!id_valid_label(args->namespace) || !id_valid_label(args->name) || (args->version && !id_valid_version(args->version))) {
		error_set(&error, ERR_NOT_FOUND, "%s: not NAMESPACE/NAME/VERSION of a definition", request->path);
		request_problem(request, &error);
		return;
	}
	api_read(daemon, request, get_work, args, NULL);
}
