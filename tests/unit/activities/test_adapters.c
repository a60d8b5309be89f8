/* The adapters, table by table: what each kind sends, reads, refuses and finds out. Bodies are ours, after runtimes.md. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "activities/adapter.h"
#include "activities/configuration.h"
#include "activities/lines.h"
#include "activities/runtimes.h"
#include "workflow/base/check.h"

static const struct runtime_adapter *const adapters[] = {&openai_adapter, &vllm_adapter, &llamacpp_adapter, &ollama_adapter, &sglang_adapter, &lmstudio_adapter};

static struct arena arena;

static void set_up(void)
{
	arena_init(&arena);
}

static void tear_down(void)
{
	arena_close(&arena);
}

static struct json *parse(const char *text)
{
	struct error error;
	struct json *json = json_parse(&arena, bytes_text(text), JSON_ROUND_INTEGERS, NULL, &error);

	ck_assert_msg(json != NULL, "%s: %s", text, error.message);
	return json;
}

static const char *print(const struct json *json)
{
	return json != NULL ? (const char *)json_print_arena(json, &arena).data : "(none)";
}

/* ---- Requests ---- */

#define WHOLE "{\"temperature\":0.5,\"topP\":0.9,\"topK\":-1,\"seed\":7,\"maxTokens\":64,\"stop\":\"END\",\"presencePenalty\":0,\"frequencyPenalty\":0," \
	      "\"repetitionPenalty\":1.1,\"reasoningEffort\":\"none\"}"
#define HEAD "\"messages\":[{\"content\":\"Hi\",\"role\":\"user\"}],\"model\":\"m\","
#define FORMAT "\"response_format\":{\"json_schema\":{\"name\":\"facts\",\"schema\":{\"type\":\"object\"},\"strict\":true},\"type\":\"json_schema\"},"
#define USAGE "\"stream\":true,\"stream_options\":{\"include_usage\":true},"

static const struct {
	const struct runtime_adapter *adapter;
	const char *request;
} requests[] = {
	{&openai_adapter, "{\"frequency_penalty\":0,\"max_tokens\":64," HEAD "\"presence_penalty\":0,\"reasoning_effort\":\"none\",\"repetition_penalty\":1.1," FORMAT
			  "\"seed\":7,\"stop\":\"END\"," USAGE "\"temperature\":0.5,\"top_k\":-1,\"top_p\":0.9}"},
	{&vllm_adapter, "{\"frequency_penalty\":0,\"max_tokens\":64," HEAD "\"presence_penalty\":0,\"reasoning_effort\":\"none\",\"repetition_penalty\":1.1," FORMAT
			"\"seed\":7,\"stop\":\"END\"," USAGE "\"temperature\":0.5,\"top_k\":0,\"top_p\":0.9}"},
	{&llamacpp_adapter, "{\"cache_prompt\":true,\"frequency_penalty\":0," HEAD "\"n_predict\":64,\"presence_penalty\":0,\"reasoning_effort\":\"none\","
			    "\"repeat_penalty\":1.1," FORMAT "\"seed\":7,\"stop\":[\"END\"]," USAGE "\"temperature\":0.5,\"top_k\":0,\"top_p\":0.9}"},
	{&sglang_adapter, "{\"frequency_penalty\":0,\"max_tokens\":64," HEAD "\"presence_penalty\":0,\"reasoning_effort\":\"none\",\"repetition_penalty\":1.1," FORMAT
			  "\"seed\":7,\"stop\":\"END\"," USAGE "\"temperature\":0.5,\"top_k\":-1,\"top_p\":0.9}"},
	{&lmstudio_adapter, "{\"frequency_penalty\":0,\"max_tokens\":64," HEAD "\"presence_penalty\":0,\"reasoning_effort\":\"none\",\"repeat_penalty\":1.1," FORMAT
			    "\"seed\":7,\"stop\":\"END\"," USAGE "\"temperature\":0.5,\"top_k\":0,\"top_p\":0.9}"},
	{&ollama_adapter, "{\"format\":{\"type\":\"object\"}," HEAD "\"options\":{\"frequency_penalty\":0,\"num_ctx\":4096,\"num_predict\":64,\"presence_penalty\":0,"
			  "\"repeat_penalty\":1.1,\"seed\":7,\"stop\":[\"END\"],\"temperature\":0.5,\"top_k\":0,\"top_p\":0.9},"
			  "\"shift\":false,\"stream\":true,\"think\":false,\"truncate\":false}"},
};

static struct inference_request make(const char *sampling)
{
	return (struct inference_request){.model = "m", .messages = parse("[{\"role\":\"user\",\"content\":\"Hi\"}]"), .schema = parse("{\"type\":\"object\"}"),
					  .schema_name = "facts", .sampling = parse(sampling), .context_length = 4096};
}

/* Each kind sends every field under its own name, and the schema in its own way. */
START_TEST(requests_are_in_the_kind_s_own_words)
{
	struct inference_request request = make(WHOLE);

	ck_assert_str_eq(print(requests[_i].adapter->make_request(&arena, &request)), requests[_i].request);
}
END_TEST

/* Past the cache: each kind says it in its own way, or why it cannot; without a salt nothing of it is in a request. */
START_TEST(caches_are_bypassed)
{
	struct inference_request request = make("{}");

	request.salt = "5a17";
	ck_assert_str_eq(json_get_text(vllm_adapter.make_request(&arena, &request), "cache_salt"), "5a17");
	ck_assert(!json_get_boolean(llamacpp_adapter.make_request(&arena, &request), "cache_prompt", true));
	ck_assert_str_eq(sglang_adapter.bypass.path, "/flush_cache");
	for (size_t i = 0; i < COUNT_OF(adapters); i++) {
		const struct adapter_bypass *bypass = &adapters[i]->bypass;

		ck_assert((bypass->name == NULL) == (bypass->why_not != NULL));
		if (bypass->name == NULL || bypass->path != NULL) /* nothing that a request could say */
			ck_assert_ptr_null(strstr(print(adapters[i]->make_request(&arena, &request)), "5a17"));
	}
	request.salt = NULL;
	ck_assert_ptr_null(json_get(vllm_adapter.make_request(&arena, &request), "cache_salt"));
	ck_assert(json_get_boolean(llamacpp_adapter.make_request(&arena, &request), "cache_prompt", false));
}
END_TEST

/* What a runtime refused to take is left out of the next request. */
START_TEST(requests_go_without)
{
	struct inference_request request = make("{}");
	const struct json *body;

	/* Nor is a cache turned on that the runtime was started without. */
	request.cache_off = true;
	ck_assert(!json_get_boolean(llamacpp_adapter.make_request(&arena, &request), "cache_prompt", true));
	request.without = WITHOUT_STREAM_OPTIONS;
	request.schema = NULL;
	body = openai_adapter.make_request(&arena, &request);
	ck_assert_str_eq(print(body), "{" HEAD "\"stream\":true}");
	request.json_only = true;
	ck_assert_str_eq(print(json_get(vllm_adapter.make_request(&arena, &request), "response_format")), "{\"type\":\"json_object\"}");
	ck_assert_str_eq(json_get_text(ollama_adapter.make_request(&arena, &request), "format"), "json");
}
END_TEST

static const struct {
	const struct runtime_adapter *adapter;
	const char *name, *value;
	const char *why; /* NULL: taken */
} refused[] = {
	{&llamacpp_adapter, "seed", "4294967295", "mean a random one"},
	{&llamacpp_adapter, "seed", "\"-1\"", "mean a random one"},
	{&llamacpp_adapter, "seed", "\"4294967294\"", NULL},
	{&llamacpp_adapter, "samplers", "[\"top_k\",\"mirostat\"]", "knows penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc and temperature"},
	{&llamacpp_adapter, "samplers", "\"typical\"", "knows penalties"},
	{&llamacpp_adapter, "samplers", "[]", NULL},
	{&llamacpp_adapter, "logitBias", "{\"7\":false}", NULL},
	{&llamacpp_adapter, "reasoningEffort", "0.5", "takes a word"},
	{&llamacpp_adapter, "reasoningEffort", "\"deep\"", NULL},
	{&llamacpp_adapter, "minTokens", "1", "has no such field"},
	{&lmstudio_adapter, "seed", "2147483648", "from 0 to 2147483647"},
	{&lmstudio_adapter, "minP", "0.1", "has no such field"},
	{&lmstudio_adapter, "logitBias", "{\"7\":false}", "takes numbers alone"},
	{&ollama_adapter, "seed", "-1", "means a random one"},
	{&ollama_adapter, "reasoningEffort", "\"minimal\"", "takes none, low"},
	{&ollama_adapter, "reasoningEffort", "0.5", "takes none, low"},
	{&ollama_adapter, "reasoningEffort", "\"max\"", NULL},
	{&ollama_adapter, "logitBias", "{}", "has no such field"},
	{&vllm_adapter, "seed", "-1", "takes -1 for a random seed"},
	{&vllm_adapter, "seed", "-2", NULL},
	{&vllm_adapter, "topK", "-1", NULL},
	{&vllm_adapter, "temperature", "2.1", "takes numbers from 0 to 2"},
	{&vllm_adapter, "topP", "0", "takes numbers above 0 and up to 1"},
	{&vllm_adapter, "presencePenalty", "-2", NULL},
	{&vllm_adapter, "presencePenalty", "-2.1", "takes numbers from -2 to 2"},
	{&vllm_adapter, "reasoningEffort", "\"xhigh\"", NULL},
	{&vllm_adapter, "reasoningEffort", "\"deep\"", "takes none, minimal, low, medium, high, xhigh or max"},
	{&vllm_adapter, "typicalP", "1", "has no such field"},
	{&sglang_adapter, "repetitionPenalty", "2.1", "takes numbers above 0 and up to 2"},
	{&sglang_adapter, "reasoningEffort", "0.5", NULL},
	{&sglang_adapter, "reasoningEffort", "\"deep\"", "takes none, minimal"},
	{&openai_adapter, "stop", "[\"1\",\"2\",\"3\",\"4\"]", NULL},
	{&openai_adapter, "stop", "[\"1\",\"2\",\"3\",\"4\",\"5\"]", "takes at most 4 of them"},
	{&vllm_adapter, "stop", "[\"1\",\"2\",\"3\",\"4\",\"5\"]", NULL},
	{&openai_adapter, "logitBias", "{\"7\":false}", "takes numbers alone"},
};

/* A kind's fields are refused by name where it has none, and by value where a value cannot be. */
START_TEST(sampling_is_refused_by_name)
{
	struct sampling_fault fault;

	ck_assert_ptr_null(adapter_sampling_field(&lmstudio_adapter, "minP"));
	for (size_t i = 0; i < COUNT_OF(adapters); i++) {
		ck_assert(!adapter_check_sampling(adapters[i], "top_p", parse("1"), &fault));
		ck_assert_str_eq(fault.why, "has no such field");
		ck_assert_ptr_nonnull(adapter_sampling_field(adapters[i], "seed"));
	}
	for (size_t i = 0; i < COUNT_OF(refused); i++) {
		const struct json *value = parse(refused[i].value);

		ck_assert_msg(sampling_check(sampling_rule_find(refused[i].name), value, NULL, &fault), "%s %s: %s", refused[i].name, refused[i].value, fault.why);
		ck_assert_msg(adapter_check_sampling(refused[i].adapter, refused[i].name, value, &fault) == (refused[i].why == NULL), "%s: %s %s", refused[i].adapter->kind,
			      refused[i].name, refused[i].value);
		if (refused[i].why != NULL)
			ck_assert_msg(strstr(fault.why, refused[i].why) != NULL, "%s", fault.why);
	}
}
END_TEST

/* Every field of every kind is one of ours, once; what is sent unasked is a value that may be asked for (no limit of tokens apart), and a trial of it is well formed. */
START_TEST(tables_of_kinds_are_sound)
{
	struct sampling_fault fault;

	for (size_t i = 0; i < COUNT_OF(adapters); i++) {
		struct inference_request request = make("{}");
		struct json *all = json_object(&arena);
		const struct json *body;

		for (const struct sampling_field *field = adapters[i]->sampling; field->ours != NULL; field++) {
			struct json *unset = sampling_field_unset(&arena, field);
			bool unlimited = strcmp(field->ours, "maxTokens") == 0 && unset != NULL && unset->number == -1;

			ck_assert_msg(sampling_rule_find(field->ours) != NULL, "%s", field->ours);
			ck_assert_ptr_eq(adapter_sampling_field(adapters[i], field->ours), field);
			ck_assert_int_eq(unset != NULL, field->unset != NULL);
			if (unset != NULL && !unlimited) {
				ck_assert_msg(sampling_check(sampling_rule_find(field->ours), unset, NULL, &fault), "%s: %s", field->ours, fault.why);
				ck_assert_msg(adapter_check_sampling(adapters[i], field->ours, unset, &fault), "%s: %s", field->ours, fault.why);
			}
			json_set(&arena, all, field->ours, unset != NULL ? unset : json_array(&arena));
		}
		request.sampling = all;
		body = adapters[i]->make_request(&arena, &request);
		if (adapters[i] == &ollama_adapter) {
			ck_assert_ptr_nonnull(json_get(body, "think"));
			body = json_get(body, "options");
		}
		for (const struct sampling_field *field = adapters[i]->sampling; field->ours != NULL; field++)
			ck_assert_msg(json_get(body, field->wire) != NULL || strcmp(field->wire, "think") == 0, "%s: %s", adapters[i]->kind, field->wire);
	}
}
END_TEST

static const struct {
	const struct runtime_adapter *adapter;
	const char *sampling, *sent;
} forms[] = {
	{&vllm_adapter, "{\"badWords\":\"x\",\"topK\":-1}", "{\"bad_words\":[\"x\"],\"top_k\":0}"},
	{&llamacpp_adapter, "{\"samplers\":\"top_k\",\"stop\":\"x\",\"logitBias\":{\"7\":false}}", "{\"logit_bias\":{\"7\":false},\"samplers\":[\"top_k\"],\"stop\":[\"x\"]}"},
	{&sglang_adapter, "{\"topK\":0,\"stopRegex\":\"a+\"}", "{\"stop_regex\":\"a+\",\"top_k\":-1}"},
	{&openai_adapter, "{\"generationConfig\":{\"top_k\":5,\"do_sample\":true}}", "{\"generation_config\":\"{\\\"do_sample\\\":true,\\\"top_k\\\":5}\"}"},
	{&ollama_adapter, "{\"stop\":\"x\"}", "{\"stop\":[\"x\"]}"},
};

/* Where a runtime reads another form than ours, it gets that one. */
START_TEST(values_are_in_the_kind_s_own_form)
{
	struct inference_request request = make(forms[_i].sampling);
	const struct json *body, *sent = parse(forms[_i].sent);

	body = forms[_i].adapter->make_request(&arena, &request);
	if (forms[_i].adapter == &ollama_adapter)
		body = json_get(body, "options");
	for (size_t i = 0; i < json_count(sent); i++)
		ck_assert_str_eq(print(json_get(body, sent->object.members[i].name)), print(sent->object.members[i].value));
}
END_TEST

/* A template's arguments are there when its tokens are counted, too. */
START_TEST(template_arguments_count)
{
	struct inference_request request = make("{\"templateArguments\":{\"enable_thinking\":false}}");

	ck_assert_str_eq(print(json_get(vllm_adapter.count[0].make_body(&arena, &request, NULL), "chat_template_kwargs")), "{\"enable_thinking\":false}");
	ck_assert_str_eq(print(json_get(llamacpp_adapter.count[0].make_body(&arena, &request, NULL), "chat_template_kwargs")), "{\"enable_thinking\":false}");
}
END_TEST

/* ---- Answers ---- */

#define CHUNK(more) "{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{" more "},\"finish_reason\":null}]}"
#define STOP "{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}"

static const struct {
	const struct runtime_adapter *adapter;
	const char *events[7];
	const char *text, *reasoning, *finish;
	double prompt, completion, cached;
	bool ended, loaded;
	const char *timings;
} streams[] = {
	{&vllm_adapter, {CHUNK("\"role\":\"assistant\",\"content\":\"\""), CHUNK("\"reasoning\":\"Look\""), CHUNK("\"content\":\"{}\""), STOP,
	 "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"total_tokens\":31,\"completion_tokens\":22,\"prompt_tokens_details\":{\"cached_tokens\":4}},\"system_fingerprint\":\"vllm-1\"}",
	 "[DONE]"}, "{}", "Look", "stop", 9, 22, 4, true, false, NULL},
	{&vllm_adapter, {CHUNK("\"content\":\"{}\""), STOP}, "{}", "", "stop", -1, -1, -1, false, false, NULL},
	{&llamacpp_adapter, {CHUNK("\"reasoning_content\":\"Hm\""), CHUNK("\"content\":\"{}\""), STOP,
	 "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2},\"timings\":{\"cache_n\":5,\"prompt_n\":4,\"predicted_n\":2}}", "[DONE]"},
	 "{}", "Hm", "stop", 9, 2, 5, true, false, "{\"cache_n\":5,\"predicted_n\":2,\"prompt_n\":4}"},
	{&sglang_adapter, {CHUNK("\"content\":\"{}\""), STOP, "{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,\"reasoning_tokens\":0}}", "[DONE]"},
	 "{}", "", "stop", 3, 1, -1, true, false, NULL},
	{&lmstudio_adapter, {CHUNK("\"content\":\"{}\""), STOP, "{\"choices\":[],\"stats\":{\"model_load_time_seconds\":2.5}}", "[DONE]"}, "{}", "", "stop", -1, -1, -1, true, true,
	 "{\"model_load_time_seconds\":2.5}"},
	{&lmstudio_adapter, {CHUNK("\"content\":\"{}\""), STOP, "{\"choices\":[],\"stats\":{\"stop_reason\":\"userStopped\"}}", "[DONE]"}, "{}", "", "userStopped", -1, -1, -1, true, false,
	 "{\"stop_reason\":\"userStopped\"}"},
	{&lmstudio_adapter, {CHUNK("\"content\":\"{}\""), STOP, "{\"choices\":[],\"stats\":{\"stop_reason\":\"eosFound\"}}", "[DONE]"}, "{}", "", "stop", -1, -1, -1, true, false,
	 "{\"stop_reason\":\"eosFound\"}"},
	{&openai_adapter, {CHUNK("\"role\":\"assistant\""), CHUNK("\"content\":\"{}\""),
	 "{\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}"},
	 "{}", "", "stop", 1, 2, -1, false, false, NULL},
	{&ollama_adapter, {"{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"Hm\"},\"done\":false}",
	 "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"{}\"},\"done\":false}",
	 "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"load_duration\":2000000000,\"prompt_eval_count\":11,\"eval_count\":3}"},
	 "{}", "Hm", "stop", 11, 3, -1, true, true, "{\"load_duration\":2000000000}"},
	{&ollama_adapter, {"{\"model\":\"m\",\"message\":{\"content\":\"{}\"},\"done\":true,\"done_reason\":\"length\",\"load_duration\":20}"}, "{}", "", "length", -1, -1, -1, true, false,
	 "{\"load_duration\":20}"},
};

/* Text, reasoning under its names, usage, timings and the end mark of each kind. */
START_TEST(streams_are_read)
{
	struct answer answer;
	bool token;

	answer_init(&answer);
	for (size_t i = 0; streams[_i].events[i] != NULL; i++)
		ck_assert_msg(streams[_i].adapter->read_event(&answer, "", bytes_text(streams[_i].events[i]), &token), "%s", answer.detail);
	ck_assert_str_eq(buffer_text(&answer.text), streams[_i].text);
	ck_assert_str_eq(buffer_text(&answer.reasoning), streams[_i].reasoning);
	ck_assert_str_eq(answer.finish_reason, streams[_i].finish);
	ck_assert_str_eq(answer.model, "m");
	ck_assert_double_eq(answer.prompt_tokens, streams[_i].prompt);
	ck_assert_double_eq(answer.completion_tokens, streams[_i].completion);
	ck_assert_double_eq(answer.cached_tokens, streams[_i].cached);
	ck_assert_int_eq(answer.ended, streams[_i].ended);
	ck_assert_int_eq(answer.loaded, streams[_i].loaded);
	ck_assert_str_eq(print(answer.timings), streams[_i].timings != NULL ? streams[_i].timings : "(none)");
	ck_assert_int_eq(streams[_i].adapter->has_end_marker, streams[_i].adapter != &openai_adapter);
	answer_close(&answer);
}
END_TEST

static const struct {
	const char *content, *text, *reasoning;
} thoughts[] = {
	{"<think>Hm</think>{}", "{}", "Hm"},
	{"\n <think>Hm\n</think>\n\n{}", "\n \n\n{}", "Hm\n"},
	{"<think></think>{}", "{}", ""},
	{"<think>a</b></thin</</think>{\"a\":\"</think>\"}", "{\"a\":\"</think>\"}", "a</b></thin</"},
	{"<think>cut off", "", "cut off"},
	{"<think>cut off</thi", "", "cut off</thi"},
	{"{} <think>no</think>", "{} <think>no</think>", ""},
	{"<thin <think>no", "<thin <think>no", ""},
	{"<<think>no", "<<think>no", ""},
	{"<thi", "<thi", ""},
	{"<", "<", ""},
	{"", "", ""},
};

/* Reasoning that stands between tags before the text is none of the text, however it is cut into pieces; within the text such tags are text. Other kinds have
 * members for it. */
START_TEST(thoughts_are_no_text)
{
	const char *content = thoughts[_i].content;
	struct answer answer;
	bool token;

	for (size_t step = 1; step <= strlen(content) + 1; step++) {
		answer_init(&answer);
		for (size_t at = 0; at < strlen(content); at += step) {
			struct json *chunk = parse("{\"choices\":[{\"index\":0,\"delta\":{}}]}");

			json_set(&arena, json_get(json_at(json_get(chunk, "choices"), 0), "delta"), "content",
				 json_text_len(&arena, content + at, strlen(content) - at < step ? strlen(content) - at : step));
			ck_assert(openai_adapter.read_event(&answer, "", json_print_arena(chunk, &arena), &token));
			ck_assert(token);
		}
		ck_assert(openai_adapter.read_event(&answer, "", bytes_text(STOP), &token));
		ck_assert_str_eq(buffer_text(&answer.text), thoughts[_i].text);
		ck_assert_uint_eq(answer.text.len, strlen(thoughts[_i].text));
		ck_assert_str_eq(buffer_text(&answer.reasoning), thoughts[_i].reasoning);
		answer_close(&answer);
	}
	for (size_t other = 0; other < 2; other++) {
		struct json *whole = parse("{\"choices\":[{\"index\":0,\"message\":{},\"finish_reason\":\"stop\"}]}");

		json_set_text(&arena, json_get(json_at(json_get(whole, "choices"), 0), "message"), "content", content);
		answer_init(&answer);
		ck_assert((other == 0 ? openai_adapter : vllm_adapter).read_whole(&answer, json_print_arena(whole, &arena)));
		ck_assert_str_eq(buffer_text(&answer.text), other == 0 ? thoughts[_i].text : content);
		answer_close(&answer);
	}
}
END_TEST

/* A peer may tell of itself as much as it likes: of names, of timings and of what was in force as much is kept as has room, and what was left out is told. */
START_TEST(what_is_told_is_bounded)
{
	struct buffer event;
	struct answer answer;
	bool token;

	for (size_t way = 0; way < 2; way++) {
		buffer_init(&event, 1 << 20);
		buffer_add_text(&event, way == 0 ? "{\"choices\":[],\"timings\":{" : "{\"choices\":[],\"__verbose\":{\"generation_settings\":{");
		for (size_t i = 0; i < 20; i++)
			buffer_printf(&event, "\"m%02zu\":\"%*zu\",", i, ANSWER_MEMBER_MAX - 2, i); /* with its quotes just as long as may be */
		buffer_printf(&event, "\"a\":\"%*d\",\"cache_n\":7}%s}", ANSWER_MEMBER_MAX - 1, 1, way == 0 ? "" : "}");
		answer_init(&answer);
		ck_assert(runtime_adapter_get("llamacpp")->read_event(&answer, "", buffer_bytes(&event), &token));
		const struct json *kept = way == 0 ? answer.timings : answer.effective;
		ck_assert_uint_eq(json_get(kept, "m00")->string.len, ANSWER_MEMBER_MAX - 2);
		ck_assert_ptr_nonnull(strstr(json_get_text(kept, "a"), "more than 4096 bytes (ANSWER_MEMBER_MAX), told from others by "));
		ck_assert_double_eq(json_get_number(kept, "cache_n", 0), 7);
		ck_assert_ptr_null(json_get(kept, "m19"));
		ck_assert_double_eq(json_get_number(kept, "leftOut", 0), 23 - (double)json_count(kept));
		ck_assert_uint_le(strlen(print(kept)), ANSWER_TOLD_MAX + 1000);
		ck_assert_uint_ge(strlen(print(kept)), ANSWER_TOLD_MAX - 2 * ANSWER_MEMBER_MAX);
		answer_close(&answer);
		buffer_close(&event);
	}
	buffer_init(&event, 1 << 20);
	buffer_printf(&event, "{\"model\":\"%*d\",\"system_fingerprint\":\"%*d\",\"choices\":[{\"index\":0,\"finish_reason\":\"%*d\",\"delta\":{}}]}", ANSWER_NAME_MAX, 1, ANSWER_NAME_MAX + 1, 2, 100000, 3);
	answer_init(&answer);
	ck_assert(runtime_adapter_get("openai")->read_event(&answer, "", buffer_bytes(&event), &token));
	ck_assert(runtime_adapter_get("openai")->read_event(&answer, "", buffer_bytes(&event), &token));
	ck_assert_uint_eq(strlen(answer.model), ANSWER_NAME_MAX);
	ck_assert_ptr_null(answer.other_model);
	ck_assert_ptr_nonnull(strstr(answer.fingerprint, "more than 1024 bytes (ANSWER_NAME_MAX), told from others by "));
	ck_assert_ptr_nonnull(strstr(answer.finish_reason, "(ANSWER_NAME_MAX)"));
	ck_assert_str_ne(answer.fingerprint, answer.finish_reason);
	answer_close(&answer);
	buffer_close(&event);
}
END_TEST

/* What is in force is told by a verbose llama.cpp, a cut prompt too. */
START_TEST(effective_sampling_is_read)
{
	struct answer answer;

	answer_init(&answer);
	ck_assert(llamacpp_adapter.read_whole(&answer, bytes_text("{\"choices\":[{\"index\":0,\"message\":{}}],\"__verbose\":{\"truncated\":true,\"generation_settings\":{\"seed\":3}}}")));
	ck_assert_str_eq(print(answer.effective), "{\"seed\":3}");
	ck_assert(answer.cut_prompt && answer.ended);
	answer_close(&answer);
}
END_TEST

/* llama.cpp tells which of a trial's values are in force: those that it does not, or tells otherwise, it took no notice of. A server that tells none
 * says nothing of any. */
START_TEST(a_trial_finds_what_is_ignored)
{
	const struct adapter_probe *probe = NULL;
	struct runtime_facts facts = {.arena = &arena};
	struct json *body, *told = json_object(&arena);

	ck_assert(llamacpp_adapter.finds_ignored);
	for (size_t i = 0; i < ADAPTER_PROBES_MAX; i++)
		if (llamacpp_adapter.probes[i].generates)
			probe = &llamacpp_adapter.probes[i];
	ck_assert_ptr_nonnull(probe);
	body = probe->make_body(&facts);
	ck_assert_double_eq(json_get_number(body, "n_predict", 0), 1);
	for (const struct sampling_field *field = llamacpp_adapter.sampling; field->ours != NULL; field++) {
		/* No value of the trial is one that is sent unasked, or is in force anyway. */
		if (field->unset != NULL && json_get(body, field->wire) != NULL)
			ck_assert_msg(!sampling_is_in_force(json_get(body, field->wire), sampling_field_unset(&arena, field)), "%s", field->wire);
		ck_assert_msg((field->unset != NULL) == (json_get(body, field->wire) != NULL), "%s", field->wire);
	}
	probe->read(bytes_text("{\"error\":\"no\"}"), &facts);
	ck_assert_ptr_null(facts.ignored);

	json_set(&arena, told, "generation_settings", json_copy(&arena, body));
	probe->read(json_print_arena(told, &arena), &facts);
	ck_assert_str_eq(print(facts.ignored), "[]");
	json_set_number(&arena, json_get(told, "generation_settings"), "temperature", (double)0.77f);
	json_set_number(&arena, json_get(told, "generation_settings"), "top_k", 40);
	json_remove(json_get(told, "generation_settings"), "top_n_sigma");
	json_set(&arena, json_get(told, "generation_settings"), "samplers", parse("[\"temperature\",\"top_k\"]"));
	probe->read(json_print_arena(told, &arena), &facts);
	ck_assert_str_eq(print(facts.ignored), "[\"topK\",\"topNSigma\",\"samplers\"]");
}
END_TEST

/* JSON that comes with status 200 and is no answer is not one without words. */
START_TEST(an_answer_has_a_message)
{
	static const char *const bodies[] = {"{}", "{\"status\":\"ok\"}", "{\"choices\":[]}", "{\"choices\":{}}", "{\"choices\":[{\"index\":1,\"message\":{\"content\":\"x\"}}]}",
					     "{\"choices\":[{\"index\":0,\"message\":\"x\"}]}", "{\"object\":\"list\",\"data\":[]}"};
	struct answer answer;

	for (size_t i = 0; i < COUNT_OF(bodies); i++)
		for (size_t k = 0; k < COUNT_OF(adapters); k++) {
			answer_init(&answer);
			ck_assert_msg(!adapters[k]->read_whole(&answer, bytes_text(bodies[i])), "%s: %s", adapters[k]->kind, bodies[i]);
			ck_assert_int_eq(answer.failure, FAILURE_RUNTIME_ERROR);
			ck_assert_ptr_nonnull(strstr(answer.detail, "see its url and kind"));
			answer_close(&answer);
		}
	/* One without words is: a model may have nothing to say. */
	answer_init(&answer);
	ck_assert(openai_adapter.read_whole(&answer, bytes_text("{\"choices\":[{\"message\":{\"content\":null},\"finish_reason\":\"stop\"}]}")));
	ck_assert(answer.ended);
	answer_close(&answer);
	answer_init(&answer);
	ck_assert(ollama_adapter.read_whole(&answer, bytes_text("{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"}")));
	answer_close(&answer);
}
END_TEST

/* ---- Errors ---- */

static const struct {
	const struct runtime_adapter *adapter;
	int status; /* 200: inside of a stream */
	const char *body;
	enum failure_class failure;
	const char *detail;
} errors[] = {
	{&vllm_adapter, 400, "{\"error\":{\"message\":\"temperature must be in [0, 2], got 3.0.\",\"type\":\"BadRequestError\",\"param\":\"temperature\",\"code\":400}}", FAILURE_REFUSED, "got 3.0"},
	{&vllm_adapter, 400, "{\"error\":{\"message\":\"You passed 9000 input tokens. However, the model's context length is only 8192 tokens\",\"type\":\"BadRequestError\",\"param\":\"input_tokens\",\"code\":400}}", FAILURE_REFUSED, "send smaller sections"},
	{&vllm_adapter, 401, "{\"error\":\"Unauthorized\"}", FAILURE_REFUSED, "see the runtime's apiKey"},
	{&vllm_adapter, 404, "{\"error\":{\"message\":\"The model `x` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}", FAILURE_WRONG_MODEL, "does not exist"},
	{&vllm_adapter, 422, "{\"error\":{\"message\":\"no\",\"type\":\"UnprocessableEntityError\",\"param\":null,\"code\":422}}", FAILURE_REFUSED, "422"},
	{&vllm_adapter, 500, "{\"error\":{\"message\":\"EngineDeadError\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}", FAILURE_UNREACHABLE, "EngineDead"},
	{&vllm_adapter, 500, "{\"error\":{\"message\":\"CUDA out of memory. Tried to allocate\",\"type\":\"InternalServerError\",\"code\":500}}", FAILURE_OUT_OF_MEMORY, "out of memory"},
	{&vllm_adapter, 501, "{\"error\":{\"message\":\"no\",\"type\":\"NotImplementedError\",\"code\":501}}", FAILURE_REFUSED, "501"},
	{&vllm_adapter, 200, "{\"error\":{\"message\":\"generation failed\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}", FAILURE_RUNTIME_ERROR, "in the middle"},
	{&llamacpp_adapter, 400, "{\"error\":{\"code\":400,\"message\":\"request (5945 tokens) exceeds the available context size (4096 tokens), try increasing it\",\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":5945,\"n_ctx\":4096}}", FAILURE_REFUSED, "smaller sections"},
	{&llamacpp_adapter, 503, "{\"error\":{\"code\":503,\"message\":\"Loading model\",\"type\":\"unavailable_error\"}}", FAILURE_UNREACHABLE, "Loading model"},
	{&llamacpp_adapter, 501, "{\"error\":{\"code\":501,\"message\":\"This server does not support it\",\"type\":\"not_supported_error\"}}", FAILURE_REFUSED, "501"},
	{&llamacpp_adapter, 500, "{\"error\":{\"code\":500,\"message\":\"failed to allocate CUDA0 buffer\",\"type\":\"server_error\"}}", FAILURE_OUT_OF_MEMORY, "allocate"},
	{&llamacpp_adapter, 500, "not json", FAILURE_RUNTIME_ERROR, "500: not json"},
	{&llamacpp_adapter, 403, "{\"error\":{\"code\":403,\"message\":\"no\",\"type\":\"permission_error\"}}", FAILURE_REFUSED, "apiKey"},
	{&sglang_adapter, 400, "{\"object\":\"error\",\"message\":\"Requested token count exceeds the model's maximum context length of 4096 tokens.\",\"type\":\"BadRequestError\",\"param\":null,\"code\":400}", FAILURE_REFUSED, "smaller sections"},
	{&sglang_adapter, 500, "{\"object\":\"error\",\"message\":\"boom\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}", FAILURE_RUNTIME_ERROR, "boom"},
	{&sglang_adapter, 200, "{\"object\":\"error\",\"message\":\"boom\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}", FAILURE_RUNTIME_ERROR, "boom"},
	{&sglang_adapter, 200, "{\"error\":{\"message\":\"shutting down\",\"code\":503}}", FAILURE_UNREACHABLE, "shutting down"},
	{&ollama_adapter, 404, "{\"error\":\"model 'x' not found\"}", FAILURE_WRONG_MODEL, "not found"},
	{&ollama_adapter, 404, "{\"error\":\"model \\\"x\\\" not found, try pulling it first\"}", FAILURE_WRONG_MODEL, "pulling"},
	{&ollama_adapter, 400, "{\"error\":\"option \\\"seed\\\" must be of type integer\"}", FAILURE_REFUSED, "seed"},
	{&ollama_adapter, 499, "{\"error\":\"request canceled\"}", FAILURE_RUNTIME_ERROR, "499"},
	{&ollama_adapter, 500, "{\"error\":\"model requires more system memory (9 GiB) than is available\"}", FAILURE_OUT_OF_MEMORY, "memory"},
	{&ollama_adapter, 503, "{\"error\":\"server busy, please try again.  maximum pending requests exceeded\"}", FAILURE_RATE_LIMITED, "busy"},
	{&ollama_adapter, 200, "{\"error\":\"an error was encountered while running the model\"}", FAILURE_RUNTIME_ERROR, "in the middle"},
	{&ollama_adapter, 200, "{\"model\":\"m\",\"done\":true,\"done_reason\":\"unload\"}", FAILURE_RUNTIME_ERROR, "unload"},
	{&ollama_adapter, 200, "[", FAILURE_RUNTIME_ERROR, "not JSON as agreed"},
	{&ollama_adapter, 200, "[]", FAILURE_RUNTIME_ERROR, "no object"},
	{&lmstudio_adapter, 404, "{\"error\":{\"message\":\"No models loaded. Please load a model in the developer page\",\"type\":\"invalid_request_error\",\"param\":\"model\",\"code\":null}}", FAILURE_WRONG_MODEL, "No models"},
	{&lmstudio_adapter, 200, "{\"error\":\"Unexpected endpoint or method. (POST /v1/x)\"}", FAILURE_REFUSED, "Unexpected endpoint"},
	{&lmstudio_adapter, 400, "{\"error\":\"The number of tokens to keep from the initial prompt is greater than the context length\"}", FAILURE_REFUSED, "smaller sections"},
	{&lmstudio_adapter, 200, "{\"error\":{\"message\":\"Trying to keep the first 9 tokens when context the overflows\"}}", FAILURE_REFUSED, "smaller sections"},
	{&lmstudio_adapter, 500, "{\"error\":{\"message\":\"Model loading was stopped due to insufficient system resources\",\"type\":\"internal_error\"}}", FAILURE_OUT_OF_MEMORY, "resources"},
	{&lmstudio_adapter, 200, "{\"error\":{\"message\":\"boom\",\"type\":\"invalid_request\"}}", FAILURE_REFUSED, "boom"},
	{&vllm_adapter, 400, "{\"error\":{\"message\":\"You passed 90000 input characters\",\"type\":\"BadRequestError\",\"param\":\"input_text\",\"code\":400}}", FAILURE_REFUSED, "smaller sections"},
	{&lmstudio_adapter, 400, "{\"error\":\"Model is unloaded.\"}", FAILURE_RUNTIME_ERROR, "unloaded"},
	{&openai_adapter, 429, "{\"error\":{\"message\":\"slow down\"}}", FAILURE_RATE_LIMITED, "slow down"},
	{&openai_adapter, 404, "{\"error\":{\"message\":\"no\",\"code\":\"model_not_found\"}}", FAILURE_WRONG_MODEL, "no"},
	{&openai_adapter, 404, "{\"detail\":\"Not Found\"}", FAILURE_REFUSED, "Not Found"},
	{&openai_adapter, 408, "", FAILURE_TIMED_OUT, "408"},
	{&openai_adapter, 504, "<html>", FAILURE_TIMED_OUT, "504: <html>"},
	{&openai_adapter, 502, "", FAILURE_UNREACHABLE, "502"},
	{&openai_adapter, 200, "{\"error\":\"text\"}", FAILURE_RUNTIME_ERROR, "text"},
	{&openai_adapter, 422, "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"bad\",\"input\":\"the pump ran out of memory\"}]}", FAILURE_REFUSED, "ran out of memory"},
	{&vllm_adapter, 400, "{\"error\":{\"message\":\"1 validation error: {'input': 'server busy, out of memory'}\",\"type\":\"Bad Request\",\"code\":400}}", FAILURE_REFUSED, "validation"},
	{&vllm_adapter, 400, "{\"error\":{\"message\":\"[{'type': 'missing', 'input': 'EngineDead, out of memory'}]\",\"type\":\"BadRequestError\",\"code\":400}}", FAILURE_REFUSED, "missing"},
	{&openai_adapter, 422, "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"bad\"}]}", FAILURE_REFUSED, "\"msg\":\"bad\""},
	{&openai_adapter, 422, "{\"detail\":\"Unsupported fields in the request: {'response_format', 'stream_options'}\"}", FAILURE_REFUSED, "takes none of"},
	{&openai_adapter, 422, "{\"detail\":\"Unexpected keys in the request: {'top_k'}\"}", FAILURE_CONFIGURATION, "take topK out of sampling"},
};

/* Every form of error, and one taxonomy. */
START_TEST(errors_have_one_taxonomy)
{
	struct answer answer;
	bool token;

	answer_init(&answer);
	if (errors[_i].status == 200)
		ck_assert(!errors[_i].adapter->read_event(&answer, "", bytes_text(errors[_i].body), &token));
	else
		errors[_i].adapter->read_failure(&answer, errors[_i].status, bytes_text(errors[_i].body));
	ck_assert_msg(answer.failure == errors[_i].failure, "%s: %s (%s), expected %s", errors[_i].body, failure_name(answer.failure), answer.detail,
		      failure_name(errors[_i].failure));
	ck_assert_msg(strstr(answer.detail, errors[_i].detail) != NULL, "%s", answer.detail);
	answer_close(&answer);
}
END_TEST

/* An event that is called error is one, whatever stands in it. */
START_TEST(events_may_be_called_error)
{
	static const struct {
		const char *data, *detail;
	} rows[] = {{"{\"message\":\"boom\"}", "boom"}, {"{\"x\":1}", "no reason given"}, {"boom", "not JSON as agreed"}};
	struct answer answer;
	bool token;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		answer_init(&answer);
		ck_assert(!lmstudio_adapter.read_event(&answer, "error", bytes_text(rows[i].data), &token));
		ck_assert_int_eq(answer.failure, FAILURE_RUNTIME_ERROR);
		ck_assert_msg(strstr(answer.detail, rows[i].detail) != NULL, "%s", answer.detail);
		answer_close(&answer);
	}
}
END_TEST

/* Our own extras are left out of the next attempt, and nothing when an author's field stands among them. */
START_TEST(extras_are_given_up)
{
	struct answer answer;

	answer_init(&answer);
	openai_adapter.read_failure(&answer, 422, BYTES_OF("{\"detail\":\"Unsupported fields in the request: {'response_format'}\"}"));
	ck_assert_uint_eq(answer.left_out, WITHOUT_SCHEMA);
	answer_close(&answer);
	answer_init(&answer);
	openai_adapter.read_failure(&answer, 422, BYTES_OF("{\"detail\":\"Unsupported fields in the request: {'stream_options', 'presence_penalty'}\"}"));
	ck_assert_uint_eq(answer.left_out, 0);
	ck_assert_ptr_nonnull(strstr(answer.detail, "presencePenalty"));
	answer_close(&answer);
}
END_TEST

/* ---- Probes ---- */

#define LM_MODEL "{\"models\":[{\"type\":\"embedding\",\"key\":\"e\"},{\"type\":\"llm\",\"key\":\"m\",\"architecture\":\"llama\",\"quantization\":{\"name\":\"Q4_K_S\",\"bits_per_weight\":4}," \
		 "\"loaded_instances\":[{\"id\":\"m:2\",\"config\":{\"context_length\":8192,\"parallel\":4,\"flash_attention\":true}}],\"format\":\"gguf\",\"selected_variant\":\"m@q4_k_s\"," \
		 "\"variants\":[\"m@q4_k_s\",\"m@q8_0\"]}]}"
#define TAGS "{\"models\":[{\"name\":\"m:latest\",\"digest\":\"ab12\",\"size\":9,\"modified_at\":\"now\",\"details\":{\"family\":\"llama\",\"quantization_level\":\"Q8_0\"}}]}"

#define CLOUD "{\"models\":[{\"name\":\"m:latest\",\"digest\":\"ab12\",\"remote_model\":\"big\",\"remote_host\":\"https://c\"}]}"
#define ROUTER "{\"data\":[{\"id\":\"n\",\"status\":{\"value\":\"loaded\"}},{\"id\":\"m\",\"status\":{\"value\":\"loaded\",\"args\":[\"llama-server\",\"-m\",\"/m.gguf\",\"--api-key\",\"k\",\"--host\"," \
	       "\"127.0.0.1\",\"--port\",\"40123\",\"--no-cache-prompt\",\"-b\",\"512\",\"-hf\",\"o/m:Q8_0\"]}}]}"

static const struct {
	const struct runtime_adapter *adapter;
	const char *path, *body, *group, *field, *value; /* value NULL: not told */
} probes[] = {
	{&openai_adapter, "/version", "{\"version\":\"1.2\"}", "A", "runtime_version", "\"1.2\""},
	{&openai_adapter, "/version", "[]", "A", "runtime_version", NULL},
	{&vllm_adapter, "/v1/models", "{\"data\":[{\"id\":\"m\",\"created\":5,\"permission\":[{\"id\":\"p\"}],\"max_model_len\":10},{\"id\":\"l\",\"parent\":\"m\"}]}", "B", "adapters", "[\"l\"]"},
	{&vllm_adapter, "/metrics", "# HELP x\nvllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"True\",other=\"x\"} 1.0\n", "C", "cache_flags", "{\"block_size\":\"16\",\"enable_prefix_caching\":\"True\"}"},
	{&vllm_adapter, "/metrics", "vllm:cache_config_info{block_size=\"16", "C", "cache_flags", NULL},
	{&vllm_adapter, "/server_info?config_format=json", "{\"vllm_config\":{\"model_config\":{\"dtype\":\"bfloat16\",\"quantization\":\"nvfp4\"},\"cache_config\":{\"enable_prefix_caching\":true}},\"vllm_env\":{\"VLLM_BATCH_INVARIANT\":true}}", "C", "determinism_switch", "true"},
	{&vllm_adapter, "/server_info?config_format=json", "{\"vllm_config\":\"text\"}", "C", "dtype", NULL},
	{&vllm_adapter, "/server_info?config_format=json", "{\"vllm_env\":{\"VLLM_X\":1,\"vllm_s3_secret\":\"a\",\"HF_TOKEN\":\"b\"}}", "C", "env", "{\"VLLM_X\":1}"},
	{&vllm_adapter, "/tokenizer_info", "{\"chat_template\":\"abc\"}", "B", "chat_template_sha256", "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\""},
	{&llamacpp_adapter, "/props", "{\"build_info\":\"b6123-1a2b3c4\",\"media_marker\":\"r\"}", "A", "runtime_commit", "\"1a2b3c4\""},
	{&llamacpp_adapter, "/props", "{\"default_generation_settings\":{\"n_ctx\":4096,\"params\":{\"temperature\":0.8,\"id\":7}},\"total_slots\":2}", "C", "sampling_defaults", "{\"temperature\":0.8}"},
	{&llamacpp_adapter, "/props", "{\"total_slots\":2}", "C", "parallel", "2"},
	{&llamacpp_adapter, "/v1/models", "{\"data\":[{\"id\":\"m\",\"created\":1,\"meta\":{\"n_params\":7,\"x\":1}}]}", "B", "model_meta", "{\"n_params\":7}"},
	{&llamacpp_adapter, "/v1/models", "{\"data\":[{\"id\":\"other\",\"meta\":{\"n_params\":9}},{\"id\":\"m\",\"meta\":{\"n_params\":7}}]}", "B", "model_meta", "{\"n_params\":7}"},
	{&llamacpp_adapter, "/v1/models", "{\"data\":[{\"id\":\"other\",\"meta\":{\"n_params\":9}},{\"id\":\"n\",\"meta\":{\"n_params\":7}}]}", "B", "model_meta", NULL},
	{&llamacpp_adapter, "/v1/models", "{\"data\":[{\"id\":\"/models/x.gguf\",\"meta\":{\"n_params\":7}}]}", "B", "model_meta", "{\"n_params\":7}"},
	{&llamacpp_adapter, "/v1/models", ROUTER, "C", "argv", "[\"llama-server\",\"-m\",\"/m.gguf\",\"--api-key\",\"(set)\",\"--no-cache-prompt\",\"-b\",\"512\",\"-hf\",\"o/m:Q8_0\"]"},
	{&llamacpp_adapter, "/v1/models", ROUTER, "C", "cache_flags", "{\"cache_prompt\":false}"},
	{&llamacpp_adapter, "/v1/models", ROUTER, "C", "batch_sizes", "{\"batch_size\":\"512\"}"},
	{&llamacpp_adapter, "/v1/models", ROUTER, "B", "revision", "\"o/m:Q8_0\""},
	{&llamacpp_adapter, "/props", "{\"role\":\"router\",\"build_info\":\"b7-aa\",\"model_path\":\"none\",\"default_generation_settings\":{\"n_ctx\":0,\"params\":{}}}", "A", "runtime_version", "\"b7-aa\""},
	{&llamacpp_adapter, "/props", "{\"role\":\"router\",\"model_path\":\"none\",\"default_generation_settings\":{\"n_ctx\":0,\"params\":{}}}", "C", "context_length", NULL},
	{&llamacpp_adapter, "/props", "{\"role\":\"router\",\"model_path\":\"none\"}", "B", "model_path", NULL},
	{&llamacpp_adapter, "/lora-adapters", "[{\"id\":0}]", "B", "adapters", "[{\"id\":0}]"},
	{&llamacpp_adapter, "/lora-adapters", "{}", "B", "adapters", NULL},
	{&sglang_adapter, "/server_info", "{\"model_path\":\"/m\",\"version\":\"0.5\",\"attention_backend\":\"fa3\",\"disable_radix_cache\":false,\"internal_states\":[{}]}", "C", "kernels", "{\"attention_backend\":\"fa3\"}"},
	{&sglang_adapter, "/server_info", "{\"model_path\":\"/m\",\"disable_radix_cache\":false}", "C", "cache_flags", "{\"disable_radix_cache\":false}"},
	{&sglang_adapter, "/server_info", "{\"x\":1}", "C", "kernels", NULL},
	{&sglang_adapter, "/model_info", "{\"weight_version\":\"w\"}", "B", "weight_version", "\"w\""},
	{&ollama_adapter, "/api/version", "{\"version\":\"0.33\"}", "A", "runtime_version", "\"0.33\""},
	{&ollama_adapter, "/api/tags", TAGS, "B", "weights_digest", "\"ab12\""},
	{&ollama_adapter, "/api/tags", TAGS, "B", "quantisation", "\"Q8_0\""},
	{&ollama_adapter, "/api/show", "{\"modelfile\":\"# x\\nFROM /root/blobs/sha256-77aa\\nADAPTER ./l\\n\",\"template\":\"abc\"}", "B", "weights_blob", "\"sha256-77aa\""},
	{&ollama_adapter, "/api/show", "{\"modelfile\":\"FROM x\\nADAPTER ./l\\n\"}", "B", "adapters", "\"./l\""},
	{&ollama_adapter, "/api/show", "{\"modelfile\":\"FROM x\"}", "B", "weights_blob", NULL},
	{&ollama_adapter, "/api/show", "{\"parameters\":\"num_ctx    4096\\nnum_batch         1024\\nnum_batches 7\"}", "C", "batch_sizes", "{\"num_batch\":\"1024\"}"},
	{&ollama_adapter, "/api/show", "{\"parameters\":\"draft_num_predict 4\"}", "C", "speculation", "{\"draft_num_predict\":\"4\"}"},
	{&ollama_adapter, "/api/show", "{\"parameters\":\"temperature 1\"}", "C", "batch_sizes", NULL},
	{&ollama_adapter, "/api/show", "{\"remote_host\":\"https://c\",\"remote_model\":\"big\"}", "B", "remote_host", "\"https://c\""},
	{&ollama_adapter, "/api/show", "{\"renderer\":\"qwen3\",\"parser\":\"qwen3\"}", "B", "renderer", "\"qwen3\""},
	{&ollama_adapter, "/api/tags", TAGS, "B", "revision", "\"latest\""},
	{&ollama_adapter, "/api/tags", CLOUD, "B", "remote_model", "\"big\""},
	{&ollama_adapter, "/api/tags", CLOUD, "B", "manifest_digest", "\"ab12\""},
	{&ollama_adapter, "/api/tags", CLOUD, "B", "weights_digest", NULL},
	{&ollama_adapter, "/api/ps", "{\"models\":[{\"name\":\"m:latest\",\"size\":9,\"size_vram\":4,\"context_length\":4096,\"expires_at\":\"x\"}]}", "C", "offload", "\"part\""},
	{&ollama_adapter, "/api/ps", "{\"models\":[{\"name\":\"m:latest\",\"size\":9,\"size_vram\":9,\"context_length\":4096}]}", "C", "context_length", "4096"},
	{&ollama_adapter, "/api/ps", "{\"models\":[]}", "C", "context_length", NULL},
	{&lmstudio_adapter, "/api/v1/models", LM_MODEL, "B", "quantisation", "\"Q4_K_S\""},
	{&lmstudio_adapter, "/api/v1/models", LM_MODEL, "C", "parallel", "4"},
	{&lmstudio_adapter, "/api/v1/models", LM_MODEL, "C", "cache_flags", "{\"flash_attention\":true}"},
	{&lmstudio_adapter, "/api/v1/models", "{\"error\":\"Unexpected endpoint or method. (GET /api/v1/models)\"}", "B", "quantisation", NULL},
	{&lmstudio_adapter, "/api/v0/models", "{\"data\":[{\"id\":\"m\",\"type\":\"llm\",\"arch\":\"llama\",\"quantization\":\"Q8_0\",\"state\":\"loaded\"}]}", "B", "arch", "\"llama\""},
	{&lmstudio_adapter, "/api/v0/chat/completions", "{\"runtime\":{\"name\":\"llama.cpp-linux\",\"version\":\"2.1.0\"},\"model_info\":{\"context_length\":4096}}", "A", "engine", "\"llama.cpp-linux\""},
};

static const struct adapter_probe *find_probe(const struct runtime_adapter *adapter, const char *path)
{
	for (size_t i = 0; i < ADAPTER_PROBES_MAX && adapter->probes[i].path != NULL; i++)
		if (strcmp(adapter->probes[i].path, path) == 0)
			return &adapter->probes[i];
	ck_abort_msg("no probe %s", path);
	return NULL;
}

/* Each probe finds what it is for, says from where, and takes nothing from a body that is something else. */
START_TEST(probes_find_fields)
{
	struct runtime_facts facts = {.arena = &arena, .wanted = "m"};
	const struct json *field;

	find_probe(probes[_i].adapter, probes[_i].path)->read(bytes_text(probes[_i].body), &facts);
	field = json_get(json_get(facts.fields, probes[_i].group), probes[_i].field);
	if (probes[_i].value == NULL) {
		ck_assert_ptr_null(field);
	} else {
		ck_assert_str_eq(print(json_get(field, "value")), probes[_i].value);
		ck_assert_ptr_nonnull(json_get_text(field, "source"));
	}
}
END_TEST

/* A probe may get anything: none of these bodies is more than no answer. */
START_TEST(nonsense_is_no_fact)
{
	static const char *const nonsense[] = {"", "{", "null", "7", "[]", "[7]", "\"x\"", "{\"data\":7}", "{\"data\":[7,null,{\"id\":7}]}", "{\"models\":[7,{\"name\":7},{\"key\":7}]}", "\xff\xfe",
					       "{\"modelfile\":7,\"template\":7}", "{\"default_generation_settings\":7}", "vllm:cache_config_info{", "vllm:cache_config_info{=}"};

	for (size_t a = 0; a < COUNT_OF(adapters); a++)
		for (size_t p = 0; p < ADAPTER_PROBES_MAX && adapters[a]->probes[p].path != NULL; p++)
			for (size_t n = 0; n < COUNT_OF(nonsense) && adapters[a]->probes[p].read != NULL; n++) {
				struct runtime_facts facts = {.arena = &arena, .wanted = "m"};

				adapters[a]->probes[p].read(bytes_text(nonsense[n]), &facts);
			}
}
END_TEST

/* A list may be long, and all models in it may have the same name, or many: it is read on the loop. */
START_TEST(long_lists_are_read_at_once)
{
	enum { LEN = 512 << 10 };
	static const char *const items[][3] = {
		{"{\"data\":[{\"id\":\"n\"}", ",{\"id\":\"n\"}", "]}"},
		{"{\"data\":[{\"id\":\"m\"}", ",{\"id\":\"m\"}", "]}"},
		{"{\"models\":[{\"key\":\"n\",\"name\":\"n\"}", ",{\"key\":\"n\",\"name\":\"n\"}", "]}"},
		{"{\"models\":[{\"key\":\"m\",\"name\":\"m\"}", ",{\"key\":\"m\",\"name\":\"m\",\"digest\":\"d\",\"details\":{}}", "]}"},
		{"{\"models\":[{\"key\":\"n\"}", ",{\"key\":\"n\",\"variants\":[\"\",\"\",\"\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\"]}", "]}"},
		{"{\"modelfile\":\"", "FROM x\\nADAPTER y\\n", "\"}"},
		{"", "vllm:cache_config_info{a=\"b\"} 1\n", ""},
		{"vllm:cache_config_info{a=\"b\"", ",c=\"d\"", "} 1\n"},
	};
	struct buffer body;

	buffer_init(&body, LEN + 1024);
	for (size_t n = 0; n < COUNT_OF(items); n++) {
		buffer_clear(&body);
		buffer_add_text(&body, items[n][0]);
		while (body.len < LEN)
			buffer_add_text(&body, items[n][1]);
		buffer_add_text(&body, items[n][2]);
		for (size_t a = 0; a < COUNT_OF(adapters); a++)
			for (size_t p = 0; p < ADAPTER_PROBES_MAX && adapters[a]->probes[p].path != NULL; p++) {
				struct runtime_facts facts = {.arena = &arena, .wanted = "m"};
				clock_t begin = clock();

				if (adapters[a]->probes[p].read == NULL)
					continue;
				adapters[a]->probes[p].read(buffer_bytes(&body), &facts);
				ck_assert_msg(clock() - begin < CLOCKS_PER_SEC, "%s, body %zu: %.1f s of processor", adapters[a]->probes[p].path, n, (double)(clock() - begin) / CLOCKS_PER_SEC);
				arena_close(&arena);
				arena_init(&arena);
			}
	}
	buffer_close(&body);
}
END_TEST

/* LM Studio's model is known by its key, its variants and its instances; Ollama's with and without :latest. */
START_TEST(models_have_several_names)
{
	struct runtime_facts facts = {.arena = &arena, .wanted = "m@q4_k_s"};

	find_probe(&lmstudio_adapter, "/api/v1/models")->read(bytes_text(LM_MODEL), &facts);
	ck_assert_uint_eq(json_count(facts.models), 1);
	ck_assert(!facts.is_unloaded);
	ck_assert_ptr_nonnull(models_find(facts.models, "m@q8_0"));
	ck_assert_ptr_nonnull(models_find(facts.models, "m:2"));
	ck_assert_ptr_null(models_find(facts.models, "n"));
	ck_assert_double_eq(json_get_number(models_find(facts.models, "m"), "contextLength", 0), 8192);
	facts = (struct runtime_facts){.arena = &arena, .wanted = "m"};
	find_probe(&ollama_adapter, "/api/tags")->read(bytes_text(TAGS), &facts);
	ck_assert_ptr_nonnull(models_find(facts.models, "m"));
	ck_assert(ollama_adapter.is_model("m", "m:latest"));
	ck_assert(!ollama_adapter.is_model("m", "m:7b"));
	ck_assert(openai_adapter.is_model("Qwen/x", "Qwen/x@main"));
	ck_assert(!openai_adapter.is_model("Qwen/x@a", "Qwen/x@main"));
	find_probe(&ollama_adapter, "/api/ps")->read(bytes_text("{\"models\":[]}"), &facts);
	ck_assert(facts.is_unloaded && !facts.is_remote);
	/* Of a cloud model nothing is loaded here, nor would be. */
	facts = (struct runtime_facts){.arena = &arena, .wanted = "m"};
	find_probe(&ollama_adapter, "/api/tags")->read(bytes_text(CLOUD), &facts);
	find_probe(&ollama_adapter, "/api/ps")->read(bytes_text("{\"models\":[]}"), &facts);
	ck_assert(facts.is_remote && !facts.is_unloaded);
	/* The revision that is asked for is the operator's word. */
	facts = (struct runtime_facts){.arena = &arena, .wanted = "Qwen/x@0123"};
	find_probe(&openai_adapter, "/v1/models")->read(bytes_text("{\"data\":[{\"id\":\"Qwen/x\"}]}"), &facts);
	ck_assert_str_eq(print(json_get(json_get(facts.fields, "B"), "revision")), "{\"basis\":\"declared\",\"source\":\"model of the configuration\",\"value\":\"0123\"}");
}
END_TEST

/* Of a list that is longer than a list may be the first models are known (ADAPTER_MODELS_MAX). */
START_TEST(lists_of_models_are_bounded)
{
	static const struct {
		const struct runtime_adapter *adapter;
		const char *path, *list, *name;
	} rows[] = {
		{&openai_adapter, "/v1/models", "data", "id"}, {&llamacpp_adapter, "/v1/models", "data", "id"}, {&vllm_adapter, "/v1/models", "data", "id"}, {&sglang_adapter, "/v1/models", "data", "id"},
		{&lmstudio_adapter, "/api/v1/models", "models", "key"}, {&lmstudio_adapter, "/api/v0/models", "data", "id"}, {&ollama_adapter, "/api/tags", "models", "name"},
	};

	for (size_t r = 0; r < COUNT_OF(rows); r++)
		for (int more = -1; more <= 1; more++) {
			struct runtime_facts facts = {.arena = &arena};
			struct buffer body;

			buffer_init(&body, 1 << 20);
			buffer_printf(&body, "{\"%s\":[", rows[r].list);
			for (int i = 0; i < ADAPTER_MODELS_MAX + more; i++)
				buffer_printf(&body, "%s{\"%s\":\"m%d\"}", i > 0 ? "," : "", rows[r].name, i);
			buffer_add_text(&body, "]}");
			find_probe(rows[r].adapter, rows[r].path)->read(buffer_bytes(&body), &facts);
			ck_assert_msg(json_count(facts.models) == (size_t)(ADAPTER_MODELS_MAX + (more < 0 ? more : 0)), "%s: %zu", rows[r].path, json_count(facts.models));
			buffer_close(&body);
		}
}
END_TEST

/* A router's model that is loaded is an instance by where its own process listens; nothing tells one that is not, or says nothing of that. */
START_TEST(a_router_tells_instances)
{
	static const struct {
		const char *status, *instance;
	} rows[] = {
		{"{\"value\":\"loaded\",\"args\":[\"llama-server\",\"--port\",\"40001\",\"-c\",\"1\"]}", "port 40001"},
		{"{\"value\":\"unloaded\",\"args\":[\"llama-server\",\"--port\",\"40001\"]}", NULL},
		{"{\"value\":\"loaded\",\"args\":[\"llama-server\",\"--port\"]}", NULL},
		{"{\"value\":\"loaded\",\"args\":[\"--port\",1]}", NULL},
		{"{\"value\":\"loaded\"}", NULL},
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct runtime_facts facts = {.arena = &arena, .wanted = "m"};

		find_probe(&llamacpp_adapter, "/v1/models")->read(bytes_text(arena_printf(&arena, "{\"data\":[{\"id\":\"m\",\"status\":%s}]}", rows[i].status)), &facts);
		ck_assert_pstr_eq(facts.instance, rows[i].instance);
	}
}
END_TEST

/* `transformers serve` names the revision that answered in each answer: it stands for a fingerprint, where there is none. */
START_TEST(a_revision_is_a_fingerprint)
{
	static const struct {
		const char *body, *fingerprint;
	} rows[] = {
		{"{\"model\":\"Qwen/x@main\",\"system_fingerprint\":\"\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}", "Qwen/x@main"},
		{"{\"model\":\"Qwen/x@main\",\"system_fingerprint\":\"fp\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}", "fp"},
		{"{\"model\":\"Qwen/x\",\"choices\":[{\"index\":0,\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}", NULL},
	};
	struct answer answer;
	bool token;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		answer_init(&answer);
		ck_assert(openai_adapter.read_whole(&answer, bytes_text(rows[i].body)));
		ck_assert_pstr_eq(answer.fingerprint, rows[i].fingerprint);
		answer_close(&answer);
	}
	answer_init(&answer);
	ck_assert(openai_adapter.read_event(&answer, "", bytes_text("{\"model\":\"Qwen/x@main\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}"), &token));
	ck_assert_pstr_eq(answer.fingerprint, "Qwen/x@main");
	answer_close(&answer);
}
END_TEST

/* A router is asked about the wanted model by its name, and so that it does not load it; about one that is not loaded, or not known, only who itself is. */
START_TEST(a_router_is_asked_by_model)
{
	static const struct {
		const char *wanted, *status, *props, *adapters;
		bool is_unloaded;
	} rows[] = {
		{"a/b c+1&x", "{\"value\":\"loaded\"}", "/props?model=a%2Fb%20c%2B1%26x&autoload=false", "/lora-adapters?model=a%2Fb%20c%2B1%26x&autoload=false", false},
		{"m", "{\"value\":\"sleeping\"}", "/props?model=m&autoload=false", "/lora-adapters?model=m&autoload=false", false},
		{"m", "{\"value\":\"unloaded\",\"failed\":true,\"exit_code\":1}", "/props", NULL, true},
		{"m", "{\"value\":\"loading\"}", "/props", NULL, true},
		{NULL, "{\"value\":\"loaded\"}", "/props", NULL, false},
		{"m", "null", "/props", "/lora-adapters", false}, /* no router */
	};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct runtime_facts facts = {.arena = &arena, .wanted = rows[i].wanted};
		const char *name = rows[i].wanted != NULL ? rows[i].wanted : "m", *other = strcmp(rows[i].status, "null") == 0 ? "null" : "{\"value\":\"unloaded\"}";

		find_probe(&llamacpp_adapter, "/v1/models")
			->read(bytes_text(arena_printf(&arena, "{\"data\":[{\"id\":\"other\",\"status\":%s},{\"id\":\"%s\",\"status\":%s}]}", other, name, rows[i].status)), &facts);
		ck_assert_pstr_eq(find_probe(&llamacpp_adapter, "/props")->make_path(&facts), rows[i].props);
		ck_assert_pstr_eq(find_probe(&llamacpp_adapter, "/lora-adapters")->make_path(&facts), rows[i].adapters);
		ck_assert_int_eq(facts.is_unloaded, rows[i].is_unloaded);
	}
}
END_TEST

/* A model that is loaded twice: asked for by the name of an instance, that one's settings are told. */
START_TEST(instances_have_their_own_settings)
{
	static const char body[] =
		"{\"models\":[{\"type\":\"llm\",\"key\":\"m\",\"loaded_instances\":[{\"id\":\"m\",\"config\":{\"context_length\":8192,\"parallel\":4}},"
		"{\"id\":\"m:2\",\"config\":{\"context_length\":4096,\"parallel\":1}}]}]}";
	static const struct {
		const char *wanted;
		double length, parallel;
	} rows[] = {{"m", 8192, 4}, {"m:2", 4096, 1}, {NULL, 8192, 4}};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct runtime_facts facts = {.arena = &arena, .wanted = rows[i].wanted};

		find_probe(&lmstudio_adapter, "/api/v1/models")->read(bytes_text(body), &facts);
		ck_assert_double_eq(json_get_number(json_at(facts.models, 0), "contextLength", 0), rows[i].length);
		ck_assert_double_eq(json_get_number(json_get(json_get(facts.fields, "C"), "parallel"), "value", 0), rows[i].parallel);
		ck_assert_double_eq(json_get_number(json_get(json_get(json_get(facts.fields, "C"), "load_config"), "value"), "context_length", 0), rows[i].length);
		ck_assert_double_eq(json_get_number(json_get(json_get(facts.fields, "C"), "instances"), "value", 0), 2);
	}
}
END_TEST

/* ---- Loading ---- */

/* A model is loaded with the settings that its first instance has; the configured context wins; a name that was given cannot be given again. */
START_TEST(models_are_loaded_as_they_were)
{
	static const char card[] = "{\"id\":\"m\",\"root\":\"m@q4\",\"loaded\":[{\"id\":\"mine\",\"config\":{\"context_length\":8192,\"num_experts\":null,\"parallel\":4,\"flash_attention\":true}},{\"id\":\"m\"}]}";
	const struct adapter_loading *api = &lmstudio_adapter.loading;
	const char *why = NULL;

	ck_assert_str_eq(print(api->make_load(&arena, parse(card), "m", 0, &why)), "{\"context_length\":8192,\"echo_load_config\":true,\"flash_attention\":true,\"model\":\"m\"}");
	ck_assert_str_eq(print(api->make_load(&arena, parse(card), "m@q4", 512, &why)), "{\"context_length\":512,\"echo_load_config\":true,\"flash_attention\":true,\"model\":\"m@q4\"}");
	ck_assert_str_eq(print(api->make_load(&arena, parse("{\"id\":\"m\"}"), "m", 0, &why)), "{\"echo_load_config\":true,\"model\":\"m\"}");
	ck_assert_ptr_null(why);
	ck_assert_ptr_null(api->make_load(&arena, parse(card), "mine", 0, &why));
	ck_assert_ptr_nonnull(strstr(why, "--identifier"));
	ck_assert_str_eq(print(api->make_unload(&arena, parse("{\"id\":\"mine\"}"))), "{\"instance_id\":\"mine\"}");
	ck_assert(api->is_loaded(&arena, BYTES_OF("{\"instance_id\":\"m\",\"status\":\"loaded\"}")));
	ck_assert(api->is_unloaded(&arena, BYTES_OF("{\"instance_id\":\"m\"}")));
	for (size_t i = 0; i < 4; i++) {
		static const char *const others[] = {"", "[]", "{\"status\":7,\"instance_id\":7}", "{\"error\":\"Unexpected endpoint or method. (POST /x)\"}"};

		ck_assert(!api->is_loaded(&arena, bytes_text(others[i])) && !api->is_unloaded(&arena, bytes_text(others[i])));
	}
}
END_TEST

/* ---- Counting ---- */

/* The prompt's tokens: llama.cpp in two steps, vLLM in one. */
START_TEST(prompts_are_counted)
{
	struct inference_request request = make("{}");
	const char *text = NULL;
	double tokens = -1;

	ck_assert_str_eq(print(llamacpp_adapter.count[0].make_body(&arena, &request, NULL)), "{\"messages\":[{\"content\":\"Hi\",\"role\":\"user\"}],\"model\":\"m\"}");
	ck_assert(!llamacpp_adapter.count[0].read(&arena, BYTES_OF("{}"), &text, &tokens));
	ck_assert(llamacpp_adapter.count[0].read(&arena, BYTES_OF("{\"prompt\":\"<Hi>\"}"), &text, &tokens));
	ck_assert_str_eq(print(llamacpp_adapter.count[1].make_body(&arena, &request, text)), "{\"add_special\":true,\"content\":\"<Hi>\",\"model\":\"m\",\"parse_special\":true}");
	ck_assert(!llamacpp_adapter.count[1].read(&arena, BYTES_OF("{\"tokens\":7}"), &text, &tokens));
	ck_assert(llamacpp_adapter.count[1].read(&arena, BYTES_OF("{\"tokens\":[1,2,3]}"), &text, &tokens));
	ck_assert_double_eq(tokens, 3);
	ck_assert_ptr_nonnull(strstr(print(vllm_adapter.count[0].make_body(&arena, &request, NULL)), "\"model\":\"m\""));
	ck_assert(vllm_adapter.count[0].read(&arena, BYTES_OF("{\"count\":9,\"max_model_len\":10}"), &text, &tokens));
	ck_assert_double_eq(tokens, 9);
	ck_assert(!vllm_adapter.count[0].read(&arena, BYTES_OF("{\"count\":\"9\"}"), &text, &tokens));
}
END_TEST

/* ---- Lines ---- */

static bool keep_line(void *arg, struct bytes line)
{
	buffer_printf(arg, "[%.*s]", (int)line.len, (const char *)line.data);
	return !bytes_equal_text(line, "stop");
}

/* A piece may end anywhere; empty lines are none; the last one needs no line break; a stop is a stop, and a line has a limit. */
START_TEST(lines_are_read)
{
	static const char text[] = "{\"a\":1}\r\n\n{\"b\":2}\nlast";
	struct lines lines;
	struct buffer seen;
	char *large = memory_alloc(LINES_LINE_MAX + 1);

	buffer_init(&seen, 4096);
	for (size_t step = 1; step < sizeof(text); step++) {
		buffer_clear(&seen);
		lines_init(&lines, keep_line, &seen);
		for (size_t at = 0; at < sizeof(text) - 1; at += step)
			ck_assert(lines_feed(&lines, (struct bytes){(const uint8_t *)text + at, sizeof(text) - 1 - at < step ? sizeof(text) - 1 - at : step}));
		ck_assert(lines_finish(&lines));
		ck_assert_str_eq(buffer_text(&seen), "[{\"a\":1}][{\"b\":2}][last]");
		lines_close(&lines);
	}
	lines_init(&lines, keep_line, &seen);
	ck_assert(!lines_feed(&lines, BYTES_OF("stop\nmore\n")));
	ck_assert(!lines_finish(&lines));
	lines_close(&lines);
	memset(large, 'x', LINES_LINE_MAX + 1);
	lines_init(&lines, keep_line, &seen);
	ck_assert(!lines_feed(&lines, (struct bytes){(uint8_t *)large, LINES_LINE_MAX + 1}));
	ck_assert(lines.overflow);
	lines_close(&lines);
	buffer_close(&seen);
	free(large);
}
END_TEST

/* ---- The record ---- */

static struct configuration *make_record(const char *wanted, const char *fields, unsigned context_length)
{
	struct runtime_config config = {.name = "r", .kind = "vllm", .url = "http://192.0.2.1:1", .model = wanted, .context_length = context_length};
	struct runtime_facts facts = {.arena = &arena, .server = "", .fields = fields != NULL ? parse(fields) : NULL};
	struct weights weights = {0};
	struct configuration_input input = {.config = &config, .adapter = &vllm_adapter, .facts = &facts, .weights = &weights, .ignored = parse("[\"minP\"]")};

	return configuration_new(&input);
}

/* What is in force beats what was asked for, which stays beside it; group G does not change the digest. */
START_TEST(effective_beats_requested)
{
	struct configuration *asked = make_record("m", NULL, 8192), *told = make_record("m", "{\"C\":{\"context_length\":{\"value\":4096,\"source\":\"GET /x\"}}}", 8192);
	const struct json *field = json_get(json_get(told->record, "C"), "context_length");
	struct json *observed = json_get(told->record, "G");
	struct buffer words;

	ck_assert_str_eq(print(field), "{\"basis\":\"reported\",\"declared\":8192,\"source\":\"GET /x\",\"value\":4096}");
	ck_assert_double_eq(told->context_length, 4096);
	ck_assert_double_eq(asked->context_length, 8192);
	ck_assert_str_eq(print(json_get(observed, "ignored_parameters")), "{\"basis\":\"measured\",\"source\":\"values of a wrong type, which were taken without a word\",\"value\":[\"minP\"]}");
	buffer_init(&words, 400);
	ck_assert_str_eq(print(configuration_differences(&arena, asked->record, told->record)),
			 "[{\"basis\":{\"new\":\"reported\",\"old\":\"declared\"},\"field\":\"C.context_length\",\"new\":4096,\"old\":8192}]");
	ck_assert(!configuration_contradicts(configuration_differences(&arena, asked->record, told->record), &words));
	ck_assert(configuration_contradicts(configuration_differences(&arena, told->record, asked->record), &words));
	ck_assert_str_eq(buffer_text(&words), "C.context_length 4096 -> 8192");
	buffer_close(&words);
	configuration_release(asked);
	configuration_release(told);
}
END_TEST

/* GPUs, their driver and its CUDA are part of the record, so another driver makes another one; of a runtime on another machine nothing is. */
START_TEST(gpus_are_recorded)
{
	struct runtime_config config = {.name = "r", .kind = "vllm", .url = "http://192.0.2.1:1"};
	struct runtime_facts facts = {.arena = &arena, .server = ""};
	struct weights weights = {0};
	struct host host = {.read = true};
	struct gpus gpus = {.known = true, .count = 2, .list = {{"GPU-1", "A", "8.9"}, {"GPU-2", "A", ""}}, .driver = "570.1", .cuda = "12.8"};
	struct configuration_input input = {.config = &config, .adapter = &vllm_adapter, .facts = &facts, .weights = &weights, .host = &host, .gpus = &gpus};
	struct configuration *before = configuration_new(&input), *after;
	const struct json *d = json_get(before->record, "D");
	struct buffer words;

	ck_assert_str_eq(print(json_get(d, "gpu")), "{\"basis\":\"measured\",\"source\":\"NVML\",\"value\":[{\"compute_cap\":\"8.9\",\"name\":\"A\",\"uuid\":\"GPU-1\"},"
						    "{\"name\":\"A\",\"uuid\":\"GPU-2\"}]}");
	ck_assert_str_eq(print(json_get(json_get(d, "gpu_count"), "value")), "2");
	ck_assert_str_eq(print(json_get(json_get(d, "cuda"), "value")), "\"12.8\"");
	strcpy(gpus.driver, "580.2");
	after = configuration_new(&input);
	ck_assert(!digest_equal(&before->digest, &after->digest));
	buffer_init(&words, 400);
	ck_assert(configuration_contradicts(configuration_differences(&arena, before->record, after->record), &words));
	ck_assert_str_eq(buffer_text(&words), "D.gpu_driver \"570.1\" -> \"580.2\"");
	buffer_close(&words);
	configuration_release(after);
	input.host = NULL;
	after = configuration_new(&input);
	ck_assert_str_eq(json_get_text(json_get(json_get(after->record, "D"), "gpu"), "basis"), "unknown");
	configuration_release(after);
	configuration_release(before);
}
END_TEST

/* That something is known which was not is no contradiction, that it is not known any more is one; fields of one record alone count. */
START_TEST(learning_is_no_contradiction)
{
	struct configuration *less = make_record("m", NULL, 0), *more = make_record("m", "{\"C\":{\"dtype\":{\"value\":\"bf16\",\"source\":\"s\"},\"parallel\":{\"value\":2,\"source\":\"s\"}}}", 0);
	struct buffer words;

	buffer_init(&words, 400);
	ck_assert_uint_eq(json_count(configuration_differences(&arena, less->record, more->record)), 2);
	ck_assert(!configuration_contradicts(configuration_differences(&arena, less->record, more->record), &words));
	ck_assert(configuration_contradicts(configuration_differences(&arena, more->record, less->record), &words));
	ck_assert_str_eq(buffer_text(&words), "C.dtype \"bf16\" -> null, C.parallel 2 -> null");
	buffer_close(&words);

	/* In the order in which a record itself is shown, whichever of the two has the field. */
	struct configuration *other = make_record("m", "{\"C\":{\"argv\":{\"value\":\"x\",\"source\":\"s\"},\"dtype\":{\"value\":\"f32\",\"source\":\"s\"}},\"D\":{\"gpu\":{\"value\":\"g\",\"source\":\"s\"}},\"A\":{\"runtime_version\":{\"value\":\"1\",\"source\":\"s\"}}}", 0);
	const char *const order[] = {"A.runtime_version", "C.argv", "C.dtype", "C.parallel", "D.gpu"};
	for (size_t way = 0; way < 2; way++) {
		const struct json *differences = configuration_differences(&arena, way == 0 ? more->record : other->record, way == 0 ? other->record : more->record);
		ck_assert_uint_eq(json_count(differences), COUNT_OF(order));
		for (size_t i = 0; i < COUNT_OF(order); i++)
			ck_assert_str_eq(json_get_text(json_at(differences, i), "field"), order[i]);
	}
	configuration_release(other);
	configuration_release(less);
	configuration_release(more);
}
END_TEST

/* Of a value longer than FACT_LEN_MAX a record has what tells it from others alone: another one gives another record. */
START_TEST(long_values_are_told_apart)
{
	struct runtime_facts facts = {.arena = &arena};
	char *text = arena_zero(&arena, FACT_LEN_MAX);

	memset(text, 'x', FACT_LEN_MAX - 1);
	text[FACT_LEN_MAX - 2] = '\0'; /* with its quotation marks just as long */
	facts_set_text(&facts, "B.fits", text, "s");
	ck_assert_str_eq(json_get_text(json_get(json_get(facts.fields, "B"), "fits"), "value"), text);
	text[FACT_LEN_MAX - 2] = 'x';
	facts_set_text(&facts, "B.long", text, "s");
	text[0] = 'y';
	facts_set_text(&facts, "B.other", text, "s");
	ck_assert_int_eq(strncmp(json_get_text(json_get(json_get(facts.fields, "B"), "long"), "value"), "more than 65536 bytes (FACT_LEN_MAX), told from others by ", 58), 0);
	ck_assert_str_ne(json_get_text(json_get(json_get(facts.fields, "B"), "long"), "value"), json_get_text(json_get(json_get(facts.fields, "B"), "other"), "value"));
}
END_TEST

static struct bytes join(const char *before, const char *large, const char *after)
{
	return bytes_text(arena_printf(&arena, "%s%s%s", before, large, after));
}

/* Whatever a runtime tells of itself, in answers as long as may be, its record is one that can be kept. */
START_TEST(the_largest_record_can_be_kept)
{
	struct runtime_facts facts = {.arena = &arena, .wanted = "m"};
	struct runtime_config config = {.name = "r", .kind = "ollama", .url = "http://192.0.2.1:1", .model = "m"};
	struct weights weights = {0};
	struct configuration_input input = {.config = &config, .adapter = &ollama_adapter, .facts = &facts, .weights = &weights};
	struct configuration *configuration;
	char *large = arena_zero(&arena, PROBE_BODY_MAX);
	struct buffer record;

	large[0] = '['; /* a number of four bytes that its canonical form needs 21 for */
	for (size_t at = 1; at + 100 < PROBE_BODY_MAX; at += 5)
		memcpy(large + at, "1e20,", 6);
	large[strlen(large) - 1] = ']';
	find_probe(&ollama_adapter, "/api/tags")->read(join("{\"models\":[{\"name\":\"m\",\"digest\":", large, "}]}"), &facts);
	find_probe(&ollama_adapter, "/api/show")->read(join("{\"parameters\":", large, "}"), &facts);
	find_probe(&ollama_adapter, "/api/ps")->read(join("{\"models\":[{\"name\":\"m\",\"context_length\":", large, "}]}"), &facts);
	ck_assert_ptr_nonnull(json_get(json_get(facts.fields, "B"), "weights_digest"));
	ck_assert_ptr_nonnull(json_get(json_get(facts.fields, "C"), "sampling_defaults"));
	ck_assert_ptr_nonnull(json_get(json_get(facts.fields, "C"), "context_length"));
	configuration = configuration_new(&input);
	buffer_init(&record, ACTIVITY_BODY_MAX);
	json_print(configuration->record, &record);
	ck_assert(!record.overflow);
	buffer_close(&record);
	configuration_release(configuration);
}
END_TEST

/* The first model that an answer names is its model; that others are named as well, one or several, is kept. */
START_TEST(models_of_one_answer_are_kept)
{
	static const char *const names[] = {NULL, "", "m", "m", "n", "m", "n", "o", "n", "m"};
	static const char *const others[] = {NULL, NULL, NULL, NULL, "n", "n", "n", "several others", "several others", "several others"};
	struct answer answer;

	answer_init(&answer);
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		answer_keep_model(&answer, names[i]);
		ck_assert_pstr_eq(answer.model, i < 2 ? NULL : "m");
		ck_assert_pstr_eq(answer.other_model, others[i]);
	}
	answer_close(&answer);
}
END_TEST

/* Every kind is in the registry, under its own name but for the simulator's. */
START_TEST(kinds_are_registered)
{
	for (size_t i = 0; i < COUNT_OF(adapters); i++) {
		ck_assert_ptr_eq(runtime_adapter_get(adapters[i]->kind), adapters[i]);
		ck_assert_ptr_nonnull(strstr(runtime_adapter_kinds(), adapters[i]->kind));
	}
	ck_assert_ptr_eq(runtime_adapter_get("simulator"), &openai_adapter);
	ck_assert_ptr_null(runtime_adapter_get("gpt"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("adapters");
	TCase *tests = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tests, set_up, tear_down);
	tcase_add_loop_test(tests, requests_are_in_the_kind_s_own_words, 0, COUNT_OF(requests));
	tcase_add_test(tests, caches_are_bypassed);
	tcase_add_test(tests, requests_go_without);
	tcase_add_test(tests, sampling_is_refused_by_name);
	tcase_add_test(tests, tables_of_kinds_are_sound);
	tcase_add_loop_test(tests, values_are_in_the_kind_s_own_form, 0, (int)COUNT_OF(forms));
	tcase_add_test(tests, template_arguments_count);
	tcase_add_loop_test(tests, streams_are_read, 0, COUNT_OF(streams));
	tcase_add_loop_test(tests, thoughts_are_no_text, 0, COUNT_OF(thoughts));
	tcase_add_test(tests, what_is_told_is_bounded);
	tcase_add_test(tests, effective_sampling_is_read);
	tcase_add_test(tests, a_trial_finds_what_is_ignored);
	tcase_add_test(tests, an_answer_has_a_message);
	tcase_add_loop_test(tests, errors_have_one_taxonomy, 0, COUNT_OF(errors));
	tcase_add_test(tests, events_may_be_called_error);
	tcase_add_test(tests, extras_are_given_up);
	tcase_add_loop_test(tests, probes_find_fields, 0, COUNT_OF(probes));
	tcase_add_test(tests, nonsense_is_no_fact);
	tcase_add_test(tests, long_lists_are_read_at_once);
	tcase_add_test(tests, models_have_several_names);
	tcase_add_test(tests, lists_of_models_are_bounded);
	tcase_add_test(tests, a_router_is_asked_by_model);
	tcase_add_test(tests, a_router_tells_instances);
	tcase_add_test(tests, a_revision_is_a_fingerprint);
	tcase_add_test(tests, instances_have_their_own_settings);
	tcase_add_test(tests, models_are_loaded_as_they_were);
	tcase_add_test(tests, prompts_are_counted);
	tcase_add_test(tests, lines_are_read);
	tcase_add_test(tests, effective_beats_requested);
	tcase_add_test(tests, gpus_are_recorded);
	tcase_add_test(tests, learning_is_no_contradiction);
	tcase_add_test(tests, long_values_are_told_apart);
	tcase_add_test(tests, the_largest_record_can_be_kept);
	tcase_add_test(tests, models_of_one_answer_are_kept);
	tcase_add_test(tests, kinds_are_registered);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
