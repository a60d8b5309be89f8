/* Where each value and key of a text stood: a tree of places beside the tree of values, made by the readers (yaml.c,
 * position.c for JSON) and asked through text_position(). Lines and columns count from 1, columns in characters.
 * Pure; lives in the arena of its values. */
#pragma once

#include "workflow/language/definition.h"

struct place;
struct place_child {
	const char *name; /* NULL in an array */
	size_t name_len, line, column; /* of the key */
	struct place *place;
};

struct place {
	size_t line, column;
	struct place_child *children; /* in the order of the text */
	size_t count, cap;
};

bool text_check_size(const struct json *json, struct problems *problems); /* depth and number of values; text.c */

struct text_positions {
	struct place *root;
};

struct place *place_new(struct arena *arena, size_t line, size_t column);
struct place_child *place_add(struct arena *arena, struct place *place);

/* The places of a JSON text that json_parse() has accepted and that nests at most DEFINITION_DEPTH_MAX deep. */
struct place *place_scan_json(struct arena *arena, struct bytes text);

/* Line and column, both from 1, of a byte of a text. */
void place_of_offset(struct bytes text, size_t offset, size_t *line, size_t *column);
