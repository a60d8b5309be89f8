/* Bytes as a cron expression, and the rest as a zone file: what is accepted gives times that go on. */
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/cron.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = memchr(data, '\n', size);
	size_t len = end != NULL ? (size_t)(end - data) : size;
	int64_t at = INT64_C(1795950000000);
	const struct zone *zone = NULL;
	struct error error = {0};
	struct arena arena;
	struct cron cron;
	char text[400];

	if (len >= sizeof(text))
		return 0;
	memcpy(text, data, len);
	text[len] = '\0';
	arena_init(&arena);
	if (end != NULL)
		zone = zone_parse(&arena, (struct bytes){end + 1, size - len - 1}, &error);
	if (cron_parse(text, &cron, &error) == 0)
		for (int i = 0; i < 3; i++) {
			int64_t next = cron_next(&cron, zone, at);

			CHECK(next > at);
			at = next;
		}
	arena_close(&arena);
	return 0;
}
