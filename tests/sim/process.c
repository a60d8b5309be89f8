/* The simulator as a process. Loop thread. Start at process_begin(). */
#include "tests/sim/process.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/file.h"
#include "tests/sim/refusals.h"
#include "tests/sim/sim.h"
#include "workflow/base/check.h"

enum { CHILD_LOOK_MS = 20, PATH_BYTES_MAX = 4096, LOG_BYTES_MAX = 8 * 1024 };

/* ---- The script's "process" ---- */

static int read_time(const struct json *json, const char *name, int max, int *ms, struct error *error)
{
	const struct json *value = json_get(json, name);

	if (value == NULL)
		return 0;
	if (!json_is_integer(value) || value->number < 0 || value->number > max)
		return error_set(error, ERR_INVALID, "/process/%s: must be an integer from 0 to %d", name, max);
	*ms = (int)value->number;
	return 0;
}

static int read_texts(const struct json *json, const struct json **texts, struct error *error)
{
	if (json == NULL)
		return 0;
	if (!json_is(json, JSON_ARRAY) || json_count(json) > PROCESS_LOG_LINES_MAX)
		return error_set(error, ERR_INVALID, "/process/log: must be a list of at most %d texts", PROCESS_LOG_LINES_MAX);
	for (size_t i = 0; i < json_count(json); i++) {
		if (!json_is(json_at(json, i), JSON_STRING))
			return error_set(error, ERR_INVALID, "/process/log/%zu: must be a text", i);
	}
	*texts = json;
	return 0;
}

/* A refusal that stands under "unsupported" needs VLLM_BATCH_INVARIANT=1, as the model's is. */
static int read_refusal(struct process *process, const struct kind *kind, const struct json *json, const char *name, struct error *error)
{
	const char *word = json_get_text(json, name), *mode = getenv("VLLM_BATCH_INVARIANT");
	const struct refusal_row *row;

	if (json_get(json, name) == NULL)
		return 0;
	row = word != NULL ? refusal_find(word, kind->bit) : NULL;
	if (row == NULL)
		return error_set(error, ERR_INVALID, "/process/%s: %s refuses nothing so; README.md has the names", name, kind->name);
	if (strcmp(name, "refuse") == 0 || (mode != NULL && strcmp(mode, "1") == 0))
		process->refusal = row;
	return 0;
}

static int read_steps(const struct json *memory, const char *name, const struct json **steps, struct error *error)
{
	const struct json *list = json_get(memory, name);

	if (list == NULL)
		return 0;
	if (!json_is(list, JSON_ARRAY) || json_count(list) == 0 || json_count(list) > PROCESS_MEMORY_STEPS_MAX)
		goto fail;
	for (size_t i = 0; i < json_count(list); i++) {
		if (!json_is_integer(json_at(list, i)) || json_at(list, i)->number < 0)
			goto fail;
	}
	*steps = list;
	return 0;
fail:
	return error_set(error, ERR_INVALID, "/process/memory/%s: must be a list of 1 to %d numbers", name, PROCESS_MEMORY_STEPS_MAX);
}

static int read_memory(struct process *process, const struct json *memory, struct error *error)
{
	if (memory == NULL)
		return 0;
	if (members_check(memory, "/process/memory", "file usedMiB sharedBytes ", error) != 0)
		return ERR_INVALID;
	process->memory_path = json_get_text(memory, "file");
	if (process->memory_path == NULL || strlen(process->memory_path) > PATH_BYTES_MAX - 8)
		return error_set(error, ERR_INVALID, "/process/memory/file: must be a path");
	if (read_steps(memory, "usedMiB", &process->used_mib, error) != 0)
		return ERR_INVALID;
	return read_steps(memory, "sharedBytes", &process->shared_bytes, error);
}

int process_read(struct sim *sim, struct error *error)
{
	struct process *process = &sim->process;
	const struct json *json = sim->script->process;
	const char *start = json_get_text(json, "start");

	*process = (struct process){.script = script_hold(sim->script), .refuses_while_starting = sim->kind->refuses_while_starting, .child_ms = -1};
	if (json == NULL)
		return 0;
	if (members_check(json, "/process", "startMs start log refuse unsupported noise ignoreTermMs childMs memory ", error) != 0 ||
	    read_time(json, "startMs", SCRIPT_TIME_MAX_MS, &process->start_ms, error) != 0 ||
	    read_time(json, "noise", PROCESS_NOISE_MAX, &process->noise, error) != 0 ||
	    read_time(json, "ignoreTermMs", SCRIPT_TIME_MAX_MS, &process->ignore_term_ms, error) != 0 ||
	    read_time(json, "childMs", PROCESS_CHILD_MAX_MS, &process->child_ms, error) != 0 ||
	    read_texts(json_get(json, "log"), &process->log, error) != 0 ||
	    read_refusal(process, sim->kind, json, "unsupported", error) != 0 ||
	    read_refusal(process, sim->kind, json, "refuse", error) != 0 || read_memory(process, json_get(json, "memory"), error) != 0)
		return ERR_INVALID;
	if (json_get(json, "start") != NULL) {
		if (start == NULL || (strcmp(start, "refused") != 0 && strcmp(start, "loading") != 0))
			return error_set(error, ERR_INVALID, "/process/start: must be refused or loading");
		process->refuses_while_starting = strcmp(start, "refused") == 0;
	}
	return 0;
}

/* ---- The log ---- */

/* A line of the part of the runtime that makes the answers, or of the one that serves them, with the prefix of the kind. */
static void log_line(const struct sim *sim, bool engine, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void log_line(const struct sim *sim, bool engine, const char *format, ...)
{
	int pid = engine && sim->process.child > 0 ? (int)sim->process.child : (int)getpid();
	char line[LOG_BYTES_MAX], prefix[64] = "";
	va_list arguments;

	if (sim->kind->bit == KIND_VLLM)
		snprintf(prefix, sizeof(prefix), "(%s pid=%d) ", engine ? "EngineCore" : "APIServer", pid);
	else if (sim->kind->bit == KIND_SGLANG && engine)
		snprintf(prefix, sizeof(prefix), "[TP0] ");
	else if (sim->kind->bit == KIND_LMSTUDIO)
		snprintf(prefix, sizeof(prefix), "[LM STUDIO SERVER] ");
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	fprintf(stderr, "%s%s\n", prefix, line); /* in one write: who follows the log never sees a prefix alone */
}

static void log_start(const struct sim *sim)
{
	const struct kind_options *options = &sim->script->options;
	const char *model = sim->script->model;

	switch (sim->kind->bit) {
	case KIND_VLLM:
		log_line(sim, false, "INFO [api_server.py] vLLM server version %s, serving model %s", options->version, model);
		log_line(sim, false, "INFO [utils.py] non-default args: {'served_model_name': ['%s'], 'max_model_len': %d, 'enable_prefix_caching': %s}",
			model, options->context_tokens, options->prompt_cache ? "True" : "False");
		break;
	case KIND_LLAMACPP:
		log_line(sim, false, "build: 6123 (1a2b3c4)");
		log_line(sim, false, "system_info: n_threads = 4 (n_threads_batch = 4) / 4 | CPU : SSE3 = 1 | AVX2 = 1 |");
		log_line(sim, false, "llama_model_loader: - kv   0:                       general.architecture str              = llama");
		break;
	case KIND_SGLANG:
		log_line(sim, false, "server_args=ServerArgs(model_path='/models/simulated', enable_deterministic_inference=%s)",
			options->deterministic ? "True" : "False");
		break;
	case KIND_TRANSFORMERS:
		log_line(sim, false, "INFO:     Waiting for application startup.");
		break;
	default:
		break;
	}
}

static void log_ready(const struct sim *sim)
{
	switch (sim->kind->bit) {
	case KIND_VLLM:
		log_line(sim, true, "INFO [cuda.py] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'TRITON_ATTN']");
		log_line(sim, true, "INFO [gpu_model_runner.py] Model loading took 0.01 GiB");
		log_line(sim, false, "INFO:     Application startup complete.");
		break;
	case KIND_LLAMACPP:
		log_line(sim, false, "main: server is listening on http://127.0.0.1:%d - starting the main loop", sim->product.port);
		break;
	case KIND_OLLAMA:
		log_line(sim, false, "level=INFO source=routes.go msg=\"Listening on 127.0.0.1:%d (version %s)\"", sim->product.port,
			sim->script->options.version);
		break;
	case KIND_SGLANG:
		log_line(sim, false, "The server is fired up and ready to roll!");
		break;
	case KIND_LMSTUDIO:
		log_line(sim, false, "Success! HTTP server listening on port %d", sim->product.port);
		break;
	case KIND_TRANSFORMERS:
		log_line(sim, false, "INFO:     Application startup complete.");
		break;
	default:
		break;
	}
}

/* The cause comes early, and what comes last says nothing of it. */
static void log_refusal(const struct sim *sim)
{
	const struct process *process = &sim->process;
	const struct refusal_row *row = process->refusal;
	bool python = (sim->kind->bit & (KIND_VLLM | KIND_SGLANG | KIND_TRANSFORMERS)) != 0 && !row->at_once;

	if (row->before != NULL)
		log_line(sim, !row->at_once, "%s", row->before);
	if (python)
		log_line(sim, true, "ERROR Traceback (most recent call last):");
	log_line(sim, !row->at_once, "%s%s", python ? "ERROR " : "", row->cause);
	for (int i = 0; i < process->noise; i++)
		log_line(sim, true, "INFO worker %d of the simulator shuts down", i);
	if (sim->kind->bit == KIND_VLLM && !row->at_once)
		log_line(sim, false, "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}");
	if (sim->kind->bit == KIND_LLAMACPP)
		log_line(sim, false, "main: exiting due to model loading error");
}

void sleep_ms(uint64_t ms)
{
	struct timespec time = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&time, &time) != 0)
		;
}

/* ---- Starting ---- */

static void write_memory(const struct process *process, uint64_t used_mib, uint64_t shared_bytes, int pid)
{
	char path[PATH_BYTES_MAX + 8];
	FILE *file;

	snprintf(path, sizeof(path), "%s.new", process->memory_path);
	file = fopen(path, "w");
	if (file == NULL)
		return;
	fprintf(file, "{\"usedMiB\":%" PRIu64 ",\"sharedBytes\":%" PRIu64 ",\"pid\":%d}\n", used_mib, shared_bytes, pid);
	fclose(file);
	rename(path, process->memory_path); /* so that a probe never reads half of it */
}

static uint64_t step_of(const struct json *steps, uint64_t requests)
{
	size_t count = json_count(steps);

	return count == 0 ? 0 : (uint64_t)json_at(steps, requests < count ? (size_t)requests : count - 1)->number;
}

void process_tell_memory(struct sim *sim)
{
	const struct process *process = &sim->process;
	uint64_t requests = sim->counters.requests;

	if (process->memory_path != NULL)
		write_memory(process, step_of(process->used_mib, requests), step_of(process->shared_bytes, requests), (int)getpid());
}

/* The child does nothing but be there, hold its share of the memory, and stay on when its parent is gone. */
_Noreturn static void be_child(const struct process *process, pid_t parent)
{
	while (getppid() == parent)
		sleep_ms(CHILD_LOOK_MS);
	sleep_ms((uint64_t)process->child_ms);
	if (process->memory_path != NULL)
		write_memory(process, 0, 0, 0);
	_exit(0);
}

int process_begin(struct sim *sim)
{
	struct process *process = &sim->process;
	pid_t parent = getpid();

	if (process->child_ms >= 0) {
		process->child = fork();
		if (process->child == 0)
			be_child(process, parent);
	}
	log_start(sim);
	for (size_t i = 0; i < json_count(process->log); i++)
		fprintf(stderr, "%s\n", json_at(process->log, i)->string.text);
	if (process->refusal == NULL)
		return 0;
	sleep_ms((uint64_t)process->start_ms);
	log_refusal(sim);
	return process->refusal->status;
}

static void tell_ready(struct sim *sim)
{
	sim->runtime.phase = RUNTIME_READY;
	sim_apply_script(sim);
	process_tell_memory(sim);
	log_ready(sim);
	if (sim->runtime.instance > 1)
		return;
	sim_print_addresses(sim, "ready");
}

static void on_started(uv_timer_t *timer)
{
	struct sim *sim = timer->data;
	struct error error = {.code = ERR_NONE};

	if (sim->process.refuses_while_starting && http_listen(&sim->product, &error) != 0) {
		fprintf(stderr, "reprise-sim: %s\n", error.message);
		process_die(sim, 1);
	}
	tell_ready(sim);
}

int process_open(struct sim *sim, struct error *error)
{
	struct process *process = &sim->process;

	if (sim->runtime.instance == 1) {
		CHECK(uv_timer_init(&sim->loop, &process->start_timer) == 0 && uv_timer_init(&sim->loop, &process->end_timer) == 0);
		process->start_timer.data = process->end_timer.data = sim;
	} else if (process->start_ms > 0 && process->refuses_while_starting && sim->runtime.phase == RUNTIME_READY &&
		   http_unlisten(&sim->product, error) != 0) {
		return (int)error->code;
	}
	if (process->start_ms > 0) {
		sim->runtime.phase = RUNTIME_STARTING;
		uv_timer_start(&process->start_timer, on_started, (uint64_t)process->start_ms, 0);
		if (sim->runtime.instance > 1)
			return 0;
		if (!process->refuses_while_starting && http_listen(&sim->product, error) != 0)
			return (int)error->code;
		sim_print_addresses(sim, "starting");
		return 0;
	}
	if (sim->runtime.instance == 1 && http_listen(&sim->product, error) != 0)
		return (int)error->code;
	tell_ready(sim);
	return 0;
}

/* ---- Ending ---- */

static void on_end(uv_timer_t *timer)
{
	sim_close(timer->data);
}

bool process_may_end(struct sim *sim)
{
	struct process *process = &sim->process;

	if (process->ignore_term_ms == 0)
		return true;
	if (!process->told_to_end)
		uv_timer_start(&process->end_timer, on_end, (uint64_t)process->ignore_term_ms, 0);
	process->told_to_end = true;
	return false;
}

void process_close(struct sim *sim)
{
	struct process *process = &sim->process;

	uv_close((uv_handle_t *)&process->start_timer, NULL);
	uv_close((uv_handle_t *)&process->end_timer, NULL);
	if (process->memory_path != NULL && process->child == 0)
		write_memory(process, 0, 0, 0); /* else the child still has it */
}

void process_die(struct sim *sim, int status)
{
	(void)sim;
	_exit(status);
}
