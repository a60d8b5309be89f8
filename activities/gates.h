/* What gates have measured of each runtime, for the facts that come after them (semantics.md 7). Loop thread. */
#pragma once

#include "activities/inference.h"

enum { GATES_KEPT_MAX = 64 /* of one runtime; the oldest one goes */ };

void gates_close(struct runtime *runtime);

/* {"class", "applies"?, "differs"?, "gate"?, "requests"?, "distinct"?, "upperBound95"?, "measuredOn"?, "conditions"?} of an answer: by the newest gate of its
 * configuration that was taken under its conditions, else by the newest of the configuration; class "unmeasured" where there is none. */
struct json *gates_describe(const struct inference *inference, struct arena *arena);
/* Why the configuration does not have the class that the definition demands (inference->required); NULL: it has it, or none is demanded. answered: also by
 * what only the answer tells. */
const char *gates_refuse(const struct inference *inference, const struct configuration *configuration, bool answered, struct arena *arena);
