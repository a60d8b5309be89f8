/* The log on standard error. Any thread: the level and the form are set once at start, a line is one write().
 *
 * With check.c the only file of workflow/ that does output and, for the time of a line, looks at a clock: no decision
 * depends on either. Texts of documents and models may come along in a message, so nothing that a terminal obeys and
 * nothing that ends a line leaves here unescaped. */
#include "workflow/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "workflow/base/check.h"
#include "workflow/base/json.h"
#include "workflow/base/time.h"

enum { LOG_MESSAGE_MAX = 2000, LOG_LINE_MAX = 16000 /* each byte as \u00xx, and what stands before it */ };

static enum log_level log_level_min = LOG_INFO;
static int log_as_json;

static const char *const level_names[] = {[LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};
static const char *const group_names[LOG_GROUP_COUNT] = {
	[LOG_DAEMON] = "daemon", [LOG_ENGINE] = "engine", [LOG_STORE] = "store", [LOG_ACTIVITY] = "activity", [LOG_HTTP] = "http"};

void log_init(enum log_level level, int as_json)
{
	CHECK((size_t)level < COUNT_OF(level_names));
	log_level_min = level;
	log_as_json = as_json < 0 ? !isatty(STDERR_FILENO) : as_json != 0;
}

/* Characters that steer a terminal (C0, DEL, C1) or reorder what is read (bidirectional controls, line separators). */
static bool is_harmful(uint32_t c)
{
	return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
	       (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

/* Copy the message, well-formed and harmless. Bytes that are no UTF-8 become \xNN, harmful characters \uNNNN. */
static void add_message(struct buffer *line, const char *message, size_t len)
{
	size_t at = 0;

	while (at < len) {
		const uint8_t *s = (const uint8_t *)message + at;
		size_t size = s[0] < 0x80 ? 1 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
		uint32_t c = size == 1 ? s[0] : s[0] & (0xFFu >> (size + 1));

		if (size > len - at || !utf8_valid((struct bytes){s, size}, NULL)) {
			buffer_printf(line, "\\x%02x", s[0]);
			at++;
			continue;
		}
		for (size_t i = 1; i < size; i++)
			c = c << 6 | (s[i] & 0x3F);
		if (is_harmful(c))
			buffer_printf(line, "\\u%04x", (unsigned)c);
		else
			buffer_add(line, s, size);
		at += size;
	}
}

void log_line(enum log_level level, enum log_group group, const char *format, ...)
{
	char message[LOG_MESSAGE_MAX + 1], time[TIME_TEXT_LEN + 1];
	struct buffer line, safe;
	struct timespec now;
	va_list args;
	int len;

	CHECK((size_t)level < COUNT_OF(level_names));
	CHECK((size_t)group < COUNT_OF(group_names));
	if (level < log_level_min)
		return;
	va_start(args, format);
	len = vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	CHECK(len >= 0);
	if (len > LOG_MESSAGE_MAX)
		len = LOG_MESSAGE_MAX;
	clock_gettime(CLOCK_REALTIME, &now);
	time_text((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, time);

	buffer_init(&line, LOG_LINE_MAX);
	buffer_init(&safe, LOG_LINE_MAX);
	add_message(&safe, message, (size_t)len);
	if (log_as_json) {
		buffer_printf(&line, "{\"time\":\"%s\",\"level\":\"%s\",\"group\":\"%s\",\"message\":", time, level_names[level],
			      group_names[group]);
		json_print_string(buffer_text(&safe), safe.len, &line);
		buffer_add_text(&line, "}\n");
	} else {
		buffer_printf(&line, "%s %-5s %-8s ", time, level_names[level], group_names[group]);
		buffer_add_bytes(&line, buffer_bytes(&safe));
		buffer_add_char(&line, '\n');
	}
	CHECK(!line.overflow);
	if (write(STDERR_FILENO, line.data, line.len) < 0) {
		/* A log that cannot be written must not stop the work. */
	}
	buffer_close(&safe);
	buffer_close(&line);
}
