/* Facts: signed by the writer, found by id, run, document and feed; the envelope made from the record verifies. */
#include "tests/unit/store/fixture.h"

static void make_fact(struct fixture *f, struct entry *entry, const char *run_id, unsigned n, bool accepted, const char *document)
{
	struct arena *arena = &f->arena;
	struct digest digest = digest_of(bytes_text(document)), subject;
	struct bytes fact = bytes_text(arena_printf(arena, "{\"object\":\"%u\"}", n));
	struct bytes statement = bytes_text(arena_printf(arena, "{\"_type\":\"statement\",\"n\":%u,\"run\":\"%s\"}", n, run_id));

	*entry = (struct entry){.kind = ENTRY_FACT_RECORDED,
				.data = run_data(arena, run_id),
				.statement = statement,
				.time_ms = fixture_wall_ms()};
	subject = digest_of(fact);
	entry->values[entry->value_count++] = (struct entry_value){digest_of(statement), statement, statement.len};
	json_set_text(arena, entry->data, "stepId", "/do/0/x@1");
	json_set_number(arena, entry->data, "attempt", 1);
	json_set_number(arena, entry->data, "index", n);
	json_set_text(arena, entry->data, "verdict", accepted ? "PASSED" : "FAILED");
	json_set_text(arena, entry->data, "runtime", n % 2 ? "odd" : "even");
	json_set_text(arena, entry->data, "class", n % 3 ? "unmeasured" : "byte-stable");
	json_set_digest(arena, entry->data, "document", &digest);
	json_set_digest(arena, entry->data, "subject", &subject);
	entry_add_value(arena, entry, "fact", fact);
}

static size_t count_facts(struct store_reader *reader, struct fixture *f, struct store_fact_filter filter)
{
	struct store_fact *facts;
	size_t count;

	filter.limit = 1000;
	ck_assert_msg(reader_facts(reader, &f->arena, &filter, &facts, &count, &f->error) == 0, "%s", f->error.message);
	for (size_t i = 1; i < count; i++)
		ck_assert_uint_gt(facts[i].seq, facts[i - 1].seq);
	return count;
}

enum { FACTS = 60 }; /* n % 10 == 9 is rejected */

static void read_facts(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct digest document = digest_of(bytes_text("doc-1"));
	struct store_fact_filter feed = {.from_start = true, .limit = 7};
	struct store_fact *facts, fact;
	size_t count, seen = 0;
	char hex[DIGEST_HEX_LEN + 1];

	(void)arg;
	ck_assert_uint_eq(count_facts(reader, f, (struct store_fact_filter){0}), FACTS - FACTS / 10);
	ck_assert_uint_eq(count_facts(reader, f, (struct store_fact_filter){.rejected_too = true}), FACTS);
	ck_assert_uint_eq(count_facts(reader, f, (struct store_fact_filter){.rejected_too = true, .run_id = "r1"}), FACTS / 2);
	ck_assert_uint_eq(count_facts(reader, f, (struct store_fact_filter){.run_id = "nobody"}), 0);
	ck_assert_uint_eq(count_facts(reader, f, (struct store_fact_filter){.rejected_too = true, .runtime = "odd"}), FACTS / 2);
	ck_assert_uint_eq(count_facts(reader, f,
				      (struct store_fact_filter){.rejected_too = true, .reproducibility_class = "byte-stable"}),
			  FACTS / 3);
	ck_assert_uint_eq(count_facts(reader, f, (struct store_fact_filter){.rejected_too = true, .document = &document}),
			  FACTS / 2);
	ck_assert_uint_eq(count_facts(reader, f, (struct store_fact_filter){.rejected_too = true, .name = "flow-r0"}), FACTS / 2);
	ck_assert_uint_eq(count_facts(reader, f, (struct store_fact_filter){.rejected_too = true, .namespace = "others"}), 0);
	/* The feed gives every accepted fact once, in order, resumable after each page. */
	do {
		ck_assert_int_eq(reader_facts(reader, &f->arena, &feed, &facts, &count, &f->error), 0);
		seen += count;
		if (count > 0)
			feed.after_seq = facts[count - 1].seq;
		feed.from_start = false;
	} while (count > 0);
	ck_assert_uint_eq(seen, FACTS - FACTS / 10);
	/* Ids and prefixes. */
	feed = (struct store_fact_filter){.limit = 1};
	ck_assert_int_eq(reader_facts(reader, &f->arena, &feed, &facts, &count, &f->error), 0);
	digest_hex(&facts[0].id, hex);
	for (size_t len = 12; len <= DIGEST_HEX_LEN; len++) {
		char prefix[DIGEST_HEX_LEN + 1];

		snprintf(prefix, sizeof(prefix), "%.*s", (int)len, hex);
		ck_assert_msg(reader_fact(reader, &f->arena, prefix, &fact, &f->error) == 0, "%s: %s", prefix, f->error.message);
		ck_assert_uint_eq(fact.seq, facts[0].seq);
	}
	hex[11] = '\0';
	ck_assert_int_eq(reader_fact(reader, &f->arena, hex, &fact, &f->error), ERR_INVALID);
	ck_assert_int_eq(reader_fact(reader, &f->arena, "zzzzzzzzzzzzzz", &fact, &f->error), ERR_INVALID);
	ck_assert_int_eq(reader_fact(reader, &f->arena, "000000000000", &fact, &f->error), ERR_NOT_FOUND);
}

static void read_records(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_fact_filter filter = {.rejected_too = true, .limit = 1000};
	struct store_fact *facts;
	size_t count;

	(void)arg;
	ck_assert_int_eq(reader_facts(reader, &f->arena, &filter, &facts, &count, &f->error), 0);
	for (size_t i = 0; i < count; i++) {
		struct store_fact_record record;
		struct envelope envelope;
		struct buffer text;
		struct digest payload, pae, named;
		struct entry entry;
		bool hint_wrong;

		ck_assert_msg(reader_fact_record(reader, &f->arena, facts[i].seq, &record, &f->error) == 0, "%s",
			      f->error.message);
		payload = digest_of(record.payload);
		ck_assert(digest_equal(&payload, &facts[i].id));
		ck_assert_ptr_nonnull(record.fact.data);
		ck_assert_str_eq(record.signature.key_id, store_fact_key(f->store)->id);
		buffer_init(&text, ENVELOPE_LEN_MAX);
		envelope_print(ENVELOPE_TYPE_STATEMENT, record.payload, &record.signature, 1, &text);
		ck_assert_int_eq(envelope_parse(&f->arena, buffer_bytes(&text), &envelope, &f->error), 0);
		ck_assert_uint_eq(envelope_count_valid(&envelope, store_fact_key(f->store), 1, &hint_wrong), 1);
		ck_assert(!hint_wrong);
		buffer_close(&text);
		/* What the entry says about it: payload, PAE and who signed. */
		ck_assert_int_eq(entry_decode(&f->arena, record.entry, store_origin(f->store), &entry, &f->error), 0);
		pae = envelope_pae_digest(ENVELOPE_TYPE_STATEMENT, record.payload);
		ck_assert(json_get_digest(entry.data, "payload", &named) && digest_equal(&named, &payload));
		ck_assert(json_get_digest(entry.data, "pae", &named) && digest_equal(&named, &pae));
		ck_assert_uint_eq(json_count(json_get(entry.data, "signatures")), 1);
	}
	ck_assert_uint_eq(count, FACTS);
	ck_assert_int_eq(reader_fact_record(reader, &f->arena, 0, &(struct store_fact_record){0}, &f->error), ERR_NOT_FOUND);
}

/* Every recorded fact is signed once, is found every way, and its envelope verifies with the fact key alone. */
START_TEST(facts_are_signed_and_found)
{
	struct fixture f;
	struct entry entries[2];

	fixture_start(&f);
	make_created(&f.arena, &entries[0], "r0", "flow-r0", NULL);
	make_created(&f.arena, &entries[1], "r1", "flow-r1", NULL);
	append_ok(&f, entries, 2);
	for (unsigned n = 0; n < FACTS; n += 2) {
		struct json *data;

		make_fact(&f, &entries[0], n / 2 % 2 ? "r1" : "r0", n, n % 10 != 9, "doc-0");
		make_fact(&f, &entries[1], n / 2 % 2 ? "r1" : "r0", n + 1, (n + 1) % 10 != 9, "doc-1");
		data = entries[0].data;
		append_ok(&f, entries, 2);
		/* The caller's own object is as it was: the writer does not allocate in another's arena. */
		ck_assert_ptr_eq(entries[0].data, data);
		ck_assert_ptr_null(json_get(data, "signatures"));
	}
	read_and_wait(&f, read_facts, NULL);
	read_and_wait(&f, read_records, NULL);
	fixture_reopen(&f);
	read_and_wait(&f, read_facts, NULL);
	read_and_wait(&f, read_records, NULL);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* A fact whose statement is not its first value is refused: what is signed must be what is stored. */
START_TEST(statement_must_be_stored)
{
	struct fixture f;
	struct entry entries[2];

	fixture_start(&f);
	make_created(&f.arena, &entries[0], "r0", "flow-r0", NULL);
	make_fact(&f, &entries[1], "r0", 1, true, "doc");
	entries[1].statement = BYTES_OF("something else");
	ck_assert_int_eq(append_and_wait(&f, entries, 2, NULL), ERR_INVALID);
	entries[1].value_count = 0;
	ck_assert_int_eq(append_and_wait(&f, entries, 2, NULL), ERR_INVALID);
	fixture_end(&f);
}
END_TEST

static void read_ambiguous(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_fact fact;

	(void)arg;
	ck_assert_int_eq(reader_fact(reader, &f->arena, "aaaaaaaaaaaa", &fact, &f->error), ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(f->error.message, "several"));
	ck_assert_int_eq(reader_fact(reader, &f->arena, "aaaaaaaaaaaa0", &fact, &f->error), 0);
	ck_assert_uint_eq(fact.seq, 1000);
	ck_assert_int_eq(reader_fact(reader, &f->arena, "sha256:aaaaaaaaaaaaf", &fact, &f->error), 0);
	ck_assert_uint_eq(fact.seq, 1001);
}

/* A prefix that fits two facts is refused and says so; one digit more decides. (Rows put in by hand: nobody finds two
 * statements with 12 equal digits.) */
START_TEST(ambiguous_prefix)
{
	struct fixture f;

	fixture_start(&f);
	ck_assert_int_eq(
		plain_exec(
			&f,
			"INSERT INTO fact VALUES"
			"(1000, x'aaaaaaaaaaaa0000000000000000000000000000000000000000000000000000', 1, 1, '', '', zeroblob(32)),"
			"(1001, x'aaaaaaaaaaaaf000000000000000000000000000000000000000000000000000', 1, 1, '', '', "
			"zeroblob(32))"),
		SQLITE_OK);
	read_and_wait(&f, read_ambiguous, NULL);
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-facts", facts_are_signed_and_found, ambiguous_prefix, statement_must_be_stored)
