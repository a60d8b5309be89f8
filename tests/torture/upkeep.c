/* What time and an operator do to a journal: retention, a backup, a restore, the migration of one that an earlier build wrote; and what has
 * to be true of them afterwards, wherever a fault struck. Main thread. Start at scenario_retain() and upkeep_is_good(). */
#include <fcntl.h>
#include <zstd.h>

#include "tests/torture/session.h"

enum { FILL_BATCH = 8, FILL_ENDED = 8, FILL_OVER = 12 /* batches: more than a tile of 256 entries each */, EARLIER_MAX = 1 << 24 };
#define COPY_NAME "copy.db" /* in the journal's own folder: what happens to it is watched too */

/* All that has ended is over its time at once; a pass comes only when it is asked for. */
static const struct store_retention retention = {.runs_ms = 1, .entries_ms = 1, .every_ms = 1LL << 40};

/* --- retention -------------------------------------------------------------------------------------------------------------- */

bool scenario_fill(const char *folder, struct ledger *ledger)
{
	enum shape shapes[FILL_BATCH];
	struct session s;

	if (!session_open(&s, folder, ledger, NULL))
		return session_refused(&s);
	for (unsigned batch = 0; batch < FILL_ENDED + FILL_OVER; batch++) {
		for (unsigned i = 0; i < FILL_BATCH; i++)
			shapes[i] = batch < FILL_ENDED ? SHAPE_ENDED : SHAPE_OVER;
		session_append(&s, shapes, FILL_BATCH);
	}
	session_append_one(&s, SHAPE_FACT); /* goes on: it stays */
	session_append_one(&s, SHAPE_MEDIUM);
	session_close(&s);
	return true;
}

static void on_purged(struct store_purge *purge)
{
	*(bool *)purge->owner = true;
}

/* True: it was done. */
static bool purge_now(struct session *s, struct store_purge *purge, const char *what)
{
	bool done = false;

	purge->on_done = on_purged;
	purge->owner = &done;
	CHECK(store_purge(s->store, purge) == 0);
	while (!done)
		uv_run(&s->loop, UV_RUN_ONCE);
	if (purge->error.code != ERR_NONE) {
		demand_excuse(what, &purge->error);
		return false;
	}
	s->ledger->upkeep++;
	return true;
}

static bool is_over(const struct ledger *ledger, unsigned number)
{
	return ledger->runs[number].outcome == OUTCOME_ACKNOWLEDGED && (ledger->runs[number].shape == SHAPE_ENDED || ledger->runs[number].shape == SHAPE_OVER);
}

/* The n-th run that has ended. */
static unsigned find_over(const struct ledger *ledger, unsigned n)
{
	for (unsigned i = 0; i < ledger->count; i++)
		if (is_over(ledger, i) && n-- == 0)
			return i;
	wrong("too few runs have ended");
}

static void erase_value_of(struct session *s, unsigned number)
{
	struct store_purge purge = {.kind = STORE_PURGE_CONTENT, .content = digest_of_value(s->ledger->runs[number].shape, number), .reason = BYTES_OF("\"torture\"")};

	s->ledger->runs[number].erasure = REMOVAL_ASKED;
	if (!purge_now(s, &purge, "erasing a value"))
		return;
	s->ledger->runs[number].erasure = REMOVAL_DONE;
	recording_acknowledge(PROMISE_ERASED, number);
}

static void remove_run(struct session *s, unsigned number)
{
	char id[32];
	const char *const ids[] = {id};
	struct store_purge purge = {.kind = STORE_PURGE_RUNS, .runs = ids, .run_count = 1};

	print_run_id(id, number);
	s->ledger->runs[number].removal = REMOVAL_ASKED;
	if (!purge_now(s, &purge, "purging a run"))
		return;
	s->ledger->runs[number].removal = REMOVAL_DONE;
	recording_acknowledge(PROMISE_REMOVED, number);
}

static void remove_all_that_is_over(struct session *s)
{
	struct store_purge purge = {.kind = STORE_PURGE_DUE};

	for (unsigned i = 0; i < s->ledger->count; i++)
		if (is_over(s->ledger, i) && s->ledger->runs[i].removal == REMOVAL_NONE)
			s->ledger->runs[i].removal = REMOVAL_ASKED;
	if (!purge_now(s, &purge, "a pass of retention"))
		return;
	if (!is_faulty() && (purge.pruned_entries == 0 || purge.removed_values == 0 || purge.given_pages == 0))
		wrong("a pass took %llu runs, %llu values, %llu entries and gave %llu pages back", (unsigned long long)purge.removed_runs,
		      (unsigned long long)purge.removed_values, (unsigned long long)purge.pruned_entries, (unsigned long long)purge.given_pages);
	for (unsigned i = 0; i < s->ledger->count; i++)
		if (s->ledger->runs[i].removal == REMOVAL_ASKED && s->ledger->runs[i].outcome == OUTCOME_ACKNOWLEDGED) {
			s->ledger->runs[i].removal = REMOVAL_DONE;
			recording_acknowledge(PROMISE_REMOVED, i);
		}
}

bool scenario_retain(const char *folder, struct ledger *ledger)
{
	struct session s;

	if (!session_open(&s, folder, ledger, &retention))
		return session_refused(&s);
	session_append_one(&s, SHAPE_SMALL);
	erase_value_of(&s, find_over(ledger, 1));
	remove_run(&s, find_over(ledger, 0));
	session_sign(&s); /* a tile goes only when a checkpoint vouches for it */
	remove_all_that_is_over(&s);
	session_read(&s);
	session_append_one(&s, SHAPE_ENDED);
	session_close(&s);
	return true;
}

/* --- a copy and back --------------------------------------------------------------------------------------------------------- */

static void on_copied(struct store_backup *backup)
{
	*(bool *)backup->owner = true;
}

bool scenario_backup(const char *folder, struct ledger *ledger)
{
	struct store_backup backup = {.on_done = on_copied};
	char path[PATH_LEN + 16];
	bool done = false;
	struct session s;
	unsigned count;

	if (!session_open(&s, folder, ledger, NULL))
		return session_refused(&s);
	session_append(&s, (enum shape[]){SHAPE_SMALL, SHAPE_FACT, SHAPE_MEDIUM, SHAPE_DEFINITION}, 4);
	snprintf(path, sizeof(path), "%s/" COPY_NAME, folder);
	backup.path = path;
	backup.owner = &done;
	count = ledger->count;
	ledger->is_copying = true;
	CHECK(store_backup(s.store, &backup) == 0);
	while (!done)
		uv_run(&s.loop, UV_RUN_ONCE);
	if (backup.error.code == ERR_NONE) {
		ledger->copied = count;
		ledger->upkeep++;
		recording_acknowledge(PROMISE_COPIED, count);
	} else {
		demand_excuse("a backup", &backup.error);
	}
	session_close(&s);
	return true;
}

static void plan_restore(struct store_restore *restore, const char *folder, char source[PATH_LEN + 16])
{
	snprintf(source, PATH_LEN + 16, "%s/" COPY_NAME, folder);
	*restore = (struct store_restore){.source = source, .data_dir = folder, .replace = true};
}

bool scenario_restore(const char *folder, struct ledger *ledger)
{
	struct store_restore restore;
	char source[PATH_LEN + 16];
	struct error error;

	plan_restore(&restore, folder, source);
	if (store_restore(&restore, &error) != 0) {
		demand_excuse("a restore", &error);
		return false;
	}
	if (!is_faulty() && restore.known < 2)
		wrong("the copy was held against %zu checkpoints, expected those of the anchor and the journal", restore.known);
	ledger->upkeep++;
	return true;
}

static bool complain(char *why, const char *what, const struct error *error)
{
	snprintf(why, WHY_LEN, "%s: %s", what, error->message);
	return false;
}

/* Until it is repeated no store opens on the folder, and says what to do. */
static bool complete_restore(const char *folder, char *why)
{
	struct store_restore restore;
	char source[PATH_LEN + 16];
	struct error error;
	struct session s;
	struct ledger none = {0};

	if (session_open(&s, folder, &none, NULL)) {
		session_close(&s);
		snprintf(why, WHY_LEN, "a store opened in the middle of a restore");
		return false;
	}
	if (strstr(s.error.message, "once more") == NULL)
		return complain(why, "in the middle of a restore", &s.error);
	plan_restore(&restore, folder, source);
	return store_restore(&restore, &error) == 0 || complain(why, "a restore once more", &error);
}

/* A copy that is there is whole; one that was acknowledged is there, and a journal made of it holds what the journal held. */
static bool copy_is_good(const char *folder, const struct ledger *ledger, char *why)
{
	char path[PATH_LEN + 16], again[PATH_LEN + 16], keys[PATH_LEN + 32], new_keys[PATH_LEN + 32];
	struct store_restore restore = {.source = path, .data_dir = again, .original_is_gone = true};
	struct ledger then = *ledger;
	struct store_copy copy;
	struct error error;

	snprintf(path, sizeof(path), "%s/" COPY_NAME, folder);
	if (access(path, F_OK) != 0) {
		if (ledger->copied > 0)
			snprintf(why, WHY_LEN, "the acknowledged copy is not there");
		return ledger->copied == 0;
	}
	if (store_check_copy(path, &copy, &error) != 0)
		return complain(why, "the copy", &error);
	if (!copy.is_marked) {
		snprintf(why, WHY_LEN, "the copy is not marked as one");
		return false;
	}
	if (ledger->copied == 0)
		return true;
	snprintf(again, sizeof(again), "%s/again", folder);
	snprintf(keys, sizeof(keys), "%s/keys", folder);
	snprintf(new_keys, sizeof(new_keys), "%s/keys", again);
	remove_tree(again);
	CHECK(mkdir(again, 0700) == 0);
	folder_copy(keys, new_keys);
	if (store_restore(&restore, &error) != 0)
		return complain(why, "the copy, restored elsewhere", &error);
	then.count = then.copied;
	then.copied = 0;
	then.is_copying = false;
	then.signed_size = copy.checkpoint;
	return journal_is_good(again, &then, why);
}

bool upkeep_is_good(const char *folder, const struct ledger *ledger, char *why)
{
	char marker[PATH_LEN + 16];

	snprintf(marker, sizeof(marker), "%s/" RESTORE_MARKER, folder);
	if (access(marker, F_OK) == 0 && !complete_restore(folder, why))
		return false;
	return !ledger->is_copying || copy_is_good(folder, ledger, why);
}

/* --- a journal of an earlier build --------------------------------------------------------------------------------------------- */

/* The oldest of tests/journals: all migrations come in one step. */
void make_earlier_journal(const char *folder, struct ledger *ledger)
{
	uint8_t *packed = memory_alloc(EARLIER_MAX), *database = memory_alloc(EARLIER_MAX);
	struct connection connection;
	char path[PATH_LEN + 16];
	struct error error;
	size_t len;
	int64_t entries = 0;
	FILE *file;

	memset(ledger, 0, sizeof(*ledger));
	CHECK(mkdir(folder, 0700) == 0);
	snprintf(path, sizeof(path), "%s/keys", folder);
	folder_copy(TORTURE_JOURNALS "/keys", path);
	file = fopen(TORTURE_JOURNALS "/schema-0001.db.zst", "re");
	CHECK(file != NULL);
	len = fread(packed, 1, EARLIER_MAX, file);
	fclose(file);
	len = ZSTD_decompress(database, EARLIER_MAX, packed, len);
	CHECK(!ZSTD_isError(len));
	snprintf(path, sizeof(path), "%s/journal.db", folder);
	file = fopen(path, "we");
	CHECK(file != NULL);
	CHECK(fwrite(database, 1, len, file) == len);
	CHECK(fclose(file) == 0);
	CHECK(connection_open(&connection, path, SQLITE_OPEN_READONLY, &error) == 0);
	CHECK(connection_number(&connection, "SELECT count(*) FROM entry", &entries, &error) == 0);
	connection_close(&connection);
	CHECK(entries > 0);
	ledger->entries_before = (uint64_t)entries;
	free(packed);
	free(database);
}

bool scenario_migrate(const char *folder, struct ledger *ledger)
{
	struct session s;

	if (!session_open(&s, folder, ledger, NULL))
		return session_refused(&s);
	ledger->upkeep++;
	session_append(&s, (enum shape[]){SHAPE_SMALL, SHAPE_ENDED, SHAPE_DEFINITION}, 3);
	session_read(&s);
	session_close(&s);
	return true;
}
