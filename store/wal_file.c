/* The write-ahead log's file, as the writer's connection sees it. SQLite writes a commit as two pieces for each page, a head of
 * 24 bytes and the page: some twenty calls into the kernel, all of them in the way of whoever waits for the commit. Here they
 * are gathered and written as one, at the latest when the file is synced. A layer over SQLite's own files that changes nothing else.
 *
 * Why nobody misses what is still gathered: other connections and processes read of the log only what its index (in shared
 * memory) tells them of, and SQLite puts a commit there after it has synced the file (synchronous=FULL; the writer's connection
 * has no other). This connection reads through the same layer. A crash in between loses what was not synced, as ever.
 * Writer thread, and the opening one before it. Start at gather(). */
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"
#include "workflow/base/check.h"

/* Behind it in memory stands the file of SQLite's own layer. */
struct wal_file {
	sqlite3_file base;
	uint8_t *gathered;
	size_t len;
	sqlite3_int64 start; /* where the first gathered byte belongs */
};

static sqlite3_vfs *below; /* SQLite's own layer */
static sqlite3_vfs layer;

static sqlite3_file *file_below(sqlite3_file *file)
{
	return (sqlite3_file *)(void *)((struct wal_file *)file + 1);
}

/* What cannot be written is forgotten: the transaction fails, and what SQLite writes next does not come after it. */
static int write_gathered(sqlite3_file *file)
{
	struct wal_file *wal = (struct wal_file *)file;
	size_t len = wal->len;

	wal->len = 0;
	return len > 0 ? file_below(file)->pMethods->xWrite(file_below(file), wal->gathered, (int)len, wal->start) : SQLITE_OK;
}

static int gather(sqlite3_file *file, const void *data, int size, sqlite3_int64 at)
{
	struct wal_file *wal = (struct wal_file *)file;
	size_t len = (size_t)size;
	int rc;

	if (wal->len > 0 && (at != wal->start + (sqlite3_int64)wal->len || len > STORE_WAL_GATHERED_MAX - wal->len)) {
		rc = write_gathered(file);
		if (rc != SQLITE_OK)
			return rc;
	}
	if (len > STORE_WAL_GATHERED_MAX)
		return file_below(file)->pMethods->xWrite(file_below(file), data, size, at);
	if (wal->len == 0)
		wal->start = at;
	memcpy(wal->gathered + wal->len, data, len);
	wal->len += len;
	return SQLITE_OK;
}

static int close_file(sqlite3_file *file)
{
	struct wal_file *wal = (struct wal_file *)file;
	int written = write_gathered(file), closed = file_below(file)->pMethods->xClose(file_below(file));

	free(wal->gathered);
	wal->gathered = NULL;
	return written != SQLITE_OK ? written : closed;
}

static int read_file(sqlite3_file *file, void *data, int size, sqlite3_int64 at)
{
	int rc = write_gathered(file);

	return rc != SQLITE_OK ? rc : file_below(file)->pMethods->xRead(file_below(file), data, size, at);
}

static int truncate_file(sqlite3_file *file, sqlite3_int64 size)
{
	int rc = write_gathered(file);

	return rc != SQLITE_OK ? rc : file_below(file)->pMethods->xTruncate(file_below(file), size);
}

static int sync_file(sqlite3_file *file, int flags)
{
	int rc = write_gathered(file);

	return rc != SQLITE_OK ? rc : file_below(file)->pMethods->xSync(file_below(file), flags);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
	int rc = write_gathered(file);

	return rc != SQLITE_OK ? rc : file_below(file)->pMethods->xFileSize(file_below(file), size);
}

static int lock_file(sqlite3_file *file, int level)
{
	return file_below(file)->pMethods->xLock(file_below(file), level);
}

static int unlock_file(sqlite3_file *file, int level)
{
	return file_below(file)->pMethods->xUnlock(file_below(file), level);
}

static int check_reserved_lock(sqlite3_file *file, int *is_reserved)
{
	return file_below(file)->pMethods->xCheckReservedLock(file_below(file), is_reserved);
}

static int control_file(sqlite3_file *file, int what, void *arg)
{
	return file_below(file)->pMethods->xFileControl(file_below(file), what, arg);
}

static int sector_size(sqlite3_file *file)
{
	return file_below(file)->pMethods->xSectorSize(file_below(file));
}

static int device_characteristics(sqlite3_file *file)
{
	return file_below(file)->pMethods->xDeviceCharacteristics(file_below(file));
}

/* Version 1: no shared memory and no mapping, which are matters of the database's own file. */
static const sqlite3_io_methods methods = {
	.iVersion = 1,
	.xClose = close_file,
	.xRead = read_file,
	.xWrite = gather,
	.xTruncate = truncate_file,
	.xSync = sync_file,
	.xFileSize = file_size,
	.xLock = lock_file,
	.xUnlock = unlock_file,
	.xCheckReservedLock = check_reserved_lock,
	.xFileControl = control_file,
	.xSectorSize = sector_size,
	.xDeviceCharacteristics = device_characteristics,
};

static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *flags_out)
{
	struct wal_file *wal = (struct wal_file *)file;
	int rc;

	(void)vfs;
	if (!(flags & SQLITE_OPEN_WAL)) /* any other file is the lower layer's alone */
		return below->xOpen(below, name, file, flags, flags_out);
	memset(wal, 0, sizeof(*wal));
	rc = below->xOpen(below, name, file_below(file), flags, flags_out);
	if (file_below(file)->pMethods == NULL)
		return rc;
	wal->base.pMethods = &methods; /* also after an error: SQLite closes what has methods */
	wal->gathered = memory_alloc(STORE_WAL_GATHERED_MAX);
	return rc;
}

static void set_up(void)
{
	below = sqlite3_vfs_find(NULL);
	CHECK(below != NULL);
	layer = *below;
	layer.zName = WAL_FILE_LAYER;
	layer.szOsFile = (int)sizeof(struct wal_file) + below->szOsFile;
	layer.xOpen = open_file;
	layer.pNext = NULL;
	CHECK(sqlite3_vfs_register(&layer, 0) == SQLITE_OK);
}

void wal_file_set_up(void)
{
	static uv_once_t once = UV_ONCE_INIT;

	uv_once(&once, set_up);
}
