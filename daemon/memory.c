/* See memory.h. Any thread calls the functions that libuv is given. */
#include "daemon/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <uv.h>

#include "workflow/base/check.h"

static void *zero(size_t count, size_t size)
{
	CHECK(size == 0 || count <= SIZE_MAX / size);
	return memory_zero(count * size);
}

void memory_give_to_libuv(void)
{
	CHECK(uv_replace_allocator(memory_alloc, memory_resize, zero, free) == 0);
}
