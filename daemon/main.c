/* reprised: what happens from the first line to the last. Each step is one function; a step that fails ends the start with one
 * message and status 1. */
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/check_journal.h"
#include "daemon/daemon.h"
#include "daemon/memory.h"
#include "daemon/start.h"
#include "workflow/base/check.h"
#include "workflow/base/fail_point.h"
#include "workflow/base/log.h"
#include "workflow/base/time.h"

static const char usage[] =
	"reprised - durable workflow daemon\n"
	"\n"
	"usage: reprised [options]\n"
	"\n"
	"  --config FILE       configuration (default $REPRISE_CONFIG,\n"
	"                      ~/.config/reprise/reprise.yaml, /etc/reprise/reprise.yaml)\n"
	"  --data DIR          journal and keys (default $REPRISE_DATA,\n"
	"                      ~/.local/state/reprise, as root /var/lib/reprise)\n"
	"  --listen ADDRESS    unix:PATH (default unix:DATA/reprise.sock); may come\n"
	"                      several times\n"
	"  --drain D           on SIGTERM let running activities finish until D (30s, 5m)\n"
	"                      has passed (default: interrupt them, the next start tries\n"
	"                      them again)\n"
	"  --check             check configuration and journal, change nothing, exit\n"
	"  --log text|json     form of the log on standard error (default: text on a\n"
	"                      terminal, JSON lines elsewhere)\n"
	"  --log-level LEVEL   debug, info (default), warn or error\n"
	"  --version, --help\n"
	"\n"
	"example: reprised --data /tmp/reprise --config reprise.yaml\n";

struct options {
	struct config_options config;
	int64_t drain_ms;
	bool check;
	int log_json; /* see log_init() */
	enum log_level log_level;
};

/* 0: go on. Else the exit status, one more: everything was said. */
static int read_options(int count, char **arguments, struct options *options)
{
	static const char *const levels[] = {"debug", "info", "warn", "error"};
	struct error error;

	*options = (struct options){.log_json = -1, .log_level = LOG_INFO};
	for (int i = 1; i < count; i++) {
		const char *name = arguments[i], *value = i + 1 < count ? arguments[i + 1] : NULL;
		if (strcmp(name, "--help") == 0 || strcmp(name, "--version") == 0) {
			fputs(strcmp(name, "--help") == 0 ? usage : "reprised " REPRISE_VERSION "\n", stdout);
			return 1;
		}
#ifdef REPRISE_FAIL_POINTS
		if (strcmp(name, "--fail-points") == 0) {
			fail_points_print(stdout);
			return 1;
		}
#endif
		if (strcmp(name, "--check") == 0) {
			options->check = true;
			continue;
		}
		if (strcmp(name, "--config") != 0 && strcmp(name, "--data") != 0 && strcmp(name, "--listen") != 0 && strcmp(name, "--drain") != 0 &&
		    strcmp(name, "--log") != 0 && strcmp(name, "--log-level") != 0) {
			fprintf(stderr, "reprised: unknown option %s; reprised --help shows those there are\n", name);
			return 3;
		}
		if (!value || !*value) {
			fprintf(stderr, "reprised: %s needs a value; see reprised --help\n", name);
			return 3;
		}
		i++;
		if (strcmp(name, "--config") == 0) {
			options->config.file = value;
		} else if (strcmp(name, "--data") == 0) {
			options->config.data_dir = value;
		} else if (strcmp(name, "--listen") == 0) {
			if (options->config.listen_count == CONFIG_LISTEN_MAX) {
				fprintf(stderr, "reprised: more than %d times --listen\n", CONFIG_LISTEN_MAX);
				return 3;
			}
			options->config.listen[options->config.listen_count++] = value;
		} else if (strcmp(name, "--drain") == 0) {
			if (duration_parse(value, &options->drain_ms, &error) != 0) {
				fprintf(stderr, "reprised: --drain: %s\n", error.message);
				return 3;
			}
			if (options->drain_ms > DRAIN_MAX_MS) {
				fprintf(stderr, "reprised: --drain %s: at most 24h (DRAIN_MAX_MS)\n", value);
				return 3;
			}
		} else if (strcmp(name, "--log") == 0) {
			options->log_json = strcmp(value, "json") == 0;
			if (options->log_json == 0 && strcmp(value, "text") != 0) {
				fprintf(stderr, "reprised: --log %s: text or json\n", value);
				return 3;
			}
		} else {
			size_t level = 0;
			while (level < COUNT_OF(levels) && strcmp(levels[level], value) != 0)
				level++;
			if (level == COUNT_OF(levels)) {
				fprintf(stderr, "reprised: --log-level %s: debug, info, warn or error\n", value);
				return 3;
			}
			options->log_level = (enum log_level)level;
		}
	}
	return 0;
}

static bool load_config(struct daemon *daemon, const struct config_options *options)
{
	struct problems problems;
	struct error error = {0};

	problems_init(&problems);
	int code = config_load(&daemon->config, options, &problems, &error);
	for (size_t i = 0; i < problems.count; i++) {
		const struct problem *problem = &problems.items[i];
		fprintf(stderr, "%s:%zu:%zu: %s%s%s%s\n", daemon->config.file, problem->line, problem->column, problem->message, problem->hint ? " (" : "",
			problem->hint ? problem->hint : "", problem->hint ? ")" : "");
	}
	problems_close(&problems);
	if (code != 0)
		fprintf(stderr, "reprised: %s\n", error.message);
	return code == 0;
}

static int check(const struct config *config)
{
	struct store_options options = {.data_dir = config->data_dir, .fact_key_file = config->fact_key_file, .log_key_file = config->log_key_file,
					 .now_us = clock_now_us, .wall_ms = clock_wall_ms};
	struct error error;

	printf("configuration %s: good\n", config->file ? config->file : "(none, defaults)");
	if (check_journal(&options, stdout, &error) == 0)
		return 0;
	fprintf(stderr, "reprised: %s\n", error.message);
	return 1;
}

static void prepare_process(void)
{
	struct rlimit limit;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of a write, not the end */
	umask(077);
	/* Each client and each runtime connection takes a descriptor; the soft limit of a shell is often 1,024. */
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	prctl(PR_SET_TIMERSLACK, 1UL); /* the default of 50 µs would go into every wait of a run */
	CHECK(sodium_init() >= 0);
}

static void say_ready(const struct daemon *daemon)
{
	printf("reprised ready in %llu ms on unix:%s (journal %s, %llu open run%s)\n", (unsigned long long)((clock_now_us() - daemon->started_us) / 1000),
	       daemon->config.listen[0], daemon->config.data_dir, (unsigned long long)daemon->open_at_start, daemon->open_at_start == 1 ? "" : "s");
	fflush(stdout);
	notify_supervisor("READY=1");
}

/* Whoever starts us may have closed 0, 1 or 2: the next file or socket would get that number, and the log's lines with it. */
static void hold_standard_descriptors(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			CHECK(open("/dev/null", O_RDWR) == fd);
}

int main(int count, char **arguments)
{
	static struct daemon daemon_state;
	struct daemon *daemon = &daemon_state;
	struct options options;
	struct error error = {0};
	int said;

	hold_standard_descriptors();
	memory_give_to_libuv();
	daemon->started_us = clock_now_us();
	if (count >= 3 && strcmp(arguments[1], "--run-child") == 0)
		return simulator_become(arguments + 2);
	if ((said = read_options(count, arguments, &options)) != 0)
		return said - 1;
#ifdef REPRISE_FAIL_POINTS
	if (fail_points_arm(getenv("REPRISE_FAIL_POINT"), &error) != 0) {
		fprintf(stderr, "reprised: %s\n", error.message);
		return 3;
	}
	fail_point_arm_run(getenv("REPRISE_FAIL_RUN"));
#endif
	prepare_process();
	log_init(options.log_level, options.log_json);
	if (!load_config(daemon, &options.config)) {
		config_close(&daemon->config);
		return 1;
	}
	if (options.check) {
		int status = check(&daemon->config);
		config_close(&daemon->config);
		return status;
	}
	daemon->drain_ms = options.drain_ms;

	if (start_launchers(daemon, &error) != 0 || start_loop(daemon, &error) != 0) {
		fprintf(stderr, "reprised: %s\n", error.message);
		config_close(&daemon->config);
		return 1;
	}
	if (start_journal(daemon, &error) != 0 || /* the lock is held from here on */
	    start_simulators(daemon, &error) != 0 || /* before anybody needs their addresses */
	    start_engine(daemon, &error) != 0 || /* built-in definitions, activities, open runs */
	    start_server(daemon, &error) != 0) { /* last: who can connect finds everything ready */
		fprintf(stderr, "reprised: %s\n", error.message);
		daemon->exit_status = 1;
	} else {
		daemon->stage = DAEMON_SERVING;
		say_ready(daemon);
		if (daemon->stop_asked)
			shutdown_begin(daemon, "a signal during the start", daemon->drain_ms);
		uv_run(&daemon->loop, UV_RUN_DEFAULT); /* shutdown.c ends it */
	}
	return stop_all(daemon);
}
