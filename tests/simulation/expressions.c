/* Expressions that need jq, in the simulation: a small set of shapes, each with what it has to give computed plainly in C. The engine gets
 * them from libjq itself, which runs here in the same process (nothing hostile is among them); the oracle from the C side. */
#include "tests/simulation/simulation.h"

#include <jq.h>
#include <jv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workflow/language/evaluation.h"

enum { PROGRAMS_MAX = 256, BUSY_PER_MILLE = 20, DELAY_US_MAX = 20000 };

/* --- the shapes ----------------------------------------------------------------------------------------------------- */

enum shape { SHAPE_MODULO, SHAPE_LENGTH, SHAPE_APPEND, SHAPE_SELECT, SHAPE_TEXT, SHAPE_IF, SHAPE_OBJECT, SHAPE_SUM, SHAPE_ALTERNATIVE, SHAPE_EMPTY, SHAPE_VALUES,
	     SHAPE_LESS, SHAPE_EVEN, SHAPE_ALL, SHAPE_FIRST, SHAPE_LOOP, SHAPE_COUNT };

static const char *const texts[SHAPE_COUNT] = {
	[SHAPE_MODULO] = "(.n + 3) % 10",
	[SHAPE_LENGTH] = ".short | length",
	[SHAPE_APPEND] = "[.short[], .n]",
	[SHAPE_SELECT] = "[.list[] | select(type == \"number\")]",
	[SHAPE_TEXT] = "\"n is \\(.n) of \\(.list | length)\"",
	[SHAPE_IF] = "if .n > 4 then \"many\" else \"few\" end",
	[SHAPE_OBJECT] = "{n: .n, rest: .short}",
	[SHAPE_SUM] = ".list | map(if type == \"object\" then .member else . end) | add",
	[SHAPE_ALTERNATIVE] = ".nothing // .n",
	[SHAPE_EMPTY] = ".short[] | select(. == \"never\")",
	[SHAPE_VALUES] = "$workflow.input.short + [$task.name]",
	/* conditions */
	[SHAPE_LESS] = "(.n + 1) < 9",
	[SHAPE_EVEN] = "(.n + 0) % 2 == 0",
	/* arrays for loops */
	[SHAPE_ALL] = "[.list[] | select(. != null)]",
	[SHAPE_FIRST] = ".short[0:2]",
	/* with the number of a loop around it */
	[SHAPE_LOOP] = "$at%u * 2 + .n",
};

const char *shape_value(struct random *random, struct arena *arena, unsigned loops)
{
	if (loops > 0 && random_chance(random, 250))
		return arena_printf(arena, "$at%u * 2 + .n", (unsigned)random_between(random, 1, loops));
	return texts[random_below(random, SHAPE_LESS)];
}

const char *shape_number(struct random *random, struct arena *arena, unsigned loops)
{
	return loops > 0 && random_chance(random, 500) ? arena_printf(arena, "$at%u * 2 + .n", loops) : texts[SHAPE_MODULO];
}

const char *shape_condition(struct random *random)
{
	return texts[random_chance(random, 500) ? SHAPE_LESS : SHAPE_EVEN];
}

const char *shape_items(bool few)
{
	return texts[few ? SHAPE_FIRST : SHAPE_ALL];
}

static enum shape shape_of(const char *text, unsigned *loop)
{
	for (int shape = 0; shape < SHAPE_LOOP; shape++)
		if (strcmp(texts[shape], text) == 0)
			return (enum shape)shape;
	return sscanf(text, "$at%u * 2 + .n", loop) == 1 ? SHAPE_LOOP : SHAPE_COUNT;
}

static struct json *copy_items(struct arena *arena, const struct json *from, size_t most, bool numbers_only)
{
	struct json *list = json_array(arena);

	for (size_t i = 0; i < json_count(from) && i < most; i++)
		if (!numbers_only || json_is(json_at(from, i), JSON_NUMBER))
			json_add(arena, list, json_at(from, i));
	return list;
}

/* A member that is null is for jq as one that is not there. */
static const struct json *list_in(const struct json *input, const char *name)
{
	const struct json *list = json_get(input, name);

	return json_is(list, JSON_NULL) ? NULL : list;
}

const struct json *shape_compute(struct arena *arena, const char *text, const struct scope *scope)
{
	const struct json *input = scope->get(scope->context, "."), *list = list_in(input, "list"), *few = list_in(input, "short");
	double n = json_get_number(input, "n", 0), sum = 0;
	unsigned loop = 0;
	struct json *made, *or_null = json_get(input, "n") ? json_get(input, "n") : json_null(arena);

	enum shape shape = shape_of(text, &loop);
	bool walks_list = shape == SHAPE_SELECT || shape == SHAPE_SUM || shape == SHAPE_ALL, walks_few = shape == SHAPE_APPEND || shape == SHAPE_EMPTY;

	/* A path into an array is an error for jq, and so is walking through what is not there. */
	if (shape != SHAPE_VALUES && !json_is(input, JSON_OBJECT) && !json_is(input, JSON_NULL))
		return NULL;
	if ((walks_list && !list) || (walks_few && !few))
		return NULL;
	switch (shape) {
	case SHAPE_MODULO:
		return json_number(arena, fmod(n + 3, 10));
	case SHAPE_LENGTH:
		return json_number(arena, (double)json_count(few));
	case SHAPE_APPEND:
		made = copy_items(arena, few, SIZE_MAX, false);
		json_add(arena, made, or_null);
		return made;
	case SHAPE_SELECT:
		return copy_items(arena, list, SIZE_MAX, true);
	case SHAPE_TEXT:
		return json_is(or_null, JSON_NULL) ? json_printf(arena, "n is null of %zu", json_count(list)) : json_printf(arena, "n is %.0f of %zu", n, json_count(list));
	case SHAPE_IF:
		return json_text(arena, n > 4 ? "many" : "few");
	case SHAPE_OBJECT:
		made = json_object(arena);
		json_set(arena, made, "n", or_null);
		json_set(arena, made, "rest", few ? (struct json *)few : json_null(arena));
		return made;
	case SHAPE_SUM:
		for (size_t i = 0; i < json_count(list); i++)
			sum += json_is(json_at(list, i), JSON_NUMBER) ? json_at(list, i)->number : json_get_number(json_at(list, i), "member", 0);
		return json_count(list) > 0 ? json_number(arena, sum) : json_null(arena);
	case SHAPE_ALTERNATIVE:
		return or_null;
	case SHAPE_EMPTY:
		return json_null(arena);
	case SHAPE_VALUES:
		made = copy_items(arena, json_get(json_get(scope->get(scope->context, "workflow"), "input"), "short"), SIZE_MAX, false);
		json_add(arena, made, json_get(scope->get(scope->context, "task"), "name"));
		return made;
	case SHAPE_LESS:
		return json_boolean(arena, n + 1 < 9);
	case SHAPE_EVEN:
		return json_boolean(arena, fmod(n, 2) == 0);
	case SHAPE_ALL:
		return copy_items(arena, list, SIZE_MAX, false);
	case SHAPE_FIRST:
		return few ? copy_items(arena, few, 2, false) : json_null(arena);
	case SHAPE_LOOP:
		return json_number(arena, scope->get(scope->context, arena_printf(arena, "at%u", loop))->number * 2 + n);
	case SHAPE_COUNT:
		break;
	}
	return NULL;
}

/* --- libjq, as a port of the engine ---------------------------------------------------------------------------------- */

static struct {
	char *text;
	jq_state *jq;
} programs[PROGRAMS_MAX];
static size_t program_count;
static uint64_t evaluated;

static jq_state *get_program(const char *names, const char *expression)
{
	struct buffer text;
	size_t i;

	buffer_init(&text, EVALUATION_REQUEST_MAX);
	buffer_add_text(&text, ". as [$__d");
	for (const char *at = names; *at;) {
		size_t len = strcspn(at, ",");
		buffer_printf(&text, ",$%.*s", (int)len, at);
		at += len + (at[len] == ',');
	}
	buffer_printf(&text, "] | $__d | (%s\n)", expression);
	for (i = 0; i < program_count && strcmp(programs[i].text, buffer_text(&text)) != 0;)
		i++;
	if (i == program_count) {
		CHECK(program_count < PROGRAMS_MAX);
		programs[i].text = memory_text(buffer_text(&text));
		programs[i].jq = jq_init();
		CHECK(jq_compile(programs[i].jq, programs[i].text));
		program_count++;
	}
	buffer_close(&text);
	return programs[i].jq;
}

static void evaluate(struct bytes request, struct buffer *kept)
{
	const char *names = (const char *)request.data + 1, *expression = names + strlen(names) + 1, *arguments = expression + strlen(expression) + 1;
	jq_state *jq = get_program(names, expression);
	struct buffer answer;
	jv input = jv_parse_sized(arguments, (int)((const char *)request.data + request.len - arguments));

	CHECK(jv_is_valid(input));
	buffer_init(&answer, EVALUATION_ANSWER_MAX);
	jq_start(jq, input, 0);
	jv result = jq_next(jq);
	if (!jv_is_valid(result) && jv_invalid_has_msg(jv_copy(result))) {
		jv message = jv_dump_string(jv_invalid_get_msg(result), 0);
		buffer_printf(&answer, "F%s", jv_string_value(message));
		jv_free(message);
	} else {
		if (!jv_is_valid(result)) {
			jv_free(result);
			result = jv_null();
		}
		jv text = jv_dump_string(JV_ARRAY(result), 0);
		buffer_printf(&answer, "V%s", jv_string_value(text));
		jv_free(text);
	}
	jq_start(jq, jv_null(), 0);
	CHECK(!answer.overflow);
	evaluation_keep(buffer_bytes(&answer), kept);
	buffer_close(&answer);
}

static void on_due(struct world *world, void *arg)
{
	struct engine_evaluate *request = arg;
	struct buffer kept;

	buffer_init(&kept, EVALUATION_ANSWER_MAX);
	if (world->faults && random_chance(&world->random, BUSY_PER_MILLE)) {
		request->busy = true;
	} else {
		evaluate(request->request, &kept);
		world->counters.evaluations++;
		evaluated++;
	}
	request->kept = buffer_bytes(&kept);
	request->on_done(request);
	buffer_close(&kept);
}

void expression_evaluate(void *arg, struct engine_evaluate *request)
{
	struct world *world = arg;

	world_at(world, random_between(&world->random, 20, DELAY_US_MAX), true, on_due, request);
}

uint64_t expressions_close(void)
{
	while (program_count > 0) {
		jq_teardown(&programs[--program_count].jq);
		free(programs[program_count].text);
	}
	return evaluated;
}
