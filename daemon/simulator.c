/* See simulator.h. */
#include "daemon/simulator.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "daemon/program.h"
#include "workflow/base/check.h"
#include "workflow/base/log.h"

struct simulator {
	struct simulators *all;
	uv_process_t process;
	uv_pipe_t output;
	bool started, exited, is_ready;
	char line[SIMULATOR_LINE_MAX];
	size_t len;
	const char *name;
};

int simulator_become(char **arguments)
{
	/* Set here and not by the parent: it has to be the child's, and it stays across execve(). */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == 1)
		return 1;
	execv(arguments[0], arguments);
	fprintf(stderr, "reprised: %s: %s\n", arguments[0], strerror(errno));
	return 127;
}

static void on_child_exit(uv_process_t *process, int64_t status, int signal_number)
{
	struct simulator *simulator = process->data;

	simulator->exited = true;
	if (!simulator->all->stopping)
		log_error(LOG_DAEMON, "runtime=%s the simulator ended (status %lld, signal %d); its runtime is unreachable until the daemon starts anew", simulator->name,
			  (long long)status, signal_number);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
	struct simulator *simulator = handle->data;

	(void)suggested;
	*buffer = uv_buf_init(simulator->line + simulator->len, (unsigned)(sizeof simulator->line - 1 - simulator->len));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
	struct simulator *simulator = stream->data;

	(void)buffer;
	if (count > 0)
		simulator->len += (size_t)count;
	simulator->line[simulator->len] = 0;
	if (count < 0 || simulator->len == sizeof simulator->line - 1 || strchr(simulator->line, '\n')) {
		simulator->is_ready = strchr(simulator->line, '\n') != NULL;
		uv_read_stop(stream);
		if (!simulator->is_ready)
			simulator->exited = true;
	}
}

static void on_late(uv_timer_t *timer)
{
	*(bool *)timer->data = true;
}

static int start(struct simulator *simulator, uv_loop_t *loop, char *program, struct error *error)
{
	char *arguments[] = {"/proc/self/exe", "--run-child", program, "--port", "0", NULL};
	uv_stdio_container_t streams[] = {{.flags = UV_IGNORE}, {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&simulator->output},
					  {.flags = UV_INHERIT_FD, .data.fd = 2}};
	uv_process_options_t options = {.file = arguments[0], .args = arguments, .exit_cb = on_child_exit, .stdio = streams, .stdio_count = COUNT_OF(streams)};

	simulator->process.data = simulator->output.data = simulator;
	CHECK(uv_pipe_init(loop, &simulator->output, 0) == 0);
	simulator->started = true;
	int rc = uv_spawn(loop, &simulator->process, &options);
	if (rc != 0)
		return error_set(error, ERR_IO, "runtime %s: start %s: %s", simulator->name, program, uv_strerror(rc));
	uv_read_start((uv_stream_t *)&simulator->output, on_alloc, on_read);
	return 0;
}

/* "reprise-sim ready http://127.0.0.1:PORT…" */
static const char *url_of(struct arena *arena, const char *line)
{
	const char *url = strstr(line, "http://");

	return url ? arena_text_len(arena, url, strcspn(url, " \r\n")) : NULL;
}

int simulators_start(struct simulators *simulators, uv_loop_t *loop, struct config *config, struct error *error)
{
	char program[PATH_MAX];
	bool late = false;
	size_t wanted = 0;

	*simulators = (struct simulators){0};
	for (size_t i = 0; i < config->runtime_count; i++)
		wanted += config->runtime_starts_simulator[i];
	if (wanted == 0)
		return 0;
	if (!program_find("reprise-sim", "../tests/sim/reprise-sim", program))
		return error_set(error, ERR_NOT_FOUND, "kind: simulator needs the program reprise-sim beside reprised or in PATH; or give the url of one that runs");
	simulators->items = memory_zero(wanted * sizeof *simulators->items);
	CHECK(uv_timer_init(loop, &simulators->timer) == 0);
	simulators->timer.data = &late;
	uv_timer_start(&simulators->timer, on_late, SIMULATOR_READY_MS, 0);
	for (size_t i = 0; i < config->runtime_count && error->code == ERR_NONE; i++) {
		if (!config->runtime_starts_simulator[i])
			continue;
		struct simulator *simulator = &simulators->items[simulators->count++];
		simulator->all = simulators;
		simulator->name = config->runtimes[i].name;
		if (start(simulator, loop, program, error) != 0)
			break;
		while (!simulator->is_ready && !simulator->exited && !late)
			uv_run(loop, UV_RUN_ONCE);
		config->runtimes[i].url = simulator->is_ready ? url_of(&config->arena, simulator->line) : NULL;
		if (!config->runtimes[i].url)
			error_set(error, ERR_UNREACHABLE, "runtime %s: %s said not where it listens%s", simulator->name, program, late ? " within 10 s" : "");
		else
			log_info(LOG_DAEMON, "runtime=%s a SIMULATOR answers at %s: no model is asked", simulator->name, config->runtimes[i].url);
	}
	uv_close((uv_handle_t *)&simulators->timer, NULL);
	return error->code;
}

void simulators_stop(struct simulators *simulators)
{
	simulators->stopping = true;
	for (size_t i = 0; i < simulators->count; i++) {
		struct simulator *simulator = &simulators->items[i];
		if (!simulator->started)
			continue;
		if (uv_process_get_pid(&simulator->process) > 0 && !simulator->exited)
			uv_process_kill(&simulator->process, SIGTERM);
		uv_close((uv_handle_t *)&simulator->output, NULL);
		if (!uv_is_closing((uv_handle_t *)&simulator->process))
			uv_close((uv_handle_t *)&simulator->process, NULL);
	}
}

void simulators_free(struct simulators *simulators)
{
	free(simulators->items);
	*simulators = (struct simulators){0};
}
