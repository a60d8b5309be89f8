/* The refusals that are known of each runtime. Pure. */
#include "tests/sim/refusals.h"

#include <string.h>

#include "workflow/base/check.h"

static const struct refusal_row rows[] = {
	/* vLLM under VLLM_BATCH_INVARIANT=1: three types of exceptions. */
	{"attentionBackend", KIND_VLLM, "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. "
		"Reason: ['batch invariance not supported']", NULL, false, 1},
	{"attention", KIND_VLLM, "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=128, "
		"dtype=torch.bfloat16). Reasons: {FLASHINFER: [batch invariance not supported], FLASHMLA: [batch invariance not supported]}.",
		NULL, false, 1},
	{"moe", KIND_VLLM, "ValueError: NvFp4 MoE backend 'MARLIN' does not support the deployment configuration since kernel does not support "
		"batch invariance.", NULL, false, 1},
	{"w4a16", KIND_VLLM, "ValueError: NvFp4 MoE backend 'MARLIN' does not support the deployment configuration since kernel does not support "
		"batch invariance.", "Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN'] (weight-only W4A16)", false, 1},
	{"noMoe", KIND_VLLM, "NotImplementedError: No NvFp4 MoE backend supports the deployment configuration.", NULL, false, 1},
	{"recurrent", KIND_VLLM, "RuntimeError: VLLM batch_invariant mode is not supported for MAMBA2_ATTN.", NULL, false, 1},
	{"backendRequired", KIND_VLLM, "RuntimeError: VLLM batch_invariant mode requires an attention backend in ['FLASH_ATTN', 'TRITON_ATTN', "
		"'FLASH_ATTN_MLA', 'TRITON_MLA'], but got 'None'. Please use --attention-backend to set it.", NULL, false, 1},
	/* vLLM, whatever the mode. */
	{"gpuBusy", KIND_VLLM, "ValueError: Free memory on device cuda:0 (3.2/23.4 GiB) on startup is less than desired GPU memory utilization "
		"(0.96, 22.5 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.", NULL, false, 1},
	{"cacheMemory", KIND_VLLM, "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
		"the engine.", NULL, false, 1},
	{"outOfMemory", KIND_VLLM, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 23.40 GiB "
		"of which 612.00 MiB is free.", NULL, false, 1},
	{"uva", KIND_VLLM, "RuntimeError: UVA is not available", NULL, false, 1},
	{"arguments", KIND_VLLM, "vllm: error: unrecognized arguments: --nonsense", "usage: vllm serve [model_tag] [options]", true, 2},
	{"validation", KIND_VLLM, "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig", NULL, true, 1},
	/* SGLang with --enable-deterministic-inference, and without. */
	{"deterministicBackend", KIND_SGLANG, "ValueError: Currently only ['flashinfer', 'fa3', 'triton'] attention backends are supported for "
		"deterministic inference, but you explicitly specified 'torch_native'.", NULL, false, 1},
	{"deterministicSpeculation", KIND_SGLANG, "ValueError: Speculative decoding with rejection sampling is not supported with deterministic "
		"inference.", NULL, false, 1},
	{"outOfMemory", KIND_SGLANG | KIND_TRANSFORMERS, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB.", NULL, false, 1},
	/* llama.cpp. */
	{"model", KIND_LLAMACPP, "srv    load_model: failed to load model, '/models/simulated.gguf'",
		"llama_model_load: error loading model: llama_model_loader: failed to load model from /models/simulated.gguf", false, 1},
	{"outOfMemory", KIND_LLAMACPP, "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
		"alloc_tensor_range: failed to allocate CUDA0 buffer of size 18874368000", false, 1},
	{"context", KIND_LLAMACPP, "common_init_from_params: failed to create context with model '/models/simulated.gguf'",
		"llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache", false, 1},
	/* LM Studio and Ollama. */
	{"resources", KIND_LMSTUDIO, "Error: Model loading was stopped due to insufficient system resources. Under the current settings, this model "
		"requires approximately 18.00 GB of memory.", NULL, false, 1},
	{"outOfMemory", KIND_LMSTUDIO, "Error: error loading model: unable to allocate CUDA0 buffer", NULL, false, 1},
	{"portTaken", KIND_OLLAMA, "Error: listen tcp 127.0.0.1:11434: bind: address already in use", NULL, true, 1},
};

const struct refusal_row *refusal_find(const char *name, enum kind_bit kind)
{
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if ((rows[i].kinds & (unsigned)kind) != 0 && strcmp(rows[i].name, name) == 0)
			return &rows[i];
	}
	return NULL;
}
