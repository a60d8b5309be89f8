/* The script: what the simulator answers, how fast, and what goes wrong. README.md describes the JSON.
 *
 * Every random choice is a function of the script's seed, the ordinal of the request and what the choice is for: no
 * clock, no state, so the same script and the same order of requests give the same bytes, however the requests overlap.
 * Ownership: a script owns all its texts; script_free() ends them. Threads: loop. */
#pragma once

#include "tests/sim/options.h"
#include "workflow/base/arena.h"
#include "workflow/base/bytes.h"
#include "workflow/base/error.h"

enum {
	SCRIPT_BYTES_MAX = 8 * 1024 * 1024,
	SCRIPT_ANSWERS_MAX = 10 * 1000,
	SCRIPT_FAULTS_MAX = 10 * 1000,
	SCRIPT_SCHEDULE_MAX = 100 * 1000,
	SCRIPT_TIME_MAX_MS = 24 * 60 * 60 * 1000,
};

/* Kinds of faults; README.md says what each one does. */
#define FAULT_KINDS(X)                       \
	X(FAULT_NONE, "none")                \
	X(FAULT_REFUSE, "refuse")            \
	X(FAULT_CLOSE, "close")              \
	X(FAULT_HANG, "hang")                \
	X(FAULT_RESET, "reset")              \
	X(FAULT_STALL, "stall")              \
	X(FAULT_EOF, "eof")                  \
	X(FAULT_ERROR_EVENT, "errorEvent")   \
	X(FAULT_TRUNCATED_JSON, "truncatedJson") \
	X(FAULT_DUPLICATE_CHUNK, "duplicateChunk") \
	X(FAULT_CONTENT_TYPE, "contentType") \
	X(FAULT_NOT_JSON, "notJson")         \
	X(FAULT_CUT_TEXT, "cutText")         \
	X(FAULT_CUT_BY_LENGTH, "cutByLength") \
	X(FAULT_ABORT, "abort")              \
	X(FAULT_UNGROUNDED, "ungrounded")    \
	X(FAULT_STATUS, "status")            \
	X(FAULT_DIE, "die")

enum fault_kind {
#define X(name, text) name,
	FAULT_KINDS(X)
#undef X
	FAULT_KIND_COUNT
};
const char *fault_kind_name(enum fault_kind kind);

struct fault {
	enum fault_kind kind;
	uint64_t after_bytes; /* reset, stall, die: of the body */
	int status;           /* die: of the process */
	int retry_after; /* seconds; -1: header left out */
};

struct fault_rule {
	uint64_t *ordinals; /* with ordinal_count > 0: one of these */
	size_t ordinal_count;
	uint64_t every;    /* not 0: each request whose ordinal it divides */
	const char *match; /* not NULL: the prompt holds this text */
	uint64_t times;    /* how often it may still apply */
	struct fault fault;
};

enum answer_mode {
	MODE_EXTRACT, MODE_FIXED, MODE_WEIGHTED, MODE_SEEDED, MODE_SEED_IGNORED, MODE_COLD_FIRST, MODE_CACHE_PATH, MODE_SCHEDULE,
	MODE_RELOAD_SHIFT, MODE_COUNT
};

struct answer {
	const char *text;
	const char *reasoning; /* NULL: none */
	double weight;
};

/* Times in milliseconds. */
struct cadence {
	int first_byte_ms;    /* from the whole request to the first byte of the answer */
	int chunk_ms;         /* between two content chunks */
	int jitter_ms;        /* each of the two grows by 0 to this */
	int pause_ms;         /* once, behind the chunk that holds the middle byte of the text */
	int ping_ms;          /* not 0: a comment this often while a stream waits */
	int tokens_per_chunk;
	bool split_utf8;
};

struct script {
	struct arena arena;
	unsigned holders; /* answers under way, and the simulator itself */
	uint64_t seed;
	const char *model;
	enum answer_mode mode;
	struct answer *answers;
	size_t answer_count;
	double weight_sum;
	const struct answer *greedy; /* not NULL: what temperature 0 gets, whatever the mode */
	uint32_t *schedule;          /* indices of answers, by ordinal; the last one again and again */
	size_t schedule_count;
	struct cadence cadence;
	struct kind_options options;
	const struct json *process;  /* process.h reads it at the start; NULL: nothing out of the ordinary */
	struct fault_rule *rules;
	size_t rule_count;
};

/* What the command line says; a script that says it too wins. */
struct script_defaults {
	uint64_t seed;
	const char *model;
	int delay_ms;
	enum kind_bit kind;
	const struct kind_options *options; /* the kind's */
};

/* Unknown members are refused, so that a misspelt fault does not pass for a run without one. */
struct script *script_new(struct bytes text, const struct script_defaults *defaults, struct error *error);
/* One more holder, one less; the last one ends it. NULL is nobody's. */
struct script *script_hold(struct script *script);
void script_release(struct script *script);

/* By ordinal alone, before the request is read: true when a rule without `match` refuses it. */
bool script_refuses(struct script *script, uint64_t ordinal);
/* The first rule that fits, used up by one; kind FAULT_NONE if none does. */
struct fault script_choose_fault(struct script *script, uint64_t ordinal, struct bytes prompt);

enum random_purpose { RANDOM_ANSWER, RANDOM_FIRST_BYTE, RANDOM_CHUNK };
/* `step` counts draws of one purpose within one request. */
uint64_t random_draw(uint64_t seed, uint64_t ordinal, enum random_purpose purpose, uint64_t step);
uint64_t random_hash(uint64_t seed, struct bytes bytes);
double random_unit(uint64_t draw); /* 0 <= result < 1 */
