/* The list of what is wrong with a text (definition.h). Pure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/definition.h"

/* Warnings may not push errors out of the list. */
enum { WARNINGS_MAX = DEFINITION_PROBLEMS_MAX / 2 };
enum { SHOWN_LEN_MAX = 1000 }; /* bytes of a pointer: names in a text can be as long as the text */

void problems_init(struct problems *problems)
{
	*problems = (struct problems){.items = NULL};
	arena_init(&problems->arena);
}

void problems_close(struct problems *problems)
{
	arena_close(&problems->arena);
	*problems = (struct problems){.items = NULL};
}

/* Messages repeat text of the source, which may be no UTF-8 or cut within a character: the result always is. */
static char *clean_text(struct arena *arena, const char *text)
{
	size_t bad, start = 0, len = strlen(text);
	char *copy;

	if (len > SHOWN_LEN_MAX) {
		for (len = SHOWN_LEN_MAX; len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80;)
			len--;
		copy = arena_printf(arena, "%.*s…", (int)len, text);
		len = strlen(copy);
	} else {
		copy = arena_text(arena, text);
	}

	while (!utf8_valid((struct bytes){(const uint8_t *)copy + start, len - start}, &bad)) {
		copy[start + bad] = '?';
		start += bad + 1;
	}
	return copy;
}

void problems_add(struct problems *problems, bool warning, const char *pointer, size_t line, size_t column, const char *hint,
		  const char *format, ...)
{
	char message[512];
	struct problem *problem;
	va_list arguments;

	if (!warning)
		problems->errors++;
	if (problems->count >= (warning ? WARNINGS_MAX : DEFINITION_PROBLEMS_MAX))
		return;
	problems->items = arena_grow(&problems->arena, problems->items, problems->count, &problems->cap, sizeof *problems->items);
	problem = &problems->items[problems->count++];
	*problem = (struct problem){.line = line, .column = column, .warning = warning};
	if (problems->count == DEFINITION_PROBLEMS_MAX) {
		problem->pointer = "";
		problem->line = problem->column = 0;
		problem->message = arena_printf(&problems->arena, "more than %d problems: the rest is left out", DEFINITION_PROBLEMS_MAX - 1);
		return;
	}
	va_start(arguments, format);
	vsnprintf(message, sizeof message, format, arguments);
	va_end(arguments);
	problem->pointer = clean_text(&problems->arena, pointer);
	problem->message = clean_text(&problems->arena, message);
	problem->hint = hint ? clean_text(&problems->arena, hint) : NULL;
}

struct json *problems_json(const struct problems *problems, struct arena *arena)
{
	struct json *list = json_array(arena);

	for (size_t i = 0; i < problems->count; i++) {
		const struct problem *problem = &problems->items[i];
		struct json *item = json_object(arena);

		json_set_text(arena, item, "pointer", problem->pointer);
		if (problem->line > 0) {
			json_set_number(arena, item, "line", (double)problem->line);
			json_set_number(arena, item, "column", (double)problem->column);
		}
		json_set_text(arena, item, "message", problem->message);
		json_set_text(arena, item, "hint", problem->hint);
		json_set_text(arena, item, "severity", problem->warning ? "warning" : "error");
		json_add(arena, list, item);
	}
	return list;
}
