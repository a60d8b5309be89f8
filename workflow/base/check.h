/* CHECK stops the process before a mistake of ours writes nonsense into the journal. It is always on, in release too.
 * Memory that cannot be had is such a stop as well ("out of memory"): sizes of everything that comes from outside are
 * capped before memory is asked for, the journal survives a stop at any point, and the next start carries on. */
#pragma once

#include <stddef.h>

#define CHECK(condition)                                            \
	do {                                                        \
		if (__builtin_expect(!(condition), 0))              \
			check_failed(__FILE__, __LINE__, #condition); \
	} while (0)

_Noreturn void check_failed(const char *file, int line, const char *condition);

/* malloc, calloc, realloc, strdup that never return NULL. Freed with free(). */
void *memory_alloc(size_t size);
void *memory_zero(size_t size);
void *memory_resize(void *memory, size_t size);
char *memory_text(const char *text);

#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
