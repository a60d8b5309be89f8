/* See reproducibility.h. Pure. */
#include "workflow/base/reproducibility.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/failure.h"
#include "workflow/base/time.h"

/* What is asked when nothing is given: an extraction from a section of the kind that extractions ask about, whose facts an answer may word in
 * more than one way. */
static const char default_section[] =
	"# Northlight Instruments\n\n"
	"Northlight Instruments was founded in Tromsø by Ingrid Solberg and two colleagues from the observatory. The company moved to Bergen, where it is located "
	"in a former cannery, and it acquired the lens maker Havblikk. Solberg leads the company; its first telescope, the Polaris 80, was released in the same "
	"year and costs 1,290 euros. It measures 62 centimetres and uses a mirror of borosilicate glass. The optics group is part of the production department, "
	"and the head of the group reports to Marit Dahl. According to the annual report the Polaris 80 was the best-selling model, but the firm plans to replace "
	"it, and a successor may be announced.\n";

/* Asked in between where nobody says what: it fills a cache with something else. */
static const char default_between[] = "Name three rivers of Norway, and say of each where it ends.";

static const char *const class_names[REPRODUCIBILITY_CLASS_COUNT] = {
#define X(name, text) [name] = text,
	REPRODUCIBILITY_CLASSES(X)
#undef X
};

const char *reproducibility_class_name(enum reproducibility_class class)
{
	CHECK(class >= 0 && class < REPRODUCIBILITY_CLASS_COUNT);
	return class_names[class];
}

bool reproducibility_class_parse(const char *text, enum reproducibility_class *class)
{
	for (int i = 0; text && i < REPRODUCIBILITY_CLASS_COUNT; i++) {
		if (strcmp(class_names[i], text) == 0) {
			*class = (enum reproducibility_class)i;
			return true;
		}
	}
	return false;
}

bool reproducibility_holds(enum reproducibility_class measured, enum reproducibility_class asked_for, bool alone)
{
	if (measured == CLASS_SOLO_ONLY)
		measured = alone ? CLASS_BYTE_STABLE : CLASS_UNSTABLE;
	if (asked_for == CLASS_SOLO_ONLY)
		asked_for = CLASS_BYTE_STABLE;
	return measured >= CLASS_UNSTABLE && asked_for >= CLASS_UNSTABLE && measured >= asked_for;
}

/* The chance of at most `different` in `asked` at a rate. In logarithms: the terms of large numbers are beyond a double. */
static double chance_of_at_most(unsigned different, unsigned asked, double rate)
{
	double sum = 0;

	for (unsigned i = 0; i <= different; i++)
		sum += exp(lgamma(asked + 1.0) - lgamma(i + 1.0) - lgamma(asked - i + 1.0) + i * log(rate) + (asked - i) * log1p(-rate));
	return sum;
}

double reproducibility_upper_bound(unsigned different, unsigned asked)
{
	double low = 0, high = 1;

	CHECK(different <= asked);
	if (different == asked)
		return 1;
	if (different == 0)
		return 1 - pow(0.05, 1.0 / asked);
	for (int i = 0; i < 60; i++) { /* more than a double can tell apart */
		double middle = (low + high) / 2;
		if (chance_of_at_most(different, asked, middle) > 0.05)
			low = middle;
		else
			high = middle;
	}
	return high;
}

/* --- what is asked ---------------------------------------------------------------------------------------------------- */

static bool read_count(const struct json *with, const char *name, unsigned fallback, unsigned min, unsigned max, unsigned *count, struct error *error)
{
	const struct json *value = json_get(with, name);

	*count = fallback;
	if (!value || value->type == JSON_NULL)
		return true;
	if (!json_is_integer(value) || value->number < min || value->number > max) {
		error_set(error, ERR_INVALID, "%s is not an integer from %u to %u", name, min, max);
		return false;
	}
	*count = (unsigned)value->number;
	return true;
}

static bool is_given(const struct json *value)
{
	return value && value->type != JSON_NULL;
}

static struct json *add_ask(struct arena *arena, struct json *asks, const char *phase, unsigned index)
{
	struct json *ask = json_object(arena);

	json_set_text(arena, ask, "phase", phase);
	json_set_number(arena, ask, "index", index);
	json_add(arena, asks, ask);
	return ask;
}

static bool has_phase(const struct json *phases, const char *name)
{
	for (size_t i = 0; i < json_count(phases); i++)
		if (strcmp(json_at(phases, i)->string.text, name) == 0)
			return true;
	return false;
}

static bool check_phases(const struct json *phases, struct error *error)
{
	static const char *const names[] = {GATE_PHASES};
	bool known = phases->type == JSON_ARRAY;

	for (size_t i = 0; known && i < json_count(phases); i++) {
		known = false;
		for (size_t k = 0; json_is(json_at(phases, i), JSON_STRING) && k < COUNT_OF(names); k++)
			known |= strcmp(json_at(phases, i)->string.text, names[k]) == 0;
	}
	if (!known)
		error_set(error, ERR_INVALID, "phases is not an array of interleaved, uncached, withoutSchema, concurrent and reload");
	return known;
}

/* Each in a group of its own, so that one is over before the next; but for those that are to be in flight at once. */
static struct json *make_groups(struct arena *arena, struct json *plan, const struct json *phases, unsigned requests, unsigned seeds)
{
	struct json *groups = json_array(arena), *asks = json_array(arena), *together = json_array(arena), *ask;
	bool reload = has_phase(phases, "reload"), interleaved = has_phase(phases, "interleaved");

	for (unsigned i = 0; reload && i < requests; i++)
		add_ask(arena, asks, "before", i);
	for (unsigned i = 0; i < requests; i++) {
		ask = add_ask(arena, asks, i == 0 ? "cold" : "warm", i);
		if (i == 0 && reload)
			json_set_boolean(arena, ask, "reload", true);
	}
	if (interleaved && json_count(json_get(plan, "between")) == 0) {
		struct json *between = json_array(arena);
		json_add(arena, between, json_text(arena, default_between));
		json_set(arena, plan, "between", between);
	}
	for (unsigned i = 0; interleaved && i < requests; i++) {
		add_ask(arena, asks, "between", i);
		add_ask(arena, asks, "interleaved", i);
	}
	for (unsigned i = 0; has_phase(phases, "uncached") && i < requests; i++)
		add_ask(arena, asks, "uncached", i);
	for (unsigned i = 0; has_phase(phases, "withoutSchema") && json_get(plan, "schema") && i < requests; i++)
		add_ask(arena, asks, "withoutSchema", i);
	for (unsigned i = 0; i < seeds; i++)
		add_ask(arena, asks, "seed", i + 1);
	for (size_t i = 0; i < json_count(asks); i++) {
		struct json *group = json_array(arena);
		json_add(arena, group, json_at(asks, i));
		json_add(arena, groups, group);
	}
	for (unsigned i = 0; has_phase(phases, "concurrent") && i < requests; i++)
		add_ask(arena, together, "concurrent", i);
	asks = json_count(together) > 0 ? together : asks;
	json_set_boolean(arena, json_at(asks, json_count(asks) - 1), "last", true);
	if (asks == together)
		json_add(arena, groups, together);
	return groups;
}

const struct json *gate_plan(struct arena *arena, const struct json *with, struct error *error)
{
	struct json *plan = json_object(arena), *asks = json_array(arena), *made = json_object(arena);
	const struct json *between = json_get(with, "between"), *messages = json_get(with, "messages"), *prompt = json_get(with, "prompt");
	static const char *const copied[] = {"messages", "prompt", "schema", "sampling", "between"};
	const struct json *phases = json_get(with, "phases");
	unsigned requests, seeds, concurrent;

	if (!json_get_text(with, "runtime")) {
		error_set(error, ERR_INVALID, "runtime is not the name of a runtime");
		return NULL;
	}
	if (!read_count(with, "requests", GATE_REQUESTS_DEFAULT, 2, GATE_REQUESTS_MAX, &requests, error) ||
	    !read_count(with, "seeds", GATE_SEEDS_DEFAULT, 0, GATE_SEEDS_MAX, &seeds, error) ||
	    !read_count(with, "concurrent", GATE_CONCURRENT_DEFAULT, 2, GATE_CONCURRENT_MAX, &concurrent, error))
		return NULL;
	if (is_given(phases) && !check_phases(phases, error))
		return NULL;
	if (is_given(messages) && is_given(prompt)) {
		error_set(error, ERR_INVALID, "a gate takes either `messages` or `prompt`");
		return NULL;
	}
	if (is_given(between)) {
		bool texts = between->type == JSON_ARRAY && json_count(between) <= GATE_BETWEEN_MAX;
		for (size_t i = 0; texts && i < json_count(between); i++)
			texts = json_is(json_at(between, i), JSON_STRING) && json_at(between, i)->string.len > 0;
		if (!texts) {
			error_set(error, ERR_INVALID, "between is not an array of at most %d prompts", GATE_BETWEEN_MAX);
			return NULL;
		}
	}
	json_set_text(arena, plan, "runtime", json_get_text(with, "runtime"));
	json_set_number(arena, plan, "requests", requests);
	json_set_number(arena, plan, "seeds", seeds);
	for (size_t i = 0; i < COUNT_OF(copied); i++)
		if (is_given(json_get(with, copied[i])))
			json_set(arena, plan, copied[i], json_get(with, copied[i]));
	if (!is_given(messages) && !is_given(prompt)) {
		json_set_text(arena, plan, "section", default_section);
		if (!json_get(plan, "schema") && is_given(json_get(with, "sectionSchema")))
			json_set(arena, plan, "schema", json_get(with, "sectionSchema"));
	}
	if (phases) {
		json_set(arena, plan, "phases", is_given(phases) ? json_copy(arena, phases) : json_array(arena));
		if (is_given(phases) && has_phase(phases, "concurrent"))
			json_set_number(arena, plan, "concurrent", concurrent);
		json_set(arena, made, "groups", make_groups(arena, plan, is_given(phases) ? phases : NULL, requests, seeds));
		json_set(arena, made, "plan", plan);
		return made;
	}
	for (unsigned i = 0; i < requests; i++) {
		add_ask(arena, asks, i == 0 ? "cold" : "warm", i);
		if (i + 1 < requests && json_count(between) > 0)
			add_ask(arena, asks, "between", i);
	}
	for (unsigned i = 0; i < seeds; i++)
		add_ask(arena, asks, "seed", i + 1);
	json_set_boolean(arena, json_at(asks, json_count(asks) - 1), "last", true);
	json_set(arena, made, "plan", plan);
	json_set(arena, made, "asks", asks);
	return made;
}

size_t gate_text_max(const struct json *plan)
{
	size_t requests = (size_t)json_get_number(plan, "requests", 0), seeds = (size_t)json_get_number(plan, "seeds", 0);
	/* At most: identical ones, those in between, and each phase. */
	size_t asks = requests * (1 + (json_count(json_get(plan, "between")) > 0) + json_count(json_get(plan, "phases"))) + seeds;

	return asks * GATE_TEXT_MAX > GATE_TEXTS_MAX ? GATE_TEXTS_MAX / asks : GATE_TEXT_MAX;
}

/* --- what follows ----------------------------------------------------------------------------------------------------- */

struct answer_count {
	const char *digest; /* "sha256:…" of its bytes */
	const struct json *first; /* the ask that gave it first */
	unsigned count;
	size_t at; /* of the first */
};

struct answer_counts {
	struct answer_count *items;
	size_t count;
};

static bool is_phase(const struct json *ask, const char *phase)
{
	const char *text = json_get_text(ask, "phase");

	return text && strcmp(text, phase) == 0;
}

static bool is_identical(const struct json *ask)
{
	return is_phase(ask, "cold") || is_phase(ask, "warm") || is_phase(ask, "interleaved");
}

static bool is_answered(const struct json *ask)
{
	const char *outcome = json_get_text(ask, "outcome");

	return outcome && strcmp(outcome, "answered") == 0;
}

static void count_answer(struct answer_counts *counts, const struct json *ask, const char *member, size_t at)
{
	const char *digest = json_get_text(ask, member);

	for (size_t i = 0; digest && i < counts->count; i++) {
		if (strcmp(counts->items[i].digest, digest) == 0) {
			counts->items[i].count++;
			return;
		}
	}
	if (digest)
		counts->items[counts->count++] = (struct answer_count){digest, ask, 1, at};
}

static int by_count(const void *a, const void *b)
{
	const struct answer_count *x = a, *y = b;

	return x->count != y->count ? (x->count < y->count ? 1 : -1) : x->at < y->at ? -1 : x->at > y->at;
}

/* Different answers to the identical requests, the most frequent first. */
static struct answer_counts count_answers(struct arena *arena, const struct json *asks, const char *member)
{
	struct answer_counts counts = {.items = arena_alloc(arena, (json_count(asks) + 1) * sizeof *counts.items)};

	for (size_t i = 0; i < json_count(asks); i++)
		if (is_identical(json_at(asks, i)) && is_answered(json_at(asks, i)))
			count_answer(&counts, json_at(asks, i), member, i);
	if (counts.count > 1)
		qsort(counts.items, counts.count, sizeof *counts.items, by_count);
	return counts;
}

static struct json *answers_json(struct arena *arena, const struct answer_counts *counts)
{
	static const char *const copied[] = {"tokens", "text", "textLeftOut", "finishReason"};
	struct json *answers = json_array(arena);

	for (size_t i = 0; i < counts->count && i < GATE_ANSWERS_MAX; i++) {
		const struct answer_count *item = &counts->items[i];
		struct json *answer = json_object(arena);
		json_set_text(arena, answer, "digest", item->digest);
		json_set_number(arena, answer, "count", item->count);
		json_set_number(arena, answer, "first", json_get_number(item->first, "index", 0));
		for (size_t k = 0; k < COUNT_OF(copied); k++)
			if (json_get(item->first, copied[k]))
				json_set(arena, answer, copied[k], json_get(item->first, copied[k]));
		json_add(arena, answers, answer);
	}
	return answers;
}

/* The byte at which the two most frequent answers part; -1: one answer, or beyond what the report has of them. */
static double first_difference(const struct answer_counts *counts)
{
	const struct json *a, *b;
	size_t at = 0;

	if (counts->count < 2)
		return -1;
	a = json_get(counts->items[0].first, "text");
	b = json_get(counts->items[1].first, "text");
	if (!json_is(a, JSON_STRING) || !json_is(b, JSON_STRING))
		return -1;
	while (at < a->string.len && at < b->string.len && a->string.text[at] == b->string.text[at])
		at++;
	return at == a->string.len && at == b->string.len ? -1 : (double)at;
}

struct length_count {
	double tokens;
	unsigned count;
};

static int by_tokens(const void *a, const void *b)
{
	const struct length_count *x = a, *y = b;

	return x->tokens < y->tokens ? -1 : x->tokens > y->tokens;
}

static struct json *lengths_json(struct arena *arena, const struct json *asks)
{
	struct length_count *lengths = arena_alloc(arena, (json_count(asks) + 1) * sizeof *lengths);
	struct json *json = json_array(arena);
	size_t count = 0, at;

	for (size_t i = 0; i < json_count(asks); i++) {
		const struct json *ask = json_at(asks, i);
		double tokens = json_get_number(ask, "tokens", -1);
		if (!is_identical(ask) || !is_answered(ask) || tokens < 0)
			continue;
		for (at = 0; at < count && lengths[at].tokens != tokens; at++)
			;
		if (at == count)
			lengths[count++] = (struct length_count){.tokens = tokens};
		lengths[at].count++;
	}
	if (count > 1)
		qsort(lengths, count, sizeof *lengths, by_tokens);
	for (at = 0; at < count; at++) {
		struct json *pair = json_array(arena);
		json_add(arena, pair, json_number(arena, lengths[at].tokens));
		json_add(arena, pair, json_number(arena, lengths[at].count));
		json_add(arena, json, pair);
	}
	return json;
}

static struct json *phases_json(struct arena *arena, const struct json *asks)
{
	static const char *const phases[] = {"before", "cold", "warm", "between", "interleaved", "uncached", "withoutSchema", "concurrent", "seed"};
	struct json *json = json_object(arena);

	for (size_t p = 0; p < COUNT_OF(phases); p++) {
		struct answer_counts counts = {.items = arena_alloc(arena, (json_count(asks) + 1) * sizeof *counts.items)};
		struct json *phase = json_object(arena);
		const char *bypass = NULL;
		unsigned asked = 0, answered = 0;
		for (size_t i = 0; i < json_count(asks); i++) {
			const struct json *ask = json_at(asks, i);
			if (!is_phase(ask, phases[p]))
				continue;
			asked++;
			bypass = bypass ? bypass : json_get_text(ask, "cacheBypass");
			answered += is_answered(ask);
			if (is_answered(ask))
				count_answer(&counts, ask, "textDigest", i);
		}
		if (asked == 0)
			continue;
		json_set_number(arena, phase, "asked", asked);
		json_set_number(arena, phase, "answered", answered);
		json_set_number(arena, phase, "distinct", (double)counts.count);
		json_set_text(arena, phase, "cacheBypass", bypass);
		json_set(arena, json, phases[p], phase);
	}
	return json;
}

/* One value that all answers agree on, or NULL; *differs: some do not. */
static const char *agreed(const struct json *asks, const char *member, bool *differs)
{
	const char *value = NULL;

	for (size_t i = 0; i < json_count(asks); i++) {
		const char *own = is_answered(json_at(asks, i)) ? json_get_text(json_at(asks, i), member) : NULL;
		if (is_phase(json_at(asks, i), "before") && strcmp(member, "instance") == 0) /* it was loaded anew since */
			continue;
		if (own && value && strcmp(own, value) != 0)
			*differs = true;
		if (own && !value)
			value = own;
	}
	return value;
}

/* "none": each answer to an identical request said that nothing came from a cache; "prefix": some did; "unknown": not each said, or there is none. */
static const char *cache_path(const struct json *asks)
{
	const char *path = NULL;

	for (size_t i = 0; i < json_count(asks); i++) {
		const struct json *ask = json_at(asks, i);
		double cached = json_get_number(ask, "cachedTokens", -1);
		if (!is_identical(ask) || !is_answered(ask))
			continue;
		if (cached > 0)
			return "prefix";
		if (cached < 0)
			path = "unknown";
		else if (!path)
			path = "none";
	}
	return path ? path : "unknown";
}

/* Of the identical requests: the class of the first failure, and whether all failed because the runtime would not start or take them. */
static const struct json *first_failure(const struct json *asks, bool *all_refused)
{
	const struct json *first = NULL;

	*all_refused = true;
	for (size_t i = 0; i < json_count(asks); i++) {
		const struct json *ask = json_at(asks, i);
		const char *outcome = json_get_text(ask, "outcome");
		if (!is_identical(ask))
			continue;
		if (is_answered(ask)) {
			*all_refused = false;
			continue;
		}
		if (!first)
			first = ask;
		*all_refused &= outcome && (strcmp(outcome, failure_name(FAILURE_REFUSED)) == 0 || strcmp(outcome, failure_name(FAILURE_CONFIGURATION)) == 0);
	}
	*all_refused &= first != NULL;
	return first;
}

/* How many answers of a phase are others than any of the identical requests got; *asked, *answered: of the phase. */
static unsigned count_others(const struct json *asks, const struct answer_counts *known, const char *phase, const char *member, unsigned *asked, unsigned *answered)
{
	unsigned others = 0;

	*asked = *answered = 0;
	for (size_t i = 0; i < json_count(asks); i++) {
		const struct json *ask = json_at(asks, i);
		const char *digest = json_get_text(ask, member);
		bool is_known = false;
		if (!is_phase(ask, phase))
			continue;
		(*asked)++;
		if (!is_answered(ask))
			continue;
		(*answered)++;
		for (size_t k = 0; digest && k < known->count && !is_known; k++)
			is_known = strcmp(known->items[k].digest, digest) == 0;
		others += !is_known;
	}
	return others;
}

struct verdict {
	enum reproducibility_class class;
	const char *reason; /* of refused and inconclusive */
};

static struct verdict judge(struct arena *arena, const struct json *asks, unsigned requests, unsigned answered, const struct answer_counts *counts,
			    const struct answer_counts *json_counts, unsigned as_json)
{
	size_t distinct = counts->count, distinct_json = json_counts->count;
	unsigned together, together_answered, others, other_json;
	bool all_refused, configurations_differ = false, instances_differ = false;
	const struct json *failure = first_failure(asks, &all_refused);
	const char *outcome = failure ? json_get_text(failure, "outcome") : NULL, *detail = failure ? json_get_text(failure, "detail") : NULL;
	const char *why = failure ? arena_printf(arena, "%s%s%s", outcome ? outcome : "failed", detail ? ": " : "", detail ? detail : "") : NULL;

	agreed(asks, "configuration", &configurations_differ);
	agreed(asks, "instance", &instances_differ);
	if (answered == 0)
		return (struct verdict){all_refused ? CLASS_REFUSED : CLASS_INCONCLUSIVE, why};
	if (configurations_differ)
		return (struct verdict){CLASS_INCONCLUSIVE, "the configuration changed between two requests"};
	if (instances_differ)
		return (struct verdict){CLASS_INCONCLUSIVE, "the runtime was started anew between two requests"};
	if (distinct > 1 && (as_json < answered || distinct_json > 1))
		return (struct verdict){CLASS_UNSTABLE, NULL}; /* what differed, differed, whatever else failed */
	if (answered < requests)
		return (struct verdict){CLASS_INCONCLUSIVE, arena_printf(arena, "%u of %u requests got no answer that counts, the first: %s", requests - answered, requests, why)};
	/* Several in flight at once: what holds alone may not hold there. */
	others = count_others(asks, counts, "concurrent", "textDigest", &together, &together_answered);
	other_json = count_others(asks, json_counts, "concurrent", "jsonDigest", &together, &together_answered);
	if (distinct == 1 && others > 0)
		return (struct verdict){CLASS_SOLO_ONLY, NULL};
	if (distinct > 1 && other_json > 0)
		return (struct verdict){CLASS_UNSTABLE, NULL};
	if (together_answered < together)
		return (struct verdict){CLASS_INCONCLUSIVE, arena_printf(arena, "%u of %u requests in flight together got no answer that counts", together - together_answered, together)};
	return (struct verdict){distinct == 1 ? CLASS_BYTE_STABLE : CLASS_JSON_STABLE, NULL};
}

/* The one answer of a phase; NULL: none, or several. */
static const char *only_answer(const struct json *asks, const char *phase)
{
	const char *only = NULL;

	for (size_t i = 0; i < json_count(asks); i++) {
		const char *digest = is_phase(json_at(asks, i), phase) && is_answered(json_at(asks, i)) ? json_get_text(json_at(asks, i), "textDigest") : NULL;
		if (digest && only && strcmp(digest, only) != 0)
			return NULL;
		if (digest)
			only = digest;
	}
	return only;
}

static unsigned count_distinct(struct arena *arena, const struct json *asks, const char *phase)
{
	struct answer_counts counts = {.items = arena_alloc(arena, (json_count(asks) + 1) * sizeof *counts.items)};

	for (size_t i = 0; i < json_count(asks); i++)
		if (is_phase(json_at(asks, i), phase) && is_answered(json_at(asks, i)))
			count_answer(&counts, json_at(asks, i), "textDigest", i);
	return (unsigned)counts.count;
}

/* Of the requests that were asked past the cache: did one take something from there all the same? */
static bool used_cache(const struct json *asks)
{
	for (size_t i = 0; i < json_count(asks); i++)
		if (is_phase(json_at(asks, i), "uncached") && json_get_number(json_at(asks, i), "cachedTokens", 0) > 0)
			return true;
	return false;
}

/* With and without the cache: the class holds on both paths where both were measured and no request past the cache got another answer. */
static const char *measured_cache_path(const struct json *asks, const struct verdict *verdict, const struct answer_counts *counts, const struct answer_counts *json_counts)
{
	const char *path = cache_path(asks);
	bool as_json = verdict->class == CLASS_JSON_STABLE;
	unsigned asked, answered, others = count_others(asks, as_json ? json_counts : counts, "uncached", as_json ? "jsonDigest" : "textDigest", &asked, &answered);
	bool is_stable = as_json || verdict->class == CLASS_BYTE_STABLE || verdict->class == CLASS_SOLO_ONLY;

	return strcmp(path, "prefix") == 0 && is_stable && asked > 0 && answered == asked && others == 0 && !used_cache(asks) ? "any" : path;
}

/* What the phases tell against each other. */
static void add_phase_verdicts(struct arena *arena, struct json *verdicts, const struct json *asks, const struct answer_counts *counts)
{
	const char *warm = only_answer(asks, "warm"), *interleaved = only_answer(asks, "interleaved"), *uncached = only_answer(asks, "uncached");
	unsigned asked, answered, bare = count_distinct(arena, asks, "withoutSchema"), fresh = count_distinct(arena, asks, "uncached");

	if (warm && ((interleaved && strcmp(warm, interleaved) != 0) || fresh > 1 || (uncached && strcmp(warm, uncached) != 0)))
		json_add(arena, verdicts, json_text(arena, "cache-path-differs"));
	if (fresh == 1 && counts->count > 1)
		json_add(arena, verdicts, json_text(arena, "stable-uncached-only"));
	if (used_cache(asks))
		json_add(arena, verdicts, json_text(arena, "cache-not-bypassed"));
	if (counts->count > 0 && count_others(asks, counts, "before", "textDigest", &asked, &answered) > 0)
		json_add(arena, verdicts, json_text(arena, "reload-differs"));
	if (counts->count > 0 && count_others(asks, counts, "concurrent", "textDigest", &asked, &answered) > 0)
		json_add(arena, verdicts, json_text(arena, "concurrency-differs"));
	if (bare > 0 && counts->count > 0 && (bare > 1) != (counts->count > 1))
		json_add(arena, verdicts, json_text(arena, bare > 1 ? "stable-with-schema-only" : "stable-without-schema-only"));
}

/* Details beside the class (runtimes.md 11). */
static struct json *verdicts_json(struct arena *arena, const struct json *asks, const struct answer_counts *counts, const struct verdict *verdict)
{
	struct json *verdicts = json_array(arena);
	unsigned cold = 0, asked = 0, same = 0;
	bool seeded = false;

	for (size_t i = 0; i < json_count(asks); i++) {
		const struct json *ask = json_at(asks, i);
		const char *digest = json_get_text(ask, "textDigest");
		if (!is_answered(ask) || !digest)
			continue;
		cold += is_phase(ask, "cold") && counts->count == 2 && counts->items[1].count == 1 && strcmp(digest, counts->items[1].digest) == 0;
		if (is_phase(ask, "seed")) {
			seeded |= json_get_boolean(ask, "seeded", false);
			asked++;
			same += counts->count > 0 && strcmp(digest, counts->items[0].digest) == 0;
		}
	}
	if (verdict->class == CLASS_BYTE_STABLE || verdict->class == CLASS_JSON_STABLE)
		json_add(arena, verdicts, json_text(arena, "reproducible"));
	if (cold == 1)
		json_add(arena, verdicts, json_text(arena, "cold-start-differs"));
	if (counts->count > 1)
		json_add(arena, verdicts, json_printf(arena, "%zu-distinct", counts->count));
	add_phase_verdicts(arena, verdicts, asks, counts);
	if (asked > 0 && same == asked && counts->count == 1) /* where identical requests differ, equal ones prove nothing */
		json_add(arena, verdicts, json_text(arena, seeded ? "seed-ignored" : "greedy"));
	return verdicts;
}

/* A list of groups as one list. */
static const struct json *flatten(struct arena *arena, const struct json *asks)
{
	struct json *flat = json_array(arena);

	if (!json_is(json_at(asks, 0), JSON_ARRAY))
		return asks;
	for (size_t i = 0; i < json_count(asks); i++)
		for (size_t k = 0; k < json_count(json_at(asks, i)); k++)
			json_add(arena, flat, json_at(json_at(asks, i), k));
	return flat;
}

const struct json *gate_report(struct arena *arena, const struct json *asks, int64_t wall_ms)
{
	static const char *const named[] = {"runtime", "model", "configuration", "sampling"};
	asks = flatten(arena, asks);
	struct answer_counts counts = count_answers(arena, asks, "textDigest"), json_counts = count_answers(arena, asks, "jsonDigest");
	struct json *report = json_object(arena), *conditions = json_object(arena);
	unsigned requests = 0, answered = 0, as_json = 0, together = 1;
	char time[TIME_TEXT_LEN + 1];
	bool simulated = false, schema = false, ignored = false;

	for (size_t i = 0; i < json_count(asks); i++) {
		const struct json *ask = json_at(asks, i);
		simulated |= json_get_boolean(ask, "simulated", false);
		schema |= is_identical(ask) && json_get_boolean(ask, "schema", false);
		if (is_phase(ask, "concurrent") && is_answered(ask) && json_get_number(ask, "inFlight", 1) > together)
			together = (unsigned)json_get_number(ask, "inFlight", 1);
		if (!is_identical(ask))
			continue;
		requests++;
		answered += is_answered(ask);
		as_json += is_answered(ask) && json_get_text(ask, "jsonDigest") != NULL;
	}
	struct verdict verdict = judge(arena, asks, requests, answered, &counts, &json_counts, as_json);

	for (size_t i = 0; i < COUNT_OF(named); i++)
		json_set_text(arena, report, named[i], agreed(asks, named[i], &ignored));
	if (!json_get(report, "runtime") && json_count(asks) > 0)
		json_set_text(arena, report, "runtime", json_get_text(json_at(asks, 0), "runtime"));
	if (simulated)
		json_set_boolean(arena, report, "simulated", true);
	json_set_number(arena, report, "requests", requests);
	json_set_number(arena, report, "answered", answered);
	json_set_number(arena, report, "distinct", (double)counts.count);
	if (as_json == answered && answered > 0)
		json_set_number(arena, report, "distinctJson", (double)json_counts.count);
	json_set_text(arena, report, "class", reproducibility_class_name(verdict.class));
	json_set_text(arena, report, "reason", verdict.reason);
	/* Of what was answered: how often an answer other than the most frequent one must be expected. */
	if (answered > 0)
		json_set_number(arena, report, "upperBound95", reproducibility_upper_bound(answered - counts.items[0].count, answered));
	json_set(arena, report, "lengths", lengths_json(arena, asks));
	json_set(arena, report, "answers", answers_json(arena, &counts));
	if (counts.count > GATE_ANSWERS_MAX)
		json_set_number(arena, report, "answersLeftOut", (double)(counts.count - GATE_ANSWERS_MAX));
	if (first_difference(&counts) >= 0)
		json_set_number(arena, report, "firstDifference", first_difference(&counts));
	json_set(arena, report, "phases", phases_json(arena, asks));
	json_set(arena, report, "verdicts", verdicts_json(arena, asks, &counts, &verdict));
	json_set_number(arena, conditions, "requestsInFlight", together);
	json_set_boolean(arena, conditions, "schema", schema);
	json_set_text(arena, conditions, "cachePath", measured_cache_path(asks, &verdict, &counts, &json_counts));
	json_set_text(arena, conditions, "instance", agreed(asks, "instance", &ignored));
	json_set_text(arena, conditions, "instanceBasis", agreed(asks, "instanceBasis", &ignored));
	json_set(arena, report, "conditions", conditions);
	time_text(wall_ms, time);
	json_set_text(arena, report, "measuredOn", time);
	return report;
}
