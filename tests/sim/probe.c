/* The fake probes. Start at probe_run(). */
#include "tests/sim/probe.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/file.h"
#include "tests/sim/process.h"
#include "workflow/base/check.h"
#include "workflow/base/json.h"

enum { PATH_BYTES_MAX = 4096, STATUS_NO_DRIVER = 9, STATUS_NO_FIELD = 2, TOTAL_MIB = 24576, MIB = 1024 * 1024 };

#define LUID "luid_0x00000000_0x0000C83F_phys_0"
#define OTHER_LUID "luid_0x00000000_0x0000D1A2_phys_0" /* an adapter that nobody uses */

enum mode { MODE_OK, MODE_NOT_AVAILABLE, MODE_SLOW, MODE_MALFORMED, MODE_FAILS, MODE_COUNT };

static const char *const mode_names[MODE_COUNT] = {"ok", "notAvailable", "slow", "malformed", "fails"};

struct probe {
	struct arena arena;
	const struct json *settings; /* NULL: all as by default */
	const char *path;            /* of the settings, beside which the calls are counted */
	enum mode mode;
	uint64_t used_mib, shared_bytes, pid;
};

/* ---- What is told ---- */

/* Each call is a process of its own: the length of a file says how many there were. */
static uint64_t count_call(const char *path)
{
	char name[PATH_BYTES_MAX + 8];
	off_t length = 1;
	int file;

	if (path == NULL)
		return 1;
	snprintf(name, sizeof(name), "%s.calls", path);
	file = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (file < 0)
		return 1;
	if (write(file, ".", 1) == 1)
		length = lseek(file, 0, SEEK_CUR);
	close(file);
	return length > 0 ? (uint64_t)length : 1;
}

/* One for all calls, or a list by call, the last one again and again. */
static const struct json *step_of(const struct json *value, uint64_t call)
{
	size_t count = json_count(value);

	if (!json_is(value, JSON_ARRAY))
		return value;
	return count == 0 ? NULL : json_at(value, call <= count ? (size_t)call - 1 : count - 1);
}

static int read_number(const struct json *settings, const char *name, uint64_t call, uint64_t *number, struct error *error)
{
	const struct json *value = step_of(json_get(settings, name), call);

	if (json_get(settings, name) == NULL)
		return 0;
	if (!json_is_integer(value) || value->number < 0 || json_count(json_get(settings, name)) > PROBE_STEPS_MAX)
		return error_set(error, ERR_INVALID, "/%s: must be a number from 0 on, or a list of 1 to %d", name, PROBE_STEPS_MAX);
	*number = (uint64_t)value->number;
	return 0;
}

static int read_mode(struct probe *probe, uint64_t call, struct error *error)
{
	const struct json *value = step_of(json_get(probe->settings, "mode"), call);

	if (json_get(probe->settings, "mode") == NULL)
		return 0;
	for (int i = 0; i < MODE_COUNT; i++) {
		if (json_is(value, JSON_STRING) && strcmp(value->string.text, mode_names[i]) == 0) {
			probe->mode = (enum mode)i;
			return 0;
		}
	}
	return error_set(error, ERR_INVALID, "/mode: must be ok, notAvailable, slow, malformed or fails, or a list of these");
}

static const struct json *read_json(struct arena *arena, const char *path, struct error *error)
{
	const struct json *json = NULL;
	struct buffer text;

	buffer_init(&text, PROBE_BYTES_MAX);
	if (file_read(path, &text, error) == 0)
		json = json_parse(arena, arena_bytes(arena, buffer_bytes(&text)), JSON_STRICT, NULL, error);
	buffer_close(&text);
	return json;
}

/* The settings, the simulator's own word on its memory if they name it, and what goes before both: a number for this call. */
static int read_settings(struct probe *probe, uint64_t call, struct error *error)
{
	const char *memory_path = getenv("REPRISE_SIM_MEMORY");
	const struct json *settings = probe->settings, *memory;

	if (settings != NULL && members_check(settings, "/", "mode slowMs memory usedMiB sharedBytes totalMiB name uuid driver computeCap ", error) != 0)
		return ERR_INVALID;
	if (json_get_text(settings, "memory") != NULL)
		memory_path = json_get_text(settings, "memory");
	if (memory_path != NULL) {
		memory = read_json(&probe->arena, memory_path, error);
		if (memory == NULL || read_number(memory, "usedMiB", 1, &probe->used_mib, error) != 0 ||
		    read_number(memory, "sharedBytes", 1, &probe->shared_bytes, error) != 0 || read_number(memory, "pid", 1, &probe->pid, error) != 0)
			return ERR_INVALID;
	}
	if (read_number(settings, "usedMiB", call, &probe->used_mib, error) != 0 ||
	    read_number(settings, "sharedBytes", call, &probe->shared_bytes, error) != 0)
		return ERR_INVALID;
	return read_mode(probe, call, error);
}

static const char *text_of(const struct probe *probe, const char *name, const char *fallback)
{
	return json_get_text(probe->settings, name) != NULL ? json_get_text(probe->settings, name) : fallback;
}

static uint64_t total_mib(const struct probe *probe)
{
	double total = json_get_number(probe->settings, "totalMiB", TOTAL_MIB);

	return total >= 0 && total < 0x1p53 ? (uint64_t)total : TOTAL_MIB;
}

/* ---- nvidia-smi ---- */

static const struct field {
	const char *name, *unit; /* unit NULL: none */
	const char *value;       /* NULL: print_value() knows */
} fields[] = {
	{"index", NULL, "0"}, {"count", NULL, "1"}, {"uuid", NULL, NULL}, {"gpu_uuid", NULL, NULL}, {"name", NULL, NULL}, {"driver_version", NULL, NULL},
	{"vbios_version", NULL, "95.02.18.80.01"}, {"pci.bus_id", NULL, "00000000:01:00.0"}, {"compute_cap", NULL, NULL},
	{"memory.total", "MiB", NULL}, {"memory.used", "MiB", NULL}, {"memory.free", "MiB", NULL}, {"memory.reserved", "MiB", "432"},
	{"utilization.gpu", "%", "7"}, {"temperature.gpu", NULL, "41"}, {"power.draw", "W", "35.20"}, {"clocks.sm", "MHz", "2520"},
	{"clocks.mem", "MHz", "10501"}, {"pstate", NULL, "P0"}, {"ecc.mode.current", NULL, "[N/A]"}, {"mig.mode.current", NULL, "[N/A]"},
	{"pid", NULL, NULL}, {"process_name", NULL, NULL}, {"used_gpu_memory", "MiB", NULL},
};
enum { GPU_FIELDS = 21 /* the others are of processes; gpu_uuid of both */ };

static void print_value(const struct probe *probe, const struct field *field, struct buffer *out)
{
	const char *name = field->name;
	uint64_t total = total_mib(probe);
	bool hidden = probe->mode == MODE_NOT_AVAILABLE && (strncmp(name, "memory.", 7) == 0 || strcmp(name, "used_gpu_memory") == 0);

	if (hidden)
		buffer_add_text(out, "[N/A]");
	else if (field->value != NULL)
		buffer_add_text(out, field->value);
	else if (strcmp(name, "uuid") == 0 || strcmp(name, "gpu_uuid") == 0)
		buffer_add_text(out, text_of(probe, "uuid", "GPU-00000000-0000-4000-8000-000000000001"));
	else if (strcmp(name, "name") == 0)
		buffer_add_text(out, text_of(probe, "name", "NVIDIA Simulated GPU"));
	else if (strcmp(name, "driver_version") == 0)
		buffer_add_text(out, text_of(probe, "driver", "580.65.06"));
	else if (strcmp(name, "compute_cap") == 0)
		buffer_add_text(out, text_of(probe, "computeCap", "8.9"));
	else if (strcmp(name, "process_name") == 0)
		buffer_add_text(out, "reprise-sim");
	else
		buffer_printf(out, "%" PRIu64, strcmp(name, "memory.total") == 0 ? total : strcmp(name, "pid") == 0 ? probe->pid :
			strcmp(name, "memory.free") == 0 ? (total > probe->used_mib ? total - probe->used_mib : 0) : probe->used_mib);
}

/* The fields of "a,b,c"; false when one is not known, which is told as the real program does. */
static bool find_fields(const char *list, bool of_processes, const struct field **found, size_t *count)
{
	*count = 0;
	for (const char *at = list; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
		size_t len = strcspn(at, ",");
		const struct field *field = NULL;

		while (len > 0 && *at == ' ') {
			at++;
			len--;
		}
		for (size_t i = 0; i < COUNT_OF(fields); i++) {
			bool fits = of_processes ? i >= GPU_FIELDS || strcmp(fields[i].name, "gpu_uuid") == 0 : i < GPU_FIELDS;

			if (fits && strlen(fields[i].name) == len && memcmp(fields[i].name, at, len) == 0)
				field = &fields[i];
		}
		if (field == NULL || *count == PROBE_FIELDS_MAX) {
			printf("Field \"%.*s\" is not a valid field to query.\n\n", (int)(len < 80 ? len : 80), at);
			return false;
		}
		found[(*count)++] = field;
	}
	return *count > 0;
}

static int print_query(const struct probe *probe, const char *list, bool of_processes, const char *format)
{
	const struct field *found[PROBE_FIELDS_MAX];
	bool header = strstr(format, "noheader") == NULL, units = strstr(format, "nounits") == NULL;
	struct buffer out;
	size_t count;

	if (!find_fields(list, of_processes, found, &count))
		return STATUS_NO_FIELD;
	buffer_init(&out, PROBE_BYTES_MAX);
	for (size_t i = 0; header && i < count; i++)
		buffer_printf(&out, found[i]->unit != NULL ? "%s%s [%s]" : "%s%s", i > 0 ? ", " : "", found[i]->name, found[i]->unit);
	if (header)
		buffer_add_char(&out, '\n');
	for (size_t i = 0; (!of_processes || probe->pid != 0) && i < count; i++) {
		size_t before;

		buffer_add_text(&out, i > 0 ? ", " : "");
		before = out.len;
		print_value(probe, found[i], &out);
		if (units && found[i]->unit != NULL && buffer_text(&out)[before] != '[')
			buffer_printf(&out, " %s", found[i]->unit);
		if (i + 1 == count)
			buffer_add_char(&out, '\n');
	}
	if (probe->mode == MODE_MALFORMED)
		out.len = out.len / 2; /* cut within a line, no line break */
	fwrite(out.data, 1, out.len, stdout);
	buffer_close(&out);
	return 0;
}

static int run_nvidia_smi(const struct probe *probe, int count, char **arguments)
{
	static const char gpu[] = "--query-gpu=", apps[] = "--query-compute-apps=", csv[] = "--format=";
	const char *query = NULL, *format = "";
	bool of_processes = false;

	if (probe->mode == MODE_FAILS) {
		puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is "
			"installed and running.\n");
		return STATUS_NO_DRIVER;
	}
	for (int i = 1; i < count; i++) {
		const char *argument = arguments[i];

		if (strcmp(argument, "--help-query-gpu") == 0) {
			for (size_t k = 0; k < GPU_FIELDS; k++)
				printf("\"%s\"\n", fields[k].name);
			return 0;
		}
		if (strncmp(argument, gpu, sizeof(gpu) - 1) == 0) {
			query = argument + sizeof(gpu) - 1;
			of_processes = false;
		} else if (strncmp(argument, apps, sizeof(apps) - 1) == 0) {
			query = argument + sizeof(apps) - 1;
			of_processes = true;
		} else if (strncmp(argument, csv, sizeof(csv) - 1) == 0) {
			format = argument + sizeof(csv) - 1;
		} else if (strcmp(argument, "-L") == 0) {
			printf("GPU 0: %s (UUID: %s)\n", text_of(probe, "name", "NVIDIA Simulated GPU"),
				text_of(probe, "uuid", "GPU-00000000-0000-4000-8000-000000000001"));
			return 0;
		}
	}
	if (query == NULL || strncmp(format, "csv", 3) != 0) {
		puts("The simulator knows --query-gpu=…, --query-compute-apps=…, both with --format=csv, --help-query-gpu and -L.");
		return 1;
	}
	return print_query(probe, query, of_processes, format);
}

/* ---- Windows' counters ---- */

/* A counter of the two sets that tell of memory; *value is that of our adapter. False: there is no such counter. */
static bool find_counter(const struct probe *probe, const char *path, bool *of_processes, uint64_t *value)
{
	bool shared = strstr(path, "Shared Usage") != NULL, dedicated = strstr(path, "Dedicated Usage") != NULL;
	bool committed = strstr(path, "Total Committed") != NULL;

	*of_processes = strstr(path, "GPU Process Memory") != NULL;
	*value = (shared || committed ? probe->shared_bytes : 0) + (dedicated || committed ? probe->used_mib * MIB : 0);
	return (*of_processes || strstr(path, "GPU Adapter Memory") != NULL) && (shared || dedicated || committed);
}

static void print_instance(const struct probe *probe, bool of_processes, char *text, size_t size)
{
	if (of_processes)
		snprintf(text, size, "pid_%" PRIu64 "_" LUID, probe->pid);
	else
		snprintf(text, size, LUID);
}

static void print_sample(uint64_t value, bool malformed)
{
	printf(malformed ? "\"01/01/2026 00:00:00.000\",\"%.2" PRIu64 : "\"01/01/2026 00:00:00.000\",\"%" PRIu64 ".000000\"", value);
}

/* One line of names, and one for each sample, a second apart (-si). */
static int run_typeperf(struct probe *probe, int count, char **arguments)
{
	const char *path = NULL, *set;
	long samples = 1, interval = 1;
	struct error error = {.code = ERR_NONE};
	bool of_processes;
	uint64_t value;
	char instance[128];

	for (int i = 1; i < count; i++) {
		if (arguments[i][0] == '\\')
			path = arguments[i];
		else if (strcmp(arguments[i], "-sc") == 0 && i + 1 < count)
			samples = strtol(arguments[++i], NULL, 10);
		else if (strcmp(arguments[i], "-si") == 0 && i + 1 < count)
			interval = strtol(arguments[++i], NULL, 10);
	}
	if (probe->mode == MODE_FAILS || probe->mode == MODE_NOT_AVAILABLE || path == NULL || !find_counter(probe, path, &of_processes, &value)) {
		fputs("Error:\r\nNo valid counters.\r\n", stdout);
		return 1;
	}
	if (samples < 1 || samples > PROBE_SAMPLES_MAX || interval < 0 || interval > 3600) {
		printf("Error:\r\nThe simulator takes 1 to %d samples.\r\n", PROBE_SAMPLES_MAX);
		return 1;
	}
	set = of_processes ? "GPU Process Memory" : "GPU Adapter Memory";
	print_instance(probe, of_processes, instance, sizeof(instance));
	printf("\r\n\"(PDH-CSV 4.0)\",\"\\\\SIM\\%s(%s)%s\"", set, instance, strrchr(path, '\\'));
	if (!of_processes)
		printf(",\"\\\\SIM\\%s(%s)%s\"", set, OTHER_LUID, strrchr(path, '\\'));
	fputs("\r\n", stdout);
	for (long i = 0; i < samples; i++) {
		if (i > 0) {
			sleep_ms((uint64_t)interval * 1000);
			if (read_settings(probe, count_call(probe->path), &error) != 0)
				break;
			find_counter(probe, path, &of_processes, &value);
		}
		print_sample(value, probe->mode == MODE_MALFORMED);
		fputs(probe->mode == MODE_MALFORMED || of_processes ? "\r\n" : ",\"0.000000\"\r\n", stdout);
		fflush(stdout);
	}
	fputs("Exiting, please wait...\r\nThe command completed successfully.\r\n\r\n", stdout);
	return 0;
}

/* Get-Counter … | % { $_.InstanceName + ',' + [int64]$_.CookedValue } */
static int run_powershell(const struct probe *probe, int count, char **arguments)
{
	bool of_processes;
	uint64_t value;
	char instance[128];

	if (probe->mode == MODE_FAILS || count < 2 || !find_counter(probe, arguments[count - 1], &of_processes, &value)) {
		fputs("Get-Counter : The specified object was not found on the computer.\r\n", stderr);
		return 1;
	}
	if (probe->mode == MODE_NOT_AVAILABLE)
		return 0;
	print_instance(probe, of_processes, instance, sizeof(instance));
	for (char *at = instance; *at != '\0'; at++)
		*at = *at >= 'A' && *at <= 'Z' ? (char)(*at - 'A' + 'a') : *at; /* Get-Counter's are in small letters */
	if (probe->mode == MODE_MALFORMED) {
		printf("%.20s", instance);
		return 0;
	}
	printf("%s,%" PRIu64 "\r\n", instance, value);
	if (!of_processes)
		puts("luid_0x00000000_0x0000d1a2_phys_0,0\r");
	return 0;
}

/* ---- Which one ---- */

static const char *base_name(const char *program)
{
	const char *slash = strrchr(program, '/');

	return slash != NULL ? slash + 1 : program;
}

bool probe_is_name(const char *program)
{
	const char *name = base_name(program);

	return strcmp(name, "nvidia-smi") == 0 || strcmp(name, "typeperf") == 0 || strcmp(name, "typeperf.exe") == 0 ||
		strcmp(name, "powershell.exe") == 0;
}

int probe_run(int count, char **arguments)
{
	const char *name = base_name(arguments[0]);
	struct probe probe = {.path = getenv("REPRISE_SIM_PROBE")};
	struct error error = {.code = ERR_NONE};
	double slow_ms;
	int status = 2;

	arena_init(&probe.arena);
	if (probe.path != NULL && strlen(probe.path) > PATH_BYTES_MAX - 8)
		error_set(&error, ERR_INVALID, "the path is too long");
	if (probe.path != NULL && error.code == ERR_NONE)
		probe.settings = read_json(&probe.arena, probe.path, &error);
	if (error.code != ERR_NONE || read_settings(&probe, count_call(probe.path), &error) != 0) {
		fprintf(stderr, "%s (simulated): REPRISE_SIM_PROBE: %s\n", name, error.message);
		goto end;
	}
	slow_ms = json_get_number(probe.settings, "slowMs", 5000);
	if (probe.mode == MODE_SLOW)
		sleep_ms(slow_ms < 0 ? 0 : slow_ms > PROBE_SLOW_MAX_MS ? PROBE_SLOW_MAX_MS : (uint64_t)slow_ms);
	if (strcmp(name, "nvidia-smi") == 0)
		status = run_nvidia_smi(&probe, count, arguments);
	else if (strcmp(name, "powershell.exe") == 0)
		status = run_powershell(&probe, count, arguments);
	else
		status = run_typeperf(&probe, count, arguments);
end:
	arena_close(&probe.arena);
	return status;
}
