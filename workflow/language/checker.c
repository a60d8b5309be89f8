/* What the checks of a definition share (checker.h). Pure. */
#include "workflow/language/checker.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/evaluation.h"
#include "workflow/language/expression.h"

size_t checker_enter(struct checker *checker, const char *name)
{
	size_t len = checker->pointer.len;

	json_pointer_add(&checker->pointer, name);
	return len;
}

size_t checker_enter_index(struct checker *checker, size_t index)
{
	size_t len = checker->pointer.len;

	buffer_printf(&checker->pointer, "/%zu", index);
	return len;
}

void checker_leave(struct checker *checker, size_t len)
{
	CHECK(len <= checker->pointer.len);
	checker->pointer.len = len;
	if (checker->pointer.data)
		checker->pointer.data[len] = 0;
}

static void complain(struct checker *checker, bool warning, bool at_key, const char *hint, const char *format, va_list arguments)
	__attribute__((format(printf, 5, 0)));

static void complain(struct checker *checker, bool warning, bool at_key, const char *hint, const char *format, va_list arguments)
{
	char message[480];
	size_t line = 0, column = 0;
	const char *pointer = buffer_text(&checker->pointer);

	vsnprintf(message, sizeof message, format, arguments);
	if (checker->problems->count < DEFINITION_PROBLEMS_MAX) /* else it is only counted: no search for its place */
		text_position(checker->positions, pointer, at_key, &line, &column);
	problems_add(checker->problems, warning, pointer, line, column, hint, "%s", message);
}

void checker_fail(struct checker *checker, const char *hint, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	complain(checker, false, false, hint, format, arguments);
	va_end(arguments);
}

void checker_fail_key(struct checker *checker, const char *hint, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	complain(checker, false, true, hint, format, arguments);
	va_end(arguments);
}

void checker_warn(struct checker *checker, const char *hint, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	complain(checker, true, false, hint, format, arguments);
	va_end(arguments);
}

/* ---- Keys */

/* Equal after one insertion, deletion, change, or swap of two neighbours. */
static bool one_edit_away(const char *a, const char *b)
{
	size_t a_len = strlen(a), b_len = strlen(b);

	while (*a && *a == *b) {
		a++;
		b++;
		a_len--;
		b_len--;
	}
	if (a_len == b_len)
		return strcmp(a + (a_len > 0), b + (b_len > 0)) == 0 ||
		       (a_len >= 2 && a[0] == b[1] && a[1] == b[0] && strcmp(a + 2, b + 2) == 0);
	if (a_len + 1 == b_len)
		return strcmp(a, b + 1) == 0;
	return b_len + 1 == a_len && strcmp(a + 1, b) == 0;
}

const char *checker_near(const char *text, const char *const *candidates, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (strcasecmp(text, candidates[i]) == 0 || (strlen(candidates[i]) > 1 && one_edit_away(text, candidates[i])))
			return candidates[i];
	}
	return NULL;
}

void checker_keys(struct checker *checker, const struct json *object, const struct key *keys, size_t key_count, const char *what)
{
	const char *names[CHECKER_KEYS_MAX];

	CHECK(key_count <= COUNT_OF(names));
	for (size_t i = 0; i < key_count; i++)
		names[i] = keys[i].name;
	for (size_t i = 0; i < json_count(object); i++) {
		const char *name = object->object.members[i].name, *near;
		const struct key *key = NULL;
		size_t len = checker_enter(checker, name);
		char hint[64];

		for (size_t k = 0; k < key_count && !key; k++) {
			if (strcmp(keys[k].name, name) == 0)
				key = &keys[k];
		}
		if (!key) {
			near = checker_near(name, names, key_count);
			snprintf(hint, sizeof hint, "did you mean '%s'?", near ? near : "");
			checker_fail_key(checker, near ? hint : NULL, "unknown key '%s' in %s", name, what);
		} else if (key->kind == KEY_LATER) {
			checker_fail_key(checker, key->hint, "'%s' is not supported in this release", name);
		}
		checker_leave(checker, len);
	}
	for (size_t k = 0; k < key_count; k++) {
		if (keys[k].kind == KEY_REQUIRED && !json_get(object, keys[k].name))
			checker_fail(checker, keys[k].hint, "'%s' is missing in %s", keys[k].name, what);
	}
}

/* ---- Types */

bool checker_is_expression(const struct json *value)
{
	struct bytes inner;

	return json_is(value, JSON_STRING) && expression_unwrap(value->string.text, &inner);
}

bool checker_type(struct checker *checker, const struct json *value, enum json_type type, bool expression_allowed)
{
	if (expression_allowed && checker_is_expression(value))
		return false;
	if (value->type == type)
		return true;
	checker_fail(checker, value->type == JSON_NUMBER && type == JSON_STRING ? "quote it" : NULL, "must be %s %s%s, not %s",
		     type == JSON_ARRAY || type == JSON_OBJECT ? "an" : "a", json_type_name(type),
		     expression_allowed && type != JSON_STRING ? " or an expression ${ … }" : "", json_type_name(value->type));
	return false;
}

void checker_word(struct checker *checker, const struct json *value, const char *const *words, size_t count)
{
	char list[160] = "", hint[64];
	const char *near;

	if (!checker_type(checker, value, JSON_STRING, true))
		return;
	for (size_t i = 0; i < count; i++) {
		size_t used = strlen(list);

		if (strcmp(value->string.text, words[i]) == 0)
			return;
		snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", words[i]);
	}
	near = checker_near(value->string.text, words, count);
	snprintf(hint, sizeof hint, "did you mean '%s'?", near ? near : "");
	checker_fail(checker, near ? hint : NULL, "'%.100s' is none of: %s", value->string.text, list);
}

void checker_integer(struct checker *checker, const struct json *value, double least, double most)
{
	if (!checker_type(checker, value, JSON_NUMBER, true))
		return;
	if (!json_is_integer(value) || value->number < least || value->number > most)
		checker_fail(checker, NULL, "must be an integer from %.0f to %.0f", least, most);
}

/* ---- Expressions */

/* What only jq understands only jq can check: kept for whoever registers the definition. */
static void keep_for_jq(struct checker *checker, const char *text)
{
	struct definition *definition = checker->definition;
	struct definition_expression *kept;
	const char *const *mentioned;
	const char **names;
	size_t count, len = strlen(text);

	if (len > EVALUATION_EXPRESSION_MAX) {
		checker_fail(checker, NULL, "an expression of %zu bytes, the limit is %d (EVALUATION_EXPRESSION_MAX)", len, EVALUATION_EXPRESSION_MAX);
		return;
	}
	if (definition->expression_count == DEFINITION_EXPRESSIONS_MAX) {
		checker_fail(checker, NULL, "more than %d expressions that need jq (DEFINITION_EXPRESSIONS_MAX)", DEFINITION_EXPRESSIONS_MAX);
		return;
	}
	definition->expressions = arena_grow(&definition->arena, definition->expressions, definition->expression_count, &definition->expression_cap,
					     sizeof *definition->expressions);
	kept = &definition->expressions[definition->expression_count++];
	*kept = (struct definition_expression){.pointer = arena_text(&definition->arena, buffer_text(&checker->pointer)), .text = arena_text(&definition->arena, text)};
	count = expression_variables(&definition->arena, text, &mentioned);
	names = arena_alloc(&definition->arena, (count + 1) * sizeof *names);
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < checker->variable_count; k++)
			if (strcmp(mentioned[i], checker->variables[k]) == 0) {
				names[kept->name_count++] = mentioned[i];
				break;
			}
	kept->names = names;
}

void checker_expression(struct checker *checker, const char *text)
{
	struct error error;
	int rc = expression_check(text, checker->variables, checker->variable_count, &error);
	const char *hint = NULL;

	if (rc == ERR_UNSUPPORTED && !strstr(text, "$secrets")) {
		keep_for_jq(checker, text);
		return;
	}
	if (rc == 0)
		return;
	if (strstr(text, "${"))
		hint = "one ${ … } must be the whole text: text around it is not put together";
	else if (strstr(text, "$secrets"))
		hint = "a secret, ${ $secrets.NAME }, is the whole value of a header or in the authentication of call: http, nowhere else";
	checker_fail(checker, hint, "%s", strstr(text, "$secrets") ? "a secret cannot stand here, and only alone elsewhere" : error.message);
}

const char *checker_read_expression(struct checker *checker, const struct json *value)
{
	struct bytes inner;
	const char *text;

	if (!json_is(value, JSON_STRING)) {
		checker_fail(checker, NULL, "must be an expression, not %s", json_type_name(value->type));
		return "";
	}
	text = value->string.text;
	if (expression_unwrap(text, &inner))
		text = arena_text_len(&checker->definition->arena, (const char *)inner.data, inner.len);
	checker_expression(checker, text);
	return text;
}

/* ".a.b" or "$item.x" without ${ }: the author most likely meant the value. */
static bool looks_unwrapped(struct checker *checker, const char *text)
{
	bool path = text[0] == '.' && (text[1] == '[' || text[1] == '_' || (text[1] >= 'a' && text[1] <= 'z') || (text[1] >= 'A' && text[1] <= 'Z'));

	return (path || text[0] == '$') && expression_check(text, checker->variables, checker->variable_count, NULL) == 0;
}

static void check_string(struct checker *checker, const struct json *value, bool lint)
{
	const char *text = value->string.text;
	struct bytes inner;
	struct arena arena;

	if (expression_unwrap(text, &inner)) {
		arena_init(&arena);
		checker_expression(checker, arena_text_len(&arena, (const char *)inner.data, inner.len));
		arena_close(&arena);
	} else if (lint && strncmp(text, "${", 2) == 0 && !strchr(text, '}')) {
		checker_warn(checker, "in YAML ' #' begins a comment: put quotes around the expression", "'%.80s' opens ${ and does not close it", text);
	} else if (lint && strstr(text, "${")) {
		checker_warn(checker, "an expression must be the whole text; it can put one together: ${ \"number \\(.n)\" }",
			     "text around ${ } stays as it is, it is not evaluated");
	} else if (lint && looks_unwrapped(checker, text)) {
		checker_warn(checker, "write '${ … }' around it", "'%.80s' looks like an expression but is not wrapped: it is taken as text", text);
	}
}

void checker_template(struct checker *checker, const struct json *value, bool lint)
{
	if (value->type == JSON_STRING) {
		check_string(checker, value, lint);
	} else if (value->type == JSON_ARRAY) {
		for (size_t i = 0; i < value->array.count; i++) {
			size_t len = checker_enter_index(checker, i);

			checker_template(checker, value->array.items[i], lint);
			checker_leave(checker, len);
		}
	} else if (value->type == JSON_OBJECT) {
		for (size_t i = 0; i < value->object.count; i++) {
			size_t len = checker_enter(checker, value->object.members[i].name);

			checker_template(checker, value->object.members[i].value, lint);
			checker_leave(checker, len);
		}
	}
}
