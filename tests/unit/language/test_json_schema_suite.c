/* The official test suite of JSON Schema, where ../shared is at hand: of the required tests of both drafts at least 99.5 % must be right,
 * and json_schema_exceptions.json names exactly the wrong ones, each with its reason. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "workflow/base/check.h"
#include "workflow/language/json_schema.h"

enum { FILES_MAX = 2000, PATH_LEN_MAX = 1024, FILE_LEN_MAX = 1 << 22, PER_MILLE_MIN = 995 };

struct fixture {
	struct arena arena;
	char root[PATH_LEN_MAX];
	struct json_schema_document documents[FILES_MAX];
	size_t document_count;
	const struct json *exceptions;
	bool *exception_used;
};

/* Our tree holds no U+0000 (json.h), and a few tests are about it. It is read as a character that the suite has nowhere else; what holds
 * it counts as wrong. */
#define STAND_IN "\\ue000"
static bool holds_nul(const struct json *json)
{
	if (json->type == JSON_STRING)
		return strstr(json->string.text, "\xEE\x80\x80") != NULL;
	for (size_t i = 0; json->type == JSON_ARRAY && i < json_count(json); i++) {
		if (holds_nul(json_at(json, i)))
			return true;
	}
	for (size_t i = 0; json->type == JSON_OBJECT && i < json->object.count; i++) {
		if (strstr(json->object.members[i].name, "\xEE\x80\x80") != NULL || holds_nul(json->object.members[i].value))
			return true;
	}
	return false;
}

static struct json *read_file(struct arena *arena, const char *path)
{
	FILE *file = fopen(path, "rb");
	char *text, *nul;
	struct error error;
	struct json *json;
	size_t len;

	ck_assert_msg(file != NULL, "%s", path);
	text = arena_alloc(arena, FILE_LEN_MAX + 1);
	len = fread(text, 1, FILE_LEN_MAX, file);
	fclose(file);
	ck_assert_uint_lt(len, FILE_LEN_MAX);
	text[len] = '\0';
	while ((nul = strstr(text, "\\u0000")) != NULL)
		memcpy(nul, STAND_IN, strlen(STAND_IN));
	json = json_parse(arena, (struct bytes){(const uint8_t *)text, len}, JSON_ROUND_INTEGERS, NULL, &error);
	ck_assert_msg(json != NULL, "%s: %s", path, error.message);
	return json;
}

static int is_shown(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void read_documents(struct fixture *fixture, const char *folder, const char *uri)
{
	struct dirent **entries;
	int count = scandir(folder, &entries, is_shown, alphasort);

	for (int i = 0; i < count; i++) {
		char *path = arena_printf(&fixture->arena, "%s/%s", folder, entries[i]->d_name);
		char *inner = arena_printf(&fixture->arena, "%s/%s", uri, entries[i]->d_name);
		struct stat status;

		ck_assert_int_eq(stat(path, &status), 0);
		if (S_ISDIR(status.st_mode)) {
			read_documents(fixture, path, inner);
		} else {
			ck_assert_uint_lt(fixture->document_count, FILES_MAX);
			fixture->documents[fixture->document_count++] = (struct json_schema_document){inner, read_file(&fixture->arena, path)};
		}
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

static bool is_exception(struct fixture *fixture, const char *draft, const char *file, const char *group, const char *test)
{
	for (size_t i = 0; i < json_count(fixture->exceptions); i++) {
		const struct json *row = json_at(fixture->exceptions, i);

		if (strcmp(json_get_text(row, "draft"), draft) == 0 && strcmp(json_get_text(row, "file"), file) == 0 &&
		    strcmp(json_get_text(row, "group"), group) == 0 && strcmp(json_get_text(row, "test"), test) == 0) {
			fixture->exception_used[i] = true;
			return true;
		}
	}
	return false;
}

struct score {
	size_t right, all, unexpected;
};

static void run_group(struct fixture *fixture, const char *draft, const char *file, struct json *group, struct score *score)
{
	struct json *source = json_get(group, "schema");
	struct error error = {0};
	struct json_schema *schema;

	/* The default is 2020-12, and the tests of draft-07 do not say what they are. */
	if (strcmp(draft, "draft7") == 0 && source->type == JSON_OBJECT && json_get(source, "$schema") == NULL)
		json_set_text(&fixture->arena, source, "$schema", "http://json-schema.org/draft-07/schema#");
	schema = json_schema_compile(source, fixture->documents, fixture->document_count, &error);
	for (size_t i = 0; i < json_count(json_get(group, "tests")); i++) {
		const struct json *test = json_at(json_get(group, "tests"), i);
		bool expected = json_get_boolean(test, "valid", false), right = false, excepted;

		if (schema != NULL && !holds_nul(source) && !holds_nul(test)) {
			int code = json_schema_match(schema, json_get(test, "data"), &error);

			right = (code == 0) == expected && (code == 0 || code == ERR_INVALID);
		}
		excepted = is_exception(fixture, draft, file, json_get_text(group, "description"), json_get_text(test, "description"));
		score->all++;
		score->right += right;
		if (right == excepted) {
			score->unexpected++;
			printf("%s %s: %s: %s: %s: %s\n", right ? "listed, but right:" : "wrong:", draft, file, json_get_text(group, "description"),
			       json_get_text(test, "description"), error.message);
		}
	}
	json_schema_free(schema);
}

static struct score run_folder(struct fixture *fixture, const char *draft, const char *folder)
{
	char path[PATH_LEN_MAX * 2];
	struct dirent **entries;
	struct score score = {0};
	int count;

	snprintf(path, sizeof(path), "%s/tests/%s", fixture->root, folder);
	count = scandir(path, &entries, is_shown, alphasort);
	ck_assert_int_gt(count, 0);
	for (int i = 0; i < count; i++) {
		size_t len = strlen(entries[i]->d_name);

		if (len > 5 && strcmp(entries[i]->d_name + len - 5, ".json") == 0) {
			struct json *groups = read_file(&fixture->arena, arena_printf(&fixture->arena, "%s/%s", path, entries[i]->d_name));

			for (size_t k = 0; k < json_count(groups); k++)
				run_group(fixture, draft, entries[i]->d_name, json_at(groups, k), &score);
		}
		free(entries[i]);
	}
	free(entries);
	return score;
}

static bool open_fixture(struct fixture *fixture)
{
	const char *shared = getenv("REPRISE_SHARED");
	char remotes[PATH_LEN_MAX * 2];
	struct stat status;

	memset(fixture, 0, sizeof(*fixture));
	if (shared == NULL || shared[0] == '\0')
		return false;
	snprintf(fixture->root, sizeof(fixture->root), "%s/conformance/json-schema", shared);
	snprintf(remotes, sizeof(remotes), "%s/remotes", fixture->root);
	if (stat(remotes, &status) != 0)
		return false;
	arena_init(&fixture->arena);
	read_documents(fixture, remotes, "http://localhost:1234");
	fixture->exceptions = read_file(&fixture->arena, EXCEPTIONS_FILE);
	fixture->exception_used = arena_zero(&fixture->arena, json_count(fixture->exceptions) + 1);
	return true;
}

/* The required tests of both drafts: enough are right, and the list of the wrong ones is exact. */
START_TEST(gets_the_required_tests_right)
{
	static const char *const drafts[] = {"draft2020-12", "draft7"};
	static struct fixture fixture;
	size_t unexpected = 0;

	if (!open_fixture(&fixture)) {
		printf("skipped: REPRISE_SHARED names no folder with conformance/json-schema\n");
		return;
	}
	for (size_t i = 0; i < COUNT_OF(drafts); i++) {
		struct score score = run_folder(&fixture, drafts[i], drafts[i]);

		printf("%s: %zu of %zu required tests right\n", drafts[i], score.right, score.all);
		ck_assert_uint_gt(score.all, 900);
		ck_assert_uint_ge(score.right * 1000, score.all * PER_MILLE_MIN);
		unexpected += score.unexpected;
	}
	ck_assert_uint_eq(unexpected, 0);
	for (size_t i = 0; i < json_count(fixture.exceptions); i++) {
		ck_assert_msg(fixture.exception_used[i], "exception %zu names no test", i);
		ck_assert_uint_gt(strlen(json_get_text(json_at(fixture.exceptions, i), "reason")), 20);
	}
	arena_close(&fixture.arena);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("json_schema_suite");
	TCase *tests = tcase_create("json_schema_suite");
	SRunner *runner = srunner_create(suite);
	int failed;

	setvbuf(stdout, NULL, _IOLBF, 0); /* what a test says must get out before it fails */
	tcase_add_test(tests, gets_the_required_tests_right);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
