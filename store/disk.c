/* How much room the journal's disk has, and what is done when it becomes little. A reserve (DATA/reserve, really allocated) is given
 * back when the disk is full, so that what is under way can be finished; new work is refused from then on, and taken again
 * when there is room for a new reserve.
 *
 *   OK ─▶ LOW: free space under the bound, no reserve, or a long write-ahead log: new work is refused, what is under way goes on
 *   LOW ─▶ FULL: also the reserve is used up (or the log is twice as long): appends fail, whoever made them waits, reading goes on
 *   FULL ─▶ LOW ─▶ OK as soon as there is room; nobody has to do anything but make some
 *
 * Threads: the writer tells of a full disk and of a commit that went well, the thread of the write-ahead log looks around once a
 * second; both under disk.lock. Anybody may ask. Start at disk_look() and disk_make_room(). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"

static const char *const state_names[] = {[STORE_DISK_OK] = "ok", [STORE_DISK_LOW] = "low", [STORE_DISK_FULL] = "full"};

const char *store_disk_state_name(enum store_disk_state state)
{
	CHECK((size_t)state < COUNT_OF(state_names));
	return state_names[state];
}

static void reserve_path(const struct store *store, char path[STORE_PATH_MAX])
{
	snprintf(path, STORE_PATH_MAX, "%s/reserve", store->data_dir);
}

/* fallocate() is refused by some file systems; then zeros take the room as well. */
static int allocate(int descriptor, uint64_t size)
{
	static const char zeros[64 << 10];

	if (fallocate(descriptor, 0, 0, (off_t)size) == 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		return -1;
	for (uint64_t at = 0; at < size; at += sizeof(zeros)) {
		size_t part = size - at < sizeof(zeros) ? (size_t)(size - at) : sizeof(zeros);

		if (pwrite(descriptor, zeros, part, (off_t)at) != (ssize_t)part)
			return -1;
	}
	return fdatasync(descriptor);
}

/* Not allocated whole is not there at all: half a reserve would be taken for one. */
static bool make_reserve(struct store *store)
{
	uint64_t size = store->options.reserve_bytes;
	char path[STORE_PATH_MAX];
	struct stat status;
	int descriptor;
	bool made;

	reserve_path(store, path);
	descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (descriptor < 0)
		return false;
	made = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == (off_t)size &&
	       (uint64_t)status.st_blocks * 512 >= size;
	if (!made)
		made = ftruncate(descriptor, 0) == 0 && allocate(descriptor, size) == 0;
	close(descriptor);
	if (!made)
		unlink(path);
	return made;
}

static uint64_t free_bytes(const struct store *store)
{
	struct statvfs status;

	if (statvfs(store->data_dir, &status) != 0)
		return UINT64_MAX; /* An error of its own, which the next commit meets. */
	return (uint64_t)status.f_bavail * status.f_frsize;
}

static uint64_t wal_bytes(const struct store *store)
{
	char path[STORE_PATH_MAX];
	struct stat status;

	snprintf(path, sizeof(path), "%s-wal", store->database_path);
	return stat(path, &status) == 0 ? (uint64_t)status.st_size : 0;
}

static void print_size(char *text, size_t size, uint64_t bytes)
{
	if (bytes >= 10ULL << 20)
		snprintf(text, size, "%llu MiB", (unsigned long long)(bytes >> 20));
	else
		snprintf(text, size, "%llu KiB", (unsigned long long)(bytes >> 10));
}

/* What is wrong, by how much, and what to do. */
static int explain(const struct store *store, const struct store_disk *disk, struct error *error)
{
	bool full = disk->state == STORE_DISK_FULL;
	const char *effect = full ? "nothing can be written, runs wait, reading goes on" : "new work is refused, what is under way goes on";
	char have[32], want[32];

	if (disk->wal_bytes >= store->options.wal_max_bytes) {
		print_size(have, sizeof(have), disk->wal_bytes);
		print_size(want, sizeof(want), store->options.wal_max_bytes);
		return error_set(error, ERR_FULL,
				 "disk full: the write-ahead log in %s has %s, over the limit of %s (limits.wal): %s. Another program keeps "
				 "an old state of journal.db open (a backup, sqlite3, journal verify --data): end it",
				 store->data_dir, have, want, effect);
	}
	print_size(have, sizeof(have), disk->free_bytes);
	print_size(want, sizeof(want), store->options.reserve_bytes + store->options.low_bytes);
	return error_set(error, ERR_FULL,
			 "disk full: %s has %s free, %s are wanted (limits.reserve and limits.lowSpace)%s: %s. Make room there; it goes on by itself",
			 store->data_dir, have, want, disk->reserve_bytes == 0 && store->options.reserve_bytes > 0 ? " and the reserve is gone" : "",
			 effect);
}

static void read_state(struct store *store, struct store_disk *disk)
{
	disk->state = (enum store_disk_state)atomic_load(&store->disk.state);
	disk->free_bytes = atomic_load(&store->disk.free_bytes);
	disk->reserve_bytes = atomic_load(&store->disk.reserve_bytes);
	disk->wal_bytes = atomic_load(&store->disk.wal_bytes);
	disk->low_bytes = store->options.low_bytes;
	disk->reserve_wanted = store->options.reserve_bytes;
	disk->wal_max_bytes = store->options.wal_max_bytes;
	uint64_t since_us = atomic_load(&store->disk.held_since_us), until_us = atomic_load(&store->disk.held_until_us);
	disk->held_ms = since_us == 0 || until_us < since_us ? 0 : (int64_t)(until_us - since_us) / 1000;
}

void disk_note_copy(struct store *store, bool is_whole)
{
	uint64_t now_us = store->options.now_us();

	atomic_store(&store->disk.held_until_us, now_us);
	if (is_whole)
		atomic_store(&store->disk.held_since_us, 0);
	else if (atomic_load(&store->disk.held_since_us) == 0)
		atomic_store(&store->disk.held_since_us, now_us);
}

bool disk_log_is_held(struct store *store)
{
	return atomic_load(&store->disk.held_since_us) != 0;
}

void store_disk(struct store *store, struct store_disk *disk)
{
	read_state(store, disk);
}

int store_disk_check(struct store *store, struct error *error)
{
	struct store_disk disk;

	ERROR_BEGIN(error);
	read_state(store, &disk);
	return disk.state == STORE_DISK_OK ? 0 : explain(store, &disk, error);
}

/* With the lock. */
static void change_state(struct store *store, enum store_disk_state state)
{
	enum store_disk_state before = (enum store_disk_state)atomic_load(&store->disk.state);
	struct store_disk disk;
	struct error why = {0};

	if (state == before)
		return;
	atomic_store(&store->disk.state, (int)state);
	if (state == STORE_DISK_OK) {
		log_info(LOG_STORE, "disk state=ok free=%llu reserve=%llu: new work is taken again", (unsigned long long)atomic_load(&store->disk.free_bytes),
			 (unsigned long long)atomic_load(&store->disk.reserve_bytes));
		return;
	}
	read_state(store, &disk);
	explain(store, &disk, &why);
	log_warn(LOG_STORE, "disk state=%s %s", state_names[state], why.message);
}

bool disk_is_watched(const struct store *store)
{
	return store->options.reserve_bytes > 0 || store->options.low_bytes > 0;
}

/* With the lock: what the figures say. */
static enum store_disk_state judge(struct store *store)
{
	const struct store_options *options = &store->options;
	enum store_disk_state before = (enum store_disk_state)atomic_load(&store->disk.state);
	uint64_t space = atomic_load(&store->disk.free_bytes), wal = atomic_load(&store->disk.wal_bytes);
	/* A little more than the bound on the way back, so that a disk that stands just there does not open and close admission in turn. */
	uint64_t bound = before == STORE_DISK_OK ? options->low_bytes : options->low_bytes + options->low_bytes / 8;
	bool was_full = store->disk.full_us != 0 && store->options.now_us() - store->disk.full_us < STORE_DISK_HOLD_MS * 1000ULL;

	if (wal / 2 >= options->wal_max_bytes)
		return STORE_DISK_FULL;
	if (before == STORE_DISK_FULL && (was_full || space < STORE_DISK_FULL_MARGIN))
		return STORE_DISK_FULL;
	if (was_full || space < bound || wal >= options->wal_max_bytes || (options->reserve_bytes > 0 && atomic_load(&store->disk.reserve_bytes) == 0))
		return STORE_DISK_LOW;
	return STORE_DISK_OK;
}

void disk_look(struct store *store)
{
	uint64_t wanted = store->options.reserve_bytes;

	if (!disk_is_watched(store))
		return;
	uv_mutex_lock(&store->disk.lock);
	atomic_store(&store->disk.free_bytes, free_bytes(store));
	atomic_store(&store->disk.wal_bytes, wal_bytes(store));
	if (wanted > 0 && atomic_load(&store->disk.reserve_bytes) == 0 &&
	    atomic_load(&store->disk.free_bytes) >= wanted + store->options.low_bytes && make_reserve(store)) {
		atomic_store(&store->disk.reserve_bytes, wanted);
		atomic_store(&store->disk.free_bytes, free_bytes(store));
	}
	change_state(store, judge(store));
	uv_mutex_unlock(&store->disk.lock);
}

bool disk_make_room(struct store *store)
{
	bool again = true;
	char path[STORE_PATH_MAX];

	if (!disk_is_watched(store))
		return false;
	reserve_path(store, path);
	uv_mutex_lock(&store->disk.lock);
	store->disk.full_us = store->options.now_us();
	atomic_store(&store->disk.free_bytes, free_bytes(store));
	if (atomic_load(&store->disk.reserve_bytes) > 0) {
		/* Admission ends with the same step, so what the reserve gives is for what is under way. */
		unlink(path);
		atomic_store(&store->disk.reserve_bytes, 0);
		atomic_store(&store->disk.free_bytes, free_bytes(store));
		change_state(store, STORE_DISK_LOW);
	} else if (atomic_load(&store->disk.state) == STORE_DISK_OK) {
		change_state(store, STORE_DISK_LOW);
	} else {
		change_state(store, STORE_DISK_FULL);
		again = false;
	}
	uv_mutex_unlock(&store->disk.lock);
	return again;
}

void disk_written(struct store *store)
{
	if (atomic_load(&store->disk.state) != STORE_DISK_FULL)
		return;
	uv_mutex_lock(&store->disk.lock);
	store->disk.full_us = 0;
	change_state(store, STORE_DISK_LOW);
	uv_mutex_unlock(&store->disk.lock);
}

int disk_check_log(struct store *store, uint64_t bytes, struct error *error)
{
	struct store_disk disk;

	if (!disk_is_watched(store) || bytes / 2 < store->options.wal_max_bytes)
		return 0;
	atomic_store(&store->disk.wal_bytes, bytes); /* the last look may be a second old: what is refused is told by this */
	read_state(store, &disk);
	disk.state = STORE_DISK_FULL;
	return explain(store, &disk, error);
}

bool disk_takes_new_work(struct store *store)
{
	return atomic_load(&store->disk.state) == STORE_DISK_OK;
}

void disk_init(struct store *store)
{
	CHECK(uv_mutex_init(&store->disk.lock) == 0);
}

void disk_open(struct store *store)
{
	char path[STORE_PATH_MAX];
	struct stat status;

	if (!disk_is_watched(store))
		return;
	reserve_path(store, path);
	/* One that is there already holds its room, also where there would be none for it now. */
	if (store->options.reserve_bytes > 0 && lstat(path, &status) == 0 && make_reserve(store))
		atomic_store(&store->disk.reserve_bytes, store->options.reserve_bytes);
	/* Opening the journal needs a little as well: the index of its write-ahead log, a migration. */
	if (free_bytes(store) < STORE_DISK_FULL_MARGIN)
		disk_make_room(store);
	disk_look(store);
}

void disk_close(struct store *store)
{
	uv_mutex_destroy(&store->disk.lock);
}
