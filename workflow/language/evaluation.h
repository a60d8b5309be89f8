/* Expressions that need jq, on their way to the helper program `reprise-jq` and back: requests, answers and frames, as bytes. Who
 * needs a result (workflow/decide_expressions.c), who asks for it (activities/jq_pool.c, cli/jq.c) and who answers (activities/jq_helper.c) agree here
 * and nowhere else.
 *
 *   frame     length, 4 bytes, little endian │ that many bytes
 *   request   'E' name,name… NUL expression NUL [., value of each name…]
 *             'C' name,name… NUL expression NUL, for each expression to compile
 *             'W' the same, of expressions that are good: what is asked next comes from among them
 *   answer    'V' [value]          the first result of an evaluation; [null] when there is none (D1)
 *             'F' text             it failed: jq's message
 *             'P' [{"index": i, "line": l, "message": text}…]     of a 'C': what does not compile, l being a line of expression i
 *             'M'                  an 'E' whose program this helper does not have: send a 'W', then the 'E' again
 *             'R'                  a 'W' is done
 *
 * Pure. New here? Read evaluation_request(). */
#pragma once

#include "workflow/base/json.h"

struct definition;
struct problems;

enum {
	EVALUATION_REQUEST_MAX = 4 << 20, /* bytes of a request: the values that an expression speaks of; they are printed and hashed on the loop */
	EVALUATION_RESULT_MAX = 1 << 20, /* bytes of a result */
	EVALUATION_ANSWER_MAX = EVALUATION_RESULT_MAX + 64, /* bytes of an answer */
	EVALUATION_EXPRESSION_MAX = 64 << 10, /* bytes of one expression that needs jq */
	EVALUATION_BATCH_MAX = 64, /* expressions that are compiled as one program */
	EVALUATION_BATCH_BYTES_MAX = 256 << 10, /* bytes of them together, one that alone is larger aside */
};

enum evaluation_tag { EVALUATION_EVALUATE = 'E', EVALUATION_COMPILE = 'C', EVALUATION_WARM = 'W', EVALUATION_MISSING = 'M', EVALUATION_READY = 'R', EVALUATION_VALUE = 'V', EVALUATION_FAILED = 'F', EVALUATION_PROBLEMS = 'P' };

/* What to evaluate; it lies in the arena of whoever needs it. */
struct evaluation {
	const char *expression; /* without ${ } */
	struct bytes request; /* its digest is what the result is known by */
};

/* A request of kind 'E'. values[i] is that of names[i]. ERR_TOO_LARGE past EVALUATION_REQUEST_MAX. */
int evaluation_request(struct arena *arena, const char *expression, const struct json *input, const char *const *names, const struct json *const *values,
		       size_t count, struct evaluation *evaluation, struct error *error);
/* One part of a request of kind 'C', which begins with that letter. */
void evaluation_add_compile(struct buffer *request, const char *expression, const char *const *names, size_t count);

/* The part of a request 'E' that names its program: names and expression, each with its NUL. */
struct bytes evaluation_program(struct bytes request);

/* An answer of kind 'V' or 'F' as what is kept of it: the text of [value], or of the message as a JSON string. Whatever the peer sent,
 * *kept is JSON that json_parse() takes. */
void evaluation_keep(struct bytes answer, struct buffer *kept);
/* What is kept for a failure that no helper told of: deadline, death, queue. */
void evaluation_keep_failure(const char *message, struct buffer *kept);

/* Frames as they come in, in pieces. The buffer's maximum has to be 4 more than the longest frame. */
void evaluation_add_frame(struct buffer *out, struct bytes payload);
enum frame_state { FRAME_PARTIAL, FRAME_WHOLE, FRAME_TOO_LARGE };
/* WHOLE: *payload is borrowed from the buffer; remove 4 + payload.len bytes of its front when done with it. */
enum frame_state evaluation_read_frame(const struct buffer *in, size_t payload_max, struct bytes *payload);

/* Turn the problems of an answer 'P' to a batch that began with expression `first` of the definition into problems with pointer, line,
 * column and hint. ERR_CORRUPT when it is no such answer. */
int evaluation_add_problems(const struct definition *definition, const size_t *batch, size_t batch_count, struct bytes answer, struct problems *problems,
			    struct error *error);
/* One problem of our own making about an expression of the definition. line: of the expression, from 1; 0: unknown. */
void evaluation_add_problem(const struct definition *definition, size_t index, size_t line, const char *message, struct problems *problems);
/* The next batch of a definition's expressions, from *next on, as a request: at most `most` and EVALUATION_BATCH_MAX. Their numbers stand
 * in batch. 0: there are none left. */
size_t evaluation_next_batch(const struct definition *definition, size_t *next, size_t most, size_t batch[EVALUATION_BATCH_MAX], struct buffer *request);
