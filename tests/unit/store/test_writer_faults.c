/* What writes a journal while a call fails beneath it. Each deed (appends of all kinds, a large value, retention, a start, a migration, a backup,
 * a restore …) is done again and again upon copies of one journal; each time another call of the store's fails:
 *
 *   STARVED      a call of SQLite's for which the machine gives nothing, neither memory nor what stands on the disk: each statement as it is
 *                prepared, and the first times that it is run
 *   DISK_ERROR   one call of SQLite's to the system (EIO)
 *   DISK_FULL    … and all that come after it, of those that take room (ENOSPC)
 *   SYSTEM_ERROR one call to the system of the store's own (EIO)
 *   SYSTEM_FULL  … (ENOSPC)
 *
 * Then: an error with its reason, and the journal is as it was, or as it would be without a fault; and what failed succeeds when it is asked for again, on
 * the same store unless that is broken. In this process, by hand and so without threads, but for the backup. By operation of the disk, at
 * cuts of the power and in processes that die: tests/torture. Start at try_at(). */
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/statvfs.h>

#include "embedded.h"
#include "tests/unit/store/fixture.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
/* Each call in a build that counts coverage; every so many calls where the tests have to be quick, and where each costs many times as much. */
#if defined(SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SPARSER = 7 };
#elif defined(REPRISE_COVERAGE)
enum { SPARSER = 1 };
#else
enum { SPARSER = 2 };
#endif

enum {
	CALLS_OF_ONE = 2, /* so often a statement's runs are counted: one that has run will not run otherwise */
	STATEMENTS_SEEN = 1024,
	CHECK_EVERY = 7, /* … of the faults the tables are built anew */
	SMALL_RUNS = 3, FULL_RUNS = 90, /* more than a tile of entries */
	LARGE_SIZE = CONTENT_CHUNK + 70000,
	TURNS_MAX = 500,
	DAYS_LATER = 400,
};

/* --- calls that fail -------------------------------------------------------------------------------------------------------- */

enum way { NO_FAULT, STARVED, DISK_ERROR, DISK_FULL, SYSTEM_ERROR, SYSTEM_FULL };

static struct {
	enum way way;
	unsigned at, calls; /* which one fails, from 0; those so far */
	bool was_hit;
	sqlite3_stmt *seen[STATEMENTS_SEEN];
	unsigned times[STATEMENTS_SEEN];
} faults;
static uv_mutex_t faults_lock;
static _Thread_local bool is_starving;

static void arm(enum way way, unsigned at)
{
	memset(&faults, 0, sizeof(faults));
	faults.at = at;
	faults.way = way;
}

static void disarm(void)
{
	uv_mutex_lock(&faults_lock);
	faults.way = NO_FAULT;
	uv_mutex_unlock(&faults_lock);
}

/* Is it this one? persistent: or one that came before. */
static bool comes_due(enum way way, bool persistent)
{
	bool due;

	uv_mutex_lock(&faults_lock);
	due = faults.way == way && (faults.calls++ == faults.at || (persistent && faults.calls > faults.at));
	faults.was_hit |= due && way != STARVED;
	uv_mutex_unlock(&faults_lock);
	return due;
}

static bool is_counted(sqlite3_stmt *statement)
{
	size_t i = 0;
	bool counted;

	uv_mutex_lock(&faults_lock);
	while (i < STATEMENTS_SEEN && faults.seen[i] != statement && faults.seen[i] != NULL)
		i++;
	counted = faults.way == STARVED && i < STATEMENTS_SEEN && faults.times[i]++ < CALLS_OF_ONE;
	if (counted)
		faults.seen[i] = statement;
	uv_mutex_unlock(&faults_lock);
	return counted;
}

static bool refuses(void)
{
	if (is_starving)
		faults.was_hit = true;
	return is_starving;
}

/* SQLite's memory. */
static sqlite3_mem_methods real;

static void *give(int size)
{
	return refuses() ? NULL : real.xMalloc(size);
}

static void *give_more(void *memory, int size)
{
	return refuses() ? NULL : real.xRealloc(memory, size);
}

/* SQLite's calls to the system. */
enum { BELOW_OPEN, BELOW_READ, BELOW_PREAD, BELOW_PREAD64, BELOW_WRITE, BELOW_PWRITE, BELOW_PWRITE64, BELOW_TRUNCATE, BELOW_COUNT };
static sqlite3_syscall_ptr real_below[BELOW_COUNT];

static bool system_fails(bool takes_room)
{
	errno = EIO;
	if (refuses() || comes_due(DISK_ERROR, false))
		return true;
	if (!takes_room || !comes_due(DISK_FULL, true))
		return false;
	errno = ENOSPC;
	return true;
}

static int open_below(const char *path, int flags, int mode)
{
	return system_fails(false) ? -1 : ((int (*)(const char *, int, int))real_below[BELOW_OPEN])(path, flags, mode);
}

static ssize_t read_below(int file, void *data, size_t size)
{
	return system_fails(false) ? -1 : ((ssize_t(*)(int, void *, size_t))real_below[BELOW_READ])(file, data, size);
}

static ssize_t pread_below(int file, void *data, size_t size, off_t at)
{
	return system_fails(false) ? -1 : ((ssize_t(*)(int, void *, size_t, off_t))real_below[BELOW_PREAD])(file, data, size, at);
}

static ssize_t pread64_below(int file, void *data, size_t size, off_t at)
{
	return system_fails(false) ? -1 : ((ssize_t(*)(int, void *, size_t, off_t))real_below[BELOW_PREAD64])(file, data, size, at);
}

static ssize_t write_below(int file, const void *data, size_t size)
{
	return system_fails(true) ? -1 : ((ssize_t(*)(int, const void *, size_t))real_below[BELOW_WRITE])(file, data, size);
}

static ssize_t pwrite_below(int file, const void *data, size_t size, off_t at)
{
	return system_fails(true) ? -1 : ((ssize_t(*)(int, const void *, size_t, off_t))real_below[BELOW_PWRITE])(file, data, size, at);
}

static ssize_t pwrite64_below(int file, const void *data, size_t size, off_t at)
{
	return system_fails(true) ? -1 : ((ssize_t(*)(int, const void *, size_t, off_t))real_below[BELOW_PWRITE64])(file, data, size, at);
}

static int truncate_below(int file, off_t size)
{
	return system_fails(false) ? -1 : ((int (*)(int, off_t))real_below[BELOW_TRUNCATE])(file, size);
}

static const struct {
	const char *name;
	sqlite3_syscall_ptr failing;
} below[BELOW_COUNT] = {
	[BELOW_OPEN] = {"open", (sqlite3_syscall_ptr)open_below},	    [BELOW_READ] = {"read", (sqlite3_syscall_ptr)read_below},
	[BELOW_PREAD] = {"pread", (sqlite3_syscall_ptr)pread_below},	    [BELOW_PREAD64] = {"pread64", (sqlite3_syscall_ptr)pread64_below},
	[BELOW_WRITE] = {"write", (sqlite3_syscall_ptr)write_below},	    [BELOW_PWRITE] = {"pwrite", (sqlite3_syscall_ptr)pwrite_below},
	[BELOW_PWRITE64] = {"pwrite64", (sqlite3_syscall_ptr)pwrite64_below}, [BELOW_TRUNCATE] = {"ftruncate", (sqlite3_syscall_ptr)truncate_below},
};

/* Before SQLite is used. Without small pieces held in reserve, which would not fail. */
static void set_up_faults(void)
{
	sqlite3_mem_methods failing;
	sqlite3_vfs *system;

	ck_assert_int_eq(uv_mutex_init(&faults_lock), 0);
	ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real), SQLITE_OK);
	failing = real;
	failing.xMalloc = give;
	failing.xRealloc = give_more;
	ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_MALLOC, &failing), SQLITE_OK);
	ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0), SQLITE_OK);
	connection_set_up_library();
	system = sqlite3_vfs_find(NULL);
	for (size_t i = 0; i < COUNT_OF(below); i++) {
		real_below[i] = system->xGetSystemCall(system, below[i].name);
		if (real_below[i] != NULL) /* which of them SQLite calls is a matter of how it was built */
			ck_assert_int_eq(system->xSetSystemCall(system, below[i].name, below[i].failing), SQLITE_OK);
	}
}

/* The store's calls of SQLite: the linker brings them here (writer_faults_wraps in meson.build). */
#define STARVE(type, name, parameters, arguments)  \
	type __real_##name parameters;              \
	type __wrap_##name parameters;              \
	type __wrap_##name parameters               \
	{                                           \
		type result;                        \
		is_starving = comes_due(STARVED, false); \
		result = __real_##name arguments;   \
		is_starving = false;                \
		return result;                      \
	}
STARVE(int, sqlite3_prepare_v2, (sqlite3 *db, const char *sql, int len, sqlite3_stmt **statement, const char **tail), (db, sql, len, statement, tail))
STARVE(int, sqlite3_prepare_v3, (sqlite3 *db, const char *sql, int len, unsigned flags, sqlite3_stmt **statement, const char **tail), (db, sql, len, flags, statement, tail))
STARVE(int, sqlite3_open_v2, (const char *path, sqlite3 **db, int flags, const char *layer), (path, db, flags, layer))
STARVE(int, sqlite3_exec, (sqlite3 *db, const char *sql, sqlite3_callback on_row, void *arg, char **message), (db, sql, on_row, arg, message))
STARVE(sqlite3_backup *, sqlite3_backup_init, (sqlite3 *to, const char *to_name, sqlite3 *from, const char *from_name), (to, to_name, from, from_name))
STARVE(int, sqlite3_backup_step, (sqlite3_backup *backup, int pages), (backup, pages))
STARVE(int, sqlite3_wal_checkpoint_v2, (sqlite3 *db, const char *name, int mode, int *frames, int *copied), (db, name, mode, frames, copied))

int __real_sqlite3_step(sqlite3_stmt *statement);
int __wrap_sqlite3_step(sqlite3_stmt *statement);
int __wrap_sqlite3_step(sqlite3_stmt *statement)
{
	int result;

	is_starving = is_counted(statement) && comes_due(STARVED, false);
	result = __real_sqlite3_step(statement);
	is_starving = false;
	return result;
}

/* The store's own calls to the system. */
static bool own_call_fails(bool takes_room)
{
	bool fails = comes_due(SYSTEM_ERROR, false);

	errno = EIO;
	if (fails || !takes_room || !comes_due(SYSTEM_FULL, false))
		return fails;
	errno = ENOSPC;
	return true;
}

#define REFUSE(type, failure, takes_room, name, parameters, arguments) \
	type __real_##name parameters;                                \
	type __wrap_##name parameters;                                \
	type __wrap_##name parameters                                 \
	{                                                             \
		int before = errno;                                   \
		if (own_call_fails(takes_room))                       \
			return failure;                               \
		errno = before;                                       \
		return __real_##name arguments;                       \
	}
#define REFUSE_BOTH(type, failure, takes_room, name, parameters, arguments)  \
	REFUSE(type, failure, takes_room, name, parameters, arguments)       \
	REFUSE(type, failure, takes_room, name##64, parameters, arguments)
REFUSE_BOTH(FILE *, NULL, true, fopen, (const char *path, const char *mode), (path, mode))
REFUSE(ssize_t, -1, false, read, (int file, void *data, size_t size), (file, data, size))
REFUSE_BOTH(ssize_t, -1, false, pread, (int file, void *data, size_t size, off_t at), (file, data, size, at))
REFUSE(ssize_t, -1, true, write, (int file, const void *data, size_t size), (file, data, size))
REFUSE_BOTH(ssize_t, -1, true, pwrite, (int file, const void *data, size_t size, off_t at), (file, data, size, at))
REFUSE(int, -1, false, fsync, (int file), (file))
REFUSE(int, -1, false, fdatasync, (int file), (file))
REFUSE_BOTH(int, -1, false, stat, (const char *path, struct stat *status), (path, status))
REFUSE_BOTH(int, -1, false, fstat, (int file, struct stat *status), (file, status))
REFUSE_BOTH(int, -1, false, statvfs, (const char *path, struct statvfs *status), (path, status))
REFUSE(int, -1, true, mkdir, (const char *path, mode_t mode), (path, mode))
REFUSE(int, -1, true, link, (const char *from, const char *to), (from, to))
REFUSE(int, -1, true, rename, (const char *from, const char *to), (from, to))
REFUSE(int, -1, false, unlink, (const char *path), (path))
REFUSE(int, -1, false, flock, (int file, int how), (file, how))
REFUSE_BOTH(int, -1, false, ftruncate, (int file, off_t size), (file, size))
REFUSE_BOTH(int, -1, true, fallocate, (int file, int mode, off_t at, off_t size), (file, mode, at, size))

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list list;

	va_start(list, flags);
	if (flags & O_CREAT)
		mode = va_arg(list, mode_t);
	va_end(list);
	return own_call_fails(true) ? -1 : __real_open(path, flags, mode);
}

int __wrap_open64(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list list;

	va_start(list, flags);
	if (flags & O_CREAT)
		mode = va_arg(list, mode_t);
	va_end(list);
	return own_call_fails(true) ? -1 : __real_open(path, flags, mode);
}

/* --- a journal, and what is done to it ------------------------------------------------------------------------------------------ */

/* The same clocks each time: so what comes out of a deed is the same to the byte. */
static int64_t wall_now_ms = 1764460800000; /* 2025-11-30 */

static uint64_t steady_now_us = 1000000;

static uint64_t steady_us(void)
{
	return steady_now_us;
}

static int64_t steady_ms(void)
{
	return wall_now_ms;
}

struct stage {
	char folder[300], beside[320]; /* where the copy is, and a place for another */
	uv_loop_t loop;
	struct store_options options;
	struct store *store; /* NULL: not open */
	struct error error; /* of the deed */
	struct arena arena;
	struct bytes large, medium; /* in chunks; stored once, by its digest */
};

static void make(struct stage *s, struct entry *entry, enum entry_kind kind, const char *run)
{
	*entry = (struct entry){.kind = kind, .data = json_object(&s->arena), .time_ms = wall_now_ms};
	if (run != NULL)
		json_set_text(&s->arena, entry->data, "runId", run);
}

static void make_run(struct stage *s, struct entry *entry, const char *run, const char *relation, const char *other)
{
	make_created(&s->arena, entry, run, "one", "{\"team\":\"a\",\"of\":\"b\"}");
	entry->time_ms = wall_now_ms;
	if (relation == NULL)
		return;
	struct json *related = json_object(&s->arena);
	json_set_text(&s->arena, related, "run", other);
	json_set_text(&s->arena, related, "step", "/do/0/a@1");
	json_set_boolean(&s->arena, related, "awaited", true);
	json_set(&s->arena, entry->data, relation, related);
}

static void make_fact(struct stage *s, struct entry *entry, const char *run)
{
	struct bytes statement = bytes_text(arena_printf(&s->arena, "{\"of\":\"%s\"}", run));
	struct digest document = digest_of(BYTES_OF("document")), subject = digest_of(BYTES_OF("subject"));

	make(s, entry, ENTRY_FACT_RECORDED, run);
	entry->statement = statement;
	entry->values[entry->value_count++] = (struct entry_value){digest_of(statement), statement, statement.len};
	json_set_text(&s->arena, entry->data, "verdict", "PASSED");
	json_set_text(&s->arena, entry->data, "runtime", "sim");
	json_set_text(&s->arena, entry->data, "stepId", "/do/0/x@1");
	json_set_digest(&s->arena, entry->data, "document", &document);
	json_set_digest(&s->arena, entry->data, "subject", &subject);
	entry_add_value(&s->arena, entry, "fact", bytes_text(arena_printf(&s->arena, "{\"object\":\"%s\"}", run)));
}

static void make_timer(struct stage *s, struct entry *entry, enum entry_kind kind, const char *run)
{
	make(s, entry, kind, run);
	json_set_text(&s->arena, entry->data, "timer", "/do/1/wait@1");
	json_set_text(&s->arena, entry->data, "due", "2031-01-02T03:04:05.000Z");
	json_set_text(&s->arena, entry->data, "wakes", "2031-01-02T03:04:05.000Z");
	json_set_boolean(&s->arena, entry->data, "waits", kind == ENTRY_TIMER_SET);
}

/* One run that goes through all that a run can, with a child and a fork. */
enum { LIFE_ENTRIES = 24 };
static size_t make_life(struct stage *s, struct entry *entries, const char *run)
{
	const char *child = arena_printf(&s->arena, "%s-child", run), *fork = arena_printf(&s->arena, "%s-fork", run);
	struct digest key = digest_of(bytes_text(fork));
	size_t n = 0;

	CHECK(run); /* which gcc doubts at -O2 */
	make_run(s, &entries[n++], run, NULL, NULL);
	make(s, &entries[n], ENTRY_TASK_COMPLETED, run);
	json_set_text(&s->arena, entries[n].data, "stepId", "/do/0/a@1");
	entry_add_value(&s->arena, &entries[n], "output", bytes_text(arena_printf(&s->arena, "\"output of %s\"", run)));
	entry_add_value(&s->arena, &entries[n++], "more", (struct bytes){s->large.data + 1, CONTENT_SMALL_MAX + 1000});
	for (unsigned i = 0; i < 2; i++) { /* a new day, and one that is there */
		make(s, &entries[n], ENTRY_ATTEMPT_SUCCEEDED, run);
		json_set(&s->arena, entries[n++].data, "spent", spent_json(&s->arena, &(struct spent){run, 1, 2}));
	}
	make_fact(s, &entries[n++], run);
	make(s, &entries[n], ENTRY_GATE_RECORDED, run);
	json_set_text(&s->arena, entries[n].data, "runtime", "sim");
	json_set_text(&s->arena, entries[n].data, "class", "unstable");
	entry_add_value(&s->arena, &entries[n++], "report", bytes_text(arena_printf(&s->arena, "{\"of\":\"%s\"}", run)));
	make(s, &entries[n], ENTRY_EVENT_EMITTED, run);
	json_set_digest(&s->arena, entries[n].data, "key", &key);
	entry_add_value(&s->arena, &entries[n++], "event", bytes_text(arena_printf(&s->arena, "{\"id\":\"%s\"}", run)));
	make_timer(s, &entries[n++], ENTRY_TIMER_SET, run);
	make_run(s, &entries[n++], child, "parent", run);
	make(s, &entries[n++], ENTRY_RUN_KILLED, child);
	make_timer(s, &entries[n++], ENTRY_TIMER_FIRED, run);
	make(s, &entries[n], ENTRY_RUN_SUSPENDED, run);
	json_set_boolean(&s->arena, entries[n++].data, "quarantined", true);
	make_run(s, &entries[n++], fork, "forkedFrom", run);
	make(s, &entries[n++], ENTRY_RUN_CANCELLED, fork);
	make(s, &entries[n++], ENTRY_RUN_RESUMED, run);
	make(s, &entries[n++], ENTRY_RUN_FAULTED, run);
	return n;
}

/* What belongs to no run. */
enum { OTHER_ENTRIES = 16 };
static size_t make_others(struct stage *s, struct entry *entries, const char *tag)
{
	static const enum entry_kind schedules[] = {ENTRY_SCHEDULE_TICKED, ENTRY_SCHEDULE_SKIPPED, ENTRY_SCHEDULE_PAUSED, ENTRY_SCHEDULE_RESUMED};
	struct bytes definition = bytes_text(arena_printf(&s->arena, "{\"n\":\"%s\"}", tag));
	struct digest digest = digest_of(definition), key = digest_of(bytes_text(tag));
	size_t n = 0;

	make(s, &entries[n], ENTRY_DEFINITION_ADDED, NULL);
	json_set_text(&s->arena, entries[n].data, "namespace", "tests");
	json_set_text(&s->arena, entries[n].data, "name", tag);
	json_set_text(&s->arena, entries[n].data, "version", "1.0.0");
	json_set_boolean(&s->arena, entries[n].data, "registered", true);
	json_set_boolean(&s->arena, entries[n].data, "scheduled", true);
	json_set_digest(&s->arena, entries[n].data, "definition", &digest);
	entry_add_value(&s->arena, &entries[n], "source", BYTES_OF("n: 1"));
	entry_add_value(&s->arena, &entries[n++], "definition", definition);
	for (size_t i = 0; i < COUNT_OF(schedules); i++) {
		make(s, &entries[n], schedules[i], NULL);
		json_set_text(&s->arena, entries[n].data, "schedule", arena_printf(&s->arena, "tests.%s", tag));
		json_set_text(&s->arena, entries[n].data, schedules[i] == ENTRY_SCHEDULE_TICKED ? "due" : "last", "2026-11-30T00:00:00.000Z");
		json_set_text(&s->arena, entries[n].data, "runId", "run-0");
		json_set_number(&s->arena, entries[n].data, "count", 1);
		json_set_number(&s->arena, entries[n++].data, "eventSeq", 4);
	}
	make(s, &entries[n], ENTRY_DOCUMENT_ADDED, NULL);
	json_set_text(&s->arena, entries[n].data, "mediaType", "text/plain");
	entry_add_value(&s->arena, &entries[n++], "document", bytes_text(tag));
	make(s, &entries[n], ENTRY_CONFIG_LOADED, NULL);
	json_set_text(&s->arena, entries[n].data, "runtime", "sim");
	json_set_digest(&s->arena, entries[n].data, "configuration", &key);
	entry_add_value(&s->arena, &entries[n++], "record", BYTES_OF("{\"record\":1}"));
	make(s, &entries[n], ENTRY_KEY_ADDED, NULL);
	json_set_text(&s->arena, entries[n].data, "purpose", "other");
	json_set_text(&s->arena, entries[n].data, "keyid", tag);
	json_set_text(&s->arena, entries[n++].data, "public", tag);
	make(s, &entries[n], ENTRY_EVENT_RECEIVED, NULL);
	json_set_digest(&s->arena, entries[n].data, "key", &key);
	entry_add_value(&s->arena, &entries[n++], "event", bytes_text(arena_printf(&s->arena, "{\"id\":\"%s\"}", tag)));
	make(s, &entries[n], ENTRY_EVENTS_FORGOTTEN, NULL);
	json_set_number(&s->arena, entries[n++].data, "before", 5);
	make(s, &entries[n], ENTRY_SINK_ADVANCED, NULL);
	json_set_text(&s->arena, entries[n].data, "sink", tag);
	json_set_number(&s->arena, entries[n++].data, "position", 7);
	return n;
}

/* --- deeds ------------------------------------------------------------------------------------------------------------------- */

static int fail_with(struct stage *s, const struct error *error)
{
	if (s->error.code == ERR_NONE)
		s->error = *error;
	return (int)error->code;
}

static bool open_store(struct stage *s)
{
	struct error error;

	s->store = NULL;
	if (store_open_by_hand(&s->store, &s->options, &error) != 0)
		fail_with(s, &error);
	return s->store != NULL;
}

static void close_store(struct stage *s)
{
	if (s->store != NULL)
		store_close(s->store);
	s->store = NULL;
}

/* Turns of the writer, until all that was asked for has been answered. */
static void turn_until(struct stage *s, const bool *done, size_t count)
{
	for (unsigned turns = 0; count > 0; turns++) {
		ck_assert_uint_lt(turns, TURNS_MAX);
		store_hand_over(s->store);
		store_step_writer(s->store);
		while (store_tell(s->store))
			continue;
		while (count > 0 && done[count - 1])
			count--;
	}
}

/* Two appends, which make one batch. */
static int append_two(struct stage *s, struct store_append *one, struct store_append *other)
{
	struct store_append *const both[] = {one, other};
	bool done[2] = {false};

	for (size_t i = 0; i < 2; i++) {
		if (both[i] == NULL) {
			done[i] = true;
			continue;
		}
		both[i]->on_done = on_append_done;
		both[i]->owner = &done[i];
		ck_assert_int_eq(store_append(s->store, both[i]), 0);
	}
	turn_until(s, done, 2);
	for (size_t i = 0; i < 2; i++)
		if (both[i] != NULL && fail_with(s, &both[i]->error) != 0)
			return (int)both[i]->error.code;
	return 0;
}

/* Lives and others, with a snapshot that replaces one and another that is forgotten. */
static int do_append(struct stage *s)
{
	struct entry life[LIFE_ENTRIES], others[OTHER_ENTRIES];
	static const char *const also[] = {"run-1"};
	struct store_append one = {.entries = life, .entry_count = make_life(s, life, "new"), .snapshot_run = "run-0", .snapshot = BYTES_OF("a state"), .snapshot_seq = 4},
			    other = {.entries = others, .entry_count = make_others(s, others, "new"), .snapshot_run = "run-0", .forget_snapshot = true, .forget_also = also, .forget_also_count = 1};

	return append_two(s, &one, &other);
}

/* A run that has faulted goes on, to its end. */
static int do_retry(struct stage *s)
{
	struct entry entries[3];
	struct store_append append = {.entries = entries, .entry_count = 3, .urgent = true};

	make(s, &entries[0], ENTRY_RUN_RETRIED, "run-0");
	make_timer(s, &entries[1], ENTRY_TIMER_SET, "run-0");
	make(s, &entries[2], ENTRY_RUN_COMPLETED, "run-0");
	return append_two(s, &append, NULL);
}

/* In chunks; the second time that it is named it is there already. */
static int do_large(struct stage *s)
{
	struct entry entries[2];
	struct store_append append = {.entries = entries, .entry_count = 2};

	make_run(s, &entries[0], "large", NULL, NULL);
	make(s, &entries[1], ENTRY_TASK_COMPLETED, "large");
	entry_add_value(&s->arena, &entries[1], "output", s->large);
	entry_add_value(&s->arena, &entries[1], "again", s->large);
	return append_two(s, &append, NULL);
}

static int append_run(struct stage *s, const char *run)
{
	struct entry entry;
	struct store_append append = {.entries = &entry, .entry_count = 1};

	make_run(s, &entry, run, NULL, NULL);
	if (append_two(s, &append, NULL) == ERR_EXISTS) /* by an attempt before this one */
		s->error = (struct error){0};
	return (int)s->error.code;
}

static int sign(struct stage *s)
{
	bool done = false;
	struct store_sign sign = {.on_done = on_signed, .owner = &done};

	ck_assert_int_eq(store_sign_checkpoint(s->store, &sign), 0);
	turn_until(s, &done, 1);
	ck_assert(sign.error.code != ERR_NONE || sign.note.len > 0);
	buffer_close(&sign.note);
	return fail_with(s, &sign.error);
}

static int do_sign(struct stage *s)
{
	return append_run(s, "signed") == 0 ? sign(s) : (int)s->error.code;
}

static int do_open(struct stage *s)
{
	return open_store(s) ? 0 : (int)s->error.code;
}

static void on_purge_done(struct store_purge *purge)
{
	*(bool *)purge->owner = true;
}

static int ask_purge(struct stage *s, struct store_purge *purge)
{
	bool done = false;

	purge->on_done = on_purge_done;
	purge->owner = &done;
	ck_assert_int_eq(store_purge(s->store, purge), 0);
	turn_until(s, &done, 1);
	return fail_with(s, &purge->error);
}

/* A run and a value that are named, then all that is due. What an attempt before this one has done is gone. */
static int do_purge(struct stage *s)
{
	static const char *const runs[] = {"run-1", "run-1", "run-2"};
	struct store_purge all[] = {{.kind = STORE_PURGE_RUNS, .runs = runs, .run_count = 3, .reason = BYTES_OF("\"no more\"")},
				    {.kind = STORE_PURGE_CONTENT, .content = digest_of(BYTES_OF("\"output of run-3\"")), .reason = BYTES_OF("\"asked\"")},
				    {.kind = STORE_PURGE_CONTENT, .content = digest_of(s->medium)},
				    {.kind = STORE_PURGE_DUE}};

	for (size_t i = 0; i < COUNT_OF(all); i++) {
		struct error before = s->error;

		if (ask_purge(s, &all[i]) == ERR_GONE)
			s->error = before;
		else if (all[i].error.code != ERR_NONE)
			return (int)all[i].error.code;
	}
	return 0;
}

/* What the thread of the write-ahead log does, on a disk that is watched. */
static int do_tend(struct stage *s)
{
	if (append_run(s, "tended") != 0)
		return (int)s->error.code;
	s->store->wal_wanted = true;
	store_step_wal(s->store);
	return atomic_load(&s->store->is_broken) ? fail_with(s, &s->store->broken) : 0;
}

/* Without a daemon. */
static int do_look(struct stage *s)
{
	struct store_gate_filter filter = {0}, of_runtime = {.runtime = "sim"};
	struct store_reader *reader;
	struct store_details details;
	struct store_stats stats;
	struct store_gate *gates, gate;
	struct error error;
	struct bytes bytes;
	char hex[DIGEST_HEX_LEN + 1];
	uint64_t number;
	int64_t time_ms;
	size_t count;

	if (store_open_readonly(s->folder, &reader, &error) != 0)
		return fail_with(s, &error);
	if (reader_details(reader, &s->arena, &details, &error) != 0 || reader_stats(reader, &stats, &error) != 0 || reader_ended_runs(reader, INT64_MAX, &number, &time_ms, &error) != 0 ||
	    reader_snapshot(reader, &s->arena, "run-0", &number, &bytes, &error) != 0 || reader_gates(reader, &s->arena, &filter, &gates, &count, &error) != 0 ||
	    reader_gates(reader, &s->arena, &of_runtime, &gates, &count, &error) != 0 || reader_content_size(reader, CONTENT_ID(gates[0].seq, 0), &number, &error) != 0)
		goto out;
	ck_assert_uint_gt(count, 0);
	ck_assert_uint_gt(details.status_count, 0);
	digest_hex(&gates[0].id, hex);
	if (reader_gate(reader, &s->arena, hex, &gate, &error) == 0)
		ck_assert_uint_eq(gate.seq, gates[0].seq);
out:
	store_reader_close(reader);
	return fail_with(s, &error);
}

static int do_check(struct stage *s)
{
	struct store_copy copy;
	struct error error;
	char path[320];

	snprintf(path, sizeof(path), "%s/journal.db", s->folder);
	store_check_copy(path, &copy, &error);
	return fail_with(s, &error);
}

static void on_backup_done(struct store_backup *backup)
{
	*(bool *)backup->owner = true;
}

/* The thread of the backup needs a loop: the only deed whose store has threads. */
static int do_backup(struct stage *s)
{
	bool done = false;
	struct store_backup backup = {.path = s->beside, .on_done = on_backup_done, .owner = &done};
	struct store_copy copy;
	struct error error;

	if (store_open(&s->store, &s->loop, &s->options, &error) != 0) {
		s->store = NULL;
		return fail_with(s, &error);
	}
	ck_assert_int_eq(store_backup(s->store, &backup), 0);
	while (!done)
		uv_run(&s->loop, UV_RUN_ONCE);
	disarm();
	close_store(s);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	if (backup.error.code != ERR_NONE) {
		ck_assert_msg(access(s->beside, F_OK) != 0, "a copy is there although the backup failed: %s", backup.error.message);
	} else {
		ck_assert_msg(store_check_copy(s->beside, &copy, &error) == 0, "%s", error.message);
		ck_assert(copy.is_marked && copy.entries == backup.entries);
		unlink(s->beside);
	}
	return fail_with(s, &backup.error);
}

static int restore_from(struct stage *s, bool new_log)
{
	struct store_restore restore = {.source = s->beside, .data_dir = s->folder, .replace = true, .new_log = new_log, .original_is_gone = true};
	struct error error;

	store_restore(&restore, &error);
	return fail_with(s, &error);
}

static int do_restore(struct stage *s)
{
	return restore_from(s, false);
}

/* And the start that begins it. */
static int do_restore_new_log(struct stage *s)
{
	return restore_from(s, true) == 0 ? do_open(s) : (int)s->error.code;
}

/* --- what it all begins with ------------------------------------------------------------------------------------------------------ */

enum base { BASE_NOTHING, BASE_OLD /* of the first schema, empty */, BASE_SMALL, BASE_FULL };

struct bases {
	char root[256];
};

static void base_path(const struct bases *bases, enum base base, char path[300])
{
	static const char *const names[] = {"nothing", "old", "small", "full"};

	snprintf(path, 300, "%s/%s", bases->root, names[base]);
}

static void copy_file(const char *from, const char *to)
{
	static char block[1 << 16];
	int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n;

	ck_assert_int_ge(in, 0);
	ck_assert_int_ge(out, 0);
	while ((n = read(in, block, sizeof(block))) > 0)
		ck_assert_int_eq(write(out, block, (size_t)n), n);
	close(in);
	close(out);
}

static void copy_folder(const char *from, const char *to)
{
	DIR *list = opendir(from);

	ck_assert_ptr_nonnull(list);
	ck_assert_int_eq(mkdir(to, 0700), 0);
	for (struct dirent *item; (item = readdir(list)) != NULL;) {
		char one[600], other[600];

		if (item->d_name[0] == '.')
			continue;
		snprintf(one, sizeof(one), "%s/%s", from, item->d_name);
		snprintf(other, sizeof(other), "%s/%s", to, item->d_name);
		(item->d_type == DT_DIR ? copy_folder : copy_file)(one, other);
	}
	closedir(list);
}

static void check(struct stage *s, int code)
{
	ck_assert_msg(code == 0, "%s", s->error.message);
}

/* Runs that have ended long ago, and what else there is. */
static void fill(struct stage *s, unsigned runs)
{
	struct entry entries[LIFE_ENTRIES + OTHER_ENTRIES];
	struct store_append append = {.entries = entries};

	check(s, open_store(s) ? 0 : 1);
	for (unsigned i = 0; i < runs; i++) {
		const char *run = arena_printf(&s->arena, "run-%u", i);

		CHECK(run);
		if (i < SMALL_RUNS) {
			append.entry_count = make_life(s, entries, run);
		} else {
			make_run(s, &entries[0], run, NULL, NULL);
			make(s, &entries[1], ENTRY_TASK_COMPLETED, run);
			entry_add_value(&s->arena, &entries[1], "output", bytes_text(arena_printf(&s->arena, "\"output of %s\"", run)));
			if (i == SMALL_RUNS + 1)
				entry_add_value(&s->arena, &entries[1], "medium", s->medium);
			make(s, &entries[2], ENTRY_RUN_COMPLETED, run);
			append.entry_count = 3;
		}
		check(s, append_two(s, &append, NULL));
		append.snapshot_run = run;
		append.snapshot = BYTES_OF("a state");
		append.snapshot_seq = 4;
		make(s, &entries[0], ENTRY_TASK_STARTED, run);
		append.entry_count = 1;
		if (i == 0)
			check(s, append_two(s, &append, NULL));
		append = (struct store_append){.entries = entries};
	}
	append.entry_count = make_others(s, entries, "first");
	check(s, append_two(s, &append, NULL));
	check(s, sign(s)); /* in the hour of the first checkpoint; one more comes with the close */
	check(s, append_run(s, "last"));
	close_store(s);
}

static void stage_open(struct stage *s)
{
	memset(s, 0, sizeof(*s));
	arena_init(&s->arena);
	ck_assert_int_eq(uv_loop_init(&s->loop), 0);
	s->options = (struct store_options){.data_dir = s->folder, .now_us = steady_us, .wall_ms = steady_ms};
	uint8_t *noise = arena_alloc(&s->arena, LARGE_SIZE);
	uint32_t random = 1;
	for (size_t i = 0; i < LARGE_SIZE; i++)
		noise[i] = (uint8_t)((random = random * 1664525u + 1013904223u) >> 24); /* does not shrink */
	s->large = (struct bytes){noise, LARGE_SIZE};
	s->medium = (struct bytes){noise, CONTENT_SMALL_MAX + 5000};
}

static void stage_close(struct stage *s)
{
	close_store(s);
	ck_assert_int_eq(uv_loop_close(&s->loop), 0);
	arena_close(&s->arena);
}

static void make_bases(struct bases *bases)
{
	const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* where a sync costs nothing */
	struct connection connection;
	struct stage s;
	struct error error;
	char path[320], database[340];

	snprintf(bases->root, sizeof(bases->root), "%s/reprise-store-XXXXXX", getenv("TMPDIR") != NULL ? getenv("TMPDIR") : parent);
	ck_assert_ptr_nonnull(mkdtemp(bases->root));
	log_init(LOG_ERROR, 0);
	set_up_faults();
	for (enum base base = BASE_SMALL; base <= BASE_FULL; base++) {
		stage_open(&s);
		base_path(bases, base, s.folder);
		fill(&s, base == BASE_SMALL ? SMALL_RUNS : FULL_RUNS);
		stage_close(&s);
	}
	base_path(bases, BASE_OLD, path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(database, sizeof(database), "%s/journal.db", path);
	ck_assert_int_eq(connection_open(&connection, database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &error), 0);
	ck_assert_int_eq(connection_exec(&connection, schema_0001_journal_sql, &error), 0);
	ck_assert_int_eq(connection_exec(&connection, "PRAGMA user_version=1; PRAGMA application_id=1383101043", &error), 0);
	connection_close(&connection);
}

/* --- one fault --------------------------------------------------------------------------------------------------------------------- */

struct deed {
	const char *name;
	enum base base;
	int (*act)(struct stage *s);
	bool opens; /* the journal is not open yet */
	bool in_steps; /* in several transactions: it may end between any two, and goes on from there when it is asked for again */
	bool is_random; /* keys are made: what comes out is never the same */
	bool is_watched; /* the disk, with a reserve */
	bool has_copy; /* a copy is there */
};

struct sum {
	const struct deed *deed;
	struct digest before, after;
	unsigned tries, errors;
};

static void add_table(sqlite3 *db, const char *name, struct buffer *text)
{
	char sql[256];
	sqlite3_stmt *statement;

	/* Chunks that no value names yet are taken away with the next start. */
	snprintf(sql, sizeof(sql), "SELECT * FROM %s%s", name, strcmp(name, "blob_chunk") == 0 ? " WHERE digest IN (SELECT digest FROM blob)" : "");
	ck_assert_int_eq(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
	buffer_printf(text, "%s\n", name);
	while (sqlite3_step(statement) == SQLITE_ROW)
		for (int i = 0; i < sqlite3_column_count(statement); i++) {
			const void *data = sqlite3_column_blob(statement, i);
			const int head[] = {sqlite3_column_type(statement, i), sqlite3_column_bytes(statement, i)};

			buffer_add_bytes(text, (struct bytes){(const uint8_t *)head, sizeof(head)});
			buffer_add_bytes(text, (struct bytes){data, (size_t)head[1]});
		}
	sqlite3_finalize(statement);
}

/* All that the journal holds, but for its checkpoints: when they are signed is a matter of its own. */
static struct digest print_state(const struct stage *s)
{
	struct digest digest = {0};
	sqlite3_stmt *tables;
	struct buffer text;
	char path[340];
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s/journal.db", s->folder);
	if (access(path, F_OK) != 0)
		return digest;
	buffer_init(&text, CONTENT_MAX);
	ck_assert_int_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_prepare_v2(db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'checkpoint' ORDER BY name", -1, &tables, NULL), SQLITE_OK);
	while (sqlite3_step(tables) == SQLITE_ROW)
		add_table(db, (const char *)sqlite3_column_text(tables, 0), &text);
	sqlite3_finalize(tables);
	sqlite3_close(db);
	ck_assert(!text.overflow);
	digest = digest_of(buffer_bytes(&text));
	buffer_close(&text);
	return digest;
}

static void stage_begin(struct bases *bases, const struct deed *deed, struct stage *s)
{
	char from[300], database[340];

	stage_open(s);
	snprintf(s->folder, sizeof(s->folder), "%s/data", bases->root);
	snprintf(s->beside, sizeof(s->beside), "%s/beside.db", bases->root);
	base_path(bases, deed->base, from);
	if (deed->base != BASE_NOTHING)
		copy_folder(from, s->folder);
	snprintf(database, sizeof(database), "%s/journal.db", from);
	if (deed->has_copy)
		copy_file(database, s->beside);
	if (deed->base == BASE_FULL)
		s->options.retention = (struct store_retention){.runs_ms = 86400000, .entries_ms = 2 * 86400000, .every_ms = 1LL << 40};
	if (deed->is_watched) {
		s->options.reserve_bytes = 1 << 20;
		s->options.low_bytes = 1;
	}
	if (!deed->opens)
		check(s, open_store(s) ? 0 : 1);
}

static void stage_end(struct stage *s)
{
	stage_close(s);
	remove_tree(s->folder);
	unlink(s->beside);
}

static void check_journal(struct stage *s, const char *what)
{
	struct store_copy copy;
	struct error error;
	char path[340];

	ck_assert_msg(store_check_tables(s->folder, &error) == 0, "%s: %s", what, error.message);
	snprintf(path, sizeof(path), "%s/journal.db", s->folder);
	ck_assert_msg(store_check_copy(path, &copy, &error) == 0, "%s: %s", what, error.message);
}

static void check_error(const struct stage *s, int code, const char *what)
{
	ck_assert_msg(faults.was_hit, "%s: an error without a fault: %s", what, s->error.message);
	ck_assert_msg(code == (int)s->error.code, "%s: %d was returned, the error says %d: %s", what, code, (int)s->error.code, s->error.message);
	ck_assert_msg(s->error.message[0] != '\0', "%s: an error without a word", what);
	ck_assert_msg(code == ERR_IO || code == ERR_FULL || code == ERR_CORRUPT, "%s: code %d: %s", what, code, s->error.message);
}

/* Until it is done, on the same store where that can still be used. */
static void finish(struct stage *s, struct sum *sum, const char *what)
{
	const struct deed *deed = sum->deed;
	bool is_usable = s->store != NULL && !atomic_load(&s->store->is_broken);
	struct digest now;

	if (!is_usable) {
		close_store(s);
		now = print_state(s);
		if (!deed->in_steps && !deed->is_random)
			ck_assert_msg(digest_equal(&now, &sum->before) || digest_equal(&now, &sum->after), "%s: neither as before nor done: %s", what, s->error.message);
		if (digest_equal(&now, &sum->after) && !deed->opens)
			return; /* it broke when all was done */
		s->error = (struct error){0};
		if (!deed->opens)
			ck_assert_msg(open_store(s), "%s: not to be opened again: %s", what, s->error.message);
	} else {
		steady_now_us += 2 * STORE_DISK_HOLD_MS * 1000; /* there is room again: that is seen with the next look */
		store_step_wal(s->store);
	}
	s->error = (struct error){0};
	ck_assert_msg(deed->act(s) == 0, "%s, once more: %s", what, s->error.message);
}

/* False: so many calls there are not. */
static bool try_at(struct bases *bases, struct sum *sum, enum way way, unsigned at)
{
	static const char *const names[] = {"none", "starved", "error of the disk", "full disk", "error of the system", "system without room"};
	const struct deed *deed = sum->deed;
	struct digest now;
	struct stage s;
	char what[128];
	bool reached;
	int code;

	snprintf(what, sizeof(what), "%s, %s %u", deed->name, names[way], at);
	stage_begin(bases, deed, &s);
	arm(way, at);
	code = deed->act(&s);
	disarm();
	reached = faults.calls > at;
	sum->errors += code != 0;
	if (code != 0) {
		check_error(&s, code, what);
		finish(&s, sum, what);
	}
	close_store(&s);
	now = print_state(&s);
	ck_assert_msg(deed->is_random || digest_equal(&now, &sum->after), "%s: not what comes of it without a fault (%s)", what, s.error.message);
	if (sum->tries++ % CHECK_EVERY == 0)
		check_journal(&s, what);
	stage_end(&s);
	return reached;
}

static void try_all(struct bases *bases, struct sum *sum, enum way way, unsigned every, unsigned at_least)
{
	unsigned errors = sum->errors;

	for (unsigned at = 0; try_at(bases, sum, way, at); at += every * SPARSER)
		continue;
	ck_assert_msg(sum->errors - errors >= at_least / SPARSER, "%s, way %d: only %u errors", sum->deed->name, (int)way, sum->errors - errors);
}

/* As it is before, and without a fault. */
static void begin_deed(struct bases *bases, struct sum *sum, const struct deed *deed)
{
	struct stage s;

	*sum = (struct sum){.deed = deed};
	stage_begin(bases, deed, &s);
	close_store(&s);
	sum->before = print_state(&s);
	stage_end(&s);
	stage_begin(bases, deed, &s);
	check(&s, deed->act(&s));
	close_store(&s);
	sum->after = print_state(&s);
	check_journal(&s, deed->name);
	stage_end(&s);
}

static void end_bases(struct bases *bases)
{
	remove_tree(bases->root);
}

/* --- tests -------------------------------------------------------------------------------------------------------------------------- */

/* Whatever fails beneath an append of any kind: all of it is there or nothing, and it is done when it is asked for again. */
START_TEST(appends_are_whole_or_nothing)
{
	static const struct deed deeds[] = {
		{"append", BASE_SMALL, do_append, .opens = false}, {"append, watched", BASE_SMALL, do_append, .is_watched = true}, {"retry", BASE_SMALL, do_retry, .opens = false},
		{"large value", BASE_SMALL, do_large, .opens = false}, {"checkpoint", BASE_SMALL, do_sign, .in_steps = true},	   {"log", BASE_SMALL, do_tend, .in_steps = true, .is_watched = true},
	};
	struct bases bases;

	make_bases(&bases);
	for (size_t i = 0; i < COUNT_OF(deeds); i++) {
		struct sum sum;

		begin_deed(&bases, &sum, &deeds[i]);
		try_all(&bases, &sum, STARVED, deeds[i].is_watched ? 3 : 1, 5);
		try_all(&bases, &sum, DISK_ERROR, 3, 1);
		try_all(&bases, &sum, DISK_FULL, 2, 1);
		try_all(&bases, &sum, SYSTEM_ERROR, 1, 0);
		try_all(&bases, &sum, SYSTEM_FULL, 1, 0);
	}
	end_bases(&bases);
}
END_TEST

static sqlite3_int64 number_of(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *statement;
	sqlite3_int64 number;

	ck_assert_int_eq(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(statement), SQLITE_ROW);
	number = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	return number;
}

/* Whatever fails at a start, the first one and one that migrates too: it says so, and the next start finds all as it was. */
START_TEST(starts_succeed_the_next_time)
{
	static const struct deed deeds[] = {
		{"start", BASE_SMALL, do_open, .opens = true, .is_watched = true}, {"first start", BASE_NOTHING, do_open, .opens = true, .is_random = true}, {"migration", BASE_OLD, do_open, .opens = true, .is_random = true},
	};
	struct bases bases;

	make_bases(&bases);
	for (size_t i = 0; i < COUNT_OF(deeds); i++) {
		struct sum sum;

		begin_deed(&bases, &sum, &deeds[i]);
		try_all(&bases, &sum, STARVED, 1, 20);
		try_all(&bases, &sum, DISK_ERROR, 7, 4);
		try_all(&bases, &sum, DISK_FULL, 5, 0);
		try_all(&bases, &sum, SYSTEM_ERROR, 1, 4);
		try_all(&bases, &sum, SYSTEM_FULL, 1, 1);
	}
	end_bases(&bases);
}
END_TEST

/* An old journal is opened without a byte written: a disk that has none left keeps nobody from reading. Only what a crash left of a large value
 * is to be taken away, and that can wait. */
START_TEST(starts_on_a_full_disk)
{
	static const struct deed deed = {"start", BASE_SMALL, do_open, .opens = true};
	static const char leave_sql[] = "INSERT INTO blob_chunk VALUES (zeroblob(32), 0, 0, zeroblob(100))", count_sql[] = "SELECT count(*) FROM blob_chunk WHERE digest = zeroblob(32)";
	struct bases bases;

	make_bases(&bases);
	for (unsigned left = 0; left < 2; left++) {
		char path[340];
		sqlite3 *beside; /* keeps the index of the log, for which there may be no room either */
		struct stage s;

		stage_begin(&bases, &deed, &s);
		snprintf(path, sizeof(path), "%s/journal.db", s.folder);
		ck_assert_int_eq(sqlite3_open_v2(path, &beside, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
		if (left > 0)
			ck_assert_int_eq(sqlite3_exec(beside, leave_sql, NULL, NULL, NULL), SQLITE_OK);
		ck_assert_int_eq(number_of(beside, count_sql), left);
		arm(DISK_FULL, 0);
		ck_assert_msg(deed.act(&s) == 0, "%u left: %s", left, s.error.message);
		disarm();
		ck_assert_int_eq(faults.was_hit, left > 0);
		ck_assert_int_eq(number_of(beside, count_sql), left);
		close_store(&s);
		check(&s, deed.act(&s));
		ck_assert_int_eq(number_of(beside, count_sql), 0);
		sqlite3_close(beside);
		close_store(&s);
		stage_end(&s);
	}
	end_bases(&bases);
}
END_TEST

/* Whatever fails while runs are purged, values erased and tiles pruned: what was not done is done by the next pass, and nothing twice. */
START_TEST(retention_goes_on)
{
	static const struct deed deed = {"purge", BASE_FULL, do_purge, .in_steps = true};
	struct bases bases;
	struct sum sum;

	make_bases(&bases);
	wall_now_ms += DAYS_LATER * 86400000LL;
	begin_deed(&bases, &sum, &deed);
	try_all(&bases, &sum, STARVED, 1, 60);
	try_all(&bases, &sum, DISK_ERROR, 9, 4);
	try_all(&bases, &sum, DISK_FULL, 7, 2);
	end_bases(&bases);
}
END_TEST

/* Whatever fails while a copy is made, a journal is made of one, or one is looked at: no half copy, no half journal, and an error that says so. */
START_TEST(copies_are_whole_or_not_there)
{
	static const struct deed deeds[] = {
		{"backup", BASE_SMALL, do_backup, .opens = true, .in_steps = true},
		{"restore", BASE_SMALL, do_restore, .opens = true, .in_steps = true, .is_random = true, .has_copy = true},
		{"restore to a new log", BASE_SMALL, do_restore_new_log, .opens = true, .in_steps = true, .is_random = true, .has_copy = true},
		{"look", BASE_SMALL, do_look, .opens = true},
		{"check", BASE_SMALL, do_check, .opens = true},
	};
	struct bases bases;

	make_bases(&bases);
	for (size_t i = 0; i < COUNT_OF(deeds); i++) {
		bool only_reads = i >= 3;
		struct sum sum;

		begin_deed(&bases, &sum, &deeds[i]);
		try_all(&bases, &sum, STARVED, 1, 6);
		try_all(&bases, &sum, DISK_ERROR, 13, 1);
		try_all(&bases, &sum, DISK_FULL, 13, 0);
		try_all(&bases, &sum, SYSTEM_ERROR, 1, only_reads ? 0 : 4);
		try_all(&bases, &sum, SYSTEM_FULL, 1, 0);
	}
	end_bases(&bases);
}
END_TEST

TEST_MAIN("store-writer-faults", appends_are_whole_or_nothing, starts_succeed_the_next_time, starts_on_a_full_disk, retention_goes_on, copies_are_whole_or_not_there)
