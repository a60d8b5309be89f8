/* Fuzzing entry: a text, the byte 0xFF (in no UTF-8 text), a quote. Offsets always enclose whole characters, all kinds of offsets
 * agree, an exact hit holds the quote's bytes, and what was found is found again by its own bytes. libFuzzer; see HACKING.md. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "activities/grounding.h"
#include "workflow/base/check.h"
#include "workflow/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_units(struct bytes text, size_t at, size_t code_points, size_t utf16)
{
	size_t want_code_points = 0, want_utf16 = 0;

	for (size_t i = 0; i < at; i++) {
		want_code_points += (text.data[i] & 0xC0) != 0x80;
		want_utf16 += ((text.data[i] & 0xC0) != 0x80) + (text.data[i] >= 0xF0);
	}
	CHECK(code_points == want_code_points);
	CHECK(utf16 == want_utf16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *mark = size == 0 ? NULL : memchr(data, 0xFF, size);
	struct bytes text, quote, hit;
	struct grounding_text *prepared;
	struct grounding first, again;
	size_t from;

	if (mark == NULL)
		return 0;
	text = (struct bytes){data, (size_t)(mark - data)};
	quote = (struct bytes){mark + 1, size - text.len - 1};
	if (!utf8_valid(text, NULL) || !utf8_valid(quote, NULL))
		return 0;
	prepared = grounding_text_new(text);
	from = text.len / 3;
	grounding_find(prepared, quote, from, &first);
	CHECK((first.grade == GROUNDING_UNGROUNDED) == (first.score == 0));
	if (first.grade == GROUNDING_UNGROUNDED) {
		CHECK(first.byte_end == 0);
		goto out;
	}
	CHECK(first.byte_start < first.byte_end);
	CHECK(first.byte_end <= text.len);
	hit = (struct bytes){text.data + first.byte_start, first.byte_end - first.byte_start};
	CHECK(utf8_valid(hit, NULL));
	check_units(text, first.byte_start, first.code_point_start, first.utf16_start);
	check_units(text, first.byte_end, first.code_point_end, first.utf16_end);
	if (first.grade == GROUNDING_EXACT)
		CHECK(bytes_equal(hit, quote));
	grounding_find(prepared, hit, from, &again);
	CHECK(again.grade != GROUNDING_UNGROUNDED);
	CHECK(again.byte_start <= first.byte_start || again.byte_start >= from);
	/* The text grounds itself, unless it shows nothing. */
	grounding_find(prepared, text, 0, &again);
	CHECK(again.grade == GROUNDING_EXACT);
	CHECK(again.byte_start == 0);
	CHECK(again.byte_end == text.len);
out:
	grounding_text_free(prepared);
	return 0;
}
