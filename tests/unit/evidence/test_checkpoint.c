#include "tests/unit/evidence/vectors.h"

#include "workflow/evidence/checkpoint.h"
#include "workflow/evidence/verify.h"

static bool has_code(const struct verify_report *report, const char *code)
{
	for (size_t i = 0; i < report->count; i++)
		if (report->lines[i].code && strcmp(report->lines[i].code, code) == 0 && report->lines[i].status == VERIFY_FAIL)
			return true;
	return false;
}

static struct bytes checkpoint_of(const struct json *item)
{
	const char *text = json_get_text(item, "checkpoint");

	return text ? bytes_text(text) : vectors_unhex(item, "checkpointHex");
}

/* Each note of the vectors is judged as they say: valid, failed or malformed, with the code. */
START_TEST(test_vectors)
{
	const struct json *vectors = vectors_parse(vectors_load("note.json")), *cases = json_get(vectors, "cases");
	struct note_key log_key, known;

	ck_assert_uint_eq(json_count(cases), 19);
	ck_assert(note_key_parse(&log_key, vectors_text(vectors, "log"), NULL) == 0);
	for (size_t i = 0; i < json_count(cases); i++) {
		const struct json *item = json_at(cases, i), *names = json_get(item, "witnesses");
		const char *expect = vectors_text(item, "expect"), *code = json_get_text(item, "code");
		struct note_key witnesses[4];
		struct verify_report report;
		enum verify_result want = strcmp(expect, "valid") == 0 ? VERIFY_VALID : strcmp(expect, "fail") == 0 ? VERIFY_INVALID : VERIFY_MALFORMED;

		for (size_t j = 0; j < json_count(names); j++) {
			ck_assert(note_key_parse(&known, vectors_text(vectors, json_at(names, j)->string.text), NULL) == 0);
			witnesses[j] = known;
		}
		verify_report_init(&report);
		verify_checkpoint(checkpoint_of(item), &log_key, witnesses, json_count(names), (size_t)json_get_number(item, "quorum", 0),
				  (uint64_t)json_get_number(item, "now", 0), &report, NULL);
		ck_assert_msg(verify_report_result(&report) == want, "%s: wanted %s", vectors_text(item, "name"), expect);
		ck_assert_msg(code == NULL || has_code(&report, code), "%s: %s is not reported", vectors_text(item, "name"), code);
		verify_report_close(&report);
	}
}
END_TEST

/* The example of the signed-note specification is a note with a good signature, though no checkpoint. */
START_TEST(test_specification_example)
{
	const char *path = vectors_shared_path("note.json"), *line;
	const struct json *example;
	struct bytes note;
	struct note_key key;
	struct checkpoint checkpoint;
	struct buffer signature;
	struct error error;

	if (path == NULL)
		return;
	example = json_get(vectors_parse(vectors_load_path(path)), "c2sp_example");
	note = bytes_text(vectors_text(example, "note"));
	line = strrchr(vectors_text(example, "note"), ' ') + 1;
	ck_assert(note_key_parse(&key, vectors_text(example, "vkey"), &error) == 0);
	ck_assert(checkpoint_open(note, &key, &checkpoint, &error) == ERR_INVALID);
	ck_assert(vectors_has_code(error.message, "checkpoint-shape"));
	buffer_init(&signature, 256);
	ck_assert(base64_decode((struct bytes){(const uint8_t *)line, strlen(line) - 1}, &signature));
	ck_assert_uint_eq(signature.len, 4 + KEY_SIGNATURE_LEN);
	ck_assert_mem_eq(signature.data, key.id, 4);
	ck_assert(key_verify(&key.public, BYTES_OF("This is an example message.\n"), (struct bytes){signature.data + 4, KEY_SIGNATURE_LEN}));
	buffer_close(&signature);
}
END_TEST

/* The log key of the example makes the example's checkpoints to the byte (but for the witness's line). */
START_TEST(test_sign)
{
	static const char *const names[] = {"fact/checkpoint.8", "fact/checkpoint.13", "fact/checkpoint.20"};
	struct secret_key log_key;
	struct error error;

	ck_assert(secret_key_parse_pem(&log_key, vectors_load("fact/keys/log.TEST-ONLY.secret.pem"), &error) == 0);
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		struct bytes want = vectors_load(names[i]);
		struct checkpoint checkpoint;
		struct buffer note;

		ck_assert(checkpoint_parse(want, &checkpoint, &error) == 0);
		buffer_init(&note, 4096);
		checkpoint_sign(&checkpoint, &log_key, &note);
		ck_assert_uint_gt(note.len, 150);
		ck_assert_uint_ge(want.len, note.len);
		vectors_assert_equal(buffer_bytes(&note), (struct bytes){want.data, note.len});
		buffer_close(&note);
	}
}
END_TEST

/* A witness's cosignature gives its time; a witness that has not signed is not found. */
START_TEST(test_cosignature)
{
	struct bytes note = vectors_load("fact/checkpoint.20");
	struct note_key witness, stranger;
	struct error error;
	uint64_t time_s = 0;

	ck_assert(note_key_parse(&witness, (const char *)vectors_load("fact/keys/witness.vkey").data, &error) == 0);
	ck_assert(checkpoint_open_cosignature(note, &witness, &time_s, &error) == 0);
	ck_assert_uint_eq(time_s, 0x6aad027c);
	ck_assert(note_key_init(&stranger, "witness.example/w9", NOTE_KEY_COSIGNER, &witness.public, &error) == 0);
	ck_assert(checkpoint_open_cosignature(note, &stranger, &time_s, &error) == ERR_NOT_FOUND);
}
END_TEST

static int parse_text(const char *text, struct error *error)
{
	struct checkpoint checkpoint;

	return checkpoint_parse(bytes_text(text), &checkpoint, error);
}

/* Notes are refused at each limit: bytes, signatures, the name's length, digits of the size. */
START_TEST(test_limits)
{
	static const char line[] = "\xe2\x80\x94 x AAAAAAA=\n";
	struct buffer note;
	struct checkpoint checkpoint;
	struct error error;

	buffer_init(&note, 4 << 20);
	buffer_add_text(&note, "x\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n");
	for (size_t i = 0; i < 64; i++)
		buffer_add_text(&note, line);
	ck_assert_msg(checkpoint_parse(buffer_bytes(&note), &checkpoint, &error) == 0, "%s", error.message);
	buffer_add_text(&note, line);
	ck_assert(checkpoint_parse(buffer_bytes(&note), &checkpoint, &error) == ERR_TOO_LARGE);
	ck_assert(vectors_has_code(error.message, "note-size"));

	buffer_clear(&note);
	for (size_t i = 0; i <= 1 << 20; i++)
		buffer_add_char(&note, 'x');
	ck_assert(checkpoint_parse(buffer_bytes(&note), &checkpoint, &error) == ERR_TOO_LARGE);

	buffer_clear(&note);
	for (size_t i = 0; i <= NOTE_NAME_MAX; i++)
		buffer_add_char(&note, 'x');
	buffer_add_text(&note, "\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n");
	buffer_add_text(&note, line);
	ck_assert(checkpoint_parse(buffer_bytes(&note), &checkpoint, &error) == ERR_INVALID);
	ck_assert(vectors_has_code(error.message, "checkpoint-shape"));
	buffer_close(&note);

	ck_assert(parse_text("x\n9999999999999999999\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\xe2\x80\x94 x AAAAAAA=\n", &error) == 0);
	ck_assert(parse_text("x\n10000000000000000000\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\xe2\x80\x94 x AAAAAAA=\n", &error) != 0);
	ck_assert(parse_text("x\n1\n47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\xe2\x80\x94 x AAAAAAA=\n", &error) != 0);
	static const struct {
		const char *text, *code;
	} shapes[] = {
		{"x\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n- x AAAAAAA=\n", "note-shape"},
		{"x\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\nx\n", "note-shape"},
		{"x\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\xe2\x80\x94 x\n", "note-shape"},
		{"x\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\xe2\x80\x94 x+y AAAAAAA=\n", "note-shape"},
		{"x\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\xe2\x80\x94 x AAAAAA_=\n", "note-shape"},
		{"x\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\nmore\n\n\xe2\x80\x94 x AAAAAAA=\n", "checkpoint-shape"},
		{"x\n1\n\n\xe2\x80\x94 x AAAAAAA=\n", "checkpoint-shape"},
		{"x\n01\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\xe2\x80\x94 x AAAAAAA=\n", "checkpoint-shape"},
		{"x\n1/\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\xe2\x80\x94 x AAAAAAA=\n", "checkpoint-shape"},
		{"x\n1:\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\xe2\x80\x94 x AAAAAAA=\n", "checkpoint-shape"},
		{"x\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuF=\n\n\xe2\x80\x94 x AAAAAAA=\n", "checkpoint-shape"},
	};
	for (size_t i = 0; i < COUNT_OF(shapes); i++)
		ck_assert_msg(parse_text(shapes[i].text, &error) != 0 && vectors_has_code(error.message, shapes[i].code), "case %zu: %s", i, error.message);
	/* A line behind the three is an extension that we do not know. */
	ck_assert(parse_text("x\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\nmore\n\n\xe2\x80\x94 x AAAAAAA=\n", &error) == 0);
	ck_assert(parse_text("", &error) != 0);
	ck_assert(parse_text("\n", &error) != 0);
	ck_assert(parse_text("\n\n", &error) != 0);
	ck_assert(parse_text("\xff\n\n", &error) != 0);
	ck_assert(vectors_has_code(error.message, "note-utf8"));
	ck_assert(parse_text("x\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n\xe2\x80\x94 x AAAAAA==\n", &error) != 0);
	ck_assert(vectors_has_code(error.message, "note-shape"));
}
END_TEST

/* A proof file reads and prints to the byte. */
START_TEST(test_proof_file)
{
	struct bytes text = vectors_load("fact/fact.tlog-proof"), note;
	struct log_proof proof;
	struct buffer out;
	struct error error;
	uint64_t index;

	ck_assert_msg(proof_file_parse(text, &index, &proof, &note, &error) == 0, "%s", error.message);
	ck_assert_uint_eq(index, 9);
	ck_assert_uint_eq(proof.count, 5);
	vectors_assert_equal(note, vectors_load("fact/checkpoint.20"));
	buffer_init(&out, 1 << 20);
	proof_file_print(index, &proof, note, &out);
	vectors_assert_equal(buffer_bytes(&out), text);
	buffer_close(&out);
}
END_TEST

/* Consistency files read and print to the byte. */
START_TEST(test_consistency_file)
{
	static const char *const names[] = {"fact/consistency.8-13", "fact/consistency.8-20", "fact/consistency.13-20"};
	struct error error;

	for (size_t i = 0; i < COUNT_OF(names); i++) {
		struct bytes text = vectors_load(names[i]);
		struct log_proof proof;
		struct buffer out;

		ck_assert(consistency_file_parse(text, &proof, &error) == 0);
		ck_assert_uint_gt(proof.count, 0);
		buffer_init(&out, 1 << 20);
		consistency_file_print(&proof, &out);
		vectors_assert_equal(buffer_bytes(&out), text);
		buffer_close(&out);
	}
}
END_TEST

/* Damaged proof files are refused as such, and the 64th hash is one too many. */
START_TEST(test_refused_proof_files)
{
	static const char hash[] = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n";
	static const char *const texts[] = {
		"",
		"c2sp.org/tlog-proof@v2\nindex 1\n\n",
		"c2sp.org/tlog-proof@v1",
		"c2sp.org/tlog-proof@v1\n",
		"c2sp.org/tlog-proof@v1\nindex \n\n",
		"c2sp.org/tlog-proof@v1\nindex 01\n\n",
		"c2sp.org/tlog-proof@v1\nindex -1\n\n",
		"c2sp.org/tlog-proof@v1\nindex 1:\n\n",
		"c2sp.org/tlog-proof@v1\nindex\n\n",
		"c2sp.org/tlog-proof@v1\nextra AAAA\nno index\n\n",
		"c2sp.org/tlog-proof@v1\nindex 1\n",
		"c2sp.org/tlog-proof@v1\nextra !\nindex 1\n\n",
		"c2sp.org/tlog-proof@v1\nextra AAAA\n",
		"c2sp.org/tlog-proof@v1\nindex 1\nAAAA\n\n",
	};
	struct log_proof proof;
	struct bytes note;
	struct buffer text;
	struct error error;
	uint64_t index;

	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		ck_assert_msg(proof_file_parse(bytes_text(texts[i]), &index, &proof, &note, &error) != 0, "case %zu was accepted", i);
		ck_assert(vectors_has_code(error.message, "proof-shape"));
	}
	ck_assert(proof_file_parse(BYTES_OF("c2sp.org/tlog-proof@v1\nextra AAAA\nindex 7\n\nnote"), &index, &proof, &note, &error) == 0);
	ck_assert_uint_eq(index, 7);
	ck_assert(bytes_equal_text(note, "note"));
	buffer_init(&text, 1 << 20);
	for (size_t i = 0; i < LOG_PROOF_MAX; i++)
		buffer_add_text(&text, hash);
	ck_assert(consistency_file_parse(buffer_bytes(&text), &proof, &error) == 0);
	buffer_add_text(&text, hash);
	ck_assert(consistency_file_parse(buffer_bytes(&text), &proof, &error) == ERR_TOO_LARGE);
	ck_assert(consistency_file_parse(bytes_text("AAAA"), &proof, &error) == ERR_INVALID);
	buffer_close(&text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("checkpoint");
	TCase *tcase = tcase_create("checkpoint");

	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, test_vectors);
	tcase_add_test(tcase, test_specification_example);
	tcase_add_test(tcase, test_sign);
	tcase_add_test(tcase, test_cosignature);
	tcase_add_test(tcase, test_limits);
	tcase_add_test(tcase, test_proof_file);
	tcase_add_test(tcase, test_consistency_file);
	tcase_add_test(tcase, test_refused_proof_files);
	suite_add_tcase(suite, tcase);
	return vectors_run(suite);
}
