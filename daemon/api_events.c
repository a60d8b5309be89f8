/* POST /v1/events: a CloudEvent comes in. It is answered when it is durable; what follows from it comes after that. */
#include <strings.h>

#include "daemon/api.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/language/cloud_event.h"

static const char structured_type[] = "application/cloudevents";
static const char batch_type[] = "application/cloudevents-batch";

struct incoming {
	struct daemon *daemon;
	struct request *request;
	bool is_structured;
	const char *content_type;
	struct cloud_event_header headers[2 * CLOUD_EVENT_ATTRIBUTES_MAX];
	size_t header_count;
	bool too_many_headers;

	uv_work_t work;
	struct error error;
	struct cloud_event event;
	struct entry entry;
	struct store_append append;
	uint64_t seq;
};

static void answer(struct incoming *incoming, bool is_duplicate)
{
	struct arena *arena = &incoming->request->arena;
	struct json *json = json_object(arena);

	json_set_text(arena, json, "id", incoming->event.id);
	json_set_text(arena, json, "source", incoming->event.source);
	json_set_number(arena, json, "seq", (double)incoming->seq);
	json_set_boolean(arena, json, "duplicate", is_duplicate);
	request_answer_json(incoming->request, is_duplicate ? 200 : 201, json);
}

static void find_work(struct store_reader *reader, struct store_read *read)
{
	struct incoming *incoming = ((struct api_read *)read->owner)->args;

	reader_event_find(reader, &incoming->event.key, &incoming->seq, &read->error);
}

static void on_found(struct api_read *own)
{
	struct incoming *incoming = own->args;
	struct error error = own->read.error;

	buffer_close(&own->body);
	if (error.code == ERR_NOT_FOUND) /* it was forgotten in this very moment */
		error_set(&error, ERR_BUSY, "the event was known and has just been forgotten; send it again");
	if (error.code != ERR_NONE)
		api_fail(incoming->request, &error);
	else
		answer(incoming, true);
}

static void on_added(struct store_append *append)
{
	struct incoming *incoming = append->owner;
	struct error error = append->error;

	FAIL_POINT(EVENT_RECORDED);
	if (error.code == ERR_EXISTS) {
		api_read(incoming->daemon, incoming->request, find_work, incoming, on_found);
		return;
	}
	if (error.code != ERR_NONE) {
		api_fail(incoming->request, &error);
		return;
	}
	struct daemon *daemon = incoming->daemon;
	incoming->seq = incoming->entry.seq;
	answer(incoming, false);
	event_hub_wake(daemon->hub);
}

/* Pure: may run on the pool. */
static void examine(struct incoming *incoming)
{
	struct arena *arena = &incoming->request->arena;
	struct bytes body = buffer_bytes(&incoming->request->body);
	int status;

	if (incoming->is_structured)
		status = cloud_event_parse(arena, body, &incoming->event, &incoming->error);
	else
		status = cloud_event_from_headers(arena, incoming->headers, incoming->header_count, incoming->content_type, body, &incoming->event, &incoming->error);
	if (status != 0)
		return;
	incoming->entry = (struct entry){.kind = ENTRY_EVENT_RECEIVED, .data = json_object(arena)};
	json_set_digest(arena, incoming->entry.data, "key", &incoming->event.key);
	entry_add_value(arena, &incoming->entry, "event", incoming->event.bytes);
}

static void on_examined(struct incoming *incoming)
{
	if (incoming->error.code == ERR_UNSUPPORTED) {
		request_problem_at(incoming->request, 415, &incoming->error, NULL);
		return;
	}
	if (incoming->error.code == ERR_NONE) {
		incoming->entry.time_ms = clock_wall_ms();
		incoming->append = (struct store_append){.entries = &incoming->entry, .entry_count = 1, .on_done = on_added, .owner = incoming};
		FAIL_POINT(EVENT_RECEIVED);
		if (store_append(incoming->daemon->store, &incoming->append) == 0)
			return;
		error_set(&incoming->error, ERR_BUSY, "%d appends wait for the journal, the limit (STORE_QUEUE_MAX); send the event again", STORE_QUEUE_MAX);
	}
	api_fail(incoming->request, &incoming->error);
}

static void on_pool(uv_work_t *work)
{
	examine(work->data);
}

static void on_pool_done(uv_work_t *work, int status)
{
	(void)status;
	on_examined(work->data);
}

static void add_header(void *arg, const char *name, const char *value)
{
	struct incoming *incoming = arg;

	if (strncasecmp(name, "ce-", 3) != 0)
		return;
	if (incoming->header_count == COUNT_OF(incoming->headers)) {
		incoming->too_many_headers = true;
		return;
	}
	incoming->headers[incoming->header_count++] = (struct cloud_event_header){.name = name, .value = value};
}

/* The binding tells the modes apart by the content type. JSON without any ce- header is taken as structured too: it can be nothing
 * else, and it is what one types. */
void api_add_event(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct incoming *incoming = arena_zero(&request->arena, sizeof *incoming);
	const char *type = request_header(request, "Content-Type");
	struct error error;

	(void)parameters;
	incoming->daemon = daemon;
	incoming->request = request;
	incoming->content_type = type;
	incoming->work.data = incoming;
	request_each_header(request, add_header, incoming);
	if (type && strncasecmp(type, batch_type, sizeof batch_type - 1) == 0) {
		error_set(&error, ERR_UNSUPPORTED, "batches of CloudEvents are not supported; send one event at a time");
		request_problem_at(request, 415, &error, NULL);
		return;
	}
	if (type && strncasecmp(type, structured_type, sizeof structured_type - 1) == 0 && !api_content_type_is(request, "application/cloudevents+json")) {
		error_set(&error, ERR_UNSUPPORTED, "Content-Type %.100s: structured events are taken as application/cloudevents+json", type);
		request_problem_at(request, 415, &error, NULL);
		return;
	}
	incoming->is_structured = api_content_type_is(request, "application/cloudevents+json") ||
				  (incoming->header_count == 0 && (!type || api_content_type_is(request, "application/json") || api_content_type_is(request, "application/x-www-form-urlencoded")));
	if (!incoming->is_structured && incoming->header_count == 0) {
		error_set(&error, ERR_UNSUPPORTED, "neither Content-Type: application/cloudevents+json nor ce-… headers: this is no CloudEvent");
		request_problem_at(request, 415, &error, NULL);
		return;
	}
	if (incoming->too_many_headers) {
		error_set(&error, ERR_TOO_LARGE, "CloudEvent: more than %d attributes", CLOUD_EVENT_ATTRIBUTES_MAX);
		request_problem(request, &error);
		return;
	}
	if (request->body.len > API_PARSE_ON_LOOP_MAX) {
		CHECK(uv_queue_work(&daemon->loop, &incoming->work, on_pool, on_pool_done) == 0);
		return;
	}
	examine(incoming);
	on_examined(incoming);
}
