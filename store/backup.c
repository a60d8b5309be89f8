/* A copy of the journal while it goes on, and the check that a copy is whole.
 *
 * A thread of its own copies the pages of one snapshot, a step at a time (SQLite's backup interface; a source that stands still in a
 * snapshot never makes it begin again). So a slow destination holds up nobody: commits go on into the write-ahead log, which cannot
 * start over meanwhile and grows; before that becomes too long (half of limits.wal) the backup is given up.
 * Not from the writer's own connection, in steps between commits: then each commit would wait for the destination's disk, and a
 * transaction that is rolled back makes the copying begin again. Not VACUUM INTO: one statement, without progress, and every row is packed anew.
 *
 * Threads: store_backup() and what ends it on the loop; run_backup() is the thread. Start there. */
#include <errno.h>
#include <fcntl.h>
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

/* --- is a copy whole? ---------------------------------------------------------------------------------------------- */

static const char entries_sql[] = "SELECT entry.bytes, journal.leaf, entry.seq FROM entry LEFT JOIN journal ON journal.seq = entry.seq WHERE entry.seq >= ?1 ORDER BY entry.seq";
static const char is_pruned_sql[] = "SELECT 1 FROM journal_prune WHERE tile = ?1";
static const char open_runs_sql[] = "SELECT count(*) FROM run WHERE ended_ms IS NULL";
static const char quick_check_sql[] = "PRAGMA quick_check(1)";

/* SQLite asks now and then; so the long statements below can be cancelled too. */
static int on_progress(void *arg)
{
	return atomic_load((atomic_bool *)arg) ? 1 : 0;
}

/* Of the entries from … end - 1 none is there: only retention may have taken them, tile by tile. */
static int check_gap(struct connection *connection, uint64_t from, uint64_t end, struct error *error)
{
	for (uint64_t at = from; at < end && error->code == ERR_NONE; at = (at / STORE_TILE + 1) * STORE_TILE) {
		sqlite3_stmt *statement = statement_take(connection, is_pruned_sql, error);

		if (statement == NULL)
			return error->code;
		bind_number(statement, 1, at / STORE_TILE);
		if (statement_step(connection, statement, error) > 0)
			statement_end(statement);
		else if (error->code == ERR_NONE)
			error_set(error, ERR_CORRUPT, "journal-seq: entry %llu is missing, and no retention took it", (unsigned long long)at);
	}
	return (int)error->code;
}

static int check_entries(struct connection *connection, uint64_t size, struct error *error)
{
	sqlite3_stmt *statement = statement_take(connection, entries_sql, error);
	struct digest leaf, stored;
	uint64_t next = 0;
	int step;

	if (statement == NULL)
		return error->code;
	bind_number(statement, 1, 0);
	while ((step = statement_step(connection, statement, error)) > 0) {
		uint64_t seq = column_number(statement, 2);

		leaf = log_tree_leaf(column_bytes(statement, 0));
		if (!column_digest(statement, 1, &stored) || !digest_equal(&leaf, &stored))
			error_set(error, ERR_CORRUPT, "journal-entry: entry %llu does not hash to its leaf", (unsigned long long)seq);
		if (error->code != ERR_NONE || check_gap(connection, next, seq, error) != 0) {
			statement_end(statement);
			return error->code;
		}
		next = seq + 1;
	}
	return step < 0 ? (int)error->code : check_gap(connection, next, size, error);
}

/* The newest checkpoint: signed by the key of entry 0, and its root is that of the tree as it stands here. */
static int check_log(struct connection *connection, struct arena *arena, struct store_copy *copy, struct error *error)
{
	const char *origin, *vkey;
	struct checkpoint checkpoint;
	struct note_key key;
	struct bytes note;

	if (entry_table_size(connection, &copy->entries, error) != 0 || entry_table_origin(connection, arena, &origin, &vkey, error) != 0)
		return error->code;
	snprintf(copy->origin, sizeof(copy->origin), "%s", origin);
	if (note_key_parse(&key, vkey, error) != 0 || checkpoint_table_get(connection, arena, 0, &note, error) != 0)
		return error_wrap(error, "its newest checkpoint");
	if (checkpoint_open(note, &key, &checkpoint, error) != 0) {
		error->code = ERR_CORRUPT; /* no mistake of who asks: it was whole when it was stored */
		return error_wrap(error, "its newest checkpoint");
	}
	copy->checkpoint = checkpoint.size;
	copy->root = checkpoint.root;
	return backup_check_root(connection, copy->entries, &checkpoint, "its newest checkpoint", error);
}

int backup_check_root(struct connection *connection, uint64_t entries, const struct checkpoint *checkpoint, const char *whose, struct error *error)
{
	struct digest root;
	struct error why = {0}, ignored = {0};
	bool hides;

	if (checkpoint->size > entries)
		return error_set(error, ERR_CORRUPT, "journal-rolled-back: it has %llu entries, %s promises %llu", (unsigned long long)entries, whose,
				 (unsigned long long)checkpoint->size);
	if (log_tree_root_at(checkpoint->size, entry_table_read_node, connection, &root, &why) != 0) {
		/* Asked only now: a copy of an older schema has not got the columns, nor anything that was pruned. */
		if (retention_table_hides(connection, checkpoint->size, &hides, &ignored) == 0 && hides) {
			log_warn(LOG_STORE, "%s, of size %llu, ends among entries that were pruned since: its length is all that it was held against", whose, (unsigned long long)checkpoint->size);
			return 0;
		}
		return error_set(error, ERR_CORRUPT, "journal-changed: the tree under %s cannot be read: %s", whose, why.message);
	}
	if (!digest_equal(&root, &checkpoint->root))
		return error_set(error, ERR_CORRUPT, "journal-changed: its first %llu entries are not those that %s vouches for",
				 (unsigned long long)checkpoint->size, whose);
	return 0;
}

static int check_copy(struct connection *connection, struct store_copy *copy, struct error *error)
{
	struct arena arena;
	int64_t open_runs = 0;

	arena_init(&arena);
	if (migrate_check_copy(connection, &copy->is_marked, error) == 0 && connection_text_is(connection, quick_check_sql, "ok", error) != 0 &&
	    error->code == ERR_UNSUPPORTED)
		error->code = ERR_CORRUPT;
	if (error->code == ERR_NONE && check_log(connection, &arena, copy, error) == 0 && check_entries(connection, copy->entries, error) == 0)
		connection_number(connection, open_runs_sql, &open_runs, error);
	copy->open_runs = (uint64_t)open_runs;
	arena_close(&arena);
	return error->code;
}

/* cancel may be NULL. */
static int check_file(const char *path, atomic_bool *cancel, struct store_copy *copy, struct error *error)
{
	struct connection connection;

	memset(copy, 0, sizeof(*copy));
	connection_set_up_library();
	if (access(path, R_OK) != 0)
		return error_set(error, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
	if (connection_open(&connection, path, SQLITE_OPEN_READONLY, error) != 0)
		return error->code;
	if (cancel != NULL)
		sqlite3_progress_handler(connection.db, 10000, on_progress, cancel);
	check_copy(&connection, copy, error);
	connection_close(&connection);
	return error->code == ERR_NONE ? 0 : error_wrap(error, "%s", path);
}

int store_check_copy(const char *path, struct store_copy *copy, struct error *error)
{
	ERROR_BEGIN(error);
	return check_file(path, NULL, copy, error);
}

/* --- copying -------------------------------------------------------------------------------------------------------- */

static int check_going_on(struct store *store, struct error *error)
{
	uint64_t wal = atomic_load(&store->disk.wal_bytes);

	if (atomic_load(&store->backup.cancel))
		return error_set(error, ERR_CANCELLED, "the backup was cancelled; nothing of it is kept");
	if (disk_is_watched(store) && wal >= store->options.wal_max_bytes / 2)
		return error_set(error, ERR_FULL,
				 "copying takes so long that the write-ahead log has %llu MiB, half of limits.wal: nothing of the backup is kept. Copy to a faster "
				 "disk, at a quieter time, or raise limits.wal",
				 (unsigned long long)(wal >> 20));
	return 0;
}

static int copy_pages(struct store *store, struct store_backup *request, struct connection *from, struct connection *to, int file, struct error *error)
{
	sqlite3_backup *backup = sqlite3_backup_init(to->db, "main", from->db, "main");
	int rc = SQLITE_OK, unsynced = 0;

	if (backup == NULL)
		return connection_fail(to, sqlite3_errcode(to->db), "begin the copy", error);
	while (rc == SQLITE_OK && check_going_on(store, error) == 0) {
		rc = sqlite3_backup_step(backup, STORE_BACKUP_PAGES);
		atomic_store(&request->pages, (unsigned long long)sqlite3_backup_pagecount(backup));
		atomic_store(&request->pages_done, (unsigned long long)(sqlite3_backup_pagecount(backup) - sqlite3_backup_remaining(backup)));
		unsynced += STORE_BACKUP_PAGES;
		if (unsynced >= STORE_BACKUP_SYNC_PAGES) {
			unsynced = 0;
			fdatasync(file); /* What it says counts at the end. */
		}
	}
	sqlite3_backup_finish(backup);
	if (error->code == ERR_NONE && rc != SQLITE_DONE)
		connection_fail(to, rc, (rc & 0xff) == SQLITE_FULL ? "no room for the copy: make some, or choose another folder" : "copy", error);
	return error->code;
}

/* A snapshot of its own, begun after the checkpoint was signed: so the copy holds that one. */
static int copy_journal(struct store *store, struct store_backup *request, const char *path, int file, struct error *error)
{
	struct connection from, to;

	if (connection_open(&from, store->database_path, SQLITE_OPEN_READONLY, error) != 0)
		return error->code;
	if (connection_open(&to, path, SQLITE_OPEN_READWRITE, error) != 0)
		goto out;
	if (connection_exec(&from, "BEGIN; SELECT count(*) FROM sqlite_schema", error) == 0 &&
	    connection_exec(&to, "PRAGMA synchronous=OFF; PRAGMA journal_mode=OFF", error) == 0)
		copy_pages(store, request, &from, &to, file, error);
	connection_close(&to);
out:
	connection_close(&from);
	return error->code;
}

/* A file that stands alone (no write-ahead log beside it), and says what it is. */
static int mark_copy(const char *path, struct error *error)
{
	struct connection connection;
	char pragmas[128];

	snprintf(pragmas, sizeof(pragmas), "PRAGMA journal_mode=DELETE; PRAGMA synchronous=OFF; PRAGMA application_id=%d", STORE_COPY_ID);
	if (connection_open(&connection, path, SQLITE_OPEN_READWRITE, error) != 0)
		return error->code;
	connection_exec(&connection, pragmas, error);
	connection_close(&connection);
	return error->code;
}

static int fail_system(const char *what, const char *path, struct error *error)
{
	enum error_code code = errno == ENOSPC || errno == EDQUOT ? ERR_FULL : errno == EEXIST ? ERR_EXISTS : errno == ENOENT ? ERR_NOT_FOUND : ERR_IO;

	return error_set(error, code, "%s %s: %s", what, path, strerror(errno));
}

int backup_sync_folder(const char *path, struct error *error)
{
	char folder[STORE_PATH_MAX];
	char *slash;
	int descriptor;

	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	CHECK(slash != NULL);
	slash[slash == folder ? 1 : 0] = '\0';
	descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (descriptor < 0 || fsync(descriptor) != 0)
		fail_system("sync folder", folder, error);
	if (descriptor >= 0)
		close(descriptor);
	return error->code;
}

static int check_path(const char *path, struct error *error)
{
	struct stat status;

	if (path[0] != '/')
		return error_set(error, ERR_INVALID, "%s is no absolute path; the daemon writes the file, in its own place", path);
	if (strlen(path) > STORE_PATH_MAX - 16)
		return error_set(error, ERR_INVALID, "a path has at most %d bytes", STORE_PATH_MAX - 16);
	if (lstat(path, &status) == 0)
		return error_set(error, ERR_EXISTS, "%s exists and is not overwritten: choose another name", path);
	return 0;
}

/* The thread. The file has its name only when it is whole; what a kill leaves is `<path>.partial`, which the next backup to there
 * takes away. */
static void run_backup(void *arg)
{
	struct store *store = arg;
	struct store_backup *request = store->backup.request;
	struct error *error = &request->error;
	char partial[STORE_PATH_MAX];
	struct store_copy copy;
	struct stat status;
	int file = -1;

	prctl(PR_SET_NAME, "store-backup");
	snprintf(partial, sizeof(partial), "%s.partial", request->path);
	if (check_path(request->path, error) != 0)
		goto out;
	if (unlink(partial) != 0 && errno != ENOENT) {
		fail_system("remove", partial, error);
		goto out;
	}
	file = open(partial, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (file < 0) {
		fail_system(errno == ENOENT ? "the folder has to be there, and reached by the daemon: make" : "make", partial, error);
		goto out;
	}
	if (FAIL_POINT_FAILS(BACKUP_BEGUN, error) || copy_journal(store, request, partial, file, error) != 0)
		goto discard;
	atomic_store(&store->backup.is_copying, false);
	if (mark_copy(partial, error) != 0 ||
	    FAIL_POINT_FAILS(BACKUP_COPIED, error))
		goto discard;
	atomic_store(&request->stage, STORE_BACKUP_VERIFYING);
	if (check_file(partial, &store->backup.cancel, &copy, error) != 0 || check_going_on(store, error) != 0 || FAIL_POINT_FAILS(BACKUP_VERIFIED, error))
		goto discard;
	/* RENAME_NOREPLACE is not known everywhere; a link never replaces anything. */
	if (fsync(file) != 0 || fstat(file, &status) != 0 || link(partial, request->path) != 0) {
		fail_system("keep", request->path, error);
		goto discard;
	}
	FAIL_POINT(BACKUP_LINKED);
	unlink(partial);
	if (backup_sync_folder(request->path, error) != 0) { /* it may be gone after a power cut: so it is not there */
		unlink(request->path);
		goto out;
	}
	request->bytes = (uint64_t)status.st_size;
	request->entries = copy.entries;
	request->checkpoint = copy.checkpoint;
	request->root = copy.root;
	goto out;
discard:
	if (atomic_load(&store->backup.cancel) && error->code == ERR_IO) /* the long statements end so */
		error_set(error, ERR_CANCELLED, "the backup was cancelled; nothing of it is kept");
	unlink(partial);
out:
	if (file >= 0)
		close(file);
	atomic_store(&store->backup.is_copying, false);
	atomic_store(&store->backup.is_done, true);
	uv_async_send(&store->async);
}

/* --- the loop's side ------------------------------------------------------------------------------------------------ */

void backup_finish(struct store *store)
{
	struct store_backup *request = store->backup.request;

	if (store->backup.is_running)
		uv_thread_join(&store->backup.thread);
	store->backup.is_running = false;
	atomic_store(&store->backup.is_done, false);
	store->backup.request = NULL;
	if (request->error.code == ERR_NONE)
		log_info(LOG_STORE, "backup path=%s bytes=%llu entries=%llu checkpoint=%llu", request->path, (unsigned long long)request->bytes,
			 (unsigned long long)request->entries, (unsigned long long)request->checkpoint);
	else
		log_warn(LOG_STORE, "backup path=%s failed: %s", request->path, request->error.message);
	request->on_done(request);
}

/* Whatever became of it: a disk that is full is a good reason for a copy elsewhere, and an older checkpoint will do. */
static void on_signed(struct store_sign *sign)
{
	struct store_backup *request = sign->owner;
	struct store *store = request->owner_store;
	const uv_thread_options_t options = {.flags = UV_THREAD_HAS_STACK_SIZE, .stack_size = STORE_THREAD_STACK};
	int code;

	buffer_close(&sign->note);
	if (store->closing || atomic_load(&store->backup.cancel)) {
		error_set(&request->error, ERR_CANCELLED, "the backup was cancelled; nothing of it is kept");
		backup_finish(store);
		return;
	}
	atomic_store(&store->backup.is_copying, true);
	code = uv_thread_create_ex(&store->backup.thread, &options, run_backup, store);
	store->backup.is_running = code == 0;
	if (code == 0)
		return;
	atomic_store(&store->backup.is_copying, false);
	error_set(&request->error, ERR_BUSY, "no thread can be started for the backup: %s. Nothing of it is kept", uv_strerror(code));
	backup_finish(store);
}

int store_backup(struct store *store, struct store_backup *backup)
{
	if (store->closing || store->backup.request != NULL)
		return ERR_BUSY;
	backup->error = (struct error){0};
	backup->owner_store = store;
	backup->sign = (struct store_sign){.on_done = on_signed, .owner = backup};
	atomic_store(&backup->stage, STORE_BACKUP_COPYING);
	atomic_store(&backup->pages, 0);
	atomic_store(&backup->pages_done, 0);
	atomic_store(&store->backup.cancel, false);
	if (store_sign_checkpoint(store, &backup->sign) != 0)
		return ERR_BUSY;
	store->backup.request = backup;
	return 0;
}

void store_backup_cancel(struct store *store)
{
	atomic_store(&store->backup.cancel, true);
}

void backup_stop(struct store *store)
{
	if (store->backup.request == NULL)
		return;
	atomic_store(&store->backup.cancel, true);
	if (store->backup.is_running) {
		uv_thread_join(&store->backup.thread);
		store->backup.is_running = false;
	}
}
