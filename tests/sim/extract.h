/* Facts found in a section by simple rules, so that the simulator's answers are true quotes of what it was sent.
 * README.md states the rules; they are meant to be predictable, not clever. Pure. */
#pragma once

#include "workflow/base/arena.h"
#include "workflow/base/bytes.h"

enum {
	EXTRACT_FACTS_MAX = 1000,       /* per section; further ones are left out */
	EXTRACT_SUBJECT_MAX = 80,       /* bytes; a longer subject or object is no fact */
	EXTRACT_OBJECT_MAX = 120,
	EXTRACT_SENTENCE_MAX = 4096,    /* bytes; a longer sentence has no facts */
};

struct extract_fact {
	struct bytes subject, object; /* white space collapsed; in the arena */
	const char *predicate;
	struct bytes quote; /* the bytes of the sentence, inside the section */
};

struct extract_facts {
	struct extract_fact *facts;
	size_t count, cap;
};

/* section: UTF-8. */
void extract_find(struct bytes section, struct arena *arena, struct extract_facts *facts);
