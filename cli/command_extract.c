/* reprise extract: a document becomes signed facts. Uploads it, submits the built-in workflow, shows how far it is, prints
 * the facts with the lines they stand on. Start at command_extract(). */
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "workflow/base/check.h"
#include "workflow/base/id.h"

#define EXTRACT_WORKFLOW "reprise/extract:1.0.0"

/* --- the definition ----------------------------------------------------------------------------------------------- */

static bool schema_has_facts(const struct json *schema)
{
	const struct json *facts = json_get(json_get(schema, "properties"), "facts"), *type = json_get(facts, "type");
	if (json_is(type, JSON_STRING))
		return strcmp(type->string.text, "array") == 0;
	for (size_t i = 0; json_is(type, JSON_ARRAY) && i < json_count(type); i++)
		if (json_is(json_at(type, i), JSON_STRING) && strcmp(json_at(type, i)->string.text, "array") == 0)
			return true;
	/* Said elsewhere, by a reference: only the daemon looks there. */
	return json_is(facts, JSON_OBJECT) && type == NULL && (json_get(facts, "$ref") != NULL || json_get(facts, "items") != NULL);
}

/* The built-in workflow with a schema of the user's own: what a definition written by hand would say. */
static int definition_with_schema(struct command *command, const char *schema_path, struct json **definition)
{
	struct arena *arena = &command->arena;
	struct json *schema;
	int status = command_read_value(command, "--schema", arena_printf(arena, "@%s", schema_path), &schema);
	if (status != STATUS_OK)
		return status;
	/* Facts are taken from the array `facts` of each answer: without it every answer would be paid for and thrown away. */
	if (!schema_has_facts(schema))
		return command_fail(command, STATUS_USAGE, "{\"type\": \"object\", \"properties\": {\"facts\": {\"type\": \"array\", \"items\": …}}, \"required\": [\"facts\"]} is meant; nothing was sent",
				    "--schema %s: the answers it describes have no array `facts`", schema_path);
	struct json *with = json_object(arena);
	json_set_text(arena, with, "runtime", "${ .runtime }");
	json_set_text(arena, with, "document", "${ .document }");
	*definition = make_call_definition(arena, "extract-with-schema", "facts", "extraction", with, schema);
	return STATUS_OK;
}

static const char *media_type_of(const char *path)
{
	const char *suffix = strrchr(path, '.');
	if (suffix != NULL && (strcasecmp(suffix, ".md") == 0 || strcasecmp(suffix, ".markdown") == 0))
		return "text/markdown";
	return "text/plain";
}

static int upload(struct command *command, const char *path, struct bytes bytes, const char **digest)
{
	struct request request = {.method = "POST", .path = "/v1/documents", .body = bytes, .content_type = media_type_of(path), .accept = "application/json"};
	struct reply reply;
	struct error error;
	struct json *answer = NULL;
	if (bytes.len == 0)
		return command_fail(command, STATUS_ERROR, NULL, "document %s is empty: there is nothing to extract", path);
	int status = command_send(command, &request, &reply);
	if (status == STATUS_OK && reply.status != 200 && reply.status != 201) {
		output_note(&command->output, "reprise: document %s was refused", path);
		status = command_fail_reply(command, &request, &reply);
	}
	else if (status == STATUS_OK && (answer = command_parse_reply(command, &reply, &error)) == NULL)
		status = command_fail(command, STATUS_ERROR, NULL, "upload of %s: the answer is not JSON: %s", path, error.message);
	else if (status == STATUS_OK && (*digest = json_get_text(answer, "digest")) == NULL)
		status = command_fail(command, STATUS_ERROR, NULL, "upload of %s: the answer names no digest", path);
	reply_close(&reply);
	return status;
}

/* --- progress ----------------------------------------------------------------------------------------------------- */

struct watching {
	struct command *command;
	uint64_t done, total, facts, failed;
};

/* Sections are iterations of the loop that the call was expanded to: /…/extract/do/0/section#n@1. */
static bool on_entry(void *arg, const struct json *entry)
{
	struct watching *watching = arg;
	const char *kind = json_get_text(entry, "kind");
	const struct json *data = json_get(entry, "data");
	const char *step = json_get_text(data, "stepId");
	if (kind == NULL)
		return true;
	if (strcmp(kind, "fact.recorded") == 0) {
		const char *verdict = json_get_text(data, "verdict");
		watching->facts += verdict == NULL || strcmp(verdict, "FAILED") != 0;
	}
	if (step != NULL && strstr(step, "/extract") != NULL) {
		bool section = strstr(step, "/do/0/section#") != NULL;
		if (!section && strcmp(kind, "task.started") == 0 && json_get_number(data, "items", 0) > 0)
			watching->total = (uint64_t)json_get_number(data, "items", 0);
		if (section && (strcmp(kind, "task.completed") == 0 || strcmp(kind, "task.faulted") == 0))
			watching->done++;
		if (section && strcmp(kind, "attempt.failed") == 0)
			watching->failed++;
	}
	char of[32] = "", text[160];
	if (watching->total > 0)
		snprintf(of, sizeof of, " of %llu", (unsigned long long)watching->total);
	snprintf(text, sizeof text, "%llu%s sections, %llu fact%s%s", (unsigned long long)watching->done, of, (unsigned long long)watching->facts, watching->facts == 1 ? "" : "s",
		 watching->failed > 0 ? " (some attempts failed)" : "");
	progress_show(&watching->command->output, watching->done, watching->total, text);
	return true;
}

/* --- the result --------------------------------------------------------------------------------------------------- */

struct fact_rows {
	struct command *command;
	struct json *facts;
};

static int keep_fact(void *arg, struct json *fact)
{
	struct fact_rows *rows = arg;
	json_add(&rows->command->arena, rows->facts, fact);
	return STATUS_OK;
}

static int compare_facts(const void *a, const void *b)
{
	const struct json *fact_a = *(struct json *const *)a, *fact_b = *(struct json *const *)b;
	double at_a = json_at(json_get(json_get(fact_a, "grounding"), "bytes"), 0) == NULL ? 0 : json_at(json_get(json_get(fact_a, "grounding"), "bytes"), 0)->number;
	double at_b = json_at(json_get(json_get(fact_b, "grounding"), "bytes"), 0) == NULL ? 0 : json_at(json_get(json_get(fact_b, "grounding"), "bytes"), 0)->number;
	if (at_a != at_b)
		return at_a < at_b ? -1 : 1;
	double seq_a = json_get_number(fact_a, "seq", 0), seq_b = json_get_number(fact_b, "seq", 0);
	return seq_a < seq_b ? -1 : seq_a > seq_b;
}

/* Line numbers count from 1. The facts come in order of their places, so the document is walked once. */
static void print_facts(struct command *command, struct bytes document, struct json *facts)
{
	static const struct table_column columns[] = {{"LINE", 0, true}, {"SUBJECT", 28, false}, {"PREDICATE", 20, false}, {"OBJECT", 28, false}, {"QUOTE", 0, false}};
	struct arena *arena = &command->arena;
	struct table table;
	size_t line = 1, at = 0;
	if (json_count(facts) > 1)
		qsort(facts->array.items, facts->array.count, sizeof *facts->array.items, compare_facts);
	table_init(&table, arena, columns, COUNT_OF(columns));
	for (size_t i = 0; i < json_count(facts); i++) {
		const struct json *fact = json_at(facts, i), *value = json_get(fact, "value");
		const struct json *start = json_at(json_get(json_get(fact, "grounding"), "bytes"), 0);
		const char *place = NULL;
		if (json_is(start, JSON_NUMBER) && start->number >= 0 && start->number <= (double)document.len) {
			for (; at < (size_t)start->number; at++)
				line += document.data[at] == '\n';
			place = arena_printf(arena, "%zu", line);
		}
		const char *subject = value_text(arena, json_get(value, "subject"));
		/* A schema of the user's own may name its members otherwise: then the whole value stands in one cell. */
		const char *cells[] = {place, subject != NULL ? subject : value_text(arena, value), value_text(arena, json_get(value, "predicate")),
				       value_text(arena, json_get(value, "object")), json_get_text(fact, "quote")};
		table_add(&table, cells);
	}
	if (table.row_count > 0)
		table_print(&table, &command->output);
	table_close(&table);
}

static void note_simulated(struct command *command, const struct json *facts)
{
	for (size_t i = 0; i < json_count(facts); i++)
		if (json_get_boolean(json_at(facts, i), "simulated", false)) {
			output_line(&command->output, SIMULATED_LINE);
			return;
		}
}

/* The built-in workflow's output is the call's; a workflow of several tasks may have it one deeper. */
static const struct json *extraction_of(const struct json *output)
{
	if (json_get(output, "sections") != NULL)
		return output;
	for (size_t i = 0; json_is(output, JSON_OBJECT) && i < json_count(output); i++)
		if (json_get(output->object.members[i].value, "sections") != NULL)
			return output->object.members[i].value;
	return NULL;
}

enum { CLASSES_MAX = 32 };
struct section_counts {
	const char *names[CLASSES_MAX]; /* of what became of the sections that gave no usable answer */
	size_t counts[CLASSES_MAX], classes, total, answered, empty;
};

static void count_sections(const struct json *run, struct section_counts *found)
{
	const struct json *sections = json_get(extraction_of(json_get(run, "output")), "sections");
	*found = (struct section_counts){.total = json_count(sections)};
	for (size_t i = 0; i < json_count(sections); i++) {
		const struct json *section = json_at(sections, i);
		const char *outcome = json_get_text(section, "outcome"), *status = json_get_text(section, "status");
		const char *word = outcome != NULL ? outcome : status != NULL ? status : "unknown";
		size_t at = 0;
		if (status != NULL && strcmp(status, "completed") == 0) {
			found->answered++;
			found->empty += strcmp(word, "empty") == 0;
			continue;
		}
		while (at < found->classes && strcmp(found->names[at], word) != 0)
			at++;
		if (at == CLASSES_MAX)
			continue;
		if (at == found->classes) {
			found->names[at] = word;
			found->counts[found->classes++] = 0;
		}
		found->counts[at]++;
	}
}

static void add_classes(struct buffer *text, const struct section_counts *found)
{
	for (size_t i = 0; i < found->classes; i++)
		buffer_printf(text, "%s%zu %s", i == 0 ? "" : ", ", found->counts[i], found->names[i]);
}

static void print_counts(struct command *command, const struct json *run, const struct section_counts *found, size_t fact_count)
{
	struct buffer text;
	double rejected = json_get_number(json_get(extraction_of(json_get(run, "output")), "summary"), "rejected", 0);
	buffer_init(&text, 4096);
	buffer_printf(&text, "%zu fact%s from %zu of %zu section%s", fact_count, fact_count == 1 ? "" : "s", found->answered, found->total, found->total == 1 ? "" : "s");
	if (found->empty > 0)
		buffer_printf(&text, "; %zu without facts", found->empty);
	if (found->answered < found->total)
		buffer_printf(&text, "; %zu gave no usable answer", found->total - found->answered);
	if (found->classes > 0) {
		buffer_add_text(&text, " (");
		add_classes(&text, found);
		buffer_add_char(&text, ')');
	}
	if (rejected > 0)
		buffer_printf(&text, "; %.0f candidate%s rejected (reprise fact list --rejected)", rejected, rejected == 1 ? "" : "s");
	output_line(&command->output, "%s", buffer_text(&text));
	buffer_close(&text);
}

/* The run completed, and nobody answered: that is no success of the command. On standard error alone, since the run's
 * document already stands on standard output. */
static int fail_unanswered(struct command *command, const struct section_counts *found, const char *runtime)
{
	struct buffer text;
	buffer_init(&text, 4096);
	buffer_printf(&text, "reprise: none of the %zu section%s was answered usably", found->total, found->total == 1 ? "" : "s");
	if (found->classes > 0)
		buffer_add_text(&text, ": ");
	add_classes(&text, found);
	output_note(&command->output, "%s", buffer_text(&text));
	output_note(&command->output, "  next: `reprise runtime probe %s` says whether it answers and which models it lists", runtime);
	buffer_close(&text);
	return STATUS_ERROR;
}

int command_extract(struct command *command)
{
	struct arena *arena = &command->arena;
	const char *path = command->arguments[0], *id = command_option(command, "id"), *schema = command_option(command, "schema");
	const char *runtime, *digest;
	struct json *body = json_object(arena), *input = json_object(arena), *document_input = json_object(arena), *labels, *definition = NULL, *run = NULL;
	struct bytes document;
	int64_t timeout_ms = -1;
	int status;

	if (id != NULL && !id_valid(id))
		return command_fail(command, STATUS_USAGE, NULL, "--id %s: an id is 1 to %d of A-Z a-z 0-9 . _ -", id, ID_LEN_MAX);
	if ((status = command_duration(command, "timeout", &timeout_ms)) != STATUS_OK || (status = command_read_pairs(command, "label", &labels)) != STATUS_OK || (status = command_read_budget(command, body)) != STATUS_OK ||
	    (status = command_read_named(command, "document", path, COMMAND_FILE_MAX, "COMMAND_FILE_MAX", &document)) != STATUS_OK)
		return status;
	if (schema == NULL)
		json_set_text(arena, body, "definition", EXTRACT_WORKFLOW);
	else if ((status = definition_with_schema(command, schema, &definition)) == STATUS_OK)
		json_set(arena, body, "definition", definition);
	if (status != STATUS_OK || (status = choose_runtime(command, &runtime)) != STATUS_OK || (status = upload(command, path, document, &digest)) != STATUS_OK)
		return status;
	if (id == NULL)
		id = new_run_id(command);
	json_set_text(arena, document_input, "digest", digest);
	json_set_text(arena, input, "runtime", runtime);
	json_set(arena, input, "document", document_input);
	json_set_text(arena, body, "id", id);
	json_set(arena, body, "input", input);
	if (labels != NULL)
		json_set(arena, body, "labels", labels);
	if ((status = run_submit(command, body, &run)) != STATUS_OK)
		return status;
	if (command_flag(command, "no-wait")) {
		if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL)
			output_json(&command->output, run);
		else
			output_line(&command->output, "%s", id);
		return STATUS_OK;
	}

	interrupt_say(arena_printf(arena, "\nreprise: interrupted; the run goes on: reprise result %s --wait\n", id));
	if (command->output.progress && timeout_ms < 0 && !run_ended(run)) {
		struct watching watching = {.command = command};
		progress_show(&command->output, 0, 0, "cutting the document into sections");
		status = run_follow(command, id, 0, false, on_entry, &watching);
		progress_clear(&command->output);
		if (status != STATUS_OK)
			return status;
	}
	if ((status = run_wait(command, id, timeout_ms, command->output.format == FORMAT_TEXT ? "output,facts" : "all", &run)) != STATUS_OK)
		return status;

	struct fact_rows rows = {command, json_array(arena)};
	if ((status = facts_each(command, id, UINT64_MAX, true, keep_fact, &rows)) != STATUS_OK)
		return status;
	int outcome = run_exit_status(run);
	struct section_counts found;
	count_sections(run, &found);
	if (command->output.format == FORMAT_IDS) {
		for (size_t i = 0; i < json_count(rows.facts); i++)
			output_line(&command->output, "%s", json_get_text(json_at(rows.facts, i), "id"));
	} else if (command->output.format == FORMAT_JSONL) {
		for (size_t i = 0; i < json_count(rows.facts); i++)
			output_json(&command->output, json_at(rows.facts, i));
	} else if (command->output.format == FORMAT_JSON) {
		/* The run document as the API gives it, and beside its fact ids the fact documents. */
		json_set(arena, run, "factDocuments", rows.facts);
		output_json(&command->output, run);
	} else {
		print_facts(command, document, rows.facts);
		if (outcome == STATUS_OK)
			print_counts(command, run, &found, json_count(rows.facts));
		output_line(&command->output, "run %s  %s", id, json_get_text(run, "status"));
		note_simulated(command, rows.facts);
	}
	if (outcome == STATUS_OK && found.total > 0 && found.answered == 0)
		return fail_unanswered(command, &found, runtime);
	if (outcome != STATUS_OK)
		run_print_error(command, run);
	return outcome;
}
