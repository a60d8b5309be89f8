/* Gates: found newest first, by runtime and by id; refused without a report. What retention leaves of them: tests/unit/store/test_retention.c. */
#include "tests/unit/store/fixture.h"

enum { GATES = 6 };

static void make_gate(struct fixture *f, struct entry *entry, unsigned n)
{
	*entry = (struct entry){.kind = ENTRY_GATE_RECORDED, .data = run_data(&f->arena, "r0"), .time_ms = fixture_wall_ms()};
	json_set_text(&f->arena, entry->data, "stepId", "/do/0/gate/do/2/report@1");
	json_set_text(&f->arena, entry->data, "runtime", n % 2 ? "odd" : "even");
	json_set_text(&f->arena, entry->data, "class", n % 3 ? "unstable" : "byte-stable");
	entry_add_value(&f->arena, entry, "report", bytes_text(arena_printf(&f->arena, "{\"n\":%u}", n)));
}

static void read_gates(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_gate_filter filter = {.limit = 4};
	struct store_gate *gates, gate;
	char hex[DIGEST_HEX_LEN + 1];
	size_t count;

	(void)arg;
	ck_assert_int_eq(reader_gates(reader, &f->arena, &filter, &gates, &count, &f->error), 0);
	ck_assert_uint_eq(count, 4);
	for (size_t i = 0; i < count; i++) {
		struct bytes report = bytes_text(arena_printf(&f->arena, "{\"n\":%zu}", GATES - 1 - i));
		ck_assert(bytes_equal(gates[i].report, report));
		ck_assert_str_eq(gates[i].run_id, "r0");
		ck_assert_int_gt(gates[i].time_ms, 0);
	}
	filter.before_seq = gates[count - 1].seq;
	ck_assert_int_eq(reader_gates(reader, &f->arena, &filter, &gates, &count, &f->error), 0);
	ck_assert_uint_eq(count, GATES - 4);
	filter = (struct store_gate_filter){.runtime = "odd"};
	ck_assert_int_eq(reader_gates(reader, &f->arena, &filter, &gates, &count, &f->error), 0);
	ck_assert_uint_eq(count, GATES / 2);
	ck_assert_str_eq(gates[0].runtime, "odd");
	ck_assert_str_eq(gates[0].class, "unstable"); /* n is 5 */
	digest_hex(&gates[1].id, hex);
	hex[DIGEST_PREFIX_MIN] = '\0';
	ck_assert_int_eq(reader_gate(reader, &f->arena, hex, &gate, &f->error), 0);
	ck_assert_uint_eq(gate.seq, gates[1].seq);
	ck_assert_str_eq(gate.class, "byte-stable"); /* n is 3 */
	hex[DIGEST_PREFIX_MIN - 1] = '\0';
	ck_assert_int_eq(reader_gate(reader, &f->arena, hex, &gate, &f->error), ERR_INVALID);
	ck_assert_int_eq(reader_gate(reader, &f->arena, "000000000000", &gate, &f->error), ERR_NOT_FOUND);
}

/* Each gate is found, newest first, by its runtime, and by its id, also from tables that are read anew. */
START_TEST(gates_are_found)
{
	struct entry entries[GATES + 1];
	struct fixture f;

	fixture_start(&f);
	make_created(&f.arena, &entries[0], "r0", "flow-r0", NULL);
	for (unsigned n = 0; n < GATES; n++)
		make_gate(&f, &entries[n + 1], n);
	append_ok(&f, entries, GATES + 1);
	read_and_wait(&f, read_gates, NULL);
	fixture_reopen(&f);
	read_and_wait(&f, read_gates, NULL);
	fixture_close(&f);
	check_tables_equal(&f);
	fixture_end(&f);
}
END_TEST

/* A gate without its report would be a claim without a measurement. */
START_TEST(report_must_be_there)
{
	struct entry entries[2];
	struct fixture f;

	fixture_start(&f);
	make_created(&f.arena, &entries[0], "r0", "flow-r0", NULL);
	make_gate(&f, &entries[1], 1);
	json_remove(entries[1].data, "report");
	ck_assert_int_eq(append_and_wait(&f, entries, 2, NULL), ERR_INVALID);
	fixture_end(&f);
}
END_TEST

static void read_damaged(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct store_gate_filter filter = {.limit = GATES};
	struct store_gate *gates, gate;
	char hex[DIGEST_HEX_LEN + 1];
	size_t count, damaged = 0;

	ck_assert_msg(reader_gates(reader, &f->arena, &filter, &gates, &count, &f->error) == 0, "%s", f->error.message);
	ck_assert_uint_eq(count, GATES);
	for (size_t i = 0; i < count; i++) {
		if (gates[i].report.data != NULL)
			continue;
		damaged++;
		digest_hex(&gates[i].id, hex);
		ck_assert_int_eq(reader_gate(reader, &f->arena, hex, &gate, &f->error), *(const int *)arg);
	}
	ck_assert_uint_eq(damaged, 1);
}

/* One report that is damaged, or whose entry is gone, keeps nobody from the others: a start reads them all. Who asks for that one hears of it. */
START_TEST(damage_of_one)
{
	static const struct {
		const char *sql;
		int code;
	} cases[] = {{"UPDATE content SET bytes = CAST('no report' AS BLOB) WHERE (id - 1) >> 8 = (SELECT max(seq) FROM gate)", ERR_CORRUPT},
		     {"INSERT INTO pruning(allowed) VALUES(1); DELETE FROM entry WHERE seq = (SELECT max(seq) FROM gate) - 1; DELETE FROM pruning", ERR_NOT_FOUND}};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct entry entries[GATES + 1];
		struct fixture f;
		int code = cases[i].code;

		fixture_start(&f);
		make_created(&f.arena, &entries[0], "r0", "flow-r0", NULL);
		for (unsigned n = 0; n < GATES; n++)
			make_gate(&f, &entries[n + 1], n);
		append_ok(&f, entries, GATES + 1);
		fixture_close(&f);
		ck_assert_int_eq(plain_exec(&f, cases[i].sql), SQLITE_OK);
		fixture_open(&f);
		read_and_wait(&f, read_damaged, &code);
		fixture_end(&f);
	}
}
END_TEST

TEST_MAIN("store-gates", gates_are_found, report_must_be_there, damage_of_one)
