/* How effects happen: one request struct per attempt of a task, handed to the activity of its kind. Knows bytes and JSON,
 * not workflows. Threads: everything on the loop thread; pure CPU on big buffers goes to the uv pool inside.
 * New here? Read activity_start(), then extract_activity.c. */
#pragma once

#include <uv.h>

#include "activities/runtime.h"
#include "activities/secrets.h"
#include "workflow/base/budget.h"
#include "workflow/base/failure.h"
#include "workflow/base/list.h"
#include "workflow/base/spent.h"

enum {
	ACTIVITY_QUEUE_MAX = 100000, /* waiting for a slot of their runtime */
	ACTIVITY_BODY_MAX = 16 << 20, /* bytes of a response, and of a request */
	ACTIVITY_DETAIL_MAX = 400,
};

/* ACTIVITY_RUN is a child run: the daemon's own (daemon/children.h), nothing of this folder. */
enum activity_kind { ACTIVITY_HTTP, ACTIVITY_INFERENCE, ACTIVITY_SECTIONS, ACTIVITY_EXTRACT, ACTIVITY_GATE, ACTIVITY_RUN, ACTIVITY_KIND_COUNT };

/* The stages of the contract (interface.md 3), in microseconds of one monotonic clock. An activity fills in queue, dispatch,
 * connect, first_token, generation, parse and ground; the engine the rest. connect, first_token and generation are activity. */
struct stage_times {
	int64_t admission, queue, journal, dispatch, connect, first_token, generation, parse, ground, sign, commit;
};

struct activity_result {
	bool ok;
	enum failure_class failure; /* FAILURE_NONE when ok */
	char detail[ACTIVITY_DETAIL_MAX]; /* what failed, which limit, what to do next */
	int status; /* HTTP status when one came, else 0 */
	int64_t retry_after_ms; /* from Retry-After, else 0 */
	unsigned retry_attempts; /* the policy in force: attempts in all; 0 or 1: no further attempt */
	int64_t retry_floor_ms, retry_cap_ms;

	const struct json *output; /* what the task gives; not ok: NULL, or what stands for a section that failed (onFailure continue) */
	/* The attempt's record, always there: {"stages": {name: µs}, "usage"?, "finishReason"?, "model"?, "runtime"?,
	 * "configuration"?: {"sha256"}, "status"?, "connections"?, "simulated"?, "detail"?,
	 * "schema"?: {"sent": schema_rung_name(), "refused": [{"rung", "status", "detail"}]} where it was not sent as it is,
	 * "watch"?: {"check": watch_check_name(), "of": "text" or "reasoning", "at", "valueEnd"?, "pieces", "savedTokensAtMost"?} where the answer was
	 * ended before its end}. */
	struct json *record;
	struct bytes request, response; /* bodies as sent and as received (after transfer decoding); empty when none */
	struct bytes document; /* ACTIVITY_SECTIONS: bytes of an inline document that the journal must keep first */
	const char *document_media_type;

	/* ACTIVITY_EXTRACT: candidates, accepted and rejected, in order of appearance: [{"value": {…all members but quote…}, "quote",
	 * "grounding": {"grade", "score", "bytes", "codePoints", "utf16"}, "accepted", "checks": [{"name", "version", "result", "detail"?}],
	 * "section": {"digest", "bytes"}, "document": "sha256:…"}]. NULL: not an extraction. */
	const struct json *facts;
	/* Parts of each fact's statement, as statement.h names them: {"source", "prompt", "schema", "sampling", "request", "model",
	 * "configuration", "reproducibility", "runtime", "response", "finishReason"?, "promptTokens"?, "completionTokens"?, "clock"},
	 * and "runtimeName" (as configured) and "simulated"? for the fact's document. */
	const struct json *evidence;
	const struct json *error; /* ACTIVITY_RUN, not ok: the error of the child; else NULL */
	struct spent spent; /* of a runtime, however it ended: INFERENCE, EXTRACT, GATE */

	struct stage_times stages;
	/* Monotonic: from connecting (or the first byte handed to the socket) to the last response byte. Both 0: never got there. */
	uint64_t active_from_us, active_until_us;
	uint64_t queued_us; /* waited for a slot */
	int64_t started_ms, finished_ms; /* wall clock */
};

struct activities; /* all of them: slots, queues, curl, runtimes */
struct activity;
typedef void (*activity_done_cb)(struct activity *activity);

/* Request and result of one attempt. The caller owns the struct and what the request points to, and leaves both alone until
 * the callback, which fires exactly once per accepted request, never inside activity_start() or activity_cancel(). */
struct activity {
	enum activity_kind kind;
	const char *run_id, *step_id;
	const char *namespace; /* of the workflow, for its secrets; NULL: it may use none */
	bool is_configured; /* the operator's configuration asks for it, not a workflow: its secrets need to list no namespace */
	const char *idempotency_key; /* 64 hex digits */
	unsigned attempt; /* from 1 */
	unsigned depth; /* ACTIVITY_RUN: how many runs are around this one */
	bool is_kill; /* when it is cancelled: because its run was killed */
	const struct json *with; /* evaluated arguments */
	struct budget_claim claim; /* in the budget of its run; the caller joins and leaves it */
	activity_done_cb on_done;
	void *owner;

	struct arena arena; /* initialised by activity_start(); the result lives in it; activity_close() frees it */
	struct activity_result result;

	struct list link; /* the activities' own */
	void *work; /* the kind's own, while under way */
	void *spooled; /* on_text's own */
};

/* What the activities need from the daemon. */
struct content_load;
typedef void (*content_load_cb)(struct content_load *load);
struct content_load {
	struct digest digest;
	content_load_cb on_done;
	void *owner;
	struct arena arena; /* holds bytes; the caller of the port closes it after on_done */
	struct bytes bytes;
	struct error error; /* ERR_NOT_FOUND: no such document */
};
struct configuration_note; /* make a configuration record durable (entry config.loaded) before facts name it */
typedef void (*configuration_note_cb)(struct configuration_note *note);
struct configuration_note {
	const char *runtime;
	struct digest digest; /* of the values of groups A to E */
	struct bytes record; /* canonical: every field with value, basis and source */
	configuration_note_cb on_done;
	void *owner;
	struct error error;
};
/* What happened to a runtime that the daemon launches, for the journal. */
struct runtime_note;
typedef void (*runtime_note_cb)(struct runtime_note *note);
struct runtime_note {
	const char *kind; /* "runtime.started", "runtime.ready", "runtime.refused" or "runtime.stopped" */
	const char *runtime;
	struct json *data; /* the entry's own: words of ours, numbers, digests */
	struct json *value; /* texts of others: kept as content, named `detail`; empty: none */
	runtime_note_cb on_done;
	void *owner;
	struct error error;
};
struct activity_ports {
	void *arg;
	uint64_t (*now_us)(void *arg);
	int64_t (*wall_ms)(void *arg);
	void (*load_content)(void *arg, struct content_load *load); /* later, never inside the call */
	void (*note_configuration)(void *arg, struct configuration_note *note); /* later, never inside the call */
	/* A model has written this; the pieces of an attempt, one after the other, are its text (or its reasoning). May be NULL. */
	void (*on_text)(void *arg, struct activity *activity, struct bytes text, bool is_reasoning);
	void (*note_runtime)(void *arg, struct runtime_note *note); /* later, never inside the call. NULL: nobody wants to know */
	void (*on_answer)(void *arg); /* an answer begins to arrive, or is complete: soon an attempt may end. May be NULL */
};

struct activities_config {
	const struct runtime_config *runtimes;
	size_t runtime_count;
	const char *const *http_allow; /* words and networks that `call: http` may reach: "public", "127.0.0.0/8", "[::1]/128", "host.example" */
	size_t http_allow_count;
	const struct secret_config *secrets; /* borrowed for as long as the activities are there */
	size_t secret_count;
	const char *spool; /* folder for logs of runtimes that are launched; NULL: none is */
	const char *daemon_version;
};

int activities_open(struct activities **activities, uv_loop_t *loop, const struct activities_config *config,
		    const struct activity_ports *ports, struct error *error);
/* Cancels all (each callback fires with FAILURE_INTERRUPTED), closes handles; on_closed fires when the last one is gone. */
void activities_close(struct activities *activities, void (*on_closed)(void *arg), void *arg);

/* 0, or ERR_BUSY past ACTIVITY_QUEUE_MAX or HTTP_WAITING_MAX, ERR_NOT_FOUND for an unknown runtime, ERR_INVALID for arguments that cannot be: the
 * callback then never fires. */
int activity_start(struct activities *activities, struct activity *activity, struct error *error);
/* Closes the stream at once; the callback fires (later) with FAILURE_CANCELLED unless the result was already there. */
void activity_cancel(struct activities *activities, struct activity *activity);
#define WAITS_RUN_BUDGET "run-budget"
/* Why it waits for its turn at its runtime, by slot_wait_name(), or WAITS_RUN_BUDGET: for a place in its run's; NULL: it does not. Of one that was accepted and has not ended. */
const char *activity_waits_for(const struct activity *activity);
void activity_close(struct activity *activity); /* frees the result */

/* A gate was recorded, or (at the start, oldest first) is known: answers that come are held against it. report: borrowed for the call. */
void activities_note_gate(struct activities *activities, const struct digest *id, struct bytes report);

/* At the start: what the journal says of a day of a runtime; nothing where the configuration names none of this name. */
void activities_note_spent(struct activities *activities, const char *runtime, const struct spent_day *day);

/* Runtimes, for the API. */
bool activities_has_runtime(const struct activities *activities, const char *name);
int activities_check_runtime(const struct activities *activities, const char *name, struct error *error); /* ERR_NOT_FOUND: there is no such one; the error names those that there are */
/* The same, and: can a gate ask it in these phases (NULL, or texts of GATE_PHASES), so many together (1: one by one)? ERR_INVALID: no; the error says why, and which it can. */
int activities_check_gate(const struct activities *activities, const char *name, const struct json *phases, bool has_schema, double width, struct error *error);
struct json *activities_runtimes_json(const struct activities *activities, struct arena *arena); /* [{name, kind, url, model, status, inFlight, waiting, concurrency, configuration?, simulated?, lastError?}] */
struct json *activities_runtime_json(const struct activities *activities, struct arena *arena, const char *name); /* one, with its log when it is launched; NULL: no such */
/* Of a runtime with `launch`: begin what is asked; what becomes of it is in its document. ERR_NOT_FOUND, or ERR_UNSUPPORTED without `launch`. */
enum runtime_order { RUNTIME_START, RUNTIME_STOP, RUNTIME_RELOAD };
int activities_order_runtime(struct activities *activities, const char *name, enum runtime_order order, const char *reason, struct error *error);
/* Ask the runtime who it is, now: result JSON {name, reachable, models, configuration: record…} or an error. */
struct runtime_probe;
typedef void (*runtime_probe_cb)(struct runtime_probe *probe);
struct runtime_probe {
	const char *runtime;
	bool thorough; /* also find out which parameters it takes no notice of: a request for a token for each */
	runtime_probe_cb on_done;
	void *owner;
	struct arena arena; /* initialised by the call; the caller closes it after on_done */
	struct json *result;
	struct error error;
};
int activities_probe(struct activities *activities, struct runtime_probe *probe);
/* Ask every runtime now, and again and again (probeEvery). */
void activities_watch_runtimes(struct activities *activities);
/* Counters for /metrics: {"inFlight", "waiting", "attempts": {class: n}, "connections": n}. */
struct json *activities_counters_json(const struct activities *activities, struct arena *arena);
