/* A workflow definition: YAML or JSON text in, a tree of tasks out. DSL 1.0.3; what this release does not support is
 * refused here, when the definition is registered, with pointer, line and column; nothing is ever ignored.
 *
 * Built-in functions are workflows (semantics.md 4): `call: extraction` becomes ordinary tasks and private functions
 * here, so nothing durable hides inside one task. Pure. New here? Read definition_load(). */
#pragma once

#include "workflow/base/json.h"

enum {
	DEFINITION_SOURCE_MAX = 1 << 20, /* bytes of YAML or JSON */
	DEFINITION_DEPTH_MAX = 64,
	DEFINITION_NODES_MAX = 100000, /* YAML nodes, aliases expanded */
	DEFINITION_TASKS_MAX = 10000,
	DEFINITION_TASK_NAME_MAX = 128, /* bytes; references repeat the names of all enclosing tasks */
	DEFINITION_PROBLEMS_MAX = 100,
	DEFINITION_FUNCTION_VALUES_MAX = 1000000, /* values in custom functions, counted anew at each call, and 64 bytes of text count as one */
	DEFINITION_SCHEMA_BYTES_MAX = 64 << 20, /* of all JSON Schemas, compiled */
	DEFINITION_EXPRESSIONS_MAX = 10000, /* that need jq */
	DEFINITION_LOOPS_MAX = 16, /* `for` tasks inside one another, the one that `extraction` becomes included */
	TASK_EXECUTIONS_MAX = 100000, /* how often a task may be entered at one iteration path: backward jumps end in an error */
	SWITCH_CASES_MAX = 1000,
	RETRY_COUNT_DEFAULT = 10, /* retries of a policy without `limit` */
	RETRY_COUNT_MAX = 1000000,
	RUN_DEPTH_MAX = 16, /* children of children: how many runs are around the innermost one */
	FOR_CONCURRENCY_MAX = 1024, /* iterations of one run under way at once: of a loop and all loops around it together */
};

enum task_kind { TASK_DO, TASK_SET, TASK_FOR, TASK_CALL, TASK_SWITCH, TASK_RAISE, TASK_TRY, TASK_WAIT, TASK_FORK, TASK_EMIT, TASK_LISTEN };

/* Where a list goes on after a task: `then` of the task, or of the case that a switch took. */
enum then_kind {
	THEN_CONTINUE, /* with the next task of the list */
	THEN_EXIT, /* the list is over */
	THEN_END, /* the workflow is over, completed with this output */
	THEN_TASK, /* with another task of the same list */
};
struct then {
	enum then_kind kind;
	size_t index; /* THEN_TASK: its place in the list */
	const char *name; /* as written; NULL: nothing is written */
};

struct switch_case {
	const char *name;
	const char *when; /* expression text without ${ }; NULL: the default */
	struct then then;
};

/* What a TASK_CALL runs. Those behind FUNCTION_RUN are private: only expansions make them. */
enum task_function {
	FUNCTION_HTTP, /* activity: one HTTP request */
	FUNCTION_INFERENCE, /* activity: one model answer */
	FUNCTION_RUN, /* `run: {workflow}`: a run of another definition, a child of this one */
	FUNCTION_SECTIONS, /* activity: document -> {plan, sections}; see expansion below */
	FUNCTION_EXTRACT, /* activity: one section -> facts */
	FUNCTION_MERGE, /* pure: [{section outcome}…] -> {facts, sections} */
	FUNCTION_GATE_PLAN, /* pure: arguments of a gate -> {plan, asks} */
	FUNCTION_GATE_ASK, /* activity: one request of a gate */
	FUNCTION_GATE_REPORT, /* pure: [{what an ask gave}…] -> the gate's report, which is recorded */
};

struct schedule;
struct json_schema;
/* `input`, `output` or `export`: what becomes of a value on its way in or out (dsl.md 1.2). All NULL: the value as it is. */
struct transform {
	const char *expression; /* `from` or `as` as a text: expression without ${ } */
	const struct json *template; /* `from` or `as` as an object */
	struct json_schema *schema; /* owned by the definition */
};

struct task;
struct task_list {
	struct task **tasks;
	size_t count;
};

/* How often and when a try is done again (decision D6, retry.h). Durations are templates; NULL: none. */
struct retry {
	const char *when, *except_when; /* expression texts without ${ }, or NULL */
	const struct json *delay, *jitter_from, *jitter_to;
	enum retry_backoff { RETRY_CONSTANT, RETRY_LINEAR, RETRY_EXPONENTIAL } backoff;
	uint64_t count; /* retries, the first attempt not counted */
	const struct json *attempt_duration, *duration;
};

struct catch {
	const struct json *with; /* members that the error must have; NULL: any error */
	const char *as; /* variable name without "$" */
	const char *when, *except_when;
	const struct retry *retry; /* or NULL */
};

/* TASK_LISTEN, consumption.h. With `foreach` its body is one task, "/do/0/x/foreach": a do of the author's list with the `output` and `export`
 * of the foreach, or, where that has no list, a set that gives the item. */
struct event_strategy;
struct listen {
	const struct event_strategy *to;
	unsigned reading; /* enum event_reading */
};

struct task {
	enum task_kind kind;
	const char *name;
	const char *reference; /* JSON pointer in the definition: "/do/0/greet"; nested "/do/0/loop/do/1/x", "/do/0/t/try/0/x", "/do/0/t/catch/do/0/x", "/do/0/f/fork/branches/0/x" */
	const struct task *parent; /* NULL for the root */
	size_t index; /* place in the parent's body */
	size_t loop_depth; /* how many `for` tasks enclose it: length of its iteration path */
	struct task_list body; /* do, for, try; fork: its branches, under way side by side; listen: what `foreach` becomes, or nothing */
	bool compete; /* TASK_FORK: the first branch that completes is the output */
	struct task_list handler; /* TASK_TRY: catch.do */
	bool in_handler; /* it stands in the handler of its parent */
	const struct json *timeout; /* template of a duration, or NULL */
	const char *run_if; /* `if`: expression text without ${ }, or NULL */
	struct then then;
	struct transform input, output, export; /* the root's: those of the workflow, which has no export */

	const struct json *set; /* TASK_SET: object or expression string; evaluated as a template */

	const char *each, *at; /* TASK_FOR, and TASK_LISTEN with `foreach`: variable names without "$"; defaults "item", "index" */
	const char *in; /* TASK_FOR: expression text without ${ } */
	const char *condition; /* TASK_FOR: `while`, or NULL */
	/* TASK_FOR: 0 = chained (the specification's meaning), 1… = map mode (semantics.md 4), as the definition says or less: within
	 * loops that leave no more of FOR_CONCURRENCY_MAX. */
	unsigned concurrency;
	unsigned parallel; /* how many iterations of the loops, and branches of the forks around it may be under way at once */

	struct switch_case *cases; /* TASK_SWITCH */
	size_t case_count;

	const struct json *raise; /* TASK_RAISE: template of {type, status, title, detail} */

	const struct catch *catch; /* TASK_TRY */

	const struct json *wait; /* TASK_WAIT: template of a duration */

	const struct json *emit; /* TASK_EMIT: template of the event's attributes */

	const struct listen *listen; /* TASK_LISTEN */

	enum task_function function; /* TASK_CALL */
	const struct json *with; /* TASK_CALL: template of the arguments */
	bool awaits; /* FUNCTION_RUN: over when the child is */
	const char *built_in; /* on a TASK_DO that an expansion made: "extraction", or the name in use.functions; else NULL */
};

/* Its body is gone through once for each item: of an array, or each event as it comes. */
static inline bool task_is_loop(const struct task *task)
{
	return task->kind == TASK_FOR || task->kind == TASK_LISTEN;
}

/* Each iteration begins with the output of the one before, and the last one's is the loop's; of other loops the outputs are collected. */
static inline bool task_is_chained(const struct task *task)
{
	return task->kind == TASK_FOR && task->concurrency == 0;
}

struct definition_schema {
	struct json_schema *schema;
	struct definition_schema *next;
};

struct text_positions;

/* An expression that only jq can evaluate; it has to be compiled before the definition is good (evaluation.h). */
struct definition_expression {
	const char *pointer; /* of the value in the document */
	const char *text; /* without ${ } */
	const char *const *names; /* of variables that it speaks of and that are there, without "$" */
	size_t name_count;
};

struct definition {
	struct arena arena;
	const char *namespace, *name, *version, *title;
	struct digest digest; /* SHA-256 of the canonical form of the parsed document */
	const struct json *document; /* the parsed document, without any expansion */
	struct bytes source; /* as it came */
	const struct json *timeout; /* of a whole run: template of a duration, or NULL */
	struct task *root; /* TASK_DO, reference "", name "" */
	struct definition_schema *schemas; /* of all transforms */
	size_t task_count;
	struct definition_expression *expressions; /* in the order of the text */
	size_t expression_count, expression_cap;
	const struct text_positions *positions; /* of the source; NULL: unknown */
	const struct schedule *schedule; /* when it starts by itself, schedule.h; NULL: never */
	unsigned use_count; /* for whoever caches definitions; definition_load sets 1 */
};

/* One thing that is wrong with a definition. Lines and columns count from 1; 0: unknown (then the pointer tells). */
struct problem {
	const char *pointer; /* JSON pointer, "" for the whole */
	size_t line, column;
	const char *message; /* "unknown key 'foo'" */
	const char *hint; /* what to do, or NULL */
	bool warning; /* lint: the definition is still good */
};

struct problems {
	struct arena arena;
	struct problem *items;
	size_t count, cap, errors; /* errors: those that are no warnings */
};
void problems_init(struct problems *problems);
void problems_close(struct problems *problems);
void problems_add(struct problems *problems, bool warning, const char *pointer, size_t line, size_t column, const char *hint,
		  const char *format, ...) __attribute__((format(printf, 7, 8)));
void problems_sort(struct problems *problems, size_t first); /* those from `first` on, in the order of the text */
struct json *problems_json(const struct problems *problems, struct arena *arena); /* [{pointer, line, column, message, hint, severity}] */

enum text_format { TEXT_GUESS, TEXT_YAML, TEXT_JSON }; /* guess: JSON when the first character is '{' */

/* Source text to definition: all problems of the text at once. NULL when problems->errors > 0. The result is freed with
 * definition_free(). The source is copied. */
struct definition *definition_load(struct bytes source, enum text_format format, struct problems *problems);
/* From a document that is already JSON (POST /v1/runs with an inline definition). */
struct definition *definition_load_json(const struct json *document, struct problems *problems);
/* One read back from the journal. An earlier release may have accepted it: a check that came later and that only a call can suffer from does not
 * keep its runs from going on. */
struct definition *definition_load_stored(const struct json *document, struct problems *problems);
void definition_free(struct definition *definition);

/* The task with this reference; NULL when there is none. */
const struct task *definition_find_task(const struct definition *definition, const char *reference);

/* What an operator writes in YAML besides definitions (configuration, key of a language server, …): the same guards,
 * and where each value stood. positions may be NULL. */
struct json *text_load(struct arena *arena, struct bytes source, enum text_format format, struct text_positions **positions, struct problems *problems);
/* Line and column of the value at a JSON pointer; of the key with at_key. False when unknown. */
bool text_position(const struct text_positions *positions, const char *pointer, bool at_key, size_t *line, size_t *column);
