/* The configuration record of a runtime (runtimes.md 10): everything that is known of who answers, each field with its value,
 * how we know it (basis) and from where (source). What is not known is written as unknown, never left out. The digest covers
 * the values alone (semantics.md 6). Pure but for host_read(), weights_read() and weights_same(),
 * which belong on the uv pool. */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "activities/adapter.h"
#include "activities/runtime.h"
#include "activities/schema_ladder.h"
#include "workflow/base/list.h"

enum { HOST_TEXT_LEN_MAX = 200, WEIGHTS_CHUNK = 1 << 20 };

/* Group D as the kernel tells it. */
struct host {
	char os[HOST_TEXT_LEN_MAX], kernel[HOST_TEXT_LEN_MAX], cpu[HOST_TEXT_LEN_MAX];
	unsigned threads;
	uint64_t memory_bytes;
	bool wsl;
	bool read;
};
void host_read(struct host *host);

/* The file's digest holds as long as its identity does. */
struct weights_identity {
	off_t size;
	int64_t mtime_ns, ctime_ns;
	ino_t inode;
	dev_t device;
};
struct weights {
	bool known;
	struct weights_identity identity;
	struct digest digest;
};
/* Hash the file unless its identity is the one that `weights` knows. *stop set by another thread gives up (ERR_CANCELLED). */
int weights_read(const char *path, struct weights *weights, const atomic_bool *stop, struct error *error);
/* Without reading: false when the file is not the one that was hashed. A stat; for the uv pool too. */
bool weights_same(const char *path, const struct weights *weights);

struct configuration {
	struct list link; /* the runtime's */
	unsigned holders;
	bool noted; /* durable: facts may name it */
	struct arena arena;
	struct json *record; /* {group: {field: {value, basis, source}}} */
	struct digest digest;
	bool simulated;
	const char *server, *version, *fingerprint; /* NULL: unknown; server "": no such header */
	const char *model; /* the one to ask for; NULL: unknown */
	bool model_reported;
	struct weights weights;
	struct schema_rungs rungs; /* what its runtime took of which schema; learned, no part of the record */
};

struct configuration_input {
	const struct runtime_config *config;
	const struct runtime_adapter *adapter;
	const struct runtime_facts *facts;
	const struct host *host; /* NULL: the runtime is on another machine */
	const struct weights *weights;
	const char *fingerprint; /* NULL: none was said so far */
};

/* One holder. */
struct configuration *configuration_new(const struct configuration_input *input);
/* The same with another fingerprint; one holder. */
struct configuration *configuration_with_fingerprint(const struct configuration *configuration, const char *fingerprint);
struct configuration *configuration_hold(struct configuration *configuration);
void configuration_release(struct configuration *configuration); /* NULL is allowed */
