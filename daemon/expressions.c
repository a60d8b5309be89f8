/* See expressions.h. */
#include "daemon/expressions.h"

#include <stdlib.h>
#include <string.h>

#include "workflow/base/check.h"
#include "workflow/language/evaluation.h"

/* One request to a helper. */
struct part {
	struct jq_request jq;
	struct expressions_check *check;
	struct buffer request;
	size_t batch[EVALUATION_BATCH_MAX]; /* numbers of its expressions */
	size_t count;
};

static void on_part_done(struct jq_request *jq);

static struct part *new_part(struct expressions_check *check)
{
	struct part *part = memory_zero(sizeof *part);

	part->check = check;
	buffer_init(&part->request, EVALUATION_REQUEST_MAX);
	part->jq.on_done = on_part_done;
	part->jq.owner = part;
	list_init(&part->jq.link);
	return part;
}

static void free_part(struct part *part)
{
	buffer_close(&part->request);
	free(part);
}

static void start_part(struct part *part)
{
	struct expressions_check *check = part->check;
	struct error error;

	part->jq.request = buffer_bytes(&part->request);
	if (check->parts++ >= EXPRESSIONS_PARTS_MAX)
		error_set(&error, ERR_TOO_LARGE, "too many of its expressions cost jq its life to be told apart (EXPRESSIONS_PARTS_MAX)");
	else if (jq_pool_ask(check->pool, &part->jq, &error) == 0) {
		check->under_way++;
		return;
	}
	if (check->error.code == ERR_NONE)
		check->error = error;
	free_part(part);
}

/* One of them made jq crash, or takes too long: the halves tell which. */
static void halve(struct part *part)
{
	const struct definition *definition = part->check->definition;

	for (size_t half = 0; half < 2; half++) {
		struct part *smaller = new_part(part->check);
		for (size_t i = half ? part->count / 2 : 0; i < (half ? part->count : part->count / 2); i++) {
			const struct definition_expression *expression = &definition->expressions[part->batch[i]];
			evaluation_add_compile(&smaller->request, expression->text, expression->names, expression->name_count);
			smaller->batch[smaller->count++] = part->batch[i];
		}
		start_part(smaller);
	}
}

static void finish_if_done(struct expressions_check *check)
{
	if (check->under_way > 0)
		return;
	problems_sort(check->problems, 0);
	check->on_done(check);
}

static void on_part_done(struct jq_request *jq)
{
	struct part *part = jq->owner;
	struct expressions_check *check = part->check;
	bool lost = jq->error.code == ERR_TIMEOUT || jq->error.code == ERR_CORRUPT;

	check->under_way--;
	if (jq->error.code == ERR_NONE) {
		struct error error = {0};
		if (evaluation_add_problems(check->definition, part->batch, part->count, jq->answer, check->problems, &error) != 0 && check->error.code == ERR_NONE)
			check->error = error;
	} else if (lost && part->count > 1) {
		halve(part);
	} else if (lost) {
		evaluation_add_problem(check->definition, part->batch[0], 0, jq->error.code == ERR_TIMEOUT ? "jq does not finish to compile it" : "jq cannot compile it",
				       check->problems);
	} else if (check->error.code == ERR_NONE) {
		check->error = jq->error;
	}
	free_part(part);
	finish_if_done(check);
}

void expressions_check(struct expressions_check *check)
{
	const struct definition *definition = check->definition;
	size_t next = 0, per_batch = (definition->expression_count + JQ_WORKING_MAX - 1) / JQ_WORKING_MAX;

	check->error = (struct error){0};
	check->parts = 0;
	check->under_way = 1; /* this function itself */
	while (next < definition->expression_count && check->error.code == ERR_NONE) {
		struct part *part = new_part(check);
		part->count = evaluation_next_batch(definition, &next, per_batch, part->batch, &part->request);
		start_part(part);
	}
	check->under_way--;
	finish_if_done(check);
}
