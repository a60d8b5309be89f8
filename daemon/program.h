/* Programs of ours that the daemon starts. Pure look-up; any thread. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* Beside reprised (installed), at `built` from there (where the build puts it), in PATH. False: nowhere. */
bool program_find(const char *name, const char *built, char path[PATH_MAX]);
