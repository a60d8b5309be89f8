/* JSON Schema: the way in. Pure, any thread. What a schema is compiled to is schema_program.h; how, schema_compile.c; how a value is
 * matched, schema_evaluate.c. */
#include "workflow/language/json_schema.h"

#include <stdlib.h>

#include "workflow/base/check.h"
#include "workflow/language/schema_program.h"

static struct json_schema *compile(const struct json *schema, const struct json_schema_document *documents, size_t document_count, bool is_taken,
				   struct error *error)
{
	struct json_schema *program;

	if (schema == NULL) {
		error_set(error, ERR_INVALID, ": expected a schema (object or boolean), got nothing");
		return NULL;
	}
	program = memory_zero(sizeof(*program));
	arena_init(&program->arena);
	if (schema_compile(program, schema, documents, document_count, is_taken, error) == 0)
		return program;
	json_schema_free(program);
	return NULL;
}

struct json_schema *json_schema_compile(const struct json *schema, const struct json_schema_document *documents, size_t document_count,
					struct error *error)
{
	return compile(schema, documents, document_count, false, error);
}

struct json_schema *json_schema_compile_taken(const struct json *schema, struct error *error)
{
	return compile(schema, NULL, 0, true, error);
}

void json_schema_free(struct json_schema *schema)
{
	if (schema == NULL)
		return;
	for (struct pattern_link *link = schema->patterns; link != NULL; link = link->next)
		pattern_free(link->pattern);
	free(schema->slots);
	arena_close(&schema->arena);
	free(schema);
}

size_t json_schema_size(const struct json_schema *schema)
{
	return sizeof(*schema) + schema->arena.used + schema->slot_count * sizeof(struct schema *) + schema->pattern_bytes;
}

bool json_schema_has_part(const struct json_schema *schema, const struct json *part)
{
	return part != NULL && schema_find(schema, part) != NULL;
}

int json_schema_match_part(const struct json_schema *schema, const struct json *part, const struct json *except, const struct json *value,
			   struct error *error)
{
	const struct schema *start = part == NULL ? schema->root : schema_find(schema, part);

	CHECK(start != NULL);
	CHECK(value != NULL);
	return schema_evaluate(start, except == NULL ? NULL : schema_find(schema, except), value, error);
}

int json_schema_match(const struct json_schema *schema, const struct json *value, struct error *error)
{
	return json_schema_match_part(schema, NULL, NULL, value, error);
}

int json_schema_check(const struct json *schema, struct error *error)
{
	struct error own;
	struct json_schema *program = json_schema_compile(schema, NULL, 0, error != NULL ? error : &own);

	if (program == NULL)
		return (int)(error != NULL ? error : &own)->code;
	json_schema_free(program);
	return 0;
}

int json_schema_validate(const struct json *schema, const struct json *value, struct error *error)
{
	struct error own;
	struct json_schema *program = json_schema_compile(schema, NULL, 0, error != NULL ? error : &own);
	int code;

	if (program == NULL)
		return (int)(error != NULL ? error : &own)->code;
	code = json_schema_match(program, value, error);
	json_schema_free(program);
	return code;
}
