/* What is done with the journal as a whole: a backup. Thread: loop; the copying is the store's own thread. */
#include <stdlib.h>
#include <string.h>

#include "daemon/api.h"
#include "workflow/base/check.h"

/* --- backup ------------------------------------------------------------------------------------------------------- */

static const char *backup_state(const struct backup_job *job)
{
	if (job->is_running)
		return atomic_load(&job->backup.stage) == STORE_BACKUP_COPYING ? "copying" : "verifying";
	return job->backup.error.code == ERR_NONE ? "completed" : job->backup.error.code == ERR_CANCELLED ? "cancelled" : "failed";
}

static struct json *backup_json(const struct backup_job *job, struct arena *arena)
{
	struct json *json = json_object(arena), *error = json_object(arena);

	json_set_text(arena, json, "path", job->path);
	json_set_text(arena, json, "state", backup_state(job));
	api_set_time(arena, json, "startedAt", job->started_ms);
	json_set_number(arena, json, "pages", (double)atomic_load(&job->backup.pages));
	json_set_number(arena, json, "pagesDone", (double)atomic_load(&job->backup.pages_done));
	if (job->is_running)
		return json;
	api_set_time(arena, json, "endedAt", job->ended_ms);
	if (job->backup.error.code == ERR_NONE) {
		json_set_number(arena, json, "bytes", (double)job->backup.bytes);
		json_set_number(arena, json, "entries", (double)job->backup.entries);
		json_set_number(arena, json, "checkpointSize", (double)job->backup.checkpoint);
		api_set_digest(arena, json, "root", &job->backup.root);
	} else {
		json_set_text(arena, error, "type", error_code_name(job->backup.error.code));
		json_set_number(arena, error, "status", error_code_http_status(job->backup.error.code));
		json_set_text(arena, error, "detail", job->backup.error.message);
		json_set(arena, json, "error", error);
	}
	return json;
}

static void on_backup(struct store_backup *backup)
{
	struct backup_job *job = backup->owner;

	job->is_running = false;
	job->ended_ms = clock_wall_ms();
}

void api_begin_backup(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct backup_job *job = &daemon->backup;
	struct json *body = api_body_object(request, "path");
	struct error error;

	(void)parameters;
	if (!body)
		return;
	const char *path = json_get_text(body, "path");
	if (!path || *path != '/' || strlen(path) >= BACKUP_PATH_MAX) {
		api_invalid(request, "path: an absolute path of at most %d bytes, on the daemon's side", BACKUP_PATH_MAX - 1);
		return;
	}
	if (job->is_running) {
		error_set(&error, ERR_BUSY, "a backup to %s is under way: wait for it, or cancel it (reprise journal backup --cancel)", job->path);
		api_busy(request, &error);
		return;
	}
	free(job->path);
	job->path = memory_text(path);
	job->backup.path = job->path;
	job->backup.on_done = on_backup;
	job->backup.owner = job;
	job->started_ms = clock_wall_ms();
	job->ended_ms = 0;
	if (store_backup(daemon->store, &job->backup) != 0) {
		free(job->path);
		job->path = NULL;
		error_set(&error, ERR_BUSY, "the journal is closing, or too many ask for a checkpoint; retry");
		api_busy(request, &error);
		return;
	}
	job->is_running = true;
	request_answer_json(request, 202, backup_json(job, &request->arena));
}

void api_get_backup(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct error error;

	(void)parameters;
	if (daemon->backup.path) {
		request_answer_json(request, 200, backup_json(&daemon->backup, &request->arena));
		return;
	}
	error_set(&error, ERR_NOT_FOUND, "no backup was begun since the daemon started");
	request_problem(request, &error);
}

void api_cancel_backup(struct daemon *daemon, struct request *request, const char *const *parameters)
{
	struct error error;

	(void)parameters;
	if (!api_body_object(request, ""))
		return;
	if (!daemon->backup.is_running) {
		error_set(&error, ERR_NOT_FOUND, "no backup is under way");
		request_problem(request, &error);
		return;
	}
	store_backup_cancel(daemon->store);
	request_answer_json(request, 202, backup_json(&daemon->backup, &request->arena));
}
