/* The vocabulary of the journal: what an entry is, which kinds there are, what each one says.
 *
 * An entry holds structure and digests; every value (input, output, error text, labels, request, answer …) is content
 * that travels beside it and is committed with the first entry that names it (semantics.md 1). State = entries +
 * content: everything else can be rebuilt from the two. Pure. */
#pragma once

#include "workflow/base/json.h"

/* X(enum, text, touches a run). Members of `data` by kind; every digest is {"sha256": hex}; {…}? may be absent:
 *
 * journal.opened      vkey, daemon                       (always seq 0)
 * key.added           keyid, public, purpose
 * daemon.started      version, recovered                 daemon.stopping  version
 * clock.stepped       byMs
 * config.loaded       runtime, configuration             value: the configuration record with basis and source
 * definition.added    namespace, name, version, definition, registered, scheduled?   values: source text, canonical document
 * document.added      document, bytes, mediaType         value: the document's bytes
 * operator.action     who, what, reason?                 value: the reason
 * run.created         runId, workflow {namespace, name, version}, definition, input, request, labels?, start?, timeout? (when it is over), budget? {tokens?, seconds?} (what it may use of models),
 *                     budgetAsked? (what of it the submission asked for, which is part of `request`),
 *                     parent? {run, step, depth, awaited}   values: input, labels; parent: of a child, depth: how many runs are around it;
 *                     start: the transformed input, where the workflow has an `input.from`
 *                     of a fork: forkedFrom {run, step (that it begins with), seq (of the entry with which that began in the other run), children (keep, rerun,
 *                     detach), kept? [runId] (children whose results stand), more? (left out of kept)}, overrides, reason?   values: what was asked for, the reason.
 *                     Then `start` is what the first list was given, and task.carried for each record of the other run's state follow at once
 * the ends of a run   also spent? {tokens, us}: what it used of models in all, if anything
 * run.completed       runId, output, record?             values: the output, {"wallUs", "stages"}
 * run.faulted         runId, error, record?              values: {type, status, title, detail?, instance?, class?}, the record
 * run.cancelled       runId, reason?, record?            values: the reason (a JSON text), the record
 * run.killed          runId, reason?, record?
 * run.suspended       runId, reason?, tasks, more?, quarantined? (true: it could not go on, and the engine wrote this; without tasks)
 * run.resumed         runId, reason?, tasks, more?       tasks: the step ids of those under way, more: how many are left out
 * run.retried         runId, reason?, timeout?, budget? (each member of it is that of the run from now on)   of a faulted run, which goes on from what was under way when it failed; timeout: when it is over now
 * task.started        runId, stepId, input, items? (for: how many)       values: input, for: the array
 *                     for: also `in`, the digest of the array; wait: `due`; listen: `since`, its events are not older; with a timeout: `timeout`, when it is over;
 *                     try: attemptDue?, retryUntil? (the limits of its first attempt and of all)
 * task.completed      runId, stepId, input? (pure tasks, never started), output, context? (what it exported), raw?
 * task.faulted        runId, stepId, error, raw?
 *                     input and output are the transformed ones; raw: a call's raw output, where something becomes of it
 * task.cancelled      runId, stepId
 * task.skipped        runId, stepId, input, output       its `if` did not hold; both are the same value
 * task.retrying       runId, stepId, attempt (the next), class (call) or error (try), due
 * task.caught         runId, stepId (of the try), error  its catch.do begins
 * task.resumed        runId, stepId, timeout?, attemptDue?, retryUntil?, since?   follows run.retried: a task with others in it is under way again, its times
 *                     begin anew; since: of a listen
 * task.carried        runId, stepId?, body? (true: of an iteration), phase, …   of a fork: a record of the state that it goes on from, as the fold left it where the other
 *                     run began forkedFrom.step. Without stepId: the run's own list, with consumed? [seq of an event]. Names of the rest: CARRIED_* in
 *                     workflow/state_internal.h; a number or truth that is left out is 0. values: input, output, context, current, in, error, correlation
 * attempt.started     runId, stepId, attempt, with, key, awaits? (true: for a child to end)   value: the evaluated arguments; key: the idempotency key
 * attempt.succeeded   runId, stepId, attempt, record, request?, response?, spent? {runtime, tokens, us}   values: record, request, response; spent:
 *                     workflow/base/spent.h, where something was sent to a runtime; of a child that was awaited its run's sum, without runtime
 * attempt.failed      runId, stepId, attempt, class, record, request?, response?, spent?, error? (value: the error of a child)
 * fact.recorded       runId, stepId, attempt, index, verdict, subject, payload, pae, signatures, document, runtime, configuration,
 *                     class, fact                        values: the statement's payload, the fact document
 * gate.recorded       runId, stepId, runtime, class, requests, answered, distinct, configuration?, report   value: the report; its digest is the gate's id
 * fact.erased         subject, payload, reason?
 * timer.set           runId, timer, due
 * timer.fired         runId, timer (wait, retry, attempt or timeout), stepId? (absent: the run's timeout), attemptDue? (retry)
 * event.received      event, key                         value: the canonical envelope; key: cloud_event_key()
 * event.emitted       runId, stepId, event, key          the same of an `emit`
 * event.consumed      runId, stepId, event, eventSeq, filter, until?, iteration?, last?, correlation?   of a `listen`; value: the envelope again, so that a run
 *                     has all that its replay needs. filter: of `to`, or of its `until` strategy; iteration: of foreach; last: no further event is wanted
 * events.forgotten    before                             events below this seq are no longer known: neither as duplicates nor to new listeners
 * sink.advanced       sink, position                     the sink has all events of the journal up to this seq
 * Any entry of a run: waits? (true)                       behind it the run only waits: for a timer, an event, a retry or a child that it awaits. Each entry
 *                     without it says that the run is at work (again); run_status_after() in workflow/state.h.
 *                     wakes? (time): it waits for nothing but times, this one is the first
 * schedule.ticked     schedule, due, runId, by? (operator: it was not due), zone? (digest of the zone's rules), eventSeq? (the last event of it)
 * schedule.skipped    schedule, first, last, count, more? (of them some uncounted), why, eventSeq?
 * schedule.paused     schedule, reason?                  schedule.resumed schedule        value: the reason
 * runs.purged         runs [runId], facts (kept, or not), keptMs? (retention: so long after their end), reason?    value: the operator's reason
 * content.erased      content, reason?                   every copy of this value is gone, its digest stays; value: the reason
 * journal.pruned      tiles, entries, kept, entriesMs    retention took entries of so many tiles (of the tiles: list of numbers)
 * runtime.started     runtime, instance, launch (digest of argv, variables, folder and files), executable, tries, adopted   value: detail, what was launched
 * runtime.ready       runtime, instance, afterMs, configuration?, adopted?
 * runtime.refused     runtime, instance?, class, status, signal, tries      value: detail, the line of its log that tells the cause, and its last lines
 * runtime.stopped     runtime, instance, why, status, signal, left (processes that SIGKILL has not ended)   value: detail, the operator's reason, its last lines,
 *                     the watchdog's samples. instance: pid and start in the kernel's ticks
 *                     of a model that its runtime was ordered to load or unload: ready, refused and stopped without status, signal, tries and left; instance? as in the facts of it
 * runtime.spent       spent, runId, stepId, attempt      of an attempt that nobody waits for any more: called off, or cut off by the end of the daemon
 *
 * A task that is pure (set, a private pure function) is one entry: task.completed. "record" is the attempt's record:
 * stages in microseconds, usage, finish reason, model, configuration digest (activity.h says what is in it). */
#define ENTRY_KINDS(X)                                        \
	X(ENTRY_JOURNAL_OPENED, "journal.opened", 0)          \
	X(ENTRY_KEY_ADDED, "key.added", 0)                    \
	X(ENTRY_DAEMON_STARTED, "daemon.started", 0)          \
	X(ENTRY_DAEMON_STOPPING, "daemon.stopping", 0)        \
	X(ENTRY_CLOCK_STEPPED, "clock.stepped", 0)            \
	X(ENTRY_CONFIG_LOADED, "config.loaded", 0)            \
	X(ENTRY_DEFINITION_ADDED, "definition.added", 0)      \
	X(ENTRY_DOCUMENT_ADDED, "document.added", 0)          \
	X(ENTRY_OPERATOR_ACTION, "operator.action", 0)        \
	X(ENTRY_RUN_CREATED, "run.created", 1)                \
	X(ENTRY_RUN_COMPLETED, "run.completed", 1)            \
	X(ENTRY_RUN_FAULTED, "run.faulted", 1)                \
	X(ENTRY_RUN_CANCELLED, "run.cancelled", 1)            \
	X(ENTRY_RUN_KILLED, "run.killed", 1)                  \
	X(ENTRY_RUN_SUSPENDED, "run.suspended", 1)            \
	X(ENTRY_RUN_RESUMED, "run.resumed", 1)                \
	X(ENTRY_RUN_RETRIED, "run.retried", 1)                \
	X(ENTRY_TASK_STARTED, "task.started", 1)              \
	X(ENTRY_TASK_COMPLETED, "task.completed", 1)          \
	X(ENTRY_TASK_FAULTED, "task.faulted", 1)              \
	X(ENTRY_TASK_CANCELLED, "task.cancelled", 1)          \
	X(ENTRY_TASK_SKIPPED, "task.skipped", 1)              \
	X(ENTRY_TASK_RETRYING, "task.retrying", 1)            \
	X(ENTRY_TASK_CAUGHT, "task.caught", 1)                \
	X(ENTRY_TASK_RESUMED, "task.resumed", 1)              \
	X(ENTRY_TASK_CARRIED, "task.carried", 1)              \
	X(ENTRY_ATTEMPT_STARTED, "attempt.started", 1)        \
	X(ENTRY_ATTEMPT_SUCCEEDED, "attempt.succeeded", 1)    \
	X(ENTRY_ATTEMPT_FAILED, "attempt.failed", 1)          \
	X(ENTRY_FACT_RECORDED, "fact.recorded", 1)            \
	X(ENTRY_GATE_RECORDED, "gate.recorded", 1)            \
	X(ENTRY_FACT_ERASED, "fact.erased", 0)                \
	X(ENTRY_TIMER_SET, "timer.set", 1)                    \
	X(ENTRY_TIMER_FIRED, "timer.fired", 1)              \
	X(ENTRY_SCHEDULE_TICKED, "schedule.ticked", 0)      \
	X(ENTRY_SCHEDULE_SKIPPED, "schedule.skipped", 0)    \
	X(ENTRY_SCHEDULE_PAUSED, "schedule.paused", 0)      \
	X(ENTRY_SCHEDULE_RESUMED, "schedule.resumed", 0)    \
	X(ENTRY_EVENT_RECEIVED, "event.received", 0)        \
	X(ENTRY_EVENT_EMITTED, "event.emitted", 1)          \
	X(ENTRY_EVENT_CONSUMED, "event.consumed", 1)        \
	X(ENTRY_EVENTS_FORGOTTEN, "events.forgotten", 0)    \
	X(ENTRY_SINK_ADVANCED, "sink.advanced", 0)          \
	X(ENTRY_RUNS_PURGED, "runs.purged", 0)              \
	X(ENTRY_CONTENT_ERASED, "content.erased", 0)        \
	X(ENTRY_JOURNAL_PRUNED, "journal.pruned", 0)        \
	X(ENTRY_RUNTIME_STARTED, "runtime.started", 0)      \
	X(ENTRY_RUNTIME_READY, "runtime.ready", 0)          \
	X(ENTRY_RUNTIME_REFUSED, "runtime.refused", 0)      \
	X(ENTRY_RUNTIME_STOPPED, "runtime.stopped", 0)      \
	X(ENTRY_RUNTIME_SPENT, "runtime.spent", 0)

enum entry_kind {
#define X(kind, text, run) kind,
	ENTRY_KINDS(X)
#undef X
	ENTRY_KIND_COUNT
};

const char *entry_kind_name(enum entry_kind kind);
bool entry_kind_parse(const char *text, enum entry_kind *kind);
bool entry_kind_touches_run(enum entry_kind kind);

enum {
	ENTRY_LEN_MAX = 65535, /* bytes of one entry: tlog-tiles' 16-bit length */
	ENTRY_VALUES_MAX = 6, /* values that travel with one entry */
	VALUE_INLINE_MAX = 4096, /* bytes kept in memory with a run's state */
	CONTENT_SMALL_MAX = 16384, /* appended and found by row id; larger is compressed and stored once, by digest */
	CONTENT_CHUNK = 1 << 20, /* larger content is written as chunk rows in earlier transactions */
	CONTENT_MAX = 64 << 20, /* one value */
};

/* Where small content lies: the row id is (seq << 8) + slot of the entry that first names it. 0: by digest alone. */
#define CONTENT_ID(seq, slot) (((uint64_t)(seq) << 8) + (uint64_t)(slot) + 1)

/* Bytes that travel with an entry and are first named by it. */
struct entry_value {
	struct digest digest;
	struct bytes bytes; /* Reading back: data is NULL when the value was not asked for or is erased. */
	uint64_t size;
};

/* One entry. Made by a decision: `data`, `values`, `statement` live in the decision's arena and stay untouched until its
 * commit callback. Read back: they live in the reader's arena. */
struct entry {
	enum entry_kind kind;
	struct json *data; /* fact.recorded: the writer adds payload, pae and signatures before it is encoded */
	struct entry_value values[ENTRY_VALUES_MAX];
	size_t value_count;
	struct bytes statement; /* fact.recorded: the payload to sign; it is also values[0] */
	int64_t time_ms; /* wall clock of the trigger; the entry's `ts` */
	uint64_t seq; /* valid after commit */
};

/* The canonical bytes: {"data":…,"kind":…,"log":…,"seq":…,"ts":…,"v":1}. ERR_TOO_LARGE past ENTRY_LEN_MAX. */
int entry_encode(const struct entry *entry, const char *origin, uint64_t seq, struct buffer *out, struct error *error);
/* Back again (values are the reader's to fill in). ERR_CORRUPT with a reason. origin may be NULL: not compared. */
int entry_decode(struct arena *arena, struct bytes text, const char *origin, struct entry *entry, struct error *error);

/* Add a value to an entry and name it in data: data[name] = {"sha256": …}. Returns its digest. */
struct digest entry_add_value(struct arena *arena, struct entry *entry, const char *name, struct bytes bytes);
/* Step ids: "/do/1/extract#12.3@1" = reference, iteration path, execution number (semantics.md 1). */
struct step_id {
	const char *reference; /* in the arena given */
	uint64_t iterations[16];
	size_t iteration_count;
	uint64_t execution;
};
enum { STEP_LOOPS_MAX = 16 };
char *step_id_print(struct arena *arena, const struct step_id *id);
bool step_id_parse(struct arena *arena, const char *text, struct step_id *id);
/* Lower-case hex SHA-256 of the canonical [run id, reference, iteration path, execution number]. */
void step_idempotency_key(const char *run_id, const struct step_id *id, char key[DIGEST_HEX_LEN + 1]);
