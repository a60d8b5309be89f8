/* From a model's answer to candidate facts: parse, schema, grounding. A candidate that fails a check is kept and marked; an
 * answer that cannot be used yields none (semantics.md 6). Pure, any thread. */
#pragma once

#include "activities/grounding.h"
#include "workflow/base/failure.h"
#include "workflow/base/json.h"

enum {
	CANDIDATES_MAX = 1000,
	CANDIDATES_DEPTH_MAX = 64, /* levels of an answer: facts go into outputs some levels further down, and stay below JSON_DEPTH_MAX */
	QUOTE_LEN_MAX = 16384,
	PROMPT_LEN_MAX = 16 << 20,
};

struct candidates_input {
	struct bytes answer; /* the model's text; a ```json fence around it is taken off, and said so in the checks */
	const struct json *schema; /* what the answer has to match: an object with the array `facts` */
	struct bytes document;
	size_t section_start, section_end;
	const char *document_digest; /* "sha256:…" */
	const char *section_digest;
};

/* FAILURE_NONE and *facts as activity.h describes; FAILURE_SCHEMA_INVALID when the answer is no JSON or has no `facts` array
 * (detail says where); a single bad item is a rejected candidate instead. */
enum failure_class candidates_read(struct arena *arena, const struct candidates_input *input, struct json **facts, char detail[400]);

/* The part of a schema of answers that says what one fact is, NULL: none does. A fact that it refuses is a candidate that is rejected, no bad answer. */
const struct json *candidates_item_schema(const struct json *schema);

/* The prompt: system and user message for one section; the template is named and its digest goes into the statement. */
extern const char extraction_prompt_name[];
struct bytes extraction_prompt_template(void); /* {{section}} and {{schema}} are filled in */
/* A line "[system]" or "[user]" of the template begins a message of that role; what comes before the first one is the user's. A
 * template without {{section}} gets the section as one more message of the user, between lines <section> and </section>. template
 * without data: the built-in one. NULL: a message would be longer than PROMPT_LEN_MAX bytes. */
struct json *extraction_messages(struct arena *arena, struct bytes prompt_template, struct bytes section, const struct json *schema);
