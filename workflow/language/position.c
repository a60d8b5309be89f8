/* Places of values (position.h), and the scan that finds them in JSON. Pure. New here? Read scan_value(). */
#include "workflow/language/position.h"

#include <string.h>

#include "workflow/base/check.h"

struct place *place_new(struct arena *arena, size_t line, size_t column)
{
	struct place *place = arena_zero(arena, sizeof *place);

	place->line = line;
	place->column = column;
	return place;
}

struct place_child *place_add(struct arena *arena, struct place *place)
{
	struct place_child *child;

	place->children = arena_grow(arena, place->children, place->count, &place->cap, sizeof *place->children);
	child = &place->children[place->count++];
	*child = (struct place_child){.name = NULL};
	return child;
}

/* ---- JSON */

struct scanner {
	struct arena *arena;
	const uint8_t *at, *end;
	size_t line, column;
};

static void advance(struct scanner *scanner)
{
	uint8_t c = *scanner->at++;

	if (c == '\n') {
		scanner->line++;
		scanner->column = 1;
	} else if ((c & 0xc0) != 0x80) {
		scanner->column++;
	}
}

static void skip_space(struct scanner *scanner)
{
	while (scanner->at < scanner->end && strchr(" \t\r\n", *scanner->at) && *scanner->at)
		advance(scanner);
}

/* Past a string literal; its text with quotes. */
static struct bytes scan_string(struct scanner *scanner)
{
	const uint8_t *start = scanner->at;

	CHECK(scanner->at < scanner->end);
	CHECK(*scanner->at == '"');
	advance(scanner);
	while (*scanner->at != '"') {
		if (*scanner->at == '\\')
			advance(scanner);
		advance(scanner);
		CHECK(scanner->at < scanner->end);
	}
	advance(scanner);
	return (struct bytes){start, (size_t)(scanner->at - start)};
}

static struct place *scan_value(struct scanner *scanner)
{
	struct place *place;
	uint8_t close;

	skip_space(scanner);
	CHECK(scanner->at < scanner->end);
	place = place_new(scanner->arena, scanner->line, scanner->column);
	if (*scanner->at == '"') {
		scan_string(scanner);
		return place;
	}
	if (*scanner->at != '{' && *scanner->at != '[') {
		while (scanner->at < scanner->end && !strchr(",]} \t\r\n", *scanner->at))
			advance(scanner);
		return place;
	}
	close = *scanner->at == '{' ? '}' : ']';
	advance(scanner);
	skip_space(scanner);
	while (*scanner->at != close) {
		struct place_child *child = place_add(scanner->arena, place);

		if (close == '}') {
			const struct json *name;

			child->line = scanner->line;
			child->column = scanner->column;
			name = json_parse(scanner->arena, scan_string(scanner), JSON_STRICT, NULL, NULL);
			CHECK(json_is(name, JSON_STRING));
			child->name = name->string.text;
			child->name_len = name->string.len;
			skip_space(scanner);
			CHECK(*scanner->at == ':');
			advance(scanner);
		}
		child->place = scan_value(scanner);
		skip_space(scanner);
		if (*scanner->at == ',')
			advance(scanner);
		skip_space(scanner);
	}
	advance(scanner);
	return place;
}

struct place *place_scan_json(struct arena *arena, struct bytes text)
{
	struct scanner scanner = {.arena = arena, .at = text.data, .end = text.data + text.len, .line = 1, .column = 1};

	return scan_value(&scanner);
}

void place_of_offset(struct bytes text, size_t offset, size_t *line, size_t *column)
{
	*line = *column = 1;
	for (size_t i = 0; i < offset && i < text.len; i++) {
		if (text.data[i] == '\n') {
			++*line;
			*column = 1;
		} else if ((text.data[i] & 0xc0) != 0x80) {
			++*column;
		}
	}
}

/* ---- Asking */

/* One part of a pointer with ~1 and ~0 read back, compared with a name. */
static bool part_is(const char *part, size_t part_len, const char *name, size_t name_len)
{
	size_t at = 0;

	for (size_t i = 0; i < part_len; i++, at++) {
		char c = part[i];

		if (c == '~' && i + 1 < part_len)
			c = part[++i] == '1' ? '/' : '~';
		if (at >= name_len || name[at] != c)
			return false;
	}
	return at == name_len;
}

static const struct place_child *find_child(const struct place *place, const char *part, size_t part_len)
{
	size_t index = 0;

	if (place->count > 0 && place->children[0].name) {
		for (size_t i = 0; i < place->count; i++) {
			if (part_is(part, part_len, place->children[i].name, place->children[i].name_len))
				return &place->children[i];
		}
		return NULL;
	}
	if (part_len == 0 || part_len > 9)
		return NULL;
	for (size_t i = 0; i < part_len; i++) {
		if (part[i] < '0' || part[i] > '9')
			return NULL;
		index = index * 10 + (size_t)(part[i] - '0');
	}
	return index < place->count ? &place->children[index] : NULL;
}

bool text_position(const struct text_positions *positions, const char *pointer, bool at_key, size_t *line, size_t *column)
{
	const struct place *place = positions ? positions->root : NULL;
	const struct place_child *child = NULL;

	*line = *column = 0;
	while (place && *pointer == '/') {
		size_t len = strcspn(++pointer, "/");

		child = find_child(place, pointer, len);
		place = child ? child->place : NULL;
		pointer += len;
	}
	if (!place)
		return false;
	*line = at_key && child && child->name ? child->line : place->line;
	*column = at_key && child && child->name ? child->column : place->column;
	return *line > 0;
}
