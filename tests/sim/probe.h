/* Fake probes: what nvidia-smi, typeperf and powershell.exe print of a GPU's memory, so that a watchdog can be tested on any machine.
 * Each is a program of its own by name (a link to reprise-sim), or `reprise-sim probe NAME …`. README.md has the file that says what
 * they tell. Not on the loop: they print and end. */
#pragma once

#include <stdbool.h>

enum {
	PROBE_BYTES_MAX = 1024 * 1024, /* of the settings */
	PROBE_STEPS_MAX = 10 * 1000,   /* of a list in them */
	PROBE_SAMPLES_MAX = 1000,      /* of one typeperf */
	PROBE_FIELDS_MAX = 64,         /* of one query of nvidia-smi */
	PROBE_SLOW_MAX_MS = 10 * 60 * 1000,
};

/* By the name of the program; the path before it does not count. */
bool probe_is_name(const char *program);
/* The status to end with. arguments[0] is the name. */
int probe_run(int count, char **arguments);
