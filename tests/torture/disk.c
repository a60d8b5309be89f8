/* The disk: a layer between SQLite's own files and everything above, the store's layer for the write-ahead log included, and the calls
 * that the store itself makes (keys, lock, anchor: the linker brings them here, see meson.build). It fails what faults_hit() says,
 * tells recording.c what was changed, and syncs nothing really: no power is lost here. Any thread. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/torture/torture.h"
#include "workflow/base/check.h"

/* --- faults ------------------------------------------------------------------------------------------------------------- */

struct faults *faults;

void faults_set_up(void)
{
	faults = mmap(NULL, sizeof(*faults), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(faults != MAP_FAILED);
}

void faults_plan(enum fault fault, bool persistent, uint64_t at)
{
	memset(faults, 0, sizeof(*faults));
	faults->fault = fault;
	faults->persistent = persistent;
	faults->at = at;
}

static bool concerns(enum fault fault, enum operation operation)
{
	switch (fault) {
	case FAULT_EIO:
		return operation != OPERATION_MEMORY;
	case FAULT_FULL:
		return operation == OPERATION_WRITE || operation == OPERATION_SHARED_MAP || operation == OPERATION_NAME || operation == OPERATION_OPEN;
	case FAULT_SHORT:
		return operation == OPERATION_WRITE;
	case FAULT_BUSY:
		return operation == OPERATION_LOCK || operation == OPERATION_SHARED_LOCK;
	default:
		return false;
	}
}

bool faults_hit(enum operation operation)
{
	uint64_t n;

	if (faults == NULL || !atomic_load(&faults->armed) || (operation != OPERATION_MEMORY && !concerns(faults->fault, operation)))
		return false;
	n = atomic_fetch_add(&faults->passed, 1);
	if (n < faults->at || (n > faults->at && !faults->persistent))
		return false;
	atomic_fetch_add(&faults->failed, 1);
	atomic_fetch_add(&faults->failed_at[operation], 1);
	return true;
}

const char *fault_name(enum fault fault)
{
	static const char *const names[] = {"none", "EIO", "ENOSPC", "short write", "busy", "SQLite's memory", "our memory", "libraries' memory"};

	return names[fault];
}

const char *operation_name(enum operation operation)
{
	static const char *const names[] = {"open", "read", "write", "sync", "truncate", "size", "lock", "shm map", "shm lock", "delete", "access", "name", "memory"};

	return names[operation];
}

static char watched[PATH_LEN];

void disk_watch(const char *folder)
{
	snprintf(watched, sizeof(watched), "%s", folder != NULL ? folder : "");
}

static bool is_watched(const char *path)
{
	size_t len = strlen(watched);

	return len > 0 && path != NULL && strncmp(path, watched, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* --- SQLite's files ------------------------------------------------------------------------------------------------------ */

struct disk_file { /* behind it in memory stands the file of SQLite's own layer */
	sqlite3_file base;
	bool is_ours;
	int node;
	bool sync_folder; /* SQLite syncs the folder of a log that it made with the file's first sync */
	char path[PATH_LEN];
};

static sqlite3_vfs *below, layer;

static sqlite3_file *file_below(sqlite3_file *file)
{
	return (sqlite3_file *)(void *)((struct disk_file *)file + 1);
}

static bool hit(sqlite3_file *file, enum operation operation)
{
	return ((struct disk_file *)file)->is_ours && faults_hit(operation);
}

static int disk_close(sqlite3_file *file)
{
	return file_below(file)->pMethods->xClose(file_below(file));
}

static int disk_read(sqlite3_file *file, void *data, int size, sqlite3_int64 at)
{
	return hit(file, OPERATION_READ) ? SQLITE_IOERR_READ : file_below(file)->pMethods->xRead(file_below(file), data, size, at);
}

static int disk_write(sqlite3_file *file, const void *data, int size, sqlite3_int64 at)
{
	struct disk_file *f = (struct disk_file *)file;
	int rc = SQLITE_OK, failure = SQLITE_OK;

	if (hit(file, OPERATION_WRITE)) {
		failure = faults->fault == FAULT_EIO ? SQLITE_IOERR_WRITE : SQLITE_FULL;
		size = faults->fault == FAULT_SHORT ? size / 2 : 0;
	}
	if (size > 0)
		rc = file_below(file)->pMethods->xWrite(file_below(file), data, size, at);
	if (size > 0 && rc == SQLITE_OK && f->node != NODE_NONE)
		recording_write(f->node, (uint64_t)at, data, (size_t)size);
	return rc != SQLITE_OK ? rc : failure;
}

static int disk_truncate(sqlite3_file *file, sqlite3_int64 size)
{
	struct disk_file *f = (struct disk_file *)file;
	int rc;

	if (hit(file, OPERATION_TRUNCATE))
		return SQLITE_IOERR_TRUNCATE;
	rc = file_below(file)->pMethods->xTruncate(file_below(file), size);
	if (rc == SQLITE_OK && f->node != NODE_NONE)
		recording_truncate(f->node, (uint64_t)size);
	return rc;
}

static int disk_sync(sqlite3_file *file, int flags)
{
	struct disk_file *f = (struct disk_file *)file;

	(void)flags;
	if (hit(file, OPERATION_SYNC))
		return SQLITE_IOERR_FSYNC;
	if (f->node == NODE_NONE)
		return SQLITE_OK;
	recording_sync(f->node);
	if (f->sync_folder)
		recording_sync_folder(f->path);
	f->sync_folder = false;
	return SQLITE_OK;
}

static int disk_file_size(sqlite3_file *file, sqlite3_int64 *size)
{
	return hit(file, OPERATION_SIZE) ? SQLITE_IOERR_FSTAT : file_below(file)->pMethods->xFileSize(file_below(file), size);
}

static int disk_lock(sqlite3_file *file, int level)
{
	if (hit(file, OPERATION_LOCK))
		return faults->fault == FAULT_BUSY ? SQLITE_BUSY : SQLITE_IOERR_LOCK;
	return file_below(file)->pMethods->xLock(file_below(file), level);
}

static int disk_unlock(sqlite3_file *file, int level)
{
	return file_below(file)->pMethods->xUnlock(file_below(file), level);
}

static int disk_check_reserved_lock(sqlite3_file *file, int *is_reserved)
{
	return hit(file, OPERATION_LOCK) ? (faults->fault == FAULT_BUSY ? SQLITE_BUSY : SQLITE_IOERR_CHECKRESERVEDLOCK)
					 : file_below(file)->pMethods->xCheckReservedLock(file_below(file), is_reserved);
}

static int disk_control(sqlite3_file *file, int what, void *arg)
{
	return file_below(file)->pMethods->xFileControl(file_below(file), what, arg);
}

static int disk_sector_size(sqlite3_file *file)
{
	return file_below(file)->pMethods->xSectorSize(file_below(file));
}

static int disk_characteristics(sqlite3_file *file)
{
	return file_below(file)->pMethods->xDeviceCharacteristics(file_below(file));
}

static int disk_shared_map(sqlite3_file *file, int page, int size, int extend, void volatile **mapped)
{
	if (hit(file, OPERATION_SHARED_MAP)) {
		*mapped = NULL;
		return faults->fault == FAULT_FULL ? SQLITE_IOERR_SHMSIZE : SQLITE_IOERR_SHMMAP;
	}
	return file_below(file)->pMethods->xShmMap(file_below(file), page, size, extend, mapped);
}

static int disk_shared_lock(sqlite3_file *file, int at, int n, int flags)
{
	if (!(flags & SQLITE_SHM_UNLOCK) && hit(file, OPERATION_SHARED_LOCK))
		return faults->fault == FAULT_BUSY ? SQLITE_BUSY : SQLITE_IOERR_SHMLOCK;
	return file_below(file)->pMethods->xShmLock(file_below(file), at, n, flags);
}

static void disk_shared_barrier(sqlite3_file *file)
{
	file_below(file)->pMethods->xShmBarrier(file_below(file));
}

static int disk_shared_unmap(sqlite3_file *file, int delete)
{
	return file_below(file)->pMethods->xShmUnmap(file_below(file), delete);
}

/* Version 2: no mapping of the database's file, so that each read comes here. */
static const sqlite3_io_methods methods = {
	.iVersion = 2,
	.xClose = disk_close,
	.xRead = disk_read,
	.xWrite = disk_write,
	.xTruncate = disk_truncate,
	.xSync = disk_sync,
	.xFileSize = disk_file_size,
	.xLock = disk_lock,
	.xUnlock = disk_unlock,
	.xCheckReservedLock = disk_check_reserved_lock,
	.xFileControl = disk_control,
	.xSectorSize = disk_sector_size,
	.xDeviceCharacteristics = disk_characteristics,
	.xShmMap = disk_shared_map,
	.xShmLock = disk_shared_lock,
	.xShmBarrier = disk_shared_barrier,
	.xShmUnmap = disk_shared_unmap,
};

static int disk_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *flags_out)
{
	struct disk_file *f = (struct disk_file *)file;
	bool is_new, makes = (flags & SQLITE_OPEN_CREATE) != 0;
	int rc;

	(void)vfs;
	memset(f, 0, sizeof(*f));
	f->node = NODE_NONE;
	f->is_ours = is_watched(name);
	if (hit(file, OPERATION_OPEN))
		return SQLITE_CANTOPEN;
	is_new = f->is_ours && makes && access(name, F_OK) != 0;
	rc = below->xOpen(below, name, file_below(file), flags, flags_out);
	if (file_below(file)->pMethods == NULL)
		return rc;
	f->base.pMethods = &methods;
	if (rc != SQLITE_OK || !f->is_ours)
		return rc;
	snprintf(f->path, sizeof(f->path), "%s", name);
	f->sync_folder = makes && (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)) != 0;
	f->node = recording_open(name, is_new);
	return rc;
}

static int disk_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
	int rc;

	(void)vfs;
	if (is_watched(name) && faults_hit(OPERATION_DELETE))
		return SQLITE_IOERR_DELETE;
	rc = below->xDelete(below, name, 0);
	if (rc != SQLITE_OK || !is_watched(name))
		return rc;
	recording_unlink(name);
	if (sync)
		recording_sync_folder(name);
	return rc;
}

static int disk_access(sqlite3_vfs *vfs, const char *name, int flags, int *result)
{
	(void)vfs;
	*result = 0;
	return is_watched(name) && faults_hit(OPERATION_ACCESS) ? SQLITE_IOERR_ACCESS : below->xAccess(below, name, flags, result);
}

void disk_set_up(void)
{
	below = sqlite3_vfs_find(NULL);
	CHECK(below != NULL);
	layer = *below;
	layer.zName = "torture";
	layer.szOsFile = (int)sizeof(struct disk_file) + below->szOsFile;
	layer.xOpen = disk_open;
	layer.xDelete = disk_delete;
	layer.xAccess = disk_access;
	layer.pNext = NULL;
	CHECK(sqlite3_vfs_register(&layer, 1) == SQLITE_OK);
}

/* --- what the store does itself: the linker sends its calls here ------------------------------------------------------------ */

enum { DESCRIPTORS = 1024 };
static struct {
	bool is_ours, is_folder;
	int node;
	char path[PATH_LEN];
} descriptors[DESCRIPTORS];

static bool is_ours(int descriptor)
{
	return descriptor >= 0 && descriptor < DESCRIPTORS && descriptors[descriptor].is_ours;
}

static int fail_with(int number)
{
	errno = number;
	return -1;
}

static int fault_errno(void)
{
	return faults->fault == FAULT_EIO ? EIO : ENOSPC;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_close(int descriptor);
int __wrap_close(int descriptor);
ssize_t __real_write(int descriptor, const void *data, size_t size);
ssize_t __wrap_write(int descriptor, const void *data, size_t size);
int __real_ftruncate(int descriptor, off_t size);
int __wrap_ftruncate(int descriptor, off_t size);
int __wrap_ftruncate64(int descriptor, off_t size);
ssize_t __real_pwrite(int descriptor, const void *data, size_t size, off_t at);
ssize_t __wrap_pwrite(int descriptor, const void *data, size_t size, off_t at);
ssize_t __wrap_pwrite64(int descriptor, const void *data, size_t size, off_t at);
ssize_t __real_read(int descriptor, void *data, size_t size);
ssize_t __wrap_read(int descriptor, void *data, size_t size);
int __wrap_fsync(int descriptor);
int __wrap_fdatasync(int descriptor);
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

static int open_file(const char *path, int flags, mode_t mode)
{
	bool ours = is_watched(path), is_new = ours && (flags & O_CREAT) && access(path, F_OK) != 0;
	int descriptor;

	if (ours && faults_hit(OPERATION_OPEN))
		return fail_with(fault_errno());
	descriptor = __real_open(path, flags, mode);
	if (!ours || descriptor < 0 || descriptor >= DESCRIPTORS)
		return descriptor;
	descriptors[descriptor].is_ours = true;
	descriptors[descriptor].is_folder = (flags & O_DIRECTORY) != 0;
	descriptors[descriptor].node = flags & O_DIRECTORY ? NODE_NONE : recording_open(path, is_new);
	snprintf(descriptors[descriptor].path, PATH_LEN, "%s", path);
	if (flags & O_TRUNC)
		recording_truncate(descriptors[descriptor].node, 0);
	return descriptor;
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
	if (is_ours(descriptor))
		descriptors[descriptor].is_ours = false;
	return __real_close(descriptor);
}

static ssize_t write_at(int descriptor, const void *data, size_t size, off_t at)
{
	ssize_t written;

	if (is_ours(descriptor) && faults_hit(OPERATION_WRITE)) {
		if (faults->fault != FAULT_SHORT || size < 2)
			return fail_with(fault_errno());
		size /= 2;
	}
	written = __real_pwrite(descriptor, data, size, at);
	if (is_ours(descriptor) && written > 0)
		recording_write(descriptors[descriptor].node, (uint64_t)at, data, (size_t)written);
	return written;
}

ssize_t __wrap_pwrite(int descriptor, const void *data, size_t size, off_t at)
{
	return write_at(descriptor, data, size, at);
}

ssize_t __wrap_pwrite64(int descriptor, const void *data, size_t size, off_t at)
{
	return write_at(descriptor, data, size, at);
}

ssize_t __wrap_write(int descriptor, const void *data, size_t size)
{
	ssize_t written;
	off_t at;

	if (!is_ours(descriptor))
		return __real_write(descriptor, data, size);
	at = lseek(descriptor, 0, SEEK_CUR);
	written = write_at(descriptor, data, size, at);
	if (written > 0)
		lseek(descriptor, at + written, SEEK_SET);
	return written;
}

int __wrap_ftruncate(int descriptor, off_t size)
{
	int result;

	if (is_ours(descriptor) && faults_hit(OPERATION_TRUNCATE))
		return fail_with(EIO);
	result = __real_ftruncate(descriptor, size);
	if (result == 0 && is_ours(descriptor))
		recording_truncate(descriptors[descriptor].node, (uint64_t)size);
	return result;
}

int __wrap_ftruncate64(int descriptor, off_t size)
{
	return __wrap_ftruncate(descriptor, size);
}

ssize_t __wrap_read(int descriptor, void *data, size_t size)
{
	return is_ours(descriptor) && faults_hit(OPERATION_READ) ? fail_with(EIO) : __real_read(descriptor, data, size);
}

static int sync_descriptor(int descriptor)
{
	if (!is_ours(descriptor))
		return 0;
	if (faults_hit(OPERATION_SYNC))
		return fail_with(EIO);
	if (!descriptors[descriptor].is_folder)
		recording_sync(descriptors[descriptor].node);
	else
		recording_sync_folder(descriptors[descriptor].path);
	return 0;
}

int __wrap_fsync(int descriptor)
{
	return sync_descriptor(descriptor);
}

int __wrap_fdatasync(int descriptor)
{
	return sync_descriptor(descriptor);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
	int result;

	if (is_watched(path) && faults_hit(OPERATION_NAME))
		return fail_with(fault_errno());
	result = __real_mkdir(path, mode);
	if (result == 0 && is_watched(path))
		recording_make_folder(path);
	return result;
}

int __wrap_link(const char *from, const char *to)
{
	int result;

	if (is_watched(to) && faults_hit(OPERATION_NAME))
		return fail_with(fault_errno());
	result = __real_link(from, to);
	if (result == 0 && is_watched(to))
		recording_link(from, to);
	return result;
}

int __wrap_rename(const char *from, const char *to)
{
	int result;

	if (is_watched(to) && faults_hit(OPERATION_NAME))
		return fail_with(fault_errno());
	result = __real_rename(from, to);
	if (result == 0 && is_watched(to))
		recording_rename(from, to);
	return result;
}

int __wrap_unlink(const char *path)
{
	int result;

	if (is_watched(path) && faults_hit(OPERATION_DELETE))
		return fail_with(EIO);
	result = __real_unlink(path);
	if (result == 0 && is_watched(path))
		recording_unlink(path);
	return result;
}

int __wrap_flock(int descriptor, int how)
{
	if (is_ours(descriptor) && faults_hit(OPERATION_LOCK))
		return fail_with(faults->fault == FAULT_BUSY ? EWOULDBLOCK : EIO);
	return __real_flock(descriptor, how);
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	if (is_watched(path) && faults_hit(OPERATION_OPEN)) {
		errno = EIO;
		return NULL;
	}
	return __real_fopen(path, mode);
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	return __wrap_fopen(path, mode);
}
