/* A journal out of a copy, in a data folder that no daemon holds. What provenance.md 4.5 asks for: a log is never continued behind a
 * checkpoint that is known anywhere, for then two histories of one log would be signed. Known are the anchor of the folder, the
 * checkpoints of the journal that is there, and those that the caller brings; where there is none at all, somebody has to say that the
 * original is gone. The way out for a copy that is behind: it is kept to be read, and another log begins that names where this one ended.
 *
 * Killed anywhere: until the marker DATA/restoring is there, nothing is changed; from then on store_open() refuses the folder, and
 * the same restore once more completes it. Blocks; one thread. Start at store_restore(). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/internal.h"
#include "workflow/base/check.h"

enum { STAMPED_MAX = 100 /* folders of one second */, NOTE_FILE_MAX = 65536 };

struct places {
	char database[STORE_PATH_MAX], wal[STORE_PATH_MAX], shm[STORE_PATH_MAX], fresh[STORE_PATH_MAX], anchor[STORE_PATH_MAX], marker[STORE_PATH_MAX];
};

static void set_places(struct places *places, const char *data_dir)
{
	const struct {
		char *into;
		const char *name;
	} all[] = {{places->database, "journal.db"}, {places->wal, "journal.db-wal"}, {places->shm, "journal.db-shm"},
		   {places->fresh, "journal.db.restoring"}, {places->anchor, "anchor"}, {places->marker, RESTORE_MARKER}};

	for (size_t i = 0; i < COUNT_OF(all); i++)
		snprintf(all[i].into, STORE_PATH_MAX, "%s/%s", data_dir, all[i].name);
}

static int fail_system(const char *what, const char *path, struct error *error)
{
	return error_set(error, errno == ENOSPC || errno == EDQUOT ? ERR_FULL : ERR_IO, "%s %s: %s", what, path, strerror(errno));
}

static bool exists(const char *path)
{
	struct stat status;

	return lstat(path, &status) == 0;
}

/* --- what is known ---------------------------------------------------------------------------------------------------- */

/* Of this log, by its key? Then the copy must reach it. */
static int hold_against(struct connection *source, const struct note_key *key, struct store_restore *restore, struct bytes note, const char *whose,
			bool must_be_ours, struct error *error)
{
	struct checkpoint checkpoint;
	struct error why = {0};

	if (checkpoint_open(note, key, &checkpoint, &why) != 0) {
		if (!must_be_ours)
			return 0;
		return error_set(error, ERR_INVALID, "%s is no checkpoint of log %s: %s", whose, restore->copy.origin, why.message);
	}
	restore->known++;
	if (backup_check_root(source, restore->copy.entries, &checkpoint, whose, error) == 0)
		return 0;
	return error_wrap(error, "%s cannot be continued", restore->source);
}

static int check_anchor_file(struct connection *source, const struct note_key *key, struct store_restore *restore, const char *path, struct error *error)
{
	uint8_t *text = memory_alloc(NOTE_FILE_MAX);
	FILE *file = fopen(path, "re");
	size_t len = file != NULL ? fread(text, 1, NOTE_FILE_MAX, file) : 0;

	if (file != NULL)
		fclose(file);
	if (len > 0)
		hold_against(source, key, restore, (struct bytes){text, len}, path, false, error);
	free(text);
	return error->code;
}

/* The newest one of the journal that is there. One that cannot be read any more is the reason for many a restore, and says nothing. */
static int check_present(struct connection *source, const struct note_key *key, struct store_restore *restore, const char *path, struct error *error)
{
	struct connection present;
	struct arena arena;
	struct bytes note;
	struct error ignored = {0};

	if (!exists(path) || connection_open(&present, path, SQLITE_OPEN_READWRITE, &ignored) != 0)
		return 0;
	arena_init(&arena);
	if (checkpoint_table_get(&present, &arena, 0, &note, &ignored) == 0)
		hold_against(source, key, restore, note, path, false, error);
	arena_close(&arena);
	connection_close(&present);
	return error->code;
}

static int check_known(struct store_restore *restore, const struct places *places, struct error *error)
{
	struct connection source;
	const char *origin, *vkey;
	struct note_key key;
	struct arena arena;

	arena_init(&arena);
	if (connection_open(&source, restore->source, SQLITE_OPEN_READONLY, error) != 0)
		goto out;
	if (entry_table_origin(&source, &arena, &origin, &vkey, error) == 0 && note_key_parse(&key, vkey, error) == 0) {
		for (size_t i = 0; i < restore->checkpoint_count && error->code == ERR_NONE; i++)
			hold_against(&source, &key, restore, restore->checkpoints[i], "a checkpoint that was given", true, error);
		if (error->code == ERR_NONE && check_anchor_file(&source, &key, restore, places->anchor, error) == 0)
			check_present(&source, &key, restore, places->database, error);
	}
	connection_close(&source);
out:
	arena_close(&arena);
	return error->code;
}

/* --- moving ----------------------------------------------------------------------------------------------------------- */

/* Through SQLite, whatever it is a copy of: a journal that was not stopped well has its last commits in the write-ahead log beside it. */
static int copy_database(const char *from, const char *to, struct error *error)
{
	struct connection source, target;
	sqlite3_backup *backup;
	int file, rc;

	if (unlink(to) != 0 && errno != ENOENT)
		return fail_system("remove", to, error);
	file = open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (file < 0)
		return fail_system("make", to, error);
	if (connection_open(&source, from, SQLITE_OPEN_READONLY, error) != 0)
		goto out;
	if (connection_open(&target, to, SQLITE_OPEN_READWRITE, error) != 0)
		goto out_source;
	if (connection_exec(&target, "PRAGMA synchronous=OFF; PRAGMA journal_mode=OFF", error) == 0) {
		backup = sqlite3_backup_init(target.db, "main", source.db, "main");
		rc = backup != NULL ? sqlite3_backup_step(backup, -1) : sqlite3_errcode(target.db);
		sqlite3_backup_finish(backup);
		if (rc != SQLITE_DONE)
			connection_fail(&target, rc, "copy", error);
	}
	connection_close(&target);
out_source:
	connection_close(&source);
out:
	if (error->code == ERR_NONE && fsync(file) != 0)
		fail_system("sync", to, error);
	close(file);
	return error->code;
}

/* From a copy to a journal, in the file that has not got its name yet. */
static int unmark(const char *path, struct error *error)
{
	struct connection connection;
	char pragma[128];

	snprintf(pragma, sizeof(pragma), "PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL; PRAGMA application_id=%d", STORE_APPLICATION_ID);
	if (connection_open(&connection, path, SQLITE_OPEN_READWRITE, error) != 0)
		return error->code;
	connection_exec(&connection, pragma, error);
	connection_close(&connection);
	return error->code;
}

static int write_file(const char *path, struct bytes text, struct error *error)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (file < 0 || write(file, text.data, text.len) != (ssize_t)text.len || fsync(file) != 0)
		fail_system("write", path, error);
	if (file >= 0)
		close(file);
	return error->code;
}

/* "2026-11-30T042100Z": sorts by time, and stands in a file's name. */
static void stamp(char text[32])
{
	time_t now = time(NULL);
	struct tm parts;

	gmtime_r(&now, &parts);
	strftime(text, 32, "%Y-%m-%dT%H%M%SZ", &parts);
}

/* A folder of that moment. One that failed a moment ago, and is repeated, has left its own. */
static int make_stamped(const char *data_dir, const char *name, char *path, size_t size, struct error *error)
{
	char time[32];

	stamp(time);
	for (unsigned n = 1; n <= STAMPED_MAX; n++) {
		int len = n == 1 ? snprintf(path, size, "%s/%s-%s", data_dir, name, time) : snprintf(path, size, "%s/%s-%s-%u", data_dir, name, time, n);

		if (len >= (int)size)
			return error_set(error, ERR_INVALID, "the data folder's path is too long");
		if (mkdir(path, 0700) == 0)
			return 0;
		if (errno != EEXIST)
			break;
	}
	return fail_system("make folder", path, error);
}

/* A second name for what is there, in a folder of its own: so a kill leaves the one, the other, or both, and never none. */
static int set_aside(struct store_restore *restore, const struct places *places, struct error *error)
{
	const char *const from[] = {places->database, places->wal, places->anchor}, *const names[] = {"journal.db", "journal.db-wal", "anchor"};
	char to[sizeof(restore->aside) + 32];

	if (!exists(places->database))
		return 0;
	if (make_stamped(restore->data_dir, "replaced", restore->aside, sizeof(restore->aside), error) != 0)
		return error->code;
	for (size_t i = 0; i < COUNT_OF(from); i++) {
		snprintf(to, sizeof(to), "%s/%s", restore->aside, names[i]);
		if (exists(from[i]) && link(from[i], to) != 0)
			return fail_system("keep as", to, error);
	}
	return backup_sync_folder(to, error);
}

static int remove_file(const char *path, struct error *error)
{
	return unlink(path) == 0 || errno == ENOENT ? 0 : fail_system("remove", path, error);
}

/* The newest checkpoint of what is restored becomes the anchor: the older one may be missing, or stand for less. */
static int write_anchor_of(const char *path, const char *anchor, struct error *error)
{
	struct connection connection;
	struct arena arena;
	struct bytes note;

	if (connection_open(&connection, path, SQLITE_OPEN_READONLY, error) != 0)
		return error->code;
	arena_init(&arena);
	if (checkpoint_table_get(&connection, &arena, 0, &note, error) == 0)
		write_file(anchor, note, error);
	arena_close(&arena);
	connection_close(&connection);
	return error->code;
}

static int put_in_place(struct store_restore *restore, const struct places *places, struct error *error)
{
	/* A write-ahead log goes first: beside another database it would be played into that. */
	if (remove_file(places->wal, error) != 0 || remove_file(places->shm, error) != 0)
		return error->code;
	if (restore->new_log) {
		if (remove_file(places->database, error) != 0 || remove_file(places->anchor, error) != 0)
			return error->code;
	} else {
		if (write_anchor_of(places->fresh, places->anchor, error) != 0)
			return error->code;
		if (rename(places->fresh, places->database) != 0)
			return fail_system("rename to", places->database, error);
	}
	if (backup_sync_folder(places->database, error) != 0 || remove_file(places->marker, error) != 0)
		return error->code;
	return backup_sync_folder(places->database, error);
}

/* --- another log ------------------------------------------------------------------------------------------------------ */

/* The copy is kept where `journal verify --data` and others can read it; its log key goes along, so that the next start makes
 * another one; and DATA/continues says for journal.opened where the old log ended. */
static int keep_and_begin_anew(struct store_restore *restore, const struct places *places, struct error *error)
{
	char to[sizeof(restore->kept) + 32], key[STORE_PATH_MAX], continues[STORE_PATH_MAX];
	struct arena arena;
	struct json *json;

	if (make_stamped(restore->data_dir, "ended", restore->kept, sizeof(restore->kept), error) != 0)
		return error->code;
	snprintf(to, sizeof(to), "%s/journal.db", restore->kept);
	if (rename(places->fresh, to) != 0)
		return fail_system("keep as", to, error);
	snprintf(key, sizeof(key), "%s/keys/log.pem", restore->data_dir);
	snprintf(to, sizeof(to), "%s/log.pem", restore->kept);
	if (exists(key) && rename(key, to) != 0)
		return fail_system("keep as", to, error);
	snprintf(continues, sizeof(continues), "%s/" RESTORE_CONTINUES, restore->data_dir);
	arena_init(&arena);
	json = json_object(&arena);
	json_set_text(&arena, json, "origin", restore->copy.origin);
	json_set_number(&arena, json, "size", (double)restore->copy.checkpoint);
	json_set_digest(&arena, json, "root", &restore->copy.root);
	write_file(continues, json_print_arena(json, &arena), error);
	arena_close(&arena);
	return error->code == ERR_NONE ? backup_sync_folder(to, error) : (int)error->code;
}

/* --- all of it ---------------------------------------------------------------------------------------------------------- */

static int refuse_if_unclear(const struct store_restore *restore, const struct places *places, struct error *error)
{
	if (exists(places->database) && !restore->replace && !exists(places->marker))
		return error_set(error, ERR_EXISTS, "%s is there: it is kept aside, and the copy takes its place, with --yes", places->database);
	if (restore->known == 0 && !restore->original_is_gone && !restore->new_log)
		return error_set(error, ERR_INVALID,
				 "nothing here says how far log %s had come: give its newest checkpoint (--checkpoint FILE: the file `anchor` of its data folder, or one "
				 "that an auditor kept), or say --original-is-gone. Two that continue one log make two histories of it, and its open runs "
				 "(%llu) would go on twice",
				 restore->copy.origin, (unsigned long long)restore->copy.open_runs);
	return 0;
}

int store_restore(struct store_restore *restore, struct error *error)
{
	struct places places;
	struct error behind = {0};
	int lock = -1;

	ERROR_BEGIN(error);
	restore->known = 0;
	restore->aside[0] = restore->kept[0] = '\0';
	set_places(&places, restore->data_dir);
	if (store_check_copy(restore->source, &restore->copy, error) != 0)
		return error->code;
	if (folder_make(restore->data_dir, error) != 0 || folder_lock(restore->data_dir, &lock, error) != 0)
		goto out;
	if (check_known(restore, &places, &behind) != 0 && !(restore->new_log && behind.code == ERR_CORRUPT)) {
		*error = behind;
		goto out;
	}
	if (refuse_if_unclear(restore, &places, error) != 0)
		goto out;
	if (copy_database(restore->source, places.fresh, error) != 0 || unmark(places.fresh, error) != 0)
		goto out;
	/* From an interrupted one all that was there is aside already. */
	if (!exists(places.marker) && set_aside(restore, &places, error) != 0)
		goto out;
	if (write_file(places.marker, bytes_text("reprise journal restore was interrupted here\n"), error) != 0 ||
	    backup_sync_folder(places.marker, error) != 0)
		goto out;
	if (restore->new_log && keep_and_begin_anew(restore, &places, error) != 0)
		goto out;
	put_in_place(restore, &places, error);
out:
	if (error->code != ERR_NONE && !exists(places.marker))
		unlink(places.fresh);
	if (lock >= 0)
		close(lock);
	return error->code == ERR_NONE ? 0 : error_wrap(error, "restore");
}
