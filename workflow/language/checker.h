/* What the checks of a definition share: where they are, how they complain, key tables, variables in scope, templates.
 * Pure. New here? Read definition.c first; this serves it. */
#pragma once

#include "workflow/language/definition.h"

enum { CHECKER_LANGUAGE_VARIABLES = 5 };
enum { CHECKER_KEYS_MAX = 64 }; /* that an object may have: mistakes of ours */
enum { CHECKER_FUNCTIONS_MAX = 16 }; /* calls of custom functions inside one another */
enum { CHECKER_VARIABLES_MAX = 6 + 2 * DEFINITION_LOOPS_MAX + DEFINITION_DEPTH_MAX }; /* six of the language, two for each loop around, one for each catch */

struct checker {
	struct definition *definition;
	struct problems *problems;
	const struct text_positions *positions; /* NULL: unknown */
	struct buffer pointer; /* of the value that is being looked at */
	const char *functions[CHECKER_FUNCTIONS_MAX]; /* of use.functions, those that are being expanded around this place */
	size_t function_count;
	size_t function_errors; /* found in them */
	bool too_many_tasks; /* was told */
	size_t function_values; /* of functions, at all calls together */
	size_t schema_bytes; /* of all schemas, compiled */
	bool too_many_values, too_many_schemas; /* were told */
	bool is_stored; /* it was accepted once, maybe by an earlier release: what only a call can suffer from is left to the call */
	bool only_checks; /* functions are checked where they stand: calls in them are not expanded */
	const char *variables[CHECKER_VARIABLES_MAX]; /* names allowed after "$" */
	size_t variable_count;
};

/* Go to a member or an item, and back to the length that was returned. */
size_t checker_enter(struct checker *checker, const char *name);
size_t checker_enter_index(struct checker *checker, size_t index);
void checker_leave(struct checker *checker, size_t len);

/* Complain about the value at the pointer; _key: about its key. hint may be NULL. */
void checker_fail(struct checker *checker, const char *hint, const char *format, ...) __attribute__((format(printf, 3, 4)));
void checker_fail_key(struct checker *checker, const char *hint, const char *format, ...) __attribute__((format(printf, 3, 4)));
void checker_warn(struct checker *checker, const char *hint, const char *format, ...) __attribute__((format(printf, 3, 4)));

enum key_kind {
	KEY_OPTIONAL,
	KEY_REQUIRED,
	KEY_LATER, /* of the language, but not in this release */
};
struct key {
	const char *name;
	enum key_kind kind;
	const char *hint; /* for KEY_LATER and a missing KEY_REQUIRED; may be NULL */
};

/* Every member against the table: unknown ones, later ones, missing ones. `what` names the object: "a 'set' task". */
void checker_keys(struct checker *checker, const struct json *object, const struct key *keys, size_t key_count, const char *what);
/* The candidate that is at most one edit away from text, or NULL. */
const char *checker_near(const char *text, const char *const *candidates, size_t count);

/* The value must have this type, or (expression_allowed) be a string that is wholly ${ … }. True when it has the type itself. */
bool checker_type(struct checker *checker, const struct json *value, enum json_type type, bool expression_allowed);
bool checker_is_expression(const struct json *value);
/* One of the words, or an expression. */
void checker_word(struct checker *checker, const struct json *value, const char *const *words, size_t count);
/* An integer within the bounds, or an expression. */
void checker_integer(struct checker *checker, const struct json *value, double least, double most);

/* An expression without its ${ }. */
void checker_expression(struct checker *checker, const char *text);
/* An expression field: with or without ${ }. The text without. */
const char *checker_read_expression(struct checker *checker, const struct json *value);
/* A value field: every expression in it; with lint also strings that look like unwrapped ones. */
void checker_template(struct checker *checker, const struct json *value, bool lint);

/* {format, document}; the pointer stands at it. The compiled schema, or NULL: a problem was added. arguments.c. */
struct json_schema *checker_schema(struct checker *checker, const struct json *value);

/* Arguments of a call, arguments.c. The pointer stands at `with`. False: there is no such function. */
bool arguments_check(struct checker *checker, const char *function, const struct json *with);
/* The same arguments as the activity takes them: the endpoint a text, its authentication beside it, and instead of secrets their names
 * in a member of their own, which no author and no data can write. The arguments must be good. */
const struct json *arguments_prepare(struct checker *checker, const char *function, const struct json *with);

/* `use` and what names its parts, use.c. The pointer stands at the value. */
void use_check(struct checker *checker, const struct json *use); /* secrets and authentications; the rest is definition.c's */
/* What use.GROUP calls NAME. NULL: a problem was added. */
const struct json *use_find(struct checker *checker, const char *group, const char *name);
/* The name in a value that is wholly ${ $secrets.NAME }, in the definition's arena; NULL: it is something else. */
const char *use_secret(struct checker *checker, const struct json *value);
/* False: the value is no secret. Else use.secrets must list it. Only where semantics.md 10 allows secrets. */
bool secret_check(struct checker *checker, const struct json *value);
void authentication_check(struct checker *checker, const struct json *value);
/* {"scheme": "basic" | "bearer" | "digest", …what is no secret}; `secrets` gets {member: name} of what is, "use" for all of it. */
struct json *authentication_prepare(struct checker *checker, const struct json *value, struct json *secrets);
