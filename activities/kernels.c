/* See kernels.h. Start at kernels_read_line(). */
#include "activities/kernels.h"

#include <string.h>

#include "activities/launch.h"
#include "workflow/base/check.h"

static bool add(struct arena *arena, struct json *kernels, const char *name, struct bytes text)
{
	const struct json *old = json_get(kernels, name);
	struct json *list, *item;
	bool placed = false;
	const char *copy;

	while (text.len > 0 && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\r'))
		text.len--;
	if (text.len > KERNELS_TEXT_LEN_MAX)
		text.len = KERNELS_TEXT_LEN_MAX;
	for (size_t i = 0; i < text.len; i++) /* of a log nothing but plain text is taken */
		if (text.data[i] < ' ' || text.data[i] > '~')
			return false;
	if (text.len == 0 || json_count(old) == KERNELS_TEXTS_MAX)
		return false;
	for (size_t i = 0; i < json_count(old); i++)
		if (bytes_equal_text(text, json_at(old, i)->string.text))
			return false;
	copy = arena_text_len(arena, (const char *)text.data, text.len);
	item = json_text(arena, copy);
	list = json_array(arena);
	for (size_t i = 0; i < json_count(old); i++) {
		bool behind = strcmp(json_at(old, i)->string.text, copy) > 0;

		if (behind && !placed)
			json_add(arena, list, item);
		placed |= behind;
		json_add(arena, list, json_at(old, i));
	}
	if (!placed)
		json_add(arena, list, item);
	json_set(arena, kernels, name, list);
	return true;
}

/* Behind `what`, whole or from its beginning on; NULL: it is not there. */
static const char *find(const char *line, const char *what)
{
	const char *at = strstr(line, what);

	return at != NULL ? at + strlen(what) : NULL;
}

static bool read_text(struct arena *arena, struct arena *scratch, const char *text, struct json *kernels)
{
	const char *at, *end;

	/* llama.cpp: what the library was built with and found. */
	if ((at = find(text, "system_info: ")) != NULL)
		return add(arena, kernels, "systemInfo", bytes_text(at));
	/* vLLM: "Using FLASH_ATTN attention backend out of …", "Using 'MARLIN' NvFp4 MoE backend out of …". */
	if ((at = find(text, "Using ")) == NULL)
		return false;
	if ((end = strstr(at, " attention backend")) != NULL)
		return memchr(at, ' ', (size_t)(end - at)) == NULL && add(arena, kernels, "attention", (struct bytes){(const uint8_t *)at, (size_t)(end - at)});
	if ((end = strstr(at, " MoE backend")) == NULL || *at != '\'' || (at = strchr(at + 1, '\'')) == NULL || at > end)
		return false;
	const char *name = find(text, "Using '");
	return add(arena, kernels, "moe", bytes_text(arena_printf(scratch, "%.*s%.*s", (int)(at - name), name, (int)(end - at - 1), at + 1)));
}

bool kernels_read_line(struct arena *arena, struct bytes line, struct json *kernels)
{
	struct arena scratch;
	bool told;

	arena_init(&scratch);
	told = read_text(arena, &scratch, arena_text_len(&scratch, (const char *)line.data, line.len), kernels);
	arena_close(&scratch);
	return told;
}

static bool is_quote(char c)
{
	return c == '\'' || c == '"';
}

static const char *skip_text(const char *at)
{
	char quote = *at++;

	while (*at != '\0' && *at != quote)
		at += *at == '\\' && at[1] != '\0' ? 2 : 1;
	return *at != '\0' ? at + 1 : at;
}

/* Behind a value as Python prints it: 'text', ['list'], or a word up to the next member. What has no end, since the line was cut, is all that follows. */
static const char *skip_value(const char *at)
{
	char end = *at == '[' ? ']' : *at == '(' ? ')' : *at == '{' ? '}' : '\0';

	if (is_quote(*at))
		return skip_text(at);
	if (end == '\0')
		return at + strcspn(at, ",}");
	for (at++; *at != '\0' && *at != end;)
		at = is_quote(*at) ? skip_text(at) : at + 1; /* a key may hold any sign */
	return *at != '\0' ? at + 1 : at;
}

/* 'name': value, of names that hold secrets without the value. */
static void add_masked(struct buffer *out, const char *text)
{
	for (const char *at = text; *at != '\0';) {
		const char *end = *at == '\'' ? strchr(at + 1, '\'') : NULL;

		if (end == NULL || end[1] != ':' || end[2] != ' ' || !launch_is_secret(at + 1, (size_t)(end - at - 1))) {
			buffer_add_char(out, *at++);
			continue;
		}
		buffer_add(out, at, (size_t)(end + 3 - at));
		buffer_add_text(out, "(set)");
		at = skip_value(end + 3);
	}
}

static bool add_evidence(struct arena *arena, struct arena *scratch, const char *at, struct json *lines)
{
	struct buffer masked;
	size_t len;
	bool ok;

	buffer_init(&masked, 2 * strlen(at) + EVIDENCE_LINE_LEN_MAX);
	add_masked(&masked, at);
	len = masked.len < EVIDENCE_LINE_LEN_MAX ? masked.len : EVIDENCE_LINE_LEN_MAX;
	at = arena_text_len(scratch, (const char *)masked.data, len);
	while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\r'))
		len--;
	ok = !masked.overflow && len > 0 && json_count(lines) < EVIDENCE_LINES_MAX;
	buffer_close(&masked);
	for (size_t i = 0; i < len && ok; i++) /* of a log nothing but plain text is taken */
		ok = at[i] >= ' ' && at[i] <= '~';
	for (size_t i = 0; i < json_count(lines) && ok; i++)
		ok = !bytes_equal_text((struct bytes){(const uint8_t *)at, len}, json_at(lines, i)->string.text);
	if (ok)
		json_add(arena, lines, json_text_len(arena, at, len));
	return ok;
}

bool kernels_read_evidence(struct arena *arena, struct bytes line, struct json *lines)
{
	static const char *const marks[] = {"vLLM server version ", "vLLM API server version ", "non-default args: ", "Model loading took "};
	struct arena scratch;
	const char *text;
	bool told = false;

	arena_init(&scratch);
	text = arena_text_len(&scratch, (const char *)line.data, line.len);
	for (size_t i = 0; i < COUNT_OF(marks) && !told; i++) {
		const char *at = strstr(text, marks[i]);

		told = at != NULL && add_evidence(arena, &scratch, at, lines);
	}
	arena_close(&scratch);
	return told;
}
