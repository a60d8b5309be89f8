/* Tests of workflow/language/consumption.c: what a listener's `to` may say, and which events it takes. */
#include "workflow/language/consumption.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "workflow/base/check.h"
#include "workflow/language/checker.h"
#include "workflow/language/expression.h"
#include "workflow/language/json_schema.h"

/* A strategy that is read from its JSON text, and a listener that goes through events with it. */
struct rig {
	struct definition *definition;
	struct checker *checker;
	struct problems problems;
	const struct event_strategy *strategy;
	struct event_progress progress;
	const struct json *input; /* of the listener */
	bool at_hand; /* false: nothing that only jq evaluates is */
	size_t asked; /* evaluations that were asked of us */
	struct error error;
};

static struct json *parse(struct rig *r, const char *text)
{
	struct error error = {0};
	struct json *json = json_parse(&r->definition->arena, bytes_text(text), JSON_STRICT, NULL, &error);

	ck_assert_msg(json != NULL, "%s: %s", text, error.message);
	return json;
}

static void start(struct rig *r, const char *to)
{
	memset(r, 0, sizeof *r);
	r->definition = memory_zero(sizeof *r->definition);
	arena_init(&r->definition->arena);
	r->checker = memory_zero(sizeof *r->checker);
	problems_init(&r->problems);
	r->checker->definition = r->definition;
	r->checker->problems = &r->problems;
	buffer_init(&r->checker->pointer, 1 << 16);
	r->checker->variables[r->checker->variable_count++] = "input";
	r->at_hand = true;
	r->input = parse(r, "{\"room\":\"r1\",\"type\":\"wanted\"}");
	r->strategy = consumption_read(r->checker, parse(r, to));
}

static void stop(struct rig *r)
{
	for (struct definition_schema *link = r->definition->schemas; link; link = link->next)
		json_schema_free(link->schema);
	problems_close(&r->problems);
	buffer_close(&r->checker->pointer);
	arena_close(&r->definition->arena);
	free(r->checker);
	free(r->definition);
}

struct seen {
	struct rig *rig;
	const struct json *self;
};

static const struct json *get(void *context, const char *name)
{
	const struct seen *seen = context;

	if (strcmp(name, ".") == 0)
		return seen->self ? seen->self : seen->rig->input;
	return strcmp(name, "input") == 0 ? seen->rig->input : NULL;
}

/* Stands in for jq: `ask` is true once it is at hand, everything else fails. */
static int evaluate_jq(void *context, const char *text, const struct json **result, struct error *error)
{
	const struct seen *seen = context;

	seen->rig->asked++;
	if (!seen->rig->at_hand)
		return error_set(error, ERR_NOT_FOUND, "not yet");
	if (strncmp(text, "ask", 3) != 0)
		return error_set(error, ERR_INVALID, "it failed");
	*result = json_boolean(&seen->rig->definition->arena, true);
	return 0;
}

static int evaluate(void *context, const struct json *self, const struct json *template, const char *expression, const struct json **result, struct error *error)
{
	struct rig *r = context;
	struct seen seen = {r, self};
	struct scope scope = {get, &seen, evaluate_jq};
	struct arena *arena = &r->definition->arena;

	return expression ? expression_eval(arena, expression, &scope, result, error) : template_eval(arena, template, &scope, result, error);
}

/* What an event is to the listener: "no", "0", "until 1", "0 last", "not at hand", "failed"; it moves on when it is taken. */
static const char *offer(struct rig *r, const char *event)
{
	struct event_scope scope = {evaluate, r};
	struct event_match match;
	struct json *envelope = parse(r, event);

	ck_assert_msg(r->strategy != NULL, "%s", r->problems.count ? r->problems.items[0].message : "?");
	r->error = (struct error){0};
	switch (event_match(&r->definition->arena, r->strategy, &r->progress, envelope, &scope, &match, &r->error)) {
	case 0:
		break;
	case ERR_NOT_FOUND:
		return "not at hand";
	default:
		return "failed";
	}
	ck_assert_int_eq(r->error.code, ERR_NONE);
	if (!match.matches)
		return "no";
	ck_assert(!event_strategy_rejects(r->strategy, envelope)); /* what matches is never rejected early */
	r->progress = match.progress;
	return arena_printf(&r->definition->arena, "%s%zu%s", match.is_until ? "until " : "", match.filter, match.is_last ? " last" : "");
}

#define EVENT(members) "{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"/s\"," members "}"

/* `one` takes the first event that matches and no other; attributes must all be equal. */
START_TEST(one_takes_the_first_that_matches)
{
	struct rig r;

	start(&r, "{\"one\":{\"with\":{\"type\":\"a\",\"source\":\"/s\"}}}");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"b\"")), "no");
	ck_assert_str_eq(offer(&r, "{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"/other\",\"type\":\"a\"}"), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"a\"")), "0 last");
	stop(&r);
}
END_TEST

/* `any` ends with the first match, without filters with any event. */
START_TEST(any_takes_one_of_several)
{
	struct rig r;

	start(&r, "{\"any\":[{\"with\":{\"type\":\"a\"}},{\"with\":{\"type\":\"b\"}}]}");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"c\"")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"b\"")), "1 last");
	stop(&r);
	start(&r, "{\"any\":[]}");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"c\"")), "0 last");
	stop(&r);
}
END_TEST

/* `all`: one event satisfies one filter, each filter has one event, in any order. */
START_TEST(all_takes_one_for_each_filter)
{
	struct rig r;

	start(&r, "{\"all\":[{\"with\":{\"type\":\"a\"}},{\"with\":{\"source\":\"/s\"}},{\"with\":{\"type\":\"b\"}}]}");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"b\"")), "1");
	ck_assert_uint_eq(r.progress.met, 2);
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"a\"")), "0");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"a\"")), "no"); /* both that would take it have had theirs */
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"b\"")), "2 last");
	ck_assert_uint_eq(r.progress.met, 7);
	stop(&r);
}
END_TEST

/* With an `until` no event is the last by itself; a nested strategy goes first, is met like any other, and its events are told apart. */
START_TEST(until_says_when_it_is_enough)
{
	struct rig r;

	start(&r, "{\"any\":[],\"until\":\". > 3\"}");
	ck_assert_str_eq(r.strategy->until, ". > 3");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"c\"")), "0");
	stop(&r);
	start(&r, "{\"any\":[{\"with\":{\"source\":\"/s\"}}],\"until\":{\"all\":[{\"with\":{\"type\":\"x\"}},{\"with\":{\"type\":\"y\"}}]}}");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"c\"")), "0");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"y\"")), "until 1");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"y\"")), "0"); /* the second y is one like others */
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"x\"")), "until 0 last");
	ck_assert_uint_eq(r.progress.until_met, 3);
	ck_assert_uint_eq(r.progress.met, 0);
	stop(&r);
}
END_TEST

/* D9: a text is literal; ^…$ is a regular expression; ${ } is a predicate on the attribute, or gives what it must equal. */
START_TEST(attributes_are_compared_matched_or_asked)
{
	struct rig r;

	start(&r, "{\"any\":[{\"with\":{\"type\":\"a.*\"}},{\"with\":{\"type\":\"^b\\\\d+$\"}},{\"with\":{\"type\":\"${ $input.type }\"}},"
		  "{\"with\":{\"data\":\"${ .temperature > 38 }\"}},{\"with\":{\"data\":{\"room\":\"${ $input.room }\",\"deep\":[1]}}},{\"with\":{\"subject\":\"${ . == null }\",\"level\":3}}]}");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"abc\",\"subject\":\"s\"")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"a.*\"")), "0 last");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"b12\"")), "1 last");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"b12x\"")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"wanted\"")), "2 last");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\",\"data\":{\"temperature\":38.5}")), "3 last");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\",\"data\":{\"temperature\":38}")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\",\"data\":{\"room\":\"r1\",\"deep\":[1]}")), "4 last");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\",\"data\":{\"room\":\"r2\",\"deep\":[1]}")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\",\"level\":3")), "5 last");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\",\"level\":3,\"subject\":\"s\"")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\",\"level\":\"3\"")), "no");
	stop(&r);
}
END_TEST

/* Without `expect` the first value is what is expected from then on, of every filter with this name; without a value nothing matches. */
START_TEST(correlation_is_fixed_by_the_first_event)
{
	struct rig r;

	start(&r, "{\"all\":[{\"with\":{\"type\":\"t\"},\"correlate\":{\"room\":{\"from\":\".room\"}}},{\"with\":{\"type\":\"h\"},\"correlate\":{\"room\":{\"from\":\"${ .data.room }\"}}}]}");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\"")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\",\"room\":\"a\"")), "0");
	ck_assert_str_eq((const char *)json_print_arena(r.progress.correlation, &r.definition->arena).data, "{\"room\":\"a\"}");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"h\",\"data\":{\"room\":\"b\"}")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"h\",\"data\":\"a path through a text fails\"")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"h\",\"data\":{\"room\":\"a\"}")), "1 last");
	stop(&r);
}
END_TEST

/* `expect` is a constant or an expression on the listener's input, and counts for all filters of that name, the nested `until` included. */
START_TEST(correlation_is_expected)
{
	struct rig r;

	start(&r, "{\"any\":[{\"with\":{\"type\":\"t\"},\"correlate\":{\"room\":{\"from\":\".room\"}}},{\"with\":{\"type\":\"h\"},\"correlate\":{\"room\":{\"from\":\".room\",\"expect\":\"${ .room }\"}}}],"
		  "\"until\":{\"one\":{\"with\":{\"type\":\"end\"},\"correlate\":{\"room\":{\"from\":\".room\"},\"key\":{\"from\":\".key\",\"expect\":\"k\"}}}}}");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\",\"room\":\"r2\"")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\",\"room\":\"r1\"")), "0");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"end\",\"room\":\"r1\",\"key\":\"other\"")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"end\",\"room\":\"r2\",\"key\":\"k\"")), "no");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"end\",\"room\":\"r1\",\"key\":\"k\"")), "until 0 last");
	stop(&r);
}
END_TEST

/* What is not at hand is asked for, all of a filter at once; a predicate that fails on an event is no match; an `expect` that fails is told. */
START_TEST(evaluations_may_come_later_or_fail)
{
	struct rig r;

	start(&r, "{\"one\":{\"with\":{\"type\":\"${ ask(1) }\",\"subject\":\"${ ask(2) }\"}}}");
	r.at_hand = false;
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\"")), "not at hand");
	ck_assert_uint_eq(r.asked, 2);
	r.at_hand = true;
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\"")), "0 last");
	stop(&r);
	start(&r, "{\"one\":{\"with\":{\"type\":\"${ fail(1) }\"}}}");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\"")), "no");
	stop(&r);
	start(&r, "{\"one\":{\"with\":{\"type\":\"t\"},\"correlate\":{\"k\":{\"from\":\".id\",\"expect\":\"${ fail(1) }\"}}}}");
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\"")), "failed");
	ck_assert_str_eq(r.error.message, "correlate.k.expect: it failed");
	stop(&r);
}
END_TEST

/* Early rejection knows literals only, of all filters and of `until`. */
START_TEST(literals_reject_early)
{
	struct rig r;

	start(&r, "{\"any\":[{\"with\":{\"type\":\"a\"}},{\"with\":{\"type\":\"b\",\"subject\":\"^x$\"}}],\"until\":{\"one\":{\"with\":{\"type\":\"end\"}}}}");
	ck_assert(!event_strategy_rejects(r.strategy, parse(&r, EVENT("\"type\":\"a\""))));
	ck_assert(!event_strategy_rejects(r.strategy, parse(&r, EVENT("\"type\":\"b\""))));
	ck_assert(!event_strategy_rejects(r.strategy, parse(&r, EVENT("\"type\":\"end\""))));
	ck_assert(event_strategy_rejects(r.strategy, parse(&r, EVENT("\"type\":\"c\""))));
	ck_assert(event_filter_rejects(&r.strategy->filters[0], parse(&r, EVENT("\"type\":\"b\""))));
	stop(&r);
	start(&r, "{\"any\":[]}");
	ck_assert(!event_strategy_rejects(r.strategy, parse(&r, EVENT("\"type\":\"c\""))));
	stop(&r);
}
END_TEST

/* The three ways to read an event, with data, with data_base64 and with none. */
START_TEST(events_are_read)
{
	struct rig r;
	static const struct {
		const char *event, *data, *raw;
	} rows[] = {
		{EVENT("\"type\":\"t\",\"data\":{\"b\":1,\"a\":2}"), "{\"a\":2,\"b\":1}", "\"{\\\"a\\\":2,\\\"b\\\":1}\""},
		{EVENT("\"type\":\"t\",\"data\":\"text\""), "\"text\"", "\"text\""},
		{EVENT("\"type\":\"t\",\"data_base64\":\"AAE=\""), "\"AAE=\"", "\"AAE=\""},
		{EVENT("\"type\":\"t\",\"data\":null"), "null", "\"null\""},
		{EVENT("\"type\":\"t\""), "null", "null"},
	};

	start(&r, "{\"any\":[]}");
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct arena *arena = &r.definition->arena;
		struct json *event = parse(&r, rows[i].event);
		ck_assert_str_eq((const char *)json_print_arena(event_read(arena, event, EVENT_READ_DATA), arena).data, rows[i].data);
		ck_assert_str_eq((const char *)json_print_arena(event_read(arena, event, EVENT_READ_RAW), arena).data, rows[i].raw);
		ck_assert_ptr_eq(event_read(arena, event, EVENT_READ_ENVELOPE), event);
	}
	stop(&r);
}
END_TEST

/* What is wrong is told with its pointer. */
START_TEST(bad_strategies_are_refused)
{
	static const struct {
		const char *to, *pointer, *message;
	} rows[] = {
		{"[]", "", "must be an object, not array"},
		{"{}", "", "must have exactly one of one, any and all"},
		{"{\"one\":{\"with\":{\"type\":\"a\"}},\"any\":[]}", "", "must have exactly one of one, any and all"},
		{"{\"some\":[],\"any\":[]}", "/some", "unknown key 'some' in an event consumption strategy"},
		{"{\"all\":[]}", "/all", "must have at least one filter"},
		{"{\"all\":{\"with\":{\"type\":\"a\"}}}", "/all", "must be an array, not object"},
		{"{\"one\":{}}", "/one", "'with' is missing in an event filter"},
		{"{\"one\":{\"with\":{}}}", "/one/with", "a filter must name at least one attribute"},
		{"{\"one\":{\"with\":{\"type\":1}}}", "/one/with/type", "must be a string, not number"},
		{"{\"one\":{\"with\":{\"level\":1.5}}}", "/one/with/level", "an attribute of an event is a string, a boolean or an integer, not number"},
		{"{\"one\":{\"with\":{\"Type\":\"a\"}}}", "/one/with/Type", "no event has an attribute 'Type'"},
		{"{\"one\":{\"with\":{\"data_base64\":\"a\"}}}", "/one/with/data_base64", "no event has an attribute 'data_base64'"},
		{"{\"any\":[{\"with\":{\"type\":\"^[$\"}}]}", "/any/0/with/type", "not a regular expression of ECMA-262: a class that does not end at offset 3"},
		{"{\"any\":[{\"with\":{\"data\":{\"a\":\"${ $nobody }\"}}}]}", "/any/0/with/data/a", NULL},
		{"{\"any\":[{\"with\":{\"type\":\"${ .[ }\"}}]}", "/any/0/with/type", NULL},
		{"{\"one\":{\"with\":{\"type\":\"a\"},\"correlate\":{\"k\":{}}}}", "/one/correlate/k", "'from' is missing in a correlation"},
		{"{\"one\":{\"with\":{\"type\":\"a\"},\"correlate\":{\"k\":{\"from\":1}}}}", "/one/correlate/k/from", "must be an expression, not number"},
		{"{\"one\":{\"with\":{\"type\":\"a\"},\"correlate\":{\"k\":{\"from\":\".a\",\"expect\":5}}}}", "/one/correlate/k/expect",
		 "must be a string or an expression ${ … }, not number"},
		{"{\"one\":{\"with\":{\"type\":\"a\"}},\"until\":\".a\"}", "/until", "'until' belongs to 'any'"},
		{"{\"any\":[],\"until\":{\"any\":[],\"until\":\".a\"}}", "/until/until", "an 'until' has no 'until' of its own"},
		{"{\"any\":[],\"until\":5}", "/until", "must be an expression, not number"},
		{"{\"any\":[],\"until\":\"$nobody\"}", "/until", NULL},
	};
	struct rig r;

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		start(&r, rows[i].to);
		ck_assert_msg(r.strategy == NULL, "%s", rows[i].to);
		ck_assert_uint_eq(r.problems.count, r.problems.errors);
		ck_assert_str_eq(r.problems.items[0].pointer, rows[i].pointer);
		if (rows[i].message)
			ck_assert_str_eq(r.problems.items[0].message, rows[i].message);
		stop(&r);
	}
}
END_TEST

/* The limits of filters, attributes and correlations are reached and named. */
START_TEST(limits_are_named)
{
	static const struct {
		const char *before, *repeated, *after;
		int most;
		const char *message;
	} rows[] = {
		{"{\"any\":[", "{\"with\":{\"type\":\"t%d\"}}", "]}", EVENT_FILTERS_MAX, "more than 64 filters (EVENT_FILTERS_MAX)"},
		{"{\"one\":{\"with\":{", "\"a%d\":\"x\"", "}}}", 64, "more than 64 attributes (CLOUD_EVENT_ATTRIBUTES_MAX)"},
		{"{\"one\":{\"with\":{\"type\":\"a\"},\"correlate\":{", "\"a%d\":{\"from\":\".a\"}", "}}}", EVENT_CORRELATIONS_MAX,
		 "more than 16 correlations of one filter (EVENT_CORRELATIONS_MAX)"},
	};
	struct rig r;

	for (size_t i = 0; i < COUNT_OF(rows); i++)
		for (int more = 0; more <= 1; more++) {
			struct buffer text;
			buffer_init(&text, 1 << 16);
			buffer_add_text(&text, rows[i].before);
			for (int k = 0; k < rows[i].most + more; k++) {
				const char *at = strchr(rows[i].repeated, '%');
				buffer_printf(&text, "%s%.*s%d%s", k ? "," : "", (int)(at - rows[i].repeated), rows[i].repeated, k, at + 2);
			}
			buffer_add_text(&text, rows[i].after);
			start(&r, buffer_text(&text));
			if (more)
				ck_assert_str_eq(r.problems.items[0].message, rows[i].message);
			else
				ck_assert_ptr_nonnull(r.strategy);
			stop(&r);
			buffer_close(&text);
		}
	/* 64 filters of `all`: the progress has a bit for each, and no 65th. */
	struct buffer text;
	buffer_init(&text, 1 << 16);
	buffer_add_text(&text, "{\"all\":[");
	for (int k = 0; k < EVENT_FILTERS_MAX; k++)
		buffer_printf(&text, "%s{\"with\":{\"source\":\"/s\"}}", k ? "," : "");
	buffer_add_text(&text, "]}");
	start(&r, buffer_text(&text));
	for (int k = 0; k < EVENT_FILTERS_MAX - 1; k++)
		ck_assert_ptr_null(strstr(offer(&r, EVENT("\"type\":\"t\"")), "last"));
	ck_assert_str_eq(offer(&r, EVENT("\"type\":\"t\"")), "63 last");
	ck_assert(r.progress.met == UINT64_MAX);
	stop(&r);
	buffer_close(&text);
}
END_TEST

SUITE_NO_ABORTS
SUITE_MAIN("language-consumption", one_takes_the_first_that_matches, any_takes_one_of_several, all_takes_one_for_each_filter, until_says_when_it_is_enough,
	   attributes_are_compared_matched_or_asked, correlation_is_fixed_by_the_first_event, correlation_is_expected, evaluations_may_come_later_or_fail,
	   literals_reject_early, events_are_read, bad_strategies_are_refused, limits_are_named)
