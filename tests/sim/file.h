/* Reading a whole file, and refusing JSON that holds what nobody knows. */
#pragma once

#include "workflow/base/bytes.h"
#include "workflow/base/error.h"
#include "workflow/base/json.h"

/* Add what is in it; the buffer's maximum is the file's. */
int file_read(const char *path, struct buffer *out, struct error *error);

/* An object with these members only, so that a misspelt one does not pass for none. known: names, each followed by a space. */
int members_check(const struct json *object, const char *where, const char *known, struct error *error);
