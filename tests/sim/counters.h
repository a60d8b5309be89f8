/* What the simulator has seen, for the control port: requests and their ends, in total and by section and
 * idempotency key.
 *
 * Each chat request ends in exactly one way, so that requests = completed + cancelled + faulted + rejected + in_flight.
 * Threads: loop. */
#pragma once

#include "tests/sim/script.h"
#include "workflow/base/bytes.h"

enum { TALLY_ENTRIES_MAX = 100 * 1000 }; /* per tally; further keys are not counted, the state then says "full" */

struct tally_entry {
	char *key;
	uint64_t hash;
	uint64_t requests, completed;
};

/* Counts by key, in order of first appearance. Entries keep their address until tally_close(). */
struct tally {
	struct tally_entry **entries;
	uint32_t *slots; /* hash table of index + 1 */
	size_t count, cap, slot_count, max;
	bool full; /* a key was left out */
};

void tally_init(struct tally *tally, size_t max);
void tally_close(struct tally *tally);
struct tally_entry *tally_get(struct tally *tally, const char *key); /* NULL: full */

enum outcome {
	OUTCOME_COMPLETED, /* a 200 answer went out to its end */
	OUTCOME_CANCELLED, /* the client went away before */
	OUTCOME_FAULTED,   /* a scripted fault ended it, or made it an error */
	OUTCOME_REJECTED,  /* we refused it: malformed, too large, another model */
	OUTCOME_COUNT
};

struct counters {
	uint64_t requests; /* also the ordinal of the last one */
	uint64_t outcomes[OUTCOME_COUNT];
	uint64_t faults[FAULT_KIND_COUNT]; /* applied, whatever the outcome */
	uint64_t in_flight, in_flight_max;
	uint64_t body_bytes; /* of answers that have ended, however: as many as were handed to the kernel or stood ready for it */
	uint64_t epoch; /* grows with each reset: what started before is not counted after */
	struct tally sections, keys;
	struct buffer last_request; /* the body; empty: none yet */
};

void counters_init(struct counters *counters, size_t tally_max);
void counters_close(struct counters *counters);
void counters_reset(struct counters *counters);
void counters_print(const struct counters *counters, uint64_t connections, uint64_t connections_refused, struct buffer *out);
const char *outcome_name(enum outcome outcome);
