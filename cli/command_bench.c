/* reprise bench overhead | memory | recovery | expressions: start a daemon and a simulated runtime of their own in a scratch folder, measure, stop.
 * Start at command_bench_overhead(). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <ftw.h>
#include <time.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/jq.h"
#include "workflow/base/check.h"
#include "workflow/decide.h"

extern char **environ;

enum {
	ACTIVITY_MS = 20, /* what the simulated runtime takes for an answer */
	RUNS_MAX = 10000000,
	OVERHEAD_RUNS_DEFAULT = 200,
	MEMORY_RUNS_DEFAULT = 100000,
	RECOVERY_RUNS_DEFAULT = 100000,
	RECOVERY_HANGS_MS = 600000, /* what the runtime takes for an answer, so that none comes */
	RECOVERY_WITHIN_S = 600, RECOVERY_LOOK_MS = 50, /* all are to have been read again after the restart; how often that is looked at */
	MEMORY_CONNECTIONS = 64,
	JOURNAL_RUNS_DEFAULT = 30000,
	JOURNAL_RUNS_MIN = 2000, /* some tiles */
	JOURNAL_PERIODS = 12, /* of retention, while runs come and go; a look at the file after each */
	JOURNAL_PERIOD_MS = 2000, /* after that a run's entries go, too */
	JOURNAL_STEP = 64, /* runs between two looks at the clock */
	JOURNAL_LOOK_MS = 1500,
	JOURNAL_REST_MS_MAX = 120000,
	WARM_UP_RUNS = 20,
	SYNC_SAMPLES = 200,
	SYNC_IDLE_SAMPLES = 50,
	SYNC_BLOCK = 4096,
	COMMIT_BYTES = 7 * SYNC_BLOCK, /* what a commit of a small run writes */
	COMMIT_RING = 128 * COMMIT_BYTES, /* written again and again, as the write-ahead log is */
	COMMIT_PAIRS = 100,
	READY_MS_MAX = 120000,
	STOP_MS_MAX = 10000,
	IDLE_BEFORE_MEMORY_MS = 1000,
	LINE_LEN_MAX = 512,
};

struct process {
	pid_t pid; /* 0: not started */
	int out; /* read end of its standard output */
	char line[LINE_LEN_MAX]; /* the first one */
	double ready_ms;
};

struct bench {
	struct command *command;
	char *folder, *data_dir, *socket_path;
	struct process sim, daemon;
	struct client client;
	bool client_is_open;
};

/* --- processes ---------------------------------------------------------------------------------------------------- */

/* Beside this program as it was built, beside it as it is installed, then $PATH. */
static const char *find_program(struct command *command, const char *option, const char *built, const char *name)
{
	char self[4096];
	if (command_option(command, option) != NULL)
		return command_option(command, option);
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	if (len > 0) {
		self[len] = '\0';
		char *slash = strrchr(self, '/');
		if (slash != NULL)
			*slash = '\0';
		const char *places[] = {arena_printf(&command->arena, "%s/%s", self, built), arena_printf(&command->arena, "%s/%s", self, name)};
		for (size_t i = 0; i < COUNT_OF(places); i++)
			if (access(places[i], X_OK) == 0)
				return places[i];
	}
	return name;
}

static void stop_process(struct process *process)
{
	if (process->pid == 0)
		return;
	kill(process->pid, SIGTERM);
	for (int waited = 0; waitpid(process->pid, NULL, WNOHANG) == 0; waited += 5) {
		if (waited >= STOP_MS_MAX) {
			kill(process->pid, SIGKILL);
			waitpid(process->pid, NULL, 0);
			break;
		}
		sleep_ms(5);
	}
	close(process->out);
	process->pid = 0;
}

/* Start it and wait for its first line. Standard error goes to `log_path`, for the message when it fails. */
static int start_process(struct command *command, struct process *process, const char *const *arguments, const char *log_path)
{
	int ends[2];
	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	posix_spawn_file_actions_t actions;
	CHECK(posix_spawn_file_actions_init(&actions) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO) == 0);
	CHECK(posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600) == 0);
	uint64_t started_us = clock_us();
	int failed = posix_spawnp(&process->pid, arguments[0], &actions, NULL, (char *const *)arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	process->out = ends[0];
	if (failed != 0) {
		close(ends[0]);
		process->pid = 0;
		return command_fail(command, STATUS_ERROR, "build it first, or name it with --reprised and --sim", "start %s: %s", arguments[0], strerror(failed));
	}
	size_t len = 0;
	for (;;) {
		int left_ms = READY_MS_MAX - (int)((clock_us() - started_us) / 1000);
		struct pollfd wait = {.fd = process->out, .events = POLLIN};
		if (left_ms <= 0 || poll(&wait, 1, left_ms) <= 0 || len + 1 >= sizeof process->line)
			break;
		ssize_t got = read(process->out, process->line + len, 1);
		if (got <= 0)
			break;
		if (process->line[len] == '\n') {
			process->line[len] = '\0';
			process->ready_ms = (double)(clock_us() - started_us) / 1000;
			return STATUS_OK;
		}
		len++;
	}
	struct bytes log = BYTES_OF("");
	stop_process(process);
	if (access(log_path, R_OK) == 0)
		command_read_file(command, log_path, &log);
	size_t from = log.len > 800 ? log.len - 800 : 0;
	return command_fail(command, STATUS_ERROR, log.len == 0 ? NULL : (const char *)log.data + from, "%s did not say that it is ready within %d ms", arguments[0], READY_MS_MAX);
}

/* Resident and private memory from the kernel's own sums, in bytes; 0: could not be read. */
static void read_memory(pid_t pid, double *resident, double *private)
{
	char path[64], line[256];
	unsigned long kib;
	*resident = *private = 0;
	snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
	FILE *file = fopen(path, "re");
	while (file != NULL && fgets(line, sizeof line, file) != NULL) {
		if (sscanf(line, "Rss: %lu kB", &kib) == 1)
			*resident = (double)kib * 1024;
		else if (sscanf(line, "Private_Clean: %lu kB", &kib) == 1 || sscanf(line, "Private_Dirty: %lu kB", &kib) == 1)
			*private += (double)kib * 1024;
	}
	if (file != NULL)
		fclose(file);
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
	(void)info;
	(void)type;
	(void)place;
	return remove(path);
}

static void close_bench(struct bench *bench)
{
	if (bench->client_is_open)
		client_close(&bench->client);
	stop_process(&bench->daemon);
	stop_process(&bench->sim);
	if (bench->folder != NULL)
		nftw(bench->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int write_text(struct command *command, const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	bool good = file != NULL && fputs(text, file) >= 0;
	if (file != NULL && fclose(file) != 0)
		good = false;
	return good ? STATUS_OK : command_fail(command, STATUS_ERROR, NULL, "write %s: %s", path, strerror(errno));
}

static int make_folder(struct bench *bench)
{
	struct command *command = bench->command;
	const char *parent = command_option(command, "data");
	if (parent == NULL)
		parent = getenv("TMPDIR") != NULL && getenv("TMPDIR")[0] != '\0' ? getenv("TMPDIR") : "/tmp";
	else if (mkdir(parent, 0700) != 0 && errno != EEXIST)
		return command_fail(command, STATUS_ERROR, "--data DIR names another place", "make the folder %s: %s", parent, strerror(errno));
	bench->folder = arena_printf(&command->arena, "%s/reprise-bench-XXXXXX", parent);
	if (mkdtemp(bench->folder) == NULL) {
		int status = command_fail(command, STATUS_ERROR, "--data DIR names another place", "make a scratch folder in %s: %s", parent, strerror(errno));
		bench->folder = NULL;
		return status;
	}
	bench->data_dir = arena_printf(&command->arena, "%s/data", bench->folder);
	bench->socket_path = arena_printf(&command->arena, "%s/reprise.sock", bench->folder);
	return STATUS_OK;
}

/* text: its configuration. */
static int start_daemon_as(struct bench *bench, const char *text)
{
	struct command *command = bench->command;
	char *config = arena_printf(&command->arena, "%s/reprise.yaml", bench->folder);
	const char *arguments[] = {find_program(command, "reprised", "../daemon/reprised", "reprised"), "--config", config, "--data", bench->data_dir, "--listen",
				   arena_printf(&command->arena, "unix:%s", bench->socket_path), NULL};
	int status = write_text(command, config, text);
	if (status != STATUS_OK || (status = start_process(command, &bench->daemon, arguments, arena_printf(&command->arena, "%s/reprised.log", bench->folder))) != STATUS_OK)
		return status;
	struct client_options options = {.socket_path = bench->socket_path};
	struct error error;
	if (client_open(&bench->client, &options, &error) != 0)
		return command_fail(command, STATUS_ERROR, NULL, "%s", error.message);
	bench->client_is_open = true;
	return STATUS_OK;
}

static int start_daemon(struct bench *bench, const char *runtime_url)
{
	return start_daemon_as(bench, runtime_url == NULL ? "runtimes: {}\n" : arena_printf(&bench->command->arena,
			       "runtimes:\n  bench:\n    kind: openai\n    url: %s\n    model: bench\n    concurrency: 64\n", runtime_url));
}

static int start_sim(struct bench *bench, unsigned delay_ms, const char **url)
{
	struct command *command = bench->command;
	char *script = arena_printf(&command->arena, "%s/script.json", bench->folder);
	int status = write_text(command, script, "{\"answer\":{\"mode\":\"fixed\",\"answers\":[{\"text\":\"Twenty milliseconds later.\",\"weight\":1}]}}\n");
	const char *arguments[] = {find_program(command, "sim", "../tests/sim/reprise-sim", "reprise-sim"), "--port", "0", "--model", "bench", "--delay",
				   arena_printf(&command->arena, "%u", delay_ms), "--script", script, NULL};
	if (status != STATUS_OK || (status = start_process(command, &bench->sim, arguments, arena_printf(&command->arena, "%s/reprise-sim.log", bench->folder))) != STATUS_OK)
		return status;
	const char *start = strstr(bench->sim.line, "http://");
	if (start == NULL)
		return command_fail(command, STATUS_ERROR, NULL, "%s said: %s", arguments[0], bench->sim.line);
	*url = arena_text_len(&command->arena, start, strcspn(start, " "));
	return STATUS_OK;
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

static int compare_numbers(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* Nearest rank; sorts the samples. */
static double percentile(double *samples, size_t count, double percent)
{
	if (count == 0)
		return 0;
	qsort(samples, count, sizeof *samples, compare_numbers);
	size_t rank = (size_t)(percent / 100 * (double)count + 0.999999);
	return samples[rank == 0 ? 0 : rank > count ? count - 1 : rank - 1];
}

static double rounded(double value)
{
	return (double)(long long)(value * 1000 + (value < 0 ? -0.5 : 0.5)) / 1000;
}

static struct json *percentiles_json(struct arena *arena, double *samples, size_t count)
{
	struct json *json = json_object(arena);
	json_set_number(arena, json, "p50", rounded(percentile(samples, count, 50)));
	json_set_number(arena, json, "p95", rounded(percentile(samples, count, 95)));
	json_set_number(arena, json, "p99", rounded(percentile(samples, count, 99)));
	json_set_number(arena, json, "max", rounded(percentile(samples, count, 100)));
	return json;
}

/* What durable writes cost on this very disk, in microseconds: the floor under every figure. */
struct disk {
	double append_us, idle_append_us; /* p50 of 4 KiB at the end of a file, at once and after ACTIVITY_MS of idling */
	double pair_us[COMMIT_PAIRS]; /* two commits, as a run with one activity makes them: one soon after the last, one after idling */
};

static bool write_and_sync(int fd, const char *block, size_t len, off_t at, double *us)
{
	uint64_t start_us = clock_us();
	bool good = pwrite(fd, block, len, at) == (ssize_t)len && fdatasync(fd) == 0;
	*us = (double)(clock_us() - start_us);
	return good;
}

static int measure_disk(struct bench *bench, struct disk *disk)
{
	struct command *command = bench->command;
	const char *path = arena_printf(&command->arena, "%s/sync.probe", bench->folder);
	double samples[SYNC_SAMPLES], idle[SYNC_IDLE_SAMPLES];
	char block[COMMIT_BYTES];
	off_t end = 0;
	memset(block, 'r', sizeof block);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool good = fd >= 0;
	for (size_t i = 0; good && i < SYNC_SAMPLES + SYNC_IDLE_SAMPLES; i++, end += SYNC_BLOCK) {
		if (i >= SYNC_SAMPLES)
			sleep_ms(ACTIVITY_MS);
		good = write_and_sync(fd, block, SYNC_BLOCK, end, i < SYNC_SAMPLES ? &samples[i] : &idle[i - SYNC_SAMPLES]);
	}
	for (off_t at = 0; good && at < COMMIT_RING; at += COMMIT_BYTES)
		good = pwrite(fd, block, COMMIT_BYTES, at) == COMMIT_BYTES;
	good = good && fdatasync(fd) == 0;
	for (size_t i = 0; good && i < COMMIT_PAIRS; i++) {
		double soon_us = 0, idle_us = 0;
		off_t at = (off_t)(i * 2 * COMMIT_BYTES) % COMMIT_RING;
		sleep_ms(1);
		good = write_and_sync(fd, block, COMMIT_BYTES, at, &soon_us);
		sleep_ms(ACTIVITY_MS);
		good = good && write_and_sync(fd, block, COMMIT_BYTES, at + COMMIT_BYTES, &idle_us);
		disk->pair_us[i] = soon_us + idle_us;
	}
	int reason = errno;
	if (fd >= 0)
		close(fd);
	unlink(path);
	if (!good)
		return command_fail(command, STATUS_ERROR, NULL, "measure fdatasync in %s: %s", bench->folder, strerror(reason));
	disk->append_us = percentile(samples, SYNC_SAMPLES, 50);
	disk->idle_append_us = percentile(idle, SYNC_IDLE_SAMPLES, 50);
	return STATUS_OK;
}

static const char *describe_machine(struct arena *arena)
{
	struct utsname name;
	char line[256], *model = NULL;
	CHECK(uname(&name) == 0);
	FILE *file = fopen("/proc/cpuinfo", "re");
	while (file != NULL && model == NULL && fgets(line, sizeof line, file) != NULL)
		if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL)
			model = arena_text_len(arena, strchr(line, ':') + 2, strcspn(strchr(line, ':') + 2, "\n"));
	if (file != NULL)
		fclose(file);
	return arena_printf(arena, "%ld CPUs%s%s, %s %s %s", sysconf(_SC_NPROCESSORS_ONLN), model == NULL ? "" : " ", model == NULL ? "" : model, name.sysname, name.release, name.machine);
}

/* --- the definitions ---------------------------------------------------------------------------------------------- */

#define NO_OP_DEFINITION \
	"{\"document\":{\"dsl\":\"1.0.3\",\"namespace\":\"bench\",\"name\":\"no-op\",\"version\":\"1.0.0\"},\"do\":[{\"nothing\":{\"set\":{\"done\":true}}}]}"
#define INFERENCE_DEFINITION \
	"{\"document\":{\"dsl\":\"1.0.3\",\"namespace\":\"bench\",\"name\":\"inference\",\"version\":\"1.0.0\"}," \
	"\"do\":[{\"answer\":{\"call\":\"inference\",\"with\":{\"runtime\":\"bench\",\"prompt\":\"How long did this take?\"}}}]}"

static int bench_send(struct bench *bench, const struct request *request, struct json **answer)
{
	struct command *command = bench->command;
	struct reply reply;
	struct error error;
	int status = STATUS_OK;
	if (client_send(&bench->client, request, &reply, &error) != 0)
		status = command_fail(command, STATUS_ERROR, NULL, "%s", error.message);
	else if (reply.status != 200 && reply.status != 201)
		status = command_fail_reply(command, request, &reply);
	else
		*answer = command_parse_reply(command, &reply, &error);
	reply_close(&reply);
	return status;
}

static int register_definition(struct bench *bench, const char *text)
{
	struct json *answer;
	struct request request = {.method = "POST", .path = "/v1/definitions", .body = bytes_text(text)};
	return bench_send(bench, &request, &answer);
}

/* --- bench overhead ----------------------------------------------------------------------------------------------- */

struct samples {
	double *overhead, *nominal, *client, *wall;
	double *stages[STAGE_COUNT];
	size_t count;
};

static int measure_runs(struct bench *bench, size_t runs, bool no_op, struct samples *samples)
{
	struct command *command = bench->command;
	struct request request = {.method = "POST", .path = "/v1/runs?wait=30s",
				  .body = bytes_text(no_op ? "{\"definition\":\"bench/no-op:1.0.0\",\"input\":{}}" : "{\"definition\":\"bench/inference:1.0.0\",\"input\":{}}")};
	double nominal_ms = no_op ? 0 : ACTIVITY_MS;
	for (size_t s = 0; s < STAGE_COUNT; s++)
		samples->stages[s] = arena_zero(&command->arena, runs * sizeof(double));
	double **const lists[] = {&samples->overhead, &samples->nominal, &samples->client, &samples->wall};
	for (size_t i = 0; i < COUNT_OF(lists); i++)
		*lists[i] = arena_zero(&command->arena, runs * sizeof(double));
	for (size_t i = 0; i < runs + WARM_UP_RUNS; i++) {
		struct arena kept = command->arena;
		struct json *run = NULL;
		arena_init(&command->arena);
		uint64_t start_us = clock_us();
		int status = bench_send(bench, &request, &run);
		double client_ms = (double)(clock_us() - start_us) / 1000;
		const struct json *overhead = json_get(run, "overhead");
		if (status == STATUS_OK && (run_exit_status(run) != STATUS_OK || json_get(overhead, "overheadMs") == NULL)) {
			run_print_error(command, run);
			status = command_fail(command, STATUS_ERROR, NULL, "a run of the benchmark is %s instead of completed with its overhead",
					      json_get_text(run, "status") == NULL ? "?" : json_get_text(run, "status"));
		}
		if (status == STATUS_OK && i >= WARM_UP_RUNS) {
			size_t at = samples->count++;
			samples->overhead[at] = json_get_number(overhead, "overheadMs", 0);
			samples->wall[at] = json_get_number(overhead, "wallMs", 0);
			samples->nominal[at] = samples->wall[at] - nominal_ms;
			samples->client[at] = client_ms - nominal_ms;
			for (size_t s = 0; s < STAGE_COUNT; s++)
				samples->stages[s][at] = json_get_number(json_get(overhead, "stages"), stage_names[s], 0);
		}
		arena_close(&command->arena);
		command->arena = kept;
		if (status != STATUS_OK)
			return status;
		char text[64];
		snprintf(text, sizeof text, "%zu of %zu runs", samples->count, runs);
		progress_show(&command->output, samples->count, runs, text);
	}
	progress_clear(&command->output);
	return STATUS_OK;
}

static void print_percentiles(struct command *command, const char *title, const struct json *json)
{
	output_line(&command->output, "%-34s p50 %8.3f   p95 %8.3f   p99 %8.3f   max %8.3f", title, json_get_number(json, "p50", 0), json_get_number(json, "p95", 0),
		    json_get_number(json, "p99", 0), json_get_number(json, "max", 0));
}

int command_bench_overhead(struct command *command)
{
	struct arena *arena = &command->arena;
	struct bench bench = {.command = command};
	struct samples samples = {0};
	uint64_t runs = OVERHEAD_RUNS_DEFAULT;
	bool no_op = command_flag(command, "no-op");
	double resident = 0, private = 0;
	struct disk disk = {0};
	const char *url = NULL;
	int status = command_number_from(command, "runs", 1, RUNS_MAX, &runs);
	if (status != STATUS_OK)
		return status;
	if ((status = make_folder(&bench)) != STATUS_OK || (status = measure_disk(&bench, &disk)) != STATUS_OK ||
	    (!no_op && (status = start_sim(&bench, ACTIVITY_MS, &url)) != STATUS_OK) || (status = start_daemon(&bench, url)) != STATUS_OK)
		goto done;
	sleep_ms(IDLE_BEFORE_MEMORY_MS);
	read_memory(bench.daemon.pid, &resident, &private);
	if ((status = register_definition(&bench, no_op ? NO_OP_DEFINITION : INFERENCE_DEFINITION)) != STATUS_OK ||
	    (status = measure_runs(&bench, runs, no_op, &samples)) != STATUS_OK)
		goto done;

	struct json *result = json_object(arena), *sync = json_object(arena), *stages = json_object(arena);
	json_set_text(arena, result, "machine", describe_machine(arena));
	for (size_t i = 0; i < COMMIT_PAIRS; i++)
		disk.pair_us[i] /= 1000;
	json_set_number(arena, sync, "p50", rounded(disk.append_us));
	json_set_number(arena, sync, "afterIdleP50", rounded(disk.idle_append_us));
	json_set(arena, result, "diskOfTwoCommitsMs", percentiles_json(arena, disk.pair_us, COMMIT_PAIRS));
	json_set(arena, result, "fdatasyncUs", sync);
	json_set(arena, result, "overheadMs", percentiles_json(arena, samples.overhead, samples.count));
	json_set(arena, result, "againstNominalMs", percentiles_json(arena, samples.nominal, samples.count));
	json_set(arena, result, "clientAgainstNominalMs", percentiles_json(arena, samples.client, samples.count));
	json_set(arena, result, "wallMs", percentiles_json(arena, samples.wall, samples.count));
	for (size_t s = 0; s < STAGE_COUNT; s++)
		json_set_number(arena, stages, stage_names[s], rounded(percentile(samples.stages[s], samples.count, 50)));
	json_set(arena, result, "stagesP50Ms", stages);
	json_set_number(arena, result, "runs", (double)samples.count);
	json_set_number(arena, result, "nominalActivityMs", no_op ? 0 : ACTIVITY_MS);
	json_set_number(arena, result, "readyMs", rounded(bench.daemon.ready_ms));
	json_set_number(arena, result, "idleRssMiB", rounded(resident / 1048576));
	json_set_number(arena, result, "idlePrivateMiB", rounded(private / 1048576));
	if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL) {
		output_json(&command->output, result);
	} else {
		output_line(&command->output, "machine    %s", json_get_text(result, "machine"));
		output_line(&command->output, "disk       fdatasync of 4 KiB appended: p50 %.0f us, after %d ms of idling %.0f us  (%s)", disk.append_us, ACTIVITY_MS, disk.idle_append_us, bench.folder);
		output_line(&command->output, "daemon     ready after %.1f ms on an empty journal; idle: %.1f MiB resident, %.1f MiB private", bench.daemon.ready_ms, resident / 1048576,
			    private / 1048576);
		output_line(&command->output, "runs       %zu, one after the other, each with %s", samples.count, no_op ? "one `set` and no activity" : "one 20 ms inference (simulated runtime)");
		output_line(&command->output, "%s", "milliseconds");
		print_percentiles(command, "outside the activity", json_get(result, "overheadMs"));
		if (!no_op)
			print_percentiles(command, "the disk alone, for two commits", json_get(result, "diskOfTwoCommitsMs"));
		print_percentiles(command, no_op ? "whole run" : "whole run less the nominal 20 ms", json_get(result, "againstNominalMs"));
		print_percentiles(command, "as a client sees it, less the same", json_get(result, "clientAgainstNominalMs"));
		struct buffer line;
		buffer_init(&line, 4096);
		for (size_t s = 0; s < STAGE_COUNT; s++)
			if (json_get_number(stages, stage_names[s], 0) > 0)
				buffer_printf(&line, "  %s %.3f", stage_names[s], json_get_number(stages, stage_names[s], 0));
		output_line(&command->output, "stages, p50 %s", buffer_text(&line));
		buffer_close(&line);
	}
done:
	close_bench(&bench);
	return status;
}

/* --- bench memory ------------------------------------------------------------------------------------------------- */

struct flood {
	struct bench *bench;
	CURLM *multi;
	CURL *handles[MEMORY_CONNECTIONS];
	struct curl_slist *headers;
	uint64_t started, done, failed, busy;
};

static size_t drop_body(char *data, size_t size, size_t count, void *arg)
{
	(void)data;
	(void)arg;
	return size * count;
}

static int flood_to(struct flood *flood, uint64_t until, uint64_t total)
{
	struct command *command = flood->bench->command;
	int running = 1;
	while (flood->done < until) {
		CURLMsg *message;
		int left;
		curl_multi_perform(flood->multi, &running);
		while ((message = curl_multi_info_read(flood->multi, &left)) != NULL) {
			CURL *easy = message->easy_handle;
			long http = 0;
			curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &http);
			if (message->data.result != CURLE_OK)
				return command_fail(command, STATUS_ERROR, NULL, "after %llu runs: %s", (unsigned long long)flood->done, curl_easy_strerror(message->data.result));
			curl_multi_remove_handle(flood->multi, easy);
			if (http == 503) {
				flood->busy++;
				sleep_ms(1);
			} else {
				flood->done++;
				flood->failed += http != 201 && http != 200;
				if (flood->started >= total)
					continue;
				flood->started++;
			}
			curl_multi_add_handle(flood->multi, easy);
			running++;
		}
		char text[80];
		snprintf(text, sizeof text, "%llu of %llu runs", (unsigned long long)flood->done, (unsigned long long)total);
		progress_show(&command->output, flood->done, total, text);
		if (flood->done < until)
			curl_multi_poll(flood->multi, NULL, 0, 1000, NULL);
	}
	return STATUS_OK;
}

static int check_flood(struct command *command, uint64_t runs)
{
	if (runs >= MEMORY_CONNECTIONS)
		return STATUS_OK;
	return command_fail(command, STATUS_USAGE, NULL, "--runs %llu: at least %d are needed", (unsigned long long)runs, MEMORY_CONNECTIONS);
}

/* The same request over all connections; start_flood() sends the first of each, flood_to() goes on. */
static void open_flood(struct flood *flood, const char *path, const char *body)
{
	struct bench *bench = flood->bench;
	flood->headers = curl_slist_append(NULL, "Content-Type: application/json");
	flood->multi = curl_multi_init();
	CHECK(flood->multi != NULL);
	for (size_t i = 0; i < MEMORY_CONNECTIONS; i++) {
		CURL *easy = flood->handles[i] = curl_easy_init();
		CHECK(easy != NULL);
		client_prepare(&bench->client, easy, client_url(&bench->command->arena, &bench->client, path));
		curl_easy_setopt(easy, CURLOPT_HTTPHEADER, flood->headers);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
		curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop_body);
	}
}

static void start_flood(struct flood *flood)
{
	for (size_t i = 0; i < MEMORY_CONNECTIONS; i++, flood->started++)
		curl_multi_add_handle(flood->multi, flood->handles[i]);
}

/* The status so far, or that runs were not accepted. */
static int close_flood(struct flood *flood, int status)
{
	struct command *command = flood->bench->command;
	progress_clear(&command->output);
	for (size_t i = 0; i < MEMORY_CONNECTIONS; i++) {
		curl_multi_remove_handle(flood->multi, flood->handles[i]);
		curl_easy_cleanup(flood->handles[i]);
	}
	curl_multi_cleanup(flood->multi);
	curl_slist_free_all(flood->headers);
	if (status == STATUS_OK && flood->failed > 0)
		return command_fail(command, STATUS_ERROR, NULL, "%llu of %llu runs were not accepted", (unsigned long long)flood->failed, (unsigned long long)flood->started);
	return status;
}

int command_bench_memory(struct command *command)
{
	struct arena *arena = &command->arena;
	struct bench bench = {.command = command};
	struct flood flood = {.bench = &bench};
	uint64_t runs = MEMORY_RUNS_DEFAULT;
	int status = command_number(command, "runs", RUNS_MAX, &runs);
	if (status != STATUS_OK || (status = check_flood(command, runs)) != STATUS_OK)
		return status;
	if ((status = make_folder(&bench)) != STATUS_OK || (status = start_daemon(&bench, NULL)) != STATUS_OK ||
	    (status = register_definition(&bench, NO_OP_DEFINITION)) != STATUS_OK)
		goto done;

	static const unsigned marks[] = {0, 25, 50, 75, 100};
	double resident[COUNT_OF(marks)], private[COUNT_OF(marks)];
	open_flood(&flood, "/v1/runs?wait=30s", "{\"definition\":\"bench/no-op:1.0.0\",\"input\":{}}");
	sleep_ms(IDLE_BEFORE_MEMORY_MS);
	read_memory(bench.daemon.pid, &resident[0], &private[0]);
	start_flood(&flood);
	uint64_t start_us = clock_us();
	for (size_t m = 1; status == STATUS_OK && m < COUNT_OF(marks); m++) {
		status = flood_to(&flood, runs * marks[m] / 100, runs);
		read_memory(bench.daemon.pid, &resident[m], &private[m]);
	}
	double seconds = (double)(clock_us() - start_us) / 1e6;
	if ((status = close_flood(&flood, status)) != STATUS_OK)
		goto done;

	struct json *result = json_object(arena), *rss = json_object(arena), *own = json_object(arena);
	for (size_t m = 0; m < COUNT_OF(marks); m++) {
		json_set_number(arena, rss, arena_printf(arena, "%u%%", marks[m]), rounded(resident[m] / 1048576));
		json_set_number(arena, own, arena_printf(arena, "%u%%", marks[m]), rounded(private[m] / 1048576));
	}
	json_set_text(arena, result, "machine", describe_machine(arena));
	json_set_number(arena, result, "runs", (double)flood.done);
	json_set_number(arena, result, "connections", MEMORY_CONNECTIONS);
	json_set_number(arena, result, "seconds", rounded(seconds));
	json_set_number(arena, result, "runsPerSecond", rounded((double)flood.done / seconds));
	json_set_number(arena, result, "answeredBusy", (double)flood.busy);
	json_set(arena, result, "residentMiB", rss);
	json_set(arena, result, "privateMiB", own);
	/* The first quarter fills caches; what grows after it would grow for ever. */
	json_set_number(arena, result, "growthBytesPerRun", rounded((private[4] - private[1]) / ((double)runs * 0.75)));
	if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL) {
		output_json(&command->output, result);
	} else {
		output_line(&command->output, "machine    %s", json_get_text(result, "machine"));
		output_line(&command->output, "runs       %llu no-op runs over %d connections in %.1f s: %.0f a second", (unsigned long long)flood.done, MEMORY_CONNECTIONS, seconds,
			    (double)flood.done / seconds);
		for (size_t m = 0; m < COUNT_OF(marks); m++)
			output_line(&command->output, "at %3u %%   %6.1f MiB resident, %6.1f MiB private", marks[m], resident[m] / 1048576, private[m] / 1048576);
		output_line(&command->output, "growth     %.3f bytes of private memory a run from 25 %% on", (private[4] - private[1]) / ((double)runs * 0.75));
	}
done:
	close_bench(&bench);
	return status;
}

/* --- bench journal ------------------------------------------------------------------------------------------------ */

/* In real time a run is in the lists for 30 days, its entries stay for 90, what is left stays for ever. Here each of these takes a second, one after
 * the other, so that the bytes of each can be told apart; then all at once, for the size of the file while runs come and go. */
#define RETENTION_CONFIG "runtimes: {}\nsigning: {checkpoint: {every: 1s}}\nretention: {runs: %s, entries: %s}\n"

static int ask_stats(struct bench *bench, struct json **stats)
{
	struct request request = {.method = "GET", .path = "/v1/journal/stats"};
	return bench_send(bench, &request, stats);
}

static double used_bytes(const struct json *stats)
{
	return json_get_number(stats, "databaseBytes", 0) - json_get_number(stats, "freeBytes", 0);
}

static int restart_daemon(struct bench *bench, const char *runs, const char *entries)
{
	if (bench->client_is_open)
		client_close(&bench->client);
	bench->client_is_open = false;
	stop_process(&bench->daemon);
	return start_daemon_as(bench, arena_printf(&bench->command->arena, RETENTION_CONFIG, runs, entries));
}

/* Until a figure of the journal has come to rest. *bytes: what is used then. */
static int await_rest(struct bench *bench, const char *figure, double least, double *bytes)
{
	struct json *stats;
	double before = -1;
	int status;
	for (int waited = 0; (status = ask_stats(bench, &stats)) == STATUS_OK; waited += JOURNAL_LOOK_MS) {
		double now = json_get_number(stats, figure, 0);
		if (now >= least && now == before)
			break;
		if (waited > JOURNAL_REST_MS_MAX)
			return command_fail(bench->command, STATUS_ERROR, NULL, "after %d s %s is %.0f, at least %.0f was expected", JOURNAL_REST_MS_MAX / 1000, figure, now, least);
		before = now;
		sleep_ms(JOURNAL_LOOK_MS);
	}
	if (status == STATUS_OK)
		*bytes = used_bytes(stats);
	return status;
}

static void start_no_ops(struct flood *flood)
{
	open_flood(flood, "/v1/runs?wait=30s", "{\"definition\":\"bench/no-op:1.0.0\",\"input\":{}}");
	start_flood(flood);
}

static int flood_journal(struct bench *bench, uint64_t runs)
{
	struct flood flood = {.bench = bench};
	start_no_ops(&flood);
	return close_flood(&flood, flood_to(&flood, runs, runs));
}

/* As many runs as there come in JOURNAL_PERIODS periods of retention; how long the file was after each. */
static int flood_periods(struct bench *bench, double *file_bytes, uint64_t *runs)
{
	struct flood flood = {.bench = bench};
	uint64_t start_us = clock_us();
	int status = STATUS_OK;
	start_no_ops(&flood);
	for (size_t i = 0; status == STATUS_OK && i < JOURNAL_PERIODS; i++) {
		struct json *stats;
		while (status == STATUS_OK && clock_us() - start_us < (i + 1) * JOURNAL_PERIOD_MS * 1000ULL)
			status = flood_to(&flood, flood.done + JOURNAL_STEP, UINT64_MAX);
		if (status == STATUS_OK && (status = ask_stats(bench, &stats)) == STATUS_OK)
			file_bytes[i] = json_get_number(stats, "databaseBytes", 0);
	}
	*runs = flood.done;
	return close_flood(&flood, status);
}

int command_bench_journal(struct command *command)
{
	struct arena *arena = &command->arena;
	struct bench bench = {.command = command};
	uint64_t runs = JOURNAL_RUNS_DEFAULT;
	double empty, listed, entries, rest, file_bytes[JOURNAL_PERIODS];
	uint64_t steady_runs;
	struct json *stats;
	int status = command_number_from(command, "runs", JOURNAL_RUNS_MIN, RUNS_MAX, &runs);
	if (status != STATUS_OK)
		return status;
	if ((status = make_folder(&bench)) != STATUS_OK || (status = restart_daemon(&bench, "forever", "forever")) != STATUS_OK ||
	    (status = register_definition(&bench, NO_OP_DEFINITION)) != STATUS_OK || (status = ask_stats(&bench, &stats)) != STATUS_OK)
		goto done;
	empty = used_bytes(stats);
	if ((status = flood_journal(&bench, runs)) != STATUS_OK || (status = ask_stats(&bench, &stats)) != STATUS_OK)
		goto done;
	listed = used_bytes(stats);
	double all = json_get_number(stats, "entries", 0);
	if ((status = restart_daemon(&bench, "1s", "forever")) != STATUS_OK || (status = await_rest(&bench, "removedRuns", (double)runs, &entries)) != STATUS_OK ||
	    (status = restart_daemon(&bench, "1s", "1s")) != STATUS_OK || (status = await_rest(&bench, "prunedEntries", all - 1024, &rest)) != STATUS_OK ||
	    (status = restart_daemon(&bench, "1s", "2s")) != STATUS_OK)
		goto done;
	uint64_t start_us = clock_us();
	if ((status = flood_periods(&bench, file_bytes, &steady_runs)) != STATUS_OK)
		goto done;
	double seconds = (double)(clock_us() - start_us) / 1e6, count = (double)runs;

	struct json *result = json_object(arena), *files = json_array(arena);
	json_set_text(arena, result, "machine", describe_machine(arena));
	json_set_number(arena, result, "runs", count);
	json_set_number(arena, result, "entriesPerRun", rounded(all / count));
	json_set_number(arena, result, "bytesPerRunListed", rounded((listed - empty) / count));
	json_set_number(arena, result, "bytesPerRunOfEntries", rounded((entries - empty) / count));
	json_set_number(arena, result, "bytesPerRunForEver", rounded((rest - empty) / count));
	for (size_t i = 0; i < JOURNAL_PERIODS; i++)
		json_add(arena, files, json_number(arena, file_bytes[i]));
	json_set_number(arena, result, "steadySeconds", rounded(seconds));
	json_set_number(arena, result, "steadyRuns", (double)steady_runs);
	json_set(arena, result, "steadyFileBytes", files);
	if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL) {
		output_json(&command->output, result);
	} else {
		output_line(&command->output, "machine    %s", json_get_text(result, "machine"));
		output_line(&command->output, "runs       %.0f no-op runs of %.2f entries", count, all / count);
		output_line(&command->output, "a run      %.0f bytes while it is listed (30 days)", (listed - empty) / count);
		output_line(&command->output, "           %.0f bytes while its entries are kept (90 days)", (entries - empty) / count);
		output_line(&command->output, "           %.0f bytes for ever: its id, and its part of the tree", (rest - empty) / count);
		output_line(&command->output, "file       while %llu runs came and went that are listed for 1 s, entries kept for 2 s; MiB:", (unsigned long long)steady_runs);
		for (size_t i = 0; i < JOURNAL_PERIODS; i++)
			output_line(&command->output, "  %4zu s   %.1f", (i + 1) * JOURNAL_PERIOD_MS / 1000, file_bytes[i] / 1048576);
	}
done:
	close_bench(&bench);
	return status;
}

/* --- bench expressions -------------------------------------------------------------------------------------------- */

/* Both look at the items and give a number that is another one each time. The first asks little of jq: what it takes is the way there and back. */
static const char round_trip[] = "(.items | length) + $context.run";
static const char sum[] = "(.items | length) + ([.items[] | .qty * .price] | add) * 0 + $context.run";

/* Evaluations by the helper program: printing the arguments, both ways over the socket, evaluating, reading the result. */
static int measure_evaluations(struct bench *bench, const char *expression, size_t items, double *samples, size_t count, size_t *argument_bytes)
{
	static const char *const names[] = {"context"};
	struct command *command = bench->command;
	struct arena *arena = &command->arena;
	struct jq_process jq;
	struct buffer in;
	struct error error = {0};
	const char *program = jq_program(arena);
	int code = 0;
	if (program == NULL)
		return command_fail(command, STATUS_ERROR, "build it first", "the program reprise-jq is neither beside this one nor in PATH");
	struct json *input = json_object(arena), *list = json_array(arena);
	for (size_t i = 0; i < items; i++) {
		struct json *item = json_object(arena);
		json_set(arena, item, "sku", json_printf(arena, "SKU-%06zu", i));
		json_set_number(arena, item, "qty", (double)(i % 7));
		json_set_number(arena, item, "price", 10.25 + (double)i);
		json_add(arena, list, item);
	}
	json_set(arena, input, "items", list);
	if (jq_start(&jq, program, &error) != 0)
		return command_fail(command, STATUS_ERROR, NULL, "%s", error.message);
	buffer_init(&in, EVALUATION_ANSWER_MAX + 4);
	for (size_t i = 0; i < count + WARM_UP_RUNS && code == 0; i++) {
		struct arena round;
		struct bytes answer;
		struct evaluation evaluation;
		struct json *context, *result = NULL;
		arena_init(&round);
		context = json_object(&round);
		json_set_number(&round, context, "run", (double)i); /* another value each time: nothing can be remembered */
		const struct json *values[] = {context};
		if (i == 0) { /* the helper has to have the program: the pool of the daemon sees to that in the same way */
			struct buffer warm;
			buffer_init(&warm, EVALUATION_REQUEST_MAX);
			code = evaluation_request(&round, expression, input, names, values, 1, &evaluation, &error);
			buffer_add_char(&warm, EVALUATION_WARM);
			if (code == 0)
				buffer_add_bytes(&warm, evaluation_program(evaluation.request));
			if (code == 0)
				code = jq_ask(&jq, buffer_bytes(&warm), CLI_JQ_COMPILE_MS, &in, &answer, &error);
			buffer_close(&warm);
			if (code != 0) {
				arena_close(&round);
				break;
			}
		}
		uint64_t start_us = clock_us();
		code = evaluation_request(&round, expression, input, names, values, 1, &evaluation, &error);
		if (code == 0 && (code = jq_ask(&jq, evaluation.request, CLI_JQ_COMPILE_MS, &in, &answer, &error)) == 0)
			result = json_parse(&round, (struct bytes){answer.data + 1, answer.len - 1}, JSON_ROUND_INTEGERS, NULL, &error);
		double us = (double)(clock_us() - start_us);
		if (code == 0 && (!json_is(json_at(result, 0), JSON_NUMBER) || json_at(result, 0)->number != (double)(items + i)))
			code = error_set(&error, ERR_CORRUPT, "reprise-jq gave something else: %.*s", (int)(answer.len < 200 ? answer.len : 200), (const char *)answer.data);
		if (i >= WARM_UP_RUNS)
			samples[i - WARM_UP_RUNS] = us;
		*argument_bytes = evaluation.request.len;
		arena_close(&round);
	}
	buffer_close(&in);
	jq_stop(&jq);
	return code == 0 ? STATUS_OK : command_fail(command, STATUS_ERROR, NULL, "%s", error.message);
}

static const char *plain_tasks(struct arena *arena, const char *name, size_t count)
{
	struct buffer text;
	buffer_init(&text, DEFINITION_SOURCE_MAX);
	buffer_printf(&text, "{\"document\":{\"dsl\":\"1.0.3\",\"namespace\":\"bench\",\"name\":\"%s\",\"version\":\"1.0.0\"},\"do\":[", name);
	for (size_t i = 0; i < count; i++)
		buffer_printf(&text, "%s{\"t%zu\":{\"set\":{\"order\":\"${ .order }\",\"total\":\"${ $workflow.input.order.total }\",\"large\":\"${ .order.total > %zu }\"}}}", i > 0 ? "," : "", i, i);
	buffer_add_text(&text, "]}");
	const char *kept = arena_text(arena, buffer_text(&text));
	buffer_close(&text);
	return kept;
}

static const char *jq_tasks(struct arena *arena, const char *name, size_t count)
{
	struct buffer text;
	buffer_init(&text, DEFINITION_SOURCE_MAX);
	buffer_printf(&text, "{\"document\":{\"dsl\":\"1.0.3\",\"namespace\":\"bench\",\"name\":\"%s\",\"version\":\"1.0.0\"},\"do\":[", name);
	for (size_t i = 0; i < count; i++)
		buffer_printf(&text, "%s{\"t%zu\":{\"set\":{\"order\":\"${ .order + {step: %zu, text: (.order.items | map(.sku) | join(\\\"-\\\"))} }\"}}}", i > 0 ? "," : "", i, i);
	buffer_add_text(&text, "]}");
	const char *kept = arena_text(arena, buffer_text(&text));
	buffer_close(&text);
	return kept;
}

/* The time of one decision over `tasks` plain `set` tasks, each a step of three expressions, an output and its digest: per step. */
static int measure_decisions(struct bench *bench, size_t tasks, double *samples, size_t count)
{
	struct command *command = bench->command;
	struct problems problems;
	struct state state;
	problems_init(&problems);
	struct definition *definition = definition_load(bytes_text(plain_tasks(&command->arena, "steps", tasks)), TEXT_JSON, &problems);
	problems_close(&problems);
	CHECK(definition != NULL);
	CHECK(definition->expression_count == 0);
	state_init(&state, definition);
	struct trigger trigger = {.kind = TRIGGER_SUBMITTED, .wall_ms = 1790000000000, .run_id = "bench",
				  .input = BYTES_OF("{\"order\":{\"id\":\"A-17\",\"items\":[{\"sku\":\"SKU-1\"},{\"sku\":\"SKU-2\"}],\"total\":123.5}}")};
	const struct decide_context context = {.origin = "bench.example/log", .daemon_version = REPRISE_VERSION};
	for (size_t i = 0; i < count + WARM_UP_RUNS; i++) {
		struct decision decision;
		decision_init(&decision);
		uint64_t start_us = clock_us();
		workflow_decide(&state, &trigger, 1, &context, &decision);
		double us = (double)(clock_us() - start_us) / (double)tasks;
		CHECK(decision.entry_count == tasks + 2);
		decision_close(&decision);
		if (i >= WARM_UP_RUNS)
			samples[i - WARM_UP_RUNS] = us;
	}
	state_close(&state);
	definition_free(definition);
	return STATUS_OK;
}

static int measure_registrations(struct bench *bench, bool needs_jq, size_t expressions, double *samples, size_t count)
{
	struct arena *arena = &bench->command->arena;
	for (size_t i = 0; i < count; i++) {
		const char *name = arena_printf(arena, "%s-%zu", needs_jq ? "jq" : "plain", i);
		const char *text = needs_jq ? jq_tasks(arena, name, expressions) : plain_tasks(arena, name, expressions);
		uint64_t start_us = clock_us();
		int status = register_definition(bench, text);
		samples[i] = (double)(clock_us() - start_us) / 1000;
		if (status != STATUS_OK)
			return status;
	}
	return STATUS_OK;
}

int command_bench_expressions(struct command *command)
{
	enum { EVALUATIONS = 3000, LARGE_EVALUATIONS = 200, DECISIONS = 300, STEPS = 200, REGISTRATIONS = 20, PLAIN_TASKS = 200, JQ_EXPRESSIONS = 100 };
	struct arena *arena = &command->arena;
	struct bench bench = {.command = command};
	double *trip = arena_zero(arena, EVALUATIONS * sizeof *trip), *small = arena_zero(arena, EVALUATIONS * sizeof *small), *large = arena_zero(arena, LARGE_EVALUATIONS * sizeof *large);
	double *steps = arena_zero(arena, DECISIONS * sizeof *steps), plain[REGISTRATIONS], jq[REGISTRATIONS];
	double resident = 0, private = 0;
	size_t small_bytes = 0, large_bytes = 0;
	int status;
	if ((status = make_folder(&bench)) != STATUS_OK || (status = measure_evaluations(&bench, round_trip, 20, trip, EVALUATIONS, &small_bytes)) != STATUS_OK ||
	    (status = measure_evaluations(&bench, sum, 20, small, EVALUATIONS, &small_bytes)) != STATUS_OK ||
	    (status = measure_evaluations(&bench, sum, 1750, large, LARGE_EVALUATIONS, &large_bytes)) != STATUS_OK || (status = measure_decisions(&bench, STEPS, steps, DECISIONS)) != STATUS_OK ||
	    (status = start_daemon(&bench, NULL)) != STATUS_OK || (status = measure_registrations(&bench, false, PLAIN_TASKS, plain, REGISTRATIONS)) != STATUS_OK ||
	    (status = measure_registrations(&bench, true, JQ_EXPRESSIONS, jq, REGISTRATIONS)) != STATUS_OK)
		goto done;
	read_memory(bench.daemon.pid, &resident, &private);
	double first_jq_ms = jq[0];
	struct json *result = json_object(arena);
	json_set_text(arena, result, "machine", describe_machine(arena));
	json_set_number(arena, result, "requestBytes", (double)small_bytes);
	json_set(arena, result, "roundTripUs", percentiles_json(arena, trip, EVALUATIONS));
	json_set(arena, result, "evaluationUs", percentiles_json(arena, small, EVALUATIONS));
	json_set_number(arena, result, "largeRequestBytes", (double)large_bytes);
	json_set(arena, result, "largeEvaluationUs", percentiles_json(arena, large, LARGE_EVALUATIONS));
	json_set(arena, result, "stepUs", percentiles_json(arena, steps, DECISIONS));
	json_set(arena, result, "registerPlainMs", percentiles_json(arena, plain, REGISTRATIONS));
	json_set_number(arena, result, "registerFirstJqMs", rounded(first_jq_ms));
	json_set(arena, result, "registerJqMs", percentiles_json(arena, jq, REGISTRATIONS));
	json_set_number(arena, result, "readyMs", rounded(bench.daemon.ready_ms));
	json_set_number(arena, result, "rssMiB", rounded(resident / 1048576));
	if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL) {
		output_json(&command->output, result);
	} else {
		output_line(&command->output, "machine    %s", json_get_text(result, "machine"));
		print_percentiles(command, arena_printf(arena, "jq and back, %zu bytes, us", small_bytes), json_get(result, "roundTripUs"));
		print_percentiles(command, arena_printf(arena, "sum over 20 items, %zu bytes, us", small_bytes), json_get(result, "evaluationUs"));
		print_percentiles(command, arena_printf(arena, "sum over 1,750, %zu bytes, us", large_bytes), json_get(result, "largeEvaluationUs"));
		print_percentiles(command, "decision step of plain paths, us", json_get(result, "stepUs"));
		print_percentiles(command, arena_printf(arena, "registration, %d plain tasks, ms", PLAIN_TASKS), json_get(result, "registerPlainMs"));
		print_percentiles(command, arena_printf(arena, "registration, %d jq tasks, ms", JQ_EXPRESSIONS), json_get(result, "registerJqMs"));
		output_line(&command->output, "the first of them %.1f ms: it starts the helpers; the daemon afterwards: %.1f MiB resident", first_jq_ms, resident / 1048576);
	}
done:
	close_bench(&bench);
	return status;
}

/* --- bench recovery ----------------------------------------------------------------------------------------------- */

#define SLEEPER_DEFINITION \
	"{\"document\":{\"dsl\":\"1.0.3\",\"namespace\":\"bench\",\"name\":\"sleeper\",\"version\":\"1.0.0\"},\"do\":[{\"rest\":{\"wait\":{\"days\":1}}}]}"

/* How many runs the daemon has read again since its start. */
static int count_recovered(struct bench *bench, double *count)
{
	static const char name[] = "\nreprise_runs_recovered ";
	struct request request = {.method = "GET", .path = "/metrics"};
	struct reply reply;
	struct error error;
	if (client_send(&bench->client, &request, &reply, &error) != 0)
		return command_fail(bench->command, STATUS_ERROR, NULL, "%s", error.message);
	char *text = arena_text_len(&bench->command->arena, (const char *)reply.body.data, reply.body.len);
	const char *found = strstr(text, name);
	*count = found != NULL ? strtod(found + sizeof name - 1, NULL) : 0;
	reply_close(&reply);
	return STATUS_OK;
}

/* Runs that sleep for a day, or with --in-flight wait for an answer that does not come; a daemon that is killed, and what the next start takes: until
 * it serves, until it has cancelled one of them, and, of those in flight, until it has read all. Each is known, and can be cancelled, from the first on. */
int command_bench_recovery(struct command *command)
{
	struct arena *arena = &command->arena;
	struct bench bench = {.command = command};
	struct flood flood = {.bench = &bench};
	bool in_flight = command_flag(command, "in-flight");
	const char *workflow = in_flight ? "inference" : "sleeper", *url = NULL;
	uint64_t runs = RECOVERY_RUNS_DEFAULT;
	int status = command_number(command, "runs", RUNS_MAX, &runs);
	if (status != STATUS_OK || (status = check_flood(command, runs)) != STATUS_OK)
		return status;
	if ((status = make_folder(&bench)) != STATUS_OK || (in_flight && (status = start_sim(&bench, RECOVERY_HANGS_MS, &url)) != STATUS_OK) ||
	    (status = start_daemon(&bench, url)) != STATUS_OK || (status = register_definition(&bench, in_flight ? INFERENCE_DEFINITION : SLEEPER_DEFINITION)) != STATUS_OK)
		goto done;

	double resident[3], private[3];
	struct json *run = NULL, *answer = NULL;
	struct request first = {.method = "POST", .path = "/v1/runs", .body = bytes_text(arena_printf(arena, "{\"definition\":\"bench/%s:1.0.0\",\"input\":{},\"id\":\"first\"}", workflow))};
	read_memory(bench.daemon.pid, &resident[0], &private[0]);
	open_flood(&flood, "/v1/runs", arena_printf(arena, "{\"definition\":\"bench/%s:1.0.0\",\"input\":{}}", workflow));
	start_flood(&flood);
	uint64_t start_us = clock_us();
	status = bench_send(&bench, &first, &run);
	if (status == STATUS_OK)
		status = flood_to(&flood, runs, runs);
	double seconds = (double)(clock_us() - start_us) / 1e6;
	if ((status = close_flood(&flood, status)) != STATUS_OK)
		goto done;
	sleep_ms(IDLE_BEFORE_MEMORY_MS);
	read_memory(bench.daemon.pid, &resident[1], &private[1]);

	client_close(&bench.client);
	bench.client_is_open = false;
	kill(bench.daemon.pid, SIGKILL);
	stop_process(&bench.daemon);
	start_us = clock_us();
	if ((status = start_daemon(&bench, url)) != STATUS_OK)
		goto done;
	struct request cancel = {.method = "POST", .path = "/v1/runs/first/cancel", .body = bytes_text("{}")};
	if ((status = bench_send(&bench, &cancel, &answer)) != STATUS_OK)
		goto done;
	double cancelled_ms = (double)(clock_us() - start_us) / 1000, recovered = 0;
	while (in_flight && recovered < (double)runs + 1) {
		if ((status = count_recovered(&bench, &recovered)) != STATUS_OK)
			goto done;
		if (clock_us() - start_us > RECOVERY_WITHIN_S * 1000000ULL) {
			status = command_fail(command, STATUS_ERROR, NULL, "only %.0f of %llu runs were read again within %d s", recovered, (unsigned long long)runs + 1, RECOVERY_WITHIN_S);
			goto done;
		}
		sleep_ms(RECOVERY_LOOK_MS);
	}
	double read_ms = (double)(clock_us() - start_us) / 1000;
	sleep_ms(IDLE_BEFORE_MEMORY_MS);
	read_memory(bench.daemon.pid, &resident[2], &private[2]);

	struct json *result = json_object(arena);
	json_set_text(arena, result, "machine", describe_machine(arena));
	json_set_number(arena, result, "runs", (double)runs + 1);
	json_set_number(arena, result, "submitSeconds", rounded(seconds));
	json_set_number(arena, result, "readyMs", rounded(bench.daemon.ready_ms));
	json_set_number(arena, result, "cancelledMs", rounded(cancelled_ms));
	json_set_boolean(arena, result, "inFlight", in_flight);
	if (in_flight)
		json_set_number(arena, result, "readMs", rounded(read_ms));
	json_set_number(arena, result, "residentMiB", rounded(resident[1] / 1048576));
	json_set_number(arena, result, "recoveredResidentMiB", rounded(resident[2] / 1048576));
	json_set_number(arena, result, "bytesPerRun", rounded((resident[1] - resident[0]) / (double)runs));
	if (command->output.format == FORMAT_JSON || command->output.format == FORMAT_JSONL) {
		output_json(&command->output, result);
	} else {
		output_line(&command->output, "machine    %s", json_get_text(result, "machine"));
		output_line(&command->output, "runs       %llu that %s, submitted in %.1f s", (unsigned long long)runs + 1, in_flight ? "wait for an answer" : "sleep for a day", seconds);
		output_line(&command->output, "memory     %.1f MiB resident, %.0f bytes a run; %.1f MiB after the restart", resident[1] / 1048576, (resident[1] - resident[0]) / (double)runs,
			    resident[2] / 1048576);
		output_line(&command->output, "restart    killed; ready after %.0f ms, and had cancelled one of them after %.0f ms", bench.daemon.ready_ms, cancelled_ms);
		if (in_flight)
			output_line(&command->output, "read       all of them again after %.0f ms", read_ms);
	}
done:
	close_bench(&bench);
	return status;
}
