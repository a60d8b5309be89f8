/* Which run was at hand when the daemon was stopped by a mistake of its own (a CHECK, a fault of memory). A run whose deciding does that would
 * do it again at every start; so its id is left in a small file, DATA/last-words, from inside the signal's handler, and a start that finds the same
 * run there ENGINE_RECOVERY_TRIES times sets it aside before it is touched (start.c). A clean stop empties the file.
 *
 * It costs a copy of the id for each decision, and no write unless the process dies. It need not survive a power cut.
 * Thread: loop, which is the process's first; other threads' faults are not a run's. New here? Read on_fatal(). */
#pragma once

enum {
	LAST_WORDS_MAX = 4 << 10, /* bytes of the file that are read; with more it begins anew */
};

/* Reads what earlier processes left, and watches SIGABRT, SIGSEGV, SIGBUS, SIGFPE and SIGILL from here on. A file that cannot be had is a warning. */
void last_words_open(const char *data_dir);
void last_words_close(void); /* a clean stop: nothing is left */
unsigned last_words_count(const char *run_id); /* how often it was the last one */
void last_words_strike(const char *run_id); /* it was set aside: counted anew */

/* Around what only concerns this run, without callbacks in between. */
void last_words_begin(const char *run_id);
void last_words_end(void);
