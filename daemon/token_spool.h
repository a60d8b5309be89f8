/* The texts of attempts as models write them: for people who watch, in memory, outside the journal. An attempt that ends keeps its text until others need the
 * room; what counts is in the journal then. A daemon that dies loses nothing that a new attempt would not begin anew (C82, C83). Thread: loop.
 * New here? Read token_spool_add(), then pump() in token_spool.c. */
#pragma once

#include "activities/activity.h"
#include "daemon/http_server.h"
#include "workflow/base/id.h"

enum {
	TOKEN_ATTEMPT_MAX = 1 << 20, /* bytes of one attempt's text, and of its reasoning; beyond it the front goes */
	TOKEN_SPOOL_MAX = 16 << 20, /* bytes of all; beyond it attempts that have ended go, the oldest first, then what the others have so far */
	TOKEN_ATTEMPTS_MAX = 20 * 1000, /* attempts known at once, for those without a text take room as well */
};

struct token_spool {
	struct list attempts; /* oldest first */
	struct list streams;
	size_t attempt_count, bytes;
	size_t told_count; /* what the streams remember of attempts: no more than one of each for each of them */
};

void token_spool_init(struct token_spool *spool);
void token_spool_close(struct token_spool *spool); /* its streams are closed */

/* From the activities. An attempt begins with its first text; it ends before the activity is closed. */
void token_spool_add(struct token_spool *spool, struct activity *activity, struct bytes text, bool is_reasoning);
void token_spool_end(struct token_spool *spool, struct activity *activity);
/* From the engine: streams of a run that has ended end. */
void token_spool_on_run_ended(struct token_spool *spool, const char *run_id);

/* {"attempts": [{step, attempt, ended, outcome?, offset, text, reasoningOffset?, reasoning?}…]} of a run, of one step unless NULL. offset: bytes that are
 * gone before it. */
struct json *token_spool_json(const struct token_spool *spool, const char *run_id, const char *step, struct arena *arena);
/* Answers the request with a stream (openapi.yaml, watchTokens), which ends with the run. */
void token_spool_stream(struct token_spool *spool, struct request *request, const char *run_id, const char *step, bool run_ended);
