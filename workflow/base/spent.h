/* What an attempt used of a runtime: activities tell it, entries say it (`spent`), budgets add it up. Pure. */
#pragma once

#include "workflow/base/json.h"

enum { SPENT_TOKENS_MAX = 1 << 30 }; /* of one attempt; a runtime that tells of more is not believed beyond it */
#define SPENT_US_MAX ((int64_t)1 << 50) /* … and so long */

struct spent {
	const char *runtime; /* as the configuration names it; NULL: nothing was sent */
	int64_t tokens; /* of prompt and answer, as the runtime told; else as far as is known without it */
	int64_t us; /* a slot of the runtime was held */
};

/* {"runtime", "tokens", "us"} */
struct json *spent_json(struct arena *arena, const struct spent *spent);
/* From a member of an entry's data that may be absent. False: none, or not one of ours. runtime is borrowed from it. */
bool spent_read(const struct json *json, struct spent *spent);
