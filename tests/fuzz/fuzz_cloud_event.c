/* Bytes as a structured event; or, when they begin with "ce-", lines of headers, an empty line and a body. What is accepted reads
 * back as the same event and is accepted again with the same bytes. */
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/cloud_event.h"

static int read_binary(struct arena *arena, char *text, size_t size, struct cloud_event *event, struct error *error)
{
	struct cloud_event_header headers[80];
	char *at = text, *end = text + size;
	const char *content_type = NULL;
	size_t count = 0;

	while (at < end && *at != '\n' && count < COUNT_OF(headers)) {
		char *line_end = memchr(at, '\n', (size_t)(end - at)), *colon;

		if (line_end == NULL)
			line_end = end;
		*line_end = '\0';
		colon = strchr(at, ':');
		if (colon != NULL) {
			*colon = '\0';
			if (strcmp(at, "content-type") == 0)
				content_type = colon + 1;
			else
				headers[count++] = (struct cloud_event_header){at, colon + 1};
		}
		at = line_end < end ? line_end + 1 : end;
	}
	if (at < end)
		at++;
	return cloud_event_from_headers(arena, headers, count, content_type, (struct bytes){(const uint8_t *)at, (size_t)(end - at)}, event, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cloud_event event, again;
	struct error error = {0};
	struct arena arena;
	int status;

	arena_init(&arena);
	if (size >= 3 && memcmp(data, "ce-", 3) == 0)
		status = read_binary(&arena, arena_text_len(&arena, (const char *)data, size), size, &event, &error);
	else
		status = cloud_event_parse(&arena, (struct bytes){data, size}, &event, &error);
	CHECK((status == 0) == (event.envelope != NULL));
	if (status == 0) {
		CHECK(cloud_event_read(&arena, event.bytes, &again, &error) == 0);
		CHECK(digest_equal(&event.key, &again.key));
		CHECK(cloud_event_check(&arena, again.envelope, &again, &error) == 0);
		CHECK(bytes_equal(event.bytes, again.bytes));
	}
	arena_close(&arena);
	return 0;
}
