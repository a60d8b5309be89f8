/* What every verb is given and shares: its parsed options, the daemon, the output, the way errors are told.
 * One thread. A verb is one row of the table in verbs.c and one function in a command_*.c; memory of a verb lives in
 * command->arena. New here? Read struct verb, then command_version.c, the smallest verb. */
#pragma once

#include "cli/client.h"
#include "cli/output.h"
#include "workflow/base/json.h"
#include "workflow/language/definition.h"

/* interface.md 2. */
enum exit_status {
	STATUS_OK = 0, STATUS_ERROR = 1, STATUS_USAGE = 2, STATUS_DENIED = 3, STATUS_NOT_FOUND = 4, STATUS_CONFLICT = 5,
	STATUS_UNREACHABLE = 6, STATUS_WAIT_TIMEOUT = 7, STATUS_FAULTED = 10, STATUS_CANCELLED = 11, STATUS_KILLED = 12,
	STATUS_TIMED_OUT = 13, STATUS_REPLAY_DIFFERS = 20, STATUS_SIGNATURE_INVALID = 22, STATUS_JOURNAL_DAMAGED = 23, STATUS_NOT_REPRODUCIBLE = 24,
	STATUS_MALFORMED = 25, STATUS_UNVERIFIABLE = 26, STATUS_INTERRUPTED = 130,
};

enum {
	COMMAND_FILE_MAX = 64 << 20, /* bytes of a file or of standard input that is read whole */
	COMMAND_IDS_MAX = 1000000, /* ids read from standard input */
	COMMAND_PAGE = 1000, /* items asked for at once where all are wanted */
	COMMAND_LIST_DEFAULT = 100,
	FACT_PREFIX_MIN = 12, /* hex digits of a fact's id that the API takes */
	COMMAND_OUTAGE_MS_MAX = 60000, /* how long a wait bears a daemon that has gone away */
};

struct option_rule {
	const char *name; /* without the dashes; NULL ends the list */
	char letter; /* 0: none */
	const char *value; /* what the value is called in the help; NULL: a switch */
	const char *help;
	bool repeated;
};

struct command;
struct verb {
	const char *name; /* "submit", "fact list" */
	const char *arguments; /* for the help: "RUN…" */
	const char *summary, *details, *example; /* details may be NULL */
	size_t arguments_min, arguments_max;
	const struct option_rule *options;
	int (*run)(struct command *command); /* returns an enum exit_status */
};

struct option_value {
	const struct option_rule *rule;
	const char *value; /* NULL: a switch */
};

struct command {
	const struct verb *verb;
	const char *group; /* "fact": help on its verbs was asked for */
	const char **arguments;
	size_t argument_count;
	struct option_value *options;
	size_t option_count;
	struct output output;
	struct client client;
	struct client_options client_options;
	bool client_is_open;
	struct arena arena;
};

extern const struct verb verbs[];
extern const size_t verb_count;
extern const struct option_rule global_options[];

/* options.c: parse all of argv. Gives STATUS_OK with command->verb set, or prints what is wrong and gives STATUS_USAGE. *help
 * is set when the user asked for it (verb then may be NULL). */
int command_parse(struct command *command, int argc, char **argv, bool *help);
void print_help(const struct command *command, FILE *file);
bool command_flag(const struct command *command, const char *name);
const char *command_option(const struct command *command, const char *name); /* the last one; NULL */
const char *command_option_at(const struct command *command, const char *name, size_t index); /* NULL past the last */
/* STATUS_USAGE with a message on nonsense. The value is left alone when the option was not given. */
int command_number(struct command *command, const char *name, uint64_t max, uint64_t *value); /* 0 to max */
int command_number_from(struct command *command, const char *name, uint64_t min, uint64_t max, uint64_t *value);
int command_duration(struct command *command, const char *name, int64_t *ms);
int command_read_wait(struct command *command, int64_t *timeout_ms); /* of --timeout, which is refused without --wait; -1: no limit */
/* The word of a list that is nearest to what was typed; NULL when none is near. */
const char *nearest_word(const char *typed, const char *const *words, size_t count);

/* Tell an error: one sentence on standard error with the hint on a line of its own; a problem object on standard output with
 * -o json. Gives the status back, so that a verb can return it. */
int command_fail(struct command *command, enum exit_status status, const char *hint, const char *format, ...) __attribute__((format(printf, 4, 5)));
int command_fail_error(struct command *command, const struct error *error, const char *context);
/* From an answer of the daemon that is no success. */
int command_fail_reply(struct command *command, const struct request *request, const struct reply *reply);

/* One exchange. 0 and the parsed answer (NULL for an empty one), or a told error's status. */
int command_get(struct command *command, const char *path, struct json **result);
int command_post(struct command *command, const char *path, const struct json *body, struct json **result);
/* The answer's bytes, in the arena. */
int command_get_bytes(struct command *command, const char *path, struct bytes *result);
/* All of it: *reply is closed by the caller, also after an error. Connection errors are told, statuses are not. */
int command_send(struct command *command, const struct request *request, struct reply *reply);
struct json *command_parse_reply(struct command *command, const struct reply *reply, struct error *error);
int client_ready(struct command *command); /* opens the client once */

/* Files and values. "-" is standard input. */
int command_read_file(struct command *command, const char *path, struct bytes *bytes);
/* The same with another limit; `what` ("definition") stands before the path in messages. */
int command_read_named(struct command *command, const char *what, const char *path, size_t max, const char *max_name, struct bytes *bytes);
/* JSON | @FILE | - ; a YAML file is taken too. */
int command_read_value(struct command *command, const char *what, const char *text, struct json **value);
/* A whole list in the format that was asked for: answer[name] as a table, its items a line each, ids (the first cell), or the answer itself.
 * A column STATUS is coloured. */
/* Field by field, with basis and source; then what is not known. */
void command_print_record(struct command *command, const struct json *record);
void command_print_list(struct command *command, const struct json *answer, const char *name, const struct table_column *columns, size_t column_count,
			void (*fill)(struct command *command, const struct json *item, const char **cells));
/* The arguments from `first` on; "-" among them: ids from standard input, one a line. */
int command_read_ids(struct command *command, size_t first, const char ***ids, size_t *count);
/* STATUS_USAGE, told, for what can be no id of a run (or of a fact); an id that nobody has is the daemon's to say (4). */
int command_check_run_id(struct command *command, const char *id);
int command_check_fact_id(struct command *command, const char *id);
/* Repeated K=V options as an object; NULL when there are none. */
int command_read_pairs(struct command *command, const char *name, struct json **pairs);
/* --budget tokens=N,seconds=N, either or both, as the member `budget` of a body; nothing where it was not given. */
int command_read_budget(struct command *command, struct json *body);
/* A DEFINITION file, with its `file:` resources inlined. Problems are told with file, line and column. */
int command_load_definition(struct command *command, const char *path, const struct json **document, struct bytes *source, bool *inlined);
/* The same, but gives the problems (JSON objects with `file`) instead of telling them; *good says whether it can be used. */
int definition_check_file(struct command *command, const char *path, const struct json **document, struct bytes *source, bool *inlined,
			  struct json *problems, bool *good);
void print_problems(struct command *command, const struct json *problems);

/* "since"/"until": RFC 3339, or a duration before now. */
int command_time(struct command *command, const char *name, const char **rfc3339);
/* On a terminal, ask; elsewhere and with --yes, go on. */
bool command_confirm(struct command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *path_of(struct command *command, const char *prefix, const char *id, const char *suffix); /* id percent-encoded */
void sleep_ms(int64_t ms);
/* What an interrupt (control-C) says before the process ends with 130; the text must live on. */
void interrupt_say(const char *text);

/* runs.c: what verbs about runs share. */
char *new_run_id(struct command *command);
bool run_ended(const struct json *run);
/* 0 for completed, 10 to 13 for the other ends, -1 while it has not ended. */
int run_exit_status(const struct json *run);
bool run_has_overhead(const struct json *run); /* there are figures of its times: it has ended */
/* POST a run, or a fork of one, until the daemon has answered; the id makes that safe. */
int run_submit(struct command *command, const struct json *body, struct json **run);
int run_submit_to(struct command *command, const char *path, const struct json *body, struct json **run);
/* Show a run that was begun or gone on with; with --wait when it has ended, and its outcome is the status then. */
int run_show_outcome(struct command *command, const char *id, struct json *run, int64_t timeout_ms);
/* --status, checked; NULL: any. STATUS_USAGE, told. */
int run_status_option(struct command *command, const char **word);
/* Wait until it has ended. timeout_ms < 0: no limit. Bears a daemon that restarts. STATUS_WAIT_TIMEOUT is told. */
int run_wait(struct command *command, const char *id, int64_t timeout_ms, const char *include, struct json **run);
/* A document with all its tasks: those past the first page are asked for. */
int run_complete_tasks(struct command *command, struct json *run);
void run_print(struct command *command, const struct json *run); /* text */
void run_print_error(struct command *command, const struct json *run); /* on standard error */
/* The stages of an attempt, in the order of time (interface.md 3). */
enum { STAGE_COUNT = 11 };
extern const char *const stage_names[STAGE_COUNT];
const char *run_workflow_text(struct command *command, const struct json *run); /* "ns/name:1.0.0" */
const char *run_wall_text(struct command *command, const struct json *run); /* from created to ended or now; NULL: unknown */
/* Follow a run's entries to its end, over reconnects. on_entry returns false to stop early. */
typedef bool (*run_entry_cb)(void *arg, const struct json *entry);
int run_follow(struct command *command, const char *id, uint64_t after, bool has_after, run_entry_cb on_entry, void *arg);
/* A definition of one task that calls `function`: what a built-in verb needs where the built-in workflow does not suffice. */
struct json *make_call_definition(struct arena *arena, const char *name, const char *task, const char *function, struct json *with, struct json *schema);
/* Does the daemon know a runtime of this name? STATUS_NOT_FOUND, told with those that it knows: asked before a run is made that could only fault. */
int check_runtime(struct command *command, const char *name);
/* The runtime to use: --runtime, checked so, or the only one that the daemon knows. */
int choose_runtime(struct command *command, const char **runtime);

/* facts.c: what verbs about facts share. */
#define SIMULATED_LINE "from a SIMULATED runtime: no model was asked" /* ends a table that holds a simulated fact */
typedef int (*fact_cb)(void *arg, struct json *fact); /* non-zero stops and is handed on */
/* All facts that the verb's filters (run, document, runtime, class, rejected) select, in pages; at most `limit`. kept: they stay in
 * command->arena; else a fact, and all that on_fact puts into that arena, is gone after its page, so that any number can be read. */
int facts_each(struct command *command, const char *run_id, uint64_t limit, bool kept, fact_cb on_fact, void *arg);
const char *value_text(struct arena *arena, const struct json *value); /* text as it is, else JSON; NULL stays NULL */

/* One function per verb. */
#define VERB_FUNCTIONS(X)                                                                                             \
	X(submit) X(list) X(count) X(show) X(result) X(events) X(tokens) X(retry) X(fork) X(replay) X(overhead) X(cancel) X(kill) X(pause) X(resume) X(extract) X(infer) X(gate)    \
	X(fact_list) X(fact_show) X(fact_verify) X(fact_export) X(journal_verify) X(journal_export) X(journal_stats) X(journal_compact) X(journal_backup) X(journal_restore) X(doctor) X(purge) X(document_erase) X(key_list)        \
	X(key_generate) X(key_export) X(definition_add) X(definition_list) X(definition_show) X(definition_validate)  \
	X(send_event) X(schedule_list) X(schedule_show) X(schedule_pause) X(schedule_resume) X(schedule_trigger)                     \
	X(runtime_list) X(runtime_show) X(runtime_start) X(runtime_stop) X(runtime_reload) X(runtime_probe) X(provenance_show) X(provenance_diff) X(config_show) X(drain) X(bench_overhead)          \
	X(bench_memory) X(bench_recovery) X(bench_journal) X(bench_expressions) X(version)
#define X(name) int command_##name(struct command *command);
VERB_FUNCTIONS(X)
#undef X
