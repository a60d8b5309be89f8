/* The store's outside: opening, closing, the lock, and the loop's side of the hand-over to the threads. Loop thread, but
 * for store_break(). Start at store_open(); appends go on in commit.c, reads in reader.c. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/internal.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/log.h"

enum { LOG_ID_LEN = 16 };

/* --- the folder ----------------------------------------------------------------------------------------------------- */

int folder_make(const char *path, struct error *error)
{
	char part[STORE_PATH_MAX];
	struct stat status;
	bool made;

	if (strlen(path) == 0 || strlen(path) > STORE_PATH_MAX - 64)
		return error_set(error, ERR_INVALID, "the data folder's path must have 1 to %d bytes", STORE_PATH_MAX - 64);
	snprintf(part, sizeof(part), "%s", path);
	for (char *c = part + 1;; c++) {
		char kept = *c;

		if (kept != '/' && kept != '\0')
			continue;
		*c = '\0';
		made = mkdir(part, 0700) == 0;
		if (!made && errno != EEXIST && (errno != EROFS || stat(part, &status) != 0))
			return error_set(error, ERR_IO, "make folder %s: %s", part, strerror(errno));
		if (made && sync_folder_of(part, error) != 0) /* else a power cut may take it away with all that was acknowledged in it */
			return error->code;
		if (kept == '\0')
			break;
		*c = kept;
	}
	if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
		return error_set(error, ERR_IO, "%s is no folder", path);
	if (access(path, W_OK | X_OK) != 0)
		return error_set(error, ERR_IO,
				 "%s is read-only (%s): make it writable for user %u, or choose another folder with --data", path,
				 strerror(errno), (unsigned)geteuid());
	return 0;
}

int folder_lock(const char *data_dir, int *lock_file, struct error *error)
{
	char path[STORE_PATH_MAX], text[32] = {0};
	ssize_t len;
	int size;

	snprintf(path, sizeof(path), "%s/lock", data_dir);
	*lock_file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (*lock_file < 0)
		return error_set(error, ERR_IO, "open %s: %s", path, strerror(errno));
	if (flock(*lock_file, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK)
			return error_set(error, ERR_IO, "lock %s: %s", path, strerror(errno));
		len = pread(*lock_file, text, sizeof(text) - 1, 0);
		text[len > 0 ? strspn(text, "0123456789") : 0] = '\0';
		return error_set(error, ERR_BUSY, "another reprised (pid %s) holds %s: stop it, or choose another folder with --data", text[0] ? text : "unknown", path);
	}
	/* The lock is what counts, the number is for whoever finds it held; over the old one, so that it needs no room. */
	size = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
	if (pwrite(*lock_file, text, (size_t)size, 0) != size || ftruncate(*lock_file, size) != 0) {
		log_warn(LOG_STORE, "%s does not say who holds it: %s", path, strerror(errno));
		if (ftruncate(*lock_file, 0) != 0)
			log_warn(LOG_STORE, "%s: %s", path, strerror(errno));
	}
	return 0;
}

/* --- the start of a journal ------------------------------------------------------------------------------------------ */

/* "host/reprise/<log id>": like a URL without its scheme, never the same for two databases. */
static char *make_origin(void)
{
	char host[65] = {0}, id[LOG_ID_LEN * 2 + 1], text[256];
	uint8_t random[LOG_ID_LEN];

	if (gethostname(host, sizeof(host) - 1) != 0)
		host[0] = '\0';
	for (char *c = host; *c != '\0'; c++) {
		if (*c >= 'A' && *c <= 'Z')
			*c = (char)(*c - 'A' + 'a');
		else if (strchr("abcdefghijklmnopqrstuvwxyz0123456789.-", *c) == NULL)
			*c = '-';
	}
	randombytes_buf(random, sizeof(random));
	sodium_bin2hex(id, sizeof(id), random, sizeof(random));
	snprintf(text, sizeof(text), "%s/reprise/%s", host[0] != '\0' ? host : "localhost", id);
	return memory_text(text);
}

static void fill_key_entry(struct arena *arena, struct entry *entry, const struct public_key *key, const char *purpose,
			   int64_t time_ms)
{
	struct buffer text;

	buffer_init(&text, 256);
	base64_add(&text, (struct bytes){key->bytes, sizeof(key->bytes)});
	*entry = (struct entry){.kind = ENTRY_KEY_ADDED, .data = json_object(arena), .time_ms = time_ms};
	json_set_text(arena, entry->data, "algorithm", "ed25519");
	json_set_text(arena, entry->data, "keyid", key->id);
	json_set_text(arena, entry->data, "public", buffer_text(&text));
	json_set_text(arena, entry->data, "purpose", purpose);
	buffer_close(&text);
}

/* On the opening thread, before there are others. */
static int append_now(struct store *store, struct entry *entries, size_t count, struct error *error)
{
	struct store_append append = {.entries = entries, .entry_count = count};
	struct list batch;

	list_init(&batch);
	list_add_last(&batch, &append.link);
	commit_batch(store, &batch);
	*error = append.error;
	return error->code;
}

/* What `journal restore --new-log` left: {origin, size, root} of the log that ended. */
static int add_continues(struct store *store, struct arena *arena, struct json *data, struct error *error)
{
	char path[STORE_PATH_MAX];
	uint8_t text[4096];
	struct json *json;
	FILE *file;
	size_t len;

	snprintf(path, sizeof(path), "%s/" RESTORE_CONTINUES, store->data_dir);
	file = fopen(path, "re");
	if (file == NULL)
		return 0;
	len = fread(text, 1, sizeof(text), file);
	fclose(file);
	json = json_parse(arena, (struct bytes){text, len}, JSON_STRICT, NULL, error);
	if (json == NULL || !json_is(json, JSON_OBJECT))
		return error_set(error, ERR_CORRUPT, "%s is not what journal restore writes: restore once more, or remove it to begin a log that names none before it", path);
	json_set(arena, data, "continues", json);
	log_info(LOG_STORE, "the new log continues %s", json_get_text(json, "origin"));
	return 0;
}

static int begin_journal(struct store *store, struct error *error)
{
	struct entry *entries = memory_zero(3 * sizeof(*entries));
	int64_t time_ms = store->options.wall_ms();
	struct arena arena;
	struct buffer vkey;
	struct json *daemon;

	arena_init(&arena);
	buffer_init(&vkey, 1024);
	note_key_print(&store->log_key, &vkey);
	daemon = json_object(&arena);
	json_set_text(&arena, daemon, "name", "reprise");
	json_set_text(&arena, daemon, "version", REPRISE_VERSION);
	entries[0] = (struct entry){.kind = ENTRY_JOURNAL_OPENED, .data = json_object(&arena), .time_ms = time_ms};
	json_set_text(&arena, entries[0].data, "vkey", buffer_text(&vkey));
	json_set(&arena, entries[0].data, "daemon", daemon);
	if (add_continues(store, &arena, entries[0].data, error) != 0)
		goto out;
	fill_key_entry(&arena, &entries[1], &store->signer.fact->public, "fact", time_ms);
	fill_key_entry(&arena, &entries[2], &store->signer.log->public, "log", time_ms);
	if (append_now(store, entries, 3, error) == 0) {
		char path[STORE_PATH_MAX];

		snprintf(path, sizeof(path), "%s/" RESTORE_CONTINUES, store->data_dir);
		unlink(path);
	}
out:
	buffer_close(&vkey);
	arena_close(&arena);
	free(entries);
	return error->code;
}

/* Another fact key than before is a change that the log tells of. */
static int record_fact_key(struct store *store, struct error *error)
{
	struct entry *entry;
	struct arena arena;
	bool newest;

	definition_table_key_is_newest(&store->writer.connection, "fact", store->signer.fact->public.id, &newest, error);
	if (error->code != ERR_NONE || newest)
		return error->code;
	arena_init(&arena);
	entry = arena_zero(&arena, sizeof(*entry));
	fill_key_entry(&arena, entry, &store->signer.fact->public, "fact", store->options.wall_ms());
	append_now(store, entry, 1, error);
	arena_close(&arena);
	return error->code;
}

/* --- verifying what is there ------------------------------------------------------------------------------------------ */

static int check_root(struct store *store, const struct checkpoint *checkpoint, const char *whose, const char *behind,
		      struct error *error)
{
	struct writer *writer = &store->writer;
	unsigned long long present = writer->tree.size, promised = checkpoint->size;
	struct error why = {0};
	struct digest root;
	bool hides;

	if (promised > present)
		return error_set(error, ERR_CORRUPT,
				 "%s: the journal has %llu entries, %s promises %llu. Nothing is written to it. If it is a "
				 "restored backup, begin a new journal",
				 behind, present, whose, promised);
	if (retention_table_hides(&writer->connection, promised, &hides, error) != 0)
		return error->code;
	if (hides) {
		log_warn(LOG_STORE, "%s, of size %llu, ends among entries that were pruned since: it cannot be compared", whose, promised);
		return 0;
	}
	if (log_tree_root_at(promised, entry_table_read_node, &writer->connection, &root, &why) != 0)
		return error_set(error, ERR_CORRUPT, "journal-changed: the tree under the first %llu entries cannot be read: %s",
				 promised, why.message);
	if (!digest_equal(&root, &checkpoint->root))
		return error_set(error, ERR_CORRUPT, "journal-changed: the first %llu entries are not those that %s vouches for",
				 promised, whose);
	return 0;
}

/* The entries that no checkpoint covers yet are hashed again. */
static int check_tail(struct store *store, uint64_t from, struct error *error)
{
	struct connection *connection = &store->writer.connection;
	uint64_t size = store->writer.tree.size;
	struct arena arena;

	if (size - from > STORE_VERIFY_TAIL_MAX)
		from = size - STORE_VERIFY_TAIL_MAX;
	arena_init(&arena);
	for (uint64_t seq = from; seq < size && error->code == ERR_NONE; seq++) {
		struct digest leaf, stored;
		struct bytes bytes;

		if (entry_table_read_node(connection, 0, seq, &stored) != 0)
			error_set(error, ERR_CORRUPT, "journal-seq: leaf %llu of %llu is missing", (unsigned long long)seq,
				  (unsigned long long)size);
		else if (entry_table_bytes(connection, &arena, seq, &bytes, error) != 0)
			error_wrap(error, "journal-seq: of %llu entries", (unsigned long long)size);
		else if ((leaf = log_tree_leaf(bytes), !digest_equal(&leaf, &stored)))
			error_set(error, ERR_CORRUPT, "journal-entry: entry %llu does not hash to its leaf",
				  (unsigned long long)seq);
		if (error->code == ERR_NOT_FOUND)
			error->code = ERR_CORRUPT;
	}
	arena_close(&arena);
	return error->code;
}

/* None is none; one that cannot be read is no reason to believe a journal that may be an older copy. */
static int read_anchor(const char *path, uint8_t *text, size_t size, struct bytes *note, struct error *error)
{
	int descriptor = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = 0;

	*note = (struct bytes){text, 0};
	if (descriptor < 0 && errno == ENOENT)
		return 0;
	if (descriptor < 0 || (len = read(descriptor, text, size)) < 0)
		error_set(error, ERR_IO, "read %s: %s. Make it readable, then start again", path, strerror(errno));
	else
		note->len = (size_t)len;
	if (descriptor >= 0)
		close(descriptor);
	return error->code;
}

/* The copy of the newest checkpoint outside the database: ahead of the journal when that is an older backup. */
static int check_anchor(struct store *store, struct error *error)
{
	uint8_t text[4096];
	struct checkpoint checkpoint;
	struct error why = {0};
	char whose[STORE_PATH_MAX];
	struct bytes note;

	snprintf(whose, sizeof(whose), "%s/anchor", store->data_dir);
	if (read_anchor(whose, text, sizeof(text), &note, error) != 0 || note.len == 0)
		return error->code;
	if (checkpoint_parse(note, &checkpoint, &why) != 0) {
		log_warn(LOG_STORE, "%s is no checkpoint and is not looked at: %s", whose, why.message);
		return 0;
	}
	if (store->origin == NULL)
		return error_set(error, ERR_CORRUPT,
				 "journal-truncated: the journal is empty, %s promises %llu entries of %s. Move that file away "
				 "to begin a new one",
				 whose, (unsigned long long)checkpoint.size, checkpoint.origin);
	if (strcmp(checkpoint.origin, store->origin) != 0)
		return error_set(error, ERR_CORRUPT,
				 "journal-rolled-back: %s is of log %s, the journal is %s. Move that file away if this is meant",
				 whose, checkpoint.origin, store->origin);
	if (checkpoint_open(note, &store->log_key, &checkpoint, &why) != 0) {
		log_warn(LOG_STORE, "%s is not signed by the log key and is not looked at: %s", whose, why.message);
		return 0;
	}
	return check_root(store, &checkpoint, whose, "journal-rolled-back", error);
}

static int check_journal(struct store *store, struct error *error)
{
	struct writer *writer = &store->writer;
	struct checkpoint checkpoint = {0};
	struct arena arena;
	struct bytes note;

	arena_init(&arena);
	if (checkpoint_table_get(&writer->connection, &arena, 0, &note, error) == 0) {
		if (checkpoint_open(note, &store->log_key, &checkpoint, error) != 0) {
			error_wrap(error, "the newest stored checkpoint");
			error->code = ERR_CORRUPT;
		} else if (check_root(store, &checkpoint, "its newest checkpoint", "journal-truncated", error) == 0) {
			buffer_add_bytes(&writer->note, note);
			writer->signed_size = checkpoint.size;
		}
	} else if (error->code == ERR_NOT_FOUND) {
		*error = (struct error){0}; /* It ended before the first one. */
	}
	arena_close(&arena);
	if (error->code != ERR_NONE)
		return error->code;
	writer->unsigned_since_us = store->options.now_us();
	if (check_tail(store, checkpoint.size, error) != 0)
		return error->code;
	return check_anchor(store, error);
}

/* Who it says it is, and that our log key is the one it was begun with. */
static int open_old_journal(struct store *store, struct error *error)
{
	const char *origin, *vkey;
	struct buffer ours;
	struct arena arena;

	arena_init(&arena);
	buffer_init(&ours, 1024);
	if (entry_table_origin(&store->writer.connection, &arena, &origin, &vkey, error) != 0)
		goto out;
	store->origin = memory_text(origin);
	if (note_key_init(&store->log_key, origin, NOTE_KEY_LOG, &store->signer.log->public, error) != 0)
		goto out;
	note_key_print(&store->log_key, &ours);
	if (strcmp(buffer_text(&ours), vkey) != 0)
		error_set(error, ERR_INVALID,
			  "the log key %s is not the one that this journal was begun with (%s): put that one back",
			  store->options.log_key_file, vkey);
out:
	buffer_close(&ours);
	arena_close(&arena);
	if (error->code != ERR_NONE || check_journal(store, error) != 0)
		return error->code;
	return record_fact_key(store, error);
}

static int open_new_journal(struct store *store, struct error *error)
{
	if (check_anchor(store, error) != 0)
		return error->code;
	store->origin = make_origin();
	if (note_key_init(&store->log_key, store->origin, NOTE_KEY_LOG, &store->signer.log->public, error) != 0)
		return error->code;
	if (begin_journal(store, error) != 0)
		return error->code;
	FAIL_POINT(OPEN_BEGUN);
	/* From its first moment on: a journal that lost its write-ahead log would look like a new one. */
	return commit_sign_checkpoint(store, false, error);
}

/* --- the loop's side -------------------------------------------------------------------------------------------------- */

/* While somebody waits for us the loop stays alive, and not longer. */
static void keep_loop_alive(struct store *store)
{
	if (store->by_hand)
		return;
	if (store->depth + store->signs + store->reads + store->purges > 0 || store->backup.request != NULL)
		uv_ref((uv_handle_t *)&store->async);
	else
		uv_unref((uv_handle_t *)&store->async);
}

static void on_idle(uv_idle_t *handle);

/* The loop does not sleep for now: sleeping and being woken takes some 50 us, as much as a commit on a fast disk. Only while the
 * writer is seen at work on another CPU; else it could be queued on this one, behind us who look for it. */
static void start_polling(struct store *store, uint64_t now)
{
	int writer_cpu = atomic_load(&store->writer_cpu);

	if (writer_cpu < 0 || writer_cpu == sched_getcpu() || store->last_commit_us > STORE_POLL_US)
		return;
	store->poll_until_us = now + STORE_POLL_US;
	atomic_store(&store->is_polling, true);
	uv_idle_start(&store->idle, on_idle);
}

static void stop_polling(struct store *store)
{
	if (!atomic_load(&store->is_polling))
		return;
	uv_idle_stop(&store->idle);
	atomic_store(&store->is_polling, false);
}

static void hand_over(struct store *store)
{
	uint64_t now;

	if (list_empty(&store->staged) && list_empty(&store->staged_urgent) && list_empty(&store->staged_signs))
		return;
	now = store->options.now_us();
	LIST_EACH (link, &store->staged)
		CONTAINER_OF(link, struct store_append, link)->handed_us = now;
	LIST_EACH (link, &store->staged_urgent)
		CONTAINER_OF(link, struct store_append, link)->handed_us = now;
	uv_mutex_lock(&store->lock);
	list_move_all(&store->urgent, &store->staged_urgent);
	list_move_all(&store->queue, &store->staged);
	list_move_all(&store->sign_queue, &store->staged_signs);
	store->expected = false;
	uv_mutex_unlock(&store->lock);
	start_polling(store, now); /* The writer may still be seen looking. */
	/* Not before: the writer would wake up, find the lock taken and go to sleep once more. */
	atomic_store(&store->is_handed, true);
	uv_cond_signal(&store->work);
}

/* Once per turn, just before the loop sleeps: what the turn staged makes one batch, without a timer and for one lock.
 * Not uv_check: timers run before the poll, so what a timer staged would sleep through it. */
static void on_prepare(uv_prepare_t *handle)
{
	hand_over(handle->data);
}

static struct list *take_first(struct list *list)
{
	struct list *first = list->next;

	if (first == list)
		return NULL;
	list_remove(first);
	return first;
}

static void tell_broken(struct store *store)
{
	if (!atomic_load(&store->is_broken) || store->told_broken)
		return;
	store->told_broken = true;
	if (store->options.on_broken != NULL)
		store->options.on_broken(store->options.arg, &store->broken);
}

static bool is_told_all(const struct store *store)
{
	return list_empty(&store->returned) && list_empty(&store->returned_signs) && list_empty(&store->returned_reads) && list_empty(&store->returned_purges);
}

/* The lists are the store's and not this call's, as a callback may close the store, which drains them too. What came back later is
 * only looked at when they are empty: so a read never shows a commit that its own append has not been told of yet. */
static void drain(struct store *store, uint64_t until_us)
{
	bool in_time = true;
	struct list *first;

	if (!is_told_all(store)) {
		store->more_came = true; /* perhaps: what woke us may have been that */
	} else {
		store->more_came = false;
		uv_mutex_lock(&store->lock); /* uv_async_send() coalesces: take all, never count. */
		atomic_store(&store->is_done, false);
		list_move_all(&store->returned, &store->done);
		list_move_all(&store->returned_signs, &store->done_signs);
		list_move_all(&store->returned_reads, &store->done_reads);
		list_move_all(&store->returned_purges, &store->done_purges);
		uv_mutex_unlock(&store->lock);
	}
	while (in_time && (first = take_first(&store->returned)) != NULL) {
		struct store_append *append = CONTAINER_OF(first, struct store_append, link);

		store->depth--;
		store->last_commit_us = append->committed_us > append->handed_us ? append->committed_us - append->handed_us : 0;
		FAIL_POINT(APPEND_HEARD);
		append->on_done(append);
		in_time = store->options.now_us() < until_us;
	}
	while (in_time && (first = take_first(&store->returned_signs)) != NULL) {
		struct store_sign *sign = CONTAINER_OF(first, struct store_sign, link);

		store->signs--;
		sign->on_done(sign);
		in_time = store->options.now_us() < until_us;
	}
	while (in_time && (first = take_first(&store->returned_reads)) != NULL) {
		struct store_read *read = CONTAINER_OF(first, struct store_read, link);

		store->reads--;
		read->on_done(read);
		in_time = store->options.now_us() < until_us;
	}
	if (atomic_load(&store->backup.is_done))
		backup_finish(store);
	while (in_time && (first = take_first(&store->returned_purges)) != NULL) {
		struct store_purge *purge = CONTAINER_OF(first, struct store_purge, link);

		store->purges--;
		purge->on_done(purge);
		in_time = store->options.now_us() < until_us;
	}
	tell_broken(store);
}

/* A transaction may hold thousands of appends, and what each brings about takes a moment: others have their turns in between. */
static void receive(struct store *store)
{
	drain(store, store->options.now_us() + STORE_TURN_US);
	if (store->closing)
		return;
	keep_loop_alive(store);
	if (!is_told_all(store) || store->more_came)
		store_wake_loop(store);
}

void store_wake_loop(struct store *store)
{
	if (!store->by_hand)
		uv_async_send(&store->async);
}

static void on_async(uv_async_t *handle)
{
	receive(handle->data);
}

/* What the writer gave back before it saw that polling has ended is taken here; from then on it wakes the loop. */
static void on_idle(uv_idle_t *handle)
{
	struct store *store = handle->data;
	bool late = store->options.now_us() >= store->poll_until_us;

	if (!atomic_load(&store->is_done) && !late)
		return;
	stop_polling(store);
	receive(store);
}

void store_expect(struct store *store)
{
	/* Whoever works already need not be woken: what comes waits for it anyway. */
	if (!store->may_poll || store->closing || store->depth > 0)
		return;
	atomic_store(&store->loop_cpu, sched_getcpu());
	uv_mutex_lock(&store->lock);
	store->expected = true;
	uv_mutex_unlock(&store->lock);
	uv_cond_signal(&store->work);
}

void store_break(struct store *store, const struct error *error)
{
	bool first;

	uv_mutex_lock(&store->lock);
	first = !atomic_load(&store->is_broken);
	if (first) {
		store->broken = *error;
		atomic_store(&store->is_broken, true);
	}
	uv_mutex_unlock(&store->lock);
	if (first && store->threads_running)
		store_wake_loop(store);
}

int store_append(struct store *store, struct store_append *append)
{
	if (store->closing || store->depth >= STORE_QUEUE_MAX + (append->urgent ? STORE_URGENT_MAX : 0))
		return ERR_BUSY;
	append->error = (struct error){0};
	append->seq_first = append->handed_us = append->taken_us = append->committed_us = 0;
	list_add_last(append->urgent ? &store->staged_urgent : &store->staged, &append->link);
	store->depth++;
	keep_loop_alive(store);
	return 0;
}

unsigned store_queue_depth(const struct store *store)
{
	return store->depth;
}

int store_sign_checkpoint(struct store *store, struct store_sign *sign)
{
	if (store->closing || store->signs >= STORE_READS_MAX)
		return ERR_BUSY;
	sign->error = (struct error){0};
	buffer_init(&sign->note, STORE_NOTE_MAX);
	list_add_last(&store->staged_signs, &sign->link);
	store->signs++;
	keep_loop_alive(store);
	return 0;
}

int store_read(struct store *store, struct store_read *read)
{
	if (store->closing || store->reads >= STORE_READS_MAX)
		return ERR_BUSY;
	read->error = (struct error){0};
	arena_init(&read->arena);
	store->reads++;
	keep_loop_alive(store);
	uv_mutex_lock(&store->lock);
	list_add_last(&store->read_queue, &read->link);
	uv_mutex_unlock(&store->lock);
	uv_cond_signal(&store->read_work); /* after the lock, as in hand_over() */
	return 0;
}

int store_purge(struct store *store, struct store_purge *purge)
{
	if (store->closing || store->purges >= STORE_PURGES_MAX)
		return ERR_BUSY;
	CHECK(purge->kind != STORE_PURGE_RUNS || (purge->run_count > 0 && purge->run_count <= STORE_PURGE_RUNS_MAX));
	purge->error = (struct error){0};
	purge->removed_runs = purge->removed_values = purge->pruned_entries = purge->given_pages = 0;
	store->purges++;
	keep_loop_alive(store);
	uv_mutex_lock(&store->lock);
	list_add_last(&store->purge_queue, &purge->link);
	uv_mutex_unlock(&store->lock);
	uv_cond_signal(&store->work);
	return 0;
}

const char *store_library_version(void)
{
	return sqlite3_libversion();
}

const char *store_origin(const struct store *store)
{
	return store->origin;
}

const struct public_key *store_fact_key(const struct store *store)
{
	return &store->signer.fact->public;
}

void store_log_key(const struct store *store, struct note_key *key)
{
	*key = store->log_key;
}

struct store_counters *store_counters(struct store *store)
{
	return &store->counters;
}

/* --- open and close --------------------------------------------------------------------------------------------------- */

static char *path_in(const char *folder, const char *name)
{
	char path[STORE_PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return memory_text(path);
}

static int usable_cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static void set_options(struct store *store, const struct store_options *options)
{
	store->options = *options;
	CHECK(options->now_us != NULL);
	CHECK(options->wall_ms != NULL);
	store->may_poll = usable_cpus() > 1;
	if (store->options.checkpoint_entries == 0)
		store->options.checkpoint_entries = STORE_CHECKPOINT_ENTRIES;
	if (store->options.checkpoint_every_ms <= 0)
		store->options.checkpoint_every_ms = STORE_CHECKPOINT_EVERY_MS;
	if (store->options.wal_mib == 0)
		store->options.wal_mib = STORE_WAL_MIB;
	if (store->options.wal_max_bytes == 0)
		store->options.wal_max_bytes = (uint64_t)STORE_WAL_MAX_MIB << 20;
	store->data_dir = memory_text(options->data_dir);
	store->database_path = path_in(options->data_dir, "journal.db");
	store->fact_key_path = options->fact_key_file != NULL ? memory_text(options->fact_key_file)
							      : path_in(options->data_dir, "keys/fact.pem");
	store->log_key_path =
		options->log_key_file != NULL ? memory_text(options->log_key_file) : path_in(options->data_dir, "keys/log.pem");
	store->options.data_dir = store->data_dir;
	store->options.fact_key_file = store->fact_key_path;
	store->options.log_key_file = store->log_key_path;
}

/* All but the struct itself. */
static void free_parts(struct store *store)
{
	uv_cond_destroy(&store->work);
	uv_cond_destroy(&store->read_work);
	uv_cond_destroy(&store->wal_work);
	uv_mutex_destroy(&store->lock);
	disk_close(store);
	if (store->lock_file >= 0)
		close(store->lock_file); /* Gives the lock back: the last thing of all. */
	free(store->data_dir);
	free(store->database_path);
	free(store->fact_key_path);
	free(store->log_key_path);
	free(store->origin);
}

static struct store *new_store(const struct store_options *options)
{
	struct store *store = memory_zero(sizeof(*store));
	struct list *const lists[] = {&store->staged_urgent, &store->staged,	 &store->staged_signs, &store->urgent,
				      &store->queue,	     &store->sign_queue, &store->done,	       &store->done_signs,
				      &store->read_queue,    &store->done_reads, &store->returned,     &store->returned_signs,
				      &store->returned_reads, &store->purge_queue, &store->done_purges, &store->returned_purges};

	for (size_t i = 0; i < COUNT_OF(lists); i++)
		list_init(lists[i]);
	store->lock_file = -1;
	atomic_init(&store->loop_cpu, -1);
	atomic_init(&store->writer_cpu, -1);
	CHECK(uv_mutex_init(&store->lock) == 0);
	CHECK(uv_cond_init(&store->work) == 0);
	CHECK(uv_cond_init(&store->read_work) == 0);
	CHECK(uv_cond_init(&store->wal_work) == 0);
	set_options(store, options);
	disk_init(store);
	return store;
}

static const struct {
	size_t at; /* of its uv_thread_t in struct store */
	uv_thread_cb run;
} threads[] = {
	{offsetof(struct store, writer_thread), commit_run}, {offsetof(struct store, reader_thread), reader_run_thread}, {offsetof(struct store, wal_thread), commit_run_wal},
};

static uv_thread_t *thread_at(struct store *store, size_t index)
{
	return (uv_thread_t *)(void *)((char *)store + threads[index].at);
}

/* They empty their queues first. */
static void stop_threads(struct store *store, size_t count)
{
	uv_mutex_lock(&store->lock);
	store->stop = true;
	store->stop_reading = true;
	uv_cond_broadcast(&store->work);
	uv_cond_broadcast(&store->read_work);
	uv_cond_broadcast(&store->wal_work);
	uv_mutex_unlock(&store->lock);
	for (size_t i = 0; i < count; i++)
		uv_thread_join(thread_at(store, i));
	store->threads_running = false;
}

/* Not enough of them is nothing to abort for: what was started ends again. */
static int start_threads(struct store *store, uv_loop_t *loop, struct error *error)
{
	const uv_thread_options_t options = {.flags = UV_THREAD_HAS_STACK_SIZE, .stack_size = STORE_THREAD_STACK};

	store->loop = loop;
	CHECK(uv_prepare_init(loop, &store->prepare) == 0);
	CHECK(uv_idle_init(loop, &store->idle) == 0);
	CHECK(uv_async_init(loop, &store->async, on_async) == 0);
	store->prepare.data = store->idle.data = store->async.data = store;
	store->handles_open = 3;
	CHECK(uv_prepare_start(&store->prepare, on_prepare) == 0);
	uv_unref((uv_handle_t *)&store->prepare);
	uv_unref((uv_handle_t *)&store->async);
	store->threads_running = true;
	for (size_t i = 0; i < COUNT_OF(threads); i++) {
		int code = uv_thread_create_ex(thread_at(store, i), &options, threads[i].run, store);
		if (code == 0)
			continue;
		stop_threads(store, i);
		return error_set(error, ERR_BUSY, "open journal %s: a thread cannot be started: %s", store->data_dir, uv_strerror(code));
	}
	return 0;
}

static int open_wal_connection(struct store *store, struct error *error)
{
	if (connection_open(&store->wal_connection, store->database_path, SQLITE_OPEN_READWRITE, error) != 0)
		return error->code;
	if (connection_exec(&store->wal_connection, "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-16",
			    error) != 0)
		connection_close(&store->wal_connection);
	else
		sqlite3_busy_timeout(store->wal_connection.db, STORE_WAL_TRUNCATE_BUSY_MS);
	return error->code;
}

static int check_no_restore(const struct store *store, struct error *error)
{
	char path[STORE_PATH_MAX];

	snprintf(path, sizeof(path), "%s/" RESTORE_MARKER, store->data_dir);
	if (access(path, F_OK) != 0)
		return 0;
	return error_set(error, ERR_CORRUPT, "a restore into this folder was interrupted: run the same `reprise journal restore` once more");
}

/* All but what makes things happen in it. */
static int open_parts(struct store **opened, const struct store_options *options, struct error *error)
{
	struct store *store = new_store(options);
	char keys[STORE_PATH_MAX];
	bool is_new;

	*opened = NULL;
	CHECK(sodium_init() >= 0);
	connection_set_up_library();
	if (folder_make(store->data_dir, error) != 0 || folder_lock(store->data_dir, &store->lock_file, error) != 0 || FAIL_POINT_FAILS(OPEN_LOCKED, error))
		goto fail;
	if (check_no_restore(store, error) != 0)
		goto fail;
	disk_open(store);
	if (commit_open(store, error) != 0)
		goto fail_database;
	is_new = store->writer.tree.size == 0;
	snprintf(keys, sizeof(keys), "%s/keys", store->data_dir);
	if (is_new && mkdir(keys, 0700) != 0 && errno != EEXIST) {
		error_set(error, ERR_IO, "make folder %s: %s", keys, strerror(errno));
		goto fail_database;
	}
	/* Also when it was there: the start that made it may have come no further. A journal whose keys a power cut took is lost. */
	if (is_new && sync_folder_of(keys, error) != 0)
		goto fail_database;
	if (signer_open(&store->signer, &store->options, is_new, error) != 0)
		goto fail_database;
	if (FAIL_POINT_FAILS(OPEN_KEYS, error))
		goto fail_signer;
	if ((is_new ? open_new_journal : open_old_journal)(store, error) != 0 || FAIL_POINT_FAILS(OPEN_VERIFIED, error))
		goto fail_signer;
	if (open_wal_connection(store, error) != 0)
		goto fail_signer;
	if (reader_open_connection(&store->reader, store->database_path, 0, error) != 0)
		goto fail_wal;
	log_info(LOG_STORE, "journal open folder=%s entries=%llu origin=%s", store->data_dir,
		 (unsigned long long)store->writer.tree.size, store->origin);
	*opened = store;
	return 0;
fail_wal:
	connection_close(&store->wal_connection);
fail_signer:
	signer_close(&store->signer);
fail_database:
	commit_close(store);
fail:
	error_wrap(error, "open journal %s", store->data_dir);
	free_parts(store);
	free(store);
	return error->code;
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct store *store = handle->data;

	if (--store->handles_open == 0)
		free(store);
}

/* The struct itself goes with its last handle. */
static void close_handles(struct store *store)
{
	uv_close((uv_handle_t *)&store->prepare, on_handle_closed);
	uv_close((uv_handle_t *)&store->idle, on_handle_closed);
	uv_close((uv_handle_t *)&store->async, on_handle_closed);
}

static void close_files(struct store *store)
{
	reader_close_connection(&store->reader);
	connection_close(&store->wal_connection);
	commit_close(store); /* The last one: SQLite copies the rest of the WAL back. */
	signer_close(&store->signer);
	free_parts(store);
}

int store_open(struct store **opened, uv_loop_t *loop, const struct store_options *options, struct error *error)
{
	ERROR_BEGIN(error);
	if (open_parts(opened, options, error) == 0 && start_threads(*opened, loop, error) != 0) {
		close_files(*opened);
		close_handles(*opened);
		*opened = NULL;
	}
	return error->code;
}

int store_check_keys(const struct store_options *options, bool may_be_missing, struct public_key *log, struct error *error)
{
	struct store *store = new_store(options);

	ERROR_BEGIN(error);
	signer_check(&store->options, may_be_missing, log, error);
	free_parts(store);
	free(store);
	return error->code;
}

void store_close(struct store *store)
{
	struct error error = {0};

	CHECK(!store->closing);
	store->closing = true;
	FAIL_POINT(CLOSE_BEGUN);
	backup_stop(store);
	hand_over(store);
	stop_threads(store, store->by_hand ? 0 : COUNT_OF(threads));
	if (store->by_hand) {
		commit_finish_by_hand(store);
		while (reader_turn(store))
			continue;
	}
	FAIL_POINT(CLOSE_JOINED);
	if (!atomic_load(&store->is_broken) && commit_sign_checkpoint(store, true, &error) != 0)
		log_error(LOG_STORE, "%s", error.message);
	FAIL_POINT(CLOSE_SIGNED);
	while (store->depth + store->signs + store->reads + store->purges > 0 || store->backup.request != NULL)
		drain(store, UINT64_MAX);
	tell_broken(store);
	close_files(store);
	if (store->by_hand) {
		free(store);
		return;
	}
	stop_polling(store);
	close_handles(store);
}

/* --- by hand ------------------------------------------------------------------------------------------------------------ */

int store_open_by_hand(struct store **opened, const struct store_options *options, struct error *error)
{
	ERROR_BEGIN(error);
	if (open_parts(opened, options, error) != 0)
		return error->code;
	(*opened)->by_hand = true;
	(*opened)->may_poll = false;
	commit_begin_by_hand(*opened);
	return 0;
}

void store_hand_over(struct store *store)
{
	hand_over(store);
}

bool store_step_reader(struct store *store)
{
	return reader_turn(store);
}

bool store_tell(struct store *store)
{
	bool any = !is_told_all(store) || !list_empty(&store->done) || !list_empty(&store->done_signs) || !list_empty(&store->done_reads) || !list_empty(&store->done_purges);

	drain(store, 0); /* whatever the time, one is told */
	return any;
}

void store_read_now(struct store *store, struct store_read *read)
{
	arena_init(&read->arena);
	reader_work(&store->reader, read);
}

void store_abandon(struct store *store)
{
	close_files(store);
	free(store);
}
