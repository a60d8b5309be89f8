/* Entries as bytes, their kinds, step ids and idempotency keys. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/entry.h"

/* The example of provenance.md 4.3: journal entries are these bytes and no others. */
START_TEST(bytes_are_exact)
{
	struct arena arena;
	struct buffer out;
	struct error error = {0};
	struct entry entry = {.kind = ENTRY_TASK_STARTED, .time_ms = 1789722624500}, back;

	arena_init(&arena);
	buffer_init(&out, 1 << 20);
	entry.data = json_object(&arena);
	json_set_text(&arena, entry.data, "stepId", "/do/0/a@1");
	json_set_number(&arena, entry.data, "\xc3\xa9", 1);
	json_set_text(&arena, entry.data, "runId", "01K5F2M8A9Q4T6W3Z7C1V5N0XE");
	ck_assert_int_eq(entry_encode(&entry, "reprise.example/journal/7f3a", 6, &out, &error), 0);
	/* é (U+00E9) sorts behind the ASCII names. */
	ck_assert_str_eq(buffer_text(&out),
			 "{\"data\":{\"runId\":\"01K5F2M8A9Q4T6W3Z7C1V5N0XE\",\"stepId\":\"/do/0/a@1\",\"\xc3\xa9\":1},"
			 "\"kind\":\"task.started\",\"log\":\"reprise.example/journal/7f3a\",\"seq\":6,"
			 "\"ts\":\"2026-09-18T09:10:24.500Z\",\"v\":1}");
	ck_assert_int_eq(entry_decode(&arena, buffer_bytes(&out), "reprise.example/journal/7f3a", &back, &error), 0);
	ck_assert_int_eq(back.kind, ENTRY_TASK_STARTED);
	ck_assert_uint_eq(back.seq, 6);
	ck_assert_int_eq(back.time_ms, entry.time_ms);
	ck_assert(json_equal(back.data, entry.data));
	ck_assert_uint_eq(back.value_count, 0);
	buffer_close(&out);
	arena_close(&arena);
}
END_TEST

/* Every kind has a name of its own that leads back to it, and what encodes decodes. */
START_TEST(every_kind)
{
	struct arena arena;
	struct error error = {0};

	arena_init(&arena);
	for (unsigned i = 0; i < ENTRY_KIND_COUNT; i++) {
		struct entry entry = {.kind = (enum entry_kind)i, .data = json_object(&arena), .time_ms = 0}, back;
		const char *name = entry_kind_name(entry.kind);
		enum entry_kind kind;
		struct buffer out;

		ck_assert(entry_kind_parse(name, &kind));
		ck_assert_int_eq(kind, i);
		ck_assert_int_eq(entry_kind_touches_run(kind), strncmp(name, "run.", 4) == 0 || strncmp(name, "task.", 5) == 0 ||
								       strncmp(name, "attempt.", 8) == 0 ||
								       strncmp(name, "timer.", 6) == 0 ||
								       strcmp(name, "fact.recorded") == 0 ||
								       strcmp(name, "event.emitted") == 0 ||
								       strcmp(name, "event.consumed") == 0 || strcmp(name, "gate.recorded") == 0);
		buffer_init(&out, 1024);
		ck_assert_int_eq(entry_encode(&entry, "o", 9007199254740991, &out, &error), 0);
		ck_assert_int_eq(entry_decode(&arena, buffer_bytes(&out), NULL, &back, &error), 0);
		ck_assert_int_eq(back.kind, i);
		ck_assert_uint_eq(back.seq, 9007199254740991);
		buffer_close(&out);
	}
	ck_assert(!entry_kind_parse("run.failed", &(enum entry_kind){0}));
	ck_assert(!entry_kind_parse(NULL, &(enum entry_kind){0}));
	ck_assert(!entry_kind_parse("", &(enum entry_kind){0}));
	arena_close(&arena);
}
END_TEST

/* Exactly ENTRY_LEN_MAX bytes encode and decode; one more is refused with the limit named. */
START_TEST(length_limit)
{
	struct arena arena;
	struct error error = {0};
	struct entry entry = {.kind = ENTRY_DAEMON_STARTED, .time_ms = 0}, back;
	struct buffer out;
	size_t base;
	char *text;

	arena_init(&arena);
	buffer_init(&out, 1 << 20);
	entry.data = json_object(&arena);
	json_set_text(&arena, entry.data, "x", "");
	ck_assert_int_eq(entry_encode(&entry, "o", 0, &out, &error), 0);
	base = out.len;
	text = arena_alloc(&arena, ENTRY_LEN_MAX);
	for (size_t extra = 0; extra < 2; extra++) {
		memset(text, 'a', ENTRY_LEN_MAX - base + extra);
		text[ENTRY_LEN_MAX - base + extra] = '\0';
		json_set_text(&arena, entry.data, "x", text);
		buffer_clear(&out);
		error = (struct error){0};
		ck_assert_int_eq(entry_encode(&entry, "o", 0, &out, &error), extra == 0 ? 0 : ERR_TOO_LARGE);
		if (extra == 0)
			ck_assert_int_eq(entry_decode(&arena, buffer_bytes(&out), "o", &back, &error), 0);
	}
	ck_assert_ptr_nonnull(strstr(error.message, "65535"));
	buffer_add_text(&out, "                                                                                      ");
	ck_assert_int_eq(entry_decode(&arena, buffer_bytes(&out), "o", &back, &error), ERR_CORRUPT);
	buffer_close(&out);
	arena_close(&arena);
}
END_TEST

/* What is no entry is refused with a reason, never half read. */
START_TEST(damaged_entries)
{
	static const char *const texts[][2] = {
		{"", "json-"},
		{"[]", "six members"},
		{"{\"data\":{},\"kind\":\"run.created\",\"log\":\"o\",\"seq\":1,\"ts\":\"2026-09-18T09:10:24.500Z\"}",
		 "six members"},
		{"{\"data\":{},\"kind\":\"run.created\",\"log\":\"o\",\"seq\":1,\"ts\":\"2026-09-18T09:10:24.500Z\",\"v\":1,"
		 "\"x\":1}",
		 "six members"},
		{"{\"data\":{},\"kind\":\"run.created\",\"log\":\"o\",\"seq\":1,\"ts\":\"2026-09-18T09:10:24.500Z\",\"v\":2}",
		 "v is not 1"},
		{"{\"data\":[],\"kind\":\"run.created\",\"log\":\"o\",\"seq\":1,\"ts\":\"2026-09-18T09:10:24.500Z\",\"v\":1}",
		 "data is no object"},
		{"{\"data\":{},\"kind\":\"run.failed\",\"log\":\"o\",\"seq\":1,\"ts\":\"2026-09-18T09:10:24.500Z\",\"v\":1}",
		 "run.failed"},
		{"{\"data\":{},\"kind\":7,\"log\":\"o\",\"seq\":1,\"ts\":\"2026-09-18T09:10:24.500Z\",\"v\":1}", "unknown kind"},
		{"{\"data\":{},\"kind\":\"run.created\",\"log\":\"p\",\"seq\":1,\"ts\":\"2026-09-18T09:10:24.500Z\",\"v\":1}",
		 "of log \"p\""},
		{"{\"data\":{},\"kind\":\"run.created\",\"log\":\"o\",\"seq\":-1,\"ts\":\"2026-09-18T09:10:24.500Z\",\"v\":1}",
		 "seq"},
		{"{\"data\":{},\"kind\":\"run.created\",\"log\":\"o\",\"seq\":1.5,\"ts\":\"2026-09-18T09:10:24.500Z\",\"v\":1}",
		 "seq"},
		{"{\"data\":{},\"kind\":\"run.created\",\"log\":\"o\",\"seq\":\"1\",\"ts\":\"2026-09-18T09:10:24.500Z\",\"v\":1}",
		 "seq"},
		{"{\"data\":{},\"kind\":\"run.created\",\"log\":\"o\",\"seq\":1,\"ts\":\"2026-09-18\",\"v\":1}", "ts"},
		{"{\"data\":{},\"kind\":\"run.created\",\"log\":\"o\",\"seq\":1,\"ts\":\"2026-99-18T09:10:24.500Z\",\"v\":1}",
		 "ts"},
		{"{\"data\":{},\"kind\":\"run.created\",\"kind\":\"run.created\",\"log\":\"o\",\"seq\":1,\"ts\":\"2026-09-18T09:"
		 "10:24.500Z\",\"v\":1}",
		 "json-duplicate"},
	};

	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		struct arena arena;
		struct error error = {0};
		struct entry entry;

		arena_init(&arena);
		ck_assert_msg(entry_decode(&arena, bytes_text(texts[i][0]), "o", &entry, &error) == ERR_CORRUPT, "%s",
			      texts[i][0]);
		ck_assert_msg(strstr(error.message, texts[i][1]) != NULL, "%s: %s", texts[i][0], error.message);
		arena_close(&arena);
	}
}
END_TEST

/* A value is named by its digest in data and travels beside it; its place is a row id that no other value has. */
START_TEST(values)
{
	struct arena arena;
	struct entry entry = {.kind = ENTRY_RUN_COMPLETED};
	struct digest digest, named;

	arena_init(&arena);
	digest = entry_add_value(&arena, &entry, "output", BYTES_OF("42"));
	entry_add_value(&arena, &entry, "other", (struct bytes){0});
	ck_assert_uint_eq(entry.value_count, 2);
	ck_assert(json_get_digest(entry.data, "output", &named) && digest_equal(&named, &digest));
	ck_assert(digest_equal(&entry.values[0].digest, &digest));
	ck_assert_uint_eq(entry.values[0].size, 2);
	ck_assert_uint_eq(entry.values[1].size, 0);
	ck_assert_uint_ne(CONTENT_ID(0, 0), 0);
	ck_assert_uint_lt(CONTENT_ID(7, ENTRY_VALUES_MAX - 1), CONTENT_ID(8, 0));
	arena_close(&arena);
}
END_TEST

/* Step ids print and parse, also with names that hold '#' and '@'. */
START_TEST(step_ids)
{
	static const struct {
		const char *text, *reference;
		size_t iterations;
		uint64_t last, execution;
	} good[] = {
		{"/do/1/extract#12@1", "/do/1/extract", 1, 12, 1},
		{"/do/1/extract#12.3@1", "/do/1/extract", 2, 3, 1},
		{"/do/0/a@7", "/do/0/a", 0, 0, 7},
		{"/do/0/a#0@2", "/do/0/a", 1, 0, 2},
		{"/do/0/mail@home@2", "/do/0/mail@home", 0, 0, 2},
		{"/do/0/c#sharp@2", "/do/0/c#sharp", 0, 0, 2},
		{"/do/0/c#sharp#4@2", "/do/0/c#sharp", 1, 4, 2},
		{"/do/0/a#9007199254740991@9007199254740991", "/do/0/a", 1, 9007199254740991, 9007199254740991},
		{"/x#1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16@1", "/x", 16, 16, 1},
	};
	static const char *const bad[] = {"",		"@",	      "/do/0/a", "/do/0/a@", "/do/0/a@x",
					  "/do/0/a@01", "/do/0/a@-1", "@1",	 "#1@1",     "/a@9007199254740992"};
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(good); i++) {
		struct step_id id;

		ck_assert_msg(step_id_parse(&arena, good[i].text, &id), "%s", good[i].text);
		ck_assert_str_eq(id.reference, good[i].reference);
		ck_assert_uint_eq(id.iteration_count, good[i].iterations);
		if (good[i].iterations > 0)
			ck_assert_uint_eq(id.iterations[id.iteration_count - 1], good[i].last);
		ck_assert_uint_eq(id.execution, good[i].execution);
		ck_assert_str_eq(step_id_print(&arena, &id), good[i].text);
	}
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		ck_assert_msg(!step_id_parse(&arena, bad[i], &(struct step_id){0}), "%s", bad[i]);
	arena_close(&arena);
}
END_TEST

/* The key is the digest of the canonical array and of nothing else; each part of it counts. */
START_TEST(idempotency_keys)
{
	struct step_id id = {.reference = "/do/1/extract", .iterations = {12, 3}, .iteration_count = 2, .execution = 1}, other;
	char key[DIGEST_HEX_LEN + 1], again[DIGEST_HEX_LEN + 1], hex[DIGEST_HEX_LEN + 1];
	struct digest digest = digest_of(BYTES_OF("[\"01K5F2M8A9Q4T6W3Z7C1V5N0XE\",\"/do/1/extract\",[12,3],1]"));

	step_idempotency_key("01K5F2M8A9Q4T6W3Z7C1V5N0XE", &id, key);
	digest_hex(&digest, hex);
	ck_assert_str_eq(key, hex);
	/* By an independent program: printf '["r","/do/0/a~1\"b",[],2]' | sha256sum */
	other = (struct step_id){.reference = "/do/0/a~1\"b", .execution = 2};
	digest = digest_of(BYTES_OF("[\"r\",\"/do/0/a~1\\\"b\",[],2]"));
	digest_hex(&digest, hex);
	step_idempotency_key("r", &other, key);
	ck_assert_str_eq(key, hex);
	ck_assert_str_eq(key, "1e5892ce74710b3da3ed9a9c5ba0e5e20e2d2457db49d858aa9b48dd0aee87e8");
	step_idempotency_key("r", &id, key);
	for (unsigned i = 0; i < 5; i++) {
		other = id;
		if (i == 0)
			other.reference = "/do/1/extrac";
		if (i == 1)
			other.iterations[1] = 4;
		if (i == 2)
			other.iteration_count = 1;
		if (i == 3)
			other.execution = 2;
		step_idempotency_key(i == 4 ? "s" : "r", &other, again);
		ck_assert_str_ne(again, key);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {bytes_are_exact, every_kind, length_limit,    damaged_entries,
				      values,	       step_ids,   idempotency_keys};
	Suite *suite = suite_create("entry");
	TCase *tcase = tcase_create("entry");
	SRunner *runner = srunner_create(suite);
	int failed;

	for (size_t i = 0; i < COUNT_OF(tests); i++)
		tcase_add_test(tcase, tests[i]);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
