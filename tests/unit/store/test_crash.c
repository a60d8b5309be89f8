/* kill -9 in the middle of everything: what was acknowledged is there afterwards, whole, and the log goes on. */
#include <signal.h>
#include <sys/wait.h>

#include "tests/unit/store/fixture.h"

enum { IN_FLIGHT = 32, ROUNDS = 12, ACKS_MAX = 400000 };

struct client {
	struct store_append append;
	struct entry entries[2];
	struct arena arena;
	struct child *child;
	uint32_t number;
};

struct child {
	struct fixture f;
	int pipe;
	uint32_t next;
	struct client clients[IN_FLIGHT];
};

static void submit(struct client *client)
{
	char id[32];

	arena_close(&client->arena);
	client->number = client->child->next++;
	snprintf(id, sizeof(id), "run-%08u", client->number);
	make_created(&client->arena, &client->entries[0], id, "crash", NULL);
	make_step(&client->arena, &client->entries[1], ENTRY_TASK_COMPLETED, id, "/do/0/a@1",
		  bytes_text(arena_printf(&client->arena, "\"%s\"", id)));
	if (client->number % 64 == 0) { /* with a large value now and then */
		uint8_t *large = arena_alloc(&client->arena, CONTENT_CHUNK + 100000);

		memset(large, (int)client->number, CONTENT_CHUNK + 100000);
		entry_add_value(&client->arena, &client->entries[1], "large", (struct bytes){large, CONTENT_CHUNK + 100000});
	}
	CHECK(store_append(client->child->f.store, &client->append) == 0);
}

static void on_acknowledged(struct store_append *append)
{
	struct client *client = append->owner;

	CHECK(append->error.code == ERR_NONE);
	CHECK(write(client->child->pipe, &client->number, sizeof(client->number)) == sizeof(client->number));
	submit(client);
}

/* Never returns: it is killed. */
static void run_child(const char *folder, int pipe, uint32_t next)
{
	struct child *child = memory_zero(sizeof(*child));

	fixture_init(&child->f);
	remove_tree(child->f.folder);
	child->f.options.data_dir = folder;
	child->f.options.checkpoint_entries = 100;
	child->f.options.wal_mib = 1;
	child->pipe = pipe;
	child->next = next;
	CHECK(store_open(&child->f.store, &child->f.loop, &child->f.options, &child->f.error) == 0);
	for (unsigned i = 0; i < IN_FLIGHT; i++) {
		child->clients[i].child = child;
		child->clients[i].append = (struct store_append){.entries = child->clients[i].entries,
								 .entry_count = 2,
								 .on_done = on_acknowledged,
								 .owner = &child->clients[i]};
		submit(&child->clients[i]);
	}
	uv_run(&child->f.loop, UV_RUN_DEFAULT);
	_exit(3);
}

/* Acknowledged numbers until `acks` of them are there, then the kill, then what was still in the pipe. */
static size_t kill_after(pid_t pid, int pipe, unsigned acks, uint32_t *acknowledged, size_t count)
{
	for (unsigned seen = 0;; seen++) {
		ssize_t n = read(pipe, &acknowledged[count], sizeof(*acknowledged));

		if (n == 0)
			return count;
		ck_assert_int_eq(n, sizeof(*acknowledged));
		ck_assert_uint_lt(++count, ACKS_MAX);
		if (seen == acks)
			kill(pid, SIGKILL);
	}
}

struct expected {
	const uint32_t *acknowledged;
	size_t count, from;
};

static void read_all(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct expected *expected = arg;
	struct entry *entries;
	size_t count;

	for (size_t i = expected->from; i < expected->count; i++) {
		struct arena arena;
		char id[32];

		arena_init(&arena);
		snprintf(id, sizeof(id), "run-%08u", expected->acknowledged[i]);
		ck_assert_msg(reader_run_entries(reader, &arena, id, 0, 10, CONTENT_MAX, &entries, &count, &f->error) == 0,
			      "%s was acknowledged: %s", id, f->error.message);
		ck_assert_uint_eq(count, 2);
		ck_assert_uint_eq(entries[1].value_count, expected->acknowledged[i] % 64 == 0 ? 2 : 1);
		ck_assert(bytes_equal_text(entries[1].values[0].bytes, arena_printf(&arena, "\"%s\"", id)));
		arena_close(&arena);
	}
}

/* A process that appends without pause is killed 12 times at seeded moments; each time every acknowledged run is there
 * with both entries and its values, the tree verifies against its checkpoints at the start, and in the end every
 * derived table follows from the entries. */
START_TEST(kill_at_any_moment)
{
	struct fixture f;
	uint32_t *acknowledged = memory_zero(ACKS_MAX * sizeof(*acknowledged)), next = 0, seed = 20261129;
	size_t count = 0;

	signal(SIGPIPE, SIG_IGN);
	fixture_init(&f);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct expected expected = {acknowledged, 0, count};
		int ends[2], status;
		pid_t pid;

		seed = seed * 1664525u + 1013904223u;
		ck_assert_int_eq(pipe(ends), 0);
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (pid == 0) {
			close(ends[0]);
			run_child(f.folder, ends[1], next);
		}
		close(ends[1]);
		count = kill_after(pid, ends[0], 1 + (seed >> 8) % 700, acknowledged, count);
		close(ends[0]);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFSIGNALED(status));
		ck_assert_int_eq(WTERMSIG(status), SIGKILL);
		fixture_open(&f);
		expected.count = count;
		read_and_wait(&f, read_all, &expected);
		next += IN_FLIGHT +
			(uint32_t)(count - expected.from); /* Each acknowledgement was followed by one more submission. */
		fixture_close(&f);
	}
	ck_assert_uint_gt(count, ROUNDS * 20);
	fixture_open(&f);
	read_and_wait(&f, read_all, &(struct expected){acknowledged, count, 0});
	fixture_close(&f);
	check_tables_equal(&f);
	free(acknowledged);
	fixture_end(&f);
}
END_TEST

TEST_MAIN("store-crash", kill_at_any_moment)
