/* See refusal.h. Start at refusal_classify(). */
#include "activities/refusal.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/json.h"

enum { PARTS_MAX = 4 };

struct class_row {
	const char *name;
	bool may_pass;
	enum failure_class failure;
};

static const struct class_row classes[REFUSAL_CLASS_COUNT] = {
#define X(class, text, again, failure) [class] = {text, again, failure},
	REFUSAL_CLASSES(X)
#undef X
};

/* A line fits when it has all parts, one behind the other. Rows that say more stand before those that say less. */
struct row {
	enum refusal_class class;
	const char *parts[PARTS_MAX]; /* up to NULL */
	const char *advice;
};

#define ADVICE_ATTENTION "choose an attention backend that supports it (FLASH_ATTN, TRITON_ATTN), or start without batch invariance"
#define ADVICE_MOE "choose a MoE backend that supports it (Triton experts), or start without batch invariance"
#define ADVICE_MEMORY "free memory on the device, or ask for less: a smaller context, fewer slots, a smaller model"

static const struct row rows[] = {
	/* vLLM (3d). W4A16 under batch invariance shows as one of the MoE rows, or as no kernel. */
	{REFUSAL_BATCH_INVARIANCE_ATTENTION, {"Selected backend ", " is not valid for this configuration", "batch invariance not supported"}, ADVICE_ATTENTION},
	{REFUSAL_BATCH_INVARIANCE_ATTENTION, {"No valid attention backend found for ", "batch invariance not supported"}, ADVICE_ATTENTION},
	{REFUSAL_BATCH_INVARIANCE_MOE, {" MoE backend '", "does not support the deployment configuration since kernel does not support batch invariance"}, ADVICE_MOE},
	{REFUSAL_BATCH_INVARIANCE_RECURRENT, {"VLLM batch_invariant mode is not supported for "}, "this model has recurrent layers: start without batch invariance"},
	{REFUSAL_BATCH_INVARIANCE_ATTENTION, {"VLLM batch_invariant mode requires an attention backend in "}, "name one of these with --attention-backend"},
	/* SGLang (7e): its deterministic mode is the same demand. */
	{REFUSAL_BATCH_INVARIANCE_ATTENTION, {"Currently only ", " attention backends are supported for deterministic inference"}, "name one of these with --attention-backend"},
	{REFUSAL_NO_KERNEL, {" MoE backend supports the deployment configuration"}, "VLLM_LOGGING_LEVEL=DEBUG tells the reason of each backend"},
	{REFUSAL_NO_KERNEL, {"No valid attention backend found for "}, "VLLM_LOGGING_LEVEL=DEBUG tells the reason of each backend"},
	{REFUSAL_NO_KERNEL, {"Selected backend ", " is not valid for this configuration"}, "choose another attention backend"},
	{REFUSAL_NO_KERNEL, {"no kernel image is available for execution on the device"}, "this build has no code for the GPU: use one that was built for it"},
	{REFUSAL_GPU_BUSY, {"Free memory on device ", " is less than desired GPU memory utilization"}, "something else holds the GPU's memory: stop it, or lower --gpu-memory-utilization"},
	{REFUSAL_TOO_LITTLE_KV_MEMORY, {"No available memory for the cache blocks"}, "raise --gpu-memory-utilization, or lower the context length"},
	{REFUSAL_TOO_LITTLE_KV_MEMORY, {"KV cache is needed, which is larger than the available KV cache memory"}, "lower the context length, or raise --gpu-memory-utilization"},
	{REFUSAL_UNSUPPORTED, {"UVA is not available"}, "under WSL2 set VLLM_WSL2_ENABLE_PIN_MEMORY=1"},
	/* LM Studio (5d); before "out of memory", which says less. */
	{REFUSAL_OUT_OF_MEMORY, {"Model loading ", "due to insufficient system resources"}, ADVICE_MEMORY},
	{REFUSAL_OUT_OF_MEMORY, {"error loading model: unable to allocate"}, ADVICE_MEMORY},
	/* llama.cpp (4d), CUDA, ROCm. */
	{REFUSAL_OUT_OF_MEMORY, {"failed to allocate ", " buffer"}, ADVICE_MEMORY},
	{REFUSAL_OUT_OF_MEMORY, {"torch.OutOfMemoryError"}, ADVICE_MEMORY},
	{REFUSAL_OUT_OF_MEMORY, {"OutOfMemoryError: "}, ADVICE_MEMORY},
	{REFUSAL_OUT_OF_MEMORY, {"CUDA out of memory"}, ADVICE_MEMORY},
	{REFUSAL_OUT_OF_MEMORY, {"CUDA error: out of memory"}, ADVICE_MEMORY},
	{REFUSAL_OUT_OF_MEMORY, {"HIP out of memory"}, ADVICE_MEMORY},
	{REFUSAL_OUT_OF_MEMORY, {"std::bad_alloc"}, ADVICE_MEMORY},
	{REFUSAL_OUT_OF_MEMORY, {"Cannot allocate memory"}, ADVICE_MEMORY},
	{REFUSAL_BAD_ARGUMENTS, {"unrecognized arguments:"}, "see launch.argv"},
	{REFUSAL_BAD_ARGUMENTS, {"the following arguments are required:"}, "see launch.argv"},
	{REFUSAL_BAD_ARGUMENTS, {"error: argument "}, "see launch.argv"},
	{REFUSAL_BAD_ARGUMENTS, {"error: invalid argument:"}, "see launch.argv"},
	{REFUSAL_BAD_ARGUMENTS, {"validation error", " for ModelConfig"}, "see launch.argv"},
	{REFUSAL_BAD_ARGUMENTS, {"validation error", " for VllmConfig"}, "see launch.argv"},
	{REFUSAL_BAD_ARGUMENTS, {"unknown flag: "}, "see launch.argv"},
	{REFUSAL_ADDRESS_IN_USE, {"ddress already in use"}, "something else listens there: stop it, or give this runtime another port, and its url too"},
	{REFUSAL_ADDRESS_IN_USE, {"couldn't bind HTTP server socket"}, "something else listens there: stop it, or give this runtime another port, and its url too"},
	{REFUSAL_UNSUPPORTED, {"CUDA driver version is insufficient"}, "the GPU's driver is older than this build needs"},
	{REFUSAL_UNSUPPORTED, {"ModuleNotFoundError: "}, "the runtime's own installation is not complete"},
	{REFUSAL_UNSUPPORTED, {"error while loading shared libraries: "}, "the runtime's own installation is not complete; launch.inherit may have to name LD_LIBRARY_PATH"},
	{REFUSAL_UNSUPPORTED, {"NotImplementedError: "}, NULL},
	{REFUSAL_MODEL_NOT_LOADED, {"error loading model"}, "is the model's file there, whole, and of a kind that this build knows?"},
	{REFUSAL_MODEL_NOT_LOADED, {"unable to load model"}, "is the model's file there, whole, and of a kind that this build knows?"},
	{REFUSAL_MODEL_NOT_LOADED, {"Failed to load model"}, "is the model's file there, whole, and of a kind that this build knows?"},
	{REFUSAL_OUT_OF_MEMORY, {"failed to create context"}, ADVICE_MEMORY},
};

static const char wrapper[] = "Engine core initialization failed";

const char *refusal_name(enum refusal_class class)
{
	CHECK((unsigned)class < REFUSAL_CLASS_COUNT);
	return classes[class].name;
}

bool refusal_may_pass(enum refusal_class class)
{
	CHECK((unsigned)class < REFUSAL_CLASS_COUNT);
	return classes[class].may_pass;
}

enum failure_class refusal_failure(enum refusal_class class)
{
	CHECK((unsigned)class < REFUSAL_CLASS_COUNT);
	return classes[class].failure;
}

static bool has_parts(struct bytes line, const char *const *parts)
{
	for (size_t i = 0; i < PARTS_MAX && parts[i] != NULL; i++) {
		size_t len = strlen(parts[i]);
		const uint8_t *found = memmem(line.data, line.len, parts[i], len);

		if (found == NULL)
			return false;
		line.len -= (size_t)(found - line.data) + len;
		line.data = found + len;
	}
	return true;
}

static bool has(struct bytes line, const char *text)
{
	return memmem(line.data, line.len, text, strlen(text)) != NULL;
}

/* "(EngineCore pid=77) " once or more, and blanks. */
static struct bytes cut_prefixes(struct bytes line)
{
	for (;;) {
		const uint8_t *end;

		while (line.len > 0 && (line.data[0] == ' ' || line.data[0] == '\t')) {
			line.data++;
			line.len--;
		}
		end = line.len > 0 && line.data[0] == '(' ? memchr(line.data, ')', line.len) : NULL;
		if (end == NULL || memmem(line.data, (size_t)(end - line.data), " pid=", 5) == NULL)
			return line;
		line.len -= (size_t)(end + 1 - line.data);
		line.data = end + 1;
	}
}

/* Logs are bytes of anybody: the line becomes JSON and is shown to people. */
static void keep_line(struct refusal *refusal, struct bytes line)
{
	size_t len;
	bool valid;

	line = cut_prefixes(line);
	len = line.len < REFUSAL_LINE_MAX ? line.len : REFUSAL_LINE_MAX;
	while (len < line.len && len > 0 && (line.data[len] & 0xc0) == 0x80) /* within a character */
		len--;
	valid = utf8_valid((struct bytes){line.data, len}, NULL);
	for (size_t i = 0; i < len; i++) {
		uint8_t c = line.data[i];

		refusal->line[i] = c < ' ' || c == 0x7f ? ' ' : c >= 0x80 && !valid ? '?' : (char)c;
	}
	while (len > 0 && refusal->line[len - 1] == ' ')
		len--;
	refusal->line[len] = '\0';
}

/* "SomethingError: text": a line of a traceback that tells something. */
static bool is_exception(struct bytes line)
{
	return (has(line, "Error: ") || has(line, "Exception: ")) && !has(line, wrapper);
}

static bool is_complaint(struct bytes line)
{
	return (has(line, "rror") || has(line, "ERROR") || has(line, "ailed") || has(line, "atal")) && !has(line, wrapper);
}

static bool is_text(struct bytes line)
{
	return cut_prefixes(line).len > 0 && !has(line, wrapper);
}

/* Nothing known: the last line that looks most like a cause. */
static void keep_likeliest(struct refusal *refusal, const struct bytes *lines, size_t count)
{
	static bool (*const looks[])(struct bytes line) = {is_exception, is_complaint, is_text};

	for (size_t i = 0; i < COUNT_OF(looks); i++)
		for (size_t j = count; j > 0; j--)
			if (looks[i](lines[j - 1])) {
				keep_line(refusal, lines[j - 1]);
				return;
			}
}

void refusal_classify(const struct bytes *lines, size_t count, struct refusal *refusal)
{
	*refusal = (struct refusal){.class = REFUSAL_UNKNOWN};
	if (count > REFUSAL_LINES_MAX) {
		lines += count - REFUSAL_LINES_MAX;
		count = REFUSAL_LINES_MAX;
	}
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		for (size_t j = 0; j < count; j++)
			if (has_parts(lines[j], rows[i].parts)) {
				refusal->class = rows[i].class;
				refusal->advice = rows[i].advice;
				keep_line(refusal, lines[j]); /* the first one: it is told again on its way up */
				return;
			}
	keep_likeliest(refusal, lines, count);
}
