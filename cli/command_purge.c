/* reprise purge, document erase and journal compact: take things out of the journal. */
#include <string.h>

#include "cli/command.h"

enum { PURGE_AT_ONCE = 256 /* runs of one request: STORE_PURGE_RUNS_MAX */ };

static int print_result(struct command *command, const struct json *answer, const char *what)
{
	if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL)
		output_json(&command->output, answer);
	else if (command->output.format == FORMAT_TEXT)
		output_line(&command->output, "%s  %.0f run%s and %.0f value%s removed, %.0f entries pruned, %.0f pages given back", what, json_get_number(answer, "runs", 0),
			    json_get_number(answer, "runs", 0) == 1 ? "" : "s", json_get_number(answer, "values", 0), json_get_number(answer, "values", 0) == 1 ? "" : "s",
			    json_get_number(answer, "entries", 0), json_get_number(answer, "pages", 0));
	return STATUS_OK;
}

/* NULL: said so. */
static const char *need_reason(struct command *command)
{
	const char *reason = command_option(command, "reason");

	if (reason == NULL || *reason == '\0')
		command_fail(command, STATUS_USAGE, NULL, "--reason TEXT is needed: it stays in the journal in the place of what goes");
	else if (!utf8_valid(bytes_text(reason), NULL))
		command_fail(command, STATUS_USAGE, NULL, "--reason: not UTF-8");
	else
		return reason;
	return NULL;
}

int command_purge(struct command *command)
{
	const char **ids, *reason = need_reason(command);
	size_t count;
	int status = reason == NULL ? STATUS_USAGE : command_read_ids(command, 0, &ids, &count);
	if (status != STATUS_OK)
		return status;
	if (count > 0 && !command_confirm(command, "Remove %zu run%s for good: %s%s?", count, count == 1 ? "" : "s", ids[0], count == 1 ? "" : " …"))
		return command_fail(command, STATUS_ERROR, NULL, "nothing was removed");
	for (size_t at = 0; at < count && status == STATUS_OK; at += PURGE_AT_ONCE) {
		struct json *body = json_object(&command->arena), *runs = json_array(&command->arena), *answer;
		for (size_t i = at; i < count && i < at + PURGE_AT_ONCE; i++)
			json_add(&command->arena, runs, json_text(&command->arena, ids[i]));
		json_set(&command->arena, body, "runs", runs);
		json_set_text(&command->arena, body, "reason", reason);
		status = command_post(command, "/v1/journal/purge", body, &answer);
		if (status != STATUS_OK)
			break;
		if (command->output.format != FORMAT_IDS)
			print_result(command, answer, "purged");
		for (size_t i = at; command->output.format == FORMAT_IDS && i < count && i < at + PURGE_AT_ONCE; i++)
			output_line(&command->output, "%s", ids[i]);
	}
	return status;
}

int command_document_erase(struct command *command)
{
	const char *reason = need_reason(command), *digest = command->arguments[0];
	struct json *body = json_object(&command->arena), *answer;
	struct digest parsed;
	int status;

	if (reason == NULL)
		return STATUS_USAGE;
	if (!digest_parse(digest, &parsed))
		return command_fail(command, STATUS_USAGE, "the run document and `reprise fact show` name digests", "'%s' is no digest: sha256: and 64 hex digits", digest);
	if (!command_confirm(command, "Erase every copy of %s for good?", digest))
		return command_fail(command, STATUS_ERROR, NULL, "nothing was erased");
	json_set_text(&command->arena, body, "content", digest);
	json_set_text(&command->arena, body, "reason", reason);
	status = command_post(command, "/v1/journal/purge", body, &answer);
	if (status == STATUS_OK && command->output.format == FORMAT_TEXT)
		output_line(&command->output, "%s  erased, %.0f stored cop%s", digest, json_get_number(answer, "values", 0), json_get_number(answer, "values", 0) == 1 ? "y" : "ies");
	else if (status == STATUS_OK && command->output.format == FORMAT_IDS)
		output_line(&command->output, "%s", digest);
	else if (status == STATUS_OK)
		output_json(&command->output, answer);
	return status;
}

int command_journal_compact(struct command *command)
{
	struct json *answer;
	int status = command_post(command, "/v1/journal/compact", json_object(&command->arena), &answer);

	return status == STATUS_OK ? print_result(command, answer, "compacted") : status;
}
