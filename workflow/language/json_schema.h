/* JSON Schema: draft 2020-12, and draft-07 where `$schema` says so. Pure.
 *
 * `format` and `content*` are annotations, as both drafts have it by default: nothing is checked by them. A keyword that no draft knows
 * means nothing, which is what the specification says. What is refused instead: a `$ref` to a document that is not at hand, another
 * draft, a vocabulary that is required and not known, a pattern that is not ECMA-262, references that go in a circle. Documents at
 * hand are the schema itself, those that the caller adds, and the metaschemas of both drafts, which are made of our own table of
 * keywords (schema_meta.c); nothing is ever fetched. Proof: tests/unit/language/test_json_schema_suite.c.
 *
 * Threads: a compiled schema is never changed, so several threads may match values against it.
 * Start at json_schema_compile() and json_schema_match(). */
#pragma once

#include "workflow/base/json.h"

enum {
	SCHEMA_DEPTH_MAX = JSON_DEPTH_MAX, /* levels of a schema, and of a value */
	SCHEMA_COUNT_MAX = 100000, /* schemas inside one schema and the documents it refers to */
	SCHEMA_RESOURCES_MAX = 1000, /* documents, and parts with an $id of their own */
	SCHEMA_ANCHORS_MAX = 1000, /* in all of them together */
	SCHEMA_URI_LEN_MAX = 2048, /* bytes of an identifier, resolved */
	SCHEMA_PATTERN_BYTES_MAX = 16 << 20, /* of all regular expressions, compiled */
	SCHEMA_CALLS_MAX = 1000, /* schemas that apply one another at one time: levels of the value times references on each */
	SCHEMA_STEPS_MAX = 5000000, /* schemas applied to values in one match, and what is looked at without one, by its size */
};

struct json_schema;

/* A document that schemas may refer to; the URI without fragment. Borrowed. */
struct json_schema_document {
	const char *uri;
	const struct json *schema;
};

/* NULL with ERR_UNSUPPORTED or ERR_INVALID; the message begins with the JSON pointer of the offending keyword. The schema and the
 * documents are borrowed and must outlive what is made. documents may be NULL when there are none. */
struct json_schema *json_schema_compile(const struct json *schema, const struct json_schema_document *documents, size_t document_count,
					struct error *error);
/* The same without what 0.1.0 let through at first: in draft-07 a list of schemas that is empty, in both drafts a name that `required` or a
 * dependency names twice, and a $vocabulary of something else than booleans. For definitions that were taken once, and for their calls. */
struct json_schema *json_schema_compile_taken(const struct json *schema, struct error *error);
void json_schema_free(struct json_schema *schema); /* NULL is allowed */

/* 0; ERR_INVALID: "/facts/0/object: expected string, got number"; ERR_TOO_LARGE: a limit was reached, and its name. */
int json_schema_match(const struct json_schema *schema, const struct json *value, struct error *error);
/* True where a node of the tree that was compiled stands at a place where a schema may stand. NULL is none. */
bool json_schema_has_part(const struct json_schema *schema, const struct json *part);
/* The same with a part of the compiled schema (NULL: the whole). The part `except`, if not NULL, accepts everything. */
int json_schema_match_part(const struct json_schema *schema, const struct json *part, const struct json *except, const struct json *value,
			   struct error *error);

/* Bytes of memory that it takes. */
size_t json_schema_size(const struct json_schema *schema);

/* json_schema_compile() without its result. */
int json_schema_check(const struct json *schema, struct error *error);
/* Compile, match and free: for a schema that is used once. */
int json_schema_validate(const struct json *schema, const struct json *value, struct error *error);
