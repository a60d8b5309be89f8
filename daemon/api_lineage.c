/* What follows from a run's journal: going on with a run that has faulted. On the loop. Start at api_retry_run(). */
#include "daemon/api.h"
#include "workflow/base/id.h"

struct retrying {
	struct engine_retry retry;
	struct daemon *daemon;
	struct request *request;
	int64_t wait_ms;
	unsigned include;
	struct budget_amount budget;
};

static void on_retried(struct engine_retry *retry)
{
	struct retrying *own = retry->owner;

	if (retry->error.code == ERR_NOT_FOUND)
		error_set(&retry->error, ERR_NOT_FOUND, "there is no run %s", retry->id);
	if (retry->error.code != ERR_NONE) {
		api_fail(own->request, &retry->error);
		return;
	}
	schedules_on_run_retried(&own->daemon->schedules, retry->id);
	api_wait_for_run(own->daemon, own->request, retry->id, own->wait_ms, own->include, 200);
}

void api_retry_run(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct retrying *own = arena_zero(&request->arena, sizeof *own);
	struct error error;
	const struct json *body, *asked;
	const char *reason;

	if (!api_check_id(request, parameters[0]) || !api_read_include(request, &own->include) || !api_query_wait(request, &own->wait_ms) ||
	    !api_read_command(request, "reason budget", &body, &reason) || !api_read_budget(daemon, request, body, &own->budget, &asked, NULL))
		return;
	/* Only what was said: the rest is as it was, whatever the configuration says now. */
	struct budget_amount said = BUDGET_UNLIMITED;
	budget_take(asked, &said);
	own->budget = said;
	own->daemon = daemon;
	own->request = request;
	own->retry = (struct engine_retry){.id = parameters[0], .reason = reason, .budget = &own->budget, .on_done = on_retried, .owner = own};
	if (engine_retry(daemon->engine, &own->retry, &error) != 0)
		api_fail(request, &error);
}
