/* JSON: the strict parser, the tree and the printer. Pure. Start at json_parse(), then parse_value().
 *
 * In this order: names and texts; numbers; the parser; the printer; making; looking; pointers.
 *
 * Nothing here depends on the locale: numbers are handed to strtod() without a decimal point ("15e-1"), and what
 * snprintf() prints is read digit by digit, whatever stands for the point. */
#include "workflow/base/json.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

#define INTEGER_MAX 9007199254740991.0 /* 2^53 - 1 */

enum {
	SCRATCH_FIRST = 32, /* open items that need no allocation */
	INSERTION_SORT_MAX = 16,
	NUMBER_TEXT_MAX = 32, /* the longest is -1.7976931348623157e+308 */
};

static const char *const code_names[] = {
	[JSON_OK] = "ok", [JSON_UTF8] = "json-utf8", [JSON_BOM] = "json-bom", [JSON_SYNTAX] = "json-syntax",
	[JSON_DUPLICATE] = "json-duplicate", [JSON_SURROGATE] = "json-surrogate", [JSON_NUMBER_RANGE] = "json-number",
	[JSON_DEPTH] = "json-depth", [JSON_NUL] = "json-nul", [JSON_PRECISION] = "json-precision",
};

static const char *const type_names[] = {
	[JSON_NULL] = "null", [JSON_BOOLEAN] = "boolean", [JSON_NUMBER] = "number",
	[JSON_STRING] = "string", [JSON_ARRAY] = "array", [JSON_OBJECT] = "object",
};

const char *json_code_name(enum json_code code)
{
	CHECK((size_t)code < COUNT_OF(code_names));
	return code_names[code];
}

const char *json_type_name(enum json_type type)
{
	CHECK((size_t)type < COUNT_OF(type_names));
	return type_names[type];
}

/* ---- Names and texts ---- */

static bool is_continuation(uint8_t c)
{
	return (c & 0xC0) == 0x80;
}

/* Length of the well-formed multi-byte character at s (its first byte is 0x80 or more), 0 when it is none. The second byte
 * tells overlong forms, surrogates and what lies past U+10FFFF. */
static size_t character_len(const uint8_t *s, const uint8_t *end)
{
	size_t left = (size_t)(end - s);
	uint8_t lead = s[0];

	if (lead < 0xC2 || left < 2 || !is_continuation(s[1]))
		return 0;
	if (lead < 0xE0)
		return 2;
	if (left < 3 || !is_continuation(s[2]))
		return 0;
	if (lead < 0xF0)
		return (lead == 0xE0 && s[1] < 0xA0) || (lead == 0xED && s[1] >= 0xA0) ? 0 : 3;
	if (lead > 0xF4 || left < 4 || !is_continuation(s[3]))
		return 0;
	return (lead == 0xF0 && s[1] < 0x90) || (lead == 0xF4 && s[1] >= 0x90) ? 0 : 4;
}

/* Of eight bytes of text, as one number: not 0 when any of them needs a look of its own. A byte over 0x7F, a control character, a
 * quote or a backslash does; see "Bit Twiddling Hacks", "Determine if a word has a zero byte", for why. */
#define EACH_BYTE(c) (0x0101010101010101u * (uint64_t)(c))

static uint64_t load_word(const uint8_t *at)
{
	uint64_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static uint64_t is_not_ascii(uint64_t word)
{
	return word & EACH_BYTE(0x80);
}

/* May take a byte over 0x7F for one of these as well, never the other way round. */
static uint64_t needs_escape(uint64_t word)
{
	uint64_t quote = word ^ EACH_BYTE('"'), backslash = word ^ EACH_BYTE('\\');

	return ((word - EACH_BYTE(0x20)) | (quote - EACH_BYTE(1)) | (backslash - EACH_BYTE(1))) & EACH_BYTE(0x80);
}

bool utf8_valid(struct bytes text, size_t *bad)
{
	const uint8_t *at = text.data, *end = text.len > 0 ? text.data + text.len : at;

	while (at < end) {
		size_t len;

		if ((size_t)(end - at) >= sizeof(uint64_t) && is_not_ascii(load_word(at)) == 0) {
			at += sizeof(uint64_t);
			continue;
		}
		len = *at < 0x80 ? 1 : character_len(at, end);

		if (len == 0) {
			if (bad != NULL)
				*bad = (size_t)(at - text.data);
			return false;
		}
		at += len;
	}
	return true;
}

/* Order of UTF-16 code units without converting: where two UTF-8 texts first differ, U+E000 to U+FFFF (0xEE, 0xEF) come
 * after the astral planes (0xF0 to 0xF4), as surrogates are smaller. Source: provenance.md 1.1. */
static int compare_names(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t len = a_len < b_len ? a_len : b_len;

	for (size_t i = 0; i < len; i++) {
		uint8_t x = (uint8_t)a[i], y = (uint8_t)b[i];

		if (x == y)
			continue;
		if (x == 0xEE || x == 0xEF)
			x += 0x10;
		if (y == 0xEE || y == 0xEF)
			y += 0x10;
		return x < y ? -1 : 1;
	}
	return a_len < b_len ? -1 : a_len > b_len;
}

/* ---- Numbers ---- */

static const double powers_of_ten[] = {1e0,  1e1,  1e2,	 1e3,  1e4,  1e5,  1e6,	 1e7,  1e8,  1e9,  1e10, 1e11,
				       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
enum { EXACT_POWER_MAX = 22 }; /* 10^22 is the last power of ten that a double holds. */
static_assert(COUNT_OF(powers_of_ten) == EXACT_POWER_MAX + 1, "one for each exponent");
static_assert(FLT_EVAL_METHOD == 0, "one operation on doubles rounds once");

/* digits x 10^exponent, correctly rounded; the digits carry no point, so strtod() looks at no locale. `text` has room for
 * the exponent behind the digits. */
static double digits_to_number(char *text, size_t len, int exponent)
{
	sprintf(text + len, "e%d", exponent);
	return strtod(text, NULL);
}

/* The first `precision` digits of v > 0, rounded to nearest, as text; returns the exponent of the first digit. */
static int number_digits(double v, int precision, char digits[NUMBER_TEXT_MAX])
{
	char printed[64];
	const char *at = printed;
	int count = 0;

	snprintf(printed, sizeof(printed), "%.*e", precision - 1, v);
	for (; *at != 'e'; at++) {
		if (*at >= '0' && *at <= '9')
			digits[count++] = *at;
	}
	CHECK(count == precision);
	digits[count] = '\0';
	return atoi(at + 1);
}

/* Add one to the last digit; true when the text ran over into a new first digit. */
static bool increment_digits(char *digits, int precision)
{
	for (int i = precision - 1; i >= 0; i--) {
		if (digits[i] != '9') {
			digits[i]++;
			return false;
		}
		digits[i] = '0';
	}
	digits[0] = '1';
	return true;
}

/* Digits that read back as v, if there are any of this precision. The nearest decimal alone is not enough: at a power of two
 * the gap below v is half the gap above, so its upper neighbour may hit where it misses. */
static bool find_digits(double v, int precision, char digits[NUMBER_TEXT_MAX], int *exponent)
{
	char text[NUMBER_TEXT_MAX + 16];

	*exponent = number_digits(v, precision, digits);
	memcpy(text, digits, (size_t)precision);
	if (digits_to_number(text, (size_t)precision, *exponent - precision + 1) == v)
		return true;
	if (increment_digits(digits, precision))
		(*exponent)++;
	memcpy(text, digits, (size_t)precision);
	return digits_to_number(text, (size_t)precision, *exponent - precision + 1) == v;
}

/* Fewest digits of v > 0 that read back as v, the nearest of them; returns their number. What p digits can say p + 1 digits
 * can say too, so the precision is found by halving. Source: provenance.md 1.3, which tries 1, 2, 3, … instead. */
static int shortest_digits(double v, char digits[NUMBER_TEXT_MAX], int *exponent)
{
	int low = 1, high = 17, middle = 16; /* 17 digits always suffice; most numbers that come here need 16 or 17. */
	bool found;

	while (low < high) {
		if (find_digits(v, middle, digits, exponent))
			high = middle;
		else
			low = middle + 1;
		middle = (low + high) / 2;
	}
	found = find_digits(v, high, digits, exponent);
	CHECK(found);
	while (high > 1 && digits[high - 1] == '0')
		high--;
	return high;
}

static size_t print_unsigned(uint64_t value, char *text)
{
	char reversed[20];
	size_t len = 0;

	do {
		reversed[len++] = (char)('0' + value % 10);
		value /= 10;
	} while (value > 0);
	for (size_t i = 0; i < len; i++)
		text[i] = reversed[len - 1 - i];
	return len;
}

/* Digits of v > 0 when v is a decimal of at most 15 digits and at most 22 places, which most numbers that people write are.
 *
 * The fewest places come first. A whole number below 10^15 divided by an exact power of ten is rounded once, so it gives v
 * exactly if its text reads back as v, and no other decimal of 15 digits does. v x 10^places is off by less than 0.25, so
 * rounding it cannot miss that number. Returns 0 when v is none of these. */
static int short_decimal_digits(double v, char digits[NUMBER_TEXT_MAX], int *exponent)
{
	for (int places = 0; places <= EXACT_POWER_MAX; places++) {
		double scaled = v * powers_of_ten[places], whole;

		if (scaled >= 1e15)
			return 0;
		whole = nearbyint(scaled);
		if (whole > 0 && whole / powers_of_ten[places] == v) {
			int count = (int)print_unsigned((uint64_t)whole, digits);

			*exponent = count - 1 - places;
			return count;
		}
	}
	return 0;
}

/* The text of a number as ECMAScript's Number::toString, the table of provenance.md 1.2; returns its length. */
static size_t number_text(double number, char text[NUMBER_TEXT_MAX])
{
	char digits[NUMBER_TEXT_MAX];
	int count, exponent, n;
	size_t len = 0;

	CHECK(isfinite(number));
	if (number == 0) {
		text[0] = '0';
		return 1;
	}
	if (number < 0) {
		text[len++] = '-';
		number = -number;
	}
	if (number <= INTEGER_MAX && number == (double)(uint64_t)number)
		return len + print_unsigned((uint64_t)number, text + len);

	count = short_decimal_digits(number, digits, &exponent);
	if (count == 0)
		count = shortest_digits(number, digits, &exponent);
	n = exponent + 1;
	if (n > 0 && n <= 21) {
		for (int i = 0; i < count || i < n; i++) {
			if (i == n)
				text[len++] = '.';
			text[len++] = i < count ? digits[i] : '0';
		}
	} else if (n > -6 && n <= 0) {
		text[len++] = '0';
		text[len++] = '.';
		for (int i = n; i < 0; i++)
			text[len++] = '0';
		memcpy(text + len, digits, (size_t)count);
		len += (size_t)count;
	} else {
		text[len++] = digits[0];
		if (count > 1) {
			text[len++] = '.';
			memcpy(text + len, digits + 1, (size_t)count - 1);
			len += (size_t)count - 1;
		}
		text[len++] = 'e';
		text[len++] = exponent < 0 ? '-' : '+';
		len += print_unsigned((uint64_t)(exponent < 0 ? -exponent : exponent), text + len);
	}
	return len;
}

/* ---- The parser ---- */

/* An item or member of a container that is still open. All open containers share one stack. */
struct open_item {
	struct json_member member; /* of an array: the value alone */
	const uint8_t *source; /* where its name begins, for faults */
};

struct parser {
	const uint8_t *start, *at, *end;
	struct arena *arena;
	unsigned flags;
	int depth;
	struct open_item *open;
	size_t open_count, open_cap;
	struct open_item open_first[SCRATCH_FIRST];

	enum json_code code; /* the first fault, its place and what to say */
	const uint8_t *fault_at;
	const char *reason;
};

static struct json *fail(struct parser *parser, enum json_code code, const uint8_t *at, const char *reason)
{
	parser->code = code;
	parser->fault_at = at;
	parser->reason = reason;
	return NULL;
}

/* Something else was expected here; when what stands here is not even UTF-8, say that instead. */
static struct json *fail_syntax(struct parser *parser, const char *reason)
{
	if (parser->at < parser->end && *parser->at >= 0x80 && character_len(parser->at, parser->end) == 0)
		return fail(parser, JSON_UTF8, parser->at, "not UTF-8");
	return fail(parser, JSON_SYNTAX, parser->at, parser->at < parser->end ? reason : "the text ends too early");
}

static void skip_space(struct parser *parser)
{
	while (parser->at < parser->end &&
	       (*parser->at == ' ' || *parser->at == '\n' || *parser->at == '\t' || *parser->at == '\r'))
		parser->at++;
}

static bool next_is(const struct parser *parser, char c)
{
	return parser->at < parser->end && *parser->at == (uint8_t)c;
}

static struct json *make_node(struct arena *arena, enum json_type type)
{
	struct json *json = arena_alloc(arena, sizeof(*json));

	json->type = type;
	return json;
}

static struct json *parse_word(struct parser *parser, const char *word, size_t len)
{
	if ((size_t)(parser->end - parser->at) < len || memcmp(parser->at, word, len) != 0)
		return fail_syntax(parser, "expected a value");
	parser->at += len;
	switch (word[0]) {
	case 'n':
		return json_null(parser->arena);
	case 't':
		return json_boolean(parser->arena, true);
	default:
		return json_boolean(parser->arena, false);
	}
}

static bool is_digit_at(const struct parser *parser)
{
	return parser->at < parser->end && *parser->at >= '0' && *parser->at <= '9';
}

/* The parts of a number's text: digits without the point and without leading zeros, and what the exponent is then. */
struct number_parts {
	const uint8_t *digits, *digits_end; /* may contain one point, which does not count */
	size_t count; /* digits from the first that is not 0 */
	uint64_t mantissa; /* of the first 19 of them */
	int64_t exponent;
	bool negative, integer;
};

enum {
	MANTISSA_DIGITS_MAX = 19,
	EXPONENT_LIMIT = 1000000000, /* Texts are shorter than this, so beyond it digits cannot bring the number back. */
};

/* Where strtod() has to decide. Long texts are rare; a number of few digits needs no allocation. */
static double round_slowly(const struct number_parts *parts)
{
	char few[128], *text = parts->count + 16 > sizeof(few) ? memory_alloc(parts->count + 16) : few;
	size_t len = 0;
	double number;

	for (const uint8_t *at = parts->digits; at < parts->digits_end; at++) {
		if (*at != '.' && (len > 0 || *at != '0'))
			text[len++] = (char)*at;
	}
	CHECK(len == parts->count);
	number = digits_to_number(text, len, (int)parts->exponent);
	if (text != few)
		free(text);
	return number;
}

static double parts_to_number(const struct number_parts *parts)
{
	double number;

	if (parts->count == 0)
		return 0; /* Also for "-0": there is no negative zero in the tree. */
	if (parts->count <= 15 && parts->exponent >= -EXACT_POWER_MAX && parts->exponent <= EXACT_POWER_MAX) {
		/* Both operands are exact, so the one operation rounds correctly. */
		number = (double)parts->mantissa;
		if (parts->exponent < 0)
			number /= powers_of_ten[-parts->exponent];
		else
			number *= powers_of_ten[parts->exponent];
	} else {
		number = round_slowly(parts);
	}
	if (number == 0)
		return 0;
	return parts->negative ? -number : number;
}

static void take_digit(struct number_parts *parts, uint8_t c)
{
	if (parts->count == 0 && c == '0')
		return;
	if (parts->count < MANTISSA_DIGITS_MAX)
		parts->mantissa = parts->mantissa * 10 + (c - '0');
	parts->count++;
}

static struct json *parse_number(struct parser *parser)
{
	const uint8_t *start = parser->at;
	struct number_parts parts = {.integer = true};
	double number;
	struct json *json;

	if (*parser->at == '-') {
		parts.negative = true;
		parser->at++;
		if (!is_digit_at(parser))
			return fail_syntax(parser, "expected a digit");
	}
	parts.digits = parser->at;
	if (*parser->at == '0') {
		parser->at++;
		if (is_digit_at(parser))
			return fail_syntax(parser, "a number does not begin with 0");
	}
	for (; is_digit_at(parser); parser->at++)
		take_digit(&parts, *parser->at);
	if (next_is(parser, '.')) {
		parts.integer = false;
		parser->at++;
		if (!is_digit_at(parser))
			return fail_syntax(parser, "expected a digit");
		for (; is_digit_at(parser); parser->at++) {
			take_digit(&parts, *parser->at);
			parts.exponent--;
		}
	}
	parts.digits_end = parser->at;
	if (next_is(parser, 'e') || next_is(parser, 'E')) {
		int64_t exponent = 0;
		bool negative;

		parts.integer = false;
		parser->at++;
		negative = next_is(parser, '-');
		if (negative || next_is(parser, '+'))
			parser->at++;
		if (!is_digit_at(parser))
			return fail_syntax(parser, "expected a digit");
		for (; is_digit_at(parser); parser->at++) {
			if (exponent < EXPONENT_LIMIT)
				exponent = exponent * 10 + (*parser->at - '0');
		}
		parts.exponent += negative ? -exponent : exponent;
	}
	if (parts.exponent > EXPONENT_LIMIT)
		parts.exponent = EXPONENT_LIMIT;
	if (parts.exponent < -EXPONENT_LIMIT)
		parts.exponent = -EXPONENT_LIMIT;

	if (parts.integer && (parser->flags & JSON_ROUND_INTEGERS) == 0 &&
	    (parts.count > MANTISSA_DIGITS_MAX || parts.mantissa > (uint64_t)INTEGER_MAX))
		return fail(parser, JSON_PRECISION, start, "an integer beyond 2^53 - 1, write it as a string");
	number = parts_to_number(&parts);
	if (!isfinite(number))
		return fail(parser, JSON_NUMBER_RANGE, start, "a number too large for a double");
	json = make_node(parser->arena, JSON_NUMBER);
	json->number = number;
	return json;
}

/* Four hex digits behind "\u"; -1 when they are not there. */
static int take_hex(struct parser *parser)
{
	int value = 0;

	for (int i = 0; i < 4; i++, parser->at++) {
		uint8_t c = parser->at < parser->end ? *parser->at : 0;

		if (c >= '0' && c <= '9')
			value = value << 4 | (c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			value = value << 4 | ((c | 0x20) - 'a' + 10);
		else
			return -1;
	}
	return value;
}

static char *add_character(char *out, uint32_t c)
{
	if (c < 0x80) {
		*out++ = (char)c;
	} else if (c < 0x800) {
		*out++ = (char)(0xC0 | c >> 6);
		*out++ = (char)(0x80 | (c & 0x3F));
	} else if (c < 0x10000) {
		*out++ = (char)(0xE0 | c >> 12);
		*out++ = (char)(0x80 | (c >> 6 & 0x3F));
		*out++ = (char)(0x80 | (c & 0x3F));
	} else {
		*out++ = (char)(0xF0 | c >> 18);
		*out++ = (char)(0x80 | (c >> 12 & 0x3F));
		*out++ = (char)(0x80 | (c >> 6 & 0x3F));
		*out++ = (char)(0x80 | (c & 0x3F));
	}
	return out;
}

/* At "\u": append the character, a surrogate pair as one. False after a fault. */
static bool take_unicode_escape(struct parser *parser, char **out)
{
	const uint8_t *start = parser->at;
	int high, low;

	parser->at += 2;
	high = take_hex(parser);
	if (high < 0) {
		fail_syntax(parser, "expected four hex digits");
		return false;
	}
	if (high == 0) {
		fail(parser, JSON_NUL, start, "U+0000 in a string");
		return false;
	}
	if (high < 0xD800 || high > 0xDFFF) {
		*out = add_character(*out, (uint32_t)high);
		return true;
	}
	if (high > 0xDBFF || parser->end - parser->at < 2 || parser->at[0] != '\\' || parser->at[1] != 'u') {
		fail(parser, JSON_SURROGATE, start, "half of a surrogate pair");
		return false;
	}
	parser->at += 2;
	low = take_hex(parser);
	if (low < 0) {
		fail_syntax(parser, "expected four hex digits");
		return false;
	}
	if (low < 0xDC00 || low > 0xDFFF) {
		fail(parser, JSON_SURROGATE, start, "half of a surrogate pair");
		return false;
	}
	*out = add_character(*out, 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
	return true;
}

/* At a backslash: append what it stands for. */
static bool take_escape(struct parser *parser, char **out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found;

	if (parser->end - parser->at < 2) {
		parser->at = parser->end;
		fail_syntax(parser, "");
		return false;
	}
	if (parser->at[1] == 'u')
		return take_unicode_escape(parser, out);
	found = parser->at[1] != '\0' ? strchr(from, parser->at[1]) : NULL;
	if (found == NULL) {
		fail(parser, JSON_SYNTAX, parser->at, "no such escape");
		return false;
	}
	*(*out)++ = to[found - from];
	parser->at += 2;
	return true;
}

/* Over characters that stand for themselves, up to a quote or backslash. False after a fault. */
static bool skip_plain(struct parser *parser)
{
	const uint8_t *at = parser->at, *end = parser->end;

	while (at < end) {
		uint8_t c;

		if ((size_t)(end - at) >= sizeof(uint64_t) && (is_not_ascii(load_word(at)) | needs_escape(load_word(at))) == 0) {
			at += sizeof(uint64_t);
			continue;
		}
		c = *at;
		if (c == '"' || c == '\\') {
			parser->at = at;
			return true;
		}
		if (c < 0x80) {
			if (c < 0x20) {
				fail(parser, JSON_SYNTAX, at, "a control character in a string");
				return false;
			}
			at++;
		} else {
			size_t len = character_len(at, end);

			if (len == 0) {
				fail(parser, JSON_UTF8, at, "not UTF-8");
				return false;
			}
			at += len;
		}
	}
	parser->at = at;
	fail_syntax(parser, "");
	return false;
}

/* At the opening quote. The text lies in the arena, NUL-terminated. False after a fault. */
static bool parse_text(struct parser *parser, const char **text, size_t *text_len)
{
	const uint8_t *start = ++parser->at, *run;
	struct buffer unescaped;
	bool ok = false;

	if (!skip_plain(parser))
		return false;
	if (*parser->at == '"') {
		*text_len = (size_t)(parser->at++ - start);
		*text = arena_text_len(parser->arena, (const char *)start, *text_len);
		return true;
	}
	/* An escape is never shorter than what it stands for, so the rest of the source bounds the text. */
	buffer_init(&unescaped, (size_t)(parser->end - start));
	buffer_add(&unescaped, start, (size_t)(parser->at - start));
	for (;;) {
		char character[4], *out = character;

		if (*parser->at == '"')
			break;
		if (!take_escape(parser, &out))
			goto out;
		buffer_add(&unescaped, character, (size_t)(out - character));
		run = parser->at;
		if (!skip_plain(parser))
			goto out;
		buffer_add(&unescaped, run, (size_t)(parser->at - run));
	}
	parser->at++;
	CHECK(!unescaped.overflow);
	*text_len = unescaped.len;
	*text = arena_text_len(parser->arena, buffer_text(&unescaped), unescaped.len);
	ok = true;
out:
	buffer_close(&unescaped);
	return ok;
}

static void push_open(struct parser *parser, struct json_member member, const uint8_t *source)
{
	if (parser->open_count == parser->open_cap) {
		size_t cap = parser->open_cap * 2;
		struct open_item *larger = memory_alloc(cap * sizeof(*larger));

		memcpy(larger, parser->open, parser->open_count * sizeof(*larger));
		if (parser->open != parser->open_first)
			free(parser->open);
		parser->open = larger;
		parser->open_cap = cap;
	}
	parser->open[parser->open_count++] = (struct open_item){member, source};
}

static struct json *parse_value(struct parser *parser);

static bool enter(struct parser *parser)
{
	if (parser->depth == JSON_DEPTH_MAX) {
		fail(parser, JSON_DEPTH, parser->at, "more than 128 levels");
		return false;
	}
	parser->depth++;
	parser->at++;
	skip_space(parser);
	return true;
}
static_assert(JSON_DEPTH_MAX == 128, "the message above says so");

static struct json *parse_array(struct parser *parser)
{
	size_t first = parser->open_count, count;
	struct json *array;

	if (!enter(parser))
		return NULL;
	if (!next_is(parser, ']')) {
		for (;;) {
			struct json *item = parse_value(parser);

			if (item == NULL)
				return NULL;
			push_open(parser, (struct json_member){.value = item}, NULL);
			skip_space(parser);
			if (!next_is(parser, ','))
				break;
			parser->at++;
			skip_space(parser);
		}
		if (!next_is(parser, ']'))
			return fail_syntax(parser, "expected , or ]");
	}
	parser->at++;
	parser->depth--;

	count = parser->open_count - first;
	array = make_node(parser->arena, JSON_ARRAY);
	array->array.count = array->array.cap = count;
	array->array.items = count > 0 ? arena_alloc(parser->arena, count * sizeof(struct json *)) : NULL;
	for (size_t i = 0; i < count; i++)
		array->array.items[i] = parser->open[first + i].member.value;
	parser->open_count = first;
	return array;
}

/* Equal names in the order of the source, so that the fault is at the second one. */
static int compare_open(const void *left, const void *right)
{
	const struct open_item *a = left, *b = right;
	int order = compare_names(a->member.name, a->member.name_len, b->member.name, b->member.name_len);

	if (order != 0)
		return order;
	return a->source < b->source ? -1 : a->source > b->source;
}

/* Most objects have few members or come sorted already. */
static void sort_open(struct open_item *items, size_t count)
{
	size_t sorted = 1;

	while (sorted < count && compare_open(&items[sorted - 1], &items[sorted]) < 0)
		sorted++;
	if (sorted >= count)
		return;
	if (count > INSERTION_SORT_MAX) {
		qsort(items, count, sizeof(*items), compare_open);
		return;
	}
	for (; sorted < count; sorted++) {
		struct open_item item = items[sorted];
		size_t place = sorted;

		for (; place > 0 && compare_open(&items[place - 1], &item) > 0; place--)
			items[place] = items[place - 1];
		items[place] = item;
	}
}

static struct json *close_object(struct parser *parser, size_t first)
{
	struct open_item *items = parser->open + first;
	size_t count = parser->open_count - first;
	struct json *object;

	sort_open(items, count);
	for (size_t i = 1; i < count; i++) {
		const struct json_member *a = &items[i - 1].member, *b = &items[i].member;

		if (a->name_len == b->name_len && memcmp(a->name, b->name, a->name_len) == 0)
			return fail(parser, JSON_DUPLICATE, items[i].source, "the name is there twice");
	}
	object = make_node(parser->arena, JSON_OBJECT);
	object->object.count = object->object.cap = count;
	object->object.members = count > 0 ? arena_alloc(parser->arena, count * sizeof(struct json_member)) : NULL;
	for (size_t i = 0; i < count; i++)
		object->object.members[i] = items[i].member;
	parser->open_count = first;
	return object;
}

static struct json *parse_object(struct parser *parser)
{
	size_t first = parser->open_count;

	if (!enter(parser))
		return NULL;
	if (!next_is(parser, '}')) {
		for (;;) {
			struct json_member member;
			const uint8_t *source = parser->at;

			if (!next_is(parser, '"'))
				return fail_syntax(parser, "expected a name in quotes");
			if (!parse_text(parser, &member.name, &member.name_len))
				return NULL;
			skip_space(parser);
			if (!next_is(parser, ':'))
				return fail_syntax(parser, "expected :");
			parser->at++;
			skip_space(parser);
			member.value = parse_value(parser);
			if (member.value == NULL)
				return NULL;
			push_open(parser, member, source);
			skip_space(parser);
			if (!next_is(parser, ','))
				break;
			parser->at++;
			skip_space(parser);
		}
		if (!next_is(parser, '}'))
			return fail_syntax(parser, "expected , or }");
	}
	parser->at++;
	parser->depth--;
	return close_object(parser, first);
}

static struct json *parse_value(struct parser *parser)
{
	if (parser->at == parser->end)
		return fail_syntax(parser, "");
	switch (*parser->at) {
	case '{':
		return parse_object(parser);
	case '[':
		return parse_array(parser);
	case '"': {
		struct json *json;
		const char *text;
		size_t len;

		if (!parse_text(parser, &text, &len))
			return NULL;
		json = make_node(parser->arena, JSON_STRING);
		json->string.text = text;
		json->string.len = len;
		return json;
	}
	case 'n':
		return parse_word(parser, "null", 4);
	case 't':
		return parse_word(parser, "true", 4);
	case 'f':
		return parse_word(parser, "false", 5);
	case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
		return parse_number(parser);
	default:
		return fail_syntax(parser, "expected a value");
	}
}

static void report(const struct parser *parser, struct json_fault *fault, struct error *error)
{
	struct json_fault found = {.code = parser->code, .offset = (size_t)(parser->fault_at - parser->start), .line = 1, .column = 1};

	for (const uint8_t *at = parser->start; at < parser->fault_at; at++) {
		found.column++;
		if (*at == '\n') {
			found.line++;
			found.column = 1;
		}
	}
	if (fault != NULL)
		*fault = found;
	error_set(error, ERR_INVALID, "%s at line %zu column %zu: %s", json_code_name(found.code), found.line, found.column,
		  parser->reason);
}

struct json *json_parse(struct arena *arena, struct bytes text, unsigned flags, struct json_fault *fault, struct error *error)
{
	static const uint8_t nothing[1], bom[3] = {0xEF, 0xBB, 0xBF};
	struct parser parser;
	struct json *json = NULL;

	parser.start = parser.at = text.data != NULL ? text.data : nothing;
	parser.end = parser.start + text.len;
	parser.arena = arena;
	parser.flags = flags;
	parser.depth = 0;
	parser.open = parser.open_first;
	parser.open_count = 0;
	parser.open_cap = SCRATCH_FIRST;
	parser.code = JSON_OK;
	parser.fault_at = parser.start;
	parser.reason = "";

	if (text.len >= sizeof(bom) && memcmp(text.data, bom, sizeof(bom)) == 0) {
		fail(&parser, JSON_BOM, parser.start, "a byte order mark");
	} else {
		skip_space(&parser);
		json = parse_value(&parser);
		skip_space(&parser);
		if (json != NULL && parser.at < parser.end)
			json = fail_syntax(&parser, "something follows the value");
	}
	if (parser.open != parser.open_first)
		free(parser.open);
	if (json == NULL) {
		CHECK(parser.code != JSON_OK);
		report(&parser, fault, error);
	} else if (fault != NULL) {
		*fault = (struct json_fault){.code = JSON_OK};
	}
	return json;
}

/* ---- The printer ---- */

void json_print_string(const char *text, size_t len, struct buffer *out)
{
	static const char hex[] = "0123456789abcdef";
	size_t run = 0;

	buffer_add_char(out, '"');
	for (size_t i = 0; i < len; i++) {
		char escape[6] = "\\u00";
		size_t escape_len = 2;
		uint8_t c;

		while (len - i >= sizeof(uint64_t) && needs_escape(load_word((const uint8_t *)text + i)) == 0)
			i += sizeof(uint64_t);
		if (i == len)
			break;
		c = (uint8_t)text[i];
		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		switch (c) {
		case '"': case '\\':
			escape[1] = (char)c;
			break;
		case '\b':
			escape[1] = 'b';
			break;
		case '\t':
			escape[1] = 't';
			break;
		case '\n':
			escape[1] = 'n';
			break;
		case '\f':
			escape[1] = 'f';
			break;
		case '\r':
			escape[1] = 'r';
			break;
		default:
			escape[4] = hex[c >> 4];
			escape[5] = hex[c & 15];
			escape_len = sizeof(escape);
			break;
		}
		buffer_add(out, text + run, i - run);
		buffer_add(out, escape, escape_len);
		run = i + 1;
	}
	buffer_add(out, text + run, len - run);
	buffer_add_char(out, '"');
}

void json_print_number(double number, struct buffer *out)
{
	char text[NUMBER_TEXT_MAX];

	buffer_add(out, text, number_text(number, text));
}

/* What has no parts; false for arrays and objects. */
static bool print_scalar(const struct json *json, struct buffer *out)
{
	switch (json->type) {
	case JSON_NULL:
		buffer_add(out, "null", 4);
		return true;
	case JSON_BOOLEAN:
		buffer_add_text(out, json->boolean ? "true" : "false");
		return true;
	case JSON_NUMBER:
		json_print_number(json->number, out);
		return true;
	case JSON_STRING:
		json_print_string(json->string.text, json->string.len, out);
		return true;
	case JSON_ARRAY:
	case JSON_OBJECT:
		break;
	}
	return false;
}

void json_print(const struct json *json, struct buffer *out)
{
	if (out->overflow || print_scalar(json, out))
		return;
	if (json->type == JSON_ARRAY) {
		buffer_add_char(out, '[');
		for (size_t i = 0; i < json->array.count; i++) {
			if (i > 0)
				buffer_add_char(out, ',');
			json_print(json->array.items[i], out);
		}
		buffer_add_char(out, ']');
		return;
	}
	buffer_add_char(out, '{');
	for (size_t i = 0; i < json->object.count; i++) {
		const struct json_member *member = &json->object.members[i];

		if (i > 0)
			buffer_add_char(out, ',');
		json_print_string(member->name, member->name_len, out);
		buffer_add_char(out, ':');
		json_print(member->value, out);
	}
	buffer_add_char(out, '}');
}

struct bytes json_print_arena(const struct json *json, struct arena *arena)
{
	struct buffer printed;
	struct bytes bytes;

	buffer_init(&printed, SIZE_MAX - 1); /* The tree is in memory already and bounds its print. */
	json_print(json, &printed);
	CHECK(!printed.overflow);
	bytes = arena_bytes(arena, buffer_bytes(&printed));
	buffer_close(&printed);
	return bytes;
}

struct digest json_digest(const struct json *json)
{
	struct buffer printed;
	struct digest digest;

	buffer_init(&printed, SIZE_MAX - 1);
	json_print(json, &printed);
	CHECK(!printed.overflow);
	digest = digest_of(buffer_bytes(&printed));
	buffer_close(&printed);
	return digest;
}

static void start_line(struct buffer *out, size_t depth)
{
	buffer_add_char(out, '\n');
	for (size_t i = 0; i < depth; i++)
		buffer_add(out, "  ", 2);
}

static void print_pretty(const struct json *json, size_t depth, struct buffer *out)
{
	size_t count = json_count(json);
	bool array = json->type == JSON_ARRAY;

	if (out->overflow || print_scalar(json, out))
		return;
	buffer_add_char(out, array ? '[' : '{');
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			buffer_add_char(out, ',');
		start_line(out, depth + 1);
		if (array) {
			print_pretty(json->array.items[i], depth + 1, out);
		} else {
			json_print_string(json->object.members[i].name, json->object.members[i].name_len, out);
			buffer_add(out, ": ", 2);
			print_pretty(json->object.members[i].value, depth + 1, out);
		}
	}
	if (count > 0)
		start_line(out, depth);
	buffer_add_char(out, array ? ']' : '}');
}

void json_print_pretty(const struct json *json, struct buffer *out)
{
	print_pretty(json, 0, out);
}

/* ---- Making ---- */

struct json *json_null(struct arena *arena)
{
	return make_node(arena, JSON_NULL);
}

struct json *json_boolean(struct arena *arena, bool value)
{
	struct json *json = make_node(arena, JSON_BOOLEAN);

	json->boolean = value;
	return json;
}

struct json *json_number(struct arena *arena, double value)
{
	struct json *json;

	CHECK(isfinite(value));
	json = make_node(arena, JSON_NUMBER);
	json->number = value == 0 ? 0 : value; /* -0 becomes 0 */
	return json;
}

/* What no parser would let in must not come in by the back door either. */
static void check_text(const char *text, size_t len)
{
	CHECK(utf8_valid((struct bytes){(const uint8_t *)text, len}, NULL));
	CHECK(len == 0 || memchr(text, '\0', len) == NULL);
}

struct json *json_text(struct arena *arena, const char *text)
{
	return json_text_len(arena, text, strlen(text));
}

struct json *json_text_len(struct arena *arena, const char *text, size_t len)
{
	struct json *json;

	check_text(text, len);
	json = make_node(arena, JSON_STRING);
	json->string.text = arena_text_len(arena, text, len);
	json->string.len = len;
	return json;
}

struct json *json_printf(struct arena *arena, const char *format, ...)
{
	struct json *json;
	va_list args;
	char *text = NULL;
	int len;

	va_start(args, format);
	len = vasprintf(&text, format, args);
	va_end(args);
	CHECK(len >= 0);
	json = json_text_len(arena, text, (size_t)len);
	free(text);
	return json;
}

/* Nothing but a type: no items yet, no memory for them. */
struct json *json_array(struct arena *arena)
{
	struct json *json = arena_zero(arena, sizeof(*json));

	json->type = JSON_ARRAY;
	return json;
}

struct json *json_object(struct arena *arena)
{
	struct json *json = arena_zero(arena, sizeof(*json));

	json->type = JSON_OBJECT;
	return json;
}

void json_add(struct arena *arena, struct json *array, struct json *item)
{
	CHECK(array->type == JSON_ARRAY);
	CHECK(item != NULL);
	array->array.items = arena_grow(arena, array->array.items, array->array.count, &array->array.cap, sizeof(struct json *));
	array->array.items[array->array.count++] = item;
}

/* The place of a name, or where it would have to be put. */
static size_t find_place(const struct json *object, const char *name, size_t name_len, bool *found)
{
	const struct json_member *members = object->object.members;
	size_t low = 0, high = object->object.count;

	*found = false;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = compare_names(members[middle].name, members[middle].name_len, name, name_len);

		if (order == 0) {
			*found = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void json_set_len(struct arena *arena, struct json *object, const char *name, size_t name_len, struct json *value)
{
	struct json_member *members;
	size_t place;
	bool found;

	CHECK(object->type == JSON_OBJECT);
	CHECK(value != NULL);
	place = find_place(object, name, name_len, &found);
	if (found) {
		object->object.members[place].value = value;
		return;
	}
	check_text(name, name_len);
	object->object.members =
		arena_grow(arena, object->object.members, object->object.count, &object->object.cap, sizeof(struct json_member));
	members = object->object.members;
	memmove(members + place + 1, members + place, (object->object.count - place) * sizeof(*members));
	members[place] = (struct json_member){arena_text_len(arena, name, name_len), name_len, value};
	object->object.count++;
}

void json_set(struct arena *arena, struct json *object, const char *name, struct json *value)
{
	json_set_len(arena, object, name, strlen(name), value);
}

void json_set_text(struct arena *arena, struct json *object, const char *name, const char *text)
{
	if (text != NULL)
		json_set(arena, object, name, json_text(arena, text));
}

void json_set_number(struct arena *arena, struct json *object, const char *name, double value)
{
	json_set(arena, object, name, json_number(arena, value));
}

void json_set_boolean(struct arena *arena, struct json *object, const char *name, bool value)
{
	json_set(arena, object, name, json_boolean(arena, value));
}

void json_set_digest(struct arena *arena, struct json *object, const char *name, const struct digest *digest)
{
	struct json *set = json_object(arena);
	char hex[DIGEST_HEX_LEN + 1];

	digest_hex(digest, hex);
	json_set_text(arena, set, "sha256", hex);
	json_set(arena, object, name, set);
}

bool json_remove(struct json *object, const char *name)
{
	struct json_member *members;
	size_t place;
	bool found;

	if (!json_is(object, JSON_OBJECT))
		return false;
	place = find_place(object, name, strlen(name), &found);
	if (!found)
		return false;
	members = object->object.members;
	object->object.count--;
	memmove(members + place, members + place + 1, (object->object.count - place) * sizeof(*members));
	return true;
}

struct json *json_copy(struct arena *arena, const struct json *json)
{
	struct json *copy = make_node(arena, json->type);

	*copy = *json;
	if (json->type == JSON_STRING) {
		copy->string.text = arena_text_len(arena, json->string.text, json->string.len);
	} else if (json->type == JSON_ARRAY) {
		copy->array.cap = json->array.count;
		copy->array.items = arena_alloc(arena, json->array.count * sizeof(struct json *));
		for (size_t i = 0; i < json->array.count; i++)
			copy->array.items[i] = json_copy(arena, json->array.items[i]);
	} else if (json->type == JSON_OBJECT) {
		copy->object.cap = json->object.count;
		copy->object.members = arena_alloc(arena, json->object.count * sizeof(struct json_member));
		for (size_t i = 0; i < json->object.count; i++) {
			const struct json_member *member = &json->object.members[i];

			copy->object.members[i] = (struct json_member){arena_text_len(arena, member->name, member->name_len),
								       member->name_len, json_copy(arena, member->value)};
		}
	}
	return copy;
}

void json_order(struct json *object, const struct json *names)
{
	size_t placed = 0;

	for (size_t i = 0; i < json_count(names); i++) {
		const struct json *name = json_at(names, i);
		size_t at = placed;
		struct json_member member;

		if (!json_is(name, JSON_STRING))
			continue;
		while (at < json_count(object) && (object->object.members[at].name_len != name->string.len ||
						   memcmp(object->object.members[at].name, name->string.text, name->string.len) != 0))
			at++;
		if (at >= json_count(object))
			continue;
		member = object->object.members[at];
		memmove(&object->object.members[placed + 1], &object->object.members[placed], (at - placed) * sizeof(member));
		object->object.members[placed++] = member;
	}
}

/* ---- Looking ---- */

bool json_is(const struct json *json, enum json_type type)
{
	return json != NULL && json->type == type;
}

struct json *json_get_len(const struct json *object, const char *name, size_t name_len)
{
	size_t place;
	bool found;

	if (!json_is(object, JSON_OBJECT))
		return NULL;
	place = find_place(object, name, name_len, &found);
	return found ? object->object.members[place].value : NULL;
}

struct json *json_get(const struct json *object, const char *name)
{
	return json_get_len(object, name, strlen(name));
}

struct json *json_at(const struct json *array, size_t index)
{
	return json_is(array, JSON_ARRAY) && index < array->array.count ? array->array.items[index] : NULL;
}

size_t json_count(const struct json *array_or_object)
{
	if (json_is(array_or_object, JSON_ARRAY))
		return array_or_object->array.count;
	return json_is(array_or_object, JSON_OBJECT) ? array_or_object->object.count : 0;
}

const char *json_get_text(const struct json *object, const char *name)
{
	const struct json *value = json_get(object, name);

	return json_is(value, JSON_STRING) ? value->string.text : NULL;
}

double json_get_number(const struct json *object, const char *name, double fallback)
{
	const struct json *value = json_get(object, name);

	return json_is(value, JSON_NUMBER) ? value->number : fallback;
}

bool json_get_boolean(const struct json *object, const char *name, bool fallback)
{
	const struct json *value = json_get(object, name);

	return json_is(value, JSON_BOOLEAN) ? value->boolean : fallback;
}

bool json_get_digest(const struct json *object, const char *name, struct digest *digest)
{
	const struct json *value = json_get(object, name);
	const char *text = json_is(value, JSON_STRING) ? value->string.text : json_get_text(value, "sha256");

	return text != NULL && digest_parse(text, digest);
}

bool json_is_integer(const struct json *json)
{
	return json_is(json, JSON_NUMBER) && fabs(json->number) <= INTEGER_MAX && trunc(json->number) == json->number;
}

bool json_equal(const struct json *a, const struct json *b)
{
	if (a == b)
		return true;
	if (a == NULL || b == NULL || a->type != b->type)
		return false;
	switch (a->type) {
	case JSON_NULL:
		return true;
	case JSON_BOOLEAN:
		return a->boolean == b->boolean;
	case JSON_NUMBER:
		return a->number == b->number;
	case JSON_STRING:
		return a->string.len == b->string.len && memcmp(a->string.text, b->string.text, a->string.len) == 0;
	case JSON_ARRAY:
		if (a->array.count != b->array.count)
			return false;
		for (size_t i = 0; i < a->array.count; i++) {
			if (!json_equal(a->array.items[i], b->array.items[i]))
				return false;
		}
		return true;
	case JSON_OBJECT:
		if (a->object.count != b->object.count)
			return false;
		for (size_t i = 0; i < a->object.count; i++) {
			const struct json_member *x = &a->object.members[i], *y = &b->object.members[i];

			if (x->name_len != y->name_len || memcmp(x->name, y->name, x->name_len) != 0 || !json_equal(x->value, y->value))
				return false;
		}
		return true;
	}
	return false;
}

bool json_nests_within(const struct json *json, size_t levels)
{
	bool within = true;

	if (json == NULL || (json->type != JSON_ARRAY && json->type != JSON_OBJECT))
		return true;
	if (levels == 0)
		return false;
	for (size_t i = 0; i < json_count(json) && within; i++)
		within = json_nests_within(json->type == JSON_ARRAY ? json->array.items[i] : json->object.members[i].value, levels - 1);
	return within;
}

bool json_is_strict(const struct json *json)
{
	bool strict = true;

	if (json == NULL)
		return true;
	if (json->type == JSON_NUMBER) /* past 1e21 the text has an exponent and is no integer text */
		return fabs(json->number) <= INTEGER_MAX || fabs(json->number) >= 1e21 || json->number != floor(json->number);
	if (json->type == JSON_ARRAY || json->type == JSON_OBJECT)
		for (size_t i = 0; i < json_count(json) && strict; i++)
			strict = json_is_strict(json->type == JSON_ARRAY ? json->array.items[i] : json->object.members[i].value);
	return strict;
}

bool json_truthy(const struct json *json)
{
	return json != NULL && json->type != JSON_NULL && !(json->type == JSON_BOOLEAN && !json->boolean);
}

/* ---- Pointers ---- */

void json_pointer_add(struct buffer *pointer, const char *part)
{
	buffer_add_char(pointer, '/');
	for (; *part != '\0'; part++) {
		if (*part == '~')
			buffer_add(pointer, "~0", 2);
		else if (*part == '/')
			buffer_add(pointer, "~1", 2);
		else
			buffer_add_char(pointer, *part);
	}
}

/* "0", "17", but not "", "01", "-" or what no array is long enough for. */
static bool parse_index(struct bytes part, size_t *index)
{
	*index = 0;
	if (part.len == 0 || part.len > 15 || (part.len > 1 && part.data[0] == '0'))
		return false;
	for (size_t i = 0; i < part.len; i++) {
		if (part.data[i] < '0' || part.data[i] > '9')
			return false;
		*index = *index * 10 + (part.data[i] - '0');
	}
	return true;
}

/* From behind a '/' to the next one, unescaped; false for a ~ that escapes nothing. */
static bool take_part(const char **at, struct buffer *part)
{
	buffer_clear(part);
	for (; **at != '\0' && **at != '/'; (*at)++) {
		if (**at != '~') {
			buffer_add_char(part, **at);
			continue;
		}
		(*at)++;
		if (**at != '0' && **at != '1')
			return false;
		buffer_add_char(part, **at == '0' ? '~' : '/');
	}
	return true;
}

struct json *json_pointer_get(const struct json *json, const char *pointer)
{
	const struct json *found = json;
	struct buffer part;

	buffer_init(&part, strlen(pointer));
	while (found != NULL && *pointer != '\0') {
		size_t index;

		if (*pointer++ != '/' || !take_part(&pointer, &part))
			found = NULL;
		else if (found->type == JSON_OBJECT)
			found = json_get_len(found, buffer_text(&part), part.len);
		else
			found = parse_index(buffer_bytes(&part), &index) ? json_at(found, index) : NULL;
	}
	buffer_close(&part);
	return (struct json *)found;
}
