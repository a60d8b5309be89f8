/* Reading a whole file. */
#pragma once

#include "workflow/base/bytes.h"
#include "workflow/base/error.h"

/* Add what is in it; the buffer's maximum is the file's. */
int file_read(const char *path, struct buffer *out, struct error *error);
