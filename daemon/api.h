/* What the files of the API share: the table of routes, reads that answer a request, and small helpers. One api_*.c per resource.
 * Thread: loop; works run on the reader thread. New here? Read `routes` in api.c. */
#pragma once

#include "daemon/daemon.h"

enum {
	API_PARAMETERS_MAX = 3,
	API_LIMIT_DEFAULT = 100,
	API_SEQ_BITS = 53, /* positions are JSON numbers: one past 2^53 - 1 would come back rounded */
	API_WAIT_MAX_MS = 24 * 3600 * 1000, /* the longest ?wait */
	API_PARSE_ON_LOOP_MAX = 64 << 10, /* bytes; larger bodies are parsed on the pool, or refused where none can be meant */
	API_REQUEST_ID_TRIES_MAX = 1000, /* looks for a run whose first submission is being committed, API_LOOK_AGAIN_MS apart */
	API_LOOK_AGAIN_MS = 10,
	API_READ_SLICE_MS = 20, /* one part of a long read */
	API_READ_PAGE = 1000, /* entries that are looked at together */
	API_VIEW_BYTES_MAX = 64 << 20, /* bytes of values in one run document besides its input and output; the rest are given by digest */
	API_FORKS_MAX = 32, /* being made at once; one more is told to ask again */
	API_FORK_FROM_MAX = 8192, /* bytes of a step id that a client names */
	API_LABELS_MAX = 64,
	API_VIEW_FORKS_MAX = 100, /* newest forks in one run document; `forksLeftOut` */
	API_VIEW_WAITS_MAX = 1000, /* oldest attempts that wait for their turn at a runtime, of which one run document says why */
	API_VIEW_CHILDREN_MAX = 1000, /* newest children in one run document; `childrenLeftOut` says how many more there are */
	API_EVENTS_BYTES_MAX = 32 << 20, /* bytes of memory for one page of CloudEvents, which has one entry's at least */
};

enum body_limit { BODY_NONE, BODY_SMALL, BODY_DOCUMENT, BODY_EVENT };

/* The last position that a client may name. */
#define API_SEQ_MAX ((1ULL << API_SEQ_BITS) - 1)

/* What a full queue of the journal or a drain stops: new work is refused by both, control by neither (C5). */
enum route_lane { LANE_OTHER, LANE_ADMISSION, LANE_CONTROL };

struct route {
	const char *method, *pattern; /* {} is one part of the path, a trailing * all the rest */
	const char *query; /* known parameters */
	enum body_limit body;
	void (*handle)(struct daemon *daemon, struct request *request, const char *const *parameters);
	enum route_lane lane;
};

/* --- reads that answer -------------------------------------------------------------------------------------------- */

/* A read whose result is the answer: the work sets `status` and prints the body, or sets read.error, which becomes a problem. */
struct api_read {
	struct store_read read;
	struct daemon *daemon;
	struct request *request;
	void *args; /* the route's own; lives in the request's arena */
	unsigned status; /* 200 */
	const char *content_type;
	struct buffer body;
	/* A long work does a part (API_READ_SLICE_MS), keeps what it needs in `kept` and says `again`: so that it neither holds up the reads of
	 * others nor keeps the write-ahead log from starting over. */
	bool again, has_begun;
	struct arena kept;
	/* Instead of answering; may be NULL. The read's arena is closed when it returns. */
	void (*then)(struct api_read *read);
};
/* False: the store takes no more reads, and the request was answered with 503. */
bool api_read(struct daemon *daemon, struct request *request, store_read_work work, void *args, void (*then)(struct api_read *read));
void api_print(struct api_read *read, const struct json *json); /* for works */
/* For `then`: what a read without one does, the body or the problem. */
void api_answer_read(struct api_read *read);
/* The same for a read that looked before a page or a feed was given: with `stream` the feed is opened (see feeds_open()). */
void api_answer_page(struct api_read *read, bool stream, enum feed_kind kind, uint64_t after, const char *run_id, const struct store_fact_filter *filter);

/* --- helpers ------------------------------------------------------------------------------------------------------ */

/* Parameters of the query; false: the request was answered with 400. */
bool api_query_number(struct request *request, const char *name, uint64_t fallback, uint64_t max, uint64_t *number);
bool api_query_flag(struct request *request, const char *name, bool *flag);
bool api_query_digest(struct request *request, const char *name, struct digest *digest, bool *given);
bool api_query_workflow(struct request *request, const char **namespace, const char **name, const char **version);
bool api_query_wait(struct request *request, int64_t *wait_ms); /* 0: none */
/* "ns/name" or "ns/name:version"; the parts lie in the arena. */
bool api_split_name(struct arena *arena, const char *text, const char **namespace, const char **name, const char **version);
void api_invalid(struct request *request, const char *format, ...) __attribute__((format(printf, 2, 3)));
void api_busy(struct request *request, const struct error *error); /* with Retry-After */
void api_fail(struct request *request, const struct error *error); /* api_busy() or request_problem() */
void api_fail_check(struct request *request, const struct error *error); /* of expressions_check(): nobody knows whether they are good */
void api_problems(struct request *request, const struct problems *problems, const char *what);
bool api_wants_stream(const struct request *request);
/* Where a stream or page goes on: Last-Event-ID, else ?after, else 0. */
bool api_after(struct request *request, uint64_t *after);
bool api_content_type_is(const struct request *request, const char *type); /* parameters aside */
bool api_is_one_of(const char *names, const char *name); /* names: separated by a blank each */
/* The body as a JSON object of at most API_PARSE_ON_LOOP_MAX bytes; an empty one is {}. NULL: answered. Members must be in `names`. */
struct json *api_body_object(struct request *request, const char *names);
/* The same for bodies that may be large: past API_PARSE_ON_LOOP_MAX on the pool. In the request's arena, zeroed; the first group is the caller's. */
struct api_body {
	struct daemon *daemon;
	struct request *request;
	const char *names; /* members it may have */
	void (*prepare)(struct api_body *body); /* NULL, or more to be done on the same thread: no touch of the daemon, no answer; may set error */
	void (*on_done)(struct api_body *body); /* on the loop; not called when something was refused, which is answered then */
	const char *const *parameters;
	void *owner;

	struct json *json;
	struct error error;
	uv_work_t work;
};
void api_take_body(struct api_body *body);
/* Of runs. false: answered. */
bool api_check_id(struct request *request, const char *id);
bool api_read_include(struct request *request, unsigned *include);
enum { REASON_MAX = 1000 /* bytes of a text that says why; it is kept in the journal */ };
bool api_read_reason(struct request *request, const char **reason); /* the only member of the body; NULL: none */
bool api_read_command(struct request *request, const char *names, const struct json **body, const char **reason); /* the same where there may be others: `names` has all */
/* Answers with the run's document, when the run has ended or the time is up; at once when it is not under way. */
void api_wait_for_run(struct daemon *daemon, struct request *request, const char *id, int64_t wait_ms, unsigned include, unsigned status);
/* A run of this id is there, or on its way: 200 with it where its content is equal, 409 else, or 503. */
struct api_twin {
	struct daemon *daemon;
	struct request *request;
	const char *id;
	struct digest digest; /* of what was sent: `request` of run.created */
	const char *content; /* what it is of, for people */
	int64_t wait_ms;
	unsigned include;
	void (*on_none)(struct api_twin *twin); /* there is none, and nobody answered; NULL: one is known to be on its way, and waited for */
	void (*release)(void *owner); /* it is answered, or about to be: all else is over */
	void *owner;
	/* Its own. */
	struct digest found;
	unsigned looks;
	uv_timer_t *timer;
};
void api_look_for_twin(struct api_twin *twin); /* it lives in the request's arena */
bool api_check_labels(struct request *request, const struct json *labels); /* false: answered */
struct definition;
/* Are the gates that a run of it is bound to ask possible, as far as its text and its input (NULL: null) tell? A runtime that is not configured is left to the run. */
int api_check_gates(struct daemon *daemon, struct arena *arena, const struct definition *definition, const struct json *input, struct error *error);
/* body.budget: what was asked for (*asked NULL: nothing), and else what the configuration says. False: answered, it is none or more than a run may have. */
/* over: not NULL, and more than the configuration allows is told there instead: whoever was taken before it said so is there all the same. */
bool api_read_budget(struct daemon *daemon, struct request *request, const struct json *body, struct budget_amount *budget, const struct json **asked, struct error *over);
const char *api_make_id(struct arena *arena);
/* The entry with which an inline definition comes into the journal. */
void api_add_unregistered(struct arena *arena, const struct definition *definition, struct entry *entry);
void api_set_time(struct arena *arena, struct json *object, const char *name, int64_t wall_ms);
void api_set_digest(struct arena *arena, struct json *object, const char *name, const struct digest *digest); /* "sha256:…" */

int api_fact_document(struct store_reader *reader, struct arena *arena, const struct store_fact *fact, struct json **document, struct error *error);
/* On the reader thread: a page that begins among entries that retention took says so: `pruned: {from, to}`. */
int api_set_pruned(struct store_reader *reader, struct arena *arena, struct json *page, uint64_t from_seq, struct error *error);
/* On the reader thread: adds the CloudEvents of an entry to a list, see view_cloud_events(). */
int api_cloud_events(struct store_reader *reader, struct arena *arena, const struct store_raw_entry *raw, const char *origin, struct json *list, struct error *error);

#define API_HANDLER(name) void name(struct daemon *daemon, struct request *request, const char *const *parameters)

/* api_runs.c */
API_HANDLER(api_submit_run);
API_HANDLER(api_list_runs);
API_HANDLER(api_count_runs);
API_HANDLER(api_get_run);
API_HANDLER(api_run_events);
API_HANDLER(api_run_tokens);
API_HANDLER(api_run_tasks);
API_HANDLER(api_cancel_run);
API_HANDLER(api_kill_run);
API_HANDLER(api_pause_run);
API_HANDLER(api_resume_run);
API_HANDLER(api_replay_run);
/* api_lineage.c */
API_HANDLER(api_retry_run);
/* api_fork.c */
API_HANDLER(api_fork_run);
/* api_definitions.c */
API_HANDLER(api_add_definition);
API_HANDLER(api_list_definitions);
API_HANDLER(api_get_definition);
/* api_schedules.c */
API_HANDLER(api_list_schedules);
API_HANDLER(api_get_schedule);
API_HANDLER(api_pause_schedule);
API_HANDLER(api_resume_schedule);
API_HANDLER(api_trigger_schedule);
/* api_documents.c */
API_HANDLER(api_add_document);
API_HANDLER(api_get_document);
/* api_events.c */
API_HANDLER(api_add_event);
/* api_gates.c */
API_HANDLER(api_list_gates);
API_HANDLER(api_add_gate);
API_HANDLER(api_get_gate);
/* api_facts.c */
API_HANDLER(api_list_facts);
API_HANDLER(api_get_fact);
API_HANDLER(api_get_attestation);
API_HANDLER(api_get_fact_entry);
API_HANDLER(api_list_events);
/* api_log.c */
API_HANDLER(api_get_checkpoint);
API_HANDLER(api_sign_checkpoint);
API_HANDLER(api_list_checkpoints);
API_HANDLER(api_list_entries);
API_HANDLER(api_get_tile);
API_HANDLER(api_list_keys);
API_HANDLER(api_journal_stats);
/* api_journal.c */
API_HANDLER(api_begin_backup);
API_HANDLER(api_get_backup);
API_HANDLER(api_cancel_backup);
/* api_purge.c */
API_HANDLER(api_purge_journal);
API_HANDLER(api_compact_journal);
/* api_system.c */
API_HANDLER(api_list_runtimes);
API_HANDLER(api_get_runtime);
API_HANDLER(api_start_runtime);
API_HANDLER(api_stop_runtime);
API_HANDLER(api_reload_runtime);
API_HANDLER(api_probe_runtime);
API_HANDLER(api_get_provenance);
API_HANDLER(api_get_config);
API_HANDLER(api_get_version);
API_HANDLER(api_metrics);
API_HANDLER(api_health);
API_HANDLER(api_ready);
API_HANDLER(api_drain);
API_HANDLER(api_openapi);
