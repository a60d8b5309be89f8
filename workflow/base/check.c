/* CHECK and memory that is always there. Any thread. Start at check_failed(): it is the only way out of here. */
#include "workflow/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "workflow/base/coverage.h"

enum { CHECK_LINE_MAX = 512 };

/* One write and no allocation: the reason for the stop may be that there is no memory left. */
_Noreturn void check_failed(const char *file, int line, const char *condition)
{
	char text[CHECK_LINE_MAX];
	int len = snprintf(text, sizeof(text), "reprise: stopped: check failed at %s:%d: %s\n", file, line, condition);

	if (len > (int)sizeof(text) - 1)
		len = (int)sizeof(text) - 1;
	if (len > 0 && write(STDERR_FILENO, text, (size_t)len) < 0) {
		/* Nobody is left to be told. */
	}
	COVERAGE_KEEP();
	abort();
}

static _Noreturn void stop_without_memory(void)
{
	static const char text[] = "reprise: stopped: out of memory\n";

	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) {
		/* Nobody is left to be told. */
	}
	COVERAGE_KEEP();
	abort();
}

/* malloc(0) may answer NULL, which must not look like a failure: the smallest request is one byte. */
void *memory_alloc(size_t size)
{
	void *memory = malloc(size > 0 ? size : 1);

	if (memory == NULL)
		stop_without_memory();
	return memory;
}

void *memory_zero(size_t size)
{
	void *memory = calloc(1, size > 0 ? size : 1);

	if (memory == NULL)
		stop_without_memory();
	return memory;
}

void *memory_resize(void *memory, size_t size)
{
	void *resized = realloc(memory, size > 0 ? size : 1);

	if (resized == NULL)
		stop_without_memory();
	return resized;
}

char *memory_text(const char *text)
{
	size_t size = strlen(text) + 1;

	return memcpy(memory_alloc(size), text, size);
}
