/* Checking evidence: one line per check. Pure. Start at verify_envelope() for a fact, at verify_journal_add() for a log.
 * Nothing that a signature covers is looked at before the signature was found good. */
#include "workflow/evidence/verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"

#define JOURNAL_SIZE_MAX ((uint64_t)1 << 53) /* seq is a JSON number */
#define KEYRING_TYPE "https://reprise.example/keyring/v1"

enum {
	ENTRY_LEN_MAX = 65535, /* the 16-bit length of tlog-tiles */
	CLOCK_TOLERANCE_MS = 5 * 60 * 1000, /* between the clocks that a fact's times come from */
	COSIGNATURE_FUTURE_MAX_S = 300,
	CHECKPOINTS_MAX = 65536,
	PRUNED_LEVEL_MAX = 40, /* no tile is larger */
	DETAIL_MAX = 1024,
	CODE_MAX = 64,
};

static const char *const status_names[] = {
	[VERIFY_PASS] = "pass",
	[VERIFY_FAIL] = "fail",
	[VERIFY_UNVERIFIABLE] = "unverifiable",
	[VERIFY_SKIPPED] = "skipped",
	[VERIFY_NOTE] = "note",
};

static const struct {
	const char *name;
	int exit_status;
} results[] = {
	[VERIFY_VALID] = {"VALID", 0},
	[VERIFY_INVALID] = {"INVALID", 22},
	[VERIFY_MALFORMED] = {"MALFORMED", 25},
	[VERIFY_CANNOT] = {"UNVERIFIABLE", 26},
};

enum { EXIT_LOG_DAMAGED = 23 };

/* ---- The report ---- */

void verify_report_init(struct verify_report *report)
{
	memset(report, 0, sizeof(*report));
	arena_init(&report->arena);
}

void verify_report_close(struct verify_report *report)
{
	free(report->lines);
	arena_close(&report->arena);
	memset(report, 0, sizeof(*report));
}

static bool is_about_log(const struct verify_line *line)
{
	return strcmp(line->check, "journal") == 0 || strcmp(line->check, "checkpoint") == 0 || strcmp(line->check, "consistency") == 0;
}

/* How much a line matters for the result; a higher one may not be lost when the report is full. */
static int weight(const struct verify_line *line)
{
	switch (line->status) {
	case VERIFY_FAIL:
		return is_about_log(line) ? 3 : 2;
	case VERIFY_UNVERIFIABLE:
		return 1;
	case VERIFY_PASS:
	case VERIFY_SKIPPED:
	case VERIFY_NOTE:
		break;
	}
	return 0;
}

static void add_line(struct verify_report *report, struct verify_line line)
{
	struct verify_line *last;

	if (report->count == report->cap && report->cap < VERIFY_LINES_MAX) {
		report->cap = report->cap == 0 ? 16 : report->cap * 2;
		if (report->cap > VERIFY_LINES_MAX)
			report->cap = VERIFY_LINES_MAX;
		report->lines = memory_resize(report->lines, report->cap * sizeof(*report->lines));
	}
	if (report->count < VERIFY_LINES_MAX) {
		report->lines[report->count++] = line;
		return;
	}
	/* Full: the last line stands for all that did not fit, with the worst of their statuses. */
	last = &report->lines[VERIFY_LINES_MAX - 1];
	if (weight(&line) > weight(last))
		*last = line;
	if (report->left_out++ == 0)
		last->detail = "further lines were left out, and this is the worst of them";
}

__attribute__((format(printf, 2, 0))) static char *format_detail(struct verify_report *report, const char *format, va_list args)
{
	char text[DETAIL_MAX];

	if (!format || format[0] == '\0')
		return NULL;
	vsnprintf(text, sizeof(text), format, args);
	for (size_t bad; !utf8_valid(bytes_text(text), &bad);) /* cut within a character */
		text[bad] = '\0';
	return arena_text(&report->arena, text);
}

void verify_add(struct verify_report *report, enum verify_status status, const char *check, const char *code, const char *format, ...)
{
	struct verify_line line = {status, check, code, NULL};
	va_list args;

	va_start(args, format);
	line.detail = format_detail(report, format, args);
	va_end(args);
	add_line(report, line);
}

/* An error's message begins with its code, which ends at the first colon or space. */
static const char *split_code(struct verify_report *report, const struct error *error, const char **detail)
{
	size_t len = strcspn(error->message, ": ");

	*detail = error->message + len + strspn(error->message + len, ": ");
	return arena_text_len(&report->arena, error->message, len < CODE_MAX ? len : CODE_MAX);
}

static void add_error(struct verify_report *report, enum verify_status status, const char *check, const struct error *error)
{
	const char *detail, *code = split_code(report, error, &detail);

	verify_add(report, status, check, code, "%s", detail);
}

/* The input cannot be read: not the same as a check that failed. */
static void add_malformed(struct verify_report *report, const char *check, const char *what, const struct error *error)
{
	const char *detail, *code = split_code(report, error, &detail);

	report->malformed = true;
	verify_add(report, VERIFY_FAIL, strncmp(code, "json-", 5) == 0 ? "json" : check, code, "%s: %s", what, detail);
}

enum verify_result verify_report_result(const struct verify_report *report)
{
	int worst = 0;

	if (report->malformed)
		return VERIFY_MALFORMED;
	for (size_t i = 0; i < report->count; i++)
		if (weight(&report->lines[i]) > worst)
			worst = weight(&report->lines[i]);
	return worst >= 2 ? VERIFY_INVALID : worst == 1 ? VERIFY_CANNOT : VERIFY_VALID;
}

int verify_report_exit(const struct verify_report *report)
{
	enum verify_result result = verify_report_result(report);

	for (size_t i = 0; result == VERIFY_INVALID && i < report->count; i++)
		if (weight(&report->lines[i]) == 3)
			return EXIT_LOG_DAMAGED;
	return results[result].exit_status;
}

struct json *verify_report_json(const struct verify_report *report, struct arena *arena)
{
	struct json *json = json_object(arena), *checks = json_array(arena);

	for (size_t i = 0; i < report->count; i++) {
		const struct verify_line *line = &report->lines[i];
		struct json *item = json_object(arena);

		json_set_text(arena, item, "status", status_names[line->status]);
		json_set_text(arena, item, "check", line->check);
		json_set_text(arena, item, "code", line->code);
		json_set_text(arena, item, "detail", line->detail);
		json_add(arena, checks, item);
	}
	json_set_text(arena, json, "result", results[verify_report_result(report)].name);
	json_set_number(arena, json, "exit", verify_report_exit(report));
	json_set(arena, json, "checks", checks);
	return json;
}

/* ---- One envelope ---- */

/* What the checks of one envelope learn from each other. */
struct envelope_check {
	const struct verify_input *input;
	struct verify_report *report;
	struct arena arena;
	struct envelope envelope;
	size_t signers[ENVELOPE_SIGNATURES_MAX];
	const struct json *statement;
	int64_t started_ms, finished_ms, signed_ms;
	const struct json *entry; /* NULL: not given, or not readable */
	int64_t entry_ms;
};

static bool is_given(struct bytes bytes)
{
	return bytes.data != NULL && bytes.len > 0;
}

static const char *text_at(const struct json *json, const char *pointer)
{
	const struct json *value = json_pointer_get(json, pointer);

	return json_is(value, JSON_STRING) ? value->string.text : NULL;
}

static bool texts_equal(const char *a, const char *b)
{
	return a && b && strcmp(a, b) == 0;
}

/* Parse a side file, or say that it cannot be read. */
static struct json *parse_part(struct envelope_check *check, struct bytes text, const char *group, const char *what)
{
	struct error error;
	struct json *json = json_parse(&check->arena, text, JSON_STRICT, NULL, &error);

	if (!json)
		add_malformed(check->report, group, what, &error);
	return json;
}

/* False: nothing in the payload may be believed, stop. */
static bool check_signature(struct envelope_check *check)
{
	const struct verify_input *input = check->input;
	struct verify_report *report = check->report;
	const struct envelope *envelope = &check->envelope;
	size_t count;

	if (input->key_count == 0) {
		verify_add(report, VERIFY_UNVERIFIABLE, "key", "key-unknown", "no fact key was given to check the signature with");
		return false;
	}
	count = envelope_find_signers(envelope, input->keys, input->key_count, check->signers);
	for (size_t i = 0; i < envelope->signature_count; i++) {
		const char *hint = envelope->signatures[i].key_id;

		if (check->signers[i] == ENVELOPE_NO_SIGNER)
			verify_add(report, VERIFY_NOTE, "signature", "signature-not-accepted", "signature %zu is by none of the trusted keys", i);
		else if (hint[0] != '\0' && strcmp(hint, input->keys[check->signers[i]].id) != 0)
			verify_add(report, VERIFY_NOTE, "signature", "keyid-hint-wrong", "signature %zu is by key %.16s, and names another", i,
				   input->keys[check->signers[i]].id);
	}
	if (count == 0) {
		verify_add(report, VERIFY_FAIL, "signature", "signature-invalid", "none of the %zu trusted keys signed this", input->key_count);
		return false;
	}
	for (size_t i = 0; i < envelope->signature_count; i++)
		if (check->signers[i] != ENVELOPE_NO_SIGNER) {
			verify_add(report, VERIFY_PASS, "signature", NULL, "good signature by key %.16s", input->keys[check->signers[i]].id);
			break;
		}
	return true;
}

static void read_times(struct envelope_check *check)
{
	CHECK(time_parse(text_at(check->statement, "/predicate/run/startedOn"), &check->started_ms));
	CHECK(time_parse(text_at(check->statement, "/predicate/run/finishedOn"), &check->finished_ms));
	CHECK(time_parse(text_at(check->statement, "/predicate/run/signedOn"), &check->signed_ms));
}

static bool check_statement(struct envelope_check *check)
{
	struct verify_report *report = check->report;
	struct error error;
	struct bytes canonical;

	if (strcmp(check->envelope.payload_type, ENVELOPE_TYPE_STATEMENT) != 0) {
		verify_add(report, VERIFY_FAIL, "type", "payload-type", "the payload is not of type " ENVELOPE_TYPE_STATEMENT);
		return false;
	}
	check->statement = parse_part(check, check->envelope.payload, "json", "payload");
	if (!check->statement)
		return false;
	if (statement_check(check->statement, &error) != 0) {
		add_error(report, VERIFY_FAIL, strncmp(error.message, "timestamp", 9) == 0 ? "time" : "type", &error);
		return false;
	}
	verify_add(report, VERIFY_PASS, "type", NULL, "an in-toto statement of an extracted fact");
	canonical = json_print_arena(check->statement, &check->arena);
	if (!bytes_equal(canonical, check->envelope.payload))
		verify_add(report, VERIFY_NOTE, "json", "not-canonical", "the payload is not in canonical form (RFC 8785)");
	read_times(check);
	return true;
}

/* The ring's own signature, where it has one. NULL: nothing in it counts. */
static const struct json *open_keyring(struct envelope_check *check)
{
	const struct verify_input *input = check->input;
	struct verify_report *report = check->report;
	const struct json *ring = parse_part(check, input->keyring, "keyring", "key ring");
	struct envelope envelope;
	struct error error;
	double threshold;
	size_t count;

	if (!ring)
		return NULL;
	if (!json_get(ring, "payload")) {
		/* An attacker can take a signature off; who holds root keys expects one. */
		if (input->root_key_count > 0) {
			verify_add(report, VERIFY_FAIL, "keyring", "keyring-signature", "root keys were given, and the key ring is not signed");
			return NULL;
		}
		verify_add(report, VERIFY_NOTE, "keyring", "keyring-unsigned", "the key ring is not signed: it is believed because it was given");
		return ring;
	}
	if (envelope_parse(&check->arena, input->keyring, &envelope, &error) != 0) {
		add_malformed(report, "keyring", "key ring", &error);
		return NULL;
	}
	if (input->root_key_count == 0) {
		verify_add(report, VERIFY_UNVERIFIABLE, "keyring", "keyring-signature", "no root key was given to check the key ring with");
		return NULL;
	}
	if (strcmp(envelope.payload_type, ENVELOPE_TYPE_KEYRING) != 0) {
		verify_add(report, VERIFY_FAIL, "keyring", "keyring-signature", "what was signed is not of type " ENVELOPE_TYPE_KEYRING);
		return NULL;
	}
	count = envelope_count_valid(&envelope, input->root_keys, input->root_key_count, NULL);
	if (count == 0) {
		verify_add(report, VERIFY_FAIL, "keyring", "keyring-signature", "no root key signed the key ring");
		return NULL;
	}
	ring = parse_part(check, envelope.payload, "keyring", "key ring");
	threshold = json_get_number(ring, "threshold", 1);
	if (ring && (double)count < threshold) {
		verify_add(report, VERIFY_FAIL, "keyring", "keyring-signature", "%zu root keys signed the key ring, which wants %.0f", count, threshold);
		return NULL;
	}
	return ring;
}

/* A ring that may be used for this statement. */
static const struct json *check_keyring(struct envelope_check *check)
{
	struct verify_report *report = check->report;
	const struct json *ring = open_keyring(check), *version = json_get(ring, "version");
	const char *journal = text_at(check->statement, "/predicate/run/journal");
	uint64_t least = check->input->keyring_version_min;

	if (!ring)
		return NULL;
	if (!texts_equal(json_get_text(ring, "_type"), KEYRING_TYPE) || !json_is_integer(version) || version->number < 1 ||
	    !json_is(json_get(ring, "keys"), JSON_ARRAY)) {
		report->malformed = true;
		verify_add(report, VERIFY_FAIL, "keyring", "keyring-shape", "not a key ring: _type, version or keys are missing");
		return NULL;
	}
	if (version->number < (double)least) {
		verify_add(report, VERIFY_FAIL, "keyring", "keyring-rollback", "version %.0f of the key ring, and version %" PRIu64 " is known",
			   version->number, least);
		return NULL;
	}
	if (!texts_equal(json_get_text(ring, "journal"), journal))
		verify_add(report, VERIFY_NOTE, "keyring", "keyring-journal", "the key ring is of another journal than the statement");
	verify_add(report, VERIFY_PASS, "keyring", NULL, "version %.0f", version->number);
	return ring;
}

/* The ring's member for a key: matched by the key itself, since ids in it are as good as who wrote them. *count: how many. */
static const struct json *find_in_ring(const struct json *ring, const struct public_key *key, size_t *count)
{
	const struct json *keys = json_get(ring, "keys"), *found = NULL;

	*count = 0;

	for (size_t i = 0; i < json_count(keys); i++) {
		const char *public = json_get_text(json_at(keys, i), "public");
		struct buffer bytes;
		bool same;

		if (!public || !texts_equal(json_get_text(json_at(keys, i), "algorithm"), "ed25519"))
			continue;
		buffer_init(&bytes, KEY_PUBLIC_LEN + 3);
		same = base64_decode(bytes_text(public), &bytes) && !bytes.overflow &&
		       bytes_equal(buffer_bytes(&bytes), (struct bytes){key->bytes, KEY_PUBLIC_LEN});
		buffer_close(&bytes);
		if (same && (*count)++ == 0)
			found = json_at(keys, i);
	}
	return found;
}

/* A time that is there has to be readable: a bound that cannot be understood does not let everything through. */
static bool read_bound(const struct json *item, const char *name, bool *present, int64_t *wall_ms)
{
	const char *text = json_get_text(item, name);

	*present = json_get(item, name) != NULL;
	return !*present || (text && time_parse(text, wall_ms));
}

/* VERIFY_PASS, or the status and code of what is wrong. A retired key's older signatures pass, with a note. */
static struct verify_line judge_key(struct envelope_check *check, const struct json *ring, const struct public_key *key)
{
	size_t count;
	const struct json *item = find_in_ring(ring, key, &count), *revoked = json_get(item, "revoked");
	const char *purpose = json_get_text(item, "purpose"), *reason;
	int64_t from_ms = 0, to_ms = 0, revoked_ms = 0;
	bool has_from, has_to, has_revoked;

	if (!item)
		return (struct verify_line){VERIFY_UNVERIFIABLE, "key", "key-unknown", "is not in the key ring"};
	/* Never one key for two purposes; and of two members one may be revoked. */
	if (count > 1)
		return (struct verify_line){VERIFY_FAIL, "key", "key-purpose", "stands in the key ring more than once"};
	if (!texts_equal(purpose, "fact"))
		return (struct verify_line){VERIFY_FAIL, "key", "key-purpose", "is in the key ring for another purpose than signing facts"};
	if (!read_bound(item, "notBefore", &has_from, &from_ms) || !read_bound(item, "notAfter", &has_to, &to_ms))
		return (struct verify_line){VERIFY_FAIL, "key", "key-window", "has a window in the key ring that cannot be read"};
	if (has_from && check->signed_ms < from_ms)
		return (struct verify_line){VERIFY_FAIL, "key", "key-window", "was not valid yet when this was signed"};
	if (has_to && check->signed_ms >= to_ms)
		return (struct verify_line){VERIFY_FAIL, "key", "key-window", "was no longer valid when this was signed"};
	if (!revoked)
		return (struct verify_line){VERIFY_PASS, "key", NULL, "is in the key ring, and was valid when this was signed"};
	reason = json_get_text(revoked, "reason");
	/* The signing time is the signer's own claim, so for a stolen key it says nothing. */
	if (!texts_equal(reason, "retired"))
		return (struct verify_line){VERIFY_FAIL, "key", "key-revoked", "was revoked as compromised: none of its signatures counts"};
	if (!read_bound(revoked, "at", &has_revoked, &revoked_ms) || !has_revoked || check->signed_ms >= revoked_ms)
		return (struct verify_line){VERIFY_FAIL, "key", "key-revoked", "was retired before this was signed"};
	return (struct verify_line){VERIFY_PASS, "key", "key-retired", "was retired after this was signed, which stays good"};
}

/* One signature by a key in good standing is enough; another one's fate is then worth a note. */
static void check_keys(struct envelope_check *check)
{
	const struct verify_input *input = check->input;
	struct verify_report *report = check->report;
	struct verify_line lines[ENVELOPE_SIGNATURES_MAX];
	const struct json *ring;
	bool good = false;

	if (!is_given(input->keyring)) {
		verify_add(report, VERIFY_SKIPPED, "keyring", NULL, "no key ring: purpose, window and revocation of the key are not checked");
		return;
	}
	ring = check_keyring(check);
	if (!ring)
		return;
	for (size_t i = 0; i < check->envelope.signature_count; i++) {
		if (check->signers[i] == ENVELOPE_NO_SIGNER)
			continue;
		lines[i] = judge_key(check, ring, &input->keys[check->signers[i]]);
		good = good || lines[i].status == VERIFY_PASS;
	}
	for (size_t i = 0; i < check->envelope.signature_count; i++) {
		const char *id;

		if (check->signers[i] == ENVELOPE_NO_SIGNER)
			continue;
		id = input->keys[check->signers[i]].id;
		if (lines[i].status == VERIFY_PASS && lines[i].code) {
			verify_add(report, VERIFY_NOTE, "key", lines[i].code, "key %.16s %s", id, lines[i].detail);
			lines[i].code = NULL;
		}
		verify_add(report, good && lines[i].status != VERIFY_PASS ? VERIFY_NOTE : lines[i].status, "key", lines[i].code, "key %.16s %s", id,
			   lines[i].detail);
	}
}

static void check_subject(struct envelope_check *check)
{
	struct verify_report *report = check->report;
	struct json *fact;
	struct digest digest;
	char hex[DIGEST_HEX_LEN + 1];

	if (!is_given(check->input->fact)) {
		verify_add(report, VERIFY_SKIPPED, "subject", NULL, "no fact was given to compare with the subject");
		return;
	}
	fact = parse_part(check, check->input->fact, "subject", "fact");
	if (!fact)
		return;
	digest = json_digest(fact);
	digest_hex(&digest, hex);
	if (statement_subject_is(check->statement, &digest))
		verify_add(report, VERIFY_PASS, "subject", NULL, "the fact is the signed one, %.16s", hex);
	else
		verify_add(report, VERIFY_FAIL, "subject", "subject-mismatch", "the fact hashes to %s, which is not the subject", hex);
}

/* {group: {field: value}}: what the digest of a configuration covers. Basis and source of each value stand beside it and
 * are not hashed, so that learning a value better does not make another configuration (semantics.md 6). */
static struct json *values_of_record(struct arena *arena, const struct json *record)
{
	struct json *values = json_object(arena);

	for (size_t i = 0; json_is(record, JSON_OBJECT) && i < record->object.count; i++) {
		const struct json_member *group = &record->object.members[i];
		struct json *fields = json_object(arena);

		/* Groups A to E; what was observed beside the configuration is no part of it. */
		if (strcmp(group->name, "G") == 0)
			continue;
		for (size_t j = 0; json_is(group->value, JSON_OBJECT) && j < group->value->object.count; j++) {
			const struct json_member *field = &group->value->object.members[j];
			struct json *value = json_get(field->value, "value");

			json_set_len(arena, fields, field->name, field->name_len, value ? value : json_null(arena));
		}
		json_set_len(arena, values, group->name, group->name_len, fields);
	}
	return values;
}

static void check_config(struct envelope_check *check)
{
	struct verify_report *report = check->report;
	const struct json *launch = json_pointer_get(check->statement, "/predicate/runtime/launch");
	const struct json *configuration = json_pointer_get(check->statement, "/predicate/configuration");
	const struct json *reproducibility = json_pointer_get(check->statement, "/predicate/result/reproducibility");
	const struct json *record = json_get(configuration, "record");
	struct digest claimed, digest;

	if (launch) {
		CHECK(json_get_digest(launch, "digest", &claimed)); /* statement_check() */
		digest = json_digest(json_get(launch, "config"));
		if (digest_equal(&digest, &claimed))
			verify_add(report, VERIFY_PASS, "config", NULL, "the launch configuration hashes to its digest");
		else
			verify_add(report, VERIFY_FAIL, "config", "config-digest", "the launch configuration does not hash to its digest");
	}
	if (record) {
		CHECK(json_get_digest(configuration, "digest", &claimed));
		digest = json_digest(values_of_record(&check->arena, record));
		if (digest_equal(&digest, &claimed))
			verify_add(report, VERIFY_PASS, "config", NULL, "the configuration record hashes to its digest");
		else
			verify_add(report, VERIFY_FAIL, "config", "config-digest", "the configuration record does not hash to its digest");
	} else if (configuration) {
		verify_add(report, VERIFY_SKIPPED, "config", NULL, "the configuration record is not in the statement: only its digest is signed");
	} else {
		verify_add(report, VERIFY_NOTE, "config", "config-absent", "no record: the statement says nothing about the configuration");
	}
	if (!reproducibility || texts_equal(json_get_text(reproducibility, "class"), "unmeasured"))
		verify_add(report, VERIFY_NOTE, "config", "unmeasured", "reproducibility of this configuration was not measured");
}

static void compare_artefact(struct envelope_check *check, const char *item, const struct digest *digest, const struct digest *claimed)
{
	if (digest_equal(digest, claimed))
		verify_add(check->report, VERIFY_PASS, "artefact", NULL, "%s is the signed one", item);
	else
		verify_add(check->report, VERIFY_FAIL, "artefact", "artefact-mismatch", "%s is not the signed one", item);
}

static void check_artefact(struct envelope_check *check, const char *item, struct bytes bytes, const char *pointer, const char *name, bool as_json)
{
	struct digest claimed, digest;
	struct json *json;

	if (!is_given(bytes)) {
		verify_add(check->report, VERIFY_SKIPPED, "artefact", NULL, "%s was not given", item);
		return;
	}
	if (!json_get_digest(json_pointer_get(check->statement, pointer), name, &claimed)) {
		verify_add(check->report, VERIFY_UNVERIFIABLE, "artefact", "artefact-missing", "the statement has no digest of the %s", item);
		return;
	}
	if (as_json) { /* A schema is known by its canonical form: its layout says nothing. */
		json = parse_part(check, bytes, "artefact", item);
		if (!json)
			return;
		digest = json_digest(json);
	} else {
		digest = digest_of(bytes);
	}
	compare_artefact(check, item, &digest, &claimed);
}

/* Where the section lies in the document is signed as well. */
static void check_place(struct envelope_check *check)
{
	const struct json *source = json_pointer_get(check->statement, "/predicate/extraction/source"), *place = json_get(source, "annotations");
	struct bytes document = check->input->document;
	double start = json_get_number(place, "byteStart", -1), end = json_get_number(place, "byteEnd", -1);
	struct digest claimed, digest;

	if (!is_given(document) || start < 0)
		return;
	CHECK(json_get_digest(source, "digest", &claimed)); /* statement_check(), as that start <= end */
	if (end > (double)document.len) {
		verify_add(check->report, VERIFY_FAIL, "artefact", "artefact-mismatch", "the section ends behind the document's end");
		return;
	}
	digest = digest_of((struct bytes){document.data + (size_t)start, (size_t)end - (size_t)start});
	compare_artefact(check, "section within the document", &digest, &claimed);
}

static void check_artefacts(struct envelope_check *check)
{
	const struct verify_input *input = check->input;

	check_artefact(check, "document", input->document, "/predicate/extraction/source/annotations", "documentSha256", false);
	check_place(check);
	check_artefact(check, "section", input->section, "/predicate/extraction/source", "digest", false);
	check_artefact(check, "prompt", input->prompt, "/predicate/extraction/prompt", "digest", false);
	check_artefact(check, "schema", input->schema, "/predicate/extraction/schema", "digest", true);
	check_artefact(check, "request", input->request, "/predicate/extraction/request", "digest", false);
	check_artefact(check, "response", input->response, "/predicate/result/response", "digest", false);
}

static void check_gate(struct envelope_check *check)
{
	if (statement_accepted(check->statement))
		verify_add(check->report, VERIFY_PASS, "gate", NULL, "the fact was accepted");
	else
		verify_add(check->report, VERIFY_NOTE, "gate", "gate-failed", "the statement is genuine, and the fact was rejected");
}

static void check_time(struct envelope_check *check)
{
	struct verify_report *report = check->report;

	if (check->started_ms > check->finished_ms + CLOCK_TOLERANCE_MS)
		verify_add(report, VERIFY_FAIL, "time", "time-order", "finished before it was started");
	else if (check->finished_ms > check->signed_ms + CLOCK_TOLERANCE_MS)
		verify_add(report, VERIFY_FAIL, "time", "time-order", "signed before it was finished");
	else if (check->entry && check->signed_ms > check->entry_ms + CLOCK_TOLERANCE_MS)
		verify_add(report, VERIFY_FAIL, "time", "time-order", "recorded in the journal before it was signed");
	else
		verify_add(report, VERIFY_PASS, "time", NULL, "the times are in order");
}

/* Every signature that the journal recorded is in the envelope, and there is one. */
static bool signatures_match(const struct envelope *envelope, const struct json *signatures)
{
	if (json_count(signatures) == 0)
		return false;
	for (size_t i = 0; i < json_count(signatures); i++) {
		const char *text = json_get_text(json_at(signatures, i), "sig");
		struct buffer sig;
		bool found = false;

		buffer_init(&sig, KEY_SIGNATURE_LEN + 3);
		if (text && base64_decode(bytes_text(text), &sig) && !sig.overflow)
			for (size_t j = 0; j < envelope->signature_count && !found; j++)
				found = envelope->signature_usable[j] &&
					bytes_equal(buffer_bytes(&sig), (struct bytes){envelope->signatures[j].signature, KEY_SIGNATURE_LEN});
		buffer_close(&sig);
		if (!found)
			return false;
	}
	return true;
}

/* What of the entry differs from the envelope; NULL: nothing. */
static const char *compare_entry(const struct envelope_check *check, const struct json *entry)
{
	const struct json *data = json_get(entry, "data"), *run = json_pointer_get(check->statement, "/predicate/run");
	struct digest payload = digest_of(check->envelope.payload), digest;
	struct digest pae = envelope_pae_digest(check->envelope.payload_type, check->envelope.payload);

	if (!texts_equal(json_get_text(entry, "kind"), "fact.recorded"))
		return "kind";
	if (!texts_equal(json_get_text(entry, "log"), json_get_text(run, "journal")))
		return "log";
	if (!texts_equal(json_get_text(data, "runId"), json_get_text(run, "runId")))
		return "runId";
	if (!texts_equal(json_get_text(data, "stepId"), json_get_text(run, "stepId")))
		return "stepId";
	if (json_get_number(data, "attempt", -1) != json_get_number(run, "attempt", -2))
		return "attempt";
	if (!json_get_digest(data, "payload", &digest) || !digest_equal(&digest, &payload))
		return "payload digest";
	if (!json_get_digest(data, "pae", &digest) || !digest_equal(&digest, &pae))
		return "pae digest";
	if (!json_get_digest(data, "subject", &digest) || !statement_subject_is(check->statement, &digest))
		return "subject digest";
	if (!texts_equal(json_get_text(data, "verdict"), statement_accepted(check->statement) ? "PASSED" : "FAILED"))
		return "verdict";
	if (!signatures_match(&check->envelope, json_get(data, "signatures")))
		return "signatures";
	return NULL;
}

static void check_entry(struct envelope_check *check)
{
	struct verify_report *report = check->report;
	const struct json *entry;
	const char *difference, *ts;

	if (!is_given(check->input->entry)) {
		verify_add(report, VERIFY_SKIPPED, "entry", NULL, "no journal entry was given: that the fact was recorded is not checked");
		return;
	}
	entry = parse_part(check, check->input->entry, "entry", "journal entry");
	if (!entry)
		return;
	ts = json_get_text(entry, "ts");
	if (!ts || !time_parse(ts, &check->entry_ms)) {
		verify_add(report, VERIFY_FAIL, "entry", "entry-mismatch", "the entry has no readable time");
		return;
	}
	check->entry = entry;
	difference = compare_entry(check, entry);
	if (difference)
		verify_add(report, VERIFY_FAIL, "entry", "entry-mismatch", "the entry's %s is not the envelope's", difference);
	else
		verify_add(report, VERIFY_PASS, "entry", NULL, "the journal's entry %.0f records this envelope", json_get_number(entry, "seq", -1));
}

static void check_inclusion(struct envelope_check *check)
{
	const struct verify_input *input = check->input;
	struct verify_report *report = check->report;
	struct checkpoint checkpoint;
	struct log_proof proof;
	struct digest leaf;
	struct bytes note;
	struct error error;
	uint64_t index;

	if (!is_given(input->proof) || !check->entry) {
		verify_add(report, VERIFY_SKIPPED, "inclusion", NULL, "%s: that the entry stands in the log is not checked",
			   is_given(input->proof) ? "no readable entry" : "no proof was given");
		return;
	}
	if (proof_file_parse(input->proof, &index, &proof, &note, &error) != 0) {
		add_malformed(report, "inclusion", "proof", &error);
		return;
	}
	if (!input->log_key) {
		verify_add(report, VERIFY_UNVERIFIABLE, "checkpoint", "key-unknown", "no log key was given to check the proof's checkpoint with");
		return;
	}
	/* A root counts once its signature was found good, never before. */
	if (!verify_checkpoint(note, input->log_key, NULL, 0, 0, 0, report, &checkpoint))
		return;
	leaf = log_tree_leaf(input->entry);
	if (log_tree_verify_inclusion(index, checkpoint.size, &leaf, &proof, &checkpoint.root, &error) != 0)
		add_error(report, VERIFY_FAIL, "inclusion", &error);
	else if (json_get_number(check->entry, "seq", -1) != (double)index || !texts_equal(json_get_text(check->entry, "log"), checkpoint.origin))
		verify_add(report, VERIFY_FAIL, "inclusion", "inclusion-invalid", "the entry says another place or log than the proof");
	else
		verify_add(report, VERIFY_PASS, "inclusion", NULL, "anchored %" PRIu64 " %s", checkpoint.size, checkpoint.origin);
}

void verify_envelope(const struct verify_input *input, struct verify_report *report)
{
	struct envelope_check check = {.input = input, .report = report};
	struct error error;

	arena_init(&check.arena);
	if (envelope_parse(&check.arena, input->envelope, &check.envelope, &error) != 0) {
		add_malformed(report, "envelope", "envelope", &error);
		goto done;
	}
	if (!check_signature(&check))
		goto done;
	if (!check_statement(&check))
		goto done;
	check_keys(&check);
	check_subject(&check);
	check_config(&check);
	check_artefacts(&check);
	check_gate(&check);
	check_entry(&check);
	check_time(&check);
	check_inclusion(&check);
done:
	arena_close(&check.arena);
}

/* ---- Checkpoints ---- */

static bool open_checkpoint(struct bytes note, const struct note_key *log_key, struct checkpoint *checkpoint, struct verify_report *report)
{
	struct error error;

	switch (checkpoint_open(note, log_key, checkpoint, &error)) {
	case ERR_NONE:
		return true;
	case ERR_CORRUPT:
		add_error(report, VERIFY_FAIL, "checkpoint", &error);
		return false;
	default:
		add_malformed(report, "checkpoint", "checkpoint", &error);
		return false;
	}
}

bool verify_checkpoint(struct bytes note, const struct note_key *log_key, const struct note_key *witnesses, size_t witness_count,
		       size_t quorum, uint64_t now_s, struct verify_report *report, struct checkpoint *checkpoint)
{
	struct checkpoint own;
	struct error error;
	size_t count = 0;
	bool good = true;

	checkpoint = checkpoint ? checkpoint : &own;
	if (!open_checkpoint(note, log_key, checkpoint, report))
		return false;
	verify_add(report, VERIFY_PASS, "checkpoint", NULL, "signed by the log: %s, size %" PRIu64, checkpoint->origin, checkpoint->size);
	for (size_t i = 0; i < witness_count; i++) {
		uint64_t time_s = 0;
		int code = checkpoint_open_cosignature(note, &witnesses[i], &time_s, &error);
		char text[TIME_TEXT_LEN + 1];

		if (code == ERR_NOT_FOUND)
			continue;
		if (code != 0) {
			add_error(report, VERIFY_FAIL, "witness", &error);
			good = false;
		} else if (time_s > now_s + COSIGNATURE_FUTURE_MAX_S) {
			verify_add(report, VERIFY_FAIL, "witness", "cosignature-future", "witness %s signed %" PRIu64 " s from now", witnesses[i].name,
				   time_s - now_s);
			good = false;
		} else {
			count++;
			time_text((int64_t)time_s * 1000, text);
			verify_add(report, VERIFY_PASS, "witness", NULL, "cosigned by %s at %s", witnesses[i].name, text);
		}
	}
	if (good && count < quorum) {
		verify_add(report, VERIFY_FAIL, "witness", "witness-quorum", "%zu of the %zu witnesses that are needed cosigned", count, quorum);
		good = false;
	}
	return good;
}

void verify_consistency(struct bytes old_note, struct bytes new_note, struct bytes proof_text, const struct note_key *log_key,
			struct verify_report *report)
{
	struct checkpoint older, newer;
	struct log_proof proof;
	struct error error;

	if (!verify_checkpoint(old_note, log_key, NULL, 0, 0, 0, report, &older) ||
	    !verify_checkpoint(new_note, log_key, NULL, 0, 0, 0, report, &newer))
		return;
	if (consistency_file_parse(proof_text, &proof, &error) != 0)
		add_malformed(report, "consistency", "proof", &error);
	else if (log_tree_verify_consistency(older.size, newer.size, &older.root, &newer.root, &proof, &error) != 0)
		add_error(report, VERIFY_FAIL, "consistency", &error);
	else
		verify_add(report, VERIFY_PASS, "consistency", NULL, "the log of size %" PRIu64 " grew into that of size %" PRIu64, older.size,
			   newer.size);
}

/* ---- A whole journal ---- */

static int compare_sizes(const void *a, const void *b)
{
	const struct checkpoint *left = a, *right = b;

	return (left->size > right->size) - (left->size < right->size);
}

__attribute__((format(printf, 3, 4))) static void fail_journal(struct verify_journal *journal, const char *code, const char *format, ...)
{
	struct verify_line line = {VERIFY_FAIL, "journal", code, NULL};
	va_list args;

	va_start(args, format);
	line.detail = format_detail(journal->report, format, args);
	va_end(args);
	add_line(journal->report, line);
	journal->failed = true;
}

/* All checkpoints of the current size. The first that differs tells where the change lies; those behind it differ as well. */
static void compare_checkpoints(struct verify_journal *journal)
{
	struct digest root = log_tree_root(&journal->tree);

	for (; journal->next_checkpoint < journal->checkpoint_count; journal->next_checkpoint++) {
		const struct checkpoint *checkpoint = &journal->checkpoints[journal->next_checkpoint];

		if (checkpoint->size != journal->tree.size)
			break;
		if (digest_equal(&root, &checkpoint->root)) {
			journal->agreed_size = checkpoint->size;
			continue;
		}
		if (!journal->changed)
			fail_journal(journal, "journal-changed",
				     "the checkpoint of size %" PRIu64 " differs; the one of size %" PRIu64
				     "%s still agreed: look at entries %" PRIu64 " to %" PRIu64,
				     checkpoint->size, journal->agreed_size, journal->agreed_size == 0 ? " (none)" : "", journal->agreed_size,
				     checkpoint->size == 0 ? 0 : checkpoint->size - 1);
		journal->changed = true;
	}
}

int verify_journal_begin(struct verify_journal *journal, const struct note_key *log_key, const struct bytes *notes, size_t note_count,
			 struct verify_report *report)
{
	int code = 0;

	memset(journal, 0, sizeof(*journal));
	log_tree_init(&journal->tree);
	journal->log_key = log_key;
	journal->report = report;
	memcpy(journal->origin, log_key->name, sizeof(journal->origin));
	if (note_count > CHECKPOINTS_MAX) {
		verify_add(report, VERIFY_UNVERIFIABLE, "checkpoint", "checkpoint-shape", "%zu checkpoints, at most %d are read", note_count,
			   CHECKPOINTS_MAX);
		note_count = CHECKPOINTS_MAX;
		code = ERR_TOO_LARGE;
	}
	journal->checkpoints = memory_zero((note_count + 1) * sizeof(*journal->checkpoints));
	for (size_t i = 0; i < note_count; i++) {
		if (open_checkpoint(notes[i], log_key, &journal->checkpoints[journal->checkpoint_count], report))
			journal->checkpoint_count++;
		else
			code = ERR_CORRUPT;
	}
	qsort(journal->checkpoints, journal->checkpoint_count, sizeof(*journal->checkpoints), compare_sizes);
	compare_checkpoints(journal);
	return code;
}

static bool is_word(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((text[i] < 'a' || text[i] > 'z') && text[i] != '-' && text[i] != '_')
			return false;
	return len > 0;
}

/* "run.created": which words there are is the engine's affair, and grows; their form is the log's. */
static bool is_kind(const char *kind)
{
	const char *dot = kind ? strchr(kind, '.') : NULL;

	return dot && is_word(kind, (size_t)(dot - kind)) && is_word(dot + 1, strlen(dot + 1));
}

/* What is wrong with a fact.recorded entry's data; NULL: nothing. */
static const char *find_fact_fault(const struct json *data)
{
	static const char *const digests[] = {"subject", "payload", "pae"};
	const struct json *signatures = json_get(data, "signatures");
	const char *verdict = json_get_text(data, "verdict");
	struct digest digest;

	for (size_t i = 0; i < COUNT_OF(digests); i++)
		if (!json_get_digest(data, digests[i], &digest))
			return "a digest is missing";
	if (!json_get_text(data, "runId") || !json_get_text(data, "stepId") || !json_is_integer(json_get(data, "attempt")))
		return "runId, stepId or attempt is missing";
	if (!texts_equal(verdict, "PASSED") && !texts_equal(verdict, "FAILED"))
		return "verdict is neither PASSED nor FAILED";
	if (json_count(signatures) == 0)
		return "no signature";
	for (size_t i = 0; i < json_count(signatures); i++) {
		const char *text = json_get_text(json_at(signatures, i), "sig");
		struct buffer sig;
		bool good;

		buffer_init(&sig, KEY_SIGNATURE_LEN + 3);
		good = text && base64_decode(bytes_text(text), &sig) && !sig.overflow && sig.len == KEY_SIGNATURE_LEN;
		buffer_close(&sig);
		if (!good)
			return "a signature is not base64 of 64 bytes";
	}
	return NULL;
}

/* What is wrong with an entry's form; NULL: nothing. seq is looked at apart. */
static const char *find_entry_fault(const struct verify_journal *journal, struct arena *arena, const struct json *entry, struct bytes bytes)
{
	const char *kind = json_get_text(entry, "kind"), *ts = json_get_text(entry, "ts");
	bool opens = texts_equal(kind, "journal.opened");
	int64_t wall_ms;

	if (!bytes_equal(json_print_arena(entry, arena), bytes))
		return "not in canonical form (RFC 8785)";
	if (json_get_number(entry, "v", -1) != 1)
		return "v is not 1";
	if (!texts_equal(json_get_text(entry, "log"), journal->origin))
		return "it belongs to another log";
	if (!is_kind(kind))
		return "kind is missing or no kind";
	if (!ts || strlen(ts) != TIME_TEXT_LEN || ts[TIME_TEXT_LEN - 1] != 'Z' || !time_parse(ts, &wall_ms))
		return "ts is no RFC 3339 time in UTC with three decimals";
	if (!json_is(json_get(entry, "data"), JSON_OBJECT))
		return "data is no object";
	if (opens != (journal->tree.size == 0))
		return opens ? "journal.opened stands behind the first entry" : "the first entry is not journal.opened";
	return NULL;
}

/* The log key was written into the log when it began: a log under another key is another log. */
static bool is_opened_by(const struct verify_journal *journal, const struct json *entry)
{
	const char *vkey = json_get_text(json_get(entry, "data"), "vkey");
	struct buffer own;
	bool same;

	buffer_init(&own, 2 * NOTE_NAME_MAX);
	note_key_print(journal->log_key, &own);
	same = vkey && bytes_equal_text(buffer_bytes(&own), vkey);
	buffer_close(&own);
	return same;
}

static void look_at_entry(struct verify_journal *journal, struct bytes bytes)
{
	uint64_t index = journal->tree.size;
	const struct json *entry, *seq;
	struct arena arena;
	struct error error;
	const char *fault;

	if (bytes.len > ENTRY_LEN_MAX) {
		fail_journal(journal, "journal-entry", "entry %" PRIu64 " has %zu bytes, at most %d are allowed", index, bytes.len, ENTRY_LEN_MAX);
		return;
	}
	arena_init(&arena);
	entry = json_parse(&arena, bytes, JSON_STRICT, NULL, &error);
	if (!entry) {
		fail_journal(journal, "journal-entry", "entry %" PRIu64 ": %s", index, error.message);
		goto done;
	}
	seq = json_get(entry, "seq");
	if (!json_is_integer(seq) || seq->number != (double)index) {
		if (!journal->out_of_order)
			fail_journal(journal, "journal-seq", "the entry at place %" PRIu64 " says seq %.0f: entries are missing, added or moved", index,
				     json_is(seq, JSON_NUMBER) ? seq->number : -1.0);
		journal->out_of_order = true;
	}
	fault = find_entry_fault(journal, &arena, entry, bytes);
	if (fault)
		fail_journal(journal, "journal-entry", "entry %" PRIu64 ": %s", index, fault);
	else if (index == 0 && !is_opened_by(journal, entry))
		fail_journal(journal, "journal-entry", "entry 0 opened the log with another key than the one given");
	journal->erased += texts_equal(json_get_text(entry, "kind"), "content.erased");
	if (texts_equal(json_get_text(entry, "kind"), "fact.recorded")) {
		journal->facts++;
		fault = find_fact_fault(json_get(entry, "data"));
		if (fault) {
			journal->fact_faults++;
			fail_journal(journal, "journal-entry", "entry %" PRIu64 ", a fact: %s", index, fault);
		}
	}
done:
	arena_close(&arena);
}

void verify_journal_add(struct verify_journal *journal, struct bytes entry)
{
	struct digest leaf = log_tree_leaf(entry);

	look_at_entry(journal, entry);
	log_tree_add(&journal->tree, &leaf, NULL, NULL);
	compare_checkpoints(journal);
}

void verify_journal_add_pruned(struct verify_journal *journal, uint64_t first, uint64_t count, const struct digest *root)
{
	uint64_t size = journal->tree.size;

	/* What is not a whole subtree cannot stand in the tree: nothing can be said about the rest. */
	if (count == 0 || (count & (count - 1)) != 0 || size % count != 0 || count > (uint64_t)1 << PRUNED_LEVEL_MAX ||
	    size > JOURNAL_SIZE_MAX - count) {
		fail_journal(journal, "journal-entry", "the pruned range %" PRIu64 "+%" PRIu64 " is not a whole subtree", first, count);
		return;
	}
	if (first != size) {
		if (!journal->out_of_order)
			fail_journal(journal, "journal-seq", "a pruned range says it begins at %" PRIu64 ", and stands at %" PRIu64, first, size);
		journal->out_of_order = true;
	}
	for (; journal->next_checkpoint < journal->checkpoint_count; journal->next_checkpoint++) {
		const struct checkpoint *checkpoint = &journal->checkpoints[journal->next_checkpoint];

		if (checkpoint->size >= size + count)
			break;
		verify_add(journal->report, VERIFY_UNVERIFIABLE, "journal", "journal-pruned",
			   "the checkpoint of size %" PRIu64 " ends within the pruned range %" PRIu64 "+%" PRIu64 ": it cannot be compared",
			   checkpoint->size, first, count);
	}
	log_tree_add_subtree(&journal->tree, (unsigned)__builtin_ctzll(count), root, NULL, NULL);
	journal->pruned += count;
	compare_checkpoints(journal);
}

static void report_journal(struct verify_journal *journal)
{
	struct verify_report *report = journal->report;
	uint64_t size = journal->tree.size, behind = size - journal->agreed_size;

	if (journal->pruned > 0)
		verify_add(report, VERIFY_NOTE, "journal", "journal-pruned", "%" PRIu64 " entries were pruned: their hashes stand for them",
			   journal->pruned);
	if (journal->erased > 0)
		verify_add(report, VERIFY_NOTE, "journal", "content-erased", "%" PRIu64 " values were erased: their digests stand for them", journal->erased);
	if (journal->failed)
		return;
	verify_add(report, VERIFY_PASS, "journal", NULL, "%" PRIu64 " entries in order, %" PRIu64 " of them facts", size, journal->facts);
	if (journal->checkpoint_count == 0)
		verify_add(report, VERIFY_NOTE, "checkpoint", "unanchored", "no checkpoint: whether entries were rewritten cannot be seen");
	else if (behind > 0)
		verify_add(report, VERIFY_NOTE, "checkpoint", "unanchored", "%" PRIu64 " entries stand behind the last checkpoint, of size %" PRIu64,
			   behind, journal->agreed_size);
	if (journal->agreed_size > 0)
		verify_add(report, VERIFY_PASS, "checkpoint", NULL, "anchored %" PRIu64 " %s", journal->agreed_size, journal->origin);
}

void verify_journal_end(struct verify_journal *journal)
{
	if (journal->next_checkpoint < journal->checkpoint_count) {
		const struct checkpoint *largest = &journal->checkpoints[journal->checkpoint_count - 1];

		fail_journal(journal, "journal-truncated", "%" PRIu64 " entries are present, and a checkpoint signed by %s promised %" PRIu64,
			     journal->tree.size, largest->origin, largest->size);
	}
	report_journal(journal);
	free(journal->checkpoints);
	journal->checkpoints = NULL;
	journal->checkpoint_count = 0;
}
