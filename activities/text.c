/* See text.h. Pure, any thread. */
#include "activities/text.h"

#include <string.h>

/* JSON's white space (RFC 8259 2). */
static bool is_json_space(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static struct bytes trim(struct bytes text)
{
	while (text.len > 0 && is_json_space(text.data[0]))
		text = (struct bytes){text.data + 1, text.len - 1};
	while (text.len > 0 && is_json_space(text.data[text.len - 1]))
		text.len--;
	return text;
}

/* Anything else around the fence stays, and is refused by the parser. */
struct bytes text_take_fence_off(struct bytes answer, bool *unfenced)
{
	struct bytes inner = trim(answer);
	const uint8_t *line_end = NULL;

	if (inner.len >= 6 && memcmp(inner.data, "```", 3) == 0 && memcmp(inner.data + inner.len - 3, "```", 3) == 0)
		line_end = memchr(inner.data, '\n', inner.len - 3);
	if (unfenced != NULL)
		*unfenced = line_end != NULL;
	if (line_end == NULL)
		return answer;
	inner.len -= 3 + (size_t)(line_end + 1 - inner.data);
	inner.data = line_end + 1;
	return inner;
}
