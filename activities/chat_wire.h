/* OpenAI's chat completions as most runtimes speak them: what their adapters share (runtimes.md 2). Pure. */
#pragma once

#include "activities/adapter.h"

#define CHAT_PATH "/v1/chat/completions"

/* model, messages, stream, usage in the stream, and the sampling under the wire's names. */
struct json *chat_make_request(struct arena *arena, const struct inference_request *request, const struct sampling_field *fields);
/* response_format: a schema, or any JSON object; nothing when the request is for free text. */
void chat_set_schema(struct arena *arena, struct json *body, const struct inference_request *request);
/* A text as a list of one, where the runtime reads nothing else. */
void chat_list_texts(struct arena *arena, struct json *body, const char *name);
/* chat_template_kwargs, for requests that only count: a template makes another prompt of them. */
void chat_set_template_arguments(struct arena *arena, struct json *body, const struct inference_request *request);
/* What most such kinds refuse of what sampling.h takes: an effort that is a number, a bias that is false. */
const char *chat_refuse_sampling(const char *name, const struct json *value);
/* Words for an effort that are none of vLLM's and SGLang's. */
const char *chat_refuse_effort(const struct json *value);
/* Ours take 0 and -1 for "off"; a wire takes one of them. */
void chat_map_top_k(struct arena *arena, struct json *body, double off);

bool chat_read_event(struct answer *answer, const char *name, struct bytes data, bool *token);
bool chat_read_whole(struct answer *answer, struct bytes body);

/* GET /v1/models: ids, roots and context lengths; LoRA cards (which have a parent) are adapters of their base. */
void chat_read_models(struct bytes body, struct runtime_facts *facts);
/* GET /version. */
void chat_read_version(struct bytes body, struct runtime_facts *facts);
/* For other bodies of probes: JSON, or NULL. */
const struct json *probe_json(struct bytes body, struct runtime_facts *facts);
