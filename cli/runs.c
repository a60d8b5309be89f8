/* What verbs about runs share: submitting, waiting, following, printing. Start at run_wait(). */
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"

enum {
	WAIT_SLICE_MS = 30000, /* one ?wait of the API */
	WAIT_PAUSE_MS = 100, /* between two questions that were answered at once */
	RETRY_PAUSE_MS = 300, /* while the daemon is away */
	FOLLOW_PAGE = 1000,
};

static bool text_is(const char *text, const char *word)
{
	return text != NULL && strcmp(text, word) == 0;
}

bool run_ended(const struct json *run)
{
	const char *status = json_get_text(run, "status");
	return text_is(status, "completed") || text_is(status, "faulted") || text_is(status, "cancelled");
}

int run_exit_status(const struct json *run)
{
	const char *status = json_get_text(run, "status");
	if (text_is(status, "completed"))
		return STATUS_OK;
	if (text_is(status, "cancelled"))
		return text_is(json_get_text(run, "reason"), "killed") || json_get_boolean(run, "killed", false) ? STATUS_KILLED : STATUS_CANCELLED;
	if (!text_is(status, "faulted"))
		return -1;
	/* The workflow's own time-out is the run's; a task's names the task in `instance` (semantics.md 3). */
	const struct json *error = json_get(run, "error");
	const char *instance = json_get_text(error, "instance");
	bool own = instance == NULL || instance[0] == '\0' || strcmp(instance, "/") == 0;
	return json_get_number(error, "status", 0) == 408 && own ? STATUS_TIMED_OUT : STATUS_FAULTED;
}

/* While a run only waits the daemon keeps no record of its times, and answers zeros. */
bool run_has_overhead(const struct json *run)
{
	/* Of one under way, a wait that goes on would count as ours. */
	return json_get(json_get(run, "overhead"), "overheadMs") != NULL && json_get_text(run, "endedAt") != NULL;
}

const char *run_workflow_text(struct command *command, const struct json *run)
{
	const struct json *workflow = json_get(run, "workflow");
	const char *namespace = json_get_text(workflow, "namespace"), *name = json_get_text(workflow, "name"), *version = json_get_text(workflow, "version");
	if (name == NULL)
		return NULL;
	return arena_printf(&command->arena, "%s/%s:%s", namespace == NULL ? "?" : namespace, name, version == NULL ? "?" : version);
}

const char *const stage_names[STAGE_COUNT] = {"admission",  "queue", "journal", "dispatch", "connect", "firstToken",
					      "generation", "parse", "ground",  "sign",     "commit"};

const char *run_wall_text(struct command *command, const struct json *run)
{
	int64_t from, until = clock_wall_ms();
	const char *created = json_get_text(run, "createdAt"), *ended = json_get_text(run, "endedAt");
	if (created == NULL || !time_parse(created, &from) || (ended != NULL && !time_parse(ended, &until)))
		return NULL;
	/* These times are whole milliseconds: no digits that nobody measured. */
	if (until - from < 1)
		return "< 1 ms";
	return until - from < 1000 ? arena_printf(&command->arena, "%lld ms", (long long)(until - from)) : text_milliseconds(&command->arena, (double)(until - from));
}

static char *run_path(struct command *command, const char *id, int64_t wait_ms, const char *include)
{
	struct buffer path;
	buffer_init(&path, 1 << 16);
	buffer_add_text(&path, "/v1/runs/");
	url_add(&path, id);
	if (wait_ms > 0)
		query_add(&path, "wait", arena_printf(&command->arena, "%lldms", (long long)wait_ms));
	query_add(&path, "include", include);
	char *text = arena_text(&command->arena, buffer_text(&path));
	buffer_close(&path);
	return text;
}

int run_submit(struct command *command, const struct json *body, struct json **run)
{
	return run_submit_to(command, "/v1/runs", body, run);
}

int run_submit_to(struct command *command, const char *path, const struct json *body, struct json **run)
{
	struct error error;
	int status = client_ready(command);
	if (status != STATUS_OK)
		return status;
	struct request request = {.method = "POST", .path = path, .body = json_print_arena(body, &command->arena), .accept = "application/json"};
	*run = NULL;
	bool sent = false;
	for (uint64_t give_up_us = clock_us() + COMMAND_OUTAGE_MS_MAX * 1000ull;;) {
		struct reply reply;
		int code = client_send(&command->client, &request, &reply, &error);
		/* The id makes a second try safe: the daemon then answers with the run that is already there. A daemon that never
		 * answered at all is not waited for. */
		sent |= code != 0 && reply.maybe_sent;
		if (code != 0 && code != ERR_TOO_LARGE && sent && clock_us() < give_up_us) {
			reply_close(&reply);
			sleep_ms(RETRY_PAUSE_MS);
			continue;
		}
		if (code != 0)
			status = command_fail_error(command, &error, arena_printf(&command->arena, "%s %s", command->verb->name, json_get_text(body, "id")));
		else if (reply.status != 200 && reply.status != 201)
			status = command_fail_reply(command, &request, &reply);
		else if ((*run = command_parse_reply(command, &reply, &error)) == NULL)
			status = command_fail(command, STATUS_ERROR, NULL, "%s: the answer is not JSON: %s", command->verb->name, error.message);
		reply_close(&reply);
		return status;
	}
}

int run_complete_tasks(struct command *command, struct json *run)
{
	struct json *tasks = json_get(run, "tasks");
	double left = json_get_number(run, "tasksLeftOut", 0);
	while (left > 0 && json_count(tasks) > 0) {
		struct json *page;
		double after = json_get_number(json_at(tasks, json_count(tasks) - 1), "startSeq", 0);
		const char *query = arena_printf(&command->arena, "/tasks?limit=10000&after=%.0f", after);
		int status = command_get(command, path_of(command, "/v1/runs/", json_get_text(run, "id"), query), &page);
		if (status != STATUS_OK)
			return status;
		struct json *more = json_get(page, "tasks");
		left = json_count(more) > 0 ? json_get_number(page, "left", 0) : 0;
		for (size_t i = 0; i < json_count(more); i++)
			json_add(&command->arena, tasks, json_at(more, i));
	}
	json_remove(run, "tasksLeftOut");
	return STATUS_OK;
}

int run_wait(struct command *command, const char *id, int64_t timeout_ms, const char *include, struct json **run)
{
	struct error error;
	uint64_t start_us = clock_us(), heard_us = start_us;
	int status = client_ready(command);
	if (status != STATUS_OK)
		return status;
	for (;;) {
		int64_t left_ms = timeout_ms < 0 ? WAIT_SLICE_MS : timeout_ms - (int64_t)((clock_us() - start_us) / 1000);
		int64_t slice_ms = left_ms > WAIT_SLICE_MS ? WAIT_SLICE_MS : left_ms < 0 ? 0 : left_ms;
		struct request request = {.path = run_path(command, id, slice_ms, include), .accept = "application/json", .timeout_ms = slice_ms + CLIENT_TIMEOUT_MS};
		struct reply reply;
		uint64_t asked_us = clock_us();
		int code = client_send(&command->client, &request, &reply, &error);
		bool away = (code != 0 && code != ERR_TOO_LARGE) || reply.status == 503;
		if (away && command->client.answered && (timeout_ms < 0 || left_ms > 0) && clock_us() - heard_us < COMMAND_OUTAGE_MS_MAX * 1000ull) {
			/* The run is durable and goes on when the daemon is back, so the wait does too. */
			reply_close(&reply);
			sleep_ms(RETRY_PAUSE_MS);
			continue;
		}
		if (code != 0) {
			status = command_fail_error(command, &error, arena_printf(&command->arena, "wait for run %s", id));
		} else if (reply.status != 200) {
			status = command_fail_reply(command, &request, &reply);
		} else if ((*run = command_parse_reply(command, &reply, &error)) == NULL) {
			status = command_fail(command, STATUS_ERROR, NULL, "run %s: the answer is not JSON: %s", id, error.message);
		} else {
			heard_us = clock_us();
			reply_close(&reply);
			if (run_ended(*run))
				return run_complete_tasks(command, *run);
			if (timeout_ms >= 0 && (int64_t)((heard_us - start_us) / 1000) >= timeout_ms)
				return command_fail(command, STATUS_WAIT_TIMEOUT, arena_printf(&command->arena, "it goes on; wait again with: reprise result %s --wait", id),
						    "run %s is %s after the %lld ms of the wait", id, json_get_text(*run, "status"), (long long)timeout_ms);
			if (heard_us - asked_us < WAIT_PAUSE_MS * 1000ull)
				sleep_ms(WAIT_PAUSE_MS);
			continue;
		}
		reply_close(&reply);
		return status;
	}
}

void run_print_error(struct command *command, const struct json *run)
{
	const struct json *error = json_get(run, "error");
	if (!json_is(error, JSON_OBJECT))
		return;
	struct arena *arena = &command->arena;
	const char *type = text_line(arena, json_get_text(error, "type")), *title = text_line(arena, json_get_text(error, "title")), *detail = text_line(arena, json_get_text(error, "detail"));
	const char *instance = json_get_text(error, "instance"), *class = json_get_text(error, "class");
	const char *slash = type == NULL ? NULL : strrchr(type, '/');
	output_note(&command->output, "run %s %s: %s%s%s%s%s%s%s", json_get_text(run, "id"), json_get_text(run, "status"),
		    class != NULL ? class : slash != NULL ? slash + 1 : "error", instance != NULL && *instance != '\0' ? " at " : "", instance == NULL ? "" : instance,
		    title != NULL ? ": " : "", title != NULL ? title : "", detail != NULL ? ": " : "", detail != NULL ? detail : "");
}

static void print_value(struct command *command, const char *name, const struct json *value)
{
	struct buffer text;
	if (value == NULL || json_is(value, JSON_NULL))
		return;
	buffer_init(&text, OUTPUT_JSON_MAX);
	json_print_pretty(value, &text);
	output_coloured(&command->output, COLOUR_BOLD, name);
	output_text(&command->output, json_count(value) > 0 ? "\n" : " ");
	output_text(&command->output, buffer_text(&text));
	output_text(&command->output, text.len > 0 && text.data[text.len - 1] == '\n' ? "" : "\n");
	buffer_close(&text);
}

static const char *iteration_text(struct arena *arena, const struct json *iteration)
{
	struct buffer text;
	buffer_init(&text, 1024);
	for (size_t i = 0; i < json_count(iteration); i++)
		buffer_printf(&text, "%s%s", i == 0 ? "#" : ".", value_text(arena, json_at(iteration, i)));
	const char *result = arena_text(arena, buffer_text(&text));
	buffer_close(&text);
	return result;
}

/* To the millisecond: more of a second nobody reads. */
static const char *number_text(struct arena *arena, double number)
{
	return number == (double)(long long)number ? arena_printf(arena, "%.0f", number) : arena_printf(arena, "%.3f", number);
}

static const char *limit_text(struct arena *arena, const struct json *budget, const char *name)
{
	return json_get(budget, name) != NULL ? arena_printf(arena, " of %s", number_text(arena, json_get_number(budget, name, 0))) : "";
}

void run_print(struct command *command, const struct json *run)
{
	struct output *output = &command->output;
	struct arena *arena = &command->arena;
	const char *status = json_get_text(run, "status");
	const char *wall = run_wall_text(command, run);
	enum { TASKS_SHOWN_MAX = 40, CHILDREN_SHOWN_MAX = 20 };

	output_line(output, "run       %s", json_get_text(run, "id"));
	const char *workflow = run_workflow_text(command, run);
	if (workflow != NULL)
		output_line(output, "workflow  %s", workflow);
	output_text(output, "status    ");
	output_coloured(output, status_colour(status), status == NULL ? "?" : status);
	output_line(output, "%s", "");
	/* Whether it was killed is in the same member; a text of the user's own is what it was ended for. */
	if (json_get_text(run, "reason") != NULL)
		output_line(output, "reason    %s", text_line(arena, json_get_text(run, "reason")));
	if (json_get_text(run, "createdAt") != NULL)
		output_line(output, "created   %s%s%s", output_time(output, arena, json_get_text(run, "createdAt")), wall != NULL ? run_ended(run) ? ", took " : ", for " : "",
			    wall != NULL ? wall : "");
	const struct json *parent = json_get(run, "parent"), *children = json_get(run, "children");
	if (parent != NULL)
		output_line(output, "parent    %s  (%s)", json_get_text(parent, "run"), json_get_text(parent, "step"));
	if (json_count(children) > 0)
		output_line(output, "children  %.0f  (reprise list --parent %s)", (double)json_count(children) + json_get_number(run, "childrenLeftOut", 0), json_get_text(run, "id"));
	for (size_t i = 0; i < json_count(children) && i < CHILDREN_SHOWN_MAX; i++)
		output_line(output, "          %s  %s  %s", json_get_text(json_at(children, i), "id"), json_get_text(json_at(children, i), "status"), json_get_text(json_at(children, i), "step"));
	const struct json *from = json_get(run, "forkedFrom"), *forks = json_get(run, "forks");
	if (from != NULL)
		output_line(output, "fork of   %s  (from %s)", json_get_text(from, "run"), text_line(arena, json_get_text(from, "task")));
	if (json_count(forks) > 0)
		output_line(output, "forks     %.0f  (reprise list --forked-from %s)", (double)json_count(forks) + json_get_number(run, "forksLeftOut", 0), json_get_text(run, "id"));
	const struct json *labels = json_get(run, "labels");
	for (size_t i = 0; json_is(labels, JSON_OBJECT) && i < json_count(labels); i++)
		output_line(output, "label     %s=%s", text_line(arena, labels->object.members[i].name), text_line(arena, value_text(arena, labels->object.members[i].value)));
	const struct json *overhead = json_get(run, "overhead");
	if (run_has_overhead(run))
		output_line(output, "overhead  %s outside the activities (%s in them, %s waiting)", text_milliseconds(arena, json_get_number(overhead, "overheadMs", 0)),
			    text_milliseconds(arena, json_get_number(overhead, "activityMs", 0)), text_milliseconds(arena, json_get_number(overhead, "queuedMs", 0)));
	const struct json *budget = json_get(run, "budget"), *spent = json_get(run, "spent");
	if (spent != NULL)
		output_line(output, "spent     %s tokens%s, %s seconds%s", number_text(arena, json_get_number(spent, "tokens", 0)), limit_text(arena, budget, "tokens"),
			    number_text(arena, json_get_number(spent, "seconds", 0)), limit_text(arena, budget, "seconds"));
	if (json_count(json_get(run, "facts")) > 0)
		output_line(output, "facts     %.0f  (reprise fact list --run %s)", (double)json_count(json_get(run, "facts")) + json_get_number(run, "factsLeftOut", 0), json_get_text(run, "id"));

	const struct json *tasks = json_get(run, "tasks");
	if (json_count(tasks) > 0) {
		static const struct table_column columns[] = {{"TASK", 70, false}, {"STATUS", 0, false}, {"ATTEMPTS", 0, true}};
		struct table table;
		size_t count = json_count(tasks);
		table_init(&table, arena, columns, COUNT_OF(columns));
		for (size_t i = 0; i < count && i < TASKS_SHOWN_MAX; i++) {
			const struct json *task = json_at(tasks, i);
			const char *reference = json_get_text(task, "reference");
			const char *waits_for = json_get_text(task, "waitsFor"), *task_status = json_get_text(task, "status");
			const char *cells[] = {arena_printf(arena, "%s%s", reference == NULL ? "?" : reference, iteration_text(arena, json_get(task, "iteration"))),
					       waits_for != NULL ? arena_printf(arena, "%s (waits: %s)", task_status, waits_for) : task_status, arena_printf(arena, "%.0f", json_get_number(task, "attempts", 0))};
			table_add(&table, cells);
			table_colour(&table, 1, status_colour(task_status));
		}
		table_print(&table, output);
		if (count > TASKS_SHOWN_MAX)
			output_line(output, "… and %zu more tasks (-o json shows all)", count - TASKS_SHOWN_MAX);
		table_close(&table);
	}
	print_value(command, "error", json_get(run, "error"));
	print_value(command, "input", json_get(run, "input"));
	print_value(command, "output", json_get(run, "output"));
}

/* --- following ---------------------------------------------------------------------------------------------------- */

struct following {
	struct command *command;
	run_entry_cb on_entry;
	void *arg;
	uint64_t last;
	bool has_last, stopped;
	bool ended; /* by the last entry so far; the daemon closes the stream when it is the last of all */
	struct arena arena; /* of one entry */
};

static bool entry_ends_run(const char *kind)
{
	return text_is(kind, "run.completed") || text_is(kind, "run.faulted") || text_is(kind, "run.cancelled") || text_is(kind, "run.killed");
}

static bool take_entry(struct following *following, const struct json *entry)
{
	double seq = json_get_number(entry, "seq", -1);
	if (seq >= 0) {
		if (following->has_last && (uint64_t)seq <= following->last)
			return true; /* told twice, around a reconnect */
		following->last = (uint64_t)seq;
		following->has_last = true;
	}
	if (!following->on_entry(following->arg, entry)) {
		following->stopped = true;
		return false;
	}
	const char *kind = json_get_text(entry, "kind");
	following->ended = entry_ends_run(kind);
	return !following->ended || text_is(kind, "run.faulted"); /* behind which others may follow: it may have been retried since */
}

static bool on_stream_event(void *arg, bool has_id, uint64_t id, const char *name, struct bytes data)
{
	struct following *following = arg;
	(void)name;
	struct json *entry = json_parse(&following->arena, data, JSON_ROUND_INTEGERS, NULL, NULL);
	bool more = true;
	if (json_is(entry, JSON_OBJECT) && json_get_text(entry, "kind") != NULL)
		more = take_entry(following, entry);
	if (has_id && (!following->has_last || id > following->last)) {
		following->last = id;
		following->has_last = true;
	}
	arena_close(&following->arena);
	arena_init(&following->arena);
	return more;
}

int run_follow(struct command *command, const char *id, uint64_t after, bool has_after, run_entry_cb on_entry, void *arg)
{
	struct following following = {.command = command, .on_entry = on_entry, .arg = arg, .last = after, .has_last = has_after};
	struct error error;
	uint64_t heard_us = clock_us();
	int status = client_ready(command);
	arena_init(&following.arena);
	while (status == STATUS_OK && !following.ended && !following.stopped) {
		struct buffer path;
		buffer_init(&path, 4096);
		buffer_add_text(&path, path_of(command, "/v1/runs/", id, "/events"));
		/* Both ways to say where to go on: the header is what a stream resumes by, the query what a page takes. */
		if (following.has_last)
			query_add(&path, "after", arena_printf(&command->arena, "%llu", (unsigned long long)following.last));
		struct request request = {.path = buffer_text(&path), .last_event_id = following.last, .has_last_event_id = following.has_last};
		struct reply reply;
		uint64_t before = following.last;
		int code = client_stream(&command->client, &request, on_stream_event, &following, &reply, &error);
		if (code == 0 && reply.status != 200 && reply.status != 503) {
			status = command_fail_reply(command, &request, &reply);
		} else if (code == 0 && reply.status == 200 && strncmp(reply.content_type, "text/event-stream", 17) != 0) {
			status = command_fail(command, STATUS_ERROR, "is this address a Reprise daemon?", "%s: the answer is no event stream", request.path);
		} else if (code == ERR_TOO_LARGE || (code == ERR_UNREACHABLE && !command->client.answered)) {
			status = command_fail_error(command, &error, NULL);
		} else if (!following.ended && !following.stopped) {
			/* The stream broke or the daemon closed it: go on behind the last entry that was seen. */
			if (reply.status == 200 || following.last != before)
				heard_us = clock_us();
			if (clock_us() - heard_us > COMMAND_OUTAGE_MS_MAX * 1000ull)
				status = command_fail(command, STATUS_UNREACHABLE,
						      arena_printf(&command->arena, "go on with: reprise events %s -f --after %llu", id, (unsigned long long)following.last),
						      "events of run %s: the daemon at %s has been away for %d s", id, client_place(&command->client), COMMAND_OUTAGE_MS_MAX / 1000);
			else
				sleep_ms(RETRY_PAUSE_MS);
		}
		reply_close(&reply);
		buffer_close(&path);
	}
	arena_close(&following.arena);
	return status;
}

struct json *make_call_definition(struct arena *arena, const char *name, const char *task, const char *function, struct json *with, struct json *schema)
{
	struct json *definition = json_object(arena), *document = json_object(arena), *resource = json_object(arena), *call = json_object(arena);
	struct json *item = json_object(arena), *list = json_array(arena);
	json_set_text(arena, document, "dsl", "1.0.3");
	json_set_text(arena, document, "namespace", "reprise");
	json_set_text(arena, document, "name", name);
	json_set_text(arena, document, "version", "1.0.0");
	json_set(arena, resource, "document", schema);
	json_set(arena, with, "schema", resource);
	json_set_text(arena, call, "call", function);
	json_set(arena, call, "with", with);
	json_set(arena, item, task, call);
	json_add(arena, list, item);
	json_set(arena, definition, "document", document);
	json_set(arena, definition, "do", list);
	return definition;
}

int check_runtime(struct command *command, const char *name)
{
	struct json *answer;

	if (name[0] == '\0' || !utf8_valid(bytes_text(name), NULL))
		return command_fail(command, STATUS_USAGE, "reprise runtime list shows them", "the runtime's name is %s", name[0] == '\0' ? "empty" : "not UTF-8");
	return command_get(command, path_of(command, "/v1/runtimes/", name, ""), &answer);
}

int choose_runtime(struct command *command, const char **runtime)
{
	struct json *answer;
	*runtime = command_option(command, "runtime");
	if (*runtime != NULL)
		return check_runtime(command, *runtime);
	int status = command_get(command, "/v1/runtimes", &answer);
	if (status != STATUS_OK)
		return status;
	const struct json *runtimes = json_get(answer, "runtimes");
	if (json_count(runtimes) == 1 && json_get_text(json_at(runtimes, 0), "name") != NULL) {
		*runtime = json_get_text(json_at(runtimes, 0), "name");
		return STATUS_OK;
	}
	if (json_count(runtimes) == 0)
		return command_fail(command, STATUS_ERROR, "add one under `runtimes:` in the daemon's configuration", "the daemon knows no runtime");
	struct buffer list;
	buffer_init(&list, 4096);
	for (size_t i = 0; i < json_count(runtimes); i++)
		buffer_printf(&list, "%s%s", i == 0 ? "" : ", ", json_get_text(json_at(runtimes, i), "name"));
	status = command_fail(command, STATUS_USAGE, arena_printf(&command->arena, "one of: %s", buffer_text(&list)), "the daemon knows several runtimes: name one with --runtime");
	buffer_close(&list);
	return status;
}

int run_status_option(struct command *command, const char **word)
{
	static const char *const statuses[] = {"pending", "running", "waiting", "suspended", "cancelled", "faulted", "completed"};
	*word = command_option(command, "status");
	for (size_t i = 0; i < COUNT_OF(statuses); i++)
		if (*word == NULL || strcmp(statuses[i], *word) == 0)
			return STATUS_OK;
	return command_fail(command, STATUS_USAGE, "one of: pending, running, waiting, suspended, cancelled, faulted, completed", "--status %s is unknown", *word);
}

int run_show_outcome(struct command *command, const char *id, struct json *run, int64_t timeout_ms)
{
	bool wait = command_flag(command, "wait");
	int status = STATUS_OK;

	if (wait) {
		const char *include = command->output.format == FORMAT_TEXT ? "output" : command->output.format == FORMAT_IDS ? NULL : "all";
		if ((status = run_wait(command, id, timeout_ms, include, &run)) != STATUS_OK)
			return status;
		status = run_exit_status(run);
	}
	switch (command->output.format) {
	case FORMAT_JSON:
	case FORMAT_JSONL:
		output_json(&command->output, run);
		break;
	case FORMAT_IDS:
		output_line(&command->output, "%s", id);
		break;
	case FORMAT_TEXT:
		if (wait)
			run_print(command, run);
		else
			output_line(&command->output, "%s  %s  %s", id, json_get_text(run, "status"), run_workflow_text(command, run));
		break;
	}
	if (status != STATUS_OK)
		run_print_error(command, run);
	return status;
}
