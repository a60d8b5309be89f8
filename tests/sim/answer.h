/* What the simulator answers: the request in a form that all kinds share, and the reply made for it.
 *
 * A kind (kind.h) turns its dialect into a struct ask and a struct reply into its dialect; everything between is here.
 * Ownership: texts lie in the exchange's arena. Pure but for the script's rule counters. Threads: loop. */
#pragma once

#include "tests/sim/script.h"
#include "workflow/base/json.h"

enum {
	TOKEN_BYTES = 4,      /* a token: 4 bytes, and the rest of the UTF-8 sequence that the fourth stands in */
	ASK_STOPS_MAX = 64,
	ASK_PROMPT_MAX = 16 * 1024 * 1024,
	INSTANCE_BYTES_MAX = 64 * 1024, /* of an instance made up for a schema; beyond: {} */
	SCHEMA_DEPTH_MAX = 16,
	ANSWER_BYTES_MAX = 32 * 1024 * 1024,
};

struct model_state;

/* Why a request gets an error, in the words of its kind. */
struct refusal {
	int status;
	const char *code;  /* the kind's own word, its type or code; NULL: it goes by the status */
	const char *param; /* the field that is wrong, or NULL */
	const char *extra; /* further members, each with a comma before it, or NULL */
};

struct ask {
	const char *model;
	struct bytes prompt; /* all texts of all messages, a newline between two */
	struct bytes section;
	bool has_section;
	bool stream, include_usage;
	uint64_t tokens_max; /* 0: no limit */
	uint64_t seed;
	bool seed_ignored;   /* the runtime takes a seed and does not use it */
	double temperature;
	uint64_t cache_salt;
	bool cache_off;      /* nothing is taken from the prefix cache for it */
	const char *stops[ASK_STOPS_MAX];
	size_t stop_count;
	bool keeps_stop;     /* the text includes the one that ended it */
	const struct json *schema; /* NULL: any text */
	bool json_only;            /* an object is wanted, without a schema */
	const char *choice;        /* one of a list is wanted: the first; NULL: no list */
	bool no_reasoning;

	const char *loads_only;    /* not an answer is wanted but the model loaded ("load") or gone ("unload"): that is the finish reason */

	/* Set while it is admitted. */
	const struct json *body;
	struct model_state *state; /* NULL: the kind knows no loading */
	bool no_load;              /* its model must be loaded already */
	bool evicts;               /* loading its model lets others go that were loaded so */
	int64_t ttl_ms;            /* of the model, after this answer; -1: never ends */
	struct refusal refusal;    /* of the error, if there is one; status 400 unless told */

	/* The kind's own. */
	int variant;
	const char *request_id;
	bool wants_token_ids, wants_prompt_text, wants_prompt_ids;
};

struct reply {
	const struct ask *ask;
	const struct script *script;
	uint64_t ordinal;
	uint64_t since_load, loads, instance; /* of the model, from 1 on; of the runtime */
	bool prompt_seen;                     /* the prefix cache had all of it */
	int slot;
	uint64_t load_ms;                     /* it was loaded for this request, so long; 0: it was not, or at once */
	bool loaded_now;

	const char *model;
	struct bytes text, reasoning;
	const char *finish;   /* "stop" or "length" */
	bool breaks_off;      /* a fault ends the stream before it is told that it is whole */
	uint64_t sent_tokens; /* in the pieces that were printed so far */
	const char *stop_hit; /* the stop string that ended it, or NULL */
	struct bytes prefix;  /* the kind's own: what each of its chunks begins with */
	uint64_t prompt_tokens, text_tokens, reasoning_tokens, cached_tokens;
};

uint64_t token_count(struct bytes text);
/* Bytes of the first `tokens` tokens. */
size_t token_bytes(struct bytes text, uint64_t tokens);
/* The number of a token: a hash of its bytes, 0 to 31,999, no vocabulary. As a JSON list. */
void print_token_ids(struct bytes text, struct buffer *out);

/* The bytes between the line <section> and the last line </section> behind it, without the newline next to either. */
bool ask_find_section(struct bytes message, struct bytes *section);

/* The texts and counts of the reply; the members before them must be set. */
void answer_make(const struct fault *fault, struct arena *arena, struct reply *reply);
