/* Which events a listener takes: `listen.to` and `schedule.on`, compiled when the definition is registered, and the one place that
 * says whether an event matches (dsl.md 1.7, D9).
 *
 *   to     ::= {one: filter} | {all: [filter…]} | {any: [filter…], until?: expression | to without until}
 *   filter ::= {with: {attribute: wanted…}, correlate?: {name: {from, expect?}}}
 *   wanted ::= text | ^regular expression$ | ${ predicate } | for `data` and extensions any other value, with ${ } inside
 *
 * In a predicate "." is the attribute (null when the event has none); it holds when it gives true, or a value equal to the attribute.
 * `from` is evaluated on the envelope; an event without a value for it does not match. `expect` is evaluated on the listener's input. Without
 * one the first value that is seen is what all filters with this name expect from then on.
 * A predicate or a `from` that fails on an event is not met by it: events come from anywhere and must not end the run. An `expect`
 * that fails is the definition's own and fails the listener.
 *
 * Pure: expressions are evaluated by the caller. Threads: nothing compiled is ever changed. New here? Read event_match(). */
#pragma once

#include "workflow/base/json.h"

struct checker;
struct json_schema;

enum {
	EVENT_FILTERS_MAX = 64, /* of one strategy: progress is one bit each */
	EVENT_CORRELATIONS_MAX = 16, /* of one filter */
};

/* What becomes of a consumed event in an output: its data (null: none; data_base64 as the text that it is), all of it, or its data as a
 * text (a text as it is, all else as canonical JSON; null: none). */
enum event_reading { EVENT_READ_DATA, EVENT_READ_ENVELOPE, EVENT_READ_RAW };

enum event_wanted { EVENT_WANTS_VALUE, EVENT_WANTS_PATTERN, EVENT_WANTS_PREDICATE };
struct event_attribute {
	const char *name;
	enum event_wanted wants;
	const struct json *value; /* VALUE: a template; is_literal: without any expression */
	bool is_literal;
	const struct json_schema *pattern; /* PATTERN; owned by the definition */
	const char *predicate; /* PREDICATE: expression text without ${ } */
};

struct event_correlation {
	const char *name;
	const char *from; /* expression text without ${ } */
	/* What another filter of the same `to` expects under this name counts here too, where this one says nothing. NULL: the first value. */
	const struct json *expect; /* template */
};

struct event_filter {
	const struct event_attribute *attributes;
	size_t attribute_count;
	const struct event_correlation *correlations;
	size_t correlation_count;
};

enum event_strategy_kind { EVENTS_ONE, EVENTS_ANY, EVENTS_ALL };
struct event_strategy {
	enum event_strategy_kind kind;
	struct event_filter *filters;
	size_t filter_count; /* ANY: 0 takes every event */
	/* ANY only. Both NULL: the first event is enough. */
	const char *until; /* expression text without ${ }; "." is the array of the events so far, as they are read */
	const struct event_strategy *until_strategy; /* its events are consumed and not part of the output */
};

/* `to`, `on` or a nested `until`; the pointer stands at it. Lives in the definition's arena. NULL: a problem was added. */
const struct event_strategy *consumption_read(struct checker *checker, const struct json *value);

/* What a listener has consumed so far, as far as it decides what comes next. All zero: nothing. */
struct event_progress {
	uint64_t met; /* of EVENTS_ALL: bit i, filter i has had its event */
	uint64_t until_met; /* the same of until_strategy */
	const struct json *correlation; /* {name: value that is expected}; NULL: none */
};

/* How expressions are evaluated. self: "."; NULL: the listener's own input. Either template or expression is NULL. 0 and *result;
 * ERR_NOT_FOUND: it is not at hand yet (the caller gets it and matches the same event again); ERR_INVALID: it failed. */
struct event_scope {
	int (*evaluate)(void *context, const struct json *self, const struct json *template, const char *expression, const struct json **result, struct error *error);
	void *context;
};

struct event_match {
	bool matches; /* else the event is not for this listener */
	bool is_until; /* it satisfied a filter of until_strategy: consumed, and not part of the output */
	size_t filter; /* which one, from 0; of an `any: []` also 0 */
	/* No further event is wanted. Where the strategy has an `until` expression the caller evaluates it, after this event. */
	bool is_last;
	struct event_progress progress; /* after it; `correlation` is new when it differs from the one before */
};

/* Filters are tried in order, those of until_strategy first; one event satisfies one. 0 and *match; ERR_NOT_FOUND: something is not at hand;
 * ERR_INVALID: an `expect` failed, of match->filter. The same event, progress and results of evaluations give the same answer, by the same evaluations. */
int event_match(struct arena *arena, const struct event_strategy *strategy, const struct event_progress *progress, const struct json *envelope,
		const struct event_scope *scope, struct event_match *match, struct error *error);

/* True where a literal attribute already says that this filter, or no filter of this strategy and its `until`, can ever match the event:
 * without an evaluation, whatever the progress. Patterns are not tried. */
bool event_filter_rejects(const struct event_filter *filter, const struct json *envelope);
bool event_strategy_rejects(const struct event_strategy *strategy, const struct json *envelope);

/* What a consumed event is in an output. */
const struct json *event_read(struct arena *arena, const struct json *envelope, enum event_reading reading);
