/* What of a JSON Schema a runtime is told (runtimes.md 2). A runtime makes a grammar of a schema, and each takes another subset of it: one
 * wants every property to be required, another knows no `pattern`, a third takes no schema at all. So there is a ladder, and a runtime that
 * refuses one rung with an error is asked again on the next. The answer is held against the whole schema all the same.
 *
 * Pure, any thread. Who climbs down is inference.c; start there at step_down(). */
#pragma once

#include "workflow/base/json.h"

enum schema_rung {
	SCHEMA_FULL,  /* as the definition has it */
	SCHEMA_PLAIN, /* schema_plain() of it */
	SCHEMA_JSON,  /* any JSON object; only the prompt says which */
	SCHEMA_NONE,  /* any text */
	SCHEMA_RUNG_COUNT
};
enum {
	SCHEMA_RUNGS_KEPT_MAX = 16, /* schemas of one configuration whose rung is remembered; the oldest one is forgotten */
	SCHEMA_OPTIONAL_MAX = 4, /* of one object; each doubles its alternatives */
	SCHEMA_PLAIN_LEN_MAX = 256 << 10, /* bytes of a plain schema: alternatives within alternatives multiply */
	SCHEMA_REFUSAL_LEN_MAX = 16 << 10, /* bytes of an error that are looked at */
};
const char *schema_rung_name(enum schema_rung rung); /* "full", "plain", "json", "none" */

/* A copy with the properties in the order in which `required` names them, then the others. Our trees sort members, but a grammar makes the model
 * write them in the schema's order, and what it writes depends on what it wrote before. The copy may only be copied, printed and given to
 * schema_plain(). */
struct json *schema_ordered(struct arena *arena, const struct json *schema);
/* What nearly every runtime that takes schemas can take: type, properties, required, items, enum, const, anyOf and $ref into $defs; objects are
 * closed and all their properties required. One that may be absent makes alternatives of its object, with it and without: a grammar that
 * forces it would make the model invent something. NULL: nothing plainer than the schema itself, or an object has more than
 * SCHEMA_OPTIONAL_MAX such properties. */
struct json *schema_plain(struct arena *arena, const struct json *schema);

/* Does an error (its HTTP status and text) say that the runtime does not take the schema, or the form it was asked for in? By words, since
 * runtimes agree on nothing else. A mistake costs one request for each rung that is left. */
bool schema_is_refused(int status, struct bytes text);

/* Which rung a configuration's runtime took. */
struct schema_rungs {
	struct {
		struct digest schema;
		enum schema_rung rung;
	} kept[SCHEMA_RUNGS_KEPT_MAX];
	size_t count, next;
};
enum schema_rung schema_rungs_get(const struct schema_rungs *rungs, const struct json *schema); /* SCHEMA_FULL: not known */
void schema_rungs_set(struct schema_rungs *rungs, const struct json *schema, enum schema_rung rung);
