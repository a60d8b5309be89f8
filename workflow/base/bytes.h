/* Byte strings. struct bytes is borrowed and never freed; struct buffer owns its memory and has a maximum.
 * Lengths everywhere; C strings only towards C libraries. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
	const uint8_t *data;
	size_t len;
};

#define BYTES_OF(literal) ((struct bytes){(const uint8_t *)(literal), sizeof(literal) - 1})
struct bytes bytes_text(const char *text); /* without the NUL */
/* For tables in memory only: nothing that is kept or sent depends on it. */
uint64_t text_hash(const char *text);
bool bytes_equal(struct bytes a, struct bytes b);
bool bytes_equal_text(struct bytes a, const char *text);

/* The byte after data[len - 1] is always a NUL that does not count, so a buffer can be handed to a C library.
 * Adding past `max` changes nothing and sets `overflow`, which stays: add all, look once at the end. */
struct buffer {
	uint8_t *data;
	size_t len, cap, max;
	bool overflow;
};

void buffer_init(struct buffer *buffer, size_t max);
void buffer_close(struct buffer *buffer);
void buffer_clear(struct buffer *buffer); /* Keeps the memory. */
void buffer_add(struct buffer *buffer, const void *data, size_t len);
void buffer_add_bytes(struct buffer *buffer, struct bytes bytes);
void buffer_add_text(struct buffer *buffer, const char *text);
void buffer_add_char(struct buffer *buffer, char c);
void buffer_printf(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_remove_front(struct buffer *buffer, size_t len);
struct bytes buffer_bytes(const struct buffer *buffer);
const char *buffer_text(const struct buffer *buffer); /* "" when nothing was added. */
