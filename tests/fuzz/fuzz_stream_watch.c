/* Fuzzing entry: a byte that says how the answer is cut, a line with a schema, then the answer. Whatever the whole check takes passes the watch, and
 * what the watch says does not depend on the cuts. libFuzzer; see HACKING.md. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "activities/stream_watch.h"
#include "activities/text.h"
#include "workflow/base/check.h"
#include "workflow/language/json_schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct watch_verdict feed(const struct stream_watch_config *config, struct bytes answer, uint8_t cut)
{
	struct stream_watch *watch = stream_watch_new(config);
	struct watch_verdict verdict;
	size_t len;

	for (size_t at = 0, i = 0; at < answer.len; at += len, i++) {
		len = cut == 0 ? answer.len : 1 + (cut * (i + 1)) % 7;
		if (len > answer.len - at)
			len = answer.len - at;
		CHECK(stream_watch_feed(watch, (struct bytes){answer.data + at, len}) == (stream_watch_verdict(watch)->check == WATCH_FINE));
	}
	verdict = *stream_watch_verdict(watch);
	stream_watch_free(watch);
	return verdict;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *line_end = size > 0 ? memchr(data + 1, '\n', size - 1) : NULL;
	struct stream_watch_config config = {.json = true};
	struct watch_verdict whole, cut;
	struct json_schema *program;
	struct arena arena;
	struct bytes answer;

	if (line_end == NULL)
		return 0;
	answer = (struct bytes){line_end + 1, size - (size_t)(line_end + 1 - data)};
	arena_init(&arena);
	config.schema = json_parse(&arena, (struct bytes){data + 1, (size_t)(line_end - data - 1)}, JSON_STRICT, NULL, NULL);
	/* Also a schema that is none must do no harm. */
	program = config.schema != NULL ? json_schema_compile_taken(config.schema, NULL) : NULL;
	config.white_space = data[0] & 0x80 ? WATCH_WHITE_SPACE : 0;
	config.loop_bytes = data[0] & 0x40 ? WATCH_LOOP_BYTES : 0;
	whole = feed(&config, answer, 0);
	cut = feed(&config, answer, data[0] & 0x3F);
	CHECK(whole.check == cut.check && whole.at == cut.at && whole.value_end == cut.value_end && strcmp(whole.detail, cut.detail) == 0);
	if (whole.check == WATCH_NOT_JSON || whole.check == WATCH_SCHEMA) {
		const struct json *value = json_parse(&arena, text_take_fence_off(answer, NULL), JSON_STRICT, NULL, NULL);

		CHECK(value == NULL || (program != NULL && json_schema_match(program, value, NULL) != 0) || (program == NULL && config.schema != NULL));
	}
	json_schema_free(program);
	arena_close(&arena);
	return 0;
}
