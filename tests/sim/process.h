/* How the simulator behaves as a process. Loop thread. */
#pragma once

#include "tests/sim/sim.h"

/* End at once, as one that crashes: no cleaning up, connections are cut by the system. */
_Noreturn void process_die(struct sim *sim, int status);
