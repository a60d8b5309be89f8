/* Values by digest, whichever entry carries them. */
#include "tests/unit/workflow/fixture.h"

#include "workflow/value_index.h"

/* Each of many values is found, by the entry that carries it; one that nobody carries is not. */
START_TEST(values_are_found)
{
	enum { COUNT = 1000 };
	struct arena arena;
	struct value_index index;
	struct entry *entries = memory_zero(COUNT * sizeof *entries);
	struct digest digest;

	arena_init(&arena);
	for (int i = 0; i < COUNT; i++)
		for (int k = 0; k < i % (ENTRY_VALUES_MAX + 1); k++)
			entry_add_value(&arena, &entries[i], "v", bytes_text(arena_printf(&arena, "%d.%d", i, k)));
	value_index_make(&index, &arena, entries, COUNT);
	for (int i = 0; i < COUNT; i++)
		for (size_t k = 0; k < entries[i].value_count; k++)
			ck_assert_ptr_eq(value_index_find(&index, &entries[i].values[k].digest), &entries[i].values[k]);
	digest = digest_of(BYTES_OF("another"));
	ck_assert_ptr_null(value_index_find(&index, &digest));
	value_index_make(&index, &arena, entries, 0);
	ck_assert_ptr_null(value_index_find(&index, &digest));
	free(entries);
	arena_close(&arena);
}
END_TEST

/* A value that several carry is the one whose bytes were read; with bytes at several places it is the first. */
START_TEST(values_with_bytes_count)
{
	struct arena arena;
	struct value_index index;
	struct entry entries[3] = {{.kind = ENTRY_TASK_COMPLETED}, {.kind = ENTRY_TASK_COMPLETED}, {.kind = ENTRY_TASK_COMPLETED}};
	struct digest digest = digest_of(BYTES_OF("same"));

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(entries); i++)
		entry_add_value(&arena, &entries[i], "v", BYTES_OF("same"));
	entries[0].values[0].bytes = (struct bytes){0};
	value_index_make(&index, &arena, entries, COUNT_OF(entries));
	ck_assert_ptr_eq(value_index_find(&index, &digest), &entries[1].values[0]);
	arena_close(&arena);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("workflow-value-index", values_are_found, values_with_bytes_count)
