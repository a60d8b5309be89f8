/* See evaluation.h. Pure; any thread. */
#include "workflow/language/evaluation.h"

#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/definition.h"

enum { FRAME_HEAD = 4, RESULT_DEPTH_MAX = JSON_DEPTH_MAX - 2 /* it is kept, and journaled, within arrays */, MESSAGE_SHOWN_MAX = 400, EXPRESSION_SHOWN_MAX = 80 };

/* ---- Requests */

static void add_names(struct buffer *out, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			buffer_add_char(out, ',');
		buffer_add_text(out, names[i]);
	}
	buffer_add_char(out, 0);
}

int evaluation_request(struct arena *arena, const char *expression, const struct json *input, const char *const *names, const struct json *const *values,
		       size_t count, struct evaluation *evaluation, struct error *error)
{
	struct buffer request;

	buffer_init(&request, EVALUATION_REQUEST_MAX);
	buffer_add_char(&request, EVALUATION_EVALUATE);
	add_names(&request, names, count);
	buffer_add_text(&request, expression);
	buffer_add_char(&request, 0);
	buffer_add_char(&request, '[');
	json_print(input, &request);
	for (size_t i = 0; i < count && !request.overflow; i++) {
		buffer_add_char(&request, ',');
		json_print(values[i], &request);
	}
	buffer_add_char(&request, ']');
	bool fits = !request.overflow;
	if (fits)
		*evaluation = (struct evaluation){expression, arena_bytes(arena, buffer_bytes(&request))};
	buffer_close(&request);
	return fits ? 0
		    : error_set(error, ERR_TOO_LARGE, "the values that it speaks of have more than %d MiB, the most allowed (EVALUATION_REQUEST_MAX)",
				EVALUATION_REQUEST_MAX >> 20);
}

void evaluation_add_compile(struct buffer *request, const char *expression, const char *const *names, size_t count)
{
	if (request->len == 0)
		buffer_add_char(request, EVALUATION_COMPILE);
	add_names(request, names, count);
	buffer_add_text(request, expression);
	buffer_add_char(request, 0);
}

struct bytes evaluation_program(struct bytes request)
{
	const uint8_t *names = request.data + 1, *expression = memchr(names, 0, request.len - 1);

	CHECK(expression != NULL);
	const uint8_t *end = memchr(expression + 1, 0, request.len - (size_t)(expression + 1 - request.data));
	CHECK(end != NULL);
	return (struct bytes){names, (size_t)(end + 1 - names)};
}

/* ---- Answers */

/* As a JSON string; a message may repeat text that is no UTF-8 any more. */
static void keep_message(struct bytes message, struct buffer *kept)
{
	struct arena arena;
	size_t bad, len = message.len < MESSAGE_SHOWN_MAX ? message.len : MESSAGE_SHOWN_MAX;
	char *text;

	arena_init(&arena);
	while (len > 0 && len < message.len && (message.data[len] & 0xc0) == 0x80)
		len--;
	text = arena_text_len(&arena, (const char *)message.data, len);
	for (size_t i = 0; i < len; i++)
		if (text[i] == 0)
			text[i] = '?';
	while (!utf8_valid((struct bytes){(const uint8_t *)text, len}, &bad))
		text[bad] = '?';
	buffer_clear(kept);
	json_print_string(text, len, kept);
	arena_close(&arena);
}

void evaluation_keep_failure(const char *message, struct buffer *kept)
{
	keep_message(bytes_text(message), kept);
}

void evaluation_keep(struct bytes answer, struct buffer *kept)
{
	struct arena arena;
	struct error error;
	struct json *json;

	if (answer.len > 0 && answer.data[0] == EVALUATION_FAILED) {
		keep_message((struct bytes){answer.data + 1, answer.len - 1}, kept);
		return;
	}
	if (answer.len == 0 || answer.data[0] != EVALUATION_VALUE) {
		evaluation_keep_failure("reprise-jq sent what is no answer", kept);
		return;
	}
	arena_init(&arena);
	/* jq has doubles as we have: 1e17 comes as an integer of 18 digits and is that double. */
	json = json_parse(&arena, (struct bytes){answer.data + 1, answer.len - 1}, JSON_ROUND_INTEGERS, NULL, &error);
	if (!json) {
		evaluation_keep_failure(arena_printf(&arena, "its result cannot be kept: %s", error.message), kept);
	} else if (!json_is(json, JSON_ARRAY) || json_count(json) != 1) {
		evaluation_keep_failure("reprise-jq sent what is no answer", kept);
	} else if (!json_nests_within(json_at(json, 0), RESULT_DEPTH_MAX)) {
		evaluation_keep_failure(arena_printf(&arena, "its result nests deeper than %d levels, the most allowed", RESULT_DEPTH_MAX), kept);
	} else {
		buffer_clear(kept);
		json_print(json, kept);
		if (kept->overflow || kept->len > EVALUATION_RESULT_MAX) {
			kept->overflow = false;
			evaluation_keep_failure(arena_printf(&arena, "its result has more than %d MiB, the most allowed (EVALUATION_RESULT_MAX)",
							     EVALUATION_RESULT_MAX >> 20), kept);
		}
	}
	arena_close(&arena);
}

/* ---- Frames */

void evaluation_add_frame(struct buffer *out, struct bytes payload)
{
	uint32_t len = (uint32_t)payload.len;
	const uint8_t head[FRAME_HEAD] = {(uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16), (uint8_t)(len >> 24)};

	buffer_add(out, head, sizeof head);
	buffer_add_bytes(out, payload);
}

enum frame_state evaluation_read_frame(const struct buffer *in, size_t payload_max, struct bytes *payload)
{
	size_t len;

	if (in->len < FRAME_HEAD)
		return FRAME_PARTIAL;
	len = (size_t)in->data[0] | (size_t)in->data[1] << 8 | (size_t)in->data[2] << 16 | (size_t)in->data[3] << 24;
	if (len > payload_max)
		return FRAME_TOO_LARGE;
	if (in->len - FRAME_HEAD < len)
		return FRAME_PARTIAL;
	*payload = (struct bytes){in->data + FRAME_HEAD, len};
	return FRAME_WHOLE;
}

/* ---- Compiling a definition's expressions */

size_t evaluation_next_batch(const struct definition *definition, size_t *next, size_t most, size_t batch[EVALUATION_BATCH_MAX], struct buffer *request)
{
	size_t count = 0;

	while (*next < definition->expression_count && count < EVALUATION_BATCH_MAX && count < most) {
		const struct definition_expression *expression = &definition->expressions[*next];

		if (count > 0 && request->len + strlen(expression->text) > EVALUATION_BATCH_BYTES_MAX)
			break;
		evaluation_add_compile(request, expression->text, expression->names, expression->name_count);
		batch[count++] = (*next)++;
	}
	return count;
}

static bool is_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
		if ((at == text || !is_name(at[-1])) && !is_name(at[len]))
			return true;
	return false;
}

/* Authors try their expressions with the jq of their machine, which is mostly newer. */
static const char *newer_jq_hint(struct arena *arena, const char *text, const char *message)
{
	static const char *const functions[] = {
		"abs", "pick", "toarray", "trim", "ltrim", "rtrim", "trimstr", "have_literal_numbers", "have_decnum", "ascii", "add", "skip",
	};
	const char *slash = strstr(message, "/"), *at;

	if (strstr(message, "is not defined") && slash) {
		for (size_t i = 0; i < COUNT_OF(functions); i++)
			if ((size_t)(slash - message) == strlen(functions[i]) && strncmp(message, functions[i], strlen(functions[i])) == 0)
				return arena_printf(arena, "%s/%.*s needs jq 1.7; expressions are jq 1.6 here", functions[i], (int)strspn(slash + 1, "0123456789"), slash + 1);
	}
	if (strstr(message, "is not a valid format") && strstr(message, "base32d"))
		return "@base32d needs jq 1.7; expressions are jq 1.6 here";
	if (!strstr(message, "syntax error"))
		return NULL;
	if (has_word(text, "if") && !has_word(text, "else"))
		return "`if` without `else` needs jq 1.7; write `else . end`";
	for (at = strstr(text, ".["); at; at = strstr(at + 1, ".["))
		if (at > text && (is_name(at[-1]) || at[-1] == ']' || at[-1] == '"'))
			return "`.a.[0]` needs jq 1.7; write `.a[0]`";
	return NULL;
}

void evaluation_add_problem(const struct definition *definition, size_t index, size_t line, const char *message, struct problems *problems)
{
	const struct definition_expression *expression = &definition->expressions[index];
	const char *text = expression->text, *hint;
	struct arena arena;
	size_t at_line = 0, at_column = 0, len = strlen(text);

	arena_init(&arena);
	if (strstr(text, "${"))
		hint = "one ${ … } must be the whole text: text around it is not put together";
	else
		hint = newer_jq_hint(&arena, text, message);
	if (len > EXPRESSION_SHOWN_MAX)
		for (len = EXPRESSION_SHOWN_MAX; len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80;)
			len--;
	if (definition->positions)
		text_position(definition->positions, expression->pointer, false, &at_line, &at_column);
	if (line > 1)
		problems_add(problems, false, expression->pointer, at_line, at_column, hint, "expression '%.*s', its line %zu: %s", (int)len, text, line, message);
	else
		problems_add(problems, false, expression->pointer, at_line, at_column, hint, "expression '%.*s': %s", (int)len, text, message);
	arena_close(&arena);
}

int evaluation_add_problems(const struct definition *definition, const size_t *batch, size_t batch_count, struct bytes answer, struct problems *problems,
			    struct error *error)
{
	struct arena arena;
	const struct json *list = NULL;
	int rc = 0;

	arena_init(&arena);
	if (answer.len > 0 && answer.data[0] == EVALUATION_PROBLEMS)
		list = json_parse(&arena, (struct bytes){answer.data + 1, answer.len - 1}, JSON_STRICT, NULL, NULL);
	if (!json_is(list, JSON_ARRAY))
		rc = error_set(error, ERR_CORRUPT, "reprise-jq sent what is no answer");
	for (size_t i = 0; rc == 0 && i < json_count(list); i++) {
		const struct json *item = json_at(list, i);
		double index = json_get_number(item, "index", -1), line = json_get_number(item, "line", 0);
		const char *message = json_get_text(item, "message");

		if (index < 0 || index >= (double)batch_count || line < 0 || line > EVALUATION_EXPRESSION_MAX || !message)
			rc = error_set(error, ERR_CORRUPT, "reprise-jq sent what is no answer");
		else
			evaluation_add_problem(definition, batch[(size_t)index], (size_t)line, message, problems);
	}
	arena_close(&arena);
	return rc;
}
