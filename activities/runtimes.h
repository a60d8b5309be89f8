/* The runtimes of the configuration at work: their queues (slot_queue.h), and who answers there. Loop thread.
 *
 *     unknown ─▶ asking ─▶ known        known ─▶ unknown: a connection failed, another Server header, other weights
 *        ▲         └─▶ unknown: the first probe got no answer; those who wait get the error and may try again
 *
 * It is also asked at the daemon's start, every probeEvery, when a model was loaded, and beside each attempt that had to open a
 * connection: behind that may be somebody else, behind one that is used again is not.
 *
 * Before an inference is sent the runtime is known and its configuration record is durable, so no fact names a record that a
 * crash could lose. New here? Read runtime_configure(), then next_step() in runtimes.c. */
#pragma once

#include "activities/configuration.h"
#include "activities/instance.h"
#include "activities/internal.h"
#include "activities/slot_queue.h"
#include "activities/spending.h"

enum {
	CONFIGURATIONS_KEPT_MAX = 16, /* records of one runtime that need not be made durable again */
	PROBE_BODY_MAX = 1 << 20,
	PROBE_TIMEOUT_MS = 5 * 1000, /* of each request of a probe */
	WEIGHTS_CHECK_MS = 10 * 1000, /* how often an inference looks whether the weights file is still the one */
	RUNTIMES_MAX = 1000,
	RUNTIMES_NAMED_LEN_MAX = 200, /* bytes of names in one message */
	RUNTIME_CONCURRENCY_MAX = 100 * 1000,
	CONCURRENCY_UNTOLD = 1, /* of `concurrency: auto`, when the runtime does not say how many it takes */
	DIFFERENCES_LEN_MAX = 4096, /* bytes that name the fields which changed */
	RUNTIME_ERRED_MAX = 64, /* requests whose 500 is remembered until they are tried again; of more the oldest may be tried once too often */
	RUNTIME_ERRED_KEY_LEN = 32, /* bytes of a request's key that are compared */
};

/* Of a runtime that the daemon launches: does its queue move? */
enum runtime_admission { RUNTIME_ADMITS, RUNTIME_HOLDS, RUNTIME_REFUSES };

/* Request: know who answers. The caller owns it and leaves it alone until on_done or runtime_give_up(). */
struct configuration_wait {
	struct list link;
	void (*on_done)(struct configuration_wait *wait);
	struct configuration *configuration; /* held; NULL: failure and detail say why */
	enum failure_class failure;
	char detail[ACTIVITY_DETAIL_MAX];
};

enum runtime_reach { RUNTIME_UNKNOWN, RUNTIME_REACHABLE, RUNTIME_UNREACHABLE };

/* What the runtimes of one URL share: they are models of one server. */
struct runtime_server {
	unsigned holders;
	struct activities *activities;
	struct slot_server slots;
	struct deadline *wake; /* when time alone gives somebody his turn; NULL: nothing waits for that */
	bool giving_slots;
};

struct probe; /* one conversation with a runtime, under way */
struct runtime {
	struct activities *activities;
	struct runtime_config config;
	struct secret_texts secrets; /* the key */
	const struct runtime_adapter *adapter;
	bool local; /* on this machine, so that the host's facts are its own */
	struct runtime_server *server;
	struct slot_queue queue; /* its `concurrency` is the one in force */
	struct spending spending;
	char concurrency_basis[16], concurrency_source[80]; /* "configured", or as in the record; "": no source */
	struct list gates; /* gates.c */
	size_t gate_count;
	enum runtime_admission admission;
	enum failure_class refusal; /* RUNTIME_REFUSES: what those who ask get */
	char refusal_detail[ACTIVITY_DETAIL_MAX];
	struct supervisor *supervisor; /* NULL: the daemon does not launch it */
	struct loading *loading; /* loading.h; NULL: nobody has ordered it yet */

	enum runtime_reach reach;
	char last_error[ACTIVITY_DETAIL_MAX];
	struct configuration *configuration; /* the newest one; NULL: never asked */
	bool known; /* it is in force */
	char host_name[256]; /* of its url */
	struct listener listener; /* as the last probe found it; only of a local one */
	struct runtime_instance instance; /* … and what follows: which process answers */
	char process[INSTANCE_ID_LEN_MAX + 1]; /* the instance without what it has loaded; "": not known */
	int64_t loaded_ms; /* wall time; when the model was last loaded for a request, as its answer or a probe behind it tells. 0: never */
	uint64_t instance_requests; /* that were sent to it so far, by this daemon */
	bool is_unloaded; /* the last probe found that a request would load the model first */
	bool is_router; /* … and that it hands each model's requests on to a process of that model, which may be another one at any time */
	struct list kept; /* configurations, oldest first */
	size_t kept_count;
	struct list waits; /* for the probe under way */
	struct list waits_next; /* for one that begins after now */
	struct probe *probe;
	bool thorough_next; /* the next probe also tries what makes the model work */
	struct deadline *schedule; /* NULL: it is only asked when something needs it */
	struct arena observed_arena;
	struct json *ignored; /* sampling fields that it takes no notice of; NULL: nobody looked */
	struct json *learned; /* fields, by group, that a thorough probe told and a common one does not; or NULL */
	bool cannot_count; /* prompts, found out by trying */
	unsigned without; /* WITHOUT_…: what it refused */
	char erred[RUNTIME_ERRED_MAX][RUNTIME_ERRED_KEY_LEN]; /* a ring of keys; zeros: nobody's */
	size_t erred_next;
	struct weights weights;
	uint64_t weights_checked_us;
	struct arena models_arena;
	struct json *models; /* as last told, or NULL */
};

int runtimes_open(struct activities *activities, const struct runtime_config *configs, size_t count, struct error *error);
void runtimes_watch(struct activities *activities); /* asks each one now, and every probeEvery from then on */
void runtimes_stop(struct activities *activities); /* gives up probes; what waits for them gets FAILURE_INTERRUPTED */
void runtimes_close(struct activities *activities);
struct runtime *runtime_get(const struct activities *activities, const char *name); /* NULL: no such */
/* Sets and returns ERR_NOT_FOUND: who asks for a name that is not configured hears which ones are. */
int runtime_refuse_name(const struct activities *activities, const char *name, struct error *error);

void runtime_queue(struct runtime *runtime, struct slot *slot);
/* failure and detail: with RUNTIME_REFUSES alone, which lets go all that wait. */
void runtime_admit(struct runtime *runtime, enum runtime_admission admission, enum failure_class failure, const char *detail);
void runtime_lose(struct runtime *runtime, enum failure_class failure, const char *detail); /* tells all that hold a slot */
void runtime_leave(struct runtime *runtime, struct slot *slot); /* gives the slot back or leaves the queue; else nothing. What was spent is counted */
bool runtime_has_budget(const struct runtime *runtime);
/* The runtime wants to be left alone for so long (Retry-After): all that is queued waits, so that it costs nobody an attempt. */
void runtime_hold(struct runtime *runtime, int64_t for_ms);

/* ASK_ANEW: what holds at some moment after this call. ASK_THOROUGHLY: and which parameters it takes no notice of, which takes a
 * request for a token per parameter. */
enum runtime_ask { ASK_IF_UNKNOWN, ASK_ANEW, ASK_THOROUGHLY };
/* True: wait->configuration is there (held) at once; never when asked anew. False: on_done follows, later. */
bool runtime_configure(struct runtime *runtime, struct configuration_wait *wait, enum runtime_ask how);
/* After an answer: is `used` still right, given its Server header and fingerprint (NULL: none)? The record that holds is in
 * wait->configuration; true and on_done as above. */
bool runtime_confirm(struct runtime *runtime, struct configuration_wait *wait, struct configuration *used, const char *server,
		     const char *fingerprint);
void runtime_give_up(struct configuration_wait *wait);
/* A connection failed: who answers next may be somebody else. */
void runtime_doubt(struct runtime *runtime, const char *why, bool unreachable);
void runtime_reached(struct runtime *runtime);
/* What only a thorough probe tells (LM Studio's engine) may not hold any more, or will not in a moment: the next record is without it. */
void runtime_forget_learned(struct runtime *runtime);
bool runtime_reload_forgets(const struct runtime *runtime); /* … which is so after a reload: by another process, or one that nobody sees */
/* Of a launched runtime: its process has ended. Who answered is not known any more, and nobody is asked until it has another one. */
void runtime_is_gone(struct runtime *runtime);
/* The runtime answered a request with 500. True: it did before, under the same key, so one more would be the same (runtimes.md 2.2); and it is
 * asked now whether it is ready at all. */
bool runtime_erred(struct runtime *runtime, const char *key);
/* Are weights being hashed, and how far is it? Bytes. */
bool runtime_hashing(const struct runtime *runtime, double *done, double *total);
/* Lines "Name: value\n" that every request to it carries, ending with a NUL. */
char *runtime_headers(const struct runtime *runtime, struct arena *arena, const char *more);
