/* See output.h. */
#include "cli/output.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <utf8proc.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"

enum {
	PROGRESS_REDRAW_MS = 50,
	PROGRESS_BAR_WIDTH = 30,
	LINE_MAX_BYTES = 1 << 26,
	COLUMN_WIDTH_MIN = 10, /* of a column that gives way */
	LAST_WIDTH_MIN = 20, /* of the last column, for which the others give way */
};

int64_t clock_wall_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

uint64_t clock_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static bool decide_colour(const char *choice, int fd)
{
	if (strcmp(choice, "always") == 0)
		return true;
	if (strcmp(choice, "never") == 0)
		return false;
	const char *no_colour = getenv("NO_COLOR");
	const char *term = getenv("TERM");
	return isatty(fd) && (no_colour == NULL || no_colour[0] == '\0') && term != NULL && strcmp(term, "dumb") != 0;
}

void output_init(struct output *output, enum output_format format, const char *choice)
{
	memset(output, 0, sizeof *output);
	output->format = format;
	output->colours = decide_colour(choice, STDOUT_FILENO);
	output->error_colours = decide_colour(choice, STDERR_FILENO);
	const char *term = getenv("TERM");
	output->progress = isatty(STDERR_FILENO) && (term == NULL || strcmp(term, "dumb") != 0);
	output->width = OUTPUT_WIDTH_DEFAULT;
	output->terminal = isatty(STDOUT_FILENO);
	struct winsize size;
	const char *columns = getenv("COLUMNS");
	if (output->terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		output->width = size.ws_col;
	else if (columns != NULL && atoi(columns) > 0)
		output->width = (size_t)atoi(columns);
	if (output->width < OUTPUT_WIDTH_MIN)
		output->width = OUTPUT_WIDTH_MIN;
}

bool code_point_hostile(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);
}

/* One step through text. Returns the bytes taken; *code_point is -1 for a byte that is no UTF-8. */
static size_t next_code_point(const uint8_t *data, size_t len, int32_t *code_point)
{
	utf8proc_ssize_t taken = utf8proc_iterate(data, (utf8proc_ssize_t)len, code_point);
	if (taken > 0)
		return (size_t)taken;
	*code_point = -1;
	return 1;
}

void text_escape(struct buffer *out, struct bytes text, bool keep_lines)
{
	for (size_t i = 0; i < text.len;) {
		int32_t c;
		size_t taken = next_code_point(text.data + i, text.len - i, &c);
		if (c < 0)
			buffer_printf(out, "\\x{%02X}", text.data[i]);
		else if (keep_lines && (c == '\n' || c == '\t'))
			buffer_add_char(out, (char)c);
		else if (code_point_hostile((uint32_t)c))
			buffer_printf(out, "\\u{%X}", (unsigned)c);
		else
			buffer_add(out, text.data + i, taken);
		i += taken;
	}
}

size_t text_width(struct bytes text)
{
	size_t width = 0;
	for (size_t i = 0; i < text.len;) {
		int32_t c;
		i += next_code_point(text.data + i, text.len - i, &c);
		int columns = c < 0 ? 1 : utf8proc_charwidth(c);
		width += columns > 0 ? (size_t)columns : 0;
	}
	return width;
}

/* Cut text that is escaped already. */
static char *cut_to_width(struct arena *arena, struct bytes text, size_t width)
{
	if (text_width(text) <= width)
		return arena_text_len(arena, (const char *)text.data, text.len);
	size_t used = 0, i = 0;
	while (i < text.len) {
		int32_t c;
		size_t taken = next_code_point(text.data + i, text.len - i, &c);
		int columns = c < 0 ? 1 : utf8proc_charwidth(c);
		if (columns > 0 && used + (size_t)columns + 1 > width)
			break;
		used += columns > 0 ? (size_t)columns : 0;
		i += taken;
	}
	return arena_printf(arena, "%.*s…", (int)i, (const char *)text.data);
}

char *text_line(struct arena *arena, const char *text)
{
	struct buffer escaped;
	if (text == NULL)
		return NULL;
	buffer_init(&escaped, LINE_MAX_BYTES);
	text_escape(&escaped, bytes_text(text), false);
	char *result = arena_text(arena, buffer_text(&escaped));
	buffer_close(&escaped);
	return result;
}

char *text_shorten(struct arena *arena, const char *text, size_t width)
{
	/* A line break inside a quote is no attack and reads best as a space. */
	struct buffer flat, escaped;
	buffer_init(&flat, LINE_MAX_BYTES);
	buffer_init(&escaped, LINE_MAX_BYTES);
	bool space = false;
	for (const char *p = text; *p != '\0'; p++) {
		bool white = *p == ' ' || *p == '\n' || *p == '\t' || *p == '\r';
		if (white && space)
			continue;
		buffer_add_char(&flat, white ? ' ' : *p);
		space = white;
	}
	text_escape(&escaped, buffer_bytes(&flat), false);
	char *result = cut_to_width(arena, buffer_bytes(&escaped), width);
	buffer_close(&flat);
	buffer_close(&escaped);
	return result;
}

static const char *const colour_codes[] = {
	[COLOUR_NONE] = "", [COLOUR_GOOD] = "\033[32m", [COLOUR_BAD] = "\033[31m",
	[COLOUR_WARN] = "\033[33m", [COLOUR_DIM] = "\033[2m", [COLOUR_BOLD] = "\033[1m",
};

enum colour status_colour(const char *status)
{
	static const struct {
		const char *word;
		enum colour colour;
	} words[] = {
		{"completed", COLOUR_GOOD}, {"pass", COLOUR_GOOD}, {"VALID", COLOUR_GOOD}, {"ready", COLOUR_GOOD},
		{"faulted", COLOUR_BAD}, {"fail", COLOUR_BAD}, {"INVALID", COLOUR_BAD}, {"MALFORMED", COLOUR_BAD}, {"error", COLOUR_BAD},
		{"cancelled", COLOUR_WARN}, {"suspended", COLOUR_WARN}, {"unverifiable", COLOUR_WARN}, {"UNVERIFIABLE", COLOUR_WARN},
		{"skipped", COLOUR_DIM}, {"note", COLOUR_DIM},
	};
	for (size_t i = 0; status != NULL && i < COUNT_OF(words); i++)
		if (strcmp(words[i].word, status) == 0)
			return words[i].colour;
	return COLOUR_NONE;
}

static void print_escaped(FILE *file, struct bytes text)
{
	struct buffer escaped;
	buffer_init(&escaped, OUTPUT_JSON_MAX);
	text_escape(&escaped, text, true);
	fputs(buffer_text(&escaped), file); /* what is escaped holds no NUL */
	buffer_close(&escaped);
}

void output_text(struct output *output, const char *text)
{
	(void)output;
	print_escaped(stdout, bytes_text(text));
}

__attribute__((format(printf, 2, 0))) static void print_formatted(FILE *file, const char *format, va_list list)
{
	char *text = NULL;
	int len = vasprintf(&text, format, list);
	CHECK(len >= 0);
	print_escaped(file, (struct bytes){(const uint8_t *)text, (size_t)len});
	fputc('\n', file);
	free(text);
}

void output_line(struct output *output, const char *format, ...)
{
	(void)output;
	va_list list;
	va_start(list, format);
	print_formatted(stdout, format, list);
	va_end(list);
}

void output_note(struct output *output, const char *format, ...)
{
	progress_clear(output);
	va_list list;
	va_start(list, format);
	print_formatted(stderr, format, list);
	va_end(list);
}

void output_coloured(struct output *output, enum colour colour, const char *text)
{
	bool coloured = output->colours && colour != COLOUR_NONE;
	if (coloured)
		fputs(colour_codes[colour], stdout);
	print_escaped(stdout, bytes_text(text));
	if (coloured)
		fputs("\033[0m", stdout);
}

void output_json(struct output *output, const struct json *json)
{
	static const struct json nothing = {.type = JSON_NULL};
	struct buffer text;
	if (json == NULL) /* an answer without a body */
		json = &nothing;
	buffer_init(&text, OUTPUT_JSON_MAX);
	if (output->format == FORMAT_JSONL)
		json_print(json, &text);
	else
		json_print_pretty(json, &text);
	if (text.overflow) { /* indentation of a deep value can be the larger part of it */
		buffer_close(&text);
		buffer_init(&text, OUTPUT_JSON_MAX);
		json_print(json, &text);
	}
	CHECK(!text.overflow);
	while (text.len > 0 && text.data[text.len - 1] == '\n')
		text.len--;
	/* Hostile code points can stand inside strings only, where \uXXXX means the same value and shows as letters. */
	size_t start = 0;
	for (size_t i = 0; i < text.len;) {
		int32_t c;
		size_t taken = next_code_point(text.data + i, text.len - i, &c);
		if (c >= 0x7f && code_point_hostile((uint32_t)c)) {
			fwrite(text.data + start, 1, i - start, stdout);
			if (c > 0xffff)
				printf("\\u%04x\\u%04x", (unsigned)(0xd800 + ((c - 0x10000) >> 10)), (unsigned)(0xdc00 + ((c - 0x10000) & 0x3ff)));
			else
				printf("\\u%04x", (unsigned)c);
			start = i + taken;
		}
		i += taken;
	}
	fwrite(text.data + start, 1, text.len - start, stdout);
	fputc('\n', stdout);
	buffer_close(&text);
}

const char *output_time(struct output *output, struct arena *arena, const char *text)
{
	int64_t ms;
	if (text == NULL)
		return "-";
	if (output->time_format == TIME_RAW || !time_parse(text, &ms))
		return text;
	if (output->time_format == TIME_ISO) {
		time_t seconds = (time_t)(ms / 1000);
		struct tm broken;
		char date[40], zone[16];
		localtime_r(&seconds, &broken);
		strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &broken);
		strftime(zone, sizeof zone, "%z", &broken);
		/* RFC 3339 wants the colon in "+02:00", so that the text can be given back as a time. */
		return arena_printf(arena, "%s%.3s:%s", date, zone, strlen(zone) > 3 ? zone + 3 : "00");
	}
	int64_t since_ms = clock_wall_ms() - ms, ago = since_ms / 1000;
	const char *tail = since_ms < 0 ? "from now" : "ago";
	ago = ago < 0 ? -ago : ago;
	if (ago < 60)
		return arena_printf(arena, "%llds %s", (long long)ago, tail);
	if (ago < 3600)
		return arena_printf(arena, "%lldm %s", (long long)(ago / 60), tail);
	if (ago < 48 * 3600)
		return arena_printf(arena, "%lldh %s", (long long)(ago / 3600), tail);
	return arena_printf(arena, "%lldd %s", (long long)(ago / 86400), tail);
}

char *text_milliseconds(struct arena *arena, double ms)
{
	if (ms < 10)
		return arena_printf(arena, "%.3f ms", ms);
	if (ms < 1000)
		return arena_printf(arena, "%.1f ms", ms);
	if (ms < 60000)
		return arena_printf(arena, "%.2f s", ms / 1000);
	return arena_printf(arena, "%lldm %llds", (long long)(ms / 60000), (long long)(ms / 1000) % 60);
}

char *text_size(struct arena *arena, double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	size_t unit = 0;
	while (bytes >= 1024 && unit + 1 < COUNT_OF(units)) {
		bytes /= 1024;
		unit++;
	}
	return arena_printf(arena, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

void table_init(struct table *table, struct arena *arena, const struct table_column *columns, size_t count)
{
	CHECK(count >= 1);
	CHECK(count <= TABLE_COLUMNS_MAX);
	*table = (struct table){.arena = arena, .columns = columns, .column_count = count};
}

void table_close(struct table *table)
{
	free(table->cells);
	free(table->colours);
	table->cells = NULL;
	table->colours = NULL;
	table->row_count = table->row_cap = 0;
}

void table_add(struct table *table, const char *const *cells)
{
	if (table->row_count == table->row_cap) {
		table->row_cap = table->row_cap == 0 ? 64 : table->row_cap * 2;
		table->cells = memory_resize(table->cells, table->row_cap * table->column_count * sizeof *table->cells);
		table->colours = memory_resize(table->colours, table->row_cap * table->column_count * sizeof *table->colours);
	}
	size_t first = table->row_count++ * table->column_count;
	for (size_t i = 0; i < table->column_count; i++) {
		table->cells[first + i] = cells[i] == NULL ? "-" : text_shorten(table->arena, cells[i], SIZE_MAX);
		table->colours[first + i] = COLOUR_NONE;
	}
}

void table_colour(struct table *table, size_t column, enum colour colour)
{
	CHECK(table->row_count > 0);
	table->colours[(table->row_count - 1) * table->column_count + column] = colour;
}

static void print_cell(struct output *output, const char *text, size_t width, bool right, bool last, enum colour colour)
{
	size_t used = text_width(bytes_text(text));
	size_t gap = width > used ? width - used : 0;
	if (right)
		printf("%*s", (int)gap, "");
	output_coloured(output, colour, text);
	if (!right && !last)
		printf("%*s", (int)gap, "");
	fputs(last ? "\n" : "  ", stdout);
}

/* What a column takes where there is room. */
static size_t wanted_width(const struct table *table, size_t column)
{
	const struct table_column *rule = &table->columns[column];
	size_t title = text_width(bytes_text(rule->title)), wanted = title;

	for (size_t row = 0; row < table->row_count; row++) {
		size_t width = text_width(bytes_text(table->cells[row * table->column_count + column]));
		wanted = width > wanted ? width : wanted;
	}
	if (rule->width_max > 0 && wanted > rule->width_max && !(table->uncut && column == table->column_count - 1))
		return rule->width_max > title ? rule->width_max : title;
	return wanted;
}

void table_print(struct table *table, struct output *output)
{
	size_t widths[TABLE_COLUMNS_MAX], used = 0, last = table->column_count - 1;
	bool was_cut = false;
	for (size_t i = 0; i <= last; i++) {
		widths[i] = wanted_width(table, i);
		used += i < last ? widths[i] + 2 : 0;
	}
	/* Where the terminal is narrow the widest of those that may be cut give way, so that no line breaks. */
	size_t wanted = widths[last] < LAST_WIDTH_MIN ? widths[last] : LAST_WIDTH_MIN;
	while (output->terminal && used + wanted > output->width) {
		size_t widest = last;
		for (size_t i = 0; i < last; i++)
			if (table->columns[i].width_max > 0 && widths[i] > COLUMN_WIDTH_MIN && (widest == last || widths[i] > widths[widest]))
				widest = i;
		if (widest == last)
			break;
		widths[widest]--;
		used--;
	}
	size_t title = text_width(bytes_text(table->columns[last].title));
	size_t left = output->width > used + title ? output->width - used : title;
	if (output->terminal && widths[last] > left && !table->uncut)
		widths[last] = left;
	for (size_t i = 0; i <= last; i++)
		print_cell(output, table->columns[i].title, widths[i], table->columns[i].right, i == last, COLOUR_BOLD);
	for (size_t row = 0; row < table->row_count; row++)
		for (size_t i = 0; i <= last; i++) {
			const char *cell = table->cells[row * table->column_count + i];
			/* Elsewhere a program or a file takes it, which can do nothing with half a value: one that is longer than its column pushes the others aside. */
			if (output->terminal && !(i == last && table->uncut) && text_width(bytes_text(cell)) > widths[i]) {
				cell = cut_to_width(table->arena, bytes_text(cell), widths[i]);
				was_cut = true;
			}
			print_cell(output, cell, widths[i], table->columns[i].right, i == last, table->colours[row * table->column_count + i]);
		}
	if (was_cut) {
		fflush(stdout);
		output_note(output, "what ends with … is longer than there is room for: into a pipe (| cat), and with -o json, it comes whole");
	}
}

void progress_show(struct output *output, uint64_t done, uint64_t total, const char *text)
{
	if (!output->progress)
		return;
	int64_t now_ms = (int64_t)(clock_us() / 1000);
	bool complete = total > 0 && done >= total;
	if (output->progress_shown && !complete && now_ms - output->progress_drawn_ms < PROGRESS_REDRAW_MS)
		return;
	output->progress_drawn_ms = now_ms;
	output->progress_shown = true;
	size_t filled = total == 0 ? 0 : (size_t)((double)(done > total ? total : done) / (double)total * PROGRESS_BAR_WIDTH);
	fputs("\r\033[K[", stderr);
	if (output->error_colours)
		fputs(colour_codes[COLOUR_GOOD], stderr);
	for (size_t i = 0; i < PROGRESS_BAR_WIDTH; i++)
		fputc(i < filled ? '#' : '.', stderr);
	if (output->error_colours)
		fputs("\033[0m", stderr);
	fputs("] ", stderr);
	print_escaped(stderr, bytes_text(text));
	fflush(stderr);
}

void progress_clear(struct output *output)
{
	if (!output->progress_shown)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	output->progress_shown = false;
}

void csv_add(struct buffer *out, const char *const *cells, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const char *cell = cells[i] == NULL ? "" : cells[i];
		bool formula = cell[0] != '\0' && strchr("=+-@\t\r", cell[0]) != NULL;
		bool quoted = formula || strpbrk(cell, ",\"\r\n") != NULL;
		if (i > 0)
			buffer_add_char(out, ',');
		if (!quoted) {
			text_escape(out, bytes_text(cell), true);
			continue;
		}
		buffer_add_text(out, formula ? "\"'" : "\"");
		for (const char *p = cell; *p != '\0';) {
			size_t plain = strcspn(p, "\"");
			text_escape(out, (struct bytes){(const uint8_t *)p, plain}, true);
			p += plain;
			if (*p == '"') {
				buffer_add_text(out, "\"\"");
				p++;
			}
		}
		buffer_add_char(out, '"');
	}
	buffer_add_text(out, "\r\n");
}
