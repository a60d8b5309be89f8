/* DSSE v1.0.2 envelopes with one Ed25519 signature (provenance.md 2.1). Pure.
 * Sign bytes, verify bytes: nothing is ever canonicalised in order to check a signature. */
#pragma once

#include "workflow/base/json.h"
#include "workflow/evidence/key.h"

#define ENVELOPE_TYPE_STATEMENT "application/vnd.in-toto+json"
#define ENVELOPE_TYPE_KEYRING "application/vnd.reprise.keyring+json"
enum { ENVELOPE_LEN_MAX = 1 << 20, ENVELOPE_SIGNATURES_MAX = 64 };

/* "DSSEv1 <len> <type> <len> <payload>" */
void envelope_pae(const char *payload_type, struct bytes payload, struct buffer *out);
struct digest envelope_pae_digest(const char *payload_type, struct bytes payload);

struct envelope_signature {
	char key_id[KEY_ID_LEN + 1]; /* a hint: decides nothing */
	uint8_t signature[KEY_SIGNATURE_LEN];
};

/* Sign; also gives the PAE digest that the journal entry carries. */
void envelope_sign(const struct secret_key *key, const char *payload_type, struct bytes payload,
		   struct envelope_signature *signature, struct digest *pae);
/* {"payload":…,"payloadType":…,"signatures":[…]} in canonical form, one line, no newline. */
void envelope_print(const char *payload_type, struct bytes payload, const struct envelope_signature *signatures, size_t count, struct buffer *out);

struct envelope {
	const char *payload_type;
	struct bytes payload; /* decoded once: the bytes to verify are the bytes to parse */
	struct envelope_signature *signatures;
	size_t signature_count;
	bool *signature_usable; /* false: not 64 bytes, or not base64; counts as no signature */
};

/* dsse-shape, dsse-base64 or a json-… code at the start of the message; ERR_TOO_LARGE past the limits. */
int envelope_parse(struct arena *arena, struct bytes text, struct envelope *envelope, struct error *error);
/* How many different keys of these have a good signature. *hint_wrong (may be NULL): a good signature carried another key's id. */
size_t envelope_count_valid(const struct envelope *envelope, const struct public_key *keys, size_t key_count, bool *hint_wrong);
/* The same, signature by signature: signers[i] is the index of the key that made signature i, or ENVELOPE_NO_SIGNER.
 * `signers` has room for all signatures. Returns how many different keys signed. */
#define ENVELOPE_NO_SIGNER SIZE_MAX
size_t envelope_find_signers(const struct envelope *envelope, const struct public_key *keys, size_t key_count, size_t *signers);
