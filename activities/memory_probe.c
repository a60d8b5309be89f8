/* See memory_probe.h. */
#include "activities/memory_probe.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "workflow/base/check.h"

enum { FILE_TEXT_MAX = 4096, PATH_TEXT_MAX = 512, CARDS_MAX = 16, FIELD_MAX = 64, NVML_NOT_SUPPORTED = 3 };

/* ---- Files ---- */

static int read_file(const char *path, char *text, size_t size, struct error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, size - 1);

	if (len < 0)
		error_set(error, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (len < 0)
		return (int)error->code;
	text[len] = '\0';
	return 0;
}

static int read_number(const char *path, double *value, struct error *error)
{
	char text[FILE_TEXT_MAX], *end;

	if (read_file(path, text, sizeof(text), error) != 0)
		return (int)error->code;
	errno = 0;
	*value = (double)strtoull(text, &end, 10);
	if (end == text || errno != 0)
		return error_set(error, ERR_CORRUPT, "%s holds no number", path);
	return 0;
}

/* ---- AMD ---- */

/* `device`: "card1", or a folder with such files; NULL: the first card that has them. */
static int read_amd(const char *device, const char *file, double *value, struct error *error)
{
	char path[PATH_TEXT_MAX];

	if (device != NULL) {
		snprintf(path, sizeof(path), device[0] == '/' ? "%s/%s" : "/sys/class/drm/%s/device/%s", device, file);
		return read_number(path, value, error);
	}
	for (int card = 0; card < CARDS_MAX; card++) {
		snprintf(path, sizeof(path), "/sys/class/drm/card%d/device/%s", card, file);
		if (access(path, R_OK) == 0)
			return read_number(path, value, error);
	}
	return error_set(error, ERR_NOT_FOUND, "no card under /sys/class/drm has %s", file);
}

/* ---- NVIDIA ---- */

typedef void *nvml_device;
/* Two generations of one call; the newer one tells `reserved` apart. */
struct nvml_memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};
struct nvml_memory {
	unsigned long long total, free, used;
};

static struct {
	uv_once_t once;
	uv_mutex_t lock;
	uv_cond_t left;
	uint64_t since_ns; /* somebody is within it since then; 0: nobody */
	bool ready;
	int (*init)(void);
	int (*by_index)(unsigned index, nvml_device *device);
	int (*by_uuid)(const char *uuid, nvml_device *device);
	int (*memory_v2)(nvml_device device, struct nvml_memory_v2 *memory); /* NULL: an older driver */
	int (*memory)(nvml_device device, struct nvml_memory *memory);
	const char *(*text)(int code);
	/* Of these some may be NULL. */
	int (*count)(unsigned *count);
	int (*uuid)(nvml_device device, char *text, unsigned size);
	int (*name)(nvml_device device, char *text, unsigned size);
	int (*capability)(nvml_device device, int *major, int *minor);
	int (*driver)(char *text, unsigned size);
	int (*cuda)(int *version);
	struct gpus gpus; /* by `lock` */
} nvml = {.once = UV_ONCE_INIT};

/* POSIX has dlsym() give functions this way. */
#define TAKE(field, name) (*(void **)&nvml.field = dlsym(library, name))

static int open_nvml(struct error *error)
{
	static const char *const names[] = {"libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"};
	void *library = NULL;
	int code;

	if (nvml.ready)
		return 0;
	for (size_t i = 0; i < COUNT_OF(names) && library == NULL; i++)
		library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
		return error_set(error, ERR_NOT_FOUND, "NVML is not there: no libnvidia-ml.so.1, neither with the system's libraries nor in /usr/lib/wsl/lib");
	TAKE(init, "nvmlInit_v2");
	TAKE(by_index, "nvmlDeviceGetHandleByIndex_v2");
	TAKE(by_uuid, "nvmlDeviceGetHandleByUUID");
	TAKE(memory_v2, "nvmlDeviceGetMemoryInfo_v2");
	TAKE(memory, "nvmlDeviceGetMemoryInfo");
	TAKE(text, "nvmlErrorString");
	TAKE(count, "nvmlDeviceGetCount_v2");
	TAKE(uuid, "nvmlDeviceGetUUID");
	TAKE(name, "nvmlDeviceGetName");
	TAKE(capability, "nvmlDeviceGetCudaComputeCapability");
	TAKE(driver, "nvmlSystemGetDriverVersion");
	TAKE(cuda, "nvmlSystemGetCudaDriverVersion_v2");
	if (nvml.init == NULL || nvml.by_index == NULL || nvml.by_uuid == NULL || nvml.memory == NULL || nvml.text == NULL) {
		dlclose(library);
		return error_set(error, ERR_UNSUPPORTED, "NVML lacks a function that every release has: is libnvidia-ml.so.1 the driver's own?");
	}
	code = nvml.init();
	if (code != 0) {
		error_set(error, ERR_IO, "NVML: nvmlInit: %s", nvml.text(code));
		dlclose(library);
		return ERR_IO;
	}
	nvml.ready = true; /* and stays open: closing it and opening it anew takes the driver some time */
	return 0;
}

static int read_nvml(const char *device_name, double *value, struct error *error)
{
	bool is_number = device_name == NULL || strspn(device_name, "0123456789") == strlen(device_name);
	struct nvml_memory_v2 newer = {.version = (unsigned)sizeof(newer) | 2U << 24};
	struct nvml_memory older = {0};
	unsigned long long used;
	nvml_device device;
	int code;

	if (open_nvml(error) != 0)
		return (int)error->code;
	code = is_number ? nvml.by_index(device_name != NULL ? (unsigned)atoi(device_name) : 0, &device) : nvml.by_uuid(device_name, &device);
	if (code != 0)
		return error_set(error, ERR_NOT_FOUND, "NVML: device %s: %s", device_name != NULL ? device_name : "0", nvml.text(code));
	code = nvml.memory_v2 != NULL ? nvml.memory_v2(device, &newer) : NVML_NOT_SUPPORTED;
	used = newer.used;
	if (code != 0) {
		code = nvml.memory(device, &older);
		used = older.used;
	}
	if (code != 0)
		return error_set(error, ERR_IO, "NVML: memory of device %s: %s", device_name != NULL ? device_name : "0", nvml.text(code));
	if (used == ~0ULL)
		return error_set(error, ERR_UNSUPPORTED, "NVML: memory of device %s: not available", device_name != NULL ? device_name : "0");
	*value = (double)used;
	return 0;
}

static void prepare_nvml(void)
{
	CHECK(uv_mutex_init(&nvml.lock) == 0);
	CHECK(uv_cond_init(&nvml.left) == 0);
}

/* One at a time. A driver that hangs keeps one thread of the pool, which others need too, and none of those who wait for it. False: `error`. */
static bool enter_nvml(int64_t within_ms, struct error *error)
{
	uint64_t within_ns = (uint64_t)within_ms * 1000000, now_ns = uv_hrtime(), until_ns = now_ns + within_ns;
	bool mine;

	uv_once(&nvml.once, prepare_nvml);
	uv_mutex_lock(&nvml.lock);
	while (nvml.since_ns != 0 && now_ns < until_ns && now_ns < nvml.since_ns + within_ns) {
		uv_cond_timedwait(&nvml.left, &nvml.lock, until_ns - now_ns);
		now_ns = uv_hrtime();
	}
	mine = nvml.since_ns == 0;
	if (mine)
		nvml.since_ns = now_ns;
	uv_mutex_unlock(&nvml.lock);
	return mine || error_set(error, ERR_TIMEOUT, "NVML does not return from another probe; see what the kernel's log says of the driver") == 0;
}

static void leave_nvml(void)
{
	uv_mutex_lock(&nvml.lock);
	nvml.since_ns = 0;
	uv_cond_signal(&nvml.left);
	uv_mutex_unlock(&nvml.lock);
}

static int read_nvml_alone(const struct watch_config *config, double *value, struct error *error)
{
	if (!enter_nvml(config->within_ms, error))
		return (int)error->code;
	read_nvml(config->device, value, error);
	leave_nvml();
	return (int)error->code;
}

/* A driver's texts become JSON: printable ASCII alone. */
static void make_printable(char *text)
{
	for (; *text != '\0'; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

static void describe_gpu(unsigned index, struct gpu *gpu)
{
	nvml_device device;
	int major, minor;

	if (nvml.by_index(index, &device) != 0)
		return;
	if (nvml.uuid == NULL || nvml.uuid(device, gpu->uuid, sizeof(gpu->uuid)) != 0)
		gpu->uuid[0] = '\0';
	if (nvml.name == NULL || nvml.name(device, gpu->name, sizeof(gpu->name)) != 0)
		gpu->name[0] = '\0';
	if (nvml.capability != NULL && nvml.capability(device, &major, &minor) == 0)
		snprintf(gpu->compute_capability, sizeof(gpu->compute_capability), "%d.%d", major, minor);
	make_printable(gpu->uuid);
	make_printable(gpu->name);
}

static int describe_gpus(struct gpus *gpus, struct error *error)
{
	int code, cuda;

	if (open_nvml(error) != 0)
		return (int)error->code;
	code = nvml.count != NULL ? nvml.count(&gpus->count) : NVML_NOT_SUPPORTED;
	if (code != 0)
		return error_set(error, ERR_IO, "NVML: how many devices there are: %s", nvml.text(code));
	for (unsigned i = 0; i < gpus->count && i < GPUS_MAX; i++)
		describe_gpu(i, &gpus->list[i]);
	if (nvml.driver == NULL || nvml.driver(gpus->driver, sizeof(gpus->driver)) != 0)
		gpus->driver[0] = '\0';
	make_printable(gpus->driver);
	if (nvml.cuda != NULL && nvml.cuda(&cuda) == 0) /* 12080 */
		snprintf(gpus->cuda, sizeof(gpus->cuda), "%d.%d", cuda / 1000, cuda % 1000 / 10);
	gpus->known = true;
	return 0;
}

int memory_probe_gpus(int64_t within_ms, struct gpus *gpus, struct error *error)
{
	*error = (struct error){0};
	uv_once(&nvml.once, prepare_nvml);
	uv_mutex_lock(&nvml.lock);
	*gpus = nvml.gpus;
	uv_mutex_unlock(&nvml.lock);
	if (gpus->known || !enter_nvml(within_ms, error))
		return (int)error->code;
	*gpus = (struct gpus){0};
	if (describe_gpus(gpus, error) != 0)
		*gpus = (struct gpus){0};
	uv_mutex_lock(&nvml.lock);
	nvml.gpus = *gpus;
	uv_mutex_unlock(&nvml.lock);
	leave_nvml();
	return (int)error->code;
}

/* ---- Processes ---- */

struct process {
	pid_t pid, parent, session;
	double pages;
	bool counts;
};

/* Fields 4 (parent), 6 (session) and 24 (resident pages). */
static bool read_process(pid_t pid, struct process *process)
{
	char path[64], text[FILE_TEXT_MAX], *at, *save;
	struct error error;
	int field = 3;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (read_file(path, text, sizeof(text), &error) != 0 || (at = strrchr(text, ')')) == NULL)
		return false;
	*process = (struct process){.pid = pid};
	for (at = strtok_r(at + 1, " ", &save); at != NULL; at = strtok_r(NULL, " ", &save), field++) {
		if (field == 4)
			process->parent = (pid_t)atoi(at);
		if (field == 6)
			process->session = (pid_t)atoi(at);
		if (field == 24) {
			process->pages = strtod(at, NULL);
			return true;
		}
	}
	return false;
}

/* Pages that processes share count for each of them. */
static int read_process_memory(pid_t pid, double *value, struct error *error)
{
	DIR *folder = opendir("/proc");
	struct process *processes;
	struct dirent *item;
	size_t count = 0;
	bool more = true;

	if (folder == NULL)
		return error_set(error, ERR_IO, "/proc: %s", strerror(errno));
	processes = memory_alloc(MEMORY_PROBE_PROCESSES_MAX * sizeof(*processes));
	while (count < MEMORY_PROBE_PROCESSES_MAX && (item = readdir(folder)) != NULL)
		if (atoi(item->d_name) > 0 && read_process((pid_t)atoi(item->d_name), &processes[count]))
			count++;
	closedir(folder);
	for (size_t i = 0; i < count; i++)
		processes[i].counts = processes[i].pid == pid || processes[i].session == pid;
	while (more) {
		more = false;
		for (size_t i = 0; i < count; i++)
			for (size_t j = 0; processes[i].counts && j < count; j++)
				if (!processes[j].counts && processes[j].parent == processes[i].pid)
					more = processes[j].counts = true;
	}
	*value = 0;
	for (size_t i = 0; i < count; i++)
		if (processes[i].counts)
			*value += processes[i].pages * (double)sysconf(_SC_PAGESIZE);
	free(processes);
	return 0;
}

static int read_cgroup_memory(pid_t pid, double *value, struct error *error)
{
	char path[PATH_TEXT_MAX], text[FILE_TEXT_MAX], *line;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	if (read_file(path, text, sizeof(text), error) != 0)
		return (int)error->code;
	line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
	if (line == NULL)
		return error_set(error, ERR_UNSUPPORTED, "process %d is in no control group of version 2", (int)pid);
	line += line == text ? 3 : 4;
	line[strcspn(line, "\n")] = '\0';
	snprintf(path, sizeof(path), "/sys/fs/cgroup%.400s/memory.current", line);
	return read_number(path, value, error);
}

int memory_probe_read(const struct watch_config *config, pid_t pid, double *value, struct error *error)
{
	int code = ERR_INTERNAL;

	*error = (struct error){0};
	*value = 0;
	switch (config->kind) {
	case WATCH_COMMAND:
		CHECK(config->kind != WATCH_COMMAND);
		break;
	case WATCH_NVIDIA:
		code = read_nvml_alone(config, value, error);
		break;
	case WATCH_AMD_VRAM:
		code = read_amd(config->device, "mem_info_vram_used", value, error);
		break;
	case WATCH_AMD_GTT:
		code = read_amd(config->device, "mem_info_gtt_used", value, error);
		break;
	case WATCH_PROCESS:
		code = pid == 0 ? 0 : read_process_memory(pid, value, error);
		break;
	case WATCH_CGROUP:
		code = pid == 0 ? 0 : read_cgroup_memory(pid, value, error);
		break;
	}
	return code;
}

/* ---- What a command has printed ---- */

static bool read_unit(const char *text, double *unit)
{
	static const struct {
		const char *text;
		double bytes;
	} units[] = {{"", 0}, {"B", 1}, {"bytes", 1}, {"KiB", 1024}, {"MiB", 1024.0 * 1024}, {"GiB", 1024.0 * 1024 * 1024}, {"TiB", 1024.0 * 1024 * 1024 * 1024},
		     {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};

	while (*text == ' ')
		text++;
	for (size_t i = 0; i < COUNT_OF(units); i++)
		if (strcmp(text, units[i].text) == 0) {
			if (units[i].bytes != 0)
				*unit = units[i].bytes;
			return true;
		}
	return false;
}

/* A field between commas; within quotes a comma is one of a number ("12,5"). */
static bool read_field(const char *from, size_t len, double unit, double *sum)
{
	char text[FIELD_MAX + 1], *end;
	double value;

	while (len > 0 && (*from == ' ' || *from == '\t' || *from == '"')) {
		from++;
		len--;
	}
	while (len > 0 && (from[len - 1] == ' ' || from[len - 1] == '\t' || from[len - 1] == '"' || from[len - 1] == '\r'))
		len--;
	if (len == 0 || len > FIELD_MAX || (*from != '-' && *from != '.' && (*from < '0' || *from > '9')))
		return false;
	memcpy(text, from, len);
	text[len] = '\0';
	if (strchr(text, ',') != NULL && strchr(text, '.') == NULL)
		*strchr(text, ',') = '.';
	value = strtod(text, &end);
	if (end == text || !isfinite(value) || !read_unit(end, &unit))
		return false;
	*sum += value * unit;
	return true;
}

/* Returns how many numbers counted. */
static unsigned read_line(const char *line, size_t len, double unit, double *sum)
{
	unsigned fields = 0, numbers = 0;
	size_t start = 0;
	double first = 0;
	bool quoted = false, first_counts = false;

	for (size_t i = 0; i <= len; i++) {
		if (i < len && line[i] == '"')
			quoted = !quoted;
		if (i < len && (line[i] != ',' || quoted))
			continue;
		if (fields++ == 0)
			first_counts = read_field(line + start, i - start, unit, &first);
		else
			numbers += read_field(line + start, i - start, unit, sum);
		start = i + 1;
	}
	if (fields == 1 && first_counts) {
		*sum += first;
		numbers = 1;
	}
	return numbers;
}

int memory_probe_parse(struct bytes text, double unit, double *value, struct error *error)
{
	const char *at = (const char *)text.data;
	size_t left = text.len;
	unsigned numbers = 0;

	*value = 0;
	if (at != NULL && (memmem(at, left, "[N/A]", 5) != NULL || memmem(at, left, "[Not Supported]", 15) != NULL || memmem(at, left, "[Unknown Error]", 15) != NULL))
		return error_set(error, ERR_UNSUPPORTED, "the command says that the value is not available");
	while (left > 0) {
		const char *end = memchr(at, '\n', left);
		size_t len = end != NULL ? (size_t)(end - at) : left;

		numbers += read_line(at, len, unit, value);
		at += len + (end != NULL);
		left -= len + (end != NULL);
	}
	if (numbers == 0)
		return error_set(error, ERR_CORRUPT, "the command printed no number");
	if (!isfinite(*value))
		return error_set(error, ERR_CORRUPT, "the command printed numbers that are too large");
	return 0;
}
