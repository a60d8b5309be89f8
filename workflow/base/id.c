/* Identifiers: what may be one, and the sortable ones that the daemon makes. Pure. */
#include "workflow/base/id.h"

#include <string.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool id_valid(const char *text)
{
	size_t len = 0;

	for (; text[len] != '\0'; len++) {
		char c = text[len];

		if (len == ID_LEN_MAX || (!is_digit(c) && !is_letter(c) && c != '.' && c != '_' && c != '-'))
			return false;
	}
	/* Clients take "." and ".." out of a URL's path before they send it: nothing of that name could be asked for. */
	return len > 0 && strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

/* 128 bits as 26 digits of 5 bits: the first digit has only 3 bits to carry. Sorting texts sorts times. */
void id_make(int64_t wall_ms, const uint8_t random[10], char id[27])
{
	static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
	uint64_t time = (uint64_t)wall_ms & UINT64_C(0xFFFFFFFFFFFF);
	uint8_t bytes[16];

	for (int i = 0; i < 6; i++)
		bytes[i] = (uint8_t)(time >> (40 - 8 * i));
	memcpy(bytes + 6, random, 10);
	for (int i = 0; i < 26; i++) {
		int value = 0;

		/* Bit 0 of the 130 is the first of two zeros put before the 128. */
		for (int bit = 5 * i - 2; bit < 5 * i + 3; bit++)
			value = value << 1 | (bit < 0 ? 0 : bytes[bit / 8] >> (7 - bit % 8) & 1);
		id[i] = digits[value];
	}
	id[26] = '\0';
}

bool id_valid_label(const char *text)
{
	size_t len = 0;

	for (; text[len] != '\0'; len++) {
		if (len == ID_LABEL_LEN_MAX || (!is_digit(text[len]) && !is_letter(text[len]) && text[len] != '-'))
			return false;
	}
	return len > 0 && text[0] != '-' && text[len - 1] != '-';
}

/* A number without a leading zero, up to the next character that is no digit. */
static bool skip_number(const char **at)
{
	const char *start = *at;

	while (is_digit(**at))
		(*at)++;
	return *at > start && (*start != '0' || *at == start + 1);
}

/* Dot-separated parts of [0-9A-Za-z-]; in a pre-release a part of digits alone has no leading zero. */
static bool skip_parts(const char **at, bool numbers_strict)
{
	for (;;) {
		const char *start = *at;
		bool digits_only = true;

		for (; is_digit(**at) || is_letter(**at) || **at == '-'; (*at)++)
			digits_only = digits_only && is_digit(**at);
		if (*at == start)
			return false;
		if (numbers_strict && digits_only && *start == '0' && *at > start + 1)
			return false;
		if (**at != '.')
			return true;
		(*at)++;
	}
}

bool id_valid_version(const char *text)
{
	const char *at = text;

	if (strnlen(text, ID_VERSION_LEN_MAX + 1) > ID_VERSION_LEN_MAX)
		return false;
	for (int part = 0; part < 3; part++) {
		if (part > 0 && *at++ != '.')
			return false;
		if (!skip_number(&at))
			return false;
	}
	if (*at == '-') {
		at++;
		if (!skip_parts(&at, true))
			return false;
	}
	if (*at == '+') {
		at++;
		if (!skip_parts(&at, false))
			return false;
	}
	return *at == '\0';
}
