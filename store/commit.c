/* The writer thread: it alone changes the journal. One transaction for all that is queued; the batch goes back to the loop
 * only when it is durable. Start at commit_run(), then commit_batch().
 *
 *   loop: store_append() stages ─ uv_prepare: hand over ─▶ queue ─▶ take() ─▶ commit_batch() ─▶ done ─ uv_async ─▶ loop
 *
 * Appends with values over CONTENT_CHUNK wait in `large` while their chunks are written, one small transaction between
 * two batches, so that nobody else waits for them; then they join the next batch. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/log.h"
#include "workflow/base/time.h"

enum {
	ENCODED_KEEP = 1 << 20, /* memory for encoded entries that is kept between batches */
	SIGN_BACKLOG = 4,	/* under load a checkpoint may be late by so many times its entries */
	WAL_FORCED = 8,		/* past so many times the limit the writer copies the WAL back itself */
	PAGES_PER_MIB = 256,
	FILE_WAL = 2, /* its place in the list of remember_files() */
};

static const char page_count_sql[] = "PRAGMA page_count";
static const char page_size_sql[] = "PRAGMA page_size";

/* --- transactions ------------------------------------------------------------------------------------------------- */

static bool file_identity(const struct store *store, const char *name, struct stat *status)
{
	char path[STORE_PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", store->data_dir, name);
	return stat(path, status) == 0;
}

static void remember_files(struct store *store)
{
	static const char *const names[STORE_FILES] = {"lock", "journal.db", "journal.db-wal"};
	struct stat status;

	for (size_t i = 0; i < STORE_FILES; i++)
		if (file_identity(store, names[i], &status)) {
			store->files[i].name = names[i];
			store->files[i].device = status.st_dev;
			store->files[i].inode = status.st_ino;
			store->files[i].size = store->files[i].least = 0;
		}
}

/* The journal shrinks by our hands only as far as retention gave pages back (the log does too, see journal_size_limit): what is gone of
 * it beyond that was cut off by somebody, and what we wrote behind that would be acknowledged into a journal that cannot be opened again. */
static bool is_cut_short(struct store *store, size_t i, const struct stat *status)
{
	if (strcmp(store->files[i].name, "journal.db") != 0)
		return false;
	if (status->st_size < store->files[i].size) {
		if (store->files[i].least == 0 || status->st_size < store->files[i].least)
			return true;
		if (status->st_size == store->files[i].least)
			store->files[i].least = 0; /* that was it: the next bytes that go are not ours */
	}
	store->files[i].size = status->st_size;
	return false;
}

/* The file shrinks with the next copy of the log into it, down to this. */
int commit_expect_shorter_file(struct store *store, struct error *error)
{
	int64_t pages, page_size;

	if (connection_number(&store->writer.connection, page_count_sql, &pages, error) != 0 || connection_number(&store->writer.connection, page_size_sql, &page_size, error) != 0)
		return error->code;
	for (size_t i = 0; i < STORE_FILES; i++)
		store->files[i].least = (off_t)(pages * page_size);
	return 0;
}

/* A file that was moved away or deleted still takes what we write, and the next start would know nothing of it; without the
 * lock a second daemon may be at work. Asked before each commit: three calls to stat cost nothing beside its flush. */
static int check_files(struct store *store, struct error *error)
{
	struct stat status;

	for (size_t i = 0; i < STORE_FILES; i++) {
		const char *name = store->files[i].name;

		if (name == NULL)
			continue;
		if (!file_identity(store, name, &status) || status.st_dev != store->files[i].device ||
		    status.st_ino != store->files[i].inode)
			return error_set(error, ERR_IO,
					 "%s/%s was moved, deleted or replaced while it was in use. Put it back, then start again",
					 store->data_dir, name);
		if (i == FILE_WAL && disk_check_log(store, (uint64_t)status.st_size, error) != 0)
			return error->code;
		if (is_cut_short(store, i, &status))
			return error_set(error, ERR_IO, "%s/%s was cut short while it was in use. Start again from a copy of the folder", store->data_dir, name);
	}
	return 0;
}

/* What was begun for an append that did not come. */
static void end_early(struct store *store)
{
	struct error error = {0};

	if (!store->writer.begun)
		return;
	store->writer.begun = false;
	if (connection_roll_back(&store->writer.connection, &error) != 0)
		store_break(store, &error);
}

/* Every start of a daemon writes daemon.started, and whatever else it writes makes the journal longer: whoever finds it longer than it left it has been
 * followed by another owner, though it holds the lock (a network file system, a lock file that was deleted). It stops before it writes (C24). */
static int check_owner(struct store *store, struct error *error)
{
	int64_t last = -1;

	if (connection_number(&store->writer.connection, "SELECT coalesce(max(seq), -1) FROM journal", &last, error) != 0)
		return error->code;
	if (last + 1 == (int64_t)store->writer.tree.size)
		return 0;
	return error_set(error, ERR_IO, "%s/journal.db has %lld entries, this daemon left it with %llu: another one has written to it, and owns it now", store->data_dir,
			 (long long)last + 1, (unsigned long long)store->writer.tree.size);
}

/* A foreign process that holds the lock (a backup, somebody's sqlite3) delays us and nothing else: that never becomes
 * the outcome of a run (C2, C3). */
static int begin(struct store *store, struct error *error)
{
	struct writer *writer = &store->writer;
	unsigned long long limit = atomic_exchange(&store->counters.page_limit, 0);

	if (writer->begun && limit == 0) { /* begun early, with its files checked */
		writer->begun = false;
		return check_owner(store, error);
	}
	end_early(store);
	writer->tree_at_begin = writer->tree; /* First of all: whatever fails from here on goes back to it. */
	writer->spending_at_begin = writer->spending;
	if (check_files(store, error) != 0)
		return error->code;
	if (limit > 0) {
		char sql[64];

		snprintf(sql, sizeof(sql), "PRAGMA max_page_count=%llu", limit);
		if (connection_exec(&writer->connection, sql, error) != 0)
			return error->code;
	}
	for (unsigned tries = 1;; tries++) {
		bool stop;

		if (connection_begin(&writer->connection, error) == 0)
			return check_owner(store, error);
		uv_mutex_lock(&store->lock);
		stop = store->stop;
		uv_mutex_unlock(&store->lock);
		if (error->code != ERR_BUSY || (stop && tries >= STORE_STOP_BUSY_TRIES))
			return error->code;
		log_warn(LOG_STORE, "another process holds the journal's write lock: waiting tries=%u", tries);
		*error = (struct error){0};
	}
}

/* The peaks are memory and must go back with it. */
static void roll_back(struct store *store)
{
	struct writer *writer = &store->writer;
	struct error error = {0};

	if (connection_roll_back(&writer->connection, &error) != 0)
		store_break(store, &error);
	writer->tree = writer->tree_at_begin;
	writer->spending = writer->spending_at_begin;
}

/* End a transaction that met `error`: a full disk is known to have written nothing; after anything else the truth is
 * unknown to us, and the next start reads what is there. */
static void fail_transaction(struct store *store, struct error *error)
{
	roll_back(store);
	if (error->code == ERR_FULL) {
		struct error state; /* the disk may not count as full yet: then this error stands */

		if (disk_is_watched(store) && store_disk_check(store, &state) != 0)
			*error = state;
		else
			error_wrap(error, "disk full, nothing was written: free some space and try again");
		return;
	}
	store_break(store, error);
}

/* --- one append ---------------------------------------------------------------------------------------------------- */

/* The data with what only the writer knows. The caller's own object stays as it is: its arena is not ours to allocate in. */
static struct json *sign_fact(struct store *store, struct store_append *append, const struct entry *entry)
{
	uint64_t begin_us = store->options.now_us();
	struct arena *arena = &store->writer.arena;
	struct envelope_signature signature;
	struct digest payload = digest_of(entry->statement), pae;
	struct json *data, *signatures, *item;
	struct buffer text;

	envelope_sign(store->signer.fact, ENVELOPE_TYPE_STATEMENT, entry->statement, &signature, &pae);
	data = json_object(arena);
	for (size_t i = 0; i < entry->data->object.count; i++) {
		const struct json_member *member = &entry->data->object.members[i];

		json_set_len(arena, data, member->name, member->name_len, member->value);
	}
	json_set_digest(arena, data, "payload", &payload);
	json_set_digest(arena, data, "pae", &pae);
	buffer_init(&text, 256);
	base64_add(&text, (struct bytes){signature.signature, sizeof(signature.signature)});
	item = json_object(arena);
	json_set_text(arena, item, "keyid", signature.key_id);
	json_set_text(arena, item, "sig", buffer_text(&text));
	buffer_close(&text);
	signatures = json_array(arena);
	json_add(arena, signatures, item);
	json_set(arena, data, "signatures", signatures);
	append->sign_us += store->options.now_us() - begin_us;
	return data;
}

static int check_values(const struct entry *entry, struct error *error)
{
	CHECK(entry->value_count <= ENTRY_VALUES_MAX);
	for (size_t i = 0; i < entry->value_count; i++) {
		CHECK(entry->values[i].size == entry->values[i].bytes.len);
		if (entry->values[i].size > CONTENT_MAX)
			return error_set(error, ERR_TOO_LARGE, "%s: a value of %llu bytes, at most %d",
					 entry_kind_name(entry->kind), (unsigned long long)entry->values[i].size, CONTENT_MAX);
	}
	if (entry->kind != ENTRY_FACT_RECORDED)
		return 0;
	if (entry->value_count == 0 || !bytes_equal(entry->statement, entry->values[0].bytes))
		return error_set(error, ERR_INVALID, "fact.recorded: the statement must be its first value");
	return 0;
}

/* Everything that can go wrong with one append alone goes wrong here, before anything of it is written. */
static int prepare_append(struct store *store, struct store_append *append, struct error *error)
{
	struct writer *writer = &store->writer;

	if (append->entry_count == 0 || append->entry_count > STORE_APPEND_ENTRIES_MAX)
		return error_set(error, append->entry_count == 0 ? ERR_INVALID : ERR_TOO_LARGE,
				 "%zu entries in one append, 1 to %d are possible", append->entry_count, STORE_APPEND_ENTRIES_MAX);
	if (tables_check(&writer->connection, append->entries, append->entry_count, error) != 0)
		return error->code;
	buffer_clear(&writer->encoded);
	if (append->entry_count > writer->encoded_end_cap) {
		writer->encoded_end_cap = append->entry_count;
		writer->encoded_end = memory_resize(writer->encoded_end, append->entry_count * sizeof(*writer->encoded_end));
	}
	for (size_t i = 0; i < append->entry_count; i++) {
		struct entry *entry = &append->entries[i];
		struct json *data = entry->data;

		if (check_values(entry, error) != 0)
			return error->code;
		if (entry->kind == ENTRY_FACT_RECORDED)
			entry->data = sign_fact(store, append, entry);
		entry_encode(entry, store->origin, writer->tree.size + i, &writer->encoded, error);
		entry->data = data;
		if (error->code != ERR_NONE)
			return error->code;
		writer->encoded_end[i] = writer->encoded.len;
	}
	return 0;
}

struct node_writer {
	struct connection *connection;
	struct error *error;
};

static void on_node(void *arg, unsigned level, uint64_t index, const struct digest *hash)
{
	struct node_writer *nodes = arg;

	if (nodes->error->code == ERR_NONE)
		entry_table_put_node(nodes->connection, level, index, hash, nodes->error);
}

static int write_append(struct store *store, struct store_append *append, struct error *error)
{
	struct writer *writer = &store->writer;
	struct node_writer nodes = {&writer->connection, error};
	size_t start = 0;

	append->seq_first = writer->tree.size;
	for (size_t i = 0; i < append->entry_count; i++) {
		struct entry *entry = &append->entries[i];
		struct bytes bytes = {writer->encoded.data + start, writer->encoded_end[i] - start};
		struct digest leaf = log_tree_leaf(bytes);

		start = writer->encoded_end[i];
		entry->seq = writer->tree.size;
		if (entry_table_put(&writer->connection, entry->seq, &leaf, bytes, error) != 0 || FAIL_POINT_FAILS(APPEND_ENTRY, error))
			return error->code;
		for (unsigned slot = 0; slot < entry->value_count; slot++)
			if (content_table_put(&writer->connection, entry->seq, slot, &entry->values[slot], error) != 0)
				return error->code;
		if (FAIL_POINT_FAILS(APPEND_CONTENT, error))
			return error->code;
		log_tree_add(&writer->tree, &leaf, on_node, &nodes);
		if (error->code != ERR_NONE)
			return error->code;
	}
	if (append->snapshot.data != NULL && (snapshot_table_put(&writer->connection, append->snapshot_run, append->snapshot_seq, append->snapshot, error) != 0 ||
					      FAIL_POINT_FAILS(APPEND_SNAPSHOT, error)))
		return error->code;
	if (append->forget_snapshot && snapshot_table_forget(&writer->connection, append->snapshot_run, error) != 0)
		return error->code;
	for (size_t i = 0; i < append->forget_also_count; i++)
		if (snapshot_table_forget(&writer->connection, append->forget_also[i], error) != 0)
			return error->code;
	return tables_apply(&writer->connection, append->entries, append->entry_count, error);
}

/* --- one batch ----------------------------------------------------------------------------------------------------- */

/* Each append of the batch that has no error of its own gets this one. */
static void fail_batch(struct list *batch, const struct error *error)
{
	LIST_EACH (link, batch) {
		struct store_append *append = CONTAINER_OF(link, struct store_append, link);

		if (append->error.code == ERR_NONE)
			append->error = *error;
	}
}

static void trim_memory(struct writer *writer)
{
	arena_close(&writer->arena);
	if (writer->encoded.cap > ENCODED_KEEP)
		buffer_close(&writer->encoded);
}

/* Does it bring work that nobody waits for yet? What a run that is under way needs, its children too, is none, nor is what the
 * daemon notes of its own start. */
static bool brings_new_work(const struct store_append *append)
{
	if (append->entry_count == 0 || append->entries[0].kind == ENTRY_DAEMON_STARTED)
		return false;
	for (size_t i = 0; i < append->entry_count; i++) {
		const struct entry *entry = &append->entries[i];

		if (entry->kind == ENTRY_EVENT_RECEIVED || entry->kind == ENTRY_DOCUMENT_ADDED || entry->kind == ENTRY_DEFINITION_ADDED ||
		    (entry->kind == ENTRY_RUN_CREATED && json_get(entry->data, "parent") == NULL))
			return true;
	}
	return false;
}

/* From BEGIN to COMMIT. Appends with an error of their own are left out; the code is about all others. */
static int write_batch(struct store *store, struct list *batch, struct error *error)
{
	if (FAIL_POINT_FAILS(APPEND_TAKEN, error) || begin(store, error) != 0 || FAIL_POINT_FAILS(APPEND_BEGUN, error))
		return error->code;
	LIST_EACH (link, batch) {
		struct store_append *append = CONTAINER_OF(link, struct store_append, link);

		append->error = (struct error){0};
		append->sign_us = 0;
		if (prepare_append(store, append, &append->error) != 0) {
			/* What a read found out about the disk is no matter of this append. */
			if (append->error.code == ERR_IO || append->error.code == ERR_CORRUPT ||
			    append->error.code == ERR_INTERNAL)
				return (*error = append->error).code;
			continue;
		}
		/* Only now: what is known already is answered as ever. */
		if (!disk_takes_new_work(store) && brings_new_work(append) && store_disk_check(store, &append->error) != 0)
			continue;
		if (write_append(store, append, error) != 0)
			return error->code;
	}
	if (spending_table_tend(&store->writer.connection, store->writer.tree.size, error) != 0 || FAIL_POINT_FAILS(APPEND_BEFORE_COMMIT, error))
		return error->code;
	return connection_commit(&store->writer.connection, error);
}

/* One transaction of the whole list. Afterwards every append has its result. */
void commit_batch(struct store *store, struct list *batch)
{
	struct writer *writer = &store->writer;
	struct error error = {0};
	uint64_t taken_us = store->options.now_us(), committed_us, count = 0;

	LIST_EACH (link, batch) {
		struct store_append *append = CONTAINER_OF(link, struct store_append, link);

		append->error = (struct error){0};
		append->taken_us = taken_us;
		append->sign_us = 0;
		count++;
	}
	if (atomic_load(&store->is_broken)) {
		end_early(store);
		fail_batch(batch, &store->broken);
		return;
	}
	while (write_batch(store, batch, &error) == ERR_FULL) {
		roll_back(store);
		if (atomic_load(&store->is_broken) || !disk_make_room(store))
			break;
		error = (struct error){0};
	}
	trim_memory(writer);
	if (error.code != ERR_NONE) {
		fail_transaction(store, &error);
		fail_batch(batch, &error);
		return;
	}
	FAIL_POINT(APPEND_COMMITTED);
	disk_written(store);
	committed_us = store->options.now_us();
	LIST_EACH (link, batch) {
		struct store_append *append = CONTAINER_OF(link, struct store_append, link);

		append->committed_us = committed_us;
	}
	if (writer->tree.size > writer->signed_size && writer->tree_at_begin.size <= writer->signed_size)
		writer->unsigned_since_us = committed_us;
	atomic_fetch_add(&store->counters.commits, 1);
	atomic_fetch_add(&store->counters.appends, count);
	atomic_fetch_add(&store->counters.entries, writer->tree.size - writer->tree_at_begin.size);
	if (count > atomic_load(&store->counters.batch_appends_max))
		atomic_store(&store->counters.batch_appends_max, count);
}

/* --- retention's transactions --------------------------------------------------------------------------------------- */

static const char may_prune_sql[] = "INSERT INTO pruning(allowed) VALUES(1)";
static const char may_not_prune_sql[] = "DELETE FROM pruning";

static int do_chunk(struct store *store, commit_work work, void *arg, bool prunes, struct error *error)
{
	struct connection *connection = &store->writer.connection;
	struct entry entry = {0};
	struct store_append append = {.entries = &entry, .entry_count = 1};

	if (FAIL_POINT_FAILS(RETENTION_BEGUN, error) || (prunes && connection_run(connection, may_prune_sql, error) != 0))
		return error->code;
	/* What entries that go have said must be in the rows; those that may go are all below the newest checkpoint. */
	if (prunes && store->writer.spending.count > 0 && store->writer.spending.mark < store->writer.signed_size && spending_table_flush(connection, store->writer.tree.size, error) != 0)
		return error->code;
	if (work(store, arg, &entry, error) != 0)
		return error->code;
	if (prunes && connection_run(connection, may_not_prune_sql, error) != 0)
		return error->code;
	if (entry.data != NULL && (prepare_append(store, &append, error) != 0 || write_append(store, &append, error) != 0))
		return error->code;
	if (FAIL_POINT_FAILS(RETENTION_BEFORE_COMMIT, error) || connection_commit(connection, error) != 0)
		return error->code;
	FAIL_POINT(RETENTION_COMMITTED);
	return 0;
}

int commit_chunk(struct store *store, commit_work work, void *arg, bool prunes, struct error *error)
{
	struct writer *writer = &store->writer;

	if (atomic_load(&store->is_broken)) {
		*error = store->broken;
		return error->code;
	}
	if (begin(store, error) != 0 || do_chunk(store, work, arg, prunes, error) != 0)
		fail_transaction(store, error);
	trim_memory(writer);
	if (error->code != ERR_NONE)
		return error->code;
	if (writer->tree.size > writer->signed_size && writer->tree_at_begin.size <= writer->signed_size)
		writer->unsigned_since_us = store->options.now_us();
	atomic_fetch_add(&store->counters.chunks_of_retention, 1);
	return 0;
}

/* --- checkpoints --------------------------------------------------------------------------------------------------- */

/* A copy outside the database: a restored backup of the journal is then seen at the next start (provenance.md 4.5). The
 * rename makes it whole; that it is not synced only makes it older after a power cut, which does no harm. */
static void write_anchor(struct store *store, bool sync)
{
	char path[STORE_PATH_MAX], temporary[STORE_PATH_MAX];
	struct bytes note = buffer_bytes(&store->writer.note);
	int descriptor;
	bool good;

	snprintf(path, sizeof(path), "%s/anchor", store->data_dir);
	snprintf(temporary, sizeof(temporary), "%s/anchor.new", store->data_dir);
	descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	good = descriptor >= 0 && write(descriptor, note.data, note.len) == (ssize_t)note.len &&
	       (!sync || fdatasync(descriptor) == 0);
	if (descriptor >= 0)
		close(descriptor);
	FAIL_POINT(ANCHOR_WRITTEN);
	if (!good || rename(temporary, path) != 0)
		log_warn(LOG_STORE, "write %s: %s", path, strerror(errno));
	FAIL_POINT(ANCHOR_RENAMED);
}

/* Only what is durable is signed: this runs between transactions, the tree is that of the last COMMIT. */
int commit_sign_checkpoint(struct store *store, bool closing, struct error *error)
{
	struct writer *writer = &store->writer;
	struct checkpoint checkpoint = {.size = writer->tree.size};
	char ts[TIME_TEXT_LEN + 1];
	struct buffer note;

	if (atomic_load(&store->is_broken)) {
		*error = store->broken;
		return error->code;
	}
	if (writer->tree.size == writer->signed_size)
		return 0;
	checkpoint.root = log_tree_root(&writer->tree);
	snprintf(checkpoint.origin, sizeof(checkpoint.origin), "%s", store->origin);
	buffer_init(&note, STORE_NOTE_MAX);
	checkpoint_sign(&checkpoint, store->signer.log, &note);
	CHECK(!note.overflow);
	time_text(store->options.wall_ms(), ts);
	if (begin(store, error) != 0 || FAIL_POINT_FAILS(CHECKPOINT_BEGUN, error) ||
	    checkpoint_table_put(&writer->connection, checkpoint.size, buffer_bytes(&note), ts, error) != 0 ||
	    connection_commit(&writer->connection, error) != 0) {
		fail_transaction(store, error);
		buffer_close(&note);
		return error_wrap(error, "store checkpoint %llu", (unsigned long long)checkpoint.size);
	}
	FAIL_POINT(CHECKPOINT_COMMITTED);
	buffer_close(&writer->note);
	writer->note = note;
	writer->signed_size = checkpoint.size;
	atomic_fetch_add(&store->counters.signed_checkpoints, 1);
	write_anchor(store, closing);
	return 0;
}

static uint64_t unsigned_entries(const struct store *store)
{
	return store->writer.tree.size - store->writer.signed_size;
}

/* Microseconds until a checkpoint is due by age; UINT64_MAX: nothing to sign. */
static uint64_t checkpoint_due_us(const struct store *store)
{
	uint64_t now, due;

	if (unsigned_entries(store) == 0 || atomic_load(&store->is_broken))
		return UINT64_MAX;
	now = store->options.now_us();
	due = store->writer.unsigned_since_us + (uint64_t)store->options.checkpoint_every_ms * 1000;
	return due > now ? due - now : 0;
}

static void consider_checkpoint(struct store *store, bool pause)
{
	uint64_t entries = store->options.checkpoint_entries;
	struct error error = {0};

	if (unsigned_entries(store) >= (pause ? entries : SIGN_BACKLOG * entries) || checkpoint_due_us(store) == 0) {
		if (commit_sign_checkpoint(store, false, &error) == 0)
			return;
		log_warn(LOG_STORE, "%s", error.message);
		store->writer.unsigned_since_us = store->options.now_us(); /* Later, and not in a busy loop. */
	}
}

static void answer_signs(struct store *store, struct list *signs)
{
	LIST_EACH (link, signs) {
		struct store_sign *sign = CONTAINER_OF(link, struct store_sign, link);

		if (commit_sign_checkpoint(store, false, &sign->error) == 0)
			buffer_add_bytes(&sign->note, buffer_bytes(&store->writer.note));
	}
}

/* --- the write-ahead log ------------------------------------------------------------------------------------------- */

static int on_wal(void *arg, sqlite3 *db, const char *name, int frames)
{
	struct store *store = arg;

	(void)db;
	(void)name;
	store->writer.wal_frames = frames;
	return SQLITE_OK;
}

static enum log_copy copy_wal(struct store *store, struct connection *connection)
{
	struct error error = {0};
	int rc, frames = 0, copied = 0;

	FAIL_POINT(WAL_COPY);
	rc = sqlite3_wal_checkpoint_v2(connection->db, "main", SQLITE_CHECKPOINT_PASSIVE, &frames, &copied);
	FAIL_POINT(WAL_COPIED);
	if (rc == SQLITE_OK)
		disk_note_copy(store, copied >= frames);
	atomic_fetch_add(&store->counters.wal_checkpoints, 1);
	if (rc == SQLITE_OK || (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED)
		return rc == SQLITE_OK && copied >= frames ? LOG_COPY_WHOLE : LOG_COPY_HELD;
	if (connection_fail(connection, rc, "copy the write-ahead log into the database", &error) == ERR_FULL) {
		/* All is still in the log; it is tried again, the next time with the reserve's room. */
		if (!disk_make_room(store))
			log_warn(LOG_STORE, "%s", error.message);
		return LOG_COPY_FAILED;
	}
	store_break(store, &error); /* A failed fsync is never tried again. */
	return LOG_COPY_FAILED;
}

/* What is in the log is copied first, and what came meanwhile is little, so the writer waits for little. */
static void cut_log(struct store *store, struct connection *connection)
{
	int rc;

	copy_wal(store, connection);
	rc = sqlite3_wal_checkpoint_v2(connection->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	if (rc == SQLITE_OK) {
		disk_note_copy(store, true);
		log_info(LOG_STORE, "the write-ahead log was cut off");
	} else if ((rc & 0xff) == SQLITE_IOERR) {
		struct error error = {0};

		connection_fail(connection, rc, "cut the write-ahead log", &error);
		if (error.code != ERR_FULL)
			store_break(store, &error);
	}
}

/* A log past its limit: cut it off as soon as nobody reads an old state from it. */
static void cut_wal(struct store *store)
{
	if (disk_is_watched(store) && atomic_load(&store->disk.wal_bytes) >= store->options.wal_max_bytes && !atomic_load(&store->is_broken))
		cut_log(store, &store->wal_connection);
}

void commit_cut_wal(struct store *store)
{
	cut_log(store, &store->writer.connection);
	store->writer.wal_frames = 0;
}

enum log_copy commit_copy_wal(struct store *store)
{
	enum log_copy copy = copy_wal(store, &store->writer.connection);

	store->writer.wal_frames = 0;
	return copy;
}

/* In a pause by the writer; under load by a thread of its own, while commits go on. What these added meanwhile the
 * writer copies itself, once, after the thread: else the log never starts over and grows without end. */
static void consider_wal(struct store *store, bool pause)
{
	struct writer *writer = &store->writer;
	int limit = (int)store->options.wal_mib * PAGES_PER_MIB;

	if (writer->wal_frames < limit || atomic_load(&store->is_broken))
		return;
	if (atomic_exchange(&store->wal_bulk_done, false) || pause || writer->wal_frames > WAL_FORCED * limit) {
		copy_wal(store, &writer->connection);
		writer->wal_frames = 0; /* Not asked again before the next commit says how many there are. */
	} else if (writer->wal_frames >= 2 * limit) {
		uv_mutex_lock(&store->lock);
		store->wal_wanted = true;
		uv_cond_signal(&store->wal_work);
		uv_mutex_unlock(&store->lock);
	}
}

/* One look around, and the copy that the writer asked for. Also while the last copy was kept from its end: by a reader that is long gone, most often, and nobody
 * would know before the log has grown by as much again. */
static void tend_wal(struct store *store, bool wanted)
{
	disk_look(store);
	cut_wal(store);
	if ((wanted || disk_log_is_held(store)) && !atomic_load(&store->is_broken))
		copy_wal(store, &store->wal_connection);
	if (!wanted)
		return;
	uv_mutex_lock(&store->lock);
	store->wal_wanted = false;
	uv_mutex_unlock(&store->lock);
	atomic_store(&store->wal_bulk_done, true);
}

void commit_run_wal(void *arg)
{
	struct store *store = arg;

	prctl(PR_SET_NAME, "store-wal");
	for (;;) {
		bool stop, wanted;
		unsigned look_ms = disk_takes_new_work(store) ? STORE_DISK_LOOK_MS : STORE_DISK_LOOK_SOON_MS;

		uv_mutex_lock(&store->lock);
		if (!store->wal_wanted && !store->stop)
			uv_cond_timedwait(&store->wal_work, &store->lock, look_ms * 1000000ULL);
		stop = store->stop;
		wanted = store->wal_wanted;
		uv_mutex_unlock(&store->lock);
		if (stop)
			return;
		tend_wal(store, wanted);
	}
}

/* --- large values --------------------------------------------------------------------------------------------------- */

static bool has_large_value(const struct store_append *append)
{
	for (size_t i = 0; i < append->entry_count; i++)
		for (size_t j = 0; j < append->entries[i].value_count; j++)
			if (append->entries[i].values[j].size > CONTENT_CHUNK && append->entries[i].values[j].size <= CONTENT_MAX)
				return true;
	return false;
}

/* The next chunk that is to be written, or NULL. Values that are stored already are passed over. */
static const struct entry_value *next_chunk(struct store *store, const struct store_append *append, struct error *error)
{
	struct chunk_progress *at = &store->writer.progress;

	for (; at->entry < append->entry_count; at->entry++, at->value = 0)
		for (; at->value < append->entries[at->entry].value_count; at->value++, at->chunk = 0) {
			const struct entry_value *value = &append->entries[at->entry].values[at->value];
			bool has = false;

			if (value->size <= CONTENT_CHUNK || value->size > CONTENT_MAX || at->chunk * CONTENT_CHUNK >= value->size)
				continue;
			if (at->chunk == 0 && content_table_has_blob(&store->writer.connection, &value->digest, &has, error) != 0)
				return NULL;
			if (!has)
				return value;
		}
	return NULL;
}

/* Best effort: the next start takes away what stays. */
static void forget_chunks(struct store *store, const struct store_append *append)
{
	struct error ignored = {0};

	if (atomic_load(&store->is_broken))
		return;
	for (size_t i = 0; i < append->entry_count; i++)
		for (size_t j = 0; j < append->entries[i].value_count; j++)
			if (append->entries[i].values[j].size > CONTENT_CHUNK)
				content_table_forget_chunks(&store->writer.connection, &append->entries[i].values[j].digest,
							    &ignored);
}

/* One chunk of the first append in `large`; when it has them all it moves to `finished`. On an error, to `failed`. */
static void write_chunk(struct store *store, struct list *failed)
{
	struct writer *writer = &store->writer;
	struct store_append *append = CONTAINER_OF(writer->large.next, struct store_append, link);
	const struct entry_value *value;
	struct error error = {0};

	if (atomic_load(&store->is_broken)) {
		error = store->broken;
	} else if ((value = next_chunk(store, append, &error)) != NULL) {
		uint64_t start = writer->progress.chunk * CONTENT_CHUNK;
		struct bytes part = {value->bytes.data + start,
				     value->size - start < CONTENT_CHUNK ? value->size - start : CONTENT_CHUNK};

		if (brings_new_work(append) && store_disk_check(store, &error) != 0)
			goto failed;
		if (begin(store, &error) == 0 &&
		    content_table_put_chunk(&writer->connection, &value->digest, writer->progress.chunk, part, &error) == 0 &&
		    !FAIL_POINT_FAILS(CHUNK_BEFORE_COMMIT, &error) && connection_commit(&writer->connection, &error) == 0) {
			FAIL_POINT(CHUNK_COMMITTED);
			writer->progress.chunk++;
			atomic_fetch_add(&store->counters.chunks, 1);
			return;
		}
		if (error.code == ERR_FULL) {
			roll_back(store);
			if (!atomic_load(&store->is_broken) && disk_make_room(store))
				return; /* the same chunk once more, where new work is refused */
		}
		fail_transaction(store, &error);
	} else if (error.code != ERR_NONE) {
		store_break(store, &error);
	}
failed:
	writer->progress = (struct chunk_progress){0};
	list_remove(&append->link);
	if (error.code == ERR_NONE) {
		list_add_last(&writer->finished, &append->link);
		return;
	}
	append->error = error;
	append->taken_us = store->options.now_us();
	forget_chunks(store, append);
	list_add_last(failed, &append->link);
}

/* --- the thread ----------------------------------------------------------------------------------------------------- */

static void give_back(struct store *store, struct list *appends, struct list *signs)
{
	if (list_empty(appends) && list_empty(signs))
		return;
	uv_mutex_lock(&store->lock);
	list_move_all(&store->done, appends);
	list_move_all(&store->done_signs, signs);
	atomic_store(&store->is_done, true);
	uv_mutex_unlock(&store->lock);
	FAIL_POINT(APPEND_HANDED_BACK);
	/* Not polling any more: it looks once again after it said so, and found this or is woken. */
	if (!atomic_load(&store->is_polling))
		store_wake_loop(store);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Walk to where the next rows will stand. After some milliseconds of sleep neither SQLite's code nor these pages are in the
 * processor's caches any more, and fetching them costs as much as the work itself. */
static void touch_ends(struct store *store)
{
	static const char *const ends[] = {
		"SELECT max(seq) FROM journal", "SELECT length(bytes) FROM entry ORDER BY seq DESC LIMIT 1",
		"SELECT length(bytes) FROM content ORDER BY id DESC LIMIT 1", "SELECT length(id) FROM run ORDER BY seq DESC LIMIT 1",
		"SELECT max(run) FROM run_entry",
	};
	struct error ignored = {0};
	int64_t number;

	for (size_t i = 0; i < COUNT_OF(ends) && !atomic_load(&store->is_handed); i++)
		connection_number(&store->writer.connection, ends[i], &number, &ignored);
}

/* While the loop still reads what will become an append: begin its transaction and look for it without sleeping. Whatever
 * goes wrong is met, and told, by the append itself. */
static void await_expected(struct store *store)
{
	struct writer *writer = &store->writer;
	uint64_t until_us = store->options.now_us() + STORE_EXPECT_US;
	struct error ignored = {0};
	int cpu = sched_getcpu();

	/* In the loop's place we would hold up what we wait for. */
	if (cpu < 0 || cpu == atomic_load(&store->loop_cpu))
		return;
	atomic_store(&store->writer_cpu, cpu);
	atomic_fetch_add(&store->counters.expected, 1);
	if (!atomic_load(&store->is_broken) && !writer->begun && check_files(store, &ignored) == 0) {
		writer->tree_at_begin = writer->tree;
		writer->spending_at_begin = writer->spending;
		writer->begun = connection_begin(&writer->connection, &ignored) == 0;
		if (writer->begun)
			touch_ends(store);
	}
	while (!atomic_load(&store->is_handed) && store->options.now_us() < until_us)
		relax();
	atomic_store(&store->writer_cpu, -1);
	if (!atomic_load(&store->is_handed)) {
		atomic_fetch_add(&store->counters.expected_in_vain, 1);
		end_early(store);
	}
}

/* Take what is queued. Without anything to do: once through with *pause set, then sleep. False: stop, nothing is left. */
static bool take(struct store *store, bool *pause, struct list *signs)
{
	struct writer *writer = &store->writer;
	struct list arrived;
	bool busy = !list_empty(&writer->urgent) || !list_empty(&writer->ready) || !list_empty(&writer->large) ||
		    !list_empty(&writer->finished);
	bool stop;

	list_init(&arrived);
	uv_mutex_lock(&store->lock);
	if (!busy && *pause && !store->by_hand)
		while (list_empty(&store->urgent) && list_empty(&store->queue) && list_empty(&store->sign_queue) && list_empty(&store->purge_queue) &&
		       !store->stop) {
			uint64_t due = checkpoint_due_us(store), retention_due = retention_due_us(store);

			if (store->expected) {
				store->expected = false;
				atomic_store(&store->is_handed, false);
				uv_mutex_unlock(&store->lock);
				await_expected(store);
				uv_mutex_lock(&store->lock);
				continue;
			}
			if (retention_due < due)
				due = retention_due;
			if (due == 0)
				break;
			if (due == UINT64_MAX)
				uv_cond_wait(&store->work, &store->lock);
			else
				uv_cond_timedwait(&store->work, &store->lock, due * 1000);
		}
	list_move_all(&writer->urgent, &store->urgent);
	list_move_all(&arrived, &store->queue);
	list_move_all(signs, &store->sign_queue);
	list_move_all(&writer->retention.jobs, &store->purge_queue);
	stop = store->stop;
	uv_mutex_unlock(&store->lock);
	LIST_EACH_SAFE (link, &arrived) {
		struct store_append *append = CONTAINER_OF(link, struct store_append, link);

		list_remove(link);
		list_add_last(has_large_value(append) ? &writer->large : &writer->ready, link);
	}
	LIST_EACH_SAFE (link, &writer->urgent)
		if (has_large_value(CONTAINER_OF(link, struct store_append, link))) {
			list_remove(link);
			list_add_last(&writer->large, link);
		}
	busy = !list_empty(&writer->urgent) || !list_empty(&writer->ready) || !list_empty(&writer->large) ||
	       !list_empty(&writer->finished);
	*pause = !busy && list_empty(signs);
	return !(stop && *pause);
}

/* Urgent ones first, then those whose chunks are written, then the rest in order. */
static void fill_batch(struct writer *writer, struct list *batch)
{
	struct list *const sources[] = {&writer->urgent, &writer->finished, &writer->ready};
	size_t entries = 0;

	for (size_t i = 0; i < COUNT_OF(sources); i++)
		LIST_EACH_SAFE (link, sources[i]) {
			struct store_append *append = CONTAINER_OF(link, struct store_append, link);

			if (entries > 0 && entries + append->entry_count > STORE_BATCH_ENTRIES_MAX)
				return;
			entries += append->entry_count;
			list_remove(link);
			list_add_last(batch, link);
		}
}

static void begin_turns(struct store *store)
{
	struct error error = {0};

	remember_files(store);
	/* What was given back before the start may yet stand in the log. */
	if (commit_expect_shorter_file(store, &error) != 0)
		log_warn(LOG_STORE, "%s", error.message);
}

/* From taking what is queued to what can wait. False: stop, nothing is left. */
static bool turn(struct store *store, bool *pause)
{
	struct writer *writer = &store->writer;
	struct list batch, signs;

	list_init(&batch);
	list_init(&signs);
	if (!take(store, pause, &signs))
		return false;
	fill_batch(writer, &batch);
	if (!list_empty(&batch))
		commit_batch(store, &batch);
	else
		end_early(store);
	answer_signs(store, &signs);
	LIST_EACH (link, &batch) {
		struct store_append *append = CONTAINER_OF(link, struct store_append, link);

		if (append->error.code != ERR_NONE && has_large_value(append))
			forget_chunks(store, append);
	}
	give_back(store, &batch, &signs);
	/* From here on nobody waits for us but the next batch. `finished` first: its chunks must not be taken for orphans
	 * of another append with the same value. */
	if (!list_empty(&writer->large) && list_empty(&writer->finished)) {
		write_chunk(store, &batch);
		give_back(store, &batch, &signs);
	}
	consider_checkpoint(store, *pause);
	consider_wal(store, *pause);
	retention_work(store, *pause);
	return true;
}

void commit_run(void *arg)
{
	struct store *store = arg;
	bool pause = false;

	prctl(PR_SET_NAME, "store-writer");
	begin_turns(store);
	while (turn(store, &pause))
		continue;
	retention_stop(store);
}

/* --- by hand -------------------------------------------------------------------------------------------------------- */

void commit_begin_by_hand(struct store *store)
{
	begin_turns(store);
}

void commit_finish_by_hand(struct store *store)
{
	bool pause = false;

	while (turn(store, &pause))
		continue;
	retention_stop(store);
}

void store_step_writer(struct store *store)
{
	bool pause = false;

	turn(store, &pause);
}

void store_step_wal(struct store *store)
{
	tend_wal(store, store->wal_wanted);
}

/* --- opening -------------------------------------------------------------------------------------------------------- */

static int prepare_database(struct store *store, struct error *error)
{
	struct connection *connection = &store->writer.connection;
	char pragmas[256];
	int keep = 1, descriptor;
	int64_t vacuum;

	/* Made here for its mode: SQLite gives the same one to the files beside it. */
	descriptor = open(store->database_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (descriptor < 0)
		return error_set(error, ERR_IO, "open %s: %s", store->database_path, strerror(errno));
	close(descriptor);
	wal_file_set_up();
	if (connection_open_on(connection, WAL_FILE_LAYER, store->database_path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, error) != 0)
		return error->code;
	/* Said to a journal that does so already, it is written down once more: a full disk would keep the daemon from starting. */
	if (connection_number(connection, "PRAGMA auto_vacuum", &vacuum, error) != 0)
		return error->code;
	snprintf(pragmas, sizeof(pragmas),
		 "%sPRAGMA secure_delete=ON; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=%llu",
		 vacuum == AUTO_VACUUM_INCREMENTAL ? "" : "PRAGMA auto_vacuum=INCREMENTAL; ", (unsigned long long)store->options.wal_mib * 4 << 20);
	if (connection_exec(connection, pragmas, error) == ERR_FULL && vacuum != AUTO_VACUUM_INCREMENTAL)
		error_set(error, ERR_FULL, "the disk has no room for a new journal: make some there");
	if (error->code != ERR_NONE)
		return error->code;
	if (connection_text_is(connection, "PRAGMA journal_mode", "wal", error) != 0)
		return error_wrap(error, "this file system cannot hold a write-ahead log (no shared memory?): use a local one");
	/* Else a clean stop deletes the WAL, and a growing file costs twice as much for each flush. */
	sqlite3_file_control(connection->db, "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
	sqlite3_wal_hook(connection->db, on_wal, store);
	return migrate_up(connection, error);
}

/* They take room and are in nobody's way: on a full disk, where taking them away needs room first, they stay until the next start. */
static int forget_orphans(struct store *store, struct error *error)
{
	if (content_table_forget_orphans(&store->writer.connection, error) != ERR_FULL)
		return error->code;
	log_warn(LOG_STORE, "what a crash left of large values stays until the next start: %s", error->message);
	*error = (struct error){0};
	return 0;
}

int commit_open(struct store *store, struct error *error)
{
	struct writer *writer = &store->writer;

	buffer_init(&writer->encoded, STORE_ENCODED_MAX);
	buffer_init(&writer->note, STORE_NOTE_MAX);
	arena_init(&writer->arena);
	list_init(&writer->ready);
	list_init(&writer->urgent);
	list_init(&writer->large);
	list_init(&writer->finished);
	retention_open(store);
	if (prepare_database(store, error) != 0)
		return error->code;
	if (forget_orphans(store, error) != 0)
		return error->code;
	if (retention_read_clock(store, error) != 0)
		return error->code;
	if (entry_table_load_tree(&writer->connection, &writer->tree, error) != 0)
		return error->code;
	return spending_table_open(&writer->connection, &writer->spending, writer->tree.size, error);
}

void commit_close(struct store *store)
{
	struct writer *writer = &store->writer;

	buffer_close(&writer->encoded);
	buffer_close(&writer->note);
	arena_close(&writer->arena);
	free(writer->encoded_end);
	retention_close(store);
	connection_close(&writer->connection);
}
