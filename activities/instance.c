/* See instance.h. In this order: processes; sockets that listen; who owns them; words. Start at instance_measure(). */
#include "activities/instance.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "workflow/base/check.h"
#include "workflow/base/time.h"

enum { STAT_MAX = 4096, CHUNK = 16 << 10, PATH_LEN_MAX = 300, MS_PER_S = 1000, NS_PER_MS = 1000 * 1000, TCP_LISTENS = 0x0A };

/* ---- Processes ---- */

bool process_read_ticks(pid_t pid, char ticks[PROCESS_TICKS_LEN_MAX + 1])
{
	char path[64], text[STAT_MAX], *at, *place;
	ssize_t len;
	int fd, field = 3;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = pid > 1 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (len <= 0)
		return false;
	text[len] = '\0';
	at = strrchr(text, ')'); /* the name before it may hold anything */
	if (at == NULL)
		return false;
	for (at = strtok_r(at + 1, " ", &place); at != NULL; at = strtok_r(NULL, " ", &place), field++) {
		if (field == 3 && (*at == 'Z' || *at == 'X'))
			return false;
		if (field == 22) {
			snprintf(ticks, PROCESS_TICKS_LEN_MAX + 1, "%s", at);
			return true;
		}
	}
	return false;
}

int64_t process_started_ms(const char *ticks, int64_t now_ms)
{
	struct timespec boot;
	int64_t age_ms;

	CHECK(clock_gettime(CLOCK_BOOTTIME, &boot) == 0);
	age_ms = (int64_t)boot.tv_sec * MS_PER_S + boot.tv_nsec / NS_PER_MS - (int64_t)(strtod(ticks, NULL) * MS_PER_S / (double)sysconf(_SC_CLK_TCK));
	return now_ms - (age_ms > 0 ? age_ms : 0);
}

/* ---- Sockets that listen ---- */

struct wanted {
	unsigned port;
	bool any4, any6; /* which kinds of addresses the host may mean */
	uint32_t address4; /* as the kernel prints it; 0: any of the loopback's */
};

/* The kernel prints an address as it lies in memory, in words of 32 bits. */
static bool is_address(const struct wanted *wanted, const char *hex, bool is_v6)
{
	unsigned words[4] = {0};
	size_t count = is_v6 ? 4 : 1;

	for (size_t i = 0; i < count; i++)
		if (sscanf(hex + 8 * i, "%8x", &words[i]) != 1)
			return false;
	if (!is_v6) {
		uint32_t address = words[0];
		if (!wanted->any4)
			return false;
		return address == 0 || (wanted->address4 != 0 ? address == wanted->address4 : ntohl(address) >> 24 == 127);
	}
	if (words[0] == 0 && words[1] == 0 && words[2] == 0 && words[3] == 0)
		return true; /* "::" takes connections of both */
	return wanted->any6 && words[0] == 0 && words[1] == 0 && words[2] == 0 && ntohl(words[3]) == 1;
}

static void read_line(const char *line, const struct wanted *wanted, bool is_v6, struct listener *listener)
{
	char address[33];
	unsigned port, state;
	uint64_t socket;
	size_t at;

	if (sscanf(line, " %*u: %32[0-9A-F]:%x %*32[0-9A-F]:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %" SCNu64, address, &port, &state, &socket) != 4)
		return;
	if (state != TCP_LISTENS || port != wanted->port || strlen(address) != (is_v6 ? 32 : 8) || !is_address(wanted, address, is_v6) ||
	    listener->socket_count == INSTANCE_SOCKETS_MAX)
		return;
	for (at = listener->socket_count++; at > 0 && listener->sockets[at - 1] > socket; at--)
		listener->sockets[at] = listener->sockets[at - 1];
	listener->sockets[at] = socket;
}

static void read_table(const char *path, const struct wanted *wanted, bool is_v6, struct listener *listener)
{
	char *buffer = memory_alloc(CHUNK + 1);
	size_t kept = 0, total = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len;

	while (fd >= 0 && total < INSTANCE_TABLE_MAX && (len = read(fd, buffer + kept, CHUNK - kept)) > 0) {
		char *line = buffer, *end;

		total += (size_t)len;
		kept += (size_t)len;
		buffer[kept] = '\0';
		while ((end = strchr(line, '\n')) != NULL) {
			*end = '\0';
			read_line(line, wanted, is_v6, listener);
			line = end + 1;
		}
		kept -= (size_t)(line - buffer);
		memmove(buffer, line, kept);
		if (kept == CHUNK) /* no table of the kernel's */
			break;
	}
	if (fd >= 0)
		close(fd);
	free(buffer);
}

static void find_sockets(const char *host, unsigned port, struct listener *listener)
{
	struct wanted wanted = {.port = port, .any4 = true, .any6 = true};
	struct in_addr address;

	if (inet_pton(AF_INET, host, &address) == 1) {
		wanted.any6 = false;
		wanted.address4 = address.s_addr;
	} else if (strchr(host, ':') != NULL) {
		wanted.any4 = false;
	}
	read_table("/proc/net/tcp", &wanted, false, listener);
	read_table("/proc/net/tcp6", &wanted, true, listener);
}

/* ---- Who owns them ---- */

struct owner {
	pid_t pid; /* the one that started first of those who have the socket: the others inherited it; 0: nobody was seen */
	double ticks;
	char text[PROCESS_TICKS_LEN_MAX + 1];
};

struct search {
	const struct listener *listener;
	const struct instance_limits *limits;
	struct owner owners[INSTANCE_SOCKETS_MAX];
	size_t processes, files;
	bool is_cut; /* there are more */
};

static void note_owner(struct search *search, uint64_t socket, pid_t pid)
{
	char ticks[PROCESS_TICKS_LEN_MAX + 1];

	for (size_t i = 0; i < search->listener->socket_count; i++) {
		struct owner *owner = &search->owners[i];

		if (search->listener->sockets[i] != socket || owner->pid == pid || !process_read_ticks(pid, ticks))
			continue;
		double began = strtod(ticks, NULL);
		if (owner->pid != 0 && (owner->ticks < began || (owner->ticks == began && owner->pid < pid)))
			continue;
		owner->pid = pid;
		owner->ticks = began;
		memcpy(owner->text, ticks, sizeof(ticks));
	}
}

static void look_at_process(struct search *search, const char *pid)
{
	char path[PATH_LEN_MAX], target[64];
	struct dirent *entry;
	uint64_t socket;
	ssize_t len;
	DIR *files;

	snprintf(path, sizeof(path), "/proc/%.32s/fd", pid);
	files = opendir(path); /* somebody else's: not for us to see */
	while (files != NULL && (entry = readdir(files)) != NULL) {
		if (search->files == search->limits->files) {
			search->is_cut = true;
			break;
		}
		search->files++;
		len = readlinkat(dirfd(files), entry->d_name, target, sizeof(target) - 1);
		if (len <= 0)
			continue;
		target[len] = '\0';
		if (sscanf(target, "socket:[%" SCNu64 "]", &socket) == 1)
			note_owner(search, socket, (pid_t)strtol(pid, NULL, 10));
	}
	if (files != NULL)
		closedir(files);
}

/* Past a limit nobody is named: who started first may be among those that were not looked at. */
static void find_owner(struct listener *listener, const struct instance_limits *limits)
{
	struct search search = {.listener = listener, .limits = limits};
	const struct owner *found = NULL;
	DIR *processes = opendir("/proc");
	struct dirent *entry;

	while (processes != NULL && (entry = readdir(processes)) != NULL && !search.is_cut) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		search.is_cut = search.processes++ == limits->processes;
		if (!search.is_cut)
			look_at_process(&search, entry->d_name);
	}
	if (processes != NULL)
		closedir(processes);
	if (search.is_cut)
		return;
	for (size_t i = 0; i < listener->socket_count; i++) {
		const struct owner *owner = &search.owners[i];

		if (owner->pid == 0)
			continue;
		if (found != NULL && found->pid != owner->pid) {
			listener->why_not = "several processes listen at the address";
			return;
		}
		found = owner;
	}
	if (found == NULL)
		return; /* its socket has to do: a process that starts anew has another one */
	listener->pid = found->pid;
	memcpy(listener->ticks, found->text, sizeof(listener->ticks));
}

void instance_measure_within(const char *host, unsigned port, const struct instance_limits *limits, struct listener *listener)
{
	struct listener now = {0};
	char ticks[PROCESS_TICKS_LEN_MAX + 1];

	find_sockets(host, port, &now);
	if (now.socket_count == 0) {
		now.why_not = "no process of this machine, or of this container, is seen to listen at the address";
	} else if (listener->pid != 0 && listener->socket_count == now.socket_count &&
		   memcmp(listener->sockets, now.sockets, now.socket_count * sizeof(now.sockets[0])) == 0 && process_read_ticks(listener->pid, ticks) &&
		   strcmp(ticks, listener->ticks) == 0) {
		return; /* as before */
	} else {
		find_owner(&now, limits);
	}
	*listener = now;
}

void instance_measure(const char *host, unsigned port, struct listener *listener)
{
	static const struct instance_limits limits = {INSTANCE_PROCESSES_MAX, INSTANCE_FILES_MAX};

	instance_measure_within(host, port, &limits, listener);
}

/* ---- Words ---- */

void instance_is_unknown(struct runtime_instance *instance, const char *why)
{
	*instance = (struct runtime_instance){.basis = "unknown", .source = why};
}

void instance_from_process(struct runtime_instance *instance, pid_t pid, const char *ticks, int64_t started_ms)
{
	*instance = (struct runtime_instance){.basis = "launched", .source = "the process that the daemon launched", .started_ms = started_ms};
	snprintf(instance->id, sizeof(instance->id), "%d-%s", (int)pid, ticks);
}

void instance_from_listener(struct runtime_instance *instance, const struct listener *listener, int64_t now_ms)
{
	size_t len;

	if (listener->why_not != NULL || listener->socket_count == 0) {
		instance_is_unknown(instance, listener->why_not != NULL ? listener->why_not : "nobody looked yet");
		return;
	}
	*instance = (struct runtime_instance){.basis = "measured"};
	if (listener->pid != 0) {
		snprintf(instance->id, sizeof(instance->id), "%d-%s", (int)listener->pid, listener->ticks);
		instance->source = "the process that listens at the address";
		instance->started_ms = process_started_ms(listener->ticks, now_ms);
		return;
	}
	instance->source = "the socket that listens at the address; its process may not be seen";
	len = (size_t)snprintf(instance->id, sizeof(instance->id), "socket");
	for (size_t i = 0; i < listener->socket_count; i++)
		len += (size_t)snprintf(instance->id + len, sizeof(instance->id) - len, "-%" PRIu64, listener->sockets[i]);
	static_assert(6 + INSTANCE_SOCKETS_MAX * 21 <= INSTANCE_ID_LEN_MAX, "all sockets fit");
}

void instance_add_model(struct runtime_instance *instance, const char *name, int64_t loaded_ms)
{
	size_t len = strlen(instance->id);
	char time[TIME_TEXT_LEN + 1];

	if (name != NULL && name[0] != '\0') {
		bool is_known = len > 0;
		char *at = instance->id + len;
		snprintf(at, sizeof(instance->id) - len, "%s%.*s", is_known ? "/" : "", (int)INSTANCE_NAME_LEN_MAX, name);
		while (!utf8_valid(bytes_text(at), NULL)) /* cut within a character */
			at[strlen(at) - 1] = '\0';
		instance->basis = "reported"; /* the weakest of what it is made of */
		instance->source = is_known ? "the process at the address, and the runtime's name of what it has loaded" :
					      "the runtime's name of what it has loaded";
		len = strlen(instance->id);
	}
	/* Without a process nothing would tell the next one from it. */
	if (loaded_ms <= instance->started_ms || len == 0)
		return;
	time_text(loaded_ms, time);
	snprintf(instance->id + len, sizeof(instance->id) - len, "@%s", time);
}

struct json *instance_json(struct arena *arena, const struct runtime_instance *instance)
{
	struct json *json = json_object(arena);
	char time[TIME_TEXT_LEN + 1];

	json_set_text(arena, json, "id", instance->id[0] != '\0' ? instance->id : NULL);
	json_set_text(arena, json, "basis", instance->basis != NULL ? instance->basis : "unknown");
	json_set_text(arena, json, "source", instance->source != NULL ? instance->source : "nobody looked yet");
	if (instance->started_ms > 0) {
		time_text(instance->started_ms, time);
		json_set_text(arena, json, "startedOn", time);
	}
	return json;
}
