/* A JSON Schema as it is compiled: what schema_compile.c makes and schema_evaluate.c runs. Only for these, json_schema.c and
 * schema_meta.c. Everything lies in the program's arena but the patterns. Never changed once it is made. */
#pragma once

#include "workflow/base/arena.h"
#include "workflow/base/json.h"
#include "workflow/language/json_schema.h"
#include "workflow/language/schema_pattern.h"

enum schema_draft { SCHEMA_DRAFT_7 = 1, SCHEMA_DRAFT_2020 = 2 };

/* Vocabularies of 2020-12; draft-07 has all of its keywords always. */
enum schema_vocabulary {
	VOCABULARY_CORE = 1,
	VOCABULARY_APPLICATOR = 2,
	VOCABULARY_UNEVALUATED = 4,
	VOCABULARY_VALIDATION = 8,
	VOCABULARY_META_DATA = 16,
	VOCABULARY_FORMAT = 32,
	VOCABULARY_CONTENT = 64,
	VOCABULARY_ALL = 127,
	VOCABULARY_OLD = 128, /* of earlier drafts, kept alive by 2020-12's metaschema itself */
};

/* What a keyword's value must be. From this follow the check at registration, where schemas lie inside schemas, and the metaschemas. */
enum schema_form {
	FORM_ANY, FORM_STRING, FORM_BOOLEAN, FORM_NUMBER, FORM_POSITIVE, FORM_COUNT, FORM_ARRAY, FORM_NAMES, FORM_TYPE, FORM_PATTERN,
	FORM_ID, FORM_ANCHOR, FORM_SCHEMA, FORM_SCHEMAS, FORM_SCHEMA_MAP, FORM_PATTERN_MAP, FORM_NAMES_MAP, FORM_DEPENDENCIES,
	FORM_SCHEMA_OR_ARRAY, FORM_BOOLEAN_MAP
};

/* Columns: name, text, drafts (7, 2 or B for both), vocabulary, form. */
#define SCHEMA_KEYWORDS(X)                                                                \
	X(SCHEMA, "$schema", B, CORE, STRING)                                             \
	X(ID, "$id", B, CORE, ID)                                                         \
	X(REF, "$ref", B, CORE, STRING)                                                   \
	X(ANCHOR, "$anchor", 2, CORE, ANCHOR)                                             \
	X(DYNAMIC_REF, "$dynamicRef", 2, CORE, STRING)                                    \
	X(DYNAMIC_ANCHOR, "$dynamicAnchor", 2, CORE, ANCHOR)                              \
	X(VOCABULARY, "$vocabulary", 2, CORE, BOOLEAN_MAP)                                \
	X(COMMENT, "$comment", B, CORE, STRING)                                           \
	X(DEFS, "$defs", 2, CORE, SCHEMA_MAP)                                             \
	X(DEFINITIONS, "definitions", B, OLD, SCHEMA_MAP)                                 \
	X(DEPENDENCIES, "dependencies", B, OLD, DEPENDENCIES)                             \
	X(PREFIX_ITEMS, "prefixItems", 2, APPLICATOR, SCHEMAS)                            \
	X(ITEMS, "items", 2, APPLICATOR, SCHEMA)                                          \
	X(ITEMS_7, "items", 7, APPLICATOR, SCHEMA_OR_ARRAY)                               \
	X(ADDITIONAL_ITEMS, "additionalItems", 7, APPLICATOR, SCHEMA)                     \
	X(CONTAINS, "contains", B, APPLICATOR, SCHEMA)                                    \
	X(ADDITIONAL_PROPERTIES, "additionalProperties", B, APPLICATOR, SCHEMA)           \
	X(PROPERTIES, "properties", B, APPLICATOR, SCHEMA_MAP)                            \
	X(PATTERN_PROPERTIES, "patternProperties", B, APPLICATOR, PATTERN_MAP)            \
	X(DEPENDENT_SCHEMAS, "dependentSchemas", 2, APPLICATOR, SCHEMA_MAP)               \
	X(PROPERTY_NAMES, "propertyNames", B, APPLICATOR, SCHEMA)                         \
	X(IF, "if", B, APPLICATOR, SCHEMA)                                                \
	X(THEN, "then", B, APPLICATOR, SCHEMA)                                            \
	X(ELSE, "else", B, APPLICATOR, SCHEMA)                                            \
	X(ALL_OF, "allOf", B, APPLICATOR, SCHEMAS)                                        \
	X(ANY_OF, "anyOf", B, APPLICATOR, SCHEMAS)                                        \
	X(ONE_OF, "oneOf", B, APPLICATOR, SCHEMAS)                                        \
	X(NOT, "not", B, APPLICATOR, SCHEMA)                                              \
	X(UNEVALUATED_ITEMS, "unevaluatedItems", 2, UNEVALUATED, SCHEMA)                  \
	X(UNEVALUATED_PROPERTIES, "unevaluatedProperties", 2, UNEVALUATED, SCHEMA)        \
	X(TYPE, "type", B, VALIDATION, TYPE)                                              \
	X(CONST, "const", B, VALIDATION, ANY)                                             \
	X(ENUM, "enum", B, VALIDATION, ARRAY)                                             \
	X(MULTIPLE_OF, "multipleOf", B, VALIDATION, POSITIVE)                             \
	X(MAXIMUM, "maximum", B, VALIDATION, NUMBER)                                      \
	X(EXCLUSIVE_MAXIMUM, "exclusiveMaximum", B, VALIDATION, NUMBER)                   \
	X(MINIMUM, "minimum", B, VALIDATION, NUMBER)                                      \
	X(EXCLUSIVE_MINIMUM, "exclusiveMinimum", B, VALIDATION, NUMBER)                   \
	X(MAX_LENGTH, "maxLength", B, VALIDATION, COUNT)                                  \
	X(MIN_LENGTH, "minLength", B, VALIDATION, COUNT)                                  \
	X(PATTERN, "pattern", B, VALIDATION, PATTERN)                                     \
	X(MAX_ITEMS, "maxItems", B, VALIDATION, COUNT)                                    \
	X(MIN_ITEMS, "minItems", B, VALIDATION, COUNT)                                    \
	X(UNIQUE_ITEMS, "uniqueItems", B, VALIDATION, BOOLEAN)                            \
	X(MAX_CONTAINS, "maxContains", 2, VALIDATION, COUNT)                              \
	X(MIN_CONTAINS, "minContains", 2, VALIDATION, COUNT)                              \
	X(MAX_PROPERTIES, "maxProperties", B, VALIDATION, COUNT)                          \
	X(MIN_PROPERTIES, "minProperties", B, VALIDATION, COUNT)                          \
	X(REQUIRED, "required", B, VALIDATION, NAMES)                                     \
	X(DEPENDENT_REQUIRED, "dependentRequired", 2, VALIDATION, NAMES_MAP)              \
	X(TITLE, "title", B, META_DATA, STRING)                                           \
	X(DESCRIPTION, "description", B, META_DATA, STRING)                               \
	X(DEFAULT, "default", B, META_DATA, ANY)                                          \
	X(DEPRECATED, "deprecated", 2, META_DATA, BOOLEAN)                                \
	X(READ_ONLY, "readOnly", B, META_DATA, BOOLEAN)                                   \
	X(WRITE_ONLY, "writeOnly", B, META_DATA, BOOLEAN)                                 \
	X(EXAMPLES, "examples", B, META_DATA, ARRAY)                                      \
	X(FORMAT, "format", B, FORMAT, STRING)                                            \
	X(CONTENT_ENCODING, "contentEncoding", B, CONTENT, STRING)                        \
	X(CONTENT_MEDIA_TYPE, "contentMediaType", B, CONTENT, STRING)                     \
	X(CONTENT_SCHEMA, "contentSchema", 2, CONTENT, SCHEMA)

enum schema_keyword {
#define X(name, text, drafts, vocabulary, form) KEYWORD_##name,
	SCHEMA_KEYWORDS(X)
#undef X
	KEYWORD_COUNT
};

struct schema_keyword_info {
	const char *text;
	unsigned drafts, vocabulary;
	enum schema_form form;
};
extern const struct schema_keyword_info schema_keywords[KEYWORD_COUNT];

/* Words of `type`; integer is one more than JSON's own types, which come in the order of enum json_type. */
enum { SCHEMA_TYPE_INTEGER = JSON_OBJECT + 1, SCHEMA_TYPE_COUNT };
const char *schema_type_word(int type);

/* Which keywords mean something in a resource: of which draft, and of which vocabularies. */
struct schema_dialect {
	enum schema_draft draft;
	unsigned vocabularies;
};

/* ---- Where something is, for messages ---- */

/* A chain, so that a pointer is only spelled out when something is wrong. */
struct schema_place {
	const struct schema_place *parent;
	const char *name; /* NULL: index */
	size_t index, depth;
	const char *document; /* at the root of another document than the one that is registered */
};

#define INSIDE_NAME(place, part) (&(struct schema_place){(place), (part), 0, (place)->depth + 1, NULL})
#define INSIDE_INDEX(place, at) (&(struct schema_place){(place), NULL, (at), (place)->depth + 1, NULL})

/* "<pointer>: <what>". What varies in length stands last in the format, where it is cut. Returns the code. */
int schema_fail(const struct schema_place *place, enum error_code code, struct error *error, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* ---- The program ---- */

struct schema;
struct schema_resource;

struct schema_anchor {
	const char *name;
	struct schema *schema;
	bool dynamic;
	struct schema_anchor *next;
};

/* What one $id names: a document, or a part of one that has its own. */
struct schema_resource {
	const char *uri; /* absolute, without fragment */
	size_t hash; /* of it */
	const struct schema_dialect *dialect;
	struct schema *root;
	struct schema_anchor *anchors;
	struct schema_resource *same; /* a document whose own $id is another URI: what that names */
	struct schema_resource *next;
};

struct schema_list {
	struct schema **schemas;
	size_t count;
};

struct schema_property {
	const char *name;
	size_t name_len;
	struct schema *schema; /* NULL where only names are required (dependencies) */
	const struct json *names;
	struct pattern *pattern; /* of patternProperties */
};

struct schema_properties {
	struct schema_property *items; /* sorted by memcmp of the names */
	size_t count;
};

/* A limit that is left out is one that no value passes: -1 as the least, INFINITY as the most. */
struct schema_range {
	double least, most;
};

struct schema {
	const struct json *source;
	const struct schema_place *place;
	struct schema_resource *resource;
	bool accepts_all, accepts_none; /* the schemas true and false */
	bool only_ref; /* draft-07: nothing counts beside $ref */

	struct schema *ref, *dynamic_ref;
	const char *dynamic_anchor; /* of dynamic_ref, when its first target is a dynamic anchor */
	unsigned types; /* bits; 0: any */
	const struct json *constant, *choices, *required;
	const double *minimum, *maximum, *exclusive_minimum, *exclusive_maximum, *multiple_of;
	struct schema_range length, item_count, property_count, contains_count;
	bool unique_items;
	struct pattern *pattern;
	const char *pattern_text;
	struct schema_list all_of, any_of, one_of, prefix_items;
	struct schema *not, *condition, *then, *otherwise, *items, *contains, *additional_properties, *property_names, *unevaluated_items,
		*unevaluated_properties;
	struct schema_properties properties, pattern_properties, dependent;

	size_t children_checked; /* while loops of references are searched */
	int search;
	struct schema *next; /* all schemas, in the order they were found */
};

struct pattern_link {
	struct pattern *pattern;
	struct pattern_link *next;
};

struct json_schema {
	struct arena arena;
	struct schema *root, *first, *last;
	struct schema **slots; /* by the address of the source */
	size_t slot_count, schema_count, resource_count, anchor_count, pattern_bytes;
	struct schema_resource *resources;
	struct pattern_link *patterns;
};

/* The schema whose source this is, or NULL. */
struct schema *schema_find(const struct json_schema *program, const struct json *source);
int schema_compile(struct json_schema *program, const struct json *source, const struct json_schema_document *documents, size_t count, bool is_taken,
		   struct error *error);
int schema_evaluate(const struct schema *schema, const struct schema *except, const struct json *value, struct error *error);

/* The metaschema of that URI (without fragment), or NULL. */
const struct json *schema_meta_make(struct arena *arena, const char *uri);
#define SCHEMA_2020_URI "https://json-schema.org/draft/2020-12/schema"
#define SCHEMA_7_URI "http://json-schema.org/draft-07/schema"
/* The vocabulary's bit, or 0: "https://json-schema.org/draft/2020-12/vocab/core". */
unsigned schema_vocabulary_find(const char *uri);

/* RFC 3986, section 5: the reference as seen from the base, which has a scheme. */
const char *schema_uri_resolve(struct arena *arena, const char *base, const char *reference);
