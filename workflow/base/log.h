/* The log on standard error: one line per change of state, "run=… step=…" first. Text on a terminal, JSON lines elsewhere.
 * Safe from several threads: a line is one write. */
#pragma once

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_group { LOG_DAEMON, LOG_ENGINE, LOG_STORE, LOG_ACTIVITY, LOG_HTTP, LOG_GROUP_COUNT };

/* as_json: 0 text, 1 JSON lines, -1 text when standard error is a terminal. Call once, before other threads run. */
void log_init(enum log_level level, int as_json);
void log_line(enum log_level level, enum log_group group, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define log_debug(group, ...) log_line(LOG_DEBUG, group, __VA_ARGS__)
#define log_info(group, ...) log_line(LOG_INFO, group, __VA_ARGS__)
#define log_warn(group, ...) log_line(LOG_WARN, group, __VA_ARGS__)
#define log_error(group, ...) log_line(LOG_ERROR, group, __VA_ARGS__)
