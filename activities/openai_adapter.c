/* The adapter of everything that speaks OpenAI's chat completions and has no kind of its own, `transformers serve` included
 * (runtimes.md 2, 8). Pure. Start at read_failure(). */
#include <string.h>

#include "activities/chat_wire.h"
#include "workflow/base/check.h"

/* Nothing is sent that nobody asked for: some such servers refuse what they do not know. */
static const struct sampling_field sampling[] = {
	{"temperature", "temperature", NULL},
	{"topP", "top_p", NULL},
	{"topK", "top_k", NULL},
	{"minP", "min_p", NULL},
	{"seed", "seed", NULL},
	{"maxTokens", "max_tokens", NULL},
	{"stop", "stop", NULL},
	{"presencePenalty", "presence_penalty", NULL},
	{"frequencyPenalty", "frequency_penalty", NULL},
	{"repetitionPenalty", "repetition_penalty", NULL},
	{"reasoningEffort", "reasoning_effort", NULL},
	{NULL, NULL, NULL},
};

static struct json *make_request(struct arena *arena, const struct inference_request *request)
{
	struct json *body = chat_make_request(arena, request, sampling);

	chat_set_schema(arena, body, request);
	return body;
}

/* transformers names what it does not take: `Unsupported fields in the request: {'response_format'}` or `Unexpected keys in the
 * request: {…}`. It is asked again without our own extras; a sampling field is the author's, and named to him. */
static void read_failure(struct answer *answer, int status, struct bytes body)
{
	static const struct {
		const char *name;
		unsigned without;
	} extras[] = {{"'response_format'", WITHOUT_SCHEMA}, {"'stream_options'", WITHOUT_STREAM_OPTIONS}};
	struct arena scratch;
	struct peer_error error;
	const char *list = NULL;

	answer_read_failure(answer, status, body);
	if (status != 422)
		return;
	arena_init(&scratch);
	error = peer_error_read(json_parse(&scratch, body, JSON_ROUND_INTEGERS, NULL, NULL), status, &scratch);
	if (error.message != NULL && (strstr(error.message, "Unsupported fields in the request") != NULL ||
				      strstr(error.message, "Unexpected keys in the request") != NULL))
		list = strchr(error.message, '{');
	if (list != NULL) {
		for (size_t i = 0; i < COUNT_OF(extras); i++)
			if (strstr(list, extras[i].name) != NULL)
				answer->left_out |= extras[i].without;
		for (size_t i = 0; sampling[i].ours != NULL; i++) {
			const char *quoted = arena_printf(&scratch, "'%s'", sampling[i].wire);

			if (strstr(list, quoted) == NULL)
				continue;
			answer->left_out = 0;
			answer_fail(answer, FAILURE_CONFIGURATION, "the runtime takes no %s (it answered 422); take %s out of sampling", sampling[i].wire,
				    sampling[i].ours);
			break;
		}
		if (answer->left_out != 0)
			answer_fail(answer, FAILURE_REFUSED, "the runtime takes none of %.200s", list);
	}
	arena_close(&scratch);
}

/* "Qwen/x@<commit>": transformers answers under the same name, and an answer under another one counts for nothing. */
static void read_models(struct bytes body, struct runtime_facts *facts)
{
	const char *at = facts->wanted != NULL ? strrchr(facts->wanted, '@') : NULL;

	chat_read_models(body, facts);
	if (at != NULL)
		facts_set_declared(facts, "B.revision", at + 1, "model of the configuration");
}

/* `transformers serve` names the revision too. */
static bool is_model(const char *asked, const char *answered)
{
	size_t len = strlen(asked);

	return strchr(asked, '@') == NULL && strncmp(asked, answered, len) == 0 && answered[len] == '@';
}

const struct runtime_adapter openai_adapter = {
	.kind = "openai",
	.request_path = CHAT_PATH,
	.probes = {{.path = "/v1/models", .read = read_models}, {.path = "/version", .read = chat_read_version}},
	.bypass = {.why_not = "has no field or path that every server of its kind knows to get past a cache; name the server's own kind"},
	.sampling = sampling,
	.make_request = make_request,
	.read_event = chat_read_event,
	.read_whole = chat_read_whole,
	.read_failure = read_failure,
	.is_model = is_model,
};
