/* The adapter of everything that speaks OpenAI's chat completions and has no kind of its own, `transformers serve` included
 * (runtimes.md 2, 8). Pure. Start at read_failure(). */
#include <string.h>

#include "activities/chat_wire.h"
#include "workflow/base/check.h"

enum { STOPS_MAX = 4 }; /* as OpenAI has it */

/* Nothing is sent that nobody asked for: some such servers refuse what they do not know. */
static const struct sampling_field sampling[] = {
	{"temperature", "temperature", NULL},
	{"topP", "top_p", NULL},
	{"topK", "top_k", NULL},
	{"minP", "min_p", NULL},
	{"seed", "seed", NULL},
	{"maxTokens", "max_tokens", NULL},
	{"stop", "stop", NULL, .to = STOPS_MAX},
	{"presencePenalty", "presence_penalty", NULL},
	{"frequencyPenalty", "frequency_penalty", NULL},
	{"repetitionPenalty", "repetition_penalty", NULL},
	{"logitBias", "logit_bias", NULL},
	{"reasoningEffort", "reasoning_effort", NULL},
	{"generationConfig", "generation_config", NULL}, /* transformers: the only way to say top_k, min_p and their like */
	{NULL, NULL, NULL},
};

static struct json *make_request(struct arena *arena, const struct inference_request *request)
{
	struct json *body = chat_make_request(arena, request, sampling);
	const struct json *config = json_get(body, "generation_config");

	if (json_is(config, JSON_OBJECT)) {
		struct bytes text = json_print_arena(config, arena);

		json_set(arena, body, "generation_config", json_text_len(arena, (const char *)text.data, text.len));
	}
	chat_set_schema(arena, body, request);
	return body;
}

/* ---- Reasoning within the text: transformers, and servers that were told of no parser, have no other place for it ---- */

static const char tag_open[] = "<think>", tag_close[] = "</think>";

static void end_tag(struct answer *answer, struct buffer *out, const char *tag)
{
	buffer_add(out, tag, answer->tag_len);
	answer->tag_len = 0;
}

/* Byte by byte, since a tag may come in pieces; what may still become one is held back. Only what stands before all text is reasoning. */
static void split(struct answer *answer, uint8_t c)
{
	bool inside = answer->tags == TAGS_INSIDE;
	const char *tag = inside ? tag_close : tag_open;
	struct buffer *out = inside ? &answer->reasoning : &answer->text;

	if (answer->tags != TAGS_OVER && answer->tag_len > 0 && c != tag[answer->tag_len]) {
		end_tag(answer, out, tag); /* c may begin another one: its first byte stands nowhere else in it */
		if (!inside)
			answer->tags = TAGS_OVER;
	}
	if (answer->tags == TAGS_OVER) {
		buffer_add_char(out, (char)c);
		return;
	}
	if (c == tag[answer->tag_len]) {
		if (tag[++answer->tag_len] == '\0') {
			answer->tag_len = 0;
			answer->tags = inside ? TAGS_OVER : TAGS_INSIDE;
		}
		return;
	}
	buffer_add_char(out, (char)c);
	if (!inside && c != ' ' && c != '\t' && c != '\r' && c != '\n')
		answer->tags = TAGS_OVER;
}

/* Of what was added to the text behind `from`. */
static bool split_reasoning(struct answer *answer, size_t from)
{
	struct bytes all = buffer_bytes(&answer->text);
	struct arena scratch;

	if (answer->tags != TAGS_OVER && all.len > from) {
		arena_init(&scratch);
		struct bytes piece = arena_bytes(&scratch, (struct bytes){all.data + from, all.len - from});
		answer->text.len = from;
		answer->text.data[from] = '\0';
		for (size_t i = 0; i < piece.len; i++)
			split(answer, piece.data[i]);
		arena_close(&scratch);
	}
	if (answer->finish_reason != NULL && answer->tag_len > 0) { /* it was none */
		end_tag(answer, answer->tags == TAGS_INSIDE ? &answer->reasoning : &answer->text, answer->tags == TAGS_INSIDE ? tag_close : tag_open);
		if (answer->tags == TAGS_UNSEEN)
			answer->tags = TAGS_OVER;
	}
	return answer_check_size(answer);
}

/* `transformers serve` has no fingerprint, but answers under "id@revision", whatever was asked: which weights those are is told by nothing else. */
static void keep_revision(struct answer *answer)
{
	if (answer->fingerprint == NULL && answer->model != NULL && strchr(answer->model, '@') != NULL)
		answer->fingerprint = answer->model;
}

static bool read_event(struct answer *answer, const char *name, struct bytes data, bool *token)
{
	size_t from = answer->text.len;
	bool good = chat_read_event(answer, name, data, token) && split_reasoning(answer, from);

	keep_revision(answer);
	return good;
}

static bool read_whole(struct answer *answer, struct bytes body)
{
	bool good = chat_read_whole(answer, body) && split_reasoning(answer, 0);

	keep_revision(answer);
	return good;
}

/* ---- Errors ---- */

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
	.refuse_sampling = chat_refuse_sampling,
	.make_request = make_request,
	.read_event = read_event,
	.read_whole = read_whole,
	.read_failure = read_failure,
	.is_model = is_model,
};
