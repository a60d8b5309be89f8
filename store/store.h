/* The journal: an ordered, durable, provable list of entries, and what can be asked of it. The one header of store/ that
 * others include; no SQLite type appears in it.
 *
 * Threads: call everything here on the loop thread, callbacks fire there too; the functions that take a
 * struct store_reader run on the reader thread, inside the work of a store_read.
 * New here? Read store_append(), then store/commit.c. Words: ARCHITECTURE.md, "Words". */
#pragma once

#include <stdatomic.h>
#include <uv.h>

#include "workflow/base/list.h"
#include "workflow/base/spent.h"
#include "workflow/entry.h"
#include "workflow/evidence/checkpoint.h"
#include "workflow/evidence/envelope.h"

enum {
	STORE_QUEUE_MAX = 16384, /* appends staged or queued; past it store_append says ERR_BUSY */
	STORE_URGENT_MAX = 4096, /* urgent ones that still go in past it: control works while the queue is full (C5) */
	STORE_READS_MAX = 4096,
	STORE_BATCH_ENTRIES_MAX = 8192, /* entries of one transaction of several appends */
	STORE_APPEND_ENTRIES_MAX = 32768, /* entries of one append: the end of a run ends all that is under way in it */
	STORE_STATS_SCAN_MAX = 256 << 20, /* bytes of a journal whose pages reader_details() counts */
	STORE_PAGE_MAX = 10000, /* rows of one page */
	STORE_PURGES_MAX = 64, /* requests to take something away, waiting */
	STORE_SCHEDULE_ID_MAX = 127, /* two labels of at most 63 and a dot */
};

struct store; /* Opaque: defined in store/store.c. */

/* How long things are kept. Without it (all 0) everything is. */
struct store_retention {
	int64_t runs_ms; /* after a run's end it leaves the lists, and its values go; 0: never */
	int64_t entries_ms; /* after that its entries may go as well, tile by tile (semantics.md 9); 0: never */
	bool drop_facts; /* facts go with their runs; else they, and what proves them, are kept for ever */
	int64_t every_ms; /* from one pass to the next; 0: as often as the times above ask for, an hour at most */
	/* A wall clock that went ahead by more than a day that has not passed is gone by only after so long, or when STORE_PURGE_DUE is asked for; 0: at once */
	int64_t grace_ms;
};
enum { STORE_RETENTION_GRACE_MS = 86400 * 1000 }; /* the daemon's */

struct store_options {
	const char *data_dir; /* created with mode 0700 when missing */
	const char *fact_key_file, *log_key_file; /* NULL: DATA/keys/fact.pem, DATA/keys/log.pem, made at the first start */
	unsigned checkpoint_entries; /* sign a checkpoint every so many entries; 0: 256 */
	int64_t checkpoint_every_ms; /* and when so old; 0: 60,000 */
	unsigned wal_mib; /* checkpoint the WAL past this size; 0: 4 */
	/* See store_disk(). With neither of the first two nothing is watched: a full disk is an ERR_FULL of its append and no more. */
	uint64_t reserve_bytes; /* kept in DATA/reserve for what is under way when the disk is full; 0: none */
	uint64_t low_bytes; /* with less free space than this new work is refused; 0: no bound */
	uint64_t wal_max_bytes; /* and with a longer WAL; with twice as much nothing is written any more. 0: STORE_WAL_MAX_MIB */
	struct store_retention retention;
	uint64_t (*now_us)(void); /* monotonic clock for the time stamps below */
	int64_t (*wall_ms)(void);
	/* The store is broken (an I/O error at COMMIT leaves the truth unknown): stop the process. Fires once, on the loop. */
	void (*on_broken)(void *arg, const struct error *error);
	void *arg;
};

/* Lock the folder, migrate, verify the log's tail against the last checkpoint, load or make the keys, write
 * journal.opened into an empty journal. Messages: "another reprised (pid 123) holds DATA/lock", "DATA is read-only …".
 * May block: called before the loop runs. */
int store_open(struct store **store, uv_loop_t *loop, const struct store_options *options, struct error *error);
/* The key files as store_open() reads them, without making or keeping any. may_be_missing: there is no journal yet. *log: the log
 * key, without an id where it is missing. Needs no lock; any thread. */
int store_check_keys(const struct store_options *options, bool may_be_missing, struct public_key *log, struct error *error);
/* Let what is queued commit, sign a last checkpoint, join the threads, close. Pending callbacks fire before it returns; what
 * they submit is refused with ERR_BUSY. Run the loop once more afterwards: it ends the store's own handles and frees the
 * struct. */
void store_close(struct store *store);

const char *store_origin(const struct store *store);
const char *store_library_version(void); /* of SQLite */
const struct public_key *store_fact_key(const struct store *store);
void store_log_key(const struct store *store, struct note_key *key);

/* --- appending ---------------------------------------------------------------------------------------------------- */

struct store_append;
/* Fires exactly once per accepted request, always later, never inside store_append(). */
typedef void (*store_append_cb)(struct store_append *append);

/* Request: make the entries of one decision durable, all or none. The tables (runs, facts, definitions …) are updated
 * from the entries in the same transaction. The caller owns the struct and all it points to, and leaves both alone until
 * the callback. */
struct store_append {
	struct entry *entries;
	size_t entry_count;
	bool urgent; /* control (cancel, pause …): goes before what is queued (C5) */
	/* A cache for the next load of the run `snapshot_run`: its state as of an entry that is committed already. It takes the place of the
	 * one before. data NULL: none. With `forget_snapshot` there is none any more, for the run ends with these entries. */
	const char *snapshot_run;
	struct bytes snapshot;
	uint64_t snapshot_seq;
	bool forget_snapshot;
	const char *const *forget_also; /* more runs that end with these entries, and had one */
	size_t forget_also_count;
	store_append_cb on_done;
	void *owner;

	/* Result, valid from the callback on. ERR_NONE: committed and synced. ERR_EXISTS: run id, or definition name and
	 * version with other content. ERR_FULL: disk full, nothing written, try again later. */
	struct error error;
	uint64_t seq_first; /* journal position of entries[0]; entries[i].seq is set too */
	uint64_t handed_us, taken_us, committed_us; /* monotonic: given to the writer, taken by it, durable */
	uint64_t sign_us; /* of which the writer signed facts for so long */
	struct list link; /* The store's own. */
};

/* Return 0, or ERR_BUSY if the queue is full; the callback then never fires. */
int store_append(struct store *store, struct store_append *append);
/* A hint: within some hundred microseconds there will be an append. The writer wakes up and begins its transaction while the
 * loop still works out what is in it. Nothing is wrong when none comes. */
void store_expect(struct store *store);
unsigned store_queue_depth(const struct store *store);

/* A checkpoint over everything committed so far, signed now (or the stored one when nothing is new). */
struct store_sign;
typedef void (*store_sign_cb)(struct store_sign *sign);
struct store_sign {
	store_sign_cb on_done;
	void *owner;
	struct error error;
	struct buffer note; /* the caller closes it */
	struct list link;
};
int store_sign_checkpoint(struct store *store, struct store_sign *sign);

/* How the data folder's disk stands. LOW: appends that bring new work (a run without a parent, an event, a document, a definition) are
 * refused with ERR_FULL, others go on and may use up the reserve. FULL: all fail with ERR_FULL, nothing of them is there; whoever
 * made them tries again. It goes back by itself when there is room. */
enum store_disk_state { STORE_DISK_OK, STORE_DISK_LOW, STORE_DISK_FULL };
struct store_disk {
	enum store_disk_state state;
	uint64_t free_bytes; /* for us, as of the last look; one a second */
	uint64_t reserve_bytes, wal_bytes; /* held; as long is the WAL */
	uint64_t low_bytes, reserve_wanted, wal_max_bytes; /* the limits */
	int64_t held_ms; /* for so long, as of its last copy, somebody who reads an old state has kept the WAL from starting over; 0: nobody does */
};
void store_disk(struct store *store, struct store_disk *disk); /* any thread; does not look at the disk itself */
/* 0, or ERR_FULL with what is wrong, how much is there and what to do. */
int store_disk_check(struct store *store, struct error *error);
const char *store_disk_state_name(enum store_disk_state state); /* "ok", "low", "full" */

/* --- a copy ------------------------------------------------------------------------------------------------------- */

/* Request: a copy of the journal as it is now, while it goes on. The file appears at `path` whole, synced and verified, or not at
 * all; it has no keys in it and is marked as a copy: store_open() refuses it, store_restore() makes a journal of it. One at a time. */
struct store_backup;
typedef void (*store_backup_cb)(struct store_backup *backup);
enum store_backup_stage { STORE_BACKUP_COPYING, STORE_BACKUP_VERIFYING };
struct store_backup {
	const char *path; /* absolute; nothing may be there */
	store_backup_cb on_done; /* on the loop */
	void *owner;
	/* Progress; any thread. */
	atomic_int stage;
	atomic_ullong pages_done, pages;
	/* Result. ERR_EXISTS: there is such a file; ERR_CANCELLED; ERR_FULL: no room there, or it took so long that the WAL became too long. */
	struct error error;
	uint64_t bytes, entries, checkpoint; /* checkpoint: the size that its newest one vouches for */
	struct digest root;
	struct store_sign sign; /* The store's own, and the next one. */
	struct store *owner_store;
};
int store_backup(struct store *store, struct store_backup *backup); /* ERR_BUSY: one is under way; the callback then never fires */
void store_backup_cancel(struct store *store); /* what is under way ends with ERR_CANCELLED, or had just ended */

/* Is this file, a copy or a journal that nobody holds, whole: each entry hashes to its leaf, the tree to its checkpoints, which the log
 * key of its first entry signed? Any thread. */
struct store_copy {
	char origin[256];
	uint64_t entries, checkpoint, open_runs;
	struct digest root; /* of the checkpoint */
	bool is_marked; /* as a copy */
};
int store_check_copy(const char *path, struct store_copy *copy, struct error *error);

/* Make a journal of a copy in a data folder that no daemon holds. Nothing there is changed before all was found good. */
struct store_restore {
	const char *source, *data_dir;
	const struct bytes *checkpoints; /* known ones: the copy must not be behind any of them */
	size_t checkpoint_count;
	bool replace; /* a journal that is there is kept aside; else ERR_EXISTS */
	bool original_is_gone; /* go on although no checkpoint says how far the log had come */
	bool new_log; /* the copy is kept to be read, and the next start begins another log that names where this one ended */
	/* Result. */
	struct store_copy copy;
	size_t known; /* checkpoints that it was held against */
	char aside[512]; /* where the journal that was there is now; "": none */
	char kept[512]; /* new_log: where the copy can be read */
};
/* ERR_CORRUPT: not whole, or behind a known checkpoint; ERR_EXISTS; ERR_BUSY: a daemon holds the folder; ERR_INVALID: nothing is known and
 * original_is_gone is not set. Blocks. */
int store_restore(struct store_restore *restore, struct error *error);
/* --- taking away ---------------------------------------------------------------------------------------------------- */

enum store_purge_kind {
	STORE_PURGE_RUNS, /* these, at once, as retention would later */
	STORE_PURGE_CONTENT, /* every copy of one value; its digest stays */
	STORE_PURGE_DUE, /* all that is due by the policy now, and every free page goes back to the file system */
};
enum { STORE_PURGE_RUNS_MAX = 256, STORE_ERASE_MATCHES_MAX = 65536 /* rows that hold one value */ };

/* Request, worked off by the writer in small transactions between those of others. The caller owns the struct and what it points to. */
struct store_purge;
typedef void (*store_purge_cb)(struct store_purge *purge);
struct store_purge {
	enum store_purge_kind kind;
	const char *const *runs;
	size_t run_count; /* 1 to STORE_PURGE_RUNS_MAX; all or none */
	struct digest content;
	struct bytes reason; /* a JSON text; data NULL: none given */
	store_purge_cb on_done;
	void *owner;

	/* Result. ERR_NOT_FOUND: no such run or value; ERR_GONE: it is gone already; ERR_EXISTS: a run that has not ended needs it. */
	struct error error;
	uint64_t removed_runs, removed_values, pruned_entries, given_pages;
	struct list link; /* The store's own. */
};
/* 0, or ERR_BUSY. */
int store_purge(struct store *store, struct store_purge *purge);

/* --- reading ------------------------------------------------------------------------------------------------------ */

struct store_reader; /* a read-only connection inside one short snapshot */
struct store_read;
typedef void (*store_read_work)(struct store_reader *reader, struct store_read *read); /* on the reader thread */
typedef void (*store_read_cb)(struct store_read *read); /* on the loop */
struct store_read {
	store_read_work work;
	store_read_cb on_done;
	void *owner; /* embed the struct or point to what the work needs; the loop leaves it alone until on_done */
	struct arena arena; /* initialised by store_read(); results go here; the caller closes it after on_done */
	struct error error; /* the work sets it */
	struct list link;
};
/* 0, or ERR_BUSY past STORE_READS_MAX. */
int store_read(struct store *store, struct store_read *read);

/* For offline work without a daemon: no lock, nothing is written, one snapshot until the close. Any one thread. It also opens
 * a journal that a running daemon holds; then be short, the snapshot keeps its write-ahead log from starting over. */
int store_open_readonly(const char *data_dir, struct store_reader **reader, struct error *error);
void store_reader_close(struct store_reader *reader);
/* As journal.opened says; valid until the close. */
const char *store_reader_origin(const struct store_reader *reader);
int store_reader_log_key(const struct store_reader *reader, struct note_key *key, struct error *error);

/* All texts and lists below lie in `arena`. ERR_NOT_FOUND where there is nothing, ERR_GONE where
 * something was that retention or an operator took away: the message says when and why. */
struct store_run {
	uint64_t seq; /* of run.created: newest first = by seq descending */
	const char *id, *namespace, *name, *version, *status; /* status: words of interface.md */
	struct digest definition, request; /* request: of definition digest, input and labels: "equal content" */
	int64_t created_ms, ended_ms; /* ended_ms 0: not ended */
	uint64_t seq_last; /* its last entry */
	bool killed;
	const char *parent, *parent_step; /* NULL: it is no child */
	bool is_awaited;
	const char *forked_from; /* NULL: it is no fork */
	uint64_t suspended_seq; /* of the run.suspended that says why; 0: it is not suspended */
	bool is_quarantined;
};
struct store_run_filter {
	const char *status, *namespace, *name, *version; /* NULL: any */
	const char *parent; /* children of this run */
	bool is_open; /* those that have not ended alone */
	const char *forked_from; /* forks of this run */
	const char *label_key, *label_value;
	int64_t since_ms, until_ms; /* 0: open; created at or after, before */
	uint64_t before_seq; /* page: only older than this; 0: from the newest */
	size_t limit; /* 0: 100; at most STORE_PAGE_MAX */
};
int reader_run(struct store_reader *reader, struct arena *arena, const char *id, struct store_run *run, struct error *error);
int reader_runs(struct store_reader *reader, struct arena *arena, const struct store_run_filter *filter, struct store_run **runs, size_t *count, struct error *error);
int reader_run_count(struct store_reader *reader, const struct store_run_filter *filter, uint64_t *count, struct error *error);
/* Runs that have not ended, oldest first, from after_seq on. */
struct store_open_run {
	uint64_t seq;
	const char *id, *parent, *parent_step; /* NULL: it is no child */
	int64_t wake_ms, rested_ms; /* it waits for nothing but times, the first of which this is, since then; 0: something else may come first */
	bool is_awaited, is_quarantined;
};
int reader_open_runs(struct store_reader *reader, struct arena *arena, uint64_t after_seq, size_t limit, struct store_open_run **runs, size_t *count, struct error *error);

/* Entries with their values. Values over `value_max` bytes come with data NULL (digest and size are there). */
int reader_run_entries(struct store_reader *reader, struct arena *arena, const char *run_id, uint64_t after_seq, size_t limit,
		       uint64_t value_max, struct entry **entries, size_t *count, struct error *error);
/* The newest snapshot of a run and the entry up to which it goes. ERR_NOT_FOUND: there is none; ERR_CORRUPT: it is not what was written, or
 * not of this journal. Both mean: fold all entries. */
int reader_snapshot(struct store_reader *reader, struct arena *arena, const char *run_id, uint64_t *seq, struct bytes *bytes, struct error *error);
/* Any entries from a seq on (feeds, verification): raw bytes. kinds: bit set over enum entry_kind, 0 = all. *next: where to go
 * on, also when rows were passed over. Looks at no more than STORE_PAGE_MAX rows. */
struct store_raw_entry {
	uint64_t seq;
	struct bytes bytes;
};
int reader_entries(struct store_reader *reader, struct arena *arena, uint64_t from_seq, uint64_t kinds, size_t limit,
		   struct store_raw_entry **entries, size_t *count, uint64_t *next, struct error *error);

/* The log as it is verified and exported: entries, and lines for what retention took. Gaps that are no retention's are gaps here. */
struct store_log_line {
	uint64_t seq, count; /* count: of entries that it stands for */
	struct bytes bytes; /* data NULL: pruned, then `root` stands for them */
	struct digest root;
};
int reader_log_lines(struct store_reader *reader, struct arena *arena, uint64_t from_seq, size_t limit, struct store_log_line **lines, size_t *count,
		     uint64_t *next, struct error *error);
/* The entry's bytes, or "pruned <first seq> <count> <root, base64>" (semantics.md 9). */
void store_log_line_print(const struct store_log_line *line, struct buffer *text);
/* Where the entries go on when the one at from_seq was pruned; from_seq itself when it was not. */
int reader_pruned_end(struct store_reader *reader, uint64_t from_seq, uint64_t *end, struct error *error);

/* One of them decoded, with its values up to value_max bytes. */
int reader_entry(struct store_reader *reader, struct arena *arena, const struct store_raw_entry *raw, uint64_t value_max, struct entry *entry, struct error *error);

/* Content. By place (CONTENT_ID) where it is known, else (id 0) by digest: large content, documents, definitions and
 * configuration records are found by digest alone. For a small value of a run give run_id: its own entries are searched. */
int reader_content(struct store_reader *reader, struct arena *arena, uint64_t id, const struct digest *digest, const char *run_id,
		   struct bytes *bytes, struct error *error);

int reader_content_size(struct store_reader *reader, uint64_t id, uint64_t *size, struct error *error); /* by place */

struct store_definition {
	uint64_t seq;
	const char *namespace, *name, *version;
	struct digest digest;
	int64_t added_ms;
};
/* version NULL: the newest registered one (highest semantic version). */
int reader_definition(struct store_reader *reader, struct arena *arena, const char *namespace, const char *name, const char *version,
		      struct store_definition *definition, struct error *error);
int reader_definitions(struct store_reader *reader, struct arena *arena, uint64_t before_seq, size_t limit, struct store_definition **definitions, size_t *count, struct error *error);
/* Canonical document of a definition by its digest, registered or not. source may be NULL. */
int reader_definition_document(struct store_reader *reader, struct arena *arena, const struct digest *digest, struct bytes *document, struct bytes *source, struct error *error);

/* What a schedule has done so far. */
struct store_schedule {
	const char *id; /* "namespace.name" */
	uint64_t seq; /* of definition.added */
	struct digest definition;
	const char *namespace, *name, *version;
	int64_t added_ms, accounted_ms; /* up to this tick all have run or were skipped */
	int64_t last_due_ms, last_ended_ms; /* of the last run; 0: none, has not ended */
	const char *last_run; /* NULL: none */
	bool last_is_known; /* false: retention took the run away */
	uint64_t ticked, skipped;
	const char *skipped_why; /* the last time; NULL: never */
	uint64_t event_seq; /* `on`: all events up to this one have counted; 0: none yet */
	bool paused;
};
/* By id, from after_id on (NULL: from the first). */
int reader_schedules(struct store_reader *reader, struct arena *arena, const char *after_id, size_t limit, struct store_schedule **schedules, size_t *count, struct error *error);
int reader_schedule(struct store_reader *reader, struct arena *arena, const char *id, struct store_schedule **schedule, size_t *count, struct error *error); /* count 0: none */

/* An event that came in or was emitted, as long as it is known. */
struct store_event {
	uint64_t seq; /* of event.received or event.emitted */
	int64_t time_ms; /* of that entry */
	struct bytes event; /* the canonical envelope; data NULL: erased */
};
/* In order, behind after_seq, with time_ms >= since_ms. *next: behind which one to go on; *count 0: there are no more. A page ends early where its
 * events are large. */
int reader_events(struct store_reader *reader, struct arena *arena, uint64_t after_seq, int64_t since_ms, size_t limit, struct store_event **events,
		  size_t *count, uint64_t *next, struct error *error);
/* Behind which seq the events with time_ms >= since_ms begin; the journal's last one where there are none. */
int reader_events_begin(struct store_reader *reader, int64_t since_ms, uint64_t *after_seq, struct error *error);
/* What events.forgotten may name: the first known event that is not older than before_ms, or the limit-th. *count: how many are older,
 * up to the limit. */
int reader_events_old(struct store_reader *reader, int64_t before_ms, size_t limit, uint64_t *before, size_t *count, struct error *error);
/* The seq of the known event with this key. ERR_NOT_FOUND. */
int reader_event_find(struct store_reader *reader, const struct digest *key, uint64_t *seq, struct error *error);
int reader_event_count(struct store_reader *reader, uint64_t *count, struct error *error);
/* Up to which seq a sink has everything. ERR_NOT_FOUND: nothing was ever written of it. */
int reader_sink(struct store_reader *reader, const char *name, uint64_t *position, struct error *error);

struct store_document {
	uint64_t seq;
	struct digest digest;
	uint64_t size;
	const char *media_type;
	int64_t added_ms;
};
int reader_document(struct store_reader *reader, struct arena *arena, const struct digest *digest, struct store_document *document, struct error *error);

struct store_fact {
	uint64_t seq; /* of fact.recorded */
	struct digest id; /* of the payload */
	bool accepted;
	const char *run_id, *runtime, *reproducibility_class;
	struct digest document;
};
struct store_fact_filter {
	const char *run_id, *namespace, *name, *runtime, *reproducibility_class;
	const struct digest *document;
	bool rejected_too; /* else accepted ones only */
	uint64_t after_seq; /* feed order; the first page of the feed: 0 with from_start */
	bool from_start;
	size_t limit;
};
int reader_facts(struct store_reader *reader, struct arena *arena, const struct store_fact_filter *filter, struct store_fact **facts, size_t *count, struct error *error);
/* By id or a unique prefix of at least 12 hex digits. ERR_INVALID: ambiguous or too short. */
int reader_fact(struct store_reader *reader, struct arena *arena, const char *id_prefix, struct store_fact *fact, struct error *error);
/* What was signed and recorded: payload, signatures (from the entry), the fact document (value, quote, grounding …), entry bytes. */
struct store_fact_record {
	struct bytes payload, fact, entry;
	struct envelope_signature signature;
};
int reader_fact_record(struct store_reader *reader, struct arena *arena, uint64_t seq, struct store_fact_record *record, struct error *error);

struct store_gate {
	uint64_t seq; /* of gate.recorded */
	struct digest id; /* of the report */
	const char *run_id, *runtime, *class;
	int64_t time_ms;
	struct bytes report; /* JSON; data NULL: it is gone */
};
struct store_gate_filter {
	const char *runtime; /* or NULL */
	uint64_t before_seq; /* 0: the newest ones */
	size_t limit; /* 0: STORE_PAGE_MAX */
};
/* Newest first. */
int reader_gates(struct store_reader *reader, struct arena *arena, const struct store_gate_filter *filter, struct store_gate **gates, size_t *count, struct error *error);
/* By id or a unique prefix of at least 12 hex digits. ERR_INVALID: ambiguous or too short. */
int reader_gate(struct store_reader *reader, struct arena *arena, const char *id_prefix, struct store_gate *gate, struct error *error);

/* What was used of a runtime, by day, oldest first: SPENT_DAYS_MAX + 1 of them, and what days the last few hundred entries name besides. */
int reader_spending(struct store_reader *reader, struct arena *arena, const char *runtime, struct spent_day **days, size_t *count, struct error *error);

/* The newest configuration record of a runtime, or one by digest. */
int reader_configuration(struct store_reader *reader, struct arena *arena, const struct digest *digest, struct bytes *record, struct error *error);
int reader_configuration_of(struct store_reader *reader, struct arena *arena, const char *runtime, struct digest *digest, struct error *error);

/* The log. */
int reader_checkpoint(struct store_reader *reader, struct arena *arena, uint64_t size, struct bytes *note, struct error *error); /* size 0: the newest */
int reader_checkpoints(struct store_reader *reader, struct arena *arena, struct bytes **notes, size_t *count, struct error *error); /* all kept ones, by size */
int reader_log_size(struct store_reader *reader, uint64_t *size, struct error *error);
int reader_leaf(struct store_reader *reader, unsigned level, uint64_t index, struct digest *hash, struct error *error); /* any perfect subtree; fits log_tree_read_cb in spirit */

struct store_stats {
	uint64_t entries, runs, open_runs, facts, checkpoints, pruned_tiles;
	uint64_t pruned_entries, removed_runs, erased_values;
	uint64_t database_bytes, free_bytes, wal_bytes;
};
int reader_stats(struct store_reader *reader, struct store_stats *stats, struct error *error);

/* Where the room is: all lists in the arena, by name. Tables come with their indexes; table_count 0: the journal is larger than
 * STORE_STATS_SCAN_MAX, and looking at each of its pages would hold up other reads. */
struct store_details {
	unsigned schema; /* version */
	struct store_count {
		const char *name;
		uint64_t count, bytes;
	} *statuses, *tables, *kinds; /* runs of each status (bytes 0); rows and bytes; entries of each kind, and their bytes */
	size_t status_count, table_count, kind_count;
};
int reader_details(struct store_reader *reader, struct arena *arena, struct store_details *details, struct error *error);
/* Runs in the lists that ended at or before until_ms, and when the first of all ended (0: none has). A walk over all runs. */
int reader_ended_runs(struct store_reader *reader, int64_t until_ms, uint64_t *count, int64_t *first_ms, struct error *error);

/* Rebuild every table but entry and content in a copy of the journal and compare: 0 when they are equal. For tests and `doctor`. */
int store_check_tables(const char *data_dir, struct error *error);
