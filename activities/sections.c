/* Cutting a document into sections. Pure, any thread. Start at sections_cut().
 *
 * Three steps: where headings and paragraphs stand (scan_*), ranges by the manner asked for (cut_ranges), and pieces of ranges
 * that are too long (cut_range). md4c tells what a heading is, so that a '#' in a code fence or a table is none; it tells no
 * offsets, but the texts that it hands out point into its copy of the document, and the line of the first one is the heading's.
 *
 * Body: what is neither white space, nor a heading, nor front matter. A stretch without a body is no section of its own; it joins
 * the one that follows, or, at the end of the document, the one before. */
#include "activities/sections.h"

#include <md4c.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "activities/text.h"
#include "workflow/base/check.h"

enum {
	HEADING_LEN_MAX = 512, /* bytes of a heading's text that are kept; the section's bytes are untouched */
	NESTING_MAX = 64, /* lists within lists that md4c is shown */
	BRACKET_WORK_MAX = 64 << 10, /* lines without a blank one between, times the '[' in them, that md4c is shown */
	TAB_WIDTH = 4,
	FIRST_ITEMS = 64,
};

struct heading {
	size_t start, end; /* whole lines, the underline of a setext heading among them */
	unsigned level;
	const char *text;
};

struct scan {
	struct arena *arena;
	struct bytes document;
	size_t content_start; /* behind byte order mark and front matter */

	struct heading *headings;
	size_t heading_count, heading_cap;
	uint32_t *paragraphs; /* where paragraphs begin, at line starts; SECTIONS_DOCUMENT_MAX fits */
	size_t paragraph_count, paragraph_cap;

	/* While md4c runs. */
	const char *copy; /* of the document, which md4c reads */
	unsigned depth; /* of quotes and lists: headings in them are no boundaries */
	bool in_heading, has_text, too_many, lost;
	size_t after; /* no text before this offset is still to come */
	size_t text_start, text_end; /* of the heading */
	unsigned level;
	struct buffer text;

	struct section *sections;
	size_t section_count, section_cap;
	struct error *error;
};

/* Make room for one more; arrays grow by doubling. */
static void *grow(void *items, size_t count, size_t *cap, size_t size)
{
	if (count < *cap)
		return items;
	*cap = *cap == 0 ? FIRST_ITEMS : 2 * *cap;
	return memory_resize(items, *cap * size);
}

/* ---- Characters and lines ---- */

static size_t step_back(struct bytes text, size_t at)
{
	do
		at--;
	while ((text.data[at] & 0xC0) == 0x80);
	return at;
}

static size_t skip_white_space(struct bytes text, size_t at, size_t end)
{
	size_t len;

	while (at < end && text_is_white_space(text_code_point(text, at, &len)))
		at += len;
	return at;
}

static bool is_line_end(uint8_t c)
{
	return c == '\n' || c == '\r';
}

static size_t find_line_start(struct bytes text, size_t at)
{
	while (at > 0 && !is_line_end(text.data[at - 1]))
		at--;
	return at;
}

/* The offset of the line end, or the end of the text. */
static size_t find_line_end(struct bytes text, size_t at)
{
	while (at < text.len && !is_line_end(text.data[at]))
		at++;
	return at;
}

static size_t find_next_line(struct bytes text, size_t at)
{
	at = find_line_end(text, at);
	if (at < text.len && text.data[at] == '\r' && at + 1 < text.len && text.data[at + 1] == '\n')
		return at + 2;
	return at < text.len ? at + 1 : at;
}

static size_t skip_indent(struct bytes text, size_t at)
{
	for (int i = 0; i < 3 && at < text.len && text.data[at] == ' '; i++)
		at++;
	return at;
}

static size_t count_run(struct bytes text, size_t at, uint8_t c)
{
	size_t count = 0;

	while (at + count < text.len && text.data[at + count] == c)
		count++;
	return count;
}

/* Nothing but blanks up to the end of the line. */
static bool rest_is_blank(struct bytes text, size_t at)
{
	while (at < text.len && (text.data[at] == ' ' || text.data[at] == '\t'))
		at++;
	return at == text.len || is_line_end(text.data[at]);
}

/* The level of an ATX heading ("## Name") that begins on this line, or 0. */
static unsigned read_atx_level(struct bytes text, size_t line)
{
	size_t at = skip_indent(text, line), count = count_run(text, at, '#');

	if (count < 1 || count > 6)
		return 0;
	at += count;
	return at == text.len || text.data[at] == ' ' || text.data[at] == '\t' || is_line_end(text.data[at]) ? (unsigned)count : 0;
}

/* The underline of a setext heading: "===" for level 1, "---" for level 2. */
static bool is_underline(struct bytes text, size_t line, unsigned level)
{
	size_t at = skip_indent(text, line), count = count_run(text, at, level == 1 ? '=' : '-');

	return count > 0 && rest_is_blank(text, at + count);
}

/* ---- Front matter ---- */

/* "---" as the first line, up to a line "---" or "...": metadata, in which "title: x" over "---" is no heading. */
static size_t find_content_start(struct bytes text)
{
	size_t start = text.len >= 3 && memcmp(text.data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0, line;

	if (count_run(text, start, '-') != 3 || !rest_is_blank(text, start + 3))
		return start;
	for (line = find_next_line(text, start); line < text.len; line = find_next_line(text, line)) {
		size_t dashes = count_run(text, line, '-'), dots = count_run(text, line, '.');

		if ((dashes == 3 || dots == 3) && rest_is_blank(text, line + 3))
			return find_next_line(text, line);
	}
	return start;
}

/* ---- Headings ---- */

static bool is_container(MD_BLOCKTYPE type)
{
	return type == MD_BLOCK_QUOTE || type == MD_BLOCK_UL || type == MD_BLOCK_OL;
}

static int on_block_entered(MD_BLOCKTYPE type, void *detail, void *arg)
{
	struct scan *scan = arg;

	if (is_container(type))
		scan->depth++;
	if (type != MD_BLOCK_H || scan->depth > 0)
		return 0;
	scan->in_heading = true;
	scan->has_text = false;
	scan->level = ((const MD_BLOCK_H_DETAIL *)detail)->level;
	buffer_clear(&scan->text);
	return 0;
}

static int on_text(MD_TEXTTYPE type, const MD_CHAR *text, MD_SIZE size, void *arg)
{
	struct scan *scan = arg;
	uintptr_t base = (uintptr_t)scan->copy, at = (uintptr_t)text;
	bool ours = at >= base && at < base + scan->document.len; /* md4c has literals of its own for line breaks */

	if (ours && scan->after < at - base + size)
		scan->after = at - base + size;
	if (!scan->in_heading)
		return 0;
	if (ours) {
		if (!scan->has_text)
			scan->text_start = at - base;
		scan->text_end = at - base + size;
		scan->has_text = true;
	}
	if (ours)
		text = (const char *)scan->document.data + (at - base); /* the copy is tamed */
	if (type == MD_TEXT_SOFTBR || type == MD_TEXT_BR)
		buffer_add_char(&scan->text, ' ');
	else if (type != MD_TEXT_HTML && scan->text.len + size <= scan->text.max)
		buffer_add(&scan->text, text, size);
	else if (type != MD_TEXT_HTML)
		buffer_add(&scan->text, text, scan->text.max - scan->text.len);
	return 0;
}

/* A heading without text (nothing, or an image without a description) gave no offset: it is the next line that can be one. */
static bool find_silent_heading(struct scan *scan)
{
	struct bytes text = scan->document;
	size_t line = scan->after, next;

	if (scan->lost)
		return false;
	if (line > scan->content_start && !is_line_end(text.data[line - 1]))
		line = find_next_line(text, line);
	for (; line < text.len; line = next) {
		next = find_next_line(text, line);
		if (read_atx_level(text, line) == scan->level ||
		    (scan->level <= 2 && next < text.len && !rest_is_blank(text, line) && is_underline(text, next, scan->level))) {
			scan->text_start = scan->text_end = line;
			scan->after = next;
			return true;
		}
	}
	/* Looked through to the end in vain; looking again for each further one would take quadratic time. Their text then
	 * stays with the section before. */
	scan->lost = true;
	return false;
}

static const char *keep_text(struct scan *scan)
{
	struct bytes text = buffer_bytes(&scan->text);
	size_t bad, start;

	if (!utf8_valid(text, &bad)) /* cut at HEADING_LEN_MAX, inside a character */
		text.len = bad;
	start = skip_white_space(text, 0, text.len);
	while (text.len > start) {
		size_t last = step_back(text, text.len), len;

		if (!text_is_white_space(text_code_point(text, last, &len)))
			break;
		text.len = last;
	}
	return arena_text_len(scan->arena, buffer_text(&scan->text) + start, text.len - start);
}

static int on_block_left(MD_BLOCKTYPE type, void *detail, void *arg)
{
	struct scan *scan = arg;
	struct heading heading = {.level = scan->level};
	size_t line;

	(void)detail;
	if (is_container(type))
		scan->depth--;
	if (type != MD_BLOCK_H || !scan->in_heading)
		return 0;
	scan->in_heading = false;
	if (!scan->has_text && !find_silent_heading(scan))
		return 0;
	heading.start = find_line_start(scan->document, scan->text_start);
	if (heading.start < scan->content_start)
		heading.start = scan->content_start;
	heading.end = find_line_end(scan->document, scan->text_end);
	if (read_atx_level(scan->document, heading.start) != heading.level) {
		for (line = find_next_line(scan->document, heading.end); line < scan->document.len;
		     line = find_next_line(scan->document, line)) {
			if (is_underline(scan->document, line, heading.level)) {
				heading.end = find_line_end(scan->document, line);
				break;
			}
		}
	}
	/* Defensive: md4c reports blocks in order, and everything after relies on it. */
	if (scan->heading_count > 0 && heading.start < scan->headings[scan->heading_count - 1].end)
		return 0;
	if (scan->heading_count == SECTIONS_MAX) {
		scan->too_many = true;
		return 1; /* stops md4c */
	}
	if (scan->after < heading.end)
		scan->after = heading.end;
	heading.text = keep_text(scan);
	scan->headings = grow(scan->headings, scan->heading_count, &scan->heading_cap, sizeof(*scan->headings));
	scan->headings[scan->heading_count++] = heading;
	return 0;
}

static int on_span(MD_SPANTYPE type, void *detail, void *arg)
{
	(void)type;
	(void)detail;
	(void)arg;
	return 0;
}

/* ---- What md4c is shown ---- */

/* The length of a list's marker ("-", "12."), or 0. */
static size_t read_marker(struct bytes text, size_t at)
{
	size_t len = 0;

	while (at + len < text.len && len < 9 && text.data[at + len] >= '0' && text.data[at + len] <= '9')
		len++;
	if (at + len == text.len || memchr(len > 0 ? ".)" : "-+*", text.data[at + len], len > 0 ? 2 : 3) == NULL)
		return 0;
	len++;
	return at + len == text.len || text.data[at + len] == ' ' || text.data[at + len] == '\t' || is_line_end(text.data[at + len]) ? len : 0;
}

/* "* * *" up to the end of the line. */
static bool is_rule(struct bytes text, size_t at)
{
	uint8_t c = text.data[at];

	while (at < text.len && (text.data[at] == c || text.data[at] == ' ' || text.data[at] == '\t'))
		at++;
	return at == text.len || is_line_end(text.data[at]);
}

/* A list within another one stands behind its marker, or is indented by two columns at least. */
static void tame_markers(struct bytes text, size_t line, char *copy)
{
	size_t markers = 0, blanks = 0, len;

	for (size_t at = line; at < text.len; at += len) {
		len = 1;
		if (text.data[at] == ' ') {
			blanks++;
		} else if (text.data[at] == '\t') {
			blanks += TAB_WIDTH;
		} else if (text.data[at] != '>') {
			len = read_marker(text, at);
			if (len == 0)
				return;
			if (markers++ + blanks / 2 >= NESTING_MAX) {
				if (!is_rule(text, at))
					copy[at + len - 1] = 'x';
				return;
			}
		}
	}
}

/* Of lines without a blank one between. A heading's line is a block of its own, and its text is wanted. */
static void tame_brackets(struct bytes text, size_t line, size_t end, char *copy)
{
	for (size_t next; line < end; line = next) {
		next = find_next_line(text, line);
		if (read_atx_level(text, line) == 0)
			for (char *at = copy + line; (at = memchr(at, '[', (size_t)(copy + next - at))) != NULL; at++)
				*at = 'x';
	}
}

/* md4c 0.4.8 looks at all open lists for each blank line, and walks the lines of a paragraph or table for each link that might be in them: what
 * takes quadratic time with a log of 40 MB as well as with what somebody made for it. So in its copy lists nest to a depth, and where many brackets
 * stand in many lines there are none; no byte moves. What is lost: a definition of a link there is text. */
static void tame(struct bytes text, size_t from, char *copy)
{
	size_t stretch = from, lines = 0, brackets = 0, next;

	for (size_t line = from; line <= text.len; line = next) {
		next = line < text.len ? find_next_line(text, line) : line + 1;
		if (rest_is_blank(text, line)) {
			if (lines * brackets > BRACKET_WORK_MAX)
				tame_brackets(text, stretch, line, copy);
			stretch = next;
			lines = brackets = 0;
			continue;
		}
		tame_markers(text, line, copy);
		lines++;
		for (size_t at = line; at < next; at++)
			brackets += text.data[at] == '[';
	}
}

static int scan_headings(struct scan *scan)
{
	static const MD_PARSER parser = {
		.flags = MD_FLAG_TABLES,
		.enter_block = on_block_entered,
		.leave_block = on_block_left,
		.enter_span = on_span,
		.leave_span = on_span,
		.text = on_text,
	};
	struct bytes document = scan->document;
	/* md4c 0.4.8 looks one byte behind a document whose last line may be an item of a list ("3"): one that ends with its page of
	 * memory would stop the process. */
	char *copy = memory_alloc(document.len + 1);
	int failed;

	memcpy(copy, document.data, document.len);
	copy[document.len] = '\n';
	tame(document, scan->content_start, copy);
	scan->copy = copy;
	scan->after = scan->content_start;
	buffer_init(&scan->text, HEADING_LEN_MAX);
	failed = md_parse(copy + scan->content_start, (MD_SIZE)(document.len - scan->content_start), &parser, scan);
	buffer_close(&scan->text);
	free(copy);
	if (scan->too_many)
		return error_set(scan->error, ERR_TOO_LARGE, "document has more headings than SECTIONS_MAX %d", SECTIONS_MAX);
	CHECK(failed == 0); /* what is left is memory that cannot be had */
	return 0;
}

/* ---- Paragraphs ---- */

static bool is_blank_line(struct bytes text, size_t line)
{
	size_t end = find_line_end(text, line);

	return skip_white_space(text, line, end) == end;
}

/* Opens or closes a code fence; blank lines and '#' in between are code. */
static void follow_fence(struct bytes text, size_t line, uint8_t *fence, size_t *fence_len)
{
	size_t at = skip_indent(text, line), run, rest;

	if (at == text.len)
		return;
	run = count_run(text, at, text.data[at]);
	rest = at + run;
	if (*fence != 0) {
		if (text.data[at] == *fence && run >= *fence_len && rest_is_blank(text, rest))
			*fence = 0;
		return;
	}
	if (run < 3 || (text.data[at] != '`' && text.data[at] != '~'))
		return;
	if (text.data[at] == '`' && memchr(text.data + rest, '`', find_line_end(text, rest) - rest) != NULL)
		return; /* a code span */
	*fence = text.data[at];
	*fence_len = run;
}

/* A paragraph begins at a heading and behind a blank line, but not between a heading and what it heads. */
static void scan_paragraphs(struct scan *scan)
{
	struct bytes text = scan->document;
	size_t line, heading = 0, fence_len = 0;
	uint8_t fence = 0;
	bool fresh = true, headed = false;

	for (line = scan->content_start; line < text.len; line = find_next_line(text, line)) {
		bool in_heading;

		if (fence == 0 && is_blank_line(text, line)) {
			fresh = true;
			continue;
		}
		while (heading < scan->heading_count && scan->headings[heading].end <= line)
			heading++;
		in_heading = heading < scan->heading_count && scan->headings[heading].start <= line;
		if (!headed && (fresh || (in_heading && scan->headings[heading].start == line))) {
			scan->paragraphs = grow(scan->paragraphs, scan->paragraph_count, &scan->paragraph_cap, sizeof(*scan->paragraphs));
			scan->paragraphs[scan->paragraph_count++] = (uint32_t)line;
		}
		fresh = false;
		headed = in_heading;
		follow_fence(text, line, &fence, &fence_len);
	}
}

/* ---- Sections ---- */

/* The first heading that ends behind the offset. */
static size_t find_heading(const struct scan *scan, size_t at)
{
	size_t low = 0, high = scan->heading_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (scan->headings[middle].end <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The first byte of a body at or after the offset, or the end of the document. */
static size_t find_body(const struct scan *scan, size_t at)
{
	size_t heading;

	if (at < scan->content_start)
		at = scan->content_start;
	for (heading = find_heading(scan, at);; heading++) {
		at = skip_white_space(scan->document, at, scan->document.len);
		if (heading == scan->heading_count || at < scan->headings[heading].start)
			return at;
		at = scan->headings[heading].end;
	}
}

/* White space around a section belongs to none: the digest of a section does not change with blank lines around it. */
static void trim_range(struct bytes text, size_t *start, size_t *end)
{
	size_t first = skip_white_space(text, *start, *end), line = first, len;

	while (line > *start && !is_line_end(text.data[line - 1]))
		line--;
	/* Indentation stays: four blanks make code of a line. Blanks after a cut inside a line go. */
	if (line > *start || line == 0 || is_line_end(text.data[line - 1]))
		*start = line;
	else
		*start = first;
	while (*end > *start) {
		size_t last = step_back(text, *end);

		if (!text_is_white_space(text_code_point(text, last, &len)))
			break;
		*end = last;
	}
}

static int add_section(struct scan *scan, size_t start, size_t end, size_t body)
{
	struct section *section;
	size_t heading;

	trim_range(scan->document, &start, &end);
	if (start == end)
		return 0;
	if (scan->section_count == SECTIONS_MAX)
		return error_set(scan->error, ERR_TOO_LARGE, "document has more sections than SECTIONS_MAX %d", SECTIONS_MAX);
	scan->sections = grow(scan->sections, scan->section_count, &scan->section_cap, sizeof(*scan->sections));
	section = &scan->sections[scan->section_count++];
	*section = (struct section){.start = start, .end = end};
	/* The heading right before the body; of several in a row the last one. */
	heading = find_heading(scan, body < end ? body : end - 1);
	if (heading < scan->heading_count && scan->headings[heading].start < end && body >= end)
		heading++; /* nothing but headings: the last one */
	if (heading > 0) {
		section->heading = scan->headings[heading - 1].text;
		section->level = scan->headings[heading - 1].level;
	}
	return 0;
}

/* ---- Ranges that are too long ---- */

static bool is_closing(utf8proc_int32_t c)
{
	return c == '"' || c == '\'' || c == ')' || c == ']' || c == '*' || c == '_' || c == 0x2019 || c == 0x201D || c == 0xBB ||
	       c == 0x300D || c == 0x300F || c == 0xFF09;
}

static bool is_full_stop(utf8proc_int32_t c)
{
	return c == 0x3002 || c == 0xFF01 || c == 0xFF1F || c == 0xFF61; /* needs no blank behind it */
}

/* Walk one window and note the last place of each kind at which it may be cut. */
struct cuts {
	size_t sentence, word, cluster;
};

static struct cuts find_cuts(struct bytes text, size_t start, size_t limit, size_t end)
{
	struct cuts cuts = {0};
	utf8proc_int32_t state = 0, before = 0, c;
	size_t at, len;
	/* The sentence mark seen, with what closes behind it: 0 none, 1 needs a blank, 2 needs none. */
	int mark = 0;
	bool blank = false;

	for (at = start; at < end; at += len) {
		c = text_code_point(text, at, &len);
		if (at > start && utf8proc_grapheme_break_stateful(before, c, &state)) {
			/* The window is full; but a cluster that is longer than the window stays whole. */
			if (at > limit)
				break;
			cuts.cluster = at;
			if (blank && !text_is_white_space(c))
				cuts.word = at;
			if (!text_is_white_space(c) &&
			    ((mark == 1 && blank && utf8proc_category(c) != UTF8PROC_CATEGORY_LL) || (mark == 2 && !is_closing(c))))
				cuts.sentence = at;
			if (at == limit)
				break;
		}
		if (text_is_white_space(c)) {
			blank = true;
		} else if (c == '.' || c == '!' || c == '?' || c == 0x2026) {
			mark = 1;
			blank = false;
		} else if (is_full_stop(c)) {
			mark = 2;
			blank = false;
		} else if (mark == 0 || blank || !is_closing(c)) {
			mark = 0;
			blank = false;
		}
		before = c;
	}
	if (cuts.cluster == 0)
		cuts.cluster = at;
	return cuts;
}

/* The last paragraph that begins behind `body` and no later than `limit`, or 0. */
static size_t find_paragraph_cut(const struct scan *scan, size_t body, size_t limit)
{
	size_t low = 0, high = scan->paragraph_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (scan->paragraphs[middle] <= limit)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 && scan->paragraphs[low - 1] > body ? scan->paragraphs[low - 1] : 0;
}

/* No cut before the body begins, as a heading alone is no section; unless headings alone are longer than a section may be. */
static size_t find_cut(const struct scan *scan, size_t start, size_t limit, size_t end, size_t body)
{
	size_t paragraph;
	struct cuts cuts;

	/* White space that a cut leaves behind does not count. */
	if ((scan->document.data[limit] & 0xC0) != 0x80)
		limit = skip_white_space(scan->document, limit, end);
	paragraph = find_paragraph_cut(scan, body, limit);
	if (paragraph != 0)
		return paragraph;
	cuts = find_cuts(scan->document, start, limit, end);
	if (cuts.sentence > body)
		return cuts.sentence;
	if (cuts.word > body || (cuts.cluster <= body && cuts.word != 0))
		return cuts.word;
	return cuts.cluster;
}

static int cut_range(struct scan *scan, size_t start, size_t end, size_t len_max)
{
	size_t body = find_body(scan, start), cut;

	trim_range(scan->document, &start, &end);
	while (end - start > len_max) {
		cut = find_cut(scan, start, start + len_max, end, body);
		CHECK(cut > start);
		CHECK(cut <= end);
		if (add_section(scan, start, cut, body) != 0)
			return scan->error->code;
		start = cut;
		trim_range(scan->document, &start, &end);
		if (start > body) /* else still before it: asking again for each piece of a long row of headings takes quadratic time */
			body = find_body(scan, start);
	}
	return add_section(scan, start, end, body);
}

/* ---- Ranges ---- */

static size_t boundary_count(const struct scan *scan, enum sections_by by)
{
	switch (by) {
	case SECTIONS_BY_HEADING:
		return scan->heading_count;
	case SECTIONS_BY_PARAGRAPH:
		return scan->paragraph_count;
	case SECTIONS_BY_NONE:
		break;
	}
	return 0;
}

static int cut_ranges(struct scan *scan, enum sections_by by, size_t len_max)
{
	size_t start = 0, end, body = find_body(scan, 0), open = 0, open_end = 0, count = boundary_count(scan, by);
	bool pending = false;

	/* One range is held back until the next one is known to have a body. */
	for (size_t i = 0; i <= count; i++) {
		end = i == count ? scan->document.len : by == SECTIONS_BY_HEADING ? scan->headings[i].start : scan->paragraphs[i];
		if (body >= end && i < count)
			continue;
		if (body >= end && pending) { /* the document ends without a body */
			open_end = end;
			break;
		}
		if (pending && cut_range(scan, open, open_end, len_max) != 0)
			return scan->error->code;
		open = start;
		open_end = end;
		pending = true;
		start = end;
		body = find_body(scan, start);
	}
	return cut_range(scan, open, open_end, len_max);
}

static int check_document(struct bytes document, struct error *error)
{
	const uint8_t *nul;
	size_t bad, start;

	if (document.len > SECTIONS_DOCUMENT_MAX)
		return error_set(error, ERR_TOO_LARGE, "document has %zu bytes, more than SECTIONS_DOCUMENT_MAX %d", document.len,
				 SECTIONS_DOCUMENT_MAX);
	if (document.len > 0 && (nul = memchr(document.data, '\0', document.len)) != NULL)
		return error_set(error, ERR_INVALID, "document holds a NUL byte at offset %zu", (size_t)(nul - document.data));
	if (!utf8_valid(document, &bad))
		return error_set(error, ERR_INVALID, "document is not UTF-8 at byte offset %zu", bad);
	start = document.len >= 3 && memcmp(document.data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
	if (skip_white_space(document, start, document.len) == document.len)
		return error_set(error, ERR_INVALID, "document is empty");
	return 0;
}

int sections_cut(struct arena *arena, struct bytes document, enum sections_by by, unsigned max_tokens, struct sections *sections,
		 struct error *error)
{
	struct error ignored;
	struct scan scan = {.arena = arena, .document = document, .error = error != NULL ? error : &ignored};
	size_t len_max = max_tokens == 0 ? SIZE_MAX : (size_t)max_tokens * SECTION_BYTES_PER_TOKEN;
	int code;

	*sections = (struct sections){0};
	code = check_document(document, scan.error);
	if (code != 0)
		return code;
	scan.content_start = find_content_start(document);
	code = scan_headings(&scan);
	if (code == 0) {
		scan_paragraphs(&scan);
		code = cut_ranges(&scan, by, len_max);
	}
	if (code == 0) {
		sections->items = arena_alloc(arena, scan.section_count * sizeof(*sections->items));
		memcpy(sections->items, scan.sections, scan.section_count * sizeof(*sections->items));
		sections->count = scan.section_count;
	}
	free(scan.headings);
	free(scan.paragraphs);
	free(scan.sections);
	return code;
}
