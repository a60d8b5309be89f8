/* Ed25519 keys: making, PEM, signed-note verifier keys, signing. Pure.
 * Only fixed DER shapes exist for Ed25519 (RFC 8410), so there is no general ASN.1 reader here: what does not begin
 * like one of them is named as well as it can be and refused. */
#include "workflow/evidence/key.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/json.h"

enum {
	SPKI_LEN = 44,
	SPKI_PREFIX_LEN = 12,
	PKCS8_LEN = 48,
	PKCS8_PREFIX_LEN = 16,
	PEM_DER_MAX = 4096, /* larger than any key that deserves a name in a message */
	PEM_TEXT_MAX = 8192,
	NOTE_KEY_BLOB_LEN = 1 + KEY_PUBLIC_LEN,
};

static const uint8_t spki_prefix[SPKI_PREFIX_LEN] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
static const uint8_t pkcs8_prefix[PKCS8_PREFIX_LEN] = {0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06,
						       0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};

void public_key_init(struct public_key *key, const uint8_t bytes[KEY_PUBLIC_LEN])
{
	uint8_t der[SPKI_LEN];
	struct digest digest;

	memcpy(key->bytes, bytes, KEY_PUBLIC_LEN);
	memcpy(der, spki_prefix, SPKI_PREFIX_LEN);
	memcpy(der + SPKI_PREFIX_LEN, bytes, KEY_PUBLIC_LEN);
	digest = digest_of((struct bytes){der, sizeof(der)});
	digest_hex(&digest, key->id);
}

void secret_key_init(struct secret_key *key, const uint8_t seed[KEY_SEED_LEN])
{
	uint8_t public_bytes[KEY_PUBLIC_LEN];

	CHECK(crypto_sign_seed_keypair(public_bytes, key->seed_and_public, seed) == 0);
	public_key_init(&key->public, public_bytes);
}

void secret_key_wipe(struct secret_key *key)
{
	sodium_memzero(key, sizeof(*key));
}

/* "-----BEGIN LABEL-----", base64 lines, "-----END LABEL-----", and nothing else but line ends. */
static int decode_pem(struct bytes pem, const char *label, uint8_t *der, size_t *der_len, struct error *error)
{
	static const char begin[] = "-----BEGIN ", dashes[] = "-----";
	const char *text = (const char *)pem.data, *line_end, *body, *body_end;
	char footer[96];
	size_t label_len, footer_len, len = pem.len;

	if (len > PEM_TEXT_MAX)
		return error_set(error, ERR_TOO_LARGE, "key file of %zu bytes, at most %d are read", len, PEM_TEXT_MAX);
	if (len < sizeof(begin) - 1 || memcmp(text, begin, sizeof(begin) - 1) != 0)
		return error_set(error, ERR_INVALID, "not a PEM key: does not begin with \"-----BEGIN %s-----\"", label);
	text += sizeof(begin) - 1;
	len -= sizeof(begin) - 1;
	line_end = memchr(text, '\n', len);
	label_len = line_end ? (size_t)(line_end - text) : len;
	if (label_len > 0 && text[label_len - 1] == '\r')
		label_len--;
	if (!line_end || label_len < 5 || memcmp(text + label_len - 5, dashes, 5) != 0)
		return error_set(error, ERR_INVALID, "not a PEM key: the first line is incomplete");
	label_len -= 5;
	if (label_len != strlen(label) || memcmp(text, label, label_len) != 0) {
		int shown = label_len > 40 ? 40 : (int)label_len;

		for (int i = 0; i < shown; i++)
			if (text[i] < 0x20 || text[i] > 0x7e)
				shown = i;
		return error_set(error, ERR_INVALID, "the PEM label is \"%.*s\", wanted \"%s\"", shown, text, label);
	}
	body = line_end + 1;
	len = (size_t)((const char *)pem.data + pem.len - body);
	footer_len = (size_t)snprintf(footer, sizeof(footer), "-----END %s-----", label);
	while (len > 0 && (body[len - 1] == '\n' || body[len - 1] == '\r'))
		len--;
	/* In front of it stands a line end, which for an empty body is the first line's. */
	if (len < footer_len || memcmp(body + len - footer_len, footer, footer_len) != 0 || body[(ptrdiff_t)(len - footer_len) - 1] != '\n')
		return error_set(error, ERR_INVALID, "not a PEM key: something other than \"%s\" at the end", footer);
	body_end = body + len - footer_len;
	if (sodium_base642bin(der, PEM_DER_MAX, body, (size_t)(body_end - body), "\r\n", der_len, NULL, sodium_base64_VARIANT_ORIGINAL) != 0)
		return error_set(error, ERR_INVALID, "the PEM key's base64 is damaged");
	return 0;
}

/* What kind of key an AlgorithmIdentifier at `der` announces, for messages. */
static const char *name_algorithm(const uint8_t *der, size_t len)
{
	static const struct {
		uint8_t oid[12];
		uint8_t len;
		const char *name;
	} known[] = {
		{{0x06, 0x03, 0x2b, 0x65, 0x70}, 5, "Ed25519"},
		{{0x06, 0x03, 0x2b, 0x65, 0x71}, 5, "Ed448"},
		{{0x06, 0x03, 0x2b, 0x65, 0x6e}, 5, "X25519"},
		{{0x06, 0x03, 0x2b, 0x65, 0x6f}, 5, "X448"},
		{{0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01}, 11, "RSA"},
		{{0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01}, 9, "elliptic curve (ECDSA)"},
	};

	/* The identifier lies within the first bytes of both forms; its place depends on length octets. */
	for (size_t i = 0; i < COUNT_OF(known); i++)
		for (size_t at = 0; at < 24 && at + known[i].len <= len; at++)
			if (memcmp(der + at, known[i].oid, known[i].len) == 0)
				return known[i].name;
	return "unknown";
}

/* PKCS#8 v2 also carries the public key, which then has to be the seed's. */
static int check_version_2(const uint8_t *der, size_t len, const struct secret_key *key, struct error *error)
{
	static const uint8_t mark[] = {0x81, 0x21, 0x00};
	size_t tail = sizeof(mark) + KEY_PUBLIC_LEN;

	if (len < PKCS8_LEN + tail)
		return 0; /* Attributes alone. */
	if (memcmp(der + len - tail, mark, sizeof(mark)) != 0)
		return error_set(error, ERR_INVALID, "PKCS#8 v2 with an unknown part behind the key");
	if (memcmp(der + len - KEY_PUBLIC_LEN, key->public.bytes, KEY_PUBLIC_LEN) != 0)
		return error_set(error, ERR_INVALID, "PKCS#8 v2 whose public key does not belong to its secret key");
	return 0;
}

int secret_key_parse_pem(struct secret_key *key, struct bytes pem, struct error *error)
{
	uint8_t der[PEM_DER_MAX], prefix[PKCS8_PREFIX_LEN];
	size_t len = 0;
	int code = decode_pem(pem, "PRIVATE KEY", der, &len, error);

	if (code != 0)
		goto done;
	memcpy(prefix, pkcs8_prefix, sizeof(prefix));
	if (len >= PKCS8_LEN && der[4] == 1) {
		/* Version 2 differs in the outer length and the version alone. */
		prefix[1] = der[1];
		prefix[4] = 1;
	}
	if (len < PKCS8_LEN || memcmp(der, prefix, sizeof(prefix)) != 0 || der[1] != len - 2 || (der[4] == 0 && len != PKCS8_LEN)) {
		const char *name = name_algorithm(der, len);

		code = strcmp(name, "Ed25519") == 0
			       ? error_set(error, ERR_INVALID, "Ed25519 secret key of a wrong form or length (%zu bytes of DER, wanted %d)", len, PKCS8_LEN)
			       : error_set(error, ERR_UNSUPPORTED, "not an Ed25519 secret key: its algorithm is %s", name);
		goto done;
	}
	secret_key_init(key, der + PKCS8_PREFIX_LEN);
	if (der[4] == 1)
		code = check_version_2(der, len, key, error);
	if (code != 0)
		secret_key_wipe(key);
done:
	sodium_memzero(der, sizeof(der));
	return code;
}

static void print_pem(const char *label, const uint8_t *der, size_t len, struct buffer *out)
{
	char text[sodium_base64_ENCODED_LEN(PKCS8_LEN, sodium_base64_VARIANT_ORIGINAL)];

	CHECK(len <= PKCS8_LEN);
	sodium_bin2base64(text, sizeof(text), der, len, sodium_base64_VARIANT_ORIGINAL);
	buffer_printf(out, "-----BEGIN %s-----\n", label);
	buffer_add_text(out, text); /* At most 64 characters: one line. */
	buffer_printf(out, "\n-----END %s-----\n", label);
	sodium_memzero(text, sizeof(text));
}

void secret_key_print_pem(const struct secret_key *key, struct buffer *out)
{
	uint8_t der[PKCS8_LEN];

	memcpy(der, pkcs8_prefix, PKCS8_PREFIX_LEN);
	memcpy(der + PKCS8_PREFIX_LEN, key->seed_and_public, KEY_SEED_LEN);
	print_pem("PRIVATE KEY", der, sizeof(der), out);
	sodium_memzero(der, sizeof(der));
}

int public_key_parse_pem(struct public_key *key, struct bytes pem, struct error *error)
{
	uint8_t der[PEM_DER_MAX];
	size_t len = 0;
	const char *name;
	int code = decode_pem(pem, "PUBLIC KEY", der, &len, error);

	if (code != 0)
		return code;
	if (len == SPKI_LEN && memcmp(der, spki_prefix, SPKI_PREFIX_LEN) == 0) {
		public_key_init(key, der + SPKI_PREFIX_LEN);
		return 0;
	}
	name = name_algorithm(der, len);
	if (strcmp(name, "Ed25519") == 0)
		return error_set(error, ERR_INVALID, "Ed25519 public key of a wrong form or length (%zu bytes of DER, wanted %d)", len, SPKI_LEN);
	return error_set(error, ERR_UNSUPPORTED, "not an Ed25519 public key: its algorithm is %s", name);
}

void public_key_print_pem(const struct public_key *key, struct buffer *out)
{
	uint8_t der[SPKI_LEN];

	memcpy(der, spki_prefix, SPKI_PREFIX_LEN);
	memcpy(der + SPKI_PREFIX_LEN, key->bytes, KEY_PUBLIC_LEN);
	print_pem("PUBLIC KEY", der, sizeof(der), out);
}

void key_sign(const struct secret_key *key, struct bytes message, uint8_t signature[KEY_SIGNATURE_LEN])
{
	CHECK(crypto_sign_detached(signature, NULL, message.data, message.len, key->seed_and_public) == 0);
}

bool key_verify(const struct public_key *key, struct bytes message, struct bytes signature)
{
	/* libsodium reads 64 bytes whatever was handed over. */
	if (signature.len != KEY_SIGNATURE_LEN)
		return false;
	return crypto_sign_verify_detached(signature.data, message.data, message.len, key->bytes) == 0;
}

bool note_name_valid(struct bytes name)
{
	/* White space of Unicode, as two or three bytes of UTF-8: U+0085, U+00A0, U+1680, U+2000 to U+200A, U+2028, U+2029,
	 * U+202F, U+205F, U+3000. */
	static const char *const spaces[] = {"\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf",
					     "\xe2\x81\x9f", "\xe3\x80\x80"};

	if (name.len == 0 || name.len > NOTE_NAME_MAX || !utf8_valid(name, NULL))
		return false;
	for (size_t i = 0; i < name.len; i++) {
		const uint8_t *at = name.data + i;

		if (*at <= 0x20 || *at == '+' || *at == 0x7f)
			return false;
		if (i + 2 < name.len && at[0] == 0xe2 && at[1] == 0x80 && at[2] >= 0x80 && at[2] <= 0x8a)
			return false;
		for (size_t j = 0; j < COUNT_OF(spaces); j++) {
			size_t len = strlen(spaces[j]);

			if (i + len <= name.len && memcmp(at, spaces[j], len) == 0)
				return false;
		}
	}
	return true;
}

int note_key_init(struct note_key *key, const char *name, enum note_key_type type, const struct public_key *public, struct error *error)
{
	struct bytes name_bytes = bytes_text(name);
	struct digest_stream stream;
	struct digest digest;
	uint8_t type_byte = (uint8_t)type;

	if (!note_name_valid(name_bytes))
		return error_set(error, ERR_INVALID, "a log or witness name has 1 to %d bytes of UTF-8 without white space and \"+\"", NOTE_NAME_MAX);
	memset(key, 0, sizeof(*key));
	memcpy(key->name, name_bytes.data, name_bytes.len);
	key->type = type;
	key->public = *public;
	digest_stream_init(&stream);
	digest_stream_add(&stream, name_bytes);
	digest_stream_add(&stream, BYTES_OF("\n"));
	digest_stream_add(&stream, (struct bytes){&type_byte, 1});
	digest_stream_add(&stream, (struct bytes){public->bytes, KEY_PUBLIC_LEN});
	digest = digest_stream_finish(&stream);
	memcpy(key->id, digest.bytes, sizeof(key->id));
	return 0;
}

static void print_id(const uint8_t id[4], char hex[9])
{
	snprintf(hex, 9, "%02x%02x%02x%02x", id[0], id[1], id[2], id[3]);
}

int note_key_parse(struct note_key *key, const char *text, struct error *error)
{
	const char *first = strchr(text, '+'), *second = first ? strchr(first + 1, '+') : NULL;
	uint8_t blob[NOTE_KEY_BLOB_LEN + 1];
	char name[NOTE_NAME_MAX + 1], id[9];
	struct public_key public;
	size_t blob_len = 0, base64_len;
	int code;

	if (!second || second - first != 9 || first - text > NOTE_NAME_MAX)
		return error_set(error, ERR_INVALID, "not a verifier key: wanted <name>+<8 hex digits>+<base64>");
	base64_len = strlen(second + 1);
	while (base64_len > 0 && (second[base64_len] == '\n' || second[base64_len] == '\r'))
		base64_len--; /* Files end in a newline. */
	if (sodium_base642bin(blob, sizeof(blob), second + 1, base64_len, NULL, &blob_len, NULL, sodium_base64_VARIANT_ORIGINAL) != 0 ||
	    blob_len != NOTE_KEY_BLOB_LEN)
		return error_set(error, ERR_INVALID, "not a verifier key: its last part is not base64 of %d bytes", NOTE_KEY_BLOB_LEN);
	if (blob[0] != NOTE_KEY_LOG && blob[0] != NOTE_KEY_COSIGNER)
		return error_set(error, ERR_UNSUPPORTED, "verifier key of type 0x%02x: only 0x01 (log) and 0x04 (cosigner) are known", blob[0]);
	memcpy(name, text, (size_t)(first - text));
	name[first - text] = '\0';
	public_key_init(&public, blob + 1);
	code = note_key_init(key, name, (enum note_key_type)blob[0], &public, error);
	if (code != 0)
		return code;
	print_id(key->id, id);
	if (memcmp(id, first + 1, 8) != 0)
		return error_set(error, ERR_INVALID, "verifier key whose key id does not match: it should read %s", id);
	return 0;
}

void note_key_print(const struct note_key *key, struct buffer *out)
{
	uint8_t blob[NOTE_KEY_BLOB_LEN];
	char id[9];

	print_id(key->id, id);
	blob[0] = (uint8_t)key->type;
	memcpy(blob + 1, key->public.bytes, KEY_PUBLIC_LEN);
	buffer_printf(out, "%s+%s+", key->name, id);
	base64_add(out, (struct bytes){blob, sizeof(blob)});
}
