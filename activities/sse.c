/* See sse.h. Pure. Start at sse_feed(). */
#include "activities/sse.h"

#include <string.h>

void sse_init(struct sse *sse, sse_event_cb on_event, void *arg)
{
	*sse = (struct sse){.on_event = on_event, .arg = arg};
	buffer_init(&sse->line, SSE_EVENT_MAX);
	buffer_init(&sse->data, SSE_EVENT_MAX);
	buffer_init(&sse->name, SSE_EVENT_MAX);
}

void sse_close(struct sse *sse)
{
	buffer_close(&sse->line);
	buffer_close(&sse->data);
	buffer_close(&sse->name);
}

static void give_event(struct sse *sse)
{
	if (sse->has_data && !sse->on_event(sse->arg, buffer_text(&sse->name), buffer_bytes(&sse->data)))
		sse->stopped = true;
	buffer_clear(&sse->data);
	buffer_clear(&sse->name);
	sse->has_data = false;
}

/* True when the field has this name; *value is what follows the colon and one space. */
static bool is_field(struct bytes line, const char *name, struct bytes *value)
{
	size_t len = strlen(name);

	if (line.len < len || memcmp(line.data, name, len) != 0)
		return false;
	if (line.len == len) {
		*value = (struct bytes){line.data + len, 0};
		return true;
	}
	if (line.data[len] != ':')
		return false;
	len++;
	if (len < line.len && line.data[len] == ' ')
		len++;
	*value = (struct bytes){line.data + len, line.len - len};
	return true;
}

static void take_line(struct sse *sse)
{
	struct bytes line = buffer_bytes(&sse->line), value;

	if (!sse->line_seen && line.len >= 3 && memcmp(line.data, "\xEF\xBB\xBF", 3) == 0)
		line.data += 3, line.len -= 3;
	sse->line_seen = true;
	if (line.len == 0) {
		give_event(sse);
	} else if (line.data[0] == ':') {
		/* A comment: keeps the connection awake, says nothing. */
	} else if (is_field(line, "data", &value)) {
		if (sse->has_data)
			buffer_add_char(&sse->data, '\n');
		buffer_add_bytes(&sse->data, value);
		sse->has_data = true;
	} else if (is_field(line, "event", &value)) {
		buffer_clear(&sse->name);
		buffer_add_bytes(&sse->name, value);
	}
	/* id and retry belong to reconnecting, which an inference never does. */
	sse->overflow |= sse->data.overflow || sse->name.overflow;
	buffer_clear(&sse->line);
}

bool sse_feed(struct sse *sse, struct bytes piece)
{
	const uint8_t *at = piece.data, *end = piece.len > 0 ? at + piece.len : at;

	while (at < end && !sse->stopped && !sse->overflow) {
		const uint8_t *start = at;

		if (sse->after_return && *at == '\n') {
			sse->after_return = false;
			at++;
			continue;
		}
		sse->after_return = false;
		while (at < end && *at != '\n' && *at != '\r')
			at++;
		buffer_add(&sse->line, start, (size_t)(at - start));
		if (sse->line.overflow) {
			sse->overflow = true;
			break;
		}
		if (at < end) {
			sse->after_return = *at == '\r';
			at++;
			take_line(sse);
		}
	}
	return !sse->stopped && !sse->overflow;
}

bool sse_finish(struct sse *sse)
{
	struct bytes value;

	if (sse->stopped || sse->overflow)
		return false;
	if (is_field(buffer_bytes(&sse->line), "data", &value) && bytes_equal_text(value, "[DONE]")) {
		give_event(sse);
		take_line(sse);
	}
	buffer_clear(&sse->line);
	if (!sse->stopped)
		give_event(sse);
	return !sse->stopped;
}
