/* SHA-256 by Nettle, which uses the processor's own instructions where it has them (five times as fast as libsodium's; some
 * 35 KB are hashed for a run of one task), its text forms, and base64. Pure. */
#include "workflow/base/digest.h"

#include <assert.h>
#include <nettle/sha2.h>
#include <string.h>

#include "workflow/base/check.h"

static_assert(sizeof(struct digest) == SHA256_DIGEST_SIZE, "a digest is a SHA-256");
static_assert(sizeof(struct digest_stream) >= sizeof(struct sha256_ctx), "the state fits");
static_assert(DIGEST_TEXT_LEN == sizeof("sha256:") - 1 + DIGEST_HEX_LEN, "prefix and digits");

static const char hex_digits[] = "0123456789abcdef";
static const char digest_prefix[] = "sha256:";

struct digest digest_of(struct bytes bytes)
{
	struct sha256_ctx context;
	struct digest digest;

	sha256_init(&context);
	sha256_update(&context, bytes.len, bytes.data);
	sha256_digest(&context, sizeof(digest.bytes), digest.bytes);
	return digest;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

void digest_hex(const struct digest *digest, char hex[DIGEST_HEX_LEN + 1])
{
	for (size_t i = 0; i < sizeof(digest->bytes); i++) {
		hex[2 * i] = hex_digits[digest->bytes[i] >> 4];
		hex[2 * i + 1] = hex_digits[digest->bytes[i] & 15];
	}
	hex[DIGEST_HEX_LEN] = '\0';
}

void digest_text(const struct digest *digest, char text[DIGEST_TEXT_LEN + 1])
{
	memcpy(text, digest_prefix, sizeof(digest_prefix) - 1);
	digest_hex(digest, text + sizeof(digest_prefix) - 1);
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

bool digest_parse(const char *text, struct digest *digest)
{
	struct digest parsed;

	if (strncmp(text, digest_prefix, sizeof(digest_prefix) - 1) == 0)
		text += sizeof(digest_prefix) - 1;
	for (size_t i = 0; i < sizeof(parsed.bytes); i++) {
		int high = hex_value(text[2 * i]), low;

		if (high < 0)
			return false; /* A NUL ends here as well, before the byte behind it is looked at. */
		low = hex_value(text[2 * i + 1]);
		if (low < 0)
			return false;
		parsed.bytes[i] = (uint8_t)(high << 4 | low);
	}
	if (text[DIGEST_HEX_LEN] != '\0')
		return false;
	*digest = parsed;
	return true;
}

void digest_stream_init(struct digest_stream *stream)
{
	sha256_init((struct sha256_ctx *)stream->opaque);
}

void digest_stream_add(struct digest_stream *stream, struct bytes bytes)
{
	sha256_update((struct sha256_ctx *)stream->opaque, bytes.len, bytes.data);
}

struct digest digest_stream_finish(struct digest_stream *stream)
{
	struct digest digest;

	sha256_digest((struct sha256_ctx *)stream->opaque, sizeof(digest.bytes), digest.bytes);
	return digest;
}

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_add(struct buffer *out, struct bytes bytes)
{
	size_t i = 0;

	for (; bytes.len - i >= 3; i += 3) {
		const uint8_t *in = bytes.data + i;
		char group[4] = {base64_digits[in[0] >> 2], base64_digits[(in[0] & 3) << 4 | in[1] >> 4],
				 base64_digits[(in[1] & 15) << 2 | in[2] >> 6], base64_digits[in[2] & 63]};

		buffer_add(out, group, sizeof(group));
	}
	if (bytes.len - i > 0) {
		uint8_t first = bytes.data[i], second = bytes.len - i == 2 ? bytes.data[i + 1] : 0;
		char group[4] = {base64_digits[first >> 2], base64_digits[(first & 3) << 4 | second >> 4],
				 bytes.len - i == 2 ? base64_digits[(second & 15) << 2] : '=', '='};

		buffer_add(out, group, sizeof(group));
	}
}

enum alphabet { ALPHABET_ANY, ALPHABET_STANDARD, ALPHABET_URL };

/* The value of one digit, -1 when it is none. Sets the alphabet at the first digit that only one of them has. */
static int base64_value(uint8_t c, enum alphabet *alphabet)
{
	enum alphabet wanted;

	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '/')
		wanted = ALPHABET_STANDARD;
	else if (c == '-' || c == '_')
		wanted = ALPHABET_URL;
	else
		return -1;
	if (*alphabet == ALPHABET_ANY)
		*alphabet = wanted;
	if (*alphabet != wanted)
		return -1;
	return c == '+' || c == '-' ? 62 : 63;
}

/* Four digits to one to three bytes; the number of bytes, 0 when the group is not one. Padding only in the last group. */
static size_t decode_group(const uint8_t *in, bool last, enum alphabet *alphabet, uint8_t decoded[3])
{
	size_t padding = last && in[3] == '=' ? (in[2] == '=' ? 2 : 1) : 0;
	int value[4] = {0};

	for (size_t i = 0; i < 4 - padding; i++) {
		value[i] = base64_value(in[i], alphabet);
		if (value[i] < 0)
			return 0;
	}
	if (padding == 2 && (value[1] & 15) != 0)
		return 0;
	if (padding == 1 && (value[2] & 3) != 0)
		return 0;
	decoded[0] = (uint8_t)(value[0] << 2 | value[1] >> 4);
	decoded[1] = (uint8_t)(value[1] << 4 | value[2] >> 2);
	decoded[2] = (uint8_t)(value[2] << 6 | value[3]);
	return 3 - padding;
}

/* Nothing is left in `out` of a text that is refused. */
bool base64_decode(struct bytes text, struct buffer *out)
{
	size_t len_before = out->len;
	enum alphabet alphabet = ALPHABET_ANY;

	if (text.len % 4 != 0)
		return false;
	for (size_t i = 0; i < text.len; i += 4) {
		uint8_t decoded[3];
		size_t len = decode_group(text.data + i, i + 4 == text.len, &alphabet, decoded);

		if (len == 0)
			goto refuse;
		buffer_add(out, decoded, len);
	}
	if (!out->overflow)
		return true;
refuse:
	if (out->data != NULL) {
		out->len = len_before;
		out->data[out->len] = '\0';
	}
	return false;
}

bool digest_prefix_range(const char *prefix, struct digest *from, struct digest *to)
{
	size_t len = strlen(prefix);

	if (strncmp(prefix, digest_prefix, sizeof(digest_prefix) - 1) == 0) {
		prefix += sizeof(digest_prefix) - 1;
		len -= sizeof(digest_prefix) - 1;
	}
	if (len < DIGEST_PREFIX_MIN || len > DIGEST_HEX_LEN)
		return false;
	memset(from, 0, sizeof(*from));
	memset(to, 0xff, sizeof(*to));
	for (size_t i = 0; i < len; i++) {
		const char *digit = strchr(hex_digits, prefix[i]);
		unsigned shift = i % 2 == 0 ? 4 : 0, value;

		if (digit == NULL)
			return false;
		value = (unsigned)(digit - hex_digits) << shift;
		from->bytes[i / 2] = (uint8_t)(from->bytes[i / 2] | value);
		to->bytes[i / 2] = (uint8_t)((to->bytes[i / 2] & ~(0xfu << shift)) | value);
	}
	return true;
}
