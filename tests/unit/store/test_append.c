/* Appending: what is acknowledged is there, in order, in few commits, all or none of a decision. */
#include "tests/unit/store/fixture.h"

static void read_entries(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct entry *entries;
	size_t count;

	ck_assert_msg(reader_run_entries(reader, &f->arena, arg, 0, 100, CONTENT_MAX, &entries, &count, &f->error) == 0, "%s",
		      f->error.message);
	ck_assert_uint_eq(count, 3);
	ck_assert_int_eq(entries[0].kind, ENTRY_RUN_CREATED);
	ck_assert_int_eq(entries[1].kind, ENTRY_TASK_COMPLETED);
	ck_assert_int_eq(entries[2].kind, ENTRY_RUN_COMPLETED);
	ck_assert_str_eq(json_get_text(entries[1].data, "stepId"), "/do/0/a@1");
	ck_assert_uint_eq(entries[0].value_count, 2);
	ck_assert(bytes_equal_text(entries[0].values[0].bytes, "{\"of\":\"r1\"}"));
	ck_assert_uint_eq(entries[1].value_count, 1);
	ck_assert(bytes_equal_text(entries[1].values[0].bytes, "42"));
	ck_assert_uint_eq(entries[2].seq, entries[0].seq + 2);
}

/* A run that was appended is found by its id with its entries and values, also after a restart. */
START_TEST(append_commit_read)
{
	struct fixture f;
	struct entry entries[3];
	struct store_append result;

	fixture_start(&f);
	make_created(&f.arena, &entries[0], "r1", "one", "{\"team\":\"a\"}");
	make_step(&f.arena, &entries[1], ENTRY_TASK_COMPLETED, "r1", "/do/0/a@1", bytes_text("42"));
	make_step(&f.arena, &entries[2], ENTRY_RUN_COMPLETED, "r1", NULL, bytes_text("42"));
	ck_assert_msg(append_and_wait(&f, entries, 3, &result) == 0, "%s", f.error.message);
	ck_assert_uint_eq(result.seq_first, 3); /* behind journal.opened and the two keys */
	ck_assert_uint_eq(entries[2].seq, 5);
	ck_assert_uint_le(result.handed_us, result.taken_us);
	ck_assert_uint_le(result.taken_us, result.committed_us);
	ck_assert_uint_gt(result.handed_us, 0);
	read_and_wait(&f, read_entries, (void *)"r1");
	fixture_reopen(&f);
	read_and_wait(&f, read_entries, (void *)"r1");
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

enum { MANY = 2000 };
struct many {
	struct store_append append;
	struct entry entries[2];
	unsigned *counter;
	unsigned order;
};

static void on_many_done(struct store_append *append)
{
	struct many *many = append->owner;

	ck_assert_msg(append->error.code == 0, "%s", append->error.message);
	many->order = (*many->counter)++;
}

static struct many *stage_many(struct fixture *f, unsigned *counter, unsigned first)
{
	struct many *many = memory_zero(MANY * sizeof(*many));

	for (unsigned i = 0; i < MANY; i++) {
		char id[32];

		snprintf(id, sizeof(id), "run-%05u", first + i);
		make_created(&f->arena, &many[i].entries[0], id, "many", NULL);
		make_step(&f->arena, &many[i].entries[1], ENTRY_TASK_STARTED, id, "/do/0/a@1", (struct bytes){0});
		many[i].counter = counter;
		many[i].append = (struct store_append){.entries = many[i].entries,
						       .entry_count = 2,
						       .on_done = on_many_done,
						       .owner = &many[i]};
		ck_assert_int_eq(store_append(f->store, &many[i].append), 0);
	}
	return many;
}

/* What one turn of the loop stages is committed in very few transactions, and comes back in the order it was staged, with
 * positions that follow each other. */
START_TEST(group_commit_in_order)
{
	struct fixture f;
	unsigned counter = 0;
	struct many *many;
	uint64_t commits;

	fixture_start(&f);
	commits = atomic_load(&store_counters(f.store)->commits);
	many = stage_many(&f, &counter, 0);
	ck_assert_uint_eq(store_queue_depth(f.store), MANY);
	ck_assert_uint_eq(counter, 0);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(counter, MANY);
	ck_assert_uint_eq(store_queue_depth(f.store), 0);
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert_uint_eq(many[i].order, i);
		ck_assert_uint_eq(many[i].append.seq_first, 3 + 2 * i);
	}
	ck_assert_uint_le(atomic_load(&store_counters(f.store)->commits) - commits, 2);
	ck_assert_uint_ge(atomic_load(&store_counters(f.store)->batch_appends_max), MANY / 2);
	free(many);
	fixture_end(&f);
}
END_TEST

enum { SLOW_APPENDS = 40, SLOW_US = 2000 };
struct slow {
	struct store_append append;
	struct entry entry;
	unsigned *turns, *done;
	unsigned order, of_turn;
};

static void on_turn(uv_check_t *check)
{
	unsigned *turns = check->data;

	(*turns)++;
}

static void on_slow_done(struct store_append *append)
{
	struct slow *slow = append->owner;
	uint64_t end = fixture_now_us() + SLOW_US;

	slow->order = (*slow->done)++;
	slow->of_turn = *slow->turns;
	while (fixture_now_us() < end)
		;
}

static void work_nothing(struct store_reader *reader, struct store_read *read)
{
	(void)reader;
	(void)read;
}

static void on_nothing_read(struct store_read *read)
{
	struct slow *slow = read->owner;

	slow->order = (*slow->done)++;
	arena_close(&read->arena);
}

/* What comes back together and takes long does not hold the loop: it is told of over several turns, in order, and a read only
 * when the appends that came back before it were. */
START_TEST(returns_over_several_turns)
{
	struct fixture f;
	uv_check_t check;
	struct slow slow[SLOW_APPENDS], behind;
	struct store_read read = {.work = work_nothing, .on_done = on_nothing_read, .owner = &behind};
	unsigned turns = 0, done = 0, most = 0;
	char id[16];

	fixture_start(&f);
	ck_assert_int_eq(uv_check_init(&f.loop, &check), 0);
	check.data = &turns;
	ck_assert_int_eq(uv_check_start(&check, on_turn), 0);
	uv_unref((uv_handle_t *)&check);
	for (unsigned i = 0; i < SLOW_APPENDS; i++) {
		slow[i] = (struct slow){.turns = &turns, .done = &done};
		snprintf(id, sizeof id, "slow%u", i);
		make_created(&f.arena, &slow[i].entry, arena_text(&f.arena, id), "one", NULL);
		slow[i].append = (struct store_append){.entries = &slow[i].entry, .entry_count = 1, .on_done = on_slow_done, .owner = &slow[i]};
		ck_assert_int_eq(store_append(f.store, &slow[i].append), 0);
	}
	while (done == 0)
		uv_run(&f.loop, UV_RUN_ONCE);
	behind = (struct slow){.done = &done};
	ck_assert_int_eq(store_read(f.store, &read), 0);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(done, SLOW_APPENDS + 1);
	ck_assert_uint_eq(behind.order, SLOW_APPENDS);
	for (unsigned i = 0, count = 0; i < SLOW_APPENDS; i++) {
		ck_assert_uint_eq(slow[i].order, i);
		count = i > 0 && slow[i].of_turn == slow[i - 1].of_turn ? count + 1 : 1;
		most = count > most ? count : most;
	}
	ck_assert_uint_le(most, STORE_TURN_US / SLOW_US);
	ck_assert_uint_ge(slow[SLOW_APPENDS - 1].of_turn - slow[0].of_turn, SLOW_APPENDS * SLOW_US / STORE_TURN_US - 1);
	uv_close((uv_handle_t *)&check, NULL);
	fixture_end(&f);
}
END_TEST

/* An urgent append that is staged last is committed first. */
START_TEST(urgent_goes_first)
{
	struct fixture f;
	unsigned counter = 0;
	struct many *many, urgent = {.counter = &counter};

	fixture_start(&f);
	make_created(&f.arena, &urgent.entries[0], "victim", "urgent", NULL);
	append_ok(&f, urgent.entries, 1);
	many = stage_many(&f, &counter, 0);
	make_step(&f.arena, &urgent.entries[0], ENTRY_RUN_CANCELLED, "victim", NULL, (struct bytes){0});
	urgent.append = (struct store_append){
		.entries = urgent.entries, .entry_count = 1, .urgent = true, .on_done = on_many_done, .owner = &urgent};
	ck_assert_int_eq(store_append(f.store, &urgent.append), 0);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(counter, MANY + 1);
	ck_assert_uint_eq(urgent.order, 0);
	ck_assert_uint_lt(urgent.append.seq_first, many[0].append.seq_first);
	free(many);
	fixture_end(&f);
}
END_TEST

static void on_any_done(struct store_append *append)
{
	unsigned *counter = append->owner;

	(*counter)++;
}

/* A run id that exists already fails its own append, all of it, and no other of the same transaction. */
START_TEST(conflict_is_its_own)
{
	struct fixture f;
	struct entry good[1], bad[2], other[1], again[2];
	unsigned done = 0;
	struct store_append appends[4];
	uint64_t commits, entries_before;

	fixture_start(&f);
	make_created(&f.arena, &good[0], "same", "one", NULL);
	make_created(&f.arena, &bad[0], "same", "two", NULL);
	make_step(&f.arena, &bad[1], ENTRY_TASK_STARTED, "same", "/do/0/a@1", bytes_text("never"));
	make_created(&f.arena, &other[0], "other", "one", NULL);
	/* Twice in one append, and for a run that nobody created. */
	make_created(&f.arena, &again[0], "twice", "one", NULL);
	make_created(&f.arena, &again[1], "twice", "one", NULL);
	commits = atomic_load(&store_counters(f.store)->commits);
	entries_before = atomic_load(&store_counters(f.store)->entries);
	appends[0] = (struct store_append){.entries = good, .entry_count = 1};
	appends[1] = (struct store_append){.entries = bad, .entry_count = 2};
	appends[2] = (struct store_append){.entries = other, .entry_count = 1};
	appends[3] = (struct store_append){.entries = again, .entry_count = 2};
	for (unsigned i = 0; i < 4; i++) {
		appends[i].on_done = on_any_done;
		appends[i].owner = &done;
		ck_assert_int_eq(store_append(f.store, &appends[i]), 0);
	}
	uv_run(&f.loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(done, 4);
	ck_assert_int_eq(appends[0].error.code, ERR_NONE);
	ck_assert_int_eq(appends[1].error.code, ERR_EXISTS);
	ck_assert_ptr_nonnull(strstr(appends[1].error.message, "same"));
	ck_assert_int_eq(appends[2].error.code, ERR_NONE);
	ck_assert_int_eq(appends[3].error.code, ERR_EXISTS);
	ck_assert_uint_eq(appends[2].seq_first, appends[0].seq_first + 1);
	ck_assert_uint_eq(atomic_load(&store_counters(f.store)->commits) - commits, 1);
	ck_assert_uint_eq(atomic_load(&store_counters(f.store)->entries) - entries_before, 2);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* Entries of a run that does not exist are refused, and an id that is no id is, too. */
START_TEST(late_and_invalid_entries_are_refused)
{
	struct fixture f;
	struct entry entry;

	fixture_start(&f);
	make_step(&f.arena, &entry, ENTRY_TASK_COMPLETED, "nobody", "/do/0/a@1", bytes_text("1"));
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_NOT_FOUND);
	make_created(&f.arena, &entry, "a/b", "one", NULL);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_INVALID);
	ck_assert_int_eq(append_and_wait(&f, &entry, 0, NULL), ERR_INVALID);
	entry = (struct entry){.kind = ENTRY_TASK_STARTED, .data = json_object(&f.arena), .time_ms = fixture_wall_ms()};
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_INVALID);
	entry = (struct entry){.kind = ENTRY_DAEMON_STARTED, .data = json_array(&f.arena), .time_ms = fixture_wall_ms()};
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_INVALID);
	entry = (struct entry){.kind = ENTRY_EVENT_RECEIVED, .data = json_object(&f.arena), .time_ms = fixture_wall_ms()};
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_INVALID);
	/* Only a run that has faulted is tried again. */
	make_created(&f.arena, &entry, "run", "one", NULL);
	append_ok(&f, &entry, 1);
	entry = (struct entry){.kind = ENTRY_RUN_RETRIED, .data = run_data(&f.arena, "run"), .time_ms = fixture_wall_ms()};
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_EXISTS);
	ck_assert_ptr_nonnull(strstr(f.error.message, "run run is running"));
	fixture_end(&f);
}
END_TEST

/* Entries that lack what their tables are made of are a mistake of ours: the store stops before anything of them is there, says what is missing, and the
 * next start finds what was there before. */
START_TEST(entries_that_lack_something)
{
	static const struct {
		enum entry_kind kind;
		const char *words;
	} cases[] = {
		{ENTRY_DEFINITION_ADDED, "definition.added without a definition"},
		{ENTRY_DOCUMENT_ADDED, "document.added without a document"},
		{ENTRY_CONFIG_LOADED, "config.loaded without a record"},
		{ENTRY_CONTENT_ERASED, "content.erased without the digest of a value"},
	};
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct fixture f;
		struct entry entry;

		fixture_start(&f);
		uint64_t size = f.store->writer.tree.size;
		entry = (struct entry){.kind = cases[i].kind, .data = json_object(&f.arena), .time_ms = fixture_wall_ms()};
		ck_assert_msg(append_and_wait(&f, &entry, 1, NULL) == ERR_CORRUPT, "case %zu: %d, %s", i, (int)f.error.code, f.error.message);
		ck_assert_msg(strstr(f.error.message, cases[i].words) != NULL, "case %zu: %s", i, f.error.message);
		make_created(&f.arena, &entry, "run", "one", NULL);
		ck_assert_int_ne(append_and_wait(&f, &entry, 1, NULL), 0);
		fixture_reopen(&f);
		ck_assert_uint_eq(f.broken, 1);
		ck_assert_uint_eq(f.store->writer.tree.size, size);
		append_ok(&f, &entry, 1);
		fixture_close(&f);
		check_tables_equal(&f);
		fixture_end(&f);
	}
}
END_TEST

/* A definition's name and version belong to one content; the same content again is no conflict. */
START_TEST(definition_conflict)
{
	struct fixture f;
	struct entry entry;
	const char *const bodies[] = {"{\"a\":1}", "{\"a\":1}", "{\"a\":2}"};
	const int codes[] = {ERR_NONE, ERR_NONE, ERR_EXISTS};

	fixture_start(&f);
	for (unsigned i = 0; i < 3; i++) {
		entry = (struct entry){.kind = ENTRY_DEFINITION_ADDED,
				       .data = json_object(&f.arena),
				       .time_ms = fixture_wall_ms()};
		json_set_text(&f.arena, entry.data, "namespace", "tests");
		json_set_text(&f.arena, entry.data, "name", "thing");
		json_set_text(&f.arena, entry.data, "version", "1.0.0");
		json_set_boolean(&f.arena, entry.data, "registered", true);
		entry_add_value(&f.arena, &entry, "source", bytes_text("a: 1 # source"));
		entry_add_value(&f.arena, &entry, "definition", bytes_text(bodies[i]));
		ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), codes[i]);
	}
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

static void on_done_again(struct store_append *append)
{
	struct fixture *f = append->owner;

	ck_assert_int_eq(append->error.code, ERR_NONE);
	ck_assert_int_eq(store_append(f->store, append), ERR_BUSY);
	f->broken++;
}

/* The id of a run that retention removed stays taken: nobody finds other work under it (C13). */
START_TEST(purged_ids_stay_taken)
{
	struct fixture f;
	struct entry entry;

	fixture_start(&f);
	ck_assert_int_eq(plain_exec(&f, "INSERT INTO run_tombstone VALUES('gone', 0, zeroblob(32), 0, 0, 0, NULL)"), SQLITE_OK);
	make_created(&f.arena, &entry, "gone", "one", NULL);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_EXISTS);
	ck_assert_ptr_nonnull(strstr(f.error.message, "was removed"));
	fixture_end(&f);
}
END_TEST

/* Times before 1970 are odd and no reason to stop. */
START_TEST(clock_before_1970)
{
	struct fixture f;
	struct entry entries[2];

	fixture_start(&f);
	make_created(&f.arena, &entries[0], "old", "one", NULL);
	make_step(&f.arena, &entries[1], ENTRY_RUN_COMPLETED, "old", NULL, BYTES_OF("1"));
	entries[0].time_ms = entries[1].time_ms = -86400000;
	append_ok(&f, entries, 2);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* A journal that somebody cut short takes nothing more: the store is broken, and says why. */
START_TEST(cut_short_while_in_use)
{
	struct fixture f;
	struct entry entry;
	char path[300];
	struct stat status;

	fixture_start(&f);
	make_created(&f.arena, &entry, "r1", "one", NULL);
	append_ok(&f, &entry, 1);
	fixture_reopen(&f); /* All of it is in journal.db now. */
	make_created(&f.arena, &entry, "r2", "one", NULL);
	append_ok(&f, &entry, 1);
	snprintf(path, sizeof path, "%s/journal.db", f.folder);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_eq(truncate(path, status.st_size - 4096), 0);
	make_created(&f.arena, &entry, "r3", "one", NULL);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_IO);
	ck_assert_uint_eq(f.broken, 1);
	ck_assert_ptr_nonnull(strstr(f.error.message, "journal.db was cut short"));
	fixture_end(&f);
}
END_TEST

/* Closing lets what is staged commit and fires its callbacks; what these submit is refused. */
START_TEST(close_commits_what_is_staged)
{
	struct fixture f;
	struct entry entry;
	struct store_append append = {.entries = &entry, .entry_count = 1, .on_done = on_done_again, .owner = &f};

	fixture_start(&f);
	make_created(&f.arena, &entry, "last", "one", NULL);
	ck_assert_int_eq(store_append(f.store, &append), 0);
	store_close(f.store);
	ck_assert_uint_eq(f.broken, 1);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	fixture_open(&f);
	make_created(&f.arena, &entry, "last", "one", NULL);
	ck_assert_int_eq(append_and_wait(&f, &entry, 1, NULL), ERR_EXISTS);
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-append", append_commit_read, group_commit_in_order, returns_over_several_turns, urgent_goes_first, conflict_is_its_own,
	  late_and_invalid_entries_are_refused, entries_that_lack_something, definition_conflict, purged_ids_stay_taken,
	  clock_before_1970, cut_short_while_in_use, close_commits_what_is_staged)
