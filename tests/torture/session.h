/* A store on its loop within one process of the torture, and what all scenarios do with it: scenario.c has it, upkeep.c too. Main thread. */
#pragma once

#include "tests/torture/torture.h"
#include "tests/unit/store/fixture.h"

struct session {
	uv_loop_t loop;
	struct store *store;
	struct ledger *ledger;
	struct error error, broken, refused;
	bool is_judge; /* what is found wrong is told, not the end of the process */
};

struct look {
	const struct ledger *ledger;
	bool may_fail; /* a fault may be on its way */
	unsigned good;
	char *why; /* the first thing that was wrong */
};

/* retention may be NULL: nothing is ever taken away. False: it did not open, s->error says why. */
bool session_open(struct session *s, const char *folder, struct ledger *ledger, const struct store_retention *retention);
void session_close(struct session *s);
bool session_refused(struct session *s); /* false; not to be opened is wrong without a fault */
void session_append(struct session *s, const enum shape *shapes, unsigned count); /* all in one turn of the loop, until all have come back */
void session_append_one(struct session *s, enum shape shape);
void session_sign(struct session *s);
void session_read(struct session *s);
bool is_faulty(void); /* some fault has been met in this process */
/* An operation that has failed has to say why, and may fail only beside a fault. */
void demand_excuse(const char *what, const struct error *error);

void print_run_id(char id[32], unsigned number);
struct digest digest_of_value(enum shape shape, unsigned number); /* the one beside its output */
void look_at_all(struct store_reader *reader, struct look *look);
void blame(struct look *look, const char *format, ...) __attribute__((format(printf, 2, 3)));
