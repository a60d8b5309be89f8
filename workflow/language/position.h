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

struct text_positions {
	struct place *root;
};

struct place *place_new(struct arena *arena, size_t line, size_t column);
struct place_child *place_add(struct arena *arena, struct place *place);

/* Depth, number of values, and numbers that cannot be kept; text.c. False: a problem was added. positions may be NULL. */
bool text_check_values(const struct json *json, const struct text_positions *positions, struct problems *problems);

/* The places of a JSON text that json_parse() has accepted: so it nests at most JSON_DEPTH_MAX deep. */
struct place *place_scan_json(struct arena *arena, struct bytes text);

/* Line and column, both from 1, of a byte of a text. */
void place_of_offset(struct bytes text, size_t offset, size_t *line, size_t *column);
