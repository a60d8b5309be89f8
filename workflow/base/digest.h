/* SHA-256 digests and their text forms. Pure. */
#pragma once

#include "workflow/base/bytes.h"

struct digest {
	uint8_t bytes[32];
};

enum { DIGEST_HEX_LEN = 64, DIGEST_TEXT_LEN = 71 /* "sha256:" and 64 digits */, DIGEST_PREFIX_MIN = 12 /* digits that people may give for all of them */ };

struct digest digest_of(struct bytes bytes);
bool digest_equal(const struct digest *a, const struct digest *b);
void digest_hex(const struct digest *digest, char hex[DIGEST_HEX_LEN + 1]);
void digest_text(const struct digest *digest, char text[DIGEST_TEXT_LEN + 1]); /* "sha256:<hex>" as the API writes it */
/* Accept 64 lower-case hex digits, with or without "sha256:". False when it is neither. */
bool digest_parse(const char *text, struct digest *digest);
/* The range of digests that begin with DIGEST_PREFIX_MIN or more digits, with or without "sha256:". */
bool digest_prefix_range(const char *prefix, struct digest *from, struct digest *to);

/* Piecewise, for bodies that arrive in parts. */
struct digest_stream {
	_Alignas(16) uint8_t opaque[128];
};
void digest_stream_init(struct digest_stream *stream);
void digest_stream_add(struct digest_stream *stream, struct bytes bytes);
struct digest digest_stream_finish(struct digest_stream *stream);

/* Base64 of RFC 4648 section 4 with padding. Decoding also takes the URL-safe alphabet; it refuses mixed alphabets, line
 * breaks, missing or wrong padding and non-zero trailing bits. */
void base64_add(struct buffer *out, struct bytes bytes);
bool base64_decode(struct bytes text, struct buffer *out);
