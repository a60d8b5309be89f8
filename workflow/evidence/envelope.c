/* DSSE envelopes. Pure. Start at envelope_parse(): it decodes the payload once, and everybody after it looks at those bytes. */
#include "workflow/evidence/envelope.h"

#include <stdio.h>
#include <string.h>

#include "workflow/base/check.h"

enum { PAE_HEAD_MAX = 32 }; /* "DSSEv1 " and one length of at most 20 digits, with its space */

/* The two heads between which type and payload stand; both the signer's buffer and the digest are made from them. */
static void print_heads(const char *payload_type, struct bytes payload, char before_type[PAE_HEAD_MAX], char before_payload[PAE_HEAD_MAX])
{
	snprintf(before_type, PAE_HEAD_MAX, "DSSEv1 %zu ", strlen(payload_type)); /* bytes, not characters */
	snprintf(before_payload, PAE_HEAD_MAX, " %zu ", payload.len);
}

void envelope_pae(const char *payload_type, struct bytes payload, struct buffer *out)
{
	char before_type[PAE_HEAD_MAX], before_payload[PAE_HEAD_MAX];

	print_heads(payload_type, payload, before_type, before_payload);
	buffer_add_text(out, before_type);
	buffer_add_text(out, payload_type);
	buffer_add_text(out, before_payload);
	buffer_add_bytes(out, payload);
}

struct digest envelope_pae_digest(const char *payload_type, struct bytes payload)
{
	char before_type[PAE_HEAD_MAX], before_payload[PAE_HEAD_MAX];
	struct digest_stream stream;

	print_heads(payload_type, payload, before_type, before_payload);
	digest_stream_init(&stream);
	digest_stream_add(&stream, bytes_text(before_type));
	digest_stream_add(&stream, bytes_text(payload_type));
	digest_stream_add(&stream, bytes_text(before_payload));
	digest_stream_add(&stream, payload);
	return digest_stream_finish(&stream);
}

/* The signed bytes. Whoever calls has bounded type and payload, so the buffer never overflows. */
static void make_pae(const char *payload_type, struct bytes payload, struct buffer *pae)
{
	buffer_init(pae, strlen(payload_type) + payload.len + 2 * (size_t)PAE_HEAD_MAX + 1);
	envelope_pae(payload_type, payload, pae);
	CHECK(!pae->overflow);
}

void envelope_sign(const struct secret_key *key, const char *payload_type, struct bytes payload,
		   struct envelope_signature *signature, struct digest *pae)
{
	struct buffer message;

	make_pae(payload_type, payload, &message);
	key_sign(key, buffer_bytes(&message), signature->signature);
	memcpy(signature->key_id, key->public.id, sizeof(signature->key_id));
	*pae = digest_of(buffer_bytes(&message));
	buffer_close(&message);
}

void envelope_print(const char *payload_type, struct bytes payload, const struct envelope_signature *signatures, size_t count,
		    struct buffer *out)
{
	buffer_add_text(out, "{\"payload\":\"");
	base64_add(out, payload);
	buffer_add_text(out, "\",\"payloadType\":");
	json_print_string(payload_type, strlen(payload_type), out);
	buffer_add_text(out, ",\"signatures\":[");
	for (size_t i = 0; i < count; i++) {
		buffer_add_text(out, i == 0 ? "{" : ",{");
		if (signatures[i].key_id[0] != '\0') {
			buffer_add_text(out, "\"keyid\":");
			json_print_string(signatures[i].key_id, strlen(signatures[i].key_id), out); /* may be a stranger's hint */
			buffer_add_char(out, ',');
		}
		buffer_add_text(out, "\"sig\":\"");
		base64_add(out, (struct bytes){signatures[i].signature, KEY_SIGNATURE_LEN});
		buffer_add_text(out, "\"}");
	}
	buffer_add_text(out, "]}");
}

static int parse_signature(const struct json *item, size_t index, struct envelope_signature *signature, bool *usable, struct error *error)
{
	const struct json *sig = json_get(item, "sig");
	const char *key_id = json_get_text(item, "keyid");
	struct buffer decoded;

	if (!json_is(sig, JSON_STRING))
		return error_set(error, ERR_INVALID, "dsse-shape: signatures[%zu].sig is no text", index);
	if (key_id && strlen(key_id) == KEY_ID_LEN) /* Another length is no hint for any key of ours. */
		memcpy(signature->key_id, key_id, KEY_ID_LEN);
	/* Who can add a signature must not be able to spoil the others: what cannot be one is passed over. */
	buffer_init(&decoded, ENVELOPE_LEN_MAX);
	*usable = base64_decode((struct bytes){(const uint8_t *)sig->string.text, sig->string.len}, &decoded) && !decoded.overflow &&
		  decoded.len == KEY_SIGNATURE_LEN;
	if (*usable)
		memcpy(signature->signature, decoded.data, KEY_SIGNATURE_LEN);
	buffer_close(&decoded);
	return 0;
}

int envelope_parse(struct arena *arena, struct bytes text, struct envelope *envelope, struct error *error)
{
	const struct json *json, *payload, *signatures;
	struct buffer decoded;
	bool good;

	memset(envelope, 0, sizeof(*envelope));
	if (text.len > ENVELOPE_LEN_MAX)
		return error_set(error, ERR_TOO_LARGE, "dsse-shape: envelope of %zu bytes, at most %d are read", text.len, ENVELOPE_LEN_MAX);
	/* Unknown members are ignored, so their numbers are nobody's business; a duplicate name could show two payloads. */
	json = json_parse(arena, text, JSON_ROUND_INTEGERS, NULL, error);
	if (!json)
		return error ? (int)error->code : ERR_INVALID;
	if (!json_is(json, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "dsse-shape: the envelope is no object");
	envelope->payload_type = json_get_text(json, "payloadType");
	if (!envelope->payload_type)
		return error_set(error, ERR_INVALID, "dsse-shape: payloadType is missing");
	payload = json_get(json, "payload");
	if (!json_is(payload, JSON_STRING))
		return error_set(error, ERR_INVALID, "dsse-shape: payload is missing");
	signatures = json_get(json, "signatures");
	if (!json_is(signatures, JSON_ARRAY) || json_count(signatures) == 0)
		return error_set(error, ERR_INVALID, "dsse-shape: signatures are missing");
	if (json_count(signatures) > ENVELOPE_SIGNATURES_MAX)
		return error_set(error, ERR_TOO_LARGE, "dsse-shape: %zu signatures, at most %d are read", json_count(signatures),
				 ENVELOPE_SIGNATURES_MAX);
	buffer_init(&decoded, ENVELOPE_LEN_MAX);
	good = base64_decode((struct bytes){(const uint8_t *)payload->string.text, payload->string.len}, &decoded) && !decoded.overflow;
	if (good)
		envelope->payload = arena_bytes(arena, buffer_bytes(&decoded));
	buffer_close(&decoded);
	if (!good)
		return error_set(error, ERR_INVALID, "dsse-base64: the payload is not base64");
	envelope->signature_count = json_count(signatures);
	envelope->signatures = arena_zero(arena, envelope->signature_count * sizeof(*envelope->signatures));
	envelope->signature_usable = arena_zero(arena, envelope->signature_count * sizeof(*envelope->signature_usable));
	for (size_t i = 0; i < envelope->signature_count; i++) {
		int code = parse_signature(json_at(signatures, i), i, &envelope->signatures[i], &envelope->signature_usable[i], error);

		if (code != 0)
			return code;
	}
	return 0;
}

/* The hinted key first, then the others: the hint saves work and decides nothing. */
static size_t find_signer(const struct envelope_signature *signature, struct bytes message, const struct public_key *keys, size_t key_count)
{
	struct bytes bytes = {signature->signature, KEY_SIGNATURE_LEN};

	for (size_t i = 0; i < key_count; i++)
		if (strcmp(keys[i].id, signature->key_id) == 0 && key_verify(&keys[i], message, bytes))
			return i;
	for (size_t i = 0; i < key_count; i++)
		if (strcmp(keys[i].id, signature->key_id) != 0 && key_verify(&keys[i], message, bytes))
			return i;
	return ENVELOPE_NO_SIGNER;
}

size_t envelope_find_signers(const struct envelope *envelope, const struct public_key *keys, size_t key_count, size_t *signers)
{
	struct buffer message;
	size_t count = 0;

	make_pae(envelope->payload_type, envelope->payload, &message);
	for (size_t i = 0; i < envelope->signature_count; i++) {
		bool seen = false;

		signers[i] = ENVELOPE_NO_SIGNER;
		if (envelope->signature_usable[i])
			signers[i] = find_signer(&envelope->signatures[i], buffer_bytes(&message), keys, key_count);
		if (signers[i] == ENVELOPE_NO_SIGNER)
			continue;
		/* Keys are counted, not signatures; and a key that was handed over twice is one key. */
		for (size_t j = 0; j < i && !seen; j++)
			seen = signers[j] != ENVELOPE_NO_SIGNER && memcmp(keys[signers[j]].bytes, keys[signers[i]].bytes, KEY_PUBLIC_LEN) == 0;
		count += !seen;
	}
	buffer_close(&message);
	return count;
}

size_t envelope_count_valid(const struct envelope *envelope, const struct public_key *keys, size_t key_count, bool *hint_wrong)
{
	size_t signers[ENVELOPE_SIGNATURES_MAX];
	size_t count;

	CHECK(envelope->signature_count <= ENVELOPE_SIGNATURES_MAX);
	count = envelope_find_signers(envelope, keys, key_count, signers);
	if (hint_wrong)
		*hint_wrong = false;
	for (size_t i = 0; hint_wrong && i < envelope->signature_count; i++)
		if (signers[i] != ENVELOPE_NO_SIGNER && envelope->signatures[i].key_id[0] != '\0' &&
		    strcmp(envelope->signatures[i].key_id, keys[signers[i]].id) != 0)
			*hint_wrong = true;
	return count;
}
