/* See memory_disk.h. */
#include "tests/support/memory_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "workflow/base/check.h"

enum { NODES_MAX = 256, DESCRIPTORS = 64, DESCRIPTOR_FIRST = 1 << 20, BLOCK = 4096, SHARED_PAGES_MAX = 64, SHARED_LOCKS = 8, PATH_LEN = 256, BUSY_SLEEPS_MAX = 64 };

struct node {
	bool is_used, is_folder, is_removed; /* removed: no name is left, but a cut may give it back */
	unsigned open_count;
	struct content live, durable;
	struct names names, durable_names;
	struct change **pending; /* owned */
	size_t pending_count, pending_cap;
	/* Of the database's file: what its connections share. */
	void *shared[SHARED_PAGES_MAX]; /* owned */
	int shared_size;
	unsigned shared_users, shared_readers[SHARED_LOCKS];
	bool shared_writer[SHARED_LOCKS];
	unsigned readers; /* connections with a lock of SQLITE_LOCK_SHARED or more */
	const void *reserved, *exclusive; /* which one holds it */
};

static struct {
	struct node nodes[NODES_MAX]; /* 0: the root */
	uint64_t size, taken, used, refused;
	uint64_t change_count, dies_in;
	bool will_die, is_dead, lies;
	uint64_t random;
	unsigned sleeps;
} disk;

static bool is_ours(const char *path)
{
	static const char root[] = MEMORY_DISK;

	return path != NULL && strncmp(path, root, sizeof(root) - 1) == 0 && (path[sizeof(root) - 1] == '/' || path[sizeof(root) - 1] == '\0');
}

/* --- randomness ------------------------------------------------------------------------------------------------------- */

static uint64_t next_random(void)
{
	uint64_t value = disk.random += 0x9e3779b97f4a7c15u;

	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
	return value ^ (value >> 31);
}

static void fill_random(void *data, size_t size)
{
	uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)next_random();
}

static const char *random_name(void)
{
	return "memory-disk";
}

static uint32_t random_word(void)
{
	return (uint32_t)next_random();
}

static struct randombytes_implementation random_source = {.implementation_name = random_name, .random = random_word, .buf = fill_random};

/* --- nodes ------------------------------------------------------------------------------------------------------------ */

static uint64_t blocks(uint64_t size)
{
	return (size + BLOCK - 1) / BLOCK * BLOCK;
}

uint64_t memory_disk_free_bytes(void)
{
	uint64_t gone = disk.used + disk.taken;

	return gone < disk.size ? disk.size - gone : 0;
}

static void forget_pending(struct node *node)
{
	for (size_t i = 0; i < node->pending_count; i++) {
		free(node->pending[i]->data);
		free(node->pending[i]);
	}
	node->pending_count = 0;
}

static void free_node(struct node *node)
{
	forget_pending(node);
	free(node->pending);
	free(node->live.data);
	free(node->durable.data);
	for (int i = 0; i < SHARED_PAGES_MAX; i++)
		free(node->shared[i]);
	*node = (struct node){0};
}

/* Those that no name leads to, now or after any cut. */
static void forget_unnamed(void)
{
	bool is_named[NODES_MAX] = {[0] = true};

	for (int i = 0; i < NODES_MAX; i++) {
		const struct node *node = &disk.nodes[i];

		for (unsigned k = 0; node->is_folder && k < node->names.count; k++)
			is_named[node->names.list[k].node] = true;
		for (unsigned k = 0; node->is_folder && k < node->durable_names.count; k++)
			is_named[node->durable_names.list[k].node] = true;
		for (size_t k = 0; node->is_folder && k < node->pending_count; k++)
			is_named[node->pending[k]->target] = true;
	}
	for (int i = 0; i < NODES_MAX; i++)
		if (disk.nodes[i].is_used && !is_named[i])
			free_node(&disk.nodes[i]);
}

static void make_durable(struct node *node)
{
	for (size_t i = 0; i < node->pending_count; i++)
		if (node->is_folder)
			names_apply(&node->durable_names, node->pending[i]);
		else
			content_apply(&node->durable, node->pending[i]);
	forget_pending(node);
}

static int new_node(bool is_folder)
{
	for (int tries = 0; tries < 2; tries++) {
		for (int i = 1; i < NODES_MAX; i++)
			if (!disk.nodes[i].is_used) {
				disk.nodes[i] = (struct node){.is_used = true, .is_folder = is_folder};
				return i;
			}
		/* After a while a system writes back what nobody asked it to. */
		for (int i = 0; i < NODES_MAX; i++)
			make_durable(&disk.nodes[i]);
		forget_unnamed();
	}
	CHECK(!"nodes are left");
	return 0;
}

/* Its room is free at once, though the disk remembers it until the folder is synced. */
static void let_go(int index)
{
	struct node *node = &disk.nodes[index];

	for (int i = 0; i < NODES_MAX; i++)
		for (unsigned k = 0; disk.nodes[i].is_folder && k < disk.nodes[i].names.count; k++)
			if (disk.nodes[i].names.list[k].node == index)
				return; /* it has another name */
	CHECK(node->open_count == 0); /* nobody of ours goes on with it */
	disk.used -= blocks(node->live.len);
	node->live.len = 0;
	node->is_removed = true;
}

/* The folder that `path` is in, and its last part. NULL: there is no such folder. */
static struct node *find_folder(const char *path, const char **last)
{
	struct node *folder = &disk.nodes[0];
	const char *at = path + strlen(MEMORY_DISK);

	*last = "";
	for (;;) {
		size_t len;
		char part[CUT_NAME_LEN];
		const char *end;
		int index;

		while (*at == '/')
			at++;
		if (*at == '\0')
			return folder;
		end = strchr(at, '/');
		if (end == NULL) {
			*last = at;
			return folder;
		}
		len = (size_t)(end - at);
		CHECK(len < sizeof(part));
		memcpy(part, at, len);
		part[len] = '\0';
		index = names_find(&folder->names, part);
		if (index < 0 || !disk.nodes[folder->names.list[index].node].is_folder)
			return NULL;
		folder = &disk.nodes[folder->names.list[index].node];
		at = end;
	}
}

static int find_node(const char *path)
{
	const char *last;
	const struct node *folder = find_folder(path, &last);
	int index;

	if (folder == NULL)
		return -1;
	if (*last == '\0')
		return (int)(folder - disk.nodes);
	index = names_find(&folder->names, last);
	return index < 0 ? -1 : folder->names.list[index].node;
}

/* --- changes ------------------------------------------------------------------------------------------------------------ */

/* Is this where the power goes? The change itself is begun then, and may be torn. */
static bool dies_now(void)
{
	if (!disk.will_die || disk.dies_in-- > 0)
		return false;
	disk.is_dead = true;
	disk.will_die = false;
	return true;
}

static struct change *add_change(struct node *node, enum change_kind kind)
{
	struct change *change = memory_zero(sizeof(*change));

	if (node->pending_count == node->pending_cap) {
		node->pending_cap = node->pending_cap * 2 + 16;
		node->pending = memory_resize(node->pending, node->pending_cap * sizeof(*node->pending));
	}
	node->pending[node->pending_count++] = change;
	change->kind = kind;
	change->number = ++disk.change_count;
	return change;
}

/* A folder's names. False: the power went. */
static bool rename_in(struct node *folder, enum change_kind kind, const char *name, const char *old, int target)
{
	struct change *change;

	if (disk.is_dead)
		return false;
	change = add_change(folder, kind);
	snprintf(change->name, CUT_NAME_LEN, "%s", name);
	snprintf(change->old, CUT_NAME_LEN, "%s", old);
	change->target = target;
	if (dies_now())
		return false;
	names_apply(&folder->names, change);
	return true;
}

static bool has_room(const struct node *node, uint64_t size)
{
	uint64_t now = blocks(node->live.len), then = blocks(size);

	if (then <= now || then - now <= memory_disk_free_bytes())
		return true;
	disk.refused++;
	return false;
}

/* 0 or an errno. */
static int change_size(struct node *node, uint64_t size)
{
	if (disk.is_dead)
		return EIO;
	if (!has_room(node, size))
		return ENOSPC;
	add_change(node, CHANGE_TRUNCATE)->at = size;
	if (dies_now())
		return EIO;
	disk.used += blocks(size) - blocks(node->live.len);
	content_resize(&node->live, size);
	return 0;
}

static int write_at(struct node *node, const void *data, size_t size, uint64_t at)
{
	uint64_t end = at + size > node->live.len ? at + size : node->live.len;
	struct change *change;

	if (disk.is_dead)
		return EIO;
	if (!has_room(node, end))
		return ENOSPC;
	if (size == 0)
		return 0;
	change = add_change(node, CHANGE_WRITE);
	change->at = at;
	change->len = size;
	change->data = memcpy(memory_alloc(size), data, size);
	if (dies_now())
		return EIO;
	disk.used += blocks(end) - blocks(node->live.len);
	content_apply(&node->live, change);
	return 0;
}

static int sync_node(struct node *node)
{
	if (disk.is_dead || dies_now())
		return EIO;
	if (!disk.lies)
		make_durable(node);
	return 0;
}

/* --- life --------------------------------------------------------------------------------------------------------------- */

static void count_used(void)
{
	disk.used = 0;
	for (int i = 0; i < NODES_MAX; i++)
		if (disk.nodes[i].is_used)
			disk.used += blocks(disk.nodes[i].live.len) + blocks((uint64_t)disk.nodes[i].shared_size);
}

void memory_disk_format(uint64_t size, uint64_t seed)
{
	for (int i = 0; i < NODES_MAX; i++) {
		CHECK(disk.nodes[i].open_count == 0);
		free_node(&disk.nodes[i]);
	}
	memset(&disk, 0, sizeof(disk));
	disk.nodes[0] = (struct node){.is_used = true, .is_folder = true};
	disk.size = size;
	disk.random = seed;
	sqlite3_randomness(0, NULL); /* begins anew with what it gets from us */
}

void memory_disk_take(uint64_t bytes)
{
	disk.taken = bytes;
}

uint64_t memory_disk_refused(void)
{
	return disk.refused;
}

void memory_disk_die(uint64_t n)
{
	disk.will_die = n > 0;
	disk.dies_in = n > 0 ? n - 1 : 0;
	disk.is_dead |= n == 0;
}

void memory_disk_live(void)
{
	disk.will_die = false;
}

bool memory_disk_is_dead(void)
{
	return disk.is_dead;
}

void memory_disk_lie(bool lie)
{
	disk.lies = lie;
}

struct memory_disk_loss memory_disk_cut(enum cut cut, uint64_t seed)
{
	struct memory_disk_loss loss = {0};
	struct cutting cutting;
	uint64_t first = disk.change_count;

	for (int i = 0; i < NODES_MAX; i++) {
		struct node *node = &disk.nodes[i];

		if (node->pending_count > 0 && node->pending[0]->number < first)
			first = node->pending[0]->number;
		loss.changes += node->pending_count;
		for (size_t k = 0; k < node->pending_count; k++)
			loss.bytes += node->pending[k]->len;
	}
	cut_begin(&cutting, cut, seed, first, disk.change_count);
	for (int i = 0; i < NODES_MAX; i++) {
		struct node *node = &disk.nodes[i];
		const struct change *const *pending = (const struct change *const *)node->pending;

		if (!node->is_used)
			continue;
		CHECK(node->open_count == 0);
		for (int k = 0; k < SHARED_PAGES_MAX; k++) {
			free(node->shared[k]);
			node->shared[k] = NULL;
		}
		node->shared_size = 0;
		if (node->pending_count == 0 && !node->is_removed)
			continue; /* as it is */
		node->is_removed = false;
		if (node->is_folder) {
			cut_folder(&cutting, &node->durable_names, pending, node->pending_count);
			node->names = node->durable_names;
		} else {
			cut_file(&cutting, &node->durable, pending, node->pending_count);
			content_copy(&node->live, &node->durable);
		}
		forget_pending(node);
	}
	forget_unnamed();
	count_used();
	disk.is_dead = disk.will_die = disk.lies = false;
	disk.sleeps = 0;
	return loss;
}

/* --- SQLite's files ------------------------------------------------------------------------------------------------------- */

struct disk_file {
	sqlite3_file base;
	struct node *node;
	int locked; /* SQLITE_LOCK_… */
	bool is_sharing, sync_folder; /* SQLite syncs the folder of a log that it made with the file's first sync */
	unsigned shared_mask, shared_own; /* locks of the shared memory: all, and those that are exclusive */
	int last_errno, keep_log;
	char path[PATH_LEN];
};

static sqlite3_vfs *below, layer;

static int fail(struct disk_file *file, int number, int code)
{
	if (number == 0)
		return SQLITE_OK;
	file->last_errno = number;
	return number == ENOSPC ? SQLITE_FULL : code;
}

static int file_unlock(sqlite3_file *base, int level)
{
	struct disk_file *file = (struct disk_file *)base;
	struct node *node = file->node;

	if (file->locked <= level)
		return SQLITE_OK;
	if (node->exclusive == file)
		node->exclusive = NULL;
	if (node->reserved == file && level < SQLITE_LOCK_RESERVED)
		node->reserved = NULL;
	if (level == SQLITE_LOCK_NONE)
		node->readers--;
	file->locked = level;
	return SQLITE_OK;
}

static int file_lock(sqlite3_file *base, int level)
{
	struct disk_file *file = (struct disk_file *)base;
	struct node *node = file->node;

	if (disk.is_dead)
		return SQLITE_IOERR_LOCK;
	if (file->locked >= level)
		return SQLITE_OK;
	if (node->exclusive != NULL && node->exclusive != file)
		return SQLITE_BUSY;
	if (file->locked == SQLITE_LOCK_NONE)
		node->readers++;
	file->locked = SQLITE_LOCK_SHARED;
	if (level == SQLITE_LOCK_SHARED)
		return SQLITE_OK;
	if (node->reserved != NULL && node->reserved != file)
		return SQLITE_BUSY;
	node->reserved = file;
	file->locked = SQLITE_LOCK_RESERVED;
	if (level == SQLITE_LOCK_RESERVED)
		return SQLITE_OK;
	if (node->readers > 1)
		return SQLITE_BUSY;
	node->exclusive = file;
	file->locked = SQLITE_LOCK_EXCLUSIVE;
	return SQLITE_OK;
}

static int file_check_reserved(sqlite3_file *base, int *is_reserved)
{
	struct disk_file *file = (struct disk_file *)base;

	*is_reserved = file->node->reserved != NULL;
	return disk.is_dead ? SQLITE_IOERR_CHECKRESERVEDLOCK : SQLITE_OK;
}

static int file_shared_unmap(sqlite3_file *base, int delete);

static int file_close(sqlite3_file *base)
{
	struct disk_file *file = (struct disk_file *)base;

	file_unlock(base, SQLITE_LOCK_NONE);
	file_shared_unmap(base, 0);
	file->node->open_count--;
	return SQLITE_OK;
}

static int file_read(sqlite3_file *base, void *data, int size, sqlite3_int64 at)
{
	const struct content *live = &((struct disk_file *)base)->node->live;
	size_t there = (size_t)at < live->len ? live->len - (size_t)at : 0;

	if (disk.is_dead)
		return SQLITE_IOERR_READ;
	if (there >= (size_t)size) {
		memcpy(data, live->data + at, (size_t)size);
		return SQLITE_OK;
	}
	if (there > 0)
		memcpy(data, live->data + at, there);
	memset((uint8_t *)data + there, 0, (size_t)size - there);
	return SQLITE_IOERR_SHORT_READ;
}

static int file_write(sqlite3_file *base, const void *data, int size, sqlite3_int64 at)
{
	struct disk_file *file = (struct disk_file *)base;

	return fail(file, write_at(file->node, data, (size_t)size, (uint64_t)at), SQLITE_IOERR_WRITE);
}

static int file_truncate(sqlite3_file *base, sqlite3_int64 size)
{
	struct disk_file *file = (struct disk_file *)base;

	return fail(file, change_size(file->node, (uint64_t)size), SQLITE_IOERR_TRUNCATE);
}

static struct node *folder_of(const char *path)
{
	const char *last;

	return find_folder(path, &last);
}

static int file_sync(sqlite3_file *base, int flags)
{
	struct disk_file *file = (struct disk_file *)base;
	int number = sync_node(file->node);

	(void)flags;
	if (number == 0 && file->sync_folder) {
		file->sync_folder = false;
		number = sync_node(folder_of(file->path));
	}
	return fail(file, number, SQLITE_IOERR_FSYNC);
}

static int file_size(sqlite3_file *base, sqlite3_int64 *size)
{
	*size = (sqlite3_int64)((struct disk_file *)base)->node->live.len;
	return disk.is_dead ? SQLITE_IOERR_FSTAT : SQLITE_OK;
}

static int file_control(sqlite3_file *base, int what, void *arg)
{
	struct disk_file *file = (struct disk_file *)base;
	int *number = arg;

	switch (what) {
	case SQLITE_FCNTL_LOCKSTATE:
		*number = file->locked;
		return SQLITE_OK;
	case SQLITE_FCNTL_LAST_ERRNO:
		*number = file->last_errno;
		return SQLITE_OK;
	case SQLITE_FCNTL_PERSIST_WAL:
		if (*number >= 0)
			file->keep_log = *number != 0;
		*number = file->keep_log;
		return SQLITE_OK;
	default:
		return SQLITE_NOTFOUND;
	}
}

static int file_sector_size(sqlite3_file *base)
{
	(void)base;
	return BLOCK;
}

static int file_characteristics(sqlite3_file *base)
{
	(void)base;
	return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

/* --- … what the connections of a database share ------------------------------------------------------------------------------ */

static int file_shared_map(sqlite3_file *base, int page, int size, int extend, void volatile **mapped)
{
	struct disk_file *file = (struct disk_file *)base;
	struct node *node = file->node;

	*mapped = NULL;
	CHECK(page < SHARED_PAGES_MAX);
	if (disk.is_dead)
		return SQLITE_IOERR_SHMMAP;
	if (!file->is_sharing)
		node->shared_users++;
	file->is_sharing = true;
	if (node->shared[page] == NULL) {
		if (!extend)
			return SQLITE_OK;
		if (blocks((uint64_t)size) > memory_disk_free_bytes()) {
			disk.refused++;
			return SQLITE_IOERR_SHMSIZE;
		}
		node->shared[page] = memory_zero((size_t)size);
		node->shared_size += (int)blocks((uint64_t)size);
		disk.used += blocks((uint64_t)size);
	}
	*mapped = node->shared[page];
	return SQLITE_OK;
}

static int file_shared_lock(sqlite3_file *base, int at, int n, int flags)
{
	struct disk_file *file = (struct disk_file *)base;
	struct node *node = file->node;
	unsigned mask = ((1u << n) - 1) << at;

	if (flags & SQLITE_SHM_UNLOCK) {
		for (int i = at; i < at + n; i++) {
			unsigned bit = 1u << i;

			if (file->shared_own & bit)
				node->shared_writer[i] = false;
			else if (file->shared_mask & bit)
				node->shared_readers[i]--;
		}
		file->shared_mask &= ~mask;
		file->shared_own &= ~mask;
		return SQLITE_OK;
	}
	if (disk.is_dead)
		return SQLITE_IOERR_SHMLOCK;
	if (flags & SQLITE_SHM_SHARED) {
		CHECK(n == 1);
		if (file->shared_mask & mask)
			return SQLITE_OK;
		if (node->shared_writer[at])
			return SQLITE_BUSY;
		node->shared_readers[at]++;
	} else {
		for (int i = at; i < at + n; i++)
			if (!(file->shared_own & 1u << i) && (node->shared_writer[i] || node->shared_readers[i] > ((file->shared_mask >> i) & 1)))
				return SQLITE_BUSY;
		for (int i = at; i < at + n; i++) {
			if (file->shared_mask & ~file->shared_own & 1u << i)
				node->shared_readers[i]--;
			node->shared_writer[i] = true;
		}
		file->shared_own |= mask;
	}
	file->shared_mask |= mask;
	return SQLITE_OK;
}

static void file_shared_barrier(sqlite3_file *base)
{
	(void)base; /* one thread */
}

static int file_shared_unmap(sqlite3_file *base, int delete)
{
	struct disk_file *file = (struct disk_file *)base;
	struct node *node = file->node;

	(void)delete; /* it goes with the last one anyway */
	if (!file->is_sharing)
		return SQLITE_OK;
	file_shared_lock(base, 0, SHARED_LOCKS, SQLITE_SHM_UNLOCK);
	file->is_sharing = false;
	if (--node->shared_users > 0)
		return SQLITE_OK;
	for (int i = 0; i < SHARED_PAGES_MAX; i++) {
		free(node->shared[i]);
		node->shared[i] = NULL;
	}
	disk.used -= (uint64_t)node->shared_size;
	node->shared_size = 0;
	return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
	.iVersion = 2,
	.xClose = file_close,
	.xRead = file_read,
	.xWrite = file_write,
	.xTruncate = file_truncate,
	.xSync = file_sync,
	.xFileSize = file_size,
	.xLock = file_lock,
	.xUnlock = file_unlock,
	.xCheckReservedLock = file_check_reserved,
	.xFileControl = file_control,
	.xSectorSize = file_sector_size,
	.xDeviceCharacteristics = file_characteristics,
	.xShmMap = file_shared_map,
	.xShmLock = file_shared_lock,
	.xShmBarrier = file_shared_barrier,
	.xShmUnmap = file_shared_unmap,
};

/* 0 or an errno; *node is the file's. */
static int open_node(const char *path, int flags, int *node)
{
	const char *last;
	struct node *folder = find_folder(path, &last);

	if (disk.is_dead)
		return EIO;
	if (folder == NULL)
		return ENOENT;
	*node = find_node(path);
	if (*node >= 0)
		return (flags & O_CREAT) && (flags & O_EXCL) ? EEXIST : (flags & O_TRUNC) ? change_size(&disk.nodes[*node], 0) : 0;
	if (!(flags & O_CREAT))
		return ENOENT;
	if (memory_disk_free_bytes() < BLOCK) { /* an inode of its own */
		disk.refused++;
		return ENOSPC;
	}
	*node = new_node(false);
	return rename_in(folder, CHANGE_NAME, last, "", *node) ? 0 : EIO;
}

static int disk_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *base, int flags, int *flags_out)
{
	struct disk_file *file = (struct disk_file *)base;
	int node, number;

	(void)vfs;
	if (!is_ours(name))
		return below->xOpen(below, name, base, flags, flags_out);
	memset(file, 0, sizeof(*file));
	number = open_node(name, flags & SQLITE_OPEN_CREATE ? O_CREAT : 0, &node);
	if (number != 0)
		return SQLITE_CANTOPEN;
	CHECK(strlen(name) < PATH_LEN);
	snprintf(file->path, sizeof(file->path), "%s", name);
	file->sync_folder = (flags & SQLITE_OPEN_CREATE) != 0 && (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)) != 0;
	file->node = &disk.nodes[node];
	file->node->open_count++;
	file->base.pMethods = &methods;
	if (flags_out != NULL)
		*flags_out = flags;
	return SQLITE_OK;
}

/* 0 or an errno. */
static int remove_name(const char *path)
{
	const char *last;
	struct node *folder = find_folder(path, &last);
	int node = find_node(path);

	if (disk.is_dead)
		return EIO;
	if (folder == NULL || node < 0)
		return ENOENT;
	if (!rename_in(folder, CHANGE_NO_NAME, last, "", 0))
		return EIO;
	let_go(node);
	return 0;
}

static int disk_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
	int number;

	(void)vfs;
	if (!is_ours(name))
		return below->xDelete(below, name, sync);
	number = remove_name(name);
	if (number == 0 && sync)
		number = sync_node(folder_of(name));
	return number == ENOENT ? SQLITE_IOERR_DELETE_NOENT : number != 0 ? SQLITE_IOERR_DELETE : SQLITE_OK;
}

static int disk_access(sqlite3_vfs *vfs, const char *name, int flags, int *result)
{
	int node;

	(void)vfs;
	if (!is_ours(name))
		return below->xAccess(below, name, flags, result);
	node = find_node(name);
	/* As SQLite's own: an empty file does not count as one that exists. */
	*result = node >= 0 && (flags != SQLITE_ACCESS_EXISTS || disk.nodes[node].live.len > 0);
	return disk.is_dead ? SQLITE_IOERR_ACCESS : SQLITE_OK;
}

static int disk_full_name(sqlite3_vfs *vfs, const char *name, int size, char *full)
{
	(void)vfs;
	if (!is_ours(name))
		return below->xFullPathname(below, name, size, full);
	sqlite3_snprintf(size, full, "%s", name);
	return SQLITE_OK;
}

static int disk_randomness(sqlite3_vfs *vfs, int size, char *data)
{
	(void)vfs;
	fill_random(data, (size_t)size);
	return size;
}

/* One thread waits for nobody: it is told so often that it gives up. */
static int disk_sleep(sqlite3_vfs *vfs, int us)
{
	(void)vfs;
	CHECK(++disk.sleeps < BUSY_SLEEPS_MAX);
	return us;
}

void memory_disk_set_up(void)
{
	below = sqlite3_vfs_find(NULL);
	CHECK(below != NULL);
	layer = *below;
	layer.zName = "memory-disk";
	if (layer.szOsFile < (int)sizeof(struct disk_file))
		layer.szOsFile = (int)sizeof(struct disk_file);
	layer.xOpen = disk_open;
	layer.xDelete = disk_delete;
	layer.xAccess = disk_access;
	layer.xFullPathname = disk_full_name;
	layer.xRandomness = disk_randomness;
	layer.xSleep = disk_sleep;
	layer.pNext = NULL;
	CHECK(sqlite3_vfs_register(&layer, 1) == SQLITE_OK);
	randombytes_set_implementation(&random_source);
}

/* --- what the store does itself: the linker sends its calls here -------------------------------------------------------------- */

static struct {
	struct node *node; /* NULL: it is closed */
	uint64_t at;
} descriptors[DESCRIPTORS];

static int fail_with(int number)
{
	errno = number;
	return -1;
}

/* NULL: the system's. */
static struct node *node_of(int descriptor)
{
	return descriptor >= DESCRIPTOR_FIRST && descriptor < DESCRIPTOR_FIRST + DESCRIPTORS ? descriptors[descriptor - DESCRIPTOR_FIRST].node : NULL;
}

static uint64_t *place_of(int descriptor)
{
	return &descriptors[descriptor - DESCRIPTOR_FIRST].at;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_close(int descriptor);
int __wrap_close(int descriptor);
ssize_t __real_read(int descriptor, void *data, size_t size);
ssize_t __wrap_read(int descriptor, void *data, size_t size);
ssize_t __real_pread(int descriptor, void *data, size_t size, off_t at);
ssize_t __wrap_pread(int descriptor, void *data, size_t size, off_t at);
ssize_t __wrap_pread64(int descriptor, void *data, size_t size, off_t at);
ssize_t __real_write(int descriptor, const void *data, size_t size);
ssize_t __wrap_write(int descriptor, const void *data, size_t size);
ssize_t __real_pwrite(int descriptor, const void *data, size_t size, off_t at);
ssize_t __wrap_pwrite(int descriptor, const void *data, size_t size, off_t at);
ssize_t __wrap_pwrite64(int descriptor, const void *data, size_t size, off_t at);
int __real_ftruncate(int descriptor, off_t size);
int __wrap_ftruncate(int descriptor, off_t size);
int __wrap_ftruncate64(int descriptor, off_t size);
int __real_fallocate(int descriptor, int mode, off_t at, off_t size);
int __wrap_fallocate(int descriptor, int mode, off_t at, off_t size);
int __wrap_fallocate64(int descriptor, int mode, off_t at, off_t size);
int __real_fsync(int descriptor);
int __wrap_fsync(int descriptor);
int __real_fdatasync(int descriptor);
int __wrap_fdatasync(int descriptor);
int __real_stat(const char *path, struct stat *status);
int __wrap_stat(const char *path, struct stat *status);
int __wrap_stat64(const char *path, struct stat *status);
int __wrap_lstat(const char *path, struct stat *status);
int __wrap_lstat64(const char *path, struct stat *status);
int __real_fstat(int descriptor, struct stat *status);
int __wrap_fstat(int descriptor, struct stat *status);
int __wrap_fstat64(int descriptor, struct stat *status);
int __real_statvfs(const char *path, struct statvfs *status);
int __wrap_statvfs(const char *path, struct statvfs *status);
int __wrap_statvfs64(const char *path, struct statvfs *status);
int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __real_flock(int descriptor, int how);
int __wrap_flock(int descriptor, int how);
FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
int __wrap_gethostname(char *name, size_t size);

static int open_file(const char *path, int flags, mode_t mode)
{
	int node, number;

	if (!is_ours(path))
		return __real_open(path, flags, mode);
	number = open_node(path, flags, &node);
	if (number != 0)
		return fail_with(number);
	for (int i = 0; i < DESCRIPTORS; i++)
		if (descriptors[i].node == NULL) {
			descriptors[i].node = &disk.nodes[node];
			descriptors[i].at = 0;
			disk.nodes[node].open_count++;
			return DESCRIPTOR_FIRST + i;
		}
	return fail_with(EMFILE);
}

int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode;
	va_list list;

	va_start(list, flags);
	mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
	va_end(list);
	return open_file(path, flags, mode);
}

int __wrap_open64(const char *path, int flags, ...)
{
	mode_t mode;
	va_list list;

	va_start(list, flags);
	mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
	va_end(list);
	return open_file(path, flags, mode);
}

int __wrap_close(int descriptor)
{
	struct node *node = node_of(descriptor);

	if (node == NULL)
		return __real_close(descriptor);
	node->open_count--;
	descriptors[descriptor - DESCRIPTOR_FIRST].node = NULL;
	return 0;
}

ssize_t __wrap_pread(int descriptor, void *data, size_t size, off_t at)
{
	const struct node *node = node_of(descriptor);

	if (node == NULL)
		return __real_pread(descriptor, data, size, at);
	if (disk.is_dead)
		return fail_with(EIO);
	if ((size_t)at >= node->live.len)
		return 0;
	if (size > node->live.len - (size_t)at)
		size = node->live.len - (size_t)at;
	memcpy(data, node->live.data + at, size);
	return (ssize_t)size;
}

ssize_t __wrap_pread64(int descriptor, void *data, size_t size, off_t at)
{
	return __wrap_pread(descriptor, data, size, at);
}

ssize_t __wrap_read(int descriptor, void *data, size_t size)
{
	ssize_t got;

	if (node_of(descriptor) == NULL)
		return __real_read(descriptor, data, size);
	got = __wrap_pread(descriptor, data, size, (off_t)*place_of(descriptor));
	if (got > 0)
		*place_of(descriptor) += (uint64_t)got;
	return got;
}

ssize_t __wrap_pwrite(int descriptor, const void *data, size_t size, off_t at)
{
	struct node *node = node_of(descriptor);
	int number;

	if (node == NULL)
		return __real_pwrite(descriptor, data, size, at);
	number = write_at(node, data, size, (uint64_t)at);
	return number == 0 ? (ssize_t)size : fail_with(number);
}

ssize_t __wrap_pwrite64(int descriptor, const void *data, size_t size, off_t at)
{
	return __wrap_pwrite(descriptor, data, size, at);
}

ssize_t __wrap_write(int descriptor, const void *data, size_t size)
{
	ssize_t written;

	if (node_of(descriptor) == NULL)
		return __real_write(descriptor, data, size);
	written = __wrap_pwrite(descriptor, data, size, (off_t)*place_of(descriptor));
	if (written > 0)
		*place_of(descriptor) += (uint64_t)written;
	return written;
}

int __wrap_ftruncate(int descriptor, off_t size)
{
	struct node *node = node_of(descriptor);
	int number;

	if (node == NULL)
		return __real_ftruncate(descriptor, size);
	number = change_size(node, (uint64_t)size);
	return number == 0 ? 0 : fail_with(number);
}

int __wrap_ftruncate64(int descriptor, off_t size)
{
	return __wrap_ftruncate(descriptor, size);
}

int __wrap_fallocate(int descriptor, int mode, off_t at, off_t size)
{
	if (node_of(descriptor) == NULL)
		return __real_fallocate(descriptor, mode, at, size);
	CHECK(mode == 0 && at == 0);
	return __wrap_ftruncate(descriptor, size);
}

int __wrap_fallocate64(int descriptor, int mode, off_t at, off_t size)
{
	return __wrap_fallocate(descriptor, mode, at, size);
}

int __wrap_fsync(int descriptor)
{
	struct node *node = node_of(descriptor);

	if (node == NULL)
		return __real_fsync(descriptor);
	return sync_node(node) == 0 ? 0 : fail_with(EIO);
}

int __wrap_fdatasync(int descriptor)
{
	return node_of(descriptor) == NULL ? __real_fdatasync(descriptor) : __wrap_fsync(descriptor);
}

static int describe(const struct node *node, struct stat *status)
{
	*status = (struct stat){.st_dev = 1, .st_ino = (ino_t)(node - disk.nodes) + 1, .st_mode = node->is_folder ? S_IFDIR | 0700 : S_IFREG | 0600, .st_uid = geteuid(),
				.st_size = (off_t)node->live.len, .st_blocks = (blkcnt_t)(blocks(node->live.len) / 512)};
	return disk.is_dead ? fail_with(EIO) : 0;
}

int __wrap_stat(const char *path, struct stat *status)
{
	int node;

	if (!is_ours(path))
		return __real_stat(path, status);
	node = find_node(path);
	return node < 0 ? fail_with(ENOENT) : describe(&disk.nodes[node], status);
}

int __wrap_stat64(const char *path, struct stat *status)
{
	return __wrap_stat(path, status);
}

int __wrap_lstat(const char *path, struct stat *status)
{
	return __wrap_stat(path, status); /* this disk has no links */
}

int __wrap_lstat64(const char *path, struct stat *status)
{
	return __wrap_stat(path, status);
}

int __wrap_fstat(int descriptor, struct stat *status)
{
	const struct node *node = node_of(descriptor);

	return node == NULL ? __real_fstat(descriptor, status) : describe(node, status);
}

int __wrap_fstat64(int descriptor, struct stat *status)
{
	return __wrap_fstat(descriptor, status);
}

int __wrap_statvfs(const char *path, struct statvfs *status)
{
	if (!is_ours(path))
		return __real_statvfs(path, status);
	*status = (struct statvfs){.f_bsize = BLOCK, .f_frsize = BLOCK, .f_blocks = disk.size / BLOCK, .f_bfree = memory_disk_free_bytes() / BLOCK, .f_bavail = memory_disk_free_bytes() / BLOCK};
	return disk.is_dead ? fail_with(EIO) : 0;
}

int __wrap_statvfs64(const char *path, struct statvfs *status)
{
	return __wrap_statvfs(path, status);
}

int __wrap_access(const char *path, int mode)
{
	if (!is_ours(path))
		return __real_access(path, mode);
	return disk.is_dead ? fail_with(EIO) : find_node(path) < 0 ? fail_with(ENOENT) : 0;
}

int __wrap_mkdir(const char *path, mode_t mode)
{
	const char *last;
	struct node *folder;
	int node;

	if (!is_ours(path))
		return __real_mkdir(path, mode);
	folder = find_folder(path, &last);
	if (disk.is_dead)
		return fail_with(EIO);
	if (folder == NULL)
		return fail_with(ENOENT);
	if (*last == '\0' || names_find(&folder->names, last) >= 0)
		return fail_with(EEXIST);
	node = new_node(true);
	return rename_in(folder, CHANGE_NAME, last, "", node) ? 0 : fail_with(EIO);
}

int __wrap_link(const char *from, const char *to)
{
	const char *last;
	struct node *folder;
	int node;

	if (!is_ours(from))
		return __real_link(from, to);
	folder = find_folder(to, &last);
	node = find_node(from);
	if (folder == NULL || node < 0)
		return fail_with(ENOENT);
	if (find_node(to) >= 0)
		return fail_with(EEXIST);
	return rename_in(folder, CHANGE_NAME, last, "", node) ? 0 : fail_with(EIO);
}

int __wrap_rename(const char *from, const char *to)
{
	const char *last, *old;
	struct node *folder;
	int node;

	if (!is_ours(from))
		return __real_rename(from, to);
	folder = find_folder(to, &last);
	node = find_node(from);
	if (folder == NULL || node < 0 || find_folder(from, &old) != folder)
		return fail_with(ENOENT);
	int replaced = find_node(to);
	if (!rename_in(folder, CHANGE_RENAME, last, old, node))
		return fail_with(EIO);
	if (replaced >= 0)
		let_go(replaced);
	return 0;
}

int __wrap_unlink(const char *path)
{
	int number;

	if (!is_ours(path))
		return __real_unlink(path);
	number = remove_name(path);
	return number == 0 ? 0 : fail_with(number);
}

/* Two processes there are not: whoever locks gets it. */
int __wrap_flock(int descriptor, int how)
{
	return node_of(descriptor) == NULL ? __real_flock(descriptor, how) : disk.is_dead ? fail_with(EIO) : 0;
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	if (!is_ours(path))
		return __real_fopen(path, mode);
	CHECK(find_node(path) < 0); /* nobody of ours has a stream on this disk */
	errno = ENOENT;
	return NULL;
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	return __wrap_fopen(path, mode);
}

/* It becomes part of a log's name. */
int __wrap_gethostname(char *name, size_t size)
{
	snprintf(name, size, "memory-disk");
	return 0;
}
