/* Runtime expressions of the in-process subset (expression.h), templates and URI templates. Pure; any thread.
 * New here? Read parse(), which is the whole grammar, then walk_path(). */
#include "workflow/language/expression.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/url.h"
#include "workflow/language/number.h"

enum {
	EXPRESSION_SHOWN_MAX = 80, /* bytes of an expression that an error message repeats */
	TEMPLATE_VALUES_MAX = 4000000, /* values in the result of one template: one line can ask for its input many times */
};

enum operator { OPERATOR_NONE, OPERATOR_EQUAL, OPERATOR_NOT_EQUAL, OPERATOR_LESS_EQUAL, OPERATOR_GREATER_EQUAL, OPERATOR_LESS, OPERATOR_GREATER };

/* The two-character ones first: "<=" begins with "<". */
static const struct {
	const char *text;
	enum operator operator;
} operators[] = {
	{"==", OPERATOR_EQUAL}, {"!=", OPERATOR_NOT_EQUAL}, {"<=", OPERATOR_LESS_EQUAL}, {">=", OPERATOR_GREATER_EQUAL},
	{"<", OPERATOR_LESS}, {">", OPERATOR_GREATER},
};

/* One step of a path: a member's name, or an index when name is NULL. */
struct segment {
	const char *name;
	size_t name_len;
	long index;
	struct segment *next;
};

struct expression {
	const char *variable; /* "." for the input; NULL: there is no path, only the literal */
	struct segment *first, **last;
	enum operator operator;
	const struct json *literal;
};

struct parser {
	struct arena *arena;
	const char *at, *end;
	struct error *error;
	const char *whole;
};

/* ---- Reading */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_name_start(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name(char c)
{
	return is_name_start(c) || (c >= '0' && c <= '9');
}

/* jq's comments run from # to the end of the line. */
static void skip_blanks(struct parser *parser)
{
	while (parser->at < parser->end) {
		if (is_blank(*parser->at)) {
			parser->at++;
		} else if (*parser->at == '#') {
			while (parser->at < parser->end && *parser->at != '\n')
				parser->at++;
		} else {
			return;
		}
	}
}

/* How much of a text a message shows; never a part of a character. */
static int shown_len(const char *text, size_t len)
{
	if (len <= EXPRESSION_SHOWN_MAX)
		return (int)len;
	len = EXPRESSION_SHOWN_MAX;
	while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
		len--;
	return (int)len;
}

static int needs_jq(struct parser *parser)
{
	return error_set(parser->error, ERR_UNSUPPORTED, "expression '%.*s' needs jq",
			 shown_len(parser->whole, strlen(parser->whole)), parser->whole);
}

static int invalid(struct parser *parser, const char *reason)
{
	return error_set(parser->error, ERR_INVALID, "expression '%.*s' %s", shown_len(parser->whole, strlen(parser->whole)), parser->whole, reason);
}

/* Text that is no subset expression: could jq make anything of it? Strings, comments and brackets must close and no
 * character may stand outside of them that jq's language does not use; the rest only jq can tell. That the brackets close is also what
 * keeps an expression inside the parentheses that the helper puts around it (activities/jq_helper.c). */
static int classify_foreign(struct parser *parser)
{
	enum { OPEN_MAX = 256 };
	char open[OPEN_MAX];
	size_t depth = 0;
	bool in_string = false;

	for (const char *at = parser->whole; *at; at++) {
		char c = *at;

		if (in_string) {
			if (c == '"') {
				in_string = false;
			} else if (c == '\\' && at[1] == '(') {
				at++;
				if (depth == OPEN_MAX)
					return invalid(parser, "nests brackets deeper than 256 levels");
				open[depth++] = '"';
				in_string = false;
			} else if (c == '\\' && at[1]) {
				at++;
			}
			continue;
		}
		if (c == '"') {
			in_string = true;
		} else if (c == '#') {
			while (at[1] && at[1] != '\n')
				at++;
		} else if (c == '(' || c == '[' || c == '{') {
			if (depth == OPEN_MAX)
				return invalid(parser, "nests brackets deeper than 256 levels");
			open[depth++] = c;
		} else if (c == ')' || c == ']' || c == '}') {
			char opened = depth > 0 ? open[--depth] : 0;

			if (opened == '"' && c == ')') {
				in_string = true; /* the end of \( … ) */
				continue;
			}
			if (opened != (c == ')' ? '(' : c == ']' ? '[' : '{'))
				return invalid(parser, "closes a bracket that is not open");
		} else if (!is_blank(c) && !is_name(c) && !strchr(".,:;|=!<>+-*/%?$@", c)) {
			return invalid(parser, "holds a character that has no meaning in an expression");
		}
	}
	if (in_string)
		return invalid(parser, "opens a string that does not end");
	if (depth > 0)
		return invalid(parser, "opens a bracket that is not closed");
	return needs_jq(parser);
}

/* The JSON text of one literal, from parser->at to its end. 0 when the text cannot be one. */
static size_t literal_len(const struct parser *parser)
{
	size_t depth = 0;
	const char *at = parser->at;

	do {
		if (at == parser->end)
			return 0;
		if (*at == '"') {
			for (at++; at < parser->end && *at != '"'; at++) {
				if (*at == '\\' && at + 1 < parser->end)
					at++;
			}
			if (at == parser->end)
				return 0;
			at++;
		} else if (*at == '[' || *at == '{') {
			depth++;
			at++;
		} else if (*at == ']' || *at == '}') {
			if (depth == 0)
				return 0;
			depth--;
			at++;
		} else if (depth > 0 && (is_blank(*at) || *at == ',' || *at == ':')) {
			at++;
		} else if (is_name(*at) || *at == '-') {
			while (at < parser->end && (is_name(*at) || strchr("-+.", *at)))
				at++;
		} else {
			return 0;
		}
	} while (depth > 0);
	return (size_t)(at - parser->at);
}

static bool literal_survives(const struct json *literal)
{
	bool good = literal->type != JSON_NUMBER || number_survives(literal->number);

	for (size_t i = 0; literal->type == JSON_ARRAY && i < literal->array.count && good; i++)
		good = literal_survives(literal->array.items[i]);
	for (size_t i = 0; literal->type == JSON_OBJECT && i < literal->object.count && good; i++)
		good = literal_survives(literal->object.members[i].value);
	return good;
}

/* JSON literals are jq literals with the same meaning, as long as no string interpolates: \( is not JSON. */
static int parse_literal(struct parser *parser, const struct json **literal)
{
	struct json_fault fault;
	size_t len = literal_len(parser);

	if (len == 0)
		return classify_foreign(parser);
	*literal = json_parse(parser->arena, (struct bytes){(const uint8_t *)parser->at, len}, JSON_STRICT, &fault, NULL);
	if (*literal ? !literal_survives(*literal) : fault.code == JSON_PRECISION)
		return invalid(parser, "holds an integer beyond 2^53 - 1, which would lose digits: compare with a string");
	if (!*literal && fault.code == JSON_NUMBER_RANGE)
		return invalid(parser, "holds a number out of range");
	if (!*literal)
		return classify_foreign(parser);
	parser->at += len;
	return 0;
}

static void add_segment(struct parser *parser, struct expression *expression, struct segment segment)
{
	struct segment *added = arena_alloc(parser->arena, sizeof *added);

	*added = segment;
	added->next = NULL;
	*expression->last = added;
	expression->last = &added->next;
}

/* "text" at the parser, which must be a string literal. */
static int parse_name_literal(struct parser *parser, struct expression *expression)
{
	const struct json *literal;
	int rc = parse_literal(parser, &literal);

	if (rc)
		return rc;
	add_segment(parser, expression, (struct segment){.name = literal->string.text, .name_len = literal->string.len});
	return 0;
}

/* What stands in brackets: ["name"] or [index]. */
static int parse_bracket(struct parser *parser, struct expression *expression)
{
	int rc;

	parser->at++;
	skip_blanks(parser);
	if (parser->at < parser->end && *parser->at == '"') {
		rc = parse_name_literal(parser, expression);
		if (rc)
			return rc;
	} else {
		bool negative = parser->at < parser->end && *parser->at == '-';
		long index = 0;
		const char *digits;

		if (negative)
			parser->at++;
		for (digits = parser->at; parser->at < parser->end && *parser->at >= '0' && *parser->at <= '9'; parser->at++) {
			index = index * 10 + (*parser->at - '0');
			if (index > INT_MAX)
				return classify_foreign(parser);
		}
		if (parser->at == digits)
			return classify_foreign(parser);
		add_segment(parser, expression, (struct segment){.index = negative ? -index : index});
	}
	skip_blanks(parser);
	if (parser->at == parser->end || *parser->at != ']')
		return classify_foreign(parser);
	parser->at++;
	return 0;
}

static void parse_field(struct parser *parser, struct expression *expression)
{
	const char *start = parser->at;

	while (parser->at < parser->end && is_name(*parser->at))
		parser->at++;
	add_segment(parser, expression, (struct segment){.name = arena_text_len(parser->arena, start, (size_t)(parser->at - start)),
							 .name_len = (size_t)(parser->at - start)});
}

/* The segments that follow a start ("." or $name). first: right behind a leading ".", where a name or string needs no
 * further dot. */
static int parse_segments(struct parser *parser, struct expression *expression, bool first)
{
	int rc;

	if (first && parser->at < parser->end && is_name_start(*parser->at)) {
		parse_field(parser, expression);
	} else if (first && parser->at < parser->end && *parser->at == '"') {
		rc = parse_name_literal(parser, expression);
		if (rc)
			return rc;
	}
	for (;;) {
		skip_blanks(parser);
		if (parser->at == parser->end)
			return 0;
		if (*parser->at == '[') {
			rc = parse_bracket(parser, expression);
			if (rc)
				return rc;
		} else if (*parser->at == '.' && parser->at + 1 < parser->end && is_name_start(parser->at[1]) &&
			   (!first || expression->first)) {
			parser->at++;
			parse_field(parser, expression);
		} else if (*parser->at == '.' && parser->at + 1 < parser->end && parser->at[1] == '"' && (!first || expression->first)) {
			parser->at++;
			rc = parse_name_literal(parser, expression);
			if (rc)
				return rc;
		} else {
			return 0;
		}
	}
}

static int parse_operator(struct parser *parser, struct expression *expression)
{
	for (size_t i = 0; i < COUNT_OF(operators); i++) {
		size_t len = strlen(operators[i].text);

		if ((size_t)(parser->end - parser->at) >= len && memcmp(parser->at, operators[i].text, len) == 0) {
			expression->operator = operators[i].operator;
			parser->at += len;
			skip_blanks(parser);
			if (parser->at == parser->end)
				return invalid(parser, "ends behind an operator");
			return parse_literal(parser, &expression->literal);
		}
	}
	return classify_foreign(parser);
}

/* EXPRESSION = PATH [OPERATOR LITERAL] | LITERAL      PATH = ("." | "$" NAME) SEGMENT… */
static int parse(struct arena *arena, const char *text, struct expression *expression, struct error *error)
{
	struct parser parser = {.arena = arena, .at = text, .end = text + strlen(text), .error = error, .whole = text};
	int rc = 0;

	*expression = (struct expression){.variable = NULL};
	expression->last = &expression->first;
	if (!utf8_valid(bytes_text(text), NULL))
		return error_set(error, ERR_INVALID, "expression is not valid UTF-8");
	skip_blanks(&parser);
	if (parser.at == parser.end)
		return error_set(error, ERR_INVALID, "expression is empty");
	if (*parser.at == '.' && parser.at + 1 < parser.end && parser.at[1] >= '0' && parser.at[1] <= '9')
		return classify_foreign(&parser); /* .5 is a number for jq */
	if (*parser.at == '.') {
		expression->variable = ".";
		parser.at++;
		rc = parse_segments(&parser, expression, true);
	} else if (*parser.at == '$' && parser.at + 1 < parser.end && is_name_start(parser.at[1])) {
		const char *start = ++parser.at;

		while (parser.at < parser.end && is_name(*parser.at))
			parser.at++;
		expression->variable = arena_text_len(arena, start, (size_t)(parser.at - start));
		rc = parse_segments(&parser, expression, false);
	} else {
		rc = parse_literal(&parser, &expression->literal);
		if (rc == 0) {
			skip_blanks(&parser);
			return parser.at == parser.end ? 0 : classify_foreign(&parser);
		}
	}
	if (rc)
		return rc;
	skip_blanks(&parser);
	if (parser.at == parser.end)
		return 0;
	rc = parse_operator(&parser, expression);
	if (rc)
		return rc;
	skip_blanks(&parser);
	return parser.at == parser.end ? 0 : classify_foreign(&parser);
}

bool expression_unwrap(const char *text, struct bytes *inner)
{
	const char *start = text, *end = text + strlen(text);

	while (start < end && is_blank(*start))
		start++;
	while (end > start && is_blank(end[-1]))
		end--;
	if (end - start < 3 || start[0] != '$' || start[1] != '{' || end[-1] != '}')
		return false;
	start += 2;
	end--;
	while (start < end && is_blank(*start))
		start++;
	while (end > start && is_blank(end[-1]))
		end--;
	*inner = (struct bytes){(const uint8_t *)start, (size_t)(end - start)};
	return true;
}

/* Variables are looked for everywhere, also in what only jq could evaluate: a wrong name is wrong in any case. */
static int check_variables(struct parser *parser, const char *const *variables, size_t variable_count)
{
	bool in_string = false;

	for (const char *at = parser->whole; *at; at++) {
		const char *name;
		size_t len;
		bool known = false;

		if (*at == '"')
			in_string = !in_string;
		if (!in_string && *at == '#') { /* a comment */
			at += strcspn(at, "\n");
			if (!*at)
				break;
			continue;
		}
		if (in_string && *at == '\\' && at[1])
			at++;
		if (in_string || *at != '$' || !is_name_start(at[1]))
			continue;
		name = at + 1;
		for (len = 1; is_name(name[len]);)
			len++;
		if (len == strlen("secrets") && memcmp(name, "secrets", len) == 0)
			return error_set(parser->error, ERR_UNSUPPORTED, "$secrets is not supported in this release");
		for (size_t i = 0; variables && i < variable_count && !known; i++)
			known = strlen(variables[i]) == len && memcmp(variables[i], name, len) == 0;
		if (variables && !known)
			return error_set(parser->error, ERR_INVALID, "there is no variable $%.*s here", shown_len(name, len), name);
		at += len;
	}
	return 0;
}

size_t expression_variables(struct arena *arena, const char *text, const char *const **names)
{
	const char **found = NULL;
	size_t count = 0, cap = 0;

	for (const char *at = strchr(text, '$'); at; at = strchr(at, '$')) {
		size_t len = 0;
		bool known = false;

		for (at++; is_blank(*at);)
			at++; /* jq allows "$ name" */
		while (is_name(at[len]))
			len++;
		if (len == 0 || !is_name_start(*at))
			continue;
		for (size_t i = 0; i < count && !known; i++)
			known = strlen(found[i]) == len && memcmp(found[i], at, len) == 0;
		if (!known) {
			found = arena_grow(arena, found, count, &cap, sizeof *found);
			found[count++] = arena_text_len(arena, at, len);
		}
		at += len;
	}
	*names = found;
	return count;
}

int expression_check(const char *text, const char *const *variables, size_t variable_count, struct error *error)
{
	struct arena arena;
	struct expression expression;
	struct parser parser = {.whole = text, .error = error};
	int rc;

	arena_init(&arena);
	rc = parse(&arena, text, &expression, error);
	/* A plain path is judged by its one variable; for foreign text "no such variable" tells more than "needs jq", but
	 * jq can bind names of its own ("as $x"), so only $secrets counts there. */
	if (rc == 0)
		rc = check_variables(&parser, variables, variable_count);
	else if (rc == ERR_UNSUPPORTED && strstr(text, "$__loc__") != NULL) /* jq gives it the line in what happens to be compiled together */
		rc = error_set(error, ERR_INVALID, "$__loc__ is not available: it would differ in a replay");
	else if (rc == ERR_UNSUPPORTED)
		check_variables(&parser, NULL, 0);
	arena_close(&arena);
	return rc;
}

/* ---- Evaluation */

/* jq's order of types: null < false < true < numbers < strings < arrays < objects. */
static int type_rank(const struct json *json)
{
	switch (json->type) {
	case JSON_NULL:
		return 0;
	case JSON_BOOLEAN:
		return json->boolean ? 2 : 1;
	case JSON_NUMBER:
		return 3;
	case JSON_STRING:
		return 4;
	case JSON_ARRAY:
		return 5;
	case JSON_OBJECT:
		return 6;
	}
	CHECK(!"a JSON type");
	return 0;
}

/* Bytes of UTF-8 compare like code points, which is jq's order of strings. */
static int compare_text(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare_names(const void *a, const void *b)
{
	const struct json_member *left = *(const struct json_member *const *)a, *right = *(const struct json_member *const *)b;

	return compare_text(left->name, left->name_len, right->name, right->name_len);
}

static int compare(struct arena *arena, const struct json *a, const struct json *b);

/* Objects: first the sorted names as arrays, then the values in the order of the names. Our own order of members is that
 * of UTF-16 code units, which differs from code points for rare names: so both are sorted again. */
static int compare_objects(struct arena *arena, const struct json *a, const struct json *b)
{
	const struct json *sides[2] = {a, b};
	const struct json_member **sorted[2];
	size_t least;

	for (int side = 0; side < 2; side++) {
		sorted[side] = arena_alloc(arena, (sides[side]->object.count + 1) * sizeof *sorted[side]);
		for (size_t i = 0; i < sides[side]->object.count; i++)
			sorted[side][i] = &sides[side]->object.members[i];
		qsort(sorted[side], sides[side]->object.count, sizeof *sorted[side], compare_names);
	}
	least = a->object.count < b->object.count ? a->object.count : b->object.count;
	for (size_t i = 0; i < least; i++) {
		int order = compare_names(&sorted[0][i], &sorted[1][i]);

		if (order != 0)
			return order;
	}
	if (a->object.count != b->object.count)
		return a->object.count < b->object.count ? -1 : 1;
	for (size_t i = 0; i < least; i++) {
		int order = compare(arena, sorted[0][i]->value, sorted[1][i]->value);

		if (order != 0)
			return order;
	}
	return 0;
}

static int compare(struct arena *arena, const struct json *a, const struct json *b)
{
	int a_rank = type_rank(a), b_rank = type_rank(b);

	if (a_rank != b_rank)
		return a_rank < b_rank ? -1 : 1;
	switch (a->type) {
	case JSON_NULL:
	case JSON_BOOLEAN:
		return 0;
	case JSON_NUMBER:
		return (a->number > b->number) - (a->number < b->number);
	case JSON_STRING:
		return compare_text(a->string.text, a->string.len, b->string.text, b->string.len);
	case JSON_ARRAY:
		for (size_t i = 0; i < a->array.count && i < b->array.count; i++) {
			int order = compare(arena, a->array.items[i], b->array.items[i]);

			if (order != 0)
				return order;
		}
		return (a->array.count > b->array.count) - (a->array.count < b->array.count);
	case JSON_OBJECT:
		return compare_objects(arena, a, b);
	}
	return 0;
}

static int walk_path(struct arena *arena, const char *text, const struct expression *expression, const struct json *value,
		     const struct json **result, struct error *error)
{
	for (const struct segment *segment = expression->first; segment; segment = segment->next) {
		if (value->type == JSON_NULL)
			continue; /* a path through null is null */
		if (segment->name && value->type == JSON_OBJECT) {
			value = json_get_len(value, segment->name, segment->name_len);
		} else if (!segment->name && value->type == JSON_ARRAY) {
			long index = segment->index < 0 ? segment->index + (long)value->array.count : segment->index;

			value = index < 0 ? NULL : json_at(value, (size_t)index);
		} else if (segment->name) {
			return error_set(error, ERR_INVALID, "expression '%.*s': cannot take member \"%.*s\" of %s",
					 shown_len(text, strlen(text)), text, shown_len(segment->name, segment->name_len), segment->name,
					 json_type_name(value->type));
		} else {
			return error_set(error, ERR_INVALID, "expression '%.*s': cannot take item %ld of %s",
					 shown_len(text, strlen(text)), text, segment->index, json_type_name(value->type));
		}
		if (!value)
			value = json_null(arena);
	}
	*result = value;
	return 0;
}

int expression_eval(struct arena *arena, const char *text, const struct scope *scope, const struct json **result, struct error *error)
{
	struct expression expression;
	const struct json *value;
	bool truth = false;
	int order, rc = parse(arena, text, &expression, error);

	if (rc == ERR_UNSUPPORTED && scope->evaluate) {
		if (error)
			*error = (struct error){0}; /* that it needs jq is none */
		return scope->evaluate(scope->context, text, result, error);
	}
	if (rc)
		return rc;
	if (!expression.variable) {
		*result = expression.literal;
		return 0;
	}
	value = scope->get(scope->context, expression.variable);
	if (!value)
		return error_set(error, ERR_NOT_FOUND, "%s%s", strcmp(expression.variable, ".") == 0 ? "" : "$", expression.variable);
	rc = walk_path(arena, text, &expression, value, &value, error);
	if (rc)
		return rc;
	if (expression.operator == OPERATOR_NONE) {
		*result = value;
		return 0;
	}
	order = compare(arena, value, expression.literal);
	switch (expression.operator) {
	case OPERATOR_NONE:
		break;
	case OPERATOR_EQUAL:
		truth = order == 0;
		break;
	case OPERATOR_NOT_EQUAL:
		truth = order != 0;
		break;
	case OPERATOR_LESS:
		truth = order < 0;
		break;
	case OPERATOR_LESS_EQUAL:
		truth = order <= 0;
		break;
	case OPERATOR_GREATER:
		truth = order > 0;
		break;
	case OPERATOR_GREATER_EQUAL:
		truth = order >= 0;
		break;
	}
	*result = json_boolean(arena, truth);
	return 0;
}

/* ---- Templates */

struct walking {
	struct arena *arena;
	const struct scope *scope;
	size_t values; /* seen in the result so far */
	bool missing; /* something is not at hand: nothing comes of the result */
	struct error *error;
};

/* A result is printed and parsed again: it must not nest deeper than the parser goes, nor grow without end. */
static int measure(struct walking *evaluation, const struct json *json, size_t depth)
{
	int rc = 0;

	if (depth > JSON_DEPTH_MAX && (json->type == JSON_ARRAY || json->type == JSON_OBJECT))
		return error_set(evaluation->error, ERR_INVALID, "the value would nest deeper than %d levels", JSON_DEPTH_MAX);
	if (++evaluation->values > TEMPLATE_VALUES_MAX)
		return error_set(evaluation->error, ERR_INVALID, "the value would hold more than %d values", TEMPLATE_VALUES_MAX);
	if (json->type == JSON_ARRAY) {
		for (size_t i = 0; i < json->array.count && rc == 0; i++)
			rc = measure(evaluation, json->array.items[i], depth + 1);
	} else if (json->type == JSON_OBJECT) {
		for (size_t i = 0; i < json->object.count && rc == 0; i++)
			rc = measure(evaluation, json->object.members[i].value, depth + 1);
	}
	return rc;
}

/* depth: what the value's own level is when it is a container, from 1; as the parser counts. */
static int evaluate_template(struct walking *evaluation, const struct json *template, size_t depth, const struct json **result)
{
	struct bytes inner;
	struct json *made;
	int rc = 0;

	if (depth > JSON_DEPTH_MAX && (template->type == JSON_ARRAY || template->type == JSON_OBJECT))
		return error_set(evaluation->error, ERR_INVALID, "the value would nest deeper than %d levels", JSON_DEPTH_MAX);
	switch (template->type) {
	case JSON_STRING:
		if (!expression_unwrap(template->string.text, &inner))
			break;
		rc = expression_eval(evaluation->arena, arena_text_len(evaluation->arena, (const char *)inner.data, inner.len), evaluation->scope,
				     result, evaluation->error);
		if (rc == ERR_NOT_FOUND) {
			evaluation->missing = true;
			*result = template;
			return 0;
		}
		return rc ? rc : measure(evaluation, *result, depth);
	case JSON_ARRAY:
		made = json_array(evaluation->arena);
		for (size_t i = 0; i < template->array.count && rc == 0; i++) {
			const struct json *item;

			rc = evaluate_template(evaluation, template->array.items[i], depth + 1, &item);
			if (rc == 0)
				json_add(evaluation->arena, made, (struct json *)item); /* shared, never written through */
		}
		*result = made;
		return rc;
	case JSON_OBJECT:
		made = json_object(evaluation->arena);
		for (size_t i = 0; i < template->object.count && rc == 0; i++) {
			const struct json_member *member = &template->object.members[i];
			const struct json *value;

			rc = evaluate_template(evaluation, member->value, depth + 1, &value);
			if (rc == 0)
				json_set_len(evaluation->arena, made, member->name, member->name_len, (struct json *)value);
		}
		*result = made;
		return rc;
	case JSON_NULL:
	case JSON_BOOLEAN:
	case JSON_NUMBER:
		break;
	}
	*result = template;
	return 0;
}

int template_eval(struct arena *arena, const struct json *template, const struct scope *scope, const struct json **result, struct error *error)
{
	struct walking evaluation = {.arena = arena, .scope = scope, .error = error};
	int rc = evaluate_template(&evaluation, template, 1, result);

	return rc == 0 && evaluation.missing ? ERR_NOT_FOUND : rc;
}

/* ---- URI templates */

static int add_value(struct buffer *out, const char *name, size_t name_len, const struct json *value, struct error *error)
{
	struct buffer text;

	if (!value)
		return 0;
	switch (value->type) {
	case JSON_NULL:
		return 0;
	case JSON_BOOLEAN:
		buffer_add_text(out, value->boolean ? "true" : "false");
		return 0;
	case JSON_NUMBER:
		buffer_init(&text, 64);
		json_print_number(value->number, &text);
		url_encode(out, buffer_bytes(&text), URL_KEEP_UNRESERVED);
		buffer_close(&text);
		return 0;
	case JSON_STRING:
		url_encode(out, (struct bytes){(const uint8_t *)value->string.text, value->string.len}, URL_KEEP_UNRESERVED);
		return 0;
	case JSON_ARRAY:
	case JSON_OBJECT:
		break;
	}
	return error_set(error, ERR_INVALID, "URI template: {%.*s} is an %s, which cannot stand in a URI", shown_len(name, name_len), name,
			 json_type_name(value->type));
}

int uri_template_eval(struct arena *arena, const char *text, const struct json *values, const char **result, struct error *error)
{
	enum { URI_LEN_MAX = 1 << 20 };
	struct buffer out;
	int rc = 0;

	buffer_init(&out, URI_LEN_MAX);
	for (const char *at = text; *at && rc == 0;) {
		size_t len;

		if (*at == '}') {
			rc = error_set(error, ERR_INVALID, "URI template: a } without its {");
		} else if (*at != '{') {
			len = strcspn(at, "{}");
			url_encode(&out, (struct bytes){(const uint8_t *)at, len}, URL_KEEP_LEGAL);
			at += len;
		} else {
			len = strcspn(++at, "{}");
			if (at[len] != '}')
				rc = error_set(error, ERR_INVALID, "URI template: a { without its }");
			else if (len == 0)
				rc = error_set(error, ERR_INVALID, "URI template: {} names nothing");
			else if (strchr("+#./;?&=,!@|$", *at) || strcspn(at, ",:* \t") < len)
				rc = error_set(error, ERR_INVALID, "URI template: {%.*s} is more than {name} (RFC 6570 level 1)",
					       shown_len(at, len), at);
			else
				rc = add_value(&out, at, len, json_get_len(values, at, len), error);
			at += len + (at[len] == '}'); /* the end of the text stays in sight */
		}
	}
	if (rc == 0 && out.overflow)
		rc = error_set(error, ERR_INVALID, "URI template: the URI is longer than %d bytes", URI_LEN_MAX);
	if (rc == 0)
		*result = arena_text_len(arena, buffer_text(&out), out.len);
	buffer_close(&out);
	return rc;
}
