/* Why a runtime refuses to start, in its own words: the rows of its log and its exit status. Pure. */
#pragma once

#include "tests/sim/options.h"

struct refusal_row {
	const char *name;
	unsigned kinds;
	const char *cause;   /* the line that says why, without its prefix */
	const char *before;  /* a line that comes before it, or NULL */
	bool at_once;        /* the command line is wrong: no engine was started, so no wrapper follows */
	int status;
};

/* NULL: that kind has no such refusal. */
const struct refusal_row *refusal_find(const char *name, enum kind_bit kind);
