/* Cutting a document into sections whose byte ranges are kept: by heading (Markdown, md4c for where headings stand), by
 * paragraph, or not at all; a section longer than max_tokens is cut further at paragraph, then sentence, then character
 * boundaries. Every byte of the document belongs to exactly one section, in order, or to white space between two. Pure. */
#pragma once

#include "workflow/base/json.h"

enum { SECTIONS_MAX = 100000, SECTION_TOKENS_DEFAULT = 1200, SECTION_BYTES_PER_TOKEN = 4 };
enum sections_by { SECTIONS_BY_HEADING, SECTIONS_BY_PARAGRAPH, SECTIONS_BY_NONE };

struct section {
	size_t start, end; /* half-open byte range in the document */
	const char *heading; /* text of the nearest heading, or NULL */
	unsigned level;
};

struct sections {
	struct section *items;
	size_t count;
};

/* ERR_INVALID: not UTF-8 (offset named), or NUL bytes; ERR_INVALID "document is empty"; ERR_TOO_LARGE past SECTIONS_MAX. */
int sections_cut(struct arena *arena, struct bytes document, enum sections_by by, unsigned max_tokens, struct sections *sections, struct error *error);
