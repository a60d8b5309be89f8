/* CloudEvents: the checks and the canonical form. Pure; any thread. Start at cloud_event_check(). */
#include "workflow/language/cloud_event.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "workflow/base/check.h"
#include "workflow/base/hex.h"
#include "workflow/base/time.h"

static const char spec_version[] = "1.0";
static const char header_prefix[] = "ce-";
static const double integer_min = -2147483648.0, integer_max = 2147483647.0; /* the specification's Integer has 32 bits */

enum attribute_type { ATTRIBUTE_VERSION, ATTRIBUTE_TEXT, ATTRIBUTE_REFERENCE, ATTRIBUTE_URI, ATTRIBUTE_MEDIA_TYPE, ATTRIBUTE_TIME };

/* The attributes that the specification names; all others are extensions. */
static const struct attribute {
	const char *name;
	enum attribute_type type;
	bool is_required;
} attributes[] = {
	{"id", ATTRIBUTE_TEXT, true},
	{"source", ATTRIBUTE_REFERENCE, true},
	{"specversion", ATTRIBUTE_VERSION, true},
	{"type", ATTRIBUTE_TEXT, true},
	{"datacontenttype", ATTRIBUTE_MEDIA_TYPE, false},
	{"dataschema", ATTRIBUTE_URI, false},
	{"subject", ATTRIBUTE_TEXT, false},
	{"time", ATTRIBUTE_TIME, false},
};

struct digest cloud_event_key(const char *source, const char *id)
{
	struct buffer text;
	struct digest digest;

	buffer_init(&text, 16 * CLOUD_EVENT_TEXT_MAX);
	buffer_add_char(&text, '[');
	json_print_string(source, strlen(source), &text);
	buffer_add_char(&text, ',');
	json_print_string(id, strlen(id), &text);
	buffer_add_char(&text, ']');
	CHECK(!text.overflow);
	digest = digest_of(buffer_bytes(&text));
	buffer_close(&text);
	return digest;
}

static const struct attribute *find_attribute(const char *name)
{
	for (size_t i = 0; i < COUNT_OF(attributes); i++)
		if (strcmp(attributes[i].name, name) == 0)
			return &attributes[i];
	return NULL;
}

static bool is_data(const char *name)
{
	return strcmp(name, "data") == 0 || strcmp(name, "data_base64") == 0;
}

/* Valid UTF-8 without the characters that the specification's String may not hold: controls and noncharacters. */
static bool is_clean(const char *text, size_t len)
{
	const uint8_t *at = (const uint8_t *)text, *end = at + len;

	while (at < end) {
		uint32_t c = *at;
		size_t more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0x80 ? 1 : 0;

		c &= more == 3 ? 0x07u : more == 2 ? 0x0Fu : more == 1 ? 0x1Fu : 0x7Fu;
		for (at++; more > 0; more--)
			c = c << 6 | (*at++ & 0x3Fu);
		if (c < 0x20 || (c >= 0x7F && c <= 0x9F) || (c >= 0xFDD0 && c <= 0xFDEF) || (c & 0xFFFE) == 0xFFFE)
			return false;
	}
	return true;
}

/* RFC 3986 as far as it tells a reference from a text: its characters alone, and whole percent-encodings. */
static bool is_reference(const char *text)
{
	static const char hex[] = "0123456789ABCDEFabcdef";

	for (const char *at = text; *at != '\0'; at++) {
		if (*at == '%' && (at[1] == '\0' || strchr(hex, at[1]) == NULL || at[2] == '\0' || strchr(hex, at[2]) == NULL))
			return false;
		if (*at <= ' ' || *at >= 0x7F || strchr("\"<>\\^`{|}", *at) != NULL)
			return false;
	}
	return true;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_absolute(const char *text)
{
	size_t len = 0;

	if (!is_letter(text[0]))
		return false;
	while (is_letter(text[len]) || is_digit(text[len]) || (text[len] != '\0' && strchr("+-.", text[len]) != NULL))
		len++;
	return text[len] == ':' && is_reference(text);
}

static size_t token_len(const char *text)
{
	size_t len = 0;

	while (is_letter(text[len]) || is_digit(text[len]) || (text[len] != '\0' && strchr("!#$%&'*+-.^_`|~", text[len]) != NULL))
		len++;
	return len;
}

/* type/subtype, and parameters that nobody looks into. */
static bool is_media_type(const char *text)
{
	size_t len = token_len(text), rest;

	if (len == 0 || text[len] != '/')
		return false;
	rest = token_len(text + len + 1);
	if (rest == 0)
		return false;
	text += len + 1 + rest;
	while (*text == ' ')
		text++;
	return *text == '\0' || *text == ';';
}

static int refuse(const char *name, const char *why, struct error *error)
{
	return error_set(error, ERR_INVALID, "CloudEvent: attribute '%.64s' %s", name, why);
}

static int check_name(const char *name, struct error *error)
{
	size_t len = strlen(name);

	if (len == 0 || len > CLOUD_EVENT_NAME_MAX)
		return error_set(error, len == 0 ? ERR_INVALID : ERR_TOO_LARGE, "CloudEvent: the name '%.64s' of an attribute has %zu bytes; 1 to %d are allowed",
				 name, len, CLOUD_EVENT_NAME_MAX);
	for (const char *at = name; *at != '\0'; at++)
		if (!is_digit(*at) && !(*at >= 'a' && *at <= 'z'))
			return error_set(error, ERR_INVALID, "CloudEvent: '%.64s' is no attribute name; it takes lower-case letters and digits", name);
	return 0;
}

static int check_value(const char *name, const struct json *value, struct error *error)
{
	const struct attribute *attribute = find_attribute(name);
	enum attribute_type type = attribute != NULL ? attribute->type : ATTRIBUTE_TEXT;
	const char *text;
	int64_t ms;

	if (attribute == NULL && json_is(value, JSON_BOOLEAN))
		return 0;
	if (attribute == NULL && json_is(value, JSON_NUMBER)) {
		if (!json_is_integer(value) || value->number < integer_min || value->number > integer_max)
			return refuse(name, "is a number that is no integer of 32 bits; write it as text", error);
		return 0;
	}
	if (!json_is(value, JSON_STRING))
		return refuse(name, attribute != NULL ? "is no text" : "is no text, boolean or integer; what has parts belongs into data", error);
	text = value->string.text;
	if (value->string.len > CLOUD_EVENT_TEXT_MAX)
		return error_set(error, ERR_TOO_LARGE, "CloudEvent: attribute '%.64s' has %zu bytes; at most %d are allowed", name, value->string.len,
				 CLOUD_EVENT_TEXT_MAX);
	if (!is_clean(text, value->string.len))
		return refuse(name, "holds control characters or noncharacters", error);
	if (attribute != NULL && value->string.len == 0)
		return refuse(name, "is empty", error);
	switch (type) {
	case ATTRIBUTE_VERSION:
		if (strcmp(text, spec_version) != 0)
			return error_set(error, ERR_INVALID, "CloudEvent: specversion is '%.20s'; only 1.0 is known here", text);
		break;
	case ATTRIBUTE_TEXT:
		break;
	case ATTRIBUTE_REFERENCE:
		if (!is_reference(text))
			return refuse(name, "is no URI reference", error);
		break;
	case ATTRIBUTE_URI:
		if (!is_absolute(text))
			return refuse(name, "is no absolute URI", error);
		break;
	case ATTRIBUTE_MEDIA_TYPE:
		if (!is_media_type(text))
			return refuse(name, "is no media type", error);
		break;
	case ATTRIBUTE_TIME:
		if (!time_parse(text, &ms))
			return refuse(name, "is no time of RFC 3339", error);
		break;
	}
	return 0;
}

static int check_data(const struct json *envelope, struct error *error)
{
	const struct json *base64 = json_get(envelope, "data_base64");
	struct buffer decoded;
	bool is_good;

	if (base64 == NULL || json_is(base64, JSON_NULL))
		return 0;
	if (json_get(envelope, "data") != NULL)
		return error_set(error, ERR_INVALID, "CloudEvent: data and data_base64 exclude each other");
	if (!json_is(base64, JSON_STRING))
		return error_set(error, ERR_INVALID, "CloudEvent: data_base64 is no text");
	buffer_init(&decoded, CLOUD_EVENT_BYTES_MAX);
	is_good = base64_decode((struct bytes){(const uint8_t *)base64->string.text, base64->string.len}, &decoded);
	buffer_close(&decoded);
	if (!is_good)
		return error_set(error, ERR_INVALID, "CloudEvent: data_base64 is no base64 with padding");
	return 0;
}

/* Envelope to event: what is known of it, and its bytes. */
static void fill(struct json *envelope, struct bytes bytes, struct cloud_event *event)
{
	*event = (struct cloud_event){
		.envelope = envelope,
		.id = json_get_text(envelope, "id"),
		.source = json_get_text(envelope, "source"),
		.type = json_get_text(envelope, "type"),
		.bytes = bytes,
	};
	event->key = cloud_event_key(event->source, event->id);
}

int cloud_event_check(struct arena *arena, const struct json *envelope, struct cloud_event *event, struct error *error)
{
	struct json *canonical;
	struct buffer text;

	*event = (struct cloud_event){0};
	if (!json_is(envelope, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "CloudEvent: it is %s, not an object", envelope != NULL ? json_type_name(envelope->type) : "missing");
	if (check_data(envelope, error) != 0)
		return error->code;
	canonical = json_object(arena);
	for (size_t i = 0; i < envelope->object.count; i++) {
		const struct json_member *member = &envelope->object.members[i];

		/* Of data, null is a value like another. */
		if (json_is(member->value, JSON_NULL) && strcmp(member->name, "data") != 0)
			continue;
		if (!is_data(member->name)) {
			if (check_name(member->name, error) != 0 || check_value(member->name, member->value, error) != 0)
				return error->code;
		}
		if (json_count(canonical) == CLOUD_EVENT_ATTRIBUTES_MAX)
			return error_set(error, ERR_TOO_LARGE, "CloudEvent: more than %d attributes", CLOUD_EVENT_ATTRIBUTES_MAX);
		json_set_len(arena, canonical, member->name, member->name_len, member->value);
	}
	for (size_t i = 0; i < COUNT_OF(attributes); i++)
		if (attributes[i].is_required && json_get(canonical, attributes[i].name) == NULL)
			return refuse(attributes[i].name, "is missing", error);
	if (!json_nests_within(canonical, CLOUD_EVENT_LEVELS_MAX))
		return error_set(error, ERR_TOO_LARGE, "CloudEvent: data has more than %d levels", CLOUD_EVENT_LEVELS_MAX - 1);
	buffer_init(&text, CLOUD_EVENT_BYTES_MAX);
	json_print(canonical, &text);
	if (text.overflow) {
		buffer_close(&text);
		return error_set(error, ERR_TOO_LARGE, "CloudEvent: more than %d bytes", CLOUD_EVENT_BYTES_MAX);
	}
	fill(canonical, arena_bytes(arena, buffer_bytes(&text)), event);
	buffer_close(&text);
	return 0;
}

int cloud_event_parse(struct arena *arena, struct bytes text, struct cloud_event *event, struct error *error)
{
	struct json *json;
	struct error why = {0};

	*event = (struct cloud_event){0};
	if (text.len > CLOUD_EVENT_BYTES_MAX)
		return error_set(error, ERR_TOO_LARGE, "CloudEvent: %zu bytes; at most %d are allowed", text.len, CLOUD_EVENT_BYTES_MAX);
	json = json_parse(arena, text, JSON_STRICT, NULL, &why);
	if (json == NULL)
		return error_set(error, ERR_INVALID, "CloudEvent: %s", why.message);
	if (json_is(json, JSON_ARRAY))
		return error_set(error, ERR_UNSUPPORTED, "CloudEvent: batches are not supported; send one event at a time");
	return cloud_event_check(arena, json, event, error);
}

int cloud_event_read(struct arena *arena, struct bytes stored, struct cloud_event *event, struct error *error)
{
	struct json *json;
	struct error why = {0};

	*event = (struct cloud_event){0};
	json = json_parse(arena, stored, JSON_STORED, NULL, &why);
	if (json == NULL)
		return error_set(error, ERR_CORRUPT, "event: %s", why.message);
	if (json_get_text(json, "id") == NULL || json_get_text(json, "source") == NULL || json_get_text(json, "type") == NULL)
		return error_set(error, ERR_CORRUPT, "event: id, source or type is missing");
	fill(json, stored, event);
	return 0;
}

/* --- binary mode -------------------------------------------------------------------------------------------------- */

/* The binding: quotes around it and backslashes in them go away, then %XX become bytes. A '%' that is none stays. */
static char *decode_header(struct arena *arena, const char *value)
{
	size_t len = strlen(value), out = 0;
	bool is_quoted = len >= 2 && value[0] == '"' && value[len - 1] == '"';
	char *text = arena_alloc(arena, len + 1);
	const char *end = value + len - (is_quoted ? 1 : 0);

	for (const char *at = value + (is_quoted ? 1 : 0); at < end; at++) {
		if (is_quoted && *at == '\\' && at + 1 < end)
			text[out++] = *++at;
		else if (*at == '%' && end - at > 2 && hex_value(at[1]) >= 0 && hex_value(at[2]) >= 0) {
			text[out++] = (char)(hex_value(at[1]) * 16 + hex_value(at[2]));
			at += 2;
		} else
			text[out++] = *at;
	}
	text[out] = '\0';
	/* A decoded NUL would cut the text short without a word. */
	return strlen(text) == out && utf8_valid((struct bytes){(const uint8_t *)text, out}, NULL) ? text : NULL;
}

/* "application/json", "application/vnd.x+json; charset=utf-8": the type alone. */
static bool media_type_is(const char *content_type, const char *prefix, const char *suffix)
{
	size_t len = strcspn(content_type, "; "), prefix_len = strlen(prefix), suffix_len = strlen(suffix);

	return len >= prefix_len + suffix_len && strncasecmp(content_type, prefix, prefix_len) == 0 &&
	       strncasecmp(content_type + len - suffix_len, suffix, suffix_len) == 0 && (prefix_len > 0 || strchr(content_type, '/') != NULL);
}

static int set_data(struct arena *arena, struct json *envelope, const char *content_type, struct bytes body, struct error *error)
{
	bool is_json = content_type == NULL || (media_type_is(content_type, "application/json", "") && strcspn(content_type, "; ") == 16) ||
		       (media_type_is(content_type, "text/json", "") && strcspn(content_type, "; ") == 9) || media_type_is(content_type, "", "+json");
	struct error why = {0};
	struct buffer text;

	if (body.len == 0)
		return 0;
	if (is_json) {
		struct json *data = json_parse(arena, body, JSON_STRICT, NULL, &why);

		if (data == NULL)
			return error_set(error, ERR_INVALID, "CloudEvent: data: %s", why.message);
		json_set(arena, envelope, "data", data);
		return 0;
	}
	if (media_type_is(content_type, "text/", "") && utf8_valid(body, NULL) && memchr(body.data, 0, body.len) == NULL) {
		json_set(arena, envelope, "data", json_text_len(arena, (const char *)body.data, body.len));
		return 0;
	}
	buffer_init(&text, 2 * CLOUD_EVENT_BYTES_MAX);
	base64_add(&text, body);
	json_set(arena, envelope, "data_base64", json_text_len(arena, buffer_text(&text), text.len));
	buffer_close(&text);
	return 0;
}

int cloud_event_from_headers(struct arena *arena, const struct cloud_event_header *headers, size_t count, const char *content_type, struct bytes body,
			     struct cloud_event *event, struct error *error)
{
	struct json *envelope = json_object(arena);

	*event = (struct cloud_event){0};
	if (body.len > CLOUD_EVENT_BYTES_MAX)
		return error_set(error, ERR_TOO_LARGE, "CloudEvent: %zu bytes of data; at most %d are allowed", body.len, CLOUD_EVENT_BYTES_MAX);
	for (size_t i = 0; i < count; i++) {
		const char *name = headers[i].name;
		char *text, *lower;

		if (strncasecmp(name, header_prefix, strlen(header_prefix)) != 0)
			continue;
		lower = arena_text(arena, name + strlen(header_prefix));
		for (char *at = lower; *at != '\0'; at++)
			if (*at >= 'A' && *at <= 'Z')
				*at = (char)(*at - 'A' + 'a');
		if (check_name(lower, error) != 0)
			return error->code;
		if (is_data(lower) || strcmp(lower, "datacontenttype") == 0)
			return error_set(error, ERR_INVALID, "CloudEvent: the header %.70s has no meaning in binary mode", name);
		if (json_get(envelope, lower) != NULL)
			return error_set(error, ERR_INVALID, "CloudEvent: the header %.70s comes twice", name);
		if (json_count(envelope) == CLOUD_EVENT_ATTRIBUTES_MAX)
			return error_set(error, ERR_TOO_LARGE, "CloudEvent: more than %d attributes", CLOUD_EVENT_ATTRIBUTES_MAX);
		text = decode_header(arena, headers[i].value);
		if (text == NULL)
			return refuse(lower, "is no UTF-8", error);
		json_set_text(arena, envelope, lower, text);
	}
	if (content_type != NULL) {
		if (!utf8_valid(bytes_text(content_type), NULL))
			return refuse("datacontenttype", "is no UTF-8", error);
		json_set_text(arena, envelope, "datacontenttype", content_type);
	}
	if (set_data(arena, envelope, content_type, body, error) != 0)
		return error->code;
	return cloud_event_check(arena, envelope, event, error);
}

/* --- emit --------------------------------------------------------------------------------------------------------- */

int cloud_event_make(struct arena *arena, const struct json *with, const struct cloud_event_defaults *defaults, struct cloud_event *event, struct error *error)
{
	struct json *envelope;
	char time[TIME_TEXT_LEN + 1];

	*event = (struct cloud_event){0};
	if (!json_is(with, JSON_OBJECT))
		return error_set(error, ERR_INVALID, "CloudEvent: it is %s, not an object", with != NULL ? json_type_name(with->type) : "missing");
	envelope = json_object(arena);
	json_set_text(arena, envelope, "specversion", spec_version);
	json_set_text(arena, envelope, "id", defaults->id);
	json_set_text(arena, envelope, "source", defaults->source);
	time_text(defaults->time_ms, time);
	json_set_text(arena, envelope, "time", time);
	for (size_t i = 0; i < with->object.count; i++) {
		const struct json_member *member = &with->object.members[i];

		/* A null is an attribute that is not set: the default stays. */
		if (!json_is(member->value, JSON_NULL) || strcmp(member->name, "data") == 0)
			json_set_len(arena, envelope, member->name, member->name_len, member->value);
	}
	return cloud_event_check(arena, envelope, event, error);
}
