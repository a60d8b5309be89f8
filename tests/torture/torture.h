/* Torture of the journal: the real store, on a disk and with memory that fail where they are told to, and on a disk that loses what was
 * not synced when the power goes. What the files of this folder share. Start at main.c; what is done to the store is in scenario.c,
 * what is done to it by the disk in disk.c, by memory in memory.c, by a power cut in recording.c. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/power_cut.h"

enum {
	RUNS_MAX = 256, /* appends of one scenario, those of the journal that it begins with included */
	PATH_LEN = 512,
	WHY_LEN = 1024,
	END_CLEAN = 0, END_REFUSED = 10, END_WRONG = 99, /* how a child ends; refused: the journal could not be opened */
};

/* --- faults: disk.c and memory.c ask, each time, whether this is the one ------------------------------------------------ */

enum fault { FAULT_NONE, FAULT_EIO, FAULT_FULL, FAULT_SHORT, FAULT_BUSY, FAULT_SQLITE_MEMORY, FAULT_OWN_MEMORY, FAULT_LIBRARY_MEMORY, FAULT_COUNT };
enum operation {
	OPERATION_OPEN, OPERATION_READ, OPERATION_WRITE, OPERATION_SYNC, OPERATION_TRUNCATE, OPERATION_SIZE, OPERATION_LOCK, OPERATION_SHARED_MAP, OPERATION_SHARED_LOCK,
	OPERATION_DELETE, OPERATION_ACCESS, OPERATION_NAME /* mkdir, link, rename */, OPERATION_MEMORY, OPERATION_COUNT
};

/* In memory that parent and child share. */
struct faults {
	enum fault fault;
	bool persistent; /* and all that come after it */
	uint64_t at; /* which one fails, from 0 */
	atomic_bool armed;
	atomic_ullong passed, failed; /* those that it might have been; that it was */
	atomic_ullong failed_at[OPERATION_COUNT];
};
extern struct faults *faults;
void faults_set_up(void);
void faults_plan(enum fault fault, bool persistent, uint64_t at);
bool faults_hit(enum operation operation);
const char *fault_name(enum fault fault);
const char *operation_name(enum operation operation);

/* Before SQLite is used: our methods of memory, then our disk as its own. */
void memory_set_up(void);
extern const bool memory_reaches_libraries; /* not under a sanitizer */
void disk_set_up(void);
/* Only files in this folder are counted, failed and recorded. NULL: none. */
void disk_watch(const char *folder);

/* --- what was done, by number ------------------------------------------------------------------------------------------- */

enum outcome { OUTCOME_UNKNOWN, OUTCOME_ACKNOWLEDGED, OUTCOME_REFUSED /* nothing of it may be there */ };
enum shape { SHAPE_SMALL, SHAPE_LABELS, SHAPE_MEDIUM, SHAPE_LARGE, SHAPE_FACT, SHAPE_SNAPSHOT, SHAPE_EVENT, SHAPE_ENDED /* with a fact */, SHAPE_OVER /* without */, SHAPE_DEFINITION, SHAPE_DOCUMENT, SHAPE_COUNT };
enum removal { REMOVAL_NONE, REMOVAL_ASKED /* it is gone, or whole */, REMOVAL_DONE };

struct ledger { /* shared between parent and child */
	unsigned count;
	struct {
		uint8_t shape, outcome, removal, erasure; /* erasure: of its value */
	} runs[RUNS_MAX];
	uint64_t signed_size; /* a checkpoint of that size was handed out */
	unsigned copied; /* a copy was acknowledged that holds the first so many; 0: none was */
	bool is_copying; /* one was asked for */
	uint64_t entries_before; /* of the journal that it all began with */
	unsigned reads; /* that came back with what they had to */
	unsigned upkeep; /* steps of retention, copies, restores and migrations that came to their end */
};

/* What is done to a journal in `folder`; true: to its end. Ends the process when something is wrong (END_WRONG). */
typedef bool (*scenario)(const char *folder, struct ledger *ledger);
bool scenario_new(const char *folder, struct ledger *ledger); /* a journal that is not there yet */
bool scenario_work(const char *folder, struct ledger *ledger); /* all shapes, batches, checkpoints, reads */
bool scenario_dirty(const char *folder, struct ledger *ledger); /* as work, and ends with no close: call it in a child */
bool scenario_recover(const char *folder, struct ledger *ledger); /* open what was left like that, read, append */
bool scenario_read(const char *folder, struct ledger *ledger); /* without a daemon: read-only, tables compared */
/* upkeep.c */
bool scenario_fill(const char *folder, struct ledger *ledger); /* tiles full of runs that have ended: what the next one begins with */
bool scenario_retain(const char *folder, struct ledger *ledger); /* a value erased, a run purged, then all that is over, and free pages given back */
bool scenario_backup(const char *folder, struct ledger *ledger); /* a copy while it goes on; the next one begins with one */
bool scenario_restore(const char *folder, struct ledger *ledger);
bool scenario_migrate(const char *folder, struct ledger *ledger); /* of a journal that an earlier build wrote */
void make_earlier_journal(const char *folder, struct ledger *ledger);
/* Of the copy in the folder, when one was asked for, and of a restore that was interrupted, which it completes. False: *why. */
bool upkeep_is_good(const char *folder, const struct ledger *ledger, char *why);

/* Opens it as the daemon would: all that was acknowledged is there with its values, nothing of what was refused, the rest whole or not at
 * all; tree, checkpoints, keys, tables; then it takes one more append. False: *why. */
bool journal_is_good(const char *folder, const struct ledger *ledger, char *why);

void folder_copy(const char *from, const char *to); /* without journal.db-shm, which no crash of a machine leaves */
void folder_remove(const char *folder);

_Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- power loss ----------------------------------------------------------------------------------------------------------- */

enum lie { LIE_NONE, LIE_LOG, LIE_DATABASE, LIE_FOLDER, LIE_COUNT }; /* whose syncs do nothing */

extern atomic_bool recording;
/* From here on all changes of files beneath `root` are kept, in order; what is there already is durable. */
void recording_start(const char *root);
void recording_stop(void);
enum promise { PROMISE_APPEND /* number: the run */, PROMISE_CHECKPOINT /* its size */, PROMISE_REMOVED, PROMISE_ERASED /* the run */, PROMISE_COPIED /* so many runs */ };
/* What was acknowledged here holds behind every later cut. */
void recording_acknowledge(enum promise promise, uint64_t number);
/* For disk.c. A node is a file or folder; NODE_NONE is none of ours. */
enum { NODE_NONE = -1 };
int recording_open(const char *path, bool is_new);
void recording_write(int node, uint64_t at, const void *data, size_t len);
void recording_truncate(int node, uint64_t size);
void recording_sync(int node);
void recording_make_folder(const char *path);
void recording_link(const char *from, const char *to);
void recording_rename(const char *from, const char *to);
void recording_unlink(const char *path);
void recording_sync_folder(const char *path);
/* Go through what was recorded. recording_step(): one operation further; false: that was the last. */
void recording_rewind(enum lie lie);
bool recording_step(bool *is_sync);
unsigned recording_pending(void); /* changes that a cut here may lose */
void recording_cut(enum cut cut, uint64_t seed, const char *root, struct ledger *acknowledged);
