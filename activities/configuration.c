/* See configuration.h. Start at configuration_new(). */
#include "activities/configuration.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "workflow/base/check.h"

enum { PROC_LINE_LEN_MAX = 512, SECONDS_NS = 1000 * 1000 * 1000 };

static const char server_simulated[] = "reprise-sim";

/* ---- The host ---- */

/* Printable ASCII only: these texts become JSON. */
static void copy_text(char *to, size_t size, const char *from)
{
	size_t len = 0;

	while (from[len] != '\0' && from[len] != '\n' && len + 1 < size) {
		to[len] = from[len] >= ' ' && from[len] <= '~' ? from[len] : '?';
		len++;
	}
	to[len] = '\0';
}

static void read_cpu(struct host *host)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[PROC_LINE_LEN_MAX];

	if (file == NULL)
		return;
	while (fgets(line, sizeof(line), file) != NULL) {
		const char *colon = strchr(line, ':');

		if (strncmp(line, "processor", 9) == 0)
			host->threads++;
		else if (host->cpu[0] == '\0' && colon != NULL && colon[1] == ' ' &&
			 (strncmp(line, "model name", 10) == 0 || strncmp(line, "Model", 5) == 0))
			copy_text(host->cpu, sizeof(host->cpu), colon + 2);
	}
	fclose(file);
}

static void read_memory(struct host *host)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[PROC_LINE_LEN_MAX];
	unsigned long long kib;

	if (file == NULL)
		return;
	while (fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "MemTotal: %llu kB", &kib) == 1) {
			host->memory_bytes = (uint64_t)kib * 1024;
			break;
		}
	fclose(file);
}

static void read_os(struct host *host)
{
	FILE *file = fopen("/etc/os-release", "re");
	char line[PROC_LINE_LEN_MAX];

	if (file == NULL)
		return;
	while (fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, "PRETTY_NAME=\"", 13) == 0) {
			char *quote = strchr(line + 13, '"');

			if (quote != NULL)
				*quote = '\0';
			copy_text(host->os, sizeof(host->os), line + 13);
			break;
		}
	fclose(file);
}

void host_read(struct host *host)
{
	struct utsname names;

	*host = (struct host){.read = true};
	if (uname(&names) == 0) {
		snprintf(host->kernel, sizeof(host->kernel), "%.60s %.100s %.30s", names.sysname, names.release, names.machine);
		/* Both versions of WSL carry it in the kernel's release. */
		host->wsl = strcasestr(names.release, "microsoft") != NULL || access("/proc/sys/fs/binfmt_misc/WSLInterop", F_OK) == 0;
	}
	read_os(host);
	read_cpu(host);
	read_memory(host);
}

/* ---- Weights ---- */

static struct weights_identity identity_of(const struct stat *status)
{
	return (struct weights_identity){
		.size = status->st_size,
		.mtime_ns = (int64_t)status->st_mtim.tv_sec * SECONDS_NS + status->st_mtim.tv_nsec,
		.ctime_ns = (int64_t)status->st_ctim.tv_sec * SECONDS_NS + status->st_ctim.tv_nsec,
		.inode = status->st_ino,
		.device = status->st_dev,
	};
}

static bool same_identity(const struct weights_identity *a, const struct weights_identity *b)
{
	return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns && a->inode == b->inode &&
	       a->device == b->device;
}

bool weights_same(const char *path, const struct weights *weights)
{
	struct weights_identity identity;
	struct stat status;

	if (!weights->known || stat(path, &status) != 0)
		return false;
	identity = identity_of(&status);
	return same_identity(&identity, &weights->identity);
}

static int hash_file(int fd, const char *path, struct digest *digest, const atomic_bool *stop, struct error *error)
{
	uint8_t *chunk = memory_alloc(WEIGHTS_CHUNK);
	struct digest_stream stream;
	ssize_t got;
	int result = 0;

	digest_stream_init(&stream);
	while ((got = read(fd, chunk, WEIGHTS_CHUNK)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			result = error_set(error, ERR_IO, "weights file %s: %s", path, strerror(errno));
			break;
		}
		if (atomic_load(stop)) {
			result = error_set(error, ERR_CANCELLED, "weights file %s: stopped", path);
			break;
		}
		digest_stream_add(&stream, (struct bytes){chunk, (size_t)got});
	}
	*digest = digest_stream_finish(&stream);
	free(chunk);
	return result;
}

int weights_read(const char *path, struct weights *weights, const atomic_bool *stop, struct error *error)
{
	struct weights found = {.known = true};
	struct weights_identity after;
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	*error = (struct error){0};
	if (fd < 0 || fstat(fd, &status) != 0) {
		error_set(error, ERR_NOT_FOUND, "weights file %s: %s", path, strerror(errno));
		goto out;
	}
	if (!S_ISREG(status.st_mode)) {
		error_set(error, ERR_INVALID, "weights file %s: not a regular file", path);
		goto out;
	}
	found.identity = identity_of(&status);
	if (weights->known && same_identity(&found.identity, &weights->identity))
		goto out;
	if (hash_file(fd, path, &found.digest, stop, error) != 0)
		goto out;
	if (fstat(fd, &status) != 0) {
		error_set(error, ERR_IO, "weights file %s: %s", path, strerror(errno));
		goto out;
	}
	after = identity_of(&status);
	if (!same_identity(&found.identity, &after)) {
		error_set(error, ERR_BUSY, "weights file %s: changed while it was read", path);
		goto out;
	}
	*weights = found;
out:
	if (fd >= 0)
		close(fd);
	return (int)error->code;
}

/* ---- The record ---- */

struct writer {
	struct arena *arena;
	struct json *record, *group;
};

static void begin_group(struct writer *writer, const char *name)
{
	writer->group = json_object(writer->arena);
	json_set(writer->arena, writer->record, name, writer->group);
}

/* value NULL: unknown. */
static void add(struct writer *writer, const char *name, struct json *value, const char *basis, const char *source)
{
	struct json *field = json_object(writer->arena);

	json_set(writer->arena, field, "value", value != NULL ? value : json_null(writer->arena));
	json_set_text(writer->arena, field, "basis", value != NULL ? basis : "unknown");
	json_set(writer->arena, field, "source", value != NULL ? json_text(writer->arena, source) : json_null(writer->arena));
	json_set(writer->arena, writer->group, name, field);
}

static void add_text(struct writer *writer, const char *name, const char *value, const char *basis, const char *source)
{
	add(writer, name, value != NULL && value[0] != '\0' ? json_text(writer->arena, value) : NULL, basis, source);
}

static void add_unknown(struct writer *writer, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		add(writer, names[i], NULL, NULL, NULL);
}

static const struct json *find_model(const struct json *models, const char *id)
{
	for (size_t i = 0; i < json_count(models); i++)
		if (id != NULL && strcmp(json_get_text(json_at(models, i), "id"), id) == 0)
			return json_at(models, i);
	return NULL;
}

static void add_group_a(struct writer *writer, const struct configuration_input *input, const struct configuration *configuration)
{
	static const char *const unknown[] = {"runtime_commit", "image_digest", "binary_sha256"};

	begin_group(writer, "A");
	add_text(writer, "runtime_kind", input->config->kind, "declared", "configuration");
	add_text(writer, "runtime_version", configuration->version, "reported", input->facts->version_source);
	add_text(writer, "server", configuration->server, "reported", "Server header");
	add(writer, "simulated", json_boolean(writer->arena, configuration->simulated), "reported", "Server header");
	add_unknown(writer, unknown, COUNT_OF(unknown));
}

static void add_group_b(struct writer *writer, const struct configuration *configuration, const struct json *card)
{
	static const char *const unknown[] = {"revision", "quantisation", "arch", "chat_template_sha256", "generation_config_sha256", "adapters"};
	char hex[DIGEST_HEX_LEN + 1];

	begin_group(writer, "B");
	add_text(writer, "model_id", configuration->model, configuration->model_reported ? "reported" : "declared",
		 configuration->model_reported ? "GET /v1/models" : "configuration");
	add_text(writer, "served_name", json_get_text(card, "root"), "reported", "GET /v1/models");
	if (configuration->weights.known)
		digest_hex(&configuration->weights.digest, hex);
	/* Measured is the file; that the runtime serves just this file is the operator's word. */
	add_text(writer, "weights_digest", configuration->weights.known ? hex : NULL, "measured", "weights file of the configuration");
	add_unknown(writer, unknown, COUNT_OF(unknown));
}

static void add_group_c(struct writer *writer, const struct json *card)
{
	static const char *const unknown[] = {"argv", "env", "parallel", "batch_sizes", "cache_flags", "speculation", "determinism_switch",
					      "kernels", "structured_backend"};
	const struct json *length = json_get(card, "contextLength");

	begin_group(writer, "C");
	add(writer, "context_length", length != NULL ? json_number(writer->arena, length->number) : NULL, "reported", "GET /v1/models");
	add_unknown(writer, unknown, COUNT_OF(unknown));
}

static void add_group_d(struct writer *writer, const struct host *host)
{
	static const char *const unknown[] = {"gpu", "gpu_driver", "cuda"};
	bool here = host != NULL;

	begin_group(writer, "D");
	add_text(writer, "os", here ? host->os : NULL, "measured", "/etc/os-release");
	add_text(writer, "kernel", here ? host->kernel : NULL, "measured", "uname");
	add(writer, "wsl", here ? json_boolean(writer->arena, host->wsl) : NULL, "measured", "uname");
	add_text(writer, "cpu_model", here ? host->cpu : NULL, "measured", "/proc/cpuinfo");
	add(writer, "thread_count", here && host->threads > 0 ? json_number(writer->arena, host->threads) : NULL, "measured", "/proc/cpuinfo");
	/* A 64-bit integer, hence a text (semantics.md 6). */
	add(writer, "memory_bytes",
	    here && host->memory_bytes > 0 ? json_printf(writer->arena, "%llu", (unsigned long long)host->memory_bytes) : NULL, "measured",
	    "/proc/meminfo");
	add_unknown(writer, unknown, COUNT_OF(unknown));
}

static void add_group_e(struct writer *writer, const char *fingerprint)
{
	begin_group(writer, "E");
	add_text(writer, "system_fingerprint", fingerprint, "reported", "system_fingerprint of an answer");
}

static struct digest digest_values(const struct json *record)
{
	struct arena scratch;
	struct json *values;
	struct digest digest;

	arena_init(&scratch);
	values = json_object(&scratch);
	for (size_t i = 0; i < json_count(record); i++) {
		const struct json_member *group = &record->object.members[i];
		struct json *fields = json_object(&scratch);

		for (size_t j = 0; j < json_count(group->value); j++) {
			const struct json_member *field = &group->value->object.members[j];

			json_set(&scratch, fields, field->name, json_get(field->value, "value"));
		}
		json_set(&scratch, values, group->name, fields);
	}
	digest = json_digest(values);
	arena_close(&scratch);
	return digest;
}

static const char *keep(struct configuration *configuration, const char *text)
{
	return text != NULL ? arena_text(&configuration->arena, text) : NULL;
}

static bool is_simulator(const char *server)
{
	size_t len = sizeof(server_simulated) - 1;

	return server != NULL && strncmp(server, server_simulated, len) == 0 && (server[len] == '\0' || server[len] == '/' || server[len] == ' ');
}

static struct configuration *make(void)
{
	struct configuration *configuration = memory_zero(sizeof(*configuration));

	arena_init(&configuration->arena);
	list_init(&configuration->link);
	configuration->holders = 1;
	return configuration;
}

struct configuration *configuration_new(const struct configuration_input *input)
{
	struct configuration *configuration = make();
	struct writer writer = {.arena = &configuration->arena};
	const char *model = input->config->model;
	const struct json *card;

	/* A server with a single model is asked for that one. */
	if (model == NULL && json_count(input->facts->models) == 1)
		model = json_get_text(json_at(input->facts->models, 0), "id");
	card = find_model(input->facts->models, model);
	configuration->server = keep(configuration, input->facts->server);
	configuration->version = keep(configuration, input->facts->version);
	configuration->fingerprint = keep(configuration, input->fingerprint);
	configuration->model = keep(configuration, model);
	configuration->model_reported = card != NULL;
	configuration->simulated = is_simulator(input->facts->server);
	configuration->weights = *input->weights;

	configuration->record = writer.record = json_object(&configuration->arena);
	add_group_a(&writer, input, configuration);
	add_group_b(&writer, configuration, card);
	add_group_c(&writer, card);
	add_group_d(&writer, input->host);
	add_group_e(&writer, input->fingerprint);
	configuration->digest = digest_values(configuration->record);
	return configuration;
}

struct configuration *configuration_with_fingerprint(const struct configuration *from, const char *fingerprint)
{
	struct configuration *configuration = make();
	struct writer writer = {.arena = &configuration->arena};

	configuration->record = writer.record = json_copy(&configuration->arena, from->record);
	configuration->server = keep(configuration, from->server);
	configuration->version = keep(configuration, from->version);
	configuration->model = keep(configuration, from->model);
	configuration->model_reported = from->model_reported;
	configuration->simulated = from->simulated;
	configuration->weights = from->weights;
	configuration->rungs = from->rungs;
	configuration->fingerprint = keep(configuration, fingerprint);
	add_group_e(&writer, fingerprint);
	configuration->digest = digest_values(configuration->record);
	return configuration;
}

struct configuration *configuration_hold(struct configuration *configuration)
{
	configuration->holders++;
	return configuration;
}

void configuration_release(struct configuration *configuration)
{
	if (configuration == NULL || --configuration->holders > 0)
		return;
	CHECK(list_empty(&configuration->link));
	arena_close(&configuration->arena);
	free(configuration);
}
