/* reprise submit: start a run. The id is made here, so that a retry of the submission is safe (semantics.md 3). */
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "workflow/base/id.h"

/* "ns/name" or "ns/name:1.0.0", each part well-formed. */
static bool is_registered_name(struct arena *arena, const char *text)
{
	const char *slash = strchr(text, '/'), *colon = strchr(text, ':');
	if (slash == NULL || slash == text || (colon != NULL && colon < slash))
		return false;
	size_t name_len = colon == NULL ? strlen(slash + 1) : (size_t)(colon - slash - 1);
	return id_valid_label(arena_text_len(arena, text, (size_t)(slash - text))) && id_valid_label(arena_text_len(arena, slash + 1, name_len)) &&
	       (colon == NULL || id_valid_version(colon + 1));
}

static int choose_definition(struct command *command, struct json *body)
{
	const char *name = command->arguments[0];
	const struct json *document;
	struct bytes source;
	bool inlined;
	if (strcmp(name, "-") != 0 && access(name, F_OK) != 0) {
		if (!is_registered_name(&command->arena, name))
			return command_fail(command, STATUS_NOT_FOUND, "reprise definition list shows what is registered",
					    "%s is neither a file nor NAMESPACE/NAME[:VERSION]", name);
		json_set_text(&command->arena, body, "definition", name);
		return STATUS_OK;
	}
	int status = command_load_definition(command, name, &document, &source, &inlined);
	if (status == STATUS_OK)
		json_set(&command->arena, body, "definition", (struct json *)document);
	return status;
}

int command_submit(struct command *command)
{
	struct arena *arena = &command->arena;
	struct json *body = json_object(arena), *input = NULL, *labels, *run = NULL;
	const char *id = command_option(command, "id"), *input_text = command_option(command, "input");
	bool wait = command_flag(command, "wait");
	int64_t timeout_ms = -1;
	int status;

	if (strcmp(command->arguments[0], "-") == 0 && input_text != NULL && strcmp(input_text, "-") == 0)
		return command_fail(command, STATUS_USAGE, NULL, "standard input cannot be both the definition and the input");
	if (id != NULL && !id_valid(id))
		return command_fail(command, STATUS_USAGE, NULL, "--id %s: an id is 1 to %d of A-Z a-z 0-9 . _ -", id, ID_LEN_MAX);
	if ((status = command_read_wait(command, &timeout_ms)) != STATUS_OK || (status = command_read_pairs(command, "label", &labels)) != STATUS_OK || (status = command_read_budget(command, body)) != STATUS_OK ||
	    (input_text != NULL && (status = command_read_value(command, "--input", input_text, &input)) != STATUS_OK) ||
	    (status = choose_definition(command, body)) != STATUS_OK)
		return status;
	if (id == NULL)
		id = new_run_id(command);
	json_set_text(arena, body, "id", id);
	if (input != NULL) /* without one the run's input is null */
		json_set(arena, body, "input", input);
	if (labels != NULL)
		json_set(arena, body, "labels", labels);
	if (wait)
		interrupt_say(arena_printf(arena, "\nreprise: interrupted; the run goes on: reprise result %s --wait\n", id));

	if ((status = run_submit(command, body, &run)) != STATUS_OK)
		return status;
	return run_show_outcome(command, id, run, timeout_ms);
}
