/* Tests of workflow/base/digest.c. Expected digests are those of FIPS 180-4's examples. */
#include "workflow/base/digest.h"

#include <sodium.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

#define EMPTY_HEX "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ABC_HEX "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

/* Digests of known texts, in both text forms, and back. */
START_TEST(known_digests)
{
	struct digest digest = digest_of(BYTES_OF("abc")), parsed;
	char hex[DIGEST_HEX_LEN + 1], text[DIGEST_TEXT_LEN + 1];

	digest_hex(&digest, hex);
	ck_assert_str_eq(hex, ABC_HEX);
	digest_text(&digest, text);
	ck_assert_str_eq(text, "sha256:" ABC_HEX);
	ck_assert(digest_parse(hex, &parsed));
	ck_assert(digest_equal(&digest, &parsed));
	memset(&parsed, 0, sizeof(parsed));
	ck_assert(digest_parse(text, &parsed));
	ck_assert(digest_equal(&digest, &parsed));
	digest = digest_of((struct bytes){NULL, 0});
	ck_assert(!digest_equal(&digest, &parsed));
	digest_hex(&digest, hex);
	ck_assert_str_eq(hex, EMPTY_HEX);
}
END_TEST

/* Only 64 lower-case digits are a digest, with or without the prefix. */
START_TEST(no_digests)
{
	static const char *const bad[] = {"", "sha256:", "sha256:sha256:" ABC_HEX, "SHA256:" ABC_HEX, ABC_HEX "0", "sha256:" ABC_HEX "0",
		" " ABC_HEX, ABC_HEX " ", "sha512:" ABC_HEX, "g" ABC_HEX};
	struct digest digest;
	char text[DIGEST_HEX_LEN + 1];

	for (size_t i = 0; i < COUNT_OF(bad); i++)
		ck_assert_msg(!digest_parse(bad[i], &digest), "%s", bad[i]);
	for (size_t len = 0; len < DIGEST_HEX_LEN; len++) {
		char *cut = strndup(ABC_HEX, len);

		ck_assert(!digest_parse(cut, &digest));
		free(cut);
		strcpy(text, ABC_HEX);
		text[len] = 'A';
		ck_assert(!digest_parse(text, &digest));
	}
}
END_TEST

/* However a text is cut, the stream gives the digest of the whole. */
START_TEST(stream_gives_the_same)
{
	uint8_t data[300];
	struct digest whole;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	whole = digest_of((struct bytes){data, sizeof(data)});
	for (size_t step = 1; step < 130; step++) {
		struct digest_stream stream;
		struct digest digest;

		digest_stream_init(&stream);
		for (size_t at = 0; at < sizeof(data); at += step)
			digest_stream_add(&stream, (struct bytes){data + at, sizeof(data) - at < step ? sizeof(data) - at : step});
		digest_stream_add(&stream, (struct bytes){NULL, 0});
		digest = digest_stream_finish(&stream);
		ck_assert(digest_equal(&digest, &whole));
	}
}
END_TEST

/* At every length over two blocks: libsodium, which shares no code with ours, finds the same. */
START_TEST(digests_agree_with_libsodium)
{
	uint8_t data[200], expected[crypto_hash_sha256_BYTES];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 11 + 3);
	for (size_t len = 0; len <= sizeof(data); len++) {
		struct digest digest = digest_of((struct bytes){data, len});

		crypto_hash_sha256(expected, data, len);
		ck_assert_mem_eq(digest.bytes, expected, sizeof(expected));
	}
}
END_TEST

/* The examples of RFC 4648 section 10, both ways. */
START_TEST(base64_examples)
{
	static const char *const cases[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="},
		{"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct buffer out;

		buffer_init(&out, 100);
		base64_add(&out, bytes_text(cases[i][0]));
		ck_assert_str_eq(buffer_text(&out), cases[i][1]);
		buffer_clear(&out);
		ck_assert(base64_decode(bytes_text(cases[i][1]), &out));
		ck_assert_str_eq(buffer_text(&out), cases[i][0]);
		buffer_close(&out);
	}
}
END_TEST

/* Every length and byte: libsodium writes the same, and both alphabets come back. */
START_TEST(base64_agrees_with_libsodium)
{
	uint8_t data[256];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 167 + 13);
	for (size_t len = 0; len <= sizeof(data); len++) {
		char expected[400];
		struct buffer out, back;

		buffer_init(&out, 1000);
		buffer_init(&back, 1000);
		sodium_bin2base64(expected, sizeof(expected), data, len, sodium_base64_VARIANT_ORIGINAL);
		base64_add(&out, (struct bytes){data, len});
		ck_assert_str_eq(buffer_text(&out), expected);
		ck_assert(base64_decode(buffer_bytes(&out), &back));
		ck_assert(bytes_equal(buffer_bytes(&back), (struct bytes){data, len}));
		sodium_bin2base64(expected, sizeof(expected), data, len, sodium_base64_VARIANT_URLSAFE);
		buffer_clear(&back);
		ck_assert(base64_decode(bytes_text(expected), &back));
		ck_assert(bytes_equal(buffer_bytes(&back), (struct bytes){data, len}));
		buffer_close(&back);
		buffer_close(&out);
	}
}
END_TEST

/* Mixed alphabets, line breaks, missing or wrong padding, trailing bits: refused, and nothing is left behind. */
START_TEST(base64_is_strict)
{
	static const char *const bad[] = {"Z", "Zg", "Zg=", "Zm8", "Zg===", "Zg==Zg==", "=", "====", "Zg=a", "Z===", "Zh==", "Zm9=", "ab+_", "-/ab",
		"Zm9v\n", "Zm 9v", "Zm9v\r\n\r\n", "Zm9*", "Zm9v====", "Z\xC3\xA9v", "Zm9vZm9", "a=bc"};

	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		struct buffer out;

		buffer_init(&out, 100);
		buffer_add_text(&out, "before");
		ck_assert_msg(!base64_decode(bytes_text(bad[i]), &out), "%s", bad[i]);
		ck_assert_str_eq(buffer_text(&out), "before");
		buffer_close(&out);
	}
	/* A NUL is no digit either. */
	struct buffer out;

	buffer_init(&out, 100);
	ck_assert(!base64_decode(BYTES_OF("Zm\0v"), &out));
	buffer_close(&out);
}
END_TEST

/* What does not fit into the buffer is refused as a whole. */
START_TEST(base64_respects_the_maximum)
{
	struct buffer out;

	buffer_init(&out, 6);
	ck_assert(base64_decode(BYTES_OF("Zm9vYmFy"), &out));
	buffer_close(&out);
	buffer_init(&out, 5);
	ck_assert(!base64_decode(BYTES_OF("Zm9vYmFy"), &out));
	ck_assert(out.overflow);
	ck_assert_uint_eq(out.len, 0);
	buffer_close(&out);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("base-digest", known_digests, no_digests, stream_gives_the_same, digests_agree_with_libsodium, base64_examples, base64_agrees_with_libsodium, base64_is_strict,
	   base64_respects_the_maximum)
