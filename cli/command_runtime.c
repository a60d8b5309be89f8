/* reprise runtime list | show | probe | start | stop | reload. */
#include <string.h>

#include "cli/command.h"

enum { LOOK_MS = 100 /* between two looks how far a runtime is */ };

static const char *count_text(struct arena *arena, const struct json *object, const char *name)
{
	return json_get(object, name) == NULL ? NULL : arena_printf(arena, "%.0f", json_get_number(object, name, 0));
}

/* Of one that the daemon launches, or whose model it loads; NULL: neither. */
static const struct json *ordered(const struct json *runtime)
{
	const struct json *launch = json_get(runtime, "launch");
	return launch != NULL ? launch : json_get(runtime, "load");
}

static void runtime_cells(struct command *command, const struct json *item, const char **cells)
{
	struct arena *arena = &command->arena;
	const char *in_flight = count_text(arena, item, "inFlight"), *concurrency = count_text(arena, item, "concurrency"), *kind = json_get_text(item, "kind");
	cells[0] = json_get_text(item, "name");
	/* A simulator behind another kind says so. */
	cells[1] = json_get_boolean(item, "simulated", false) && strcmp(kind, "simulator") != 0 ? arena_printf(arena, "%s (simulated)", kind) : kind;
	/* That state says more: it may be starting, or have been refused. Of a model that is loaded it says nothing new. */
	const char *state = json_get_text(ordered(item), "state");
	cells[2] = state != NULL && (json_get(item, "launch") != NULL || strcmp(state, "ready") != 0) ? state : json_get_text(item, "status");
	cells[3] = in_flight == NULL ? NULL : arena_printf(arena, "%s of %s", in_flight, concurrency == NULL ? "?" : concurrency);
	cells[4] = count_text(arena, item, "waiting");
	cells[5] = json_get_text(item, "model");
	cells[6] = json_get_text(item, "url");
}

int command_runtime_list(struct command *command)
{
	static const struct table_column columns[] = {{"NAME", 0, false}, {"KIND", 0, false}, {"STATUS", 0, false}, {"IN FLIGHT", 0, true}, {"WAITING", 0, true},
						      {"MODEL", 40, false}, {"URL", 0, false}};
	struct json *answer;
	int status = command_get(command, "/v1/runtimes", &answer);
	if (status == STATUS_OK)
		command_print_list(command, answer, "runtimes", columns, sizeof columns / sizeof *columns, runtime_cells);
	return status;
}

/* Members one a line; deeper ones as JSON. */
static void print_runtime(struct command *command, const struct json *runtime)
{
	for (size_t i = 0; json_is(runtime, JSON_OBJECT) && i < runtime->object.count; i++) {
		const struct json_member *member = &runtime->object.members[i];
		if (json_count(member->value) == 0) {
			output_line(&command->output, "%-17s %s", member->name, value_text(&command->arena, member->value));
		} else {
			output_line(&command->output, "%s", member->name);
			enum output_format format = command->output.format;
			command->output.format = FORMAT_JSON;
			output_json(&command->output, member->value);
			command->output.format = format;
		}
	}
}

static void print_probe(struct command *command, const struct json *answer)
{
	const struct json *models = json_get(answer, "models");
	output_line(&command->output, "%s%s  %s", json_get_text(answer, "name"), json_get_boolean(answer, "simulated", false) ? " (simulated)" : "", json_get_text(answer, "digest"));
	for (size_t i = 0; i < json_count(models); i++)
		output_line(&command->output, "serves %s", value_text(&command->arena, json_get(json_at(models, i), "id")));
	command_print_record(command, json_get(answer, "configuration"));
}

static int print_answer(struct command *command, const struct json *answer)
{
	if (command->output.format == FORMAT_TEXT && json_get(answer, "record") == NULL && json_is(json_get(answer, "configuration"), JSON_OBJECT))
		print_probe(command, answer);
	else if (command->output.format == FORMAT_TEXT)
		print_runtime(command, answer);
	else if (command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s", command->arguments[0]);
	else
		output_json(&command->output, answer);
	return STATUS_OK;
}

/* The log's lines as they are, under all else. */
static void print_launched(struct command *command, const struct json *runtime)
{
	static const char *const names[] = {"state", "since", "detail", "pid", "instance", "startedAt", "adopted", "starts", "restarts", "logFile"};
	const struct json *launch = json_get(runtime, "launch"), *refusal = json_get(launch, "refusal"), *log = json_get(launch, "log"), *watches = json_get(launch, "watchdog");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (json_get(launch, names[i]) != NULL)
			output_line(&command->output, "%-17s %s", names[i], value_text(&command->arena, json_get(launch, names[i])));
	if (refusal != NULL) {
		output_line(&command->output, "%-17s %s", "refused for", json_get_text(refusal, "class"));
		output_line(&command->output, "%-17s %s", "cause", json_get_text(refusal, "line"));
		if (json_get_text(refusal, "advice") != NULL)
			output_line(&command->output, "%-17s %s", "what helps", json_get_text(refusal, "advice"));
	}
	for (size_t i = 0; i < json_count(watches); i++) {
		const struct json *watch = json_at(watches, i), *samples = json_get(watch, "samples"), *alarm = json_get(watch, "alarm");
		output_line(&command->output, "%-17s %s: %s of %.0f%s%s%s", "watchdog", json_get_text(watch, "probe"),
			    json_count(samples) == 0 ? "no sample" : arena_printf(&command->arena, "%.0f", json_get_number(json_at(samples, json_count(samples) - 1), "value", 0)),
			    json_get_number(watch, "limit", 0),
			    json_get_boolean(watch, "grow", false) ? arena_printf(&command->arena, " on top of %.0f", json_get_number(watch, "baseline", 0)) : "",
			    alarm != NULL ? "; sees nothing: " : "", alarm != NULL ? alarm->string.text : "");
	}
	if (json_count(log) > 0)
		output_line(&command->output, "log");
	for (size_t i = 0; i < json_count(log); i++)
		output_line(&command->output, "  %s", json_at(log, i)->string.text);
}

static void print_limit(struct command *command, const char *label, const struct json *budget, const char *name, const char *left, const char *unit)
{
	if (json_get(budget, name) != NULL)
		output_line(&command->output, "%-17s %.15g %s a day, %.15g left until %s", label, json_get_number(budget, name, 0), unit, json_get_number(budget, left, 0),
			    json_get_text(budget, "until"));
}

/* Earlier days are for who asks for JSON. */
static void print_spending(struct command *command, const struct json *runtime)
{
	const struct json *today = json_get(runtime, "today"), *budget = json_get(runtime, "budget");
	output_line(&command->output, "%-17s %.15g tokens, %.15g s", "today", json_get_number(today, "tokens", 0), json_get_number(today, "seconds", 0));
	print_limit(command, "budget", budget, "tokens", "tokensLeft", "tokens");
	print_limit(command, "budget", budget, "seconds", "secondsLeft", "s");
}

int command_runtime_show(struct command *command)
{
	struct json *answer;
	int status = command_get(command, path_of(command, "/v1/runtimes/", command->arguments[0], ""), &answer);
	if (status != STATUS_OK || command->output.format != FORMAT_TEXT)
		return status != STATUS_OK ? status : print_answer(command, answer);
	struct json *plain = json_copy(&command->arena, answer);
	json_remove(plain, "launch");
	json_remove(plain, "today");
	json_remove(plain, "budget");
	json_remove(plain, "spending");
	print_runtime(command, plain);
	print_spending(command, answer);
	if (json_get(answer, "launch") != NULL)
		print_launched(command, answer);
	return STATUS_OK;
}

static bool is_state(const struct json *runtime, const char *state)
{
	const char *text = json_get_text(ordered(runtime), "state");
	return text != NULL && strcmp(text, state) == 0;
}

/* Until what was asked for has come about, or will not; left_ms: -1 without a limit. */
static int await_state(struct command *command, const char *state, int64_t left_ms, struct json **runtime)
{
	const char *name = command->arguments[0];
	bool limited = left_ms >= 0;
	int status = STATUS_OK;
	for (; status == STATUS_OK; left_ms -= LOOK_MS) {
		if (is_state(*runtime, state))
			return STATUS_OK;
		if (is_state(*runtime, "refused") || is_state(*runtime, "failed") || (strcmp(state, "ready") == 0 && is_state(*runtime, "stopped"))) {
			const char *detail = json_get_text(ordered(*runtime), "detail");
			return command_fail(command, STATUS_ERROR, json_get(*runtime, "launch") != NULL ? arena_printf(&command->arena, "reprise runtime show %s shows its log", name) : NULL, "runtime %s is %s%s%s", name,
					    json_get_text(ordered(*runtime), "state"), detail != NULL ? ": " : "", detail != NULL ? detail : "");
		}
		if (limited && left_ms <= 0)
			return command_fail(command, STATUS_WAIT_TIMEOUT, arena_printf(&command->arena, "reprise runtime show %s shows how far it is", name), "runtime %s is not %s yet", name, state);
		sleep_ms(LOOK_MS);
		status = command_get(command, path_of(command, "/v1/runtimes/", name, ""), runtime);
	}
	return status;
}

static int order(struct command *command, const char *verb, const char *state)
{
	struct json *answer, *body = json_object(&command->arena);
	const char *name = command->arguments[0], *reason = command_option(command, "reason");
	int64_t timeout_ms;
	int status = command_read_wait(command, &timeout_ms);
	if (status != STATUS_OK)
		return status;
	if (reason != NULL && !utf8_valid(bytes_text(reason), NULL))
		return command_fail(command, STATUS_USAGE, NULL, "--reason: not UTF-8");
	if (strcmp(verb, "start") != 0 && !command_confirm(command, "%s runtime %s: what is in flight there is tried again later?", strcmp(verb, "stop") == 0 ? "Stop" : "Reload", name))
		return STATUS_ERROR;
	json_set_text(&command->arena, body, "reason", reason);
	status = command_post(command, path_of(command, "/v1/runtimes/", name, arena_printf(&command->arena, "/%s", verb)), body, &answer);
	if (status == STATUS_OK && command_flag(command, "wait"))
		status = await_state(command, state, timeout_ms, &answer);
	if (status != STATUS_OK || command->output.format != FORMAT_TEXT)
		return status != STATUS_OK ? status : print_answer(command, answer);
	output_line(&command->output, "%s", json_get_text(ordered(answer), "state"));
	return STATUS_OK;
}

int command_runtime_start(struct command *command)
{
	return order(command, "start", "ready");
}

int command_runtime_stop(struct command *command)
{
	return order(command, "stop", "stopped");
}

int command_runtime_reload(struct command *command)
{
	return order(command, "reload", "ready");
}

int command_runtime_probe(struct command *command)
{
	struct json *answer;
	int status = command_post(command, path_of(command, "/v1/runtimes/", command->arguments[0], "/probe"), NULL, &answer);
	if (status != STATUS_OK)
		return status;
	print_answer(command, answer);
	if (!json_get_boolean(answer, "reachable", true)) {
		output_note(&command->output, "runtime %s does not answer: is it started, and is its url right?", command->arguments[0]);
		return STATUS_ERROR;
	}
	if (json_is(json_get(answer, "models"), JSON_ARRAY) && json_count(json_get(answer, "models")) == 0)
		output_note(&command->output, "what answers there named no model: is its url right, and its kind?");
	return STATUS_OK;
}
