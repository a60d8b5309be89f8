/* See command.h: errors, exchanges with the daemon, files and values. Start at command_fail(). */
#include "cli/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "workflow/base/budget.h"
#include "workflow/base/check.h"
#include "workflow/base/id.h"
#include "workflow/base/time.h"

#define PROBLEM_TYPE_PREFIX "https://reprise.example/problems/"

/* --- errors ------------------------------------------------------------------------------------------------------- */

static const char *status_name(enum exit_status status)
{
	switch (status) {
	case STATUS_OK: return "ok";
	case STATUS_ERROR: return "error";
	case STATUS_USAGE: return "usage";
	case STATUS_DENIED: return "not-authorised";
	case STATUS_NOT_FOUND: return "not-found";
	case STATUS_CONFLICT: return "conflict";
	case STATUS_UNREACHABLE: return "unreachable";
	case STATUS_WAIT_TIMEOUT: return "wait-timed-out";
	case STATUS_FAULTED: return "faulted";
	case STATUS_CANCELLED: return "cancelled";
	case STATUS_KILLED: return "killed";
	case STATUS_TIMED_OUT: return "timed-out";
	case STATUS_REPLAY_DIFFERS: return "replay-differs";
	case STATUS_SIGNATURE_INVALID: return "signature-invalid";
	case STATUS_JOURNAL_DAMAGED: return "journal-damaged";
	case STATUS_NOT_REPRODUCIBLE: return "not-reproducible";
	case STATUS_MALFORMED: return "malformed-evidence";
	case STATUS_UNVERIFIABLE: return "unverifiable";
	case STATUS_INTERRUPTED: return "interrupted";
	}
	return "error";
}

/* Text that may hold bytes of the command line, as JSON can carry it. */
static struct json *lenient_text(struct arena *arena, const char *text)
{
	struct buffer clean;
	if (utf8_valid(bytes_text(text), NULL))
		return json_text(arena, text);
	buffer_init(&clean, 1 << 20);
	text_escape(&clean, bytes_text(text), true);
	struct json *json = json_text(arena, buffer_text(&clean));
	buffer_close(&clean);
	return json;
}

static bool format_is_json(const struct command *command)
{
	return command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL;
}

int command_fail(struct command *command, enum exit_status status, const char *hint, const char *format, ...)
{
	va_list list;
	char *text = NULL;
	va_start(list, format);
	CHECK(vasprintf(&text, format, list) >= 0);
	va_end(list);
	fflush(stdout);
	output_note(&command->output, "reprise: %s", text);
	if (hint != NULL)
		output_note(&command->output, "  %s", hint);
	if (format_is_json(command)) {
		struct arena *arena = &command->arena;
		struct json *problem = json_object(arena);
		json_set(arena, problem, "type", json_printf(arena, PROBLEM_TYPE_PREFIX "%s", status_name(status)));
		json_set_text(arena, problem, "title", status_name(status));
		json_set(arena, problem, "detail", lenient_text(arena, text));
		if (hint != NULL)
			json_set(arena, problem, "hint", lenient_text(arena, hint));
		json_set_number(arena, problem, "exitStatus", status);
		output_json(&command->output, problem);
	}
	free(text);
	return status;
}

/* A daemon's configuration says what it runs with and its data folder who it is, so a line to copy names both. */
static const char *start_hint(struct command *command)
{
	struct arena *arena = &command->arena;
	static const char name[] = "/reprise.sock";
	const char *path = command->client.socket_path;
	if (path == NULL)
		return "is a daemon listening there? reprised --data DIR --config FILE --listen tcp:127.0.0.1:PORT starts one";
	size_t len = strlen(path), name_len = sizeof name - 1;
	if (len > name_len && strcmp(path + len - name_len, name) == 0)
		return arena_printf(arena, "start one with: reprised --data %.*s --config FILE; or name another socket with --socket", (int)(len - name_len), path);
	return arena_printf(arena, "start one with: reprised --data DIR --config FILE --listen unix:%s; or name another socket with --socket", path);
}

static int fail_unreachable(struct command *command, const char *before, const char *colon)
{
	const char *path = command->client.socket_path;
	struct stat found;
	if (path != NULL && stat(path, &found) == 0 && !S_ISSOCK(found.st_mode))
		return command_fail(command, STATUS_UNREACHABLE, S_ISDIR(found.st_mode) ? "--data DIR names a data folder, --socket the socket in it" : "name the daemon's socket with --socket",
				    "%s%s%s is no socket but a %s", before, colon, path, S_ISDIR(found.st_mode) ? "folder" : S_ISREG(found.st_mode) ? "regular file" : "special file");
	return command_fail(command, STATUS_UNREACHABLE, start_hint(command), "%s%sno daemon answers at %s", before, colon, client_place(&command->client));
}

int command_fail_error(struct command *command, const struct error *error, const char *context)
{
	const char *before = context == NULL ? "" : context, *colon = context == NULL ? "" : ": ";
	switch (error->code) {
	case ERR_UNREACHABLE:
		return fail_unreachable(command, before, colon);
	case ERR_DENIED:
		return command_fail(command, STATUS_DENIED, NULL, "%s%s%s", before, colon, error->message);
	case ERR_NOT_FOUND:
	case ERR_GONE:
		return command_fail(command, STATUS_NOT_FOUND, NULL, "%s%s%s", before, colon, error->message);
	case ERR_EXISTS:
		return command_fail(command, STATUS_CONFLICT, NULL, "%s%s%s", before, colon, error->message);
	case ERR_TIMEOUT:
		return command_fail(command, STATUS_WAIT_TIMEOUT, NULL, "%s%s%s", before, colon, error->message);
	default:
		return command_fail(command, STATUS_ERROR, NULL, "%s%s%s", before, colon, error->message);
	}
}

static enum exit_status status_of_http(long status)
{
	switch (status) {
	case 401:
	case 403: return STATUS_DENIED;
	case 404:
	case 410: return STATUS_NOT_FOUND; /* it was there once */
	case 409: return STATUS_CONFLICT;
	default: return STATUS_ERROR;
	}
}

int command_fail_reply(struct command *command, const struct request *request, const struct reply *reply)
{
	struct arena *arena = &command->arena;
	enum exit_status status = status_of_http(reply->status);
	const char *method = request->method == NULL ? "GET" : request->method;
	struct json *problem = json_parse(arena, buffer_bytes(&reply->body), JSON_ROUND_INTEGERS, NULL, NULL);
	if (!json_is(problem, JSON_OBJECT))
		return command_fail(command, status, NULL, "%s %s: the daemon answered %ld without a problem object", method, request->path, reply->status);

	const char *detail = text_line(arena, json_get_text(problem, "detail")), *title = text_line(arena, json_get_text(problem, "title")), *hint = json_get_text(problem, "hint");
	fflush(stdout);
	output_note(&command->output, "reprise: %s", detail != NULL ? detail : title != NULL ? title : "refused without a reason");
	print_problems(command, json_get(problem, "problems"));
	if (hint != NULL)
		output_note(&command->output, "  %s", hint);
	if (reply->retry_after_s >= 0)
		output_note(&command->output, "  try again in %lld s", (long long)reply->retry_after_s);
	if (status == STATUS_DENIED && command->client.url != NULL)
		output_note(&command->output, "  a token is taken from $REPRISE_TOKEN");
	if (format_is_json(command))
		output_json(&command->output, problem);
	return status;
}

/* --- exchanges ---------------------------------------------------------------------------------------------------- */

int client_ready(struct command *command)
{
	struct error error;
	if (command->client_is_open)
		return STATUS_OK;
	if (client_open(&command->client, &command->client_options, &error) != 0)
		return command_fail(command, STATUS_USAGE, NULL, "%s", error.message);
	command->client_is_open = true;
	return STATUS_OK;
}

int command_send(struct command *command, const struct request *request, struct reply *reply)
{
	struct error error;
	memset(reply, 0, sizeof *reply);
	int status = client_ready(command);
	if (status != STATUS_OK)
		return status;
	if (client_send(&command->client, request, reply, &error) != 0) {
		/* Nobody asked to wait here: a time-out is an error like another. */
		if (error.code == ERR_TIMEOUT)
			error.code = ERR_IO;
		return command_fail_error(command, &error, NULL);
	}
	return STATUS_OK;
}

struct json *command_parse_reply(struct command *command, const struct reply *reply, struct error *error)
{
	return json_parse(&command->arena, buffer_bytes(&reply->body), JSON_ROUND_INTEGERS, NULL, error);
}

static int exchange(struct command *command, const struct request *request, struct json **result)
{
	struct reply reply;
	struct error error;
	*result = NULL;
	int status = command_send(command, request, &reply);
	if (status == STATUS_OK && (reply.status < 200 || reply.status > 299))
		status = command_fail_reply(command, request, &reply);
	else if (status == STATUS_OK && reply.body.len > 0 && (*result = command_parse_reply(command, &reply, &error)) == NULL)
		status = command_fail(command, STATUS_ERROR, "is this address a Reprise daemon?", "%s: the answer is not JSON: %s", request->path, error.message);
	reply_close(&reply);
	return status;
}

int command_get(struct command *command, const char *path, struct json **result)
{
	struct request request = {.path = path, .accept = "application/json"};
	return exchange(command, &request, result);
}

int command_post(struct command *command, const char *path, const struct json *body, struct json **result)
{
	struct request request = {.method = "POST", .path = path, .accept = "application/json"};
	if (body != NULL)
		request.body = json_print_arena(body, &command->arena);
	return exchange(command, &request, result);
}

int command_get_bytes(struct command *command, const char *path, struct bytes *result)
{
	struct request request = {.path = path};
	struct reply reply;
	int status = command_send(command, &request, &reply);
	if (status == STATUS_OK && reply.status != 200)
		status = command_fail_reply(command, &request, &reply);
	else if (status == STATUS_OK)
		*result = arena_bytes(&command->arena, buffer_bytes(&reply.body));
	reply_close(&reply);
	return status;
}

char *path_of(struct command *command, const char *prefix, const char *id, const char *suffix)
{
	struct buffer path;
	buffer_init(&path, 1 << 16);
	buffer_add_text(&path, prefix);
	url_add(&path, id);
	buffer_add_text(&path, suffix);
	char *text = arena_text(&command->arena, buffer_text(&path));
	buffer_close(&path);
	return text;
}

/* --- files and values --------------------------------------------------------------------------------------------- */

static int read_descriptor(struct command *command, int fd, const char *name, size_t max, const char *max_name, struct bytes *bytes)
{
	struct buffer content;
	uint8_t block[65536];
	ssize_t got;
	buffer_init(&content, max);
	while ((got = read(fd, block, sizeof block)) > 0 || (got < 0 && errno == EINTR)) {
		if (got > 0)
			buffer_add(&content, block, (size_t)got);
		if (content.overflow)
			break;
	}
	int status = STATUS_OK;
	if (content.overflow)
		status = command_fail(command, STATUS_ERROR, NULL, "%s is larger than the limit of %zu bytes (%s)", name, max, max_name);
	else if (got < 0)
		status = command_fail(command, STATUS_ERROR, NULL, "read %s: %s", name, strerror(errno));
	else
		*bytes = arena_bytes(&command->arena, buffer_bytes(&content));
	buffer_close(&content);
	return status;
}

int command_read_named(struct command *command, const char *what, const char *path, size_t max, const char *max_name, struct bytes *bytes)
{
	bool is_input = strcmp(path, "-") == 0;
	const char *name = is_input ? "standard input" : path;
	if (what[0] != '\0')
		name = arena_printf(&command->arena, "%s %s", what, name);
	if (is_input)
		return read_descriptor(command, STDIN_FILENO, name, max, max_name, bytes);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return command_fail(command, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_ERROR, NULL, "open %s: %s", name, strerror(errno));
	int status = read_descriptor(command, fd, name, max, max_name, bytes);
	close(fd);
	return status;
}

int command_read_file(struct command *command, const char *path, struct bytes *bytes)
{
	return command_read_named(command, "", path, COMMAND_FILE_MAX, "COMMAND_FILE_MAX", bytes);
}

int command_read_value(struct command *command, const char *what, const char *text, struct json **value)
{
	struct bytes source = bytes_text(text);
	const char *name = what;
	struct error error;
	int status;
	bool is_file = text[0] == '@' || strcmp(text, "-") == 0;
	if (is_file) {
		name = text[0] == '@' ? text + 1 : "standard input";
		if ((status = command_read_named(command, what, text[0] == '@' ? text + 1 : "-", COMMAND_FILE_MAX, "COMMAND_FILE_MAX", &source)) != STATUS_OK)
			return status;
	}
	if ((*value = json_parse(&command->arena, source, JSON_STRICT, NULL, &error)) != NULL)
		return STATUS_OK;
	const char *suffix = is_file ? strrchr(name, '.') : NULL;
	if (suffix != NULL && (strcmp(suffix, ".yaml") == 0 || strcmp(suffix, ".yml") == 0)) {
		struct problems problems;
		problems_init(&problems);
		struct json *loaded = text_load(&command->arena, source, TEXT_YAML, NULL, &problems);
		if (loaded != NULL) {
			*value = loaded;
			problems_close(&problems);
			return STATUS_OK;
		}
		status = command_fail(command, STATUS_ERROR, NULL, "%s:%zu:%zu: %s", name, problems.count > 0 ? problems.items[0].line : 0,
				      problems.count > 0 ? problems.items[0].column : 0, problems.count > 0 ? problems.items[0].message : "not YAML");
		problems_close(&problems);
		return status;
	}
	return command_fail(command, is_file ? STATUS_ERROR : STATUS_USAGE, is_file ? NULL : "a text needs quotes of its own: '\"text\"'; @FILE reads a file, - standard input",
			    "%s is not JSON: %s", name, error.message);
}

int command_read_ids(struct command *command, size_t first, const char ***ids, size_t *count)
{
	const char **list = NULL;
	size_t used = 0, cap = 0;
	int status = STATUS_OK;
	for (size_t i = first; i < command->argument_count && status == STATUS_OK; i++) {
		struct bytes text = bytes_text(command->arguments[i]);
		bool is_input = strcmp(command->arguments[i], "-") == 0;
		size_t before = used;
		if (is_input && (status = command_read_file(command, "-", &text)) != STATUS_OK)
			break;
		for (size_t at = 0; at < text.len;) {
			size_t end = at;
			while (end < text.len && strchr(" \t\r\n", text.data[end]) == NULL)
				end++;
			if (end > at) {
				if (used == COMMAND_IDS_MAX) {
					status = command_fail(command, STATUS_ERROR, "split the list", "more ids than the limit of %d (COMMAND_IDS_MAX)", COMMAND_IDS_MAX);
					break;
				}
				if (used == cap) {
					cap = cap == 0 ? 64 : cap * 2;
					list = memory_resize(list, cap * sizeof *list);
				}
				list[used++] = arena_text_len(&command->arena, (const char *)text.data + at, end - at);
			}
			at = end + 1;
		}
		/* A list may be empty; a variable of a script that is would be success without a word. */
		if (!is_input && used == before && status == STATUS_OK)
			status = command_fail(command, STATUS_USAGE, "a list that may be empty goes to standard input: -", "argument %zu is empty, an id is meant", i + 1);
	}
	*ids = arena_alloc(&command->arena, (used + 1) * sizeof **ids);
	if (used > 0)
		memcpy(*ids, list, used * sizeof **ids);
	*count = used;
	free(list);
	if (strncmp(command->verb->arguments, "RUN", 3) == 0)
		for (size_t i = 0; i < used && status == STATUS_OK; i++)
			status = command_check_run_id(command, (*ids)[i]);
	return status;
}

int command_check_run_id(struct command *command, const char *id)
{
	if (id_valid(id))
		return STATUS_OK;
	return command_fail(command, STATUS_USAGE, "reprise list shows the runs", "'%s' is no run id: 1 to %d of A-Z a-z 0-9 . _ -", id, ID_LEN_MAX);
}

int command_check_fact_id(struct command *command, const char *id)
{
	size_t len = strlen(id);
	if (len >= FACT_PREFIX_MIN && len <= DIGEST_HEX_LEN && strspn(id, "0123456789abcdef") == len)
		return STATUS_OK;
	return command_fail(command, STATUS_USAGE, "reprise fact list -o ids shows them whole", "'%s' is no fact's id: %d to %d digits of 0-9 a-f", id, FACT_PREFIX_MIN, DIGEST_HEX_LEN);
}

int command_read_budget(struct command *command, struct json *body)
{
	static const char usage[] = "--budget tokens=N,seconds=N: either or both, whole numbers";
	const char *text = command_option(command, "budget");
	struct json *budget = json_object(&command->arena);
	struct budget_amount limit;
	struct error error;

	if (text == NULL)
		return STATUS_OK;
	for (const char *at = text;; at++) {
		const char *equals = strchr(at, '=');
		char *end;
		if (equals == NULL || equals[1] < '0' || equals[1] > '9')
			return command_fail(command, STATUS_USAGE, usage, "--budget %s: '%s' is not tokens=N or seconds=N", text, at);
		if (json_get_len(budget, at, (size_t)(equals - at)) != NULL)
			return command_fail(command, STATUS_USAGE, usage, "--budget %s: %.*s is there twice", text, (int)(equals - at), at);
		double number = (double)strtoull(equals + 1, &end, 10);
		if (!utf8_valid((struct bytes){(const uint8_t *)at, (size_t)(equals - at)}, NULL) || (*end != '\0' && *end != ','))
			return command_fail(command, STATUS_USAGE, usage, "--budget %s: '%s' is not tokens=N or seconds=N", text, at);
		json_set_len(&command->arena, budget, at, (size_t)(equals - at), json_number(&command->arena, number));
		at = end;
		if (*at == '\0')
			break;
	}
	if (budget_read(budget, "--budget", &limit, &error) != 0)
		return command_fail(command, STATUS_USAGE, usage, "%s", error.message);
	json_set(&command->arena, body, "budget", budget);
	return STATUS_OK;
}

int command_read_pairs(struct command *command, const char *name, struct json **pairs)
{
	*pairs = NULL;
	for (size_t i = 0;; i++) {
		const char *text = command_option_at(command, name, i);
		if (text == NULL)
			return STATUS_OK;
		const char *equals = strchr(text, '=');
		if (equals == NULL || equals == text)
			return command_fail(command, STATUS_USAGE, NULL, "--%s %s: KEY=VALUE is meant", name, text);
		if (!utf8_valid(bytes_text(text), NULL))
			return command_fail(command, STATUS_USAGE, NULL, "--%s %s: not UTF-8", name, text);
		if (*pairs == NULL)
			*pairs = json_object(&command->arena);
		json_set_len(&command->arena, *pairs, text, (size_t)(equals - text), json_text(&command->arena, equals + 1));
	}
}

int command_time(struct command *command, const char *name, const char **rfc3339)
{
	const char *text = command_option(command, name);
	int64_t ms;
	*rfc3339 = NULL;
	if (text == NULL)
		return STATUS_OK;
	if (!time_parse(text, &ms)) {
		if (duration_parse(text, &ms, NULL) != 0)
			return command_fail(command, STATUS_USAGE, "examples: 2026-09-18T09:10:36Z, 24h (before now)", "--%s %s: neither a time nor a duration", name, text);
		ms = clock_wall_ms() - ms;
	}
	char buffer[TIME_TEXT_LEN + 1];
	time_text(ms, buffer);
	*rfc3339 = arena_text(&command->arena, buffer);
	return STATUS_OK;
}

bool command_confirm(struct command *command, const char *format, ...)
{
	if (command_flag(command, "yes") || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return true;
	va_list list;
	char *text = NULL, answer[16];
	va_start(list, format);
	CHECK(vasprintf(&text, format, list) >= 0);
	va_end(list);
	fprintf(stderr, "%s [y/N] ", text);
	free(text);
	return fgets(answer, sizeof answer, stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y');
}

void sleep_ms(int64_t ms)
{
	struct timespec time = {ms / 1000, (ms % 1000) * 1000000};
	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		;
}

/* Only what a signal handler may use: a text made before, write and _exit. */
static const char *volatile interrupt_text;

static void on_interrupt(int signal_number)
{
	const char *text = interrupt_text;
	(void)signal_number;
	if (text != NULL && write(STDERR_FILENO, text, strlen(text)) < 0)
		_exit(STATUS_INTERRUPTED);
	_exit(STATUS_INTERRUPTED);
}

void interrupt_say(const char *text)
{
	interrupt_text = text;
	struct sigaction action = {.sa_handler = on_interrupt};
	sigaction(SIGINT, &action, NULL);
}

char *new_run_id(struct command *command)
{
	uint8_t random[10];
	char id[27];
	CHECK(getrandom(random, sizeof random, 0) == sizeof random);
	id_make(clock_wall_ms(), random, id);
	return arena_text(&command->arena, id);
}

void command_print_list(struct command *command, const struct json *answer, const char *name, const struct table_column *columns, size_t column_count,
			void (*fill)(struct command *command, const struct json *item, const char **cells))
{
	enum { CELLS_MAX = 16 };
	const char *cells[CELLS_MAX];
	const struct json *list = json_get(answer, name);
	struct table table;
	CHECK(column_count <= CELLS_MAX);
	if (command->output.format == FORMAT_JSON) {
		output_json(&command->output, answer);
		return;
	}
	table_init(&table, &command->arena, columns, column_count);
	for (size_t i = 0; json_is(list, JSON_ARRAY) && i < json_count(list); i++) {
		const struct json *item = json_at(list, i);
		if (command->output.format == FORMAT_JSONL) {
			output_json(&command->output, item);
			continue;
		}
		fill(command, item, cells);
		if (command->output.format == FORMAT_IDS)
			output_line(&command->output, "%s", cells[0]);
		table_add(&table, cells);
		for (size_t c = 0; c < column_count; c++)
			if (strcmp(columns[c].title, "STATUS") == 0)
				table_colour(&table, c, status_colour(cells[c]));
	}
	if (command->output.format == FORMAT_TEXT)
		table_print(&table, &command->output);
	table_close(&table);
}
