/* Fuzzing entry: a line with a schema, then a value. What the check takes can be matched; a match is the same each time, ends within its
 * limits, says something readable, and is turned around by `not`. libFuzzer; see HACKING.md. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/json_schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool refers(struct bytes text)
{
	return memmem(text.data, text.len, "$", 1) != NULL || memmem(text.data, text.len, "\\u", 2) != NULL;
}

static int match(const struct json *source, const struct json *value)
{
	struct error error;
	struct json_schema *schema = json_schema_compile(source, NULL, 0, &error);
	int code, again;

	CHECK((schema == NULL) == (json_schema_check(source, NULL) != 0));
	if (schema == NULL) {
		CHECK(error.code == ERR_INVALID || error.code == ERR_UNSUPPORTED);
		CHECK(utf8_valid(bytes_text(error.message), NULL));
		return (int)ERR_UNSUPPORTED;
	}
	code = json_schema_match(schema, value, &error);
	CHECK(code == 0 || code == ERR_INVALID || code == ERR_TOO_LARGE);
	CHECK(code == 0 || utf8_valid(bytes_text(error.message), NULL));
	again = json_schema_match(schema, value, NULL);
	CHECK(code == again);
	json_schema_free(schema);
	return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *line_end = memchr(data, '\n', size);
	struct bytes schema_text, value_text;
	struct json *schema, *value, *turned;
	struct arena arena;
	int code;

	if (line_end == NULL)
		return 0;
	schema_text = (struct bytes){data, (size_t)(line_end - data)};
	value_text = (struct bytes){line_end + 1, size - schema_text.len - 1};
	arena_init(&arena);
	schema = json_parse(&arena, schema_text, JSON_STRICT, NULL, NULL);
	value = json_parse(&arena, value_text, JSON_STRICT, NULL, NULL);
	if (schema == NULL || value == NULL) {
		arena_close(&arena);
		return 0;
	}
	code = match(schema, value);
	/* One level more, so not where a limit is near; and "#" would be another place. */
	if ((code == 0 || code == ERR_INVALID) && !refers(schema_text) && json_nests_within(schema, 60)) {
		turned = json_object(&arena);
		json_set(&arena, turned, "not", schema);
		CHECK(match(turned, value) == (code == 0 ? ERR_INVALID : 0));
	}
	arena_close(&arena);
	return 0;
}
