/* Fuzzing entry: the first byte chooses the manner, the second one max_tokens, the rest is a document. Whatever is cut is in order,
 * begins and ends at whole characters, and leaves nothing but white space between. libFuzzer; see HACKING.md. */
#include <stddef.h>
#include <stdint.h>
#include <utf8proc.h>

#include "activities/sections.h"
#include "workflow/base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_gap(struct bytes text, size_t at, size_t end)
{
	utf8proc_int32_t c;

	while (at < end) {
		utf8proc_ssize_t len = utf8proc_iterate(text.data + at, (utf8proc_ssize_t)(text.len - at), &c);
		utf8proc_category_t category;

		CHECK(len > 0);
		category = utf8proc_category(c);
		CHECK((c >= '\t' && c <= '\r') || c == 0x85 || category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
		      category == UTF8PROC_CATEGORY_ZP);
		at += (size_t)len;
	}
	CHECK(at == end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena arena;
	struct sections sections;
	struct error error;
	struct bytes document;
	size_t at = 0;

	if (size < 2)
		return 0;
	document = (struct bytes){data + 2, size - 2};
	arena_init(&arena);
	if (sections_cut(&arena, document, (enum sections_by)(data[0] % 3), data[1], &sections, &error) != 0) {
		CHECK(sections.count == 0);
		CHECK(utf8_valid(bytes_text(error.message), NULL));
		goto out;
	}
	CHECK(sections.count > 0);
	for (size_t i = 0; i < sections.count; i++) {
		const struct section *section = &sections.items[i];

		CHECK(section->start >= at);
		CHECK(section->end > section->start);
		CHECK((section->level == 0) == (section->heading == NULL));
		CHECK(section->heading == NULL || utf8_valid(bytes_text(section->heading), NULL));
		CHECK(utf8_valid((struct bytes){document.data + section->start, section->end - section->start}, NULL));
		check_gap(document, at, section->start);
		at = section->end;
	}
	CHECK(at <= document.len);
	check_gap(document, at, document.len);
out:
	arena_close(&arena);
	return 0;
}
