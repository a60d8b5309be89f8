/* reprise fact list | show | verify | export. Verification happens here, not in the daemon: start at verify_one(). */
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/trust.h"
#include "workflow/base/check.h"

enum {
	FACT_ID_SHOWN = 16,
	FACTS_IN_FULL = 3, /* so many are shown with every check, more of them by their results */
};

/* --- list and show ------------------------------------------------------------------------------------------------ */

struct listing {
	struct command *command;
	struct table table;
	struct json *all;
	size_t count;
	uint64_t limit;
	bool simulated; /* one of them is */
	bool *more; /* there was one past the limit */
};

static int list_fact(void *arg, struct json *fact)
{
	struct listing *listing = arg;
	struct command *command = listing->command;
	if (listing->count == listing->limit) {
		*listing->more = true;
		return STATUS_OK;
	}
	const struct json *value = json_get(fact, "value");
	const char *id = json_get_text(fact, "id"), *subject = value_text(&command->arena, json_get(value, "subject"));
	listing->count++;
	listing->simulated |= json_get_boolean(fact, "simulated", false);
	if (command->output.format == FORMAT_IDS) {
		output_line(&command->output, "%s", id);
	} else if (command->output.format == FORMAT_JSONL) {
		output_json(&command->output, fact);
	} else if (command->output.format == FORMAT_JSON) {
		json_add(&command->arena, listing->all, fact);
	} else {
		const char *cells[] = {id == NULL ? NULL : arena_printf(&command->arena, "%.*s", FACT_ID_SHOWN, id), subject != NULL ? subject : value_text(&command->arena, value),
				       value_text(&command->arena, json_get(value, "predicate")), value_text(&command->arena, json_get(value, "object")),
				       json_get_text(json_get(fact, "grounding"), "grade"), json_get_boolean(fact, "accepted", true) ? "" : "rejected", json_get_text(fact, "quote")};
		table_add(&listing->table, cells);
		table_colour(&listing->table, 5, COLOUR_BAD);
	}
	return STATUS_OK;
}

int command_fact_list(struct command *command)
{
	static const struct table_column columns[] = {{"FACT", 0, false}, {"SUBJECT", 28, false}, {"PREDICATE", 20, false}, {"OBJECT", 28, false},
						      {"GRADE", 0, false}, {"", 0, false}, {"QUOTE", 0, false}};
	struct listing listing = {.command = command, .all = json_array(&command->arena)};
	uint64_t limit = COMMAND_LIST_DEFAULT;
	int status = command_number(command, "limit", UINT64_MAX / 2, &limit);
	if (status != STATUS_OK)
		return status;
	if (command_flag(command, "all"))
		limit = UINT64_MAX / 2;
	table_init(&listing.table, &command->arena, columns, COUNT_OF(columns));
	bool streamed = command->output.format == FORMAT_IDS || command->output.format == FORMAT_JSONL;
	/* One more than is shown says whether there is more; only a table tells it. */
	bool more = false;
	listing.limit = limit;
	listing.more = &more;
	status = facts_each(command, command_option(command, "run"), command->output.format == FORMAT_TEXT && limit > 0 && limit < UINT64_MAX / 2 ? limit + 1 : limit, !streamed, list_fact,
			    &listing);
	if (status == STATUS_OK && command->output.format == FORMAT_TEXT) {
		table_print(&listing.table, &command->output);
		if (listing.simulated)
			output_line(&command->output, SIMULATED_LINE);
		if (more)
			output_note(&command->output, "showing %llu; --all lists every one", (unsigned long long)limit);
	} else if (status == STATUS_OK && command->output.format == FORMAT_JSON) {
		struct json *result = json_object(&command->arena);
		json_set(&command->arena, result, "facts", listing.all);
		output_json(&command->output, result);
	}
	table_close(&listing.table);
	return status;
}

static const char *range_text(struct arena *arena, const struct json *range)
{
	const struct json *from = json_at(range, 0), *to = json_at(range, 1);
	if (!json_is(from, JSON_NUMBER) || !json_is(to, JSON_NUMBER))
		return "-";
	return arena_printf(arena, "%.0f-%.0f", from->number, to->number);
}

int command_fact_show(struct command *command)
{
	struct arena *arena = &command->arena;
	struct output *output = &command->output;
	struct json *fact;
	int status = command_check_fact_id(command, command->arguments[0]);
	if (status != STATUS_OK || (status = command_get(command, path_of(command, "/v1/facts/", command->arguments[0], ""), &fact)) != STATUS_OK)
		return status;
	if (output->format == FORMAT_IDS) {
		output_line(output, "%s", json_get_text(fact, "id"));
		return STATUS_OK;
	}
	if (output->format != FORMAT_TEXT) {
		output_json(output, fact);
		return STATUS_OK;
	}
	const struct json *value = json_get(fact, "value"), *grounding = json_get(fact, "grounding"), *checks = json_get(fact, "checks");
	const struct json *reproducibility = json_get(fact, "reproducibility");
	output_line(output, "fact       %s%s", json_get_text(fact, "id"), json_get_boolean(fact, "accepted", true) ? "" : "  (rejected)");
	static const char *const first[] = {"subject", "predicate", "object"};
	for (size_t i = 0; i < COUNT_OF(first); i++)
		if (json_get(value, first[i]) != NULL)
			output_line(output, "%-10s %s", first[i], text_line(arena, value_text(arena, json_get(value, first[i]))));
	for (size_t i = 0; json_is(value, JSON_OBJECT) && i < value->object.count; i++)
		if (strcmp(value->object.members[i].name, first[0]) != 0 && strcmp(value->object.members[i].name, first[1]) != 0 && strcmp(value->object.members[i].name, first[2]) != 0)
			output_line(output, "%-10s %s", text_line(arena, value->object.members[i].name), text_line(arena, value_text(arena, value->object.members[i].value)));
	output_line(output, "quote      %s", json_get_text(fact, "quote") == NULL ? "-" : text_line(arena, json_get_text(fact, "quote")));
	output_line(output, "grounding  %s, bytes %s, code points %s, UTF-16 %s", json_get_text(grounding, "grade") == NULL ? "-" : json_get_text(grounding, "grade"),
		    range_text(arena, json_get(grounding, "bytes")), range_text(arena, json_get(grounding, "codePoints")), range_text(arena, json_get(grounding, "utf16")));
	for (size_t i = 0; i < json_count(checks); i++) {
		const struct json *check = json_at(checks, i);
		const char *detail = text_line(arena, json_get_text(check, "detail"));
		output_line(output, "check      %s %s%s%s", json_get_text(check, "name"), json_get_text(check, "result"), detail == NULL ? "" : ": ", detail == NULL ? "" : detail);
	}
	output_line(output, "document   %s", json_get_text(fact, "document") == NULL ? "-" : json_get_text(fact, "document"));
	output_line(output, "run        %s, task %s, attempt %.0f", json_get_text(fact, "run"), json_get_text(fact, "task"), json_get_number(fact, "attempt", 0));
	output_line(output, "runtime    %s, model %s%s", json_get_text(fact, "runtime") == NULL ? "-" : json_get_text(fact, "runtime"),
		    json_get_text(fact, "model") == NULL ? "-" : json_get_text(fact, "model"),
		    json_get_boolean(fact, "simulated", false) ? "  (SIMULATED: no model answered)" : json_get_boolean(fact, "unattested", false) ? "  (unattested: its weights are not known)" : "");
	output_line(output, "configured %s", json_get_text(fact, "configuration") == NULL ? "-" : json_get_text(fact, "configuration"));
	output_line(output, "class      %s", json_get_text(reproducibility, "class") == NULL ? "-" : json_get_text(reproducibility, "class"));
	output_line(output, "recorded   %s, journal entry %.0f", output_time(output, arena, json_get_text(fact, "recordedAt")), json_get_number(fact, "seq", -1));
	return STATUS_OK;
}

/* --- verify ------------------------------------------------------------------------------------------------------- */

struct verifying {
	struct command *command;
	struct trust trust;
	struct bytes fact, entry, proof, document, section, prompt, schema, request, response; /* from options */
	struct json *all; /* -o json */
	size_t expected, count, results[VERIFY_CANNOT + 1];
	int worst;
	struct arena document_arena; /* of the last document that was fetched: facts of one document come in a row */
	const char *document_digest;
	struct bytes document_bytes;
};

/* Which of two exit statuses says more: a damaged journal, a bad signature, malformed, missing keys. */
static int worse(int a, int b)
{
	static const int order[] = {STATUS_JOURNAL_DAMAGED, STATUS_SIGNATURE_INVALID, STATUS_MALFORMED, STATUS_UNVERIFIABLE};
	for (size_t i = 0; i < COUNT_OF(order); i++)
		if (a == order[i] || b == order[i])
			return order[i];
	return a != STATUS_OK ? a : b;
}

#define ARTEFACT "artefact"

/* "document" of "document is the signed one" and "document was not given"; a section may have been found by its place. NULL:
 * no line about an artefact. */
static const char *artefact_name(struct command *command, const struct verify_line *line)
{
	if (strcmp(line->check, ARTEFACT) != 0 || line->detail == NULL)
		return NULL;
	return arena_text_len(&command->arena, line->detail, strcspn(line->detail, " "));
}

/* Not twice, and not as left out where it passed in another way. */
static bool artefact_told(struct command *command, const struct verify_report *report, size_t at)
{
	const char *name = artefact_name(command, &report->lines[at]);
	for (size_t i = 0; i < report->count; i++) {
		const char *other = artefact_name(command, &report->lines[i]);
		if (i == at || other == NULL || strcmp(other, name) != 0)
			continue;
		if ((report->lines[i].status == report->lines[at].status && i < at) || (report->lines[at].status == VERIFY_SKIPPED && report->lines[i].status != VERIFY_SKIPPED))
			return true;
	}
	return false;
}

static bool has_artefact(struct command *command, const struct verify_report *report, enum verify_status status)
{
	for (size_t i = 0; i < report->count; i++)
		if (report->lines[i].status == status && artefact_name(command, &report->lines[i]) != NULL && !artefact_told(command, report, i))
			return true;
	return false;
}

/* One word for them all would stand under "passed" and "not checked" alike. */
static void add_artefacts(struct command *command, struct buffer *text, const struct verify_report *report, enum verify_status status)
{
	bool first = true;
	for (size_t i = 0; i < report->count; i++) {
		const char *name = artefact_name(command, &report->lines[i]);
		if (report->lines[i].status != status || name == NULL || artefact_told(command, report, i))
			continue;
		buffer_printf(text, "%s%s", first ? "s (" : ", ", name);
		first = false;
	}
	buffer_add_char(text, ')');
}

static void report_one(struct verifying *verifying, const char *name, struct verify_report *report)
{
	struct command *command = verifying->command;
	enum verify_result result = verify_report_result(report);
	verifying->count++;
	verifying->results[result]++;
	verifying->worst = worse(verifying->worst, verify_report_exit(report));
	if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL) {
		struct json *json = verify_report_json(report, &command->arena);
		json_set_text(&command->arena, json, "fact", name);
		if (command->output.format == FORMAT_JSONL)
			output_json(&command->output, json);
		else
			json_add(&command->arena, verifying->all, json);
		return;
	}
	if (command->output.format == FORMAT_IDS) {
		if (result == VERIFY_VALID)
			output_line(&command->output, "%s", name);
		return;
	}
	bool full = verifying->expected <= FACTS_IN_FULL || command_flag(command, "verbose");
	const char *shown = strlen(name) == DIGEST_HEX_LEN ? arena_text_len(&command->arena, name, FACT_ID_SHOWN) : name;
	if (full)
		print_verify_lines(command, report, arena_printf(&command->arena, "%s  ", shown), true);
	output_text(&command->output, arena_printf(&command->arena, "%s  ", shown));
	output_coloured(&command->output, status_colour(verify_result_names[result]), verify_result_names[result]);
	/* Never one green word for all: which checks passed, and what was not looked at. */
	struct buffer text;
	buffer_init(&text, 65536);
	static const enum verify_status kinds[] = {VERIFY_PASS, VERIFY_SKIPPED};
	static const char *const titles[] = {"passed:", "not checked:"};
	for (size_t k = 0; k < COUNT_OF(kinds) && !full; k++) {
		bool first = true;
		for (size_t i = 0; i < report->count; i++) {
			const struct verify_line *line = &report->lines[i];
			bool told = line->status != kinds[k];
			for (size_t j = 0; j < i && !told; j++)
				told = report->lines[j].status == kinds[k] && strcmp(report->lines[j].check, line->check) == 0;
			if (told || (strcmp(line->check, ARTEFACT) == 0 && !has_artefact(command, report, kinds[k])))
				continue;
			buffer_printf(&text, "%s %s", first ? arena_printf(&command->arena, "%s%s", k == 0 ? "  " : "; ", titles[k]) : "", line->check);
			if (strcmp(line->check, ARTEFACT) == 0)
				add_artefacts(command, &text, report, kinds[k]);
			first = false;
		}
	}
	output_line(&command->output, "%s", buffer_text(&text));
	buffer_close(&text);
	if (!full)
		print_verify_lines(command, report, "    ", false);
}

static void verify_one(struct verifying *verifying, const char *name, struct bytes envelope, struct bytes fact, struct bytes entry, struct bytes proof, struct bytes document)
{
	struct verify_input input = {
		.envelope = envelope, .keys = verifying->trust.fact_keys, .key_count = verifying->trust.fact_key_count, .fact = fact, .entry = entry, .proof = proof,
		.log_key = verifying->trust.has_log_key ? &verifying->trust.log_key : NULL, .keyring = verifying->trust.keyring, .root_keys = verifying->trust.root_keys,
		.root_key_count = verifying->trust.root_key_count, .document = document, .section = verifying->section, .prompt = verifying->prompt,
		.schema = verifying->schema, .request = verifying->request, .response = verifying->response,
	};
	struct verify_report report;
	verify_report_init(&report);
	verify_envelope(&input, &report);
	report_one(verifying, name, &report);
	verify_report_close(&report);
}

/* What the daemon keeps of a fact, checked here with nothing taken on its word but the keys. */
static int verify_recorded(struct verifying *verifying, const char *id_or_prefix, struct json *fact)
{
	struct command *command = verifying->command;
	struct arena *arena = &command->arena;
	struct json *entry;
	struct bytes envelope;
	int status;
	if (fact == NULL && (status = command_get(command, path_of(command, "/v1/facts/", id_or_prefix, ""), &fact)) != STATUS_OK)
		return status;
	const char *id = json_get_text(fact, "id") != NULL ? json_get_text(fact, "id") : id_or_prefix;
	if ((status = command_get_bytes(command, path_of(command, "/v1/facts/", id, "/attestation"), &envelope)) != STATUS_OK ||
	    (status = command_get(command, path_of(command, "/v1/facts/", id, "/entry"), &entry)) != STATUS_OK)
		return status;

	/* The signed object is {quote, value} of the fact document. */
	struct json *signed_part = json_object(arena);
	if (json_get(fact, "value") != NULL)
		json_set(arena, signed_part, "value", json_get(fact, "value"));
	if (json_get(fact, "quote") != NULL)
		json_set(arena, signed_part, "quote", json_get(fact, "quote"));
	const char *entry_text = json_get_text(entry, "entry"), *proof_text = json_get_text(entry, "proof"), *digest = json_get_text(fact, "document");
	if (digest != NULL && (verifying->document_digest == NULL || strcmp(verifying->document_digest, digest) != 0)) {
		struct request request = {.path = path_of(command, "/v1/documents/", digest, "")};
		struct reply reply;
		if ((status = command_send(command, &request, &reply)) == STATUS_OK) {
			/* An erased document is no failure: the check is then skipped, and says so. */
			arena_close(&verifying->document_arena);
			verifying->document_digest = arena_text(&verifying->document_arena, digest);
			verifying->document_bytes = reply.status == 200 ? arena_bytes(&verifying->document_arena, buffer_bytes(&reply.body)) : (struct bytes){NULL, 0};
		}
		reply_close(&reply);
		if (status != STATUS_OK)
			return status;
	}
	verify_one(verifying, id, envelope, json_print_arena(signed_part, arena), entry_text == NULL ? (struct bytes){NULL, 0} : bytes_text(entry_text),
		   proof_text == NULL ? (struct bytes){NULL, 0} : bytes_text(proof_text), digest == NULL ? (struct bytes){NULL, 0} : verifying->document_bytes);
	return STATUS_OK;
}

static int verify_listed(void *arg, struct json *fact)
{
	return verify_recorded(arg, json_get_text(fact, "id"), fact);
}

/* Envelopes, one a line, or one over several lines. */
static int verify_file(struct verifying *verifying, const char *path)
{
	struct command *command = verifying->command;
	struct bytes bytes;
	struct json *whole;
	int status = command_read_file(command, path, &bytes);
	if (status != STATUS_OK)
		return status;
	whole = json_parse(&command->arena, bytes, JSON_STRICT, NULL, NULL);
	size_t lines = 0;
	for (size_t at = 0; at < bytes.len; lines++) {
		const uint8_t *newline = memchr(bytes.data + at, '\n', bytes.len - at);
		at = newline == NULL ? bytes.len : (size_t)(newline - bytes.data) + 1;
	}
	if (whole != NULL || lines <= 1) {
		verify_one(verifying, path, bytes, verifying->fact, verifying->entry, verifying->proof, verifying->document);
		return STATUS_OK;
	}
	if (lines > verifying->expected)
		verifying->expected = lines;
	size_t number = 0;
	for (size_t at = 0; at < bytes.len;) {
		const uint8_t *newline = memchr(bytes.data + at, '\n', bytes.len - at);
		size_t end = newline == NULL ? bytes.len : (size_t)(newline - bytes.data);
		number++;
		if (end > at)
			verify_one(verifying, arena_printf(&command->arena, "%s:%zu", path, number), (struct bytes){bytes.data + at, end - at}, verifying->fact, verifying->entry,
				   verifying->proof, verifying->document);
		at = end + 1;
	}
	return STATUS_OK;
}

static bool looks_like_fact_id(const char *text)
{
	size_t len = strlen(text);
	for (size_t i = 0; i < len; i++)
		if (!isdigit((unsigned char)text[i]) && (text[i] < 'a' || text[i] > 'f'))
			return false;
	return len >= FACT_PREFIX_MIN && len <= DIGEST_HEX_LEN;
}

/* Evidence that was given is used or refused: a check that quietly leaves it out would say less than it seems to. Whether it
 * proves anything is for the report. */
static int check_evidence(struct verifying *verifying, bool files)
{
	struct command *command = verifying->command;
	static const char *const names[] = {"fact", "entry", "proof"}; /* of facts that the daemon keeps it gives them itself */
	const struct bytes *const places[] = {&verifying->fact, &verifying->entry, &verifying->proof};
	for (size_t i = 0; i < COUNT_OF(names); i++)
		if (command_option(command, names[i]) != NULL && !files)
			return command_fail(command, STATUS_USAGE, arena_printf(&command->arena, "usage: reprise fact verify FILE --%s FILE", names[i]),
					    "--%s goes with a FILE of envelopes: for FACT, --run and --all the daemon gives it", names[i]);
	if (command_option(command, "proof") != NULL && command_option(command, "entry") == NULL)
		return command_fail(command, STATUS_USAGE, "reprise fact export FACT --format entry prints it", "--proof goes with --entry FILE: what it proves is where that entry stands in the log");
	if (command_option(command, "root-key") != NULL && command_option(command, "keyring") == NULL)
		return command_fail(command, STATUS_USAGE, NULL, "--root-key goes with --keyring FILE: a root key checks the ring's signature");
	struct error error;
	for (size_t i = 0; i < COUNT_OF(places); i++) {
		const char *path = command_option(command, names[i]);
		bool good = true;
		if (path == NULL)
			continue;
		if (places[i] == &verifying->proof) {
			uint64_t index;
			struct log_proof proof;
			struct bytes note;
			good = proof_file_parse(*places[i], &index, &proof, &note, &error) == 0;
		} else {
			good = json_parse(&command->arena, *places[i], JSON_STRICT, NULL, &error) != NULL;
		}
		if (!good)
			return command_fail(command, STATUS_MALFORMED, NULL, "--%s %s: %s", names[i], path, error.message);
	}
	if (command_option(command, "keyring") != NULL && json_parse(&command->arena, verifying->trust.keyring, JSON_STRICT, NULL, &error) == NULL)
		return command_fail(command, STATUS_MALFORMED, NULL, "--keyring %s: %s", command_option(command, "keyring"), error.message);
	/* The artefacts are any bytes, but no bytes are none of them. */
	static const char *const artefacts[] = {"document", "section", "prompt", "schema", "request", "response"};
	const struct bytes *const bytes[] = {&verifying->document, &verifying->section, &verifying->prompt, &verifying->schema, &verifying->request, &verifying->response};
	for (size_t i = 0; i < COUNT_OF(artefacts); i++)
		if (command_option(command, artefacts[i]) != NULL && bytes[i]->data != NULL && bytes[i]->len == 0)
			return command_fail(command, STATUS_MALFORMED, NULL, "--%s %s is empty", artefacts[i], command_option(command, artefacts[i]));
	return STATUS_OK;
}

static int verify_facts(struct verifying *verifying)
{
	struct command *command = verifying->command;
	static const char *const names[] = {"fact", "entry", "proof", "document", "section", "prompt", "schema", "request", "response"};
	struct bytes *const places[] = {&verifying->fact, &verifying->entry, &verifying->proof, &verifying->document, &verifying->section,
					&verifying->prompt, &verifying->schema, &verifying->request, &verifying->response};
	const char *run = command_option(command, "run"), **ids;
	bool all = command_flag(command, "all");
	size_t count;
	int status = trust_read_options(command, &verifying->trust);
	if (status != STATUS_OK || (status = command_read_ids(command, 0, &ids, &count)) != STATUS_OK)
		return status;
	bool online = run != NULL || all;
	/* --document means a file to compare with when files are verified, and a filter where facts are listed. */
	for (size_t i = 0; i < COUNT_OF(names); i++)
		if (command_option(command, names[i]) != NULL && !(online && strcmp(names[i], "document") == 0) &&
		    (status = command_read_file(command, command_option(command, names[i]), places[i])) != STATUS_OK)
			return status;
	if (count == 0 && !online)
		return command_fail(command, STATUS_USAGE, "usage: reprise fact verify FACT… | --run RUN | --all | FILE…", "fact verify: which facts?");
	bool files = false;
	for (size_t i = 0; i < count; i++) {
		bool is_fact = looks_like_fact_id(ids[i]) && access(ids[i], F_OK) != 0;
		online |= is_fact;
		files |= !is_fact;
	}
	if ((status = check_evidence(verifying, files)) != STATUS_OK)
		return status;
	if (online && (status = trust_ask_daemon(command, &verifying->trust)) != STATUS_OK)
		return status;

	verifying->expected = run != NULL || all ? SIZE_MAX : count;
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		if (looks_like_fact_id(ids[i]) && access(ids[i], F_OK) != 0)
			status = verify_recorded(verifying, ids[i], NULL);
		else
			status = verify_file(verifying, ids[i]);
	}
	if (status == STATUS_OK && (run != NULL || all))
		status = facts_each(command, run, UINT64_MAX, command->output.format == FORMAT_JSON, verify_listed, verifying);
	if (status != STATUS_OK)
		return status;

	if (command->output.format == FORMAT_JSON) {
		struct json *result = json_object(&command->arena);
		json_set(&command->arena, result, "facts", verifying->all);
		json_set_number(&command->arena, result, "exit", verifying->worst);
		for (size_t i = 0; i < COUNT_OF(verify_result_names); i++)
			json_set_number(&command->arena, result, verify_result_names[i], (double)verifying->results[i]);
		output_json(&command->output, result);
	} else if (command->output.format == FORMAT_TEXT && verifying->count != 1) {
		output_line(&command->output, "%zu fact%s: %zu valid, %zu invalid, %zu malformed, %zu unverifiable", verifying->count, verifying->count == 1 ? "" : "s", verifying->results[VERIFY_VALID],
			    verifying->results[VERIFY_INVALID], verifying->results[VERIFY_MALFORMED], verifying->results[VERIFY_CANNOT]);
	}
	trust_note(command, &verifying->trust);
	if (verifying->trust.fact_key_count == 0 && verifying->count > 0)
		output_note(&command->output, "--key FILE names the fact key; reprise key export prints a daemon's");
	return verifying->worst;
}

int command_fact_verify(struct command *command)
{
	struct verifying verifying = {.command = command, .all = json_array(&command->arena)};
	arena_init(&verifying.document_arena);
	int status = verify_facts(&verifying);
	arena_close(&verifying.document_arena);
	return status;
}

/* --- export ------------------------------------------------------------------------------------------------------- */

enum export_format { EXPORT_DSSE, EXPORT_JSONL, EXPORT_CSV, EXPORT_PROOF, EXPORT_ENTRY };
static const char *const export_formats[] = {[EXPORT_DSSE] = "dsse", [EXPORT_JSONL] = "jsonl", [EXPORT_CSV] = "csv", [EXPORT_PROOF] = "proof", [EXPORT_ENTRY] = "entry"};
struct exporting {
	struct command *command;
	enum export_format format;
	bool has_header;
};

static const char *const csv_header[] = {"id", "subject", "predicate", "object", "quote", "grade", "document", "byteStart", "byteEnd", "run", "runtime",
					 "model", "class", "simulated", "recordedAt"};

/* Once, before the first fact: an export that fails prints nothing. */
static void print_csv_header(struct exporting *exporting)
{
	struct buffer line;
	if (exporting->has_header)
		return;
	exporting->has_header = true;
	buffer_init(&line, 4096);
	csv_add(&line, csv_header, COUNT_OF(csv_header));
	fwrite(line.data, 1, line.len, stdout);
	buffer_close(&line);
}

static int export_one(struct exporting *exporting, const char *id, struct json *fact)
{
	struct command *command = exporting->command;
	struct arena *arena = &command->arena;
	int status;
	if (exporting->format == EXPORT_DSSE) {
		struct bytes envelope;
		if ((status = command_get_bytes(command, path_of(command, "/v1/facts/", id, "/attestation"), &envelope)) != STATUS_OK)
			return status;
		/* As it is stored: what was signed is never printed anew. */
		while (envelope.len > 0 && (envelope.data[envelope.len - 1] == '\n' || envelope.data[envelope.len - 1] == '\r'))
			envelope.len--;
		fwrite(envelope.data, 1, envelope.len, stdout);
		fputc('\n', stdout);
		return STATUS_OK;
	}
	if (exporting->format == EXPORT_PROOF || exporting->format == EXPORT_ENTRY) {
		struct json *answer;
		if ((status = command_get(command, path_of(command, "/v1/facts/", id, "/entry"), &answer)) != STATUS_OK)
			return status;
		const struct json *text = json_get(answer, export_formats[exporting->format]);
		if (!json_is(text, JSON_STRING))
			return command_fail(command, STATUS_ERROR, NULL, "fact %s: the daemon gives no %s", id, export_formats[exporting->format]);
		/* The bytes and nothing else: the entry's are hashed as they stand. */
		fwrite(text->string.text, 1, text->string.len, stdout);
		return STATUS_OK;
	}
	if (fact == NULL && (status = command_get(command, path_of(command, "/v1/facts/", id, ""), &fact)) != STATUS_OK)
		return status;
	if (exporting->format == EXPORT_JSONL) {
		command->output.format = FORMAT_JSONL;
		output_json(&command->output, fact);
		return STATUS_OK;
	}
	const struct json *value = json_get(fact, "value"), *bytes = json_get(json_get(fact, "grounding"), "bytes");
	const char *subject = value_text(arena, json_get(value, "subject"));
	const char *cells[] = {json_get_text(fact, "id"), subject != NULL ? subject : value_text(arena, value), value_text(arena, json_get(value, "predicate")),
			       value_text(arena, json_get(value, "object")), json_get_text(fact, "quote"), json_get_text(json_get(fact, "grounding"), "grade"),
			       json_get_text(fact, "document"), value_text(arena, json_at(bytes, 0)), value_text(arena, json_at(bytes, 1)), json_get_text(fact, "run"),
			       json_get_text(fact, "runtime"), json_get_text(fact, "model"), json_get_text(json_get(fact, "reproducibility"), "class"),
			       json_get_boolean(fact, "simulated", false) ? "true" : "false", json_get_text(fact, "recordedAt")};
	static_assert(COUNT_OF(cells) == COUNT_OF(csv_header), "each column has a title");
	print_csv_header(exporting);
	struct buffer line;
	buffer_init(&line, CLIENT_BODY_MAX);
	csv_add(&line, cells, COUNT_OF(cells));
	fwrite(line.data, 1, line.len, stdout);
	buffer_close(&line);
	return STATUS_OK;
}

static int export_listed(void *arg, struct json *fact)
{
	return export_one(arg, json_get_text(fact, "id"), fact);
}

int command_fact_export(struct command *command)
{
	struct exporting exporting = {.command = command};
	const char *format = command_option(command, "format"), **ids;
	size_t count;
	size_t chosen = EXPORT_DSSE;
	while (format != NULL && chosen < COUNT_OF(export_formats) && strcmp(format, export_formats[chosen]) != 0)
		chosen++;
	if (chosen == COUNT_OF(export_formats))
		return command_fail(command, STATUS_USAGE, "one of: dsse, jsonl, csv, proof, entry", "--format %s is unknown", format);
	exporting.format = (enum export_format)chosen;
	int status = command_read_ids(command, 0, &ids, &count);
	if (status != STATUS_OK)
		return status;
	if ((exporting.format == EXPORT_PROOF || exporting.format == EXPORT_ENTRY) && (count != 1 || command_option(command, "run") != NULL))
		return command_fail(command, STATUS_USAGE, arena_printf(&command->arena, "usage: reprise fact export FACT --format %s", format),
				    "--format %s is of one fact: a file holds one", format);
	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		status = command_check_fact_id(command, ids[i]);
	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		status = export_one(&exporting, ids[i], NULL);
	if (status == STATUS_OK && (count == 0 || command_option(command, "run") != NULL))
		status = facts_each(command, command_option(command, "run"), UINT64_MAX, false, export_listed, &exporting);
	if (status == STATUS_OK && exporting.format == EXPORT_CSV)
		print_csv_header(&exporting);
	return status;
}
