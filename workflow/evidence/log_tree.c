/* The Merkle tree over the journal. Pure: hashes and arithmetic on sizes.
 * Start at log_tree_add_subtree() for writing, at prove_… for proofs, at log_tree_verify_… for checking them. */
#include "workflow/evidence/log_tree.h"

#include <string.h>

#include "workflow/base/check.h"

/* A consistency proof has up to one hash more than the tree has levels; LOG_PROOF_MAX holds it up to this size. */
#define LOG_SIZE_MAX ((uint64_t)1 << (LOG_PROOF_MAX - 1))

struct digest log_tree_leaf(struct bytes entry)
{
	struct digest_stream stream;

	digest_stream_init(&stream);
	digest_stream_add(&stream, (struct bytes){(const uint8_t[]){0}, 1});
	digest_stream_add(&stream, entry);
	return digest_stream_finish(&stream);
}

struct digest log_tree_node(const struct digest *left, const struct digest *right)
{
	uint8_t joined[65];

	joined[0] = 1;
	memcpy(joined + 1, left->bytes, 32);
	memcpy(joined + 33, right->bytes, 32);
	return digest_of((struct bytes){joined, sizeof(joined)});
}

void log_tree_init(struct log_tree *tree)
{
	memset(tree, 0, sizeof(*tree));
}

void log_tree_add_subtree(struct log_tree *tree, unsigned level, const struct digest *root, log_tree_node_cb on_node, void *arg)
{
	struct digest hash = *root;
	unsigned at = level;

	CHECK(level < LOG_TREE_LEVELS_MAX);
	CHECK((tree->size & (((uint64_t)1 << level) - 1)) == 0);
	CHECK(tree->size + ((uint64_t)1 << level) <= LOG_SIZE_MAX);
	for (; tree->size >> at & 1; at++) {
		hash = log_tree_node(&tree->peak[at], &hash);
		if (on_node)
			on_node(arg, at + 1, tree->size >> (at + 1), &hash);
	}
	tree->peak[at] = hash;
	tree->size += (uint64_t)1 << level;
}

void log_tree_add(struct log_tree *tree, const struct digest *leaf, log_tree_node_cb on_node, void *arg)
{
	log_tree_add_subtree(tree, 0, leaf, on_node, arg);
}

struct digest log_tree_root(const struct log_tree *tree)
{
	struct digest root = {0};
	bool have = false;

	/* From the smallest subtree, which stands rightmost, to the largest. */
	for (unsigned level = 0; level < LOG_TREE_LEVELS_MAX; level++) {
		if (!(tree->size >> level & 1))
			continue;
		root = have ? log_tree_node(&tree->peak[level], &root) : tree->peak[level];
		have = true;
	}
	return have ? root : digest_of((struct bytes){0});
}

/* The largest power of two below n, as an exponent; n > 1. */
static unsigned split_level(uint64_t n)
{
	return 63 - (unsigned)__builtin_clzll(n - 1);
}

/* Root of the leaves [begin, end). All ranges that the RFC's recursions make begin at a multiple of their left part's
 * size, so each is a row of perfect subtrees, largest first. */
static int root_of_range(uint64_t begin, uint64_t end, log_tree_read_cb read, void *arg, struct digest *root, struct error *error)
{
	struct digest parts[64];
	size_t count = 0;

	CHECK(begin < end);
	while (begin < end) {
		unsigned level = 63 - (unsigned)__builtin_clzll(end - begin);

		CHECK((begin & (((uint64_t)1 << level) - 1)) == 0);
		if (read(arg, level, begin >> level, &parts[count]) != 0)
			return error_set(error, ERR_IO, "cannot read the log's subtree of level %u, index %llu", level,
					 (unsigned long long)(begin >> level));
		count++;
		begin += (uint64_t)1 << level;
	}
	*root = parts[count - 1];
	for (size_t i = count - 1; i > 0; i--)
		*root = log_tree_node(&parts[i - 1], root);
	return 0;
}

int log_tree_root_at(uint64_t size, log_tree_read_cb read, void *arg, struct digest *root, struct error *error)
{
	if (size > LOG_SIZE_MAX)
		return error_set(error, ERR_INVALID, "a log of %llu entries cannot be", (unsigned long long)size);
	if (size == 0) {
		*root = digest_of((struct bytes){0});
		return 0;
	}
	return root_of_range(0, size, read, arg, root, error);
}

/* The recursion meets the siblings from the root down; a proof lists them from the leaf up. */
static void reverse(struct log_proof *proof)
{
	for (size_t i = 0, j = proof->count; i + 1 < j; i++) {
		struct digest hash = proof->hashes[i];

		j--;
		proof->hashes[i] = proof->hashes[j];
		proof->hashes[j] = hash;
	}
}

int log_tree_prove_inclusion(uint64_t index, uint64_t size, log_tree_read_cb read, void *arg, struct log_proof *proof,
			     struct error *error)
{
	uint64_t begin = 0, end = size;

	proof->count = 0;
	if (size > LOG_SIZE_MAX || index >= size)
		return error_set(error, ERR_INVALID, "inclusion-range: index %llu is not below size %llu", (unsigned long long)index,
				 (unsigned long long)size);
	while (end - begin > 1) {
		uint64_t middle = begin + ((uint64_t)1 << split_level(end - begin));
		bool left = index < middle;

		CHECK(proof->count < LOG_PROOF_MAX);
		if (root_of_range(left ? middle : begin, left ? end : middle, read, arg, &proof->hashes[proof->count], error) != 0)
			return error_wrap(error, "prove entry %llu", (unsigned long long)index);
		proof->count++;
		if (left)
			end = middle;
		else
			begin = middle;
	}
	reverse(proof);
	return 0;
}

int log_tree_prove_consistency(uint64_t old_size, uint64_t new_size, log_tree_read_cb read, void *arg, struct log_proof *proof,
			       struct error *error)
{
	uint64_t begin = 0, end = new_size;

	proof->count = 0;
	if (new_size > LOG_SIZE_MAX || old_size > new_size)
		return error_set(error, ERR_INVALID, "consistency-shrunk: new size %llu is below old size %llu", (unsigned long long)new_size,
				 (unsigned long long)old_size);
	if (old_size == 0 || old_size == new_size)
		return 0;
	while (end != old_size) {
		uint64_t middle = begin + ((uint64_t)1 << split_level(end - begin));
		bool left = old_size <= middle;

		CHECK(proof->count < LOG_PROOF_MAX);
		if (root_of_range(left ? middle : begin, left ? end : middle, read, arg, &proof->hashes[proof->count], error) != 0)
			goto fail;
		proof->count++;
		if (left)
			end = middle;
		else
			begin = middle;
	}
	/* The verifier knows the old root, so the last node is left out when it is the whole old tree. */
	if (begin != 0) {
		CHECK(proof->count < LOG_PROOF_MAX);
		if (root_of_range(begin, end, read, arg, &proof->hashes[proof->count], error) != 0)
			goto fail;
		proof->count++;
	}
	reverse(proof);
	return 0;
fail:
	return error_wrap(error, "prove %llu to %llu", (unsigned long long)old_size, (unsigned long long)new_size);
}

/* RFC 9162, 2.1.3.2. */
int log_tree_verify_inclusion(uint64_t index, uint64_t size, const struct digest *leaf, const struct log_proof *proof,
			      const struct digest *root, struct error *error)
{
	struct digest hash = *leaf;
	uint64_t at = index, last;

	if (index >= size)
		return error_set(error, ERR_CORRUPT, "inclusion-range: index %llu is not below size %llu", (unsigned long long)index,
				 (unsigned long long)size);
	if (proof->count > LOG_PROOF_MAX)
		return error_set(error, ERR_CORRUPT, "inclusion-invalid: more than %d hashes", LOG_PROOF_MAX);
	last = size - 1;
	for (size_t i = 0; i < proof->count; i++) {
		if (last == 0)
			return error_set(error, ERR_CORRUPT, "inclusion-invalid: the proof has too many hashes");
		if ((at & 1) || at == last) {
			hash = log_tree_node(&proof->hashes[i], &hash);
			while (!(at & 1) && at != 0) {
				at >>= 1;
				last >>= 1;
			}
		} else {
			hash = log_tree_node(&hash, &proof->hashes[i]);
		}
		at >>= 1;
		last >>= 1;
	}
	if (last != 0)
		return error_set(error, ERR_CORRUPT, "inclusion-invalid: the proof has too few hashes");
	if (!digest_equal(&hash, root))
		return error_set(error, ERR_CORRUPT, "inclusion-invalid: the proof leads to another root");
	return 0;
}

/* RFC 9162, 2.1.4.2. */
int log_tree_verify_consistency(uint64_t old_size, uint64_t new_size, const struct digest *old_root, const struct digest *new_root,
				const struct log_proof *proof, struct error *error)
{
	struct digest old_hash, new_hash, empty = digest_of((struct bytes){0});
	uint64_t at, last;
	size_t next = 0;

	if (old_size > new_size)
		return error_set(error, ERR_CORRUPT, "consistency-shrunk: new size %llu is below old size %llu", (unsigned long long)new_size,
				 (unsigned long long)old_size);
	if (proof->count > LOG_PROOF_MAX)
		return error_set(error, ERR_CORRUPT, "consistency-invalid: more than %d hashes", LOG_PROOF_MAX);
	if (old_size == 0 && !digest_equal(old_root, &empty))
		return error_set(error, ERR_CORRUPT, "consistency-invalid: size 0 with a root that is not the empty one");
	if (old_size == new_size) {
		if (proof->count != 0)
			return error_set(error, ERR_CORRUPT, "consistency-invalid: same size, yet a proof");
		if (!digest_equal(old_root, new_root))
			return error_set(error, ERR_CORRUPT, "consistency-fork: two roots for size %llu", (unsigned long long)old_size);
		return 0;
	}
	if (old_size == 0) {
		if (proof->count != 0)
			return error_set(error, ERR_CORRUPT, "consistency-invalid: a proof from the empty tree must be empty");
		return 0;
	}
	if (proof->count == 0)
		return error_set(error, ERR_CORRUPT, "consistency-invalid: the proof is empty");
	/* Where the old tree is perfect its root is the first node, and the proof leaves it out. */
	old_hash = new_hash = (old_size & (old_size - 1)) == 0 ? *old_root : proof->hashes[next++];
	at = old_size - 1;
	last = new_size - 1;
	while (at & 1) {
		at >>= 1;
		last >>= 1;
	}
	for (; next < proof->count; next++) {
		const struct digest *hash = &proof->hashes[next];

		if (last == 0)
			return error_set(error, ERR_CORRUPT, "consistency-invalid: the proof has too many hashes");
		if ((at & 1) || at == last) {
			old_hash = log_tree_node(hash, &old_hash);
			new_hash = log_tree_node(hash, &new_hash);
			while (!(at & 1) && at != 0) {
				at >>= 1;
				last >>= 1;
			}
		} else {
			new_hash = log_tree_node(&new_hash, hash);
		}
		at >>= 1;
		last >>= 1;
	}
	if (last != 0)
		return error_set(error, ERR_CORRUPT, "consistency-invalid: the proof has too few hashes");
	if (!digest_equal(&old_hash, old_root))
		return error_set(error, ERR_CORRUPT, "consistency-fork: the proof does not lead to the old root");
	if (!digest_equal(&new_hash, new_root))
		return error_set(error, ERR_CORRUPT, "consistency-fork: the proof does not lead to the new root");
	return 0;
}
