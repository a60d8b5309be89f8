/* How much memory is in use: of a GPU, a process with all that came of it, a control group; and what a command has printed. And which GPUs there are.
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
	GPUS_MAX = 32, GPU_TEXT_MAX = 96 /* NVML's own limit */,
};

struct gpu {
	char uuid[GPU_TEXT_MAX], name[GPU_TEXT_MAX], compute_capability[16]; /* "8.9"; "": not told */
};

/* NVIDIA's GPUs of this machine; with more than GPUS_MAX the first ones, and how many there are. */
struct gpus {
	bool known;
	unsigned count;
	struct gpu list[GPUS_MAX];
	char driver[GPU_TEXT_MAX], cuda[16]; /* "570.124.06", and the CUDA that it supports, "12.8" */
};

/* Asks NVML once; what it told then is told again. An error leaves `gpus` unknown: no library, no driver, or one that hangs. */
int memory_probe_gpus(int64_t within_ms, struct gpus *gpus, struct error *error);
/* Of any kind but WATCH_COMMAND. pid: of the runtime; 0: there is none yet, which holds no memory. */
int memory_probe_read(const struct watch_config *config, pid_t pid, double *value, struct error *error);
/* A number, perhaps with a unit ("1.5 GiB"), or lines of CSV: of a line with several fields the first one is a name or time, the rest is added
 * up, over all lines. Lines without a number (headings, greetings) do not count, "[N/A]" is an error, and so is a text without any number. */
int memory_probe_parse(struct bytes text, double unit, double *value, struct error *error);
