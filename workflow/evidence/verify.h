/* `reprise verify` and its relatives: one line per check, stable codes, never one green word for all (provenance.md 6).
 * Pure: all files were read by the caller. */
#pragma once

#include "workflow/base/json.h"
#include "workflow/evidence/checkpoint.h"
#include "workflow/evidence/envelope.h"
#include "workflow/evidence/statement.h"

enum verify_status { VERIFY_PASS, VERIFY_FAIL, VERIFY_UNVERIFIABLE, VERIFY_SKIPPED, VERIFY_NOTE };
enum verify_result { VERIFY_VALID, VERIFY_INVALID, VERIFY_MALFORMED, VERIFY_CANNOT };

struct verify_line {
	enum verify_status status;
	const char *check; /* "signature", "subject", … */
	const char *code; /* "signature-invalid", or NULL */
	char *detail; /* one sentence, or NULL; in the report's arena */
};

enum { VERIFY_LINES_MAX = 4096 };
struct verify_report {
	struct arena arena;
	struct verify_line *lines;
	size_t count, cap;
	size_t left_out; /* lines past VERIFY_LINES_MAX; the last line then carries the worst status of them */
	bool malformed;
};

void verify_report_init(struct verify_report *report);
void verify_report_close(struct verify_report *report);
void verify_add(struct verify_report *report, enum verify_status status, const char *check, const char *code, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
enum verify_result verify_report_result(const struct verify_report *report);
/* 0, 22, 23 (a failing check of group journal, checkpoint or consistency), 25, 26. */
int verify_report_exit(const struct verify_report *report);
struct json *verify_report_json(const struct verify_report *report, struct arena *arena);

/* Inputs of one envelope's verification; what is NULL or empty is skipped and said so. */
struct verify_input {
	struct bytes envelope;
	const struct public_key *keys; /* trusted fact keys */
	size_t key_count;
	struct bytes fact; /* the fact as JSON: subject-mismatch when it does not hash to the subject */
	struct bytes entry; /* the journal entry's bytes */
	struct bytes proof; /* tlog-proof file */
	const struct note_key *log_key; /* for the proof's checkpoint */
	struct bytes keyring; /* signed or bare key ring */
	const struct public_key *root_keys;
	size_t root_key_count;
	uint64_t keyring_version_min; /* the highest version seen before; 0: none. A lower one is a rollback. */
	struct bytes document, section, prompt, schema, request, response; /* kept artefacts */
};
void verify_envelope(const struct verify_input *input, struct verify_report *report);

/* One checkpoint, with the witnesses that are known and how many of them are needed. now_s: seconds since 1970, for
 * cosignatures from the future. Gives the contents when all went well, else false. checkpoint may be NULL. */
bool verify_checkpoint(struct bytes note, const struct note_key *log_key, const struct note_key *witnesses, size_t witness_count,
		       size_t quorum, uint64_t now_s, struct verify_report *report, struct checkpoint *checkpoint);
/* That the log of one checkpoint grew into that of another; proof: consistency_file_parse(). */
void verify_consistency(struct bytes old_note, struct bytes new_note, struct bytes proof, const struct note_key *log_key,
			struct verify_report *report);

/* A whole journal, entry by entry in order: call begin, add for each, end. Checks seq, log, kind, canonical form, the
 * leaves against the checkpoints (all kept ones at once), and the signed facts' digests. */
struct verify_journal {
	struct log_tree tree;
	const struct note_key *log_key;
	struct checkpoint *checkpoints; /* sorted by size; opened by begin */
	size_t checkpoint_count, next_checkpoint;
	char origin[NOTE_NAME_MAX + 1];
	uint64_t pruned, erased; /* entries; values, as content.erased says */
	struct verify_report *report;
	bool failed;
	uint64_t agreed_size; /* the largest checkpoint that agreed so far */
	uint64_t facts, fact_faults; /* fact.recorded entries, and those out of form */
	bool out_of_order, changed; /* told once: what follows from it would fill the report */
};
/* Always usable afterwards. Non-zero when a checkpoint could not be opened; the report then says which and why.
 * `notes` and `log_key` are borrowed until verify_journal_end(), which has to be called. */
int verify_journal_begin(struct verify_journal *journal, const struct note_key *log_key, const struct bytes *notes, size_t note_count,
			 struct verify_report *report);
void verify_journal_add(struct verify_journal *journal, struct bytes entry);
/* A pruned tile: only the root of its `count` leaves (a power of two, aligned) is known (semantics.md 9). */
void verify_journal_add_pruned(struct verify_journal *journal, uint64_t first, uint64_t count, const struct digest *root);
void verify_journal_end(struct verify_journal *journal);
