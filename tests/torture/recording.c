/* Power loss. While the store works, all that it does to its files is kept in order; then the power is cut behind each of these
 * operations in turn. What a file or folder had when it was last synced is on the disk; of what came later a cut keeps what it likes:
 * nothing, all, a first part with a torn end, or any sectors in any order, and of names (made, linked, renamed, removed) as well, which
 * become durable with a sync of their folder alone. A sector of 512 bytes is written whole or not, and a write touches no byte beside
 * its own (SQLite's "powersafe overwrite"). Start at recording_step() and recording_cut(). */
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

enum { NODES_MAX = 64, NAMES_MAX = 32, NAME_LEN = 64, OPERATIONS_MAX = 1 << 17 };

enum change { CHANGE_WRITE, CHANGE_TRUNCATE, CHANGE_SYNC, CHANGE_NAME, CHANGE_NO_NAME, CHANGE_RENAME, CHANGE_SYNC_FOLDER, CHANGE_ACKNOWLEDGE };

struct one {
	enum change change;
	int node, target; /* of a name: the folder and what is called so */
	uint64_t at; /* of a truncation: the size; of an acknowledgement: its checkpoint */
	size_t len;
	uint8_t *data;
	char name[NAME_LEN], old[NAME_LEN]; /* old: renamed from */
};

struct names {
	unsigned count;
	struct {
		char name[NAME_LEN];
		int node;
	} list[NAMES_MAX];
};

struct node {
	bool is_folder;
	char name[NAME_LEN]; /* as it was first called: a lie is told by it */
	uint8_t *begin; /* what there was at the start */
	size_t begin_len;
	struct names begin_names;
	/* While it is replayed: what is durable, and which operations behind that are not. */
	uint8_t *durable;
	size_t len, cap;
	struct names names;
	unsigned *pending, pending_count, pending_cap;
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

static int find(const struct names *names, const char *name)
{
	for (unsigned i = 0; i < names->count; i++)
		if (strcmp(names->list[i].name, name) == 0)
			return (int)i;
	return -1;
}

static void set(struct names *names, const char *name, int node)
{
	int at = find(names, name);

	if (at < 0) {
		CHECK(names->count < NAMES_MAX);
		at = (int)names->count++;
	}
	snprintf(names->list[at].name, NAME_LEN, "%s", name);
	names->list[at].node = node;
}

static void forget(struct names *names, const char *name)
{
	int at = find(names, name);

	if (at >= 0)
		names->list[at] = names->list[--names->count];
}

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
	at = find(&live, folder);
	CHECK(at >= 0);
	return live.list[at].node;
}

static int new_node(bool is_folder, const char *name)
{
	CHECK(node_count < NODES_MAX);
	nodes[node_count] = (struct node){.is_folder = is_folder};
	snprintf(nodes[node_count].name, NAME_LEN, "%s", name);
	return node_count++;
}

/* --- recording -------------------------------------------------------------------------------------------------------------- */

/* The lock is held. */
static struct one *add(enum change change, int node)
{
	CHECK(operation_count < OPERATIONS_MAX);
	operations[operation_count] = (struct one){.change = change, .node = node};
	return &operations[operation_count++];
}

static struct one *add_name(enum change change, const char *path, int target)
{
	struct one *one = add(change, folder_of(path));

	one->target = target;
	snprintf(one->name, NAME_LEN, "%s", last_part(path));
	return one;
}

static uint8_t *read_whole(const char *path, size_t *len)
{
	struct stat status;
	uint8_t *data;
	int descriptor = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(descriptor >= 0 && fstat(descriptor, &status) == 0);
	data = memory_alloc((size_t)status.st_size);
	*len = (size_t)status.st_size;
	CHECK(pread(descriptor, data, *len, 0) == (ssize_t)*len);
	close(descriptor);
	return data;
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
		set(&live, relative(below), node);
		set(&nodes[folder].begin_names, item->d_name, node);
		if (nodes[node].is_folder)
			take_folder(below, node);
		else
			nodes[node].begin = read_whole(below, &nodes[node].begin_len);
	}
	closedir(list);
}

void recording_start(const char *folder)
{
	snprintf(root, sizeof(root), "%s", folder);
	for (unsigned i = 0; i < operation_count; i++)
		free(operations[i].data);
	for (int i = 0; i < node_count; i++) {
		free(nodes[i].begin);
		free(nodes[i].durable);
		free(nodes[i].pending);
	}
	if (operations == NULL)
		operations = memory_alloc(OPERATIONS_MAX * sizeof(*operations));
	operation_count = 0;
	node_count = 0;
	live.count = 0;
	new_node(true, "");
	set(&live, "", 0);
	take_folder(root, 0);
	atomic_store(&recording, true);
}

void recording_stop(void)
{
	atomic_store(&recording, false);
}

void recording_acknowledge(unsigned run, uint64_t signed_size)
{
	struct one *one;

	if (!atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	one = add(CHANGE_ACKNOWLEDGE, (int)run);
	one->at = signed_size;
	pthread_mutex_unlock(&lock);
}

int recording_open(const char *path, bool is_new)
{
	int node = NODE_NONE, at;

	if (!atomic_load(&recording) || strcmp(last_part(path), "journal.db-shm") == 0)
		return NODE_NONE;
	pthread_mutex_lock(&lock);
	at = find(&live, relative(path));
	if (at >= 0) {
		node = live.list[at].node;
	} else if (is_new) {
		node = new_node(false, last_part(path));
		set(&live, relative(path), node);
		add_name(CHANGE_NAME, path, node);
	}
	pthread_mutex_unlock(&lock);
	return node;
}

void recording_write(int node, uint64_t at, const void *data, size_t len)
{
	struct one *one;

	if (node == NODE_NONE || !atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	one = add(CHANGE_WRITE, node);
	one->at = at;
	one->len = len;
	one->data = memcpy(memory_alloc(len), data, len);
	pthread_mutex_unlock(&lock);
}

void recording_truncate(int node, uint64_t size)
{
	if (node == NODE_NONE || !atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	add(CHANGE_TRUNCATE, node)->at = size;
	pthread_mutex_unlock(&lock);
}

void recording_sync(int node)
{
	if (node == NODE_NONE || !atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	add(CHANGE_SYNC, node);
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
	set(&live, relative(path), node);
	pthread_mutex_unlock(&lock);
}

void recording_link(const char *from, const char *to)
{
	int at;

	if (!atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	at = find(&live, relative(from));
	CHECK(at >= 0);
	add_name(CHANGE_NAME, to, live.list[at].node);
	set(&live, relative(to), live.list[at].node);
	pthread_mutex_unlock(&lock);
}

void recording_rename(const char *from, const char *to)
{
	int at, node;

	if (!atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	at = find(&live, relative(from));
	CHECK(at >= 0);
	node = live.list[at].node;
	CHECK(folder_of(from) == folder_of(to));
	snprintf(add_name(CHANGE_RENAME, to, node)->old, NAME_LEN, "%s", last_part(from));
	forget(&live, relative(from));
	set(&live, relative(to), node);
	pthread_mutex_unlock(&lock);
}

void recording_unlink(const char *path)
{
	if (!atomic_load(&recording))
		return;
	pthread_mutex_lock(&lock);
	if (find(&live, relative(path)) >= 0) {
		add_name(CHANGE_NO_NAME, path, NODE_NONE);
		forget(&live, relative(path));
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
	at = find(&live, relative(path));
	if (at >= 0 && nodes[live.list[at].node].is_folder)
		add(CHANGE_SYNC_FOLDER, live.list[at].node);
	else
		add(CHANGE_SYNC_FOLDER, folder_of(path));
	pthread_mutex_unlock(&lock);
}

/* --- going through it -------------------------------------------------------------------------------------------------------- */

static void resize(uint8_t **data, size_t *len, size_t *cap, size_t size)
{
	if (size > *cap) {
		*cap = size * 2;
		*data = memory_resize(*data, *cap);
	}
	if (size > *len)
		memset(*data + *len, 0, size - *len);
	*len = size;
}

/* Bytes `from` to `to` of a write. */
static void put(uint8_t **data, size_t *len, size_t *cap, const struct one *one, size_t from, size_t to)
{
	if (one->at + to > *len)
		resize(data, len, cap, one->at + to);
	memcpy(*data + one->at + from, one->data + from, to - from);
}

static void rename_in(struct names *names, const struct one *one)
{
	if (one->change == CHANGE_NO_NAME) {
		forget(names, one->name);
		return;
	}
	if (one->change == CHANGE_RENAME)
		forget(names, one->old);
	set(names, one->name, one->target);
}

static void make_durable(struct node *node)
{
	for (unsigned i = 0; i < node->pending_count; i++) {
		const struct one *one = &operations[node->pending[i]];

		if (one->change == CHANGE_WRITE)
			put(&node->durable, &node->len, &node->cap, one, 0, one->len);
		else if (one->change == CHANGE_TRUNCATE)
			resize(&node->durable, &node->len, &node->cap, one->at);
		else
			rename_in(&node->names, one);
	}
	node->pending_count = 0;
}

void recording_rewind(enum lie lie)
{
	told = lie;
	position = 0;
	for (int i = 0; i < node_count; i++) {
		nodes[i].pending_count = 0;
		nodes[i].names = nodes[i].begin_names;
		nodes[i].len = 0;
		resize(&nodes[i].durable, &nodes[i].len, &nodes[i].cap, nodes[i].begin_len);
		if (nodes[i].begin_len > 0)
			memcpy(nodes[i].durable, nodes[i].begin, nodes[i].begin_len);
	}
}

static bool is_lie(const struct one *one)
{
	switch (told) {
	case LIE_LOG:
		return one->change == CHANGE_SYNC && strcmp(nodes[one->node].name, "journal.db-wal") == 0;
	case LIE_DATABASE:
		return one->change == CHANGE_SYNC && strcmp(nodes[one->node].name, "journal.db") == 0;
	case LIE_FOLDER:
		return one->change == CHANGE_SYNC_FOLDER;
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
	*is_sync = one->change == CHANGE_SYNC || one->change == CHANGE_SYNC_FOLDER;
	if (one->change == CHANGE_ACKNOWLEDGE || is_lie(one)) {
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
		node->pending[node->pending_count++] = position;
	}
	position++;
	return true;
}

unsigned recording_pending(void)
{
	unsigned count = 0;

	for (int i = 0; i < node_count; i++)
		count += nodes[i].pending_count;
	return count;
}

/* --- one cut ------------------------------------------------------------------------------------------------------------------ */

static uint64_t state;

static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

/* Of one write: sectors, each or none; or the first ones. */
static void put_torn(uint8_t **data, size_t *len, size_t *cap, const struct one *one, bool first_part)
{
	size_t keep = first_part ? (size_t)draw(one->len + 1) : 0;

	for (size_t from = 0; from < one->len;) {
		size_t to = from + SECTOR - (one->at + from) % SECTOR;

		if (to > one->len)
			to = one->len;
		if (first_part ? to <= keep : draw(2) == 0)
			put(data, len, cap, one, from, to);
		from = to;
	}
	/* The new size may be there without what was written. */
	if (draw(2) == 0 && one->at + one->len > *len)
		resize(data, len, cap, one->at + one->len);
}

static void print_file(const struct node *node, enum cut cut, unsigned until, const char *path)
{
	size_t len = 0, cap = 0;
	uint8_t *data = NULL;
	unsigned *order = memory_alloc(node->pending_count * sizeof(*order));
	int descriptor;

	resize(&data, &len, &cap, node->len);
	if (node->len > 0)
		memcpy(data, node->durable, node->len);
	if (node->pending_count > 0)
		memcpy(order, node->pending, node->pending_count * sizeof(*order));
	for (unsigned i = node->pending_count; cut == CUT_RANDOM && i > 1; i--) {
		unsigned other = (unsigned)draw(i), kept = order[other];

		order[other] = order[i - 1];
		order[i - 1] = kept;
	}
	for (unsigned i = 0; i < node->pending_count && cut != CUT_DROP; i++) {
		const struct one *one = &operations[order[i]];

		if (cut == CUT_PREFIX && order[i] > until)
			break;
		if (one->change == CHANGE_TRUNCATE && (cut != CUT_RANDOM || draw(2) == 0))
			resize(&data, &len, &cap, one->at);
		else if (one->change == CHANGE_WRITE && (cut == CUT_KEEP || (cut == CUT_PREFIX && order[i] < until)))
			put(&data, &len, &cap, one, 0, one->len);
		else if (one->change == CHANGE_WRITE && (cut == CUT_PREFIX || draw(4) > 0))
			put_torn(&data, &len, &cap, one, cut == CUT_PREFIX);
	}
	descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(descriptor >= 0 && pwrite(descriptor, data, len, 0) == (ssize_t)len);
	close(descriptor);
	free(data);
	free(order);
}

static void print_folder(const struct node *node, enum cut cut, unsigned until, const char *path)
{
	struct names names = node->names;

	for (unsigned i = 0; i < node->pending_count && cut != CUT_DROP; i++)
		if (cut == CUT_KEEP || (cut == CUT_PREFIX ? node->pending[i] <= until : draw(2) == 0))
			rename_in(&names, &operations[node->pending[i]]);
	for (unsigned i = 0; i < names.count; i++) {
		const struct node *below = &nodes[names.list[i].node];
		char name[PATH_LEN * 2];

		snprintf(name, sizeof(name), "%s/%s", path, names.list[i].name);
		if (below->is_folder) {
			CHECK(mkdir(name, 0700) == 0);
			print_folder(below, cut, until, name);
		} else {
			print_file(below, cut, until, name);
		}
	}
}

/* A folder as it is after a cut here, and what had been acknowledged by then. */
void recording_cut(enum cut cut, uint64_t seed, const char *path, struct ledger *acknowledged)
{
	unsigned first = position, until;

	state = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
	for (int i = 0; i < 8; i++)
		draw(2);
	for (int i = 0; i < node_count; i++)
		if (nodes[i].pending_count > 0 && nodes[i].pending[0] < first)
			first = nodes[i].pending[0];
	until = first + (unsigned)draw(position - first + 1);
	CHECK(mkdir(path, 0700) == 0);
	print_folder(&nodes[0], cut, until, path);
	for (unsigned i = 0; i < position; i++)
		if (operations[i].change == CHANGE_ACKNOWLEDGE && operations[i].node < RUNS_MAX)
			acknowledged->runs[operations[i].node].outcome = OUTCOME_ACKNOWLEDGED;
		else if (operations[i].change == CHANGE_ACKNOWLEDGE)
			acknowledged->signed_size = operations[i].at;
}
