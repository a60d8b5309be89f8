/* What the operator wrote: one YAML file, a few flags, a few environment variables; checked whole, and every mistake told
 * with its line and column. Anything this release does not know or cannot do yet is an error, never ignored.
 *
 * Thread: before the loop runs. New here? Read config_load(), then read_top() in config.c. */
#pragma once

#include "activities/runtime.h"
#include "activities/secrets.h"
#include "workflow/base/budget.h"
#include "workflow/language/definition.h"

enum {
	CONFIG_FILE_MAX = DEFINITION_SOURCE_MAX, /* bytes; the YAML reader's own limit */
	CONFIG_SECRET_MAX = 64 << 10, /* bytes of one secret */
	CONFIG_RUNTIMES_MAX = 256,
	CONFIG_LISTEN_MAX = 8,
	CONFIG_SECRETS_MAX = 256,
	CONFIG_SINKS_MAX = 32,
	CONFIG_SINK_WORDS_MAX = 64, /* types, and headers, of one sink */
	CONFIG_SINK_SECRETS_MAX = 16, /* of its headers */
	CONFIG_PATH_MAX = 4096,
	CONFIG_RESOURCE_FOLDERS_MAX = 64,
	CONFIG_WAL_MIN = 32 << 20, /* bytes; what limits.wal must be at least */
	CONFIG_BODY_MAX = 64 << 20, /* bytes that limits.body and limits.document may allow */
};

/* Every limit that can be set, with its default; `limits:` in the file. Limits that cannot be set are named in the headers. */
struct config_limits {
	unsigned connections; /* HTTP connections at once */
	unsigned waiters; /* requests that wait for a run to end (?wait) */
	unsigned streams; /* open event streams */
	uint64_t body; /* bytes of a request's body: runs, definitions, commands */
	uint64_t document; /* bytes of a document */
	uint64_t bodies; /* bytes of all bodies in memory together */
	int64_t wake_every_ms; /* how often a silent connection is looked at */
	int64_t idle_ms; /* a connection on which nothing happens is closed */
	int64_t request_ms; /* a request must have come in by then, see HTTP_BODY_BYTES_PER_MS for long ones */
	uint64_t reserve; /* bytes kept free on the data folder's disk for what is under way when it is full; these three: see store_disk() */
	uint64_t low_space; /* with fewer free bytes than this new work is refused */
	uint64_t wal; /* and with more than this in the write-ahead log */
	struct budget_amount run; /* what a run may use of models: that of one that comes without, and the most that one can have */
};

/* Where CloudEvents go. */
struct sink_config {
	const char *name, *url;
	const struct json *types; /* [text]; one that ends in '*' stands for all that begin so. NULL: every event */
	const struct json *headers; /* {name: text or {secret: NAME}} or NULL */
	const char *api_key; /* name of the secret that is sent as a bearer token, or NULL */
};

struct config {
	struct arena arena;
	const char *file; /* NULL: none was found */
	const char *data_dir;
	const char *listen[CONFIG_LISTEN_MAX]; /* paths of Unix sockets */
	size_t listen_count;
	struct runtime_config *runtimes;
	bool *runtime_starts_simulator; /* runtimes[i] is a simulator that the daemon starts */
	size_t runtime_count;
	const char **http_allow;
	size_t http_allow_count;
	const char **resource_folders; /* absolute: what `file:` resources may lie beneath */
	size_t resource_folder_count;
	const char *fact_key_file, *log_key_file; /* NULL: in the data folder */
	unsigned checkpoint_entries;
	int64_t checkpoint_every_ms;
	struct secret_config *secrets;
	size_t secret_count;
	struct sink_config *sinks;
	size_t sink_count;
	int64_t events_window_ms; /* an event that comes so long before its listener still counts; 0: none does */
	int64_t events_keep_ms; /* after that it is neither a duplicate nor given to a new listener */
	int64_t retention_runs_ms, retention_entries_ms; /* semantics.md 9; 0: for ever */
	bool retention_drop_facts; /* they go with their runs */
	struct config_limits limits;
};

/* From the command line; NULL or 0: not given. */
struct config_options {
	const char *file, *data_dir;
	const char *listen[CONFIG_LISTEN_MAX];
	size_t listen_count;
};

/* Flag, then environment, then file, then default. The result is closed by the caller in any case. Problems: all of the file, each
 * with line and column; `error` is for what is outside of it (file not there, a listen address on the command line). */
int config_load(struct config *config, const struct config_options *options, struct problems *problems, struct error *error);
/* The same from a text; reads no file but secrets. For tests and config_load(). */
int config_parse(struct config *config, struct bytes text, struct problems *problems);
void config_init(struct config *config); /* the defaults */
void config_close(struct config *config); /* wipes the secrets */

/* What is in force, for GET /v1/config; secrets are named, never shown. */
struct json *config_json(const struct config *config, struct arena *arena);

/* "512", "64KiB", "1.5GiB": bytes. False when it is none. */
bool size_parse(const char *text, uint64_t *bytes);
