/* Tests that count branches (a build with -Db_coverage=true) learn of a process what it writes down at its exit(). This is for an end
 * that is none: just before _exit(), abort() or a signal to itself. In all other builds it is nothing. Any thread. */
#pragma once

#ifdef REPRISE_COVERAGE
void __gcov_dump(void); /* libgcov's own; clang's runtime has it too */

#define COVERAGE_KEEP() __gcov_dump()
#else
#define COVERAGE_KEEP() ((void)0)
#endif
