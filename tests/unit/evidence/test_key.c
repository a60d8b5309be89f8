#include "tests/unit/evidence/vectors.h"

#include "workflow/evidence/key.h"

enum { OWN_NEGATIVES = 12, OWN_SIGN = 17 };

static struct secret_key key_from_hex(const struct json *json)
{
	struct bytes seed = vectors_unhex(json, "seed");
	struct secret_key key;

	ck_assert(seed.len == KEY_SEED_LEN);
	secret_key_init(&key, seed.data);
	return key;
}

static void check_sign(const struct json *cases)
{
	for (size_t i = 0; i < json_count(cases); i++) {
		const struct json *item = json_at(cases, i);
		struct secret_key key = key_from_hex(item);
		struct bytes message = vectors_unhex(item, "msg");
		uint8_t signature[KEY_SIGNATURE_LEN];

		vectors_assert_equal((struct bytes){key.public.bytes, KEY_PUBLIC_LEN}, vectors_unhex(item, "pk"));
		key_sign(&key, message, signature);
		vectors_assert_equal((struct bytes){signature, sizeof(signature)}, vectors_unhex(item, "sig"));
		ck_assert(key_verify(&key.public, message, (struct bytes){signature, sizeof(signature)}));
	}
}

static void check_verify(const struct json *cases)
{
	size_t good = 0;

	for (size_t i = 0; i < json_count(cases); i++) {
		const struct json *item = json_at(cases, i);
		struct bytes public_bytes = vectors_unhex(item, "pk");
		struct public_key key;
		bool valid;

		ck_assert(public_bytes.len == KEY_PUBLIC_LEN);
		public_key_init(&key, public_bytes.data);
		valid = key_verify(&key, vectors_unhex(item, "msg"), vectors_unhex(item, "sig"));
		ck_assert_msg(valid == json_get_boolean(item, "valid", false), "case %zu: %s", i, vectors_text(item, "name"));
		good += valid;
	}
	printf("ed25519: %zu signatures to verify, %zu of them good\n", json_count(cases), good);
}

/* Signing gives the bytes of RFC 8032 and of our own cases, and our own bad signatures are refused. */
START_TEST(test_own_signatures)
{
	struct json *json = vectors_parse(vectors_load("ed25519.json"));

	ck_assert_uint_ge(json_count(json_get(json, "sign")), OWN_SIGN);
	ck_assert_uint_ge(json_count(json_get(json, "verify")), OWN_NEGATIVES);
	check_sign(json_get(json, "sign"));
	check_verify(json_get(json, "verify"));
}
END_TEST

/* Wycheproof's signatures are judged as it says. */
START_TEST(test_wycheproof)
{
	const char *path = vectors_shared_path("ed25519.json");
	struct json *json;

	if (path == NULL)
		return;
	json = vectors_parse(vectors_load_path(path));
	ck_assert_uint_eq(json_count(json_get(json, "verify")), 163);
	check_sign(json_get(json, "sign"));
	check_verify(json_get(json, "verify"));
}
END_TEST

/* One key reads and prints the same in each format, and its ids are those of others' tools. */
START_TEST(test_formats)
{
	struct json *keys = vectors_parse(vectors_load("keys.json"));

	ck_assert_uint_eq(json_count(keys), 3);
	for (size_t i = 0; i < json_count(keys); i++) {
		const struct json *item = json_at(keys, i);
		struct secret_key secret = key_from_hex(item), parsed_secret;
		const char *vkeys[] = {vectors_text(item, "vkey_log"), vectors_text(item, "vkey_cosigner")};
		const enum note_key_type types[] = {NOTE_KEY_LOG, NOTE_KEY_COSIGNER};
		struct public_key parsed;
		struct note_key note_key;
		struct buffer out;
		struct error error;

		buffer_init(&out, 4096);
		vectors_assert_equal((struct bytes){secret.seed_and_public, 64}, vectors_unhex(item, "libsodium_secret"));
		ck_assert_str_eq(secret.public.id, vectors_text(item, "dsse_keyid"));
		secret_key_print_pem(&secret, &out);
		ck_assert_str_eq(buffer_text(&out), vectors_text(item, "pkcs8_pem"));
		ck_assert_msg(secret_key_parse_pem(&parsed_secret, buffer_bytes(&out), &error) == 0, "%s", error.message);
		ck_assert_mem_eq(&parsed_secret, &secret, sizeof(secret));
		buffer_clear(&out);
		public_key_print_pem(&secret.public, &out);
		ck_assert_str_eq(buffer_text(&out), vectors_text(item, "spki_pem"));
		ck_assert_msg(public_key_parse_pem(&parsed, buffer_bytes(&out), &error) == 0, "%s", error.message);
		ck_assert_mem_eq(&parsed, &secret.public, sizeof(parsed));
		for (size_t j = 0; j < 2; j++) {
			ck_assert(note_key_init(&note_key, vectors_text(item, "note_name"), types[j], &secret.public, &error) == 0);
			buffer_clear(&out);
			note_key_print(&note_key, &out);
			ck_assert_str_eq(buffer_text(&out), vkeys[j]);
			ck_assert_msg(note_key_parse(&note_key, vkeys[j], &error) == 0, "%s", error.message);
			ck_assert(note_key.type == types[j]);
			ck_assert_str_eq(note_key.name, vectors_text(item, "note_name"));
			ck_assert_str_eq(note_key.public.id, secret.public.id);
		}
		buffer_close(&out);
	}
}
END_TEST

/* A wiped secret key holds nothing. */
START_TEST(test_wipe)
{
	struct secret_key key, zero = {0};

	secret_key_init(&key, (const uint8_t[KEY_SEED_LEN]){1, 2, 3});
	secret_key_wipe(&key);
	ck_assert_mem_eq(&key, &zero, sizeof(key));
}
END_TEST

static void pem_of(const char *label, const uint8_t *der, size_t len, struct buffer *out)
{
	buffer_init(out, 8192);
	buffer_printf(out, "-----BEGIN %s-----\n", label);
	base64_add(out, (struct bytes){der, len});
	buffer_printf(out, "\n-----END %s-----\n", label);
}

/* What is no Ed25519 key is refused, and the message says what was found. */
START_TEST(test_refused_pem)
{
	static const uint8_t rsa[] = {0x30, 0x1a, 0x02, 0x01, 0x00, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7,
				      0x0d, 0x01, 0x01, 0x01, 0x05, 0x00, 0x04, 0x06, 1, 2, 3, 4, 5, 6};
	static const uint8_t x25519[44] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x6e, 0x03, 0x21, 0x00};
	static const uint8_t shortened[47] = {0x30, 0x2d, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x21, 0x04, 0x1f};
	static const struct {
		const char *text, *wanted;
	} texts[] = {
		{"", "not a PEM key"},
		{"hello", "not a PEM key"},
		{"-----BEGIN PRIVATE KEY-----", "first line is incomplete"},
		{"-----BEGIN ", "first line is incomplete"},
		{"-----BEGIN PRIVATE KEY\n", "first line is incomplete"},
		{"-----BEGIN ---\r\n", "first line is incomplete"},
		{"-----BEGIN OF\x1b[31mCOLOURS-----\n", "\"OF\""},
		{"-----BEGIN A LABEL THAT IS LONGER THAN ANYBODY WOULD WANT TO READ-----\n", "\"A LABEL THAT IS LONGER THAN ANYBODY WOUL\""},
		{"-----BEGIN PRIVATE KEY-----\nAA==\n", "at the end"},
		{"-----BEGIN PRIVATE KEY-----\nAA==-----END PRIVATE KEY-----\n", "at the end"},
		{"-----BEGIN RSA PRIVATE KEY-----\nAA==\n-----END RSA PRIVATE KEY-----\n", "\"RSA PRIVATE KEY\""},
		{"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n", "\"ENCRYPTED PRIVATE KEY\""},
		{"-----BEGIN OPENSSH PRIVATE KEY-----\nAA==\n-----END OPENSSH PRIVATE KEY-----\n", "\"OPENSSH PRIVATE KEY\""},
		{"-----BEGIN PRIVATE KEY-----\nA\x01==\n-----END PRIVATE KEY-----\n", "base64 is damaged"},
		{"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PUBLIC KEY-----\n", "at the end"},
		{"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n", "algorithm is unknown"},
		{"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEILkbriasZS4w85xe2yBR6INGP5BU7sa21YArcM3sxUGC\n-----END PRIVATE KEY-----\nmore\n",
		 "at the end"},
		{" -----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEILkbriasZS4w85xe2yBR6INGP5BU7sa21YArcM3sxUGC\n-----END PRIVATE KEY-----\n",
		 "not a PEM key"},
	};
	struct secret_key secret;
	struct public_key public;
	struct buffer pem;
	struct error error;

	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		ck_assert_msg(secret_key_parse_pem(&secret, bytes_text(texts[i].text), &error) != 0, "case %zu was accepted", i);
		ck_assert_msg(strstr(error.message, texts[i].wanted) != NULL, "case %zu: %s", i, error.message);
	}
	pem_of("PRIVATE KEY", rsa, sizeof(rsa), &pem);
	ck_assert(secret_key_parse_pem(&secret, buffer_bytes(&pem), &error) == ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.message, "RSA"));
	buffer_close(&pem);
	pem_of("PUBLIC KEY", x25519, sizeof(x25519), &pem);
	ck_assert(public_key_parse_pem(&public, buffer_bytes(&pem), &error) == ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.message, "X25519"));
	buffer_close(&pem);
	pem_of("PRIVATE KEY", shortened, sizeof(shortened), &pem);
	ck_assert(secret_key_parse_pem(&secret, buffer_bytes(&pem), &error) == ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "47 bytes"));
	buffer_close(&pem);
	pem_of("PUBLIC KEY", shortened, sizeof(shortened), &pem);
	ck_assert(public_key_parse_pem(&public, buffer_bytes(&pem), &error) == ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "Ed25519 public key of a wrong form or length (47 bytes"));
	ck_assert(secret_key_parse_pem(&secret, buffer_bytes(&pem), &error) == ERR_INVALID);
	buffer_close(&pem);
	pem_of("PRIVATE KEY", shortened, sizeof(shortened), &pem);
	ck_assert(public_key_parse_pem(&public, buffer_bytes(&pem), &error) == ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "wanted \"PUBLIC KEY\""));
	buffer_close(&pem);
	/* Line ends of another system are no damage. */
	ck_assert_int_eq(secret_key_parse_pem(&secret, BYTES_OF("-----BEGIN PRIVATE KEY-----\r\nMC4CAQAwBQYDK2VwBCIEILkbriasZS4w85xe2yBR6INGP5BU7sa21YArcM3sxUGC\r\n-----END PRIVATE KEY-----\r\n"), &error), 0);
	buffer_init(&pem, 1 << 20);
	for (size_t i = 0; i < 9000; i++)
		buffer_add_char(&pem, 'A');
	ck_assert(secret_key_parse_pem(&secret, buffer_bytes(&pem), &error) == ERR_TOO_LARGE);
	buffer_close(&pem);
}
END_TEST

/* PKCS#8 v2 gives its seed; one whose public key is another's is refused. */
START_TEST(test_pkcs8_version_2)
{
	uint8_t der[83] = {0x30, 0x51, 0x02, 0x01, 0x01, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};
	struct json *item = json_at(vectors_parse(vectors_load("keys.json")), 0);
	struct secret_key want = key_from_hex(item), got;
	struct buffer pem;
	struct error error;

	memcpy(der + 16, want.seed_and_public, 32);
	memcpy(der + 48, "\x81\x21\x00", 3);
	memcpy(der + 51, want.public.bytes, 32);
	pem_of("PRIVATE KEY", der, sizeof(der), &pem);
	ck_assert_msg(secret_key_parse_pem(&got, buffer_bytes(&pem), &error) == 0, "%s", error.message);
	ck_assert_mem_eq(&got, &want, sizeof(got));
	buffer_close(&pem);
	der[60] ^= 1;
	pem_of("PRIVATE KEY", der, sizeof(der), &pem);
	ck_assert(secret_key_parse_pem(&got, buffer_bytes(&pem), &error) == ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "does not belong"));
	buffer_close(&pem);
	der[48] ^= 1;
	pem_of("PRIVATE KEY", der, sizeof(der), &pem);
	ck_assert(secret_key_parse_pem(&got, buffer_bytes(&pem), &error) == ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "unknown part behind the key"));
	buffer_close(&pem);
	/* Attributes alone, which say nothing of the key. */
	der[1] = 50;
	pem_of("PRIVATE KEY", der, 52, &pem);
	ck_assert_msg(secret_key_parse_pem(&got, buffer_bytes(&pem), &error) == 0, "%s", error.message);
	ck_assert_mem_eq(&got, &want, sizeof(got));
	buffer_close(&pem);
	der[1] = 51;
	pem_of("PRIVATE KEY", der, 52, &pem);
	ck_assert(secret_key_parse_pem(&got, buffer_bytes(&pem), &error) != 0); /* its length is another */
	buffer_close(&pem);
}
END_TEST

/* Verifier keys that are out of form are refused, names at their limit are not. */
START_TEST(test_refused_note_keys)
{
	static const char *const texts[] = {
		"",
		"x",
		"x+5579d27b",
		"x+5579D27B+Abbwiq7t0I0a30GgHN8dgOi/S4dyHCB1rgIakRSPdMYU",
		"x+5579d27c+Abbwiq7t0I0a30GgHN8dgOi/S4dyHCB1rgIakRSPdMYU",
		"y+5579d27b+Abbwiq7t0I0a30GgHN8dgOi/S4dyHCB1rgIakRSPdMYU",
		"x y+5579d27b+Abbwiq7t0I0a30GgHN8dgOi/S4dyHCB1rgIakRSPdMYU",
		"x+5579d27b+Abbwiq7t0I0a30GgHN8dgOi_S4dyHCB1rgIakRSPdMYU",
		"x+5579d27b+Abbwiq7t0I0a30GgHN8dgOi/S4dyHCB1rgIakRSPdA==",
		"x+5579d27b+Bbbwiq7t0I0a30GgHN8dgOi/S4dyHCB1rgIakRSPdMYU",
		"+5579d27b+Abbwiq7t0I0a30GgHN8dgOi/S4dyHCB1rgIakRSPdMYU",
	};
	static const char *const bad_names[] = {"", "a b", "a+b", "a\nb", "a\xc2\xa0" "b", "a\xe3\x80\x80", "a\xe2\x80\x89" "b", "\xff", "a\x7f"};
	char name[NOTE_NAME_MAX + 2];
	struct note_key key;
	struct public_key public;
	struct error error;

	for (size_t i = 0; i < COUNT_OF(texts); i++)
		ck_assert_msg(note_key_parse(&key, texts[i], &error) != 0, "case %zu was accepted", i);
	ck_assert(note_key_parse(&key, "x+5579d27b+Abbwiq7t0I0a30GgHN8dgOi/S4dyHCB1rgIakRSPdMYU\n", &error) == 0);
	public_key_init(&public, (const uint8_t[KEY_PUBLIC_LEN]){0});
	for (size_t i = 0; i < COUNT_OF(bad_names); i++)
		ck_assert_msg(note_key_init(&key, bad_names[i], NOTE_KEY_LOG, &public, &error) != 0, "name %zu was accepted", i);
	memset(name, 'n', sizeof(name));
	name[NOTE_NAME_MAX + 1] = '\0';
	ck_assert(note_key_init(&key, name, NOTE_KEY_LOG, &public, &error) != 0);
	name[NOTE_NAME_MAX] = '\0';
	ck_assert(note_key_init(&key, name, NOTE_KEY_LOG, &public, &error) == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("key");
	TCase *tcase = tcase_create("key");

	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, test_own_signatures);
	tcase_add_test(tcase, test_wycheproof);
	tcase_add_test(tcase, test_formats);
	tcase_add_test(tcase, test_wipe);
	tcase_add_test(tcase, test_refused_pem);
	tcase_add_test(tcase, test_pkcs8_version_2);
	tcase_add_test(tcase, test_refused_note_keys);
	suite_add_tcase(suite, tcase);
	return vectors_run(suite);
}
