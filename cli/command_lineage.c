/* reprise retry: go on with runs that have faulted. reprise fork: the same run once more, from one of its tasks on. */
#include <string.h>

#include "cli/command.h"
#include "workflow/base/id.h"

int command_retry(struct command *command)
{
	struct json *body = json_object(&command->arena);
	const char **ids, *reason = command_option(command, "reason");
	size_t count;
	int64_t timeout_ms;
	int worst = STATUS_OK, status = command_read_wait(command, &timeout_ms);

	if (status != STATUS_OK || (status = command_read_budget(command, body)) != STATUS_OK || (status = command_read_ids(command, 0, &ids, &count)) != STATUS_OK)
		return status;
	if (reason != NULL && !utf8_valid(bytes_text(reason), NULL))
		return command_fail(command, STATUS_USAGE, NULL, "--reason: not UTF-8");
	json_set_text(&command->arena, body, "reason", reason);
	struct json **runs = arena_zero(&command->arena, (count + 1) * sizeof *runs);
	for (size_t i = 0; i < count; i++) { /* first all are asked for, then waited for: they go on side by side */
		status = command_post(command, path_of(command, "/v1/runs/", ids[i], "/retry"), body, &runs[i]);
		if (status == STATUS_UNREACHABLE || status == STATUS_DENIED)
			return status;
		if (status == STATUS_OK)
			continue;
		runs[i] = NULL; /* one that cannot be gone on with does not hold up the others */
		worst = status > worst ? status : worst;
	}
	for (size_t i = 0; i < count; i++)
		if (runs[i] != NULL && (status = run_show_outcome(command, ids[i], runs[i], timeout_ms)) != STATUS_OK)
			worst = status > worst ? status : worst;
	return worst;
}

/* JSON, else a text; @FILE: the text of a file. */
static int read_set_value(struct command *command, const char *option, const char *text, struct json **value)
{
	struct bytes bytes = bytes_text(text);

	if (*text == '@') {
		int status = command_read_file(command, text + 1, &bytes);
		if (status != STATUS_OK)
			return status;
	} else {
		*value = json_parse(&command->arena, bytes, JSON_STRICT, NULL, NULL);
		if (*value != NULL)
			return STATUS_OK;
	}
	if (!utf8_valid(bytes, NULL) || memchr(bytes.data, 0, bytes.len) != NULL)
		return command_fail(command, STATUS_USAGE, NULL, "--set %s: the value is no UTF-8 text", option);
	*value = json_text_len(&command->arena, (const char *)bytes.data, bytes.len);
	return STATUS_OK;
}

/* "runtime=b", "sampling.temperature=0", "/do/2/judge:runtime=b": members of `with`, dots lead inwards; of the task that the fork begins with, or of another. */
static int read_set(struct command *command, const char *text, struct json *body)
{
	struct arena *arena = &command->arena;
	const char *equals = strchr(text, '='), *key = text;
	struct json *value, *object, *tasks = json_get(body, "tasks");

	if (equals == NULL || equals == text || !utf8_valid(bytes_text(text), NULL))
		return command_fail(command, STATUS_USAGE, "examples: runtime=other, sampling.temperature=0, /do/2/judge:runtime=other", "--set %s: KEY=VALUE is meant", text);
	int status = read_set_value(command, text, equals + 1, &value);
	if (status != STATUS_OK)
		return status;
	if (*key == '/') {
		const char *colon = memrchr(text, ':', (size_t)(equals - text));
		if (colon == NULL)
			return command_fail(command, STATUS_USAGE, "example: /do/2/judge:runtime=other", "--set %s: behind the task's reference a colon and the member are meant", text);
		if (tasks == NULL) {
			tasks = json_object(arena);
			json_set(arena, body, "tasks", tasks);
		}
		key = colon + 1;
		const char *reference = arena_text_len(arena, text, (size_t)(colon - text));
		object = json_get(tasks, reference);
		if (object == NULL)
			json_set(arena, tasks, reference, object = json_object(arena));
	} else {
		object = json_get(body, "set");
		if (object == NULL)
			json_set(arena, body, "set", object = json_object(arena));
	}
	for (const char *dot; (dot = memchr(key, '.', (size_t)(equals - key))) != NULL; key = dot + 1) {
		struct json *inner = json_get_len(object, key, (size_t)(dot - key));
		if (dot == key)
			break;
		if (!json_is(inner, JSON_OBJECT))
			json_set_len(arena, object, key, (size_t)(dot - key), inner = json_object(arena));
		object = inner;
	}
	if (key == equals || *key == '.')
		return command_fail(command, STATUS_USAGE, NULL, "--set %s: a member has no name", text);
	json_set_len(arena, object, key, (size_t)(equals - key), value);
	return STATUS_OK;
}

int command_fork(struct command *command)
{
	struct arena *arena = &command->arena;
	struct json *body = json_object(arena), *input = NULL, *labels, *run = NULL;
	const char *of = command->arguments[0], *from = command_option(command, "from"), *id = command_option(command, "id"), *reason = command_option(command, "reason"),
		   *input_text = command_option(command, "input"), *children = command_option(command, "children");
	int64_t timeout_ms;
	int status = command_read_wait(command, &timeout_ms);

	if (status != STATUS_OK || (status = command_check_run_id(command, of)) != STATUS_OK || (status = command_read_pairs(command, "label", &labels)) != STATUS_OK ||
	    (status = command_read_budget(command, body)) != STATUS_OK)
		return status;
	if (from == NULL)
		return command_fail(command, STATUS_USAGE, arena_printf(arena, "reprise show %s lists its tasks", of), "--from TASK is needed: the task that the fork begins with");
	if (id != NULL && !id_valid(id))
		return command_fail(command, STATUS_USAGE, NULL, "--id %s: an id is 1 to %d of A-Z a-z 0-9 . _ -", id, ID_LEN_MAX);
	if (!utf8_valid(bytes_text(from), NULL) || (reason != NULL && !utf8_valid(bytes_text(reason), NULL)))
		return command_fail(command, STATUS_USAGE, NULL, "--%s: not UTF-8", utf8_valid(bytes_text(from), NULL) ? "reason" : "from");
	if (children != NULL && strcmp(children, "keep") != 0 && strcmp(children, "rerun") != 0 && strcmp(children, "detach") != 0)
		return command_fail(command, STATUS_USAGE, NULL, "--children %s: keep, rerun or detach", children);
	if (input_text != NULL && (status = command_read_value(command, "--input", input_text, &input)) != STATUS_OK)
		return status;
	for (size_t i = 0; command_option_at(command, "set", i) != NULL; i++)
		if ((status = read_set(command, command_option_at(command, "set", i), body)) != STATUS_OK)
			return status;
	if (id == NULL)
		id = new_run_id(command);
	json_set_text(arena, body, "id", id);
	json_set_text(arena, body, "from", from);
	json_set_text(arena, body, "children", children);
	json_set_text(arena, body, "reason", reason);
	if (input != NULL)
		json_set(arena, body, "input", input);
	if (labels != NULL)
		json_set(arena, body, "labels", labels);
	if (command_flag(command, "wait"))
		interrupt_say(arena_printf(arena, "\nreprise: interrupted; the run goes on: reprise result %s --wait\n", id));
	if ((status = run_submit_to(command, path_of(command, "/v1/runs/", of, "/fork"), body, &run)) != STATUS_OK)
		return status;
	return run_show_outcome(command, id, run, timeout_ms);
}
