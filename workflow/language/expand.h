/* Built-in functions that are workflows (semantics.md 4): each becomes a TASK_DO of ordinary tasks and private functions.
 * To add one: write its function in expand.c, add its row to built_ins[] there and its arguments to definition.c. Pure. */
#pragma once

#include "workflow/language/definition.h"

enum {
	EXTRACTION_CONCURRENCY = 64, /* sections under way at once; the runtime's own `concurrency` bounds what is in flight */
	EXTRACTION_SECTION_TOKENS = 1200, /* sections.maxTokens when the definition says nothing */
};

/* True when `call: name` is one of these. */
bool expand_is_built_in(const char *name);

/* Make `task` (its name, reference, parent, index and loop_depth are set) the expansion of the built-in `name`.
 * with: the call's arguments, checked. Everything is made in the definition's arena and counted in its task_count. */
void expand_built_in(struct definition *definition, struct task *task, const char *name, const struct json *with);

/* For definition.c too: a task with its reference, at the end of a list that has room for it (task_list_make). */
void task_list_make(struct definition *definition, struct task_list *list, size_t count);
/* Map mode. Loops inside one another multiply: together they stay within FOR_CONCURRENCY_MAX, since all that is under way ends in one
 * decision when the run is cancelled. Before the tasks of its list are made. */
void task_set_concurrency(struct task *task, unsigned concurrency);
/* What stands between a reference and the place in one of its lists: "do", "try", … */
const char *task_list_segment(const struct task *parent, bool handler);
/* handler: of the parent's catch.do, not of its own list. */
struct task *task_list_set_in(struct definition *definition, struct task *parent, bool handler, size_t index, enum task_kind kind, const char *name);
struct task *task_list_set(struct definition *definition, struct task *parent, size_t index, enum task_kind kind, const char *name);
