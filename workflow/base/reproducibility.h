/* How far a configuration of a runtime repeats itself, and what that measurement is worth (semantics.md 7, runtimes.md 11): what a
 * gate asks, and what follows from the answers. Pure. New here? Read gate_report(). */
#pragma once

#include "workflow/base/json.h"

enum {
	GATE_REQUESTS_DEFAULT = 20,
	GATE_REQUESTS_MAX = 1000, /* identical ones */
	GATE_SEEDS_DEFAULT = 2, /* further requests, each with another seed */
	GATE_SEEDS_MAX = 20,
	GATE_CONCURRENT_DEFAULT = 4, /* requests in flight at once, where that is a phase */
	GATE_CONCURRENT_MAX = 64,
	GATE_BETWEEN_MAX = 10, /* prompts of other requests, one of which is asked between two identical ones */
	GATE_ANSWERS_MAX = 20, /* different answers that a report shows */
	GATE_TEXT_MAX = 2000, /* bytes of an answer in a report */
	GATE_TEXTS_MAX = 3 << 19, /* ... of the answers to all asks together: escaped, and with what else is told of each, they are one value of the run */
};

/* Weakest first where one holds for another, see reproducibility_holds(). */
#define REPRODUCIBILITY_CLASSES(X)                        \
	X(CLASS_UNMEASURED, "unmeasured")                 \
	X(CLASS_REFUSED, "refused")                       \
	X(CLASS_INCONCLUSIVE, "inconclusive")             \
	X(CLASS_UNSTABLE, "unstable")                     \
	X(CLASS_SOLO_ONLY, "solo-only")                   \
	X(CLASS_JSON_STABLE, "json-stable")               \
	X(CLASS_BYTE_STABLE, "byte-stable")
enum reproducibility_class {
#define X(name, text) name,
	REPRODUCIBILITY_CLASSES(X)
#undef X
	REPRODUCIBILITY_CLASS_COUNT
};
const char *reproducibility_class_name(enum reproducibility_class class);
bool reproducibility_class_parse(const char *text, enum reproducibility_class *class); /* NULL is no class */
/* Does what was measured satisfy what is asked for? byte-stable > json-stable > unstable; solo-only is byte-stable for work that
 * has the runtime for itself, else unstable; the others satisfy nothing. */
bool reproducibility_holds(enum reproducibility_class measured, enum reproducibility_class asked_for, bool alone);

/* The upper end of the one-sided 95 % interval (Clopper and Pearson) for the rate of a different answer, when `different` of `asked`
 * were: 0 of 20 leaves 13.9 %. 1 when asked is 0. Source: C. Clopper and E. Pearson, Biometrika 26 (1934). */
double reproducibility_upper_bound(unsigned different, unsigned asked);

/* Phases that are measured where they are asked for, beside cold, warm and seed: the same request with another prompt before each; without its schema; with
 * nothing from the runtime's cache of prefixes; several of it in flight at once; and before the runtime is loaded anew, so that cold is the first one after it. */
#define GATE_PHASES "interleaved", "uncached", "withoutSchema", "concurrent", "reload"

/* The evaluated arguments of `call: reproducibility-gate`, completed, and what is to be asked in turn:
 * {"plan": {runtime, requests, seeds, messages | prompt | section, schema?, sampling?, between?, phases?, concurrent?}, "asks": [{phase, index, last?}…]}.
 * phase: "cold" (the first of the identical ones), "warm", "seed", "between". NULL: error says which argument is wrong.
 * With `phases` (also none of them) instead of asks {"groups": [[ask…]…]}, one group after the other, what is in one of them at once; and the phases "before"
 * (a reload, then cold has reload: true), "interleaved", "uncached", "withoutSchema" and "concurrent". */
const struct json *gate_plan(struct arena *arena, const struct json *with, struct error *error);

/* Bytes of each answer that are kept, given the plan: GATE_TEXT_MAX, less where it asks so often that they would be more than GATE_TEXTS_MAX. */
size_t gate_text_max(const struct json *plan);

/* What the asks gave, in the order of the plan, as a list or a list of groups, each {phase, index, outcome ("answered", or the class of the failure), detail?, text, textDigest, jsonDigest?,
 * tokens?, cachedTokens?, cacheBypass? (how it was asked past the cache), seeded (a seed was sent, and the sampling is not greedy), runtime, model?, configuration?, sampling?, schema, instance?, instanceBasis?, simulated?}.
 * The report (openapi.yaml, Gate): counts, class with its reason, bound, lengths, answers, phases, verdicts, conditions. wall_ms: measuredOn. */
const struct json *gate_report(struct arena *arena, const struct json *asks, int64_t wall_ms);
