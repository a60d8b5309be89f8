/* reprise-sim: a simulated LLM runtime for tests and first steps without a model. README.md says what it can do.
 * One thread, one loop. Start at main(). */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/sim/file.h"
#include "tests/sim/probe.h"
#include "tests/sim/sim.h"
#include "workflow/base/check.h"

static const struct kind *const kinds[] = {&openai_kind, &llamacpp_kind, &vllm_kind, &ollama_kind, &sglang_kind, &lmstudio_kind,
	&transformers_kind};

static const char usage[] =
	"usage: reprise-sim [options]\n"
	"       reprise-sim probe nvidia-smi|typeperf|powershell.exe …\n"
	"A simulated LLM runtime on 127.0.0.1. Prints one line when it is ready.\n"
	"  --kind KIND            openai, llamacpp, vllm, ollama, sglang,\n"
	"                         lmstudio, transformers\n"
	"  --port N               0, the default, lets the system choose\n"
	"  --control-port N       serve /__sim/state, /__sim/script, /__sim/reset,\n"
	"                         /__sim/reload, /__sim/flush there\n"
	"                         (0 lets the system choose; off by default)\n"
	"  --script FILE          JSON: answers, cadence, faults (tests/sim/README.md)\n"
	"  --model NAME           the model it serves (default reprise-sim)\n"
	"  --delay MS             time that an answer takes (default 0)\n"
	"  --seed N               the seed of a script that names none (default 0)\n"
	"  --connections-max N    connections at once (default 4096, also the most)\n"
	"  --sections-max N       sections and keys counted apart (default 100000, also\n"
	"                         the most)\n"
	"  --verbose              one line per request on standard error\n"
	"  --version, --help\n";

struct arguments {
	const struct kind *kind;
	const char *script_path;
	int port, control_port; /* control_port -1: off */
	int connections_max, sections_max;
	struct script_defaults defaults;
	bool verbose;
};

static int read_number(const char *name, const char *text, double max, double *number, struct error *error)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || (double)value > max)
		return error_set(error, ERR_INVALID, "%s: \"%s\" is not a number from 0 to %.0f", name, text, max);
	*number = (double)value;
	return 0;
}

/* Return 0 to go on, ERR_CANCELLED when all was said (--help), else an error. */
static int read_options(struct arguments *options, int count, char **arguments, struct error *error)
{
	*options = (struct arguments){
		.kind = kinds[0], .control_port = -1, .connections_max = HTTP_CONNECTIONS_MAX, .sections_max = TALLY_ENTRIES_MAX,
		.defaults = {.model = "reprise-sim"},
	};
	for (int i = 1; i < count; i++) {
		const char *name = arguments[i];
		const char *value = i + 1 < count ? arguments[i + 1] : NULL;
		double number = 0;

		if (strcmp(name, "--verbose") == 0) {
			options->verbose = true;
			continue;
		}
		if (strcmp(name, "--help") == 0 || strcmp(name, "--version") == 0) {
			fputs(strcmp(name, "--help") == 0 ? usage : "reprise-sim " REPRISE_VERSION "\n", stdout);
			return ERR_CANCELLED;
		}
		if (value == NULL)
			return error_set(error, ERR_INVALID, "%s: unknown, or its value is missing; see --help", name);
		i++;
		if (strcmp(name, "--kind") == 0) {
			options->kind = NULL;
			for (size_t k = 0; k < COUNT_OF(kinds); k++) {
				if (strcmp(kinds[k]->name, value) == 0)
					options->kind = kinds[k];
			}
			if (options->kind == NULL)
				return error_set(error, ERR_INVALID, "--kind: \"%s\" is not simulated; see --help", value);
		} else if (strcmp(name, "--script") == 0) {
			options->script_path = value;
		} else if (strcmp(name, "--model") == 0) {
			if (value[0] == '\0' || !utf8_valid(bytes_text(value), NULL))
				return error_set(error, ERR_INVALID, "--model: must be UTF-8 and not empty");
			options->defaults.model = value;
		} else if (strcmp(name, "--port") == 0) {
			if (read_number(name, value, 65535, &number, error) != 0)
				return ERR_INVALID;
			options->port = (int)number;
		} else if (strcmp(name, "--control-port") == 0) {
			if (read_number(name, value, 65535, &number, error) != 0)
				return ERR_INVALID;
			options->control_port = (int)number;
		} else if (strcmp(name, "--delay") == 0) {
			if (read_number(name, value, SCRIPT_TIME_MAX_MS, &number, error) != 0)
				return ERR_INVALID;
			options->defaults.delay_ms = (int)number;
		} else if (strcmp(name, "--seed") == 0) {
			if (read_number(name, value, 0x1p53 - 1, &number, error) != 0)
				return ERR_INVALID;
			options->defaults.seed = (uint64_t)number;
		} else if (strcmp(name, "--connections-max") == 0) {
			if (read_number(name, value, HTTP_CONNECTIONS_MAX, &number, error) != 0)
				return ERR_INVALID;
			options->connections_max = (int)number;
		} else if (strcmp(name, "--sections-max") == 0) {
			if (read_number(name, value, TALLY_ENTRIES_MAX, &number, error) != 0)
				return ERR_INVALID;
			options->sections_max = (int)number;
		} else {
			return error_set(error, ERR_INVALID, "%s: unknown; see --help", name);
		}
	}
	return 0;
}

static int load_script(struct sim *sim, const char *path, struct error *error)
{
	struct buffer text;

	buffer_init(&text, SCRIPT_BYTES_MAX);
	if (path == NULL)
		buffer_add_text(&text, "{}");
	else if (file_read(path, &text, error) != 0)
		goto end;
	sim->script = script_new(buffer_bytes(&text), &sim->defaults, error);
	if (sim->script == NULL && path != NULL)
		error_wrap(error, "%s", path);
end:
	buffer_close(&text);
	return (int)error->code;
}

/* Each client takes a descriptor; the soft limit of a shell is often 1,024. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

void sim_print_addresses(const struct sim *sim, const char *word)
{
	printf("reprise-sim %s http://127.0.0.1:%d", word, sim->product.port);
	if (sim->has_control)
		printf(" control http://127.0.0.1:%d", sim->control.port);
	putchar('\n');
	fflush(stdout);
}

void sim_close(struct sim *sim)
{
	sim->closing = true;
	http_server_close(&sim->product);
	exchange_end_abandoned(sim);
	runtime_close(&sim->runtime);
	process_close(sim);
	if (sim->has_control)
		http_server_close(&sim->control);
	for (size_t i = 0; i < COUNT_OF(sim->signals); i++)
		uv_close((uv_handle_t *)&sim->signals[i], NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
	struct sim *sim = handle->data;

	(void)number;
	if (!uv_is_closing((uv_handle_t *)handle) && process_may_end(sim))
		sim_close(sim);
}

/* ---- The simulated runtime ---- */

void sim_apply_script(struct sim *sim)
{
	const struct kind_options *options = &sim->script->options;
	struct model_state *model;

	sim->product.idle_ms = options->idle_ms;
	sim->product.idle_header = sim->kind->idle_header;
	model = options->loaded ? runtime_model(&sim->runtime, sim->script->model) : NULL;
	if (model != NULL)
		runtime_load(&sim->runtime, model, 0);
}

int sim_reload(struct sim *sim, struct error *error)
{
	sim->reloading = true;
	http_drop_connections(&sim->product);
	exchange_end_abandoned(sim);
	sim->reloading = false;
	runtime_renew(&sim->runtime);
	return process_open(sim, error);
}

static int open_sim(struct sim *sim, const struct arguments *options, struct error *error)
{
	static const int numbers[] = {SIGTERM, SIGINT};

	if (http_bind(&sim->product, &sim->loop, options->port, &product_handler, sim, error) != 0)
		return (int)error->code;
	sim->product.connections_max = (unsigned)options->connections_max;
	sim->has_control = options->control_port >= 0;
	if (sim->has_control && (http_bind(&sim->control, &sim->loop, options->control_port, &control_handler, sim, error) != 0 ||
	    http_listen(&sim->control, error) != 0))
		return (int)error->code;
	for (size_t i = 0; i < COUNT_OF(numbers); i++) {
		CHECK(uv_signal_init(&sim->loop, &sim->signals[i]) == 0);
		sim->signals[i].data = sim;
		CHECK(uv_signal_start(&sim->signals[i], on_signal, numbers[i]) == 0);
	}
	return process_open(sim, error);
}

int main(int count, char **arguments)
{
	static struct sim sim;
	struct arguments options;
	struct error error = {.code = ERR_NONE};
	int status;

	if (probe_is_name(arguments[0]))
		return probe_run(count, arguments);
	if (count > 2 && strcmp(arguments[1], "probe") == 0 && probe_is_name(arguments[2]))
		return probe_run(count - 2, arguments + 2);
	if (read_options(&options, count, arguments, &error) == ERR_CANCELLED)
		return 0;
	if (error.code != ERR_NONE)
		goto fail;
	signal(SIGPIPE, SIG_IGN);
	raise_descriptor_limit();
	sim.kind = options.kind;
	sim.verbose = options.verbose;
	sim.defaults = options.defaults;
	sim.defaults.kind = options.kind->bit;
	sim.defaults.options = &options.kind->options;
	counters_init(&sim.counters, (size_t)options.sections_max);
	CHECK(uv_loop_init(&sim.loop) == 0);
	runtime_init(&sim.runtime, &sim.loop);
	if (load_script(&sim, options.script_path, &error) != 0 || process_read(&sim, &error) != 0)
		goto fail;
	status = process_begin(&sim);
	if (status != 0)
		return status;
	if (open_sim(&sim, &options, &error) != 0)
		goto fail;
	uv_run(&sim.loop, UV_RUN_DEFAULT);

	CHECK(uv_loop_close(&sim.loop) == 0); /* finds a handle that was left open */
	script_release(sim.script);
	script_release(sim.process.script);
	runtime_free(&sim.runtime);
	counters_close(&sim.counters);
	return 0;
fail:
	fprintf(stderr, "reprise-sim: %s\n", error.message);
	return options.kind == NULL || error.code == ERR_INVALID ? 2 : 1;
}
