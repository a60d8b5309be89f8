/* What the operator wrote of a runtime that the daemon is to start (`launch:`). Borrowed texts live as long as the daemon. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workflow/base/json.h"

enum {
	LAUNCH_WATCHES_MAX = 16, /* probes of one runtime's watchdog */
	LAUNCH_GRACE_MS_MAX = 10 * 60 * 1000,
	LAUNCH_WITHIN_MS_MAX = 24 * 60 * 60 * 1000,
	LAUNCH_ATTEMPTS_MAX = 1000,
	LAUNCH_OPTIONS_MAX = 4, /* spellings of one option */
	LAUNCH_MARK_LEN = 32, /* hexadecimal digits of the launch's digest */
};
#define LAUNCH_MARK "{launch}" /* in an argument: these digits */

enum watch_kind {
	WATCH_COMMAND, /* prints a number, or lines of CSV whose last fields are added up */
	WATCH_NVIDIA, /* bytes in use on a device, as NVML tells */
	WATCH_AMD_VRAM, /* bytes in use on a card, as the kernel tells */
	WATCH_AMD_GTT, /* … of the host's memory, used by the card: what has spilled */
	WATCH_PROCESS, /* resident bytes of the runtime and all that came of it */
	WATCH_CGROUP, /* bytes of the control group that the runtime is in */
};

struct watch_config {
	const char *name; /* as written; for entries and the log */
	enum watch_kind kind;
	const char **argv; /* WATCH_COMMAND; ends with NULL */
	const char *device; /* WATCH_NVIDIA: UUID or number; AMD: "card0"; NULL: the first one */
	double unit; /* what a command prints is so many bytes; 1: bytes, or whatever it counts */
	double limit; /* bytes, or that */
	bool grow; /* the limit is for what came on top of the baseline, which is taken before the runtime is started */
	unsigned samples; /* so many in a row above the limit trip it */
	int64_t every_ms;
	int64_t within_ms; /* a sample that takes longer has failed */
};

struct launch_config {
	const char **argv; /* ends with NULL; argv[0] is an absolute path, or looked for along PATH of `env` */
	const char **env; /* "NAME=value", all that it gets; ends with NULL */
	const char **inherited; /* names of those in `env` that are the daemon's own variables; ends with NULL */
	const char *folder; /* NULL: "/" */
	const char *ready_path;
	int64_t ready_ms; /* within which it has to answer there with 200 */
	int64_t grace_ms; /* from SIGTERM to SIGKILL */
	unsigned restart_attempts; /* starts anew in a row; 0: none */
	int64_t restart_floor_ms, restart_cap_ms; /* before the first of them, doubled each time, up to cap */
	int64_t restart_settled_ms; /* ready for so long: the count begins anew */
	const char *container; /* NULL, or its name: argv[0] is the engine, which is asked to stop it */
	bool keep; /* it goes on when the daemon ends */
	const struct watch_config *watches;
	size_t watch_count;
};

/* Of a secret only that it was given is ever shown or written down (runtimes.md 10): does an option or a variable of this name hold one? */
bool launch_is_secret(const char *name, size_t len);
/* How many requests at once it was told to take, by `argv` or else `env`; 0: it was not. *source: by what, static. */
unsigned launch_parallel(const char *const *argv, const char *const *env, const char **source);
/* Arguments with "(set)" in the place of each secret. */
struct json *launch_argv_json(struct arena *arena, const char *const *argv);

/* The digest of the image that a container's command line pins ("name@sha256:<64 hex>", of the last such word), as hex; NULL: it pins none. argv: a list of texts. */
const char *launch_image_digest(struct arena *arena, const struct json *argv);

/* One thing that a runtime was told when it was started, and where in a configuration record it belongs. */
struct launch_flag {
	const char *place; /* "C.cache_flags" */
	const char *name; /* a member of that field's value; NULL: it is the value */
	const char *options[LAUNCH_OPTIONS_MAX]; /* with a value behind them, or behind "="; of a switch without */
	const char *off; /* turns the switch off, "": nothing does; NULL: this is no switch */
	const char *variable; /* counts where no option is given; NULL: there is none */
};
/* {place: value or {name: value}}: values are texts, of switches true or false; the last one counts. What was not told is left out, and so is what is
 * only known to be set. argv: a list of texts. env: {name: value}, or NULL. */
struct json *launch_read_flags(struct arena *arena, const struct launch_flag *flags, const struct json *argv, const struct json *env);
