/* Byte strings and the growing buffer with a maximum. Start at make_room(). */
#include "workflow/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

enum { BUFFER_CAP_FIRST = 64 };

struct bytes bytes_text(const char *text)
{
	return (struct bytes){(const uint8_t *)text, strlen(text)};
}

bool bytes_equal(struct bytes a, struct bytes b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

bool bytes_equal_text(struct bytes a, const char *text)
{
	return bytes_equal(a, bytes_text(text));
}

void buffer_init(struct buffer *buffer, size_t max)
{
	CHECK(max < SIZE_MAX); /* The NUL behind the data has to be counted somewhere. */
	*buffer = (struct buffer){.max = max};
}

void buffer_close(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer){.max = buffer->max};
}

void buffer_clear(struct buffer *buffer)
{
	buffer->len = 0;
	buffer->overflow = false;
	if (buffer->data != NULL)
		buffer->data[0] = '\0';
}

/* Room for len more bytes and the NUL. After the first overflow nothing is added any more, so what is there stays a prefix
 * of what was meant. */
static bool make_room(struct buffer *buffer, size_t len)
{
	size_t need, cap;

	if (buffer->overflow || len > buffer->max - buffer->len) {
		buffer->overflow = true;
		return false;
	}
	need = buffer->len + len + 1;
	if (need <= buffer->cap)
		return true;
	cap = buffer->cap > 0 ? buffer->cap : BUFFER_CAP_FIRST;
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	if (cap > buffer->max + 1)
		cap = buffer->max + 1;
	buffer->data = memory_resize(buffer->data, cap);
	buffer->cap = cap;
	return true;
}

void buffer_add(struct buffer *buffer, const void *data, size_t len)
{
	if (!make_room(buffer, len))
		return;
	if (len > 0)
		memcpy(buffer->data + buffer->len, data, len);
	buffer->len += len;
	buffer->data[buffer->len] = '\0';
}

void buffer_add_bytes(struct buffer *buffer, struct bytes bytes)
{
	buffer_add(buffer, bytes.data, bytes.len);
}

void buffer_add_text(struct buffer *buffer, const char *text)
{
	buffer_add(buffer, text, strlen(text));
}

void buffer_add_char(struct buffer *buffer, char c)
{
	if (!make_room(buffer, 1))
		return;
	buffer->data[buffer->len++] = (uint8_t)c;
	buffer->data[buffer->len] = '\0';
}

void buffer_printf(struct buffer *buffer, const char *format, ...)
{
	char text[256];
	va_list args, again;
	int len;

	va_start(args, format);
	va_copy(again, args);
	len = vsnprintf(text, sizeof(text), format, args);
	CHECK(len >= 0);
	if ((size_t)len < sizeof(text)) {
		buffer_add(buffer, text, (size_t)len);
	} else if (make_room(buffer, (size_t)len)) {
		vsnprintf((char *)buffer->data + buffer->len, (size_t)len + 1, format, again);
		buffer->len += (size_t)len;
	}
	va_end(again);
	va_end(args);
}

void buffer_remove_front(struct buffer *buffer, size_t len)
{
	CHECK(len <= buffer->len);
	if (len == 0)
		return;
	memmove(buffer->data, buffer->data + len, buffer->len - len + 1);
	buffer->len -= len;
}

struct bytes buffer_bytes(const struct buffer *buffer)
{
	return (struct bytes){buffer->data, buffer->len};
}

const char *buffer_text(const struct buffer *buffer)
{
	return buffer->data != NULL ? (const char *)buffer->data : "";
}

uint64_t text_hash(const char *text)
{
	uint64_t hash = 1469598103934665603u; /* FNV-1a */

	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * 1099511628211u;
	return hash ^ hash >> 32;
}
