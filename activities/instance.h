/* Which process answers (runtimes.md 10, G: "instance id"): the same configuration in another process is what a gate of reproducibility does not
 * vouch for. A process that the daemon launched is known to it; one that listens on this machine is found by its socket; a runtime may name what
 * it has loaded itself. Where nothing can tell, nothing is said, and why. Source: proc(5). New here? Read instance_measure(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "workflow/base/json.h"

enum {
	INSTANCE_ID_LEN_MAX = 200,
	INSTANCE_NAME_LEN_MAX = 100, /* bytes of the runtime's own name in it; a longer one is cut */
	INSTANCE_SOCKETS_MAX = 8, /* that listen at one port */
	INSTANCE_TABLE_MAX = 1 << 20, /* bytes of the kernel's table of sockets: those that listen stand first */
	INSTANCE_PROCESSES_MAX = 50 * 1000, /* that are looked at for who owns a socket */
	INSTANCE_FILES_MAX = 200 * 1000, /* … and open files of all of them */
	PROCESS_TICKS_LEN_MAX = 31,
};

/* A process that listens, or its socket alone where its owner may not be seen. */
struct listener {
	uint64_t sockets[INSTANCE_SOCKETS_MAX]; /* inodes, ascending */
	size_t socket_count;
	pid_t pid; /* 0: not known */
	char ticks[PROCESS_TICKS_LEN_MAX + 1]; /* of its start, since boot */
	const char *why_not; /* a constant; NULL: something is known */
};

struct instance_limits {
	size_t processes, files;
};

struct runtime_instance {
	char id[INSTANCE_ID_LEN_MAX + 1]; /* "": not known */
	const char *basis; /* measured, launched, reported, unknown */
	const char *source; /* from where, or why it is not known; a constant, as basis is */
	int64_t started_ms; /* wall time of the process's start; 0: not known */
};

/* When did it start, in ticks since boot? False: there is no such process, or it has ended. Any thread. */
bool process_read_ticks(pid_t pid, char ticks[PROCESS_TICKS_LEN_MAX + 1]);
/* The wall time of that, given the one of now. Any thread. */
int64_t process_started_ms(const char *ticks, int64_t now_ms);

/* Who listens at the port? host: a name or address of this machine. *listener holds what an earlier look found, or zeros, and what this one did.
 * Looks through all processes when it is another: for the uv pool. */
void instance_measure(const char *host, unsigned port, struct listener *listener);
void instance_measure_within(const char *host, unsigned port, const struct instance_limits *limits, struct listener *listener);

void instance_from_listener(struct runtime_instance *instance, const struct listener *listener, int64_t now_ms);
void instance_from_process(struct runtime_instance *instance, pid_t pid, const char *ticks, int64_t started_ms);
void instance_is_unknown(struct runtime_instance *instance, const char *why);
/* The runtime's own name of what it has loaded (NULL: none), and when it was seen to load it (0: it was not): a model may be loaded anew in the same process. */
void instance_add_model(struct runtime_instance *instance, const char *name, int64_t loaded_ms);

/* {"id"?, "basis", "source", "startedOn"?} */
struct json *instance_json(struct arena *arena, const struct runtime_instance *instance);
