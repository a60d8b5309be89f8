/* Classes of refused starts: each row of the runtimes' own texts, and the line that is kept. Pure. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activities/refusal.h"
#include "workflow/base/check.h"
#include "workflow/base/json.h"

#define WRAPPER "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"

static void classify_text(const char *text, struct refusal *refusal)
{
	static struct bytes lines[2 * REFUSAL_LINES_MAX];
	size_t count = 0;

	while (*text != '\0') {
		size_t len = strcspn(text, "\n");

		ck_assert_uint_lt(count, COUNT_OF(lines));
		lines[count++] = (struct bytes){(const uint8_t *)text, len};
		text += len + (text[len] == '\n');
	}
	refusal_classify(lines, count, refusal);
	ck_assert(utf8_valid(bytes_text(refusal->line), NULL));
}

static const struct {
	const char *line;
	enum refusal_class class;
} cases[] = {
	/* vLLM */
	{"ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. Reason: ['batch invariance not supported']", REFUSAL_BATCH_INVARIANCE_ATTENTION},
	{"ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=128). Reasons: {FLASHINFER: [batch invariance not supported]}.", REFUSAL_BATCH_INVARIANCE_ATTENTION},
	{"RuntimeError: VLLM batch_invariant mode requires an attention backend in ['FLASH_ATTN', 'TRITON_MLA'], but got 'None'", REFUSAL_BATCH_INVARIANCE_ATTENTION},
	{"ValueError: NvFp4 MoE backend 'MARLIN' does not support the deployment configuration since kernel does not support batch invariance.", REFUSAL_BATCH_INVARIANCE_MOE},
	{"ValueError: Mxfp4 MoE backend 'MARLIN' does not support the deployment configuration since kernel does not support batch invariance.", REFUSAL_BATCH_INVARIANCE_MOE},
	{"ValueError: Unquantized MoE backend 'FLASHINFER_CUTLASS' does not support the deployment configuration since kernel does not support batch invariance.", REFUSAL_BATCH_INVARIANCE_MOE},
	{"RuntimeError: VLLM batch_invariant mode is not supported for MAMBA2_ATTN.", REFUSAL_BATCH_INVARIANCE_RECURRENT},
	{"RuntimeError: VLLM batch_invariant mode is not supported for GDN_ATTN.", REFUSAL_BATCH_INVARIANCE_RECURRENT},
	{"NotImplementedError: No NvFp4 MoE backend supports the deployment configuration.", REFUSAL_NO_KERNEL},
	{"ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. Reason: ['compute capability not supported']", REFUSAL_NO_KERNEL},
	{"ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=128). Reasons: {FLASH_ATTN: [head_size not supported]}.", REFUSAL_NO_KERNEL},
	{"ValueError: Free memory on device cuda:0 (3.2/23.4 GiB) on startup is less than desired GPU memory utilization (0.96, 22.5 GiB).", REFUSAL_GPU_BUSY},
	{"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.", REFUSAL_TOO_LITTLE_KV_MEMORY},
	{"ValueError: To serve at least one request with the models's max seq len (262144), (12.0 GiB KV cache is needed, which is larger than the available KV cache memory (3.1 GiB).", REFUSAL_TOO_LITTLE_KV_MEMORY},
	{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", REFUSAL_OUT_OF_MEMORY},
	{"torch.cuda.OutOfMemoryError: CUDA out of memory.", REFUSAL_OUT_OF_MEMORY},
	{"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", REFUSAL_OUT_OF_MEMORY},
	{"RuntimeError: UVA is not available", REFUSAL_UNSUPPORTED},
	{"vllm: error: unrecognized arguments: --no-such", REFUSAL_BAD_ARGUMENTS},
	{"vllm serve: error: the following arguments are required: --model", REFUSAL_BAD_ARGUMENTS},
	{"vllm: error: argument --seed: invalid int value: 'x'", REFUSAL_BAD_ARGUMENTS},
	{"pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig", REFUSAL_BAD_ARGUMENTS},
	{"pydantic_core._pydantic_core.ValidationError: 2 validation errors for VllmConfig", REFUSAL_BAD_ARGUMENTS},
	/* llama.cpp */
	{"llama_model_load: error loading model: tensor 'blk.0.attn_q.weight' data is not within the file bounds", REFUSAL_MODEL_NOT_LOADED},
	{"ggml_backend_cuda_buffer_type_alloc_buffer: failed to allocate CUDA0 buffer of size 4194304", REFUSAL_OUT_OF_MEMORY},
	{"ggml: failed to allocate ROCm0 buffer", REFUSAL_OUT_OF_MEMORY},
	{"srv    load_model: unable to load model", REFUSAL_MODEL_NOT_LOADED},
	{"common_init_from_params: failed to create context with model '/m.gguf'", REFUSAL_OUT_OF_MEMORY},
	{"error: invalid argument: --no-such", REFUSAL_BAD_ARGUMENTS},
	{"main: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", REFUSAL_ADDRESS_IN_USE},
	/* LM Studio */
	{"Model loading aborted due to insufficient system resources. Overloading the system will likely cause it to freeze.", REFUSAL_OUT_OF_MEMORY},
	{"Model loading was stopped due to insufficient system resources under the current settings.", REFUSAL_OUT_OF_MEMORY},
	{"error loading model: unable to allocate CUDA0 buffer", REFUSAL_OUT_OF_MEMORY},
	{"Failed to load model", REFUSAL_MODEL_NOT_LOADED},
	/* SGLang */
	{"ValueError: Currently only ['flashinfer', 'fa3', 'triton'] attention backends are supported for deterministic inference, but you explicitly specified 'torch_native'.", REFUSAL_BATCH_INVARIANCE_ATTENTION},
	/* Ollama, and any */
	{"Error: listen tcp 127.0.0.1:11434: bind: address already in use", REFUSAL_ADDRESS_IN_USE},
	{"Error: unknown flag: --no-such", REFUSAL_BAD_ARGUMENTS},
	{"OSError: [Errno 98] Address already in use", REFUSAL_ADDRESS_IN_USE},
	{"ModuleNotFoundError: No module named 'vllm'", REFUSAL_UNSUPPORTED},
	{"/opt/llama-server: error while loading shared libraries: libcudart.so.12: cannot open shared object file", REFUSAL_UNSUPPORTED},
	{"RuntimeError: CUDA error: no kernel image is available for execution on the device", REFUSAL_NO_KERNEL},
	{"Error 803: CUDA driver version is insufficient for CUDA runtime version", REFUSAL_UNSUPPORTED},
	{"RuntimeError: HIP out of memory. Tried to allocate 20.00 MiB", REFUSAL_OUT_OF_MEMORY},
	{"CUDA error: out of memory", REFUSAL_OUT_OF_MEMORY},
	{"terminate called after throwing an instance of 'std::bad_alloc'", REFUSAL_OUT_OF_MEMORY},
	{"OSError: [Errno 12] Cannot allocate memory", REFUSAL_OUT_OF_MEMORY},
	{"NotImplementedError: this quantisation on this device", REFUSAL_UNSUPPORTED},
	{"jax.errors.OutOfMemoryError: 3 GiB", REFUSAL_OUT_OF_MEMORY},
};

/* Each text is told by its class, and the line is kept: alone, and with 250 lines and vLLM's wrapper behind it. */
START_TEST(every_row_is_known)
{
	const char *line = cases[_i].line;
	struct refusal refusal;
	struct buffer text;

	classify_text(line, &refusal);
	ck_assert_str_eq(refusal_name(refusal.class), refusal_name(cases[_i].class));
	ck_assert_str_eq(refusal.line, line);
	buffer_init(&text, 1 << 20);
	buffer_printf(&text, "INFO vLLM server version 0.29.0\n(EngineCore pid=77) %s\n", line);
	for (int i = 0; i < 250; i++)
		buffer_printf(&text, "(APIServer pid=70)   File \"core.py\", line %d, in start\n", i);
	buffer_printf(&text, "(APIServer pid=70) %s\n\n", WRAPPER);
	classify_text(buffer_text(&text), &refusal);
	ck_assert_str_eq(refusal_name(refusal.class), refusal_name(cases[_i].class));
	ck_assert_str_eq(refusal.line, line);
	buffer_close(&text);
}
END_TEST

/* What is not known has the last exception above the wrapper as its cause, else the last complaint, else the last line. */
START_TEST(the_likeliest_line_is_kept)
{
	struct refusal refusal;

	classify_text("Traceback:\n(EngineCore pid=7) KeyError: 'rope'\nnoise\n(APIServer pid=7) " WRAPPER "\n", &refusal);
	ck_assert_int_eq(refusal.class, REFUSAL_UNKNOWN);
	ck_assert_str_eq(refusal.line, "KeyError: 'rope'");
	classify_text("loading\nfatal: no such thing\nbye\n" WRAPPER, &refusal);
	ck_assert_str_eq(refusal.line, "fatal: no such thing");
	classify_text("one\ntwo\n \n" WRAPPER, &refusal);
	ck_assert_str_eq(refusal.line, "two");
	classify_text("", &refusal);
	ck_assert_int_eq(refusal.class, REFUSAL_UNKNOWN);
	ck_assert_str_eq(refusal.line, "");
}
END_TEST

/* A cause that says more goes before one that says less, wherever they stand. */
START_TEST(the_most_telling_line_counts)
{
	struct refusal refusal;

	classify_text("error loading model: unable to allocate CUDA0 buffer\nsrv load_model: unable to load model\n", &refusal);
	ck_assert_int_eq(refusal.class, REFUSAL_OUT_OF_MEMORY);
	classify_text("unable to load model\nggml: failed to allocate CUDA0 buffer of size 4\n", &refusal);
	ck_assert_int_eq(refusal.class, REFUSAL_OUT_OF_MEMORY);
}
END_TEST

/* Of more lines than REFUSAL_LINES_MAX the last count, and of a line its first REFUSAL_LINE_MAX bytes, cut between characters. */
START_TEST(limits)
{
	struct buffer text;
	struct refusal refusal;
	char line[REFUSAL_LINE_MAX + 100];

	for (int more = 0; more < 2; more++) {
		buffer_init(&text, 1 << 20);
		buffer_add_text(&text, "RuntimeError: UVA is not available\n");
		for (int i = 1; i < REFUSAL_LINES_MAX + more; i++)
			buffer_add_text(&text, "noise\n");
		classify_text(buffer_text(&text), &refusal);
		ck_assert_int_eq(refusal.class, more ? REFUSAL_UNKNOWN : REFUSAL_UNSUPPORTED);
		buffer_close(&text);
	}
	memset(line, 'x', sizeof(line));
	memcpy(line + REFUSAL_LINE_MAX - 1, "\xc3\xa4", 2);
	line[sizeof(line) - 1] = '\0';
	classify_text(line, &refusal);
	ck_assert_uint_eq(strlen(refusal.line), REFUSAL_LINE_MAX - 1);
	classify_text("\xff\x01 broken \xc3", &refusal);
	ck_assert_str_eq(refusal.line, "?  broken ?");
}
END_TEST

/* Every class has a name of its own, and what attempts get for it ends them. */
START_TEST(classes_are_whole)
{
	for (int i = 0; i < REFUSAL_CLASS_COUNT; i++) {
		ck_assert_ptr_nonnull(refusal_name((enum refusal_class)i));
		ck_assert(!failure_may_retry(refusal_failure((enum refusal_class)i)));
		for (int j = 0; j < i; j++)
			ck_assert_str_ne(refusal_name((enum refusal_class)i), refusal_name((enum refusal_class)j));
	}
	ck_assert(refusal_may_pass(REFUSAL_GPU_BUSY));
	ck_assert(!refusal_may_pass(REFUSAL_BATCH_INVARIANCE_MOE));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("refusal");
	TCase *all = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(all, every_row_is_known, 0, (int)COUNT_OF(cases));
	tcase_add_test(all, the_likeliest_line_is_kept);
	tcase_add_test(all, the_most_telling_line_counts);
	tcase_add_test(all, limits);
	tcase_add_test(all, classes_are_whole);
	suite_add_tcase(suite, all);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
