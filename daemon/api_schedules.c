/* /v1/schedules: workflows that start by themselves. They are added with their definition and end with a version without `schedule`. */
#include <string.h>

#include "daemon/api.h"

void api_list_schedules(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct json *json = json_object(&request->arena);

	(void)parameters;
	json_set(&request->arena, json, "schedules", schedules_json(&daemon->schedules, &request->arena));
	request_answer_json(request, 200, json);
}

void api_get_schedule(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct json *json = schedules_item_json(&daemon->schedules, parameters[0], &request->arena);
	struct error error;

	if (json != NULL) {
		request_answer_json(request, 200, json);
		return;
	}
	error_set(&error, ERR_NOT_FOUND, "there is no schedule %.130s; its id is NAMESPACE.NAME of a definition that was added", parameters[0]);
	request_problem(request, &error);
}

struct controlling {
	struct daemon *daemon;
	struct request *request;
	struct schedule_control control;
};

static void on_controlled(struct schedule_control *control)
{
	struct controlling *own = control->owner;
	struct request *request = own->request;

	if (control->error.code != ERR_NONE) {
		api_fail(request, &control->error);
		return;
	}
	struct json *json = schedules_item_json(&own->daemon->schedules, control->id, &request->arena);
	if (json == NULL)
		json = json_object(&request->arena);
	if (control->verb == SCHEDULE_TRIGGER) {
		json_set_text(&request->arena, json, "run", control->run_id);
		request_add_header(request, "Location", arena_printf(&request->arena, "/v1/runs/%s", control->run_id));
	}
	request_answer_json(request, control->verb == SCHEDULE_TRIGGER ? 201 : 200, json);
}

static void control(struct daemon *daemon, struct request *request, const char *id, enum schedule_verb verb)
{
	struct controlling *own = arena_zero(&request->arena, sizeof *own);
	const char *reason = NULL;
	struct error error = {0};

	if (verb == SCHEDULE_PAUSE ? !api_read_reason(request, &reason) : api_body_object(request, "") == NULL)
		return;
	*own = (struct controlling){
		.daemon = daemon, .request = request,
		.control = {.id = id, .reason = reason, .verb = verb, .on_done = on_controlled, .owner = own},
	};
	if (schedules_control(&daemon->schedules, &own->control, &error) != 0)
		api_fail(request, &error);
}

void api_pause_schedule(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	control(daemon, request, parameters[0], SCHEDULE_PAUSE);
}

void api_resume_schedule(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	control(daemon, request, parameters[0], SCHEDULE_RESUME);
}

void api_trigger_schedule(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	control(daemon, request, parameters[0], SCHEDULE_TRIGGER);
}
