/* The simulator as a process that somebody starts, watches and ends. Loop thread. */
#include "tests/sim/process.h"

#include <unistd.h>

void process_die(struct sim *sim, int status)
{
	(void)sim;
	_exit(status);
}
