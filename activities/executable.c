/* See executable.h. */
#include "activities/executable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "workflow/base/check.h"

enum { CHUNK = 256 << 10 };

static const char *find_variable(const char *const *env, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; env[i] != NULL; i++)
		if (strncmp(env[i], name, len) == 0 && env[i][len] == '=')
			return env[i] + len + 1;
	return NULL;
}

/* Along PATH, as execvp() does. */
static const char *find_program(struct arena *arena, const char *name, const char *const *env, struct error *error)
{
	const char *folders = find_variable(env, "PATH");

	if (strchr(name, '/') != NULL)
		return arena_text(arena, name);
	while (folders != NULL && *folders != '\0') {
		size_t len = strcspn(folders, ":");
		const char *path = arena_printf(arena, "%.*s/%s", (int)len, folders, name);

		if (len > 0 && path[0] == '/' && access(path, X_OK) == 0)
			return path;
		folders += len + (folders[len] == ':');
	}
	error_set(error, ERR_NOT_FOUND, find_variable(env, "PATH") == NULL ? "program %s: launch.env has no PATH to look for it; give its whole path, or launch.inherit: [PATH]" :
									     "program %s is in no folder of PATH as launch.env has it", name);
	return NULL;
}

static int open_file(const char *path, struct error *error)
{
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &status) != 0) {
		error_set(error, ERR_NOT_FOUND, "program %s: %s", path, strerror(errno));
	} else if (!S_ISREG(status.st_mode)) {
		error_set(error, ERR_INVALID, "program %s: not a regular file", path);
	} else if (faccessat(fd, "", X_OK, AT_EMPTY_PATH) != 0 && access(path, X_OK) != 0) {
		error_set(error, ERR_DENIED, "program %s: may not be executed", path);
	} else {
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

static int hash_file(int fd, const char *path, struct digest *digest, const atomic_bool *stop, struct error *error)
{
	uint8_t *chunk = memory_alloc(CHUNK);
	struct digest_stream stream;
	ssize_t got;
	int code = 0;

	digest_stream_init(&stream);
	while (code == 0 && (got = read(fd, chunk, CHUNK)) != 0) {
		if (got > 0)
			digest_stream_add(&stream, (struct bytes){chunk, (size_t)got});
		else if (errno != EINTR)
			code = error_set(error, ERR_IO, "program %s: %s", path, strerror(errno));
		if (atomic_load(stop))
			code = error_set(error, ERR_CANCELLED, "program %s: stopped", path);
	}
	*digest = digest_stream_finish(&stream);
	free(chunk);
	return code;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* "#! /path/to/interpreter one argument". False: it is no script. */
static bool read_script_line(struct arena *arena, int fd, const char **interpreter, const char **argument)
{
	char line[EXECUTABLE_LINE_MAX + 1], *at, *end;
	ssize_t len = pread(fd, line, EXECUTABLE_LINE_MAX, 0);

	if (len < 3 || line[0] != '#' || line[1] != '!')
		return false;
	line[len] = '\0';
	line[strcspn(line, "\n")] = '\0';
	for (at = line + 2; is_blank(*at); at++)
		;
	for (end = at; *end != '\0' && !is_blank(*end); end++)
		;
	*interpreter = arena_text_len(arena, at, (size_t)(end - at));
	for (at = end; is_blank(*at); at++)
		;
	for (end = at + strlen(at); end > at && (is_blank(end[-1]) || end[-1] == '\r'); end--)
		;
	*argument = end > at ? arena_text_len(arena, at, (size_t)(end - at)) : NULL;
	return (*interpreter)[0] != '\0';
}

/* "#!/usr/bin/env python3": what env would find is looked for here, so that it can be measured. Options of env are left to env. */
static bool is_env(const char *interpreter, const char *argument)
{
	const char *slash = strrchr(interpreter, '/');

	return slash != NULL && strcmp(slash, "/env") == 0 && argument != NULL && strpbrk(argument, " \t=-/") != argument &&
	       strpbrk(argument, " \t=") == NULL;
}

static size_t count_words(const char *const *words)
{
	size_t count = 0;

	while (words[count] != NULL)
		count++;
	return count;
}

static const char **copy_words(struct arena *arena, const char *const *words)
{
	size_t count = count_words(words);
	const char **copy = arena_zero(arena, (count + 1) * sizeof(*copy));

	for (size_t i = 0; i < count; i++)
		copy[i] = arena_text(arena, words[i]);
	return copy;
}

/* [interpreter, argument?, path, the rest of argv]. */
static const char **make_argv(struct arena *arena, const char *interpreter, const char *argument, const char *path, const char *const *argv)
{
	size_t count = count_words(argv), at = 0;
	const char **made = arena_zero(arena, (count + 3) * sizeof(*made));

	made[at++] = interpreter;
	if (argument != NULL)
		made[at++] = argument;
	made[at++] = path;
	for (size_t i = 1; i < count; i++)
		made[at++] = argv[i];
	return made;
}

int executable_open(struct arena *arena, const char *const *argv, const char *const *env, struct executable *executable, const atomic_bool *stop,
		    struct error *error)
{
	const char *path, *interpreter, *argument;

	*executable = (struct executable){.fd = -1};
	*error = (struct error){0};
	path = find_program(arena, argv[0], env, error);
	if (path == NULL)
		return (int)error->code;
	executable->argv = copy_words(arena, argv);
	for (;;) {
		if (executable->file_count == EXECUTABLE_FILES_MAX) {
			executable_close(executable);
			return error_set(error, ERR_TOO_LARGE, "program %s: a script of a script of a script; at most %d files (EXECUTABLE_FILES_MAX)", argv[0],
					 EXECUTABLE_FILES_MAX);
		}
		executable_close(executable);
		executable->fd = open_file(path, error);
		if (executable->fd < 0)
			return (int)error->code;
		executable->files[executable->file_count].path = path;
		if (hash_file(executable->fd, path, &executable->files[executable->file_count].digest, stop, error) != 0) {
			executable_close(executable);
			return (int)error->code;
		}
		executable->file_count++;
		if (!read_script_line(arena, executable->fd, &interpreter, &argument))
			return 0;
		if (is_env(interpreter, argument)) {
			interpreter = find_program(arena, argument, env, error);
			argument = NULL;
			if (interpreter == NULL) {
				executable_close(executable);
				return error_wrap(error, "program %s", path);
			}
		}
		executable->argv = make_argv(arena, interpreter, argument, path, executable->argv);
		path = interpreter;
	}
}

void executable_close(struct executable *executable)
{
	if (executable->fd >= 0)
		close(executable->fd);
	executable->fd = -1;
}
