/* The configuration record of a runtime (runtimes.md 10): everything that is known of who answers, each field with its value,
 * how we know it (basis) and from where (source). What is not known is written as unknown, never left out. The digest covers
 * the values of groups A to E alone (semantics.md 6). Pure but for host_read(), which belongs on the uv pool. */
#pragma once

#include "activities/adapter.h"
#include "activities/memory_probe.h"
#include "activities/runtime.h"
#include "activities/schema_ladder.h"
#include "activities/weights.h"
#include "workflow/base/list.h"

enum { HOST_TEXT_LEN_MAX = 200 };

/* Group D as the kernel tells it. */
struct host {
	char os[HOST_TEXT_LEN_MAX], kernel[HOST_TEXT_LEN_MAX], cpu[HOST_TEXT_LEN_MAX];
	unsigned threads;
	uint64_t memory_bytes;
	bool wsl;
	bool read;
};
void host_read(struct host *host);

struct configuration {
	struct list link; /* the runtime's */
	unsigned holders;
	bool noted; /* durable: facts may name it */
	struct arena arena;
	/* {group: {field: {value, basis, source, and what was "declared" or "reported" where the value is another}}}; group G, what was
	 * observed beside the configuration, is not covered by the digest. */
	struct json *record;
	struct digest digest;
	bool simulated;
	bool is_remote; /* the model is computed on somebody else's machine: nothing of it is measured */
	const char *server, *version, *fingerprint; /* NULL: unknown; server "": no such header */
	const char *launch_fingerprint; /* that it was launched with: every answer says it. NULL: it was not */
	const char *weight_version; /* that it tells; an answer may say it too. NULL: it does not */
	const char *model; /* the one to ask for; NULL: unknown */
	bool model_reported;
	const struct json *card; /* of the model, as it was listed; NULL: it was not */
	bool cache_off; /* C.cache_flags says that no prefixes of prompts are kept */
	double context_length; /* in force, or else asked for; 0: unknown */
	struct weights weights;
	struct schema_rungs rungs; /* what its runtime took of which schema; learned, no part of the record */
};

struct configuration_input {
	const struct runtime_config *config;
	const struct runtime_adapter *adapter;
	const struct runtime_facts *facts;
	const struct host *host; /* NULL: the runtime is on another machine */
	const struct gpus *gpus; /* of this one; NULL: nobody looked */
	const struct weights *weights;
	const char *fingerprint; /* NULL: none was said so far */
	const struct json *launched; /* {group: {field: {value, basis, source}}}: what the daemon knows since it started the runtime; NULL: it did not */
	const struct json *ignored; /* our names of the sampling fields that the runtime takes no notice of; NULL: nobody looked */
};

/* One holder. */
struct configuration *configuration_new(const struct configuration_input *input);
/* The same with another fingerprint; one holder. */
struct configuration *configuration_with_fingerprint(const struct configuration *configuration, const char *fingerprint);
struct configuration *configuration_hold(struct configuration *configuration);
void configuration_release(struct configuration *configuration); /* NULL is allowed */

/* [{"field": "B.arch", "old", "new", "basis": {"old", "new"}}] of two records, without group G. */
struct json *configuration_differences(struct arena *arena, const struct json *before, const struct json *after);
/* Is anything that was known another now, or not known any more? That something is known now which was not, or was only declared, is no contradiction. Adds
 * "B.arch "a" -> "b", …" to words. */
bool configuration_contradicts(const struct json *differences, struct buffer *words);
