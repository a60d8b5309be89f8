/* See weights.h. Start at weights_reading_go_on(). */
#include "activities/weights.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activities/gguf.h"
#include "workflow/base/check.h"
#include "workflow/base/json.h"

enum { SECONDS_NS = 1000 * 1000 * 1000, SHARD_DIGITS = 5 };

/* The files that belong together: base names, sorted, within one folder. */
struct file_set {
	struct arena arena;
	const char *folder; /* "" : names are whole paths */
	const char **names;
	size_t count;
	bool is_set; /* the digest is that of a list */
};

/* ---- Which files ---- */

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int list_folder(const char *path, struct file_set *set, struct error *error)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int result = 0;

	if (dir == NULL)
		return error_set(error, ERR_NOT_FOUND, "weights folder %s: %s", path, strerror(errno));
	set->folder = arena_printf(&set->arena, "%s/", path);
	set->is_set = true;
	while (result == 0 && (entry = readdir(dir)) != NULL) {
		struct stat status;

		if (entry->d_name[0] == '.' || fstatat(dirfd(dir), entry->d_name, &status, 0) != 0 || !S_ISREG(status.st_mode))
			continue;
		if (set->count == WEIGHTS_FILES_MAX) {
			result = error_set(error, ERR_TOO_LARGE, "weights folder %s: holds more than %d files (WEIGHTS_FILES_MAX)", path, WEIGHTS_FILES_MAX);
		} else if (!utf8_valid(bytes_text(entry->d_name), NULL)) {
			result = error_set(error, ERR_INVALID, "weights folder %s: holds a file whose name is not UTF-8", path);
		} else {
			set->names[set->count++] = arena_text(&set->arena, entry->d_name);
		}
	}
	closedir(dir);
	if (result == 0 && set->count == 0)
		return error_set(error, ERR_INVALID, "weights folder %s: holds no files", path);
	qsort(set->names, set->count, sizeof(*set->names), compare_names);
	return result;
}

/* "NAME-00001-of-00003.gguf" stands for its shards. */
static size_t shard_count(const char *path, size_t *prefix_len)
{
	size_t len = strlen(path), tail = strlen("-00001-of-00001.gguf");
	const char *at = path + len - tail;
	unsigned count;

	if (len < tail || strncmp(at, "-00001-of-", 10) != 0 || strspn(at + 10, "0123456789") != SHARD_DIGITS ||
	    strcmp(at + 10 + SHARD_DIGITS, ".gguf") != 0 || sscanf(at + 10, "%5u", &count) != 1)
		return 1;
	*prefix_len = len - tail;
	return count;
}

static int list_files(const char *path, bool folder, struct file_set *set, struct error *error)
{
	size_t prefix_len = 0, count;

	*set = (struct file_set){.folder = ""};
	arena_init(&set->arena);
	set->names = arena_alloc(&set->arena, WEIGHTS_FILES_MAX * sizeof(*set->names));
	if (folder)
		return list_folder(path, set, error);
	count = shard_count(path, &prefix_len);
	if (count == 0 || count > WEIGHTS_FILES_MAX)
		return error_set(error, ERR_TOO_LARGE, "weights file %s: names %zu shards; 1 to %d are possible (WEIGHTS_FILES_MAX)", path, count, WEIGHTS_FILES_MAX);
	set->is_set = count > 1;
	set->count = count;
	for (size_t i = 0; i < count; i++)
		set->names[i] = count == 1 ? path : arena_printf(&set->arena, "%.*s-%05zu-of-%05zu.gguf", (int)prefix_len, path, i + 1, count);
	return 0;
}

static const char *path_of_file(struct file_set *set, size_t index)
{
	return arena_printf(&set->arena, "%s%s", set->folder, set->names[index]);
}

/* ---- Identity ---- */

static void add_identity(struct weights_identity *sum, const struct stat *status)
{
	int64_t mtime_ns = (int64_t)status->st_mtim.tv_sec * SECONDS_NS + status->st_mtim.tv_nsec;
	int64_t ctime_ns = (int64_t)status->st_ctim.tv_sec * SECONDS_NS + status->st_ctim.tv_nsec;

	sum->size += status->st_size;
	sum->mtime_ns = mtime_ns > sum->mtime_ns ? mtime_ns : sum->mtime_ns;
	sum->ctime_ns = ctime_ns > sum->ctime_ns ? ctime_ns : sum->ctime_ns;
	sum->inode += (uint64_t)status->st_ino;
	sum->device = (uint64_t)status->st_dev;
}

static bool same_identity(const struct weights_identity *a, const struct weights_identity *b)
{
	return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns && a->inode == b->inode &&
	       a->device == b->device;
}

static int identify(struct file_set *set, struct weights_identity *identity, struct error *error)
{
	*identity = (struct weights_identity){0};
	for (size_t i = 0; i < set->count; i++) {
		const char *path = path_of_file(set, i);
		struct stat status;

		if (stat(path, &status) != 0)
			return error_set(error, ERR_NOT_FOUND, "weights file %s: %s", path, strerror(errno));
		if (!S_ISREG(status.st_mode))
			return error_set(error, ERR_INVALID, "weights file %s: not a regular file", path);
		add_identity(identity, &status);
	}
	return 0;
}

bool weights_same(const char *path, bool folder, const struct weights *weights)
{
	struct weights_identity identity;
	struct file_set set;
	struct error error;
	bool same;

	if (!weights->known)
		return false;
	same = list_files(path, folder, &set, &error) == 0 && identify(&set, &identity, &error) == 0 &&
	       same_identity(&identity, &weights->identity);
	arena_close(&set.arena);
	return same;
}

/* ---- Digests ---- */

struct weights_reading {
	const char *path;
	bool folder, begun;
	struct weights *weights; /* that are replaced at the end */
	struct weights_progress *progress;
	struct weights found;
	struct file_set set;
	/* The file at hand, set.names[index]; fd < 0: not opened yet. */
	size_t index;
	int fd;
	off_t size;
	struct digest_stream stream;
	struct json *list; /* of those that are done */
	uint8_t *chunk;
};

/* A pipe under the name would hold the thread up until somebody writes into it. */
static int open_regular(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status;

	if (fd < 0 || (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)))
		return fd;
	close(fd);
	errno = EINVAL;
	return -1;
}

static FILE *open_stream(const char *path)
{
	int fd = open_regular(path);
	FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;

	if (fd >= 0 && file == NULL)
		close(fd);
	return file;
}

static int open_file(struct weights_reading *reading, struct error *error)
{
	const char *path = path_of_file(&reading->set, reading->index);

	reading->fd = open_regular(path);
	if (reading->fd < 0)
		return error_set(error, ERR_NOT_FOUND, "weights file %s: %s", path, strerror(errno));
	reading->size = 0;
	digest_stream_init(&reading->stream);
	return 0;
}

static void end_file(struct weights_reading *reading)
{
	struct arena *arena = &reading->set.arena;
	const char *name = reading->set.names[reading->index++], *slash = strrchr(name, '/');
	struct json *item = json_object(arena);
	char hex[DIGEST_HEX_LEN + 1];

	close(reading->fd);
	reading->fd = -1;
	reading->found.digest = digest_stream_finish(&reading->stream);
	digest_hex(&reading->found.digest, hex);
	json_set_text(arena, item, "name", slash != NULL ? slash + 1 : name);
	json_set_text(arena, item, "sha256", hex);
	json_set_number(arena, item, "size", (double)reading->size);
	json_add(arena, reading->list, item);
	if (reading->set.is_set && reading->index == reading->set.count)
		reading->found.digest = json_digest(reading->list);
}

/* A slice; error: none when there is more. */
static void hash_some(struct weights_reading *reading, struct error *error)
{
	size_t left = WEIGHTS_SLICE;

	while (left > 0 && reading->index < reading->set.count && error->code == ERR_NONE) {
		ssize_t got;

		if (reading->fd < 0 && open_file(reading, error) != 0)
			return;
		got = read(reading->fd, reading->chunk, left < WEIGHTS_CHUNK ? left : WEIGHTS_CHUNK);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			error_set(error, ERR_IO, "weights file %s: %s", path_of_file(&reading->set, reading->index), strerror(errno));
		} else if (got == 0) {
			end_file(reading);
		} else if (atomic_load(&reading->progress->stop)) {
			error_set(error, ERR_CANCELLED, "weights file %s: stopped", path_of_file(&reading->set, reading->index));
		} else {
			digest_stream_add(&reading->stream, (struct bytes){reading->chunk, (size_t)got});
			reading->size += got;
			left -= (size_t)got;
			atomic_fetch_add(&reading->progress->done, (unsigned long long)got);
		}
	}
}

/* ---- Headers ---- */

static const struct json *read_json(struct file_set *set, const char *name, struct bytes *text)
{
	FILE *file = open_stream(arena_printf(&set->arena, "%s%s", set->folder, name));
	struct json *json = NULL;
	uint8_t *bytes;
	size_t len;

	*text = (struct bytes){0};
	if (file == NULL)
		return NULL;
	bytes = arena_alloc(&set->arena, WEIGHTS_CONFIG_MAX);
	len = fread(bytes, 1, WEIGHTS_CONFIG_MAX, file);
	if (len > 0 && len < WEIGHTS_CONFIG_MAX) {
		*text = (struct bytes){bytes, len};
		json = json_parse(&set->arena, *text, JSON_ROUND_INTEGERS, NULL, NULL);
	}
	fclose(file);
	return json;
}

static void copy_text(char to[WEIGHTS_TEXT_MAX], const char *from)
{
	if (from != NULL && strlen(from) < WEIGHTS_TEXT_MAX)
		strcpy(to, from);
}

/* The files that Hugging Face's tools keep beside the weights. */
static void read_folder_header(struct file_set *set, struct weights_header *header)
{
	struct bytes text;
	const struct json *config = read_json(set, "config.json", &text), *quantisation = json_get(config, "quantization_config");
	const char *template;

	*header = (struct weights_header){.source = "files of the weights folder", .quantisation_version = -1, .imatrix_entries = -1, .imatrix_chunks = -1};
	copy_text(header->arch, json_get_text(config, "model_type"));
	copy_text(header->quantisation, json_get_text(quantisation, "quant_method"));
	if (header->quantisation[0] == '\0')
		copy_text(header->quantisation, json_get_text(config, "torch_dtype"));
	header->context_length = json_get_number(config, "max_position_embeddings", 0);
	read_json(set, "chat_template.jinja", &text);
	if (text.len > 0) {
		header->chat_template = digest_of(text);
		header->has_chat_template = true;
	} else {
		template = json_get_text(read_json(set, "tokenizer_config.json", &text), "chat_template");
		if (template != NULL) {
			header->chat_template = digest_of(bytes_text(template));
			header->has_chat_template = true;
		}
	}
	read_json(set, "generation_config.json", &text);
	if (text.len > 0) {
		header->generation_config = digest_of(text);
		header->has_generation_config = true;
	}
}

static void read_header(struct file_set *set, bool folder, struct weights_header *header)
{
	FILE *file;

	*header = (struct weights_header){0};
	if (folder) {
		read_folder_header(set, header);
		return;
	}
	file = open_stream(path_of_file(set, 0));
	if (file == NULL)
		return;
	gguf_read(file, header);
	fclose(file);
}

struct weights_reading *weights_reading_new(const char *path, bool folder, struct weights *weights, struct weights_progress *progress)
{
	struct weights_reading *reading = memory_zero(sizeof(*reading));

	reading->path = path;
	reading->folder = folder;
	reading->weights = weights;
	reading->progress = progress;
	reading->found.known = true;
	reading->fd = -1;
	return reading;
}

void weights_reading_free(struct weights_reading *reading)
{
	if (reading == NULL)
		return;
	if (reading->fd >= 0)
		close(reading->fd);
	if (reading->begun)
		arena_close(&reading->set.arena);
	atomic_store(&reading->progress->total, 0);
	free(reading->chunk);
	free(reading);
}

/* false: they are the ones that are known, or cannot be read. */
static bool begin_reading(struct weights_reading *reading, struct error *error)
{
	reading->begun = true;
	if (list_files(reading->path, reading->folder, &reading->set, error) != 0 || identify(&reading->set, &reading->found.identity, error) != 0)
		return false;
	if (reading->weights->known && same_identity(&reading->found.identity, &reading->weights->identity))
		return false;
	atomic_store(&reading->progress->done, 0);
	atomic_store(&reading->progress->total, (unsigned long long)reading->found.identity.size);
	reading->found.file_count = reading->set.count;
	reading->list = json_array(&reading->set.arena);
	reading->chunk = memory_alloc(WEIGHTS_CHUNK);
	return true;
}

static void end_reading(struct weights_reading *reading, struct error *error)
{
	struct weights_identity after;

	read_header(&reading->set, reading->folder, &reading->found.header);
	if (identify(&reading->set, &after, error) != 0)
		return;
	if (same_identity(&reading->found.identity, &after))
		*reading->weights = reading->found;
	else
		error_set(error, ERR_BUSY, "weights file %s: changed while it was read", reading->path);
}

bool weights_reading_go_on(struct weights_reading *reading, struct error *error)
{
	*error = (struct error){0};
	if (!reading->begun && !begin_reading(reading, error))
		return true;
	hash_some(reading, error);
	if (error->code == ERR_NONE && reading->index < reading->set.count)
		return false;
	if (error->code == ERR_NONE)
		end_reading(reading, error);
	return true;
}

int weights_read(const char *path, bool folder, struct weights *weights, struct weights_progress *progress, struct error *error)
{
	struct weights_reading *reading = weights_reading_new(path, folder, weights, progress);

	while (!weights_reading_go_on(reading, error))
		;
	weights_reading_free(reading);
	return (int)error->code;
}
