/* Fuzzing entry: a schema, the byte 0xFF, an answer, the byte 0xFF, a document; and the schema once more as a template. An accepted
 * fact stands in its section; details and prompts are always texts that JSON can hold. libFuzzer; see HACKING.md. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "activities/candidates.h"
#include "workflow/base/check.h"
#include "workflow/language/json_schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The part up to the next 0xFF; the rest stays. */
static struct bytes take_part(struct bytes *rest)
{
	const uint8_t *mark = rest->len == 0 ? NULL : memchr(rest->data, 0xFF, rest->len);
	struct bytes part = *rest;

	if (mark != NULL)
		part.len = (size_t)(mark - rest->data);
	rest->data += part.len + (mark != NULL);
	rest->len -= part.len + (mark != NULL);
	return part;
}

static void check_fact(const struct json *fact, struct bytes document, size_t section_start)
{
	const char *quote = json_get_text(fact, "quote");
	const struct json *grounding = json_get(fact, "grounding"), *range = json_get(grounding, "bytes");
	size_t failed = 0, start, end;

	CHECK(quote != NULL);
	CHECK(json_is(json_get(fact, "value"), JSON_OBJECT));
	for (size_t i = 0; i < json_count(json_get(fact, "checks")); i++)
		failed += strcmp(json_get_text(json_at(json_get(fact, "checks"), i), "result"), "PASSED") != 0;
	CHECK(json_get_boolean(fact, "accepted", true) == (failed == 0));
	CHECK(failed > 0 || range != NULL);
	if (range == NULL)
		return;
	start = (size_t)json_at(range, 0)->number;
	end = (size_t)json_at(range, 1)->number;
	CHECK(start >= section_start);
	CHECK(start < end);
	CHECK(end <= document.len);
	if (strcmp(json_get_text(grounding, "grade"), "exact") == 0)
		CHECK(bytes_equal((struct bytes){document.data + start, end - start}, bytes_text(quote)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena arena;
	struct bytes rest = {data, size}, schema_text = take_part(&rest), answer = take_part(&rest), document = take_part(&rest);
	struct candidates_input input = {.answer = answer, .document = document, .document_digest = "d", .section_digest = "s"};
	struct json *facts, *schema, *messages;
	char detail[400];

	if (!utf8_valid(document, NULL) || memchr(data, '\0', size) != NULL)
		return 0;
	arena_init(&arena);
	schema = json_parse(&arena, schema_text, JSON_STRICT, NULL, NULL);
	if (schema != NULL && json_schema_check(schema, NULL) == 0)
		input.schema = schema;
	input.section_start = document.len / 2;
	while (input.section_start > 0 && input.section_start < document.len && (document.data[input.section_start] & 0xC0) == 0x80)
		input.section_start--;
	input.section_end = document.len;
	if (candidates_read(&arena, &input, &facts, detail) == FAILURE_NONE) {
		for (size_t i = 0; i < json_count(facts); i++)
			check_fact(json_at(facts, i), document, input.section_start);
		json_print_arena(facts, &arena);
	} else {
		CHECK(facts == NULL);
		CHECK(detail[0] != '\0');
		CHECK(utf8_valid(bytes_text(detail), NULL));
	}
	if (utf8_valid(schema_text, NULL)) {
		messages = extraction_messages(&arena, schema_text, document, input.schema);
		CHECK(json_count(messages) > 0);
		json_print_arena(messages, &arena);
	}
	arena_close(&arena);
	return 0;
}
