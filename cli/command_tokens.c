/* reprise tokens: what the models of a run write, as they write it. */
#include <string.h>

#include "cli/command.h"

enum { RECONNECT_PAUSE_MS = 500 };

struct watching {
	struct command *command;
	struct arena arena; /* of one event */
	char place[1200]; /* whose text was printed last: step and attempt */
	bool in_line; /* the last text did not end with a line break */
};

static void say_place(struct watching *watching, const struct json *data, const char *what)
{
	struct command *command = watching->command;
	char place[sizeof watching->place];

	snprintf(place, sizeof place, "%s, attempt %.0f%s", json_get_text(data, "step"), json_get_number(data, "attempt", 0), what);
	if (strcmp(place, watching->place) == 0)
		return;
	if (watching->in_line)
		output_text(&command->output, "\n");
	output_coloured(&command->output, COLOUR_DIM, arena_printf(&watching->arena, "%s%s", watching->place[0] != '\0' ? "\n" : "", place));
	output_text(&command->output, "\n");
	strcpy(watching->place, place);
	watching->in_line = false;
}

static void print_piece(struct watching *watching, const struct json *data, const char *text, const char *what)
{
	say_place(watching, data, what);
	output_text(&watching->command->output, text);
	if (text[0] != '\0')
		watching->in_line = text[strlen(text) - 1] != '\n';
}

static void print_event(struct watching *watching, const char *name, const struct json *data)
{
	struct output *output = &watching->command->output;

	if (output->format == FORMAT_IDS) {
		if (strcmp(name, "attempt") == 0)
			output_line(output, "%s", json_get_text(data, "step"));
	} else if (output->format != FORMAT_TEXT) {
		struct json *line = json_copy(&watching->arena, data);
		enum output_format format = output->format;
		json_set_text(&watching->arena, line, "event", name);
		output->format = FORMAT_JSONL; /* an array cannot be closed while it grows */
		output_json(output, line);
		output->format = format;
	} else if (json_get_text(data, "text") != NULL) {
		print_piece(watching, data, json_get_text(data, "text"), strcmp(name, "reasoning") == 0 ? " (reasoning)" : "");
	} else if (strcmp(name, "end") == 0 && json_get_text(data, "outcome") != NULL && strcmp(json_get_text(data, "outcome"), "answered") != 0) {
		print_piece(watching, data, json_get_text(data, "outcome"), " ended");
		output_text(output, "\n");
		watching->in_line = false;
	}
	fflush(stdout);
}

static bool on_stream_event(void *arg, bool has_id, uint64_t id, const char *name, struct bytes data)
{
	struct watching *watching = arg;
	struct json *json = json_parse(&watching->arena, data, JSON_ROUND_INTEGERS, NULL, NULL);

	(void)has_id, (void)id;
	if (json_is(json, JSON_OBJECT) && json_get_text(json, "step") != NULL)
		print_event(watching, name, json);
	arena_close(&watching->arena);
	arena_init(&watching->arena);
	return true;
}

/* Until the run has ended. A stream that breaks begins anew, with all that the daemon still has: each attempt is named again. */
static int follow(struct command *command, const char *path, const char *id)
{
	struct watching watching = {.command = command};
	uint64_t heard_us = clock_us();
	struct json *run = NULL;
	struct error error;
	int status = client_ready(command);

	arena_init(&watching.arena);
	while (status == STATUS_OK && !run_ended(run)) {
		struct request request = {.path = path};
		struct reply reply;
		int code = client_stream(&command->client, &request, on_stream_event, &watching, &reply, &error);
		if (code == 0 && reply.status != 200 && reply.status != 503) {
			status = command_fail_reply(command, &request, &reply);
		} else if (code == ERR_TOO_LARGE || (code == ERR_UNREACHABLE && !command->client.answered)) {
			status = command_fail_error(command, &error, NULL);
		} else {
			if (reply.status == 200)
				heard_us = clock_us();
			if (code == 0 && reply.status == 200)
				status = command_get(command, path_of(command, "/v1/runs/", id, ""), &run);
			else if (clock_us() - heard_us > COMMAND_OUTAGE_MS_MAX * 1000ull)
				status = command_fail(command, STATUS_UNREACHABLE, NULL, "tokens of run %s: the daemon at %s has been away for %d s", id, client_place(&command->client),
						      COMMAND_OUTAGE_MS_MAX / 1000);
			if (status == STATUS_OK && !run_ended(run))
				sleep_ms(RECONNECT_PAUSE_MS);
		}
		reply_close(&reply);
	}
	if (watching.in_line)
		output_text(&command->output, "\n");
	arena_close(&watching.arena);
	return status;
}

int command_tokens(struct command *command)
{
	const char *id = command->arguments[0], *step = command_option(command, "step");
	struct watching watching = {.command = command};
	struct buffer path;
	struct json *answer;
	int status = command_check_run_id(command, id);

	if (status != STATUS_OK)
		return status;
	buffer_init(&path, 8192);
	buffer_add_text(&path, path_of(command, "/v1/runs/", id, "/tokens"));
	if (step != NULL)
		query_add(&path, "step", step);
	if (command_flag(command, "follow")) {
		status = follow(command, buffer_text(&path), id);
	} else if ((status = command_get(command, buffer_text(&path), &answer)) == STATUS_OK) {
		const struct json *attempts = json_get(answer, "attempts");
		arena_init(&watching.arena);
		if (command->output.format == FORMAT_JSON)
			output_json(&command->output, answer);
		for (size_t i = 0; i < json_count(attempts) && command->output.format != FORMAT_JSON; i++) {
			const struct json *attempt = json_at(attempts, i);
			if (command->output.format == FORMAT_JSONL)
				output_json(&command->output, attempt);
			else if (command->output.format == FORMAT_IDS)
				output_line(&command->output, "%s", json_get_text(attempt, "step"));
			if (command->output.format != FORMAT_TEXT)
				continue;
			if (json_get_text(attempt, "reasoning") != NULL)
				print_piece(&watching, attempt, json_get_text(attempt, "reasoning"), " (reasoning)");
			print_piece(&watching, attempt, json_get_text(attempt, "text"), "");
		}
		if (watching.in_line)
			output_text(&command->output, "\n");
		if (json_count(attempts) == 0 && step != NULL)
			output_note(&command->output, "the daemon has no tokens of task %s of run %s; `reprise tokens %s -o ids` names the tasks of which it has some", step, id, id);
		else if (json_count(attempts) == 0)
			output_note(&command->output, "the daemon has no tokens of run %s: texts are kept while an attempt writes and until others need the room; `reprise result %s` has what came of it", id, id);
		arena_close(&watching.arena);
	}
	buffer_close(&path);
	return status;
}
