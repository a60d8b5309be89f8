/* How the simulator behaves as a process that somebody starts, follows and ends: how long it takes until it is ready, what it logs,
 * why it refuses to start, how it ends. The script's "process" says it; README.md has the members. Loop thread. */
#pragma once

#include <sys/types.h>
#include <uv.h>

#include "workflow/base/error.h"
#include "workflow/base/json.h"

struct sim;
struct script;
struct refusal_row; /* refusals.h */

enum {
	PROCESS_LOG_LINES_MAX = 10 * 1000,
	PROCESS_NOISE_MAX = 10 * 1000,
	PROCESS_CHILD_MAX_MS = 10 * 60 * 1000,
	PROCESS_MEMORY_STEPS_MAX = 10 * 1000,
};

struct process {
	struct script *script; /* held: the texts are its own */
	int start_ms;
	bool refuses_while_starting; /* connections; else it answers 503 */
	const struct json *log;      /* further lines, or NULL */
	const struct refusal_row *refusal;
	int noise;                   /* lines between the cause of a refusal and its last line */
	int ignore_term_ms, child_ms; /* child_ms -1: no child */
	const char *memory_path;     /* NULL: none */
	const struct json *used_mib, *shared_bytes; /* numbers by requests so far, the last one again and again */

	pid_t child; /* 0: none */
	uv_timer_t start_timer, end_timer;
	bool told_to_end;
};

/* What the script says; it is held from then on. */
int process_read(struct sim *sim, struct error *error);
/* Before the ports are opened: the child, the first lines of the log. Returns 0, or the status to end with: it refused to start. */
int process_begin(struct sim *sim);
/* Ready at once, or when the time is over, at the start and after each reload. */
int process_open(struct sim *sim, struct error *error);
/* A signal asks it to end: true, or it takes its time and ends later by itself. */
bool process_may_end(struct sim *sim);
void process_close(struct sim *sim);

/* The memory file, for the fake probes: what is in use after so many requests. */
void process_tell_memory(struct sim *sim);
void sleep_ms(uint64_t ms); /* nothing else happens meanwhile */
/* End at once, as one that crashes: no cleaning up, connections are cut by the system. */
_Noreturn void process_die(struct sim *sim, int status);
