/* Event consumption (consumption.h): reading `to`, then matching. Pure. Start at consumption_read() and event_match(). */
#include "workflow/language/consumption.h"

#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/checker.h"
#include "workflow/language/cloud_event.h"
#include "workflow/language/expression.h"
#include "workflow/language/json_schema.h"

/* ---- Reading */

static bool has_expression(const struct json *value)
{
	bool has = checker_is_expression(value);

	for (size_t i = 0; json_is(value, JSON_ARRAY) && i < value->array.count && !has; i++)
		has = has_expression(value->array.items[i]);
	for (size_t i = 0; json_is(value, JSON_OBJECT) && i < value->object.count && !has; i++)
		has = has_expression(value->object.members[i].value);
	return has;
}

static bool is_pattern(const char *text, size_t len)
{
	return len >= 2 && text[0] == '^' && text[len - 1] == '$';
}

/* The pointer stands at the pattern. A schema of nothing else, so that its limits and its owner are those of schemas. */
static const struct json_schema *compile_pattern(struct checker *checker, const struct json *text)
{
	struct definition *definition = checker->definition;
	struct definition_schema *link;
	struct json_schema *compiled;
	struct json *schema = json_object(&definition->arena);
	struct error error = {0};

	json_set(&definition->arena, schema, "pattern", (struct json *)text);
	compiled = json_schema_compile(schema, NULL, 0, &error);
	if (!compiled) {
		const char *place = "/pattern: "; /* in a schema that nobody wrote */
		const char *message = strncmp(error.message, place, strlen(place)) == 0 ? error.message + strlen(place) : error.message;

		checker_fail(checker, "a text that begins with ^ and ends with $ is a regular expression", "%s", message);
		return NULL;
	}
	link = arena_alloc(&definition->arena, sizeof *link);
	*link = (struct definition_schema){compiled, definition->schemas};
	definition->schemas = link;
	return compiled;
}

/* The pointer stands at the attribute's value. */
static void read_attribute(struct checker *checker, struct event_attribute *attribute, const char *name, const struct json *value)
{
	static const char *const texts[] = {"id", "source", "specversion", "type", "time", "subject", "datacontenttype", "dataschema"};
	bool is_text = false, is_data = strcmp(name, "data") == 0;
	struct bytes inner;

	*attribute = (struct event_attribute){.name = name, .value = value};
	if (!is_data && (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(name) || !*name || strlen(name) > CLOUD_EVENT_NAME_MAX))
		checker_fail_key(checker, "lower-case letters and digits", "no event has an attribute '%.80s'", name);
	for (size_t i = 0; i < COUNT_OF(texts); i++)
		is_text |= strcmp(texts[i], name) == 0;
	if (is_text && !checker_type(checker, value, JSON_STRING, true) && !checker_is_expression(value))
		return;
	if (!is_text && !is_data && !json_is(value, JSON_STRING) && !json_is(value, JSON_BOOLEAN) && !json_is_integer(value)) {
		checker_fail(checker, NULL, "an attribute of an event is a string, a boolean or an integer, not %s", json_type_name(value->type));
		return;
	}
	if (json_is(value, JSON_STRING) && expression_unwrap(value->string.text, &inner)) {
		attribute->wants = EVENT_WANTS_PREDICATE;
		attribute->predicate = arena_text_len(&checker->definition->arena, (const char *)inner.data, inner.len);
		checker_expression(checker, attribute->predicate);
	} else if (json_is(value, JSON_STRING) && is_pattern(value->string.text, value->string.len)) {
		attribute->wants = EVENT_WANTS_PATTERN;
		attribute->pattern = compile_pattern(checker, value);
	} else {
		attribute->is_literal = !has_expression(value);
		checker_template(checker, value, true);
	}
}

static void read_with(struct checker *checker, struct event_filter *filter, const struct json *with)
{
	struct event_attribute *attributes;

	if (!checker_type(checker, with, JSON_OBJECT, false))
		return;
	if (with->object.count == 0)
		checker_fail(checker, "any: [] takes every event", "a filter must name at least one attribute");
	if (with->object.count > CLOUD_EVENT_ATTRIBUTES_MAX) {
		checker_fail(checker, NULL, "more than %d attributes (CLOUD_EVENT_ATTRIBUTES_MAX)", CLOUD_EVENT_ATTRIBUTES_MAX);
		return;
	}
	attributes = arena_zero(&checker->definition->arena, (with->object.count + 1) * sizeof *attributes);
	for (size_t i = 0; i < with->object.count; i++) {
		const struct json_member *member = &with->object.members[i];
		size_t len = checker_enter(checker, member->name);

		read_attribute(checker, &attributes[i], member->name, member->value);
		checker_leave(checker, len);
	}
	filter->attributes = attributes;
	filter->attribute_count = with->object.count;
}

/* {from, expect}; the pointer stands at it. */
static void read_correlation(struct checker *checker, struct event_correlation *correlation, const struct json *value)
{
	static const struct key keys[] = {{"from", KEY_REQUIRED, "from: .subject"}, {"expect", KEY_OPTIONAL, NULL}};
	const struct json *from = json_get(value, "from"), *expect = json_get(value, "expect");
	size_t len;

	correlation->from = "";
	if (!checker_type(checker, value, JSON_OBJECT, false))
		return;
	checker_keys(checker, value, keys, COUNT_OF(keys), "a correlation");
	if (from) {
		len = checker_enter(checker, "from");
		correlation->from = checker_read_expression(checker, from);
		checker_leave(checker, len);
	}
	if (expect) {
		len = checker_enter(checker, "expect");
		if (json_is(expect, JSON_STRING))
			checker_template(checker, expect, true);
		else
			checker_fail(checker, "write '${ 5 }' for what is no text", "must be a string or an expression ${ … }, not %s", json_type_name(expect->type));
		correlation->expect = expect;
		checker_leave(checker, len);
	}
}

static void read_correlate(struct checker *checker, struct event_filter *filter, const struct json *correlate)
{
	struct event_correlation *correlations;

	if (!checker_type(checker, correlate, JSON_OBJECT, false))
		return;
	if (correlate->object.count > EVENT_CORRELATIONS_MAX) {
		checker_fail(checker, NULL, "more than %d correlations of one filter (EVENT_CORRELATIONS_MAX)", EVENT_CORRELATIONS_MAX);
		return;
	}
	correlations = arena_zero(&checker->definition->arena, (correlate->object.count + 1) * sizeof *correlations);
	for (size_t i = 0; i < correlate->object.count; i++) {
		const struct json_member *member = &correlate->object.members[i];
		size_t len = checker_enter(checker, member->name);

		correlations[i].name = member->name;
		read_correlation(checker, &correlations[i], member->value);
		checker_leave(checker, len);
	}
	filter->correlations = correlations;
	filter->correlation_count = correlate->object.count;
}

/* The pointer stands at the filter. */
static void read_event_filter(struct checker *checker, struct event_filter *filter, const struct json *value)
{
	static const struct key keys[] = {{"with", KEY_REQUIRED, "with: {type: com.example.order.placed}"}, {"correlate", KEY_OPTIONAL, NULL}};
	size_t len;

	if (!checker_type(checker, value, JSON_OBJECT, false))
		return;
	checker_keys(checker, value, keys, COUNT_OF(keys), "an event filter");
	if (json_get(value, "with")) {
		len = checker_enter(checker, "with");
		read_with(checker, filter, json_get(value, "with"));
		checker_leave(checker, len);
	}
	if (json_get(value, "correlate")) {
		len = checker_enter(checker, "correlate");
		read_correlate(checker, filter, json_get(value, "correlate"));
		checker_leave(checker, len);
	}
}

/* The pointer stands at `one`, `any` or `all`. */
static void read_filters(struct checker *checker, struct event_strategy *strategy, const struct json *value)
{
	bool is_list = strategy->kind != EVENTS_ONE;
	size_t count = 1;

	if (is_list && !checker_type(checker, value, JSON_ARRAY, false))
		return;
	if (is_list)
		count = value->array.count;
	if (strategy->kind == EVENTS_ALL && count == 0)
		checker_fail(checker, NULL, "must have at least one filter");
	if (count > EVENT_FILTERS_MAX) {
		checker_fail(checker, NULL, "more than %d filters (EVENT_FILTERS_MAX)", EVENT_FILTERS_MAX);
		return;
	}
	strategy->filters = arena_zero(&checker->definition->arena, (count + 1) * sizeof *strategy->filters);
	strategy->filter_count = count;
	for (size_t i = 0; i < count; i++) {
		size_t len = is_list ? checker_enter_index(checker, i) : checker->pointer.len;

		read_event_filter(checker, &strategy->filters[i], is_list ? value->array.items[i] : value);
		checker_leave(checker, len);
	}
}

static struct event_strategy *read_strategy(struct checker *checker, const struct json *value, bool nested)
{
	static const struct key keys[] = {{"one", KEY_OPTIONAL, NULL}, {"any", KEY_OPTIONAL, NULL}, {"all", KEY_OPTIONAL, NULL}, {"until", KEY_OPTIONAL, NULL}};
	static const enum event_strategy_kind kinds[] = {EVENTS_ONE, EVENTS_ANY, EVENTS_ALL};
	struct event_strategy *strategy = arena_zero(&checker->definition->arena, sizeof *strategy);
	const struct json *until = json_get(value, "until");
	size_t found = 0, len;

	if (!checker_type(checker, value, JSON_OBJECT, false))
		return NULL;
	checker_keys(checker, value, keys, COUNT_OF(keys), "an event consumption strategy");
	for (size_t i = 0; i < COUNT_OF(kinds); i++)
		found += json_get(value, keys[i].name) != NULL;
	if (found != 1) {
		checker_fail(checker, "one: {with: {type: …}}", "must have exactly one of one, any and all");
		return NULL;
	}
	for (size_t i = 0; i < COUNT_OF(kinds); i++) {
		if (!json_get(value, keys[i].name))
			continue;
		strategy->kind = kinds[i];
		len = checker_enter(checker, keys[i].name);
		read_filters(checker, strategy, json_get(value, keys[i].name));
		checker_leave(checker, len);
	}
	if (!until)
		return strategy;
	len = checker_enter(checker, "until");
	if (nested)
		checker_fail_key(checker, NULL, "an 'until' has no 'until' of its own");
	else if (strategy->kind != EVENTS_ANY)
		checker_fail_key(checker, "write any: […]", "'until' belongs to 'any'");
	else if (json_is(until, JSON_OBJECT))
		strategy->until_strategy = read_strategy(checker, until, true);
	else
		strategy->until = checker_read_expression(checker, until);
	checker_leave(checker, len);
	return strategy;
}

static const struct json *find_expect(const struct event_strategy *strategy, const char *name)
{
	for (size_t i = 0; strategy && i < strategy->filter_count; i++)
		for (size_t k = 0; k < strategy->filters[i].correlation_count; k++)
			if (strategy->filters[i].correlations[k].expect && strcmp(strategy->filters[i].correlations[k].name, name) == 0)
				return strategy->filters[i].correlations[k].expect;
	return NULL;
}

/* All filters that share a name must agree: one that says nothing expects what another one says. */
static void share_expectations(struct event_strategy *strategy, const struct event_strategy *whole)
{
	for (size_t i = 0; i < strategy->filter_count; i++)
		for (size_t k = 0; k < strategy->filters[i].correlation_count; k++) {
			struct event_correlation *correlation = (struct event_correlation *)&strategy->filters[i].correlations[k];

			if (!correlation->expect)
				correlation->expect = find_expect(whole, correlation->name);
			if (!correlation->expect)
				correlation->expect = find_expect(whole->until_strategy, correlation->name);
		}
}

const struct event_strategy *consumption_read(struct checker *checker, const struct json *value)
{
	size_t errors = checker->problems->errors;
	struct event_strategy *strategy = read_strategy(checker, value, false);

	if (checker->problems->errors > errors)
		return NULL;
	share_expectations(strategy, strategy);
	if (strategy->until_strategy)
		share_expectations((struct event_strategy *)strategy->until_strategy, strategy);
	return strategy;
}

/* ---- Matching */

bool event_filter_rejects(const struct event_filter *filter, const struct json *envelope)
{
	for (size_t i = 0; i < filter->attribute_count; i++) {
		const struct event_attribute *attribute = &filter->attributes[i];
		const struct json *has = json_get(envelope, attribute->name);

		if (attribute->wants == EVENT_WANTS_VALUE && attribute->is_literal && (!has || !json_equal(has, attribute->value)))
			return true;
	}
	return false;
}

bool event_strategy_rejects(const struct event_strategy *strategy, const struct json *envelope)
{
	if (strategy->kind == EVENTS_ANY && strategy->filter_count == 0)
		return false;
	for (size_t i = 0; i < strategy->filter_count; i++)
		if (!event_filter_rejects(&strategy->filters[i], envelope))
			return false;
	return !strategy->until_strategy || event_strategy_rejects(strategy->until_strategy, envelope);
}

struct matching {
	struct arena *arena;
	const struct json *envelope;
	const struct event_scope *scope;
	struct error *error;
};

/* The three ways out: 0 and *result; ERR_NOT_FOUND; ERR_INVALID, which the caller judges. */
static int evaluate(const struct matching *m, const struct json *self, const struct json *template, const char *expression, const struct json **result)
{
	int rc = m->scope->evaluate(m->scope->context, self, template, expression, result, m->error);

	return rc == 0 || rc == ERR_NOT_FOUND ? rc : ERR_INVALID;
}

enum answer { ANSWER_NO, ANSWER_YES, ANSWER_UNKNOWN, ANSWER_FAILED };

static enum answer match_attribute(const struct matching *m, const struct event_attribute *attribute)
{
	const struct json *has = json_get(m->envelope, attribute->name), *result = NULL;
	int rc;

	switch (attribute->wants) {
	case EVENT_WANTS_PATTERN: /* a limit that is reached is no match */
		return json_is(has, JSON_STRING) && json_schema_match(attribute->pattern, has, NULL) == 0 ? ANSWER_YES : ANSWER_NO;
	case EVENT_WANTS_VALUE:
		if (!has)
			return ANSWER_NO;
		if (attribute->is_literal)
			return json_equal(has, attribute->value) ? ANSWER_YES : ANSWER_NO;
		rc = evaluate(m, has, attribute->value, NULL, &result);
		return rc == ERR_NOT_FOUND ? ANSWER_UNKNOWN : rc == 0 && json_equal(has, result) ? ANSWER_YES : ANSWER_NO;
	case EVENT_WANTS_PREDICATE:
		break;
	}
	rc = evaluate(m, has ? has : json_null(m->arena), NULL, attribute->predicate, &result);
	if (rc == ERR_NOT_FOUND)
		return ANSWER_UNKNOWN;
	bool holds = rc == 0 && ((json_is(result, JSON_BOOLEAN) && json_truthy(result)) || (has && json_equal(has, result)));
	return holds ? ANSWER_YES : ANSWER_NO;
}

/* *correlation: what is expected so far; replaced by a new object where the event adds to it. */
static enum answer match_correlation(const struct matching *m, const struct event_correlation *wanted, const struct json **correlation)
{
	const struct json *value = NULL, *expected = NULL, *known = json_get(*correlation, wanted->name);
	int rc = evaluate(m, m->envelope, NULL, wanted->from, &value);

	if (rc == ERR_NOT_FOUND)
		return ANSWER_UNKNOWN;
	if (rc != 0 || json_is(value, JSON_NULL) || (known && !json_equal(known, value)))
		return ANSWER_NO;
	rc = wanted->expect ? evaluate(m, NULL, wanted->expect, NULL, &expected) : 0;
	if (rc == ERR_NOT_FOUND)
		return ANSWER_UNKNOWN;
	if (rc != 0) {
		error_wrap(m->error, "correlate.%s.expect", wanted->name);
		return ANSWER_FAILED;
	}
	if (expected && !json_equal(expected, value))
		return ANSWER_NO;
	if (!known) {
		struct json *more = json_object(m->arena);

		for (size_t i = 0; i < json_count(*correlation); i++)
			json_set(m->arena, more, (*correlation)->object.members[i].name, (*correlation)->object.members[i].value);
		json_set(m->arena, more, wanted->name, (struct json *)value);
		*correlation = more;
	}
	return ANSWER_YES;
}

/* What is not at hand does not end the walk: all of a filter is asked for at once. What is at hand and says no does. */
static enum answer match_filter(const struct matching *m, const struct event_filter *filter, const struct json **correlation)
{
	enum answer answer = ANSWER_YES;

	if (event_filter_rejects(filter, m->envelope))
		return ANSWER_NO;
	for (size_t i = 0; i < filter->attribute_count; i++) {
		enum answer one = match_attribute(m, &filter->attributes[i]);

		if (one == ANSWER_NO)
			return ANSWER_NO;
		if (one == ANSWER_UNKNOWN)
			answer = ANSWER_UNKNOWN;
	}
	for (size_t i = 0; i < filter->correlation_count; i++) {
		enum answer one = match_correlation(m, &filter->correlations[i], correlation);

		if (one == ANSWER_NO || (one == ANSWER_FAILED && answer == ANSWER_YES))
			return one;
		if (one != ANSWER_YES)
			answer = ANSWER_UNKNOWN;
	}
	return answer;
}

static uint64_t all_of(size_t count)
{
	return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

/* The first filter that takes it. */
static enum answer match_strategy(const struct matching *m, const struct event_strategy *strategy, uint64_t met, struct event_match *match, uint64_t *met_after)
{
	*met_after = met;
	if (strategy->kind == EVENTS_ANY && strategy->filter_count == 0) {
		match->is_last = true;
		return ANSWER_YES;
	}
	for (size_t i = 0; i < strategy->filter_count; i++) {
		const struct json *correlation = match->progress.correlation;
		enum answer answer;

		if (strategy->kind == EVENTS_ALL && (met >> i & 1))
			continue;
		answer = match_filter(m, &strategy->filters[i], &correlation);
		if (answer == ANSWER_NO)
			continue;
		match->filter = i;
		if (answer != ANSWER_YES)
			return answer;
		match->progress.correlation = correlation;
		if (strategy->kind == EVENTS_ALL)
			*met_after = met | UINT64_C(1) << i;
		match->is_last = strategy->kind != EVENTS_ALL || *met_after == all_of(strategy->filter_count);
		return ANSWER_YES;
	}
	return ANSWER_NO;
}

int event_match(struct arena *arena, const struct event_strategy *strategy, const struct event_progress *progress, const struct json *envelope,
		const struct event_scope *scope, struct event_match *match, struct error *error)
{
	struct error ignored = {0}; /* what an event brings about on its own: it does not match */
	const struct matching m = {arena, envelope, scope, error ? error : &ignored};
	const struct event_strategy *until = strategy->until_strategy;
	enum answer answer = ANSWER_NO;

	*match = (struct event_match){.progress = *progress};
	if (until) {
		answer = match_strategy(&m, until, progress->until_met, match, &match->progress.until_met);
		match->is_until = answer != ANSWER_NO;
	}
	if (answer == ANSWER_NO) {
		answer = match_strategy(&m, strategy, progress->met, match, &match->progress.met);
		if (strategy->until || until)
			match->is_last = false;
	}
	if (answer == ANSWER_UNKNOWN)
		return ERR_NOT_FOUND;
	if (answer == ANSWER_FAILED)
		return ERR_INVALID;
	*m.error = (struct error){0};
	match->matches = answer == ANSWER_YES;
	return 0;
}

const struct json *event_read(struct arena *arena, const struct json *envelope, enum event_reading reading)
{
	const struct json *data = json_get(envelope, "data");

	if (reading == EVENT_READ_ENVELOPE)
		return envelope;
	if (!data)
		data = json_get(envelope, "data_base64");
	if (!data)
		return json_null(arena);
	if (reading == EVENT_READ_DATA || json_is(data, JSON_STRING))
		return data;
	struct bytes text = json_print_arena(data, arena);
	return json_text_len(arena, (const char *)text.data, text.len);
}
