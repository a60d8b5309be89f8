/* Definitions (definition.h): the checked document becomes a tree of tasks. All problems of a text are found in one walk,
 * which checks and builds at once; what it built of a bad definition is thrown away. Pure; any thread.
 * New here? Read definition_load(), then read_task(). */
#include "workflow/language/definition.h"

#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/base/failure.h"
#include "workflow/base/id.h"
#include "workflow/language/checker.h"
#include "workflow/language/cloud_event.h"
#include "workflow/language/consumption.h"
#include "workflow/language/duration.h"
#include "workflow/language/expand.h"
#include "workflow/language/expression.h"
#include "workflow/language/json_schema.h"
#include "workflow/language/position.h"
#include "workflow/language/schedule.h"

static const char later[] = "is not supported in this release";

/* ---- document */

/* A string member of `document`; a number where a text belongs is the usual trap of YAML. */
static const char *read_text(struct checker *checker, const struct json *object, const char *name, bool is_version)
{
	const struct json *value = json_get(object, name);
	const char *text = NULL;
	size_t len;

	if (!value)
		return NULL;
	len = checker_enter(checker, name);
	if (json_is(value, JSON_STRING))
		text = value->string.text;
	else if (json_is(value, JSON_NUMBER))
		checker_fail(checker, is_version ? "quote it: '1.0.0'" : "quote it", "must be a string, not a number");
	else
		checker_fail(checker, NULL, "must be a string, not %s", json_type_name(value->type));
	checker_leave(checker, len);
	return text;
}

static void fail_member(struct checker *checker, const char *name, const char *hint, const char *message)
{
	size_t len = checker_enter(checker, name);

	checker_fail(checker, hint, "%s", message);
	checker_leave(checker, len);
}

static void check_tags(struct checker *checker, const struct json *tags)
{
	if (!checker_type(checker, tags, JSON_OBJECT, false))
		return;
	for (size_t i = 0; i < tags->object.count; i++) {
		size_t len = checker_enter(checker, tags->object.members[i].name);

		checker_type(checker, tags->object.members[i].value, JSON_STRING, false);
		checker_leave(checker, len);
	}
}

static void check_metadata(struct checker *checker, const struct json *metadata)
{
	checker_type(checker, metadata, JSON_OBJECT, false);
}

static void read_document(struct checker *checker, const struct json *document)
{
	static const struct key keys[] = {
		{"dsl", KEY_REQUIRED, "dsl: '1.0.3'"}, {"namespace", KEY_REQUIRED, NULL}, {"name", KEY_REQUIRED, NULL},
		{"version", KEY_REQUIRED, "version: '1.0.0'"}, {"title", KEY_OPTIONAL, NULL}, {"summary", KEY_OPTIONAL, NULL},
		{"tags", KEY_OPTIONAL, NULL}, {"metadata", KEY_OPTIONAL, NULL},
	};
	struct definition *definition = checker->definition;
	const char *dsl;
	size_t len;

	if (!checker_type(checker, document, JSON_OBJECT, false))
		return;
	checker_keys(checker, document, keys, COUNT_OF(keys), "'document'");
	dsl = read_text(checker, document, "dsl", true);
	definition->namespace = read_text(checker, document, "namespace", false);
	definition->name = read_text(checker, document, "name", false);
	definition->version = read_text(checker, document, "version", true);
	definition->title = read_text(checker, document, "title", false);
	read_text(checker, document, "summary", false);
	if (dsl && !id_valid_version(dsl))
		fail_member(checker, "dsl", "dsl: '1.0.3'", "is no semantic version");
	else if (dsl && strncmp(dsl, "1.0.", 4) != 0)
		fail_member(checker, "dsl", "dsl: '1.0.3'", "this release knows version 1.0 of the language only");
	if (definition->namespace && !id_valid_label(definition->namespace))
		fail_member(checker, "namespace", NULL, "must be 1 to 63 letters, digits or hyphens, no hyphen at the ends");
	if (definition->name && !id_valid_label(definition->name))
		fail_member(checker, "name", NULL, "must be 1 to 63 letters, digits or hyphens, no hyphen at the ends");
	if (definition->version && !id_valid_version(definition->version))
		fail_member(checker, "version", "three numbers: '1.0.0'", "is no semantic version");
	if (json_get(document, "tags")) {
		len = checker_enter(checker, "tags");
		check_tags(checker, json_get(document, "tags"));
		checker_leave(checker, len);
	}
	if (json_get(document, "metadata")) {
		len = checker_enter(checker, "metadata");
		check_metadata(checker, json_get(document, "metadata"));
		checker_leave(checker, len);
	}
}

/* ---- Tasks */

static void read_task_list(struct checker *checker, struct task *parent, bool handler, const struct json *list);

/* Keys that any task may have; then those of its kind. */
#define COMMON_KEYS                                                                                                       \
	{"if", KEY_OPTIONAL, NULL}, {"input", KEY_OPTIONAL, NULL}, {"output", KEY_OPTIONAL, NULL}, {"export", KEY_OPTIONAL, NULL}, \
	{"timeout", KEY_OPTIONAL, NULL}, {"then", KEY_OPTIONAL, NULL}, {"metadata", KEY_OPTIONAL, NULL}

static void read_set(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {COMMON_KEYS, {"set", KEY_REQUIRED, NULL}};
	const struct json *set = json_get(value, "set");
	size_t len;

	checker_keys(checker, value, keys, COUNT_OF(keys), "a 'set' task");
	task->set = set;
	len = checker_enter(checker, "set");
	if (json_is(set, JSON_STRING) && !checker_is_expression(set))
		checker_fail(checker, "write '${ … }' around an expression", "must be an object or an expression ${ … }");
	else if (!json_is(set, JSON_STRING) && checker_type(checker, set, JSON_OBJECT, true) && set->object.count == 0)
		checker_fail(checker, NULL, "must set at least one member");
	checker_template(checker, set, true);
	checker_leave(checker, len);
}

static void read_do(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {COMMON_KEYS, {"do", KEY_REQUIRED, NULL}};
	size_t len;

	checker_keys(checker, value, keys, COUNT_OF(keys), "a 'do' task");
	len = checker_enter(checker, "do");
	read_task_list(checker, task, false, json_get(value, "do"));
	checker_leave(checker, len);
}

static bool is_variable_name(const char *name)
{
	static const char *const keywords[] = {
		"and", "as", "catch", "def", "elif", "else", "end", "foreach", "if", "import", "include", "label", "not", "or", "reduce", "then",
		"try", "__loc__", "ENV",
	};

	for (size_t i = 0; i < COUNT_OF(keywords); i++) {
		if (strcmp(keywords[i], name) == 0)
			return false;
	}
	return *name && !(name[0] >= '0' && name[0] <= '9') &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == strlen(name);
}

static const char *read_variable(struct checker *checker, const struct json *object, const char *key, const char *fallback)
{
	static const char *const taken[] = {"context", "input", "output", "workflow", "task", "runtime", "secrets", "authorization"};
	const struct json *value = json_get(object, key);
	size_t len;

	if (!value)
		return fallback;
	len = checker_enter(checker, key);
	if (checker_type(checker, value, JSON_STRING, false)) {
		bool is_taken = false;

		for (size_t i = 0; i < COUNT_OF(taken); i++)
			is_taken = is_taken || strcmp(taken[i], value->string.text) == 0;
		if (is_taken)
			checker_fail(checker, NULL, "$%s is a variable of the language, choose another name", value->string.text);
		else if (!is_variable_name(value->string.text))
			checker_fail(checker, value->string.text[0] == '$' ? "leave out the $" : NULL, "'%.80s' cannot name a variable",
				     value->string.text);
		else
			fallback = value->string.text;
	}
	checker_leave(checker, len);
	return fallback;
}

/* `then` as it is written; which task a name means is known when the whole list is read (resolve_jumps). The pointer stands at it. */
static struct then read_then(struct checker *checker, const struct json *value)
{
	struct then then = {THEN_CONTINUE, 0, NULL};

	if (!checker_type(checker, value, JSON_STRING, false))
		return then;
	then.name = value->string.text;
	if (strcmp(then.name, "exit") == 0)
		then.kind = THEN_EXIT;
	else if (strcmp(then.name, "end") == 0)
		then.kind = THEN_END;
	else if (strcmp(then.name, "continue") != 0)
		then.kind = THEN_TASK;
	return then;
}

/* A duration, or an expression that gives one. The pointer stands at it. */
static const struct json *read_duration(struct checker *checker, const struct json *value)
{
	struct error error = {0};
	int64_t ms;

	if (checker_is_expression(value))
		checker_template(checker, value, false);
	else if (duration_read(value, &ms, &error) != 0)
		checker_fail(checker, NULL, "%s", error.message);
	return value;
}

static const struct json *read_duration_member(struct checker *checker, const struct json *object, const char *name)
{
	const struct json *value = json_get(object, name);
	size_t len;

	if (!value)
		return NULL;
	len = checker_enter(checker, name);
	read_duration(checker, value);
	checker_leave(checker, len);
	return value;
}

/* {after}; the pointer stands at it. */
static const struct json *check_timeout(struct checker *checker, const struct json *timeout)
{
	static const struct key keys[] = {{"after", KEY_REQUIRED, "after: {seconds: 30}"}};

	if (!checker_type(checker, timeout, JSON_OBJECT, false))
		return NULL;
	checker_keys(checker, timeout, keys, COUNT_OF(keys), "a timeout");
	return read_duration_member(checker, timeout, "after");
}

/* `timeout` of a task or a workflow: inline, or a name in use.timeouts. Its duration. */
static const struct json *read_timeout(struct checker *checker, const struct json *object)
{
	const struct json *timeout = json_get(object, "timeout"), *after;
	size_t len;

	if (!timeout)
		return NULL;
	len = checker_enter(checker, "timeout");
	if (json_is(timeout, JSON_STRING))
		after = json_get(use_find(checker, "timeouts", timeout->string.text), "after");
	else
		after = check_timeout(checker, timeout);
	checker_leave(checker, len);
	return after;
}

/* ---- Data flow */

/* `from` or `as`; the pointer stands at it. `without`: variables of the language that are not there yet, or not any more. */
static void read_filter(struct checker *checker, struct transform *transform, const struct json *value, const char *const *without, size_t without_count,
			bool with_output)
{
	const char *kept[CHECKER_VARIABLES_MAX];
	size_t count = checker->variable_count;

	memcpy(kept, checker->variables, sizeof kept);
	for (size_t i = 0; i < without_count; i++)
		for (size_t k = 0; k < count; k++)
			if (strcmp(checker->variables[k], without[i]) == 0)
				checker->variables[k] = ""; /* No expression speaks of it. */
	CHECK(count < CHECKER_VARIABLES_MAX);
	if (with_output)
		checker->variables[checker->variable_count++] = "output";
	if (json_is(value, JSON_STRING)) {
		transform->expression = checker_read_expression(checker, value);
	} else if (json_is(value, JSON_OBJECT)) {
		transform->template = value;
		checker_template(checker, value, true);
	} else {
		checker_fail(checker, NULL, "must be an expression or an object, not %s", json_type_name(value->type));
	}
	memcpy(checker->variables, kept, sizeof kept);
	checker->variable_count = count;
}

/* `input`, `output` or `export` of a task or of the workflow, if it is there. */
static void read_transform(struct checker *checker, struct transform *transform, const struct json *owner, const char *name, const char *const *without,
			   size_t without_count)
{
	bool is_input = strcmp(name, "input") == 0;
	const char *filter = is_input ? "from" : "as";
	const struct key keys[] = {{"schema", KEY_OPTIONAL, NULL}, {filter, KEY_OPTIONAL, NULL}};
	const struct json *value = json_get(owner, name);
	size_t len, inner_len;

	if (!value)
		return;
	len = checker_enter(checker, name);
	if (checker_type(checker, value, JSON_OBJECT, false)) {
		checker_keys(checker, value, keys, COUNT_OF(keys), is_input ? "'input'" : name[0] == 'o' ? "'output'" : "'export'");
		if (json_get(value, filter)) {
			inner_len = checker_enter(checker, filter);
			read_filter(checker, transform, json_get(value, filter), without, without_count, strcmp(name, "export") == 0);
			checker_leave(checker, inner_len);
		}
		if (json_get(value, "schema")) {
			inner_len = checker_enter(checker, "schema");
			transform->schema = checker_schema(checker, json_get(value, "schema"));
			checker_leave(checker, inner_len);
		}
		if (transform->schema) {
			struct definition_schema *link = arena_alloc(&checker->definition->arena, sizeof *link);
			*link = (struct definition_schema){transform->schema, checker->definition->schemas};
			checker->definition->schemas = link;
		}
	}
	checker_leave(checker, len);
}

/* Where an export of this task would be seen by none, or by others in no order. */
static void check_export(struct checker *checker, const struct task *task, const struct json *owner)
{
	size_t len;

	for (const struct task *above = task->parent; json_get(owner, "export") && above; above = above->parent) {
		if (above->kind == TASK_FORK) {
			len = checker_enter(checker, "export");
			checker_warn(checker, "give what later tasks need as the fork's output, and export it there",
				     above->compete ? "within a competing fork only the winner's exports stay" : "within a fork an export stays inside its branch");
			checker_leave(checker, len);
			break;
		}
		if (above->concurrency == 0)
			continue;
		len = checker_enter(checker, "export");
		checker_warn(checker, "give what later tasks need as the loop's output", "within metadata.concurrency an export stays inside the iteration");
		checker_leave(checker, len);
		break;
	}
}

/* What any task may have. */
static void read_common(struct checker *checker, struct task *task, const struct json *value)
{
	size_t len;

	if (json_get(value, "if")) {
		len = checker_enter(checker, "if");
		task->run_if = checker_read_expression(checker, json_get(value, "if"));
		checker_leave(checker, len);
	}
	if (json_get(value, "then")) {
		len = checker_enter(checker, "then");
		task->then = read_then(checker, json_get(value, "then"));
		checker_leave(checker, len);
	}
	task->timeout = read_timeout(checker, value);
	read_transform(checker, &task->input, value, "input", (const char *const[]){"input"}, 1);
	read_transform(checker, &task->output, value, "output", NULL, 0);
	read_transform(checker, &task->export, value, "export", NULL, 0);
	check_export(checker, task, value);
}

static void read_case(struct checker *checker, struct switch_case *at, const struct json *value)
{
	static const struct key keys[] = {{"when", KEY_OPTIONAL, NULL}, {"then", KEY_REQUIRED, "continue, exit, end or the name of a task in the same list"}};
	size_t len;

	if (!checker_type(checker, value, JSON_OBJECT, false))
		return;
	checker_keys(checker, value, keys, COUNT_OF(keys), "a case of 'switch'");
	if (json_get(value, "when")) {
		len = checker_enter(checker, "when");
		at->when = checker_read_expression(checker, json_get(value, "when"));
		checker_leave(checker, len);
	}
	if (json_get(value, "then")) {
		len = checker_enter(checker, "then");
		at->then = read_then(checker, json_get(value, "then"));
		checker_leave(checker, len);
	}
}

static void read_switch(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {COMMON_KEYS, {"switch", KEY_REQUIRED, NULL}};
	const struct json *cases = json_get(value, "switch");
	const char *otherwise = NULL;
	size_t len, case_len, inner_len;

	checker_keys(checker, value, keys, COUNT_OF(keys), "a 'switch' task");
	len = checker_enter(checker, "switch");
	if (json_is(cases, JSON_OBJECT)) {
		checker_fail(checker, "write '- NAME:' before each case", "must be a list of cases, not an object");
	} else if (checker_type(checker, cases, JSON_ARRAY, false)) {
		if (cases->array.count == 0)
			checker_fail(checker, NULL, "must have at least one case");
		if (cases->array.count > SWITCH_CASES_MAX) {
			checker_fail(checker, NULL, "more than %d cases", SWITCH_CASES_MAX);
			checker_leave(checker, len);
			return;
		}
		task->cases = arena_zero(&checker->definition->arena, (cases->array.count + 1) * sizeof *task->cases);
		task->case_count = cases->array.count;
		for (size_t i = 0; i < cases->array.count; i++) {
			const struct json *item = cases->array.items[i];
			struct switch_case *at = &task->cases[i];

			at->then.name = "continue";
			case_len = checker_enter_index(checker, i);
			if (checker_type(checker, item, JSON_OBJECT, false) && item->object.count != 1) {
				checker_fail(checker, NULL, "an item of 'switch' has one key, the case's name; this one has %zu", item->object.count);
			} else if (json_is(item, JSON_OBJECT)) {
				at->name = item->object.members[0].name;
				inner_len = checker_enter(checker, at->name);
				for (size_t k = 0; k < i; k++) {
					if (task->cases[k].name && strcmp(task->cases[k].name, at->name) == 0)
						checker_fail_key(checker, NULL, "a second case '%.80s' in one switch", at->name);
				}
				read_case(checker, at, item->object.members[0].value);
				if (!at->when && otherwise)
					checker_fail_key(checker, "give it a 'when'", "a second case without 'when', '%.80s' is the default already", otherwise);
				if (!at->when && !otherwise)
					otherwise = at->name;
				checker_leave(checker, inner_len);
			}
			checker_leave(checker, case_len);
		}
	}
	checker_leave(checker, len);
}

/* {type, status, title, detail}; the pointer stands at it. `instance` is the runtime's to say: the author's value is read and not used. */
static void check_error(struct checker *checker, const struct json *error)
{
	static const struct key keys[] = {{"type", KEY_REQUIRED, NULL}, {"status", KEY_REQUIRED, "an HTTP status: 400"}, {"title", KEY_OPTIONAL, NULL},
					  {"detail", KEY_OPTIONAL, NULL}, {"instance", KEY_OPTIONAL, NULL}};
	static const char *const texts[] = {"type", "title", "detail", "instance"};
	size_t len;

	if (!checker_type(checker, error, JSON_OBJECT, false))
		return;
	checker_keys(checker, error, keys, COUNT_OF(keys), "an error");
	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		if (!json_get(error, texts[i]))
			continue;
		len = checker_enter(checker, texts[i]);
		checker_type(checker, json_get(error, texts[i]), JSON_STRING, true);
		checker_leave(checker, len);
	}
	if (json_get(error, "status")) {
		len = checker_enter(checker, "status");
		checker_integer(checker, json_get(error, "status"), ERROR_STATUS_MIN, ERROR_STATUS_MAX);
		checker_leave(checker, len);
	}
	checker_template(checker, error, true);
}

static void read_raise(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {COMMON_KEYS, {"raise", KEY_REQUIRED, NULL}};
	static const struct key raise_keys[] = {{"error", KEY_REQUIRED, "error: {type: …, status: …}, or the name of one in use.errors"}};
	const struct json *raise = json_get(value, "raise"), *error = json_get(raise, "error");
	size_t len, inner_len;

	checker_keys(checker, value, keys, COUNT_OF(keys), "a 'raise' task");
	len = checker_enter(checker, "raise");
	if (checker_type(checker, raise, JSON_OBJECT, false)) {
		checker_keys(checker, raise, raise_keys, COUNT_OF(raise_keys), "'raise'");
		if (error) {
			inner_len = checker_enter(checker, "error");
			if (json_is(error, JSON_STRING)) {
				task->raise = use_find(checker, "errors", error->string.text);
			} else {
				check_error(checker, error);
				task->raise = error;
			}
			checker_leave(checker, inner_len);
		}
	}
	checker_leave(checker, len);
}

static void read_wait(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {COMMON_KEYS, {"wait", KEY_REQUIRED, NULL}};

	checker_keys(checker, value, keys, COUNT_OF(keys), "a 'wait' task");
	task->wait = read_duration_member(checker, value, "wait");
}

static const char *read_expression_member(struct checker *checker, const struct json *object, const char *name)
{
	const char *text = NULL;
	size_t len;

	if (!json_get(object, name))
		return NULL;
	len = checker_enter(checker, name);
	text = checker_read_expression(checker, json_get(object, name));
	checker_leave(checker, len);
	return text;
}

static void read_backoff(struct checker *checker, struct retry *retry, const struct json *backoff)
{
	static const struct key keys[] = {{"constant", KEY_OPTIONAL, NULL}, {"linear", KEY_OPTIONAL, NULL}, {"exponential", KEY_OPTIONAL, NULL}};
	size_t len;

	len = checker_enter(checker, "backoff");
	if (checker_type(checker, backoff, JSON_OBJECT, false)) {
		checker_keys(checker, backoff, keys, COUNT_OF(keys), "'backoff'");
		if (backoff->object.count != 1)
			checker_fail(checker, "backoff: {exponential: {}}", "must have exactly one of constant, linear and exponential");
		for (size_t i = 0; i < COUNT_OF(keys); i++) {
			const struct json *kind = json_get(backoff, keys[i].name);
			size_t inner_len = checker_enter(checker, keys[i].name);

			if (kind && checker_type(checker, kind, JSON_OBJECT, false) && kind->object.count > 0)
				checker_fail(checker, "leave it empty: {}", "has no members; the delay is the policy's");
			if (kind)
				retry->backoff = (enum retry_backoff)i;
			checker_leave(checker, inner_len);
		}
	}
	checker_leave(checker, len);
}

static void read_retry_limit(struct checker *checker, struct retry *retry, const struct json *limit)
{
	static const struct key keys[] = {{"attempt", KEY_OPTIONAL, NULL}, {"duration", KEY_OPTIONAL, NULL}};
	static const struct key attempt_keys[] = {{"count", KEY_OPTIONAL, NULL}, {"duration", KEY_OPTIONAL, NULL}};
	const struct json *attempt = json_get(limit, "attempt"), *count = json_get(attempt, "count");
	size_t len = checker_enter(checker, "limit"), inner_len, count_len;

	if (checker_type(checker, limit, JSON_OBJECT, false)) {
		checker_keys(checker, limit, keys, COUNT_OF(keys), "'limit'");
		retry->duration = read_duration_member(checker, limit, "duration");
		if (retry->duration)
			retry->count = RETRY_COUNT_MAX;
		inner_len = checker_enter(checker, "attempt");
		if (attempt && checker_type(checker, attempt, JSON_OBJECT, false)) {
			checker_keys(checker, attempt, attempt_keys, COUNT_OF(attempt_keys), "'attempt'");
			retry->attempt_duration = read_duration_member(checker, attempt, "duration");
			count_len = checker_enter(checker, "count");
			if (count && (!json_is_integer(count) || count->number < 0 || count->number > RETRY_COUNT_MAX))
				checker_fail(checker, NULL, "must be an integer from 0 to %d", RETRY_COUNT_MAX);
			else if (count)
				retry->count = (uint64_t)count->number;
			checker_leave(checker, count_len);
		}
		checker_leave(checker, inner_len);
	}
	checker_leave(checker, len);
}

/* A retry policy; the pointer stands at it. */
static const struct retry *read_retry(struct checker *checker, const struct json *value)
{
	static const struct key keys[] = {{"when", KEY_OPTIONAL, NULL}, {"exceptWhen", KEY_OPTIONAL, NULL}, {"delay", KEY_OPTIONAL, NULL}, {"backoff", KEY_OPTIONAL, NULL},
					  {"limit", KEY_OPTIONAL, NULL}, {"jitter", KEY_OPTIONAL, NULL}};
	static const struct key jitter_keys[] = {{"from", KEY_REQUIRED, NULL}, {"to", KEY_REQUIRED, NULL}};
	struct retry *retry = arena_zero(&checker->definition->arena, sizeof *retry);
	const struct json *jitter = json_get(value, "jitter");
	size_t len;

	retry->count = RETRY_COUNT_DEFAULT;
	if (!checker_type(checker, value, JSON_OBJECT, false))
		return retry;
	checker_keys(checker, value, keys, COUNT_OF(keys), "'retry'");
	retry->when = read_expression_member(checker, value, "when");
	retry->except_when = read_expression_member(checker, value, "exceptWhen");
	retry->delay = read_duration_member(checker, value, "delay");
	if (json_get(value, "backoff"))
		read_backoff(checker, retry, json_get(value, "backoff"));
	if (json_get(value, "limit"))
		read_retry_limit(checker, retry, json_get(value, "limit"));
	len = checker_enter(checker, "jitter");
	if (jitter && checker_type(checker, jitter, JSON_OBJECT, false)) {
		checker_keys(checker, jitter, jitter_keys, COUNT_OF(jitter_keys), "'jitter'");
		retry->jitter_from = read_duration_member(checker, jitter, "from");
		retry->jitter_to = read_duration_member(checker, jitter, "to");
	}
	checker_leave(checker, len);
	return retry;
}

/* The errors that are caught, by what they say of themselves: compared as they are, never evaluated. */
static const struct json *read_error_filter(struct checker *checker, const struct json *errors)
{
	static const struct key keys[] = {{"with", KEY_OPTIONAL, NULL}};
	static const struct key with_keys[] = {{"type", KEY_OPTIONAL, NULL}, {"status", KEY_OPTIONAL, NULL}, {"instance", KEY_OPTIONAL, NULL},
					       {"title", KEY_OPTIONAL, NULL}, {"detail", KEY_OPTIONAL, NULL}, {"details", KEY_OPTIONAL, NULL}};
	const struct json *with = json_get(errors, "with");
	size_t len = checker_enter(checker, "errors"), with_len, inner_len;

	if (checker_type(checker, errors, JSON_OBJECT, false)) {
		checker_keys(checker, errors, keys, COUNT_OF(keys), "'errors'");
		with_len = checker_enter(checker, "with");
		if (with && checker_type(checker, with, JSON_OBJECT, false)) {
			checker_keys(checker, with, with_keys, COUNT_OF(with_keys), "an error filter");
			if (with->object.count == 0)
				checker_fail(checker, "leave out 'errors' to catch all", "must name at least one member");
			for (size_t i = 0; i < with->object.count; i++) {
				const struct json_member *member = &with->object.members[i];
				bool is_status = strcmp(member->name, "status") == 0;

				inner_len = checker_enter(checker, member->name);
				if (is_status && !json_is_integer(member->value))
					checker_fail(checker, NULL, "must be an integer");
				else if (!is_status)
					checker_type(checker, member->value, JSON_STRING, false);
				checker_leave(checker, inner_len);
			}
		}
		checker_leave(checker, with_len);
	}
	checker_leave(checker, len);
	return with;
}

static void read_catch(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {{"errors", KEY_OPTIONAL, NULL}, {"as", KEY_OPTIONAL, NULL}, {"when", KEY_OPTIONAL, NULL}, {"exceptWhen", KEY_OPTIONAL, NULL},
					  {"retry", KEY_OPTIONAL, NULL}, {"do", KEY_OPTIONAL, NULL}, {"then", KEY_LATER, "write 'then' at the try itself"}};
	struct catch *catch = arena_zero(&checker->definition->arena, sizeof *catch);
	const struct json *retry = json_get(value, "retry"), *policy;
	size_t variable_count = checker->variable_count, len;

	task->catch = catch;
	catch->as = "error";
	if (!checker_type(checker, value, JSON_OBJECT, false))
		return;
	checker_keys(checker, value, keys, COUNT_OF(keys), "'catch'");
	if (json_get(value, "errors"))
		catch->with = read_error_filter(checker, json_get(value, "errors"));
	catch->as = read_variable(checker, value, "as", "error");
	CHECK(checker->variable_count < CHECKER_VARIABLES_MAX);
	checker->variables[checker->variable_count++] = catch->as;
	catch->when = read_expression_member(checker, value, "when");
	catch->except_when = read_expression_member(checker, value, "exceptWhen");
	if (retry) {
		len = checker_enter(checker, "retry");
		policy = json_is(retry, JSON_STRING) ? use_find(checker, "retries", retry->string.text) : retry;
		if (policy)
			catch->retry = read_retry(checker, policy);
		checker_leave(checker, len);
	}
	if (json_get(value, "do")) {
		len = checker_enter(checker, "do");
		read_task_list(checker, task, true, json_get(value, "do"));
		checker_leave(checker, len);
	}
	checker->variable_count = variable_count;
}

static void read_try(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {COMMON_KEYS, {"try", KEY_REQUIRED, NULL}, {"catch", KEY_REQUIRED, "catch: {} catches every error"}};
	size_t len;

	checker_keys(checker, value, keys, COUNT_OF(keys), "a 'try' task");
	len = checker_enter(checker, "try");
	read_task_list(checker, task, false, json_get(value, "try"));
	checker_leave(checker, len);
	if (json_get(value, "catch")) {
		len = checker_enter(checker, "catch");
		read_catch(checker, task, json_get(value, "catch"));
		checker_leave(checker, len);
	}
}

static void read_fork(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {COMMON_KEYS, {"fork", KEY_REQUIRED, NULL}};
	static const struct key fork_keys[] = {{"branches", KEY_REQUIRED, NULL}, {"compete", KEY_OPTIONAL, NULL}};
	const struct json *fork = json_get(value, "fork"), *branches = json_get(fork, "branches"), *compete = json_get(fork, "compete");
	size_t len, inner_len;

	checker_keys(checker, value, keys, COUNT_OF(keys), "a 'fork' task");
	len = checker_enter(checker, "fork");
	if (checker_type(checker, fork, JSON_OBJECT, false)) {
		checker_keys(checker, fork, fork_keys, COUNT_OF(fork_keys), "'fork'");
		inner_len = checker_enter(checker, "compete");
		if (compete && checker_type(checker, compete, JSON_BOOLEAN, false))
			task->compete = json_get_boolean(fork, "compete", false);
		checker_leave(checker, inner_len);
		inner_len = checker_enter(checker, "branches");
		if (json_is(branches, JSON_ARRAY) && branches->array.count == 0)
			checker_fail(checker, NULL, "must have at least one branch");
		else if (json_is(branches, JSON_ARRAY) && branches->array.count > FOR_CONCURRENCY_MAX / task->parallel)
			checker_fail(checker, "fewer branches, or a lower metadata.concurrency of the loops around", "more than %d tasks under way at once", FOR_CONCURRENCY_MAX);
		else if (branches)
			read_task_list(checker, task, false, branches);
		checker_leave(checker, inner_len);
	}
	checker_leave(checker, len);
}

/* An iteration path has a fixed length. False: a problem was added. */
static bool may_loop(struct checker *checker, const struct task *task, unsigned loops)
{
	if (task->loop_depth + loops <= DEFINITION_LOOPS_MAX)
		return true;
	checker_fail(checker, "`call: extraction` and `call: reproducibility-gate` are loops, too", "more than %d loops inside one another", DEFINITION_LOOPS_MAX);
	return false;
}

static void read_concurrency(struct checker *checker, struct task *task, const struct json *value)
{
	const struct json *concurrency = json_get(json_get(value, "metadata"), "concurrency");
	size_t len, inner_len;

	if (!concurrency)
		return;
	len = checker_enter(checker, "metadata");
	inner_len = checker_enter(checker, "concurrency");
	if (!json_is_integer(concurrency) || concurrency->number < 1 || concurrency->number > FOR_CONCURRENCY_MAX)
		checker_fail(checker, NULL, "must be an integer from 1 to %d", FOR_CONCURRENCY_MAX);
	else
		task_set_concurrency(task, (unsigned)concurrency->number);
	checker_leave(checker, inner_len);
	checker_leave(checker, len);
}

static void read_for(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {COMMON_KEYS, {"for", KEY_REQUIRED, NULL}, {"while", KEY_OPTIONAL, NULL}, {"do", KEY_REQUIRED, NULL}};
	static const struct key loop_keys[] = {{"each", KEY_OPTIONAL, NULL}, {"in", KEY_REQUIRED, NULL}, {"at", KEY_OPTIONAL, NULL}};
	const struct json *loop = json_get(value, "for"), *in = json_get(loop, "in"), *condition = json_get(value, "while");
	const struct json *body = json_get(value, "do");
	size_t variable_count = checker->variable_count, len, inner_len;

	if (!may_loop(checker, task, 1))
		return;
	len = checker_enter(checker, "for");
	task->each = "item";
	task->at = "index";
	task->in = "";
	if (checker_type(checker, loop, JSON_OBJECT, false)) {
		checker_keys(checker, loop, loop_keys, COUNT_OF(loop_keys), "'for'");
		task->each = read_variable(checker, loop, "each", task->each);
		task->at = read_variable(checker, loop, "at", task->at);
		if (strcmp(task->each, task->at) == 0)
			checker_fail(checker, NULL, "'each' and 'at' name the same variable $%.80s", task->at);
	}
	if (in) {
		inner_len = checker_enter(checker, "in");
		if (json_is(in, JSON_ARRAY))
			checker_fail(checker, "put the array into a 'set' task before", "an array in 'in' %s", later);
		else
			task->in = checker_read_expression(checker, in);
		checker_leave(checker, inner_len);
	}
	checker_leave(checker, len);
	checker_keys(checker, value, keys, COUNT_OF(keys), "a 'for' task");
	read_concurrency(checker, task, value);

	CHECK(checker->variable_count + 2 <= CHECKER_VARIABLES_MAX); /* may_loop() */
	checker->variables[checker->variable_count++] = task->each;
	checker->variables[checker->variable_count++] = task->at;
	if (condition) {
		len = checker_enter(checker, "while");
		if (task->concurrency > 0)
			checker_fail_key(checker, "leave out metadata.concurrency: a condition needs one iteration after the other",
					 "'while' cannot stand with metadata.concurrency");
		task->condition = checker_read_expression(checker, condition);
		checker_leave(checker, len);
	}
	if (body) {
		len = checker_enter(checker, "do");
		read_task_list(checker, task, false, body);
		checker_leave(checker, len);
	}
	checker->variable_count = variable_count;
}

/* "extraction" and "extraction:1.0.0@default" are the same function. NULL: a name of another catalog or version. */
static const char *default_catalog_name(struct checker *checker, const char *call)
{
	static const char suffix[] = ":1.0.0@default";
	size_t len = strlen(call);

	if (!strpbrk(call, ":@"))
		return call;
	if (len > sizeof suffix - 1 && strcmp(call + len - (sizeof suffix - 1), suffix) == 0)
		return arena_text_len(&checker->definition->arena, call, len - (sizeof suffix - 1));
	return NULL;
}

/* A reusable function is a task; it is checked where it stands, once, whether it is called or not. */
static void read_task(struct checker *checker, struct task *parent, bool handler, size_t index, const char *name, const struct json *value);

static const char *const reserved_functions[] = {"http", "openapi", "grpc", "asyncapi", "a2a", "mcp"};

static bool is_reserved(const char *name)
{
	for (size_t i = 0; i < COUNT_OF(reserved_functions); i++)
		if (strcmp(reserved_functions[i], name) == 0)
			return true;
	return false;
}

static const struct json *custom_function(const struct checker *checker, const char *name)
{
	const struct json *functions = json_get(json_get(checker->definition->document, "use"), "functions");

	return json_is(functions, JSON_OBJECT) && !is_reserved(name) ? json_get(functions, name) : NULL;
}

/* Build the task of a function as the `index`th of parent's body. Variables of loops around the call are not the function's. */
static void read_function(struct checker *checker, struct task *parent, size_t index, const char *name, const struct json *function)
{
	struct buffer before = checker->pointer;
	size_t variable_count = checker->variable_count;

	buffer_init(&checker->pointer, before.max);
	buffer_add_text(&checker->pointer, "/use/functions");
	json_pointer_add(&checker->pointer, name);
	checker->variable_count = CHECKER_LANGUAGE_VARIABLES;
	read_task(checker, parent, false, index, name, function);
	checker->variable_count = variable_count;
	buffer_close(&checker->pointer);
	checker->pointer = before;
}

/* A scratch list takes what is built of them. */
static void check_functions(struct checker *checker, const struct json *functions)
{
	struct task *scratch = arena_zero(&checker->definition->arena, sizeof *scratch);
	size_t task_count = checker->definition->task_count, len;

	if (!checker_type(checker, functions, JSON_OBJECT, false))
		return;
	scratch->kind = TASK_DO;
	scratch->parallel = 1;
	scratch->name = scratch->reference = "";
	task_list_make(checker->definition, &scratch->body, 1);
	checker->only_checks = true;
	for (size_t i = 0; i < functions->object.count; i++) {
		const struct json_member *member = &functions->object.members[i];

		len = checker_enter(checker, member->name);
		if (is_reserved(member->name) || strpbrk(member->name, ":@/") || member->name_len == 0 || member->name_len > DEFINITION_TASK_NAME_MAX)
			checker_fail_key(checker, "any other name, without ':', '@' and '/'", "a function cannot be called '%.80s'", member->name);
		else if (json_is(member->value, JSON_OBJECT) && json_get(member->value, "then"))
			checker_fail(checker, "write it at the task that calls the function", "a function has no 'then'");
		else
			read_function(checker, scratch, 0, member->name, member->value);
		checker_leave(checker, len);
	}
	checker->only_checks = false;
	checker->definition->task_count = task_count;
}

/* What looking at a function costs, as DEFINITION_FUNCTION_VALUES_MAX counts it. */
static size_t weigh(const struct json *value)
{
	enum { TEXT_BYTES_PER_VALUE = 64 };
	size_t weight = 1;

	if (value->type == JSON_STRING)
		return 1 + value->string.len / TEXT_BYTES_PER_VALUE;
	for (size_t i = 0; value->type == JSON_ARRAY && i < value->array.count; i++)
		weight += weigh(value->array.items[i]);
	for (size_t i = 0; value->type == JSON_OBJECT && i < value->object.count; i++)
		weight += weigh(value->object.members[i].value) + value->object.members[i].name_len / TEXT_BYTES_PER_VALUE;
	return weight;
}

/* A function is read anew for each call of it: a small text could ask for very much work. */
static bool may_expand(struct checker *checker, const char *name, const struct json *function)
{
	if (checker->too_many_values)
		return false;
	checker->function_values += weigh(function);
	checker->too_many_values = checker->function_values > DEFINITION_FUNCTION_VALUES_MAX;
	if (checker->too_many_values)
		checker_fail(checker, "call it less often, or make it smaller",
			     "with this call of '%.80s' the functions hold more than %d values (DEFINITION_FUNCTION_VALUES_MAX)", name,
			     DEFINITION_FUNCTION_VALUES_MAX);
	return !checker->too_many_values;
}

/* `call: NAME` of use.functions becomes a `do`: a `set` that gives the arguments, which are the function's raw input, then its task. */
static void read_custom_call(struct checker *checker, struct task *task, const struct json *value, const char *name, const struct json *function)
{
	struct definition *definition = checker->definition;
	const struct json *with = json_get(value, "with");
	struct problems *problems = checker->problems, repeated;
	struct task *arguments;
	size_t len;

	if (with) {
		len = checker_enter(checker, "with");
		if (checker_type(checker, with, JSON_OBJECT, false))
			checker_template(checker, with, true);
		checker_leave(checker, len);
	}
	if (checker->only_checks)
		return;
	for (size_t i = 0; i < checker->function_count; i++)
		if (strcmp(checker->functions[i], name) == 0) {
			checker_fail(checker, NULL, "the function '%.80s' calls itself", name);
			return;
		}
	if (checker->function_count == CHECKER_FUNCTIONS_MAX) {
		checker_fail(checker, NULL, "more than %d functions call one another", CHECKER_FUNCTIONS_MAX);
		return;
	}
	if (!may_expand(checker, name, function))
		return;
	task->kind = TASK_DO;
	task->built_in = name;
	task_list_make(definition, &task->body, 2);
	arguments = task_list_set(definition, task, 0, TASK_SET, "with");
	arguments->set = with ? with : json_object(&definition->arena);
	/* What is wrong with the function itself is told already; what only this call brings about (a loop too deep) is told here. */
	problems_init(&repeated);
	checker->problems = &repeated;
	checker->functions[checker->function_count++] = name;
	read_function(checker, task, 1, name, function);
	checker->function_count--;
	checker->problems = problems;
	for (size_t i = 0; i < repeated.count; i++)
		if (!repeated.items[i].warning && checker->function_errors == 0)
			checker_fail(checker, repeated.items[i].hint, "in '%.80s': %s", name, repeated.items[i].message);
	problems_close(&repeated);
}

static void fail_function(struct checker *checker, const char *call, const char *name)
{
	static const char *const known[] = {"http", "inference", "extraction", "reproducibility-gate", "openapi"};
	static const char *const announced[] = {"grpc", "asyncapi", "a2a", "mcp", "judgement"};
	const char *near = checker_near(call, known, COUNT_OF(known));
	char *hint = NULL;

	if (!name) {
		checker_fail(checker, "the default catalog has inference, extraction and reproducibility-gate, each :1.0.0@default",
			     "'%.100s': functions of other catalogs or versions are not supported in this release", call);
		return;
	}
	for (size_t i = 0; i < COUNT_OF(announced); i++) {
		if (strcmp(announced[i], name) == 0) {
			checker_fail(checker, NULL, "call: %s %s", name, later);
			return;
		}
	}
	if (near)
		hint = arena_printf(&checker->definition->arena, "did you mean '%s'?", near);
	checker_fail(checker, hint ? hint : "functions are http, openapi, inference, extraction and reproducibility-gate, and those of use.functions",
		     "there is no function '%.100s'", call);
}

static void read_call(struct checker *checker, struct task *task, const struct json *value)
{
	const struct json *call = json_get(value, "call"), *with = json_get(value, "with");
	const struct json *function = json_is(call, JSON_STRING) ? custom_function(checker, call->string.text) : NULL;
	const struct key keys[] = {COMMON_KEYS, {"call", KEY_REQUIRED, NULL}, {"with", function ? KEY_OPTIONAL : KEY_REQUIRED, NULL}};
	const char *name = json_is(call, JSON_STRING) ? default_catalog_name(checker, call->string.text) : NULL;
	bool is_request;
	size_t errors, len;

	checker_keys(checker, value, keys, COUNT_OF(keys), "a 'call' task");
	if (function) {
		read_custom_call(checker, task, value, call->string.text, function);
		return;
	}
	len = checker_enter(checker, "call");
	if (!checker_type(checker, call, JSON_STRING, false)) {
		checker_leave(checker, len);
		return;
	}
	is_request = name && (strcmp(name, "http") == 0 || strcmp(name, "openapi") == 0);
	if (!name || (!is_request && strcmp(name, "inference") != 0 && !expand_is_built_in(name)) || (is_request && strcmp(call->string.text, name) != 0)) {
		fail_function(checker, call->string.text, name);
		checker_leave(checker, len);
		return;
	}
	checker_leave(checker, len);
	if (!with)
		return;
	errors = checker->problems->errors;
	len = checker_enter(checker, "with");
	CHECK(arguments_check(checker, name, with));
	checker_leave(checker, len);
	if (checker->problems->errors > errors)
		return;
	if (expand_is_built_in(name)) {
		if (may_loop(checker, task, json_get(with, "phases") ? 2 : 1))
			expand_built_in(checker->definition, task, name, with);
		return;
	}
	task->function = is_request ? FUNCTION_HTTP : FUNCTION_INFERENCE;
	task->with = arguments_prepare(checker, name, with);
}

/* A name of `run: {workflow}`: written out, so that what a definition runs can be told from its text. */
static const char *read_run_name(struct checker *checker, const struct json *workflow, const char *name, bool (*is_valid)(const char *text), const char *must)
{
	const struct json *value = json_get(workflow, name);
	const char *text = read_text(checker, workflow, name, strcmp(name, "version") == 0);
	size_t len = checker_enter(checker, name);

	if (checker_is_expression(value))
		checker_fail(checker, "choose among several tasks by `switch`", "cannot be an expression");
	else if (text && !is_valid(text))
		checker_fail(checker, NULL, "%s", must);
	checker_leave(checker, len);
	return text;
}

static bool is_wanted_version(const char *text)
{
	return strcmp(text, "latest") == 0 || id_valid_version(text);
}

/* `run: {workflow}`: what is called is a run of its own (daemon/children.h). */
static void read_run(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {COMMON_KEYS, {"run", KEY_REQUIRED, NULL}};
	const struct json *run = json_get(value, "run"), *workflow = json_get(run, "workflow"), *input = json_get(workflow, "input");
	bool other = json_get(run, "container") || json_get(run, "script") || json_get(run, "shell");
	const struct key run_keys[] = {{"workflow", other ? KEY_OPTIONAL : KEY_REQUIRED, "workflow: {namespace: …, name: …, version: '1.0.0'}"}, {"await", KEY_OPTIONAL, NULL},
					      {"return", KEY_OPTIONAL, NULL}, {"container", KEY_LATER, NULL}, {"script", KEY_LATER, NULL}, {"shell", KEY_LATER, NULL}};
	static const struct key workflow_keys[] = {{"namespace", KEY_REQUIRED, NULL}, {"name", KEY_REQUIRED, NULL}, {"version", KEY_OPTIONAL, NULL}, {"input", KEY_OPTIONAL, NULL}};
	static const char label[] = "must be 1 to 63 letters, digits or hyphens, no hyphen at the ends";
	struct arena *arena = &checker->definition->arena;
	struct json *with = json_object(arena);
	size_t len = checker_enter(checker, "run"), inner_len, input_len;

	if (!checker_type(checker, run, JSON_OBJECT, false))
		goto end;
	checker_keys(checker, run, run_keys, COUNT_OF(run_keys), "'run'");
	if (json_get(run, "return") && !other)
		fail_member(checker, "return", "the child's output is the task's", "means nothing for a workflow, which has no exit code and no standard output");
	task->awaits = json_get_boolean(run, "await", true);
	inner_len = checker_enter(checker, "await");
	if (json_get(run, "await"))
		checker_type(checker, json_get(run, "await"), JSON_BOOLEAN, false);
	checker_leave(checker, inner_len);
	inner_len = checker_enter(checker, "workflow");
	if (workflow && checker_type(checker, workflow, JSON_OBJECT, false)) {
		checker_keys(checker, workflow, workflow_keys, COUNT_OF(workflow_keys), "'workflow'");
		const char *namespace = read_run_name(checker, workflow, "namespace", id_valid_label, label);
		const char *name = read_run_name(checker, workflow, "name", id_valid_label, label);
		const char *version = read_run_name(checker, workflow, "version", is_wanted_version, "is neither a semantic version nor 'latest'");
		input_len = checker_enter(checker, "input");
		if (input && checker_type(checker, input, JSON_OBJECT, true))
			checker_template(checker, input, true);
		else if (input)
			checker_template(checker, input, false);
		checker_leave(checker, input_len);
		json_set_text(arena, with, "namespace", namespace ? namespace : "");
		json_set_text(arena, with, "name", name ? name : "");
		json_set_text(arena, with, "version", version ? version : "latest");
		json_set(arena, with, "input", input ? (struct json *)input : json_null(arena));
		json_set_boolean(arena, with, "await", task->awaits);
	}
	checker_leave(checker, inner_len);
	task->function = FUNCTION_RUN;
	task->with = with;
end:
	checker_leave(checker, len);
	checker_keys(checker, value, keys, COUNT_OF(keys), "a 'run' task");
}

/* The attributes of an event to be; the pointer stands at `with`. What they are once evaluated cloud_event_make() says. */
static void check_event(struct checker *checker, const struct json *with)
{
	static const char *const texts[] = {"id", "source", "specversion", "type", "time", "subject", "datacontenttype", "dataschema"};
	size_t len;

	if (with->object.count > CLOUD_EVENT_ATTRIBUTES_MAX)
		checker_fail(checker, NULL, "more than %d attributes (CLOUD_EVENT_ATTRIBUTES_MAX)", CLOUD_EVENT_ATTRIBUTES_MAX);
	if (!json_get(with, "type"))
		checker_fail(checker, "type: com.example.order.placed.v1", "'type' is missing in an event");
	for (size_t i = 0; i < with->object.count && i < CLOUD_EVENT_ATTRIBUTES_MAX; i++) {
		const struct json_member *member = &with->object.members[i];
		const char *name = member->name;
		bool is_text = false, is_data = strcmp(name, "data") == 0;

		for (size_t k = 0; k < COUNT_OF(texts); k++)
			is_text = is_text || strcmp(texts[k], name) == 0;
		len = checker_enter(checker, name);
		if (!is_data && (!*name || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(name) || strlen(name) > CLOUD_EVENT_NAME_MAX))
			checker_fail_key(checker, "lower-case letters and digits", "'%.80s' cannot be an attribute of an event", name);
		else if (is_text)
			checker_type(checker, member->value, JSON_STRING, true);
		else if (!is_data && !json_is(member->value, JSON_STRING) && !json_is(member->value, JSON_BOOLEAN) && !json_is_integer(member->value))
			checker_fail(checker, NULL, "an attribute of an event is a string, a boolean or an integer, not %s", json_type_name(member->value->type));
		if (strcmp(name, "specversion") == 0 && json_is(member->value, JSON_STRING) && !checker_is_expression(member->value) &&
		    strcmp(member->value->string.text, "1.0") != 0)
			checker_fail(checker, "leave it out", "events are of version 1.0");
		checker_template(checker, member->value, true);
		checker_leave(checker, len);
	}
}

static void read_emit(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {COMMON_KEYS, {"emit", KEY_REQUIRED, NULL}};
	static const struct key emit_keys[] = {{"event", KEY_REQUIRED, "event: {with: {type: …}}"}};
	static const struct key event_keys[] = {{"with", KEY_REQUIRED, "with: {source: …, type: …, data: …}"}};
	const struct json *emit = json_get(value, "emit"), *event = json_get(emit, "event"), *with = json_get(event, "with");
	size_t len, event_len, with_len;

	checker_keys(checker, value, keys, COUNT_OF(keys), "an 'emit' task");
	len = checker_enter(checker, "emit");
	if (checker_type(checker, emit, JSON_OBJECT, false)) {
		checker_keys(checker, emit, emit_keys, COUNT_OF(emit_keys), "'emit'");
		event_len = checker_enter(checker, "event");
		if (event && checker_type(checker, event, JSON_OBJECT, false)) {
			checker_keys(checker, event, event_keys, COUNT_OF(event_keys), "'event'");
			with_len = checker_enter(checker, "with");
			if (with && checker_type(checker, with, JSON_OBJECT, false))
				check_event(checker, with);
			checker_leave(checker, with_len);
		}
		checker_leave(checker, event_len);
	}
	checker_leave(checker, len);
	task->emit = with;
}

static bool may_loop(struct checker *checker, const struct task *task, unsigned loops);

/* `foreach` becomes the one task of the listen's body: see struct listen. The pointer stands at it. */
static void read_foreach(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {{"item", KEY_OPTIONAL, NULL}, {"at", KEY_OPTIONAL, NULL}, {"do", KEY_OPTIONAL, NULL}, {"output", KEY_OPTIONAL, NULL},
					  {"export", KEY_OPTIONAL, NULL}};
	struct definition *definition = checker->definition;
	const struct json *list = json_get(value, "do");
	size_t variable_count = checker->variable_count, len;
	struct task *each;

	if (!checker_type(checker, value, JSON_OBJECT, false) || !may_loop(checker, task, 1))
		return;
	checker_keys(checker, value, keys, COUNT_OF(keys), "'foreach'");
	task->each = read_variable(checker, value, "item", "item");
	task->at = read_variable(checker, value, "at", "index");
	if (strcmp(task->each, task->at) == 0)
		checker_fail(checker, NULL, "'item' and 'at' name the same variable $%.80s", task->at);
	CHECK(checker->variable_count + 2 <= CHECKER_VARIABLES_MAX); /* may_loop() */
	checker->variables[checker->variable_count++] = task->each;
	checker->variables[checker->variable_count++] = task->at;
	task_list_make(definition, &task->body, 1);
	each = task_list_set(definition, task, 0, list ? TASK_DO : TASK_SET, "foreach");
	read_transform(checker, &each->output, value, "output", NULL, 0);
	read_transform(checker, &each->export, value, "export", NULL, 0);
	check_export(checker, each, value);
	if (list) {
		len = checker_enter(checker, "do");
		read_task_list(checker, each, false, list);
		checker_leave(checker, len);
	} else {
		each->set = json_printf(&definition->arena, "${ $%s }", task->each);
	}
	checker->variable_count = variable_count;
}

static void read_listen(struct checker *checker, struct task *task, const struct json *value)
{
	static const struct key keys[] = {COMMON_KEYS, {"listen", KEY_REQUIRED, NULL}, {"foreach", KEY_OPTIONAL, NULL}};
	static const struct key listen_keys[] = {{"to", KEY_REQUIRED, "to: {one: {with: {type: …}}}"}, {"read", KEY_OPTIONAL, NULL}};
	static const char *const readings[] = {[EVENT_READ_DATA] = "data", [EVENT_READ_ENVELOPE] = "envelope", [EVENT_READ_RAW] = "raw"};
	const struct json *listen = json_get(value, "listen"), *to = json_get(listen, "to"), *read = json_get(listen, "read");
	struct listen *made = arena_zero(&checker->definition->arena, sizeof *made);
	size_t len, inner_len;

	checker_keys(checker, value, keys, COUNT_OF(keys), "a 'listen' task");
	task->listen = made;
	len = checker_enter(checker, "listen");
	if (checker_type(checker, listen, JSON_OBJECT, false)) {
		checker_keys(checker, listen, listen_keys, COUNT_OF(listen_keys), "'listen'");
		inner_len = checker_enter(checker, "to");
		if (to)
			made->to = consumption_read(checker, to);
		checker_leave(checker, inner_len);
		inner_len = checker_enter(checker, "read");
		if (read && checker_is_expression(read))
			checker_fail(checker, "data, envelope or raw", "cannot be an expression");
		else if (read)
			checker_word(checker, read, readings, COUNT_OF(readings));
		for (size_t i = 0; json_is(read, JSON_STRING) && i < COUNT_OF(readings); i++)
			if (strcmp(readings[i], read->string.text) == 0)
				made->reading = (unsigned)i;
		checker_leave(checker, inner_len);
	}
	checker_leave(checker, len);
	if (json_get(value, "foreach")) {
		len = checker_enter(checker, "foreach");
		read_foreach(checker, task, json_get(value, "foreach"));
		checker_leave(checker, len);
	}
}

struct task_reader {
	const char *key;
	enum task_kind kind;
	void (*read)(struct checker *checker, struct task *task, const struct json *value); /* NULL: not in this release */
};

/* `for` before `do`, which it has as well (dsl.md 1.1). */
static const struct task_reader task_readers[] = {
	{"for", TASK_FOR, read_for}, {"set", TASK_SET, read_set}, {"call", TASK_CALL, read_call}, {"do", TASK_DO, read_do},
	{"switch", TASK_SWITCH, read_switch}, {"raise", TASK_RAISE, read_raise}, {"try", TASK_TRY, read_try},
	{"wait", TASK_WAIT, read_wait},
	{"fork", TASK_FORK, read_fork}, {"emit", TASK_EMIT, read_emit}, {"listen", TASK_LISTEN, read_listen}, {"run", TASK_CALL, read_run},
};

/* The one row whose key the task has. NULL: a problem was added. */
static const struct task_reader *find_reader(struct checker *checker, const struct json *value)
{
	const struct task_reader *found = NULL;
	const char *keys[COUNT_OF(task_readers)];

	for (size_t i = 0; i < COUNT_OF(task_readers); i++) {
		const struct task_reader *reader = &task_readers[i];

		keys[i] = reader->key;
		if (!json_get(value, reader->key))
			continue;
		if (found && !(found->kind == TASK_FOR && strcmp(reader->key, "do") == 0)) {
			/* `foreach` of listen, `do` beside others: told as what it is, two kinds at once. */
			checker_fail(checker, "make two tasks of it", "a task is of one kind, this one has '%s' and '%s'", found->key, reader->key);
			return NULL;
		}
		if (!found)
			found = reader;
	}
	if (found && !found->read) {
		size_t len = checker_enter(checker, found->key);

		checker_fail_key(checker, "this release has call, do, emit, for, fork, listen, raise, run, set, switch, try and wait", "task kind '%s' %s", found->key, later);
		checker_leave(checker, len);
		return NULL;
	}
	if (!found) {
		const char *near = NULL;

		for (size_t i = 0; i < value->object.count && !near; i++)
			near = checker_near(value->object.members[i].name, keys, COUNT_OF(keys));
		checker_fail(checker, near ? arena_printf(&checker->definition->arena, "did you mean '%s'?", near) : "one of call, do, emit, for, fork, listen, raise, run, set, switch, try, wait",
			     "a task without a kind");
	}
	return found;
}

static void check_task_metadata(struct checker *checker, const struct task_reader *reader, const struct json *value)
{
	const struct json *metadata = json_get(value, "metadata");
	size_t len, inner_len;

	if (!metadata)
		return;
	len = checker_enter(checker, "metadata");
	check_metadata(checker, metadata);
	if (json_get(metadata, "concurrency")) {
		inner_len = checker_enter(checker, "concurrency");
		if (reader->kind == TASK_FOR)
			checker_warn(checker, NULL, "other engines run this loop one iteration after the other, each with the output of the one before");
		else
			checker_warn(checker, NULL, "'concurrency' means something on a 'for' task only");
		checker_leave(checker, inner_len);
	}
	checker_leave(checker, len);
}

/* The pointer stands at the task itself: "/do/0/greet". */
static void read_task(struct checker *checker, struct task *parent, bool handler, size_t index, const char *name, const struct json *value)
{
	const struct task_reader *reader;
	struct task *task;

	if (!checker_type(checker, value, JSON_OBJECT, false))
		return;
	reader = find_reader(checker, value);
	if (!reader)
		return;
	if (checker->definition->task_count >= DEFINITION_TASKS_MAX) {
		if (!checker->too_many_tasks)
			checker_fail(checker, NULL, "more than %d tasks", DEFINITION_TASKS_MAX);
		checker->too_many_tasks = true;
		return;
	}
	task = task_list_set_in(checker->definition, parent, handler, index, reader->kind, name);
	check_task_metadata(checker, reader, value);
	read_common(checker, task, value);
	reader->read(checker, task, value);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, so that a list of ten thousand tasks is checked at once. */
static void check_duplicate_names(struct checker *checker, const struct json *list)
{
	const char **names = memory_alloc((list->array.count + 1) * sizeof *names);
	size_t count = 0;

	for (size_t i = 0; i < list->array.count; i++) {
		if (json_is(list->array.items[i], JSON_OBJECT) && list->array.items[i]->object.count == 1)
			names[count++] = list->array.items[i]->object.members[0].name;
	}
	qsort(names, count, sizeof *names, compare_names);
	for (size_t i = 1; i < count && checker->problems->count < DEFINITION_PROBLEMS_MAX; i++) {
		bool seen = false;

		if (strcmp(names[i - 1], names[i]) != 0 || (i > 1 && strcmp(names[i - 2], names[i]) == 0))
			continue;
		/* Point at each of them but the first. */
		for (size_t k = 0; k < list->array.count; k++) {
			const struct json *item = list->array.items[k];
			size_t len, inner_len;

			if (!json_is(item, JSON_OBJECT) || item->object.count != 1 || strcmp(item->object.members[0].name, names[i]) != 0)
				continue;
			if (seen) {
				len = checker_enter_index(checker, k);
				inner_len = checker_enter(checker, names[i]);
				checker_fail_key(checker, NULL, "a second task '%.80s' in one list", names[i]);
				checker_leave(checker, inner_len);
				checker_leave(checker, len);
			}
			seen = true;
		}
	}
	free(names);
}

struct task_name {
	const char *name;
	size_t index;
};

static int compare_task_names(const void *a, const void *b)
{
	return strcmp(((const struct task_name *)a)->name, ((const struct task_name *)b)->name);
}

/* The pointer stands at `then`. */
static void resolve_then(struct checker *checker, const struct task_name *names, size_t count, struct then *then)
{
	const struct task_name key = {.name = then->name}, *found;

	if (then->kind != THEN_TASK)
		return;
	found = bsearch(&key, names, count, sizeof *names, compare_task_names);
	if (found) {
		then->index = found->index;
		return;
	}
	const char *near = NULL;
	for (size_t i = 0; i < count && !near; i++)
		near = checker_near(then->name, &names[i].name, 1);
	checker_fail(checker,
		     near ? arena_printf(&checker->definition->arena, "did you mean '%s'?", near) : "continue, exit, end or the name of a task in the same list",
		     "there is no task '%.80s' in this list", then->name);
}

/* Jumps stay within their list. The pointer stands at the list. */
static void resolve_jumps(struct checker *checker, struct task_list *tasks, bool branches)
{
	struct task_name *names = memory_alloc((tasks->count + 1) * sizeof *names);
	size_t count = 0;

	for (size_t i = 0; i < tasks->count && !branches; i++) /* from a branch there is no way to another */
		if (tasks->tasks[i])
			names[count++] = (struct task_name){tasks->tasks[i]->name, i};
	qsort(names, count, sizeof *names, compare_task_names);
	for (size_t i = 0; i < tasks->count; i++) {
		struct task *task = tasks->tasks[i];
		size_t len, name_len, then_len;

		if (!task || (task->then.kind != THEN_TASK && task->case_count == 0))
			continue;
		len = checker_enter_index(checker, i);
		name_len = checker_enter(checker, task->name);
		then_len = checker_enter(checker, "then");
		resolve_then(checker, names, count, &task->then);
		checker_leave(checker, then_len);
		for (size_t k = 0; k < task->case_count; k++) {
			size_t switch_len = checker_enter(checker, "switch"), case_len = checker_enter_index(checker, k);

			if (task->cases[k].name) {
				checker_enter(checker, task->cases[k].name);
				checker_enter(checker, "then");
				resolve_then(checker, names, count, &task->cases[k].then);
			}
			checker_leave(checker, case_len);
			checker_leave(checker, switch_len);
		}
		checker_leave(checker, name_len);
		checker_leave(checker, len);
	}
	free(names);
}

/* The pointer stands at the list. */
static void read_task_list(struct checker *checker, struct task *parent, bool handler, const struct json *list)
{
	static const char *const directives[] = {"continue", "exit", "end"};

	if (json_is(list, JSON_OBJECT)) {
		checker_fail(checker, "write '- NAME:' before each task", "must be a list of tasks, not an object");
		return;
	}
	if (!checker_type(checker, list, JSON_ARRAY, false))
		return;
	task_list_make(checker->definition, handler ? &parent->handler : &parent->body, list->array.count);
	for (size_t i = 0; i < list->array.count; i++) {
		const struct json *item = list->array.items[i];
		size_t len = checker_enter_index(checker, i), inner_len;

		if (checker_type(checker, item, JSON_OBJECT, false) && item->object.count != 1) {
			checker_fail(checker, item->object.count == 0 ? NULL : "indent what belongs to the task; begin each task with '- '",
				     "an item of a task list has one key, the task's name; this one has %zu", item->object.count);
		} else if (json_is(item, JSON_OBJECT)) {
			const char *name = item->object.members[0].name;

			inner_len = checker_enter(checker, name);
			if (!*name)
				checker_fail_key(checker, NULL, "a task without a name");
			if (item->object.members[0].name_len > DEFINITION_TASK_NAME_MAX)
				checker_fail_key(checker, NULL, "a task's name has at most %d bytes", DEFINITION_TASK_NAME_MAX);
			for (size_t k = 0; k < COUNT_OF(directives); k++) {
				if (strcmp(directives[k], name) == 0)
					checker_fail_key(checker, NULL, "'%s' is a flow directive, it cannot name a task", name);
			}
			if (item->object.members[0].name_len <= DEFINITION_TASK_NAME_MAX)
				read_task(checker, parent, handler, i, name, item->object.members[0].value);
			checker_leave(checker, inner_len);
		}
		checker_leave(checker, len);
	}
	check_duplicate_names(checker, list);
	resolve_jumps(checker, handler ? &parent->handler : &parent->body, parent->kind == TASK_FORK);
}

/* ---- Whole definitions */

/* The part of `use` that this release has. What is here is checked here, used or not. */
static void read_use(struct checker *checker, const struct json *use)
{
	static const struct key keys[] = {
		{"errors", KEY_OPTIONAL, NULL}, {"authentications", KEY_OPTIONAL, NULL}, {"catalogs", KEY_LATER, NULL}, {"extensions", KEY_LATER, NULL},
		{"functions", KEY_OPTIONAL, NULL}, {"retries", KEY_OPTIONAL, NULL}, {"secrets", KEY_OPTIONAL, NULL}, {"timeouts", KEY_OPTIONAL, NULL},
	};
	static const char *const groups[] = {"errors", "retries", "timeouts"};
	const struct json *functions = json_get(use, "functions");
	size_t found, len, name_len;

	if (!checker_type(checker, use, JSON_OBJECT, false))
		return;
	checker_keys(checker, use, keys, COUNT_OF(keys), "'use'");
	for (size_t g = 0; g < COUNT_OF(groups); g++) {
		const struct json *group = json_get(use, groups[g]);

		if (!group)
			continue;
		len = checker_enter(checker, groups[g]);
		for (size_t i = 0; checker_type(checker, group, JSON_OBJECT, false) && i < group->object.count; i++) {
			const struct json *value = group->object.members[i].value;

			name_len = checker_enter(checker, group->object.members[i].name);
			if (g == 0) {
				check_error(checker, value);
			} else if (g == 1) { /* its expressions may name what a catch calls the error */
				checker->variables[checker->variable_count++] = "error";
				read_retry(checker, value);
				checker->variable_count--;
			} else {
				check_timeout(checker, value);
			}
			checker_leave(checker, name_len);
		}
		checker_leave(checker, len);
	}
	use_check(checker, use);
	found = checker->problems->errors;
	if (functions) {
		len = checker_enter(checker, "functions");
		check_functions(checker, functions);
		checker_leave(checker, len);
	}
	checker->function_errors = checker->problems->errors - found;
}

/* Of the workflow: evaluated once, when a run starts. There is no task then, and nothing was exported. */
static const struct json *read_root_timeout(struct checker *checker, const struct json *document)
{
	const char *kept[CHECKER_VARIABLES_MAX];
	const struct json *timeout;

	memcpy(kept, checker->variables, sizeof kept);
	for (size_t i = 0; i < checker->variable_count; i++)
		if (strcmp(checker->variables[i], "context") == 0 || strcmp(checker->variables[i], "task") == 0)
			checker->variables[i] = ""; /* No expression speaks of it. */
	timeout = read_timeout(checker, document);
	memcpy(checker->variables, kept, sizeof kept);
	return timeout;
}

/* `evaluate`: there is one language and one mode, which may be written out. The pointer stands at it. */
static void check_evaluate(struct checker *checker, const struct json *evaluate)
{
	static const struct key keys[] = {{"language", KEY_OPTIONAL, NULL}, {"mode", KEY_OPTIONAL, NULL}};
	static const char *const words[] = {"jq", "strict"}, *const hints[] = {"expressions are jq", "write '${ … }' around each expression"};

	if (!checker_type(checker, evaluate, JSON_OBJECT, false))
		return;
	checker_keys(checker, evaluate, keys, COUNT_OF(keys), "'evaluate'");
	for (size_t i = 0; i < COUNT_OF(keys); i++) {
		const struct json *value = json_get(evaluate, keys[i].name);
		size_t len = checker_enter(checker, keys[i].name);

		if (value && checker_type(checker, value, JSON_STRING, false) && strcmp(value->string.text, words[i]) != 0)
			checker_fail(checker, hints[i], "%s '%.40s' %s", keys[i].name, value->string.text, later);
		checker_leave(checker, len);
	}
}

static void read_root(struct checker *checker, const struct json *document)
{
	static const struct key keys[] = {
		{"document", KEY_REQUIRED, "document: {dsl: '1.0.3', namespace: …, name: …, version: '1.0.0'}"}, {"do", KEY_REQUIRED, NULL},
		{"input", KEY_OPTIONAL, NULL}, {"use", KEY_OPTIONAL, NULL}, {"timeout", KEY_OPTIONAL, NULL}, {"output", KEY_OPTIONAL, NULL},
		{"schedule", KEY_OPTIONAL, NULL}, {"evaluate", KEY_OPTIONAL, NULL},
	};
	struct definition *definition = checker->definition;
	size_t len;

	definition->root = arena_zero(&definition->arena, sizeof *definition->root);
	definition->root->kind = TASK_DO;
	definition->root->parallel = 1;
	definition->root->name = definition->root->reference = "";
	if (!checker_type(checker, document, JSON_OBJECT, false))
		return;
	checker_keys(checker, document, keys, COUNT_OF(keys), "a definition");
	if (json_get(document, "document")) {
		len = checker_enter(checker, "document");
		read_document(checker, json_get(document, "document"));
		checker_leave(checker, len);
	}
	if (json_get(document, "use")) {
		len = checker_enter(checker, "use");
		read_use(checker, json_get(document, "use"));
		checker_leave(checker, len);
	}
	if (json_get(document, "evaluate")) {
		len = checker_enter(checker, "evaluate");
		check_evaluate(checker, json_get(document, "evaluate"));
		checker_leave(checker, len);
	}
	definition->timeout = read_root_timeout(checker, document);
	read_transform(checker, &definition->root->input, document, "input", (const char *const[]){"context", "input", "task"}, 3);
	read_transform(checker, &definition->root->output, document, "output", (const char *const[]){"input", "task"}, 2);
	if (json_get(document, "do")) {
		len = checker_enter(checker, "do");
		read_task_list(checker, definition->root, false, json_get(document, "do"));
		checker_leave(checker, len);
	}
	definition->schedule = schedule_read(checker, document);
	/* An expansion at the end makes several at once. */
	if (definition->task_count > DEFINITION_TASKS_MAX && !checker->too_many_tasks)
		checker_fail(checker, NULL, "more than %d tasks", DEFINITION_TASKS_MAX);
}

/* In the order of the text; what has no position keeps its place among its like. Few, so simple. */
void problems_sort(struct problems *problems, size_t first)
{
	for (size_t i = first + 1; i < problems->count; i++) {
		struct problem moved = problems->items[i];
		size_t at = i;

		for (; at > first && moved.line > 0; at--) {
			const struct problem *before = &problems->items[at - 1];

			if (before->line < moved.line || (before->line == moved.line && before->column <= moved.column))
				break;
			problems->items[at] = *before;
		}
		problems->items[at] = moved;
	}
}

/* definition->document is set: check it and build the tasks. NULL and freed when it is bad. */
static struct definition *finish(struct definition *definition, const struct text_positions *positions, bool is_stored, struct problems *problems)
{
	static const char *const variables[] = {"context", "input", "workflow", "task", "runtime"};
	struct checker *checker = memory_zero(sizeof *checker);
	size_t errors = problems->errors, first = problems->count;

	checker->definition = definition;
	checker->problems = problems;
	checker->is_stored = is_stored;
	checker->positions = definition->positions = positions;
	buffer_init(&checker->pointer, 4 * DEFINITION_SOURCE_MAX); /* every byte of the source escaped, and indexes */
	memcpy(checker->variables, variables, sizeof variables);
	checker->variable_count = COUNT_OF(variables);
	read_root(checker, definition->document);
	problems_sort(problems, first);
	buffer_close(&checker->pointer);
	free(checker);
	if (problems->errors > errors) {
		definition_free(definition);
		return NULL;
	}
	definition->digest = json_digest(definition->document);
	return definition;
}

static struct definition *definition_new(void)
{
	struct definition *definition = memory_zero(sizeof *definition);

	arena_init(&definition->arena);
	definition->use_count = 1;
	return definition;
}

struct definition *definition_load(struct bytes source, enum text_format format, struct problems *problems)
{
	struct definition *definition = definition_new();
	struct text_positions *positions;

	definition->document = text_load(&definition->arena, source, format, &positions, problems);
	if (!definition->document) {
		definition_free(definition);
		return NULL;
	}
	definition->source = arena_bytes(&definition->arena, source);
	return finish(definition, positions, false, problems);
}

static struct definition *load_document(const struct json *document, bool is_stored, struct problems *problems)
{
	struct definition *definition;

	if (!text_check_values(document, NULL, problems))
		return NULL;
	definition = definition_new();
	definition->document = json_copy(&definition->arena, document);
	definition->source = json_print_arena(definition->document, &definition->arena);
	return finish(definition, NULL, is_stored, problems);
}

struct definition *definition_load_json(const struct json *document, struct problems *problems)
{
	return load_document(document, false, problems);
}

struct definition *definition_load_stored(const struct json *document, struct problems *problems)
{
	return load_document(document, true, problems);
}

void definition_free(struct definition *definition)
{
	if (!definition)
		return;
	for (struct definition_schema *link = definition->schemas; link; link = link->next)
		json_schema_free(link->schema);
	arena_close(&definition->arena);
	free(definition);
}

/* A reference says each task's place in its list, so nothing is searched: the fold asks for every entry. */
const struct task *definition_find_task(const struct definition *definition, const char *reference)
{
	const struct task *task = definition->root;
	size_t len = 0;

	while (reference[len] != '\0') {
		if (task->kind == TASK_LISTEN) { /* its one task has no place and no name */
			if (task->body.count == 0 || !task->body.tasks[0])
				return NULL;
			task = task->body.tasks[0];
			len = strlen(task->reference);
			if (strncmp(task->reference, reference, len) != 0 || (reference[len] != '\0' && reference[len] != '/'))
				return NULL;
			continue;
		}
		bool handler = task->kind == TASK_TRY && strncmp(reference + len, "/catch/", 7) == 0;
		const struct task_list *tasks = handler ? &task->handler : &task->body;
		const char *at = reference + len, *segment = task_list_segment(task, handler);
		size_t index = 0, segment_len = strlen(segment);

		if (*at != '/' || strncmp(at + 1, segment, segment_len) != 0 || at[1 + segment_len] != '/')
			return NULL;
		for (at += segment_len + 2; *at >= '0' && *at <= '9' && index < tasks->count; at++)
			index = index * 10 + (size_t)(*at - '0');
		if (index >= tasks->count)
			return NULL;
		task = tasks->tasks[index];
		len = strlen(task->reference);
		if (strncmp(task->reference, reference, len) != 0 || (reference[len] != '\0' && reference[len] != '/'))
			return NULL;
	}
	return task;
}
