/* YAML to our JSON tree and its places (yaml.h). libfyaml gives events and marks and resolves nothing: scalars, tags,
 * aliases, duplicate keys and every limit are here. New here? Read read_node(). */
#include "workflow/language/yaml.h"

#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/number.h"

/* What an anchor names, once its node is complete. Aliases share the node: nothing is ever copied, so a bomb of aliases
 * costs nothing to read; `nodes`, `height` and `text_len` are what it would be when written out, as it is when it is hashed, and
 * those count against the limits. */
struct anchor {
	const char *name;
	struct json *json; /* NULL: the node is still being read, an alias would contain itself */
	struct place *place;
	size_t nodes, height, text_len;
};

struct reader {
	struct arena *arena;
	struct bytes source;
	struct problems *problems;
	struct fy_parser *parser;
	struct anchor anchors[YAML_ANCHORS_MAX];
	size_t anchor_count;
	size_t nodes, text_len;
	struct buffer pointer; /* JSON pointer of the node that is being read */
	struct buffer text; /* of the single-quoted scalar that is being read */
	bool stopped; /* no sense in reading on */
	bool refused; /* stopped by a limit or rule of ours: the parser's own errors would be about the rest */
};

/* A node that has been read. */
struct node {
	struct json *json;
	struct place *place;
	size_t nodes, height, text_len;
	size_t line, column;
};

/* One line of a mapping, kept until its end: then all are sorted, which finds duplicates and lets the object grow at its
 * end only. */
struct pair {
	const char *name;
	size_t name_len, line, column, order;
	struct json *value;
};

static void shorten(struct buffer *pointer, size_t len)
{
	CHECK(len <= pointer->len);
	pointer->len = len;
	if (pointer->data)
		pointer->data[len] = 0;
}

static void fail(struct reader *reader, size_t line, size_t column, const char *hint, const char *message)
{
	problems_add(reader->problems, false, buffer_text(&reader->pointer), line, column, hint, "%s", message);
}

/* An error after which the rest cannot be read. */
static bool stop(struct reader *reader, size_t line, size_t column, const char *hint, const char *message)
{
	fail(reader, line, column, hint, message);
	reader->stopped = reader->refused = true;
	return false;
}

/* What an author wrote, and what aliases stand for, against the limits. */
static bool count_nodes(struct reader *reader, size_t nodes, size_t text_len, size_t line, size_t column)
{
	reader->nodes += nodes; /* these are at most the limits: no overflow */
	reader->text_len += text_len;
	if (reader->nodes > DEFINITION_NODES_MAX)
		return stop(reader, line, column, NULL, "more than 100000 values, aliases written out");
	if (reader->text_len > YAML_TEXT_MAX)
		return stop(reader, line, column, NULL, "more than 4194304 bytes of text, aliases written out");
	return true;
}

_Static_assert(DEFINITION_NODES_MAX == 100000 && YAML_TEXT_MAX == 4194304, "the messages say so");

/* Authors write expressions without quotes; YAML then sees its own signs in them. */
static const char *guess_hint(const struct reader *reader, size_t line)
{
	const char *at = (const char *)reader->source.data, *end = at + reader->source.len;
	const char *line_end;

	for (size_t i = 1; i < line && at; i++) {
		at = memchr(at, '\n', (size_t)(end - at));
		at = at ? at + 1 : NULL;
	}
	if (!at)
		return NULL;
	line_end = memchr(at, '\n', (size_t)(end - at));
	line_end = line_end ? line_end : end;
	if (memmem(at, (size_t)(line_end - at), "${", 2))
		return "put quotes around an expression that holds ': ', ' #', quotes or braces: '${ … }'";
	if (memchr(at, '\t', (size_t)(line_end - at)))
		return "indent with spaces, YAML allows no tabs there";
	return NULL;
}

/* The parser's own errors; it may know several. */
static void report_syntax(struct reader *reader, struct fy_diag *diag)
{
	void *iterator = NULL;
	const struct fy_diag_error *error;
	bool any = false;

	while ((error = fy_diag_errors_iterate(diag, &iterator))) {
		size_t line = error->line > 0 ? (size_t)error->line : 0, column = error->column > 0 ? (size_t)error->column : 0;

		problems_add(reader->problems, false, "", line, column, guess_hint(reader, line), "not valid YAML: %s", error->msg);
		any = true;
	}
	if (!any)
		problems_add(reader->problems, false, "", 0, 0, NULL, "not valid YAML");
}

/* ---- Scalars */

static bool is_one_of(const char *text, const char *a, const char *b, const char *c)
{
	return strcmp(text, a) == 0 || strcmp(text, b) == 0 || strcmp(text, c) == 0;
}

static bool is_null(const char *text)
{
	return !*text || strcmp(text, "~") == 0 || is_one_of(text, "null", "Null", "NULL");
}

/* The core schema's numbers, rewritten as JSON writes them ("+.5" is "0.5", "010" is "10"), so that one parser decides about
 * precision and range. False: no number. */
static bool rewrite_number(const char *text, struct buffer *out)
{
	const char *at = text, *digits, *fraction = NULL;
	size_t digit_count, fraction_count = 0;

	if (*at == '-')
		buffer_add_char(out, '-');
	if (*at == '-' || *at == '+')
		at++;
	digits = at;
	digit_count = strspn(at, "0123456789");
	at += digit_count;
	if (*at == '.') {
		fraction = ++at;
		fraction_count = strspn(at, "0123456789");
		at += fraction_count;
	}
	if (digit_count + fraction_count == 0)
		return false;
	while (digit_count > 1 && *digits == '0') {
		digits++;
		digit_count--;
	}
	if (digit_count > 0)
		buffer_add(out, digits, digit_count);
	else
		buffer_add_char(out, '0');
	if (fraction_count > 0) {
		buffer_add_char(out, '.');
		buffer_add(out, fraction, fraction_count);
	}
	if (*at == 'e' || *at == 'E') {
		buffer_add_char(out, *at++);
		if (*at == '-' || *at == '+')
			buffer_add_char(out, *at++);
		digit_count = strspn(at, "0123456789");
		if (digit_count == 0)
			return false;
		buffer_add(out, at, digit_count);
		at += digit_count;
	}
	return !*at;
}

/* 0o17 and 0x1F; as decimal text, so that the same limit holds. */
static bool rewrite_octal_or_hex(const char *text, struct buffer *out)
{
	const char *digits = text + 2;
	bool hex = strncmp(text, "0x", 2) == 0;
	uint64_t value = 0;

	if (!hex && strncmp(text, "0o", 2) != 0)
		return false;
	if (!*digits || strspn(digits, hex ? "0123456789abcdefABCDEF" : "01234567") != strlen(digits))
		return false;
	for (; *digits; digits++) {
		unsigned digit = *digits <= '9' ? (unsigned)(*digits - '0') : (unsigned)((*digits | 0x20) - 'a' + 10);

		if (value < (uint64_t)1 << 56) /* more is past the limit already */
			value = value * (hex ? 16 : 8) + digit;
	}
	buffer_printf(out, "%llu", (unsigned long long)value);
	return true;
}

/* NULL: no number, or a problem was added and *refused is set. */
static struct json *resolve_number(struct reader *reader, const char *text, size_t line, size_t column, bool *refused)
{
	struct buffer number;
	struct json_fault fault;
	struct json *json = NULL;

	buffer_init(&number, strlen(text) + 32);
	if (rewrite_octal_or_hex(text, &number) || (buffer_clear(&number), rewrite_number(text, &number))) {
		json = json_parse(reader->arena, buffer_bytes(&number), JSON_STRICT, &fault, NULL);
		if (!json || !number_survives(json->number)) {
			*refused = true;
			if (json || fault.code == JSON_PRECISION)
				fail(reader, line, column, "write it as a string, in quotes",
				     "an integer beyond 2^53 - 1 would lose digits");
			else
				fail(reader, line, column, "write it as a string, in quotes", "a number that is out of range");
			json = NULL;
		}
	}
	buffer_close(&number);
	return json;
}

enum tag { TAG_NONE, TAG_STRING, TAG_INTEGER, TAG_FLOAT, TAG_BOOLEAN, TAG_NULL, TAG_SEQUENCE, TAG_MAPPING, TAG_OTHER };

static enum tag read_tag(struct fy_token *token)
{
	static const struct {
		const char *suffix;
		enum tag tag;
	} known[] = {
		{"str", TAG_STRING}, {"int", TAG_INTEGER}, {"float", TAG_FLOAT}, {"bool", TAG_BOOLEAN},
		{"null", TAG_NULL}, {"seq", TAG_SEQUENCE}, {"map", TAG_MAPPING},
	};
	static const char prefix[] = "tag:yaml.org,2002:";
	const char *handle, *suffix;
	size_t handle_len, suffix_len, len;
	char name[64];

	if (!token)
		return TAG_NONE;
	handle = fy_tag_token_handle(token, &handle_len);
	suffix = fy_tag_token_suffix(token, &suffix_len);
	if (!handle)
		handle_len = 0;
	if (!suffix)
		suffix_len = 0;
	len = handle_len + suffix_len;
	if (len >= sizeof name)
		return TAG_OTHER;
	if (handle_len > 0)
		memcpy(name, handle, handle_len);
	if (suffix_len > 0)
		memcpy(name + handle_len, suffix, suffix_len);
	name[len] = 0;
	if (strcmp(name, "!") == 0)
		return TAG_STRING; /* the non-specific tag: a scalar is a string, whatever it looks like */
	for (size_t i = 0; i < COUNT_OF(known); i++) {
		if (handle_len == 2 && memcmp(handle, "!!", 2) == 0 && strcmp(name + 2, known[i].suffix) == 0)
			return known[i].tag;
		if (strncmp(name, prefix, sizeof prefix - 1) == 0 && strcmp(name + sizeof prefix - 1, known[i].suffix) == 0)
			return known[i].tag;
	}
	return TAG_OTHER;
}

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\t';
}

/* A line break within a quoted scalar, which stands at `at`: the blanks around it go, one break becomes a space, each further one
 * a line feed. Where the text goes on. */
static size_t fold_lines(struct reader *reader, size_t at)
{
	struct bytes source = reader->source;
	size_t breaks = 0;

	while (reader->text.len > 0 && is_blank(reader->text.data[reader->text.len - 1]))
		reader->text.data[--reader->text.len] = 0;
	for (; at < source.len && (is_blank(source.data[at]) || source.data[at] == '\n' || source.data[at] == '\r'); at++) {
		bool pair = source.data[at] == '\r' && at + 1 < source.len && source.data[at + 1] == '\n';

		breaks += !is_blank(source.data[at]) && !pair;
	}
	if (breaks == 1)
		buffer_add_char(&reader->text, ' ');
	for (size_t i = 1; i < breaks; i++)
		buffer_add_char(&reader->text, '\n');
	return at;
}

/* Text of a single-quoted scalar, read from the source. libfyaml 0.7.12's fy_token_get_text() is right for it, but never frees
 * what it needs for several '' in a row (found by fuzzing), which a daemon cannot afford; its iterators give other text. */
static void read_single_quoted(struct reader *reader, const struct fy_mark *mark)
{
	struct bytes source = reader->source;
	size_t at = mark->input_pos;

	CHECK(at > 0);
	CHECK(at <= source.len);
	CHECK(source.data[at - 1] == '\''); /* the mark stands behind the quote */
	while (at < source.len) {
		if (source.data[at] == '\n' || source.data[at] == '\r') {
			at = fold_lines(reader, at);
			continue;
		}
		if (source.data[at] == '\'' && !(at + 1 < source.len && source.data[++at] == '\''))
			return;
		buffer_add_char(&reader->text, (char)source.data[at++]);
	}
}

/* Text of a scalar, checked: escapes can make what the source itself could not hold. NULL: a problem was added. */
static const char *scalar_text(struct reader *reader, struct fy_token *token, size_t line, size_t column, size_t *len)
{
	const char *text = "";

	*len = 0;
	if (!token)
		return text;
	if (fy_token_scalar_style(token) == FYSS_SINGLE_QUOTED && fy_token_start_mark(token)) {
		buffer_clear(&reader->text);
		read_single_quoted(reader, fy_token_start_mark(token));
		CHECK(!reader->text.overflow);
		text = buffer_text(&reader->text);
		*len = reader->text.len;
	} else {
		text = fy_token_get_text(token, len);
	}
	if (!text || !utf8_valid((struct bytes){(const uint8_t *)text, *len}, NULL)) {
		fail(reader, line, column, NULL, "an escape that is no Unicode character");
		return NULL;
	}
	if (*len > 0 && memchr(text, 0, *len)) {
		fail(reader, line, column, NULL, "a NUL character in a string");
		return NULL;
	}
	return arena_text_len(reader->arena, text, *len);
}

static bool read_scalar(struct reader *reader, const struct fy_event *event, struct node *node)
{
	struct fy_token *token = event->scalar.value;
	enum tag tag = read_tag(event->scalar.tag);
	bool plain = !token || fy_token_scalar_style(token) == FYSS_PLAIN;
	bool refused = false;
	size_t len;
	const char *text = scalar_text(reader, token, node->line, node->column, &len);

	node->json = json_null(reader->arena); /* what stands for a value that is wrong */
	if (!text)
		return true;
	node->text_len = len;
	if (!count_nodes(reader, 0, len, node->line, node->column))
		return false;
	if (tag == TAG_NONE && !plain)
		tag = TAG_STRING;
	switch (tag) {
	case TAG_NONE:
		if (is_null(text))
			return true;
		if (is_one_of(text, "true", "True", "TRUE") || is_one_of(text, "false", "False", "FALSE"))
			node->json = json_boolean(reader->arena, (*text | 0x20) == 't');
		else if (len < 1000 && (node->json = resolve_number(reader, text, node->line, node->column, &refused)) != NULL)
			return true;
		else
			node->json = refused ? json_null(reader->arena) : json_text_len(reader->arena, text, len);
		return true;
	case TAG_STRING:
		node->json = json_text_len(reader->arena, text, len);
		return true;
	case TAG_INTEGER:
	case TAG_FLOAT:
		node->json = resolve_number(reader, text, node->line, node->column, &refused);
		if (!refused && (!node->json || (tag == TAG_INTEGER && !json_is_integer(node->json))))
			fail(reader, node->line, node->column, NULL, "the tag asks for a number, the text is none");
		if (!node->json)
			node->json = json_null(reader->arena);
		return true;
	case TAG_BOOLEAN:
		if (is_one_of(text, "true", "True", "TRUE") || is_one_of(text, "false", "False", "FALSE"))
			node->json = json_boolean(reader->arena, (*text | 0x20) == 't');
		else
			fail(reader, node->line, node->column, NULL, "the tag asks for true or false");
		return true;
	case TAG_NULL:
		if (!is_null(text))
			fail(reader, node->line, node->column, NULL, "the tag asks for null");
		return true;
	case TAG_SEQUENCE:
	case TAG_MAPPING:
	case TAG_OTHER:
		break;
	}
	fail(reader, node->line, node->column, "tags that work: !!str !!int !!float !!bool !!null !!seq !!map", "this tag is not supported");
	return true;
}

/* ---- Nodes */

/* Mark of an event, from 1. libfyaml's marks of quoted scalars and aliases stand behind the sign they begin with; those of
 * block scalars at their first line of text, so the key's place (line, column as they come in) tells more when there is one.
 * Empty nodes may have no mark: then, too, what came in stays. */
static void mark_event(struct fy_event *event, size_t *line, size_t *column)
{
	const struct fy_mark *mark = fy_event_start_mark(event);
	enum fy_scalar_style style = event->type == FYET_SCALAR && event->scalar.value ? fy_token_scalar_style(event->scalar.value) : FYSS_ANY;
	size_t back = event->type == FYET_ALIAS || style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;

	if (!mark || ((style == FYSS_LITERAL || style == FYSS_FOLDED) && *line > 0))
		return;
	*line = (size_t)mark->line + 1;
	*column = (size_t)mark->column + 1;
	if (*column > back)
		*column -= back;
}

static struct anchor *open_anchor(struct reader *reader, struct fy_token *token, size_t line, size_t column)
{
	struct anchor *anchor;
	size_t len;
	const char *text;

	if (!token)
		return NULL;
	if (reader->anchor_count == YAML_ANCHORS_MAX) {
		stop(reader, line, column, NULL, "more than 1000 anchors");
		return NULL;
	}
	text = fy_token_get_text(token, &len);
	anchor = &reader->anchors[reader->anchor_count++];
	*anchor = (struct anchor){.name = arena_text_len(reader->arena, text ? text : "", text ? len : 0)};
	return anchor;
}

static bool read_alias(struct reader *reader, const struct fy_event *event, size_t depth, struct node *node)
{
	size_t len;
	const char *name = fy_token_get_text(event->alias.anchor, &len);

	for (size_t i = reader->anchor_count; name && i-- > 0;) { /* the latest of a name counts */
		const struct anchor *anchor = &reader->anchors[i];

		if (strlen(anchor->name) != len || memcmp(anchor->name, name, len) != 0)
			continue;
		if (!anchor->json)
			return stop(reader, node->line, node->column, NULL, "an alias that contains itself");
		if (depth + anchor->height > DEFINITION_DEPTH_MAX + 1)
			return stop(reader, node->line, node->column, NULL, "nested deeper than 64 levels, aliases written out");
		if (!count_nodes(reader, anchor->nodes, anchor->text_len, node->line, node->column))
			return false;
		node->json = anchor->json;
		node->place = anchor->place;
		node->nodes = anchor->nodes;
		node->height = anchor->height;
		node->text_len = anchor->text_len;
		return true;
	}
	return stop(reader, node->line, node->column, "an alias must follow its anchor", "an alias without an anchor");
}

static int compare_pairs(const void *a, const void *b)
{
	const struct pair *left = a, *right = b;
	int order = memcmp(left->name, right->name, left->name_len < right->name_len ? left->name_len : right->name_len);

	if (order == 0)
		order = (left->name_len > right->name_len) - (left->name_len < right->name_len);
	return order != 0 ? order : (left->order > right->order) - (left->order < right->order);
}

/* Put the lines of a mapping into the object. */
static void close_mapping(struct reader *reader, struct node *node, struct pair *pairs, size_t count)
{
	if (count > 1)
		qsort(pairs, count, sizeof *pairs, compare_pairs);
	for (size_t i = 0; i < count; i++) {
		const struct pair *pair = &pairs[i];

		if (i > 0 && pair[-1].name_len == pair->name_len && memcmp(pair[-1].name, pair->name, pair->name_len) == 0) {
			size_t len = reader->pointer.len;

			json_pointer_add(&reader->pointer, pair->name);
			problems_add(reader->problems, false, buffer_text(&reader->pointer), pair->line, pair->column, NULL,
				     "duplicate key '%s', first at line %zu column %zu", pair->name, pair[-1].line, pair[-1].column);
			shorten(&reader->pointer, len);
			continue;
		}
		json_set_len(reader->arena, node->json, pair->name, pair->name_len, pair->value);
	}
}

static bool read_node(struct reader *reader, struct fy_event *event, size_t depth, struct node *node);

static bool read_next(struct reader *reader, size_t depth, struct node *node, enum fy_event_type end, bool *ended);

/* One key of a mapping. *text is NULL when a problem was added. */
static bool read_key(struct reader *reader, struct fy_event *event, struct pair *pair)
{
	mark_event(event, &pair->line, &pair->column);
	if (event->type == FYET_ALIAS)
		return stop(reader, pair->line, pair->column, NULL, "an alias as a key is not supported");
	if (event->type != FYET_SCALAR)
		return stop(reader, pair->line, pair->column, "put quotes around an expression or a text that begins with [ or {",
			    "a key must be a plain text");
	if (event->scalar.anchor || (event->scalar.tag && read_tag(event->scalar.tag) != TAG_STRING))
		return stop(reader, pair->line, pair->column, NULL, "a key with an anchor or a tag is not supported");
	pair->name = scalar_text(reader, event->scalar.value, pair->line, pair->column, &pair->name_len);
	if (!pair->name)
		reader->stopped = reader->refused = true;
	return !reader->stopped && count_nodes(reader, 0, pair->name_len, pair->line, pair->column);
}

static bool read_mapping(struct reader *reader, size_t depth, struct node *node)
{
	struct pair *pairs = NULL;
	size_t count = 0, cap = 0;
	bool done = false;

	node->json = json_object(reader->arena);
	while (!reader->stopped) {
		struct fy_event *event = fy_parser_parse(reader->parser);
		struct pair pair = {.line = node->line, .column = node->column, .order = count};
		struct node value = {.json = NULL};
		struct place_child *child;
		size_t len = reader->pointer.len;
		bool ok, ended;

		if (!event) {
			reader->stopped = true; /* the parser holds the reason */
			break;
		}
		done = event->type == FYET_MAPPING_END;
		ok = !done && read_key(reader, event, &pair);
		fy_parser_event_free(reader->parser, event);
		if (!ok)
			break;
		json_pointer_add(&reader->pointer, pair.name);
		value.line = pair.line;
		value.column = pair.column;
		ok = read_next(reader, depth + 1, &value, FYET_NONE, &ended);
		shorten(&reader->pointer, len);
		if (!ok)
			break;
		child = place_add(reader->arena, node->place);
		*child = (struct place_child){pair.name, pair.name_len, pair.line, pair.column, value.place};
		node->nodes += value.nodes;
		node->text_len += pair.name_len + value.text_len;
		if (value.height + 1 > node->height)
			node->height = value.height + 1;
		pair.value = value.json;
		if (count == cap) {
			cap = cap ? cap * 2 : 16;
			pairs = memory_resize(pairs, cap * sizeof *pairs);
		}
		pairs[count++] = pair;
	}
	if (done)
		close_mapping(reader, node, pairs, count);
	free(pairs);
	return done;
}

static bool read_sequence(struct reader *reader, size_t depth, struct node *node)
{
	node->json = json_array(reader->arena);
	for (;;) {
		struct node item = {.json = NULL};
		size_t len = reader->pointer.len;
		bool ok, ended = false;

		buffer_printf(&reader->pointer, "/%zu", node->json->array.count);
		ok = read_next(reader, depth + 1, &item, FYET_SEQUENCE_END, &ended);
		shorten(&reader->pointer, len);
		if (!ok || ended)
			return ended;
		place_add(reader->arena, node->place)->place = item.place;
		json_add(reader->arena, node->json, item.json);
		node->nodes += item.nodes;
		node->text_len += item.text_len;
		if (item.height + 1 > node->height)
			node->height = item.height + 1;
	}
}

/* The node that begins with this event, whole. depth counts from 1, a container in it being one deeper. False: stopped. */
static bool read_node(struct reader *reader, struct fy_event *event, size_t depth, struct node *node)
{
	struct anchor *anchor = NULL;
	enum tag tag;
	bool ok = false;

	mark_event(event, &node->line, &node->column);
	if (event->type == FYET_ALIAS)
		return read_alias(reader, event, depth, node);
	if (!count_nodes(reader, 1, 0, node->line, node->column))
		return false;
	node->nodes = 1;
	node->height = event->type == FYET_SCALAR ? 0 : 1;
	node->place = place_new(reader->arena, node->line, node->column);
	if (event->type != FYET_SCALAR && depth > DEFINITION_DEPTH_MAX)
		return stop(reader, node->line, node->column, NULL, "nested deeper than 64 levels");
	switch (event->type) {
	case FYET_SCALAR:
		anchor = open_anchor(reader, event->scalar.anchor, node->line, node->column);
		ok = !reader->stopped && read_scalar(reader, event, node);
		break;
	case FYET_SEQUENCE_START:
		anchor = open_anchor(reader, event->sequence_start.anchor, node->line, node->column);
		tag = read_tag(event->sequence_start.tag);
		if (tag != TAG_NONE && tag != TAG_SEQUENCE)
			fail(reader, node->line, node->column, NULL, "this tag is not supported on a list");
		ok = !reader->stopped && read_sequence(reader, depth, node);
		break;
	case FYET_MAPPING_START:
		anchor = open_anchor(reader, event->mapping_start.anchor, node->line, node->column);
		tag = read_tag(event->mapping_start.tag);
		if (tag != TAG_NONE && tag != TAG_MAPPING)
			fail(reader, node->line, node->column, NULL, "this tag is not supported on a mapping");
		ok = !reader->stopped && read_mapping(reader, depth, node);
		break;
	default:
		return stop(reader, node->line, node->column, NULL, "not valid YAML");
	}
	if (ok && anchor) {
		anchor->json = node->json;
		anchor->place = node->place;
		anchor->nodes = node->nodes;
		anchor->height = node->height;
		anchor->text_len = node->text_len;
	}
	return ok;
}

/* The next node, or *ended when the event `end` comes instead. */
static bool read_next(struct reader *reader, size_t depth, struct node *node, enum fy_event_type end, bool *ended)
{
	struct fy_event *event = fy_parser_parse(reader->parser);
	bool ok;

	*ended = false;
	if (!event) {
		reader->stopped = true;
		return false;
	}
	*ended = end != FYET_NONE && event->type == end;
	ok = *ended || read_node(reader, event, depth, node);
	fy_parser_event_free(reader->parser, event);
	return ok;
}

/* The stream: exactly one document. */
static struct json *read_stream(struct reader *reader, struct place **place)
{
	struct json *root = NULL;
	size_t line = 1, column = 1;

	while (!reader->stopped) {
		struct fy_event *event = fy_parser_parse(reader->parser);
		enum fy_event_type type;
		struct node node = {.line = 1, .column = 1};
		bool ended;

		if (!event)
			break;
		type = event->type;
		mark_event(event, &line, &column);
		fy_parser_event_free(reader->parser, event);
		if (type == FYET_STREAM_END)
			break;
		if (type != FYET_DOCUMENT_START)
			continue;
		if (root) {
			stop(reader, line, column, "put each document into a file of its own", "more than one YAML document");
			return NULL;
		}
		if (!read_next(reader, 1, &node, FYET_NONE, &ended))
			return NULL;
		root = node.json;
		*place = node.place;
	}
	return root;
}

/* ---- What libfyaml (0.7.12) takes too long for ---- */

/* A run of blank lines costs it their number times their bytes: 1 MiB of them hours. */
static bool check_blank_lines(struct reader *reader)
{
	size_t work = 0, lines = 0, bytes = 0, line = 1;

	for (size_t i = 0; i < reader->source.len; i++) {
		uint8_t c = reader->source.data[i];

		if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
			lines = bytes = 0;
			continue;
		}
		bytes++;
		lines += c == '\n' || c == '\r';
		line += c == '\n';
		if (lines < 2)
			continue;
		work += (c == '\n' || c == '\r' ? bytes : 0) + lines;
		if (work > YAML_BLANK_WORK_MAX)
			return stop(reader, line, 1, NULL, "too many blank lines, one after the other (YAML_BLANK_WORK_MAX)");
	}
	return true;
}

/* All brackets that open at the beginning of a line it keeps as tokens before it gives the first one away. Those that follow one another
 * closely are counted, so that brackets in a text are not taken for a nesting. */
static bool check_brackets(struct reader *reader)
{
	size_t open = 0, gap = 0, line = 1;

	for (size_t i = 0; i < reader->source.len; i++) {
		uint8_t c = reader->source.data[i];

		line += c == '\n';
		if (c == '[' || c == '{') {
			gap = 0;
			if (++open > YAML_BRACKETS_MAX)
				return stop(reader, line, 1, NULL, "nested deeper than 64 levels: more than 1000 brackets open one after the other (YAML_BRACKETS_MAX)");
		} else if (c == ']' || c == '}' || ++gap > YAML_BRACKET_GAP_MAX) {
			open = gap = 0;
		}
	}
	return true;
}

struct json *yaml_read(struct arena *arena, struct bytes source, struct place **place, struct problems *problems)
{
	struct reader *reader = memory_zero(sizeof *reader);
	struct fy_diag_cfg diag_cfg;
	struct fy_diag *diag;
	struct fy_parse_cfg parse_cfg = {.flags = FYPCF_QUIET | FYPCF_JSON_NONE | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_COLLECT_DIAG};
	struct place *root_place = NULL;
	size_t errors = problems->errors;
	struct json *root;

	reader->arena = arena;
	reader->source = source;
	reader->problems = problems;
	buffer_init(&reader->pointer, 4 * DEFINITION_SOURCE_MAX); /* every byte of the source escaped, and indexes */
	buffer_init(&reader->text, DEFINITION_SOURCE_MAX);
	if (!check_blank_lines(reader) || !check_brackets(reader)) {
		buffer_close(&reader->pointer);
		buffer_close(&reader->text);
		free(reader);
		return NULL;
	}
	fy_diag_cfg_default(&diag_cfg);
	diag = fy_diag_create(&diag_cfg);
	CHECK(diag);
	fy_diag_set_collect_errors(diag, true);
	parse_cfg.diag = diag;
	reader->parser = fy_parser_create(&parse_cfg);
	CHECK(reader->parser);
	CHECK(fy_parser_set_string(reader->parser, (const char *)source.data, source.len) == 0);
	root = read_stream(reader, &root_place);
	if (!reader->refused && fy_parser_get_stream_error(reader->parser)) {
		report_syntax(reader, diag);
	} else if (problems->errors == errors && !root) {
		problems_add(problems, false, "", 1, 1, NULL, "the text is empty");
	}
	fy_parser_destroy(reader->parser);
	fy_diag_destroy(diag);
	buffer_close(&reader->pointer);
	buffer_close(&reader->text);
	free(reader);
	if (problems->errors > errors)
		return NULL;
	if (place)
		*place = root_place;
	return root;
}
