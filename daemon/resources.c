/* See resources.h. */
#include "daemon/resources.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "workflow/base/check.h"
#include "workflow/language/definition.h"
#include "workflow/language/file_resources.h"
#include "workflow/language/openapi.h"
#include "workflow/language/task_walk.h"

static const char *endpoint_of(const struct json *description)
{
	const char *uri = json_get_text(description, "endpoint");

	return uri ? uri : json_get_text(json_get(description, "endpoint"), "uri");
}

/* A call of openapi without its operation: its `with`, else NULL. */
static struct json *call_of(const struct json *value)
{
	struct json *with = json_get(value, "with");
	const char *call = json_get_text(value, "call");

	return call && strcmp(call, "openapi") == 0 && endpoint_of(json_get(with, "document")) && json_get_text(with, "operationId") &&
	       !json_get(json_get(with, "document"), "operation") ? with : NULL;
}

static bool take_first(void *arg, struct json *task, const char *pointer)
{
	(void)pointer;
	*(struct json **)arg = call_of(task);
	return *(struct json **)arg != NULL;
}

static struct json *find_call(const struct json *document)
{
	struct json *found = NULL;

	tasks_visit(document, take_first, &found);
	return found;
}

bool resources_are_missing(const struct json *document)
{
	return find_call(document) != NULL;
}

static void fail(struct resources *r, const struct error *error)
{
	struct error made;

	/* It is the definition that cannot be used. */
	error_set(&made, error->code == ERR_NOT_FOUND || error->code == ERR_DENIED ? ERR_INVALID : error->code, "the description %.200s: %s", r->fetch.url, error->message);
	r->error = made;
	r->on_done(r);
}

static void fetch_next(struct resources *r);

struct fetched {
	struct resources *resources;
	const struct json *description;
	const char *digest;
	struct error error;
};

/* Every call that names this description gets its operation; one walk for all of them. */
static bool apply(void *arg, struct json *task, const char *pointer)
{
	struct fetched *fetched = arg;
	struct json *with = call_of(task);
	struct resources *r = fetched->resources;
	struct json *operation;

	(void)pointer;
	if (!with || strcmp(endpoint_of(json_get(with, "document")), r->fetch.url) != 0)
		return false;
	if (r->calls++ == RESOURCES_CALLS_MAX) {
		error_set(&fetched->error, ERR_TOO_LARGE, "more than %d calls of openapi in one definition (RESOURCES_CALLS_MAX)", RESOURCES_CALLS_MAX);
		return true;
	}
	operation = openapi_operation(r->arena, fetched->description, json_get_text(with, "operationId"), r->fetch.url, &fetched->error);
	if (!operation)
		return true;
	json_set_text(r->arena, json_get(with, "document"), "digest", fetched->digest);
	json_set(r->arena, json_get(with, "document"), "operation", operation);
	return false;
}

static void on_fetched(struct resource_fetch *fetch)
{
	struct resources *r = fetch->owner;
	struct problems problems;
	struct error error = fetch->error;
	struct fetched fetched = {.resources = r};
	struct digest digest;
	char text[DIGEST_TEXT_LEN + 1];

	problems_init(&problems);
	if (error.code == ERR_NONE) {
		fetched.description = text_load(r->arena, fetch->bytes, TEXT_GUESS, NULL, &problems);
		if (!fetched.description)
			error_set(&error, ERR_INVALID, "%s", problems.count > 0 ? problems.items[0].message : "is neither JSON nor YAML");
	}
	problems_close(&problems);
	digest = digest_of(fetch->bytes);
	digest_text(&digest, text);
	if (error.code == ERR_NONE) {
		fetched.digest = text;
		tasks_visit(r->result, apply, &fetched);
		error = fetched.error;
	}
	if (error.code != ERR_NONE)
		fail(r, &error);
	else
		fetch_next(r);
}

static void fetch_next(struct resources *r)
{
	struct json *with = find_call(r->result);
	struct error error = {0};

	if (!with) {
		r->on_done(r);
		return;
	}
	r->fetch = (struct resource_fetch){.url = endpoint_of(json_get(with, "document")), .on_done = on_fetched, .owner = r};
	if (r->fetched++ == RESOURCES_MAX)
		error_set(&error, ERR_TOO_LARGE, "more than %d are fetched for one definition (RESOURCES_MAX)", RESOURCES_MAX);
	else
		resource_fetch_start(r->activities, &r->fetch, &error);
	if (error.code != ERR_NONE)
		fail(r, &error);
}

void resources_resolve(struct resources *r)
{
	r->result = json_copy(r->arena, r->document);
	r->error = (struct error){0};
	r->fetched = r->calls = 0;
	fetch_next(r);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* A regular file beneath the folder; no link is followed, not in the middle either. Negative: there is none. */
static int open_beneath(const char *folder, const char *path)
{
	const struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	int from = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat status;

	if (from < 0)
		return -1;
	int file = (int)syscall(SYS_openat2, from, path, &how, sizeof how);
	int why = errno;
	close(from);
	if (file >= 0 && (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))) {
		close(file);
		file = -1;
		why = EACCES;
	}
	errno = why;
	return file;
}

/* A relative path is looked for in each folder, in their order; an absolute one has to begin with one of them. */
static int read_beneath(void *arg, struct arena *arena, const char *path, struct bytes *bytes, struct error *error)
{
	const struct config *config = arg;
	int file = -1;

	for (size_t i = 0; i < config->resource_folder_count && file < 0; i++) {
		const char *folder = config->resource_folders[i];
		size_t len = strlen(folder);
		while (len > 1 && folder[len - 1] == '/')
			len--;
		if (path[0] == '/' && (strncmp(path, folder, len) != 0 || path[len] != '/'))
			continue;
		file = open_beneath(folder, path[0] == '/' ? path + len + 1 : path);
	}
	if (file < 0)
		return error_set(error, ERR_NOT_FOUND, "there is no file %.200s beneath the folders of `resources`, reached without links", path);
	uint8_t *data = arena_alloc(arena, RESOURCE_BODY_MAX + 1);
	size_t count = 0;
	ssize_t got = 1;
	while (got > 0 && count <= RESOURCE_BODY_MAX) {
		got = read(file, data + count, RESOURCE_BODY_MAX + 1 - count);
		count += got > 0 ? (size_t)got : 0;
	}
	close(file);
	if (got < 0)
		return error_set(error, ERR_IO, "cannot read %.200s: %s", path, strerror(errno));
	if (count > RESOURCE_BODY_MAX)
		return error_set(error, ERR_TOO_LARGE, "%.200s has more than %d bytes (RESOURCE_BODY_MAX)", path, RESOURCE_BODY_MAX);
	*bytes = (struct bytes){data, count};
	return 0;
}

bool resources_may_be_files(const struct config *config, struct bytes text)
{
	return config->resource_folder_count > 0 && file_resources_may_be_in(text);
}

bool resources_inline_files(const struct config *config, struct arena *arena, struct json *document, const struct text_positions *positions, struct problems *problems)
{
	struct file_resources files = {.arena = arena, .read = read_beneath, .arg = (void *)config, .problems = problems, .positions = positions};

	return file_resources_inline(&files, document);
}
