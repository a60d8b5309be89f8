/* `reprised --check`: the journal verified as an outsider would (every entry, every kept checkpoint), without changing it and
 * beside a daemon that runs. Thread: main, without a loop. */
#pragma once

#include <stdio.h>

#include "store/store.h"

enum { CHECK_PAGE = 1000 };

/* The key files too, and that the log key is the one that the journal was begun with. Of the options: the folder and the files.
 * 0: good, or there is none yet. Says what was found on `out`. */
int check_journal(const struct store_options *options, FILE *out, struct error *error);
