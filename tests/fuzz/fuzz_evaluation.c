/* What a helper process sends, which may be anything once an expression has got hold of it: frames in pieces, answers, lists of problems. What is
 * kept of an answer has to be JSON that is read again, in both forms it may have. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/definition.h"
#include "workflow/language/evaluation.h"

static const char source[] = "document: {dsl: '1.0.3', namespace: f, name: z, version: '1.0.0'}\ndo:\n  - a: {set: {x: ['${ .a + 1 }', '${ if .a then 1 end | .b.[0] }']}}\n";

static void look_at(const struct definition *definition, struct bytes answer)
{
	static const size_t batch[] = {0, 1};
	struct buffer kept;
	struct arena arena;
	struct problems problems;
	struct error error;

	arena_init(&arena);
	buffer_init(&kept, EVALUATION_ANSWER_MAX);
	evaluation_keep(answer, &kept);
	const struct json *json = json_parse(&arena, buffer_bytes(&kept), JSON_STORED, NULL, NULL);
	CHECK(json_is(json, JSON_STRING) || (json_is(json, JSON_ARRAY) && json_count(json) == 1));
	/* And once more within arrays, as the journal has it. */
	struct json *results = json_array(&arena);
	json_add(&arena, results, (struct json *)json);
	CHECK(json_parse(&arena, json_print_arena(results, &arena), JSON_STORED, NULL, NULL) != NULL);
	buffer_close(&kept);
	problems_init(&problems);
	evaluation_add_problems(definition, batch, 2, answer, &problems, &error);
	problems_close(&problems);
	arena_close(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum { PAYLOAD_MAX = 1000 };
	static struct definition *definition;
	struct buffer in;
	struct bytes payload;
	struct problems problems;
	size_t piece = size > 0 ? data[0] % 7 + 1 : 1, at = 0;

	if (!definition) {
		problems_init(&problems);
		definition = definition_load(BYTES_OF(source), TEXT_YAML, &problems);
		CHECK(definition != NULL);
		CHECK(definition->expression_count == 2);
		problems_close(&problems);
	}
	look_at(definition, (struct bytes){data, size});
	buffer_init(&in, PAYLOAD_MAX + 4 + 8); /* a piece may reach into the next frame */
	while (at < size) {
		size_t now = size - at < piece ? size - at : piece;
		buffer_add(&in, data + at, now);
		at += now;
		for (enum frame_state state; (state = evaluation_read_frame(&in, PAYLOAD_MAX, &payload)) != FRAME_PARTIAL;) {
			if (state == FRAME_TOO_LARGE) {
				at = size;
				break;
			}
			CHECK(payload.len <= PAYLOAD_MAX);
			look_at(definition, payload);
			buffer_remove_front(&in, payload.len + 4);
		}
	}
	CHECK(!in.overflow);
	buffer_close(&in);
	return 0;
}
