/* Every run that an earlier build recorded is decided again by this one, entry by entry (C49). tests/journals/README.md says how they were made. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"
#include "workflow/replay.h"

enum { KEPT_BYTES_MAX = 256 << 20, KINDS_MAX = 64, JOURNALS_MIN = 200, EACH_MIN = 4 };

static struct {
	size_t journals, runs, entries;
	uint64_t last_journal;
	size_t tasks[TASK_LISTEN + 1], kinds[KINDS_MAX], competing, concurrent;
} seen;

static void count_tasks(const struct task *task)
{
	const struct task_list *lists[] = {&task->body, &task->handler};

	seen.tasks[task->kind]++;
	seen.competing += task->kind == TASK_FORK && task->compete;
	seen.concurrent += task->kind == TASK_FOR && task->concurrency > 0;
	for (size_t i = 0; i < COUNT_OF(lists); i++)
		for (size_t k = 0; k < lists[i]->count; k++)
			count_tasks(lists[i]->tasks[k]);
}

static void replay_line(struct bytes line)
{
	struct decide_context context = {.daemon_version = "1.2.3"};
	struct replay_result result;
	struct problems problems;
	struct error error = {0};
	struct arena arena;

	arena_init(&arena);
	const struct json *kept = json_parse(&arena, line, JSON_STORED, NULL, &error), *list = json_get(kept, "entries");
	ck_assert_msg(kept != NULL, "%s", error.message);
	context.origin = json_get_text(kept, "origin"); /* the first ones had all the same, and did not say so */
	if (context.origin == NULL)
		context.origin = "reprise.example/simulation";
	problems_init(&problems);
	struct definition *definition = definition_load_stored(json_get(kept, "definition"), &problems);
	ck_assert_msg(definition != NULL, "its definition is refused: %s", problems.count > 0 ? problems.items[0].message : "");
	problems_close(&problems);
	struct entry *entries = arena_zero(&arena, (json_count(list) + 1) * sizeof *entries);
	for (size_t i = 0; i < json_count(list); i++) {
		const struct json *values = json_get(json_at(list, i), "values");
		ck_assert_msg(entry_decode(&arena, json_print_arena(json_get(json_at(list, i), "entry"), &arena), context.origin, &entries[i], &error) == 0, "%s", error.message);
		for (size_t k = 0; k < json_count(values); k++) {
			struct bytes bytes = {(const uint8_t *)json_at(values, k)->string.text, json_at(values, k)->string.len};
			entries[i].values[entries[i].value_count++] = (struct entry_value){.digest = digest_of(bytes), .bytes = bytes, .size = bytes.len};
		}
		seen.kinds[entries[i].kind]++;
	}
	const char *id = json_get_text(kept, "run");
	uint64_t journal = (uint64_t)json_get_number(kept, "journal", 0);
	ck_assert_msg(replay_run(&arena, entries, json_count(list), definition, &context, &result, &error) == 0, "journal %llu, %s: %s", (unsigned long long)journal, id, error.message);
	ck_assert_msg(result.equal, "journal %llu, %s, entry %llu (%s): %s\nexpected %s\ngot      %s", (unsigned long long)journal, id, (unsigned long long)result.seq,
		      result.reference ? result.reference : "", result.why, result.expected ? result.expected : "nothing", result.got ? result.got : "nothing");
	ck_assert_uint_eq(result.entries, json_count(list));
	count_tasks(definition->root);
	seen.journals += seen.runs == 0 || journal != seen.last_journal;
	seen.last_journal = journal;
	seen.runs++;
	seen.entries += result.entries;
	definition_free(definition);
	arena_close(&arena);
}

static void replay_file(const char *path)
{
	FILE *file = fopen(path, "re");
	static uint8_t packed[16 << 20];

	ck_assert_ptr_nonnull(file);
	size_t len = fread(packed, 1, sizeof packed, file);
	ck_assert(len > 0 && len < sizeof packed);
	fclose(file);
	unsigned long long size = ZSTD_getFrameContentSize(packed, len);
	ck_assert_msg(size < KEPT_BYTES_MAX, "%s: its size is not known, or over KEPT_BYTES_MAX", path);
	uint8_t *text = memory_alloc(size + 1);
	ck_assert_uint_eq(ZSTD_decompress(text, size, packed, len), size);
	text[size] = 0;
	for (uint8_t *line = text, *end; line < text + size; line = end + 1) {
		end = memchr(line, '\n', (size_t)(text + size - line));
		ck_assert_ptr_nonnull(end);
		*end = 0;
		replay_line((struct bytes){line, (size_t)(end - line)});
	}
	free(text);
}

/* Each kept run is decided the same, and together they cover the language: so a change that would break runs of earlier builds is seen here. */
START_TEST(kept_runs_are_decided_the_same)
{
	static const enum entry_kind kinds[] = {
		ENTRY_RUN_COMPLETED, ENTRY_RUN_FAULTED, ENTRY_RUN_CANCELLED, ENTRY_RUN_SUSPENDED, ENTRY_RUN_RESUMED, ENTRY_RUN_RETRIED, ENTRY_TASK_FAULTED, ENTRY_TASK_CANCELLED,
		ENTRY_TASK_SKIPPED, ENTRY_TASK_RETRYING, ENTRY_TASK_CAUGHT, ENTRY_TASK_RESUMED, ENTRY_ATTEMPT_FAILED, ENTRY_FACT_RECORDED, ENTRY_TIMER_FIRED, ENTRY_EVENT_EMITTED, ENTRY_EVENT_CONSUMED,
	};
	const char *folder = getenv("REPRISE_JOURNALS");
	struct dirent *item;

	ck_assert_msg(folder != NULL, "REPRISE_JOURNALS is not set");
	DIR *dir = opendir(folder);
	ck_assert_ptr_nonnull(dir);
	while ((item = readdir(dir)) != NULL) {
		char path[1024];
		if (strncmp(item->d_name, "runs-", 5) != 0)
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
		replay_file(path);
	}
	closedir(dir);
	printf("%zu journals, %zu runs, %zu entries\n", seen.journals, seen.runs, seen.entries);
	ck_assert_uint_ge(seen.journals, JOURNALS_MIN);
	for (size_t i = 0; i < COUNT_OF(seen.tasks); i++)
		ck_assert_msg(seen.tasks[i] >= EACH_MIN, "%zu tasks of kind %zu", seen.tasks[i], i);
	for (size_t i = 0; i < COUNT_OF(kinds); i++)
		ck_assert_msg(seen.kinds[kinds[i]] >= EACH_MIN, "%zu entries %s", seen.kinds[kinds[i]], entry_kind_name(kinds[i]));
	ck_assert_uint_ge(seen.competing, EACH_MIN);
	ck_assert_uint_ge(seen.concurrent, EACH_MIN);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("workflow-kept", kept_runs_are_decided_the_same)
