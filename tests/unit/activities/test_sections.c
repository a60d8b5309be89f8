/* Sections: exact byte ranges for each manner of cutting, and what holds for every document. */
#include "activities/sections.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "workflow/base/check.h"

enum { ROW_SECTIONS_MAX = 8 };

struct expected {
	size_t start, end;
	const char *heading;
	unsigned level;
};

struct row {
	const char *document;
	enum sections_by by;
	unsigned max_tokens;
	struct expected expected[ROW_SECTIONS_MAX]; /* up to the first that ends at 0 */
};

static void run_rows(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct row *row = &rows[i];
		struct arena arena;
		struct sections got;
		struct error error = {0};
		size_t expected = 0;

		arena_init(&arena);
		ck_assert_msg(sections_cut(&arena, bytes_text(row->document), row->by, row->max_tokens, &got, &error) == 0, "row %zu: %s", i,
			      error.message);
		while (expected < ROW_SECTIONS_MAX && row->expected[expected].end != 0)
			expected++;
		for (size_t k = 0; k < got.count && k < expected; k++) {
			const struct expected *want = &row->expected[k];
			const struct section *section = &got.items[k];

			ck_assert_msg(section->start == want->start && section->end == want->end, "row %zu: section %zu is %zu to %zu", i, k,
				      section->start, section->end);
			ck_assert_msg(section->level == want->level, "row %zu: section %zu has level %u", i, k, section->level);
			ck_assert_msg((section->heading == NULL) == (want->heading == NULL) &&
					      (want->heading == NULL || strcmp(section->heading, want->heading) == 0),
				      "row %zu: section %zu is headed %s", i, k, section->heading == NULL ? "by none" : section->heading);
		}
		ck_assert_msg(got.count == expected, "row %zu: %zu sections", i, got.count);
		arena_close(&arena);
	}
}

#define HEADING SECTIONS_BY_HEADING
#define PARAGRAPH SECTIONS_BY_PARAGRAPH
#define NONE SECTIONS_BY_NONE

/* A section begins at a heading's line and ends before the next one, without the white space around it. */
START_TEST(cuts_at_headings)
{
	static const struct row rows[] = {
		{"# A\na\n\n## B\nb\n", HEADING, 0, {{0, 5, "A", 1}, {7, 13, "B", 2}}},
		{"Before.\n# A\na", HEADING, 0, {{0, 7, NULL, 0}, {8, 13, "A", 1}}},
		{"\n \n# A\na", HEADING, 0, {{3, 8, "A", 1}}},
		{"  ### A ###\na\r\n\r\n# B\r\nb", HEADING, 0, {{0, 13, "A", 3}, {17, 23, "B", 1}}},
		/* Setext headings; the second one of two lines. */
		{"A\n=\na\n\nB\n---\nb", HEADING, 0, {{0, 5, "A", 1}, {7, 14, "B", 2}}},
		{"a\n\nB\nC\n---\nb", HEADING, 0, {{0, 1, NULL, 0}, {3, 12, "B C", 2}}},
		/* No headings: in a fence, in an indented block, in HTML, without a blank, of seven marks, escaped. */
		{"# A\n```\n# no\n\n# no\n```\na", HEADING, 0, {{0, 24, "A", 1}}},
		{"# A\n~~~ x\n# no\n", HEADING, 0, {{0, 14, "A", 1}}},
		{"# A\na\n\n    # no\n\nb", HEADING, 0, {{0, 18, "A", 1}}},
		{"# A\n<!--\n# no\n-->\na", HEADING, 0, {{0, 19, "A", 1}}},
		{"# A\n#no\n####### no\n\\# no\n", HEADING, 0, {{0, 24, "A", 1}}},
		{"# A\n| a | b |\n|---|---|\n| # c | d |\n", HEADING, 0, {{0, 35, "A", 1}}},
		/* Headings in quotes and lists are no boundaries. */
		{"# A\na\n> # B\n\n- # C\n\n1. # D\n\n# E\ne", HEADING, 0, {{0, 26, "A", 1}, {28, 33, "E", 1}}},
		/* Inline marks, an entity, UTF-8. */
		{"# A *b* `c` [d](e) &amp;\na\n# \xC3\x84\xE5\x8C\x97\na", HEADING, 0,
		 {{0, 26, "A b c d &amp;", 1}, {27, 36, "\xC3\x84\xE5\x8C\x97", 1}}},
		/* Headings without text, with an image alone, closed at once. */
		{"# A\na\n##\nb\n### ![](x)\nc\n# #\nd", HEADING, 0, {{0, 5, "A", 1}, {6, 10, "", 2}, {11, 23, "", 3}, {24, 29, "", 1}}},
		{"a\n\n![](x)\n---\nb", HEADING, 0, {{0, 1, NULL, 0}, {3, 15, "", 2}}},
		/* A heading without a body joins the next section, at the end the one before. */
		{"# A\n\n## B\n### C\nc\n", HEADING, 0, {{0, 17, "C", 3}}},
		{"# A\na\n# B\n## C\n", HEADING, 0, {{0, 14, "A", 1}}},
		{"# A\n# B\n", HEADING, 0, {{0, 7, "B", 1}}},
		/* Front matter belongs to the first section; "---" without an end is a rule. */
		{"---\ntitle: x\n---\n\n# A\na\n# B\nb", HEADING, 0, {{0, 23, "A", 1}, {24, 29, "B", 1}}},
		{"---\ntitle: x\n...\nText.\n# A\na", HEADING, 0, {{0, 22, NULL, 0}, {23, 28, "A", 1}}},
		{"---\ntitle: x\n---\n", HEADING, 0, {{0, 16, NULL, 0}}},
		{"---\na\n# A\nb", HEADING, 0, {{0, 5, NULL, 0}, {6, 11, "A", 1}}},
		/* A byte order mark belongs to the first section and hides no heading. */
		{"\xEF\xBB\xBF# A\na\n# B\nb", HEADING, 0, {{0, 8, "A", 1}, {9, 14, "B", 1}}},
		/* Line ends of old machines. */
		{"# A\ra\r# B\rb", HEADING, 0, {{0, 5, "A", 1}, {6, 11, "B", 1}}},
	};

	run_rows(rows, COUNT_OF(rows));
}
END_TEST

/* By paragraph, each one is a section; a heading goes with what it heads, a fence is one paragraph. By none, all is one. */
START_TEST(cuts_at_paragraphs_or_not_at_all)
{
	static const struct row rows[] = {
		{"a\nb\n\nc\n \n\n  d\n", PARAGRAPH, 0, {{0, 3, NULL, 0}, {5, 6, NULL, 0}, {10, 13, NULL, 0}}},
		{"a\n# H\n\nb\n\nc", PARAGRAPH, 0, {{0, 1, NULL, 0}, {2, 8, "H", 1}, {10, 11, "H", 1}}},
		{"# H\n\n## I\n\nb\n\nc\n\n# J\n", PARAGRAPH, 0, {{0, 12, "I", 2}, {14, 20, "I", 2}}},
		{"```\na\n\nb\n```\n\nc", PARAGRAPH, 0, {{0, 12, NULL, 0}, {14, 15, NULL, 0}}},
		{"````\na\n```\n\nb\n`````\n\n``` x ` y\n\nz", PARAGRAPH, 0, {{0, 19, NULL, 0}, {21, 30, NULL, 0}, {32, 33, NULL, 0}}},
		{"---\na: b\n\nc: d\n---\ne\n\nf", PARAGRAPH, 0, {{0, 20, NULL, 0}, {22, 23, NULL, 0}}},
		{"    code\n\nb", PARAGRAPH, 0, {{0, 8, NULL, 0}, {10, 11, NULL, 0}}},
		{"# A\na\n\n# B\nb\n", NONE, 0, {{0, 12, "A", 1}}},
		{" a\n\nb ", NONE, 0, {{0, 5, NULL, 0}}},
		/* Plain text: by heading packs paragraphs. */
		{"aaa\n\nbbb\n\nccc", HEADING, 0, {{0, 13, NULL, 0}}},
		{"aaa\n\nbbb\n\nccc", HEADING, 2, {{0, 8, NULL, 0}, {10, 13, NULL, 0}}},
	};

	run_rows(rows, COUNT_OF(rows));
}
END_TEST

/* What is longer than max_tokens is cut between paragraphs, else sentences, else words, else characters. */
START_TEST(cuts_what_is_too_long)
{
	static const struct row rows[] = {
		/* As many whole paragraphs as fit. */
		{"# A\naaaa\n\nbbbb\n\ncccc\n", HEADING, 4, {{0, 14, "A", 1}, {16, 20, "A", 1}}},
		{"# A\naaaa\n\nbbbb\n\ncccc\n", HEADING, 3, {{0, 8, "A", 1}, {10, 20, "A", 1}}},
		/* Not between a heading and what it heads. */
		{"# A\n\naaaa bbbb", HEADING, 2, {{0, 8, "A", 1}, {8, 14, "A", 1}}},
		{"aaaa\n\n# A\n\nbbbb", NONE, 3, {{0, 4, NULL, 0}, {6, 15, "A", 1}}},
		/* Sentences; not after an abbreviation that goes on in lower case; after closing marks. */
		{"Aa bb. Cc dd. Ee ff.", NONE, 4, {{0, 13, NULL, 0}, {14, 20, NULL, 0}}},
		{"Xx. Aa e.g. bb cc dd", NONE, 4, {{0, 3, NULL, 0}, {4, 20, NULL, 0}}},
		{"Aa! \"Bb?\" Cc dd", NONE, 3, {{0, 9, NULL, 0}, {10, 15, NULL, 0}}},
		/* Chinese sentences have no blank behind them; a closing bracket stays with its sentence. */
		{"北岭。青港。", NONE, 3, {{0, 9, NULL, 0}, {9, 18, NULL, 0}}},
		{"「北岭。」青港", NONE, 4, {{0, 15, NULL, 0}, {15, 21, NULL, 0}}},
		/* Words. */
		{"aaa bbb ccc", NONE, 2, {{0, 7, NULL, 0}, {8, 11, NULL, 0}}},
		{"aaa\n  bbb ccc", NONE, 2, {{0, 3, NULL, 0}, {6, 13, NULL, 0}}},
		/* Characters: neither UTF-8 sequences nor letters and their marks nor emoji sequences are parted. */
		{"abcdefgh", NONE, 1, {{0, 4, NULL, 0}, {4, 8, NULL, 0}}},
		{"北岭青", NONE, 1, {{0, 3, NULL, 0}, {3, 6, NULL, 0}, {6, 9, NULL, 0}}},
		{"abce\xCC\x81x", NONE, 1, {{0, 3, NULL, 0}, {3, 7, NULL, 0}}},
		{"ae\xCC\x81\xCC\xA3\xCC\x81z", NONE, 1, {{0, 1, NULL, 0}, {1, 8, NULL, 0}, {8, 9, NULL, 0}}},
		{"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBBx", NONE, 2, {{0, 11, NULL, 0}, {11, 12, NULL, 0}}},
		/* Exactly as long as allowed: not cut. */
		{"abcd efgh", NONE, 3, {{0, 9, NULL, 0}}},
		{"abcd efghijk", NONE, 3, {{0, 12, NULL, 0}}},
	};

	run_rows(rows, COUNT_OF(rows));
}
END_TEST

static void expect_error(struct bytes document, int code, const char *message)
{
	struct arena arena;
	struct sections got;
	struct error error = {0};

	arena_init(&arena);
	ck_assert_int_eq(sections_cut(&arena, document, SECTIONS_BY_HEADING, SECTION_TOKENS_DEFAULT, &got, &error), code);
	ck_assert_str_eq(error.message, message);
	ck_assert_uint_eq(got.count, 0);
	arena_close(&arena);
}

/* What is no text is refused with the place; what shows nothing is empty. */
START_TEST(refuses_what_is_no_document)
{
	expect_error(BYTES_OF(""), ERR_INVALID, "document is empty");
	expect_error((struct bytes){NULL, 0}, ERR_INVALID, "document is empty");
	expect_error(BYTES_OF(" \n\t\xC2\xA0\xE3\x80\x80\r\n"), ERR_INVALID, "document is empty");
	expect_error(BYTES_OF("\xEF\xBB\xBF\n"), ERR_INVALID, "document is empty");
	expect_error(BYTES_OF("ab\xC3(cd"), ERR_INVALID, "document is not UTF-8 at byte offset 2");
	expect_error(BYTES_OF("ab\0cd"), ERR_INVALID, "document holds a NUL byte at offset 2");
}
END_TEST

static struct bytes repeat(const char *part, size_t count)
{
	size_t len = strlen(part);
	uint8_t *data = memory_alloc(len * count + 1);

	if (len == 1)
		memset(data, part[0], count);
	for (size_t i = 0; len > 1 && i < count; i++)
		memcpy(data + i * len, part, len);
	return (struct bytes){data, len * count};
}

/* SECTIONS_MAX sections are cut, one more is refused; so are too many headings and too many bytes. */
START_TEST(limits_sections)
{
	struct arena arena;
	struct sections got;
	struct bytes document = repeat("# a\nb\n", SECTIONS_MAX + 1);

	arena_init(&arena);
	ck_assert_int_eq(sections_cut(&arena, (struct bytes){document.data, 6 * SECTIONS_MAX}, SECTIONS_BY_HEADING, 0, &got, NULL), 0);
	ck_assert_uint_eq(got.count, SECTIONS_MAX);
	ck_assert_uint_eq(got.items[SECTIONS_MAX - 1].end, 6 * SECTIONS_MAX - 1);
	arena_close(&arena);
	expect_error(document, ERR_TOO_LARGE, "document has more headings than SECTIONS_MAX 100000");
	free((void *)document.data);

	arena_init(&arena);
	document = repeat("a\n\n", SECTIONS_MAX + 1);
	ck_assert_int_eq(sections_cut(&arena, document, SECTIONS_BY_PARAGRAPH, 0, &got, NULL), ERR_TOO_LARGE);
	ck_assert_int_eq(sections_cut(&arena, document, SECTIONS_BY_NONE, 0, &got, NULL), 0);
	arena_close(&arena);
	free((void *)document.data);

	document = repeat("a", SECTIONS_DOCUMENT_MAX + 1);
	expect_error(document, ERR_TOO_LARGE, "document has 67108865 bytes, more than SECTIONS_DOCUMENT_MAX 67108864");
	free((void *)document.data);
}
END_TEST

/* Nothing is read behind the end of a document, not by md4c either, which no sanitizer sees: behind the document begins a page
 * that nobody may read. */
START_TEST(ends_where_the_document_ends)
{
	static const char *const texts[] = {"\x1d\x1f\x1f\n", "<", "<!", "<?", "<![", "#", "```", "- ", "&", "[", "a\n=", "|", "\\", "3", "a\n12", "- 3", "> 3", "-", "+", "a\n3)"};
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(pages, MAP_FAILED);
	ck_assert_int_eq(mprotect(pages + page, page, PROT_NONE), 0);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct arena arena;
		struct sections sections;
		struct error error;
		size_t len = strlen(texts[i]);
		uint8_t *end = pages + page - len;

		memcpy(end, texts[i], len);
		arena_init(&arena);
		ck_assert_int_eq(sections_cut(&arena, (struct bytes){end, len}, SECTIONS_BY_HEADING, 0, &sections, &error), 0);
		ck_assert_uint_eq(sections.count, 1);
		arena_close(&arena);
	}
	munmap(pages, 2 * page);
}
END_TEST

/* Documents made to be slow are not: one long line, a row of headings, silent headings that cannot be found. */
START_TEST(takes_linear_time)
{
	static const struct {
		const char *part;
		size_t count;
		enum sections_by by;
		unsigned max_tokens;
	} rows[] = {
		{"abc ", 90000, SECTIONS_BY_NONE, 1}, {"# a\n", 90000, SECTIONS_BY_HEADING, 2}, {"> #\n\n", 90000, SECTIONS_BY_HEADING, 0},
		{"##\n", 90000, SECTIONS_BY_PARAGRAPH, 1}, {" ", 0, SECTIONS_BY_NONE, 0}, {"e\xCC\x81", 90000, SECTIONS_BY_NONE, 1},
		{"\n\n\n\n", 90000, SECTIONS_BY_PARAGRAPH, 0}, {"```\n", 90000, SECTIONS_BY_PARAGRAPH, 0},
		/* With md4c alone each of these takes minutes. */
		{"[2026-11-30] [info] hello\n", 400000, SECTIONS_BY_HEADING, 0}, {"[a](\n", 400000, SECTIONS_BY_HEADING, 0},
		{"[a]: (\n", 400000, SECTIONS_BY_HEADING, 0}, {"[b](c|\n---|\n", 200000, SECTIONS_BY_HEADING, 0},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena;
		struct sections got;
		struct bytes row = repeat(rows[i].part, rows[i].count);
		uint8_t *data = memory_resize((void *)row.data, row.len + 4);

		memcpy(data + row.len, "\nz.\n", 4);
		arena_init(&arena);
		ck_assert_int_eq(sections_cut(&arena, (struct bytes){data, row.len + 4}, rows[i].by, rows[i].max_tokens, &got, NULL), 0);
		ck_assert_uint_gt(got.count, 0);
		arena_close(&arena);
		free(data);
	}
}
END_TEST

/* Neither are lists in lists in lists, on one line or each one indented further, with blank lines behind; a rule of the same signs stays one. */
START_TEST(nests_lists_in_linear_time)
{
	static const char *const markers[] = {"* ", "1. ", "> - "};
	enum { COUNT = 100 * 1000 };

	for (size_t i = 0; i < COUNT_OF(markers); i++) {
		struct arena arena;
		struct sections got;
		struct buffer text;

		buffer_init(&text, 16 << 20);
		for (size_t k = 0; k < COUNT; k++)
			buffer_add_text(&text, markers[i]);
		buffer_add_text(&text, "a\n");
		for (size_t k = 0; k < COUNT; k++)
			buffer_add_text(&text, markers[i][0] == '>' ? ">\n" : "\n");
		for (size_t k = 0; k < 1000; k++) {
			for (size_t blank = 0; blank < k; blank++)
				buffer_add_text(&text, "  ");
			buffer_add_text(&text, "- a\n");
		}
		for (size_t k = 0; k < COUNT; k++)
			buffer_add_text(&text, "\n");
		/* Were the rule a list of lists, "b" would be an item's, and no heading. */
		for (size_t k = 0; k < COUNT; k++)
			buffer_add_text(&text, "* ");
		buffer_add_text(&text, "\nb\n===\nc\n");
		arena_init(&arena);
		ck_assert_int_eq(sections_cut(&arena, buffer_bytes(&text), SECTIONS_BY_HEADING, 0, &got, NULL), 0);
		ck_assert_uint_eq(got.count, 2);
		ck_assert_str_eq(got.items[1].heading, "b");
		arena_close(&arena);
		buffer_close(&text);
	}
}
END_TEST

/* Many links in many lines without a blank one: headings between them are found, and have their texts, a setext one as it is written. */
START_TEST(finds_headings_among_many_links)
{
	struct arena arena;
	struct sections got;
	struct buffer text;

	buffer_init(&text, 1 << 20);
	for (size_t k = 0; k < 1000; k++)
		buffer_add_text(&text, "see [a](#a) and [b]\n");
	buffer_add_text(&text, "# One [two](three) *four*\n");
	for (size_t k = 0; k < 1000; k++)
		buffer_add_text(&text, "- [a](#a)\n");
	buffer_add_text(&text, "***\n[five](six)\n---\nseven\n");
	arena_init(&arena);
	ck_assert_int_eq(sections_cut(&arena, buffer_bytes(&text), SECTIONS_BY_HEADING, 0, &got, NULL), 0);
	ck_assert_uint_eq(got.count, 3);
	ck_assert_ptr_null(got.items[0].heading);
	ck_assert_str_eq(got.items[1].heading, "One two four");
	ck_assert_uint_eq(got.items[1].level, 1);
	ck_assert_str_eq(got.items[2].heading, "[five](six)");
	ck_assert_uint_eq(got.items[2].level, 2);
	arena_close(&arena);
	buffer_close(&text);
}
END_TEST

/* A heading's text is cut at HEADING_LEN_MAX 512 bytes, between characters; the section's bytes are not. */
START_TEST(limits_heading_texts)
{
	struct arena arena;
	struct sections got;
	struct bytes row = repeat("\xE5\x8C\x97", 200);
	char document[2 + 600 + 3] = "# ";

	memcpy(document + 2, row.data, row.len);
	memcpy(document + 602, "\na", 3);
	arena_init(&arena);
	ck_assert_int_eq(sections_cut(&arena, bytes_text(document), SECTIONS_BY_HEADING, 0, &got, NULL), 0);
	ck_assert_uint_eq(got.count, 1);
	ck_assert_uint_eq(got.items[0].end, 604);
	ck_assert_uint_eq(strlen(got.items[0].heading), 510);
	arena_close(&arena);
	free((void *)row.data);
}
END_TEST

/* For inner loops: ck_assert() writes to a file each time. */
#define HOLDS(condition)                                          \
	do {                                                      \
		if (!(condition))                                 \
			ck_abort_msg("%s does not hold", #condition); \
	} while (0)

static struct bytes read_sample(void)
{
	FILE *file = fopen(SAMPLE_FILE, "rb");
	uint8_t *data = memory_alloc(1 << 20);
	size_t len;

	ck_assert_msg(file != NULL, "cannot open %s", SAMPLE_FILE);
	len = fread(data, 1, 1 << 20, file);
	fclose(file);
	return (struct bytes){data, len};
}

/* For the sample document, every manner and many lengths: sections are in order, none is empty or too long, they begin and end
 * at whole characters, and between them lies white space alone. */
START_TEST(keeps_every_byte_of_the_sample)
{
	static const enum sections_by manners[] = {SECTIONS_BY_HEADING, SECTIONS_BY_PARAGRAPH, SECTIONS_BY_NONE};
	struct bytes sample = read_sample();

	for (size_t by = 0; by < COUNT_OF(manners); by++) {
		for (unsigned max_tokens = 0; max_tokens < 400; max_tokens = max_tokens < 20 ? max_tokens + 1 : max_tokens * 2) {
			struct arena arena;
			struct sections got;
			size_t at = 0;

			arena_init(&arena);
			ck_assert_int_eq(sections_cut(&arena, sample, manners[by], max_tokens, &got, NULL), 0);
			for (size_t i = 0; i <= got.count; i++) {
				size_t start = i < got.count ? got.items[i].start : sample.len;

				HOLDS(at <= start);
				for (; at < start; at++)
					HOLDS(strchr(" \t\n", sample.data[at]) != NULL);
				if (i == got.count)
					break;
				at = got.items[i].end;
				HOLDS(start < at);
				/* 16 bytes are longer than any cluster of the sample. */
				HOLDS(max_tokens == 0 || at - start <= 4 * (size_t)max_tokens || max_tokens < 4);
				HOLDS(utf8_valid((struct bytes){sample.data + start, at - start}, NULL));
			}
			arena_close(&arena);
		}
	}
	free((void *)sample.data);
}
END_TEST

/* The sample has the sections that the quickstart promises: some 50, each under a heading of its own. */
START_TEST(cuts_the_sample_by_heading)
{
	struct bytes sample = read_sample();
	struct arena arena;
	struct sections got;

	arena_init(&arena);
	ck_assert_int_eq(sections_cut(&arena, sample, SECTIONS_BY_HEADING, SECTION_TOKENS_DEFAULT, &got, NULL), 0);
	ck_assert_uint_eq(got.count, 50);
	for (size_t i = 0; i < got.count; i++) {
		ck_assert_ptr_nonnull(got.items[i].heading);
		ck_assert_uint_eq(sample.data[got.items[i].start], i == 0 ? '-' : '#');
		ck_assert_uint_ge(got.items[i].end - got.items[i].start, 200);
	}
	arena_close(&arena);
	free((void *)sample.data);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sections");
	TCase *tests = tcase_create("sections");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, cuts_at_headings);
	tcase_add_test(tests, cuts_at_paragraphs_or_not_at_all);
	tcase_add_test(tests, cuts_what_is_too_long);
	tcase_add_test(tests, refuses_what_is_no_document);
	tcase_add_test(tests, limits_sections);
	tcase_add_test(tests, ends_where_the_document_ends);
	tcase_add_test(tests, takes_linear_time);
	tcase_add_test(tests, nests_lists_in_linear_time);
	tcase_add_test(tests, finds_headings_among_many_links);
	tcase_add_test(tests, limits_heading_texts);
	tcase_add_test(tests, keeps_every_byte_of_the_sample);
	tcase_add_test(tests, cuts_the_sample_by_heading);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
