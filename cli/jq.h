/* The helper program for expressions that need jq, asked from the command line: one at a time, blocking. One thread. */
#pragma once

#include <sys/types.h>

#include "cli/command.h"
#include "workflow/language/evaluation.h"

enum { CLI_JQ_COMPILE_MS = 5000 };

struct jq_process {
	pid_t pid; /* 0: none */
	int socket;
};

const char *jq_program(struct arena *arena); /* NULL: it is nowhere */
int jq_start(struct jq_process *jq, const char *program, struct error *error);
/* ERR_TIMEOUT, ERR_CORRUPT (it died): stop it then. The answer is borrowed from `in`, whose maximum is EVALUATION_ANSWER_MAX + 4. */
int jq_ask(struct jq_process *jq, struct bytes request, int timeout_ms, struct buffer *in, struct bytes *answer, struct error *error);
void jq_stop(struct jq_process *jq);
/* Compile all expressions of a definition that need jq; what does not compile is added to the problems. A warning, when none could be. */
void jq_check(const struct definition *definition, struct problems *problems);
