/* See spent.h. */
#include "workflow/base/spent.h"

#include <string.h>

#include "workflow/base/check.h"

int64_t spent_day_of(int64_t wall_ms)
{
	return wall_ms / SPENT_DAY_MS - (wall_ms % SPENT_DAY_MS < 0);
}

struct json *spent_json(struct arena *arena, const struct spent *spent)
{
	struct json *json = json_object(arena);

	CHECK(spent->runtime == NULL || strlen(spent->runtime) <= SPENT_RUNTIME_LEN_MAX);
	CHECK(spent->tokens >= 0 && spent->us >= 0);
	json_set_text(arena, json, "runtime", spent->runtime);
	json_set_number(arena, json, "tokens", (double)spent->tokens);
	json_set_number(arena, json, "us", (double)spent->us);
	return json;
}

bool spent_read_any(const struct json *json, struct spent *spent)
{
	double tokens = json_get_number(json, "tokens", -1), us = json_get_number(json, "us", -1);

	*spent = (struct spent){.runtime = json_get_text(json, "runtime")};
	if ((spent->runtime != NULL && strlen(spent->runtime) > SPENT_RUNTIME_LEN_MAX) || !(tokens >= 0 && tokens <= (spent->runtime != NULL ? SPENT_TOKENS_MAX : (double)SPENT_SUM_MAX)) || !(us >= 0 && us <= (double)SPENT_US_MAX)) {
		*spent = (struct spent){0};
		return false;
	}
	spent->tokens = (int64_t)tokens;
	spent->us = (int64_t)us;
	return true;
}

bool spent_read(const struct json *json, struct spent *spent)
{
	if (spent_read_any(json, spent) && spent->runtime != NULL)
		return true;
	*spent = (struct spent){0};
	return false;
}

bool spent_is_any(const struct spent *spent)
{
	return spent->runtime != NULL || spent->tokens > 0 || spent->us > 0;
}
