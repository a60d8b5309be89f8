/* See supervisor.h. Loop thread. In this order: words; notes; what was launched; a process that an earlier daemon left; the end; whether it has its
 * engine still; the start; what the launcher tells; orders; life. */
#include "activities/supervisor.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activities/executable.h"
#include "activities/kernels.h"
#include "activities/launch.h"
#include "activities/launcher.h"
#include "activities/refusal.h"
#include "activities/runtime_log.h"
#include "activities/watchdog.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"
#include "workflow/base/time.h"

enum { US_PER_MS = 1000, STAT_MAX = 1024 };

#define TO(state) (1U << (state))

struct state_rule {
	const char *name;
	unsigned next;
};

static const struct state_rule rules[RUNTIME_STATE_COUNT] = {
	[RUNTIME_STOPPED] = {"stopped", TO(RUNTIME_STARTING)},
	[RUNTIME_STARTING] = {"starting", TO(RUNTIME_READY) | TO(RUNTIME_STOPPING) | TO(RUNTIME_STOPPED) | TO(RUNTIME_RESTARTING) | TO(RUNTIME_REFUSED)},
	/* Stopped at once: it ended by itself while the daemon ends and would have kept it. */
	[RUNTIME_READY] = {"ready", TO(RUNTIME_STOPPING) | TO(RUNTIME_RESTARTING) | TO(RUNTIME_FAILED) | TO(RUNTIME_STOPPED)},
	[RUNTIME_STOPPING] = {"stopping", TO(RUNTIME_STOPPED) | TO(RUNTIME_RESTARTING) | TO(RUNTIME_REFUSED) | TO(RUNTIME_FAILED)},
	[RUNTIME_RESTARTING] = {"restarting", TO(RUNTIME_STARTING) | TO(RUNTIME_STOPPED)},
	[RUNTIME_REFUSED] = {"refused", TO(RUNTIME_STARTING) | TO(RUNTIME_STOPPED)},
	[RUNTIME_FAILED] = {"failed", TO(RUNTIME_STARTING) | TO(RUNTIME_STOPPED)},
};

/* Why it is being stopped; what follows is another for each. */
enum stop_why { STOP_ASKED, STOP_RELOAD, STOP_DAEMON, STOP_NOT_READY, STOP_WATCHDOG, STOP_ENGINE_DEAD, STOP_CRASHED, STOP_WHY_COUNT };
static const char *const why_names[STOP_WHY_COUNT] = {
	[STOP_ASKED] = "asked", [STOP_RELOAD] = "reload", [STOP_DAEMON] = "daemon-stopping", [STOP_NOT_READY] = "not-ready", [STOP_WATCHDOG] = "watchdog",
	[STOP_ENGINE_DEAD] = "engine-dead", [STOP_CRASHED] = "crashed",
};

/* Its configuration is sound: it ended, or had to be ended, and is started anew. */
static bool is_failure(enum stop_why why)
{
	return why == STOP_WATCHDOG || why == STOP_ENGINE_DEAD || why == STOP_CRASHED;
}

struct supervisor {
	struct runtime *runtime;
	struct activities *activities;
	const struct launch_config *config;
	struct launcher *launcher;
	bool launcher_lost;
	enum runtime_state state;
	enum stop_why why; /* STOPPING */
	bool start_again; /* asked for while it is being stopped, or a start is given up */
	bool ending, closed;
	size_t notes; /* on their way to the journal */
	char *log_path, *note_path;
	struct runtime_log log;
	struct deadline *step; /* the next look, its end, a start, or the end of a predecessor's time */
	struct deadline *within; /* STARTING: ready_ms; READY: settled; STOPPING: grace of what is not the launcher's child */
	struct deadline *log_due;

	/* One start. */
	struct arena arena; /* of the executable's texts */
	struct executable executable;
	uv_work_t pool;
	bool in_pool;
	atomic_bool give_up;
	struct error error;
	struct json *launched; /* in launched_arena */
	struct arena launched_arena;
	struct json *kernels, *evidence; /* in launched_arena too: what the log of this start has told so far */
	struct digest identity; /* of what was launched: a process that goes on is ours if it has the same */
	struct transfer transfer; /* a look whether somebody answers, is ready, or still has its engine */
	unsigned dead_looks; /* READY: in a row that said 503 */
	bool doubted; /* READY: its queue is held until it is known whether it is there and has its engine */
	bool asking, configuring;
	bool launching; /* told to the launcher, which has not answered */
	struct configuration_wait wait;
	char *url, *life_url, *headers; /* life_url: NULL where its kind has no word for it */
	char *plain_headers; /* without the key: nobody knows yet who answers there */
	struct watchdog *watchdog;

	pid_t pid; /* 0: no process */
	char ticks[32];
	bool adopted; /* it goes on from an earlier daemon: nobody's child here */
	bool engine_asked; /* to stop the container of what is adopted: that was done, or is being done */
	bool engine_stops; /* the launcher is at it: of what is adopted, or what an earlier daemon left */
	pid_t predecessor; /* … of another configuration, or left over: has to end first. 0: none */
	char predecessor_ticks[32];
	uint64_t predecessor_until_us;
	bool predecessor_killed;
	uint64_t started_us;
	int64_t since_ms; /* wall time of the state */
	int64_t started_ms; /* wall time of the process */
	unsigned tries; /* starts anew in a row */
	uint64_t starts;
	struct refusal refusal;
	char detail[ACTIVITY_DETAIL_MAX]; /* why it is in this state */
	char *reason; /* the operator's words, for the next entry */
	struct arena samples_arena;
	struct json *samples; /* of the watchdog that tripped */
};

static void begin_start(struct supervisor *supervisor);
static void launch(struct supervisor *supervisor);
static void ask(struct supervisor *supervisor);
static void close_if_over(struct supervisor *supervisor);
static void on_exited(void *arg, int status, int signal_number, unsigned left);
static bool stop_container(struct supervisor *supervisor, const char *engine, const char *name);

const char *runtime_state_name(enum runtime_state state)
{
	return rules[state].name;
}

static void set_state(struct supervisor *supervisor, enum runtime_state state)
{
	CHECK((rules[supervisor->state].next & TO(state)) != 0);
	log_info(LOG_ACTIVITY, "runtime=%s %s -> %s%s%s", supervisor->runtime->config.name, rules[supervisor->state].name, rules[state].name,
		 supervisor->detail[0] != '\0' ? ": " : "", supervisor->detail);
	supervisor->state = state;
	supervisor->since_ms = supervisor->activities->ports.wall_ms(supervisor->activities->ports.arg);
}

/* ---- Notes ---- */

struct supervisor_note {
	struct runtime_note note;
	struct supervisor *supervisor;
	struct arena arena;
};

static void on_noted(struct runtime_note *done)
{
	struct supervisor_note *own = CONTAINER_OF(done, struct supervisor_note, note);
	struct supervisor *supervisor = own->supervisor;

	if (done->error.code != ERR_NONE)
		log_warn(LOG_ACTIVITY, "runtime=%s its %s is not in the journal: %s", done->runtime, done->kind, done->error.message);
	supervisor->notes--;
	arena_close(&own->arena);
	free(own);
	close_if_over(supervisor);
}

static struct supervisor_note *begin_note(struct supervisor *supervisor, const char *kind)
{
	struct supervisor_note *own = memory_zero(sizeof(*own));
	struct arena *arena = &own->arena;

	arena_init(arena);
	own->supervisor = supervisor;
	own->note = (struct runtime_note){.kind = kind, .runtime = supervisor->runtime->config.name, .data = json_object(arena), .value = json_object(arena),
					   .on_done = on_noted, .owner = supervisor};
	json_set_text(arena, own->note.data, "runtime", supervisor->runtime->config.name);
	if (supervisor->pid != 0)
		json_set(arena, own->note.data, "instance", json_printf(arena, "%d-%s", (int)supervisor->pid, supervisor->ticks));
	return own;
}

static void send_note(struct supervisor_note *own)
{
	struct supervisor *supervisor = own->supervisor;
	struct activities *activities = supervisor->activities;

	if (supervisor->reason != NULL)
		json_set_text(&own->arena, own->note.value, "reason", supervisor->reason);
	free(supervisor->reason);
	supervisor->reason = NULL;
	supervisor->notes++;
	if (activities->ports.note_runtime != NULL) {
		activities->ports.note_runtime(activities->ports.arg, &own->note);
		return;
	}
	on_noted(&own->note);
}

/* A line of a log is bytes of anybody; an entry's value is text. */
static struct json *log_text(struct arena *arena, struct bytes line)
{
	char *copy = arena_text_len(arena, (const char *)line.data, line.len);
	bool valid = utf8_valid(line, NULL);

	for (size_t i = 0; i < line.len; i++)
		if ((copy[i] >= 0 && copy[i] < ' ') || copy[i] == 0x7f || (!valid && (copy[i] & 0x80) != 0))
			copy[i] = copy[i] == '\t' ? ' ' : '?';
	return json_text(arena, copy);
}

static struct json *make_tail(const struct supervisor *supervisor, struct arena *arena)
{
	struct bytes lines[SUPERVISOR_TAIL_LINES];
	size_t count = runtime_log_lines(&supervisor->log, lines, SUPERVISOR_TAIL_LINES);
	struct json *list = json_array(arena);

	for (size_t i = 0; i < count; i++)
		json_add(arena, list, log_text(arena, lines[i]));
	return list;
}

/* ---- What was launched ---- */

static struct json *describe_env(struct arena *arena, const struct launch_config *config)
{
	struct json *object = json_object(arena);

	for (size_t i = 0; config->env[i] != NULL; i++) {
		size_t len = strcspn(config->env[i], "=");
		const char *value = config->env[i] + len + 1;

		for (size_t j = 0; config->inherited[j] != NULL; j++)
			if (strncmp(config->inherited[j], config->env[i], len) == 0 && config->inherited[j][len] == '\0')
				value = "(inherited)"; /* the daemon's own surroundings, and nobody's choice */
		json_set_len(arena, object, config->env[i], len, json_text(arena, launch_is_secret(config->env[i], len) ? "(set)" : value));
	}
	return object;
}

static void add_field(struct arena *arena, struct json *group, const char *name, struct json *value, const char *basis, const char *source)
{
	struct json *field = json_object(arena);

	json_set(arena, field, "value", value);
	json_set_text(arena, field, "basis", basis);
	json_set_text(arena, field, "source", source);
	json_set(arena, group, name, field);
}

/* LAUNCH_MARK in an argument stands for the launch itself: what the runtime then says of itself (vLLM's --fingerprint-value, SGLang's
 * --weight-version) tells which launch has answered. */
static const char **mark_argv(struct arena *arena, const char *const *argv, const char *mark)
{
	size_t count = 0, mark_len = sizeof(LAUNCH_MARK) - 1;
	const char **marked;

	while (argv[count] != NULL)
		count++;
	marked = arena_zero(arena, (count + 1) * sizeof(*marked));
	for (size_t i = 0; i < count; i++) {
		const char *at = strstr(argv[i], LAUNCH_MARK);

		marked[i] = at == NULL ? argv[i] : arena_printf(arena, "%.*s%s%s", (int)(at - argv[i]), argv[i], mark, at + mark_len);
	}
	return marked;
}

static void describe_launched(struct supervisor *supervisor)
{
	struct executable *executable = &supervisor->executable;
	struct arena *arena = &supervisor->launched_arena;
	struct json *a, *c, *env, *whole;
	char hex[DIGEST_HEX_LEN + 1];
	const char *source;
	unsigned parallel;

	arena_close(arena);
	supervisor->launched = json_object(arena);
	supervisor->kernels = json_object(arena);
	supervisor->evidence = json_array(arena);
	a = json_object(arena);
	c = json_object(arena);
	digest_hex(&executable->files[0].digest, hex);
	add_field(arena, a, "binary_sha256", json_text(arena, hex), "measured", executable->file_count > 1 ? "the script; read by its interpreter, by path" :
													       "the file that was executed");
	if (executable->file_count > 1) {
		digest_hex(&executable->files[executable->file_count - 1].digest, hex);
		add_field(arena, a, "interpreter_sha256", json_text(arena, hex), "measured", "the file that was executed");
	}
	add_field(arena, c, "argv", launch_argv_json(arena, supervisor->config->argv), "launched", "launch.argv");
	env = describe_env(arena, supervisor->config);
	add_field(arena, c, "env", env, "launched", "launch.env, launch.inherit");
	if (json_get(env, "VLLM_BATCH_INVARIANT") != NULL)
		add_field(arena, c, "determinism_switch", json_copy(arena, json_get(env, "VLLM_BATCH_INVARIANT")), "launched", "launch.env");
	json_set(arena, supervisor->launched, "A", a);
	json_set(arena, supervisor->launched, "C", c);
	whole = json_copy(arena, supervisor->launched);
	json_set_text(arena, whole, "folder", supervisor_folder(supervisor));
	supervisor->identity = json_digest(whole);
	digest_hex(&supervisor->identity, hex);
	hex[LAUNCH_MARK_LEN] = '\0';
	executable->argv = mark_argv(arena, executable->argv, hex);
	add_field(arena, c, "argv", launch_argv_json(arena, mark_argv(arena, supervisor->config->argv, hex)), "launched", "launch.argv");
	/* Follows from what is in there already. */
	parallel = launch_parallel(supervisor->config->argv, supervisor->config->env, &source);
	if (parallel > 0)
		add_field(arena, c, "parallel", json_number(arena, parallel), "launched", source);
}

const struct json *supervisor_launched(const struct supervisor *supervisor)
{
	/* It answers under this only while it is there. */
	return supervisor != NULL && supervisor->pid != 0 ? supervisor->launched : NULL;
}

const char *supervisor_folder(const struct supervisor *supervisor)
{
	return supervisor->config->folder != NULL ? supervisor->config->folder : "/";
}

bool supervisor_is_up(const struct supervisor *supervisor)
{
	return supervisor == NULL || (supervisor->pid != 0 && !supervisor->engine_asked && (supervisor->state == RUNTIME_STARTING || supervisor->state == RUNTIME_READY));
}

bool supervisor_instance(const struct supervisor *supervisor, struct runtime_instance *instance)
{
	if (supervisor == NULL || supervisor->pid == 0)
		return false;
	instance_from_process(instance, supervisor->pid, supervisor->ticks, supervisor->started_ms);
	return true;
}

/* ---- A process that is not the launcher's child ---- */

static bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t len = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	if (len < 0)
		return false;
	text[len] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return true;
}

/* It is the same process as then, and no zombie. */
static bool is_alive(pid_t pid, const char *ticks)
{
	char own[PROCESS_TICKS_LEN_MAX + 1];

	return process_read_ticks(pid, own) && strcmp(own, ticks) == 0;
}

static void write_note(const struct supervisor *supervisor);

static const struct json *launched_value(const struct supervisor *supervisor, const char *group, const char *name)
{
	return json_get(json_get(json_get(supervisor->launched, group), name), "value");
}

/* What the log of a start tells: kernels are part of the configuration, lines beside it (group G) show where it comes from. */
static void add_logged(struct supervisor *supervisor, const struct json *kernels, const struct json *evidence)
{
	struct arena *arena = &supervisor->launched_arena;
	struct json *g = json_get(supervisor->launched, "G");

	if (json_count(kernels) > 0)
		add_field(arena, json_get(supervisor->launched, "C"), "kernels", json_copy(arena, kernels), "log", "its log");
	if (json_count(evidence) == 0)
		return;
	if (g == NULL) {
		g = json_object(arena);
		json_set(arena, supervisor->launched, "G", g);
	}
	add_field(arena, g, "log_lines", json_copy(arena, evidence), "log", "its log");
}

/* As they come, for until it is ready it may write more lines than are kept. */
static void on_log_line(void *arg, struct bytes line)
{
	struct supervisor *supervisor = arg;

	if (supervisor->state == RUNTIME_STARTING && (supervisor->launching || supervisor->pid != 0) && !supervisor->adopted) {
		kernels_read_line(&supervisor->launched_arena, line, supervisor->kernels);
		kernels_read_evidence(&supervisor->launched_arena, line, supervisor->evidence);
	}
}

/* What it says of itself at the start alone: in the record once it is ready. Of one that goes on from an earlier daemon that daemon's note tells. */
static void take_kernels(struct supervisor *supervisor)
{
	if (supervisor->adopted)
		return;
	runtime_log_read(&supervisor->log);
	if (json_count(supervisor->kernels) == 0 && json_count(supervisor->evidence) == 0)
		return;
	add_logged(supervisor, supervisor->kernels, supervisor->evidence); /* as the note has them */
	write_note(supervisor);
}

static void write_note(const struct supervisor *supervisor)
{
	char boot[64] = "", text[DIGEST_TEXT_LEN + 1];
	struct arena arena;
	struct json *note;
	struct bytes bytes;
	const char *path;
	bool written;
	int fd;

	arena_init(&arena);
	note = json_object(&arena);
	read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	digest_text(&supervisor->identity, text);
	json_set_number(&arena, note, "pid", supervisor->pid);
	json_set_text(&arena, note, "start", supervisor->ticks);
	json_set_text(&arena, note, "boot", boot);
	json_set_text(&arena, note, "identity", text);
	if (supervisor->config->container != NULL && strlen(supervisor->config->container) <= SUPERVISOR_ENGINE_LEN_MAX && strlen(supervisor->config->argv[0]) <= SUPERVISOR_ENGINE_LEN_MAX) {
		json_set_text(&arena, note, "engine", supervisor->config->argv[0]);
		json_set_text(&arena, note, "container", supervisor->config->container);
	}
	if (launched_value(supervisor, "C", "kernels") != NULL)
		json_set(&arena, note, "kernels", json_copy(&arena, launched_value(supervisor, "C", "kernels")));
	if (launched_value(supervisor, "G", "log_lines") != NULL)
		json_set(&arena, note, "logLines", json_copy(&arena, launched_value(supervisor, "G", "log_lines")));
	static_assert(KERNELS_NAMES * KERNELS_TEXTS_MAX * (2 * KERNELS_TEXT_LEN_MAX + 3) + EVIDENCE_LINES_MAX * (2 * EVIDENCE_LINE_LEN_MAX + 3) + 2 * 6 * SUPERVISOR_ENGINE_LEN_MAX + 512 <= SUPERVISOR_FILE_MAX,
		      "each byte of them may be escaped");
	bytes = json_print_arena(note, &arena);
	/* Beside the old one, which stands until it is whole: a daemon that is killed in between leaves no process that nobody knows. */
	path = arena_printf(&arena, "%s.new", supervisor->note_path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	written = fd >= 0 && write(fd, bytes.data, bytes.len) == (ssize_t)bytes.len && rename(path, supervisor->note_path) == 0;
	if (!written)
		log_warn(LOG_ACTIVITY, "runtime=%s %s cannot be written: should the daemon be killed, the next one will not know the process: %s", supervisor->runtime->config.name, supervisor->note_path, strerror(errno));
	if (fd >= 0)
		close(fd);
	arena_close(&arena);
}

enum left_over { LEFT_NOTHING, LEFT_OURS, LEFT_OTHER };

/* What an earlier daemon started, and is still there. Of a container that is not ours the engine is asked to stop it, also where the engine's client is gone: it
 * may be there still, and nobody else would end it. */
static enum left_over find_left_over(struct supervisor *supervisor, pid_t *pid, char *ticks, size_t size)
{
	enum left_over found = LEFT_NOTHING;
	char text[SUPERVISOR_FILE_MAX], boot[64] = "";
	struct arena arena;
	struct digest identity;
	struct json *note;
	const char *start, *booted;
	bool is_of_boot;

	if (!read_text(supervisor->note_path, text, sizeof(text)))
		return LEFT_NOTHING;
	arena_init(&arena);
	note = json_parse(&arena, bytes_text(text), JSON_STRICT, NULL, NULL);
	start = json_get_text(note, "start");
	booted = json_get_text(note, "boot");
	read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	*pid = (pid_t)json_get_number(note, "pid", 0);
	is_of_boot = start != NULL && booted != NULL && strcmp(booted, boot) == 0;
	if (is_of_boot && strlen(start) < size && is_alive(*pid, start)) {
		snprintf(ticks, size, "%s", start);
		found = supervisor->config->keep && json_get_text(note, "identity") != NULL && digest_parse(json_get_text(note, "identity"), &identity) &&
					digest_equal(&identity, &supervisor->identity) ?
				LEFT_OURS :
				LEFT_OTHER;
		if (found == LEFT_OURS)
			add_logged(supervisor, json_get(note, "kernels"), json_get(note, "logLines"));
	}
	if (is_of_boot && found != LEFT_OURS && json_get_text(note, "engine") != NULL && json_get_text(note, "container") != NULL)
		stop_container(supervisor, json_get_text(note, "engine"), json_get_text(note, "container"));
	arena_close(&arena);
	return found;
}

/* ---- The end of a start, and of a runtime ---- */

static void stop_deadlines(struct supervisor *supervisor)
{
	deadline_stop(supervisor->step);
	deadline_stop(supervisor->within);
}

/* What is asked of it, or of the address. */
static void stop_asking(struct supervisor *supervisor)
{
	if (supervisor->asking) {
		transfer_cancel(&supervisor->transfer);
		transfer_close(&supervisor->transfer);
	}
	if (supervisor->configuring)
		runtime_give_up(&supervisor->wait);
	supervisor->asking = supervisor->configuring = false;
}

static void forget_process(struct supervisor *supervisor)
{
	/* Before there is one the note is of what an earlier daemon left, which may be there still. */
	if (supervisor->pid != 0)
		unlink(supervisor->note_path);
	supervisor->pid = 0;
	supervisor->adopted = supervisor->engine_asked = false;
	runtime_is_gone(supervisor->runtime);
}

/* Attempts hear why, and that nothing is going to change by itself. */
static void refuse_attempts(struct supervisor *supervisor, enum failure_class failure)
{
	char text[ACTIVITY_DETAIL_MAX];

	detail_set(text, "runtime %s %s: %s", supervisor->runtime->config.name, supervisor->state == RUNTIME_REFUSED ? "does not start" : "is given up",
		   supervisor->detail);
	runtime_admit(supervisor->runtime, RUNTIME_REFUSES, failure, text);
}

/* Once more after a while, or not any more. */
static void start_later(struct supervisor *supervisor, enum runtime_state otherwise, enum failure_class failure)
{
	const struct launch_config *config = supervisor->config;
	int64_t wait_ms = config->restart_floor_ms;
	char what[ACTIVITY_DETAIL_MAX];

	if (supervisor->tries >= config->restart_attempts && !supervisor->start_again) {
		memcpy(what, supervisor->detail, sizeof(what));
		if (config->restart_attempts > 0)
			detail_set(supervisor->detail, "%.300s (after %u further starts, launch.restart.attempts)", what, supervisor->tries);
		set_state(supervisor, otherwise);
		refuse_attempts(supervisor, failure);
		return;
	}
	for (unsigned i = 0; i < supervisor->tries && wait_ms < config->restart_cap_ms; i++)
		wait_ms *= 2;
	if (wait_ms > config->restart_cap_ms)
		wait_ms = config->restart_cap_ms;
	supervisor->tries++;
	set_state(supervisor, RUNTIME_RESTARTING);
	deadline_start(supervisor->step, wait_ms);
}

static void conclude_refusal(struct supervisor *supervisor, int status, int signal_number)
{
	struct supervisor_note *own = begin_note(supervisor, "runtime.refused");
	const struct refusal *refusal = &supervisor->refusal;
	struct arena *arena = &own->arena;

	json_set_text(arena, own->note.data, "class", refusal_name(refusal->class));
	json_set_number(arena, own->note.data, "status", status);
	json_set_number(arena, own->note.data, "signal", signal_number);
	json_set_number(arena, own->note.data, "tries", supervisor->tries);
	json_set_text(arena, own->note.value, "line", refusal->line);
	json_set_text(arena, own->note.value, "advice", refusal->advice);
	json_set(arena, own->note.value, "log", make_tail(supervisor, arena));
	send_note(own);
	detail_set(supervisor->detail, "%s: %s%s%s", refusal_name(refusal->class), refusal->line, refusal->advice != NULL ? "; " : "", refusal->advice != NULL ? refusal->advice : "");
	forget_process(supervisor);
	if (!supervisor->ending && (refusal_may_pass(refusal->class) || supervisor->start_again)) {
		start_later(supervisor, RUNTIME_REFUSED, refusal_failure(refusal->class));
	} else {
		set_state(supervisor, RUNTIME_REFUSED);
		refuse_attempts(supervisor, refusal_failure(refusal->class));
	}
	close_if_over(supervisor);
}

/* Before there was a process. */
static void refuse_start(struct supervisor *supervisor, enum refusal_class class, const char *line, const char *advice)
{
	stop_deadlines(supervisor);
	stop_asking(supervisor);
	executable_close(&supervisor->executable);
	supervisor->refusal = (struct refusal){.class = class, .advice = advice};
	snprintf(supervisor->refusal.line, sizeof(supervisor->refusal.line), "%.*s", REFUSAL_LINE_MAX, line);
	conclude_refusal(supervisor, 0, 0);
}

static void refuse_without_launcher(struct supervisor *supervisor)
{
	refuse_start(supervisor, REFUSAL_NOT_STARTED, "its reprise-launcher is gone", "start the daemon anew");
}

static void classify(struct supervisor *supervisor)
{
	struct bytes lines[REFUSAL_LINES_MAX];
	size_t count = runtime_log_lines(&supervisor->log, lines, REFUSAL_LINES_MAX);

	refusal_classify(lines, count, &supervisor->refusal);
}

/* What its end alone says, where its log does not. */
static void classify_end(struct refusal *refusal, int status, int signal_number)
{
	if (refusal->line[0] == '\0')
		snprintf(refusal->line, sizeof(refusal->line), "it ended without a word, %s %d", signal_number != 0 ? "by signal" : "with status", signal_number != 0 ? signal_number : status);
	if (refusal->class == REFUSAL_UNKNOWN && refusal->advice == NULL && status == 0 && signal_number == 0)
		refusal->advice = "it has to stay in the foreground: one that goes into the background is ended";
}

static void note_stopped(struct supervisor *supervisor, int status, int signal_number, unsigned left)
{
	struct supervisor_note *own = begin_note(supervisor, "runtime.stopped");
	struct arena *arena = &own->arena;

	json_set_text(arena, own->note.data, "why", why_names[supervisor->why]);
	json_set_number(arena, own->note.data, "status", status);
	json_set_number(arena, own->note.data, "signal", signal_number);
	json_set_number(arena, own->note.data, "left", left);
	if (is_failure(supervisor->why)) {
		json_set_text(arena, own->note.value, "detail", supervisor->detail);
		json_set(arena, own->note.value, "log", make_tail(supervisor, arena));
	}
	if (supervisor->samples != NULL)
		json_set(arena, own->note.value, "samples", json_copy(arena, supervisor->samples));
	supervisor->samples = NULL;
	arena_close(&supervisor->samples_arena);
	send_note(own);
	if (left > 0)
		log_warn(LOG_ACTIVITY, "runtime=%s %u of its processes are still there after SIGKILL", supervisor->runtime->config.name, left);
}

/* It is gone, and so is all that came of it. */
static void on_exited(void *arg, int status, int signal_number, unsigned left)
{
	struct supervisor *supervisor = arg;

	stop_deadlines(supervisor);
	stop_asking(supervisor);
	watchdog_stop(supervisor->watchdog);
	deadline_stop(supervisor->log_due);
	runtime_log_finish(&supervisor->log);
	if (supervisor->state == RUNTIME_STARTING) {
		classify(supervisor);
		classify_end(&supervisor->refusal, status, signal_number);
		conclude_refusal(supervisor, status, signal_number);
		return;
	}
	if (supervisor->state == RUNTIME_READY) {
		supervisor->why = STOP_CRASHED;
		if (signal_number != 0)
			detail_set(supervisor->detail, "it ended by itself: signal %d (%s)", signal_number, strsignal(signal_number));
		else
			detail_set(supervisor->detail, "it ended by itself, with status %d", status);
		runtime_admit(supervisor->runtime, RUNTIME_HOLDS, FAILURE_NONE, NULL);
		runtime_lose(supervisor->runtime, FAILURE_UNREACHABLE, supervisor->detail);
	}
	if (supervisor->why == STOP_NOT_READY) {
		conclude_refusal(supervisor, status, signal_number);
		return;
	}
	note_stopped(supervisor, status, signal_number, left);
	forget_process(supervisor);
	if (!supervisor->ending && is_failure(supervisor->why)) {
		start_later(supervisor, RUNTIME_FAILED, FAILURE_REFUSED);
	} else {
		if (supervisor->state != RUNTIME_STOPPED)
			set_state(supervisor, RUNTIME_STOPPED);
		if (supervisor->start_again && !supervisor->ending)
			begin_start(supervisor);
	}
	close_if_over(supervisor);
}

/* By the launcher, which does what a daemon must not: this one's confinement is not for other programs. False: nobody is asked. */
static bool stop_container(struct supervisor *supervisor, const char *engine, const char *name)
{
	const struct launch_config *config = supervisor->config;
	char seconds[24];
	const char *stop[] = {engine, "stop", "-t", seconds, name, NULL};
	struct launch order = {.env = config->env, .folder = config->folder, .grace_ms = config->grace_ms, .stop = stop};
	struct error error;

	if (supervisor->engine_stops || supervisor->launcher_lost)
		return supervisor->engine_stops;
	snprintf(seconds, sizeof(seconds), "%lld", (long long)((config->grace_ms + 999) / 1000));
	if (launcher_end(supervisor->launcher, &order, &error) != 0) {
		log_warn(LOG_ACTIVITY, "runtime=%s container %s is not stopped by its engine: %s", supervisor->runtime->config.name, name, error.message);
		return false;
	}
	supervisor->engine_stops = true;
	return true;
}

/* True: it is at it, and end_adopted() comes once more. */
static bool stop_own_container(struct supervisor *supervisor)
{
	if (supervisor->config->container == NULL || supervisor->engine_asked)
		return supervisor->engine_stops;
	supervisor->engine_asked = true;
	return stop_container(supervisor, supervisor->config->argv[0], supervisor->config->container);
}

/* What is nobody's child here is gone; of what came of it that is known which is in its process group. A container may be there still: its engine ends it. */
static void end_adopted(struct supervisor *supervisor)
{
	kill(-supervisor->pid, SIGKILL);
	if (stop_own_container(supervisor)) {
		if (supervisor->state == RUNTIME_READY) { /* meanwhile nobody is to ask it */
			runtime_admit(supervisor->runtime, RUNTIME_HOLDS, FAILURE_NONE, NULL);
			runtime_lose(supervisor->runtime, FAILURE_UNREACHABLE, "it ended by itself");
		}
		return;
	}
	on_exited(supervisor, 0, 0, 0);
}

/* What the launcher tells: the end of what it started, or of a command that stops a container which it has not started. */
static void on_launcher_done(void *arg, int status, int signal_number, unsigned left)
{
	struct supervisor *supervisor = arg;

	if (!supervisor->engine_stops) {
		on_exited(supervisor, status, signal_number, left);
		return;
	}
	supervisor->engine_stops = false;
	if (supervisor->adopted && supervisor->pid != 0 && !is_alive(supervisor->pid, supervisor->ticks))
		end_adopted(supervisor);
}

/* It has a process: end it. The queue is held, and what is in flight is lost. */
static void begin_stop(struct supervisor *supervisor, enum stop_why why, enum failure_class failure)
{
	bool was_ready = supervisor->state == RUNTIME_READY;
	char text[ACTIVITY_DETAIL_MAX];

	supervisor->why = why;
	supervisor->start_again = why == STOP_RELOAD;
	stop_deadlines(supervisor);
	stop_asking(supervisor);
	watchdog_stop(supervisor->watchdog);
	set_state(supervisor, RUNTIME_STOPPING);
	runtime_admit(supervisor->runtime, RUNTIME_HOLDS, FAILURE_NONE, NULL);
	if (was_ready) {
		detail_set(text, "runtime %s was ended (%s) while it was asked%s%s", supervisor->runtime->config.name, why_names[why],
			   supervisor->detail[0] != '\0' ? ": " : "", supervisor->detail);
		runtime_lose(supervisor->runtime, failure, text);
	}
	if (supervisor->adopted) {
		kill(-supervisor->pid, SIGTERM);
		deadline_start(supervisor->within, supervisor->config->grace_ms + (stop_own_container(supervisor) ? LAUNCHER_CONTAINER_MS : 0));
		deadline_start(supervisor->step, SUPERVISOR_ALIVE_MS);
	} else if (!supervisor->launching) {
		launcher_stop(supervisor->launcher);
	} /* else on_started() does it */
}

/* ---- Has it its engine still? ---- */

/* Not by itself where a look makes the model work: somebody measures it, perhaps. */
static void look_later(struct supervisor *supervisor)
{
	const struct adapter_life *life = &supervisor->runtime->adapter->life;

	if (life->path != NULL && (supervisor->dead_looks > 0 || !life->generates))
		deadline_start(supervisor->step, supervisor->dead_looks > 0 ? SUPERVISOR_DOUBT_MS : SUPERVISOR_LIFE_MS);
}

/* Who waits for it would only lose attempts until it is known. */
static void set_doubted(struct supervisor *supervisor, bool doubted)
{
	if (supervisor->doubted == doubted)
		return;
	supervisor->doubted = doubted;
	runtime_admit(supervisor->runtime, doubted ? RUNTIME_HOLDS : RUNTIME_ADMITS, FAILURE_NONE, NULL);
}

static void judge_look(struct supervisor *supervisor, int status);

static void start_asking(struct supervisor *supervisor, const char *url, void (*on_done)(struct transfer *transfer), int64_t within_ms)
{
	struct error error;

	supervisor->transfer = (struct transfer){
		.method = "GET",
		.url = url,
		.headers = supervisor->pid != 0 ? supervisor->headers : supervisor->plain_headers,
		.body_max = PROBE_BODY_MAX,
		.secrets = &supervisor->runtime->secrets,
		.on_done = on_done,
		.owner = supervisor,
	};
	if (transfer_start(supervisor->activities->curl, &supervisor->transfer, &error) == 0) {
		supervisor->asking = true;
		deadline_start(supervisor->step, within_ms);
		return;
	}
	transfer_close(&supervisor->transfer);
	if (supervisor->state == RUNTIME_STARTING)
		refuse_start(supervisor, REFUSAL_NOT_STARTED, error.message, NULL);
	else
		judge_look(supervisor, 0);
}

/* status 0: no answer. A server that is busy may give none for a while, so that alone is no reason; behind a 503 it is one more. */
static void judge_look(struct supervisor *supervisor, int status)
{
	const char *path = supervisor->runtime->adapter->life.path;

	if (supervisor->engine_asked) /* it is gone, but for its container */
		return;
	if (status == 503 || (status == 0 && supervisor->dead_looks > 0))
		supervisor->dead_looks++;
	else
		supervisor->dead_looks = 0;
	if (supervisor->dead_looks >= SUPERVISOR_DEAD_LOOKS) {
		detail_set(supervisor->detail, "its engine is dead, though its process lives: GET %s said 503, or nothing after that, %d times in a row (SUPERVISOR_DEAD_LOOKS)", path,
			   SUPERVISOR_DEAD_LOOKS);
		log_warn(LOG_ACTIVITY, "runtime=%s is ended: %s", supervisor->runtime->config.name, supervisor->detail);
		begin_stop(supervisor, STOP_ENGINE_DEAD, FAILURE_UNREACHABLE);
		return;
	}
	look_later(supervisor);
	set_doubted(supervisor, supervisor->dead_looks > 0);
}

/* Nobody answers, perhaps since it has just ended, which comes to be known a moment later: those who wait are not to lose another attempt to that. */
static void await_end(struct supervisor *supervisor)
{
	deadline_start(supervisor->step, SUPERVISOR_DOUBT_MS);
}

static void on_look(struct transfer *transfer)
{
	struct supervisor *supervisor = transfer->owner;
	int status = transfer->end == TRANSFER_COMPLETE ? transfer->status : 0;

	supervisor->asking = false;
	deadline_stop(supervisor->step);
	transfer_close(transfer);
	if (status == 0 && supervisor->dead_looks == 0 && supervisor->doubted)
		await_end(supervisor);
	else
		judge_look(supervisor, status);
}

static void look(struct supervisor *supervisor)
{
	if (supervisor->engine_asked) /* somebody else may be at its address by now, who is not to get its key */
		return;
	start_asking(supervisor, supervisor->life_url, on_look, supervisor->runtime->adapter->life.within_ms);
}

static void on_look_due(struct supervisor *supervisor)
{
	if (supervisor->asking) { /* it took adapter->life.within_ms */
		stop_asking(supervisor);
		judge_look(supervisor, 0);
	} else if (supervisor->doubted && supervisor->dead_looks == 0) {
		if (is_alive(supervisor->pid, supervisor->ticks))
			judge_look(supervisor, 0);
		else
			await_end(supervisor);
	} else {
		look(supervisor);
	}
}

void supervisor_doubt(struct supervisor *supervisor, bool broke)
{
	if (supervisor == NULL || supervisor->state != RUNTIME_READY || supervisor->engine_asked || supervisor->ending || (supervisor->life_url == NULL && !broke))
		return;
	set_doubted(supervisor, true);
	if (supervisor->asking || supervisor->dead_looks > 0) /* the next look comes by itself: one for each that failed would be no row */
		return;
	if (supervisor->life_url != NULL)
		look(supervisor);
	else
		await_end(supervisor);
}

/* ---- The start ---- */

static void on_log_due(struct deadline *deadline)
{
	struct supervisor *supervisor = deadline->owner;

	runtime_log_read(&supervisor->log);
	/* Nobody tells when a process ends that is nobody's child. */
	if (supervisor->adopted && !is_alive(supervisor->pid, supervisor->ticks)) {
		end_adopted(supervisor);
		return;
	}
	deadline_start(deadline, RUNTIME_LOG_EVERY_MS);
}

static void become_ready(struct supervisor *supervisor)
{
	struct runtime *runtime = supervisor->runtime;
	struct supervisor_note *own = begin_note(supervisor, "runtime.ready");

	stop_deadlines(supervisor);
	supervisor->detail[0] = '\0';
	json_set_number(&own->arena, own->note.data, "afterMs", (double)((now_us(supervisor->activities) - supervisor->started_us) / US_PER_MS));
	if (runtime->configuration != NULL)
		json_set_digest(&own->arena, own->note.data, "configuration", &runtime->configuration->digest);
	if (supervisor->adopted)
		json_set_boolean(&own->arena, own->note.data, "adopted", true);
	send_note(own);
	set_state(supervisor, RUNTIME_READY);
	deadline_start(supervisor->within, supervisor->config->restart_settled_ms);
	supervisor->dead_looks = 0;
	supervisor->doubted = false;
	look_later(supervisor);
	runtime_admit(runtime, RUNTIME_ADMITS, FAILURE_NONE, NULL);
}

static void on_configured(struct configuration_wait *wait)
{
	struct supervisor *supervisor = CONTAINER_OF(wait, struct supervisor, wait);
	struct configuration *configuration = wait->configuration;

	supervisor->configuring = false;
	wait->configuration = NULL;
	if (configuration == NULL) {
		detail_set(supervisor->detail, "not ready: %s", wait->detail);
		deadline_start(supervisor->step, SUPERVISOR_POLL_MS);
		return;
	}
	configuration_release(configuration);
	become_ready(supervisor);
}

/* No answer: the address is free, or it is not ready yet. */
static void on_no_answer(struct supervisor *supervisor, const char *why)
{
	if (supervisor->pid == 0) {
		launch(supervisor);
		return;
	}
	detail_set(supervisor->detail, "not ready: GET %s: %s", supervisor->config->ready_path, why);
	deadline_start(supervisor->step, SUPERVISOR_POLL_MS);
}

static void on_answer(struct transfer *transfer)
{
	struct supervisor *supervisor = transfer->owner;
	struct runtime *runtime = supervisor->runtime;
	bool answered = transfer->end == TRANSFER_COMPLETE, good = answered && transfer->status == 200;
	char why[ACTIVITY_DETAIL_MAX];

	supervisor->asking = false;
	deadline_stop(supervisor->step);
	if (answered)
		detail_set(why, "status %d", transfer->status);
	else
		detail_set(why, "%s", transfer->detail);
	transfer_close(transfer);
	if (supervisor->pid == 0 && answered) {
		/* What is launched would be taken for what answers, or the other way round. */
		detail_set(why, "a foreign server answers at %.200s already, which the daemon has not started", runtime->config.url);
		refuse_start(supervisor, REFUSAL_ADDRESS_IN_USE, why, "stop it, or give this runtime another port, and its url too; or leave launch out");
		return;
	}
	if (!good) {
		on_no_answer(supervisor, why);
		return;
	}
	take_kernels(supervisor);
	supervisor->wait.on_done = on_configured;
	supervisor->configuring = true;
	if (runtime_configure(runtime, &supervisor->wait, true))
		on_configured(&supervisor->wait);
}

static void ask(struct supervisor *supervisor)
{
	start_asking(supervisor, supervisor->url, on_answer, SUPERVISOR_ASK_MS);
}

/* It has a process from here on: is it ready? */
static void begin_watching(struct supervisor *supervisor)
{
	deadline_start(supervisor->within, supervisor->config->ready_ms);
	deadline_start(supervisor->step, SUPERVISOR_POLL_MS);
	deadline_start(supervisor->log_due, RUNTIME_LOG_EVERY_MS);
	watchdog_start(supervisor->watchdog, supervisor->pid);
}

static void launch(struct supervisor *supervisor)
{
	const struct launch_config *config = supervisor->config;
	char seconds[24];
	const char *stop[] = {config->argv[0], "stop", "-t", seconds, config->container, NULL};
	struct launch order = {.argv = supervisor->executable.argv, .env = config->env, .folder = config->folder, .grace_ms = config->grace_ms, .keep = config->keep,
			       .stop = config->container != NULL ? stop : NULL};
	struct error error;

	if (supervisor->launcher_lost) {
		refuse_without_launcher(supervisor);
		return;
	}
	snprintf(seconds, sizeof(seconds), "%lld", (long long)((config->grace_ms + 999) / 1000));
	if (launcher_start(supervisor->launcher, &order, supervisor->executable.fd, supervisor->log.fd, &error) != 0) {
		refuse_start(supervisor, REFUSAL_NOT_STARTED, error.message, NULL);
		return;
	}
	supervisor->launching = true;
	executable_close(&supervisor->executable);
}

static void note_started(struct supervisor *supervisor)
{
	struct supervisor_note *own = begin_note(supervisor, "runtime.started");
	const struct executable *executable = &supervisor->executable;
	struct arena *arena = &own->arena;
	struct json *files = json_array(arena);

	json_set_digest(arena, own->note.data, "launch", &supervisor->identity);
	json_set_digest(arena, own->note.data, "executable", &executable->files[0].digest);
	json_set_number(arena, own->note.data, "tries", supervisor->tries);
	json_set_boolean(arena, own->note.data, "adopted", supervisor->adopted);
	json_set(arena, own->note.value, "launched", json_copy(arena, supervisor->launched));
	for (size_t i = 0; i < executable->file_count; i++) {
		struct json *file = json_object(arena);

		json_set_text(arena, file, "path", executable->files[i].path);
		json_set_digest(arena, file, "digest", &executable->files[i].digest);
		json_add(arena, files, file);
	}
	json_set(arena, own->note.value, "files", files);
	send_note(own);
}

static void has_process(struct supervisor *supervisor, pid_t pid, const char *ticks, bool adopted)
{
	supervisor->pid = pid;
	snprintf(supervisor->ticks, sizeof(supervisor->ticks), "%s", ticks);
	supervisor->adopted = adopted;
	supervisor->started_us = now_us(supervisor->activities);
	supervisor->started_ms = supervisor->activities->ports.wall_ms(supervisor->activities->ports.arg);
	if (adopted)
		supervisor->started_ms = process_started_ms(ticks, supervisor->started_ms);
	supervisor->starts++;
	write_note(supervisor);
	note_started(supervisor);
	begin_watching(supervisor);
}

static void refuse_predecessor(struct supervisor *supervisor)
{
	char line[REFUSAL_LINE_MAX + 1];

	snprintf(line, sizeof(line), "process %d, which an earlier daemon left, is still there %d s after SIGKILL", (int)supervisor->predecessor, SUPERVISOR_KILLED_MS / 1000);
	supervisor->predecessor = 0;
	refuse_start(supervisor, REFUSAL_NOT_STARTED, line, "ps -o stat,wchan -p its number tells what it waits for; when it is gone: reprise runtime start");
}

/* What an earlier daemon left behind goes first. */
static void await_predecessor(struct supervisor *supervisor)
{
	if (supervisor->predecessor == 0 && supervisor->engine_stops) { /* nothing can be started meanwhile, and its name is taken */
		deadline_start(supervisor->step, SUPERVISOR_ALIVE_MS);
		return;
	}
	if (supervisor->predecessor != 0 && is_alive(supervisor->predecessor, supervisor->predecessor_ticks)) {
		bool is_over = now_us(supervisor->activities) > supervisor->predecessor_until_us;

		if (is_over && supervisor->predecessor_killed) {
			refuse_predecessor(supervisor);
			return;
		}
		if (is_over) {
			kill(-supervisor->predecessor, SIGKILL);
			supervisor->predecessor_killed = true;
			supervisor->predecessor_until_us = now_us(supervisor->activities) + (uint64_t)SUPERVISOR_KILLED_MS * US_PER_MS;
		}
		deadline_start(supervisor->step, SUPERVISOR_ALIVE_MS);
		return;
	}
	if (supervisor->predecessor != 0)
		kill(-supervisor->predecessor, SIGKILL); /* who has outlived it */
	supervisor->predecessor = 0;
	if (supervisor->engine_stops) {
		deadline_start(supervisor->step, SUPERVISOR_ALIVE_MS);
		return;
	}
	ask(supervisor); /* does somebody else answer there? */
}

static void on_baseline(void *arg)
{
	await_predecessor(arg);
}

static void on_watchdog_rests(void *arg)
{
	close_if_over(arg);
}

static void take_over(struct supervisor *supervisor)
{
	pid_t pid;
	char ticks[32];

	switch (find_left_over(supervisor, &pid, ticks, sizeof(ticks))) {
	case LEFT_OURS:
		log_info(LOG_ACTIVITY, "runtime=%s process %d goes on from an earlier daemon and is adopted", supervisor->runtime->config.name, (int)pid);
		executable_close(&supervisor->executable);
		has_process(supervisor, pid, ticks, true);
		return;
	case LEFT_OTHER:
		log_info(LOG_ACTIVITY, "runtime=%s process %d is left from an earlier daemon and has to end first", supervisor->runtime->config.name, (int)pid);
		supervisor->predecessor = pid;
		snprintf(supervisor->predecessor_ticks, sizeof(supervisor->predecessor_ticks), "%s", ticks);
		supervisor->predecessor_until_us = now_us(supervisor->activities) + (uint64_t)(supervisor->config->grace_ms + SUPERVISOR_PREDECESSOR_MS + (supervisor->engine_stops ? LAUNCHER_CONTAINER_MS : 0)) * US_PER_MS;
		supervisor->predecessor_killed = false;
		kill(-pid, SIGTERM);
		break;
	case LEFT_NOTHING:
		break;
	}
	watchdog_measure_baseline(supervisor->watchdog, on_baseline);
}

/* On the pool. */
static void open_files(uv_work_t *pool)
{
	struct supervisor *supervisor = CONTAINER_OF(pool, struct supervisor, pool);

	executable_open(&supervisor->arena, supervisor->config->argv, supervisor->config->env, &supervisor->executable, &supervisor->give_up, &supervisor->error);
}

static void on_files_opened(uv_work_t *pool, int status)
{
	struct supervisor *supervisor = CONTAINER_OF(pool, struct supervisor, pool);

	(void)status;
	supervisor->in_pool = false;
	if (supervisor->state != RUNTIME_STARTING) {
		executable_close(&supervisor->executable);
		if (supervisor->start_again && !supervisor->ending && supervisor->state == RUNTIME_STOPPED)
			begin_start(supervisor);
		close_if_over(supervisor);
		return;
	}
	if (supervisor->error.code != ERR_NONE) {
		refuse_start(supervisor, REFUSAL_NOT_STARTED, supervisor->error.message, "see launch.argv");
		return;
	}
	describe_launched(supervisor);
	take_over(supervisor);
}

static void begin_start(struct supervisor *supervisor)
{
	struct error error;

	if (supervisor->in_pool) { /* the last start was given up, but is not over */
		supervisor->start_again = true;
		return;
	}
	supervisor->start_again = false;
	supervisor->detail[0] = '\0';
	supervisor->refusal = (struct refusal){.class = REFUSAL_UNKNOWN};
	set_state(supervisor, RUNTIME_STARTING);
	runtime_admit(supervisor->runtime, RUNTIME_HOLDS, FAILURE_NONE, NULL);
	supervisor->runtime->known = false;
	if (supervisor->log.fd < 0 && runtime_log_open(&supervisor->log, supervisor->log_path, &error) != 0) {
		refuse_start(supervisor, REFUSAL_NOT_STARTED, error.message, NULL);
		return;
	}
	runtime_log_clear(&supervisor->log);
	arena_close(&supervisor->arena);
	supervisor->error = (struct error){0};
	atomic_store(&supervisor->give_up, false);
	supervisor->in_pool = true;
	CHECK(uv_queue_work(supervisor->activities->loop, &supervisor->pool, open_files, on_files_opened) == 0);
}

/* ---- Deadlines ---- */

static void on_step_due(struct deadline *deadline)
{
	struct supervisor *supervisor = deadline->owner;

	if (supervisor->state == RUNTIME_RESTARTING) {
		begin_start(supervisor);
	} else if (supervisor->state == RUNTIME_READY) {
		on_look_due(supervisor);
	} else if (supervisor->asking) { /* it took SUPERVISOR_ASK_MS */
		stop_asking(supervisor);
		on_no_answer(supervisor, "no answer");
	} else if (supervisor->predecessor != 0 || (supervisor->state == RUNTIME_STARTING && supervisor->pid == 0 && !supervisor->launching)) {
		await_predecessor(supervisor);
	} else if (supervisor->state == RUNTIME_STARTING && supervisor->pid != 0) {
		ask(supervisor);
	} else if (supervisor->state == RUNTIME_STOPPING && supervisor->adopted) {
		if (is_alive(supervisor->pid, supervisor->ticks) || supervisor->engine_stops)
			deadline_start(deadline, SUPERVISOR_ALIVE_MS);
		else
			end_adopted(supervisor);
	}
}

static void on_within_due(struct deadline *deadline)
{
	struct supervisor *supervisor = deadline->owner;

	if (supervisor->state == RUNTIME_READY) {
		supervisor->tries = 0; /* settled */
	} else if (supervisor->state == RUNTIME_STOPPING) {
		kill(-supervisor->pid, SIGKILL); /* what is adopted had its grace */
	} else if (supervisor->state == RUNTIME_STARTING) {
		char last[ACTIVITY_DETAIL_MAX];

		runtime_log_read(&supervisor->log);
		classify(supervisor);
		memcpy(last, supervisor->detail, sizeof(last));
		if (supervisor->refusal.class == REFUSAL_UNKNOWN) {
			supervisor->refusal = (struct refusal){.class = REFUSAL_NOT_READY, .advice = "see its log; launch.ready.within may be too short"};
			snprintf(supervisor->refusal.line, sizeof(supervisor->refusal.line), "not ready within %lld ms (launch.ready.within); %.250s",
				 (long long)supervisor->config->ready_ms, last);
		}
		begin_stop(supervisor, STOP_NOT_READY, FAILURE_UNREACHABLE);
	}
}

/* ---- What the launcher tells ---- */

static void on_started(void *arg, pid_t pid, const char *start)
{
	struct supervisor *supervisor = arg;

	supervisor->launching = false;
	has_process(supervisor, pid, start != NULL ? start : "", false);
	if (supervisor->state != RUNTIME_STARTING) { /* stopped in between */
		stop_deadlines(supervisor);
		watchdog_stop(supervisor->watchdog);
		launcher_stop(supervisor->launcher);
	}
}

static void on_failed(void *arg, const char *why)
{
	struct supervisor *supervisor = arg;

	supervisor->launching = false;
	if (supervisor->state == RUNTIME_STARTING) {
		refuse_start(supervisor, REFUSAL_NOT_STARTED, why != NULL ? why : "", "see launch.argv and launch.workingFolder");
		return;
	}
	set_state(supervisor, RUNTIME_STOPPED);
	if (supervisor->start_again && !supervisor->ending)
		begin_start(supervisor);
	close_if_over(supervisor);
}

/* Somebody has killed it, and with it, by the kernel, the runtime itself; what came of that is in its process group, mostly. */
static void on_lost(void *arg)
{
	struct supervisor *supervisor = arg;
	bool was_launching = supervisor->launching;

	supervisor->launcher_lost = true;
	supervisor->engine_stops = false;
	if (supervisor->ending && supervisor->closed)
		return;
	log_error(LOG_ACTIVITY, "runtime=%s its reprise-launcher is gone: the daemon has to be started anew before it can launch this runtime again", supervisor->runtime->config.name);
	supervisor->launching = false;
	if (supervisor->pid != 0 && !supervisor->adopted) {
		kill(-supervisor->pid, SIGKILL);
		on_exited(supervisor, 0, SIGKILL, 0);
	} else if (supervisor->state == RUNTIME_STOPPING && !supervisor->adopted) {
		set_state(supervisor, RUNTIME_STOPPED);
		close_if_over(supervisor);
	} else if (supervisor->state == RUNTIME_STARTING && was_launching) {
		refuse_without_launcher(supervisor); /* no answer follows */
	}
}

/* ---- Orders ---- */

static void keep_reason(struct supervisor *supervisor, const char *reason)
{
	free(supervisor->reason);
	supervisor->reason = reason != NULL ? memory_text(reason) : NULL;
}

/* Before there is a process nothing has to be waited for. */
static void give_up_start(struct supervisor *supervisor)
{
	atomic_store(&supervisor->give_up, true);
	stop_deadlines(supervisor);
	stop_asking(supervisor);
	if (!supervisor->in_pool)
		executable_close(&supervisor->executable);
	supervisor->predecessor = 0;
	supervisor->start_again = false;
	watchdog_stop(supervisor->watchdog);
	supervisor->detail[0] = '\0';
	set_state(supervisor, RUNTIME_STOPPED);
	runtime_admit(supervisor->runtime, RUNTIME_HOLDS, FAILURE_NONE, NULL);
}

static void stop(struct supervisor *supervisor, enum stop_why why)
{
	switch (supervisor->state) {
	case RUNTIME_STOPPED:
		supervisor->start_again = why == STOP_RELOAD;
		break;
	case RUNTIME_STOPPING:
		supervisor->start_again = why == STOP_RELOAD;
		if (supervisor->why == STOP_NOT_READY || is_failure(supervisor->why) || why == STOP_DAEMON)
			supervisor->why = why;
		break;
	case RUNTIME_REFUSED:
	case RUNTIME_FAILED:
	case RUNTIME_RESTARTING:
		give_up_start(supervisor);
		break;
	case RUNTIME_STARTING:
		if (supervisor->pid == 0 && !supervisor->launching) {
			give_up_start(supervisor);
			break;
		}
		supervisor->detail[0] = '\0';
		begin_stop(supervisor, why, FAILURE_UNREACHABLE);
		return;
	case RUNTIME_READY:
		supervisor->detail[0] = '\0';
		begin_stop(supervisor, why, FAILURE_UNREACHABLE);
		return;
	case RUNTIME_STATE_COUNT:
		break;
	}
	if (supervisor->state == RUNTIME_STOPPED && why == STOP_RELOAD)
		begin_start(supervisor);
}

void supervisor_start(struct supervisor *supervisor, const char *reason)
{
	if (supervisor->ending || supervisor->state == RUNTIME_STARTING || supervisor->state == RUNTIME_READY)
		return;
	keep_reason(supervisor, reason);
	supervisor->tries = 0;
	if (supervisor->state == RUNTIME_STOPPING) {
		supervisor->start_again = true;
		return;
	}
	deadline_stop(supervisor->step);
	begin_start(supervisor);
}

void supervisor_stop(struct supervisor *supervisor, const char *reason)
{
	keep_reason(supervisor, reason);
	stop(supervisor, STOP_ASKED);
}

void supervisor_reload(struct supervisor *supervisor, const char *reason)
{
	if (supervisor->ending)
		return;
	keep_reason(supervisor, reason);
	supervisor->tries = 0;
	stop(supervisor, STOP_RELOAD);
}

/* More than a limit, for several samples. */
static void on_tripped(void *arg, const char *detail, const struct json *samples)
{
	struct supervisor *supervisor = arg;

	if (supervisor->state != RUNTIME_READY && !(supervisor->state == RUNTIME_STARTING && supervisor->pid != 0))
		return;
	supervisor->samples = json_copy(&supervisor->samples_arena, samples);
	detail_set(supervisor->detail, "%s", detail);
	log_warn(LOG_ACTIVITY, "runtime=%s the watchdog ends it: %s", supervisor->runtime->config.name, detail);
	begin_stop(supervisor, STOP_WATCHDOG, FAILURE_OUT_OF_MEMORY);
}

/* ---- Views ---- */

struct json *supervisor_json(const struct supervisor *supervisor, struct arena *arena, bool with_log)
{
	struct json *json = json_object(arena);
	char text[TIME_TEXT_LEN + 1];

	json_set_text(arena, json, "state", rules[supervisor->state].name);
	time_text(supervisor->since_ms, text);
	json_set_text(arena, json, "since", text);
	if (supervisor->detail[0] != '\0')
		json_set_text(arena, json, "detail", supervisor->detail);
	if (supervisor->pid != 0) {
		json_set_number(arena, json, "pid", supervisor->pid);
		json_set(arena, json, "instance", json_printf(arena, "%d-%s", (int)supervisor->pid, supervisor->ticks));
		time_text(supervisor->started_ms, text);
		json_set_text(arena, json, "startedAt", text);
		json_set_boolean(arena, json, "adopted", supervisor->adopted);
	}
	if (supervisor->state == RUNTIME_REFUSED || (supervisor->state == RUNTIME_RESTARTING && supervisor->refusal.line[0] != '\0')) {
		struct json *refusal = json_object(arena);

		json_set_text(arena, refusal, "class", refusal_name(supervisor->refusal.class));
		json_set_text(arena, refusal, "line", supervisor->refusal.line);
		json_set_text(arena, refusal, "advice", supervisor->refusal.advice);
		json_set(arena, json, "refusal", refusal);
	}
	json_set_number(arena, json, "starts", (double)supervisor->starts);
	json_set_number(arena, json, "restarts", supervisor->tries);
	watchdog_describe(supervisor->watchdog, arena, json);
	if (!with_log)
		return json;
	json_set_text(arena, json, "logFile", supervisor->log_path);
	json_set(arena, json, "log", make_tail(supervisor, arena));
	return json;
}

/* ---- Life ---- */

static void on_launcher_closed(void *arg)
{
	struct supervisor *supervisor = arg;

	supervisor->launcher = NULL;
	outside_end(supervisor->activities); /* may free it */
}

/* The daemon ends, and nothing of it is under way any more. */
static void close_if_over(struct supervisor *supervisor)
{
	bool kept = supervisor->config->keep && supervisor->pid != 0 && supervisor->state != RUNTIME_STOPPING;
	bool rests = supervisor->state == RUNTIME_STOPPED || supervisor->state == RUNTIME_REFUSED || supervisor->state == RUNTIME_FAILED;

	if (!supervisor->ending || supervisor->closed || supervisor->in_pool || supervisor->launching || supervisor->notes > 0 ||
	    watchdog_is_busy(supervisor->watchdog) || !(kept || rests))
		return;
	supervisor->closed = true;
	deadline_free(supervisor->activities, supervisor->step);
	deadline_free(supervisor->activities, supervisor->within);
	deadline_free(supervisor->activities, supervisor->log_due);
	watchdog_free(supervisor->watchdog);
	supervisor->watchdog = NULL;
	launcher_close(supervisor->launcher, on_launcher_closed, supervisor);
}

static struct supervisor *supervisor_new(struct runtime *runtime, const char *spool)
{
	static const struct launcher_events events = {.on_started = on_started, .on_failed = on_failed, .on_exited = on_launcher_done, .on_lost = on_lost};
	static const struct watchdog_events watchdog_events = {.on_tripped = on_tripped, .on_rests = on_watchdog_rests};
	struct supervisor *supervisor = memory_zero(sizeof(*supervisor));
	struct activities *activities = runtime->activities;
	struct arena scratch;

	arena_init(&scratch);
	supervisor->runtime = runtime;
	supervisor->activities = activities;
	supervisor->config = runtime->config.launch;
	supervisor->executable.fd = -1;
	arena_init(&supervisor->arena);
	arena_init(&supervisor->launched_arena);
	arena_init(&supervisor->samples_arena);
	runtime_log_init(&supervisor->log);
	supervisor->log.on_line = on_log_line;
	supervisor->log.arg = supervisor;
	list_init(&supervisor->wait.link);
	supervisor->log_path = memory_text(arena_printf(&scratch, "%s/%s.log", spool, runtime->config.name));
	supervisor->note_path = memory_text(arena_printf(&scratch, "%s/%s.json", spool, runtime->config.name));
	supervisor->url = memory_text(arena_printf(&scratch, "%s%s", runtime->config.url, supervisor->config->ready_path));
	if (runtime->adapter->life.path != NULL)
		supervisor->life_url = memory_text(arena_printf(&scratch, "%s%s", runtime->config.url, runtime->adapter->life.path));
	supervisor->headers = memory_text(runtime_headers(runtime, &scratch, ""));
	supervisor->plain_headers = memory_text(arena_printf(&scratch, "User-Agent: %s\n", activities->user_agent));
	arena_close(&scratch);
	supervisor->step = deadline_new(activities, on_step_due, supervisor);
	supervisor->within = deadline_new(activities, on_within_due, supervisor);
	supervisor->log_due = deadline_new(activities, on_log_due, supervisor);
	supervisor->watchdog = watchdog_new(activities, supervisor->config, &watchdog_events, supervisor);
	supervisor->since_ms = activities->ports.wall_ms(activities->ports.arg);
	atomic_init(&supervisor->give_up, false);
	outside_begin(activities);
	supervisor->launcher = launcher_open(activities->loop, runtime->config.launcher, &events, supervisor);
	begin_start(supervisor);
	return supervisor;
}

void supervisors_open(struct activities *activities, const char *spool)
{
	for (size_t i = 0; i < activities->runtime_count; i++)
		if (activities->runtimes[i]->config.launch != NULL)
			activities->runtimes[i]->supervisor = supervisor_new(activities->runtimes[i], spool);
}

struct json *supervisors_json(const struct activities *activities, struct arena *arena)
{
	struct json *json = json_object(arena);

	for (size_t i = 0; i < activities->runtime_count; i++) {
		const struct supervisor *supervisor = activities->runtimes[i]->supervisor;
		struct json *item;

		if (supervisor == NULL)
			continue;
		item = json_object(arena);
		json_set_text(arena, item, "state", rules[supervisor->state].name);
		json_set_number(arena, item, "starts", (double)supervisor->starts);
		json_set_number(arena, item, "alarms", (double)watchdog_alarms(supervisor->watchdog));
		json_set_number(arena, item, "trips", (double)watchdog_trips(supervisor->watchdog));
		json_set(arena, json, activities->runtimes[i]->config.name, item);
	}
	return json;
}

void supervisor_end(struct supervisor *supervisor)
{
	if (supervisor == NULL || supervisor->ending)
		return;
	supervisor->ending = true;
	supervisor->start_again = false;
	if (supervisor->config->keep && supervisor->pid != 0 && supervisor->state != RUNTIME_STOPPING) {
		stop_deadlines(supervisor);
		stop_asking(supervisor);
		deadline_stop(supervisor->log_due);
		watchdog_stop(supervisor->watchdog);
	} else {
		stop(supervisor, STOP_DAEMON);
	}
	close_if_over(supervisor);
}

void supervisor_free(struct supervisor *supervisor)
{
	if (supervisor == NULL)
		return;
	CHECK(supervisor->closed && supervisor->launcher == NULL);
	executable_close(&supervisor->executable);
	runtime_log_close(&supervisor->log);
	arena_close(&supervisor->arena);
	arena_close(&supervisor->launched_arena);
	arena_close(&supervisor->samples_arena);
	free(supervisor->log_path);
	free(supervisor->note_path);
	free(supervisor->url);
	free(supervisor->life_url);
	free(supervisor->headers);
	free(supervisor->plain_headers);
	free(supervisor->reason);
	free(supervisor);
}
