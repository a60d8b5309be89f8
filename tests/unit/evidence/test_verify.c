#include "tests/unit/evidence/vectors.h"

#include "workflow/evidence/verify.h"

enum { NOW_S = 1789724200, ARGUMENTS_MAX = 32, CHECKPOINTS_MAX = 8, LINE_LEN_MAX = 65535 };

static void print_report(const struct verify_report *report)
{
	struct buffer out;
	struct arena arena;

	arena_init(&arena);
	buffer_init(&out, 1 << 20);
	json_print_pretty(verify_report_json(report, &arena), &out);
	printf("%s\n", buffer_text(&out));
	fflush(stdout);
	buffer_close(&out);
	arena_close(&arena);
}

static bool has_line(const struct verify_report *report, enum verify_status status, const char *check, const char *code)
{
	for (size_t i = 0; i < report->count; i++) {
		const struct verify_line *line = &report->lines[i];

		if (line->status == status && (!check || strcmp(line->check, check) == 0) &&
		    (code ? line->code && strcmp(line->code, code) == 0 : !line->code))
			return true;
	}
	return false;
}

static bool has_code(const struct verify_report *report, const char *code)
{
	for (size_t i = 0; i < report->count; i++)
		if (report->lines[i].code && strcmp(report->lines[i].code, code) == 0)
			return true;
	return false;
}

static struct bytes load_fact(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "fact/%s", name);
	return vectors_load(path);
}

static struct public_key load_key(const char *name)
{
	struct public_key key;
	struct error error;

	ck_assert_msg(public_key_parse_pem(&key, load_fact(name), &error) == 0, "%s", error.message);
	return key;
}

static struct note_key load_vkey(const char *name)
{
	struct note_key key;
	struct error error;

	ck_assert_msg(note_key_parse(&key, (const char *)load_fact(name).data, &error) == 0, "%s", error.message);
	return key;
}

/* ---- cases.json: the arguments of the independent verifiers, translated ---- */

struct arguments {
	const char *texts[ARGUMENTS_MAX];
	size_t count;
};

/* The value of option `name`, its nth occurrence; NULL when there are not so many. */
static const char *option(const struct arguments *arguments, const char *name, size_t nth)
{
	for (size_t i = 0; i + 1 < arguments->count; i++)
		if (strcmp(arguments->texts[i], name) == 0 && nth-- == 0)
			return arguments->texts[i + 1];
	return NULL;
}

static void run_key_ring_case(const struct arguments *arguments, struct bytes ring, struct verify_report *report)
{
	struct public_key root = load_key(option(arguments, "--key", 0)), fact = load_key("keys/fact.pub.pem");

	verify_envelope(&(struct verify_input){.envelope = load_fact("envelope.json"),
					       .keys = &fact,
					       .key_count = 1,
					       .keyring = ring,
					       .root_keys = &root,
					       .root_key_count = 1},
			report);
	ck_assert(has_line(report, VERIFY_PASS, "keyring", NULL));
}

static void run_envelope_case(const struct arguments *arguments, struct verify_report *report)
{
	const char *file = arguments->texts[arguments->count - 1], *fact = option(arguments, "--fact", 0);
	const char *ring = option(arguments, "--keyring", 0);
	struct public_key key = load_key(option(arguments, "--key", 0));
	struct bytes text = load_fact(file);
	struct verify_input input = {.keys = &key, .key_count = 1};

	if (option(arguments, "--payload-type", 0)) {
		ck_assert_str_eq(option(arguments, "--payload-type", 0), ENVELOPE_TYPE_KEYRING);
		run_key_ring_case(arguments, text, report);
		return;
	}
	if (fact)
		input.fact = load_fact(fact);
	if (ring)
		input.keyring = load_fact(ring);
	if (!strstr(file, ".jsonl")) {
		input.envelope = text;
		verify_envelope(&input, report);
		return;
	}
	for (const uint8_t *end; text.len > 0 && (end = memchr(text.data, '\n', text.len)) != NULL;) {
		input.envelope = (struct bytes){text.data, (size_t)(end - text.data)};
		verify_envelope(&input, report);
		text.len -= input.envelope.len + 1;
		text.data = end + 1;
	}
}

static void add_lines(struct verify_journal *journal, struct bytes text)
{
	for (const uint8_t *end; text.len > 0; text.data = end + 1) {
		size_t len;

		end = memchr(text.data, '\n', text.len);
		ck_assert_ptr_nonnull(end);
		len = (size_t)(end - text.data);
		verify_journal_add(journal, (struct bytes){text.data, len});
		text.len -= len + 1;
	}
}

/* A tlog-tiles entry bundle: each entry behind its length in two bytes. */
static void add_bundle(struct verify_journal *journal, struct bytes text)
{
	while (text.len > 0) {
		size_t len;

		ck_assert_uint_ge(text.len, 2);
		len = (size_t)text.data[0] << 8 | text.data[1];
		ck_assert_uint_ge(text.len, 2 + len);
		verify_journal_add(journal, (struct bytes){text.data + 2, len});
		text.data += 2 + len;
		text.len -= 2 + len;
	}
}

static void run_log_case(const struct arguments *arguments, struct verify_report *report)
{
	const char *command = arguments->texts[0], *witness_name = option(arguments, "--witness", 0);
	struct note_key log_key = load_vkey(option(arguments, "--vkey", 0)), witness;
	struct bytes notes[CHECKPOINTS_MAX];
	size_t witness_count = witness_name ? 1 : 0, note_count = 0;

	if (witness_name)
		witness = load_vkey(witness_name);
	if (strcmp(command, "checkpoint") == 0) {
		verify_checkpoint(load_fact(arguments->texts[arguments->count - 1]), &log_key, &witness, witness_count, witness_count, NOW_S, report,
				  NULL);
	} else if (strcmp(command, "consistency") == 0) {
		verify_checkpoint(load_fact(option(arguments, "--new", 0)), &log_key, &witness, witness_count, witness_count, NOW_S, report, NULL);
		verify_consistency(load_fact(option(arguments, "--old", 0)), load_fact(option(arguments, "--new", 0)),
				   load_fact(option(arguments, "--proof", 0)), &log_key, report);
	} else if (strcmp(command, "inclusion") == 0) {
		struct public_key key = load_key("keys/fact.pub.pem");

		/* The other verifier looks at the proof alone; ours has the fact's envelope beside it. */
		verify_envelope(&(struct verify_input){.envelope = load_fact("envelope.json"),
						       .keys = &key,
						       .key_count = 1,
						       .entry = load_fact(option(arguments, "--entry", 0)),
						       .proof = load_fact(option(arguments, "--proof", 0)),
						       .log_key = &log_key},
				report);
	} else {
		struct verify_journal journal;
		const char *name = option(arguments, "--checkpoint", 0);

		ck_assert_str_eq(command, "journal");
		verify_checkpoint(load_fact(name), &log_key, &witness, witness_count, witness_count, NOW_S, report, NULL);
		notes[note_count++] = load_fact(name);
		for (size_t i = 0; (name = option(arguments, "--trusted", i)) != NULL; i++)
			notes[note_count++] = load_fact(name);
		verify_journal_begin(&journal, &log_key, notes, note_count, report);
		if (option(arguments, "--tiles", 0))
			add_bundle(&journal, load_fact("tile/entries/000.p/20"));
		else
			add_lines(&journal, load_fact(option(arguments, "--entries", 0)));
		verify_journal_end(&journal);
	}
}

/* Each case of the example, good and damaged, gives the status and the code it should. */
START_TEST(test_cases)
{
	const struct json *cases = json_get(vectors_parse(load_fact("cases.json")), "cases");

	ck_assert_uint_eq(json_count(cases), 25);
	for (size_t i = 0; i < json_count(cases); i++) {
		const struct json *item = json_at(cases, i), *texts = json_get(item, "args");
		const char *name = vectors_text(item, "name"), *code = json_get_text(item, "code");
		static const enum verify_result wants[] = {VERIFY_VALID, VERIFY_INVALID, VERIFY_MALFORMED};
		struct arguments arguments = {.count = json_count(texts)};
		struct verify_report report;
		enum verify_result want = wants[(int)json_get_number(item, "exit", 2)];
		int exit_status;

		ck_assert_uint_le(arguments.count, ARGUMENTS_MAX);
		for (size_t j = 0; j < arguments.count; j++)
			arguments.texts[j] = json_at(texts, j)->string.text;
		verify_report_init(&report);
		if (strcmp(vectors_text(item, "tool"), "verify-dsse.mjs") == 0)
			run_envelope_case(&arguments, &report);
		else
			run_log_case(&arguments, &report);
		if (verify_report_result(&report) != want || (code && !has_code(&report, code)))
			print_report(&report);
		ck_assert_msg(verify_report_result(&report) == want, "%s: result", name);
		ck_assert_msg(!code || has_code(&report, code), "%s: %s is not reported", name, code);
		exit_status = verify_report_exit(&report);
		if (want == VERIFY_VALID)
			ck_assert_int_eq(exit_status, 0);
		else if (code && (strncmp(code, "journal", 7) == 0 || strncmp(code, "consistency", 11) == 0))
			ck_assert_int_eq(exit_status, 23);
		else
			ck_assert_int_eq(exit_status, 22);
		verify_report_close(&report);
	}
}
END_TEST

/* ---- The whole example at once ---- */

struct fixture {
	struct verify_input input;
	struct public_key fact_key, root_key;
	struct note_key log_key;
	struct verify_report report;
};

static struct fixture *build(void)
{
	struct fixture *fixture = vectors_alloc(sizeof(*fixture));

	fixture->fact_key = load_key("keys/fact.pub.pem");
	fixture->root_key = load_key("keys/root.pub.pem");
	fixture->log_key = load_vkey("keys/log.vkey");
	fixture->input = (struct verify_input){
		.envelope = load_fact("envelope.json"),
		.keys = &fixture->fact_key,
		.key_count = 1,
		.fact = load_fact("fact.json"),
		.entry = load_fact("fact.entry"),
		.proof = load_fact("fact.tlog-proof"),
		.log_key = &fixture->log_key,
		.keyring = load_fact("keyring.dsse.json"),
		.root_keys = &fixture->root_key,
		.root_key_count = 1,
		.keyring_version_min = 2,
		.document = load_fact("document.txt"),
		.section = load_fact("section.txt"),
		.prompt = load_fact("prompt.txt"),
		.schema = load_fact("schema.json"),
		.request = load_fact("request.json"),
		.response = load_fact("response.json"),
	};
	verify_report_init(&fixture->report);
	return fixture;
}

static enum verify_result verify(struct fixture *fixture)
{
	enum verify_result result;

	verify_report_close(&fixture->report);
	verify_report_init(&fixture->report);
	verify_envelope(&fixture->input, &fixture->report);
	result = verify_report_result(&fixture->report);
	return result;
}

/* With every file at hand every check passes, and none is skipped. */
START_TEST(test_everything)
{
	static const char *const checks[] = {"signature", "type", "keyring", "key", "subject", "config", "artefact", "gate",
					     "entry", "time", "checkpoint", "inclusion"};
	struct fixture *fixture = build();
	enum verify_result result = verify(fixture);

	if (result != VERIFY_VALID)
		print_report(&fixture->report);
	ck_assert(result == VERIFY_VALID);
	ck_assert_int_eq(verify_report_exit(&fixture->report), 0);
	for (size_t i = 0; i < COUNT_OF(checks); i++)
		ck_assert_msg(has_line(&fixture->report, VERIFY_PASS, checks[i], NULL), "%s", checks[i]);
	for (size_t i = 0; i < fixture->report.count; i++)
		ck_assert(fixture->report.lines[i].status == VERIFY_PASS || fixture->report.lines[i].status == VERIFY_NOTE);
	/* The example is older than these two parts, and that is said. */
	ck_assert(has_line(&fixture->report, VERIFY_NOTE, "config", "config-absent"));
	ck_assert(has_line(&fixture->report, VERIFY_NOTE, "config", "unmeasured"));
}
END_TEST

/* With the envelope alone the rest is skipped, and said so. */
START_TEST(test_skipped)
{
	static const char *const checks[] = {"keyring", "subject", "artefact", "entry", "inclusion"};
	struct fixture *fixture = build();

	fixture->input = (struct verify_input){.envelope = fixture->input.envelope, .keys = &fixture->fact_key, .key_count = 1};
	ck_assert(verify(fixture) == VERIFY_VALID);
	for (size_t i = 0; i < COUNT_OF(checks); i++)
		ck_assert_msg(has_line(&fixture->report, VERIFY_SKIPPED, checks[i], NULL), "%s", checks[i]);
}
END_TEST

/* Without a key nothing can be said about a signature, which is not the same as a bad one. */
START_TEST(test_unverifiable)
{
	struct fixture *fixture = build();

	fixture->input.key_count = 0;
	ck_assert(verify(fixture) == VERIFY_CANNOT);
	ck_assert_int_eq(verify_report_exit(&fixture->report), 26);
	fixture->input.key_count = 1;
	fixture->input.root_key_count = 0;
	ck_assert(verify(fixture) == VERIFY_CANNOT);
	ck_assert(has_line(&fixture->report, VERIFY_UNVERIFIABLE, "keyring", "keyring-signature"));
	fixture->input.root_key_count = 1;
	fixture->input.log_key = NULL;
	ck_assert(verify(fixture) == VERIFY_CANNOT);
	ck_assert(has_line(&fixture->report, VERIFY_UNVERIFIABLE, "checkpoint", "key-unknown"));
}
END_TEST

/* Each artefact that is another's is named. */
START_TEST(test_artefacts)
{
	struct fixture *fixture = build();
	struct bytes *const artefacts[] = {&fixture->input.document, &fixture->input.section, &fixture->input.prompt, &fixture->input.schema,
					   &fixture->input.request, &fixture->input.response};

	for (size_t i = 0; i < COUNT_OF(artefacts); i++) {
		struct bytes good = *artefacts[i];

		*artefacts[i] = BYTES_OF("\"other\"");
		ck_assert(verify(fixture) == VERIFY_INVALID);
		ck_assert_int_eq(verify_report_exit(&fixture->report), 22);
		ck_assert(has_line(&fixture->report, VERIFY_FAIL, "artefact", "artefact-mismatch"));
		*artefacts[i] = good;
	}
	fixture->input.schema = BYTES_OF("{");
	ck_assert(verify(fixture) == VERIFY_MALFORMED);
	ck_assert_int_eq(verify_report_exit(&fixture->report), 25);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "json", "json-syntax"));
}
END_TEST

static struct bytes print(const struct json *json)
{
	return json_print_arena(json, &vectors_arena);
}

/* An entry of another fact, attempt, log, verdict or signature is a mismatch, and says in what. */
START_TEST(test_entry)
{
	static const struct {
		const char *parent, *name, *value, *word;
	} changes[] = {
		{"", "kind", "\"run.created\"", "kind"},
		{"", "log", "\"reprise.example/journal/7f3b\"", "log"},
		{"/data", "runId", "\"other\"", "runId"},
		{"/data", "stepId", "\"other\"", "stepId"},
		{"/data", "attempt", "3", "attempt"},
		{"/data/payload", "sha256", "\"2ad9c1409b0d3e3366da4d67bbcc0de87b05ba4c1649c330fc6b61f9f500f41e\"", "payload"},
		{"/data/pae", "sha256", "\"b587a695fae9d2a846cbbc36297df893f7eba66b74eda6a1ddeab755e09bded8\"", "pae"},
		{"/data/subject", "sha256", "\"b587a695fae9d2a846cbbc36297df893f7eba66b74eda6a1ddeab755e09bded8\"", "subject"},
		{"/data", "verdict", "\"FAILED\"", "verdict"},
		{"/data", "signatures", "[]", "signatures"},
		{"/data/signatures/0", "sig", "\"AAAA\"", "signatures"},
		{"", "ts", "\"yesterday\"", "time"},
	};
	struct fixture *fixture = build();
	struct json *entry = vectors_parse(fixture->input.entry);
	struct arena arena;

	arena_init(&arena);
	fixture->input.proof = (struct bytes){0};
	for (size_t i = 0; i < COUNT_OF(changes); i++) {
		struct json *damaged = json_copy(&arena, entry);
		bool told = false;

		json_set(&arena, json_pointer_get(damaged, changes[i].parent), changes[i].name, vectors_parse(bytes_text(changes[i].value)));
		fixture->input.entry = print(damaged);
		ck_assert_msg(verify(fixture) == VERIFY_INVALID, "%s", changes[i].name);
		ck_assert(has_line(&fixture->report, VERIFY_FAIL, "entry", "entry-mismatch"));
		for (size_t j = 0; j < fixture->report.count; j++)
			told = told || (strcmp(fixture->report.lines[j].check, "entry") == 0 && strstr(fixture->report.lines[j].detail, changes[i].word));
		ck_assert_msg(told, "%s", changes[i].word);
	}
	/* Recorded an hour before it was signed. */
	json_set_text(&arena, entry, "ts", "2026-09-18T08:10:36.500Z");
	fixture->input.entry = print(entry);
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "time", "time-order"));
	arena_close(&arena);
}
END_TEST

/* A proof of another entry or place, or with a damaged checkpoint, proves nothing. */
START_TEST(test_proof)
{
	struct fixture *fixture = build();
	struct bytes good = fixture->input.proof;
	char *text = (char *)arena_bytes(&vectors_arena, good).data;
	char *copy = memory_text(text);

	memcpy(strstr(copy, "index 9"), "index 8", 7);
	fixture->input.proof = bytes_text(copy);
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "inclusion", "inclusion-invalid"));
	memcpy(strstr(copy, "index 8"), "index 9", 7);
	memcpy(strstr(copy, "\n20\n"), "\n21\n", 4);
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "checkpoint", "checkpoint-signature"));
	ck_assert_int_eq(verify_report_exit(&fixture->report), 23);
	fixture->input.proof = BYTES_OF("nonsense");
	ck_assert(verify(fixture) == VERIFY_MALFORMED);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "inclusion", "proof-shape"));
	free(copy);
}
END_TEST

/* A log that holds the entry in another place than the entry says proves nothing, however good its proof. */
START_TEST(test_proof_place)
{
	struct fixture *fixture = build();
	struct checkpoint checkpoint = {.origin = "reprise.example/journal/7f3a", .size = 1, .root = log_tree_leaf(fixture->input.entry)};
	struct log_proof none = {0};
	struct secret_key log_key;
	struct buffer note, proof;

	ck_assert(secret_key_parse_pem(&log_key, load_fact("keys/log.TEST-ONLY.secret.pem"), NULL) == 0);
	buffer_init(&note, 4096);
	buffer_init(&proof, 4096);
	checkpoint_sign(&checkpoint, &log_key, &note);
	proof_file_print(0, &none, buffer_bytes(&note), &proof); /* seq is 9 */
	fixture->input.proof = buffer_bytes(&proof);
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_PASS, "checkpoint", NULL));
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "inclusion", "inclusion-invalid"));
	buffer_close(&proof);
	buffer_close(&note);
}
END_TEST

/* A ring with one member changed, unsigned. */
static void change_ring(struct fixture *fixture, const char *parent, const char *name, const char *value)
{
	struct arena *arena = &vectors_arena;
	struct json *ring = json_copy(arena, vectors_parse(load_fact("keyring.json")));

	json_set(arena, json_pointer_get(ring, parent), name, vectors_parse(bytes_text(value)));
	fixture->input.keyring = print(ring);
	fixture->input.root_key_count = 0;
}

/* The key ring's own signature, version, and what it says of the key decide; member 1 is the fact key. */
START_TEST(test_keyring)
{
	static const struct {
		const char *parent, *name, *value, *check, *code;
		enum verify_status status;
	} changes[] = {
		{"", "version", "1", "keyring", "keyring-rollback", VERIFY_FAIL},
		{"", "version", "0", "keyring", "keyring-shape", VERIFY_FAIL},
		{"", "_type", "\"x\"", "keyring", "keyring-shape", VERIFY_FAIL},
		{"", "journal", "\"x\"", "keyring", "keyring-journal", VERIFY_NOTE},
		{"", "keys", "[]", "key", "key-unknown", VERIFY_UNVERIFIABLE},
		{"/keys/1", "purpose", "\"log\"", "key", "key-purpose", VERIFY_FAIL},
		{"/keys/2", "public", "\"YH7IJvJgq6JldaVHuLyTlteMEs7qmYzwBEHCjhRPK7k=\"", "key", "key-purpose", VERIFY_FAIL},
		{"/keys/1", "algorithm", "\"rsa\"", "key", "key-unknown", VERIFY_UNVERIFIABLE},
		{"/keys/1", "notAfter", "\"2026-09-18T09:10:33.880Z\"", "key", "key-window", VERIFY_FAIL},
		{"/keys/1", "notBefore", "\"2026-09-18T09:10:33.881Z\"", "key", "key-window", VERIFY_FAIL},
		{"/keys/1", "notBefore", "\"soon\"", "key", "key-window", VERIFY_FAIL},
		{"/keys/1", "notBefore", "7", "key", "key-window", VERIFY_FAIL},
		{"/keys/1", "notBefore", "\"2026-09-18T09:10:33.880Z\"", "key", NULL, VERIFY_PASS},
		{"/keys/1", "revoked", "{\"at\":\"2026-09-18T09:10:33.880Z\",\"reason\":\"retired\"}", "key", "key-revoked", VERIFY_FAIL},
		{"/keys/1", "revoked", "{\"at\":\"2026-09-18T09:10:33.881Z\",\"reason\":\"retired\"}", "key", "key-retired", VERIFY_NOTE},
		{"/keys/1", "revoked", "{\"at\":\"2030-01-01T00:00:00.000Z\",\"reason\":\"compromised\"}", "key", "key-revoked", VERIFY_FAIL},
		{"/keys/1", "revoked", "{\"reason\":\"retired\"}", "key", "key-revoked", VERIFY_FAIL},
		{"/keys/1", "revoked", "{}", "key", "key-revoked", VERIFY_FAIL},
	};
	struct fixture *fixture = build();

	for (size_t i = 0; i < COUNT_OF(changes); i++) {
		change_ring(fixture, changes[i].parent, changes[i].name, changes[i].value);
		verify(fixture);
		ck_assert_msg(has_line(&fixture->report, changes[i].status, changes[i].check, changes[i].code), "case %zu: %s = %s", i,
			      changes[i].name, changes[i].value);
		ck_assert(has_line(&fixture->report, VERIFY_NOTE, "keyring", "keyring-unsigned"));
	}
}
END_TEST

/* Who holds root keys takes neither an unsigned ring nor one signed by somebody else, nor one with too few signatures. */
START_TEST(test_keyring_signature)
{
	struct fixture *fixture = build();
	struct arena *arena = &vectors_arena;
	struct json *ring = json_copy(arena, vectors_parse(load_fact("keyring.json")));
	struct secret_key root;
	struct envelope_signature signature;
	struct digest pae;
	struct buffer text;
	struct bytes payload;

	fixture->input.keyring = load_fact("keyring.json");
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "keyring", "keyring-signature"));

	fixture->input.keyring = load_fact("keyring.dsse.json");
	fixture->input.root_keys = &fixture->fact_key;
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "keyring", "keyring-signature"));
	fixture->input.root_keys = &fixture->root_key;

	fixture->input.keyring_version_min = 3;
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "keyring", "keyring-rollback"));
	fixture->input.keyring_version_min = 2;

	ring = vectors_parse(load_fact("keyring.json"));
	json_set_number(arena, ring, "threshold", 2);
	payload = print(ring);
	ck_assert(secret_key_parse_pem(&root, load_fact("keys/root.TEST-ONLY.secret.pem"), NULL) == 0);
	buffer_init(&text, 1 << 20);
	envelope_sign(&root, ENVELOPE_TYPE_KEYRING, payload, &signature, &pae);
	envelope_print(ENVELOPE_TYPE_KEYRING, payload, &signature, 1, &text);
	fixture->input.keyring = buffer_bytes(&text);
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "keyring", "keyring-signature"));

	/* A statement signed by the root key is no key ring. */
	buffer_clear(&text);
	envelope_sign(&root, ENVELOPE_TYPE_STATEMENT, payload, &signature, &pae);
	envelope_print(ENVELOPE_TYPE_STATEMENT, payload, &signature, 1, &text);
	fixture->input.keyring = buffer_bytes(&text);
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "keyring", "keyring-signature"));
	buffer_close(&text);
}
END_TEST

/* Sign a changed statement with the example's key, so that the checks behind the signature are reached. */
static void resign(struct fixture *fixture, struct json *statement, struct buffer *text)
{
	struct secret_key key;
	struct envelope_signature signature;
	struct digest pae;
	struct bytes payload = print(statement);

	ck_assert(secret_key_parse_pem(&key, load_fact("keys/fact.TEST-ONLY.secret.pem"), NULL) == 0);
	buffer_init(text, 1 << 20);
	envelope_sign(&key, ENVELOPE_TYPE_STATEMENT, payload, &signature, &pae);
	envelope_print(ENVELOPE_TYPE_STATEMENT, payload, &signature, 1, text);
	fixture->input = (struct verify_input){.envelope = buffer_bytes(text), .keys = &fixture->fact_key, .key_count = 1};
}

/* The digest of a configuration covers its record's values, and not where they are known from. */
START_TEST(test_configuration_record)
{
	struct fixture *fixture = build();
	struct json *statement = vectors_parse(load_fact("statement.json"));
	struct json *values = vectors_parse(BYTES_OF("{\"A\":{\"kind\":\"openai\",\"version\":null},\"B\":{\"seed\":\"42\"}}"));
	struct json *configuration = vectors_parse(BYTES_OF("{\"record\":{\"A\":{\"kind\":{\"value\":\"openai\",\"basis\":\"declared\"},"
							    "\"version\":{\"basis\":\"unknown\"}},\"B\":{\"seed\":{\"value\":\"42\"}},\"G\":{\"seen\":{\"value\":1}}}}"));
	struct arena *arena = &vectors_arena;
	struct digest digest = json_digest(values);
	struct buffer text;

	json_set_digest(arena, configuration, "digest", &digest);
	json_set(arena, json_get(statement, "predicate"), "configuration", configuration);
	json_set(arena, json_pointer_get(statement, "/predicate/result"), "reproducibility", vectors_parse(BYTES_OF("{\"class\":\"stable\"}")));
	resign(fixture, statement, &text);
	ck_assert(verify(fixture) == VERIFY_VALID);
	ck_assert(!has_code(&fixture->report, "config-absent"));
	ck_assert(!has_code(&fixture->report, "unmeasured"));
	buffer_close(&text);
	json_set_text(arena, json_pointer_get(configuration, "/record/B/seed"), "value", "43");
	resign(fixture, statement, &text);
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "config", "config-digest"));
	buffer_close(&text);
}
END_TEST

/* A rejected fact's statement is genuine, and nobody overlooks that it was rejected; impossible times are refused. */
START_TEST(test_gate_and_time)
{
	struct fixture *fixture = build();
	struct json *statement = vectors_parse(load_fact("statement.json"));
	struct arena *arena = &vectors_arena;
	struct buffer text;

	json_set_text(arena, json_pointer_get(statement, "/predicate/result/gate"), "result", "FAILED");
	resign(fixture, statement, &text);
	ck_assert(verify(fixture) == VERIFY_VALID);
	ck_assert(has_line(&fixture->report, VERIFY_NOTE, "gate", "gate-failed"));
	buffer_close(&text);
	json_set_text(arena, json_pointer_get(statement, "/predicate/run"), "startedOn", "2026-09-18T09:15:33.871Z");
	resign(fixture, statement, &text);
	ck_assert(verify(fixture) == VERIFY_VALID); /* five minutes are allowed */
	buffer_close(&text);
	json_set_text(arena, json_pointer_get(statement, "/predicate/run"), "startedOn", "2026-09-18T09:15:33.872Z");
	resign(fixture, statement, &text);
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "time", "time-order"));
	buffer_close(&text);
}
END_TEST

/* An envelope, a key ring or a proof that is none is malformed, and so is a payload that is no statement: the signature alone makes no fact. */
START_TEST(test_malformed)
{
	static const char *const changes[][2] = {
		{"_type", "\"https://example.com/other\""}, {"predicateType", "\"https://example.com/other\""}, {"subject", "[]"}, {"predicate", "{}"},
	};
	struct fixture *fixture = build();
	struct arena *arena = &vectors_arena;
	struct secret_key key;
	struct envelope_signature signature;
	struct digest pae;
	struct buffer text;

	for (size_t i = 0; i < COUNT_OF(changes); i++) {
		struct json *statement = json_copy(arena, vectors_parse(load_fact("statement.json")));

		json_set(arena, statement, changes[i][0], vectors_parse(bytes_text(changes[i][1])));
		resign(fixture, statement, &text);
		ck_assert_msg(verify(fixture) == VERIFY_INVALID, "case %zu", i);
		ck_assert(has_line(&fixture->report, VERIFY_PASS, "signature", NULL));
		buffer_close(&text);
	}
	/* The example's own statement, signed as what it is not, and one that is signed in another form than the canonical one. */
	ck_assert(secret_key_parse_pem(&key, load_fact("keys/fact.TEST-ONLY.secret.pem"), NULL) == 0);
	buffer_init(&text, 1 << 20);
	envelope_sign(&key, "application/json", load_fact("statement.json"), &signature, &pae);
	envelope_print("application/json", load_fact("statement.json"), &signature, 1, &text);
	fixture->input.envelope = buffer_bytes(&text);
	ck_assert(verify(fixture) == VERIFY_INVALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "type", "payload-type"));
	buffer_clear(&text);
	struct bytes spaced = bytes_text(arena_printf(arena, " %.*s", (int)load_fact("statement.json").len, (const char *)load_fact("statement.json").data));
	envelope_sign(&key, ENVELOPE_TYPE_STATEMENT, spaced, &signature, &pae);
	envelope_print(ENVELOPE_TYPE_STATEMENT, spaced, &signature, 1, &text);
	fixture->input.envelope = buffer_bytes(&text);
	ck_assert(verify(fixture) == VERIFY_VALID);
	ck_assert(has_line(&fixture->report, VERIFY_NOTE, "json", "not-canonical"));
	buffer_clear(&text);
	envelope_sign(&key, ENVELOPE_TYPE_STATEMENT, BYTES_OF("no JSON"), &signature, &pae);
	envelope_print(ENVELOPE_TYPE_STATEMENT, BYTES_OF("no JSON"), &signature, 1, &text);
	fixture->input.envelope = buffer_bytes(&text);
	ck_assert(verify(fixture) != VERIFY_VALID);
	buffer_close(&text);
	fixture->input.envelope = BYTES_OF("{}");
	ck_assert(verify(fixture) != VERIFY_VALID);
	ck_assert(!has_line(&fixture->report, VERIFY_PASS, "signature", NULL));

	fixture = build();
	fixture->input.keyring = BYTES_OF("{\"payload\":1,\"payloadType\":\"x\",\"signatures\":[]}");
	ck_assert(verify(fixture) != VERIFY_VALID);
	fixture->input.keyring = BYTES_OF("[");
	ck_assert(verify(fixture) != VERIFY_VALID);
	change_ring(fixture, "", "keys", "{}");
	ck_assert(verify(fixture) != VERIFY_VALID);
	ck_assert(has_line(&fixture->report, VERIFY_FAIL, "keyring", "keyring-shape"));
}
END_TEST

/* A consistency that cannot be read proves nothing, and neither does one between checkpoints that are none. */
START_TEST(test_malformed_consistency)
{
	struct note_key log_key = load_vkey("keys/log.vkey");
	struct bytes note = load_fact("checkpoint.20");
	const struct bytes cases[][3] = {{note, note, BYTES_OF("nonsense")}, {BYTES_OF("x"), note, BYTES_OF("")}, {note, BYTES_OF("x"), BYTES_OF("")}};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct verify_report report;

		verify_report_init(&report);
		verify_consistency(cases[i][0], cases[i][1], cases[i][2], &log_key, &report);
		ck_assert_int_ne(verify_report_exit(&report), 0);
		ck_assert(!has_line(&report, VERIFY_PASS, "consistency", NULL));
		verify_report_close(&report);
	}
}
END_TEST

/* ---- Journals ---- */

/* Verify the example's journal with `entries` in place of its own. */
static void verify_entries(struct verify_report *report, struct bytes text, const char *checkpoint)
{
	struct note_key log_key = load_vkey("keys/log.vkey");
	struct bytes note = checkpoint ? load_fact(checkpoint) : (struct bytes){0};
	struct verify_journal journal;

	verify_report_init(report);
	ck_assert(verify_journal_begin(&journal, &log_key, &note, checkpoint ? 1 : 0, report) == 0);
	add_lines(&journal, text);
	verify_journal_end(&journal);
}

static const char *detail_of(const struct verify_report *report, const char *code)
{
	for (size_t i = 0; i < report->count; i++)
		if (report->lines[i].code && strcmp(report->lines[i].code, code) == 0)
			return report->lines[i].detail;
	return "";
}

/* A truncated journal tells both numbers and whose checkpoint promised them. */
START_TEST(test_truncated)
{
	struct verify_report report;

	verify_entries(&report, load_fact("damaged/truncated.jsonl"), "checkpoint.20");
	ck_assert_int_eq(verify_report_exit(&report), 23);
	ck_assert_ptr_nonnull(strstr(detail_of(&report, "journal-truncated"), "18 entries"));
	ck_assert_ptr_nonnull(strstr(detail_of(&report, "journal-truncated"), "reprise.example/journal/7f3a promised 20"));
	verify_report_close(&report);
	verify_entries(&report, (struct bytes){0}, "checkpoint.20");
	ck_assert_ptr_nonnull(strstr(detail_of(&report, "journal-truncated"), "0 entries"));
	verify_report_close(&report);
}
END_TEST

/* A changed journal tells the first checkpoint that differs and the last that agreed. */
START_TEST(test_changed)
{
	struct note_key log_key = load_vkey("keys/log.vkey");
	struct bytes notes[] = {load_fact("checkpoint.20"), load_fact("checkpoint.8"), load_fact("checkpoint.13")};
	struct verify_journal journal;
	struct verify_report report;
	struct bytes text = load_fact("journal.jsonl");
	char *copy = memory_text((const char *)text.data);

	verify_report_init(&report);
	strstr(copy, "idle-13")[6] = '9'; /* entry 13 */
	ck_assert(verify_journal_begin(&journal, &log_key, notes, 3, &report) == 0);
	add_lines(&journal, bytes_text(copy));
	ck_assert_uint_eq(journal.agreed_size, 13);
	verify_journal_end(&journal);
	ck_assert_ptr_nonnull(strstr(detail_of(&report, "journal-changed"), "size 20 differs"));
	ck_assert_ptr_nonnull(strstr(detail_of(&report, "journal-changed"), "size 13 still agreed"));
	ck_assert_ptr_nonnull(strstr(detail_of(&report, "journal-changed"), "entries 13 to 19"));
	verify_report_close(&report);
	free(copy);
}
END_TEST

/* A checkpoint that another key signed is told when the journal is begun, and the rest is verified all the same. */
START_TEST(test_bad_checkpoint)
{
	struct note_key log_key = load_vkey("keys/log.vkey"), other;
	struct bytes notes[] = {load_fact("checkpoint.8"), load_fact("checkpoint.20")};
	struct verify_journal journal;
	struct verify_report report;
	struct public_key public;

	public_key_init(&public, (const uint8_t[KEY_PUBLIC_LEN]){7});
	ck_assert(note_key_init(&other, log_key.name, NOTE_KEY_LOG, &public, NULL) == 0);
	verify_report_init(&report);
	ck_assert(verify_journal_begin(&journal, &other, notes, 2, &report) != 0);
	add_lines(&journal, load_fact("journal.jsonl"));
	verify_journal_end(&journal);
	ck_assert(has_line(&report, VERIFY_FAIL, "checkpoint", "checkpoint-unsigned"));
	/* Entry 0 names the log's key. */
	ck_assert_ptr_nonnull(strstr(detail_of(&report, "journal-entry"), "another key"));
	ck_assert_int_eq(verify_report_exit(&report), 23);
	verify_report_close(&report);
}
END_TEST

/* Each rule for an entry's form is kept: one member of entry 1 (or 6, a fact) is changed, and only that is told. */
START_TEST(test_entry_form)
{
	static const struct {
		size_t entry;
		const char *parent, *name, *value, *code, *word;
	} changes[] = {
		{1, "", "v", "2", "journal-entry", "v is not 1"},
		{1, "", "log", "\"x\"", "journal-entry", "another log"},
		{1, "", "kind", "\"Key Added\"", "journal-entry", "kind"},
		{1, "", "kind", "\"journal.opened\"", "journal-entry", "behind the first"},
		{0, "", "kind", "\"key.added\"", "journal-entry", "first entry"},
		{1, "", "ts", "\"2026-09-18T09:10:04Z\"", "journal-entry", "ts is no"},
		{1, "", "data", "[]", "journal-entry", "data is no object"},
		{1, "", "seq", "\"1\"", "journal-seq", "place 1"},
		{1, "", "seq", "2", "journal-seq", "says seq 2"},
		{6, "/data", "verdict", "\"MAYBE\"", "journal-entry", "verdict"},
		{6, "/data", "pae", "{}", "journal-entry", "digest"},
		{6, "/data", "signatures", "[]", "journal-entry", "no signature"},
		{6, "/data/signatures/0", "sig", "\"AA==\"", "journal-entry", "64 bytes"},
		{6, "/data", "attempt", "\"1\"", "journal-entry", "attempt"},
	};
	struct note_key log_key = load_vkey("keys/log.vkey");

	for (size_t i = 0; i < COUNT_OF(changes); i++) {
		struct bytes text = load_fact("journal.jsonl");
		struct verify_journal journal;
		struct verify_report report;
		struct arena arena;

		arena_init(&arena);
		verify_report_init(&report);
		ck_assert(verify_journal_begin(&journal, &log_key, NULL, 0, &report) == 0);
		for (size_t place = 0; text.len > 0; place++) {
			struct bytes line = {text.data, (size_t)((const uint8_t *)memchr(text.data, '\n', text.len) - text.data)};
			struct json *entry = json_parse(&arena, line, JSON_STRICT, NULL, NULL);

			if (place == changes[i].entry)
				json_set(&arena, json_pointer_get(entry, changes[i].parent), changes[i].name,
					 vectors_parse(bytes_text(changes[i].value)));
			verify_journal_add(&journal, json_print_arena(entry, &arena));
			text.data += line.len + 1;
			text.len -= line.len + 1;
		}
		verify_journal_end(&journal);
		ck_assert_msg(verify_report_exit(&report) == 23, "%s = %s", changes[i].name, changes[i].value);
		ck_assert_msg(strstr(detail_of(&report, changes[i].code), changes[i].word) != NULL, "%s = %s: %s", changes[i].name,
			      changes[i].value, detail_of(&report, changes[i].code));
		ck_assert_uint_eq(report.count, 1);
		verify_report_close(&report);
		arena_close(&arena);
	}
}
END_TEST

/* An entry that is not canonical, not JSON, or longer than 65,535 bytes is told; exactly that length is not. */
START_TEST(test_entry_bytes)
{
	static const char head[] = "{\"data\":{\"text\":\"", tail[] = "\",\"vkey\":\"reprise.example/journal/7f3a+4841862b+"
									 "AQKdg39Z+VCtMhdAmAhISRT7WuH8+8TR4+rR2R8LxUTT\"},\"kind\":\"journal.opened\","
									 "\"log\":\"reprise.example/journal/7f3a\",\"seq\":0,"
									 "\"ts\":\"2026-09-18T09:10:00.500Z\",\"v\":1}\n";
	struct verify_report report;
	struct buffer text;

	verify_entries(&report, BYTES_OF("hello\n"), NULL);
	ck_assert_ptr_nonnull(strstr(detail_of(&report, "journal-entry"), "json-syntax"));
	verify_report_close(&report);
	buffer_init(&text, 1 << 20);
	buffer_add_text(&text, head);
	while (text.len + sizeof(tail) - 2 < LINE_LEN_MAX)
		buffer_add_char(&text, 'x');
	buffer_add_text(&text, tail);
	ck_assert_uint_eq(text.len, LINE_LEN_MAX + 1); /* and the newline */
	verify_entries(&report, buffer_bytes(&text), NULL);
	ck_assert_int_eq(verify_report_exit(&report), 0);
	ck_assert(has_line(&report, VERIFY_NOTE, "checkpoint", "unanchored"));
	verify_report_close(&report);
	buffer_clear(&text);
	buffer_add_text(&text, head);
	while (text.len + sizeof(tail) - 2 < LINE_LEN_MAX + 1)
		buffer_add_char(&text, 'x');
	buffer_add_text(&text, tail);
	verify_entries(&report, buffer_bytes(&text), NULL);
	ck_assert_ptr_nonnull(strstr(detail_of(&report, "journal-entry"), "65536 bytes"));
	verify_report_close(&report);
	buffer_clear(&text);
	buffer_add_text(&text, head);
	buffer_add_text(&text, tail);
	text.data[text.len - 1] = ' ';
	buffer_add_char(&text, '\n');
	verify_entries(&report, buffer_bytes(&text), NULL);
	ck_assert_ptr_nonnull(strstr(detail_of(&report, "journal-entry"), "canonical"));
	verify_report_close(&report);
	buffer_close(&text);
}
END_TEST

/* Pruned leaves, of which only the root is known, verify as pruned; a checkpoint within them cannot be compared. */
START_TEST(test_pruned)
{
	struct note_key log_key = load_vkey("keys/log.vkey");
	struct bytes notes[] = {load_fact("checkpoint.8"), load_fact("checkpoint.13"), load_fact("checkpoint.20")};
	struct bytes text = load_fact("journal.jsonl");
	struct log_tree tree;
	struct digest root;
	struct verify_journal journal;
	struct verify_report report;
	const uint8_t *at = text.data;

	log_tree_init(&tree);
	for (size_t i = 0; i < 16; i++) {
		const uint8_t *end = memchr(at, '\n', text.len);
		struct digest leaf = log_tree_leaf((struct bytes){at, (size_t)(end - at)});

		log_tree_add(&tree, &leaf, NULL, NULL);
		at = end + 1;
	}
	root = log_tree_root(&tree);
	text.len -= (size_t)(at - text.data);
	text.data = at;
	verify_report_init(&report);
	ck_assert(verify_journal_begin(&journal, &log_key, notes + 2, 1, &report) == 0);
	verify_journal_add_pruned(&journal, 0, 16, &root);
	add_lines(&journal, text);
	verify_journal_end(&journal);
	ck_assert_int_eq(verify_report_exit(&report), 0);
	ck_assert_ptr_nonnull(strstr(detail_of(&report, "journal-pruned"), "16 entries"));
	verify_report_close(&report);

	verify_report_init(&report);
	ck_assert(verify_journal_begin(&journal, &log_key, notes, 3, &report) == 0);
	verify_journal_add_pruned(&journal, 0, 16, &root);
	add_lines(&journal, text);
	verify_journal_end(&journal);
	ck_assert_int_eq(verify_report_exit(&report), 26);
	ck_assert(has_line(&report, VERIFY_UNVERIFIABLE, "journal", "journal-pruned"));
	verify_report_close(&report);

	root.bytes[0] ^= 1;
	verify_report_init(&report);
	ck_assert(verify_journal_begin(&journal, &log_key, notes + 2, 1, &report) == 0);
	verify_journal_add_pruned(&journal, 0, 16, &root);
	add_lines(&journal, text);
	verify_journal_end(&journal);
	ck_assert(has_line(&report, VERIFY_FAIL, "journal", "journal-changed"));
	verify_report_close(&report);

	verify_report_init(&report);
	ck_assert(verify_journal_begin(&journal, &log_key, NULL, 0, &report) == 0);
	verify_journal_add_pruned(&journal, 0, 12, &root);
	verify_journal_add_pruned(&journal, 0, 0, &root);
	verify_journal_add_pruned(&journal, 0, (uint64_t)1 << 41, &root);
	ck_assert_uint_eq(report.count, 3);
	verify_journal_add_pruned(&journal, 256, 16, &root);
	verify_journal_add_pruned(&journal, 16, 32, &root);
	ck_assert(has_line(&report, VERIFY_FAIL, "journal", "journal-seq"));
	ck_assert_uint_eq(journal.tree.size, 16);
	verify_journal_end(&journal);
	verify_report_close(&report);
}
END_TEST

/* ---- The report ---- */

/* A full report keeps the worst of what no longer fits. */
START_TEST(test_report_full)
{
	struct verify_report report;

	verify_report_init(&report);
	for (size_t i = 0; i < VERIFY_LINES_MAX; i++)
		verify_add(&report, VERIFY_NOTE, "gate", "gate-failed", "%zu", i);
	ck_assert_uint_eq(report.count, VERIFY_LINES_MAX);
	ck_assert_int_eq(verify_report_exit(&report), 0);
	verify_add(&report, VERIFY_UNVERIFIABLE, "key", "key-unknown", "x");
	ck_assert_int_eq(verify_report_exit(&report), 26);
	verify_add(&report, VERIFY_FAIL, "signature", "signature-invalid", "x");
	ck_assert_int_eq(verify_report_exit(&report), 22);
	verify_add(&report, VERIFY_FAIL, "journal", "journal-seq", "x");
	ck_assert_int_eq(verify_report_exit(&report), 23);
	verify_add(&report, VERIFY_PASS, "journal", NULL, "x");
	ck_assert_int_eq(verify_report_exit(&report), 23);
	ck_assert_uint_eq(report.count, VERIFY_LINES_MAX);
	ck_assert_uint_eq(report.left_out, 4);
	verify_report_close(&report);
}
END_TEST

/* The report as JSON says result, exit status and each line. */
START_TEST(test_report_json)
{
	struct verify_report report;
	struct arena arena;
	struct json *json;

	arena_init(&arena);
	verify_report_init(&report);
	verify_add(&report, VERIFY_PASS, "signature", NULL, "good");
	verify_add(&report, VERIFY_FAIL, "checkpoint", "checkpoint-stale", "%d hours", 48);
	json = verify_report_json(&report, &arena);
	vectors_assert_equal(json_print_arena(json, &arena),
			     BYTES_OF("{\"checks\":[{\"check\":\"signature\",\"detail\":\"good\",\"status\":\"pass\"},{\"check\":\"checkpoint\","
				      "\"code\":\"checkpoint-stale\",\"detail\":\"48 hours\",\"status\":\"fail\"}],\"exit\":23,\"result\":\"INVALID\"}"));
	verify_report_close(&report);
	arena_close(&arena);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verify");
	TCase *tcase = tcase_create("verify");

	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, test_cases);
	tcase_add_test(tcase, test_everything);
	tcase_add_test(tcase, test_skipped);
	tcase_add_test(tcase, test_unverifiable);
	tcase_add_test(tcase, test_artefacts);
	tcase_add_test(tcase, test_entry);
	tcase_add_test(tcase, test_proof);
	tcase_add_test(tcase, test_proof_place);
	tcase_add_test(tcase, test_keyring);
	tcase_add_test(tcase, test_keyring_signature);
	tcase_add_test(tcase, test_configuration_record);
	tcase_add_test(tcase, test_gate_and_time);
	tcase_add_test(tcase, test_malformed);
	tcase_add_test(tcase, test_malformed_consistency);
	tcase_add_test(tcase, test_truncated);
	tcase_add_test(tcase, test_changed);
	tcase_add_test(tcase, test_bad_checkpoint);
	tcase_add_test(tcase, test_entry_form);
	tcase_add_test(tcase, test_entry_bytes);
	tcase_add_test(tcase, test_pruned);
	tcase_add_test(tcase, test_report_full);
	tcase_add_test(tcase, test_report_json);
	suite_add_tcase(suite, tcase);
	return vectors_run(suite);
}
