/* What runtimes answer: the first byte chooses the adapter, the second what it is taken for (an event, a whole answer, an error, a probe, a
 * count, a GGUF header), the rest are the bytes. */
#include <stdio.h>
#include <string.h>

#include "activities/adapter.h"
#include "activities/gguf.h"
#include "workflow/base/check.h"

static void read_probe(const struct runtime_adapter *adapter, unsigned which, struct arena *arena, struct bytes body)
{
	const struct adapter_probe *probe = &adapter->probes[which % ADAPTER_PROBES_MAX];
	struct runtime_facts facts = {.arena = arena, .wanted = "m"};

	if (probe->path == NULL || probe->read == NULL)
		return;
	probe->read(body, &facts);
	if (facts.fields != NULL)
		json_digest(facts.fields);
	models_find(facts.models, "m");
}

static void read_count(const struct runtime_adapter *adapter, unsigned which, struct arena *arena, struct bytes body)
{
	const struct adapter_count *step = &adapter->count[which % ADAPTER_COUNT_STEPS_MAX];
	const char *text = NULL;
	double tokens = 0;

	if (step->path != NULL)
		step->read(arena, body, &text, &tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct runtime_adapter *const adapters[] = {&openai_adapter, &vllm_adapter, &llamacpp_adapter, &ollama_adapter, &sglang_adapter, &lmstudio_adapter};
	const struct runtime_adapter *adapter;
	struct weights_header header = {0};
	struct answer answer;
	struct arena arena;
	struct bytes body;
	FILE *file;
	bool token;

	if (size < 3)
		return 0;
	adapter = adapters[data[0] % COUNT_OF(adapters)];
	body = (struct bytes){data + 2, size - 2};
	arena_init(&arena);
	answer_init(&answer);
	switch (data[1] % 16) {
	case 0:
		adapter->read_event(&answer, "", body, &token);
		break;
	case 1:
		adapter->read_whole(&answer, body);
		break;
	case 2:
		adapter->read_failure(&answer, 400 + data[0], body);
		break;
	case 3:
		file = fmemopen((void *)body.data, body.len, "r");
		CHECK(file != NULL);
		gguf_read(file, &header);
		fclose(file);
		break;
	case 4:
		read_count(adapter, data[1] / 16, &arena, body);
		break;
	default:
		read_probe(adapter, data[1] % 16, &arena, body);
	}
	CHECK(answer.failure == FAILURE_NONE || answer.detail[0] != '\0');
	answer_close(&answer);
	arena_close(&arena);
	return 0;
}
