/* Random workflows over the constructs of this release, as YAML or JSON text, and inputs for them.
 *
 * Every task but the results of loops and extractions gives an object with the members list, short, n and doc, so that
 * the next one finds what its expressions name. What would grow without bound is cut: inside loops results are not carried on. */
#include "tests/simulation/simulation.h"

#include <string.h>

enum { PROGRAM_TASKS_MAX = 14, PROGRAM_LOOPS_MAX = 3 };

struct program {
	struct random *random;
	struct arena *arena;
	unsigned tasks; /* made so far, for names */
	unsigned loops; /* around this place */
	bool may_fail, may_run;
	unsigned tries, forks; /* around this place */
	bool stays; /* nothing ends it before its end */
	bool odd_input; /* the next task gets what a loop or an extraction gave */
	bool always; /* the next task has no `if`: something waits for what it gives */
	bool fails_by_item; /* the next call does, where the item is a number */
};

static bool chance(struct program *p, unsigned per_mille)
{
	return random_chance(p->random, per_mille);
}

static struct json *padding(struct program *p, size_t len)
{
	char *bytes = arena_alloc(p->arena, len + 1);

	/* Different each time: equal content would be stored once, and loaded once. */
	for (size_t i = 0; i < len; i++)
		bytes[i] = (char)('a' + random_below(p->random, 26));
	bytes[len] = 0;
	return json_text(p->arena, bytes);
}

static size_t padding_len(struct random *random)
{
	uint64_t dice = random_below(random, 10);

	return dice < 5 ? random_between(random, 1, 60) : dice < 8 ? random_between(random, VALUE_INLINE_MAX, 8000) : random_between(random, CONTENT_SMALL_MAX, 22000);
}

static void set_expression(struct program *p, struct json *object, const char *name, const char *expression)
{
	json_set_text(p->arena, object, name, arena_printf(p->arena, "${ %s }", expression));
}

static const char *pick(struct program *p, const char *const *words, size_t count)
{
	return words[random_below(p->random, count)];
}
#define PICK(p, ...) pick(p, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static const char *condition(struct program *p)
{
	if (p->loops && chance(p, 400))
		return arena_printf(p->arena, "$at%u %s", p->loops, PICK(p, "< 2", "== 1", "!= 0", "> 2"));
	if (chance(p, 250))
		return shape_condition(p->random);
	return PICK(p, ".n < 5", ".n != 3", "${ .n > 2 }", "$workflow.input.n > 4", ".nothing", "${ .short[0] }", ".n == 7");
}

static struct json *duration(struct program *p);
static void set_schema(struct program *p, struct json *owner, const char *keyword, struct json *value)
{
	struct json *schema = json_object(p->arena), *document = json_object(p->arena);

	json_set(p->arena, document, keyword, value);
	json_set(p->arena, schema, "document", document);
	json_set(p->arena, owner, "schema", schema);
}

/* Fits but for some n, where runs may fail. */
static void add_schema(struct program *p, struct json *owner)
{
	struct json *value = json_object(p->arena), *n = json_object(p->arena);

	json_set_number(p->arena, n, "maximum", p->may_fail && chance(p, 400) ? 7 : 1000);
	json_set(p->arena, value, "n", n);
	set_schema(p, owner, "properties", value);
}

/* The usual object, put together anew. */
static struct json *usual_object(struct program *p)
{
	struct json *object = json_object(p->arena);

	set_expression(p, object, "list", ".list");
	set_expression(p, object, "short", ".short");
	set_expression(p, object, "doc", ".doc");
	set_expression(p, object, "n", ".n");
	return object;
}

/* Data flow around any task: what it gives and gets stays what its neighbours expect. */
static void add_data_flow(struct program *p, const char *kind, struct json *task)
{
	struct json *input = json_object(p->arena), *output = json_object(p->arena), *export = json_object(p->arena), *made;
	bool odd_output = strcmp(kind, "for") == 0 || strcmp(kind, "fork") == 0 || strcmp(kind, "extraction") == 0 || strcmp(kind, "emit") == 0 || strcmp(kind, "listen") == 0 || (p->odd_input && strcmp(kind, "switch") == 0);

	if (!p->odd_input && chance(p, 150)) {
		if (chance(p, 500)) {
			json_set_text(p->arena, input, "from", PICK(p, ".", "${ . }", "$task.input"));
		} else {
			made = usual_object(p);
			if (chance(p, 500))
				set_expression(p, made, "seen", PICK(p, "$context.n", "$task.name", "$context"));
			if (chance(p, 150))
				set_expression(p, made, "computed", shape_value(p->random, p->arena, p->loops));
			json_set(p->arena, input, "from", made);
		}
		if (chance(p, 400))
			add_schema(p, input);
		json_set(p->arena, task, "input", input);
	}
	if (chance(p, 150)) {
		made = usual_object(p);
		if (odd_output || chance(p, 300)) {
			json_set_text(p->arena, output, "as", PICK(p, ".", "${ $task.output }"));
		} else {
			if (chance(p, 500) && !p->odd_input)
				set_expression(p, made, "seen", PICK(p, "$input.n", "$task.input.n", "$task.output.n", "$context.n"));
			if (chance(p, 150))
				set_expression(p, made, "computed", shape_value(p->random, p->arena, p->loops));
			json_set(p->arena, output, "as", made);
		}
		if (!odd_output && chance(p, 300))
			add_schema(p, output);
		if (p->may_fail && chance(p, 60))
			json_set_text(p->arena, output, "as", "$task.name.of.a.text");
		json_set(p->arena, task, "output", output);
	}
	if (chance(p, 250)) {
		made = json_object(p->arena);
		set_expression(p, made, "by", "$task.name");
		if (!odd_output)
			set_expression(p, made, "n", PICK(p, ".n", "$output.n"));
		if (chance(p, 300))
			set_expression(p, made, "was", "$context.n");
		if (!odd_output && chance(p, 100))
			set_expression(p, made, "counted", shape_number(p->random, p->arena, p->loops));
		if (p->loops && chance(p, 300))
			set_expression(p, made, "at", arena_printf(p->arena, "$at%u", p->loops));
		if (!odd_output && !p->loops && chance(p, 100))
			set_expression(p, made, "doc", ".doc");
		json_set(p->arena, export, "as", made);
		if (chance(p, 200))
			add_schema(p, export);
		json_set(p->arena, task, "export", export);
	}
	p->odd_input = false;
}

/* Returns its name. */
static const char *add_task(struct program *p, struct json *list, const char *kind, struct json *task)
{
	struct json *item = json_object(p->arena);
	const char *name = arena_printf(p->arena, "%s%u%s", kind, p->tasks++, chance(p, 60) ? "/~#1@2" : "");

	if (!p->always && chance(p, 100))
		json_set_text(p->arena, task, "if", condition(p));
	if (p->may_fail && chance(p, 80)) {
		struct json *timeout = json_object(p->arena);
		json_set(p->arena, timeout, "after", duration(p));
		json_set(p->arena, task, "timeout", chance(p, 300) ? json_text(p->arena, "soon") : timeout);
	}
	p->always = false;
	if (strcmp(kind, "raise") != 0)
		add_data_flow(p, kind, task);
	p->odd_input = false;
	json_set(p->arena, item, name, task);
	json_add(p->arena, list, item);
	return name;
}

/* results: the input is an array (of a loop) or the answer of an extraction, not the usual object. */
static void add_set(struct program *p, struct json *list, const char *from)
{
	struct json *task = json_object(p->arena), *set = json_object(p->arena);

	if (from) {
		set_expression(p, set, "results", from);
		set_expression(p, set, "list", p->loops ? "$workflow.input.short" : "$workflow.input.list");
		set_expression(p, set, "short", "$workflow.input.short");
		set_expression(p, set, "doc", "$workflow.input.doc");
		json_set_number(p->arena, set, "n", (double)random_below(p->random, 10));
	} else {
		set_expression(p, set, "list", p->loops ? ".short" : PICK(p, ".list", "$input.list", "$workflow.input.list", "$input[\"list\"]"));
		set_expression(p, set, "short", ".short");
		set_expression(p, set, "doc", PICK(p, ".doc", "$workflow.input.doc"));
		if (chance(p, 500))
			set_expression(p, set, "n", p->loops ? arena_printf(p->arena, "$at%u", p->loops) : ".n");
		else
			json_set_number(p->arena, set, "n", (double)random_below(p->random, 10));
		if (!p->loops && chance(p, 500))
			set_expression(p, set, "results", ".results");
	}
	if (!from && chance(p, 500)) /* tells inputs apart: of a chained loop, from iteration to iteration */
		set_expression(p, set, "before", ".n");
	if (p->loops && chance(p, 600))
		set_expression(p, set, "item", arena_printf(p->arena, "$row%u", (unsigned)random_between(p->random, 1, p->loops)));
	if (chance(p, 300))
		set_expression(p, set, "id", "$workflow.id");
	if (chance(p, 200))
		set_expression(p, set, "when", PICK(p, "$workflow.startedAt.iso8601", "$task.reference", "$runtime.version", "$context", "$context.n", "$context.by", "$task.name"));
	if (chance(p, 200))
		set_expression(p, set, "more", from && !chance(p, p->stays ? 0 : 200) ? "true" /* a path into an array faults */ : PICK(p, ".n < 5", ".short[0]", ".short[-1]", ".nothing.at.all", ".n == 3", "true"));
	if (chance(p, p->loops ? 60 : 250))
		json_set(p->arena, set, "pad", padding(p, padding_len(p->random)));
	if (!p->loops && chance(p, 200))
		set_expression(p, set, "pad", "$workflow.input.pad");
	if (!from && chance(p, 250))
		set_expression(p, set, "computed", shape_value(p->random, p->arena, p->loops));
	if (!from && chance(p, 150)) /* two in one template are asked for at once */
		set_expression(p, set, "counted", shape_value(p->random, p->arena, p->loops));
	if (!from && chance(p, 100))
		set_expression(p, set, "n", shape_number(p->random, p->arena, p->loops));
	if (p->may_fail && chance(p, 150))
		set_expression(p, set, "bad", PICK(p, ".n.of.a.number", ".doc - 1"));
	json_set(p->arena, task, "set", set);
	p->odd_input = from != NULL;
	p->always |= from && p->stays; /* an `if` may be a path into an array too */
	add_task(p, list, "set", task);
}

static const char *add_call(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena), *with = json_object(p->arena);

	if (p->fails_by_item || chance(p, 500)) {
		json_set_text(p->arena, task, "call", "http");
		json_set_text(p->arena, with, "method", "post");
		json_set_text(p->arena, with, "endpoint", PICK(p, "http://peer.example/{n}", "http://peer.example/all"));
		struct json *body = json_object(p->arena);
		set_expression(p, body, "short", ".short");
		if (chance(p, 150))
			set_expression(p, body, "all", ".");
		json_set(p->arena, with, "body", body);
	} else {
		json_set_text(p->arena, task, "call", "inference");
		json_set_text(p->arena, with, "runtime", "model");
		if (chance(p, 200))
			set_expression(p, with, "prompt", "$workflow.input.pad");
		else
			set_expression(p, with, "prompt", ".doc");
	}
	/* An item that is a number has no members: this iteration faults, others are under way already. */
	if (p->may_fail && p->loops && json_get(with, "body") && (p->fails_by_item || chance(p, 400)))
		set_expression(p, json_get(with, "body"), "row", arena_printf(p->arena, "$row%u.member", p->loops));
	p->fails_by_item = false;
	json_set(p->arena, task, "with", with);
	return add_task(p, list, "call", task);
}

static void add_extraction(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena), *with = json_object(p->arena);

	json_set_text(p->arena, task, "call", "extraction");
	json_set_text(p->arena, with, "runtime", "model");
	set_expression(p, with, "document", ".doc");
	if (chance(p, 250))
		json_set_text(p->arena, with, "onFailure", "fault");
	json_set(p->arena, task, "with", with);
	add_task(p, list, "extraction", task);
	add_set(p, list, ".");
}

static struct json *make_list(struct program *p, unsigned count);

/* A child, which gives the usual object as well; now and then nobody waits for it. */
static void add_run(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena), *run = json_object(p->arena), *workflow = json_object(p->arena), *input = usual_object(p);

	json_set_text(p->arena, workflow, "namespace", "simulation");
	json_set_text(p->arena, workflow, "name", arena_printf(p->arena, "program-%d", WORLD_DEFINITIONS - 1));
	if (chance(p, 500))
		json_set_text(p->arena, workflow, "version", PICK(p, "1.0.0", "latest"));
	set_expression(p, input, "list", ".short");
	set_expression(p, input, "pad", "$workflow.input.pad");
	set_expression(p, input, "pause", "$workflow.input.pause");
	json_set(p->arena, workflow, "input", input);
	json_set(p->arena, run, "workflow", workflow);
	if (chance(p, 400))
		json_set_boolean(p->arena, run, "await", chance(p, 400));
	json_set(p->arena, task, "run", run);
	add_task(p, list, "run", task);
}

static void add_case(struct program *p, struct json *cases, const char *name, const char *when, const char *then)
{
	struct json *item = json_object(p->arena), *at = json_object(p->arena);

	if (when)
		json_set_text(p->arena, at, "when", when);
	json_set_text(p->arena, at, "then", then);
	json_set(p->arena, item, name, at);
	json_add(p->arena, cases, item);
}

/* Ask until the answer is good: each time is an execution of its own, so the peer answers something else. */
static void add_polling(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena), *cases = json_array(p->arena);
	p->always = true;
	const char *call = add_call(p, list);

	if (chance(p, 300))
		add_case(p, cases, "first", NULL, p->stays ? "continue" : PICK(p, "continue", "continue", "exit"));
	add_case(p, cases, "again", PICK(p, ".n < 4", "${ .n == 2 }"), call);
	if (chance(p, 200))
		add_case(p, cases, "enough", ".n == 9", p->stays ? "continue" : PICK(p, "exit", "end", "continue"));
	json_set(p->arena, task, "switch", cases);
	add_task(p, list, "switch", task);
}

/* A switch that counts n up through tasks behind it, each of which goes back; now and then with a loop in it, which is entered again. */
static void add_counting(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena), *cases = json_array(p->arena), *back, *set, *inside;
	unsigned steps = (unsigned)random_between(p->random, 1, 3), first = (unsigned)random_below(p->random, 8);
	const char *name = arena_printf(p->arena, "count%u", p->tasks++), *after = arena_printf(p->arena, "after%u", p->tasks++);
	struct json *item = json_object(p->arena);

	json_set(p->arena, task, "switch", cases);
	json_set(p->arena, item, name, task);
	json_add(p->arena, list, item);
	for (unsigned i = 0; i < steps; i++) {
		const char *step = arena_printf(p->arena, "step%u", p->tasks++);
		add_case(p, cases, step, arena_printf(p->arena, ".n == %u", first + i), step);
		back = json_object(p->arena);
		inside = json_array(p->arena);
		if (chance(p, 500) && p->tasks < PROGRAM_TASKS_MAX) { /* entered again and again; whatever leaves its list, n is counted */
			struct json *again = json_object(p->arena);
			json_set(p->arena, again, "do", make_list(p, 2));
			p->always = true;
			add_task(p, inside, "do", again);
		}
		struct json *counted = json_object(p->arena), *counts = json_object(p->arena);
		set = json_object(p->arena);
		set_expression(p, set, "list", "$workflow.input.short");
		set_expression(p, set, "short", "$workflow.input.short");
		set_expression(p, set, "doc", "$workflow.input.doc");
		json_set_number(p->arena, set, "n", (double)(first + i + 1));
		json_set(p->arena, counts, "set", set);
		json_set(p->arena, counted, arena_printf(p->arena, "set%u", p->tasks++), counts);
		json_add(p->arena, inside, counted);
		json_set(p->arena, back, "do", inside);
		json_set_text(p->arena, back, "then", name);
		item = json_object(p->arena);
		json_set(p->arena, item, step, back);
		json_add(p->arena, list, item);
	}
	add_case(p, cases, "otherwise", NULL, after);
	item = json_object(p->arena);
	task = json_object(p->arena);
	set = json_object(p->arena);
	set_expression(p, set, "list", ".short");
	set_expression(p, set, "short", ".short");
	set_expression(p, set, "doc", ".doc");
	set_expression(p, set, "n", ".n");
	json_set(p->arena, task, "set", set);
	json_set(p->arena, item, after, task);
	json_add(p->arena, list, item);
}

static void add_raise(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena), *raise = json_object(p->arena), *error = json_object(p->arena);

	if (chance(p, 300)) {
		json_set_text(p->arena, raise, "error", "known");
	} else {
		json_set_text(p->arena, error, "type", PICK(p, "https://example.com/errors/a", "https://serverlessworkflow.io/spec/1.0.0/errors/validation"));
		json_set_number(p->arena, error, "status", 400 + (double)random_below(p->random, 20));
		set_expression(p, error, "title", "$workflow.id");
		if (chance(p, 500))
			json_set_text(p->arena, error, "detail", PICK(p, "as it is", "${ .doc }", "${ $task.name }"));
		json_set(p->arena, raise, "error", error);
	}
	json_set(p->arena, task, "raise", raise);
	json_set_text(p->arena, task, "if", condition(p));
	add_task(p, list, "raise", task);
}

static struct json *duration(struct program *p)
{
	struct json *object = json_object(p->arena);
	uint64_t dice = random_below(p->random, 100);

	if (dice < 30)
		return json_text(p->arena, PICK(p, "PT0.2S", "PT1S", "PT0S", "PT1M"));
	if (dice < 50)
		return json_text(p->arena, "${ $workflow.input.pause }");
	json_set_number(p->arena, object, dice < 90 ? "milliseconds" : "seconds", (double)random_between(p->random, 1, dice < 90 ? 900 : 20));
	return object;
}

static void add_wait(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena);

	json_set(p->arena, task, "wait", duration(p));
	add_task(p, list, "wait", task);
}

static struct json *retry_policy(struct program *p)
{
	struct json *retry = json_object(p->arena), *backoff = json_object(p->arena), *limit = json_object(p->arena), *attempt = json_object(p->arena), *jitter = json_object(p->arena);

	json_set(p->arena, retry, "delay", duration(p));
	json_set(p->arena, backoff, PICK(p, "constant", "linear", "exponential"), json_object(p->arena));
	if (chance(p, 700))
		json_set(p->arena, retry, "backoff", backoff);
	json_set_number(p->arena, attempt, "count", (double)random_between(p->random, 0, 3));
	json_set(p->arena, limit, "attempt", attempt);
	json_set(p->arena, retry, "limit", limit);
	if (chance(p, 400)) {
		json_set_text(p->arena, jitter, "from", "PT0S");
		json_set_text(p->arena, jitter, "to", "PT0.5S");
		json_set(p->arena, retry, "jitter", jitter);
	}
	return retry;
}

/* What may fail stands in it: a call, an expression, something raised. */
static void add_try(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena), *catch = json_object(p->arena), *errors = json_object(p->arena), *with = json_object(p->arena);
	bool may_fail = p->may_fail;

	p->may_fail = true;
	p->tries++;
	json_set(p->arena, task, "try", make_list(p, (unsigned)random_between(p->random, 1, 3)));
	if (chance(p, 300))
		add_raise(p, json_get(task, "try"));
	p->may_fail = may_fail;
	if (chance(p, 400)) {
		if (chance(p, 500))
			json_set_text(p->arena, with, "type", PICK(p, "https://serverlessworkflow.io/dsl/errors/types/expression", "https://open-workflow-specification.org/spec/1.0.0/errors/communication",
								   "https://serverlessworkflow.io.io/dsl/errors/types/timeout"));
		else
			json_set_number(p->arena, with, "status", 400 + (double)random_below(p->random, 3));
		json_set(p->arena, errors, "with", with);
		json_set(p->arena, catch, "errors", errors);
	}
	const char *as = chance(p, 400) ? arena_printf(p->arena, "caught%u", p->tries) : "error";
	if (strcmp(as, "error") != 0)
		json_set_text(p->arena, catch, "as", as);
	if (chance(p, 200))
		json_set_text(p->arena, catch, "when", PICK(p, ".status >= 400", ".title.of.it", arena_printf(p->arena, "$%s.status != 404", as)));
	if (chance(p, 150))
		json_set_text(p->arena, catch, "exceptWhen", ".status == 401");
	if (chance(p, 600))
		json_set(p->arena, catch, "retry", chance(p, 300) ? json_text(p->arena, "often") : retry_policy(p));
	if (chance(p, 600)) {
		struct json *handler = make_list(p, (unsigned)random_between(p->random, 1, 2));
		struct json *set = json_get(json_at(handler, json_count(handler) - 1)->object.members[0].value, "set");
		if (set && chance(p, 700))
			set_expression(p, set, "error", arena_printf(p->arena, "$%s%s", as, PICK(p, "", ".title", ".instance")));
		json_set(p->arena, catch, "do", handler);
	}
	p->tries--;
	json_set(p->arena, task, "catch", catch);
	add_task(p, list, "try", task);
}

/* Branches side by side; when they compete one gives the usual object, else there is an array of them. */
static void add_fork(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena), *fork = json_object(p->arena), *branches = json_array(p->arena);
	bool compete = chance(p, 450);

	p->forks++;
	for (uint64_t i = random_between(p->random, 1, 3); i > 0; i--) {
		if (chance(p, 400)) {
			add_call(p, branches);
			continue;
		}
		struct json *branch = json_object(p->arena);
		json_set(p->arena, branch, "do", make_list(p, (unsigned)random_between(p->random, 1, 2)));
		if (!p->stays && chance(p, 60))
			json_set_text(p->arena, branch, "then", PICK(p, "exit", "end", "continue"));
		add_task(p, branches, "branch", branch);
	}
	p->forks--;
	json_set(p->arena, fork, "branches", branches);
	if (compete || chance(p, 300))
		json_set_boolean(p->arena, fork, "compete", compete);
	json_set(p->arena, task, "fork", fork);
	add_task(p, list, "fork", task);
	if (!compete)
		add_set(p, list, ".");
}

static struct json *make_filter(struct program *p, bool correlates)
{
	struct json *filter = json_object(p->arena), *with = json_object(p->arena), *correlate = json_object(p->arena), *room = json_object(p->arena);

	json_set_text(p->arena, with, "type", PICK(p, "t0", "t1", "t2", "t3", "^t[01]$", "emitted"));
	if (chance(p, 200))
		json_set_text(p->arena, with, "source", PICK(p, "/sensor", "/other"));
	if (strcmp(json_get_text(with, "type"), "emitted") == 0) /* nobody may emit one: any event is better than none */
		json_remove(with, "type");
	if (chance(p, 300) || json_count(with) == 0)
		json_set_text(p->arena, with, "data", PICK(p, "${ .n > 3 }", "${ .n < 7 }", "${ (.n + 0) % 2 == 0 }"));
	json_set(p->arena, filter, "with", with);
	if (correlates) {
		json_set_text(p->arena, room, "from", PICK(p, ".room", "${ .room }"));
		if (chance(p, 150))
			json_set_text(p->arena, room, "expect", "r1");
		json_set(p->arena, correlate, "room", room);
		json_set(p->arena, filter, "correlate", correlate);
	}
	return filter;
}

static struct json *make_filters(struct program *p)
{
	struct json *filters = json_array(p->arena);
	bool correlates = chance(p, 300);

	for (uint64_t i = random_between(p->random, 1, 3); i > 0; i--)
		json_add(p->arena, filters, make_filter(p, correlates));
	if (correlates) /* what one of them expects all of them do; the matcher of the simulation looks at each alone */
		for (size_t i = 0; i < json_count(filters); i++)
			json_remove(json_get(json_get(json_at(filters, i), "correlate"), "room"), "expect");
	return filters;
}

static void add_listen(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena), *listen = json_object(p->arena), *to = json_object(p->arena), *until, *foreach = json_object(p->arena);
	uint64_t dice = random_below(p->random, 100);

	if (dice < 25) {
		json_set(p->arena, to, "one", make_filter(p, chance(p, 300)));
	} else if (dice < 45) {
		json_set(p->arena, to, "all", make_filters(p));
	} else {
		json_set(p->arena, to, "any", chance(p, 300) ? json_array(p->arena) : make_filters(p));
		if (dice < 65) {
			json_set_text(p->arena, to, "until", PICK(p, ".[1]", "${ .[2] }", ".[0]", "true"));
		} else if (dice < 85) {
			until = json_object(p->arena);
			if (chance(p, 600))
				json_set(p->arena, until, "one", make_filter(p, false));
			else
				json_set(p->arena, until, "all", make_filters(p));
			json_set(p->arena, to, "until", until);
		}
	}
	json_set(p->arena, listen, "to", to);
	if (chance(p, 500) || json_is(json_get(to, "until"), JSON_STRING)) /* an event without data would never let `.[1]` hold */
		json_set_text(p->arena, listen, "read", json_is(json_get(to, "until"), JSON_STRING) ? "envelope" : PICK(p, "data", "envelope", "raw"));
	json_set(p->arena, task, "listen", listen);
	if (p->loops < PROGRAM_LOOPS_MAX && chance(p, 400)) {
		p->loops++;
		json_set_text(p->arena, foreach, "item", arena_printf(p->arena, "row%u", p->loops));
		json_set_text(p->arena, foreach, "at", arena_printf(p->arena, "at%u", p->loops));
		if (chance(p, 850))
			json_set(p->arena, foreach, "do", make_list(p, (unsigned)random_between(p->random, 1, 2)));
		if (chance(p, 300)) {
			struct json *output = json_object(p->arena), *as = json_object(p->arena);
			set_expression(p, as, "at", arena_printf(p->arena, "$at%u", p->loops));
			set_expression(p, as, "seen", "$context.n");
			json_set(p->arena, output, "as", as);
			json_set(p->arena, foreach, "output", output);
		}
		if (p->forks == 0 && chance(p, 300)) {
			struct json *export = json_object(p->arena), *as = json_object(p->arena);
			set_expression(p, as, "n", arena_printf(p->arena, "$at%u", p->loops));
			json_set(p->arena, export, "as", as);
			json_set(p->arena, foreach, "export", export);
		}
		p->loops--;
		json_set(p->arena, task, "foreach", foreach);
	}
	add_task(p, list, "listen", task);
	add_set(p, list, ".");
}

static void add_emit(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena), *emit = json_object(p->arena), *event = json_object(p->arena), *with = json_object(p->arena), *data = json_object(p->arena);

	json_set_text(p->arena, with, "type", PICK(p, "t0", "t1", "t2", "emitted"));
	if (chance(p, 500))
		json_set_text(p->arena, with, "source", PICK(p, "/sensor", "/run"));
	if (chance(p, 500))
		json_set_text(p->arena, with, "room", PICK(p, "r0", "r1", "r2"));
	set_expression(p, data, "n", ".n");
	if (chance(p, 300))
		set_expression(p, data, "computed", shape_value(p->random, p->arena, p->loops));
	if (p->may_fail && chance(p, 100))
		set_expression(p, data, "bad", ".doc - 1");
	json_set(p->arena, with, "data", data);
	json_set(p->arena, event, "with", with);
	json_set(p->arena, emit, "event", event);
	json_set(p->arena, task, "emit", emit);
	add_task(p, list, "emit", task);
	add_set(p, list, ".");
}

/* Some tasks that give the usual object leave their list's order: forward, out of it, or to the end of all. */
static void add_jumps(struct program *p, struct json *list)
{
	for (size_t i = 0; i + 1 < json_count(list); i++) {
		struct json *task = json_at(list, i)->object.members[0].value;
		if ((!json_get(task, "set") && !json_get(task, "call") && !json_get(task, "do")) || json_get(task, "for") || json_get(task, "then") || !chance(p, 120))
			continue;
		const char *call = json_get_text(task, "call");
		if (call && strcmp(call, "extraction") == 0)
			continue;
		uint64_t dice = random_below(p->random, 100);
		const struct json *target = json_at(list, random_between(p->random, i + 1, json_count(list) - 1));
		json_set_text(p->arena, task, "then", p->stays ? target->object.members[0].name : dice < 10 ? "end" : dice < 35 ? "exit" : dice < 45 ? "continue" : target->object.members[0].name);
	}
}

static void add_loop(struct program *p, struct json *list)
{
	struct json *task = json_object(p->arena), *loop = json_object(p->arena), *metadata = json_object(p->arena);
	bool map = chance(p, 600);

	json_set_text(p->arena, loop, "each", arena_printf(p->arena, "row%u", p->loops + 1));
	json_set_text(p->arena, loop, "at", arena_printf(p->arena, "at%u", p->loops + 1));
	json_set_text(p->arena, loop, "in", p->loops ? PICK(p, "${ .short }", "${ .short }", shape_items(true)) : PICK(p, "${ .list }", "${ .list }", ".short", shape_items(false)));
	json_set(p->arena, task, "for", loop);
	if (map) {
		json_set_number(p->arena, metadata, "concurrency", (double)random_between(p->random, 1, 8));
		json_set(p->arena, task, "metadata", metadata);
	} else if (chance(p, 400)) {
		const char *condition = chance(p, 500) ? arena_printf(p->arena, "$at%u < %u", p->loops + 1, (unsigned)random_below(p->random, 5)) : chance(p, 500) ? shape_condition(p->random) : ".n != 7";
		json_set_text(p->arena, task, "while", arena_printf(p->arena, "${ %s }", condition));
	}
	p->loops++;
	if (chance(p, 50)) { /* nothing to do in it: its input comes out, so only few items */
		json_set_text(p->arena, loop, "in", "${ .short }");
		json_set(p->arena, task, "do", json_array(p->arena));
	} else if (p->fails_by_item) {
		struct json *body = json_array(p->arena);
		add_call(p, body);
		json_set(p->arena, task, "do", body);
	} else {
		json_set(p->arena, task, "do", make_list(p, (unsigned)random_between(p->random, 1, 3)));
	}
	p->loops--;
	add_task(p, list, "for", task);
	if (map)
		add_set(p, list, ".");
}

/* The last one is a set or a call, so that what an iteration gives stays small. */
static struct json *make_list(struct program *p, unsigned count)
{
	struct json *list = json_array(p->arena);

	for (unsigned i = 1; i < count && p->tasks < PROGRAM_TASKS_MAX; i++) {
		uint64_t dice = random_below(p->random, 125);
		if (dice >= 118) {
			add_emit(p, list);
		} else if (dice >= 109 && p->loops < 2) {
			add_listen(p, list);
		} else if (dice >= 100 && p->tries < 2) {
			add_try(p, list);
		} else if (dice < 25 && p->loops < PROGRAM_LOOPS_MAX) {
			add_loop(p, list);
		} else if (dice < 40) {
			struct json *task = json_object(p->arena);
			json_set(p->arena, task, "do", make_list(p, (unsigned)random_between(p->random, 1, 3)));
			add_task(p, list, "do", task);
		} else if (dice < 50 && p->loops < 2) {
			add_extraction(p, list);
		} else if (dice < 68) {
			add_call(p, list);
		} else if (dice < 76) {
			add_polling(p, list);
		} else if (dice < 82 && p->loops < 2) {
			add_counting(p, list);
		} else if (dice < 85 && p->may_fail) {
			add_raise(p, list);
		} else if (dice < 89) {
			add_wait(p, list);
		} else if (dice < 94 && p->tries < 2) {
			add_try(p, list);
		} else if (dice < 97 && p->may_run && p->loops < 2) {
			add_run(p, list);
		} else if (p->forks < 2 && p->loops < 2) {
			add_fork(p, list);
		} else {
			add_set(p, list, NULL);
		}
	}
	if (chance(p, 600))
		add_call(p, list);
	else
		add_set(p, list, NULL);
	add_jumps(p, list);
	return list;
}

static void print_yaml(const struct json *json, unsigned indent, struct buffer *out)
{
	bool is_object = json_is(json, JSON_OBJECT);

	if ((!is_object && !json_is(json, JSON_ARRAY)) || json_count(json) == 0) {
		buffer_add_char(out, ' ');
		json_print(json, out);
		return;
	}
	for (size_t i = 0; i < json_count(json); i++) {
		buffer_printf(out, "\n%*s", (int)indent, "");
		if (is_object) {
			json_print_string(json->object.members[i].name, json->object.members[i].name_len, out);
			buffer_add_char(out, ':');
		} else {
			buffer_add_char(out, '-');
		}
		print_yaml(is_object ? json->object.members[i].value : json_at(json, i), indent + 2, out);
	}
}

struct bytes program_make(struct world *world, struct arena *arena, unsigned number, enum text_format *format)
{
	struct program p = {.random = &world->random, .arena = arena, .may_fail = number == 2, .may_run = number < WORLD_DEFINITIONS - 1, .stays = number == 0 || number == WORLD_DEFINITIONS - 1,
			    .tries = number == 0 ? 2 : 0, .tasks = number == WORLD_DEFINITIONS - 1 ? PROGRAM_TASKS_MAX - 4 : 0};
	struct json *program = json_object(arena), *document = json_object(arena), *list;
	struct buffer out;

	json_set_text(arena, document, "dsl", "1.0.3");
	json_set_text(arena, document, "namespace", "simulation");
	json_set_text(arena, document, "name", arena_printf(arena, "program-%u", number));
	json_set_text(arena, document, "version", "1.0.0");
	json_set(arena, program, "document", document);
	list = make_list(&p, (unsigned)random_between(p.random, 2, 6));
	bool is_child = number == WORLD_DEFINITIONS - 1;
	if (is_child) {
		if (chance(&p, 300))
			add_raise(&p, list);
		if (chance(&p, 500))
			add_wait(&p, list);
		if (chance(&p, 60)) /* itself, as deep as it goes */
			add_run(&p, list);
		add_call(&p, list);
	} else {
		add_run(&p, list);
		add_set(&p, list, NULL);
	}
	if (number > 0 && !is_child) {
		if (chance(&p, 500))
			add_fork(&p, list);
		if (chance(&p, 600))
			add_listen(&p, list);
		add_try(&p, list);
		if (chance(&p, 300))
			add_emit(&p, list);
		add_wait(&p, list);
		add_set(&p, list, NULL);
	}
	if (number == 2) {
		p.fails_by_item = true;
		add_loop(&p, list);
	}
	if (number == 0) { /* always there: something to wait for, in parallel and in turn */
		add_loop(&p, list);
		add_call(&p, list);
	}
	json_set(arena, program, "do", list);
	struct json *use = json_object(arena), *errors = json_object(arena), *known = json_object(arena);
	json_set_text(arena, known, "type", "https://serverlessworkflow.io/dsl/errors/types/timeout");
	json_set_number(arena, known, "status", 408);
	json_set_text(arena, known, "title", "${ $task.name }");
	json_set(arena, errors, "known", known);
	json_set(arena, use, "errors", errors);
	struct json *retries = json_object(arena), *timeouts = json_object(arena), *soon = json_object(arena);
	json_set(arena, retries, "often", retry_policy(&p));
	json_set(arena, use, "retries", retries);
	json_set(arena, soon, "after", duration(&p));
	json_set(arena, timeouts, "soon", soon);
	json_set(arena, use, "timeouts", timeouts);
	if (number == 2 && random_chance(p.random, 300)) {
		struct json *timeout = json_object(arena);
		json_set_text(arena, timeout, "after", random_chance(p.random, 500) ? "PT8S" : "${ $workflow.input.pause }");
		json_set(arena, program, "timeout", timeout);
	}
	json_set(arena, program, "use", use);
	struct program flow = {.random = &world->random, .arena = arena, .may_fail = number == 2};
	struct json *input = json_object(arena), *output = json_object(arena);
	if (chance(&flow, 300)) {
		json_set(arena, input, "from", usual_object(&flow));
		json_set_boolean(arena, json_get(input, "from"), "from", true);
	}
	if (chance(&flow, 200))
		add_schema(&flow, input);
	if (json_count(input) > 0)
		json_set(arena, program, "input", input);
	if (!is_child && chance(&flow, 300)) { /* a child gives the usual object, whoever runs it */
		struct json *all = json_object(arena);
		set_expression(&flow, all, "out", ".");
		set_expression(&flow, all, "context", "$context");
		json_set(arena, output, "as", all);
	} else if (!is_child && chance(&flow, 200)) {
		add_schema(&flow, output);
	}
	if (json_count(output) > 0)
		json_set(arena, program, "output", output);

	buffer_init(&out, DEFINITION_SOURCE_MAX);
	*format = random_chance(p.random, 500) ? TEXT_YAML : TEXT_JSON;
	if (*format == TEXT_YAML)
		print_yaml(program, 0, &out);
	else
		json_print(program, &out);
	CHECK(!out.overflow);
	struct bytes source = arena_bytes(arena, buffer_bytes(&out));
	buffer_close(&out);
	return source;
}

/* Numbers; or objects, with perhaps a number among them. */
static struct json *items(struct program *p, size_t count)
{
	struct json *list = json_array(p->arena);
	bool objects = chance(p, 500);

	for (size_t i = 0; i < count; i++) {
		struct json *object = json_object(p->arena);
		json_set_number(p->arena, object, "member", (double)i);
		json_add(p->arena, list, objects && chance(p, 900) ? object : json_number(p->arena, (double)random_below(p->random, 100)));
	}
	return list;
}

struct bytes program_input(struct world *world, struct arena *arena)
{
	struct program p = {.random = &world->random, .arena = arena};
	struct json *input = json_object(arena);

	json_set(arena, input, "list", items(&p, random_chance(p.random, 100) ? random_below(p.random, 41) : random_below(p.random, 9)));
	json_set(arena, input, "short", items(&p, random_below(p.random, 4)));
	json_set_number(arena, input, "n", (double)random_below(p.random, 10));
	json_set_text(arena, input, "pause", PICK(&p, "PT0.05S", "PT2S", "PT10S", "PT0S"));
	json_set(arena, input, "doc", padding(&p, padding_len(p.random)));
	json_set(arena, input, "pad", padding(&p, padding_len(p.random)));
	return json_print_arena(input, arena);
}
