/* POST /v1/journal/purge and /compact: what is taken out of the journal because somebody says so. The writer works it off between the
 * commits of others (store/retention.c); the answer comes when it is done. */
#include "daemon/api.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/id.h"

struct purging {
	struct daemon *daemon;
	struct request *request;
	struct store_purge purge;
};

static void on_purged(struct store_purge *purge)
{
	struct purging *own = purge->owner;
	struct request *request = own->request;
	const struct {
		const char *name;
		uint64_t number;
	} numbers[] = {
		{"runs", purge->removed_runs}, {"values", purge->removed_values}, {"entries", purge->pruned_entries}, {"pages", purge->given_pages},
	};

	if (purge->error.code != ERR_NONE) {
		api_fail(request, &purge->error);
		return;
	}
	engine_forget_removed(own->daemon->engine);
	struct json *json = json_object(&request->arena);
	for (size_t i = 0; i < COUNT_OF(numbers); i++)
		json_set_number(&request->arena, json, numbers[i].name, (double)numbers[i].number);
	request_answer_json(request, 200, json);
}

static void begin(struct daemon *daemon, struct request *request, struct purging *own)
{
	struct error error;

	own->daemon = daemon;
	own->request = request;
	own->purge.on_done = on_purged;
	own->purge.owner = own;
	if (store_purge(daemon->store, &own->purge) == 0)
		return;
	error_set(&error, ERR_BUSY, "%d requests to take something away wait already (STORE_PURGES_MAX)", STORE_PURGES_MAX);
	api_busy(request, &error);
}

/* False: answered. */
static bool read_runs(struct request *request, const struct json *runs, struct store_purge *purge)
{
	size_t count = json_count(runs);

	if (!json_is(runs, JSON_ARRAY) || count == 0 || count > STORE_PURGE_RUNS_MAX) {
		api_invalid(request, "runs: expected a list of 1 to %d ids (STORE_PURGE_RUNS_MAX)", STORE_PURGE_RUNS_MAX);
		return false;
	}
	const char **ids = arena_alloc(&request->arena, count * sizeof *ids);
	for (size_t i = 0; i < count; i++) {
		if (!json_is(json_at(runs, i), JSON_STRING) || !id_valid(json_at(runs, i)->string.text)) {
			api_invalid(request, "runs[%zu]: not an id of a run", i);
			return false;
		}
		ids[i] = json_at(runs, i)->string.text;
	}
	purge->kind = STORE_PURGE_RUNS;
	purge->runs = ids;
	purge->run_count = count;
	return true;
}

static void on_body(struct api_body *taken)
{
	struct request *request = taken->request;
	struct purging *own = arena_zero(&request->arena, sizeof *own);
	const struct json *body = taken->json;
	const struct json *runs = json_get(body, "runs"), *content = json_get(body, "content"), *reason = json_get(body, "reason");
	if (!json_is(reason, JSON_STRING) || reason->string.len == 0 || reason->string.len > REASON_MAX) {
		api_invalid(request, "reason: say why, in 1 to %d bytes; it is kept in the journal", REASON_MAX);
		return;
	}
	if ((runs != NULL) == (content != NULL)) {
		api_invalid(request, "give either runs, a list of ids, or content, the digest of a value");
		return;
	}
	own->purge.reason = json_print_arena(reason, &request->arena);
	if (runs != NULL && !read_runs(request, runs, &own->purge))
		return;
	if (content != NULL) {
		own->purge.kind = STORE_PURGE_CONTENT;
		if (!json_is(content, JSON_STRING) || !digest_parse(content->string.text, &own->purge.content)) {
			api_invalid(request, "content: not a digest (sha256: and 64 hex digits)");
			return;
		}
	}
	begin(taken->daemon, request, own);
}

void api_purge_journal(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct api_body *body = arena_zero(&request->arena, sizeof *body);

	(void)parameters;
	*body = (struct api_body){.daemon = daemon, .request = request, .names = "runs content reason", .on_done = on_body};
	api_take_body(body);
}

void api_compact_journal(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct purging *own = arena_zero(&request->arena, sizeof *own);

	(void)parameters;
	if (!api_body_object(request, ""))
		return;
	own->purge.kind = STORE_PURGE_DUE;
	begin(daemon, request, own);
}
