/* What several files here need to know of texts: code points, white space, the fence that models put around JSON. Pure, any
 * thread. */
#pragma once

#include <utf8proc.h>

#include "workflow/base/bytes.h"
#include "workflow/base/check.h"

/* The code point at `at`, and its length in bytes. text must be valid UTF-8 and `at` the start of a character. Here, since it is
 * called for each character of a document. */
static inline utf8proc_int32_t text_code_point(struct bytes text, size_t at, size_t *len)
{
	utf8proc_int32_t c;
	utf8proc_ssize_t n;

	if (text.data[at] < 0x80) {
		*len = 1;
		return text.data[at];
	}
	n = utf8proc_iterate(text.data + at, (utf8proc_ssize_t)(text.len - at), &c);
	CHECK(n > 0);
	*len = (size_t)n;
	return c;
}

/* Unicode's White_Space property. */
static inline bool text_is_white_space(utf8proc_int32_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r') || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
	       c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Models that are not held to a schema like to wrap JSON in ```json … ```: what stands inside, or the answer as it is where
 * there is no such fence around all of it. *unfenced (may be NULL): whether one was taken off. */
struct bytes text_take_fence_off(struct bytes answer, bool *unfenced);
