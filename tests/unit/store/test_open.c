/* Opening: the lock, folders that cannot be written, schemas and files that are not ours, keys, and journals that lost
 * something. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include "tests/unit/store/fixture.h"

static void append_run(struct fixture *f, const char *id)
{
	struct entry entry;

	make_created(&f->arena, &entry, id, "open", NULL);
	append_ok(f, &entry, 1);
}

/* Opening must fail, with this code and a message that holds all these words. */
static void open_fails(struct fixture *f, int code, const char *const *words)
{
	struct store *store;
	struct error error;

	ck_assert_int_ne(store_open(&store, &f->loop, &f->options, &error), 0);
	ck_assert_msg((int)error.code == code, "%d: %s", error.code, error.message);
	for (; *words != NULL; words++)
		ck_assert_msg(strstr(error.message, *words) != NULL, "no \"%s\" in: %s", *words, error.message);
	ck_assert_ptr_null(store);
}
#define OPEN_FAILS(f, code, ...) open_fails(f, code, (const char *const[]){__VA_ARGS__, NULL})

static void copy_file(struct fixture *f, const char *from, const char *to)
{
	char command[1024];

	snprintf(command, sizeof(command), "cp -a '%s/%s' '%s/%s'", f->folder, from, f->folder, to);
	ck_assert_int_eq(system(command), 0);
}

static mode_t mode_of(struct fixture *f, const char *name)
{
	char path[512];
	struct stat status;

	snprintf(path, sizeof(path), "%s/%s", f->folder, name);
	ck_assert_msg(stat(path, &status) == 0, "%s", path);
	return status.st_mode & 07777;
}

static void read_first(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_raw_entry *raw;
	struct entry entry;
	uint64_t next;
	size_t count;

	(void)arg;
	ck_assert_int_eq(reader_entries(reader, &f->arena, 0, 0, 3, &raw, &count, &next, &f->error), 0);
	ck_assert_uint_eq(count, 3);
	ck_assert_int_eq(entry_decode(&f->arena, raw[0].bytes, store_origin(f->store), &entry, &f->error), 0);
	ck_assert_int_eq(entry.kind, ENTRY_JOURNAL_OPENED);
	ck_assert_uint_eq(entry.seq, 0);
	ck_assert_int_eq(entry_decode(&f->arena, raw[1].bytes, store_origin(f->store), &entry, &f->error), 0);
	ck_assert_int_eq(entry.kind, ENTRY_KEY_ADDED);
	ck_assert_str_eq(json_get_text(entry.data, "keyid"), store_fact_key(f->store)->id);
}

/* A new journal begins with journal.opened and its keys; files and folders are for their owner alone; the same journal
 * opens again with the same origin and keys, another one has its own. */
START_TEST(first_and_second_start)
{
	struct fixture f, other;
	char origin[256], key[KEY_ID_LEN + 1], nested[400];

	fixture_init(&f);
	snprintf(nested, sizeof(nested), "%s/a/b", f.folder); /* folders are made */
	f.options.data_dir = nested;
	fixture_open(&f);
	snprintf(origin, sizeof(origin), "%s", store_origin(f.store));
	snprintf(key, sizeof(key), "%s", store_fact_key(f.store)->id);
	read_and_wait(&f, read_first, NULL);
	ck_assert_uint_eq(mode_of(&f, "a/b"), 0700);
	ck_assert_uint_eq(mode_of(&f, "a/b/keys/fact.pem"), 0600);
	ck_assert_uint_eq(mode_of(&f, "a/b/keys/log.pem"), 0600);
	ck_assert_uint_eq(mode_of(&f, "a/b/journal.db"), 0600);
	ck_assert_uint_eq(mode_of(&f, "a/b/journal.db-wal"), 0600);
	fixture_reopen(&f);
	ck_assert_str_eq(store_origin(f.store), origin);
	ck_assert_str_eq(store_fact_key(f.store)->id, key);
	read_and_wait(&f, read_first, NULL);
	fixture_start(&other);
	ck_assert_str_ne(store_origin(other.store), origin);
	ck_assert_str_ne(store_fact_key(other.store)->id, key);
	fixture_end(&other);
	fixture_end(&f);
}
END_TEST

/* A second one on the same folder is refused at once and told who holds it; after the first has gone it may. */
START_TEST(second_open_is_refused)
{
	struct fixture f;
	char pid[32];
	uint64_t before;

	fixture_start(&f);
	snprintf(pid, sizeof(pid), "pid %ld", (long)getpid());
	before = fixture_now_us();
	OPEN_FAILS(&f, ERR_BUSY, "another reprised", pid, f.folder, "lock");
	ck_assert_uint_lt(fixture_now_us() - before, 900000);
	append_run(&f, "still-works");
	fixture_reopen(&f);
	fixture_end(&f);
}
END_TEST

/* A folder that cannot be written is named, with what to do; the journal in it is not touched and can be read. */
START_TEST(read_only_folder)
{
	struct fixture f;
	struct store_reader *reader;
	struct store_run run;
	struct error error;

	fixture_start(&f);
	append_run(&f, "kept");
	fixture_close(&f);
	if (geteuid() == 0) { /* Modes do not stop root; a read-only mount in a name space of its own does. */
		ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL); /* fails below a chroot, where / is no mount of its own */
		ck_assert_int_eq(mount(f.folder, f.folder, NULL, MS_BIND, NULL), 0);
		ck_assert_int_eq(mount(NULL, f.folder, NULL, MS_PRIVATE, NULL), 0);
		ck_assert_int_eq(mount(f.folder, f.folder, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
	} else {
		ck_assert_int_eq(chmod(f.folder, 0500), 0);
	}
	OPEN_FAILS(&f, ERR_IO, f.folder, "read-only", "--data");
	ck_assert_msg(store_open_readonly(f.folder, &reader, &error) == 0, "%s", error.message);
	ck_assert_int_eq(reader_run(reader, &f.arena, "kept", &run, &error), 0);
	store_reader_close(reader);
	if (geteuid() == 0)
		ck_assert_int_eq(umount(f.folder), 0);
	else
		ck_assert_int_eq(chmod(f.folder, 0700), 0);
	fixture_end(&f);
}
END_TEST

/* A newer schema is refused with both numbers, another program's database too, and neither is changed. */
START_TEST(newer_and_foreign_databases)
{
	struct fixture f;
	char version[64], known[64];

	fixture_start(&f);
	fixture_close(&f);
	snprintf(known, sizeof(known), "up to %u", migrate_version());
	snprintf(version, sizeof(version), "PRAGMA user_version = %u", migrate_version() + 41);
	ck_assert_int_eq(plain_exec(&f, version), SQLITE_OK);
	snprintf(version, sizeof(version), "version %u", migrate_version() + 41);
	OPEN_FAILS(&f, ERR_UNSUPPORTED, version, known);
	snprintf(version, sizeof(version), "PRAGMA user_version = %u", migrate_version());
	ck_assert_int_eq(plain_exec(&f, version), SQLITE_OK);
	fixture_open(&f);
	fixture_close(&f);
	ck_assert_int_eq(plain_exec(&f, "PRAGMA application_id = 17"), SQLITE_OK);
	OPEN_FAILS(&f, ERR_INVALID, "no Reprise journal", "17");
	fixture_end(&f);
}
END_TEST

/* A journal of the first schema is brought up to date at the start and then holds what follows from its entries; looking at it without a
 * daemon is refused until then. */
START_TEST(older_schema_is_migrated)
{
	struct store_reader *reader;
	struct error error = {0};
	struct fixture f;

	fixture_start(&f);
	fixture_close(&f);
	ck_assert_int_eq(plain_exec(&f, "DROP TABLE runtime_spending; DROP TABLE spending_mark; DROP TABLE gate; DROP TABLE schedule; DROP TABLE event; DROP TABLE sink; DROP TABLE snapshot; DROP INDEX run_parent; DROP INDEX run_forked_from; ALTER TABLE run DROP COLUMN forked_from; ALTER TABLE run DROP COLUMN parent; "
				 "ALTER TABLE run DROP COLUMN parent_step; ALTER TABLE run DROP COLUMN awaited; "
				 "ALTER TABLE run DROP COLUMN wake_ms; ALTER TABLE run DROP COLUMN rested_ms; ALTER TABLE run DROP COLUMN suspended; ALTER TABLE run DROP COLUMN quarantined; PRAGMA user_version = 1;"
				 "DROP TABLE run_tombstone; CREATE TABLE run_tombstone(id TEXT PRIMARY KEY) STRICT; DROP TABLE kept_run; DROP TABLE run_clearing;"
				 "DROP TABLE erasure; ALTER TABLE journal_prune DROP COLUMN kept; ALTER TABLE journal_prune DROP COLUMN leaves"), SQLITE_OK);
	ck_assert_int_eq(store_open_readonly(f.folder, &reader, &error), ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.message, "start reprised on it once"));
	fixture_open(&f);
	fixture_close(&f);
	ck_assert_int_eq(plain_exec(&f, "SELECT count(*) FROM schedule"), SQLITE_OK);
	ck_assert_int_eq(plain_exec(&f, "SELECT parent, parent_step, awaited, wake_ms, rested_ms, suspended, quarantined, forked_from FROM run"), SQLITE_OK);
	ck_assert_msg(store_check_tables(f.folder, &error) == 0, "%s", error.message);
	fixture_end(&f);
}
END_TEST

/* Text where the database should be is damage, said so. */
START_TEST(garbage_is_no_database)
{
	struct fixture f;
	char path[512];
	FILE *file;

	fixture_init(&f);
	snprintf(path, sizeof(path), "%s/journal.db", f.folder);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	for (unsigned i = 0; i < 1000; i++)
		fprintf(file, "this is no database at all\n");
	fclose(file);
	OPEN_FAILS(&f, ERR_CORRUPT, f.folder);
	fixture_end(&f);
}
END_TEST

/* The triggers keep a plain connection from changing the log, and only retention's own row opens them. */
START_TEST(journal_is_append_only)
{
	struct fixture f;

	fixture_start(&f);
	fixture_close(&f);
	ck_assert_int_eq(plain_exec(&f, "UPDATE entry SET bytes = x'00' WHERE seq = 1"), SQLITE_CONSTRAINT);
	ck_assert_int_eq(plain_exec(&f, "UPDATE journal SET leaf = zeroblob(32)"), SQLITE_CONSTRAINT);
	ck_assert_int_eq(plain_exec(&f, "DELETE FROM entry"), SQLITE_CONSTRAINT);
	ck_assert_int_eq(plain_exec(&f, "DELETE FROM journal"), SQLITE_CONSTRAINT);
	ck_assert_int_eq(plain_exec(&f, "DELETE FROM checkpoint"), SQLITE_CONSTRAINT);
	ck_assert_int_eq(plain_exec(&f, "UPDATE checkpoint SET note = x'00'"), SQLITE_CONSTRAINT);
	ck_assert_int_eq(plain_exec(&f, "BEGIN; INSERT INTO pruning VALUES(1); DELETE FROM entry WHERE seq = 1; ROLLBACK"),
			 SQLITE_OK);
	fixture_end(&f);
}
END_TEST

/* Somebody who gets around the triggers. */
static void tamper(struct fixture *f, const char *sql)
{
	char text[1024];

	snprintf(text, sizeof(text),
		 "BEGIN; INSERT INTO pruning VALUES(1); DROP TRIGGER entry_update; DROP TRIGGER journal_update; "
		 "DROP TRIGGER checkpoint_update; %s; DELETE FROM pruning; COMMIT",
		 sql);
	ck_assert_int_eq(plain_exec(f, text), SQLITE_OK);
}

static void start_with_runs(struct fixture *f, unsigned count)
{
	fixture_start(f);
	for (unsigned i = 0; i < count; i++) {
		char id[32];

		snprintf(id, sizeof(id), "run-%u", i);
		append_run(f, id);
	}
}

/* The tail cut off: entries present and entries promised, and by whom. */
START_TEST(cut_tail)
{
	struct fixture f;

	start_with_runs(&f, 20);
	fixture_close(&f);
	tamper(&f, "DELETE FROM entry WHERE seq >= 20; DELETE FROM journal WHERE seq >= 20");
	OPEN_FAILS(&f, ERR_CORRUPT, "journal-truncated", "20 entries", "promises 23", "newest checkpoint");
	fixture_end(&f);
}
END_TEST

/* Cut together with the checkpoint: the anchor beside the database still knows. */
START_TEST(cut_tail_and_checkpoint)
{
	struct fixture f;

	start_with_runs(&f, 20);
	fixture_close(&f);
	tamper(&f, "DELETE FROM entry WHERE seq >= 20; DELETE FROM journal WHERE seq >= 20; DELETE FROM checkpoint");
	OPEN_FAILS(&f, ERR_CORRUPT, "journal-rolled-back", "20 entries", "promises 23", "anchor");
	fixture_end(&f);
}
END_TEST

/* An older copy of the whole database put back: refused, nothing is written to it. */
START_TEST(restored_backup)
{
	struct fixture f;

	start_with_runs(&f, 5);
	fixture_close(&f);
	copy_file(&f, "journal.db", "backup.db");
	fixture_open(&f);
	append_run(&f, "later");
	fixture_close(&f);
	copy_file(&f, "backup.db", "journal.db");
	OPEN_FAILS(&f, ERR_CORRUPT, "journal-rolled-back", "8 entries", "promises 9", "backup");
	fixture_end(&f);
}
END_TEST

/* The database deleted, the anchor still there: not a new journal by accident. */
START_TEST(deleted_journal)
{
	struct fixture f;
	char path[512];

	start_with_runs(&f, 5);
	fixture_close(&f);
	snprintf(path, sizeof(path), "%s/journal.db", f.folder);
	ck_assert_int_eq(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/journal.db-wal", f.folder);
	unlink(path);
	OPEN_FAILS(&f, ERR_CORRUPT, "journal-truncated", "empty", "promises 8", "anchor");
	fixture_end(&f);
}
END_TEST

/* An anchor that cannot be read says nothing of whether the journal is an older copy. */
START_TEST(unreadable_anchor)
{
	struct fixture f;
	char path[512];

	start_with_runs(&f, 5);
	fixture_close(&f);
	snprintf(path, sizeof(path), "%s/anchor", f.folder);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0); /* opens, and gives no byte */
	OPEN_FAILS(&f, ERR_IO, "read", "anchor", "Make it readable");
	ck_assert_int_eq(rmdir(path), 0);
	fixture_open(&f);
	fixture_end(&f);
}
END_TEST

/* A changed leaf under the checkpoint, a changed entry behind it, a hole. */
START_TEST(changed_entries)
{
	static const struct {
		const char *sql, *word;
	} cases[] = {
		{"UPDATE journal SET leaf = zeroblob(32) WHERE seq = 5", "journal-changed"},
		{"DELETE FROM journal WHERE seq = 5", "journal-seq"},
		{"DELETE FROM checkpoint; UPDATE entry SET bytes = x'7b7d' WHERE seq = 7", "journal-entry"},
		{"DELETE FROM checkpoint; DELETE FROM entry WHERE seq = 7", "journal-seq"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct fixture f;

		start_with_runs(&f, 17); /* 20 entries: a peak at level 4 and one at level 2 */
		fixture_close(&f);
		tamper(&f, cases[i].sql);
		OPEN_FAILS(&f, ERR_CORRUPT, cases[i].word);
		fixture_end(&f);
	}
}
END_TEST

/* Without a checkpoint so many entries are hashed again at a start and no more: what lies before them is `journal verify`'s to find. */
START_TEST(tail_is_bounded)
{
	struct fixture f;

	start_with_runs(&f, STORE_VERIFY_TAIL_MAX + 10);
	fixture_close(&f);
	tamper(&f, "DELETE FROM checkpoint; UPDATE entry SET bytes = x'7b7d' WHERE seq = 7");
	fixture_open(&f);
	fixture_close(&f);
	ck_assert_int_eq(plain_exec(&f, "INSERT INTO pruning VALUES(1); DELETE FROM checkpoint; UPDATE entry SET bytes = x'7b7d' WHERE seq = 100; DELETE FROM pruning"), SQLITE_OK);
	OPEN_FAILS(&f, ERR_CORRUPT, "journal-entry");
	fixture_end(&f);
}
END_TEST

/* A key that is missing, readable by others, a link, no key, or another one: refused, and the file is named. */
START_TEST(keys_are_checked)
{
	struct fixture f;
	char path[512], other[512];
	FILE *file;

	start_with_runs(&f, 1);
	fixture_close(&f);
	snprintf(path, sizeof(path), "%s/keys/log.pem", f.folder);
	snprintf(other, sizeof(other), "%s/keys/kept.pem", f.folder);
	ck_assert_int_eq(chmod(path, 0640), 0);
	OPEN_FAILS(&f, ERR_DENIED, path, "640");
	ck_assert_int_eq(chmod(path, 0600), 0);
	ck_assert_int_eq(rename(path, other), 0);
	OPEN_FAILS(&f, ERR_NOT_FOUND, path, "missing");
	ck_assert_int_eq(symlink(other, path), 0);
	OPEN_FAILS(&f, ERR_INVALID, path, "symbolic link");
	unlink(path);
	ck_assert_int_eq(mkfifo(path, 0600), 0); /* read, it would hold the start for ever */
	OPEN_FAILS(&f, ERR_INVALID, path, "no regular file");
	unlink(path);
	copy_file(&f, "keys/fact.pem", "keys/log.pem");
	OPEN_FAILS(&f, ERR_INVALID, "same key");
	file = fopen(path, "w");
	fputs("-----BEGIN CERTIFICATE-----\n", file);
	fclose(file);
	OPEN_FAILS(&f, ERR_INVALID, path);
	ck_assert_int_eq(truncate(path, STORE_KEY_FILE_MAX), 0);
	OPEN_FAILS(&f, ERR_TOO_LARGE, path, "more than 16383 bytes");
	unlink(path);
	/* Another log key is another log. */
	{
		struct fixture g;
		char command[1200];

		fixture_start(&g);
		snprintf(command, sizeof(command), "cp -a '%s/keys/log.pem' '%s'", g.folder, path);
		ck_assert_int_eq(system(command), 0);
		fixture_end(&g);
	}
	OPEN_FAILS(&f, ERR_INVALID, path, "not the one");
	ck_assert_int_eq(rename(other, path), 0);
	fixture_open(&f);
	fixture_end(&f);
}
END_TEST

/* Looking at the keys finds what a start would: one that is missing, the same one twice, one of another user's; and makes none. */
START_TEST(keys_are_looked_at)
{
	struct fixture f;
	struct public_key log;
	struct error error;
	struct store_options options;
	char fact[512], path[512], other[512], folder[512];

	start_with_runs(&f, 1);
	fixture_close(&f);
	options = f.options;
	snprintf(fact, sizeof(fact), "%s/keys/fact.pem", f.folder);
	snprintf(path, sizeof(path), "%s/keys/log.pem", f.folder);
	snprintf(other, sizeof(other), "%s/keys/kept.pem", f.folder);
	ck_assert_int_eq(store_check_keys(&options, false, &log, &error), 0);
	ck_assert_uint_eq(strlen(log.id), KEY_ID_LEN);
	options.fact_key_file = path;
	ck_assert_int_eq(store_check_keys(&options, false, &log, &error), ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(error.message, "same key"));
	options.fact_key_file = NULL;
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(fact, 12345, (gid_t)-1), 0);
		ck_assert_int_eq(store_check_keys(&options, true, &log, &error), ERR_DENIED);
		ck_assert_ptr_nonnull(strstr(error.message, "belongs to user 12345"));
		OPEN_FAILS(&f, ERR_DENIED, fact, "must belong to the daemon's user or root");
		ck_assert_int_eq(chown(fact, 0, (gid_t)-1), 0);
	}
	ck_assert_int_eq(rename(path, other), 0);
	ck_assert_int_eq(store_check_keys(&options, false, &log, &error), ERR_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(error.message, path));
	ck_assert_int_eq(store_check_keys(&options, true, &log, &error), 0);
	ck_assert_str_eq(log.id, "");
	ck_assert_int_ne(access(path, F_OK), 0);
	ck_assert_int_eq(rename(other, path), 0);
	/* Where there is nothing yet. */
	snprintf(folder, sizeof(folder), "%s/elsewhere", f.folder);
	options.data_dir = folder;
	ck_assert_int_eq(store_check_keys(&options, true, &log, &error), 0);
	ck_assert_str_eq(log.id, "");
	ck_assert_int_ne(access(folder, F_OK), 0);
	fixture_end(&f);
}
END_TEST

/* The file beside the journal that keeps its newest checkpoint: one of another log is refused, one that no key of ours signed says nothing. */
START_TEST(anchors_of_others)
{
	struct fixture f, g;
	struct store_options options;
	char command[1400];

	start_with_runs(&f, 1);
	fixture_close(&f);
	start_with_runs(&g, 1);
	fixture_close(&g);
	copy_file(&f, "anchor", "kept");
	snprintf(command, sizeof(command), "cp '%s/anchor' '%s/anchor'", g.folder, f.folder);
	ck_assert_int_eq(system(command), 0);
	OPEN_FAILS(&f, ERR_CORRUPT, "journal-rolled-back", "is of log", "Move that file away");
	/* It names our log and promises more than there is, signed by nobody. */
	snprintf(command, sizeof(command), "awk 'NR == 2 { print $1 + 100; next } { print }' '%s/kept' > '%s/anchor'", f.folder, f.folder);
	ck_assert_int_eq(system(command), 0);
	fixture_open(&f);
	fixture_close(&f);
	/* And a path that is none. */
	options = f.options;
	f.options.data_dir = "";
	OPEN_FAILS(&f, ERR_INVALID, "the data folder's path must have 1 to");
	f.options = options;
	fixture_end(&g);
	fixture_end(&f);
}
END_TEST

/* What journal restore leaves for the start that begins another log: it stands in entry 0; text that is no such thing is refused, and no journal begins. */
START_TEST(what_the_new_log_continues)
{
	struct fixture f;
	struct store_reader *reader;
	struct store_raw_entry *raw;
	struct error error;
	struct entry entry;
	char path[512];
	uint64_t next;
	size_t count;
	FILE *file;

	fixture_init(&f);
	snprintf(path, sizeof(path), "%s/" RESTORE_CONTINUES, f.folder);
	for (unsigned i = 0; i < 3; i++) {
		static const char *const texts[] = {"[]", "{\"origin\":", "{\"origin\":\"before\",\"size\":7}"};

		ck_assert_ptr_nonnull(file = fopen(path, "w"));
		fputs(texts[i], file);
		fclose(file);
		if (i < 2)
			OPEN_FAILS(&f, ERR_CORRUPT, path, "is not what journal restore writes");
	}
	fixture_open(&f);
	ck_assert_int_ne(access(path, F_OK), 0);
	fixture_close(&f);
	ck_assert_int_eq(store_open_readonly(f.folder, &reader, &error), 0);
	ck_assert_int_eq(reader_entries(reader, &f.arena, 0, 0, 1, &raw, &count, &next, &error), 0);
	ck_assert_int_eq(reader_entry(reader, &f.arena, &raw[0], 0, &entry, &error), 0);
	ck_assert_str_eq(json_get_text(json_get(entry.data, "continues"), "origin"), "before");
	store_reader_close(reader);
	fixture_end(&f);
}
END_TEST

/* A start that ended while it wrote a key left half a file under another name: the next start makes the key anew. */
START_TEST(half_a_key_is_made_anew)
{
	struct fixture f;
	char path[512];
	FILE *file;

	fixture_init(&f);
	snprintf(path, sizeof(path), "%s/keys", f.folder);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/keys/fact.pem.new", f.folder);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs("-----BEGIN PRIV", file);
	fclose(file);
	fixture_open(&f);
	ck_assert_int_ne(access(path, F_OK), 0);
	fixture_reopen(&f);
	fixture_end(&f);
}
END_TEST

/* An entry 0 whose log is not that of its key, or a name longer than any log's: damage, and nothing reads on with it. */
START_TEST(origin_is_checked)
{
	static const char *const changes[] = {
		"UPDATE entry SET bytes = CAST(replace(bytes, '\"log\":\"', '\"log\":\"x') AS BLOB) WHERE seq = 0",
		"UPDATE entry SET bytes = CAST(replace(bytes, '\"log\":\"', '\"log\":\"' || hex(zeroblob(20000))) AS BLOB) WHERE seq = 0",
	};

	for (size_t i = 0; i < COUNT_OF(changes); i++) {
		struct fixture f;
		struct store_reader *reader;
		struct error error;

		start_with_runs(&f, 1);
		fixture_close(&f);
		tamper(&f, changes[i]);
		ck_assert_int_eq(store_open_readonly(f.folder, &reader, &error), ERR_CORRUPT);
		ck_assert_ptr_nonnull(strstr(error.message, "vkey of entry 0"));
		OPEN_FAILS(&f, ERR_CORRUPT, "vkey of entry 0");
		fixture_end(&f);
	}
}
END_TEST

/* Numbers that no store has written, in tables that somebody changed: nothing is found under them, and reading ends. */
START_TEST(numbers_out_of_range)
{
	struct fixture f;
	struct store_reader *reader;
	struct store_raw_entry *raw;
	struct entry entry;
	struct bytes bytes;
	struct digest digest;
	struct error error;
	size_t count;
	uint64_t next = 0;

	fixture_start(&f);
	entry = (struct entry){.kind = ENTRY_DOCUMENT_ADDED, .data = json_object(&f.arena), .time_ms = fixture_wall_ms()};
	digest = entry_add_value(&f.arena, &entry, "document", BYTES_OF("text"));
	append_ok(&f, &entry, 1);
	fixture_close(&f);
	ck_assert_int_eq(plain_exec(&f, "UPDATE document SET content = -7"), SQLITE_OK);
	tamper(&f, "INSERT INTO journal SELECT 9223372036854775807, leaf FROM journal WHERE seq = 1; "
		   "INSERT INTO entry SELECT 9223372036854775807, bytes FROM entry WHERE seq = 1");
	ck_assert_msg(store_open_readonly(f.folder, &reader, &error) == 0, "%s", error.message);
	ck_assert_int_eq(reader_content(reader, &f.arena, 0, &digest, NULL, &bytes, &error), ERR_NOT_FOUND);
	ck_assert_int_eq(reader_entries(reader, &f.arena, 0, 0, 100, &raw, &count, &next, &error), 0);
	ck_assert_uint_eq(count, 5);
	ck_assert_uint_eq(next, (uint64_t)INT64_MAX + 1);
	ck_assert_int_eq(reader_entries(reader, &f.arena, next, 0, 100, &raw, &count, &next, &error), 0);
	ck_assert_uint_eq(count, 0);
	store_reader_close(reader);
	fixture_end(&f);
}
END_TEST

static void read_last_kind(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_raw_entry *raw;
	size_t count;
	uint64_t next;

	ck_assert_int_eq(reader_entries(reader, &f->arena, 0, 1ull << ENTRY_KEY_ADDED, 100, &raw, &count, &next, &f->error), 0);
	*(size_t *)arg = count;
}

/* Another fact key is told of in the log, once. */
START_TEST(new_fact_key_is_recorded)
{
	struct fixture f, g;
	char path[512];
	size_t keys;

	fixture_start(&f);
	read_and_wait(&f, read_last_kind, &keys);
	ck_assert_uint_eq(keys, 2);
	fixture_start(&g);
	fixture_close(&g);
	fixture_close(&f);
	snprintf(path, sizeof(path), "%s/keys/fact.pem", g.folder);
	f.options.fact_key_file = path;
	for (unsigned i = 0; i < 2; i++) {
		fixture_open(&f);
		read_and_wait(&f, read_last_kind, &keys);
		ck_assert_uint_eq(keys, 3);
		fixture_close(&f);
	}
	check_tables_equal(&f);
	fixture_end(&f);
	fixture_end(&g);
}
END_TEST

/* The journal is read beside a running store and after it, without the lock; a folder without one says so. */
START_TEST(read_without_a_daemon)
{
	struct fixture f;
	struct store_reader *reader;
	struct note_key key;
	struct error error;
	struct store_run run;
	uint64_t size;

	fixture_init(&f);
	ck_assert_int_eq(store_open_readonly(f.folder, &reader, &error), ERR_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(error.message, f.folder));
	fixture_open(&f);
	append_run(&f, "one");
	ck_assert_msg(store_open_readonly(f.folder, &reader, &error) == 0, "%s", error.message);
	ck_assert_str_eq(store_reader_origin(reader), store_origin(f.store));
	ck_assert_int_eq(store_reader_log_key(reader, &key, &error), 0);
	ck_assert_int_eq(reader_run(reader, &f.arena, "one", &run, &error), 0);
	append_run(&f, "two"); /* It is not held up, and not seen by the snapshot. */
	ck_assert_int_eq(reader_run(reader, &f.arena, "two", &run, &error), ERR_NOT_FOUND);
	store_reader_close(reader);
	fixture_close(&f);
	ck_assert_msg(store_open_readonly(f.folder, &reader, &error) == 0, "%s", error.message);
	ck_assert_int_eq(reader_run(reader, &f.arena, "two", &run, &error), 0);
	ck_assert_int_eq(reader_log_size(reader, &size, &error), 0);
	ck_assert_uint_eq(size, 5);
	store_reader_close(reader);
	fixture_end(&f);
}
END_TEST

/* Killed in its first seconds and the write-ahead log, which holds all there is, not copied with the database: not a new
 * journal by accident. */
START_TEST(lost_write_ahead_log)
{
	struct fixture f;
	char copy[300], command[1200];

	fixture_start(&f);
	append_run(&f, "acknowledged");
	snprintf(copy, sizeof(copy), "%s-copy", f.folder);
	snprintf(command, sizeof(command), "cp -a '%s' '%s' && rm '%s/journal.db-wal'", f.folder, copy, copy);
	ck_assert_int_eq(system(command), 0);
	f.options.data_dir = copy;
	OPEN_FAILS(&f, ERR_CORRUPT, "journal-truncated", "empty", "promises 3", "anchor");
	remove_tree(copy);
	f.options.data_dir = f.folder;
	fixture_end(&f);
}
END_TEST

static void move_while_open(const char *name)
{
	char path[400], away[400];
	struct fixture f;
	struct entry entry;
	struct store_run run;
	struct store_reader *reader;
	struct error error;

	fixture_start(&f);
	append_run(&f, "before");
	snprintf(path, sizeof(path), "%s/%s", f.folder, name);
	snprintf(away, sizeof(away), "%s/away", f.folder);
	ck_assert_int_eq(rename(path, away), 0);
	make_created(&f.arena, &entry, "after", "open", NULL);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_IO);
	ck_assert_msg(strstr(f.error.message, path) != NULL && strstr(f.error.message, "moved") != NULL, "%s", f.error.message);
	while (f.broken == 0)
		uv_run(&f.loop, UV_RUN_ONCE);
	ck_assert_int_eq(rename(away, path), 0);
	fixture_close(&f);
	fixture_open(&f);
	ck_assert_int_eq(store_open_readonly(f.folder, &reader, &error), 0);
	ck_assert_int_eq(reader_run(reader, &f.arena, "before", &run, &error), 0);
	ck_assert_int_eq(reader_run(reader, &f.arena, "after", &run, &error), ERR_NOT_FOUND);
	store_reader_close(reader);
	append_run(&f, "after");
	fixture_end(&f);
}

/* A file that is moved away while it is open takes no more appends; put back, everything acknowledged is there. */
START_TEST(moved_file_takes_nothing)
{
	move_while_open("lock");
	move_while_open("journal.db");
	move_while_open("journal.db-wal");
}
END_TEST

TEST_MAIN("store-open", first_and_second_start, second_open_is_refused, read_only_folder, newer_and_foreign_databases, older_schema_is_migrated,
	  garbage_is_no_database, journal_is_append_only, cut_tail, cut_tail_and_checkpoint, restored_backup, deleted_journal, unreadable_anchor,
	  changed_entries, tail_is_bounded, keys_are_checked, keys_are_looked_at, anchors_of_others, what_the_new_log_continues, half_a_key_is_made_anew, origin_is_checked, numbers_out_of_range, new_fact_key_is_recorded, read_without_a_daemon,
	  lost_write_ahead_log, moved_file_takes_nothing)
