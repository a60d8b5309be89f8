/* See url.h. */
#include "workflow/base/url.h"

#include <string.h>

/* By no locale: only ASCII has letters here. */
static bool is_unreserved(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
}

static bool is_legal(uint8_t c)
{
	return c > ' ' && c < 0x7f && strchr("\"<>\\^`{|}", c) == NULL;
}

void url_encode(struct buffer *out, struct bytes text, enum url_keep keep)
{
	for (size_t i = 0; i < text.len; i++) {
		uint8_t c = text.data[i];

		if (keep == URL_KEEP_LEGAL ? is_legal(c) : is_unreserved(c))
			buffer_add_char(out, (char)c);
		else
			buffer_printf(out, "%%%02X", c);
	}
}
