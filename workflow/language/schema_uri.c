/* References of schemas: RFC 3986, sections 5.2 and 5.3. Pure, any thread. Nothing is normalized beyond what resolving does, since
 * JSON Schema compares URIs as texts. */
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/schema_program.h"

/* Without their punctuation; data NULL where the part is absent. */
struct uri {
	struct bytes scheme, authority, path, query, fragment;
};

static struct bytes cut(const char *from, const char *to)
{
	return (struct bytes){(const uint8_t *)from, (size_t)(to - from)};
}

static struct uri split(const char *text)
{
	struct uri uri = {0};
	size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-.");

	if (len > 0 && text[len] == ':') {
		uri.scheme = cut(text, text + len);
		text += len + 1;
	}
	if (strncmp(text, "//", 2) == 0) {
		len = strcspn(text + 2, "/?#");
		uri.authority = cut(text + 2, text + 2 + len);
		text += 2 + len;
	}
	len = strcspn(text, "?#");
	uri.path = cut(text, text + len);
	text += len;
	if (*text == '?') {
		len = strcspn(text + 1, "#");
		uri.query = cut(text + 1, text + 1 + len);
		text += 1 + len;
	}
	if (*text == '#')
		uri.fragment = cut(text + 1, text + strlen(text));
	return uri;
}

/* Section 5.2.4. The output is never longer than the input. */
static struct bytes remove_dots(struct arena *arena, struct bytes path)
{
	char *out = arena_alloc(arena, path.len + 1);
	const char *at = (const char *)path.data, *end = at + path.len;
	size_t len = 0;

	while (at < end) {
		const char *slash = memchr(at + 1, '/', (size_t)(end - at - 1));
		size_t part_len = (size_t)((slash != NULL ? slash : end) - at);
		bool rooted = *at == '/';
		const char *name = at + rooted;
		size_t name_len = part_len - rooted;
		bool is_dot = name_len == 1 && name[0] == '.', is_up = name_len == 2 && name[0] == '.' && name[1] == '.';

		if (is_up) {
			while (len > 0 && out[len - 1] != '/')
				len--;
			len -= len > 0;
		}
		if (!is_dot && !is_up) {
			memcpy(out + len, at, part_len);
			len += part_len;
		} else if (slash == NULL && rooted) {
			out[len++] = '/';
		}
		at += part_len;
	}
	return cut(out, out + len);
}

static struct bytes merge_paths(struct arena *arena, const struct uri *base, struct bytes path)
{
	const char *text = (const char *)base->path.data;
	size_t len = base->path.len;

	while (len > 0 && text[len - 1] != '/')
		len--;
	text = arena_printf(arena, "%.*s%.*s", len > 0 ? (int)len : (int)(base->authority.data != NULL),
			    len > 0 ? (const char *)base->path.data : "/", (int)path.len, (const char *)path.data);
	return bytes_text(text);
}

const char *schema_uri_resolve(struct arena *arena, const char *base_text, const char *reference)
{
	struct uri base = split(base_text), uri = split(reference), target = uri;
	struct buffer out;
	const char *result;

	if (uri.scheme.data == NULL) {
		target.scheme = base.scheme;
		if (uri.authority.data == NULL) {
			target.authority = base.authority;
			if (uri.path.len == 0) {
				target.path = base.path;
				if (uri.query.data == NULL)
					target.query = base.query;
			} else if (uri.path.data[0] != '/') {
				target.path = merge_paths(arena, &base, uri.path);
			}
		}
	}
	if (target.path.len > 0 && target.path.data != base.path.data && (target.authority.data != NULL || target.path.data[0] == '/'))
		target.path = remove_dots(arena, target.path);
	buffer_init(&out, strlen(base_text) + strlen(reference) + 8);
	if (target.scheme.data != NULL) {
		buffer_add_bytes(&out, target.scheme);
		buffer_add_char(&out, ':');
	}
	if (target.authority.data != NULL) {
		buffer_add_text(&out, "//");
		buffer_add_bytes(&out, target.authority);
	}
	buffer_add_bytes(&out, target.path);
	if (target.query.data != NULL) {
		buffer_add_char(&out, '?');
		buffer_add_bytes(&out, target.query);
	}
	if (target.fragment.data != NULL) {
		buffer_add_char(&out, '#');
		buffer_add_bytes(&out, target.fragment);
	}
	CHECK(!out.overflow);
	result = arena_text_len(arena, buffer_text(&out), out.len);
	buffer_close(&out);
	return result;
}
