/* JSON Schema: the keywords that this release validates, and a plain refusal of all others. Pure, any thread. Start at
 * json_schema_validate().
 *
 * A schema is an object of keywords, or true (everything matches) or false (nothing does). Meanings are those that draft-07 and
 * 2020-12 share. A keyword that is not known is refused instead of skipped: a constraint that is silently not checked
 * would let through what its author meant to keep out. */
#include "workflow/language/json_schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "workflow/base/check.h"

enum {
	POINTER_LEN_MAX = 300, /* bytes of a pointer in a message; a longer one is cut and ends in "…" */
	WHAT_LEN_MAX = 300,
	SCHEMA_DEPTH_MAX = JSON_DEPTH_MAX, /* schemas inside one another */
};

/* Where we are: a chain on the stack, so that a pointer is only spelled out when something is wrong. */
struct place {
	const struct place *parent;
	const char *name; /* NULL: index */
	size_t index, depth;
};

#define INSIDE_NAME(place, part) (&(struct place){(place), (part), 0, (place)->depth + 1})
#define INSIDE_INDEX(place, at) (&(struct place){(place), NULL, (at), (place)->depth + 1})

static void spell_place(const struct place *place, struct buffer *pointer)
{
	char index[32];

	if (place->parent == NULL)
		return;
	spell_place(place->parent, pointer);
	/* Once a part did not fit, the shorter ones after it must not be put in its place. */
	if (pointer->overflow)
		return;
	if (place->name != NULL) {
		json_pointer_add(pointer, place->name);
	} else {
		snprintf(index, sizeof(index), "%zu", place->index);
		json_pointer_add(pointer, index);
	}
}

/* A text that was cut may end inside a character, which no JSON text may hold. */
static size_t whole_characters_len(const char *text, size_t len)
{
	while (len > 0 && !utf8_valid((struct bytes){(const uint8_t *)text, len}, NULL))
		len--;
	return len;
}

/* What varies in length stands last in the format, where it is cut. */
static int fail_at(const struct place *place, enum error_code code, struct error *error, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static int fail_at(const struct place *place, enum error_code code, struct error *error, const char *format, ...)
{
	struct buffer pointer;
	char what[WHAT_LEN_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	what[whole_characters_len(what, strlen(what))] = '\0';
	buffer_init(&pointer, POINTER_LEN_MAX);
	spell_place(place, &pointer);
	error_set(error, code, "%.*s%s: %s", (int)whole_characters_len(buffer_text(&pointer), pointer.len), buffer_text(&pointer),
		  pointer.overflow ? "…" : "", what);
	buffer_close(&pointer);
	return code;
}

/* ---- The schema itself ---- */

#define KEYWORDS(X)                                                                                              \
	X(KEYWORD_TYPE, "type") X(KEYWORD_PROPERTIES, "properties") X(KEYWORD_REQUIRED, "required")              \
	X(KEYWORD_ADDITIONAL_PROPERTIES, "additionalProperties") X(KEYWORD_ITEMS, "items")                       \
	X(KEYWORD_ENUM, "enum") X(KEYWORD_CONST, "const")                                                        \
	X(KEYWORD_MINIMUM, "minimum") X(KEYWORD_MAXIMUM, "maximum")                                              \
	X(KEYWORD_MIN_LENGTH, "minLength") X(KEYWORD_MAX_LENGTH, "maxLength")                                    \
	X(KEYWORD_MIN_ITEMS, "minItems") X(KEYWORD_MAX_ITEMS, "maxItems")                                        \
	X(KEYWORD_SCHEMA, "$schema") X(KEYWORD_TITLE, "title") X(KEYWORD_DESCRIPTION, "description")             \
	X(KEYWORD_DEFAULT, "default") X(KEYWORD_EXAMPLES, "examples")

enum keyword {
#define X(name, text) name,
	KEYWORDS(X)
#undef X
	KEYWORD_COUNT
};

static const char *const keyword_names[KEYWORD_COUNT] = {
#define X(name, text) [name] = text,
	KEYWORDS(X)
#undef X
};

static const char *const type_words[] = {"null", "boolean", "object", "array", "number", "string", "integer"};

static enum keyword find_keyword(const char *name)
{
	int keyword = 0;

	while (keyword < KEYWORD_COUNT && strcmp(keyword_names[keyword], name) != 0)
		keyword++;
	return (enum keyword)keyword;
}

static int check_schema(const struct json *schema, const struct place *place, struct error *error);

static int expect_type(const struct json *value, enum json_type type, const struct place *place, struct error *error)
{
	if (value->type == type)
		return 0;
	return fail_at(place, ERR_INVALID, error, "expected %s, got %s", json_type_name(type), json_type_name(value->type));
}

static int check_type_word(const struct json *word, const struct place *place, struct error *error)
{
	if (expect_type(word, JSON_STRING, place, error) != 0)
		return ERR_INVALID;
	for (size_t i = 0; i < COUNT_OF(type_words); i++) {
		if (strcmp(type_words[i], word->string.text) == 0)
			return 0;
	}
	return fail_at(place, ERR_INVALID, error, "expected null, boolean, object, array, number, string or integer, got %s", word->string.text);
}

static int check_type(const struct json *type, const struct place *place, struct error *error)
{
	if (type->type != JSON_ARRAY)
		return check_type_word(type, place, error);
	if (json_count(type) == 0)
		return fail_at(place, ERR_INVALID, error, "expected at least one type");
	/* Each word stands once, so a longer list holds one that is unknown or repeated: the loops below stay short. */
	for (size_t i = 0; i < json_count(type); i++) {
		if (check_type_word(json_at(type, i), INSIDE_INDEX(place, i), error) != 0)
			return ERR_INVALID;
		for (size_t k = 0; k < i; k++) {
			if (json_equal(json_at(type, i), json_at(type, k)))
				return fail_at(INSIDE_INDEX(place, i), ERR_INVALID, error, "the type stands here twice");
		}
	}
	return 0;
}

static int check_count(const struct json *count, const struct place *place, struct error *error)
{
	if (!json_is_integer(count) || count->number < 0)
		return fail_at(place, ERR_INVALID, error, "expected a whole number, 0 or more");
	return 0;
}

static int check_names(const struct json *names, const struct place *place, struct error *error)
{
	if (expect_type(names, JSON_ARRAY, place, error) != 0)
		return ERR_INVALID;
	for (size_t i = 0; i < json_count(names); i++) {
		if (expect_type(json_at(names, i), JSON_STRING, INSIDE_INDEX(place, i), error) != 0)
			return ERR_INVALID;
	}
	return 0;
}

static int check_properties(const struct json *properties, const struct place *place, struct error *error)
{
	if (expect_type(properties, JSON_OBJECT, place, error) != 0)
		return ERR_INVALID;
	for (size_t i = 0; i < properties->object.count; i++) {
		const struct json_member *member = &properties->object.members[i];
		int code = check_schema(member->value, INSIDE_NAME(place, member->name), error);

		if (code != 0)
			return code;
	}
	return 0;
}

static int check_keyword(const char *name, const struct json *value, const struct place *place, struct error *error)
{
	switch (find_keyword(name)) {
	case KEYWORD_TYPE:
		return check_type(value, place, error);
	case KEYWORD_PROPERTIES:
		return check_properties(value, place, error);
	case KEYWORD_REQUIRED:
		return check_names(value, place, error);
	case KEYWORD_ADDITIONAL_PROPERTIES:
	case KEYWORD_ITEMS:
		return check_schema(value, place, error);
	case KEYWORD_ENUM:
	case KEYWORD_EXAMPLES:
		return expect_type(value, JSON_ARRAY, place, error);
	case KEYWORD_MINIMUM:
	case KEYWORD_MAXIMUM:
		return expect_type(value, JSON_NUMBER, place, error);
	case KEYWORD_MIN_LENGTH:
	case KEYWORD_MAX_LENGTH:
	case KEYWORD_MIN_ITEMS:
	case KEYWORD_MAX_ITEMS:
		return check_count(value, place, error);
	case KEYWORD_SCHEMA:
	case KEYWORD_TITLE:
	case KEYWORD_DESCRIPTION:
		return expect_type(value, JSON_STRING, place, error);
	case KEYWORD_CONST:
	case KEYWORD_DEFAULT:
		return 0;
	case KEYWORD_COUNT:
		break;
	}
	return fail_at(place, ERR_UNSUPPORTED, error,
		       "this keyword is not validated yet; known are type, properties, required, additionalProperties, items, enum, const, "
		       "minimum, maximum, minLength, maxLength, minItems, maxItems, $schema, title, description, default, examples");
}

static int check_schema(const struct json *schema, const struct place *place, struct error *error)
{
	if (place->depth > SCHEMA_DEPTH_MAX)
		return fail_at(place, ERR_INVALID, error, "nested deeper than SCHEMA_DEPTH_MAX %d", SCHEMA_DEPTH_MAX);
	if (schema->type == JSON_BOOLEAN)
		return 0;
	if (schema->type != JSON_OBJECT)
		return fail_at(place, ERR_INVALID, error, "expected a schema (object or boolean), got %s", json_type_name(schema->type));
	for (size_t i = 0; i < schema->object.count; i++) {
		const struct json_member *member = &schema->object.members[i];
		int code = check_keyword(member->name, member->value, INSIDE_NAME(place, member->name), error);

		if (code != 0)
			return code;
	}
	return 0;
}

int json_schema_check(const struct json *schema, struct error *error)
{
	if (schema == NULL)
		return error_set(error, ERR_INVALID, ": expected a schema (object or boolean), got nothing");
	return check_schema(schema, &(struct place){0}, error);
}

/* ---- A value against its schema ---- */

static bool matches_word(const char *word, const struct json *value)
{
	if (strcmp(word, "integer") == 0)
		return value->type == JSON_NUMBER && floor(value->number) == value->number;
	return strcmp(word, json_type_name(value->type)) == 0;
}

static int validate_type(const struct json *type, const struct json *value, const struct place *place, struct error *error)
{
	char expected[100] = "";
	size_t len = 0;

	if (json_is(type, JSON_STRING)) {
		if (matches_word(type->string.text, value))
			return 0;
		snprintf(expected, sizeof(expected), "%s", type->string.text);
	}
	for (size_t i = 0; type->type == JSON_ARRAY && i < json_count(type); i++) {
		const char *word = json_at(type, i)->string.text;

		if (matches_word(word, value))
			return 0;
		if (len < sizeof(expected))
			len += (size_t)snprintf(expected + len, sizeof(expected) - len, "%s%s", i == 0 ? "" : " or ", word);
	}
	return fail_at(place, ERR_INVALID, error, "expected %s, got %s", expected,
		       value->type == JSON_NUMBER && strcmp(expected, "integer") == 0 ? "a number with a fraction" :
											json_type_name(value->type));
}

static size_t count_code_points(const struct json *text)
{
	size_t count = 0;

	for (size_t i = 0; i < text->string.len; i++)
		count += ((uint8_t)text->string.text[i] & 0xC0) != 0x80;
	return count;
}

/* A limit that is left out is one that no value can pass. */
static int validate_range(double value, const struct json *least, const struct json *most, const char *what, const struct place *place,
			  struct error *error)
{
	if (least != NULL && value < least->number)
		return fail_at(place, ERR_INVALID, error, "expected %s of at least %.17g, got %.17g", what, least->number, value);
	if (most != NULL && value > most->number)
		return fail_at(place, ERR_INVALID, error, "expected %s of at most %.17g, got %.17g", what, most->number, value);
	return 0;
}

static int validate(const struct json *schema, const struct json *value, const struct place *place, struct error *error);

static int validate_object(const struct json *schema, const struct json *value, const struct place *place, struct error *error)
{
	const struct json *required = json_get(schema, "required"), *properties = json_get(schema, "properties"),
			  *additional = json_get(schema, "additionalProperties");

	for (size_t i = 0; i < json_count(required); i++) {
		const struct json *name = json_at(required, i);

		if (json_get_len(value, name->string.text, name->string.len) == NULL)
			return fail_at(place, ERR_INVALID, error, "required, but missing: %s", name->string.text);
	}
	for (size_t i = 0; i < value->object.count; i++) {
		const struct json_member *member = &value->object.members[i];
		const struct json *inner = json_get_len(properties, member->name, member->name_len);
		const struct place *inside = INSIDE_NAME(place, member->name);

		if (inner == NULL)
			inner = additional;
		if (inner == NULL)
			continue;
		if (inner == additional && inner->type == JSON_BOOLEAN && !inner->boolean)
			return fail_at(inside, ERR_INVALID, error, "this member is not in the schema, which allows no others");
		if (validate(inner, member->value, inside, error) != 0)
			return ERR_INVALID;
	}
	return 0;
}

static int validate_array(const struct json *schema, const struct json *value, const struct place *place, struct error *error)
{
	const struct json *items = json_get(schema, "items");

	if (validate_range((double)json_count(value), json_get(schema, "minItems"), json_get(schema, "maxItems"), "a number of items", place,
			   error) != 0)
		return ERR_INVALID;
	for (size_t i = 0; items != NULL && i < json_count(value); i++) {
		if (validate(items, json_at(value, i), INSIDE_INDEX(place, i), error) != 0)
			return ERR_INVALID;
	}
	return 0;
}

static int validate_choice(const struct json *schema, const struct json *value, const struct place *place, struct error *error)
{
	const struct json *constant = json_get(schema, "const"), *choices = json_get(schema, "enum");
	bool found = choices == NULL;

	if (constant != NULL && !json_equal(constant, value))
		return fail_at(place, ERR_INVALID, error, "expected the value of const");
	for (size_t i = 0; !found && i < json_count(choices); i++)
		found = json_equal(json_at(choices, i), value);
	return found ? 0 : fail_at(place, ERR_INVALID, error, "expected one of the values of enum");
}

static int validate(const struct json *schema, const struct json *value, const struct place *place, struct error *error)
{
	const struct json *type;

	if (place->depth > SCHEMA_DEPTH_MAX)
		return fail_at(place, ERR_INVALID, error, "nested deeper than SCHEMA_DEPTH_MAX %d", SCHEMA_DEPTH_MAX);
	if (schema->type == JSON_BOOLEAN)
		return schema->boolean ? 0 : fail_at(place, ERR_INVALID, error, "the schema false matches nothing");
	type = json_get(schema, "type");
	if (type != NULL && validate_type(type, value, place, error) != 0)
		return ERR_INVALID;
	if (validate_choice(schema, value, place, error) != 0)
		return ERR_INVALID;
	switch (value->type) {
	case JSON_NULL:
	case JSON_BOOLEAN:
		return 0;
	case JSON_NUMBER:
		return validate_range(value->number, json_get(schema, "minimum"), json_get(schema, "maximum"), "a number", place, error);
	case JSON_STRING:
		return validate_range((double)count_code_points(value), json_get(schema, "minLength"), json_get(schema, "maxLength"),
				      "a length in characters", place, error);
	case JSON_ARRAY:
		return validate_array(schema, value, place, error);
	case JSON_OBJECT:
		return validate_object(schema, value, place, error);
	}
	return 0;
}

int json_schema_validate(const struct json *schema, const struct json *value, struct error *error)
{
	CHECK(schema != NULL);
	CHECK(value != NULL);
	return validate(schema, value, &(struct place){0}, error);
}
