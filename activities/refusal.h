/* Why a runtime would not start, out of its last log lines: a class, and the line that tells the cause (runtimes.md 3d, 4d, 5d, 7).
 *
 * The last exception of a log is mostly a wrapper ("Engine core initialization failed. See root cause above"), and the type of the one that
 * counts says nothing (vLLM refuses batch invariance with three types): what is looked for is text, over all lines, the most telling first.
 * Pure. New here? Read the table in refusal.c. */
#pragma once

#include "workflow/base/bytes.h"
#include "workflow/base/failure.h"

enum {
	REFUSAL_LINES_MAX = 400, /* log lines that are looked at; the cause may stand 250 above the end */
	REFUSAL_LINE_MAX = 400, /* bytes kept of the line that tells the cause */
};

/* Columns: name, text, may a further start help?, class of the attempts that wait for the runtime. */
#define REFUSAL_CLASSES(X)                                                                   \
	X(REFUSAL_UNKNOWN, "unknown", true, FAILURE_REFUSED)                                 \
	X(REFUSAL_BATCH_INVARIANCE_ATTENTION, "batch-invariance-attention", false, FAILURE_REFUSED) \
	X(REFUSAL_BATCH_INVARIANCE_MOE, "batch-invariance-moe", false, FAILURE_REFUSED)      \
	X(REFUSAL_BATCH_INVARIANCE_RECURRENT, "batch-invariance-recurrent", false, FAILURE_REFUSED) \
	X(REFUSAL_NO_KERNEL, "no-kernel", false, FAILURE_REFUSED)                            \
	X(REFUSAL_GPU_BUSY, "gpu-busy", true, FAILURE_REFUSED)                               \
	X(REFUSAL_OUT_OF_MEMORY, "out-of-memory", true, FAILURE_REFUSED)                     \
	X(REFUSAL_TOO_LITTLE_KV_MEMORY, "too-little-kv-memory", false, FAILURE_REFUSED)      \
	X(REFUSAL_MODEL_NOT_LOADED, "model-not-loaded", false, FAILURE_CONFIGURATION)        \
	X(REFUSAL_BAD_ARGUMENTS, "bad-arguments", false, FAILURE_CONFIGURATION)              \
	X(REFUSAL_UNSUPPORTED, "unsupported", false, FAILURE_REFUSED)                        \
	X(REFUSAL_ADDRESS_IN_USE, "address-in-use", true, FAILURE_CONFIGURATION)             \
	X(REFUSAL_NOT_STARTED, "not-started", false, FAILURE_CONFIGURATION)                  \
	X(REFUSAL_NOT_READY, "not-ready", true, FAILURE_REFUSED)

enum refusal_class {
#define X(name, text, again, failure) name,
	REFUSAL_CLASSES(X)
#undef X
	REFUSAL_CLASS_COUNT
};

struct refusal {
	enum refusal_class class;
	char line[REFUSAL_LINE_MAX + 1]; /* valid UTF-8 without control characters, without the prefixes of the log; "" when there was none */
	const char *advice; /* what to do about it, or NULL */
};

const char *refusal_name(enum refusal_class class);
bool refusal_may_pass(enum refusal_class class); /* the same start may do better later */
enum failure_class refusal_failure(enum refusal_class class);
/* Lines oldest first, without line ends. Of more than REFUSAL_LINES_MAX the last ones count. */
void refusal_classify(const struct bytes *lines, size_t count, struct refusal *refusal);
