/* See packed.h. */
#include "workflow/base/packed.h"

enum { NUMBER_LEN_MAX = 10 };

void packed_put(struct buffer *out, uint64_t number)
{
	uint8_t bytes[NUMBER_LEN_MAX];
	size_t len = 0;

	for (; number >= 0x80; number >>= 7)
		bytes[len++] = (uint8_t)(number | 0x80);
	bytes[len++] = (uint8_t)number;
	buffer_add(out, bytes, len);
}

void packed_put_bytes(struct buffer *out, struct bytes bytes)
{
	packed_put(out, bytes.len);
	buffer_add_bytes(out, bytes);
}

bool packed_take(struct bytes *from, uint64_t *number)
{
	*number = 0;
	for (unsigned shift = 0; from->len > 0 && shift < 64; shift += 7) {
		uint8_t byte = *from->data;
		from->data++;
		from->len--;
		if (shift == 63 && byte > 1)
			return false;
		*number |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return true;
	}
	return false;
}

bool packed_take_bytes(struct bytes *from, struct bytes *bytes)
{
	uint64_t len;

	if (!packed_take(from, &len) || len > from->len)
		return false;
	*bytes = (struct bytes){from->data, (size_t)len};
	from->data += len;
	from->len -= (size_t)len;
	return true;
}
