/* Fuzzing entry: the input's lines are a runtime's log. Whatever they are, there is a class, and the line kept is short, valid UTF-8 without
 * control characters. libFuzzer; see HACKING.md. */
#include <string.h>

#include "activities/refusal.h"
#include "workflow/base/check.h"
#include "workflow/base/json.h"

enum { LINES_MAX = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct bytes lines[LINES_MAX];
	struct bytes rest = {data, size};
	struct refusal refusal;
	size_t count = 0;

	while (rest.len > 0 && count < LINES_MAX) {
		const uint8_t *end = memchr(rest.data, '\n', rest.len);
		size_t len = end != NULL ? (size_t)(end - rest.data) : rest.len;

		lines[count++] = (struct bytes){rest.data, len};
		rest.data += len + (end != NULL);
		rest.len -= len + (end != NULL);
	}
	refusal_classify(lines, count, &refusal);
	CHECK((unsigned)refusal.class < REFUSAL_CLASS_COUNT);
	CHECK(strlen(refusal.line) <= REFUSAL_LINE_MAX);
	CHECK(utf8_valid(bytes_text(refusal.line), NULL));
	for (const char *c = refusal.line; *c != '\0'; c++)
		CHECK((unsigned char)*c >= ' ' && *c != 0x7f);
	return 0;
}
