/* The keys that a verification believes: those the user gave, else those the daemon names, and then it is said so. */
#pragma once

#include "cli/command.h"
#include "workflow/evidence/verify.h"

enum { TRUST_KEYS_MAX = 1024 };

struct trust {
	struct public_key *fact_keys, *root_keys; /* in the command's arena */
	size_t fact_key_count, root_key_count;
	struct note_key log_key;
	bool has_log_key;
	struct bytes keyring; /* data NULL: none */
	bool fact_keys_from_daemon, log_key_from_daemon;
};

/* --key FILE… (PEM public keys, or a log's verifier key), --log-key FILE, --root-key FILE…, --keyring FILE. */
int trust_read_options(struct command *command, struct trust *trust);
/* Ask the daemon for what is missing. */
int trust_ask_daemon(struct command *command, struct trust *trust);
/* Say on standard error where keys came from, once. */
void trust_note(struct command *command, const struct trust *trust);

extern const char *const verify_result_names[VERIFY_CANNOT + 1];
void print_verify_lines(struct command *command, const struct verify_report *report, const char *before, bool all);
