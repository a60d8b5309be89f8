/* Limits of daemon/ that whole programs reach slowly or not at all, over a real store: events forgotten with one entry, evaluations of one
 * event, appends that wait, bytes of an answer. */
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "daemon/daemon.h"
#include "daemon/event_trigger.h"
#include "tests/unit/store/fixture.h"
#include "workflow/language/cloud_event.h"

static unsigned made;

static void make_event(struct fixture *f, struct entry *entry, const char *attributes)
{
	struct cloud_event event;
	struct bytes text = bytes_text(arena_printf(&f->arena, "{\"specversion\":\"1.0\",\"source\":\"s\",\"id\":\"%u\",\"type\":\"t\"%s}", made++, attributes));

	ck_assert_msg(cloud_event_parse(&f->arena, text, &event, &f->error) == 0, "%s", f->error.message);
	*entry = (struct entry){.kind = ENTRY_EVENT_RECEIVED, .data = json_object(&f->arena), .time_ms = 5000};
	json_set_digest(&f->arena, entry->data, "key", &event.key);
	entry_add_value(&f->arena, entry, "event", event.bytes);
}

/* --- events that are forgotten -------------------------------------------------------------------------------------- */

struct forgotten {
	uint64_t from;
	size_t count;
	double before[4];
};

static void read_forgotten(struct store_reader *reader, struct fixture *f, void *arg)
{
	struct forgotten *forgotten = arg;
	struct store_raw_entry *raw;
	uint64_t next;

	ck_assert_int_eq(reader_entries(reader, &f->arena, forgotten->from, UINT64_C(1) << ENTRY_EVENTS_FORGOTTEN, COUNT_OF(forgotten->before), &raw, &forgotten->count, &next, &f->error), 0);
	for (size_t i = 0; i < forgotten->count; i++) {
		struct entry entry;

		ck_assert_int_eq(reader_entry(reader, &f->arena, &raw[i], 0, &entry, &f->error), 0);
		forgotten->before[i] = json_get_number(entry.data, "before", 0);
	}
}

/* With one entry EVENTS_FORGET_MAX events are forgotten; the rest follows with the next one. */
START_TEST(forgotten_in_portions)
{
	enum { MORE = 5 };
	struct entry *entries = memory_zero((EVENTS_FORGET_MAX + MORE) * sizeof *entries);
	struct daemon *daemon = memory_zero(sizeof *daemon);
	struct forgotten forgotten = {0};
	struct fixture f;

	fixture_start(&f);
	for (size_t i = 0; i < EVENTS_FORGET_MAX + MORE; i++)
		make_event(&f, &entries[i], "");
	append_ok(&f, entries, EVENTS_FORGET_MAX + MORE);
	forgotten.from = entries[EVENTS_FORGET_MAX + MORE - 1].seq + 1;
	ck_assert_int_eq(uv_loop_init(&daemon->loop), 0);
	daemon->store = f.store;
	daemon->hub = event_hub_new(&f.loop, f.store);
	daemon->config.events_keep_ms = 400; /* it looks four times in that */
	daemon->event_keeper = event_keeper_open(daemon);
	for (int turn = 0; turn < 20000 && forgotten.count < 2; turn++) {
		uv_run(&daemon->loop, UV_RUN_NOWAIT);
		uv_run(&f.loop, UV_RUN_NOWAIT);
		uv_sleep(5);
		if (turn % 20 == 0)
			read_and_wait(&f, read_forgotten, &forgotten);
	}
	ck_assert_uint_eq(forgotten.count, 2);
	ck_assert_double_eq(forgotten.before[0], (double)entries[EVENTS_FORGET_MAX - 1].seq + 1);
	ck_assert_double_eq(forgotten.before[1], (double)entries[EVENTS_FORGET_MAX + MORE - 1].seq + 1);
	event_keeper_stop(daemon->event_keeper);
	while (event_keeper_is_reading(daemon->event_keeper))
		uv_run(&f.loop, UV_RUN_ONCE);
	event_keeper_close(daemon->event_keeper);
	uv_run(&daemon->loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&daemon->loop), 0);
	event_hub_stop(daemon->hub);
	event_hub_close(daemon->hub);
	uv_run(&f.loop, UV_RUN_NOWAIT);
	fixture_end(&f);
	free(daemon);
	free(entries);
}
END_TEST

/* --- evaluations of one event ---------------------------------------------------------------------------------------- */

enum { FILTERS = 32, ATTRIBUTES = TRIGGER_EVALUATIONS_MAX / FILTERS };

struct fired {
	struct event_trigger *trigger;
	unsigned count;
	uint64_t seq;
	size_t bytes; /* of the input; 0: none was given */
};

static void on_fire(void *arg, struct bytes input, uint64_t seq, int64_t time_ms)
{
	struct fired *fired = arg;

	(void)time_ms;
	fired->bytes = input.data ? input.len : 0;
	fired->count++;
	fired->seq = seq;
	event_trigger_next(fired->trigger);
}

static void on_tick(uv_timer_t *timer)
{
	(void)timer; /* the loop has turned */
}

static const char *read_file(const char *path)
{
	static char text[8192];
	FILE *file = fopen(path, "r");

	ck_assert_ptr_nonnull(file);
	text[fread(text, 1, sizeof text - 1, file)] = '\0';
	fclose(file);
	return text;
}

/* For one event jq is asked TRIGGER_EVALUATIONS_MAX times. An event that needs one more is passed over, the log names the limit, and the next
 * one is matched as ever. */
START_TEST(evaluations_are_limited)
{
	struct fixture f;
	struct fired fired = {0};
	struct event_attribute *attributes;
	struct event_filter filters[FILTERS + 1] = {0};
	struct event_strategy strategy = {.kind = EVENTS_ANY, .filters = filters, .filter_count = FILTERS + 1};
	const struct jq_pool_config pool = {.program = getenv("REPRISE_JQ")};
	struct problems problems;
	struct buffer text;
	char path[300];

	ck_assert_ptr_nonnull(pool.program);
	fixture_start(&f);
	/* Each filter asks of each attribute whether it begins with x, in its own words; the last attribute does not. Then comes one that takes
	 * the event, after one question more or without any. */
	attributes = arena_zero(&f.arena, (FILTERS * ATTRIBUTES + 1) * sizeof *attributes);
	for (int i = 0; i < FILTERS; i++) {
		filters[i] = (struct event_filter){.attributes = &attributes[i * ATTRIBUTES], .attribute_count = ATTRIBUTES};
		for (int k = 0; k < ATTRIBUTES; k++)
			attributes[i * ATTRIBUTES + k] = (struct event_attribute){.name = arena_printf(&f.arena, "a%d", k), .wants = EVENT_WANTS_PREDICATE, .predicate = arena_printf(&f.arena, "test(\"^x|^%d\")", i + 10)};
	}
	struct event_attribute *last = &attributes[FILTERS * ATTRIBUTES];
	filters[FILTERS] = (struct event_filter){.attributes = last, .attribute_count = 1};
	problems_init(&problems);
	struct definition *definition = definition_load(BYTES_OF("document: {dsl: '1.0.3', namespace: a, name: b, version: '1.0.0'}\ndo: []\n"), TEXT_YAML, &problems);
	ck_assert_ptr_nonnull(definition);
	problems_close(&problems);
	buffer_init(&text, 4096);
	for (int k = 0; k < ATTRIBUTES; k++)
		buffer_printf(&text, ",\"a%d\":\"%s%d\"", k, k == ATTRIBUTES - 1 ? "y" : "x", k);
	snprintf(path, sizeof path, "%s/log", f.folder);
	int log = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600), stderr_kept = dup(2);
	ck_assert_int_ge(log, 0);
	dup2(log, 2);

	struct event_hub *hub = event_hub_new(&f.loop, f.store);
	struct jq_pool *jq = jq_pool_open(&f.loop, &pool);
	for (int extra = 0; extra < 2; extra++) {
		struct entry entry;
		uv_timer_t tick;
		struct jq_counts before, counts;

		if (extra)
			*last = (struct event_attribute){.name = "type", .wants = EVENT_WANTS_PREDICATE, .predicate = "test(\"^t\")"};
		else
			*last = (struct event_attribute){.name = "type", .wants = EVENT_WANTS_VALUE, .value = json_text(&f.arena, "t"), .is_literal = true};
		make_event(&f, &entry, buffer_text(&text));
		append_ok(&f, &entry, 1);
		const struct event_trigger_config config = {.loop = &f.loop, .hub = hub, .jq = jq, .name = "a.b", .definition = definition, .strategy = &strategy, .after_seq = entry.seq - 1, .on_fire = on_fire, .arg = &fired};
		jq_pool_counts(jq, &before);
		fired = (struct fired){0};
		fired.trigger = event_trigger_new(&config);
		uv_timer_init(&f.loop, &tick);
		uv_timer_start(&tick, on_tick, 10, 10);
		for (int turn = 0; turn < 100000 && fired.count == 0 && !strstr(read_file(path), "passed over"); turn++)
			uv_run(&f.loop, UV_RUN_ONCE);
		uv_close((uv_handle_t *)&tick, NULL);
		jq_pool_counts(jq, &counts);
		ck_assert_uint_eq(counts.answered - before.answered, TRIGGER_EVALUATIONS_MAX);
		ck_assert_uint_eq(fired.count, extra ? 0 : 1);
		if (extra) {
			const char *wanted = arena_printf(&f.arena, "schedule=a.b event %llu is passed over: it needs more than 1024 evaluations (TRIGGER_EVALUATIONS_MAX)", (unsigned long long)entry.seq);
			ck_assert_msg(strstr(read_file(path), wanted) != NULL, "%s", read_file(path));
			/* The next one begins with no question asked. */
			make_event(&f, &entry, ",\"a0\":\"z\"");
			append_ok(&f, &entry, 1);
			event_hub_wake(hub);
			while (fired.count == 0)
				uv_run(&f.loop, UV_RUN_ONCE);
			ck_assert_uint_eq(fired.seq, entry.seq);
		}
		event_trigger_end(fired.trigger);
	}
	dup2(stderr_kept, 2);
	close(stderr_kept);
	close(log);
	event_hub_stop(hub);
	while (event_hub_is_reading(hub))
		uv_run(&f.loop, UV_RUN_ONCE);
	event_hub_close(hub);
	jq_pool_close(jq);
	buffer_close(&text);
	definition_release(definition);
	fixture_end(&f);
}
END_TEST

/* The events of one firing have TRIGGER_BYTES_MAX bytes together; more fire without an input, which the owner tells of. */
START_TEST(bytes_of_a_firing_are_limited)
{
	enum { EVENT_BYTES = 1000000, FIT = TRIGGER_BYTES_MAX / EVENT_BYTES };
	struct event_filter filters[FIT + 1] = {0};
	struct problems problems;
	struct fixture f;

	fixture_start(&f);
	struct event_attribute attribute = {.name = "type", .wants = EVENT_WANTS_VALUE, .value = json_text(&f.arena, "t"), .is_literal = true};
	problems_init(&problems);
	struct definition *definition = definition_load(BYTES_OF("document: {dsl: '1.0.3', namespace: a, name: b, version: '1.0.0'}\ndo: []\n"), TEXT_YAML, &problems);
	ck_assert_ptr_nonnull(definition);
	problems_close(&problems);
	struct event_hub *hub = event_hub_new(&f.loop, f.store);
	const char *data = arena_printf(&f.arena, ",\"data\":\"%0*d\"", EVENT_BYTES, 0);
	for (size_t i = 0; i <= FIT; i++)
		filters[i] = (struct event_filter){.attributes = &attribute, .attribute_count = 1};
	for (size_t extra = 0; extra < 2; extra++) {
		struct event_strategy strategy = {.kind = EVENTS_ALL, .filters = filters, .filter_count = FIT + extra};
		struct fired fired = {0};
		uint64_t first = 0;

		for (size_t i = 0; i < FIT + extra; i++) {
			struct entry entry;

			make_event(&f, &entry, data);
			append_ok(&f, &entry, 1);
			if (i == 0)
				first = entry.seq;
		}
		const struct event_trigger_config config = {.loop = &f.loop, .hub = hub, .name = "a.b", .definition = definition, .strategy = &strategy, .after_seq = first - 1, .on_fire = on_fire, .arg = &fired};
		fired.trigger = event_trigger_new(&config);
		event_hub_wake(hub);
		for (int turn = 0; turn < 60000 && fired.count == 0; turn++) {
			uv_run(&f.loop, UV_RUN_NOWAIT);
			uv_sleep(2);
		}
		ck_assert_uint_eq(fired.count, 1);
		if (extra)
			ck_assert_uint_eq(fired.bytes, 0);
		else
			ck_assert_uint_gt(fired.bytes, (size_t)FIT * EVENT_BYTES);
		event_trigger_end(fired.trigger);
	}
	event_hub_stop(hub);
	while (event_hub_is_reading(hub))
		uv_run(&f.loop, UV_RUN_ONCE);
	event_hub_close(hub);
	definition_release(definition);
	fixture_end(&f);
}
END_TEST

/* --- appends that wait ------------------------------------------------------------------------------------------------ */

static void on_counted(struct store_append *append)
{
	ck_assert_msg(append->error.code == 0, "%s", append->error.message);
	(*(unsigned *)append->owner)++;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_uint_lt(strlen(path), sizeof address.sun_path);
	memcpy(address.sun_path, path, strlen(path));
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	return fd;
}

/* When STORE_QUEUE_MAX appends wait, an event and a run are refused with 503, the limit's name and Retry-After; what only reads is served. */
START_TEST(a_full_queue_is_told)
{
	static const char *const heads[] = {"POST /v1/events", "POST /v1/runs", "GET /v1/version"};
	struct daemon *daemon = memory_zero(sizeof *daemon);
	struct store_append *appends = memory_zero(STORE_QUEUE_MAX * sizeof *appends);
	struct entry *entries = memory_zero(STORE_QUEUE_MAX * sizeof *entries);
	struct http_handler handler = api_handler;
	char path[sizeof(((struct fixture *)NULL)->folder) + 8], answers[COUNT_OF(heads)][2048] = {0};
	int clients[COUNT_OF(heads)];
	unsigned done = 0;
	struct fixture f;

	fixture_start(&f);
	config_init(&daemon->config);
	snprintf(path, sizeof path, "%s/s", f.folder);
	daemon->config.listen[daemon->config.listen_count++] = path;
	daemon->store = f.store;
	daemon->stage = DAEMON_SERVING;
	handler.arg = daemon;
	ck_assert_msg(http_server_open(&daemon->http, &f.loop, &daemon->config, &handler, &f.error) == 0, "%s", f.error.message);
	for (size_t i = 0; i < COUNT_OF(heads); i++)
		clients[i] = connect_to(path);
	for (int turn = 0; turn < 20; turn++)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	for (unsigned i = 0; i < STORE_QUEUE_MAX; i++) {
		make_created(&f.arena, &entries[i], arena_printf(&f.arena, "run-%u", i), "queue", NULL);
		appends[i] = (struct store_append){.entries = &entries[i], .entry_count = 1, .on_done = on_counted, .owner = &done};
		ck_assert_int_eq(store_append(f.store, &appends[i]), 0);
	}
	for (size_t i = 0; i < COUNT_OF(heads); i++) {
		const char *request = arena_printf(&f.arena, "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", heads[i], i < 2 ? "Content-Type: application/json\r\nContent-Length: 2\r\n" : "");
		if (i < 2)
			request = arena_printf(&f.arena, "%s{}", request);
		ck_assert_int_eq(write(clients[i], request, strlen(request)), (ssize_t)strlen(request));
	}
	for (size_t i = 0; i < COUNT_OF(heads); i++) {
		size_t len = 0;
		ssize_t got;

		for (;;) {
			got = recv(clients[i], answers[i] + len, sizeof answers[i] - 1 - len, MSG_DONTWAIT);
			if (got == 0)
				break;
			if (got > 0)
				len += (size_t)got;
			else
				uv_run(&f.loop, UV_RUN_NOWAIT);
		}
		close(clients[i]);
	}
	for (size_t i = 0; i < 2; i++) {
		ck_assert_msg(strncmp(answers[i], "HTTP/1.1 503 ", 13) == 0, "%s: %s", heads[i], answers[i]);
		ck_assert_msg(strstr(answers[i], "\r\nRetry-After: 1\r\n") != NULL, "%s", answers[i]);
		ck_assert_msg(strstr(answers[i], "the journal's queue is full: 16384 appends wait, the limit (STORE_QUEUE_MAX)") != NULL, "%s", answers[i]);
	}
	ck_assert_msg(strncmp(answers[2], "HTTP/1.1 200 ", 13) == 0, "%s", answers[2]);
	while (done < STORE_QUEUE_MAX)
		uv_run(&f.loop, UV_RUN_ONCE);
	http_server_stop_accepting(daemon->http);
	http_server_close(daemon->http);
	for (int turn = 0; turn < 20; turn++)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	http_server_free(daemon->http);
	config_close(&daemon->config);
	fixture_end(&f);
	free(entries);
	free(appends);
	free(daemon);
}
END_TEST

/* --- answers ----------------------------------------------------------------------------------------------------------- */

static uint64_t take_headers(void *arg, struct request *request)
{
	(void)arg;
	(void)request;
	return 0;
}

/* As many bytes as may be, of which nothing is copied, with one more: what does not fit is not added. */
static void answer_too_much(void *arg, struct request *request)
{
	struct buffer body;

	buffer_init(&body, ANSWER_MAX);
	buffer_add_bytes(&body, (struct bytes){arg, (size_t)ANSWER_MAX + 1});
	ck_assert(body.overflow);
	request_answer(request, 200, "application/octet-stream", &body);
}

static uint64_t zero_us(void *arg)
{
	(void)arg;
	return 0;
}

/* An answer past ANSWER_MAX bytes is none: 500, with the limit's name. */
START_TEST(answers_are_limited)
{
	void *much = mmap(NULL, (size_t)ANSWER_MAX + 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	const struct http_handler handler = {.arg = much, .on_headers = take_headers, .on_request = answer_too_much, .now_us = zero_us};
	static const char request[] = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	struct http_server *server;
	struct config config;
	struct fixture f;
	char path[300], answer[2048] = {0};
	size_t len = 0;
	ssize_t got;

	ck_assert_ptr_ne(much, MAP_FAILED);
	fixture_start(&f);
	config_init(&config);
	snprintf(path, sizeof path, "%s/s", f.folder);
	config.listen[config.listen_count++] = path;
	ck_assert_msg(http_server_open(&server, &f.loop, &config, &handler, &f.error) == 0, "%s", f.error.message);
	int client = connect_to(path);
	ck_assert_int_eq(write(client, request, sizeof request - 1), (ssize_t)sizeof request - 1);
	while ((got = recv(client, answer + len, sizeof answer - 1 - len, MSG_DONTWAIT)) != 0)
		if (got > 0)
			len += (size_t)got;
		else
			uv_run(&f.loop, UV_RUN_NOWAIT);
	close(client);
	ck_assert_msg(strncmp(answer, "HTTP/1.1 500 ", 13) == 0, "%s", answer);
	ck_assert_msg(strstr(answer, "\r\nContent-Type: application/problem+json\r\n") != NULL, "%s", answer);
	ck_assert_msg(strstr(answer, "the answer is over the limit of 536870912 bytes; ask for less: limit, include (ANSWER_MAX)") != NULL, "%s", answer);
	http_server_stop_accepting(server);
	http_server_close(server);
	for (int turn = 0; turn < 20; turn++)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	http_server_free(server);
	config_close(&config);
	munmap(much, (size_t)ANSWER_MAX + 1);
	fixture_end(&f);
}
END_TEST

TEST_MAIN("daemon_limits", forgotten_in_portions, evaluations_are_limited, bytes_of_a_firing_are_limited, a_full_queue_is_told, answers_are_limited)
