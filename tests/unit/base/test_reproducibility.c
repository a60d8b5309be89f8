/* Tests of workflow/base/reproducibility.c. */
#include "workflow/base/reproducibility.h"

#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"

static struct arena arena; /* of the test that runs: each is a process of its own */

SUITE_NO_ABORTS

static const struct json *parse(const char *text)
{
	struct error error = {0};
	const struct json *json = json_parse(&arena, bytes_text(text), JSON_STRICT, NULL, &error);

	ck_assert_msg(json != NULL, "%s: %s", text, error.message);
	return json;
}

/* No difference in n leaves the bounds that runtimes.md 11 gives; with differences it is Clopper and Pearson's, whose ends for 1 of 20 and 5 of 10 are in
 * every table. */
START_TEST(upper_bounds)
{
	static const struct {
		unsigned different, asked;
		double bound;
	} cases[] = {{0, 20, 0.139}, {0, 50, 0.058}, {0, 100, 0.030}, {0, 200, 0.015}, {0, 300, 0.010}, {1, 20, 0.216}, {5, 10, 0.778}, {0, 1, 0.95}, {3, 3, 1}, {0, 0, 1}};

	for (size_t i = 0; i < COUNT_OF(cases); i++)
		ck_assert_double_eq_tol(reproducibility_upper_bound(cases[i].different, cases[i].asked), cases[i].bound, 0.0006);
	ck_assert_double_lt(reproducibility_upper_bound(500, 1000), 0.53); /* terms that a double cannot hold */
	ck_assert_double_gt(reproducibility_upper_bound(500, 1000), 0.52);
}
END_TEST

/* byte-stable > json-stable > unstable; solo-only counts as byte-stable for solo work alone; what was not measured satisfies nothing. */
START_TEST(classes_in_order)
{
	enum reproducibility_class class;

	for (int i = 0; i < REPRODUCIBILITY_CLASS_COUNT; i++) {
		ck_assert(reproducibility_class_parse(reproducibility_class_name((enum reproducibility_class)i), &class));
		ck_assert_int_eq((int)class, i);
	}
	ck_assert(!reproducibility_class_parse("stable", &class));
	ck_assert(!reproducibility_class_parse(NULL, &class));
	ck_assert(reproducibility_holds(CLASS_BYTE_STABLE, CLASS_JSON_STABLE, false));
	ck_assert(reproducibility_holds(CLASS_JSON_STABLE, CLASS_UNSTABLE, false));
	ck_assert(!reproducibility_holds(CLASS_JSON_STABLE, CLASS_BYTE_STABLE, true));
	ck_assert(!reproducibility_holds(CLASS_UNSTABLE, CLASS_JSON_STABLE, true));
	ck_assert(reproducibility_holds(CLASS_SOLO_ONLY, CLASS_BYTE_STABLE, true));
	ck_assert(!reproducibility_holds(CLASS_SOLO_ONLY, CLASS_BYTE_STABLE, false));
	ck_assert(!reproducibility_holds(CLASS_UNMEASURED, CLASS_UNSTABLE, true));
	ck_assert(!reproducibility_holds(CLASS_INCONCLUSIVE, CLASS_UNSTABLE, true));
	ck_assert(!reproducibility_holds(CLASS_REFUSED, CLASS_UNSTABLE, true));
}
END_TEST

/* The plan: the first identical request is the cold one, prompts in between only between them, then other seeds; the last ask says so. */
START_TEST(plans)
{
	arena_init(&arena);
	struct error error = {0};
	const struct json *plan = gate_plan(&arena, parse("{\"runtime\":\"r\",\"prompt\":\"p\",\"requests\":3,\"seeds\":1,\"between\":[\"x\"],\"schema\":null}"), &error);
	static const char *const phases[] = {"cold", "between", "warm", "between", "warm", "seed"};

	ck_assert_ptr_nonnull(plan);
	ck_assert_uint_eq(json_count(json_get(plan, "asks")), COUNT_OF(phases));
	for (size_t i = 0; i < COUNT_OF(phases); i++) {
		const struct json *ask = json_at(json_get(plan, "asks"), i);
		ck_assert_str_eq(json_get_text(ask, "phase"), phases[i]);
		ck_assert_int_eq(json_get_boolean(ask, "last", false), i + 1 == COUNT_OF(phases));
	}
	ck_assert_str_eq(json_get_text(json_get(plan, "plan"), "prompt"), "p");
	ck_assert_ptr_null(json_get(json_get(plan, "plan"), "schema"));
	ck_assert_ptr_null(json_get(json_get(plan, "plan"), "section"));

	plan = gate_plan(&arena, parse("{\"runtime\":\"r\",\"prompt\":null,\"messages\":null,\"sectionSchema\":{\"document\":{}}}"), &error);
	ck_assert_uint_eq(json_count(json_get(plan, "asks")), GATE_REQUESTS_DEFAULT + GATE_SEEDS_DEFAULT);
	ck_assert_ptr_nonnull(json_get(json_get(plan, "plan"), "section"));
	ck_assert_ptr_nonnull(json_get(json_get(json_get(plan, "plan"), "schema"), "document"));
	arena_close(&arena);
}
END_TEST

/* With `phases` each ask is a group, those in flight together are one; a reload has the same requests before it; without a schema there is nothing to leave out. */
START_TEST(plans_in_phases)
{
	arena_init(&arena);
	struct error error = {0};
	const struct json *plan = gate_plan(&arena, parse("{\"runtime\":\"r\",\"prompt\":\"p\",\"requests\":2,\"seeds\":1,\"schema\":{\"document\":{}},"
							  "\"phases\":[\"reload\",\"interleaved\",\"uncached\",\"withoutSchema\",\"concurrent\"],\"concurrent\":64}"),
						    &error), *groups = json_get(plan, "groups");
	static const char *const phases[] = {"before", "before", "cold", "warm", "between", "interleaved", "between", "interleaved", "uncached", "uncached", "withoutSchema", "withoutSchema",
					     "seed", "concurrent"};

	ck_assert_ptr_nonnull(groups);
	ck_assert_ptr_null(json_get(plan, "asks"));
	ck_assert_uint_eq(json_count(groups), COUNT_OF(phases));
	for (size_t i = 0; i < COUNT_OF(phases); i++) {
		const struct json *group = json_at(groups, i);
		ck_assert_uint_eq(json_count(group), i + 1 < COUNT_OF(phases) ? 1 : 2);
		for (size_t k = 0; k < json_count(group); k++) {
			ck_assert_str_eq(json_get_text(json_at(group, k), "phase"), phases[i]);
			ck_assert_int_eq(json_get_boolean(json_at(group, k), "last", false), i + 1 == COUNT_OF(phases) && k == 1);
			ck_assert_int_eq(json_get_boolean(json_at(group, k), "reload", false), strcmp(phases[i], "cold") == 0);
		}
	}
	ck_assert_double_eq(json_get_number(json_get(plan, "plan"), "concurrent", 0), 64);
	ck_assert_uint_eq(json_count(json_get(json_get(plan, "plan"), "between")), 1); /* ours */
	plan = gate_plan(&arena, parse("{\"runtime\":\"r\",\"prompt\":\"p\",\"requests\":2,\"seeds\":0,\"phases\":[\"withoutSchema\"]}"), &error);
	ck_assert_uint_eq(json_count(json_get(plan, "groups")), 2);
	plan = gate_plan(&arena, parse("{\"runtime\":\"r\",\"prompt\":\"p\",\"requests\":2,\"seeds\":0,\"phases\":null}"), &error);
	ck_assert_uint_eq(json_count(json_get(plan, "groups")), 2);
	ck_assert(json_get_boolean(json_at(json_at(json_get(plan, "groups"), 1), 0), "last", false));
	ck_assert_uint_eq(json_count(json_get(json_get(plan, "plan"), "phases")), 0);
	arena_close(&arena);
}
END_TEST

/* Of the answers of a large gate less text is kept, so that all of them fit into one value of the run; of the usual one nothing is cut. */
START_TEST(texts_are_bounded_together)
{
	static const char *const all[] = {"{\"runtime\":\"r\",\"requests\":1000,\"seeds\":20,\"schema\":{\"document\":{}},\"phases\":[\"interleaved\",\"uncached\",\"withoutSchema\",\"concurrent\",\"reload\"]}",
					  "{\"runtime\":\"r\",\"requests\":1000,\"seeds\":20,\"between\":[\"x\"]}"};
	struct error error;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(all); i++) {
		const struct json *made = gate_plan(&arena, parse(all[i]), &error), *groups = json_get(made, "groups");
		size_t asks = json_count(json_get(made, "asks"));
		for (size_t k = 0; k < json_count(groups); k++)
			asks += json_count(json_at(groups, k));
		ck_assert_uint_eq(asks, i == 0 ? 7020 : 2019);
		ck_assert_uint_le(asks * gate_text_max(json_get(made, "plan")), GATE_TEXTS_MAX);
		ck_assert_uint_ge(gate_text_max(json_get(made, "plan")), 200);
	}
	ck_assert_uint_eq(gate_text_max(json_get(gate_plan(&arena, parse("{\"runtime\":\"r\"}"), &error), "plan")), GATE_TEXT_MAX);
	arena_close(&arena);
}
END_TEST

/* Arguments that cannot be, each named. The ends of each range are possible. */
START_TEST(bad_arguments)
{
	static const struct {
		const char *with, *message;
	} cases[] = {
		{"{}", "runtime"},
		{"{\"runtime\":\"r\",\"requests\":1}", "requests is not an integer from 2 to 1000"},
		{"{\"runtime\":\"r\",\"requests\":1001}", "requests is not an integer from 2 to 1000"},
		{"{\"runtime\":\"r\",\"requests\":2.5}", "requests"},
		{"{\"runtime\":\"r\",\"seeds\":21}", "seeds is not an integer from 0 to 20"},
		{"{\"runtime\":\"r\",\"prompt\":\"a\",\"messages\":[]}", "either"},
		{"{\"runtime\":\"r\",\"between\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\"]}", "at most 10 prompts"},
		{"{\"runtime\":\"r\",\"between\":[\"\"]}", "between"},
		{"{\"runtime\":\"r\",\"between\":\"x\"}", "between"},
		{"{\"runtime\":\"r\",\"phases\":[\"cold\"]}", "phases is not an array of interleaved, uncached, withoutSchema, concurrent and reload"},
		{"{\"runtime\":\"r\",\"phases\":[1]}", "phases"},
		{"{\"runtime\":\"r\",\"phases\":\"concurrent\"}", "phases"},
		{"{\"runtime\":\"r\",\"phases\":[],\"concurrent\":1}", "concurrent is not an integer from 2 to 64"},
		{"{\"runtime\":\"r\",\"phases\":[],\"concurrent\":65}", "concurrent is not an integer from 2 to 64"},
	};
	struct error error;

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		error = (struct error){0};
		ck_assert_ptr_null(gate_plan(&arena, parse(cases[i].with), &error));
		ck_assert_msg(strstr(error.message, cases[i].message) != NULL, "%s: %s", cases[i].with, error.message);
	}
	ck_assert_uint_eq(json_count(json_get(gate_plan(&arena, parse("{\"runtime\":\"r\",\"requests\":1000,\"seeds\":20}"), &error), "asks")), 1020);
	ck_assert_uint_eq(json_count(json_get(gate_plan(&arena, parse("{\"runtime\":\"r\",\"requests\":2,\"seeds\":0}"), &error), "asks")), 2);
	arena_close(&arena);
}
END_TEST

/* One letter for each ask: of the identical ones its answer (upper case: the same JSON in other bytes), '!' truncated, '?' refused; behind '|' those of other
 * seeds, behind '/' the configuration changes. Behind '<' those before a reload, in another process, up to '>'; behind '~' interleaved ones, behind '_' those without the schema,
 * behind '=' those in flight together, behind '^' those past the cache. Of 'c' something came from the cache where it might, of 'k' always. */
static const struct json *asks_of(const char *letters)
{
	struct json *asks = json_array(&arena);
	const char *phase = "cold", *configuration = "sha256:c1", *instance = "1-1";
	static const char marks[] = "<>~_=^";
	static const char *const marked[] = {"before", "cold", "interleaved", "withoutSchema", "concurrent", "uncached"};
	unsigned index = 0;

	for (const char *at = letters; *at; at++) {
		struct json *ask = json_object(&arena);
		if (*at == '|' || *at == '/') {
			phase = *at == '|' ? "seed" : phase;
			configuration = *at == '/' ? "sha256:c2" : configuration;
			continue;
		}
		if (strchr(marks, *at)) {
			phase = marked[strchr(marks, *at) - marks];
			instance = *at == '<' ? "0-0" : "1-1";
			continue;
		}
		json_set_text(&arena, ask, "phase", phase);
		json_set_number(&arena, ask, "index", index++);
		json_set_text(&arena, ask, "runtime", "r");
		if (strcmp(phase, "cold") == 0)
			phase = "warm";
		if (*at == '!' || *at == '?') {
			json_set_text(&arena, ask, "outcome", *at == '!' ? "truncated" : "refused");
			json_set_text(&arena, ask, "detail", "why");
			json_add(&arena, asks, ask);
			continue;
		}
		json_set_text(&arena, ask, "outcome", "answered");
		json_set(&arena, ask, "text", json_printf(&arena, "same %c", *at));
		json_set(&arena, ask, "textDigest", json_printf(&arena, "sha256:%c", *at));
		json_set(&arena, ask, "jsonDigest", json_printf(&arena, "sha256:json %c", *at | 0x20));
		json_set_number(&arena, ask, "tokens", *at == 'b' ? 7 : 5);
		json_set_text(&arena, ask, "configuration", configuration);
		json_set_boolean(&arena, ask, "seeded", true);
		json_set_text(&arena, ask, "instance", instance);
		json_set_boolean(&arena, ask, "schema", strcmp(phase, "withoutSchema") != 0);
		json_set_number(&arena, ask, "inFlight", strcmp(phase, "concurrent") != 0 ? 1 : at[1] ? 4 : 2); /* the last ones have fewer beside them */
		json_set_number(&arena, ask, "cachedTokens", *at == 'k' || (*at == 'c' && strcmp(phase, "uncached") != 0) ? 3 : 0);
		json_set_text(&arena, ask, "cacheBypass", strcmp(phase, "uncached") == 0 ? "cache_salt" : NULL);
		json_add(&arena, asks, ask);
	}
	return asks;
}

static void check_report(const char *letters, const char *class, double distinct, double bound, const char *verdicts)
{
	const struct json *report = gate_report(&arena, asks_of(letters), 1790000000000);
	struct bytes printed = json_print_arena(json_get(report, "verdicts"), &arena);

	ck_assert_str_eq(json_get_text(report, "class"), class);
	ck_assert_double_eq(json_get_number(report, "distinct", -1), distinct);
	ck_assert_double_eq_tol(json_get_number(report, "upperBound95", -1), bound, 0.0006);
	ck_assert_str_eq((const char *)printed.data, verdicts);
}

/* The class follows from what differs; what is missing makes it inconclusive unless something differed; the cold start, seeds that change nothing
 * and the number of answers are told beside it. */
START_TEST(classes_from_answers)
{
	arena_init(&arena);
	check_report("aaaaaaaaaaaaaaaaaaaa|bc", "byte-stable", 1, 0.139, "[\"reproducible\"]");
	check_report("aaaaaaaaaaaaaaaaaaaa|aa", "byte-stable", 1, 0.139, "[\"reproducible\",\"seed-ignored\"]");
	check_report("aAaaaaaaaaaaaaaaaaaa|b", "json-stable", 2, 0.216, "[\"reproducible\",\"2-distinct\"]");
	check_report("baaaaaaaaaaaaaaaaaaa|b", "unstable", 2, 0.216, "[\"cold-start-differs\",\"2-distinct\"]");
	check_report("abcdefg", "unstable", 7, 1 - 0.007301, "[\"7-distinct\"]");
	check_report("aaaa!", "inconclusive", 1, 0.527, "[]");
	check_report("aab!a", "unstable", 2, 0.751, "[\"2-distinct\"]");
	check_report("?????", "refused", 0, -1, "[]");
	check_report("!!?!!", "inconclusive", 0, -1, "[]");
	check_report("aaa/aaa", "inconclusive", 1, 0.393, "[]");
	arena_close(&arena);
}
END_TEST

/* Phases beside the class: what is stable alone only is solo-only, or unstable where it was not stable alone; the others are told as verdicts. */
START_TEST(classes_from_phases)
{
	const struct json *report, *asks;

	arena_init(&arena);
	check_report("aaaa=aaaa", "byte-stable", 1, 0.527, "[\"reproducible\"]");
	check_report("aaaa=aaba", "solo-only", 1, 0.527, "[\"concurrency-differs\"]");
	check_report("aaaa=aaAa", "solo-only", 1, 0.527, "[\"concurrency-differs\"]");
	check_report("aAaa=aaAa", "json-stable", 2, 0.751, "[\"reproducible\",\"2-distinct\"]");
	check_report("aAaa=aaba", "unstable", 2, 0.751, "[\"2-distinct\",\"concurrency-differs\"]");
	check_report("aaaa=aa!a", "inconclusive", 1, 0.527, "[]");
	check_report("aaaa=ab!a", "solo-only", 1, 0.527, "[\"concurrency-differs\"]");
	check_report("aaaa~bbbb", "unstable", 2, 0.807, "[\"2-distinct\",\"cache-path-differs\"]");
	check_report("aaaa~aaaa", "byte-stable", 1, 0.312, "[\"reproducible\"]");
	check_report("<bb>aaaa", "byte-stable", 1, 0.527, "[\"reproducible\",\"reload-differs\"]");
	check_report("<aa>aaaa", "byte-stable", 1, 0.527, "[\"reproducible\"]");
	check_report("aaaa_bcbb", "byte-stable", 1, 0.527, "[\"reproducible\",\"stable-with-schema-only\"]");
	check_report("abcd_bbbb", "unstable", 4, 0.987, "[\"4-distinct\",\"stable-without-schema-only\"]");
	report = gate_report(&arena, asks_of("<aa>aaa_bbb=aaa"), 0);
	ck_assert_double_eq(json_get_number(json_get(report, "conditions"), "requestsInFlight", 0), 4);
	ck_assert_str_eq(json_get_text(json_get(report, "conditions"), "instance"), "1-1"); /* the one that was measured */
	ck_assert(json_get_boolean(json_get(report, "conditions"), "schema", false));
	/* In groups it is the same. */
	asks = parse("[[{\"phase\":\"cold\",\"outcome\":\"answered\",\"textDigest\":\"x\"}],[{\"phase\":\"concurrent\",\"outcome\":\"answered\",\"textDigest\":\"x\"},"
		     "{\"phase\":\"concurrent\",\"outcome\":\"answered\",\"textDigest\":\"y\"}]]");
	ck_assert_str_eq(json_get_text(gate_report(&arena, asks, 0), "class"), "solo-only");
	arena_close(&arena);
}
END_TEST

/* Requests past the cache do not count for the class; where they got no other answer it holds on both paths, else what differs is told. */
START_TEST(both_cache_paths)
{
	static const struct {
		const char *letters, *path, *verdicts;
	} cases[] = {
		{"cccc^cccc", "any", "[\"reproducible\"]"},
		{"cccc^cc!c", "prefix", "[\"reproducible\"]"},
		{"cccc^aaaa", "prefix", "[\"reproducible\",\"cache-path-differs\"]"},
		{"cccc^ccac", "prefix", "[\"reproducible\",\"cache-path-differs\"]"},
		{"cccc^CCCC", "prefix", "[\"reproducible\",\"cache-path-differs\"]"},
		{"cCcc^ccCc", "any", "[\"reproducible\",\"2-distinct\"]"},
		{"cCcc^caac", "prefix", "[\"reproducible\",\"2-distinct\"]"},
		{"accc^aaaa", "prefix", "[\"cold-start-differs\",\"2-distinct\",\"cache-path-differs\",\"stable-uncached-only\"]"},
		{"aaaa^aaaa", "none", "[\"reproducible\"]"},
		{"kkkk^kkkk", "prefix", "[\"reproducible\",\"cache-not-bypassed\"]"},
		{"cccc^cccc=cac", "any", "[\"concurrency-differs\"]"},
	};

	arena_init(&arena);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		const struct json *report = gate_report(&arena, asks_of(cases[i].letters), 0), *phase = json_get(json_get(report, "phases"), "uncached");

		ck_assert_double_eq(json_get_number(report, "requests", 0), 4);
		ck_assert_str_eq(json_get_text(json_get(report, "conditions"), "cachePath"), cases[i].path);
		ck_assert_str_eq((const char *)json_print_arena(json_get(report, "verdicts"), &arena).data, cases[i].verdicts);
		ck_assert_double_eq(json_get_number(phase, "asked", 0), 4);
		ck_assert_str_eq(json_get_text(phase, "cacheBypass"), "cache_salt");
	}
	arena_close(&arena);
}
END_TEST

/* What the report holds besides: reasons, answers by frequency, lengths, phases, conditions, where the two most frequent answers part. */
START_TEST(what_a_report_holds)
{
	arena_init(&arena);
	const struct json *report = gate_report(&arena, asks_of("abbab!|cc"), 1790000000000), *answers = json_get(report, "answers");
	struct bytes lengths = json_print_arena(json_get(report, "lengths"), &arena), phases = json_print_arena(json_get(report, "phases"), &arena);

	ck_assert_str_eq(json_get_text(report, "runtime"), "r");
	ck_assert_str_eq(json_get_text(report, "configuration"), "sha256:c1");
	ck_assert_double_eq(json_get_number(report, "requests", 0), 6);
	ck_assert_double_eq(json_get_number(report, "answered", 0), 5);
	ck_assert_str_eq(json_get_text(json_at(answers, 0), "digest"), "sha256:b");
	ck_assert_double_eq(json_get_number(json_at(answers, 0), "count", 0), 3);
	ck_assert_double_eq(json_get_number(json_at(answers, 0), "first", 0), 1);
	ck_assert_str_eq((const char *)lengths.data, "[[5,2],[7,3]]");
	ck_assert_str_eq((const char *)phases.data, "{\"cold\":{\"answered\":1,\"asked\":1,\"distinct\":1},\"seed\":{\"answered\":2,\"asked\":2,\"distinct\":1},"
						    "\"warm\":{\"answered\":4,\"asked\":5,\"distinct\":2}}");
	ck_assert_double_eq(json_get_number(report, "firstDifference", -1), 5);
	ck_assert_str_eq(json_get_text(json_get(report, "conditions"), "cachePath"), "none"); /* the identical ones alone count */
	ck_assert_str_eq(json_get_text(report, "measuredOn"), "2026-09-21T14:13:20.000Z");
	report = gate_report(&arena, asks_of("a!"), 0);
	ck_assert_str_eq(json_get_text(report, "reason"), "1 of 2 requests got no answer that counts, the first: truncated: why");
	ck_assert_str_eq(json_get_text(json_get(gate_report(&arena, asks_of("ac"), 0), "conditions"), "cachePath"), "prefix");
	ck_assert_str_eq(json_get_text(json_get(gate_report(&arena, asks_of("!!"), 0), "conditions"), "cachePath"), "unknown"); /* no answer said anything */
	/* More answers than a report shows. */
	report = gate_report(&arena, asks_of("abcdefghijklmnopqrstuvwxyz"), 0);
	ck_assert_uint_eq(json_count(json_get(report, "answers")), GATE_ANSWERS_MAX);
	ck_assert_double_eq(json_get_number(report, "answersLeftOut", 0), 26 - GATE_ANSWERS_MAX);
	/* Nothing was asked: somebody's own list. */
	ck_assert_str_eq(json_get_text(gate_report(&arena, json_array(&arena), 0), "class"), "inconclusive");
	arena_close(&arena);
}
END_TEST

SUITE_MAIN("base-reproducibility", upper_bounds, classes_in_order, plans, plans_in_phases, texts_are_bounded_together, bad_arguments, classes_from_answers, classes_from_phases, both_cache_paths, what_a_report_holds)
