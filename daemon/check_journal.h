/* `reprised --check`: the journal verified as an outsider would (every entry, every kept checkpoint), without changing it and
 * beside a daemon that runs. Thread: main, without a loop. */
#pragma once

#include <stdio.h>

#include "workflow/base/error.h"

enum { CHECK_PAGE = 1000 };

/* 0: good, or there is none yet. Says what was found on `out`. */
int check_journal(const char *data_dir, FILE *out, struct error *error);
