/* JSON: one strict parser, one immutable-looking tree, one printer, which prints the canonical form (RFC 8785, JCS).
 *
 * Everything that is hashed, signed or journaled goes through here. Members of an object are kept sorted in canonical
 * order (UTF-16 code units) at all times, so printing is one walk, and equality of digests is equality of values.
 * Source: RFC 8785; the stricter rules of our own are marked. cJSON is not used: it prints 0.1+0.2 as 0.3, accepts
 * duplicate names and cuts strings at U+0000.
 *
 * Ownership: every node lives in an arena and dies with it. A node may be put into several trees as long as their
 * arenas live. Threads: a tree that nobody changes any more may be read by several. Pure. */
#pragma once

#include "workflow/base/arena.h"
#include "workflow/base/digest.h"
#include "workflow/base/error.h"

enum json_type { JSON_NULL, JSON_BOOLEAN, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };
enum { JSON_DEPTH_MAX = 128 };

struct json;
struct json_member {
	const char *name; /* NUL-terminated; holds no NUL inside */
	size_t name_len;
	struct json *value;
};

struct json {
	enum json_type type;
	union {
		bool boolean;
		double number; /* finite, never -0 */
		struct {
			const char *text; /* UTF-8, NUL-terminated, holds no NUL inside */
			size_t len;
		} string;
		struct {
			struct json **items;
			size_t count, cap;
		} array;
		struct {
			struct json_member *members; /* sorted */
			size_t count, cap;
		} object;
	};
};

/* Codes of provenance.md 6, group "json". json_code_name() gives "json-utf8" and so on. */
enum json_code {
	JSON_OK, JSON_UTF8, JSON_BOM, JSON_SYNTAX, JSON_DUPLICATE, JSON_SURROGATE, JSON_NUMBER_RANGE, JSON_DEPTH,
	JSON_NUL, JSON_PRECISION
};
const char *json_code_name(enum json_code code);

/* Where and why a text was refused. Lines and columns count from 1, columns in bytes. */
struct json_fault {
	enum json_code code;
	size_t offset, line, column;
};

enum json_flags {
	JSON_STRICT = 0,
	/* For answers of peers that are only looked at: an integer beyond 2^53 - 1 is rounded instead of refused. (Ours: RFC
	 * 8785 rounds, a fact must not.) */
	JSON_ROUND_INTEGERS = 1,
	/* Canonical text of our own, out of the journal. 1e20 prints as an integer of 21 digits, which strict reading refuses although it
	 * is exactly that double: what was let in once must always be readable. */
	JSON_STORED = JSON_ROUND_INTEGERS,
	/* RFC 8785 to the letter, for its own vectors: U+0000 in strings is refused all the same, the tree cannot hold it. */
};

/* Parse one value and nothing after it but white space. NULL on a fault; `error` then reads
 * "json-syntax at line 3 column 9: expected a value". fault may be NULL, error may be NULL. */
struct json *json_parse(struct arena *arena, struct bytes text, unsigned flags, struct json_fault *fault, struct error *error);

/* Canonical form. The buffer's overflow flag tells when it did not fit. */
void json_print(const struct json *json, struct buffer *out);
struct bytes json_print_arena(const struct json *json, struct arena *arena);
struct digest json_digest(const struct json *json); /* SHA-256 of the canonical form */
/* For people: two spaces of indentation, members in canonical order. Never hashed. */
void json_print_pretty(const struct json *json, struct buffer *out);
void json_print_string(const char *text, size_t len, struct buffer *out); /* with quotes and escapes */
void json_print_number(double number, struct buffer *out); /* as ECMAScript does */

/* Making. Text is copied. A name that is set again replaces the value. */
struct json *json_null(struct arena *arena);
struct json *json_boolean(struct arena *arena, bool value);
struct json *json_number(struct arena *arena, double value); /* CHECKs that it is finite */
struct json *json_text(struct arena *arena, const char *text); /* CHECKs valid UTF-8 */
struct json *json_text_len(struct arena *arena, const char *text, size_t len);
struct json *json_printf(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct json *json_array(struct arena *arena);
struct json *json_object(struct arena *arena);
void json_add(struct arena *arena, struct json *array, struct json *item);
void json_set(struct arena *arena, struct json *object, const char *name, struct json *value);
void json_set_len(struct arena *arena, struct json *object, const char *name, size_t name_len, struct json *value);
void json_set_text(struct arena *arena, struct json *object, const char *name, const char *text); /* NULL text: member left out */
void json_set_number(struct arena *arena, struct json *object, const char *name, double value);
void json_set_boolean(struct arena *arena, struct json *object, const char *name, bool value);
void json_set_digest(struct arena *arena, struct json *object, const char *name, const struct digest *digest); /* {"sha256": hex} */
bool json_remove(struct json *object, const char *name);
struct json *json_copy(struct arena *arena, const struct json *json); /* deep; keeps the order of members */
/* For readers to whom the order of members means something, as to a grammar made of a schema: the members that `names` (an array of texts) lists
 * come first, in its order. From then on the object can only be copied and printed: json_get() and json_set() want sorted members. */
void json_order(struct json *object, const struct json *names);

/* Looking. All take NULL and the wrong type and then answer NULL, the fallback, or false. */
struct json *json_get(const struct json *object, const char *name);
struct json *json_get_len(const struct json *object, const char *name, size_t name_len);
struct json *json_at(const struct json *array, size_t index);
size_t json_count(const struct json *array_or_object);
const char *json_get_text(const struct json *object, const char *name); /* NULL when absent or no string */
double json_get_number(const struct json *object, const char *name, double fallback);
bool json_get_boolean(const struct json *object, const char *name, bool fallback);
bool json_get_digest(const struct json *object, const char *name, struct digest *digest); /* {"sha256": hex} or text */
bool json_is(const struct json *json, enum json_type type);
bool json_is_integer(const struct json *json); /* a number without a fraction, within +-(2^53 - 1) */
bool json_equal(const struct json *a, const struct json *b);
/* False where a number prints as an integer text beyond 2^53 - 1 (1e20 does), which strict reading refuses: such a value can be kept, but
 * nothing that is signed may hold one. */
bool json_is_strict(const struct json *json);
bool json_nests_within(const struct json *json, size_t levels); /* 0: only what has no parts; [] and {} are one level */
bool json_truthy(const struct json *json); /* jq: all but null and false */
const char *json_type_name(enum json_type type); /* "null", "boolean", … */

/* Add "/<part>" to a JSON pointer (RFC 6901), escaping ~ and /. */
void json_pointer_add(struct buffer *pointer, const char *part);
/* Follow a pointer; NULL when it leads nowhere. */
struct json *json_pointer_get(const struct json *json, const char *pointer);

/* True for well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF). *bad is the offset of the first bad
 * byte; it may be NULL. */
bool utf8_valid(struct bytes text, size_t *bad);
