#include "tests/unit/evidence/vectors.h"

#include "workflow/evidence/checkpoint.h"
#include "workflow/evidence/log_tree.h"

enum { ENTRIES = 100, LEVELS = 8, INVALID_PROOFS = 135, UPSTREAM_CASES = 195 };

/* A store as the real one: every perfect subtree's root, filled by the appender's callback. */
struct fixture {
	struct json *vectors;
	struct log_tree tree;
	struct digest leaves[ENTRIES], nodes[LEVELS][ENTRIES];
	struct digest roots[ENTRIES + 1];
	size_t reads;
};

static void on_node(void *arg, unsigned level, uint64_t index, const struct digest *hash)
{
	struct fixture *fixture = arg;

	ck_assert(level >= 1);
	ck_assert(level < LEVELS);
	ck_assert(index < ENTRIES);
	fixture->nodes[level][index] = *hash;
}

static int read_node(void *arg, unsigned level, uint64_t index, struct digest *hash)
{
	struct fixture *fixture = arg;

	fixture->reads++;
	ck_assert((index + 1) << level <= fixture->tree.size);
	*hash = level == 0 ? fixture->leaves[index] : fixture->nodes[level][index];
	return 0;
}

static int refuse_node(void *arg, unsigned level, uint64_t index, struct digest *hash)
{
	(void)arg;
	(void)level;
	(void)index;
	(void)hash;
	return 1;
}

static struct digest to_digest(struct bytes bytes)
{
	struct digest digest;

	ck_assert(bytes.len == sizeof(digest.bytes));
	memcpy(digest.bytes, bytes.data, sizeof(digest.bytes));
	return digest;
}

static struct fixture *build(void)
{
	struct fixture *fixture = vectors_alloc(sizeof(*fixture));
	const struct json *entries;

	fixture->vectors = vectors_parse(vectors_load("merkle.json"));
	entries = json_get(fixture->vectors, "entries");
	ck_assert_uint_eq(json_count(entries), ENTRIES);
	log_tree_init(&fixture->tree);
	fixture->roots[0] = log_tree_root(&fixture->tree);
	for (size_t i = 0; i < ENTRIES; i++) {
		fixture->leaves[i] = log_tree_leaf(vectors_unhex_text(json_at(entries, i)->string.text));
		log_tree_add(&fixture->tree, &fixture->leaves[i], on_node, fixture);
		fixture->roots[i + 1] = log_tree_root(&fixture->tree);
	}
	return fixture;
}

/* The proof of a case goes through the file's text, where a hash of another length has to be refused. */
static int parse_proof(const struct json *item, struct log_proof *proof, struct error *error)
{
	const struct json *hashes = json_get(item, "proof");
	struct buffer text;
	int code;

	buffer_init(&text, 1 << 20);
	for (size_t i = 0; i < json_count(hashes); i++) {
		base64_add(&text, vectors_unhex_text(json_at(hashes, i)->string.text));
		buffer_add_char(&text, '\n');
	}
	code = consistency_file_parse(buffer_bytes(&text), proof, error);
	buffer_close(&text);
	return code;
}

static uint64_t number_of(const struct json *item, const char *name)
{
	const char *text = json_get_text(item, name);

	return text ? strtoull(text, NULL, 10) : (uint64_t)json_get_number(item, name, 0);
}

/* Some upstream cases have words where hashes stand ("WrongRoot"): what stands for them is alike or different as the words
 * are. An empty hash is none that a file could give us, and is refused on reading. */
static struct digest to_root(struct bytes bytes)
{
	return bytes.len == 32 ? to_digest(bytes) : log_tree_leaf(bytes);
}

/* True: the proof holds. */
static bool check_case(const struct json *item, bool inclusion, struct error *error)
{
	struct log_proof proof;
	struct bytes first = vectors_unhex(item, inclusion ? "leaf_hash" : "root1"), second = vectors_unhex(item, inclusion ? "root" : "root2");
	struct digest a, b;

	if (parse_proof(item, &proof, error) != 0)
		return false;
	if (first.len == 0 || second.len == 0) {
		struct buffer text;

		buffer_init(&text, 64);
		base64_add(&text, first.len == 0 ? first : second);
		buffer_add_char(&text, '\n');
		ck_assert(consistency_file_parse(buffer_bytes(&text), &proof, error) == ERR_INVALID);
		buffer_close(&text);
		return false;
	}
	a = to_root(first);
	b = to_root(second);
	if (inclusion)
		return log_tree_verify_inclusion(number_of(item, "index"), number_of(item, "size"), &a, &proof, &b, error) == 0;
	return log_tree_verify_consistency(number_of(item, "size1"), number_of(item, "size2"), &a, &b, &proof, error) == 0;
}

/* Leaves and roots are those of the vectors, appended one by one and read back from stored subtrees. */
START_TEST(test_roots)
{
	struct fixture *fixture = build();
	const struct json *hashes = json_get(fixture->vectors, "leaf_hashes"), *roots = json_get(fixture->vectors, "roots");

	for (size_t i = 0; i < ENTRIES; i++) {
		struct digest want = to_digest(vectors_unhex_text(json_at(hashes, i)->string.text));

		ck_assert(digest_equal(&fixture->leaves[i], &want));
	}
	ck_assert_uint_eq(json_count(roots), 18);
	for (size_t i = 0; i < roots->object.count; i++) {
		size_t size = (size_t)strtoul(roots->object.members[i].name, NULL, 10);
		struct digest want = to_digest(vectors_unhex_text(roots->object.members[i].value->string.text));

		ck_assert_msg(digest_equal(&fixture->roots[size], &want), "root of size %zu", size);
	}
	for (size_t size = 0; size <= ENTRIES; size++) {
		struct digest root;

		fixture->reads = 0;
		ck_assert(log_tree_root_at(size, read_node, fixture, &root, NULL) == 0);
		ck_assert(digest_equal(&root, &fixture->roots[size]));
		ck_assert_uint_le(fixture->reads, LEVELS);
	}
}
END_TEST

/* The prover gives the vectors' inclusion proofs to the byte, and they hold. */
START_TEST(test_inclusion)
{
	struct fixture *fixture = build();
	const struct json *cases = json_get(fixture->vectors, "inclusion");

	ck_assert_uint_eq(json_count(cases), 56);
	for (size_t i = 0; i < json_count(cases); i++) {
		struct log_proof want, got;
		struct error error;

		ck_assert(parse_proof(json_at(cases, i), &want, &error) == 0);
		ck_assert(log_tree_prove_inclusion(number_of(json_at(cases, i), "index"), number_of(json_at(cases, i), "size"), read_node, fixture,
						   &got, &error) == 0);
		ck_assert_uint_eq(got.count, want.count);
		ck_assert_mem_eq(got.hashes, want.hashes, want.count * sizeof(want.hashes[0]));
		ck_assert_msg(check_case(json_at(cases, i), true, &error), "case %zu: %s", i, error.message);
	}
}
END_TEST

/* The prover gives the vectors' consistency proofs to the byte, and they hold. */
START_TEST(test_consistency)
{
	struct fixture *fixture = build();
	const struct json *cases = json_get(fixture->vectors, "consistency");

	ck_assert_uint_eq(json_count(cases), 62);
	for (size_t i = 0; i < json_count(cases); i++) {
		struct log_proof want, got;
		struct error error;

		ck_assert(parse_proof(json_at(cases, i), &want, &error) == 0);
		ck_assert(log_tree_prove_consistency(number_of(json_at(cases, i), "size1"), number_of(json_at(cases, i), "size2"), read_node,
						     fixture, &got, &error) == 0);
		ck_assert_uint_eq(got.count, want.count);
		ck_assert_mem_eq(got.hashes, want.hashes, want.count * sizeof(want.hashes[0]));
		ck_assert_msg(check_case(json_at(cases, i), false, &error), "case %zu: %s", i, error.message);
	}
}
END_TEST

/* Every leaf of every size has a proof that holds, and holds for no neighbour. */
START_TEST(test_all_proofs)
{
	struct fixture *fixture = build();
	struct log_proof proof;

	for (uint64_t size = 1; size <= ENTRIES; size++) {
		for (uint64_t index = 0; index < size; index++) {
			ck_assert(log_tree_prove_inclusion(index, size, read_node, fixture, &proof, NULL) == 0);
			ck_assert(log_tree_verify_inclusion(index, size, &fixture->leaves[index], &proof, &fixture->roots[size], NULL) == 0);
			if (index + 1 < size)
				ck_assert(log_tree_verify_inclusion(index + 1, size, &fixture->leaves[index], &proof, &fixture->roots[size],
								    NULL) != 0);
		}
		for (uint64_t old_size = 0; old_size <= size; old_size++) {
			ck_assert(log_tree_prove_consistency(old_size, size, read_node, fixture, &proof, NULL) == 0);
			ck_assert(log_tree_verify_consistency(old_size, size, &fixture->roots[old_size], &fixture->roots[size], &proof, NULL) == 0);
		}
	}
}
END_TEST

/* Each of the 135 invalid proofs is refused with a code. */
START_TEST(test_invalid)
{
	const struct json *cases = json_get(vectors_parse(vectors_load("merkle.json")), "invalid");

	ck_assert_uint_eq(json_count(cases), INVALID_PROOFS);
	for (size_t i = 0; i < json_count(cases); i++) {
		const struct json *item = json_at(cases, i);
		const char *kind = vectors_text(item, "kind"), *name = vectors_text(item, "name");
		struct error error = {0};

		ck_assert_msg(!check_case(item, strcmp(kind, "inclusion") == 0, &error), "%s, %s: accepted", kind, name);
		ck_assert_msg(strncmp(error.message, kind, strlen(kind)) == 0 || vectors_has_code(error.message, "proof-shape"), "%s, %s: %s", kind,
			      name, error.message);
		if (strcmp(name, "index = size") == 0)
			ck_assert(vectors_has_code(error.message, "inclusion-range"));
		if (strcmp(name, "sizes swapped") == 0)
			ck_assert(vectors_has_code(error.message, "consistency-shrunk"));
		if (strcmp(name, "same size, other root (fork)") == 0)
			ck_assert(vectors_has_code(error.message, "consistency-fork"));
	}
}
END_TEST

/* Another implementation's cases are judged as it says. */
START_TEST(test_upstream)
{
	const char *path = vectors_shared_path("merkle-upstream.json");
	const struct json *cases;

	if (path == NULL)
		return;
	cases = json_get(vectors_parse(vectors_load_path(path)), "cases");
	ck_assert_uint_eq(json_count(cases), UPSTREAM_CASES);
	for (size_t i = 0; i < json_count(cases); i++) {
		const struct json *item = json_at(cases, i);
		struct error error = {0};
		bool holds = check_case(item, strcmp(vectors_text(item, "kind"), "inclusion") == 0, &error);

		ck_assert_msg(holds == json_get_boolean(item, "valid", !holds), "%s: %s", vectors_text(item, "name"), error.message);
	}
}
END_TEST

/* A whole subtree put in at once makes the same tree as its leaves one by one. */
START_TEST(test_subtree)
{
	struct fixture *fixture = build();
	struct log_tree tree;
	struct digest root;

	log_tree_init(&tree);
	log_tree_add_subtree(&tree, 5, &fixture->nodes[5][0], NULL, NULL);
	log_tree_add_subtree(&tree, 4, &fixture->nodes[4][2], NULL, NULL);
	log_tree_add_subtree(&tree, 4, &fixture->nodes[4][3], NULL, NULL);
	for (size_t i = 64; i < ENTRIES; i++)
		log_tree_add(&tree, &fixture->leaves[i], NULL, NULL);
	root = log_tree_root(&tree);
	ck_assert_uint_eq(tree.size, ENTRIES);
	ck_assert(digest_equal(&root, &fixture->roots[ENTRIES]));
}
END_TEST

/* Sizes that no log has, and a store that cannot answer, are errors. */
START_TEST(test_limits)
{
	struct fixture *fixture = build();
	struct log_proof proof;
	struct digest root;
	struct error error;

	ck_assert(log_tree_prove_inclusion(5, 5, read_node, fixture, &proof, &error) == ERR_INVALID);
	ck_assert(log_tree_prove_inclusion(5, UINT64_MAX, read_node, fixture, &proof, &error) == ERR_INVALID);
	ck_assert(log_tree_prove_consistency(6, 5, read_node, fixture, &proof, &error) == ERR_INVALID);
	ck_assert(log_tree_prove_consistency(6, UINT64_MAX, read_node, fixture, &proof, &error) == ERR_INVALID);
	ck_assert(log_tree_root_at(UINT64_MAX, read_node, fixture, &root, &error) == ERR_INVALID);
	ck_assert(log_tree_prove_inclusion(5, 50, refuse_node, NULL, &proof, &error) == ERR_IO);
	ck_assert(log_tree_prove_consistency(5, 50, refuse_node, NULL, &proof, &error) == ERR_IO);
	ck_assert(log_tree_root_at(50, refuse_node, NULL, &root, &error) == ERR_IO);
	/* More hashes than a proof may have, as only a caller's own code could hand over. */
	proof.count = LOG_PROOF_MAX + 1;
	ck_assert(log_tree_verify_inclusion(0, 5, &root, &proof, &root, &error) == ERR_CORRUPT);
	ck_assert(log_tree_verify_consistency(4, 5, &root, &root, &proof, &error) == ERR_CORRUPT);
}
END_TEST

static int same_node(void *arg, unsigned level, uint64_t index, struct digest *hash)
{
	(void)index;
	(void)arg;
	*hash = digest_of((struct bytes){0});
	/* All leaves alike: the root of 2^level of them. */
	for (unsigned i = 0; i < level; i++)
		*hash = log_tree_node(hash, hash);
	return 0;
}

/* The largest log there can be, 2^62 entries, still has proofs of at most 63 hashes. */
START_TEST(test_largest)
{
	uint64_t size = (uint64_t)1 << 62, sizes[] = {1, 3, size / 2, size / 2 + 1, size - 1};
	struct digest leaf = digest_of((struct bytes){0}), root, old_root;
	struct log_proof proof;
	struct error error;

	ck_assert(log_tree_root_at(size, same_node, NULL, &root, &error) == 0);
	for (size_t i = 0; i < COUNT_OF(sizes); i++) {
		ck_assert(log_tree_prove_inclusion(sizes[i], size, same_node, NULL, &proof, &error) == 0);
		ck_assert_uint_eq(proof.count, 62);
		ck_assert(log_tree_verify_inclusion(sizes[i], size, &leaf, &proof, &root, &error) == 0);
		ck_assert(log_tree_root_at(sizes[i], same_node, NULL, &old_root, &error) == 0);
		ck_assert(log_tree_prove_consistency(sizes[i], size, same_node, NULL, &proof, &error) == 0);
		ck_assert_uint_le(proof.count, LOG_PROOF_MAX);
		ck_assert(log_tree_verify_consistency(sizes[i], size, &old_root, &root, &proof, &error) == 0);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log_tree");
	TCase *tcase = tcase_create("log_tree");

	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, test_roots);
	tcase_add_test(tcase, test_inclusion);
	tcase_add_test(tcase, test_consistency);
	tcase_add_test(tcase, test_all_proofs);
	tcase_add_test(tcase, test_invalid);
	tcase_add_test(tcase, test_upstream);
	tcase_add_test(tcase, test_subtree);
	tcase_add_test(tcase, test_limits);
	tcase_add_test(tcase, test_largest);
	suite_add_tcase(suite, tcase);
	return vectors_run(suite);
}
