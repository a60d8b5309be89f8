/* The tasks of a document that is not checked yet: for what has to be done to it before. A task is what stands where a task can stand; all
 * else is data, however it looks. Pure. */
#pragma once

#include "workflow/base/json.h"

/* pointer: of the task, borrowed. True: go no further. */
typedef bool (*task_visitor)(void *arg, struct json *task, const char *pointer);
/* Each task before those in it: of `do`, then of `use.functions`. True: a visitor said so. */
bool tasks_visit(const struct json *document, task_visitor visit, void *arg);
