/* JSON Schema, the part that this release validates: type, properties, required, additionalProperties (boolean or schema), items,
 * enum, const, minimum, maximum, minLength, maxLength, minItems, maxItems, $schema, title, description, default, examples.
 * Any other keyword is refused when the definition is registered; the whole of draft-07 and 2020-12 comes with the language
 * issue. Pure. */
#pragma once

#include "workflow/base/json.h"

/* ERR_UNSUPPORTED or ERR_INVALID; the message begins with the JSON pointer of the offending keyword. */
int json_schema_check(const struct json *schema, struct error *error);
/* 0, or ERR_INVALID: "/facts/0/object: expected string, got number". */
int json_schema_validate(const struct json *schema, const struct json *value, struct error *error);
