/* reprise version, config show, drain: small verbs that ask for one document. */
#include <string.h>

#include "cli/command.h"

int command_version(struct command *command)
{
	struct arena *arena = &command->arena;
	struct json *daemon = NULL;
	struct reply reply;
	struct error error;
	struct request request = {.path = "/v1/version", .timeout_ms = 2000};
	/* The daemon is asked and not needed. */
	if (client_ready(command) == STATUS_OK) {
		if (client_send(&command->client, &request, &reply, &error) == 0 && reply.status == 200)
			daemon = command_parse_reply(command, &reply, &error);
		reply_close(&reply);
	}
	if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL) {
		struct json *result = json_object(arena), *client = json_object(arena);
		json_set_text(arena, client, "name", "reprise");
		json_set_text(arena, client, "version", REPRISE_VERSION);
		json_set_text(arena, client, "curl", curl_version_info(CURLVERSION_NOW)->version);
		json_set(arena, result, "client", client);
		json_set(arena, result, "daemon", daemon != NULL ? daemon : json_null(arena));
		output_json(&command->output, result);
		return STATUS_OK;
	}
	output_line(&command->output, "reprise  %s", REPRISE_VERSION);
	if (daemon != NULL)
		output_line(&command->output, "reprised %s at %s", json_get_text(daemon, "version") == NULL ? "?" : json_get_text(daemon, "version"), client_place(&command->client));
	else if (command->client_is_open)
		output_note(&command->output, "no daemon answers at %s", client_place(&command->client));
	return STATUS_OK;
}

static int show_document(struct command *command, const char *path)
{
	struct json *answer;
	int status = command_get(command, path, &answer);
	if (status == STATUS_OK)
		output_json(&command->output, answer);
	return status;
}

int command_config_show(struct command *command)
{
	return show_document(command, "/v1/config");
}

int command_drain(struct command *command)
{
	struct json *body = json_object(&command->arena), *answer;
	const char *within = command_option(command, "within");
	int64_t within_ms;
	int status = command_duration(command, "within", &within_ms);

	if (status != STATUS_OK)
		return status;
	if (within != NULL)
		json_set_text(&command->arena, body, "within", within);
	if ((status = command_post(command, "/v1/drain", body, &answer)) != STATUS_OK)
		return status;
	if (command->output.format != FORMAT_TEXT) {
		output_json(&command->output, answer);
		return STATUS_OK;
	}
	double under_way = json_get_number(answer, "underWay", 0);
	output_line(&command->output, "draining: %.0f activit%s under way; the daemon stops when %s finished, or at %s", under_way, under_way == 1 ? "y is" : "ies are",
		    under_way == 1 ? "it has" : "they have", json_get_text(answer, "until"));
	return STATUS_OK;
}
