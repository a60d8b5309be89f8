/* The real store on a disk in memory, stepped by hand: what the writer's, the reader's and the log's threads would do happens when the
 * world says so, and so do crashes, in the middle of a commit, between it and its answers, and while the store opens again.
 *
 *   journal_append() ─ hand over ─▶ turn: one batch ─ take in: read back what is there now, check it ─▶ tell: callbacks
 *
 * What was read back is kept (struct stored): after a crash it must be there, byte for byte, and what is there beyond it is one whole batch. */
#include "tests/simulation/simulation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/check_journal.h"
#include "daemon/port_reads.h"
#include "store/internal.h"
#include "tests/support/memory_disk.h"
#include "workflow/base/packed.h"

enum {
	DISK_BYTES = 256 << 20,
	RESERVE_BYTES = 256 << 10, LOW_BYTES = 512 << 10,
	DIES_WITHIN = 2, DIES_WITHIN_MORE = 14, /* changes of the disk: what a commit makes, and one of many pages, or a copy of the log */
	DIES_WITHIN_OPENING = 40,
	PAGE_MAX = 200, /* entries of a run, loaded at once */
	TAKE_PAGE = 512,
	FORGETFUL = 300, /* of a thousand seeds: runs that are over are taken away */
	DEEP_ONE_OF = 12, /* all is compared after every so many-th crash, and at the end */
};

static const char data_dir[] = MEMORY_DISK "/data";

/* The store's clocks have no argument. */
static struct world *now_running;

static uint64_t store_now_us(void)
{
	return now_running->now_us;
}

static int64_t store_wall_ms(void)
{
	return world_wall_ms(now_running);
}

static void on_store_broken(void *arg, const struct error *error)
{
	broken(arg, NULL, "the store is broken: %s", error->message);
}

/* --- one request on its way ------------------------------------------------------------------------------------------- */

struct journal_append {
	struct list link;
	struct world *world;
	struct store_append *append; /* the engine's; its callback and owner are kept here meanwhile */
	store_append_cb on_done;
	void *owner;
	bool seen; /* its snapshot was looked at */
};

enum read_kind { READ_RUN, READ_VALUES, READ_CHILD };

struct journal_read {
	struct store_read read;
	struct list link;
	struct world *world;
	enum read_kind kind;
	void *request; /* the port's */
};

static void forget_requests(struct journal *journal)
{
	LIST_EACH_SAFE(link, &journal->appends) {
		struct journal_append *own = CONTAINER_OF(link, struct journal_append, link);
		list_remove(link);
		free(own);
	}
	LIST_EACH_SAFE(link, &journal->reads) {
		struct journal_read *own = CONTAINER_OF(link, struct journal_read, link);
		list_remove(link);
		arena_close(&own->read.arena);
		free(own);
	}
}

/* --- what must be in it ------------------------------------------------------------------------------------------------ */

static struct bytes copy_bytes(struct bytes bytes)
{
	uint8_t *copy = memory_alloc(bytes.len + 1);

	if (bytes.len > 0)
		memcpy(copy, bytes.data, bytes.len);
	copy[bytes.len] = 0;
	return (struct bytes){copy, bytes.len};
}

static void take_in_entry(struct world *world, const struct entry *entry, struct bytes bytes)
{
	struct journal *journal = &world->journal;
	const char *id = entry_kind_touches_run(entry->kind) ? json_get_text(entry->data, "runId") : NULL;
	struct run_model *run = id ? world_run_model(world, id) : NULL;

	if (entry->seq != journal->count)
		broken(world, run, "entry %" PRIu64 " stands where %zu should", entry->seq, journal->count);
	if (id && !run && entry->kind == ENTRY_RUN_CREATED && json_get(entry->data, "parent"))
		run = world_add_run(world, id);
	if (entry_kind_touches_run(entry->kind) && !run)
		broken(world, NULL, "an entry of kind %s names no run", entry_kind_name(entry->kind));
	if (journal->count == journal->cap) {
		journal->cap = journal->cap ? journal->cap * 2 : 256;
		journal->entries = memory_resize(journal->entries, journal->cap * sizeof *journal->entries);
	}
	struct stored *stored = &journal->entries[journal->count++];
	*stored = (struct stored){.bytes = copy_bytes(bytes), .kind = entry->kind, .run = run};
	for (size_t i = 0; i < entry->value_count; i++) {
		const struct entry_value *value = &entry->values[i];
		if (!value->bytes.data || value->bytes.len != value->size)
			broken(world, run, "%s has a value without its bytes", entry_kind_name(entry->kind));
		struct digest digest = digest_of(value->bytes);
		if (!digest_equal(&digest, &value->digest))
			broken(world, run, "%s has a value under another digest", entry_kind_name(entry->kind));
		stored->values[stored->value_count++] = (struct stored_value){digest, copy_bytes(value->bytes)};
	}
	world->counters.purged += entry->kind == ENTRY_RUNS_PURGED;
	world->counters.pruned += entry->kind == ENTRY_JOURNAL_PRUNED;
	stored->leaf = log_tree_leaf(stored->bytes);
	log_tree_add(&journal->tree, &stored->leaf, NULL, NULL);
	if (run) {
		if (run->seq_count == run->seq_cap) {
			run->seq_cap = run->seq_cap ? run->seq_cap * 2 : 16;
			run->seqs = memory_resize(run->seqs, run->seq_cap * sizeof *run->seqs);
		}
		run->seqs[run->seq_count++] = entry->seq;
		check_stored(world, run, entry);
		if (entry->kind == ENTRY_RUN_CREATED || entry->kind == ENTRY_RUN_RETRIED)
			events_feed(world);
	} else if (entry->kind == ENTRY_DEFINITION_ADDED) {
		struct digest digest;
		for (size_t i = 0; i < WORLD_DEFINITIONS; i++)
			world->definition_added[i] |= json_get_digest(entry->data, "definition", &digest) && digest_equal(&world->definitions[i]->digest, &digest);
	}
	if (entry->kind == ENTRY_EVENT_RECEIVED || entry->kind == ENTRY_EVENT_EMITTED)
		events_add(world, entry);
}

/* One page of what is behind the entries that are known. */
struct taking {
	struct store_read read;
	uint64_t from;
	struct entry *entries;
	struct store_raw_entry *raw;
	size_t count;
};

static void take_work(struct store_reader *reader, struct store_read *read)
{
	struct taking *taking = read->owner;
	uint64_t next;

	if (reader_entries(reader, &read->arena, taking->from, 0, TAKE_PAGE, &taking->raw, &taking->count, &next, &read->error) != 0)
		return;
	taking->entries = arena_zero(&read->arena, (taking->count + 1) * sizeof *taking->entries);
	for (size_t i = 0; i < taking->count; i++)
		if (reader_entry(reader, &read->arena, &taking->raw[i], UINT64_MAX, &taking->entries[i], &read->error) != 0)
			return;
}

static void take_in(struct world *world)
{
	struct journal *journal = &world->journal;
	size_t count;

	do {
		struct taking taking = {.from = journal->count};
		taking.read = (struct store_read){.work = take_work, .owner = &taking};
		store_read_now(journal->store, &taking.read);
		if (taking.read.error.code != ERR_NONE)
			broken(world, NULL, "what was committed cannot be read: %s", taking.read.error.message);
		count = taking.count;
		for (size_t i = 0; i < count; i++)
			take_in_entry(world, &taking.entries[i], taking.raw[i].bytes);
		arena_close(&taking.read.arena);
	} while (count == TAKE_PAGE);
	if (journal->old_size == 0 && journal->count > 20) {
		journal->old_size = journal->count;
		journal->old_root = log_tree_root(&journal->tree);
	}
}

/* Of a longer run not each snapshot is compared, for that folds all its entries. */
enum { CHECKED_ENTRIES_MAX = 400, CHECKED_ONE_OF = 64 };

/* A snapshot says what its entries make: the state that is read from it is the one that they fold to. */
static void check_snapshot(struct world *world, struct run_model *run, const struct store_append *append)
{
	struct state read, folded;
	struct bytes bytes = append->snapshot, part;
	struct error error = {0};
	struct arena arena;
	size_t count;

	arena_init(&arena);
	state_init(&read, run->definition);
	state_init(&folded, run->definition);
	if (run->seq_count == 0 || run->seqs[run->seq_count - 1] != append->snapshot_seq)
		broken(world, run, "a snapshot is as of entry %" PRIu64 ", which is not the run's last", append->snapshot_seq);
	if (!packed_take_bytes(&bytes, &part) || state_snapshot_read(&read, part, REPRISE_VERSION, &error) != 0)
		broken(world, run, "a snapshot cannot be read: %s", error.message);
	struct entry *entries = journal_entries(world, run, &arena, 0, &count);
	for (size_t i = 0; i < count; i++)
		if (workflow_apply(&folded, &entries[i], &error) != 0)
			broken(world, run, "%s", error.message);
	state_settle(&folded);
	struct digest a = state_digest(&read), b = state_digest(&folded);
	/* Entries that only travel with the run, like document.added, are not counted by a fold of its own. */
	if (!digest_equal(&a, &b) || read.seq_last != folded.seq_last || read.seq_first != folded.seq_first)
		broken(world, run, "a snapshot as of entry %" PRIu64 " has another state than the entries", append->snapshot_seq);
	state_close(&read);
	state_close(&folded);
	arena_close(&arena);
}

/* --- the store's turns --------------------------------------------------------------------------------------------------- */

static void plan_turn(struct world *world);

static void on_tell(struct world *world, void *arg)
{
	unsigned boot = world->boot;

	(void)arg;
	world->journal.tell_due = false;
	while (world->boot == boot && world->journal.store && store_tell(world->journal.store))
		continue;
}

static void plan_tell(struct world *world)
{
	if (world->journal.tell_due)
		return;
	world->journal.tell_due = true;
	world_at(world, random_below(&world->random, 300), true, on_tell, NULL);
}

bool journal_has_open_run(const struct world *world)
{
	for (size_t i = 0; i < world->run_count; i++)
		if (world->runs[i]->created && !world->runs[i]->ended)
			return true;
	return false;
}

/* What is committed by now: the snapshots that came along are as of entries that were there before. */
static bool look_at_appends(struct world *world)
{
	bool waiting = false;

	LIST_EACH(link, &world->journal.appends) {
		struct journal_append *own = CONTAINER_OF(link, struct journal_append, link);
		const struct store_append *append = own->append;
		waiting |= append->committed_us == 0 && append->error.code == ERR_NONE;
		if (own->seen || append->committed_us == 0 || append->error.code != ERR_NONE)
			continue;
		own->seen = true;
		if (!append->snapshot.data)
			continue;
		struct run_model *run = world_run_model(world, append->snapshot_run);
		if (++world->counters.snapshots % CHECKED_ONE_OF == 0 || run->seq_count <= CHECKED_ENTRIES_MAX)
			check_snapshot(world, run, append);
	}
	return waiting;
}

/* One turn of the writer, and what becomes of it: a crash may come in its middle, behind it, and between its answers. */
static void on_turn(struct world *world, void *arg)
{
	struct journal *journal = &world->journal;
	struct random *random = &world->random;
	bool has_batch = false;
	(void)arg;

	journal->turn_due = false;
	LIST_EACH(link, &journal->appends)
		has_batch |= CONTAINER_OF(link, struct journal_append, link)->append->handed_us != 0;
	journal->batches += has_batch;
	/* Each seed crashes and loads a run at least once. */
	bool forced = has_batch && world->faults && journal->batches >= 2 && (world->counters.crashes == 0 || world->counters.loads == 0) && journal_has_open_run(world);
	bool crash = forced || (world->faults && random_chance(random, has_batch ? 12 : 4));
	unsigned crash_when = forced ? 0 : (unsigned)random_below(random, 4);
	if (crash && crash_when <= 1)
		memory_disk_die(random_between(random, 1, random_chance(random, 700) ? DIES_WITHIN : DIES_WITHIN_MORE));
	/* From lose_batch on the first one that has something to be told of: to lose another is no fault. */
	bool lose = world->options.lose_batch != 0 && journal->batches >= world->options.lose_batch && !journal->has_lost && has_batch && !crash;
	memory_disk_lie(lose);
	size_t before = journal->count;
	store_step_writer(journal->store);
	if (memory_disk_is_dead()) {
		world->counters.in_commit += has_batch;
		world_crash(world);
		return;
	}
	memory_disk_live();
	bool waiting = look_at_appends(world);
	take_in(world);
	world->counters.commits += journal->count > before;
	if (crash && crash_when <= 2) { /* it went well, and nobody hears of it */
		world_crash(world);
		return;
	}
	if (crash || lose) {
		journal->has_lost |= lose && journal->count > before;
		bool told = store_tell(journal->store);
		if (crash || (told && journal->has_lost)) {
			world_crash(world);
			return;
		}
	}
	plan_tell(world);
	if (waiting || has_batch)
		plan_turn(world); /* for the rest, and for what is done in a pause */
}

static void plan_turn(struct world *world)
{
	if (world->journal.turn_due)
		return;
	world->journal.turn_due = true;
	world_at(world, random_between(&world->random, 100, 6000), true, on_turn, NULL);
}

static void on_handover(struct world *world, void *arg)
{
	(void)arg;
	world->journal.handover_due = false;
	store_hand_over(world->journal.store);
	plan_turn(world);
}

static bool disk_is_well(const struct world *world)
{
	struct store_disk disk;

	store_disk(world->journal.store, &disk);
	return disk.state == STORE_DISK_OK;
}

/* The thread of the write-ahead log looks around; an idle writer wakes up by itself now and then, too. */
static void on_tick(struct world *world, void *arg)
{
	struct journal *journal = &world->journal;
	bool was_well = disk_is_well(world), well;
	(void)arg;

	journal->tick_due = false;
	store_step_wal(journal->store);
	well = disk_is_well(world);
	world->counters.full += was_well && !well;
	plan_turn(world);
	if (!well || world->faults || journal_has_open_run(world)) {
		journal->tick_due = true;
		world_at(world, (well ? STORE_DISK_LOOK_MS : STORE_DISK_LOOK_SOON_MS) * 1000, true, on_tick, NULL);
	}
}

static void plan_tick(struct world *world)
{
	if (world->journal.tick_due)
		return;
	world->journal.tick_due = true;
	world_at(world, STORE_DISK_LOOK_MS * 1000, true, on_tick, NULL);
}

static void on_told(struct store_append *append)
{
	struct journal_append *own = append->owner;
	struct world *world = own->world;
	const struct journal *journal = &world->journal;

	if (append->error.code == ERR_NONE) {
		for (size_t i = 0; i < append->entry_count; i++)
			if (append->entries[i].seq != append->seq_first + i || append->entries[i].seq >= journal->count || journal->entries[append->entries[i].seq].kind != append->entries[i].kind)
				broken(world, NULL, "%s is acknowledged as entry %" PRIu64 ", which it is not", entry_kind_name(append->entries[i].kind), append->entries[i].seq);
	} else if (append->error.code == ERR_FULL) {
		world->counters.faults++;
		if (append->entries[0].kind == ENTRY_EVENT_RECEIVED || append->entries[0].kind == ENTRY_DEFINITION_ADDED || append->entries[0].kind == ENTRY_RUN_CREATED)
			world->counters.full_refused++;
		else
			world->counters.full_waited++;
	}
	append->on_done = own->on_done;
	append->owner = own->owner;
	list_remove(&own->link);
	free(own);
	append->on_done(append);
}

/* Nobody is told of anything inside; ERR_BUSY now and then, as a full queue says. */
static int hand_in(struct world *world, struct store_append *append)
{
	struct journal *journal = &world->journal;
	struct journal_append *own = memory_zero(sizeof *own);

	CHECK(append->entry_count > 0);
	*own = (struct journal_append){.world = world, .append = append, .on_done = append->on_done, .owner = append->owner};
	list_init(&own->link);
	list_add_last(&journal->appends, &own->link);
	append->on_done = on_told;
	append->owner = own;
	CHECK(store_append(journal->store, append) == 0);
	return 0;
}

int journal_append(void *arg, struct store_append *append)
{
	struct world *world = arg;
	struct journal *journal = &world->journal;

	if (world->faults && random_chance(&world->random, 15)) {
		world->counters.faults++;
		return ERR_BUSY;
	}
	hand_in(world, append);
	if (!journal->handover_due) { /* what comes between it and the writer's turn is too late for this batch */
		journal->handover_due = true;
		world_at(world, random_below(&world->random, 2500), true, on_handover, NULL);
	}
	plan_tick(world);
	return 0;
}

struct entry *journal_entries(struct world *world, const struct run_model *run, struct arena *arena, uint64_t value_max, size_t *count)
{
	struct entry *entries = arena_zero(arena, (run->seq_count + 1) * sizeof *entries);
	struct error error = {0};

	for (size_t i = 0; i < run->seq_count; i++) {
		const struct stored *stored = &world->journal.entries[run->seqs[i]];
		if (entry_decode(arena, stored->bytes, world->journal.origin, &entries[i], &error) != 0)
			broken(world, run, "a stored entry cannot be read: %s", error.message);
		CHECK(entries[i].seq == run->seqs[i]);
		for (size_t k = 0; k < stored->value_count; k++) {
			const struct stored_value *value = &stored->values[k];
			struct entry_value *out = &entries[i].values[entries[i].value_count++];
			*out = (struct entry_value){.digest = value->digest, .size = value->bytes.len};
			if (value->bytes.len <= value_max)
				out->bytes = arena_bytes(arena, value->bytes);
		}
	}
	*count = run->seq_count;
	return entries;
}

/* --- reads ------------------------------------------------------------------------------------------------------------------ */

static void read_work(struct store_reader *reader, struct store_read *read)
{
	struct journal_read *own = CONTAINER_OF(read, struct journal_read, read);
	struct world *world = own->world;

	/* The reader's queue can be full: nothing is lost by it, the engine asks again. */
	if (world->faults && random_chance(&world->random, 30)) {
		world->counters.faults++;
		error_set(&read->error, ERR_BUSY, "too many reads wait");
		return;
	}
	switch (own->kind) {
	case READ_RUN:
		read_run_page(reader, &read->arena, own->request, random_between(&world->random, 1, PAGE_MAX), &read->error);
		break;
	case READ_VALUES:
		read_values(reader, &read->arena, own->request, &read->error);
		break;
	case READ_CHILD:
		read_child(reader, &read->arena, own->request, &read->error);
		break;
	}
}

static void on_read(struct store_read *read)
{
	struct journal_read *own = CONTAINER_OF(read, struct journal_read, read);
	struct world *world = own->world;
	void *request = own->request;
	enum read_kind kind = own->kind;
	struct arena arena = read->arena;
	struct error error = read->error;

	list_remove(&own->link);
	free(own);
	if (error.code != ERR_NONE && error.code != ERR_BUSY && kind != READ_CHILD && error.code != ERR_GONE)
		broken(world, NULL, "the store cannot read what the engine asks for: %s", error.message);
	switch (kind) {
	case READ_RUN: {
		struct engine_load_run *load = request;
		struct run_model *run = world_run_model(world, load->run_id);
		load->arena = arena;
		load->error = error;
		if (error.code == ERR_GONE && !run->ended)
			broken(world, run, "it has not ended, and is gone: %s", error.message);
		if (error.code == ERR_NONE && load->after_seq == 0) {
			/* The store gives back what it was given, or nothing; but one of another version has to be told from a good one. */
			bool foreign = load->snapshot.data && world->faults && random_chance(&world->random, 200);
			load->snapshot.len -= foreign ? random_between(&world->random, 1, load->snapshot.len) : 0;
			world->counters.from_snapshot += load->snapshot.data && !foreign;
			world->counters.loads++;
			world->counters.parks += !run->recovering;
			run->recovering = false;
		}
		load->on_done(load);
		break;
	}
	case READ_VALUES: {
		struct engine_load_values *load = request;
		load->arena = arena;
		load->error = error;
		if (error.code == ERR_GONE && !world_run_model(world, load->run_id)->ended)
			broken(world, world_run_model(world, load->run_id), "it has not ended, and a value is gone: %s", error.message);
		world->counters.value_loads += error.code == ERR_NONE ? load->need_count : 0;
		load->on_done(load);
		break;
	}
	case READ_CHILD: {
		struct children_look *look = request;
		look->arena = arena;
		look->error = error;
		look->on_done(look);
		break;
	}
	}
}

static void on_read_turn(struct world *world, void *arg)
{
	(void)arg;
	if (store_step_reader(world->journal.store))
		plan_tell(world);
}

static void begin_read(struct world *world, enum read_kind kind, void *request)
{
	struct journal_read *own = memory_zero(sizeof *own);

	own->world = world;
	own->kind = kind;
	own->request = request;
	own->read = (struct store_read){.work = read_work, .on_done = on_read};
	list_init(&own->link);
	list_add_last(&world->journal.reads, &own->link);
	CHECK(store_read(world->journal.store, &own->read) == 0);
	world_at(world, random_between(&world->random, 50, 5000), true, on_read_turn, NULL);
}

void journal_load_run(void *world, struct engine_load_run *load)
{
	begin_read(world, READ_RUN, load);
}

void journal_load_values(void *world, struct engine_load_values *load)
{
	begin_read(world, READ_VALUES, load);
}

void journal_look(void *world, struct children_look *look)
{
	begin_read(world, READ_CHILD, look);
}

struct open_runs {
	struct store_read read;
	uint64_t after;
	struct store_open_run *runs;
	size_t count;
};

static void open_runs_work(struct store_reader *reader, struct store_read *read)
{
	struct open_runs *own = read->owner;

	reader_open_runs(reader, &read->arena, own->after, 3, &own->runs, &own->count, &read->error);
}

void journal_each_open_run(struct world *world, void (*each)(struct world *world, const struct store_open_run *run))
{
	struct open_runs own = {.count = 1};

	while (own.count > 0) {
		own.read = (struct store_read){.work = open_runs_work, .owner = &own};
		store_read_now(world->journal.store, &own.read);
		if (own.read.error.code != ERR_NONE)
			broken(world, NULL, "the open runs cannot be read: %s", own.read.error.message);
		for (size_t i = 0; i < own.count; i++) {
			own.after = own.runs[i].seq;
			each(world, &own.runs[i]);
		}
		arena_close(&own.read.arena);
	}
}

/* --- all of it is there ------------------------------------------------------------------------------------------------------- */

struct comparison {
	struct store_read read;
	struct world *world;
	uint64_t from, size;
	bool deep;
};

static bool is_forgetful(const struct journal *journal)
{
	return journal->options.retention.runs_ms > 0;
}

static int read_node(void *reader, unsigned level, uint64_t index, struct digest *hash)
{
	struct error error;

	return reader_leaf(reader, level, index, hash, &error);
}

/* RFC 9162 section 2.1.1, as it is written there: the largest power of two smaller than the size splits it. */
static struct digest plain_root(const struct journal *journal, size_t from, size_t size)
{
	size_t split = 1;

	if (size == 1)
		return log_tree_leaf(journal->entries[from].bytes);
	while (split * 2 < size)
		split *= 2;
	struct digest left = plain_root(journal, from, split), right = plain_root(journal, from + split, size - split);
	return log_tree_node(&left, &right);
}

static void check_proofs(struct world *world, struct store_reader *reader)
{
	struct journal *journal = &world->journal;
	struct digest root = log_tree_root(&journal->tree), again = plain_root(journal, 0, journal->count);
	struct log_proof proof;
	struct error error = {0};

	if (!digest_equal(&root, &again))
		broken(world, NULL, "the tree's root, computed from the entries, is another");
	if (is_forgetful(journal))
		return; /* leaves are gone: the verification of the log knows which */
	uint64_t index = random_below(&world->random, journal->count);
	if (log_tree_prove_inclusion(index, journal->count, read_node, reader, &proof, &error) != 0 ||
	    log_tree_verify_inclusion(index, journal->count, &journal->entries[index].leaf, &proof, &root, &error) != 0)
		broken(world, NULL, "entry %" PRIu64 " cannot be proven: %s", index, error.message);
	if (journal->old_size > 0 && (log_tree_prove_consistency(journal->old_size, journal->count, read_node, reader, &proof, &error) != 0 ||
				      log_tree_verify_consistency(journal->old_size, journal->count, &journal->old_root, &root, &proof, &error) != 0))
		broken(world, NULL, "the log does not continue the one of size %" PRIu64 ": %s", journal->old_size, error.message);
}

/* Entries from one on against what was read back when they were committed; their values too. */
static void compare_work(struct store_reader *reader, struct store_read *read)
{
	struct comparison *own = read->owner;
	struct world *world = own->world;
	struct journal *journal = &world->journal;
	struct digest root, known = log_tree_root(&journal->tree);
	struct store_raw_entry *raw;
	uint64_t from = own->from, next;
	size_t count;

	if (reader_log_size(reader, &own->size, &read->error) != 0)
		return;
	if (own->size < journal->count)
		broken(world, NULL, "%zu entries were committed, %" PRIu64 " are there after the crash", journal->count, own->size);
	if (journal->count > 0 && !is_forgetful(journal) && (log_tree_root_at(journal->count, read_node, reader, &root, &read->error) != 0 || !digest_equal(&root, &known)))
		broken(world, NULL, "the first %zu entries have another root %s", journal->count, read->error.message);
	for (; from < journal->count && reader_entries(reader, &read->arena, from, 0, TAKE_PAGE, &raw, &count, &next, &read->error) == 0 && count > 0; from = next)
		for (size_t i = 0; i < count && raw[i].seq < journal->count; i++) {
			const struct stored *stored = &journal->entries[raw[i].seq];
			struct entry entry;
			if (!bytes_equal(raw[i].bytes, stored->bytes))
				broken(world, stored->run, "entry %" PRIu64 " is another one than was committed", raw[i].seq);
			if (!own->deep || stored->value_count == 0 || is_forgetful(journal))
				continue;
			if (reader_entry(reader, &read->arena, &raw[i], UINT64_MAX, &entry, &read->error) != 0 || entry.value_count != stored->value_count)
				broken(world, stored->run, "entry %" PRIu64 " has not all its values: %s", raw[i].seq, read->error.message);
			for (size_t k = 0; k < entry.value_count; k++)
				if (!bytes_equal(entry.values[k].bytes, stored->values[k].bytes))
					broken(world, stored->run, "entry %" PRIu64 " has another value", raw[i].seq);
		}
	if (read->error.code == ERR_NONE && own->deep)
		check_proofs(world, reader);
}

static uint64_t compare(struct world *world, uint64_t from, bool deep)
{
	struct comparison own = {.world = world, .from = from, .deep = deep};

	own.read = (struct store_read){.work = compare_work, .owner = &own};
	store_read_now(world->journal.store, &own.read);
	if (own.read.error.code != ERR_NONE)
		broken(world, NULL, "the journal cannot be read: %s", own.read.error.message);
	arena_close(&own.read.arena);
	return own.size;
}

void journal_check_deeply(struct world *world)
{
	struct error error;
	char *said = NULL;
	size_t said_len;
	FILE *out = open_memstream(&said, &said_len);

	world->counters.deep_checks++;
	compare(world, 0, true);
	if (store_check_tables(data_dir, &error) != 0)
		broken(world, NULL, "the tables do not follow from the entries: %s", error.message);
	int code = check_journal(&world->journal.options, out, &error);
	fclose(out);
	if (code != 0)
		broken(world, NULL, "the log does not verify: %s: %s", error.message, said);
	free(said);
}

/* --- opening, crashing --------------------------------------------------------------------------------------------------------- */

static void set_options(struct world *world)
{
	struct journal *journal = &world->journal;

	journal->options = (struct store_options){
		.data_dir = data_dir, .checkpoint_entries = 64, .checkpoint_every_ms = 20000, .wal_mib = 1, .reserve_bytes = RESERVE_BYTES, .low_bytes = LOW_BYTES,
		.wal_max_bytes = 64 << 20, .retention = {.grace_ms = STORE_RETENTION_GRACE_MS}, .now_us = store_now_us, .wall_ms = store_wall_ms, .on_broken = on_store_broken, .arg = world,
	};
	if (random_chance(&world->random, FORGETFUL)) {
		journal->options.retention.runs_ms = (int64_t)random_between(&world->random, 500, 20000);
		journal->options.retention.entries_ms = (int64_t)random_between(&world->random, 1, 5000);
		journal->options.retention.every_ms = 1000;
		journal->options.retention.drop_facts = random_chance(&world->random, 500);
	}
}

void journal_set_up(void)
{
	connection_set_up_library();
	memory_disk_set_up();
}

void journal_format(struct world *world)
{
	struct journal *journal = &world->journal;

	now_running = world;
	memory_disk_format(DISK_BYTES, random_next(&world->random));
	list_init(&journal->appends);
	list_init(&journal->reads);
	log_tree_init(&journal->tree);
	set_options(world);
}

static void cut(struct world *world)
{
	/* That the process alone dies takes nothing away. */
	enum cut cut = world->journal.has_lost ? CUT_DROP : (enum cut)random_below(&world->random, CUT_COUNT);
	struct memory_disk_loss loss = memory_disk_cut(cut, random_next(&world->random));

	if (cut == CUT_KEEP || loss.bytes == 0)
		return;
	world->counters.dropped++;
	world->counters.dropped_bytes += loss.bytes;
}

static void on_first_done(struct store_append *append)
{
	struct world *world = append->owner;

	if (append->error.code != ERR_NONE && append->error.code != ERR_FULL)
		broken(world, NULL, "the start cannot be recorded: %s", append->error.message);
}

/* daemon.started, and at the first one what others run as a child; as daemon/start.c. Without room it is left out. */
static void record_start(struct world *world, bool is_first)
{
	struct entry entries[2] = {{.kind = ENTRY_DAEMON_STARTED, .time_ms = world_wall_ms(world)}};
	struct arena arena;
	size_t count = 1;

	arena_init(&arena);
	entries[0].data = json_object(&arena);
	json_set_text(&arena, entries[0].data, "version", REPRISE_VERSION);
	json_set_number(&arena, entries[0].data, "recovered", 0);
	if (is_first && !random_chance(&world->random, 150)) /* else who runs it as a child finds none, perhaps */
		entries[count++] = definition_entry(world, WORLD_DEFINITIONS - 1, &arena);
	struct store_append append = {.entries = entries, .entry_count = count, .on_done = on_first_done, .owner = world};
	hand_in(world, &append);
	store_hand_over(world->journal.store);
	store_step_writer(world->journal.store);
	take_in(world);
	while (store_tell(world->journal.store))
		continue;
	arena_close(&arena);
}

void journal_open(struct world *world)
{
	struct journal *journal = &world->journal;
	bool is_first = journal->count == 0;
	struct error error;
	uint64_t size;

	for (;;) {
		if ((world->faults || is_first) && random_chance(&world->random, 120))
			memory_disk_die(random_between(&world->random, 1, DIES_WITHIN_OPENING));
		if (store_open_by_hand(&journal->store, &journal->options, &error) == 0)
			break;
		if (memory_disk_is_dead()) {
			world->counters.in_open++;
			cut(world);
		} else if (error.code == ERR_FULL) {
			memory_disk_take(0); /* somebody has to make room for a start */
		} else {
			broken(world, NULL, "the journal does not open: %s", error.message);
		}
	}
	memory_disk_live();
	snprintf(journal->origin, sizeof journal->origin, "%s", store_origin(journal->store));
	if (is_first) {
		take_in(world);
	} else {
		size = compare(world, journal->tail_checked, false);
		/* Retention's own entry comes behind the batch of its turn. */
		bool by_retention = is_forgetful(journal) && size == (journal->in_doubt ? journal->in_doubt : journal->count) + 1;
		if (size != journal->count && size != journal->in_doubt && !by_retention)
			broken(world, NULL, "%zu entries were committed, the one batch in doubt ends at %" PRIu64 ", and %" PRIu64 " are there", journal->count, journal->in_doubt, size);
		world->counters.kept_commits += size != journal->count;
		take_in(world);
	}
	journal->tail_checked = journal->count;
	journal->in_doubt = 0;
	record_start(world, is_first);
	if (!is_first && random_below(&world->random, DEEP_ONE_OF) == 0)
		journal_check_deeply(world);
}

static void forget_store(struct journal *journal)
{
	journal->store = NULL;
	journal->handover_due = journal->turn_due = journal->tell_due = journal->tick_due = false;
	forget_requests(journal);
}

void journal_crash(struct world *world)
{
	struct journal *journal = &world->journal;

	/* Where the batch that was being written would end. */
	if (memory_disk_is_dead())
		LIST_EACH(link, &journal->appends) {
			const struct store_append *append = CONTAINER_OF(link, struct journal_append, link)->append;
			if (append->seq_first >= journal->count && append->seq_first + append->entry_count > journal->in_doubt)
				journal->in_doubt = append->seq_first + append->entry_count;
		}
	memory_disk_die(0);
	store_abandon(journal->store);
	forget_store(journal);
	cut(world);
}

void journal_stop(struct world *world)
{
	struct journal *journal = &world->journal;

	/* What senders have under way: it is committed, and they hear of it. */
	store_hand_over(journal->store);
	while (!list_empty(&journal->appends)) {
		store_step_writer(journal->store);
		take_in(world);
		while (store_tell(journal->store))
			continue;
	}
	store_close(journal->store);
	forget_store(journal);
}

void journal_fill_disk(struct world *world, uint64_t left_bytes)
{
	(void)world;
	memory_disk_take(0);
	uint64_t room = memory_disk_free_bytes();
	memory_disk_take(room > left_bytes ? room - left_bytes : 0);
}

void journal_close(struct journal *journal)
{
	for (size_t i = 0; i < journal->count; i++) {
		for (size_t k = 0; k < journal->entries[i].value_count; k++)
			free((void *)journal->entries[i].values[k].bytes.data);
		free((void *)journal->entries[i].bytes.data);
	}
	free(journal->entries);
}
