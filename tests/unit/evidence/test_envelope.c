#include "tests/unit/evidence/vectors.h"

#include "workflow/evidence/envelope.h"
#include "workflow/evidence/statement.h"

enum { KEYS_MAX = 4 };

/* The bytes that are signed are those of the vectors, as text and as digest, also for a type that is not ASCII. */
START_TEST(test_pae)
{
	struct json *cases = vectors_parse(vectors_load("dsse/pae.json"));

	ck_assert_uint_eq(json_count(cases), 9);
	for (size_t i = 0; i < json_count(cases); i++) {
		const struct json *item = json_at(cases, i);
		struct bytes payload = vectors_unhex(item, "payload"), want = vectors_unhex(item, "pae");
		struct digest digest = envelope_pae_digest(vectors_text(item, "payloadType"), payload), want_digest = digest_of(want);
		struct buffer out;

		buffer_init(&out, 1 << 20);
		envelope_pae(vectors_text(item, "payloadType"), payload, &out);
		vectors_assert_equal(buffer_bytes(&out), want);
		ck_assert(digest_equal(&digest, &want_digest));
		buffer_close(&out);
	}
}
END_TEST

/* What a verifier finds, in the order in which it may look: "valid", or "fail" or "malformed" with a code. */
static const char *judge(struct arena *arena, struct bytes text, const struct public_key *keys, size_t key_count, size_t threshold,
			 struct error *error)
{
	struct envelope envelope;
	const struct json *statement;

	if (envelope_parse(arena, text, &envelope, error) != 0)
		return "malformed";
	if (envelope_count_valid(&envelope, keys, key_count, NULL) < threshold) {
		error_set(error, ERR_CORRUPT, "signature-invalid");
		return "fail";
	}
	if (strcmp(envelope.payload_type, ENVELOPE_TYPE_STATEMENT) != 0) {
		error_set(error, ERR_CORRUPT, "payload-type");
		return "fail";
	}
	statement = json_parse(arena, envelope.payload, JSON_STRICT, NULL, error);
	if (!statement)
		return "malformed";
	return statement_check_in_toto(statement, error) == 0 ? "valid" : "fail";
}

/* Each envelope of the vectors is judged as they say. */
START_TEST(test_vectors)
{
	struct json *vectors = vectors_parse(vectors_load("dsse/envelopes.json"));
	const struct json *cases = json_get(vectors, "cases"), *hex = json_get(vectors, "keys");
	struct public_key keys[KEYS_MAX];
	size_t key_count = json_count(hex);

	ck_assert_uint_eq(json_count(cases), 26);
	ck_assert_uint_eq(key_count, 2);
	for (size_t i = 0; i < key_count; i++)
		public_key_init(&keys[i], vectors_unhex_text(json_at(hex, i)->string.text).data);
	for (size_t i = 0; i < json_count(cases); i++) {
		const struct json *item = json_at(cases, i);
		const char *name = vectors_text(item, "name"), *code = json_get_text(item, "code"), *got;
		struct arena arena;
		struct error error = {0};

		arena_init(&arena);
		got = judge(&arena, bytes_text(vectors_text(item, "envelope")), keys, key_count, (size_t)json_get_number(item, "threshold", 1),
			    &error);
		ck_assert_msg(strcmp(got, vectors_text(item, "expect")) == 0, "%s: %s (%s)", name, got, error.message);
		ck_assert_msg(code == NULL || vectors_has_code(error.message, code), "%s: %s", name, error.message);
		arena_close(&arena);
	}
}
END_TEST

static struct secret_key key_of(uint8_t first)
{
	struct secret_key key;

	secret_key_init(&key, (const uint8_t[KEY_SEED_LEN]){first});
	return key;
}

/* What is printed reads back, is in canonical form, and its signature is good under the key alone. */
START_TEST(test_round_trip)
{
	struct secret_key key = key_of(1), other = key_of(2);
	struct envelope_signature signature;
	struct envelope envelope;
	struct digest pae, want;
	struct buffer text, canonical;
	struct arena arena;
	struct error error;

	arena_init(&arena);
	envelope_sign(&key, "text/plain; \"quoted\"", BYTES_OF("hello"), &signature, &pae);
	want = envelope_pae_digest("text/plain; \"quoted\"", BYTES_OF("hello"));
	ck_assert(digest_equal(&pae, &want));
	buffer_init(&text, 4096);
	envelope_print("text/plain; \"quoted\"", BYTES_OF("hello"), &signature, 1, &text);
	ck_assert_msg(envelope_parse(&arena, buffer_bytes(&text), &envelope, &error) == 0, "%s", error.message);
	ck_assert_str_eq(envelope.payload_type, "text/plain; \"quoted\"");
	ck_assert(bytes_equal_text(envelope.payload, "hello"));
	ck_assert_uint_eq(envelope_count_valid(&envelope, &key.public, 1, NULL), 1);
	ck_assert_uint_eq(envelope_count_valid(&envelope, &other.public, 1, NULL), 0);
	ck_assert_uint_eq(envelope_count_valid(&envelope, NULL, 0, NULL), 0);
	buffer_init(&canonical, 4096);
	json_print(json_parse(&arena, buffer_bytes(&text), JSON_STRICT, NULL, NULL), &canonical);
	vectors_assert_equal(buffer_bytes(&canonical), buffer_bytes(&text));
	buffer_close(&canonical);
	buffer_close(&text);
	arena_close(&arena);
}
END_TEST

/* A key that is trusted twice counts once; a wrong hint is told and decides nothing. */
START_TEST(test_counting)
{
	struct secret_key keys[2] = {key_of(1), key_of(2)};
	struct public_key trusted[3] = {keys[0].public, keys[0].public, keys[1].public};
	struct envelope_signature signatures[3];
	struct envelope envelope;
	struct digest pae;
	struct buffer text;
	struct arena arena;
	size_t signers[3];
	bool hint_wrong;

	arena_init(&arena);
	buffer_init(&text, 4096);
	envelope_sign(&keys[0], "t", BYTES_OF("x"), &signatures[0], &pae);
	envelope_sign(&keys[0], "t", BYTES_OF("x"), &signatures[1], &pae);
	envelope_sign(&keys[1], "t", BYTES_OF("y"), &signatures[2], &pae);
	envelope_print("t", BYTES_OF("x"), signatures, 3, &text);
	ck_assert(envelope_parse(&arena, buffer_bytes(&text), &envelope, NULL) == 0);
	ck_assert_uint_eq(envelope_count_valid(&envelope, trusted, 3, &hint_wrong), 1);
	ck_assert(!hint_wrong);
	ck_assert_uint_eq(envelope_find_signers(&envelope, trusted, 3, signers), 1);
	ck_assert(signers[2] == ENVELOPE_NO_SIGNER);
	buffer_clear(&text);
	memcpy(signatures[0].key_id, keys[1].public.id, sizeof(signatures[0].key_id));
	envelope_sign(&keys[1], "t", BYTES_OF("x"), &signatures[1], &pae);
	envelope_print("t", BYTES_OF("x"), signatures, 2, &text);
	ck_assert(envelope_parse(&arena, buffer_bytes(&text), &envelope, NULL) == 0);
	ck_assert_uint_eq(envelope_count_valid(&envelope, trusted, 3, &hint_wrong), 2);
	ck_assert(hint_wrong);
	buffer_close(&text);
	arena_close(&arena);
}
END_TEST

/* A signature that is no signature is passed over, and does not spoil the good one beside it. */
START_TEST(test_unusable_signature)
{
	struct secret_key key = key_of(1);
	struct envelope_signature signature;
	struct envelope envelope;
	struct digest pae;
	struct buffer text;
	struct arena arena;

	arena_init(&arena);
	buffer_init(&text, 4096);
	envelope_sign(&key, "t", BYTES_OF("x"), &signature, &pae);
	buffer_add_text(&text, "{\"payload\":\"eA==\",\"payloadType\":\"t\",\"signatures\":[{\"sig\":\"!\"},{\"sig\":\"AAAA\"},{\"sig\":\"");
	base64_add(&text, (struct bytes){signature.signature, KEY_SIGNATURE_LEN});
	buffer_add_text(&text, "\"}]}");
	ck_assert(envelope_parse(&arena, buffer_bytes(&text), &envelope, NULL) == 0);
	ck_assert_uint_eq(envelope.signature_count, 3);
	ck_assert(!envelope.signature_usable[0]);
	ck_assert(!envelope.signature_usable[1]);
	ck_assert(envelope.signature_usable[2]);
	ck_assert_uint_eq(envelope_count_valid(&envelope, &key.public, 1, NULL), 1);
	buffer_close(&text);
	arena_close(&arena);
}
END_TEST

/* 64 signatures are read and 65 are not; 1 MiB is read and a byte more is not. */
START_TEST(test_limits)
{
	struct envelope_signature *signatures = memory_zero(65 * sizeof(*signatures));
	struct envelope envelope;
	struct buffer text;
	struct arena arena;
	struct error error;

	arena_init(&arena);
	buffer_init(&text, 4 << 20);
	envelope_print("t", BYTES_OF("x"), signatures, ENVELOPE_SIGNATURES_MAX, &text);
	ck_assert(envelope_parse(&arena, buffer_bytes(&text), &envelope, &error) == 0);
	while (text.len < ENVELOPE_LEN_MAX)
		buffer_add_char(&text, ' ');
	ck_assert(envelope_parse(&arena, buffer_bytes(&text), &envelope, &error) == 0);
	buffer_add_char(&text, ' ');
	ck_assert(envelope_parse(&arena, buffer_bytes(&text), &envelope, &error) == ERR_TOO_LARGE);
	buffer_clear(&text);
	envelope_print("t", BYTES_OF("x"), signatures, ENVELOPE_SIGNATURES_MAX + 1, &text);
	ck_assert(envelope_parse(&arena, buffer_bytes(&text), &envelope, &error) == ERR_TOO_LARGE);
	buffer_close(&text);
	arena_close(&arena);
	free(signatures);
}
END_TEST

/* Anything but an object with the three members in form is malformed. */
START_TEST(test_shapes)
{
	static const char *const texts[] = {
		"[]", "null", "{}", "{\"payload\":\"\",\"payloadType\":\"t\"}", "{\"payload\":\"\",\"payloadType\":\"t\",\"signatures\":{}}",
		"{\"payload\":\"\",\"payloadType\":\"t\",\"signatures\":[1]}", "{\"payload\":\"\",\"payloadType\":1,\"signatures\":[{\"sig\":\"\"}]}",
		"{\"payload\":1,\"payloadType\":\"t\",\"signatures\":[{\"sig\":\"\"}]}",
		"{\"payload\":\"\",\"payloadType\":\"t\",\"signatures\":[{\"sig\":1}]}",
	};
	struct envelope envelope;
	struct arena arena;
	struct error error;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		ck_assert_msg(envelope_parse(&arena, bytes_text(texts[i]), &envelope, &error) == ERR_INVALID, "case %zu", i);
		ck_assert_msg(vectors_has_code(error.message, "dsse-shape"), "case %zu: %s", i, error.message);
	}
	ck_assert(envelope_parse(&arena, BYTES_OF("{"), &envelope, &error) != 0);
	ck_assert(vectors_has_code(error.message, "json-syntax"));
	arena_close(&arena);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("envelope");
	TCase *tcase = tcase_create("envelope");

	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, test_pae);
	tcase_add_test(tcase, test_vectors);
	tcase_add_test(tcase, test_round_trip);
	tcase_add_test(tcase, test_counting);
	tcase_add_test(tcase, test_unusable_signature);
	tcase_add_test(tcase, test_limits);
	tcase_add_test(tcase, test_shapes);
	suite_add_tcase(suite, tcase);
	return vectors_run(suite);
}
