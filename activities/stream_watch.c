/* See stream_watch.h. Pure, any thread. Start at stream_watch_feed(), then read_byte(); what a schema says of a value is read in follow().
 *
 * A value has to match several schemas at once (allOf, $ref, properties of several of them). Each is a condition of its own, so leaving one
 * out, or a keyword of it, lets through more and never less: that is how all that cannot be followed is dealt with here. */
#include "activities/stream_watch.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"

enum {
	LEVELS_FIRST = 8,
	GRAM_BYTES = 8, /* that have to be equal before a period is tried */
	GRAM_BITS = 10,
	TYPE_ALL = (1 << (JSON_OBJECT + 1)) - 1,
};
#define GRAM_FACTOR 0x9E3779B97F4A7C15u

enum place {
	BEFORE_VALUE, /* of the answer, of a member, or behind a comma in an array */
	BEFORE_FIRST_ITEM, BEFORE_FIRST_NAME, BEFORE_NAME, BEFORE_COLON, BEHIND_VALUE,
	IN_TEXT, IN_ESCAPE, IN_HEX, BEFORE_LOW, BEFORE_LOW_U, /* of a string or name; the last two: another half of a surrogate pair has to come */
	IN_NUMBER, IN_WORD,
	IN_FENCE, IN_FENCE_LINE, BEHIND_ANSWER, IN_CLOSING_FENCE, BEHIND_FENCE,
};

/* RFC 8259's number, by what has come of it. */
enum number_place { NUMBER_MINUS, NUMBER_ZERO, NUMBER_DIGITS, NUMBER_POINT, NUMBER_FRACTION, NUMBER_E, NUMBER_SIGN, NUMBER_EXPONENT };

/* What one schema says of an object or array that is open. */
struct part {
	const struct json *properties, *additional, *required, *items; /* NULL: nothing */
	bool has_patterns;
	double least, most; /* items or members */
	uint64_t seen; /* of `required` */
};

struct level {
	bool is_object;
	const char *member; /* whose value comes, by the schema's own text; NULL: the schema does not name it */
	bool has_long_name; /* some member's name is not known */
	size_t count;
	uint64_t names_seen; /* of the first part's properties, the first 64 */
	unsigned part_count;
	struct part parts[WATCH_SCHEMAS_MAX];
};

/* What all schemas say of a scalar. */
struct scalar {
	double length_least, length_most;
	double minimum, maximum, above, below;
	bool integer;
	const struct json *choice, *choices; /* const, enum; of one schema: the first that has any */
	uint64_t alive; /* of these, the texts that the string may still become */
};

struct loops {
	uint8_t recent[WATCH_LOOP_PERIOD_MAX];
	uint32_t last[1 << GRAM_BITS]; /* by hash: where the gram ended last, plus 1 */
	uint64_t gram;
	size_t count; /* bytes seen; later ones than the watch's */
	size_t period, run, look_at; /* period 0: none is tried; run: bytes equal to those one period before; the run at which to look closer */
};

struct stream_watch {
	struct stream_watch_config config;
	struct watch_verdict verdict;
	size_t at;

	size_t white_space; /* in a row, up to here */
	size_t line_start; /* of what is one line or string, as far as loops go */
	struct loops *loops; /* NULL: the answer is too short yet */

	enum place place;
	bool fenced, is_name;
	unsigned fence_marks;
	size_t value_end;

	struct level *levels; /* open ones, outermost first */
	size_t depth, depth_cap;
	const struct json *pending[WATCH_SCHEMAS_MAX]; /* schemas of the next value */
	unsigned pending_count;

	bool references_known, references_followed; /* whether `#/…` in the schema means the schema's own root everywhere */
	unsigned followed; /* for this value */
	struct scalar scalar;
	struct part parts[WATCH_SCHEMAS_MAX]; /* of the value that begins */
	unsigned part_count;

	bool is_plain; /* a name, or a string of which nothing is said but how short it may be */
	size_t text_len; /* bytes of the string, decoded */
	size_t characters;
	unsigned hex_count;
	uint32_t hex, high; /* high: the first half of a surrogate pair */
	enum number_place number_place;
	size_t number_len;
	const char *word;
	unsigned word_at;
	char name[WATCH_NAME_MAX], number[WATCH_NUMBER_MAX];
};

static const char *const check_names[] = {
	[WATCH_FINE] = "", [WATCH_SPACE] = "white-space", [WATCH_LOOP] = "loop", [WATCH_NOT_JSON] = "json", [WATCH_SCHEMA] = "schema", [WATCH_COMPLETE] = "complete",
};

const char *watch_check_name(enum watch_check check)
{
	CHECK((size_t)check < COUNT_OF(check_names));
	return check_names[check];
}

/* Returns false, so that a reader can say it as its own result. */
static bool stop(struct stream_watch *watch, enum watch_check check, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool stop(struct stream_watch *watch, enum watch_check check, const char *format, ...)
{
	va_list args;

	watch->verdict.check = check;
	watch->verdict.at = watch->at;
	watch->verdict.value_end = check == WATCH_COMPLETE ? watch->value_end : 0;
	va_start(args, format);
	vsnprintf(watch->verdict.detail, sizeof(watch->verdict.detail), format, args);
	va_end(args);
	return false;
}

/* Where a value is, as a JSON pointer, as far as the schema names its members. `levels`: of those that are open, the ones around it. */
static void write_place(const struct stream_watch *watch, size_t levels, struct buffer *out)
{
	for (size_t i = 0; i < levels; i++) {
		const struct level *level = &watch->levels[i];

		if (!level->is_object)
			buffer_printf(out, "/%zu", level->count - 1);
		else
			json_pointer_add(out, level->member != NULL ? level->member : "*");
	}
	buffer_add_text(out, ": ");
}

/* The same for what the schema refuses. */
static bool refuse(struct stream_watch *watch, size_t levels, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool refuse(struct stream_watch *watch, size_t levels, const char *format, ...)
{
	char text[WATCH_DETAIL_MAX / 2];
	struct buffer place;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	buffer_init(&place, WATCH_DETAIL_MAX / 2);
	write_place(watch, levels, &place);
	stop(watch, WATCH_SCHEMA, "%s%s", place.overflow ? "…: " : buffer_text(&place), text);
	buffer_close(&place);
	return false;
}

static bool is_json_space(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* ---- The schema ---- */

enum keyword {
	KEYWORD_OTHER, KEYWORD_REF, KEYWORD_ID, KEYWORD_SCHEMA, KEYWORD_TYPE, KEYWORD_CONST, KEYWORD_ENUM, KEYWORD_ANY_OF, KEYWORD_ONE_OF, KEYWORD_ALL_OF,
	KEYWORD_PROPERTIES, KEYWORD_PATTERNS, KEYWORD_ADDITIONAL, KEYWORD_REQUIRED, KEYWORD_ITEMS, KEYWORD_PREFIX_ITEMS,
	KEYWORD_ITEMS_MIN, KEYWORD_ITEMS_MAX, KEYWORD_MEMBERS_MIN, KEYWORD_MEMBERS_MAX, KEYWORD_LENGTH_MIN, KEYWORD_LENGTH_MAX,
	KEYWORD_MINIMUM, KEYWORD_MAXIMUM, KEYWORD_ABOVE, KEYWORD_BELOW,
};

/* By length, so that few are compared. */
static const struct {
	const char *text;
	size_t len;
	enum keyword keyword;
} keywords[] = {
#define KEYWORD(text, keyword) {text, sizeof(text) - 1, keyword}
	KEYWORD("$id", KEYWORD_ID), KEYWORD("type", KEYWORD_TYPE), KEYWORD("enum", KEYWORD_ENUM), KEYWORD("$ref", KEYWORD_REF),
	KEYWORD("items", KEYWORD_ITEMS), KEYWORD("const", KEYWORD_CONST), KEYWORD("anyOf", KEYWORD_ANY_OF), KEYWORD("oneOf", KEYWORD_ONE_OF),
	KEYWORD("allOf", KEYWORD_ALL_OF), KEYWORD("minimum", KEYWORD_MINIMUM), KEYWORD("maximum", KEYWORD_MAXIMUM), KEYWORD("$schema", KEYWORD_SCHEMA),
	KEYWORD("required", KEYWORD_REQUIRED), KEYWORD("minItems", KEYWORD_ITEMS_MIN), KEYWORD("maxItems", KEYWORD_ITEMS_MAX),
	KEYWORD("minLength", KEYWORD_LENGTH_MIN), KEYWORD("maxLength", KEYWORD_LENGTH_MAX), KEYWORD("properties", KEYWORD_PROPERTIES),
	KEYWORD("prefixItems", KEYWORD_PREFIX_ITEMS), KEYWORD("minProperties", KEYWORD_MEMBERS_MIN), KEYWORD("maxProperties", KEYWORD_MEMBERS_MAX),
	KEYWORD("exclusiveMinimum", KEYWORD_ABOVE), KEYWORD("exclusiveMaximum", KEYWORD_BELOW), KEYWORD("patternProperties", KEYWORD_PATTERNS),
	KEYWORD("additionalProperties", KEYWORD_ADDITIONAL),
#undef KEYWORD
};

static enum keyword find_keyword(const struct json_member *member)
{
	for (size_t i = 0; i < COUNT_OF(keywords) && keywords[i].len <= member->name_len; i++)
		if (keywords[i].len == member->name_len && memcmp(keywords[i].text, member->name, member->name_len) == 0)
			return keywords[i].keyword;
	return KEYWORD_OTHER;
}

/* Only of these it is known that all keywords mean what they say: a dialect of somebody's own may know fewer. */
static bool is_dialect_known(const struct json *schema)
{
	static const char *const known[] = {"https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema"};
	const struct json *name = json_get(schema, "$schema");
	const char *text;
	size_t len;

	if (name == NULL)
		return true;
	text = json_get_text(schema, "$schema");
	if (text == NULL)
		return false;
	len = strcspn(text, "#");
	for (size_t i = 0; i < COUNT_OF(known); i++)
		if (strlen(known[i]) == len && memcmp(known[i], text, len) == 0)
			return true;
	return false;
}

/* Whether a part of the schema has an identifier of its own, against which references inside of it are resolved. */
static bool has_identifiers(const struct json *json, bool is_root, size_t *nodes)
{
	if (++*nodes > WATCH_SCHEMA_NODES_MAX)
		return true;
	if (json->type == JSON_ARRAY) {
		for (size_t i = 0; i < json_count(json); i++)
			if (has_identifiers(json_at(json, i), false, nodes))
				return true;
	} else if (json->type == JSON_OBJECT) {
		for (size_t i = 0; i < json_count(json); i++) {
			const struct json_member *member = &json->object.members[i];

			if (!is_root && (strcmp(member->name, "$id") == 0 || strcmp(member->name, "$schema") == 0))
				return true;
			if (has_identifiers(member->value, false, nodes))
				return true;
		}
	}
	return false;
}

/* Where a reference leads, if that is plain to see; else NULL. */
static const struct json *resolve(struct stream_watch *watch, const struct json *reference)
{
	const char *text = reference->type == JSON_STRING ? reference->string.text : "";
	size_t nodes = 0;

	if (text[0] != '#' || (text[1] != '\0' && text[1] != '/') || strchr(text, '%') != NULL)
		return NULL;
	if (!watch->references_known) {
		watch->references_followed = !has_identifiers(watch->config.schema, true, &nodes);
		watch->references_known = true;
	}
	return watch->references_followed ? json_pointer_get(watch->config.schema, text + 1) : NULL;
}

/* A schema's word for a type, as a bit of our types. *integer: it was "integer". */
static unsigned read_type_word(const struct json *word, bool *integer)
{
	enum json_type type;

	if (word->type != JSON_STRING)
		return TYPE_ALL;
	switch (word->string.text[0]) {
	case 's': type = JSON_STRING; break;
	case 'o': type = JSON_OBJECT; break;
	case 'a': type = JSON_ARRAY; break;
	case 'b': type = JSON_BOOLEAN; break;
	case 'n': type = word->string.len == strlen("null") ? JSON_NULL : JSON_NUMBER; break;
	default: type = JSON_NUMBER; break;
	}
	if (strcmp(word->string.text, json_type_name(type)) == 0)
		return 1u << type;
	if (strcmp(word->string.text, "integer") != 0)
		return TYPE_ALL;
	*integer = true;
	return 1u << JSON_NUMBER;
}

/* *only_integer: of numbers, those without a fraction. */
static unsigned read_types(const struct json *type, bool *only_integer)
{
	unsigned types = 0;
	bool integer = false, number = false;

	if (type->type != JSON_ARRAY)
		return read_type_word(type, only_integer);
	for (size_t i = 0; i < json_count(type); i++) {
		bool word_is_integer = false;
		unsigned bit = read_type_word(json_at(type, i), &word_is_integer);

		types |= bit;
		integer |= word_is_integer;
		number |= !word_is_integer && (bit & 1u << JSON_NUMBER);
	}
	*only_integer = integer && !number;
	return types;
}

static bool is_short_list(const struct json *json, size_t most)
{
	return json->type == JSON_ARRAY && json_count(json) <= most;
}

/* An empty list, which a schema of draft 7 that was taken earlier may have, says nothing. */
static bool is_alternatives(const struct json *list)
{
	return is_short_list(list, WATCH_FOLLOWED_MAX) && json_count(list) > 0;
}

static bool has_type(const struct json *choices, enum json_type type)
{
	for (size_t i = 0; i < json_count(choices); i++)
		if (json_at(choices, i)->type == type)
			return true;
	return false;
}

/* Costs one of what may be looked at for a value. False: no more. */
static bool may_follow(struct stream_watch *watch, const struct json *node, unsigned references)
{
	return node != NULL && references <= WATCH_REFERENCES_MAX && ++watch->followed <= WATCH_FOLLOWED_MAX && node != watch->config.except;
}

/* May a value of this type match? True where that is not known. */
static bool could_be(struct stream_watch *watch, const struct json *node, enum json_type type, unsigned references)
{
	bool ignored, found;

	if (!may_follow(watch, node, references))
		return true;
	if (node->type == JSON_BOOLEAN)
		return node->boolean;
	for (size_t i = 0; i < json_count(node) && node->type == JSON_OBJECT; i++) {
		const struct json_member *member = &node->object.members[i];
		const struct json *value = member->value, *target;

		switch (find_keyword(member)) {
		case KEYWORD_ID:
		case KEYWORD_SCHEMA:
			if (node != watch->config.schema)
				return true;
			break;
		case KEYWORD_REF:
			target = resolve(watch, value);
			return target == NULL || could_be(watch, target, type, references + 1);
		case KEYWORD_TYPE:
			if (!(read_types(value, &ignored) & 1u << type))
				return false;
			break;
		case KEYWORD_CONST:
			if (value->type != type)
				return false;
			break;
		case KEYWORD_ENUM:
			if (is_short_list(value, WATCH_CHOICES_MAX) && !has_type(value, type))
				return false;
			break;
		case KEYWORD_ANY_OF:
		case KEYWORD_ONE_OF:
			found = !is_alternatives(value);
			for (size_t k = 0; k < json_count(value) && !found; k++)
				found = could_be(watch, json_at(value, k), type, references + 1);
			if (!found)
				return false;
			break;
		default:
			break;
		}
	}
	return true;
}

static void follow(struct stream_watch *watch, const struct json *node, enum json_type type, unsigned references);

/* Where only one of the alternatives can be of this type, that one has to match. */
static void follow_alternatives(struct stream_watch *watch, const struct json *list, enum json_type type, unsigned references)
{
	const struct json *only = NULL;
	size_t count = 0;

	if (!is_alternatives(list))
		return;
	for (size_t i = 0; i < json_count(list) && count < 2; i++)
		if (could_be(watch, json_at(list, i), type, references + 1)) {
			only = json_at(list, i);
			count++;
		}
	if (count == 0)
		refuse(watch, watch->depth, "none of the alternatives of the schema is a value of type %s", json_type_name(type));
	else if (count == 1)
		follow(watch, only, type, references + 1);
}

static void raise_to(double *least, const struct json *value)
{
	if (value->type == JSON_NUMBER && value->number > *least)
		*least = value->number;
}

static void lower_to(double *most, const struct json *value)
{
	if (value->type == JSON_NUMBER && value->number < *most)
		*most = value->number;
}

static bool is_schema(const struct json *value)
{
	return value->type == JSON_OBJECT || value->type == JSON_BOOLEAN;
}

/* What this schema says of a value of which the first byte has come. */
static void follow(struct stream_watch *watch, const struct json *node, enum json_type type, unsigned references)
{
	struct scalar *scalar = &watch->scalar;
	struct part part = {.most = INFINITY};
	bool only_integer = false, has_prefix = false;

	if (watch->verdict.check != WATCH_FINE || !may_follow(watch, node, references))
		return;
	if (node->type == JSON_BOOLEAN && !node->boolean)
		refuse(watch, watch->depth, "the schema allows no value here");
	for (size_t i = 0; i < json_count(node) && node->type == JSON_OBJECT && watch->verdict.check == WATCH_FINE; i++) {
		const struct json_member *member = &node->object.members[i];
		const struct json *value = member->value, *target;

		switch (find_keyword(member)) {
		case KEYWORD_ID:
		case KEYWORD_SCHEMA:
			if (node != watch->config.schema)
				return;
			break;
		case KEYWORD_REF: /* what stands beside it means nothing in draft 7 */
			target = resolve(watch, value);
			if (target != NULL)
				follow(watch, target, type, references + 1);
			return;
		case KEYWORD_TYPE:
			if (!(read_types(value, &only_integer) & 1u << type))
				refuse(watch, watch->depth, "expected %.40s, got %s", value->type == JSON_STRING ? value->string.text : "another type", json_type_name(type));
			scalar->integer |= only_integer;
			break;
		case KEYWORD_CONST:
			if (value->type != type)
				refuse(watch, watch->depth, "expected the value of const, got %s", json_type_name(type));
			else if (scalar->choice == NULL && scalar->choices == NULL)
				scalar->choice = value;
			break;
		case KEYWORD_ENUM:
			if (!is_short_list(value, WATCH_CHOICES_MAX))
				break;
			if (!has_type(value, type))
				refuse(watch, watch->depth, "expected one of the values of enum, got %s", json_type_name(type));
			else if (scalar->choice == NULL && scalar->choices == NULL)
				scalar->choices = value;
			break;
		case KEYWORD_ANY_OF:
		case KEYWORD_ONE_OF:
			follow_alternatives(watch, value, type, references);
			break;
		case KEYWORD_ALL_OF:
			for (size_t k = 0; k < json_count(value) && k < WATCH_FOLLOWED_MAX; k++)
				follow(watch, json_at(value, k), type, references + 1);
			break;
		case KEYWORD_PROPERTIES:
			part.properties = value;
			break;
		case KEYWORD_PATTERNS:
			part.has_patterns = true;
			break;
		case KEYWORD_ADDITIONAL:
			part.additional = is_schema(value) ? value : NULL;
			break;
		case KEYWORD_REQUIRED:
			part.required = value->type == JSON_ARRAY ? value : NULL;
			break;
		case KEYWORD_ITEMS:
			part.items = is_schema(value) ? value : NULL; /* draft 7 has a list, too */
			break;
		case KEYWORD_PREFIX_ITEMS:
			has_prefix = true;
			break;
		case KEYWORD_ITEMS_MIN:
		case KEYWORD_MEMBERS_MIN:
			if ((type == JSON_ARRAY) == (member->name[3] == 'I'))
				raise_to(&part.least, value);
			break;
		case KEYWORD_ITEMS_MAX:
		case KEYWORD_MEMBERS_MAX:
			if ((type == JSON_ARRAY) == (member->name[3] == 'I'))
				lower_to(&part.most, value);
			break;
		case KEYWORD_LENGTH_MIN:
			raise_to(&scalar->length_least, value);
			break;
		case KEYWORD_LENGTH_MAX:
			lower_to(&scalar->length_most, value);
			break;
		case KEYWORD_MINIMUM:
			raise_to(&scalar->minimum, value);
			break;
		case KEYWORD_MAXIMUM:
			lower_to(&scalar->maximum, value);
			break;
		case KEYWORD_ABOVE:
			raise_to(&scalar->above, value);
			break;
		case KEYWORD_BELOW:
			lower_to(&scalar->below, value);
			break;
		case KEYWORD_OTHER:
			break;
		}
	}
	if (has_prefix)
		part.items = NULL;
	if (type >= JSON_ARRAY && watch->part_count < WATCH_SCHEMAS_MAX &&
	    (part.properties != NULL || part.additional != NULL || part.required != NULL || part.items != NULL || part.least > 0 || part.most < INFINITY))
		watch->parts[watch->part_count++] = part;
}

static void add_pending(struct stream_watch *watch, const struct json *schema)
{
	for (unsigned i = 0; i < watch->pending_count; i++)
		if (watch->pending[i] == schema)
			return;
	if (watch->pending_count < WATCH_SCHEMAS_MAX)
		watch->pending[watch->pending_count++] = schema;
}

/* ---- Values ---- */

static struct level *innermost(struct stream_watch *watch)
{
	return &watch->levels[watch->depth - 1];
}

/* A further item or member. */
static bool count_part(struct stream_watch *watch)
{
	struct level *level = innermost(watch);

	level->count++;
	for (unsigned i = 0; i < level->part_count; i++)
		if ((double)level->count > level->parts[i].most)
			return refuse(watch, watch->depth - 1, "more than %.0f %s", level->parts[i].most, level->is_object ? "members" : "items");
	return true;
}

static bool begin_item(struct stream_watch *watch)
{
	struct level *level = innermost(watch);

	watch->pending_count = 0;
	for (unsigned i = 0; i < level->part_count; i++)
		if (level->parts[i].items != NULL)
			add_pending(watch, level->parts[i].items);
	return count_part(watch);
}

static bool open_level(struct stream_watch *watch, bool is_object)
{
	struct level *level;

	if (watch->depth == JSON_DEPTH_MAX)
		return stop(watch, WATCH_NOT_JSON, "json-depth: more than %d levels", JSON_DEPTH_MAX);
	if (watch->depth == watch->depth_cap) {
		watch->depth_cap = watch->depth_cap == 0 ? LEVELS_FIRST : watch->depth_cap * 2;
		watch->levels = memory_resize(watch->levels, watch->depth_cap * sizeof(*watch->levels));
	}
	level = &watch->levels[watch->depth++];
	level->is_object = is_object;
	level->member = NULL;
	level->has_long_name = false;
	level->count = 0;
	level->names_seen = 0;
	level->part_count = watch->part_count;
	memcpy(level->parts, watch->parts, watch->part_count * sizeof(watch->parts[0]));
	watch->place = is_object ? BEFORE_FIRST_NAME : BEFORE_FIRST_ITEM;
	return true;
}

static void end_value(struct stream_watch *watch)
{
	watch->place = BEHIND_VALUE;
	if (watch->depth > 0)
		return;
	watch->value_end = watch->at + 1; /* a number is ended by what follows it: end_number() */
	watch->place = BEHIND_ANSWER;
	watch->white_space = 0;
}

static bool close_level(struct stream_watch *watch)
{
	struct level *level = innermost(watch);

	for (unsigned i = 0; i < level->part_count; i++) {
		const struct part *part = &level->parts[i];

		if ((double)level->count < part->least)
			return refuse(watch, watch->depth - 1, "fewer than %.0f %s", part->least, level->is_object ? "members" : "items");
		for (size_t k = 0; k < json_count(part->required) && k < WATCH_REQUIRED_MAX && level->is_object && !level->has_long_name; k++)
			if (!(part->seen >> k & 1) && json_is(json_at(part->required, k), JSON_STRING))
				return refuse(watch, watch->depth - 1, "required, but missing: %.100s", json_at(part->required, k)->string.text);
	}
	watch->depth--;
	end_value(watch);
	return true;
}

/* The texts among the choices, one bit each. */
static uint64_t list_texts(const struct scalar *scalar)
{
	uint64_t texts = 0;

	if (scalar->choice != NULL)
		return scalar->choice->type == JSON_STRING;
	for (size_t i = 0; i < json_count(scalar->choices); i++)
		texts |= (uint64_t)(json_at(scalar->choices, i)->type == JSON_STRING) << i;
	return texts;
}

static const struct json *get_choice(const struct scalar *scalar, unsigned index)
{
	return scalar->choice != NULL ? scalar->choice : json_at(scalar->choices, index);
}

static bool has_choices(const struct scalar *scalar)
{
	return scalar->choice != NULL || scalar->choices != NULL;
}

static void begin_text(struct stream_watch *watch, bool is_name)
{
	watch->is_name = is_name;
	watch->is_plain = is_name || (!has_choices(&watch->scalar) && !(watch->scalar.length_most < INFINITY));
	watch->text_len = 0;
	watch->characters = 0;
	watch->place = IN_TEXT;
}

static bool follow_pending(struct stream_watch *watch, enum json_type type)
{
	watch->followed = 0;
	watch->part_count = 0;
	watch->scalar = (struct scalar){
		.length_most = INFINITY, .minimum = -INFINITY, .maximum = INFINITY, .above = -INFINITY, .below = INFINITY,
	};
	for (unsigned i = 0; i < watch->pending_count; i++)
		follow(watch, watch->pending[i], type, 0);
	watch->pending_count = 0;
	return watch->verdict.check == WATCH_FINE;
}

static bool begin_value(struct stream_watch *watch, uint8_t c)
{
	static const char *const words[] = {"null", "true", "false"};
	enum json_type type;

	switch (c) {
	case '{': type = JSON_OBJECT; break;
	case '[': type = JSON_ARRAY; break;
	case '"': type = JSON_STRING; break;
	case 't':
	case 'f': type = JSON_BOOLEAN; break;
	case 'n': type = JSON_NULL; break;
	default:
		if (c != '-' && (c < '0' || c > '9'))
			return stop(watch, WATCH_NOT_JSON, "json-syntax: expected a value");
		type = JSON_NUMBER;
	}
	/* Of prose the first letter may be that of a word; which it is shows itself soon. */
	if (type != JSON_NULL && type != JSON_BOOLEAN && !follow_pending(watch, type))
		return false;
	switch (type) {
	case JSON_OBJECT:
	case JSON_ARRAY:
		return open_level(watch, type == JSON_OBJECT);
	case JSON_STRING:
		if (has_choices(&watch->scalar))
			watch->scalar.alive = list_texts(&watch->scalar);
		begin_text(watch, false);
		return true;
	case JSON_NUMBER:
		watch->number_place = c == '-' ? NUMBER_MINUS : c == '0' ? NUMBER_ZERO : NUMBER_DIGITS;
		watch->number[0] = (char)c;
		watch->number_len = 1;
		watch->place = IN_NUMBER;
		return true;
	case JSON_NULL:
	case JSON_BOOLEAN:
		watch->word = words[c == 'n' ? 0 : c == 't' ? 1 : 2];
		watch->word_at = 1;
		watch->place = IN_WORD;
		return true;
	}
	return true;
}

static bool end_word(struct stream_watch *watch)
{
	const struct scalar *scalar = &watch->scalar;
	bool found, value = watch->word[0] == 't';

	if (!follow_pending(watch, watch->word[0] == 'n' ? JSON_NULL : JSON_BOOLEAN))
		return false;
	found = !has_choices(scalar) || watch->word[0] == 'n';
	for (unsigned i = 0; !found && i < (scalar->choice != NULL ? 1 : json_count(scalar->choices)); i++)
		found = get_choice(scalar, i)->type == JSON_BOOLEAN && get_choice(scalar, i)->boolean == value;
	if (!found)
		return refuse(watch, watch->depth, "expected one of the values of const or enum, got %s", watch->word);
	end_value(watch);
	return true;
}

static bool check_number(struct stream_watch *watch, double value)
{
	const struct scalar *scalar = &watch->scalar;
	bool found = !has_choices(scalar);

	if (scalar->integer && floor(value) != value)
		return refuse(watch, watch->depth, "expected integer, got a number with a fraction");
	if (value < scalar->minimum)
		return refuse(watch, watch->depth, "expected a number of at least %g, got %g", scalar->minimum, value);
	if (value > scalar->maximum)
		return refuse(watch, watch->depth, "expected a number of at most %g, got %g", scalar->maximum, value);
	if (value <= scalar->above)
		return refuse(watch, watch->depth, "expected a number above %g, got %g", scalar->above, value);
	if (value >= scalar->below)
		return refuse(watch, watch->depth, "expected a number below %g, got %g", scalar->below, value);
	for (unsigned i = 0; !found && i < (scalar->choice != NULL ? 1 : json_count(scalar->choices)); i++)
		found = get_choice(scalar, i)->type == JSON_NUMBER && get_choice(scalar, i)->number == value;
	return found || refuse(watch, watch->depth, "expected one of the values of const or enum, got %g", value);
}

/* The byte at hand is the first one behind the number. */
static bool end_number(struct stream_watch *watch)
{
	const struct scalar *scalar = &watch->scalar;
	bool matters = scalar->integer || has_choices(scalar) || scalar->minimum > -INFINITY || scalar->maximum < INFINITY || scalar->above > -INFINITY ||
		       scalar->below < INFINITY, fine = true;
	enum number_place place = watch->number_place;

	if (place == NUMBER_MINUS || place == NUMBER_POINT || place == NUMBER_E || place == NUMBER_SIGN)
		return stop(watch, WATCH_NOT_JSON, "json-syntax: expected a digit");
	if (matters && watch->number_len <= sizeof(watch->number)) {
		struct arena arena;
		const struct json *number;

		/* By the parser that reads the whole: what is too large is its to say. */
		arena_init(&arena);
		number = json_parse(&arena, (struct bytes){(const uint8_t *)watch->number, watch->number_len}, JSON_STRICT, NULL, NULL);
		fine = number == NULL || check_number(watch, number->number);
		arena_close(&arena);
	}
	end_value(watch);
	if (watch->depth == 0)
		watch->value_end = watch->at;
	return fine;
}

/* 1: taken, 0: it is no part of the number, which ends before it. */
static bool take_number_byte(struct stream_watch *watch, uint8_t c)
{
	bool digit = c >= '0' && c <= '9', taken = false;
	enum number_place *place = &watch->number_place;

	switch (*place) {
	case NUMBER_MINUS:
		taken = digit;
		*place = taken ? (c == '0' ? NUMBER_ZERO : NUMBER_DIGITS) : *place;
		break;
	case NUMBER_ZERO:
	case NUMBER_DIGITS:
		taken = (digit && *place == NUMBER_DIGITS) || c == '.' || c == 'e' || c == 'E';
		*place = c == '.' ? NUMBER_POINT : c == 'e' || c == 'E' ? NUMBER_E : *place;
		break;
	case NUMBER_POINT:
	case NUMBER_FRACTION:
		taken = digit || (*place == NUMBER_FRACTION && (c == 'e' || c == 'E'));
		*place = digit ? NUMBER_FRACTION : taken ? NUMBER_E : *place;
		break;
	case NUMBER_E:
	case NUMBER_SIGN:
	case NUMBER_EXPONENT:
		taken = digit || (*place == NUMBER_E && (c == '+' || c == '-'));
		*place = digit ? NUMBER_EXPONENT : taken ? NUMBER_SIGN : *place;
		break;
	}
	if (taken) {
		if (watch->number_len < sizeof(watch->number))
			watch->number[watch->number_len] = (char)c;
		watch->number_len++;
	}
	return taken;
}

/* ---- Strings and names ---- */

/* One byte of a text, decoded. */
static bool add_byte(struct stream_watch *watch, uint8_t c)
{
	struct scalar *scalar = &watch->scalar;
	size_t at = watch->text_len++;

	if (watch->is_name) {
		if (at < sizeof(watch->name))
			watch->name[at] = (char)c;
		return true;
	}
	if ((c & 0xC0) != 0x80 && (double)++watch->characters > scalar->length_most)
		return refuse(watch, watch->depth, "expected a text of at most %.0f characters", scalar->length_most);
	if (!has_choices(scalar))
		return true;
	for (uint64_t left = scalar->alive; left != 0; left &= left - 1) {
		unsigned i = (unsigned)__builtin_ctzll(left);
		const struct json *choice = get_choice(scalar, i);

		if (at >= choice->string.len || (uint8_t)choice->string.text[at] != c)
			scalar->alive &= ~((uint64_t)1 << i);
	}
	return scalar->alive != 0 || refuse(watch, watch->depth, "expected one of the values of const or enum, got another text");
}

/* White space counts by what it means: "\n" in a string is one. */
static bool count_white_space(struct stream_watch *watch, bool is_space, bool in_text)
{
	size_t most = (size_t)watch->config.white_space * (in_text ? WATCH_TEXT_WHITE_SPACE_TIMES : 1);

	watch->white_space = is_space ? watch->white_space + 1 : 0;
	if (most == 0 || watch->white_space <= most)
		return true;
	return stop(watch, WATCH_SPACE, "more than %zu white-space characters in a row%s", most, !watch->config.json ? "" : in_text ? " in a string" : " outside of strings");
}

static bool add_character(struct stream_watch *watch, uint32_t c)
{
	uint8_t bytes[4];
	unsigned len = 1;

	if (c < 0x80) {
		bytes[0] = (uint8_t)c;
	} else if (c < 0x800) {
		bytes[0] = (uint8_t)(0xC0 | c >> 6);
		len = 2;
	} else if (c < 0x10000) {
		bytes[0] = (uint8_t)(0xE0 | c >> 12);
		len = 3;
	} else {
		bytes[0] = (uint8_t)(0xF0 | c >> 18);
		len = 4;
	}
	for (unsigned i = 1; i < len; i++)
		bytes[i] = (uint8_t)(0x80 | (c >> 6 * (len - 1 - i) & 0x3F));
	for (unsigned i = 0; i < len; i++)
		if (!add_byte(watch, bytes[i]))
			return false;
	return count_white_space(watch, c < 0x80 && is_json_space((uint8_t)c), true);
}

static bool read_escape(struct stream_watch *watch, uint8_t c)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found = c != '\0' ? strchr(from, c) : NULL;

	if (c == 'u') {
		watch->place = IN_HEX;
		watch->hex = watch->hex_count = 0;
		return true;
	}
	if (found == NULL)
		return stop(watch, WATCH_NOT_JSON, "json-syntax: no such escape");
	watch->place = IN_TEXT;
	if (c == 'n')
		watch->line_start = watch->at + 1;
	return add_character(watch, (uint8_t)to[found - from]);
}

static bool read_hex(struct stream_watch *watch, uint8_t c)
{
	uint8_t lower = c | 0x20;

	if (c >= '0' && c <= '9')
		watch->hex = watch->hex << 4 | (uint32_t)(c - '0');
	else if (lower >= 'a' && lower <= 'f')
		watch->hex = watch->hex << 4 | (uint32_t)(lower - 'a' + 10);
	else
		return stop(watch, WATCH_NOT_JSON, "json-syntax: expected four hex digits");
	if (++watch->hex_count < 4)
		return true;
	if (watch->hex == 0)
		return stop(watch, WATCH_NOT_JSON, "json-nul: U+0000 in a string");
	if (watch->high != 0) {
		uint32_t high = watch->high;

		if (watch->hex < 0xDC00 || watch->hex > 0xDFFF)
			return stop(watch, WATCH_NOT_JSON, "json-surrogate: half of a surrogate pair");
		watch->high = 0;
		watch->place = IN_TEXT;
		return add_character(watch, 0x10000 + ((high - 0xD800) << 10) + (watch->hex - 0xDC00));
	}
	if (watch->hex >= 0xDC00 && watch->hex <= 0xDFFF)
		return stop(watch, WATCH_NOT_JSON, "json-surrogate: half of a surrogate pair");
	if (watch->hex >= 0xD800 && watch->hex <= 0xDBFF) {
		watch->high = watch->hex;
		watch->place = BEFORE_LOW;
		return true;
	}
	watch->place = IN_TEXT;
	return add_character(watch, watch->hex);
}

/* Which of an object's names this is, of those that count; -1: none of them. */
static int find_name(const struct json *object, const struct json *value)
{
	for (size_t i = 0; i < json_count(object) && i < 64; i++)
		if (object->object.members[i].value == value)
			return (int)i;
	return -1;
}

static bool end_name(struct stream_watch *watch)
{
	struct level *level = innermost(watch);
	bool is_long = watch->text_len > sizeof(watch->name);
	size_t len = watch->text_len;

	watch->pending_count = 0;
	watch->place = BEFORE_COLON;
	level->has_long_name |= is_long;
	level->member = NULL;
	for (unsigned i = 0; i < level->part_count && !is_long; i++) {
		struct part *part = &level->parts[i];
		const struct json *property = json_get_len(part->properties, watch->name, len);
		int index = property != NULL && level->member == NULL ? find_name(part->properties, property) : -1;

		if (index >= 0)
			level->member = part->properties->object.members[index].name;
		if (index >= 0 && i == 0) {
			if (level->names_seen >> index & 1)
				return stop(watch, WATCH_NOT_JSON, "json-duplicate: the member \"%.*s\" again", (int)(len < 100 ? len : 100), watch->name);
			level->names_seen |= (uint64_t)1 << index;
		}
		for (size_t k = 0; part->required != NULL && k < part->required->array.count && k < WATCH_REQUIRED_MAX; k++) {
			const struct json *name = part->required->array.items[k];

			if (name->type == JSON_STRING && name->string.len == len && memcmp(name->string.text, watch->name, len) == 0)
				part->seen |= (uint64_t)1 << k;
		}
		if (property != NULL)
			add_pending(watch, property);
		else if (part->additional != NULL && !part->has_patterns) {
			if (part->additional->type == JSON_BOOLEAN && !part->additional->boolean && part->additional != watch->config.except)
				return refuse(watch, watch->depth - 1, "the schema has no member \"%.*s\" and allows no others", (int)(len < 100 ? len : 100), watch->name);
			add_pending(watch, part->additional);
		}
	}
	return true;
}

static bool end_text(struct stream_watch *watch)
{
	const struct scalar *scalar = &watch->scalar;

	if (watch->is_name)
		return end_name(watch);
	if ((double)watch->characters < scalar->length_least)
		return refuse(watch, watch->depth, "expected a text of at least %.0f characters", scalar->length_least);
	if (has_choices(scalar)) {
		bool found = false;

		for (uint64_t left = scalar->alive; left != 0 && !found; left &= left - 1)
			found = get_choice(scalar, (unsigned)__builtin_ctzll(left))->string.len == watch->text_len;
		if (!found)
			return refuse(watch, watch->depth, "expected one of the values of const or enum, got another text");
	}
	end_value(watch);
	return true;
}

static bool read_text(struct stream_watch *watch, uint8_t c)
{
	if (c == '"') {
		watch->white_space = 0;
		return end_text(watch);
	}
	if (c == '\\') {
		watch->place = IN_ESCAPE;
		return true;
	}
	if (c < 0x20)
		return stop(watch, WATCH_NOT_JSON, "json-syntax: a control character in a string");
	return add_byte(watch, c) && count_white_space(watch, c == ' ', true);
}

/* ---- JSON ---- */

/* The fence as text_take_fence_off() has it: ``` and the rest of a line, then the value, then ``` and nothing more. */
static bool read_behind_answer(struct stream_watch *watch, uint8_t c)
{
	unsigned most = watch->config.white_space < WATCH_COMPLETE_WHITE_SPACE_MAX ? watch->config.white_space : WATCH_COMPLETE_WHITE_SPACE_MAX;

	if (is_json_space(c)) {
		watch->white_space++;
		return most == 0 || watch->white_space <= most ||
		       stop(watch, WATCH_COMPLETE, "the answer is complete with byte %zu, and more than %u white-space characters came behind it", watch->value_end, most);
	}
	if (watch->place == BEHIND_ANSWER && watch->fenced && c == '`') {
		watch->place = IN_CLOSING_FENCE;
		watch->fence_marks = 1;
		return true;
	}
	return stop(watch, WATCH_NOT_JSON, "json-syntax: the answer is complete with byte %zu, but text follows", watch->value_end);
}

static bool read_closing_fence(struct stream_watch *watch, uint8_t c)
{
	if (c != '`')
		return stop(watch, WATCH_NOT_JSON, "json-syntax: expected the end of the code fence");
	if (++watch->fence_marks == 3) {
		watch->place = BEHIND_FENCE;
		watch->white_space = 0;
	}
	return true;
}

/* Between values, white space apart. */
static bool read_structure(struct stream_watch *watch, uint8_t c)
{
	switch (watch->place) {
	case BEFORE_FIRST_ITEM:
		if (c == ']')
			return close_level(watch);
		return begin_item(watch) && begin_value(watch, c);
	case BEFORE_VALUE:
		if (watch->depth == 0 && !watch->fenced && c == '`') {
			watch->fenced = true;
			watch->fence_marks = 1;
			watch->place = IN_FENCE;
			return true;
		}
		return begin_value(watch, c);
	case BEFORE_FIRST_NAME:
	case BEFORE_NAME:
		if (c == '}' && watch->place == BEFORE_FIRST_NAME)
			return close_level(watch);
		if (c != '"')
			return stop(watch, WATCH_NOT_JSON, "json-syntax: expected a name in quotes");
		if (!count_part(watch))
			return false;
		begin_text(watch, true);
		return true;
	case BEFORE_COLON:
		if (c != ':')
			return stop(watch, WATCH_NOT_JSON, "json-syntax: expected a colon");
		watch->place = BEFORE_VALUE;
		return true;
	case BEHIND_VALUE:
		if (c == (innermost(watch)->is_object ? '}' : ']'))
			return close_level(watch);
		if (c != ',')
			return stop(watch, WATCH_NOT_JSON, "json-syntax: expected a comma or the end of the %s", innermost(watch)->is_object ? "object" : "array");
		watch->place = innermost(watch)->is_object ? BEFORE_NAME : BEFORE_VALUE;
		return innermost(watch)->is_object || begin_item(watch);
	default:
		CHECK(false);
		return false;
	}
}

static bool read_json(struct stream_watch *watch, uint8_t c)
{
	switch (watch->place) {
	case IN_TEXT:
		return read_text(watch, c);
	case IN_ESCAPE:
		return read_escape(watch, c);
	case IN_HEX:
		return read_hex(watch, c);
	case BEFORE_LOW:
	case BEFORE_LOW_U:
		if (c != (watch->place == BEFORE_LOW ? '\\' : 'u'))
			return stop(watch, WATCH_NOT_JSON, "json-surrogate: half of a surrogate pair");
		if (watch->place == BEFORE_LOW_U)
			watch->hex = watch->hex_count = 0;
		watch->place = watch->place == BEFORE_LOW ? BEFORE_LOW_U : IN_HEX;
		return true;
	case IN_NUMBER:
		if (take_number_byte(watch, c))
			return true;
		return end_number(watch) && read_json(watch, c);
	case IN_WORD:
		if (c != (uint8_t)watch->word[watch->word_at])
			return stop(watch, WATCH_NOT_JSON, "json-syntax: expected a value");
		return watch->word[++watch->word_at] != '\0' || end_word(watch);
	case IN_FENCE:
		if (c != '`' && watch->fence_marks < 3)
			return stop(watch, WATCH_NOT_JSON, "json-syntax: expected a value");
		watch->place = ++watch->fence_marks == 3 ? IN_FENCE_LINE : IN_FENCE;
		return true;
	case IN_FENCE_LINE:
		if (c == '\n')
			watch->place = BEFORE_VALUE;
		return count_white_space(watch, is_json_space(c), true);
	case BEHIND_ANSWER:
	case BEHIND_FENCE:
		return read_behind_answer(watch, c);
	case IN_CLOSING_FENCE:
		return read_closing_fence(watch, c);
	default:
		if (is_json_space(c))
			return count_white_space(watch, true, false);
		watch->white_space = 0;
		return read_structure(watch, c);
	}
}

/* ---- Loops ---- */

static bool has_letters(const struct loops *loops)
{
	for (size_t i = 1; i <= loops->period; i++) {
		uint8_t c = loops->recent[(loops->count - i) % WATCH_LOOP_PERIOD_MAX];

		if (c >= 0x80 || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'))
			return true;
	}
	return false;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Long enough to be looked at closer. */
static bool judge_loop(struct stream_watch *watch)
{
	struct loops *loops = watch->loops;
	bool in_line = loops->run <= watch->at + 1 - watch->line_start, letters = has_letters(loops);
	size_t times = in_line ? (letters ? 1 : WATCH_LOOP_TIMES_PLAIN) :
				 (letters && loops->period > WATCH_LOOP_FILL_PERIOD_MAX ? WATCH_LOOP_TIMES_ROWS : WATCH_LOOP_TIMES_FILL);
	size_t most = larger((size_t)watch->config.loop_bytes * times, WATCH_LOOP_REPEATS_MIN * loops->period);

	if (loops->run < most) {
		loops->look_at = most;
		return true;
	}
	return stop(watch, WATCH_LOOP, "it repeats itself every %zu bytes, for %zu bytes", loops->period, loops->run);
}

/* A period is tried when some bytes come again that came so far before, and kept as long as each byte is that of one period before. A wrong
 * guess ends soon, and the next one is made where it ended. */
static bool read_loops(struct stream_watch *watch, uint8_t c)
{
	struct loops *loops = watch->loops;
	uint32_t *last;
	bool fine = true;

	loops->gram = loops->gram << 8 | c;
	last = &loops->last[loops->gram * GRAM_FACTOR >> (64 - GRAM_BITS)];
	if (loops->period != 0 && loops->recent[(loops->count - loops->period) % WATCH_LOOP_PERIOD_MAX] == c) {
		loops->recent[loops->count++ % WATCH_LOOP_PERIOD_MAX] = c;
		*last = (uint32_t)loops->count;
		if (++loops->run >= loops->look_at)
			fine = judge_loop(watch);
		return fine;
	}
	loops->period = *last != 0 && loops->count + 1 - *last <= WATCH_LOOP_PERIOD_MAX ? loops->count + 1 - *last : 0;
	loops->run = 0;
	loops->look_at = larger(watch->config.loop_bytes, WATCH_LOOP_REPEATS_MIN * loops->period);
	loops->recent[loops->count++ % WATCH_LOOP_PERIOD_MAX] = c;
	*last = (uint32_t)loops->count;
	return true;
}

/* ---- The watch ---- */

struct stream_watch *stream_watch_new(const struct stream_watch_config *config)
{
	struct stream_watch *watch = memory_zero(sizeof(*watch));

	watch->config = *config;
	watch->place = BEFORE_VALUE;
	if (config->json && config->schema != NULL && is_dialect_known(config->schema))
		add_pending(watch, config->schema);
	return watch;
}

void stream_watch_free(struct stream_watch *watch)
{
	if (watch == NULL)
		return;
	free(watch->loops);
	free(watch->levels);
	free(watch);
}

const struct watch_verdict *stream_watch_verdict(const struct stream_watch *watch)
{
	return &watch->verdict;
}

/* Most answers end before a loop could be one: those pay nothing for it. */
static bool look_for_loops(struct stream_watch *watch, uint8_t c)
{
	if (watch->loops == NULL) {
		if (watch->at < watch->config.loop_bytes / 2)
			return true;
		watch->loops = memory_zero(sizeof(*watch->loops));
	}
	return read_loops(watch, c);
}

static bool is_in_text(const struct stream_watch *watch)
{
	return watch->place >= IN_TEXT && watch->place <= BEFORE_LOW_U;
}

static bool read_byte(struct stream_watch *watch, uint8_t c)
{
	bool fine;

	if (watch->config.json) {
		fine = read_json(watch, c);
		if (!is_in_text(watch))
			watch->line_start = watch->at + 1;
	} else {
		fine = count_white_space(watch, is_json_space(c), true);
		if (c == '\n' || c == '}' || c == ']') /* JSON that nobody asked for has rows, too */
			watch->line_start = watch->at + 1;
	}
	return fine && (watch->config.loop_bytes == 0 || look_for_loops(watch, c));
}

/* Over the bytes of a name or string that stand for themselves and that nothing is said of, since they are most of an answer: what read_byte() would
 * do for each. Returns how many; *fine: no loop was found at the last one. */
static size_t read_plain(struct stream_watch *watch, struct bytes piece, bool *fine)
{
	size_t most = (size_t)watch->config.white_space * WATCH_TEXT_WHITE_SPACE_TIMES, n = 0, white_space = watch->white_space, half = watch->config.loop_bytes / 2;
	bool looks = watch->loops != NULL;

	if (watch->config.loop_bytes != 0 && !looks) /* up to where they begin to be looked for */
		piece.len = watch->at >= half ? 0 : piece.len < half - watch->at ? piece.len : half - watch->at;
	while (n < piece.len && *fine) {
		uint8_t c = piece.data[n];

		if (c < 0x20 || c == '"' || c == '\\' || (c == ' ' && most != 0 && white_space >= most))
			break;
		white_space = c == ' ' ? white_space + 1 : 0;
		watch->characters += (c & 0xC0) != 0x80;
		n++;
		if (looks) {
			*fine = read_loops(watch, c);
			watch->at += *fine;
		}
	}
	if (watch->is_name && watch->text_len < sizeof(watch->name))
		memcpy(watch->name + watch->text_len, piece.data, n < sizeof(watch->name) - watch->text_len ? n : sizeof(watch->name) - watch->text_len);
	watch->text_len += n;
	watch->white_space = white_space;
	if (!looks)
		watch->at += n;
	return n;
}

bool stream_watch_feed(struct stream_watch *watch, struct bytes piece)
{
	bool fine = watch->verdict.check == WATCH_FINE;

	for (size_t i = 0; i < piece.len && fine; i++) {
		if (watch->place == IN_TEXT && watch->is_plain)
			i += read_plain(watch, (struct bytes){piece.data + i, piece.len - i}, &fine);
		if (!fine || i == piece.len)
			break;
		fine = read_byte(watch, piece.data[i]);
		watch->at += fine;
	}
	return fine;
}
