/* Events in the journal: each key once, in order, as long as it is known; and the places of the sinks. */
#include "tests/unit/store/fixture.h"

static void make_event(struct fixture *f, struct entry *entry, const char *id, int64_t time_ms, size_t more)
{
	struct digest key = digest_of(bytes_text(id));

	*entry = (struct entry){.kind = ENTRY_EVENT_RECEIVED, .data = json_object(&f->arena), .time_ms = time_ms};
	json_set_digest(&f->arena, entry->data, "key", &key);
	entry_add_value(&f->arena, entry, "event", bytes_text(arena_printf(&f->arena, "{\"id\":\"%s\",\"more\":\"%0*d\"}", id, (int)more, 0)));
}

static void add_event(struct fixture *f, const char *id, int64_t time_ms)
{
	struct entry entry;

	make_event(f, &entry, id, time_ms, 1);
	append_ok(f, &entry, 1);
}

struct page {
	uint64_t after, next;
	int64_t since_ms;
	size_t limit, count;
	struct store_event *events;
};

static void read_page(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct page *page = arg;

	ck_assert_msg(reader_events(reader, &f->arena, page->after, page->since_ms, page->limit, &page->events, &page->count, &page->next, &f->error) == 0, "%s",
		      f->error.message);
}

static const char *id_of(struct fixture *f, const struct store_event *event)
{
	struct json *json = json_parse(&f->arena, event->event, JSON_STORED, NULL, NULL);

	ck_assert_ptr_nonnull(json);
	return json_get_text(json, "id");
}

/* A second event of the same key is refused alone, also within one batch; an emitted one of a known key changes nothing, and its run goes on. */
START_TEST(each_key_once)
{
	struct page page = {.limit = 10};
	struct entry entries[3];
	struct fixture f;

	fixture_start(&f);
	add_event(&f, "a", 1000);
	make_event(&f, &entries[0], "a", 2000, 1);
	ck_assert_int_eq(append_and_wait(&f, entries, 1, NULL), ERR_EXISTS);
	ck_assert_ptr_nonnull(strstr(f.error.message, "came with entry"));
	make_event(&f, &entries[0], "b", 2000, 1);
	json_remove(entries[0].data, "key");
	ck_assert_int_eq(append_and_wait(&f, entries, 1, NULL), ERR_INVALID);

	struct digest key_a = digest_of(BYTES_OF("a")), key_b = digest_of(BYTES_OF("b"));
	make_created(&f.arena, &entries[0], "run", "one", NULL);
	for (int i = 1; i < 3; i++) {
		make_step(&f.arena, &entries[i], ENTRY_EVENT_EMITTED, "run", "/do/0/x@1", (struct bytes){0});
		json_set_digest(&f.arena, entries[i].data, "key", i == 1 ? &key_a : &key_b);
		entry_add_value(&f.arena, &entries[i], "other", BYTES_OF("7"));
		entry_add_value(&f.arena, &entries[i], "event", i == 1 ? BYTES_OF("{\"id\":\"a\"}") : BYTES_OF("{\"id\":\"b\"}"));
	}
	append_ok(&f, entries, 3);
	make_event(&f, &entries[0], "b", 2000, 1);
	ck_assert_int_eq(append_and_wait(&f, entries, 1, NULL), ERR_EXISTS);
	read_and_wait(&f, read_page, &page);
	ck_assert_uint_eq(page.count, 2);
	ck_assert_str_eq(id_of(&f, &page.events[0]), "a");
	ck_assert_str_eq(id_of(&f, &page.events[1]), "b");
	ck_assert_uint_eq(page.events[1].seq, page.next);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* Two of one key that are queued together: the first is kept, the second alone is a duplicate. */
START_TEST(twice_in_one_batch)
{
	struct entry first, second;
	bool done[2] = {false, false};
	struct fixture f;

	fixture_start(&f);
	make_event(&f, &first, "a", 1000, 1);
	make_event(&f, &second, "a", 1000, 1);
	struct store_append appends[2] = {{.entries = &first, .entry_count = 1, .on_done = on_append_done, .owner = &done[0]},
					  {.entries = &second, .entry_count = 1, .on_done = on_append_done, .owner = &done[1]}};
	ck_assert_int_eq(store_append(f.store, &appends[0]), 0);
	ck_assert_int_eq(store_append(f.store, &appends[1]), 0);
	while (!done[0] || !done[1])
		uv_run(&f.loop, UV_RUN_ONCE);
	ck_assert_int_eq(appends[0].error.code, 0);
	ck_assert_int_eq(appends[1].error.code, ERR_EXISTS);
	fixture_end(&f);
}
END_TEST

/* Pages go on where the one before ended, leave out what is older than asked for, and end early where events are large. */
START_TEST(pages)
{
	struct page page = {.limit = 4};
	struct entry entry;
	struct fixture f;
	char id[8];

	fixture_start(&f);
	for (int i = 0; i < 10; i++) {
		snprintf(id, sizeof(id), "%d", i);
		add_event(&f, id, 1000 + i);
	}
	for (size_t seen = 0, count = 4; seen < 10; seen += count, count = seen == 8 ? 2 : 4) {
		read_and_wait(&f, read_page, &page);
		ck_assert_uint_eq(page.count, count);
		for (size_t i = 0; i < count; i++) {
			snprintf(id, sizeof(id), "%zu", seen + i);
			ck_assert_str_eq(id_of(&f, &page.events[i]), id);
			ck_assert_int_eq(page.events[i].time_ms, 1000 + (int64_t)(seen + i));
		}
		page.after = page.next;
	}
	read_and_wait(&f, read_page, &page);
	ck_assert_uint_eq(page.count, 0);
	ck_assert_uint_eq(page.next, page.after);
	page = (struct page){.since_ms = 1008, .limit = 10};
	read_and_wait(&f, read_page, &page);
	ck_assert_uint_eq(page.count, 2);
	ck_assert_str_eq(id_of(&f, &page.events[0]), "8");
	for (int i = 0; i < 6; i++) {
		snprintf(id, sizeof(id), "L%d", i);
		make_event(&f, &entry, id, 2000, 1000000);
		append_ok(&f, &entry, 1);
	}
	page = (struct page){.since_ms = 2000, .limit = 10};
	read_and_wait(&f, read_page, &page);
	ck_assert_uint_eq(page.count, (STORE_EVENTS_BYTES_MAX + 1000000) / 1000000);
	fixture_end(&f);
}
END_TEST

static void read_begin(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct page *page = arg;

	ck_assert_int_eq(reader_events_begin(reader, page->since_ms, &page->after, &f->error), 0);
}

struct old {
	int64_t before_ms;
	size_t limit, count;
	uint64_t before, known;
};

static void read_old(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct old *old = arg;

	ck_assert_int_eq(reader_events_old(reader, old->before_ms, old->limit, &old->before, &old->count, &f->error), 0);
	ck_assert_int_eq(reader_event_count(reader, &old->known, &f->error), 0);
}

/* What is forgotten is known no longer: not listed, and no duplicate when it comes again. Where a time begins is found without a walk. */
START_TEST(forgetting)
{
	struct page page = {.since_ms = 1002, .limit = 10};
	struct old old = {.before_ms = 1003, .limit = 2};
	struct entry entry = {.kind = ENTRY_EVENTS_FORGOTTEN};
	struct fixture f;

	fixture_start(&f);
	for (int i = 0; i < 5; i++) {
		char id[2] = {(char)('a' + i), 0};
		add_event(&f, id, 1000 + i);
	}
	read_and_wait(&f, read_begin, &page);
	read_and_wait(&f, read_page, &page);
	ck_assert_str_eq(id_of(&f, &page.events[0]), "c");
	ck_assert_uint_eq(page.events[0].seq, page.after + 1);
	page.since_ms = 9000;
	read_and_wait(&f, read_begin, &page);
	ck_assert_uint_eq(page.after, page.next); /* the journal's end */

	read_and_wait(&f, read_old, &old);
	ck_assert_uint_eq(old.count, 2);
	old.limit = 100;
	read_and_wait(&f, read_old, &old);
	ck_assert_uint_eq(old.count, 3);
	ck_assert_uint_eq(old.known, 5);
	entry.data = json_object(&f.arena);
	json_set_number(&f.arena, entry.data, "before", (double)old.before);
	append_ok(&f, &entry, 1);
	read_and_wait(&f, read_old, &old);
	ck_assert_uint_eq(old.count, 0);
	ck_assert_uint_eq(old.known, 2);
	page = (struct page){.limit = 10};
	read_and_wait(&f, read_page, &page);
	ck_assert_uint_eq(page.count, 2);
	ck_assert_str_eq(id_of(&f, &page.events[0]), "d");
	add_event(&f, "a", 5000);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

static void read_sink(struct store_reader *reader, struct fixture *f, void *arg)
{
	uint64_t *position = arg;

	if (reader_sink(reader, "audit", position, &f->error) != 0) {
		ck_assert_int_eq(f->error.code, ERR_NOT_FOUND);
		*position = UINT64_MAX;
	}
}

/* A sink's place is the one that was written last, also after a restart. */
START_TEST(places_of_sinks)
{
	struct entry entry = {.kind = ENTRY_SINK_ADVANCED};
	uint64_t position;
	struct fixture f;

	fixture_start(&f);
	read_and_wait(&f, read_sink, &position);
	ck_assert_uint_eq(position, UINT64_MAX);
	for (int i = 1; i < 4; i++) {
		entry.data = json_object(&f.arena);
		json_set_text(&f.arena, entry.data, "sink", i == 3 ? "other" : "audit");
		json_set_number(&f.arena, entry.data, "position", 10 * i);
		append_ok(&f, &entry, 1);
	}
	fixture_reopen(&f);
	read_and_wait(&f, read_sink, &position);
	ck_assert_uint_eq(position, 20);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-events", each_key_once, twice_in_one_batch, pages, forgetting, places_of_sinks)
