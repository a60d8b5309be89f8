/* What the command line prints: text tables, JSON, progress; nothing hostile reaches a terminal (semantics.md 10).
 * One thread. New here? Read output_text(), which every text of a document, a model or a peer goes through. */
#pragma once

#include <stdio.h>

#include "workflow/base/json.h"

enum output_format { FORMAT_TEXT, FORMAT_JSON, FORMAT_JSONL, FORMAT_IDS };
enum {
	OUTPUT_WIDTH_DEFAULT = 120, /* columns, when standard output is no terminal */
	OUTPUT_WIDTH_MIN = 40,
	OUTPUT_JSON_MAX = 1 << 30, /* bytes of one printed JSON text */
	TABLE_COLUMNS_MAX = 12,
};

enum colour { COLOUR_NONE, COLOUR_GOOD, COLOUR_BAD, COLOUR_WARN, COLOUR_DIM, COLOUR_BOLD };
enum time_format { TIME_RELATIVE, TIME_ISO, TIME_RAW };

struct output {
	enum output_format format;
	enum time_format time_format;
	bool colours, error_colours; /* on standard output, on standard error */
	bool progress; /* standard error is a terminal that can redraw a line */
	bool terminal; /* standard output is one */
	size_t width; /* columns of text */
	bool progress_shown;
	int64_t progress_drawn_ms;
};

/* choice: "auto", "always" or "never". Looks at the terminals, NO_COLOR, TERM and COLUMNS. */
void output_init(struct output *output, enum output_format format, const char *choice);

/* True for code points that change what a terminal shows instead of showing something: control characters, bidirectional
 * overrides and marks, line separators, tags. */
bool code_point_hostile(uint32_t code_point);
/* Add text with hostile code points as \u{…} and bytes that are no UTF-8 as \x{…}. keep_lines: newlines and tabs stay. */
void text_escape(struct buffer *out, struct bytes text, bool keep_lines);
/* Columns that escaped text takes. */
size_t text_width(struct bytes text);
/* Escaped and whole, on one line: a line break in somebody's text could be taken for a line of ours. NULL for NULL. */
char *text_line(struct arena *arena, const char *text);
/* Escaped, on one line, cut to `width` columns with an ellipsis. */
char *text_shorten(struct arena *arena, const char *text, size_t width);

/* Standard output. */
void output_text(struct output *output, const char *text); /* escaped, newlines kept, no newline added */
void output_line(struct output *output, const char *format, ...) __attribute__((format(printf, 2, 3))); /* escaped */
void output_json(struct output *output, const struct json *json); /* indented (json) or on one line (jsonl), and a newline */
void output_coloured(struct output *output, enum colour colour, const char *text); /* escaped */
/* The same on standard error. */
void output_note(struct output *output, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum colour status_colour(const char *status);
/* A time of the API as the user wants it: "3m ago", to the second, or as it came. NULL: "-". */
const char *output_time(struct output *output, struct arena *arena, const char *text);
char *text_milliseconds(struct arena *arena, double ms); /* "0.412 ms", "3.21 s", "4m 10s" */
char *text_size(struct arena *arena, double bytes); /* "12.3 MiB" */

/* A table. Cells are escaped. On a terminal they are shortened, and a note says so; the last column takes what is left of the width. Elsewhere they come whole. */
struct table_column {
	const char *title;
	size_t width_max; /* on a terminal cut at this, and further where the terminal is narrow; 0: as wide as it needs */
	bool right;
};
struct table {
	struct arena *arena;
	const struct table_column *columns;
	size_t column_count;
	const char **cells; /* escaped; row by row */
	enum colour *colours;
	size_t row_count, row_cap;
	bool uncut; /* the last column is something to copy: never shortened to the width */
};
void table_init(struct table *table, struct arena *arena, const struct table_column *columns, size_t count);
/* Cells in order of the columns; NULL is shown as "-". */
void table_add(struct table *table, const char *const *cells);
void table_colour(struct table *table, size_t column, enum colour colour); /* of the last row */
void table_print(struct table *table, struct output *output);
void table_close(struct table *table);

/* A bar on standard error, redrawn in place; nothing at all when that is no terminal. total 0: not known yet. */
void progress_show(struct output *output, uint64_t done, uint64_t total, const char *text);
void progress_clear(struct output *output);

/* One CSV record (RFC 4180); cells that a spreadsheet would run as a formula begin with an apostrophe, and what text_escape()
 * escapes is escaped, line breaks and tabs aside. */
void csv_add(struct buffer *out, const char *const *cells, size_t count);

int64_t clock_wall_ms(void);
uint64_t clock_us(void); /* monotonic */
