/* The simulated store: what the engine's ports append, load_run and load_values do. It keeps encoded bytes and copies of
 * values, never a pointer of the engine's, so that what is read back is what was written. */
#include "tests/simulation/simulation.h"
#include "workflow/value_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/packed.h"

static const char origin[] = "reprise.example/simulation";

void journal_open(struct journal *journal)
{
	list_init(&journal->queue);
	log_tree_init(&journal->tree);
}

static struct bytes copy_bytes(struct bytes bytes)
{
	uint8_t *copy = memory_alloc(bytes.len + 1);

	if (bytes.len > 0)
		memcpy(copy, bytes.data, bytes.len);
	copy[bytes.len] = 0;
	return (struct bytes){copy, bytes.len};
}

void journal_close(struct journal *journal)
{
	for (size_t i = 0; i < journal->count; i++) {
		for (size_t k = 0; k < journal->entries[i].value_count; k++)
			free((void *)journal->entries[i].values[k].bytes.data);
		free((void *)journal->entries[i].bytes.data);
	}
	for (size_t level = 0; level < LOG_TREE_LEVELS_MAX; level++)
		free(journal->nodes[level]);
	free(journal->entries);
}

void journal_forget_queue(struct journal *journal)
{
	while (!list_empty(&journal->queue))
		list_remove(journal->queue.next);
	journal->queued = 0;
	journal->commit_due = false;
}

static void keep_node(void *arg, unsigned level, uint64_t index, const struct digest *hash)
{
	struct journal *journal = arg;

	CHECK(index == journal->node_counts[level]);
	if (index == journal->node_caps[level]) {
		journal->node_caps[level] = journal->node_caps[level] ? journal->node_caps[level] * 2 : 16;
		journal->nodes[level] = memory_resize(journal->nodes[level], journal->node_caps[level] * sizeof **journal->nodes);
	}
	journal->nodes[level][journal->node_counts[level]++] = *hash;
}

/* What the writer adds to a fact when it signs: replay has to look past it. */
static const struct json *signed_data(struct arena *arena, const struct entry *entry)
{
	if (entry->kind != ENTRY_FACT_RECORDED)
		return entry->data;
	struct json *data = json_copy(arena, entry->data), *signatures = json_array(arena), *signature = json_object(arena);
	struct digest pae = digest_of(entry->statement);
	json_set_digest(arena, data, "pae", &pae);
	json_set_text(arena, signature, "sig", "c2lt");
	json_add(arena, signatures, signature);
	json_set(arena, data, "signatures", signatures);
	return data;
}

static void store_entry(struct world *world, struct entry *entry)
{
	struct journal *journal = &world->journal;
	struct arena arena;
	struct buffer out;
	struct error error = {0};

	arena_init(&arena);
	buffer_init(&out, ENTRY_LEN_MAX);
	entry->seq = journal->count;
	const char *id = entry_kind_touches_run(entry->kind) ? json_get_text(entry->data, "runId") : NULL;
	struct run_model *run = id ? world_run_model(world, id) : NULL;
	if (id && !run && entry->kind == ENTRY_RUN_CREATED && json_get(entry->data, "parent"))
		run = world_add_run(world, id);
	if (entry_kind_touches_run(entry->kind) && !run)
		broken(world, NULL, "an entry of kind %s names no run", entry_kind_name(entry->kind));
	struct entry written = *entry;
	written.data = (struct json *)signed_data(&arena, entry);
	if (entry_encode(&written, origin, entry->seq, &out, &error) != 0)
		broken(world, run, "an entry cannot be encoded: %s", error.message);
	if (journal->count == journal->cap) {
		journal->cap = journal->cap ? journal->cap * 2 : 256;
		journal->entries = memory_resize(journal->entries, journal->cap * sizeof *journal->entries);
	}
	struct stored *stored = &journal->entries[journal->count++];
	*stored = (struct stored){.bytes = copy_bytes(buffer_bytes(&out)), .kind = entry->kind, .run = run};
	for (size_t i = 0; i < entry->value_count; i++) {
		const struct entry_value *value = &entry->values[i];
		if (!value->bytes.data || value->bytes.len != value->size)
			broken(world, run, "%s carries a value without its bytes", entry_kind_name(entry->kind));
		struct digest digest = digest_of(value->bytes);
		if (!digest_equal(&digest, &value->digest))
			broken(world, run, "%s carries a value under another digest", entry_kind_name(entry->kind));
		stored->values[stored->value_count++] = (struct stored_value){digest, copy_bytes(value->bytes)};
	}
	stored->leaf = log_tree_leaf(stored->bytes);
	keep_node(journal, 0, journal->node_counts[0], &stored->leaf);
	log_tree_add(&journal->tree, &stored->leaf, keep_node, journal);
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
		for (size_t i = 0; i < WORLD_DEFINITIONS; i++)
			world->definition_added[i] |= digest_equal(&world->definitions[i]->digest, &stored->values[0].digest);
	}
	if (entry->kind == ENTRY_EVENT_RECEIVED || entry->kind == ENTRY_EVENT_EMITTED)
		events_add(world, entry);
	buffer_close(&out);
	arena_close(&arena);
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

static void store_snapshot(struct world *world, const struct store_append *append)
{
	struct run_model *run = append->snapshot_run ? world_run_model(world, append->snapshot_run) : NULL;

	if (!append->snapshot.data && !append->forget_snapshot)
		return;
	world->counters.snapshots += append->snapshot.data != NULL;
	if (append->snapshot.data && (run->seq_count <= CHECKED_ENTRIES_MAX || world->counters.snapshots % CHECKED_ONE_OF == 0))
		check_snapshot(world, run, append);
	free((void *)run->snapshot.data);
	run->snapshot = append->snapshot.data ? copy_bytes(append->snapshot) : (struct bytes){0};
	run->snapshot_seq = append->snapshot_seq;
}

static void commit_one(struct world *world, struct store_append *append)
{
	for (size_t i = 0; i < append->entry_count; i++) {
		const struct entry *entry = &append->entries[i];
		const struct run_model *known = entry->kind == ENTRY_RUN_CREATED ? world_run_model(world, json_get_text(entry->data, "runId")) : NULL;
		if (known && known->created) {
			error_set(&append->error, ERR_EXISTS, "there is a run of this id");
			return;
		}
		const struct run_model *retried = entry->kind == ENTRY_RUN_RETRIED ? world_run_model(world, json_get_text(entry->data, "runId")) : NULL;
		if (retried && (!retried->ended || retried->ended_by != ENTRY_RUN_FAULTED)) {
			error_set(&append->error, ERR_EXISTS, "the run has not faulted");
			return;
		}
		struct digest key;
		if (entry->kind == ENTRY_EVENT_RECEIVED && json_get_digest(entry->data, "key", &key) && events_know(world, &key)) {
			error_set(&append->error, ERR_EXISTS, "there is an event of this key");
			return;
		}
	}
	append->seq_first = world->journal.count;
	store_snapshot(world, append);
	for (size_t i = 0; i < append->entry_count; i++)
		store_entry(world, &append->entries[i]);
}

bool journal_has_open_run(const struct world *world)
{
	for (size_t i = 0; i < world->run_count; i++)
		if (world->runs[i]->created && !world->runs[i]->ended)
			return true;
	return false;
}

/* Group commit: what is queued becomes durable together. A crash may come before, between and after the answers. */
static void on_commit(struct world *world, void *arg)
{
	struct journal *journal = &world->journal;
	uint64_t taken = journal->queued;
	struct list batch;
	unsigned boot = world->boot;
	(void)arg;

	journal->commit_due = false;
	if (world->faults && random_chance(&world->random, 200))
		taken = random_between(&world->random, 1, journal->queued); /* the rest came too late for it */
	list_init(&batch);
	for (uint64_t i = 0; i < taken; i++) {
		struct list *link = journal->queue.next;
		list_remove(link);
		list_add_last(&batch, link);
		journal->queued--;
	}
	journal->batches++;
	if (journal->queued > 0) {
		journal->commit_due = true;
		world_at(world, random_between(&world->random, 100, 8000), true, on_commit, NULL);
	}
	/* Each seed crashes and loads a run at least once. */
	bool forced = world->faults && journal->batches >= 2 && (world->counters.crashes == 0 || world->counters.loads == 0) && journal_has_open_run(world);
	bool crash = forced || (world->faults && random_chance(&world->random, 12));
	unsigned crash_when = forced ? 0 : (unsigned)random_below(&world->random, 3);
	if (crash && crash_when == 0) {
		world_crash(world);
		return;
	}
	bool full = world->full;
	world->counters.faults += full;
	/* From lose_batch on the first one that is going to be acknowledged: to lose another is no fault. */
	bool lose = world->options.lose_batch != 0 && journal->batches >= world->options.lose_batch && !journal->has_lost && !full && !(crash && crash_when == 1);
	journal->has_lost |= lose;
	LIST_EACH(link, &batch) {
		struct store_append *append = CONTAINER_OF(link, struct store_append, link);
		append->error = (struct error){0};
		append->taken_us = append->committed_us = world->now_us;
		if (full)
			error_set(&append->error, ERR_FULL, "no space left");
		else if (!lose)
			commit_one(world, append);
	}
	if (journal->old_size == 0 && journal->count > 20) {
		journal->old_size = journal->count;
		journal->old_root = log_tree_root(&journal->tree);
	}
	if (crash && crash_when == 1) {
		world_crash(world);
		return;
	}
	while (!list_empty(&batch)) {
		struct store_append *append = CONTAINER_OF(batch.next, struct store_append, link);
		list_remove(&append->link);
		append->on_done(append);
		if (world->boot != boot)
			return; /* The rest of the batch went with the engine it belonged to. */
		if (crash) {
			world_crash(world);
			return;
		}
	}
}

int journal_append(void *arg, struct store_append *append)
{
	struct world *world = arg;
	struct journal *journal = &world->journal;

	CHECK(append->entry_count > 0);
	if (world->faults && random_chance(&world->random, 15)) {
		world->counters.faults++;
		return ERR_BUSY;
	}
	append->handed_us = world->now_us;
	list_init(&append->link);
	if (append->urgent)
		list_add_first(&journal->queue, &append->link);
	else
		list_add_last(&journal->queue, &append->link);
	journal->queued++;
	if (!journal->commit_due) {
		journal->commit_due = true;
		world_at(world, random_between(&world->random, 100, 8000), true, on_commit, NULL);
	}
	return 0;
}

struct entry *journal_entries(struct world *world, const struct run_model *run, struct arena *arena, uint64_t value_max, size_t *count)
{
	struct entry *entries = arena_zero(arena, (run->seq_count + 1) * sizeof *entries);
	struct error error = {0};

	for (size_t i = 0; i < run->seq_count; i++) {
		const struct stored *stored = &world->journal.entries[run->seqs[i]];
		if (entry_decode(arena, stored->bytes, origin, &entries[i], &error) != 0)
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

/* The reader's queue can be full too: nothing is lost by it, the engine asks again. */
static bool reader_is_busy(struct world *world, struct error *error)
{
	if (!world->faults || !random_chance(&world->random, 30))
		return false;
	world->counters.faults++;
	error_set(error, ERR_BUSY, "too many reads wait");
	return true;
}

static void on_run_read(struct world *world, void *arg)
{
	struct engine_load_run *load = arg;
	struct run_model *run = world_run_model(world, load->run_id);

	arena_init(&load->arena);
	if (reader_is_busy(world, &load->error)) {
		load->on_done(load);
		return;
	}
	load->entries = journal_entries(world, run, &load->arena, VALUE_INLINE_MAX, &load->entry_count);
	uint64_t after = load->after_seq;
	if (after == 0 && !load->whole && run->snapshot.data) {
		/* The store gives back what it was given, or nothing; but one of another version has to be told from a good one. */
		bool foreign = world->faults && random_chance(&world->random, 200);
		load->snapshot = arena_bytes(&load->arena, run->snapshot);
		load->snapshot.len -= foreign ? random_between(&world->random, 1, load->snapshot.len) : 0;
		after = run->snapshot_seq;
		world->counters.from_snapshot += !foreign;
	}
	/* A page of a few entries, from the one behind `after` on. */
	for (; load->entry_count > 0 && after > 0 && load->entries[0].seq <= after; load->entry_count--)
		load->entries++;
	size_t page = random_between(&world->random, 1, 200);
	load->more = load->entry_count > page;
	load->entry_count = load->more ? page : load->entry_count;
	if (load->after_seq > 0) {
		load->on_done(load);
		return;
	}
	for (size_t i = 0; i < WORLD_DEFINITIONS; i++)
		if (world->definitions[i] == run->definition)
			load->document = arena_bytes(&load->arena, world->documents[i]);
	world->counters.loads++;
	world->counters.parks += !run->recovering;
	run->recovering = false;
	load->on_done(load);
}

void journal_load_run(void *arg, struct engine_load_run *load)
{
	struct world *world = arg;

	world_at(world, random_between(&world->random, 50, 5000), true, on_run_read, load);
}

static void on_values_read(struct world *world, void *arg)
{
	struct engine_load_values *load = arg;
	struct run_model *run = world_run_model(world, load->run_id);
	struct journal *journal = &world->journal;

	arena_init(&load->arena);
	if (reader_is_busy(world, &load->error)) {
		load->on_done(load);
		return;
	}
	load->values = arena_zero(&load->arena, load->need_count * sizeof *load->values);
	for (size_t i = 0; i < load->need_count; i++) {
		const struct value_need *need = &load->needs[i];
		const struct stored_value *found = NULL;
		if (need->content_id) {
			uint64_t seq = (need->content_id - 1) >> 8, slot = (need->content_id - 1) & 255;
			if (seq >= journal->count || slot >= journal->entries[seq].value_count)
				broken(world, run, "content %" PRIu64 " is asked for, which is not there", need->content_id);
			found = &journal->entries[seq].values[slot];
			if (!digest_equal(&found->digest, &need->digest))
				broken(world, run, "content %" PRIu64 " is asked for under another digest", need->content_id);
		}
		for (size_t k = 0; k < run->seq_count && !found; k++)
			for (size_t v = 0; v < journal->entries[run->seqs[k]].value_count && !found; v++)
				if (digest_equal(&journal->entries[run->seqs[k]].values[v].digest, &need->digest))
					found = &journal->entries[run->seqs[k]].values[v];
		if (!found)
			broken(world, run, "a value is needed that was never committed with the run");
		load->values[i] = arena_bytes(&load->arena, found->bytes);
	}
	world->counters.value_loads += load->need_count;
	load->on_done(load);
}

void journal_load_values(void *arg, struct engine_load_values *load)
{
	struct world *world = arg;

	world_at(world, random_between(&world->random, 50, 5000), true, on_values_read, load);
}

static struct bytes find_bytes(struct arena *arena, const struct value_index *values, const struct json *data, const char *name)
{
	struct digest digest;
	const struct entry_value *value = json_get_digest(data, name, &digest) ? value_index_find(values, &digest) : NULL;

	return value ? arena_bytes(arena, value->bytes) : (struct bytes){0};
}

static void on_child_read(struct world *world, void *arg)
{
	struct children_look *look = arg;
	const struct run_model *run = world_run_model(world, look->run_id);
	struct value_index values;
	size_t count;

	arena_init(&look->arena);
	if (reader_is_busy(world, &look->error)) {
		look->on_done(look);
		return;
	}
	look->is_there = run && run->created;
	if (look->is_there) {
		look->status = !run->ended ? RUN_RUNNING : run->ended_by == ENTRY_RUN_COMPLETED ? RUN_COMPLETED : run->ended_by == ENTRY_RUN_FAULTED ? RUN_FAULTED : RUN_CANCELLED;
		look->parent_run = run->parent ? run->parent->id : "";
		look->parent_step = run->parent ? run->parent_step : "";
		if (look->wants_values && run->ended) {
			const struct entry *entries = journal_entries(world, run, &look->arena, UINT64_MAX, &count);
			value_index_make(&values, &look->arena, entries, count);
			look->output = find_bytes(&look->arena, &values, entries[count - 1].data, "output");
			look->run_error = find_bytes(&look->arena, &values, entries[count - 1].data, "error");
			look->reason = find_bytes(&look->arena, &values, entries[count - 1].data, "reason");
		}
	} else {
		for (size_t i = 0; i < WORLD_DEFINITIONS; i++)
			if (world->definition_added[i] && strcmp(world->definitions[i]->name, look->name) == 0) {
				look->definition = world->definitions[i];
				look->definition->use_count++;
			}
		if (!look->definition)
			error_set(&look->error, ERR_NOT_FOUND, "there is no definition %s", look->name);
	}
	look->on_done(look);
}

void journal_look(void *arg, struct children_look *look)
{
	struct world *world = arg;

	world_at(world, random_between(&world->random, 50, 5000), true, on_child_read, look);
}
