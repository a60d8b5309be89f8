/* Cutting a document into sections whose byte ranges are kept: by heading (Markdown, md4c for where headings stand), by
 * paragraph, or not at all; a section longer than max_tokens is cut further at paragraph, then sentence, then character
 * boundaries. Every byte of the document belongs to exactly one section, in order, or to white space between two. Pure. */
#pragma once

#include "workflow/base/json.h"

enum { SECTIONS_MAX = 100000, SECTION_TOKENS_DEFAULT = 1200, SECTION_BYTES_PER_TOKEN = 4, SECTIONS_DOCUMENT_MAX = 64 << 20 };
enum sections_by { SECTIONS_BY_HEADING, SECTIONS_BY_PARAGRAPH, SECTIONS_BY_NONE };

struct section {
	size_t start, end; /* half-open byte range in the document */
	const char *heading; /* text of the nearest heading before its body, "" for one without text, NULL for none */
	unsigned level; /* of that heading, 1 to 6; 0 for none */
};

struct sections {
	struct section *items;
	size_t count;
};

/* Headings inside quotes and lists are no boundaries. A heading, a row of headings or front matter without a body is no
 * section of its own: it joins the next one, at the end of the document the one before. Without any heading, by heading packs
 * paragraphs up to max_tokens. max_tokens is counted as SECTION_BYTES_PER_TOKEN bytes each, 0: no limit; where no sentence ends, the
 * cut is between two words, then between two grapheme clusters; a single cluster that is longer stays whole. The items and
 * heading texts lie in the arena. ERR_TOO_LARGE past SECTIONS_DOCUMENT_MAX bytes too.
 * ERR_INVALID: not UTF-8 (offset named), or NUL bytes; ERR_INVALID "document is empty"; ERR_TOO_LARGE past SECTIONS_MAX. */
int sections_cut(struct arena *arena, struct bytes document, enum sections_by by, unsigned max_tokens, struct sections *sections, struct error *error);
