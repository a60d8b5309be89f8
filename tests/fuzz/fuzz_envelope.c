/* Fuzz entry: envelopes, and whole verification of what parses. Built by hand: clang -fsanitize=fuzzer,address,undefined
 * with workflow/base and workflow/evidence. What holds: no stop, no leak, and what was read prints and reads the same. */
#include <sodium.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/evidence/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t seed[KEY_SEED_LEN] = {1};

/* Printed and read again it is the same envelope. */
static void check_round_trip(const struct envelope *envelope)
{
	struct envelope_signature good[ENVELOPE_SIGNATURES_MAX];
	struct envelope again;
	struct buffer text;
	struct arena arena;
	size_t count = 0;

	for (size_t i = 0; i < envelope->signature_count; i++)
		if (envelope->signature_usable[i])
			good[count++] = envelope->signatures[i];
	if (count == 0)
		return;
	arena_init(&arena);
	buffer_init(&text, 2 * ENVELOPE_LEN_MAX);
	envelope_print(envelope->payload_type, envelope->payload, good, count, &text);
	if (!text.overflow && text.len <= ENVELOPE_LEN_MAX) {
		CHECK(envelope_parse(&arena, buffer_bytes(&text), &again, NULL) == 0);
		CHECK(bytes_equal(again.payload, envelope->payload));
		CHECK(strcmp(again.payload_type, envelope->payload_type) == 0);
		CHECK(again.signature_count == count);
	}
	buffer_close(&text);
	arena_close(&arena);
}

/* Behind a good signature the payload can be anything. */
static void verify_as_payload(const struct secret_key *key, struct bytes payload)
{
	struct envelope_signature signature;
	struct verify_report report;
	struct digest pae;
	struct buffer text;

	buffer_init(&text, 2 * ENVELOPE_LEN_MAX);
	envelope_sign(key, ENVELOPE_TYPE_STATEMENT, payload, &signature, &pae);
	envelope_print(ENVELOPE_TYPE_STATEMENT, payload, &signature, 1, &text);
	verify_report_init(&report);
	verify_envelope(&(struct verify_input){.envelope = buffer_bytes(&text),
					       .keys = &key->public,
					       .key_count = 1,
					       .fact = payload,
					       .entry = payload,
					       .keyring = payload,
					       .document = payload,
					       .schema = payload},
			&report);
	verify_report_exit(&report);
	verify_report_close(&report);
	buffer_close(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct secret_key key;
	struct envelope envelope;
	struct verify_report report;
	struct arena arena;
	struct bytes bytes = {data, size};

	if (key.public.id[0] == '\0') {
		CHECK(sodium_init() >= 0);
		secret_key_init(&key, seed);
	}
	arena_init(&arena);
	if (envelope_parse(&arena, bytes, &envelope, NULL) == 0) {
		CHECK(envelope_count_valid(&envelope, &key.public, 1, NULL) <= 1);
		check_round_trip(&envelope);
	}
	arena_close(&arena);
	verify_report_init(&report);
	verify_envelope(&(struct verify_input){.envelope = bytes, .keys = &key.public, .key_count = 1}, &report);
	CHECK(report.count > 0);
	verify_report_close(&report);
	verify_as_payload(&key, bytes);
	return 0;
}
