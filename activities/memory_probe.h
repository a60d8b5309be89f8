/* How much memory is in use: of a GPU, a process with all that came of it, a control group; and what a command has printed.
 *
 * NVML is looked for when it is asked for (libnvidia-ml.so.1, /usr/lib/wsl/lib): nothing is linked. Under WDDM and in WSL it knows no memory by
 * process, and on machines with one memory for all none by device: then the answer is "not available", an error, never a zero.
 * Shared GPU memory of Windows, where a driver spills into the host's memory, is seen by neither NVML nor nvidia-smi: that takes a command.
 *
 * Reads files and calls drivers, which may hang: for the uv pool; memory_probe_parse() is pure. */
#pragma once

#include <sys/types.h>

#include "activities/launch.h"
#include "workflow/base/bytes.h"
#include "workflow/base/error.h"

enum {
	MEMORY_PROBE_TEXT_MAX = 64 << 10, /* bytes that a command may print */
	MEMORY_PROBE_PROCESSES_MAX = 65536,
};

/* Of any kind but WATCH_COMMAND. pid: of the runtime; 0: there is none yet, which holds no memory. */
int memory_probe_read(const struct watch_config *config, pid_t pid, double *value, struct error *error);
/* A number, perhaps with a unit ("1.5 GiB"), or lines of CSV: of a line with several fields the first one is a name or time, the rest is added
 * up, over all lines. Lines without a number (headings, greetings) do not count, "[N/A]" is an error, and so is a text without any number. */
int memory_probe_parse(struct bytes text, double unit, double *value, struct error *error);
