/* Which kernels a launched runtime chose, as its log tells at the start (runtimes.md 3d, 4a, 10): most say so nowhere else, and another choice gives other answers.
 * Pure. */
#pragma once

#include "workflow/base/json.h"

enum {
	KERNELS_NAMES = 3,
	KERNELS_TEXTS_MAX = 4, /* of one name: layers of several kinds choose for themselves */
	KERNELS_TEXT_LEN_MAX = 200, /* bytes of each; the rest of a longer one is left out */
};

enum { EVIDENCE_LINES_MAX = 4, EVIDENCE_LINE_LEN_MAX = 1000 /* bytes of each; the same */ };

/* A line that is worth keeping as evidence of what was really started: vLLM's version, its arguments that are no defaults, what the model takes. Added to the list, from
 * where it begins to tell, secrets as "(set)", each once. False: nothing, as above. */
bool kernels_read_evidence(struct arena *arena, struct bytes line, struct json *lines);

/* What a line of the log tells is added: {"attention": ["FLASH_ATTN"], "moe": ["MARLIN NvFp4"], "systemInfo": ["…"]}, sorted, each once, so that the order in which the
 * processes of a runtime tell it makes no difference. False: nothing, and the arena holds no more than before. */
bool kernels_read_line(struct arena *arena, struct bytes line, struct json *kernels);
