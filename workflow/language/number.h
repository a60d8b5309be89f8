/* Which numbers of a definition can be kept. Pure. */
#pragma once

#include <math.h>
#include <stdbool.h>

/* Canonical JSON writes 1e20 as 100000000000000000000, an integer text beyond 2^53 - 1, which the strict parser refuses: the
 * document could not be read back. From 1e21 on it writes an exponent. */
static inline bool number_survives(double number)
{
	return fabs(number) < 9007199254740992.0 || fabs(number) >= 1e21;
}
