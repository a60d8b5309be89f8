/* Fuzzing entry: any bytes as a definition. The first byte chooses the format. What loads must load again from its document
 * with the same digest, and each task must be found by its reference. libFuzzer; see HACKING.md. */
#include <stddef.h>
#include <stdint.h>

#include "workflow/base/check.h"
#include "workflow/language/definition.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void find_all(const struct definition *definition, const struct task *task)
{
	CHECK(definition_find_task(definition, task->reference) == task);
	for (size_t i = 0; i < task->body.count; i++)
		find_all(definition, task->body.tasks[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct problems problems;
	struct definition *definition, *again;
	struct arena arena;

	if (size == 0)
		return 0;
	problems_init(&problems);
	arena_init(&arena);
	definition = definition_load((struct bytes){data + 1, size - 1}, (enum text_format)(data[0] % 3), &problems);
	CHECK((definition == NULL) == (problems.errors > 0));
	json_print_arena(problems_json(&problems, &arena), &arena);
	if (definition) {
		again = definition_load_json(definition->document, &problems);
		CHECK(again);
		CHECK(digest_equal(&again->digest, &definition->digest));
		CHECK(again->task_count == definition->task_count);
		find_all(definition, definition->root);
		definition_free(again);
	}
	definition_free(definition);
	arena_close(&arena);
	problems_close(&problems);
	return 0;
}
