/* Checkpoints: signed notes over origin, size and root (provenance.md 4.2), and c2sp tlog-proof files (4.4). Pure. */
#pragma once

#include "workflow/evidence/key.h"
#include "workflow/evidence/log_tree.h"

struct checkpoint {
	char origin[NOTE_NAME_MAX + 1];
	uint64_t size;
	struct digest root;
};

/* The three lines that are signed. */
void checkpoint_print_text(const struct checkpoint *checkpoint, struct buffer *out);
/* The whole note with one signature by the log key; the note's key name is the origin. */
void checkpoint_sign(const struct checkpoint *checkpoint, const struct secret_key *log_key, struct buffer *note);
/* Check the signature of `key` and give the contents. The error's message begins with a code: note-shape, note-…,
 * checkpoint-shape, checkpoint-origin, checkpoint-unsigned (no signature by this key), checkpoint-signature,
 * checkpoint-root. ERR_INVALID or ERR_TOO_LARGE: it cannot be read; ERR_CORRUPT: it can, and a check failed. */
int checkpoint_open(struct bytes note, const struct note_key *key, struct checkpoint *checkpoint, struct error *error);
/* Without a key: the shape only. */
int checkpoint_parse(struct bytes note, struct checkpoint *checkpoint, struct error *error);
/* A witness's cosignature (type 0x04) on the note: 0 and its time in seconds; ERR_NOT_FOUND when this witness has not signed.
 * Codes: cosignature-shape, cosignature-time, cosignature-invalid. Whether the time is believable is the caller's to say. */
int checkpoint_open_cosignature(struct bytes note, const struct note_key *witness, uint64_t *time_s, struct error *error);

/* "c2sp.org/tlog-proof@v1": index, hashes, blank line, checkpoint. */
void proof_file_print(uint64_t index, const struct log_proof *proof, struct bytes note, struct buffer *out);
int proof_file_parse(struct bytes text, uint64_t *index, struct log_proof *proof, struct bytes *note, struct error *error);

/* Consistency proof: one base64 hash a line, empty for an empty proof. proof-shape. */
void consistency_file_print(const struct log_proof *proof, struct buffer *out);
int consistency_file_parse(struct bytes text, struct log_proof *proof, struct error *error);
