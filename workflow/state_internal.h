/* What state_snapshot.c needs of state.c, and nobody else includes. */
#pragma once

#include "workflow/state.h"

/* A new value, held by no slot yet. */
struct value *state_add_value(struct state *state, const struct digest *digest);
/* The slot holds the value from now on, and what it held before no more. */
void state_set_value(struct state *state, struct value **slot, struct value *value);
/* Of an instance whose members were filled in: what state_only_waits() asks for. */
void state_count_waiting(struct state *state, const struct instance *instance);
void state_remember_consumed(struct state *state, uint64_t event_seq);
/* A new record, in its table but in no list. NULL: there is one already. */
struct instance *state_add_instance(struct state *state, const struct task *task, bool is_body, const uint64_t *path, size_t path_count);
