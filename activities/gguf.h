/* The header of a GGUF file: its metadata, without the tensors (runtimes.md 4a). Any thread. Start at gguf_read(). */
#pragma once

#include <stdio.h>

#include "activities/weights.h"

enum {
	GGUF_KEYS_MAX = 64 * 1024,
	GGUF_TEXT_MAX = 4 << 20, /* bytes of one text: chat templates are the longest */
	GGUF_ITEMS_MAX = 16 << 20, /* of one list: vocabularies are the longest */
};

/* False: this is no GGUF file, or one that does not hold together; `header` is then untouched. */
bool gguf_read(FILE *file, struct weights_header *header);
