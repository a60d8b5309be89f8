/* See configuration.h. Start at configuration_new(). */
#include "activities/configuration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "workflow/base/check.h"

enum { PROC_LINE_LEN_MAX = 512 };

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

/* ---- The record ---- */

/* What a record has of every kind of runtime, known or not (runtimes.md 10). Kinds report further fields. */
static const char *const places[] = {
	"A.runtime_kind", "A.runtime_version", "A.runtime_commit", "A.server", "A.simulated", "A.image_digest", "A.binary_sha256",
	"B.model_id", "B.served_name", "B.weights_digest", "B.revision", "B.quantisation", "B.arch", "B.chat_template_sha256",
	"B.generation_config_sha256", "B.adapters",
	"C.argv", "C.env", "C.context_length", "C.parallel", "C.batch_sizes", "C.cache_flags", "C.speculation", "C.determinism_switch", "C.kernels",
	"C.structured_backend", "C.sampling_defaults",
	"D.os", "D.kernel", "D.wsl", "D.cpu_model", "D.thread_count", "D.memory_bytes", "D.gpu", "D.gpu_count", "D.gpu_driver", "D.cuda",
	"E.system_fingerprint",
};

struct writer {
	struct arena *arena;
	struct json *record;
};

static void set_field(struct writer *writer, const char *place, struct json *value, const char *basis, const char *source)
{
	char group[2] = {place[0], '\0'};
	struct json *fields = json_get(writer->record, group), *field = json_object(writer->arena);

	if (fields == NULL) {
		fields = json_object(writer->arena);
		json_set(writer->arena, writer->record, group, fields);
	}
	json_set(writer->arena, field, "value", value != NULL ? value : json_null(writer->arena));
	json_set_text(writer->arena, field, "basis", value != NULL ? basis : "unknown");
	json_set(writer->arena, field, "source", value != NULL ? json_text(writer->arena, source) : json_null(writer->arena));
	json_set(writer->arena, fields, place + 2, field);
}

/* value NULL: nothing is learned. What is in force beats what was asked for, and what was measured what was said; where they
 * differ the weaker one stays beside it, under its basis. So the fields come in the order declared, reported, measured. */
static void add(struct writer *writer, const char *place, struct json *value, const char *basis, const char *source)
{
	char group[2] = {place[0], '\0'};
	const struct json *weaker = json_get(json_get(writer->record, group), place + 2);
	const char *weaker_basis = json_get_text(weaker, "basis");

	if (value == NULL)
		return;
	set_field(writer, place, value, basis, source);
	if (weaker != NULL && strcmp(weaker_basis, "unknown") != 0 && strcmp(weaker_basis, basis) != 0 &&
	    !json_equal(json_get(weaker, "value"), value))
		json_set(writer->arena, json_get(json_get(writer->record, group), place + 2), weaker_basis, json_get(weaker, "value"));
}

static void add_text(struct writer *writer, const char *place, const char *value, const char *basis, const char *source)
{
	if (value != NULL && value[0] != '\0')
		add(writer, place, json_text(writer->arena, value), basis, source);
}

static void add_digest(struct writer *writer, const char *place, bool known, const struct digest *digest, const char *basis, const char *source)
{
	char hex[DIGEST_HEX_LEN + 1];

	if (!known)
		return;
	digest_hex(digest, hex);
	add_text(writer, place, hex, basis, source);
}

static void add_declared(struct writer *writer, const struct runtime_config *config, const char *model)
{
	add_text(writer, "A.runtime_kind", config->kind, "declared", "configuration");
	add_text(writer, "B.model_id", model, "declared", "configuration");
	if (config->context_length > 0)
		add(writer, "C.context_length", json_number(writer->arena, config->context_length), "declared", "configuration");
}

/* {group: {field: {value, source, basis}}}; basis: of those that do not say their own. */
static void add_fields(struct writer *writer, const struct json *groups, const char *basis)
{
	for (size_t i = 0; i < json_count(groups); i++) {
		const struct json_member *group = &groups->object.members[i];

		for (size_t j = 0; j < json_count(group->value); j++) {
			const struct json_member *field = &group->value->object.members[j];
			const char *own = json_get_text(field->value, "basis");
			char place[80];

			snprintf(place, sizeof(place), "%s.%.70s", group->name, field->name);
			add(writer, place, json_copy(writer->arena, json_get(field->value, "value")),
			    own != NULL ? own : basis, json_get_text(field->value, "source"));
		}
	}
}

/* What its command line tells of single fields; C.argv and C.env hold it whole. */
static void add_launched(struct writer *writer, const struct json *launched, const struct launch_flag *flags)
{
	const struct json *c = json_get(launched, "C"), *told;

	add_fields(writer, launched, NULL);
	if (c == NULL)
		return;
	add_text(writer, "A.image_digest", launch_image_digest(writer->arena, json_get(json_get(c, "argv"), "value")), "launched", "launch.argv");
	told = launch_read_flags(writer->arena, flags, json_get(json_get(c, "argv"), "value"), json_get(json_get(c, "env"), "value"));
	for (size_t i = 0; i < json_count(told); i++)
		add(writer, told->object.members[i].name, told->object.members[i].value, "launched", "launch.argv, launch.env");
}

static void add_reported(struct writer *writer, const struct runtime_facts *facts, const char *server, bool simulated, const struct json *card)
{
	add_text(writer, "A.server", server, "reported", "Server header");
	add(writer, "A.simulated", json_boolean(writer->arena, simulated), "reported", "Server header");
	if (card != NULL) {
		const struct json *length = json_get(card, "contextLength");

		set_field(writer, "B.model_id", json_copy(writer->arena, json_get(card, "id")), "reported", "list of models");
		add_text(writer, "B.served_name", json_get_text(card, "root"), "reported", "list of models");
		if (length != NULL)
			add(writer, "C.context_length", json_number(writer->arena, length->number), "reported", "list of models");
	}
	add_fields(writer, facts->fields, "reported");
}

/* By the measure of which texts the weights were quantised: two files of one name and size may differ in nothing else. */
static void add_imatrix(struct writer *writer, const struct weights_header *header)
{
	struct json *imatrix = json_object(writer->arena);

	if (header->imatrix_file[0] != '\0')
		json_set_text(writer->arena, imatrix, "file", header->imatrix_file);
	if (header->imatrix_dataset[0] != '\0')
		json_set_text(writer->arena, imatrix, "dataset", header->imatrix_dataset);
	if (header->imatrix_entries >= 0)
		json_set_number(writer->arena, imatrix, "entries", (double)header->imatrix_entries);
	if (header->imatrix_chunks >= 0)
		json_set_number(writer->arena, imatrix, "chunks", (double)header->imatrix_chunks);
	if (json_count(imatrix) > 0)
		add(writer, "B.imatrix", imatrix, "measured", header->source);
}

/* Measured are the files; that the runtime serves just these is the operator's word. */
static void add_weights(struct writer *writer, const struct weights *weights)
{
	const struct weights_header *header = &weights->header;

	if (!weights->known)
		return;
	add_digest(writer, "B.weights_digest", true, &weights->digest, "measured", "weights of the configuration");
	if (header->source == NULL)
		return;
	add_text(writer, "B.arch", header->arch, "measured", header->source);
	add_text(writer, "B.quantisation", header->quantisation, "measured", header->source);
	if (header->quantisation_version >= 0)
		add(writer, "B.quantisation_version", json_number(writer->arena, (double)header->quantisation_version), "measured", header->source);
	add_imatrix(writer, header);
	add_digest(writer, "B.chat_template_sha256", header->has_chat_template, &header->chat_template, "measured", header->source);
	add_digest(writer, "B.generation_config_sha256", header->has_generation_config, &header->generation_config, "measured", header->source);
}

static void add_host(struct writer *writer, const struct host *host)
{
	if (host == NULL)
		return;
	add_text(writer, "D.os", host->os, "measured", "/etc/os-release");
	add_text(writer, "D.kernel", host->kernel, "measured", "uname");
	add(writer, "D.wsl", json_boolean(writer->arena, host->wsl), "measured", "uname");
	add_text(writer, "D.cpu_model", host->cpu, "measured", "/proc/cpuinfo");
	if (host->threads > 0)
		add(writer, "D.thread_count", json_number(writer->arena, host->threads), "measured", "/proc/cpuinfo");
	/* A 64-bit integer, hence a text (semantics.md 6). */
	if (host->memory_bytes > 0)
		add(writer, "D.memory_bytes", json_printf(writer->arena, "%llu", (unsigned long long)host->memory_bytes), "measured", "/proc/meminfo");
}

static const char *text_or_null(const char *text)
{
	return text[0] != '\0' ? text : NULL;
}

static void add_gpus(struct writer *writer, const struct gpus *gpus)
{
	struct json *list = json_array(writer->arena);

	if (gpus == NULL || !gpus->known)
		return;
	for (unsigned i = 0; i < gpus->count && i < GPUS_MAX; i++) {
		const struct gpu *gpu = &gpus->list[i];
		struct json *item = json_object(writer->arena);

		json_set_text(writer->arena, item, "uuid", text_or_null(gpu->uuid));
		json_set_text(writer->arena, item, "name", text_or_null(gpu->name));
		json_set_text(writer->arena, item, "compute_cap", text_or_null(gpu->compute_capability));
		json_add(writer->arena, list, item);
	}
	add(writer, "D.gpu", list, "measured", "NVML");
	add(writer, "D.gpu_count", json_number(writer->arena, gpus->count), "measured", "NVML");
	add_text(writer, "D.gpu_driver", gpus->driver, "measured", "NVML");
	add_text(writer, "D.cuda", gpus->cuda, "measured", "NVML");
}

static void set_fingerprint(struct writer *writer, const char *fingerprint)
{
	set_field(writer, "E.system_fingerprint", fingerprint != NULL && fingerprint[0] != '\0' ? json_text(writer->arena, fingerprint) : NULL,
		  "reported", "system_fingerprint of an answer");
}

/* Of groups A to E: what was observed beside them (G) does not make another configuration. */
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

		if (group->name[0] > 'E')
			continue;
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

static const char *value_text(const struct configuration *configuration, const char *group, const char *field)
{
	return json_get_text(json_get(json_get(configuration->record, group), field), "value");
}

/* What the record is asked for again and again. */
static void take_values(struct configuration *configuration)
{
	const struct json *fingerprint = json_get(json_get(json_get(configuration->record, "C"), "fingerprint"), "value");
	const char *mode = json_get_text(fingerprint, "mode");

	configuration->version = value_text(configuration, "A", "runtime_version");
	configuration->fingerprint = value_text(configuration, "E", "system_fingerprint");
	configuration->launch_fingerprint = mode != NULL && strcmp(mode, "custom") == 0 ? json_get_text(fingerprint, "value") : NULL;
	configuration->weight_version = value_text(configuration, "B", "weight_version");
	configuration->context_length = json_get_number(json_get(json_get(configuration->record, "C"), "context_length"), "value", 0);
	configuration->cache_off = !json_get_boolean(json_get(json_get(json_get(configuration->record, "C"), "cache_flags"), "value"), "cache_prompt", true);
	configuration->digest = digest_values(configuration->record);
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
	card = models_find(input->facts->models, model);
	configuration->server = keep(configuration, input->facts->server);
	configuration->model = keep(configuration, model);
	configuration->model_reported = card != NULL;
	configuration->simulated = is_simulator(input->facts->server);
	configuration->is_remote = input->facts->is_remote;
	if (!configuration->is_remote)
		configuration->weights = *input->weights;
	configuration->card = card != NULL ? json_copy(&configuration->arena, card) : NULL;

	configuration->record = writer.record = json_object(&configuration->arena);
	for (size_t i = 0; i < COUNT_OF(places); i++)
		set_field(&writer, places[i], NULL, NULL, NULL);
	add_declared(&writer, input->config, model);
	add_launched(&writer, input->launched, input->adapter->flags);
	add_reported(&writer, input->facts, configuration->server, configuration->simulated, card);
	add_weights(&writer, &configuration->weights);
	add_host(&writer, input->host);
	if (input->host != NULL)
		add_gpus(&writer, input->gpus);
	set_fingerprint(&writer, input->fingerprint);
	if (input->ignored != NULL)
		set_field(&writer, "G.ignored_parameters", json_copy(writer.arena, input->ignored), "measured",
			  runtime_adapter_get(input->config->kind)->finds_ignored ? "values of their own, which were not told as in force" : "values of a wrong type, which were taken without a word");
	take_values(configuration);
	return configuration;
}

struct configuration *configuration_with_fingerprint(const struct configuration *from, const char *fingerprint)
{
	struct configuration *configuration = make();
	struct writer writer = {.arena = &configuration->arena};

	configuration->record = writer.record = json_copy(&configuration->arena, from->record);
	configuration->server = keep(configuration, from->server);
	configuration->model = keep(configuration, from->model);
	configuration->model_reported = from->model_reported;
	configuration->simulated = from->simulated;
	configuration->is_remote = from->is_remote;
	configuration->weights = from->weights;
	configuration->rungs = from->rungs;
	configuration->card = from->card != NULL ? json_copy(&configuration->arena, from->card) : NULL;
	set_fingerprint(&writer, fingerprint);
	take_values(configuration);
	return configuration;
}

/* ---- Two records ---- */

static const struct json *field_of(const struct json *record, const char *group, const char *name)
{
	return json_get(json_get(record, group), name);
}

static void add_difference(struct arena *arena, struct json *list, const char *group, const char *name, const struct json *before,
			   const struct json *after)
{
	const struct json *old = json_get(before, "value"), *new = json_get(after, "value");
	struct json *item, *basis;

	if (group[0] > 'E' || (old == NULL && new == NULL) || (old != NULL && new != NULL && json_equal(old, new)) ||
	    (old == NULL && new->type == JSON_NULL) || (new == NULL && old->type == JSON_NULL))
		return;
	item = json_object(arena);
	basis = json_object(arena);
	json_set(arena, item, "field", json_printf(arena, "%s.%s", group, name));
	json_set(arena, item, "old", old != NULL ? json_copy(arena, old) : json_null(arena));
	json_set(arena, item, "new", new != NULL ? json_copy(arena, new) : json_null(arena));
	json_set_text(arena, basis, "old", before != NULL ? json_get_text(before, "basis") : "unknown");
	json_set_text(arena, basis, "new", after != NULL ? json_get_text(after, "basis") : "unknown");
	json_set(arena, item, "basis", basis);
	json_add(arena, list, item);
}

static int compare_fields(const void *a, const void *b)
{
	return strcmp(json_get_text(*(struct json *const *)a, "field"), json_get_text(*(struct json *const *)b, "field"));
}

struct json *configuration_differences(struct arena *arena, const struct json *before, const struct json *after)
{
	struct json *list = json_array(arena);

	for (size_t i = 0; i < json_count(before); i++) {
		const struct json_member *group = &before->object.members[i];

		for (size_t j = 0; j < json_count(group->value); j++) {
			const struct json_member *field = &group->value->object.members[j];

			add_difference(arena, list, group->name, field->name, field->value, field_of(after, group->name, field->name));
		}
	}
	for (size_t i = 0; i < json_count(after); i++) {
		const struct json_member *group = &after->object.members[i];

		for (size_t j = 0; j < json_count(group->value); j++) {
			const struct json_member *field = &group->value->object.members[j];

			if (field_of(before, group->name, field->name) == NULL)
				add_difference(arena, list, group->name, field->name, NULL, field->value);
		}
	}
	/* As the records themselves are shown: by group, then by name. */
	if (json_count(list) > 0)
		qsort(list->array.items, list->array.count, sizeof *list->array.items, compare_fields);
	return list;
}

static bool is_declared(const struct json *difference, const char *side)
{
	const char *basis = json_get_text(json_get(difference, "basis"), side);

	return basis != NULL && strcmp(basis, "declared") == 0;
}

bool configuration_contradicts(const struct json *differences, struct buffer *words)
{
	bool found = false;

	for (size_t i = 0; i < json_count(differences); i++) {
		const struct json *item = json_at(differences, i);

		/* Of what was only asked for it may turn out that something else is in force. */
		if (json_get(item, "old")->type == JSON_NULL || is_declared(item, "old") > is_declared(item, "new"))
			continue;
		buffer_printf(words, "%s%s ", found ? ", " : "", json_get_text(item, "field"));
		json_print(json_get(item, "old"), words);
		buffer_add_text(words, " -> ");
		json_print(json_get(item, "new"), words);
		found = true;
	}
	return found;
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
