/* What verbs about facts share. Start at facts_each(). */
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "workflow/base/check.h"

const char *value_text(struct arena *arena, const struct json *value)
{
	if (value == NULL)
		return NULL;
	if (json_is(value, JSON_STRING))
		return value->string.text;
	struct bytes text = json_print_arena(value, arena);
	return (const char *)text.data;
}

int facts_each(struct command *command, const char *run_id, uint64_t limit, bool kept, fact_cb on_fact, void *arg)
{
	double after = -1;
	uint64_t given = 0, empty_pages = 0;
	enum { EMPTY_PAGES_MAX = 100000 };
	int status = run_id == NULL ? STATUS_OK : command_check_run_id(command, run_id);
	while (status == STATUS_OK && given < limit) {
		uint64_t page = limit - given < COMMAND_PAGE ? limit - given : COMMAND_PAGE;
		struct arena outer = command->arena;
		struct buffer path;
		struct json *answer = NULL;
		if (!kept)
			arena_init(&command->arena);
		buffer_init(&path, 65536);
		buffer_add_text(&path, "/v1/facts");
		query_add(&path, "run", run_id);
		query_add(&path, "document", command_option(command, "document"));
		query_add(&path, "runtime", command_option(command, "runtime"));
		query_add(&path, "class", command_option(command, "class"));
		query_add(&path, "workflow", command_option(command, "workflow"));
		query_add(&path, "rejected", command_flag(command, "rejected") ? "true" : NULL);
		query_add(&path, "limit", arena_printf(&command->arena, "%llu", (unsigned long long)page));
		if (after >= 0)
			query_add(&path, "after", arena_printf(&command->arena, "%.0f", after));
		status = command_get(command, buffer_text(&path), &answer);
		buffer_close(&path);
		const struct json *facts = json_get(answer, "facts");
		for (size_t i = 0; i < json_count(facts) && given < limit && status == STATUS_OK; i++, given++)
			status = json_get_text(json_at(facts, i), "id") != NULL ? on_fact(arg, json_at(facts, i))
				: command_fail(command, STATUS_ERROR, "is this address a Reprise daemon?", "/v1/facts: an answer with a fact that has no id");
		/* The feed never ends: an empty page that leads nowhere is the present; one that leads on was all passed over. */
		double next = json_get_number(answer, "next", -1);
		bool empty = json_count(facts) == 0;
		if (!kept) {
			arena_close(&command->arena);
			command->arena = outer;
		}
		if (next <= after || (empty && next <= after + 1) || (empty && ++empty_pages > EMPTY_PAGES_MAX))
			break;
		after = next;
	}
	/* No facts of a run that is there, or no such run: the daemon tells the second (404). */
	if (status == STATUS_OK && given == 0 && limit > 0 && run_id != NULL) {
		struct json *run;
		status = command_get(command, path_of(command, "/v1/runs/", run_id, ""), &run);
	}
	return status;
}
