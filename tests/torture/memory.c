/* Memory that cannot be had, of three kinds: SQLite's, through its own methods; ours, as the linker brings the project's calls here (see
 * meson.build); that of libraries, which call malloc() as this program has it. The last is left out under a sanitizer, which has a
 * malloc() of its own. Any thread. */
#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>

#include "tests/torture/torture.h"
#include "workflow/base/check.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

/* errno as malloc() sets it: glibc itself insists on it, where it makes a thread. */
static bool hit(enum fault whose)
{
	if (faults == NULL || faults->fault != whose || !faults_hit(OPERATION_MEMORY))
		return false;
	errno = ENOMEM;
	return true;
}

#ifdef SANITIZED
#define REAL(name) __real_##name
const bool memory_reaches_libraries = false;
#else
#define REAL(name) __libc_##name
const bool memory_reaches_libraries = true;
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

void *malloc(size_t size)
{
	return hit(FAULT_LIBRARY_MEMORY) ? NULL : REAL(malloc)(size);
}

void *calloc(size_t count, size_t size)
{
	return hit(FAULT_LIBRARY_MEMORY) ? NULL : REAL(calloc)(count, size);
}

void *realloc(void *memory, size_t size)
{
	return hit(FAULT_LIBRARY_MEMORY) ? NULL : REAL(realloc)(memory, size);
}
#endif

void *__wrap_malloc(size_t size)
{
	return hit(FAULT_OWN_MEMORY) ? NULL : REAL(malloc)(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return hit(FAULT_OWN_MEMORY) ? NULL : REAL(calloc)(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
	return hit(FAULT_OWN_MEMORY) ? NULL : REAL(realloc)(memory, size);
}

/* SQLite asks how large a piece is: each has its size in front. */
enum { HEAD = 16 };

static void *sqlite_alloc(int size)
{
	char *memory = hit(FAULT_SQLITE_MEMORY) ? NULL : REAL(malloc)((size_t)size + HEAD);

	if (memory == NULL)
		return NULL;
	*(int *)(void *)memory = size;
	return memory + HEAD;
}

static void sqlite_free(void *memory)
{
	if (memory != NULL)
		free((char *)memory - HEAD);
}

static void *sqlite_resize(void *memory, int size)
{
	char *resized = hit(FAULT_SQLITE_MEMORY) ? NULL : REAL(realloc)((char *)memory - HEAD, (size_t)size + HEAD);

	if (resized == NULL)
		return NULL;
	*(int *)(void *)resized = size;
	return resized + HEAD;
}

static int sqlite_size(void *memory)
{
	return memory == NULL ? 0 : *(int *)(void *)((char *)memory - HEAD);
}

static int sqlite_round_up(int size)
{
	return (size + 7) & ~7;
}

static int sqlite_begin(void *arg)
{
	(void)arg;
	return SQLITE_OK;
}

static void sqlite_end(void *arg)
{
	(void)arg;
}

void memory_set_up(void)
{
	static const sqlite3_mem_methods methods = {sqlite_alloc, sqlite_free, sqlite_resize, sqlite_size, sqlite_round_up, sqlite_begin, sqlite_end, NULL};

	CHECK(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK);
}
