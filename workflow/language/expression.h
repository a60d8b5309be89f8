/* Runtime expressions, in-process part: plain paths and comparisons of a path with a literal. What needs jq is told
 * apart here and handed to scope.evaluate; evaluation.h says how it gets to the helper program.
 *
 *   .            .a.b["c d"][0]      $name.path      PATH == LITERAL (!=, <, <=, >, >=)      LITERAL
 *
 * Semantics are jq 1.6's for this subset: a path through null gives null, into another scalar it is an error; negative
 * indexes count from the end; order of types null < false < true < numbers < strings < arrays < objects. Pure. */
#pragma once

#include "workflow/base/json.h"

/* Looks a name up: "." for the input, "item" for $item. NULL: there is no such variable or its value is not at hand; the
 * caller of expression_eval() tells the two apart itself. */
struct scope {
	const struct json *(*get)(void *context, const char *name);
	void *context;
	/* An expression that needs jq, without its ${ }. 0 and *result; ERR_NOT_FOUND: it, or a value it speaks of, is not at hand yet;
	 * ERR_INVALID: it failed. NULL: all of them are ERR_UNSUPPORTED. */
	int (*evaluate)(void *context, const char *text, const struct json **result, struct error *error);
};

/* True when the whole trimmed text is ${ … }; *inner is what stands between, trimmed. */
bool expression_unwrap(const char *text, struct bytes *inner);

/* 0: can be evaluated here. ERR_UNSUPPORTED: good jq perhaps, but not of this subset. ERR_INVALID: cannot be an
 * expression at all. `text` without ${ }. variables: names allowed after "$", or NULL to allow any. */
int expression_check(const char *text, const char *const *variables, size_t variable_count, struct error *error);

/* The names that stand behind a "$" anywhere in the text, each once, in the order of their coming; also in its texts and comments: too
 * many do no harm. An expression that needs jq gets those of them that are variables where it stands. */
size_t expression_variables(struct arena *arena, const char *text, const char *const **names);

/* ERR_NOT_FOUND when the scope answered NULL (message names it), ERR_INVALID when the evaluation failed. */
int expression_eval(struct arena *arena, const char *text, const struct scope *scope, const struct json **result, struct error *error);

/* Values of `set` and `with`: a string that is wholly ${ … } is evaluated, arrays and objects are walked, keys and all
 * other text stay as they are. What is not at hand (ERR_NOT_FOUND) does not end the walk: all of it is asked for at once. */
int template_eval(struct arena *arena, const struct json *template, const struct scope *scope, const struct json **result, struct error *error);

/* URI template, RFC 6570 level 1: {name} from the top-level members of `values`; percent-encoded; missing: empty;
 * object or array: ERR_INVALID. */
int uri_template_eval(struct arena *arena, const char *text, const struct json *values, const char **result, struct error *error);
