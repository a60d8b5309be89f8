/* The in-toto statement of one extracted fact (provenance.md 2.2 to 2.4). Pure: built from JSON parts that the engine
 * and the activities bring, checked by the same rules that it is built by. */
#pragma once

#include "workflow/base/json.h"

#define STATEMENT_TYPE "https://in-toto.io/Statement/v1"
#define STATEMENT_PREDICATE_TYPE "https://reprise.example/attestation/extracted-fact/v1"
#define STATEMENT_EXTRACTION_TYPE "https://reprise.example/extraction/v1"

/* Everything a statement says, each part already in the form of provenance.md 2.4. Borrowed. */
struct statement_parts {
	const char *subject_name; /* "fact:<predicate>" or NULL for "fact" */
	struct digest subject; /* of the canonical fact, salt included where there is one */
	const struct json *workflow; /* {name, version, digest} */
	const char *step; /* task reference */
	const struct json *source; /* ResourceDescriptor with annotations documentSha256, byteStart, byteEnd */
	const struct json *prompt, *schema; /* {name, digest} */
	const struct json *sampling, *request; /* as sent; {mediaType, digest} */
	const struct json *model; /* {name, weights?, basis} */
	const struct json *configuration; /* {digest, record?} */
	const struct json *reproducibility; /* {class, …} */
	const struct json *runtime; /* {engine, basis, launch?, instance?, host?} */
	const struct json *response; /* {mediaType, digest} */
	const char *finish_reason;
	double prompt_tokens, completion_tokens; /* negative: not reported, left out */
	unsigned fact_index, fact_count;
	const struct json *gate; /* {result: "PASSED" or "FAILED", checks: […]} */
	const struct json *daemon; /* {name, version, digest?} */
	const char *journal, *run_id, *step_id; /* journal: the log's origin */
	unsigned attempt;
	int64_t started_ms, finished_ms, signed_ms; /* wall clock */
	int64_t duration_ms; /* monotonic */
	const struct json *clock; /* {source, synchronized} or NULL */
};

/* The payload: canonical bytes in the arena. Parts that would make a statement that statement_check() refuses are a mistake
 * of ours and stop the process. configuration and reproducibility may be NULL (left out). */
struct bytes statement_build(struct arena *arena, const struct statement_parts *parts);

/* Shape and required fields; the message begins with statement-type, statement-subject, predicate-type, timestamp or
 * statement-field. Accepts statements without configuration and reproducibility ("no record", "unmeasured"). */
int statement_check(const struct json *statement, struct error *error);
/* The part of it that any in-toto statement has to fulfil: type, subjects, and that it names a predicate type. */
int statement_check_in_toto(const struct json *statement, struct error *error);
bool statement_subject_is(const struct json *statement, const struct digest *fact);
bool statement_accepted(const struct json *statement); /* result.gate.result is PASSED */
