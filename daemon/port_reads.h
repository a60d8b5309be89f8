/* What the reads of the engine's and the children's ports ask of the journal: each fills in the result of its request, from one snapshot. Apart
 * from ports.c so that the simulation asks the real store the same. Results lie in `arena`, the error is the request's own to be.
 * Thread: the reader's. */
#pragma once

#include "daemon/children.h"
#include "daemon/engine.h"

/* A page of at most so many entries; the first one brings what the run begins with. */
int read_run_page(struct store_reader *reader, struct arena *arena, struct engine_load_run *load, size_t page, struct error *error);
int read_values(struct store_reader *reader, struct arena *arena, struct engine_load_values *load, struct error *error);
/* The child's run; where there is none yet, the definition that it would run, unless the request brings it along. */
int read_child(struct store_reader *reader, struct arena *arena, struct children_look *look, struct error *error);
