/* What the tests of activities share: a loop with activities on it, a store of documents in memory, the real simulator as a
 * process, and a small TCP server that says just what a test wants to be said. Not safe for several at once in one process. */
#pragma once

#include <check.h>
#include <sys/types.h>
#include <uv.h>

#include "activities/activity.h"

enum { RIG_RUNTIMES_MAX = 4, RIG_DOCUMENTS_MAX = 16, STUB_PIECES_MAX = 8, STUB_SEEN_MAX = 64 << 10 };

/* The simulator. */
struct sim {
	pid_t pid;
	char url[64], control[64];
};
void sim_start(struct sim *sim, const char *script_json); /* NULL: no script */
void sim_stop(struct sim *sim);
struct json *sim_state(const struct sim *sim, struct arena *arena);
void sim_set_script(const struct sim *sim, const char *json);

/* A server that answers each POST, and each GET but of models and of a version, with the pieces of `pieces`. */
struct stub_piece {
	const char *text;
	size_t len; /* 0: strlen(text) */
	unsigned delay_ms; /* before it */
	unsigned repeat; /* write it that often */
};
struct stub {
	uv_tcp_t listener;
	struct rig *rig;
	int port;
	char url[64];
	const char *models; /* the body of GET /v1/models and /api/v1/models; NULL: one model "m" of the former */
	const char *server; /* Server header of that */
	struct stub_piece pieces[STUB_PIECES_MAX];
	bool keep_open; /* after the last piece */
	bool silent; /* accept, say nothing */
	unsigned requests, gets;
	char seen[STUB_SEEN_MAX]; /* the last request, header and body */
	unsigned closed_by_client;
	struct list connections;
};

struct rig {
	uv_loop_t loop;
	struct activities *activities;
	struct runtime_config runtimes[RIG_RUNTIMES_MAX];
	size_t runtime_count;
	const char *http_allow[8];
	size_t http_allow_count;
	struct bytes documents[RIG_DOCUMENTS_MAX];
	size_t document_count;
	unsigned loads, notes; /* calls of the ports */
	bool notes_fail, hold_notes;
	struct configuration_note *held_note;
	struct arena note_arena;
	struct json *last_note; /* the record */
	uint64_t skew_us; /* added to the activities' clock */
	uint64_t first_now_us, last_now_us; /* the times that the activities asked for since task_start(): from an attempt's begin to its end */
	bool closed;
	struct stub *stubs[4];
	size_t stub_count;
};

void rig_init(struct rig *rig);
/* Add a runtime "r" (or another name) with model "m" at url; returned for changes before rig_open(). */
struct runtime_config *rig_runtime(struct rig *rig, const char *name, const char *url);
void rig_stub(struct rig *rig, struct stub *stub); /* starts to listen */
void rig_open(struct rig *rig);
struct digest rig_document(struct rig *rig, struct bytes bytes);
void rig_close(struct rig *rig); /* all handles must go away */

/* One activity that a test waits for. */
struct task {
	struct activity activity;
	struct arena arena;
	struct error error;
	bool done;
	unsigned order; /* the n-th that was done, from 1 */
	uint64_t begun_us;
	uint64_t ended_us;
};
void task_init(struct task *task, enum activity_kind kind, const char *with_json);
void task_start(struct rig *rig, struct task *task); /* must be accepted */
void task_wait(struct rig *rig, struct task *task);
void task_run(struct rig *rig, struct task *task);
void task_close(struct task *task);
/* Runs it and checks how it ends: class, and that detail holds a text (NULL: any). */
void task_expect(struct rig *rig, enum activity_kind kind, const char *with_json, enum failure_class failure, const char *detail);
void rig_turns(struct rig *rig, unsigned ms); /* let the loop run for a while */
/* A listener whose queue is full: connecting to it takes for ever. */
struct full_listener {
	int listener, fillers[8];
	char url[64];
};
void full_listener_open(struct full_listener *full);
void full_listener_close(struct full_listener *full);
int64_t stages_sum(const struct stage_times *stages);

#define SSE_HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nServer: stub\r\n\r\n"
#define JSON_HEAD "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nServer: stub\r\n\r\n"
#define SSE_TEXT(text) "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" text "\"},\"finish_reason\":null}]}\n\n"
#define SSE_FINISH(reason) "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" reason "\"}]}\n\n"
#define SSE_DONE "data: [DONE]\n\n"
#define ASK "{\"runtime\": \"r\", \"prompt\": \"Say something.\"}"
