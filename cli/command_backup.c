/* reprise journal backup | restore: a copy that the daemon makes while it works, and a journal out of a copy, without a daemon. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/command.h"
#include "store/store.h"
#include "workflow/base/check.h"

enum { BACKUP_POLL_MS = 100, CHECKPOINTS_MAX = 64 };

static bool is_json(const struct command *command)
{
	return command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL;
}

/* The daemon writes the file, so the path is one of its machine; a relative one is meant from here. */
static const char *absolute(struct command *command, const char *path)
{
	char here[4096];

	if (path[0] == '/' || getcwd(here, sizeof here) == NULL)
		return path;
	return arena_printf(&command->arena, "%s/%s", here, path);
}

static int tell_end(struct command *command, const struct json *answer)
{
	const char *state = json_get_text(answer, "state"), *path = json_get_text(answer, "path");
	if (state != NULL && strcmp(state, "completed") == 0) {
		if (is_json(command))
			output_json(&command->output, answer);
		else if (command->output.format == FORMAT_IDS)
			output_line(&command->output, "%s", path);
		else
			output_line(&command->output, "%s  %s, %.0f entries, verified up to %.0f (%s). The keys are not in it: keep them apart", path,
				    text_size(&command->arena, json_get_number(answer, "bytes", 0)), json_get_number(answer, "entries", 0), json_get_number(answer, "checkpointSize", 0),
				    json_get_text(answer, "root"));
		return STATUS_OK;
	}
	const struct json *error = json_get(answer, "error");
	const char *type = json_get_text(error, "type"), *detail = json_get_text(error, "detail");
	return command_fail(command, type != NULL && strcmp(type, "conflict") == 0 ? STATUS_CONFLICT : STATUS_ERROR, NULL, "%s", detail != NULL ? detail : "the backup ended without a reason");
}

int command_journal_backup(struct command *command)
{
	struct json *answer, *body = json_object(&command->arena);
	if (command_flag(command, "cancel")) {
		int status = command_post(command, "/v1/journal/backup/cancel", json_object(&command->arena), &answer);
		if (status == STATUS_OK)
			output_note(&command->output, "cancelled");
		return status;
	}
	if (command->argument_count == 0 || command->arguments[0][0] == '\0')
		return command_fail(command, STATUS_USAGE, "reprise journal backup --help", "DEST is missing: the file to make");
	json_set_text(&command->arena, body, "path", absolute(command, command->arguments[0]));
	int status = command_post(command, "/v1/journal/backup", body, &answer);
	interrupt_say("the backup goes on in the daemon; `reprise journal backup --cancel` ends it\n");
	while (status == STATUS_OK && json_get(answer, "endedAt") == NULL) {
		const char *state = json_get_text(answer, "state");
		progress_show(&command->output, (uint64_t)json_get_number(answer, "pagesDone", 0), (uint64_t)json_get_number(answer, "pages", 0), state != NULL ? state : "copying");
		sleep_ms(BACKUP_POLL_MS);
		status = command_get(command, "/v1/journal/backup", &answer);
	}
	progress_clear(&command->output);
	return status == STATUS_OK ? tell_end(command, answer) : status;
}

static int restore_status(const struct error *error)
{
	switch (error->code) {
	case ERR_CORRUPT:
		return STATUS_JOURNAL_DAMAGED;
	case ERR_EXISTS:
		return STATUS_CONFLICT;
	case ERR_NOT_FOUND:
		return STATUS_NOT_FOUND;
	case ERR_INVALID:
		return STATUS_UNVERIFIABLE;
	default:
		return STATUS_ERROR;
	}
}

static void tell_restored(struct command *command, const struct store_restore *restore)
{
	struct arena *arena = &command->arena;
	struct json *json = json_object(arena);
	if (is_json(command)) {
		json_set_text(arena, json, "data", restore->data_dir);
		json_set_text(arena, json, "origin", restore->copy.origin);
		json_set_number(arena, json, "entries", (double)restore->copy.entries);
		json_set_number(arena, json, "checkpointSize", (double)restore->copy.checkpoint);
		json_set_number(arena, json, "openRuns", (double)restore->copy.open_runs);
		json_set_number(arena, json, "heldAgainst", (double)restore->known);
		json_set_text(arena, json, "aside", restore->aside[0] != '\0' ? restore->aside : NULL);
		json_set_text(arena, json, "kept", restore->kept[0] != '\0' ? restore->kept : NULL);
		output_json(&command->output, json);
	} else if (restore->new_log) {
		output_line(&command->output, "%s  the next start begins a new log that continues %s (%llu entries); the old one is kept in %s to be read", restore->data_dir, restore->copy.origin,
			    (unsigned long long)restore->copy.entries, restore->kept);
	} else {
		output_line(&command->output, "%s  %llu entries of %s, held against %zu known checkpoint%s", restore->data_dir, (unsigned long long)restore->copy.entries, restore->copy.origin,
			    restore->known, restore->known == 1 ? "" : "s");
	}
	if (restore->aside[0] != '\0')
		output_note(&command->output, "what was there is kept in %s", restore->aside);
	if (restore->new_log && restore->copy.open_runs > 0)
		output_note(&command->output, "%llu run%s had not ended in it, and will not go on: submit again what is still wanted", (unsigned long long)restore->copy.open_runs, restore->copy.open_runs == 1 ? "" : "s");
	else if (restore->copy.open_runs > 0)
		output_note(&command->output, "the next start continues %llu open run%s: the daemon that this is a copy of must never start again", (unsigned long long)restore->copy.open_runs, restore->copy.open_runs == 1 ? "" : "s");
	if (!restore->new_log)
		output_note(&command->output, "the log key must be in %s/keys/log.pem (or where the configuration says); a backup holds no keys", restore->data_dir);
}

int command_journal_restore(struct command *command)
{
	struct bytes *checkpoints = arena_alloc(&command->arena, CHECKPOINTS_MAX * sizeof *checkpoints);
	const char *data_dir = command_option(command, "data");
	struct store_restore *restore = arena_zero(&command->arena, sizeof *restore);
	struct stat source;
	struct error error;
	if (data_dir == NULL)
		data_dir = getenv("REPRISE_DATA");
	if (data_dir == NULL || *data_dir == '\0')
		return command_fail(command, STATUS_USAGE, "reprise journal restore --help", "--data DIR is missing: the folder to restore into");
	if (stat(command->arguments[0], &source) == 0 && !S_ISREG(source.st_mode))
		return command_fail(command, STATUS_USAGE, NULL, "%s is no file: name the one that `reprise journal backup` made", command->arguments[0]);
	*restore = (struct store_restore){.source = command->arguments[0], .data_dir = data_dir, .checkpoints = checkpoints, .replace = command_flag(command, "yes"),
					  .original_is_gone = command_flag(command, "original-is-gone"), .new_log = command_flag(command, "new-log")};
	for (const char *path; (path = command_option_at(command, "checkpoint", restore->checkpoint_count)) != NULL; restore->checkpoint_count++) {
		if (restore->checkpoint_count == CHECKPOINTS_MAX)
			return command_fail(command, STATUS_USAGE, NULL, "more than %d times --checkpoint (CHECKPOINTS_MAX)", CHECKPOINTS_MAX);
		int status = command_read_file(command, path, &checkpoints[restore->checkpoint_count]);
		if (status != STATUS_OK)
			return status;
	}
	if (store_restore(restore, &error) != 0)
		return command_fail(command, restore_status(&error),
				    error.code == ERR_CORRUPT && strstr(error.message, "journal-rolled-back") != NULL
					    ? "take a newer backup; or, where there is none, --new-log: this one is kept to be read, and the next start begins another log that names it" : NULL,
				    "%s", error.message);
	tell_restored(command, restore);
	return STATUS_OK;
}
