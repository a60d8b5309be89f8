/* text_load(): what an operator wrote, behind the guards, as a JSON tree (definition.h). Pure.
 *
 * The order matters: size, then UTF-8 and NUL, and only then a parser; libfyaml cuts silently at a NUL and has hung on bad
 * octets. */
#include <assert.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/number.h"
#include "workflow/language/position.h"
#include "workflow/language/yaml.h"

/* True when the text is small, clean and not empty. */
static bool check_bytes(struct bytes source, struct problems *problems)
{
	size_t line, column, bad;
	const uint8_t *nul;

	if (source.len > DEFINITION_SOURCE_MAX) {
		problems_add(problems, false, "", 0, 0, NULL, "the text has %zu bytes, more than the limit of %d", source.len, DEFINITION_SOURCE_MAX);
		return false;
	}
	if (source.len == 0) {
		problems_add(problems, false, "", 1, 1, NULL, "the text is empty");
		return false;
	}
	if (!utf8_valid(source, &bad)) {
		place_of_offset(source, bad, &line, &column);
		problems_add(problems, false, "", line, column, "save the file as UTF-8", "not valid UTF-8: byte 0x%02x at offset %zu",
			     source.data[bad], bad);
		return false;
	}
	nul = memchr(source.data, 0, source.len);
	if (nul) {
		place_of_offset(source, (size_t)(nul - source.data), &line, &column);
		problems_add(problems, false, "", line, column, NULL, "a NUL byte at offset %zu", (size_t)(nul - source.data));
		return false;
	}
	return true;
}

static bool looks_like_json(struct bytes source)
{
	for (size_t i = 0; i < source.len; i++) {
		if (!strchr(" \t\r\n", source.data[i]))
			return source.data[i] == '{';
	}
	return false;
}

/* The walk over a document for what the JSON parser allows more of than definitions have. */
struct walk {
	size_t nodes;
	struct buffer pointer; /* when something is wrong: of that value */
	const char *message;
};

static bool check_value(struct walk *walk, const struct json *json, size_t depth)
{
	size_t len = walk->pointer.len;
	bool good = true;

	if (++walk->nodes > DEFINITION_NODES_MAX)
		walk->message = "more than 100000 values";
	else if (depth > DEFINITION_DEPTH_MAX && (json->type == JSON_ARRAY || json->type == JSON_OBJECT))
		walk->message = "nested deeper than 64 levels";
	else if (json->type == JSON_NUMBER && !number_survives(json->number))
		walk->message = "an integer beyond 2^53 - 1 would lose digits";
	if (walk->message)
		return false;
	for (size_t i = 0; json->type == JSON_ARRAY && i < json->array.count && good; i++) {
		buffer_printf(&walk->pointer, "/%zu", i);
		good = check_value(walk, json->array.items[i], depth + 1);
		if (good)
			walk->pointer.len = len;
	}
	for (size_t i = 0; json->type == JSON_OBJECT && i < json->object.count && good; i++) {
		json_pointer_add(&walk->pointer, json->object.members[i].name);
		good = check_value(walk, json->object.members[i].value, depth + 1);
		if (good)
			walk->pointer.len = len;
	}
	return good;
}

bool text_check_values(const struct json *json, const struct text_positions *positions, struct problems *problems)
{
	struct walk walk = {.nodes = 0};
	size_t line, column;
	bool good;

	static_assert(DEFINITION_NODES_MAX == 100000 && DEFINITION_DEPTH_MAX == 64, "the messages say so");
	buffer_init(&walk.pointer, 4 * DEFINITION_SOURCE_MAX);
	good = check_value(&walk, json, 1);
	if (!good) {
		text_position(positions, buffer_text(&walk.pointer), false, &line, &column);
		problems_add(problems, false, buffer_text(&walk.pointer), line, column, NULL, "%s", walk.message);
	}
	buffer_close(&walk.pointer);
	return good;
}

static struct json *read_json(struct arena *arena, struct bytes source, struct text_positions *positions, struct problems *problems)
{
	struct json_fault fault;
	struct error error;
	size_t line, column;
	struct json *json = json_parse(arena, source, JSON_STRICT, &fault, &error);
	const char *hint = NULL, *reason;

	if (!json) {
		place_of_offset(source, fault.offset, &line, &column);
		/* The message's own place counts bytes; problems count characters, so it is left out. */
		reason = strstr(error.message, ": ");
		reason = reason ? reason + 2 : error.message;
		if (fault.code == JSON_PRECISION) {
			hint = "write it as a string, in quotes";
			reason = "an integer beyond 2^53 - 1 would lose digits";
		} else if (fault.code == JSON_SYNTAX) {
			hint = "a text that begins with { is read as JSON";
		}
		problems_add(problems, false, "", line, column, hint, "not valid JSON: %s: %s", json_code_name(fault.code), reason);
		return NULL;
	}
	positions->root = place_scan_json(arena, source);
	return text_check_values(json, positions, problems) ? json : NULL;
}

struct json *text_load(struct arena *arena, struct bytes source, enum text_format format, struct text_positions **positions, struct problems *problems)
{
	struct text_positions *made = arena_zero(arena, sizeof *made);
	struct json *json;

	if (positions)
		*positions = made;
	if (!check_bytes(source, problems))
		return NULL;
	/* A byte order mark is a habit of editors; strict JSON (asked for by name) has none. */
	if (format != TEXT_JSON && source.len >= 3 && memcmp(source.data, "\xef\xbb\xbf", 3) == 0) {
		source.data += 3;
		source.len -= 3;
	}
	if (format == TEXT_JSON || (format == TEXT_GUESS && looks_like_json(source)))
		json = read_json(arena, source, made, problems);
	else
		json = yaml_read(arena, source, &made->root, problems);
	return json;
}
