/* The program that a runtime is started by: opened, hashed, and executed by the very descriptor that was hashed, so that what was measured is
 * what runs. A script is run by its interpreter, which is then the one that is executed by descriptor; the script itself is read by path, by
 * the interpreter: it is hashed, but somebody could replace it in between. Not measured at all: shared libraries, and modules of an interpreter.
 *
 * Reads files: for the uv pool. New here? Read executable_open(). */
#pragma once

#include <stdatomic.h>

#include "workflow/base/arena.h"
#include "workflow/base/digest.h"
#include "workflow/base/error.h"

enum {
	EXECUTABLE_FILES_MAX = 4, /* the program and interpreters of scripts; the kernel's own limit is about that */
	EXECUTABLE_LINE_MAX = 256, /* of "#!…", the kernel's limit */
};

struct executable {
	int fd; /* of the last file: what is executed; -1: none */
	const char **argv; /* as it must be for that file; ends with NULL; in the arena */
	size_t file_count;
	struct {
		const char *path;
		struct digest digest;
	} files[EXECUTABLE_FILES_MAX]; /* [0]: the program */
};

/* `env` is searched for PATH, of which a name without a slash is looked for. *stop set by another thread: ERR_CANCELLED. Texts are copied into the
 * arena. */
int executable_open(struct arena *arena, const char *const *argv, const char *const *env, struct executable *executable, const atomic_bool *stop,
		    struct error *error);
void executable_close(struct executable *executable);
