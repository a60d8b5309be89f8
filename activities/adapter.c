/* See adapter.h. */
#include "activities/adapter.h"

#include <stdarg.h>
#include <string.h>

#include "activities/internal.h"
#include "workflow/base/check.h"

static const struct {
	const char *kind;
	const struct runtime_adapter *adapter;
} kinds[] = {
	{"openai", &openai_adapter},
	{"simulator", &openai_adapter}, /* a reprise-sim, which its Server header gives away */
};

const struct runtime_adapter *runtime_adapter_get(const char *kind)
{
	for (size_t i = 0; i < COUNT_OF(kinds); i++)
		if (strcmp(kinds[i].kind, kind) == 0)
			return kinds[i].adapter;
	return NULL;
}

void answer_init(struct answer *answer)
{
	*answer = (struct answer){.prompt_tokens = -1, .completion_tokens = -1};
	arena_init(&answer->arena);
	buffer_init(&answer->text, ACTIVITY_BODY_MAX);
	buffer_init(&answer->reasoning, ACTIVITY_BODY_MAX);
}

void answer_close(struct answer *answer)
{
	buffer_close(&answer->text);
	buffer_close(&answer->reasoning);
	arena_close(&answer->arena);
}

bool answer_fail(struct answer *answer, enum failure_class failure, const char *format, ...)
{
	va_list args;

	answer->failure = failure;
	va_start(args, format);
	detail_print(answer->detail, format, args);
	va_end(args);
	return false;
}
