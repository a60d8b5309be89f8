/* What the simulator answers: the request in a form that all kinds share, and the reply made for it.
 *
 * A kind (kind.h) turns its dialect into a struct ask and a struct reply into its dialect; everything between is here.
 * Ownership: texts lie in the exchange's arena. Pure but for the script's rule counters. Threads: loop. */
#pragma once

#include "tests/sim/script.h"
#include "workflow/base/json.h"

enum {
	TOKEN_BYTES = 4,      /* a token: 4 bytes, and the rest of the UTF-8 sequence that the fourth stands in */
	ASK_STOPS_MAX = 4,
	INSTANCE_BYTES_MAX = 64 * 1024, /* of an instance made up for a schema; beyond: {} */
	SCHEMA_DEPTH_MAX = 16,
	ANSWER_BYTES_MAX = 32 * 1024 * 1024,
};

struct ask {
	const char *model;
	struct bytes prompt; /* all texts of all messages, a newline between two */
	struct bytes section;
	bool has_section;
	bool stream, include_usage;
	uint64_t tokens_max; /* 0: no limit */
	uint64_t seed;
	const char *stops[ASK_STOPS_MAX];
	size_t stop_count;
	const struct json *schema; /* NULL: any text */
	bool json_only;            /* an object is wanted, without a schema */
};

struct reply {
	uint64_t ordinal;
	const char *model;
	struct bytes text, reasoning;
	const char *finish; /* "stop" or "length" */
	struct bytes prefix; /* the kind's own: what each of its chunks begins with */
	uint64_t prompt_tokens, text_tokens, reasoning_tokens;
};

uint64_t token_count(struct bytes text);
/* Bytes of the first `tokens` tokens. */
size_t token_bytes(struct bytes text, uint64_t tokens);

/* The bytes between the line <section> and the last line </section> behind it, without the newline next to either. */
bool ask_find_section(struct bytes message, struct bytes *section);

void answer_make(const struct script *script, const struct ask *ask, const struct fault *fault, uint64_t ordinal,
	struct arena *arena, struct reply *reply);
