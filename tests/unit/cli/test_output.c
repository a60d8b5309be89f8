/* Tests of cli/output.c: nothing hostile reaches a terminal, tables fit, CSV is inert. */
#include "cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cli/suite.h"
#include "workflow/base/check.h"
#include "workflow/base/time.h"

static char *escaped(struct arena *arena, const char *text, bool keep_lines)
{
	struct buffer out;
	buffer_init(&out, 65536);
	text_escape(&out, bytes_text(text), keep_lines);
	char *copy = arena_text(arena, buffer_text(&out));
	buffer_close(&out);
	return copy;
}

/* width 0: not on a terminal. */
static char *printed(struct table *table, size_t width)
{
	char *text = NULL;
	size_t size;
	FILE *kept = stdout, *file = open_memstream(&text, &size);
	struct output output = {.terminal = width > 0, .width = width > 0 ? width : OUTPUT_WIDTH_MIN};
	stdout = file;
	table_print(table, &output);
	stdout = kept;
	fclose(file);
	return text;
}

/* A table is as wide as its texts where there is room. Where there is not, the columns that may be cut give way, the widest first,
 * and no line is wider than the terminal; what is for copying (an id) stays whole. */
START_TEST(tables_fit_the_terminal)
{
	static const struct table_column columns[] = {{"ID", 0, false}, {"SUBJECT", 40, false}, {"OBJECT", 40, false}, {"QUOTE", 0, false}};
	static const char *const cells[] = {"c62f59356dcf558e", "a subject of thirty-one columns", "short", "a quote that is a good deal longer than that"};
	struct arena arena;
	struct table table;
	arena_init(&arena);
	table_init(&table, &arena, columns, COUNT_OF(columns));
	table_add(&table, cells);

	char *text = printed(&table, 200);
	ck_assert_ptr_nonnull(strstr(text, "c62f59356dcf558e  a subject of thirty-one columns  short   a quote that is a good deal longer than that\n"));
	free(text);
	text = printed(&table, 60);
	ck_assert_ptr_nonnull(strstr(text, "\nc62f59356dcf558e  a subject o…  short   a quote that is a g…\n"));
	free(text);
	for (size_t width = 50; width < 120; width++) {
		char *place = NULL, *line;
		text = printed(&table, width);
		for (line = strtok_r(text, "\n", &place); line != NULL; line = strtok_r(NULL, "\n", &place))
			ck_assert_msg(text_width(bytes_text(line)) <= width, "%zu: %s", width, line);
		free(text);
	}
	table_close(&table);
	arena_close(&arena);
}
END_TEST

/* Where no terminal is, each value comes whole, whatever its column has on one; none makes the others as wide as itself where it would be cut there. */
START_TEST(tables_come_whole_elsewhere)
{
	static const struct table_column columns[] = {{"ID", 0, false}, {"SOURCE", 12, false}, {"N", 5, true}, {"VALUE", 20, false}};
	struct arena arena;
	struct table table;
	char source[5001] = {0}, value[9001] = {0};
	arena_init(&arena);
	memset(source, 's', 5000);
	memset(value, 'v', 9000);
	table_init(&table, &arena, columns, COUNT_OF(columns));
	table_add(&table, (const char *[]){"a", source, "1234567", value});
	table_add(&table, (const char *[]){"b", "short", "1", "two\nlines"});

	char *text = printed(&table, 0);
	ck_assert_ptr_nonnull(strstr(text, arena_printf(&arena, "\na   %s  1234567  %s\n", source, value)));
	ck_assert_ptr_nonnull(strstr(text, "\nb   short             1  two lines\n"));
	ck_assert_ptr_null(strstr(text, "…"));
	free(text);
	text = printed(&table, 200);
	ck_assert_ptr_nonnull(strstr(text, "\na   sssssssssss…  1234…  vvvvvvvvvvvvvvvvvvv…\n"));
	free(text);
	table_close(&table);
	arena_close(&arena);
}
END_TEST

/* Control characters, bidirectional overrides and invisible tags are shown as \u{…}, bytes that are no UTF-8 as \x{…}; all
 * other text, of any script, passes unchanged. */
START_TEST(hostile_text_is_escaped)
{
	static const struct {
		const char *text, *shown;
	} rows[] = {
		{"plain", "plain"},
		{"\033[2J", "\\u{1B}[2J"},
		{"\033]0;title\007", "\\u{1B}]0;title\\u{7}"},
		{"a\rb\bc\177", "a\\u{D}b\\u{8}c\\u{7F}"},
		{"\xc2\x9b" "31m", "\\u{9B}31m"},
		{"user\u202egnp.exe", "user\\u{202E}gnp.exe"},
		{"\u202a\u202b\u202c\u202d\u202e", "\\u{202A}\\u{202B}\\u{202C}\\u{202D}\\u{202E}"},
		{"\u2066\u2067\u2068\u2069", "\\u{2066}\\u{2067}\\u{2068}\\u{2069}"},
		{"\u200e\u200f\u061c", "\\u{200E}\\u{200F}\\u{61C}"},
		{"\u2028\u2029\ufeff", "\\u{2028}\\u{2029}\\u{FEFF}"},
		{"\U000e0041", "\\u{E0041}"},
		{"Zürich 東京 שלום e\u0301 👩\u200d🔬", "Zürich 東京 שלום e\u0301 👩\u200d🔬"},
		{"\xff\xc3(", "\\x{FF}\\x{C3}("},
		{"\xed\xa0\x80", "\\x{ED}\\x{A0}\\x{80}"},
	};
	struct arena arena;
	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		ck_assert_str_eq(escaped(&arena, rows[i].text, false), rows[i].shown);
	arena_close(&arena);
}
END_TEST

/* Line breaks and tabs stay only where they are asked for. */
START_TEST(line_breaks_stay_where_they_may)
{
	struct arena arena;
	arena_init(&arena);
	ck_assert_str_eq(escaped(&arena, "a\n\tb", true), "a\n\tb");
	ck_assert_str_eq(escaped(&arena, "a\n\tb", false), "a\\u{A}\\u{9}b");
	arena_close(&arena);
}
END_TEST

/* Every code point is either shown or escaped, and what is escaped holds no control character any more. */
START_TEST(no_code_point_slips_through)
{
	for (uint32_t c = 1; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
		struct buffer text, out;
		if (c >= 0xd800 && c <= 0xdfff)
			continue;
		buffer_init(&text, 64);
		buffer_init(&out, 64);
		if (c < 0x80)
			buffer_printf(&text, "%c", (char)c);
		else if (c < 0x800)
			buffer_printf(&text, "%c%c", (char)(0xc0 | (c >> 6)), (char)(0x80 | (c & 63)));
		else if (c < 0x10000)
			buffer_printf(&text, "%c%c%c", (char)(0xe0 | (c >> 12)), (char)(0x80 | ((c >> 6) & 63)), (char)(0x80 | (c & 63)));
		else
			buffer_printf(&text, "%c%c%c%c", (char)(0xf0 | (c >> 18)), (char)(0x80 | ((c >> 12) & 63)), (char)(0x80 | ((c >> 6) & 63)), (char)(0x80 | (c & 63)));
		text_escape(&out, buffer_bytes(&text), false);
		if (code_point_hostile(c)) {
			for (size_t i = 0; i < out.len; i++)
				ck_assert_msg(out.data[i] >= 0x20 && out.data[i] < 0x7f, "U+%04X", c);
		} else {
			ck_assert_msg(bytes_equal(buffer_bytes(&out), buffer_bytes(&text)), "U+%04X", c);
		}
		buffer_close(&text);
		buffer_close(&out);
	}
}
END_TEST

/* Widths count columns of a terminal: wide characters two, combining marks none. */
START_TEST(width_counts_columns)
{
	ck_assert_uint_eq(text_width(bytes_text("abc")), 3);
	ck_assert_uint_eq(text_width(bytes_text("ü")), 1);
	ck_assert_uint_eq(text_width(bytes_text("e\u0301")), 1);
	ck_assert_uint_eq(text_width(bytes_text("東京")), 4);
}
END_TEST

/* Somebody's text stays on its line, whole, so that it cannot pass for a line of ours. */
START_TEST(a_text_stays_on_its_line)
{
	struct arena arena;
	arena_init(&arena);
	ck_assert_str_eq(text_line(&arena, "as  asked\nstatus\tcompleted\033[31m"), "as  asked\\u{A}status\\u{9}completed\\u{1B}[31m");
	ck_assert_ptr_null(text_line(&arena, NULL));
	arena_close(&arena);
}
END_TEST

/* A text that is too wide ends in an ellipsis within its columns; line breaks become spaces; no character is cut. */
START_TEST(shortened_texts_fit)
{
	struct arena arena;
	arena_init(&arena);
	ck_assert_str_eq(text_shorten(&arena, "abcdef", 6), "abcdef");
	ck_assert_str_eq(text_shorten(&arena, "abcdefg", 6), "abcde…");
	ck_assert_str_eq(text_shorten(&arena, "a\r\n  b\tc", 20), "a b c");
	ck_assert_str_eq(text_shorten(&arena, "東京都庁", 6), "東京…");
	for (size_t width = 1; width < 20; width++)
		ck_assert_uint_le(text_width(bytes_text(text_shorten(&arena, "x東e\u0301y京ü\u202ez👍 more of it", width))), width);
	arena_close(&arena);
}
END_TEST

/* A cell that a spreadsheet would run as a formula begins with an apostrophe; commas, quotes and line breaks are quoted. */
START_TEST(csv_cells_are_inert)
{
	static const struct {
		const char *cell, *written;
	} rows[] = {
		{"plain", "plain\r\n"}, {"a,b", "\"a,b\"\r\n"}, {"say \"hi\"", "\"say \"\"hi\"\"\"\r\n"}, {"two\nlines", "\"two\nlines\"\r\n"},
		{"=1+1", "\"'=1+1\"\r\n"}, {"+1", "\"'+1\"\r\n"}, {"-1", "\"'-1\"\r\n"}, {"@SUM(A1)", "\"'@SUM(A1)\"\r\n"}, {"\t=1", "\"'\t=1\"\r\n"},
		{"a=b", "a=b\r\n"}, {"", "\r\n"}, {NULL, "\r\n"},
		/* what would move a terminal's cursor or turn its text around is written out, as on a terminal; line breaks and tabs stay */
		{"a\033[2Jb", "a\\u{1B}[2Jb\r\n"}, {"a,\033]0;t\007\"b\"", "\"a,\\u{1B}]0;t\\u{7}\"\"b\"\"\"\r\n"}, {"\r=1", "\"'\\u{D}=1\"\r\n"},
		{"x\u202ey", "x\\u{202E}y\r\n"}, {"a\tb", "a\tb\r\n"}, {"one\r\ntwo", "\"one\\u{D}\ntwo\"\r\n"},
	};
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct buffer out;
		buffer_init(&out, 1000);
		csv_add(&out, &rows[i].cell, 1);
		ck_assert_str_eq(buffer_text(&out), rows[i].written);
		buffer_close(&out);
	}
	struct buffer out;
	buffer_init(&out, 1000);
	csv_add(&out, (const char *const[]){"a", NULL, "c"}, 3);
	ck_assert_str_eq(buffer_text(&out), "a,,c\r\n");
	buffer_close(&out);
}
END_TEST

/* A time to come is never "ago", not even within its last second. */
START_TEST(times_to_come_are_told_apart)
{
	static const struct {
		int64_t from_now_ms;
		const char *text;
	} rows[] = {{900, "0s from now"}, {2900, "2s from now"}, {-100, "0s ago"}, {-61000, "1m ago"}, {-3 * 3600 * 1000, "3h ago"}, {-50 * 3600 * 1000, "2d ago"}};
	struct output output;
	struct arena arena;
	output_init(&output, FORMAT_TEXT, "never");
	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char time[TIME_TEXT_LEN + 1];
		time_text(clock_wall_ms() + rows[i].from_now_ms, time);
		ck_assert_str_eq(output_time(&output, &arena, time), rows[i].text);
	}
	arena_close(&arena);
}
END_TEST

RUN_SUITE("cli-output", times_to_come_are_told_apart, tables_fit_the_terminal, tables_come_whole_elsewhere, hostile_text_is_escaped, line_breaks_stay_where_they_may, no_code_point_slips_through, width_counts_columns, a_text_stays_on_its_line, shortened_texts_fit, csv_cells_are_inert)
