/* Tests of workflow/base/json.c on the vectors of tests/vectors/jcs, and of what the vectors cannot say: limits, places of
 * faults, large objects, hostile input, making and looking. */
#include "workflow/base/json.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

enum { FILE_MAX = 4 * 1024 * 1024, PRINT_MAX = 64 * 1024 * 1024 };

static struct bytes read_file(struct arena *arena, const char *folder, const char *name, bool must_exist)
{
	const char *path = arena_printf(arena, "%s/%s", folder, name);
	FILE *file = fopen(path, "rb");
	uint8_t *data;
	size_t len;

	if (file == NULL) {
		ck_assert_msg(!must_exist, "cannot read %s", path);
		return (struct bytes){NULL, 0};
	}
	data = arena_alloc(arena, FILE_MAX);
	len = fread(data, 1, FILE_MAX, file);
	ck_assert_uint_lt(len, FILE_MAX);
	fclose(file);
	return (struct bytes){data, len};
}

static struct bytes read_vector(struct arena *arena, const char *name)
{
	const char *folder = getenv("REPRISE_VECTORS");

	ck_assert_msg(folder != NULL && *folder != '\0', "REPRISE_VECTORS names no folder; run by meson test");
	return read_file(arena, folder, name, true);
}

/* NULL data where the third-party vectors are not there. */
static struct bytes read_shared(struct arena *arena, const char *name)
{
	const char *folder = getenv("REPRISE_SHARED");
	struct bytes file = {NULL, 0};

	if (folder != NULL && *folder != '\0')
		file = read_file(arena, folder, name, false);
	if (file.data == NULL)
		printf("skipped: shared vectors not present (%s)\n", name);
	return file;
}

static struct json *parse_good(struct arena *arena, struct bytes text)
{
	struct error error = {0};
	struct json *json = json_parse(arena, text, JSON_STRICT, NULL, &error);

	ck_assert_msg(json != NULL, "%s: %.200s", error.message, (const char *)text.data);
	return json;
}

static enum json_code parse_code(struct bytes text, unsigned flags)
{
	struct json_fault fault;
	struct arena arena;
	struct json *json;
	/* A copy of the exact size, so that AddressSanitizer sees a read past the end. */
	uint8_t *copy = memory_alloc(text.len);

	if (text.len > 0)
		memcpy(copy, text.data, text.len);
	arena_init(&arena);
	json = json_parse(&arena, (struct bytes){copy, text.len}, flags, &fault, NULL);
	ck_assert((json == NULL) == (fault.code != JSON_OK));
	arena_close(&arena);
	free(copy);
	return fault.code;
}

static const char *print_text(const struct json *json, struct arena *arena)
{
	return (const char *)json_print_arena(json, arena).data;
}

static const char *canonical(struct arena *arena, const char *text)
{
	return print_text(parse_good(arena, bytes_text(text)), arena);
}

static const char *number_text(double number, struct buffer *out)
{
	buffer_clear(out);
	json_print_number(number, out);
	return buffer_text(out);
}

static double number_of_bits(uint64_t bits)
{
	double number;

	memcpy(&number, &bits, sizeof(number));
	return number;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* ---- Vectors ---- */

static void check_document(struct arena *arena, struct bytes input, struct bytes output, const char *name)
{
	struct json *json, *again;
	struct digest digest, expected;
	struct bytes printed;

	json = parse_good(arena, input);
	printed = json_print_arena(json, arena);
	ck_assert_msg(bytes_equal(printed, output), "%s: got %s", name, (const char *)printed.data);
	again = parse_good(arena, printed);
	ck_assert(json_equal(json, again));
	ck_assert(bytes_equal(json_print_arena(again, arena), output));
	digest = json_digest(json);
	expected = digest_of(output);
	ck_assert(digest_equal(&digest, &expected));
}

/* Each document prints in its canonical form, byte for byte. */
START_TEST(documents)
{
	static const char *const names[] = {"config-like", "empty", "fact-like", "keys-utf16", "nested-order", "top-array",
					    "top-null", "top-number", "top-string"};
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(names); i++)
		check_document(&arena, read_vector(&arena, arena_printf(&arena, "jcs/input/%s.json", names[i])),
			       read_vector(&arena, arena_printf(&arena, "jcs/output/%s.json", names[i])), names[i]);
	arena_close(&arena);
}
END_TEST

static struct bytes without(struct arena *arena, struct bytes text, const char *part)
{
	struct bytes copy = arena_bytes(arena, text);
	char *found = strstr((char *)copy.data, part);

	ck_assert_ptr_nonnull(found);
	copy.len -= strlen(part);
	memmove(found, found + strlen(part), strlen(found + strlen(part)) + 1);
	return copy;
}

/* Two documents hold a U+0000, for which they are refused; without it they print as they should. */
START_TEST(documents_with_nul)
{
	static const char *const cases[][2] = {{"escapes", "\\u0000"}, {"key-prefix", "\"a\\u0000\":5,"}};
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct bytes input = read_vector(&arena, arena_printf(&arena, "jcs/input/%s.json", cases[i][0]));
		struct bytes output = read_vector(&arena, arena_printf(&arena, "jcs/output/%s.json", cases[i][0]));

		ck_assert_int_eq(parse_code(input, JSON_STRICT), JSON_NUL);
		check_document(&arena, without(&arena, input, cases[i][1]), without(&arena, output, cases[i][1]), cases[i][0]);
	}
	arena_close(&arena);
}
END_TEST

/* So do the documents of the JCS author. */
START_TEST(third_party_documents)
{
	static const char *const names[] = {"arrays", "french", "unicode", "values"};
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		struct bytes input = read_shared(&arena, arena_printf(&arena, "vectors/jcs/input/upstream-%s.json", names[i]));

		if (input.data != NULL)
			check_document(&arena, input,
				       read_shared(&arena, arena_printf(&arena, "vectors/jcs/output/upstream-%s.json", names[i])), names[i]);
	}
	arena_close(&arena);
}
END_TEST

/* Each double prints as ECMAScript prints it, and the print reads back as the same double. */
START_TEST(numbers)
{
	struct arena arena, scratch;
	struct buffer out;
	struct bytes file;
	size_t lines = 0;

	arena_init(&arena);
	arena_init(&scratch);
	buffer_init(&out, 100);
	file = read_vector(&arena, "jcs/numbers.csv");
	for (char *text = arena_text_len(&arena, (const char *)file.data, file.len), *line; (line = strsep(&text, "\n")) != NULL && *line;) {
		char *expected = strchr(line, ',') + 1;
		double number = number_of_bits(strtoull(line, NULL, 16));
		struct json *json;

		ck_assert_str_eq(number_text(number, &out), expected);
		json = json_parse(&scratch, bytes_text(expected), JSON_ROUND_INTEGERS, NULL, NULL);
		ck_assert_ptr_nonnull(json);
		ck_assert_msg(json->number == number, "%s reads as %a", expected, json->number);
		ck_assert(!(json->number == 0 && signbit(json->number)));
		arena_close(&scratch);
		lines++;
	}
	ck_assert_uint_eq(lines, 6150);
	buffer_close(&out);
	arena_close(&arena);
}
END_TEST

/* Each number text becomes the canonical one. */
START_TEST(number_texts)
{
	struct arena arena;
	struct json *cases;

	arena_init(&arena);
	cases = parse_good(&arena, read_vector(&arena, "jcs/number-texts.json"));
	ck_assert_uint_gt(json_count(cases), 20);
	for (size_t i = 0; i < json_count(cases); i++) {
		const char *in = json_get_text(json_at(cases, i), "in");
		struct error error = {0};
		struct json *json = json_parse(&arena, bytes_text(in), JSON_ROUND_INTEGERS, NULL, &error);

		ck_assert_msg(json != NULL, "%s: %s", in, error.message);
		ck_assert_str_eq(print_text(json, &arena), json_get_text(json_at(cases, i), "out"));
	}
	arena_close(&arena);
}
END_TEST

static int hex_value(char c)
{
	return c <= '9' ? c - '0' : c - 'a' + 10;
}

static struct bytes from_hex(struct arena *arena, const char *hex)
{
	size_t len = strlen(hex) / 2;
	uint8_t *data = arena_alloc(arena, len);

	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(hex_value(hex[2 * i]) << 4 | hex_value(hex[2 * i + 1]));
	return (struct bytes){data, len};
}

/* Each bad text is refused with its code, with and without the flag for peers. */
START_TEST(refused_texts)
{
	struct arena arena;
	struct json *cases;

	arena_init(&arena);
	cases = parse_good(&arena, read_vector(&arena, "jcs/reject.json"));
	ck_assert_uint_eq(json_count(cases), 33);
	for (size_t i = 0; i < json_count(cases); i++) {
		const struct json *one = json_at(cases, i);
		struct bytes text = from_hex(&arena, json_get_text(one, "hex"));

		ck_assert_str_eq(json_code_name(parse_code(text, JSON_STRICT)), json_get_text(one, "code"));
		ck_assert_str_eq(json_code_name(parse_code(text, JSON_ROUND_INTEGERS)), json_get_text(one, "code"));
	}
	arena_close(&arena);
}
END_TEST

/* Where we are stricter than RFC 8785 the code says so; with the flag for peers integers are rounded as there. */
START_TEST(stricter_than_the_standard)
{
	struct arena arena;
	struct json *cases;
	size_t refused = 0;

	arena_init(&arena);
	cases = parse_good(&arena, read_vector(&arena, "jcs/policy.json"));
	for (size_t i = 0; i < json_count(cases); i++) {
		const struct json *one = json_at(cases, i);
		struct bytes text = bytes_text(json_get_text(one, "in"));
		const char *code = json_get_text(one, "code");
		enum json_code got = parse_code(text, JSON_STRICT);
		struct json *rounded;

		ck_assert_str_eq(json_code_name(got), code != NULL ? code : "ok");
		refused += code != NULL;
		rounded = json_parse(&arena, text, JSON_ROUND_INTEGERS, NULL, NULL);
		if (got == JSON_NUL)
			ck_assert_ptr_null(rounded);
		else
			ck_assert_str_eq(print_text(rounded, &arena), json_get_text(one, "rfc8785"));
	}
	ck_assert_uint_eq(refused, 4);
	arena_close(&arena);
}
END_TEST

struct number_stream {
	struct digest_stream digest;
	struct buffer line;
	size_t lines;
};

static void add_stream_line(struct number_stream *stream, uint64_t bits)
{
	buffer_clear(&stream->line);
	buffer_printf(&stream->line, "%" PRIx64 ",", bits);
	json_print_number(number_of_bits(bits), &stream->line);
	buffer_add_char(&stream->line, '\n');
	digest_stream_add(&stream->digest, buffer_bytes(&stream->line));
	stream->lines++;
}

/* The checksum over the first lines of the ES6 number stream is the published one: 10,000 lines, or as many as
 * REPRISE_NUMBER_LINES says (1000, 10000, 100000, 1000000). */
START_TEST(number_stream)
{
	const char *lines_text = getenv("REPRISE_NUMBER_LINES") != NULL ? getenv("REPRISE_NUMBER_LINES") : "10000";
	size_t lines = strtoul(lines_text, NULL, 10);
	struct number_stream stream;
	struct digest block = {{0}}, digest;
	struct arena arena;
	struct json *json;
	struct bytes file;
	char hex[DIGEST_HEX_LEN + 1];

	arena_init(&arena);
	file = read_shared(&arena, "vectors/jcs/es6-stream.json");
	if (file.data == NULL) {
		arena_close(&arena);
		return;
	}
	json = parse_good(&arena, file);
	buffer_init(&stream.line, 100);
	digest_stream_init(&stream.digest);
	stream.lines = 0;
	for (size_t i = 0; i < json_count(json_get(json, "static")) && stream.lines < lines; i++)
		add_stream_line(&stream, strtoull(json_at(json_get(json, "static"), i)->string.text, NULL, 16));
	for (uint64_t i = 0; i < 2000 && stream.lines < lines; i++)
		add_stream_line(&stream, UINT64_C(0x0010000000000000) + i);
	while (stream.lines < lines) {
		block = digest_of((struct bytes){block.bytes, sizeof(block.bytes)});
		for (int group = 0; group < 4 && stream.lines < lines; group++) {
			uint64_t bits = 0;

			for (int i = 7; i >= 0; i--)
				bits = bits << 8 | block.bytes[group * 8 + i];
			if (number_of_bits(bits) != 0 && isfinite(number_of_bits(bits)))
				add_stream_line(&stream, bits);
		}
	}
	digest = digest_stream_finish(&stream.digest);
	digest_hex(&digest, hex);
	ck_assert_str_eq(hex, json_get_text(json_get(json, "sha256"), lines_text));
	buffer_close(&stream.line);
	arena_close(&arena);
}
END_TEST

/* ---- Numbers ---- */

/* Decimals of up to 15 digits print as they were written: the fast way and the slow way meet here. */
START_TEST(short_decimals_stay)
{
	uint64_t seed = 88172645463325252;
	struct arena arena;
	char text[64];

	arena_init(&arena);
	for (int i = 0; i < 30000; i++) {
		uint64_t digits = next_random(&seed) % (uint64_t)pow(10, 1 + (double)(i % 15));
		int places = 1 + (int)(next_random(&seed) % 6);
		uint64_t scale = (uint64_t)pow(10, places);

		if (digits % 10 == 0)
			digits++;
		snprintf(text, sizeof(text), "%s%" PRIu64 ".%0*" PRIu64, i % 2 ? "-" : "", digits / scale, places, digits % scale);
		ck_assert_str_eq(canonical(&arena, text), text);
		if (i % 1000 == 0)
			arena_close(&arena);
	}
	arena_close(&arena);
}
END_TEST

/* Rounding is to nearest even however long the text is, and only numbers past the largest double are refused. */
START_TEST(long_number_texts)
{
	enum { ZEROS = 200000 };
	struct arena arena;
	char *text = memory_alloc(ZEROS + 100), *at;

	arena_init(&arena);
	ck_assert_str_eq(canonical(&arena, "9007199254740993.0"), "9007199254740992");
	ck_assert_str_eq(canonical(&arena, "9007199254740993.00000000000000000000000000000000000000000000000000000000001"), "9007199254740994");
	ck_assert_str_eq(canonical(&arena, "1.7976931348623158e308"), "1.7976931348623157e+308");
	ck_assert_str_eq(canonical(&arena, "2.4703282292062328e-324"), "5e-324");
	ck_assert_str_eq(canonical(&arena, "2.4703282292062327e-324"), "0");
	ck_assert_str_eq(canonical(&arena, "-1e-400"), "0");
	ck_assert_str_eq(canonical(&arena, "0e99999999999999999999"), "0");
	ck_assert_str_eq(canonical(&arena, "1e-99999999999999999999"), "0");
	ck_assert_int_eq(parse_code(BYTES_OF("1.7976931348623159e308"), JSON_STRICT), JSON_NUMBER_RANGE);
	ck_assert_int_eq(parse_code(BYTES_OF("-1e99999999999999999999"), JSON_STRICT), JSON_NUMBER_RANGE);

	/* 0.000…0001e200001 is 1, and 1000…000.0e-200000 is 1 as well. */
	memcpy(text, "0.", 2);
	memset(text + 2, '0', ZEROS);
	sprintf(text + 2 + ZEROS, "1e%d", ZEROS + 1);
	ck_assert_str_eq(canonical(&arena, text), "1");
	text[0] = '1';
	memset(text + 1, '0', ZEROS);
	sprintf(text + 1 + ZEROS, ".0e-%d", ZEROS);
	ck_assert_str_eq(canonical(&arena, text), "1");
	/* A third, to 200,000 digits. */
	memcpy(text, "0.", 2);
	memset(text + 2, '3', ZEROS);
	text[2 + ZEROS] = '\0';
	ck_assert_str_eq(canonical(&arena, text), "0.3333333333333333");
	/* An integer of 200,000 digits is refused either way. */
	memset(text, '9', ZEROS);
	at = text + ZEROS;
	*at = '\0';
	ck_assert_int_eq(parse_code(bytes_text(text), JSON_STRICT), JSON_PRECISION);
	ck_assert_int_eq(parse_code(bytes_text(text), JSON_ROUND_INTEGERS), JSON_NUMBER_RANGE);
	/* 309 digits and fewer are rounded for peers. */
	text[300] = '\0';
	ck_assert_int_eq(parse_code(bytes_text(text), JSON_ROUND_INTEGERS), JSON_OK);
	ck_assert_int_eq(parse_code(BYTES_OF("9007199254740992"), JSON_STRICT), JSON_PRECISION);
	ck_assert_int_eq(parse_code(BYTES_OF("-9007199254740992"), JSON_STRICT), JSON_PRECISION);
	ck_assert_int_eq(parse_code(BYTES_OF("18446744073709551616"), JSON_STRICT), JSON_PRECISION);
	ck_assert_int_eq(parse_code(BYTES_OF("184467440737095516160"), JSON_STRICT), JSON_PRECISION);
	free(text);
	arena_close(&arena);
}
END_TEST

/* Doubles of any bits come back from their text. */
START_TEST(random_doubles_come_back)
{
	uint64_t seed = 20260918;
	struct arena arena;
	struct buffer out;

	arena_init(&arena);
	buffer_init(&out, 100);
	for (int i = 0; i < 20000; i++) {
		double number = number_of_bits(next_random(&seed));
		struct json *json;

		if (!isfinite(number))
			continue;
		number_text(number, &out);
		json = json_parse(&arena, buffer_bytes(&out), JSON_ROUND_INTEGERS, NULL, NULL);
		ck_assert_ptr_nonnull(json);
		ck_assert_msg(json->number == number, "%s", buffer_text(&out));
		if (i % 1000 == 0)
			arena_close(&arena);
	}
	buffer_close(&out);
	arena_close(&arena);
}
END_TEST

/* A locale of our own making with a decimal comma, so that the test needs none to be installed: glibc's file of LC_NUMERIC
 * is a magic number, a count and offsets of six fields (point, separator, grouping, both as wide characters, code set). */
static void set_comma_locale(struct arena *arena)
{
	static const uint32_t head[] = {0x20031115 ^ LC_NUMERIC, 6, 32, 34, 36, 40, 44, 48};
	static const uint32_t wide[] = {',', '.'};
	char *folder = arena_text(arena, "/tmp/reprise-locale-XXXXXX");
	char *name, *file_name;
	FILE *file;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	name = arena_printf(arena, "%s/comma", folder);
	file_name = arena_printf(arena, "%s/LC_NUMERIC", name);
	ck_assert_int_eq(mkdir(name, 0700), 0);
	file = fopen(file_name, "wb");
	ck_assert_ptr_nonnull(file);
	fwrite(head, 1, sizeof(head), file);
	fwrite(",\0.\0\x7F\0\0\0", 1, 8, file);
	fwrite(wide, 1, sizeof(wide), file);
	fwrite("UTF-8", 1, 6, file);
	ck_assert_int_eq(fclose(file), 0);
	setenv("LOCPATH", folder, 1);
	ck_assert_ptr_nonnull(setlocale(LC_NUMERIC, "comma"));
	unlink(file_name);
	rmdir(name);
	rmdir(folder);
}

/* A locale with a decimal comma changes nothing, while it does change printf() and strtod(). */
START_TEST(locale_does_not_matter)
{
	struct arena arena;
	char text[32];

	arena_init(&arena);
	set_comma_locale(&arena);
	snprintf(text, sizeof(text), "%.1f", 0.5);
	ck_assert_str_eq(text, "0,5");
	ck_assert(strtod("1.5", NULL) == 1);
	ck_assert_str_eq(canonical(&arena, "[0.5,1.5e-7,0.1234567890123456789,1424953923781206.2,5e-324,123456789.12345678e-30]"),
			 "[0.5,1.5e-7,0.12345678901234568,1424953923781206.2,5e-324,1.234567891234568e-22]");
	arena_close(&arena);
}
END_TEST

/* ---- Faults and limits ---- */

/* The place of a fault is told by offset, line and column, in the error text as well. */
START_TEST(faults_have_places)
{
	static const struct {
		const char *text;
		enum json_code code;
		size_t offset, line, column;
		const char *message;
	} cases[] = {
		{"", JSON_SYNTAX, 0, 1, 1, "json-syntax at line 1 column 1: the text ends too early"},
		{"[1,\n 2,\n  x]", JSON_SYNTAX, 10, 3, 3, "json-syntax at line 3 column 3: expected a value"},
		{"{\"a\":1,\n\"b\":2,\n\"a\":3}", JSON_DUPLICATE, 15, 3, 1, "json-duplicate at line 3 column 1: the name is there twice"},
		{"{\"b\":1,\"\\u0062\":2,\"b\":3}", JSON_DUPLICATE, 7, 1, 8, NULL},
		{"[\"\xC3\xA9\", \"\\ud800\"]", JSON_SURROGATE, 8, 1, 9, NULL},
		{"[\"\\udc00\\udc00\"]", JSON_SURROGATE, 2, 1, 3, NULL},
		{"[\"\\ud800\\ud800\\udc00\"]", JSON_SURROGATE, 2, 1, 3, NULL},
		{"[\"\\ud83d\\u12\"]", JSON_SYNTAX, 12, 1, 13, NULL},
		{"[\"ab\\u0000\"]", JSON_NUL, 4, 1, 5, NULL},
		{"[1, 9007199254740992]", JSON_PRECISION, 4, 1, 5, NULL},
		{"[1, 1e999]", JSON_NUMBER_RANGE, 4, 1, 5, NULL},
		{"[1 2]", JSON_SYNTAX, 3, 1, 4, "json-syntax at line 1 column 4: expected , or ]"},
		{"{\"a\" 1}", JSON_SYNTAX, 5, 1, 6, "json-syntax at line 1 column 6: expected :"},
		{"{a:1}", JSON_SYNTAX, 1, 1, 2, "json-syntax at line 1 column 2: expected a name in quotes"},
		{"{\"a\":1 x", JSON_SYNTAX, 7, 1, 8, "json-syntax at line 1 column 8: expected , or }"},
		{"[1]\n\n x", JSON_SYNTAX, 6, 3, 2, "json-syntax at line 3 column 2: something follows the value"},
		{"[\"a", JSON_SYNTAX, 3, 1, 4, "json-syntax at line 1 column 4: the text ends too early"},
		{"[\"a\\", JSON_SYNTAX, 4, 1, 5, "json-syntax at line 1 column 5: the text ends too early"},
		{"\"\x01\"", JSON_SYNTAX, 1, 1, 2, "json-syntax at line 1 column 2: a control character in a string"},
		{"[\xFF]", JSON_UTF8, 1, 1, 2, "json-utf8 at line 1 column 2: not UTF-8"},
		{"nul", JSON_SYNTAX, 0, 1, 1, "json-syntax at line 1 column 1: expected a value"},
		{"[012]", JSON_SYNTAX, 2, 1, 3, "json-syntax at line 1 column 3: a number does not begin with 0"},
		{"\xEF\xBB\xBF{}", JSON_BOM, 0, 1, 1, "json-bom at line 1 column 1: a byte order mark"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct json_fault fault;
		struct error error = {0};
		struct arena arena;

		arena_init(&arena);
		ck_assert_ptr_null(json_parse(&arena, bytes_text(cases[i].text), JSON_STRICT, &fault, &error));
		ck_assert_msg(fault.code == cases[i].code, "%s: %s", cases[i].text, error.message);
		ck_assert_msg(fault.offset == cases[i].offset, "%s: offset %zu", cases[i].text, fault.offset);
		ck_assert_uint_eq(fault.line, cases[i].line);
		ck_assert_uint_eq(fault.column, cases[i].column);
		ck_assert_int_eq(error.code, ERR_INVALID);
		if (cases[i].message != NULL)
			ck_assert_str_eq(error.message, cases[i].message);
		arena_close(&arena);
	}
}
END_TEST

/* 128 levels are taken, of either kind, and 129 are not. */
START_TEST(depth_has_a_limit)
{
	for (int levels = JSON_DEPTH_MAX; levels <= JSON_DEPTH_MAX + 1; levels++) {
		enum json_code expected = levels == JSON_DEPTH_MAX ? JSON_OK : JSON_DEPTH;
		struct buffer text;

		buffer_init(&text, 10000);
		for (int i = 0; i < levels; i++)
			buffer_add_char(&text, '[');
		for (int i = 0; i < levels; i++)
			buffer_add_char(&text, ']');
		ck_assert_int_eq(parse_code(buffer_bytes(&text), JSON_STRICT), expected);
		buffer_clear(&text);
		for (int i = 0; i < levels; i++)
			buffer_add_text(&text, "{\"a\":");
		buffer_add_char(&text, '1');
		for (int i = 0; i < levels; i++)
			buffer_add_char(&text, '}');
		ck_assert_int_eq(parse_code(buffer_bytes(&text), JSON_STRICT), expected);
		buffer_close(&text);
	}
	/* Levels that were left do not count. */
	struct buffer text;

	buffer_init(&text, 10000);
	buffer_add_char(&text, '[');
	for (int i = 0; i < 1000; i++)
		buffer_add_text(&text, "[],{},");
	buffer_add_text(&text, "1]");
	ck_assert_int_eq(parse_code(buffer_bytes(&text), JSON_STRICT), JSON_OK);
	buffer_close(&text);
}
END_TEST

/* Every prefix of a document that uses all of the grammar is refused, and none is read past its end. */
START_TEST(prefixes_are_refused)
{
	static const char text[] = "{\"a\":[1,-2.5e+3,0.1,\"x\\n\\u00e9\\ud83d\\ude00\xE2\x82\xAC\",true,false,null,{}],\"b\":\"\"}";

	for (size_t len = 0; len < sizeof(text) - 1; len++)
		ck_assert_int_ne(parse_code((struct bytes){(const uint8_t *)text, len}, JSON_STRICT), JSON_OK);
	ck_assert_int_eq(parse_code((struct bytes){(const uint8_t *)text, sizeof(text) - 1}, JSON_STRICT), JSON_OK);
	ck_assert_int_eq(parse_code((struct bytes){NULL, 0}, JSON_STRICT), JSON_SYNTAX);
	ck_assert_int_eq(parse_code(BYTES_OF("\"a\0b\""), JSON_STRICT), JSON_SYNTAX);
	ck_assert_int_eq(parse_code(BYTES_OF("1\0"), JSON_STRICT), JSON_SYNTAX);
}
END_TEST

/* Seeded damage to good documents never breaks the parser, and what it still takes prints and parses to the same. */
START_TEST(damaged_texts)
{
	static const char *const names[] = {"config-like", "escapes", "fact-like", "keys-utf16", "nested-order"};
	uint64_t seed = 4711;
	struct arena files;
	size_t accepted = 0;

	arena_init(&files);
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		struct bytes file = read_vector(&files, arena_printf(&files, "jcs/input/%s.json", names[i]));

		for (int round = 0; round < 2000; round++) {
			struct arena arena;
			struct json *json, *again;
			size_t len = file.len - (round % 3 == 0 ? next_random(&seed) % file.len : 0);
			uint8_t *damaged = memory_alloc(len);

			memcpy(damaged, file.data, len);
			for (int damage = 0; damage < 1 + round % 3; damage++)
				damaged[next_random(&seed) % len] = round % 2 ? (uint8_t)next_random(&seed) : (uint8_t)"0\"\\{}[],:u-e."[next_random(&seed) % 13];
			arena_init(&arena);
			json = json_parse(&arena, (struct bytes){damaged, len}, JSON_STRICT, NULL, NULL);
			if (json != NULL) {
				struct bytes printed = json_print_arena(json, &arena);

				again = parse_good(&arena, printed);
				ck_assert(json_equal(json, again));
				ck_assert(bytes_equal(json_print_arena(again, &arena), printed));
				accepted++;
			}
			arena_close(&arena);
			free(damaged);
		}
	}
	ck_assert_uint_gt(accepted, 100);
	arena_close(&files);
}
END_TEST

static int compare_texts(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* 100,000 members in any order come out sorted, all of them, and one duplicate among them is found. */
START_TEST(large_objects)
{
	enum { MEMBERS = 100000 };
	static char names[MEMBERS][24];
	uint64_t seed = 99;
	struct arena arena;
	struct buffer text;

	arena_init(&arena);
	buffer_init(&text, PRINT_MAX);
	for (int order = 0; order < 3; order++) {
		struct json *json;

		buffer_clear(&text);
		for (int i = 0; i < MEMBERS; i++) {
			uint64_t number = order == 0 ? (uint64_t)i : order == 1 ? (uint64_t)(MEMBERS - i) : next_random(&seed) % 1000000;

			snprintf(names[i], sizeof(names[i]), "%06" PRIu64 "-%05d", number, order == 2 ? i : 0);
			buffer_printf(&text, "%s\"%s\":%d", i == 0 ? "{" : ",", names[i], i);
		}
		buffer_add_char(&text, '}');
		json = parse_good(&arena, buffer_bytes(&text));
		ck_assert_uint_eq(json_count(json), MEMBERS);
		for (int i = 0; i < MEMBERS; i += 997)
			ck_assert(json_get_number(json, names[i], -1) == i);
		qsort(names, MEMBERS, sizeof(names[0]), compare_texts);
		for (int i = 0; i < MEMBERS; i++) {
			if (strcmp(json->object.members[i].name, names[i]) != 0)
				ck_abort_msg("%s stands where %s should", json->object.members[i].name, names[i]);
		}
		text.len--;
		buffer_printf(&text, ",\"%s\":1}", names[MEMBERS / 2]);
		ck_assert_int_eq(parse_code(buffer_bytes(&text), JSON_STRICT), JSON_DUPLICATE);
	}
	buffer_close(&text);
	arena_close(&arena);
}
END_TEST

/* Arrays of any length keep their order. */
START_TEST(large_arrays)
{
	enum { ITEMS = 200000 };
	struct arena arena;
	struct buffer text;
	struct json *json;

	arena_init(&arena);
	buffer_init(&text, PRINT_MAX);
	for (int i = 0; i < ITEMS; i++)
		buffer_printf(&text, "%s%d", i == 0 ? "[" : ",", i);
	buffer_add_char(&text, ']');
	json = parse_good(&arena, buffer_bytes(&text));
	ck_assert_uint_eq(json_count(json), ITEMS);
	for (int i = 0; i < ITEMS; i++) {
		if (json_at(json, (size_t)i)->number != i)
			ck_abort_msg("item %d", i);
	}
	ck_assert(bytes_equal(json_print_arena(json, &arena), buffer_bytes(&text)));
	buffer_close(&text);
	arena_close(&arena);
}
END_TEST

/* A print that does not fit says so and stays within the maximum. */
START_TEST(print_respects_the_maximum)
{
	struct arena arena;
	struct json *json;
	size_t whole;

	arena_init(&arena);
	json = parse_good(&arena, BYTES_OF("{\"a\":[1,\"\\n\",{\"b\":null}],\"c\":true}"));
	whole = json_print_arena(json, &arena).len;
	for (size_t max = 0; max <= whole; max++) {
		struct buffer out;

		buffer_init(&out, max);
		json_print(json, &out);
		ck_assert(out.overflow == (max < whole));
		ck_assert_uint_le(out.len, max);
		buffer_close(&out);
	}
	arena_close(&arena);
}
END_TEST

/* ---- UTF-8 ---- */

/* The validator agrees with a decoder written from the definition, on all characters and on all sequences of three bytes
 * that begin with a lead byte. */
START_TEST(utf8_is_validated)
{
	static const char *const bad[] = {"\x80", "\xBF", "\xC0\xAF", "\xC1\xBF", "\xC3", "\xE0\x9F\xBF", "\xE2\x82", "\xED\xA0\x80", "\xED\xBF\xBF",
					  "\xF0\x8F\xBF\xBF", "\xF0\x9F\x98", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFE", "\xFF"};
	size_t where;

	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		char text[16];

		snprintf(text, sizeof(text), "ab%scd", bad[i]);
		ck_assert_msg(!utf8_valid(bytes_text(text), &where), "%zu", i);
		ck_assert_uint_eq(where, 2);
		ck_assert(!utf8_valid(bytes_text(bad[i]), NULL));
	}
	for (uint32_t c = 1; c < 0x110000; c++) {
		uint8_t s[4];
		size_t len = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

		for (size_t i = len; i-- > 1;)
			s[i] = (uint8_t)(0x80 | (c >> (6 * (len - 1 - i)) & 0x3F));
		s[0] = (uint8_t)(len == 1 ? c : (0xF00u >> len & 0xF0) | c >> (6 * (len - 1)));
		if (utf8_valid((struct bytes){s, len}, NULL) != (c < 0xD800 || c > 0xDFFF))
			ck_abort_msg("U+%04X", c);
		if (len > 1 && utf8_valid((struct bytes){s, len - 1}, NULL))
			ck_abort_msg("U+%04X cut", c);
	}
	for (uint32_t lead = 0x80; lead < 0x100; lead++) {
		for (uint32_t rest = 0; rest < 0x10000; rest++) {
			uint8_t s[3] = {(uint8_t)lead, (uint8_t)(rest >> 8), (uint8_t)rest};
			bool second = (s[1] & 0xC0) == 0x80, third = (s[2] & 0xC0) == 0x80;
			uint32_t two = (lead & 0x1F) << 6 | (s[1] & 0x3F), three = (lead & 0x0F) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3F);
			bool expected = ((lead & 0xE0) == 0xC0 && second && two >= 0x80 && s[2] < 0x80) ||
					((lead & 0xF0) == 0xE0 && second && third && three >= 0x800 && (three < 0xD800 || three > 0xDFFF));

			if (utf8_valid((struct bytes){s, 3}, NULL) != expected)
				ck_abort_msg("%02x %02x %02x", s[0], s[1], s[2]);
		}
	}
	ck_assert(utf8_valid((struct bytes){NULL, 0}, NULL));
}
END_TEST

/* ---- Making and looking ---- */

/* Members are sorted by UTF-16 code units in whatever order they are set; setting again replaces; removing removes. */
START_TEST(objects_stay_sorted)
{
	/* In order of UTF-16: U+1F600 is D83D DE00 and comes before U+E000 and U+FFFD. */
	static const char *const sorted[] = {"", "A", "a", "aa", "b", "\xC3\xA9", "\xE2\x82\xAC", "\xED\x9F\xBF", "\xF0\x9F\x98\x80",
					     "\xF4\x8F\xBF\xBF", "\xEE\x80\x80", "\xEF\xBF\xBD"};
	struct arena arena;

	arena_init(&arena);
	for (size_t start = 0; start < COUNT_OF(sorted); start++) {
		struct json *object = json_object(&arena);

		for (size_t i = 0; i < COUNT_OF(sorted); i++)
			json_set_number(&arena, object, sorted[(start + i * 5) % COUNT_OF(sorted)], -1);
		for (size_t i = 0; i < COUNT_OF(sorted); i++)
			json_set_number(&arena, object, sorted[(start + i * 7) % COUNT_OF(sorted)], (double)((start + i * 7) % COUNT_OF(sorted)));
		ck_assert_uint_eq(json_count(object), COUNT_OF(sorted));
		for (size_t i = 0; i < COUNT_OF(sorted); i++) {
			ck_assert_str_eq(object->object.members[i].name, sorted[i]);
			ck_assert(json_get_number(object, sorted[i], -1) == (double)i);
		}
		ck_assert(json_equal(object, parse_good(&arena, json_print_arena(object, &arena))));
		ck_assert(json_remove(object, sorted[start]));
		ck_assert(!json_remove(object, sorted[start]));
		ck_assert_uint_eq(json_count(object), COUNT_OF(sorted) - 1);
		ck_assert_ptr_null(json_get(object, sorted[start]));
	}
	arena_close(&arena);
}
END_TEST

/* All ways of making values print as they should; a text that is NULL leaves its member out. */
START_TEST(values_are_made)
{
	struct arena arena;
	struct json *object, *array;
	struct digest digest = digest_of(BYTES_OF("abc")), back;

	arena_init(&arena);
	object = json_object(&arena);
	array = json_array(&arena);
	json_add(&arena, array, json_null(&arena));
	json_add(&arena, array, json_boolean(&arena, true));
	json_add(&arena, array, json_number(&arena, -0.0));
	json_add(&arena, array, json_text(&arena, "a\"\\\b\f\n\r\t\x01\x1F\x7F/"));
	json_add(&arena, array, json_text_len(&arena, "abcdef", 3));
	json_add(&arena, array, json_printf(&arena, "%s-%d", "x", 7));
	json_add(&arena, array, json_object(&arena));
	json_add(&arena, array, json_array(&arena));
	json_set(&arena, object, "list", array);
	json_set_text(&arena, object, "text", "t");
	json_set_text(&arena, object, "none", NULL);
	json_set_boolean(&arena, object, "flag", false);
	json_set_number(&arena, object, "number", 0.1 + 0.2);
	json_set_len(&arena, object, "namexxx", 4, json_null(&arena));
	json_set_digest(&arena, object, "digest", &digest);
	ck_assert_str_eq(print_text(object, &arena),
			 "{\"digest\":{\"sha256\":\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"},\"flag\":false,"
			 "\"list\":[null,true,0,\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7F/\",\"abc\",\"x-7\",{},[]],"
			 "\"name\":null,\"number\":0.30000000000000004,\"text\":\"t\"}");
	ck_assert(json_get_digest(object, "digest", &back));
	ck_assert(digest_equal(&digest, &back));
	ck_assert(!json_get_digest(object, "text", &back));
	ck_assert(!json_get_digest(object, "list", &back));
	json_set_text(&arena, object, "digest", "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	ck_assert(json_get_digest(object, "digest", &back));
	arena_close(&arena);
}
END_TEST

/* People read two spaces of indentation, and it parses to the same value. */
START_TEST(pretty_print)
{
	struct arena arena;
	struct buffer out;
	struct json *json;

	arena_init(&arena);
	buffer_init(&out, 1000);
	json = parse_good(&arena, BYTES_OF("{\"b\":[1,{\"c\":\"x\"},[]],\"a\":{}}"));
	json_print_pretty(json, &out);
	ck_assert_str_eq(buffer_text(&out), "{\n  \"a\": {},\n  \"b\": [\n    1,\n    {\n      \"c\": \"x\"\n    },\n    []\n  ]\n}");
	ck_assert(json_equal(json, parse_good(&arena, buffer_bytes(&out))));
	buffer_close(&out);
	arena_close(&arena);
}
END_TEST

/* A deep copy outlives the arena it was copied from, and changing it leaves the source alone. */
START_TEST(copies_are_deep)
{
	static const char text[] = "{\"a\":[1,\"x\",null,true,{\"b\":[]}],\"c\":{}}";
	struct arena source, target;
	struct json *json, *copy;

	arena_init(&source);
	arena_init(&target);
	json = parse_good(&source, BYTES_OF(text));
	copy = json_copy(&target, json);
	ck_assert(json_equal(json, copy));
	json_add(&target, json_get(copy, "a"), json_number(&target, 2));
	json_set_text(&target, json_get(copy, "c"), "d", "new");
	ck_assert_str_eq(print_text(json, &source), text);
	ck_assert(!json_equal(json, copy));
	arena_close(&source);
	ck_assert_str_eq(print_text(copy, &target), "{\"a\":[1,\"x\",null,true,{\"b\":[]},2],\"c\":{\"d\":\"new\"}}");
	arena_close(&target);
}
END_TEST

/* Looking at nothing or at the wrong type answers nothing, the fallback or false. */
START_TEST(looking_never_fails)
{
	struct arena arena;
	struct json *json, *number;
	struct digest digest;

	arena_init(&arena);
	json = parse_good(&arena, BYTES_OF("{\"n\":1.5,\"i\":7,\"t\":\"x\",\"b\":true,\"f\":false,\"z\":null,\"a\":[1]}"));
	number = json_get(json, "n");
	ck_assert_ptr_null(json_get(NULL, "n"));
	ck_assert_ptr_null(json_get(number, "n"));
	ck_assert_ptr_null(json_get(json, "missing"));
	ck_assert_ptr_null(json_get_len(json, "n", 0));
	ck_assert_ptr_eq(json_get_len(json, "nx", 1), number);
	ck_assert_ptr_null(json_at(json, 0));
	ck_assert_ptr_null(json_at(json_get(json, "a"), 1));
	ck_assert_ptr_null(json_at(NULL, 0));
	ck_assert_uint_eq(json_count(NULL), 0);
	ck_assert_uint_eq(json_count(number), 0);
	ck_assert_uint_eq(json_count(json), 7);
	ck_assert_str_eq(json_get_text(json, "t"), "x");
	ck_assert_ptr_null(json_get_text(json, "n"));
	ck_assert_ptr_null(json_get_text(NULL, "n"));
	ck_assert(json_get_number(json, "n", 3) == 1.5);
	ck_assert(json_get_number(json, "t", 3) == 3);
	ck_assert(json_get_boolean(json, "b", false));
	ck_assert(!json_get_boolean(json, "f", true));
	ck_assert(json_get_boolean(json, "n", true));
	ck_assert(!json_get_digest(NULL, "n", &digest));
	ck_assert(!json_remove(NULL, "n"));
	ck_assert(!json_remove(number, "n"));
	ck_assert(!json_is(NULL, JSON_NULL));
	ck_assert(json_is(json_get(json, "z"), JSON_NULL));
	ck_assert(!json_is_integer(number));
	ck_assert(!json_is_integer(NULL));
	ck_assert(!json_is_integer(json_get(json, "t")));
	ck_assert(json_is_integer(json_get(json, "i")));
	ck_assert(json_is_integer(json_number(&arena, 9007199254740991)));
	ck_assert(json_is_integer(json_number(&arena, -9007199254740991)));
	ck_assert(!json_is_integer(json_number(&arena, 9007199254740992)));
	ck_assert(json_nests_within(NULL, 0));
	ck_assert(json_nests_within(json_number(&arena, 0), 0));
	ck_assert(!json_nests_within(json_array(&arena), 0));
	ck_assert(json_nests_within(json_array(&arena), 1));
	ck_assert(!json_nests_within(json_parse(&arena, BYTES_OF("{\"a\":1,\"b\":[{}]}"), JSON_STRICT, NULL, NULL), 2));
	ck_assert(json_nests_within(json_parse(&arena, BYTES_OF("{\"a\":1,\"b\":[{}]}"), JSON_STRICT, NULL, NULL), 3));
	ck_assert(!json_truthy(NULL));
	ck_assert(!json_truthy(json_get(json, "z")));
	ck_assert(!json_truthy(json_get(json, "f")));
	ck_assert(json_truthy(json_get(json, "b")));
	ck_assert(json_truthy(json_number(&arena, 0)));
	ck_assert(json_truthy(json_text(&arena, "")));
	ck_assert(json_equal(NULL, NULL));
	ck_assert(!json_equal(json, NULL));
	ck_assert(!json_equal(number, json));
	ck_assert_str_eq(json_type_name(JSON_NULL), "null");
	ck_assert_str_eq(json_type_name(JSON_OBJECT), "object");
	arena_close(&arena);
}
END_TEST

/* Values are equal exactly when their canonical forms are. */
START_TEST(equality_is_that_of_prints)
{
	static const char *const texts[] = {"null", "false", "true", "0", "1", "1.0", "-0", "\"\"", "\"a\"", "\"b\"", "[]", "[1]", "[1,2]", "[2,1]", "{}",
		"{\"a\":1}", "{\"b\":1}", "{\"a\":2}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", "[[]]", "[{}]", "0.30000000000000004", "0.3"};
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		for (size_t j = 0; j < COUNT_OF(texts); j++) {
			struct json *a = parse_good(&arena, bytes_text(texts[i])), *b = parse_good(&arena, bytes_text(texts[j]));
			bool same = strcmp(print_text(a, &arena), print_text(b, &arena)) == 0;
			struct digest a_digest = json_digest(a), b_digest = json_digest(b);

			ck_assert_msg(json_equal(a, b) == same, "%s %s", texts[i], texts[j]);
			ck_assert(digest_equal(&a_digest, &b_digest) == same);
		}
	}
	arena_close(&arena);
}
END_TEST

/* The examples of RFC 6901, and pointers that lead nowhere. */
START_TEST(pointers)
{
	static const char text[] = "{\"foo\":[\"bar\",\"baz\"],\"\":0,\"a/b\":1,\"c%d\":2,\"e^f\":3,\"g|h\":4,\"i\\\\j\":5,\"k\\\"l\":6,\" \":7,\"m~n\":8}";
	static const struct {
		const char *pointer, *value;
	} cases[] = {{"/foo", "[\"bar\",\"baz\"]"}, {"/foo/0", "\"bar\""}, {"/", "0"}, {"/a~1b", "1"}, {"/c%d", "2"}, {"/e^f", "3"}, {"/g|h", "4"},
		     {"/i\\j", "5"}, {"/k\"l", "6"}, {"/ ", "7"}, {"/m~0n", "8"}};
	static const char *const nowhere[] = {"foo", "/bar", "/foo/2", "/foo/-", "/foo/00", "/foo/01", "/foo/", "/foo/0/x", "/m~n", "/m~2n", "/m~", "//",
		"/foo/1e0", "/foo/18446744073709551616", "/foo/+1"};
	struct arena arena;
	struct buffer pointer;
	struct json *json;

	arena_init(&arena);
	buffer_init(&pointer, 100);
	json = parse_good(&arena, BYTES_OF(text));
	ck_assert_ptr_eq(json_pointer_get(json, ""), json);
	ck_assert_ptr_null(json_pointer_get(NULL, ""));
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct json *found = json_pointer_get(json, cases[i].pointer);

		ck_assert_msg(found != NULL, "%s", cases[i].pointer);
		ck_assert_str_eq(print_text(found, &arena), cases[i].value);
	}
	for (size_t i = 0; i < COUNT_OF(nowhere); i++)
		ck_assert_msg(json_pointer_get(json, nowhere[i]) == NULL, "%s", nowhere[i]);
	for (size_t i = 0; i < json_count(json); i++) {
		buffer_clear(&pointer);
		json_pointer_add(&pointer, json->object.members[i].name);
		ck_assert_ptr_eq(json_pointer_get(json, buffer_text(&pointer)), json->object.members[i].value);
	}
	buffer_clear(&pointer);
	json_pointer_add(&pointer, "a/b~c");
	json_pointer_add(&pointer, "0");
	ck_assert_str_eq(buffer_text(&pointer), "/a~1b~0c/0");
	buffer_close(&pointer);
	arena_close(&arena);
}
END_TEST

/* ---- What is a mistake of ours ---- */

START_TEST(stop_on_infinity)
{
	struct arena arena;

	arena_init(&arena);
	json_number(&arena, INFINITY);
}
END_TEST

START_TEST(stop_on_nan)
{
	struct arena arena;

	arena_init(&arena);
	json_number(&arena, NAN);
}
END_TEST

START_TEST(stop_on_text_that_is_not_utf8)
{
	struct arena arena;

	arena_init(&arena);
	json_text(&arena, "a\xFF");
}
END_TEST

START_TEST(stop_on_nul_in_text)
{
	struct arena arena;

	arena_init(&arena);
	json_text_len(&arena, "a\0b", 3);
}
END_TEST

START_TEST(stop_on_name_that_is_not_utf8)
{
	struct arena arena;

	arena_init(&arena);
	json_set(&arena, json_object(&arena), "\xC0\x80", json_null(&arena));
}
END_TEST

START_TEST(stop_on_adding_nothing)
{
	struct arena arena;

	arena_init(&arena);
	json_add(&arena, json_array(&arena), NULL);
}
END_TEST

/* What strict reading would refuse when it is printed is known beforehand. */
START_TEST(strictness_is_known)
{
	static const struct {
		const char *text;
		bool strict;
	} rows[] = {{"[1,2.5,9007199254740991,-9007199254740991]", true}, {"{\"a\":[1e20]}", false}, {"9007199254740992e0", false},
		    {"-1e20", false}, {"1e21", true}, {"1.5e300", true}, {"5e-324", true}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct arena arena;
		struct json *json;

		arena_init(&arena);
		json = json_parse(&arena, bytes_text(rows[i].text), JSON_STRICT, NULL, NULL);
		ck_assert_msg(json != NULL, "%s", rows[i].text);
		ck_assert_msg(json_is_strict(json) == rows[i].strict, "%s", rows[i].text);
		ck_assert_msg((json_parse(&arena, json_print_arena(json, &arena), JSON_STRICT, NULL, NULL) != NULL) == rows[i].strict, "%s", rows[i].text);
		arena_close(&arena);
	}
}
END_TEST

/* What was let into the journal can be read out of it: numbers that print as long integers too. */
START_TEST(stored_numbers_read_back)
{
	static const double stored[] = {1e20, 123456789012345680000.0, 9007199254740992.0, 9007199254740994.0, -1e20, 1e21, 5e-324, 0.1};

	for (size_t i = 0; i < sizeof(stored) / sizeof(stored[0]); i++) {
		struct arena arena;
		struct json *read;

		arena_init(&arena);
		read = json_parse(&arena, json_print_arena(json_number(&arena, stored[i]), &arena), JSON_STORED, NULL, NULL);
		ck_assert_ptr_nonnull(read);
		ck_assert(read->number == stored[i]);
		arena_close(&arena);
	}
}
END_TEST

/* Texts are looked at eight bytes at a time: every byte at every place of texts around that length is treated as if it stood alone. */
START_TEST(each_byte_counts_at_each_place)
{
	enum { LEN_MAX = 19 };

	for (size_t len = 1; len <= LEN_MAX; len++)
		for (size_t place = 0; place < len; place++)
			for (unsigned c = 0; c < 256; c++) {
				char text[LEN_MAX + 3], expected[6 * LEN_MAX], alone[8];
				bool is_plain = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
				struct json_fault fault;
				struct buffer printed;
				struct arena arena;
				size_t bad = 99;

				memset(text, 'x', len);
				text[place] = (char)c;
				ck_assert(utf8_valid((struct bytes){(const uint8_t *)text, len}, &bad) == (c < 0x80));
				ck_assert_uint_eq(bad, c < 0x80 ? 99 : place);

				snprintf(alone, sizeof(alone), is_plain || c > 0x7F ? "%c" : "\\u%04x", c);
				for (const char *pair = "\"\"\\\\\bb\tt\nn\ff\rr"; *pair != '\0'; pair += 2)
					if ((unsigned)*pair == c)
						snprintf(alone, sizeof(alone), "\\%c", pair[1]);
				snprintf(expected, sizeof(expected), "\"%.*s%s%.*s\"", (int)place, "xxxxxxxxxxxxxxxxxxx", alone, (int)(len - place - 1),
					 "xxxxxxxxxxxxxxxxxxx");
				buffer_init(&printed, 200);
				json_print_string(text, len, &printed);
				ck_assert_str_eq(buffer_text(&printed), expected);
				buffer_close(&printed);

				arena_init(&arena);
				snprintf(expected, sizeof(expected), "\"%.*s", (int)len, text);
				memcpy(expected + 1, text, len);
				memcpy(expected + 1 + len, "\"", 2);
				ck_assert((json_parse(&arena, (struct bytes){(const uint8_t *)expected, len + 2}, JSON_STRICT, &fault, NULL) != NULL) == is_plain);
				if (!is_plain && c != '"' && c != '\\')
					ck_assert_uint_eq(fault.offset, place + 1);
				arena_close(&arena);
			}
}
END_TEST

/* Members that are named come first, in that order, and a copy keeps it; names of nothing, and what is no name, change nothing. */
START_TEST(order_is_given)
{
	static const struct {
		const char *names, *expected;
	} rows[] = {
		{"[]", "{\"a\":1,\"b\":2,\"c\":3}"},
		{"[\"c\"]", "{\"c\":3,\"a\":1,\"b\":2}"},
		{"[\"c\",\"x\",7,\"b\",\"c\",\"a\"]", "{\"c\":3,\"b\":2,\"a\":1}"},
		{"null", "{\"a\":1,\"b\":2,\"c\":3}"},
	};
	struct arena arena;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct json *object = json_parse(&arena, BYTES_OF("{\"c\":3,\"b\":2,\"a\":1}"), JSON_STRICT, NULL, NULL);

		json_order(object, json_parse(&arena, bytes_text(rows[i].names), JSON_STRICT, NULL, NULL));
		ck_assert(bytes_equal_text(json_print_arena(json_copy(&arena, object), &arena), rows[i].expected));
	}
	json_order(json_number(&arena, 1), json_array(&arena));
	arena_close(&arena);
}
END_TEST

SUITE_ABORTS(stop_on_infinity, stop_on_nan, stop_on_text_that_is_not_utf8, stop_on_nul_in_text, stop_on_name_that_is_not_utf8, stop_on_adding_nothing)
SUITE_MAIN("base-json", documents, documents_with_nul, third_party_documents, numbers, number_texts, refused_texts, stricter_than_the_standard, number_stream,
	   short_decimals_stay, long_number_texts, random_doubles_come_back, locale_does_not_matter, faults_have_places, depth_has_a_limit, prefixes_are_refused, damaged_texts, large_objects, large_arrays, print_respects_the_maximum,
	   utf8_is_validated, objects_stay_sorted, values_are_made, pretty_print, copies_are_deep, looking_never_fails, equality_is_that_of_prints, pointers, stored_numbers_read_back, strictness_is_known, order_is_given, each_byte_counts_at_each_place)
