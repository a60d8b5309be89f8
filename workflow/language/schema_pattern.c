/* See schema_pattern.h. Any thread. Start at pattern_new(), which rewrites ECMA-262 into what PCRE2 understands, then pattern_match().
 *
 * The rewriting is not for convenience: PCRE2 knows much that ECMA-262 does not (recursion, verbs, \K, possessive quantifiers), and
 * means other things by `.`, `$`, \s and []. Each part is read as ECMA-262 says and written in a form with one meaning only.
 *
 * PCRE2's own match limit counts anew at every place of the text where a match may begin, and does not see how far a repeated character
 * runs. So callouts, which PCRE2 makes before each item, count for us. */
#include "workflow/language/schema_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/hex.h"
#include "workflow/base/json.h"

enum {
	REWRITTEN_LEN_MAX = 64 * PATTERN_LEN_MAX, /* \S in a class is the longest: 2 bytes become 150 */
	PATTERN_NESTING_MAX = 100, /* groups inside one another */
	PATTERN_MATCH_LIMIT = 10 * PATTERN_STEPS_MAX, /* PCRE2's own limits: a second fence behind the counted steps */
	PROPERTY_LEN_MAX = 64,
	STOPPED_BY_STEPS = -1000, /* no number of PCRE2's own errors */
	LAST_CODE_POINT = 0x10FFFF,
};

struct pattern {
	pcre2_code *code;
	size_t repeat_min_max; /* the highest n of {n}: so many characters are compared between two callouts */
	bool looks_back; /* has a back reference, which compares as much as was caught */
};

struct pattern_matcher {
	pcre2_match_data *data;
	pcre2_match_context *context;
	size_t steps; /* used up by all matches so far */
	size_t cost, position; /* of the match that runs: steps of one callout, and where the last one was */
};

/* ---- Rewriting ---- */

struct reader {
	const char *text;
	size_t len, at;
	struct pattern *pattern;
	struct buffer out;
	struct error *error;
};

static bool refuse(const struct reader *reader, const char *why)
{
	error_set(reader->error, ERR_INVALID, "not a regular expression of ECMA-262: %s at offset %zu", why, reader->at);
	return false;
}

static int peek(const struct reader *reader)
{
	return reader->at < reader->len ? (unsigned char)reader->text[reader->at] : -1;
}

static bool skip(struct reader *reader, const char *expected)
{
	size_t len = strlen(expected);

	if (reader->len - reader->at < len || memcmp(reader->text + reader->at, expected, len) != 0)
		return false;
	reader->at += len;
	return true;
}

static uint32_t read_code_point(struct reader *reader)
{
	const uint8_t *bytes = (const uint8_t *)reader->text + reader->at;
	size_t len = bytes[0] < 0x80 ? 1 : bytes[0] < 0xE0 ? 2 : bytes[0] < 0xF0 ? 3 : 4;
	uint32_t value = len == 1 ? bytes[0] : bytes[0] & (0xFFu >> (len + 1));

	for (size_t i = 1; i < len; i++)
		value = value << 6 | (bytes[i] & 0x3F);
	reader->at += len;
	return value;
}

static bool read_hex(struct reader *reader, size_t digits, uint32_t *value)
{
	size_t start = reader->at;

	*value = 0;
	while (reader->at - start < digits && hex_value(peek(reader)) >= 0)
		*value = *value << 4 | (uint32_t)hex_value((unsigned char)reader->text[reader->at++]);
	if (reader->at - start == digits)
		return true;
	reader->at = start;
	return false;
}

/* Behind \u: four digits, a pair of surrogates, or {digits}. */
static bool read_unicode_escape(struct reader *reader, uint32_t *value)
{
	uint32_t low;
	size_t after_high;

	if (skip(reader, "{")) {
		size_t digits = 0;

		for (*value = 0; hex_value(peek(reader)) >= 0 && *value <= LAST_CODE_POINT; digits++)
			*value = *value << 4 | (uint32_t)hex_value((unsigned char)reader->text[reader->at++]);
		return digits > 0 && *value <= LAST_CODE_POINT && skip(reader, "}") ? true : refuse(reader, "expected \\u{1 to 10FFFF}");
	}
	if (!read_hex(reader, 4, value))
		return refuse(reader, "expected four hexadecimal digits");
	after_high = reader->at;
	if (*value >= 0xD800 && *value <= 0xDBFF && skip(reader, "\\u") && read_hex(reader, 4, &low) && low >= 0xDC00 && low <= 0xDFFF)
		*value = 0x10000 + ((*value - 0xD800) << 10) + (low - 0xDC00);
	else
		reader->at = after_high;
	return true;
}

/* An escape that stands for one character, inside or outside of a class; the backslash is read. */
static bool read_character_escape(struct reader *reader, uint32_t *value)
{
	static const char controls[] = "t\tn\nv\vf\fr\r";
	int c = peek(reader);

	if (c < 0)
		return refuse(reader, "a backslash at the end");
	for (size_t i = 0; i + 1 < sizeof(controls); i += 2) {
		if (c == controls[i]) {
			reader->at++;
			*value = (uint32_t)controls[i + 1];
			return true;
		}
	}
	if (skip(reader, "x"))
		return read_hex(reader, 2, value) ? true : refuse(reader, "expected two hexadecimal digits");
	if (skip(reader, "u"))
		return read_unicode_escape(reader, value);
	if (skip(reader, "c")) {
		c = peek(reader);
		if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z'))
			return refuse(reader, "expected a letter behind \\c");
		reader->at++;
		*value = (uint32_t)c & 0x1F;
		return true;
	}
	if (c == '0') {
		reader->at++;
		*value = 0;
		return peek(reader) >= '0' && peek(reader) <= '9' ? refuse(reader, "an octal escape") : true;
	}
	if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')
		return refuse(reader, "an escape that means nothing");
	*value = read_code_point(reader);
	return true;
}

static bool is_surrogate(uint32_t value)
{
	return value >= 0xD800 && value <= 0xDFFF;
}

static void write_code_point(struct reader *reader, uint32_t value)
{
	buffer_printf(&reader->out, "\\x{%x}", value);
}

/* White space of ECMA-262 is more than PCRE2's. As ranges, since a class cannot hold a class. */
static const uint32_t white_space[][2] = {
	{0x9, 0xD}, {0x20, 0x20}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
	{0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF},
};

static void write_white_space(struct reader *reader, bool without)
{
	uint32_t next = 0;

	for (size_t i = 0; i < COUNT_OF(white_space); i++) {
		if (without)
			buffer_printf(&reader->out, "\\x{%x}-\\x{%x}", next, white_space[i][0] - 1);
		else
			buffer_printf(&reader->out, "\\x{%x}-\\x{%x}", white_space[i][0], white_space[i][1]);
		next = white_space[i][1] + 1;
	}
	if (without)
		buffer_printf(&reader->out, "\\x{%x}-\\x{%x}", next, LAST_CODE_POINT);
}

/* General categories have long names in ECMA-262 and short ones in PCRE2. */
static const char *const categories[][2] = {
	{"Letter", "L"}, {"Cased_Letter", "L&"}, {"LC", "L&"}, {"Uppercase_Letter", "Lu"}, {"Lowercase_Letter", "Ll"},
	{"Titlecase_Letter", "Lt"}, {"Modifier_Letter", "Lm"}, {"Other_Letter", "Lo"}, {"Mark", "M"}, {"Combining_Mark", "M"},
	{"Nonspacing_Mark", "Mn"}, {"Spacing_Mark", "Mc"}, {"Enclosing_Mark", "Me"}, {"Number", "N"}, {"Decimal_Number", "Nd"},
	{"digit", "Nd"}, {"Letter_Number", "Nl"}, {"Other_Number", "No"}, {"Punctuation", "P"}, {"punct", "P"},
	{"Connector_Punctuation", "Pc"}, {"Dash_Punctuation", "Pd"}, {"Open_Punctuation", "Ps"}, {"Close_Punctuation", "Pe"},
	{"Initial_Punctuation", "Pi"}, {"Final_Punctuation", "Pf"}, {"Other_Punctuation", "Po"}, {"Symbol", "S"}, {"Math_Symbol", "Sm"},
	{"Currency_Symbol", "Sc"}, {"Modifier_Symbol", "Sk"}, {"Other_Symbol", "So"}, {"Separator", "Z"}, {"Space_Separator", "Zs"},
	{"Line_Separator", "Zl"}, {"Paragraph_Separator", "Zp"}, {"Other", "C"}, {"Control", "Cc"}, {"cntrl", "Cc"}, {"Format", "Cf"},
	{"Surrogate", "Cs"}, {"Private_Use", "Co"}, {"Unassigned", "Cn"},
};

/* \p{…} and \P{…}; "p" or "P" is read. */
static bool rewrite_property(struct reader *reader, bool without)
{
	char name[PROPERTY_LEN_MAX + 1], *word = name;
	size_t len = 0;

	if (!skip(reader, "{"))
		return refuse(reader, "expected { behind \\p");
	while (len < PROPERTY_LEN_MAX && (hex_value(peek(reader)) >= 0 || (peek(reader) >= 'A' && peek(reader) <= 'Z') ||
					   (peek(reader) >= 'a' && peek(reader) <= 'z') || peek(reader) == '_' || peek(reader) == '='))
		name[len++] = reader->text[reader->at++];
	name[len] = '\0';
	if (len == 0 || !skip(reader, "}"))
		return refuse(reader, "expected the name of a property in \\p{…}");
	if (strncmp(word, "General_Category=", 17) == 0)
		word += 17;
	else if (strncmp(word, "gc=", 3) == 0)
		word += 3;
	if (strcmp(word, "Assigned") == 0) {
		buffer_printf(&reader->out, "\\%c{Cn}", without ? 'p' : 'P');
		return true;
	}
	if (strcmp(word, "ASCII") == 0 && !without) {
		buffer_add_text(&reader->out, "\\p{ASCII}");
		return true;
	}
	for (size_t i = 0; i < COUNT_OF(categories); i++) {
		if (strcmp(word, categories[i][0]) == 0) {
			buffer_printf(&reader->out, "\\%c{%s}", without ? 'P' : 'p', categories[i][1]);
			return true;
		}
	}
	if (strncmp(word, "Script_Extensions=", 18) == 0)
		buffer_printf(&reader->out, "\\%c{scx=%s}", without ? 'P' : 'p', word + 18);
	else if (strncmp(word, "Script=", 7) == 0)
		buffer_printf(&reader->out, "\\%c{sc=%s}", without ? 'P' : 'p', word + 7);
	else
		buffer_printf(&reader->out, "\\%c{%s}", without ? 'P' : 'p', word);
	return true;
}

/* \d \w \s \p and their opposites. *rewritten tells whether it was one of them; the backslash is read. */
static bool rewrite_set_escape(struct reader *reader, bool in_class, bool *rewritten)
{
	int c = peek(reader);

	*rewritten = c == 'd' || c == 'D' || c == 'w' || c == 'W' || c == 's' || c == 'S' || c == 'p' || c == 'P';
	if (!*rewritten)
		return true;
	reader->at++;
	if (c == 'p' || c == 'P')
		return rewrite_property(reader, c == 'P');
	if (c != 's' && c != 'S') {
		buffer_printf(&reader->out, "\\%c", c); /* ASCII only, in both */
		return true;
	}
	if (!in_class)
		buffer_add_text(&reader->out, "[");
	write_white_space(reader, c == 'S');
	if (!in_class)
		buffer_add_text(&reader->out, "]");
	return true;
}

/* One character of a class, or a set of them (*is_set), which is written at once. */
static bool read_class_part(struct reader *reader, uint32_t *value, bool *is_set)
{
	*is_set = false;
	if (!skip(reader, "\\")) {
		*value = read_code_point(reader);
		return true;
	}
	if (!rewrite_set_escape(reader, true, is_set))
		return false;
	if (*is_set)
		return true;
	if (skip(reader, "b")) {
		*value = '\b';
		return true;
	}
	return read_character_escape(reader, value);
}

/* No text holds half a surrogate pair, so what lies among them is left out. */
static void write_range(struct reader *reader, uint32_t first, uint32_t last)
{
	if (is_surrogate(first))
		first = 0xE000;
	if (is_surrogate(last))
		last = 0xD7FF;
	if (first < last)
		buffer_printf(&reader->out, "\\x{%x}-\\x{%x}", first, last);
	else if (first == last)
		write_code_point(reader, first);
}

static bool rewrite_class(struct reader *reader)
{
	bool without = skip(reader, "^"), is_set, last_is_set;
	size_t start = reader->out.len, begin;
	uint32_t first, last;

	buffer_add_text(&reader->out, without ? "[^" : "[");
	begin = reader->out.len;
	while (!skip(reader, "]")) {
		if (peek(reader) < 0)
			return refuse(reader, "a class that does not end");
		if (!read_class_part(reader, &first, &is_set))
			return false;
		if (is_set)
			continue;
		last = first;
		if (peek(reader) == '-' && reader->at + 1 < reader->len && reader->text[reader->at + 1] != ']') {
			reader->at++;
			if (!read_class_part(reader, &last, &last_is_set))
				return false;
			if (last_is_set) { /* "a-\d" is no range */
				write_code_point(reader, '-');
				last = first;
			} else if (last < first) {
				return refuse(reader, "a range that runs backwards");
			}
		}
		write_range(reader, first, last);
	}
	if (reader->out.len > begin || reader->out.overflow) {
		buffer_add_text(&reader->out, "]");
		return true;
	}
	reader->out.len = start;
	buffer_add_text(&reader->out, without ? "[\\x{0}-\\x{10ffff}]" : "(?!)");
	return true;
}

static bool rewrite_escape(struct reader *reader)
{
	uint32_t value;
	bool rewritten;
	size_t number = 0;

	if (!rewrite_set_escape(reader, false, &rewritten))
		return false;
	if (rewritten)
		return true;
	if (skip(reader, "b") || skip(reader, "B")) {
		buffer_printf(&reader->out, "\\%c", reader->text[reader->at - 1]);
		return true;
	}
	if (peek(reader) >= '1' && peek(reader) <= '9') {
		while (peek(reader) >= '0' && peek(reader) <= '9' && number < 10000)
			number = number * 10 + (size_t)(reader->text[reader->at++] - '0');
		buffer_printf(&reader->out, "\\g{%zu}", number);
		reader->pattern->looks_back = true;
		return true;
	}
	if (skip(reader, "k<")) {
		const char *end = memchr(reader->text + reader->at, '>', reader->len - reader->at);

		if (end == NULL)
			return refuse(reader, "expected a name in \\k<…>");
		buffer_printf(&reader->out, "\\k<%.*s>", (int)(end - reader->text - (ptrdiff_t)reader->at), reader->text + reader->at);
		reader->at = (size_t)(end - reader->text) + 1;
		reader->pattern->looks_back = true;
		return true;
	}
	if (!read_character_escape(reader, &value))
		return false;
	if (is_surrogate(value))
		buffer_add_text(&reader->out, "(?!)");
	else
		write_code_point(reader, value);
	return true;
}

/* "(" is read. */
static bool rewrite_group(struct reader *reader)
{
	static const char *const openings[] = {"?:", "?=", "?!", "?<=", "?<!"};

	buffer_add_text(&reader->out, "(");
	for (size_t i = 0; i < COUNT_OF(openings); i++) {
		if (skip(reader, openings[i])) {
			buffer_add_text(&reader->out, openings[i]);
			return true;
		}
	}
	if (skip(reader, "?<")) {
		buffer_add_text(&reader->out, "?<");
		return true; /* The name and its > follow as they stand: PCRE2 refuses what is none. */
	}
	return peek(reader) == '?' || peek(reader) == '*' ? refuse(reader, "a group of a kind that ECMA-262 does not have") : true;
}

/* {n}, {n,} or {n,m} at this place; its length, or 0. */
static size_t braces_len(const struct reader *reader, size_t *least)
{
	size_t at = reader->at + 1;

	*least = 0;
	for (; at < reader->len && reader->text[at] >= '0' && reader->text[at] <= '9'; at++)
		*least = *least > 100000 ? *least : *least * 10 + (size_t)(reader->text[at] - '0');
	if (at == reader->at + 1)
		return 0;
	if (at < reader->len && reader->text[at] == ',') {
		for (at++; at < reader->len && reader->text[at] >= '0' && reader->text[at] <= '9'; at++)
			;
	}
	return at < reader->len && reader->text[at] == '}' ? at + 1 - reader->at : 0;
}

/* A quantifier at this place, if there is one. *rewritten tells. */
static bool rewrite_quantifier(struct reader *reader, bool may_stand, bool *rewritten)
{
	size_t least = 0, len = 0;
	int c = peek(reader);

	*rewritten = false;
	if (c == '*' || c == '+' || c == '?')
		len = 1;
	else if (c == '{')
		len = braces_len(reader, &least);
	if (len == 0)
		return true;
	if (!may_stand)
		return refuse(reader, "nothing to repeat");
	*rewritten = true;
	if (least > reader->pattern->repeat_min_max)
		reader->pattern->repeat_min_max = least;
	buffer_add(&reader->out, reader->text + reader->at, len);
	reader->at += len;
	if (skip(reader, "?"))
		buffer_add_text(&reader->out, "?");
	return true;
}

static bool rewrite_atom(struct reader *reader, bool *may_repeat)
{
	uint32_t value;

	*may_repeat = true;
	switch (peek(reader)) {
	case '\\':
		reader->at++;
		return rewrite_escape(reader);
	case '[':
		reader->at++;
		return rewrite_class(reader);
	case '(':
		reader->at++;
		*may_repeat = false;
		return rewrite_group(reader);
	case '|':
	case '^':
		*may_repeat = false;
		buffer_add_char(&reader->out, reader->text[reader->at++]);
		return true;
	case '$':
		*may_repeat = false;
		buffer_add_char(&reader->out, reader->text[reader->at++]);
		return true;
	case ')':
		buffer_add_char(&reader->out, reader->text[reader->at++]);
		return true;
	case '.':
		reader->at++;
		buffer_add_text(&reader->out, "[^\\n\\r\\x{2028}\\x{2029}]");
		return true;
	default:
		value = read_code_point(reader);
		/* Letters, digits and _ stand for themselves everywhere, also in the name of a group. */
		if (value < 0x80 && (hex_value((int)value) >= 0 || (value >= 'a' && value <= 'z') || (value >= 'A' && value <= 'Z') || value == '_'))
			buffer_add_char(&reader->out, (char)value);
		else
			write_code_point(reader, value);
		return true;
	}
}

/* The name of a group, behind "(?<"; PCRE2 takes letters, digits and _ alone. */
static bool rewrite_group_name(struct reader *reader)
{
	size_t start = reader->at;

	while (peek(reader) >= 0 && peek(reader) != '>')
		reader->at++;
	if (peek(reader) < 0 || reader->at == start)
		return refuse(reader, "expected a name in (?<…>");
	reader->at++;
	buffer_add(&reader->out, reader->text + start, reader->at - start);
	return true;
}

static bool rewrite(struct reader *reader)
{
	bool may_repeat = false, is_quantifier;

	while (reader->at < reader->len) {
		size_t out_before = reader->out.len;

		if (!rewrite_quantifier(reader, may_repeat, &is_quantifier))
			return false;
		if (is_quantifier) {
			may_repeat = false;
			continue;
		}
		if (!rewrite_atom(reader, &may_repeat))
			return false;
		if (reader->out.len - out_before == 3 && memcmp(reader->out.data + out_before, "(?<", 3) == 0 && !rewrite_group_name(reader))
			return false;
	}
	return reader->out.overflow ? refuse(reader, "too long when written out") : true;
}

/* ---- PCRE2 ---- */

static pcre2_code *compile(const struct buffer *rewritten, struct error *error)
{
	const uint32_t options = PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_DOLLAR_ENDONLY | PCRE2_MATCH_UNSET_BACKREF | PCRE2_NEVER_BACKSLASH_C |
				 PCRE2_NEVER_UCP | PCRE2_AUTO_CALLOUT;
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);
	PCRE2_UCHAR message[160] = "";
	PCRE2_SIZE offset;
	pcre2_code *code;
	int number;

	CHECK(context != NULL);
	pcre2_set_parens_nest_limit(context, PATTERN_NESTING_MAX);
	pcre2_set_newline(context, PCRE2_NEWLINE_LF);
	code = pcre2_compile((PCRE2_SPTR)buffer_text(rewritten), rewritten->len, options, &number, &offset, context);
	pcre2_compile_context_free(context);
	if (code == NULL) {
		pcre2_get_error_message(number, message, sizeof(message));
		error_set(error, ERR_INVALID, "not a regular expression: %s", (const char *)message);
	}
	return code;
}

struct pattern *pattern_new(const char *text, size_t len, struct error *error)
{
	struct pattern *pattern = memory_zero(sizeof(*pattern));
	struct reader reader = {.text = text, .len = len, .pattern = pattern, .error = error};

	buffer_init(&reader.out, REWRITTEN_LEN_MAX);
	if (len > PATTERN_LEN_MAX)
		error_set(error, ERR_INVALID, "a regular expression of %zu bytes, more than PATTERN_LEN_MAX %d", len, PATTERN_LEN_MAX);
	else if (rewrite(&reader))
		pattern->code = compile(&reader.out, error);
	buffer_close(&reader.out);
	if (pattern->code != NULL)
		return pattern;
	free(pattern);
	return NULL;
}

void pattern_free(struct pattern *pattern)
{
	if (pattern == NULL)
		return;
	pcre2_code_free(pattern->code);
	free(pattern);
}

size_t pattern_size(const struct pattern *pattern)
{
	size_t size = 0;

	CHECK(pcre2_pattern_info(pattern->code, PCRE2_INFO_SIZE, &size) == 0);
	return sizeof(*pattern) + size;
}

static int on_item(pcre2_callout_block *block, void *context)
{
	struct pattern_matcher *matcher = context;
	size_t position = block->current_position;
	size_t way = position > matcher->position ? position - matcher->position : matcher->position - position;

	matcher->position = position;
	matcher->steps += matcher->cost + way / PATTERN_BYTES_PER_STEP;
	return matcher->steps > PATTERN_STEPS_MAX ? STOPPED_BY_STEPS : 0;
}

struct pattern_matcher *pattern_matcher_new(void)
{
	struct pattern_matcher *matcher = memory_zero(sizeof(*matcher));

	matcher->data = pcre2_match_data_create(1, NULL);
	matcher->context = pcre2_match_context_create(NULL);
	CHECK(matcher->data != NULL);
	CHECK(matcher->context != NULL);
	pcre2_set_match_limit(matcher->context, PATTERN_MATCH_LIMIT);
	pcre2_set_depth_limit(matcher->context, PATTERN_MATCH_LIMIT);
	pcre2_set_heap_limit(matcher->context, PATTERN_HEAP_KIB_MAX);
	pcre2_set_callout(matcher->context, on_item, matcher);
	return matcher;
}

void pattern_matcher_free(struct pattern_matcher *matcher)
{
	if (matcher == NULL)
		return;
	pcre2_match_context_free(matcher->context);
	pcre2_match_data_free(matcher->data);
	free(matcher);
}

enum pattern_verdict pattern_match(const struct pattern *pattern, struct pattern_matcher *matcher, const char *text, size_t len,
				   struct error *error)
{
	int rc;

	/* Each match costs its first look at the text; between two callouts at most so much is compared. */
	matcher->steps += 1 + len / (16 * PATTERN_BYTES_PER_STEP);
	matcher->cost = 1 + (pattern->looks_back ? len : pattern->repeat_min_max) / PATTERN_BYTES_PER_STEP;
	matcher->position = 0;
	rc = matcher->steps > PATTERN_STEPS_MAX ?
		     STOPPED_BY_STEPS :
		     pcre2_match(pattern->code, (PCRE2_SPTR)text, len, 0, PCRE2_NO_UTF_CHECK, matcher->data, matcher->context);
	if (rc >= 0)
		return PATTERN_MATCHES;
	if (rc == PCRE2_ERROR_NOMATCH)
		return PATTERN_DIFFERS;
	CHECK(rc != PCRE2_ERROR_NOMEMORY);
	if (rc == PCRE2_ERROR_HEAPLIMIT)
		error_set(error, ERR_TOO_LARGE, "a pattern needs more memory than PATTERN_HEAP_KIB_MAX %d", PATTERN_HEAP_KIB_MAX);
	else if (rc == STOPPED_BY_STEPS || rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT)
		error_set(error, ERR_TOO_LARGE, "the patterns need more than PATTERN_STEPS_MAX %d steps", PATTERN_STEPS_MAX);
	else
		error_set(error, ERR_TOO_LARGE, "a pattern could not be matched (PCRE2 error %d)", rc);
	return PATTERN_STOPPED;
}
