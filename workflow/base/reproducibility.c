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

static void add_ask(struct arena *arena, struct json *asks, const char *phase, unsigned index)
{
	struct json *ask = json_object(arena);

	json_set_text(arena, ask, "phase", phase);
	json_set_number(arena, ask, "index", index);
	json_add(arena, asks, ask);
}

const struct json *gate_plan(struct arena *arena, const struct json *with, struct error *error)
{
	struct json *plan = json_object(arena), *asks = json_array(arena), *made = json_object(arena);
	const struct json *between = json_get(with, "between"), *messages = json_get(with, "messages"), *prompt = json_get(with, "prompt");
	static const char *const copied[] = {"messages", "prompt", "schema", "sampling", "between"};
	unsigned requests, seeds;

	if (!json_get_text(with, "runtime")) {
		error_set(error, ERR_INVALID, "runtime is not the name of a runtime");
		return NULL;
	}
	if (!read_count(with, "requests", GATE_REQUESTS_DEFAULT, 2, GATE_REQUESTS_MAX, &requests, error) ||
	    !read_count(with, "seeds", GATE_SEEDS_DEFAULT, 0, GATE_SEEDS_MAX, &seeds, error))
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
	return is_phase(ask, "cold") || is_phase(ask, "warm");
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
	static const char *const phases[] = {"cold", "warm", "between", "seed"};
	struct json *json = json_object(arena);

	for (size_t p = 0; p < COUNT_OF(phases); p++) {
		struct answer_counts counts = {.items = arena_alloc(arena, (json_count(asks) + 1) * sizeof *counts.items)};
		struct json *phase = json_object(arena);
		unsigned asked = 0, answered = 0;
		for (size_t i = 0; i < json_count(asks); i++) {
			const struct json *ask = json_at(asks, i);
			if (!is_phase(ask, phases[p]))
				continue;
			asked++;
			answered += is_answered(ask);
			if (is_answered(ask))
				count_answer(&counts, ask, "textDigest", i);
		}
		if (asked == 0)
			continue;
		json_set_number(arena, phase, "asked", asked);
		json_set_number(arena, phase, "answered", answered);
		json_set_number(arena, phase, "distinct", (double)counts.count);
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

struct verdict {
	enum reproducibility_class class;
	const char *reason; /* of refused and inconclusive */
};

static struct verdict judge(struct arena *arena, const struct json *asks, unsigned requests, unsigned answered, size_t distinct, size_t distinct_json,
			    unsigned as_json)
{
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
	return (struct verdict){distinct == 1 ? CLASS_BYTE_STABLE : CLASS_JSON_STABLE, NULL};
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
	if (asked > 0 && same == asked && counts->count == 1) /* where identical requests differ, equal ones prove nothing */
		json_add(arena, verdicts, json_text(arena, seeded ? "seed-ignored" : "greedy"));
	return verdicts;
}

const struct json *gate_report(struct arena *arena, const struct json *asks, int64_t wall_ms)
{
	static const char *const named[] = {"runtime", "model", "configuration", "sampling"};
	struct answer_counts counts = count_answers(arena, asks, "textDigest"), json_counts = count_answers(arena, asks, "jsonDigest");
	struct json *report = json_object(arena), *conditions = json_object(arena);
	unsigned requests = 0, answered = 0, as_json = 0;
	char time[TIME_TEXT_LEN + 1];
	bool simulated = false, schema = false, ignored = false;

	for (size_t i = 0; i < json_count(asks); i++) {
		const struct json *ask = json_at(asks, i);
		simulated |= json_get_boolean(ask, "simulated", false);
		schema |= json_get_boolean(ask, "schema", false);
		if (!is_identical(ask))
			continue;
		requests++;
		answered += is_answered(ask);
		as_json += is_answered(ask) && json_get_text(ask, "jsonDigest") != NULL;
	}
	struct verdict verdict = judge(arena, asks, requests, answered, counts.count, json_counts.count, as_json);

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
	json_set_number(arena, conditions, "requestsInFlight", 1);
	json_set_boolean(arena, conditions, "schema", schema);
	json_set_text(arena, conditions, "cachePath", cache_path(asks));
	json_set_text(arena, conditions, "instance", agreed(asks, "instance", &ignored));
	json_set_text(arena, conditions, "instanceBasis", agreed(asks, "instanceBasis", &ignored));
	json_set(arena, report, "conditions", conditions);
	time_text(wall_ms, time);
	json_set_text(arena, report, "measuredOn", time);
	return report;
}
