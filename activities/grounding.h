/* Grounding: the daemon, not the model, finds the quote in the source (C81). Pure, any thread. utf8proc.
 *
 * exact: the quote's bytes stand in the section. normalised: they do after Unicode NFKC, case kept, runs of white space as one
 * space, typographic quotes and dashes as ASCII ones; the positions are those of the original bytes. ungrounded: neither.
 * (fuzzy, with a score, comes with the issue on extraction in depth.) Several hits: the first one that no earlier fact of the
 * same answer took, else the first. */
#pragma once

#include "workflow/base/bytes.h"
#include "workflow/base/error.h"

enum grounding_grade { GROUNDING_EXACT, GROUNDING_NORMALISED, GROUNDING_FUZZY, GROUNDING_UNGROUNDED };
const char *grounding_grade_name(enum grounding_grade grade);

struct grounding {
	enum grounding_grade grade;
	double score; /* 1 for exact and normalised */
	/* Half-open, into the text that was searched. */
	size_t byte_start, byte_end;
	size_t code_point_start, code_point_end;
	size_t utf16_start, utf16_end;
};

struct grounding_text; /* a section prepared once for many quotes */
/* text must be valid UTF-8 and stay alive. */
struct grounding_text *grounding_text_new(struct bytes text);
void grounding_text_free(struct grounding_text *text);
/* from: byte offset to search from first (0 for the beginning). */
void grounding_find(const struct grounding_text *text, struct bytes quote, size_t from, struct grounding *grounding);
/* Code points and UTF-16 units before a byte offset of a text: to move section offsets to document offsets. */
void text_units(struct bytes text, size_t byte_offset, size_t *code_points, size_t *utf16);
