/* Ed25519 keys and the texts they travel in (provenance.md 3). Pure: files are read and written by their owners.
 * libsodium; sodium_init() must have been called. */
#pragma once

#include "workflow/base/arena.h"
#include "workflow/base/digest.h"
#include "workflow/base/error.h"

enum { KEY_SEED_LEN = 32, KEY_PUBLIC_LEN = 32, KEY_SIGNATURE_LEN = 64, KEY_ID_LEN = 64 };

struct public_key {
	uint8_t bytes[KEY_PUBLIC_LEN];
	char id[KEY_ID_LEN + 1]; /* lower-case hex SHA-256 of the SPKI DER */
};

/* The owner keeps it in locked memory (sodium_malloc) and calls secret_key_wipe(). */
struct secret_key {
	uint8_t seed_and_public[64];
	struct public_key public;
};

void public_key_init(struct public_key *key, const uint8_t bytes[KEY_PUBLIC_LEN]); /* computes the id */
void secret_key_init(struct secret_key *key, const uint8_t seed[KEY_SEED_LEN]);
void secret_key_wipe(struct secret_key *key);

/* PKCS#8 PEM ("PRIVATE KEY", v1; v2 is accepted by taking the seed) and SPKI PEM ("PUBLIC KEY"). Another key type, a
 * wrong length or anything around it is refused with a message that says what was found. */
int secret_key_parse_pem(struct secret_key *key, struct bytes pem, struct error *error);
void secret_key_print_pem(const struct secret_key *key, struct buffer *out);
int public_key_parse_pem(struct public_key *key, struct bytes pem, struct error *error);
void public_key_print_pem(const struct public_key *key, struct buffer *out);

void key_sign(const struct secret_key *key, struct bytes message, uint8_t signature[KEY_SIGNATURE_LEN]);
bool key_verify(const struct public_key *key, struct bytes message, struct bytes signature); /* false unless 64 bytes and good */

/* Signed-note verifier keys: "<name>+<8 hex>+<base64(type || public)>". */
enum note_key_type { NOTE_KEY_LOG = 0x01, NOTE_KEY_COSIGNER = 0x04 };
enum { NOTE_NAME_MAX = 255 };
struct note_key {
	char name[NOTE_NAME_MAX + 1];
	uint8_t id[4];
	enum note_key_type type;
	struct public_key public;
};
/* 1 to NOTE_NAME_MAX bytes of UTF-8 without white space, control characters and "+". */
bool note_name_valid(struct bytes name);
int note_key_init(struct note_key *key, const char *name, enum note_key_type type, const struct public_key *public, struct error *error);
int note_key_parse(struct note_key *key, const char *text, struct error *error);
void note_key_print(const struct note_key *key, struct buffer *out);
