/* The log: its tree equals an independent recomputation, checkpoints verify, are made when they are due, and go on after
 * a restart; the write-ahead log does not grow without end. */
#include "tests/unit/store/fixture.h"

static void append_runs(struct fixture *f, unsigned first, unsigned count)
{
	struct entry *entries = memory_zero(count * sizeof(*entries));

	for (unsigned i = 0; i < count; i++) {
		char id[32];

		snprintf(id, sizeof(id), "run-%06u", first + i);
		make_created(&f->arena, &entries[i], id, "log", NULL);
	}
	append_ok(f, entries, count);
	free(entries);
}

/* RFC 6962 by its definition, recursively, over leaves: nothing of log_tree.c in it. */
static struct digest tree_root(const struct digest *leaves, size_t count)
{
	struct digest_stream stream;
	struct digest left, right;
	size_t split = 1;

	if (count == 0)
		return digest_of((struct bytes){0});
	if (count == 1)
		return leaves[0];
	while (split * 2 < count)
		split *= 2;
	left = tree_root(leaves, split);
	right = tree_root(leaves + split, count - split);
	digest_stream_init(&stream);
	digest_stream_add(&stream, BYTES_OF("\x01"));
	digest_stream_add(&stream, (struct bytes){left.bytes, 32});
	digest_stream_add(&stream, (struct bytes){right.bytes, 32});
	return digest_stream_finish(&stream);
}

/* From the file with plain SQLite: every entry hashed by hand. */
static struct digest recompute_root(struct fixture *f, uint64_t size)
{
	sqlite3 *db = plain_open(f);
	sqlite3_stmt *statement;
	struct digest *leaves = memory_zero((size + 1) * sizeof(*leaves)), root;
	uint64_t n = 0;

	ck_assert_int_eq(sqlite3_prepare_v2(db, "SELECT bytes FROM entry ORDER BY seq", -1, &statement, NULL), SQLITE_OK);
	for (; n < size && sqlite3_step(statement) == SQLITE_ROW; n++) {
		struct digest_stream stream;

		digest_stream_init(&stream);
		digest_stream_add(&stream, (struct bytes){(const uint8_t *)"", 1});
		digest_stream_add(&stream,
				  (struct bytes){sqlite3_column_blob(statement, 0), (size_t)sqlite3_column_bytes(statement, 0)});
		leaves[n] = digest_stream_finish(&stream);
	}
	ck_assert_uint_eq(n, size);
	sqlite3_finalize(statement);
	sqlite3_close(db);
	root = tree_root(leaves, size);
	free(leaves);
	return root;
}

static void check_note(struct fixture *f, struct bytes note, uint64_t size)
{
	struct checkpoint checkpoint;
	struct note_key key;
	struct digest root;

	store_log_key(f->store, &key);
	ck_assert_msg(checkpoint_open(note, &key, &checkpoint, &f->error) == 0, "%s", f->error.message);
	ck_assert_str_eq(checkpoint.origin, store_origin(f->store));
	ck_assert_uint_eq(checkpoint.size, size);
	root = recompute_root(f, size);
	ck_assert(digest_equal(&root, &checkpoint.root));
}

static int read_leaf(void *arg, unsigned level, uint64_t index, struct digest *hash)
{
	return reader_leaf(arg, level, index, hash, NULL);
}

static void read_proofs(struct store_reader *reader, struct fixture *f, void *arg)
{
	const struct checkpoint *checkpoint = arg;
	struct store_raw_entry *raw;
	struct digest hash;
	uint64_t next;
	size_t count;

	for (uint64_t index = 0; index < checkpoint->size; index += 37) {
		struct log_proof proof;
		struct digest leaf;

		ck_assert_int_eq(log_tree_prove_inclusion(index, checkpoint->size, read_leaf, reader, &proof, &f->error), 0);
		ck_assert_int_eq(reader_entries(reader, &f->arena, index, 0, 1, &raw, &count, &next, &f->error), 0);
		leaf = log_tree_leaf(raw[0].bytes);
		ck_assert_int_eq(log_tree_verify_inclusion(index, checkpoint->size, &leaf, &proof, &checkpoint->root, &f->error),
				 0);
	}
	ck_assert_int_eq(reader_leaf(reader, 0, checkpoint->size + 1000, &hash, &f->error), ERR_NOT_FOUND);
	ck_assert_int_eq(reader_leaf(reader, 60, 0, &hash, &f->error), ERR_NOT_FOUND);
}

/* After any number of entries, across tiles and restarts, the signed root is that of the entries in the file, and stored
 * subtrees prove each of them. */
START_TEST(root_equals_recomputation)
{
	static const unsigned steps[] = {1, 2, 249, 1, 1, 254, 300, 65}; /* passes 256 and 512, stops beside them, too */
	struct fixture f;
	unsigned runs = 0;

	fixture_start(&f);
	for (size_t i = 0; i < COUNT_OF(steps); i++) {
		struct store_sign sign;
		struct checkpoint checkpoint;

		append_runs(&f, runs, steps[i]);
		runs += steps[i];
		sign_and_wait(&f, &sign);
		check_note(&f, buffer_bytes(&sign.note), 3 + runs);
		ck_assert_int_eq(checkpoint_parse(buffer_bytes(&sign.note), &checkpoint, &f.error), 0);
		read_and_wait(&f, read_proofs, &checkpoint);
		buffer_close(&sign.note);
		if (i % 2)
			fixture_reopen(&f);
	}
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

static void read_notes(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct bytes *notes = arg, *found, note;
	struct checkpoint checkpoint;
	size_t count;

	ck_assert_int_eq(reader_checkpoints(reader, &f->arena, &found, &count, &f->error), 0);
	ck_assert_uint_gt(count, 0);
	ck_assert_int_eq(reader_checkpoint(reader, &f->arena, 0, &note, &f->error), 0);
	ck_assert(bytes_equal(note, found[count - 1]));
	for (size_t i = 0; i < count; i++) {
		ck_assert_int_eq(checkpoint_parse(found[i], &checkpoint, &f->error), 0);
		ck_assert_int_eq(reader_checkpoint(reader, &f->arena, checkpoint.size, &note, &f->error), 0);
		ck_assert(bytes_equal(note, found[i]));
	}
	ck_assert_int_eq(reader_checkpoint(reader, &f->arena, 999999, &note, &f->error), ERR_NOT_FOUND);
	*notes = note = found[count - 1];
}

/* A new journal is signed at once; asking twice with nothing new gives the stored checkpoint, byte for byte, and closing signs what
 * is left. */
START_TEST(sign_on_demand_and_at_close)
{
	struct fixture f;
	struct store_sign first, second;
	struct bytes newest;

	fixture_start(&f);
	ck_assert_uint_eq(atomic_load(&store_counters(f.store)->signed_checkpoints), 1);
	append_runs(&f, 0, 10);
	sign_and_wait(&f, &first);
	sign_and_wait(&f, &second);
	ck_assert(bytes_equal(buffer_bytes(&first.note), buffer_bytes(&second.note)));
	ck_assert_uint_eq(atomic_load(&store_counters(f.store)->signed_checkpoints), 2);
	append_runs(&f, 10, 1);
	fixture_reopen(&f);
	read_and_wait(&f, read_notes, &newest);
	check_note(&f, newest, 14);
	ck_assert_uint_eq(atomic_load(&store_counters(f.store)->signed_checkpoints), 0);
	buffer_close(&first.note);
	buffer_close(&second.note);
	fixture_end(&f);
}
END_TEST

static void on_timer(uv_timer_t *timer)
{
	bool *done = timer->data;

	*done = true;
}

static void wait_ms(struct fixture *f, unsigned ms)
{
	uv_timer_t timer;
	bool done = false;

	uv_timer_init(&f->loop, &timer);
	timer.data = &done;
	uv_timer_start(&timer, on_timer, ms, 0);
	while (!done)
		uv_run(&f->loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&timer, NULL);
	uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void wait_for_signed(struct fixture *f, unsigned count)
{
	for (unsigned tries = 0; atomic_load(&store_counters(f->store)->signed_checkpoints) < count && tries < 500; tries++)
		wait_ms(f, 10);
	ck_assert_uint_eq(atomic_load(&store_counters(f->store)->signed_checkpoints), count);
}

/* A checkpoint is made when so many entries are behind the last one, without being asked; and not before. */
START_TEST(signed_after_entries)
{
	struct fixture f;

	fixture_init(&f);
	f.options.checkpoint_entries = 50;
	fixture_open(&f);
	append_runs(&f, 0, 49);
	wait_ms(&f, 50);
	ck_assert_uint_eq(atomic_load(&store_counters(f.store)->signed_checkpoints), 1); /* the first, over the three entries of a new journal */
	append_runs(&f, 49, 1);
	wait_for_signed(&f, 2);
	fixture_end(&f);
}
END_TEST

static void read_unsigned(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct checkpoint checkpoint = {0};
	struct bytes note;
	uint64_t size;

	if (reader_checkpoint(reader, &f->arena, 0, &note, &f->error) == 0)
		ck_assert_int_eq(checkpoint_parse(note, &checkpoint, &f->error), 0);
	ck_assert_int_eq(reader_log_size(reader, &size, &f->error), 0);
	*(uint64_t *)arg = size - checkpoint.size;
}

static void wait_until_all_signed(struct fixture *f)
{
	uint64_t left = 1;

	for (unsigned tries = 0; left > 0 && tries < 500; tries++) {
		wait_ms(f, 20);
		read_and_wait(f, read_unsigned, &left);
	}
	ck_assert_uint_eq(left, 0);
}

/* And when the oldest unsigned entry is so old, however few they are; without new ones no more of them. */
START_TEST(signed_after_time)
{
	struct fixture f;
	unsigned long long count;

	fixture_init(&f);
	f.options.checkpoint_every_ms = 200;
	fixture_open(&f);
	append_runs(&f, 0, 1);
	wait_until_all_signed(&f);
	count = atomic_load(&store_counters(f.store)->signed_checkpoints);
	wait_ms(&f, 500);
	ck_assert_uint_eq(atomic_load(&store_counters(f.store)->signed_checkpoints), count);
	append_runs(&f, 1, 1);
	wait_until_all_signed(&f);
	fixture_end(&f);
}
END_TEST

static void read_wal_size(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_stats stats;

	ck_assert_int_eq(reader_stats(reader, &stats, &f->error), 0);
	*(uint64_t *)arg = stats.wal_bytes;
}

/* Many times the WAL's limit is written, without a pause: it is copied back and starts over, its file stays bounded. */
START_TEST(wal_stays_bounded)
{
	struct fixture f;
	uint64_t bytes, max = 0;
	uint8_t *value;

	fixture_init(&f);
	f.options.wal_mib = 1;
	fixture_open(&f);
	value = arena_alloc(&f.arena, 16000);
	for (unsigned i = 0; i < 100; i++) {
		struct entry *entries = memory_zero(32 * sizeof(*entries));

		for (unsigned k = 0; k < 32; k++) {
			char id[32];

			snprintf(id, sizeof(id), "run-%u-%u", i, k);
			make_created(&f.arena, &entries[k], id, "wal", NULL);
			memset(value, (int)(i * 32 + k), 16000);
			entry_add_value(&f.arena, &entries[k], "value", arena_bytes(&f.arena, (struct bytes){value, 16000}));
		}
		append_ok(&f, entries, 32);
		free(entries);
		read_and_wait(&f, read_wal_size, &bytes);
		if (bytes > max)
			max = bytes;
	}
	ck_assert_uint_gt(atomic_load(&store_counters(f.store)->wal_checkpoints), 5);
	ck_assert_msg(max < 16u << 20, "the WAL reached %llu bytes", (unsigned long long)max); /* of 50 MiB written */
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-checkpoint", root_equals_recomputation, sign_on_demand_and_at_close, signed_after_entries, signed_after_time,
	  wal_stays_bounded)
