/* Fuzz entry: notes, proof files and journals. Built by hand: clang -fsanitize=fuzzer,address,undefined with
 * workflow/base and workflow/evidence. What holds: no stop, no leak, and what was read prints and reads the same. */
#include <sodium.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/evidence/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct note_key log_key, witness;

static void start(void)
{
	CHECK(sodium_init() >= 0);
	CHECK(note_key_parse(&log_key, "reprise.example/journal/7f3a+4841862b+AQKdg39Z+VCtMhdAmAhISRT7WuH8+8TR4+rR2R8LxUTT", NULL) == 0);
	CHECK(note_key_parse(&witness, "witness.example/w1+638ab6b8+BKdWt0Rb9Znai8GUnUg+TRDR3VKCaDoIvBVrrdnFwjmf", NULL) == 0);
}

static void try_checkpoint(struct bytes bytes)
{
	struct checkpoint checkpoint, again;
	struct buffer text;
	uint64_t time_s;

	checkpoint_open(bytes, &log_key, &checkpoint, NULL);
	checkpoint_open_cosignature(bytes, &witness, &time_s, NULL);
	if (checkpoint_parse(bytes, &checkpoint, NULL) != 0)
		return;
	buffer_init(&text, 4096);
	checkpoint_print_text(&checkpoint, &text);
	buffer_add_text(&text, "\n\xe2\x80\x94 x AAAAAAA=\n");
	CHECK(checkpoint_parse(buffer_bytes(&text), &again, NULL) == 0);
	CHECK(strcmp(again.origin, checkpoint.origin) == 0);
	CHECK(again.size == checkpoint.size);
	CHECK(digest_equal(&again.root, &checkpoint.root));
	buffer_close(&text);
}

static void try_proof(struct bytes bytes)
{
	struct log_proof proof, again_proof;
	struct bytes note, again_note;
	struct buffer text;
	uint64_t index, again;
	struct digest leaf = log_tree_leaf(bytes);

	if (proof_file_parse(bytes, &index, &proof, &note, NULL) == 0) {
		buffer_init(&text, 4 << 20);
		proof_file_print(index, &proof, note, &text);
		if (text.len <= 1 << 20) {
			CHECK(proof_file_parse(buffer_bytes(&text), &again, &again_proof, &again_note, NULL) == 0);
			CHECK(again == index);
			CHECK(again_proof.count == proof.count);
			CHECK(bytes_equal(again_note, note));
		}
		buffer_close(&text);
		log_tree_verify_inclusion(index, index + proof.count, &leaf, &proof, &leaf, NULL);
		log_tree_verify_consistency(index, index + proof.count, &leaf, &leaf, &proof, NULL);
	}
	consistency_file_parse(bytes, &proof, NULL);
}

/* The input's lines as entries, the whole as a checkpoint. */
static void try_journal(struct bytes bytes)
{
	struct verify_journal journal;
	struct verify_report report;
	struct bytes rest = bytes;

	verify_report_init(&report);
	verify_journal_begin(&journal, &log_key, &bytes, 1, &report);
	while (rest.len > 0) {
		const uint8_t *end = memchr(rest.data, '\n', rest.len);
		size_t len = end ? (size_t)(end - rest.data) : rest.len;

		if (len == 41) {
			struct digest root;
			uint64_t count = 0;

			memcpy(root.bytes, rest.data, 32);
			for (size_t i = 32; i < 40; i++)
				count = count << 8 | rest.data[i];
			verify_journal_add_pruned(&journal, rest.data[40], rest.data[40] & 1 ? (uint64_t)1 << (count & 63) : count, &root);
		} else {
			verify_journal_add(&journal, (struct bytes){rest.data, len});
		}
		rest.data += len + (end ? 1 : 0);
		rest.len -= len + (end ? 1 : 0);
	}
	verify_journal_end(&journal);
	verify_report_exit(&report);
	verify_report_close(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes bytes = {data, size};
	struct note_key key;
	struct secret_key secret;
	struct public_key public;
	struct buffer text;

	if (log_key.name[0] == '\0')
		start();
	buffer_init(&text, 4 << 20);
	buffer_add(&text, data, size);
	note_key_parse(&key, buffer_text(&text), NULL);
	buffer_close(&text);
	if (secret_key_parse_pem(&secret, bytes, NULL) == 0)
		secret_key_wipe(&secret);
	public_key_parse_pem(&public, bytes, NULL);
	try_checkpoint(bytes);
	try_proof(bytes);
	try_journal(bytes);
	return 0;
}
