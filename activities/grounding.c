/* Grounding: where a quote stands in a text, and how exactly. Pure, any thread. Start at grounding_find(), then normalise().
 *
 * The text is normalised once, in units that are normalised each on its own: NFKC of the text is then the chain of the NFKC of
 * its units, and every normalised byte leads back to the original bytes of its unit. A hit counts only if it begins and ends
 * at the edge of a unit, so that what is reported always encloses whole characters with their marks. */
#include "activities/grounding.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "activities/text.h"
#include "workflow/base/check.h"

enum {
	/* Longer chains of combining marks are cut into several units: sorting marks takes quadratic time. (Unicode's own
	 * stream-safe format allows 30 in a row.) */
	UNIT_CODE_POINTS_MAX = 64,
	DECOMPOSITION_MAX = 18, /* U+FDFA, the longest there is */
	FIRST_SEGMENTS = 64,
	NORMALISED_FIRST = 256,
};

/* NFKC; characters that show nothing (soft hyphen, zero width, direction marks) are left out. */
static const utf8proc_option_t unit_options =
	UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_COMPOSE | UTF8PROC_IGNORE;

/* A stretch of normalised bytes and where it came from. Straight: byte for byte the original, and each character a unit of
 * its own, so that a hit may begin and end inside. Otherwise one unit, or one run of white space. */
struct segment {
	size_t normalised, original, original_len;
	bool straight;
};

struct normalised {
	uint8_t *data;
	size_t len, cap;
	struct segment *segments;
	size_t segment_count, segment_cap;
	/* A run of white space that is not yet written: what follows decides where it ends. */
	size_t space_start, space_end;
	bool in_space, plain_space;
};

struct grounding_text {
	struct bytes text;
	struct normalised normalised;
};

const char *grounding_grade_name(enum grounding_grade grade)
{
	static const char *const names[] = {
		[GROUNDING_EXACT] = "exact", [GROUNDING_NORMALISED] = "normalised",
		[GROUNDING_FUZZY] = "fuzzy", [GROUNDING_UNGROUNDED] = "ungrounded",
	};

	CHECK((size_t)grade < COUNT_OF(names));
	return names[grade];
}

/* ---- Normalising ---- */

/* After NFKC: the typographic forms that models write as ASCII and the other way round. */
static utf8proc_int32_t fold(utf8proc_int32_t c)
{
	switch (c) {
	case 0x2018: case 0x2019: case 0x201A: case 0x201B: case 0x2039: case 0x203A:
		return '\'';
	case 0x201C: case 0x201D: case 0x201E: case 0x201F: case 0xAB: case 0xBB: case 0x301D: case 0x301E: case 0x301F:
		return '"';
	case 0x2010: case 0x2011: case 0x2012: case 0x2013: case 0x2014: case 0x2015: case 0x2212: case 0x2E3A: case 0x2E3B:
		return '-';
	default:
		return text_is_white_space(c) ? ' ' : c;
	}
}

/* True when NFKC could combine the character with what stands before it although a grapheme cluster ends there: Hangul
 * compatibility letters do that, for example. */
static bool joins_backward(utf8proc_int32_t c)
{
	utf8proc_int32_t parts[DECOMPOSITION_MAX];
	utf8proc_ssize_t count;
	int last = 0;

	if (c < 0x300)
		return false;
	count = utf8proc_decompose_char(c, parts, DECOMPOSITION_MAX, UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE, &last);
	CHECK(count > 0);
	CHECK(count <= DECOMPOSITION_MAX);
	return utf8proc_get_property(parts[0])->combining_class != 0 || (parts[0] >= 0x1161 && parts[0] <= 0x1175) ||
	       (parts[0] >= 0x11A8 && parts[0] <= 0x11C2);
}

static size_t find_unit_end(struct bytes text, size_t at, size_t *code_points)
{
	utf8proc_int32_t state = 0, before, c;
	size_t len, count = 1;

	before = text_code_point(text, at, &len);
	for (at += len; at < text.len && count < UNIT_CODE_POINTS_MAX; at += len) {
		c = text_code_point(text, at, &len);
		if (utf8proc_grapheme_break_stateful(before, c, &state) && !joins_backward(c))
			break;
		before = c;
		count++;
	}
	*code_points = count;
	return at;
}

static void write_bytes(struct normalised *out, const uint8_t *data, size_t len)
{
	if (out->len + len > out->cap) {
		out->cap = 2 * out->cap + len + NORMALISED_FIRST;
		out->data = memory_resize(out->data, out->cap);
	}
	memcpy(out->data + out->len, data, len);
	out->len += len;
}

static void add_segment(struct normalised *out, size_t original, size_t original_len, bool straight)
{
	struct segment *last = out->segment_count > 0 ? &out->segments[out->segment_count - 1] : NULL;

	if (straight && last != NULL && last->straight && last->original + last->original_len == original) {
		last->original_len += original_len;
		return;
	}
	if (out->segment_count == out->segment_cap) {
		out->segment_cap = out->segment_cap == 0 ? FIRST_SEGMENTS : 2 * out->segment_cap;
		out->segments = memory_resize(out->segments, out->segment_cap * sizeof(*out->segments));
	}
	out->segments[out->segment_count++] = (struct segment){out->len, original, original_len, straight};
}

static void end_space(struct normalised *out)
{
	if (!out->in_space)
		return;
	out->in_space = false;
	add_segment(out, out->space_start, out->space_end - out->space_start, out->plain_space);
	write_bytes(out, (const uint8_t *)" ", 1);
}

static void add_space(struct normalised *out, struct bytes text, size_t start, size_t end)
{
	if (!out->in_space)
		out->space_start = start;
	out->plain_space = !out->in_space && end == start + 1 && text.data[start] == ' ';
	out->space_end = end;
	out->in_space = true;
}

static void add_unit(struct normalised *out, struct bytes text, size_t start, size_t end, size_t code_points)
{
	utf8proc_int32_t parts[UNIT_CODE_POINTS_MAX * DECOMPOSITION_MAX];
	uint8_t encoded[COUNT_OF(parts) * 4];
	utf8proc_ssize_t count;
	size_t len = 0;
	bool space = true;

	count = utf8proc_decompose(text.data + start, (utf8proc_ssize_t)(end - start), parts, COUNT_OF(parts), unit_options);
	CHECK(count >= 0);
	CHECK(count <= (utf8proc_ssize_t)COUNT_OF(parts));
	count = utf8proc_normalize_utf32(parts, count, unit_options);
	CHECK(count >= 0);
	for (utf8proc_ssize_t i = 0; i < count; i++) {
		utf8proc_int32_t c = fold(parts[i]);

		space = space && c == ' ';
		len += (size_t)utf8proc_encode_char(c, encoded + len);
	}
	if (count == 0)
		return;
	if (space) {
		add_space(out, text, start, end);
		return;
	}
	end_space(out);
	add_segment(out, start, end - start, code_points == 1 && len == end - start && memcmp(encoded, text.data + start, len) == 0);
	write_bytes(out, encoded, len);
}

static void normalise(struct normalised *out, struct bytes text)
{
	size_t at = 0, end, code_points;

	while (at < text.len) {
		uint8_t c = text.data[at];

		/* Most text: an ASCII character before another one is a unit that NFKC leaves alone. */
		if (c < 0x80 && (at + 1 == text.len || text.data[at + 1] < 0x80)) {
			if (text_is_white_space(c)) {
				add_space(out, text, at, at + 1);
			} else {
				end_space(out);
				add_segment(out, at, 1, true);
				write_bytes(out, &c, 1);
			}
			at++;
			continue;
		}
		end = find_unit_end(text, at, &code_points);
		add_unit(out, text, at, end, code_points);
		at = end;
	}
	end_space(out);
}

static void normalised_close(struct normalised *normalised)
{
	free(normalised->data);
	free(normalised->segments);
}

struct grounding_text *grounding_text_new(struct bytes text)
{
	struct grounding_text *prepared = memory_zero(sizeof(*prepared));

	prepared->text = text;
	normalise(&prepared->normalised, text);
	return prepared;
}

void grounding_text_free(struct grounding_text *text)
{
	if (text == NULL)
		return;
	normalised_close(&text->normalised);
	free(text);
}

/* ---- Searching ---- */

/* Answers whether the needle at this place counts, and then notes the original range. */
typedef bool (*accept_hit)(const struct grounding_text *text, size_t start, size_t end, size_t from, struct grounding *grounding);

/* A mark that belongs to the character before it. */
static bool continues_character(struct bytes text, size_t at)
{
	size_t before = at, len;
	utf8proc_int32_t c;
	utf8proc_category_t category;

	if (at == 0 || at == text.len)
		return false;
	c = text_code_point(text, at, &len);
	category = utf8proc_category(c);
	if (category != UTF8PROC_CATEGORY_MN && category != UTF8PROC_CATEGORY_MC && category != UTF8PROC_CATEGORY_ME)
		return false;
	do
		before--;
	while ((text.data[before] & 0xC0) == 0x80);
	return joins_backward(c) || !utf8proc_grapheme_break(text_code_point(text, before, &len), c);
}

/* A letter without the mark that stands on it in the text is another letter: "Cafe" is not in "Café", however é is written. */
static bool accept_exact(const struct grounding_text *text, size_t start, size_t end, size_t from, struct grounding *grounding)
{
	if (start < from || continues_character(text->text, start) || continues_character(text->text, end))
		return false;
	grounding->byte_start = start;
	grounding->byte_end = end;
	return true;
}

static const struct segment *find_segment(const struct normalised *normalised, size_t at)
{
	size_t low = 0, high = normalised->segment_count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (normalised->segments[middle].normalised <= at)
			low = middle;
		else
			high = middle;
	}
	return &normalised->segments[low];
}

static bool accept_normalised(const struct grounding_text *text, size_t start, size_t end, size_t from, struct grounding *grounding)
{
	const struct normalised *normalised = &text->normalised;
	const struct segment *first = find_segment(normalised, start), *last = find_segment(normalised, end - 1);
	size_t last_end = last + 1 < normalised->segments + normalised->segment_count ? last[1].normalised : normalised->len;

	if ((!first->straight && start != first->normalised) || (!last->straight && end != last_end))
		return false;
	grounding->byte_start = first->original + (first->straight ? start - first->normalised : 0);
	grounding->byte_end = last->original + (last->straight ? end - last->normalised : last->original_len);
	return grounding->byte_start >= from;
}

/* Knuth, Morris, Pratt: all hits in linear time, overlapping ones too, however many of them are not accepted. */
static bool search_all(const struct grounding_text *text, struct bytes hay, struct bytes needle, size_t from, accept_hit accept,
		       struct grounding *grounding)
{
	size_t *borders = memory_alloc(needle.len * sizeof(*borders));
	size_t matched = 0;
	bool found = false;

	borders[0] = 0;
	for (size_t i = 1; i < needle.len; i++) {
		while (matched > 0 && needle.data[i] != needle.data[matched])
			matched = borders[matched - 1];
		if (needle.data[i] == needle.data[matched])
			matched++;
		borders[i] = matched;
	}
	matched = 0;
	for (size_t i = 0; i < hay.len && !found; i++) {
		while (matched > 0 && hay.data[i] != needle.data[matched])
			matched = borders[matched - 1];
		if (hay.data[i] == needle.data[matched])
			matched++;
		if (matched == needle.len) {
			found = accept(text, i + 1 - needle.len, i + 1, from, grounding);
			matched = borders[matched - 1];
		}
	}
	free(borders);
	return found;
}

static bool search(const struct grounding_text *text, struct bytes hay, struct bytes needle, size_t from, accept_hit accept,
		   struct grounding *grounding)
{
	const uint8_t *hit;
	size_t start;

	if (needle.len == 0 || hay.len < needle.len)
		return false;
	hit = memmem(hay.data, hay.len, needle.data, needle.len);
	if (hit == NULL)
		return false;
	start = (size_t)(hit - hay.data);
	return accept(text, start, start + needle.len, from, grounding) || search_all(text, hay, needle, from, accept, grounding);
}

static struct bytes trim_space(const struct normalised *quote)
{
	struct bytes trimmed = {quote->data, quote->len};

	if (trimmed.len > 0 && trimmed.data[0] == ' ')
		trimmed = (struct bytes){trimmed.data + 1, trimmed.len - 1};
	if (trimmed.len > 0 && trimmed.data[trimmed.len - 1] == ' ')
		trimmed.len--;
	return trimmed;
}

void grounding_find(const struct grounding_text *text, struct bytes quote, size_t from, struct grounding *grounding)
{
	struct normalised normalised = {0};
	struct bytes needle, hay = {text->normalised.data, text->normalised.len};

	*grounding = (struct grounding){.grade = GROUNDING_UNGROUNDED};
	normalise(&normalised, quote);
	needle = trim_space(&normalised);
	if (needle.len == 0) /* A quote that shows nothing says nothing. */
		goto out;
	if (search(text, text->text, quote, from, accept_exact, grounding) || search(text, text->text, quote, 0, accept_exact, grounding))
		grounding->grade = GROUNDING_EXACT;
	else if (search(text, hay, needle, from, accept_normalised, grounding) || search(text, hay, needle, 0, accept_normalised, grounding))
		grounding->grade = GROUNDING_NORMALISED;
	else
		goto out;
	grounding->score = 1;
	text_units(text->text, grounding->byte_start, &grounding->code_point_start, &grounding->utf16_start);
	text_units((struct bytes){text->text.data + grounding->byte_start, grounding->byte_end - grounding->byte_start},
		   grounding->byte_end - grounding->byte_start, &grounding->code_point_end, &grounding->utf16_end);
	grounding->code_point_end += grounding->code_point_start;
	grounding->utf16_end += grounding->utf16_start;
out:
	if (grounding->grade == GROUNDING_UNGROUNDED)
		grounding->byte_start = grounding->byte_end = 0; /* a hit that was looked at and not accepted */
	normalised_close(&normalised);
}

/* ---- Units ---- */

void text_units(struct bytes text, size_t byte_offset, size_t *code_points, size_t *utf16)
{
	const uint64_t ones = 0x0101010101010101u;
	size_t continuation = 0, long_leads = 0, at = 0;

	CHECK(byte_offset <= text.len);
	/* Eight bytes at a time: a large document is counted once for each of its sections. */
	for (; byte_offset - at >= sizeof(uint64_t); at += sizeof(uint64_t)) {
		uint64_t eight;

		memcpy(&eight, text.data + at, sizeof(eight));
		continuation += (((eight >> 7) & (~eight >> 6) & ones) * ones) >> 56;
		long_leads += (((eight >> 7) & (eight >> 6) & (eight >> 5) & (eight >> 4) & ones) * ones) >> 56;
	}
	for (; at < byte_offset; at++) {
		continuation += (text.data[at] & 0xC0) == 0x80;
		long_leads += text.data[at] >= 0xF0;
	}
	*code_points = byte_offset - continuation;
	*utf16 = *code_points + long_leads;
}
