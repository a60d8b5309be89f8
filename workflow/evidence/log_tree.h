/* The Merkle tree over the journal: RFC 6962 section 2.1 = RFC 9162 section 2.1, SHA-256 (provenance.md 4.1). Pure.
 *
 * The tree is never held: an appender keeps the roots of the perfect subtrees of the current size (struct log_tree),
 * a prover asks for the stored roots it needs through a callback. */
#pragma once

#include "workflow/base/digest.h"
#include "workflow/base/error.h"

enum { LOG_TREE_LEVELS_MAX = 63, LOG_PROOF_MAX = 63 };

struct digest log_tree_leaf(struct bytes entry); /* SHA-256(0x00 || entry) */
struct digest log_tree_node(const struct digest *left, const struct digest *right); /* SHA-256(0x01 || left || right) */

struct log_tree {
	uint64_t size;
	struct digest peak[LOG_TREE_LEVELS_MAX]; /* peak[l] counts when bit l of size is 1 */
};

void log_tree_init(struct log_tree *tree);
/* on_node tells of each perfect subtree that this leaf completes, level 1 upwards; may be NULL. */
typedef void (*log_tree_node_cb)(void *arg, unsigned level, uint64_t index, const struct digest *hash);
void log_tree_add(struct log_tree *tree, const struct digest *leaf, log_tree_node_cb on_node, void *arg);
/* The same with a whole perfect subtree of 2^level leaves, whose entries are gone (pruned); the size is a multiple of 2^level. */
void log_tree_add_subtree(struct log_tree *tree, unsigned level, const struct digest *root, log_tree_node_cb on_node, void *arg);
struct digest log_tree_root(const struct log_tree *tree); /* SHA-256("") when empty */

/* Gives the root of the perfect subtree `index` of 2^level leaves; level 0 is a leaf hash. Non-zero: cannot be had. */
typedef int (*log_tree_read_cb)(void *arg, unsigned level, uint64_t index, struct digest *hash);

struct log_proof {
	size_t count;
	struct digest hashes[LOG_PROOF_MAX];
};

/* Proof that leaf `index` stands in the tree of `size`; hashes from the leaf up. */
int log_tree_prove_inclusion(uint64_t index, uint64_t size, log_tree_read_cb read, void *arg, struct log_proof *proof, struct error *error);
int log_tree_prove_consistency(uint64_t old_size, uint64_t new_size, log_tree_read_cb read, void *arg, struct log_proof *proof, struct error *error);
/* Root of the tree of `size`, from stored subtrees: O(log size) reads. */
int log_tree_root_at(uint64_t size, log_tree_read_cb read, void *arg, struct digest *root, struct error *error);

/* 0, or an error whose message begins with the code of provenance.md 6 (inclusion-range, inclusion-invalid,
 * consistency-shrunk, consistency-fork, consistency-invalid). */
int log_tree_verify_inclusion(uint64_t index, uint64_t size, const struct digest *leaf, const struct log_proof *proof,
			      const struct digest *root, struct error *error);
int log_tree_verify_consistency(uint64_t old_size, uint64_t new_size, const struct digest *old_root, const struct digest *new_root,
				const struct log_proof *proof, struct error *error);
