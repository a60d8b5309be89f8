/* libuv's memory is ours: where there is none left it would call abort() without a word in some places and give an error in others. With this
 * it ends as all other memory that cannot be had, by the stop that says so (workflow/base/check.h). Once, before anything else of libuv. */
#pragma once

void memory_give_to_libuv(void);
