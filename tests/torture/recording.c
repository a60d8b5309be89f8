/* Power loss. While the store works, all that it does to its files is kept in order; then the power is cut behind each of these
 * operations in turn; what a cut leaves says tests/support/power_cut.h. Start at recording_step() and recording_cut(). */
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/torture/torture.h"
#include "workflow/base/check.h"

enum { NODES_MAX = 64, OPERATIONS_MAX = 1 << 17 };

enum operation_kind { DONE_CHANGE, DONE_SYNC, DONE_SYNC_FOLDER, DONE_ACKNOWLEDGE };

struct one {
	enum operation_kind kind;
	int node; /* of a name: the folder; of an acknowledgement: the promise */
	struct change change; /* its number is its place; at: of a promise its number */
};

struct node {
	bool is_folder;
	char name[CUT_NAME_LEN]; /* as it was first called: a lie is told by it */
	struct content begin; /* what there was at the start */
	struct names begin_names;
	/* While it is replayed: what is durable, and which changes behind that are not. */
	struct content durable;
	struct names names;
	const struct change **pending;
	size_t pending_count, pending_cap;
};

atomic_bool recording;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_LEN];
static struct node nodes[NODES_MAX];
static int node_count;
static struct names live; /* path beneath the root → node, now */
static struct one *operations;
static unsigned operation_count, position;
static enum lie told;

/* --- names ------------------------------------------------------------------------------------------------------------------ */

/* Beneath the root; "" is the root itself. */
static const char *relative(const char *path)
{
	size_t len = strlen(root);

	CHECK(strncmp(path, root, len) == 0);
	return path[len] == '/' ? path + len + 1 : "";
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

static int folder_of(const char *path)
{
	char folder[PATH_LEN];
	char *slash;
	int at;

	snprintf(folder, sizeof(folder), "%s", relative(path));
	slash = strrchr(folder, '/');
	if (slash == NULL)
		return 0;
	*slash = '\0';
	at = names_find(&live, folder);
	CHECK(at >= 0);
	return live.list[at].node;
}

static int new_node(bool is_folder, const char *name)
{
	CHECK(node_count < NODES_MAX);
	nodes[node_count] = (struct node){.is_folder = is_folder};
	snprintf(nodes[node_count].name, CUT_NAME_LEN, "%s", name);
	return node_count++;
}

/* --- recording -------------------------------------------------------------------------------------------------------------- */

/* The lock is held. */
static struct one *add(enum operation_kind kind, int node)
{
	CHECK(operation_count < OPERATIONS_MAX);
	operations[operation_count] = (struct one){.kind = kind, .node = node, .change = {.number = operation_count}};
	return &operations[operation_count++];
}

static struct change *add_change(enum change_kind kind, int node)
{
	struct change *change = &add(DONE_CHANGE, node)->change;

	change->kind = kind;
	return change;
}

static struct change *add_name(enum change_kind kind, const char *path, int target)
{
	struct change *change = add_change(kind, folder_of(path));

	change->target = target;
	snprintf(change->name, CUT_NAME_LEN, "%s", last_part(path));
	return change;
}

static void read_whole(const char *path, struct content *content)
{
	struct stat status;
	int descriptor = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(descriptor >= 0 && fstat(descriptor, &status) == 0);
	content_resize(content, (uint64_t)status.st_size);
	CHECK(pread(descriptor, content->data, content->len, 0) == (ssize_t)content->len);
	close(descriptor);
}

static void take_folder(const char *path, int folder)
{
	DIR *list = opendir(path);

	CHECK(list != NULL);
	for (struct dirent *item; (item = readdir(list)) != NULL;) {
		char below[PATH_LEN * 2];
		struct stat status;
		int node;

		if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0 || strcmp(item->d_name, "journal.db-shm") == 0)
			continue;
		snprintf(below, sizeof(below), "%s/%s", path, item->d_name);
		CHECK(lstat(below, &status) == 0);
		node = new_node(S_ISDIR(status.st_mode), item->d_name);
		names_set(&live, relative(below), node);
		names_set(&nodes[folder].begin_names, item->d_name, node);
		if (nodes[node].is_folder)
			take_folder(below, node);
		else
			read_whole(below, &nodes[node].begin);
	}
	closedir(list);
}

void recording_start(const char *folder)
{
	snprintf(root, sizeof(root), "%s", folder);
	for (unsigned i = 0; i < operation_count; i++)
		free(operations[i].change.data);
	for (int i = 0; i < node_count; i++) {
		free(nodes[i].begin.data);
		free(nodes[i].durable.data);
		free(nodes[i].pending);
	}
	if (operations == NULL)
		operations = memory_alloc(OPERATIONS_MAX * sizeof(*operations));
	operation_count = 0;
	node_count = 0;
	live.count = 0;
	new_node(true, "");
	names_set(&live, "", 0);
	take_folder(root, 0);
	atomic_store(&recording, true);
}

void recording_stop(void)
{
	atomic_store(&recording, false);
}

void recording_acknowledge(enum promise promise, uint64_t number)
{
	if (!atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	add(DONE_ACKNOWLEDGE, (int)promise)->change.at = number;
	pthread_mutex_unlock(&lock);
}

int recording_open(const char *path, bool is_new)
{
	int node = NODE_NONE, at;

	if (!atomic_load(&recording) || strcmp(last_part(path), "journal.db-shm") == 0)
		return NODE_NONE;
	pthread_mutex_lock(&lock);
	at = names_find(&live, relative(path));
	if (at >= 0) {
		node = live.list[at].node;
	} else if (is_new) {
		node = new_node(false, last_part(path));
		names_set(&live, relative(path), node);
		add_name(CHANGE_NAME, path, node);
	}
	pthread_mutex_unlock(&lock);
	return node;
}

void recording_write(int node, uint64_t at, const void *data, size_t len)
{
	struct change *change;

	if (node == NODE_NONE || !atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	change = add_change(CHANGE_WRITE, node);
	change->at = at;
	change->len = len;
	change->data = memcpy(memory_alloc(len), data, len);
	pthread_mutex_unlock(&lock);
}

void recording_truncate(int node, uint64_t size)
{
	if (node == NODE_NONE || !atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	add_change(CHANGE_TRUNCATE, node)->at = size;
	pthread_mutex_unlock(&lock);
}

void recording_sync(int node)
{
	if (node == NODE_NONE || !atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	add(DONE_SYNC, node);
	pthread_mutex_unlock(&lock);
}

void recording_make_folder(const char *path)
{
	int node;

	if (!atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	node = new_node(true, last_part(path));
	add_name(CHANGE_NAME, path, node);
	names_set(&live, relative(path), node);
	pthread_mutex_unlock(&lock);
}

void recording_link(const char *from, const char *to)
{
	int at;

	if (!atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	at = names_find(&live, relative(from));
	CHECK(at >= 0);
	add_name(CHANGE_NAME, to, live.list[at].node);
	names_set(&live, relative(to), live.list[at].node);
	pthread_mutex_unlock(&lock);
}

void recording_rename(const char *from, const char *to)
{
	int at, node;

	if (!atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	at = names_find(&live, relative(from));
	CHECK(at >= 0);
	node = live.list[at].node;
	CHECK(folder_of(from) == folder_of(to));
	snprintf(add_name(CHANGE_RENAME, to, node)->old, CUT_NAME_LEN, "%s", last_part(from));
	names_forget(&live, relative(from));
	names_set(&live, relative(to), node);
	pthread_mutex_unlock(&lock);
}

void recording_unlink(const char *path)
{
	if (!atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	if (names_find(&live, relative(path)) >= 0) {
		add_name(CHANGE_NO_NAME, path, NODE_NONE);
		names_forget(&live, relative(path));
	}
	pthread_mutex_unlock(&lock);
}

/* The folder itself, or that of a file. */
void recording_sync_folder(const char *path)
{
	int at;

	if (!atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	at = names_find(&live, relative(path));
	if (at >= 0 && nodes[live.list[at].node].is_folder)
		add(DONE_SYNC_FOLDER, live.list[at].node);
	else
		add(DONE_SYNC_FOLDER, folder_of(path));
	pthread_mutex_unlock(&lock);
}

/* --- going through it -------------------------------------------------------------------------------------------------------- */

static void make_durable(struct node *node)
{
	for (size_t i = 0; i < node->pending_count; i++)
		if (node->is_folder)
			names_apply(&node->names, node->pending[i]);
		else
			content_apply(&node->durable, node->pending[i]);
	node->pending_count = 0;
}

void recording_rewind(enum lie lie)
{
	told = lie;
	position = 0;
	for (int i = 0; i < node_count; i++) {
		nodes[i].pending_count = 0;
		nodes[i].names = nodes[i].begin_names;
		content_copy(&nodes[i].durable, &nodes[i].begin);
	}
}

static bool is_lie(const struct one *one)
{
	switch (told) {
	case LIE_LOG:
		return one->kind == DONE_SYNC && strcmp(nodes[one->node].name, "journal.db-wal") == 0;
	case LIE_DATABASE:
		return one->kind == DONE_SYNC && strcmp(nodes[one->node].name, "journal.db") == 0;
	case LIE_FOLDER:
		return one->kind == DONE_SYNC_FOLDER;
	default:
		return false;
	}
}

bool recording_step(bool *is_sync)
{
	const struct one *one;
	struct node *node;

	if (position == operation_count)
		return false;
	one = &operations[position];
	*is_sync = one->kind == DONE_SYNC || one->kind == DONE_SYNC_FOLDER;
	if (one->kind == DONE_ACKNOWLEDGE || is_lie(one)) {
		position++;
		return true;
	}
	node = &nodes[one->node];
	if (*is_sync) {
		make_durable(node);
	} else {
		if (node->pending_count == node->pending_cap) {
			node->pending_cap = node->pending_cap * 2 + 16;
			node->pending = memory_resize(node->pending, node->pending_cap * sizeof(*node->pending));
		}
		node->pending[node->pending_count++] = &one->change;
	}
	position++;
	return true;
}

unsigned recording_pending(void)
{
	unsigned count = 0;

	for (int i = 0; i < node_count; i++)
		count += (unsigned)nodes[i].pending_count;
	return count;
}

/* --- one cut ------------------------------------------------------------------------------------------------------------------ */

static void print_folder(struct cutting *cutting, const struct node *node, const char *path)
{
	struct names names = node->names;

	cut_folder(cutting, &names, node->pending, node->pending_count);
	for (unsigned i = 0; i < names.count; i++) {
		const struct node *below = &nodes[names.list[i].node];
		struct content content = {0};
		char name[PATH_LEN * 2];
		int descriptor;

		snprintf(name, sizeof(name), "%s/%s", path, names.list[i].name);
		if (below->is_folder) {
			CHECK(mkdir(name, 0700) == 0);
			print_folder(cutting, below, name);
			continue;
		}
		content_copy(&content, &below->durable);
		cut_file(cutting, &content, below->pending, below->pending_count);
		descriptor = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		CHECK(descriptor >= 0 && pwrite(descriptor, content.data, content.len, 0) == (ssize_t)content.len);
		close(descriptor);
		free(content.data);
	}
}

/* A folder as it is after a cut here, and what had been acknowledged by then. */
void recording_cut(enum cut cut, uint64_t seed, const char *path, struct ledger *acknowledged)
{
	uint64_t first = position;
	struct cutting cutting;

	for (int i = 0; i < node_count; i++)
		if (nodes[i].pending_count > 0 && nodes[i].pending[0]->number < first)
			first = nodes[i].pending[0]->number;
	cut_begin(&cutting, cut, seed, first, position);
	CHECK(mkdir(path, 0700) == 0);
	print_folder(&cutting, &nodes[0], path);
	for (unsigned i = 0; i < position; i++) {
		uint64_t number = operations[i].change.at;

		if (operations[i].kind != DONE_ACKNOWLEDGE)
			continue;
		switch ((enum promise)operations[i].node) {
		case PROMISE_APPEND:
			acknowledged->runs[number].outcome = OUTCOME_ACKNOWLEDGED;
			break;
		case PROMISE_CHECKPOINT:
			acknowledged->signed_size = number;
			break;
		case PROMISE_REMOVED:
			acknowledged->runs[number].removal = REMOVAL_DONE;
			break;
		case PROMISE_ERASED:
			acknowledged->runs[number].erasure = REMOVAL_DONE;
			break;
		case PROMISE_COPIED:
			acknowledged->copied = (unsigned)number;
			break;
		}
	}
}
