/* From the tree of a JSON Schema to a program. Pure, any thread. Start at schema_compile().
 *
 * 1. find_schemas() walks a document, makes a struct schema for each place where a keyword of its dialect holds a schema, and notes the
 *    identifiers and anchors that stand there. What stands elsewhere (in `const`, under an unknown keyword) is a value and names nothing.
 * 2. compile() reads the keywords of one schema. A reference may bring in a further document, which goes through 1 first.
 * 3. refuse_circles(): schemas that apply one another to the same value without end are found before any value comes. What a
 *    $dynamicRef closes to a circle shows itself only while matching. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/hex.h"
#include "workflow/language/schema_program.h"

enum { SLOTS_FIRST = 64, DIALECT_DEPTH_MAX = 8 };
#define BASE_URI "schema:///" /* of a schema without an $id */

static const struct schema_dialect dialect_7 = {SCHEMA_DRAFT_7, VOCABULARY_ALL | VOCABULARY_OLD};
static const struct schema_dialect dialect_2020 = {SCHEMA_DRAFT_2020, VOCABULARY_ALL | VOCABULARY_OLD};

struct compiler {
	struct json_schema *program;
	struct arena *arena;
	const struct json_schema_document *documents;
	size_t document_count;
	struct error *error;
	bool is_taken; /* see json_schema_compile_taken() */
};

/* ---- Schemas by the address of their source ---- */

static struct schema **find_slot(struct schema **slots, size_t count, const struct json *source)
{
	size_t at = (size_t)(((uintptr_t)source >> 4) * 0x9E3779B97F4A7C15u) & (count - 1);

	while (slots[at] != NULL && slots[at]->source != source)
		at = (at + 1) & (count - 1);
	return &slots[at];
}

struct schema *schema_find(const struct json_schema *program, const struct json *source)
{
	return program->slot_count == 0 ? NULL : *find_slot(program->slots, program->slot_count, source);
}

static void grow_slots(struct json_schema *program)
{
	size_t count = program->slot_count == 0 ? SLOTS_FIRST : program->slot_count * 2;
	struct schema **slots = memory_zero(count * sizeof(struct schema *));

	for (struct schema *schema = program->first; schema != NULL; schema = schema->next)
		*find_slot(slots, count, schema->source) = schema;
	free(program->slots);
	program->slots = slots;
	program->slot_count = count;
}

static struct schema *add_schema(struct compiler *compiler, const struct json *source, const struct schema_place *place)
{
	struct json_schema *program = compiler->program;
	struct schema *schema = arena_zero(compiler->arena, sizeof(*schema));

	if (program->schema_count * 2 >= program->slot_count)
		grow_slots(program);
	schema->source = source;
	schema->place = place;
	*find_slot(program->slots, program->slot_count, source) = schema;
	if (program->last != NULL)
		program->last->next = schema;
	else
		program->first = schema;
	program->last = schema;
	program->schema_count++;
	return schema;
}

/* ---- Dialects and keywords ---- */

static const struct schema_keyword_info *find_keyword(const struct schema_dialect *dialect, const char *name, enum schema_keyword *keyword)
{
	for (int i = 0; i < KEYWORD_COUNT; i++) {
		const struct schema_keyword_info *info = &schema_keywords[i];

		if ((info->drafts & dialect->draft) && (info->vocabulary & dialect->vocabularies) && strcmp(info->text, name) == 0) {
			*keyword = (enum schema_keyword)i;
			return info;
		}
	}
	return NULL;
}

static const char *without_fragment(struct arena *arena, const char *uri)
{
	return arena_text_len(arena, uri, strcspn(uri, "#"));
}

static const struct json *find_document(struct compiler *compiler, const char *uri)
{
	const struct json *made;

	for (size_t i = 0; i < compiler->document_count; i++) {
		if (strcmp(compiler->documents[i].uri, uri) == 0)
			return compiler->documents[i].schema;
	}
	made = schema_meta_make(compiler->arena, uri);
	return made;
}

static const struct schema_dialect *make_dialect(struct compiler *compiler, const struct json *vocabulary, const struct schema_place *place)
{
	struct schema_dialect *dialect = arena_zero(compiler->arena, sizeof(*dialect));

	dialect->draft = SCHEMA_DRAFT_2020;
	dialect->vocabularies = VOCABULARY_CORE | VOCABULARY_OLD;
	for (size_t i = 0; i < json_count(vocabulary); i++) {
		const struct json_member *member = &vocabulary->object.members[i];
		unsigned bit = schema_vocabulary_find(member->name);

		if (bit == 0 && member->value->type == JSON_BOOLEAN && member->value->boolean) {
			schema_fail(place, ERR_UNSUPPORTED, compiler->error, "requires a vocabulary that is not known: %s", member->name);
			return NULL;
		}
		dialect->vocabularies |= bit;
	}
	return dialect;
}

/* What $schema says; a metaschema of somebody's own is looked into for its vocabularies. */
static const struct schema_dialect *read_dialect(struct compiler *compiler, const struct json *name, const struct schema_place *place, int depth)
{
	const struct json *document;
	const char *uri;

	if (!json_is(name, JSON_STRING)) {
		schema_fail(place, ERR_INVALID, compiler->error, "expected string, got %s", json_type_name(name->type));
		return NULL;
	}
	uri = without_fragment(compiler->arena, name->string.text);
	if (strcmp(uri, SCHEMA_2020_URI) == 0)
		return &dialect_2020;
	if (strcmp(uri, SCHEMA_7_URI) == 0 || strcmp(uri, "https://json-schema.org/draft-07/schema") == 0)
		return &dialect_7;
	document = depth < DIALECT_DEPTH_MAX ? find_document(compiler, uri) : NULL;
	if (document == NULL) {
		schema_fail(place, ERR_UNSUPPORTED, compiler->error, "known are " SCHEMA_2020_URI " and " SCHEMA_7_URI "#, not %s", uri);
		return NULL;
	}
	if (json_is(json_get(document, "$vocabulary"), JSON_OBJECT))
		return make_dialect(compiler, json_get(document, "$vocabulary"), place);
	if (json_get(document, "$schema") == NULL)
		return &dialect_2020;
	return read_dialect(compiler, json_get(document, "$schema"), place, depth + 1);
}

/* ---- Finding schemas, identifiers, anchors ---- */

static const struct schema_place *keep_name(struct compiler *compiler, const struct schema_place *parent, const char *name)
{
	struct schema_place *place = arena_alloc(compiler->arena, sizeof(*place));

	*place = *INSIDE_NAME(parent, name);
	return place;
}

static const struct schema_place *keep_index(struct compiler *compiler, const struct schema_place *parent, size_t index)
{
	struct schema_place *place = arena_alloc(compiler->arena, sizeof(*place));

	*place = *INSIDE_INDEX(parent, index);
	return place;
}

static int expect_type(struct compiler *compiler, const struct json *value, enum json_type type, const struct schema_place *place)
{
	if (value->type == type)
		return 0;
	return schema_fail(place, ERR_INVALID, compiler->error, "expected %s, got %s", json_type_name(type), json_type_name(value->type));
}

/* So that long identifiers of one beginning are not compared with each other all the time. */
static size_t hash_text(const char *text)
{
	size_t hash = 0xCBF29CE484222325u;

	for (; *text != '\0'; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001B3u;
	return hash;
}

/* Each reference is resolved against the identifier around it, which is copied for it. */
static int check_uri_length(struct compiler *compiler, const char *uri, const struct schema_place *place)
{
	if (strlen(uri) <= SCHEMA_URI_LEN_MAX)
		return 0;
	return schema_fail(place, ERR_INVALID, compiler->error, "longer than SCHEMA_URI_LEN_MAX %d bytes when resolved", SCHEMA_URI_LEN_MAX);
}

static struct schema_resource *find_resource(struct compiler *compiler, const char *uri)
{
	struct schema_resource *resource = compiler->program->resources;
	size_t hash = hash_text(uri);

	while (resource != NULL && (resource->hash != hash || strcmp(resource->uri, uri) != 0))
		resource = resource->next;
	return resource != NULL && resource->same != NULL ? resource->same : resource;
}

static struct schema_resource *add_resource(struct compiler *compiler, const char *uri, const struct schema_dialect *dialect,
					    const struct schema_place *place)
{
	struct schema_resource *resource;

	if (find_resource(compiler, uri) != NULL) {
		schema_fail(place, ERR_INVALID, compiler->error, "another schema has this identifier already: %s", uri);
		return NULL;
	}
	if (++compiler->program->resource_count > SCHEMA_RESOURCES_MAX) {
		schema_fail(place, ERR_INVALID, compiler->error, "more than SCHEMA_RESOURCES_MAX %d identifiers", SCHEMA_RESOURCES_MAX);
		return NULL;
	}
	resource = arena_zero(compiler->arena, sizeof(*resource));
	resource->uri = uri;
	resource->hash = hash_text(uri);
	resource->dialect = dialect;
	resource->next = compiler->program->resources;
	compiler->program->resources = resource;
	return resource;
}

static struct schema_anchor *find_anchor(const struct schema_resource *resource, const char *name)
{
	struct schema_anchor *anchor = resource->anchors;

	while (anchor != NULL && strcmp(anchor->name, name) != 0)
		anchor = anchor->next;
	return anchor;
}

static int add_anchor(struct compiler *compiler, struct schema *schema, const char *name, bool dynamic, const struct schema_place *place)
{
	struct schema_anchor *anchor = find_anchor(schema->resource, name);

	if (anchor != NULL && anchor->schema != schema)
		return schema_fail(place, ERR_INVALID, compiler->error, "another schema has this anchor already: %s", name);
	if (anchor == NULL) {
		if (++compiler->program->anchor_count > SCHEMA_ANCHORS_MAX)
			return schema_fail(place, ERR_INVALID, compiler->error, "more than SCHEMA_ANCHORS_MAX %d anchors", SCHEMA_ANCHORS_MAX);
		anchor = arena_zero(compiler->arena, sizeof(*anchor));
		anchor->next = schema->resource->anchors;
		schema->resource->anchors = anchor;
	}
	anchor->name = name;
	anchor->schema = schema;
	anchor->dynamic = anchor->dynamic || dynamic;
	return 0;
}

static struct schema *find_schemas(struct compiler *compiler, const struct json *source, const struct schema_place *place,
				   struct schema_resource *resource, const struct schema_dialect *dialect);

static int find_in_array(struct compiler *compiler, const struct json *array, const struct schema_place *place, struct schema *outer)
{
	if (expect_type(compiler, array, JSON_ARRAY, place) != 0)
		return ERR_INVALID;
	if (json_count(array) == 0 && !(compiler->is_taken && outer->resource->dialect->draft == SCHEMA_DRAFT_7))
		return schema_fail(place, ERR_INVALID, compiler->error, "expected at least one schema");
	for (size_t i = 0; i < json_count(array); i++) {
		if (find_schemas(compiler, json_at(array, i), keep_index(compiler, place, i), outer->resource, NULL) == NULL)
			return (int)compiler->error->code;
	}
	return 0;
}

static int find_in_map(struct compiler *compiler, const struct json *map, const struct schema_place *place, struct schema *outer, bool or_names)
{
	if (expect_type(compiler, map, JSON_OBJECT, place) != 0)
		return ERR_INVALID;
	for (size_t i = 0; i < map->object.count; i++) {
		const struct json_member *member = &map->object.members[i];

		if (or_names && member->value->type == JSON_ARRAY)
			continue;
		if (find_schemas(compiler, member->value, keep_name(compiler, place, member->name), outer->resource, NULL) == NULL)
			return (int)compiler->error->code;
	}
	return 0;
}

static int find_in_keyword(struct compiler *compiler, enum schema_form form, const struct json *value, const struct schema_place *place,
			   struct schema *outer)
{
	switch (form) {
	case FORM_SCHEMA_OR_ARRAY:
		if (value->type == JSON_ARRAY)
			return find_in_array(compiler, value, place, outer);
		return find_schemas(compiler, value, place, outer->resource, NULL) == NULL ? (int)compiler->error->code : 0;
	case FORM_SCHEMA:
		return find_schemas(compiler, value, place, outer->resource, NULL) == NULL ? (int)compiler->error->code : 0;
	case FORM_SCHEMAS:
		return find_in_array(compiler, value, place, outer);
	case FORM_SCHEMA_MAP:
	case FORM_PATTERN_MAP:
		return find_in_map(compiler, value, place, outer, false);
	case FORM_DEPENDENCIES:
		return find_in_map(compiler, value, place, outer, true);
	case FORM_ANY: case FORM_STRING: case FORM_BOOLEAN: case FORM_NUMBER: case FORM_POSITIVE: case FORM_COUNT: case FORM_ARRAY:
	case FORM_NAMES: case FORM_TYPE: case FORM_PATTERN: case FORM_ID: case FORM_ANCHOR: case FORM_NAMES_MAP: case FORM_BOOLEAN_MAP:
		return 0;
	}
	return 0;
}

/* $schema and $id begin a resource of its own. resource: the one around; NULL with a dialect: this is the root of a document, whose
 * own resource stands first in the list and has neither a root nor a dialect yet. */
static int read_identity(struct compiler *compiler, struct schema *schema, struct schema_resource *document, const struct schema_dialect *dialect)
{
	const struct json *id = json_get(schema->source, "$id"), *name = json_get(schema->source, "$schema");
	const struct schema_place *place = INSIDE_NAME(schema->place, "$id");
	struct schema_resource *resource = document;
	const char *uri, *fragment;
	bool is_root = dialect != NULL;

	if (dialect == NULL)
		dialect = document->dialect;
	if (name != NULL && (is_root || id != NULL)) {
		dialect = read_dialect(compiler, name, INSIDE_NAME(schema->place, "$schema"), 0);
		if (dialect == NULL)
			return (int)compiler->error->code;
	}
	if (is_root)
		document->dialect = dialect;
	schema->only_ref = dialect->draft == SCHEMA_DRAFT_7 && json_get(schema->source, "$ref") != NULL;
	if (id == NULL || schema->only_ref)
		goto done;
	if (expect_type(compiler, id, JSON_STRING, place) != 0)
		return ERR_INVALID;
	uri = schema_uri_resolve(compiler->arena, document->uri, id->string.text);
	fragment = strchr(uri, '#');
	if (fragment != NULL && fragment[1] != '\0' && dialect->draft != SCHEMA_DRAFT_7)
		return schema_fail(place, ERR_INVALID, compiler->error, "an identifier has no fragment; there is $anchor");
	uri = without_fragment(compiler->arena, uri);
	if (check_uri_length(compiler, uri, place) != 0)
		return ERR_INVALID;
	if (strcmp(uri, document->uri) != 0) {
		resource = add_resource(compiler, uri, dialect, place);
		if (resource == NULL)
			return (int)compiler->error->code;
		resource->root = schema;
		if (is_root)
			document->same = resource;
	}
	schema->resource = resource;
	/* draft-07 has no $anchor: its identifiers end in one. */
	if (fragment != NULL && fragment[1] != '\0' && fragment[1] != '/' && add_anchor(compiler, schema, fragment + 1, false, place) != 0)
		return ERR_INVALID;
done:
	schema->resource = resource;
	if (is_root)
		document->root = schema;
	return 0;
}

static int read_anchors(struct compiler *compiler, struct schema *schema)
{
	static const char *const keywords[] = {"$anchor", "$dynamicAnchor"};

	for (int dynamic = 0; dynamic < 2; dynamic++) {
		const struct json *name = json_get(schema->source, keywords[dynamic]);
		const struct schema_place *place = INSIDE_NAME(schema->place, keywords[dynamic]);
		const char *text;

		if (name == NULL)
			continue;
		if (expect_type(compiler, name, JSON_STRING, place) != 0)
			return ERR_INVALID;
		text = name->string.text;
		if (strchr("0123456789-.", text[0]) != NULL ||
		    text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._")] != '\0')
			return schema_fail(place, ERR_INVALID, compiler->error, "expected letters, digits, -, ., _, and a letter or _ first");
		if (add_anchor(compiler, schema, text, dynamic == 1, place) != 0)
			return ERR_INVALID;
	}
	return 0;
}

static struct schema *find_schemas(struct compiler *compiler, const struct json *source, const struct schema_place *place,
				   struct schema_resource *resource, const struct schema_dialect *dialect)
{
	struct schema *schema = schema_find(compiler->program, source);

	if (schema != NULL)
		return schema;
	if (place->depth > SCHEMA_DEPTH_MAX) {
		schema_fail(place, ERR_INVALID, compiler->error, "nested deeper than SCHEMA_DEPTH_MAX %d", SCHEMA_DEPTH_MAX);
		return NULL;
	}
	if (source->type != JSON_BOOLEAN && source->type != JSON_OBJECT) {
		schema_fail(place, ERR_INVALID, compiler->error, "expected a schema (object or boolean), got %s", json_type_name(source->type));
		return NULL;
	}
	if (compiler->program->schema_count >= SCHEMA_COUNT_MAX) {
		schema_fail(place, ERR_INVALID, compiler->error, "more than SCHEMA_COUNT_MAX %d schemas", SCHEMA_COUNT_MAX);
		return NULL;
	}
	schema = add_schema(compiler, source, place);
	if (read_identity(compiler, schema, resource, dialect) != 0)
		return NULL;
	if (schema->resource->dialect->draft != SCHEMA_DRAFT_7 && read_anchors(compiler, schema) != 0)
		return NULL;
	for (size_t i = 0; source->type == JSON_OBJECT && i < source->object.count; i++) {
		const struct json_member *member = &source->object.members[i];
		enum schema_keyword keyword;
		const struct schema_keyword_info *info = find_keyword(schema->resource->dialect, member->name, &keyword);

		if (info == NULL || (schema->only_ref && keyword != KEYWORD_DEFINITIONS))
			continue;
		if (find_in_keyword(compiler, info->form, member->value, keep_name(compiler, place, member->name), schema) != 0)
			return NULL;
	}
	return schema;
}

/* A whole document; what it does not say of itself is as `dialect`. */
static struct schema *find_in_document(struct compiler *compiler, const struct json *source, const char *uri, const struct schema_place *place,
				       const struct schema_dialect *dialect)
{
	struct schema_resource *resource = add_resource(compiler, uri, dialect, place);

	return resource == NULL ? NULL : find_schemas(compiler, source, place, resource, dialect);
}

/* ---- References ---- */

/* NULL where a percent sign stands without its two digits, or stands for NUL. */
static char *decode_fragment(struct arena *arena, const char *fragment)
{
	char *decoded = arena_alloc(arena, strlen(fragment) + 1);
	size_t len = 0;

	for (; *fragment != '\0'; fragment++) {
		char c = *fragment;

		if (c == '%') {
			if (hex_value(fragment[1]) < 0 || hex_value(fragment[2]) < 0)
				return NULL;
			c = (char)(hex_value(fragment[1]) << 4 | hex_value(fragment[2]));
			fragment += 2;
			if (c == '\0')
				return NULL;
		}
		decoded[len++] = c;
	}
	decoded[len] = '\0';
	return decoded;
}

static const struct json *follow_token(struct compiler *compiler, const struct json *json, const char *token, size_t len,
				       const struct schema_place **place)
{
	char *name = arena_alloc(compiler->arena, len + 1);
	size_t name_len = 0, index = 0;

	for (size_t i = 0; i < len; i++) {
		name[name_len] = token[i];
		if (token[i] == '~' && i + 1 < len && (token[i + 1] == '0' || token[i + 1] == '1'))
			name[name_len] = token[++i] == '0' ? '~' : '/';
		name_len++;
	}
	name[name_len] = '\0';
	if (json_is(json, JSON_OBJECT)) {
		*place = keep_name(compiler, *place, name);
		return json_get_len(json, name, name_len);
	}
	if (!json_is(json, JSON_ARRAY) || name_len == 0 || name_len > 9 || strspn(name, "0123456789") != name_len || (name[0] == '0' && name_len > 1))
		return NULL;
	for (size_t i = 0; i < name_len; i++)
		index = index * 10 + (size_t)(name[i] - '0');
	*place = keep_index(compiler, *place, index);
	return json_at(json, index);
}

/* A pointer may lead to a place that no keyword of ours makes a schema; it is one then. Its base is that of the schema around it. */
static struct schema *follow_pointer(struct compiler *compiler, struct schema_resource *resource, const char *pointer, const struct schema_place *from)
{
	const struct json *json = resource->root->source;
	const struct schema_place *place = resource->root->place;
	struct schema *around = resource->root, *found;

	while (json != NULL && *pointer == '/') {
		size_t len = strcspn(pointer + 1, "/");

		json = follow_token(compiler, json, pointer + 1, len, &place);
		pointer += 1 + len;
		found = json == NULL ? NULL : schema_find(compiler->program, json);
		if (found != NULL)
			around = found;
	}
	if (json == NULL) {
		schema_fail(from, ERR_INVALID, compiler->error, "this reference leads nowhere");
		return NULL;
	}
	return find_schemas(compiler, json, place, around->resource, NULL);
}

/* The resource that a reference names; brings in its document, if that is one of those at hand. */
static struct schema_resource *find_referenced(struct compiler *compiler, const struct schema *schema, const struct json *reference, const char *uri,
					       const struct schema_place *place)
{
	struct schema_resource *resource = find_resource(compiler, uri);
	const struct json *document;
	struct schema_place *root;

	if (resource != NULL)
		return resource;
	document = find_document(compiler, uri);
	if (document == NULL) {
		schema_fail(place, ERR_UNSUPPORTED, compiler->error, "refers to a document that is not at hand: %s", reference->string.text);
		return NULL;
	}
	root = arena_zero(compiler->arena, sizeof(*root));
	root->document = arena_text(compiler->arena, uri);
	if (find_in_document(compiler, document, root->document, root, schema->resource->dialect) == NULL)
		return NULL;
	return find_resource(compiler, uri);
}

static struct schema *resolve(struct compiler *compiler, const struct schema *schema, const struct json *reference, const struct schema_place *place,
			      const struct schema_anchor **anchor)
{
	const char *uri, *fragment, *absolute;
	struct schema_resource *resource;
	struct schema *found = NULL;
	struct arena scratch; /* a schema may have a reference for each 14 bytes of its text */

	*anchor = NULL;
	if (expect_type(compiler, reference, JSON_STRING, place) != 0)
		return NULL;
	arena_init(&scratch);
	absolute = schema_uri_resolve(&scratch, schema->resource->uri, reference->string.text);
	uri = without_fragment(&scratch, absolute);
	fragment = absolute[strlen(uri)] == '#' ? decode_fragment(&scratch, absolute + strlen(uri) + 1) : "";
	if (fragment == NULL) {
		schema_fail(place, ERR_INVALID, compiler->error, "expected two hexadecimal digits behind each %%");
		goto out;
	}
	resource = find_referenced(compiler, schema, reference, uri, place);
	if (resource == NULL)
		goto out;
	if (fragment[0] == '\0') {
		found = resource->root;
	} else if (fragment[0] == '/') {
		found = follow_pointer(compiler, resource, fragment, place);
	} else {
		*anchor = find_anchor(resource, fragment);
		if (*anchor != NULL)
			found = (*anchor)->schema;
		else
			schema_fail(place, ERR_INVALID, compiler->error, "this reference leads nowhere: no anchor %s", fragment);
	}
out:
	arena_close(&scratch);
	return found;
}

/* ---- Keywords ---- */

static int read_type_word(struct compiler *compiler, const struct json *word, const struct schema_place *place, unsigned *types)
{
	if (expect_type(compiler, word, JSON_STRING, place) != 0)
		return ERR_INVALID;
	for (int i = 0; i < SCHEMA_TYPE_COUNT; i++) {
		if (strcmp(schema_type_word(i), word->string.text) != 0)
			continue;
		if (*types & 1u << i)
			return schema_fail(place, ERR_INVALID, compiler->error, "the type stands here twice");
		*types |= 1u << i;
		return 0;
	}
	return schema_fail(place, ERR_INVALID, compiler->error, "expected null, boolean, object, array, number, string or integer, got %s",
			   word->string.text);
}

static int read_types(struct compiler *compiler, const struct json *value, const struct schema_place *place, unsigned *types)
{
	if (value->type != JSON_ARRAY)
		return read_type_word(compiler, value, place, types);
	if (json_count(value) == 0)
		return schema_fail(place, ERR_INVALID, compiler->error, "expected at least one type");
	/* Each word stands once, so a longer list holds one that is unknown or repeated. */
	for (size_t i = 0; i < json_count(value); i++) {
		if (read_type_word(compiler, json_at(value, i), INSIDE_INDEX(place, i), types) != 0)
			return ERR_INVALID;
	}
	return 0;
}

static int read_count(struct compiler *compiler, const struct json *value, const struct schema_place *place, double *count)
{
	if (!json_is(value, JSON_NUMBER) || value->number < 0 || floor(value->number) != value->number)
		return schema_fail(place, ERR_INVALID, compiler->error, "expected a whole number, 0 or more");
	*count = value->number;
	return 0;
}

static int compare_names(const void *left, const void *right)
{
	const struct json *a = *(const struct json *const *)left, *b = *(const struct json *const *)right;
	size_t len = a->string.len < b->string.len ? a->string.len : b->string.len;
	int order = memcmp(a->string.text, b->string.text, len);

	return order != 0 ? order : (a->string.len > b->string.len) - (a->string.len < b->string.len);
}

/* Sorted, since a schema may name as many as its text has room for. */
static int refuse_same_names(struct compiler *compiler, const struct json *names, const struct schema_place *place)
{
	size_t count = json_count(names);
	const struct json **sorted = memory_alloc((count + 1) * sizeof(*sorted));

	for (size_t i = 0; i < count; i++)
		sorted[i] = json_at(names, i);
	qsort(sorted, count, sizeof(*sorted), compare_names);
	for (size_t i = 1; i < count && compiler->error->code == ERR_NONE; i++)
		if (compare_names(&sorted[i - 1], &sorted[i]) == 0)
			schema_fail(place, ERR_INVALID, compiler->error, "this name stands here twice: %s", sorted[i]->string.text);
	free(sorted);
	return (int)compiler->error->code;
}

static int check_names(struct compiler *compiler, const struct json *names, const struct schema_place *place)
{
	if (expect_type(compiler, names, JSON_ARRAY, place) != 0)
		return ERR_INVALID;
	for (size_t i = 0; i < json_count(names); i++) {
		if (expect_type(compiler, json_at(names, i), JSON_STRING, INSIDE_INDEX(place, i)) != 0)
			return ERR_INVALID;
	}
	return compiler->is_taken ? 0 : refuse_same_names(compiler, names, place);
}

static int check_booleans(struct compiler *compiler, const struct json *map, const struct schema_place *place)
{
	if (expect_type(compiler, map, JSON_OBJECT, place) != 0)
		return ERR_INVALID;
	for (size_t i = 0; i < map->object.count && !compiler->is_taken; i++) {
		const struct json_member *member = &map->object.members[i];

		if (expect_type(compiler, member->value, JSON_BOOLEAN, INSIDE_NAME(place, member->name)) != 0)
			return ERR_INVALID;
	}
	return 0;
}

static int read_pattern(struct compiler *compiler, const char *text, size_t len, const struct schema_place *place, struct pattern **pattern)
{
	struct pattern_link *link = arena_zero(compiler->arena, sizeof(*link));
	struct error error;

	link->pattern = pattern_new(text, len, &error);
	if (link->pattern == NULL)
		return schema_fail(place, ERR_INVALID, compiler->error, "%s", error.message);
	link->next = compiler->program->patterns;
	compiler->program->patterns = link;
	compiler->program->pattern_bytes += pattern_size(link->pattern);
	if (compiler->program->pattern_bytes > SCHEMA_PATTERN_BYTES_MAX)
		return schema_fail(place, ERR_INVALID, compiler->error, "the patterns take more than SCHEMA_PATTERN_BYTES_MAX %d bytes when compiled",
				   SCHEMA_PATTERN_BYTES_MAX);
	*pattern = link->pattern;
	return 0;
}

static struct schema_list read_list(struct compiler *compiler, const struct json *array)
{
	struct schema_list list = {arena_alloc(compiler->arena, (json_count(array) + 1) * sizeof(struct schema *)), json_count(array)};

	for (size_t i = 0; i < list.count; i++)
		list.schemas[i] = schema_find(compiler->program, json_at(array, i));
	return list;
}

static int compare_properties(const void *left, const void *right)
{
	const struct schema_property *a = left, *b = right;
	size_t len = a->name_len < b->name_len ? a->name_len : b->name_len;
	int order = memcmp(a->name, b->name, len);

	return order != 0 ? order : (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

/* Adds to what is there: `dependentRequired`, `dependentSchemas` and `dependencies` go into one list. */
static int read_properties(struct compiler *compiler, const struct json *map, const struct schema_place *place, enum schema_form form,
			   struct schema_properties *properties)
{
	size_t count = properties->count;
	struct schema_property *items;

	if (expect_type(compiler, map, JSON_OBJECT, place) != 0)
		return ERR_INVALID;
	items = arena_zero(compiler->arena, (count + map->object.count + 1) * sizeof(*items));
	if (count > 0)
		memcpy(items, properties->items, count * sizeof(*items));
	for (size_t i = 0; i < map->object.count; i++) {
		const struct json_member *member = &map->object.members[i];
		struct schema_property *item = &items[count + i];
		const struct schema_place *inside = INSIDE_NAME(place, member->name);

		item->name = member->name;
		item->name_len = member->name_len;
		if (form == FORM_NAMES_MAP || (form == FORM_DEPENDENCIES && member->value->type == JSON_ARRAY)) {
			item->names = member->value;
			if (check_names(compiler, member->value, inside) != 0)
				return ERR_INVALID;
		} else {
			item->schema = schema_find(compiler->program, member->value);
		}
		if (form == FORM_PATTERN_MAP && read_pattern(compiler, member->name, member->name_len, inside, &item->pattern) != 0)
			return ERR_INVALID;
	}
	properties->items = items;
	properties->count = count + map->object.count;
	qsort(properties->items, properties->count, sizeof(*items), compare_properties);
	return 0;
}

/* Values that are looked at only as what they are: a wrong one is a mistake of the author's, although nothing is checked by it. */
static int check_form(struct compiler *compiler, enum schema_form form, const struct json *value, const struct schema_place *place)
{
	switch (form) {
	case FORM_STRING:
	case FORM_ID:
	case FORM_PATTERN:
	case FORM_ANCHOR:
		return expect_type(compiler, value, JSON_STRING, place);
	case FORM_BOOLEAN:
		return expect_type(compiler, value, JSON_BOOLEAN, place);
	case FORM_NUMBER:
		return expect_type(compiler, value, JSON_NUMBER, place);
	case FORM_POSITIVE:
		if (!json_is(value, JSON_NUMBER) || value->number <= 0)
			return schema_fail(place, ERR_INVALID, compiler->error, "expected a number above 0");
		return 0;
	case FORM_ARRAY:
		return expect_type(compiler, value, JSON_ARRAY, place);
	case FORM_BOOLEAN_MAP:
		return check_booleans(compiler, value, place);
	case FORM_NAMES:
		return check_names(compiler, value, place);
	case FORM_ANY: case FORM_COUNT: case FORM_TYPE: case FORM_SCHEMA: case FORM_SCHEMAS: case FORM_SCHEMA_MAP: case FORM_PATTERN_MAP:
	case FORM_NAMES_MAP: case FORM_DEPENDENCIES: case FORM_SCHEMA_OR_ARRAY:
		return 0; /* where they are read */
	}
	return 0;
}

static int read_dynamic_reference(struct compiler *compiler, struct schema *schema, const struct json *value, const struct schema_place *place)
{
	const struct schema_anchor *anchor;

	schema->dynamic_ref = resolve(compiler, schema, value, place, &anchor);
	if (schema->dynamic_ref == NULL)
		return (int)compiler->error->code;
	if (anchor != NULL && anchor->dynamic)
		schema->dynamic_anchor = anchor->name;
	return 0;
}

static int read_keyword(struct compiler *compiler, struct schema *schema, enum schema_keyword keyword, const struct json *value,
			const struct schema_place *place)
{
	const struct schema_anchor *anchor;
	struct schema *inner = schema_find(compiler->program, value);

	if (check_form(compiler, schema_keywords[keyword].form, value, place) != 0)
		return (int)compiler->error->code;
	switch (keyword) {
	case KEYWORD_REF:
		schema->ref = resolve(compiler, schema, value, place, &anchor);
		return schema->ref == NULL ? (int)compiler->error->code : 0;
	case KEYWORD_DYNAMIC_REF:
		return read_dynamic_reference(compiler, schema, value, place);
	case KEYWORD_DEPENDENCIES:
	case KEYWORD_DEPENDENT_SCHEMAS:
	case KEYWORD_DEPENDENT_REQUIRED:
		return read_properties(compiler, value, place, schema_keywords[keyword].form, &schema->dependent);
	case KEYWORD_PROPERTIES:
		return read_properties(compiler, value, place, FORM_SCHEMA_MAP, &schema->properties);
	case KEYWORD_PATTERN_PROPERTIES:
		return read_properties(compiler, value, place, FORM_PATTERN_MAP, &schema->pattern_properties);
	case KEYWORD_PREFIX_ITEMS:
		schema->prefix_items = read_list(compiler, value);
		return 0;
	case KEYWORD_ITEMS_7:
		if (value->type == JSON_ARRAY)
			schema->prefix_items = read_list(compiler, value);
		else
			schema->items = inner;
		return 0;
	case KEYWORD_ADDITIONAL_ITEMS: /* means something only behind an array of `items` */
		if (json_is(json_get(schema->source, "items"), JSON_ARRAY))
			schema->items = inner;
		return 0;
	case KEYWORD_ITEMS:
		schema->items = inner;
		return 0;
	case KEYWORD_CONTAINS:
		schema->contains = inner;
		return 0;
	case KEYWORD_ADDITIONAL_PROPERTIES:
		schema->additional_properties = inner;
		return 0;
	case KEYWORD_PROPERTY_NAMES:
		schema->property_names = inner;
		return 0;
	case KEYWORD_IF:
		schema->condition = inner;
		return 0;
	case KEYWORD_THEN:
		schema->then = json_get(schema->source, "if") != NULL ? inner : NULL;
		return 0;
	case KEYWORD_ELSE:
		schema->otherwise = json_get(schema->source, "if") != NULL ? inner : NULL;
		return 0;
	case KEYWORD_ALL_OF:
		schema->all_of = read_list(compiler, value);
		return 0;
	case KEYWORD_ANY_OF:
		schema->any_of = read_list(compiler, value);
		return 0;
	case KEYWORD_ONE_OF:
		schema->one_of = read_list(compiler, value);
		return 0;
	case KEYWORD_NOT:
		schema->not = inner;
		return 0;
	case KEYWORD_UNEVALUATED_ITEMS:
		schema->unevaluated_items = inner;
		return 0;
	case KEYWORD_UNEVALUATED_PROPERTIES:
		schema->unevaluated_properties = inner;
		return 0;
	case KEYWORD_TYPE:
		return read_types(compiler, value, place, &schema->types);
	case KEYWORD_CONST:
		schema->constant = value;
		return 0;
	case KEYWORD_ENUM:
		schema->choices = value;
		return 0;
	case KEYWORD_MULTIPLE_OF:
		schema->multiple_of = &value->number;
		return 0;
	case KEYWORD_MAXIMUM:
		schema->maximum = &value->number;
		return 0;
	case KEYWORD_EXCLUSIVE_MAXIMUM:
		schema->exclusive_maximum = &value->number;
		return 0;
	case KEYWORD_MINIMUM:
		schema->minimum = &value->number;
		return 0;
	case KEYWORD_EXCLUSIVE_MINIMUM:
		schema->exclusive_minimum = &value->number;
		return 0;
	case KEYWORD_MAX_LENGTH:
		return read_count(compiler, value, place, &schema->length.most);
	case KEYWORD_MIN_LENGTH:
		return read_count(compiler, value, place, &schema->length.least);
	case KEYWORD_PATTERN:
		schema->pattern_text = value->string.text;
		return read_pattern(compiler, value->string.text, value->string.len, place, &schema->pattern);
	case KEYWORD_MAX_ITEMS:
		return read_count(compiler, value, place, &schema->item_count.most);
	case KEYWORD_MIN_ITEMS:
		return read_count(compiler, value, place, &schema->item_count.least);
	case KEYWORD_UNIQUE_ITEMS:
		schema->unique_items = value->boolean;
		return 0;
	case KEYWORD_MAX_CONTAINS:
		return read_count(compiler, value, place, &schema->contains_count.most);
	case KEYWORD_MIN_CONTAINS:
		return read_count(compiler, value, place, &schema->contains_count.least);
	case KEYWORD_MAX_PROPERTIES:
		return read_count(compiler, value, place, &schema->property_count.most);
	case KEYWORD_MIN_PROPERTIES:
		return read_count(compiler, value, place, &schema->property_count.least);
	case KEYWORD_REQUIRED:
		schema->required = value;
		return 0;
	case KEYWORD_SCHEMA: case KEYWORD_ID: case KEYWORD_ANCHOR: case KEYWORD_DYNAMIC_ANCHOR: case KEYWORD_DEFS: case KEYWORD_DEFINITIONS:
	case KEYWORD_VOCABULARY: case KEYWORD_COMMENT: case KEYWORD_TITLE: case KEYWORD_DESCRIPTION: case KEYWORD_DEFAULT:
	case KEYWORD_DEPRECATED: case KEYWORD_READ_ONLY: case KEYWORD_WRITE_ONLY: case KEYWORD_EXAMPLES: case KEYWORD_FORMAT:
	case KEYWORD_CONTENT_ENCODING: case KEYWORD_CONTENT_MEDIA_TYPE: case KEYWORD_CONTENT_SCHEMA: case KEYWORD_COUNT:
		return 0;
	}
	return 0;
}

static int compile(struct compiler *compiler, struct schema *schema)
{
	static const struct schema_range any = {-1, INFINITY};
	const struct json *source = schema->source;

	schema->length = schema->item_count = schema->property_count = any;
	schema->contains_count = (struct schema_range){1, INFINITY};
	if (source->type == JSON_BOOLEAN) {
		schema->accepts_all = source->boolean;
		schema->accepts_none = !source->boolean;
		return 0;
	}
	for (size_t i = 0; i < source->object.count; i++) {
		const struct json_member *member = &source->object.members[i];
		enum schema_keyword keyword;

		if (find_keyword(schema->resource->dialect, member->name, &keyword) == NULL || (schema->only_ref && keyword != KEYWORD_REF))
			continue;
		if (read_keyword(compiler, schema, keyword, member->value, INSIDE_NAME(schema->place, member->name)) != 0)
			return (int)compiler->error->code;
	}
	return 0;
}

/* ---- Circles ---- */

/* The schemas that this one applies to the same value, one after the other; NULL behind the last. */
static struct schema *applied_at(const struct schema *schema, size_t index, bool *more)
{
	struct schema *const single[] = {schema->ref, schema->not, schema->condition, schema->then, schema->otherwise};
	const struct schema_list *const lists[] = {&schema->all_of, &schema->any_of, &schema->one_of};

	*more = true;
	if (index < COUNT_OF(single))
		return single[index];
	index -= COUNT_OF(single);
	for (size_t i = 0; i < COUNT_OF(lists); i++) {
		if (index < lists[i]->count)
			return lists[i]->schemas[index];
		index -= lists[i]->count;
	}
	if (index < schema->dependent.count)
		return schema->dependent.items[index].schema;
	*more = false;
	return NULL;
}

enum { SEARCH_NEW, SEARCH_OPEN, SEARCH_DONE };

/* Depth first with a stack of our own: a chain of references may be as long as SCHEMA_COUNT_MAX. */
static int refuse_circles_from(struct compiler *compiler, struct schema *start, struct schema **stack)
{
	size_t depth = 0;
	bool more;

	stack[depth++] = start;
	start->search = SEARCH_OPEN;
	while (depth > 0) {
		struct schema *schema = stack[depth - 1], *next = applied_at(schema, schema->children_checked, &more);

		if (!more) {
			schema->search = SEARCH_DONE;
			depth--;
			continue;
		}
		schema->children_checked++;
		if (next == NULL || next->search == SEARCH_DONE)
			continue;
		if (next->search == SEARCH_OPEN)
			return schema_fail(schema->place, ERR_INVALID, compiler->error,
					   "applies itself to the same value again: its references go in a circle");
		next->search = SEARCH_OPEN;
		stack[depth++] = next;
	}
	return 0;
}

static int refuse_circles(struct compiler *compiler)
{
	struct schema **stack = memory_alloc(compiler->program->schema_count * sizeof(struct schema *));
	int code = 0;

	for (struct schema *schema = compiler->program->first; schema != NULL && code == 0; schema = schema->next) {
		if (schema->search == SEARCH_NEW)
			code = refuse_circles_from(compiler, schema, stack);
	}
	free(stack);
	return code;
}

int schema_compile(struct json_schema *program, const struct json *source, const struct json_schema_document *documents, size_t count, bool is_taken,
		   struct error *error)
{
	static const struct schema_place root;
	struct error own;
	struct compiler compiler = {program, &program->arena, documents, count, error != NULL ? error : &own, is_taken};

	*compiler.error = (struct error){0};
	program->root = find_in_document(&compiler, source, BASE_URI, &root, &dialect_2020);
	if (program->root == NULL)
		return (int)compiler.error->code;
	/* The list grows while references bring in more. */
	for (struct schema *schema = program->first; schema != NULL; schema = schema->next) {
		if (compile(&compiler, schema) != 0)
			return (int)compiler.error->code;
	}
	return refuse_circles(&compiler);
}
