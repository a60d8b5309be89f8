/* Reading test vectors: files below $REPRISE_VECTORS (ours) and $REPRISE_SHARED/vectors (third parties', may be absent).
 * A vector file that is ours and missing fails the test. What they hand out lasts as long as the test. */
#pragma once

#include <check.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/json.h"

enum { VECTOR_FILE_MAX = 16 << 20 };

/* Memory that lasts as long as the test, cleared. */
static struct arena vectors_arena;

static inline void *vectors_alloc(size_t size)
{
	return arena_zero(&vectors_arena, size);
}

static inline struct bytes vectors_load_path(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = memory_alloc(VECTOR_FILE_MAX);
	struct bytes kept;
	size_t len;

	ck_assert_msg(file != NULL, "cannot open %s: %s", path, strerror(errno));
	len = fread(data, 1, VECTOR_FILE_MAX, file);
	ck_assert_msg(len < VECTOR_FILE_MAX, "%s is too large", path);
	fclose(file);
	kept = arena_bytes(&vectors_arena, (struct bytes){data, len});
	free(data);
	return kept;
}

/* A file of ours. */
static inline struct bytes vectors_load(const char *name)
{
	const char *folder = getenv("REPRISE_VECTORS");
	char path[4096];

	ck_assert_msg(folder != NULL, "REPRISE_VECTORS is not set");
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return vectors_load_path(path);
}

/* The path of a third party's file, or NULL (said aloud) where they are not present. */
static inline const char *vectors_shared_path(const char *name)
{
	static char path[4096];
	const char *folder = getenv("REPRISE_SHARED");
	FILE *file;

	if (folder != NULL && folder[0] != '\0') {
		snprintf(path, sizeof(path), "%s/vectors/%s", folder, name);
		file = fopen(path, "rb");
		if (file != NULL) {
			fclose(file);
			return path;
		}
	}
	printf("skipped: shared vectors not present (%s)\n", name);
	fflush(stdout);
	return NULL;
}

static inline struct json *vectors_parse(struct bytes text)
{
	struct error error;
	struct json *json = json_parse(&vectors_arena, text, JSON_STRICT, NULL, &error);

	ck_assert_msg(json != NULL, "%s", error.message);
	return json;
}

static inline const char *vectors_text(const struct json *json, const char *name)
{
	const char *text = json_get_text(json, name);

	ck_assert_msg(text != NULL, "%s is missing", name);
	return text;
}

static inline struct bytes vectors_unhex_text(const char *hex)
{
	size_t len = strlen(hex), got;
	uint8_t *data = vectors_alloc(len / 2 + 1);

	ck_assert(len % 2 == 0);
	ck_assert(sodium_hex2bin(data, len / 2 + 1, hex, len, NULL, &got, NULL) == 0);
	ck_assert(got == len / 2);
	return (struct bytes){data, got};
}

static inline struct bytes vectors_unhex(const struct json *json, const char *name)
{
	return vectors_unhex_text(vectors_text(json, name));
}

static inline void vectors_assert_equal(struct bytes got, struct bytes want)
{
	ck_assert_msg(bytes_equal(got, want), "got %zu bytes, wanted %zu:\n%.*s\n----\n%.*s", got.len, want.len, (int)got.len,
		      (const char *)got.data, (int)want.len, (const char *)want.data);
}

/* The error's message begins with this code, whole. */
static inline bool vectors_has_code(const char *message, const char *code)
{
	size_t len = strlen(code);

	return strncmp(message, code, len) == 0 && (message[len] == '\0' || message[len] == ':' || message[len] == ' ');
}

/* main() of each test program. */
static inline int vectors_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	CHECK(sodium_init() >= 0);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	arena_close(&vectors_arena);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
