/* Replay: drive a recorded run again from its entries, with no model called, and see whether the interpreter decides the same,
 * entry by entry (interface.md: exit 20 on the first difference). Pure.
 *
 * The triggers are read back from the journal: what was submitted, how each attempt ended (its record and the values that came
 * with it), when a deadline passed, a restart, a cancel. What was evaluated by jq is never evaluated again: its recorded results stand in
 * (semantics.md 1), and what is put together of them is compared. Plain paths and comparisons are decided anew. */
#pragma once

#include "workflow/decide.h"

struct replay_result {
	bool equal;
	uint64_t entries; /* compared */
	/* The first difference. */
	uint64_t seq;
	const char *expected, *got; /* canonical JSON of {kind, data}, in the arena; NULL: nothing */
	const char *reference; /* of the task, or NULL */
	const char *why;
};

/* entries: all of the run with all values. ERR_CORRUPT when they do not even begin like a run. */
int replay_run(struct arena *arena, const struct entry *entries, size_t count, const struct definition *definition,
	       const struct decide_context *context, struct replay_result *result, struct error *error);

/* A run of any length, which is read as it is decided. */
struct replay_source {
	/* Entries of the run behind this one, at most `limit`, fewer only at its end, with their small values. */
	int (*fetch)(void *context, struct arena *arena, uint64_t after_seq, size_t limit, struct entry **entries, size_t *count, struct error *error);
	/* A value by place; content_id 0: by its digest among all of the run, for one that was let go and named again within a decision. False:
	 * it is not there any more. */
	bool (*load)(void *context, struct arena *arena, uint64_t content_id, const struct digest *digest, struct bytes *bytes);
	void *context;
};
struct replay;
/* The result's texts come to lie in the arena, which is to outlive the replay, as are definition and context. */
struct replay *replay_begin(struct arena *arena, const struct definition *definition, const struct decide_context *context, const struct replay_source *source,
			    struct replay_result *result);
/* One decision. *done: that was the last one, or a difference is found. */
int replay_step(struct replay *replay, bool *done, struct error *error);
void replay_end(struct replay *replay);
