/* What the files of store/ share; nobody else includes it (the store's own tests do).
 * Words: a *connection* is an SQLite handle with its prepared statements; it belongs to one thread at a time. */
#pragma once

#include <sqlite3.h>
#include <stdatomic.h>
#include <uv.h>

#include "store/store.h"
#include "workflow/base/id.h"
#include "workflow/state.h"

enum {
	STORE_STATEMENTS_MAX = 160, /* prepared statements of one connection */
	STORE_CACHE_KIB = 1024, /* pages that one connection keeps */
	AUTO_VACUUM_INCREMENTAL = 2, /* SQLite's number of that mode */
	STORE_BUSY_MS = 1000, /* wait for a lock of a foreign process before saying so */
	STORE_STOP_BUSY_TRIES = 5, /* … and so often while the store closes */
	STORE_PAGE_BYTES_MAX = 16 << 20, /* bytes of one page of reader_entries() */
	STORE_EVENTS_BYTES_MAX = 4 << 20, /* of one page of reader_events(), which has one event at least */
	STORE_PATH_MAX = 4096,
	STORE_KEY_FILE_MAX = 16384,
	STORE_NOTE_MAX = 65536, /* a checkpoint with its cosignatures */
	STORE_ENCODED_MAX = 64 << 20, /* all entries of one append */
	STORE_VERIFY_TAIL_MAX = 4096, /* entries hashed again at start */
	STORE_TILE = 256, /* entries that retention takes together; the subtree of level 8 over them stays */
	STORE_NODE_LEVELS = 8, /* of the tree's nodes only every eighth level is stored */
	STORE_APPLICATION_ID = 0x52707273, /* "Rprs" */
	STORE_COPY_ID = 0x52706263, /* "Rpbc": a copy that nobody may continue as it is */
	STORE_BACKUP_PAGES = 256, /* copied at once; between two steps it may be cancelled */
	STORE_BACKUP_SYNC_PAGES = 4096, /* synced so often, that the disk never has much to catch up with while somebody commits */
	STORE_CHECKPOINT_ENTRIES = 256,
	STORE_CHECKPOINT_EVERY_MS = 60000,
	STORE_WAL_MIB = 4,
	STORE_WAL_MAX_MIB = 256,
	STORE_WAL_TRUNCATE_BUSY_MS = 100, /* so long the thread of the WAL waits for the writer when it cuts a WAL that is too long */
	STORE_DISK_LOOK_MS = 1000, /* how often the disk is looked at */
	STORE_DISK_LOOK_SOON_MS = 200, /* … while it is low or full */
	STORE_DISK_HOLD_MS = 1000, /* so long after a write that found no room admission stays closed, whatever the disk says */
	STORE_DISK_FULL_MARGIN = 1 << 20, /* so many free bytes must be there before a full disk counts as a low one */
	STORE_WAL_GATHERED_MAX = 128 << 10, /* bytes of a commit that are written to the WAL as one */
	STORE_TURN_US = 10000, /* so long one turn of the loop tells of what was committed and read; the rest is told of in the next one */
	STORE_POLL_US = 300, /* so long the loop looks for a commit's end without sleeping; not after one that took longer */
	STORE_EXPECT_US = 400, /* so long the writer looks for an append that store_expect() told of */
	STORE_THREAD_STACK = 1 << 20,
};

enum content_encoding { CONTENT_RAW = 0, CONTENT_ZSTD = 1, CONTENT_ELSEWHERE = 2, CONTENT_ERASED = 3 };

/* Public functions accept no error at all; inside there is always one, and it begins empty. */
static inline struct error *error_begin(struct error *error, struct error *spare)
{
	if (error == NULL)
		error = spare;
	*error = (struct error){0};
	return error;
}
#define ERROR_BEGIN(error)         \
	struct error error##_spare; \
	error = error_begin(error, &error##_spare)

/* Of what an entry says; tables hold no NULL for what it leaves out. */
static inline const char *text_or_empty(const struct json *object, const char *name)
{
	const char *text = json_get_text(object, name);

	return text != NULL ? text : "";
}

/* --- statement.c -------------------------------------------------------------------------------------------------- */

struct connection {
	sqlite3 *db;
	struct {
		const char *sql;
		sqlite3_stmt *statement;
	} cached[STORE_STATEMENTS_MAX];
	unsigned cached_count;
	bool in_transaction; /* by connection_begin() */
	struct spending_sums *spending; /* the writer's; NULL: rows are written at once, of entries below spending_until */
	uint64_t spending_until;
};

/* What is not in the table runtime_spending yet: of entries from `mark` on. */
enum { SPENDING_SUMS_MAX = 16, SPENDING_ENTRIES_MAX = 256 /* then it is written */ };
struct spending_sums {
	struct {
		char runtime[SPENT_RUNTIME_LEN_MAX + 1];
		struct spent_day day;
	} of[SPENDING_SUMS_MAX];
	size_t count;
	uint64_t mark;
};

/* Once in the process, before any thread uses SQLite. */
void connection_set_up_library(void);
/* layer: the name of an SQLite VFS; NULL: its own. */
int connection_open_on(struct connection *connection, const char *layer, const char *path, int flags, struct error *error);
int connection_open(struct connection *connection, const char *path, int flags, struct error *error);
void connection_close(struct connection *connection);
/* "file:<path>?<query>" for SQLITE_OPEN_URI: "mode=ro", or "immutable=1" where nothing may even be locked. */
void connection_print_uri(const char *path, const char *query, struct buffer *uri);
int connection_exec(struct connection *connection, const char *sql, struct error *error);
/* The one place that turns SQLite's codes into ours (C3). Returns the code. */
int connection_fail(struct connection *connection, int rc, const char *what, struct error *error);
/* A transaction that writes. What stands between them fails, up to the commit, once an error has ended the transaction: nobody can pass over one
 * unseen. connection_roll_back() is also for a transaction that has ended so, or was never begun. */
int connection_begin(struct connection *connection, struct error *error);
int connection_commit(struct connection *connection, struct error *error);
int connection_roll_back(struct connection *connection, struct error *error);
/* A statement without parameters, kept like all others. Returns the error code. */
int connection_run(struct connection *connection, const char *sql, struct error *error);
/* One number from a query without parameters. */
int connection_number(struct connection *connection, const char *sql, int64_t *number, struct error *error);
/* ERR_UNSUPPORTED unless the query's one value is this text. */
int connection_text_is(struct connection *connection, const char *sql, const char *text, struct error *error);

/* Prepared once per connection and kept: `sql` is a constant, its address is the key. NULL: error is set. */
sqlite3_stmt *statement_take(struct connection *connection, const char *sql, struct error *error);
/* For texts put together at run time; ended by sqlite3_finalize(). */
sqlite3_stmt *statement_make(struct connection *connection, const char *sql, struct error *error);
/* Step once: 1 a row, 0 the end (the statement is reset and its bindings cleared), -1 an error (the same, error is set). */
int statement_step(struct connection *connection, sqlite3_stmt *statement, struct error *error);
/* Step to the end. Returns the error code. */
int statement_run(struct connection *connection, sqlite3_stmt *statement, struct error *error);
void statement_end(sqlite3_stmt *statement); /* reset and clear the bindings, when not stepped to the end */
/* At the first row whose digest in `column` begins with the prefix; sql asks for those between ?1 and ?2, in order, LIMIT 2. NULL and an
 * error: it is no prefix, or of no digest, or of several. what: "fact". The caller reads the row and calls statement_end(). */
sqlite3_stmt *statement_find_digest(struct connection *connection, const char *sql, const char *prefix, int column, const char *what, struct error *error);

/* Bound bytes stay untouched until the statement has ended. */
void bind_number(sqlite3_stmt *statement, int index, uint64_t number);
/* By name, for texts put together at run time: nothing happens where the statement has no such parameter. */
void bind_named_number(sqlite3_stmt *statement, const char *name, uint64_t number);
void bind_named_text(sqlite3_stmt *statement, const char *name, const char *text);
void bind_time(sqlite3_stmt *statement, int index, int64_t time_ms); /* may lie before 1970 */
void bind_text(sqlite3_stmt *statement, int index, const char *text); /* NULL: null */
void bind_bytes(sqlite3_stmt *statement, int index, struct bytes bytes);
void bind_digest(sqlite3_stmt *statement, int index, const struct digest *digest);
uint64_t column_number(sqlite3_stmt *statement, int index);
const char *column_text(sqlite3_stmt *statement, int index, struct arena *arena);
struct bytes column_bytes(sqlite3_stmt *statement, int index); /* valid until the next step */
bool column_digest(sqlite3_stmt *statement, int index, struct digest *digest);

/* --- wal_file.c --------------------------------------------------------------------------------------------------- */

#define WAL_FILE_LAYER "reprise-wal"
/* Make that layer known; any number of times. Only for connections with synchronous=FULL. */
void wal_file_set_up(void);

/* --- migrate.c ---------------------------------------------------------------------------------------------------- */

int migrate_up(struct connection *connection, struct error *error);
/* Is it ours, of this version or an older one? Also a copy, which is marked as one. */
int migrate_check_copy(struct connection *connection, bool *is_marked, struct error *error);
int migrate_check(struct connection *connection, struct error *error); /* for readers: is it ours and of this version? */
unsigned migrate_version(void);

/* --- entry_table.c: journal, entry, journal_node ------------------------------------------------------------------ */

int entry_table_put(struct connection *connection, uint64_t seq, const struct digest *leaf, struct bytes bytes, struct error *error);
int entry_table_put_leaf(struct connection *connection, uint64_t seq, const struct digest *leaf, struct error *error);
int entry_table_put_node(struct connection *connection, unsigned level, uint64_t index, const struct digest *hash, struct error *error);
int entry_table_size(struct connection *connection, uint64_t *size, struct error *error);
int entry_table_count_kinds(struct connection *connection, const char *origin, uint64_t counts[ENTRY_KIND_COUNT], uint64_t bytes[ENTRY_KIND_COUNT], struct error *error);
/* log_tree_read_cb over a struct connection. */
int entry_table_read_node(void *connection, unsigned level, uint64_t index, struct digest *hash);
/* The frontier of the stored tree. */
int entry_table_load_tree(struct connection *connection, struct log_tree *tree, struct error *error);
int entry_table_bytes(struct connection *connection, struct arena *arena, uint64_t seq, struct bytes *bytes, struct error *error);
/* What stands at `seq`. ERR_CORRUPT also where it says of itself that it is another one: its values would be looked for at the wrong place. */
int entry_table_decode(struct arena *arena, uint64_t seq, struct bytes bytes, const char *origin, struct entry *entry, struct error *error);
/* Origin and verifier key, as entry 0 says. */
int entry_table_origin(struct connection *connection, struct arena *arena, const char **origin, const char **vkey, struct error *error);

/* --- content_table.c ---------------------------------------------------------------------------------------------- */

int content_table_put(struct connection *connection, uint64_t seq, unsigned slot, const struct entry_value *value, struct error *error);
int content_table_has_blob(struct connection *connection, const struct digest *digest, bool *has, struct error *error);
int content_table_put_chunk(struct connection *connection, const struct digest *digest, uint64_t n, struct bytes bytes, struct error *error);
int content_table_forget_chunks(struct connection *connection, const struct digest *digest, struct error *error); /* if no blob names them */
int content_table_forget_orphans(struct connection *connection, struct error *error);
/* By row id. digest may be NULL; the bytes are checked against the row's digest. */
int content_table_read(struct connection *connection, struct arena *arena, uint64_t id, const struct digest *digest, struct bytes *bytes, struct error *error);
int content_table_read_blob(struct connection *connection, struct arena *arena, const struct digest *digest, struct bytes *bytes, struct error *error);
/* Values of the entries first … first + count - 1 are put into them. */
int content_table_fill(struct connection *connection, struct arena *arena, struct entry *entries, size_t count, uint64_t value_max, struct error *error);

/* --- the derived tables: one file each; tables.c drives them ------------------------------------------------------- */

/* The row id of a run: the seq of its run.created. ERR_NOT_FOUND. */
int run_table_find(struct connection *connection, const char *id, uint64_t *run, struct error *error);
/* The same, and what the row says of it. */
int run_table_find_status(struct connection *connection, const char *id, uint64_t *run, enum run_status *status, struct error *error);
/* Of a run that goes on; said: the entry that says so (of one that is suspended: why). */
int run_table_set_status(struct connection *connection, uint64_t run, enum run_status status, const struct entry *said, struct error *error);
/* Was there a run of this id that retention removed? */
/* ERR_EXISTS: it has not faulted. */
int run_table_check_retry(struct connection *connection, const char *id, struct error *error);
int run_table_is_purged(struct connection *connection, const char *id, bool *purged, struct error *error);
int run_table_apply(struct connection *connection, uint64_t run, const struct entry *entry, struct error *error);
int run_table_add_entries(struct connection *connection, uint64_t run, uint64_t seq_first, uint64_t count, struct error *error);
int fact_table_apply(struct connection *connection, uint64_t run, const struct entry *entry, struct error *error);
int gate_table_apply(struct connection *connection, const struct entry *entry, struct error *error);
/* ERR_EXISTS: registered under this name and version with another digest. */
int definition_table_check(struct connection *connection, const struct entry *entry, struct error *error);
int definition_table_apply(struct connection *connection, const struct entry *entry, struct error *error);
/* schedule_table.c */
int schedule_table_apply(struct connection *connection, const struct entry *entry, struct error *error);
/* event_table.c. ERR_EXISTS: an event of this key is known. */
int event_table_check(struct connection *connection, const struct entry *entry, struct error *error);
int event_table_apply(struct connection *connection, const struct entry *entry, struct error *error);
/* spending_table.c: of an entry that says what was used of a runtime; else nothing */
int spending_table_apply(struct connection *connection, const struct entry *entry, struct error *error);
int spending_table_open(struct connection *connection, struct spending_sums *sums, uint64_t size, struct error *error); /* the writer's; from the mark on */
/* Within a transaction: all of it is written, entries below the mark are in the table then; … if there are enough of them. Who rolls back puts the sums back. */
int spending_table_flush(struct connection *connection, uint64_t mark, struct error *error);
int spending_table_tend(struct connection *connection, uint64_t size, struct error *error);
/* snapshot_table.c; ERR_NOT_FOUND: there is no such run */
int snapshot_table_put(struct connection *connection, const char *run_id, uint64_t seq, struct bytes bytes, struct error *error);
int snapshot_table_forget(struct connection *connection, const char *run_id, struct error *error);
/* retention_table.c: runs.purged and content.erased */
int retention_table_apply(struct connection *connection, const struct entry *entry, struct error *error);
/* Of a run that was removed. */
struct tombstone {
	uint64_t run; /* seq of run.created */
	int64_t ended_ms, purged_ms, kept_ms; /* kept_ms: the policy; 0: an operator's doing */
	const char *reason; /* "": none */
};
int retention_table_tombstone(struct connection *connection, struct arena *arena, const char *id, struct tombstone *tombstone, bool *found, struct error *error); /* arena NULL: without the reason */
/* Turn an error about a run, or a value, that is not there into ERR_GONE with the story, if it was there once. Return the error's code. */
int retention_table_explain_run(struct connection *connection, const char *id, struct error *error);
int retention_table_explain_content(struct connection *connection, const struct digest *digest, struct error *error);
int retention_table_tile(struct connection *connection, uint64_t tile, struct digest *root, bool *leaves, bool *pruned, struct error *error);
/* Does a checkpoint of this size end among entries that were pruned with their leaves? Then it cannot be compared any more. */
int retention_table_hides(struct connection *connection, uint64_t size, bool *hides, struct error *error);
int retention_table_stats(struct connection *connection, struct store_stats *stats, struct error *error);
/* Is it the last that key.added told of for this purpose? */
int definition_table_key_is_newest(struct connection *connection, const char *purpose, const char *key_id, bool *newest, struct error *error);

/* May this append be written? Looks at nothing but rows, changes nothing: so a conflict costs its own append alone and no
 * savepoint is needed. */
int tables_check(struct connection *connection, const struct entry *entries, size_t count, struct error *error);
/* Bring the derived tables up to these entries, whose seq is set. Used at append and at rebuild: there is no second way. */
int tables_apply(struct connection *connection, const struct entry *entries, size_t count, struct error *error);

/* --- checkpoint_table.c ------------------------------------------------------------------------------------------- */

int checkpoint_table_put(struct connection *connection, uint64_t size, struct bytes note, const char *signed_at, struct error *error);
/* size 0: the newest. ERR_NOT_FOUND. */
int checkpoint_table_get(struct connection *connection, struct arena *arena, uint64_t size, struct bytes *note, struct error *error);

/* --- signer.c ----------------------------------------------------------------------------------------------------- */

/* In locked memory; used by the writer thread, the public halves by all. */
struct signer {
	struct secret_key *fact, *log;
};
/* may_create: the journal is new. Otherwise a missing file is an error that says what to do. */
int signer_open(struct signer *signer, const struct store_options *options, bool may_create, struct error *error);
/* Read both and keep none; *log has no id when its file is missing and may be. */
int signer_check(const struct store_options *options, bool may_be_missing, struct public_key *log, struct error *error);
void signer_close(struct signer *signer);
/* That a file or folder is called so becomes durable with a sync of the folder that it is in. */
int sync_folder_of(const char *path, struct error *error);

/* --- store.c, commit.c, reader.c ---------------------------------------------------------------------------------- */

struct store_reader {
	struct connection connection;
	char *origin, *vkey; /* as journal.opened says */
};
int reader_open_connection(struct store_reader *reader, const char *path, int flags, struct error *error);
void reader_close_connection(struct store_reader *reader);

/* --- retention.c, on the writer ------------------------------------------------------------------------------------ */

enum {
	RETENTION_EVERY_MAX_MS = 3600 * 1000, /* from one pass to the next */
	RETENTION_EVERY_MIN_MS = 250,
	RETENTION_FIRST_MS = 10000, /* from the start to the first pass, unless they come more often */
	RETENTION_FULL_EVERY_MS = 60000, /* from one pass to the next while the disk is full */
	RETENTION_AFTER_BACKUP_US = 1000000, /* a pass that waits for a backup looks so often whether that is over */
	RETENTION_CLOCK_STEP_MS = 86400 * 1000, /* a clock that went ahead by more is not believed at once */
	RETENTION_STEP_US = 4000, /* a chunk takes on no more work after so long */
	RETENTION_REST_US = 50000, /* while appends keep coming there is one chunk in so long */
	RETENTION_LOOKS_MAX = 1024, /* rows looked at in one chunk */
	RETENTION_RUNS_MAX = 64, /* runs that leave the lists in one chunk */
	RETENTION_ROWS_MAX = 1024, /* values deleted in one chunk */
	RETENTION_BYTES_MAX = 4 << 20, /* … and so many bytes of them, or one value */
	RETENTION_TILES_MAX = 4, /* tiles pruned in one chunk */
	RETENTION_HELD_MAX = 256, /* tiles that a pass looks into only to find that they must stay; the next one goes on behind them */
	RETENTION_FACTS_MAX = 64, /* facts whose evidence is gathered at once */
	RETENTION_PAGES_MAX = 64, /* pages given back in one chunk */
	RETENTION_THRIFT_MAX = 3, /* levels of it, see make_room(): up to here chunks get smaller, to a 16th */
	RETENTION_FREE_PAGES = 256, /* … unless so few are free, or a 16th of the file: they will be needed again */
};

enum retention_phase { RETENTION_IDLE, RETENTION_RUNS, RETENTION_VALUES, RETENTION_TILES, RETENTION_CHECKPOINTS, RETENTION_PAGES, RETENTION_ERASE };

struct retention {
	enum retention_phase phase;
	uint64_t due_us, rest_until_us; /* the next pass; the next chunk under load */
	uint64_t ended_us; /* of the last pass */
	int64_t now_ms; /* wall clock of the pass */
	int64_t known_ms; /* what the wall clock said … */
	uint64_t known_us; /* … then */
	uint64_t doubted_us; /* since then it is too far ahead; 0: it is not */
	bool log_copied; /* for want of room; the step was not done since */
	unsigned thrift; /* how little room its chunks may take; 0: there is enough */
	uint64_t run_seq; /* looked at up to here */
	uint64_t tile, tile_floor; /* the next one to look at; all below the floor are pruned */
	unsigned held;
	uint64_t checkpoint_size;
	int64_t checkpoint_bucket;
	uint64_t clearing; /* the run whose values are being deleted; 0: none */
	uint64_t clearing_fact; /* its facts up to here are known … */
	bool clearing_known; /* … all of them */
	struct digest *evidence; /* what they name */
	size_t evidence_count, evidence_cap;
	uint64_t content_id; /* erasing: looked at up to here */
	uint64_t *matches;
	size_t match_count, match_cap;
	struct list jobs; /* struct store_purge; the first one is under way when `has_job` */
	bool has_job;
	struct {
		uint64_t runs, values, entries, tiles, checkpoints, pages;
	} done; /* of the pass */
};

/* Progress of the one append whose large values are being written. */
struct chunk_progress {
	size_t entry, value;
	uint64_t chunk;
};

struct writer { /* The writer thread's own. */
	struct connection connection;
	struct log_tree tree, tree_at_begin;
	struct spending_sums spending, spending_at_begin;
	struct buffer encoded; /* entries of one append */
	size_t *encoded_end;
	size_t encoded_end_cap;
	struct arena arena; /* of one batch */
	struct list ready, urgent, large, finished; /* taken from the queue; large: chunks to write; finished: all written */
	struct chunk_progress progress;
	uint64_t signed_size; /* of the newest checkpoint */
	uint64_t unsigned_since_us; /* when the first entry behind it was committed */
	struct buffer note; /* the newest checkpoint */
	int wal_frames; /* in the WAL since it began anew; the hook counts them */
	bool begun; /* a transaction is open for an append that is expected */
	struct retention retention;
};

/* Figures for tests and `doctor`; any thread may read them. */
struct store_counters {
	atomic_ullong commits, appends, entries, signed_checkpoints, wal_checkpoints, chunks, batch_appends_max;
	atomic_ullong chunks_of_retention, passes; /* committed; … and whole passes of retention */
	atomic_ullong expected, expected_in_vain; /* times that the writer was told of an append; … and none came in time */
	atomic_ullong page_limit; /* test hook: PRAGMA max_page_count before the next batch; 0: leave it */
};

enum { STORE_FILES = 3 /* lock, journal.db, journal.db-wal */ };

struct store {
	struct store_options options;
	char *data_dir, *database_path, *fact_key_path, *log_key_path;
	char *origin;
	struct note_key log_key;
	int lock_file;
	struct {
		uv_mutex_t lock; /* for changes; whoever reads takes the atomics as they are */
		atomic_int state; /* enum store_disk_state */
		atomic_ullong free_bytes, reserve_bytes, wal_bytes;
		atomic_ullong held_since_us, held_until_us; /* first and last copy of the WAL, of those in a row, that did not come to its end; 0: the last one did */
		uint64_t full_us; /* when a write last found no room; 0: none, or one did since */
	} disk;
	struct {
		const char *name;
		dev_t device;
		ino_t inode;
		off_t size; /* of journal.db, the largest seen */
		off_t least; /* … which pages that were given back may shrink to */
	} files[STORE_FILES]; /* those that must stay where they are; the writer's */
	struct store_counters counters;

	/* Loop thread only. */
	uv_loop_t *loop;
	uv_prepare_t prepare;
	uv_idle_t idle; /* active while the loop looks for a commit's end */
	uv_async_t async;
	unsigned handles_open;
	uint64_t poll_until_us, last_commit_us; /* the latter: how long the newest one took, from its hand-over on */
	bool may_poll; /* there is a second CPU for the thread that is waited for */
	struct list staged_urgent, staged, staged_signs;
	struct list returned, returned_signs, returned_reads, returned_purges; /* callbacks to fire */
	bool more_came; /* behind those */
	unsigned depth, signs, reads, purges; /* accepted, callback not fired yet */
	bool closing, threads_running, told_broken;
	bool by_hand; /* without threads and loop; see store_open_by_hand() */

	/* Shared, under the lock. */
	uv_mutex_t lock;
	uv_cond_t work, read_work, wal_work;
	struct list urgent, queue, sign_queue, done, done_signs, read_queue, done_reads, purge_queue, done_purges;
	bool stop, stop_reading, wal_wanted, expected;
	struct error broken;
	/* Looked at without it. */
	atomic_bool is_broken, wal_bulk_done;
	atomic_bool is_handed; /* something was put into the queues */
	atomic_bool is_done, is_polling; /* something was given back; the loop looks for that and need not be woken */
	atomic_int loop_cpu; /* where the loop was when it told of an append */
	atomic_int writer_cpu; /* where the writer looks for it; -1: it does not. Never both on one CPU */

	struct {
		struct store_backup *request; /* NULL: none is under way */
		uv_thread_t thread;
		bool is_running; /* the thread has to be joined */
		atomic_bool is_done, cancel;
		atomic_bool is_copying; /* for the writer: the log cannot start over now */
	} backup;

	uv_thread_t writer_thread, reader_thread, wal_thread;
	struct writer writer;
	struct signer signer;
	struct store_reader reader;
	struct connection wal_connection;
};

struct store_counters *store_counters(struct store *store);

/* commit.c, on the opening thread or the writer. */
int commit_open(struct store *store, struct error *error);
void commit_close(struct store *store);
void commit_batch(struct store *store, struct list *batch);
int commit_sign_checkpoint(struct store *store, bool closing, struct error *error);
/* A transaction of the writer's own. The work may fill in `entry` (data not NULL): it is appended with what the work did. prunes: the
 * triggers let it delete from the log. */
typedef int (*commit_work)(struct store *store, void *arg, struct entry *entry, struct error *error);
int commit_chunk(struct store *store, commit_work work, void *arg, bool prunes, struct error *error);
int commit_expect_shorter_file(struct store *store, struct error *error); /* pages were given back */
void commit_cut_wal(struct store *store); /* down to nothing, once no reader needs it; waits for readers as long as any statement */
enum log_copy {
	LOG_COPY_WHOLE, /* up to its end: it starts over */
	LOG_COPY_HELD, /* not up to its end, for somebody reads or copies it */
	LOG_COPY_FAILED, /* no room for what it adds to the database, or the store is broken */
};
enum log_copy commit_copy_wal(struct store *store); /* also so that the file shows what was given back */
void commit_run(void *store); /* the writer thread */
void commit_run_wal(void *store); /* the thread that copies the WAL back while commits go on */
void reader_run_thread(void *store);
bool reader_turn(struct store *store); /* waits for a read and does it; false: stop. By hand: false when there is none */
void reader_work(struct store_reader *reader, struct store_read *read); /* within a snapshot of its own */

/* backup.c, restore.c */
void backup_finish(struct store *store); /* on the loop, when backup.is_done */
/* ERR_CORRUPT: the tree is behind this checkpoint, or another one. */
int backup_check_root(struct connection *connection, uint64_t entries, const struct checkpoint *checkpoint, const char *whose, struct error *error);
int backup_sync_folder(const char *path, struct error *error); /* the folder that this file is in */
void backup_stop(struct store *store); /* cancel and wait; on_done comes with the next drain */
#define RESTORE_MARKER "restoring" /* files of the data folder: a restore is under way, or was interrupted */
#define RESTORE_CONTINUES "continues" /* which log the next new one continues, for its journal.opened */

/* store.c, for restore.c: the folder and its lock, which `*lock_file` holds until it is closed. */
int folder_make(const char *path, struct error *error);
int folder_lock(const char *data_dir, int *lock_file, struct error *error);

/* disk.c */
void disk_init(struct store *store);
void disk_open(struct store *store); /* with the folder's lock */
void disk_close(struct store *store);
bool disk_is_watched(const struct store *store);
void disk_look(struct store *store); /* by the thread of the WAL: measure, make the reserve again, judge */
/* A write found no room: give the reserve back and close admission. True: try again. */
bool disk_make_room(struct store *store);
void disk_written(struct store *store); /* a commit went well */
void disk_note_copy(struct store *store, bool is_whole); /* the WAL was copied, up to its end or to where somebody reads an old state */
bool disk_log_is_held(struct store *store); /* the last copy did not come to its end */
int disk_check_log(struct store *store, uint64_t bytes, struct error *error); /* ERR_FULL: the WAL is too long to go on */
bool disk_takes_new_work(struct store *store);
/* retention.c, on the writer. */
void retention_open(struct store *store);
int retention_read_clock(struct store *store, struct error *error); /* of the last entry: before anything is appended */
uint64_t retention_due_us(struct store *store); /* microseconds until there is something to do; UINT64_MAX: never */
void retention_work(struct store *store, bool pause); /* one chunk, if it is time for one */
void retention_stop(struct store *store); /* answers what was not done */
void retention_close(struct store *store);

/* store.c: make the store broken; any thread. */
void store_break(struct store *store, const struct error *error);
void store_wake_loop(struct store *store); /* something was given back; any thread */

/* --- by hand: the same store without its threads, for the simulation -------------------------------------------------- */

/* Nothing happens but what the caller lets happen, by the functions that the threads' own loops are made of; all on one thread. Callbacks
 * fire inside store_tell() and store_close() alone. Without a loop there is no backup. */
int store_open_by_hand(struct store **store, const struct store_options *options, struct error *error);
void store_hand_over(struct store *store); /* what was appended since the last time goes into the writer's queue */
void store_step_writer(struct store *store); /* one turn: a batch of all that is queued; or, where nothing is, what an idle writer does */
bool store_step_reader(struct store *store); /* one read; false: none is queued */
void store_step_wal(struct store *store); /* one look of the thread of the write-ahead log */
bool store_tell(struct store *store); /* one callback; false: there was none */
void store_read_now(struct store *store, struct store_read *read); /* only the work, between all steps */
void store_abandon(struct store *store); /* instead of store_close(): as if the process had died. No callback fires */
void commit_begin_by_hand(struct store *store);
void commit_finish_by_hand(struct store *store); /* what is left, before the close */
