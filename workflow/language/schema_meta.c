/* The metaschemas of both drafts, made of our own table of keywords: they accept the same schemas as the ones at json-schema.org, by the
 * same names and anchors, but are not their text. Also that table, and the place in a message. Pure, any thread. Start at
 * schema_meta_make(). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/schema_program.h"

enum {
	POINTER_LEN_MAX = 300, /* bytes of a pointer in a message; a longer one is cut and ends in "…" */
	WHAT_LEN_MAX = 300,
};

#define DRAFTS_7 SCHEMA_DRAFT_7
#define DRAFTS_2 SCHEMA_DRAFT_2020
#define DRAFTS_B (SCHEMA_DRAFT_7 | SCHEMA_DRAFT_2020)
const struct schema_keyword_info schema_keywords[KEYWORD_COUNT] = {
#define X(name, text, drafts, vocabulary, form) [KEYWORD_##name] = {text, DRAFTS_##drafts, VOCABULARY_##vocabulary, FORM_##form},
	SCHEMA_KEYWORDS(X)
#undef X
};

const char *schema_type_word(int type)
{
	return type == SCHEMA_TYPE_INTEGER ? "integer" : json_type_name((enum json_type)type);
}

/* ---- Messages ---- */

static void spell_place(const struct schema_place *place, struct buffer *pointer)
{
	char index[32];

	if (place->parent == NULL) {
		if (place->document != NULL)
			buffer_printf(pointer, "%s#", place->document);
		return;
	}
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

int schema_fail(const struct schema_place *place, enum error_code code, struct error *error, const char *format, ...)
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
	return (int)code;
}

/* ---- Vocabularies ---- */

#define VOCABULARY_PREFIX "https://json-schema.org/draft/2020-12/vocab/"
#define META_PREFIX "https://json-schema.org/draft/2020-12/meta/"
static const struct {
	const char *name;
	unsigned bit;
} vocabularies[] = {
	{"core", VOCABULARY_CORE}, {"applicator", VOCABULARY_APPLICATOR}, {"unevaluated", VOCABULARY_UNEVALUATED},
	{"validation", VOCABULARY_VALIDATION}, {"meta-data", VOCABULARY_META_DATA}, {"format-annotation", VOCABULARY_FORMAT},
	{"content", VOCABULARY_CONTENT},
};

unsigned schema_vocabulary_find(const char *uri)
{
	if (strncmp(uri, VOCABULARY_PREFIX, strlen(VOCABULARY_PREFIX)) != 0)
		return 0;
	for (size_t i = 0; i < COUNT_OF(vocabularies); i++) {
		if (strcmp(uri + strlen(VOCABULARY_PREFIX), vocabularies[i].name) == 0)
			return vocabularies[i].bit;
	}
	return 0;
}

/* ---- Metaschemas ---- */

struct maker {
	struct arena *arena;
	enum schema_draft draft;
};

static struct json *make_member(struct maker *maker, const char *name, struct json *value)
{
	struct json *object = json_object(maker->arena);

	json_set(maker->arena, object, name, value);
	return object;
}

static struct json *make_type(struct maker *maker, const char *type)
{
	return make_member(maker, "type", json_text(maker->arena, type));
}

static struct json *make_schema(struct maker *maker)
{
	return maker->draft == SCHEMA_DRAFT_7 ? make_member(maker, "$ref", json_text(maker->arena, "#")) :
						make_member(maker, "$dynamicRef", json_text(maker->arena, "#meta"));
}

static struct json *make_list(struct maker *maker, struct json *items, bool at_least_one, bool unique)
{
	struct json *list = make_type(maker, "array");

	json_set(maker->arena, list, "items", items);
	if (at_least_one)
		json_set_number(maker->arena, list, "minItems", 1);
	if (unique)
		json_set_boolean(maker->arena, list, "uniqueItems", true);
	return list;
}

static struct json *make_map(struct maker *maker, struct json *values)
{
	struct json *map = make_type(maker, "object");

	json_set(maker->arena, map, "additionalProperties", values);
	return map;
}

static struct json *make_either(struct maker *maker, struct json *one, struct json *other)
{
	struct json *list = json_array(maker->arena);

	json_add(maker->arena, list, one);
	json_add(maker->arena, list, other);
	return make_member(maker, "anyOf", list);
}

static struct json *make_type_words(struct maker *maker)
{
	struct json *words = json_array(maker->arena);

	for (int type = 0; type < SCHEMA_TYPE_COUNT; type++)
		json_add(maker->arena, words, json_text(maker->arena, schema_type_word(type)));
	return make_member(maker, "enum", words);
}

static struct json *make_form(struct maker *maker, enum schema_form form)
{
	struct json *made;

	switch (form) {
	case FORM_ANY:
		return json_boolean(maker->arena, true);
	case FORM_STRING:
	case FORM_PATTERN:
		return make_type(maker, "string");
	case FORM_ID:
		made = make_type(maker, "string");
		if (maker->draft != SCHEMA_DRAFT_7)
			json_set_text(maker->arena, made, "pattern", "^[^#]*#?$");
		return made;
	case FORM_ANCHOR:
		made = make_type(maker, "string");
		json_set_text(maker->arena, made, "pattern", "^[A-Za-z_][-A-Za-z0-9._]*$");
		return made;
	case FORM_BOOLEAN:
	case FORM_NUMBER:
	case FORM_ARRAY:
		return make_type(maker, form == FORM_BOOLEAN ? "boolean" : form == FORM_NUMBER ? "number" : "array");
	case FORM_POSITIVE:
		made = make_type(maker, "number");
		json_set_number(maker->arena, made, "exclusiveMinimum", 0);
		return made;
	case FORM_COUNT:
		made = make_type(maker, "integer");
		json_set_number(maker->arena, made, "minimum", 0);
		return made;
	case FORM_NAMES:
		return make_list(maker, make_type(maker, "string"), false, true);
	case FORM_TYPE:
		return make_either(maker, make_type_words(maker), make_list(maker, make_type_words(maker), true, true));
	case FORM_SCHEMA:
		return make_schema(maker);
	case FORM_SCHEMAS:
		return make_list(maker, make_schema(maker), true, false);
	case FORM_SCHEMA_MAP:
	case FORM_PATTERN_MAP:
		return make_map(maker, make_schema(maker));
	case FORM_NAMES_MAP:
		return make_map(maker, make_form(maker, FORM_NAMES));
	case FORM_DEPENDENCIES:
		return make_map(maker, make_either(maker, make_schema(maker), make_form(maker, FORM_NAMES)));
	case FORM_SCHEMA_OR_ARRAY:
		return make_either(maker, make_schema(maker), make_form(maker, FORM_SCHEMAS));
	case FORM_BOOLEAN_MAP:
		return make_map(maker, make_type(maker, "boolean"));
	}
	return NULL;
}

/* Members that the keywords of these vocabularies have to have. */
static struct json *make_document(struct maker *maker, const char *uri, unsigned vocabulary_bits)
{
	struct json *document = json_object(maker->arena), *properties = json_object(maker->arena), *types = json_array(maker->arena);

	for (size_t i = 0; i < KEYWORD_COUNT; i++) {
		const struct schema_keyword_info *info = &schema_keywords[i];

		if ((info->drafts & maker->draft) && (info->vocabulary & vocabulary_bits))
			json_set(maker->arena, properties, info->text, make_form(maker, info->form));
	}
	json_add(maker->arena, types, json_text(maker->arena, "object"));
	json_add(maker->arena, types, json_text(maker->arena, "boolean"));
	json_set_text(maker->arena, document, "$schema", maker->draft == SCHEMA_DRAFT_7 ? SCHEMA_7_URI "#" : SCHEMA_2020_URI);
	json_set_text(maker->arena, document, "$id", uri);
	if (maker->draft != SCHEMA_DRAFT_7)
		json_set_text(maker->arena, document, "$dynamicAnchor", "meta");
	json_set(maker->arena, document, "type", types);
	json_set(maker->arena, document, "properties", properties);
	return document;
}

const struct json *schema_meta_make(struct arena *arena, const char *uri)
{
	struct maker maker = {arena, SCHEMA_DRAFT_2020};

	if (strcmp(uri, SCHEMA_7_URI) == 0) {
		maker.draft = SCHEMA_DRAFT_7;
		return make_document(&maker, uri, VOCABULARY_ALL | VOCABULARY_OLD);
	}
	if (strcmp(uri, SCHEMA_2020_URI) == 0) {
		struct json *document = make_document(&maker, uri, VOCABULARY_OLD), *all = json_array(arena);

		for (size_t i = 0; i < COUNT_OF(vocabularies); i++)
			json_add(arena, all, make_member(&maker, "$ref", json_printf(arena, "meta/%s", vocabularies[i].name)));
		json_set(arena, document, "allOf", all);
		return document;
	}
	for (size_t i = 0; i < COUNT_OF(vocabularies); i++) {
		if (strncmp(uri, META_PREFIX, strlen(META_PREFIX)) == 0 && strcmp(uri + strlen(META_PREFIX), vocabularies[i].name) == 0)
			return make_document(&maker, uri, vocabularies[i].bit);
	}
	return NULL;
}
